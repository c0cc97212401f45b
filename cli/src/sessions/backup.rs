//! Copies the record of sessions, and what engines keep that they cannot derive again, into a new
//! folder.

use std::path::Path;

use serde_json::{Value, json};

use super::{require_file, stoppable};
use crate::error::CliError;
use crate::{OK, kept, output, terminal};
use contexture::engines::Engines;
use contexture::session::Record;

pub(super) const PUT_BACK: &str = "\
The folder is laid out as a home directory: sessions.sqlite3 is the record of sessions. To restore a backup, close all sessions, move the existing sessions.sqlite3, sessions.sqlite3-wal and sessions.sqlite3-shm aside, and copy the content of the folder into $CONTEXTURE_HOME. Search indexes, plugins and config.yaml are not backed up. Engines rebuild their indexes.";

/// Copies everything that is stored into the new folder `to`, and prints its size in bytes and the
/// damage that was found.
///
/// # Errors
/// Fails if the sessions are in a database, or if `to` exists already or cannot be written.
pub(super) fn back_up(engines: &Engines, to: &Path) -> Result<u8, CliError> {
    require_file(
        engines,
        "back up the database (`pg_dump --schema=contexture`), or copy its sessions into a file (`contexture store \
         copy --from postgres --to sqlite`)",
    )?;
    let to = std::path::absolute(to).map_err(CliError::write(to))?;
    if let Some(folder) = to.parent() {
        check_folder(folder, &to)?;
    }
    output::print_json(&copy_to(engines, &to)?)?;
    Ok(OK)
}

/// Refuses a folder in which no file can be created. An engine would fail there with a less helpful
/// message, and only after much of the work.
fn check_folder(folder: &Path, file: &Path) -> Result<(), CliError> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(CliError::usage(
            format!("there is no folder {shown}, so nothing can be copied into it"),
            format!("make it (mkdir -p {shown}), or name a file in a folder that is there"),
        ));
    }
    let made = tempfile::tempfile_in(folder);
    made.map(drop).map_err(CliError::write(file))
}

/// Copies everything that is stored into the new folder `to`, and returns its size in bytes and the
/// damage that was found. The copy is made under a hidden name and then renamed, so a folder with
/// this name is always complete.
///
/// # Errors
/// Fails if `to` exists already, or if it cannot be written.
fn copy_to(engines: &Engines, to: &Path) -> Result<Value, CliError> {
    let home = &engines.loaded().home;
    if to.symlink_metadata().is_ok() {
        return Err(CliError::usage(
            format!("{} exists, and a backup overwrites nothing", to.display()),
            "name another folder",
        ));
    }
    let cannot_write = CliError::write(to);
    let beside = to.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new()
        .prefix(".contexture-backup-")
        .tempdir_in(beside)
        .map_err(cannot_write)?;
    let copy = made.path().join("copy");
    // What an engine derives is left out of the copy, because the engine builds it again from the
    // record.
    let mut take = |from: &Path, _to: &Path| {
        let below = from.strip_prefix(home.join("engines")).unwrap_or(from);
        let Some(engine) = below.iter().next().and_then(|name| name.to_str()) else {
            return Ok::<_, CliError>(false);
        };
        let list = kept::list(engines, engine);
        Ok(matches!(list, Ok(Some(list)) if list.store.as_deref() == Some(from)))
    };
    let clean_up = || {
        let _ = std::fs::remove_dir_all(made.path());
    };
    let damaged = stoppable(&clean_up, || Record::back_up(home, &copy, &mut take))?;
    for what in &damaged {
        terminal::warn(&format!("copied unchanged, although it is damaged: {what}"));
    }
    std::fs::rename(&copy, to).map_err(cannot_write)?;
    Ok(json!({"backup": to, "bytes": bytes_in(to).map_err(cannot_write)?, "damaged": damaged}))
}

/// Returns the size of all files below a folder, in bytes. Links to folders are not followed.
fn bytes_in(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.metadata()?;
        bytes += match file.is_dir() {
            true => bytes_in(&entry.path())?,
            false => file.len(),
        };
    }
    Ok(bytes)
}
