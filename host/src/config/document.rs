//! A YAML file as it was read: its values, and where in the file each one stands.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::schema::{Found, Problem, Schema};
use super::secrets;
use super::yaml::{self, Aim, Location, YamlError};

/// The largest file that is read, in bytes. Larger ones could take seconds: deep nesting costs the YAML
/// scanner quadratic time.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The most problems of one file whose places are looked up, which takes a reading of the text for each.
const MAX_LOCATED: usize = 50;

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is not there, or may not be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is larger than [`MAX_FILE_BYTES`].
    #[error("{} is larger than {MAX_FILE_BYTES} bytes: is it the right file?", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// It is not UTF-8.
    #[error("{} is not UTF-8 text from byte {valid} on: save it as UTF-8", file.display())]
    NotUtf8 {
        /// The file.
        file: PathBuf,
        /// How many bytes at its beginning are.
        valid: usize,
    },
    /// It is not YAML, or more than is taken of it.
    #[error("{}: {message}", Place(file, *location))]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Where, as far as it is known.
        location: Option<Location>,
        /// What is wrong.
        message: String,
    },
    /// One mapping has a key twice, and only one of them could be meant.
    #[error(
        "{}: `{key}` is given twice, first in line {}; remove one of the two",
        Place(file, *second),
        first.map_or(0, |at| at.line)
    )]
    DuplicateKey {
        /// The file.
        file: PathBuf,
        /// The way to it.
        key: String,
        /// Where it stands first.
        first: Option<Location>,
        /// Where it stands again.
        second: Option<Location>,
    },
}

/// A problem and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// Where in it, as far as it is known.
    pub location: Option<Location>,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Place(&self.file, self.location), self.problem)
    }
}

/// `file:line:column`, the form that editors and terminals turn into a link.
struct Place<'a>(&'a Path, Option<Location>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())?;
        match self.1 {
            Some(at) => write!(f, ":{}:{}", at.line, at.column),
            None => Ok(()),
        }
    }
}

/// What a file holds.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) file: PathBuf,
    text: String,
    /// A mapping, where the file is empty or well-formed; tidied by [`check`](Self::check).
    pub(crate) value: Value,
}

impl Document {
    pub(crate) fn open(file: &Path) -> Result<Self, DocumentError> {
        let read = || {
            let mut bytes = Vec::new();
            let opened = std::fs::File::open(file)?;
            // One byte more than allowed tells a file that is too large, even one without a length.
            opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|source| DocumentError::Read {
            file: file.to_owned(),
            source,
        })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(DocumentError::TooLarge {
                file: file.to_owned(),
            });
        }
        let text = String::from_utf8(bytes).map_err(|error| DocumentError::NotUtf8 {
            file: file.to_owned(),
            valid: error.utf8_error().valid_up_to(),
        })?;
        Self::parse(file, text)
    }

    pub(crate) fn parse(file: &Path, text: String) -> Result<Self, DocumentError> {
        let text = text
            .strip_prefix('\u{feff}')
            .map(String::from)
            .unwrap_or(text);
        let value = yaml::read(&text).map_err(|error| match error {
            YamlError::Syntax { location, message } => DocumentError::Syntax {
                file: file.to_owned(),
                location,
                message,
            },
            YamlError::DuplicateKey { key, first, second } => DocumentError::DuplicateKey {
                file: file.to_owned(),
                key: key.to_string(),
                first,
                second,
            },
        })?;
        let value = match value {
            Value::Null => Value::Object(serde_json::Map::new()),
            Value::Object(_) => value,
            _ => {
                return Err(DocumentError::Syntax {
                    file: file.to_owned(),
                    location: None,
                    message: "the file must hold a mapping (`key: value` lines)".into(),
                });
            }
        };
        Ok(Self {
            file: file.to_owned(),
            text,
            value,
        })
    }

    /// What is wrong with the file, and tidies its values (see [`Schema::check`]). A key that must not be
    /// there is told alone, so that no other message shows it.
    pub(crate) fn check(&mut self, schema: &Schema) -> Vec<Finding> {
        let secrets = secrets::find(&self.value);
        let found = match secrets.is_empty() {
            true => schema.check(&mut self.value),
            false => secrets,
        };
        self.findings(found)
    }

    /// Gives each problem its place in the text.
    pub(crate) fn findings(&self, found: Vec<Found>) -> Vec<Finding> {
        found
            .into_iter()
            .enumerate()
            .map(|(index, (path, problem))| {
                let aim = match problem {
                    Problem::UnknownKey { .. } => Aim::Key { nth: 0 },
                    _ => Aim::Value,
                };
                Finding {
                    file: self.file.clone(),
                    location: (index < MAX_LOCATED)
                        .then(|| yaml::locate(&self.text, &path, aim))
                        .flatten(),
                    problem,
                }
            })
            .collect()
    }
}
