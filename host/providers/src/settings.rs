//! What the configuration and the agent say about models.
//!
//! These are the inputs of [`resolve`](super::resolve()), beside the section
//! `auxiliary.compression`. [`AgentModel`] describes the model that the agent itself uses. Both name a
//! [`Provider`], which has a usual model, an address and an environment variable for its key.
//!
//! Read [`ProviderChoice`] first: it is the setting that most users change, and its error suggests
//! a valid name. Keys are held in [`Secret`], which is never printed. Addresses are parsed and
//! checked in `endpoint`.

use contexture_base::suggest;
use std::fmt;
use std::str::FromStr;

use http::HeaderMap;

/// A service that answers model calls. Each has its own address, its own environment variable for a
/// key, and one of three request formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// OpenAI, or with a `base_url` any server that speaks its chat completions, such as Ollama,
    /// vLLM or LM Studio.
    OpenAi,
    /// Anthropic's messages API, which has a format of its own.
    Anthropic,
    /// Google's Gemini API, which has a format of its own. The model's name is part of its address.
    Google,
    /// OpenRouter, which passes calls on to many providers and speaks OpenAI's chat completions.
    OpenRouter,
    /// The inference API of Nous Research, which speaks OpenAI's chat completions.
    Nous,
}

impl Provider {
    /// Returns the provider's name in the configuration, in lower case. `Display` prints the same.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Google => "google",
            Self::OpenRouter => "openrouter",
            Self::Nous => "nous",
        }
    }

    /// Returns the model that writes summaries if the configuration names none, and its window in
    /// tokens. It is a small model that the provider maintains, or the provider's automatic choice.
    pub(crate) fn usual_model(self) -> (&'static str, u64) {
        match self {
            Self::OpenAi => ("gpt-5-mini", 400_000),
            Self::Anthropic => ("claude-haiku-4-5", 200_000),
            Self::Google => ("gemini-2.5-flash", 1_048_576),
            Self::OpenRouter => ("openrouter/auto", 128_000),
            Self::Nous => ("Hermes-4-70B", 131_072),
        }
    }

    /// Returns the name of the environment variable that holds the provider's key.
    pub(crate) fn key_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Google => "GEMINI_API_KEY",
            Self::OpenRouter => "OPENROUTER_API_KEY",
            Self::Nous => "NOUS_API_KEY",
        }
    }

    /// Returns the provider's own address, which is used if no `base_url` is given.
    pub(crate) fn default_base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Anthropic => "https://api.anthropic.com",
            Self::Google => "https://generativelanguage.googleapis.com",
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

/// The value of `auxiliary.compression.provider`: which provider answers the engines' model calls.
/// It is parsed from text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ProviderChoice {
    /// The agent's own provider if there is an agent. Otherwise no model answers, unless a
    /// `base_url` names an OpenAI-compatible server.
    #[default]
    Auto,
    /// The model and provider that the agent itself uses. It cannot be combined with a `base_url`.
    Main,
    /// No model, even if an agent is running. Summaries are the deterministic digest.
    None,
    /// This provider, whether or not the agent uses it. The agent's own model becomes the fallback.
    Named(Provider),
}

impl ProviderChoice {
    /// Every valid choice, in the order in which errors list them.
    pub const ALL: [Self; 8] = [
        Self::Auto,
        Self::Named(Provider::OpenAi),
        Self::Named(Provider::Anthropic),
        Self::Named(Provider::Google),
        Self::Named(Provider::OpenRouter),
        Self::Named(Provider::Nous),
        Self::Main,
        Self::None,
    ];

    /// Returns the name of the choice in the configuration, in lower case. `Display` prints the
    /// same.
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

    /// Parses a name from the configuration. Case and surrounding space are ignored.
    ///
    /// # Errors
    /// No choice has this name. The error suggests the most similar one.
    fn from_str(word: &str) -> Result<Self, ProviderError> {
        let wanted = word.trim().to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|choice| choice.name() == wanted)
            .ok_or_else(|| {
                let meant = nearest(&wanted).map(|choice| format!(" (did you mean `{choice}`?)"));
                ProviderError::Unusable(format!(
                    "`auxiliary.compression.provider: {word}` is not a provider{}; valid are auto, openai, anthropic, \
                     google, openrouter, nous, main and none (Ollama, vLLM, LM Studio and the like: `openai` with a \
                     `base_url`)",
                    meant.unwrap_or_default()
                ))
            })
    }
}

/// Returns the valid choice that a wrong name most likely means: a well-known alias such as
/// `claude`, `gemini` or `ollama`, or otherwise the most similar name.
fn nearest(word: &str) -> Option<ProviderChoice> {
    match word {
        "claude" => return Some(ProviderChoice::Named(Provider::Anthropic)),
        "gemini" | "vertex" => return Some(ProviderChoice::Named(Provider::Google)),
        "ollama" | "vllm" | "lmstudio" | "lm-studio" | "llama.cpp" | "local" | "custom" => {
            // All of these servers speak OpenAI's chat completions.
            return Some(ProviderChoice::Named(Provider::OpenAi));
        }
        "off" | "false" | "no" | "disabled" => return Some(ProviderChoice::None),
        // The names above are too different from the valid ones for the search below to find them.
        _ => {}
    }
    let name = suggest::nearest(word, ProviderChoice::ALL.map(ProviderChoice::name))?;
    ProviderChoice::ALL
        .into_iter()
        .find(|choice| choice.name() == name)
}

/// A configuration that cannot work. Each message names the setting and says how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The provider needs a key, and its environment variable is not set. [`resolve`](super::resolve())
    /// turns this into [`NoModel::MissingKey`](super::NoModel::MissingKey), because compacting
    /// without a model is better than not compacting.
    #[error(
        "{provider} needs a key: set {} in the environment, or set \
         `auxiliary.compression.provider: none` to do without a model",
        provider.key_variable()
    )]
    MissingKey {
        /// The provider that needs the key. The message names its environment variable.
        provider: Provider,
    },
    /// A setting, an address or a key is not valid, or two settings contradict each other.
    #[error("{0}")]
    Unusable(String),
}

/// The model that the agent itself uses: the one to which the gateway forwards, or the one that an
/// embedding program names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentModel {
    /// The model's name, as the agent sends it. May be empty if it is not known.
    pub name: String,
    /// Which provider answers the agent. An embedding program names the one whose format it speaks.
    pub provider: Provider,
    /// The address that the agent uses, if it is not the provider's own.
    pub base_url: Option<String>,
    /// The agent's credentials. If they are absent, the key is read from the provider's environment
    /// variable.
    pub credentials: Option<Credentials>,
    /// The model's window in tokens, if it is known. It is used when the agent's model also writes
    /// the summaries.
    pub context_length: Option<u64>,
}

/// The credentials for a provider. `Debug` never prints them, so a value that holds them can be
/// logged.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A key, which is sent in the header that the provider expects. Space around it was removed.
    Key(Secret),
    /// The headers of the agent's own requests. They hold its credentials in whatever form the
    /// provider accepts, together with headers that belong to them, such as API versions.
    Headers(HeaderMap),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(***)")
    }
}

/// A key. `Debug` prints three asterisks in its place, so that no log can reveal it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key. Surrounding space is removed, because a key that was read from a file often
    /// ends in a newline.
    pub fn new(key: &str) -> Self {
        Self(key.trim().to_owned())
    }

    /// Returns the key itself. Use it only to send the key, or to remove it from a text.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}
