//! Messages as an engine sees them.
//!
//! A [`MessageView`] borrows one message from the host for the length of a call. It has an id that
//! stays the same for the whole session ([`MessageId`]), a kind that says whether somebody wrote it
//! or a compaction inserted it ([`MessageKind`]), and the text, tool calls and JSON of the message.
//! [`OwnedMessage`] holds the same data without borrowing, for another process or another language.
//!
//! The constants here are the marks that separate inserted text from what people and models said. A
//! host adds them and recognises them, so an engine only needs them if it writes a mark itself.

use serde::{Deserialize, Serialize};

mod owned;
mod view;

pub use owned::{OwnedMessage, OwnedToolCall, with_views};
pub use view::{MessageView, TokenSource, ToolCallView};

/// The text that a summary message begins with. It tells a model, a person and the next compaction
/// that nobody in the conversation wrote this text.
pub const SUMMARY_MARK: &str = "[CONTEXT COMPACTION]";

/// The text that closes a summary if the summary shares its message with other text.
pub const SUMMARY_END_MARK: &str = "[END OF CONTEXT COMPACTION]";

/// The text that replaces an old tool result when that result is cleared completely.
pub const CLEARED_TOOL_OUTPUT: &str = "[Old tool output cleared to save context space]";

/// The placeholder for the result of a call that no message of the conversation answers. It is
/// needed because providers refuse a call without a result.
pub const MISSING_RESULT: &str = "[The result of this call is not part of the conversation]";

/// The text that a shortened message begins with, unless its text is [`CLEARED_TOOL_OUTPUT`].
pub const SHORTENED_MARK: &str = "[Shortened to save context space]";

/// The text that a notice begins with, unless it begins with a mark of its engine.
pub const NOTICE_MARK: &str = "[NOTICE]";

/// The key in a message's [state](crate::Replacement::state) that says, with the value `true`, that
/// a person wants the message restored. An engine that can restore messages looks for it in the
/// states of the window.
pub const RESTORE_WISH: &str = "__restore__";

/// The key in a message's [state](crate::Replacement::state) that says, with the value `true`, that
/// the message was restored ([`Entry::Restore`](crate::Entry::Restore)). An engine sees it only if
/// the client goes back to an earlier body that still holds the shorter form. The state kept with
/// the message is then available again, and the message can be restored once more.
pub const RESTORED: &str = "__restored__";

/// The note that is appended once to the system prompt when a conversation is compacted for the
/// first time.
pub const COMPACTION_NOTE: &str = "[Note: Some earlier conversation turns have been compacted into a \
    summary to preserve context space. The current session state may still reflect earlier work, so \
    build on that summary and state rather than re-doing work.]";

/// The host's id for a message. It is unique within a session, and a message that arrived later has
/// a higher id.
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

/// The origin of a message's text. Use it to tell what somebody said from what a compaction
/// inserted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
#[non_exhaustive]
pub enum MessageKind {
    /// Somebody said this, and it is unchanged.
    #[default]
    Original = 0,
    /// The summary of an earlier compaction. It stands for several messages that are no longer in
    /// the window.
    Summary = 1,
    /// A shorter form that an earlier compaction put in place of the original.
    Replaced = 2,
    /// Text that an engine inserted for the model. Nobody in the conversation said it.
    Notice = 3,
    /// A kind of a later version. Treat it as text that nobody in the conversation said.
    #[serde(other)]
    Unknown = u32::MAX,
}

impl MessageKind {
    fn from_code(code: u32) -> Self {
        match code {
            // The numbers are part of the ABI, so a number never changes its meaning.
            0 => Self::Original,
            1 => Self::Summary,
            2 => Self::Replaced,
            3 => Self::Notice,
            _ => Self::Unknown,
        }
    }
}
