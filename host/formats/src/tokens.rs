//! Token counts: what a text, a message, an image or a tool costs in the window of a model.
//!
//! [`TokenCounter`] counts with the model's own encoding where it is public and with a factor over it
//! where it is not; what a session learns from reported usage closes the rest of the gap.
//! [`estimate`] answers without tokenising, for decisions that are not close. [`known_window`] says how large the
//! windows of well-known models are.
//!
//! Nothing is cached per message here: the owner of the messages caches their counts.
//!
//! ```
//! use contexture_formats::tokens::{TokenCounter, estimate, known_window};
//!
//! let counter = TokenCounter::for_model("openai/gpt-5");
//! assert_eq!(counter.count_text("hello world"), 2);
//! assert_eq!(estimate("hello world"), 3);
//! assert!(known_window("openai/gpt-5").is_some());
//! ```

mod cache;
mod correction;
mod encoding;
mod estimate;
mod image_size;
mod media;
mod model_name;
mod pieces;
mod windows;

pub(crate) use contexture_contract::CALL_TOKENS;
pub use contexture_contract::MESSAGE_TOKENS;
pub use correction::Correction;
pub(crate) use encoding::Encoding;
pub use estimate::estimate;
pub use image_size::image_size;
pub use media::{Detail, Media};
pub(crate) use model_name::by_name_of_model;
pub use model_name::claude;
pub use windows::{ModelWindow, known_window};

use media::MediaPrices;
use model_name::ModelName;

/// Tokens that wrap the name of who says a message, beside the name (OpenAI's cookbook).
pub(crate) const NAME_TOKENS: u64 = 1;

/// Tokens that wrap one tool definition beside its JSON text.
pub const TOOL_TOKENS: u64 = 8;

/// Tokens of the system prompt that Anthropic adds to every request with tools
/// (platform.claude.com, "Tool use", pricing: 346 with `tool_choice: auto`).
const CLAUDE_TOOLS_PROMPT_TOKENS: u32 = 346;

/// Counts tokens as one model does. Cheap to make, small, for every message has one, and cheap to copy; the tables
/// load on the first count, once in a process, and are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCounter {
    encoding: Encoding,
    /// What a text costs in this model, in percent of what it costs in `encoding`.
    percent: u16,
    media: MediaPrices,
    tools_prompt: u32,
}

/// The parts of a message that are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageParts<'a> {
    /// The name of the author; may be empty.
    pub name: &'a str,
    /// Its text, tool results included.
    pub text: &'a str,
    /// Its thinking, where the provider counts it in the next prompt.
    pub thinking: &'a str,
    /// The tool calls it makes: name and arguments (JSON text).
    pub calls: &'a [(&'a str, &'a str)],
    /// Images, documents and other things that are not text.
    pub media: &'a [Media],
}

impl TokenCounter {
    /// The counter for a model, by its name in any provider's spelling (`claude-opus-4-5`,
    /// `openrouter/openai/gpt-5`, …). An unknown model counts as `o200k_base`.
    ///
    /// The encoding of Claude models is not public. Measured against Anthropic's `count_tokens`, they
    /// take 1.18 times the tokens of `o200k_base` up to version 4.6 and 1.53 times from 4.7 on
    /// (<https://github.com/sammcj/ingest/pull/65>; Anthropic's migration guide for Opus 4.7 confirms
    /// the step). What a provider reports takes it from there.
    pub fn for_model(model: &str) -> Self {
        let name = ModelName::new(model);
        let percent = match name.claude_version() {
            Some(version) if version >= (4, 7) => 153,
            Some(_) => 118,
            None => 100,
        };
        Self {
            encoding: Encoding::for_model(model),
            percent,
            media: MediaPrices::of(&name),
            tools_prompt: if name.is_claude() {
                CLAUDE_TOOLS_PROMPT_TOKENS
            } else {
                0
            },
        }
    }

    /// The tokens of a text. What looks like a special token (`<|endoftext|>`) is text like any other.
    ///
    /// Exact for the models whose encoding is public. Only unbroken pieces of more than 4 KiB (no change
    /// between letters, digits, signs and space) are extrapolated from samples once a text has more than
    /// 512 KiB of them, so that no text takes longer than its length warrants.
    pub fn count_text(&self, text: &str) -> u64 {
        self.scale(self.encoding.count(text))
    }

    /// The tokens of a message, its framing included.
    pub fn count_message(&self, parts: &MessageParts<'_>) -> u64 {
        let count = |text: &str| self.encoding.count(text);
        let calls: u64 = parts
            .calls
            .iter()
            .map(|(name, arguments)| count(name) + count(arguments))
            .sum();
        let name = match parts.name {
            "" => 0,
            name => count(name) + NAME_TOKENS,
        };
        let text = name + count(parts.text) + count(parts.thinking) + calls;
        let media: u64 = parts
            .media
            .iter()
            .map(|media| self.count_media(media))
            .sum();
        self.scale(text) + media + MESSAGE_TOKENS + CALL_TOKENS * parts.calls.len() as u64
    }

    /// The tokens of an image or a document, by the provider's published formula.
    pub(crate) fn count_media(&self, media: &Media) -> u64 {
        self.media.tokens(media)
    }

    /// The tokens of the tool definitions of a request, each given as JSON text, with what the provider
    /// adds around them.
    pub fn count_tools(&self, tools: &[&str]) -> u64 {
        if tools.is_empty() {
            return 0;
        }
        let text: u64 = tools.iter().map(|tool| self.count_text(tool)).sum();
        text + TOOL_TOKENS * tools.len() as u64 + u64::from(self.tools_prompt)
    }

    fn scale(&self, tokens: u64) -> u64 {
        let scaled = (u128::from(tokens) * u128::from(self.percent)).div_ceil(100);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
