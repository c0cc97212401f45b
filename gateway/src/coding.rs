//! Content codings: gzip, deflate, brotli and zstd.
//!
//! Compressed requests are expanded by [`expand`] before they are read, within the size limit for
//! requests. Providers are asked not to compress answers that the gateway has to read. If one does
//! anyway, [`expand_response`] expands the answer as it arrives, and the client gets it plain, which
//! every client accepts. Answers that pass unread keep their coding.
//!
//! A [`Decoder`] expands both. It ignores what follows the compressed data, as browsers do.

use std::io::{self, ErrorKind, Write};
use std::mem;

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::write::{DeflateDecoder, GzDecoder, ZlibDecoder};
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use zstd::stream::raw::{self, Operation as _};

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
    #[error("the decompressed request is larger than {} MB (`gateway.max_body_mb`)", .0 >> 20)]
    TooLarge(usize),
    #[error("cannot decompress the request body (content-encoding {coding}): {cause}")]
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
        let expanded = Decoder::new(*coding, &body, most).and_then(|mut all| all.end(&body));
        body = expanded.map_err(|cause| match cause.kind() {
            ErrorKind::FileTooLarge => CodingError::TooLarge(most),
            _ => CodingError::Broken {
                coding: coding.name(),
                cause,
            },
        })?;
    }
    Ok(body)
}

/// Collects output up to `most` bytes. Beyond that, writing fails.
#[derive(Debug, Default)]
struct OutputBuffer {
    bytes: Vec<u8>,
    most: usize,
}

impl Write for OutputBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            let message = format!("it expands to more than {} MB at once", self.most >> 20);
            return Err(io::Error::new(ErrorKind::FileTooLarge, message));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One complete run of compressed data: a member of gzip, a frame of zstd, or a whole stream of the
/// other codings. It takes no byte after its end: [`write`](Write::write) returns 0 then.
trait Member: Write + Send {
    fn out(&mut self) -> &mut OutputBuffer;

    /// Fails unless the member is complete.
    fn end(&mut self) -> io::Result<()>;

    /// Begins another member after one that is complete. Only gzip and zstd have more than one.
    fn restart(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Member for GzDecoder<OutputBuffer> {
    fn out(&mut self) -> &mut OutputBuffer {
        self.get_mut()
    }

    fn end(&mut self) -> io::Result<()> {
        self.try_finish()
    }

    fn restart(&mut self) -> io::Result<()> {
        let out = mem::take(self.get_mut());
        *self = Self::new(out);
        Ok(())
    }
}

impl Member for ZlibDecoder<OutputBuffer> {
    fn out(&mut self) -> &mut OutputBuffer {
        self.get_mut()
    }

    fn end(&mut self) -> io::Result<()> {
        end_of_deflate(self)
    }
}

impl Member for DeflateDecoder<OutputBuffer> {
    fn out(&mut self) -> &mut OutputBuffer {
        self.get_mut()
    }

    fn end(&mut self) -> io::Result<()> {
        end_of_deflate(self)
    }
}

/// Ends a stream of `deflate`, whose decoders do not check that it is complete.
fn end_of_deflate(writer: &mut impl Write) -> io::Result<()> {
    match writer.write(&[0]) {
        Ok(0) => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

impl Member for DecompressorWriter<OutputBuffer> {
    fn out(&mut self) -> &mut OutputBuffer {
        self.get_mut()
    }

    fn end(&mut self) -> io::Result<()> {
        self.close()
    }
}

/// A frame of zstd. The library's own writer does not tell when a frame ends.
struct ZstdFrame {
    decoder: raw::Decoder<'static>,
    buffer: Vec<u8>,
    out: OutputBuffer,
    has_ended: bool,
}

impl Write for ZstdFrame {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = bytes;
        while !self.has_ended {
            let status = self.decoder.run_on_buffers(rest, &mut self.buffer)?;
            let (written, is_full) = (
                status.bytes_written,
                status.bytes_written == self.buffer.len(),
            );
            self.out
                .write_all(self.buffer.get(..written).unwrap_or_default())?;
            rest = rest.get(status.bytes_read..).unwrap_or_default();
            self.has_ended = status.remaining == 0;
            // A full buffer may not have held all of the output.
            if rest.is_empty() && !is_full {
                break;
            }
        }
        Ok(bytes.len() - rest.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Member for ZstdFrame {
    fn out(&mut self) -> &mut OutputBuffer {
        &mut self.out
    }

    fn end(&mut self) -> io::Result<()> {
        match self.has_ended {
            true => Ok(()),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    fn restart(&mut self) -> io::Result<()> {
        self.has_ended = false;
        self.decoder.reinit()
    }
}

/// How many [members](Member) a piece of a body may have: 640 MB in the blocks of `bgzip`. Each takes
/// a tenth of a millisecond, even if it is empty and has 20 bytes.
const MAX_MEMBERS: usize = 10_000;

/// Undoes a coding, piece by piece. Bodies of gzip and zstd may have several [members](Member). What
/// follows the last one is ignored.
struct Decoder {
    coding: Coding,
    member: Box<dyn Member>,
    /// Whether the member is complete and something follows it.
    has_ended: bool,
    /// What follows it, as long as that may begin another member.
    held_back: Vec<u8>,
    /// Whether what follows it is no other member.
    is_over: bool,
}

impl Decoder {
    /// Creates a decoder. `begins` is the beginning of the body, which shows the kind of `deflate`. The
    /// output of each piece has at most `most` bytes.
    fn new(coding: Coding, begins: &[u8], most: usize) -> io::Result<Self> {
        let out = OutputBuffer {
            bytes: Vec::new(),
            most,
        };
        let member: Box<dyn Member> = match coding {
            Coding::Gzip => Box::new(GzDecoder::new(out)),
            Coding::Deflate if has_zlib_head(begins) => Box::new(ZlibDecoder::new(out)),
            Coding::Deflate => Box::new(DeflateDecoder::new(out)),
            Coding::Brotli => Box::new(DecompressorWriter::new(out, 1 << 14)),
            Coding::Zstd => Box::new(ZstdFrame {
                decoder: raw::Decoder::new()?,
                buffer: vec![0; 1 << 15],
                out,
                has_ended: false,
            }),
        };
        Ok(Self {
            coding,
            member,
            has_ended: false,
            held_back: Vec::new(),
            is_over: false,
        })
    }

    /// Takes the next piece of the body and returns its output.
    fn next(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.read(piece)?;
        if !self.has_ended {
            // The client must see the output before the next piece arrives.
            self.member.flush()?;
        }
        Ok(Bytes::from(mem::take(&mut self.member.out().bytes)))
    }

    /// Takes the last piece of the body and returns its output. Fails if the body was cut short.
    fn end(&mut self, piece: &[u8]) -> io::Result<Bytes> {
        self.read(piece)?;
        if !self.has_ended {
            self.member.flush()?;
            self.member.end()?;
        }
        Ok(Bytes::from(mem::take(&mut self.member.out().bytes)))
    }

    fn read(&mut self, piece: &[u8]) -> io::Result<()> {
        let mut joined = mem::take(&mut self.held_back);
        let mut rest = match joined.is_empty() {
            true => piece,
            false => {
                joined.extend_from_slice(piece);
                &joined
            }
        };
        let mut members = 1;
        while !rest.is_empty() && !self.is_over {
            if !self.has_ended {
                let taken = self.member.write(rest)?;
                rest = rest.get(taken..).unwrap_or_default();
                if taken > 0 {
                    continue;
                }
                self.member.end()?;
                self.has_ended = true;
            }
            match begins_member(self.coding, rest) {
                Some(true) if members == MAX_MEMBERS => {
                    return Err(io::Error::other("it has too many compressed parts"));
                }
                Some(true) => {
                    members += 1;
                    self.member.restart()?;
                    self.has_ended = false;
                }
                Some(false) => self.is_over = true,
                None => {
                    self.held_back = rest.to_vec();
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Whether bytes after a complete member begin another one. None if more bytes are needed to tell.
fn begins_member(coding: Coding, bytes: &[u8]) -> Option<bool> {
    let begins = match (coding, bytes.first()) {
        (Coding::Gzip, _) => vec![0x1f, 0x8b],
        // A frame without content, which some encoders write before each other frame.
        (Coding::Zstd, Some(first @ 0x50..=0x5f)) => vec![*first, 0x2a, 0x4d, 0x18],
        (Coding::Zstd, _) => vec![0x28, 0xb5, 0x2f, 0xfd],
        (Coding::Deflate | Coding::Brotli, _) => return Some(false),
    };
    let is_short = bytes.len() < begins.len() && begins.starts_with(bytes);
    (!is_short).then(|| bytes.starts_with(&begins))
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
    let mut decoder: Option<Decoder> = None;
    let pieces = response.bytes_stream().map(Some);
    // None stands for the end of the body.
    let pieces = pieces
        .chain(stream::once(async { None }))
        .map(move |piece| {
            let Some(piece) = piece.transpose().map_err(io::Error::other)? else {
                return match &mut decoder {
                    Some(decoder) => decoder.end(&[]),
                    // An empty body has no coding that could be incomplete.
                    None => Ok(Bytes::new()),
                };
            };
            let decoder = match &mut decoder {
                Some(decoder) => decoder,
                // Only the first bytes show the kind of `deflate`.
                none => none.insert(Decoder::new(coding, &piece, MAX_PIECE_BYTES)?),
            };
            decoder.next(&piece)
        });
    let mut plain = http::Response::new(reqwest::Body::wrap_stream(pieces));
    *plain.status_mut() = status;
    *plain.version_mut() = version;
    *plain.headers_mut() = headers;
    reqwest::Response::from(plain)
}

#[cfg(test)]
mod tests;
