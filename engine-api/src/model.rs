//! Model calls that an engine asks its host to make.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;

open_struct! {
    /// A question to the auxiliary model. The host chooses model and provider, masks secrets, keeps the
    /// time limit and counts the call.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelRequest {
        /// What it is for (`summary`, `answer`, …): named in logs and reports.
        pub purpose: String,
        /// Instructions.
        pub system: String,
        /// The material.
        pub prompt: String,
        /// The answer's limit, in tokens.
        pub max_tokens: u64,
        /// The same question, for a model that has the conversation before it.
        #[serde(default)]
        pub continued: Option<Continued>,
    }
}

open_struct! {
    /// A question without its material, put as the next message of the conversation. Where the agent's own model is
    /// the one that is asked, it has the conversation in its prompt cache and reads it there at a fraction of the price:
    /// the host then asks in this way where that is cheaper. Else, and where the answer is not usable, it sends the
    /// request's `system` and `prompt`.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Continued {
        /// Instructions and question in one. It says that nothing in the conversation is to be answered or carried out,
        /// and that no tool is to be called: a call counts as no answer.
        pub question: String,
        /// The last message that it is about. All that it is about has to be in the window.
        pub through: MessageId,
    }
}

impl Continued {
    /// This question about the conversation up to this message.
    pub fn new(question: impl Into<String>, through: MessageId) -> Self {
        Self {
            question: question.into(),
            through,
        }
    }
}

impl ModelRequest {
    /// A question for this purpose, with an answer of at most `max_tokens`.
    pub fn new(
        purpose: impl Into<String>,
        system: impl Into<String>,
        prompt: impl Into<String>,
        max_tokens: u64,
    ) -> Self {
        Self {
            purpose: purpose.into(),
            system: system.into(),
            prompt: prompt.into(),
            max_tokens,
            continued: None,
        }
    }
}

open_struct! {
    /// The model's answer: never empty, never cut off (those are failures).
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelAnswer {
        /// Its text.
        pub text: String,
        /// The model that gave it.
        pub model: String,
        /// Tokens sent, as reported; 0 where the provider did not say.
        #[serde(default)]
        pub input_tokens: u64,
        /// Tokens received, as reported; 0 where the provider did not say.
        #[serde(default)]
        pub output_tokens: u64,
    }
}

impl ModelAnswer {
    /// What `model` said.
    pub fn new(text: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            model: model.into(),
            input_tokens: 0,
            output_tokens: 0,
        }
    }
}

open_struct! {
    /// The model that answers `complete`, as far as an engine needs to know it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelInfo {
        /// Its name.
        pub name: String,
        /// Its whole window, in tokens: instructions, material and answer share it.
        pub context_length: u64,
    }
}

impl ModelInfo {
    /// A model with a window of so many tokens.
    pub fn new(name: impl Into<String>, context_length: u64) -> Self {
        Self {
            name: name.into(),
            context_length,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// No model is configured, or the network is forbidden.
    NoProvider,
    /// The key is missing or was refused.
    Auth,
    /// Too many requests.
    RateLimited,
    /// The provider is overloaded or down.
    Overloaded,
    /// No connection.
    Network,
    /// No answer in time.
    Timeout,
    /// The model declined.
    Refused,
    /// An answer without text.
    Empty,
    /// The answer hit its token limit.
    CutOff,
    /// The request is larger than the model's window.
    TooLong,
    /// The host is abandoning the call.
    Cancelled,
    /// The model does not exist there.
    UnknownModel,
    /// Anything else, kinds of later versions included; the message says what.
    #[serde(other)]
    Other,
}

open_struct! {
    /// A model call that gave nothing usable.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
    #[error("{message}")]
    pub struct ModelFailure {
        /// The kind, on which a caller decides.
        pub kind: FailureKind,
        /// What happened and what to do, for a person.
        pub message: String,
        /// How long the provider asked to wait, in milliseconds.
        #[serde(default)]
        pub retry_after_ms: Option<u64>,
    }
}

impl ModelFailure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
        }
    }
}
