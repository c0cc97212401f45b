//! Carrying a search out: candidates from the index, filters, texts, order, pages.

use std::ops::{ControlFlow, Range};

use rusqlite::Connection;

use super::cursor::{Cursor, Place};
use super::matcher::Matcher;
use super::question;
use super::snippet::{MAX_COUNTED, snippet};
use super::{Answer, Ask, Hit, HitKind, Query, Scope, Searched, Sort};
use crate::error::StoreError;
use crate::index::corpus::Corpus;
use crate::index::need::Need;
use crate::index::segment::segments;
use crate::store::{
    Blocks, Key, MessageRow, SessionId, Store, SummaryTimes, count_summaries, for_each_summary,
    info_in, live_ranges, row_in, summary_in, summary_times,
};

/// How many texts are read between two looks at whether to stop.
const CANCEL_EVERY: u64 = 64;

pub(super) fn search(
    store: &Store,
    query: &Query,
    cancelled: &dyn Fn() -> bool,
) -> Result<Answer, StoreError> {
    store.read(|connection| {
        let search = Search {
            connection,
            query,
            cancelled,
            searched: Searched::default(),
            blocks: Blocks::new(connection)?,
        };
        match &query.ask {
            Ask::Pattern(pattern) => {
                let (matcher, need) = Matcher::new(pattern)?;
                search.pattern(&matcher, &need)
            }
            Ask::Question(text) => search.question(text),
        }
    })
}

/// A search under way, on one snapshot.
pub(super) struct Search<'c> {
    pub(super) connection: &'c Connection,
    pub(super) query: &'c Query,
    cancelled: &'c dyn Fn() -> bool,
    pub(super) searched: Searched,
    blocks: Blocks<'c>,
}

/// Something that matched, before it is shown.
struct Found {
    place: Place,
    score: f64,
    what: What,
}

enum What {
    Message(Key),
    Summary(Key),
}

impl Search<'_> {
    fn pattern(mut self, matcher: &Matcher, need: &Need) -> Result<Answer, StoreError> {
        let cursor = Cursor::of(self.query)?;
        let mut total = 0;
        let mut found = Vec::new();
        for &session in &self.query.sessions {
            self.searched.sessions += 1;
            if self.query.scope != Scope::Summaries {
                let matched = self.matching_messages(session, matcher, need)?;
                total += matched.len() as u64;
                match self.query.order() {
                    Sort::Relevance => self.score_all(session, matched, matcher, &mut found)?,
                    _ => self.first_of_page(session, &matched, cursor, &mut found)?,
                }
            }
            if self.looks_in_summaries() {
                let summaries = self.matching_summaries(session, matcher, need)?;
                total += summaries.len() as u64;
                found.extend(summaries);
            }
        }
        let (page, next_cursor) = self.page(found, cursor);
        let show = |text: &str| matcher.places(text, MAX_COUNTED);
        let hits = self.show(page, show)?;
        Ok(Answer {
            total,
            total_is_exact: true,
            searched: self.searched,
            hits,
            next_cursor,
        })
    }

    fn question(mut self, text: &str) -> Result<Answer, StoreError> {
        let cursor = Cursor::of(self.query)?;
        let mut question = question::Question::new(text)?;
        let ranked = question.rank(&mut self)?;
        let mut found = Vec::new();
        for (key, score) in ranked {
            if let Some(row) = row_in(self.connection, key)? {
                found.push(Found {
                    place: (row.order_at, key.0),
                    score,
                    what: What::Message(key),
                });
            }
        }
        if self.looks_in_summaries() {
            for &session in &self.query.sessions {
                self.searched.summaries += count_summaries(self.connection, session)?;
                let all = 0..Corpus::Summaries.end(self.connection, session)?;
                for_each_summary(self.connection, session, &all, |summary| {
                    let score = question.score_text(&summary.text);
                    if score > 0.0 && self.lets_summary_through(&summary.times) {
                        found.push(Found::summary(summary.key, summary.times, score));
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
            }
        }
        let total = found.len() as u64;
        let (page, next_cursor) = self.page(found, cursor);
        let hits = self.show(page, |text| question.places(text))?;
        Ok(Answer {
            total,
            total_is_exact: false,
            searched: self.searched,
            hits,
            next_cursor,
        })
    }

    /// The ordinals of a session's messages that match, in order.
    fn matching_messages(
        &mut self,
        session: SessionId,
        matcher: &Matcher,
        need: &Need,
    ) -> Result<Vec<u32>, StoreError> {
        let info = info_in(self.connection, session)?;
        self.searched.messages += u64::from(info.messages);
        let decided = matcher.is_decided_by_index();
        let mut matched = Vec::new();
        let mut scratch = String::new();
        let mut covered = 0;
        for segment in segments(self.connection, session, Corpus::Messages)? {
            covered = covered.max(segment.ordinals.end);
            let candidates = match need.ordinals(self.connection, &segment) {
                // What the index cannot say any more, the messages can.
                Err(StoreError::Damaged(_)) => None,
                other => other?,
            };
            match candidates {
                Some(mut candidates) => {
                    self.filter(session, &mut candidates)?;
                    if decided {
                        matched.extend(candidates);
                    } else {
                        self.read_all(session, candidates, matcher, &mut scratch, &mut matched)?;
                    }
                }
                None => {
                    let all = self.filtered(session, segment.ordinals)?;
                    self.read_all(session, all, matcher, &mut scratch, &mut matched)?;
                }
            }
        }
        let rest = self.filtered(session, covered..info.messages)?;
        self.searched.messages_not_indexed += rest.len() as u64;
        self.read_all(session, rest, matcher, &mut scratch, &mut matched)?;
        Ok(matched)
    }

    fn read_all(
        &mut self,
        session: SessionId,
        candidates: Vec<u32>,
        matcher: &Matcher,
        scratch: &mut String,
        matched: &mut Vec<u32>,
    ) -> Result<(), StoreError> {
        for ordinal in candidates {
            let is_match = self.with_body(Key::new(session, ordinal), |body| {
                matcher.is_match(body, scratch)
            })?;
            if is_match == Some(true) {
                matched.push(ordinal);
            }
        }
        Ok(())
    }

    /// Reads what search sees of a message; none where a repair could not save it.
    pub(super) fn with_body<T>(
        &mut self,
        key: Key,
        look: impl FnOnce(&str) -> T,
    ) -> Result<Option<T>, StoreError> {
        if self.searched.messages_read.is_multiple_of(CANCEL_EVERY) && (self.cancelled)() {
            return Err(StoreError::Cancelled);
        }
        let Some(body) = self.blocks.body(self.connection, key)? else {
            return Ok(None);
        };
        self.searched.messages_read += 1;
        self.searched.bytes_read += body.len() as u64;
        Ok(Some(look(&body)))
    }

    /// Those of a run of messages that the filters let through.
    pub(super) fn filtered(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<u32>, StoreError> {
        let mut all: Vec<u32> = ordinals.collect();
        self.filter(session, &mut all)?;
        Ok(all)
    }

    /// Leaves those that the filters let through.
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

    /// As much of the matches as this page can need, in an order by time.
    fn first_of_page(
        &self,
        session: SessionId,
        matched: &[u32],
        cursor: Option<Cursor>,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        // Time never goes back within a session, so the order of ordinals is that of places.
        let place = |ordinal: u32| -> Result<Place, StoreError> {
            let key = Key::new(session, ordinal);
            Ok((
                row_in(self.connection, key)?.map_or(0, |row| row.order_at),
                key.0,
            ))
        };
        let latest_first = self.query.order() == Sort::Recency;
        let (mut from, mut to) = (0, matched.len());
        if let Some(Cursor::After(end)) = cursor {
            while from < to {
                let middle = from.midpoint(to);
                let before = place(matched[middle])?;
                if if latest_first {
                    before < end
                } else {
                    before <= end
                } {
                    from = middle + 1;
                } else {
                    to = middle;
                }
            }
            (from, to) = if latest_first {
                (0, from)
            } else {
                (from, matched.len())
            };
        }
        // One more than the page holds tells whether there is a next one.
        let wanted = self.query.limit + 1;
        let page: Box<dyn Iterator<Item = &u32>> = if latest_first {
            Box::new(matched[from..to].iter().rev().take(wanted))
        } else {
            Box::new(matched[from..to].iter().take(wanted))
        };
        for &ordinal in page {
            found.push(Found {
                place: place(ordinal)?,
                score: 0.0,
                what: What::Message(Key::new(session, ordinal)),
            });
        }
        Ok(())
    }

    /// All of the matches, with a score each: how often the pattern occurs for the text's length.
    fn score_all(
        &mut self,
        session: SessionId,
        matched: Vec<u32>,
        matcher: &Matcher,
        found: &mut Vec<Found>,
    ) -> Result<(), StoreError> {
        for ordinal in matched {
            let key = Key::new(session, ordinal);
            let score = self
                .with_body(key, |body| {
                    density(matcher.places(body, MAX_COUNTED).len(), body.len())
                })?
                .unwrap_or(0.0);
            found.push(Found {
                place: (
                    row_in(self.connection, key)?.map_or(0, |row| row.order_at),
                    key.0,
                ),
                score,
                what: What::Message(key),
            });
        }
        Ok(())
    }

    fn looks_in_summaries(&self) -> bool {
        matches!(self.query.scope, Scope::Summaries | Scope::All)
            && self.query.role.is_none()
            && self.query.tool.is_none()
    }

    fn lets_summary_through(&self, times: &SummaryTimes) -> bool {
        let Query {
            since_ms, until_ms, ..
        } = self.query;
        since_ms.is_none_or(|since| times.last_at.is_some_and(|last| last >= since))
            && until_ms.is_none_or(|until| times.first_at.is_some_and(|first| first <= until))
    }

    /// The summaries of a session that match and that the filters let through.
    fn matching_summaries(
        &mut self,
        session: SessionId,
        matcher: &Matcher,
        need: &Need,
    ) -> Result<Vec<Found>, StoreError> {
        self.searched.summaries += count_summaries(self.connection, session)?;
        let by_relevance = self.query.order() == Sort::Relevance;
        let mut scratch = String::new();
        let mut found = Vec::new();
        let mut read = |numbers: Range<u32>| {
            for_each_summary(self.connection, session, &numbers, |summary| {
                if self.lets_summary_through(&summary.times)
                    && matcher.is_match(&summary.text, &mut scratch)
                {
                    let places = match by_relevance {
                        true => matcher.places(&summary.text, MAX_COUNTED).len(),
                        false => 0,
                    };
                    let score = density(places, summary.text.len());
                    found.push(Found::summary(summary.key, summary.times, score));
                }
                Ok(ControlFlow::Continue(()))
            })
            .map(|_unreadable| ())
        };
        let mut decided = Vec::new();
        let mut covered = 0;
        for segment in segments(self.connection, session, Corpus::Summaries)? {
            covered = segment.ordinals.end;
            match need.ordinals(self.connection, &segment) {
                Ok(Some(numbers)) if matcher.is_decided_by_index() && !by_relevance => {
                    decided.extend(numbers);
                }
                Ok(Some(numbers)) => numbers
                    .into_iter()
                    .try_for_each(|number| read(number..number + 1))?,
                // What the index cannot say, the summaries can.
                Ok(None) | Err(StoreError::Damaged(_)) => read(segment.ordinals)?,
                Err(error) => return Err(error),
            }
        }
        read(covered..Corpus::Summaries.end(self.connection, session)?)?;
        for number in decided {
            let key = Key::new(session, number);
            if let Some(times) = summary_times(self.connection, key)?
                && self.lets_summary_through(&times)
            {
                found.push(Found::summary(key, times, 0.0));
            }
        }
        Ok(found)
    }

    /// Puts what was found in order and cuts the page out of it.
    fn page(&self, mut found: Vec<Found>, cursor: Option<Cursor>) -> (Vec<Found>, Option<String>) {
        match self.query.order() {
            Sort::Relevance => {
                found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.place.cmp(&a.place)));
            }
            Sort::Recency => found.sort_by_key(|found| std::cmp::Reverse(found.place)),
            Sort::Oldest => found.sort_by_key(|found| found.place),
        }
        let mut skipped = 0;
        match cursor {
            Some(Cursor::Skip(count)) => {
                skipped = count.min(found.len());
                found.drain(..skipped);
            }
            Some(Cursor::After(end)) => found.retain(|found| match self.query.order() {
                Sort::Oldest => found.place > end,
                _ => found.place < end,
            }),
            None => {}
        }
        let more = found.len() > self.query.limit;
        found.truncate(self.query.limit);
        let next = match (more, found.last()) {
            (true, Some(last)) => Some(match self.query.order() {
                Sort::Relevance => Cursor::Skip(skipped + found.len()),
                _ => Cursor::After(last.place),
            }),
            _ => None,
        };
        (found, next.map(|cursor| cursor.write(self.query)))
    }

    /// Fetches what the hits of a page show.
    fn show(
        &mut self,
        page: Vec<Found>,
        places: impl Fn(&str) -> Vec<Range<usize>>,
    ) -> Result<Vec<Hit>, StoreError> {
        let mut live: Vec<(SessionId, Vec<Range<u32>>)> = Vec::new();
        let context = self.query.context_lines;
        let mut hits = Vec::with_capacity(page.len());
        for found in page {
            match found.what {
                What::Summary(key) => {
                    let Some(summary) = summary_in(self.connection, key)? else {
                        continue;
                    };
                    hits.push(Hit {
                        key,
                        kind: HitKind::Summary,
                        role: "summary".into(),
                        tool: None,
                        at_ms: summary.times.last_at,
                        live: !summary.superseded,
                        snippet: snippet(&summary.text, &places(&summary.text), context),
                        score: found.score,
                    });
                }
                What::Message(key) => {
                    let Some(row) = row_in(self.connection, key)? else {
                        continue;
                    };
                    if !live.iter().any(|(session, _)| *session == key.session()) {
                        let ranges = live_ranges(self.connection, key.session())?;
                        live.push((key.session(), ranges));
                    }
                    let is_live = live.iter().any(|(session, ranges)| {
                        *session == key.session()
                            && ranges.iter().any(|range| range.contains(&key.ordinal()))
                    });
                    let snippet = self
                        .with_body(key, |body| snippet(body, &places(body), context))?
                        .unwrap_or_default();
                    hits.push(hit(key, row, is_live, snippet, found.score));
                }
            }
        }
        Ok(hits)
    }
}

impl Found {
    fn summary(key: Key, times: SummaryTimes, score: f64) -> Self {
        Self {
            // Told from the place of a message that was said at the same time.
            place: (times.last_at.unwrap_or(times.created_at), key.0 | 1 << 62),
            score,
            what: What::Summary(key),
        }
    }
}

fn hit(key: Key, row: MessageRow, live: bool, snippet: super::Snippet, score: f64) -> Hit {
    Hit {
        key,
        kind: match row.payload {
            Some(file) => HitKind::File { id: row.id, file },
            None => HitKind::Message { id: row.id },
        },
        role: row.role,
        tool: row.tool,
        at_ms: row.at,
        live,
        snippet,
        score,
    }
}

fn lets_through(query: &Query, row: &MessageRow) -> bool {
    query.role.as_ref().is_none_or(|role| *role == row.role)
        && query
            .tool
            .as_ref()
            .is_none_or(|tool| row.tool.as_ref() == Some(tool))
        && query
            .since_ms
            .is_none_or(|since| row.at.is_some_and(|at| at >= since))
        && query
            .until_ms
            .is_none_or(|until| row.at.is_some_and(|at| at <= until))
        && (query.scope != Scope::Files || row.payload.is_some())
}

/// How thick the matches stand in a text.
fn density(matches: usize, bytes: usize) -> f64 {
    (1.0 + matches as f64).ln() / (200.0 + bytes as f64).ln()
}
