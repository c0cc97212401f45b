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
}

impl Term {
    /// The words and "phrases" of a query. With `fold_case`, case and accents are ignored.
    ///
    /// # Errors
    /// A double quote is not closed.
    pub(super) fn parse(query: &str, fold_case: bool) -> Result<Vec<Self>, StoreError> {
        let mut terms = Vec::new();
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
            if !parts.is_empty() {
                terms.push(Self { parts });
            }
        }
        Ok(terms)
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
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let (first, others) = self.parts.split_first()?;
        let mut from = from;
        loop {
            let start = from + memmem::find(text.as_bytes().get(from..)?, first.as_bytes())?;
            if let Some(end) = follow(text, start + first.len(), others)
                && is_whole(text, start..end)
            {
                return Some(start..end);
            }
            from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        }
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

/// Whether no word is cut at either end of the range.
fn is_whole(text: &str, range: Range<usize>) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| class(c) == Class::Word);
    let inside = &text[range.clone()];
    let cut_before =
        is_word(inside.chars().next()) && is_word(text[..range.start].chars().next_back());
    let cut_after =
        is_word(inside.chars().next_back()) && is_word(text[range.end..].chars().next());
    !cut_before && !cut_after
}
