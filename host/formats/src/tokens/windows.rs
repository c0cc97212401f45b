//! Knows the window sizes of well-known models.
//!
//! [`known_window`] looks a model up in one table, [`WINDOWS`], by the beginning of its name. A
//! family has one row, and a version of it has a row of its own if its window differs. A model
//! that is newer than the table therefore gets the window of its family.
//!
//! The table is only a default, and the configuration overrides it. How names are compared is
//! explained in `model_name`.

use serde::{Deserialize, Serialize};

use super::model_name::ModelName;

/// The limits of a model, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelWindow {
    /// The size of the whole window, which prompt and answer share.
    pub context_length: u64,
    /// The maximum length of an answer.
    pub max_output_tokens: u64,
}

/// Returns the window of a well-known model. The name may have any provider's spelling: with or
/// without the provider (`openrouter/anthropic/…`, `us.anthropic.…`), a date, a variant
/// (`:free`), dots or hyphens. A `[1m]` at the end of a Claude model's name requests its window
/// of a million tokens.
///
/// A newer model of a listed family counts as the nearest one that is listed. `None` if nothing
/// matches. Ask the user then, whose configuration overrides this table in any case.
pub fn known_window(model: &str) -> Option<ModelWindow> {
    let name = ModelName::new(model);
    let mut window = *name.find_in(WINDOWS)?;
    if name.asks_for_1m() && name.is_claude() {
        window.context_length = window.context_length.max(1_000_000);
    }
    Some(window)
}

const fn window(context_length: u64, max_output_tokens: u64) -> ModelWindow {
    ModelWindow {
        context_length,
        max_output_tokens,
    }
}

/// The windows by the beginning of the name, in lower case and with hyphens for dots. The
/// longest match counts. The values are from the providers' model pages as of November 2026,
/// and for open models what their makers serve.
const WINDOWS: &[(&str, ModelWindow)] = &[
    // Anthropic
    ("claude", window(200_000, 32_000)),
    ("claude-instant", window(100_000, 4_096)),
    ("claude-2", window(100_000, 4_096)),
    ("claude-2-1", window(200_000, 4_096)),
    ("claude-3", window(200_000, 4_096)),
    ("claude-3-5", window(200_000, 8_192)),
    ("claude-3-7", window(200_000, 64_000)),
    ("claude-sonnet-4", window(200_000, 64_000)),
    ("claude-sonnet-4-6", window(1_000_000, 128_000)),
    ("claude-opus-4-5", window(200_000, 64_000)),
    ("claude-opus-4-6", window(1_000_000, 128_000)),
    ("claude-opus-4-7", window(1_000_000, 128_000)),
    ("claude-opus-4-8", window(1_000_000, 128_000)),
    ("claude-haiku-4", window(200_000, 64_000)),
    ("claude-haiku-5", window(1_000_000, 128_000)),
    ("claude-sonnet-5", window(1_000_000, 128_000)),
    ("claude-opus-5", window(1_000_000, 128_000)),
    ("claude-fable", window(1_000_000, 128_000)),
    ("claude-mythos", window(1_000_000, 128_000)),
    // OpenAI
    ("gpt-3-5", window(16_385, 4_096)),
    ("gpt-35", window(16_385, 4_096)),
    ("gpt-4", window(8_192, 8_192)),
    ("gpt-4-32k", window(32_768, 32_768)),
    ("gpt-4-turbo", window(128_000, 4_096)),
    ("gpt-4-vision", window(128_000, 4_096)),
    ("gpt-4-1106", window(128_000, 4_096)),
    ("gpt-4-0125", window(128_000, 4_096)),
    ("gpt-4o", window(128_000, 16_384)),
    ("gpt-4o-2024-05-13", window(128_000, 4_096)),
    ("chatgpt-4o", window(128_000, 16_384)),
    ("gpt-4-1", window(1_047_576, 32_768)),
    ("gpt-4-5", window(128_000, 16_384)),
    ("gpt-5", window(400_000, 128_000)),
    ("gpt-5-chat", window(128_000, 16_384)),
    ("gpt-5-1-chat", window(128_000, 16_384)),
    ("gpt-5-2-chat", window(128_000, 16_384)),
    ("gpt-5-3-chat", window(128_000, 16_384)),
    ("gpt-5-3-codex-spark", window(128_000, 128_000)),
    ("gpt-5-4", window(1_050_000, 128_000)),
    ("gpt-5-4-mini", window(400_000, 128_000)),
    ("gpt-5-4-nano", window(400_000, 128_000)),
    ("gpt-5-5", window(1_050_000, 128_000)),
    ("gpt-5-6", window(1_050_000, 128_000)),
    ("gpt-6", window(1_050_000, 128_000)),
    ("gpt-oss", window(131_072, 131_072)),
    ("codex-mini", window(200_000, 100_000)),
    ("o1", window(200_000, 100_000)),
    ("o1-mini", window(128_000, 65_536)),
    ("o1-preview", window(128_000, 32_768)),
    ("o3", window(200_000, 100_000)),
    ("o4-mini", window(200_000, 100_000)),
    // Google
    ("gemini", window(1_048_576, 65_536)),
    ("gemini-1-5", window(1_048_576, 8_192)),
    ("gemini-1-5-pro", window(2_097_152, 8_192)),
    ("gemini-2-0", window(1_048_576, 8_192)),
    ("gemma-2", window(8_192, 8_192)),
    ("gemma-3", window(131_072, 8_192)),
    ("gemma-4", window(262_144, 32_768)),
    // DeepSeek
    ("deepseek", window(131_072, 8_192)),
    ("deepseek-reasoner", window(131_072, 65_536)),
    ("deepseek-r1", window(131_072, 65_536)),
    ("deepseek-v4", window(1_048_576, 393_216)),
    // Alibaba
    ("qwen", window(131_072, 8_192)),
    ("qwen-long", window(10_000_000, 8_192)),
    ("qwen2", window(32_768, 8_192)),
    ("qwen2-5", window(131_072, 8_192)),
    ("qwen3", window(131_072, 32_768)),
    ("qwen3-coder", window(262_144, 65_536)),
    ("qwen3-coder-plus", window(1_000_000, 65_536)),
    ("qwen3-coder-flash", window(1_000_000, 65_536)),
    ("qwen3-max", window(262_144, 65_536)),
    ("qwen3-next", window(262_144, 32_768)),
    ("qwen3-235b-a22b-instruct-2507", window(262_144, 65_536)),
    ("qwen3-235b-a22b-thinking-2507", window(262_144, 81_920)),
    ("qwen3-5", window(262_144, 65_536)),
    ("qwen3-5-plus", window(1_000_000, 65_536)),
    ("qwen3-6", window(262_144, 65_536)),
    ("qwen3-6-plus", window(1_000_000, 65_536)),
    ("qwen3-7", window(991_000, 65_536)),
    ("qwq", window(131_072, 32_768)),
    // Moonshot
    ("kimi", window(131_072, 16_384)),
    ("kimi-k2-0905", window(262_144, 32_768)),
    ("kimi-k2-thinking", window(262_144, 65_536)),
    ("kimi-k2-turbo", window(262_144, 32_768)),
    ("kimi-k2-5", window(262_144, 65_536)),
    ("kimi-k2-6", window(262_144, 65_536)),
    ("kimi-k2-7", window(262_144, 65_536)),
    ("kimi-k3", window(1_048_576, 131_072)),
    ("moonshot-v1-8k", window(8_192, 4_096)),
    ("moonshot-v1-32k", window(32_768, 8_192)),
    ("moonshot-v1-128k", window(131_072, 16_384)),
    // Z.ai
    ("glm-4", window(128_000, 4_096)),
    ("glm-4-5", window(131_072, 98_304)),
    ("glm-4-5v", window(65_536, 16_384)),
    ("glm-4-6", window(200_000, 128_000)),
    ("glm-4-7", window(200_000, 128_000)),
    ("glm-5", window(200_000, 128_000)),
    ("glm-5-2", window(1_000_000, 128_000)),
    // Meta
    ("llama-2", window(4_096, 4_096)),
    ("llama2", window(4_096, 4_096)),
    ("llama-3", window(8_192, 8_192)),
    ("llama3", window(8_192, 8_192)),
    ("llama-3-1", window(131_072, 8_192)),
    ("llama3-1", window(131_072, 8_192)),
    ("llama-3-2", window(131_072, 8_192)),
    ("llama3-2", window(131_072, 8_192)),
    ("llama-3-3", window(131_072, 8_192)),
    ("llama3-3", window(131_072, 8_192)),
    ("llama-4", window(1_048_576, 16_384)),
    ("llama4", window(1_048_576, 16_384)),
    // Mistral
    ("mistral", window(131_072, 16_384)),
    ("mistral-7b", window(32_768, 8_192)),
    ("mistral-large-3", window(262_144, 16_384)),
    ("mistral-large-2512", window(262_144, 16_384)),
    ("mixtral-8x7b", window(32_768, 8_192)),
    ("mixtral-8x22b", window(65_536, 8_192)),
    ("ministral", window(131_072, 16_384)),
    ("magistral", window(131_072, 40_000)),
    ("codestral", window(256_000, 16_384)),
    ("devstral", window(131_072, 16_384)),
    ("devstral-2", window(262_144, 16_384)),
    ("devstral-2512", window(262_144, 16_384)),
    // xAI
    ("grok", window(131_072, 16_384)),
    ("grok-4", window(256_000, 64_000)),
    ("grok-4-fast", window(2_000_000, 30_000)),
    ("grok-4-1-fast", window(2_000_000, 30_000)),
    ("grok-4-3", window(1_000_000, 131_072)),
    ("grok-4-5", window(500_000, 131_072)),
    ("grok-4-20", window(1_000_000, 131_072)),
    ("grok-code-fast", window(256_000, 10_000)),
    // Others
    ("minimax-m1", window(1_000_000, 40_000)),
    ("minimax-m2", window(204_800, 131_072)),
    ("minimax-m3", window(500_000, 131_072)),
    ("command-r", window(128_000, 4_096)),
    ("command-a", window(256_000, 8_192)),
    ("nova-micro", window(128_000, 10_000)),
    ("nova-lite", window(300_000, 10_000)),
    ("nova-pro", window(300_000, 10_000)),
    ("nova-premier", window(1_000_000, 32_000)),
    ("phi-4", window(16_384, 16_384)),
];

#[cfg(test)]
mod tests;
