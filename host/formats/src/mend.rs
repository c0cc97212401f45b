//! Fixes request bodies that a provider would reject, after a conversion to another format.
//!
//! [`mend`] is the entry point, and the submodules hold the rules for each provider. A fix that
//! changes nothing that is said is preferred. If there is none, the part is left out. Each
//! change is counted in [`Notes`], so that the user learns of it.
//!
//! A body is fixed message by message. A message that is already valid keeps its bytes, and
//! fixing a fixed body changes nothing.

mod anthropic;
mod chat;
mod gemini;
mod pairs;
mod responses;
mod tools;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::Format;
use super::json::{Edits, Raw};
use super::surrogates::replace_half_surrogates;

/// What was changed or left out, in order of first occurrence, with a count for each kind of
/// change.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<(String, usize)>);

impl Notes {
    /// Counts `times` more changes of the kind `what`. Nothing is recorded if `times` is 0.
    pub(super) fn add(&mut self, what: &str, times: usize) {
        if times == 0 {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| known == what) {
            Some((_, count)) => *count += times,
            None => self.0.push((what.to_owned(), times)),
        }
    }

    fn one(&mut self, what: &str) {
        self.add(what, 1);
    }

    /// Returns one sentence for each kind of change, with its count if it is more than 1.
    pub(super) fn sentences(self) -> Vec<String> {
        let sentence = |(what, count): (String, usize)| match count {
            1 => what,
            count => format!("{what} ({count} times)"),
        };
        self.0.into_iter().map(sentence).collect()
    }
}

/// Returns the request body in a form that the provider of `to` accepts. If the body is not
/// JSON or has no list of messages, it is returned unchanged.
pub(super) fn mend(document: String, to: Format, notes: &mut Notes) -> String {
    // This comes first, because the parser used below rejects halves.
    let whole = replace_half_surrogates(&document, |written, _| {
        written.push_str("\\ufffd");
        notes.one("half of a surrogate pair was replaced by U+FFFD");
    });
    let document = match whole {
        Cow::Borrowed(_) => document,
        Cow::Owned(whole) => whole,
    };
    let Ok(body) = Raw::parse(&document) else {
        return document;
    };
    let list = match body.is_array() {
        true => Some(body),
        false => body.get(to.list_key()).filter(|list| list.is_array()),
    };
    let Some(list) = list else { return document };
    let raws: Vec<&str> = list.elements().map(Raw::text).collect();
    let Some(old) = parsed(&raws) else {
        return document;
    };
    // Claude models are also offered in OpenAI's format, and they accept cache markers there.
    let claude = body
        .get_string("model")
        .is_some_and(|model| model.contains("claude"));
    let new = match to {
        Format::OpenAiChat => chat::mended(old.clone(), claude, notes),
        Format::OpenAiResponses => responses::mended(old.clone(), notes),
        Format::Gemini => gemini::mended(old.clone(), notes),
        _ => anthropic::mended(old.clone(), notes),
    };
    let mut edits = Edits::default();
    if new != old {
        edits.replace(list.span(), written(&old, &raws, &new));
    }
    if let Some(tools) = body.get("tools").filter(|tools| tools.is_array()) {
        tools::edit(tools, to, notes, &mut edits);
    }
    match edits.is_empty() {
        true => document,
        false => edits.apply(&document, 0..document.len()),
    }
}

fn parsed(raws: &[&str]) -> Option<Vec<Value>> {
    raws.iter()
        .map(|raw| serde_json::from_str(raw).ok())
        .collect()
}

/// Returns the JSON of the new list. If an element was in the old list, it keeps its bytes.
fn written(old: &[Value], raws: &[&str], new: &[Value]) -> String {
    let mut next = 0;
    let items: Vec<String> = new
        .iter()
        .map(|value| {
            // Elements keep their order, so the search never has to look back.
            let same = (next..old.len()).find(|at| old[*at] == *value);
            match same {
                Some(at) => {
                    next = at + 1;
                    raws[at].to_owned()
                }
                None => value.to_string(),
            }
        })
        .collect();
    format!("[{}]", items.join(","))
}

/// Removes members whose names begin with `_`. Providers reject such members.
fn drop_private(value: &mut Value, notes: &mut Notes) {
    if let Some(members) = value.as_object_mut() {
        let before = members.len();
        members.retain(|key, _| !key.starts_with('_'));
        notes.add("a private field was left out", before - members.len());
    }
}

/// The maximum length of ids and names that every provider accepts, in bytes.
const LONGEST: usize = 64;

/// Whether a text is neither empty nor longer than [`LONGEST`] and consists of letters, digits,
/// `_` and `-`.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(plain)
}

/// Returns the name unchanged if it is plain. Otherwise returns a plain form that ends in a
/// hash of the original, so that different names stay different.
fn plain_name(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '_' || c == '-' {
        true => c,
        false => '_',
    };
    // Nine bytes are reserved for `_` and the eight digits of the hash.
    let head: String = name.chars().map(plain).take(LONGEST - 9).collect();
    let hash = xxhash_rust::xxh3::xxh3_64(name.as_bytes()) as u32;
    format!("{head}_{hash:08x}")
}

const BAD_NAME: &str = "a tool's name that was too long or had other characters than letters, digits, _ and - was \
                        changed";

/// Replaces the member `name` of `holder` by its plain form.
fn mend_name(holder: &mut Value, notes: &mut Notes) {
    let name = holder["name"].as_str().unwrap_or_default();
    let plain = plain_name(name);
    if plain != name {
        holder["name"] = json!(plain);
        notes.one(BAD_NAME);
    }
}

/// Assigns ids to calls and makes sure that no id occurs twice.
#[derive(Default)]
struct Ids {
    given: HashSet<String>,
    /// For each base, the first number that was not tried yet.
    next: HashMap<String, usize>,
}

impl Ids {
    /// Returns the id itself if it is valid and unused, and otherwise a similar one.
    fn give(&mut self, id: &str, notes: &mut Notes) -> String {
        if is_plain(id) && self.given.insert(id.to_owned()) {
            return id.to_owned();
        }
        notes.one("a call's id that was missing, repeated or had other characters than letters, digits, _ and - \
                   was changed");
        // The base leaves room for a number at its end.
        let base = match id.is_empty() {
            true => "call".to_owned(),
            false => plain_name(id).chars().take(LONGEST - 8).collect(),
        };
        let next = self.next.entry(base.clone()).or_insert(1);
        loop {
            let candidate = match *next {
                1 => base.clone(),
                at => format!("{base}_{at}"),
            };
            *next += 1;
            if self.given.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}

/// The text of the user message that is added if the conversation would start with an assistant
/// message.
const OPENING: &str = "[The conversation begins here.]";
/// The text before a result whose call is missing.
const NO_CALL: &str = "[The result of a tool call that is not in the conversation]";
/// The text before pictures that a tool result or an assistant message cannot hold.
const PICTURES: &str = "[Pictures that belong to what stands before]";

/// Returns the content of a user message with what the message before it cannot hold. `text_type`
/// is the type of a text part.
fn moved(text_type: &str, pictures: Vec<Value>, notes: &mut Notes) -> Value {
    notes.one("a picture was moved into a user message, since no other message can hold it");
    let heading = json!({"type": text_type, "text": PICTURES});
    std::iter::once(heading).chain(pictures).collect()
}

/// The text of a value. It is empty for any value but a string.
fn string_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the text of content, which is a string or a list of parts. Parts without text are
/// skipped.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts
                .iter()
                .filter_map(|part| part.as_str().or(part["text"].as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns the text that replaces a result whose call is missing, because providers reject such
/// a result.
fn orphan(content: &Value) -> String {
    format!("{NO_CALL}\n{}", text_of(content))
}

/// Turns arguments into the JSON string that OpenAI requires. Missing arguments become an empty
/// object.
fn as_string(value: &mut Value) {
    if !value.is_string() {
        *value = match &*value {
            Value::Null => json!("{}"),
            other => json!(other.to_string()),
        };
    }
}
