//! The vocabularies of the public encodings, from the tables that the build script writes.
//!
//! [`o200k_base`] and [`cl100k_base`] count the tokens of one piece of a text. Each vocabulary is
//! read when it is first used, which takes some ten milliseconds, and stays in memory.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;
use tiktoken_rs::CoreBPE;

static O200K_BASE: LazyLock<CoreBPE> =
    LazyLock::new(|| read(include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base"))));
static CL100K_BASE: LazyLock<CoreBPE> =
    LazyLock::new(|| read(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k_base"))));

/// Returns the vocabulary of `o200k_base`. It takes every text for one piece.
pub(super) fn o200k_base() -> &'static CoreBPE {
    &O200K_BASE
}

/// Returns the vocabulary of `cl100k_base`. It takes every text for one piece.
pub(super) fn cl100k_base() -> &'static CoreBPE {
    &CL100K_BASE
}

/// Reads a compressed table: the tokens in the order of their ranks, each after its length in one
/// byte.
fn read(compressed: &[u8]) -> CoreBPE {
    let table = match zstd::decode_all(compressed) {
        Ok(table) => table,
        Err(error) => unreachable!("the build script compressed the table: {error}"),
    };
    let mut table = table.as_slice();
    let mut ranks = FxHashMap::default();
    let mut rank = 0;
    while let Some((&length, rest)) = table.split_first() {
        let (token, rest) = rest.split_at(usize::from(length));
        ranks.insert(token.to_vec(), rank);
        rank += 1;
        table = rest;
    }
    // The text is cut into pieces before, so no pattern of the encoding is needed.
    match CoreBPE::new(ranks, FxHashMap::default(), "(?s).+") {
        Ok(vocabulary) => vocabulary,
        Err(error) => unreachable!("the pattern is one: {error}"),
    }
}
