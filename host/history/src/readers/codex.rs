//! Codex: `~/.codex/sessions/YEAR/MONTH/DAY/rollout-*.jsonl`, and `archived_sessions` beside it.
//! `CODEX_HOME` moves `~/.codex`.
//!
//! The lines with items of the conversation are read by `contexture_formats`. Events that repeat
//! them for the display, token counts and encrypted reasoning are not read.

use std::path::PathBuf;

use contexture_formats::{Format as Wire, LoggedBy, logged_messages};
use serde_json::Value;

use super::content::{Speech, kind_of};
use super::{Format, Read, files_with, json, no_project, text, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;

pub(super) static FORMAT: Format = Format {
    agent: "codex",
    find,
    recognise: |sample| {
        let is_line = |line: &Value| {
            let kind = text_of(line, "type");
            matches!(kind, "session_meta" | "response_item" | "turn_context")
                && line.get("payload").is_some()
        };
        sample.lines.iter().any(is_line)
    },
    read: Read::Lines {
        read,
        project: "/payload/cwd",
    },
    project_of_path: no_project,
};

fn find(places: &Places<'_>) -> Vec<PathBuf> {
    let home = places.folder("CODEX_HOME", ".codex");
    let folders =
        ["sessions", "archived_sessions"].map(|folder| files_with("jsonl", &home.join(folder), 4));
    folders.concat()
}

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    for message in logged_messages(Wire::Codex, line).map_err(|error| error.to_string())? {
        let item = json(&message.json)?;
        let is_injected = text(&item, "role") == Some("user") && is_injected(&item);
        let kind = match message.by {
            LoggedBy::Summary => Kind::Summary,
            LoggedBy::Program => Kind::Note,
            LoggedBy::Role if is_injected => Kind::Note,
            LoggedBy::Role => kind_of(text(&item, "role").unwrap_or("assistant")),
        };
        let mut speech = Speech::new(kind, message.time_ms, None);
        match text(&item, "type") {
            None | Some("message") => speech.content(&item["content"], out),
            Some(_) => speech.content(&item, out),
        }
    }
    Ok(())
}

/// Whether Codex added the message in the user's name. These texts begin with a tag or with the
/// heading that Codex puts before the instructions of a project. If a user begins a prompt with
/// `<`, it is a note, too: it is found, but ranked lower.
fn is_injected(item: &Value) -> bool {
    let first = item["content"][0]["text"].as_str();
    first.is_some_and(|first| {
        first.starts_with('<') || first.starts_with("# AGENTS.md instructions")
    })
}
