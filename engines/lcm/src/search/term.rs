//! The terms of a full-text query: words and phrases, and how to find them in a text.
//!
//! A term is what the user typed between two spaces, so `src/epoch.rs:412` is one term. The index
//! knows words only. [`Term::need`] therefore asks it for the words inside the term, and
//! [`Term::find`] looks for the term itself in the text. A match must not begin or end inside a
//! word. The parts of a phrase may be separated by any white space, since line breaks differ
//! between texts.

mod split;

use std::ops::Range;

use memchr::memmem;

use crate::error::StoreError;
use crate::store::index::need::Need;
use crate::text::fold::{Form, fold};
use crate::text::terms::{Class, class};
use split::split;

/// A word or a phrase of a full-text query, including the separators it was written with.
#[derive(Debug)]
pub(super) struct Term {
    /// The parts of the term, which are separated by white space of any kind and length in a text.
    parts: Vec<String>,
    /// A searcher for the first part, which is built once and used for every text.
    first: memmem::Finder<'static>,
}

/// The maximum number of words of a full-text pattern. Every word is looked for in every text, so
/// the cost grows with their number.
pub(super) const MAX_WORDS: usize = 200;

/// The number of places of a text that are examined between two checks for cancellation.
const PLACES_A_LOOK: usize = 1_000;

impl Term {
    /// Parses the words and phrases of a query, in the form in which they are compared.
    ///
    /// # Errors
    /// Returns an error if a double quote is not closed or if there are more than [`MAX_WORDS`]
    /// words.
    pub(super) fn parse(query: &str, form: Form) -> Result<Vec<Self>, StoreError> {
        let mut terms = Vec::new();
        let mut words = 0;
        for text in split(query)? {
            let parts: Vec<String> = text
                .split_whitespace()
                .map(|part| form.of(part, &mut String::new()).into_owned())
                // A punctuation mark alone folds to nothing that could be searched for.
                .filter(|part| !part.is_empty())
                .collect();
            words += parts.len();
            if let Some(first) = parts.first() {
                let first = memmem::Finder::new(first.as_bytes()).into_owned();
                terms.push(Self { parts, first });
            }
        }
        match words <= MAX_WORDS {
            true => Ok(terms),
            false => Err(StoreError::Query(format!(
                "the pattern has {words} words, and may have {MAX_WORDS}, for a message has to hold all of them: search \
                 for the most telling ones, use mode `literal` to find a text as it is, or ask a `question`"
            ))),
        }
    }

    /// Returns what a text must contain for this term to be in it.
    pub(super) fn need(&self) -> Need {
        Need::all(
            self.parts
                .iter()
                .map(|part| Need::of_literal(&fold(part), true, true))
                .collect(),
        )
    }

    /// Whether [`need`](Self::need) alone decides. It does if the term is one word, or one piece of
    /// a script without spaces.
    pub(super) fn is_exact(&self) -> bool {
        match (self.parts.as_slice(), self.need()) {
            ([part], need @ Need::Word { .. }) => {
                part.chars().all(|c| class(c) == Class::Word) && need.is_exact()
            }
            ([part], Need::Stretch(stretch)) => stretch == *part,
            _ => false,
        }
    }

    /// Returns the first occurrence in a text that begins at or after the byte `from`. Text and
    /// term must be in the same form.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`] if the search was cancelled.
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Range<usize>>, StoreError> {
        let Some((first, others)) = self.parts.split_first() else {
            return Ok(None);
        };
        // A term that begins with a word character can only match at the start of a word. Skipping
        // to the end of the current word avoids examining every position of a long run.
        let begins_word = first.chars().next().is_some_and(is_word);
        let mut from = from;
        for place in 1_usize.. {
            let found = text.as_bytes().get(from..);
            let Some(found) = found.and_then(|rest| self.first.find(rest)) else {
                break;
            };
            let start = from + found;
            if let Some(end) = follow(text, start + first.len(), others)
                && is_whole(text, start..end)
            {
                return Ok(Some(start..end));
            }
            if place.is_multiple_of(PLACES_A_LOOK) && cancelled() {
                return Err(StoreError::Cancelled);
            }
            let mut rest = text[start..].char_indices();
            let next = match begins_word {
                true => rest.find(|(_, c)| !is_word(*c)),
                false => rest.nth(1),
            };
            from = start + next.map_or(text.len() - start, |(at, _)| at);
        }
        Ok(None)
    }
}

/// Returns the end of a phrase whose remaining parts should start after white space at `at`. None
/// if they do not.
fn follow(text: &str, mut at: usize, parts: &[String]) -> Option<usize> {
    for part in parts {
        let rest = &text[at..];
        let trimmed = rest.trim_start();
        if trimmed.len() == rest.len() || !trimmed.starts_with(part.as_str()) {
            return None;
        }
        at = text.len() - trimmed.len() + part.len();
    }
    Some(at)
}

fn is_word(c: char) -> bool {
    class(c) == Class::Word
}

/// Whether the range cuts no word in two at either end.
fn is_whole(text: &str, range: Range<usize>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(is_word);
    let inside = &text[range.clone()];
    let cut_before =
        is_word(inside.chars().next()) && is_word(text[..range.start].chars().next_back());
    let cut_after =
        is_word(inside.chars().next_back()) && is_word(text[range.end..].chars().next());
    !cut_before && !cut_after
}
