//! Carries the protocol over a stream of bytes: each frame is its length in bytes, as eight bytes with the lowest
//! first, and JSON text.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use super::{Call, read, write};
use crate::error::EngineError;

/// What stands on the stream. A call is answered by the next frame of the other side, which may make calls itself
/// before that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Frame {
    /// A call.
    Call(Call),
    /// A call of a session's services outside of a call of its engine, by the session's number.
    Beside(u64, Call),
    /// The answer to a call.
    Answer(Result<String, EngineError>),
}

/// No frame is longer than this, in bytes: what says so is no length.
const MAX_FRAME: u64 = 1 << 34;

impl Frame {
    /// Writes it.
    ///
    /// # Errors
    /// [`EngineError::Gone`] where the stream has ended.
    pub fn send(&self, to: &mut impl Write) -> Result<(), EngineError> {
        let text = write(self)?;
        let mut bytes = Vec::with_capacity(8 + text.len());
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        to.write_all(&bytes).map_err(gone)
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// [`EngineError::Gone`] where the stream has ended; [`EngineError::Protocol`] for what is no frame.
    pub fn receive(from: &mut impl Read) -> Result<Self, EngineError> {
        let mut length = [0; 8];
        from.read_exact(&mut length).map_err(gone)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_FRAME {
            return Err(EngineError::Protocol(format!("a frame of {length} bytes")));
        }
        // Room for it at once, within reason: one read then takes all of it.
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
