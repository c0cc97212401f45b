//! Reads messages: their metadata from the rows, their content from the host's transcript.
//!
//! A [`MessageRow`] is cheap and is enough to plan a compaction or to filter a search. A
//! [`StoredMessage`] also has the text, which must be fetched from the transcript. Fetching has a
//! fixed cost for each request, so everything that reads many messages asks for them in pieces. The
//! pieces are limited in messages and tokens, so that memory stays bounded.
//!
//! [`Bodies`] is the reader for searching and indexing. It announces which messages come next,
//! reads them together and caches them. The transcript may lack a message, for example because it
//! was deleted there. Readers of single messages return [`StoreError::NoText`] then, and readers of
//! many skip it.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use contexture_engine_api::{MessageId, MessageKind, MessageView, OwnedMessage, with_views};
use rusqlite::{Connection, OptionalExtension, Row};

use super::body::{MessageBody, beside_text, push_beside};
use super::current_messages::{key_in, keys};
use super::{Key, PayloadId, SessionId, Snapshot, Store, query_all};
use crate::error::StoreError;
use crate::tool_names::is_own;

/// How many messages are requested from the transcript at once at most.
const BATCH: usize = 128;
/// How many tokens of messages are requested at once, if there is more than one message.
const BATCH_TOKENS: u64 = 200_000;

/// How many bytes of texts [`Bodies`] caches before it drops all of them.
const HELD_BYTES: usize = 8 << 20;

/// The metadata of a message, without its content. It is read from the store alone, so it is
/// available even if the transcript does not have the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRow {
    /// The key of the message, which is its session and its ordinal.
    pub key: Key,
    /// The id that the host gave the message.
    pub id: MessageId,
    /// The role on the wire: `user`, `assistant`, `tool` or any other.
    pub role: String,
    /// The name of the author, if the message on the wire has one.
    pub name: Option<String>,
    /// The name of the tool, if the message is a tool result.
    pub tool: Option<String>,
    /// The time of the message in milliseconds since the Unix epoch, if the transcript has one.
    pub at: Option<i64>,
    /// The time for sorting, in milliseconds since the Unix epoch. It is never earlier than that of
    /// a message before this one, unless a clock that was ahead by more than a day was set right in
    /// between. If the message has no time of its own, it is that of the arrival or of the message
    /// before. It is 0 if unknown.
    pub order_at: i64,
    /// The number of tokens, as the host counted them.
    pub tokens: u64,
    /// Whether the message contains an image or a document.
    pub has_media: bool,
    /// Whether the text is more than white space. Messages with only tool calls have no text.
    pub has_text: bool,
    /// Whether the message is an original or was inserted by a compaction.
    pub kind: MessageKind,
    /// The message that this one is a revision of, if it is stored.
    pub replaces: Option<Key>,
    /// The number of its text, if the text is large enough to be a file.
    pub payload: Option<PayloadId>,
    /// Whether the message is part of the conversation. It is not if it was cut off or replaced by a
    /// revision.
    pub is_current: bool,
}

impl MessageRow {
    /// Returns the time of the message in milliseconds since the Unix epoch. If the transcript has
    /// none, it is the order time, and None if that is unknown as well.
    pub fn said_at(&self) -> Option<i64> {
        self.at.or((self.order_at > 0).then_some(self.order_at))
    }

    /// Returns whether the message has this role. Case is ignored, because a user may type the
    /// role.
    pub(crate) fn is_of(&self, role: &str) -> bool {
        self.role.eq_ignore_ascii_case(role)
    }
}

/// A message with its content. Use it to show or export a message, and `Store::rows` if its
/// metadata is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The metadata of the message, from the store.
    pub row: MessageRow,
    /// The text of the message, without calls and thinking.
    pub text: String,
    /// The tool calls, the thinking and the content of hosted tools in searchable form, one part
    /// per line. It is empty if the message has none of them.
    pub calls: String,
    /// The message as JSON on the wire, byte for byte.
    pub raw: String,
}

impl StoredMessage {
    fn of(row: MessageRow, message: OwnedMessage) -> Self {
        let beside = with_views(std::slice::from_ref(&message), |views| {
            views.iter().flat_map(beside_text).collect::<Vec<_>>()
        });
        Self {
            row,
            text: message.text,
            calls: beside.join("\n"),
            raw: message.raw,
        }
    }

    /// Returns the searchable body. The byte positions of search hits refer to it.
    pub fn body(&self) -> String {
        let mut body = self.text.clone();
        let calls = Some(self.calls.as_str()).filter(|calls| !calls.is_empty());
        push_beside(calls, 0, &mut body);
        body
    }
}

const COLUMNS: &str =
    "id, host, role, tool, at, order_at, tokens, flags, replaces, payload, name, is_current";

/// Packs the flags of a row into one integer: bit 0 media, bit 1 whether there is text, and the kind
/// from bit 8 upwards.
pub(super) fn flags_of(view: &MessageView<'_>) -> i64 {
    i64::from(view.has_media())
        | i64::from(!view.text().trim().is_empty()) << 1
        | i64::from(view.kind() as u32) << 8
}

/// Reads the host's id of a message from the first column.
pub(super) fn host_id(row: &Row<'_>) -> rusqlite::Result<MessageId> {
    let id: i64 = row.get(0)?;
    Ok(MessageId(id.cast_unsigned()))
}

fn row(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    let flags: i64 = row.get(7)?;
    Ok(MessageRow {
        key: Key(row.get(0)?),
        id: MessageId(row.get::<_, i64>(1)? as u64),
        role: row.get(2)?,
        tool: row.get(3)?,
        at: row.get(4)?,
        order_at: row.get(5)?,
        tokens: row.get::<_, i64>(6)? as u64,
        has_media: flags & 1 != 0,
        has_text: flags & 2 != 0,
        kind: match flags >> 8 {
            0 => MessageKind::Original,
            1 => MessageKind::Summary,
            2 => MessageKind::Replaced,
            _ => MessageKind::Unknown,
        },
        replaces: row.get::<_, Option<i64>>(8)?.map(Key),
        payload: row.get::<_, Option<i64>>(9)?.map(PayloadId),
        name: row.get(10)?,
        is_current: row.get(11)?,
    })
}

impl Store {
    /// Returns the rows of these ordinals of a session, in order. Ordinals without a message are
    /// skipped.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn rows(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<MessageRow>, StoreError> {
        self.read(|connection| rows_in(connection, session, &ordinals))
    }

    /// Returns the messages of these ordinals of a session with their content, in order.
    ///
    /// # Errors
    /// Returns [`StoreError::NoText`] if the transcript lacks one of them, or an error of the store
    /// or the transcript.
    pub fn messages(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<StoredMessage>, StoreError> {
        let found = self.contents(session, ordinals)?.into_iter();
        found
            .map(|(row, message)| message.ok_or(StoreError::NoText(row.id)))
            .collect()
    }

    /// Like [`Store::messages`], with the row of each message. The content of a message that the
    /// transcript lacks is None.
    pub(crate) fn contents(
        &self,
        session: SessionId,
        ordinals: Range<u32>,
    ) -> Result<Vec<(MessageRow, Option<StoredMessage>)>, StoreError> {
        self.read(|snapshot| {
            let rows = rows_in(snapshot, session, &ordinals)?;
            let found = with_contents(snapshot, rows)?.into_iter();
            let stored = found.map(|(row, message)| {
                let message = message.map(|message| StoredMessage::of(row.clone(), message));
                (row, message)
            });
            Ok(stored.collect())
        })
    }

    /// Returns the messages of these keys as the host lends them, in the order of the keys. Kind,
    /// tokens and time are those of the row, because the rows follow the deliveries. The keys should be in
    /// ascending order, because neighbouring messages are read with one query.
    ///
    /// # Errors
    /// Returns [`StoreError::NoText`] if the transcript lacks one of them, and
    /// [`StoreError::Damaged`] if a key has no row.
    pub(crate) fn owned_messages(&self, keys: &[Key]) -> Result<Vec<OwnedMessage>, StoreError> {
        self.read(|snapshot| {
            let mut rows = Vec::with_capacity(keys.len());
            for key in keys {
                // Keys come from the store itself, so a missing row means that the file is damaged.
                let gone =
                    || StoreError::Damaged(format!("message {} is gone", key.ordinal()).into());
                rows.push(row_in(snapshot, *key)?.ok_or_else(gone)?);
            }
            with_contents(snapshot, rows)?
                .into_iter()
                .map(|(row, message)| {
                    let mut message = message.ok_or(StoreError::NoText(row.id))?;
                    message.kind = row.kind;
                    message.tokens = row.tokens;
                    message.time_ms = row.at;
                    Ok(message)
                })
                .collect()
        })
    }

    /// Returns the ids of the messages whose text the transcript does not have. All messages of the
    /// session are read, so this is for checks.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails, and [`StoreError::Cancelled`] if the
    /// caller stopped it.
    pub fn without_text(&self, session: SessionId) -> Result<Vec<MessageId>, StoreError> {
        self.read(|snapshot| {
            let mut without = Vec::new();
            let mut start = 0;
            loop {
                self.go_on()?;
                let rows = rows_in(snapshot, session, &(start..start + BATCH as u32))?;
                let Some(last) = rows.last() else {
                    return Ok(without);
                };
                start = last.key.ordinal() + 1;
                let read = with_contents(snapshot, rows)?.into_iter();
                let lost = read.filter(|(_, message)| message.is_none());
                without.extend(lost.map(|(row, _)| row.id));
            }
        })
    }

    /// Returns the message with this host id, with its content.
    ///
    /// # Errors
    /// Returns [`StoreError::Unknown`] if there is no such message, and [`StoreError::NoText`] if
    /// the transcript lacks it.
    pub fn message(&self, session: SessionId, id: MessageId) -> Result<StoredMessage, StoreError> {
        let unknown = || StoreError::Unknown(format!("message {id}"));
        let key = self.key(session, id)?.ok_or_else(unknown)?;
        let ordinals = key.ordinal()..key.ordinal() + 1;
        self.messages(session, ordinals)?.pop().ok_or_else(unknown)
    }

    /// Returns the key of the message with this host id, or None if the message is not stored.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn key(&self, session: SessionId, id: MessageId) -> Result<Option<Key>, StoreError> {
        self.read(|connection| key_in(connection, session, id))
    }
}

pub(crate) fn row_in(connection: &Connection, key: Key) -> Result<Option<MessageRow>, StoreError> {
    Ok(connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM messages WHERE id = ?1"))?
        .query_row([key.0], row)
        .optional()?)
}

fn rows_in(
    connection: &Connection,
    session: SessionId,
    ordinals: &Range<u32>,
) -> Result<Vec<MessageRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM messages WHERE id >= ?1 AND id < ?2 ORDER BY id");
    query_all(connection, &sql, keys(session, ordinals), row)
}

/// Returns the latest time of the messages of a session up to `key`, in milliseconds since the Unix
/// epoch. It is 0 if there is none.
pub(crate) fn latest_time(connection: &Connection, key: Key) -> Result<i64, StoreError> {
    let time = "SELECT order_at FROM messages WHERE id >= ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
    let mut statement = connection.prepare_cached(time)?;
    let first = Key::new(key.session(), 0);
    let time = statement.query_row([first.0, key.0], |row| row.get(0));
    Ok(time.optional()?.unwrap_or(0))
}

/// Returns the names of authors in a session, at most `limit`, each with its first message.
/// Messages without a name do not count.
pub(crate) fn names_in(
    connection: &Connection,
    session: SessionId,
    limit: u32,
) -> Result<Vec<(String, Key)>, StoreError> {
    // Steps from name to name through the index, without reading the messages between them.
    let sql = "WITH RECURSIVE names(name) AS (
             VALUES('') UNION ALL
             SELECT (SELECT min(name) FROM messages WHERE session = ?1 AND name > names.name)
             FROM names WHERE name IS NOT NULL)
         SELECT name, (SELECT min(id) FROM messages WHERE session = ?1 AND name = names.name)
         FROM names WHERE name > '' LIMIT ?2";
    query_all(connection, sql, (session.0, limit), |row| {
        Ok((row.get(0)?, Key(row.get(1)?)))
    })
}

/// Splits rows into pieces that can be requested from the transcript at once. All rows of a piece
/// are of one session. A single message above the token limit is a piece of its own.
fn pieces<T>(rows: &[T], wanted: impl Fn(&T) -> (Key, u64)) -> Vec<&[T]> {
    let mut pieces = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (at, row) in rows.iter().enumerate() {
        let (key, own) = wanted(row);
        let is_other = || rows.get(start).map(|first| wanted(first).0.session());
        let is_full = at - start >= BATCH || tokens + own > BATCH_TOKENS;
        if at > start && (is_full || is_other() != Some(key.session())) {
            pieces.push(&rows[start..at]);
            (start, tokens) = (at, 0);
        }
        tokens += own;
    }
    pieces.push(&rows[start..]);
    pieces
}

/// Fetches the content of each row. It is None if the transcript does not have the message.
fn with_contents(
    snapshot: &Snapshot<'_>,
    rows: Vec<MessageRow>,
) -> Result<Vec<(MessageRow, Option<OwnedMessage>)>, StoreError> {
    let mut found = HashMap::with_capacity(rows.len());
    for piece in pieces(&rows, |row| (row.key, row.tokens)) {
        let ids: Vec<MessageId> = piece.iter().map(|row| row.id).collect();
        if let Some(first) = piece.first() {
            let session = first.key.session();
            let messages = snapshot.messages(session, &ids)?.into_iter();
            found.extend(messages.map(|message| ((session, message.id), message)));
        }
    }
    let rows = rows.into_iter().map(|row| {
        let message = found.remove(&(row.key.session(), row.id));
        (row, message)
    });
    Ok(rows.collect())
}

/// Calls `each` with the searchable body of each of these messages, in order, until it breaks.
/// Messages whose text the transcript does not have are skipped, and their number is returned.
pub(crate) fn for_each_body(
    snapshot: &Snapshot<'_>,
    session: SessionId,
    ordinals: &Range<u32>,
    mut each: impl FnMut(Key, &str) -> Result<ControlFlow<()>, StoreError>,
) -> Result<u64, StoreError> {
    let mut bodies = Bodies::new(snapshot);
    let mut unreadable = 0;
    let mut start = ordinals.start;
    while start < ordinals.end {
        let end = ordinals.end.min(start.saturating_add(BATCH as u32));
        let sql = "SELECT id FROM messages WHERE id >= ?1 AND id < ?2 ORDER BY id";
        let key = |row: &Row<'_>| row.get(0).map(Key);
        let all: Vec<Key> = query_all(snapshot, sql, keys(session, &(start..end)), key)?;
        if all.is_empty() {
            // There are no gaps between ordinals, so an empty batch is the end.
            break;
        }
        bodies.expect(all.iter().copied());
        for key in all {
            match bodies.body(key)? {
                Some(body) => {
                    if each(key, body.as_str())?.is_break() {
                        return Ok(unreadable);
                    }
                }
                None => unreadable += 1,
            }
        }
        start = end;
    }
    Ok(unreadable)
}

/// Reads the searchable bodies of messages, with a cache. Call [`expect`](Self::expect) first if
/// many messages follow, so that they are fetched together.
pub(crate) struct Bodies<'c> {
    snapshot: &'c Snapshot<'c>,
    /// The messages that will be requested, in order. `read` is how many of them were fetched.
    expected: Vec<Key>,
    read: usize,
    held: HashMap<Key, Option<OwnedBody>>,
    held_bytes: usize,
}

/// An owned body, from which a [`MessageBody`] borrows: all parts in one text, and their lengths.
struct OwnedBody {
    all: String,
    text_len: usize,
    beside: Vec<usize>,
}

impl OwnedBody {
    /// Builds the body of a message. Results of this engine's own tools have none, because a search
    /// would otherwise find the results of earlier searches.
    fn of(message: OwnedMessage) -> Self {
        let parts = with_views(std::slice::from_ref(&message), |views| match views {
            [view] if !view.tool_name().is_some_and(is_own) => Some(beside_text(view)),
            _ => None,
        });
        let Some(parts) = parts else {
            return Self {
                all: String::new(),
                text_len: 0,
                beside: Vec::new(),
            };
        };
        let mut all = message.text;
        let text_len = all.len();
        push_beside(parts.iter().map(String::as_str), 0, &mut all);
        Self {
            all,
            text_len,
            beside: parts.iter().map(String::len).collect(),
        }
    }
}

impl<'c> Bodies<'c> {
    pub(crate) fn new(snapshot: &'c Snapshot<'c>) -> Self {
        Self {
            snapshot,
            expected: Vec::new(),
            read: 0,
            held: HashMap::new(),
            held_bytes: 0,
        }
    }

    /// Announces which messages will be requested next, in order. An earlier announcement is
    /// replaced.
    pub(crate) fn expect(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.expected = keys.into_iter().collect();
        self.read = 0;
    }

    /// Returns the searchable body of a message. It is None if there is no such message, or if the
    /// transcript does not have its text.
    pub(crate) fn body(&mut self, key: Key) -> Result<Option<MessageBody<'_>>, StoreError> {
        if !self.held.contains_key(&key) {
            self.fetch(key)?;
        }
        let body = self.held.get(&key).and_then(Option::as_ref);
        Ok(body.map(|body| MessageBody::new(&body.all, body.text_len, &body.beside)))
    }

    /// Fetches a message into the cache, together with the announced messages that follow it.
    fn fetch(&mut self, key: Key) -> Result<(), StoreError> {
        // Dropping everything is enough, because readers go forward and rarely come back.
        if self.held_bytes > HELD_BYTES {
            self.held.clear();
            self.held_bytes = 0;
        }
        let ahead = self.expected.get(self.read..).unwrap_or_default();
        let from = ahead.iter().take(BATCH).position(|next| *next == key);
        let together = match from {
            Some(from) => {
                let start = self.read + from;
                let end = self.expected.len().min(start + BATCH);
                self.read = end;
                self.expected[start..end].to_vec()
            }
            None => vec![key],
        };
        let mut rows = Vec::with_capacity(together.len());
        for key in together {
            let row = self
                .snapshot
                .prepare_cached("SELECT host, tokens FROM messages WHERE id = ?1")?
                .query_row([key.0], |row| {
                    let tokens: i64 = row.get(1)?;
                    Ok((key, host_id(row)?, tokens.cast_unsigned()))
                });
            // A message that the transcript lacks is cached as None, so that it is requested only
            // once.
            self.held.insert(key, None);
            rows.extend(row.optional()?);
        }
        for piece in pieces(&rows, |(key, _, tokens)| (*key, *tokens)) {
            // `pieces` returns one empty piece if there are no rows.
            let Some((first, ..)) = piece.first() else {
                continue;
            };
            let ids: Vec<MessageId> = piece.iter().map(|(_, id, _)| *id).collect();
            let keys: HashMap<MessageId, Key> =
                piece.iter().map(|(key, id, _)| (*id, *key)).collect();
            for message in self.snapshot.messages(first.session(), &ids)? {
                if let Some(key) = keys.get(&message.id) {
                    let body = OwnedBody::of(message);
                    self.held_bytes += body.all.len();
                    self.held.insert(*key, Some(body));
                }
            }
        }
        Ok(())
    }
}
