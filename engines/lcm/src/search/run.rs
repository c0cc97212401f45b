//! Runs a search on one snapshot of the store.
//!
//! [`search`] reads everything within one transaction, so that messages stored meanwhile cannot
//! change an answer half way. It limits each session to the extent of the query's first page and
//! hands over to the pattern or the question. Both end in the same way: the matches become a page,
//! and the page becomes an [`Answer`].
//!
//! [`Search`] is the state that all steps share: what is asked, how much has been searched, and
//! what could not be read. The steps themselves are in the neighbouring modules, except for
//! summaries, which are few enough to be handled here.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};

use super::cursor::{Cursor, Extent, extent_of};
use super::matcher::Matcher;
use super::page::{Found, Places, density};
use super::question::{Question, Sense, Weights};
use super::snippet::MAX_COUNTED;
use super::{Answer, Ask, Query, Scope, Searched, Sort};
use crate::error::StoreError;
use crate::store::index::corpus::Corpus;
use crate::store::index::need::Need;
use crate::store::index::segment::segments;
use crate::store::{
    Bodies, Key, MessageBody, SessionId, Snapshot, Store, SummaryTimes, count_summaries,
    for_each_summary, info_in, summary_times,
};

/// Runs a query that is within the bounds, and returns one page of its hits.
///
/// # Errors
/// Returns an error if the cursor or pattern is invalid, if the search was cancelled, or if the
/// store fails.
pub(super) fn search(
    store: &Store,
    mut query: Query,
    weights: &Weights,
    sense: Option<Sense<'_>>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Answer, StoreError> {
    // A session that is named twice would give every hit twice.
    let mut seen = BTreeSet::new();
    query.sessions.retain(|session| seen.insert(*session));
    let cursor = Cursor::of(&query)?;
    store.read(|connection| {
        let mut extents = extents(connection, &query.sessions)?;
        if let Some(cursor) = &cursor {
            for (extent, then) in extents.iter_mut().zip(&cursor.extents) {
                extent.shrink_to(*then);
            }
        }
        let search = Search {
            connection,
            query: &query,
            cancelled,
            searched: Searched::default(),
            next_check: 0,
            unreadable: BTreeSet::new(),
            extents,
            bodies: Bodies::new(connection),
        };
        match &query.ask {
            Ask::Pattern(pattern) => {
                let (matcher, need) = Matcher::new(pattern)?;
                search.pattern(&matcher, &need, cursor.as_ref())
            }
            Ask::Question(text) => search.question(text, weights, sense, cursor.as_ref()),
        }
    })
}

/// The current extent of each session.
fn extents(connection: &Snapshot<'_>, sessions: &[SessionId]) -> Result<Vec<Extent>, StoreError> {
    sessions
        .iter()
        .map(|session| {
            Ok(Extent {
                messages: info_in(connection, *session)?.messages,
                summaries: Corpus::Summaries.end(connection, *session)?,
            })
        })
        .collect()
}

/// A running search, on one snapshot of the store.
pub(super) struct Search<'c> {
    pub(super) connection: &'c Snapshot<'c>,
    pub(super) query: &'c Query,
    pub(super) cancelled: &'c dyn Fn() -> bool,
    pub(super) searched: Searched,
    /// The number of read bytes at which the next check for cancellation is due.
    pub(super) next_check: u64,
    /// The messages that could not be read, each counted once.
    pub(super) unreadable: BTreeSet<Key>,
    pub(super) extents: Vec<Extent>,
    pub(super) bodies: Bodies<'c>,
}

impl Search<'_> {
    fn pattern(
        mut self,
        matcher: &Matcher,
        need: &Need,
        cursor: Option<&Cursor>,
    ) -> Result<Answer, StoreError> {
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
                let mut summaries = self.matching_summaries(session, matcher, need)?;
                summaries.retain(|found| self.is_within(found));
                total += summaries.len() as u64;
                found.extend(summaries);
            }
        }
        let cancelled = self.cancelled;
        let places = |_, body: &MessageBody<'_>| {
            let places = matcher.places(body, MAX_COUNTED, cancelled)?;
            Ok((places, None))
        };
        self.answer(total, true, found, cursor, places)
    }

    fn question(
        mut self,
        text: &str,
        weights: &Weights,
        sense: Option<Sense<'_>>,
        cursor: Option<&Cursor>,
    ) -> Result<Answer, StoreError> {
        let mut question = Question::new(text, weights, sense)?;
        // Summaries are scored by the rarity of the words in the conversation, which ranking the
        // messages finds out. So messages are ranked even if only summaries are asked for.
        let mut found = question.rank(&mut self)?;
        if self.query.scope == Scope::Summaries {
            found.clear();
        }
        if self.looks_in_summaries() {
            for &session in &self.query.sessions {
                self.searched.summaries += count_summaries(self.connection, session)?;
                let all = 0..self.extent(session).summaries;
                let unreadable = for_each_summary(self.connection, session, &all, |summary| {
                    if (self.cancelled)() {
                        return Err(StoreError::Cancelled);
                    }
                    let score = question.score_text(&summary.text);
                    if score > 0.0 && self.lets_summary_through(&summary.times) {
                        found.push(Found::summary(summary.key, summary.times, score));
                    }
                    Ok(ControlFlow::Continue(()))
                })?;
                self.searched.summaries_unreadable += unreadable;
            }
        }
        found.retain(|found| self.is_within(found));
        let total = found.len() as u64;
        let mut answer = self.answer(total, false, found, cursor, |key, body| {
            let (places, span) = question.places(key, body.as_str());
            Ok((places, Some(span)))
        })?;
        answer.words_left_out = question.words_left_out();
        Ok(answer)
    }

    fn answer(
        mut self,
        total: u64,
        total_is_exact: bool,
        found: Vec<Found>,
        cursor: Option<&Cursor>,
        places: impl Fn(Key, &MessageBody<'_>) -> Result<Places, StoreError>,
    ) -> Result<Answer, StoreError> {
        // An unreadable message might match, so the total is a lower bound then.
        let all_read = self.unreadable.is_empty() && self.searched.summaries_unreadable == 0;
        let (page, more) = self.page(found, cursor);
        let hits = self.show(page, places)?;
        self.searched.messages_unreadable = self.unreadable.len() as u64;
        Ok(Answer {
            total,
            total_is_exact: total_is_exact && all_read,
            searched: self.searched,
            words_left_out: 0,
            next_cursor: hits.last().filter(|_| more).map(|hit| hit.cursor.clone()),
            hits,
        })
    }

    /// Returns how much of a session belongs to this query.
    pub(super) fn extent(&self, session: SessionId) -> Extent {
        extent_of(self.query, &self.extents, session)
    }

    /// Whether a match was already stored at the first page of the query.
    fn is_within(&self, found: &Found) -> bool {
        let extent = self.extent(found.key.session());
        let end = match found.place.is_summary() {
            true => extent.summaries,
            false => extent.messages,
        };
        found.key.ordinal() < end
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

    /// Returns the summaries of a session that match and pass the filters. Scores are computed only
    /// if hits are ordered by relevance.
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
        let mut unreadable = 0;
        let mut read = |numbers: Range<u32>| -> Result<(), StoreError> {
            unreadable += for_each_summary(self.connection, session, &numbers, |summary| {
                let body = MessageBody::of_text(&summary.text);
                if (self.cancelled)() {
                    return Err(StoreError::Cancelled);
                }
                if self.lets_summary_through(&summary.times)
                    && matcher.is_match(&body, &mut scratch, self.cancelled)?
                {
                    let places = match by_relevance {
                        true => matcher.places(&body, MAX_COUNTED, self.cancelled)?.len(),
                        false => 0,
                    };
                    let score = density(places, summary.text.len());
                    found.push(Found::summary(summary.key, summary.times, score));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(())
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
                // A damaged index must not hide summaries, so they are read instead.
                Ok(None) | Err(StoreError::Damaged(_)) => read(segment.ordinals)?,
                Err(error) => return Err(error),
            }
        }
        // Summaries after the last segment are not indexed yet.
        read(covered..Corpus::Summaries.end(self.connection, session)?)?;
        self.searched.summaries_unreadable += unreadable;
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
}
