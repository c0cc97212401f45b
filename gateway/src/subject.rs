//! Finds out what a conversation is about, so that a person recognizes it in the list of the status
//! page: the first words of its user, and the folder that the agent works in.
//!
//! Both are read from the request with [`Subject::of`]. Agents put text of their own before the
//! user's words, such as reminders in tags, which is left out. The folder is known if the agent
//! names it in a form that is listed in `FOLDERS`.
//!
//! A subject is text of a conversation. It is stored only if the session's messages are, and
//! otherwise stays in memory, in [`Subjects`].

use std::collections::HashMap;
use std::sync::Mutex;

use contexture::formats::WireBody;
use contexture::{lock, mask_secrets};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most characters of a title.
const TITLE_CHARS: usize = 90;
/// The most bytes of a folder's path. More is no path.
const MAX_FOLDER_BYTES: usize = 300;
/// How many messages are searched for the user's first words and for the folder.
const MAX_MESSAGES: usize = 8;
/// How many sessions in memory have their subject remembered. If there are more, all are forgotten,
/// and each is read again with the next request of its session.
const MAX_SESSIONS: usize = 10_000;

/// The words before the path of the folder that an agent works in.
const FOLDERS: [&str; 6] = [
    // Claude Code, OpenCode
    "orking directory: ",
    // Codex
    "<cwd>",
    // Cline
    "Current Working Directory (",
    // Gemini CLI, Qwen Code
    "I'm currently working in the directory: ",
    r"**Workspace Directories:**\n  - ",
    // Goose
    "current directory: ",
];

/// Tags around what a user really said. All others that begin a text are the agent's own.
const USERS_TAGS: [&str; 4] = ["task", "user_message", "user_query", "feedback"];

/// The beginnings of texts that are not the user's, besides those in tags.
const NOT_USERS: [&str; 2] = ["# AGENTS.md instructions", "[Request interrupted"];

/// What a conversation is about, as far as its first messages tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Subject {
    /// The first words of the user, on one line. Secrets are masked.
    pub(crate) title: Option<String>,
    /// The folder that the agent works in, as the agent names it.
    pub(crate) project: Option<String>,
}

impl Subject {
    /// Reads the subject from a request. Empty if the request does not tell.
    pub(crate) fn of(wire: &WireBody<'_>) -> Self {
        let first = wire.messages.iter().take(MAX_MESSAGES);
        let title = first
            .filter_map(|raw| serde_json::from_str::<Value>(raw).ok())
            .filter(|message| message["role"] == "user")
            .find_map(|message| texts(&message).find_map(title_of));
        Self {
            title,
            project: folder(wire),
        }
    }
}

/// The texts of a message's content, or of Gemini's parts, in order. Results of tools in other messages
/// are left out.
pub(crate) fn texts(message: &Value) -> impl Iterator<Item = &str> {
    let content = &message["content"];
    let whole = content.as_str().into_iter();
    let blocks = content.as_array().or_else(|| message["parts"].as_array());
    let blocks = blocks.into_iter().flatten();
    whole.chain(blocks.filter_map(|block| block["text"].as_str()))
}

/// The first words of a text that its user wrote, or None if an agent wrote all of it.
fn title_of(text: &str) -> Option<String> {
    let mut rest = text.trim_start();
    while let Some(inside) = rest.strip_prefix('<') {
        let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || "_- ".contains(c)));
        let tag = &inside[..end.unwrap_or(inside.len())];
        let Some(after) = inside[tag.len()..].strip_prefix('>') else {
            break;
        };
        rest = match USERS_TAGS.contains(&tag) {
            true => after,
            // An agent may cut off a long text before the tag that ends it.
            false => after
                .split_once(&format!("</{tag}>"))
                .map_or("", |(_, rest)| rest),
        }
        .trim_start();
    }
    if NOT_USERS.iter().any(|start| rest.starts_with(start)) {
        return None;
    }
    // A text may have megabytes, and only its first words matter. Their tag may end just after them.
    let near = &rest[..rest.floor_char_boundary(5 * TITLE_CHARS)];
    let end = USERS_TAGS
        .iter()
        .find_map(|tag| near.find(&format!("</{tag}>")));
    let start = &near[..end.unwrap_or(near.len())];
    let start = &start[..start.floor_char_boundary(4 * TITLE_CHARS)];
    let masked = mask_secrets(start);
    let words: Vec<&str> = masked.split_whitespace().collect();
    let words = words.join(" ");
    if words.is_empty() {
        return None;
    }
    Some(shortened(&words))
}

/// The beginning of a text up to a space, with an ellipsis if something is left out.
fn shortened(words: &str) -> String {
    let Some((cut, _)) = words.char_indices().nth(TITLE_CHARS) else {
        return words.to_owned();
    };
    let start = &words[..cut];
    // Languages without spaces are cut anywhere.
    let end = start.rfind(' ').filter(|at| *at > cut / 2).unwrap_or(cut);
    format!("{}…", &words[..end])
}

/// The folder that the system prompt or one of the first messages names.
fn folder(wire: &WireBody<'_>) -> Option<String> {
    let first = wire.messages.iter().take(MAX_MESSAGES);
    let parts = wire.system.iter().chain(&wire.system_messages).chain(first);
    let mut places = parts.flat_map(|raw| {
        FOLDERS.iter().filter_map(|words| {
            let at = memmem::find(raw.as_bytes(), words.as_bytes())?;
            raw.get(at + words.len()..)
        })
    });
    places.find_map(path)
}

/// The path at the beginning of a part of a JSON string. Ends at a line break, a quote, a tag or a
/// parenthesis.
fn path(raw: &str) -> Option<String> {
    let mut path = String::new();
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' | '<' | ')' | '`' => break,
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | '/')) => path.push(escaped),
                _ => break,
            },
            c => path.push(c),
        }
        if path.len() > MAX_FOLDER_BYTES {
            return None;
        }
    }
    let path = path.trim();
    let is_path = path.contains(['/', '\\']);
    is_path.then(|| mask_secrets(path).into_owned())
}

/// The subjects of sessions whose messages are not stored.
#[derive(Debug, Default)]
pub(crate) struct Subjects(Mutex<HashMap<String, Subject>>);

impl Subjects {
    pub(crate) fn of(&self, session: &str) -> Option<Subject> {
        let all = lock(&self.0);
        all.get(session).cloned()
    }

    pub(crate) fn put(&self, session: &str, subject: Subject) {
        let mut all = lock(&self.0);
        if all.len() >= MAX_SESSIONS {
            all.clear();
        }
        all.insert(session.to_owned(), subject);
    }

    pub(crate) fn forget(&self, session: &str) {
        let mut all = lock(&self.0);
        all.remove(session);
    }
}

#[cfg(test)]
mod tests;
