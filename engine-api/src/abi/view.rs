//! A message as an engine sees it. It lives here because it crosses the boundary as it is: a slice of
//! views is lent to a plugin without copying or converting one of them. The two structs are frozen; what later
//! versions tell of a message goes into `more`, as a JSON object.

mod making;

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr};

use crate::message::{MessageId, MessageKind};
pub use making::TokenSource;

/// One call of a tool inside an assistant message.
#[repr(C)]
#[derive(StableAbi, Debug, Clone, Copy)]
pub struct ToolCallView<'a> {
    id: RStr<'a>,
    name: RStr<'a>,
    arguments: RStr<'a>,
    more: RStr<'a>,
}

impl<'a> ToolCallView<'a> {
    /// A call of the tool `name`; `arguments` is JSON text as it stands on the wire.
    pub const fn new(id: &'a str, name: &'a str, arguments: &'a str) -> Self {
        Self {
            id: RStr::from_str(id),
            name: RStr::from_str(name),
            arguments: RStr::from_str(arguments),
            more: RStr::from_str(""),
        }
    }

    /// The call's id, which its result names. Models do reuse ids: pair by position within a conversation.
    pub fn id(&self) -> &'a str {
        self.id.as_str()
    }

    /// The tool's name.
    pub fn name(&self) -> &'a str {
        self.name.as_str()
    }

    /// The arguments: JSON text, not parsed and not checked.
    pub fn arguments(&self) -> &'a str {
        self.arguments.as_str()
    }
}

const UNKNOWN_TOKENS: u64 = u64::MAX;
const NO_TIME: i64 = i64::MIN;

const HAS_THINKING: u32 = 1;
const HAS_MEDIA: u32 = 1 << 1;
const IS_ERROR: u32 = 1 << 2;

/// A message, borrowed from the host for the length of one call.
///
/// The same conversation yields the same views in every wire format: each tool result is a view of its
/// own, and an assistant's text, thinking and calls are one view together. The system prompt and the
/// tool definitions stand outside the history and are not messages.
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

// SAFETY: every field borrows immutable data for 'a; `token_source` points at a `T: TokenSource`, which
// is `Sync`, and is only ever used through a shared reference.
unsafe impl Send for MessageView<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for MessageView<'_> {}

impl<'a> MessageView<'a> {
    /// The host's id for this message: stable over turns, restarts and resends.
    pub fn id(&self) -> MessageId {
        MessageId(self.id)
    }

    /// `user`, `assistant`, `tool`, or any other role on the wire.
    pub fn role(&self) -> &'a str {
        self.role.as_str()
    }

    /// Who says it, where the wire tells (`name` beside the role): one of several people who are all
    /// `user`, say. Never a tool's name; see [`tool_name`](Self::tool_name).
    pub fn name(&self) -> Option<&'a str> {
        Some(self.name.as_str()).filter(|name| !name.is_empty() && self.role() != "tool")
    }

    /// All the text of the message, its parts joined by newlines; thinking is not part of it.
    pub fn text(&self) -> &'a str {
        self.text.as_str()
    }

    /// The tools that an assistant message calls, in order.
    pub fn tool_calls(&self) -> &'a [ToolCallView<'a>] {
        self.tool_calls.as_slice()
    }

    /// For a tool result: the id of the call it answers.
    pub fn tool_call_id(&self) -> Option<&'a str> {
        (self.role() == "tool").then(|| self.tool_call_id.as_str())
    }

    /// For a tool result: the tool's name, where the host could find it.
    pub fn tool_name(&self) -> Option<&'a str> {
        Some(self.tool_name.as_str()).filter(|name| !name.is_empty())
    }

    /// The JSON that this message was on the wire. Where a wire message holds several views, each of
    /// them has the whole.
    pub fn raw(&self) -> &'a str {
        self.raw.as_str()
    }

    /// What an engine keeps with it, see [`Replacement::state`](crate::Replacement::state): a JSON object as text.
    pub fn state(&self) -> Option<&'a str> {
        Some(self.state.as_str()).filter(|state| !state.is_empty())
    }

    /// When it was said, in milliseconds since the Unix epoch, where the transcript tells.
    pub fn time(&self) -> Option<i64> {
        Some(self.at).filter(|at| *at != NO_TIME)
    }

    /// Whether it is an original or was inserted by a compaction.
    pub fn kind(&self) -> MessageKind {
        MessageKind::from_code(self.kind)
    }

    /// Whether it holds thinking or redacted thinking.
    pub fn has_thinking(&self) -> bool {
        self.flags & HAS_THINKING != 0
    }

    /// Whether it holds an image or a document.
    pub fn has_media(&self) -> bool {
        self.flags & HAS_MEDIA != 0
    }

    /// Whether it is a tool result that reports an error.
    pub fn is_error(&self) -> bool {
        self.flags & IS_ERROR != 0
    }

    /// Whether these are a user's own words (or picture), or a shorter form of them: not a summary, not blank.
    pub fn is_real_user(&self) -> bool {
        self.role() == "user"
            && matches!(self.kind(), MessageKind::Original | MessageKind::Replaced)
            && (self.has_media() || !self.text().trim().is_empty())
    }

    /// Its tokens, framing included. Counted by the host on first use and remembered there; a view
    /// without a count or a source estimates four bytes a token.
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
