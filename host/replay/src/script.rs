//! A recording as the requests that an agent's client would have sent.
//!
//! A session takes request bodies, so the player needs the body of each request and the answer to
//! it. [`Script`] renders the whole conversation once as one body and notes the byte range of each
//! message in it. [`Script::request`] then cuts the body off before an answer, and
//! [`Script::answer`] returns the wire messages of the answer itself.
//!
//! The format is the request format closest to the recording's own. If the conversation cannot be
//! written in it, the texts are replayed as chat messages.

use std::ops::Range;

use contexture_formats::{self as formats, Format, FormatError, Message, RenderPlan};
use serde_json::json;

use super::recording::Recording;

/// The bodies of a recording's requests, and the answers to them. All bodies are cut from one text,
/// so a long recording is written only once.
pub(super) struct Script {
    pub(super) format: Format,
    /// The body of a request that contains the whole conversation.
    body: String,
    /// The byte range of each wire message in `body`.
    wires: Vec<Range<usize>>,
    /// The wire messages of each message of the recording, as a range of indices into `wires`.
    items: Vec<Range<usize>>,
}

impl Script {
    /// Writes a recording as requests, in the request format closest to its own. If one of its
    /// messages cannot be written in that format, or becomes more than one, the texts are written
    /// as chat messages instead.
    ///
    /// # Errors
    /// Returns [`FormatError`] if the recording cannot be written as chat messages either.
    pub(super) fn of(recording: &Recording) -> Result<Self, FormatError> {
        let conversation = recording.conversation();
        let format = match conversation.format() {
            Format::Anthropic | Format::ClaudeCode => Format::Anthropic,
            Format::OpenAiResponses | Format::Codex => Format::OpenAiResponses,
            Format::Gemini => Format::Gemini,
            _ => Format::OpenAiChat,
        };
        let recorded = conversation.messages();
        // Written without repairs: the replay must show what the log holds, even if a provider
        // would reject it.
        let native = conversation.written_as(&RenderPlan::whole(recorded.len()), format);
        let native = native.and_then(|body| Self::split(body, format, recorded.len()));
        native.or_else(|_| Self::split(chat(recorded), Format::OpenAiChat, recorded.len()))
    }

    /// Finds the messages in a body, and checks that there are as many as in the recording.
    ///
    /// # Errors
    /// Returns [`FormatError`] if the body cannot be read, or the numbers differ.
    fn split(body: String, format: Format, messages: usize) -> Result<Self, FormatError> {
        let wire = formats::split(&body, Some(format))?;
        // The messages borrow from the body, so their addresses give their positions in it.
        let start = |text: &str| text.as_ptr() as usize - body.as_ptr() as usize;
        let wires = wire
            .messages
            .iter()
            .map(|text| start(text)..start(text) + text.len());
        let wires = wires.collect();
        let read = formats::parse_messages(format, &wire.messages)?;
        if read.len() != messages {
            return Err(FormatError::Window(format!(
                "the recording has {messages} messages, but {} if it is written as requests of the format {format}",
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

    /// Returns the body of the request that this message of the recording answers: everything
    /// before the answer, with the rest of the body's fields.
    pub(super) fn request(&self, answer: usize) -> String {
        let end = self.items.get(answer).map_or(0, |items| items.start);
        // Without any message before the answer, the list of messages becomes empty.
        let last = self.wires.last().map_or(self.body.len(), |wire| wire.end);
        let before = end.checked_sub(1).and_then(|at| self.wires.get(at));
        let (head, tail) = match (before, self.wires.first()) {
            (Some(before), _) => (before.end, last),
            (None, Some(first)) => (first.start, last),
            (None, None) => (self.body.len(), self.body.len()),
        };
        [&self.body[..head], &self.body[tail..]].concat()
    }

    /// Returns the wire messages of an answer, as the session takes them after a request. Empty if
    /// there is no message with this index.
    pub(super) fn answer(&self, answer: usize) -> Vec<&str> {
        let items = self.items.get(answer).cloned().unwrap_or(0..0);
        let wires = self.wires.get(items).unwrap_or(&[]);
        wires
            .iter()
            .filter_map(|wire| self.body.get(wire.clone()))
            .collect()
    }
}

/// Writes messages as a body of chat messages, one for each. Thinking, text and opaque content
/// become one text. Unknown roles become `user`.
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
