//! Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, and below a session's folder the logs
//! of its subagents. `CLAUDE_CONFIG_DIR` moves `~/.claude`.
//!
//! A line is an event. The lines with messages are read by `contexture_formats`, which also knows
//! attachments, reminders and summaries. Titles are read here, because they are no messages.
//! Snapshots of files, progress and the copy of a tool's result that is only shown are not read.

use std::borrow::Cow;
use std::path::PathBuf;

use contexture_formats::{Format as Wire, LoggedBy, logged_messages};
use serde::Deserialize;
use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, files_with, json, no_project, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;

pub(super) static FORMAT: Format = Format {
    agent: "claude-code",
    find,
    recognise: |sample| {
        let is_line = |line: &Value| {
            let is_chained = line.get("parentUuid").is_some() && line.get("uuid").is_some();
            // Qwen Code has the same members, with Gemini's messages.
            is_chained
                && line.pointer("/message/parts").is_none()
                && line.get("provenance").is_none()
        };
        sample.lines.iter().any(is_line)
    },
    read: Read::Lines {
        read,
        project: "/cwd",
    },
    project_of_path: no_project,
};

fn find(places: &Places<'_>) -> Vec<PathBuf> {
    let mut logs = files_with(
        "jsonl",
        &places
            .folder("CLAUDE_CONFIG_DIR", ".claude")
            .join("projects"),
        6,
    );
    // Newer versions also look here.
    let other = places
        .folder("XDG_CONFIG_HOME", ".config")
        .join("claude/projects");
    logs.extend(files_with("jsonl", &other, 6));
    logs
}

/// The members of a line that are no message.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    summary: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "aiTitle", alias = "customTitle")]
    title: Option<Cow<'a, str>>,
    // Any value, so that the line can be read even if a version writes something other than a
    // boolean.
    #[serde(rename = "isApiErrorMessage")]
    is_error: Option<Value>,
}

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    let value: Value;
    let head = match serde_json::from_str(line) {
        Ok(head) => head,
        Err(_) => {
            value = json(line)?;
            Line::deserialize(&value).map_err(|error| error.to_string())?
        }
    };
    for title in [head.summary, head.title].into_iter().flatten() {
        summary(&title, None, None, out);
    }
    if head.is_error == Some(Value::Bool(true)) {
        // The model never saw it, but users look for it.
        let line = json(line)?;
        Speech::new(Kind::Note, time(&line["timestamp"]), None)
            .content(&line["message"]["content"], out);
        return Ok(());
    }
    if !matches!(
        head.kind.as_deref(),
        Some("user" | "assistant" | "attachment" | "system")
    ) {
        return Ok(());
    }
    for message in logged_messages(Wire::ClaudeCode, line).map_err(|error| error.to_string())? {
        let body = json(&message.json)?;
        let kind = match message.by {
            LoggedBy::Role => kind_of(text_of(&body, "role")),
            LoggedBy::Program => Kind::Note,
            LoggedBy::Summary => Kind::Summary,
        };
        Speech::new(kind, message.time_ms, None).content(&body["content"], out);
    }
    Ok(())
}
