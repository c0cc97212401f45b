//! pi: `~/.pi/agent/sessions/--PROJECT--/TIME_ID.jsonl`. `PI_CODING_AGENT_DIR` moves `~/.pi/agent`.
//!
//! The first line names the folder of the project. The others are entries of a tree: messages,
//! commands that the user ran, summaries of compactions and of branches, and the session's name.
//! Changes of the model and data of extensions are not read.

use serde_json::Value;

use super::content::{Speech, message, time};
use super::{Format, Read, files_with, json, no_project, text};
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
    read: Read::Lines { read, project },
    project_of_path: no_project,
};

fn project(line: &str) -> Option<String> {
    Some(text(&json(line).ok()?, "cwd")?.to_owned())
}

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    let entry = json(line)?;
    let time_ms = time(entry.get("timestamp"));
    let mut speech = Speech::new(Kind::Note, time_ms, None);
    match text(&entry, "type").unwrap_or_default() {
        "message" => said(entry.get("message").unwrap_or(&Value::Null), time_ms, out),
        "custom_message" => speech.content(entry.get("content").unwrap_or(&Value::Null), out),
        "session_info" => speech.text(Kind::Summary, text(&entry, "name").unwrap_or_default(), out),
        // Compactions and summaries of branches.
        _ => speech.text(
            Kind::Summary,
            text(&entry, "summary").unwrap_or_default(),
            out,
        ),
    }
    Ok(())
}

fn said(said: &Value, time_ms: Option<i64>, out: &mut Output<'_>) {
    let mut speech = Speech::new(Kind::Note, time_ms, None);
    match text(said, "role").unwrap_or_default() {
        // A command that the user ran. It has no id, so its time stands for one.
        "bashExecution" => {
            let id = format!("bash-{}", time_ms.unwrap_or(0));
            speech.call(
                "bash",
                said.get("command").unwrap_or(&Value::Null),
                Some(&id),
                out,
            );
            speech.result(
                Some("bash"),
                said.get("output").unwrap_or(&Value::Null),
                Some(&id),
                out,
            );
        }
        "compactionSummary" | "branchSummary" => {
            speech.text(
                Kind::Summary,
                text(said, "summary").unwrap_or_default(),
                out,
            );
        }
        _ => message(said, time_ms, None, out),
    }
    for file in said
        .get("attachments")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        speech.attachment(text(file, "fileName").unwrap_or_default(), out);
    }
}
