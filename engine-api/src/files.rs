//! Private files and folders for conversations.
//!
//! The files of engines and hosts contain conversations, so other users of the machine must not
//! read them. These functions create files and folders that only their owner can use, whatever the
//! umask is, and tighten the permissions of existing ones. Use [`private_file_options`] and
//! [`make_private_folder`] to create, and [`make_private`] to repair.
//!
//! Permissions are only set on Unix. On other systems the functions create files and folders with
//! the system's defaults. [`immutable_uri`], [`sqlite_file`] and [`has_sqlite_log`] help to read SQLite
//! databases.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the URI with which SQLite opens a file that nobody changes. SQLite then takes no locks
/// and creates no log next to the file, so the file can be on a read-only disk. Special characters
/// in the path are percent-encoded.
pub fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    // Everything else is encoded: `?` and `#` would end the path, and `%` would begin an escape.
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Returns the path of a file that SQLite keeps beside a database. Its name ends with `suffix`, which is
/// `-wal` for the log.
pub fn sqlite_file(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns whether a database has a log that is not empty. The database alone is then not complete, so
/// it must not be opened with [`immutable_uri`].
pub fn has_sqlite_log(database: &Path) -> bool {
    std::fs::metadata(sqlite_file(database, "-wal")).is_ok_and(|log| log.len() > 0)
}

/// Returns options that create a new file with mode 0600, so that only its owner can use it. If the
/// file exists, its mode stays as it is.
pub fn private_file_options() -> OpenOptions {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// Creates a folder, and its missing parents, each with mode 0700. If the folder exists, its mode
/// stays as it is.
///
/// # Errors
/// Returns the error of the system, for example if a file with this name exists.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Removes the permissions of everybody except the owner from a file or folder. Returns true if
/// anybody else had permissions before. A symbolic link to a folder is left unchanged, because its
/// owner set it up on purpose.
///
/// # Errors
/// Returns an error if the path does not exist or belongs to another user.
pub fn make_private(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        const OTHERS: u32 = 0o077;
        let there = std::fs::metadata(path)?;
        let mut permissions = there.permissions();
        let is_own = permissions.mode() & OTHERS == 0;
        if is_own || there.is_dir() && path.is_symlink() {
            return Ok(false);
        }
        // The bits for set-user-id and the like are kept. Only those of the group and of others are
        // cleared.
        permissions.set_mode(permissions.mode() & 0o7777 & !OTHERS);
        std::fs::set_permissions(path, permissions)?;
        Ok(true)
    }
    #[cfg(not(unix))]
    {
        std::fs::metadata(path).map(|_| false)
    }
}
