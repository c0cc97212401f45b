//! What a message is to an engine: its id, its kind and its view.

use serde::{Deserialize, Serialize};

pub use crate::abi::view::{MessageView, TokenSource, ToolCallView};

mod owned;
pub use owned::{OwnedMessage, OwnedToolCall, with_views};

/// What a summary message begins with. It tells a model, a person and the next compaction that this is
/// not something that anybody said.
pub const SUMMARY_MARK: &str = "[CONTEXT COMPACTION]";

/// What closes a summary that shares a message with something else.
pub const SUMMARY_END_MARK: &str = "[END OF CONTEXT COMPACTION]";

/// What stands in place of an old tool result whose text was cleared.
pub const CLEARED_TOOL_OUTPUT: &str = "[Old tool output cleared to save context space]";

/// The placeholder for the result of a call that no message of the conversation answers. Providers refuse a call
/// without a result.
pub const MISSING_RESULT: &str = "[The result of this call is not part of the conversation]";

/// What a replaced text begins with where it is not [`CLEARED_TOOL_OUTPUT`].
pub const SHORTENED_MARK: &str = "[Shortened to save context space]";

/// What a notice begins with that has no mark of its engine's own.
pub const NOTICE_MARK: &str = "[NOTICE]";

/// Under what a person's wish to have a message restored stands in its [state](crate::Replacement::state), as `true`. An
/// engine that restores looks for it.
pub const RESTORE_WISH: &str = "__restore__";

/// The key in a message's [state](crate::Replacement::state) that says, with the value `true`, that the message was
/// restored ([`Entry::Restore`](crate::Entry::Restore)). An engine sees it only if the client goes back to an earlier
/// body that still holds the shorter form. The state kept with the message is then available again, and the message can
/// be restored once more.
pub const RESTORED: &str = "__restored__";

/// What is appended once to the system prompt when a conversation is first compacted.
pub const COMPACTION_NOTE: &str = "[Note: Some earlier conversation turns have been compacted into a \
    summary to preserve context space. The current session state may still reflect earlier work, so \
    build on that summary and state rather than re-doing work.]";

/// The host's name for a message: unique within a session, in the order of arrival.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MessageId(pub u64);

impl std::fmt::Display for MessageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// Where the text of a message comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
#[non_exhaustive]
pub enum MessageKind {
    /// As somebody said it.
    #[default]
    Original = 0,
    /// The summary of an earlier compaction.
    Summary = 1,
    /// A shorter form that an earlier compaction put in place of the original.
    Replaced = 2,
    /// What an engine put in for the model.
    Notice = 3,
    /// A kind of a later version. It is nobody's words.
    #[serde(other)]
    Unknown = u32::MAX,
}

impl MessageKind {
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Original,
            1 => Self::Summary,
            2 => Self::Replaced,
            3 => Self::Notice,
            _ => Self::Unknown,
        }
    }
}

open_struct! {
    /// How far an engine has seen a conversation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Observed {
        /// The last message it was shown.
        pub last: MessageId,
        /// The host's chain hash over everything up to that message. Where it disagrees with the host's
        /// own, one of the two stores was lost or is older.
        pub chain: u64,
    }
}

impl Observed {
    /// What an engine says that remembers, and has seen nothing yet or lost it all: it is shown everything again,
    /// as far as that can be had.
    pub const NOTHING: Self = Self {
        last: MessageId(0),
        chain: 0,
    };

    /// It has seen everything up to the message `last`, after which the chain hash was `chain`.
    pub const fn through(last: MessageId, chain: u64) -> Self {
        Self { last, chain }
    }
}
