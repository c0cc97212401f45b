//! Noticing a plugin that ends the process.
//!
//! A plugin runs inside the host's process. If a library in it calls `exit(0)`, the host ends with
//! success although its work is not done. A program calls [`watch_exit`] at its start to detect
//! this: a handler that the C library runs on exit prints which plugin was loaded and ends the
//! process with a failure code. Before the program ends by itself, it calls [`unwatch_exit`] or
//! [`leave`].
//!
//! A plugin can also hang while it is loaded. [`end_watched`] and [`end_watched_after`] end a
//! watched process in that case. Running each engine in its own process would detect more, but
//! every conversation would have to be copied.

use std::ffi::c_int;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

// SAFETY: both functions have these types in every C library, and both may be called at any time.
unsafe extern "C" {
    safe fn atexit(handler: extern "C" fn()) -> c_int;
    safe fn _exit(code: c_int) -> !;
}

/// The libraries that were loaded or are being loaded, under the names that messages use for them.
static LOADED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The exit code that the process gets if something other than its own program ends it. 0 means
/// that the process is not watched.
static CODE: AtomicI32 = AtomicI32::new(0);

/// Has the handler called when this process ends, by its own `exit` or by the return of its `main`.
/// Other threads may still run then. A process that ends by a signal does not call it.
pub fn at_exit(handler: extern "C" fn()) {
    // Fails if no memory is left. The process then ends as it did without a handler.
    let _ = atexit(handler);
}

/// Notes that this library is about to be loaded. A [watched](watch_exit) process also prints the
/// name on stderr. If the library's constructors end the process without running exit handlers
/// (`_exit`, `exec` or a fault), this line is the only trace of which plugin it was.
pub(super) fn note_loading(library: &Path) {
    let library = library.display().to_string();
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.contains(&library) {
        return;
    }
    if CODE.load(Ordering::SeqCst) != 0 {
        let message = format!("loading the plugin {library}\n");
        let _ = std::io::stderr().write_all(crate::printable(&message, usize::MAX).as_bytes());
    }
    loaded.push(library);
}

/// Starts to watch for plugins that end the process. If a plugin was loaded and the process exits
/// before [`unwatch_exit`] or [`leave`] is called, it names the plugin on stderr and ends with
/// `code`. Use this only in programs that call one of the two before they end.
pub fn watch_exit(code: u8) {
    if CODE.swap(code.into(), Ordering::SeqCst) == 0 {
        at_exit(name_plugin);
    }
}

/// Stops watching, because the program is about to end by itself.
pub fn unwatch_exit() {
    CODE.store(0, Ordering::SeqCst);
}

/// Stops watching, because the program is about to end with `code`. If a plugin was loaded, its
/// threads and destructors may hang. The process therefore ends after `patience` even if they do.
pub fn leave(code: u8, patience: Duration) {
    unwatch_exit();
    let loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if loaded.is_empty() {
        return;
    }
    let watchdog = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(patience);
        _exit(code.into());
    });
    // If no thread can be started, nothing would end the process later, so it ends now.
    if watchdog.is_err() {
        _exit(code.into());
    }
}

/// Prints the message on stderr and ends the process at once, if it is [watched](watch_exit).
/// Otherwise does nothing. Use it if hardly any thread can go on, for example because a library
/// hangs while it is loaded and holds the linker's lock.
pub fn end_watched(message: &str) {
    let code = CODE.load(Ordering::SeqCst);
    if code != 0 {
        let _ = std::io::stderr().write_all(crate::printable(message, usize::MAX).as_bytes());
        _exit(code);
    }
}

/// Ends a [watched](watch_exit) process as [`end_watched`] does, unless the returned value is
/// dropped within `patience`.
///
/// A library that hangs while it is loaded holds the lock of the dynamic linker. Any thread that
/// registers the destructor of a thread-local then waits for that lock, and waiting on a channel or
/// writing a log line may do so for the first time. The thread that waits for the load can
/// therefore not be relied on to end the process. The thread that is started here is already
/// running before the load begins, and only waits.
pub fn end_watched_after(patience: Duration, message: String) -> impl Drop {
    struct Loaded {
        is_loaded: Arc<AtomicBool>,
        watch: Option<Thread>,
    }

    impl Drop for Loaded {
        fn drop(&mut self) {
            self.is_loaded.store(true, Ordering::SeqCst);
            if let Some(watch) = &self.watch {
                watch.unpark();
            }
        }
    }

    let is_loaded = Arc::new(AtomicBool::new(false));
    let mut watch = None;
    if CODE.load(Ordering::SeqCst) != 0 {
        let (loaded, runs) = (Arc::clone(&is_loaded), Arc::new(AtomicBool::new(false)));
        let has_begun = Arc::clone(&runs);
        let wait = move || {
            has_begun.store(true, Ordering::SeqCst);
            let began = Instant::now();
            while !loaded.load(Ordering::SeqCst) {
                match patience.saturating_sub(began.elapsed()) {
                    Duration::ZERO => return end_watched(&message),
                    left => std::thread::park_timeout(left),
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch a load".to_owned());
        // If no thread can be started, the one that waits for the load is all there is.
        watch = thread
            .spawn(wait)
            .ok()
            .map(|thread| thread.thread().clone());
        // Starting a thread needs the linker's lock too, so wait until the thread runs before the
        // load begins.
        while watch.is_some() && !runs.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    Loaded { is_loaded, watch }
}

extern "C" fn name_plugin() {
    let code = CODE.load(Ordering::SeqCst);
    // The thread that holds the lock may have been stopped by now, so waiting for it could take
    // forever.
    let Ok(loaded) = LOADED.try_lock() else {
        return;
    };
    if code == 0 || loaded.is_empty() {
        return;
    }
    let message = format!(
        "error: a plugin ended the process before its work was done ({}). Report it to the engine's author, or \
         choose another engine.\n",
        loaded.join(" or ")
    );
    let _ = std::io::stderr().write_all(crate::printable(&message, usize::MAX).as_bytes());
    _exit(code);
}
