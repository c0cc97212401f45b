//! Makes the page of an answer: sorts the matches, cuts out the page, and fetches its hits.
//!
//! A search may have thousands of matches but shows twenty. So as little as possible is read for
//! each match, and rows, texts and snippets are read for the hits of the page only. In an order by
//! time not even the times of all matches are needed, and [`Search::first_of_page`] finds the page
//! by binary search. An order by relevance has to score every match with [`Search::score_all`].
//!
//! [`Search::page`] merges the matches of all sessions, and [`Search::show`] fetches the content.

use std::ops::Range;

use rusqlite::Connection;

use super::cursor::{Cursor, HitPosition};
use super::matcher::Matcher;
use super::run::Search;
use super::snippet::{MAX_COUNTED, snippet};
use super::{Hit, HitKind, Sort};
use crate::error::StoreError;
use crate::store::{
    Key, MessageBody, PayloadId, SessionId, SummaryTimes, row_in, summary_in, summary_times,
};

/// A match that is known only by its key and position, before its content is fetched.
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) place: HitPosition,
    pub(super) score: f64,
}

impl Found {
    pub(super) fn message(key: Key, order_at: i64, score: f64) -> Self {
        Self {
            key,
            place: HitPosition::message(score, order_at, key),
            score,
        }
    }

    pub(super) fn summary(key: Key, times: SummaryTimes, score: f64) -> Self {
        Self {
            key,
            place: HitPosition::summary(score, times, key),
            score,
        }
    }
}

/// The places at which a text matches, and the passage by which it is ranked if there is one.
pub(super) type Places = (Vec<Range<usize>>, Option<Range<usize>>);

impl Search<'_> {
    /// Adds the matches of a session that this page can need, in an order by time. `matched` must
    /// be in order.
    pub(super) fn first_of_page(
        &self,
        session: SessionId,
        matched: &[u32],
        cursor: Option<&Cursor>,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        // Time never goes back within a session, so the matches are in the order of their positions
        // and a binary search finds where the page begins.
        let found_at = |ordinal: u32| -> Result<Found, StoreError> {
            let key = Key::new(session, ordinal);
            Ok(Found::message(key, self.order_at(key)?, 0.0))
        };
        let latest_first = self.query.order() == Sort::Recency;
        let mut rest = matched;
        if let Some(cursor) = cursor {
            let (mut from, mut to) = (0, matched.len());
            while from < to {
                let middle = from.midpoint(to);
                let when = found_at(matched[middle])?.place.when;
                let passed = match latest_first {
                    true => when < cursor.last.when,
                    false => when <= cursor.last.when,
                };
                match passed {
                    true => from = middle + 1,
                    false => to = middle,
                }
            }
            rest = match latest_first {
                true => &matched[..from],
                false => &matched[from..],
            };
        }
        // One match more than the page holds shows whether there is a next page.
        let wanted = self.query.limit.saturating_add(1).min(rest.len());
        let page = match latest_first {
            true => &rest[rest.len() - wanted..],
            false => &rest[..wanted],
        };
        for &ordinal in page {
            found.push(found_at(ordinal)?);
        }
        Ok(())
    }

    /// Adds all matches of a session, each with its score. The score grows with the number of
    /// occurrences and falls with the length of the text.
    pub(super) fn score_all(
        &mut self,
        session: SessionId,
        matched: Vec<u32>,
        matcher: &Matcher,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        self.expect(session, &matched);
        for ordinal in matched {
            let key = Key::new(session, ordinal);
            let cancelled = self.cancelled;
            let score = self.with_body(key, |body| {
                let matches = matcher.places(body, MAX_COUNTED, cancelled)?.len();
                Ok::<_, StoreError>(density(matches, body.as_str().len()))
            })?;
            let score = score.transpose()?.unwrap_or(0.0);
            found.push(Found::message(key, self.order_at(key)?, score));
        }
        Ok(())
    }

    pub(super) fn order_at(&self, key: Key) -> Result<i64, StoreError> {
        Ok(row_in(self.connection, key)?.map_or(0, |row| row.order_at))
    }

    /// Sorts the matches and cuts out the page after the cursor. Also returns whether there are
    /// more matches after it.
    pub(super) fn page(
        &self,
        mut found: Vec<Found>,
        cursor: Option<&Cursor>,
    ) -> (Vec<Found>, bool) {
        let order = |one: &HitPosition, other: &HitPosition| match self.query.order() {
            Sort::Relevance => (other.rank.cmp(&one.rank)).then(other.when.cmp(&one.when)),
            Sort::Recency => other.when.cmp(&one.when),
            Sort::Oldest => one.when.cmp(&other.when),
        };
        found.sort_by(|one, other| order(&one.place, &other.place));
        if let Some(cursor) = cursor {
            found.retain(|found| order(&cursor.last, &found.place).is_lt());
        }
        let more = found.len() > self.query.limit;
        found.truncate(self.query.limit);
        (found, more)
    }

    /// Fetches the content of a page's hits. `places` returns where a body matches. Hits without a
    /// row in the store are left out.
    pub(super) fn show(
        &mut self,
        page: Vec<Found>,
        places: impl Fn(Key, &MessageBody<'_>) -> Result<Places, StoreError>,
    ) -> Result<Vec<Hit>, StoreError> {
        let mut hits = Vec::with_capacity(page.len());
        for found in page {
            hits.extend(match found.place.is_summary() {
                true => self.summary_hit(found, &places)?,
                false => self.message_hit(found, &places)?,
            });
        }
        Ok(hits)
    }

    fn summary_hit(
        &self,
        found: Found,
        places: impl Fn(Key, &MessageBody<'_>) -> Result<Places, StoreError>,
    ) -> Result<Option<Hit>, StoreError> {
        let key = found.key;
        let Some(times) = summary_times(self.connection, key)? else {
            return Ok(None);
        };
        let summary = summary_in(self.connection, key)?;
        let shown = summary.map(|summary| {
            let (places, span) = places(key, &MessageBody::of_text(&summary.text))?;
            let snippet = snippet(&summary.text, &places, self.query.context_lines);
            Ok::<_, StoreError>((snippet, span))
        });
        let (snippet, span) = shown.transpose()?.unwrap_or_default();
        Ok(Some(Hit {
            key,
            kind: HitKind::Summary,
            role: "summary".into(),
            name: None,
            tool: None,
            at_ms: times.last_at,
            at_is_exact: times.last_is_exact,
            live: is_under_frontier(self.connection, key)?,
            snippet,
            span,
            score: found.score,
            cursor: Cursor::write(self.query, found.place, &self.extents),
        }))
    }

    fn message_hit(
        &mut self,
        found: Found,
        places: impl Fn(Key, &MessageBody<'_>) -> Result<Places, StoreError>,
    ) -> Result<Option<Hit>, StoreError> {
        let key = found.key;
        let Some(row) = row_in(self.connection, key)? else {
            return Ok(None);
        };
        let context = self.query.context_lines;
        let shown = self.with_body(key, |body| {
            let (places, span) = places(key, body)?;
            Ok::<_, StoreError>((snippet(body.as_str(), &places, context), span))
        })?;
        let (snippet, span) = shown.transpose()?.unwrap_or_default();
        let kind = match row.payload {
            Some(file) => HitKind::File {
                id: row.id,
                file,
                // The calls follow the text in the body, so a match behind the end of the text is
                // in them.
                in_calls: snippet.byte as i64 > payload_bytes(self.connection, file)?,
            },
            None => HitKind::Message { id: row.id },
        };
        Ok(Some(Hit {
            key,
            kind,
            at_ms: row.said_at(),
            at_is_exact: row.at.is_some(),
            role: row.role,
            name: row.name,
            tool: row.tool,
            live: row.is_current,
            snippet,
            span,
            score: found.score,
            cursor: Cursor::write(self.query, found.place, &self.extents),
        }))
    }
}

fn payload_bytes(connection: &Connection, file: PayloadId) -> Result<i64, StoreError> {
    Ok(connection
        .prepare_cached("SELECT bytes FROM payloads WHERE id = ?1")?
        .query_row([file.0], |row| row.get(0))?)
}

/// Whether the window shows a summary, or another summary that was made from it.
fn is_under_frontier(connection: &Connection, node: Key) -> Result<bool, StoreError> {
    Ok(connection
        .prepare_cached(
            "WITH RECURSIVE above(node) AS (
                 VALUES(?1) UNION SELECT c.node FROM node_children c JOIN above a ON c.child = a.node)
             SELECT EXISTS(SELECT 1 FROM frontier JOIN above USING(node))",
        )?
        .query_row([node.0], |row| row.get(0))?)
}

/// Returns the density of matches in a text. Both numbers count by their logarithm, so that a long
/// text with many matches does not win by its length.
pub(super) fn density(matches: usize, bytes: usize) -> f64 {
    (1.0 + matches as f64).ln() / (200.0 + bytes as f64).ln()
}
