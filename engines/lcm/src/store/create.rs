//! How the store's file comes into being: whole, or not at all.
//!
//! A new store is laid down in a file of another name, which then is given the store's name, where nothing
//! has it. So a file that is empty is always one that was damaged, and never one that is about to be made.

use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rusqlite::OpenFlags;

use super::database::connect;
use super::schema;
use crate::error::StoreError;

/// What follows the store's name in the names of files that are laid down.
const BUILDING: &str = ".new-";

/// Makes the store's file where there is none.
///
/// # Errors
/// A directory that cannot be written; a full disk. Nothing has the store's name then. A log whose store is
/// gone is damage, see [`schema::check_file`].
pub(super) fn make_where_none_is(path: &Path) -> Result<(), StoreError> {
    let made = match path.exists() || holds_something(&with_suffix(path, "-wal")) {
        true => Ok(()),
        false => make(path),
    };
    remove_leftovers(path);
    match made {
        // Somebody else was faster, and may have taken this file for a leftover.
        Err(_) if path.exists() => Ok(()),
        made => made,
    }
}

fn make(path: &Path) -> Result<(), StoreError> {
    // A name that nobody else has: a database with two names in use is soon a damaged one.
    let random = RandomState::new().hash_one(path);
    let building = with_suffix(path, &format!("{BUILDING}{random:016x}"));
    lay_down(&building)?;
    let named = give_name(&building, path);
    named.map_err(|source| StoreError::File {
        path: path.to_owned(),
        source,
    })
}

/// Gives a file that is whole its name, where nothing has it. It may keep the one that it had, too.
pub(super) fn give_name(file: &Path, name: &Path) -> std::io::Result<()> {
    std::fs::hard_link(file, name).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        // Some file systems know no second names; there, nothing but this look keeps two apart.
        _ if name.exists() => Err(error),
        _ => std::fs::rename(file, name),
    })
}

/// Makes an empty store in one file that is whole on its own, and on the disk.
pub(super) fn lay_down(path: &Path) -> Result<(), StoreError> {
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    schema::lay_out(&mut connection, path)?;
    // Last: until here a commit writes into the file itself, and waits for the disk.
    connection.execute_batch("PRAGMA journal_mode = WAL;")?;
    connection.close().map_err(|(_, error)| error.into())
}

/// What processes that were killed left; or, at worst, what another is making, which then takes this store.
fn remove_leftovers(path: &Path) {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return;
    };
    let prefix = format!("{}{BUILDING}", name.display());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // One that cannot be removed takes up room and does no other harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

pub(super) fn holds_something(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 0)
}

/// The name of a file that belongs to the one at `path`.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a database that is of no use, where there is one.
pub(super) fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(with_suffix(path, suffix));
    }
}
