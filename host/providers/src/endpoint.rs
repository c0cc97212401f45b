//! The address and the key of a model.

use std::fmt;

use http::Uri;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue,
};

use super::resolve::ProviderError;
use super::settings::{Credentials, Provider, Secret};

/// The shape of a provider's requests and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    OpenAi,
    Anthropic,
}

/// One model at one address. Prints without key or query.
#[derive(Debug, Clone)]
pub struct Endpoint {
    provider: Provider,
    url: Uri,
    model: String,
    access: Option<Access>,
    context_length: Option<u64>,
    /// Whether it is the model that the agent itself uses.
    is_agents: bool,
}

/// What a caller is let in with.
#[derive(Debug, Clone)]
struct Access {
    secrets: Vec<Secret>,
    /// The secret ones are marked as sensitive, so that no HTTP library logs them.
    headers: HeaderMap,
    /// Where they come from: an environment variable, or the agent.
    source: &'static str,
}

/// Anthropic's header for a key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The source of a key that came with the request, not from the environment.
const AGENT_KEY: &str = "the agent's own key";

impl Endpoint {
    /// The endpoint of `provider`, at its own address or at `base_url`. Without `credentials` the key is read from
    /// `env`; only addresses other than the provider's own can do without one (local servers do).
    pub(super) fn new(
        provider: Provider,
        base_url: Option<&str>,
        model: &str,
        credentials: Option<&Credentials>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let url = api_url(provider, base_url.unwrap_or(provider.default_base_url()))?;
        let variable = provider.key_variable();
        let found = match credentials {
            Some(Credentials::Key(secret)) => Some((secret.clone(), AGENT_KEY)),
            Some(Credentials::Headers(_)) => None,
            None => env(variable).map(|value| (Secret::new(&value), variable)),
        };
        let access = match (found, credentials) {
            (_, Some(Credentials::Headers(headers))) => Some(Access::with(headers)),
            (Some((secret, source)), _) if !secret.expose().is_empty() => {
                Some(Access::by_key(provider, secret, source)?)
            }
            _ if base_url.is_none() => return Err(ProviderError::MissingKey { provider }),
            _ => None,
        };
        Ok(Self {
            provider,
            url,
            model: model.to_owned(),
            access,
            context_length: None,
            is_agents: false,
        })
    }

    pub(super) fn with_context_length(mut self, tokens: Option<u64>) -> Self {
        self.context_length = tokens;
        self
    }

    /// The same, known to be the model that the agent itself uses.
    pub(super) fn of_the_agent(mut self) -> Self {
        self.is_agents = true;
        self
    }

    /// Whether it is the model that the agent itself uses.
    pub(super) fn is_agents(&self) -> bool {
        self.is_agents
    }

    /// Who answers.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// The model's name, as it is sent.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The model's window in tokens, where the configuration or the agent says it.
    pub fn context_length(&self) -> Option<u64> {
        self.context_length
    }

    /// The address without anything that could be secret: scheme, host, port and path.
    pub fn address(&self) -> String {
        let shown = self.url.to_string();
        match shown.split_once('?') {
            Some((address, _)) => address.to_owned(),
            None => shown,
        }
    }

    pub(super) fn url(&self) -> &Uri {
        &self.url
    }

    pub(super) fn wire(&self) -> Wire {
        wire(self.provider)
    }

    /// The headers that a caller is let in with.
    pub(super) fn headers(&self) -> HeaderMap {
        let access = self.access.as_ref();
        access.map_or_else(HeaderMap::new, |access| access.headers.clone())
    }

    /// Where the key is from, for messages; `None` where none is sent.
    pub(super) fn key_source(&self) -> Option<&'static str> {
        self.access.as_ref().map(|access| access.source)
    }

    /// `text` without the key, for messages that quote a server.
    pub(super) fn without_key(&self, text: &str) -> String {
        let secrets = self.access.iter().flat_map(|access| &access.secrets);
        secrets.fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "[key]")
        })
    }

    /// Whether both name the same model at the same address, regardless of the key.
    pub(super) fn same_model(&self, other: &Self) -> bool {
        self.same_place(other) && self.model == other.model
    }

    /// Whether both are the same API at the same address.
    pub(super) fn same_place(&self, other: &Self) -> bool {
        self.wire() == other.wire() && self.url == other.url
    }

    /// Whether the address is this machine: such a request never goes through a proxy.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.url.host().unwrap_or_default().to_ascii_lowercase();
        let bare = host.trim_matches(['[', ']']);
        host == "localhost"
            || host.ends_with(".localhost")
            || bare
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "model {} of {} at {}",
            self.model,
            self.provider,
            self.address()
        )
    }
}

impl Access {
    fn by_key(
        provider: Provider,
        secret: Secret,
        source: &'static str,
    ) -> Result<Self, ProviderError> {
        let (name, text) = match wire(provider) {
            Wire::OpenAi => (AUTHORIZATION, format!("Bearer {}", secret.expose())),
            Wire::Anthropic => (API_KEY, secret.expose().to_owned()),
        };
        let mut header = HeaderValue::from_str(&text).map_err(|_| ProviderError::UnusableKey {
            source_name: source,
        })?;
        header.set_sensitive(true);
        Ok(Self {
            secrets: vec![secret],
            headers: HeaderMap::from_iter([(name, header)]),
            source,
        })
    }

    /// With the headers of the agent's requests, but for those that are about a body or a connection.
    fn with(headers: &HeaderMap) -> Self {
        let mut headers = headers.clone();
        for name in [HOST, CONTENT_LENGTH, CONTENT_TYPE, ACCEPT, ACCEPT_ENCODING] {
            headers.remove(name);
        }
        let mut secrets = Vec::new();
        for name in [AUTHORIZATION, API_KEY] {
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
                let text = value.to_str().unwrap_or_default();
                secrets.push(Secret::new(text.trim_start_matches("Bearer ")));
            }
        }
        secrets.retain(|secret| !secret.expose().is_empty());
        Self {
            secrets,
            headers,
            source: AGENT_KEY,
        }
    }
}

fn wire(provider: Provider) -> Wire {
    match provider {
        Provider::Anthropic => Wire::Anthropic,
        Provider::OpenAi | Provider::OpenRouter | Provider::Nous => Wire::OpenAi,
    }
}

/// The address of the API call below a base URL. Both conventions are accepted: Anthropic's base with and
/// without `/v1`, and a base that already is the full address.
fn api_url(provider: Provider, base: &str) -> Result<Uri, ProviderError> {
    let base = base.trim();
    let invalid = |reason: String| ProviderError::BaseUrl { reason };
    let no_url = |error: &dyn fmt::Display| {
        invalid(format!(
            "it does not read as a URL ({error}); write it like http://localhost:11434/v1"
        ))
    };
    let url: Uri = base.parse().map_err(|error| no_url(&error))?;
    let (scheme, host) = match (url.scheme_str(), url.authority()) {
        (Some(scheme @ ("http" | "https")), Some(host)) => (scheme, host),
        (Some(scheme), _) => {
            return Err(invalid(format!(
                "`{scheme}` is no scheme for a model server; use http or https"
            )));
        }
        (None, _) => return Err(no_url(&"it does not begin with http:// or https://")),
    };
    if host.as_str().contains('@') {
        return Err(invalid(format!(
            "it holds a user name or password; keys come from the environment ({})",
            provider.key_variable()
        )));
    }
    let path = url.path().trim_end_matches('/');
    let path = match wire(provider) {
        Wire::OpenAi => format!(
            "{}/chat/completions",
            path.trim_end_matches("/chat/completions")
        ),
        Wire::Anthropic => format!(
            "{}/v1/messages",
            path.trim_end_matches("/messages").trim_end_matches("/v1")
        ),
    };
    let query = url
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let call = format!("{scheme}://{host}{path}{query}");
    call.parse().map_err(|error| no_url(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn address(provider: Provider, base: &str) -> String {
        api_url(provider, base).unwrap().to_string()
    }

    #[test]
    fn every_habit_of_writing_a_base_url_leads_to_the_call() {
        for base in [
            "http://localhost:11434/v1",
            "http://localhost:11434/v1/",
            "http://localhost:11434/v1/chat/completions",
        ] {
            assert_eq!(
                address(Provider::OpenAi, base),
                "http://localhost:11434/v1/chat/completions"
            );
        }
        for base in [
            "https://api.anthropic.com",
            "https://api.anthropic.com/v1/",
            "https://api.anthropic.com/v1/messages",
        ] {
            assert_eq!(
                address(Provider::Anthropic, base),
                "https://api.anthropic.com/v1/messages"
            );
        }
        assert_eq!(
            address(Provider::OpenAi, "https://a.example/x?api-version=1#f"),
            "https://a.example/x/chat/completions?api-version=1"
        );
    }

    #[test]
    fn addresses_that_cannot_be_called_are_refused_without_repeating_a_password() {
        for base in ["", "localhost:1234", "file:///etc/passwd", "not a url"] {
            assert!(api_url(Provider::OpenAi, base).is_err(), "{base}");
        }
        let error = api_url(Provider::Nous, "https://me:hunter2@host/v1").unwrap_err();
        assert!(error.to_string().contains("NOUS_API_KEY"));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn this_machine_is_told_from_others() {
        let is_loopback = |base| {
            Endpoint::new(Provider::OpenAi, Some(base), "m", None, &|_| None)
                .unwrap()
                .is_loopback()
        };
        for base in [
            "http://localhost/v1",
            "http://127.3.2.1:80/",
            "http://[::1]:8000",
        ] {
            assert!(is_loopback(base), "{base}");
        }
        for base in [
            "http://localhost.example",
            "http://192.168.0.2",
            "http://127.example",
        ] {
            assert!(!is_loopback(base), "{base}");
        }
    }
}
