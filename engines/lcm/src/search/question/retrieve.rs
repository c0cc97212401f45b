//! The first round of the ranking: candidate messages from the index.
//!
//! The index says which messages contain which term, without reading any text.
//! [`Question::look_up`] collects that for each session. [`Question::retrieve`] then adds up the
//! rarity of the words for each message and its neighbours, and returns the best ones for the
//! second round.
//!
//! The rarity of a word is known only after all sessions have been looked up, which is why these
//! are two steps. Messages that are not indexed yet are read.

use std::ops::Range;

use super::read::TextReader;
use super::{Question, QuestionTerm, TermForm, Weights};
use crate::error::StoreError;
use crate::search::candidates::Stretch;
use crate::search::lexicon::lexicon;
use crate::search::run::Search;
use crate::store::index::list::List;
use crate::store::index::segment::Segment;
use crate::store::index::vocabulary::Vocabulary;
use crate::store::{Key, SessionId, latest_time};

/// Which messages of a session contain which term. `lists` has the ordinals for each term, in
/// order.
pub(super) struct TermHolders {
    pub(super) session: SessionId,
    pub(super) messages: u32,
    pub(super) lists: Vec<Vec<u32>>,
}

/// The weights of the question's words in the messages of a session.
pub(super) struct SessionWeights {
    pub(super) session: SessionId,
    messages: u32,
    /// For each group, the ordinals of the messages that contain it and its weight there, in order.
    groups: Vec<Vec<(u32, f64)>>,
    /// The messages from the period that the question names.
    in_period: Vec<Range<u32>>,
}

/// The number of pairs without a common word that are added to those of [`SessionWeights::runs`]. Few pairs
/// then say little.
const UNRELATED_PAIRS: f64 = 2.0;

/// Returns how much a conversation stays with the subject of the question, from 0 if its words are
/// spread by chance to 1 if each occurs in one run of messages.
pub(super) fn coherence(weighed: &[SessionWeights]) -> f64 {
    let (mut seen, mut possible) = (0.0, UNRELATED_PAIRS);
    for session in weighed {
        let (seen_there, possible_there) = session.runs();
        seen += seen_there;
        possible += possible_there;
    }
    (seen / possible).clamp(0.0, 1.0)
}

/// Returns the bonus for a message from the period that the question names. As with a word, it is
/// higher if fewer messages are from there.
pub(super) fn period_bonus(weighed: &[SessionWeights], weights: &Weights) -> f64 {
    let all: f64 = weighed
        .iter()
        .map(|session| f64::from(session.messages))
        .sum();
    let ranges = weighed.iter().flat_map(|session| &session.in_period);
    let inside = ranges.map(ExactSizeIterator::len).sum::<usize>() as f64;
    let rarity = ((all - inside + 0.5) / (inside + 0.5)).ln();
    match weights.period > 0.0 {
        true => (weights.period + rarity).max(0.0),
        false => 0.0,
    }
}

/// Returns the rarity of a term that `with` of `all` messages contain. It is the inverse document
/// frequency of BM25 and never negative.
pub(super) fn idf(with: usize, all: usize) -> f64 {
    let (with, all) = (with as f64, all as f64);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

impl Question<'_> {
    /// Looks the question's terms up in the index of each session, and counts the messages as
    /// searched.
    pub(super) fn look_up(&self, search: &mut Search<'_>) -> Result<Vec<TermHolders>, StoreError> {
        let mut sessions = Vec::new();
        let mut reader = self.reader();
        for &session in &search.query.sessions {
            let holders = self.holders(search, session, &mut reader)?;
            search.searched.sessions += 1;
            search.searched.messages += u64::from(holders.messages);
            sessions.push(holders);
        }
        Ok(sessions)
    }

    /// Returns the messages to read in the second round, and the weights of the question's words in
    /// all messages.
    pub(super) fn retrieve(
        &mut self,
        search: &Search<'_>,
        sessions: Vec<TermHolders>,
    ) -> Result<(Vec<Key>, Vec<SessionWeights>), StoreError> {
        self.set_rarity(&sessions);
        let mut weighed = Vec::new();
        for holders in sessions {
            let in_period = self.in_period(search, holders.session)?;
            weighed.push(self.weigh(holders, in_period));
        }
        let from_period = period_bonus(&weighed, &self.weights);
        let mut best = Vec::new();
        for session in &weighed {
            best.extend(session.best(search, &self.weights, from_period)?);
        }
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        best.truncate(self.weights.candidates);
        Ok((best.into_iter().map(|(key, _)| key).collect(), weighed))
    }

    /// Returns the messages of a session that are from the period that the question names.
    fn in_period(
        &self,
        search: &Search<'_>,
        session: SessionId,
    ) -> Result<Vec<Range<u32>>, StoreError> {
        let all = 0..search.extent(session).messages;
        let Some(period) = self.period.filter(|_| !all.is_empty()) else {
            return Ok(Vec::new());
        };
        let time = |ordinal| latest_time(search.connection, Key::new(session, ordinal));
        let told = period.told(time(all.start)?, time(all.end - 1)?);
        told.map(|told| {
            let start = first_from(all.clone(), told.start, time)?;
            Ok(start..first_from(start..all.end, told.end, time)?)
        })
        .collect()
    }

    fn set_rarity(&mut self, sessions: &[TermHolders]) {
        let all = sessions
            .iter()
            .map(|holders| holders.messages as usize)
            .sum();
        // A synonym may be rarer than the word of the question, but it should not be worth more.
        let mut own = vec![f64::INFINITY; self.groups];
        for (at, term) in self.terms.iter_mut().enumerate() {
            let with = sessions.iter().map(|holders| holders.lists[at].len()).sum();
            term.idf = idf(with, all).min(own[term.group]);
            if term.weight == 1.0 {
                own[term.group] = term.idf;
            }
        }
    }

    /// Finds which messages of a session contain which term.
    fn holders(
        &self,
        search: &mut Search<'_>,
        session: SessionId,
        reader: &mut TextReader<'_>,
    ) -> Result<TermHolders, StoreError> {
        let messages = search.extent(session).messages;
        let mut lists = vec![Vec::new(); self.terms.len()];
        for stretch in search.stretches(session)? {
            let to_read = match stretch {
                Stretch::Unindexed(range) => {
                    search.searched.messages_not_indexed += range.len() as u64;
                    range
                }
                Stretch::Indexed(segment) => {
                    let before: Vec<usize> = lists.iter().map(Vec::len).collect();
                    match look_up(search, &segment, reader, &self.terms, &mut lists) {
                        Ok(()) => 0..0,
                        // A damaged index must not hide messages. What it added to the lists before
                        // the damage was found is removed, and the messages are read.
                        Err(StoreError::Damaged(_)) => {
                            for (list, length) in lists.iter_mut().zip(before) {
                                list.truncate(length);
                            }
                            segment.ordinals.start..segment.ordinals.end.min(messages)
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            search.expect(session, &to_read.clone().collect::<Vec<_>>());
            for ordinal in to_read {
                let key = Key::new(session, ordinal);
                let reading = search.with_body(key, |body| reader.read(body.as_str()))?;
                for occurrence in reading.iter().flat_map(|reading| &reading.occurrences) {
                    lists[occurrence.term].push(ordinal);
                }
            }
        }
        for list in &mut lists {
            // Messages stored after the first page are not part of the answer, or later pages would
            // not continue it.
            list.retain(|ordinal| *ordinal < messages);
            list.sort_unstable();
            list.dedup();
        }
        Ok(TermHolders {
            session,
            messages,
            lists,
        })
    }

    fn weigh(&self, holders: TermHolders, in_period: Vec<Range<u32>>) -> SessionWeights {
        let mut groups = vec![Vec::new(); self.groups];
        for (term, list) in self.terms.iter().zip(holders.lists) {
            let weight = term.weight * term.idf;
            if weight == 0.0 {
                continue;
            }
            groups[term.group].extend(list.into_iter().map(|ordinal| (ordinal, weight)));
        }
        for group in &mut groups {
            // If a message contains several terms of a group, the best one counts. Adding them up
            // would favour words with many synonyms.
            group.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
            group.dedup_by_key(|entry| entry.0);
        }
        SessionWeights {
            session: holders.session,
            messages: holders.messages,
            groups,
            in_period,
        }
    }
}

impl SessionWeights {
    /// Returns the best messages that contain a word, are near one that does or are from the period
    /// that the question names, with their scores. Of the latter each gains `from_period`.
    /// Filters are applied, so the result may be short.
    fn best(
        &self,
        search: &Search<'_>,
        weights: &Weights,
        from_period: f64,
    ) -> Result<Vec<(Key, f64)>, StoreError> {
        let mut scores = vec![0f64; self.messages as usize];
        let mut of_group = vec![0f64; self.messages as usize];
        let mut touched = Vec::new();
        // Each group counts once per message: its best weight there or nearby. The scores of the
        // groups are then added up.
        for group in &self.groups {
            for &(ordinal, weight) in group {
                for (step, share) in std::iter::once((0, 1.0)).chain(weights.around) {
                    let at = (i64::from(ordinal) + step) as usize;
                    if let Some(best) = of_group.get_mut(at) {
                        if *best == 0.0 {
                            touched.push(at);
                        }
                        *best = best.max(weight * share);
                    }
                }
            }
            for at in touched.drain(..) {
                scores[at] += std::mem::take(&mut of_group[at]);
            }
        }
        for ordinal in self.in_period.iter().cloned().flatten() {
            scores[ordinal as usize] += from_period;
        }
        let mut ordinals: Vec<u32> = (0..self.messages)
            .filter(|ordinal| scores[*ordinal as usize] > 0.0)
            .collect();
        let by_score = |a: &u32, b: &u32| {
            scores[*b as usize]
                .total_cmp(&scores[*a as usize])
                .then(b.cmp(a))
        };
        ordinals.sort_unstable_by(by_score);
        // The filters read the row of each message, so they are applied in batches until there are
        // enough messages.
        let mut best = Vec::new();
        for some in ordinals.chunks(weights.candidates) {
            let mut some = some.to_vec();
            search.filter(self.session, &mut some)?;
            best.extend(some);
            if best.len() >= weights.candidates {
                break;
            }
        }
        Ok(best
            .into_iter()
            .map(|ordinal| (Key::new(self.session, ordinal), scores[ordinal as usize]))
            .collect())
    }

    /// Counts how often a word of the question is in a message and also in one of the next two, in
    /// excess of chance, and how often it would be if each word occurred in one run of messages.
    fn runs(&self) -> (f64, f64) {
        let (mut seen, mut possible) = (0.0, 0.0);
        for list in &self.groups {
            let follows = |pair: &&[(u32, f64)]| pair[1].0 - pair[0].0 <= 2;
            let followed = list.windows(2).filter(follows).count();
            let rate = list.len() as f64 / f64::from(self.messages.max(1));
            let chance = 1.0 - (1.0 - rate).powi(2);
            let pairs = list.len().saturating_sub(1) as f64;
            seen += followed as f64 - pairs * chance;
            possible += pairs * (1.0 - chance);
        }
        (seen, possible)
    }

    /// Whether a message is from the period that the question names.
    pub(super) fn is_in_period(&self, ordinal: u32) -> bool {
        self.in_period.iter().any(|range| range.contains(&ordinal))
    }

    /// Returns the weight of a group's words in a message, which is 0 if it contains none or does
    /// not exist.
    pub(super) fn weight(&self, group: usize, ordinal: i64) -> f64 {
        let Ok(ordinal) = u32::try_from(ordinal) else {
            return 0.0;
        };
        let list = &self.groups[group];
        list.binary_search_by_key(&ordinal, |entry| entry.0)
            .map_or(0.0, |at| list[at].1)
    }
}

/// Returns the first of the messages that was said at a time or later, or the end of the range.
/// `time` says when a message was said.
fn first_from(
    mut among: Range<u32>,
    at: i64,
    time: impl Fn(u32) -> Result<i64, StoreError>,
) -> Result<u32, StoreError> {
    while !among.is_empty() {
        let middle = among.start + among.len() as u32 / 2;
        match time(middle)? < at {
            true => among.start = middle + 1,
            false => among.end = middle,
        }
    }
    Ok(among.start)
}

/// Appends the messages of a segment that contain each of the terms to the lists.
///
/// # Errors
/// Returns an error if the segment is damaged. Some messages may have been appended by then.
fn look_up(
    search: &Search<'_>,
    segment: &Segment,
    reader: &mut TextReader<'_>,
    terms: &[QuestionTerm],
    lists: &mut [Vec<u32>],
) -> Result<(), StoreError> {
    let mut vocabulary = Vocabulary::read(search.connection, segment)?;
    for (at, (term, out)) in terms.iter().zip(lists).enumerate() {
        if (search.cancelled)() {
            return Err(StoreError::Cancelled);
        }
        let add = |list: List<'_>| list.ordinals(segment.ordinals.start, out);
        match &term.form {
            TermForm::Gram(gram) => vocabulary.for_each_like(gram, |word| word == gram, add)?,
            TermForm::Stem { stem, prefix } => {
                vocabulary.for_each_like(
                    prefix,
                    |word| reader.terms_of(word).contains(&at),
                    add,
                )?;
                // Irregular forms do not begin with the prefix, so they need a look-up of their
                // own.
                for form in lexicon().irregular_forms(stem) {
                    let add = |list: List<'_>| list.ordinals(segment.ordinals.start, out);
                    vocabulary.for_each_like(form, |word| word == *form, add)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coherence_of(groups: &[&[u32]]) -> f64 {
        let weights = |list: &&[u32]| list.iter().map(|ordinal| (*ordinal, 1.0)).collect();
        coherence(&[SessionWeights {
            session: SessionId(1),
            messages: 1_000,
            groups: groups.iter().map(weights).collect(),
            in_period: Vec::new(),
        }])
    }

    #[test]
    fn a_subject_is_a_run_of_messages_with_a_word() {
        let every_100th: Vec<u32> = (0..1_000).step_by(100).collect();
        let in_all: Vec<u32> = (0..1_000).collect();
        let run: Vec<u32> = (300..320).collect();
        assert_eq!(coherence_of(&[]), 0.0);
        assert_eq!(coherence_of(&[&[7]]), 0.0);
        assert_eq!(coherence_of(&[&every_100th]), 0.0);
        assert_eq!(coherence_of(&[&in_all]), 0.0);
        let of_run = coherence_of(&[&run]);
        assert!((0.8..1.0).contains(&of_run), "{of_run}");
        let of_both = coherence_of(&[&run, &every_100th]);
        assert!((0.3..of_run).contains(&of_both), "{of_both}");
        // One pair may be chance.
        assert!(coherence_of(&[&[7, 8]]) < 0.4);
    }
}
