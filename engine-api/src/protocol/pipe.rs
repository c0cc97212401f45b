//! The protocol on a stream of bytes.
//!
//! A host that runs an engine in another process sends calls over a socket. Each [`Frame`] on it is
//! a length in bytes, written as eight bytes in little-endian order, followed by that many bytes of
//! JSON text. [`Frame::send`] writes one and [`Frame::receive`] waits for one.
//!
//! The stream has no numbers for calls. The side that made a call reads until it finds the answer,
//! and it may have to answer calls of the other side in between. If the stream ends, both functions
//! return [`EngineError::Gone`], which is how a host notices that an engine's process died.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::{Call, read, write};
use crate::error::EngineError;

/// One frame on the stream. The answer to a call is the next answer frame from the other side.
/// Before it answers, the other side may make calls of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Frame {
    /// A call of a method or a service.
    Call(Call),
    /// A call of a service that an engine makes outside of any call to it, for example from its own
    /// thread. The number identifies the session.
    Beside(u64, Call),
    /// The answer to a call, as JSON text or an error.
    Answer(Result<String, EngineError>),
}

/// The largest length of a frame, in bytes. If a length is larger, the stream is broken.
const MAX_FRAME: u64 = 1 << 34;

impl Frame {
    /// Writes the frame from one buffer, length first.
    ///
    /// # Errors
    /// Returns [`EngineError::Gone`] if the stream has ended.
    pub fn send(&self, to: &mut impl Write) -> Result<(), EngineError> {
        let text = write(self)?;
        let mut bytes = Vec::with_capacity(8 + text.len());
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        to.write_all(&bytes).map_err(gone)
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// Returns [`EngineError::Gone`] if the stream has ended, and [`EngineError::Protocol`] if the
    /// bytes are not a frame.
    pub fn receive(from: &mut impl Read) -> Result<Self, EngineError> {
        let mut length = [0; 8];
        from.read_exact(&mut length).map_err(gone)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_FRAME {
            return Err(EngineError::Protocol(format!("a frame of {length} bytes")));
        }
        // Reserve the space in advance, so that one read fills it. The length comes from the other
        // side, so at most 1 MiB is reserved before any of it has arrived.
        let mut text = String::with_capacity(length.min(1 << 20) as usize);
        let read_bytes = from.take(length).read_to_string(&mut text).map_err(gone)?;
        if (read_bytes as u64) < length {
            return Err(EngineError::Gone("the stream ended in a frame".to_owned()));
        }
        read(&text)
    }
}

fn gone(error: std::io::Error) -> EngineError {
    EngineError::Gone(error.to_string())
}
