//! A plugin's library: who may have written it, and a copy of it that nobody else can write.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::PluginProblem;

/// A library's bytes, read once: what is checked is what is loaded.
pub(crate) struct Library {
    /// The file that they were read from.
    pub(crate) path: PathBuf,
    bytes: Vec<u8>,
}

impl Library {
    /// Reads a library, if nobody else may have written it.
    pub(super) fn read(path: &Path) -> Result<Self, PluginProblem> {
        let unreadable = |cause| PluginProblem::Unreadable {
            library: path.to_owned(),
            cause,
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        check_writers(path, &metadata)?;
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
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        use std::os::fd::AsRawFd;

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let mut copy = File::from(memfd_create("contexture-plugin", flags)?);
        copy.write_all(&self.bytes)?;
        fcntl_add_seals(
            &copy,
            SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW,
        )?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
        let loaded = load(Path::new(&path));
        // Never closed: the dynamic linker takes a second library of this path for the first.
        std::mem::forget(copy);
        Ok(loaded)
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

/// Refuses what everybody may write, or what belongs to another user than this one or root. What its group may
/// write is worth a warning, which is given back.
#[cfg(unix)]
pub(super) fn check_writers(
    path: &Path,
    metadata: &Metadata,
) -> Result<Option<String>, PluginProblem> {
    use std::os::unix::fs::MetadataExt;

    let own = rustix::process::geteuid().as_raw();
    let owner = metadata.uid();
    if owner != own && owner != 0 {
        return Err(PluginProblem::ForeignOwner {
            path: path.to_owned(),
            owner,
            own,
        });
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(PluginProblem::WritableByAll {
            path: path.to_owned(),
        });
    }
    Ok((metadata.mode() & 0o020 != 0).then(|| {
        let path = path.display();
        format!("{path} may be written by its group, and runs as you: `chmod g-w '{path}'`")
    }))
}

#[cfg(not(unix))]
pub(super) fn check_writers(_: &Path, _: &Metadata) -> Result<Option<String>, PluginProblem> {
    Ok(None)
}
