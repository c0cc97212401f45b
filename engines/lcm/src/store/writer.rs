//! The write connection, which is lent to one thread at a time.
//!
//! SQLite allows one writer for each file. If several threads wait in SQLite itself, the order is
//! left to chance, and a turn could wait behind the indexer again and again. So the threads of this
//! process queue here first. Turns go before background work, and only the thread that has the
//! connection waits for other processes.
//!
//! Start with [`WriteConnection::take`]. The time limit covers both waits together.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::Connection;

use super::database::{PATIENCE, lock};
use crate::error::StoreError;

/// The write connection with its queue. A caller waits for other threads of this process and then
/// for other processes, at most [`PATIENCE`] in all.
pub(super) struct WriteConnection {
    connection: Mutex<Connection>,
    queue: Mutex<Queue>,
    returned: Condvar,
}

#[derive(Default)]
struct Queue {
    is_lent: bool,
    /// How many turns are waiting. Background work lets them go first.
    turns: usize,
}

/// The connection while a thread has it. Dropping it wakes the threads that wait.
pub(super) struct ConnectionGuard<'w> {
    writer: &'w WriteConnection,
    connection: MutexGuard<'w, Connection>,
}

impl WriteConnection {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Mutex::new(connection),
            queue: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// Lends the connection to a turn as soon as no other thread has it.
    ///
    /// # Errors
    /// Returns [`StoreError::Busy`] if another thread keeps it for too long.
    pub(super) fn take(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        self.take_for(true)
    }

    /// Lends the connection to background work. If a turn is waiting for it, the turn goes first.
    ///
    /// # Errors
    /// The same as for [`WriteConnection::take`].
    pub(super) fn take_behind(&self) -> Result<ConnectionGuard<'_>, StoreError> {
        self.take_for(false)
    }

    fn take_for(&self, is_turn: bool) -> Result<ConnectionGuard<'_>, StoreError> {
        let since = Instant::now();
        let mut queue = lock(&self.queue);
        queue.turns += usize::from(is_turn);
        let (mut queue, _) = self
            .returned
            .wait_timeout_while(queue, PATIENCE, |queue| {
                queue.is_lent || !is_turn && queue.turns > 0
            })
            .unwrap_or_else(PoisonError::into_inner);
        queue.turns -= usize::from(is_turn);
        if queue.is_lent {
            return Err(StoreError::Busy(PathBuf::new()));
        }
        queue.is_lent = true;
        drop(queue);
        let guard = ConnectionGuard {
            writer: self,
            // A panic inside a transaction has rolled it back, so the connection can still be used.
            connection: lock(&self.connection),
        };
        guard.busy_timeout(PATIENCE.saturating_sub(since.elapsed()))?;
        Ok(guard)
    }
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        lock(&self.writer.queue).is_lent = false;
        // Wakes all waiting threads. If only one were woken, it could be background work that has
        // to let a turn go first.
        self.writer.returned.notify_all();
    }
}

impl Deref for ConnectionGuard<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for ConnectionGuard<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
