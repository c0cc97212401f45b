//! How often the message that answers a question is among the first, beside SQLite's own ranking.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::search::{Ask, HitKind, Query};
use contexture_lcm::{SessionId, Store, StoreSettings};
use serde_json::Value;

const SCENARIOS: [&str; 2] = ["customer", "notetaker"];
const FIRST: [usize; 3] = [1, 3, 10];

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn said(conversation: &Value) -> Vec<String> {
    let turns = conversation["question"].as_array().unwrap();
    turns
        .iter()
        .flat_map(|turn| turn.as_array().unwrap())
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect()
}

/// SQLite's FTS5 with porter stemming, the words of the question joined by OR, by bm25.
fn floor(messages: &[String]) -> impl Fn(&str) -> Vec<u64> {
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection
        .execute_batch("CREATE VIRTUAL TABLE t USING fts5(x, tokenize = 'porter unicode61')")
        .unwrap();
    for (rowid, message) in messages.iter().enumerate() {
        connection
            .execute(
                "INSERT INTO t(rowid, x) VALUES(?1, ?2)",
                (rowid as i64, message),
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
            .prepare("SELECT rowid FROM t WHERE t MATCH ?1 ORDER BY bm25(t) LIMIT 10")
            .unwrap();
        let rows = statement
            .query_map([words.join(" OR ")], |row| row.get::<_, i64>(0))
            .unwrap();
        rows.map(|row| row.unwrap() as u64).collect()
    }
}

fn ours(messages: &[String]) -> (tempfile::TempDir, Store, SessionId) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s", 0).unwrap();
    for (id, message) in (0..).zip(messages) {
        let view = MessageView::new(MessageId(id), "user").with_text(message);
        store.ingest(session, &[view], id).unwrap();
    }
    store.index_now(session).unwrap();
    (directory, store, session)
}

#[test]
fn finds_the_answer_more_often_than_plain_ranking() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bfcl-memory");
    if !folder.exists() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    let (questions, answers) = (
        lines(&folder.join("questions.jsonl")),
        lines(&folder.join("answers.jsonl")),
    );
    let mut hits = [[0usize; 3]; 2];
    let mut asked = 0;
    for scenario in SCENARIOS {
        let messages: Vec<String> = lines(&folder.join(format!("memory_{scenario}.json")))
            .iter()
            .flat_map(said)
            .collect();
        let floor = floor(&messages);
        let (_directory, store, session) = ours(&messages);
        for (question, answer) in questions.iter().zip(&answers) {
            if question["scenario"] != scenario {
                continue;
            }
            // Quoted with omissions, and with the heading of the note that it stands in.
            let source = answer["source"].as_str().unwrap().replace(": ", "...");
            let parts: Vec<&str> = source
                .split("...")
                .map(|part| part.trim_end_matches('.'))
                .collect();
            let Some(expected) = messages
                .iter()
                .position(|message| parts.iter().all(|part| message.contains(part.trim())))
            else {
                continue;
            };
            asked += 1;
            let text = &said(question)[0];
            let mut query = Query::new(session, Ask::Question(text.clone()));
            query.limit = 10;
            let found: Vec<u64> = store
                .search(&query, &|| false)
                .unwrap()
                .hits
                .iter()
                .filter_map(|hit| match hit.kind {
                    HitKind::Message { id } => Some(id.0),
                    _ => None,
                })
                .collect();
            if std::env::var_os("SHOW_MISSES").is_some()
                && found.first() != Some(&(expected as u64))
            {
                let place = found.iter().position(|id| *id == expected as u64);
                eprintln!("{place:?} {text}\n    {source}");
            }
            for (row, ranking) in [found, floor(text)].iter().enumerate() {
                for (column, first) in FIRST.iter().enumerate() {
                    let top = &ranking[..ranking.len().min(*first)];
                    hits[row][column] += usize::from(top.contains(&(expected as u64)));
                }
            }
        }
    }
    let share = |row: usize| hits[row].map(|count| count as f64 / asked as f64);
    println!(
        "{asked} questions, in the first 1, 3, 10: ours {:.3?}, FTS5 {:.3?}",
        share(0),
        share(1)
    );
    assert!(asked > 40);
    for column in 0..FIRST.len() {
        assert!(hits[0][column] >= hits[1][column], "{hits:?}");
    }
    assert!(hits[0].iter().sum::<usize>() > hits[1].iter().sum());
}
