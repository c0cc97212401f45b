//! Content codings: gzip, deflate, brotli and zstd.
//!
//! Compressed requests are expanded by [`expand`] before they are read, within the size limit for
//! requests. Providers are asked not to compress answers that the gateway has to read. If one does
//! anyway, [`expand_response`] expands the answer as it arrives, and the client gets it plain, which
//! every client accepts. Answers that pass unread keep their coding.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};

/// A content coding that the gateway can read. The names are those of HTTP's registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// The most codings of one body that are undone. Nobody needs more than two, and each one can
/// multiply the size.
const MAX_CODINGS: usize = 4;

/// The most bytes that one piece of an answer may expand to. No model writes this much at once, so
/// a larger piece is an attack or a fault.
const MAX_PIECE_BYTES: usize = 64 << 20;

/// Why the body of a request cannot be expanded. The message goes to the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodingError {
    /// A coding is unknown. Holds its name.
    #[error(
        "the content-encoding `{0}` is not supported: send gzip, deflate, br or zstd, at most four of them, or none"
    )]
    Unknown(String),
    /// There are more codings than [`MAX_CODINGS`]. Holds their number.
    #[error("the request has {0} content-encodings: send at most four")]
    TooMany(usize),
    /// The expanded body is larger than a request may be.
    #[error("the request is larger than {} MB when it is expanded (`gateway.max_body_mb`)", .0 >> 20)]
    TooLarge(usize),
    #[error("cannot expand the request as {coding}, which its content-encoding names: {cause}")]
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

/// The codings of a message, in the order in which they were applied. Empty if there are none.
///
/// # Errors
/// A coding is not known, or there are more than [`MAX_CODINGS`].
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
    match codings.len() > MAX_CODINGS {
        true => Err(CodingError::TooMany(codings.len())),
        false => Ok(codings),
    }
}

/// Whether these bytes begin like a zlib stream. Some senders leave that header out of `deflate`,
/// against the standard.
fn has_zlib_head(bytes: &[u8]) -> bool {
    let [method, flags, ..] = bytes else {
        return true;
    };
    method & 0xf == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
}

/// Expands a body by undoing its codings in reverse order. Each layer may expand to at most `most`
/// bytes. Blocks.
///
/// # Errors
/// A layer is larger than that, or the bytes do not match its coding.
pub(crate) fn expand(body: Bytes, codings: &[Coding], most: usize) -> Result<Bytes, CodingError> {
    let mut body = body;
    // The coding that was applied last is undone first.
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
            Coding::Brotli => Box::new(brotli_decompressor::Decompressor::new(bytes, 1 << 14)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(bytes).map_err(broken)?),
        };
        let mut expanded = Vec::new();
        // One byte more than allowed is enough to see that the body is too large.
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

/// Collects output up to [`MAX_PIECE_BYTES`] bytes. Beyond that, writing fails.
#[derive(Debug, Default)]
struct OutputBuffer(Vec<u8>);

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_PIECE_BYTES {
            return Err(io::Error::other(
                "a piece of the answer expands to more than 64 MB",
            ));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes the next piece of a body and returns its output. The last piece comes with true. It fails if
/// the body was cut short.
type Decoder = Box<dyn FnMut(&[u8], bool) -> io::Result<Bytes> + Send>;

/// Makes a decoder of a writer with its output and the end of its stream.
fn decoder_of<W: Write + Send + 'static>(
    mut writer: W,
    out: fn(&mut W) -> &mut OutputBuffer,
    end: fn(&mut W) -> io::Result<()>,
) -> Decoder {
    Box::new(move |piece, is_last| {
        writer.write_all(piece)?;
        // The client must see the output before the next piece arrives.
        match is_last {
            true => end(&mut writer)?,
            false => writer.flush()?,
        }
        Ok(Bytes::from(std::mem::take(&mut out(&mut writer).0)))
    })
}

/// Ends a stream of `deflate`, whose decoders do not check that it is complete, but take no byte after
/// its end.
fn end_of_deflate<W: Write>(writer: &mut W) -> io::Result<()> {
    match writer.write(&[0]) {
        Ok(0) => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Creates a decoder. `begins` is the first piece of the body, which shows the kind of `deflate`.
fn decoder(coding: Coding, begins: &[u8]) -> io::Result<Decoder> {
    use brotli_decompressor::DecompressorWriter;
    use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

    let sink = OutputBuffer::default();
    Ok(match coding {
        Coding::Gzip => decoder_of(
            MultiGzDecoder::new(sink),
            MultiGzDecoder::get_mut,
            MultiGzDecoder::try_finish,
        ),
        Coding::Deflate if has_zlib_head(begins) => {
            decoder_of(ZlibDecoder::new(sink), ZlibDecoder::get_mut, end_of_deflate)
        }
        Coding::Deflate => decoder_of(
            DeflateDecoder::new(sink),
            DeflateDecoder::get_mut,
            end_of_deflate,
        ),
        Coding::Brotli => decoder_of(
            DecompressorWriter::new(sink, 1 << 14),
            DecompressorWriter::get_mut,
            DecompressorWriter::close,
        ),
        Coding::Zstd => decoder_of(
            zstd::stream::write::Decoder::new(sink)?,
            |decoder| decoder.get_mut(),
            |decoder| decoder.do_finish(),
        ),
    })
}

/// Returns the answer with its body expanded as it arrives. An answer without a coding, in an
/// unknown one or in several is returned unchanged.
///
/// If the compressed data ends too early, the body ends with an error, even if the provider ended
/// it properly. The client would otherwise get a shortened answer that looks complete.
pub(crate) fn expand_response(response: reqwest::Response) -> reqwest::Response {
    let coding = match of(response.headers()).as_deref() {
        Ok([coding]) => *coding,
        _ => return response,
    };
    let (status, version) = (response.status(), response.version());
    let mut headers = response.headers().clone();
    // Both headers describe the compressed bytes.
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder_of_it: Option<Decoder> = None;
    let pieces = response.bytes_stream().map(Some);
    // None stands for the end of the body.
    let pieces = pieces
        .chain(stream::once(async { None }))
        .map(move |piece| {
            let Some(piece) = piece.transpose().map_err(io::Error::other)? else {
                return match &mut decoder_of_it {
                    Some(decode) => decode(&[], true),
                    // An empty body has no coding that could be incomplete.
                    None => Ok(Bytes::new()),
                };
            };
            let decode = match &mut decoder_of_it {
                Some(decode) => decode,
                // Only the first bytes show the kind of `deflate`.
                none => none.insert(decoder(coding, &piece)?),
            };
            decode(&piece, false)
        });
    let mut plain = http::Response::new(reqwest::Body::wrap_stream(pieces));
    *plain.status_mut() = status;
    *plain.version_mut() = version;
    *plain.headers_mut() = headers;
    reqwest::Response::from(plain)
}
