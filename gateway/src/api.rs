//! The APIs of the providers that the gateway manages, and what is particular to each.
//!
//! [`Api`] is an endpoint that carries conversations, with its wire format and its form of errors.
//! [`Provider`] is a service with an address and credentials. OpenAI has two of the APIs, and
//! ChatGPT has one of them at another address. Which one a request is for is decided by
//! [`endpoint`](crate::endpoint).

use contexture::config;
use contexture::formats::Format;
use http::StatusCode;
use serde_json::{Value, json};

/// A service that the gateway stands in front of. Each one has its own address and key in the
/// configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's API. Its base URL may end with a version, as OpenAI's SDK expects.
    OpenAi,
    /// Anthropic's API. Its base URL is usually without a version, as Anthropic's SDK expects.
    Anthropic,
    /// The service that Codex uses with a ChatGPT login: OpenAI's Responses API, at another address
    /// and with other credentials.
    ChatGpt,
    /// Google's Gemini API, and the same on Vertex AI. Its base URL is usually without a version, as
    /// Google's SDK expects.
    Google,
}

impl Provider {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::ChatGpt, Self::Google];

    /// The provider's name, as in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::ChatGpt => "chatgpt",
            Self::Google => "google",
        }
    }

    /// The provider's section of the configuration.
    pub fn section(self, upstream: &config::Upstream) -> &config::Provider {
        match self {
            Self::OpenAi => &upstream.openai,
            Self::Anthropic => &upstream.anthropic,
            Self::ChatGpt => &upstream.chatgpt,
            Self::Google => &upstream.google,
        }
    }

    /// The provider's usual base URL, if the configuration names none.
    pub(crate) fn usual_address(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com",
            Self::Anthropic => "https://api.anthropic.com",
            Self::ChatGpt => "https://chatgpt.com/backend-api/codex",
            Self::Google => "https://generativelanguage.googleapis.com",
        }
    }
}

/// An endpoint that carries conversations, named after the last part of its path. Gemini's last part
/// names the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Responses,
    Messages,
    Gemini,
}

impl Api {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Chat => Format::OpenAiChat,
            Self::Responses => Format::OpenAiResponses,
            Self::Messages => Format::Anthropic,
            Self::Gemini => Format::Gemini,
        }
    }

    /// Whether a JSON body is an answer. Some providers send an error with a status of success.
    pub(crate) fn is_answer(self, body: &Value) -> bool {
        let content = match self {
            Self::Chat => "choices",
            Self::Responses => "output",
            Self::Messages => "content",
            Self::Gemini => "candidates",
        };
        // Without events, a stream of Gemini is a list of responses.
        let list = body.as_array().filter(|_| self == Self::Gemini);
        let all = list.map_or(std::slice::from_ref(body), Vec::as_slice);
        let has_error = all.iter().any(|one| !one["error"].is_null());
        !has_error && all.iter().any(|one| one[content].is_array())
    }

    /// The provider that usually serves it. ChatGPT's variant of Responses is recognized by the
    /// request.
    pub(crate) fn provider(self) -> Provider {
        match self {
            Self::Chat | Self::Responses => Provider::OpenAi,
            Self::Messages => Provider::Anthropic,
            Self::Gemini => Provider::Google,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Gemini => "gemini",
        }
    }

    /// An error in the format of the API, so that SDKs show its message. Its type follows from the
    /// status.
    pub(crate) fn error(self, status: StatusCode, message: &str) -> Value {
        self.error_of_type(status, error_type(status), message)
    }

    fn error_of_type(self, status: StatusCode, kind: &str, message: &str) -> Value {
        match self {
            // Google's errors have a name for the status instead of a type.
            Self::Gemini => {
                let (code, status) = (status.as_u16(), google_status(status));
                json!({"error": {"code": code, "message": message, "status": status}})
            }
            Self::Messages => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
        }
    }

    /// The error that ends a stream which the gateway cannot continue.
    pub(crate) fn stream_error(self, message: &str) -> Value {
        let kind = match self {
            // Responses has this code for failures of the server.
            Self::Responses => "server_error",
            Self::Chat | Self::Messages | Self::Gemini => "api_error",
        };
        self.error_of_type(StatusCode::INTERNAL_SERVER_ERROR, kind, message)
    }
}

/// The type of an error with this HTTP status, as Anthropic and OpenAI name it.
fn error_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}

/// Google's name for an HTTP status, as its errors have it.
fn google_status(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "DEADLINE_EXCEEDED",
        status if status.is_client_error() => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    }
}
