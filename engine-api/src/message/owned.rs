//! Messages that own their data.
//!
//! A [`MessageView`] borrows everything from the host, which costs nothing if the engine runs in
//! the same process. An [`OwnedMessage`] is used when nothing can be borrowed: when a call goes to
//! another process or another language, and when a host returns messages from its transcript.
//!
//! Convert a view with `OwnedMessage::from`, and lend owned messages as views with [`with_views`].
//! The conversion keeps everything that a view can tell. The only difference is the token count: a
//! view counts on first use, and an owned message stores the result.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use super::{MessageId, MessageKind, MessageView, ToolCallView};

open_struct! {
    /// The owned form of a [`MessageView`]. Each field has the meaning of the view's method of the
    /// same name, and may be missing when it is read from JSON.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct OwnedMessage {
        /// The host's id of the message, unique within the session. See [`MessageView::id`].
        pub id: MessageId,
        /// The role on the wire, such as `user`, `assistant` or `tool`. See [`MessageView::role`].
        pub role: String,
        /// Whether somebody said the message or a compaction inserted it. See
        /// [`MessageView::kind`].
        pub kind: MessageKind,
        /// The name of the person who said it, if the wire message gives one. See
        /// [`MessageView::name`].
        pub name: Option<String>,
        /// All text of the message, with its parts joined by newlines. See [`MessageView::text`].
        pub text: String,
        /// The tool calls of an assistant message, in order. See [`MessageView::tool_calls`].
        pub tool_calls: Vec<OwnedToolCall>,
        /// For a tool result, the id of the call that it answers. See
        /// [`MessageView::tool_call_id`].
        pub tool_call_id: Option<String>,
        /// For a tool result, the name of the tool if it is known. See [`MessageView::tool_name`].
        pub tool_name: Option<String>,
        /// The JSON of the wire message that this message comes from. See [`MessageView::raw`].
        pub raw: String,
        /// The state that an engine keeps with the message, as JSON text. See
        /// [`MessageView::state`].
        pub state: Option<String>,
        /// When the message was said, in milliseconds since the Unix epoch, if that is known. See
        /// [`MessageView::time`].
        pub time_ms: Option<i64>,
        /// Whether the message holds thinking or redacted thinking. See
        /// [`MessageView::has_thinking`].
        pub has_thinking: bool,
        /// Whether the message holds an image or a document. See [`MessageView::has_media`].
        pub has_media: bool,
        /// Whether the message is a tool result that reports an error. See
        /// [`MessageView::is_error`].
        pub is_error: bool,
        /// Whether the message belongs to the one before it. See [`MessageView::continues`].
        pub continues: bool,
        /// The tokens of the message, including its framing. See [`MessageView::tokens`].
        pub tokens: u64,
    }
}

open_struct! {
    /// The owned form of a [`ToolCallView`]. A field that is missing when it is read from JSON is
    /// empty.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct OwnedToolCall {
        /// The id of the call, which its result names. See [`ToolCallView::id`].
        pub id: String,
        /// The name of the tool that is called. See [`ToolCallView::name`].
        pub name: String,
        /// The arguments as JSON text, neither parsed nor checked. See [`ToolCallView::arguments`].
        pub arguments: String,
    }
}

impl From<&MessageView<'_>> for OwnedMessage {
    fn from(view: &MessageView<'_>) -> Self {
        let call = |call: &ToolCallView<'_>| OwnedToolCall {
            id: call.id().to_owned(),
            name: call.name().to_owned(),
            arguments: call.arguments().to_owned(),
        };
        Self {
            id: view.id(),
            role: view.role().to_owned(),
            kind: view.kind(),
            name: view.name().map(str::to_owned),
            text: view.text().to_owned(),
            tool_calls: view.tool_calls().iter().map(call).collect(),
            tool_call_id: view.tool_call_id().map(str::to_owned),
            tool_name: view.tool_name().map(str::to_owned),
            raw: view.raw().to_owned(),
            state: view.state().map(str::to_owned),
            time_ms: view.time(),
            has_thinking: view.has_thinking(),
            has_media: view.has_media(),
            is_error: view.is_error(),
            continues: view.continues(),
            tokens: view.tokens(),
        }
    }
}

/// Lends owned messages as the views that an engine sees. The views borrow from `messages` and are
/// valid only while `work` runs.
pub fn with_views<T>(
    messages: &[impl Borrow<OwnedMessage>],
    work: impl FnOnce(&[MessageView<'_>]) -> T,
) -> T {
    // A view borrows a slice of calls, so all calls must exist before the first view is made.
    let calls: Vec<Vec<ToolCallView<'_>>> = messages
        .iter()
        .map(|message| message.borrow().call_views())
        .collect();
    let views: Vec<MessageView<'_>> = messages
        .iter()
        .zip(&calls)
        .map(|(message, calls)| message.borrow().view(calls))
        .collect();
    work(&views)
}

impl OwnedMessage {
    /// Returns the tool calls as an engine sees them. [`with_views`] makes them too.
    pub fn call_views(&self) -> Vec<ToolCallView<'_>> {
        let calls = self.tool_calls.iter();
        calls
            .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
            .collect()
    }

    /// Returns the message as an engine sees it. `calls` are its [`call_views`](Self::call_views),
    /// from which the result borrows. Use [`with_views`] to make both.
    pub fn view<'a>(&'a self, calls: &'a [ToolCallView<'a>]) -> MessageView<'a> {
        let view = MessageView::new(self.id, &self.role)
            .with_kind(self.kind)
            .with_name(self.name.as_deref().unwrap_or(""))
            .with_text(&self.text)
            .with_tool_calls(calls)
            .with_result_of(
                self.tool_call_id.as_deref().unwrap_or(""),
                self.tool_name.as_deref().unwrap_or(""),
            )
            .with_raw(&self.raw)
            .with_state(self.state.as_deref().unwrap_or(""))
            .with_thinking(self.has_thinking)
            .with_media(self.has_media)
            .with_error(self.is_error)
            .with_continuation(self.continues)
            .with_tokens(self.tokens);
        // A view has no setter that takes "unknown" for the time, so the default stays if there is
        // none.
        match self.time_ms {
            Some(time) => view.with_time(time),
            None => view,
        }
    }
}
