//! Decompression of stored data, with a limit on the size.
//!
//! Damaged data can claim any size. The limit keeps it from allocating all memory.

use crate::error::StoreError;

/// The largest decompressed size in bytes that an undamaged file can contain. It limits what a
/// damaged one can allocate.
const MAX_PIECE_BYTES: usize = 1 << 30;

/// Converts a failure of the compression library to [`StoreError::Damaged`], since the store only
/// decompresses what it has written.
pub(super) fn damaged(error: std::io::Error) -> StoreError {
    StoreError::Damaged(error.to_string().into())
}

/// Decompresses data to exactly `bytes` bytes, which is the stored size. An impossible size or
/// corrupt data is [`StoreError::Damaged`].
pub(crate) fn decompress(data: &[u8], bytes: i64) -> Result<Vec<u8>, StoreError> {
    let bytes = usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_PIECE_BYTES)
        .ok_or_else(|| StoreError::Damaged("an impossible size".into()))?;
    zstd::bulk::decompress(data, bytes).map_err(damaged)
}
