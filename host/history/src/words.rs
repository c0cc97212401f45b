//! What a word is, for the index and for questions.
//!
//! The index is FTS5 with its tokenizer `unicode61`: a word is a run of letters and digits, without
//! case and accents. Two things are done before a text gets there, by [`indexed`]:
//!
//! - Scripts without spaces are cut into characters, so that a single Chinese character is found. A
//!   question puts them together again as a phrase.
//! - A long run of letters and digits is cut off, because it is data such as base64, which would
//!   fill the index and which nobody searches for.
//!
//! [`matches`] finds the words of a question in a text, for the snippet.

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The number of bytes by which a word is indexed. A SHA-256 hash in hexadecimal is just as long,
/// so it is found as a whole.
const MAX_WORD: usize = 64;

/// Whether words of the script are written without spaces, as in Thai, Khmer, Burmese, Chinese and
/// Japanese. Korean is included, since its words take endings.
fn is_gram(c: char) -> bool {
    // U+30FB, the dot between foreign words in Japanese, is left out: it separates words.
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1100..=0x11ff | 0x1780..=0x17ff
        | 0x3005..=0x3007 | 0x3040..=0x30fa | 0x30fc..=0x31ff
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xa960..=0xa97f | 0xac00..=0xd7ff
        | 0xf900..=0xfaff | 0xff66..=0xffdc | 0x20000..=0x323af)
}

/// Returns a text as it is given to the index. Most texts are returned as they are.
pub(crate) fn indexed(text: &str) -> Cow<'_, str> {
    // Most texts are plain ASCII without long runs. This pass saves their copy.
    let mut run = 0;
    let is_plain = text.bytes().all(|byte| {
        run = if byte.is_ascii_alphanumeric() {
            run + 1
        } else {
            0
        };
        byte.is_ascii() && run <= MAX_WORD
    });
    if is_plain {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + text.len() / 2);
    let mut word = 0;
    for c in text.chars() {
        if is_gram(c) {
            out.push(' ');
            out.push(c);
            out.push(' ');
            word = 0;
        } else if c.is_alphanumeric() {
            word += c.len_utf8();
            if word <= MAX_WORD {
                out.push(c);
            }
        } else {
            // An accent that follows its letter is part of the word. If it ended the word, long
            // runs with accents would not be cut off.
            if !is_combining_mark(c) {
                word = 0;
            }
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A part of a question: words that have to follow each other. One word is the usual case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Term {
    /// The folded words.
    words: Vec<String>,
    /// Whether all words that begin with the last one match, too, as in `conf*`.
    is_prefix: bool,
}

impl Term {
    /// The term in the language of FTS5.
    pub(crate) fn fts(&self) -> String {
        let star = if self.is_prefix { "*" } else { "" };
        // The words hold letters and digits only, so there is nothing to escape.
        format!("\"{}\"{star}", self.words.join(" "))
    }
}

/// Splits a question into terms. Words in quotes and words that only punctuation separates, such as
/// `src/main.rs`, are one term each. A `*` after a word matches every word that begins with it. If
/// a quote is not closed, it goes to the end of the question.
pub(crate) fn terms(question: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    for (at, part) in question.split('"').enumerate() {
        // Every second part is in quotes.
        let pieces: Vec<&str> = match at % 2 {
            1 => vec![part],
            _ => part.split_whitespace().collect(),
        };
        for piece in pieces {
            let words: Vec<String> = words(piece).map(|word| word.1).collect();
            if !words.is_empty() {
                terms.push(Term {
                    words,
                    is_prefix: piece.ends_with('*'),
                });
            }
        }
    }
    terms
}

/// The words of a text with their places in bytes, folded as the index folds them. If a word is
/// longer than the index keeps, it is compared by its beginning, and its place is the whole word.
fn words(text: &str) -> impl Iterator<Item = (Range<usize>, String)> {
    let mut chars = text.char_indices().peekable();
    std::iter::from_fn(move || {
        loop {
            let (start, first) = chars.next()?;
            let mut end = start + first.len_utf8();
            if is_gram(first) {
                return Some((start..end, folded(&text[start..end])));
            }
            if !first.is_alphanumeric() {
                continue;
            }
            while let Some((at, c)) = chars.peek().copied() {
                if is_gram(c) || !(c.is_alphanumeric() || is_combining_mark(c)) {
                    break;
                }
                end = at + c.len_utf8();
                chars.next();
            }
            let cut = text[start..end].floor_char_boundary(MAX_WORD);
            return Some((start..end, folded(&text[start..start + cut])));
        }
    })
}

/// A word without case and accents, as the tokenizer of the index makes it. If the two differed, a
/// message would be found, and its snippet would not show why.
fn folded(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    let plain = word.nfd().filter(|c| !is_combining_mark(*c));
    plain.flat_map(char::to_lowercase).nfc().collect()
}

/// The most matches that [`matches`] returns. A snippet shows a few, and the output of a tool may
/// have a word a million times.
const MAX_MATCHES: usize = 2_000;

/// Finds the terms in a text. Returns the place of each match in bytes and the index of its term,
/// in the order of the text. Matches may overlap if a word belongs to two terms.
pub(crate) fn matches(text: &str, terms: &[Term]) -> Vec<(Range<usize>, usize)> {
    let mut found = Vec::new();
    let longest = terms.iter().map(|term| term.words.len()).max().unwrap_or(0);
    let mut recent: Vec<(Range<usize>, String)> = Vec::new();
    for word in words(text) {
        recent.push(word);
        if recent.len() > longest {
            recent.remove(0);
        }
        for (at, term) in terms.iter().enumerate() {
            let Some(start) = recent.len().checked_sub(term.words.len()) else {
                continue;
            };
            let tail = &recent[start..];
            let last = term.words.len() - 1;
            let is_match = tail
                .iter()
                .zip(&term.words)
                .enumerate()
                .all(|(n, (had, want))| match term.is_prefix && n == last {
                    true => had.1.starts_with(want.as_str()),
                    false => had.1 == *want,
                });
            if let (true, Some(first), Some(last)) = (is_match, tail.first(), tail.last()) {
                found.push((first.0.start..last.0.end, at));
            }
        }
        if found.len() >= MAX_MATCHES {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, question: &str) -> Vec<String> {
        let terms = terms(question);
        let places = matches(text, &terms);
        places
            .into_iter()
            .map(|(at, _)| text[at].to_owned())
            .collect()
    }

    #[test]
    fn words_match_whole_without_case_and_accents() {
        assert_eq!(
            found("Das Café, cafe\u{301} und CAFES", "cafe"),
            ["Café", "cafe\u{301}"]
        );
        assert_eq!(found("config configure", "conf*"), ["config", "configure"]);
        assert_eq!(found("see src/main.rs:12", "src/main.rs"), ["src/main.rs"]);
        assert_eq!(found("a b c a c", "\"a c\""), ["a c"]);
    }

    #[test]
    fn one_character_of_a_script_without_spaces_is_a_word() {
        assert_eq!(found("修复数据库错误", "数据库"), ["数据库"]);
        assert_eq!(found("修复数据库错误", "错"), ["错"]);
        assert_eq!(indexed("x数据y"), "x 数  据 y");
    }

    #[test]
    fn data_is_indexed_by_its_beginning() {
        let data = "A".repeat(1_000);
        assert_eq!(indexed(&data), "A".repeat(MAX_WORD));
        assert_eq!(found(&data, &data).join(" "), data);
    }
}
