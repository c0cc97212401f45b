//! Inserts markers into the text of a request and removes them, exact to the byte.
//!
//! [`insert`] and [`remove`] are inverse to each other. The host's markers have a run of tabs
//! after `"cache_control":` that is longer than any such run in the request. A JSON string
//! cannot contain a raw tab, so these runs are never part of a text, and the longest ones are
//! the host's.
//!
//! This way a marked request needs no record of what was inserted. If that record is at hand,
//! [`cut`] is the faster way back.

use std::ops::Range;

use memchr::memmem;

use super::Ttl;
use super::document::MarkerSite;

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

/// Returns the request with markers at these sites, and the inserted texts as byte ranges of
/// the result. The sites must be in ascending order.
pub(super) fn insert(request: &str, sites: &[(MarkerSite, Ttl)]) -> (String, Vec<Range<usize>>) {
    // One tab more than in any run of the request, so that the longest runs are the host's.
    let tabs = 1 + signatures(request).map(|run| run.len()).max().unwrap_or(0);
    let signature = format!("{KEY}{}", "\t".repeat(tabs));
    let mut marked = String::with_capacity(request.len() + sites.len() * (96 + tabs));
    let mut inserted = Vec::new();
    let mut copied = 0;
    let mut put = |upto: usize, pieces: &[&str]| {
        marked.push_str(&request[copied..upto]);
        copied = upto;
        let start = marked.len();
        for piece in pieces {
            marked.push_str(piece);
        }
        inserted.push(start..marked.len());
    };
    for (site, ttl) in sites {
        match *site {
            MarkerSite::Object { brace } => put(brace, &[&signature, marker(*ttl)]),
            MarkerSite::Text { start, end } => {
                put(start, &[TEXT_BLOCK]);
                put(end, &[&signature, marker(*ttl), TEXT_BLOCK_END]);
            }
        }
    }
    marked.push_str(&request[copied..]);
    (marked, inserted)
}

/// Returns the document without these ranges, which must be in ascending order.
pub(super) fn cut(document: &str, ranges: &[Range<usize>]) -> String {
    let mut rest = String::with_capacity(document.len());
    let mut copied = 0;
    for range in ranges {
        rest.push_str(document.get(copied..range.start).unwrap_or_default());
        copied = range.end;
    }
    rest.push_str(document.get(copied..).unwrap_or_default());
    rest
}

/// Removes the host's markers from a request in which [`apply`](super::apply) set at least one,
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
