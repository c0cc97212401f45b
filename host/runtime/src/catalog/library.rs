//! A plugin's library in memory, and private copies of it to load.
//!
//! A library is checked before it is loaded: nobody else may be able to write it, and its digest
//! may be pinned. If the file were loaded by its path afterwards, it could have been replaced in
//! between. [`Library::read`] therefore reads the bytes once, the checks use these bytes, and the
//! dynamic linker loads a private copy of them.
//!
//! On Linux the copy is a sealed file in memory (`memfd_create`), so that nothing is left on disk
//! and it works even if every writable file system forbids execution. On other systems it is a file
//! in a private temporary folder.
//!
//! Comparing digests with the manifest is left to `manifest`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::Stdio;
#[cfg(target_os = "linux")]
use std::time::Duration;

use contexture_base::trust::{self, Untrusted};

use super::PluginProblem;

/// How often sealing a copy is tried. The kernel itself waits up to 150 ms in each try.
#[cfg(target_os = "linux")]
const SEAL_TRIES: u32 = 20;
#[cfg(target_os = "linux")]
const SEAL_PAUSE: Duration = Duration::from_millis(50);

/// Writes a digest in lower-case hex.
pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a library, read once: what is checked is what is loaded.
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
}

impl Library {
    /// Reads a library.
    ///
    /// # Errors
    /// Returns [`PluginProblem::Untrusted`] if another user can write the file, it is not a regular
    /// file, or it cannot be read.
    pub(super) fn read(path: &Path) -> Result<Self, PluginProblem> {
        let unreadable = |cause| Untrusted::Unreadable {
            path: path.to_owned(),
            cause,
        };
        // The permissions are checked on the open file, so the file that is read is the one that
        // was checked.
        let mut file = trust::open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Returns the SHA-256 of the library in lower-case hex, as `sha256sum` prints it.
    pub(super) fn sha256(&self) -> String {
        hex(&hmac_sha256::Hash::hash(&self.bytes))
    }

    /// Returns a fast hash that identifies the library within this process. It is not meant to
    /// resist forgery: use [`sha256`](Self::sha256) to compare with a pinned digest.
    pub(crate) fn hash(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.bytes)
    }

    /// Calls `load` with the path of a copy that nobody else can write. The path is valid only
    /// during the call.
    ///
    /// # Errors
    /// Returns the error of the operating system if the copy cannot be made. `load` is not called
    /// then.
    pub(crate) fn with_copy<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        self.with_copy_of(load)
    }

    /// Makes the copy in memory, so that nothing is left behind on disk and no file system has to
    /// allow execution.
    #[cfg(target_os = "linux")]
    fn with_copy_of<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        use std::os::fd::AsRawFd;

        let copy = self.copy()?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        let loaded = load(Path::new(&path));
        // Never closed: the next copy would get the same descriptor and path, and the dynamic
        // linker would take it for the library that is loaded already.
        std::mem::forget(copy);
        Ok(loaded)
    }

    /// Calls `start` with a copy for a child process to load, and with the standard input that the
    /// child must get for the path to be valid.
    ///
    /// # Errors
    /// Returns the error of the operating system if the copy cannot be made.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_child<T>(&self, start: impl FnOnce(Stdio, &Path) -> T) -> io::Result<T> {
        Ok(start(
            // The child inherits the copy as its standard input, and finds it under its own
            // `/proc/self`.
            Stdio::from(self.copy()?),
            Path::new("/proc/self/fd/0"),
        ))
    }

    /// Calls `start` with a copy for a child process to load. The copy is a file, so standard input
    /// is empty.
    #[cfg(all(unix, not(target_os = "linux")))]
    pub(crate) fn for_child<T>(&self, start: impl FnOnce(Stdio, &Path) -> T) -> io::Result<T> {
        self.with_copy(|copy| start(Stdio::null(), copy))
    }

    /// Writes the library to a file in memory and seals it against any change.
    #[cfg(target_os = "linux")]
    fn copy(&self) -> io::Result<File> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        use rustix::io::Errno;

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut copy = File::from(memfd_create("contexture-plugin", flags)?);
        copy.write_all(&self.bytes)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
        let mut tries = 1;
        loop {
            match fcntl_add_seals(&copy, seals) {
                // The kernel still holds pages of the file, which happens for a moment under load.
                // See F_SEAL_WRITE in fcntl(2).
                Err(Errno::BUSY) if tries < SEAL_TRIES => tries += 1,
                sealed => break sealed?,
            }
            std::thread::sleep(SEAL_PAUSE);
        }
        Ok(copy)
    }

    /// Makes the copy in a temporary folder that only this user can read.
    #[cfg(not(target_os = "linux"))]
    fn with_copy_of<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        let folder = tempfile::tempdir()?;
        let name = self.path.file_name().unwrap_or("plugin".as_ref());
        let copy = folder.path().join(name);
        File::create_new(&copy)?.write_all(&self.bytes)?;
        Ok(load(&copy))
    }
}
