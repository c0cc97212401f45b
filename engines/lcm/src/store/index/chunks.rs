//! Writes segments.
//!
//! A segment is cut into chunks of some hundred terms. A chunk is a row of terms, one a line (few enough to
//! scan all of a session's for a part of a word), and a row of their lists and positions:
//! ```text
//! lists, places: lengths, in the order of the terms │ one a term (see [`super::list`])
//! ```
//! Every column ends with a checksum: with a damaged index, a search reads the texts instead of returning a
//! wrong total.
//!
//! A write blocks turns, so a segment is written, and removed, a few chunks at a time. Meanwhile its row is
//! marked as not in force, and readers ignore it. If a segment becomes wrong or needless before it is
//! complete (another process was faster, a summary was rewritten), its row is removed, or a check at the
//! end rejects it.

use std::ops::Range;

use rusqlite::{OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::corpus::Corpus;
use super::list::Growing;
use super::segment::Segment;
use crate::error::StoreError;
use crate::store::{Database, SessionId, put_varint};

/// A chunk is closed once its terms, lists or positions reach this many bytes.
const CHUNK_TERM_BYTES: usize = 2_000;
const CHUNK_LIST_BYTES: usize = 8_000;
const CHUNK_PLACE_BYTES: usize = 16_000;

/// How many chunks are written or deleted at a time, which takes a millisecond or two.
const PIECE: usize = 32;

/// The states of a segment's row.
const MAKING: i64 = 0;
pub(super) const IN_FORCE: i64 = 1;
const GOING: i64 = 2;

/// Finished chunks: made without the lock, written under it.
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

    /// A hash of the whole content, equal for equal segments.
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

/// A segment under construction.
pub(crate) struct Making {
    id: i64,
}

impl Making {
    /// Announces a segment over these texts. Its sources must be read after this.
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

    /// Writes the chunks and puts the segment in force, over the texts up to `end`, replacing others;
    /// returns whether it did. If it was overtaken, or `is_wanted` returns false, nothing changes.
    ///
    /// # Errors
    /// A store that failed; nothing changes then either.
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
        // Leftovers are swept when the store is opened next.
        let _ = match done {
            Ok(true) => replaced
                .iter()
                .try_for_each(|segment| remove(database, segment.id)),
            // Nobody else uses an incomplete row.
            _ => remove(database, self.id),
        };
        done
    }

    /// Writes the chunks in batches; returns whether the row still existed at the end.
    fn write(&self, database: &Database, mut chunks: Chunks) -> Result<bool, StoreError> {
        chunks.close();
        let signatures = seal(chunks.signatures());
        // Reserves consecutive numbers for a segment's chunks, whatever other writers do.
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

    /// Whether the row still exists and is not being removed.
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

/// Removes a segment, a few chunks at a time.
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

/// Removes segments that ended processes left half written or half removed. A process that is still writing
/// one is interrupted by this and starts again.
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

/// Checks and removes the checksum.
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

/// A bit for each pair of neighbouring bytes, by hash: enough to skip most chunks of numbers and hashes
/// when searching for a part of a word.
pub(super) const SIGNATURE_BYTES: usize = 128;

pub(super) fn signature(bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut bits = [0; SIGNATURE_BYTES];
    for pair in bytes.windows(2).filter(|pair| !pair.contains(&b'\n')) {
        let hash = (u32::from(pair[0]) << 8 | u32::from(pair[1])).wrapping_mul(0x9e37_79b1) >> 22;
        bits[hash as usize / 8] |= 1 << (hash % 8);
    }
    bits
}
