//! The model that a configuration names.

use std::time::Duration;

use contexture_config::Config;
use contexture_secrets::mask_secrets;

use super::{
    AgentModel, ModelClient, ModelSettings, ProviderChoice, ProviderError, Resolved, resolve,
};

/// Which model answers engines under a configuration, see [`resolve`]. `agent` is the running agent's
/// model; without an agent, see [`configured_agent`].
///
/// # Errors
/// A configuration that cannot work.
pub fn resolve_configured(
    config: &Config,
    agent: Option<&AgentModel>,
    offline: bool,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ProviderError> {
    let auxiliary = &config.auxiliary.compression;
    let settings = ModelSettings {
        model: auxiliary.model.clone(),
        provider: auxiliary.provider.parse()?,
        base_url: auxiliary.base_url.clone(),
        context_length: auxiliary.context_length,
        timeout: timeout(config),
    };
    resolve(&settings, agent, offline, env)
}

/// A client for what was resolved, with the configured time limit. Secrets are masked in what it sends.
pub fn configured_client(config: &Config, resolved: Resolved) -> ModelClient {
    ModelClient::new(resolved, timeout(config), mask_secrets)
}

/// The agent's model as configured under `model`, for use without a running agent; none without
/// `model.provider`. `name` overrides the configured name.
///
/// # Errors
/// An unknown provider.
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

fn timeout(config: &Config) -> Duration {
    Duration::from_millis(config.auxiliary.compression.timeout_ms)
}
