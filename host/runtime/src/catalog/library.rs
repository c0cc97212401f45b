//! A plugin's library, and a private copy of it that no other user can write.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
#[cfg(target_os = "linux")]
use std::time::Duration;

use contexture_base::trust::{self, Untrusted};

use super::PluginProblem;

/// How often a copy is tried to be sealed; the kernel waits 150 ms each time.
#[cfg(target_os = "linux")]
const SEAL_TRIES: u32 = 20;
#[cfg(target_os = "linux")]
const SEAL_PAUSE: Duration = Duration::from_millis(50);

/// A library's bytes, read once: what is checked is what is loaded.
pub(crate) struct Library {
    /// The file that they were read from.
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
}

impl Library {
    /// Reads a library, if nobody else may have written it.
    pub(super) fn read(path: &Path) -> Result<Self, PluginProblem> {
        let unreadable = |cause| Untrusted::Unreadable {
            path: path.to_owned(),
            cause,
        };
        let mut file = trust::open(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(unreadable)?;
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Its SHA-256 in lower-case hex.
    pub(super) fn sha256(&self) -> String {
        let digest = hmac_sha256::Hash::hash(&self.bytes);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Tells it from other libraries.
    pub(crate) fn hash(&self) -> u128 {
        xxhash_rust::xxh3::xxh3_128(&self.bytes)
    }

    /// Calls `load` with the path of a copy that nobody else can write.
    ///
    /// # Errors
    /// The copy cannot be made.
    pub(crate) fn with_copy<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        self.with_copy_of(load)
    }

    /// In memory, so that nothing is left behind and no folder has to allow programs.
    #[cfg(target_os = "linux")]
    fn with_copy_of<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        use std::os::fd::AsRawFd;

        let copy = self.copy()?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        let loaded = load(Path::new(&path));
        // Never closed: the dynamic linker takes a second library of this path for the first.
        std::mem::forget(copy);
        Ok(loaded)
    }

    /// Calls `start` with a copy for a process to load, and with what its standard input has to be for that.
    ///
    /// # Errors
    /// The copy cannot be made.
    #[cfg(target_os = "linux")]
    pub(crate) fn for_child<T>(&self, start: impl FnOnce(Stdio, &Path) -> T) -> io::Result<T> {
        Ok(start(
            Stdio::from(self.copy()?),
            Path::new("/proc/self/fd/0"),
        ))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn for_child<T>(&self, start: impl FnOnce(Stdio, &Path) -> T) -> io::Result<T> {
        self.with_copy(|copy| start(Stdio::null(), copy))
    }

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
                // The kernel still holds pages of it, as it does for a moment under load (fcntl(2), F_SEAL_WRITE).
                Err(Errno::BUSY) if tries < SEAL_TRIES => tries += 1,
                sealed => break sealed?,
            }
            std::thread::sleep(SEAL_PAUSE);
        }
        Ok(copy)
    }

    /// In a folder that is this user's alone.
    #[cfg(not(target_os = "linux"))]
    fn with_copy_of<T>(&self, load: impl FnOnce(&Path) -> T) -> io::Result<T> {
        let folder = tempfile::tempdir()?;
        let name = self.path.file_name().unwrap_or("plugin".as_ref());
        let copy = folder.path().join(name);
        File::create_new(&copy)?.write_all(&self.bytes)?;
        Ok(load(&copy))
    }
}
