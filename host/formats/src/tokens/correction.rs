//! Corrects counts by the usage that a provider reports.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How many pairs are remembered: enough to be steady, few enough to follow a change of tools or language.
const REMEMBERED: usize = 15;

/// How many pairs are needed before anything is corrected.
const NEEDED: usize = 3;

/// A smaller count says little: fixed overhead outweighs the text.
const SMALLEST_COUNT: u64 = 200;

/// Further apart than this, a pair is not about the same prompt (a provider that leaves out the cached
/// part, a count of something else).
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.5..=4.0;

/// The correction for one model: reported tokens over counted tokens, learned from reported usage.
///
/// It is the median of the last 15 pairs, so that outliers do not move it, between 0.5 and 2.0, and 1.0
/// until there are three. Keep one for each model; it serialises to a list of ratios.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Correction {
    ratios: VecDeque<f64>,
}

impl Correction {
    /// Learns from one prompt: its tokens as counted (uncorrected) and as the provider reported them, including cached
    /// parts. The answer's reasoning belongs to neither, because it is not in the prompt.
    ///
    /// Returns whether the pair was used. A pair without information is not.
    pub fn learn(&mut self, counted: u64, reported: u64) -> bool {
        // Four decimal places are precise enough and short to store.
        let ratio = (reported as f64 / counted.max(1) as f64 * 1e4).round() / 1e4;
        if counted < SMALLEST_COUNT || !PLAUSIBLE.contains(&ratio) {
            return false;
        }
        self.ratios.push_back(ratio);
        while self.ratios.len() > REMEMBERED {
            self.ratios.pop_front();
        }
        true
    }

    /// Learns from a prompt that the provider refused. Its count is reliable, so this one pair is enough.
    pub fn learn_exactly(&mut self, counted: u64, reported: u64) {
        let mut exact = Self::default();
        while exact.ratios.len() < NEEDED && exact.learn(counted, reported) {}
        // Without this, the median would still be that of earlier reports.
        if !exact.is_empty() {
            *self = exact;
        }
    }

    /// Whether nothing was learned yet.
    pub fn is_empty(&self) -> bool {
        self.ratios.is_empty()
    }

    /// The factor for a count, 0.5 to 2.0; 1.0 while there are too few pairs.
    pub fn ratio(&self) -> f64 {
        // Values read from a file may be anything.
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

    /// A count, corrected and rounded up, but never below the count. A report is about a whole prompt. A provider that
    /// counts the calls in it for less need not count the text that comes next for less.
    pub fn apply(&self, counted: u64) -> u64 {
        let ratio = self.ratio();
        if ratio <= 1.0 {
            return counted;
        }
        (counted as f64 * ratio).ceil() as u64
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::Correction;
    use proptest::prelude::*;

    #[test]
    fn learns_a_tokenizer_that_disagrees() {
        let mut correction = Correction::default();
        correction.learn(10_000, 13_000);
        correction.learn(10_000, 13_000);
        assert_eq!(correction.apply(1_000), 1_000, "two pairs are too few");
        correction.learn(10_000, 13_000);
        assert_eq!(correction.apply(1_000), 1_300);
    }

    #[test]
    fn outliers_and_nonsense_do_not_move_it() {
        let mut correction = Correction::default();
        for _ in 0..5 {
            correction.learn(50_000, 60_000);
        }
        correction.learn(50_000, 190_000);
        correction.learn(50_000, 0);
        correction.learn(0, 50_000);
        correction.learn(50_000, 20);
        correction.learn(10, 39);
        assert_eq!(correction.ratio(), 1.2);
    }

    #[test]
    fn follows_a_change() {
        let mut correction = Correction::default();
        for _ in 0..100 {
            correction.learn(50_000, 60_000);
        }
        for _ in 0..8 {
            correction.learn(50_000, 45_000);
        }
        assert_eq!(correction.ratio(), 0.9);
    }

    #[test]
    fn survives_a_restart_and_a_damaged_file() {
        let mut correction = Correction::default();
        for reported in [11_000, 12_000, 13_000, 14_000] {
            correction.learn(10_000, reported);
        }
        let json = serde_json::to_string(&correction).unwrap();
        assert_eq!(
            serde_json::from_str::<Correction>(&json).unwrap(),
            correction
        );
        let damaged: Correction = serde_json::from_str("[1e300, -5, 0, 1.1, 1.1, 1.1]").unwrap();
        assert_eq!(damaged.ratio(), 1.1);
    }

    proptest! {
        #[test]
        fn is_always_bounded(pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40), count in 0u64..1 << 40) {
            let mut correction = Correction::default();
            for (counted, reported) in pairs {
                correction.learn(counted, reported);
            }
            prop_assert!((0.5..=2.0).contains(&correction.ratio()));
            prop_assert!(correction.apply(count) <= 2 * count + 1);
            prop_assert!(correction.apply(count) >= count);
        }
    }
}
