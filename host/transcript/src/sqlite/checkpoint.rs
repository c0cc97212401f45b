//! Checkpoints: moving what was written from SQLite's log into the database file.
//!
//! A checkpoint takes some milliseconds, because it flushes both files to the disk. If the writer made
//! it within a turn, all turns would wait for it, so a thread of its own does it now and then.
//!
//! SQLite begins the log anew only if all of it was moved. While turns write all the time, a
//! checkpoint beside them never comes to the end, and the log would grow until the writer makes one
//! itself. So the thread first moves what it can while turns go on, and then holds them up for the
//! small rest.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::Builder;

use contexture_base::lock;
use rusqlite::{Connection, OpenFlags};

/// The number of writes after which a checkpoint is due. Each write adds a few pages to the log.
///
/// Writes wait while the rest of a checkpoint is flushed to the disk. At half the highest rate of the
/// gateway, the slowest hundredth of the requests took 4 to 7 ms, and 18 to 25 with eight times as
/// many writes between checkpoints.
const EVERY: u32 = 250;

/// Counts the writes since the last checkpoint, and starts the next one when it is due.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    writes: Arc<AtomicU32>,
    is_under_way: Arc<AtomicBool>,
}

impl Checkpoints {
    /// Counts a write with this connection to the file, and starts a checkpoint in a thread of its
    /// own if one is due and none is running. A failure is ignored: the next checkpoint makes up for
    /// it, or the writer does once the log is long.
    pub(super) fn note_write(&self, path: &Path, writer: &Arc<Mutex<Connection>>) {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if writes < EVERY || self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        self.writes.store(0, Ordering::Relaxed);
        let (path, writes) = (path.to_owned(), Arc::clone(&self.writes));
        let is_under_way = Arc::clone(&self.is_under_way);
        // The store may be closed meanwhile.
        let writer = Arc::downgrade(writer);
        let begun = Builder::new()
            .name("contexture-record".to_owned())
            .spawn(move || {
                let done = checkpoint(&path, &writer, &writes);
                is_under_way.store(false, Ordering::Release);
                done
            });
        if begun.is_err() {
            self.is_under_way.store(false, Ordering::Release);
        }
    }
}

/// Moves the log into the database file. `writes` counts the writes meanwhile.
fn checkpoint(
    path: &Path,
    writer: &Weak<Mutex<Connection>>,
    writes: &AtomicU32,
) -> rusqlite::Result<()> {
    // Only a connection of its own leaves the writer's free meanwhile. A passive checkpoint waits for
    // nobody.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let own = Connection::open_with_flags(path, flags)?;
    let pass = || own.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    pass()?;
    let Some(writer) = writer
        .upgrade()
        .filter(|_| writes.load(Ordering::Relaxed) > 0)
    else {
        return Ok(());
    };
    // The second pass has what was written during the first, and the third what was written during
    // the second, which takes less time.
    pass()?;
    let _writes_wait = lock(&writer);
    pass()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::sqlite::tables::prepare;

    #[test]
    fn the_log_begins_anew_although_something_is_written_all_the_time() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("s");
        let mut connection = Connection::open(&path).unwrap();
        prepare(&mut connection).unwrap();
        let writer = Arc::new(Mutex::new(connection));
        let (writes, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let write = || {
            let number = writes.fetch_add(1, Ordering::Relaxed);
            let sql =
                "INSERT INTO sessions (id, created_ms, next_id, engine) VALUES (?1, 0, 1, '')";
            lock(&writer).execute(sql, [number]).unwrap();
        };
        // How often the log began anew is in its head.
        let begun = || std::fs::read(home.path().join("s-wal")).unwrap()[12..16].to_vec();
        write();
        let before = begun();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    write();
                }
            });
            let done = checkpoint(&path, &Arc::downgrade(&writer), &writes);
            is_over.store(true, Ordering::Relaxed);
            done.unwrap();
        });
        write();
        assert_ne!(begun(), before);
    }
}
