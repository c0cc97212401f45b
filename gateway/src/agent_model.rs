//! Lets the engine ask the agent's own model for summaries, with the client's credentials. This is
//! used if `auxiliary.compression.provider` is `main`.
//!
//! The client pays for these requests, so nothing is sent unless the configuration names this
//! provider. The credentials are kept only as long as the exchange that brought them, and the
//! requests that it began. Writing the summaries is up to the host.

use std::sync::Arc;

use contexture::config::Config;
use contexture::providers::{
    AgentModel, Credentials, ModelClient, Provider, ProviderChoice, configured_client,
    resolve_configured,
};
use http::HeaderMap;

use crate::api::Api;

/// Creates a client for the model of a request that is sent to `url` with these headers. Returns
/// None if summaries by the agent's model are not configured, if the endpoint is Responses, for
/// which this is not supported, or if the configuration cannot be resolved. The last case is
/// logged.
pub(crate) fn of(
    config: &Config,
    api: Api,
    url: &str,
    headers: HeaderMap,
    model: &str,
    context_length: u64,
) -> Option<Arc<ModelClient>> {
    let provider = match api {
        Api::Messages => Provider::Anthropic,
        Api::Chat => Provider::OpenAi,
        Api::Gemini => Provider::Google,
        Api::Responses => return None,
    };
    let choice = config.auxiliary.compression.provider.parse();
    if choice != Ok(ProviderChoice::Main) {
        return None;
    }
    let agent = AgentModel {
        name: model.to_owned(),
        provider,
        base_url: Some(url.to_owned()),
        credentials: Some(Credentials::Headers(headers)),
        context_length: Some(context_length),
    };
    match resolve_configured(config, Some(&agent), false, &|_| None) {
        Ok(resolved) => Some(Arc::new(configured_client(config, resolved))),
        Err(error) => {
            tracing::warn!("cannot ask the agent's model for summaries: {error}");
            None
        }
    }
}
