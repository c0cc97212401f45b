//! Decides which model answers an engine's model calls, without touching the network.
//!
//! The decision depends on the setting, on whether an agent is running, on the environment's keys,
//! and on whether the network may be used. [`resolve`] makes it once, before any call, so that a
//! wrong configuration is reported at the start and not in the middle of a conversation.
//!
//! The result is [`Resolved`]: a model with an optional fallback, or [`NoModel`] with the reason.
//! Only a configuration that can never work is a [`ProviderError`]. A missing key is not, because a
//! conversation can be compacted without a model.
//!
//! Making the calls is left to [`ModelClient`](super::ModelClient), and addresses to `endpoint`.

use contexture_config::AuxiliaryModel;

use super::endpoint::Endpoint;
use super::settings::{AgentModel, Provider, ProviderChoice, ProviderError};

/// Which model answers an engine's model calls. Pass it to
/// [`ModelClient::new`](super::ModelClient::new), which accepts both cases.
#[derive(Debug, Clone)]
pub enum Resolved {
    /// A model answers. Its key, if it needs one, was found.
    Model {
        /// The model that is asked first, at the address that the settings name or at the
        /// provider's own.
        endpoint: Box<Endpoint>,
        /// The agent's own model, which is asked if the first one does not exist. `None` if the
        /// agent's model cannot be used or is the first one.
        fallback: Option<Box<Endpoint>>,
    },
    /// No model answers, for this reason. Summaries are the deterministic digest.
    NoModel(NoModel),
}

/// Why no model answers. None of these is an error: engines then summarize without a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    /// The configuration says `none`, so the user wants no model.
    #[error("no model: `auxiliary.compression.provider` is `none`")]
    Configured,
    /// The network is forbidden for this run, whatever the configuration says.
    #[error("no model: `--offline` forbids every model call")]
    Offline,
    /// The library was built without the feature `network`, so it has no HTTP client.
    #[error("no model: this build has no network; build contexture with its feature `network`")]
    NoNetwork,
    /// The configuration follows the agent's model (`auto` or `main`), and no agent is running.
    #[error(
        "no model: `auxiliary.compression.provider: {0}` follows the agent's model, and no agent is \
         running here; name a provider to use one"
    )]
    NoAgent(ProviderChoice),
    /// The provider needs a key, and its environment variable is not set.
    #[error(
        "{0} has no key, so summaries are made without a model, as a digest: set {variable} in the environment, \
         or set `auxiliary.compression.provider: none` to do without a model",
        variable = .0.key_variable()
    )]
    MissingKey(Provider),
}

impl NoModel {
    /// Whether the configuration asked for a model, so that a person should be told that there is
    /// none. This is false for `auto` without an agent, for `none` and for offline runs.
    pub fn is_unexpected(self) -> bool {
        match self {
            Self::MissingKey(_) | Self::NoAgent(ProviderChoice::Main) => true,
            Self::NoAgent(_) | Self::Configured | Self::Offline | Self::NoNetwork => false,
        }
    }
}

/// Decides which model answers. `env` reads an environment variable and is asked only for the key
/// of a provider that may be used. If `offline` is set, no model answers, whatever the settings
/// say.
///
/// # Errors
/// Returns [`ProviderError`] if the configuration cannot work. A missing key is not an error, see
/// [`NoModel::MissingKey`].
pub fn resolve(
    settings: &AuxiliaryModel,
    agent: Option<&AgentModel>,
    offline: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    let choice = settings.provider.parse()?;
    if offline {
        return Ok(Resolved::NoModel(NoModel::Offline));
    }
    match answering(settings, choice, agent, env) {
        Err(ProviderError::MissingKey { provider }) => {
            Ok(Resolved::NoModel(NoModel::MissingKey(provider)))
        }
        resolved => resolved,
    }
}

/// Decides which model answers if the network may be used. A missing key is still an error here.
fn answering(
    settings: &AuxiliaryModel,
    choice: ProviderChoice,
    agent: Option<&AgentModel>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    match (choice, filled(&settings.base_url)) {
        // First, so that a build without a network gives the user's own reason.
        (ProviderChoice::None, _) => Ok(Resolved::NoModel(NoModel::Configured)),
        _ if !cfg!(feature = "network") => Ok(Resolved::NoModel(NoModel::NoNetwork)),
        (ProviderChoice::Main, Some(_)) => Err(ProviderError::Unusable(
            "`auxiliary.compression.base_url` is set and the provider is `main`, which uses the agent's own \
             address: remove one of the two, or name the provider at that address"
                .to_owned(),
        )),
        (ProviderChoice::Main | ProviderChoice::Auto, None) => match agent {
            Some(agent) => follow(settings, agent, env),
            None => Ok(Resolved::NoModel(NoModel::NoAgent(choice))),
        },
        // An address in the configuration selects a server as clearly as the name of a provider
        // does.
        (ProviderChoice::Auto, Some(_)) => named(settings, Provider::OpenAi, agent, env),
        (ProviderChoice::Named(provider), _) => named(settings, provider, agent, env),
    }
}

/// Uses the agent's provider. If the settings name another model, that one is asked, with the
/// agent's own model as the fallback.
fn follow(
    settings: &AuxiliaryModel,
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

/// Uses a provider that the settings name, with the agent's own model as the fallback.
fn named(
    settings: &AuxiliaryModel,
    provider: Provider,
    agent: Option<&AgentModel>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    let address = filled(&settings.base_url);
    // A problem of the agent's model, such as a missing key, must not disable a provider that works
    // without it.
    let main = agent.and_then(|agent| main_endpoint(agent, env).ok());
    let of = |model: &str| Endpoint::new(provider, address, model, None, env);
    let (endpoint, known) = match filled(&settings.model) {
        Some(model) => (of(model)?, None),
        None => {
            let (usual, window) = provider.usual_model();
            let endpoint = of(usual)?;
            // At its own provider, the agent's model is a sensible default. Another provider may
            // not have it.
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
                return Err(ProviderError::Unusable(format!(
                    "`auxiliary.compression.model` is not set: name the model that {provider} should use at your `base_url`"
                )));
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
