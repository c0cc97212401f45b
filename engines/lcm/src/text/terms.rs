//! What a text is indexed under: words whole, scripts without spaces by the character and the pair of
//! neighbours.

/// The role of a character in terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Part of a word: letters, digits, marks, `_`. A subset of `\w`.
    Word,
    /// Of a script without spaces between words (and Korean, whose words take endings): indexed by itself.
    Gram,
    /// Anything else.
    Separator,
}

/// The class of a character.
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

/// Longer words are indexed by their first bytes only, and also under [`LONG_WORD`].
pub(crate) const MAX_WORD_BYTES: usize = 64;

/// The term of every text that holds a word longer than [`MAX_WORD_BYTES`]. No real word has this spelling.
pub(crate) const LONG_WORD: &str = "\u{1}";

/// The prefix of a word that is indexed.
pub(crate) fn indexed_part(word: &str) -> &str {
    &word[..word.floor_char_boundary(MAX_WORD_BYTES)]
}

/// A stretch of a text whose characters are all of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) class: Class,
    pub(crate) range: std::ops::Range<usize>,
}

/// The words and the stretches of spaceless script in a text, in order.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = Run> {
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
            return Some(Run {
                class: first,
                range: start..at,
            });
        }
    })
}

/// The class of the character at a byte, and its length in bytes.
#[inline]
fn class_at(text: &str, at: usize) -> Option<(Class, usize)> {
    let byte = *text.as_bytes().get(at)?;
    if byte.is_ascii() {
        return Some((class(char::from(byte)), 1));
    }
    let c = text[at..].chars().next()?;
    Some((class(c), c.len_utf8()))
}

/// Calls `each` with every term of a folded text, and, for a pair of neighbouring characters of a spaceless
/// script, its position: pairs are adjacent if their positions are consecutive. A term may occur again.
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
                    // A pair comes right after its second character.
                    place += u32::from(!is_pair);
                    each(gram, is_pair.then_some(place));
                });
                // No pair of this stretch is adjacent to one of the next.
                place += 1;
            }
            Class::Separator => {}
        }
    }
}

/// Every character of a stretch of spaceless script, and every pair of neighbours after its second one;
/// with whether it is a pair.
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
mod tests {
    use super::*;

    fn terms(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        for_each_term(text, |term, _| out.push(term.to_owned()));
        out
    }

    #[test]
    fn neighbouring_pairs_have_neighbouring_places() {
        let mut places = Vec::new();
        for_each_term("索引重建 索引x索引", |term, place| {
            places.extend(place.map(|place| format!("{term} {place}")));
        });
        assert_eq!(places, ["索引 2", "引重 3", "重建 4", "索引 7", "索引 10"]);
    }

    #[test]
    fn words_and_grams() {
        assert_eq!(
            terms("src/epoch.rs:412 a_b naïve"),
            ["src", "epoch", "rs", "412", "a_b", "naïve"]
        );
        assert_eq!(terms("db索引x한"), ["db", "索", "引", "索引", "x", "한"]);
    }

    #[test]
    fn long_words_are_noted() {
        let long = "é".repeat(40);
        assert_eq!(terms(&long), [LONG_WORD.to_owned(), "é".repeat(32)]);
    }

    #[test]
    fn every_word_character_is_one_to_regular_expressions() {
        let word = regex::Regex::new(r"^[\w]$").map_err(|error| error.to_string());
        for c in '\0'..=char::MAX {
            if class(c) == Class::Word {
                assert!(
                    word.as_ref()
                        .is_ok_and(|word| word.is_match(&c.to_string())),
                    "{c:?}"
                );
            }
        }
    }
}
