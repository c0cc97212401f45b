//! Engines swapped in the middle of a session by a line of `config.yaml`, with the real command: what was said under
//! the lossless engine stays, and of what a lossy one let go the host says how much it is. And clients that swap the
//! window they send: what was restored stays restored.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::time::Duration;

use contexture::formats::Format;
use contexture::session::{AgentWindow, Compact, Record, Session, SessionOptions, TurnOptions};
use contexture_engine_api::MessageId;
use contexture_tests::{Home, chat, conversation, engines};
// Linked in, so that it can be named.
use contexture_tiered as _;
use serde_json::{Value, json};

/// Messages between two runs of the command, and those after which another engine takes over.
const STEP: usize = 12;
const FIRST: usize = 48;
const SECOND: usize = 96;
const ALL: usize = 144;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Client {
    SendsAll,
    /// Goes on with what it was handed out.
    CarriesOn,
}

/// A session of which `lcm` has the beginning and the end, and `other` what lies between.
struct Swapped {
    said: Vec<Value>,
    exported: Vec<Value>,
    /// What was said on stderr.
    told: String,
}

impl Swapped {
    fn play(other: &str, client: Client) -> Self {
        let home = Home::new();
        if other == "keep-tail" {
            home.install("plugins/context_engine/keep-tail", "keep-tail");
        }
        let body = chat(ALL / 4, 1_500);
        let messages = body["messages"].as_array().unwrap();
        let (system, said) = (&messages[..1], &messages[1..=ALL]);
        let mut holds = system.to_vec();
        let mut told = String::new();
        for end in (STEP..=ALL).step_by(STEP) {
            let engine = match end {
                end if end > FIRST && end <= SECOND => other,
                _ => "lcm",
            };
            home.configure(&format!("context: {{engine: {engine}}}\n"));
            holds.extend_from_slice(&said[end - STEP..end]);
            let input = json!({"model": "gpt-5", "messages": holds});
            std::fs::write(home.path().join("in.json"), input.to_string()).unwrap();
            let arguments = ["compress", "in.json", "--output", "out.json"];
            let session = ["--session", "work", "--context-length", "8000"];
            told += &home.command(&[arguments.as_slice(), &session].concat()).1;
            if client == Client::CarriesOn {
                let output = std::fs::read_to_string(home.path().join("out.json")).unwrap();
                let output: Value = serde_json::from_str(&output).unwrap();
                holds = output["messages"].as_array().unwrap().clone();
            }
        }
        // It fails if the text of a message is not stored, and prints the others.
        let output = home.contexture(&["sessions", "export", "work"]).output();
        let output = output.unwrap();
        told += &String::from_utf8(output.stderr).unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        Self {
            said: said.to_vec(),
            exported: lines.collect(),
            told,
        }
    }
}

const LOSSY: [&str; 3] = ["compressor", "keep-tail", "two-layer"];
/// They read the transcript, so it keeps what they take out of the window.
const KEEPS: [&str; 2] = ["tiered", "virtual-files"];

#[test]
fn a_client_that_sends_everything_loses_nothing_to_any_engine() {
    for other in LOSSY.into_iter().chain(KEEPS) {
        let session = Swapped::play(other, Client::SendsAll);
        assert_eq!(session.exported, session.said, "{other}");
        assert!(!session.told.contains("no longer"), "{}", session.told);
        assert!(!session.told.contains("not stored"), "{}", session.told);
    }
}

#[test]
fn what_a_lossy_engine_let_go_is_told_and_the_rest_is_there() {
    for other in LOSSY {
        let Swapped {
            said,
            exported,
            told,
        } = Swapped::play(other, Client::CarriesOn);
        // What is there is in the order in which it was said.
        let mut rest = said.iter();
        let is_next = |message: &Value| rest.any(|said| said == message);
        assert!(exported.iter().all(is_next), "{other}");
        for (at, message) in said.iter().enumerate() {
            let was_others = (FIRST..SECOND).contains(&at);
            assert!(was_others || exported.contains(message), "{other}, {at}");
        }
        let gone = said.len() - exported.len();
        assert!(
            gone > 0,
            "{other} lets nothing go: this client is no trial of it"
        );
        let warning =
            format!("warning: {gone} earlier messages are no longer in the request or in a store");
        assert!(told.contains(&warning), "{other}, {gone}: {told}");
        let not_stored = format!("the text of {gone} messages is not stored");
        assert!(told.contains(&not_stored), "{other}, {gone}: {told}");
    }
}

#[test]
fn what_the_transcript_keeps_comes_back_with_the_lossless_one() {
    for other in KEEPS {
        let session = Swapped::play(other, Client::CarriesOn);
        assert_eq!(session.exported, session.said, "{other}");
        assert!(!session.told.contains("no longer"), "{}", session.told);
        assert!(!session.told.contains("not stored"), "{}", session.told);
    }
}

/// How a client writes its messages.
#[derive(Debug, Clone, Copy)]
enum Wire {
    Chat,
    /// Chat messages with lists of parts.
    Parts,
    Anthropic,
    Responses,
}

impl Wire {
    const ALL: [Self; 4] = [Self::Chat, Self::Parts, Self::Anthropic, Self::Responses];

    fn format(self) -> Format {
        match self {
            Self::Chat | Self::Parts => Format::OpenAiChat,
            Self::Anthropic => Format::Anthropic,
            Self::Responses => Format::OpenAiResponses,
        }
    }

    fn list(self) -> &'static str {
        match self {
            Self::Responses => "input",
            _ => "messages",
        }
    }

    /// A question, a call with long arguments, its long result and an answer: four messages.
    fn turn(self, turn: usize) -> [Value; 4] {
        let (id, result) = (format!("c{turn}"), result(turn));
        let parts = json!([{"type": "text", "text": result}]);
        let input = json!({"path": "a.md", "content": argument(turn)});
        let arguments = input.to_string();
        let chat = json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "load", "arguments": arguments}}]});
        let (call, result) = match self {
            Self::Chat => (
                chat,
                json!({"role": "tool", "tool_call_id": id, "content": result}),
            ),
            Self::Parts => (
                chat,
                json!({"role": "tool", "tool_call_id": id, "content": parts}),
            ),
            Self::Anthropic => (
                json!({"role": "assistant", "content": [
                    {"type": "tool_use", "id": id, "name": "load", "input": input}]}),
                json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": id, "content": parts}]}),
            ),
            Self::Responses => (
                json!({"type": "function_call", "call_id": id, "name": "load", "arguments": arguments}),
                json!({"type": "function_call_output", "call_id": id, "output": result}),
            ),
        };
        let said = |role: &str, text: String| json!({"role": role, "content": text});
        [
            said("user", format!("Question {turn}?")),
            call,
            result,
            said("assistant", format!("Answer {turn}.")),
        ]
    }
}

fn result(turn: usize) -> String {
    format!("Result {turn}: {}", "what was read; ".repeat(300))
}

fn argument(turn: usize) -> String {
    format!("Argument {turn}: {}", "what was written; ".repeat(100))
}

/// A client whose requests each go to a process of their own.
struct Restarted {
    home: Home,
    wire: Wire,
    /// Whether it hands a document over, as the command does, or a request.
    is_document: bool,
}

impl Restarted {
    fn record(&self) -> std::sync::Arc<Record> {
        Record::open(self.home.path()).unwrap()
    }

    /// The window that is handed out for these messages.
    fn send(&self, messages: &[Value], compact: Compact, at: &str) -> Vec<Value> {
        let agent = AgentWindow::new("gpt-5", 100_000, 10_000);
        let (engines, record) = (engines(&self.home), self.record());
        let options = SessionOptions::default();
        let mut session = Session::open(&engines, Some(&record), "s", agent, options).unwrap();
        let body = json!({"model": "gpt-5", self.wire.list(): messages}).to_string();
        let options = TurnOptions::default().compact(compact);
        let handed = match self.is_document {
            false => {
                let format = Some(self.wire.format());
                let turn = session.turn_with(&body, format, &options).unwrap();
                turn.body.into_owned()
            }
            true => {
                let document = conversation(&body);
                session.turn_over(&document, &options, &mut |_| {}).unwrap();
                document.render(&session.render_plan(&document)).unwrap()
            }
        };
        assert_eq!(session.take_warnings(), [""; 0], "{at}");
        session.end().unwrap();
        let handed: Value = serde_json::from_str(&handed).unwrap();
        handed[self.wire.list()].as_array().unwrap().clone()
    }
}

#[test]
fn a_restored_message_stays_restored_whatever_window_the_client_sends() {
    // All that was said, the window that was Handed out first, or the Last one: every three of them in a row.
    const ORDER: &str = "AAAHAALAHHAHLALHALLHHHLHLLLAA";
    for (wire, is_document) in Wire::ALL
        .into_iter()
        .flat_map(|wire| [(wire, false), (wire, true)])
    {
        let home = Home::new();
        home.configure("context: {engine: tiered, on_failure: fail}\n");
        let client = Restarted {
            home,
            wire,
            is_document,
        };
        let mut all: Vec<Value> = (1..=7).flat_map(|turn| wire.turn(turn)).collect();
        all.truncate(all.len() - 3);
        let mut handed = client.send(&all, Compact::Force, "");
        let mut last = handed.clone();
        let restored = [MessageId(3), MessageId(6)];
        let wished = (client.record())
            .wish_restored("s", Some(&restored), Duration::ZERO)
            .unwrap();
        assert_eq!(wished, restored);
        // The other formats differ only in how a message is recognised.
        let order = match wire {
            Wire::Chat => ORDER,
            _ => &ORDER[8..20],
        };
        for (step, sends) in order.char_indices() {
            // Now and then the conversation goes on.
            if step % 3 == 2 {
                let [question, ..] = wire.turn(10 + step);
                let answer = json!({"role": "assistant", "content": format!("Well, {step}.")});
                for window in [&mut all, &mut handed, &mut last] {
                    window.extend([answer.clone(), question.clone()]);
                }
            }
            let window = match sends {
                'A' => &all,
                'H' => &handed,
                _ => &last,
            };
            let at = format!("{wire:?}, document: {is_document}, {}", &order[..=step]);
            last = client.send(window, Compact::Auto, &at);
            let text = serde_json::to_string(&last).unwrap();
            let shows = |what: String| text.contains(&what);
            assert_eq!(last.len(), all.len(), "{at}");
            assert!(shows(result(1)) && shows(argument(2)), "{at}");
            assert!(!shows(result(2)) && !shows(argument(1)), "{at}");
        }
        let wished = client.record().wish_restored("s", None, Duration::ZERO);
        assert!(!wished.unwrap().is_empty());
        for window in [&handed, &all, &last] {
            let text = serde_json::to_string(&client.send(window, Compact::Auto, "all")).unwrap();
            for turn in 1..=6 {
                let is_whole = text.contains(&result(turn)) && text.contains(&argument(turn));
                assert!(is_whole, "{wire:?}, document: {is_document}, {turn}");
            }
        }
    }
}
