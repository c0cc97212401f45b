//! Builds segments from messages or summaries, and merges small segments.
//!
//! A batch of new texts becomes a segment of level 0. When there are eight neighbours of one level,
//! they are merged into one segment of the next level. Each posting is therefore copied only a few
//! times, and a search of a long session reads few segments. Segments of [`MAX_LEVEL`] are not
//! merged any further, because that would take too much memory.
//!
//! [`catch_up`] is the function to read first. Segments are built from a snapshot without holding
//! the lock. The [`chunks`](super::chunks) module then writes them in small steps, and puts a
//! segment in force only if nobody else was faster.

use std::collections::HashMap;
use std::ops::Range;

use rusqlite::{Connection, Transaction};
use rustc_hash::FxBuildHasher;

use super::chunks::{Chunks, Making};
use super::corpus::Corpus;
use super::list::ListBuilder;
use super::segment::{
    ListChunk, PlaceChunk, Segment, TermChunk, for_each_chunk, indexed_end, segments,
};
use crate::error::StoreError;
use crate::store::{Database, SessionId, Snapshot, Source};
use crate::text::fold::fold_into;
use crate::text::terms::for_each_term;

/// The maximum number of texts in a segment of level 0. It bounds the memory of a batch.
const SEGMENT_TEXTS: u32 = 1024;

/// About how many bytes of text a segment of level 0 covers at most. The text that exceeds it is
/// still included.
const SEGMENT_BYTES: usize = 4 << 20;

/// How many neighbours of one level are merged into one segment.
const FAN_IN: usize = 8;

/// The highest level. A segment of it covers half a million messages if every batch was full, and
/// far fewer in most sessions.
const MAX_LEVEL: u32 = 3;

/// Indexes the texts of a session that are not indexed yet, and then merges segments. `go_on` is
/// called after each step, and an error from it stops the work. What was done until then stays.
pub(crate) fn catch_up(
    database: &Database,
    source: &Source,
    session: SessionId,
    go_on: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    // Two threads of this process would build the same segments, and one of them for nothing.
    let _alone = database.index_alone();
    for corpus in Corpus::ALL {
        while index_batch(database, source, session, corpus)? {
            go_on()?;
        }
        while join(database, session, corpus)? {
            go_on()?;
        }
    }
    Ok(())
}

/// Indexes the next batch of a session's texts, as far as the transcripts of `source` have them.
/// Returns whether there were any.
fn index_batch(
    database: &Database,
    source: &Source,
    session: SessionId,
    corpus: Corpus,
) -> Result<bool, StoreError> {
    let numbers = database.read_over(source, |snapshot| {
        let start = indexed_end(snapshot, session, corpus)?;
        let end = corpus.end(snapshot, session)?;
        let numbers = start..end.min(start.saturating_add(SEGMENT_TEXTS));
        // A text that nobody can read counts as indexed. One of which this source does not know
        // must wait for another source.
        match corpus {
            Corpus::Messages if !numbers.is_empty() => {
                Ok(start..snapshot.known_end(session, &numbers)?)
            }
            _ => Ok(numbers),
        }
    })?;
    if numbers.is_empty() {
        return Ok(false);
    }
    let start = numbers.start;
    let making = Making::begin(database, session, corpus, &numbers, 0)?;
    let (end, chunks) = database.read_over(source, |snapshot| {
        build(snapshot, session, corpus, numbers, SEGMENT_BYTES)
    })?;
    making.finish(database, chunks, end, &[], |transaction| {
        // Another process may have been faster. This segment is not needed then.
        Ok(indexed_end(transaction, session, corpus)? == start)
    })
}

/// Drops the index of a session. Search reads the texts until [`catch_up`] has built it again.
pub(crate) fn forget(transaction: &Transaction<'_>, session: SessionId) -> Result<(), StoreError> {
    transaction.execute("DELETE FROM segments WHERE session = ?1", [session.0])?;
    // What a damaged file holds of segments that are not there.
    let orphans = "DELETE FROM term_chunks WHERE segment NOT IN (SELECT id FROM segments)";
    transaction.execute(orphans, [])?;
    Ok(())
}

/// Builds the chunks of a segment over these texts. If the texts are longer than `max_bytes`, only
/// the first of them are covered. Also returns one past the last number that is covered.
pub(crate) fn build(
    snapshot: &Snapshot<'_>,
    session: SessionId,
    corpus: Corpus,
    numbers: Range<u32>,
    max_bytes: usize,
) -> Result<(u32, Chunks), StoreError> {
    let mut lists: HashMap<Box<str>, ListBuilder, FxBuildHasher> = HashMap::default();
    let mut folded = String::new();
    let (mut bytes, mut end) = (0, numbers.start);
    corpus.for_each_text(snapshot, session, &numbers, |number, text| {
        fold_into(text, &mut folded);
        // Ordinals are counted from the start of the segment, so that they take few bytes.
        let ordinal = number - numbers.start;
        for_each_term(&folded, |term, place| match lists.get_mut(term) {
            Some(list) => list.push(ordinal, place),
            None => lists.entry(term.into()).or_default().push(ordinal, place),
        });
        bytes += text.len();
        end = number + 1;
        Ok(if bytes < max_bytes {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        })
    })?;
    // Texts at the end may be unreadable. They count as indexed all the same.
    if bytes < max_bytes {
        end = numbers.end;
    }
    // Terms have to be written in order, because a chunk is found by its first term.
    let mut sorted: Vec<(Box<str>, ListBuilder)> = lists.into_iter().collect();
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut chunks = Chunks::default();
    for (term, list) in &sorted {
        chunks.push(term.as_bytes(), list);
    }
    Ok((end, chunks))
}

/// Merges the first group of neighbours that can be merged. Returns whether there was one.
fn join(database: &Database, session: SessionId, corpus: Corpus) -> Result<bool, StoreError> {
    let all = database.read(|connection| segments(connection, session, corpus))?;
    let Some(group @ [first, .., last]) = group_to_join(&all) else {
        return Ok(false);
    };
    let ordinals = first.ordinals.start..last.ordinals.end;
    let making = Making::begin(database, session, corpus, &ordinals, first.level + 1)?;
    let chunks = database.read(|connection| merge(connection, group))?;
    making.finish(database, chunks, ordinals.end, group, |transaction| {
        let all = segments(transaction, session, corpus)?;
        Ok(group.iter().all(|segment| all.contains(segment)))
    })
}

/// Returns the first eight neighbours of one level that can be merged, or None if there are not
/// enough.
fn group_to_join(all: &[Segment]) -> Option<&[Segment]> {
    all.windows(FAN_IN).find(|group| {
        let level = group[0].level;
        level < MAX_LEVEL && group.iter().all(|segment| segment.level == level)
    })
}

/// Reads a segment from its first term to its last. One chunk of lists is in memory at a time.
/// `shift` is how far its ordinals are behind the first one of the merged segment.
struct SegmentReader<'c> {
    connection: &'c Connection,
    chunks: std::vec::IntoIter<TermChunk>,
    terms: Vec<Box<[u8]>>,
    lists: Option<(ListChunk, PlaceChunk)>,
    at: usize,
    shift: u32,
}

impl<'c> SegmentReader<'c> {
    fn new(connection: &'c Connection, segment: &Segment, base: u32) -> Result<Self, StoreError> {
        let mut chunks = Vec::new();
        for_each_chunk(connection, segment.id, b"", |chunk| {
            chunks.push(chunk);
            Ok(std::ops::ControlFlow::Continue(()))
        })?;
        let mut reader = Self {
            connection,
            chunks: chunks.into_iter(),
            terms: Vec::new(),
            lists: None,
            at: 0,
            shift: segment.ordinals.start - base,
        };
        reader.load()?;
        Ok(reader)
    }

    fn load(&mut self) -> Result<(), StoreError> {
        self.at = 0;
        self.terms.clear();
        if let Some(chunk) = self.chunks.next() {
            self.terms.extend(chunk.iter().map(Box::from));
            self.lists = Some((
                ListChunk::read(self.connection, &chunk)?,
                PlaceChunk::read(self.connection, &chunk)?,
            ));
        }
        Ok(())
    }

    fn term(&self) -> Option<&[u8]> {
        self.terms.get(self.at).map(|term| &**term)
    }

    fn append_to(&mut self, list: &mut ListBuilder) -> Result<(), StoreError> {
        if let Some((lists, places)) = &self.lists {
            list.append(lists.list(self.at)?, places.places(self.at)?, self.shift);
        }
        self.at += 1;
        if self.at == self.terms.len() {
            self.load()?;
        }
        Ok(())
    }
}

/// Merges segments by reading all of them in the order of their terms. The lists are joined without
/// decoding them, because the ordinals of each segment come after those of the segment before.
fn merge(connection: &Connection, group: &[Segment]) -> Result<Chunks, StoreError> {
    let base = group.first().map_or(0, |segment| segment.ordinals.start);
    let mut readers = group
        .iter()
        .map(|segment| SegmentReader::new(connection, segment, base))
        .collect::<Result<Vec<_>, _>>()?;
    let mut chunks = Chunks::default();
    while let Some(term) = readers.iter().filter_map(SegmentReader::term).min() {
        let term: Box<[u8]> = term.into();
        let mut list = ListBuilder::default();
        for reader in &mut readers {
            if reader.term() == Some(&term) {
                reader.append_to(&mut list)?;
            }
        }
        chunks.push(&term, &list);
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_a_level_are_joined() {
        let segment = |id: i64, level| Segment {
            id,
            ordinals: id as u32..id as u32 + 1,
            level,
        };
        let mut all: Vec<Segment> = (0..7).map(|id| segment(id, 0)).collect();
        assert!(group_to_join(&all).is_none());
        all.push(segment(7, 0));
        assert_eq!(group_to_join(&all).map(<[_]>::len), Some(8));
        let large: Vec<Segment> = (0..9).map(|id| segment(id, MAX_LEVEL)).collect();
        assert!(group_to_join(&large).is_none());
    }
}
