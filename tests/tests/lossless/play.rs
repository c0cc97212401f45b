//! One conversation, played as a client would and then taken to pieces.

use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;
use std::sync::Arc;

use contexture::engines::Engines;
use contexture::formats::{self, Message};
use contexture::session::{
    AgentWindow, OutcomeKind, Record, Relation, Session, SessionOptions, TurnOptions,
};
use contexture::tokens::TokenCounter;
use contexture_engine_api::{MessageId, MessageKind};
use contexture_tests::lcm::{expand, frontier, tool};
use contexture_tests::{Home, conversation, engines};
use serde_json::json;

use super::needles::{self, FEW, Said};
use super::sets::Chat;
use super::{SAMPLED_NEEDLES, sample};

/// What was proved, to be printed.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    pub(crate) messages: usize,
    pub(crate) compactions: usize,
    pub(crate) under_summaries: usize,
    pub(crate) summaries: usize,
    pub(crate) needles: usize,
}

impl AddAssign for Proof {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.compactions += other.compactions;
        self.under_summaries += other.under_summaries;
        self.summaries += other.summaries;
        self.needles += other.needles;
    }
}

/// A conversation that was played to its end.
pub(crate) struct Played<'a> {
    chat: &'a Chat,
    engines: Arc<Engines>,
    session: Session,
    /// The messages as engines see them, in order, by the host's ids.
    ids: Vec<MessageId>,
    /// What the model was sent last.
    sent: String,
    /// How many messages there were then.
    known_when_sent: usize,
    compactions: usize,
}

impl<'a> Played<'a> {
    /// Plays it, with a restart in the middle.
    pub(crate) fn new(home: &Home, chat: &'a Chat) -> Self {
        let agent = window(chat);
        let mut played = Self::open(home, chat, &agent);
        let ends: Vec<usize> = (1..=chat.messages.len())
            .filter(|end| chat.role(end - 1) != "system")
            .filter(|end| {
                *end == chat.messages.len()
                    || chat.role(*end) == "assistant"
                    || chat.role(end - 1) == "user"
            })
            .collect();
        for (turn, end) in ends.iter().enumerate() {
            if turn == ends.len() / 2 {
                let (ids, compactions) = (played.ids, played.compactions);
                played.session.end().unwrap();
                drop(played.engines);
                played = Self {
                    ids,
                    compactions,
                    ..Self::open(home, chat, &agent)
                };
            }
            played.turn(*end);
        }
        played
    }

    fn open(home: &Home, chat: &'a Chat, agent: &AgentWindow) -> Self {
        let engines = engines(home);
        let record = Record::open(home.path()).unwrap();
        let (agent, options) = (agent.clone(), SessionOptions::default());
        let session = Session::open(&engines, Some(&record), &chat.name, agent, options).unwrap();
        Self {
            chat,
            engines,
            session,
            ids: Vec::new(),
            sent: String::new(),
            known_when_sent: 0,
            compactions: 0,
        }
    }

    /// A request with the first `end` messages, and its answer where that is the next message.
    fn turn(&mut self, end: usize) {
        let name = &self.chat.name;
        let body = self.chat.body(end);
        let (format, options) = (Some(self.chat.format), TurnOptions::default());
        let turn = self.session.turn_with(&body, format, &options).unwrap();
        assert!(
            turn.revised.is_empty() && turn.relation == Relation::Continues,
            "{name}: {turn:?}"
        );
        if let Some(report) = &turn.compaction {
            assert_ne!(
                report.outcome,
                OutcomeKind::Failed,
                "{name}: {}",
                report.reason
            );
            self.compactions += usize::from(report.outcome == OutcomeKind::Compacted);
        }
        self.ids.extend(&turn.new);
        self.sent = turn.body.into_owned();
        self.known_when_sent = self.ids.len();
        if end < self.chat.messages.len() && self.chat.role(end) == "assistant" {
            let answer = self.chat.messages[end].get();
            self.ids
                .extend(self.session.answer(&[answer], None).unwrap());
        }
        assert_eq!(self.session.take_warnings(), Vec::<String>::new(), "{name}");
    }

    /// That nothing of it is lost, and all that is distinctive is found.
    pub(crate) fn prove(&mut self) -> Proof {
        let name = &self.chat.name;
        let whole = conversation(&self.chat.body(self.chat.messages.len()));
        assert_eq!(self.ids.len(), whole.messages().len(), "{name}");
        let originals: HashMap<String, &str> = (self.ids.iter().enumerate())
            .map(|(at, id)| (id.to_string(), whole.raw(at)))
            .collect();

        // Each message stands in the window or under exactly one summary of it.
        let nodes = frontier(&self.engines, name);
        let mut placed: HashSet<String> = HashSet::new();
        for node in &nodes {
            for (id, message) in expand(&mut self.session, node, 8_000) {
                assert_eq!(message, originals[&id], "{name}: {id} under {node}");
                assert!(
                    placed.insert(id.clone()),
                    "{name}: {id} is under two summaries"
                );
            }
        }
        let under_summaries = placed.len();
        let window = Arc::clone(self.session.window());
        let calls = window.call_views();
        for view in window.views(&calls) {
            let id = view.id().to_string();
            if view.kind() == MessageKind::Summary {
                continue;
            }
            assert!(
                placed.insert(id.clone()),
                "{name}: {id} is in the window and under a summary"
            );
            if view.kind() == MessageKind::Original {
                assert_eq!(view.raw(), originals[&id], "{name}: {id} in the window");
            }
        }
        assert_eq!(placed.len(), originals.len(), "{name}");
        self.check_sent();

        // Each comes back byte for byte.
        for (id, original) in &originals {
            let back = expand(&mut self.session, id, 8_000);
            assert_eq!(back, [(id.clone(), (*original).to_owned())], "{name}");
        }

        let said: Vec<Said> = whole.messages().iter().map(Said::of).collect();
        let needles = sample(needles::candidates(&said), SAMPLED_NEEDLES)
            .iter()
            .filter(|needle| self.find(&said, needle))
            .count();
        Proof {
            messages: self.ids.len(),
            compactions: self.compactions,
            under_summaries,
            summaries: nodes.len(),
            needles,
        }
    }

    /// What the model was sent holds the messages of the window byte for byte.
    fn check_sent(&self) {
        let sent = formats::read(self.sent.as_str(), Some(self.chat.format)).unwrap();
        let sent = &sent[0];
        let wire: HashSet<&str> = (0..sent.messages().len()).map(|at| sent.raw(at)).collect();
        let known = &self.ids[..self.known_when_sent];
        let calls = self.session.window().call_views();
        for view in self.session.window().views(&calls) {
            if view.kind() != MessageKind::Original || !known.contains(&view.id()) {
                continue;
            }
            // A summary of the same role joins its neighbour, which is then there with its words.
            let words = view.text().trim();
            let joined = |message: &Message| message.text.contains(words);
            assert!(
                wire.contains(view.raw()) || sent.messages().iter().any(joined),
                "{}: {} was not sent: {}",
                self.chat.name,
                view.id(),
                view.raw()
            );
        }
    }

    /// Whether a candidate is distinctive; then `lcm_grep` finds it exactly where a plain scan does.
    fn find(&mut self, said: &[Said], needle: &str) -> bool {
        let held = |holds: &dyn Fn(&Said) -> bool| -> Vec<String> {
            let ids = self.ids.iter().zip(said);
            ids.filter(|(_, said)| holds(said))
                .map(|(id, _)| id.to_string())
                .collect()
        };
        let anywhere = held(&|said| said.holds(needle));
        if anywhere.len() > FEW {
            return false;
        }
        let whole = held(&|said| said.holds_whole(needle));
        for (mode, expected) in [("literal", anywhere), ("full_text", whole)] {
            let arguments = json!({
                "pattern": needle, "mode": mode, "scope": "messages", "sort": "oldest",
                "limit": 200, "max_tokens": 32_000,
            });
            let found = tool(&mut self.session, "lcm_grep", &arguments);
            let place = format!("{}: {mode} {needle:?}: {found:#}", self.chat.name);
            assert_eq!(found["total"], expected.len(), "{place}");
            assert_eq!(found["total_is_exact"], true, "{place}");
            let hits = found["hits"].as_array().unwrap().iter();
            let hits: Vec<&str> = hits.map(|hit| hit["id"].as_str().unwrap()).collect();
            assert_eq!(hits, expected, "{place}");
        }
        true
    }
}

/// A window of about a third of the conversation, beside system prompt and tools.
fn window(chat: &Chat) -> AgentWindow {
    let counter = TokenCounter::for_model("gpt-5");
    let messages: u64 = (chat.messages.iter())
        .map(|message| counter.count_text(message.get()))
        .sum();
    let fixed = counter
        .count_text(&chat.body(chat.messages.len()))
        .saturating_sub(messages);
    let context_length = 2 * fixed + (messages / 3).max(250);
    AgentWindow::new("gpt-5", context_length, context_length / 10)
}
