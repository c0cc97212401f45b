//! Writes segments.
//!
//! A segment is split into chunks of a few hundred terms. A chunk is a row of terms, one per line,
//! and a row of their lists and positions. The terms are separate so that all terms of a session
//! can be scanned for a part of a word. Lists and positions have the same layout:
//! ```text
//! lists, places: lengths, in the order of the terms │ one per term (see [`super::list`])
//! ```
//! Every column ends with a checksum. If the index is damaged, a search notices it and reads the
//! texts, so that its total stays right.
//!
//! A write blocks turns, so a segment is written and removed a few chunks at a time. Until it is
//! complete, its row has the state [`MAKING`] and readers ignore it. A segment may become wrong or
//! needless before that, for example because a summary was rewritten. Then its row is deleted in
//! the meantime, or the last check in [`Making::finish`] rejects it.

use std::ops::Range;

use rusqlite::{OptionalExtension, Transaction, params};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::corpus::Corpus;
use super::list::ListBuilder;
use super::segment::Segment;
use crate::error::StoreError;
use crate::store::{Database, SessionId, put_varint, query_all};

/// A chunk is closed as soon as its terms reach this many bytes.
const CHUNK_TERM_BYTES: usize = 2_000;
/// The same limit for its lists.
const CHUNK_LIST_BYTES: usize = 8_000;
/// The same limit for its positions.
const CHUNK_PLACE_BYTES: usize = 16_000;

/// How many chunks are written or deleted at a time. It takes a millisecond or two.
const PIECE: usize = 32;

/// The state of a segment that is being written. Readers ignore it.
const MAKING: i64 = 0;
/// The state of a complete segment, which readers use.
pub(super) const IN_FORCE: i64 = 1;
/// The state of a segment that is being removed, a few chunks at a time.
const GOING: i64 = 2;

/// The chunks of a segment in memory. They are made without the lock and written with it.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    done: Vec<Chunk>,
    open: Chunk,
}

#[derive(Debug, Default)]
struct Chunk {
    terms: Vec<u8>,
    lists: TermPartsBuilder,
    places: TermPartsBuilder,
}

/// One part for each term of a chunk, with their lengths. A reader finds a part by adding up
/// lengths.
#[derive(Debug, Default)]
struct TermPartsBuilder {
    lengths: Vec<u8>,
    parts: Vec<u8>,
}

impl TermPartsBuilder {
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
    /// Adds the next term with its list. Terms must come in sorted order.
    pub(crate) fn push(&mut self, term: &[u8], list: &ListBuilder) {
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

    /// Returns a hash of the content. It is equal for equal segments, so a stored segment can be
    /// compared with a new one without keeping both.
    pub(crate) fn digest(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for chunk in self.done.iter().chain([&self.open]) {
            hasher.update(&chunk.terms);
            chunk.lists.hash(&mut hasher);
            // Without positions there is no column, and a stored segment hashes nothing for it.
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

/// A segment that is being written. Its row exists from [`begin`](Self::begin) on, and other
/// processes may delete it if they find that it is no longer needed.
pub(crate) struct Making {
    id: i64,
}

impl Making {
    /// Creates the row of a segment over these texts. Read the texts only after this, so that a
    /// change of them in between deletes the row.
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
                .execute(params![session.0, corpus as i64, start, end, level, MAKING])?;
            Ok(transaction.last_insert_rowid())
        })?;
        Ok(Self { id })
    }

    /// Writes the chunks and puts the segment in force for the texts up to `end`, in place of the
    /// segments in `replaced`. Returns whether it did. If the row was deleted meanwhile, or if
    /// `is_wanted` returns false, nothing changes.
    ///
    /// # Errors
    /// Returns an error if the store fails. Nothing changes then either.
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
        // If this fails, `sweep` removes the rows after the store is opened next.
        let _ = match done {
            Ok(true) => replaced
                .iter()
                .try_for_each(|segment| remove(database, segment.id)),
            // No reader uses a row that is incomplete.
            _ => remove(database, self.id),
        };
        done
    }

    /// Writes the chunks in batches. Returns false if the row was deleted before the end.
    fn write(&self, database: &Database, mut chunks: Chunks) -> Result<bool, StoreError> {
        chunks.close();
        let signatures = seal(chunks.signatures());
        // Reserves consecutive numbers for the chunks of a segment, whatever other writers do. The
        // signatures refer to chunks by their place in this sequence.
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

    /// Returns whether the row still exists and has not been marked for removal.
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
            .execute(params![
                number,
                self.lists.seal(),
                places.map(TermPartsBuilder::seal)
            ])?;
        Ok(())
    }
}

/// Removes a segment, a few chunks at a time. The row itself goes last, so that an interrupted
/// removal can be continued.
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

/// Removes the segments that ended processes have left incomplete or half removed. If another
/// process is still writing one of them, it notices that its row is gone and starts again later.
pub(crate) fn sweep(database: &Database) -> Result<(), StoreError> {
    let left: Vec<i64> = database.write_behind(|transaction| {
        let sql = "UPDATE segments SET state = ?1 WHERE state != ?2 RETURNING id";
        query_all(transaction, sql, [GOING, IN_FORCE], |row| row.get(0))
    })?;
    left.into_iter()
        .try_for_each(|segment| remove(database, segment))
}

/// Appends a checksum of the bytes.
pub(super) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Verifies the checksum and removes it. A wrong one is [`StoreError::Damaged`].
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

/// Creates the error for a segment that cannot be read.
pub(super) fn broken() -> StoreError {
    StoreError::Damaged("a segment of the search index cannot be read; rebuild the index".into())
}

/// The size of a chunk's signature in bytes. A signature has a bit for each pair of neighbouring
/// bytes, chosen by a hash. When searching for a part of a word, it excludes most chunks,
/// especially those of numbers and hashes.
pub(super) const SIGNATURE_BYTES: usize = 128;

/// Computes the signature of terms, or of a part of a word. A chunk can contain the part only if
/// its signature has all bits of the part's.
pub(super) fn signature(bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
    let mut bits = [0; SIGNATURE_BYTES];
    for pair in bytes.windows(2).filter(|pair| !pair.contains(&b'\n')) {
        let hash = (u32::from(pair[0]) << 8 | u32::from(pair[1])).wrapping_mul(0x9e37_79b1) >> 22;
        bits[hash as usize / 8] |= 1 << (hash % 8);
    }
    bits
}
