//! Changes the configuration file of another program without disturbing the rest of it.
//!
//! [`apply`] makes a list of [`Edit`]s in a text and [`take_back`] removes them again. Both keep
//! comments, order, line ends and a byte order mark, because the text is edited in place and not
//! written anew. The formats are in the modules below, each as a [`Document`].
//!
//! A key that has another value than the wanted one is never changed silently: [`apply`] reports
//! it as a [`Conflict`]. So it does with an element of a list that the user has edited since it was
//! added, see [`is_edited`]. `take_back` leaves whatever was changed since, and reports it.

mod env;
mod json;
mod toml;
mod yaml;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileFormat {
    /// JSON, with comments and trailing commas if the file has them.
    Json,
    /// JSON, with whatever else JSON5 allows of names, strings and numbers.
    Json5,
    Toml,
    Yaml,
    /// Environment variables, one in a line.
    Env,
    /// A file of our own. Its only edit is [`Edit::Text`].
    Own,
}

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Edit {
    /// A key gets a value. Missing parents are created.
    Set { path: Vec<String>, value: Value },
    /// A list gets one more element at its end, unless it has it. A missing list is created.
    Push { path: Vec<String>, value: Value },
    /// The whole file is this text.
    Text(String),
}

impl Edit {
    pub(super) fn set(path: &[&str], value: impl Into<Value>) -> Self {
        let (path, value) = (names(path), value.into());
        Self::Set { path, value }
    }

    pub(super) fn push(path: &[&str], value: impl Into<Value>) -> Self {
        let (path, value) = (names(path), value.into());
        Self::Push { path, value }
    }
}

fn names(path: &[&str]) -> Vec<String> {
    path.iter().map(|name| (*name).to_owned()).collect()
}

/// A key that has a value which is not ours, or a list with an element of ours that was edited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Conflict {
    pub(super) path: Vec<String>,
    /// The value or the element that the file has.
    pub(super) value: Value,
}

/// Why a file cannot be edited.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum EditError {
    #[error("it cannot be parsed: {0}")]
    Syntax(String),
    #[error("`{0}` already exists, but is not a {1}")]
    Shape(String, &'static str),
    #[error("`{0}` cannot be added in the style in which the file is written")]
    Style(String),
    #[error("it already exists with different content")]
    Exists,
}

/// The result of [`apply`].
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) text: String,
    /// The edits that changed something. What the user had set already is not among them.
    pub(super) done: Vec<Edit>,
    /// The keys whose values were replaced, or would have to be.
    pub(super) conflicts: Vec<Conflict>,
}

/// Makes the edits in a text. `None` is a file that does not exist. If keys have other values,
/// these are replaced, and the caller decides from [`Applied::conflicts`] whether to write the
/// result.
///
/// # Errors
/// Fails if the text cannot be parsed, or if a parent of a key is not a mapping.
pub(super) fn apply(
    format: FileFormat,
    text: Option<&str>,
    edits: &[Edit],
) -> Result<Applied, EditError> {
    if format == FileFormat::Own {
        return own(text, edits);
    }
    let layout = Layout::of(text.unwrap_or_default());
    let mut document = parse(format, &layout.plain)?;
    let mut applied = Applied::default();
    for edit in edits {
        match edit {
            Edit::Set { path, value } => match document.get(path) {
                Some(is) if is == *value => continue,
                is => {
                    let is = is.filter(|is| !is_unset(is));
                    applied.conflicts.extend(is.map(|value| Conflict {
                        path: path.clone(),
                        value,
                    }));
                    document.set(path, value)?;
                }
            },
            Edit::Push { path, value } => {
                let list = document.get(path);
                let list = elements(list.as_ref());
                if list.contains(value) {
                    continue;
                }
                if let Some(edited) = list.iter().find(|element| is_edited(element, value)) {
                    document.remove_element(path, edited);
                    applied.conflicts.push(Conflict {
                        path: path.clone(),
                        value: edited.clone(),
                    });
                }
                document.push(path, value)?;
            }
            Edit::Text(_) => continue,
        }
        applied.done.push(edit.clone());
    }
    applied.text = match applied.done.is_empty() {
        true => text.unwrap_or_default().to_owned(),
        false => layout.restore(&document.text()),
    };
    Ok(applied)
}

/// Whether a value stands for none. Whoever has such a key can lose nothing.
fn is_unset(value: &Value) -> bool {
    value.is_null() || value == ""
}

/// Whether an element of a list is one of ours which was edited since. What identifies an element
/// is the command of a hook, the name of a variable, or else the whole text.
fn is_edited(element: &Value, ours: &Value) -> bool {
    fn name(element: &Value) -> Option<&str> {
        element.as_str()?.split('=').next()
    }
    fn commands(group: &Value) -> impl Iterator<Item = &str> {
        let hooks = group["hooks"].as_array().into_iter().flatten();
        hooks.filter_map(|hook| hook["command"].as_str())
    }
    match name(ours) {
        Some(ours) => name(element) == Some(ours),
        None => commands(ours).any(|command| commands(element).any(|other| other == command)),
    }
}

/// Returns the value of a key in a text. `None` if there is none, or if the text cannot be parsed.
pub(super) fn value_at(format: FileFormat, text: &str, path: &[&str]) -> Option<Value> {
    let document = parse(format, &Layout::of(text).plain).ok()?;
    document.get(&names(path))
}

fn own(text: Option<&str>, edits: &[Edit]) -> Result<Applied, EditError> {
    let wanted = edits.iter().find_map(|edit| match edit {
        Edit::Text(text) => Some(text),
        _ => None,
    });
    let wanted = wanted.map(String::as_str).unwrap_or_default();
    match text {
        // A file of the user's may have the same name. It is not overwritten.
        Some(text) if text != wanted => Err(EditError::Exists),
        text => Ok(Applied {
            text: wanted.to_owned(),
            done: match text {
                Some(_) => Vec::new(),
                None => edits.to_vec(),
            },
            conflicts: Vec::new(),
        }),
    }
}

/// The result of [`take_back`].
#[derive(Debug, Default)]
pub(super) struct TakenBack {
    /// The text without the edits. `None` if the file is to be deleted.
    pub(super) text: Option<String>,
    /// What was changed since and is left as it is, for the user.
    pub(super) left: Vec<String>,
}

/// Removes edits from a text that somebody else has changed since. `before` is the text from
/// before the edits. What was replaced gets the value back that it had there.
///
/// # Errors
/// Fails if the text cannot be parsed.
pub(super) fn take_back(
    format: FileFormat,
    text: &str,
    before: Option<&str>,
    done: &[Edit],
) -> Result<TakenBack, EditError> {
    if format == FileFormat::Own {
        return Ok(TakenBack {
            text: Some(text.to_owned()),
            left: vec!["the file was edited; delete it if you no longer need it".to_owned()],
        });
    }
    let layout = Layout::of(text);
    let mut document = parse(format, &layout.plain)?;
    let earlier = Layout::of(before.unwrap_or_default());
    let earlier = parse(format, &earlier.plain)?;
    let mut left = Vec::new();
    // The last edit goes first, because it may be in a container that an earlier one created.
    for edit in done.iter().rev() {
        let path = match edit {
            Edit::Set { path, value } => {
                match document.get(path) {
                    Some(is) if is == *value => {}
                    Some(_) => {
                        left.push(format!("`{}` has another value now", path.join(".")));
                        continue;
                    }
                    None => continue,
                }
                match earlier.get(path) {
                    Some(old) => document.set(path, &old)?,
                    None => document.remove(path),
                }
                path
            }
            Edit::Push { path, value } => {
                if !document.remove_element(path, value) {
                    let list = document.get(path);
                    let mut list = elements(list.as_ref()).iter();
                    if list.any(|element| is_edited(element, value)) {
                        left.push(format!("the entry of `{}` was changed", path.join(".")));
                    }
                    continue;
                }
                let list = earlier.get(path);
                let mut list = elements(list.as_ref()).iter();
                if let Some(old) = list.find(|element| is_edited(element, value)) {
                    document.push(path, old)?;
                }
                path
            }
            Edit::Text(_) => continue,
        };
        // Containers that the edit created go with it once they are empty.
        for length in (1..=path.len()).rev() {
            let container = &path[..length];
            let is_empty = match document.get(container) {
                Some(Value::Object(members)) => members.is_empty(),
                Some(Value::Array(elements)) => elements.is_empty(),
                Some(_) => false,
                None => continue,
            };
            match earlier.get(container) {
                None if is_empty => document.remove(container),
                // YAML has keys without a value, in which an edit may have put a container.
                Some(value) if is_empty && value.is_null() => document.set(container, &value)?,
                _ => break,
            }
        }
    }
    // If the file did not exist before and nothing of the user's is in it, it goes as a whole.
    let is_empty = before.is_none() && document.is_empty();
    Ok(TakenBack {
        text: (!is_empty).then(|| layout.restore(&document.text())),
        left,
    })
}

/// A parsed file that keeps its text.
trait Document {
    /// Returns the value of a key, or `None` if there is none.
    fn get(&self, path: &[String]) -> Option<Value>;
    /// Gives a key a value, whether it has one or not.
    fn set(&mut self, path: &[String], value: &Value) -> Result<(), EditError>;
    /// Adds an element to a list.
    fn push(&mut self, path: &[String], value: &Value) -> Result<(), EditError>;
    /// Removes a key, if it is there.
    fn remove(&mut self, path: &[String]);
    /// Removes the first element of a list that equals the value. Returns whether there was one.
    fn remove_element(&mut self, path: &[String], value: &Value) -> bool;
    /// Returns whether it holds no key and no comment.
    fn is_empty(&self) -> bool;
    fn text(&self) -> String;
}

fn parse(format: FileFormat, text: &str) -> Result<Box<dyn Document>, EditError> {
    Ok(match format {
        FileFormat::Json => Box::new(json::Json::parse(text, false)?),
        FileFormat::Json5 => Box::new(json::Json::parse(text, true)?),
        FileFormat::Toml => Box::new(toml::Toml::parse(text)?),
        FileFormat::Env => Box::new(env::Env::parse(text)?),
        FileFormat::Yaml | FileFormat::Own => Box::new(yaml::Yaml::parse(text)?),
    })
}

fn elements(list: Option<&Value>) -> &[Value] {
    let list = list.and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// A text without its byte order mark and with plain line feeds, which is what the parsers take.
struct Layout {
    plain: String,
    has_mark: bool,
    has_carriage_returns: bool,
}

impl Layout {
    const MARK: char = '\u{feff}';

    fn of(text: &str) -> Self {
        let unmarked = text.strip_prefix(Self::MARK);
        let text_only = unmarked.unwrap_or(text);
        // In a file with both kinds of line ends, each line keeps its own.
        let feeds = text_only.matches('\n').count();
        let has_carriage_returns = feeds > 0 && text_only.matches("\r\n").count() == feeds;
        Self {
            plain: match has_carriage_returns {
                true => text_only.replace("\r\n", "\n"),
                false => text_only.to_owned(),
            },
            has_mark: unmarked.is_some(),
            has_carriage_returns,
        }
    }

    fn restore(&self, plain: &str) -> String {
        let mut text = match self.has_carriage_returns {
            true => plain.replace('\n', "\r\n"),
            false => plain.to_owned(),
        };
        if self.has_mark {
            text.insert(0, Self::MARK);
        }
        text
    }
}

#[cfg(test)]
mod tests;
