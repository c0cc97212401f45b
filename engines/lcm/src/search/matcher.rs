//! Whether a text matches, and where.

use std::ops::Range;

use memchr::memmem;

use super::{Mode, Pattern};
use crate::error::StoreError;
use crate::index::fold::{fold, fold_into, in_original};
use crate::index::need::Need;
use crate::index::terms::{Class, class, runs};
use crate::store::Body;

/// A pattern, ready to be tried on texts.
#[derive(Debug)]
pub(crate) enum Matcher {
    /// Every one of these.
    Terms { terms: Vec<Term>, fold: bool },
    /// This, anywhere.
    Literal { needle: String, fold: bool },
    /// A regular expression.
    Regex(Box<regex::Regex>),
}

/// A word or a phrase of a full-text query, with whatever separators it was written with.
#[derive(Debug)]
pub(crate) struct Term {
    /// Separated by whitespace of any kind and length.
    parts: Vec<String>,
}

impl Matcher {
    /// Compiles a pattern; what a text must hold to match it comes with it.
    ///
    /// # Errors
    /// A pattern that is empty, or no regular expression, with the place where it is wrong.
    pub(crate) fn new(pattern: &Pattern) -> Result<(Self, Need), StoreError> {
        let Pattern { mode, text, .. } = pattern;
        let fold_case = !pattern.is_case_sensitive();
        if text.is_empty() {
            return Err(StoreError::Query("the pattern is empty".into()));
        }
        match mode {
            Mode::FullText => {
                if runs(text).next().is_none() {
                    return Err(StoreError::Query(format!(
                        "the pattern `{text}` has no word in it; to find blanks, punctuation or signs, use mode \
                         `literal`"
                    )));
                }
                let terms = Term::parse(text, fold_case)?;
                let need = Need::all(terms.iter().map(Term::need).collect());
                let terms = Self::Terms {
                    terms,
                    fold: fold_case,
                };
                Ok((terms, need))
            }
            Mode::Literal => {
                let folded = fold(text);
                let need = Need::of_literal(&folded, false, false);
                let literal = Self::Literal {
                    needle: if fold_case { folded } else { text.clone() },
                    fold: fold_case,
                };
                Ok((literal, need))
            }
            Mode::Regex => {
                let hir = regex_syntax::ParserBuilder::new()
                    .case_insensitive(fold_case)
                    .build()
                    .parse(text)
                    .map_err(|error| StoreError::Pattern(error.to_string()))?;
                let regex = regex::RegexBuilder::new(text)
                    .case_insensitive(fold_case)
                    .build()
                    .map_err(|error| match error {
                        regex::Error::CompiledTooBig(_) => StoreError::Pattern(format!(
                            "the regular expression `{text}` is too large once it is compiled: make its counted \
                             repetitions and its classes smaller"
                        )),
                        other => StoreError::Pattern(other.to_string()),
                    })?;
                Ok((Self::Regex(Box::new(regex)), Need::of_regex(&hir)))
            }
        }
    }

    /// Whether the index alone decides.
    pub(crate) fn is_decided_by_index(&self) -> bool {
        match self {
            Self::Terms { terms, fold: true } => terms.iter().all(|term| term.is_exact()),
            _ => false,
        }
    }

    /// Whether `body` matches: each of the terms, the literal or the expression in any one of its parts.
    /// `scratch` is reused from body to body.
    pub(crate) fn is_match(&self, body: &Body<'_>, scratch: &mut String) -> bool {
        let mut parts = body.parts().map(|(_, part)| part);
        match self {
            Self::Terms { terms, fold } => {
                let mut missing: Vec<&Term> = terms.iter().collect();
                parts.any(|part| {
                    let text = folded(part, *fold, scratch);
                    missing.retain(|term| term.find(text, 0).is_none());
                    missing.is_empty()
                })
            }
            Self::Literal { needle, fold } => parts.any(|part| {
                let text = folded(part, *fold, scratch);
                memmem::find(text.as_bytes(), needle.as_bytes()).is_some()
            }),
            Self::Regex(regex) => parts.any(|part| regex.is_match(part)),
        }
    }

    /// The places where it matches, in order; at most `limit`.
    pub(crate) fn places(&self, body: &Body<'_>, limit: usize) -> Vec<Range<usize>> {
        let mut places = Vec::new();
        for (start, part) in body.parts() {
            let found = self.places_in(part, limit - places.len()).into_iter();
            places.extend(found.map(|place| start + place.start..start + place.end));
            if places.len() == limit {
                break;
            }
        }
        places
    }

    /// The places in one part, likewise.
    fn places_in(&self, text: &str, limit: usize) -> Vec<Range<usize>> {
        let mut scratch = String::new();
        let mut places: Vec<Range<usize>> = match self {
            Self::Regex(regex) => {
                return regex
                    .find_iter(text)
                    .take(limit)
                    .map(|found| found.range())
                    .collect();
            }
            Self::Terms { terms, fold } => {
                let text = folded(text, *fold, &mut scratch);
                terms
                    .iter()
                    .flat_map(|term| {
                        let mut from = 0;
                        std::iter::from_fn(move || {
                            let found = term.find(text, from)?;
                            from = found.end.max(from + 1);
                            Some(found)
                        })
                        .take(limit)
                    })
                    .collect()
            }
            Self::Literal { needle, fold } => {
                let text = folded(text, *fold, &mut scratch);
                memmem::find_iter(text.as_bytes(), needle)
                    .take(limit)
                    .map(|at| at..at + needle.len())
                    .collect()
            }
        };
        places.sort_by_key(|place| place.start);
        places.truncate(limit);
        if matches!(
            self,
            Self::Terms { fold: true, .. } | Self::Literal { fold: true, .. }
        ) {
            in_original(text, &mut places);
        }
        places
    }
}

fn folded<'t>(text: &'t str, fold: bool, scratch: &'t mut String) -> &'t str {
    if !fold {
        return text;
    }
    fold_into(text, scratch);
    scratch
}

impl Term {
    /// The words and "phrases" of a query.
    fn parse(query: &str, fold_case: bool) -> Result<Vec<Self>, StoreError> {
        let mut terms = Vec::new();
        let mut rest = query.trim_start();
        while !rest.is_empty() {
            let end = phrase_end(rest);
            if rest.starts_with('"') && !rest[1..].contains('"') {
                let before = query[..query.len() - rest.len()].chars().count();
                return Err(StoreError::Pattern(format!(
                    "a quote is opened and never closed:\n    {}\n    {}^\nclose it, or use mode `literal` to find \
                     a quotation mark",
                    query.replace(char::is_whitespace, " "),
                    " ".repeat(before)
                )));
            }
            let (term, after) = match end {
                Some(end) => (&rest[1..end], &rest[end + 1..]),
                None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
            };
            let parts: Vec<String> = term
                .split_whitespace()
                .map(|part| {
                    if fold_case {
                        fold(part)
                    } else {
                        part.to_owned()
                    }
                })
                .collect();
            if !parts.is_empty() {
                terms.push(Self { parts });
            }
            rest = after.trim_start();
        }
        Ok(terms)
    }

    /// What a text must hold to have this term in it.
    fn need(&self) -> Need {
        Need::all(
            self.parts
                .iter()
                .map(|part| Need::of_literal(&fold(part), true, true))
                .collect(),
        )
    }

    /// Whether a text that holds what [`need`](Self::need) says has this term for sure: it is one word,
    /// or one stretch of a spaceless script.
    fn is_exact(&self) -> bool {
        match (self.parts.as_slice(), self.need()) {
            ([part], need @ Need::Word { .. }) => {
                part.chars().all(|c| class(c) == Class::Word) && need.is_exact()
            }
            ([part], Need::Stretch(stretch)) => stretch == *part,
            _ => false,
        }
    }

    /// Where it first stands in a text at or after `from`.
    fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
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

/// Where the closing quote of a phrase stands that begins a query.
fn phrase_end(query: &str) -> Option<usize> {
    let inside = query.strip_prefix('"')?;
    inside.match_indices('"').map(|(at, _)| at + 1).find(|end| {
        query[end + 1..]
            .chars()
            .next()
            .is_none_or(char::is_whitespace)
    })
}

/// Where the further parts of a phrase end that continues at `at`.
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
        let places = matcher.places(&Body::of_text(text), 10).into_iter();
        let shown: Vec<&str> = places.map(|place| &text[place]).collect();
        assert_eq!(shown, ["\u{212a}elvin", "\u{212a}ELVIN", "kelvin"]);
    }
}
