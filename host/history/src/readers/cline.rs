//! Cline and Roo Code: `tasks/TASK/api_conversation_history.json` in the storage that an editor
//! gives the extension, such as `~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/`. Cline
//! without an editor has `~/.cline/data`, which `CLINE_DIR` moves.
//!
//! The document is a list of messages in Anthropic's format. What the extension adds to a prompt
//! about the environment is a note. The copy of the conversation for the display
//! (`ui_messages.json`) and checkpoints are not read.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::content::{Speech, kind_of, time};
use super::{Format, Read, json_in, list, no_project, text, text_of};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

const FILE: &str = "api_conversation_history.json";

/// The editors that are forks of VS Code, by the names of their folders.
const EDITORS: [&str; 7] = [
    "Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf", "Trae", "Antigravity",
];

pub(super) static FORMAT: Format = Format {
    agent: "cline",
    find: |places| {
        let mut tasks = tasks_of("saoudrizwan.claude-dev", places);
        tasks.extend(logs_in(
            &places.folder("CLINE_DIR", ".cline").join("data/tasks"),
        ));
        tasks
    },
    recognise: |sample| sample.path.ends_with(FILE) && !is_roo(sample.path),
    read: Read::Document(read),
    project_of_path: no_project,
};

pub(super) static ROO: Format = Format {
    agent: "roo",
    find: |places| tasks_of("rooveterinaryinc.roo-cline", places),
    recognise: |sample| sample.path.ends_with(FILE) && is_roo(sample.path),
    read: Read::Document(read),
    project_of_path: no_project,
};

/// Roo Code describes a task in a file beside it. If that file is missing, the log is taken for one
/// of Cline, which is read the same way.
fn is_roo(log: &Path) -> bool {
    log.with_file_name("history_item.json").exists()
}

fn tasks_of(extension: &str, places: &Places<'_>) -> Vec<PathBuf> {
    let mut storages: Vec<PathBuf> = Vec::new();
    for config in places.config() {
        storages.extend(EDITORS.iter().map(|editor| config.join(editor)));
    }
    // Editors whose window is on another machine.
    let servers = [".vscode-server", ".vscode-remote", ".cursor-server"];
    storages.extend(
        servers
            .iter()
            .map(|server| places.home().join(server).join("data")),
    );
    let tasks = storages.iter().flat_map(|storage| {
        logs_in(
            &storage
                .join("User/globalStorage")
                .join(extension)
                .join("tasks"),
        )
    });
    tasks.collect()
}

fn logs_in(tasks: &Path) -> Vec<PathBuf> {
    let logs = folders_in(tasks).into_iter().map(|task| task.join(FILE));
    logs.filter(|log| log.is_file()).collect()
}

fn read(path: &Path, document: &Value, out: &mut Output<'_>) {
    let task = path
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default()
        .to_string_lossy();
    // The file only names the project. Without it, the task is read all the same.
    let item = json_in(&path.with_file_name("history_item.json")).unwrap_or_default();
    let named = text(&item, "workspace").or_else(|| directory(&document[0]));
    out.conversation(&task, named, None);
    for message in list(document) {
        let kind = kind_of(text_of(message, "role"));
        let is_summary = message.get("isSummary").is_some_and(|is| is == true);
        let kind = if is_summary { Kind::Summary } else { kind };
        let mut speech = Speech::new(kind, time(&message["ts"]), None);
        let content = &message["content"];
        // A prompt is a list of parts, or a string.
        for part in content.as_array().unwrap_or(&vec![content.clone()]) {
            let is_added =
                text(part, "text").is_some_and(|text| text.starts_with("<environment_details>"));
            speech.kind = if is_added { Kind::Note } else { kind };
            speech.content(part, out);
        }
        if let Some(thoughts) = text(message, "reasoning_content") {
            speech.text(Kind::Thinking, thoughts, out);
        }
    }
}

/// The folder in which the task began. The first prompt names it.
fn directory(message: &Value) -> Option<&str> {
    list(&message["content"]).find_map(|part| {
        let said = text(part, "text")?;
        let (_, after) = said.split_once("Directory (")?;
        Some(after.split_once(')')?.0)
    })
}
