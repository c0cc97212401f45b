//! A plugin that ends the process (`exit(0)` deep in a library, say) is noticed and named.
//!
//! The C library runs handlers when a process exits, whoever asked for it. A process of its own for each
//! engine would notice more, and would cost a copy of every conversation.

use std::ffi::c_int;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

// SAFETY: both have these types in every C library, and both may be called at any time.
unsafe extern "C" {
    safe fn atexit(handler: extern "C" fn()) -> c_int;
    safe fn _exit(code: c_int) -> !;
}

/// The names, as messages print them, of the libraries that were loaded or are being loaded.
static LOADED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The code that the process ends with where it is not its own program that ends it; 0 for not watched.
static CODE: AtomicI32 = AtomicI32::new(0);

/// Notes that this library is about to be loaded. A [watched](watch_exit) process prints the name on stderr. If the
/// library's constructors end the process without running exit handlers (`_exit`, `exec`, a fault), this line is the
/// only trace of which plugin it was.
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

/// From now on, a process that has loaded a plugin and exits before [`unwatch_exit`] or [`leave`] says so on
/// stderr, names the plugin, and ends with `code`. For programs that end nowhere else.
pub fn watch_exit(code: u8) {
    if CODE.swap(code.into(), Ordering::SeqCst) == 0 {
        atexit(at_exit);
    }
}

/// The program is about to end by itself.
pub fn unwatch_exit() {
    CODE.store(0, Ordering::SeqCst);
}

/// The program is about to end with `code`. Where a plugin was loaded, whose threads and destructors may
/// hang, the process ends after `patience` all the same.
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
    // Without a thread there is nobody to wait.
    if watchdog.is_err() {
        _exit(code.into());
    }
}

/// Ends a [watched](watch_exit) process at once, with this on stderr; any other goes on. For what leaves hardly any
/// thread able to go on, such as a library that does not return from being loaded and holds the system's lock.
pub fn end_watched(message: &str) {
    let code = CODE.load(Ordering::SeqCst);
    if code != 0 {
        let _ = std::io::stderr().write_all(crate::printable(message, usize::MAX).as_bytes());
        _exit(code);
    }
}

/// Ends a [watched](watch_exit) process as [`end_watched`] does, unless what is returned is dropped within `patience`.
///
/// A library that hangs while it is loaded holds the dynamic linker's lock. Any thread that registers a destructor of a
/// thread-local then waits for that lock, and waiting on a channel or writing a log line may do so for the first time. So
/// nobody who waits for the load can be relied on to end the process. This thread is running before the load begins,
/// only waits, and ends with the load.
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
        // Without a thread the one that waits for the load is all there is.
        watch = thread
            .spawn(wait)
            .ok()
            .map(|thread| thread.thread().clone());
        // The beginning of a thread needs the lock, too.
        while watch.is_some() && !runs.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
    Loaded { is_loaded, watch }
}

extern "C" fn at_exit() {
    let code = CODE.load(Ordering::SeqCst);
    // Whoever holds the lock may be a thread that is stopped by now.
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
