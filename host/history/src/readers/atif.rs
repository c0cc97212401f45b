//! ATIF, the Agent Trajectory Interchange Format, up to version 1.7: one JSON document for a run of
//! an agent. It has no place of its own, so the user names the file.
//!
//! A step has a message, reasoning, tool calls and an observation with their results. Trajectories
//! of subagents inside the document are conversations of their own. Metrics and the definitions of
//! tools are not read.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, list, no_project, nowhere, text, text_of};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "atif",
    find: nowhere,
    recognise: |sample| sample.begins('{') && sample.text.contains("\"ATIF-v"),
    read: Read::Document(trajectory),
    project_of_path: no_project,
};

fn trajectory(path: &Path, trajectory: &Value, out: &mut Output<'_>) {
    let id = text(trajectory, "trajectory_id").or_else(|| text(trajectory, "session_id"));
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let title = trajectory["agent"]["name"].as_str();
    out.conversation(id.unwrap_or(&name), None, title);
    if let Some(notes) = text(trajectory, "notes") {
        summary(notes, None, None, out);
    }
    for step in list(&trajectory["steps"]) {
        let kind = kind_of(text_of(step, "source"));
        let mut speech = Speech::new(kind, time(&step["timestamp"]), None);
        speech.text(Kind::Thinking, text_of(step, "reasoning_content"), out);
        speech.content(&step["message"], out);
        for call in list(&step["tool_calls"]) {
            let name = text(call, "function_name").unwrap_or("tool");
            speech.call(name, &call["arguments"], text(call, "tool_call_id"), out);
        }
        for result in list(&step["observation"]["results"]) {
            let call = text(result, "source_call_id");
            speech.result(None, &result["content"], call, out);
        }
    }
    for inner in list(&trajectory["subagent_trajectories"]) {
        self::trajectory(path, inner, out);
    }
}
