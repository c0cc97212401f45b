//! Files of environment variables (`.env`), edited in place line by line.
//!
//! [`Env`] keeps the lines as they are. An assignment is `NAME=value`, perhaps after `export`, with a
//! value that may have quotes, and a comment may follow. A value in quotes may have several lines.
//! If a variable is assigned twice, the last assignment counts.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{Document, EditError};

pub(super) struct Env {
    /// The lines with their line feeds. All lines of a value are one.
    lines: Vec<String>,
}

/// A line that gives a variable a value.
struct Assignment {
    name: String,
    value: String,
    /// The place of the value in its line, with its quotes.
    span: Range<usize>,
}

/// Returns the length of the line at the beginning of a text, with its line feed.
fn line_length(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |feed| feed + 1)
}

impl Assignment {
    /// Reads the line at the beginning of a text, and the further lines of its value. Returns None
    /// if it assigns nothing.
    ///
    /// # Errors
    /// Fails if what it assigns to is not a name, or if a quote is not closed.
    fn read(rest: &str) -> Result<Option<Self>, EditError> {
        let line = &rest[..line_length(rest)];
        let Some((before, after)) = line.split_once('=') else {
            return Ok(None);
        };
        let name = before.trim();
        let name = name.strip_prefix("export ").unwrap_or(name).trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if name.is_empty() || !name.chars().all(is_name) {
            return match name.starts_with('#') {
                true => Ok(None),
                false => Err(EditError::Syntax(format!("`{name}` is not a variable"))),
            };
        }
        let after = after.trim_end_matches(['\n', '\r']);
        let text = after.trim_start();
        let start = before.len() + 1 + after.len() - text.len();
        let quote = text.chars().next().filter(|first| "'\"`".contains(*first));
        let (value, length) = match quote {
            Some(quote) => {
                let inside = &rest[start + 1..];
                let is_escaped = |at: usize| inside[..at].ends_with('\\');
                let mut ends = inside.match_indices(quote).map(|(at, _)| at);
                // The backslash at the end of a folder's name escapes nothing.
                let end = ends
                    .find(|at| !is_escaped(*at))
                    .or_else(|| inside.find(quote));
                let end = end.ok_or_else(|| {
                    EditError::Syntax(format!("the quote of `{name}` is not closed"))
                })?;
                (&inside[..end], end + 2)
            }
            None => {
                let value = text.split('#').next().unwrap_or_default().trim_end();
                (value, value.len())
            }
        };
        // Without a value, one goes right after the `=`: a shell takes a word after a blank for a
        // command, and what a comment follows without a blank has the comment in it.
        let start = if length == 0 { before.len() + 1 } else { start };
        Ok(Some(Self {
            name: name.to_owned(),
            value: value.to_owned(),
            span: start..start + length,
        }))
    }
}

impl Env {
    pub(super) fn parse(text: &str) -> Result<Self, EditError> {
        let mut lines = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let value_end = Assignment::read(rest)?.map_or(0, |found| found.span.end);
            let (line, after) = rest.split_at(value_end + line_length(&rest[value_end..]));
            lines.push(line.to_owned());
            rest = after;
        }
        Ok(Self { lines })
    }

    /// The assignments, with the numbers of their lines.
    fn assignments(&self) -> impl DoubleEndedIterator<Item = (usize, Assignment)> {
        let lines = self.lines.iter().enumerate();
        // All lines were read when the text was parsed.
        lines.filter_map(|(at, line)| Some((at, Assignment::read(line).ok()??)))
    }

    fn find(&self, name: &str) -> Option<(usize, Assignment)> {
        self.assignments()
            .rfind(|(_, assignment)| assignment.name == name)
    }
}

/// A value as a line has it, with quotes if it needs them.
fn quoted(value: &Value) -> String {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.:/@+,-".contains(c);
    match text.chars().all(is_plain) {
        true => text,
        false if text.contains('"') => format!("'{text}'"),
        false => format!("\"{text}\""),
    }
}

impl Document for Env {
    fn get(&self, path: &[String]) -> Option<Value> {
        match path {
            [] => {
                let all = self.assignments();
                let all = all.map(|(_, one)| (one.name, Value::String(one.value)));
                Some(Value::Object(all.collect::<Map<_, _>>()))
            }
            [name] => self.find(name).map(|(_, found)| Value::String(found.value)),
            _ => None,
        }
    }

    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        let [name] = path else {
            return Err(EditError::Style(path.join(".")));
        };
        let value = quoted(value);
        match self.find(name) {
            Some((at, found)) => {
                if let Some(line) = self.lines.get_mut(at) {
                    line.replace_range(found.span, &value);
                }
            }
            None => {
                if let Some(last) = self.lines.last_mut().filter(|last| !last.ends_with('\n')) {
                    last.push('\n');
                }
                self.lines.push(format!("{name}={value}\n"));
            }
        }
        Ok(())
    }

    fn push(&mut self, path: &[String], _value: &Value) -> Result<(), EditError> {
        Err(EditError::Style(path.join(".")))
    }

    fn remove(&mut self, path: &[String]) {
        if let [name] = path
            && let Some((at, _)) = self.find(name)
        {
            self.lines.remove(at);
        }
    }

    fn remove_element(&mut self, _path: &[String], _value: &Value) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.trim().is_empty())
    }

    fn text(&self) -> String {
        self.lines.concat()
    }
}
