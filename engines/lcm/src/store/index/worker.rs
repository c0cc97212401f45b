//! The background thread that indexes.

use super::build::catch_up;
use super::chunks::sweep;
use crate::store::Database;
use crate::store::worker::Orders;

pub(crate) fn run(database: &Database, orders: &Orders) {
    let checkpointer = database.open_checkpointer();
    let checkpoint = || {
        if let Ok(connection) = &checkpointer {
            // The next checkpoint makes up for a failed one, or the writer does once the log is long.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    };
    let mut is_swept = false;
    while let Some(sessions) = orders.wait() {
        if !is_swept {
            is_swept = sweep(database).is_ok();
        }
        for session in sessions {
            // A failure (a full disk, a lock) is retried with the next batch; search scans until then.
            let _ = catch_up(database, session, || {
                checkpoint();
                Ok(())
            });
        }
        checkpoint();
    }
}
