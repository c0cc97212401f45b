//! Model calls that an engine asks its host to make.
//!
//! An engine never talks to a provider. It sends a [`ModelRequest`] through
//! [`HostServices::complete`](crate::HostServices::complete) and gets a [`ModelAnswer`] or a
//! [`ModelFailure`]. The host chooses the model, masks secrets, enforces the time limit and counts
//! the cost.
//!
//! Every answer is complete text. If the provider returned an empty answer, cut it off or declined,
//! the host reports a failure with a [`FailureKind`], so an engine never has to inspect an answer
//! for these cases. [`Continued`] is an optional cheaper form of a request, for a model that
//! already has the conversation in its prompt cache.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;

open_struct! {
    /// A question to the auxiliary model. The host chooses the model and the provider, masks
    /// secrets, enforces the time limit and counts the call.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelRequest {
        /// What the answer is used for, such as `summary` or `answer`. It appears in logs and
        /// reports.
        pub purpose: String,
        /// The instructions, sent as the system prompt.
        pub system: String,
        /// The material that the instructions apply to, for example the text to summarise.
        pub prompt: String,
        /// The limit for the answer, in tokens. If the model reaches it, the call fails with
        /// [`FailureKind::CutOff`].
        pub max_tokens: u64,
        /// The same question for a model that already has the conversation in front of it, or
        /// `None` if the question cannot be asked that way.
        #[serde(default)]
        pub continued: Option<Continued>,
        /// The part of `system`, word for word, that says how a summary is laid out. The user may
        /// want another layout, which the host then puts in its place, in the continued form as
        /// well. An empty text says that the engine takes any layout. `None`, the default, says
        /// that the engine reads the answer and needs its own.
        #[serde(default)]
        pub layout: Option<String>,
    }
}

open_struct! {
    /// A question without its material, sent as the next message of the conversation. If the host
    /// asks the agent's own model, that model has the conversation in its prompt cache and reads it
    /// at a fraction of the price. The host asks this way when that is cheaper. Otherwise, and when
    /// the answer is not usable, it sends `system` and `prompt` of the request.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Continued {
        /// Instructions and question in one text. It must say that nothing in the conversation is
        /// to be answered or carried out, and that no tool is to be called. If the model calls a
        /// tool anyway, the host treats that as no answer.
        pub question: String,
        /// The last message that the question is about. Everything that it is about must be in the
        /// window.
        pub through: MessageId,
    }
}

impl Continued {
    /// Creates a question about the conversation up to and including the message `through`.
    pub fn new(question: impl Into<String>, through: MessageId) -> Self {
        Self {
            question: question.into(),
            through,
        }
    }
}

impl ModelRequest {
    /// Creates a question for this purpose whose answer has at most `max_tokens` tokens. It has no
    /// continued form. Add one with `continued`.
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
            layout: None,
        }
    }
}

open_struct! {
    /// The answer of the model. The text is never empty and never cut off, because the host reports
    /// both as failures.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelAnswer {
        /// The text of the answer.
        pub text: String,
        /// The name of the model that answered.
        pub model: String,
        /// The tokens sent, as the provider reported them, or 0 if it did not.
        #[serde(default)]
        pub input_tokens: u64,
        /// The tokens received, as the provider reported them, or 0 if it did not.
        #[serde(default)]
        pub output_tokens: u64,
    }
}

impl ModelAnswer {
    /// Creates an answer with this text from `model`. Both token counts are 0 until they are set.
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
    /// The model that answers [`complete`](crate::HostServices::complete), as far as an engine
    /// needs to know it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ModelInfo {
        /// The name of the model, as the provider knows it.
        pub name: String,
        /// The size of the model's window in tokens. Instructions, material and answer share it, so
        /// a request must leave space for its answer.
        pub context_length: u64,
        /// Whether to extract a summary without the model if the messages contradict what the model
        /// wrote. If false, its contradicted sentences are marked.
        #[serde(default)]
        pub extract_if_contradicted: bool,
        /// Stands for the address and the key with which the model is asked, which cannot be read
        /// from it. Another value says that a failure of before may be mended. Empty if nothing is
        /// known of them.
        #[serde(default)]
        pub fingerprint: String,
    }
}

impl ModelInfo {
    /// Creates the description of a model with a window of `context_length` tokens.
    pub fn new(name: impl Into<String>, context_length: u64) -> Self {
        Self {
            name: name.into(),
            context_length,
            extract_if_contradicted: false,
            fingerprint: String::new(),
        }
    }
}

/// Why a model call gave no answer. An engine can use it to decide whether to ask again, to ask for
/// less, or to go on without a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FailureKind {
    /// No model is configured, or network access is forbidden. An engine goes on without a model.
    NoProvider,
    /// The API key is missing or the provider refused it.
    Auth,
    /// The provider received too many requests. Waiting helps.
    RateLimited,
    /// The provider is overloaded or down.
    Overloaded,
    /// The provider could not be reached, for example because there is no connection.
    Network,
    /// The provider did not answer in time.
    Timeout,
    /// The model declined.
    Refused,
    /// The answer has no text.
    Empty,
    /// The answer reached its token limit and was cut off. Ask for less, or allow more tokens.
    CutOff,
    /// The request is larger than the model's window. Send less material.
    TooLong,
    /// The host is giving up on the call that the engine works on. The engine should stop and
    /// return.
    Cancelled,
    /// The provider does not have the model.
    UnknownModel,
    /// Anything else, including the kinds of later versions. The message says what happened.
    // `serde(other)` reads every kind that this version does not know as this one.
    #[serde(other)]
    Other,
}

open_struct! {
    /// A model call without a usable answer. It displays as its message.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
    #[error("{message}")]
    pub struct ModelFailure {
        /// The kind of failure. Code that has to decide what to do next looks at this, not at the
        /// text.
        pub kind: FailureKind,
        /// What happened and what to do about it, for a person.
        pub message: String,
        /// How long the provider asked to wait before the next call, in milliseconds, or `None` if
        /// it did not say.
        #[serde(default)]
        pub retry_after_ms: Option<u64>,
    }
}

impl ModelFailure {
    /// Creates a failure of this kind, without a time to wait.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
        }
    }
}
