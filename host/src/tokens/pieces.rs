//! Cuts a text into the pieces that byte-pair encoding never crosses, exactly as tiktoken does.
//!
//! tiktoken's own patterns look ahead (`\s+(?!\S)`), which takes a backtracking engine: slow, and it gives
//! up on a million spaces. The patterns here do without, so they run in linear time; the one rule that
//! looked ahead is applied to the match afterwards.

use std::sync::LazyLock;

use regex::Regex;

/// `o200k_base`, its last two alternatives (`\s+(?!\S)|\s+`) made one.
const O200K: &str = concat!(
    r"\A(?:",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"|\s*[\r\n]+",
    r"|\s+",
    r")",
);

/// `cl100k_base`, likewise. Its possessive quantifiers are followed by nothing that they could have given
/// back, so greedy ones match the same.
const CL100K: &str = concat!(
    r"\A(?:",
    r"'(?i:[sdmt]|ll|ve|re)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s+\z",
    r"|\s*[\r\n]",
    r"|\s+",
    r")",
);

static O200K_PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(O200K));
static CL100K_PATTERN: LazyLock<Regex> = LazyLock::new(|| compile(CL100K));

fn compile(pattern: &str) -> Regex {
    match Regex::new(pattern) {
        Ok(pattern) => pattern,
        Err(error) => unreachable!("a constant pattern: {error}"),
    }
}

/// The pieces of a text, in order; together they are the text.
pub(super) struct Pieces<'t> {
    pattern: &'static Regex,
    rest: &'t str,
}

impl<'t> Pieces<'t> {
    pub(super) fn o200k(text: &'t str) -> Self {
        Self {
            pattern: &O200K_PATTERN,
            rest: text,
        }
    }

    pub(super) fn cl100k(text: &'t str) -> Self {
        Self {
            pattern: &CL100K_PATTERN,
            rest: text,
        }
    }
}

impl<'t> Iterator for Pieces<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let mut end = self
            .pattern
            .find(self.rest)
            .map_or(self.rest.len(), |found| found.end());
        // `\s+(?!\S)`: white space before a word leaves its last character to the word. Only the last
        // alternative matches something that ends in white space other than a line end.
        if end < self.rest.len() {
            let piece = &self.rest[..end];
            if let Some(last) = piece.chars().next_back()
                && last.is_whitespace()
                && !matches!(last, '\r' | '\n')
                && last.len_utf8() < end
            {
                end -= last.len_utf8();
            }
        }
        let (piece, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(piece)
    }
}
