//! The preamble of a request: what stands outside its messages, that is the system prompt and the
//! tools, with the rules of the format for what stands together.
//!
//! It changes rarely and may be large, so it is read and counted only if its bytes differ from those
//! of the last request.

use contexture_contract::Grouping;
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{self as formats, Conversation, Format, FormatError};

use super::align::raw_hash;
use super::counting::fixed_tokens;
use super::request::{Request, Source};

/// The system prompt and the tools of the last request.
#[derive(Debug)]
pub(crate) struct Preamble {
    /// A hash of their bytes. None if they must be read again in any case.
    hash: Option<u64>,
    pub(crate) system: Option<String>,
    /// The names of the client's own tools. A tool of the engine with the same name is offered
    /// under another one.
    pub(crate) tools: Vec<String>,
    /// The tokens of all of it.
    pub(crate) tokens: u64,
    /// What has to stand together in this format.
    pub(crate) grouping: Grouping,
}

impl Preamble {
    /// The preamble of a conversation that was read. Its tokens are `fixed`, if the caller knows
    /// them, and are counted otherwise.
    pub(crate) fn of(
        conversation: &Conversation,
        counter: &TokenCounter,
        fixed: Option<u64>,
    ) -> Self {
        Self {
            hash: None,
            system: conversation.system().map(str::to_owned),
            tools: (conversation.tool_lists())
                .flat_map(formats::tool_names)
                .collect(),
            tokens: fixed.unwrap_or_else(|| fixed_tokens(counter, conversation)),
            grouping: grouping_of(conversation.format()),
        }
    }

    /// The preamble of a request, if it is another one than that of the request `before`.
    ///
    /// # Errors
    /// The system prompt or the tools are not valid in the format.
    pub(crate) fn read(
        request: &Request<'_>,
        before: Option<&Self>,
        counter: &TokenCounter,
        fixed: Option<u64>,
    ) -> Result<Option<Self>, FormatError> {
        let (text, wire) = match &request.source {
            Source::Body { text, wire } => (*text, wire),
            Source::Document(conversation) => {
                return Ok(Some(Self::of(conversation, counter, fixed)));
            }
        };
        let parts = wire
            .system
            .iter()
            .chain(&wire.tools)
            .chain(&wire.system_messages);
        // A provider never changes a compaction of its own, it only adds a newer one. So the last
        // one is enough for the hash.
        let parts = parts.chain(wire.compacted.last());
        let hash = parts.fold(wire.format as u64, |hash, part| {
            hash.rotate_left(1) ^ raw_hash(part)
        });
        if before.is_some_and(|before| before.hash == Some(hash)) {
            return Ok(None);
        }
        let conversation = formats::read_frame(text, wire.format)?;
        Ok(Some(Self {
            hash: Some(hash),
            ..Self::of(&conversation, counter, fixed)
        }))
    }

    /// Has the next request read and counted in any case, because the model is another one.
    pub(crate) fn expire(&mut self) {
        self.hash = None;
    }
}

/// The rules for keeping tool calls and their results together that apply to a format. Formats
/// without rules of their own use those of OpenAI chat completions.
fn grouping_of(format: Format) -> Grouping {
    match format {
        Format::Anthropic | Format::ClaudeCode => Grouping::Anthropic,
        Format::OpenAiResponses | Format::Codex => Grouping::Responses,
        _ => Grouping::Chat,
    }
}
