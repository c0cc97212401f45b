//! A message as an engine sees it. It lives here because it crosses the boundary as it is: a slice of
//! views is lent to a plugin without copying or converting one of them. The two structs are frozen; what later
//! versions tell of a message goes into `more`, as a JSON object.

use abi_stable::StableAbi;
use abi_stable::std_types::{RSlice, RStr};

use crate::message::{MessageId, MessageKind};

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

/// Counts the tokens of messages that a host lends; see [`MessageView::tokens`].
pub trait TokenSource: Sync {
    /// The tokens of the message `id`, with what its role and framing cost. Called from any thread.
    fn tokens_of(&self, id: MessageId) -> u64;
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
    /// A view of a message with neither text nor calls; add what it has with the `with_` methods.
    pub const fn new(id: MessageId, role: &'a str) -> Self {
        Self {
            id: id.0,
            kind: MessageKind::Original as u32,
            flags: 0,
            role: RStr::from_str(role),
            name: RStr::from_str(""),
            text: RStr::from_str(""),
            tool_calls: RSlice::EMPTY,
            tool_call_id: RStr::from_str(""),
            tool_name: RStr::from_str(""),
            raw: RStr::from_str(""),
            state: RStr::from_str(""),
            at: NO_TIME,
            tokens: UNKNOWN_TOKENS,
            token_source: std::ptr::null(),
            count_tokens: None,
            more: RStr::from_str(""),
        }
    }

    /// Said by somebody of this name (empty where the transcript does not say).
    #[must_use]
    pub const fn with_name(mut self, name: &'a str) -> Self {
        self.name = RStr::from_str(name);
        self
    }

    /// With this text.
    #[must_use]
    pub const fn with_text(mut self, text: &'a str) -> Self {
        self.text = RStr::from_str(text);
        self
    }

    /// With these tool calls.
    #[must_use]
    pub const fn with_tool_calls(mut self, calls: &'a [ToolCallView<'a>]) -> Self {
        self.tool_calls = RSlice::from_slice(calls);
        self
    }

    /// As the result of the call `call_id` of the tool `name` (empty where the transcript does not say).
    #[must_use]
    pub const fn with_result_of(mut self, call_id: &'a str, name: &'a str) -> Self {
        self.tool_call_id = RStr::from_str(call_id);
        self.tool_name = RStr::from_str(name);
        self
    }

    /// With the JSON that it was on the wire.
    #[must_use]
    pub const fn with_raw(mut self, raw: &'a str) -> Self {
        self.raw = RStr::from_str(raw);
        self
    }

    /// With this state: a JSON object as text.
    #[must_use]
    pub const fn with_state(mut self, state: &'a str) -> Self {
        self.state = RStr::from_str(state);
        self
    }

    /// Said at this time, in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn with_time(mut self, at_ms: i64) -> Self {
        self.at = at_ms;
        self
    }

    /// With this kind.
    #[must_use]
    pub const fn with_kind(mut self, kind: MessageKind) -> Self {
        self.kind = kind as u32;
        self
    }

    /// Marked as holding thinking, or redacted thinking, that a provider wants back unchanged.
    #[must_use]
    pub const fn with_thinking(self, yes: bool) -> Self {
        self.with_flag(HAS_THINKING, yes)
    }

    /// Marked as holding an image or a document.
    #[must_use]
    pub const fn with_media(self, yes: bool) -> Self {
        self.with_flag(HAS_MEDIA, yes)
    }

    /// Marked as a tool result that reports an error.
    #[must_use]
    pub const fn with_error(self, yes: bool) -> Self {
        self.with_flag(IS_ERROR, yes)
    }

    const fn with_flag(mut self, flag: u32, yes: bool) -> Self {
        self.flags = if yes {
            self.flags | flag
        } else {
            self.flags & !flag
        };
        self
    }

    /// With a known token count.
    #[must_use]
    pub const fn with_tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// With a source to ask for the token count on first use.
    #[must_use]
    pub fn with_token_source<T: TokenSource>(mut self, source: &'a T) -> Self {
        self.token_source = std::ptr::from_ref(source).cast();
        self.count_tokens = Some(count_tokens_with::<T>);
        self
    }

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

    /// Whether these are a user's own words (or picture): not a summary, not blank.
    pub fn is_real_user(&self) -> bool {
        self.role() == "user"
            && self.kind() == MessageKind::Original
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

extern "C" fn count_tokens_with<T: TokenSource>(source: *const (), id: u64) -> u64 {
    // SAFETY: `with_token_source` is the only place that pairs this function with a pointer, and it made
    // that pointer from a `&'a T` that outlives the view.
    let source = unsafe { &*source.cast::<T>() };
    // A panic must not unwind into a plugin; the estimate of "unknown" is no worse than a wrong count.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        source.tokens_of(MessageId(id))
    }))
    .unwrap_or(0)
}
