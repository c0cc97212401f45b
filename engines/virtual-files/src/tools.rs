//! The tools for the model: `file_list`, `file_read` and `file_regex`.
//!
//! [`specs`] describes the tools and [`call`] answers a call. Every answer is bounded in tokens, so
//! that reading a file cannot fill the window, and says what it leaves out and how to go on.
//! Arguments are checked strictly: an unknown key or a value out of range is an error that names
//! it, because a model can correct itself. The texts come from [`Files`], and the search uses a
//! regular expression engine with linear time.

use std::fmt::Write as _;

use contexture_engine_api::{EngineError, Services, ToolCall, ToolSpec, grouped};
use contexture_pattern::{Regex, Stop};
use contexture_summaries::beginning_within;
use serde::Deserialize;
use serde_json::json;

use crate::files::Files;

/// The most files that one list names, and the most lines that one search returns.
const LISTED: usize = 100;
const MATCHES: usize = 50;
const LINE_CHARS: usize = 300;
const PATTERN_BYTES: usize = 1_000;
/// The number of lines that are searched before checking whether the call was cancelled.
const LINES_A_LOOK: usize = 4_096;

/// Returns the specifications of the tools as they are offered to the model.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let name =
        json!({"type": "string", "description": "File name from file_list or a [file …] mark"});
    let tool = |name: &str, description: &str, properties: serde_json::Value, required: &[&str]| {
        let parameters = json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false});
        ToolSpec::new(name, description, parameters)
    };
    let number = |least: u64, description: &str| json!({"type": "integer", "minimum": least, "description": description});
    vec![
        tool(
            "file_list",
            "List the virtual files of this conversation, latest first: large messages and tool results, and \
             earlier windows.",
            json!({"offset": number(0, "Files to skip")}),
            &[],
        ),
        tool(
            "file_read",
            "Read a virtual file, all of it or a part: by lines (start_line, lines) or by characters (start_char, \
             chars). Long parts are cut, and the answer says how to continue.",
            json!({
                "name": name,
                "start_line": number(1, "First line, from 1"),
                "lines": number(1, "Number of lines"),
                "start_char": number(0, "First character, from 0"),
                "chars": number(1, "Number of characters"),
            }),
            &["name"],
        ),
        tool(
            "file_regex",
            "Search virtual files and earlier windows line by line for a regular expression (Rust syntax, no \
             look-around). Returns file, line number and line.",
            json!({
                "pattern": {"type": "string", "description": "The regular expression"},
                "name": {"type": "string", "description": "Search only this file"},
                "ignore_case": {"type": "boolean"},
                "offset": number(0, "Matches to skip"),
            }),
            &["pattern"],
        ),
    ]
}

/// Answers a call of one of the tools with a text of about `tokens` tokens.
///
/// # Errors
/// `InvalidInput` says what is wrong with the arguments, `Unsupported` that the tool is unknown,
/// and `Cancelled` that nobody waits any more. Other errors come from reading a file.
pub(crate) fn call(
    call: &ToolCall,
    files: &Files,
    tokens: u64,
    services: &Services,
) -> Result<String, EngineError> {
    let answering = Answering {
        files,
        tokens,
        services,
    };
    match call.name.as_str() {
        "file_list" => answering.list(&arguments(call)?),
        "file_read" => answering.read(&arguments(call)?),
        "file_regex" => answering.search(&arguments(call)?),
        name => Err(EngineError::Unsupported(format!("the tool `{name}`"))),
    }
}

/// Reads the arguments of a call.
fn arguments<'c, T: Deserialize<'c>>(call: &'c ToolCall) -> Result<T, EngineError> {
    let text = call.arguments.trim();
    let wrong =
        |what: &dyn std::fmt::Display| EngineError::InvalidInput(format!("{}: {what}", call.name));
    // serde would take a JSON list for the fields in their order.
    match text.starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| wrong(&error)),
        false => Err(wrong(&"the arguments are not a JSON object")),
    }
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct ListArguments {
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    name: String,
    start_line: Option<usize>,
    lines: Option<usize>,
    start_char: Option<usize>,
    chars: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    pattern: String,
    name: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    offset: usize,
}

struct Answering<'a> {
    files: &'a Files,
    tokens: u64,
    services: &'a Services,
}

impl Answering<'_> {
    fn list(&self, arguments: &ListArguments) -> Result<String, EngineError> {
        let files = self.files.listed();
        let all = files.len();
        if all == 0 {
            return Ok("There are no files yet.".to_owned());
        }
        if arguments.offset >= all {
            return Err(invalid(format!(
                "`offset` is {}, but there are {all} files",
                arguments.offset
            )));
        }
        let lines = files
            .iter()
            .skip(arguments.offset)
            .take(LISTED)
            .map(|file| {
                format!(
                    "{}: {}, {} tokens, {} lines\n",
                    file.name,
                    file.of,
                    grouped(file.tokens),
                    grouped(file.lines)
                )
            });
        let (mut text, shown) = self.within(lines);
        let next = arguments.offset + shown;
        if next < all {
            let _ = write!(text, "[{} more: {}]", all - next, json!({"offset": next}));
        }
        Ok(text)
    }

    /// Joins as many lines as fit into the answer, but at least the first. Returns the text and the
    /// number of lines in it.
    fn within(&self, lines: impl Iterator<Item = String>) -> (String, usize) {
        let (mut text, mut used, mut shown) = (String::new(), 0, 0);
        for line in lines {
            used += self.services.count_tokens(&line);
            if used > self.tokens && shown > 0 {
                break;
            }
            text.push_str(&line);
            shown += 1;
        }
        (text, shown)
    }

    /// Reads the text of a file. An unknown name is an error that tells the model how to find the
    /// right one.
    fn text(&self, name: &str) -> Result<String, EngineError> {
        self.files.text(name)?.ok_or_else(|| {
            invalid(format!(
                "there is no file {name:?}; file_list lists the files"
            ))
        })
    }

    fn read(&self, arguments: &ReadArguments) -> Result<String, EngineError> {
        let by_lines = arguments.start_line.is_some() || arguments.lines.is_some();
        let by_chars = arguments.start_char.is_some() || arguments.chars.is_some();
        if by_lines && by_chars {
            return Err(invalid(
                "give lines (`start_line`, `lines`) or characters (`start_char`, `chars`), not both".into(),
            ));
        }
        for (key, value) in [
            ("start_line", arguments.start_line),
            ("lines", arguments.lines),
            ("chars", arguments.chars),
        ] {
            if value == Some(0) {
                return Err(invalid(format!("`{key}` is 0, but must be at least 1")));
            }
        }
        let (name, text) = (&arguments.name, self.text(&arguments.name)?);
        match by_chars {
            true => self.read_chars(name, &text, arguments),
            false => self.read_lines(name, &text, arguments),
        }
    }

    fn read_chars(
        &self,
        name: &str,
        text: &str,
        arguments: &ReadArguments,
    ) -> Result<String, EngineError> {
        let all = text.chars().count();
        let start = arguments.start_char.unwrap_or(0);
        if start >= all.max(1) {
            return Err(invalid(format!(
                "`start_char` is {start}, but {name} has {all} characters"
            )));
        }
        let from = place_of(text, start);
        // Positions are characters for the model, but slices need bytes.
        let wanted = &text[from..];
        let wanted = &wanted[..place_of(wanted, arguments.chars.unwrap_or(usize::MAX))];
        let shown = self.shown(wanted);
        let end = start + shown.chars().count();
        Ok(format!(
            "[{name}: characters {start} to {end} of {all}{}]\n{shown}",
            left(all - end, "characters", &json!({"start_char": end}))
        ))
    }

    fn read_lines(
        &self,
        name: &str,
        text: &str,
        arguments: &ReadArguments,
    ) -> Result<String, EngineError> {
        let all = text.lines().count();
        let start = arguments.start_line.unwrap_or(1);
        if start > all.max(1) {
            return Err(invalid(format!(
                "`start_line` is {start}, but {name} has {all} lines"
            )));
        }
        let mut lines = text.split_inclusive('\n');
        let from: usize = lines.by_ref().take(start - 1).map(str::len).sum();
        let wanted: usize = lines
            .take(arguments.lines.unwrap_or(usize::MAX))
            .map(str::len)
            .sum();
        let wanted = &text[from..from + wanted];
        let shown = self.shown(wanted);
        // Show only whole lines, unless not even one fits.
        let shown = match shown.len() < wanted.len() {
            true => shown.rfind('\n').map_or(shown, |end| &shown[..=end]),
            false => shown,
        };
        // The line is longer than one answer, so the model has to go on by characters.
        let is_whole = shown.len() == wanted.len() || shown.ends_with('\n');
        if !is_whole {
            let (all, end) = (
                text.chars().count(),
                text[..from + shown.len()].chars().count(),
            );
            return Ok(format!(
                "[{name}: the beginning of the long line {start}{}]\n{shown}",
                left(all - end, "characters", &json!({"start_char": end}))
            ));
        }
        let end = start + shown.lines().count();
        Ok(format!(
            "[{name}: lines {start} to {} of {all}{}]\n{shown}",
            end - 1,
            left(
                (all + 1).saturating_sub(end),
                "lines",
                &json!({"start_line": end})
            )
        ))
    }

    /// Returns the beginning of a text that fits into the answer. It is never empty, so that the
    /// model always makes progress.
    fn shown<'t>(&self, text: &'t str) -> &'t str {
        match beginning_within(text, self.tokens, self.services) {
            "" => &text[..place_of(text, 1)],
            shown => shown,
        }
    }

    fn search(&self, arguments: &SearchArguments) -> Result<String, EngineError> {
        let pattern = pattern(arguments)?;
        let names: Vec<&str> = match &arguments.name {
            Some(name) => vec![name],
            None => (self.files.listed().iter())
                .map(|file| file.name.as_str())
                .collect(),
        };
        let mut found = Vec::new();
        let mut passed = 0;
        let mut searched = 0;
        'files: for name in &names {
            // If one file is damaged, the others can still be searched.
            let text = match &arguments.name {
                Some(name) => self.text(name)?,
                None => self.files.text(name)?.unwrap_or_default(),
            };
            for (at, line) in text.lines().enumerate() {
                if at % LINES_A_LOOK == 0 && self.services.is_cancelled() {
                    return Err(EngineError::Cancelled);
                }
                let hit = pattern.find(line, &|| self.services.is_cancelled());
                let hit = hit.map_err(|stop| match stop {
                    Stop::Cancelled => EngineError::Cancelled,
                    stop => invalid(format!("`pattern`: {stop}")),
                })?;
                let Some(hit) = hit else {
                    continue;
                };
                // Count matches before the offset too, or the same lines would be returned again.
                passed += 1;
                if passed <= arguments.offset {
                    continue;
                }
                if found.len() == MATCHES {
                    break 'files;
                }
                found.push(format!("{name}:{}: {}\n", at + 1, around(line, hit.start)));
            }
            searched += 1;
        }
        if found.is_empty() {
            return match passed {
                0 => Ok(format!("No line matches in {searched} files.")),
                _ => Err(invalid(format!(
                    "`offset` is {}, but {passed} lines match",
                    arguments.offset
                ))),
            };
        }
        let hits = found.len();
        let (mut text, shown) = self.within(found.into_iter());
        // Lines may be left in this answer as well as in files that were not searched.
        if shown < hits || searched < names.len() {
            let next = json!({"offset": arguments.offset + shown});
            let _ = write!(
                text,
                "[more matches: continue with {next}, or narrow the pattern]"
            );
        }
        Ok(text)
    }
}

/// Compiles the pattern of a search. It must have between 1 and 1,000 bytes.
fn pattern(arguments: &SearchArguments) -> Result<Regex, EngineError> {
    if arguments.pattern.is_empty() || arguments.pattern.len() > PATTERN_BYTES {
        return Err(invalid(format!(
            "`pattern` has {} bytes, but must have 1 to {PATTERN_BYTES}",
            arguments.pattern.len()
        )));
    }
    Regex::new(&arguments.pattern, arguments.ignore_case).map_err(|error| {
        invalid(format!(
            "`pattern` is not a valid regular expression: {error}"
        ))
    })
}

fn invalid(what: String) -> EngineError {
    EngineError::InvalidInput(what)
}

/// Returns the part of an answer's first line that says how much is left and how to read on. Empty
/// if nothing is left.
fn left(count: usize, what: &str, next: &serde_json::Value) -> String {
    match count {
        0 => String::new(),
        count => format!(
            "; {} {what} are left: continue with {next}",
            grouped(count as u64)
        ),
    }
}

/// Returns the byte position of a character by its number, or the end of the text if it has fewer
/// characters.
fn place_of(text: &str, chars: usize) -> usize {
    text.char_indices()
        .nth(chars)
        .map_or(text.len(), |(at, _)| at)
}

/// Returns a line, or about 300 characters of it around a match if it is longer.
fn around(line: &str, hit: usize) -> String {
    if line.len() <= LINE_CHARS {
        return line.to_owned();
    }
    let start = line.floor_char_boundary(hit.saturating_sub(LINE_CHARS / 3));
    let rest = &line[start..];
    let end = place_of(rest, LINE_CHARS);
    let before = if start > 0 { "…" } else { "" };
    let after = if end < rest.len() { "…" } else { "" };
    format!("{before}{}{after}", &rest[..end])
}
