//! Content codings: gzip, deflate, brotli and zstd.
//!
//! Compressed requests are expanded by [`expand`] before they are read, within the size limit for
//! requests. Providers are asked not to compress answers that the gateway has to read. If one does
//! anyway, [`expand_response`] expands the answer as it arrives, and [`compress_response`]
//! compresses the client's answer in the same way, so that the client receives what it would
//! receive without the gateway. What came as brotli goes on plain, because its encoder would be
//! 0.8 MB of the program.
//!
//! Answers that pass unread keep their coding. For streams, every piece is flushed, so that no
//! event waits in a compressor.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use futures_util::{StreamExt, stream};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue};
use http_body::Frame;

/// A content coding that the gateway can read. It writes all but brotli. The names are those of
/// HTTP's registry.
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

/// An encoder or decoder that takes the pieces of a body and collects its output.
trait Codec: Write + Send {
    /// The collected output, which the caller takes out after each piece.
    fn out(&mut self) -> &mut OutputBuffer;
    /// Ends the stream, and writes what an encoder still holds. Called once, after the last piece.
    ///
    /// # Errors
    /// A decoder has not reached the end of its stream, so the body was cut short.
    fn end(&mut self) -> io::Result<()>;
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

macro_rules! codec {
    ($kind:ty, $end:ident) => {
        impl Codec for $kind {
            fn out(&mut self) -> &mut OutputBuffer {
                self.get_mut()
            }

            fn end(&mut self) -> io::Result<()> {
                codec!(@$end self)
            }
        }
    };
    (@finish $own:ident) => { $own.try_finish() };
    (@close $own:ident) => { $own.close() };
    (@do_finish $own:ident) => { $own.do_finish() };
    // These decoders do not check that their stream is complete, but take no byte after its end.
    (@take_no_more $own:ident) => {
        match $own.write(&[0]) {
            Ok(0) => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
}

codec!(flate2::write::MultiGzDecoder<OutputBuffer>, finish);
codec!(flate2::write::ZlibDecoder<OutputBuffer>, take_no_more);
codec!(flate2::write::DeflateDecoder<OutputBuffer>, take_no_more);
codec!(flate2::write::GzEncoder<OutputBuffer>, finish);
codec!(flate2::write::ZlibEncoder<OutputBuffer>, finish);
codec!(brotli_decompressor::DecompressorWriter<OutputBuffer>, close);
codec!(
    zstd::stream::write::Decoder<'static, OutputBuffer>,
    do_finish
);
codec!(
    zstd::stream::write::Encoder<'static, OutputBuffer>,
    do_finish
);

/// Creates an encoder. None for brotli, which is only read.
fn encoder(coding: Coding) -> io::Result<Option<Box<dyn Codec>>> {
    // The fastest level is enough, because the answer is compressed while it is streamed.
    let (sink, level) = (OutputBuffer::default(), flate2::Compression::fast());
    Ok(Some(match coding {
        Coding::Gzip => Box::new(flate2::write::GzEncoder::new(sink, level)),
        Coding::Deflate => Box::new(flate2::write::ZlibEncoder::new(sink, level)),
        Coding::Zstd => Box::new(zstd::stream::write::Encoder::new(sink, 1)?),
        Coding::Brotli => return Ok(None),
    }))
}

/// Creates a decoder. `begins` is the first piece of the body, which shows the kind of `deflate`.
fn decoder(coding: Coding, begins: &[u8]) -> io::Result<Box<dyn Codec>> {
    let sink = OutputBuffer::default();
    Ok(match coding {
        Coding::Gzip => Box::new(flate2::write::MultiGzDecoder::new(sink)),
        Coding::Deflate if has_zlib_head(begins) => Box::new(flate2::write::ZlibDecoder::new(sink)),
        Coding::Deflate => Box::new(flate2::write::DeflateDecoder::new(sink)),
        Coding::Brotli => Box::new(brotli_decompressor::DecompressorWriter::new(sink, 1 << 14)),
        Coding::Zstd => Box::new(zstd::stream::write::Decoder::new(sink)?),
    })
}

/// Pushes a piece through an encoder or decoder, and returns its output.
fn push(codec: &mut dyn Codec, piece: &[u8], is_last: bool) -> io::Result<Bytes> {
    codec.write_all(piece)?;
    // The client must see the output before the next piece arrives.
    match is_last {
        true => codec.end()?,
        false => codec.flush()?,
    }
    Ok(Bytes::from(std::mem::take(&mut codec.out().0)))
}

/// The coding that a provider's answer had before it was expanded. Kept in the extensions of the
/// response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginalCoding(Coding);

/// Returns the answer with its body expanded as it arrives. An answer without a coding, in an
/// unknown one or in several is returned unchanged.
///
/// If the compressed data ends too early, the body ends with an error, even if the provider ended
/// it properly. The client would otherwise get a shortened answer that looks complete.
pub(crate) fn expand_response(response: reqwest::Response) -> reqwest::Response {
    let codings = match of(response.headers()).as_deref() {
        Ok([coding]) => *coding,
        _ => return response,
    };
    let (status, version) = (response.status(), response.version());
    let mut headers = response.headers().clone();
    // Both headers describe the compressed bytes.
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder_of_it: Option<Box<dyn Codec>> = None;
    let pieces = response.bytes_stream().map(Some);
    // None stands for the end of the body.
    let pieces = pieces
        .chain(stream::once(async { None }))
        .map(move |piece| {
            let Some(piece) = piece.transpose().map_err(io::Error::other)? else {
                return match &mut decoder_of_it {
                    Some(codec) => push(codec.as_mut(), &[], true),
                    // An empty body has no coding that could be incomplete.
                    None => Ok(Bytes::new()),
                };
            };
            let codec = match &mut decoder_of_it {
                Some(codec) => codec,
                // Only the first bytes show the kind of `deflate`.
                none => none.insert(decoder(codings, &piece)?),
            };
            push(codec.as_mut(), &piece, false)
        });
    let mut plain = http::Response::new(reqwest::Body::wrap_stream(pieces));
    *plain.status_mut() = status;
    *plain.version_mut() = version;
    *plain.headers_mut() = headers;
    plain.extensions_mut().insert(OriginalCoding(codings));
    reqwest::Response::from(plain)
}

/// The coding that a provider's answer had, if a client with this `accept-encoding` header accepts
/// it.
pub(crate) fn client_coding(
    response: &reqwest::Response,
    accepts: Option<&HeaderValue>,
) -> Option<Coding> {
    let OriginalCoding(coding) = *response.extensions().get::<OriginalCoding>()?;
    let Some(accepts) = accepts else {
        // According to HTTP, a client without the header accepts every coding.
        return Some(coding);
    };
    let accepts = String::from_utf8_lossy(accepts.as_bytes()).to_ascii_lowercase();
    let takes = accepts.split(',').any(|one| {
        let mut words = one.split(';').map(str::trim);
        let name = words.next().unwrap_or_default();
        let is_refused = words.any(|word| matches!(word, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        (name == coding.name() || name == "*") && !is_refused
    });
    takes.then_some(coding)
}

pub(crate) fn accepted_codings(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ACCEPT_ENCODING).cloned()
}

/// Compresses an answer like the provider's. If that was brotli, or the encoder cannot be created,
/// the answer is returned uncompressed.
pub(crate) fn compress_response(answer: Response, coding: Coding) -> Response {
    let (mut parts, body) = answer.into_parts();
    let codec = match encoder(coding) {
        Ok(Some(codec)) => codec,
        Ok(None) => return Response::from_parts(parts, body),
        Err(error) => {
            tracing::warn!("cannot compress an answer, so it is sent uncompressed: {error}");
            return Response::from_parts(parts, body);
        }
    };
    parts.headers.remove(CONTENT_LENGTH);
    parts
        .headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    let body = CompressedBody {
        body,
        codec,
        trailers: None,
        is_over: false,
    };
    Response::from_parts(parts, Body::new(body))
}

/// A body that is compressed frame by frame. The encoder's end and the trailers follow after the
/// last frame.
struct CompressedBody {
    body: Body,
    codec: Box<dyn Codec>,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl CompressedBody {
    fn last(&mut self) -> Result<Frame<Bytes>, axum::Error> {
        self.is_over = true;
        let last = push(self.codec.as_mut(), &[], true).map_err(axum::Error::new)?;
        Ok(Frame::data(last))
    }
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.is_over {
            return Poll::Ready(self.trailers.take().map(|own| Ok(Frame::trailers(own))));
        }
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(Some(match frame {
            None => self.last(),
            Some(Err(error)) => Err(error),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => push(self.codec.as_mut(), &piece, false)
                    .map(Frame::data)
                    .map_err(axum::Error::new),
                Err(other) => {
                    // Trailers are the last frame, and the encoder's rest has to precede them.
                    self.trailers = other.into_trailers().ok();
                    self.last()
                }
            },
        }))
    }
}
