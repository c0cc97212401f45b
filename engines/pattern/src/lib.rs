//! Regular expressions for untrusted patterns and texts: a model writes the pattern, and the text
//! is whatever was said. The syntax and the matches are those of the `regex` crate. Two things
//! differ:
//!
//! - **The cost is bounded.** The `regex` crate takes time linear in the text, but the factor is
//!   the size of the expression: `a{60000}b` needs ten seconds for 600 KB. Here an expression that
//!   is too large is refused when it is compiled ([`PatternError`]), and one that turns out to be
//!   too expensive for a text ends with [`Stop::TooCostly`]. The bound counts steps and not time,
//!   so the same search has the same result on every machine.
//! - **A search can be cancelled** inside a text: every method takes a function that it calls about
//!   every millisecond.
//!
//! Start with [`Regex`]. An expression is compiled to the lazy DFAs of `regex-automata`, which
//! `automaton` steps through. A DFA cannot see Unicode word boundaries, so `marks` rewrites the
//! expression and the text if the expression has any.

mod automaton;
mod marks;

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind, Look, Repetition};

use automaton::{Automaton, Direction, Meter};

/// The longest expression, in bytes. A longer one is refused before it is parsed.
pub const MAX_BYTES: usize = 10_000;

/// The most steps of an expression. Each character, class and branch is a step, and counted
/// repetitions are written out.
pub const MAX_STEPS: usize = 10_000;

/// The most classes of an expression, and the most if it ignores case. For ignoring case, the
/// parser looks at every character of a class, so fewer are allowed.
const MAX_CLASSES: usize = 250;
const MAX_CASELESS_CLASSES: usize = 25;

/// The reason why a pattern cannot be used as a regular expression. The text says what to write
/// instead, so it can be returned to the model as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The syntax is wrong. The text is the parser's message, which points to the position of the
    /// mistake.
    #[error("{0}")]
    Syntax(String),
    /// The pattern is longer than [`MAX_BYTES`].
    #[error(
        "the regular expression has {bytes} bytes, and may have {MAX_BYTES}: search for its most telling part, or for one \
         part after the other"
    )]
    TooLong {
        /// The length of the pattern, in bytes.
        bytes: usize,
    },
    /// The pattern has more than [`MAX_STEPS`] steps, or takes too much memory when it is compiled.
    #[error(
        "the regular expression is too large: written out, it has more than {MAX_STEPS} characters and branches, or many \
         classes of many characters. Make its counted repetitions smaller (`a+` in place of `a{{60000}}`), write `.` or \
         `[a-z]` in place of `\\w`, or search for fewer alternatives at a time"
    )]
    TooLarge,
    /// The pattern has both Unicode and ASCII word boundaries. Only one kind is supported in one
    /// pattern.
    #[error(
        "the regular expression has Unicode and ASCII word boundaries: write `\\b` in place of `(?-u:\\b)`, or the other way"
    )]
    MixedBoundaries,
    /// The pattern has too many character classes. Parsing them would take too long.
    #[error(
        "the regular expression has more than {most} character classes: search for a part of it, or write `.` in place of \
         some"
    )]
    TooManyClasses {
        /// The number of classes that the pattern may have. It is smaller if the pattern ignores
        /// case.
        most: usize,
    },
}

/// The reason why a search ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stop {
    /// The function given to the search returned true, because the caller no longer waits.
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
/// It caches what it learns from a text, so only one thread at a time can use it. All searches of
/// one `Regex` share its allowance of work, which grows with the texts that it is given.
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
    is_marked: bool,
    running: RefCell<Running>,
}

struct Running {
    forward: Automaton,
    /// Reads from the end of a match back to its start, which the forward automaton does not know.
    backward: Automaton,
    meter: Meter,
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Regex").field(&self.hir.to_string()).finish()
    }
}

impl Regex {
    /// Compiles an expression. If `any_case` is true, it ignores case like an expression with the
    /// flag `i`.
    ///
    /// # Errors
    /// [`PatternError`] if the syntax is wrong or the expression is larger than allowed.
    pub fn new(pattern: &str, any_case: bool) -> Result<Self, PatternError> {
        if pattern.len() > MAX_BYTES {
            return Err(PatternError::TooLong {
                bytes: pattern.len(),
            });
        }
        // Parsing classes can itself be expensive, so they are counted in the text before it is
        // parsed.
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
        // The DFA's own unanchored search would also start at bytes inside a character.
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

    /// Returns the text as the automata read it, with marks if the expression needs them.
    fn read<'t>(&self, text: &'t str) -> Cow<'t, [u8]> {
        match self.is_marked {
            true => marks::mark_text(text),
            false => Cow::Borrowed(text.as_bytes()),
        }
    }

    /// Returns the parsed expression, for callers that look for literals in it.
    pub fn hir(&self) -> &Hir {
        &self.hir
    }

    /// Returns whether the expression matches anywhere in `text`. `cancelled` is called about every
    /// millisecond.
    ///
    /// # Errors
    /// [`Stop`] if the search was cancelled or became too expensive.
    pub fn is_match(&self, text: &str, cancelled: &dyn Fn() -> bool) -> Result<bool, Stop> {
        let text = &*self.read(text);
        let Running { forward, meter, .. } = &mut *self.running.borrow_mut();
        meter.allow(text.len());
        Ok(forward.end(text, 0, true, meter, cancelled)?.is_some())
    }

    /// Returns the first match in `text` as a range of bytes. It is the leftmost one, as in the
    /// `regex` crate.
    ///
    /// # Errors
    /// The same as for [`is_match`](Self::is_match).
    pub fn find(
        &self,
        text: &str,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Range<usize>>, Stop> {
        Ok(self.find_all(text, 1, cancelled)?.pop())
    }

    /// Returns the matches in `text` as ranges of bytes, in order and without overlaps, at most
    /// `limit` of them. Finding the next match can require reading the whole rest of the text, so
    /// fewer are returned if that would take too long. The first one is always found.
    ///
    /// # Errors
    /// The same as for [`is_match`](Self::is_match).
    pub fn find_all(
        &self,
        text: &str,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Range<usize>>, Stop> {
        /// How many times the bytes of a text may be read in total.
        const READINGS: u64 = 16;
        let read = &*self.read(text);
        let Running {
            forward,
            backward,
            meter,
        } = &mut *self.running.borrow_mut();
        meter.allow(read.len());
        // Each match may read the rest of the text again, so many matches could take quadratic
        // time.
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
                // An empty match at the end of the previous match does not count.
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

/// Returns the number of steps of an expression when its counted repetitions are written out. An
/// unbounded repetition counts by its minimum.
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

/// Returns an upper bound for the number of classes in a pattern, and how many of them ignoring
/// case makes larger. A class begins with a bracket, or with a letter after a backslash.
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

/// Whether a pattern may set the flag `i`. The answer can be yes for a pattern that does not, which
/// only makes the limit stricter.
fn has_caseless(pattern: &str) -> bool {
    let mut groups = pattern.split("(?").skip(1);
    groups.any(|group| {
        let flags = group.split([':', ')']).next();
        flags.is_some_and(|flags| flags.contains('i'))
    })
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
