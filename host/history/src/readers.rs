//! The formats of logs: where each agent keeps them, and what is in them.
//!
//! Each file in this folder is a format. Its constant `FORMAT` says how logs are found, how a log
//! that a user names is recognised, and how it is read. A database or a folder with many files is
//! one log as well. [`FORMATS`] lists all.
//!
//! Readers do not judge. They hand every part of every message to the [`Output`], also those of
//! branches that the user left and of turns that an agent compacted, because a history is about
//! what was said. Parts that a reader does not know are read as text, so that a new version of an
//! agent is not lost. `content` knows the parts that several formats share.

mod aider;
mod atif;
mod chatgpt;
mod claude_ai;
mod claude_code;
mod cline;
mod codex;
mod content;
mod cursor;
mod gemini;
mod goose;
mod langchain;
mod messages;
mod opencode;
mod openhands;
mod pi;
mod qwen;
mod ui_messages;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use contexture_formats::parse_json;
use rusqlite::Connection;
use serde_json::Value;

use crate::output::Output;
use crate::places::Places;
use crate::sources::{Skipped, files_in};

/// A log that exists.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) path: PathBuf,
    pub(crate) format: &'static Format,
}

/// Reads a line. If it cannot be read, it fails with the reason. The line is then counted, and the
/// import goes on with the next one.
pub(crate) type ReadLine = fn(&str, &mut Output<'_>) -> Result<(), String>;
/// Reads a JSON document, or an element of one. The path is that of the log.
pub(crate) type ReadElement = fn(&Path, &Value, &mut Output<'_>);

/// How a log is read.
pub(crate) enum Read {
    /// Line by line, and from where the last import ended if the log grew.
    Lines {
        read: ReadLine,
        /// The JSON pointer to the project, in the lines that name it.
        project: &'static str,
    },
    /// As one JSON value.
    Document(ReadElement),
    /// As a JSON array, element by element.
    Elements(ReadElement),
    /// As text.
    Text(fn(&Path, &str, &mut Output<'_>)),
    /// As a folder with files.
    Folder(fn(&Path, &mut Output<'_>) -> std::io::Result<()>),
    /// As a SQLite database. The number is what the reader returned at the last import, and 0 at
    /// the first. It tells the reader what is new.
    Database(fn(&Connection, u64, &mut Output<'_>) -> rusqlite::Result<u64>),
}

/// A format of logs.
pub(crate) struct Format {
    /// The agent's name, as it is shown and searched for.
    pub(crate) agent: &'static str,
    /// The logs of this format on this machine.
    pub(crate) find: fn(&Places<'_>) -> Vec<PathBuf>,
    /// Whether a file or folder is such a log. It is only asked about what a user names.
    pub(crate) recognise: fn(&Sample<'_>) -> bool,
    pub(crate) read: Read,
    /// The project of a log if only its path tells. It counts if the log itself names none.
    pub(crate) project_of_path: fn(&Path) -> Option<String>,
}

/// All formats. If a file could be of two, the first one is taken.
static FORMATS: [&Format; 22] = [
    &claude_code::FORMAT,
    &codex::FORMAT,
    &gemini::LINES,
    &gemini::DOCUMENT,
    &qwen::FORMAT,
    &qwen::DOCUMENT,
    &opencode::DATABASE,
    &opencode::FOLDER,
    &pi::FORMAT,
    &cline::FORMAT,
    &cline::ROO,
    &goose::DATABASE,
    &goose::LINES,
    &openhands::FORMAT,
    &aider::FORMAT,
    &cursor::FORMAT,
    &atif::FORMAT,
    &chatgpt::FORMAT,
    &claude_ai::FORMAT,
    &langchain::FORMAT,
    &ui_messages::FORMAT,
    &messages::FORMAT,
];

/// Returns the logs of an agent on this machine, in no particular order. There are none if no agent
/// has this name.
pub fn logs_of(agent: &str, places: &Places<'_>) -> Vec<PathBuf> {
    let formats = FORMATS.iter().filter(|format| format.agent == agent);
    formats.flat_map(|format| (format.find)(places)).collect()
}

/// The names of all agents and formats whose logs are read.
pub fn agents() -> Vec<&'static str> {
    let mut names: Vec<_> = FORMATS.iter().map(|format| format.agent).collect();
    // The formats of an agent stand together in the list.
    names.dedup();
    names
}

/// The logs of all agents.
pub(crate) fn find(places: &Places<'_>) -> Vec<Log> {
    let logs = FORMATS.into_iter().flat_map(|format| {
        let paths = (format.find)(places);
        paths.into_iter().map(move |path| Log { path, format })
    });
    logs.collect()
}

/// The beginning of a file or folder whose format is not known.
pub(crate) struct Sample<'a> {
    pub(crate) path: &'a Path,
    /// The first bytes, as text. It is empty if a folder is named.
    pub(crate) text: &'a str,
    /// The first lines that are JSON objects.
    pub(crate) lines: &'a [Value],
}

impl Sample<'_> {
    pub(crate) fn has_ending(&self, ending: &str) -> bool {
        self.path.extension().is_some_and(|has| has == ending)
    }

    /// Whether the beginning names all these members of JSON objects. The sample may end within a
    /// value, so it is searched as text and not parsed.
    pub(crate) fn names(&self, members: &[&str]) -> bool {
        members
            .iter()
            .all(|member| self.text.contains(&format!("\"{member}\"")))
    }

    /// Whether the text begins with this, apart from white space and a byte order mark, which
    /// editors on Windows write.
    pub(crate) fn begins(&self, with: char) -> bool {
        self.text
            .trim_start_matches('\u{feff}')
            .trim_start()
            .starts_with(with)
    }

    /// Whether it is a SQLite database with these tables. If the database is damaged or locked, it
    /// is not.
    pub(crate) fn has_tables(&self, tables: &[&str]) -> bool {
        self.text.starts_with("SQLite format 3") && {
            let db =
                Connection::open_with_flags(self.path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
            db.is_ok_and(|db| {
                tables
                    .iter()
                    .all(|table| db.table_exists(None, *table).unwrap_or(false))
            })
        }
    }
}

/// The number of bytes by which a file is recognised. A conversation may begin with a long prompt,
/// and the members that tell the format come after it.
const SAMPLE_BYTES: u64 = 256 << 10;

/// The number of levels of folders that are searched if a user names one. No agent nests its logs
/// as deep as that.
const NAMED_DEPTH: usize = 16;

/// The logs in files and folders that a user names. A file whose format is not known is reported if
/// it was named itself or is JSON.
pub(crate) fn recognise_all(named: &[PathBuf], skipped: &mut Vec<Skipped>) -> Vec<Log> {
    let mut logs = Vec::new();
    let mut skip = |path, why| {
        skipped.push(Skipped {
            path,
            parts: 0,
            why,
        });
    };
    for path in named {
        // The database knows a log by its path. A relative one would be another log if the command
        // ran in another folder.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        match recognise(&path) {
            Ok(Some(format)) => logs.push(Log { path, format }),
            Ok(None) if path.is_dir() => {
                // An export has pictures and texts beside its conversations, which nobody expects
                // to be read.
                for file in files_in(&path, NAMED_DEPTH) {
                    match recognise(&file) {
                        Ok(Some(format)) => logs.push(Log { path: file, format }),
                        Ok(None) if !is_json(&file) => {}
                        Ok(None) => skip(file, "its format is not known".to_owned()),
                        Err(error) => skip(file, error.to_string()),
                    }
                }
            }
            Ok(None) => {
                let known = agents().join(", ");
                skip(path, format!("its format is not known; known are {known}"));
            }
            Err(error) => skip(path, error.to_string()),
        }
    }
    logs
}

/// Whether a file is called as one with JSON or JSON lines.
fn is_json(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default();
    ["json", "jsonl", "ndjson"]
        .iter()
        .any(|json| ending == *json)
}

/// The format of a file or folder. `None` if it is not known.
pub(crate) fn recognise(path: &Path) -> std::io::Result<Option<&'static Format>> {
    let mut bytes = Vec::new();
    if !path.is_dir() {
        std::fs::File::open(path)?
            .take(SAMPLE_BYTES)
            .read_to_end(&mut bytes)?;
    }
    let text = String::from_utf8_lossy(&bytes);
    // The last line of the sample may be cut off. It is no JSON then, and drops out.
    let lines = text.lines().take(50);
    let lines: Vec<Value> = lines
        .filter_map(|line| json(line).ok())
        .filter(Value::is_object)
        .collect();
    let sample = Sample {
        path,
        text: &text,
        lines: &lines,
    };
    Ok(FORMATS
        .into_iter()
        .find(|format| (format.recognise)(&sample)))
}

/// For a format whose logs have no place of their own: the user names them.
fn nowhere(_: &Places<'_>) -> Vec<PathBuf> {
    Vec::new()
}

/// For a format whose paths do not tell the project.
fn no_project(_: &Path) -> Option<String> {
    None
}

/// The files with this ending in a folder and up to `depth` levels below it.
fn files_with(ending: &str, folder: &Path, depth: usize) -> Vec<PathBuf> {
    let mut files = files_in(folder, depth);
    files.retain(|file| file.extension().is_some_and(|has| has == ending));
    files
}

/// Parses JSON. What agents write may be valid and still more than `serde_json` accepts, so it is
/// parsed as `contexture_formats` does.
fn json(text: &str) -> Result<Value, String> {
    parse_json(text.trim_start_matches('\u{feff}')).map_err(|error| error.to_string())
}

/// The project that a line names, by the JSON pointer to it. `None` if the line does not name one or
/// is not JSON.
pub(crate) fn project_in(line: &str, pointer: &str) -> Option<String> {
    Some(json(line).ok()?.pointer(pointer)?.as_str()?.to_owned())
}

/// Parses the bytes of a JSON file or of an element of one.
pub(crate) fn json_of(bytes: &[u8]) -> Result<Value, String> {
    json(std::str::from_utf8(bytes).map_err(|error| error.to_string())?)
}

/// Parses a JSON file.
fn json_in(file: &Path) -> Result<Value, String> {
    json_of(&std::fs::read(file).map_err(|error| error.to_string())?)
}

/// The text of a member.
fn text<'a>(value: &'a Value, member: &str) -> Option<&'a str> {
    value.get(member)?.as_str()
}

/// The text of a member. It is empty if there is none.
fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    text(value, member).unwrap_or_default()
}

/// The elements of a list. There are none if the value is no list.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
