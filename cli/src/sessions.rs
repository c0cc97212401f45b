//! The recent agent sessions of this machine, to choose one of.

use std::fmt;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contexture_engine_api::printable;
use inquire::{InquireError, Select};
use serde_json::Value;

use crate::error::CliError;
use crate::summary;

/// How many sessions are offered.
const OFFERED: usize = 50;

/// How much of a log is read in search of the first words of its user, in lines.
const SEARCHED_LINES: usize = 200;

/// How much of the first words is shown, in characters.
const SHOWN_WORDS: usize = 44;

/// A session log.
struct Recent {
    path: PathBuf,
    agent: &'static str,
    changed: SystemTime,
    bytes: u64,
    words: String,
}

impl fmt::Display for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>10}  {:>8}  {:<11}  {}",
            age(self.changed),
            summary::size(self.bytes),
            self.agent,
            self.words
        )
    }
}

/// Lets the person at the terminal choose one of the recent sessions; none where they think better of it.
///
/// # Errors
/// There is no terminal, or there are no sessions.
pub(crate) fn choose() -> Result<Option<PathBuf>, CliError> {
    let name_one = "name a file, or `-` to read from stdin: contexture compress INPUT";
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(CliError::usage(
            "no INPUT was given, and there is no terminal to choose one at",
            name_one,
        ));
    }
    let home = std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
    let recent = home
        .map(|home| recent(Path::new(&home)))
        .unwrap_or_default();
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

/// The newest sessions of the agents under this home directory, newest first.
fn recent(home: &Path) -> Vec<Recent> {
    let claude = home.join(".claude/projects");
    let codex = home.join(".codex/sessions");
    // Claude Code keeps a folder for each project, Codex one for each year, month and day.
    let mut logs: Vec<_> = logs_in(&claude, 1)
        .into_iter()
        .map(|log| ("claude-code", log))
        .chain(logs_in(&codex, 3).into_iter().map(|log| ("codex", log)))
        .filter_map(|(agent, path)| {
            let metadata = path.metadata().ok()?;
            Some((metadata.modified().ok()?, agent, path, metadata.len()))
        })
        .collect();
    logs.sort_by_key(|log| std::cmp::Reverse(log.0));
    logs.truncate(OFFERED);
    logs.into_iter()
        .map(|(changed, agent, path, bytes)| Recent {
            words: first_words(&path),
            path,
            agent,
            changed,
            bytes,
        })
        .collect()
}

/// The logs in a folder and `depth` levels below it. A folder that cannot be read is skipped.
fn logs_in(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 {
            logs.extend(logs_in(&path, depth - 1));
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "jsonl") {
            logs.push(path);
        }
    }
    logs
}

/// The first words that a user said in a log.
fn first_words(path: &Path) -> String {
    let Ok(file) = std::fs::File::open(path) else {
        return String::new();
    };
    BufReader::new(file)
        .lines()
        .take(SEARCHED_LINES)
        .map_while(Result::ok)
        .find_map(|line| words_of(&serde_json::from_str(&line).ok()?))
        .unwrap_or_default()
}

/// What a user said in a line of a log. What agents say in a user's name stands in angle brackets.
fn words_of(line: &Value) -> Option<String> {
    let message = line.get("message").or_else(|| line.get("payload"))?;
    if message.get("role")?.as_str()? != "user"
        || line.get("isMeta").and_then(Value::as_bool) == Some(true)
    {
        return None;
    }
    let content = message.get("content")?;
    let text = match content.as_array() {
        Some(parts) => parts
            .iter()
            .find_map(|part| part.get("text")?.as_str().filter(|text| is_said(text)))?,
        None => content.as_str().filter(|text| is_said(text))?,
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(printable(&line, SHOWN_WORDS).into_owned())
}

fn is_said(text: &str) -> bool {
    let text = text.trim_start();
    !text.is_empty() && !text.starts_with('<')
}

/// How long ago something was, in its largest unit.
fn age(then: SystemTime) -> String {
    let seconds = then.elapsed().map_or(0, |age| age.as_secs());
    let (number, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "min"),
        3_600..86_400 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{number} {unit} ago")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::time::Duration;

    #[test]
    fn sessions_of_both_agents_come_newest_first_with_what_the_user_said() {
        let home = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str, seconds_ago: u64| {
            let path = home.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            let time = SystemTime::now() - Duration::from_secs(seconds_ago);
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        put(
            ".claude/projects/-home-me/a.jsonl",
            "{\"type\":\"summary\"}\n\
             {\"type\":\"user\",\"isMeta\":true,\"message\":{\"role\":\"user\",\"content\":\"meta\"}}\n\
             {\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"<command-name>/x</command-name>\"}}\n\
             not json\n\
             {\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" Fix\\nthe tests \"}]}}\n",
            7_300,
        );
        put(
            ".codex/sessions/2026/11/21/r.jsonl",
            "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"<environment_context>\"}]}}\n\
             {\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"Grüße\"}]}}\n",
            120,
        );
        put(".claude/projects/-home-me/notes.txt", "no log", 1);
        put(".claude/projects/-home-me/sub/agent.jsonl", "{}", 1);
        let lines: Vec<_> = recent(home.path())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            lines,
            [
                " 2 min ago     252 B  codex        Grüße",
                "   2 h ago     283 B  claude-code  Fix the tests",
            ]
        );
        assert!(recent(&home.path().join("nowhere")).is_empty());
    }

    #[test]
    fn long_first_words_are_cut_between_characters() {
        let line = serde_json::json!({"message": {"role": "user", "content": "é".repeat(200)}});
        let words = words_of(&line).unwrap();
        assert_eq!(words.chars().count(), SHOWN_WORDS + 1);
        assert!(words.ends_with('…'));
    }

    #[test]
    fn first_words_hold_no_control_characters() {
        let line = serde_json::json!({"message": {"role": "user", "content": "\x1b]0;t\x07\u{9b}2J\x08 hi"}});
        let words = words_of(&line).unwrap();
        assert_eq!(words, "\\u001b]0;t\\u0007\\u009b2J\\u0008 hi");
    }
}
