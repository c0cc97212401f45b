//! Summaries, as search sees them.

use rusqlite::Connection;

use super::{Key, SessionId, damaged, decompress};
use crate::error::StoreError;

/// A summary's text and span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredNode {
    pub(crate) key: Key,
    pub(crate) text: String,
    pub(crate) first_at: Option<i64>,
    pub(crate) last_at: Option<i64>,
    pub(crate) created_at: i64,
}

/// The summaries of a session, oldest first.
pub(crate) fn nodes_in(
    connection: &Connection,
    session: SessionId,
) -> Result<Vec<StoredNode>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, bytes, data, first_at, last_at, created_at
         FROM nodes WHERE session = ?1 ORDER BY id",
    )?;
    let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
    let mut rows = statement.query([session.0])?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        let data = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let text = decompress(&mut decompressor, data, row.get(1)?)?;
        nodes.push(StoredNode {
            key: Key(row.get(0)?),
            text: String::from_utf8(text)
                .map_err(|_| StoreError::Damaged("a summary is not UTF-8".into()))?,
            first_at: row.get(3)?,
            last_at: row.get(4)?,
            created_at: row.get(5)?,
        });
    }
    Ok(nodes)
}
