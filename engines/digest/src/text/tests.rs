#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;

#[test]
fn sentences_end_where_they_end_in_either_script() {
    let text =
        "Use v1.2 of it. Never push! 不要删除数据库。先备份？好\nNext 好了!不要推送?はい a?b";
    let found: Vec<_> = sentences(text).collect();
    assert_eq!(
        found,
        [
            "Use v1.2 of it.",
            "Never push!",
            "不要删除数据库。",
            "先备份？",
            "好",
            "Next 好了!",
            "不要推送?",
            "はい a?b"
        ]
    );
}

#[test]
fn lines_are_cleaned_of_their_marks() {
    assert_eq!(
        clean_line("   12→    def run_all(self):"),
        "def run_all(self):"
    );
    assert_eq!(clean_line("53: long_description=x"), "long_description=x");
    assert_eq!(clean_line("12:30 lunch"), "12:30 lunch");
    assert_eq!(clean_line("- **Export** | `a.json` |"), "Export, a.json");
}

#[test]
fn an_emoji_of_several_characters_is_not_torn() {
    let family = "👨‍👩‍👧";
    let text = format!("abc{family}def");
    for max in 1..10 {
        let clipped = clip(&text, max);
        assert!(
            clipped.contains(family) || !clipped.contains('👨'),
            "{clipped}"
        );
    }
}

proptest! {
    #[test]
    fn clips_are_no_longer_than_asked(text in any::<String>(), max in 1usize..60) {
        prop_assert!(chars(&clip(&text, max)) <= max);
        prop_assert!(chars(&shorten_middle(&text, max.max(10))) <= max.max(10));
    }
}
