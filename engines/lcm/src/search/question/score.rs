//! The second round: scores of the messages that were read.

use std::collections::HashSet;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use super::read::{Occurrence, Reading};
use super::retrieve::Weighed;
use super::speaker::Participant;
use super::{Map, Question, Weights};
use crate::error::StoreError;
use crate::search::run::Search;
use crate::store::{Key, row_in};

type Set<T> = HashSet<T, FxBuildHasher>;

impl Question<'_> {
    /// The size of a text among others, in words: of a long one that of the passage by which it is ranked.
    pub(super) fn size(&self, reading: &Reading) -> usize {
        reading.words.min(self.weights.passage)
    }

    /// The messages by score, best first.
    pub(super) fn score(
        &self,
        search: &Search<'_>,
        readings: &[(Key, Reading)],
        weighed: &[Weighed],
        participants: &[Participant],
    ) -> Result<Vec<(Key, f64)>, StoreError> {
        let weights = &self.weights;
        let wanted_weight = wanted_weight(readings).min(weights.wanted);
        let asks: Map<Key, bool> = readings
            .iter()
            .map(|(key, reading)| (*key, reading.asks))
            .collect();
        // A long text lends its neighbours what one of its passages would.
        let lent: Map<Key, f64> = (readings.iter())
            .map(|(key, reading)| {
                (
                    *key,
                    self.size(reading) as f64 / reading.words.max(1) as f64,
                )
            })
            .collect();
        let told: Map<Key, u64> = readings
            .iter()
            .map(|(key, reading)| (*key, reading.told))
            .collect();
        let order = |a: &(Key, f64), b: &(Key, f64)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
        let mut ranked = Vec::with_capacity(readings.len());
        for (key, reading) in readings {
            let session = key.session();
            let Some(weighed) = weighed.iter().find(|weighed| weighed.session == session) else {
                continue;
            };
            let answers = asks.get(&Key(key.0 - 1)).copied().unwrap_or(false);
            let mut score = self.by_words(*key, reading, weighed, answers, &lent);
            let (least, most) = weights.size;
            score += (self.size(reading) as f64 / self.mean_size)
                .clamp(least, most)
                .ln();
            score += weights.alike * self.alike.of(*key);
            if reading.has_wanted {
                score += wanted_weight;
            }
            let passages = (reading.words as f64 / weights.passage as f64).max(1.0);
            score -= weights.chances * passages.ln();
            if let Some(row) = row_in(search.connection, *key)? {
                let speaker = reading.speaker.as_deref();
                if participants
                    .iter()
                    .any(|participant| participant.said(&row, speaker))
                {
                    score += weights.speaker;
                }
                if self.is_own && row.role == "user" {
                    score += weights.own;
                }
                if let (Some(period), Some(at)) = (self.period, row.at)
                    && period.is_told_at(at)
                {
                    score += weights.period;
                }
            }
            ranked.push((*key, score));
        }
        ranked.sort_by(order);
        // The same once more tells nothing new.
        let mut known = Set::default();
        for (key, score) in &mut ranked {
            if told.get(key).is_some_and(|told| !known.insert(*told)) {
                *score -= weights.repeated;
            }
        }
        ranked.sort_by(order);
        Ok(ranked)
    }

    /// The value of the question's words in a message: each in the message itself, or in a neighbour.
    fn by_words(
        &self,
        key: Key,
        reading: &Reading,
        weighed: &Weighed,
        answers: bool,
        lent: &Map<Key, f64>,
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

    /// How well a text by itself could answer; 0 if it shares no word.
    pub(in crate::search) fn score_text(&self, text: &str) -> f64 {
        self.by_group(&self.reader().read(text)).iter().sum()
    }

    /// The value of each word of the question in a text, or in the best passage of a long one.
    fn by_group(&self, reading: &Reading) -> Vec<f64> {
        let occurrences = &reading.occurrences[reading.passage.clone()];
        self.bm25(occurrences, self.size(reading), self.mean_size)
    }

    /// Which of the occurrences in a text of this many words are in its best passage.
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

    /// BM25 of each group of terms.
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

/// The bonus for containing what is asked for: higher the rarer it is among the messages read.
fn wanted_weight(readings: &[(Key, Reading)]) -> f64 {
    let with = readings.iter().filter(|(_, reading)| reading.has_wanted);
    super::retrieve::idf(with.count(), readings.len())
}
