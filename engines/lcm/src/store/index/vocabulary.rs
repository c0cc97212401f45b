//! The terms of a segment in memory, for many look-ups.
//!
//! A pattern looks up a few terms, and reading one chunk for each is cheap. A question looks up
//! every form of every word, and related words, too. [`Vocabulary`] therefore reads all terms of a
//! segment once. Lists stay on disk until a term is found, and are then cached by chunk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;

use rusqlite::Connection;
use rustc_hash::FxBuildHasher;

use super::list::List;
use super::segment::{ListChunk, Segment, TermChunk, for_each_chunk};
use crate::error::StoreError;

/// All terms of a segment, with a cache of the lists that were used. It belongs to one snapshot.
pub(crate) struct Vocabulary<'c> {
    connection: &'c Connection,
    chunks: Vec<TermChunk>,
    lists: HashMap<i64, ListChunk, FxBuildHasher>,
}

impl<'c> Vocabulary<'c> {
    /// Reads the terms of a segment, which are a few hundred kilobytes at most.
    pub(crate) fn read(connection: &'c Connection, segment: &Segment) -> Result<Self, StoreError> {
        let mut chunks = Vec::new();
        for_each_chunk(connection, segment.id, b"", |chunk| {
            chunks.push(chunk);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            connection,
            chunks,
            lists: HashMap::default(),
        })
    }

    /// Calls `each` with the list of every term that begins with `prefix` and for which `wanted`
    /// returns true.
    pub(crate) fn for_each_like(
        &mut self,
        prefix: &str,
        mut wanted: impl FnMut(&str) -> bool,
        mut each: impl FnMut(List<'_>),
    ) -> Result<(), StoreError> {
        let prefix = prefix.as_bytes();
        let first = |chunk: &TermChunk| chunk.iter().next().is_some_and(|term| term <= prefix);
        let start = self.chunks.partition_point(first).saturating_sub(1);
        for chunk in &self.chunks[start..] {
            for (index, term) in chunk.from(prefix) {
                // Terms are sorted, so nothing with this prefix can follow.
                if !term.starts_with(prefix) {
                    return Ok(());
                }
                if !std::str::from_utf8(term).is_ok_and(&mut wanted) {
                    continue;
                }
                let lists = match self.lists.entry(chunk.id) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => new.insert(ListChunk::read(self.connection, chunk)?),
                };
                each(lists.list(index)?);
            }
        }
        Ok(())
    }
}
