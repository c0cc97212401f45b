#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use std::time::Duration;

#[test]
fn sessions_of_both_agents_come_newest_first_with_what_the_user_said() {
    let home = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str, seconds_ago: u64| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let time = SystemTime::now() - Duration::from_secs(seconds_ago);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    put(
        ".claude/projects/-home-me/a.jsonl",
        "{\"type\":\"summary\"}\n\
             {\"type\":\"user\",\"isMeta\":true,\"message\":{\"role\":\"user\",\"content\":\"meta\"}}\n\
             {\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"<command-name>/x</command-name>\"}}\n\
             not json\n\
             {\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\" Fix\\nthe tests \"}]}}\n",
        7_300,
    );
    put(
        ".codex/sessions/2026/11/21/r.jsonl",
        "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"<environment_context>\"}]}}\n\
             {\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"Grüße\"}]}}\n",
        120,
    );
    put(".claude/projects/-home-me/notes.txt", "no log", 1);
    put(".claude/projects/-home-me/sub/agent.jsonl", "{}", 1);
    let nowhere = |_: &str| None;
    let lines: Vec<_> = recent(&Places::new(home.path(), &nowhere))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        [
            " 2 min ago  codex        r                                   Grüße",
            "   2 h ago  claude-code  a                                   Fix the tests",
        ]
    );
    assert!(recent(&Places::new(&home.path().join("nowhere"), &nowhere)).is_empty());
    let elsewhere = |name: &str| (name == "CODEX_HOME").then(|| home.path().join(".claude").into());
    let moved = recent(&Places::new(home.path(), &elsewhere));
    assert_eq!(moved.len(), 1, "the logs of Codex are elsewhere");
}

#[test]
fn of_a_long_project_the_end_is_shown() {
    assert_eq!(end_of("/srv/shop", 24), "/srv/shop");
    assert_eq!(
        end_of("~/work/a-very-long-name/ledger", 14),
        "…g-name/ledger"
    );
}

#[test]
fn long_first_words_are_cut_between_characters() {
    let line = serde_json::json!({"message": {"role": "user", "content": "é".repeat(200)}});
    let words = words_of(&line).unwrap();
    assert_eq!(words.chars().count(), SHOWN_WORDS + 1);
    assert!(words.ends_with('…'));
}

#[test]
fn first_words_hold_no_control_characters() {
    let line =
        serde_json::json!({"message": {"role": "user", "content": "\x1b]0;t\x07\u{9b}2J\x08 hi"}});
    let words = words_of(&line).unwrap();
    assert_eq!(words, "\\u001b]0;t\\u0007\\u009b2J\\u0008 hi");
}
