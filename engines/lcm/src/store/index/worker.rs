//! The background thread that indexes and makes checkpoints.
//!
//! Both are slow and can wait, so neither is done during a turn.

use super::build::catch_up;
use super::chunks::sweep;
use crate::store::Database;
use crate::store::worker::Orders;

/// The body of the thread. It ends when the store is closed, after the work that was requested
/// before.
pub(crate) fn run(database: &Database, orders: &Orders) {
    let checkpointer = database.open_checkpointer();
    let checkpoint = || {
        if let Ok(connection) = &checkpointer {
            // A failed checkpoint does no harm. The next one makes up for it, or the writer does as
            // soon as the log is long.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    };
    let mut is_swept = false;
    while let Some(sessions) = orders.wait() {
        if !is_swept {
            is_swept = sweep(database).is_ok();
        }
        for (session, source) in sessions {
            // A failure such as a full disk or a lock is retried with the next batch. Until then
            // search reads the texts.
            let _ = catch_up(database, &source, session, || {
                checkpoint();
                Ok(())
            });
        }
        checkpoint();
    }
}
