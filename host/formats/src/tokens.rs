//! Counts tokens: what a text, a message, an image or a tool costs in the window of a model.
//!
//! [`TokenCounter`] counts with the model's own encoding if it is public, and otherwise with a
//! factor on a public encoding. A [`Correction`], learned from the usage that the provider
//! reports, closes the rest of the gap. [`estimate()`] answers without tokenising, for
//! decisions that are not close. [`known_window`] returns the window sizes of well-known
//! models.
//!
//! Nothing is cached per message here. The owner of the messages caches their counts.
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
mod vocabulary;
mod windows;

pub(crate) use contexture_contract::CALL_TOKENS;
pub use contexture_contract::MESSAGE_TOKENS;
pub use correction::Correction;
pub(crate) use encoding::Encoding;
pub use estimate::estimate;
pub use image_size::image_size;
pub use media::{Detail, MediaSize};
pub(crate) use model_name::by_name_of_model;
pub use model_name::claude;
pub use windows::{ModelWindow, known_window};

use media::MediaPrices;
use model_name::ModelName;

/// The tokens that a provider adds around the name of a message's author, according to OpenAI's
/// cookbook.
pub(crate) const NAME_TOKENS: u64 = 1;

/// The tokens that a provider adds around the JSON text of one tool definition.
pub const TOOL_TOKENS: u64 = 8;

/// The tokens of the system prompt that Anthropic adds to every request with tools. The value
/// for `tool_choice: auto` is 346 (platform.claude.com, "Tool use", pricing).
const CLAUDE_TOOLS_PROMPT_TOKENS: u32 = 346;

/// Counts tokens the way one model does. A counter is small and cheap to create and to copy, so
/// each message can have one. The tables load on the first count, once in a process, and are
/// shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenCounter {
    encoding: Encoding,
    /// The tokens of a text in this model, in percent of its tokens in `encoding`.
    percent: u16,
    media: MediaPrices,
    tools_prompt: u32,
}

/// The parts of a message that are counted. Leave a part empty if the message does not have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageParts<'a> {
    /// The name of the author, or an empty string.
    pub name: &'a str,
    /// The text, including that of tool results.
    pub text: &'a str,
    /// The thinking, if the provider counts it as part of the next prompt.
    pub thinking: &'a str,
    /// The tool calls of the message, as name and arguments in JSON.
    pub calls: &'a [(&'a str, &'a str)],
    /// The images, documents and other parts that are not text.
    pub media: &'a [MediaSize],
}

impl TokenCounter {
    /// Returns the counter for a model. The name may have any provider's spelling, such as
    /// `claude-opus-4-5` or `openrouter/openai/gpt-5`. An unknown model counts as `o200k_base`.
    ///
    /// The encoding of Claude models is not public. Measured against Anthropic's
    /// `count_tokens`, they take 1.18 times the tokens of `o200k_base` up to version 4.6 and
    /// 1.53 times from version 4.7 on (<https://github.com/sammcj/ingest/pull/65>). Anthropic's
    /// migration guide for Opus 4.7 confirms the step. A [`Correction`] refines the result once
    /// the provider reports usage.
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

    /// Loads the tables that the first count needs, which takes some ten milliseconds. Call it
    /// before somebody waits for a count.
    pub fn load(&self) {
        // Every first count loads them.
        self.encoding.count("tokens");
    }

    /// Counts the tokens of a text. Text that looks like a special token, such as
    /// `<|endoftext|>`, counts as ordinary text.
    ///
    /// The count is exact for models with a public encoding, with one exception. A piece longer
    /// than 4 KiB without a change between letters, digits, signs and space is unusual. If a
    /// text has more than 512 KiB of such pieces, the rest of them is extrapolated from
    /// samples, so that the time stays proportional to the length.
    pub fn count_text(&self, text: &str) -> u64 {
        self.scale(self.encoding.count(text))
    }

    /// Counts the tokens of a message, including what the provider adds around it.
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
        // The factor is for text only. Media and framing already are in the model's own tokens.
        self.scale(text) + media + MESSAGE_TOKENS + CALL_TOKENS * parts.calls.len() as u64
    }

    /// Counts the tokens of an image or a document by the provider's published formula.
    pub(crate) fn count_media(&self, media: &MediaSize) -> u64 {
        self.media.tokens(media)
    }

    /// Counts the tokens of the tool definitions of a request, including what the provider adds
    /// around them. Each definition is given as JSON text. Without tools, the count is 0.
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
