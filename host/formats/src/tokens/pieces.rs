//! Cuts a text into the pieces that byte-pair encoding never crosses, exactly as tiktoken does.
//!
//! [`Pieces`] is the iterator over the pieces, and [`lines`] cuts a text into parts that no
//! piece crosses, so that each can be counted and cached by itself.
//!
//! tiktoken's own patterns use a lookahead (`\s+(?!\S)`), which requires a backtracking engine.
//! That is slow, and it fails on a million spaces. The patterns here have no lookahead, so they
//! run in linear time. The one rule that needs it is applied to the match afterwards. A piece
//! has only a few bytes, so the overhead of a search matters: the automaton is called directly,
//! with a cache that lives as long as the count.

use std::sync::LazyLock;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};

/// The pattern of `o200k_base`. Its last two alternatives, `\s+(?!\S)|\s+`, are merged into
/// one.
const O200K: &str = concat!(
    r"(?:",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r"|\s*[\r\n]+",
    r"|\s+",
    r")",
);

/// The pattern of `cl100k_base` with the same change. Nothing that follows its possessive
/// quantifiers could match what they would give back, so greedy quantifiers match the same.
const CL100K: &str = concat!(
    r"(?:",
    r"'(?i:[sdmt]|ll|ve|re)",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s+\z",
    r"|\s*[\r\n]",
    r"|\s+",
    r")",
);

/// The automaton for the pieces of `o200k_base`, compiled on first use.
pub(super) static O200K_PATTERN: LazyLock<DFA> = LazyLock::new(|| compile(O200K));
/// The automaton for the pieces of `cl100k_base`, compiled on first use.
pub(super) static CL100K_PATTERN: LazyLock<DFA> = LazyLock::new(|| compile(CL100K));

fn compile(pattern: &str) -> DFA {
    match DFA::new(pattern) {
        Ok(pattern) => pattern,
        Err(error) => unreachable!("a constant pattern: {error}"),
    }
}

/// Cuts a text into parts that no piece crosses, in order. Concatenated, they are the text.
/// They are its lines, except that a line joins the one before it if it begins with white
/// space, or with a slash, which a piece may end in.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes());
    let mut from = 0;
    std::iter::from_fn(move || {
        let begins = |at: usize| {
            let next = text[at..].chars().next();
            next.is_some_and(|next| next != '/' && !next.is_whitespace())
        };
        let end = ends.by_ref().map(|end| end + 1).find(|end| begins(*end));
        let line = &text[from..end.unwrap_or(text.len())];
        from += line.len();
        (!line.is_empty()).then_some(line)
    })
}

/// The pieces of a text in order. Concatenated, they are the text.
pub(super) struct Pieces<'t, 'c> {
    pattern: &'static DFA,
    cache: &'c mut Cache,
    rest: &'t str,
}

impl<'t, 'c> Pieces<'t, 'c> {
    /// Returns the pieces of `text`. The cache must have been created for this pattern.
    pub(super) fn of(text: &'t str, pattern: &'static DFA, cache: &'c mut Cache) -> Self {
        Self {
            pattern,
            cache,
            rest: text,
        }
    }
}

impl<'t> Iterator for Pieces<'t, '_> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        if self.rest.is_empty() {
            return None;
        }
        let input = Input::new(self.rest).anchored(Anchored::Yes);
        // The search only fails if it is told to give up, and some alternative always matches.
        let found = self.pattern.try_search_fwd(self.cache, &input);
        let mut end = match found {
            Ok(Some(found)) => found.offset(),
            _ => self.rest.len(),
        };
        // The rule `\s+(?!\S)`: white space before a word leaves its last character to the
        // word. Only the last alternative can match something that ends in white space other
        // than a line end.
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
