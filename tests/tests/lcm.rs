//! The lossless engine in the host: whatever happens to a conversation, each of its messages stands in the
//! window or under exactly one summary of it, and comes back byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "lcm/growing_logs.rs"]
mod growing_logs;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use contexture::engines::{Engines, Source, registered_engines};
use contexture::session::{
    AgentWindow, BackgroundAnswer, BackgroundBy, Compact, OutcomeKind, Record, Session,
    SessionOptions, TurnOptions,
};
use contexture_engine_api::MessageId;
use contexture_tests::lcm::{expand, frontier, tool, words};
use contexture_tests::summary_model::{Mood, SummaryModel};
use contexture_tests::{Home, engines, engines_with, under};
use proptest::prelude::*;
use serde_json::{Value, json};

const LCM: &str = "context:\n  engine: lcm\n  on_failure: fail\n";

fn agent(context_length: u64) -> AgentWindow {
    AgentWindow::new("gpt-5", context_length, context_length / 10)
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
    let session = Session::open(&engines(&home), None, "s", agent(8_000), under("lcm")).unwrap();
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
    /// What was asked of the model before is answered now, and more is asked.
    Background,
    Model(Mood),
    /// The process ends without a word, and the next one goes on.
    Restart,
}

fn moods() -> impl Strategy<Value = Mood> {
    prop_oneof![
        1 => Just(Mood::Answers),
        1 => Just(Mood::Rambles),
        1 => Just(Mood::Refuses),
        1 => Just(Mood::Empty),
        1 => Just(Mood::CutOff),
        1 => Just(Mood::TooLong),
        1 => Just(Mood::Broken),
        3 => Just(Mood::Fickle),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0_usize..400).prop_map(Event::User),
        1 => Just(Event::Repeat),
        4 => (1_usize..3, 0_usize..1_500).prop_map(|(calls, size)| Event::Tools { calls, size }),
        3 => (0_usize..600).prop_map(Event::Answer),
        1 => Just(Event::Resend),
        1 => any::<prop::sample::Index>().prop_map(Event::Edit),
        1 => any::<prop::sample::Index>().prop_map(Event::Rewind),
        1 => Just(Event::Compact),
        1 => Just(Event::Restart),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 5..45)
}

fn events_with_a_model() -> impl Strategy<Value = Vec<Event>> {
    let with_model = prop_oneof![
        8 => event(),
        2 => Just(Event::Background),
        1 => moods().prop_map(Event::Model),
    ];
    prop::collection::vec(with_model, 5..45)
}

fn open(home: &Home, model: Option<&SummaryModel>) -> Arc<Engines> {
    match model {
        Some(model) => engines_with(home, model.client()),
        None => engines(home),
    }
}

/// A client, and the host that it talks to.
struct Play {
    home: Home,
    engines: Arc<Engines>,
    record: Arc<Record>,
    session: Option<Session>,
    messages: Vec<Value>,
    number: usize,
    /// Everything that was ever said, by the host's id.
    said: BTreeMap<MessageId, String>,
    model: Option<SummaryModel>,
    /// Answers that the engine has not been given yet.
    late: Vec<BackgroundAnswer>,
}

impl Play {
    fn new(model: Option<SummaryModel>) -> Self {
        let home = Home::new();
        home.configure(LCM);
        let engines = open(&home, model.as_ref());
        let record = Record::open(home.path()).unwrap();
        let mut play = Self {
            home,
            engines,
            record,
            session: None,
            messages: Vec::new(),
            number: 0,
            said: BTreeMap::new(),
            model,
            late: Vec::new(),
        };
        play.restart();
        play
    }

    fn restart(&mut self) {
        drop(self.session.take());
        self.late.clear();
        self.engines = open(&self.home, self.model.as_ref());
        let options = SessionOptions::default().background(BackgroundBy::Embedder);
        let record = Some(&self.record);
        let session = Session::open(&self.engines, record, "s", agent(3_000), options);
        self.session = Some(session.unwrap());
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
                self.compact();
                return;
            }
            Event::Background => {
                self.background();
                return;
            }
            Event::Model(mood) => {
                if let Some(model) = &self.model {
                    model.turns(*mood);
                }
                return;
            }
            Event::Restart => self.restart(),
        }
        self.turn_with(&TurnOptions::default());
    }

    fn compact(&mut self) -> Option<OutcomeKind> {
        self.turn_with(
            &TurnOptions::default()
                .compact(Compact::Force)
                .wait_for_model(Some(true)),
        )
    }

    /// The answers come late: whatever happened since, happened while the calls were out.
    fn background(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.session().background_done(late).unwrap();
        let work = self.session().background().unwrap();
        self.late = work.run(&AtomicBool::new(false));
    }

    fn body(&self) -> String {
        json!({"model": "gpt-5", "messages": self.messages}).to_string()
    }

    /// Sends all messages; what came of a compaction, where one was due.
    fn turn_with(&mut self, options: &TurnOptions) -> Option<OutcomeKind> {
        if self.messages.is_empty() {
            return None;
        }
        let body = self.body();
        let turn = self.session().turn_with(&body, None, options).unwrap();
        let outcome = turn.compaction.as_ref().map(|report| report.outcome);
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
        outcome
    }

    /// How many messages of this form are part of the conversation, and how many of these are under a summary.
    fn stored(&mut self) -> HashMap<String, (usize, usize)> {
        let mut stored: HashMap<String, (usize, usize)> = HashMap::new();
        for (id, text) in self.said.clone() {
            let about = json!({"id": id.to_string()});
            let described = tool(self.session(), "lcm_describe", &about);
            let (copies, covered) = stored.entry(text).or_default();
            if described["in_conversation"] == json!(true) {
                *copies += 1;
                *covered += usize::from(!described["covered_by"].is_null());
            }
        }
        stored
    }

    /// The messages as the model is sent them: whole ones, and those that share one with a summary.
    fn sent(&mut self) -> Vec<Value> {
        let body = self.body();
        let turn = self.session().turn(&body).unwrap();
        let sent: Value = serde_json::from_str(&turn.body).unwrap();
        sent["messages"].as_array().unwrap().clone()
    }

    fn check(&mut self) {
        if self.messages.is_empty() {
            // Nobody can send nothing: that all was cut off is heard of with the next message.
            self.apply(&Event::User(10));
        }
        let mut wire: HashMap<String, usize> = HashMap::new();
        for message in &self.messages {
            *wire.entry(message.to_string()).or_default() += 1;
        }
        let sent = self.sent();
        // What is under the summaries is under one of them.
        let mut under: HashSet<String> = HashSet::new();
        for node in frontier(&self.engines, "s") {
            for (id, _) in expand(self.session(), &node, 600) {
                assert!(
                    under.insert(id.clone()),
                    "{id} is under two nodes of the frontier"
                );
            }
        }
        // Each message is there as often as the client sends it. (Words that it repeats may be there more
        // often: where it sends the end of what it sent before, it left out the beginning, and cut nothing.)
        let stored = self.stored();
        for (message, times) in &wire {
            let (copies, covered) = stored.get(message).copied().unwrap_or_default();
            match message.contains("needle-") {
                true => assert_eq!(copies, *times, "copies of {message}"),
                false => assert!(copies >= *times, "{message} was never stored as it came"),
            }
            // Until the next compaction what a summary covers that went with a cut or an edit may be both
            // shown and covered.
            let shown = shown(&sent, message);
            let is_there = shown + covered >= copies || !message.contains("needle-");
            assert!(
                shown <= copies && covered <= copies && is_there,
                "{message} is there {copies} times, shown {shown} times, covered {covered} times: {sent:#?}"
            );
        }
        // After it each message is shown, or under one summary.
        if self.compact() == Some(OutcomeKind::Compacted) {
            let (sent, stored) = (self.sent(), self.stored());
            let has_summary = !frontier(&self.engines, "s").is_empty();
            for message in wire.keys().filter(|_| has_summary) {
                let (copies, covered) = stored.get(message).copied().unwrap_or_default();
                let shown = shown(&sent, message);
                assert_eq!(
                    shown + covered,
                    copies,
                    "{message} is shown {shown} times and covered {covered} times: {sent:#?}"
                );
            }
        }

        // Everything ever said comes back, and is found.
        let said = self.said.clone();
        for (id, text) in &said {
            let back = expand(self.session(), &id.to_string(), 300);
            assert_eq!(back, [(id.to_string(), text.clone())]);
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
            assert_eq!(found["total"], json!(1), "{needle}: {found}");
        }
        let doctor = tool(self.session(), "lcm_doctor", &json!({}));
        assert_eq!(doctor["lineage"]["ok"], json!(true), "{doctor}");
    }
}

/// How often the model is sent this message, by itself or in one with a summary.
fn shown(sent: &[Value], message: &str) -> usize {
    let said: Value = serde_json::from_str(message).unwrap();
    let shows = |one: &&Value| {
        let same = one["role"] == said["role"] && one["tool_calls"] == said["tool_calls"];
        let call = one["tool_call_id"] == said["tool_call_id"];
        let text = one.to_string();
        text == message || (same && call && words(one) == words(&said))
    };
    sent.iter().filter(shows).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_whatever_happens(events in events()) {
        let mut play = Play::new(None);
        for event in &events {
            play.apply(event);
        }
        play.check();
    }

    #[test]
    fn nothing_is_lost_whatever_happens_and_whatever_the_model_does(events in events_with_a_model(), mood in moods()) {
        let model = SummaryModel::start();
        model.turns(mood);
        let mut play = Play::new(Some(model));
        for event in &events {
            play.apply(event);
        }
        play.check();
        // Each event asks for eight texts at most, and no text takes more than a part for each halving, twice.
        let requests = play.model.as_ref().unwrap().requests();
        prop_assert!(requests <= 64 * events.len() as u64, "{requests} requests");
    }
}
