//! The effective configuration, with the origin of each value.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::load::Loaded;
use super::yaml::{KeyPath, PathStep};

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The file does not set it.
    Default,
    /// The config file sets it.
    File,
}

/// One key with its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Its path.
    pub key: KeyPath,
    /// The value.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// Every key that has a value, in the order of the documentation. Displayed, it is an equivalent config
/// file, with a comment at every default.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Effective(pub Vec<Setting>);

impl Loaded {
    /// The engine that the file names as `context.engine`; none where it says nothing of it.
    pub fn written_engine(&self) -> Option<&str> {
        self.document.value.get("context")?.get("engine")?;
        Some(&self.config.context.engine)
    }

    /// The engine that goes on with a session which `own` had, where none is named: its own, unless the file names
    /// another; none where the configuration chooses.
    pub fn engine_to_go_on<'a>(&self, own: Option<&'a str>) -> Option<&'a str> {
        own.filter(|own| self.written_engine().is_none_or(|written| written == *own))
    }

    /// The effective configuration, value by value.
    pub fn effective(&self) -> Effective {
        // The config came out of JSON, so it goes back.
        let mut config = serde_json::to_value(&self.config).unwrap_or_default();
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
            // JSON is YAML, too.
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

/// A key as written in YAML: quoted where it could be read as anything but a word.
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::Config;

    #[test]
    fn what_is_shown_says_the_origin_and_reads_back_as_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let env = |_: &str| Some(dir.path().as_os_str().to_owned());
        let file = dir.path().join("config.yaml");
        std::fs::write(
            &file,
            "compression: {threshold: 0.5}\nplugins: {dirs: [here]}\ncontext:\n  engine: lcm\n  \
             engines: {lcm: {a: {b: [1, 'x: y # z']}, 'odd key: ': {}}, other: {on: \"é\\n\\u0007\"}}\n",
        )
        .unwrap();
        let loaded = Config::load(None, &env).unwrap();
        let shown = loaded.effective().to_string();
        assert!(
            shown.contains("\n  threshold: 0.5\n  max_threshold_tokens: null  # default\n"),
            "{shown}"
        );
        assert!(
            shown.contains("      a:\n        b: [1,\"x: y # z\"]\n"),
            "{shown}"
        );
        assert!(shown.contains("cache_ttl: \"5m\"  # default"), "{shown}");

        std::fs::write(&file, &shown).unwrap();
        let again = Config::load(None, &env).unwrap();
        assert_eq!(again.warnings, []);
        assert_eq!(again.plugin_dirs, loaded.plugin_dirs);
        let same = |config: &Config| Config {
            plugins: Default::default(),
            ..config.clone()
        };
        assert_eq!(same(&again.config), same(&loaded.config));
        // Null still means the default; everything else is now set.
        let defaults = again
            .effective()
            .0
            .into_iter()
            .filter(|s| s.origin == Origin::Default);
        assert!(
            defaults
                .map(|setting| setting.value)
                .all(|value| value.is_null())
        );
    }
}
