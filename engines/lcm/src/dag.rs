//! The summary DAG: leaves over spans of messages, condensed nodes over nodes, to any depth.

pub(crate) mod condense;
pub(crate) mod leaves;
pub(crate) mod outline;
pub(crate) mod plan;

use contexture_engine_api::MessageId;
use serde::{Deserialize, Serialize};

/// The number of a summary node; unique within its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub i64);

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
                format!("`{text}` is no id of a summary; it is `s` and a number, such as `s12`")
            })
    }
}

/// How the text of a node was made, best first. A level counts only if it made the text smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The messages themselves, if no summary could be shorter.
    Verbatim,
    /// The model's summary.
    Normal,
    /// The model's summary at half the budget.
    Aggressive,
    /// Extracted without a model.
    Deterministic,
}

impl Level {
    /// Whether a model could write a better text.
    pub(crate) fn is_lower(self) -> bool {
        matches!(self, Self::Aggressive | Self::Deterministic)
    }
}

/// The sources of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Under {
    /// A leaf: these messages, in order.
    Messages(Vec<MessageId>),
    /// A condensed node: these nodes, in order.
    Nodes(Vec<NodeId>),
}

/// A summary node. Its lineage never changes; its text is replaced when a better one is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// 0 for a leaf.
    pub(crate) depth: u32,
    pub(crate) level: Level,
    pub(crate) text: String,
    /// Tokens of the text.
    pub(crate) tokens: u64,
    /// Messages below it, at any depth.
    pub(crate) messages: u64,
    /// Tokens of these messages.
    pub(crate) source_tokens: u64,
    /// The first and the last of these messages.
    pub(crate) first: MessageId,
    pub(crate) last: MessageId,
    /// The times of the first and the last of them, in milliseconds since the Unix epoch, if known.
    pub(crate) from_ms: Option<i64>,
    pub(crate) to_ms: Option<i64>,
}
