//! Sentences that end an earlier rule: a permission, a release, or the withdrawal of a rule.
//!
//! "You can push to main now" is no rule by itself, and much of what users write looks like it. So
//! such a sentence counts only against a rule that is known, and only if both are about the same.

use super::directive;
use super::words::{WORDS, lowered, spaced};

/// How a sentence ends an earlier rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It allows what a rule forbids.
    Permits,
    /// It says that something need not be done.
    Releases,
    /// It names a rule and withdraws it.
    Withdraws,
    /// It says that something is no longer forbidden.
    Lifts,
    /// It says what to do in place of what was demanded.
    Switches,
}

impl Ending {
    /// Returns how this sentence ends a rule, if it can.
    pub(super) fn of(sentence: &str) -> Option<Self> {
        let lower = lowered(sentence);
        if lower.trim_end().ends_with(['?', '？']) {
            return None;
        }
        if lower.chars().any(directive::is_cjk) {
            let has = |name: &str| WORDS.is_in(name, &lower);
            let is_negative = directive::is_negative(sentence);
            let end = lower.trim_end_matches(|c: char| !c.is_alphanumeric());
            let is_order = WORDS.ends("orders cjk", end) || lower.contains('请');
            let forbids = lower.contains("不可以") || lower.contains("不允许");
            let withdraws = has("withdraws cjk") && !has("no withdraws cjk");
            return Self::first([
                (withdraws && has("rules cjk"), Self::Withdraws),
                (has("lifts cjk"), Self::Lifts),
                (has("releases cjk"), Self::Releases),
                (
                    has("permits cjk") && has("new cjk") && !forbids,
                    Self::Permits,
                ),
                (
                    has("reverses cjk") && is_order && !is_negative,
                    Self::Permits,
                ),
                (has("switches cjk") && !is_negative, Self::Switches),
            ]);
        }
        let flat = spaced(&lower.replace('-', " "));
        let has = |name: &str| WORDS.has(name, &flat);
        // "You can push without asking" forbids nothing.
        let end = WORDS.places("without", &flat).min();
        let is_negative = directive::is_negative(&flat[..end.unwrap_or(flat.len())]);
        let permits =
            has("permits") || has("states") && has("new") || has("reverses") && !has("complaints");
        let releases = has("releases") || has("needs") && has("no more");
        let withdraws = has("withdraws") && !has("no withdraws");
        Self::first([
            (withdraws && has("rules"), Self::Withdraws),
            (has("lifts"), Self::Lifts),
            (releases, Self::Releases),
            (permits && !is_negative && !has("no permits"), Self::Permits),
        ])
    }

    fn first<const N: usize>(kinds: [(bool, Self); N]) -> Option<Self> {
        let mut kinds = kinds.into_iter();
        kinds.find_map(|(is_one, kind)| is_one.then_some(kind))
    }
}
