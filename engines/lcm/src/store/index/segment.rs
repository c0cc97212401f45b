//! Reads segments.
//!
//! A segment covers a run of texts and has their terms in sorted order, each with the list of the
//! texts that contain it. Texts are identified by number, which is the ordinal of a message or the
//! number of a summary. Each session has separate segments for messages and for summaries.
//!
//! [`segments`] lists them and [`chunk_of`] finds the chunk that can contain a term.
//! [`for_each_chunk_with`] scans for a part of a word and skips chunks by their signatures. A
//! [`TermChunk`] has only terms. Their lists and positions are read separately, because a scan
//! needs them for few chunks. [`super::chunks`] writes segments and describes their layout.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params};
use xxhash_rust::xxh3::Xxh3;

use super::chunks::{IN_FORCE, SIGNATURE_BYTES, broken, signature, unseal};
use super::corpus::Corpus;
use super::list::List;
use crate::error::StoreError;
use crate::store::{SessionId, query_all, take_usize};

/// The row of a segment that is in force: its number, the texts it covers and its level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: i64,
    pub(crate) ordinals: Range<u32>,
    pub(crate) level: u32,
}

/// Computes the hash of a stored segment. It equals [`super::chunks::Chunks::digest`] of the same
/// segment in memory. A wrong checksum is an error.
pub(crate) fn stored_digest(connection: &Connection, segment: i64) -> Result<u128, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT terms, lists, places FROM term_chunks JOIN posting_chunks USING(id)
         WHERE segment = ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([segment])?;
    let mut hasher = Xxh3::new();
    while let Some(row) = rows.next()? {
        // The columns in the order in which the digest of a new segment hashes them.
        for column in 0..3 {
            if let Some(sealed) = row.get(column)? {
                hasher.update(&unseal(sealed)?);
            }
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

/// Returns one past the number of the last text that is covered by a segment, or 0 if there is no
/// segment.
pub(crate) fn indexed_end(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
) -> Result<u32, StoreError> {
    let end = connection
        .prepare_cached(
            "SELECT last FROM segments WHERE session = ?1 AND corpus = ?2 AND state = ?3
             ORDER BY first DESC LIMIT 1",
        )?
        .query_row([session.0, corpus as i64, IN_FORCE], |row| row.get(0));
    Ok(end.optional()?.unwrap_or(0))
}

/// Returns the segments of a session's messages or summaries, in the order of their texts.
pub(crate) fn segments(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
) -> Result<Vec<Segment>, StoreError> {
    let sql = "SELECT id, first, last, level FROM segments
         WHERE session = ?1 AND corpus = ?2 AND state = ?3 ORDER BY first";
    query_all(
        connection,
        sql,
        [session.0, corpus as i64, IN_FORCE],
        |row| {
            Ok(Segment {
                id: row.get(0)?,
                ordinals: row.get(1)?..row.get(2)?,
                level: row.get(3)?,
            })
        },
    )
}

/// The terms of a chunk, one per line and sorted.
pub(crate) struct TermChunk {
    pub(crate) id: i64,
    pub(crate) terms: Vec<u8>,
}

/// Returns the only chunk that can contain `term`. It is None if `term` sorts before all terms of
/// the segment.
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

/// Calls `each` with the chunks of a segment in the order of their terms, until it breaks. It
/// starts with the chunk that can contain `from`.
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

/// Calls `each` with every chunk of a segment that may have a term with `part` in it. Chunks are
/// excluded by their signatures, so some of those that remain have no such term.
pub(crate) fn for_each_chunk_with(
    connection: &Connection,
    segment: i64,
    part: &[u8],
    mut each: impl FnMut(TermChunk) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let signatures = stored_signatures(connection, segment)?;
    let first: i64 = connection
        .prepare_cached("SELECT first_chunk FROM segments WHERE id = ?1")?
        .query_row([segment], |row| row.get(0))?;
    let mut statement = connection
        .prepare_cached("SELECT id, terms FROM term_chunks WHERE id = ?1 AND segment = ?2")?;
    // Computed once. A chunk qualifies if it has all bits of the part.
    let wanted = signature(part);
    for (id, signature) in (first..).zip(signatures.chunks(SIGNATURE_BYTES)) {
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

/// Reads the number of a chunk, and its terms with their checksum.
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

    /// Returns the index of `term` in the chunk, or None if the chunk does not contain it.
    pub(crate) fn find(&self, term: &[u8]) -> Option<usize> {
        let (index, found) = self.from(term).next()?;
        (found == term).then_some(index)
    }

    /// Returns the terms in sorted order. The chunk has as many lists.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.terms)
    }

    /// Returns the terms from `first` on, in order, each with its index in the chunk.
    pub(crate) fn from(&self, first: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
        // Binary search over bytes. Both ends are at the beginning of a line, or at the end of the
        // terms.
        let (mut low, mut high) = (0, self.terms.len());
        while low < high {
            let middle = low.midpoint(high);
            let start = memchr::memrchr(b'\n', &self.terms[low..middle]);
            let start = start.map_or(low, |at| low + at + 1);
            let end = memchr::memchr(b'\n', &self.terms[start..]);
            let end = end.map_or(self.terms.len(), |at| start + at);
            match self.terms[start..end] < *first {
                true => low = (end + 1).min(self.terms.len()),
                false => high = start,
            }
        }
        let (before, rest) = self.terms.split_at(low);
        // The index is needed for the list. Counting lines is cheaper than storing it.
        let index = memchr::memchr_iter(b'\n', before).count();
        (index..).zip(lines(rest))
    }
}

fn lines(terms: &[u8]) -> impl Iterator<Item = &[u8]> {
    let terms = terms.split_inclusive(|byte| *byte == b'\n');
    terms.map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// The lists of a chunk, one for each term.
pub(crate) struct ListChunk(TermParts);

impl ListChunk {
    pub(crate) fn read(connection: &Connection, chunk: &TermChunk) -> Result<Self, StoreError> {
        let lists = TermParts::read(connection, "lists", chunk)?;
        lists.map(Self).ok_or_else(broken)
    }

    /// Returns the list of the term with this index in the chunk. It is an error if there is none.
    pub(crate) fn list(&self, index: usize) -> Result<List<'_>, StoreError> {
        List::read(self.0.part(index)?).ok_or_else(broken)
    }
}

/// The positions of a chunk's terms. They exist only for pairs of characters of a script without
/// spaces.
pub(crate) struct PlaceChunk(Option<TermParts>);

impl PlaceChunk {
    pub(crate) fn read(connection: &Connection, chunk: &TermChunk) -> Result<Self, StoreError> {
        TermParts::read(connection, "places", chunk).map(Self)
    }

    /// Returns the positions of the term with this index in the chunk. They are empty if the term
    /// has none.
    pub(crate) fn places(&self, index: usize) -> Result<&[u8], StoreError> {
        self.0.as_ref().map_or(Ok(&[]), |parts| parts.part(index))
    }
}

/// The decoded form of a column that has one part for each term of a chunk. `ends` are relative to
/// `start`, the byte after the lengths.
struct TermParts {
    data: Vec<u8>,
    ends: Vec<usize>,
    start: usize,
}

impl TermParts {
    /// Reads a column of a chunk. A chunk without any positions has no such column.
    fn read(
        connection: &Connection,
        column: &str,
        chunk: &TermChunk,
    ) -> Result<Option<Self>, StoreError> {
        let sealed: Option<Vec<u8>> = connection
            .prepare_cached(&format!(
                "SELECT {column} FROM posting_chunks WHERE id = ?1"
            ))?
            .query_row([chunk.id], |row| row.get(0))?;
        let Some(data) = sealed.map(unseal).transpose()? else {
            return Ok(None);
        };
        let mut rest = data.as_slice();
        let mut ends = Vec::new();
        let mut end = 0usize;
        for _ in chunk.iter() {
            end += take_usize(&mut rest).ok_or_else(broken)?;
            ends.push(end);
        }
        let start = data.len() - rest.len();
        Ok(Some(Self { data, ends, start }))
    }

    fn part(&self, index: usize) -> Result<&[u8], StoreError> {
        let from = match index.checked_sub(1) {
            None => 0,
            Some(before) => *self.ends.get(before).ok_or_else(broken)?,
        };
        let to = *self.ends.get(index).ok_or_else(broken)?;
        self.data
            .get(self.start + from..self.start + to)
            .ok_or_else(broken)
    }
}
