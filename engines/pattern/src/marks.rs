//! Unicode word boundaries for an automaton that reads bytes.
//!
//! An automaton knows one byte on each side of a position, and one byte identifies a word character
//! only if it is ASCII. So an expression with Unicode word boundaries is rewritten, and the search
//! runs in a rewritten text: each word character that is not ASCII stands between two [`MARK`]s.
//! The mark is an ASCII letter, so if the rewritten text has an ASCII word boundary at some
//! position, the text has a Unicode one there. The letter itself is put between marks too.
//! Therefore a sequence that begins with a mark always has three parts, and no expression matches
//! one of them alone.
//!
//! [`mark_expression`] rewrites an expression, [`mark_text`] a text, and [`unmark`] converts the
//! matches back.

use std::borrow::Cow;
use std::ops::Range;

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look, Repetition};

use crate::PatternError;

/// The letter that serves as a mark. It is rare in most texts, so few characters have to be marked
/// because of it.
pub(crate) const MARK: u8 = b'Z';

/// All characters that are put between marks, as a class. It must agree with [`is_marked`].
const MARKED: &str = "[[\\w--[:ascii:]]Z]";

fn is_marked(c: char) -> bool {
    c == char::from(MARK)
        || !c.is_ascii() && regex_syntax::try_is_word_character(c).unwrap_or(false)
}

/// Returns the text with marks. Nothing is copied if the text is ASCII without the mark.
pub(crate) fn mark_text(text: &str) -> Cow<'_, [u8]> {
    // Most texts are plain ASCII, and need no copy.
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

/// Returns the number of bytes that the first character of a text takes, with its marks. `None` if
/// the text is empty.
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

/// Converts ranges in a marked text to ranges in the text itself. They must be in order, because
/// the text is read only once.
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

/// Rewrites an expression so that it can be searched for in marked texts.
///
/// # Errors
/// [`PatternError::MixedBoundaries`] if the expression also has ASCII word boundaries, which marks
/// would change.
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
            // A wider class is as good if it has fewer ranges: it differs only in characters that
            // cannot stand there in a marked text.
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
        // Only whole matches are reported, so captures are not needed.
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

/// Returns the class with fewer ranges. The wider class differs only in characters that no marked
/// text has at this position.
fn smaller(exact: ClassUnicode, wide: ClassUnicode) -> ClassUnicode {
    match exact.ranges().len() <= wide.ranges().len() {
        true => exact,
        false => wide,
    }
}
