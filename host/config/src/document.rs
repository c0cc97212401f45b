//! A YAML file: its values, and the position of each value in the file.
//!
//! [`Document`] is the type to read first. [`Document::open`] reads a file within bounds: it
//! refuses a file that another user may have written, one that is larger than 256 KiB, and one that
//! is not UTF-8. [`Document::check`] compares the values with a schema and returns a [`Finding`]
//! for each problem, with its line and column.
//!
//! Plugin manifests use the same type as `config.yaml`. How YAML becomes JSON values and how a
//! position is found is the task of the `yaml` module.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use contexture_base::trust::{self, Untrusted};
use contexture_engine_api::grouped;
use serde::Serialize;
use serde_json::Value;

use super::check::{Found, Problem, ProblemKind};
use super::schema::Schema;
use super::secrets;
use super::yaml::{self, Aim, KeyPath, Location};

/// The largest file that is read, in bytes. The YAML scanner takes quadratic time for deep nesting,
/// so a larger file could take seconds.
pub(crate) const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The most problems of one document that get a position. Each look-up reads the text again, so a
/// file with thousands of errors would take too long.
const MAX_LOCATED: usize = 50;

/// Why a file cannot be read at all. Each message names the file, so a caller can
/// show it unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The file is missing, not readable or not a regular file, or another user may have written
    /// it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The file is larger than 256 KiB, is not UTF-8 text, or is not a YAML mapping without duplicate
    /// keys.
    #[error("{message}")]
    Unusable {
        /// The path of the file, as it was given.
        file: PathBuf,
        /// What is wrong, after the file and the position if it is known.
        message: String,
    },
}

impl DocumentError {
    /// The error of a file whose text cannot be used.
    pub fn of_text(file: &Path, location: Option<Location>, what: &str) -> Self {
        Self::Unusable {
            file: file.to_owned(),
            message: format!("{}: {what}", FilePosition(file, location)),
        }
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        match self {
            Self::Untrusted(untrusted) => untrusted.path(),
            Self::Unusable { file, .. } => file,
        }
    }
}

/// A problem together with its file and position. Displayed, it is one line that begins with
/// `file:line:column`, the form that editors turn into a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The path of the file that holds the value, shown as it was given when the file was opened.
    pub file: PathBuf,
    /// The position of the key or value. None if it is not known, or if the file has more than 50
    /// problems and this is not one of the first 50.
    pub location: Option<Location>,
    /// The problem itself, from which a caller can tell whether it is a warning or an error.
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

/// A path and a position as `file:line:column`, the form that editors and terminals turn into a
/// link. Without a position only the path is shown.
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

/// The content of a YAML file whose root is a mapping, together with its text. The text is kept so
/// that the position of a value can be looked up when a problem is reported.
#[derive(Debug, Clone)]
pub struct Document {
    /// The path of the file, as it was given.
    pub file: PathBuf,
    text: String,
    /// The values. This is always a mapping, even if the file is empty. [`check`](Self::check)
    /// normalises it.
    pub value: Value,
}

impl Document {
    /// Reads a file that no other user can have written.
    ///
    /// # Errors
    /// Fails if the file cannot be read or trusted, is larger than 256 KiB, is not UTF-8,
    /// or is not a YAML mapping without duplicate keys.
    pub fn open(file: &Path) -> Result<Self, DocumentError> {
        let opened = trust::open(file)?;
        let mut bytes = Vec::new();
        // One byte more than allowed is read, so that a file that is too large is detected even if
        // it has no length, as under `/proc`.
        let read = opened.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|cause| Untrusted::Unreadable {
            path: file.to_owned(),
            cause,
        })?;
        let unusable = |what: String| DocumentError::Unusable {
            file: file.to_owned(),
            message: format!("{} {what}", file.display()),
        };
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let most = grouped(MAX_FILE_BYTES);
            return Err(unusable(format!(
                "is larger than {most} bytes: is it the right file?"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            unusable(format!(
                "is not UTF-8 text from byte {valid} on: save it as UTF-8"
            ))
        })?;
        Self::parse(file, text)
    }

    /// Parses `text` as the content of `file`, which is used for messages only. A byte order mark
    /// at the start is dropped.
    pub(crate) fn parse(file: &Path, text: String) -> Result<Self, DocumentError> {
        let text = text
            // Editors on Windows write a byte order mark, which YAML would take for part of the
            // first key.
            .strip_prefix('\u{feff}')
            .map(String::from)
            .unwrap_or(text);
        let value = yaml::read(&text)
            .map_err(|error| DocumentError::of_text(file, error.location, &error.message))?;
        let value = match value {
            // An empty file is a valid configuration in which everything is default.
            Value::Null => Value::Object(serde_json::Map::new()),
            Value::Object(_) => value,
            _ => {
                let what = "the file must hold a mapping (`key: value` lines)";
                return Err(DocumentError::of_text(file, None, what));
            }
        };
        Ok(Self {
            file: file.to_owned(),
            text,
            value,
        })
    }

    /// Finds what is wrong with the file and normalises its values, see `Schema::check`. If the
    /// file holds secrets, only those are reported, because a message about another problem could
    /// quote a secret.
    pub fn check(&mut self, schema: &Schema) -> Vec<Finding> {
        // Secrets come first: every other message quotes the value that it is about.
        let secrets = secrets::find(&self.value, schema);
        let found = match secrets.is_empty() {
            true => schema.check(&mut self.value),
            false => secrets,
        };
        self.findings(found)
    }

    /// Returns the position of the value at `path`. None if the file has no such value.
    pub(crate) fn locate(&self, path: &KeyPath) -> Option<Location> {
        yaml::locate(&self.text, path, Aim::Value)
    }

    /// Adds the position in the text to each problem. An unknown key is located at the key, every
    /// other problem at the value.
    pub(crate) fn findings(&self, found: Vec<Found>) -> Vec<Finding> {
        found
            .into_iter()
            .enumerate()
            .map(|(index, (path, problem))| {
                let aim = match problem.kind {
                    ProblemKind::UnknownKey => Aim::Key { nth: 0 },
                    _ => Aim::Value,
                };
                Finding {
                    file: self.file.clone(),
                    // Each look-up parses the whole text, so only the first problems get a
                    // position.
                    location: (index < MAX_LOCATED)
                        .then(|| yaml::locate(&self.text, &path, aim))
                        .flatten(),
                    problem,
                }
            })
            .collect()
    }
}
