//! Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.jsonl`, and `.json` in older versions. Below
//! `chats/SESSION/` are the logs of subagents. `GEMINI_CLI_HOME` is a home directory with
//! `.gemini`.
//!
//! A message has text, thoughts and tool calls with their results. Versions with lines append a
//! message again when it changes, so the file is read as a whole, and the last version of a message
//! counts. Messages that were rewound stay. Token counts, the display form of results and the logs
//! of typed commands (`logs.json`) are not read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, files_with, json, list, text, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

const AGENT: &str = "gemini";

pub(super) static LINES: Format = Format {
    agent: AGENT,
    find: |places| find(places, "jsonl"),
    recognise: |sample| sample.lines.iter().any(is_head) && sample.has_ending("jsonl"),
    read: Read::Text(lines),
    project_of_path,
};

pub(super) static DOCUMENT: Format = Format {
    agent: AGENT,
    find: |places| find(places, "json"),
    recognise: |sample| {
        sample.begins('{') && sample.names(&["sessionId", "projectHash", "messages"])
    },
    read: Read::Document(document),
    project_of_path,
};

fn is_head(line: &Value) -> bool {
    line.get("sessionId").is_some() && line.get("projectHash").is_some()
}

fn find(places: &Places<'_>, ending: &str) -> Vec<PathBuf> {
    let home = places.folder("GEMINI_CLI_HOME", "");
    logs_below(&home.join(".gemini/tmp"), ending)
}

/// The logs in the folders of projects below a folder.
pub(super) fn logs_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let projects = folders_in(folder);
    projects
        .iter()
        .flat_map(|project| files_with(ending, &project.join("chats"), 1))
        .collect()
}

/// The project's folder, which a file beside its logs names. Older versions name a hash of it only.
pub(super) fn project_of_path(log: &Path) -> Option<String> {
    let chats = log.ancestors().find(|folder| folder.ends_with("chats"))?;
    let project = chats.parent()?;
    match std::fs::read_to_string(project.join(".project_root")) {
        Ok(root) => Some(root.trim().to_owned()),
        Err(_) => Some(project.file_name()?.to_str()?.to_owned()),
    }
}

pub(super) fn document(path: &Path, document: &Value, out: &mut Output<'_>) {
    conversation(path, document, list(&document["messages"]), out);
}

/// Reads the log as a whole, because a line may change any message before it. A line that cannot be
/// read is counted, unless it is the last one and has no line break.
fn lines(path: &Path, log: &str, out: &mut Output<'_>) {
    let mut head = Value::Null;
    // In the order in which they came first, each as it came last.
    let mut messages: Vec<Value> = Vec::new();
    let mut put = |message: Value| {
        let same = |other: &&mut Value| other.get("id") == message.get("id");
        // What is written again is mostly among the last messages, so the search begins there.
        match messages.iter_mut().rev().find(same) {
            Some(earlier) => *earlier = message,
            None => messages.push(message),
        }
    };
    let count = log.lines().count();
    for (at, line) in log
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        match json(line) {
            Ok(line) if line.get("id").is_some() => put(line),
            Ok(line) => {
                let set = line.get("$set").unwrap_or(&line);
                list(&set["messages"]).for_each(|one| put(one.clone()));
                if is_head(set) || set.get("summary").is_some() {
                    head = set.clone();
                }
            }
            // The agent may be writing the last line.
            Err(_) if at + 1 == count && !log.ends_with('\n') => {}
            Err(error) => out.damaged(|| format!("line {} cannot be read: {error}", at + 1)),
        }
    }
    conversation(path, &head, messages.iter(), out);
}

fn conversation<'v>(
    path: &Path,
    head: &Value,
    messages: impl Iterator<Item = &'v Value>,
    out: &mut Output<'_>,
) {
    let session = text(head, "sessionId")
        .or_else(|| path.file_stem()?.to_str())
        .unwrap_or_default();
    let said = text(head, "summary");
    out.conversation(session, project_of_path(path).as_deref(), said);
    if let Some(said) = said {
        summary(said, None, Some("summary"), out);
    }
    for message in messages {
        self::message(message, out);
    }
}

fn message(message: &Value, out: &mut Output<'_>) {
    let time_ms = time(&message["timestamp"]);
    let kind = kind_of(text_of(message, "type"));
    let mut speech = Speech::new(kind, time_ms, text(message, "id"));
    for thought in list(&message["thoughts"]) {
        let part = |name| text_of(thought, name);
        speech.text(
            Kind::Thinking,
            format!("{}\n{}", part("subject"), part("description")).trim(),
            out,
        );
    }
    if let Some(content) = message.get("content") {
        speech.content(content, out);
    }
    for call in list(&message["toolCalls"]) {
        let id = text(call, "id");
        // A call that is saved again with its result keeps the key of its own.
        let mut speech = Speech::new(Kind::Assistant, time(&call["timestamp"]).or(time_ms), id);
        speech.call(text(call, "name").unwrap_or("tool"), &call["args"], id, out);
        match call.get("result").filter(|result| !result.is_null()) {
            Some(result) => speech.content(result, out),
            None => {
                if let Some(shown) = call.get("resultDisplay").filter(|shown| shown.is_string()) {
                    speech.result(text(call, "name"), shown, id, out);
                }
            }
        }
    }
}
