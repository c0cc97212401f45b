//! Reads YAML text as a JSON value, within bounds, and finds the position of a key or value.
//!
//! [`read`] is the first function to look at. It differs from deserialising with serde_yaml in
//! three ways: a key that occurs twice is an error, tags are refused, and the number of values is
//! limited, so that a file of nested aliases cannot fill the memory.
//!
//! [`locate`] finds the line and column of a value. The parser reports positions only in its
//! errors, so the text is parsed a second time with a visitor that fails at the wanted value.
//! [`KeyPath`] is how the other modules name a value. What the values mean is left to them.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Serialize;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_json::{Map, Value};

/// The most keys and values of a document, with aliases expanded. A hand-written file has hundreds,
/// so more than this is an attack or a wrong file.
const MAX_NODES: usize = 100_000;

/// A position in a file. Line and column are counted from 1, as editors do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, in characters and not in bytes.
    pub column: usize,
}

/// One step from a value to a value inside it. A path is a list of such steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum PathStep {
    /// To the value under this key of a mapping.
    Key(String),
    /// To the element at this index of a list, counted from 0.
    Index(usize),
}

/// The path from the root of a document to one value. It is displayed as `plugins.dirs[0]`, and an
/// empty path is the root itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct KeyPath(pub Vec<PathStep>);

impl KeyPath {
    /// The path that leads through mappings only, one step for each of these keys.
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a str>) -> Self {
        Self(
            keys.into_iter()
                .map(|key| PathStep::Key(key.into()))
                .collect(),
        )
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        let mut path = self.clone();
        path.0.push(PathStep::Key(key.into()));
        path
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.0.push(PathStep::Index(index));
        path
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Key(key) if at == 0 => f.write_str(key)?,
                PathStep::Key(key) => write!(f, ".{key}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Why a text could not be read as YAML, in words without the position. The position is None if the
/// parser did not report one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct YamlError {
    pub(crate) location: Option<Location>,
    pub(crate) message: String,
}

/// Reads a text with a single YAML document. A text that is empty or has only comments is null.
/// Fails with [`YamlError`] on invalid YAML, a duplicate key, a tag, a number that JSON cannot
/// express, and on too many values.
pub(crate) fn read(text: &str) -> Result<Value, YamlError> {
    let notes = Notes::default();
    let root = KeyPath::default();
    let build = Build {
        notes: &notes,
        path: &root,
    };
    let error = match build.deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(value) => return Ok(value),
        // The parser reports an empty document as an error, but an empty config file is valid.
        Err(_) if is_blank(text) => return Ok(Value::Null),
        Err(error) => error,
    };
    if let Some(key) = notes.duplicate.take() {
        let first = locate(text, &key, Aim::Key { nth: 0 }).map_or(0, |at| at.line);
        return Err(YamlError {
            location: locate(text, &key, Aim::Key { nth: 1 }),
            message: format!("`{key}` appears twice, first in line {first}; remove one"),
        });
    }
    let location = error.location().map(Location::from);
    // The message is shown behind `line:column`, so the parser's own wording of the position is
    // removed from it.
    let mut message = error.to_string();
    if let Some(at) = location {
        let suffix = format!(" at line {} column {}", at.line, at.column);
        message = message.replace(&suffix, "");
    }
    Err(YamlError { location, message })
}

fn is_blank(text: &str) -> bool {
    text.lines().all(|line| {
        let line = line.trim();
        line.is_empty() || line.starts_with('#') || line == "---"
    })
}

impl From<serde_yaml::Location> for Location {
    fn from(at: serde_yaml::Location) -> Self {
        Self {
            line: at.line(),
            column: at.column(),
        }
    }
}

/// What the builder records while it works. The error of the parser has no room for a path, so the
/// path of a duplicate key is kept here.
#[derive(Default)]
struct Notes {
    nodes: Cell<usize>,
    duplicate: RefCell<Option<KeyPath>>,
}

/// Builds a value and counts its nodes. The map reader of serde_json would let the last of two
/// equal keys win, so this one checks for duplicates itself.
#[derive(Clone, Copy)]
struct Build<'a> {
    notes: &'a Notes,
    path: &'a KeyPath,
}

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        // serde_yaml has limits of its own, but it accepts far more values than a configuration can
        // have.
        let nodes = self.notes.nodes.get() + 1;
        self.notes.nodes.set(nodes);
        if nodes > MAX_NODES {
            return Err(D::Error::custom(format!(
                "more than {MAX_NODES} values, aliases expanded"
            )));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a number, true, false, null, a list or a mapping")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            // JSON has no NaN and no infinity.
            .ok_or_else(|| E::custom(format!("{value} is not a finite number")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = self.path.index(list.len());
            match seq.next_element_seed(Build {
                notes: self.notes,
                path: &path,
            })? {
                Some(value) => list.push(value),
                None => return Ok(list.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = self.path.key(&key);
            if object.contains_key(&key) {
                self.notes.duplicate.replace(Some(path));
                return Err(A::Error::custom("duplicate key"));
            }
            let value = map.next_value_seed(Build {
                notes: self.notes,
                path: &path,
            })?;
            object.insert(key, value);
        }
        Ok(object.into())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _tagged: A) -> Result<Value, A::Error> {
        // A tag has no counterpart in JSON, and dropping it would silently change the meaning of
        // the value.
        Err(A::Error::custom("tags (`!name`) are not supported"))
    }
}

/// What to find at a path: the value, or the key that leads to it. Problems with a value point at
/// the value, an unknown key points at the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    Value,
    /// The last key of the path, in its `nth` occurrence in that mapping, counted from 0. The
    /// second occurrence exists only in a text with a duplicate key.
    Key {
        nth: usize,
    },
}

/// Finds the position of a value or key. Returns None if the text has no such value.
///
/// serde_yaml reports positions only for errors, so this function reads the text again with a
/// visitor that fails on purpose at the wanted value.
pub(crate) fn locate(text: &str, path: &KeyPath, aim: Aim) -> Option<Location> {
    Seek { path: &path.0, aim }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()?
        .location()
        .map(Location::from)
}

/// A visitor that follows `path` through the text and fails at its end. Everything beside the path
/// is skipped.
struct Seek<'a> {
    path: &'a [PathStep],
    aim: Aim,
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = ();

    // A scalar is always the end of the path. No `visit_` method accepts it, so serde's default
    // fails, and serde_yaml records the position.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what is looked for")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((PathStep::Index(index), rest)) = self.path.split_first() else {
            return Err(A::Error::custom("found"));
        };
        for _ in 0..*index {
            seq.next_element::<IgnoredAny>()?;
        }
        seq.next_element_seed(Seek { path: rest, ..self })?;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((PathStep::Key(wanted), rest)) = self.path.split_first() else {
            return Err(A::Error::custom("found"));
        };
        let mut skip = match self.aim {
            Aim::Key { nth } if rest.is_empty() => Some(nth),
            _ => None,
        };
        while let Some(found) = map.next_key_seed(SeekKey {
            wanted,
            skip: &mut skip,
        })? {
            if found && skip.is_none() {
                return map.next_value_seed(Seek { path: rest, ..self });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Reads a key and returns whether it is the wanted one. If `skip` is set, it fails on the wanted
/// key after that many occurrences, which gives the key's position.
struct SeekKey<'a> {
    wanted: &'a str,
    skip: &'a mut Option<usize>,
}

impl<'de> DeserializeSeed<'de> for SeekKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for SeekKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        if key != self.wanted {
            return Ok(false);
        }
        match self.skip {
            Some(0) => Err(E::custom("found")),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests;
