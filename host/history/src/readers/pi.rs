//! pi: `~/.pi/agent/sessions/--PROJECT--/TIME_ID.jsonl`. `PI_CODING_AGENT_DIR` moves `~/.pi/agent`.
//!
//! The first line names the folder of the project. The others are entries of a tree: messages,
//! commands that the user ran, summaries of compactions and of branches, and the session's name.
//! Changes of the model and data of extensions are not read.

use serde_json::Value;

use super::content::{Speech, message, time};
use super::{Format, Read, files_with, json, list, no_project, text, text_of};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "pi",
    find: |places| {
        let home = places.folder("PI_CODING_AGENT_DIR", ".pi/agent");
        files_with("jsonl", &home.join("sessions"), 3)
    },
    recognise: |sample| {
        let first = sample.lines.first();
        first.is_some_and(|line| text(line, "type") == Some("session") && line.get("cwd").is_some())
    },
    read: Read::Lines {
        read,
        project: "/cwd",
    },
    project_of_path: no_project,
};

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    let entry = json(line)?;
    let time_ms = time(&entry["timestamp"]);
    let mut speech = Speech::new(Kind::Note, time_ms, None);
    match text_of(&entry, "type") {
        "message" => said(&entry["message"], time_ms, out),
        "custom_message" => speech.content(&entry["content"], out),
        "session_info" => speech.text(Kind::Summary, text_of(&entry, "name"), out),
        // Compactions and summaries of branches.
        _ => speech.text(Kind::Summary, text_of(&entry, "summary"), out),
    }
    Ok(())
}

fn said(said: &Value, time_ms: Option<i64>, out: &mut Output<'_>) {
    let mut speech = Speech::new(Kind::Note, time_ms, None);
    match text_of(said, "role") {
        // A command that the user ran. It has no id, so its time stands for one.
        "bashExecution" => {
            let id = format!("bash-{}", time_ms.unwrap_or(0));
            speech.call("bash", &said["command"], Some(&id), out);
            speech.result(Some("bash"), &said["output"], Some(&id), out);
        }
        "compactionSummary" | "branchSummary" => {
            speech.text(Kind::Summary, text_of(said, "summary"), out);
        }
        _ => message(said, time_ms, None, out),
    }
    for file in list(&said["attachments"]) {
        speech.attachment(text_of(file, "fileName"), out);
    }
}
