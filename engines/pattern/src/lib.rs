//! Regular expressions for patterns and texts that nobody vouches for: a model writes the pattern, and the text is
//! whatever was said. The syntax and the matches are those of the `regex` crate. Two things differ:
//!
//! - **The cost has a bound.** The `regex` crate is linear in the text, but the factor is the size of the expression:
//!   `a{60000}b` needs ten seconds for 600 KB. Here an expression that is too large is refused when it is compiled
//!   ([`PatternError`]), and one that turns out to be too expensive for a text ends with [`Stop::TooCostly`]. The bound
//!   counts steps and not time, so the same search has the same result on every machine.
//! - **A search can be cancelled** inside a text: every method takes a function that is asked every millisecond or so.
//!
//! An expression is compiled to the lazy DFAs of `regex-automata`, which are stepped here (`automaton.rs`). For Unicode word
//! boundaries, which a DFA cannot see, expression and text are rewritten (`marks.rs`).

mod automaton;
mod marks;

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Look, Repetition};

use automaton::{Automaton, Direction, Meter};

/// The longest expression, in bytes.
pub const MAX_BYTES: usize = 10_000;

/// The most steps of an expression: one for each character, class and branch, counted repetitions written out.
pub const MAX_STEPS: usize = 10_000;

/// The most classes of an expression, and the most that are made to match without regard to case: for that, the parser
/// looks at each of their characters.
const MAX_CLASSES: usize = 250;
const MAX_CASELESS_CLASSES: usize = 25;

/// Why a pattern is not a regular expression that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The syntax is wrong. The text shows where.
    #[error("{0}")]
    Syntax(String),
    /// It is longer than [`MAX_BYTES`].
    #[error(
        "the regular expression has {bytes} bytes, and may have {MAX_BYTES}: search for its most telling part, or for one \
         part after the other"
    )]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It has more than [`MAX_STEPS`] steps, or takes too much memory when it is compiled.
    #[error(
        "the regular expression is too large: written out, it has more than {MAX_STEPS} characters and branches, or many \
         classes of many characters. Make its counted repetitions smaller (`a+` in place of `a{{60000}}`), write `.` or \
         `[a-z]` in place of `\\w`, or search for fewer alternatives at a time"
    )]
    TooLarge,
    /// It has word boundaries of both kinds.
    #[error(
        "the regular expression has Unicode and ASCII word boundaries: write `\\b` in place of `(?-u:\\b)`, or the other way"
    )]
    MixedBoundaries,
    /// It has too many character classes.
    #[error(
        "the regular expression has more than {most} character classes: search for a part of it, or write `.` in place of \
         some"
    )]
    TooManyClasses {
        /// How many it may have: fewer where case does not matter.
        most: usize,
    },
}

/// Why a search ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The caller no longer waits.
    #[error("the search was cancelled")]
    Cancelled,
    /// The expression and the texts together cost more than is allowed.
    #[error(
        "the regular expression is too expensive for these texts: its repetitions can match at too many places at once. \
         Make its counted repetitions smaller (`.*` in place of `.{{0,500}}`), begin with a literal word, or search for that \
         word"
    )]
    TooCostly,
}

/// A compiled regular expression.
///
/// It caches what it learns from a text, so it is used by one thread at a time. All searches of one `Regex` share its
/// allowance, which grows with the texts that it is given.
///
/// ```
/// use contexture_pattern::Regex;
///
/// let regex = Regex::new(r"\bport \d+", false)?;
/// assert_eq!(regex.find_all("port 80, port 443", 10, &|| false)?, [0..7, 9..17]);
/// assert!(Regex::new("a{60000}b", false).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Regex {
    hir: Hir,
    /// Whether it is searched for in marked texts.
    is_marked: bool,
    running: RefCell<Running>,
}

struct Running {
    forward: Automaton,
    /// From the end of a match back to its start.
    backward: Automaton,
    meter: Meter,
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Regex").field(&self.hir.to_string()).finish()
    }
}

impl Regex {
    /// Compiles an expression; `any_case` is the flag `i`.
    ///
    /// # Errors
    /// [`PatternError`]: wrong syntax, or larger than is allowed.
    pub fn new(pattern: &str, any_case: bool) -> Result<Self, PatternError> {
        if pattern.len() > MAX_BYTES {
            return Err(PatternError::TooLong {
                bytes: pattern.len(),
            });
        }
        let (classes, caseless) = classes(pattern);
        let is_caseless = any_case || has_caseless(pattern);
        for (count, most) in [
            (classes, MAX_CLASSES),
            (caseless * usize::from(is_caseless), MAX_CASELESS_CLASSES),
        ] {
            if count > most {
                return Err(PatternError::TooManyClasses { most });
            }
        }
        let hir = parse(pattern, any_case)?;
        if steps(&hir) > MAX_STEPS {
            return Err(PatternError::TooLarge);
        }
        let properties = hir.properties();
        let is_marked = properties.look_set().contains_word_unicode();
        // Not the DFA's own, which would go to bytes inside a character.
        let anywhere = match properties.look_set_prefix().contains(Look::Start) {
            true => Hir::empty(),
            false => parse("(?s:.)*?", false)?,
        };
        let mut forward = Hir::concat(vec![anywhere, hir.clone()]);
        let mut backward = hir.clone();
        if is_marked {
            forward = marks::mark_expression(&forward)?;
            backward = marks::mark_expression(&backward)?;
        }
        let running = Running {
            forward: Automaton::new(&forward, Direction::Forward)?,
            backward: Automaton::new(&backward, Direction::Backward)?,
            meter: Meter::default(),
        };
        Ok(Self {
            hir,
            is_marked,
            running: RefCell::new(running),
        })
    }

    /// The text as the automata read it.
    fn read<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        match self.is_marked {
            true => marks::mark_text(text),
            false => Cow::Borrowed(text.as_bytes()),
        }
    }

    /// The parsed expression.
    pub fn hir(&self) -> &Hir {
        &self.hir
    }

    /// Whether the expression matches anywhere in `text`. `cancelled` is asked every millisecond or so.
    ///
    /// # Errors
    /// [`Stop`]: cancelled, or too expensive.
    pub fn is_match(&self, text: &str, cancelled: &dyn Fn() -> bool) -> Result<bool, Stop> {
        let text = &*self.read(text);
        let Running { forward, meter, .. } = &mut *self.running.borrow_mut();
        meter.allow(text.len());
        Ok(forward.end(text, 0, true, meter, cancelled)?.is_some())
    }

    /// The first match in `text`, leftmost as that of the `regex` crate.
    ///
    /// # Errors
    /// As for [`is_match`](Self::is_match).
    pub fn find(
        &self,
        text: &str,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Range<usize>>, Stop> {
        Ok(self.find_all(text, 1, cancelled)?.pop())
    }

    /// The matches in `text`, in order and without overlaps, `limit` at most. To find the next match can take reading all
    /// of the rest, so fewer are found where that would take too long; the first one always is.
    ///
    /// # Errors
    /// As for [`is_match`](Self::is_match).
    pub fn find_all(
        &self,
        text: &str,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Range<usize>>, Stop> {
        /// How often a text may be read in all.
        const READINGS: u64 = 16;
        let read = &*self.read(text);
        let Running {
            forward,
            backward,
            meter,
        } = &mut *self.running.borrow_mut();
        meter.allow(read.len());
        let last_byte = meter.read + READINGS * (read.len() as u64 + 1_000);
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while found.len() < limit && (found.is_empty() || meter.read < last_byte) {
            let Some(end) = forward.end(read, at, false, meter, cancelled)? else {
                break;
            };
            let start = backward.begin(read, at..end, meter, cancelled)?;
            let is_repeated = found
                .last()
                .is_some_and(|last| start == end && last.end == end);
            if is_repeated {
                // An empty match at the end of the one before does not count.
                let Some(length) = marks::char_len(&read[at..], self.is_marked) else {
                    break;
                };
                at += length;
                continue;
            }
            found.push(start..end);
            at = end;
        }
        if self.is_marked {
            marks::unmark(text, &mut found);
        }
        Ok(found)
    }
}

fn parse(pattern: &str, any_case: bool) -> Result<Hir, PatternError> {
    let mut parser = ParserBuilder::new().case_insensitive(any_case).build();
    let parsed = parser.parse(pattern);
    parsed.map_err(|error| PatternError::Syntax(error.to_string()))
}

/// How many steps an expression has when its counted repetitions are written out.
fn steps(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Repetition(Repetition { min, max, sub, .. }) => {
            let times = max.unwrap_or(*min).max(1) as usize;
            steps(sub).saturating_mul(times)
        }
        HirKind::Capture(capture) => steps(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(steps).fold(0, usize::saturating_add)
        }
    }
}

/// How many classes a pattern has at most, by what begins one: a bracket, or a letter after a backslash. And how many of
/// them the flag `i` changes.
fn classes(pattern: &str) -> (usize, usize) {
    let (mut all, mut caseless) = (0, 0);
    let mut escaped = false;
    for c in pattern.chars() {
        match c {
            'p' | 'P' | '[' if escaped != (c == '[') => {
                all += 1;
                caseless += 1;
            }
            'd' | 'D' | 's' | 'S' | 'w' | 'W' if escaped => all += 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    (all, caseless)
}

/// Whether a pattern may set the flag `i`.
fn has_caseless(pattern: &str) -> bool {
    let mut groups = pattern.split("(?").skip(1);
    groups.any(|group| {
        let flags = group.split([':', ')']).next();
        flags.is_some_and(|flags| flags.contains('i'))
    })
}
