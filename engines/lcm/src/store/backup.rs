//! Backups of the file, and releasing its free space.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::Store;
use super::create::{give_name, make_empty, remove_database, with_suffix};
use super::repair::DAMAGED;
use crate::error::StoreError;

/// How many pages are copied between two checks for waiting writers.
const BACKUP_PAGES: i32 = 256;

/// How many pages are released in one transaction, so that no turn waits for long.
const SHRINK_PAGES: u32 = 512;

impl Store {
    /// Copies the store to the file `to`, which must not exist, while it stays in use. `progress` is told
    /// how many pages of how many are done.
    ///
    /// # Errors
    /// A file that exists or cannot be written; a store that failed. An incomplete copy never gets the
    /// name, and is removed.
    pub fn backup(&self, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        let file_error = |cause| StoreError::File {
            path: to.to_owned(),
            cause,
        };
        if to.exists() {
            return Err(StoreError::Exists(to.to_owned()));
        }
        let partial = with_suffix(to, ".partial");
        // Left by a process that was killed.
        remove_database(&partial);
        make_empty(&partial)?;
        // What cannot be written is the copy; what is damaged or locked is the store.
        let failed = |error| match StoreError::from(error) {
            error @ (StoreError::DiskFull(_) | StoreError::ReadOnly(_)) => error.at(to),
            error => error,
        };
        let copied = self.read(|source| {
            let mut target = Connection::open(&partial).map_err(failed)?;
            let backup = Backup::new(source, &mut target)?;
            loop {
                self.go_on()?;
                let step = backup.step(BACKUP_PAGES).map_err(failed)?;
                let state = backup.progress();
                progress(
                    (state.pagecount - state.remaining).max(0) as u64,
                    state.pagecount.max(0) as u64,
                );
                match step {
                    rusqlite::backup::StepResult::Done => return Ok(()),
                    rusqlite::backup::StepResult::More => {}
                    _ => std::thread::sleep(Duration::from_millis(20)),
                }
            }
        });
        let named = copied.and_then(|()| give_name(&partial, to).map_err(file_error));
        // A failure to remove it does not matter: the first error is reported.
        remove_database(&partial);
        named
    }

    /// The copies of the store in its directory, made by repairs and the doctor, with their sizes.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn copies(&self) -> Result<Vec<(PathBuf, u64)>, StoreError> {
        let directory = self.path().parent().unwrap_or(Path::new("."));
        let error = |cause| StoreError::File {
            path: directory.to_owned(),
            cause,
        };
        let mut copies = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("lcm.backup-") || name.starts_with(DAMAGED) {
                copies.push((entry.path(), entry.metadata().map_or(0, |file| file.len())));
            }
        }
        copies.sort();
        Ok(copies)
    }

    /// The free bytes of the file, which [`Store::shrink`] would release.
    ///
    /// # Errors
    /// A store that failed.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            Ok((pragma("freelist_count")? * pragma("page_size")?).max(0) as u64)
        })
    }

    /// Releases the free space of the file, a little at a time, while the store stays in use. `progress` is
    /// told how many bytes of how many are done.
    ///
    /// # Errors
    /// A store that failed; space released before that stays released.
    pub fn shrink(&self, mut progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        let total = self.free_bytes()?;
        let mut left = total;
        while left > 0 {
            self.database().plainly(|writer| {
                let mut step =
                    writer.prepare(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
                let mut pages = step.query([])?;
                while pages.next()?.is_some() {}
                Ok(())
            })?;
            let now = self.free_bytes()?;
            if now >= left {
                break;
            }
            left = now;
            progress(total.saturating_sub(left), total);
        }
        (self.database())
            .plainly(|writer| writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
    }
}
