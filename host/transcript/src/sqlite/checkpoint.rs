//! Checkpoints: moving what was written from SQLite's log into the database file.
//!
//! A checkpoint takes some milliseconds. If the writer made it within a turn, the turn would wait
//! for it, so a thread of its own does it now and then.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;

use rusqlite::{Connection, OpenFlags};

/// The number of writes after which a checkpoint is due. Each write adds a few pages of 4 KB to the
/// log.
const EVERY: u32 = 250;

/// Counts the writes since the last checkpoint, and starts the next one when it is due.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    writes: AtomicU32,
    is_under_way: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Counts a write, and starts a checkpoint in a thread of its own if one is due and none is
    /// running. A failure is ignored: the next checkpoint makes up for it, or the writer does once
    /// the log is long.
    pub(super) fn note_write(&self, path: &Path) {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if writes < EVERY || self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        self.writes.store(0, Ordering::Relaxed);
        let (path, is_under_way) = (path.to_owned(), Arc::clone(&self.is_under_way));
        let begun = Builder::new()
            .name("contexture-record".to_owned())
            .spawn(move || {
                // Only a connection of its own leaves the writer's free meanwhile. A passive
                // checkpoint waits for nobody.
                let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let done = Connection::open_with_flags(path, flags).and_then(|connection| {
                    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                });
                is_under_way.store(false, Ordering::Release);
                done
            });
        if begun.is_err() {
            self.is_under_way.store(false, Ordering::Release);
        }
    }
}
