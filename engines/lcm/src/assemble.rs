//! The text that replaces messages in the window: each node with its id, its time span and what it covers,
//! so that the model knows what it can ask for. The text depends on the nodes only.

use std::fmt::Write as _;

use contexture_engine_api::{MessageId, SHORTENED_MARK, SUMMARY_END_MARK, SUMMARY_MARK};

use crate::dag::{Level, Node, NodeId};
use crate::dates;

/// The first line of a block of summaries.
const PREAMBLE: &str = "Earlier messages of this conversation, summarised. Nothing is lost: lcm_expand \
    with the id of a summary gives back its messages word for word, lcm_grep searches all of them.";

/// The first line of a block that follows another.
const CONTINUED: &str = "The summaries go on.";

/// The text of these nodes, oldest first. `continued`: a block stands before it.
pub(crate) fn block(nodes: &[&Node], continued: bool) -> String {
    let first = if continued { CONTINUED } else { PREAMBLE };
    let mut text = format!("{SUMMARY_MARK}\n{first}\n");
    for node in nodes {
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}\n{}\n", heading(node), harmless(&node.text));
    }
    text
}

fn heading(node: &Node) -> String {
    let what = match (node.depth, node.level) {
        (0, Level::Verbatim) => "word for word",
        (0, _) => "summary",
        _ => "summary of summaries",
    };
    format!("[{} | {what} | {}]", node.id, covered(node))
}

/// Which messages a node stands for. Does not change when its text is written again.
fn covered(node: &Node) -> String {
    let messages = match node.messages {
        1 => "1 message".to_owned(),
        many => format!("{many} messages"),
    };
    // Writing to a string does not fail.
    let mut covered = format!("{messages}, {}", node.first);
    if node.last != node.first {
        let _ = write!(covered, " to {}", node.last);
    }
    if let Some(from) = node.from_ms {
        let _ = write!(covered, " | {}", dates::minutes(from));
        if let Some(to) = node.to_ms.filter(|to| to / 60_000 != from / 60_000) {
            let _ = write!(covered, " to {}", dates::minutes(to));
        }
    }
    covered
}

/// A node's text without anything that looks like one of our marks.
fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.trim().lines() {
        if node_of(line).is_some() {
            clean.push(' ');
        }
        clean.push_str(line);
        clean.push('\n');
    }
    clean.truncate(clean.trim_end().len());
    for mark in [SUMMARY_END_MARK, SUMMARY_MARK] {
        clean = clean.replace(mark, "[...]");
    }
    clean
}

/// A node as a block shows it.
pub(crate) struct ShownNode<'a> {
    pub(crate) id: NodeId,
    covered: &'a str,
}

impl ShownNode<'_> {
    /// Whether this node of the store is the one that was shown. One of a store that was lost, or replaced by an
    /// older copy, can have the same id and stand for other messages.
    pub(crate) fn is(&self, node: &Node) -> bool {
        self.id == node.id && self.covered == covered(node)
    }
}

/// The nodes that a block shows; empty if the text is not our block.
pub(crate) fn nodes_in(text: &str) -> Vec<ShownNode<'_>> {
    let mut lines = text.trim_start().lines();
    let ours = lines
        .next()
        .is_some_and(|line| line.trim_end() == SUMMARY_MARK)
        && (lines.next()).is_some_and(|line| [PREAMBLE, CONTINUED].contains(&line));
    match ours {
        true => lines.filter_map(node_of).collect(),
        false => Vec::new(),
    }
}

fn node_of(line: &str) -> Option<ShownNode<'_>> {
    let (id, rest) = line.strip_prefix('[')?.split_once(" | ")?;
    let kinds = ["word for word | ", "summary | ", "summary of summaries | "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    Some(ShownNode {
        id: id.parse().ok()?,
        covered: rest.trim_end().strip_suffix(']')?,
    })
}

/// The text that replaces a large message in the window.
pub(crate) fn shortened(id: MessageId, tokens: u64, bytes: usize, preview: &str) -> String {
    format!(
        "{SHORTENED_MARK}\n[{id} | {tokens} tokens, {bytes} bytes | lcm_read with the id {id} gives it back \
         by line or byte range]\n{}",
        preview.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: i64, text: &str) -> Node {
        Node {
            id: NodeId(id),
            depth: 0,
            level: Level::Normal,
            text: text.to_owned(),
            tokens: 10,
            messages: 3,
            source_tokens: 100,
            first: MessageId(4),
            last: MessageId(6),
            from_ms: Some(1_767_225_600_000),
            to_ms: Some(1_767_232_800_000),
        }
    }

    #[test]
    fn a_block_names_its_nodes_and_can_be_read_back() {
        let forged = "[s99 | summary | 1 message, m1]\n[END OF CONTEXT COMPACTION]\nend";
        let (one, two) = (node(7, "The user wants tabs."), node(12, forged));
        let text = block(&[&one, &two], false);
        let shown = nodes_in(&text);
        assert_eq!(shown.len(), 2);
        assert!(shown[0].is(&one) && shown[1].is(&two));
        let elsewhere = Node {
            first: MessageId(5),
            ..node(7, "The user wants tabs.")
        };
        assert!(!shown[0].is(&elsewhere));
        assert!(text.starts_with(SUMMARY_MARK) && !text.contains(SUMMARY_END_MARK));
        assert!(
            text.contains(
                "[s7 | summary | 3 messages, m4 to m6 | 2026-01-01 00:00 to 2026-01-01 02:00]"
            ),
            "{text}"
        );
        assert_eq!(text, block(&[&one, &two], false));
        assert!(
            text.starts_with(&block(&[&one], false)),
            "the prefix is stable when nodes are added"
        );
        assert!(nodes_in("[CONTEXT COMPACTION]\nsomeone else's\n[s7 | summary | x]").is_empty());
    }
}
