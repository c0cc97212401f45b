//! The lossless engine as its tests use it: its tools, and what its window shows.

use std::collections::HashSet;

use contexture::engines::Engines;
use contexture::session::Session;
use contexture_engine_api::{SUMMARY_END_MARK, StoreCommand, ToolCall};
use serde_json::{Value, json};

/// Calls a tool of the session's engine and reads its answer.
pub fn tool(session: &mut Session, name: &str, arguments: &Value) -> Value {
    let call = ToolCall::new(name.to_owned(), arguments.to_string());
    let answer = session
        .call_tool(call)
        .unwrap_or_else(|error| panic!("{name} {arguments}: {error}"));
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{name}: {error} in {answer}"))
}

/// Everything under an id, page by page: each message's id and JSON, put together from its parts.
pub fn expand(session: &mut Session, id: &str, max_tokens: u64) -> Vec<(String, String)> {
    let mut messages: Vec<(String, String)> = Vec::new();
    let mut seen = HashSet::new();
    let mut arguments = json!({"id": id, "max_tokens": max_tokens});
    loop {
        let page = tool(session, "lcm_expand", &arguments);
        for item in page["messages"].as_array().expect("a list of messages") {
            let id = item["id"].as_str().expect("an id").to_owned();
            let text = item["message"].as_str().expect("the message's JSON");
            let first_byte = item["part"]["first_byte"].as_u64().unwrap_or(0);
            match messages.last_mut() {
                Some((last, whole)) if *last == id && first_byte > 0 => {
                    assert_eq!(
                        whole.len() as u64,
                        first_byte,
                        "{id}: parts follow each other"
                    );
                    whole.push_str(text);
                }
                _ => messages.push((id, text.to_owned())),
            }
        }
        let Some(cursor) = page["next_cursor"].as_str() else {
            return messages;
        };
        assert!(
            seen.insert(cursor.to_owned()),
            "{id}: the page {cursor} comes again"
        );
        arguments["cursor"] = json!(cursor);
    }
}

/// The summaries that a session's window shows, as the store has them.
pub fn frontier(engines: &Engines, session: &str) -> Vec<String> {
    let show = StoreCommand::Show {
        session: session.to_owned(),
    };
    let shown = engines
        .manage(Some("lcm"), &show)
        .unwrap_or_else(|error| panic!("{error}"));
    let ids = shown["window"]["summaries"].as_array();
    ids.expect("a list of summaries")
        .iter()
        .map(|id| id.as_str().expect("an id").to_owned())
        .collect()
}

fn beside_summary(text: &str) -> &str {
    let Some((_, rest)) = text.split_once(SUMMARY_END_MARK) else {
        return text;
    };
    // The end mark has a checksum.
    let behind = rest.trim_start().split_once(char::is_whitespace);
    // There may be several.
    behind.map_or("", |(_, words)| beside_summary(words))
}

/// The words of a message on the wire, without the summaries that share it.
pub fn words(message: &Value) -> String {
    let content = &message["content"];
    let parts = content.as_array().into_iter().flatten();
    let texts = content.as_str().into_iter();
    let texts = texts.chain(parts.filter_map(|part| part["text"].as_str()));
    texts.map(|text| beside_summary(text).trim()).collect()
}
