//! A YAML file: its values, and the position of each in the file.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use contexture_base::trust::{self, Untrusted};
use contexture_engine_api::grouped;
use serde::Serialize;
use serde_json::Value;

use super::check::{Found, Problem};
use super::schema::Schema;
use super::secrets;
use super::yaml::{self, Aim, KeyPath, Location, YamlError};

/// The largest file that is read, in bytes. Larger ones could take seconds: deep nesting costs the YAML
/// scanner quadratic time.
pub(crate) const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The most problems whose positions are looked up, because each look-up reads the text again.
const MAX_LOCATED: usize = 50;

/// Why a file could not be read at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is missing, not readable, not a regular file, or another user may have written it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// It is larger than 256 KiB.
    #[error("{} is larger than {} bytes: is it the right file?", file.display(), grouped(MAX_FILE_BYTES))]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
    /// It is not UTF-8.
    #[error("{} is not UTF-8 text from byte {valid} on: save it as UTF-8", file.display())]
    NotUtf8 {
        /// The file.
        file: PathBuf,
        /// How many bytes from the start are valid.
        valid: usize,
    },
    /// It is not valid YAML, or too large a document.
    #[error("{}: {message}", FilePosition(file, *location))]
    Syntax {
        /// The file.
        file: PathBuf,
        /// The position, if known.
        location: Option<Location>,
        /// What is wrong.
        message: String,
    },
    /// A mapping has the same key twice.
    #[error(
        "{}: `{key}` is given twice, first in line {}; remove one of the two",
        FilePosition(file, *second),
        first.map_or(0, |at| at.line)
    )]
    DuplicateKey {
        /// The file.
        file: PathBuf,
        /// Its path.
        key: String,
        /// The first occurrence.
        first: Option<Location>,
        /// The second occurrence.
        second: Option<Location>,
    },
}

/// A problem and its position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: PathBuf,
    /// The position in it, if known.
    pub location: Option<Location>,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            FilePosition(&self.file, self.location),
            self.problem
        )
    }
}

/// `file:line:column`, the form that editors and terminals turn into a link.
struct FilePosition<'a>(&'a Path, Option<Location>);

impl fmt::Display for FilePosition<'_> {
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
pub struct Document {
    /// The file.
    pub file: PathBuf,
    text: String,
    /// Its content. Always a mapping, even for an empty file; normalised by [`check`](Self::check).
    pub value: Value,
}

impl Document {
    /// Reads a file that no other user can have written.
    ///
    /// # Errors
    /// The file cannot be read or trusted, is too large, or is not YAML.
    pub fn open(file: &Path) -> Result<Self, DocumentError> {
        let opened = trust::open(file)?;
        let mut bytes = Vec::new();
        // Reading one byte more than allowed detects a file that is too large, even one without a
        // length.
        let read = opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|cause| Untrusted::Unreadable {
            path: file.to_owned(),
            cause,
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

    /// Finds what is wrong with the file and normalises its values (see [`Schema::check`]). If the file
    /// holds secrets, only those are reported, so that no other message quotes them.
    pub fn check(&mut self, schema: &Schema) -> Vec<Finding> {
        let secrets = secrets::find(&self.value);
        let found = match secrets.is_empty() {
            true => schema.check(&mut self.value),
            false => secrets,
        };
        self.findings(found)
    }

    /// Where a value stands.
    pub(crate) fn locate(&self, path: &KeyPath) -> Option<Location> {
        yaml::locate(&self.text, path, Aim::Value)
    }

    /// Adds the position in the text to each problem.
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
