//! Making views.
//!
//! Hosts make a view for each message that they lend, and tests make views by hand. Begin with
//! [`MessageView::new`] and add what the message has with the `with_` methods. Every method borrows
//! its argument, so the data must outlive the view.
//!
//! Token counts are the one thing that is not fixed when the view is made. A host that has not
//! counted a message yet gives the view a [`TokenSource`], and the view asks it when an engine
//! first needs the count.

use abi_stable::std_types::{RSlice, RStr};

use super::{
    CONTINUES, HAS_MEDIA, HAS_THINKING, IS_ERROR, MessageView, NO_TIME, ToolCallView,
    UNKNOWN_TOKENS,
};
use crate::message::{MessageId, MessageKind};

/// Counts the tokens of messages when an engine asks for them. See [`MessageView::tokens`].
pub trait TokenSource: Sync {
    /// Returns the tokens of the message `id`, including its role and framing. This can be called
    /// from any thread.
    fn tokens_of(&self, id: MessageId) -> u64;
}

impl<'a> MessageView<'a> {
    /// Creates a view of a message without text and without calls. Add what the message has with
    /// the `with_` methods.
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

    /// Sets the name of the person who said the message. An empty name means that the transcript
    /// does not say.
    #[must_use]
    pub const fn with_name(mut self, name: &'a str) -> Self {
        self.name = RStr::from_str(name);
        self
    }

    /// Sets the text. If a message has several text parts, join them with newlines.
    #[must_use]
    pub const fn with_text(mut self, text: &'a str) -> Self {
        self.text = RStr::from_str(text);
        self
    }

    /// Sets the tool calls, in the order of the message.
    #[must_use]
    pub const fn with_tool_calls(mut self, calls: &'a [ToolCallView<'a>]) -> Self {
        self.tool_calls = RSlice::from_slice(calls);
        self
    }

    /// Makes the message the result of the call `call_id` of the tool `name`. The name is empty if
    /// the transcript does not say which tool it was.
    #[must_use]
    pub const fn with_result_of(mut self, call_id: &'a str, name: &'a str) -> Self {
        self.tool_call_id = RStr::from_str(call_id);
        self.tool_name = RStr::from_str(name);
        self
    }

    /// Sets the JSON that the message was on the wire.
    #[must_use]
    pub const fn with_raw(mut self, raw: &'a str) -> Self {
        self.raw = RStr::from_str(raw);
        self
    }

    /// Sets the state that an engine keeps with the message, as the text of a JSON object.
    #[must_use]
    pub const fn with_state(mut self, state: &'a str) -> Self {
        self.state = RStr::from_str(state);
        self
    }

    /// Sets when the message was said, in milliseconds since the Unix epoch.
    #[must_use]
    pub const fn with_time(mut self, at_ms: i64) -> Self {
        self.at = at_ms;
        self
    }

    /// Sets whether somebody said the message or a compaction inserted it.
    #[must_use]
    pub const fn with_kind(mut self, kind: MessageKind) -> Self {
        self.kind = kind as u32;
        self
    }

    /// Marks the message as holding thinking or redacted thinking, which some providers require to
    /// be returned unchanged.
    #[must_use]
    pub const fn with_thinking(self, yes: bool) -> Self {
        self.with_flag(HAS_THINKING, yes)
    }

    /// Marks the message as holding an image or a document.
    #[must_use]
    pub const fn with_media(self, yes: bool) -> Self {
        self.with_flag(HAS_MEDIA, yes)
    }

    /// Marks the message as a tool result that reports an error.
    #[must_use]
    pub const fn with_error(self, yes: bool) -> Self {
        self.with_flag(IS_ERROR, yes)
    }

    /// Marks the message as one that belongs to the message before it, see
    /// [`continues`](Self::continues).
    #[must_use]
    pub const fn with_continuation(self, yes: bool) -> Self {
        self.with_flag(CONTINUES, yes)
    }

    const fn with_flag(mut self, flag: u32, yes: bool) -> Self {
        self.flags = if yes {
            self.flags | flag
        } else {
            self.flags & !flag
        };
        self
    }

    /// Sets a token count that is already known. The host is then not asked for it.
    #[must_use]
    pub const fn with_tokens(mut self, tokens: u64) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the source that is asked for the token count when an engine first needs it.
    #[must_use]
    pub fn with_token_source<T: TokenSource>(mut self, source: &'a T) -> Self {
        self.token_source = std::ptr::from_ref(source).cast();
        self.count_tokens = Some(count_tokens_with::<T>);
        self
    }
}

extern "C" fn count_tokens_with<T: TokenSource>(source: *const (), id: u64) -> u64 {
    // SAFETY: only `with_token_source` pairs this function with a pointer, and it made that pointer
    // from a `&'a T` that outlives the view.
    let source = unsafe { &*source.cast::<T>() };
    // A panic must not unwind into a plugin. If counting fails, the message counts as 0 tokens.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        source.tokens_of(MessageId(id))
    }))
    .unwrap_or(0)
}
