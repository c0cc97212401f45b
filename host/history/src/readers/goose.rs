//! Goose: `~/.local/share/goose/sessions/sessions.db` (SQLite), or a `.jsonl` for each session
//! there in older versions. `GOOSE_PATH_ROOT` names a folder with `data/sessions`.
//!
//! A message has content parts. Calls and results are wrapped in whether they succeeded. Counts of
//! tokens and the state of extensions are not read.

use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, files_with, json, list, no_project, text, text_of};
use crate::output::Output;
use crate::places::Places;

const AGENT: &str = "goose";

pub(super) static DATABASE: Format = Format {
    agent: AGENT,
    find: |places| find(places, "db"),
    recognise: |sample| sample.has_tables(&["sessions", "messages"]),
    read: Read::Database(database),
    project_of_path: no_project,
};

pub(super) static LINES: Format = Format {
    agent: AGENT,
    find: |places| find(places, "jsonl"),
    recognise: |sample| {
        sample
            .lines
            .first()
            .is_some_and(|line| line.get("working_dir").is_some())
    },
    read: Read::Lines {
        read,
        project: "/working_dir",
    },
    project_of_path: no_project,
};

fn find(places: &Places<'_>, ending: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = match places.named("GOOSE_PATH_ROOT") {
        Some(root) => vec![root.join("data")],
        None => places
            .data()
            .into_iter()
            .map(|data| data.join("goose"))
            .collect(),
    };
    folders.extend(
        places
            .named("APPDATA")
            .map(|data| data.join("Block/goose/data")),
    );
    folders
        .iter()
        .flat_map(|folder| files_with(ending, &folder.join("sessions"), 0))
        .collect()
}

/// Reads the sessions with messages that came since the last import. The number is the id of the
/// last message. After a compaction, Goose writes the messages of a session anew, so the session is
/// read as a whole.
fn database(db: &Connection, since: u64, out: &mut Output<'_>) -> rusqlite::Result<u64> {
    // This comes before the sessions are read. If a message is added in between, it has a greater
    // id and is new to the next import.
    let last: i64 = db.query_row("SELECT coalesce(max(id), 0) FROM messages", [], |row| {
        row.get(0)
    })?;
    // The columns depend on the version.
    let has = |column| db.column_exists(None, "sessions", column).unwrap_or(false);
    let column = |name| if has(name) { name } else { "NULL" };
    let mut sessions = db.prepare(&format!(
        "SELECT id, {}, coalesce({}, {}) FROM sessions
         WHERE id IN (SELECT session_id FROM messages WHERE id > ?1) ORDER BY id",
        column("working_dir"),
        column("name"),
        column("description"),
    ))?;
    let mut sessions = sessions.query([since.cast_signed()])?;
    let mut messages = db.prepare(
        "SELECT role, content_json, created_timestamp FROM messages WHERE session_id = ?1 ORDER BY id",
    )?;
    while let Some(session) = sessions.next()? {
        let id: String = session.get(0)?;
        let folder: Option<String> = session.get(1)?;
        let title: Option<String> = session.get(2)?;
        out.conversation(&id, folder.as_deref(), title.as_deref());
        if let Some(title) = &title {
            summary(title, None, None, out);
        }
        let mut rows = messages.query([&id])?;
        while let Some(row) = rows.next()? {
            let (role, content): (String, String) = (row.get(0)?, row.get(1)?);
            let created: Option<f64> = row.get(2)?;
            match json(&content) {
                Ok(content) => said(&role, &content, time(&Value::from(created)), out),
                Err(error) => {
                    out.damaged(|| format!("a message of the session {id} is not JSON: {error}"))
                }
            }
        }
    }
    Ok(last.cast_unsigned())
}

fn read(line: &str, out: &mut Output<'_>) -> Result<(), String> {
    let message = json(line)?;
    let Some(role) = text(&message, "role") else {
        // The first line describes the session.
        let title = text_of(&message, "description");
        summary(title, None, None, out);
        return Ok(());
    };
    let content = &message["content"];
    said(role, content, time(&message["created"]), out);
    Ok(())
}

fn said(role: &str, content: &Value, time_ms: Option<i64>, out: &mut Output<'_>) {
    let mut speech = Speech::new(kind_of(role), time_ms, None);
    for part in list(content) {
        let id = text(part, "id");
        match text_of(part, "type") {
            "toolRequest" | "frontendToolRequest" => {
                let call = &part["toolCall"];
                let call = call.get("value").unwrap_or(call);
                let arguments = call.get("arguments").unwrap_or(&call["error"]);
                let name = text(call, "name").unwrap_or("tool");
                speech.call(name, arguments, id, out);
            }
            "toolResponse" => {
                let result = &part["toolResult"];
                let value = result
                    .get("value")
                    .or_else(|| result.get("error"))
                    .unwrap_or(result);
                speech.result(None, value.get("content").unwrap_or(value), id, out);
            }
            // The question whether a tool may run repeats its arguments.
            "toolConfirmationRequest" | "actionRequired" => {}
            _ => speech.content(part, out),
        }
    }
}
