//! What the record knows of a session's window: summaries, shortened messages, and the state that
//! an engine stores with messages.
//!
//! With these functions a tool can show and change a window without opening the session.
//! [`Record::placed`] lists what differs from the plain conversation. [`Record::wish_restored`]
//! marks messages that the user wants back, and the engine restores them with the next request.
//!
//! Everything here works on the stored form of the window, `crate::saved_window`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contexture_engine_api::{CurrentCompaction, MessageId, RESTORE_WISH, RESTORED};
use contexture_formats::unsealed_short;
use serde::Serialize;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::Record;
use crate::error::RecordError;
use crate::rows::{self, message_id};
use crate::saved_window::{BY_AGENT, EntryContent, SavedWindow};
use crate::store::{CompactionRow, Select};

/// The role of each message, by its id.
type Roles = BTreeMap<MessageId, &'static str>;

/// An entry of the stored window that is not a plain message: the host added it, it was shortened,
/// or the engine stores state with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placed {
    /// The id of the message, or of the text that the host added.
    pub id: MessageId,
    /// The role of the message. None for a text that the host added.
    pub role: Option<&'static str>,
    /// The text that is shown in place of the message. None if the message or its text is shown
    /// unchanged.
    pub content: Option<String>,
    /// Whether a shorter form of the message is shown.
    pub is_shortened: bool,
    /// The state that the engine stores with the message.
    pub state: Option<Map<String, Value>>,
}

impl Record {
    /// The entries of a session's window that are not plain messages, in order. None if there is no
    /// such session, or if it has no compaction in force.
    ///
    /// # Errors
    /// The file cannot be read, or the stored window is damaged.
    pub fn placed(&self, session: &str) -> Result<Option<Vec<Placed>>, RecordError> {
        let read = self.read_window(session)?;
        let Some(window) = read else {
            return Ok(None);
        };
        let messages = self.store.messages(session, Select::All)?;
        let roles = messages.unwrap_or_default().into_iter();
        let roles = roles.map(|row| (message_id(row.id), role_of(row.shape.cast_unsigned())));
        Ok(Some(window.placed(&roles.collect())))
    }

    /// The messages that the agent compacted away itself, according to the log of the session. They
    /// are part of the conversation, but the agent continues without them. Empty once an engine has
    /// compacted the session.
    ///
    /// # Errors
    /// The file cannot be read, or the stored window is damaged.
    pub fn behind_agent(&self, session: &str) -> Result<BTreeSet<MessageId>, RecordError> {
        let by_agent = self.store.compaction(session)?;
        match by_agent.filter(|compaction| compaction.engine == BY_AGENT) {
            Some(compaction) => {
                let window = self.window_of(&compaction, session)?;
                Ok(window.left_out.iter().collect())
            }
            None => Ok(BTreeSet::new()),
        }
    }

    /// The compaction in force of a session, in the form that the engine receives when the session
    /// is opened. `None` if there is no such session, or if it was never compacted.
    ///
    /// # Errors
    /// The file cannot be read, or the stored window is damaged.
    pub fn current_compaction(
        &self,
        session: &str,
    ) -> Result<Option<CurrentCompaction>, RecordError> {
        let Some(compaction) = self.store.compaction(session)? else {
            return Ok(None);
        };
        let window = self.window_of(&compaction, session)?;
        let number = compaction.number.cast_unsigned();
        Ok(Some(window.as_current(number, compaction.engine)))
    }

    /// Marks shortened messages with the wish to restore them ([`RESTORE_WISH`]): those in `which`,
    /// or all. Only messages with state of the engine can be marked. Returns the marked ones. The
    /// engine sees the wish with the next request.
    ///
    /// The session is locked meanwhile, because an open session would not see the change, and might
    /// overwrite it. If it is open elsewhere, this waits for at most `wait`.
    ///
    /// # Errors
    /// The session is still open elsewhere after the wait, the file cannot be read or written, or the
    /// stored window is damaged.
    pub fn wish_restored(
        &self,
        session: &str,
        which: Option<&[MessageId]>,
        wait: Duration,
    ) -> Result<Vec<MessageId>, RecordError> {
        if which.is_some_and(<[MessageId]>::is_empty) {
            return Ok(Vec::new());
        }
        let _hold = self.hold(session, wait)?;
        let Some(mut window) = self.read_window(session)? else {
            return Ok(Vec::new());
        };
        let wished =
            window.mark_states(RESTORE_WISH, |id| which.is_none_or(|ids| ids.contains(&id)));
        if !wished.is_empty() {
            let entries = serde_json::to_string(&window)
                .map_err(|error| self.store.damaged(error.to_string()))?;
            self.store.set_entries(session, entries)?;
        }
        Ok(wished)
    }

    /// Reads the stored window of a session. None if the session does not exist or has no compaction
    /// in force.
    fn read_window(&self, session: &str) -> Result<Option<SavedWindow>, RecordError> {
        let compaction = self.store.compaction(session)?;
        let window = compaction.map(|compaction| self.window_of(&compaction, session));
        window.transpose()
    }

    fn window_of(
        &self,
        compaction: &CompactionRow,
        session: &str,
    ) -> Result<SavedWindow, RecordError> {
        rows::window(&compaction.entries, session).map_err(|what| self.store.damaged(what))
    }
}

/// The role whose fingerprint has this shape. A tool result is whatever is left, because its shape
/// also depends on its call.
fn role_of(shape: u64) -> &'static str {
    let roles = ["user", "assistant", "system", "developer"];
    let is_it = |role: &&&str| xxh3_64(role.as_bytes()) == shape;
    roles.iter().find(is_it).copied().unwrap_or("tool")
}

impl SavedWindow {
    /// The entries of the window that are not plain messages. A restored message is a plain one
    /// again.
    fn placed(&self, roles: &Roles) -> Vec<Placed> {
        let states = self.states();
        let placed = self.places.iter().filter_map(|(id, content)| {
            let state = states.get(id);
            let content = match content {
                EntryContent::Message => {
                    state.filter(|state| !state.contains_key(RESTORED))?;
                    None
                }
                EntryContent::Replaced { text, .. } => {
                    let text = text.as_deref();
                    text.map(|text| unsealed_short(text).unwrap_or(text).to_owned())
                }
                EntryContent::Summary { text, .. } | EntryContent::Stub { text, .. } => {
                    Some(text.clone())
                }
            };
            Some(Placed {
                id: *id,
                role: roles.get(id).copied(),
                is_shortened: self.is_shortened(*id),
                content,
                state: state.cloned(),
            })
        });
        placed.collect()
    }
}
