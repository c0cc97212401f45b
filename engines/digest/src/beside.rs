//! What stands beside a summary in the window, so that the summary need not repeat it.

use hashbrown::HashSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::scan::{Find, Kind, scan};

/// Texts that stand beside a summary in the window, such as the messages that stay and later
/// summaries. A digest does not repeat their facts and their quotes of users.
///
/// Each text is read once, however many digests it stands beside.
#[derive(Debug, Clone, Default)]
pub struct TextsBeside {
    /// The hashes of everything that the texts mention.
    mentioned: HashSet<u64>,
    /// The texts, with quotation marks as they stand in quotes.
    text: String,
}

impl TextsBeside {
    /// Returns this text alone.
    pub fn of(text: &str) -> Self {
        let mut beside = Self::default();
        beside.add(text);
        beside
    }

    /// Adds a text.
    pub fn add(&mut self, text: &str) {
        for_each_mention(text, |mention| {
            self.mentioned.insert(xxh3_64(mention.as_bytes()));
        });
        self.text
            .extend(text.chars().map(|c| if c == '"' { '\'' } else { c }));
        self.text.push('\n');
    }

    /// Whether one of the texts mentions something with this hash.
    pub(crate) fn mentions(&self, hash: u64) -> bool {
        self.mentioned.contains(&hash)
    }

    /// Whether one of the texts has these words, with quotation marks as they stand in quotes.
    pub(crate) fn has(&self, words: &str) -> bool {
        self.text.contains(words)
    }
}

/// Calls `found` for every word in a text, every fact and every part of a path. It may find the same
/// words more than once.
pub(crate) fn for_each_mention(text: &str, mut found: impl FnMut(&str)) {
    for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        // Words of small letters alone are never facts, and most words are such.
        if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            found(word);
        }
    }
    scan(text, |find| {
        if let Find::Fact(kind, range) = find {
            let fact = &text[range];
            found(fact);
            if matches!(kind, Kind::Path | Kind::Url) {
                for (at, _) in fact.match_indices('/') {
                    found(&fact[at + 1..]);
                    found(&fact[at..]);
                    found(&fact[..at]);
                    found(&fact[..=at]);
                }
                // If a path is written, nobody needs its parts as separate facts.
                fact.split('/').for_each(&mut found);
            }
        }
    });
}
