use proptest::prelude::*;

use serde_json::Value;

use super::*;

#[test]
fn kinds_are_told_apart() {
    let json = r#"{"a": [1, 2, 3], "b": {"c": "d"}}"#;
    let lines = "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n";
    let csv = "name,age,city\nAnn,3,\"Bonn, am Rhein\"\nBob,4,Ulm\n";
    let code = "use std::io;\n\npub fn main() {\n    let a = f(1);\n    println!(\"{a}\");\n}\n";
    let log = "2026-01-02T03:04:05Z INFO start\n2026-01-02T03:04:06Z ERROR no route\n";
    let text = "It was a bright cold day in April, and the clocks\nwere striking.";
    let kinds = [json, lines, csv, code, log, text].map(TextKind::of);
    use TextKind::*;
    assert_eq!(kinds, [Json, Json, Csv, Code, Log, Text]);
}

#[test]
fn json_shows_its_shape() {
    let rows: Vec<Value> = (0..500)
        .map(|i| serde_json::json!({"id": i, "name": "n".repeat(80)}))
        .collect();
    let text = serde_json::json!({"rows": rows, "next": null}).to_string();
    assert_eq!(
        preview(&text, 400),
        r#"{"rows": [500 × {"id": number, "name": string of 80 characters}], "next": null}"#
    );
}

#[test]
fn a_log_shows_head_tail_and_errors() {
    let mut log: String = (0..1000)
        .map(|i| format!("2026-01-02T03:04:05Z INFO step {i}\n"))
        .collect();
    log.insert_str(log.len() / 2, "2026-01-02T03:04:05Z ERROR disk on fire\n");
    let shown = preview(&log, 4000);
    for part in [
        "step 0\n",
        "disk on fire",
        "step 999\n",
        "1 lines with errors",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn code_shows_its_outline() {
    let code = "pub struct A {\n    b: u8,\n}\n\nimpl A {\n    pub fn c(&self) {\n        let d = self.b;\n    }\n}\n";
    assert_eq!(
        preview(code, 400),
        "1: pub struct A {\n5: impl A {\n6:     pub fn c(&self) {\n"
    );
}

proptest! {
    #[test]
    fn previews_are_bounded_and_never_empty(text in "(\\PC|[\\n,;{}\\[\\]\":]){1,400}", max in 20usize..200) {
        let shown = preview(&text, max);
        prop_assert!(shown.chars().count() <= max.max(text.chars().count()));
        prop_assert!(!shown.is_empty());
    }
}
