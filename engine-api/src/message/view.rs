//! The view through which an engine reads a message.
//!
//! A [`MessageView`] and the [`ToolCallView`] values in it borrow everything from the host. They
//! are part of the ABI, because a slice of views is lent to a plugin as it is, without copying or
//! converting a single message. The layout of both structs is therefore frozen. If a later version
//! has more to tell about a message, it goes into the field `more`, as a JSON object.
//!
//! This file contains what an engine reads. The constructors, which hosts and tests need, are in
//! the submodule `making`.

#![allow(unsafe_code)]

mod making;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr};

use super::{MessageId, MessageKind};
pub use making::TokenSource;

/// One tool call in an assistant message. It borrows from the host for the length of one call of
/// the engine.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct ToolCallView<'a> {
    id: RStr<'a>,
    name: RStr<'a>,
    arguments: RStr<'a>,
    more: RStr<'a>,
}

impl<'a> ToolCallView<'a> {
    /// Creates a call of the tool `name`. The `arguments` are JSON text as on the wire.
    pub const fn new(id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        Self {
            id: RStr::from_str(id),
            name: RStr::from_str(name),
            arguments: RStr::from_str(arguments),
            more: RStr::from_str(""),
        }
    }

    /// Returns the id of the call, which its result names. Models sometimes use an id again within
    /// a conversation, so pair calls and results by position as well.
    pub fn id(&self) -> &'a str {
        self.id.as_str()
    }

    /// Returns the name of the tool.
    pub fn name(&self) -> &'a str {
        self.name.as_str()
    }

    /// Returns the arguments as JSON text. They are neither parsed nor checked, so they may be
    /// invalid.
    pub fn arguments(&self) -> &'a str {
        self.arguments.as_str()
    }
}

const UNKNOWN_TOKENS: u64 = u64::MAX;
const NO_TIME: i64 = i64::MIN;

const HAS_THINKING: u32 = 1;
const HAS_MEDIA: u32 = 1 << 1;
const IS_ERROR: u32 = 1 << 2;
const CONTINUES: u32 = 1 << 3;

/// A message, borrowed from the host for the length of one call of the engine.
///
/// The same conversation gives the same views in every wire format. Each tool result is a view of
/// its own, and an assistant's text, thinking and tool calls are one view together. The system
/// prompt and the tool definitions are not messages.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct MessageView<'a> {
    id: u64,
    kind: u32,
    flags: u32,
    role: RStr<'a>,
    name: RStr<'a>,
    text: RStr<'a>,
    tool_calls: RSlice<'a, ToolCallView<'a>>,
    tool_call_id: RStr<'a>,
    tool_name: RStr<'a>,
    raw: RStr<'a>,
    state: RStr<'a>,
    at: i64,
    tokens: u64,
    token_source: *const (),
    count_tokens: Option<extern "C" fn(source: *const (), id: u64) -> u64>,
    more: RStr<'a>,
}

// SAFETY: every field borrows immutable data for `'a`. `token_source` points to a `T: TokenSource`,
// which is `Sync`, and is only used through a shared reference.
unsafe impl Send for MessageView<'_> {}
// SAFETY: see `Send`.
unsafe impl Sync for MessageView<'_> {}

impl<'a> MessageView<'a> {
    /// Returns the host's id of the message. It stays the same across turns, restarts and resends.
    pub fn id(&self) -> MessageId {
        MessageId(self.id)
    }

    /// Returns the role: `user`, `assistant`, `tool`, or any other role that is on the wire.
    pub fn role(&self) -> &'a str {
        self.role.as_str()
    }

    /// Returns the name of the person who said the message, if the wire message gives one. Several
    /// people can share the role `user`. The name of a tool is not returned here but by
    /// [`tool_name`](Self::tool_name).
    pub fn name(&self) -> Option<&'a str> {
        // In a tool result, `name` is the tool's name and not a person's.
        Some(self.name.as_str()).filter(|name| !name.is_empty() && self.role() != "tool")
    }

    /// Returns all text of the message, with its parts joined by newlines. Thinking is not
    /// included.
    pub fn text(&self) -> &'a str {
        self.text.as_str()
    }

    /// Returns the tool calls of an assistant message, in order. The slice is empty for other
    /// messages.
    pub fn tool_calls(&self) -> &'a [ToolCallView<'a>] {
        self.tool_calls.as_slice()
    }

    /// Returns the id of the call that a tool result answers, or `None` if the message is not a
    /// tool result.
    pub fn tool_call_id(&self) -> Option<&'a str> {
        (self.role() == "tool").then(|| self.tool_call_id.as_str())
    }

    /// Returns the name of the tool that a tool result comes from, or `None` if the host could not
    /// find it.
    pub fn tool_name(&self) -> Option<&'a str> {
        Some(self.tool_name.as_str()).filter(|name| !name.is_empty())
    }

    /// Returns the JSON of the wire message. If a wire message contains several views, each of them
    /// returns the whole JSON.
    pub fn raw(&self) -> &'a str {
        self.raw.as_str()
    }

    /// Returns the state that an engine keeps with the message, as the text of a JSON object, or
    /// `None` if there is none. See [`Replacement::state`](crate::Replacement::state).
    pub fn state(&self) -> Option<&'a str> {
        Some(self.state.as_str()).filter(|state| !state.is_empty())
    }

    /// Returns when the message was said, in milliseconds since the Unix epoch, or `None` if the
    /// transcript does not say.
    pub fn time(&self) -> Option<i64> {
        Some(self.at).filter(|at| *at != NO_TIME)
    }

    /// Returns whether somebody said the message or a compaction inserted it.
    pub fn kind(&self) -> MessageKind {
        MessageKind::from_code(self.kind)
    }

    /// Returns true if the message holds thinking or redacted thinking.
    pub fn has_thinking(&self) -> bool {
        self.flags & HAS_THINKING != 0
    }

    /// Returns true if the message holds an image or a document.
    pub fn has_media(&self) -> bool {
        self.flags & HAS_MEDIA != 0
    }

    /// Returns true if the message is a tool result that reports an error.
    pub fn is_error(&self) -> bool {
        self.flags & IS_ERROR != 0
    }

    /// Returns true if the message belongs to the one before it, because it has a result of a tool
    /// that the provider runs itself, and another message has the call. Both messages stay, or both
    /// leave. [`tool_groups`](crate::tool_groups) keeps them together.
    pub fn continues(&self) -> bool {
        self.flags & CONTINUES != 0
    }

    /// Returns true if the message contains a user's own words or picture, or a shorter form of
    /// them. Returns false for summaries and notices, and for a message that is blank.
    pub fn is_real_user(&self) -> bool {
        self.role() == "user"
            && matches!(self.kind(), MessageKind::Original | MessageKind::Replaced)
            && (self.has_media() || !self.text().trim().is_empty())
    }

    /// Returns the tokens of the message, including its framing. The host counts them on first use
    /// and remembers the result. If the view has neither a count nor a source, the result is an
    /// estimate of four bytes a token.
    pub fn tokens(&self) -> u64 {
        if self.tokens != UNKNOWN_TOKENS {
            return self.tokens;
        }
        match self.count_tokens {
            Some(count) => count(self.token_source, self.id),
            None => (self.text.len() as u64).div_ceil(4),
        }
    }
}

impl std::fmt::Debug for MessageView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageView")
            .field("id", &self.id)
            .field("role", &self.role())
            .field("name", &self.name())
            .field("kind", &self.kind())
            .field("text", &self.text())
            .field("tool_calls", &self.tool_calls())
            .field("tool_call_id", &self.tool_call_id())
            .finish_non_exhaustive()
    }
}
