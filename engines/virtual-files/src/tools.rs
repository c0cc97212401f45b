//! The tools for the model: `file_list`, `file_read` and `file_regex`. Every answer has a bound, and says what it leaves
//! out.

use std::fmt::Write as _;

use contexture_engine_api::{EngineError, Services, ToolCall, ToolSpec, grouped};
use contexture_pattern::{Regex, Stop};
use serde::Deserialize;
use serde_json::json;

use crate::files::Files;
use crate::preview::head;

/// Files that one list names, and lines that one search answers with, at most.
const LISTED: usize = 100;
const MATCHES: usize = 50;
/// Of a line that matches, so many characters are shown.
const LINE_CHARS: usize = 300;
/// The longest pattern, in bytes.
const PATTERN_BYTES: usize = 1_000;
/// So many lines are searched before it is asked whether anybody still waits.
const LINES_A_LOOK: usize = 4_096;

/// The tools, as they are offered.
pub(crate) fn specs() -> Vec<ToolSpec> {
    let name = json!({"type": "string", "description": "The file's name, as file_list or a [file …] mark gives it"});
    let tool = |name: &str, description: &str, properties: serde_json::Value, required: &[&str]| {
        let parameters = json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false});
        ToolSpec::new(name, description, parameters)
    };
    let number = |least: u64, description: &str| json!({"type": "integer", "minimum": least, "description": description});
    vec![
        tool(
            "file_list",
            "Lists the virtual files of this conversation, the latest first: large messages and tool results, and \
             earlier windows.",
            json!({"offset": number(0, "Leave out so many")}),
            &[],
        ),
        tool(
            "file_read",
            "Reads a virtual file, from its beginning or a part of it: by lines (start_line, lines) or by characters \
             (start_char, chars). Long parts are cut, and the answer says how to go on.",
            json!({
                "name": name,
                "start_line": number(1, "The first line, from 1"),
                "lines": number(1, "How many lines"),
                "start_char": number(0, "The first character, from 0"),
                "chars": number(1, "How many characters"),
            }),
            &["name"],
        ),
        tool(
            "file_regex",
            "Searches virtual files, earlier windows among them, line by line for a regular expression (Rust syntax, \
             no look-around); answers with file, line number and line.",
            json!({
                "pattern": {"type": "string", "description": "The regular expression"},
                "name": {"type": "string", "description": "Search this file alone"},
                "ignore_case": {"type": "boolean"},
                "offset": number(0, "Leave out so many matches"),
            }),
            &["pattern"],
        ),
    ]
}

/// Answers a call, in about so many tokens.
///
/// # Errors
/// What is wrong with the arguments; a file that cannot be read.
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

fn arguments<'c, T: Deserialize<'c>>(call: &'c ToolCall) -> Result<T, EngineError> {
    let text = match call.arguments.trim() {
        "" => "{}",
        text => text,
    };
    let wrong =
        |what: &dyn std::fmt::Display| EngineError::InvalidInput(format!("{}: {what}", call.name));
    // A list would be taken for the fields in their order.
    match text.starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| wrong(&error)),
        false => Err(wrong(&"the arguments are no JSON object")),
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
                "`offset` is {}, and there are {all} files",
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

    /// As many lines as there is room for, the first whatever it takes; and how many those are.
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

    fn text(&self, name: &str) -> Result<String, EngineError> {
        self.files.text(name)?.ok_or_else(|| {
            invalid(format!(
                "there is no file {name:?}; file_list says which there are"
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
                return Err(invalid(format!("`{key}` is 0, and must be 1 at least")));
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
                "`start_char` is {start}, and {name} has {all} characters"
            )));
        }
        let from = place_of(text, start);
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
                "`start_line` is {start}, and {name} has {all} lines"
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
        // Whole lines, where one is whole.
        let shown = match shown.len() < wanted.len() {
            true => shown.rfind('\n').map_or(shown, |end| &shown[..=end]),
            false => shown,
        };
        let is_whole = shown.len() == wanted.len() || shown.ends_with('\n');
        if !is_whole {
            let (all, end) = (
                text.chars().count(),
                text[..from + shown.len()].chars().count(),
            );
            return Ok(format!(
                "[{name}: the beginning of line {start}, which is long{}]\n{shown}",
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

    /// What there is room for; something in any case.
    fn shown<'t>(&self, text: &'t str) -> &'t str {
        match head(text, self.tokens, self.services) {
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
            // A damaged text is no reason not to search the others.
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
                    "`offset` is {}, and {passed} lines match",
                    arguments.offset
                ))),
            };
        }
        let hits = found.len();
        let (mut text, shown) = self.within(found.into_iter());
        if shown < hits || searched < names.len() {
            let next = json!({"offset": arguments.offset + shown});
            let _ = write!(text, "[there are more: {next}, or a narrower pattern]");
        }
        Ok(text)
    }
}

fn pattern(arguments: &SearchArguments) -> Result<Regex, EngineError> {
    if arguments.pattern.is_empty() || arguments.pattern.len() > PATTERN_BYTES {
        return Err(invalid(format!(
            "`pattern` has {} bytes, and must have 1 to {PATTERN_BYTES}",
            arguments.pattern.len()
        )));
    }
    Regex::new(&arguments.pattern, arguments.ignore_case)
        .map_err(|error| invalid(format!("`pattern` is no regular expression: {error}")))
}

fn invalid(what: String) -> EngineError {
    EngineError::InvalidInput(what)
}

/// How much is left, and how to go on.
fn left(count: usize, what: &str, next: &serde_json::Value) -> String {
    match count {
        0 => String::new(),
        count => format!(
            "; {} {what} are left: go on with {next}",
            grouped(count as u64)
        ),
    }
}

/// Where the character of this number begins; the end where there are not so many.
fn place_of(text: &str, chars: usize) -> usize {
    text.char_indices()
        .nth(chars)
        .map_or(text.len(), |(at, _)| at)
}

/// A line, or what of it is around a place in it.
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
