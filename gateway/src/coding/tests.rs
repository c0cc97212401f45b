#![allow(clippy::unwrap_used)]
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

const MOST: usize = 1 << 20;

/// Compresses bytes. If `is_raw`, a stream of `deflate` has no header.
fn compressed(coding: Coding, is_raw: bool, bytes: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    let mut out = Vec::new();
    match coding {
        Coding::Gzip => GzEncoder::new(&mut out, level).write_all(bytes),
        Coding::Deflate if is_raw => DeflateEncoder::new(&mut out, level).write_all(bytes),
        Coding::Deflate => ZlibEncoder::new(&mut out, level).write_all(bytes),
        Coding::Brotli => brotli::CompressorWriter::new(&mut out, 64, 5, 20).write_all(bytes),
        Coding::Zstd => zstd::stream::copy_encode(bytes, &mut out, 3),
    }
    .unwrap();
    out
}

fn in_pieces(coding: Coding, body: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let mut decoder = Decoder::new(coding, body, MOST)?;
    let mut out = Vec::new();
    for piece in body.chunks(size) {
        out.extend(decoder.next(piece)?);
    }
    out.extend(decoder.end(&[])?);
    Ok(out)
}

proptest! {
    /// A body is expanded to its end and no further, at once and in pieces, and one that was cut
    /// is not taken for whole.
    #[test]
    fn a_body_ends_where_its_coding_does(
        coding in prop::sample::select(vec![Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd]),
        is_raw in any::<bool>(),
        mut parts in prop::collection::vec(prop::collection::vec(0u8..8, 1..300), 1..4),
        times in prop_oneof![9 => Just(1), 1 => Just(1_000)],
        after in prop::collection::vec(prop_oneof![
            any::<u8>(), Just(0x1f), Just(0x28), Just(0xb5), Just(0x50), Just(0x2a), Just(0x4d),
        ], 0..5),
        size in 1usize..40,
        cut in any::<prop::sample::Index>(),
    ) {
        prop_assume!(begins_member(coding, &after) != Some(true));
        if matches!(coding, Coding::Deflate | Coding::Brotli) {
            parts.truncate(1);
        }
        let parts: Vec<_> = parts.iter().map(|part| part.repeat(times)).collect();
        let members: Vec<_> = parts.iter().map(|part| compressed(coding, is_raw, part)).collect();
        let body = [members.concat(), after].concat();
        let whole = parts.concat();
        prop_assert_eq!(&in_pieces(coding, &body, size).unwrap(), &whole);
        let at_once = expand(Bytes::from(body), &[coding], MOST).unwrap();
        prop_assert_eq!(&at_once, &whole);
        let last = members.last().unwrap();
        let cut = last[..cut.index(last.len() - 1) + 1].to_vec();
        prop_assert!(in_pieces(coding, &cut, size).is_err());
        prop_assert!(expand(Bytes::from(cut), &[coding], MOST).is_err());
    }
}

/// Its parts would take seconds of a processor, though it is small and expands to nothing.
#[test]
fn a_body_of_many_empty_members_is_refused() {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let body = compressed(coding, false, b"").repeat(MAX_MEMBERS);
        let expanded = expand(Bytes::from(body.clone()), &[coding], MOST).unwrap();
        assert!(expanded.is_empty());
        let more = [body, compressed(coding, false, b"{}")].concat();
        let error = expand(Bytes::from(more), &[coding], MOST).unwrap_err();
        assert!(error.to_string().contains("too many"), "{error}");
    }
}
