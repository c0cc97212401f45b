//! A recording as what an agent's client sends: request bodies, each longer than the one before, and answers.

use std::ops::Range;

use contexture_formats::{self as formats, Format, FormatError, Message, RenderPlan};
use serde_json::json;

use super::recording::Recording;

/// The bodies of a recording's requests, and the answers to them.
pub(super) struct Script {
    pub(super) format: Format,
    /// The body of a request that holds everything.
    body: String,
    /// Where its wire messages stand in it.
    wires: Vec<Range<usize>>,
    /// The wire messages of each message of the recording.
    items: Vec<Range<usize>>,
}

impl Script {
    /// The script of a recording, in the request format nearest to its own. If one of its messages cannot be written in
    /// that format, or becomes more than one, the texts are replayed as chat messages.
    ///
    /// # Errors
    /// It cannot be written as requests.
    pub(super) fn of(recording: &Recording) -> Result<Self, FormatError> {
        let conversation = recording.conversation();
        let format = match conversation.format() {
            Format::Anthropic | Format::ClaudeCode => Format::Anthropic,
            Format::OpenAiResponses | Format::Codex => Format::OpenAiResponses,
            _ => Format::OpenAiChat,
        };
        let recorded = conversation.messages();
        // Written without fixes, because the log may hold what a provider would refuse.
        let native = conversation.written_as(&RenderPlan::whole(recorded.len()), format);
        let native = native.and_then(|body| Self::split(body, format, recorded.len()));
        native.or_else(|_| Self::split(chat(recorded), Format::OpenAiChat, recorded.len()))
    }

    /// The script of a body with this many messages.
    fn split(body: String, format: Format, messages: usize) -> Result<Self, FormatError> {
        let wire = formats::split(&body, Some(format))?;
        let start = |text: &str| text.as_ptr() as usize - body.as_ptr() as usize;
        let wires = wire
            .messages
            .iter()
            .map(|text| start(text)..start(text) + text.len());
        let wires = wires.collect();
        let read = formats::parse_messages(format, &wire.messages)?;
        if read.len() != messages {
            return Err(FormatError::Window(format!(
                "the recording has {messages} messages, and as requests of the format {format} it has {}",
                read.len()
            )));
        }
        let items = read.into_iter().map(|message| message.items).collect();
        Ok(Self {
            format,
            wires,
            items,
            body,
        })
    }

    /// The body of the request that is answered by this message of the recording.
    pub(super) fn request(&self, answer: usize) -> String {
        let end = self.items.get(answer).map_or(0, |items| items.start);
        let last = self.wires.last().map_or(self.body.len(), |wire| wire.end);
        let before = end.checked_sub(1).and_then(|at| self.wires.get(at));
        let (head, tail) = match (before, self.wires.first()) {
            (Some(before), _) => (before.end, last),
            (None, Some(first)) => (first.start, last),
            (None, None) => (self.body.len(), self.body.len()),
        };
        [&self.body[..head], &self.body[tail..]].concat()
    }

    /// The wire messages of the answer.
    pub(super) fn answer(&self, answer: usize) -> Vec<&str> {
        let items = self.items.get(answer).cloned().unwrap_or(0..0);
        let wires = self.wires.get(items).unwrap_or(&[]);
        wires
            .iter()
            .filter_map(|wire| self.body.get(wire.clone()))
            .collect()
    }
}

/// Writes messages as a body of chat messages, one for each, with their whole content as text.
fn chat(messages: &[Message]) -> String {
    let chat = messages.iter().map(|message| {
        let said = [&message.thinking, &message.text, &message.opaque];
        let said: Vec<&str> = (said.into_iter().map(String::as_str))
            .filter(|text| !text.is_empty())
            .collect();
        let mut one = json!({"role": "user", "content": said.join("\n")});
        match message.role.as_str() {
            "assistant" => one["role"] = json!("assistant"),
            "tool" => {
                one["role"] = json!("tool");
                one["tool_call_id"] = json!(message.tool_call_id);
            }
            _ => {}
        }
        if !message.calls.is_empty() {
            let calls = message.calls.iter().map(|call| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            });
            one["tool_calls"] = calls.collect();
        }
        one
    });
    json!({"messages": chat.collect::<Vec<_>>()}).to_string()
}
