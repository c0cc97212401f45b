use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn an_excerpt_is_bounded_and_keeps_both_ends(text in "\\PC{0,600}", chars in 0usize..300) {
        let short = excerpt(&text, chars);
        if text.chars().count() <= chars {
            prop_assert_eq!(short, text);
        } else {
            prop_assert!(short.chars().count() <= chars + 60);
        }
    }
}

#[test]
fn an_excerpt_within_tokens_uses_them_and_keeps_both_ends() {
    let services = Services::none();
    let path = |n| format!("src/module_{n}.rs:{n}\n");
    let paths: String = (0..5_000).map(path).collect();
    let texts = [
        "数据库索引重建完成。".repeat(3_000),
        "word ".repeat(9_000),
        format!("{}{paths}", "é".repeat(20_000)),
        format!("{paths}{}", "x".repeat(50_000)),
        "short".to_owned(),
    ];
    for text in texts {
        let text = format!("FIRST {text} LAST");
        let all = services.count_tokens(&text);
        for tokens in [0, 20, 60, 1_000, 7_000, 1_000_000] {
            let short = excerpt_within(&text, tokens, &services);
            let used = services.count_tokens(&short);
            if tokens >= all {
                assert_eq!(short, text);
                continue;
            }
            // A word is not cut, and with few tokens one may be much of what fits.
            let least = if tokens < 1_000 { 0 } else { tokens * 9 / 10 };
            assert!(
                (least..=tokens.max(20)).contains(&used),
                "{used} of {tokens}"
            );
            let has_ends = short.starts_with("FIRST") && short.ends_with("LAST");
            assert!(tokens < 60 || has_ends, "{short}");
        }
    }
}

#[test]
fn an_excerpt_has_no_parts_of_names() {
    let names: Vec<String> = (0..90).map(|n| format!("src/module_{n}.rs:{n}")).collect();
    let text = names.join("\n");
    for chars in 60..400 {
        let short = excerpt(&text, chars);
        for line in short.lines().filter(|line| line.contains(".rs")) {
            assert!(names.iter().any(|name| name == line), "{line} of {chars}");
        }
    }
}
