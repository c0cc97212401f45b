//! Builds segments from messages or summaries, and merges small segments.
//!
//! A batch of new texts becomes a segment of level 0. Eight neighbours of one level become one of the next,
//! so that each posting is copied a few times in all and a session has few segments. Segments of
//! [`MAX_LEVEL`] are not merged: that would take too much memory.

use std::collections::HashMap;
use std::ops::Range;

use rusqlite::{Connection, Transaction};
use rustc_hash::FxBuildHasher;

use super::chunks::{Chunks, Making};
use super::corpus::Corpus;
use super::list::Growing;
use super::segment::{
    ListChunk, PlaceChunk, Segment, TermChunk, for_each_chunk, indexed_end, segments,
};
use crate::error::StoreError;
use crate::store::{Database, SessionId};
use crate::text::fold::fold_into;
use crate::text::terms::for_each_term;

/// The most texts of a segment of level 0, which bounds the memory of a batch.
const SEGMENT_TEXTS: u32 = 1024;

/// The approximate bytes of text of a segment of level 0.
const SEGMENT_BYTES: usize = 4 << 20;

/// How many neighbours of one level are merged.
const FAN_IN: usize = 8;

/// The highest level: segments of some 20,000 messages.
const MAX_LEVEL: u32 = 3;

/// Indexes everything of a session that is not indexed yet, then merges segments; between two batches
/// `go_on` may cancel.
pub(crate) fn catch_up(
    database: &Database,
    session: SessionId,
    go_on: impl Fn() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let _alone = database.index_alone();
    for corpus in Corpus::ALL {
        while index_batch(database, session, corpus)? {
            go_on()?;
        }
        while join(database, session, corpus)? {
            go_on()?;
        }
    }
    Ok(())
}

/// Indexes the next texts of a session; returns whether there were any.
fn index_batch(
    database: &Database,
    session: SessionId,
    corpus: Corpus,
) -> Result<bool, StoreError> {
    let (start, end) = database.read(|connection| {
        let start = indexed_end(connection, session, corpus)?;
        Ok((start, corpus.end(connection, session)?))
    })?;
    if start >= end {
        return Ok(false);
    }
    let numbers = start..end.min(start.saturating_add(SEGMENT_TEXTS));
    let making = Making::begin(database, session, corpus, &numbers, 0)?;
    let (end, chunks) =
        database.read(|connection| build(connection, session, corpus, numbers, SEGMENT_BYTES))?;
    making.finish(database, chunks, end, &[], |transaction| {
        // Another process may have been faster; then this segment is not needed.
        Ok(indexed_end(transaction, session, corpus)? == start)
    })
}

/// Drops the index of a session; it is rebuilt from the messages and summaries.
pub(crate) fn forget(transaction: &Transaction<'_>, session: SessionId) -> Result<(), StoreError> {
    transaction.execute("DELETE FROM segments WHERE session = ?1", [session.0])?;
    Ok(())
}

/// Builds the chunks of a segment over these texts, or over the first `max_bytes` of them; also returns its
/// end.
pub(crate) fn build(
    connection: &Connection,
    session: SessionId,
    corpus: Corpus,
    numbers: Range<u32>,
    max_bytes: usize,
) -> Result<(u32, Chunks), StoreError> {
    let mut lists: HashMap<Box<str>, Growing, FxBuildHasher> = HashMap::default();
    let mut folded = String::new();
    let (mut bytes, mut end) = (0, numbers.start);
    corpus.for_each_text(connection, session, &numbers, |number, text| {
        fold_into(text, &mut folded);
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
    if bytes < max_bytes {
        end = numbers.end;
    }
    let mut sorted: Vec<(Box<str>, Growing)> = lists.into_iter().collect();
    sorted.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let mut chunks = Chunks::default();
    for (term, list) in &sorted {
        chunks.push(term.as_bytes(), list);
    }
    Ok((end, chunks))
}

/// Merges one group of neighbours; returns whether there was one.
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

/// The first eight neighbours of one level that may be merged.
fn group_to_join(all: &[Segment]) -> Option<&[Segment]> {
    all.windows(FAN_IN).find(|group| {
        let level = group[0].level;
        level < MAX_LEVEL && group.iter().all(|segment| segment.level == level)
    })
}

/// A segment, read from its first term to its last.
struct Reader<'c> {
    connection: &'c Connection,
    chunks: std::vec::IntoIter<TermChunk>,
    terms: Vec<Box<[u8]>>,
    lists: Option<(ListChunk, PlaceChunk)>,
    at: usize,
    shift: u32,
}

impl<'c> Reader<'c> {
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
            let terms = self.terms.len();
            self.lists = Some((
                ListChunk::read(self.connection, chunk.id, terms)?,
                PlaceChunk::read(self.connection, chunk.id, terms)?,
            ));
        }
        Ok(())
    }

    fn term(&self) -> Option<&[u8]> {
        self.terms.get(self.at).map(|term| &**term)
    }

    fn append_to(&mut self, list: &mut Growing) -> Result<(), StoreError> {
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

fn merge(connection: &Connection, group: &[Segment]) -> Result<Chunks, StoreError> {
    let base = group.first().map_or(0, |segment| segment.ordinals.start);
    let mut readers = group
        .iter()
        .map(|segment| Reader::new(connection, segment, base))
        .collect::<Result<Vec<_>, _>>()?;
    let mut chunks = Chunks::default();
    while let Some(term) = readers.iter().filter_map(Reader::term).min() {
        let term: Box<[u8]> = term.into();
        let mut list = Growing::default();
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
