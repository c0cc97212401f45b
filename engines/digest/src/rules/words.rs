//! The words by which rules are compared and told from the words of others, and sentences as words.
//!
//! They are in `words.txt`. A line `## name: explanation` begins a section, which has words and phrases
//! with bars or line breaks between them. Chinese and Japanese sentences have no words to separate and
//! are matched as they are.

use std::sync::LazyLock;

use hashbrown::HashMap;

const TEXT: &str = include_str!("words.txt");

pub(super) static WORDS: LazyLock<Table> = LazyLock::new(Table::read);

/// The words of each section.
pub(super) struct Table(HashMap<&'static str, Vec<&'static str>>);

impl Table {
    fn read() -> Self {
        let words =
            |lines: Vec<&'static str>| lines.iter().flat_map(|line| line.split('|')).collect();
        Self(
            sections()
                .map(|(name, lines)| (name, words(lines)))
                .collect(),
        )
    }

    /// The words of a section.
    pub(super) fn all(&self, name: &str) -> &[&'static str] {
        debug_assert!(self.0.contains_key(name), "no section {name}");
        self.all_if_any(name)
    }

    /// The words of a section. None if there is no such section.
    pub(super) fn all_if_any(&self, name: &str) -> &[&'static str] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a section has this word.
    pub(super) fn lists(&self, name: &str, word: &str) -> bool {
        self.all(name).contains(&word)
    }

    /// Whether a sentence or a clause of [`flat`] words has one of a section.
    pub(super) fn has(&self, name: &str, flat: &str) -> bool {
        self.places(name, flat).next().is_some()
    }

    /// Returns the places in a sentence or a clause of [`flat`] words of those of a section, at most
    /// one for each.
    pub(super) fn places(&self, name: &str, flat: &str) -> impl Iterator<Item = usize> {
        let is_whole = |at: usize, part: &str| {
            let (before, after) = (&flat[..at], &flat[at + part.len()..]);
            (before.is_empty() || before.ends_with(' '))
                && (after.is_empty() || after.starts_with(' '))
        };
        self.all(name).iter().filter_map(move |part| {
            let mut found = flat.match_indices(part).map(|(at, _)| at);
            found.find(|at| is_whole(*at, part))
        })
    }

    /// Whether one of a section is anywhere in a text, also inside a word.
    pub(super) fn is_in(&self, name: &str, text: &str) -> bool {
        self.all(name).iter().any(|part| text.contains(part))
    }

    /// Whether a text begins with one of a section.
    pub(super) fn begins(&self, name: &str, text: &str) -> bool {
        self.all(name).iter().any(|part| text.starts_with(part))
    }

    /// Whether a text ends with one of a section.
    pub(super) fn ends(&self, name: &str, text: &str) -> bool {
        self.all(name).iter().any(|part| text.ends_with(part))
    }
}

/// The name of each section, and its lines.
fn sections() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    TEXT.split("\n## ").skip(1).map(|section| {
        let mut lines = section.lines();
        let head = lines.next().unwrap_or_default();
        let name = head.split(':').next().unwrap_or_default();
        (name, lines.filter(|line| !line.is_empty()).collect())
    })
}

/// The lines of a section.
pub(super) fn rows(name: &str) -> Vec<&'static str> {
    let mut sections = sections();
    let found = sections.find_map(|(found, lines)| (found == name).then_some(lines));
    found.unwrap_or_default()
}

/// Returns a text in lower case, with one kind of apostrophe.
pub(super) fn lowered(text: &str) -> String {
    text.to_lowercase().replace('’', "'")
}

/// Returns the words of a text in one line, each with a space on both sides. Punctuation that ends
/// a clause becomes a bar.
pub(super) fn flat(text: &str) -> String {
    let mut flat = String::from(" ");
    let mut word = String::new();
    let end = |word: &mut String, flat: &mut String| {
        let trimmed = word.trim_matches(['\'', '-']);
        if !trimmed.is_empty() {
            flat.push_str(trimmed);
            flat.push(' ');
        }
        word.clear();
    };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // A point inside a word is part of it: `legacy.css`.
        let is_inside = c == '.' && chars.peek().is_some_and(|next| next.is_alphanumeric());
        if c.is_alphanumeric() || c == '\'' || c == '-' || c == '_' || is_inside {
            word.push(c);
            continue;
        }
        end(&mut word, &mut flat);
        if matches!(
            c,
            ',' | ';' | ':' | '—' | '–' | '(' | ')' | '[' | ']' | '!' | '¡' | '…' | '.' | '?'
        ) && !flat.ends_with("| ")
        {
            flat.push_str("| ");
        }
    }
    end(&mut word, &mut flat);
    flat
}

/// The words of a text, each with a space on both sides.
pub(super) fn spaced(lower: &str) -> String {
    let lower = lower.replace('’', "'");
    let words = lower.split(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '-'));
    let words: Vec<&str> = words
        .filter(|word| word.contains(char::is_alphanumeric))
        .collect();
    format!(" {} ", words.join(" "))
}
