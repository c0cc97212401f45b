//! The second round of the ranking: the scores of the messages that were read.
//!
//! The core of a score is BM25 over the words of the question. A word may also count if it occurs
//! in a neighbouring message, with less weight. The other signs are added: who speaks, what the
//! text contains, its length, its time, and its similarity in meaning. Since all weights are
//! log-odds or on that scale, a sum is the right way to combine them.
//!
//! [`Question::score`] is the entry point. [`Weights`] explains each sign.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::read::{Occurrence, Reading};
use super::retrieve::{SessionWeights, coherence, idf, period_bonus};
use super::speaker::Participant;
use super::{Question, Weights};
use crate::error::StoreError;
use crate::search::page::Found;
use crate::search::run::Search;
use crate::store::{Key, MessageRow, row_in};
use crate::tool_names::is_own;

impl Question<'_> {
    /// Returns the size of a text among others, in words. A long text counts as the passage by
    /// which it is ranked.
    pub(super) fn size(&self, reading: &Reading) -> usize {
        reading.words.min(self.weights.passage)
    }

    /// Returns the messages with their scores. The score of a passage that a better message already
    /// contains word for word is lowered.
    pub(super) fn score(
        &self,
        search: &Search<'_>,
        readings: &[(Key, Reading)],
        weighed: &[SessionWeights],
        participants: &[Participant],
    ) -> Result<Vec<Found>, StoreError> {
        let weights = &self.weights;
        let wanted_weight = wanted_weight(readings).min(weights.wanted);
        let from_period = period_bonus(weighed, weights);
        let asks: FxHashMap<Key, bool> = readings
            .iter()
            .map(|(key, reading)| (*key, reading.asks))
            .collect();
        // A long text contains many words. It lends its neighbours only as much as one of its
        // passages would.
        let lent: FxHashMap<Key, f64> = (readings.iter())
            .map(|(key, reading)| {
                (
                    *key,
                    self.size(reading) as f64 / reading.words.max(1) as f64,
                )
            })
            .collect();
        let told: FxHashMap<Key, u64> = readings
            .iter()
            .map(|(key, reading)| (*key, reading.told))
            .collect();
        let mut ranked = Vec::with_capacity(readings.len());
        let mut order_at: FxHashMap<Key, i64> = FxHashMap::default();
        for (key, reading) in readings {
            let session = key.session();
            let Some(weighed) = weighed.iter().find(|weighed| weighed.session == session) else {
                continue;
            };
            // A message near a match may be the result of an earlier search. It repeats the words of
            // the question without answering it.
            let is_of_search = |row: &MessageRow| row.tool.as_deref().is_some_and(is_own);
            let Some(row) = row_in(search.connection, *key)?.filter(|row| !is_of_search(row))
            else {
                continue;
            };
            // The keys of a session are consecutive, so one less is the message before.
            let answers = asks.get(&Key(key.0 - 1)).copied().unwrap_or(false);
            let mut score = self.by_words(*key, reading, weighed, answers, &lent);
            let (least, most) = weights.size;
            score += (self.size(reading) as f64 / self.mean_size)
                .clamp(least, most)
                .ln();
            let before = weights.alike_before * self.alike.of(Key(key.0 - 1));
            score += weights.alike * (self.alike.of(*key) + before);
            score += weights.rarity * reading.rarity;
            if reading.has_wanted {
                score += wanted_weight;
            }
            if reading.asks {
                score -= weights.asking;
            }
            // A long text has many passages, so its best one may be good by chance.
            let passages = (reading.words as f64 / weights.passage as f64).max(1.0);
            score -= weights.chances * passages.ln();
            let speaker = reading.speaker.as_deref();
            let is_asked_about = self.role == Some(row.role.as_str())
                || participants
                    .iter()
                    .any(|participant| participant.said(&row, speaker));
            if is_asked_about {
                score += weights.speaker;
                if reading.says_i {
                    score += weights.telling;
                }
            }
            if weighed.is_in_period(key.ordinal()) {
                score += from_period;
            }
            order_at.insert(*key, row.order_at);
            ranked.push((*key, score));
        }
        add_neighbours(&mut ranked, weights.beside, coherence(weighed));
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        // A passage that repeats a better one word for word tells nothing new.
        let mut known = FxHashSet::default();
        let found = ranked.into_iter().map(|(key, score)| {
            let repeats = told.get(&key).is_some_and(|told| !known.insert(*told));
            let score = score - if repeats { weights.repeated } else { 0.0 };
            Found::message(key, order_at.get(&key).copied().unwrap_or(0), score)
        });
        Ok(found.collect())
    }

    /// Returns the value of the question's words in a message. Each word counts in the message
    /// itself or in a neighbour, whichever is more. `answers` says whether the message before it
    /// asks a question.
    fn by_words(
        &self,
        key: Key,
        reading: &Reading,
        weighed: &SessionWeights,
        answers: bool,
        lent: &FxHashMap<Key, f64>,
    ) -> f64 {
        let ordinal = i64::from(key.ordinal());
        let of_group = |(group, own): (usize, f64)| {
            self.weights
                .around
                .iter()
                .map(|(step, share)| {
                    let share = match step {
                        1 if answers => self.weights.answer,
                        2 if answers => self.weights.referred,
                        _ => *share,
                    };
                    let lent = lent.get(&Key(key.0 - step)).copied().unwrap_or(1.0);
                    share * lent * weighed.weight(group, ordinal - step)
                })
                .fold(own, f64::max)
        };
        self.by_group(reading)
            .into_iter()
            .enumerate()
            .map(of_group)
            .sum()
    }

    /// Returns how well a text could answer by itself. It is 0 if the text shares no word with the
    /// question.
    pub(in crate::search) fn score_text(&self, text: &str) -> f64 {
        self.by_group(&self.reader().read(text)).iter().sum()
    }

    /// Returns the value of each word of the question in a text, or in the best passage of a long
    /// one.
    fn by_group(&self, reading: &Reading) -> Vec<f64> {
        let occurrences = &reading.occurrences[reading.passage.clone()];
        self.bm25(occurrences, self.size(reading), self.mean_size)
    }

    /// Returns which of the occurrences are in the best passage of a text with this many words. In
    /// a short text it is all of them.
    pub(super) fn passage(&self, occurrences: &[Occurrence], words: usize) -> Range<usize> {
        let Weights { passage, step, .. } = self.weights;
        if words <= passage {
            return 0..occurrences.len();
        }
        let (mut best, mut best_sum) = (0..0, 0.0);
        let mut next = 0;
        for (at, first) in occurrences.iter().enumerate() {
            if first.word < next {
                continue;
            }
            next = first.word + step;
            let length =
                occurrences[at..].partition_point(|other| other.word < first.word + passage);
            let range = at..at + length;
            let groups = self.bm25(&occurrences[range.clone()], passage, passage as f64);
            let sum = groups.iter().sum::<f64>();
            if sum > best_sum {
                (best, best_sum) = (range, sum);
            }
        }
        best
    }

    /// Computes BM25 for each group of terms. Of the terms of a group only the best counts, and
    /// words in questions count less.
    fn bm25(&self, occurrences: &[Occurrence], words: usize, mean: f64) -> Vec<f64> {
        let mut counts = vec![0f64; self.terms.len()];
        for occurrence in occurrences {
            counts[occurrence.term] += if occurrence.asked {
                self.weights.asked
            } else {
                1.0
            };
        }
        let Weights { k1, b, .. } = self.weights;
        let length = 1.0 - b + b * words as f64 / mean;
        let mut groups = vec![0f64; self.groups];
        for (term, count) in self.terms.iter().zip(&counts) {
            let score = term.idf * term.weight * count * (k1 + 1.0) / (count + k1 * length);
            let best = &mut groups[term.group];
            *best = best.max(score);
        }
        groups
    }
}

/// Adds to each score a share of the best score beside it, as far as that is above the mean.
fn add_neighbours(ranked: &mut [(Key, f64)], beside: [f64; 2], coherence: f64) {
    let alone: FxHashMap<Key, f64> = ranked.iter().copied().collect();
    let mean = alone.values().sum::<f64>() / alone.len().max(1) as f64;
    for (key, score) in ranked {
        let near = (1..).zip(beside).flat_map(|(step, share)| {
            let neighbours = [Key(key.0 - step), Key(key.0 + step)];
            let scores = neighbours.map(|neighbour| alone.get(&neighbour));
            let above = move |score: &f64| share * (score - mean);
            scores.into_iter().flatten().map(above)
        });
        *score += coherence * near.fold(0.0, f64::max);
    }
}

/// Returns the bonus for containing what is asked for. It is higher if fewer of the messages that
/// were read contain such a thing.
fn wanted_weight(readings: &[(Key, Reading)]) -> f64 {
    let with = readings.iter().filter(|(_, reading)| reading.has_wanted);
    idf(with.count(), readings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_good_message_gain() {
        let before = [(10, 1.0), (11, 9.0), (12, 1.0), (13, 1.0), (20, 1.0)];
        let gains = |coherence| {
            let mut ranked: Vec<(Key, f64)> = before.map(|(key, score)| (Key(key), score)).into();
            add_neighbours(&mut ranked, [1.0, 0.5], coherence);
            let gain = |(after, before): (&(Key, f64), &(i64, f64))| after.1 - before.1;
            ranked.iter().zip(&before).map(gain).collect::<Vec<f64>>()
        };
        let [before_it, best, after_it, later, far] = gains(1.0)[..] else {
            panic!("each message has a gain");
        };
        assert!(before_it > 0.0 && before_it == after_it && later == before_it / 2.0);
        assert!(best == 0.0 && far == 0.0);
        assert!(gains(0.0).iter().all(|gain| *gain == 0.0));
    }
}
