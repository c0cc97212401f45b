//! Corrects token counts by the usage that a provider reports.
//!
//! A count can differ from the provider's: the encoding of a model may not be public, and
//! providers add text of their own around messages. After each answer, the provider reports the
//! tokens of the prompt. [`Correction::learn`] compares this number with the count, and
//! [`Correction::apply`] scales later counts.
//!
//! The correction is robust, because reports can be wrong or about something else. It uses the
//! median of the last pairs, ignores implausible ones, and changes nothing until there are
//! enough.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The number of pairs that are remembered. It is large enough to be steady, and small enough
/// to follow a change of tools or language.
const REMEMBERED: usize = 15;

/// The number of pairs that are needed before anything is corrected.
const NEEDED: usize = 3;

/// The minimum count for a pair. In a smaller prompt, fixed overhead outweighs the text.
const SMALLEST_COUNT: u64 = 200;

/// The plausible ratios. If a ratio is outside, the report is not about the same prompt, for
/// example because the provider left out the cached part.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.5..=4.0;

/// The correction for one model, learned from reported usage: the ratio of reported tokens to
/// counted tokens.
///
/// It is the median of the last 15 ratios, so that outliers do not move it, limited to 0.5 to
/// 2.0. Until there are three ratios it is 1.0. Keep one correction for each model. It
/// serialises to a list of ratios.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Correction {
    ratios: VecDeque<f64>,
}

impl Correction {
    /// Learns from one prompt. `counted` are its tokens as counted, without correction, and
    /// `reported` those that the provider reported, including cached parts. The reasoning of
    /// the answer belongs to neither, because it is not in the prompt.
    ///
    /// Returns whether the pair was used. It is not if the prompt is small or the ratio is
    /// implausible.
    pub fn learn(&mut self, counted: u64, reported: u64) -> bool {
        // Four decimal places are precise enough and short to store.
        let ratio = (reported as f64 / counted.max(1) as f64 * 1e4).round() / 1e4;
        if counted < SMALLEST_COUNT || !PLAUSIBLE.contains(&ratio) {
            return false;
        }
        self.ratios.push_back(ratio);
        // A stored list may be longer than this version keeps, so one removal may not be
        // enough.
        while self.ratios.len() > REMEMBERED {
            self.ratios.pop_front();
        }
        true
    }

    /// Learns from a prompt that the provider rejected. The count that it states then is
    /// reliable, so this one pair replaces all earlier ones. If the pair is implausible,
    /// nothing changes.
    pub fn learn_exactly(&mut self, counted: u64, reported: u64) {
        let mut exact = Self::default();
        while exact.ratios.len() < NEEDED && exact.learn(counted, reported) {}
        // Without this, the median would still be that of earlier reports.
        if !exact.is_empty() {
            *self = exact;
        }
    }

    /// Whether no pair was learned yet.
    pub fn is_empty(&self) -> bool {
        self.ratios.is_empty()
    }

    /// The factor for counts, from 0.5 to 2.0. It is 1.0 while there are too few pairs.
    pub fn ratio(&self) -> f64 {
        // A stored correction may hold any values, so each one is checked again.
        let mut ratios: Vec<f64> = self
            .ratios
            .iter()
            .copied()
            .filter(|ratio| PLAUSIBLE.contains(ratio))
            .collect();
        if ratios.len() < NEEDED {
            return 1.0;
        }
        let middle = ratios.len() / 2;
        let (_, median, _) = ratios.select_nth_unstable_by(middle, f64::total_cmp);
        median.clamp(0.5, 2.0)
    }

    /// Returns a count, corrected and rounded up, but never less than the count. A report is
    /// about a whole prompt. If the provider counts the calls in it for less, it need not count
    /// the text that comes next for less.
    pub fn apply(&self, counted: u64) -> u64 {
        let ratio = self.ratio();
        if ratio <= 1.0 {
            return counted;
        }
        (counted as f64 * ratio).ceil() as u64
    }
}

#[cfg(test)]
mod tests;
