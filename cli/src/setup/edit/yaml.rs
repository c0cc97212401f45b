//! YAML, of which whole lines are added at the end and removed.
//!
//! Only keys at the top with a text as their value are edited, which is all that aider needs. The
//! parser checks the text and finds the keys; the lines themselves are never written anew.
//!
//! If the text is written in a style to which no line can be added, it is refused. After each edit
//! [`Yaml`] is parsed again, and an edit that did not have its effect is an error.

use serde_json::Value;
use serde_yaml::Value as Parsed;

use super::{Document, EditError};

pub(super) struct Yaml {
    text: String,
    parsed: Parsed,
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

    fn line_of(&self, name: &str) -> Option<std::ops::Range<usize>> {
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            let range = at..at + line.len();
            at = range.end;
            let rest = line.strip_prefix(name).map(str::trim_start);
            if rest.is_some_and(|rest| rest.starts_with(':')) {
                return Some(range);
            }
        }
        None
    }

    fn parse_again(&mut self) {
        // If the text cannot be parsed after an edit, for example because the key is there twice,
        // no key is found, and `set` reports that.
        self.parsed = serde_yaml::from_str(&self.text).unwrap_or(Parsed::Null);
    }
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
        let [name] = path else {
            return Err(EditError::Shape(path.join("."), "key at the top"));
        };
        // JSON text is YAML, too.
        let line = format!("{name}: {value}\n");
        match self.line_of(name) {
            Some(range) => {
                // A value of several lines would leave its other lines behind.
                if self.get(path).is_some_and(|old| !old.is_string()) {
                    return Err(EditError::Shape(name.clone(), "text"));
                }
                self.text.replace_range(range, &line);
            }
            None => {
                if !self.text.is_empty() && !self.text.ends_with('\n') {
                    self.text.push('\n');
                }
                self.text.push_str(&line);
            }
        }
        self.parse_again();
        match self.get(path).as_ref() == Some(value) {
            true => Ok(()),
            false => Err(EditError::Shape(name.clone(), "text on one line")),
        }
    }

    fn push(&mut self, path: &[String], _: &Value) -> Result<(), EditError> {
        Err(EditError::Shape(path.join("."), "text"))
    }

    fn remove(&mut self, path: &[String]) {
        let [name] = path else { return };
        if let Some(range) = self.line_of(name) {
            self.text.replace_range(range, "");
            self.parse_again();
        }
    }

    fn remove_element(&mut self, _: &[String], _: &Value) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.text.trim().is_empty()
    }

    fn text(&self) -> String {
        self.text.clone()
    }
}
