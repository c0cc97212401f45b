//! The words and patterns by which rules are found, and sentences as words.
//!
//! They are in the files of the folder `words`, one for each language and one for what all share. A
//! line `## name: explanation` begins a section. A section has either words and phrases with bars or
//! line breaks between them, or lines with a pattern between slashes. In a pattern, the names of the
//! sections `parts` stand for their patterns, and `{imperatives}` for the words of that section.
//!
//! Patterns are matched against a sentence in lower case with one space between words and a bar
//! after each clause, as [`flat`] writes it. Chinese and Japanese sentences have no words to separate
//! and are matched as they are.

use std::sync::LazyLock;

use hashbrown::HashMap;
use regex::{RegexSet, RegexSetBuilder, SetMatches};

const SHARED_TEXT: &str = include_str!("words/shared.txt");

pub(super) static SHARED: LazyLock<Table> = LazyLock::new(|| Table::of(SHARED_TEXT));

/// The states of a set are built while it is used. With the default of 2 MiB most are built again
/// and again.
const DFA_BYTES: usize = 4 << 20;

/// The sections of a file.
#[derive(Default)]
pub(super) struct Table {
    lists: HashMap<&'static str, Vec<&'static str>>,
    sets: HashMap<&'static str, RegexSet>,
}

impl Table {
    /// Reads the text of a file.
    pub(super) fn of(text: &'static str) -> Self {
        let mut table = Self::default();
        for (name, lines) in sections(text) {
            let words = lines.iter().flat_map(|line| line.split('|'));
            table.lists.insert(name, words.collect());
        }
        let imperatives = table.lists.get("imperatives").map(|words| words.join("|"));
        let imperatives = imperatives.unwrap_or_default();
        let parts = [text, SHARED_TEXT].map(parts).concat();
        let whole = |pattern: &str| {
            let pattern = pattern.to_owned();
            let parts = parts.iter();
            parts
                .fold(pattern, |text, (name, part)| text.replace(name, part))
                .replace("{imperatives}", &imperatives)
        };
        for (name, lines) in sections(text) {
            let patterns = lines.iter().filter_map(|line| slashed(line));
            if patterns.clone().next().is_some() {
                let mut set = RegexSetBuilder::new(patterns.map(whole));
                let set = set.dfa_size_limit(DFA_BYTES).build();
                // A test compiles them all.
                table.sets.insert(name, set.unwrap_or_default());
            }
        }
        table
    }

    /// The words of a section.
    pub(super) fn all(&self, name: &str) -> &[&'static str] {
        debug_assert!(self.lists.contains_key(name), "no section {name}");
        self.lists.get(name).map_or(&[], Vec::as_slice)
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

    /// Whether a sentence matches a pattern of a section.
    pub(super) fn matches(&self, name: &str, sentence: &str) -> bool {
        debug_assert!(self.sets.contains_key(name), "no patterns {name}");
        self.sets
            .get(name)
            .is_some_and(|set| set.is_match(sentence))
    }

    /// Returns which patterns of a section a sentence matches.
    pub(super) fn matching(&self, name: &str, sentence: &str) -> Option<SetMatches> {
        self.sets.get(name).map(|set| set.matches(sentence))
    }

    /// Returns the words of a clause behind those at its beginning that a section lists, such as *and*.
    pub(super) fn behind<'a>(&self, name: &str, clause: &'a str) -> Vec<&'a str> {
        clause
            .split_whitespace()
            .skip_while(|word| self.lists(name, word))
            .collect()
    }
}

/// The sections of a text: the name of each, and its lines.
fn sections(text: &'static str) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    text.split("\n## ").skip(1).map(|section| {
        let mut lines = section.lines();
        let head = lines.next().unwrap_or_default();
        let name = head.split(':').next().unwrap_or_default();
        let is_said = |line: &&str| !line.is_empty() && !line.starts_with('#');
        (name, lines.filter(is_said).collect())
    })
}

/// The names for parts of patterns in a text, each with what it stands for.
fn parts(text: &'static str) -> Vec<(&'static str, &'static str)> {
    let sections = sections(text).filter(|(name, _)| *name == "parts");
    let lines = sections.flat_map(|(_, lines)| lines);
    lines
        .filter_map(|line| {
            let (name, part) = line.split_once(' ')?;
            Some((name, slashed(part)?))
        })
        .collect()
}

fn slashed(line: &str) -> Option<&str> {
    line.strip_prefix('/')?.strip_suffix('/')
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

pub(super) fn clauses(flat: &str) -> impl Iterator<Item = &str> {
    flat.split('|')
        .map(str::trim)
        .filter(|clause| !clause.is_empty())
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
