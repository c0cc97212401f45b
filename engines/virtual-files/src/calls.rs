//! Counts the tool calls since the user's last message, for the setting `max_tool_calls`.

use contexture_engine_api::{
    EngineError, MessageId, MessageView, Services, TranscriptRange, with_views,
};

/// The number of tool calls since the user's last message. Messages are counted once, by their ids,
/// which grow with the conversation.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    through: MessageId,
    pub(crate) since_user: u64,
}

impl Calls {
    /// Counts the calls of the whole conversation by reading the transcript page by page. Use it
    /// when a session is opened and after messages were cut off.
    pub(crate) fn of(services: &Services) -> Result<Self, EngineError> {
        let mut calls = Self::default();
        let mut next = TranscriptRange::page(None);
        loop {
            let page = services.transcript(&next)?;
            with_views(&page.messages, |messages| calls.add(messages));
            if page.next.is_none() {
                return Ok(calls);
            }
            next = TranscriptRange::page(page.next);
        }
    }

    /// Counts the calls of messages that were not counted yet. A message of the user sets the count
    /// back to 0.
    pub(crate) fn add(&mut self, messages: &[MessageView<'_>]) {
        for message in messages {
            // A delivery may repeat messages that were counted already.
            if message.id() <= self.through {
                continue;
            }
            self.through = message.id();
            match message.is_real_user() {
                true => self.since_user = 0,
                false => self.since_user += message.tool_calls().len() as u64,
            }
        }
    }
}
