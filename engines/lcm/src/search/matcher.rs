//! Whether a text matches a pattern, and at which places.
//!
//! [`Matcher::new`] compiles a pattern and returns the [`Need`] with it, which tells the index what
//! a text must contain to match. The matcher then decides for each candidate. Text and pattern are
//! compared in the same form: composed, so that both ways to write an accented letter are equal,
//! and folded if case does not matter.
//!
//! [`Matcher::places`] returns places in the original text. Folding changes the length of some
//! characters, so the places are mapped back at the end.

use std::ops::Range;

use contexture_engine_api::printable;
use contexture_pattern::Regex;
use memchr::memmem;

use super::term::Term;
use super::{Mode, Pattern};
use crate::error::StoreError;
use crate::store::MessageBody;
use crate::store::index::need::Need;
use crate::text::fold::{Form, composed, fold};
use crate::text::terms::runs;

/// A compiled pattern, and the form in which it is compared with texts.
#[derive(Debug)]
pub(super) enum Matcher {
    /// Every one of these terms has to occur.
    Terms { terms: Vec<Term>, form: Form },
    /// This text has to occur, anywhere.
    Literal { needle: String, form: Form },
    /// This regular expression has to match.
    Regex(Box<Regex>),
}

impl Matcher {
    /// Compiles a pattern, and also returns what a text must contain to match.
    ///
    /// # Errors
    /// Returns an error if the pattern is empty, has no word in full-text mode, or is an invalid
    /// regular expression. In the last case the message shows the position of the error.
    pub(crate) fn new(pattern: &Pattern) -> Result<(Self, Need), StoreError> {
        let Pattern { mode, text, .. } = pattern;
        let any_case = !pattern.is_case_sensitive();
        if text.is_empty() {
            return Err(StoreError::Query("the pattern is empty".into()));
        }
        match mode {
            Mode::FullText => {
                // Such a pattern would match every text, which is never what the caller wants.
                if runs(&fold(text)).next().is_none() {
                    return Err(StoreError::Query(format!(
                        "the pattern `{}` has no word in it; to find blanks, punctuation or signs, use mode \
                         `literal`",
                        printable(text, 80)
                    )));
                }
                let form = if any_case {
                    Form::Folded
                } else {
                    Form::Composed
                };
                let terms = Term::parse(text, form)?;
                let need = Need::all(terms.iter().map(Term::need).collect());
                Ok((Self::Terms { terms, form }, need))
            }
            Mode::Literal => {
                let form = if any_case {
                    Form::OneCase
                } else {
                    Form::Composed
                };
                let need = Need::of_literal(&fold(text), false, false);
                let needle = form.of(text, &mut String::new()).into_owned();
                Ok((Self::Literal { needle, form }, need))
            }
            Mode::Regex => {
                let regex = Regex::new(&composed(text), any_case)?;
                let need = Need::of_regex(regex.hir());
                Ok((Self::Regex(Box::new(regex)), need))
            }
        }
    }

    /// Whether the index alone decides which texts match, so that no text has to be read.
    pub(crate) fn is_decided_by_index(&self) -> bool {
        match self {
            Self::Terms { terms, form } => {
                *form == Form::Folded && terms.iter().all(Term::is_exact)
            }
            _ => false,
        }
    }

    /// Whether `body` matches. Each term may occur in another part, but a literal or an expression
    /// has to match within one part. `scratch` is a buffer that is reused from body to body.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`] if the search was cancelled, and an error if a regular expression
    /// is too expensive for the text.
    pub(crate) fn is_match(
        &self,
        body: &MessageBody<'_>,
        scratch: &mut String,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let mut missing: Vec<&Term> = match self {
            Self::Terms { terms, .. } => terms.iter().collect(),
            _ => Vec::new(),
        };
        for (_, part) in body.parts() {
            let is_found = match self {
                Self::Terms { form, .. } => {
                    let text = form.of(part, scratch);
                    let mut still = Vec::new();
                    for term in missing {
                        if term.find(&text, 0, cancelled)?.is_none() {
                            still.push(term);
                        }
                    }
                    missing = still;
                    missing.is_empty()
                }
                Self::Literal { needle, form } => {
                    let text = form.of(part, scratch);
                    memmem::find(text.as_bytes(), needle.as_bytes()).is_some()
                }
                Self::Regex(regex) => regex.is_match(&composed(part), cancelled)?,
            };
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the places at which the pattern matches, in order and at most `limit`. They may be
    /// fewer if the matches of a regular expression take too long to count.
    ///
    /// # Errors
    /// The same as for [`is_match`](Self::is_match).
    pub(crate) fn places(
        &self,
        body: &MessageBody<'_>,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Range<usize>>, StoreError> {
        let mut places = Vec::new();
        for (start, part) in body.parts() {
            let found = self.places_in(part, limit - places.len(), cancelled)?;
            let found = found.into_iter();
            places.extend(found.map(|place| start + place.start..start + place.end));
            if places.len() == limit {
                break;
            }
        }
        Ok(places)
    }

    /// Returns the places in one part, in bytes of the original text.
    fn places_in(
        &self,
        text: &str,
        limit: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Vec<Range<usize>>, StoreError> {
        let mut scratch = String::new();
        let form = match self {
            Self::Terms { form, .. } | Self::Literal { form, .. } => *form,
            Self::Regex(_) => Form::Composed,
        };
        let read = &*form.of(text, &mut scratch);
        let mut places: Vec<Range<usize>> = match self {
            Self::Regex(regex) => regex.find_all(read, limit, cancelled)?,
            Self::Terms { terms, .. } => {
                let mut places = Vec::new();
                for term in terms {
                    let (mut from, mut count) = (0, 0);
                    while count < limit
                        && let Some(found) = term.find(read, from, cancelled)?
                    {
                        from = found.end.max(from + 1);
                        count += 1;
                        places.push(found);
                    }
                }
                places
            }
            Self::Literal { needle, .. } => memmem::find_iter(read.as_bytes(), needle)
                .take(limit)
                .map(|at| at..at + needle.len())
                .collect(),
        };
        // Each term contributed its own places in order, so the first ones overall are known only
        // after sorting.
        places.sort_by_key(|place| place.start);
        places.truncate(limit);
        form.in_original(text, &mut places);
        Ok(places)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn places_are_those_in_the_text_as_it_was_said() {
        // Each of these changes its length when it is folded.
        let text = "ẞ\u{212a}elvin İ K\u{212a}ELVIN ẞẞ kelvin";
        let mut pattern = Pattern::new(Mode::Literal, "kelvin");
        pattern.case_sensitive = Some(false);
        let (matcher, _) = Matcher::new(&pattern).unwrap();
        let places = matcher.places(&MessageBody::of_text(text), 10, &|| false);
        let places = places.unwrap().into_iter();
        let shown: Vec<&str> = places.map(|place| &text[place]).collect();
        assert_eq!(shown, ["\u{212a}elvin", "\u{212a}ELVIN", "kelvin"]);
    }
}
