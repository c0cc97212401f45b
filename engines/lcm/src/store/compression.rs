//! Decompression of stored data, with a limit on the size.
//!
//! Damaged data can claim any size. The limit keeps it from allocating all memory.

use std::cell::RefCell;

use zstd::bulk::Decompressor;

use crate::error::StoreError;

/// The largest decompressed size in bytes that an undamaged file can contain. It limits what a
/// damaged one can allocate.
const MAX_PIECE_BYTES: usize = 1 << 30;

thread_local! {
    // It takes longer to make than most texts to unpack, so each thread keeps its own.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

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
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().map_err(damaged)?),
        };
        decompressor.decompress(data, bytes).map_err(damaged)
    })
}
