//! What a provider reported, in any provider's spelling.

use contexture_engine_api::Usage;
use serde_json::Value;

/// The usage of an answer: OpenAI's (chat and Responses), Anthropic's, or the host's own names.
pub(crate) fn of(value: &Value) -> Usage {
    let at = |path: &str| value.pointer(path).and_then(Value::as_u64);
    let first = |paths: &[&str]| paths.iter().find_map(|path| at(path)).unwrap_or(0);
    let mut usage = Usage::default();
    usage.cache_read_tokens = first(&[
        "/cache_read_tokens",
        "/cache_read_input_tokens",
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
    ]);
    usage.cache_write_tokens = first(&["/cache_write_tokens", "/cache_creation_input_tokens"]);
    usage.input_tokens = first(&["/prompt_tokens", "/input_tokens"]);
    // Anthropic alone counts what the cache has beside the rest.
    if at("/cache_read_input_tokens")
        .or(at("/cache_creation_input_tokens"))
        .is_some()
    {
        usage.input_tokens += usage.cache_read_tokens + usage.cache_write_tokens;
    }
    usage.output_tokens = first(&["/completion_tokens", "/output_tokens"]);
    usage.reasoning_tokens = first(&[
        "/reasoning_tokens",
        "/completion_tokens_details/reasoning_tokens",
        "/output_tokens_details/reasoning_tokens",
    ]);
    usage
}
