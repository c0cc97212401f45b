//! Makes SQLite safe in a child made by `fork`.
//!
//! SQLite's locks on a file belong to a process, and a child does not inherit those of its parent.
//! However, the child's memory still holds the parent's lock table, keyed by the device and inode
//! of the file, and SQLite would take those locks for its own. When the last other process closed
//! the store, it would then delete the log that the child still uses, and the child's writes would
//! be lost.
//!
//! This module therefore gives a file a different device number in every process, so a child begins
//! with an empty lock table. SQLite lets an embedder replace its system calls, see
//! [`tell_processes_apart`]. This is the only module of the package with unsafe code, because there
//! is no other way to do this.

#![allow(unsafe_code)]

/// Installs the replacement system calls in the SQLite that is linked into this package. Call it
/// before the first store is opened, because an open file keeps the number under which it was
/// opened.
#[cfg(all(unix, target_pointer_width = "64"))]
pub(crate) fn tell_processes_apart() {
    use std::ffi::{c_char, c_int};
    use std::mem::transmute;

    use libc::stat;
    use rusqlite::ffi;

    /// The type that SQLite's table of system calls has for each of them.
    type Call = unsafe extern "C" fn();

    /// Changes the device number in the result of a `stat` to one of this process alone.
    fn mark(found: c_int, out: *mut stat) -> c_int {
        if found == 0 {
            // SAFETY: after a successful call, the buffer that SQLite passed is filled in.
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

    // SAFETY: SQLite calls the functions with the arguments of the system calls that they are named
    // after, and they are declared that way. Its table of calls lives as long as the process.
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
