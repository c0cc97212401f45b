#![allow(clippy::unwrap_used)]
use super::*;

fn words(text: &str) -> Vec<String> {
    let vocabulary =
        "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\ncafe\n,\n我\n们\n!\nstraße\n##s\ni";
    let pieces = WordPieces::read(vocabulary.as_bytes()).unwrap();
    let lines: Vec<&str> = vocabulary.lines().collect();
    let found = pieces.of(text, 100).into_iter();
    found
        .map(|piece| {
            format!(
                "{}={}",
                lines[piece.id as usize],
                &text[piece.start..piece.end]
            )
        })
        .collect()
}

#[test]
fn a_word_is_the_longest_pieces_without_case_and_accents() {
    assert_eq!(
        words("UNaffable"),
        ["un=UNaffable", "##aff=UNaffable", "##able=UNaffable"]
    );
    assert_eq!(
        words("Cafés, Café!"),
        ["cafe=Cafés", "##s=Cafés", ",=,", "cafe=Café", "!=!"]
    );
    assert_eq!(words("我们 straße"), ["我=我", "们=们", "straße=straße"]);
    assert_eq!(
        words("un\u{200b}\u{0}aff xyz İ"),
        [
            "un=un\u{200b}\u{0}aff",
            "##aff=un\u{200b}\u{0}aff",
            "[UNK]=xyz",
            "i=İ"
        ]
    );
    let long = "un".repeat(60);
    assert_eq!(words(&long), [format!("[UNK]={long}")]);
    assert!(words(" \n\t").is_empty());
}

#[test]
fn either_file_is_read_and_another_is_said() {
    let json =
        r###"{"model": {"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 7, "##b": 3}}}"###;
    let pieces = WordPieces::read(json.as_bytes()).unwrap();
    let ids: Vec<u32> = pieces.of("ab", 9).iter().map(|piece| piece.id).collect();
    assert_eq!((ids, pieces.end()), (vec![7, 3], 8));
    for (file, what) in [("{", "JSON"), ("{}", "model.vocab"), ("a\nb", "[UNK]")] {
        let error = WordPieces::read(file.as_bytes()).err().unwrap();
        assert!(error.contains(what), "{error}");
    }
}
