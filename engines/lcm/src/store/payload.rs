//! Large texts, kept aside: complete, once per session, readable by range.

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::xxh3_128;

use super::compression::{damaged, decompress};
use super::{SessionId, Store};
use crate::error::StoreError;
use crate::preview;

/// The size of a chunk of a large text, in bytes: what reading a few lines decompresses.
const CHUNK_BYTES: usize = 64 * 1024;

/// Large texts compress better at a higher level, and are rare.
const PAYLOAD_LEVEL: i32 = 3;

/// The length of the stored preview of a large text, in characters.
pub(crate) const PREVIEW_CHARS: usize = 1_200;

/// A large text's number in this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PayloadId(pub i64);

/// The description of a large text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadInfo {
    /// Its number.
    pub id: PayloadId,
    /// Its session.
    pub session: SessionId,
    /// Its kind: `json`, `code`, `log`, `csv` or `text`.
    pub kind: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its lines; a last one without a newline counts.
    pub lines: u64,
    /// Its tokens, as counted by the host for its first message.
    pub tokens: u64,
}

/// A part of a large text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PayloadPart {
    /// The text.
    pub text: String,
    /// Its start, in bytes.
    pub first_byte: u64,
    /// The line of its start, from 1.
    pub first_line: u64,
}

impl Store {
    /// The description of a large text.
    ///
    /// # Errors
    /// No text has this number; a store that failed.
    pub fn payload_info(&self, id: PayloadId) -> Result<PayloadInfo, StoreError> {
        self.read(|connection| info(connection, id))
    }

    /// The bytes `range` of a large text, widened to whole characters; shorter at the end of the text.
    ///
    /// # Errors
    /// No text has this number; a store that failed.
    pub fn read_payload_bytes(
        &self,
        id: PayloadId,
        range: std::ops::Range<u64>,
    ) -> Result<PayloadPart, StoreError> {
        self.read(|connection| {
            let bytes = info(connection, id)?.bytes;
            let range = range.start.min(bytes)..range.end.min(bytes).max(range.start.min(bytes));
            // One more chunk on both sides: a character may begin in the one before.
            let chunks = Chunks::read(
                connection,
                id,
                "first_byte + bytes >= ?2 AND first_byte <= ?3",
                [range.start as i64, range.end as i64],
            )?;
            let start = chunks.text.floor_char_boundary(chunks.at(range.start));
            let end = chunks
                .text
                .ceil_char_boundary(chunks.at(range.end).max(start));
            Ok(chunks.part(start..end))
        })
    }

    /// The lines `range` of a large text, counted from 1, with their newlines; fewer at the end of the
    /// text.
    ///
    /// # Errors
    /// No text has this number; a store that failed.
    pub fn read_payload_lines(
        &self,
        id: PayloadId,
        range: std::ops::Range<u64>,
    ) -> Result<PayloadPart, StoreError> {
        self.read(|connection| {
            info(connection, id)?;
            let skipped = range.start.saturating_sub(1);
            let last = range.end.saturating_sub(1);
            // Several chunks may begin at the same newline number.
            let chunks = Chunks::read(
                connection,
                id,
                "first_byte >= coalesce((SELECT max(first_byte) FROM payload_chunks
                                         WHERE payload = ?1 AND first_line < max(?2, 1)), 0)
                 AND first_line <= ?3",
                [clamp(skipped), clamp(last)],
            )?;
            let start = line_start(&chunks.text, skipped.saturating_sub(chunks.first_line));
            let end = line_start(&chunks.text, last.saturating_sub(chunks.first_line)).max(start);
            Ok(chunks.part(start..end))
        })
    }

    /// The start of a line of a large text, counted from 1, in bytes; none if it has fewer lines.
    ///
    /// # Errors
    /// No text has this number; a store that failed.
    pub fn payload_line_start(&self, id: PayloadId, line: u64) -> Result<Option<u64>, StoreError> {
        self.read(|connection| {
            let info = info(connection, id)?;
            let newlines = line.saturating_sub(1);
            if newlines == 0 {
                return Ok((info.bytes > 0).then_some(0));
            }
            // The newline before the line is in the last chunk that begins before it.
            let chunk = Chunks::read(
                connection,
                id,
                "first_byte = (SELECT max(first_byte) FROM payload_chunks
                               WHERE payload = ?1 AND first_line < ?2) AND ?3 = 0",
                [clamp(newlines), 0],
            )?;
            let before = newlines - chunk.first_line - 1;
            let start = memchr::memchr_iter(b'\n', chunk.text.as_bytes())
                .nth(usize::try_from(before).unwrap_or(usize::MAX))
                .map(|at| chunk.first_byte + at as u64 + 1);
            Ok(start.filter(|start| *start < info.bytes))
        })
    }

    /// The messages with this text, in order.
    ///
    /// # Errors
    /// A store that failed.
    pub fn messages_with(&self, id: PayloadId) -> Result<Vec<MessageId>, StoreError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT host FROM messages WHERE payload = ?1 ORDER BY id")?;
            let ids = statement.query_map([id.0], |row| {
                row.get::<_, i64>(0).map(|id| MessageId(id as u64))
            })?;
            Ok(ids.collect::<Result<_, _>>()?)
        })
    }

    /// The stored preview of a large text, which is cheap to read. A damaged one is made again from the
    /// whole text.
    ///
    /// # Errors
    /// No text has this number; a store that failed.
    pub fn payload_preview(&self, id: PayloadId) -> Result<String, StoreError> {
        self.read(|connection| {
            info(connection, id)?;
            match kept_preview(connection, id) {
                Err(StoreError::Damaged(_)) => {
                    Ok(preview::preview(&whole(connection, id.0)?, PREVIEW_CHARS))
                }
                kept => kept,
            }
        })
    }

    /// The large texts of a session, oldest first.
    ///
    /// # Errors
    /// A store that failed.
    pub fn payloads(&self, session: SessionId) -> Result<Vec<PayloadInfo>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, session, kind, bytes, lines, tokens FROM payloads
                 WHERE session = ?1 ORDER BY id",
            )?;
            let rows = statement.query_map([session.0], row_info)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The byte at which the line after `newlines` newlines begins.
fn line_start(text: &str, newlines: u64) -> usize {
    match newlines.checked_sub(1) {
        None => 0,
        Some(nth) => memchr::memchr_iter(b'\n', text.as_bytes())
            .nth(usize::try_from(nth).unwrap_or(usize::MAX))
            .map_or(text.len(), |at| at + 1),
    }
}

/// Consecutive chunks of a text, joined.
struct Chunks {
    text: String,
    first_byte: u64,
    first_line: u64,
}

impl Chunks {
    fn read(
        connection: &Connection,
        id: PayloadId,
        which: &str,
        bounds: [i64; 2],
    ) -> Result<Self, StoreError> {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT first_byte, first_line, bytes, data FROM payload_chunks
             WHERE payload = ?1 AND {which} ORDER BY first_byte"
        ))?;
        let mut rows = statement.query(params![id.0, bounds[0], bounds[1]])?;
        let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
        let mut joined = Self {
            text: String::new(),
            first_byte: 0,
            first_line: 0,
        };
        while let Some(row) = rows.next()? {
            let first_byte = row.get::<_, i64>(0)? as u64;
            if joined.text.is_empty() {
                joined.first_byte = first_byte;
                joined.first_line = row.get::<_, i64>(1)? as u64;
            }
            if first_byte != joined.first_byte + joined.text.len() as u64 {
                return Err(lost_part(id));
            }
            let data = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            let bytes = decompress(&mut decompressor, data, row.get(2)?)?;
            joined.text.push_str(as_text(&bytes)?);
        }
        Ok(joined)
    }

    fn at(&self, byte: u64) -> usize {
        usize::try_from(byte.saturating_sub(self.first_byte))
            .unwrap_or(usize::MAX)
            .min(self.text.len())
    }

    fn part(&self, range: std::ops::Range<usize>) -> PayloadPart {
        PayloadPart {
            first_byte: self.first_byte + range.start as u64,
            first_line: self.first_line + count_newlines(&self.text[..range.start]) + 1,
            text: self.text[range].to_owned(),
        }
    }
}

fn lost_part(id: PayloadId) -> StoreError {
    StoreError::Damaged(format!("a part of file f{} is lost", id.0).into())
}

fn as_text(bytes: &[u8]) -> Result<&str, StoreError> {
    std::str::from_utf8(bytes).map_err(|_| StoreError::Damaged("a large text is not UTF-8".into()))
}

fn count_newlines(text: &str) -> u64 {
    memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64
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

fn info(connection: &Connection, id: PayloadId) -> Result<PayloadInfo, StoreError> {
    connection
        .prepare_cached(
            "SELECT id, session, kind, bytes, lines, tokens FROM payloads WHERE id = ?1",
        )?
        .query_row([id.0], row_info)
        .optional()?
        .ok_or_else(|| StoreError::Unknown(format!("file f{}", id.0)))
}

fn kept_preview(connection: &Connection, id: PayloadId) -> Result<String, StoreError> {
    let data: Vec<u8> = connection
        .prepare_cached("SELECT preview FROM payloads WHERE id = ?1")?
        .query_row([id.0], |row| row.get(0))?;
    let mut decompressor = zstd::bulk::Decompressor::new().map_err(damaged)?;
    let most = PREVIEW_CHARS * char::MAX.len_utf8();
    let bytes = decompressor.decompress(&data, most).map_err(damaged)?;
    Ok(as_text(&bytes)?.to_owned())
}

/// A complete large text, or an error.
pub(crate) fn whole(connection: &Connection, id: i64) -> Result<String, StoreError> {
    let hash: Vec<u8> = connection
        .prepare_cached("SELECT hash FROM payloads WHERE id = ?1")?
        .query_row([id], |row| row.get(0))?;
    let all = Chunks::read(
        connection,
        PayloadId(id),
        "first_byte >= ?2 AND first_byte < ?3",
        [0, i64::MAX],
    )?;
    if hash != xxh3_128(all.text.as_bytes()).to_le_bytes() {
        return Err(lost_part(PayloadId(id)));
    }
    Ok(all.text)
}

/// A large text, cut into chunks and compressed.
pub(super) struct PackedText {
    hash: [u8; 16],
    kind: &'static str,
    bytes: usize,
    lines: u64,
    preview: Vec<u8>,
    chunks: Vec<PackedChunk>,
}

struct PackedChunk {
    first_byte: usize,
    first_line: u64,
    bytes: usize,
    data: Vec<u8>,
}

impl PackedText {
    pub(super) fn of(text: &str) -> Result<Self, StoreError> {
        let mut compressor = zstd::bulk::Compressor::new(PAYLOAD_LEVEL).map_err(damaged)?;
        compressor.include_checksum(true).map_err(damaged)?;
        let mut chunks = Vec::new();
        let (mut start, mut line) = (0, 0);
        while start < text.len() {
            let chunk = &text[start..chunk_end(text, start)];
            chunks.push(PackedChunk {
                first_byte: start,
                first_line: line,
                bytes: chunk.len(),
                data: compressor.compress(chunk.as_bytes()).map_err(damaged)?,
            });
            start += chunk.len();
            line += count_newlines(chunk);
        }
        let (kind, preview) = preview::kind_and_preview(text, PREVIEW_CHARS);
        Ok(Self {
            hash: xxh3_128(text.as_bytes()).to_le_bytes(),
            kind: kind.name(),
            preview: compressor.compress(preview.as_bytes()).map_err(damaged)?,
            bytes: text.len(),
            lines: line + u64::from(!text.is_empty() && !text.ends_with('\n')),
            chunks,
        })
    }
}

/// Stores a large text, or finds the same one in the session; returns its number.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    session: SessionId,
    text: &PackedText,
    tokens: u64,
) -> Result<i64, StoreError> {
    let known: Option<i64> = transaction
        .prepare_cached("SELECT id FROM payloads WHERE session = ?1 AND hash = ?2")?
        .query_row(params![session.0, text.hash], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    transaction.execute(
        "INSERT INTO payloads(session, hash, kind, bytes, lines, tokens, preview)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            session.0,
            text.hash,
            text.kind,
            text.bytes as i64,
            text.lines as i64,
            tokens as i64,
            text.preview
        ],
    )?;
    let id = transaction.last_insert_rowid();
    let mut insert = transaction.prepare_cached(
        "INSERT INTO payload_chunks(payload, first_byte, first_line, bytes, data)
         VALUES(?1, ?2, ?3, ?4, ?5)",
    )?;
    for chunk in &text.chunks {
        insert.execute(params![
            id,
            chunk.first_byte as i64,
            chunk.first_line as i64,
            chunk.bytes as i64,
            chunk.data
        ])?;
    }
    Ok(id)
}

/// The end of the chunk that begins at `start`: after a line, if one ends in its second half.
fn chunk_end(text: &str, start: usize) -> usize {
    let end = text.floor_char_boundary(start + CHUNK_BYTES);
    if end == text.len() {
        return end;
    }
    let middle = start + CHUNK_BYTES / 2;
    match memchr::memrchr(b'\n', &text.as_bytes()[middle..end]) {
        Some(at) => middle + at + 1,
        None => end,
    }
}
