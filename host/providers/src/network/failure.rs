//! Decides what went wrong in one request, and whether a retry may help.
//!
//! Providers report the same problem with different statuses and words. This module reads all of
//! them into one [`FailureKind`], writes a message that says what happened and what to do, and
//! chooses a [`Remedy`].
//!
//! [`Fault`] is the type to read first. It is made from a broken connection, from a response with
//! an error, or from an answer that is unusable. The kind of an error follows from its status. The
//! text decides only if the status is ambiguous, because servers echo words of the conversation in
//! their errors.
//!
//! Texts of a server are quoted by [`quote`], which removes the key and other secrets. The retries
//! themselves are left to `call`.

use std::borrow::Cow;

use contexture_engine_api::{FailureKind, ModelFailure};
use serde_json::Value;

use super::openai::LimitField;
use super::reply::Unusable;
use crate::endpoint::{ApiFormat, Endpoint};
use crate::question::Mask;

/// The longest quote of a server's text in a message, in characters.
const QUOTED_CHARS: usize = 300;
/// How much of a server's text is read, in bytes. No error needs more, and masking secrets in more
/// would be wasted work.
const READ_BYTES: usize = 8 * 1024;

/// A request that failed: the failure to report, and what may be tried before that.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) failure: ModelFailure,
    pub(super) remedy: Remedy,
}

/// What may be tried after a [`Fault`]. It says only what could help: how often it is tried is left
/// to the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing. The same request would fail again, such as after a rejected key.
    None,
    /// The same request after a pause, because the server or the network may recover.
    Pause,
    /// The same request at once, with the answer limit in the other field. The server has said that
    /// it does not know this one.
    OtherLimitField,
}

/// A response that reports an error instead of an answer. Status 0 stands for an error inside a
/// response of status 200.
pub(super) struct Rejection<'a> {
    pub(super) status: u16,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) body: &'a str,
}

impl Fault {
    /// Creates a fault whose message names the endpoint and ends in advice for its kind. The remedy
    /// is a pause if the kind is transient.
    pub(super) fn new(endpoint: &Endpoint, kind: FailureKind, what: &str) -> Self {
        let remedy = match kind {
            FailureKind::RateLimited | FailureKind::Overloaded | FailureKind::Network => {
                Remedy::Pause
            }
            _ => Remedy::None,
        };
        let advice = advice(kind, endpoint);
        let failure = ModelFailure::new(kind, format!("{endpoint}: {what}{advice}"));
        Self { failure, remedy }
    }

    /// Returns the fault for a request that ended without a response, or in the middle of one.
    pub(super) fn from_transport(endpoint: &Endpoint, error: &reqwest::Error) -> Self {
        // A connection that takes too long to open means that the server is unreachable, not that
        // the model is slow.
        if error.is_timeout() && !error.is_connect() {
            return Self::new(endpoint, FailureKind::Timeout, "no answer in time");
        }
        // The innermost error names the cause. The outer ones only name the layers of the HTTP
        // library.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let what = if error.is_connect() {
            "no connection"
        } else {
            "the connection broke"
        };
        Self::new(
            endpoint,
            FailureKind::Network,
            &format!("{what} ({})", endpoint.without_key(&cause.to_string())),
        )
    }

    /// Returns the fault for an answer that is complete but unusable. Only a break on the
    /// provider's side is tried again.
    pub(super) fn from_unusable(endpoint: &Endpoint, unusable: &Unusable, mask: Mask) -> Self {
        Self::new(
            endpoint,
            unusable.kind,
            &quote(endpoint, &unusable.what, mask),
        )
    }

    /// Returns the fault for a response with an error, judged by its status and text.
    pub(super) fn from_rejection(
        endpoint: &Endpoint,
        rejection: &Rejection<'_>,
        limit: LimitField,
        mask: Mask,
    ) -> Self {
        let said = ErrorText::read(rejection.body);
        let words = said.words();
        let kind = kind(rejection.status, &words);
        let mut what = match rejection.status {
            0 => "the server reports an error".to_owned(),
            status => format!("HTTP {status}"),
        };
        let quoted = quote(endpoint, &said.message, mask);
        if !quoted.is_empty() {
            what.push_str(", \"");
            what.push_str(&quoted);
            what.push('"');
        }
        let mut fault = Self::new(endpoint, kind, &what);
        fault.failure.retry_after_ms = rejection.retry_after_ms;
        if words.contains("insufficient_quota") {
            // The account has no credit left, so waiting does not help.
            fault.remedy = Remedy::None;
        } else if endpoint.api_format() == ApiFormat::OpenAi
            && matches!(rejection.status, 400 | 422)
            && refuses_field(&words, limit)
        {
            fault.remedy = Remedy::OtherLimitField;
        }
        fault
    }
}

/// The error text of a response body. It is found in OpenAI's and Anthropic's `error` object,
/// Ollama's `error` string, vLLM's top-level `message` or FastAPI's `detail`. If none of these
/// exists, it is the whole body.
struct ErrorText {
    message: String,
    codes: String,
}

impl ErrorText {
    /// Finds the error text in a body, which may be JSON, HTML or empty.
    fn read(body: &str) -> Self {
        let Ok(json) = serde_json::from_str::<Value>(body) else {
            return Self {
                message: body.to_owned(),
                codes: String::new(),
            };
        };
        // Some servers wrap the object in a list of one.
        let json = json.get(0).unwrap_or(&json);
        let error = match &json["error"] {
            Value::Null => json,
            error => error,
        };
        let message = [error, &error["message"], &json["message"], &json["detail"]]
            .into_iter()
            .find_map(Value::as_str)
            .map_or_else(|| error.to_string(), str::to_owned);
        let codes: Vec<&str> = ["code", "type"]
            .into_iter()
            .filter_map(|field| error[field].as_str())
            .collect();
        Self {
            message,
            codes: codes.join(" "),
        }
    }

    /// Returns codes and message in lower case, for searching. A long message is cut at
    /// [`READ_BYTES`].
    fn words(&self) -> String {
        format!("{} {}", self.codes, start(&self.message, READ_BYTES)).to_lowercase()
    }
}

/// Returns the kind of a rejection. The text is searched only if the status is ambiguous. Status 0
/// stands for an error inside a response of status 200.
fn kind(status: u16, words: &str) -> FailureKind {
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| words.contains(phrase));
    let unknown_model = says(&[
        "model_not_found",
        "model not found",
        "not a valid model",
        "unknown model",
        "invalid model",
    ]) || says(&["model"]) && says(&["does not exist", "not found"]);
    if matches!(status, 0 | 400 | 404 | 413 | 422) {
        if says(TOO_LONG) {
            return FailureKind::TooLong;
        }
        if unknown_model {
            return FailureKind::UnknownModel;
        }
        if says(&[
            "content_filter",
            "content_policy",
            "content management policy",
        ]) {
            return FailureKind::Refused;
        }
        // Anthropic reports an empty account with status 400.
        if says(&["credit balance is too low"]) {
            return FailureKind::Auth;
        }
    }
    match status {
        403 if says(&["model_not_found"]) => FailureKind::UnknownModel,
        // OpenRouter reports moderated input like this.
        403 if says(&["moderation", "flagged"]) => FailureKind::Refused,
        // 402 means that the account has no credit. Like a rejected key, only the user can fix
        // that.
        401..=403 => FailureKind::Auth,
        404 => FailureKind::UnknownModel,
        408 => FailureKind::Timeout,
        413 => FailureKind::TooLong,
        429 => FailureKind::RateLimited,
        500..=599 => FailureKind::Overloaded,
        _ => FailureKind::Other,
    }
}

/// Phrases by which servers say that a request exceeds the model's window, in lower case. Each is
/// from a known server.
const TOO_LONG: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "available context size",
    "context length of only",
    "exceed context limit",
    "context window",
    "prompt is too long",
    "input is too long",
    "reduce the length",
];

/// Whether a server's text says that it does not know the field that limits the answer. A complaint
/// about the value of the field does not count.
fn refuses_field(words: &str, limit: LimitField) -> bool {
    words.contains(limit.name())
        && [
            "unsupported",
            "not supported",
            "unrecognized",
            "unknown",
            "not permitted",
        ]
        .iter()
        .any(|phrase| words.contains(phrase))
}

/// Returns what the user can do about a failure, as the end of a sentence. Empty if there is
/// nothing to say.
fn advice(kind: FailureKind, endpoint: &Endpoint) -> Cow<'static, str> {
    match kind {
        FailureKind::Auth => match endpoint.key_source() {
            Some(source) => {
                format!("; {} did not accept {source}", endpoint.provider()).into()
            }
            None => format!(
                "; no key was sent: set {} in the environment",
                endpoint.provider().key_variable()
            )
            .into(),
        },
        FailureKind::UnknownModel => {
            "; check `auxiliary.compression.model`, and `base_url` if one is set (an OpenAI-compatible one \
             usually ends in /v1)"
                .into()
        }
        FailureKind::TooLong => "; the request is larger than the model's window".into(),
        FailureKind::Timeout => {
            "; raise `auxiliary.compression.timeout_ms` if the model is slow".into()
        }
        FailureKind::Network => "; check that the server is running and that `base_url` is right".into(),
        _ => "".into(),
    }
}

/// Prepares a server's text for a message: one line of limited length, without the key and other
/// secrets.
pub(super) fn quote(endpoint: &Endpoint, text: &str, mask: Mask) -> String {
    // Before the text is cut: otherwise a part of the key could remain at the end.
    let text = endpoint.without_key(text);
    let masked = mask(start(&text, READ_BYTES));
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Returns the first `bytes` of a text, or up to three fewer if that would split a character.
fn start(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::settings::{Credentials, Provider, Secret};

    const KEY: &str = "sk-abcdefghijklmnopqrstuvwxyz";

    fn endpoint() -> Endpoint {
        Endpoint::new(
            Provider::OpenAi,
            None,
            "m",
            Some(&Credentials::Key(Secret::new(KEY))),
            &|_| None,
        )
        .unwrap()
    }

    fn fault(status: u16, body: &str) -> Fault {
        let rejection = Rejection {
            status,
            retry_after_ms: None,
            body,
        };
        Fault::from_rejection(&endpoint(), &rejection, LimitField::MaxTokens, |text| {
            text.into()
        })
    }

    #[test]
    fn every_dialect_of_refusal_is_understood() {
        use FailureKind::*;
        for (status, body, kind) in [
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
                Auth,
            ),
            (
                403,
                r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#,
                Auth,
            ),
            (
                402,
                r#"{"error":{"message":"Insufficient credits","code":402}}"#,
                Auth,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Auth,
            ),
            (
                403,
                r#"{"error":{"code":"model_not_found","message":"Project has no access to model x"}}"#,
                UnknownModel,
            ),
            (
                403,
                r#"{"error":{"message":"requires moderation, your input was flagged","code":403}}"#,
                Refused,
            ),
            (
                404,
                r#"{"error":"model \"x\" not found, try pulling it first"}"#,
                UnknownModel,
            ),
            (
                404,
                r#"{"object":"error","message":"The model `x` does not exist.","code":404}"#,
                UnknownModel,
            ),
            (404, "<html>404</html>", UnknownModel),
            (
                400,
                r#"{"error":{"message":"x is not a valid model ID","code":400}}"#,
                UnknownModel,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds the available context size"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":"Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens"}"#,
                TooLong,
            ),
            (
                400,
                r#"{"detail":"Input length and max_tokens exceed context limit"}"#,
                TooLong,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#,
                TooLong,
            ),
            (
                400,
                r#"{"error":{"code":"content_filter","message":"filtered"}}"#,
                Refused,
            ),
            (429, r#"{"error":{"message":"slow down"}}"#, RateLimited),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Overloaded,
            ),
            (503, "", Overloaded),
            (408, "", Timeout),
            (
                400,
                r#"{"error":{"message":"temperature must be at most 2"}}"#,
                Other,
            ),
            (418, "[]", Other),
            // Words of the conversation that a server echoes do not override a clear status.
            (401, r#"{"error":{"message":"prompt is too long"}}"#, Auth),
            (
                500,
                r#"{"error":{"message":"prompt is too long"}}"#,
                Overloaded,
            ),
        ] {
            let failure = fault(status, body).failure;
            assert_eq!(failure.kind, kind, "{status} {body}: {failure}");
        }
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        for status in [429, 500, 503, 529] {
            assert_eq!(fault(status, "").remedy, Remedy::Pause);
        }
        for status in [400, 401, 403, 404, 408, 413] {
            assert_eq!(fault(status, "").remedy, Remedy::None);
        }
        let quota =
            r#"{"error":{"code":"insufficient_quota","message":"You exceeded your quota"}}"#;
        assert_eq!(fault(429, quota).remedy, Remedy::None);
        let field = r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."}}"#;
        assert_eq!(fault(400, field).remedy, Remedy::OtherLimitField);
        let size = r#"{"error":{"message":"max_tokens is too large: 100000"}}"#;
        assert_eq!(fault(400, size).remedy, Remedy::None);
    }

    #[test]
    fn an_auth_failure_names_provider_and_variable() {
        let with = |key: Option<&str>| {
            let env = |_: &str| key.map(str::to_owned);
            let endpoint =
                Endpoint::new(Provider::OpenAi, Some("http://h/v1"), "m", None, &env).unwrap();
            Fault::new(&endpoint, FailureKind::Auth, "HTTP 401")
                .failure
                .message
        };
        assert!(with(Some("k")).contains("openai did not accept OPENAI_API_KEY"));
        assert!(with(None).contains("set OPENAI_API_KEY"));
    }

    proptest! {
        #[test]
        fn no_body_breaks_a_message_or_leaks_the_key(
            status in 0u16..700,
            before in ".{0,400}",
            after in "\\PC*",
        ) {
            for body in [
                format!("{before}{KEY}{after}"),
                serde_json::json!({ "error": { "message": format!("{before}{KEY}{after}") } }).to_string(),
                serde_json::json!({ "x": [before, KEY] }).to_string(),
            ] {
                let message = fault(status, &body).failure.message;
                prop_assert!(!message.contains(KEY));
                prop_assert!(!message.contains('\n'));
                prop_assert!(message.chars().count() < QUOTED_CHARS + 400);
            }
        }
    }
}
