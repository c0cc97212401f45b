//! Exports a session's current conversation in its wire format.

use rusqlite::{Connection, OptionalExtension};

use super::live::live_ranges;
use super::read::{key_in, row_in, rows_in, whole};
use super::{Blocks, Key, MessageRow, SessionId, Store, StoredMessage};
use crate::error::StoreError;
use contexture_engine_api::MessageId;

/// Rows that are read at a time.
const ROWS: u32 = 256;

/// A message on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The message's id, in its first form; of several views of a wire message the last.
    pub id: MessageId,
    /// The ids of its views, in order, in their newest forms.
    pub ids: Vec<MessageId>,
    /// The original wire JSON; none if it cannot be read.
    pub message: Option<String>,
}

/// A page of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The wire messages, in the order of the conversation.
    pub messages: Vec<Exported>,
    /// The next page begins after this message. None at the end.
    pub next: Option<MessageId>,
}

impl Store {
    /// The conversation on the wire, after the wire message of `after`: each wire message once, even if
    /// engines see it as several messages; an edited one in its newest form, at its original position. At
    /// most `limit` of them.
    ///
    /// # Errors
    /// `after` is not stored; a store that failed. A damaged message is returned without a text.
    pub fn export(
        &self,
        session: SessionId,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.read(|connection| {
            let mut blocks = Blocks::new(connection)?;
            let from = match after {
                None => 0,
                Some(id) => {
                    let key = key_in(connection, session, id)?
                        .ok_or_else(|| StoreError::Unknown(format!("message {id}")))?;
                    first_form(connection, key)?.ordinal() + 1
                }
            };
            let mut page = Page::default();
            let mut open: Option<Wire> = None;
            for range in live_ranges(connection, session)? {
                let start = range.start.max(from);
                for first in (start..range.end).step_by(ROWS as usize) {
                    let rows = first..range.end.min(first.saturating_add(ROWS));
                    for row in rows_in(connection, session, &rows)? {
                        if is_later_form(connection, &row)? {
                            continue;
                        }
                        let place = blocks.wire(row.key).unwrap_or((row.key, 0));
                        let id = row.id;
                        let form = newest_form(connection, row)?;
                        match &mut open {
                            Some(wire) if wire.place == place => wire.add(id, form),
                            _ => {
                                if let Some(wire) = open.replace(Wire::new(place, id, form)) {
                                    page.messages.push(wire.export(connection, &mut blocks)?);
                                    if page.messages.len() == limit {
                                        page.next = Some(wire.last);
                                        return Ok(page);
                                    }
                                }
                            }
                        }
                    }
                }
            }
            if let Some(wire) = open {
                page.messages.push(wire.export(connection, &mut blocks)?);
            }
            Ok(page)
        })
    }
}

/// A wire message, and the messages read from it.
struct Wire {
    /// Its block and its index there.
    place: (Key, usize),
    /// The last of its messages, in its first form.
    last: MessageId,
    /// The newest form of each of its messages.
    ids: Vec<MessageId>,
    /// The newest form of any of its messages, which was sent together with the others.
    form: MessageRow,
}

impl Wire {
    fn new(place: (Key, usize), last: MessageId, form: MessageRow) -> Self {
        Self {
            place,
            last,
            ids: vec![form.id],
            form,
        }
    }

    fn add(&mut self, last: MessageId, form: MessageRow) {
        self.last = last;
        self.ids.push(form.id);
        if form.key > self.form.key {
            self.form = form;
        }
    }

    fn export(
        &self,
        connection: &Connection,
        blocks: &mut Blocks<'_>,
    ) -> Result<Exported, StoreError> {
        let message = match whole(connection, blocks, self.form.clone()) {
            Ok(message) => Some(wire_json(message)),
            Err(StoreError::Damaged(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Exported {
            id: self.last,
            ids: self.ids.clone(),
            message,
        })
    }
}

/// The wire JSON; for a message without one, minimal equivalent JSON.
fn wire_json(message: StoredMessage) -> String {
    if message.raw.is_empty() {
        let mut least = serde_json::json!({"role": message.row.role});
        if let Some(name) = message.row.name {
            least["name"] = name.into();
        }
        least["content"] = message.text.into();
        return least.to_string();
    }
    message.raw
}

/// Whether a message is a revision of one that is part of the conversation itself.
fn is_later_form(connection: &Connection, row: &MessageRow) -> Result<bool, StoreError> {
    match row.replaces {
        Some(old) => super::live::is_live(connection, old),
        None => Ok(false),
    }
}

/// The current revision of this message.
fn newest_form(connection: &Connection, mut row: MessageRow) -> Result<MessageRow, StoreError> {
    loop {
        let newer: Option<i64> = connection
            .prepare_cached("SELECT max(id) FROM messages WHERE replaces = ?1 AND id > ?1")?
            .query_row([row.key.0], |row| row.get(0))
            .optional()?
            .flatten();
        let newer = match newer.map(Key) {
            Some(key) if super::live::is_live(connection, key)? => row_in(connection, key)?,
            _ => None,
        };
        match newer {
            Some(newer) => row = newer,
            None => return Ok(row),
        }
    }
}

/// The first form of a message, which determines its position.
fn first_form(connection: &Connection, mut key: Key) -> Result<Key, StoreError> {
    while let Some(old) = row_in(connection, key)?.and_then(|row| row.replaces) {
        if old >= key || !super::live::is_live(connection, old)? {
            break;
        }
        key = old;
    }
    Ok(key)
}
