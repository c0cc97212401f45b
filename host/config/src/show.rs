//! The effective configuration, with the origin of each value.
//!
//! [`Loaded::effective`] lists every setting with its value and says whether the file sets it or
//! the default applies. `contexture config show` prints the list. Its text is itself a valid config
//! file, so a user can save it and change the defaults in it.
//!
//! The module also answers which engine the file names, as opposed to which one applies by default.
//! That decides whether a session goes on with the engine that it had, see
//! [`Loaded::engine_to_go_on`].

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::load::Loaded;
use super::yaml::{KeyPath, PathStep};

/// Whether a value comes from the file or from the defaults. Values from the environment are not
/// part of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The file does not set the key, so the default applies.
    Default,
    /// The config file sets the key, possibly to the same value as the default.
    File,
}

/// One key of the configuration with its value and origin.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Setting {
    /// The path of the key from the root of the file, such as `compression.threshold`.
    pub key: KeyPath,
    /// The value that applies, after words and numbers were converted to the expected type.
    pub value: Value,
    /// Whether the file sets the value. `config show` marks the others as defaults.
    pub origin: Origin,
}

/// Every key that has a value, in the order of the documentation. Displayed, it is a config file
/// with the same meaning, in which each default is marked by a comment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Effective(pub Vec<Setting>);

impl Loaded {
    /// Returns the engine that the file names as `context.engine`. None if the file does not set
    /// it, even though an engine always applies by default.
    pub fn written_engine(&self) -> Option<&str> {
        self.document.value.get("context")?.get("engine")?;
        Some(&self.config.context.engine)
    }

    /// Returns the engine that should go on with a session if the user names none on the command
    /// line. This is the session's `own` engine, unless the file names another one. None means that
    /// the configuration decides.
    pub fn engine_to_go_on<'a>(&self, own: Option<&'a str>) -> Option<&'a str> {
        own.filter(|own| self.written_engine().is_none_or(|written| written == *own))
    }

    /// Returns the effective configuration, one entry for each value. `plugins.dirs` has the
    /// absolute folders that are searched.
    pub fn effective(&self) -> Effective {
        // The configuration was deserialised from JSON, so it serialises without an error.
        let mut config = serde_json::to_value(&self.config).unwrap_or_default();
        // The folders are shown as absolute paths, because a relative one says nothing about where
        // the file is.
        config["plugins"]["dirs"] = self
            .plugin_dirs
            .iter()
            .map(|dir| Value::from(dir.to_string_lossy()))
            .collect();
        let mut settings = Vec::new();
        flatten(
            config,
            Some(&self.document.value),
            &KeyPath::default(),
            &mut settings,
        );
        Effective(settings)
    }
}

/// Appends the settings of `value` to `settings`, depth first. An empty mapping is a setting of its
/// own, so that `engines: {}` is shown.
fn flatten(value: Value, file: Option<&Value>, at: &KeyPath, settings: &mut Vec<Setting>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (key, value) in object {
                let file = file.and_then(|file| file.get(&key));
                flatten(value, file, &at.key(&key), settings);
            }
        }
        value => settings.push(Setting {
            key: at.clone(),
            value,
            origin: if file.is_some() {
                Origin::File
            } else {
                Origin::Default
            },
        }),
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open: &[PathStep] = &[];
        for setting in &self.0 {
            let path = setting.key.0.as_slice();
            let shared = open.iter().zip(path).take_while(|(a, b)| a == b).count();
            for (depth, step) in path.iter().enumerate().skip(shared) {
                let PathStep::Key(key) = step else {
                    continue;
                };
                write!(f, "{:indent$}{}:", "", quoted(key), indent = depth * 2)?;
                if depth + 1 < path.len() {
                    writeln!(f)?;
                }
            }
            // JSON is valid YAML, so every value is written as JSON.
            let comment = match setting.origin {
                Origin::Default => "  # default",
                Origin::File => "",
            };
            writeln!(f, " {}{comment}", setting.value)?;
            open = &path[..path.len().saturating_sub(1)];
        }
        Ok(())
    }
}

/// Returns a key as YAML writes it. If it could be read as anything but a plain word, it is quoted.
fn quoted(key: &str) -> String {
    let word = key.starts_with(|first: char| first.is_ascii_lowercase())
        && key
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || "_-".contains(char))
        && !matches!(key, "null" | "true" | "false");
    match word {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

#[cfg(test)]
mod tests;
