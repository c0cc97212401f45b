//! Regular expressions for patterns and texts that nobody vouches for: a model writes the pattern, and the text is
//! whatever was said. The syntax and the matches are those of the `regex` crate. Two things differ:
//!
//! - **The cost has a bound.** The `regex` crate is linear in the text, but the factor is the size of the expression:
//!   `a{60000}b` needs ten seconds for 600 KB. Here an expression that is too large is refused when it is compiled
//!   ([`PatternError`]), and one that turns out to be too expensive for a text ends with [`Stop::TooCostly`]. The bound
//!   counts steps and not time, so the same search has the same result on every machine.
//! - **A search can be cancelled** inside a text: every method takes a function that is asked every millisecond or so.
//!
//! An expression is compiled to an automaton over characters, whose deterministic form is built while a text is read and
//! cached ([`Regex`]). Characters that the expression does not tell apart are one symbol, which keeps the automaton small,
//! also for Unicode classes, and makes word boundaries exact in every script.

mod alphabet;
mod automaton;
mod compile;

use std::cell::RefCell;
use std::ops::Range;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, Look};

use alphabet::Alphabet;
use automaton::{Automaton, Direction, Meter};
use compile::Program;

/// The longest expression, in bytes.
pub const MAX_BYTES: usize = 10_000;

/// The most steps of an expression: about one for each character and each branch, counted repetitions written out.
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
    /// Compiled, it has more than [`MAX_STEPS`] steps.
    #[error(
        "the regular expression is too large: written out, it has more than {MAX_STEPS} characters and branches. Make its \
         counted repetitions smaller (`a+` in place of `a{{60000}}`), or search for fewer alternatives at a time"
    )]
    TooLarge,
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
    alphabet: Alphabet,
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
        let hir = ParserBuilder::new()
            .case_insensitive(any_case)
            .build()
            .parse(pattern)
            .map_err(|error| PatternError::Syntax(error.to_string()))?;
        let is_anchored = hir.properties().look_set_prefix().contains(Look::Start);
        let forward = Program::new(&hir, Direction::Forward, !is_anchored)?;
        let backward = Program::new(&hir, Direction::Backward, false)?;
        // Both are made of the same classes in the same order or not, so each brings its own.
        let (alphabet, [forward, backward]) = Alphabet::of([forward, backward])?;
        let symbols = alphabet.kinds();
        let running = Running {
            forward: Automaton::new(forward, Direction::Forward, symbols.clone()),
            backward: Automaton::new(backward, Direction::Backward, symbols),
            meter: Meter::default(),
        };
        Ok(Self {
            hir,
            alphabet,
            running: RefCell::new(running),
        })
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
        let running = &mut *self.running.borrow_mut();
        running.meter.allow(text.len());
        let found = running.end(&self.alphabet, text, 0, true, cancelled)?;
        Ok(found.is_some())
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
        let running = &mut *self.running.borrow_mut();
        running.meter.allow(text.len());
        let last_byte = running.meter.read + READINGS * (text.len() as u64 + 1_000);
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        while found.len() < limit && (found.is_empty() || running.meter.read < last_byte) {
            let Some(end) = running.end(&self.alphabet, text, at, false, cancelled)? else {
                break;
            };
            let start = running.start(&self.alphabet, text, at..end, cancelled)?;
            let is_repeated = found
                .last()
                .is_some_and(|last| start == end && last.end == end);
            if is_repeated {
                // An empty match at the end of the one before does not count.
                let Some(next) = text[at..].chars().next() else {
                    break;
                };
                at += next.len_utf8();
                continue;
            }
            found.push(start..end);
            at = end;
        }
        Ok(found)
    }
}

impl Running {
    /// The end of the leftmost match from `at` on; any match's if `earliest`.
    fn end(
        &mut self,
        alphabet: &Alphabet,
        text: &str,
        at: usize,
        earliest: bool,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, Stop> {
        let Self { forward, meter, .. } = self;
        let mut run = forward.run(alphabet.before(text, at));
        let mut last = None;
        let mut at = at;
        while at < text.len() {
            meter.look(cancelled)?;
            let until = text.ceil_char_boundary(at.saturating_add(automaton::LOOK_BYTES));
            meter.read += (until - at) as u64;
            while at < until {
                let (symbol, length) = alphabet.at(text.as_bytes(), text, at);
                let step = run.step(symbol, meter, cancelled)?;
                if step.is_match {
                    last = Some(at);
                    if earliest {
                        return Ok(last);
                    }
                }
                if step.is_dead {
                    return Ok(last);
                }
                at += length;
            }
        }
        let step = run.step(alphabet.edge(), meter, cancelled)?;
        Ok(if step.is_match { Some(at) } else { last })
    }

    /// The start of the match that ends where `range` does: the first one in it.
    fn start(
        &mut self,
        alphabet: &Alphabet,
        text: &str,
        range: Range<usize>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, Stop> {
        let Self {
            backward, meter, ..
        } = self;
        let mut run = backward.run(alphabet.after(text, range.end));
        let mut at = range.end;
        let mut first = range.end;
        let mut next_look = at;
        loop {
            if at <= next_look {
                meter.look(cancelled)?;
                next_look = at.saturating_sub(automaton::LOOK_BYTES);
            }
            let (symbol, length) = alphabet.symbol_before(text, at);
            let step = run.step(symbol, meter, cancelled)?;
            if step.is_match {
                first = at;
            }
            if step.is_dead || at <= range.start {
                break;
            }
            at -= length;
        }
        meter.read += (range.end - at) as u64;
        Ok(first)
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
