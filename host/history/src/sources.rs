//! A log as a source: what it looks like on the disk, and how far it was read.
//!
//! An import asks two questions of a log. The first is whether the log has to be opened at all. It
//! does not have to be if its [`Stamp`] is the one that the database has noted. The second is asked
//! of a log of lines that changed: did it grow, or was it replaced? The [`tail`] answers. If the
//! bytes before the old end hash to the same value, the import goes on behind them. Otherwise it
//! reads the log from its beginning.
//!
//! [`files_in`] and [`folders_in`] list what readers look through. A folder that does not exist or
//! cannot be listed is empty to them, because most agents are not installed on most machines.

use std::fs::Metadata;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use contexture_engine_api::sqlite_file;
use xxhash_rust::xxh3::xxh3_64;

/// How a log looks on the disk. As long as it is equal, the log is not read again. Stamps are only
/// compared for equality, so if the clock goes back or the log is restored from a backup, the log
/// is read once more. A change that keeps both the size and the time is not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Bytes, of all files if the log has several.
    pub(crate) size: u64,
    /// The time of the latest change, in nanoseconds since the Unix epoch.
    pub(crate) changed: i64,
}

impl Stamp {
    fn of_file(metadata: &Metadata) -> Self {
        // A file system may have no times, and a time may be before 1970. Then the size alone
        // tells.
        let changed = metadata.modified().ok();
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            size: metadata.len(),
            changed: changed.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            size: self.size + other.size,
            changed: self.changed.max(other.changed),
        }
    }

    /// The stamp of a file, a folder with everything in it, or a SQLite database with its log.
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        let stamp = Self::of_file(&metadata);
        if metadata.is_dir() {
            // The size of the folder itself differs between file systems and says nothing. Its time
            // is kept, because it changes when a file is renamed or deleted.
            let files = files_in(path, usize::MAX);
            let files = files.iter().filter_map(|file| std::fs::metadata(file).ok());
            return Ok(files.fold(Self { size: 0, ..stamp }, |sum, file| {
                sum.and(Self::of_file(&file))
            }));
        }
        // If an agent has its database open, its changes go to the log beside it. The database
        // itself may look the same for hours.
        match std::fs::metadata(sqlite_file(path, "-wal")) {
            Ok(log) => Ok(stamp.and(Self::of_file(&log))),
            Err(_) => Ok(stamp),
        }
    }
}

/// A log that was read before, as the database noted it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    /// How it looked if it was read to its end. `None` if the import was interrupted: the log is
    /// then read on, even if it did not change.
    pub(crate) stamp: Option<Stamp>,
    /// The byte up to which a log of lines was read, or the number that the reader of a database
    /// returned. 0 for all other logs.
    pub(crate) offset: u64,
    /// A hash of the last bytes before the offset. 0 if it was not computed, as after an
    /// interrupted import. The log is then continued at the offset without a comparison.
    pub(crate) tail: u64,
}

/// A log that was skipped, or of which a part was. A log that was skipped as a whole is tried again
/// at the next import. Parts are tried again only if the log is read from its beginning.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Skipped {
    /// The log.
    pub path: PathBuf,
    /// The number of lines or documents in it that could not be read. 0 if the log as a whole
    /// could not be read.
    pub parts: u64,
    /// Why the log, or the first of its parts, could not be read.
    pub why: String,
}

/// The number of bytes before an offset that tell whether a log was continued or replaced. Lines of
/// agents have ids and times, so two logs hardly agree in 256 bytes at the same offset.
const TAIL: u64 = 256;

/// A hash of the bytes before an offset. It moves the position of the file. If the file is shorter
/// than the offset, the hash is of what is there.
pub(crate) fn tail(file: &mut std::fs::File, offset: u64) -> std::io::Result<u64> {
    file.seek(SeekFrom::Start(offset.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.take(offset.min(TAIL)).read_to_end(&mut bytes)?;
    // 0 is how the database says that there is no hash.
    Ok(xxh3_64(&bytes).max(1))
}

/// The files in a folder and up to `depth` levels below it, in no particular order. Links are not
/// followed, because a link to a folder above would never end. Folders that cannot be read are
/// skipped.
pub(crate) fn files_in(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            Ok(kind) if kind.is_dir() && depth > 0 => {
                files.extend(files_in(&entry.path(), depth - 1))
            }
            _ => {}
        }
    }
    files
}

/// The folders directly in a folder, in no particular order. Links to folders are left out.
pub(crate) fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}
