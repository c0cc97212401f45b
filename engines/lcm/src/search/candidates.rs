//! Which messages match a pattern.
//!
//! The index gives the candidates: a superset of the messages that match. They are filtered by the
//! metadata of the query first, since that is cheap, and then their texts are read to decide. If
//! the index alone decides, as it does for single words, no text is read. Messages without an
//! index, or with a damaged one, are all candidates.
//!
//! [`Search::matching_messages`] does this for one session. The ranking of questions uses the
//! filters and [`Search::stretches`] as well.

use std::ops::Range;

use super::matcher::Matcher;
use super::run::Search;
use super::{Query, Scope};
use crate::error::StoreError;
use crate::store::index::corpus::Corpus;
use crate::store::index::need::Need;
use crate::store::index::segment::{Segment, segments};
use crate::store::{Key, MessageBody, MessageRow, SessionId, row_in};

/// The number of texts that are read between two checks for cancellation, if they are small.
const CANCEL_EVERY: u64 = 64;
/// The number of bytes that are read between two checks for cancellation, if the texts are large.
const CANCEL_EVERY_BYTES: u64 = 1 << 21;

/// A run of a session's messages that is searched in one way.
pub(super) enum Stretch {
    /// The messages are covered by this segment of the index.
    Indexed(Segment),
    /// The messages are not indexed yet, or the index of the session is damaged. They have to be
    /// read.
    Unindexed(Range<u32>),
}

impl Search<'_> {
    /// Returns a session's messages as runs, in order. Together they cover every message of the
    /// extent, so a search of all runs misses nothing.
    pub(super) fn stretches(&self, session: SessionId) -> Result<Vec<Stretch>, StoreError> {
        let messages = self.extent(session).messages;
        let known = match segments(self.connection, session, Corpus::Messages) {
            // A damaged index must not hide messages, so all of them are read instead.
            Err(StoreError::Damaged(_)) => Vec::new(),
            other => other?,
        };
        let mut stretches = Vec::with_capacity(known.len() + 1);
        let mut covered = 0;
        for segment in known {
            let Range { start, end } = segment.ordinals;
            if start > covered {
                stretches.push(Stretch::Unindexed(covered..start.min(messages)));
            }
            if end > covered && start < messages {
                stretches.push(Stretch::Indexed(segment));
            }
            covered = covered.max(end);
        }
        stretches.push(Stretch::Unindexed(covered..messages));
        stretches
            .retain(|stretch| !matches!(stretch, Stretch::Unindexed(range) if range.is_empty()));
        Ok(stretches)
    }

    /// Returns the ordinals of a session's messages that match and pass the filters, in order.
    /// Messages that cannot be read are counted and do not match.
    pub(super) fn matching_messages(
        &mut self,
        session: SessionId,
        matcher: &Matcher,
        need: &Need,
    ) -> Result<Vec<u32>, StoreError> {
        let messages = self.extent(session).messages;
        self.searched.messages += u64::from(messages);
        let mut matched = Vec::new();
        let mut scratch = String::new();
        for stretch in self.stretches(session)? {
            self.check()?;
            let (candidates, decided) = match stretch {
                Stretch::Indexed(segment) => match need.ordinals(self.connection, &segment) {
                    Ok(Some(mut candidates)) => {
                        candidates.retain(|ordinal| {
                            *ordinal < messages && segment.ordinals.contains(ordinal)
                        });
                        // The filters come before the texts, because reading a row is much cheaper
                        // than reading and matching a text.
                        self.filter(session, &mut candidates)?;
                        (candidates, matcher.is_decided_by_index())
                    }
                    // Nothing in the pattern is known to the index, or the segment is damaged.
                    Ok(None) | Err(StoreError::Damaged(_)) => {
                        let Range { start, end } = segment.ordinals;
                        (self.filtered(session, start..end.min(messages))?, false)
                    }
                    Err(error) => return Err(error),
                },
                Stretch::Unindexed(range) => {
                    let rest = self.filtered(session, range)?;
                    self.searched.messages_not_indexed += rest.len() as u64;
                    (rest, false)
                }
            };
            if decided {
                matched.extend(candidates);
                continue;
            }
            let cancelled = self.cancelled;
            self.expect(session, &candidates);
            for ordinal in candidates {
                let is_match = self.with_body(Key::new(session, ordinal), |body| {
                    matcher.is_match(body, &mut scratch, cancelled)
                })?;
                if is_match.transpose()? == Some(true) {
                    matched.push(ordinal);
                }
            }
        }
        Ok(matched)
    }

    /// Checks whether the search should stop, and sets when the next check is due.
    ///
    /// # Errors
    /// Returns [`StoreError::Cancelled`] if the caller no longer waits for the result.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        self.next_check = self.searched.bytes_read + CANCEL_EVERY_BYTES;
        match (self.cancelled)() {
            true => Err(StoreError::Cancelled),
            false => Ok(()),
        }
    }

    /// Reads the searchable body of a message and passes it to `look`. Returns None if it cannot be
    /// read, in which case the message is counted as unreadable.
    pub(super) fn with_body<T>(
        &mut self,
        key: Key,
        look: impl FnOnce(&MessageBody<'_>) -> T,
    ) -> Result<Option<T>, StoreError> {
        if self.searched.messages_read.is_multiple_of(CANCEL_EVERY)
            || self.searched.bytes_read >= self.next_check
        {
            self.check()?;
        }
        match self.bodies.body(key)? {
            Some(body) => {
                self.searched.messages_read += 1;
                self.searched.bytes_read += body.as_str().len() as u64;
                Ok(Some(look(&body)))
            }
            // The transcript does not have the text. The total of a pattern is then not exact.
            None => {
                self.unreadable.insert(key);
                Ok(None)
            }
        }
    }

    /// Announces which messages of a session will be read, in order, so that they are fetched
    /// together.
    pub(super) fn expect(&mut self, session: SessionId, ordinals: &[u32]) {
        let keys = ordinals.iter().map(|ordinal| Key::new(session, *ordinal));
        self.bodies.expect(keys);
    }

    /// Returns the messages of a run that pass the filters of the query, in order.
    pub(super) fn filtered(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<u32>, StoreError> {
        let mut all: Vec<u32> = ordinals.collect();
        self.filter(session, &mut all)?;
        Ok(all)
    }

    /// Removes the messages that do not pass the filters of the query. If the query has no filters,
    /// no rows are read.
    pub(super) fn filter(
        &self,
        session: SessionId,
        ordinals: &mut Vec<u32>,
    ) -> Result<(), StoreError> {
        let query = self.query;
        if query.role.is_none()
            && query.tool.is_none()
            && query.since_ms.is_none()
            && query.until_ms.is_none()
            && query.scope != Scope::Files
        {
            return Ok(());
        }
        let mut failed = None;
        ordinals.retain(
            |ordinal| match row_in(self.connection, Key::new(session, *ordinal)) {
                Ok(row) => row.is_some_and(|row| lets_through(query, &row)),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            },
        );
        failed.map_or(Ok(()), Err)
    }
}

fn lets_through(query: &Query, row: &MessageRow) -> bool {
    query.role.as_ref().is_none_or(|role| row.is_of(role))
        && query
            .tool
            .as_ref()
            .is_none_or(|tool| row.tool.as_ref() == Some(tool))
        && query
            .since_ms
            .is_none_or(|since| row.said_at().is_some_and(|at| at >= since))
        && query
            .until_ms
            .is_none_or(|until| row.said_at().is_some_and(|at| at <= until))
        && (query.scope != Scope::Files || row.payload.is_some())
}
