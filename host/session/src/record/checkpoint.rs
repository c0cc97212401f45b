//! Moves what was written from SQLite's log into its file, beside whoever writes: within a turn it would hold that up for
//! milliseconds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;

use rusqlite::{Connection, OpenFlags};

/// After how many writes. Each puts some pages of 4 KB into the log.
const EVERY: u32 = 250;

/// When that is due.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    writes: AtomicU32,
    is_under_way: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Counts a write. A failure is made up for by the next one, or by the writer once the log is long.
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
