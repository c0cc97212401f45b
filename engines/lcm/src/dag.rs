//! The summary DAG: leaves over spans of messages, and condensed nodes over nodes, to any depth.
//!
//! A leaf summarises a span of messages. If there are too many leaves, a condensed node summarises
//! several of them, and condensed nodes are condensed in turn. A node does not change when it gets
//! a parent, so everything below it can still be expanded.
//!
//! [`Node`] is the type to read first. The submodules make the decisions, without access to the
//! store or the model. `outline` chooses what stays in the window, and `plan` what replaces the
//! rest. `condense` chooses the nodes that get a parent.

pub(crate) mod condense;
pub(crate) mod outline;
pub(crate) mod plan;

use contexture_engine_api::MessageId;
use serde::{Deserialize, Serialize};

use crate::settings::HEADING_TOKENS;

/// The number of a summary node, unique within its session. It is written as `s` and the number,
/// such as `s12`, in the window and in the arguments of tools.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub(crate) struct NodeId(pub(crate) i64);

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s{}", self.0)
    }
}

impl std::str::FromStr for NodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.strip_prefix('s')
            .and_then(|number| number.parse().ok())
            .map(Self)
            .ok_or_else(|| {
                // The text comes from a model, which can correct itself if it learns what an id
                // looks like.
                format!("`{text}` is not the id of a summary; give one such as `s12`")
            })
    }
}

/// How the text of a node was made. An extract is replaced when a model has written a better text.
/// The numbers are those of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// The messages themselves, if they are so short that no summary could be shorter.
    Verbatim = 0,
    /// A summary that the model wrote.
    Normal = 1,
    /// A text that was extracted from the sources without a model, because there was none or it
    /// failed.
    Deterministic = 3,
}

/// The direct sources of a node. They never change, even if the text of the node is written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeSources<M = MessageId> {
    /// The node is a leaf over these messages, in the order of the conversation.
    Messages(Vec<M>),
    /// The node is condensed from these nodes, in the order of the conversation.
    Nodes(Vec<NodeId>),
}

/// A summary node. Its sources never change. Its text is replaced when a better one is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// The serialised form does not have it, because the name of a node's artifact does.
    #[serde(skip)]
    pub(crate) id: NodeId,
    /// The number of levels below the node: 0 for a leaf, and one more than its deepest child
    /// otherwise.
    pub(crate) depth: u32,
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) tokens: u64,
    /// The number of messages below the node, at any depth. It is never 0 in a sound store.
    pub(crate) messages: u64,
    /// The sum of the tokens of these messages in their original form.
    pub(crate) source_tokens: u64,
    /// The lowest id of a message below the node. `last` is the highest.
    pub(crate) first: MessageId,
    pub(crate) last: MessageId,
    /// The times of the earliest and the latest of these messages, in milliseconds since the Unix
    /// epoch. None if no message has a time.
    pub(crate) from_ms: Option<i64>,
    pub(crate) to_ms: Option<i64>,
    /// Whether a model is to write the text again, because it was extracted.
    pub(crate) degraded: bool,
}

impl Node {
    /// A leaf over these messages whose text is still to be written.
    pub(crate) fn without_text(id: NodeId, span: Span) -> Self {
        Self {
            id,
            depth: 0,
            level: Level::Verbatim,
            text: String::new(),
            tokens: 0,
            messages: span.messages,
            source_tokens: 0,
            first: span.first,
            last: span.last,
            from_ms: None,
            to_ms: None,
            degraded: false,
        }
    }

    /// Returns the approximate number of tokens of the node in the window, its heading included.
    pub(crate) fn cost(&self) -> u64 {
        self.tokens + HEADING_TOKENS
    }

    pub(crate) fn span(&self) -> Span {
        Span::of_nodes([self].into_iter())
    }
}

/// The messages that a text is about, by the first, the last and their number. In one conversation
/// this tells a node or a leaf that is still to be made from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) first: MessageId,
    pub(crate) last: MessageId,
    pub(crate) messages: u64,
}

impl Span {
    pub(crate) fn of_messages(ids: &[MessageId]) -> Self {
        Self {
            first: ids.iter().min().copied().unwrap_or(MessageId(0)),
            last: ids.iter().max().copied().unwrap_or(MessageId(0)),
            messages: ids.len() as u64,
        }
    }

    pub(crate) fn of_nodes<'n>(nodes: impl Iterator<Item = &'n Node> + Clone) -> Self {
        let (first, last) = (
            nodes.clone().map(|it| it.first),
            nodes.clone().map(|it| it.last),
        );
        Self {
            first: first.min().unwrap_or(MessageId(0)),
            last: last.max().unwrap_or(MessageId(0)),
            messages: nodes.map(|node| node.messages).sum(),
        }
    }
}
