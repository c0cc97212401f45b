//! OpenHands: a folder for each conversation, `~/.openhands/conversations/ID/` or
//! `~/.openhands/sessions/ID/`, with a JSON file for each event in `events`. `OH_PERSISTENCE_DIR`
//! moves `~/.openhands`, and older versions have `~/.openhands-state`.
//!
//! Events of the agent SDK have a `kind`, those of older versions an `action` or an `observation`.
//! Both are read. System prompts, changes of state and caches are not.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::content::{Speech, kind_of, message, time};
use super::{Format, Read, files_with, json_in, list, no_project, text, text_of};
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
    let base = json_in(&folder.join("base_state.json")).unwrap_or_default();
    let project = base["workspace"]["working_dir"].as_str();
    let session = folder.file_name().unwrap_or_default().to_string_lossy();
    out.conversation(&session, project, None);
    for file in files {
        match json_in(&file) {
            Ok(event) => self::event(&event, out),
            Err(error) => out.damaged(|| format!("{} cannot be read: {error}", file.display())),
        }
    }
    Ok(())
}

fn event(event: &Value, out: &mut Output<'_>) {
    let time_ms = time(&event["timestamp"]);
    let source = text_of(event, "source");
    let mut speech = Speech::new(kind_of(source), time_ms, None);
    let id = text(event, "tool_call_id");
    let name = text(event, "tool_name").unwrap_or("tool");
    match text_of(event, "kind") {
        "" => older(event, speech, out),
        "MessageEvent" => {
            let said = &event["llm_message"];
            thoughts(said, &mut speech, out);
            speech.content(&said["content"], out);
        }
        "ActionEvent" => {
            thoughts(event, &mut speech, out);
            speech.content(&event["thought"], out);
            let arguments = match &event["tool_call"]["arguments"] {
                Value::Null => &event["action"],
                arguments => arguments,
            };
            speech.call(name, arguments, id, out);
        }
        "ObservationEvent" => {
            let observation = &event["observation"];
            let content = observation
                .get("content")
                .or_else(|| observation.get("output"));
            speech.result(Some(name), content.unwrap_or(observation), id, out);
        }
        "AgentErrorEvent" => speech.result(Some(name), &event["error"], id, out),
        "UserRejectObservation" => speech.result(Some(name), &event["rejection_reason"], id, out),
        "ConversationErrorEvent" => speech.text(Kind::Note, text_of(event, "detail"), out),
        // Condensations and their summaries.
        _ => speech.text(Kind::Summary, text_of(event, "summary"), out),
    }
}

/// Adds the thinking of an event or a message.
fn thoughts(of: &Value, speech: &mut Speech<'_>, out: &mut Output<'_>) {
    speech.text(Kind::Thinking, text_of(of, "reasoning_content"), out);
    if let Some(blocks) = of.get("thinking_blocks") {
        speech.content(blocks, out);
    }
}

/// Reads an event of a version before the agent SDK.
fn older(event: &Value, mut speech: Speech<'_>, out: &mut Output<'_>) {
    let arguments = &event["args"];
    let argument = |name| text_of(arguments, name);
    // An observation names its action by the id of the event if the model made no call.
    let number = |name| {
        let id = event[name].as_i64();
        id.map(|id| format!("event-{id}"))
    };
    let made = event["tool_call_metadata"]["tool_call_id"].as_str();
    if let Some(observation) = text(event, "observation") {
        let id = made.map(ToOwned::to_owned).or_else(|| number("cause"));
        match observation {
            "agent_state_changed" | "null" | "system" => {}
            _ => speech.result(Some(observation), &event["content"], id.as_deref(), out),
        }
        return;
    }
    match text_of(event, "action") {
        "system" | "change_agent_state" | "recall" | "null" | "" => {}
        "message" => {
            message(
                &serde_json::json!({"role": text(event, "source"), "content": argument("content")}),
                speech.time_ms,
                None,
                out,
            );
            for member in ["image_urls", "file_urls"] {
                for file in list(&arguments[member]) {
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
