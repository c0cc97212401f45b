//! Reads the size of an image from the first bytes of its base64 text.
//!
//! The price of an image depends on its size in pixels, and messages rarely state it.
//! [`image_size`] decodes only the header, because images can have megabytes. Most formats have
//! the size at a fixed position near the start. JPEG is the exception: metadata of any length
//! can come first, so more is decoded if needed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use imagesize::{ImageError, blob_size};

/// The number of bytes of the base64 text that are decoded at first. It is enough for every
/// format except JPEG, whose size can follow long metadata.
const HEAD: usize = 1 << 10;
/// The maximum number of bytes that are decoded, for JPEG files with long metadata.
const JPEG_HEAD: usize = 1 << 20;

/// Returns the width and height in pixels of a PNG, JPEG, GIF or WebP image, given as base64
/// text or as a `data:` URL. `None` if the text is something else, such as a web address, or if
/// the header is damaged.
pub fn image_size(base64: &str) -> Option<(u32, u32)> {
    let data = match base64.strip_prefix("data:") {
        Some(url) => url.split_once(',')?.1,
        None => base64,
    };
    let size = match blob_size(&decode_head(data, HEAD)?) {
        // The header continues after what was decoded, so more of it is needed.
        Err(ImageError::IoError(_)) => blob_size(&decode_head(data, JPEG_HEAD)?),
        size => size,
    };
    let size = size.ok()?;
    let (width, height) = (size.width.try_into().ok()?, size.height.try_into().ok()?);
    (width > 0 && height > 0).then_some((width, height))
}

/// Decodes the first `limit` characters of base64 text. Line breaks and the backslashes of
/// escaped slashes are skipped. `None` if the text is not base64.
fn decode_head(data: &str, limit: usize) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = data
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'\\')
        .take_while(|byte| *byte != b'=')
        .take(limit)
        .collect();
    // Only whole groups of four are decoded, so that neither padding nor the cut matters.
    text.truncate(text.len() / 4 * 4);
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests;
