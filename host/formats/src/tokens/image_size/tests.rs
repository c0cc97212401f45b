use super::*;
use proptest::prelude::*;

fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    image_size(&STANDARD.encode(bytes))
}

fn png_bytes(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([8, 6, 0, 0, 0]);
    bytes
}

/// Returns a JPEG whose frame header follows `metadata` bytes of APP2.
fn jpeg_bytes(width: u16, height: u16, metadata: usize) -> Vec<u8> {
    let mut bytes = vec![0xFF, 0xD8];
    let mut left = metadata;
    while left > 0 {
        let part = left.min(60_000);
        bytes.extend([0xFF, 0xE2]);
        bytes.extend((part as u16 + 2).to_be_bytes());
        bytes.extend(vec![0xAB; part]);
        left -= part;
    }
    bytes.extend([0xFF, 0xC2, 0, 17, 8]);
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1]);
    bytes
}

#[test]
fn reads_every_format() {
    assert_eq!(size(&png_bytes(1920, 1080)), Some((1920, 1080)));
    assert_eq!(size(b"GIF89a\x40\x01\xf0\0\0\0\0"), Some((320, 240)));
    assert_eq!(size(&jpeg_bytes(4032, 3024, 0)), Some((4032, 3024)));
    assert_eq!(size(&jpeg_bytes(640, 480, 200_000)), Some((640, 480)));
    let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\x30\x01\0\x9d\x01\x2a\x80\x02\xe0\x01";
    assert_eq!(size(lossy), Some((640, 480)));
    let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x7f\xc2\x77\x00\0\0";
    assert_eq!(size(lossless), Some((640, 480)));
    let extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\x02\0\xdf\x01\0";
    assert_eq!(size(extended), Some((640, 480)));
}

#[test]
fn reads_data_urls_and_wrapped_lines() {
    let text = STANDARD.encode(png_bytes(100, 50));
    assert_eq!(
        image_size(&format!("data:image/png;base64,{text}")),
        Some((100, 50))
    );
    let wrapped: Vec<&str> = text
        .as_bytes()
        .chunks(7)
        .map(|c| std::str::from_utf8(c).unwrap_or(""))
        .collect();
    assert_eq!(image_size(&wrapped.join("\r\n")), Some((100, 50)));
}

#[test]
fn what_is_no_image_has_no_size() {
    for text in [
        "",
        "data:",
        "https://example.org/a.png",
        "hello",
        "汉字",
        "iVBORw0KGgo=",
    ] {
        assert_eq!(image_size(text), None, "{text}");
    }
    assert_eq!(size(&png_bytes(0, 10)), None);
    assert_eq!(size(&jpeg_bytes(1, 1, 0)[..8]), None);
}

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..5, text in "\\PC{0,80}") {
        let magic: [&[u8]; 5] = [b"", b"\x89PNG\r\n\x1a\n", b"GIF8", b"RIFF\0\0\0\0WEBPVP8X", b"\xff\xd8\xff"];
        size(&[magic[kind], &bytes].concat());
        image_size(&text);
    }
}
