//! What a log is read into: the parts of its messages, each of one kind.
//!
//! A message of an agent often has several parts: thinking, a text, two tool calls. Each part is an
//! [`Entry`] of its own, with an id of its own, so that a search can show the call that matched and
//! not the whole turn.

use serde::Serialize;

/// What an entry is. The number is stored, so a kind keeps its number: a new kind gets the next
/// one, and is shown as a note if an older version reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Text of the user.
    User = 0,
    /// Text of the assistant.
    Assistant = 1,
    /// The assistant's thinking, or the summary of it that the provider returns.
    Thinking = 2,
    /// A call of a tool, with its arguments.
    ToolCall = 3,
    /// What a tool answered.
    ToolResult = 4,
    /// A summary or a title that the agent wrote of a conversation.
    Summary = 5,
    /// The names of attached files and pictures. Their contents are not stored.
    Attachment = 6,
    /// Text that the agent's program added, such as reminders and errors.
    Note = 7,
}

impl Kind {
    /// All kinds, in the order of their numbers. A number is an index into this array.
    pub const ALL: [Self; 8] = [
        Self::User,
        Self::Assistant,
        Self::Thinking,
        Self::ToolCall,
        Self::ToolResult,
        Self::Summary,
        Self::Attachment,
        Self::Note,
    ];

    /// The name that is shown to people. In JSON a kind is written in snake case, such as
    /// `tool_call`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Thinking => "thinking",
            Self::ToolCall => "tool call",
            Self::ToolResult => "tool result",
            Self::Summary => "summary",
            Self::Attachment => "attachment",
            Self::Note => "note",
        }
    }

    /// The kind with this number. A number that a newer version wrote is a note.
    pub(crate) fn of_number(number: i64) -> Self {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        Self::ALL.get(at).copied().unwrap_or(Self::Note)
    }
}

/// A part of a message of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// The whole text. The text of a tool call is its arguments, one on a line.
    pub(crate) text: String,
    /// Milliseconds since the Unix epoch. `None` if the log does not say. If a search names a time
    /// span, entries without a time are left out.
    pub(crate) time_ms: Option<i64>,
    /// The name of the tool, for a call and a result that states it.
    pub(crate) name: Option<String>,
    /// The id that a tool call and its result share. It is compared within a conversation only, so
    /// two sessions may use the same id.
    pub(crate) call: Option<String>,
    /// An id of this part that stays the same if the agent rewrites it, such as a text that it
    /// saved while it was streamed. Without one, another text is another entry.
    pub(crate) key: Option<String>,
}
