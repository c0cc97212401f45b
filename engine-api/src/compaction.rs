//! What is asked of a compaction, and what an engine proposes.

use serde::{Deserialize, Serialize};

use crate::message::{MessageId, MessageView};
use crate::window::WindowState;

/// A request to compact: the whole window as the model would see it, and why.
///
/// The window holds what earlier compactions left: a summary is a view of kind
/// [`Summary`](crate::MessageKind::Summary) with an id of its own, which a new summary covers like any other.
#[derive(Debug, Clone, Copy)]
pub struct CompressRequest<'a> {
    /// Every message of the window, in order.
    pub messages: &'a [MessageView<'a>],
    /// What is asked.
    pub order: &'a CompressOrder,
}

/// What a compaction is asked to do, beside the messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompressOrder {
    /// How full the window is.
    pub window: WindowState,
    /// Compact even below the threshold and during a cool-down; the result has only to be smaller.
    pub force: bool,
    /// A topic that the user wants kept in more detail.
    pub focus: Option<String>,
    /// Text from a memory system that a summary may draw on.
    pub memory: Option<String>,
    /// Someone waits for the best result, so a model may be called now. Otherwise nothing may block on
    /// a model: use what background calls prepared, or do without.
    pub may_wait_for_model: bool,
}

/// What came of a request to compact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A proposal, for the host to check and commit.
    Compacted(Compaction),
    /// There is nothing that a compaction would make better: why.
    NothingToDo(String),
    /// Not now: why, and when.
    Deferred(String),
    /// What may never be removed is already too large.
    FloorTooHigh {
        /// Tokens of the system prompt, tools, last user message and calls in flight.
        floor_tokens: u64,
        /// What to do about it, for a person.
        reason: String,
    },
}

/// A proposal for the new window. Every id of the request occurs in it exactly once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// The new window, in order.
    pub entries: Vec<Entry>,
    /// A note to append to the system prompt, once, however often it is proposed.
    #[serde(default)]
    pub system_note: Option<String>,
    /// Whether a model was wanted for it and could not be had.
    #[serde(default)]
    pub degraded: bool,
    /// What a person should know of how it was made.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One place in the new window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The message as it is, byte for byte.
    Keep(MessageId),
    /// A shorter form of the message.
    Replace(Replacement),
    /// A summary of these messages; the host chooses its role and marks it.
    Summary {
        /// Its text; [`SUMMARY_MARK`](crate::SUMMARY_MARK) is put before it where it lacks it.
        text: String,
        /// What it stands for, earlier summaries included.
        covers: Vec<MessageId>,
    },
    /// An answer, made up and marked as such, for a call whose result is nowhere. It follows its call.
    StubResult {
        /// The message that holds the call.
        call: MessageId,
        /// Which of its calls, from 0.
        index: usize,
        /// The text.
        text: String,
    },
    /// The message leaves without a trace.
    Drop {
        /// Which.
        id: MessageId,
        /// Why, for a person.
        reason: String,
    },
}

/// A shorter form of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// Which message.
    pub id: MessageId,
    /// The new text; none keeps the text.
    #[serde(default)]
    pub text: Option<String>,
    /// New arguments for some of its calls.
    #[serde(default)]
    pub arguments: Vec<ShortArguments>,
}

/// Shortened arguments of one tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortArguments {
    /// Which of the message's calls, from 0.
    pub index: usize,
    /// The new arguments: valid JSON text.
    pub arguments: String,
}

impl Compaction {
    /// A proposal of these entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            ..Self::default()
        }
    }
}

impl Entry {
    /// The ids of the request that this entry accounts for.
    pub fn ids(&self) -> &[MessageId] {
        match self {
            Self::Keep(id) | Self::Drop { id, .. } => std::slice::from_ref(id),
            Self::Replace(replacement) => std::slice::from_ref(&replacement.id),
            Self::Summary { covers, .. } => covers,
            Self::StubResult { .. } => &[],
        }
    }
}

/// The compaction that is in force when a session is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentCompaction {
    /// Its number within the session.
    pub id: u64,
    /// The engine that made it; a fallback's compaction is the fallback's.
    pub engine: String,
    /// The last message that it covers.
    pub through: MessageId,
    /// The texts of its summaries, in order.
    pub summaries: Vec<String>,
}
