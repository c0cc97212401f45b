//! Fingerprints of a model's answers, which prove that a request continues a session.
//!
//! A session's name is no secret: it appears in logs, and many names can be guessed. How a
//! conversation begins is no secret either. Only the model's answers are known to nobody but the
//! session's client. So the gateway stores a [`Fingerprint`] of each answer that it passed on, and
//! looks for the fingerprints in later requests.
//!
//! [`fingerprint`] computes the fingerprint of an answer, and [`Evidence`] adds up what a request
//! shows until it is enough. [`summary_fingerprints`] and [`shows_summary`] do the same for
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

/// The fingerprint of a text, and the number of letters and digits that an attacker would have to
/// guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Fingerprint(pub(crate) u64, u32);

impl Fingerprint {
    /// Whether nobody can guess it, so that it proves a session by itself.
    pub(crate) fn is_unguessable(self) -> bool {
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

    /// Adds the fingerprint of an answer. It counts if the answer is long or contains the id of a
    /// call.
    pub(crate) fn add_answer(&mut self, fingerprint: Fingerprint) {
        self.add(fingerprint, MIN_ANSWER_LETTERS);
    }

    /// Whether the fingerprints together prove that the request continues the session.
    pub(crate) fn is_enough(&self) -> bool {
        self.letters >= MIN_EVIDENCE_LETTERS
    }
}

/// The fingerprint of an answer's wire message. A client may send it back in another form, so white
/// space, punctuation and thinking make no difference. Returns None if the messages contain no
/// answer, or an empty one.
pub(crate) fn fingerprint(messages: &[Message]) -> Option<Fingerprint> {
    let answers = || (messages.iter()).filter(|message| message.role == "assistant");
    let mut hash = Xxh3::new();
    let calls = answers().flat_map(|message| &message.calls);
    let mut is_random = false;
    let mut count = 0;
    for call in calls {
        is_random |= has_random_part(&call.id);
        hash.update(call.id.as_bytes());
        hash.update(call.name.as_bytes());
        count += 1;
    }
    if is_random {
        // Some clients send the text beside the calls back as a separate message, so the calls
        // alone identify the answer.
        return Some(Fingerprint(hash.digest(), UNGUESSABLE));
    }
    let mut letters = 0;
    for message in answers() {
        letters += update(&mut hash, &message.text);
    }
    (count > 0 || letters > 0).then(|| Fingerprint(hash.digest(), letters))
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

/// Whether a call's id has a part that was drawn at random. `toolu_01A09q90qw90lq917835lq9` has
/// one, `call_1` and `functions.bash:12` have not.
fn has_random_part(id: &str) -> bool {
    let parts = id.split(|c: char| !c.is_ascii_alphanumeric());
    let random = parts.filter(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        let least_digits = if part.len() < 16 { 2 } else { 0 };
        let has_cases = part.bytes().any(|b| b.is_ascii_uppercase())
            && part.bytes().any(|b| b.is_ascii_lowercase());
        match part.len() {
            0..4 => false,
            // A short number is a counter, or a time.
            length if digits == length => length >= 16,
            _ => digits >= least_digits && (digits > 0 || has_cases),
        }
    });
    random.map(str::len).sum::<usize>() >= 8
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
