//! Sessions of other kinds: whatever they hold, the digest stays within its budget and quotes users.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use contexture_digest::{Budget, Digest};
use support::{Message, claude_code, data, openai, with_views};

fn check(name: &str, messages: &[Message]) {
    with_views(messages, |views| {
        let digest = Digest::of(views, None);
        for budget in [500, 2_000, 8_000] {
            let text = digest.render(Budget::chars(budget));
            assert!(text.chars().count() <= budget, "{name}");
            let blank = messages
                .iter()
                .all(|message| message.text.trim().is_empty());
            assert!(blank || !text.is_empty(), "{name} at {budget}");
        }
        let text = digest.render(Budget::chars(8_000));
        if messages.iter().any(|message| message.role == "user") {
            assert!(text.contains("The user said: \""), "{name}: {text}");
        }
        if std::env::var_os("SHOW_DIGEST").is_some() {
            println!("=== {name}\n{text}");
        }
    });
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn customer_service_conversations() {
    let path = data("tau2-bench/train_sft-v1-small.jsonl");
    for (at, line) in std::fs::read_to_string(path).unwrap().lines().enumerate() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        check(&format!("tau2 {at}"), &openai(&row["messages"]));
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn agent_runs() {
    let name = "swe-agent/replay__marshmallow-code__marshmallow-1867__function_calling_replace_from_source__marshmallow-code__marshmallow-1867.traj";
    let path = data(name);
    let row: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    check("swe-agent", &openai(&row["history"]));
}

/// What agents themselves reported in real sessions is mostly true, so few of the sentences may be marked.
#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn few_of_the_sentences_of_real_agents_are_marked() {
    let mut sessions = vec![claude_code(&data("claude-code/main.jsonl"))];
    for entry in std::fs::read_dir(data("swe-agent")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        if let Ok(row) = serde_json::from_str::<serde_json::Value>(&text) {
            sessions.push(openai(&row["history"]));
        }
    }
    let (mut sentences, mut marked) = (0, 0);
    for messages in &sessions {
        for end in 1..messages.len() {
            let said = &messages[end];
            if said.role != "assistant" || said.text.trim().is_empty() {
                continue;
            }
            sentences += said.text.matches(['.', '\n']).count();
            with_views(&messages[..end], |views| {
                let checked = Digest::of(views, None).work_record("").check(&said.text);
                marked += checked.contradictions;
                if std::env::var_os("SHOW_DIGEST").is_some() && checked.contradictions > 0 {
                    println!("=== {}", checked.text);
                }
            });
        }
    }
    assert!(sentences > 300, "{sentences}");
    assert!(marked * 100 < sentences, "{marked} of {sentences}");
}
