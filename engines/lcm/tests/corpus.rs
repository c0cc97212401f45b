//! Every query of a corpus's `queries.json` finds as many messages as are said to match there.
//! `LCM_CORPUS` names the corpus: one message a line, with `role`, `content` and `ts`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ingest;

use std::path::PathBuf;

use contexture_engine_api::{MessageId, MessageView};
use contexture_lcm::StoreSettings;
use contexture_lcm::search::{Ask, Mode, Pattern, Query};
use ingest::Ingest;
use serde_json::Value;

#[test]
#[ignore = "needs LCM_CORPUS, the path of a corpus"]
fn every_query_finds_what_is_there() {
    let corpus = PathBuf::from(std::env::var_os("LCM_CORPUS").expect("LCM_CORPUS is set"));
    let directory = tempfile::tempdir().unwrap();
    let store = ingest::open(directory.path(), StoreSettings::default()).unwrap();
    let session = store.open_session("s").unwrap();
    let text = std::fs::read_to_string(&corpus).unwrap();
    let messages: Vec<(&str, Value)> = text
        .lines()
        .map(|line| (line, serde_json::from_str(line).unwrap()))
        .collect();
    let views: Vec<MessageView<'_>> = (0..)
        .zip(&messages)
        .map(|(id, (raw, message))| {
            MessageView::new(MessageId(id), message["role"].as_str().unwrap())
                .with_text(message["content"].as_str().unwrap())
                .with_raw(raw)
        })
        .collect();
    for turn in views.chunks(4) {
        store.ingest(session, turn).unwrap();
    }
    for (view, stored) in views
        .iter()
        .zip(store.messages(session, 0..u32::MAX).unwrap())
    {
        assert_eq!(
            (view.raw(), view.text()),
            (stored.raw.as_str(), stored.text.as_str())
        );
    }
    let queries = std::fs::read_to_string(corpus.with_file_name("queries.json")).unwrap();
    let queries: Value = serde_json::from_str(&queries).unwrap();
    for (kind, mode, truth) in [
        ("fulltext", Mode::FullText, "substr_truth"),
        ("regex", Mode::Regex, "truth"),
    ] {
        for query in queries[kind].as_array().unwrap() {
            let pattern = Pattern::new(mode, query["q"].as_str().unwrap());
            let asked = Query::new(session, Ask::Pattern(pattern));
            let answer = store.search(&asked, &|| false).unwrap();
            assert_eq!(answer.total, query[truth].as_u64().unwrap(), "{query}");
            assert_eq!(answer.searched.messages, messages.len() as u64);
        }
    }
}
