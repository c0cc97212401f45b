//! Summaries, in searchable form.

use std::ops::{ControlFlow, Range};

use rusqlite::{Connection, OptionalExtension, Row};
use xxhash_rust::xxh3::xxh3_128;

use super::compression::{damaged, decompress};
use super::live::keys;
use super::{Key, SessionId};
use crate::error::StoreError;

/// A searchable summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredSummary {
    pub(crate) key: Key,
    pub(crate) text: String,
    pub(crate) times: SummaryTimes,
}

/// The times of a summary's messages, and of the summary itself, in ms since the Unix epoch; and where they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SummaryTimes {
    pub(crate) first_at: Option<i64>,
    pub(crate) last_at: Option<i64>,
    pub(crate) created_at: i64,
    /// Whether the messages' times are exact; else they are times of arrival.
    pub(crate) last_is_exact: bool,
    /// The last of the messages, if it is stored.
    pub(crate) last: Option<Key>,
}

/// The columns of [`SummaryTimes`].
const TIMES: &str = "
    coalesce(first_at, (SELECT max(nullif(order_at, 0)) FROM messages m
                        WHERE m.session = nodes.session AND m.host = nodes.first)),
    coalesce(last_at, (SELECT max(nullif(order_at, 0)) FROM messages m
                       WHERE m.session = nodes.session AND m.host = nodes.last)),
    created_at, last_at IS NOT NULL,
    (SELECT max(id) FROM messages m WHERE m.session = nodes.session AND m.host = nodes.last)";

/// One past the number of a session's last summary; 0 where it has none.
pub(crate) fn summaries_end(
    connection: &Connection,
    session: SessionId,
) -> Result<u32, StoreError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM nodes WHERE id BETWEEN ?1 AND ?2")?
        .query_row(keys(session, &(0..u32::MAX)), |row| row.get(0))?;
    Ok(last.map_or(0, |last| Key(last).ordinal() + 1))
}

/// How many summaries a session has.
pub(crate) fn count_summaries(
    connection: &Connection,
    session: SessionId,
) -> Result<u64, StoreError> {
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM nodes WHERE session = ?1")?
        .query_row([session.0], |row| row.get(0))?;
    Ok(count as u64)
}

/// The times of a summary, without its text; none if there is no such summary.
pub(crate) fn summary_times(
    connection: &Connection,
    key: Key,
) -> Result<Option<SummaryTimes>, StoreError> {
    let times = connection
        .prepare_cached(&format!("SELECT {TIMES} FROM nodes WHERE id = ?1"))?
        .query_row([key.0], times_of);
    Ok(times.optional()?)
}

/// A summary by its key.
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

/// Calls `each` with a session's summaries of these numbers, in order. Skips unreadable ones and returns
/// their number.
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

/// Calls `each` with every summary's key and its text, or the error of reading it.
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

/// The text in a row with `bytes, data, hash` from the column `first` on. A damaged row may hold values of other
/// types.
fn text_in(row: &Row<'_>, first: usize) -> Result<String, StoreError> {
    let (data, hash): (Vec<u8>, Vec<u8>) = (row.get(first + 1)?, row.get(first + 2)?);
    summary_text(&data, row.get(first)?, &hash)
}

/// The text of a summary, checked against its hash.
pub(crate) fn summary_text(data: &[u8], bytes: i64, hash: &[u8]) -> Result<String, StoreError> {
    let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
    let text = decompress(&mut decompressor, data, bytes)?;
    if hash != summary_hash(&text) {
        return Err(StoreError::Damaged(
            "a summary is not what was stored".into(),
        ));
    }
    String::from_utf8(text).map_err(|_| StoreError::Damaged("a summary is not UTF-8".into()))
}

/// The hash that a summary's text is checked against when read.
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
