//! Reads summaries in the form in which they are searched and checked.
//!
//! The `nodes` module treats a summary as a part of the tree. This module treats it as a text with
//! a time, which is what search and the check need. Texts are compressed, and each is verified
//! against its hash when it is read. A damaged summary is skipped and counted, so that a search can
//! say that its result is incomplete.
//!
//! Start with [`for_each_summary`]. A summary whose messages have no time of their own gets the
//! times of their arrival, which [`SummaryTimes`] marks as not exact.

use std::cell::RefCell;
use std::ops::{ControlFlow, Range};

use rusqlite::{Connection, OptionalExtension, Row};
use xxhash_rust::xxh3::xxh3_128;
use zstd::bulk::Decompressor;

use super::current_messages::keys;
use super::{Key, SessionId};
use crate::error::StoreError;

/// Summaries are a few kilobytes of prose and are written once, so a higher level costs little
/// time.
const COMPRESSION_LEVEL: i32 = 6;

/// The largest decompressed size in bytes that an undamaged file can contain. It limits what a
/// damaged one can allocate.
const MAX_PIECE_BYTES: usize = 1 << 30;

thread_local! {
    // It takes longer to make than most texts to unpack, so each thread keeps its own.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// A summary with its text and times, as search returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSummary {
    pub(crate) key: Key,
    pub(crate) text: String,
    pub(crate) times: SummaryTimes,
}

/// The times of a summary's messages and of the summary itself, in milliseconds since the Unix
/// epoch, and the last of these messages. Times are None if they are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SummaryTimes {
    pub(crate) first_at: Option<i64>,
    pub(crate) last_at: Option<i64>,
    pub(crate) created_at: i64,
    /// Whether `last_at` is the time of a message. If not, it is a time of arrival.
    pub(crate) last_is_exact: bool,
    /// The last message that the summary covers, if it is still stored.
    pub(crate) last: Option<Key>,
}

/// The SQL columns of [`SummaryTimes`], in the order in which [`times_of`] reads them.
const TIMES: &str = "
    coalesce(first_at, (SELECT max(nullif(order_at, 0)) FROM messages m
                        WHERE m.session = nodes.session AND m.host = nodes.first)),
    coalesce(last_at, (SELECT max(nullif(order_at, 0)) FROM messages m
                       WHERE m.session = nodes.session AND m.host = nodes.last)),
    created_at, last_at IS NOT NULL,
    (SELECT max(id) FROM messages m WHERE m.session = nodes.session AND m.host = nodes.last)";

/// Returns one past the number of a session's last summary, or 0 if it has none.
pub(crate) fn summaries_end(
    connection: &Connection,
    session: SessionId,
) -> Result<u32, StoreError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM nodes WHERE id BETWEEN ?1 AND ?2")?
        .query_row(keys(session, &(0..u32::MAX)), |row| row.get(0))?;
    Ok(last.map_or(0, |last| Key(last).ordinal() + 1))
}

/// Returns how many summaries a session has, at all depths.
pub(crate) fn count_summaries(
    connection: &Connection,
    session: SessionId,
) -> Result<u64, StoreError> {
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM nodes WHERE session = ?1")?
        .query_row([session.0], |row| row.get(0))?;
    Ok(count as u64)
}

/// Returns the times of a summary without its text, or None if there is no such summary.
pub(crate) fn summary_times(
    connection: &Connection,
    key: Key,
) -> Result<Option<SummaryTimes>, StoreError> {
    let times = connection
        .prepare_cached(&format!("SELECT {TIMES} FROM nodes WHERE id = ?1"))?
        .query_row([key.0], times_of);
    Ok(times.optional()?)
}

/// Returns a summary by its key. The result is None if there is no such summary, or if it is
/// damaged.
pub(crate) fn summary_in(
    connection: &Connection,
    key: Key,
) -> Result<Option<StoredSummary>, StoreError> {
    let mut found = None;
    let numbers = key.ordinal()..key.ordinal() + 1;
    for_each_summary(connection, key.session(), &numbers, |summary| {
        found = Some(summary);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found)
}

/// Calls `each` with the summaries of a session that have these numbers, in order, until it breaks.
/// Damaged summaries are skipped, and their number is returned.
pub(crate) fn for_each_summary(
    connection: &Connection,
    session: SessionId,
    numbers: &Range<u32>,
    mut each: impl FnMut(StoredSummary) -> Result<ControlFlow<()>, StoreError>,
) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {TIMES}, id, bytes, data, hash FROM nodes WHERE id >= ?1 AND id < ?2 ORDER BY id"
    ))?;
    let mut unreadable = 0;
    let mut rows = statement.query(keys(session, numbers))?;
    while let Some(row) = rows.next()? {
        let text = match text_in(row, 6) {
            Ok(text) => text,
            // Damage to one summary must not hide the others.
            Err(StoreError::Damaged(_)) => {
                unreadable += 1;
                continue;
            }
            Err(error) => return Err(error),
        };
        let summary = StoredSummary {
            key: Key(row.get(5)?),
            text,
            times: times_of(row)?,
        };
        if each(summary)?.is_break() {
            break;
        }
    }
    Ok(unreadable)
}

/// Calls `each` with the key and text of every summary of a session. A damaged one is passed as an
/// error, so that a check can report it and go on.
pub(super) fn for_each_node_text(
    connection: &Connection,
    session: SessionId,
    mut each: impl FnMut(Key, Result<String, StoreError>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT id, bytes, data, hash FROM nodes WHERE session = ?1")?;
    let mut rows = statement.query([session.0])?;
    while let Some(row) = rows.next()? {
        each(Key(row.get(0)?), text_in(row, 1))?;
    }
    Ok(())
}

/// Reads a text from the columns `bytes, data, hash`, of which the first is at index `first`. A
/// damaged row may have values of other types, which is an error as well.
fn text_in(row: &Row<'_>, first: usize) -> Result<String, StoreError> {
    let (data, hash): (Vec<u8>, Vec<u8>) = (row.get(first + 1)?, row.get(first + 2)?);
    summary_text(&data, row.get(first)?, &hash)
}

/// Decompresses the text of a summary and compares it with its hash. A difference is
/// [`StoreError::Damaged`].
pub(crate) fn summary_text(data: &[u8], bytes: i64, hash: &[u8]) -> Result<String, StoreError> {
    let text = decompress(data, bytes)?;
    if hash != summary_hash(&text) {
        return Err(StoreError::Damaged(
            "a summary is not what was stored".into(),
        ));
    }
    String::from_utf8(text).map_err(|_| StoreError::Damaged("a summary is not UTF-8".into()))
}

/// Computes the hash that is stored with a summary and compared when it is read.
pub(crate) fn summary_hash(text: &[u8]) -> [u8; 16] {
    xxh3_128(text).to_be_bytes()
}

fn times_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<SummaryTimes> {
    Ok(SummaryTimes {
        first_at: row.get(0)?,
        last_at: row.get(1)?,
        created_at: row.get(2)?,
        last_is_exact: row.get(3)?,
        last: row.get::<_, Option<i64>>(4)?.map(Key),
    })
}

/// Compresses the text of a node for its row. The uncompressed length is stored beside it, because
/// decompression needs it.
pub(super) fn packed(text: &str) -> Result<Vec<u8>, StoreError> {
    zstd::bulk::compress(text.as_bytes(), COMPRESSION_LEVEL).map_err(damaged)
}

/// Converts a failure of the compression library to [`StoreError::Damaged`], since the store only
/// decompresses what it has written.
fn damaged(error: std::io::Error) -> StoreError {
    StoreError::Damaged(error.to_string().into())
}

/// Decompresses data to exactly `bytes` bytes, which is the stored size. An impossible size or
/// corrupt data is [`StoreError::Damaged`].
fn decompress(data: &[u8], bytes: i64) -> Result<Vec<u8>, StoreError> {
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_PIECE_BYTES)
        .ok_or_else(|| StoreError::Damaged("an impossible size".into()))?;
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().map_err(damaged)?),
        };
        decompressor.decompress(data, bytes).map_err(damaged)
    })
}
