//! Segments: the terms of a run of texts, sorted, each with the numbers of the texts that hold it: the
//! ordinals of messages, or the numbers of summaries.
//!
//! A segment is cut into chunks of some hundred terms. A chunk is two rows: its terms, one a line (few
//! enough that all of a session's can be gone through for a part of a word), and their lists of ordinals.
//! ```text
//! postings chunk: lengths of the lists, in the order of the terms │ lists
//! list:           count │ first ordinal - the segment's first │ last - first │ differences less one
//! ```
//! What is read from a row ends with its checksum: a search whose index is damaged reads the texts instead
//! of giving a wrong total.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::corpus::Corpus;
use crate::error::StoreError;
use crate::store::{SessionId, put_varint, take_usize, take_varint};

/// A chunk is closed once its terms or its lists reach this many bytes.
const CHUNK_TERM_BYTES: usize = 2_000;
const CHUNK_LIST_BYTES: usize = 8_000;

/// A segment's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: i64,
    /// The numbers of the texts it covers.
    pub(crate) ordinals: Range<u32>,
    pub(crate) level: u32,
}

/// A list of ordinals as it stands in a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<'a> {
    count: u32,
    first: u32,
    span: u32,
    differences: &'a [u8],
}

impl<'a> List<'a> {
    fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut next = || take_varint(&mut bytes).and_then(|value| u32::try_from(value).ok());
        let (count, first, span) = (next()?, next()?, next()?);
        Some(Self {
            count,
            first,
            span,
            differences: bytes,
        })
    }

    /// Appends the ordinals, given the segment's first.
    pub(crate) fn ordinals(&self, base: u32, out: &mut Vec<u32>) {
        let mut ordinal = base.saturating_add(self.first);
        out.push(ordinal);
        let mut rest = self.differences;
        while let Some(difference) = take_varint(&mut rest) {
            ordinal = ordinal.saturating_add(difference as u32).saturating_add(1);
            out.push(ordinal);
        }
    }
}

/// A list of ordinals while it grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growing {
    count: u32,
    first: u32,
    last: u32,
    differences: Vec<u8>,
}

impl Growing {
    /// Adds an ordinal, counted from the segment's first, not below the last one; again is no change.
    #[inline]
    pub(crate) fn push(&mut self, ordinal: u32) {
        if self.count == 0 {
            self.first = ordinal;
        } else if ordinal == self.last {
            return;
        } else {
            put_varint(&mut self.differences, u64::from(ordinal - self.last - 1));
        }
        self.last = ordinal;
        self.count += 1;
    }

    /// Adds a list whose ordinals all come after, counted from `shift` after this segment's first.
    pub(crate) fn append(&mut self, list: List<'_>, shift: u32) {
        if list.count == 0 {
            return;
        }
        self.push(list.first + shift);
        self.differences.extend_from_slice(list.differences);
        self.count += list.count - 1;
        self.last = list.first + shift + list.span;
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.count));
        put_varint(out, u64::from(self.first));
        put_varint(out, u64::from(self.last - self.first));
        out.extend_from_slice(&self.differences);
    }
}

/// Chunks that are ready to be written: made without the lock, written under it.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    done: Vec<Chunk>,
    open: Chunk,
}

#[derive(Debug, Default)]
struct Chunk {
    terms: Vec<u8>,
    lengths: Vec<u8>,
    lists: Vec<u8>,
}

impl Chunks {
    /// Adds the next term, in sorted order.
    pub(crate) fn push(&mut self, term: &[u8], list: &Growing) {
        let start = self.open.lists.len();
        list.write(&mut self.open.lists);
        put_varint(
            &mut self.open.lengths,
            (self.open.lists.len() - start) as u64,
        );
        self.open.terms.extend_from_slice(term);
        self.open.terms.push(b'\n');
        if self.open.terms.len() >= CHUNK_TERM_BYTES || self.open.lists.len() >= CHUNK_LIST_BYTES {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    /// A hash of all terms and lists, equal for equal segments.
    pub(crate) fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for chunk in self.done.iter().chain([&self.open]) {
            hasher.update(&chunk.terms);
            hasher.update(&chunk.lengths);
            hasher.update(&chunk.lists);
        }
        hasher.update(&self.signatures());
        hasher.digest128()
    }

    fn signatures(&self) -> Vec<u8> {
        let open = Some(&self.open).filter(|chunk| !chunk.terms.is_empty());
        self.done
            .iter()
            .chain(open)
            .flat_map(|chunk| signature(&chunk.terms))
            .collect()
    }

    /// Writes them as a segment.
    pub(crate) fn write(
        mut self,
        transaction: &Transaction<'_>,
        session: SessionId,
        corpus: Corpus,
        ordinals: &Range<u32>,
        level: u32,
    ) -> Result<(), StoreError> {
        if !self.open.terms.is_empty() {
            self.done.push(std::mem::take(&mut self.open));
        }
        let signatures = seal(self.signatures());
        transaction
            .prepare_cached(
                "INSERT INTO segments(session, corpus, first, last, level, signatures)
                 VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                session.0,
                corpus.code(),
                ordinals.start,
                ordinals.end,
                level,
                signatures
            ])?;
        let segment = transaction.last_insert_rowid();
        let mut insert_terms = transaction
            .prepare_cached("INSERT INTO term_chunks(segment, first, terms) VALUES(?1, ?2, ?3)")?;
        let mut insert_lists =
            transaction.prepare_cached("INSERT INTO posting_chunks(id, data) VALUES(?1, ?2)")?;
        for mut chunk in self.done {
            let first = chunk.terms.split(|byte| *byte == b'\n').next();
            let first = first.unwrap_or_default().to_vec();
            insert_terms.execute(params![segment, first, seal(chunk.terms)])?;
            chunk.lengths.extend_from_slice(&chunk.lists);
            insert_lists.execute(params![
                transaction.last_insert_rowid(),
                seal(chunk.lengths)
            ])?;
        }
        Ok(())
    }
}

/// The hash that a stored segment's chunks would have: see [`Chunks::digest`].
pub(crate) fn stored_digest(connection: &Connection, segment: i64) -> Result<u128, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT terms, data FROM term_chunks JOIN posting_chunks USING(id)
         WHERE segment = ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([segment])?;
    let mut hasher = Xxh3::new();
    while let Some(row) = rows.next()? {
        for column in 0..2 {
            hasher.update(&unseal(row.get(column)?)?);
        }
    }
    hasher.update(&stored_signatures(connection, segment)?);
    Ok(hasher.digest128())
}

fn stored_signatures(connection: &Connection, segment: i64) -> Result<Vec<u8>, StoreError> {
    let sealed = connection
        .prepare_cached("SELECT signatures FROM segments WHERE id = ?1")?
        .query_row([segment], |row| row.get(0))?;
    unseal(sealed)
}

/// Adds a checksum.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Checks and takes off what [`seal`] added.
fn unseal(mut sealed: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let (bytes, sum) = sealed.split_last_chunk().ok_or_else(broken)?;
    if checksum(bytes) != *sum {
        return Err(broken());
    }
    sealed.truncate(bytes.len());
    Ok(sealed)
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

/// One past the number of the last text that a segment covers.
pub(crate) fn indexed_end(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
) -> Result<u32, StoreError> {
    let end = connection
        .prepare_cached(
            "SELECT last FROM segments WHERE session = ?1 AND corpus = ?2
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row([session.0, corpus.code()], |row| row.get(0));
    Ok(end.optional()?.unwrap_or(0))
}

/// The segments of a session's messages or summaries, oldest texts first.
pub(crate) fn segments(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
) -> Result<Vec<Segment>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, first, last, level FROM segments WHERE session = ?1 AND corpus = ?2
         ORDER BY first",
    )?;
    let rows = statement.query_map([session.0, corpus.code()], |row| {
        Ok(Segment {
            id: row.get(0)?,
            ordinals: row.get(1)?..row.get(2)?,
            level: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A chunk's terms.
pub(crate) struct TermChunk {
    pub(crate) id: i64,
    pub(crate) terms: Vec<u8>,
}

/// The chunk that holds `term`, if any of the segment does.
pub(crate) fn chunk_of(
    connection: &Connection,
    segment: i64,
    term: &[u8],
) -> Result<Option<TermChunk>, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT id, terms FROM term_chunks WHERE segment = ?1 AND first <= ?2
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![segment, term], sealed_terms)
        .optional()?;
    found.map(TermChunk::unseal).transpose()
}

/// All chunks of a segment, in the order of their terms, from the one that could hold `from` on.
pub(crate) fn for_each_chunk(
    connection: &Connection,
    segment: i64,
    from: &[u8],
    mut each: impl FnMut(TermChunk) -> Result<std::ops::ControlFlow<()>, StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, terms FROM term_chunks WHERE segment = ?1 AND first >= coalesce(
            (SELECT first FROM term_chunks WHERE segment = ?1 AND first <= ?2
             ORDER BY first DESC LIMIT 1), x'')
         ORDER BY first",
    )?;
    let mut rows = statement.query(params![segment, from])?;
    while let Some(row) = rows.next()? {
        if each(TermChunk::unseal(sealed_terms(row)?)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Calls `each` with every chunk of a segment that can hold a term with `part` in it.
pub(crate) fn for_each_chunk_with(
    connection: &Connection,
    segment: i64,
    part: &[u8],
    mut each: impl FnMut(TermChunk) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let signatures = stored_signatures(connection, segment)?;
    // The chunks of a segment are written one after the other: their ids follow each other.
    let first: Option<i64> = connection
        .prepare_cached("SELECT id FROM term_chunks WHERE segment = ?1 ORDER BY first LIMIT 1")?
        .query_row([segment], |row| row.get(0))
        .optional()?;
    let mut statement = connection
        .prepare_cached("SELECT id, terms FROM term_chunks WHERE id = ?1 AND segment = ?2")?;
    let wanted = signature(part);
    for (id, signature) in (first.unwrap_or(0)..).zip(signatures.chunks(SIGNATURE_BYTES)) {
        if wanted
            .iter()
            .zip(signature)
            .all(|(wanted, has)| wanted & !has == 0)
        {
            each(TermChunk::unseal(
                statement.query_row([id, segment], sealed_terms)?,
            )?)?;
        }
    }
    Ok(())
}

/// A bit for each pair of neighbouring bytes, by hash: enough to pass by most chunks of numbers and
/// hashes when a part of a word is looked for.
const SIGNATURE_BYTES: usize = 128;

fn signature(bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut bits = [0; SIGNATURE_BYTES];
    for pair in bytes.windows(2).filter(|pair| !pair.contains(&b'\n')) {
        let hash = (u32::from(pair[0]) << 8 | u32::from(pair[1])).wrapping_mul(0x9e37_79b1) >> 22;
        bits[hash as usize / 8] |= 1 << (hash % 8);
    }
    bits
}

/// A chunk's number and its terms, sealed.
fn sealed_terms(row: &rusqlite::Row<'_>) -> rusqlite::Result<(i64, Vec<u8>)> {
    Ok((row.get(0)?, row.get(1)?))
}

impl TermChunk {
    fn unseal((id, terms): (i64, Vec<u8>)) -> Result<Self, StoreError> {
        Ok(Self {
            id,
            terms: unseal(terms)?,
        })
    }

    /// The index of `term` in the chunk.
    pub(crate) fn find(&self, term: &[u8]) -> Option<usize> {
        self.iter().position(|candidate| candidate == term)
    }

    /// The terms, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let terms = self.terms.strip_suffix(b"\n").unwrap_or(&self.terms);
        terms.split(|byte| *byte == b'\n')
    }
}

/// The lists of a chunk.
pub(crate) struct ListChunk {
    data: Vec<u8>,
    ends: Vec<usize>,
    start: usize,
}

impl ListChunk {
    pub(crate) fn read(connection: &Connection, id: i64, terms: usize) -> Result<Self, StoreError> {
        let sealed = connection
            .prepare_cached("SELECT data FROM posting_chunks WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let data = unseal(sealed)?;
        let mut rest = data.as_slice();
        let mut ends = Vec::with_capacity(terms);
        let mut end = 0usize;
        for _ in 0..terms {
            end += take_usize(&mut rest).ok_or_else(broken)?;
            ends.push(end);
        }
        let start = data.len() - rest.len();
        Ok(Self { data, ends, start })
    }

    pub(crate) fn list(&self, index: usize) -> Result<List<'_>, StoreError> {
        let from = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.ends.get(before).ok_or_else(broken)?,
        };
        let to = *self.ends.get(index).ok_or_else(broken)?;
        self.data
            .get(self.start + from..self.start + to)
            .and_then(List::read)
            .ok_or_else(broken)
    }
}

fn broken() -> StoreError {
    StoreError::Damaged("a segment of the search index cannot be read; rebuild the index".into())
}
