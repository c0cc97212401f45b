//! Finds compactions that the provider made itself.
//!
//! A provider can replace the start of a conversation by a block or item that only it can read.
//! The host must send this block unchanged, together with everything before it, and must not
//! treat any of it as messages. [`newest`] finds the last such compaction in a list, and
//! [`through`] tells how many messages it covers.
//!
//! Compactions that an agent made are not handled here. These are readable summaries in a
//! session log.

use std::ops::Range;

use memchr::memmem;

use super::json::Raw;

/// The types of compactions: a block in a message of
/// [Anthropic's](https://platform.claude.com/docs/en/build-with-claude/compaction), or an item
/// of [OpenAI's](https://platform.openai.com/docs/guides/compaction), for which Codex uses two
/// more names.
const KINDS: [&str; 3] = ["compaction", "compaction_summary", "context_compaction"];

/// Returns the index of the newest wire message that is or contains a compaction by the
/// provider. `None` if there is none.
pub(super) fn newest<'t>(
    among: Range<usize>,
    item: impl Fn(usize) -> Option<Raw<'t>>,
) -> Option<usize> {
    among.rev().find(|at| item(*at).is_some_and(is_compacted))
}

fn is_compacted(item: Raw<'_>) -> bool {
    // A byte search is much faster than looking at every block, and almost no message contains
    // the word.
    if memmem::find(item.text().as_bytes(), b"compaction").is_none() {
        return false;
    }
    is_compaction(item) || blocks(item).any(is_compaction)
}

/// Whether an item or block is the provider's own compaction of everything before it.
pub(super) fn is_compaction(part: Raw<'_>) -> bool {
    has_type(part, &KINDS)
}

/// Returns how many wire messages the compaction in message `newest` covers. If that message
/// also calls tools, the next one with the results is included.
pub(super) fn through<'t>(newest: usize, item: impl Fn(usize) -> Option<Raw<'t>>) -> usize {
    let calls = item(newest).is_some_and(|it| blocks(it).any(|part| has_type(part, &["tool_use"])));
    // A call and its results must stay on the same side of the border.
    let is_answered = calls && item(newest + 1).is_some();
    newest + 1 + usize::from(is_answered)
}

fn blocks(item: Raw<'_>) -> impl Iterator<Item = Raw<'_>> {
    item.get("content").into_iter().flat_map(Raw::elements)
}

fn has_type(part: Raw<'_>, kinds: &[&str]) -> bool {
    let kind = part.get("type").and_then(Raw::string);
    kind.is_some_and(|kind| kinds.contains(&kind.as_ref()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::split;

    #[test]
    fn the_newest_compaction_counts_with_the_results_of_its_calls() {
        let said = r#"{"role":"user","content":"What is a \"compaction\"?"}"#;
        let block = r#"{"role":"assistant","content":[{"type":"compaction","content":"x"}]}"#;
        let calls = r#"{"role":"assistant","content":[{"type":"compaction","content":"x"},
            {"type":"tool_use","id":"a","name":"read","input":{}}]}"#;
        let results =
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"y"}]}"#;
        let quoted =
            r#"{"role":"user","content":[{"type":"text","text":"{\"type\":\"compaction\"}"}]}"#;
        for (messages, through) in [
            (vec![said, quoted], 0),
            (vec![said, block], 2),
            (vec![said, block, said, block, said], 4),
            (vec![said, calls, results, said], 3),
            (vec![said, calls], 2),
            (vec![said, r#"{"type": "compaction_summary"}"#, said], 2),
            (vec![r#"{"type":"context_compaction"}"#], 1),
        ] {
            let body = format!("[{}]", messages.join(","));
            let compacted = split(&body, None).unwrap().compacted;
            assert_eq!(compacted, messages[..through], "{messages:?}");
        }
    }
}
