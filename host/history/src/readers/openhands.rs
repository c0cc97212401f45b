//! OpenHands: a folder for each conversation, `~/.openhands/conversations/ID/` or
//! `~/.openhands/sessions/ID/`, with a JSON file for each event in `events`. `OH_PERSISTENCE_DIR`
//! moves `~/.openhands`, and older versions have `~/.openhands-state`.
//!
//! Events of the agent SDK have a `kind`, those of older versions an `action` or an `observation`.
//! Both are read. System prompts, changes of state and caches are not.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::content::{Speech, kind_of, message, time};
use super::{Format, Read, files_with, json_of, no_project, text};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

pub(super) static FORMAT: Format = Format {
    agent: "openhands",
    find,
    recognise: |sample| sample.path.join("events").is_dir(),
    read: Read::Folder(read),
    project_of_path: no_project,
};

fn find(places: &Places<'_>) -> Vec<PathBuf> {
    let homes = [
        places.folder("OH_PERSISTENCE_DIR", ".openhands"),
        places.folder("FILE_STORE_PATH", ".openhands-state"),
    ];
    let folders = homes.iter().flat_map(|home| {
        let conversations = ["conversations", "sessions"].map(|name| folders_in(&home.join(name)));
        conversations.concat()
    });
    folders
        .filter(|folder| folder.join("events").is_dir())
        .collect()
}

fn read(folder: &Path, out: &mut Output<'_>) -> std::io::Result<()> {
    let mut files = files_with("json", &folder.join("events"), 0);
    // `12.json` or `event-00012-ID.json`. They are sorted by number, because by name `10.json`
    // comes before `9.json`.
    let number = |file: &PathBuf| {
        let name = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let digits = name
            .trim_start_matches("event-")
            .split('-')
            .next()
            .unwrap_or("")
            .parse::<u64>();
        (digits.unwrap_or(u64::MAX), name)
    };
    files.sort_by_cached_key(number);
    let base = std::fs::read(folder.join("base_state.json")).ok();
    let base: Value = base
        .and_then(|base| json_of(&base).ok())
        .unwrap_or_default();
    let project = base
        .pointer("/workspace/working_dir")
        .and_then(Value::as_str);
    let session = folder.file_name().unwrap_or_default().to_string_lossy();
    out.conversation(&session, project, None);
    for file in files {
        let read = std::fs::read(&file).map_err(|error| error.to_string());
        match read.and_then(|json| json_of(&json)) {
            Ok(event) => self::event(&event, out),
            Err(error) => out.damaged(|| format!("{} cannot be read: {error}", file.display())),
        }
    }
    Ok(())
}

fn event(event: &Value, out: &mut Output<'_>) {
    let time_ms = time(event.get("timestamp"));
    let source = text(event, "source").unwrap_or_default();
    let mut speech = Speech::new(kind_of(source), time_ms, None);
    let id = text(event, "tool_call_id");
    let name = text(event, "tool_name").unwrap_or("tool");
    let member = |name: &str| event.get(name).unwrap_or(&Value::Null);
    match text(event, "kind").unwrap_or_default() {
        "" => older(event, speech, out),
        "MessageEvent" => {
            let said = member("llm_message");
            thoughts(said, &mut speech, out);
            speech.content(said.get("content").unwrap_or(&Value::Null), out);
        }
        "ActionEvent" => {
            thoughts(event, &mut speech, out);
            speech.content(member("thought"), out);
            let arguments = event
                .pointer("/tool_call/arguments")
                .filter(|arguments| !arguments.is_null());
            speech.call(name, arguments.unwrap_or(member("action")), id, out);
        }
        "ObservationEvent" => {
            let observation = member("observation");
            let content = observation
                .get("content")
                .or_else(|| observation.get("output"));
            speech.result(Some(name), content.unwrap_or(observation), id, out);
        }
        "AgentErrorEvent" => speech.result(Some(name), member("error"), id, out),
        "UserRejectObservation" => speech.result(Some(name), member("rejection_reason"), id, out),
        "ConversationErrorEvent" => {
            speech.text(Kind::Note, text(event, "detail").unwrap_or_default(), out)
        }
        // Condensations and their summaries.
        _ => speech.text(
            Kind::Summary,
            text(event, "summary").unwrap_or_default(),
            out,
        ),
    }
}

/// Adds the thinking of an event or a message.
fn thoughts(of: &Value, speech: &mut Speech<'_>, out: &mut Output<'_>) {
    speech.text(
        Kind::Thinking,
        text(of, "reasoning_content").unwrap_or_default(),
        out,
    );
    if let Some(blocks) = of.get("thinking_blocks") {
        speech.content(blocks, out);
    }
}

/// Reads an event of a version before the agent SDK.
fn older(event: &Value, mut speech: Speech<'_>, out: &mut Output<'_>) {
    let null = Value::Null;
    let arguments = event.get("args").unwrap_or(&null);
    let argument = |name| text(arguments, name).unwrap_or_default();
    // An observation names its action by the id of the event if the model made no call.
    let number = |name| {
        event
            .get(name)
            .and_then(Value::as_i64)
            .map(|id| format!("event-{id}"))
    };
    let made = event
        .pointer("/tool_call_metadata/tool_call_id")
        .and_then(Value::as_str);
    if let Some(observation) = text(event, "observation") {
        let id = made.map(ToOwned::to_owned).or_else(|| number("cause"));
        match observation {
            "agent_state_changed" | "null" | "system" => {}
            _ => speech.result(
                Some(observation),
                event.get("content").unwrap_or(&null),
                id.as_deref(),
                out,
            ),
        }
        return;
    }
    match text(event, "action").unwrap_or_default() {
        "system" | "change_agent_state" | "recall" | "null" | "" => {}
        "message" => {
            message(
                &serde_json::json!({"role": text(event, "source"), "content": argument("content")}),
                speech.time_ms,
                None,
                out,
            );
            for member in ["image_urls", "file_urls"] {
                for file in arguments
                    .get(member)
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let name = file.as_str().filter(|name| !name.starts_with("data:"));
                    speech.attachment(name.unwrap_or("image"), out);
                }
            }
        }
        "think" => speech.text(Kind::Thinking, argument("thought"), out),
        "finish" => speech.text(Kind::Assistant, argument("final_thought"), out),
        "condensation" => speech.text(Kind::Summary, argument("summary"), out),
        action => {
            speech.text(Kind::Assistant, argument("thought"), out);
            let id = made.map(ToOwned::to_owned).or_else(|| number("id"));
            let mut rest = arguments.clone();
            if let Some(rest) = rest.as_object_mut() {
                rest.retain(|name, _| name != "thought");
            }
            speech.call(action, &rest, id.as_deref(), out);
        }
    }
}
