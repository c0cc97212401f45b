//! What shows that a request goes on with a session, beside the session's name.
//!
//! A name is no secret: it stands in logs, and many can be guessed. What a conversation begins with is no secret either.
//! What only the session has seen is what the model answered in it. So the gateway remembers of each session a
//! fingerprint of the answers that it passed on, and looks for them in the request. [`Proof`] lists what counts.

use std::collections::HashSet;

use contexture::formats::{Format, Message, parse_messages};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A text with fewer letters and digits may be anybody's: "Done.", or what every model says to a greeting.
const LONG: u32 = 80;
/// How many letters and digits of long texts a request has to show.
const ENOUGH: u32 = 240;
/// A line of a summary with fewer letters and digits is a heading.
const LINE: u32 = 30;
/// The weight of what nobody can guess.
const UNGUESSABLE: u32 = u32::MAX;

/// The fingerprint of something that was said, and how hard it is to guess.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Mark(pub(crate) u64, u32);

/// Adds up what was shown, each mark once.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    seen: HashSet<u64>,
    letters: u32,
}

impl Shown {
    pub(crate) fn add(&mut self, mark: Mark, least: u32) {
        if mark.1 >= least && self.seen.insert(mark.0) {
            self.letters = self.letters.saturating_add(mark.1);
        }
    }

    /// Adds an answer, which counts if it is long or holds the id of a call.
    pub(crate) fn add_answer(&mut self, mark: Mark) {
        self.add(mark, LONG);
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.letters >= ENOUGH
    }
}

/// The mark of an answer's wire message. A client may send it back in another form: its white space, punctuation and
/// thinking make no difference. None if it is no answer, or says nothing.
pub(crate) fn mark(messages: &[Message]) -> Option<Mark> {
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
        // The text beside the calls may come back as a message of its own.
        return Some(Mark(hash.digest(), UNGUESSABLE));
    }
    let mut letters = 0;
    for message in answers() {
        letters += update(&mut hash, &message.text);
    }
    (count > 0 || letters > 0).then(|| Mark(hash.digest(), letters))
}

/// Adds the letters and digits of a text to a hash. Returns their number.
fn update(hash: &mut Xxh3, text: &str) -> u32 {
    let mut buffer = [0; 4];
    let letters = text.chars().filter(|c| c.is_alphanumeric());
    letters.fold(0, |count, c| {
        hash.update(c.encode_utf8(&mut buffer).as_bytes());
        count + 1
    })
}

/// Whether a call's id has a part that was drawn at random: `toolu_01A09q90qw90lq917835lq9` has, `call_1` and
/// `functions.bash:12` have not.
fn has_random_part(id: &str) -> bool {
    let parts = id.split(|c: char| !c.is_ascii_alphanumeric());
    let random = parts.filter(|part| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        let least_digits = if part.len() < 16 { 2 } else { 0 };
        let has_cases = part.bytes().any(|b| b.is_ascii_uppercase())
            && part.bytes().any(|b| b.is_ascii_lowercase());
        match part.len() {
            0..4 => false,
            // A number that is counted up, or a time.
            length if digits == length => length >= 16,
            _ => digits >= least_digits && (digits > 0 || has_cases),
        }
    });
    random.map(str::len).sum::<usize>() >= 8
}

/// The marks of a summary: its lines, because agents put it into words of their own, and the blocks that a provider
/// encrypted.
pub(crate) fn summary_marks(format: Format, items: &[String]) -> Vec<Mark> {
    let mut marks = Vec::new();
    for item in items {
        marks.extend(encrypted(item));
        let Ok(messages) = parse_messages(format, &[item]) else {
            continue;
        };
        for message in messages {
            marks.extend(lines(&message.text));
        }
    }
    marks
}

/// The marks of the lines of a text that are long enough to be nobody else's.
fn lines(text: &str) -> impl Iterator<Item = Mark> {
    text.lines().filter_map(|line| {
        let mut hash = Xxh3::new();
        let letters = update(&mut hash, line);
        (letters >= LINE).then(|| Mark(hash.digest(), letters))
    })
}

/// The marks of a wire item's blocks that only their provider can read.
fn encrypted(item: &str) -> Vec<Mark> {
    let mut marks = Vec::new();
    if memchr::memmem::find(item.as_bytes(), b"\"encrypted_content\"").is_some()
        && let Ok(value) = serde_json::from_str::<Value>(item)
    {
        collect_encrypted(&value, &mut marks);
    }
    marks
}

fn collect_encrypted(value: &Value, marks: &mut Vec<Mark>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect_encrypted(one, marks)),
        Value::Object(members) => {
            let text = members.get("encrypted_content").and_then(Value::as_str);
            if let Some(text) = text.filter(|text| text.len() >= LONG as usize) {
                marks.push(Mark(xxh3_64(text.as_bytes()), UNGUESSABLE));
            }
            members
                .values()
                .for_each(|one| collect_encrypted(one, marks));
        }
        _ => {}
    }
}

/// How many messages at the head of a request may hold a summary.
const HEAD: usize = 64;

/// Whether a request shows a summary that the model wrote in the session, or the block of a compaction that the
/// provider made there. `compacted` are the wire items up to such a block.
pub(crate) fn shows_summary(
    format: Format,
    compacted: &[&str],
    messages: &[&str],
    known: &[Mark],
) -> bool {
    if known.is_empty() {
        return false;
    }
    let known: HashSet<u64> = known.iter().map(|mark| mark.0).collect();
    let mut shown = Shown::default();
    let head = messages.iter().take(HEAD);
    for raw in compacted.iter().rev().take(HEAD).chain(head) {
        let messages = parse_messages(format, &[raw]).unwrap_or_default();
        let said = messages.iter().flat_map(|message| lines(&message.text));
        for mark in encrypted(raw).into_iter().chain(said) {
            if known.contains(&mark.0) {
                shown.add(mark, LINE);
            }
        }
        if shown.is_enough() {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn ids_that_somebody_could_count_are_not_random() {
        for id in [
            "toolu_01A09q90qw90lq917835lq9",
            "call_8f14e45fceea167a5a36dedd",
            "call_x8k2j1lm",
            "call_tOPqWmAbCdEfGhIjKlMnOpQr",
            "chatcmpl-tool-1f0c6e2b9d",
            "0f2c9c3e-7a51-4d0e-9f53-2f6a2f3f9b11",
            "D681PevKs",
        ] {
            assert!(has_random_part(id), "{id}");
        }
        for id in [
            "",
            "call_1",
            "call_0001",
            "functions.bash:12",
            "tool_call",
            "call",
            "run_command_3",
            "1",
            "12345678",
            "Functions.ReadFile",
            "toolu_1",
            "get_weather",
        ] {
            assert!(!has_random_part(id), "{id}");
        }
    }

    #[test]
    fn an_answer_in_another_form_has_the_same_mark() {
        let mark_of = |format, raw: &str| mark(&parse_messages(format, &[raw]).unwrap()).unwrap();
        let (chat, anthropic) = (Format::OpenAiChat, Format::Anthropic);
        let plain = mark_of(
            chat,
            r#"{"role":"assistant","content":"The test,\n- it passes. "}"#,
        );
        for (format, raw) in [
            (
                chat,
                r#"{"role":"assistant","content":[{"type":"text","text":"The test - it passes"}]}"#,
            ),
            (
                anthropic,
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s"},
                {"type":"text","text":"The test, it passes.","cache_control":{"type":"ephemeral"}}]}"#,
            ),
        ] {
            assert_eq!(mark_of(format, raw), plain, "{raw}");
        }
        assert_ne!(
            mark_of(chat, r#"{"role":"assistant","content":"The test fails."}"#),
            plain
        );
        assert!(
            mark(&parse_messages(chat, &[r#"{"role":"user","content":"Hi"}"#]).unwrap()).is_none()
        );
    }

    #[test]
    fn a_summary_is_known_in_the_agents_words_and_by_the_providers_block() {
        let format = Format::OpenAiResponses;
        let said = |text: &str| {
            serde_json::json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
                .to_string()
        };
        let line = |number: u64| {
            format!(
                "- step {number} found {} faults in the parser and mended them",
                number * 37
            )
        };
        let lines: Vec<String> = (1..12).map(line).collect();
        let answer = said(&format!(
            "1. Primary Request and Intent:\n{}",
            lines.join("\n")
        ));
        let block =
            serde_json::json!({"type": "compaction", "encrypted_content": "gAAAA".repeat(40)})
                .to_string();
        let known = summary_marks(format, &[answer, block.clone()]);
        let shows = |compacted: &[&str], text: &str| {
            shows_summary(format, compacted, &[&said(text)], &known)
        };
        assert!(shows(
            &[],
            &format!("Another model wrote:\n\n  {}\nGo on.", lines.join("\n  "))
        ));
        assert!(shows(&[&block], "Go on."));
        assert!(!shows(
            &[],
            "1. Primary Request and Intent:\n2. Pending Tasks:\nGo on."
        ));
        assert!(!shows(&[], &lines[..3].join("\n")));
        assert!(!shows(&[], &lines[0].repeat(20)));
        assert!(!shows(&[&block.replace("gAAAA", "gAAAB")], "Go on."));
        assert!(!shows_summary(format, &[&block], &[&said("Go on.")], &[]));
    }
}
