//! A copy of everything that is kept in a home directory: the record, and the files of every engine.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use contexture_engine_api::make_private_folder;
use rusqlite::{Connection, OpenFlags};

use super::damage::{copy_file, with};
use super::{FILE, Record, RecordError};

/// How a file of SQLite's begins.
const SQLITE: &[u8] = b"SQLite format 3\0";
/// The folder of the engines' folders, in the home directory.
const ENGINES: &str = "engines";

impl Record {
    /// Copies the record of the home directory `home` and the files of all engines into the folder `to`, laid out as a
    /// home directory is, while sessions may be written. `take` copies a database in an engine's own way and says
    /// whether it did; others are copied as of one moment by SQLite, and as they are if they are damaged. Answers which
    /// of them are.
    ///
    /// The record is copied first: what an engine keeps beyond it is taken in with the next turn, and nothing is
    /// recorded that an engine lacks.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn back_up<E: From<RecordError>>(
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
        // What was deleted meanwhile is in no engine's files.
        if let (Ok(before), Ok(now)) = (Self::open(to), Self::open_to_read(home))
            && let (Ok(copied), Ok(there)) = (before.all_delivered(), now.all_delivered())
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
}

fn written(path: &Path) -> impl Fn(io::Error) -> RecordError {
    let path = path.to_owned();
    move |cause| RecordError::Write {
        path: path.clone(),
        cause,
    }
}

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
    // A journal before what it names, of which each file is there before the journal says so.
    entries.sort_by_key(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        (!name.ends_with(".jsonl"), name.into_owned())
    });
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let to = to.join(&name);
        let kind = match fs::metadata(&path) {
            // It was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            kind => kind.map_err(written(&path))?,
        };
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
        // Of a file that cannot be read, its own name says more than that of the copy.
        let opened = fs::File::open(&path).map_err(written(&path))?;
        if is_database(opened) {
            if !take(&path, &to)? {
                copy_database(&path, &to, damaged)?;
            }
        } else {
            if is_named("sqlite3") {
                damaged.push(format!("{} is no database", path.display()));
            }
            copy_file(&path, &to).map_err(written(&to))?;
        }
    }
    Ok(())
}

fn is_database(mut file: fs::File) -> bool {
    let mut head = [0; SQLITE.len()];
    file.read_exact(&mut head).is_ok() && head == SQLITE
}

/// Copies a database as of one moment; the files as they are where it is damaged.
fn copy_database(from: &Path, to: &Path, damaged: &mut Vec<String>) -> Result<(), RecordError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copied = Connection::open_with_flags(from, flags)
        .or_else(|_| Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY))
        .and_then(|connection| {
            connection.busy_timeout(std::time::Duration::from_secs(10))?;
            connection.execute("VACUUM INTO ?1", [to.display().to_string()])
        });
    let error = match copied.map_err(|cause| RecordError::of(from, cause)) {
        Ok(_) => {
            let _ = contexture_engine_api::make_private(to);
            return Ok(());
        }
        Err(error) if error.is_damage() => error,
        Err(error) => return Err(error),
    };
    let _ = fs::remove_file(to);
    for suffix in ["", "-wal"] {
        let to = with(to, suffix);
        copy_file(&with(from, suffix), &to).map_err(written(&to))?;
    }
    damaged.push(error.to_string());
    Ok(())
}
