//! The agent's own model, asked with what the client was let in with: who writes summaries where
//! `auxiliary.compression.provider` is `main`.
//!
//! Somebody else pays for these questions, so that nobody is asked who was not named. The credentials live as long as the
//! exchange that brought them, and the questions that it began.

use std::sync::Arc;

use contexture::config::Config;
use contexture::providers::{
    AgentModel, Credentials, ModelClient, Provider, ProviderChoice, configured_client,
    resolve_configured,
};
use http::HeaderMap;

use crate::api::Api;

/// What asks the model of a request that goes to `url` with these headers; none where that is not configured, or the
/// endpoint is not one that questions can be put to.
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
            tracing::warn!("the agent's model cannot be asked for summaries: {error}");
            None
        }
    }
}
