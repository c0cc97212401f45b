//! What LCM's tools answer stays within the tokens that were allowed, by the tokenizer of the model that reads
//! it: for texts of all kinds, in few tokens and in many. And whatever a tool of any engine is asked, it answers soon.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::engines::{CallError, HealthState};
use contexture::formats::Conversation;
use contexture::session::{Session, SessionError};
use contexture::tokens::TokenCounter;
use contexture_engine_api::{EngineError, ToolCall, ToolSpec};
use contexture_tests::{Home, conversation, engines, session, shared_data};
// Linked in, and registered with that.
use contexture_tiered as _;
use contexture_virtual_files as _;
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

/// A text of this many words.
fn words(count: usize) -> String {
    (0..count).map(|n| format!("word{n} ")).collect()
}

/// Texts that no tool expects.
fn odd_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "\0",
        "\u{202e}",
        "😀",
        "\"",
        "'\"",
        "(",
        "[a-",
        "a{60000}b",
        "(a*)*b",
        "(?:a|b){0,900}a(?:a|b){900}c",
        "(?:(?:a{99}){99}){99}",
        r"(?i)\pL{500}",
        "x*",
        "",
        "m0",
        "m1",
        "s1",
        "f1",
        "m99999999999999999999",
        "s4294967296",
        "f-1",
        "m",
        "é1",
        "../../etc/passwd",
        "file_0001.txt",
        "000000.0.0.0m0.0s0",
        "1.2.3m4.5s6.7s8",
        "2026-13-45",
        "9999-12-31",
        "-1",
        "1e400",
        "99999999999999999999",
        "now",
    ]
    .map(str::to_owned)
    .into();
    texts.extend([
        words(100_000),
        words(100_000).to_uppercase(),
        "Who said Ana Lima? ".repeat(30_000),
        "数据库索引重建".repeat(15_000),
        "a".repeat(600_000),
        "\"a b\" ".repeat(50_000),
        "a|".repeat(5_000),
        (0..10_000).map(|n| format!("w{n}|")).collect(),
        r"\pL".repeat(3_000),
        "(".repeat(5_000),
        "m1,".repeat(100_000),
    ]);
    texts
}

/// Values that no argument of this schema should have, and some that it may have.
fn odd_values(schema: &Value) -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!({}),
        json!([]),
        json!([[[]]]),
        json!({"a": {"b": 1}}),
        json!(0),
        json!(-1),
        json!(1),
        json!(7),
        json!(1.5),
        json!(1e308),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(u32::MAX),
        json!(i64::MAX),
    ];
    let kind = schema["type"].as_str().unwrap_or("string");
    if kind == "string" {
        values.extend(odd_texts().into_iter().map(Value::from));
        values.extend(schema["enum"].as_array().into_iter().flatten().cloned());
    }
    if kind == "array" {
        let many: Vec<String> = (0..100_000).map(|n| format!("session-{n}")).collect();
        values.extend([
            json!(many),
            json!(vec!["test"; 1_000]),
            json!(vec![1; 1_000]),
            json!([words(1_000)]),
        ]);
    }
    values
}

/// A value that an argument may well have.
fn fitting(name: &str, schema: &Value) -> Value {
    match (name, schema["type"].as_str().unwrap_or_default()) {
        ("id" | "message_id", "string") => json!("m1"),
        (_, "string") => json!("part"),
        (_, "array") => json!(["m1"]),
        (_, "boolean") => json!(true),
        _ => json!(1),
    }
}

/// Every argument with every odd value, the required ones beside it as they should be; and texts that are no arguments.
fn odd_calls(tool: &ToolSpec) -> Vec<String> {
    let none = serde_json::Map::new();
    let properties = tool.parameters["properties"].as_object().unwrap_or(&none);
    let required = tool.parameters["required"].as_array().into_iter().flatten();
    let base: serde_json::Map<String, Value> = required
        .map(|name| name.as_str().unwrap())
        .map(|name| (name.to_owned(), fitting(name, &properties[name])))
        .collect();
    let mut calls: Vec<String> = [
        "", "{", "[]", "null", "7", "\"x\"", "{}", "{\"no_such\": 1}", "{\"a\":1}{", "\u{feff}{}",
    ]
    .map(str::to_owned)
    .into();
    calls.extend([
        "[".repeat(200_000),
        format!("{{\"a\":{}{}}}", "[".repeat(100), "]".repeat(100)),
        format!(
            "{{\"a\":{}1{}}}",
            "{\"b\":".repeat(100_000),
            "}".repeat(100_000)
        ),
        json!({"no_such": words(100_000)}).to_string(),
    ]);
    let mut add = |base: &serde_json::Map<String, Value>, name: &str, value: Value| {
        let mut arguments = base.clone();
        arguments.insert(name.to_owned(), value);
        calls.push(Value::from(arguments).to_string());
    };
    for (name, schema) in properties {
        for value in odd_values(schema) {
            add(&base, name, value);
        }
    }
    // What a choice does with a text.
    let choices = properties
        .iter()
        .filter_map(|(name, schema)| Some((name, schema["enum"].as_array()?)));
    for (choice, values) in choices.filter(|(choice, _)| *choice == "mode" || *choice == "sort") {
        for value in values {
            let mut base = base.clone();
            base.insert(choice.clone(), value.clone());
            for text in odd_texts() {
                if properties.contains_key("pattern") {
                    add(&base, "pattern", json!(text));
                }
                if properties.contains_key("question") {
                    add(&base, "question", json!(text));
                }
            }
        }
    }
    calls
}

/// A tool answers, or says what is wrong, and the engine is not to blame. How long it took.
fn asked(session: &mut Session, tool: &str, arguments: &str) -> (Result<String, String>, Duration) {
    let began = Instant::now();
    let answer = session.call_tool(ToolCall::new(tool.to_owned(), arguments.to_owned()));
    let took = began.elapsed();
    let answer = answer.map_err(|error| match error {
        SessionError::Call(CallError::Failed {
            error: EngineError::InvalidInput(text) | EngineError::Unsupported(text),
            ..
        }) => text,
        error => panic!("{tool} {arguments:.200}: {error}"),
    });
    (answer, took)
}

#[test]
fn whatever_a_tool_is_asked_it_answers_or_says_what_is_wrong() {
    // Unoptimised, on a machine that does much else.
    const SOON: Duration = Duration::from_secs(8);
    for engine in ["lcm", "tiered", "virtual-files"] {
        let home = Home::new();
        home.configure(&format!("context:\n  engine: {engine}\n"));
        let engines = engines(&home);
        let chat = contexture_tests::chat(30, 6_000).to_string();
        let (mut session, _) = session(&engines, &conversation(&chat), 400_000).unwrap();
        let tools = session.tools().unwrap();
        assert!(!tools.is_empty(), "{engine}");
        for tool in &tools {
            for arguments in odd_calls(tool) {
                let (answer, took) = asked(&mut session, &tool.name, &arguments);
                let what = format!("{} {arguments:.200}", tool.name);
                assert!(took < SOON, "{what}: {took:?}");
                match answer {
                    Ok(answer) => assert!(answer.len() < 400_000, "{what}: {} bytes", answer.len()),
                    Err(error) => assert!(
                        !error.is_empty() && error.len() < 20_000,
                        "{what}: {} bytes of error",
                        error.len()
                    ),
                }
            }
        }
        let health = engines.health();
        let health = health
            .iter()
            .find(|health| health.engine == engine)
            .unwrap();
        assert_eq!(health.failed, 0, "{engine}: {:?}", health.last_error);
        assert_eq!(health.state, HealthState::Serving);
    }
}

#[test]
fn a_pattern_that_would_take_long_is_refused_and_the_engine_goes_on_in_every_session() {
    let home = Home::new();
    home.configure("context:\n  engine: lcm\n");
    let engines = engines(&home);
    let text = "ab".repeat(100_000) + &"a".repeat(400_000);
    let messages = json!({"model": "gpt-5", "messages": [{"role": "user", "content": text}]});
    let (mut session, _) =
        session(&engines, &conversation(&messages.to_string()), 1_000_000).unwrap();
    for (pattern, word) in [
        ("a{60000}b", "too large"),
        ("(?:a{1000}){1000}", "too large"),
        ("(?:a|b){0,900}a(?:a|b){900}c", "too expensive"),
    ] {
        for _ in 0..4 {
            let arguments = json!({"pattern": pattern, "mode": "regex"}).to_string();
            let (answer, _) = asked(&mut session, "lcm_grep", &arguments);
            let error = answer.unwrap_err();
            assert!(
                error.contains(word) && error.contains("in place of"),
                "{error}"
            );
        }
    }
    let arguments = json!({"pattern": "(ab)+a{40}", "mode": "regex"}).to_string();
    let answer = asked(&mut session, "lcm_grep", &arguments).0.unwrap();
    assert!(answer.contains("\"total\":1"), "{answer:.300}");
    assert_eq!(session.stands_in(), None);
}

#[test]
fn a_long_question_is_ranked_by_its_first_words_and_the_answer_says_so() {
    let home = Home::new();
    home.configure("context:\n  engine: lcm\n");
    let engines = engines(&home);
    let chat = contexture_tests::chat(10, 1_000).to_string();
    let (mut session, _) = session(&engines, &conversation(&chat), 400_000).unwrap();
    let question = format!("Which part of src/module_3.rs? {}", words(100_000));
    for tool in ["lcm_grep", "lcm_expand_query"] {
        let arguments = json!({"question": question}).to_string();
        let answer = asked(&mut session, tool, &arguments).0.unwrap();
        assert!(answer.contains("module_3"), "{answer:.300}");
        assert!(answer.contains("words were ignored"), "{answer:.300}");
        // Pages go on with the same question.
        let answer: Value = serde_json::from_str(&answer).unwrap();
        if let Some(cursor) = answer["next_cursor"].as_str() {
            let arguments = json!({"question": question, "cursor": cursor}).to_string();
            asked(&mut session, tool, &arguments).0.unwrap();
        }
        let arguments = json!({"question": "Which part of src/module_3.rs?"}).to_string();
        let answer = asked(&mut session, tool, &arguments).0.unwrap();
        assert!(!answer.contains("not looked for"), "{answer:.300}");
    }
}
