//! SQLite in a child made by `fork`. Its locks on a file belong to a process, and a child has none of its parent's. But it
//! finds its parent's notes of them in its memory, by the file's device and number, and would take them for its own: the
//! last other process that closes the store would then take its log away under the child, and what the child writes would
//! be lost. So here a file has another device for every process, and a child begins without notes.
//!
//! SQLite lets an embedder put a function of its own in the place of a system call. This is the only module of the package
//! that is not safe Rust: there is no other way to do it.

#![allow(unsafe_code)]

/// Sees to it, for the SQLite that is linked into this package. To be called before the first store is opened.
#[cfg(all(unix, target_pointer_width = "64"))]
pub(crate) fn tell_processes_apart() {
    use std::ffi::{c_char, c_int};
    use std::mem::transmute;

    use libc::stat;
    use rusqlite::ffi;

    /// A system call, as SQLite's table of them has it.
    type Call = unsafe extern "C" fn();

    /// Puts the mark of this process on what is found.
    fn mark(found: c_int, out: *mut stat) -> c_int {
        if found == 0 {
            // SAFETY: a call that succeeded has filled in what SQLite gave a place for.
            unsafe { (*out).st_dev ^= std::process::id() as libc::dev_t };
        }
        found
    }

    extern "C" fn of_file(file: c_int, out: *mut stat) -> c_int {
        // SAFETY: the arguments are those of the system call.
        mark(unsafe { libc::fstat(file, out) }, out)
    }

    extern "C" fn of_path(path: *const c_char, out: *mut stat) -> c_int {
        // SAFETY: the arguments are those of the system call.
        mark(unsafe { libc::stat(path, out) }, out)
    }

    // SAFETY: SQLite calls the functions with the arguments of the calls that they are named after, and so they are
    // declared; its table of calls lives as long as the process.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(std::ptr::null());
        let Some(set) = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall) else {
            return;
        };
        let call = transmute::<extern "C" fn(c_int, *mut stat) -> c_int, Call>(of_file);
        set(vfs, c"fstat".as_ptr(), Some(call));
        let call = transmute::<extern "C" fn(*const c_char, *mut stat) -> c_int, Call>(of_path);
        set(vfs, c"stat".as_ptr(), Some(call));
    }
}

#[cfg(not(all(unix, target_pointer_width = "64")))]
pub(crate) fn tell_processes_apart() {}
