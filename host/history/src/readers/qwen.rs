//! Qwen Code: `~/.qwen/projects/PROJECT/chats/SESSION.jsonl`, and
//! `~/.qwen/tmp/PROJECT/chats/*.json` in older versions, which have Gemini CLI's format.
//! `QWEN_RUNTIME_DIR` or `QWEN_HOME` moves `~/.qwen`.
//!
//! A line is a record with a message in Gemini's format. Of the records of the system, summaries of
//! compressions, titles and typed commands are read. Telemetry, snapshots of files and the display
//! form of results are not.

use std::path::PathBuf;

use serde_json::Value;

use super::content::{Speech, readable, time};
use super::{Format, Read, files_with, gemini, json, no_project, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

const AGENT: &str = "qwen";

pub(super) static FORMAT: Format = Format {
    agent: AGENT,
    find: |places| {
        let projects = folders_in(&home(places).join("projects"));
        projects
            .iter()
            .flat_map(|project| files_with("jsonl", &project.join("chats"), 2))
            .collect()
    },
    recognise: |sample| {
        let is_line = |line: &Value| {
            line.get("parentUuid").is_some()
                && (line.pointer("/message/parts").is_some() || line.get("provenance").is_some())
        };
        sample.lines.iter().any(is_line)
    },
    read: Read::Lines {
        read,
        project: "/cwd",
    },
    project_of_path: no_project,
};

pub(super) static DOCUMENT: Format = Format {
    agent: AGENT,
    find: |places| gemini::logs_below(&home(places).join("tmp"), "json"),
    // Without its place it cannot be told from one of Gemini CLI.
    recognise: |_| false,
    read: Read::Document(gemini::document),
    project_of_path: gemini::project_of_path,
};

fn home(places: &Places<'_>) -> PathBuf {
    let runtime = places.named("QWEN_RUNTIME_DIR");
    runtime.unwrap_or_else(|| places.folder("QWEN_HOME", ".qwen"))
}

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    let record = json(line)?;
    let subtype = text_of(&record, "subtype");
    let kind = match text_of(&record, "type") {
        "user" if !matches!(subtype, "" | "mid_turn_user_message" | "at_command") => Kind::Note,
        "user" => Kind::User,
        "assistant" => Kind::Assistant,
        "tool_result" => Kind::ToolResult,
        _ => Kind::Note,
    };
    let mut speech = Speech::new(kind, time(&record["timestamp"]), None);
    if let Some(parts) = record.pointer("/message/parts") {
        speech.content(parts, out);
    }
    let payload = &record["systemPayload"];
    match subtype {
        "chat_compression" => {
            // The compressed history begins with the summary.
            let summary = readable(&payload["compressedHistory"][0]["parts"]);
            speech.text(Kind::Summary, &summary, out);
        }
        "custom_title" => speech.text(Kind::Summary, text_of(payload, "customTitle"), out),
        "slash_command" => speech.text(Kind::Note, text_of(payload, "rawCommand"), out),
        _ => {}
    }
    Ok(())
}
