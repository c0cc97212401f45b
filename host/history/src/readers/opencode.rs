//! OpenCode: `~/.local/share/opencode/opencode.db` (SQLite), or in older versions the folder
//! `storage` beside it. `XDG_DATA_HOME` moves `~/.local/share`, and `OPENCODE_DB` names another
//! file.
//!
//! Both have the same values: a message with its role, and parts of it that are text, reasoning,
//! tools with their input and output, files and more. Parts are saved while they are streamed, so
//! each is known by its id. Snapshots, patches and steps are not read.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, files_with, json_in, list, no_project, text, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

const AGENT: &str = "opencode";

pub(super) static DATABASE: Format = Format {
    agent: AGENT,
    find: |places| {
        let files = homes(places)
            .into_iter()
            .flat_map(|home| files_with("db", &home, 0));
        let is_own = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("opencode")
        };
        let named = places.named("OPENCODE_DB").filter(|file| file.is_file());
        files.filter(is_own).chain(named).collect()
    },
    recognise: |sample| sample.has_tables(&["session", "message", "part"]),
    read: Read::Database(database),
    project_of_path: no_project,
};

pub(super) static FOLDER: Format = Format {
    agent: AGENT,
    find: |places| {
        let homes = homes(places);
        homes
            .iter()
            .flat_map(|home| folders_in(&home.join("storage/message")))
            .collect()
    },
    recognise: |sample| {
        let parent = sample.path.parent();
        sample.path.is_dir() && parent.is_some_and(|parent| parent.ends_with("storage/message"))
    },
    read: Read::Folder(folder),
    project_of_path: no_project,
};

fn homes(places: &Places<'_>) -> Vec<PathBuf> {
    places
        .data()
        .into_iter()
        .map(|data| data.join("opencode"))
        .collect()
}

/// Reads the sessions with a part that was changed since the last import. The number is the time of
/// the latest change, in milliseconds.
fn database(db: &Connection, since: u64, out: &mut Output<'_>) -> rusqlite::Result<u64> {
    let latest = "SELECT coalesce(max(time_updated), 0) FROM part";
    let latest: i64 = db.query_row(latest, [], |row| row.get(0))?;
    // The time of the last import is read again: a part may have been saved in the same millisecond
    // after the import looked. What is stored already is recognised.
    let mut sessions = db.prepare(
        "SELECT id, directory, title FROM session
         WHERE id IN (SELECT session_id FROM part WHERE time_updated >= ?1) ORDER BY time_created",
    )?;
    let mut sessions = sessions.query([since.cast_signed()])?;
    let mut parts = db.prepare(
        "SELECT part.id, part.data, message.data, part.time_created FROM part
         JOIN message ON message.id = part.message_id
         WHERE part.session_id = ?1 ORDER BY message.time_created, message.id, part.id",
    )?;
    while let Some(session) = sessions.next()? {
        let id: String = session.get(0)?;
        let directory: Option<String> = session.get(1)?;
        let title: Option<String> = session.get(2)?;
        begin(&id, directory.as_deref(), title.as_deref(), out);
        let mut rows = parts.query([&id])?;
        while let Some(row) = rows.next()? {
            let id: String = row.get(0)?;
            let json = |column| -> rusqlite::Result<Option<Value>> {
                let json: String = row.get(column)?;
                Ok(super::json(&json).ok())
            };
            match (json(1)?, json(2)?) {
                (Some(part), Some(message)) => {
                    let created: Option<i64> = row.get(3)?;
                    self::part(&id, &part, &message, created, out);
                }
                _ => out.damaged(|| format!("the part {id} is not JSON")),
            }
        }
    }
    Ok(latest.cast_unsigned())
}

fn begin(id: &str, directory: Option<&str>, title: Option<&str>, out: &mut Output<'_>) {
    out.conversation(id, directory, title);
    if let Some(title) = title {
        summary(title, None, Some("title"), out);
    }
}

/// Reads a session of the folder `storage`: `message/SESSION/MESSAGE.json`,
/// `part/MESSAGE/PART.json` and `session/PROJECT/SESSION.json`. If the last one is missing, the
/// session has no title and no project.
fn folder(folder: &Path, out: &mut Output<'_>) -> std::io::Result<()> {
    let (Some(session), Some(storage)) = (folder.file_name(), folder.ancestors().nth(2)) else {
        return Ok(());
    };
    let session = session.to_string_lossy();
    let heads = folders_in(&storage.join("session"));
    let heads = heads
        .iter()
        .map(|project| project.join(format!("{session}.json")));
    let head = heads.filter_map(|head| json_in(&head).ok()).next();
    let head = head.unwrap_or_default();
    begin(
        &session,
        text(&head, "directory"),
        text(&head, "title"),
        out,
    );
    let mut messages = values(folder, out);
    messages.sort_by_key(|(id, message)| {
        (
            message.pointer("/time/created").and_then(Value::as_i64),
            id.clone(),
        )
    });
    for (id, message) in messages {
        let created = time(&message["time"]["created"]);
        for (id, part) in values(&storage.join("part").join(&id), out) {
            self::part(&id, &part, &message, created, out);
        }
    }
    Ok(())
}

/// The JSON files of a folder, in order of their names, which are ids that rise with time.
fn values(folder: &Path, out: &mut Output<'_>) -> Vec<(String, Value)> {
    let mut files = files_with("json", folder, 0);
    files.sort();
    let mut values = Vec::new();
    for file in files {
        let id = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match json_in(&file) {
            Ok(value) => values.push((id, value)),
            Err(error) => out.damaged(|| format!("{} cannot be read: {error}", file.display())),
        }
    }
    values
}

fn part(id: &str, part: &Value, message: &Value, created: Option<i64>, out: &mut Output<'_>) {
    let kind = match message.get("summary") {
        // The answer to a compaction.
        Some(Value::Bool(true)) => Kind::Summary,
        _ => kind_of(text_of(message, "role")),
    };
    let kind = match part["synthetic"] == true && kind == Kind::User {
        true => Kind::Note,
        false => kind,
    };
    let started = time(&part["time"]["start"]).or_else(|| time(&part["state"]["time"]["start"]));
    let mut speech = Speech::new(kind, started.or(created), Some(id));
    match text_of(part, "type") {
        "tool" => {
            let call = text(part, "callID");
            let name = text(part, "tool").unwrap_or("tool");
            let state = &part["state"];
            speech.call(name, &state["input"], call, out);
            if let Some(result) = state.get("output").or_else(|| state.get("error")) {
                speech.result(Some(name), result, call, out);
            }
            for file in list(&state["attachments"]) {
                speech.content(file, out);
            }
        }
        "subtask" | "agent" | "text" | "reasoning" | "file" => speech.content(part, out),
        "retry" => speech.content(&part["error"], out),
        // Steps, snapshots, patches and marks of compactions say nothing.
        _ => {}
    }
}
