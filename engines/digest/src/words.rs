//! Finds any of many words in a text, in one pass.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// A set of words, matched ignoring ASCII case.
pub(crate) struct Words(Option<AhoCorasick>);

impl Words {
    pub(crate) fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let finder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(words);
        // It only fails for gigabytes of words.
        Self(finder.ok())
    }

    /// The first word at or after byte `from`: which one, and its bytes.
    pub(crate) fn find(&self, text: &str, from: usize) -> Option<(usize, Range<usize>)> {
        let found = self.0.as_ref()?.find(Input::new(text).range(from..))?;
        Some((found.pattern().as_usize(), found.range()))
    }

    pub(crate) fn are_in(&self, text: &str) -> bool {
        self.find(text, 0).is_some()
    }
}
