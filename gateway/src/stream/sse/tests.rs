#![allow(clippy::unwrap_used)]
use super::*;

/// Each event comes out once and with its exact bytes, whatever pieces the stream arrives in.
#[test]
fn events_are_found_in_pieces_of_any_size() {
    let text = "event: a\ndata: {\"x\":1}\n\n: ping\n\ndata: é\r\n\r\ndata:[DONE]\n\ndata: {\ndata:\r\ndata: }\n\nhalf";
    let plain = text.replace("\r\n", "\n");
    let texts = [
        text.to_owned(),
        plain.replace('\n', "\r\n"),
        plain.replace('\n', "\r"),
    ];
    for (text, size) in texts
        .iter()
        .flat_map(|text| (1..text.len()).map(move |size| (text, size)))
    {
        let text = format!("\u{feff}{text}");
        let mut events = Events::default();
        let (mut raw, mut data) = (Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            events.push(piece);
            while let Some(event) = events.next() {
                raw.extend_from_slice(event.raw);
                data.push(event.data.map(Cow::into_owned));
            }
        }
        assert_eq!(raw, text.strip_suffix("half").unwrap().as_bytes(), "{size}");
        assert_eq!(events.rest().map(|rest| rest.raw), Some(&b"half"[..]));
        assert!(events.rest().is_none() && events.next().is_none());
        let expected = [
            Some("{\"x\":1}"),
            None,
            Some("é"),
            Some("[DONE]"),
            Some("{\n\n}"),
        ];
        let expected: Vec<_> = expected.iter().map(|one| one.map(str::to_owned)).collect();
        assert_eq!(data, expected, "{size}");
    }
}
