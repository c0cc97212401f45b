//! A client that changes what it said: after every request the lossless engine holds the conversation as it
//! was sent last, each message once, in the window or under exactly one summary of it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashSet;
use std::sync::Arc;

use contexture::engines::Engines;
use contexture::session::{AgentWindow, Compact, Record, Session, SessionOptions};
use contexture_engine_api::MessageKind;
use contexture_tests::lcm::{expand, frontier, tool};
use contexture_tests::{Home, compact, conversation, engines};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

/// What a client does to the list of messages that it sends.
#[derive(Debug, Clone)]
enum Step {
    Append(char),
    Edit(Index, char),
    Insert(Index, char),
    Cut(Index),
    Resend,
}

fn letter() -> impl Strategy<Value = char> {
    prop::sample::select(vec!['a', 'b', 'c'])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => letter().prop_map(Step::Append),
        3 => (any::<Index>(), letter()).prop_map(|(at, with)| Step::Edit(at, with)),
        1 => (any::<Index>(), letter()).prop_map(|(at, what)| Step::Insert(at, what)),
        3 => any::<Index>().prop_map(Step::Cut),
        1 => Just(Step::Resend),
    ]
}

/// A message: who says it (an assistant or the user), and a letter that it repeats.
type Said = (bool, char);

fn said(letters: &str) -> Vec<Said> {
    let said = letters.chars().enumerate();
    said.map(|(at, letter)| (at % 2 == 1, letter)).collect()
}

fn apply(step: &Step, messages: &mut Vec<Said>) {
    let next = messages.len() % 2 == 1;
    match step {
        Step::Append(what) => messages.push((next, *what)),
        Step::Edit(at, with) => {
            let at = at.index(messages.len());
            messages[at].1 = *with;
        }
        Step::Insert(at, what) => messages.insert(at.index(messages.len()), (next, *what)),
        // Nobody can send nothing.
        Step::Cut(at) => messages.truncate(at.index(messages.len()) + 1),
        Step::Resend => {}
    }
}

/// A client that has one process for each request, or one for all.
struct Client {
    engines: Arc<Engines>,
    record: Arc<Record>,
    session: Option<Session>,
    agent: AgentWindow,
    restarts: bool,
    /// How long a message is, in words.
    words: usize,
    /// What the engine keeps lies here.
    home: Home,
}

impl Client {
    fn new(restarts: bool, context_length: u64, words: usize) -> Self {
        let home = Home::new();
        home.configure("context:\n  engine: lcm\n  on_failure: fail\n");
        Self {
            engines: engines(&home),
            record: Record::open(home.path()).unwrap(),
            session: None,
            agent: AgentWindow::new("gpt-5", context_length, context_length / 10),
            restarts,
            words,
            home,
        }
    }

    fn message(&self, (is_assistant, letter): Said) -> Value {
        let role = ["user", "assistant"][usize::from(is_assistant)];
        let words = vec![letter.to_string(); self.words].join(" ");
        json!({"role": role, "content": words})
    }

    fn session(&mut self) -> &mut Session {
        if self.restarts || self.session.is_none() {
            drop(self.session.take());
            if self.restarts {
                self.engines = engines(&self.home);
            }
            let (agent, options) = (self.agent.clone(), SessionOptions::default());
            let opened = Session::open(&self.engines, Some(&self.record), "s", agent, options);
            self.session = Some(opened.unwrap());
        }
        self.session.as_mut().unwrap()
    }

    /// Sends all of it, as `contexture compress` does.
    fn send(&mut self, said: &[Said], force: bool) {
        let messages: Vec<Value> = said.iter().map(|one| self.message(*one)).collect();
        let body = json!({"messages": messages}).to_string();
        let session = self.session();
        let when = if force { Compact::Force } else { Compact::Auto };
        compact(session, &conversation(&body), when).unwrap();
        let warnings = session.take_warnings();
        assert!(warnings.is_empty(), "{warnings:?}");
        self.check(&messages);
    }

    fn exported(&self) -> Vec<Value> {
        let messages = self.record.conversation("s").unwrap();
        let messages = messages.iter();
        messages
            .map(|message| serde_json::from_str(message).unwrap())
            .collect()
    }

    fn check(&mut self, sent: &[Value]) {
        let kept = self.exported();
        let mut sent = sent.to_vec();
        let brief = |all: &[Value]| all.iter().map(brief).collect::<Vec<_>>().join(" ");
        assert!(
            kept == sent,
            "kept as `{}`, sent as `{}`",
            brief(&kept),
            brief(&sent)
        );

        let nodes = frontier(&self.engines, "s");
        let session = self.session.as_mut().unwrap();
        let status = tool(session, "lcm_status", &json!({}));
        assert_eq!(status["in_conversation"], json!(sent.len()));
        let doctor = tool(session, "lcm_doctor", &json!({}));
        assert_eq!(doctor["ok"], json!(true), "{doctor}");

        // What the model sees: messages, and what stands under the summaries that are shown.
        let window = Arc::clone(session.window());
        let calls = window.call_views();
        let views = window.views(&calls);
        let (mut summaries, mut seen) = (String::new(), Vec::new());
        for view in &views {
            match view.kind() {
                MessageKind::Summary => summaries.push_str(view.text()),
                _ => seen.push(json!({"role": view.role(), "content": view.text()})),
            }
        }
        let mut ids = HashSet::new();
        for node in nodes
            .iter()
            .filter(|node| summaries.contains(&format!("[{node} | ")))
        {
            for (id, message) in expand(session, node, 4_000) {
                assert!(ids.insert(id.clone()), "{id} is under two summaries");
                seen.push(serde_json::from_str::<Value>(&message).unwrap());
            }
        }
        assert_eq!(
            summaries.is_empty(),
            ids.is_empty(),
            "a summary over nothing: {summaries}"
        );
        seen.sort_by_key(Value::to_string);
        sent.sort_by_key(Value::to_string);
        assert!(
            seen == sent,
            "`{}` can be seen or had back, and `{}` was sent",
            brief(&seen),
            brief(&sent)
        );
    }
}

fn brief(message: &Value) -> String {
    let content = message["content"].as_str().unwrap();
    format!(
        "{}:{}",
        &message["role"].as_str().unwrap()[..1],
        &content[..1]
    )
}

fn play(client: &mut Client, start: &str, steps: &[Step], force: impl Fn(usize) -> bool) {
    let mut messages = said(start);
    client.send(&messages, force(0));
    for (at, step) in steps.iter().enumerate() {
        apply(step, &mut messages);
        client.send(&messages, force(at + 1));
    }
}

fn send_all(client: &mut Client, sent: &[&str]) {
    for letters in sent {
        client.send(&said(letters), false);
    }
}

#[test]
fn what_an_edit_replaced_stays_away_when_the_edit_is_cut_off() {
    for restarts in [true, false] {
        let play = |sent: &[&str]| send_all(&mut Client::new(restarts, 100_000, 1), sent);
        play(&["abc", "aBc", "a", "abc"]);
        play(&["abcd", "abCd", "ab"]);
        play(&["abcd", "abCd", "aBCd", "aB", "aBCd"]);
        play(&["abcd", "aBcd", "aXcd", "aX"]);
        play(&["abcd", "aBcd", "aXcd", "a", "abcd"]);
    }
}

#[test]
fn an_edit_of_a_summarised_message_is_seen_at_once() {
    for restarts in [true, false] {
        let mut client = Client::new(restarts, 2_000, 100);
        let steps = ["abcdefghijklmnop", "abcXefghijklmnop", "abcXefghijklmnopqr"];
        send_all(&mut client, &steps);
        assert!(
            !frontier(&client.engines, "s").is_empty(),
            "something is summarised"
        );
    }
}

#[test]
fn what_comes_in_among_summarised_messages_is_seen_at_once() {
    let mut client = Client::new(true, 2_000, 100);
    send_all(&mut client, &["abcdefghijklmnop"]);
    send_all(&mut client, &["abcXXdefghijklmnop", "abcXXdefghijklmnopq"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_short_conversation_is_kept_as_it_was_sent_last(
        start in "[abc]{1,5}",
        steps in prop::collection::vec(step(), 1..7),
        restarts in any::<bool>(),
    ) {
        play(&mut Client::new(restarts, 100_000, 1), &start, &steps, |_| false);
    }

    #[test]
    fn a_summarised_conversation_is_kept_as_it_was_sent_last(
        start in "[abc]{4,14}",
        steps in prop::collection::vec(step(), 1..7),
        restarts in any::<bool>(),
        forced in any::<u8>(),
    ) {
        play(&mut Client::new(restarts, 2_000, 100), &start, &steps, |at| forced >> (at % 8) & 1 == 1);
    }
}
