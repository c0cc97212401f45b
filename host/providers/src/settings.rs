//! What the configuration and the agent say about models.

use contexture_base::suggest;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::resolve::ProviderError;

/// A service that answers model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// OpenAI, or with a `base_url` any server that speaks its chat completions (Ollama, vLLM, LM Studio).
    OpenAi,
    /// Anthropic's messages API.
    Anthropic,
    /// OpenRouter.
    OpenRouter,
    /// Nous Research's inference API.
    Nous,
}

impl Provider {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::OpenRouter => "openrouter",
            Self::Nous => "nous",
        }
    }

    /// The model that writes summaries if none is named, and its window in tokens. It is a small model that the
    /// provider maintains, or the provider's automatic choice.
    pub(crate) fn usual_model(self) -> (&'static str, u64) {
        match self {
            Self::OpenAi => ("gpt-5-mini", 400_000),
            Self::Anthropic => ("claude-haiku-4-5", 200_000),
            Self::OpenRouter => ("openrouter/auto", 128_000),
            Self::Nous => ("Hermes-4-70B", 131_072),
        }
    }

    /// The environment variable that holds its key.
    pub(crate) fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenRouter => "OPENROUTER_API_KEY",
            Self::Nous => "NOUS_API_KEY",
        }
    }

    /// Its own address, used where no `base_url` is given.
    pub(crate) fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::Nous => "https://inference-api.nousresearch.com/v1",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The value of `auxiliary.compression.provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProviderChoice {
    /// The agent's own provider where there is an agent, none otherwise.
    #[default]
    Auto,
    /// The model and provider that the agent itself uses.
    Main,
    /// No model: summaries are the deterministic digest.
    None,
    /// This provider.
    Named(Provider),
}

impl ProviderChoice {
    /// Every valid choice, in the order in which errors list them.
    pub const ALL: [Self; 7] = [
        Self::Auto,
        Self::Named(Provider::OpenAi),
        Self::Named(Provider::Anthropic),
        Self::Named(Provider::OpenRouter),
        Self::Named(Provider::Nous),
        Self::Main,
        Self::None,
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Main => "main",
            Self::None => "none",
            Self::Named(provider) => provider.name(),
        }
    }
}

impl fmt::Display for ProviderChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProviderChoice {
    type Err = ProviderError;

    /// Parses the name in the configuration, ignoring case and surrounding space.
    fn from_str(word: &str) -> Result<Self, ProviderError> {
        let wanted = word.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|choice| choice.name() == wanted)
            .ok_or_else(|| ProviderError::UnknownProvider {
                word: word.to_owned(),
                nearest: nearest(&wanted),
            })
    }
}

impl TryFrom<String> for ProviderChoice {
    type Error = ProviderError;

    fn try_from(word: String) -> Result<Self, ProviderError> {
        word.parse()
    }
}

impl From<ProviderChoice> for String {
    fn from(choice: ProviderChoice) -> Self {
        choice.name().to_owned()
    }
}

/// The valid choice most similar to a wrong name.
fn nearest(word: &str) -> Option<ProviderChoice> {
    match word {
        "claude" => return Some(ProviderChoice::Named(Provider::Anthropic)),
        "ollama" | "vllm" | "lmstudio" | "lm-studio" | "llama.cpp" | "local" | "custom" => {
            return Some(ProviderChoice::Named(Provider::OpenAi));
        }
        "off" | "false" | "no" | "disabled" => return Some(ProviderChoice::None),
        _ => {}
    }
    let name = suggest::nearest(word, ProviderChoice::ALL.map(ProviderChoice::name))?;
    ProviderChoice::ALL
        .into_iter()
        .find(|choice| choice.name() == name)
}

/// The settings under `auxiliary.compression`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// The model's name there; the agent's own where it is not given and the provider is the agent's.
    pub model: Option<String>,
    /// Who answers.
    pub provider: ProviderChoice,
    /// Another address for the provider's API. An address alone (`provider: auto`) means an
    /// OpenAI-compatible server.
    pub base_url: Option<String>,
    /// The model's window, in tokens.
    pub context_length: Option<u64>,
    /// The time limit of one request; a call with its retries and pauses has twice as long.
    pub timeout: Duration,
}

impl Default for ModelSettings {
    /// `auto`, with 60 s for a request and 120 s for a call.
    fn default() -> Self {
        Self {
            model: None,
            provider: ProviderChoice::Auto,
            base_url: None,
            context_length: None,
            timeout: Duration::from_secs(60),
        }
    }
}

/// The model that the agent itself uses: what the gateway forwards to, or what an embedding program says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentModel {
    /// The model's name.
    pub name: String,
    /// Who answers it.
    pub provider: Provider,
    /// The address it uses, where that is not the provider's own.
    pub base_url: Option<String>,
    /// What it is let in with; the key in the provider's environment variable where it is not given.
    pub credentials: Option<Credentials>,
    /// Its window, in tokens.
    pub context_length: Option<u64>,
}

/// What a provider lets a caller in with.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A key.
    Key(Secret),
    /// The headers of the agent's own requests: its credentials in whatever form they have, and all that belongs to them
    /// (versions, features of the API).
    Headers(HeaderMap),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// A key. It is never printed: `Debug` shows three asterisks.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a key; surrounding space (a newline read from a file, say) is not part of it.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
