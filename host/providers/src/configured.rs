//! The model that a configuration names.
//!
//! The rest of the crate takes one section and an [`AgentModel`], which any program can build. This
//! module takes them from a [`Config`], so that every program reads the same keys in the same way.
//!
//! Start with [`resolve_configured`], which decides which model answers, and pass its result to
//! [`configured_client`]. [`configured_agent`] describes the agent's model if no agent is running.
//! The decision itself is made by [`resolve`](fn@resolve).

use std::time::Duration;

use contexture_config::Config;
use contexture_secrets::mask_secrets;

use super::{AgentModel, ModelClient, ProviderChoice, ProviderError, Resolved, resolve};

/// Decides which model answers engines under a configuration, see [`resolve`]. `agent` is the model
/// of the running agent. If none is running, pass what [`configured_agent`] returns. `offline`
/// forbids every call, and `env` reads an environment variable.
///
/// # Errors
/// Returns [`ProviderError`] if the configuration cannot work.
pub fn resolve_configured(
    config: &Config,
    agent: Option<&AgentModel>,
    offline: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    resolve(&config.auxiliary.compression, agent, offline, env)
}

/// Creates a client for what was resolved, with the configured time limit. Secrets are masked in
/// the requests that it builds, see [`ModelClient::new`].
pub fn configured_client(config: &Config, resolved: Resolved) -> ModelClient {
    let timeout = Duration::from_millis(config.auxiliary.compression.timeout_ms);
    ModelClient::new(resolved, timeout, mask_secrets)
}

/// Returns the agent's model as configured under `model`, for use without a running agent. `name`
/// overrides the configured name. Returns `None` if `model.provider` is not set or names no
/// particular provider, such as `auto`.
///
/// # Errors
/// The provider is unknown.
pub fn configured_agent(
    config: &Config,
    name: Option<&str>,
) -> Result<Option<AgentModel>, ProviderError> {
    let Some(provider) = &config.model.provider else {
        return Ok(None);
    };
    let ProviderChoice::Named(provider) = provider.parse()? else {
        return Ok(None);
    };
    // Without a name of its own, the agent is assumed to use the model that writes summaries.
    let name =
        name.or(config.model.name.as_deref())
            .or(config.auxiliary.compression.model.as_deref());
    Ok(Some(AgentModel {
        name: name.unwrap_or_default().to_owned(),
        provider,
        base_url: config.model.base_url.clone(),
        credentials: None,
        context_length: config.model.context_length,
    }))
}
