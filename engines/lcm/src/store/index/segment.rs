//! Reads segments: the sorted terms of a run of texts, each with the numbers of the texts that contain it
//! (ordinals of messages, or numbers of summaries). [`super::chunks`] writes them.

use std::ops::Range;

use rusqlite::{Connection, OptionalExtension, params};
use xxhash_rust::xxh3::Xxh3;

use super::chunks::{IN_FORCE, SIGNATURE_BYTES, broken, signature, unseal};
use super::corpus::Corpus;
use super::list::List;
use crate::error::StoreError;
use crate::store::{SessionId, take_usize};

/// A segment's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) id: i64,
    /// The numbers of the texts it covers.
    pub(crate) ordinals: Range<u32>,
    pub(crate) level: u32,
}

/// The hash of a stored segment, comparable to [`super::chunks::Chunks::digest`].
pub(crate) fn stored_digest(connection: &Connection, segment: i64) -> Result<u128, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT terms, lists, places FROM term_chunks JOIN posting_chunks USING(id)
         WHERE segment = ?1 ORDER BY first",
    )?;
    let mut rows = statement.query([segment])?;
    let mut hasher = Xxh3::new();
    while let Some(row) = rows.next()? {
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

/// One past the number of the last text that a segment covers.
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
        .query_row([session.0, corpus.code(), IN_FORCE], |row| row.get(0));
    Ok(end.optional()?.unwrap_or(0))
}

/// The segments of a session's messages or summaries, oldest texts first.
pub(crate) fn segments(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
) -> Result<Vec<Segment>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, first, last, level FROM segments
         WHERE session = ?1 AND corpus = ?2 AND state = ?3 ORDER BY first",
    )?;
    let rows = statement.query_map([session.0, corpus.code(), IN_FORCE], |row| {
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

/// The chunk that contains `term`, if any.
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

/// Calls `each` with every chunk of a segment that may hold a term containing `part`.
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
        let (index, found) = self.from(term).next()?;
        (found == term).then_some(index)
    }

    /// The terms, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.terms)
    }

    /// The terms that are not below `first`, in order, each with its index in the chunk.
    pub(crate) fn from(&self, first: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
        // Both stand at the beginning of a term, or at the end.
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
        let index = memchr::memchr_iter(b'\n', before).count();
        (index..).zip(lines(rest))
    }
}

fn lines(terms: &[u8]) -> impl Iterator<Item = &[u8]> {
    let terms = terms.split_inclusive(|byte| *byte == b'\n');
    terms.map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

/// The lists of a chunk.
pub(crate) struct ListChunk(Parts);

impl ListChunk {
    /// Reads them; `terms` is how many terms the chunk has.
    pub(crate) fn read(connection: &Connection, id: i64, terms: usize) -> Result<Self, StoreError> {
        let sealed = connection
            .prepare_cached("SELECT lists FROM posting_chunks WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        Parts::read(sealed, terms).map(Self)
    }

    /// The list of the term with this index in the chunk.
    pub(crate) fn list(&self, index: usize) -> Result<List<'_>, StoreError> {
        List::read(self.0.part(index)?).ok_or_else(broken)
    }
}

/// The positions of a chunk's terms.
pub(crate) struct PlaceChunk(Option<Parts>);

impl PlaceChunk {
    /// Reads them; `terms` is how many terms the chunk has.
    pub(crate) fn read(connection: &Connection, id: i64, terms: usize) -> Result<Self, StoreError> {
        let sealed: Option<Vec<u8>> = connection
            .prepare_cached("SELECT places FROM posting_chunks WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let parts = sealed.map(|sealed| Parts::read(sealed, terms));
        parts.transpose().map(Self)
    }

    /// The stored positions of the term with this index in the chunk; empty if there are none.
    pub(crate) fn places(&self, index: usize) -> Result<&[u8], StoreError> {
        self.0.as_ref().map_or(Ok(&[]), |parts| parts.part(index))
    }
}

/// One part for each term of a chunk.
struct Parts {
    data: Vec<u8>,
    ends: Vec<usize>,
    start: usize,
}

impl Parts {
    fn read(sealed: Vec<u8>, terms: usize) -> Result<Self, StoreError> {
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
