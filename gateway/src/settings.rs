//! The configuration as the gateway uses it: complete addresses, and keys and tokens read from the environment.

use std::net::SocketAddr;
use std::time::Duration;

use contexture::GatewayToken;
use contexture::config::{Config, GatewayMode};
use contexture::prompt_cache::{CacheProvider, decide, provider_at};

use crate::access::{Access, is_loopback};
use crate::api::{Api, Provider};
use crate::endpoint::Upstream;
use crate::tokens::{Caller, Tenant, Tokens};
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
    /// Nobody could tell whose request it is.
    #[error(
        "`gateway.tokens.{first}` and `gateway.tokens.{second}` are the same token: give each name one of its own"
    )]
    SameToken {
        /// One of the names.
        first: String,
        /// The other one.
        second: String,
    },
    /// An entry that no request can match.
    #[error(
        "`{entry}` in `{key}` is not valid: a host is a name or address with or without a port, as gateway.internal:8080, \
         and an origin has a scheme before it, as https://ui.example"
    )]
    Entry {
        /// The key of the configuration.
        key: &'static str,
        /// The entry.
        entry: String,
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
    /// The most requests of one tenant.
    pub(crate) tenant_requests: i64,
    pub(crate) max_connections: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) open_sessions: usize,
    pub(crate) access: Access,
    pub(crate) tokens: Tokens,
    /// Whether requests without a token get the gateway's own key, too.
    pub(crate) open_key: bool,
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

/// A provider's key of the gateway's own, for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key<'s> {
    /// The gateway has none.
    None,
    Added(&'s str),
    /// The gateway has one, and adds it for those who have a token.
    NeedsToken,
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
    /// The settings of a configuration, for a gateway that listens on `address` and has this token.
    ///
    /// # Errors
    /// What cannot be served.
    pub(crate) fn of(
        config: &Config,
        address: SocketAddr,
        urls: &BaseUrls,
        token: Option<GatewayToken>,
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
        for (number, second) in tenants.iter().enumerate() {
            let mut before = tenants.iter().take(number);
            if let Some(first) = before.find(|first| first.token == second.token) {
                return Err(SettingsError::SameToken {
                    first: first.name.clone(),
                    second: second.name.clone(),
                });
            }
        }
        if tenants.is_empty() && !is_loopback(address) {
            return Err(SettingsError::NoTokens { address });
        }
        let access = Access::of(gateway);
        let access = access.map_err(|(key, entry)| SettingsError::Entry { key, entry })?;
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
            tenant_requests: gateway.tenant_requests.map_or_else(
                || {
                    let tenants = i64::try_from(tenants.len()).unwrap_or(i64::MAX);
                    (i64::from(gateway.max_requests) / tenants.max(1)).max(1)
                },
                i64::from,
            ),
            max_connections: gateway.max_connections as usize,
            header_timeout: ms(gateway.header_timeout_ms),
            open_sessions: gateway.open_sessions as usize,
            access,
            tokens: Tokens {
                own: token,
                tenants,
            },
            open_key: gateway.open_key,
            context_length: config.model.context_length,
            max_output_tokens: config.model.max_output_tokens,
            chatgpt: upstream(Provider::ChatGpt, "chatgpt", &own.chatgpt, None)?,
            claude_by_chat: claude_by_chat(&openai, config.model.provider.as_deref()),
            openai,
            anthropic,
        })
    }

    /// The key that a caller's request to a provider gets in place of its own credentials.
    pub(crate) fn key(&self, provider: Provider, caller: &Caller) -> Key<'_> {
        match &self.upstream(provider).key {
            None => Key::None,
            Some(_) if *caller == Caller::Anybody && !self.open_key => Key::NeedsToken,
            Some(key) => Key::Added(key),
        }
    }

    /// Whether requests to a provider get a key of the gateway's own if they present a token.
    pub(crate) fn key_needs_token(&self, provider: Provider) -> bool {
        self.upstream(provider).key.is_some() && !self.open_key
    }

    /// The file of the gateway's own token, and the keys of the configuration that make clients need it. None if no
    /// client needs it.
    fn token_line(&self) -> Option<String> {
        let named = [
            ("openai", Provider::OpenAi),
            ("anthropic", Provider::Anthropic),
            ("chatgpt", Provider::ChatGpt),
        ];
        let keys = named
            .into_iter()
            .filter(|(_, provider)| self.key_needs_token(*provider));
        let keys: Vec<String> = keys
            .map(|(name, _)| format!("upstream.{name}.api_key_env"))
            .collect();
        let own = self.tokens.own.as_ref()?;
        (!keys.is_empty()).then(|| {
            format!(
                "clients get the key of {} if they send the token in {} as x-contexture-token or as their API key",
                keys.join(" and "),
                own.path().display()
            )
        })
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

    /// The status lines on tokens and on prompt caching.
    pub(crate) fn status(&self, caching: &contexture::config::PromptCaching) -> Vec<String> {
        let mut lines: Vec<String> = self.token_line().into_iter().collect();
        lines.extend(self.caching(caching));
        lines
    }

    /// The status lines on prompt caching, one for each upstream that may serve Claude, with the configured ones first.
    fn caching(&self, caching: &contexture::config::PromptCaching) -> Vec<String> {
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
