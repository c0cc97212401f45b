//! A recording as what an agent's client sends: request bodies, each longer than the one before, and answers.

use std::ops::Range;

use super::recording::Recording;
use crate::formats::{self, Format, FormatError, RenderPlan};

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
    /// The script of a recording, in the request format that is nearest to its own.
    ///
    /// # Errors
    /// It cannot be written in that format.
    pub(super) fn of(recording: &Recording) -> Result<Self, FormatError> {
        let conversation = recording.conversation();
        let format = match conversation.format() {
            Format::Anthropic | Format::ClaudeCode => Format::Anthropic,
            Format::OpenAiResponses | Format::Codex => Format::OpenAiResponses,
            _ => Format::OpenAiChat,
        };
        let recorded = conversation.messages();
        let body = conversation
            .convert(&RenderPlan::whole(recorded.len()), format)?
            .document;
        let wire = formats::split(&body, Some(format))?;
        let start = |text: &str| text.as_ptr() as usize - body.as_ptr() as usize;
        let wires = wire
            .messages
            .iter()
            .map(|text| start(text)..start(text) + text.len());
        let wires = wires.collect();
        let read = formats::parse_messages(format, &wire.messages)?;
        if read.len() != recorded.len() {
            return Err(FormatError::Window(format!(
                "the recording has {} messages, and as requests of the format {format} it has {}",
                recorded.len(),
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
