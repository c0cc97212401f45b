//! How a view is made: what a host does, and a test.

use abi_stable::std_types::{RSlice, RStr};

use super::{
    HAS_MEDIA, HAS_THINKING, IS_ERROR, MessageView, NO_TIME, ToolCallView, UNKNOWN_TOKENS,
};
use crate::message::{MessageId, MessageKind};

/// Counts the tokens of messages that a host lends; see [`MessageView::tokens`].
pub trait TokenSource: Sync {
    /// The tokens of the message `id`, with what its role and framing cost. Called from any thread.
    fn tokens_of(&self, id: MessageId) -> u64;
}

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
