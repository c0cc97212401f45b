//! Saving what can still be read of a damaged file.
//!
//! The new file is built beside the old one and takes its place when it is complete, so that an end of the
//! process at any moment leaves one of the two whole:
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

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::create::{holds_something, lay_down, remove_database, with_suffix};
use super::{Database, FILE_NAME, Store, StoreSettings, definitions, schema, sessions};
use crate::error::StoreError;
use crate::index::build;

/// What the names of damaged files that were kept begin with.
pub(super) const DAMAGED: &str = "lcm.sqlite3.damaged-";

/// What came of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Where the damaged file was put, unchanged.
    pub kept: PathBuf,
    /// Messages that were carried over, each compared with its hash.
    pub messages: u64,
    /// Messages that are missing. Those that the host still has are taken in again when it shows them.
    /// None where so little of the file is left that nobody knows.
    pub lost: Option<u64>,
    /// Summaries that were carried over.
    pub summaries: u64,
    /// Of these, how many lost their text and have a note in its place, until a better one is written.
    pub summaries_lost: u64,
}

impl Store {
    /// Repairs the store in `directory`, which nobody may have open: carries everything that can be read
    /// over into a new file, makes the search index anew, and keeps the old file. `progress` is told how
    /// many messages of how many were checked.
    ///
    /// # Errors
    /// [`StoreError::Busy`] where somebody has it open; a file of another program or of a newer version; one of
    /// which nothing can be read; a disk without room for a second file, and for a third where the tables'
    /// definitions are damaged. The old file is then as it was.
    pub fn repair(directory: &Path, progress: impl FnMut(u64, u64)) -> Result<Repair, StoreError> {
        finish(directory)?;
        let path = directory.join(FILE_NAME);
        let building = directory.join("lcm.sqlite3.repairing");
        let stand_in = directory.join("lcm.sqlite3.stand-in");
        remove_database(&building);
        remove_database(&stand_in);
        let nothing_left = schema::is_nothing_left(&path)?;
        let built =
            open_to_read(&path, &stand_in).and_then(|old| build_anew(&old, &building, progress));
        remove_database(&stand_in);
        let (messages, lost, summaries, summaries_lost) = match built {
            Ok(counts) => counts,
            Err(error) => {
                remove_database(&building);
                return Err(error);
            }
        };
        rename(&building, &directory.join(REPAIRED))?;
        let kept = finish(directory)?.unwrap_or(path);
        Ok(Repair {
            kept,
            messages,
            lost: (!nothing_left).then_some(lost),
            summaries,
            summaries_lost,
        })
    }
}

const REPAIRED: &str = "lcm.sqlite3.repaired";

/// Puts a repaired file in its place, where there is one. It may have been begun before: every step is made
/// once, whoever makes it. Gives where the damaged file is now.
pub(super) fn finish(directory: &Path) -> Result<Option<PathBuf>, StoreError> {
    let repaired = directory.join(REPAIRED);
    if !repaired.exists() {
        return Ok(None);
    }
    let path = directory.join(FILE_NAME);
    // The log goes first: a file with a name of its own has its log beside it.
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
    // Made anew from the log whenever it is needed.
    let _ = std::fs::remove_file(with_suffix(&path, "-shm"));
    rename(&repaired, &path)?;
    Ok(Some(kept))
}

fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    std::fs::rename(from, to).map_err(|source| StoreError::File {
        path: from.to_owned(),
        source,
    })
}

/// What the damaged file is read from.
struct Old {
    read: Connection,
    /// The file itself where it is read from a stand-in, so that nobody else opens it meanwhile.
    held: Option<Connection>,
}

/// Opens the damaged file, or what stands in for it.
fn open_to_read(path: &Path, stand_in: &Path) -> Result<Old, StoreError> {
    if schema::is_nothing_left(path)? {
        stand_in::make(path, stand_in, &[])?;
        if holds_something(&with_suffix(path, "-wal")) {
            // The log is kept beside its file, even where that is gone.
            let file = std::fs::File::options()
                .append(true)
                .create(true)
                .open(path);
            file.map_err(|source| StoreError::File {
                path: path.to_owned(),
                source,
            })?;
        }
        return Ok(Old {
            read: open_alone(stand_in)?,
            held: None,
        });
    }
    match schema::check_file(path) {
        // Damage is what this is about.
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

/// Opens the damaged file so that nobody else can, and so that closing it changes nothing in it.
fn open_alone(path: &Path) -> Result<Connection, StoreError> {
    let old = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    old.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    old.busy_timeout(std::time::Duration::from_millis(500))?;
    // "Writable" makes a schema with a damaged row one without that row; nothing is written here.
    let locked = old.execute_batch(
        "PRAGMA writable_schema = ON; PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM sqlite_schema;",
    );
    match locked.map_err(StoreError::from) {
        Err(StoreError::Busy) => Err(StoreError::Busy),
        // Damage is what this is about.
        _ => Ok(old),
    }
}

/// Messages, missing ones, summaries, lost texts.
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
        // References are mended once all that is left is there.
        writer.execute_batch("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE;")?;
        let rows = salvage::copy(&old.read, &writer)?;
        if rows == 0 && old.held.is_some() {
            return Err(StoreError::NothingLeft);
        }
        mend::sessions(&writer)?;
        writer.execute_batch("COMMIT;")?;
    }
    let (messages, lost) = mend::messages(&new, progress)?;
    let (summaries, summaries_lost) = mend::summaries(&new)?;
    new.writer
        .take()?
        .execute_batch("PRAGMA foreign_keys = ON;")?;
    for info in new.read(sessions::sessions_in)? {
        build::catch_up(&new, info.id, || Ok(()))?;
    }
    // The file is whole on its own once its log is in it.
    new.writer
        .take()?
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok((messages, lost, summaries, summaries_lost))
}
