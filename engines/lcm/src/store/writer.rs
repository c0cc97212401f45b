//! The one connection that writes, lent to one thread at a time.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::Connection;

use super::database::{PATIENCE, lock};
use crate::error::StoreError;

/// The writing connection. A caller waits for other threads of this process and then for other processes,
/// for at most [`PATIENCE`] in all.
pub(super) struct Writer {
    connection: Mutex<Connection>,
    queue: Mutex<Queue>,
    returned: Condvar,
}

#[derive(Default)]
struct Queue {
    is_lent: bool,
    /// The number of waiting turns.
    turns: usize,
}

/// The connection while a thread has it.
pub(super) struct Lent<'w> {
    writer: &'w Writer,
    connection: MutexGuard<'w, Connection>,
}

impl Writer {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection: Mutex::new(connection),
            queue: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// The connection for a turn, once no other thread has it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if another thread keeps it for too long.
    pub(super) fn take(&self) -> Result<Lent<'_>, StoreError> {
        self.take_for(true)
    }

    /// The connection for background work: turns go first.
    ///
    /// # Errors
    /// As [`Writer::take`].
    pub(super) fn take_behind(&self) -> Result<Lent<'_>, StoreError> {
        self.take_for(false)
    }

    fn take_for(&self, is_turn: bool) -> Result<Lent<'_>, StoreError> {
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
        let lent = Lent {
            writer: self,
            // A panic inside a transaction rolled it back, so the connection is still usable.
            connection: lock(&self.connection),
        };
        lent.busy_timeout(PATIENCE.saturating_sub(since.elapsed()))?;
        Ok(lent)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        lock(&self.writer.queue).is_lent = false;
        // Wakes all waiters, so that background work does not go before a turn.
        self.writer.returned.notify_all();
    }
}

impl Deref for Lent<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
