//! Finds the recent agent sessions of this machine and lets the user choose one.
//!
//! `contexture compress` without an input offers them. [`choose`] is the entry point. It takes the
//! newest logs of Claude Code and Codex, and reads the beginning of each to show its project and the
//! first words of its user.
//!
//! The module only reads as much as a line of the list needs. The formats themselves are read by
//! `contexture::formats` after the choice. A log that cannot be read is still offered, without
//! words, since the user may recognise it by its age.

use std::fmt;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contexture::contract::own_words;
use contexture::history::{Places, logs_of};
use inquire::{InquireError, Select};
use serde_json::Value;

use crate::error::CliError;
use crate::human::age;
use crate::terminal::one_line;

/// The most sessions that are offered. Older ones can be named on the command line.
const OFFERED: usize = 50;

/// The number of lines of a log that are read in search of its first words.
const SEARCHED_LINES: usize = 200;

/// The number of characters of a session's id that are shown, enough to tell it from others.
const SHOWN_ID: usize = 8;

/// The number of characters at the end of the project's folder that are shown.
const SHOWN_PROJECT: usize = 24;

/// The number of characters of the user's first words that are shown.
const SHOWN_WORDS: usize = 44;

/// The log of a session. Displayed, it is a line of the list, with fixed columns.
struct Recent {
    path: PathBuf,
    agent: &'static str,
    changed: SystemTime,
    head: Head,
}

/// What the beginning of a log tells about its session. A value is None if the lines that were read
/// do not have it.
#[derive(Default)]
struct Head {
    id: Option<String>,
    /// The folder that the agent worked in, shortened for display.
    project: Option<String>,
    /// The first words of the user.
    words: Option<String>,
}

impl fmt::Display for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10}  {:<11}  {:<SHOWN_ID$}  {:<SHOWN_PROJECT$}  {}",
            age(self.changed),
            self.agent,
            self.head.id.as_deref().unwrap_or_default(),
            self.head.project.as_deref().unwrap_or_default(),
            self.head.words.as_deref().unwrap_or_default(),
        )
    }
}

/// Lets the user at the terminal choose one of the recent sessions. Returns None if the user
/// cancels.
///
/// # Errors
/// Fails if stdin or stderr is not a terminal, or if there are no sessions.
pub(crate) fn choose() -> Result<Option<PathBuf>, CliError> {
    let name_one = "name a file, or `-` to read from stdin: contexture compress INPUT";
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(CliError::usage(
            "no INPUT was given, and a session can only be chosen at a terminal",
            name_one,
        ));
    }
    let variable = |name: &str| std::env::var_os(name);
    let recent = Places::of_process(&variable).map(|places| recent(&places));
    let recent = recent.unwrap_or_default();
    if recent.is_empty() {
        return Err(CliError::usage(
            "no INPUT was given, and no session of Claude Code (~/.claude/projects) or Codex \
             (~/.codex/sessions) was found to choose from",
            name_one,
        ));
    }
    match Select::new("Which session?", recent)
        .with_page_size(15)
        .prompt()
    {
        Ok(chosen) => Ok(Some(chosen.path)),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(None),
        Err(error) => Err(CliError::usage(
            format!("no session could be chosen: {error}"),
            name_one,
        )),
    }
}

/// Returns the newest sessions of both agents, newest first, at most 50.
fn recent(places: &Places<'_>) -> Vec<Recent> {
    let mut logs: Vec<_> = ["claude-code", "codex"]
        .into_iter()
        .flat_map(|agent| {
            logs_of(agent, places)
                .into_iter()
                .map(move |log| (agent, log))
        })
        // Claude Code keeps the logs of a session's subagents in a folder of the session.
        .filter(|(agent, log)| {
            let folder = log.ancestors().nth(2);
            *agent == "codex" || folder.is_some_and(|folder| folder.ends_with("projects"))
        })
        .filter_map(|(agent, path)| {
            let metadata = path.metadata().ok()?;
            Some((metadata.modified().ok()?, agent, path))
        })
        .collect();
    logs.sort_by_key(|log| std::cmp::Reverse(log.0));
    logs.truncate(OFFERED);
    logs.into_iter()
        .map(|(changed, agent, path)| Recent {
            head: Head::of(&path, places.home()),
            path,
            agent,
            changed,
        })
        .collect()
}

impl Head {
    /// Reads the beginning of a log. In the project's folder, the user's home is shown as `~`. If
    /// the log has no id, the name of its file stands for it.
    fn of(path: &Path, home: &Path) -> Self {
        let mut head = Self::default();
        let lines = std::fs::File::open(path).into_iter();
        for line in lines
            .flat_map(|file| BufReader::new(file).split(b'\n'))
            .take(SEARCHED_LINES)
            .map_while(Result::ok)
        {
            // A line that is not UTF-8 is skipped like any other line that cannot be read.
            let Ok(line) = serde_json::from_slice::<Value>(&line) else {
                continue;
            };
            let payload = line.get("payload");
            let text = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
            // Claude Code writes the id and the folder in each line, Codex in its first line and at
            // the beginning of a turn.
            let id = match line.get("type").and_then(Value::as_str) {
                Some("session_meta") => payload.and_then(|payload| payload.get("id")),
                _ => line.get("sessionId"),
            };
            let cwd = line.get("cwd").or_else(|| payload?.get("cwd"));
            head.id = head.id.or_else(|| text(id));
            head.project = head.project.or_else(|| text(cwd));
            head.words = head.words.or_else(|| words_of(&line));
            if head.id.is_some() && head.project.is_some() && head.words.is_some() {
                break;
            }
        }
        // The id is cut without a mark, because its beginning is what users recognise.
        let id = head
            .id
            .as_deref()
            .map_or_else(|| path.file_stem()?.to_str(), Some);
        head.id = id.map(|id| one_line(id, usize::MAX).chars().take(SHOWN_ID).collect());
        head.project = head.project.map(|project| {
            let below = Path::new(&project).strip_prefix(home);
            let shown = below.map_or(project.clone(), |below| format!("~/{}", below.display()));
            end_of(&one_line(&shown, usize::MAX), SHOWN_PROJECT)
        });
        head
    }
}

/// Returns the last `limit` characters of a text, with an ellipsis if it is longer. The end of a
/// path says more than its beginning.
fn end_of(text: &str, limit: usize) -> String {
    match text.chars().count().checked_sub(limit) {
        None | Some(0) => text.to_owned(),
        Some(more) => format!("…{}", text.chars().skip(more + 1).collect::<String>()),
    }
}

/// Returns the first words that a user wrote in a line of a log. None if the line is something
/// else, or if an agent wrote the text in the user's name.
fn words_of(line: &Value) -> Option<String> {
    let message = line.get("message").or_else(|| line.get("payload"))?;
    if message.get("role")?.as_str()? != "user"
        || line.get("isMeta").and_then(Value::as_bool) == Some(true)
    {
        return None;
    }
    let content = message.get("content")?;
    let parts = content.as_array().into_iter().flatten();
    let parts = parts.filter_map(|part| part.get("text")?.as_str());
    let mut said = content.as_str().into_iter().chain(parts).map(own_words);
    let text = said.find(|text| !text.trim().is_empty())?;
    Some(one_line(&text, SHOWN_WORDS))
}

#[cfg(test)]
mod tests;
