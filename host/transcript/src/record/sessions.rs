//! The sessions of the record as a user sees them: listed, archived and exported.
//!
//! The functions of this module read the record without opening a session, so they work while an
//! agent uses one. [`Record::sessions`] lists the sessions that have something stored, and
//! [`Record::wire_messages`] returns a conversation as the client sent it, and
//! [`Record::all_wire_messages`] what was cut off of it too. Start with [`SessionSummary`].
//!
//! [`Record::archive`] and [`Record::shrink`] change the file. Deleting a session is
//! [`Record::forget`], and the state of a session's window is in `placed`.

use contexture_base::now_ms;
use contexture_engine_api::MessageId;

use super::Record;
use super::texts::TEXTS;
use crate::error::RecordError;
use crate::ids::IdMap;
use crate::message_log::{Logged, branch_of};
use crate::rows::{self, message_id};
use crate::store::{MessageRow, Select, SessionSummary};

/// A wire message of a conversation, with the messages that it contains.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireMessage {
    /// The messages of the conversation that the wire message contains. There are several if the
    /// wire format packs tool results or calls together.
    pub ids: Vec<MessageId>,
    /// The JSON as the client sent it. `None` if it is not stored or is damaged.
    pub text: Option<String>,
}

impl Record {
    /// All sessions that have something stored, in the order in which they were created. A session
    /// that has neither messages nor an engine is left out, because opening one already creates a
    /// row.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionSummary>, RecordError> {
        let mut sessions = self.store.summaries(None)?;
        sessions.retain(|session| session.messages > 0 || !session.engine.is_empty());
        Ok(sessions)
    }

    /// One session. `None` if there is no session with this id, or if nothing is stored of it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn session(&self, id: &str) -> Result<Option<SessionSummary>, RecordError> {
        let found = self.store.summaries(Some(id))?.pop();
        Ok(found.filter(|session| session.messages > 0 || !session.engine.is_empty()))
    }

    /// Archives a session, or un-archives it. Any later write to the session un-archives it as
    /// well. Returns the time of archiving in milliseconds since the Unix epoch, or `None` if
    /// `archived` is false or there is no such session.
    ///
    /// # Errors
    /// The file cannot be written, or it is damaged and a store in memory takes its place.
    pub fn archive(&self, id: &str, archived: bool) -> Result<Option<i64>, RecordError> {
        self.is_itself()?;
        let at = archived.then(now_ms);
        let is_there = self.store.archive(id, at)?;
        Ok(at.filter(|_| is_there))
    }

    /// Returns the space of deleted rows to the disk. The result is its size in bytes. A dry run
    /// only calculates it. Zero for a database server, which does that itself.
    ///
    /// # Errors
    /// The file cannot be written, or another process uses it.
    pub fn shrink(&self, dry_run: bool) -> Result<u64, RecordError> {
        self.store.shrink(dry_run)
    }

    /// The current conversation of a session as its wire messages, in order. Empty if there is no
    /// such session.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn wire_messages(&self, session: &str) -> Result<Vec<WireMessage>, RecordError> {
        let rows = self.store.messages(session, Select::Log)?;
        let rows = rows.unwrap_or_default();
        let log: Vec<Logged> = rows.iter().map(rows::logged).collect();
        let ids = branch_of(&log).into_iter().map(|known| known.id);
        self.wires_of(session, &rows, ids)
    }

    /// All wire messages that are stored of a session, in the order in which they were said: also
    /// earlier forms, and what was cut off, such as what the client compacted away itself. Empty if
    /// there is no such session.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn all_wire_messages(&self, session: &str) -> Result<Vec<WireMessage>, RecordError> {
        let rows = self.store.messages(session, Select::All)?;
        let rows = rows.unwrap_or_default();
        self.wires_of(session, &rows, rows.iter().map(|row| message_id(row.id)))
    }

    /// The wire messages that hold the messages with these `ids`, which are among the `rows`.
    fn wires_of(
        &self,
        session: &str,
        rows: &[MessageRow],
        ids: impl Iterator<Item = MessageId>,
    ) -> Result<Vec<WireMessage>, RecordError> {
        let wires: IdMap<i64> = (rows.iter())
            .filter_map(|row| Some((message_id(row.id), row.wire?)))
            .collect();
        // The messages of one wire message follow each other, so comparing with the previous one is
        // enough to group them.
        let mut last = None;
        let mut messages: Vec<(WireMessage, Option<i64>)> = Vec::new();
        for id in ids {
            let wire = wires.get(&id).copied();
            match messages
                .last_mut()
                .filter(|_| wire.is_some() && wire == last)
            {
                Some((message, _)) => message.ids.push(id),
                None => {
                    let message = WireMessage {
                        ids: vec![id],
                        text: None,
                    };
                    messages.push((message, wire));
                }
            }
            last = wire;
        }
        for chunk in messages.chunks_mut(TEXTS) {
            let numbers: Vec<i64> = chunk.iter().filter_map(|(_, wire)| *wire).collect();
            let mut texts = self.store.texts(session, &numbers)?.into_iter().peekable();
            for (message, wire) in chunk {
                let text = texts.next_if(|text| Some(text.number) == *wire);
                let text = text.map(|text| self.unpack(session, &text.text));
                message.text = text.transpose()?.flatten();
            }
        }
        Ok(messages.into_iter().map(|(message, _)| message).collect())
    }

    /// The JSON of the session's wire messages, in order. Wire messages whose text is not stored
    /// are left out. Use [`wire_messages`](Self::wire_messages) to find out which ones these are.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn conversation(&self, session: &str) -> Result<Vec<String>, RecordError> {
        let messages = self.wire_messages(session)?.into_iter();
        Ok(messages.filter_map(|message| message.text).collect())
    }
}
