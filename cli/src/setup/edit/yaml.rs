//! YAML, of which whole lines are added and removed.
//!
//! Only mappings in block style are edited: a key gets a text on its line, and a list gets one more
//! text as an element. That is all that aider and Hermes Agent need. The parser checks the text,
//! and [`Yaml::find`] finds the lines by their indentation. No other line is written anew.
//!
//! Whether an edit had its effect and no other is not left to the search for lines: after each edit
//! the text is parsed again and compared with the parsed document in which the same edit was made.
//! If they differ, because the file is written in a style that this module does not know, the edit
//! is an error and the text stays as it was.

use std::ops::Range;

use serde_json::Value;
use serde_yaml::{Mapping, Value as Parsed};

use super::{Document, EditError};

pub(super) struct Yaml {
    text: String,
    parsed: Parsed,
}

/// The lines of a key and of its value, as bytes of the text.
struct Found {
    /// The line with the key, with its line break.
    line: Range<usize>,
    /// What comes after it and belongs to its value. Comments and empty lines at the end do not.
    block: Range<usize>,
    indent: usize,
}

impl Yaml {
    pub(super) fn parse(text: &str) -> Result<Self, EditError> {
        let parsed: Parsed =
            serde_yaml::from_str(text).map_err(|error| EditError::Syntax(error.to_string()))?;
        if !matches!(parsed, Parsed::Null | Parsed::Mapping(_)) {
            let what = "its value is not a YAML mapping".to_owned();
            return Err(EditError::Syntax(what));
        }
        // Lines can only be added if the mapping is in block style and the document open-ended.
        let is_flow = text.lines().any(|line| line.starts_with('{'));
        if is_flow || text.lines().any(|line| line.trim_end() == "...") {
            let what = "it is written in a style to which no line can be added".to_owned();
            return Err(EditError::Syntax(what));
        }
        Ok(Self {
            text: text.to_owned(),
            parsed,
        })
    }

    /// Finds the lines of a key. `None` if it has no line of its own.
    fn find(&self, path: &[String]) -> Option<Found> {
        let mut region = 0..self.text.len();
        let mut found: Option<Found> = None;
        for name in path {
            let indent = match &found {
                Some(found) => self.first_indent(&found.block)?,
                None => 0,
            };
            let line = self.lines(&region).find(|line| {
                let line = &self.text[line.clone()];
                indent_of(line) == indent && key_of(line) == Some(name.as_str())
            })?;
            let block = self.block(line.end..region.end, indent);
            region = block.clone();
            found = Some(Found {
                line,
                block,
                indent,
            });
        }
        found
    }

    /// Returns the part of a region that belongs to the value of a key above it.
    fn block(&self, region: Range<usize>, indent: usize) -> Range<usize> {
        let mut end = region.start;
        for line in self.lines(&region) {
            let text = &self.text[line.clone()];
            if !is_content(text) {
                continue;
            }
            // A list may stand as far left as its key.
            let is_element = indent_of(text) == indent && text.trim_start().starts_with("- ");
            if indent_of(text) <= indent && !is_element {
                break;
            }
            end = line.end;
        }
        region.start..end
    }

    /// Returns the lines of a region, each with its line break.
    fn lines(&self, region: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut at = region.start;
        self.text[region.clone()]
            .split_inclusive('\n')
            .map(move |line| {
                let range = at..at + line.len();
                at = range.end;
                range
            })
    }

    /// Puts a text in the place of a range, on lines of its own.
    fn splice(&self, range: Range<usize>, lines: &str) -> String {
        let (head, tail) = (&self.text[..range.start], &self.text[range.end..]);
        let break_before = match head.is_empty() || head.ends_with('\n') {
            true => "",
            false => "\n",
        };
        format!("{head}{break_before}{lines}{tail}")
    }

    /// Returns the text with an entry in a mapping. `value` is what comes after the colon.
    fn with_entry(&self, path: &[String], value: &str) -> Option<String> {
        let (name, parents) = path.split_last()?;
        let Some(parent) = self.find(parents) else {
            if let Some((_, above)) = parents.split_last() {
                // The parents are missing, too, and are written together with the key.
                let is_missing = self.get(parents).is_none();
                let nested = format!("\n{}", indented(&format!("{name}:{value}"), 2));
                return is_missing
                    .then(|| self.with_entry(&[above, &parents[above.len()..]].concat(), &nested))
                    .flatten();
            }
            let end = self.text.len();
            return Some(self.splice(end..end, &format!("{name}:{value}\n")));
        };
        let indent = self
            .first_indent(&parent.block)
            .unwrap_or(parent.indent + 2);
        let entry = format!("{}\n", indented(&format!("{name}:{value}"), indent));
        Some(self.splice(parent.block.end..parent.block.end, &entry))
    }

    fn first_indent(&self, block: &Range<usize>) -> Option<usize> {
        let mut lines = self.lines(block).map(|line| &self.text[line]);
        lines.find(|line| is_content(line)).map(indent_of)
    }

    /// Takes a new text if it means what it should, with `change` made in the parsed document.
    fn take(
        &mut self,
        path: &[String],
        text: Option<String>,
        change: impl FnOnce(&mut Parsed) -> Option<()>,
    ) -> Result<(), EditError> {
        let style = || EditError::Style(path.join("."));
        let text = text.ok_or_else(style)?;
        let mut wanted = self.parsed.clone();
        change(&mut wanted).ok_or_else(style)?;
        let parsed: Parsed = serde_yaml::from_str(&text).map_err(|_| style())?;
        if parsed != wanted {
            return Err(style());
        }
        (self.text, self.parsed) = (text, parsed);
        Ok(())
    }
}

/// Returns the value of a key in a parsed document, which is created if it is missing.
fn entry<'v>(document: &'v mut Parsed, path: &[String]) -> Option<&'v mut Parsed> {
    let mut value = document;
    for name in path {
        if value.is_null() {
            *value = Parsed::Mapping(Mapping::new());
        }
        let mapping = value.as_mapping_mut()?;
        value = mapping
            .entry(Parsed::from(name.as_str()))
            .or_insert(Parsed::Null);
    }
    Some(value)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn indented(text: &str, indent: usize) -> String {
    let lines = text
        .split('\n')
        .map(|line| format!("{}{line}", " ".repeat(indent)));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_content(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with('#') && line.trim_end() != "---"
}

/// Returns the key that a line begins with.
fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    let key = key.trim();
    let quotes = ['"', '\''];
    let unquoted = quotes
        .iter()
        .find_map(|quote| key.strip_prefix(*quote)?.strip_suffix(*quote));
    Some(unquoted.unwrap_or(key))
}

impl Document for Yaml {
    fn get(&self, path: &[String]) -> Option<Value> {
        let mut value = &self.parsed;
        for name in path {
            value = value.get(name.as_str())?;
        }
        serde_json::to_value(value).ok()
    }

    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        // JSON text is YAML, too.
        let written = format!(" {value}");
        let text = match self.find(path) {
            Some(found) => {
                let is_one_line = found.block.is_empty()
                    && self
                        .get(path)
                        .is_some_and(|old| old.is_string() || old.is_null());
                let name = path.last().map(String::as_str).unwrap_or_default();
                let line = indented(&format!("{name}:{written}"), found.indent);
                is_one_line.then(|| self.splice(found.line, &format!("{line}\n")))
            }
            None => self.with_entry(path, &written),
        };
        let to: Parsed = serde_yaml::to_value(value).unwrap_or_default();
        self.take(path, text, |document| {
            *entry(document, path)? = to;
            Some(())
        })
    }

    fn push(&mut self, path: &[String], value: &Value) -> Result<(), EditError> {
        let text = match self.find(path) {
            // Without elements below, the list is `[]` or `[a, b]` on the line of its key, or missing.
            Some(found) if found.block.is_empty() => {
                let line = &self.text[found.line.clone()];
                match (line.rfind(']'), self.get(path)) {
                    (Some(end), Some(Value::Array(elements))) => {
                        let comma = if elements.is_empty() { "" } else { ", " };
                        let line = format!("{}{comma}{value}{}", &line[..end], &line[end..]);
                        Some(self.splice(found.line, &line))
                    }
                    (_, Some(Value::Null)) => {
                        let element = indented(&format!("- {value}"), found.indent + 2);
                        let end = found.block.end;
                        Some(self.splice(end..end, &format!("{element}\n")))
                    }
                    _ => None,
                }
            }
            Some(found) => {
                let indent = self.first_indent(&found.block).unwrap_or(found.indent);
                let element = indented(&format!("- {value}"), indent);
                let end = found.block.end;
                Some(self.splice(end..end, &format!("{element}\n")))
            }
            None => self.with_entry(path, &format!("\n  - {value}")),
        };
        let element: Parsed = serde_yaml::to_value(value).unwrap_or_default();
        self.take(path, text, |document| {
            let list = entry(document, path)?;
            if list.is_null() {
                *list = Parsed::Sequence(Vec::new());
            }
            list.as_sequence_mut()?.push(element);
            Some(())
        })
    }

    fn remove(&mut self, path: &[String]) {
        let (Some(found), Some((name, parents))) = (self.find(path), path.split_last()) else {
            return;
        };
        let text = self.splice(found.line.start..found.block.end, "");
        // If nobody can tell which lines these are, they stay.
        let _ = self.take(path, Some(text), |document| {
            let parent = entry(document, parents)?;
            parent.as_mapping_mut()?.remove(name.as_str());
            // A mapping whose last line is gone is no value.
            if parent.as_mapping().is_some_and(Mapping::is_empty) {
                *parent = Parsed::Null;
            }
            Some(())
        });
    }

    fn remove_element(&mut self, path: &[String], value: &Value) -> bool {
        let Some(found) = self.find(path) else {
            return false;
        };
        let Some(Value::Array(elements)) = self.get(path) else {
            return false;
        };
        let Some(at) = elements.iter().position(|element| element == value) else {
            return false;
        };
        let text = match found.block.is_empty() {
            // A list on one line is written anew. It is short, and has no comment in it.
            true => {
                let line = &self.text[found.line.clone()];
                line.find('[').zip(line.rfind(']')).map(|(start, end)| {
                    let mut rest = elements.clone();
                    rest.remove(at);
                    let line = format!(
                        "{}{}{}",
                        &line[..start],
                        Value::Array(rest),
                        &line[end + 1..]
                    );
                    self.splice(found.line.clone(), &line)
                })
            }
            false => {
                let mut lines = self.lines(&found.block);
                let line = lines.find(|line| {
                    let element = self.text[line.clone()].trim_start().strip_prefix("- ");
                    let element = element.map(serde_yaml::from_str::<Value>);
                    element.is_some_and(|element| element.ok().as_ref() == Some(value))
                });
                line.map(|line| self.splice(line, ""))
            }
        };
        let removed = self.take(path, text, |document| {
            let list = entry(document, path)?;
            list.as_sequence_mut()?.remove(at);
            if !found.block.is_empty() && list.as_sequence().is_some_and(Vec::is_empty) {
                *list = Parsed::Null;
            }
            Some(())
        });
        removed.is_ok()
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}
