//! The words of a text as an uncased BERT takes them: without case and accents, in pieces of its
//! vocabulary.
//!
//! A BERT knows tens of thousands of word pieces. Frequent words are pieces of their own, and
//! others are put together from several. [`WordPieces::read`] reads the vocabulary, and
//! [`WordPieces::of`] cuts a text by always taking the longest piece that fits. The division into
//! words has to match the one that the model was trained with, including its treatment of control
//! characters and of Chinese text.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::Regex;
use rustc_hash::FxBuildHasher;
use unicode_normalization::char::decompose_canonical;

type Ids = HashMap<Box<str>, u32, FxBuildHasher>;

/// The maximum length in characters of a word that is cut into pieces. A longer one is unknown, as
/// in the reference implementation.
const LONGEST_WORD: usize = 100;

/// The vocabulary of a model. It has separate tables for pieces that begin a word and for those
/// that continue one.
pub(super) struct WordPieces {
    /// The pieces that begin a word, with their ids. A whole frequent word is such a piece.
    beginnings: Ids,
    /// The pieces that continue a word, without the `##` in front, with their ids.
    continuations: Ids,
    /// The id that stands for a word that cannot be put together from pieces.
    pub(super) unknown: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A piece of a word, with the byte range of the whole word in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) id: u32,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether the word is a punctuation mark that may end a sentence, so that a passage can end
    /// there.
    pub(super) is_stop: bool,
}

impl WordPieces {
    /// Reads the vocabulary of a model. The file is a `vocab.txt` with one piece on each line, or a
    /// `tokenizer.json`.
    ///
    /// # Errors
    /// Returns a message for the user if the file is neither, or if it lacks the special pieces of
    /// a BERT.
    pub(super) fn read(file: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(file).map_err(|error| format!("it is not text: {error}"))?;
        let (mut beginnings, mut continuations) = (Ids::default(), Ids::default());
        // In a vocabulary `##` marks a piece that continues a word.
        let mut add = |piece: &str, id: u32| match piece.strip_prefix("##") {
            Some(rest) if !rest.is_empty() => continuations.insert(rest.into(), id),
            _ => beginnings.insert(piece.into(), id),
        };
        if text.trim_start().starts_with('{') {
            let json: serde_json::Value =
                serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
            let listed = json["model"]["vocab"].as_object();
            let listed = listed.ok_or("it has no `model.vocab`")?;
            for (piece, id) in listed {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                add(
                    piece,
                    id.ok_or_else(|| format!("`{piece}` has no number in it"))?,
                );
            }
        } else {
            for (id, piece) in (0..).zip(text.lines()) {
                add(piece, id);
            }
        }
        let special = |name: &str| {
            let id = beginnings.get(name).copied();
            id.ok_or_else(|| {
                format!("it has no {name}, so it is not the vocabulary of a BERT model")
            })
        };
        Ok(Self {
            unknown: special("[UNK]")?,
            first: special("[CLS]")?,
            last: special("[SEP]")?,
            beginnings,
            continuations,
        })
    }

    /// Returns one more than the largest id. The model must have a vector for each of these pieces.
    pub(super) fn end(&self) -> usize {
        let ids = self.beginnings.values().chain(self.continuations.values());
        ids.max().map_or(0, |last| *last as usize + 1)
    }

    /// Returns the first pieces of a text. Reading stops when there are at least `enough` of them,
    /// so that the rest of a long text is not cut in vain.
    pub(super) fn of(&self, text: &str, enough: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut word = String::new();
        let mut start = 0;
        for (at, c) in text.char_indices() {
            let kind = CharKind::of(c);
            if word.is_empty() {
                start = at;
            }
            match kind {
                CharKind::Nothing => {}
                CharKind::Letter => push_plain(c, &mut word),
                CharKind::Space | CharKind::Alone => {
                    self.end_word(&mut word, start, at, &mut pieces);
                    if kind == CharKind::Alone {
                        push_plain(c, &mut word);
                        self.end_word(&mut word, at, at + c.len_utf8(), &mut pieces);
                    }
                }
            }
            if pieces.len() >= enough {
                return pieces;
            }
        }
        self.end_word(&mut word, start, text.len(), &mut pieces);
        pieces
    }

    fn end_word(&self, word: &mut String, start: usize, end: usize, pieces: &mut Vec<Piece>) {
        if word.is_empty() {
            return;
        }
        let is_stop = matches!(word.as_str(), "." | "!" | "?" | "。" | "！" | "？");
        let before = pieces.len();
        let mut add = |id| {
            pieces.push(Piece {
                id,
                start,
                end,
                is_stop,
            });
        };
        let mut rest = word.as_str();
        let mut known = &self.beginnings;
        let is_long = word.chars().nth(LONGEST_WORD).is_some();
        // At each step take the longest piece that the vocabulary knows.
        while !rest.is_empty() && !is_long {
            let mut ends = rest.char_indices().rev().map(|(at, c)| at + c.len_utf8());
            let Some((end, id)) = ends.find_map(|end| Some((end, *known.get(&rest[..end])?)))
            else {
                break;
            };
            add(id);
            rest = &rest[end..];
            known = &self.continuations;
        }
        // If one part of a word is unknown, the whole word is.
        if !rest.is_empty() {
            pieces.truncate(before);
            pieces.push(Piece {
                id: self.unknown,
                start,
                end,
                is_stop,
            });
        }
        word.clear();
    }
}

/// What a character means when a text is divided into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharKind {
    Letter,
    Space,
    /// The character is a word of its own, as punctuation and each Chinese character are.
    Alone,
    /// The character is skipped, as if it were not in the text.
    Nothing,
}

// The expressions are constants, and the tests compile each of them, so they cannot fail.
#[expect(clippy::unwrap_used)]
fn one(class: &str) -> Regex {
    Regex::new(&format!("^{class}$")).unwrap()
}

static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| one(r"\p{P}"));
static CONTROL: LazyLock<Regex> = LazyLock::new(|| one(r"[\p{C}\x{FFFD}]"));
static ACCENT: LazyLock<Regex> = LazyLock::new(|| one(r"\p{Mn}"));

fn is_in(class: &Regex, c: char) -> bool {
    class.is_match(c.encode_utf8(&mut [0; 4]))
}

impl CharKind {
    fn of(c: char) -> Self {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => Self::Letter,
            _ if c.is_whitespace() => Self::Space,
            _ if c.is_ascii_punctuation() => Self::Alone,
            '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{2a6df}'
            | '\u{2a700}'..='\u{2ceaf}'
            | '\u{2f800}'..='\u{2fa1f}' => Self::Alone,
            _ if is_in(&CONTROL, c) => Self::Nothing,
            _ if !c.is_ascii() && is_in(&PUNCTUATION, c) => Self::Alone,
            _ => Self::Letter,
        }
    }
}

/// Appends a character without its case and accents, because the model was trained on such text.
fn push_plain(c: char, word: &mut String) {
    if c.is_ascii() {
        word.push(c.to_ascii_lowercase());
        return;
    }
    decompose_canonical(c, |part| {
        if part.is_ascii() || !is_in(&ACCENT, part) {
            word.extend(part.to_lowercase());
        }
    });
}

#[cfg(test)]
mod tests;
