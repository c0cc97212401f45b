//! Cursor: a chat that was exported as Markdown (Export Chat). It has no place of its own, so the
//! user names the file.
//!
//! The file has a title, a line with the time of the export, and the texts of the user and of
//! Cursor under a line with the name of who speaks. Exports have no tool calls and no times of
//! messages. Cursor's own database is not read.

use std::path::Path;

use super::content::{Speech, summary};
use super::{Format, Read, no_project, nowhere};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "cursor",
    find: nowhere,
    recognise: |sample| {
        let is_mark = |line: &str| line.starts_with("_Exported on ") && line.contains("Cursor");
        sample.text.lines().take(10).any(is_mark)
    },
    read: Read::Text(read),
    project_of_path: no_project,
};

fn read(_: &Path, export: &str, out: &mut Output<'_>) {
    let mut said = (Kind::Note, String::new());
    let say = |said: (Kind, String), out: &mut Output<'_>| {
        // A rule separates the messages.
        let text = said.1.trim().trim_end_matches("---").trim();
        Speech::new(said.0, None, None).text(said.0, text, out);
    };
    for line in export.lines() {
        let speaker = match line.trim() {
            "**User**" => Some(Kind::User),
            "**Cursor**" | "**Assistant**" => Some(Kind::Assistant),
            _ => None,
        };
        if let Some(title) = line.strip_prefix("# ").filter(|_| said.0 == Kind::Note) {
            summary(title, None, None, out);
        } else if let Some(kind) = speaker {
            say(std::mem::replace(&mut said, (kind, String::new())), out);
        } else {
            said.1.push_str(line);
            said.1.push('\n');
        }
    }
    say(said, out);
}
