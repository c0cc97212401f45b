//! The second round: scores of the messages that were read.

use super::read::{Occurrence, Reading};
use super::retrieve::{AROUND, Weighed};
use super::speaker::Participant;
use super::{Map, Question};
use crate::error::StoreError;
use crate::search::run::Search;
use crate::store::{Key, row_in};

/// BM25's parameters: how soon repetition saturates, and the influence of length. The values that worked
/// best over many collections (Trotman et al. 2014).
const K1: f64 = 0.9;
const B: f64 = 0.4;

/// The length of a passage: about two sentences. In a long text the words of a question may be far apart by
/// chance, so such a text scores as its best passage (Callan 1994); passages overlap, so that none is cut
/// in two.
const PASSAGE_WORDS: usize = 40;
const PASSAGE_STEP: usize = 10;

/// The weight of a word in a question: in the message that asks, and in the answer to it.
const ASKED_WEIGHT: f64 = 0.4;
const ANSWER_WEIGHT: f64 = 0.8;

/// A question about somebody is answered by that person nineteen times out of twenty, if half of all
/// messages are theirs: ln (0.95 / 0.05).
const SPEAKER_WEIGHT: f64 = 2.94;

/// A message from the period asked for: nine times out of ten, if half of the others are not.
const PERIOD_WEIGHT: f64 = 2.2;

/// The largest bonus for containing what is asked for, however rare: it may be another thing of the kind.
const WANTED_MAX: f64 = 2.0;

/// The prior of a message grows with its size (Kraaij et al. 2002), relative to the mean, between these two limits: a
/// nod tells little, and a page no more than a passage.
const LENGTH_RANGE: (f64, f64) = (0.2, 3.0);

/// The size of a text among others, in words: of a long one that of the passage by which it is ranked.
pub(super) fn size(reading: &Reading) -> usize {
    reading.words.min(PASSAGE_WORDS)
}

impl Question {
    /// The messages by score, best first.
    pub(super) fn score(
        &self,
        search: &Search<'_>,
        readings: &[(Key, Reading)],
        weighed: &[Weighed],
        participants: &[Participant],
    ) -> Result<Vec<(Key, f64)>, StoreError> {
        let wanted_weight = wanted_weight(readings);
        let asks: Map<Key, bool> = readings
            .iter()
            .map(|(key, reading)| (*key, reading.asks))
            .collect();
        // A long text lends its neighbours what one of its passages would.
        let lent: Map<Key, f64> = (readings.iter())
            .map(|(key, reading)| (*key, size(reading) as f64 / reading.words.max(1) as f64))
            .collect();
        let mut ranked = Vec::with_capacity(readings.len());
        for (key, reading) in readings {
            let session = key.session();
            let Some(weighed) = weighed.iter().find(|weighed| weighed.session == session) else {
                continue;
            };
            let answers = asks.get(&Key(key.0 - 1)).copied().unwrap_or(false);
            let mut score = self.by_words(*key, reading, weighed, answers, &lent);
            let (least, most) = LENGTH_RANGE;
            score += (size(reading) as f64 / self.mean_size)
                .clamp(least, most)
                .ln();
            // Nearly every long text has a number or a name somewhere.
            if reading.has_wanted && reading.words <= PASSAGE_WORDS {
                score += wanted_weight;
            }
            if let Some(row) = row_in(search.connection, *key)? {
                let speaker = reading.speaker.as_deref();
                if participants
                    .iter()
                    .any(|participant| participant.said(&row, speaker))
                {
                    score += SPEAKER_WEIGHT;
                }
                if let (Some(period), Some(at)) = (self.period, row.at)
                    && period.is_told_at(at)
                {
                    score += PERIOD_WEIGHT;
                }
            }
            ranked.push((*key, score));
        }
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
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
            AROUND
                .iter()
                .map(|(step, share)| {
                    let is_answer = answers && *step == 1;
                    let share = if is_answer { ANSWER_WEIGHT } else { *share };
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
        let all = &reading.occurrences;
        if reading.words <= PASSAGE_WORDS {
            return self.bm25(all, reading.words);
        }
        let mut best = (0.0, vec![0.0; self.groups]);
        let mut next = 0;
        for (at, first) in all.iter().enumerate() {
            if first.word < next {
                continue;
            }
            next = first.word + PASSAGE_STEP;
            let length = all[at..].partition_point(|other| other.word < first.word + PASSAGE_WORDS);
            let groups = self.bm25(&all[at..at + length], PASSAGE_WORDS);
            let sum = groups.iter().sum::<f64>();
            if sum > best.0 {
                best = (sum, groups);
            }
        }
        best.1
    }

    /// BM25 of each group of terms.
    fn bm25(&self, occurrences: &[Occurrence], words: usize) -> Vec<f64> {
        let mut counts = vec![0f64; self.terms.len()];
        for occurrence in occurrences {
            counts[occurrence.term] += if occurrence.asked { ASKED_WEIGHT } else { 1.0 };
        }
        let length = 1.0 - B + B * words as f64 / self.mean_size;
        let mut groups = vec![0f64; self.groups];
        for (term, count) in self.terms.iter().zip(&counts) {
            let score = term.idf * term.weight * count * (K1 + 1.0) / (count + K1 * length);
            let best = &mut groups[term.group];
            *best = best.max(score);
        }
        groups
    }
}

/// The bonus for containing what is asked for: higher the rarer it is among the messages read.
fn wanted_weight(readings: &[(Key, Reading)]) -> f64 {
    let with = readings.iter().filter(|(_, reading)| reading.has_wanted);
    super::retrieve::idf(with.count(), readings.len()).min(WANTED_MAX)
}
