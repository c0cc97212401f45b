//! The host's own tools, `context_pin`, `context_unpin` and `context_reduce`, under every engine.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;

use contexture::session::{
    AgentWindow, Compact, CompactionReport, OutcomeKind, Record, Session, TurnOptions,
};
use contexture_engine_api::ToolCall;
use contexture_lcm as _;
use contexture_tests::rules::ENGINES;
use contexture_tests::{Home, chat, engines, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use serde_json::{Value, json};

const ON: &str = "compression: {model_tools: true}\n";
const USERS: &str = "## Pinned by the user. It still holds, word for word:";
const MODELS: &str = "## Pinned by the assistant itself. It still holds, word for word:";
const ANSWER: &str = r#"{"role": "assistant", "content": "Done."}"#;
/// Longer than any cache holds a prompt.
const HOURS: i64 = 8 * 3_600_000;

/// A client that sends its whole history, and opens the session again for each request if `reopens`.
struct Play {
    home: Home,
    record: Arc<Record>,
    sent: Vec<Value>,
    work: std::vec::IntoIter<Value>,
    window: u64,
    tools: Value,
}

impl Play {
    fn new(config: &str) -> Self {
        let home = Home::new();
        home.configure(config);
        let record = Record::open(home.path()).unwrap();
        let work = chat(400, 1_800)["messages"].as_array().unwrap().clone();
        let mut work = work.into_iter();
        Self {
            home,
            record,
            sent: work.by_ref().take(1).collect(),
            work,
            window: 48_000,
            tools: json!([{"type": "function", "function": {
                "name": "context_unpin", "parameters": {"type": "object", "properties": {}},
            }}]),
        }
    }

    fn open(&self, engine: &str) -> Session {
        let agent = AgentWindow::new("gpt-5", self.window, self.window / 10);
        let options = under(engine).offer_tools(true);
        let engines = engines(&self.home);
        Session::open(&engines, Some(&self.record), "s", agent, options).unwrap()
    }

    fn says(&mut self, text: &str) {
        self.sent.push(json!({"role": "user", "content": text}));
    }

    /// The body of the next request, after so many messages of work.
    fn body(&mut self, work: usize) -> String {
        self.sent.extend(self.work.by_ref().take(work));
        self.says("Go on.");
        let body = json!({"model": "gpt-5", "tools": self.tools, "messages": self.sent});
        self.sent.push(serde_json::from_str(ANSWER).unwrap());
        body.to_string()
    }
}

fn call(session: &mut Session, tool: &str, arguments: Value) -> Result<String, String> {
    let call = ToolCall::new(tool, arguments.to_string());
    session.call_tool(call).map_err(|error| error.to_string())
}

fn forced() -> TurnOptions {
    TurnOptions::default().compact(Compact::Force)
}

fn is_made(report: &CompactionReport) -> bool {
    report.outcome == OutcomeKind::Compacted
}

fn at(time_ms: i64) -> TurnOptions {
    TurnOptions::default().time_ms(Some(time_ms))
}

/// The lines below a heading, wherever it stands in the messages.
fn section(body: &str, heading: &str) -> Vec<String> {
    fn texts<'v>(value: &'v Value, all: &mut Vec<&'v str>) {
        match value {
            Value::String(text) => all.push(text),
            Value::Array(list) => list.iter().for_each(|value| texts(value, all)),
            Value::Object(object) => object.values().for_each(|value| texts(value, all)),
            _ => {}
        }
    }
    let body: Value = serde_json::from_str(body).unwrap();
    let mut all = Vec::new();
    texts(&body["messages"], &mut all);
    let lines = all.iter().filter_map(|text| text.split_once(heading));
    let lines = lines.flat_map(|(_, after)| {
        let lines = after.trim_start().lines();
        lines.map_while(|line| Some(line.strip_prefix("- ")?.to_owned()))
    });
    lines.collect()
}

#[test]
fn pins_of_the_model_survive_compactions_restarts_and_changes_of_the_engine() {
    for turns in 0..=ENGINES.len() {
        // One engine for all, or another one in each round.
        let engine = |round: usize| match ENGINES.get(turns) {
            Some(name) => *name,
            None => ENGINES[round % ENGINES.len()],
        };
        let mut play = Play::new(ON);
        let body = play.body(4);
        let mut session = play.open(engine(0));
        session.turn(&body).unwrap();
        let pin = |words: &str| json!({"text": words});
        call(
            &mut session,
            "context_pin",
            pin("The port is 8123.\nNever touch main."),
        )
        .unwrap();
        session.answer(&[ANSWER], None).unwrap();
        session.end().unwrap();
        for round in 0..10 {
            if round == 4 {
                play.says("Please:\n/unpin Never touch main.\n/pin Use TLS.");
            }
            let name = engine(round);
            let body = play.body(32);
            let mut session = play.open(name);
            let turn = session.turn_with(&body, None, &forced()).unwrap();
            let report = turn.compaction.as_ref().unwrap();
            assert!(!report.reason.contains("contract"), "{name}: {report:?}");
            let models = section(&turn.body, MODELS);
            let is_there = |words: &str| models.iter().any(|line| line == words);
            assert!(is_there("The port is 8123."), "{name} {round}: {models:?}");
            if round < 4 {
                assert!(is_there("Never touch main."), "{name} {round}: {models:?}");
            }
            drop(turn);
            // A summary that is kept may still have the words, with `/unpin` after it.
            let ended = "Never touch main.";
            assert_eq!(session.pins().contains(ended), round < 4, "{name} {round}");
            let is_users = session.pins().user.iter().any(|pin| pin == "Use TLS.");
            assert_eq!(is_users, round >= 4, "{name} {round}");
            if round == 5 {
                let refused = |error: String, why: &str| assert!(error.contains(why), "{error}");
                let unpin = |session: &mut Session, words: &str| {
                    // The client has a tool of this name.
                    call(session, "contexture_context_unpin", pin(words))
                };
                // What the user has pinned does not become the model's by a pin of its own.
                call(&mut session, "context_pin", pin("use TLS")).unwrap();
                refused(
                    unpin(&mut session, "Use TLS.").unwrap_err(),
                    "only the user",
                );
                refused(
                    unpin(&mut session, "Never touch main.").unwrap_err(),
                    "you have no pin",
                );
                refused(unpin(&mut session, "").unwrap_err(), "no words");
            }
            session.answer(&[ANSWER], None).unwrap();
            session.end().unwrap();
        }
        // What the model ends is gone from the next window on, and what it ends twice is told.
        let body = play.body(32);
        let mut session = play.open(engine(3));
        session
            .turn_with(&body, None, &TurnOptions::default().compact(Compact::Never))
            .unwrap();
        let own = session.pins();
        assert_eq!(own.model, ["The port is 8123."]);
        let unpin = json!({"text": "The port is 8123."});
        call(&mut session, "contexture_context_unpin", unpin).unwrap();
        session.unpin("Use TLS.").unwrap();
        session.answer(&[ANSWER], None).unwrap();
        let body = play.body(32);
        session.turn_with(&body, None, &forced()).unwrap();
        assert!(session.pins().is_empty(), "{:?}", session.pins());
    }
}

#[test]
fn a_program_pins_for_the_user_and_the_model_has_what_is_left_of_the_room() {
    let mut play = Play::new(ON);
    let body = play.body(32);
    let mut session = play.open("compressor");
    session.turn(&body).unwrap();
    let long = |name: &str| format!("{name} {}", "is long and says little, ".repeat(40));
    let most: Vec<String> = ["one", "two"].map(long).into();
    session.pin(&most[0]).unwrap();
    assert!(
        session
            .pin("/pin x")
            .unwrap_err()
            .to_string()
            .contains("cannot be pinned")
    );
    call(&mut session, "context_pin", json!({"text": "a short one"})).unwrap();
    let refused = call(&mut session, "context_pin", json!({"text": most[1]})).unwrap_err();
    assert!(
        refused.contains("480 tokens") && refused.contains("- a short one"),
        "{refused}"
    );
    // The user's newer pin takes the room of the model's.
    session.pin(&most[1]).unwrap();
    let turn = session.turn_with(&body, None, &forced()).unwrap();
    let users = section(&turn.body, USERS);
    assert_eq!(users, [most[1].trim()]);
    let notes = turn.compaction.unwrap().notes.join("\n");
    assert!(notes.contains("1 of the pins did not fit"), "{notes}");
}

/// Plays three requests, the last of them hours later. `wishes` says whether the model asks for a compaction in the
/// first answer. Returns the bodies and what was compacted.
fn play_pause(engine: &str, wishes: bool) -> (Vec<String>, Vec<Option<CompactionReport>>) {
    let mut play = Play::new(ON);
    play.window = 60_000;
    let mut session = play.open(engine);
    let (mut bodies, mut compactions) = (Vec::new(), Vec::new());
    for (time, work) in [(0, 120), (1_000, 4), (HOURS, 4)] {
        let body = play.body(work);
        let turn = session.turn_with(&body, None, &at(time)).unwrap();
        bodies.push(turn.body.into_owned());
        compactions.push(turn.compaction);
        if time == 0 && wishes {
            let keep = json!({"keep": "the release notes"});
            let told = call(&mut session, "context_reduce", keep).unwrap();
            assert!(told.contains("when that is cheap"), "{told}");
        }
        session.answer(&[ANSWER], None).unwrap();
    }
    // It is granted once, also if the session was closed in between.
    session.end().unwrap();
    let mut session = play.open(engine);
    let body = play.body(4);
    let turn = session.turn_with(&body, None, &at(2 * HOURS)).unwrap();
    compactions.push(turn.compaction);
    (bodies, compactions)
}

#[test]
fn a_wish_to_reduce_waits_until_the_cache_is_cold() {
    for engine in ENGINES {
        let (without, _) = play_pause(engine, false);
        let (bodies, compactions) = play_pause(engine, true);
        // While the cache is warm, the wish changes no byte.
        assert!(bodies[..2] == without[..2], "{engine}");
        assert!(bodies[2].len() < without[2].len(), "{engine}");
        let granted = |report: &Option<CompactionReport>| {
            let notes = report.as_ref().map(|report| report.notes.join("\n"));
            notes.is_some_and(|notes| notes.contains("the model asked"))
        };
        let granted: Vec<bool> = compactions.iter().map(granted).collect();
        assert_eq!(
            granted,
            [false, false, true, false],
            "{engine}: {compactions:#?}"
        );
        assert!(is_made(compactions[2].as_ref().unwrap()), "{engine}");
    }
}

#[test]
fn a_wish_to_reduce_survives_a_restart_and_ends_with_the_compaction_that_is_due() {
    let mut play = Play::new("compression: {model_tools: true, timing: threshold}\n");
    play.window = 60_000;
    let mut session = play.open("compressor");
    let body = play.body(32);
    session.turn_with(&body, None, &at(0)).unwrap();
    call(&mut session, "context_reduce", json!({})).unwrap();
    session.answer(&[ANSWER], None).unwrap();
    let body = play.body(280);
    let turn = session.turn_with(&body, None, &at(1_000)).unwrap();
    let report = turn.compaction.unwrap();
    assert!(
        is_made(&report) && !report.notes.join("").contains("the model asked"),
        "{report:?}"
    );
    session.answer(&[ANSWER], None).unwrap();
    let body = play.body(8);
    let turn = session.turn_with(&body, None, &at(HOURS)).unwrap();
    assert!(turn.compaction.is_none(), "{:?}", turn.compaction);
    call(&mut session, "context_reduce", json!({})).unwrap();
    session.answer(&[ANSWER], None).unwrap();
    session.end().unwrap();
    let mut session = play.open("compressor");
    let body = play.body(24);
    let turn = session.turn_with(&body, None, &at(2 * HOURS)).unwrap();
    assert!(turn.compaction.is_some_and(|report| is_made(&report)));
}

#[test]
fn the_tools_are_offered_from_the_first_request_and_only_if_they_are_turned_on() {
    for engine in ENGINES {
        let mut play = Play::new(ON);
        let body = play.body(4);
        let mut session = play.open(engine);
        let turn = session.turn(&body).unwrap();
        let names = |body: &str| -> Vec<String> {
            let body: Value = serde_json::from_str(body).unwrap();
            let tools = body["tools"].as_array().unwrap().iter();
            tools
                .map(|tool| tool["function"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let hosts = ["context_pin", "contexture_context_unpin", "context_reduce"];
        assert_eq!(names(&turn.body)[1..4], hosts, "{engine}");
        drop(turn);
        let with = session.overhead_tokens();
        let own: Vec<String> = session
            .tools()
            .unwrap()
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        assert_eq!(own[..3], ["context_pin", "context_unpin", "context_reduce"]);
        session.end().unwrap();
        // A call may come first in a session that was opened again.
        let mut session = play.open(engine);
        for name in ["context_unpin", "contexture_context_unpin"] {
            let answer = call(&mut session, name, json!({"text": "x"}));
            assert!(answer.unwrap_err().contains("no pin with these words"));
        }

        let mut off = Play::new("");
        let body = off.body(4);
        let mut session = off.open(engine);
        let turn = session.turn(&body).unwrap();
        assert!(!turn.body.contains("context_pin"), "{engine}");
        drop(turn);
        // What the documentation says that they cost.
        let cost = with - session.overhead_tokens();
        assert!((220..=260).contains(&cost), "{engine}: {cost}");
        assert!(call(&mut session, "context_pin", json!({"text": "x"})).is_err());
    }
    let mut manual = Play::new("compression: {model_tools: true, automatic: false}\n");
    let body = manual.body(4);
    let mut session = manual.open("compressor");
    let turn = session.turn(&body).unwrap();
    assert!(turn.body.contains("context_pin") && !turn.body.contains("context_reduce"));
}
