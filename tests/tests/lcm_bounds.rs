//! What LCM's tools answer stays within the tokens that were allowed, by the tokenizer of the model that reads
//! it: for texts of all kinds, in few tokens and in many.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;

use contexture::formats::Conversation;
use contexture::tokens::TokenCounter;
use contexture_engine_api::ToolCall;
use contexture_tests::{Home, conversation, engines, session, shared_data};
use serde_json::{Value, json};

/// Texts that cost few tokens for their length, and many.
fn texts() -> Vec<String> {
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut draw = |from: &[u8], count: usize| -> String {
        (0..count)
            .map(|_| char::from(from[random() as usize % from.len()]))
            .collect()
    };
    vec![
        "The quick brown fox jumps over the lazy dog, marker again. ".repeat(60),
        format!("marker {}", draw(BASE64, 3_000)),
        format!("marker {}", draw(b"0123456789abcdef", 3_000)),
        format!("marker {}", draw(b"abcdefghijklmnopqrstuvwxyz", 3_000)),
        format!("marker {}", draw(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 3_000)),
        format!("marker {}", draw(b" !#$%&()*+,-./:;<=>?@[]^_{|}~", 3_000)),
        format!("marker {}", "\\\"\n\t\u{1}".repeat(600)),
        format!(
            "marker {}",
            "数据库索引重建完成，延迟下降到四毫秒。龘靐齉".repeat(60)
        ),
        format!("marker {}", "데이터베이스 마이그레이션 ".repeat(80)),
        format!("marker {}", "👩‍👩‍👧‍👦🏳️‍🌈𝕬𝖓𝖞 ".repeat(120)),
        format!(
            "marker {}",
            "fn load(x: &X) -> Y { x.order(7_113)?; }\n".repeat(60)
        ),
    ]
}

fn invented() -> Arc<Conversation> {
    let messages: Vec<Value> = texts()
        .iter()
        .flat_map(|text| {
            [
                json!({"role": "user", "content": "go on, marker"}),
                json!({"role": "assistant", "content": text}),
            ]
        })
        .collect();
    conversation(&json!({"model": "gpt-5", "messages": messages}).to_string())
}

fn answers_fit(conversation: &Arc<Conversation>, words: &[&str]) {
    let home = Home::new();
    home.configure("context:\n  engine: lcm\n");
    let engines = engines(&home);
    let (mut session, _) = session(&engines, conversation, 400_000).unwrap();
    let counter = TokenCounter::for_model("gpt-5");
    let end = conversation.messages().len();
    for max in [100, 200, 1_000, 4_000] {
        let mut calls = vec![
            ("lcm_recent", json!({})),
            ("lcm_status", json!({})),
            ("lcm_doctor", json!({})),
        ];
        for word in words {
            calls.push(("lcm_grep", json!({"pattern": word})));
            calls.push(("lcm_grep", json!({"pattern": word, "context": 20})));
            calls.push(("lcm_expand_query", json!({"question": word})));
        }
        for id in (1..=end).step_by(end.div_ceil(25)) {
            calls.push(("lcm_expand", json!({"id": format!("m{id}")})));
            calls.push(("lcm_describe", json!({"id": format!("m{id}")})));
        }
        for (name, mut arguments) in calls {
            arguments["max_tokens"] = json!(max);
            let call = ToolCall::new(name.to_owned(), arguments.to_string());
            let answer = session.call_tool(call).unwrap();
            let tokens = counter.count_text(&answer);
            assert!(
                tokens <= max,
                "{name} {arguments}: {tokens} tokens\n{answer}"
            );
        }
    }
}

#[test]
fn answers_fit_whatever_the_texts_are() {
    answers_fit(&invented(), &["marker", "go on"]);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn answers_over_a_real_session_fit() {
    let log = std::fs::read_to_string(shared_data().join("claude-code/main.jsonl")).unwrap();
    answers_fit(&conversation(&log), &["file", "error", "src", "test"]);
}
