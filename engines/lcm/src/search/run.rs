//! Carrying a search out.

use std::collections::BTreeSet;

use rusqlite::Connection;

use super::cursor::{Cursor, Extent, extent_of};
use super::matcher::Matcher;
use super::page::{Found, density};
use super::question;
use super::snippet::MAX_COUNTED;
use super::{Answer, Ask, Query, Scope, Searched, Sort};
use crate::error::StoreError;
use crate::index::need::Need;
use crate::store::{Blocks, Key, SessionId, Store, StoredNode, info_in, nodes_in, row_in};

pub(super) fn search(
    store: &Store,
    query: &Query,
    cancelled: &dyn Fn() -> bool,
) -> Result<Answer, StoreError> {
    let mut query = query.clone();
    let mut seen = BTreeSet::new();
    query.sessions.retain(|session| seen.insert(*session));
    let cursor = Cursor::of(&query)?;
    store.read(|connection| {
        let extents = match &cursor {
            Some(cursor) => cursor.extents.clone(),
            None => extents(connection, &query.sessions)?,
        };
        let search = Search {
            connection,
            query: &query,
            cancelled,
            searched: Searched::default(),
            unreadable: BTreeSet::new(),
            extents,
            blocks: Blocks::new(connection)?,
        };
        match &query.ask {
            Ask::Pattern(pattern) => {
                let (matcher, need) = Matcher::new(pattern)?;
                search.pattern(&matcher, &need, cursor.as_ref())
            }
            Ask::Question(text) => search.question(text, cursor.as_ref()),
        }
    })
}

/// How much there is of each session now.
fn extents(connection: &Connection, sessions: &[SessionId]) -> Result<Vec<Extent>, StoreError> {
    let mut last_summary = connection.prepare_cached(
        "SELECT coalesce(max(id), 0) & 4294967295 FROM nodes WHERE session = ?1",
    )?;
    sessions
        .iter()
        .map(|session| {
            Ok(Extent {
                messages: info_in(connection, *session)?.messages,
                summaries: last_summary.query_row([session.0], |row| row.get(0))?,
            })
        })
        .collect()
}

/// A search under way, on one snapshot.
pub(super) struct Search<'c> {
    pub(super) connection: &'c Connection,
    pub(super) query: &'c Query,
    pub(super) cancelled: &'c dyn Fn() -> bool,
    pub(super) searched: Searched,
    /// Messages that could not be read.
    pub(super) unreadable: BTreeSet<Key>,
    pub(super) extents: Vec<Extent>,
    pub(super) blocks: Blocks<'c>,
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
                let mut summaries = self.matching_summaries(session, matcher)?;
                summaries.retain(|found| self.is_within(found));
                total += summaries.len() as u64;
                found.extend(summaries);
            }
        }
        let places = |text: &str| matcher.places(text, MAX_COUNTED);
        self.answer(total, true, found, cursor, places)
    }

    fn question(mut self, text: &str, cursor: Option<&Cursor>) -> Result<Answer, StoreError> {
        let mut question = question::Question::new(text)?;
        // Summaries, too, are scored by how rare a word is in the conversation.
        let ranked = question.rank(&mut self)?;
        let mut found = Vec::new();
        if self.query.scope != Scope::Summaries {
            for (key, score) in ranked {
                if let Some(row) = row_in(self.connection, key)? {
                    found.push(Found::message(key, row.order_at, score));
                }
            }
        }
        if self.looks_in_summaries() {
            for &session in &self.query.sessions {
                for node in self.summaries(session)? {
                    let score = question.score_text(&node.text);
                    if score > 0.0 {
                        found.push(Found::summary(node, score));
                    }
                }
            }
        }
        found.retain(|found| self.is_within(found));
        let total = found.len() as u64;
        self.answer(total, false, found, cursor, |text| question.places(text))
    }

    fn answer(
        mut self,
        total: u64,
        total_is_exact: bool,
        found: Vec<Found>,
        cursor: Option<&Cursor>,
        places: impl Fn(&str) -> Vec<std::ops::Range<usize>>,
    ) -> Result<Answer, StoreError> {
        let (page, more) = self.page(found, cursor);
        let hits = self.show(page, places)?;
        self.searched.messages_unreadable = self.unreadable.len() as u64;
        Ok(Answer {
            total,
            total_is_exact,
            searched: self.searched,
            next_cursor: hits.last().filter(|_| more).map(|hit| hit.cursor.clone()),
            hits,
        })
    }

    /// How much of a session belongs to this query.
    pub(super) fn extent(&self, session: SessionId) -> Extent {
        extent_of(self.query, &self.extents, session)
    }

    /// Whether something found was there when the first page of the query was made.
    fn is_within(&self, found: &Found) -> bool {
        let key = found.key();
        let extent = self.extent(key.session());
        match found.is_summary() {
            true => key.ordinal() <= extent.summaries,
            false => key.ordinal() < extent.messages,
        }
    }

    fn looks_in_summaries(&self) -> bool {
        matches!(self.query.scope, Scope::Summaries | Scope::All)
            && self.query.role.is_none()
            && self.query.tool.is_none()
    }

    /// The summaries of a session that the filters let through.
    fn summaries(&mut self, session: SessionId) -> Result<Vec<StoredNode>, StoreError> {
        let query = self.query;
        let mut nodes = nodes_in(self.connection, session)?;
        self.searched.summaries += nodes.len() as u64;
        nodes.retain(|node| {
            query
                .since_ms
                .is_none_or(|since| node.last_at.is_some_and(|last| last >= since))
                && query
                    .until_ms
                    .is_none_or(|until| node.first_at.is_some_and(|first| first <= until))
        });
        Ok(nodes)
    }

    fn matching_summaries(
        &mut self,
        session: SessionId,
        matcher: &Matcher,
    ) -> Result<Vec<Found>, StoreError> {
        let mut scratch = String::new();
        let mut found = Vec::new();
        for node in self.summaries(session)? {
            if matcher.is_match(&node.text, &mut scratch) {
                let score = match self.query.order() {
                    Sort::Relevance => density(
                        matcher.places(&node.text, MAX_COUNTED).len(),
                        node.text.len(),
                    ),
                    _ => 0.0,
                };
                found.push(Found::summary(node, score));
            }
        }
        Ok(found)
    }
}
