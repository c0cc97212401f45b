//! The terms of a full-text query: words and phrases, and how to find them in a text.

mod split;

use std::ops::Range;

use memchr::memmem;

use crate::error::StoreError;
use crate::store::index::need::Need;
use crate::text::fold::{composed, fold};
use crate::text::terms::{Class, class};
use split::split;

/// A word or a phrase of a full-text query, with whatever separators it was written with.
#[derive(Debug)]
pub(super) struct Term {
    /// Separated by whitespace of any kind and length.
    parts: Vec<String>,
    /// Finds the first of them.
    first: memmem::Finder<'static>,
}

/// Every word of a full-text pattern is looked for in every text, so a pattern has so many at most.
pub(super) const MAX_WORDS: usize = 200;

/// How many places of a text are looked at between two looks whether the search is cancelled.
const PLACES_A_LOOK: usize = 1_000;

impl Term {
    /// The words and "phrases" of a query. With `fold_case`, case and accents are ignored.
    ///
    /// # Errors
    /// A double quote is not closed; or there are more than [`MAX_WORDS`].
    pub(super) fn parse(query: &str, fold_case: bool) -> Result<Vec<Self>, StoreError> {
        let mut terms = Vec::new();
        let mut words = 0;
        for text in split(query)? {
            let parts: Vec<String> = text
                .split_whitespace()
                .map(|part| match fold_case {
                    true => fold(part),
                    false => composed(part).into_owned(),
                })
                // A punctuation mark alone cannot be searched for.
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

    /// What a text must hold to contain this term.
    pub(super) fn need(&self) -> Need {
        Need::all(
            self.parts
                .iter()
                .map(|part| Need::of_literal(&fold(part), true, true))
                .collect(),
        )
    }

    /// Whether [`need`](Self::need) alone decides: the term is one word, or one stretch of a spaceless
    /// script.
    pub(super) fn is_exact(&self) -> bool {
        match (self.parts.as_slice(), self.need()) {
            ([part], need @ Need::Word { .. }) => {
                part.chars().all(|c| class(c) == Class::Word) && need.is_exact()
            }
            ([part], Need::Stretch(stretch)) => stretch == *part,
            _ => false,
        }
    }

    /// Its first occurrence in a text at or after `from`.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`].
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<Range<usize>>, StoreError> {
        let Some((first, others)) = self.parts.split_first() else {
            return Ok(None);
        };
        // One that begins with a letter can only begin where a word does.
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

/// The end of a phrase whose remaining parts start at `at`.
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

/// Whether no word is cut at either end of the range.
fn is_whole(text: &str, range: Range<usize>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(is_word);
    let inside = &text[range.clone()];
    let cut_before =
        is_word(inside.chars().next()) && is_word(text[..range.start].chars().next_back());
    let cut_after =
        is_word(inside.chars().next_back()) && is_word(text[range.end..].chars().next());
    !cut_before && !cut_after
}
