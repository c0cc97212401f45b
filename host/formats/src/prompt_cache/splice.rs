//! Inserts markers into the text of a request and removes them, exact to the byte.
//!
//! [`Inserts`] and [`remove`] are inverse to each other. The host's markers have a run of tabs
//! after `"cache_control":` that is longer than any such run in the request. A JSON string
//! cannot contain a raw tab, so these runs are never part of a text, and the longest ones are
//! the host's.
//!
//! This way a marked request needs no record of what was inserted. If that record is at hand,
//! [`cut`] is the faster way back.

use std::ops::Range;

use memchr::memmem;

use super::Ttl;

const KEY: &str = r#","cache_control":"#;
const TEXT_BLOCK: &str = r#"[{"type":"text","text":"#;
/// The end of a string that was turned into a list of blocks. The tab distinguishes it from a
/// block of the client.
const TEXT_BLOCK_END: &str = "\t}]";

fn marker(ttl: Ttl) -> &'static str {
    match ttl {
        Ttl::FiveMinutes => r#"{"type":"ephemeral"}"#,
        Ttl::OneHour => r#"{"type":"ephemeral","ttl":"1h"}"#,
    }
}

/// The bytes of a piece of a request that can take a marker, as offsets into the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// A JSON string from `start` to `end`, including the quotes. It becomes a list with one
    /// text block.
    Text { start: usize, end: usize },
    /// An object with at least one member. `brace` is the offset of its closing brace.
    Object { brace: usize },
}

impl Spot {
    pub(super) fn start(self) -> usize {
        match self {
            Self::Text { start, .. } => start,
            Self::Object { brace } => brace,
        }
    }
}

/// Inserts markers while a request is written, piece by piece.
#[derive(Debug)]
pub(crate) struct Inserts {
    signature: String,
    /// The inserted texts, as byte ranges of the request that is written.
    pub(crate) inserted: Vec<Range<usize>>,
}

impl Inserts {
    /// Markers for a request with these pieces. No piece may end inside a marker of the client.
    pub(crate) fn into<'p>(pieces: impl Iterator<Item = &'p str>) -> Self {
        // One tab more than in any run of the request, so that the longest runs are the host's.
        let runs = pieces.flat_map(|piece| signatures(piece).map(|run| run.len()));
        let tabs = 1 + runs.max().unwrap_or(0);
        Self {
            signature: format!("{KEY}{}", "\t".repeat(tabs)),
            inserted: Vec::new(),
        }
    }

    /// An upper bound for the bytes of a marker.
    pub(crate) fn bytes(&self) -> usize {
        96 + self.signature.len()
    }

    /// Appends a piece with markers at these spots, which must be in ascending order.
    pub(crate) fn write(&mut self, out: &mut String, piece: &str, spots: &[(Spot, Ttl)]) {
        let mut copied = 0;
        let mut put = |upto: usize, texts: &[&str]| {
            out.push_str(piece.get(copied..upto).unwrap_or_default());
            copied = upto;
            let start = out.len();
            texts.iter().for_each(|text| out.push_str(text));
            self.inserted.push(start..out.len());
        };
        let signature = &self.signature;
        for (spot, ttl) in spots {
            match *spot {
                Spot::Object { brace } => put(brace, &[signature, marker(*ttl)]),
                Spot::Text { start, end } => {
                    put(start, &[TEXT_BLOCK]);
                    put(end, &[signature, marker(*ttl), TEXT_BLOCK_END]);
                }
            }
        }
        out.push_str(piece.get(copied..).unwrap_or_default());
    }
}

/// Returns the document without these ranges, which must be in ascending order.
pub(crate) fn cut(document: &str, ranges: &[Range<usize>]) -> String {
    let mut rest = String::with_capacity(document.len());
    let mut copied = 0;
    for range in ranges {
        rest.push_str(document.get(copied..range.start).unwrap_or_default());
        copied = range.end;
    }
    rest.push_str(document.get(copied..).unwrap_or_default());
    rest
}

/// Removes the host's markers from a request in which [`mark`](crate::mark) set at least one,
/// and returns the request as it was before, byte for byte. The client's markers stay, because
/// they lack the host's signature. A document without signature is returned unchanged.
pub fn remove(marked: &str) -> String {
    let runs: Vec<_> = signatures(marked).collect();
    let longest = runs.iter().map(Range::len).max().unwrap_or(0);
    let mut original = String::with_capacity(marked.len());
    let mut copied = 0;
    for run in runs.iter().filter(|run| run.len() == longest) {
        let tail = &marked[run.end..];
        let Some(after) = [Ttl::FiveMinutes, Ttl::OneHour]
            .iter()
            .find_map(|ttl| tail.strip_prefix(marker(*ttl)))
        else {
            continue;
        };
        original.push_str(&marked[copied..run.start - KEY.len()]);
        copied = marked.len() - after.len();
        if after.starts_with(TEXT_BLOCK_END) {
            copied += TEXT_BLOCK_END.len();
            // The nearest opening belongs to this string, because inside a string its quotes
            // would be escaped.
            if let Some(opening) = original.rfind(TEXT_BLOCK) {
                original.replace_range(opening..opening + TEXT_BLOCK.len(), "");
            }
        }
    }
    original.push_str(&marked[copied..]);
    original
}

/// Returns the runs of tabs that follow a `cache_control` key.
fn signatures(document: &str) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(document.as_bytes(), KEY).filter_map(|at| {
        let start = at + KEY.len();
        let tabs = document.as_bytes()[start..]
            .iter()
            .take_while(|byte| **byte == b'\t')
            .count();
        (tabs > 0).then_some(start..start + tabs)
    })
}
