//! System messages in the middle of a conversation (platform.claude.com, "Mid-conversation system messages"): each
//! stands right after a user's turn, whatever is compacted.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Session, SessionOptions};
use contexture_tests::{Home, engines};
// Linked in, so that they can be named.
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use serde_json::{Value, json};

/// The places of system messages that do not follow a user's.
fn misplaced(body: &str) -> Vec<usize> {
    let body: Value = serde_json::from_str(body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let role = |at: usize| messages[at]["role"].as_str().unwrap();
    (0..messages.len())
        .filter(|at| role(*at) == "system" && at.checked_sub(1).is_none_or(|at| role(at) != "user"))
        .collect()
}

#[test]
fn each_follows_a_users_turn_after_any_compaction() {
    for engine in ["compressor", "lcm", "tiered", "two-layer", "virtual-files"] {
        let home = Home::new();
        home.configure(&format!(
            "context:\n  engine: {engine}\n  on_failure: fail\n  engines: {{two-layer: {{token_threshold: 2000}}}}\n"
        ));
        let engines = engines(&home);
        let agent = AgentWindow::new("claude-opus-4-6", 4_000, 400);
        let options = SessionOptions::default();
        let mut session = Session::open(&engines, None, "s", agent, options).unwrap();
        let mut said: Vec<Value> = Vec::new();
        let mut compactions = 0;
        for turn in 0..60 {
            let words = "the pump station reported no fault; ".repeat(1 + turn % 7 * 4);
            let calls = turn % 3 == 1;
            said.push(match calls {
                false => json!({"role": "user", "content": format!("{turn} {words}")}),
                true => json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": format!("t{}", turn - 1), "content": format!("{turn} {words}")}
                ]}),
            });
            if turn % 4 < 2 {
                let text = format!("Reminder {turn}: be short.");
                said.push(json!({"role": "system", "content": [{"type": "text", "text": text}]}));
            }
            let body = json!({"model": "claude-opus-4-6", "max_tokens": 400, "system": "Be kind.", "messages": said});
            let body = body.to_string();
            let outcome = session.turn(&body).unwrap();
            compactions += usize::from(outcome.compaction.is_some());
            assert_eq!(
                misplaced(&outcome.body),
                [0; 0],
                "{engine}, turn {turn}: {}",
                outcome.body
            );
            let text = json!({"type": "text", "text": format!("Answer {turn}. {words}")});
            said.push(match turn % 3 {
                0 => json!({"role": "assistant", "content": [
                    text, {"type": "tool_use", "id": format!("t{turn}"), "name": "read", "input": {"turn": turn}}
                ]}),
                _ => json!({"role": "assistant", "content": [text]}),
            });
            session
                .answer(&[&said.last().unwrap().to_string()], None)
                .unwrap();
        }
        assert!(compactions > 2, "{engine}: {compactions}");
    }
}
