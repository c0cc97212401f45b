//! Content codings: requests that come compressed are expanded before they are read, and so are answers of providers
//! that compress although they were asked not to.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use futures_util::StreamExt;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};

/// A content coding that the gateway reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// How many codings of one body are undone. Nobody needs more than two.
const MOST: usize = 4;

/// How much a piece of an answer may expand to: no model says so much at once.
const LARGEST_PIECE: usize = 64 << 20;

/// Why a body cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodingError {
    /// Nobody here knows the coding.
    #[error(
        "the gateway does not know the content-encoding `{0}`: send gzip, deflate, br, zstd or none, one after the other \
         at most four times"
    )]
    Unknown(String),
    /// It is larger than a request may be.
    #[error("the request is larger than {} MB when it is expanded (`gateway.max_body_mb`)", .0 >> 20)]
    TooLarge(usize),
    /// The bytes are not what the header says.
    #[error("the request cannot be expanded: its content-encoding says {coding}, and {cause}")]
    Broken {
        coding: &'static str,
        cause: io::Error,
    },
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// The codings of a message, in the order in which they were applied.
///
/// # Errors
/// One of them is not known, or there are too many.
pub(crate) fn of(headers: &HeaderMap) -> Result<Vec<Coding>, CodingError> {
    let mut codings = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes());
        for name in text.split(',').map(|name| name.trim().to_ascii_lowercase()) {
            codings.push(match name.as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "deflate" => Coding::Deflate,
                "br" => Coding::Brotli,
                "zstd" => Coding::Zstd,
                _ => return Err(CodingError::Unknown(name)),
            });
        }
    }
    match codings.len() > MOST {
        true => Err(CodingError::Unknown(format!("of {} layers", codings.len()))),
        false => Ok(codings),
    }
}

/// Whether these bytes begin as a zlib stream does. Some send `deflate` without that frame, against the standard.
fn has_zlib_head(bytes: &[u8]) -> bool {
    let [method, flags, ..] = bytes else {
        return true;
    };
    method & 0xf == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
}

/// Expands a body to at most `most` bytes, in each of its layers. Blocks.
///
/// # Errors
/// It is larger, or not what its codings say.
pub(crate) fn expand(body: Bytes, codings: &[Coding], most: usize) -> Result<Bytes, CodingError> {
    let mut body = body;
    for coding in codings.iter().rev() {
        let bytes: &[u8] = &body;
        let broken = |cause| CodingError::Broken {
            coding: coding.name(),
            cause,
        };
        let reader: Box<dyn Read + '_> = match coding {
            Coding::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            Coding::Deflate if has_zlib_head(bytes) => Box::new(ZlibDecoder::new(bytes)),
            Coding::Deflate => Box::new(flate2::read::DeflateDecoder::new(bytes)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(bytes, 1 << 14)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).map_err(broken)?),
        };
        let mut expanded = Vec::new();
        let limit = (most as u64).saturating_add(1);
        reader
            .take(limit)
            .read_to_end(&mut expanded)
            .map_err(broken)?;
        if expanded.len() > most {
            return Err(CodingError::TooLarge(most));
        }
        body = Bytes::from(expanded);
    }
    Ok(body)
}

/// An answer with its body expanded as it comes, if it is coded in a way that is known; else as it is.
pub(crate) fn expanded(response: reqwest::Response) -> reqwest::Response {
    let coding = match of(response.headers()).as_deref() {
        Ok([coding]) => *coding,
        _ => return response,
    };
    let (status, version) = (response.status(), response.version());
    let mut headers = response.headers().clone();
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder = None;
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(io::Error::other)?;
        let decoder = match &mut decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new(coding, &piece)?),
        };
        decoder.expand(&piece)
    });
    let mut plain = http::Response::new(reqwest::Body::wrap_stream(pieces));
    *plain.status_mut() = status;
    *plain.version_mut() = version;
    *plain.headers_mut() = headers;
    reqwest::Response::from(plain)
}

/// Expands a body that comes in pieces.
enum Decoder {
    Gzip(flate2::write::MultiGzDecoder<Sink>),
    Zlib(flate2::write::ZlibDecoder<Sink>),
    Deflate(flate2::write::DeflateDecoder<Sink>),
    Brotli(Box<brotli::DecompressorWriter<Sink>>),
    Zstd(zstd::stream::write::Decoder<'static, Sink>),
}

impl Decoder {
    /// For a body that begins with these bytes.
    fn new(coding: Coding, begins: &[u8]) -> io::Result<Self> {
        let sink = Sink::default();
        Ok(match coding {
            Coding::Gzip => Self::Gzip(flate2::write::MultiGzDecoder::new(sink)),
            Coding::Deflate if has_zlib_head(begins) => {
                Self::Zlib(flate2::write::ZlibDecoder::new(sink))
            }
            Coding::Deflate => Self::Deflate(flate2::write::DeflateDecoder::new(sink)),
            Coding::Brotli => {
                Self::Brotli(Box::new(brotli::DecompressorWriter::new(sink, 1 << 14)))
            }
            Coding::Zstd => Self::Zstd(zstd::stream::write::Decoder::new(sink)?),
        })
    }

    /// What a further piece expands to. Nothing of it waits for the next piece.
    fn expand(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        fn through(decoder: &mut impl Write, piece: &[u8]) -> io::Result<()> {
            decoder.write_all(piece)?;
            decoder.flush()
        }
        let sink = match self {
            Self::Gzip(decoder) => through(decoder, piece).map(|()| decoder.get_mut()),
            Self::Zlib(decoder) => through(decoder, piece).map(|()| decoder.get_mut()),
            Self::Deflate(decoder) => through(decoder, piece).map(|()| decoder.get_mut()),
            Self::Brotli(decoder) => through(decoder, piece).map(|()| decoder.get_mut()),
            Self::Zstd(decoder) => through(decoder, piece).map(|()| decoder.get_mut()),
        };
        sink.map(|sink| Bytes::from(std::mem::take(&mut sink.0)))
    }
}

/// Takes what comes out, up to a bound.
#[derive(Debug, Default)]
struct Sink(Vec<u8>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LARGEST_PIECE {
            return Err(io::Error::other("a piece of it expands to more than 64 MB"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
