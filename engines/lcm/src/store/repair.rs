//! Recovers what can still be read of a damaged file.
//!
//! The new file is built beside the old one and replaces it when complete, so that one of the two is intact
//! if the process ends at any moment:
//!
//! ```text
//! lcm.sqlite3.repairing   being built; of no use to anybody
//! lcm.sqlite3.stand-in    read in place of an old file that does not say what lies where; of no use either
//! lcm.sqlite3.repaired    complete: from here on the exchange is made, by whoever opens the store next
//! lcm.sqlite3.damaged-N   the old file, as it was, with its log
//! ```

mod mend;
mod salvage;
mod stand_in;

use std::path::{Path, PathBuf};

use contexture_engine_api::private_file_options;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::create::{holds_something, lay_down, remove_database, with_suffix};
use super::index::build;
use super::{Database, FILE_NAME, Store, StoreSettings, definitions, schema, sessions};
use crate::error::{StoreError, read_through};

/// The prefix of the names of damaged files that were kept.
pub(super) const DAMAGED: &str = "lcm.sqlite3.damaged-";

/// The result of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The damaged file, unchanged.
    pub kept: PathBuf,
    /// The recovered messages, each compared with its hash.
    pub messages: u64,
    /// The missing messages. Those that the host still has are stored again when it delivers them. None if
    /// too little of the file is left to know.
    pub lost: Option<u64>,
    /// The recovered summaries.
    pub summaries: u64,
    /// How many of these lost their text and have a placeholder until a better one is written.
    pub summaries_lost: u64,
}

impl Store {
    /// Repairs the store in `directory`, which must not be open: copies everything readable into a new
    /// file, rebuilds the search index, and keeps the old file. `progress` is told how many messages of how
    /// many were checked.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if it is open; a file that the system cannot read; one of another program or of a
    /// newer version; a file without anything readable; a disk without room for a second file, and for a third if
    /// the tables' definitions are damaged. The old file is unchanged then.
    pub fn repair(directory: &Path, progress: impl FnMut(u64, u64)) -> Result<Repair, StoreError> {
        let path = directory.join(FILE_NAME);
        Self::repaired(directory, &path, progress).map_err(|error| error.at(&path))
    }

    fn repaired(
        directory: &Path,
        path: &Path,
        progress: impl FnMut(u64, u64),
    ) -> Result<Repair, StoreError> {
        finish(directory)?;
        // What the disk does not give now may be whole.
        read_through(path)?;
        let building = directory.join("lcm.sqlite3.repairing");
        let stand_in = directory.join("lcm.sqlite3.stand-in");
        remove_database(&building);
        remove_database(&stand_in);
        let nothing_left = schema::is_nothing_left(path)?;
        let built =
            open_to_read(path, &stand_in).and_then(|old| build_anew(&old, &building, progress));
        remove_database(&stand_in);
        let (messages, lost, summaries, summaries_lost) = match built {
            Ok(counts) => counts,
            Err(error) => {
                remove_database(&building);
                return Err(error);
            }
        };
        rename(&building, &directory.join(REPAIRED))?;
        let kept = finish(directory)?.unwrap_or_else(|| path.to_owned());
        Ok(Repair {
            kept,
            messages,
            lost: (!nothing_left).then_some(lost),
            summaries,
            summaries_lost,
        })
    }
}

/// The name of a repaired file that is to take the damaged one's place.
pub(super) const REPAIRED: &str = "lcm.sqlite3.repaired";

/// Replaces the damaged file by a repaired one, if there is one. It may continue an interrupted
/// replacement: every step is idempotent. Returns the new path of the damaged file.
pub(super) fn finish(directory: &Path) -> Result<Option<PathBuf>, StoreError> {
    let repaired = directory.join(REPAIRED);
    if !repaired.exists() {
        return Ok(None);
    }
    let path = directory.join(FILE_NAME);
    // The log is renamed first, so that it is always beside its file.
    let kept = (1u32..)
        .map(|number| directory.join(format!("{DAMAGED}{number}")))
        .find(|candidate| !candidate.exists())
        .unwrap_or_else(|| directory.join(format!("{DAMAGED}0")));
    for suffix in ["-wal", ""] {
        let from = with_suffix(&path, suffix);
        if suffix == "-wal" && !holds_something(&from) {
            let _ = std::fs::remove_file(&from);
        } else if from.exists() {
            rename(&from, &with_suffix(&kept, suffix))?;
        }
    }
    // SQLite rebuilds it from the log when needed.
    let _ = std::fs::remove_file(with_suffix(&path, "-shm"));
    rename(&repaired, &path)?;
    Ok(Some(kept))
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(from, to).map_err(|cause| StoreError::File {
        path: from.to_owned(),
        cause,
    })
}

/// The source of the recovery.
struct Old {
    read: Connection,
    /// If a stand-in is read: the file itself, held open so that nobody else uses it meanwhile.
    held: Option<Connection>,
}

/// Opens the damaged file, or a stand-in for it.
fn open_to_read(path: &Path, stand_in: &Path) -> Result<Old, StoreError> {
    if schema::is_nothing_left(path)? {
        stand_in::make(path, stand_in, &[])?;
        if holds_something(&with_suffix(path, "-wal")) {
            // The log is kept beside its file, even if that is gone.
            let file = private_file_options().append(true).create(true).open(path);
            file.map_err(|cause| StoreError::File {
                path: path.to_owned(),
                cause,
            })?;
        }
        return Ok(Old {
            read: open_alone(stand_in)?,
            held: None,
        });
    }
    match schema::check_file(path) {
        // Damage is expected here.
        Ok(()) | Err(StoreError::Damaged(_)) => {}
        Err(error) => return Err(error),
    }
    let file = open_alone(path)?;
    if stand_in::is_needless(&file, path)? {
        return Ok(Old {
            read: file,
            held: None,
        });
    }
    stand_in::make(path, stand_in, &definitions::of(&file).unwrap_or_default())?;
    Ok(Old {
        read: open_alone(stand_in)?,
        held: Some(file),
    })
}

/// Opens the damaged file exclusively, and so that closing it does not change it.
fn open_alone(path: &Path) -> Result<Connection, StoreError> {
    let old = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    old.busy_timeout(std::time::Duration::from_millis(500))?;
    // `writable_schema` makes SQLite ignore a damaged schema row; nothing is written here.
    let locked = old.execute_batch(
        "PRAGMA writable_schema = ON; PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM sqlite_schema;",
    );
    match locked.map_err(StoreError::from) {
        Err(busy @ StoreError::Busy(_)) => Err(busy),
        // Damage is expected here.
        _ => Ok(old),
    }
}

/// The numbers of messages, missing messages, summaries, and lost texts.
type Counts = (u64, u64, u64, u64);

fn build_anew(
    old: &Old,
    building: &Path,
    progress: impl FnMut(u64, u64),
) -> Result<Counts, StoreError> {
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    lay_down(building)?;
    let new = Database::open(building, settings)?;
    {
        let writer = new.writer.take()?;
        // References are fixed after all rows are copied.
        writer.execute_batch("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE;")?;
        let rows = salvage::copy(&old.read, &writer)?;
        if rows == 0 && old.held.is_some() {
            return Err(StoreError::NothingLeft(PathBuf::new()));
        }
        mend::sessions(&writer)?;
        writer.execute_batch("COMMIT;")?;
    }
    let (messages, lost) = mend::messages(&new, progress)?;
    let (summaries, summaries_lost) = mend::summaries(&new)?;
    new.plainly(|writer| writer.execute_batch("PRAGMA foreign_keys = ON;"))?;
    for info in new.read(sessions::sessions_in)? {
        build::catch_up(&new, info.id, || Ok(()))?;
    }
    // Moves the log into the file, so that the file is complete by itself.
    new.plainly(|writer| writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))?;
    Ok((messages, lost, summaries, summaries_lost))
}
