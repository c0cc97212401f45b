//! The configuration in the form that the gateway uses: durations, complete upstream addresses, and
//! keys and tokens read from the environment.
//!
//! [`Settings::of`] builds it from the host's configuration and checks everything that could make the
//! gateway unsafe or useless, such as an address that other machines reach while no token is
//! configured. A failure is a [`SettingsError`] that names the key to change.
//!
//! Settings never change. A reload builds new ones and replaces the old ones for later requests.
//! The meaning of each option is documented in the host's configuration, and the rules for
//! addresses in [`endpoint`](crate::endpoint).

use std::net::SocketAddr;
use std::time::Duration;

use contexture::config::{Config, GatewayMode, Loaded, ProviderTls};
use contexture::prompt_cache::{CacheProvider, decide, provider_at};
use contexture::{GatewayToken, secret};
use jiff::Timestamp;
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, is_loopback};
use crate::api::{Api, Provider};
use crate::endpoint::Upstream;
use crate::failure::cause_of;
use crate::settings_error::SettingsError;
use crate::tls::{self, CertificateEnd};
use crate::tokens::{Caller, Tenant, Tokens};
use crate::upstream::Client;

/// Finds what a gateway could not run with, as far as the configuration and the certificates that it
/// names tell. Variables are not read, names are not resolved, and files that cannot be read are left
/// out, so the configuration can be checked on another machine, too. Only
/// [`Gateway::open`](crate::Gateway::open) tells everything.
pub fn problems(loaded: &Loaded) -> Vec<SettingsError> {
    let config = &loaded.config;
    let gateway = &config.gateway;
    let mut found = wrong_tokens(gateway);
    match gateway.listen.parse() {
        Ok(address) if gateway.tokens.is_empty() && !is_loopback(address) => {
            found.push(SettingsError::no_tokens(address));
        }
        Err(_) if !is_host_and_port(&gateway.listen) => {
            found.push(SettingsError::address(&gateway.listen));
        }
        _ => {}
    }
    found.extend(Access::wrong_entries(gateway));
    found.extend(wrong_certificates(loaded).filter(|error| !error.is_unreadable));
    found
}

/// Finds the certificates and keys that the configuration names and that cannot be read on this
/// machine.
pub fn unreadable_certificates(loaded: &Loaded) -> Vec<SettingsError> {
    let wrong = wrong_certificates(loaded);
    wrong.filter(|error| error.is_unreadable).collect()
}

/// What is wrong with the certificates and keys that the configuration names, one error a section.
fn wrong_certificates(loaded: &Loaded) -> impl Iterator<Item = SettingsError> {
    let config = &loaded.config;
    let own = tls::acceptor(loaded, &config.gateway.tls).err();
    let of_providers = Provider::ALL.into_iter().filter_map(|provider| {
        let tls = &provider.section(&config.upstream).tls;
        tls::apply(loaded, provider.name(), tls, reqwest::Client::builder()).err()
    });
    own.into_iter().chain(of_providers)
}

/// The keys that are read only at the start of a gateway, as paths of JSON pointers.
const READ_AT_START: [&str; 9] = [
    "/gateway/listen",
    "/gateway/max_connections",
    "/gateway/telemetry",
    "/transcript/store",
    "/transcript/url_env",
    "/transcript/tenant",
    "/transcript/max_connections",
    "/transcript/statement_timeout_ms",
    "/transcript/ca_file",
];

/// The keys that differ between the configuration that a gateway was started with and a new one, and
/// that only a restart applies.
pub(crate) fn need_restart(started: &Config, new: &Config) -> Vec<String> {
    // A configuration was read from a file, so it always has a JSON form.
    let [started, new] = [started, new].map(|own| serde_json::to_value(own).unwrap_or_default());
    let mut keys = READ_AT_START.to_vec();
    keys.retain(|key| started.pointer(key) != new.pointer(key));
    let dotted = |key: &str| key.trim_start_matches('/').replace('/', ".");
    keys.into_iter().map(dotted).collect()
}

/// The names of `gateway.tokens` that are not valid, and those that share a variable.
fn wrong_tokens(gateway: &contexture::config::Gateway) -> Vec<SettingsError> {
    let tokens = &gateway.tokens;
    let wrong = tokens
        .iter()
        .enumerate()
        .filter_map(|(at, (name, variable))| {
            let key = format!("gateway.tokens.{name}");
            // The name and a slash precede the ids of a tenant's sessions.
            if name.is_empty() || name.contains('/') {
                let rule = "use a name that is not empty and has no `/`";
                let message = format!("`{key}` is not a valid name: {rule}");
                return Some(SettingsError::at(&key, message));
            }
            if variable.trim().is_empty() {
                let what = "names no environment variable: name the one that has the token";
                return Some(SettingsError::at(&key, format!("`{key}` {what}")));
            }
            let mut before = tokens.iter().take(at);
            let (first, _) = before.find(|(_, other)| *other == variable)?;
            Some(SettingsError::same_token(first, name))
        });
    wrong.collect()
}

/// Whether a text has the form of a host name and a port.
fn is_host_and_port(text: &str) -> bool {
    let is_host = |host: &str| {
        let may_be = |c: char| c.is_alphanumeric() || "-._:%[]".contains(c);
        !host.is_empty() && host.chars().all(may_be)
    };
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok())
}

/// All options of a gateway. They are read again on SIGHUP, and each request uses the ones that
/// were in force when it arrived.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) observe: bool,
    /// How long a request may be held before it is passed on unchanged. Also limits how long the
    /// end of an answer waits for the store.
    pub(crate) max_hold: Duration,
    /// The largest request body in bytes, both as received and after expansion.
    pub(crate) max_body: usize,
    /// How long a client may take to send its request, and to take each piece of its answer.
    pub(crate) client_timeout: Duration,
    /// The most requests that one tenant may have under way. If it is not configured, tenants share
    /// `max_requests` evenly.
    pub(crate) tenant_requests: i64,
    pub(crate) access: Access,
    pub(crate) tokens: Tokens,
    /// The configuration, for all options that are used as they are written.
    pub(crate) config: Config,
    /// Sends requests to the providers, with the timeouts of `upstream`. A reload creates a new
    /// one, and requests under way keep the old one.
    client: Client,
    /// The clients for providers that have certificates of their own.
    clients: Vec<(Provider, Client)>,
    /// Opens the connections of clients with TLS. None if they come without.
    pub(crate) tls: Option<TlsAcceptor>,
    /// When the certificates of `gateway.tls` and `upstream.*.tls` end.
    pub(crate) certificate_ends: Vec<CertificateEnd>,
    /// One for each provider, in the order of [`Provider::ALL`].
    upstreams: [Upstream; 4],
    /// The provider that serves Claude through OpenAI's API, if it accepts markers for prompt
    /// caching.
    claude_by_chat: Option<&'static str>,
}

/// The gateway's own key for a provider, as far as a request may use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderKey<'s> {
    /// The gateway has no key for this provider. The client has to send its own.
    None,
    Added(&'s str),
    /// The gateway has a key, but adds it only to requests with a token.
    NeedsToken,
}

impl Settings {
    /// Builds the settings of a gateway that listens on `address` and has this token of the home
    /// directory. `command` is set if it is the gateway of a single command: base URLs from its
    /// environment, for providers that the configuration names none for. Reads keys and tokens from
    /// the environment.
    ///
    /// # Errors
    /// The configuration is unsafe, contradicts itself, or names a variable that is not set.
    pub(crate) fn of(
        loaded: &Loaded,
        address: SocketAddr,
        command: Option<&[(Provider, String)]>,
        token: Option<GatewayToken>,
    ) -> Result<Self, SettingsError> {
        let config = &loaded.config;
        let gateway = &config.gateway;
        let read = |key: String, variable: &str| {
            match secret(variable) {
                Ok(Some(secret)) => Ok(secret),
                // An empty key or token is as good as none, and is usually a mistake.
                Ok(None) => Err(SettingsError::at(
                    &key,
                    format!(
                        "`{key}` names the environment variable {variable}, which is not set or is empty: set it, or \
                         {variable}_FILE to a file that holds the value, and start the gateway again if it is running"
                    ),
                )),
                Err(error) => Err(SettingsError::at(&key, format!("`{key}`: {error}"))),
            }
        };
        if let Some(wrong) = wrong_tokens(gateway).into_iter().next() {
            return Err(wrong);
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
                return Err(SettingsError::same_token(&first.name, &second.name));
            }
        }
        // Anybody on the network could otherwise use the gateway's keys and read sessions.
        if tenants.is_empty() && !is_loopback(address) {
            return Err(SettingsError::no_tokens(address));
        }
        let access = Access::of(gateway)?;
        let upstream = |provider: Provider| {
            let (name, own) = (provider.name(), provider.section(&config.upstream));
            let mut env = command.into_iter().flatten();
            let env = env.find_map(|(one, url)| (*one == provider).then_some(url));
            let named = own.base_url.as_ref().or(env).map(String::as_str);
            let key = own.api_key_env.as_deref();
            let key = key.map(|variable| read(format!("upstream.{name}.api_key_env"), variable));
            Ok(Upstream::new(provider, named, key.transpose()?))
        };
        let own = &config.upstream;
        let openai = upstream(Provider::OpenAi)?;
        let ms = Duration::from_millis;
        let build = |builder| {
            Client::build(builder)
                .map_err(|error| SettingsError::client(&cause_of(&error).to_string()))
        };
        let (mut clients, mut certificate_ends) = (Vec::new(), Vec::new());
        if command.is_none() {
            let (section, own) = ("gateway.tls".to_owned(), &gateway.tls);
            let end = CertificateEnd::of(loaded, section, own.certificate.as_ref());
            certificate_ends.extend(end);
        }
        for provider in Provider::ALL {
            let tls = &provider.section(own).tls;
            if *tls != ProviderTls::default() {
                let section = format!("upstream.{}.tls", provider.name());
                let end = CertificateEnd::of(loaded, section, tls.certificate.as_ref());
                certificate_ends.extend(end);
                let client = tls::apply(loaded, provider.name(), tls, Client::builder(own));
                clients.push((provider, build(client?)?));
            }
        }
        Ok(Self {
            client: build(Client::builder(own))?,
            clients,
            certificate_ends,
            tls: match command {
                Some(_) => None,
                None => tls::acceptor(loaded, &gateway.tls)?,
            },
            observe: gateway.mode == GatewayMode::Observe,
            max_hold: ms(gateway.max_hold_ms),
            // The configuration counts megabytes.
            max_body: usize::try_from(gateway.max_body_mb << 20).unwrap_or(usize::MAX),
            client_timeout: ms(gateway.client_timeout_ms),
            tenant_requests: gateway.tenant_requests.map_or_else(
                || {
                    // If there are more tenants than requests, each one may still have one.
                    let tenants = i64::try_from(tenants.len()).unwrap_or(i64::MAX);
                    (i64::from(gateway.max_requests) / tenants.max(1)).max(1)
                },
                i64::from,
            ),
            access,
            tokens: Tokens::new(token, tenants),
            config: config.clone(),
            claude_by_chat: claude_by_chat(&openai, config.model.provider.as_deref()),
            upstreams: [
                openai,
                upstream(Provider::Anthropic)?,
                upstream(Provider::ChatGpt)?,
                upstream(Provider::Google)?,
            ],
        })
    }

    /// These settings in place of the old ones, in a gateway that listens on `address` and is running.
    ///
    /// # Errors
    /// A key is gone that keeps others out, or that keeps from them what they must not read.
    pub(crate) fn in_place_of(
        mut self,
        old: &Self,
        address: SocketAddr,
    ) -> Result<Self, SettingsError> {
        let old_ones = old.protections(address).into_iter();
        for ((key, was_set), (_, is_set)) in old_ones.zip(self.protections(address)) {
            if was_set && !is_set {
                let message = format!(
                    "`{key}` is no longer set, but protects the running gateway: set it again, or restart the gateway \
                     to remove it"
                );
                return Err(SettingsError::at(&key, message));
            }
        }
        self.tokens.remember(&old.tokens);
        Ok(self)
    }

    /// The keys that protect a gateway that listens on `address`, each with whether it is set.
    fn protections(&self, address: SocketAddr) -> Vec<(String, bool)> {
        let own = [
            ("gateway.tokens", !self.tokens.tenants.is_empty()),
            ("gateway.hosts", self.access.checks_hosts(address)),
            ("gateway.tls", self.tls.is_some()),
            ("transcript.redact", self.config.transcript.redact),
        ];
        // Without an address, conversations go to the provider's usual one.
        let upstreams = Provider::ALL.map(|provider| {
            let key = format!("upstream.{}.base_url", provider.name());
            (key, self.upstream(provider).is_named)
        });
        let own = own.map(|(key, is_set)| (key.to_owned(), is_set));
        own.into_iter().chain(upstreams).collect()
    }

    /// The gateway's key for a caller's request to a provider. If there is one, it replaces the
    /// caller's credentials.
    pub(crate) fn key(&self, provider: Provider, caller: &Caller) -> ProviderKey<'_> {
        match &self.upstream(provider).key {
            None => ProviderKey::None,
            // Every program on this machine can reach the gateway, so its key is only for callers
            // with a token.
            Some(_) if *caller == Caller::Anybody && !self.config.gateway.open_key => {
                ProviderKey::NeedsToken
            }
            Some(key) => ProviderKey::Added(key),
        }
    }

    /// The providers that the gateway has a key for that only requests with a token get.
    pub(crate) fn keys_with_token(&self) -> Vec<Provider> {
        let has_key = |one: &Provider| self.upstream(*one).key.is_some();
        let keys = Provider::ALL.into_iter().filter(has_key);
        keys.filter(|_| !self.config.gateway.open_key).collect()
    }

    /// The status line that names the file with the gateway's own token, and the keys that need it.
    /// None if no client needs the token.
    fn token_line(&self) -> Option<String> {
        let keys = self.keys_with_token().into_iter();
        let keys: Vec<String> = keys
            .map(|provider| format!("upstream.{}.api_key_env", provider.name()))
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
        &self.upstreams[provider as usize]
    }

    /// Logs a warning for each certificate that has expired or soon will.
    pub(crate) fn warn_of_certificates(&self) {
        let now = Timestamp::now();
        let ends = self.certificate_ends.iter();
        for warning in ends.filter_map(|end| end.warning(now)) {
            tracing::warn!("{warning}");
        }
    }

    /// The scheme of the gateway's own URLs.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.tls {
            Some(_) => "https",
            None => "http",
        }
    }

    /// The client that sends requests to a provider.
    pub(crate) fn client(&self, provider: Provider) -> &Client {
        let own = self.clients.iter().find(|(one, _)| *one == provider);
        own.map_or(&self.client, |(_, client)| client)
    }

    /// The name of the provider that serves an endpoint's models. It decides whether a body gets
    /// markers for prompt caching.
    pub(crate) fn cache_provider(&self, api: Api) -> &'static str {
        match (api, by_address(self.upstream(Provider::Anthropic).base())) {
            (Api::Messages, by_address) => by_address.unwrap_or("anthropic"),
            (Api::Chat, _) => self.claude_by_chat.unwrap_or("openai"),
            (Api::Responses, _) => "openai",
            (Api::Gemini, _) => "google",
        }
    }

    /// The status lines on tokens and on prompt caching, for the start of the gateway.
    pub(crate) fn status(&self, caching: &contexture::config::PromptCaching) -> Vec<String> {
        let mut lines: Vec<String> = self.token_line().into_iter().collect();
        lines.extend(self.caching(caching));
        lines
    }

    /// The status lines on prompt caching, one for each upstream that may serve Claude. Upstreams
    /// that the configuration names come first.
    fn caching(&self, caching: &contexture::config::PromptCaching) -> Vec<String> {
        let line = |provider| {
            let enabled = caching.enabled != Some(false);
            decide("claude", Some(provider), None, enabled, caching.cache_ttl).to_string()
        };
        let mut lines: Vec<String> = self.claude_by_chat.map(line).into_iter().collect();
        if lines.is_empty() || self.upstream(Provider::Anthropic).is_named {
            lines.push(line(self.cache_provider(Api::Messages)));
        }
        // Two upstreams with the same decision need only one line.
        lines.dedup();
        lines
    }
}

/// The provider at this base URL, if it accepts markers for prompt caching.
fn by_address(base: &str) -> Option<&'static str> {
    match provider_at(base)? {
        CacheProvider::Anthropic => Some("anthropic"),
        CacheProvider::OpenRouter => Some("openrouter"),
    }
}

/// The provider that serves Claude through OpenAI's API, if it accepts cache markers. OpenRouter
/// does. If a proxy stands in front of it, `model.provider` can declare that. Anthropic's own
/// endpoint in OpenAI's format accepts none.
fn claude_by_chat(openai: &Upstream, declared: Option<&str>) -> Option<&'static str> {
    let is_declared = declared.is_some_and(|name| name.eq_ignore_ascii_case("openrouter"));
    let is_it = by_address(openai.base()) == Some("openrouter");
    (is_it || is_declared).then_some("openrouter")
}
