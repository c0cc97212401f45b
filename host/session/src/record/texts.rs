//! The text of a session's messages, and what engines store beside it.
//!
//! A wire message is stored once, as the client sent it, for all messages in it. Each is compressed on its own and has a
//! checksum, so that one damaged byte costs one wire message.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::{
    MessageId, OwnedMessage, ToolCallView, TranscriptPage, TranscriptRange,
};
use contexture_formats::{self as formats, Conversation, Format};
use contexture_secrets::mask_secrets;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::xxh3_64;

use super::load::read_log;
use super::{Record, RecordError, message_id};
use crate::history::branch_of;
use crate::ids::Ids;

/// Wire messages are small: higher levels save 1 % and take twice the time.
const LEVEL: i32 = 1;

/// The largest wire message, in bytes, that an undamaged file holds.
const MAX_BYTES: i64 = 1 << 30;

/// A page of the transcript ends after so many bytes of wire messages.
const PAGE_BYTES: usize = 4 << 20;

/// A wire message to be stored, and the messages in it.
#[derive(Debug)]
pub(crate) struct NewText {
    pub(crate) conversation: Arc<Conversation>,
    /// The first message of the conversation that stands in the wire message.
    pub(crate) message: usize,
    /// The messages in it that are part of the session: which of its messages, and the id.
    pub(crate) parts: Vec<(usize, MessageId)>,
}

impl NewText {
    /// Whether it is this wire message: the one whose first message is `first`.
    pub(crate) fn is_wire(&self, of: &Arc<Conversation>, first: usize) -> bool {
        Arc::ptr_eq(&self.conversation, of) && self.message == first
    }
}

/// An artifact to be stored, or to be deleted if there is no text.
#[derive(Debug, Clone)]
pub(crate) struct NewArtifact {
    pub(crate) engine: String,
    pub(crate) name: String,
    pub(crate) text: Option<String>,
}

/// A message that was read back: the conversation that its wire message makes, and which message of it.
#[derive(Debug, Clone)]
pub(crate) struct StoredMessage {
    pub(crate) id: MessageId,
    pub(crate) said_ms: Option<i64>,
    pub(crate) conversation: Arc<Conversation>,
    pub(crate) part: usize,
}

/// Where a message is stored.
struct Place {
    id: MessageId,
    said_ms: Option<i64>,
    wire: i64,
    part: usize,
}

/// The length of a text, its checksum, and its compressed form.
fn packed(text: &str) -> rusqlite::Result<(i64, i64, Vec<u8>)> {
    let data = zstd::bulk::compress(text.as_bytes(), LEVEL)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    Ok((
        text.len() as i64,
        xxh3_64(text.as_bytes()).cast_signed(),
        data,
    ))
}

/// The text of a row; `None` if it is damaged.
fn unpacked(bytes: i64, checksum: i64, data: &[u8]) -> Option<String> {
    let size = usize::try_from(bytes).ok().filter(|_| bytes <= MAX_BYTES)?;
    let text = String::from_utf8(zstd::bulk::decompress(data, size).ok()?).ok()?;
    (xxh3_64(text.as_bytes()).cast_signed() == checksum).then_some(text)
}

/// Stores wire messages, and says of their messages where they are.
pub(super) fn write_texts(
    transaction: &Transaction<'_>,
    session: i64,
    texts: &[NewText],
    redacts: bool,
) -> rusqlite::Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let mut number: i64 = transaction.query_row(
        "SELECT coalesce(max(number), 0) FROM texts WHERE session = ?1",
        [session],
        |row| row.get(0),
    )?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO texts (session, number, format, tools, bytes, checksum, data)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut place = transaction.prepare_cached(
        "UPDATE messages SET wire = ?3, part = ?4, said_ms = coalesce(?5, said_ms) WHERE session = ?1 AND id = ?2",
    )?;
    for text in texts {
        number += 1;
        let conversation = &text.conversation;
        let messages = (conversation.messages().get(text.message..)).unwrap_or_default();
        // Those of one wire message stand side by side.
        let in_it = messages
            .chunk_by(|one, next| one.items == next.items)
            .next();
        let in_it = in_it.unwrap_or_default();
        let tools: HashMap<&str, &str> = (in_it.iter())
            .filter_map(|message| {
                Some((
                    message.tool_call_id.as_deref()?,
                    message.tool_name.as_deref()?,
                ))
            })
            .collect();
        let tools = match tools.is_empty() {
            true => None,
            false => Some(
                serde_json::to_string(&tools)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?,
            ),
        };
        let raw = conversation.raw(text.message);
        let (bytes, checksum, data) = match redacts {
            true => packed(&mask_secrets(raw))?,
            false => packed(raw)?,
        };
        let format = conversation.format().name();
        insert.execute(params![
            session, number, format, tools, bytes, checksum, data
        ])?;
        for (part, id) in &text.parts {
            let said_ms = in_it.get(*part).and_then(|message| message.time_ms);
            place.execute(params![
                session,
                id.0.cast_signed(),
                number,
                *part as i64,
                said_ms
            ])?;
        }
    }
    Ok(())
}

/// Gives messages their new ids.
pub(super) fn rename(
    transaction: &Transaction<'_>,
    session: i64,
    renamed: &[(MessageId, MessageId)],
) -> rusqlite::Result<()> {
    let mut rename = transaction
        .prepare_cached("UPDATE OR REPLACE messages SET id = ?3 WHERE session = ?1 AND id = ?2")?;
    for (old, new) in renamed {
        rename.execute([session, old.0.cast_signed(), new.0.cast_signed()])?;
    }
    Ok(())
}

/// Stores artifacts, in the place of those of the same names.
pub(super) fn write_artifacts(
    transaction: &Transaction<'_>,
    session: i64,
    artifacts: &[NewArtifact],
) -> rusqlite::Result<()> {
    for NewArtifact { engine, name, text } in artifacts {
        match text {
            Some(text) => {
                let (bytes, checksum, data) = packed(text)?;
                transaction
                    .prepare_cached(
                        "INSERT OR REPLACE INTO artifacts (session, engine, name, bytes, checksum, data)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                    )?
                    .execute(params![session, engine, name, bytes, checksum, data])?
            }
            None => transaction
                .prepare_cached(
                    "DELETE FROM artifacts WHERE session = ?1 AND engine = ?2 AND name = ?3",
                )?
                .execute(params![session, engine, name])?,
        };
    }
    Ok(())
}

/// A wire message as it is stored.
struct StoredWire {
    format: String,
    tools: Option<String>,
    text: String,
}

impl StoredWire {
    /// The wire message of this number; `None` if it is missing or damaged.
    fn read(connection: &Connection, session: i64, number: i64) -> rusqlite::Result<Option<Self>> {
        let mut select = connection.prepare_cached(
            "SELECT format, tools, bytes, checksum, data FROM texts WHERE session = ?1 AND number = ?2",
        )?;
        let found = select.query_row([session, number], |row| {
            let text = unpacked(row.get(2)?, row.get(3)?, row.get_ref(4)?.as_blob()?);
            let (format, tools) = (row.get(0)?, row.get(1)?);
            Ok(text.map(|text| Self {
                format,
                tools,
                text,
            }))
        });
        found.optional().map(Option::flatten)
    }

    fn conversation(&self) -> Option<Conversation> {
        let format: Format = self.format.parse().ok()?;
        let lines = formats::item_lines(&self.text);
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        let tools = (self.tools.as_deref()).and_then(|tools| serde_json::from_str(tools).ok());
        formats::excerpt(format, &lines, &mut tools.unwrap_or_default()).ok()
    }
}

/// The messages at these places. Those whose wire message is missing or damaged are left out.
fn messages_at(
    connection: &Connection,
    session: i64,
    places: &[Place],
) -> rusqlite::Result<Vec<StoredMessage>> {
    let mut messages = Vec::with_capacity(places.len());
    for run in places.chunk_by(|one, next| one.wire == next.wire) {
        let wire = StoredWire::read(connection, session, run[0].wire)?;
        let Some(conversation) = wire.and_then(|wire| wire.conversation()) else {
            continue;
        };
        let conversation = Arc::new(conversation);
        messages.extend(run.iter().map(|place| StoredMessage {
            id: place.id,
            said_ms: place.said_ms,
            conversation: Arc::clone(&conversation),
            part: place.part,
        }));
    }
    Ok(messages)
}

fn place(row: &rusqlite::Row<'_>) -> rusqlite::Result<Place> {
    Ok(Place {
        id: message_id(row.get(0)?),
        said_ms: row.get(1)?,
        wire: row.get(2)?,
        part: row.get::<_, i64>(3)? as usize,
    })
}

impl StoredMessage {
    fn owned(&self) -> Option<OwnedMessage> {
        let message = self.conversation.messages().get(self.part)?;
        let calls: Vec<_> = (message.calls.iter())
            .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
            .collect();
        let view = message
            .view(self.id, self.conversation.raw(self.part), &calls)
            .with_tokens(0);
        Some(OwnedMessage::from(&view).time_ms(self.said_ms))
    }
}

impl Record {
    /// The stored messages of these ids, and those which stand in one wire message with them.
    pub(super) fn stored_messages(
        &self,
        session: i64,
        ids: &[MessageId],
    ) -> Result<Vec<StoredMessage>, RecordError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<StoredMessage>> {
            let mut select = connection.prepare_cached(
                "SELECT id, said_ms, wire, part FROM messages WHERE session = ?1 AND NOT cut
                    AND wire = (SELECT wire FROM messages WHERE session = ?1 AND id = ?2) ORDER BY part",
            )?;
            let (mut places, mut seen) = (Vec::with_capacity(ids.len()), Ids::default());
            for id in ids {
                if seen.contains(id) {
                    continue;
                }
                for found in select.query_map([session, id.0.cast_signed()], place)? {
                    let found = found?;
                    seen.insert(found.id);
                    places.push(found);
                }
            }
            messages_at(&connection, session, &places)
        };
        read().map_err(|error| self.error(error.into()))
    }

    /// The current messages of a session whose text is not stored.
    pub(super) fn without_text(&self, session: i64) -> Result<Vec<MessageId>, RecordError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<MessageId>> {
            let mut select = connection.prepare(
                "SELECT id FROM messages WHERE session = ?1 AND wire IS NULL AND NOT cut",
            )?;
            let ids = select.query_map([session], |row| Ok(message_id(row.get(0)?)))?;
            ids.collect()
        };
        read().map_err(|error| self.error(error.into()))
    }

    /// Messages of a session as an engine reads them; `None` if there is no such session.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn transcript(
        &self,
        session: &str,
        range: &TranscriptRange,
    ) -> Result<Option<TranscriptPage>, RecordError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Option<TranscriptPage>> {
            let Some(key) = key_of(&connection, session)? else {
                return Ok(None);
            };
            let (places, next) = match range.ids.is_empty() {
                true => places_in(&connection, key, range)?,
                false => (
                    places_of(&connection, key, &range.ids, range.outdated)?,
                    None,
                ),
            };
            let found = messages_at(&connection, key, &places)?;
            let messages = found.iter().filter_map(StoredMessage::owned).collect();
            let page = TranscriptPage::default().messages(messages).next(next);
            Ok(Some(page))
        };
        read().map_err(|error| self.error(error.into()))
    }

    /// The conversation of a session as it stands: its wire messages as the client sent them, in order. Those whose text is
    /// not stored or is damaged are left out.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn conversation(&self, session: &str) -> Result<Vec<String>, RecordError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<String>> {
            let Some(key) = key_of(&connection, session)? else {
                return Ok(Vec::new());
            };
            let branch = branch_of(&read_log(&connection, key)?);
            let ids: Vec<MessageId> = branch.iter().map(|known| known.id).collect();
            let mut wires: Vec<i64> = (places_of(&connection, key, &ids, true)?.iter())
                .map(|place| place.wire)
                .collect();
            wires.dedup();
            let mut texts = Vec::with_capacity(wires.len());
            for wire in wires {
                texts.extend(StoredWire::read(&connection, key, wire)?.map(|wire| wire.text));
            }
            Ok(texts)
        };
        read().map_err(|error| self.error(error.into()))
    }

    /// An artifact of an engine; `None` if there is none, or if it is damaged.
    pub(crate) fn artifact(
        &self,
        session: &str,
        engine: &str,
        name: &str,
    ) -> Result<Option<String>, RecordError> {
        let connection = self.lock();
        let read = connection
            .query_row(
                "SELECT bytes, checksum, data FROM artifacts JOIN sessions ON sessions.key = artifacts.session
                 WHERE sessions.id = ?1 AND artifacts.engine = ?2 AND name = ?3",
                [session, engine, name],
                |row| Ok(unpacked(row.get(0)?, row.get(1)?, row.get_ref(2)?.as_blob()?)),
            )
            .optional();
        read.map(Option::flatten)
            .map_err(|error| self.error(error.into()))
    }

    /// The names of an engine's artifacts that begin with `prefix`, in order.
    pub(crate) fn artifacts(
        &self,
        session: &str,
        engine: &str,
        prefix: &str,
    ) -> Result<Vec<String>, RecordError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut select = connection.prepare_cached(
                "SELECT name FROM artifacts JOIN sessions ON sessions.key = artifacts.session
                 WHERE sessions.id = ?1 AND artifacts.engine = ?2 AND substr(name, 1, length(?3)) = ?3
                 ORDER BY name",
            )?;
            let names = select.query_map([session, engine, prefix], |row| row.get(0))?;
            names.collect()
        };
        read().map_err(|error| self.error(error.into()))
    }
}

fn key_of(connection: &Connection, session: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .query_row("SELECT key FROM sessions WHERE id = ?1", [session], |row| {
            row.get(0)
        })
        .optional()
}

/// Where these messages are, as far as their text is stored.
fn places_of(
    connection: &Connection,
    session: i64,
    ids: &[MessageId],
    outdated: bool,
) -> rusqlite::Result<Vec<Place>> {
    let mut select = connection.prepare_cached(
        "SELECT id, said_ms, wire, part FROM messages
         WHERE session = ?1 AND id = ?2 AND wire IS NOT NULL AND (?3 OR NOT cut)",
    )?;
    let mut places = Vec::with_capacity(ids.len());
    for id in ids {
        let found = select.query_row(params![session, id.0.cast_signed(), outdated], place);
        places.extend(found.optional()?);
    }
    if !outdated {
        let mut earlier = connection.prepare_cached(
            "SELECT replaces FROM messages WHERE session = ?1 AND replaces IS NOT NULL AND NOT cut",
        )?;
        let earlier = earlier.query_map([session], |row| Ok(message_id(row.get(0)?)))?;
        let earlier: Ids = earlier.collect::<Result<_, _>>()?;
        places.retain(|place| !earlier.contains(&place.id));
    }
    Ok(places)
}

/// Where the messages of a page are, and after which message the next one begins.
fn places_in(
    connection: &Connection,
    session: i64,
    range: &TranscriptRange,
) -> rusqlite::Result<(Vec<Place>, Option<MessageId>)> {
    let mut select = connection.prepare_cached(
        "SELECT id, said_ms, messages.wire, part, texts.bytes FROM messages
         JOIN texts ON texts.session = messages.session AND texts.number = messages.wire
         WHERE messages.session = ?1 AND id > ?2
           AND (?3 OR NOT cut AND id NOT IN
                (SELECT replaces FROM messages WHERE session = ?1 AND replaces IS NOT NULL AND NOT cut))
         ORDER BY id",
    )?;
    let after = range.after.unwrap_or_default().0.cast_signed();
    let mut rows = select.query(params![session, after, range.outdated])?;
    let (mut places, mut bytes): (Vec<Place>, usize) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let next = place(row)?;
        if places.last().is_none_or(|last| last.wire != next.wire) {
            bytes += row.get::<_, i64>(4)?.max(0) as usize;
        }
        let is_full = places.len() >= range.limit.max(1) || bytes > PAGE_BYTES;
        if is_full && let Some(last) = places.last() {
            let last = last.id;
            return Ok((places, Some(last)));
        }
        places.push(next);
    }
    Ok((places, None))
}

/// Checks the stored texts of a session; answers the messages whose text is missing or damaged.
pub(super) fn damaged_texts(
    connection: &Connection,
    session: i64,
) -> rusqlite::Result<Vec<MessageId>> {
    let mut select = connection.prepare(
        "SELECT id, texts.bytes, checksum, data FROM messages
         LEFT JOIN texts ON texts.session = messages.session AND texts.number = messages.wire
         WHERE messages.session = ?1 AND messages.wire IS NOT NULL ORDER BY id",
    )?;
    let mut rows = select.query([session])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        let data: Option<Vec<u8>> = row.get(3)?;
        let text = match data {
            Some(data) => unpacked(row.get(1)?, row.get(2)?, &data),
            None => None,
        };
        if text.is_none() {
            damaged.push(message_id(row.get(0)?));
        }
    }
    Ok(damaged)
}

/// Checks the artifacts of a session; answers those that are damaged: the engine's name and the artifact's.
pub(super) fn damaged_artifacts(
    connection: &Connection,
    session: i64,
) -> rusqlite::Result<Vec<(String, String)>> {
    let mut select = connection
        .prepare("SELECT engine, name, bytes, checksum, data FROM artifacts WHERE session = ?1")?;
    let mut rows = select.query([session])?;
    let mut damaged = Vec::new();
    while let Some(row) = rows.next()? {
        let data: Vec<u8> = row.get(4)?;
        if unpacked(row.get(2)?, row.get(3)?, &data).is_none() {
            damaged.push((row.get(0)?, row.get(1)?));
        }
    }
    Ok(damaged)
}

/// Takes out the texts and artifacts of a session that are damaged. Answers what these were, a line each.
pub(super) fn forget_damaged(
    connection: &Connection,
    session: i64,
) -> rusqlite::Result<Vec<String>> {
    let texts = damaged_texts(connection, session)?;
    for id in &texts {
        connection.execute(
            "UPDATE messages SET wire = NULL, part = NULL WHERE session = ?1 AND id = ?2",
            [session, id.0.cast_signed()],
        )?;
    }
    connection.execute(
        "DELETE FROM texts WHERE session = ?1 AND number NOT IN
            (SELECT wire FROM messages WHERE session = ?1 AND wire IS NOT NULL)",
        [session],
    )?;
    let artifacts = damaged_artifacts(connection, session)?;
    for (engine, name) in &artifacts {
        connection.execute(
            "DELETE FROM artifacts WHERE session = ?1 AND engine = ?2 AND name = ?3",
            params![session, engine, name],
        )?;
    }
    Ok(damage_lines(&texts, &artifacts))
}

/// A line for each kind of damage.
pub(super) fn damage_lines(texts: &[MessageId], artifacts: &[(String, String)]) -> Vec<String> {
    let named: Vec<String> = texts.iter().take(10).map(MessageId::to_string).collect();
    let of_texts = (!texts.is_empty()).then(|| {
        format!(
            "the text of {} messages ({})",
            texts.len(),
            named.join(", ")
        )
    });
    let of_artifacts = (artifacts.iter())
        .map(|(engine, name)| format!("what the engine `{engine}` stored as `{name}`"));
    of_texts.into_iter().chain(of_artifacts).collect()
}
