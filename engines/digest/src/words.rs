use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// A set of words that are found in a text in one pass, ignoring ASCII case. A word is also found
/// inside a longer one, so callers check its borders if that matters.
pub(crate) struct Words(Option<AhoCorasick>);

impl Words {
    pub(crate) fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let finder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(words);
        // Building fails only for gigabytes of words.
        Self(finder.ok())
    }

    /// Returns the first word at or after byte `from`: its index in the set, and its bytes. If
    /// several begin there, the longest one is returned.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(usize, Range<usize>)> {
        let found = self.0.as_ref()?.find(Input::new(text).range(from..))?;
        Some((found.pattern().as_usize(), found.range()))
    }

    pub(crate) fn are_in(&self, text: &str) -> bool {
        self.find(text, 0).is_some()
    }
}
