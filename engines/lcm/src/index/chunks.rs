//! Segments, written.
//!
//! A segment is cut into chunks of some hundred terms. A chunk is a row of terms, one a line (few enough
//! that all of a session's can be gone through for a part of a word), and a row of their lists and places:
//! ```text
//! lists, places: lengths, in the order of the terms │ one a term (see [`super::list`])
//! ```
//! What is read from a row ends with its checksum: a search whose index is damaged reads the texts instead
//! of giving a wrong total.
//!
//! A turn waits for whoever writes, so a segment is written, and removed, a few chunks at a time. Its row
//! says meanwhile that it is not in force, and nobody looks at it. What makes a segment wrong or needless
//! before it is whole (another process that was faster, a summary that was rewritten) takes the row away or
//! is seen at the end.

use std::ops::Range;

use rusqlite::{OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::corpus::Corpus;
use super::list::Growing;
use super::segment::Segment;
use crate::error::StoreError;
use crate::store::{Database, SessionId, put_varint};

/// A chunk is closed once its terms, its lists or its places reach this many bytes.
const CHUNK_TERM_BYTES: usize = 2_000;
const CHUNK_LIST_BYTES: usize = 8_000;
const CHUNK_PLACE_BYTES: usize = 16_000;

/// Chunks that are written, or deleted, at a time: a millisecond or two.
const PIECE: usize = 32;

/// The states of a segment's row.
const MAKING: i64 = 0;
pub(super) const IN_FORCE: i64 = 1;
const GOING: i64 = 2;

/// Chunks that are ready to be written: made without the lock, written under it.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    done: Vec<Chunk>,
    open: Chunk,
}

#[derive(Debug, Default)]
struct Chunk {
    terms: Vec<u8>,
    lists: Parts,
    places: Parts,
}

/// One part for each term of a chunk.
#[derive(Debug, Default)]
struct Parts {
    lengths: Vec<u8>,
    parts: Vec<u8>,
}

impl Parts {
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.parts.len();
        write(&mut self.parts);
        put_varint(&mut self.lengths, (self.parts.len() - start) as u64);
    }

    fn hash(&self, hasher: &mut Xxh3) {
        hasher.update(&self.lengths);
        hasher.update(&self.parts);
    }

    fn seal(mut self) -> Vec<u8> {
        self.lengths.extend_from_slice(&self.parts);
        seal(self.lengths)
    }
}

impl Chunks {
    /// Adds the next term, in sorted order.
    pub(crate) fn push(&mut self, term: &[u8], list: &Growing) {
        let open = &mut self.open;
        open.terms.extend_from_slice(term);
        open.terms.push(b'\n');
        open.lists.push(|out| list.write(out));
        open.places.push(|out| out.extend_from_slice(list.places()));
        if open.terms.len() >= CHUNK_TERM_BYTES
            || open.lists.parts.len() >= CHUNK_LIST_BYTES
            || open.places.parts.len() >= CHUNK_PLACE_BYTES
        {
            self.close();
        }
    }

    fn close(&mut self) {
        if !self.open.terms.is_empty() {
            self.done.push(std::mem::take(&mut self.open));
        }
    }

    /// A hash of everything in them, equal for equal segments.
    pub(crate) fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for chunk in self.done.iter().chain([&self.open]) {
            hasher.update(&chunk.terms);
            chunk.lists.hash(&mut hasher);
            if !chunk.places.parts.is_empty() {
                chunk.places.hash(&mut hasher);
            }
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
}

/// A segment that is being made.
pub(crate) struct Making {
    id: i64,
}

impl Making {
    /// Says that a segment over these texts is being made. What is read for it has to be read after this.
    pub(crate) fn begin(
        database: &Database,
        session: SessionId,
        corpus: Corpus,
        ordinals: &Range<u32>,
        level: u32,
    ) -> Result<Self, StoreError> {
        let Range { start, end } = *ordinals;
        let id = database.write_behind(|transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO segments(session, corpus, first, last, level, state, signatures)
                     VALUES(?1, ?2, ?3, ?4, ?5, ?6, x'')",
                )?
                .execute(params![session.0, corpus.code(), start, end, level, MAKING])?;
            Ok(transaction.last_insert_rowid())
        })?;
        Ok(Self { id })
    }

    /// Writes the chunks and puts the segment in force, over the texts up to `end`, in place of others;
    /// whether it was done. Where it was overtaken, or `is_wanted` says no, nothing is changed.
    ///
    /// # Errors
    /// A store that failed; then nothing is changed either.
    pub(crate) fn finish(
        self,
        database: &Database,
        chunks: Chunks,
        end: u32,
        replaced: &[Segment],
        is_wanted: impl FnOnce(&Transaction<'_>) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        let done = self.write(database, chunks).and_then(|is_whole| {
            if !is_whole {
                return Ok(false);
            }
            database.write_behind(|transaction| {
                if !self.stands(transaction)? || !is_wanted(transaction)? {
                    return Ok(false);
                }
                for segment in replaced {
                    set_state(transaction, segment.id, GOING)?;
                }
                set_state(transaction, self.id, IN_FORCE)?;
                transaction
                    .prepare_cached("UPDATE segments SET last = ?2 WHERE id = ?1")?
                    .execute(params![self.id, end])?;
                Ok(true)
            })
        });
        // What cannot be removed now is swept up when the store is opened next.
        let _ = match done {
            Ok(true) => replaced
                .iter()
                .try_for_each(|segment| remove(database, segment.id)),
            // Nobody else looks at a row that is not whole.
            _ => remove(database, self.id),
        };
        done
    }

    /// Writes the chunks piece by piece; whether the row stood till the end.
    fn write(&self, database: &Database, mut chunks: Chunks) -> Result<bool, StoreError> {
        chunks.close();
        let signatures = seal(chunks.signatures());
        // The numbers of a segment's chunks follow each other, whoever else writes in between.
        let reserved: Option<i64> = database.write_behind(|transaction| {
            Ok(transaction
                .prepare_cached(
                    "UPDATE segments SET signatures = ?2, chunks = ?3, first_chunk =
                         (SELECT 1 + max(first_chunk + chunks) FROM segments)
                     WHERE id = ?1 AND state = ?4 RETURNING first_chunk",
                )?
                .query_row(
                    params![self.id, signatures, chunks.done.len() as i64, MAKING],
                    |row| row.get(0),
                )
                .optional()?)
        })?;
        let Some(mut number) = reserved else {
            return Ok(false);
        };
        let mut rest = chunks.done.into_iter();
        while rest.len() > 0 {
            let is_there = database.write_behind(|transaction| {
                if !self.stands(transaction)? {
                    return Ok(false);
                }
                for chunk in rest.by_ref().take(PIECE) {
                    chunk.insert(transaction, self.id, number)?;
                    number += 1;
                }
                Ok(true)
            })?;
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether nobody took the row away, or means to.
    fn stands(&self, transaction: &Transaction<'_>) -> Result<bool, StoreError> {
        Ok(transaction
            .prepare_cached("SELECT 1 FROM segments WHERE id = ?1 AND state = ?2")?
            .exists([self.id, MAKING])?)
    }
}

fn set_state(transaction: &Transaction<'_>, segment: i64, state: i64) -> Result<(), StoreError> {
    transaction
        .prepare_cached("UPDATE segments SET state = ?2 WHERE id = ?1")?
        .execute([segment, state])?;
    Ok(())
}

impl Chunk {
    fn insert(
        self,
        transaction: &Transaction<'_>,
        segment: i64,
        number: i64,
    ) -> Result<(), StoreError> {
        let first = self.terms.split(|byte| *byte == b'\n').next();
        let first = first.unwrap_or_default().to_vec();
        transaction
            .prepare_cached(
                "INSERT INTO term_chunks(id, segment, first, terms) VALUES(?1, ?2, ?3, ?4)",
            )?
            .execute(params![number, segment, first, seal(self.terms)])?;
        let places = Some(self.places).filter(|places| !places.parts.is_empty());
        transaction
            .prepare_cached("INSERT INTO posting_chunks(id, lists, places) VALUES(?1, ?2, ?3)")?
            .execute(params![number, self.lists.seal(), places.map(Parts::seal)])?;
        Ok(())
    }
}

/// Removes a segment that is going, a few chunks at a time.
fn remove(database: &Database, segment: i64) -> Result<(), StoreError> {
    let mut is_left = true;
    while is_left {
        is_left = database.write_behind(|transaction| {
            let chunks = transaction
                .prepare_cached(
                    "DELETE FROM term_chunks WHERE id IN
                         (SELECT id FROM term_chunks WHERE segment = ?1 LIMIT ?2)",
                )?
                .execute([segment, PIECE as i64])?;
            if chunks == 0 {
                transaction
                    .prepare_cached("DELETE FROM segments WHERE id = ?1")?
                    .execute([segment])?;
            }
            Ok(chunks > 0)
        })?;
    }
    Ok(())
}

/// Removes what was left half made, or half removed, by a process that ended in between. A process that
/// is still at it is overtaken by this, and begins again.
pub(crate) fn sweep(database: &Database) -> Result<(), StoreError> {
    let left: Vec<i64> = database.write_behind(|transaction| {
        let mut statement = transaction
            .prepare_cached("UPDATE segments SET state = ?1 WHERE state != ?2 RETURNING id")?;
        let ids = statement.query_map([GOING, IN_FORCE], |row| row.get(0))?;
        Ok(ids.collect::<Result<_, _>>()?)
    })?;
    left.into_iter()
        .try_for_each(|segment| remove(database, segment))
}

/// Adds a checksum.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Checks and takes off what [`seal`] added.
pub(super) fn unseal(mut sealed: Vec<u8>) -> Result<Vec<u8>, StoreError> {
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

pub(super) fn broken() -> StoreError {
    StoreError::Damaged("a segment of the search index cannot be read; rebuild the index".into())
}

/// A bit for each pair of neighbouring bytes, by hash: enough to pass by most chunks of numbers and
/// hashes when a part of a word is looked for.
pub(super) const SIGNATURE_BYTES: usize = 128;

pub(super) fn signature(bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut bits = [0; SIGNATURE_BYTES];
    for pair in bytes.windows(2).filter(|pair| !pair.contains(&b'\n')) {
        let hash = (u32::from(pair[0]) << 8 | u32::from(pair[1])).wrapping_mul(0x9e37_79b1) >> 22;
        bits[hash as usize / 8] |= 1 << (hash % 8);
    }
    bits
}
