//! The lossless engine as a plugin: it does what the same engine does that is linked in, and the two go on
//! with each other's sessions.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::engines::Source;
use contexture::formats::{self, Format, RenderPlan};
use contexture::session::{AgentWindow, Record, Session, SessionOptions};
use contexture_tests::lcm::{expand, frontier, tool};
use contexture_tests::{Home, chat, engines, shared_data};
use serde_json::{Value, json};

const PLUGIN: &str = "plugins/context_engine/lcm";

fn linked_in() -> Home {
    let home = Home::new();
    home.configure("context:\n  engine: lcm\n  on_failure: fail\n");
    home
}

fn as_plugin() -> Home {
    let home = linked_in();
    home.install(PLUGIN, "lcm");
    home
}

/// What came of a conversation.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// What the model was sent, turn by turn.
    sent: Vec<String>,
    /// Why each compaction that was due came about, and what it did.
    compactions: Vec<Value>,
    /// What the tools answered at the end.
    answers: Vec<Value>,
    /// Everything that the summaries stand for.
    under_summaries: Vec<(String, String)>,
}

/// Plays the messages of a body, a turn before each answer.
fn play(home: &Home, body: &Value, context_length: u64, source: Source) -> Outcome {
    let engines = engines(home);
    let record = Record::open(home.path()).unwrap();
    let agent = AgentWindow::new("gpt-5", context_length, context_length / 10);
    let options = SessionOptions::default();
    let mut session = Session::open(&engines, Some(&record), "s", agent, options).unwrap();
    assert_eq!(session.engine().source(), source);
    let messages = body["messages"].as_array().unwrap();
    let (mut sent, mut compactions) = (Vec::new(), Vec::new());
    for (at, answer) in messages.iter().enumerate().skip(1) {
        if answer["role"] != "assistant" {
            continue;
        }
        let mut request = body.clone();
        request["messages"] = json!(messages[..at]);
        let request = request.to_string();
        let turn = session.turn(&request).unwrap();
        if let Some(report) = &turn.compaction {
            let mut report = serde_json::to_value(report).unwrap();
            for other in ["source", "elapsed_ms"] {
                report.as_object_mut().unwrap().remove(other);
            }
            compactions.push(report);
        }
        sent.push(turn.body.into_owned());
        session.answer(&[&answer.to_string()], None).unwrap();
        assert_eq!(session.take_warnings(), Vec::<String>::new());
    }
    let nodes = frontier(&engines, "s");
    let calls = [
        (
            "lcm_grep",
            json!({"pattern": "module", "mode": "literal", "context": 1, "role": "tool"}),
        ),
        ("lcm_grep", json!({"question": "which part is fine?"})),
        (
            "lcm_grep",
            json!({"pattern": "(?i)PART [0-9]+", "mode": "regex", "sort": "recency"}),
        ),
        ("lcm_describe", json!({"id": nodes[0]})),
        ("lcm_describe", json!({"id": "m1"})),
        ("lcm_expand", json!({"id": nodes[0], "max_tokens": 500})),
        (
            "lcm_expand_query",
            json!({"question": "which part is fine?"}),
        ),
        ("lcm_read", json!({"id": "m2"})),
        ("lcm_recent", json!({})),
        ("lcm_status", json!({})),
        ("lcm_doctor", json!({})),
    ];
    let answers = calls
        .iter()
        .map(|(name, arguments)| tool(&mut session, name, arguments))
        .map(|answer| comparable(answer, home))
        .collect();
    let under = |id: &String| expand(&mut session, id, 4_000);
    let under_summaries = nodes.iter().flat_map(under).collect();
    session.end().unwrap();
    Outcome {
        sent,
        compactions,
        answers,
        under_summaries,
    }
}

/// What does not depend on where a home lies, on the time of day, and on how far the index, which is made
/// beside the turns, was when the question came.
fn comparable(answer: Value, home: &Home) -> Value {
    let text = answer.to_string();
    let text = text.replace(&home.path().display().to_string(), "HOME");
    let mut answer = serde_json::from_str(&text).unwrap();
    drop_timing(&mut answer);
    answer
}

fn drop_timing(value: &mut Value) {
    const TIMING: [&str; 9] = [
        "at",
        "arrived",
        "messages_read",
        "bytes_read",
        "messages_not_indexed",
        "index",
        "indexed",
        "not_indexed",
        "next_cursor",
    ];
    match value {
        Value::Object(members) => {
            // These messages have no times of their own: they count by when they came.
            let by_arrival = members.contains_key("at_is_approximate");
            members.retain(|key, _| !(TIMING.contains(&key.as_str()) || by_arrival && key == "at"));
            members.values_mut().for_each(drop_timing);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_timing),
        _ => {}
    }
}

fn assert_same(body: &Value, context_length: u64) {
    let linked = play(&linked_in(), body, context_length, Source::Registered);
    let plugin = play(&as_plugin(), body, context_length, Source::Plugin);
    assert!(linked.compactions.len() >= 2, "{:#?}", linked.compactions);
    assert_eq!(linked.compactions, plugin.compactions);
    for (linked, plugin) in linked.answers.iter().zip(&plugin.answers) {
        assert_eq!(format!("{linked:#}"), format!("{plugin:#}"));
    }
    assert!(
        linked == plugin,
        "the same was sent and is under the summaries"
    );
}

#[test]
fn a_plugin_compacts_and_answers_as_the_engine_linked_in() {
    assert_same(&chat(30, 800), 6_000);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn a_plugin_does_the_same_with_a_real_conversation() {
    let text = std::fs::read_to_string(shared_data().join("claude-code/main.jsonl")).unwrap();
    let conversation = formats::read(text, None).unwrap().remove(0);
    let whole = RenderPlan::whole(conversation.messages().len());
    let body = conversation
        .convert(&whole, Format::OpenAiChat)
        .unwrap()
        .document;
    assert_same(&serde_json::from_str(&body).unwrap(), 50_000);
}

/// One process with the plugin, the next without it: each goes on where the other left the session.
#[test]
fn a_session_goes_on_with_the_other() {
    let whole = chat(40, 800);
    let messages = whole["messages"].as_array().unwrap();
    let swapped = linked_in();
    let linked = linked_in();
    for (part, end) in [40, 80, 120, 161].into_iter().enumerate() {
        let body = json!({"model": "gpt-5", "messages": messages[..end]}).to_string();
        for home in [&swapped, &linked] {
            std::fs::write(home.path().join("chat.json"), &body).unwrap();
        }
        match part % 2 {
            0 => drop(std::fs::remove_dir_all(swapped.plugin_dir("lcm"))),
            _ => drop(swapped.install(PLUGIN, "lcm")),
        }
        let args = [
            "compress", "chat.json", "--session", "work", "--context-length", "5000", "--report",
            "report.json",
        ];
        let [(sent, said), (expected, _)] = [&swapped, &linked].map(|home| home.command(&args));
        assert_eq!(sent, expected, "part {part}");
        let report = std::fs::read_to_string(swapped.path().join("report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["outcome"], "compacted", "{report:#}");
        let source = ["registered", "plugin"][part % 2];
        assert_eq!(report["source"], source, "part {part}: {said}");

        let grep = [
            "tool",
            "lcm_grep",
            r#"{"pattern": "src/module_3.rs"}"#,
            "--session",
            "work",
        ];
        let [(found, _), (expected, _)] = [&swapped, &linked].map(|home| home.command(&grep));
        let [found, expected] =
            [found, expected].map(|text| serde_json::from_str::<Value>(&text).unwrap());
        assert_eq!(found["total"], expected["total"], "part {part}");
        assert_eq!(found["groups"], expected["groups"], "part {part}");
    }
    let [(exported, _), (expected, _)] =
        [&swapped, &linked].map(|home| home.command(&["sessions", "export", "work"]));
    assert_eq!(exported, expected);
    assert_eq!(exported.lines().count(), 160, "all but the system prompt");
    let verified: Value =
        serde_json::from_str(&swapped.command(&["sessions", "verify"]).0).unwrap();
    assert_eq!(verified["ok"], true, "{verified:#}");
}

/// Three people and an assistant in one chat, a message a line; what a tool's answer calls `name` is the tool.
const GROUP: &str = concat!(
    r#"{"role": "user", "name": "ben", "content": "Ana said she bought a boat. Ana bought a red boat!", "ts": 1767225600}"#,
    "\n",
    r#"{"role":"user","name":"ana","content":"I bought a boat, a small one with two sails","ts":1767225630}"#,
    "\n",
    r#"{"role":"user","name":"小明","content":"Who wants to see the boat that Ana bought?","ts":1767225660}"#,
    "\n",
    r#"{"role":"assistant","name":"helper","content":null,"ts":1767225690,"tool_calls":[{"id":"c1","type":"function","function":{"name":"ana","arguments":"{\"boat\":1}"}}]}"#,
    "\n",
    r#"{"role":"tool","name":"ana","tool_call_id":"c1","content":"bought: boat","ts":1767225700}"#,
    "\n",
    r#"{"role":"assistant","name":"helper","content":"The boat lies in the harbour.","ts":1767225720}"#,
    "\n",
);

#[test]
fn in_a_group_chat_it_is_known_who_said_what() {
    let answers = [linked_in(), as_plugin()].map(|home| {
        std::fs::write(home.path().join("group.jsonl"), GROUP).unwrap();
        let ran = |args: &[&str]| home.command(args).0;
        let tool = |name: &str, arguments: Value| -> Value {
            let arguments = arguments.to_string();
            let answer = ran(&["tool", name, &arguments, "--session", "group"]);
            serde_json::from_str(&answer).unwrap()
        };
        ran(&["import", "group.jsonl", "--session", "group"]);
        assert_eq!(ran(&["sessions", "export", "group"]), GROUP);

        let asked = tool("lcm_grep", json!({"question": "What did Ana buy?"}));
        assert_eq!(asked["hits"][0]["name"], "ana", "{asked:#}");
        assert_eq!(asked["hits"][0]["id"], "m2", "{asked:#}");
        let found = tool(
            "lcm_grep",
            json!({"pattern": "boat", "sort": "oldest", "scope": "messages"}),
        );
        let names = |answer: &Value, key: &str| -> Vec<Value> {
            let items = answer[key].as_array().unwrap();
            items.iter().map(|item| item["name"].clone()).collect()
        };
        let named = json!(["ben", "ana", "小明", "helper", null, "helper"]);
        assert_eq!(json!(names(&found, "hits")), named, "{found:#}");
        assert_eq!(found["hits"][4]["tool"], "ana", "{found:#}");
        let recent = tool("lcm_recent", json!({}));
        let mut newest_first = names(&recent, "messages");
        newest_first.reverse();
        assert_eq!(json!(newest_first), named, "{recent:#}");
        let expanded = tool("lcm_expand", json!({"id": "m3"}));
        assert_eq!(names(&expanded, "messages"), ["小明"]);
        let verified: Value = serde_json::from_str(&ran(&["sessions", "verify"])).unwrap();
        assert_eq!(verified["ok"], true, "{verified:#}");
        [asked, found, recent, expanded].map(|answer| comparable(answer, &home))
    });
    assert_eq!(answers[0], answers[1]);
}
