//! Content codings. Compressed requests are expanded before they are read. So are answers of providers that compress
//! although they were asked not to.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use futures_util::StreamExt;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap, HeaderValue};
use http_body::Frame;

/// A content coding that the gateway can read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

/// How many codings of one body are undone at most. Nobody needs more than two.
const MOST: usize = 4;

/// How much one piece of an answer may expand to. No model writes this much at once.
const LARGEST_PIECE: usize = 64 << 20;

/// Why a body cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodingError {
    /// The gateway does not support the coding.
    #[error(
        "the gateway does not know the content-encoding `{0}`: send gzip, deflate, br or zstd, at most four of them, \
         or none"
    )]
    Unknown(String),
    /// It is larger than a request may be.
    #[error("the request is larger than {} MB when it is expanded (`gateway.max_body_mb`)", .0 >> 20)]
    TooLarge(usize),
    /// The bytes do not match the header.
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

/// Whether these bytes begin like a zlib stream. Some senders leave that header out of `deflate`, against the standard.
fn has_zlib_head(bytes: &[u8]) -> bool {
    let [method, flags, ..] = bytes else {
        return true;
    };
    method & 0xf == 8 && (u16::from(*method) << 8 | u16::from(*flags)) % 31 == 0
}

/// Expands a body to at most `most` bytes in each layer of coding. Blocks.
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

/// An encoder or decoder that takes pieces of a body and collects its output.
trait Pipe: Write + Send {
    fn out(&mut self) -> &mut Sink;
    /// Ends the stream and writes what an encoder still holds.
    fn end(&mut self) -> io::Result<()>;
}

/// Collects the output, up to a limit.
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

macro_rules! pipe {
    ($kind:ty, $end:ident) => {
        impl Pipe for $kind {
            fn out(&mut self) -> &mut Sink {
                self.get_mut()
            }

            fn end(&mut self) -> io::Result<()> {
                pipe!(@$end self)
            }
        }
    };
    (@finish $own:ident) => { $own.try_finish() };
    (@flush $own:ident) => { $own.flush() };
}

pipe!(flate2::write::MultiGzDecoder<Sink>, finish);
pipe!(flate2::write::ZlibDecoder<Sink>, finish);
pipe!(flate2::write::DeflateDecoder<Sink>, finish);
pipe!(flate2::write::GzEncoder<Sink>, finish);
pipe!(flate2::write::ZlibEncoder<Sink>, finish);
pipe!(brotli::DecompressorWriter<Sink>, flush);
pipe!(zstd::stream::write::Decoder<'static, Sink>, flush);

/// Wraps an encoder that can only be finished by value.
struct Ending<E> {
    encoder: Option<E>,
    ended: Sink,
    finish: fn(E) -> io::Result<Sink>,
    out: fn(&mut E) -> &mut Sink,
}

impl<E: Write> Write for Ending<E> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.encoder
            .as_mut()
            .map_or(Ok(0), |encoder| encoder.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl<E: Write + Send> Pipe for Ending<E> {
    fn out(&mut self) -> &mut Sink {
        match &mut self.encoder {
            Some(encoder) => (self.out)(encoder),
            None => &mut self.ended,
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(encoder) = self.encoder.take() {
            self.ended = (self.finish)(encoder)?;
        }
        Ok(())
    }
}

type Brotli = brotli::CompressorWriter<Sink>;
type Zstd = zstd::stream::write::Encoder<'static, Sink>;

/// Brotli's quality and window for output that is written as it arrives.
const BROTLI: (u32, u32) = (4, 20);

fn encoder(coding: Coding) -> io::Result<Box<dyn Pipe>> {
    let (sink, level) = (Sink::default(), flate2::Compression::fast());
    Ok(match coding {
        Coding::Gzip => Box::new(flate2::write::GzEncoder::new(sink, level)),
        Coding::Deflate => Box::new(flate2::write::ZlibEncoder::new(sink, level)),
        Coding::Brotli => Box::new(Ending {
            encoder: Some(Brotli::new(sink, 1 << 12, BROTLI.0, BROTLI.1)),
            ended: Sink::default(),
            finish: |encoder| Ok(encoder.into_inner()),
            out: Brotli::get_mut,
        }),
        Coding::Zstd => Box::new(Ending {
            encoder: Some(Zstd::new(sink, 1)?),
            ended: Sink::default(),
            finish: Zstd::finish,
            out: Zstd::get_mut,
        }),
    })
}

fn decoder(coding: Coding, begins: &[u8]) -> io::Result<Box<dyn Pipe>> {
    let sink = Sink::default();
    Ok(match coding {
        Coding::Gzip => Box::new(flate2::write::MultiGzDecoder::new(sink)),
        Coding::Deflate if has_zlib_head(begins) => Box::new(flate2::write::ZlibDecoder::new(sink)),
        Coding::Deflate => Box::new(flate2::write::DeflateDecoder::new(sink)),
        Coding::Brotli => Box::new(brotli::DecompressorWriter::new(sink, 1 << 14)),
        Coding::Zstd => Box::new(zstd::stream::write::Decoder::new(sink)?),
    })
}

/// Pushes a piece through and returns the output.
fn push(pipe: &mut dyn Pipe, piece: &[u8], is_last: bool) -> io::Result<Bytes> {
    pipe.write_all(piece)?;
    // The output must be visible before the next piece arrives.
    match is_last {
        true => pipe.end()?,
        false => pipe.flush()?,
    }
    Ok(Bytes::from(std::mem::take(&mut pipe.out().0)))
}

/// The coding that a provider's answer had before it was expanded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coded(Coding);

/// The answer with its body expanded as it arrives. An answer in an unknown coding is returned unchanged.
pub(crate) fn expanded(response: reqwest::Response) -> reqwest::Response {
    let codings = match of(response.headers()).as_deref() {
        Ok([coding]) => *coding,
        _ => return response,
    };
    let (status, version) = (response.status(), response.version());
    let mut headers = response.headers().clone();
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder_of_it = None;
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(io::Error::other)?;
        let pipe = match &mut decoder_of_it {
            Some(pipe) => pipe,
            none => none.insert(decoder(codings, &piece)?),
        };
        push(pipe.as_mut(), &piece, false)
    });
    let mut plain = http::Response::new(reqwest::Body::wrap_stream(pieces));
    *plain.status_mut() = status;
    *plain.version_mut() = version;
    *plain.headers_mut() = headers;
    plain.extensions_mut().insert(Coded(codings));
    reqwest::Response::from(plain)
}

/// The coding of a provider's answer, if a client with these headers accepts it.
pub(crate) fn for_client(
    response: &reqwest::Response,
    accepts: Option<&HeaderValue>,
) -> Option<Coding> {
    let Coded(coding) = *response.extensions().get::<Coded>()?;
    let Some(accepts) = accepts else {
        // A client without the header accepts every coding.
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

/// The codings that a client accepts.
pub(crate) fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(ACCEPT_ENCODING).cloned()
}

/// Compresses an answer like the provider's, so that the client receives what it would receive without the gateway.
pub(crate) fn coded(answer: Response, coding: Coding) -> Response {
    let (mut parts, body) = answer.into_parts();
    let pipe = match encoder(coding) {
        Ok(pipe) => pipe,
        Err(error) => {
            tracing::warn!("an answer is sent without its content-encoding: {error}");
            return Response::from_parts(parts, body);
        }
    };
    parts.headers.remove(CONTENT_LENGTH);
    parts
        .headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    let body = CodedBody {
        body,
        pipe,
        trailers: None,
        is_over: false,
    };
    Response::from_parts(parts, Body::new(body))
}

struct CodedBody {
    body: Body,
    pipe: Box<dyn Pipe>,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl CodedBody {
    fn last(&mut self) -> Result<Frame<Bytes>, axum::Error> {
        self.is_over = true;
        let last = push(self.pipe.as_mut(), &[], true).map_err(axum::Error::new)?;
        Ok(Frame::data(last))
    }
}

impl http_body::Body for CodedBody {
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
                Ok(piece) => push(self.pipe.as_mut(), &piece, false)
                    .map(Frame::data)
                    .map_err(axum::Error::new),
                Err(other) => {
                    self.trailers = other.into_trailers().ok();
                    self.last()
                }
            },
        }))
    }
}
