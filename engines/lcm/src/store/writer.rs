//! The one connection that writes, lent to one thread at a time.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rusqlite::Connection;

use super::{PATIENCE, lock};
use crate::error::StoreError;

/// The writing connection. Who wants it waits for other threads of this process and then for other
/// processes, for no longer than [`PATIENCE`] in all.
pub(super) struct Writer {
    connection: Mutex<Connection>,
    is_lent: Mutex<bool>,
    returned: Condvar,
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
            is_lent: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// The connection, once no other thread has it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] where another keeps it for too long.
    pub(super) fn take(&self) -> Result<Lent<'_>, StoreError> {
        let since = Instant::now();
        let (mut is_lent, _) = self
            .returned
            .wait_timeout_while(lock(&self.is_lent), PATIENCE, |is_lent| *is_lent)
            .unwrap_or_else(PoisonError::into_inner);
        if *is_lent {
            return Err(StoreError::Busy);
        }
        *is_lent = true;
        drop(is_lent);
        let lent = Lent {
            writer: self,
            // A panic inside a transaction rolled it back: the connection is as good as before.
            connection: lock(&self.connection),
        };
        lent.busy_timeout(PATIENCE.saturating_sub(since.elapsed()))?;
        Ok(lent)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *lock(&self.writer.is_lent) = false;
        self.writer.returned.notify_one();
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
