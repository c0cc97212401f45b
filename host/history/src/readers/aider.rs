//! aider: `.aider.chat.history.md` in the folder of each project. `AIDER_CHAT_HISTORY_FILE` names
//! another file. Projects are looked for a few levels below the home directory.
//!
//! The file is Markdown: a heading for each start, the user's prompts as headings of the fourth
//! level, aider's own output as quotes, and the answers as they are. It has no times beside the
//! start and no tool calls.

use std::path::{Path, PathBuf};

use contexture_formats::parse_time;

use super::content::Speech;
use super::{Format, Read};
use crate::entry::Kind;
use crate::output::Output;
use crate::places::Places;
use crate::sources::folders_in;

const FILE: &str = ".aider.chat.history.md";
const START: &str = "# aider chat started at ";

/// How far below the home directory projects are looked for, and in how many folders. Without these
/// limits an import would walk through every checkout and every mounted disk. If a project is
/// deeper, the user can name its log.
const DEPTH: usize = 4;
const FOLDERS: usize = 20_000;

pub(super) static FORMAT: Format = Format {
    agent: "aider",
    find,
    recognise: |sample| sample.text.lines().any(|line| line.starts_with(START)),
    read: Read::Text(read),
    project_of_path: |log| Some(log.parent()?.to_string_lossy().into_owned()),
};

fn find(places: &Places<'_>) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> = places
        .named("AIDER_CHAT_HISTORY_FILE")
        .into_iter()
        .collect();
    // Level by level, so that the projects near the home directory are found if the limit is
    // reached.
    let mut level = vec![places.home().to_owned()];
    let mut seen = 0;
    for _ in 0..=DEPTH {
        let mut next = Vec::new();
        for folder in level {
            seen += 1;
            if seen > FOLDERS {
                return logs;
            }
            logs.extend(Some(folder.join(FILE)).filter(|log| log.is_file()));
            let is_searched = |folder: &PathBuf| {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                // These have thousands of folders and no projects of the user's.
                !name.starts_with('.') && !["node_modules", "target", "Library"].contains(&&*name)
            };
            next.extend(folders_in(&folder).into_iter().filter(is_searched));
        }
        level = next;
    }
    logs
}

fn read(path: &Path, log: &str, out: &mut Output<'_>) {
    let project = FORMAT.project_of_path;
    let project = project(path);
    let mut time_ms = None;
    // The lines so far, which are of one kind.
    let mut said = (Kind::Note, String::new());
    // The last text may grow, so a text is known by its number in the conversation.
    let mut number = 0;
    let mut say = |said: &mut (Kind, String), kind: Kind, time_ms, out: &mut Output<'_>| {
        let (before, text) = std::mem::replace(said, (kind, String::new()));
        number += 1;
        Speech::new(before, time_ms, Some(&number.to_string())).text(before, text.trim(), out);
    };
    for line in log.lines() {
        if let Some(started) = line.strip_prefix(START) {
            say(&mut said, Kind::Note, time_ms, out);
            time_ms = parse_time(started.trim());
            out.conversation(started.trim(), project.as_deref(), None);
            continue;
        }
        let (kind, text) = match (line.strip_prefix("#### "), line.strip_prefix('>')) {
            (Some(prompt), _) => (Kind::User, prompt),
            (None, Some(output)) => (Kind::Note, output.strip_prefix(' ').unwrap_or(output)),
            // An empty line belongs to what is before it.
            (None, None) if line.trim().is_empty() => (said.0, ""),
            (None, None) => (Kind::Assistant, line),
        };
        if kind != said.0 {
            say(&mut said, kind, time_ms, out);
        }
        said.1.push_str(text.trim_end());
        said.1.push('\n');
    }
    say(&mut said, Kind::Note, time_ms, out);
}
