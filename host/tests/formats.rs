//! Wire formats at the boundary a user sees.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::PathBuf;

use contexture::formats::{Conversation, Format, read};

/// The conversations of a file of the shared test data; nothing, said aloud, where it is absent.
fn shared(file: &str) -> Vec<Conversation> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/data")
        .join(file);
    match std::fs::read_to_string(&path) {
        Ok(text) => read(text, None).unwrap(),
        Err(_) => {
            eprintln!("skipped: {} is not there", path.display());
            Vec::new()
        }
    }
}

#[test]
fn a_real_claude_code_log_is_read_whole() {
    for conversation in shared("claude-code/main.jsonl") {
        assert_eq!(conversation.format(), Format::ClaudeCode);
        let calls = conversation.call_views();
        assert_eq!(calls.len(), 152);
        let views = conversation.views(&calls, &[]);
        let results = views.iter().filter(|view| view.role() == "tool").count();
        assert_eq!(results, 151, "one call was never answered");
        assert_eq!(views.len(), 270);
    }
}
