//! Updates, checks and rebuilds the search index of a session.
//!
//! Search never depends on the index being complete: it reads the texts that are not covered. So
//! indexing can wait, may be interrupted, and runs on a background thread as a rule.
//! [`Store::index_soon`] wakes that thread. [`Store::index_now`] does the same work at once, for
//! commands and tests.
//!
//! [`Store::check_index`] builds every segment again in memory and compares hashes.
//! [`Store::rebuild_index`] throws the index away and starts again. Both read all texts of the
//! session, so they take long for a large one.

use super::build;
use super::corpus::Corpus;
use super::segment::{indexed_end, segments, stored_digest};
use crate::error::StoreError;
use crate::store::{SessionId, Store};

/// The result of checking a session's search index against its texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexCheck {
    /// The number of segments that were built again in memory and compared.
    pub segments: u64,
    /// The runs of numbers for which a segment is missing or differs from the texts.
    pub wrong: Vec<std::ops::Range<u32>>,
    /// How many messages and summaries are not indexed yet. Search reads them.
    pub waiting: u32,
}

impl Store {
    /// Indexes the texts of a session that are not in the index yet. Search is complete without
    /// this, but slower.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails. Search then reads what is missing.
    pub fn index_now(&self, session: SessionId) -> Result<(), StoreError> {
        build::catch_up(self.database(), self.source()?, session, || self.go_on())
    }

    /// Indexes the texts of a session in the background. Closing the store waits until this is
    /// done. If the store has no such thread or no transcript, nothing happens.
    pub fn index_soon(&self, session: SessionId) {
        if let (Some(worker), Ok(source)) = (&self.handle.worker, self.source()) {
            worker.wake(session, source);
        }
    }

    /// Returns how many of a session's messages are indexed. The others are read by each search.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn indexed(&self, session: SessionId) -> Result<u32, StoreError> {
        self.read(|connection| indexed_end(connection, session, Corpus::Messages))
    }

    /// Compares the search index of a session with its messages and summaries, as far as these can
    /// be read.
    ///
    /// # Errors
    /// Returns an error if anything other than damage to the index stops the check.
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
                    // The stored segment covers all of these texts, so the new one must not stop
                    // early.
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

    /// Builds the search index of a session again from its messages and summaries, as far as these
    /// can be read. If it is cancelled, the rest follows in the background.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails. Search is complete in any case.
    pub fn rebuild_index(&self, session: SessionId) -> Result<(), StoreError> {
        self.go_on()?;
        // Committed first, so that no search uses the wrong index in the meantime.
        self.write(|transaction| build::forget(transaction, session))?;
        let made = self.index_now(session);
        if matches!(made, Err(StoreError::Cancelled)) {
            self.index_soon(session);
        }
        made
    }
}

#[cfg(test)]
mod tests;
