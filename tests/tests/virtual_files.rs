//! The engine of virtual files over the host: what a client is handed, what the model reads back, and what is on the disk.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;

use contexture::engines::Engines;
use contexture::formats::Format;
use contexture::session::{
    AgentWindow, Compact, OutcomeKind, Record, Session, SessionOptions, Turn, TurnOptions,
};
use contexture_engine_api::ToolCall;
use contexture_tests::{Home, engines};
// Linked in, and registered with that.
use contexture_virtual_files as _;
use serde_json::{Value, json};

const NO_SETTINGS: &str = "";

/// A home whose engine is `virtual-files`, and the engines of a process in it.
struct Agent {
    home: Home,
    engines: Arc<Engines>,
    record: Arc<Record>,
}

impl Agent {
    /// `settings` are lines under `context.engines.virtual-files`.
    fn new(settings: &str) -> Self {
        let home = Home::new();
        let mut yaml = "context:\n  engine: virtual-files\n  on_failure: fail\n".to_owned();
        if !settings.is_empty() {
            yaml += &format!("  engines:\n    virtual-files: {settings}\n");
        }
        home.configure(&yaml);
        Self {
            engines: engines(&home),
            record: Record::open(home.path()).unwrap(),
            home,
        }
    }

    fn session(&self, context_length: u64) -> Session {
        let agent = AgentWindow {
            model: "gpt-5".into(),
            context_length,
            max_output_tokens: 1_000,
        };
        let options = SessionOptions::default();
        Session::open(&self.engines, Some(&self.record), "one", agent, options).unwrap()
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

fn turn<'b>(session: &mut Session, format: Format, body: &'b str) -> Turn<'b> {
    let turn = session
        .turn_with(body, Some(format), &TurnOptions::default())
        .unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    turn
}

#[test]
fn debug() {
    let agent = Agent::new(NO_SETTINGS);
    let mut session = agent.session(4_000);
    let body =
        |m: &[Value]| json!({"model": "claude", "max_tokens": 100, "messages": m}).to_string();
    let b = body(&[user("one")]);
    println!("{}", turn(&mut session, Format::Anthropic, &b).body);
    let b = body(&[user("one"), user("two")]);
    println!("{}", turn(&mut session, Format::Anthropic, &b).body);
    let b = body(&[user("one"), user("two"), assistant("x"), user("three")]);
    println!("{}", turn(&mut session, Format::Anthropic, &b).body);
}
