//! The configuration as the gateway uses it: addresses made up, keys and tokens read from the environment.

use std::net::SocketAddr;
use std::time::Duration;

use contexture::config::{Config, GatewayMode};
use contexture::prompt_cache::{CacheProvider, decide, provider_at};

use http::HeaderMap;

use crate::api::{Api, Provider};
use crate::endpoint::Upstream;
use crate::headers;
use crate::upstream::Client;

/// Why a configuration cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The address makes no sense.
    #[error(
        "`{address}` is no address to listen on: give an address and a port, as 127.0.0.1:8787"
    )]
    Address {
        /// As it was given.
        address: String,
    },
    /// Anybody could use it.
    #[error(
        "{address} can be reached from other machines, and nobody is named who may use it: name them under \
         `gateway.tokens` (a name, and the environment variable with the token), or listen on 127.0.0.1"
    )]
    NoTokens {
        /// The address.
        address: SocketAddr,
    },
    /// Two names could mean one session.
    #[error(
        "`gateway.tokens.{name}`: a name is not empty and has no `/`, which stands before its sessions"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// A variable is not set.
    #[error("`{key}` names the environment variable {variable}, which is not set or empty: set it")]
    Variable {
        /// The key of the configuration.
        key: String,
        /// The variable.
        variable: String,
    },
    /// There are no requests to be made.
    #[error("cannot make requests to the providers: {0}")]
    Client(String),
}

/// Somebody who may use the gateway.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    token: String,
}

impl Tenant {
    /// Whether this is the token. Takes the same time wherever the two differ.
    pub(crate) fn has(&self, token: &str) -> bool {
        let (own, other) = (self.token.as_bytes(), token.as_bytes());
        let differ = own
            .iter()
            .zip(other)
            .fold(0, |differ, (a, b)| differ | (a ^ b));
        own.len() == other.len() && differ == 0
    }
}

/// What the gateway runs by; read again on SIGHUP.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) observe: bool,
    pub(crate) max_hold: Duration,
    pub(crate) max_rounds: u32,
    pub(crate) max_body: usize,
    pub(crate) client_timeout: Duration,
    pub(crate) shutdown: Duration,
    pub(crate) max_requests: i64,
    pub(crate) open_sessions: usize,
    /// Empty where everybody who reaches it may use it.
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) context_length: Option<u64>,
    pub(crate) max_output_tokens: Option<u64>,
    /// What asks the providers, with the timeouts of `upstream`.
    pub(crate) client: Client,
    openai: Upstream,
    anthropic: Upstream,
    chatgpt: Upstream,
    /// The provider that serves Claude through OpenAI's API, if it accepts prompt cache markers.
    claude_by_chat: Option<&'static str>,
}

/// Base URLs from the environment. They apply if the configuration names none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BaseUrls {
    /// Of OpenAI's API.
    pub openai: Option<String>,
    /// Of Anthropic's API.
    pub anthropic: Option<String>,
}

impl Settings {
    /// The settings of a configuration, for a gateway that listens on `address`.
    ///
    /// # Errors
    /// What cannot be served.
    pub(crate) fn of(
        config: &Config,
        address: SocketAddr,
        urls: &BaseUrls,
    ) -> Result<Self, SettingsError> {
        let gateway = &config.gateway;
        let read = |key: String, variable: &str| match std::env::var(variable) {
            Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
            _ => Err(SettingsError::Variable {
                key,
                variable: variable.to_owned(),
            }),
        };
        let wrong = |name: &&String| name.is_empty() || name.contains('/');
        if let Some(name) = gateway.tokens.keys().find(wrong) {
            return Err(SettingsError::Name { name: name.clone() });
        }
        let tenants: Vec<Tenant> = (gateway.tokens.iter())
            .map(|(name, variable)| {
                Ok(Tenant {
                    name: name.clone(),
                    token: read(format!("gateway.tokens.{name}"), variable)?,
                })
            })
            .collect::<Result<_, _>>()?;
        if tenants.is_empty() && !address.ip().is_loopback() {
            return Err(SettingsError::NoTokens { address });
        }
        let upstream = |provider: Provider,
                        name: &str,
                        own: &contexture::config::Provider,
                        env: Option<&String>| {
            let named = own.base_url.as_deref().or(env.map(String::as_str));
            let key = own.api_key_env.as_deref();
            let key = key.map(|variable| read(format!("upstream.{name}.api_key_env"), variable));
            Ok(Upstream::new(provider, named, key.transpose()?))
        };
        let own = &config.upstream;
        let openai = upstream(
            Provider::OpenAi,
            "openai",
            &own.openai,
            urls.openai.as_ref(),
        )?;
        let anthropic = upstream(
            Provider::Anthropic,
            "anthropic",
            &own.anthropic,
            urls.anthropic.as_ref(),
        )?;
        let ms = Duration::from_millis;
        let client = Client::new(&config.upstream);
        Ok(Self {
            client: client.map_err(|error| SettingsError::Client(error.to_string()))?,
            observe: gateway.mode == GatewayMode::Observe,
            max_hold: ms(gateway.max_hold_ms),
            max_rounds: gateway.max_rounds,
            max_body: usize::try_from(gateway.max_body_mb << 20).unwrap_or(usize::MAX),
            client_timeout: ms(gateway.client_timeout_ms),
            shutdown: ms(gateway.shutdown_ms),
            max_requests: gateway.max_requests.into(),
            open_sessions: gateway.open_sessions as usize,
            tenants: match address.ip().is_loopback() {
                true => Vec::new(),
                false => tenants,
            },
            context_length: config.model.context_length,
            max_output_tokens: config.model.max_output_tokens,
            chatgpt: upstream(Provider::ChatGpt, "chatgpt", &own.chatgpt, None)?,
            claude_by_chat: claude_by_chat(&openai, config.model.provider.as_deref()),
            openai,
            anthropic,
        })
    }

    /// The headers with which a client's request goes on, where its answer is read on its way back.
    pub(crate) fn headers(&self, provider: Provider, headers: &HeaderMap) -> HeaderMap {
        let mut passed = headers::upstream(headers, true);
        if let Some(key) = &self.upstream(provider).key {
            headers::use_key(&mut passed, key, provider == Provider::Anthropic);
        }
        passed
    }

    pub(crate) fn upstream(&self, provider: Provider) -> &Upstream {
        match provider {
            Provider::OpenAi => &self.openai,
            Provider::Anthropic => &self.anthropic,
            Provider::ChatGpt => &self.chatgpt,
        }
    }

    /// The name of the provider that serves this endpoint's models. It decides on prompt cache markers.
    pub(crate) fn cache_provider(&self, api: Api) -> &'static str {
        match (api, by_address(self.anthropic.base())) {
            (Api::Messages, by_address) => by_address.unwrap_or("anthropic"),
            (Api::Chat, _) => self.claude_by_chat.unwrap_or("openai"),
            (Api::Responses, _) => "openai",
        }
    }

    /// The status lines on prompt caching, one for each upstream that may serve Claude, with the configured ones first.
    pub(crate) fn caching(&self, caching: &contexture::config::PromptCaching) -> Vec<String> {
        let line = |provider| {
            let enabled = caching.enabled != Some(false);
            decide("claude", Some(provider), None, enabled, caching.cache_ttl).to_string()
        };
        let mut lines: Vec<String> = self.claude_by_chat.map(line).into_iter().collect();
        if lines.is_empty() || self.anthropic.is_named {
            lines.push(line(self.cache_provider(Api::Messages)));
        }
        lines.dedup();
        lines
    }
}

/// The provider of this base URL, if it accepts cache markers.
fn by_address(base: &str) -> Option<&'static str> {
    match provider_at(base)? {
        CacheProvider::Anthropic => Some("anthropic"),
        CacheProvider::OpenRouter => Some("openrouter"),
    }
}

/// OpenRouter accepts the markers in OpenAI's format. `model.provider` may declare a proxy in front of it. Anthropic's
/// own endpoint in that format accepts none.
fn claude_by_chat(openai: &Upstream, declared: Option<&str>) -> Option<&'static str> {
    let is_declared = declared.is_some_and(|name| name.eq_ignore_ascii_case("openrouter"));
    let is_it = by_address(openai.base()) == Some("openrouter");
    (is_it || is_declared).then_some("openrouter")
}
