//! Errors of providers that say that a request is too long, and errors that say something else.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Overflow, overflow};

/// Provider, status, code or type, message, limit and size of the request (0 if not told).
type Sample = (&'static str, u16, &'static str, &'static str, u64, u64);

const OVERFLOWS: &[Sample] = &[
    (
        "anthropic",
        400,
        "invalid_request_error",
        "prompt is too long: 213462 tokens > 200000 maximum",
        200_000,
        213_462,
    ),
    (
        "anthropic, with the answer",
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
        200_000,
        190_000,
    ),
    (
        "openai",
        400,
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 10346 tokens. Please reduce the length of the messages.",
        8_192,
        10_346,
    ),
    (
        "openai, with the answer",
        400,
        "context_length_exceeded",
        "This model's maximum context length is 16385 tokens. However, you requested 17000 tokens (16000 in the messages, 1000 in the completion). Please reduce the length of the messages or completion.",
        16_385,
        16_000,
    ),
    (
        "openai, with tools",
        400,
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens (130500 in the messages, 572 in the functions). Please reduce the length of the messages or functions.",
        128_000,
        131_072,
    ),
    (
        "openai responses",
        400,
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        0,
        0,
    ),
    (
        "openai, configured",
        400,
        "invalid_request_error",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 290111 tokens. Please reduce the length of the messages.",
        272_000,
        290_111,
    ),
    (
        "llama.cpp",
        400,
        "exceed_context_size_error",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        0,
        0,
    ),
    (
        "llama.cpp, newer",
        400,
        "exceed_context_size_error",
        "request (12345 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4_096,
        12_345,
    ),
    (
        "llama.cpp, 500",
        500,
        "server_error",
        "Context size has been exceeded.",
        0,
        0,
    ),
    (
        "lm studio",
        400,
        "",
        "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
        0,
        0,
    ),
    (
        "lm studio, overflow",
        400,
        "",
        "Trying to keep the first 12057 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input",
        4_096,
        12_057,
    ),
    (
        "vllm",
        400,
        "BadRequestError",
        "This model's maximum context length is 32768 tokens. However, you requested 0 output tokens and your prompt contains at least 32769 input tokens, for a total of at least 32769 tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=32769)",
        32_768,
        32_769,
    ),
    (
        "vllm, with the answer",
        400,
        "BadRequestError",
        "This model's maximum context length is 262144 tokens. However, you requested 128000 output tokens and your prompt contains at least 134145 input tokens, for a total of at least 262145 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
        262_144,
        134_145,
    ),
    (
        "vllm, passed",
        400,
        "",
        "You passed 202753 input tokens and requested 0 output tokens. However, the model's context length is only 202752 tokens, resulting in a maximum input length of 202752 tokens.",
        202_752,
        202_753,
    ),
    (
        "vllm, decoder",
        400,
        "ValueError",
        "The decoder prompt (length 41000) is longer than the maximum model length of 40960. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        40_960,
        41_000,
    ),
    (
        "sglang",
        400,
        "",
        "The input (10000 tokens) is longer than the model's context length (8192 tokens).",
        8_192,
        10_000,
    ),
    (
        "sglang, total",
        400,
        "",
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 10000 tokens: 9000 tokens from the input messages and 1000 tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.",
        8_192,
        9_000,
    ),
    (
        "tgi",
        422,
        "validation",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3000 `inputs` tokens and 20 `max_new_tokens`",
        2_048,
        3_000,
    ),
    (
        "tgi, inputs",
        422,
        "validation",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 3000",
        1_024,
        3_000,
    ),
    (
        "ollama",
        400,
        "",
        "prompt too long; exceeded max context length by 4096 tokens",
        0,
        0,
    ),
    (
        "ollama, input",
        400,
        "",
        "the input length exceeds the context length",
        0,
        0,
    ),
    (
        "xai",
        400,
        "",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131_072,
        537_812,
    ),
    (
        "gemini",
        400,
        "INVALID_ARGUMENT",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        1_048_575,
        1_196_265,
    ),
    (
        "gemini, older",
        400,
        "INVALID_ARGUMENT",
        "The input token count exceeds the maximum number of tokens allowed 1048576.",
        1_048_576,
        0,
    ),
    (
        "vertex",
        400,
        "INVALID_ARGUMENT",
        "Unable to submit request because the input token count is 32825 but model only supports up to 32768. Reduce the input token count and try again.",
        32_768,
        32_825,
    ),
    (
        "groq",
        400,
        "context_length_exceeded",
        "Please reduce the length of the messages or completion.",
        0,
        0,
    ),
    (
        "groq, 413",
        413,
        "rate_limit_exceeded",
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_01` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 18432, please reduce your message size and try again.",
        12_000,
        18_432,
    ),
    (
        "kimi",
        400,
        "invalid_request_error",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        262_144,
        300_000,
    ),
    (
        "kimi, older",
        400,
        "invalid_request_error",
        "Your request exceeded model token limit: 8192",
        8_192,
        0,
    ),
    (
        "deepseek",
        400,
        "invalid_request_error",
        "This model's maximum context length is 65536 tokens. However, you requested 80001 tokens (72001 in the messages, 8000 in the completion). Please reduce the length of the messages or completion.",
        65_536,
        72_001,
    ),
    (
        "dashscope",
        400,
        "invalid_parameter_error",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        129_024,
        0,
    ),
    ("glm", 400, "1261", "Prompt exceeds max length", 0, 0),
    ("glm, chinese", 400, "1261", "Prompt 超长", 0, 0),
    ("chinese", 400, "", "输入的上下文长度超过模型最大限制", 0, 0),
    (
        "minimax",
        400,
        "bad_request_error",
        "invalid params, context window exceeds limit (2013)",
        0,
        0,
    ),
    (
        "mistral",
        400,
        "invalid_request_prompt",
        "Prompt contains 40277 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
        40_277,
    ),
    (
        "cohere",
        400,
        "",
        "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs. The limit for this model is 4081 tokens.",
        4_081,
        0,
    ),
    (
        "cohere, total",
        400,
        "",
        "total number of tokens in the prompt cannot exceed 4081 - received 5700. Try using a shorter prompt, or enable prompt truncating.",
        4_081,
        5_700,
    ),
    (
        "bedrock",
        400,
        "ValidationException",
        "Input is too long for requested model.",
        0,
        0,
    ),
    (
        "bedrock, stream",
        400,
        "ModelStreamErrorException",
        "The model returned the following errors: Input is too long for requested model",
        0,
        0,
    ),
    (
        "bedrock, titan",
        400,
        "ValidationException",
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 11400",
        8_192,
        11_400,
    ),
    (
        "bedrock, nova",
        400,
        "ValidationException",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
        0,
        0,
    ),
    (
        "copilot",
        400,
        "model_max_prompt_tokens_exceeded",
        "prompt token count of 391491 exceeds the limit of 128000",
        128_000,
        391_491,
    ),
    (
        "copilot, responses",
        400,
        "invalid_request_body",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        0,
        0,
    ),
    (
        "github models",
        413,
        "tokens_limit_reached",
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        8_000,
        0,
    ),
    (
        "litellm",
        400,
        "400",
        "litellm.ContextWindowExceededError: litellm.BadRequestError: Context Window exceeded for given call. No models have context window large enough for this call.",
        0,
        0,
    ),
    (
        "litellm, vllm",
        400,
        "400",
        "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: Hosted_vllmException - {\"error\":{\"message\":\"This model's maximum context length is 131072 tokens. However, your request has 199948 input tokens. Please reduce the length of the input messages.\",\"code\":400}}\nmodel=glm-4.7. context_window_fallbacks=None. fallbacks=None.\n\nSet 'context_window_fallback'",
        131_072,
        199_948,
    ),
    (
        "openrouter",
        400,
        "400",
        "This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
        32_768,
        42_832,
    ),
    (
        "openrouter, poolside",
        400,
        "",
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        131_040,
        131_393,
    ),
    (
        "together",
        422,
        "invalid_request_error",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9211 `inputs` tokens and 512 `max_new_tokens`",
        8_193,
        9_211,
    ),
    (
        "fireworks",
        400,
        "invalid_request_error",
        "The prompt is too long: 140001, model maximum context length: 131071",
        131_071,
        140_001,
    ),
    (
        "cerebras",
        400,
        "context_length_exceeded",
        "Please reduce the length of the messages or completion. Current length is 9011 while limit is 8192",
        8_192,
        9_011,
    ),
    (
        "cloudflare",
        413,
        "5021",
        "AiError: Ai: The estimated number of input and maximum output tokens (262334) exceeded this model context window limit (262144)",
        262_144,
        262_334,
    ),
    (
        "deepinfra",
        400,
        "",
        "Requested input length 40001 exceeds maximum input length 32768",
        32_768,
        40_001,
    ),
    (
        "watsonx",
        400,
        "invalid_input_argument",
        "the number of input tokens 5001 cannot exceed the total tokens limit 4096 for this model",
        4_096,
        5_001,
    ),
    (
        "volcengine",
        400,
        "InvalidParameter",
        "Total tokens of image and text exceed max message tokens. Request id: 0217500112233",
        0,
        0,
    ),
    (
        "ds4",
        400,
        "",
        "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
        131_072,
        300_000,
    ),
    ("z.ai", 400, "model_context_window_exceeded", "", 0, 0),
    (
        "ai21",
        422,
        "",
        "Prompt has too many tokens. The maximum is 262144.",
        262_144,
        0,
    ),
    (
        "perplexity",
        400,
        "bad_request",
        "The number of tokens in the input exceeds the maximum of 127072",
        127_072,
        0,
    ),
    (
        "snowflake",
        400,
        "",
        "The conversation is too long for this model: it has 140000 tokens of at most 131072.",
        131_072,
        140_000,
    ),
    (
        "llama-cpp-python",
        400,
        "",
        "Requested tokens (5001) exceed context window of 4096",
        4_096,
        5_001,
    ),
    (
        "tabbyapi",
        400,
        "",
        "Prompt length 5001 is greater than max_seq_len 4096",
        4_096,
        5_001,
    ),
    ("mlx", 400, "", "Prompt too long: 5001 > 4096", 4_096, 5_001),
    (
        "tensorrt-llm",
        500,
        "",
        "Prompt length (5001) exceeds maximum input length (4096). Set log level to info for the details.",
        4_096,
        5_001,
    ),
    (
        "lmdeploy",
        400,
        "input_too_long",
        "The input length 5001 exceeds the session_len 4096",
        4_096,
        5_001,
    ),
    ("baidu", 400, "336007", "prompt tokens too long", 0, 0),
    (
        "baidu, length",
        400,
        "336103",
        "Prompt length too long",
        0,
        0,
    ),
    (
        "hunyuan",
        400,
        "InvalidParameter",
        "input length too long",
        0,
        0,
    ),
    (
        "spark",
        400,
        "10907",
        "token 数量超过上限，对话历史加问题的字数太多",
        0,
        0,
    ),
    (
        "siliconflow",
        400,
        "20015",
        "length of prompt_tokens (40001) must be less than max_seq_len (32768).",
        32_768,
        40_001,
    ),
    (
        "stepfun",
        400,
        "",
        "The number of tokens in your messages exceeds the max context length",
        0,
        0,
    ),
    (
        "no noun",
        400,
        "",
        "maximum allowed tokens is 8192 but got 9001",
        8_192,
        9_001,
    ),
    (
        "request",
        400,
        "",
        "Request too large: 130001 input tokens, model limit 128000",
        128_000,
        130_001,
    ),
    (
        "supports",
        400,
        "",
        "This model supports at most 4096 tokens, your prompt has 5001 tokens",
        4_096,
        5_001,
    ),
    (
        "webui",
        400,
        "",
        "This model maximum context length is 2048 tokens. However, your messages is over 3001 tokens.",
        2_048,
        3_001,
    ),
    (
        "does not fit",
        400,
        "",
        "The conversation does not fit into the model's context (131072 tokens)",
        131_072,
        0,
    ),
    (
        "token budget",
        400,
        "",
        "Prompt of 150001 tokens surpasses the 131072-token window of this model",
        131_072,
        150_001,
    ),
    (
        "context full",
        400,
        "",
        "context is full: 8192/8192",
        8_192,
        0,
    ),
    (
        "a window in k",
        400,
        "",
        "Your prompt exceeds the model's 128k token limit",
        128_000,
        0,
    ),
    (
        "a long answer asked for",
        400,
        "",
        "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens (8000 in the messages, 32000 in the completion).",
        32_768,
        8_000,
    ),
    ("a limit of tokens", 400, "", "Token limit exceeded", 0, 0),
    (
        "a limit of the context",
        400,
        "",
        "Context limit reached",
        0,
        0,
    ),
    (
        "a limit of prompts",
        400,
        "",
        "Maximum prompt length is 8192",
        8_192,
        0,
    ),
    (
        "a request to shorten",
        400,
        "",
        "Please reduce the length of the messages.",
        0,
        0,
    ),
];

/// Status, code or type, and message of errors that a shorter request would not avoid.
const OTHERS: &[(u16, &str, &str)] = &[
    (
        400,
        "ThrottlingException",
        "Too many tokens, please wait before trying again.",
    ),
    (
        429,
        "rate_limit_exceeded",
        "Rate limit reached for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, Used 25000, Requested 8000. Please try again in 6s.",
    ),
    (
        400,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 80,000 input tokens per minute.",
    ),
    (
        400,
        "",
        "Number of request tokens has exceeded your daily rate limit (tokens per day)",
    ),
    (
        413,
        "rate_limit_exceeded",
        "Rate limit reached on tokens per minute (TPM): Limit 12000, Used 11000, Requested 2000. Please try again in 5s.",
    ),
    (
        400,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    (
        402,
        "402",
        "Prompt tokens limit exceeded: 12000 > 8000. To increase, visit the settings and add credits.",
    ),
    (
        400,
        "",
        "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens, but can only afford 1200.",
    ),
    (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the API.",
    ),
    (
        400,
        "invalid_value",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
    ),
    (
        400,
        "invalid_request_error",
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
    ),
    (
        400,
        "invalid_request_error",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
    ),
    (400, "", "Range of max_tokens should be [1, 8192]"),
    (
        422,
        "",
        "max_tokens: Input should be less than or equal to 8192",
    ),
    (
        422,
        "validation",
        "Input validation error: `max_new_tokens` must be <= 512. Given: 1000",
    ),
    (
        400,
        "invalid_request_error",
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    (
        400,
        "invalid_request_error",
        "thinking.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        400,
        "unsupported_parameter",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    ),
    (413, "request_too_large", "Request exceeds the maximum size"),
    (
        413,
        "request_too_large",
        "Request exceeds the maximum allowed number of bytes.",
    ),
    (413, "", "Payload Too Large"),
    (
        413,
        "",
        "<html><head><title>413 Request Entity Too Large</title></head></html>",
    ),
    (413, "", "request body too large: limit is 4194304 bytes"),
    (
        400,
        "invalid_request_error",
        "messages.3.content.0.image.source.base64: image exceeds 5 MB maximum: 5400000 bytes > 5242880 bytes",
    ),
    (
        400,
        "invalid_request_error",
        "messages.1.content.2.image.source: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels",
    ),
    (
        400,
        "invalid_request_error",
        "A maximum of 100 PDF pages may be provided.",
    ),
    (
        400,
        "string_above_max_length",
        "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64, but got a string with length 70 instead.",
    ),
    (
        400,
        "array_above_max_length",
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 130 instead.",
    ),
    (
        400,
        "array_above_max_length",
        "Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2049 instead.",
    ),
    (
        400,
        "invalid_request_error",
        "tools.0.custom.name: String should have at most 128 characters",
    ),
    (400, "", "Too many messages: exceeds the limit of 1000"),
    (
        400,
        "",
        "The number of stop sequences exceeds the maximum of 4",
    ),
    (
        400,
        "invalid_request_error",
        "temperature: must be less than or equal to 2",
    ),
    (
        400,
        "invalid_request_error",
        "messages: roles must alternate between \"user\" and \"assistant\"",
    ),
    (
        400,
        "invalid_request_error",
        "messages.5: `tool_use` ids were found without `tool_result` blocks immediately after",
    ),
    (
        400,
        "model_not_found",
        "The model `gpt-4-32768` does not exist",
    ),
    (
        400,
        "invalid_api_key",
        "Invalid token: the access token exceeded its lifetime",
    ),
    (500, "internal", "context deadline exceeded"),
    (500, "internal", "context canceled while reading the prompt"),
    (
        500,
        "server_error",
        "The server had an error while processing your request. Sorry about that!",
    ),
    (
        500,
        "server_error",
        "prompt template error: too few arguments",
    ),
    (
        400,
        "context_management",
        "context_management: Extra inputs are not permitted",
    ),
    (400, "", "请求过于频繁，超过频率限制，请稍后再试"),
    (400, "", "账户余额不足，token 额度超出"),
    (
        400,
        "content_filter",
        "The response was filtered due to the prompt triggering the content management policy.",
    ),
    (400, "", "Prompt must be at most 20000 characters"),
    (
        503,
        "",
        "The model is overloaded: too many tokens in the prompt queue",
    ),
    (404, "", "context length exceeded"),
    (
        401,
        "",
        "prompt is too long: 213462 tokens > 200000 maximum",
    ),
    (400, "", "messages[1].name exceeds maximum length of 64"),
    (400, "", "image in message exceeds size limit of 20 MB"),
    (400, "", "The total tokens used this month exceed your plan"),
];

/// The JSON shapes in which providers send an error.
fn shapes(code: &str, message: &str) -> Vec<Value> {
    let inner = json!({"error": {"message": message, "type": code, "code": code}});
    vec![
        json!({"type": "error", "error": {"type": code, "message": message}}),
        json!({"error": {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}}),
        json!({"error": message, "error_type": code}),
        json!({"detail": format!("{code}: {message}")}),
        json!({"object": "error", "message": message, "type": code, "param": null, "code": 400}),
        json!([{"error": {"code": 400, "message": message, "status": code}}]),
        json!({"message": format!("{code}: {message}")}),
        json!({"errors": [{"message": message, "code": code}], "success": false, "messages": []}),
        // Wrapped by a proxy, as text and as a member.
        json!({"error": {"message": format!("litellm.BadRequestError: OpenAIException - {inner}. Received Model Group=m\nAvailable Model Group Fallbacks=None"), "type": null, "param": null, "code": "400"}}),
        json!({"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": inner.to_string(), "provider_name": "P"}}, "user_id": "user_2x"}),
        // FastAPI echoes the request, which must not be read as part of the error.
        json!({"detail": [{"type": code, "loc": ["body"], "msg": message, "input": {"messages": [{"content": "prompt is too long: 99999 tokens > 11111 maximum"}]}}]}),
        // In an event of Responses.
        json!({"id": "resp_1", "status": "failed", "error": {"code": code, "message": message}, "usage": null}),
    ]
}

fn told(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

#[test]
fn every_wording_is_known_in_every_shape() {
    let mut wrong = Vec::new();
    for (provider, status, code, message, limit, size) in OVERFLOWS {
        let expected = Some(Overflow {
            limit: told(*limit),
            size: told(*size),
        });
        for body in shapes(code, message) {
            let found = overflow(*status, body.to_string().as_bytes());
            if found != expected {
                wrong.push(format!("{provider}: {found:?}: {body}"));
            }
        }
        let plain = overflow(*status, format!("{code}: {message}").as_bytes());
        if plain != expected {
            wrong.push(format!("{provider}, no JSON: {plain:?}: {message}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn other_errors_are_none_in_every_shape() {
    let mut wrong = Vec::new();
    for (status, code, message) in OTHERS {
        for body in shapes(code, message) {
            if let Some(found) = overflow(*status, body.to_string().as_bytes()) {
                wrong.push(format!("{found:?}: {body}"));
            }
        }
        if let Some(found) = overflow(*status, message.as_bytes()) {
            wrong.push(format!("{found:?}: {message}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// llama.cpp gives its numbers beside the message, in members of their own.
#[test]
fn numbers_may_stand_beside_the_message() {
    let body = json!({"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 12345, "n_ctx": 4096}});
    let expected = Overflow {
        limit: Some(4_096),
        size: Some(12_345),
    };
    assert_eq!(overflow(400, body.to_string().as_bytes()), Some(expected));
}

/// Writes a number in one of several styles that people and locales use.
fn written(number: u64, style: usize) -> String {
    let digits = number.to_string();
    let separator = ["", ",", "_", "\u{202f}", "."][style % 5];
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push_str(separator);
        }
        out.push(digit);
    }
    out
}

proptest! {
    /// The numbers are recognized whatever their size and style.
    #[test]
    fn the_numbers_are_read_whatever_they_are(
        row in 0..OVERFLOWS.len(),
        limit in 4_000u64..1_100_000,
        more in 1u64..900_000,
        style in 0usize..5,
        shape in 0usize..12,
    ) {
        let (provider, status, code, message, old_limit, old_asked) = OVERFLOWS[row];
        // "128k" is excluded, because it has a style of its own.
        prop_assume!(old_limit > 0 && old_asked > 0);
        let size = limit + more;
        let message = message
            .replace(&old_limit.to_string(), "<limit>")
            .replace(&old_asked.to_string(), "<asked>");
        prop_assume!(message.contains("<limit>") && message.contains("<asked>"));
        // So are messages with a third number of tokens, because a total would no longer add up.
        let mut numbers = message.split(|letter: char| !letter.is_ascii_digit());
        prop_assume!(numbers.all(|digits| digits.len() < 4));
        let message = message
            .replace("<limit>", &written(limit, style))
            .replace("<asked>", &written(size, style));
        let body = shapes(code, &message).swap_remove(shape).to_string();
        let expected = Overflow { limit: Some(limit), size: Some(size) };
        prop_assert_eq!(overflow(status, body.as_bytes()), Some(expected), "{}: {}", provider, body);
    }

    #[test]
    fn nothing_panics(body in "[ -~超过]{0,300}", status in 400u16..600) {
        let _ = overflow(status, body.as_bytes());
        let _ = overflow(status, json!({"error": {"message": body}}).to_string().as_bytes());
    }
}
