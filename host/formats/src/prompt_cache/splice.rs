//! Inserts markers into the text of a request. Everything else keeps its bytes.

use super::Ttl;
use super::document::MarkerSite;

const TEXT_BLOCK: &str = r#"[{"type":"text","text":"#;
const TEXT_BLOCK_END: &str = "}]";

fn marker(ttl: Ttl) -> &'static str {
    match ttl {
        Ttl::FiveMinutes => r#","cache_control":{"type":"ephemeral"}"#,
        Ttl::OneHour => r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
    }
}

/// An upper bound for the bytes that a marker adds.
pub(crate) const MARKER_BYTES: usize = 96;

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

/// Appends a piece of a request with markers at these sites, which are in it in ascending order.
pub(crate) fn write_marked(out: &mut String, piece: &str, sites: &[(MarkerSite, Ttl)]) {
    let mut copied = 0;
    let mut put = |upto: usize, texts: &[&str]| {
        out.push_str(piece.get(copied..upto).unwrap_or_default());
        copied = upto;
        texts.iter().for_each(|text| out.push_str(text));
    };
    for (site, ttl) in sites {
        match site.spot {
            Spot::Object { brace } => put(brace, &[marker(*ttl)]),
            Spot::Text { start, end } => {
                put(start, &[TEXT_BLOCK]);
                put(end, &[marker(*ttl), TEXT_BLOCK_END]);
            }
        }
    }
    put(piece.len(), &[]);
}
