//! Reading messages back.

use std::ops::{ControlFlow, Range};

use contexture_engine_api::{MessageId, MessageKind};
use rusqlite::{Connection, OptionalExtension};

use super::block::{Block, Draft};
use super::body::{Body, Facts, push_beside};
use super::compression::{damaged, decompress};
use super::current_messages::CurrentMessages;
use super::live::{keys, keys_of, live_ordinal};
use super::{Key, PayloadId, SessionId, Store, payload};
use crate::error::StoreError;

/// A message's metadata, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// Its key: session and ordinal.
    pub key: Key,
    /// The host's id for it.
    pub id: MessageId,
    /// `user`, `assistant`, `tool`, or any other role on the wire.
    pub role: String,
    /// The author's name, if the wire has one.
    pub name: Option<String>,
    /// For a tool result: the tool.
    pub tool: Option<String>,
    /// For a tool result: the call that it answers.
    pub call_id: Option<String>,
    /// Its time, in ms since the Unix epoch, if the transcript has one.
    pub at: Option<i64>,
    /// As `at`, but never earlier than that of a message before it: for sorting. For a message without a
    /// time, that of its arrival or of the message before; 0 if unknown.
    pub order_at: i64,
    /// Its tokens, as counted by the host.
    pub tokens: u64,
    /// Whether it holds thinking.
    pub has_thinking: bool,
    /// Whether it holds an image or a document.
    pub has_media: bool,
    /// Whether it is a tool result that reports an error.
    pub is_error: bool,
    /// Whether its text is not blank.
    pub has_text: bool,
    /// Whether it is an original or was inserted by a compaction.
    pub kind: MessageKind,
    /// The message that it is a revision of.
    pub replaces: Option<Key>,
    /// Its text, if that is kept aside.
    pub payload: Option<PayloadId>,
    flags: i64,
    pub(super) hash: [u8; 16],
}

impl MessageRow {
    /// Its time, in ms since the Unix epoch; estimated if the transcript has none.
    pub fn said_at(&self) -> Option<i64> {
        self.at.or((self.order_at > 0).then_some(self.order_at))
    }

    /// Whether it has this role, ignoring case.
    pub(crate) fn is_of(&self, role: &str) -> bool {
        self.role.eq_ignore_ascii_case(role)
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            id: self.id,
            role: &self.role,
            name: self.name.as_deref(),
            tool: self.tool.as_deref(),
            call_id: self.call_id.as_deref(),
            at: self.at,
            flags: self.flags,
        }
    }
}

/// A message with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its metadata.
    pub row: MessageRow,
    /// Its text.
    pub text: String,
    /// Its tool calls and thinking in searchable form, each on separate lines; may be empty.
    pub calls: String,
    /// Its wire JSON, byte for byte.
    pub raw: String,
}

impl StoredMessage {
    /// Its searchable body, to which the positions of hits refer.
    pub fn body(&self) -> String {
        let mut body = self.text.clone();
        let calls = Some(self.calls.as_str()).filter(|calls| !calls.is_empty());
        push_beside(calls, 0, &mut body);
        body
    }
}

const COLUMNS: &str =
    "id, host, role, tool, call_id, at, order_at, tokens, flags, replaces, payload, hash, name";

fn row(row: &rusqlite::Row<'_>) -> rusqlite::Result<MessageRow> {
    let flags: i64 = row.get(8)?;
    Ok(MessageRow {
        key: Key(row.get(0)?),
        id: MessageId(row.get::<_, i64>(1)? as u64),
        role: row.get(2)?,
        tool: row.get(3)?,
        call_id: row.get(4)?,
        at: row.get(5)?,
        order_at: row.get(6)?,
        tokens: row.get::<_, i64>(7)? as u64,
        has_thinking: flags & 1 != 0,
        has_media: flags & 2 != 0,
        is_error: flags & 4 != 0,
        has_text: flags & 8 != 0,
        kind: match flags >> 8 {
            0 => MessageKind::Original,
            1 => MessageKind::Summary,
            2 => MessageKind::Replaced,
            _ => MessageKind::Unknown,
        },
        replaces: row.get::<_, Option<i64>>(9)?.map(Key),
        payload: row.get::<_, Option<i64>>(10)?.map(PayloadId),
        flags,
        hash: row.get(11)?,
        name: row.get(12)?,
    })
}

impl Store {
    /// The rows of these ordinals of a session, in order.
    ///
    /// # Errors
    /// A store that failed.
    pub fn rows(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<MessageRow>, StoreError> {
        self.read(|connection| rows_in(connection, session, &ordinals))
    }

    /// The messages of these ordinals of a session, with content, in order.
    ///
    /// # Errors
    /// A store that failed, or a damaged message.
    pub fn messages(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        self.read(|connection| {
            let mut blocks = Blocks::new(connection)?;
            rows_in(connection, session, &ordinals)?
                .into_iter()
                .map(|row| whole(connection, &mut blocks, row))
                .collect()
        })
    }

    /// The message with this host id: the live one, else the newest of those left behind by cuts.
    ///
    /// # Errors
    /// There is none; a store that failed.
    pub fn message(&self, session: SessionId, id: MessageId) -> Result<StoredMessage, StoreError> {
        self.read(|connection| {
            let key = key_in(connection, session, id)?
                .ok_or_else(|| StoreError::Unknown(format!("message {id}")))?;
            let found = row_in(connection, key)?
                .ok_or_else(|| StoreError::Unknown(format!("message {id}")))?;
            whole(connection, &mut Blocks::new(connection)?, found)
        })
    }

    /// The key of the message with this host id: the live one, else the newest of those left behind by
    /// cuts.
    ///
    /// # Errors
    /// A store that failed.
    pub fn key(&self, session: SessionId, id: MessageId) -> Result<Option<Key>, StoreError> {
        self.read(|connection| key_in(connection, session, id))
    }

    /// The originals of these messages, for [`ContextEngine::recall`]: none for one that is missing or
    /// damaged.
    ///
    /// [`ContextEngine::recall`]: contexture_engine_api::ContextEngine::recall
    ///
    /// # Errors
    /// A store that failed.
    pub fn recall(
        &self,
        session: SessionId,
        ids: &[MessageId],
    ) -> Result<Vec<Option<String>>, StoreError> {
        self.read(|connection| {
            let mut blocks = Blocks::new(connection)?;
            let current = CurrentMessages::read(connection, session)?;
            let mut original = |id| -> Result<Option<String>, StoreError> {
                let live = live_ordinal(connection, session, id)?;
                let key = live.map(|ordinal| Key::new(session, ordinal));
                let Some(key) = key.filter(|key| current.contains(*key)) else {
                    return Ok(None);
                };
                let row = row_in(connection, key)?;
                row.map(|row| Ok(whole(connection, &mut blocks, row)?.raw))
                    .transpose()
            };
            ids.iter()
                .map(|id| match original(*id) {
                    Err(StoreError::Damaged(_)) => Ok(None),
                    original => original,
                })
                .collect()
        })
    }
}

pub(super) fn key_in(
    connection: &Connection,
    session: SessionId,
    id: MessageId,
) -> Result<Option<Key>, StoreError> {
    match live_ordinal(connection, session, id)? {
        Some(ordinal) => Ok(Some(Key::new(session, ordinal))),
        None => Ok(keys_of(connection, session, id)?.first().copied()),
    }
}

pub(crate) fn row_in(connection: &Connection, key: Key) -> Result<Option<MessageRow>, StoreError> {
    Ok(connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE id = ?1"))?
        .query_row([key.0], row)
        .optional()?)
}

pub(crate) fn rows_in(
    connection: &Connection,
    session: SessionId,
    ordinals: &Range<u32>,
) -> Result<Vec<MessageRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM messages WHERE id >= ?1 AND id < ?2 ORDER BY id"
    ))?;
    let rows = statement.query_map(keys(session, ordinals), row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The author names in a session, each with its first message; at most `limit`.
pub(crate) fn names_in(
    connection: &Connection,
    session: SessionId,
    limit: u32,
) -> Result<Vec<(String, Key)>, StoreError> {
    // Steps from name to name through the index, without reading the messages between.
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE names(name) AS (
             VALUES('') UNION ALL
             SELECT (SELECT min(name) FROM messages WHERE session = ?1 AND name > names.name)
             FROM names WHERE name IS NOT NULL)
         SELECT name, (SELECT min(id) FROM messages WHERE session = ?1 AND name = names.name)
         FROM names WHERE name > '' LIMIT ?2",
    )?;
    let names = statement.query_map((session.0, limit), |row| {
        Ok((row.get(0)?, Key(row.get(1)?)))
    })?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// A message's key, and its row or the error of reading it.
type Found = (Key, Result<MessageRow, StoreError>);

/// At most `limit` rows of a session after a key, each with its key: an unreadable one does not hide the
/// others.
pub(super) fn rows_after(
    connection: &Connection,
    session: SessionId,
    after: Option<Key>,
    limit: u32,
) -> Result<Vec<Found>, StoreError> {
    let [first, last] = keys(session, &(0..u32::MAX));
    let first = after.map_or(first, |after| after.0 + 1);
    let keys = connection
        .prepare_cached("SELECT id FROM messages WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT ?3")?
        .query_map([first, last, i64::from(limit)], |row| row.get(0).map(Key))?
        .collect::<Result<Vec<_>, _>>()?;
    let rows = keys.into_iter().filter_map(|key| {
        let row = row_in(connection, key).transpose()?;
        Some((key, row))
    });
    Ok(rows.collect())
}

/// A message with its content, checked against its hash.
pub(super) fn whole(
    connection: &Connection,
    blocks: &mut Blocks<'_>,
    row: MessageRow,
) -> Result<StoredMessage, StoreError> {
    let raw = raw_in(connection, blocks, row.key, Some(&row))?;
    let (block, slot) = blocks.of(row.key)?;
    let beside = block.beside(slot);
    let text = match row.payload {
        Some(id) => payload::whole(connection, id.0)?,
        None => block.text(slot).to_owned(),
    };
    if row.facts().hash(&raw, &text, &beside) != row.hash {
        let damage = format!("message {} is not what was stored", row.id);
        return Err(StoreError::Damaged(damage.into()));
    }
    Ok(StoredMessage {
        row,
        text,
        calls: beside.join("\n"),
        raw,
    })
}

/// A message as it goes into a block.
pub(super) struct Content {
    text: String,
    aside: bool,
    beside: Vec<String>,
    is_searched: bool,
    raw: String,
    call_id: Option<String>,
}

impl Content {
    pub(super) fn draft(&self) -> Draft<'_> {
        Draft {
            text: &self.text,
            aside: self.aside,
            beside: &self.beside,
            is_searched: self.is_searched,
            raw: &self.raw,
            call_id: self.call_id.as_deref(),
        }
    }
}

/// A stored message, to write into another block.
pub(super) fn body_and_raw(
    connection: &Connection,
    blocks: &mut Blocks<'_>,
    key: Key,
) -> Result<Content, StoreError> {
    let row = row_in(connection, key)?;
    let raw = raw_in(connection, blocks, key, row.as_ref())?;
    let payload = row.as_ref().and_then(|row| row.payload);
    let (block, slot) = blocks.of(key)?;
    Ok(Content {
        call_id: row.and_then(|row| row.call_id),
        text: match payload {
            Some(id) => payload::whole(connection, id.0)?,
            None => block.text(slot).to_owned(),
        },
        aside: payload.is_some(),
        beside: block.beside(slot),
        is_searched: block.is_searched(slot),
        raw,
    })
}

/// The wire JSON of a message, byte for byte; `row` is its own, where there is one.
fn raw_in(
    connection: &Connection,
    blocks: &mut Blocks<'_>,
    key: Key,
    row: Option<&MessageRow>,
) -> Result<String, StoreError> {
    let (block, slot) = blocks.of(key)?;
    let first = key.ordinal() - slot as u32;
    // Texts that are kept aside must be fetched before they can be inserted.
    let mut aside: Vec<(usize, String)> = Vec::new();
    for source in block.raw_sources(slot) {
        let source_key = Key::new(key.session(), first + source as u32);
        let payload = match row {
            Some(row) if row.key == source_key => row.payload,
            _ => row_in(connection, source_key)?.and_then(|row| row.payload),
        };
        if let Some(id) = payload {
            aside.push((source, payload::whole(connection, id.0)?));
        }
    }
    Ok(block.raw(slot, |wanted| {
        aside
            .iter()
            .find(|(source, _)| *source == wanted)
            .map(|(_, text)| text.clone())
    }))
}

/// Calls `each` with the searchable body of each of these messages, in order, until it breaks. Skips
/// unreadable ones and returns their number.
pub(crate) fn for_each_body(
    connection: &Connection,
    session: SessionId,
    ordinals: &Range<u32>,
    mut each: impl FnMut(Key, &str) -> Result<ControlFlow<()>, StoreError>,
) -> Result<u64, StoreError> {
    let mut scan = Scan {
        connection,
        session,
        ordinals: ordinals.clone(),
        unreadable: 0,
    };
    let mut failed = None;
    let mut each = |key: Key, body: &str| {
        each(key, body).unwrap_or_else(|error| {
            failed = Some(error);
            ControlFlow::Break(())
        })
    };
    let mut step = 1;
    while !scan.ordinals.is_empty() {
        match scan.run(&mut each) {
            Ok(()) => break,
            Err(StoreError::Damaged(_)) => scan.skip(&mut step),
            Err(error) => return Err(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(scan.unreadable),
    }
}

/// A scan over messages, block by block; `ordinals` are the remaining ones.
struct Scan<'c> {
    connection: &'c Connection,
    session: SessionId,
    ordinals: Range<u32>,
    unreadable: u64,
}

impl Scan<'_> {
    fn run(
        &mut self,
        each: &mut impl FnMut(Key, &str) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, bytes, data FROM blocks
             WHERE id >= coalesce((SELECT max(id) FROM blocks WHERE id <= ?1), ?1) AND id < ?2
             ORDER BY id",
        )?;
        let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
        let mut rows = statement.query(keys(self.session, &self.ordinals))?;
        while let Some(row) = rows.next()? {
            let first = Key(row.get(0)?);
            if first.session() != self.session {
                continue;
            }
            let data = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
            let block = Block::read(decompress(&mut decompressor, data, row.get(1)?)?)?;
            for slot in 0..block.len() {
                let key = Key(first.0 + slot as i64);
                if !self.ordinals.contains(&key.ordinal()) {
                    continue;
                }
                self.ordinals.start = key.ordinal() + 1;
                let flow = match body(self.connection, &block, slot, key) {
                    Ok(body) => each(key, body.as_str()),
                    Err(StoreError::Damaged(_)) => {
                        self.unreadable += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if flow.is_break() {
                    self.ordinals.start = self.ordinals.end;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Skips a block that cannot be read; if the next one is not found either, skips more and more.
    fn skip(&mut self, step: &mut u32) {
        let first = self.ordinals.start;
        let next: Option<i64> = self
            .connection
            .query_row(
                "SELECT min(id) FROM blocks WHERE id > ?1",
                [Key::new(self.session, first).0],
                |row| row.get(0),
            )
            .unwrap_or(None);
        let next = next.map(Key).filter(|key| key.session() == self.session);
        self.ordinals.start = match next {
            Some(key) => key.ordinal(),
            None => {
                *step = step.saturating_mul(2);
                first.saturating_add(*step)
            }
        }
        .min(self.ordinals.end);
        self.unreadable += u64::from(self.ordinals.start - first);
    }
}

/// The searchable body of a message, including a text that is stored separately. Empty if searches skip the message.
fn body<'b>(
    connection: &Connection,
    block: &'b Block,
    slot: usize,
    key: Key,
) -> Result<Body<'b>, StoreError> {
    if !block.is_searched(slot) {
        return Ok(Body::of_text(""));
    }
    if block.is_aside(slot)
        && let Some(payload) = row_in(connection, key)?.and_then(|row| row.payload)
    {
        return Ok(block.body_with(slot, payload::whole(connection, payload.0)?));
    }
    Ok(block.body(slot))
}

/// Reads blocks and caches the last one, because neighbouring messages are read together.
pub(crate) struct Blocks<'c> {
    statement: rusqlite::CachedStatement<'c>,
    decompressor: zstd::bulk::Decompressor<'static>,
    current: Option<(Key, Block)>,
}

impl<'c> Blocks<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Result<Self, StoreError> {
        Ok(Self {
            statement: connection.prepare_cached(
                "SELECT id, bytes, data FROM blocks WHERE id <= ?1 ORDER BY id DESC LIMIT 1",
            )?,
            decompressor: zstd::bulk::Decompressor::new().map_err(damaged)?,
            current: None,
        })
    }

    /// The searchable body of a message; none if the message is missing.
    pub(crate) fn body(
        &mut self,
        connection: &Connection,
        key: Key,
    ) -> Result<Option<Body<'_>>, StoreError> {
        self.find(key)?
            .map(|(block, slot)| body(connection, block, slot, key))
            .transpose()
    }

    /// A block that damage put between a message and the block that holds it, so that reading the message
    /// alone would find the wrong block.
    pub(super) fn intruder(
        &self,
        connection: &Connection,
        key: Key,
    ) -> Result<Option<Key>, StoreError> {
        let nearest: Option<i64> = connection
            .prepare_cached("SELECT max(id) FROM blocks WHERE id <= ?1")?
            .query_row([key.0], |row| row.get(0))?;
        let holder = self.current.as_ref().map(|(first, _)| *first);
        Ok(nearest.map(Key).filter(|nearest| Some(*nearest) != holder))
    }

    /// The keys of the messages that the block at `first` holds.
    pub(super) fn held(&mut self, first: Key) -> Result<Vec<Key>, StoreError> {
        let (block, _) = self.of(first)?;
        Ok((0..block.len() as i64)
            .map(|slot| Key(first.0 + slot))
            .collect())
    }

    /// The wire message of a message: its block, and the index of the wire message there.
    pub(super) fn wire(&mut self, key: Key) -> Result<(Key, usize), StoreError> {
        let (block, slot) = self.of(key)?;
        Ok((Key(key.0 - slot as i64), block.wire(slot)))
    }

    /// The block that holds a message, and the message's slot in it.
    fn of(&mut self, key: Key) -> Result<(&Block, usize), StoreError> {
        self.find(key)?.ok_or_else(|| {
            let (ordinal, session) = (key.ordinal(), key.session().0);
            let damage = format!("message {ordinal} of session {session} has no content");
            StoreError::Damaged(damage.into())
        })
    }

    fn find(&mut self, key: Key) -> Result<Option<(&Block, usize)>, StoreError> {
        let holds =
            |(first, block): &(Key, Block)| *first <= key && key.0 < first.0 + block.len() as i64;
        if !self.current.as_ref().is_some_and(holds) {
            self.current = None;
            let mut rows = self.statement.query([key.0])?;
            if let Some(row) = rows.next()? {
                let first = Key(row.get(0)?);
                let data = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                let bytes = decompress(&mut self.decompressor, data, row.get(1)?)?;
                self.current = Some((first, Block::read(bytes)?));
            }
        }
        Ok(self
            .current
            .as_ref()
            .filter(|current| holds(current))
            .map(|(first, block)| (block, (key.0 - first.0) as usize)))
    }
}
