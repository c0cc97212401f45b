//! Decides which files the host trusts: those that only this user and root can have written.
//!
//! A plugin's library runs as the user. `config.yaml` names that plugin and the address that
//! requests go to, and `context.engine_host` names a program. If another user could write one
//! of these files, that user could run code as this one. All of them are subject to one rule,
//! and [`open`] enforces it.
//!
//! [`open`] also rejects anything except regular files, because a FIFO would block forever and
//! a device has no end. On systems other than Unix, only this second check applies.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

/// Why the host does not trust a file. The message tells the user how to change that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Untrusted {
    /// Every user may write to the file, so anybody could have changed it.
    #[error(
        "{} is world-writable, but its content is run as you or decides what is run as you: if you trust it, \
         run `chmod o-w '{0}'`",
        path.display()
    )]
    WritableByAll {
        /// The path of the file or folder.
        path: PathBuf,
    },
    /// The file belongs to a user other than this one or root.
    #[error(
        "{} belongs to the user {owner}, and its content runs as you or decides what runs as you: run `sudo \
         chown -R {own} '{0}'` if you trust its content",
        path.display()
    )]
    ForeignOwner {
        /// The path of the file or folder.
        path: PathBuf,
        /// The user id of the owner.
        owner: u32,
        /// The user id that this process runs as.
        own: u32,
    },
    /// The path is a FIFO, a socket, a device or a folder.
    #[error("{} is {kind}, not a regular file: copy its content to one and use that", path.display())]
    NotRegular {
        /// The path that was given.
        path: PathBuf,
        /// The kind of file, with an article.
        kind: &'static str,
    },
    /// The file cannot be opened, or its metadata cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The path that was given.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
}

impl Untrusted {
    /// The path of the file or folder that is not trusted, for every kind of reason.
    pub fn path(&self) -> &Path {
        match self {
            Self::WritableByAll { path }
            | Self::ForeignOwner { path, .. }
            | Self::NotRegular { path, .. }
            | Self::Unreadable { path, .. } => path,
        }
    }
}

/// Opens a regular file for reading, if no other user can have written it. The checks use the
/// opened file, so it cannot be exchanged in between.
///
/// # Errors
/// Fails if the file cannot be opened, is not a regular file, or may have been written by
/// another user.
pub fn open(path: &Path) -> Result<File, Untrusted> {
    let unreadable = |cause| Untrusted::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let mut options = File::options();
    options.read(true);
    // Without this flag, opening a FIFO blocks until somebody writes to it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits() as i32,
    );
    let file = options.open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Untrusted::NotRegular {
            path: path.to_owned(),
            kind: kind(&metadata),
        });
    }
    check_writers(path, &metadata)?;
    Ok(file)
}

#[cfg(unix)]
fn kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(not(unix))]
fn kind(metadata: &Metadata) -> &'static str {
    match metadata.is_dir() {
        true => "a folder",
        false => "a device",
    }
}

/// Fails if every user may write to the file, or if it belongs to a user other than this one or
/// root. Returns a warning if its group may write to it and may have other members. The path is
/// only used in messages.
#[cfg(unix)]
pub fn check_writers(path: &Path, metadata: &Metadata) -> Result<Option<String>, Untrusted> {
    use std::os::unix::fs::MetadataExt;

    let own = rustix::process::geteuid().as_raw();
    let owner = metadata.uid();
    if owner != own && owner != 0 {
        return Err(Untrusted::ForeignOwner {
            path: path.to_owned(),
            owner,
            own,
        });
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(Untrusted::WritableByAll {
            path: path.to_owned(),
        });
    }
    // A writable group is only a warning, because some systems give each user a group of their
    // own.
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
        format!(
            "{path} can be written by its group, and its content runs as you or decides what runs as you: run \
             `chmod g-w '{path}'` if you trust its content"
        )
    }))
}

/// Whether a group may have members other than this user and root. `groups` and `users` are the
/// contents of `/etc/group` and `/etc/passwd`. If these do not list the group or the user, as
/// with network accounts, the answer is yes.
#[cfg(unix)]
pub fn has_others(gid: u32, own: u32, groups: &str, users: &str) -> bool {
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

/// Accepts every file, because the permissions of this system are not read.
///
/// # Errors
/// Never fails.
#[cfg(not(unix))]
pub fn check_writers(_: &Path, _: &Metadata) -> Result<Option<String>, Untrusted> {
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
