//! Which messages match: candidates from the index, filters, texts.

use std::ops::Range;

use super::matcher::Matcher;
use super::run::Search;
use super::{Query, Scope};
use crate::error::StoreError;
use crate::store::index::corpus::Corpus;
use crate::store::index::need::Need;
use crate::store::index::segment::{Segment, segments};
use crate::store::{Body, Key, MessageRow, SessionId, row_in};

/// How many texts are read between two checks for cancellation, and how many bytes.
const CANCEL_EVERY: u64 = 64;
const CANCEL_EVERY_BYTES: u64 = 1 << 21;

/// A run of a session's messages, and how to search it.
pub(super) enum Stretch {
    /// By a segment of the index.
    Indexed(Segment),
    /// By reading them.
    Unindexed(Range<u32>),
}

impl Search<'_> {
    /// A session's messages, run by run, in order.
    pub(super) fn stretches(&self, session: SessionId) -> Result<Vec<Stretch>, StoreError> {
        let messages = self.extent(session).messages;
        let known = match segments(self.connection, session, Corpus::Messages) {
            // If the index is damaged, read the messages.
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

    /// The ordinals of a session's messages that match, in order.
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
                        self.filter(session, &mut candidates)?;
                        (candidates, matcher.is_decided_by_index())
                    }
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

    /// # Errors
    /// [`StoreError::Cancelled`], if nobody waits for the search any more.
    pub(super) fn check(&mut self) -> Result<(), StoreError> {
        self.next_check = self.searched.bytes_read + CANCEL_EVERY_BYTES;
        match (self.cancelled)() {
            true => Err(StoreError::Cancelled),
            false => Ok(()),
        }
    }

    /// Reads the searchable body of a message; none if it cannot be read, which is counted.
    pub(super) fn with_body<T>(
        &mut self,
        key: Key,
        look: impl FnOnce(&Body<'_>) -> T,
    ) -> Result<Option<T>, StoreError> {
        if self.searched.messages_read.is_multiple_of(CANCEL_EVERY)
            || self.searched.bytes_read >= self.next_check
        {
            self.check()?;
        }
        match self.blocks.body(self.connection, key) {
            Ok(Some(body)) => {
                self.searched.messages_read += 1;
                self.searched.bytes_read += body.as_str().len() as u64;
                Ok(Some(look(&body)))
            }
            // It is damaged, and a repair has not fixed it.
            Ok(None) | Err(StoreError::Damaged(_)) => {
                self.unreadable.insert(key);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The messages of a run that pass the filters.
    pub(super) fn filtered(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<u32>, StoreError> {
        let mut all: Vec<u32> = ordinals.collect();
        self.filter(session, &mut all)?;
        Ok(all)
    }

    /// Keeps those that pass the filters.
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
