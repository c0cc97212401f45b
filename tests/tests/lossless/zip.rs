//! The first file of a zip archive.

use std::io::Read;
use std::path::Path;

/// Its text. The archive's name for it and the other entries do not matter here.
pub(crate) fn first_file(archive: &Path) -> String {
    let bytes = std::fs::read(archive).unwrap();
    assert_eq!(
        &bytes[..4],
        b"PK\x03\x04",
        "a zip archive begins with a file"
    );
    let number = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    assert_eq!(number(8), 8, "the file is deflated");
    // The header ends in the name and in an extra field, both of the length that it says.
    let data = &bytes[30 + number(26) + number(28)..];
    let mut text = String::new();
    flate2::read::DeflateDecoder::new(data)
        .read_to_string(&mut text)
        .unwrap();
    text
}
