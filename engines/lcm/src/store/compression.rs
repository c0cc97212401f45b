//! Compression of stored data.

use std::sync::Mutex;

use zstd::bulk::{Compressor, Decompressor};

use super::database::lock;
use crate::error::StoreError;

/// Turns are small: higher levels save 1 % for twice the time.
const LEVEL: i32 = 1;

/// Reusable compressors: creating one costs more than compressing a turn.
#[derive(Default)]
pub(super) struct Compressors(Mutex<Vec<Compressor<'static>>>);

impl Compressors {
    /// Compresses a block of messages.
    pub(super) fn compress(&self, bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
        let pooled = lock(&self.0).pop();
        let mut compressor = match pooled {
            Some(compressor) => compressor,
            None => {
                let mut new = Compressor::new(LEVEL).map_err(damaged)?;
                new.include_checksum(true).map_err(damaged)?;
                new
            }
        };
        let data = compressor.compress(bytes).map_err(damaged);
        lock(&self.0).push(compressor);
        data
    }
}

/// The largest decompressed size in an undamaged file, in bytes.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// Maps a failure of the library to damage of the file.
pub(super) fn damaged(error: std::io::Error) -> StoreError {
    StoreError::Damaged(error.to_string().into())
}

/// Decompresses data; `bytes` is the decompressed size.
pub(crate) fn decompress(
    decompressor: &mut Decompressor<'_>,
    data: &[u8],
    bytes: i64,
) -> Result<Vec<u8>, StoreError> {
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_PIECE_BYTES)
        .ok_or_else(|| StoreError::Damaged("an impossible size".into()))?;
    decompressor.decompress(data, bytes).map_err(damaged)
}
