//! The lock that a session holds on itself in the record, so that it is open only once.
//!
//! [`SessionLock`] takes the lock and reads the session under it. It can release the lock for a
//! while and take it again, as a gateway does between requests, so that other processes can use the
//! session. If one did, what is in memory is out of date, and the session must be opened anew. If
//! the lock cannot be used, the session has no record either and stays in memory.

use std::sync::Arc;
use std::time::Duration;

use contexture_transcript::{Hold, Record, RecordError, Saved, StoredSession, Token};

use super::error::SessionError;

/// A session's place in its record. Without a record nothing is locked.
#[derive(Debug)]
pub(crate) struct SessionLock {
    session: String,
    record: Option<Arc<Record>>,
    /// Set while the session is released. The token in the lock file shows whether another process
    /// used the session since. The inner option is `None` if the token could not be written.
    released: Option<Option<Token>>,
    hold: Option<Hold>,
    /// Whether the session has to be read: it could not be, for a reason that may pass, or it has no
    /// place in the record any more.
    is_unread: bool,
}

/// What the record has of a session, or why it cannot be used.
pub(crate) type Loaded = Option<Result<(StoredSession, Saved), RecordError>>;

impl SessionLock {
    /// Locks a session and loads it from the record. A record that cannot be used is returned as
    /// such, because losing it must not stop the agent.
    ///
    /// # Errors
    /// The session is still open elsewhere after the wait.
    pub(crate) fn take(
        record: Option<&Arc<Record>>,
        session: &str,
        wait: Duration,
    ) -> Result<(Self, Loaded), SessionError> {
        let mut lock = Self {
            session: session.to_owned(),
            record: record.cloned(),
            released: None,
            hold: None,
            is_unread: false,
        };
        let loaded = match record.map(|record| (record, record.hold(session, wait))) {
            None => None,
            Some((record, Ok(hold))) => {
                lock.hold = Some(hold);
                Some(StoredSession::open(record, session))
            }
            Some((_, Err(error @ RecordError::InUse { .. }))) => {
                return Err(SessionError::InUse(error));
            }
            Some((_, Err(error))) => Some(Err(error)),
        };
        lock.is_unread = matches!(&loaded, Some(Err(error)) if error.may_pass());
        Ok((lock, loaded))
    }

    /// Releases the lock, so that others can open the session. `has_place` says whether the session
    /// can still be written. If it was taken over or deleted, it has to be read again.
    pub(crate) fn release(&mut self, has_place: bool) {
        self.is_unread |= self.record.is_some() && !has_place;
        if let Some(hold) = self.hold.take() {
            self.released = Some(hold.release());
        }
    }

    /// Whether the lock is released, so that somebody else may have written newer state.
    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// Locks a released session again. If it is open elsewhere, this waits for at most `wait`.
    /// Returns `false` if somebody else has used it in the meantime, or if it has to be read and now
    /// can be. A session that was not released returns `true`.
    ///
    /// # Errors
    /// The session is still open elsewhere after the wait, or its lock cannot be used.
    pub(crate) fn reacquire(&mut self, wait: Duration) -> Result<bool, SessionError> {
        if self.is_unread && self.hold.is_none() {
            let (lock, loaded) = Self::take(self.record.as_ref(), &self.session, wait)?;
            *self = lock;
            return Ok(matches!(loaded, Some(Err(_))));
        }
        let (Some(token), Some(record)) = (&self.released, &self.record) else {
            return Ok(true);
        };
        let Some(token) = token else {
            return Ok(false);
        };
        let hold = record.hold_again(&self.session, wait, token);
        self.hold = hold.map_err(SessionError::InUse)?;
        if self.hold.is_some() {
            self.released = None;
        }
        Ok(self.hold.is_some())
    }
}
