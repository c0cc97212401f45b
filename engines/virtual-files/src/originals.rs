//! What has left the window, as it was on the wire: for a host that lost it, and for an engine that comes after this
//! one. Nothing is kept of what still stands there; that the client and the host have.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};

use contexture_engine_api::{MessageId, MessageKind, MessageView, private_file_options};
use serde::{Deserialize, Serialize};

use crate::error::FolderError;
use crate::folder::{Folder, Step, failed};

const ORIGINALS: &str = "originals.jsonl";

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Original {
    /// A message, and the JSON that it was.
    Said(MessageId, String),
    /// Everything after the message of this id is gone; 0 for everything.
    CutAfter(u64),
    /// Messages that have another form now.
    Replaced(Vec<MessageId>),
}

impl Original {
    /// A message that leaves the window; none for what nobody said.
    pub(crate) fn of(message: &MessageView<'_>) -> Option<Self> {
        let is_said = message.kind() == MessageKind::Original && !message.raw().is_empty();
        is_said.then(|| Self::Said(message.id(), message.raw().to_owned()))
    }
}

impl Folder {
    /// Keeps messages that leave the window.
    pub(crate) fn keep_originals(&self, lines: &[Original]) -> Result<(), FolderError> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for line in lines {
            // What a crash left of the line before ends here. Numbers and texts always are JSON.
            text.push('\n');
            text.push_str(&serde_json::to_string(line).unwrap_or_default());
        }
        let path = self.path().join(ORIGINALS);
        let opened = private_file_options().append(true).create(true).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.removed(),
            _ => failed(&path, "written")(error),
        })
    }

    /// Notes what a step takes out of the conversation, where anything is kept.
    pub(crate) fn let_go_of(&self, step: &Step) -> Result<(), FolderError> {
        let cut = step.cut.map(Original::CutAfter);
        let replaced =
            (!step.replaced.is_empty()).then(|| Original::Replaced(step.replaced.clone()));
        let lines: Vec<Original> = cut.into_iter().chain(replaced).collect();
        match !lines.is_empty() && self.path().join(ORIGINALS).exists() {
            true => self.keep_originals(&lines),
            false => Ok(()),
        }
    }

    /// The messages that are kept.
    pub(crate) fn originals(&self) -> Result<BTreeMap<MessageId, String>, FolderError> {
        let path = self.path().join(ORIGINALS);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(failed(&path, "read")(error)),
        };
        let mut kept = BTreeMap::new();
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice(line).ok()) {
            match line {
                Original::Said(id, raw) => {
                    kept.insert(id, raw);
                }
                Original::CutAfter(last) => {
                    kept.split_off(&MessageId(last.saturating_add(1)));
                }
                Original::Replaced(ids) => kept.retain(|id, _| !ids.contains(id)),
            }
        }
        Ok(kept)
    }
}
