//! Which model answers, decided without touching the network.

use super::endpoint::Endpoint;
use super::settings::{AgentModel, ModelSettings, Provider, ProviderChoice};

/// Who answers an engine's model calls.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// This model does.
    Model {
        /// The model that is asked.
        endpoint: Box<Endpoint>,
        /// The agent's own model, asked when the first does not exist; never the same one.
        fallback: Option<Box<Endpoint>>,
    },
    /// No model: summaries are the deterministic digest.
    NoModel(NoModel),
}

/// Why no model answers. None of these is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    /// The configuration says so.
    #[error("no model: `auxiliary.compression.provider` is `none`")]
    Configured,
    /// The network is forbidden.
    #[error("no model: `--offline` forbids every model call")]
    Offline,
    /// The library was built without the feature `network`.
    #[error("no model: this build has no network; build contexture with its feature `network`")]
    NoNetwork,
    /// The configuration follows the agent, and there is none here.
    #[error(
        "no model: `auxiliary.compression.provider: {0}` follows the agent's model, and no agent is \
         running here; name a provider to use one"
    )]
    NoAgent(ProviderChoice),
    /// The provider needs a key and the environment holds none.
    #[error(
        "{0} has no key, so no model writes summaries and they are a digest: set {variable} in the \
         environment, or `auxiliary.compression.provider: none` to do without a model",
        variable = .0.key_variable()
    )]
    MissingKey(Provider),
}

impl NoModel {
    /// Whether a model was asked for, so that a person should hear that there is none.
    pub fn is_unexpected(self) -> bool {
        match self {
            Self::MissingKey(_) | Self::NoAgent(ProviderChoice::Main) => true,
            Self::NoAgent(_) | Self::Configured | Self::Offline | Self::NoNetwork => false,
        }
    }
}

/// A configuration that cannot work. Each message names the setting and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The provider's name is unknown.
    #[error(
        "`auxiliary.compression.provider: {word}` names no provider{}; valid are auto, openai, anthropic, \
         openrouter, nous, main and none (Ollama, vLLM, LM Studio and the like: `openai` with a `base_url`)",
        nearest.map(|choice| format!(" (did you mean `{choice}`?)")).unwrap_or_default()
    )]
    UnknownProvider {
        /// The name as written.
        word: String,
        /// The most similar valid name.
        nearest: Option<ProviderChoice>,
    },
    /// The provider needs a key and the environment holds none. [`resolve`] answers
    /// [`NoModel::MissingKey`]: a conversation is compacted without a model rather than not at all.
    #[error(
        "{provider} needs a key: set {} in the environment, or set \
         `auxiliary.compression.provider: none` to do without a model",
        provider.key_variable()
    )]
    MissingKey {
        /// Who wants it.
        provider: Provider,
    },
    /// The key cannot be sent.
    #[error("{source_name} holds characters that no key has (a line break, say): set it again")]
    UnusableKey {
        /// The environment variable, or the agent.
        source_name: &'static str,
    },
    /// The `base_url` is a custom one, no model is named for it, and none can be inferred.
    #[error(
        "`auxiliary.compression.model` is not set: name the model that {provider} should use at your `base_url`"
    )]
    MissingModel {
        /// The provider that should use it.
        provider: Provider,
    },
    /// The address cannot be called.
    #[error("`base_url` cannot be used: {reason}")]
    BaseUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The agent's provider cannot be combined with another address: its key would be sent there.
    #[error(
        "`auxiliary.compression.base_url` is set and the provider is `main`, which uses the agent's own \
         address: remove one of the two, or name the provider at that address"
    )]
    BaseUrlWithMain,
}

/// Decides which model answers. `env` reads an environment variable; only the key of the provider in use is
/// read. `offline` overrides everything.
///
/// # Errors
/// A configuration that cannot work, see [`ProviderError`].
pub fn resolve(
    settings: &ModelSettings,
    agent: Option<&AgentModel>,
    offline: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    if offline {
        return Ok(Resolved::NoModel(NoModel::Offline));
    }
    match answering(settings, agent, env) {
        Err(ProviderError::MissingKey { provider }) => {
            Ok(Resolved::NoModel(NoModel::MissingKey(provider)))
        }
        resolved => resolved,
    }
}

/// Decides who answers where the network may be used.
fn answering(
    settings: &ModelSettings,
    agent: Option<&AgentModel>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    match (settings.provider, filled(&settings.base_url)) {
        (ProviderChoice::None, _) => Ok(Resolved::NoModel(NoModel::Configured)),
        _ if !cfg!(feature = "network") => Ok(Resolved::NoModel(NoModel::NoNetwork)),
        (ProviderChoice::Main, Some(_)) => Err(ProviderError::BaseUrlWithMain),
        (ProviderChoice::Main | ProviderChoice::Auto, None) => match agent {
            Some(agent) => follow(settings, agent, env),
            None => Ok(Resolved::NoModel(NoModel::NoAgent(settings.provider))),
        },
        // An address in the configuration selects a server as clearly as a provider does.
        (ProviderChoice::Auto, Some(_)) => named(settings, Provider::OpenAi, agent, env),
        (ProviderChoice::Named(provider), _) => named(settings, provider, agent, env),
    }
}

/// The agent's provider, with another model where the settings name one.
fn follow(
    settings: &ModelSettings,
    agent: &AgentModel,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    let main = main_endpoint(agent, env)?;
    match filled(&settings.model) {
        Some(model) if model != agent.name => {
            let endpoint = Endpoint::new(
                agent.provider,
                filled(&agent.base_url),
                model,
                agent.credentials.as_ref(),
                env,
            )?;
            Ok(Resolved::Model {
                endpoint: Box::new(endpoint.with_context_length(settings.context_length)),
                fallback: Some(Box::new(main)),
            })
        }
        _ => Ok(Resolved::Model {
            endpoint: Box::new(
                main.with_context_length(settings.context_length.or(agent.context_length)),
            ),
            fallback: None,
        }),
    }
}

/// A separate provider, with the agent's model as a fallback.
fn named(
    settings: &ModelSettings,
    provider: Provider,
    agent: Option<&AgentModel>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    let address = filled(&settings.base_url);
    // A problem of the agent's model (no key, say) must not break a provider that works without it.
    let main = agent.and_then(|agent| main_endpoint(agent, env).ok());
    let of = |model: &str| Endpoint::new(provider, address, model, None, env);
    let (endpoint, known) = match filled(&settings.model) {
        Some(model) => (of(model)?, None),
        None => {
            let (usual, window) = provider.usual_model();
            let endpoint = of(usual)?;
            // The agent's model is a sensible default at its own provider. Other providers may not have it.
            let named = main.clone().filter(|main| !main.model().is_empty());
            if let Some(main) = named.filter(|main| main.same_place(&endpoint)) {
                let known = main.context_length();
                return Ok(Resolved::Model {
                    endpoint: Box::new(main.with_context_length(settings.context_length.or(known))),
                    fallback: None,
                });
            }
            // The models of a custom address are unknown.
            if address.is_some() {
                return Err(ProviderError::MissingModel { provider });
            }
            (endpoint, Some(window))
        }
    };
    let endpoint = endpoint.with_context_length(settings.context_length.or(known));
    Ok(match main {
        Some(main) if main.same_model(&endpoint) => Resolved::Model {
            endpoint: Box::new(endpoint.of_the_agent()),
            fallback: None,
        },
        main => Resolved::Model {
            endpoint: Box::new(endpoint),
            fallback: main.map(Box::new),
        },
    })
}

fn main_endpoint(
    agent: &AgentModel,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Endpoint, ProviderError> {
    let endpoint = Endpoint::new(
        agent.provider,
        filled(&agent.base_url),
        &agent.name,
        agent.credentials.as_ref(),
        env,
    )?;
    Ok(endpoint
        .with_context_length(agent.context_length)
        .of_the_agent())
}

/// A setting that is present and not blank.
fn filled(setting: &Option<String>) -> Option<&str> {
    setting
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty())
}
