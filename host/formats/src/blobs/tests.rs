#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

/// The kinds of the files in a JSON string with the base64 of `bytes`, plain and in a string
/// that holds JSON.
fn found(bytes: &[u8]) -> Vec<Option<(MediaKind, String)>> {
    let data = STANDARD_NO_PAD.encode(bytes);
    let escaped = data.replace('/', "\\\\/");
    [
        format!("\"{data}\""),
        format!("\"{{\\\"a\\\":\\\"{escaped}\\\"}}\""),
    ]
    .iter()
    .map(|json| {
        let media = blobs(Raw::parse(json).unwrap());
        assert!(media.len() <= 1, "{json}");
        let media = media.into_iter().next()?;
        Some((media.kind, media.mime?))
    })
    .collect()
}

#[test]
fn a_picture_counts_as_much_text_as_it_has_tokens() {
    let counter = TokenCounter::for_model("claude-sonnet-4-5");
    let picture = |size: u32, more: usize| {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend([size.to_be_bytes(), size.to_be_bytes()].concat());
        png.resize(png.len() + more, 0x5a);
        let data = STANDARD_NO_PAD.encode(png);
        format!(
            r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#
        )
    };
    let bytes = |json: &str| text_bytes(json, &counter);
    assert_eq!(bytes(&picture(300, 900)), bytes(&picture(300, 90_000)));
    assert!(bytes(&picture(300, 900)) < bytes(&picture(900, 900)));
    let around = picture(300, 0).len() as u64;
    assert!(bytes(&picture(300, 900)) - around < 4 * 300 * 300 / 500);
    let text = r#"{"role":"user","content":"data:image/png;base64, as it begins"}"#;
    assert_eq!(bytes(text), text.len() as u64);
}

#[test]
fn a_riff_file_is_what_its_form_says() {
    for (form, expected) in [
        (b"WEBP", Some((MediaKind::Image, "image/webp".to_owned()))),
        (b"WAVE", Some((MediaKind::Audio, "audio/wav".to_owned()))),
        (b"AVI ", None),
    ] {
        // The size has a slash in its base64 in one case.
        for size in [[0x24, 0x08, 0, 0], [0xff, 0xff, 0xff, 0x0f]] {
            let file = [&b"RIFF"[..], &size, form, &[0x5a; 200]].concat();
            assert_eq!(found(&file), [expected.clone(), expected.clone()]);
        }
    }
    assert_eq!(found(b"RIFF"), [None, None]);
}
