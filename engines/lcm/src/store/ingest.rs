//! Ingest: a delivery of messages, stored exactly once.

use contexture_engine_api::{MessageId, MessageView};
use rusqlite::{OptionalExtension, Transaction, params};

use super::block::{self, Draft};
use super::body::{beside_text, content_hash};
use super::branch::{live_ordinal, live_ranges};
use super::sessions::unknown;
use super::{Database, Key, SessionId, Store, damaged, payload};
use crate::error::StoreError;
use crate::index::corpus::Corpus;
use crate::index::segment::indexed_end;

/// A block takes further messages up to this many bytes.
const BLOCK_BYTES: usize = 48 * 1024;

/// How many messages await the index before a batch is worth it.
pub(crate) const INDEX_BATCH: u32 = 256;

/// What a delivery brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// The ordinals of the messages that were new.
    pub new: std::ops::Range<u32>,
    /// How many had been stored before and were left alone.
    pub known: usize,
}

impl Store {
    /// Stores the messages that are new, and the host's chain hash after the last of them, in one
    /// transaction. When it returns, the messages survive the death of the process.
    ///
    /// The messages come in the order of their ids. One whose id is not above the last live one must be
    /// stored already, with the same content: it was delivered twice and is left alone.
    ///
    /// # Errors
    /// [`StoreError::IdReused`]; a store that failed. Nothing is stored then.
    pub fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError> {
        let (ingested, waiting) = self.database().ingest(session, messages, chain)?;
        if waiting >= INDEX_BATCH
            && let Some(worker) = &self.0.worker
        {
            worker.wake(session);
        }
        Ok(ingested)
    }

    /// Says that the message `new` is a revision of the message `old`: both stay, and know each other.
    ///
    /// # Errors
    /// One of them is not stored; a store that failed.
    pub fn mark_revision(
        &self,
        session: SessionId,
        new: MessageId,
        old: MessageId,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            let newest = |id: MessageId| {
                transaction
                    .query_row(
                        "SELECT max(id) FROM messages WHERE session = ?1 AND host = ?2",
                        params![session.0, id.0 as i64],
                        |row| row.get::<_, Option<i64>>(0),
                    )?
                    .ok_or_else(|| StoreError::Unknown(format!("message {id}")))
            };
            transaction.execute(
                "UPDATE messages SET replaces = ?2 WHERE id = ?1",
                [newest(new)?, newest(old)?],
            )?;
            Ok(())
        })
    }
}

impl Database {
    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<(Ingested, u32), StoreError> {
        let bodies: Vec<Body<'_>> = messages
            .iter()
            .map(|view| Body::of(view, self.settings.large_tokens))
            .collect();
        self.write_compressing(|transaction, compressor| {
            let cursor = Cursor::read(transaction, session)?;
            let first_new = known_messages(transaction, session, &cursor, messages, &bodies)?;
            let (new, bodies) = (&messages[first_new..], &bodies[first_new..]);
            check_order(new)?;
            let ordinals = cursor.next..cursor.next + new.len() as u32;
            insert_messages(transaction, session, &cursor, new, bodies)?;
            insert_blocks(transaction, compressor, session, cursor.next, new, bodies)?;
            finish(transaction, session, &cursor, messages, ordinals.end, chain)?;
            let ingested = Ingested {
                new: ordinals.clone(),
                known: first_new,
            };
            let indexed = indexed_end(transaction, session, Corpus::Messages)?;
            Ok((ingested, ordinals.end.saturating_sub(indexed)))
        })
    }
}

/// Where the session stands.
struct Cursor {
    next: u32,
    last_host: Option<MessageId>,
    order_at: i64,
}

impl Cursor {
    fn read(transaction: &Transaction<'_>, session: SessionId) -> Result<Self, StoreError> {
        transaction
            .prepare_cached("SELECT next_ordinal, last_host, order_at FROM sessions WHERE id = ?1")?
            .query_row([session.0], |row| {
                Ok(Self {
                    next: row.get(0)?,
                    last_host: row
                        .get::<_, Option<i64>>(1)?
                        .map(|host| MessageId(host as u64)),
                    order_at: row.get(2)?,
                })
            })
            .optional()?
            .ok_or_else(|| unknown(session))
    }
}

/// What search sees of a message.
pub(crate) struct Body<'a> {
    text: std::borrow::Cow<'a, str>,
    text_len: usize,
    aside: Option<&'a str>,
    tokens: u64,
    hash: [u8; 16],
}

impl<'a> Body<'a> {
    fn of(view: &MessageView<'a>, large_tokens: u64) -> Self {
        let text = view.text();
        // No tokenizer makes more tokens than there are bytes, so that short texts need no count.
        let tokens = view.tokens();
        let large = text.len() as u64 > large_tokens && tokens > large_tokens;
        let rest = beside_text(view);
        let (kept, aside) = if large {
            ("", Some(text))
        } else {
            (text, None)
        };
        let body = if rest.is_empty() {
            std::borrow::Cow::Borrowed(kept)
        } else {
            std::borrow::Cow::Owned(format!("{kept}\n{rest}"))
        };
        Self {
            text: body,
            text_len: kept.len(),
            aside,
            tokens,
            hash: content_hash(view.role(), view.raw(), text, &rest),
        }
    }
}

/// How many of the messages, from the first, are stored already.
fn known_messages(
    transaction: &Transaction<'_>,
    session: SessionId,
    cursor: &Cursor,
    messages: &[MessageView<'_>],
    bodies: &[Body<'_>],
) -> Result<usize, StoreError> {
    let Some(last) = cursor.last_host else {
        return Ok(0);
    };
    let first_new = messages
        .iter()
        .position(|view| view.id() > last)
        .unwrap_or(messages.len());
    if first_new == 0 {
        return Ok(0);
    }
    let live = live_ranges(transaction, session)?;
    for (view, body) in messages[..first_new].iter().zip(bodies) {
        let ordinal = live_ordinal(transaction, session, &live, view.id())?
            .ok_or(StoreError::IdReused(view.id()))?;
        let hash: Vec<u8> = transaction
            .prepare_cached("SELECT hash FROM messages WHERE id = ?1")?
            .query_row([Key::new(session, ordinal).0], |row| row.get(0))?;
        if hash != body.hash {
            return Err(StoreError::IdReused(view.id()));
        }
    }
    Ok(first_new)
}

fn check_order(new: &[MessageView<'_>]) -> Result<(), StoreError> {
    match new.windows(2).find(|pair| pair[0].id() >= pair[1].id()) {
        Some(pair) => Err(StoreError::IdReused(pair[1].id())),
        None => Ok(()),
    }
}

fn insert_messages(
    transaction: &Transaction<'_>,
    session: SessionId,
    cursor: &Cursor,
    new: &[MessageView<'_>],
    bodies: &[Body<'_>],
) -> Result<(), StoreError> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO messages(id, session, host, role, tool, call_id, at, order_at, tokens, flags,
                              hash, payload)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let mut order_at = cursor.order_at;
    for ((view, body), ordinal) in new.iter().zip(bodies).zip(cursor.next..) {
        // Never back, whatever the clock does, so that order by time and order of arrival agree.
        order_at = order_at.max(view.time().unwrap_or(order_at));
        let payload = match body.aside {
            Some(text) => Some(payload::insert(transaction, session, text, body.tokens)?),
            None => None,
        };
        insert.execute(params![
            Key::new(session, ordinal).0,
            session.0,
            view.id().0 as i64,
            view.role(),
            view.tool_name(),
            view.tool_call_id(),
            view.time(),
            order_at,
            body.tokens as i64,
            flags(view),
            body.hash,
            payload,
        ])?;
    }
    transaction
        .prepare_cached("UPDATE sessions SET order_at = ?2 WHERE id = ?1 AND order_at < ?2")?
        .execute([session.0, order_at])?;
    Ok(())
}

/// Thinking, media, error, then the kind.
fn flags(view: &MessageView<'_>) -> i64 {
    i64::from(view.has_thinking())
        | i64::from(view.has_media()) << 1
        | i64::from(view.is_error()) << 2
        | i64::from(view.kind() as u32) << 8
}

fn insert_blocks(
    transaction: &Transaction<'_>,
    compressor: &mut zstd::bulk::Compressor<'static>,
    session: SessionId,
    first: u32,
    new: &[MessageView<'_>],
    bodies: &[Body<'_>],
) -> Result<(), StoreError> {
    let drafts: Vec<Draft<'_>> = new
        .iter()
        .zip(bodies)
        .map(|(view, body)| Draft {
            body: &body.text,
            text_len: body.text_len,
            raw: view.raw(),
            aside: body.aside,
        })
        .collect();
    let mut insert =
        transaction.prepare_cached("INSERT INTO blocks(id, bytes, data) VALUES(?1, ?2, ?3)")?;
    let mut start = 0;
    while start < drafts.len() {
        let end = block_end(&drafts, start);
        let bytes = block::lay_out(&drafts[start..end]);
        let data = compressor.compress(&bytes).map_err(damaged)?;
        let key = Key::new(session, first + start as u32);
        insert.execute(params![key.0, bytes.len() as i64, data])?;
        start = end;
    }
    Ok(())
}

/// Where the block that begins at `start` ends: when it is full, but never between views of one wire message.
fn block_end(drafts: &[Draft<'_>], start: usize) -> usize {
    let mut bytes = 0;
    for at in start..drafts.len() {
        let shares_raw = at > start && drafts[at].raw == drafts[at - 1].raw;
        if bytes > BLOCK_BYTES && !shares_raw {
            return at;
        }
        bytes += drafts[at].body.len() + drafts[at].aside.map_or(0, str::len);
    }
    drafts.len()
}

fn finish(
    transaction: &Transaction<'_>,
    session: SessionId,
    cursor: &Cursor,
    messages: &[MessageView<'_>],
    next: u32,
    chain: u64,
) -> Result<(), StoreError> {
    let Some(last) = messages.last() else {
        return Ok(());
    };
    if next > cursor.next {
        transaction
            .prepare_cached("UPDATE messages SET chain = ?2 WHERE id = ?1")?
            .execute([Key::new(session, next - 1).0, chain as i64])?;
        transaction
            .prepare_cached("UPDATE sessions SET next_ordinal = ?2, last_host = ?3 WHERE id = ?1")?
            .execute(params![session.0, next, last.id().0 as i64])?;
        return Ok(());
    }
    // All of it was known: the delivery's end is remembered all the same.
    let live = live_ranges(transaction, session)?;
    if let Some(ordinal) = live_ordinal(transaction, session, &live, last.id())? {
        transaction
            .prepare_cached("UPDATE messages SET chain = ?2 WHERE id = ?1")?
            .execute([Key::new(session, ordinal).0, chain as i64])?;
    }
    Ok(())
}
