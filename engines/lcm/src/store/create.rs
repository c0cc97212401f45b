//! Creates the store's file: completely, or not at all.
//!
//! A new store is built in a file with a temporary name, which is then renamed if the name of the
//! store is still free. An empty file with the name of the store is therefore always damaged, and
//! never one that another process is creating at this moment.
//!
//! [`create_if_missing`] is the function to read first. Several processes may call it at the same
//! time. One of them succeeds in naming its file, and the others use that one. The tables are
//! defined in the `schema` module.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use contexture_engine_api::{private_file_options, sqlite_file};
use rusqlite::OpenFlags;

use super::database::connect;
use super::{FILE_NAME, remove_database, schema};
use crate::error::StoreError;

/// The suffix of files that are being built. A random number follows it.
const BUILDING: &str = ".new-";

/// How long a file of another version is kept after it was last written. While a program is updated
/// on several machines, or when the update is taken back, the other version still needs it.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Creates the store's file if there is none, and removes what killed processes and other versions
/// have left.
///
/// # Errors
/// Returns an error if the directory cannot be written or the disk is full. The name of the store
/// stays free then.
pub(super) fn create_if_missing(path: &Path) -> Result<(), StoreError> {
    let made = match path.exists() {
        true => Ok(()),
        false => make(path),
    };
    remove_leftovers(path);
    remove_other_versions(path);
    match made {
        // Another process was faster. It may also have removed this file as a leftover.
        Err(_) if path.exists() => Ok(()),
        made => made,
    }
}

fn make(path: &Path) -> Result<(), StoreError> {
    // A unique name, because an old file of this name may be a second name of the store. Using a
    // database under two names would soon damage it.
    let random = RandomState::new().hash_one(path);
    let building = sqlite_file(path, &format!("{BUILDING}{random:016x}"));
    create_file(&building)?;
    let named = publish(&building, path);
    named.map_err(|cause| StoreError::File {
        path: path.to_owned(),
        cause,
    })
}

/// Gives a complete file its final name if that name is free. If the file system has hard links,
/// the old name stays as well, and the file is removed with the other leftovers.
fn publish(file: &Path, name: &Path) -> std::io::Result<()> {
    std::fs::hard_link(file, name).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links. There, only this check protects an existing file.
        _ if name.exists() => Err(error),
        _ => std::fs::rename(file, name),
    })
}

/// Creates an empty store in a single file and syncs it to the disk.
fn create_file(path: &Path) -> Result<(), StoreError> {
    make_empty(path)?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    schema::create_tables(&mut connection)?;
    // Last, because before WAL mode a commit writes to the file itself and waits for the disk.
    connection.execute_batch("PRAGMA journal_mode = WAL;")?;
    connection.close().map_err(|(_, error)| error.into())
}

/// Creates an empty file that only its owner can read. SQLite gives its log the same permissions.
fn make_empty(path: &Path) -> Result<(), StoreError> {
    let made = private_file_options()
        .write(true)
        .create_new(true)
        .open(path);
    made.map(drop).map_err(|cause| match cause.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly(path.to_owned())
        }
        _ => StoreError::File {
            path: path.to_owned(),
            cause,
        },
    })
}

/// Removes files that killed processes have left. In the worst case another process is still
/// building one of them, and it then uses the finished store.
fn remove_leftovers(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let prefix = format!("{}{BUILDING}", name.display());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // A file that cannot be removed only takes up space.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Removes the files of other versions that nobody has written for [`KEPT_FOR`].
fn remove_other_versions(path: &Path) {
    let entries = path.parent().map(std::fs::read_dir);
    for entry in entries.into_iter().flatten().flatten().flatten() {
        let (name, file) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let is_other = name != FILE_NAME && name.starts_with("lcm") && name.ends_with(".sqlite3");
        let is_fresh = |suffix| {
            let data = sqlite_file(&file, suffix).metadata();
            let written = data.and_then(|data| data.modified());
            // A time in the future is one of a clock that was changed.
            written.is_ok_and(|at| at.elapsed().unwrap_or_default() < KEPT_FOR)
        };
        if is_other && !is_fresh("") && !is_fresh("-wal") {
            remove_database(&file);
        }
    }
}
