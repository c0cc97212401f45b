//! A session that goes on turn by turn until its engine compacts.

use std::sync::Arc;

use contexture::engines::Engines;
use contexture::session::{AgentWindow, CompactionReport, Record, Session, SessionOptions};
use serde_json::{Value, json};

use crate::{Home, chat, engines};

/// An agent's window of this many tokens.
pub fn agent(context_length: u64) -> AgentWindow {
    AgentWindow::new("gpt-5", context_length, 1_000)
}

/// What came of a turn.
pub struct Outcome {
    /// The compaction, if there was one.
    pub compaction: Option<CompactionReport>,
    /// The request to send.
    pub body: String,
    /// What the session warned of.
    pub warnings: Vec<String>,
}

/// A session of the configured engine, in a window that the conversation of a turn fills.
pub struct Living {
    /// The session.
    pub session: Session,
    said: Vec<Value>,
}

impl Living {
    /// Opens the session with engines of its own.
    pub fn new(home: &Home, id: &str) -> Self {
        Self::under(&engines(home), home, id)
    }

    /// Opens the session with these engines.
    pub fn under(engines: &Arc<Engines>, home: &Home, id: &str) -> Self {
        let record = Record::open(home.path()).unwrap();
        let options = SessionOptions::default();
        let session = Session::open(engines, Some(&record), id, agent(20_000), options).unwrap();
        let said = chat(3, 400)["messages"].as_array().unwrap().clone();
        Self { session, said }
    }

    /// The user says something of about so many bytes.
    pub fn turn(&mut self, size: usize) -> Outcome {
        let words = "the pump station reported no fault; ".repeat(size / 36 + 1);
        self.says(&words)
    }

    /// The user says this.
    pub fn says(&mut self, words: &str) -> Outcome {
        let turn = self.said.len();
        self.said
            .push(json!({"role": "user", "content": format!("{turn} {words}")}));
        let body = json!({"model": "gpt-5", "messages": self.said}).to_string();
        let turn = self.session.turn(&body).unwrap();
        let outcome = Outcome {
            compaction: turn.compaction,
            body: turn.body.into_owned(),
            warnings: self.session.take_warnings(),
        };
        let answer = json!({"role": "assistant", "content": format!("answer {}", self.said.len())});
        self.session.answer(&[&answer.to_string()], None).unwrap();
        self.said.push(answer);
        outcome
    }

    /// Turns until one is compacted, and that one.
    pub fn compacted(&mut self) -> Outcome {
        for _ in 0..40 {
            let turn = self.turn(6_000);
            if turn.compaction.is_some() {
                return turn;
            }
        }
        panic!("nothing was compacted");
    }
}
