//! What `contexture setup` did to the files of an agent, so that it can be undone.
//!
//! A [`Journal`] is a file in the home directory for each agent. It has the text of each file from
//! before the change, which may hold the user's secrets, so only the owner can read it. It is
//! written before the first file of the agent, so that a command that was interrupted can be
//! undone, too, and deleted after the undo.

use std::path::{Path, PathBuf};

use contexture_engine_api::make_private_folder;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{Change, not_edited, read_text};
use crate::edit::{Conflict, Edit, FileFormat, TakenBack, take_back};
use crate::error::CliError;
use crate::output;

/// How an agent was set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// The agent calls Contexture: hooks or a plugin, and the history tools.
    Hooks,
    /// The agent has the history tools, and its own compaction.
    Tools,
    /// The agent sends its requests to the gateway.
    Gateway,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) mode: Mode,
    pub(super) files: Vec<Entry>,
}

/// A file of the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) format: FileFormat,
    /// The text from before the change, or `None` if the file did not exist.
    pub(super) before: Option<String>,
    /// The fingerprint of the text after the change.
    after: String,
    pub(super) edits: Vec<Edit>,
    /// The user's values that were replaced.
    pub(super) replaced: Vec<Conflict>,
    /// The folders that were created, the outermost first.
    pub(super) folders: Vec<PathBuf>,
}

impl Entry {
    pub(super) fn new(
        path: PathBuf,
        format: FileFormat,
        (before, after): (Option<String>, &str),
        edits: Vec<Edit>,
        replaced: Vec<Conflict>,
    ) -> Self {
        // The folders are noted before they are created, so that the undo removes them even if the
        // set-up is interrupted.
        let missing = path
            .ancestors()
            .skip(1)
            .take_while(|folder| !folder.exists());
        let mut folders: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        folders.reverse();
        Self {
            path,
            format,
            before,
            after: fingerprint(after),
            edits,
            replaced,
            folders,
        }
    }

    /// Returns what an undo does to the file, and what stays because the user changed it, with the
    /// name of the file. If the file is as the command left it, it gets the text from before, byte
    /// for byte. Otherwise only the edits are removed.
    pub(super) fn undone(&self) -> Result<(Change, Vec<String>), CliError> {
        let now = read_text(&self.path)?;
        let is_ours = now
            .as_deref()
            .is_some_and(|now| fingerprint(now) == self.after);
        let taken = match &now {
            // If the set-up was interrupted before it came to this file, the text is the one from
            // before, and the last arm leaves it so.
            Some(now) if !is_ours && Some(now) != self.before.as_ref() => {
                let before = self.before.as_deref();
                take_back(self.format, now, before, &self.edits)
                    .map_err(|error| not_edited(&self.path, &error))?
            }
            // The user deleted the file, so there is nothing to take back.
            None => TakenBack::default(),
            Some(_) => TakenBack {
                text: self.before.clone(),
                left: Vec::new(),
            },
        };
        let path = self.path.display();
        let left = taken.left.iter();
        let left = left.map(|what| format!("{path} is left: {what}"));
        let change = Change {
            path: self.path.clone(),
            before: now,
            after: taken.text,
        };
        Ok((change, left.collect()))
    }
}

/// A hash of a text. It is enough to tell whether somebody has edited the file since.
fn fingerprint(text: &str) -> String {
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

impl Journal {
    fn path(home: &Path, agent: &str) -> PathBuf {
        home.join("setup").join(format!("{agent}.json"))
    }

    /// Reads the journal of an agent. `None` if the agent is not set up.
    ///
    /// # Errors
    /// Fails if the file cannot be read, because without it the change cannot be undone exactly.
    pub(super) fn read(home: &Path, agent: &str) -> Result<Option<Self>, CliError> {
        let path = Self::path(home, agent);
        let Some(text) = read_text(&path)? else {
            return Ok(None);
        };
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|error| {
            CliError::usage(
                format!(
                    "{} does not say what was changed for {agent}: {error}",
                    path.display()
                ),
                "delete it, and remove what mentions `contexture` from the agent's own settings by hand",
            )
        })
    }

    pub(super) fn write(&self, home: &Path, agent: &str) -> Result<(), CliError> {
        let path = Self::path(home, agent);
        let folder = home.join("setup");
        let made = make_private_folder(home).and_then(|()| make_private_folder(&folder));
        made.map_err(CliError::write(&folder))?;
        output::write_file(&path, &output::pretty(self))
    }

    pub(super) fn delete(home: &Path, agent: &str) -> Result<(), CliError> {
        let path = Self::path(home, agent);
        std::fs::remove_file(&path).map_err(CliError::write(&path))
    }
}
