//! Writes the rows of messages: from a delivery of the host, or from its transcript.
//!
//! A row says who sent a message, when, how large it is and the host's hash of its content. The
//! text stays in the host's transcript. There are two ways to get rows. [`Store::deliver`] adds the
//! messages of a delivery while the conversation goes on. [`Store::follow_transcript`] is called
//! when a session is opened and compares the rows with the transcript. It adds the messages that
//! are missing at the end, and builds all rows again if one of them is of another message.
//!
//! Every delivery is one transaction, together with the move of the frontier that it requires. So
//! after a crash the store has the whole delivery or nothing of it. Indexing and embedding follow
//! in the background.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use contexture_engine_api::{Delivery, MessageId, MessageView, with_views};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::current_messages::{cut_in, key_in, keys};
use super::index::corpus::Corpus;
use super::index::segment::indexed_end;
use super::nodes::FrontierMove;
use super::payload::LargeText;
use super::read::{flags_of, host_id};
use super::sessions::{ARRIVED, unknown};
use super::source::Hashes;
use super::{Key, SessionId, Store, payload, query_all};
use crate::error::StoreError;

/// If the clock is behind the latest message by more than this, in milliseconds, the earlier clock
/// was wrong.
const DAY_MS: i64 = 86_400_000;

/// How many messages must wait for the index before a batch is worth indexing.
pub(crate) const INDEX_BATCH: u32 = 256;

/// The result of a delivery: which of its messages were new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// The ordinals of the messages that were new. The range is empty if all were known.
    pub new: Range<u32>,
    /// How many messages were already known by their ids. They got no new row.
    pub known: usize,
    /// The revisions whose old message is not stored, as pairs of the new and the old id. The new
    /// message is stored like any other.
    pub replaces_nothing: Vec<(MessageId, MessageId)>,
}

impl Store {
    /// Stores what a delivery reports, in one transaction: the cut before it, the rows of new
    /// messages, and which messages they replace. `now_ms` is the time in milliseconds since the
    /// Unix epoch.
    ///
    /// Messages that a cut removes can still be found as long as the transcript has them. If a
    /// known message is delivered again, it becomes part of the conversation again.
    ///
    /// # Errors
    /// Returns [`StoreError::IdReused`] if a message was stored under this id with different
    /// content, or if the ids do not ascend. Other errors come from the store. Nothing is stored
    /// then.
    pub fn deliver(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
    ) -> Result<Ingested, StoreError> {
        self.deliver_with(session, delivery, now_ms, None)
    }

    /// Like [`Store::deliver`], with a new frontier in the same transaction, so that the window never
    /// shows a node over messages that a cut removed.
    ///
    /// # Errors
    /// Also returns [`StoreError::FrontierMoved`] if the frontier is not the one that the caller
    /// read.
    pub(crate) fn deliver_with(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
        moved: Option<&FrontierMove>,
    ) -> Result<Ingested, StoreError> {
        let large_tokens = self.settings().large_tokens;
        let arrival = arrival_of(delivery.messages, now_ms);
        let hashes = match &self.source {
            Some(source) if !delivery.messages.is_empty() => {
                let ids = delivery.messages.iter().map(MessageView::id).collect();
                // A record that cannot be read now must not stop the delivery. The rows are built
                // again when the session is opened the next time.
                let name = self.session_info(session)?.name;
                source.hashes(&name, ids).unwrap_or_default()
            }
            _ => Hashes::new(),
        };
        let prepared: Vec<_> = (delivery.messages.iter())
            .map(|view| Prepared::of(view, view.tokens(), large_tokens, &hashes))
            .collect();
        check_order(delivery.messages)?;
        let (ingested, waiting) = self.write_in_call(|transaction| {
            if let Some(cut) = delivery.cut {
                cut_in(transaction, session, cut.last)?;
            }
            if let Some(moved) = moved {
                moved.make(transaction, session)?;
            }
            let mut cursor = IngestCursor::read(transaction, session)?;
            cursor.correct_clock(arrival);
            let first = cursor.next;
            let mut known = 0;
            for message in &prepared {
                match cursor.known(transaction, session, message.view.id())? {
                    Some(key) => {
                        known += 1;
                        revive(transaction, key, message)?;
                    }
                    None => cursor.insert(transaction, session, arrival, message, true)?,
                }
            }
            let replaces_nothing = replace(transaction, session, delivery.revisions)?;
            if !prepared.is_empty() {
                cursor.write(transaction, session)?;
            }
            // Counted after the inserts, so that the messages of this delivery are included.
            let indexed = indexed_end(transaction, session, Corpus::Messages)?;
            let ingested = Ingested {
                new: first..cursor.next,
                known,
                replaces_nothing,
            };
            Ok((ingested, cursor.next.saturating_sub(indexed)))
        })?;
        if moved.is_some() {
            self.keep_frontier(session)?;
        }
        if waiting >= INDEX_BATCH {
            self.index_soon(session);
        }
        self.embed_soon(session);
        Ok(ingested)
    }

    /// Makes the rows of a session agree with its transcript. Messages that are missing at the end
    /// are added, and which messages are current is compared. If a row is of a message that the
    /// transcript does not have, the rows belong to another conversation, and all of them are built
    /// again under a new number of the session. Returns the number, and whether a message that was
    /// known joined or left the conversation, or nothing says which were known.
    ///
    /// If `reads_texts` is set, a message whose text cannot be read counts as missing, and the rows
    /// are built again if any other lacks one. All texts are read then, which takes long for a large
    /// session.
    ///
    /// # Errors
    /// Returns an error if the transcript or the store fails. Some rows may be missing then, and
    /// the next call builds them again.
    pub(crate) fn follow_transcript(
        &self,
        session: SessionId,
        reads_texts: bool,
    ) -> Result<(SessionId, bool), StoreError> {
        let source = self.source()?;
        // The rows are read first, because a message is stored by the host before it has a row.
        let rows = self.read(|connection| hashes_in(connection, session, &(0..u32::MAX)))?;
        let mut overview = source.overview(reads_texts)?;
        let is_of_transcript = rows.iter().all(|row| is_in(&overview.hashes, row));
        let is_whole = !reads_texts || rows.len() == overview.hashes.len();
        let (followed, after) = match is_of_transcript && is_whole {
            true => (session, rows.iter().map(|(id, _)| *id).max()),
            false => (self.renumber(session)?, None),
        };
        if overview.hashes.keys().any(|id| Some(*id) > after) {
            self.append_transcript(followed, after)?;
            overview = source.overview(false)?;
        }
        let has_changed = self.follow_currency(followed, &overview.outdated)?;
        let is_anew = rows.is_empty() || followed != session;
        Ok((followed, has_changed || is_anew))
    }

    /// Adds rows for the messages that the transcript has after `after`, or for all messages if it
    /// is None.
    fn append_transcript(
        &self,
        session: SessionId,
        mut after: Option<MessageId>,
    ) -> Result<(), StoreError> {
        let source = self.source()?;
        let now_ms = source.services().now_ms();
        let mut is_new = false;
        loop {
            self.go_on()?;
            let page = source.page(after)?;
            if page.messages.is_empty() {
                break;
            }
            is_new = true;
            let outdated: HashSet<MessageId> = page.outdated.iter().copied().collect();
            let arrived: HashMap<MessageId, i64> = page.arrived.iter().copied().collect();
            let hashes: Hashes = page.hashes.iter().copied().collect();
            with_views(&page.messages, |views| {
                let arrival = arrival_of(views, now_ms);
                let count = |view: &MessageView<'_>| source.services().count_tokens(view.text());
                let large_tokens = self.settings().large_tokens;
                let prepared: Vec<_> = (views.iter())
                    .map(|view| Prepared::of(view, count(view), large_tokens, &hashes))
                    .collect();
                // One transaction for each page keeps the lock short for other writers.
                self.write_in_call(|transaction| {
                    let mut cursor = IngestCursor::read(transaction, session)?;
                    for message in &prepared {
                        let id = message.view.id();
                        // Another engine of the session, such as one that only answers a tool, may
                        // have added it since the page was read.
                        if cursor.known(transaction, session, id)?.is_some() {
                            continue;
                        }
                        let is_current = !outdated.contains(&id);
                        let arrived = arrival.map(|now| arrived.get(&id).copied().unwrap_or(now));
                        cursor.insert(transaction, session, arrived, message, is_current)?;
                    }
                    for (new, old) in &page.revisions {
                        set_replaced(transaction, session, *new, *old)?;
                    }
                    cursor.write(transaction, session)
                })
            })?;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if is_new {
            self.index_soon(session);
            self.embed_soon(session);
        }
        Ok(())
    }

    /// Sets for each message whether it is part of the conversation, as the transcript says. Messages
    /// may have been replaced or cut off while another engine had the session, or since the copy of
    /// this file was made. Returns whether any of them changed.
    fn follow_currency(
        &self,
        session: SessionId,
        outdated: &HashSet<MessageId>,
    ) -> Result<bool, StoreError> {
        let sql = "SELECT host FROM messages WHERE session = ?1 AND NOT is_current";
        let known: HashSet<MessageId> =
            self.read(|connection| query_all(connection, sql, [session.0], host_id))?;
        if known == *outdated {
            return Ok(false);
        }
        self.write_in_call(|transaction| {
            let mut set = transaction.prepare_cached(
                "UPDATE messages SET is_current = ?3 WHERE session = ?1 AND host = ?2",
            )?;
            for id in known.symmetric_difference(outdated) {
                let is_current = known.contains(id);
                set.execute(params![session.0, id.0.cast_signed(), is_current])?;
            }
            Ok(true)
        })
    }
}

#[cfg(test)]
impl Store {
    /// Delivers messages without revisions, at an arbitrary time. It keeps tests short.
    pub(crate) fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
    ) -> Result<Ingested, StoreError> {
        self.deliver(session, &Delivery::new(messages), 0)
    }

    pub(crate) fn cut(
        &self,
        session: SessionId,
        last: Option<MessageId>,
    ) -> Result<Ingested, StoreError> {
        let cut = contexture_engine_api::Cut::after(last);
        self.deliver(session, &Delivery::new(&[]).after(Some(cut)), 0)
    }
}

/// The host's id of a row and the hash of the message that it was made of. The hash is None if the
/// host did not tell it.
type HashOfRow = (MessageId, Option<u64>);

/// Returns the hashes of the rows with these ordinals, in order.
pub(super) fn hashes_in(
    connection: &Connection,
    session: SessionId,
    ordinals: &Range<u32>,
) -> Result<Vec<HashOfRow>, StoreError> {
    let sql = "SELECT host, hash FROM messages WHERE id >= ?1 AND id < ?2 ORDER BY id";
    query_all(connection, sql, keys(session, ordinals), |row| {
        let hash: Option<i64> = row.get(1)?;
        Ok((host_id(row)?, hash.map(i64::cast_unsigned)))
    })
}

/// Whether a row is of a message that a transcript with these hashes has.
pub(super) fn is_in(hashes: &Hashes, (id, hash): &HashOfRow) -> bool {
    hash.is_some() && *hash == hashes.get(id).copied()
}

/// Returns the time of arrival to use for messages without a time. It is None if any message has
/// one, because a message without a time then gets that of the message before it.
fn arrival_of(messages: &[MessageView<'_>], now_ms: i64) -> Option<i64> {
    let is_timeless = messages.iter().all(|view| view.time().is_none());
    is_timeless.then_some(now_ms)
}

/// The position at which the next message of a session is written, and the limits that it needs.
struct IngestCursor {
    /// The ordinal of the next message.
    next: u32,
    /// The highest host id that is stored, or None if there is no message. Higher ids need no
    /// lookup.
    last: Option<i64>,
    order_at: i64,
}

impl IngestCursor {
    fn read(transaction: &Transaction<'_>, session: SessionId) -> Result<Self, StoreError> {
        // The counter and the last row are compared, because a wrong counter would give two
        // messages the same key.
        let (cursor, agrees) = transaction
            .prepare_cached(&format!(
                "SELECT next_ordinal, order_at, next_ordinal = {ARRIVED},
                        (SELECT max(host) FROM messages WHERE session = ?1)
                 FROM sessions WHERE id = ?1 AND deleted = 0"
            ))?
            .query_row([session.0], |row| {
                let cursor = Self {
                    next: row.get(0)?,
                    order_at: row.get(1)?,
                    last: row.get(3)?,
                };
                Ok((cursor, row.get(2)?))
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

    /// Sets the order time back if the clock was ahead, perhaps by years, and is right again.
    /// Otherwise every later message would have a time in the future, and a search with `until`
    /// would miss it.
    fn correct_clock(&mut self, arrival: Option<i64>) {
        if let Some(now) = arrival.filter(|now| self.order_at > now.saturating_add(DAY_MS)) {
            self.order_at = now;
        }
    }

    /// Returns the key of a message if it is stored. Host ids ascend, so an id above the highest
    /// one is new without a query.
    fn known(
        &self,
        transaction: &Transaction<'_>,
        session: SessionId,
        id: MessageId,
    ) -> Result<Option<Key>, StoreError> {
        match self.last.is_some_and(|last| id.0.cast_signed() <= last) {
            true => key_in(transaction, session, id),
            false => Ok(None),
        }
    }

    fn insert(
        &mut self,
        transaction: &Transaction<'_>,
        session: SessionId,
        arrival: Option<i64>,
        message: &Prepared<'_>,
        is_current: bool,
    ) -> Result<(), StoreError> {
        let view = &message.view;
        // The order time never decreases, so that the order by time and the order of arrival agree.
        let at = view.time().or(arrival).unwrap_or(self.order_at);
        self.order_at = self.order_at.max(at);
        let key = Key::new(session, self.next);
        self.next = self.next.checked_add(1).ok_or(StoreError::SessionFull)?;
        let payload = match &message.large {
            Some(text) => Some(payload::insert(transaction, session, text, message.tokens)?),
            None => None,
        };
        transaction
            .prepare_cached(
                "INSERT INTO messages(id, session, host, role, name, tool, at, order_at, tokens, flags, hash, payload,
                                      is_current)
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
            )?
            .execute(params![
                key.0,
                session.0,
                view.id().0.cast_signed(),
                view.role(),
                view.name(),
                view.tool_name(),
                view.time(),
                self.order_at,
                message.tokens as i64,
                flags_of(view),
                message.hash,
                payload,
                is_current,
            ])?;
        Ok(())
    }

    fn write(&self, transaction: &Transaction<'_>, session: SessionId) -> Result<(), StoreError> {
        transaction
            .prepare_cached("UPDATE sessions SET next_ordinal = ?2, order_at = ?3 WHERE id = ?1")?
            .execute(params![session.0, self.next, self.order_at])?;
        Ok(())
    }
}

/// A message with everything that is computed before the transaction, so that the lock is held only
/// for the writes.
struct Prepared<'a> {
    view: MessageView<'a>,
    tokens: u64,
    large: Option<LargeText>,
    /// The host's hash of the message. It is None if the host cannot tell it.
    hash: Option<i64>,
}

impl<'a> Prepared<'a> {
    fn of(view: &MessageView<'a>, tokens: u64, large_tokens: u64, hashes: &Hashes) -> Self {
        let text = view.text();
        // A text never has more tokens than bytes, so a short text is not large whatever the host
        // counts.
        let is_large = text.len() as u64 > large_tokens && tokens > large_tokens;
        Self {
            view: *view,
            tokens,
            large: is_large.then(|| LargeText::of(text)),
            hash: hashes.get(&view.id()).map(|hash| hash.cast_signed()),
        }
    }
}

/// Returns an error for the first message whose id is not higher than the one before it. A delivery
/// that names a message twice, or out of order, is a fault of the host.
fn check_order(messages: &[MessageView<'_>]) -> Result<(), StoreError> {
    match messages
        .windows(2)
        .find(|pair| pair[0].id() >= pair[1].id())
    {
        Some(pair) => Err(StoreError::IdReused(pair[1].id())),
        None => Ok(()),
    }
}

/// Makes a known message part of the conversation again and stores the host's new token count.
/// Different content is an error.
fn revive(
    transaction: &Transaction<'_>,
    key: Key,
    message: &Prepared<'_>,
) -> Result<(), StoreError> {
    let (was_current, hash): (bool, Option<i64>) = transaction
        .prepare_cached("SELECT is_current, hash FROM messages WHERE id = ?1")?
        .query_row([key.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if hash.zip(message.hash).is_some_and(|(was, is)| was != is) {
        return Err(StoreError::IdReused(message.view.id()));
    }
    if !was_current || message.view.tokens() > 0 {
        transaction
            .prepare_cached("UPDATE messages SET is_current = 1, tokens = ?2 WHERE id = ?1")?
            .execute(params![key.0, message.tokens as i64])?;
    }
    Ok(())
}

/// Records which messages the new ones replace, and removes the old ones from the conversation.
/// Returns the revisions whose old message is not stored.
fn replace(
    transaction: &Transaction<'_>,
    session: SessionId,
    revisions: &[(MessageId, MessageId)],
) -> Result<Vec<(MessageId, MessageId)>, StoreError> {
    let mut nothing = Vec::new();
    for (new, old) in revisions {
        match set_replaced(transaction, session, *new, *old)? {
            Some(old) => {
                transaction
                    .prepare_cached("UPDATE messages SET is_current = 0 WHERE id = ?1")?
                    .execute([old.0])?;
            }
            None => nothing.push((*new, *old)),
        }
    }
    Ok(nothing)
}

/// Records that `new` replaces `old` and returns the key of `old`. Returns None if either of them
/// is not stored, or if both are the same.
fn set_replaced(
    transaction: &Transaction<'_>,
    session: SessionId,
    new: MessageId,
    old: MessageId,
) -> Result<Option<Key>, StoreError> {
    let find = |id| key_in(transaction, session, id);
    let (Some(new), Some(old)) = (find(new)?, find(old)?) else {
        return Ok(None);
    };
    // Otherwise a message could remove itself from the conversation.
    if new == old {
        return Ok(None);
    }
    transaction
        .prepare_cached("UPDATE messages SET replaces = ?2 WHERE id = ?1")?
        .execute([new.0, old.0])?;
    Ok(Some(old))
}
