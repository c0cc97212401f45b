//! A message as it crosses where nothing can be lent: to another process, or into another language.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use super::{MessageId, MessageKind, MessageView, ToolCallView};

open_struct! {
    /// What a [`MessageView`] borrows, owned.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct OwnedMessage {
        /// [`MessageView::id`].
        pub id: MessageId,
        /// [`MessageView::role`].
        pub role: String,
        /// [`MessageView::kind`].
        pub kind: MessageKind,
        /// [`MessageView::name`].
        pub name: Option<String>,
        /// [`MessageView::text`].
        pub text: String,
        /// [`MessageView::tool_calls`].
        pub tool_calls: Vec<OwnedToolCall>,
        /// [`MessageView::tool_call_id`].
        pub tool_call_id: Option<String>,
        /// [`MessageView::tool_name`].
        pub tool_name: Option<String>,
        /// [`MessageView::raw`].
        pub raw: String,
        /// [`MessageView::state`].
        pub state: Option<String>,
        /// [`MessageView::time`], in milliseconds since the Unix epoch.
        pub time_ms: Option<i64>,
        /// [`MessageView::has_thinking`].
        pub has_thinking: bool,
        /// [`MessageView::has_media`].
        pub has_media: bool,
        /// [`MessageView::is_error`].
        pub is_error: bool,
        /// [`MessageView::tokens`].
        pub tokens: u64,
    }
}

open_struct! {
    /// What a [`ToolCallView`] borrows, owned.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct OwnedToolCall {
        /// [`ToolCallView::id`].
        pub id: String,
        /// [`ToolCallView::name`].
        pub name: String,
        /// [`ToolCallView::arguments`].
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
            tokens: view.tokens(),
        }
    }
}

/// Lends owned messages as an engine sees them.
pub fn with_views<T>(
    messages: &[impl Borrow<OwnedMessage>],
    work: impl FnOnce(&[MessageView<'_>]) -> T,
) -> T {
    let calls: Vec<Vec<ToolCallView<'_>>> = messages
        .iter()
        .map(|message| {
            let calls = message.borrow().tool_calls.iter();
            calls
                .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
                .collect()
        })
        .collect();
    let views: Vec<MessageView<'_>> = messages
        .iter()
        .zip(&calls)
        .map(|(message, calls)| message.borrow().view(calls))
        .collect();
    work(&views)
}

impl OwnedMessage {
    fn view<'a>(&'a self, calls: &'a [ToolCallView<'a>]) -> MessageView<'a> {
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
            .with_tokens(self.tokens);
        match self.time_ms {
            Some(time) => view.with_time(time),
            None => view,
        }
    }
}
