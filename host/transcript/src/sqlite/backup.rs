//! A backup of everything in a home directory: the record, and the files of every engine.
//!
//! Sessions may be written while the copy is made. The record is copied first, so what an engine
//! has beyond it is ingested with the next turn, and the record has nothing that the engine lacks.
//! Databases are copied by SQLite as of one moment. Damaged ones are copied byte for byte and
//! reported, so a backup is possible even then.
//!
//! Start with [`back_up`]. The repair of a damaged record is in `damage`.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use contexture_engine_api::{make_private, make_private_folder, sqlite_file};
use rusqlite::{Connection, OpenFlags};

use super::damage::copy_file;
use super::{FILE, SqliteStore, is_unwritable, read_only};
use crate::error::RecordError;
use crate::store::{Store, Which};

/// The first bytes of every SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The folder in the home directory that holds the folders of the engines.
const ENGINES: &str = "engines";

/// Copies the file of the home directory `home` and the files of all engines, as
/// [`Record::back_up`](crate::Record::back_up) says.
pub(crate) fn back_up<E: From<RecordError>>(
    home: &Path,
    to: &Path,
    take: &mut dyn FnMut(&Path, &Path) -> Result<bool, E>,
) -> Result<Vec<String>, E> {
    make_private_folder(to).map_err(written(to))?;
    let mut damaged = Vec::new();
    let record = home.join(FILE);
    if record.exists() {
        copy_database(&record, &to.join(FILE), &mut damaged)?;
    }
    let engines = home.join(ENGINES);
    if engines.exists() {
        copy_folder(&engines, &to.join(ENGINES), take, &mut damaged)?;
    }
    // A session that was deleted after the record was copied has no files of its engine in the
    // copy.
    if let (Ok(before), Ok(now)) = (SqliteStore::open(to), SqliteStore::open_to_read(home))
        && let (Ok(copied), Ok(there)) = (before.delivered(Which::All), now.delivered(Which::All))
    {
        for gone in copied
            .iter()
            .filter(|one| !(there.iter()).any(|other| other.session == one.session))
        {
            before.forget(&gone.session)?;
        }
    }
    Ok(damaged)
}

/// Wraps an error of the operating system about this path.
fn written(path: &Path) -> impl Fn(io::Error) -> RecordError {
    let path = path.to_owned();
    move |cause| RecordError::Write {
        path: path.clone(),
        cause,
    }
}

/// Copies a folder of an engine with everything in it. What is damaged is added to `damaged`.
fn copy_folder<E: From<RecordError>>(
    from: &Path,
    to: &Path,
    take: &mut dyn FnMut(&Path, &Path) -> Result<bool, E>,
    damaged: &mut Vec<String>,
) -> Result<(), E> {
    make_private_folder(to).map_err(written(to))?;
    let mut entries: Vec<_> = fs::read_dir(from)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(written(from))?;
    // An engine writes a file before its journal names it. If the journal is copied first, the copy
    // has every file that the journal names.
    entries.sort_by_key(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        (!name.ends_with(".jsonl"), name.into_owned())
    });
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let to = to.join(&name);
        let kind = match fs::metadata(&path) {
            // It was removed since the folder was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            kind => kind.map_err(written(&path))?,
        };
        // SQLite copies a database together with its log, so the log is not copied as a file.
        let is_log = ["-wal", "-shm", "-journal"].iter().any(|suffix| {
            let name = name.to_string_lossy();
            name.strip_suffix(suffix)
                .is_some_and(|of| from.join(of).exists())
        });
        let is_named = |kind| path.extension().is_some_and(|extension| extension == kind);
        if kind.is_dir() {
            if is_named("sqlite3") || is_named("jsonl") {
                damaged.push(format!("{} is a folder", path.display()));
            }
            copy_folder(&path, &to, take, damaged)?;
        }
        if is_log || !kind.is_file() {
            continue;
        }
        // If a file cannot be read, the error should name the file itself and not its copy.
        let opened = fs::File::open(&path).map_err(written(&path))?;
        if is_database(opened) {
            if !take(&path, &to)? {
                copy_database(&path, &to, damaged)?;
            }
        } else {
            if is_named("sqlite3") {
                damaged.push(format!("{} is not a SQLite database", path.display()));
            }
            copy_file(&path, &to).map_err(written(&to))?;
        }
    }
    Ok(())
}

/// Whether a file begins like a SQLite database.
fn is_database(mut file: fs::File) -> bool {
    let mut head = [0; SQLITE.len()];
    file.read_exact(&mut head).is_ok() && head == SQLITE
}

/// Copies a database as of one moment. A damaged one is copied byte for byte with its log, and
/// added to `damaged`.
fn copy_database(from: &Path, to: &Path, damaged: &mut Vec<String>) -> Result<(), RecordError> {
    let copied = open_to_copy(from)
        .and_then(|connection| connection.execute("VACUUM INTO ?1", [to.display().to_string()]));
    let error = match copied.map_err(|cause| RecordError::of(from, cause)) {
        Ok(_) => {
            let _ = make_private(to);
            return Ok(());
        }
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    // SQLite may have begun to write the copy before it found the damage.
    let _ = fs::remove_file(to);
    for suffix in ["", "-wal"] {
        let to = sqlite_file(to, suffix);
        copy_file(&sqlite_file(from, suffix), &to).map_err(written(&to))?;
    }
    damaged.push(error.to_string());
    Ok(())
}

/// Opens a database to copy it. It may be on a file system that cannot be written.
fn open_to_copy(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|connection| {
        connection.busy_timeout(Duration::from_secs(10))?;
        // Only a statement opens the log.
        connection.pragma_query_value(None, "schema_version", |_| Ok(()))?;
        Ok(connection)
    });
    match opened {
        Err(error) if is_unwritable(&error) => Ok(read_only(path)?.0),
        opened => opened,
    }
}
