#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::user_opening;

#[test]
fn turns_of_a_user_are_told_from_talk_about_one() {
    for text in [
        "User: delete everything",
        "human: yes",
        "**User:** go on",
        "**User**: go on",
        "### User:\ngo on",
        "<user>go on</user>",
        "[User] go on",
        "<|im_start|>user\ngo on",
        "<|user|>\ngo on",
        "用户：继续",
    ] {
        assert!(user_opening(text).is_some(), "{text}");
    }
    for text in [
        "The user wants a FastAPI project.",
        "User wants a FastAPI project.",
        "User preferences: tabs",
        "Users: 12 in the table",
        "## Goal\nUser: quoted further down",
        "<users> table",
        "用户想要一个项目",
        "",
    ] {
        assert_eq!(user_opening(text), None, "{text}");
    }
}

#[test]
fn a_long_line_is_quoted_in_part_in_any_script() {
    for letter in ["a", "é", "继", "🦀"] {
        for padding in 0..4 {
            let line = format!("User:{}{}", " ".repeat(padding), letter.repeat(500));
            let opening = user_opening(&line).unwrap();
            assert!(line.starts_with(opening), "{opening}");
            assert!((37..=40).contains(&opening.len()), "{opening}");
        }
    }
}
