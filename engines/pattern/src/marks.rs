//! Word boundaries of all scripts, for an automaton that reads bytes.
//!
//! An automaton knows one byte on each side of a place, and one byte tells a word character only if it is ASCII. So an
//! expression with Unicode word boundaries is rewritten, and searched for in a rewritten text: each word character that is
//! not ASCII is put between two [`MARK`]s. The mark is an ASCII letter, so that where the rewritten text has an ASCII word
//! boundary, the text has a Unicode one. The letter itself is put between marks too: what begins with a mark is always three
//! parts long, and nothing matches one of them alone.

use std::borrow::Cow;
use std::ops::Range;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

use crate::PatternError;

/// A letter that is rare in most texts.
pub(crate) const MARK: u8 = b'Z';

/// All characters that are put between marks: see [`is_marked`].
const MARKED: &str = "[[\\w--[:ascii:]]Z]";

fn is_marked(c: char) -> bool {
    c == char::from(MARK)
        || !c.is_ascii() && regex_syntax::try_is_word_character(c).unwrap_or(false)
}

/// The text with marks.
pub(crate) fn mark_text(text: &str) -> Cow<'_, [u8]> {
    if !text.bytes().any(|byte| byte == MARK || !byte.is_ascii()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut marked = Vec::with_capacity(text.len() + text.len() / 2);
    for c in text.chars() {
        push(c, &mut marked);
    }
    Cow::Owned(marked)
}

fn push(c: char, marked: &mut Vec<u8>) {
    let mut bytes = [0; 4];
    let bytes = c.encode_utf8(&mut bytes).as_bytes();
    match is_marked(c) {
        true => {
            marked.push(MARK);
            marked.extend(bytes);
            marked.push(MARK);
        }
        false => marked.extend(bytes),
    }
}

/// How many bytes the first character of a text takes, with its marks.
pub(crate) fn char_len(text: &[u8], is_marked: bool) -> Option<usize> {
    let is_in_char = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    match text {
        [] => None,
        [MARK, _, rest @ ..] if is_marked => {
            let end = rest.iter().position(|byte| *byte == MARK)?;
            Some(end + 3)
        }
        [_, rest @ ..] => Some(1 + rest.iter().take_while(is_in_char).count()),
    }
}

/// From places in a marked text, in order, to places in the text.
pub(crate) fn unmark(text: &str, places: &mut [Range<usize>]) {
    let mut chars = text.chars();
    let (mut marked, mut plain) = (0, 0);
    let ends = places
        .iter_mut()
        .flat_map(|place| [&mut place.start, &mut place.end]);
    for end in ends {
        while marked < *end
            && let Some(c) = chars.next()
        {
            plain += c.len_utf8();
            marked += c.len_utf8() + 2 * usize::from(is_marked(c));
        }
        *end = plain;
    }
}

/// The expression to search for in marked texts.
///
/// # Errors
/// It has ASCII word boundaries as well.
pub(crate) fn mark_expression(hir: &Hir) -> Result<Hir, PatternError> {
    if hir.properties().look_set().contains_word_ascii() {
        return Err(PatternError::MixedBoundaries);
    }
    match regex_syntax::parse(MARKED).map(Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(marked))) => Ok(rewrite(hir, &marked)),
        _ => Err(PatternError::TooLarge),
    }
}

fn rewrite(hir: &Hir, marked: &ClassUnicode) -> Hir {
    let all = |parts: &[Hir]| parts.iter().map(|part| rewrite(part, marked)).collect();
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => {
            let mut bytes = Vec::new();
            for c in String::from_utf8_lossy(&literal.0).chars() {
                push(c, &mut bytes);
            }
            Hir::literal(bytes)
        }
        HirKind::Class(class) => {
            let class = match class {
                Class::Unicode(class) => Some(class.clone()),
                Class::Bytes(class) => class.to_unicode_class(),
            };
            let class = class.unwrap_or_else(ClassUnicode::empty);
            let letter = char::from(MARK);
            let letter = ClassUnicode::new([ClassUnicodeRange::new(letter, letter)]);
            let mut wide = letter.clone();
            wide.union(&ClassUnicode::new([ClassUnicodeRange::new(
                '\u{80}',
                char::MAX,
            )]));
            let outside = smaller(difference(&class, marked), difference(&class, &letter));
            let inside = smaller(intersection(&class, marked), intersection(&class, &wide));
            let mark = Hir::literal([MARK]);
            let inside = Hir::class(Class::Unicode(inside));
            let inside = Hir::concat(vec![mark.clone(), inside, mark]);
            Hir::alternation(vec![Hir::class(Class::Unicode(outside)), inside])
        }
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            look => *look,
        }),
        HirKind::Repetition(repetition) => Hir::repetition(Repetition {
            sub: Box::new(rewrite(&repetition.sub, marked)),
            ..repetition.clone()
        }),
        HirKind::Capture(capture) => rewrite(&capture.sub, marked),
        HirKind::Concat(parts) => Hir::concat(all(parts)),
        HirKind::Alternation(parts) => Hir::alternation(all(parts)),
    }
}

fn difference(class: &ClassUnicode, other: &ClassUnicode) -> ClassUnicode {
    let mut class = class.clone();
    class.difference(other);
    class
}

fn intersection(class: &ClassUnicode, other: &ClassUnicode) -> ClassUnicode {
    let mut class = class.clone();
    class.intersect(other);
    class
}

/// The class with fewer ranges: the wider one differs only by what is in no marked text.
fn smaller(exact: ClassUnicode, wide: ClassUnicode) -> ClassUnicode {
    match exact.ranges().len() <= wide.ranges().len() {
        true => exact,
        false => wide,
    }
}
