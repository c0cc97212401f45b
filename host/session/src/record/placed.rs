//! What the record has of a session's window: summaries, shorter forms, and what an engine keeps with messages.

use std::collections::{BTreeMap, BTreeSet};

use contexture_engine_api::{CurrentCompaction, MessageId, RESTORE_WISH, RESTORED};
use contexture_formats::unsealed_short;
use rusqlite::{OptionalExtension, params};
use serde::Serialize;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64;

use super::{ReadError, Record, RecordError, message_id};
use crate::resume::BY_AGENT;
use crate::slot::Content;
use crate::window::SavedWindow;

/// Who said what.
type Roles = BTreeMap<MessageId, &'static str>;

/// A message of the window in force that was put in, was shortened, or has something kept with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Placed {
    /// Its id.
    pub id: MessageId,
    /// Who said it; none of what the host put in.
    pub role: Option<&'static str>,
    /// What stands in its place; none where that is the message itself, or its text.
    pub content: Option<String>,
    /// Whether something shorter stands in its place.
    pub is_shortened: bool,
    /// What the engine keeps with it.
    pub state: Option<Map<String, Value>>,
}

impl Record {
    /// What the record has of the window of a session, in order; none where there is no such session or no
    /// compaction of it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn placed(&self, session: &str) -> Result<Option<Vec<Placed>>, RecordError> {
        let read = self
            .read_window(session)
            .map_err(|error| self.error(error))?;
        Ok(read.map(|(window, roles)| window.placed(&roles)))
    }

    /// The messages that the agent compacted away itself, according to the session's log. They are part of the
    /// conversation, but the agent continues without them. Empty once an engine compacted the session.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn behind_agent(&self, session: &str) -> Result<BTreeSet<MessageId>, RecordError> {
        let by_agent = || -> rusqlite::Result<bool> {
            self.lock().query_row(
                "SELECT EXISTS(SELECT 1 FROM sessions JOIN compactions ON compactions.session = sessions.key
                               WHERE id = ?1 AND compactions.engine = ?2)",
                params![session, BY_AGENT],
                |row| row.get(0),
            )
        };
        if !by_agent().map_err(|error| self.error(error.into()))? {
            return Ok(BTreeSet::new());
        }
        let read = self
            .read_window(session)
            .map_err(|error| self.error(error))?;
        let window = read.map(|(window, _)| window);
        Ok(window.map_or_else(BTreeSet::new, |window| window.left_out().iter().collect()))
    }

    /// The compaction in force of a session, in the form that the engine receives when the session is opened. `None` if
    /// there is no such session, or if it was never compacted.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn current_compaction(
        &self,
        session: &str,
    ) -> Result<Option<CurrentCompaction>, RecordError> {
        let read = || -> Result<Option<CurrentCompaction>, ReadError> {
            let found: Option<(i64, String, String)> = self
                .lock()
                .query_row(
                    "SELECT number, compactions.engine, entries
                     FROM sessions JOIN compactions ON compactions.session = sessions.key WHERE id = ?1",
                    [session],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let Some((number, engine, entries)) = found else {
                return Ok(None);
            };
            let window = window_in(&entries, session)?;
            Ok(Some(window.as_current(number.cast_unsigned(), engine)))
        };
        read().map_err(|error| self.error(error))
    }

    /// Notes with messages that something shorter stands in place of, and that have something kept with them, that they
    /// are wanted back ([`RESTORE_WISH`]): these, or all. Answers which; the engine sees it with the next request. Have
    /// a [`hold`](Self::hold) on the session.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn wish_restored(
        &self,
        session: &str,
        which: Option<&[MessageId]>,
    ) -> Result<Vec<MessageId>, RecordError> {
        let read = self
            .read_window(session)
            .map_err(|error| self.error(error))?;
        let Some((mut window, _)) = read else {
            return Ok(Vec::new());
        };
        let wished =
            window.mark_states(RESTORE_WISH, |id| which.is_none_or(|ids| ids.contains(&id)));
        let write = || {
            let entries = serde_json::to_string(&window)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            self.lock().execute(
                "UPDATE compactions SET entries = ?2 WHERE session = (SELECT key FROM sessions WHERE id = ?1)",
                params![session, entries],
            )
        };
        if !wished.is_empty() {
            write().map_err(|error| self.error(error.into()))?;
        }
        Ok(wished)
    }

    fn read_window(&self, session: &str) -> Result<Option<(SavedWindow, Roles)>, ReadError> {
        let connection = self.lock();
        let found: Option<(i64, String)> = connection
            .query_row(
                "SELECT key, entries FROM sessions JOIN compactions ON compactions.session = sessions.key
                 WHERE id = ?1",
                [session],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()?;
        let Some((key, entries)) = found else {
            return Ok(None);
        };
        let window = window_in(&entries, session)?;
        let mut statement =
            connection.prepare("SELECT id, shape FROM messages WHERE session = ?1")?;
        let rows = statement.query_map([key], |row| {
            let shape = row.get::<_, i64>(1)?.cast_unsigned();
            Ok((message_id(row.get(0)?), role_of(shape)))
        })?;
        Ok(Some((window, rows.collect::<Result<_, _>>()?)))
    }
}

fn window_in(entries: &str, session: &str) -> Result<SavedWindow, ReadError> {
    serde_json::from_str(entries).map_err(|error| {
        ReadError::Damaged(format!("the compaction of session `{session}`: {error}"))
    })
}

/// The role of which a mark has this shape. That of a result has its call's id in it, too.
fn role_of(shape: u64) -> &'static str {
    let roles = ["user", "assistant", "system", "developer"];
    let is_it = |role: &&&str| xxh3_64(role.as_bytes()) == shape;
    roles.iter().find(is_it).copied().unwrap_or("tool")
}

impl SavedWindow {
    fn placed(&self, roles: &Roles) -> Vec<Placed> {
        let states = self.states();
        let placed = self.places().iter().filter_map(|(id, content)| {
            let state = states.get(id);
            let content = match content {
                Content::Message => {
                    state.filter(|state| !state.contains_key(RESTORED))?;
                    None
                }
                Content::Replaced { text, .. } => {
                    let text = text.as_deref();
                    text.map(|text| unsealed_short(text).unwrap_or(text).to_owned())
                }
                Content::Summary { text, .. } | Content::Stub { text, .. } => Some(text.clone()),
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
