//! The text that replaces messages in the window.
//!
//! A block of summaries shows each node with its id, the messages it covers and their time span, so
//! that the model knows what it can expand with the tools. [`block`] writes it and [`nodes_in`]
//! reads it back. Reading back is needed when a session is opened, because the host's window says
//! which summaries are in force.
//!
//! The text depends on the nodes only. The same nodes always give the same bytes, so that a
//! provider's prompt cache keeps working across compactions.

use std::fmt::Write as _;
use std::sync::LazyLock;

use contexture_digest::{RuleSection, without_rules};
use contexture_engine_api::{MessageId, SHORTENED_MARK, SUMMARY_END_MARK, SUMMARY_MARK};
use contexture_summaries::WHAT_HOLDS;

use crate::dag::{Level, Node, NodeId};
use crate::dates;

/// The text after the mark of the first block of summaries. It tells the model how to get the
/// original messages.
static PREAMBLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "Earlier messages of this conversation, summarised. {WHAT_HOLDS} Nothing is lost: lcm_expand with the id of a \
         summary gives back its messages word for word, lcm_grep searches all of them."
    )
});

/// The text after the mark of a block that follows another one. Repeating the preamble would only
/// cost tokens.
const CONTINUED: &str = "The summaries go on.";

/// Returns the text of these nodes, oldest first. `continued` says whether another block stands
/// before this one, in which case the preamble is not repeated. `rules` is the section of the rules
/// that are shown here. It takes the place of the sections of the nodes.
pub(crate) fn block(nodes: &[&Node], continued: bool, rules: &RuleSection) -> String {
    let first = if continued { CONTINUED } else { &PREAMBLE };
    let mut text = format!("{SUMMARY_MARK}\n{first}\n");
    if !rules.text.is_empty() {
        let _ = write!(text, "\n{}\n", harmless(&rules.text));
    }
    for node in nodes {
        let body = harmless(&without_rules(&node.text));
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}\n{body}\n", heading(node));
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

/// Describes which messages a node stands for. The text does not change when the node's summary is
/// written again, so it can identify the node.
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
        // Times are shown in minutes, so a second one within the same minute would only repeat it.
        if let Some(to) = node.to_ms.filter(|to| to / 60_000 != from / 60_000) {
            let _ = write!(covered, " to {}", dates::minutes(to));
        }
    }
    covered
}

/// Removes from a node's text everything that looks like one of our marks or headings. A
/// conversation may quote them, and reading the block back would then find nodes that are not
/// there.
fn harmless(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for line in text.trim().lines() {
        // A space in front is enough for a line not to be read as a heading.
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

/// A node as a block in the window shows it: its id and the description of what it covers.
pub(crate) struct ShownNode<'a> {
    pub(crate) id: NodeId,
    covered: &'a str,
}

impl ShownNode<'_> {
    /// Whether this node of the store is the one that the window shows. Ids alone do not suffice.
    /// If a store was lost or replaced by an older copy, the same id can stand for other messages.
    pub(crate) fn is(&self, node: &Node) -> bool {
        self.id == node.id && self.covered == covered(node)
    }
}

/// Returns the nodes that a block shows. If the text is not a block of this engine, the result is
/// empty.
pub(crate) fn nodes_in(text: &str) -> Vec<ShownNode<'_>> {
    let mut lines = text.trim_start().lines();
    let ours = lines
        .next()
        .is_some_and(|line| line.trim_end() == SUMMARY_MARK)
        && (lines.next()).is_some_and(|line| [PREAMBLE.as_str(), CONTINUED].contains(&line));
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

/// Returns the text that replaces a large message in the window: its id and size, how to read it in
/// full, and the preview.
pub(crate) fn shortened(id: MessageId, tokens: u64, bytes: usize, preview: &str) -> String {
    format!(
        "{SHORTENED_MARK}\n[{id} | {tokens} tokens, {bytes} bytes | lcm_read with the id {id} gives it back \
         by line or byte range]\n{}",
        preview.trim()
    )
}

#[cfg(test)]
mod tests;
