//! Where a page ended.

use xxhash_rust::xxh3::Xxh3;

use super::{Query, Sort};
use crate::error::StoreError;

/// A place in the order of hits: time (never going back within a session), then key.
pub(super) type Place = (i64, i64);

/// The end of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cursor {
    /// After the hit at this place, in an order by time.
    After(Place),
    /// After this many hits, in an order by relevance.
    Skip(usize),
}

impl Cursor {
    /// The cursor as text. It names the query that it belongs to.
    pub(super) fn write(self, query: &Query) -> String {
        let query = fingerprint(query);
        match self {
            Self::After((at, key)) => format!("{query:08x}.at.{at}.{key}"),
            Self::Skip(count) => format!("{query:08x}.skip.{count}"),
        }
    }

    /// The cursor of a query, where it has one.
    pub(super) fn of(query: &Query) -> Result<Option<Self>, StoreError> {
        let Some(text) = &query.cursor else {
            return Ok(None);
        };
        let parts: Vec<&str> = text.split('.').collect();
        let cursor = match parts.as_slice() {
            [_, "at", at, key] => at.parse().ok().zip(key.parse().ok()).map(Self::After),
            [_, "skip", count] => count.parse().ok().map(Self::Skip),
            _ => None,
        };
        let by_relevance = query.order() == Sort::Relevance;
        match cursor {
            Some(cursor)
                if parts[0] == format!("{:08x}", fingerprint(query))
                    && by_relevance == matches!(cursor, Self::Skip(_)) =>
            {
                Ok(Some(cursor))
            }
            _ => Err(StoreError::Query(format!(
                "the cursor `{text}` belongs to another query; repeat the query it came with, or leave it out"
            ))),
        }
    }
}

/// What tells queries apart whose pages must not be mixed.
fn fingerprint(query: &Query) -> u32 {
    let mut hasher = Xxh3::new();
    let same = Query {
        cursor: None,
        limit: 0,
        context_lines: 0,
        ..query.clone()
    };
    hasher.update(format!("{same:?}").as_bytes());
    hasher.digest() as u32
}
