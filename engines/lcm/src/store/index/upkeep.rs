//! The store's operations on its search index: updating, checking and rebuilding it.

use super::build;
use super::corpus::Corpus;
use super::segment::{indexed_end, segments, stored_digest};
use crate::error::StoreError;
use crate::store::{SessionId, Store};

/// The result of checking a session's search index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// The segments that were rebuilt in memory and compared.
    pub segments: u64,
    /// Runs of ordinals whose segment is missing or differs from the messages.
    pub wrong: Vec<std::ops::Range<u32>>,
    /// Messages and summaries that are not indexed yet; search reads them.
    pub waiting: u32,
}

impl Store {
    /// Indexes everything of a session that is not in the index yet. Search is complete without it;
    /// this makes it faster.
    ///
    /// # Errors
    /// A store that failed; search then scans what is missing.
    pub fn index_now(&self, session: SessionId) -> Result<(), StoreError> {
        build::catch_up(self.database(), session, || self.go_on())
    }

    /// Indexes everything of a session in the background; closing the store waits for it.
    pub fn index_soon(&self, session: SessionId) {
        if let Some(worker) = &self.handle.worker {
            worker.wake(session);
        }
    }

    /// How many of a session's messages are indexed; search reads the others.
    ///
    /// # Errors
    /// A store that failed.
    pub fn indexed(&self, session: SessionId) -> Result<u32, StoreError> {
        self.read(|connection| indexed_end(connection, session, Corpus::Messages))
    }

    /// Compares the search index of a session with its messages and summaries, as far as they can be read.
    ///
    /// # Errors
    /// A failure other than damage to messages.
    pub fn check_index(&self, session: SessionId) -> Result<IndexCheck, StoreError> {
        self.read(|connection| {
            let mut check = IndexCheck::default();
            for corpus in Corpus::ALL {
                let mut covered = 0;
                for segment in segments(connection, session, corpus)? {
                    if segment.ordinals.start != covered {
                        check.wrong.push(covered..segment.ordinals.start);
                    }
                    covered = segment.ordinals.end;
                    let numbers = segment.ordinals.clone();
                    let (_, fresh) =
                        build::build(connection, session, corpus, numbers, usize::MAX)?;
                    let same = match stored_digest(connection, segment.id) {
                        Ok(stored) => stored == fresh.digest(),
                        Err(StoreError::Damaged(_)) => false,
                        Err(error) => return Err(error),
                    };
                    if !same {
                        check.wrong.push(segment.ordinals);
                    }
                    check.segments += 1;
                }
                let end = corpus.end(connection, session)?;
                check.waiting += end.saturating_sub(covered);
            }
            Ok(check)
        })
    }

    /// Rebuilds the search index of a session from its messages and summaries, as far as they can be read.
    /// After a cancellation, the rest follows in the background.
    ///
    /// # Errors
    /// A store that failed. Search is complete either way.
    pub fn rebuild_index(&self, session: SessionId) -> Result<(), StoreError> {
        self.go_on()?;
        self.write(|transaction| build::forget(transaction, session))?;
        let made = self.index_now(session);
        if matches!(made, Err(StoreError::Cancelled)) {
            self.index_soon(session);
        }
        made
    }
}
