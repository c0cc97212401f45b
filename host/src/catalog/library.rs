//! A plugin's library: who may have written it, and a copy of it that nobody else can write.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
#[cfg(target_os = "linux")]
use std::time::Duration;

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

/// Refuses what everybody may write, or what belongs to another user than this one or root. What a group may
/// write that others are in is worth a warning, which is given back.
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
    let text = |file| std::fs::read_to_string(file).unwrap_or_default();
    let by_others = metadata.mode() & 0o020 != 0
        && has_others(
            metadata.gid(),
            own,
            &text("/etc/group"),
            &text("/etc/passwd"),
        );
    Ok(by_others.then(|| {
        let path = path.display();
        format!("{path} may be written by its group, and runs as you: `chmod g-w '{path}'`")
    }))
}

/// Whether a group may have members other than this user and root, by what `/etc/group` and `/etc/passwd` say. Where
/// they know nothing of the group or the user, as with users of a network, it may.
#[cfg(unix)]
pub(super) fn has_others(gid: u32, own: u32, groups: &str, users: &str) -> bool {
    let fields = |line: &'_ str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let number = |fields: &[String], at: usize| fields.get(at)?.parse::<u32>().ok();
    let users: Vec<_> = users.lines().map(fields).collect();
    let group = groups.lines().map(fields);
    let mut group = group.filter(|group| number(group, 2) == Some(gid));
    let is_known = users.iter().any(|user| number(user, 2) == Some(own));
    let (Some(group), true) = (group.next(), is_known) else {
        return true;
    };
    let is_own = |user: &Vec<String>| [Some(own), Some(0)].contains(&number(user, 2));
    let listed = group.get(3).map(String::as_str).unwrap_or_default();
    let mut listed = listed.split(',').filter(|member| !member.is_empty());
    listed.any(|member| !users.iter().any(|user| user[0] == member && is_own(user)))
        || users
            .iter()
            .any(|user| number(user, 3) == Some(gid) && !is_own(user))
}

#[cfg(not(unix))]
pub(super) fn check_writers(_: &Path, _: &Metadata) -> Result<Option<String>, PluginProblem> {
    Ok(None)
}

#[cfg(all(test, unix))]
mod tests {
    use super::has_others;

    #[test]
    fn a_group_of_ones_own_has_nobody_else_in_it() {
        let users = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n\
                     you:x:1001:1001::/home/you:/bin/sh\nguest:x:1002:50::/:/bin/sh\n";
        let groups = "root:x:0:\nme:x:1000:\nalone:x:60:me,root\nteam:x:70:me,you\nstaff:x:50:\nnet:x:80:far\n";
        let others = |gid| has_others(gid, 1000, groups, users);
        assert!(!others(1000), "a group of its user's name");
        assert!(!others(60), "listed alone, and root may all anyway");
        assert!(!others(0));
        assert!(others(70), "somebody else is listed");
        assert!(others(50), "somebody else has it in the list of users");
        assert!(others(80), "somebody is listed who is a user elsewhere");
        assert!(others(99), "nothing is known of the group");
        assert!(has_others(1000, 77, groups, users), "nor of the user");
    }
}
