//! Files of environment variables (`.env`), edited in place line by line.
//!
//! [`Env`] keeps the lines as they are. An assignment is `NAME=value`, perhaps after `export`, with a
//! value that may have quotes, and a comment may follow. If a variable is assigned twice, the last
//! assignment counts. A value of several lines is an error.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{Document, EditError};

pub(super) struct Env {
    /// The lines with their line feeds.
    lines: Vec<String>,
}

/// A line that gives a variable a value.
struct Assignment {
    name: String,
    value: String,
    /// The place of the value in its line, with its quotes.
    span: Range<usize>,
}

impl Assignment {
    /// Reads a line. Returns None if it assigns nothing.
    ///
    /// # Errors
    /// Fails if what it assigns to is not a name, or if a quote is not closed in the line.
    fn read(line: &str) -> Result<Option<Self>, EditError> {
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
                let inside = &text[1..];
                let end = inside.find(quote).ok_or_else(|| {
                    EditError::Syntax(format!("the value of `{name}` has more than one line"))
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
        let lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        for line in &lines {
            Assignment::read(line)?;
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
