//! Large texts of messages, which the window and the tools show as files.
//!
//! A text of more tokens than the limit is described by one row: its kind, its size and its hash.
//! The same text has one row in a session, however many messages contain it. The text itself is
//! read from the host's transcript when it is needed.
//!
//! [`Store::payload_info`] and [`Store::payloads`] return descriptions, and [`Store::payload_text`]
//! returns a text. Which part of it the window shows is decided by [`crate::preview`].

use contexture_engine_api::MessageId;
use rusqlite::{OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::xxh3_128;

use super::read::host_id;
use super::{SessionId, Store, query_all};
use crate::error::StoreError;
use crate::preview::TextKind;

/// The length of the preview of a large text in the window, in characters.
pub(crate) const PREVIEW_CHARS: usize = 1_200;

/// The number of a large text in this store. Users and models see it as `f5` for the number 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId(pub i64);

/// The description of a large text. It is enough to list the files of a session without reading any
/// of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadInfo {
    /// The number of the text, by which it can be read.
    pub id: PayloadId,
    /// The session that the text belongs to. Other sessions have rows of their own for the same
    /// text.
    pub session: SessionId,
    /// What the text looks like: `json`, `code`, `log`, `csv` or `text`.
    pub kind: String,
    /// The length of the text in bytes, which is also the unit of ranges for reading it.
    pub bytes: u64,
    /// The number of lines. If the last one does not end with a newline, it counts as well.
    pub lines: u64,
    /// The number of tokens, as the host counted them for the first message with this text.
    pub tokens: u64,
}

impl Store {
    /// Returns the description of a large text.
    ///
    /// # Errors
    /// Returns [`StoreError::Unknown`] if no text has this number, or an error of the store.
    pub fn payload_info(&self, id: PayloadId) -> Result<PayloadInfo, StoreError> {
        let sql = "SELECT id, session, kind, bytes, lines, tokens FROM payloads WHERE id = ?1";
        let found: Vec<_> = self.read(|connection| query_all(connection, sql, [id.0], row_info))?;
        found.into_iter().next().ok_or_else(|| unknown(id))
    }

    /// Returns a large text. It is read from the transcript, as part of the first message that
    /// contains it.
    ///
    /// # Errors
    /// Returns [`StoreError::Unknown`] if no text has this number, and [`StoreError::NoText`] if
    /// the transcript lacks the message.
    pub fn payload_text(&self, id: PayloadId) -> Result<String, StoreError> {
        let session = self.payload_info(id)?.session;
        // Every message with this number has the same text, so the first one will do.
        let messages = self.messages_with(id)?;
        let first = messages.first().ok_or_else(|| unknown(id))?;
        Ok(self.message(session, *first)?.text)
    }

    /// Returns the host ids of the messages that contain this text, in order. It is empty if no
    /// text has this number.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn messages_with(&self, id: PayloadId) -> Result<Vec<MessageId>, StoreError> {
        let sql = "SELECT host FROM messages WHERE payload = ?1 ORDER BY id";
        self.read(|connection| query_all(connection, sql, [id.0], host_id))
    }

    /// Returns the descriptions of all large texts of a session, oldest first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn payloads(&self, session: SessionId) -> Result<Vec<PayloadInfo>, StoreError> {
        let sql = "SELECT id, session, kind, bytes, lines, tokens FROM payloads
             WHERE session = ?1 ORDER BY id";
        self.read(|connection| query_all(connection, sql, [session.0], row_info))
    }
}

fn row_info(row: &rusqlite::Row<'_>) -> rusqlite::Result<PayloadInfo> {
    Ok(PayloadInfo {
        id: PayloadId(row.get(0)?),
        session: SessionId(row.get(1)?),
        kind: row.get(2)?,
        bytes: row.get::<_, i64>(3)? as u64,
        lines: row.get::<_, i64>(4)? as u64,
        tokens: row.get::<_, i64>(5)? as u64,
    })
}

fn unknown(id: PayloadId) -> StoreError {
    StoreError::Unknown(format!("file f{}", id.0))
}

/// What is stored about a large text. It is computed before the transaction, because hashing a
/// large text takes time.
pub(super) struct LargeText {
    hash: [u8; 16],
    kind: &'static str,
    bytes: usize,
    lines: usize,
}

impl LargeText {
    pub(super) fn of(text: &str) -> Self {
        Self {
            hash: xxh3_128(text.as_bytes()).to_le_bytes(),
            kind: TextKind::of(text).name(),
            bytes: text.len(),
            lines: text.split_inclusive('\n').count(),
        }
    }
}

/// Stores the description of a large text and returns its number. If the session already has the
/// same text, that number is returned.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    session: SessionId,
    text: &LargeText,
    tokens: u64,
) -> Result<i64, StoreError> {
    // Agents read the same file again and again. One row keeps the list of files short.
    let known: Option<i64> = transaction
        .prepare_cached("SELECT id FROM payloads WHERE session = ?1 AND hash = ?2")?
        .query_row(params![session.0, text.hash], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    transaction.execute(
        "INSERT INTO payloads(session, hash, kind, bytes, lines, tokens) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            session.0,
            text.hash,
            text.kind,
            text.bytes as i64,
            text.lines as i64,
            tokens as i64,
        ],
    )?;
    Ok(transaction.last_insert_rowid())
}
