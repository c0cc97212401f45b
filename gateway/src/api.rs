//! The endpoints that are managed, and what is particular to each.

use contexture::formats::Format;
use serde_json::{Value, json};

/// A provider's API in front of which the gateway stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    OpenAi,
    Anthropic,
    /// The API that Codex uses with a ChatGPT login: OpenAI's Responses, at another address and with other credentials.
    ChatGpt,
}

impl Provider {
    /// The provider's address if the configuration names none.
    pub(crate) fn usual_address(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com",
            Self::Anthropic => "https://api.anthropic.com",
            Self::ChatGpt => "https://chatgpt.com/backend-api/codex",
        }
    }
}

/// An endpoint that carries conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Responses,
    Messages,
}

impl Api {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Chat => Format::OpenAiChat,
            Self::Responses => Format::OpenAiResponses,
            Self::Messages => Format::Anthropic,
        }
    }

    pub(crate) fn provider(self) -> Provider {
        match self {
            Self::Chat | Self::Responses => Provider::OpenAi,
            Self::Messages => Provider::Anthropic,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }

    /// An error in the words of the API.
    pub(crate) fn error(self, kind: &str, message: &str) -> Value {
        match self {
            Self::Messages => {
                json!({"type": "error", "error": {"type": kind, "message": message}})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
        }
    }

    /// What ends a stream that the gateway cannot go on with.
    pub(crate) fn stream_error(self, message: &str) -> Value {
        let kind = match self {
            Self::Responses => "server_error",
            Self::Chat | Self::Messages => "api_error",
        };
        self.error(kind, message)
    }
}
