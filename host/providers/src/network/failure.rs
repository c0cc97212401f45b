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
        "model_not_found", "model not found", "not a valid model", "unknown model", "invalid model",
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
            "unsupported", "not supported", "unrecognized", "unknown", "not permitted",
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
mod tests;
