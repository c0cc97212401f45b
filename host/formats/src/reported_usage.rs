//! Reads the usage that a provider reported, in any provider's spelling.
//!
//! Each figure is looked for under the names of OpenAI (chat and Responses), of Anthropic, of Google,
//! of the Vercel AI SDK, of Codex's logs and of the host. A provider that is compatible with one of
//! these needs nothing of its own.
//!
//! [`reported_usage`] is for programs that pass a usage on. Wrong figures would mislead the host's
//! decisions about the prompt cache, so it refuses them, and a usage without any known figure.
//! [`known_usage`] is for answers and logs, which nobody can correct: it takes what it understands.

use contexture_engine_api::Usage;
use serde_json::{Map, Value};

use super::error::FormatError;

/// The largest number of tokens, which is the largest whole number that JavaScript can hold.
const LARGEST: u64 = 1 << 53;

/// The names of each figure, in the order of precedence. `a/b` is the member `b` of the object `a`.
/// The first name that has a value counts.
const CACHE_READ: &[&str] = &[
    "cache_read_tokens",
    "cache_read_input_tokens",
    "cached_input_tokens",
    "prompt_tokens_details/cached_tokens",
    "input_tokens_details/cached_tokens",
    "inputTokenDetails/cacheReadTokens",
    "cachedInputTokens",
    "cachedContentTokenCount",
    "cached_content_token_count",
];
const CACHE_WRITE: &[&str] = &[
    "cache_write_tokens",
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "prompt_tokens_details/cache_write_tokens",
    "inputTokenDetails/cacheWriteTokens",
];
const INPUT: &[&str] = &[
    "prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_token_count",
];
const OUTPUT: &[&str] = &[
    "completion_tokens",
    "output_tokens",
    "outputTokens",
    "candidatesTokenCount",
    "candidates_token_count",
];
const REASONING: &[&str] = &[
    "reasoning_tokens",
    "reasoning_output_tokens",
    "completion_tokens_details/reasoning_tokens",
    "output_tokens_details/reasoning_tokens",
    "outputTokenDetails/reasoningTokens",
    "reasoningTokens",
    "thoughtsTokenCount",
    "thoughts_token_count",
];

/// Google counts these beside the input and the output.
const TOOL_USE: &[&str] = &["toolUsePromptTokenCount", "tool_use_prompt_token_count"];
const THOUGHTS: &[&str] = &["thoughtsTokenCount", "thoughts_token_count"];

/// Parses the usage of an answer. An empty object is a usage of zero.
///
/// # Errors
/// Fails if it is not an object, if a figure is not a number of tokens, or if it has no known
/// figure.
pub fn reported_usage(value: &Value) -> Result<Usage, FormatError> {
    let object = value
        .as_object()
        .ok_or_else(|| FormatError::Usage("it must be an object".to_owned()))?;
    match usage_of(object, figure_at)? {
        Some(usage) => Ok(usage),
        None if object.is_empty() => Ok(Usage::default()),
        None => Err(FormatError::Usage(
            "it has no known figure, such as `prompt_tokens` or `input_tokens`".to_owned(),
        )),
    }
}

/// Reads a usage as far as possible. A figure that is not a number of tokens counts as missing.
/// `None` if it has no known figure.
pub fn known_usage(value: &Value) -> Option<Usage> {
    let figure =
        |object: &Map<String, Value>, path: &str| Ok(figure_at(object, path).unwrap_or_default());
    usage_of(value.as_object()?, figure).ok().flatten()
}

/// Reads a usage, of which `figure` returns the figure at a name. `None` if it has no known figure.
fn usage_of(
    object: &Map<String, Value>,
    figure: impl Fn(&Map<String, Value>, &str) -> Result<Option<u64>, FormatError>,
) -> Result<Option<Usage>, FormatError> {
    let mut known = false;
    let mut first = |paths: &[&str]| -> Result<u64, FormatError> {
        let mut found = None;
        for path in paths {
            // All names are read, even after one is found, so that a wrong figure is always
            // reported.
            let figure = figure(object, path)?;
            known |= figure.is_some();
            found = found.or(figure);
        }
        Ok(found.unwrap_or(0))
    };
    let mut usage = Usage::default();
    usage.cache_read_tokens = first(CACHE_READ)?;
    usage.cache_write_tokens = first(CACHE_WRITE)?;
    usage.input_tokens = first(INPUT)? + first(TOOL_USE)?;
    usage.output_tokens = first(OUTPUT)? + first(THOUGHTS)?;
    usage.reasoning_tokens = first(REASONING)?;
    // Only Anthropic does not include the cached tokens in the input tokens. A gateway that speaks
    // OpenAI's format for it does, and passes Anthropic's own figures on.
    let is_figure = |name: &str| object.get(name).is_some_and(Value::is_number);
    let is_anthropics =
        is_figure("cache_read_input_tokens") || is_figure("cache_creation_input_tokens");
    if is_anthropics && !is_figure("prompt_tokens") {
        usage.input_tokens += usage.cache_read_tokens + usage.cache_write_tokens;
    }
    Ok(known.then_some(usage))
}

/// Returns the figure at `NAME` or `NAME/MEMBER`. `None` if it is null or missing. Fails if it is
/// not a whole number from 0 to 2^53.
fn figure_at(object: &Map<String, Value>, path: &str) -> Result<Option<u64>, FormatError> {
    let (name, member) = match path.split_once('/') {
        Some((name, member)) => (name, Some(member)),
        None => (path, None),
    };
    let value = match (object.get(name), member) {
        (None | Some(Value::Null), _) => return Ok(None),
        (Some(value), None) => value,
        (Some(Value::Object(details)), Some(member)) => match details.get(member) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        },
        (Some(_), Some(_)) => {
            return Err(FormatError::Usage(format!("`{name}` must be an object")));
        }
    };
    let number = value.as_u64().or_else(|| {
        // Some providers report whole numbers as floats, such as 12.0.
        let number = value.as_f64()?;
        (number >= 0.0 && number.fract() == 0.0 && number <= LARGEST as f64)
            .then_some(number as u64)
    });
    number
        .filter(|number| *number <= LARGEST)
        .map(Some)
        .ok_or_else(|| {
            let text: String = value.to_string().chars().take(40).collect();
            let path = path.replace('/', ".");
            FormatError::Usage(format!(
                "`{path}` must be a number of tokens from 0 to 2^53, not {text}"
            ))
        })
}

#[cfg(test)]
mod tests;
