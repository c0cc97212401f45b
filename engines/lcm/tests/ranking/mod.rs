//! Conversations with questions on them, and how two rankings answer these: ours, and SQLite's own.
#![allow(missing_docs, unreachable_pub, dead_code)]

use std::path::Path;

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::search::{Answer, Ask, HitKind, Query, Weights};
use contexture_lcm::{Embedder, SessionId, Store, StoreSettings};
use serde_json::Value;

use crate::ingest::Ingest;

pub const FIRST: [usize; 5] = [1, 3, 5, 10, 20];

pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[derive(Default, Clone)]
pub struct Message {
    pub role: String,
    pub name: String,
    pub text: String,
    pub at_ms: Option<i64>,
}

impl Message {
    pub fn new(role: &str, text: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            text: text.into(),
            ..Self::default()
        }
    }
}

/// How a message tells who speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// `"name": "Ana"` beside it
    Name,
    /// "Ana: hello"
    InFront,
    /// Not at all: only the role alternates.
    Unsaid,
}

pub fn conversation(path: &Path, speaker: Speaker) -> Vec<Message> {
    lines(path)
        .iter()
        .map(|line| {
            let content = line["content"].as_str().unwrap();
            let name = line["name"].as_str();
            let in_front = name.filter(|_| speaker == Speaker::InFront);
            let beside = name.filter(|_| speaker == Speaker::Name);
            Message {
                role: line["role"].as_str().unwrap().to_owned(),
                name: beside.unwrap_or_default().to_owned(),
                text: in_front.map_or(content.to_owned(), |name| format!("{name}: {content}")),
                at_ms: line["ts"].as_i64().map(|seconds| seconds * 1_000),
            }
        })
        .collect()
}

/// SQLite's FTS5 with porter stemming, the words of the question joined by OR, by bm25.
pub fn floor(messages: &[Message]) -> impl Fn(&str) -> Vec<u64> + use<> {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection
        .execute_batch("CREATE VIRTUAL TABLE t USING fts5(x, tokenize = 'porter unicode61')")
        .unwrap();
    for (rowid, message) in messages.iter().enumerate() {
        connection
            .execute(
                "INSERT INTO t(rowid, x) VALUES(?1, ?2)",
                (rowid as i64, &message.text),
            )
            .unwrap();
    }
    move |question| {
        let words: Vec<String> = question
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| format!("\"{word}\""))
            .collect();
        let mut statement = connection
            .prepare("SELECT rowid FROM t WHERE t MATCH ?1 ORDER BY bm25(t) LIMIT 20")
            .unwrap();
        let rows = statement
            .query_map([words.join(" OR ")], |row| row.get::<_, i64>(0))
            .unwrap();
        rows.map(|row| row.unwrap() as u64).collect()
    }
}

/// The messages in a store of ours.
pub struct Ours {
    _directory: tempfile::TempDir,
    store: Store,
    sessions: Vec<SessionId>,
}

impl Ours {
    pub fn new(messages: &[Message]) -> Self {
        Self::in_sessions(&[messages], None)
    }

    /// Each slice is a session; messages are numbered through all of them.
    pub fn in_sessions(parts: &[&[Message]], embedder: Option<&Embedder>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = StoreSettings {
            background_index: false,
            embedder: embedder.cloned(),
            ..StoreSettings::default()
        };
        let store = crate::ingest::open(directory.path(), settings).unwrap();
        let mut ids = 0..;
        let sessions = (0..)
            .zip(parts)
            .map(|(number, messages): (u64, _)| {
                let session = store.open_session(&number.to_string()).unwrap();
                let views: Vec<MessageView<'_>> = (messages.iter().zip(&mut ids))
                    .map(|(message, id)| {
                        let view = MessageView::new(MessageId(id), &message.role)
                            .with_name(&message.name)
                            .with_text(&message.text);
                        match message.at_ms {
                            Some(at) => view.with_time(at),
                            None => view,
                        }
                    })
                    .collect();
                store.ingest(session, &views).unwrap();
                store.index_now(session).unwrap();
                session
            })
            .collect();
        Self {
            _directory: directory,
            store,
            sessions,
        }
    }

    /// Makes all vectors, and returns how many bytes they take.
    pub fn embed(&self) -> i64 {
        for session in &self.sessions {
            self.store.embed_now(*session, || ()).unwrap();
        }
        let connection = rusqlite::Connection::open(self.store.path()).unwrap();
        let sum = "SELECT coalesce(sum(length(data)), 0) FROM vectors";
        connection.query_row(sum, [], |row| row.get(0)).unwrap()
    }

    /// Takes the vectors of a store whose messages these repeat again and again.
    pub fn embed_as(&self, repeated: &Self) {
        let connection = rusqlite::Connection::open(self.store.path()).unwrap();
        let path = repeated.store.path().to_str().unwrap();
        connection.execute("ATTACH ?1 AS other", [path]).unwrap();
        let insert = "INSERT INTO vectors SELECT m.id, v.embedder, v.data FROM messages m JOIN other.vectors v
             ON v.message & 4294967295 = (m.id & 4294967295) % (SELECT count(*) FROM other.vectors)";
        connection.execute(insert, []).unwrap();
    }

    pub fn ask(&self, question: &str, weights: &Weights) -> Answer {
        let mut query = Query::new(self.sessions[0], Ask::Question(question.to_owned()));
        query.sessions.clone_from(&self.sessions);
        query.limit = 20;
        self.store
            .search_weighted(&query, weights, &|| false)
            .unwrap()
    }

    pub fn first(&self, question: &str) -> Vec<u64> {
        self.first_by(question, &Weights::default())
    }

    pub fn first_by(&self, question: &str, weights: &Weights) -> Vec<u64> {
        let answer = self.ask(question, weights);
        answer
            .hits
            .iter()
            .filter_map(|hit| match hit.kind {
                HitKind::Message { id } | HitKind::File { id, .. } => Some(id.0),
                HitKind::Summary => None,
            })
            .collect()
    }
}

/// Questions, and how many had an answer among the first 1, 3, …: ours, then the floor's.
#[derive(Default, Clone, Copy)]
pub struct Tally {
    pub asked: usize,
    pub hits: [[usize; FIRST.len()]; 2],
}

impl Tally {
    pub fn add(&mut self, rankings: [&[u64]; 2], evidence: &[u64]) {
        self.asked += 1;
        for (row, ranking) in rankings.iter().enumerate() {
            for (column, first) in FIRST.iter().enumerate() {
                let top = &ranking[..ranking.len().min(*first)];
                let found = evidence.iter().any(|id| top.contains(id));
                self.hits[row][column] += usize::from(found);
            }
        }
    }

    /// The share found among the first ten: ours, and the floor's.
    pub fn first_ten(&self) -> [f64; 2] {
        self.hits.map(|hits| hits[3] as f64 / self.asked as f64)
    }

    pub fn print(&self, what: &str) {
        let share = |hits: [usize; FIRST.len()]| {
            hits.map(|count| format!("{:.3}", count as f64 / self.asked as f64))
                .join(" ")
        };
        println!(
            "{what:<24}{:>5}   {}   {}",
            self.asked,
            share(self.hits[0]),
            share(self.hits[1])
        );
    }
}
