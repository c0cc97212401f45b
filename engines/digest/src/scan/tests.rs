#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn facts(text: &str) -> Vec<(Kind, &str)> {
    let mut facts = Vec::new();
    scan(text, |found| {
        if let Find::Fact(kind, range) = found {
            facts.push((kind, &text[range]));
        }
    });
    facts
}

#[test]
fn tells_kinds_apart() {
    let cases = [
        (
            "see src/ledger/epoch.rs:42.",
            vec![(Kind::Path, "src/ledger/epoch.rs")],
        ),
        ("`package.json`, then", vec![(Kind::Path, "package.json")]),
        (
            "self.session_name.db_path()",
            vec![(Kind::Name, "session_name"), (Kind::Name, "db_path")],
        ),
        ("console.log(userId)", vec![(Kind::Name, "userId")]),
        (
            "test_create_user FAILED",
            vec![(Kind::Test, "test_create_user")],
        ),
        ("commit 3f2a9c1 of 1234567", vec![(Kind::Hash, "3f2a9c1")]),
        (
            "132b2f66-ee5f-46f6-8904-32d9dc4d36c3",
            vec![(Kind::Uuid, "132b2f66-ee5f-46f6-8904-32d9dc4d36c3")],
        ),
        (
            "(https://example.com/a?b=1).",
            vec![(Kind::Url, "https://example.com/a?b=1")],
        ),
        ("import/export on 2024/05/06, 3/4", vec![]),
        ("flight HAT083 to JFK", vec![(Kind::Code, "HAT083")]),
        ("\u{1b}[32mrun_all\u{1b}[0m", vec![(Kind::Name, "run_all")]),
        (
            "line\\nBe careful with maxAge",
            vec![(Kind::Name, "maxAge")],
        ),
        ("文件src/main.rs的内容", vec![(Kind::Path, "src/main.rs")]),
        (
            r"C:\work\notes.txt is open",
            vec![(Kind::Path, r"C:\work\notes.txt")],
        ),
        ("The end. A plain-looking sentence, 12.5 ms.", vec![]),
    ];
    for (text, expected) in cases {
        assert_eq!(facts(text), expected, "{text}");
    }
}

#[test]
fn passes_over_payloads() {
    let base64 = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4/8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==";
    assert_eq!(facts(base64), vec![]);
    assert_eq!(facts(&base64.repeat(40)), vec![]);
}

#[test]
fn any_repetition_takes_steps_in_proportion_to_its_length() {
    let steps_for = |unit: &str, len: usize| {
        crate::steps::take();
        scan(&unit.repeat(len / unit.len()), |_| {});
        crate::steps::take()
    };
    const PARTS: [&str; 14] = [
        "a", "A1", "a://", "C:\\", "://", ":", "/", ".", "-", "\\u00e9", "\\", "\u{1b}[", " ", "密",
    ];
    for unit in PARTS
        .iter()
        .flat_map(|one| PARTS.map(|other| one.to_string() + other))
    {
        let (small, large) = (steps_for(&unit, 4_000), steps_for(&unit, 8_000));
        assert!(
            large <= 3 * small + 1_000,
            "{large} steps, before {small}: {unit:?}"
        );
    }
}

proptest::proptest! {
    #[test]
    fn any_text_gives_ranges_on_char_boundaries(text in "\\PC{0,80}") {
        scan(&text, |found| if let Find::Fact(_, range) = found {
            assert!(text.get(range).is_some());
        });
    }
}
