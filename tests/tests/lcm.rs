//! The lossless engine in the host: whatever happens to a conversation, each of its messages stands in the
//! window or under exactly one summary of it, and comes back byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use contexture::engines::{Engines, Source, registered_engines};
use contexture::formats::{self, Conversation};
use contexture::session::{AgentWindow, Ask, OutcomeKind, Session, Store};
use contexture_engine_api::{MessageId, SUMMARY_END_MARK, StoreCommand, ToolCall};
use contexture_tests::{Home, engines, shared_data};
use proptest::prelude::*;
use serde_json::{Value, json};

const LCM: &str = "context:\n  engine: lcm\n  on_failure: fail\n";

fn agent(context_length: u64) -> AgentWindow {
    AgentWindow {
        model: "gpt-5".to_owned(),
        context_length,
        max_output_tokens: context_length / 10,
    }
}

fn tool(session: &mut Session, name: &str, arguments: &Value) -> Value {
    let call = ToolCall {
        name: name.to_owned(),
        arguments: arguments.to_string(),
    };
    let answer = session
        .call_tool(call)
        .unwrap_or_else(|error| panic!("{name} {arguments}: {error}"));
    serde_json::from_str(&answer).unwrap()
}

/// Everything under an id, page by page: the messages in order, each put together from its parts.
fn expand(session: &mut Session, id: &str, max_tokens: u64) -> Vec<(String, String)> {
    let mut messages: Vec<(String, String)> = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut arguments = json!({"id": id, "max_tokens": max_tokens});
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = tool(session, "lcm_expand", &arguments);
        for item in page["messages"].as_array().unwrap() {
            let id = item["id"].as_str().unwrap().to_owned();
            let text = item["message"].as_str().unwrap();
            match messages.last_mut() {
                Some((last, whole)) if *last == id && item["part"]["first_byte"] != json!(0) => {
                    whole.push_str(text);
                }
                _ => messages.push((id, text.to_owned())),
            }
        }
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            return messages;
        }
    }
}

/// The summaries that the window shows, as the store has them.
fn frontier(engines: &Engines) -> (Vec<String>, u64) {
    let shown = engines
        .manage(
            Some("lcm"),
            &StoreCommand::Show {
                session: "s".to_owned(),
            },
        )
        .unwrap();
    let ids = shown["window"]["summaries"].as_array().unwrap();
    let ids = ids
        .iter()
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    (
        ids,
        shown["window"]["messages_under_summaries"]
            .as_u64()
            .unwrap(),
    )
}

#[test]
fn it_is_registered_and_needs_no_plugin() {
    let all = registered_engines().unwrap();
    let lcm = all
        .iter()
        .find(|engine| engine.name == "lcm")
        .expect("lcm is linked in");
    assert_eq!(lcm.owner, "contexture-lcm");
    let home = Home::new();
    let session = Session::open(&engines(&home), "s", Some("lcm"), agent(8_000)).unwrap();
    assert_eq!(session.engine().source(), Source::Registered);
}

/// What happens to a conversation.
#[derive(Debug, Clone)]
enum Event {
    User(usize),
    /// The same words as before.
    Repeat,
    Tools {
        calls: usize,
        size: usize,
    },
    Answer(usize),
    /// The client sends the same again.
    Resend,
    Edit(prop::sample::Index),
    Rewind(prop::sample::Index),
    Compact,
    /// The process ends without a word, and the next one goes on.
    Restart,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_usize..400).prop_map(Event::User),
        1 => Just(Event::Repeat),
        4 => (1_usize..3, 0_usize..1_500).prop_map(|(calls, size)| Event::Tools { calls, size }),
        3 => (0_usize..600).prop_map(Event::Answer),
        1 => Just(Event::Resend),
        1 => any::<prop::sample::Index>().prop_map(Event::Edit),
        1 => any::<prop::sample::Index>().prop_map(Event::Rewind),
        1 => Just(Event::Compact),
        1 => Just(Event::Restart),
    ];
    prop::collection::vec(event, 5..45)
}

/// A client, and the host that it talks to.
struct Play {
    home: Home,
    engines: Arc<Engines>,
    store: Arc<Store>,
    session: Option<Session>,
    messages: Vec<Value>,
    number: usize,
    /// Everything that was ever said, by the host's id.
    said: BTreeMap<MessageId, String>,
}

impl Play {
    fn new() -> Self {
        let home = Home::new();
        home.configure(LCM);
        let engines = engines(&home);
        let store = Store::open(home.path()).unwrap();
        let mut play = Self {
            home,
            engines,
            store,
            session: None,
            messages: Vec::new(),
            number: 0,
            said: BTreeMap::new(),
        };
        play.restart();
        play
    }

    fn restart(&mut self) {
        drop(self.session.take());
        self.engines = engines(&self.home);
        let session = Session::resume(&self.engines, &self.store, "s", None, agent(3_000)).unwrap();
        self.session = Some(session);
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap()
    }

    /// Words that occur nowhere else.
    fn words(&mut self, size: usize) -> String {
        self.number += 1;
        let filler = format!("word{} ", self.number);
        format!(
            "needle-{}-alpha {}",
            self.number,
            filler.repeat(size / filler.len())
        )
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::User(size) => {
                let words = self.words(*size);
                self.messages
                    .push(json!({"role": "user", "content": words}));
            }
            Event::Repeat => {
                self.messages
                    .push(json!({"role": "user", "content": "the same words again"}));
            }
            Event::Tools { calls, size } => {
                let ids: Vec<String> = (0..*calls)
                    .map(|at| format!("c{}_{at}", self.messages.len()))
                    .collect();
                let listed: Vec<Value> = ids
                    .iter()
                    .map(|id| json!({"id": id, "type": "function",
                                     "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}))
                    .collect();
                self.messages
                    .push(json!({"role": "assistant", "content": null, "tool_calls": listed}));
                for id in ids {
                    let output = self.words(*size);
                    self.messages
                        .push(json!({"role": "tool", "tool_call_id": id, "content": output}));
                }
            }
            Event::Answer(size) => {
                let words = self.words(*size);
                self.messages
                    .push(json!({"role": "assistant", "content": words}));
            }
            Event::Resend => {}
            Event::Edit(index) => {
                let users: Vec<usize> = (0..self.messages.len())
                    .filter(|at| self.messages[*at]["role"] == "user")
                    .collect();
                if !users.is_empty() {
                    let at = users[index.index(users.len())];
                    let words = self.words(60);
                    self.messages[at]["content"] = json!(words);
                }
            }
            Event::Rewind(index) => {
                if !self.messages.is_empty() {
                    let keep = index.index(self.messages.len());
                    // A client cuts before a user's message.
                    let keep = (0..=keep)
                        .rev()
                        .find(|at| self.messages[*at]["role"] == "user")
                        .unwrap_or(0);
                    self.messages.truncate(keep);
                }
            }
            Event::Compact => {
                let ask = Ask {
                    force: true,
                    may_wait_for_model: true,
                    ..Ask::default()
                };
                let report = self.session().compact(&ask).unwrap();
                assert_ne!(report.outcome, OutcomeKind::Failed, "{}", report.reason);
                return;
            }
            Event::Restart => self.restart(),
        }
        self.turn();
    }

    fn turn(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let body = json!({"model": "gpt-5", "messages": self.messages}).to_string();
        let turn = self.session.as_mut().unwrap().turn(&body, None).unwrap();
        if let Some(report) = &turn.compaction {
            assert_ne!(report.outcome, OutcomeKind::Failed, "{}", report.reason);
        }
        let new = turn.new.clone();
        drop(turn);
        let warnings = self.session().take_warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
        // New messages stand in the order of their ids; find each by what the store has of it.
        for id in new {
            let whole = expand(self.session(), &id.to_string(), 4_000);
            self.said.insert(id, whole[0].1.clone());
        }
    }

    /// How many messages of this form are part of the conversation and under no summary.
    fn loose(&mut self, message: &str) -> usize {
        let said = self.said.clone();
        let ids = said.iter().filter(|(_, text)| *text == message);
        ids.filter(|(id, _)| {
            let described = tool(
                self.session(),
                "lcm_describe",
                &json!({"id": id.to_string()}),
            );
            described["in_conversation"] == json!(true) && described["covered_by"].is_null()
        })
        .count()
    }

    fn check(&mut self) {
        let wire: HashMap<String, usize> =
            self.messages
                .iter()
                .fold(HashMap::new(), |mut all, message| {
                    *all.entry(message.to_string()).or_default() += 1;
                    all
                });
        // What the model is sent now, and what is under its summaries, is the whole conversation.
        let body = json!({"model": "gpt-5", "messages": self.messages}).to_string();
        let sent = match self.messages.is_empty() {
            true => json!({"messages": []}),
            false => {
                let turn = self.session.as_mut().unwrap().turn(&body, None).unwrap();
                serde_json::from_str::<Value>(&turn.body).unwrap()
            }
        };
        let (nodes, count) = frontier(&self.engines);
        let mut under: Vec<(String, String)> = Vec::new();
        for node in &nodes {
            under.extend(expand(self.session(), node, 600));
        }
        assert_eq!(under.len() as u64, count);
        let ids: HashSet<&String> = under.iter().map(|(id, _)| id).collect();
        assert_eq!(
            ids.len(),
            under.len(),
            "a message is under two nodes of the frontier"
        );

        let mut there: HashMap<String, usize> = HashMap::new();
        let raw = sent["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(Value::to_string);
        for text in raw.chain(under.iter().map(|(_, text)| text.clone())) {
            *there.entry(text).or_default() += 1;
        }
        // Where the roles want it, a summary and the message beside it share one.
        let joined: Vec<&Value> = (sent["messages"].as_array().unwrap().iter())
            .filter(|message| {
                message["content"]
                    .as_str()
                    .is_some_and(|text| text.contains(SUMMARY_END_MARK))
            })
            .collect();
        for (message, times) in &wire {
            let said: Value = serde_json::from_str(message).unwrap();
            let words = said["content"].as_str().unwrap_or_default().trim();
            let with_summary = joined
                .iter()
                .filter(|one| {
                    one["role"] == said["role"] && one["tool_calls"] == said["tool_calls"]
                })
                .filter(|one| {
                    one["content"]
                        .as_str()
                        .is_some_and(|text| text.contains(words))
                })
                .count();
            // An edit of a message that a summary covers, and what a cut laid bare of one, goes under a
            // summary at the next compaction. Until then the engine has it among its loose messages.
            let waits = match there.get(message) {
                Some(_) => 0,
                None => self.loose(message),
            };
            let found = there.get(message).copied().unwrap_or(0) + with_summary + waits;
            assert!(
                found >= *times,
                "{message} was said {times} times and is there {found} times: {sent:#}"
            );
        }

        // Everything ever said comes back, and is found.
        let said = self.said.clone();
        for (id, text) in &said {
            let back = expand(self.session(), &id.to_string(), 300);
            assert_eq!(back, [(id.to_string(), text.clone())]);
        }
        let known: HashSet<&String> = said.values().collect();
        for message in wire.keys() {
            assert!(
                known.contains(message),
                "{message} was never stored as it came"
            );
        }
        for needle in said.values().filter_map(|text| {
            let at = text.find("needle-")?;
            text[at..].split(' ').next()
        }) {
            let needle = needle.trim_end_matches(['"', '}']);
            let found = tool(
                self.session(),
                "lcm_grep",
                &json!({"pattern": needle, "mode": "literal", "scope": "messages"}),
            );
            assert!(found["total"].as_u64() >= Some(1), "{needle}: {found}");
        }
        let doctor = tool(self.session(), "lcm_doctor", &json!({}));
        assert_eq!(doctor["lineage"]["ok"], json!(true), "{doctor}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_whatever_happens(events in events()) {
        let mut play = Play::new();
        for event in &events {
            play.apply(event);
        }
        play.check();
    }
}

fn conversations() -> Vec<(String, Arc<Conversation>)> {
    let Some(data) = shared_data() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for folder in [
        "claude-code",
        "tau2-bench",
        "swe-agent",
        "memorybank",
        "bfcl-memory",
    ] {
        for entry in std::fs::read_dir(data.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            let Ok(text) = std::fs::read_to_string(&path) else {
                continue;
            };
            // Some of the sets hold lists of questions, too.
            let Ok(read) = formats::read(text, None) else {
                continue;
            };
            let some = read.into_iter().take(8);
            all.extend(
                some.enumerate()
                    .map(|(at, one)| (format!("{name} {at}"), Arc::new(one))),
            );
        }
    }
    all
}

#[test]
fn every_real_conversation_comes_back_byte_for_byte() {
    for (name, conversation) in conversations() {
        let home = Home::new();
        home.configure(LCM);
        let engines = engines(&home);
        let store = Store::open(home.path()).unwrap();
        let mut session = Session::resume(&engines, &store, "s", None, agent(12_000)).unwrap();
        let taken = session.take(&conversation, &mut |_| {}).unwrap();
        assert_eq!(taken.new.len(), conversation.messages().len(), "{name}");
        let ask = Ask {
            force: true,
            may_wait_for_model: true,
            ..Ask::default()
        };
        let report = session.compact(&ask).unwrap();
        assert_ne!(
            report.outcome,
            OutcomeKind::Failed,
            "{name}: {}",
            report.reason
        );

        let (nodes, _) = frontier(&engines);
        let mut under = Vec::new();
        for node in &nodes {
            under.extend(expand(&mut session, node, 8_000));
        }
        let kept = report.kept + report.replaced;
        assert_eq!(under.len() + kept, conversation.messages().len(), "{name}");
        for (at, id) in taken.new.iter().enumerate() {
            let back = expand(&mut session, &id.to_string(), 8_000);
            assert_eq!(back[0].1, conversation.raw(at), "{name}, message {at}");
        }
        let again = session.take(&conversation, &mut |_| {}).unwrap();
        assert!(again.new.is_empty(), "{name} was stored twice");
    }
}
