//! Messages of the transcript as the views that engines work with.
//!
//! A view borrows its tool calls as a slice of views, which has to be stored somewhere. So there
//! are two steps: build the call views with [`StoredViews::call_views`], then the message views.

use contexture_engine_api::{MessageView, OwnedMessage, ToolCallView};

/// Messages that were read from the transcript and are kept alive for their views.
#[derive(Debug, Default)]
pub(crate) struct StoredViews(Vec<OwnedMessage>);

impl StoredViews {
    pub(crate) fn of(messages: Vec<OwnedMessage>) -> Self {
        Self(messages)
    }

    /// Returns the calls of each message, in the order of the messages. Keep the result alive and
    /// pass it to [`views`](Self::views).
    pub(crate) fn call_views(&self) -> Vec<Vec<ToolCallView<'_>>> {
        let calls = self.0.iter().map(|message| message.tool_calls.iter());
        calls
            .map(|calls| {
                calls
                    .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
                    .collect()
            })
            .collect()
    }

    /// Returns a view of each message, in the same order. `calls` must be the result of
    /// [`call_views`](Self::call_views) on the same messages.
    pub(crate) fn views<'a>(&'a self, calls: &'a [Vec<ToolCallView<'a>>]) -> Vec<MessageView<'a>> {
        let messages = self.0.iter().zip(calls);
        messages
            .map(|(message, calls)| message.view(calls))
            .collect()
    }
}
