//! Warnings for the user: what a session worked around instead of failing.
//!
//! Each is logged when it occurs, and kept until the caller takes it. An agent that shows warnings
//! after a turn need not read the log.

use std::sync::{Arc, Mutex};

use contexture_base::lock;

/// The warnings of a session that were not taken yet. The parts of a session share them, so a clone
/// adds to the same list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings {
    session: Arc<str>,
    list: Arc<Mutex<Vec<String>>>,
}

impl Warnings {
    /// An empty list for the session with this id.
    pub(crate) fn of(session: &str) -> Self {
        Self {
            session: session.into(),
            list: Arc::default(),
        }
    }

    /// Logs a warning and keeps it for [`Session::take_warnings`](crate::Session::take_warnings). A
    /// warning that is already there is not repeated.
    pub(crate) fn add(&self, warning: impl Into<String>) {
        let warning = warning.into();
        tracing::warn!(session = %self.session, "{warning}");
        let mut list = lock(&self.list);
        if !list.contains(&warning) {
            list.push(warning);
        }
    }

    /// Logs that what was warned of is over. The user need not see that.
    pub(crate) fn log_end(&self, what: &str) {
        tracing::info!(session = %self.session, "{what}");
    }

    /// Returns the warnings since the last call, and clears them.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.list))
    }
}
