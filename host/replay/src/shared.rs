//! Which part of a message the provider's cache shares with the message before it.
//!
//! A prompt cache reads the longest beginning that two prompts have in common. The player compares
//! whole messages, which is exact unless a request extends the last message of the one before.
//! [`part_shared`] decides how much of such a message is read from the cache.
//!
//! Anthropic caches each content block by itself. All other providers are assumed to cache a
//! message as a whole, so that a changed message shares nothing.

use contexture_formats::Format;
use serde_json::{Value, json};

/// Returns the part of a message that a provider reads from its cache if `before` had the same
/// position in the prompt before. The part is a ratio of bytes, from 0 to 1. Anthropic caches each
/// block by itself (platform.claude.com, "Prompt caching"). Other providers are assumed to cache a
/// message as a whole.
pub(super) fn part_shared(before: &str, now: &str, format: Format) -> f64 {
    if before == now {
        return 1.0;
    }
    if format != Format::Anthropic {
        return 0.0;
    }
    let (before, now) = (Message::of(before), Message::of(now));
    // The role precedes the content, so nothing after it can be shared.
    if before.role != now.role {
        return 0.0;
    }
    let size = |block: &Value| block.to_string().len();
    let same = before.blocks.iter().zip(&now.blocks);
    let same = same.take_while(|(before, now)| before == now);
    let shared: usize = same.map(|(_, block)| size(block)).sum();
    shared as f64 / now.blocks.iter().map(size).sum::<usize>().max(1) as f64
}

/// The parts of a wire message that matter for the cache. A string is one block of text.
#[derive(Default)]
struct Message {
    role: Value,
    blocks: Vec<Value>,
}

impl Message {
    /// Parses a wire message. If it is not a JSON object, it has no blocks and shares nothing.
    fn of(wire: &str) -> Self {
        let mut message: Value = serde_json::from_str(wire).unwrap_or_default();
        let Some(fields) = message.as_object_mut() else {
            return Self::default();
        };
        let mut take = |name: &str| fields.remove(name).unwrap_or_default();
        let blocks = match take("content") {
            Value::Array(blocks) => blocks,
            // The provider treats a string and a single block of text alike.
            text => vec![json!({"type": "text", "text": text})],
        };
        Self {
            role: take("role"),
            blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_shared_from_the_first_on() {
        let said = r#"{"role":"user","content":"abc"}"#;
        let joined = r#"{"role":"user","content":[{"type":"text","text":"abc"},{"text":"xyz","type":"text"}]}"#;
        let other = joined.replace("abc", "abd");
        let shared = |before: &str, now: &str| part_shared(before, now, Format::Anthropic);
        assert_eq!(shared(said, joined), 0.5);
        assert_eq!(shared(joined, said), 1.0);
        assert_eq!(shared(joined, &other), 0.0);
        assert_eq!(shared(said, &said.replace("user", "assistant")), 0.0);
        assert_eq!(part_shared(said, joined, Format::OpenAiChat), 0.0);
        assert_eq!(part_shared(said, said, Format::OpenAiChat), 1.0);
        assert_eq!(shared("3", said), 0.0);
    }
}
