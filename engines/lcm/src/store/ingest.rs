//! Ingest: a delivery of messages, stored exactly once.
//!
//! Slow work (hashing, compressing) is done before the write transaction, so that one session's large
//! delivery does not block others.

use std::ops::Range;

use contexture_engine_api::{Delivery, MessageId, MessageView, Observed};
use contexture_secrets::{SECRET_MASK, mask_secrets};
use rusqlite::{OptionalExtension, Transaction, params};

use super::block::{self, Draft};
use super::body::{Facts, beside_text};
use super::index::build;
use super::index::corpus::Corpus;
use super::index::segment::indexed_end;
use super::live::{cut_in, keys_of, live_ordinal, live_ranges, observed_in, revive};
use super::nodes::FrontierMove;
use super::payload::PackedText;
use super::read::{Blocks, row_in, whole};
use super::sessions::{ARRIVED, unknown};
use super::{Database, Key, SessionId, Store, payload};
use crate::error::StoreError;
use crate::tools;

/// A block is filled up to this many bytes.
const BLOCK_BYTES: usize = 48 * 1024;
/// A clock that was set back by more, in milliseconds, was wrong before.
const DAY_MS: i64 = 86_400_000;

/// How many messages await the index before a batch is worth it.
pub(crate) const INDEX_BATCH: u32 = 256;

/// The result of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// The ordinals of the messages that were new.
    pub new: Range<u32>,
    /// How many messages, from the first, were already stored.
    pub known: usize,
    /// How many of these became part of the conversation again, or got lost content back.
    pub restored: usize,
    /// The revisions whose old message is not in the store: the new one is stored as an ordinary message.
    pub replaces_nothing: Vec<(MessageId, MessageId)>,
    /// How far the conversation is stored now.
    pub seen: Option<Observed>,
}

/// What has to happen together with a delivery, or nothing does.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// How far the conversation is stored for the one that delivers. A call that was given up may come to its
    /// delivery late, when the session has long gone on without it.
    pub(crate) seen: Option<Option<Observed>>,
    /// The frontier moves: a node over messages that were cut off is never in the window.
    pub(crate) moved: Option<FrontierMove>,
}

impl Store {
    /// Stores what a delivery brings: the cut before it, the messages that are new, what they replace, and the
    /// host's chain hash after the last of them, in one transaction. When it returns, the messages survive the
    /// death of the process. `now_ms` is the time, in ms since the Unix epoch.
    ///
    /// What is cut off stays stored and can be found. The messages come in the order of their ids. One whose id is
    /// not above the last live one must be stored already: it was delivered twice, and the stored one stays. One
    /// that a cut left behind becomes part of the conversation again, without a second copy.
    ///
    /// # Errors
    /// [`StoreError::IdReused`]; a store that failed. Nothing is stored then.
    pub fn deliver(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
    ) -> Result<Ingested, StoreError> {
        self.deliver_with(session, delivery, now_ms, &Together::default())
    }

    /// [`Store::deliver`], and what has to happen together with it.
    ///
    /// # Errors
    /// [`StoreError::WentOn`], [`StoreError::FrontierMoved`].
    pub(crate) fn deliver_with(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
        together: &Together,
    ) -> Result<Ingested, StoreError> {
        let delivered = (self.database()).deliver(session, delivery, now_ms, together);
        let (ingested, waiting) = delivered?;
        if waiting >= INDEX_BATCH {
            self.index_soon(session);
        }
        self.embed_soon(session);
        Ok(ingested)
    }
}

#[cfg(test)]
impl Store {
    /// Delivers without revisions, at an arbitrary time.
    pub(crate) fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError> {
        self.deliver(session, &Delivery::new(messages, chain), 0)
    }

    pub(crate) fn cut(
        &self,
        session: SessionId,
        last: Option<MessageId>,
    ) -> Result<Ingested, StoreError> {
        let cut = contexture_engine_api::Cut::after(last);
        self.deliver(session, &Delivery::new(&[], 0).after(Some(cut)), 0)
    }
}

impl Database {
    fn deliver(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
        together: &Together,
    ) -> Result<(Ingested, u32), StoreError> {
        let messages = delivery.messages;
        check_order(messages)?;
        // If no message has a time, all get the time of arrival; otherwise messages without one get their
        // neighbours' time.
        let timeless = messages.iter().all(|view| view.time().is_none());
        let arrival = timeless.then_some(now_ms);
        let prepared = messages
            .iter()
            .map(|view| Prepared::of(view, self.settings.large_tokens))
            .collect::<Result<Vec<_>, _>>()?;
        let mut blocks = self.pack(&prepared)?;
        self.write(|transaction| {
            if let Some(seen) = together.seen
                && observed_in(transaction, session)? != seen
            {
                // Which fails where the session was deleted.
                IngestCursor::read(transaction, session)?;
                return Err(StoreError::WentOn);
            }
            if let Some(cut) = delivery.cut {
                cut_in(transaction, session, cut.last)?;
            }
            if let Some(moved) = &together.moved {
                moved.make(transaction, session)?;
            }
            let cursor = IngestCursor::read(transaction, session)?;
            let stored = Stored::find(self, transaction, session, &cursor, &prepared)?;
            let new = &prepared[stored.known..];
            if stored.known > 0 {
                // Rare, so it may take time under the lock.
                blocks = self.pack(new)?;
            }
            let end = u32::try_from(new.len())
                .ok()
                .and_then(|new| cursor.next.checked_add(new))
                .ok_or(StoreError::SessionFull)?;
            let ordinals = cursor.next..end;
            let order_at = insert_messages(transaction, session, &cursor, arrival, new)?;
            for (at, block) in &blocks {
                block.insert(transaction, Key::new(session, cursor.next + *at as u32))?;
            }
            let replaces_nothing = replace(transaction, session, delivery.revisions)?;
            let last = match ordinals.is_empty() {
                false => Some(ordinals.end - 1),
                true => stored.last,
            };
            if let (Some(ordinal), Some(view)) = (last, messages.last()) {
                transaction
                    .prepare_cached("UPDATE messages SET chain = ?2 WHERE id = ?1")?
                    .execute([Key::new(session, ordinal).0, delivery.chain as i64])?;
                let last_host = cursor.last_host.max(Some(view.id()));
                transaction
                    .prepare_cached(
                        "UPDATE sessions SET next_ordinal = ?2, last_host = ?3, order_at = ?4,
                                             touched_at = ?5, archived_at = NULL
                         WHERE id = ?1",
                    )?
                    .execute(params![
                        session.0,
                        ordinals.end,
                        last_host.map(|id| id.0 as i64),
                        order_at,
                        now_ms
                    ])?;
            }
            let indexed = indexed_end(transaction, session, Corpus::Messages)?;
            let waiting = ordinals.end.saturating_sub(indexed);
            let ingested = Ingested {
                new: ordinals,
                known: stored.known,
                restored: stored.restored,
                replaces_nothing,
                seen: observed_in(transaction, session)?,
            };
            Ok((ingested, waiting))
        })
    }

    /// The messages in blocks, each with the index of its first message.
    fn pack(&self, messages: &[Prepared<'_>]) -> Result<Vec<(usize, PackedBlock)>, StoreError> {
        let drafts: Vec<Draft<'_>> = messages.iter().map(Prepared::draft).collect();
        let mut blocks = Vec::new();
        let mut start = 0;
        while start < drafts.len() {
            let end = block_end(&drafts, start);
            blocks.push((start, PackedBlock::of(self, &drafts[start..end])?));
            start = end;
        }
        Ok(blocks)
    }
}

/// A serialised and compressed block.
pub(super) struct PackedBlock {
    bytes: usize,
    data: Vec<u8>,
}

impl PackedBlock {
    pub(super) fn of(database: &Database, drafts: &[Draft<'_>]) -> Result<Self, StoreError> {
        let bytes = block::lay_out(drafts);
        Ok(Self {
            data: database.compressors.compress(&bytes)?,
            bytes: bytes.len(),
        })
    }

    pub(super) fn insert(
        &self,
        transaction: &Transaction<'_>,
        first: Key,
    ) -> Result<(), StoreError> {
        transaction
            .prepare_cached("INSERT INTO blocks(id, bytes, data) VALUES(?1, ?2, ?3)")?
            .execute(params![first.0, self.bytes as i64, self.data])?;
        Ok(())
    }
}

/// The write position of the session.
struct IngestCursor {
    next: u32,
    last_host: Option<MessageId>,
    order_at: i64,
    /// Whether a cut left anything behind.
    was_cut: bool,
}

impl IngestCursor {
    fn read(transaction: &Transaction<'_>, session: SessionId) -> Result<Self, StoreError> {
        let (cursor, agrees) = transaction
            .prepare_cached(&format!(
                "SELECT next_ordinal, last_host, order_at,
                        EXISTS(SELECT 1 FROM live WHERE session = ?1 AND first > 0),
                        next_ordinal = {ARRIVED}
                 FROM sessions WHERE id = ?1 AND deleted = 0"
            ))?
            .query_row([session.0], |row| {
                let cursor = Self {
                    next: row.get(0)?,
                    last_host: row
                        .get::<_, Option<i64>>(1)?
                        .map(|host| MessageId(host as u64)),
                    order_at: row.get(2)?,
                    was_cut: row.get(3)?,
                };
                Ok((cursor, row.get(4)?))
            })
            .optional()?
            .ok_or_else(|| unknown(session))?;
        match agrees {
            true => Ok(cursor),
            false => Err(StoreError::Damaged(
                "a session does not end where its messages do".into(),
            )),
        }
    }
}

/// A message, ready to write.
struct Prepared<'a> {
    view: MessageView<'a>,
    /// Its searchable parts besides the text.
    beside: Vec<String>,
    tokens: u64,
    aside: Option<PackedText>,
    hash: [u8; 16],
}

impl<'a> Prepared<'a> {
    fn of(view: &MessageView<'a>, large_tokens: u64) -> Result<Self, StoreError> {
        let text = view.text();
        let tokens = view.tokens();
        // No tokenizer makes more tokens than there are bytes, so cap the host's count.
        let is_large = text.len() as u64 > large_tokens && tokens > large_tokens;
        let beside = beside_text(view);
        Ok(Self {
            view: *view,
            tokens,
            aside: is_large.then(|| PackedText::of(text)).transpose()?,
            hash: Facts::of(view).hash(view.raw(), text, &beside),
            beside,
        })
    }

    fn draft(&self) -> Draft<'_> {
        Draft {
            text: self.view.text(),
            aside: self.aside.is_some(),
            beside: &self.beside,
            // Results of a search are not searched, because a search would then find itself.
            is_searched: !self.view.tool_name().is_some_and(tools::is_own),
            raw: self.view.raw(),
            call_id: self.view.tool_call_id(),
        }
    }
}

fn check_order(messages: &[MessageView<'_>]) -> Result<(), StoreError> {
    match messages
        .windows(2)
        .find(|pair| pair[0].id() >= pair[1].id())
    {
        Some(pair) => Err(StoreError::IdReused(pair[1].id())),
        None => Ok(()),
    }
}

/// The prefix of a delivery that is already stored.
#[derive(Default)]
struct Stored {
    known: usize,
    restored: usize,
    /// The ordinal of the last of them.
    last: Option<u32>,
}

impl Stored {
    fn find(
        database: &Database,
        transaction: &Transaction<'_>,
        session: SessionId,
        cursor: &IngestCursor,
        messages: &[Prepared<'_>],
    ) -> Result<Self, StoreError> {
        let mut stored = Self::default();
        for message in messages {
            let id = message.view.id();
            let ordinal = if cursor.last_host.is_some_and(|last| id <= last) {
                match live_ordinal(transaction, session, id)? {
                    Some(ordinal) => {
                        if !says_the_same(transaction, Key::new(session, ordinal), message)? {
                            return Err(StoreError::IdReused(id));
                        }
                        ordinal
                    }
                    None => {
                        let gap = gap_for(transaction, session, id)?
                            .filter(|gap| *gap < cursor.next)
                            .ok_or(StoreError::IdReused(id))?;
                        fill_gap(database, transaction, session, gap, message)?;
                        stored.restored += 1;
                        gap
                    }
                }
            } else if cursor.was_cut
                && let Some(ordinal) = left_behind(transaction, session, message)?
            {
                revive(transaction, session, ordinal)?;
                // It may have ended a delivery in the conversation before the cut.
                transaction.execute(
                    "UPDATE messages SET chain = NULL WHERE id = ?1",
                    [Key::new(session, ordinal).0],
                )?;
                stored.restored += 1;
                ordinal
            } else {
                break;
            };
            stored.known += 1;
            stored.last = Some(ordinal);
        }
        Ok(stored)
    }
}

/// Whether a delivered message equals a stored one. The host's message identity ignores wire details that
/// change between requests (cache markers, key order), and either message may have its secrets masked.
fn says_the_same(
    transaction: &Transaction<'_>,
    key: Key,
    message: &Prepared<'_>,
) -> Result<bool, StoreError> {
    let Some(row) = row_in(transaction, key)? else {
        return Ok(false);
    };
    if row.hash == message.hash {
        return Ok(true);
    }
    let view = &message.view;
    let masked = |name: Option<&str>| mask_secrets(name.unwrap_or_default()).into_owned();
    if row.role != view.role()
        || masked(row.name.as_deref()) != masked(view.name())
        || masked(row.call_id.as_deref()) != masked(view.tool_call_id())
    {
        return Ok(false);
    }
    match whole(transaction, &mut Blocks::new(transaction)?, row) {
        Ok(stored) => Ok(says_the_same_but_for_masks(
            &mask_secrets(stored.text.trim()),
            &mask_secrets(view.text().trim()),
        )),
        // Nothing to compare with. The doctor reports the loss; it must not block new messages.
        Err(StoreError::Damaged(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether two masked texts are equal, where a mask in the stored one stands for anything: what is a secret
/// may have been judged otherwise when it was stored.
fn says_the_same_but_for_masks(stored: &str, shown: &str) -> bool {
    if stored == shown {
        return true;
    }
    let mut pieces = stored.split(SECRET_MASK);
    let Some(mut rest) = pieces.next().and_then(|first| shown.strip_prefix(first)) else {
        return false;
    };
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = memchr::memmem::find(rest.as_bytes(), piece.as_bytes()) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    false
}

/// The ordinal of the same message left behind by a cut, if it is after every live one.
fn left_behind(
    transaction: &Transaction<'_>,
    session: SessionId,
    message: &Prepared<'_>,
) -> Result<Option<u32>, StoreError> {
    let live = live_ranges(transaction, session)?;
    let end = live.last().map_or(0, |range| range.end);
    for key in keys_of(transaction, session, message.view.id())? {
        if key.ordinal() >= end && says_the_same(transaction, key, message)? {
            return Ok(Some(key.ordinal()));
        }
    }
    Ok(None)
}

/// The live ordinal right after the last live message before `id`, if a repair left it without its message.
fn gap_for(
    transaction: &Transaction<'_>,
    session: SessionId,
    id: MessageId,
) -> Result<Option<u32>, StoreError> {
    for range in live_ranges(transaction, session)?.iter().rev() {
        let before: Option<i64> = transaction.query_row(
            "SELECT max(id) FROM messages WHERE id >= ?1 AND id < ?2 AND host < ?3",
            params![
                Key::new(session, range.start).0,
                Key::new(session, range.end).0,
                id.0 as i64
            ],
            |row| row.get(0),
        )?;
        let gap = before.map_or(range.start, |key| Key(key).ordinal() + 1);
        if range.contains(&gap) && row_in(transaction, Key::new(session, gap))?.is_none() {
            return Ok(Some(gap));
        }
        if before.is_some() {
            break;
        }
    }
    Ok(None)
}

/// Restores a message whose content was lost.
fn fill_gap(
    database: &Database,
    transaction: &Transaction<'_>,
    session: SessionId,
    ordinal: u32,
    message: &Prepared<'_>,
) -> Result<(), StoreError> {
    let key = Key::new(session, ordinal);
    let order_at: Option<i64> = transaction.query_row(
        "SELECT max(order_at) FROM messages WHERE id >= ?1 AND id < ?2",
        [Key::new(session, 0).0, key.0],
        |row| row.get(0),
    )?;
    insert_message(
        transaction,
        session,
        ordinal,
        order_at.unwrap_or(0),
        message,
    )?;
    PackedBlock::of(database, &[message.draft()])?.insert(transaction, key)?;
    // The index was made without it.
    build::forget(transaction, session)
}

fn insert_messages(
    transaction: &Transaction<'_>,
    session: SessionId,
    cursor: &IngestCursor,
    arrival: Option<i64>,
    new: &[Prepared<'_>],
) -> Result<i64, StoreError> {
    let mut order_at = cursor.order_at;
    // The clock was ahead, perhaps by years, and is right again. Otherwise a search with `until` would not find what
    // arrives from here on.
    if let Some(now) = arrival.filter(|now| order_at > now.saturating_add(DAY_MS)) {
        order_at = now;
    }
    for (message, ordinal) in new.iter().zip(cursor.next..) {
        // Otherwise it never decreases, so that order by time and order of arrival agree.
        order_at = order_at.max(message.view.time().or(arrival).unwrap_or(order_at));
        insert_message(transaction, session, ordinal, order_at, message)?;
    }
    Ok(order_at)
}

fn insert_message(
    transaction: &Transaction<'_>,
    session: SessionId,
    ordinal: u32,
    order_at: i64,
    message: &Prepared<'_>,
) -> Result<(), StoreError> {
    let view = &message.view;
    let payload = match &message.aside {
        Some(text) => Some(payload::insert(transaction, session, text, message.tokens)?),
        None => None,
    };
    transaction
        .prepare_cached(
            "INSERT INTO messages(id, session, host, role, name, tool, call_id, at, order_at, tokens, flags,
                                  hash, payload)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            Key::new(session, ordinal).0,
            session.0,
            view.id().0 as i64,
            view.role(),
            view.name(),
            view.tool_name(),
            view.tool_call_id(),
            view.time(),
            order_at,
            message.tokens as i64,
            Facts::of(view).flags,
            message.hash,
            payload,
        ])?;
    Ok(())
}

/// Records which messages the new ones replace; returns the revisions whose old message is missing.
fn replace(
    transaction: &Transaction<'_>,
    session: SessionId,
    revisions: &[(MessageId, MessageId)],
) -> Result<Vec<(MessageId, MessageId)>, StoreError> {
    let mut nothing = Vec::new();
    for (new, old) in revisions {
        // A message left behind by a cut may be revised too; its newest copy is meant.
        let find = |id| -> Result<Option<Key>, StoreError> {
            match live_ordinal(transaction, session, id)? {
                Some(ordinal) => Ok(Some(Key::new(session, ordinal))),
                None => Ok(keys_of(transaction, session, id)?.first().copied()),
            }
        };
        match (find(*new)?, find(*old)?) {
            (Some(new), Some(old)) if new != old => {
                transaction
                    .prepare_cached("UPDATE messages SET replaces = ?2 WHERE id = ?1")?
                    .execute([new.0, old.0])?;
            }
            _ => nothing.push((*new, *old)),
        }
    }
    Ok(nothing)
}

/// The end of the block that begins at `start`: when it is full, but never between views of one wire
/// message.
fn block_end(drafts: &[Draft<'_>], start: usize) -> usize {
    let mut bytes = 0;
    for at in start..drafts.len() {
        let shares_raw = at > start && drafts[at].raw == drafts[at - 1].raw;
        if bytes > BLOCK_BYTES && !shares_raw {
            return at;
        }
        let beside = drafts[at].beside.iter().map(String::len);
        bytes += drafts[at].text.len() + beside.sum::<usize>();
    }
    drafts.len()
}
