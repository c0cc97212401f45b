//! The digest, with what concerns a topic.

use std::collections::HashSet;

use contexture_digest::{Digest, mask_secrets, merge};
use contexture_engine_api::{MessageView, Services};

use crate::excerpt::excerpt;
use crate::facts::digested;

/// Of a line that concerns a topic, so many characters.
const FOCUS_LINE_CHARS: usize = 240;

/// The digest, and the lines that concern a topic, latest first, in a quarter of the room at most. A
/// model would judge what concerns it; here a line does that names all of its words.
pub fn digested_with_focus(
    digest: &Digest<'_>,
    messages: &[MessageView<'_>],
    topic: &str,
    tokens: u64,
    services: &Services,
) -> String {
    let words: Vec<String> = topic.split_whitespace().map(str::to_lowercase).collect();
    let mut section = format!("## Critical Context\nOn {topic:?}:");
    let mut used = services.count_tokens(&section);
    let mut seen = HashSet::new();
    let lines = messages.iter().rev().flat_map(|message| {
        let masked = mask_secrets(message.text());
        let lines = masked
            .lines()
            .map(|line| (message.role(), line.trim().to_owned()));
        lines.collect::<Vec<_>>()
    });
    for (role, line) in lines {
        let lower = line.to_lowercase();
        if words.is_empty()
            || !words.iter().all(|word| lower.contains(word))
            || !seen.insert(line.clone())
        {
            continue;
        }
        let line = excerpt(&line, FOCUS_LINE_CHARS).replace('\n', " ");
        let line = format!("\n- {role}: {line:?}");
        used += services.count_tokens(&line);
        if used > tokens / 4 {
            break;
        }
        section.push_str(&line);
    }
    if !section.contains("\n- ") {
        return digested(digest, tokens, services);
    }
    let rest = digested(
        digest,
        tokens - services.count_tokens(&section).min(tokens),
        services,
    );
    merge(&rest, &section)
}
