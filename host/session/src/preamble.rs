//! The preamble of a request: what stands outside its messages, that is the system prompt and the
//! tools, with the rules of the format for what stands together.
//!
//! It changes rarely and may be large, so it is read and counted only if its bytes differ from those
//! of the last request.

use std::borrow::Cow;

use contexture_contract::Grouping;
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{self as formats, Format, WireBody};

use super::align::raw_hash;
use super::counting::fixed_tokens;
use super::request::Request;

/// The system prompt and the tools of the last request.
#[derive(Debug, Clone)]
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
    /// The preamble of a request, if it is another one than that of the request `before`. Its tokens
    /// are `fixed`, if the caller knows them, and are counted otherwise.
    pub(crate) fn read(
        request: &Request<'_>,
        before: Option<&Self>,
        counter: &TokenCounter,
        fixed: Option<u64>,
    ) -> Option<Self> {
        let hash = request.body.as_ref().map(hash_of);
        if hash.is_some() && before.is_some_and(|before| before.hash == hash) {
            return None;
        }
        let preamble = request.preamble()?;
        Some(Self {
            hash,
            tokens: fixed.unwrap_or_else(|| fixed_tokens(counter, &preamble)),
            tools: (preamble.tools.iter().copied())
                .flat_map(formats::tool_names)
                .collect(),
            grouping: grouping_of(preamble.format),
            system: preamble.system.map(Cow::into_owned),
        })
    }

    /// Has the next request read and counted in any case, because the model is another one.
    pub(crate) fn expire(&mut self) {
        self.hash = None;
    }
}

/// The hash of the system prompt and the tools of a body.
fn hash_of(body: &WireBody<'_>) -> u64 {
    let parts = body.system.iter().chain(&body.tools);
    let parts = parts.chain(&body.system_messages);
    // A provider never changes a compaction of its own, it only adds a newer one. So the last one
    // is enough for the hash.
    let parts = parts.chain(body.compacted.last());
    parts.fold(body.format as u64, |hash, part| {
        hash.rotate_left(1) ^ raw_hash(part)
    })
}

/// The rules for keeping tool calls and their results together that apply to a format. Formats
/// without rules of their own use those of OpenAI chat completions.
fn grouping_of(format: Format) -> Grouping {
    match format {
        Format::Anthropic | Format::ClaudeCode | Format::Gemini => Grouping::Anthropic,
        Format::OpenAiResponses | Format::Codex => Grouping::Responses,
        _ => Grouping::Chat,
    }
}
