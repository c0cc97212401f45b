//! The terms that a text is indexed under.
//!
//! Words are indexed as a whole. Scripts without spaces are indexed by each character and by each
//! pair of neighbours, because finding their words would need a dictionary. A pair keeps its
//! position, so that the index can tell a longer piece from scattered pairs.
//!
//! [`class`] decides what each character is, [`runs`] cuts a text, and [`for_each_term`] gives its
//! terms. A search has to cut its query with the same functions, or it would miss what the index
//! has.

/// The role of a character in terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Part of a word: a letter, a digit, a mark or `_`. These are a subset of `\w` in a regular
    /// expression.
    Word,
    /// Part of a script without spaces between words, which is indexed by the character. Korean is
    /// one of them, since its words take endings.
    Gram,
    /// Anything else, such as white space and punctuation. It separates terms and is not indexed.
    Separator,
}

/// Returns the class of a character. A character that `regex` does not know as a word character is
/// a separator.
#[inline]
pub(crate) fn class(c: char) -> Class {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() || c == '_' {
            Class::Word
        } else {
            Class::Separator
        };
    }
    if is_gram(c) {
        return Class::Gram;
    }
    match regex_syntax::try_is_word_character(c) {
        Ok(true) => Class::Word,
        _ => Class::Separator,
    }
}

fn is_gram(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff            // Thai, Lao
        | 0x1000..=0x109f          // Burmese
        | 0x1100..=0x11ff          // Hangul letters
        | 0x1780..=0x17ff          // Khmer
        | 0x3005..=0x3007          // repetition marks, zero
        | 0x3040..=0x30fa | 0x30fc..=0x31ff // kana, Bopomofo, Hangul letters, strokes
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff // Han
        | 0xa960..=0xa97f | 0xac00..=0xd7ff // Hangul
        | 0xf900..=0xfaff
        | 0xff66..=0xffdc          // half-width kana and Hangul
        | 0x20000..=0x323af)
}

/// The number of bytes by which a word is indexed. A longer word is indexed by its first bytes, and
/// under [`LONG_WORD`] as well.
pub(crate) const MAX_WORD_BYTES: usize = 64;

/// The term of every text that contains a word longer than [`MAX_WORD_BYTES`]. No real word is
/// spelled like this.
pub(crate) const LONG_WORD: &str = "\u{1}";

/// Returns the part of a word that is indexed, which ends at a character boundary.
pub(crate) fn indexed_part(word: &str) -> &str {
    &word[..word.floor_char_boundary(MAX_WORD_BYTES)]
}

/// A stretch of a text whose characters all have the same class. The range is in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassRun {
    pub(crate) class: Class,
    pub(crate) range: std::ops::Range<usize>,
}

/// Returns the words and the runs of scripts without spaces in a text, in order. Separators are
/// skipped.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = ClassRun> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let (first, length) = class_at(text, at)?;
            let start = at;
            at += length;
            if first == Class::Separator {
                continue;
            }
            while at < bytes.len() {
                match class_at(text, at) {
                    Some((class, length)) if class == first => at += length,
                    _ => break,
                }
            }
            return Some(ClassRun {
                class: first,
                range: start..at,
            });
        }
    })
}

/// Returns the class of the character at a byte and its length in bytes. Returns None at the end of
/// the text.
#[inline]
fn class_at(text: &str, at: usize) -> Option<(Class, usize)> {
    let byte = *text.as_bytes().get(at)?;
    if byte.is_ascii() {
        return Some((class(char::from(byte)), 1));
    }
    let c = text[at..].chars().next()?;
    Some((class(c), c.len_utf8()))
}

/// Calls `each` with every term of a folded text. A pair of neighbouring characters in a script
/// without spaces comes with its position, and two pairs overlap in the text if their positions are
/// consecutive. A term may come more than once.
pub(crate) fn for_each_term(folded: &str, mut each: impl FnMut(&str, Option<u32>)) {
    let mut place = 0;
    for run in runs(folded) {
        let text = &folded[run.range];
        match run.class {
            Class::Word => {
                if text.len() > MAX_WORD_BYTES {
                    each(LONG_WORD, None);
                }
                each(indexed_part(text), None);
            }
            Class::Gram => {
                for_each_gram(text, |gram, is_pair| {
                    // A pair is reported right after its second character.
                    place += u32::from(!is_pair);
                    each(gram, is_pair.then_some(place));
                });
                // The gap makes sure that no pair of this run appears adjacent to one of the next.
                place += 1;
            }
            Class::Separator => {}
        }
    }
}

/// Calls `each` with every character of a run of a script without spaces, and with every pair of
/// neighbours after its second character. The flag says whether it is a pair.
pub(crate) fn for_each_gram<'t>(text: &'t str, mut each: impl FnMut(&'t str, bool)) {
    let mut previous: Option<usize> = None;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        each(&text[at..end], false);
        if let Some(start) = previous {
            each(&text[start..end], true);
        }
        previous = Some(at);
    }
}

#[cfg(test)]
mod tests;
