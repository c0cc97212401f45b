//! Cuts a text into the pieces that byte-pair encoding never crosses, exactly as tiktoken does.
//!
//! tiktoken's own patterns look ahead (`\s+(?!\S)`), which takes a backtracking engine: slow, and it gives
//! up on a million spaces. The patterns here do without, so they run in linear time; the one rule that
//! looked ahead is applied to the match afterwards.
//!
//! A piece has a few bytes, so that what a search costs beside its bytes decides: the automaton is asked
//! itself, with a cache that lives as long as the count.

use std::sync::LazyLock;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::{Anchored, Input};

/// `o200k_base`, its last two alternatives (`\s+(?!\S)|\s+`) made one.
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

/// `cl100k_base`, likewise. Its possessive quantifiers are followed by nothing that they could have given
/// back, so greedy ones match the same.
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

/// Cuts as `o200k_base` does.
pub(super) static O200K_PATTERN: LazyLock<DFA> = LazyLock::new(|| compile(O200K));
/// Cuts as `cl100k_base` does.
pub(super) static CL100K_PATTERN: LazyLock<DFA> = LazyLock::new(|| compile(CL100K));

fn compile(pattern: &str) -> DFA {
    match DFA::new(pattern) {
        Ok(pattern) => pattern,
        Err(error) => unreachable!("a constant pattern: {error}"),
    }
}

/// The parts of a text between which no piece lies across, in order; together they are the text. They are its
/// lines, but that a line which begins with white space, or with a slash that a piece may end in, goes with the
/// one before.
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

/// The pieces of a text, in order; together they are the text.
pub(super) struct Pieces<'t, 'c> {
    pattern: &'static DFA,
    cache: &'c mut Cache,
    rest: &'t str,
}

impl<'t, 'c> Pieces<'t, 'c> {
    /// The pieces of `text`; `cache` was made for the pattern.
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
        // It fails only where it is told to give up, and something always matches.
        let found = self.pattern.try_search_fwd(self.cache, &input);
        let mut end = match found {
            Ok(Some(found)) => found.offset(),
            _ => self.rest.len(),
        };
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
