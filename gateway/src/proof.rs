//! Fingerprints of a model's answers, which prove that a request continues a session.
//!
//! A session's name is no secret: it appears in logs, and many names can be guessed. How a
//! conversation begins is no secret either. Only the model's answers are known to nobody but the
//! session's client. So the gateway stores a [`Fingerprint`] of each answer that it passed on, and
//! looks for the fingerprints in later requests.
//!
//! [`shown`] computes the fingerprints of an answer, and [`Evidence`] adds up what a request shows
//! until it is enough. [`summary_fingerprints`] and [`shows_summary`] do the same for
//! summaries, which agents embed in a text of their own. Which proofs count in which case is
//! decided by [`lineage`](crate::lineage).

use std::collections::HashSet;

use contexture::formats::{Format, Message, parse_messages};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The least number of letters and digits of an answer that counts. A shorter one may be anybody's,
/// such as "Done." or the usual reply to a greeting.
const MIN_ANSWER_LETTERS: u32 = 80;
/// How many letters and digits of long texts a request has to show in total.
const MIN_EVIDENCE_LETTERS: u32 = 240;
/// The least number of letters and digits in a line of a summary. A shorter line is a heading.
const MIN_LINE_LETTERS: u32 = 30;
/// The weight of a fingerprint that nobody can guess. One of them is enough.
const UNGUESSABLE: u32 = u32::MAX;
/// How many random words of a text or an id are looked at. It limits the memory for long ones.
const MAX_RANDOM_WORDS: usize = 64;

/// The fingerprint of a text, and the number of letters and digits that an attacker would have to
/// guess. Only the texts are compared.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Fingerprint(pub(crate) u64, u32);

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Fingerprint {}

impl Fingerprint {
    /// The fingerprint of both together, in any order.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0), self.1.saturating_add(other.1))
    }

    /// The same text, which is no evidence.
    pub(crate) fn without_weight(self) -> Self {
        Self(self.0, 0)
    }

    /// Whether this is a random word in the id of a call.
    pub(crate) fn is_unguessable(&self) -> bool {
        self.1 == UNGUESSABLE
    }
}

/// Adds up the fingerprints that a request shows, each one once.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    seen: HashSet<u64>,
    letters: u32,
}

impl Evidence {
    /// Adds a fingerprint if its weight is at least `least`. A fingerprint that was added before is
    /// ignored.
    pub(crate) fn add(&mut self, fingerprint: Fingerprint, least: u32) {
        if fingerprint.1 >= least && self.seen.insert(fingerprint.0) {
            self.letters = self.letters.saturating_add(fingerprint.1);
        }
    }

    /// Adds a fingerprint of an answer. It counts if the answer is long, or if it is a random word
    /// in an id.
    pub(crate) fn add_answer(&mut self, fingerprint: Fingerprint) {
        self.add(fingerprint, MIN_ANSWER_LETTERS);
    }

    /// Whether the fingerprints together prove that the request continues the session.
    pub(crate) fn is_enough(&self) -> bool {
        self.letters >= MIN_EVIDENCE_LETTERS
    }
}

/// What a wire message shows of the model's answers. Empty for a message of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The texts and the arguments of the calls, however they are spread over messages. None if
    /// there are neither texts nor calls.
    pub(crate) said: Option<Fingerprint>,
    /// The random words in the ids of its calls. An agent may write its calls as text, so the random
    /// words of its texts are here as well, with the weight 0: they can show an id, but nobody knows
    /// who drew them.
    pub(crate) ids: Vec<Fingerprint>,
}

impl Shown {
    fn add_said(&mut self, said: Fingerprint) {
        self.said = Some(self.said.map_or(said, |known| known.and(said)));
    }

    fn add_words(&mut self, text: &str, weight: u32) {
        let random = random_words(text).take(MAX_RANDOM_WORDS);
        self.ids
            .extend(random.map(|word| Fingerprint(word, weight)));
    }
}

/// What the messages show of the model's answers. A client may send an answer back in another form:
/// white space, punctuation and thinking make no difference, and the names and ids of calls are not
/// part of what is said.
pub(crate) fn shown(messages: &[Message]) -> Shown {
    let mut shown = Shown::default();
    for message in messages
        .iter()
        .filter(|message| message.role == "assistant")
    {
        for call in &message.calls {
            shown.add_said(fingerprint(&call.arguments));
            shown.add_words(&call.id, UNGUESSABLE);
        }
        let text = fingerprint(&message.text);
        if text.1 > 0 {
            shown.add_said(text);
        }
        shown.add_words(&message.text, 0);
    }
    shown
}

/// The fingerprint of the letters and digits of a text or of a call's arguments. JSON is read first,
/// because clients write it anew.
fn fingerprint(text: &str) -> Fingerprint {
    let json = serde_json::from_str::<Value>(text).map(|value| value.to_string());
    let mut hash = Xxh3::new();
    match update(&mut hash, json.as_deref().unwrap_or(text)) {
        // It adds nothing to other fingerprints.
        0 => Fingerprint(0, 0),
        letters => Fingerprint(hash.digest(), letters),
    }
}

/// Adds the letters and digits of a text to a hash. Returns how many there are.
fn update(hash: &mut Xxh3, text: &str) -> u32 {
    let mut buffer = [0; 4];
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.fold(0, |count, c| {
        hash.update(c.encode_utf8(&mut buffer).as_bytes());
        count + 1
    })
}

/// The hashes of the words of an id or a text that were drawn at random. `toolu_01A09q90qw90lq917835lq9`
/// is one, `call_1` and `functions.bash:12` have none. Only the random parts of a word count, because
/// clients put something before an id or replace its punctuation.
fn random_words(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    words.filter_map(|word| {
        let mut hash = Xxh3::new();
        let mut parts = 0;
        for part in word.split(['_', '-']).filter(|part| is_random(part)) {
            hash.update(part.as_bytes());
            parts += 1;
        }
        (parts > 0).then(|| hash.digest())
    })
}

/// Whether letters and digits look as if they were drawn at random.
fn is_random(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let has_cases = part.bytes().any(|b| b.is_ascii_uppercase())
        && part.bytes().any(|b| b.is_ascii_lowercase());
    match part.len() {
        0..8 => false,
        // A short number is a counter, or a time.
        8..16 => digits >= 2 && digits < part.len(),
        _ => digits > 0 || has_cases,
    }
}

/// The fingerprints of a summary: one for each long line, because agents embed the summary in their
/// own words, and one for each block that the provider encrypted. Items that cannot be parsed are
/// skipped.
pub(crate) fn summary_fingerprints(format: Format, items: &[String]) -> Vec<Fingerprint> {
    let mut fingerprints = Vec::new();
    for item in items {
        fingerprints.extend(encrypted(item));
        let Ok(messages) = parse_messages(format, &[item]) else {
            continue;
        };
        for message in messages {
            fingerprints.extend(lines(&message.text));
        }
    }
    fingerprints
}

/// The fingerprints of the lines of a text that are long enough to identify it.
fn lines(text: &str) -> impl Iterator<Item = Fingerprint> {
    text.lines().filter_map(|line| {
        let mut hash = Xxh3::new();
        let letters = update(&mut hash, line);
        (letters >= MIN_LINE_LETTERS).then(|| Fingerprint(hash.digest(), letters))
    })
}

/// The fingerprints of a wire item's encrypted blocks, which only their provider can read.
fn encrypted(item: &str) -> Vec<Fingerprint> {
    let mut fingerprints = Vec::new();
    if memchr::memmem::find(item.as_bytes(), b"\"encrypted_content\"").is_some()
        && let Ok(value) = serde_json::from_str::<Value>(item)
    {
        collect_encrypted(&value, &mut fingerprints);
    }
    fingerprints
}

/// Collects the fingerprints of all `encrypted_content` members in a JSON value, at any depth.
fn collect_encrypted(value: &Value, fingerprints: &mut Vec<Fingerprint>) {
    match value {
        Value::Array(all) => all
            .iter()
            .for_each(|one| collect_encrypted(one, fingerprints)),
        Value::Object(members) => {
            let text = members.get("encrypted_content").and_then(Value::as_str);
            if let Some(text) = text.filter(|text| text.len() >= MIN_ANSWER_LETTERS as usize) {
                fingerprints.push(Fingerprint(xxh3_64(text.as_bytes()), UNGUESSABLE));
            }
            members
                .values()
                .for_each(|one| collect_encrypted(one, fingerprints));
        }
        _ => {}
    }
}

/// How many messages at the beginning of a request may hold a summary. It limits the work for long
/// requests.
const MAX_HEAD_MESSAGES: usize = 64;

/// Whether a request shows a summary that the model wrote in the session, or a block of the
/// provider's compaction there. `compacted` are the wire items before such a block, and `known` are
/// the fingerprints stored with the session.
pub(crate) fn shows_summary(
    format: Format,
    compacted: &[&str],
    messages: &[&str],
    known: &[Fingerprint],
) -> bool {
    if known.is_empty() {
        return false;
    }
    let known: HashSet<u64> = known.iter().map(|fingerprint| fingerprint.0).collect();
    let mut evidence = Evidence::default();
    let head = messages.iter().take(MAX_HEAD_MESSAGES);
    for raw in compacted.iter().rev().take(MAX_HEAD_MESSAGES).chain(head) {
        let messages = parse_messages(format, &[raw]).unwrap_or_default();
        let said = messages.iter().flat_map(|message| lines(&message.text));
        for fingerprint in encrypted(raw).into_iter().chain(said) {
            if known.contains(&fingerprint.0) {
                evidence.add(fingerprint, MIN_LINE_LETTERS);
            }
        }
        if evidence.is_enough() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
