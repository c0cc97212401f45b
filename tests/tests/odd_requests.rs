//! Conversations that a format can express and nobody hopes for: tool results without a call, calls without a result, ids
//! that come twice, `null` and empty content, one role alone, neighbours of one role, and messages that no window can
//! hold. Every engine holds the contract on them, in every format, and a replay plays them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contexture::config::Config;
use contexture::formats::{self, Conversation, Format, Message};
use contexture::providers::{ModelClient, NoModel, Resolved};
use contexture::replay::{Recording, TempHome, play};
use contexture::session::{AgentWindow, Compact, OutcomeKind, Session, TurnOptions};
use contexture_engine_api::SHORTENED_MARK;
use contexture_tests::{Home, compact, conversation, engines, session, under};
// Linked in, so that they can be named.
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};

const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];

/// The content of a message or of a tool's result.
#[derive(Debug, Clone, Copy)]
enum Content {
    /// The member is missing.
    Absent,
    Null,
    Empty,
    Spaces,
    NoParts,
    EmptyPart,
    NullPart,
    /// So many words as a string.
    Words(usize),
    /// So many words as a part.
    Part(usize),
}

/// A message of some format's, with ids of calls from a few, so that they come twice, or are never called or answered.
#[derive(Debug, Clone)]
enum Said {
    System(Content),
    User(Content),
    Assistant(Content),
    /// By this role. Most formats do not stop a user's message from calling tools.
    Calls(&'static str, Content, Vec<usize>),
    Result(usize, Content),
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![
        1 => select(vec![
            Content::Absent,
            Content::Null,
            Content::Empty,
            Content::Spaces,
            Content::NoParts,
            Content::EmptyPart,
            Content::NullPart,
        ]),
        1 => (1..400_usize).prop_map(Content::Words),
        1 => (1..400_usize).prop_map(Content::Part),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        1 => content().prop_map(Said::System),
        3 => content().prop_map(Said::User),
        3 => content().prop_map(Said::Assistant),
        3 => (content(), proptest::collection::vec(0..6_usize, 1..4))
            .prop_map(|(content, ids)| Said::Calls("assistant", content, ids)),
        1 => (content(), proptest::collection::vec(0..6_usize, 1..4))
            .prop_map(|(content, ids)| Said::Calls("user", content, ids)),
        4 => (0..6_usize, content()).prop_map(|(id, content)| Said::Result(id, content)),
    ]
}

/// A conversation in which anything stands beside anything, or which is of one kind alone.
fn talk() -> impl Strategy<Value = Vec<Said>> {
    let many = |one: BoxedStrategy<Said>| proptest::collection::vec(one, 1..30);
    prop_oneof![
        6 => many(said().boxed()),
        1 => many((0..6_usize, content()).prop_map(|(id, content)| Said::Result(id, content)).boxed()),
        1 => many(content().prop_map(Said::System).boxed()),
        1 => many(content().prop_map(Said::User).boxed()),
        1 => many(content().prop_map(Said::Assistant).boxed()),
        1 => many(
            (content(), 0..6_usize).prop_map(|(content, id)| Said::Calls("assistant", content, vec![id])).boxed(),
        ),
    ]
}

/// Puts a content into a message, with parts of this type.
fn put(message: &mut Value, key: &str, content: Content, part: &str) {
    let words = |count: usize| "the pump station reported no fault; ".repeat(count / 6 + 1);
    message[key] = match content {
        Content::Absent => {
            if let Some(message) = message.as_object_mut() {
                message.remove(key);
            }
            return;
        }
        Content::Null => Value::Null,
        Content::Empty => json!(""),
        Content::Spaces => json!(" \n"),
        Content::NoParts => json!([]),
        Content::EmptyPart => json!([{"type": part, "text": ""}]),
        Content::NullPart => json!([{"type": part, "text": null}]),
        Content::Words(count) => json!(words(count)),
        Content::Part(count) => json!([{"type": part, "text": words(count)}]),
    };
}

fn message(role: &str, content: Content) -> Value {
    let mut message = json!({"role": role});
    put(&mut message, "content", content, "text");
    message
}

/// A message in the members of OpenAI's chat format.
fn chat_message(said: &Said) -> Value {
    match said {
        Said::System(content) => message("system", *content),
        Said::User(content) => message("user", *content),
        Said::Assistant(content) => message("assistant", *content),
        Said::Calls(role, content, ids) => {
            let mut calls = message(role, *content);
            let call = |id: &usize| {
                let function = json!({"name": "read", "arguments": "{\"path\": \"a\"}"});
                json!({"id": format!("call_{id}"), "type": "function", "function": function})
            };
            calls["tool_calls"] = ids.iter().map(call).collect();
            calls
        }
        Said::Result(id, content) => {
            let mut result = message("tool", *content);
            result["tool_call_id"] = json!(format!("call_{id}"));
            result
        }
    }
}

/// A message of Anthropic's.
fn anthropic_message(said: &Said) -> Value {
    match said {
        Said::Calls(role, content, ids) => {
            let mut calls = message(role, *content);
            let mut parts = match calls["content"].take() {
                Value::Array(parts) => parts,
                Value::String(text) => vec![json!({"type": "text", "text": text})],
                _ => Vec::new(),
            };
            parts.extend(ids.iter().map(|id| {
                json!({"type": "tool_use", "id": format!("call_{id}"), "name": "read", "input": {"path": "a"}})
            }));
            calls["content"] = json!(parts);
            calls
        }
        Said::Result(id, content) => {
            let mut result = json!({"type": "tool_result", "tool_use_id": format!("call_{id}")});
            put(&mut result, "content", *content, "text");
            json!({"role": "user", "content": [result]})
        }
        _ => chat_message(said),
    }
}

/// The items of OpenAI's Responses for a message.
fn items(said: &Said) -> Vec<Value> {
    let message = |role: &str, content: Content| {
        let mut item = json!({"type": "message", "role": role});
        let part = match role {
            "assistant" => "output_text",
            _ => "input_text",
        };
        put(&mut item, "content", content, part);
        item
    };
    match said {
        Said::System(content) => vec![message("developer", *content)],
        Said::User(content) => vec![message("user", *content)],
        Said::Assistant(content) => vec![message("assistant", *content)],
        Said::Calls(role, content, ids) => {
            let call = |id: &usize| json!({"type": "function_call", "call_id": format!("call_{id}"), "name": "read", "arguments": "{}"});
            let calls = ids.iter().map(call);
            [message(role, *content)].into_iter().chain(calls).collect()
        }
        Said::Result(id, content) => {
            let mut item = json!({"type": "function_call_output", "call_id": format!("call_{id}")});
            put(&mut item, "output", *content, "input_text");
            vec![item]
        }
    }
}

/// A content of Gemini's. Calls and results with an odd number have no id.
fn gemini_content(said: &Said) -> Value {
    let (role, content) = match said {
        Said::System(content) => ("system", *content),
        Said::User(content) => ("user", *content),
        Said::Calls("user", content, _) => ("user", *content),
        Said::Assistant(content) | Said::Calls(_, content, _) => ("model", *content),
        Said::Result(..) => ("function", Content::Absent),
    };
    let mut parts = match message(role, content)["content"].take() {
        Value::Array(parts) => parts,
        Value::String(text) => vec![json!({"text": text})],
        _ => Vec::new(),
    };
    for part in parts.iter_mut().filter_map(Value::as_object_mut) {
        part.remove("type");
    }
    let with_id = |mut function: Value, id: usize| {
        if id.is_multiple_of(2) {
            function["id"] = json!(format!("call_{id}"));
        }
        function
    };
    match said {
        Said::Calls(_, _, ids) => parts.extend(ids.iter().map(|id| {
            let call = with_id(json!({"name": "read", "args": {"path": "a"}}), *id);
            json!({"functionCall": call})
        })),
        Said::Result(id, content) => {
            let mut response = json!({});
            put(&mut response, "output", *content, "text");
            let result = with_id(json!({"name": "read", "response": response}), *id);
            parts.push(json!({"functionResponse": result}));
        }
        _ if matches!(content, Content::Absent) => return json!({"role": role}),
        _ => {}
    }
    json!({"role": role, "parts": parts})
}

/// The conversation as a document of this format.
fn document(format: Format, talk: &[Said]) -> String {
    let chat = || talk.iter().map(chat_message).collect::<Vec<_>>();
    let lines = |values: Vec<Value>| -> String {
        values.iter().map(|value| format!("{value}\n")).collect()
    };
    match format {
        Format::OpenAiChat => json!({"model": "gpt-5", "messages": chat()}).to_string(),
        Format::Anthropic => {
            let messages: Vec<_> = talk.iter().map(anthropic_message).collect();
            json!({"model": "claude-opus-4-6", "max_tokens": 400, "system": "Be kind.", "messages": messages})
                .to_string()
        }
        Format::OpenAiResponses => {
            let input: Vec<_> = talk.iter().flat_map(items).collect();
            json!({"model": "gpt-5", "input": input}).to_string()
        }
        Format::Gemini => {
            let contents: Vec<_> = talk.iter().map(gemini_content).collect();
            json!({"systemInstruction": {"parts": [{"text": "Be kind."}]}, "contents": contents}).to_string()
        }
        Format::ClaudeCode => lines(
            (talk.iter().enumerate())
                .map(|(at, said)| {
                    let before = at.checked_sub(1).map(|before| format!("u{before}"));
                    // A log holds no system messages.
                    let message = match said {
                        Said::System(content) => anthropic_message(&Said::User(*content)),
                        said => anthropic_message(said),
                    };
                    json!({"type": message["role"], "uuid": format!("u{at}"), "parentUuid": before, "sessionId": "s",
                        "timestamp": "2026-11-20T10:00:00.000Z", "message": message})
                })
                .collect(),
        ),
        Format::Codex => {
            let line = |kind: &str, payload: Value| json!({"timestamp": "2026-11-20T10:00:00.000Z", "type": kind, "payload": payload});
            let first = line("session_meta", json!({"id": "x", "cwd": "/w"}));
            let items = talk.iter().flat_map(items).map(|item| line("response_item", item));
            lines([first].into_iter().chain(items).collect())
        }
        Format::SweAgent => json!({"history": chat(), "info": {}}).to_string(),
        Format::Tau2 => json!({"simulations": [{"id": "1", "messages": chat()}]}).to_string(),
        Format::MessageLines => lines(chat()),
    }
}

fn agent() -> AgentWindow {
    AgentWindow::new("gpt-5", 1_500, 100)
}

fn stage() -> (Home, TempHome) {
    let home = Home::new();
    home.configure(CONFIG);
    let path = home.path().to_owned();
    let env = move |name: &str| (name == "CONTEXTURE_HOME").then(|| path.clone().into());
    let nobody = Resolved::NoModel(NoModel::Offline);
    let client = ModelClient::new(nobody, Duration::from_secs(1), |text| text.into());
    let stage = TempHome::new(Config::load(None, &env).unwrap(), client).unwrap();
    (home, stage)
}

/// Compactions come when they are due, and no other engine stands in.
const CONFIG: &str = "compression: {timing: threshold}\ncontext:\n  on_failure: fail\n  engines: {two-layer: {token_threshold: 500}}\n";

/// What is wrong with what an engine makes of a conversation.
fn played(
    engines: &Arc<contexture::engines::Engines>,
    stage: &TempHome,
    engine: &str,
    conversation: &Arc<Conversation>,
) -> Result<(), String> {
    // An engine that keeps sessions knows none of this name.
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let name = format!("s{}", LAST.fetch_add(1, Ordering::Relaxed));
    let mut session = Session::open(engines, None, &name, agent(), under(engine))
        .map_err(|error| format!("open: {error}"))?;
    for order in [Compact::Auto, Compact::Force] {
        let options = TurnOptions::default().compact(order);
        let turn = session
            .turn_over(conversation, &options, &mut |_| {})
            .map_err(|error| format!("{order:?}: {error}"))?;
        if let Some(report) = &turn.compaction
            && report.outcome == OutcomeKind::Failed
        {
            return Err(format!("{order:?}: {}", report.reason));
        }
        let warnings = session.take_warnings();
        if !warnings.is_empty() || session.engine_failures() > 0 {
            return Err(format!("{order:?}: {warnings:?}"));
        }
        let window = session.render_plan(conversation);
        let rendered = conversation
            .render(&window)
            .map_err(|error| format!("{order:?}: {error}"))?;
        let back = formats::read(rendered, None)
            .map_err(|error| format!("{order:?}: what is written is not read: {error}"))?;
        // A message without a word or a call may be nothing in the format that is written.
        let says = |message: &Message| !message.text.trim().is_empty() || !message.calls.is_empty();
        if back.iter().all(|back| back.messages().is_empty())
            && conversation.messages().iter().any(says)
        {
            return Err(format!("{order:?}: the window is empty"));
        }
    }
    let recording = Recording::new(Conversation::clone(conversation), agent());
    let replayed = play(&recording, stage, Some(engine), &mut || {})
        .map_err(|error| format!("replay: {error}"))?;
    match replayed.work.failures {
        0 => Ok(()),
        _ => Err(format!("replay: {:?}", replayed.warnings)),
    }
}

#[test]
fn every_engine_holds_the_contract_on_what_a_format_can_express() {
    let home = Home::new();
    home.configure(CONFIG);
    let engines = engines(&home);
    let (_home, stage) = stage();
    let cases = Cases {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(200),
        failure_persistence: None,
        ..Cases::default()
    };
    let tried = cases.cases;
    let mut runner = TestRunner::new(cases);
    let one = (
        select(Format::ALL.to_vec()),
        select(ENGINES.to_vec()),
        talk(),
    );
    let held = runner.run(&one, |(format, engine, talk)| {
        let document = document(format, &talk);
        let read = formats::read(document.as_str(), Some(format));
        let read =
            read.map_err(|error| TestCaseError::fail(format!("{document}\nis not read: {error}")))?;
        for conversation in read {
            played(&engines, &stage, engine, &Arc::new(conversation))
                .map_err(|why| TestCaseError::fail(format!("{document}\n{engine}: {why}")))?;
        }
        Ok(())
    });
    if let Err(error) = held {
        panic!("{error}");
    }
    println!("{tried} odd conversations tried, all of them held the contract");
}

/// Plays a talk in these formats under each engine, which all have to hold the contract.
fn holds(formats: &[Format], talk: &[Said]) {
    let home = Home::new();
    home.configure(CONFIG);
    let engines = engines(&home);
    let (_home, stage) = stage();
    for format in formats {
        let document = document(*format, talk);
        for conversation in formats::read(document, Some(*format)).unwrap() {
            let conversation = Arc::new(conversation);
            for engine in ENGINES {
                let held = played(&engines, &stage, engine, &conversation);
                assert_eq!(held, Ok(()), "{format:?}, {engine}, {talk:?}");
            }
        }
    }
}

/// A compaction keeps a call that still waits and puts its summary behind it; then the result comes.
#[test]
fn a_result_may_come_after_a_compaction() {
    let twice = vec![0, 0, 0];
    let talk = [
        Said::Calls("user", Content::Words(42), vec![0, 3]),
        Said::Calls("assistant", Content::Part(150), twice.clone()),
        Said::Calls("assistant", Content::Words(306), twice.clone()),
        Said::Assistant(Content::Absent),
        Said::Calls("assistant", Content::Words(78), vec![0]),
        Said::System(Content::Words(348)),
        Said::Calls("assistant", Content::Part(360), twice),
        Said::Result(3, Content::Absent),
        Said::System(Content::Words(42)),
        Said::Calls("assistant", Content::Words(366), vec![0]),
        Said::Assistant(Content::Absent),
    ];
    holds(&[Format::OpenAiChat], &talk);
}

/// A system message is an instruction. If it alone stays, nothing is left of the conversation.
#[test]
fn a_system_message_is_not_all_that_stays() {
    for (result, system) in [(216, 246), (300, 246), (400, 100)] {
        let orphan = Said::Result(0, Content::Words(result));
        let talk = [orphan, Said::System(Content::Part(system))];
        holds(
            &[Format::OpenAiChat, Format::MessageLines, Format::SweAgent],
            &talk,
        );
    }
}

#[test]
fn calls_of_a_user_in_flight_stay() {
    let mut talk: Vec<_> = (0..4)
        .flat_map(|_| {
            let words = Content::Words(200);
            [Said::User(words), Said::Assistant(words)]
        })
        .collect();
    talk.push(Said::Calls("user", Content::Words(20), vec![0]));
    holds(&[Format::OpenAiChat, Format::Anthropic], &talk);
}

#[test]
fn what_the_window_cannot_hold_is_kept_as_a_preview() {
    let giant = "word ".repeat(200_000);
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": giant});
    let conversations = [
        (
            "an answer",
            vec![user("hello"), assistant(&giant), user("go on")],
        ),
        ("the only message", vec![user(&giant)]),
        (
            "the last message",
            vec![user("hello"), assistant("yes?"), user(&giant)],
        ),
        ("a result", vec![user("hello"), call, result]),
    ];
    for (what, messages) in conversations {
        let document = json!({"model": "gpt-5", "messages": messages}).to_string();
        let conversation = conversation(&document);
        let home = Home::new();
        let (mut session, decision) = session(&engines(&home), &conversation, 50_000).unwrap();
        assert!(decision.is_yes(), "{what}: {decision:?}");
        let report = compact(&mut session, &conversation, Compact::Auto).unwrap();
        let report = report.expect("a compaction");
        assert_eq!(
            report.outcome,
            OutcomeKind::Compacted,
            "{what}: {}",
            report.reason
        );
        assert!(report.tokens_after < 45_000, "{what}: {}", report.reason);
        assert!(
            report.notes.iter().any(|note| note.contains("shortened")),
            "{what}"
        );
        let window = session.render_plan(&conversation);
        let rendered = conversation.render(&window).unwrap();
        let back = formats::read(rendered, None).unwrap().remove(0);
        let shortened = back
            .messages()
            .iter()
            .filter(|message| message.text.starts_with(SHORTENED_MARK));
        assert_eq!(shortened.count(), 1, "{what}");
    }
}

/// A material of this script in many lines, of about so many characters.
fn material(script: &str, chars: usize) -> String {
    let line = |at: usize| match script {
        "paths" => format!(
            "src/module_{at}.rs:{at}: warning: value {}\n",
            at * 7_919 % 9_973
        ),
        "numbers" => format!("{}\n", at * 104_729 % 1_000_003),
        "Chinese" => format!("第{at}号泵站报告数据库索引重建完成,没有发现故障。\n"),
        "Russian" => format!("Насосная станция {at} не сообщила о неисправностях.\n"),
        "pictographs" => "🛠️🚰✅".to_owned(),
        // Without a space or the end of a line.
        "digest" => format!("{:x}", at.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        _ => "the pump station reported no fault; ".to_owned(),
    };
    let mut text = String::new();
    let mut count = 0;
    for at in 0.. {
        if count >= chars {
            break;
        }
        let line = line(at);
        count += line.chars().count();
        text.push_str(&line);
    }
    text
}

/// What the user wants may stand at either end of a message that the window cannot hold.
#[test]
fn a_users_last_message_that_does_not_fit_loses_its_middle_alone() {
    let home = Home::new();
    let engines = engines(&home);
    let scripts = [
        "paths", "numbers", "Chinese", "Russian", "pictographs", "digest", "words",
    ];
    let cases = Cases {
        cases: 25,
        failure_persistence: None,
        ..Cases::default()
    };
    let one = (
        select(ENGINES.to_vec()),
        select(scripts.to_vec()),
        select(vec![4_000_u64, 12_000]),
        5..12_u64,
        0..3_usize,
    );
    let number = AtomicUsize::new(0);
    let held = TestRunner::new(cases).run(&one, |(engine, script, window, quarters, turns)| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        let first = "FIRST: count the warnings of every module, and answer in JSON.";
        let last = "LAST: name the module that has the most of them.";
        // A token of dense text is about a character, and one of words about five.
        let chars = window * quarters / 4 * if script == "words" { 6 } else { 4 };
        let said = format!("{first}\n{}\n{last}", material(script, chars as usize));
        let mut messages = vec![json!({"role": "system", "content": "Be careful."})];
        for _ in 0..turns {
            messages.push(json!({"role": "user", "content": "Is it running?"}));
            messages.push(json!({"role": "assistant", "content": "It is. ".repeat(30)}));
        }
        messages.push(json!({"role": "user", "content": said}));
        let document = json!({"model": "gpt-5", "messages": messages}).to_string();
        let conversation = conversation(&document);
        let agent = AgentWindow::new("gpt-5", window, window / 10);
        let name = format!("last-{number}");
        let mut session = Session::open(&engines, None, &name, agent, under(engine)).unwrap();
        let options = TurnOptions::default();
        let turn = session
            .turn_over(&conversation, &options, &mut |_| {})
            .unwrap();
        let rendered = conversation
            .render(&session.render_plan(&conversation))
            .unwrap();
        let back = formats::read(rendered, None).unwrap().remove(0);
        let shown = (back.messages().iter()).find(|message| message.text.contains("FIRST: "));
        let shown = shown.map_or("", |message| message.text.as_str());
        prop_assert!(
            shown.contains(first) && shown.contains(last),
            "{shown:.300}"
        );
        prop_assert!(shown.contains("characters left out"), "{shown:.300}");
        let (tokens, usable) = (session.state().prompt_tokens, window - window / 10);
        prop_assert!(
            (usable / 2..=usable).contains(&tokens),
            "{tokens} of {usable}"
        );
        let report = turn.compaction.or(turn.rewrite).unwrap();
        let is_told = |note: &String| note.contains("the user's last message, was shortened");
        prop_assert!(report.notes.iter().any(is_told), "{report:?}");
        Ok(())
    });
    if let Err(error) = held {
        panic!("{error}");
    }
}
