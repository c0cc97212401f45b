//! The address and the credentials of a model.
//!
//! [`Endpoint`] is one model at one address, checked and ready to be called. [`Endpoint::new`]
//! accepts every common way to write a base URL, finds the key, and refuses what cannot work before
//! any call is made.
//!
//! A key must not leak. It is kept in headers that are marked as sensitive, is never part of an
//! address, and is removed from every text of a server that a message quotes
//! ([`Endpoint::without_key`]).
//!
//! Which endpoint is asked is decided in `resolve`. Requests and answers are left to `network`.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use http::Uri;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue,
};

use super::settings::{Credentials, Provider, ProviderError, Secret};

/// The format of a provider's requests and answers. Every provider but Anthropic and Google speaks
/// OpenAI's chat completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiFormat {
    OpenAi,
    Anthropic,
    Gemini,
}

/// One model at one address. `Display` prints it without the key and without the query, which may
/// hold one.
#[derive(Debug, Clone)]
pub struct Endpoint {
    provider: Provider,
    url: Uri,
    model: String,
    access: Option<Access>,
    context_length: Option<u64>,
    is_agents: bool,
}

#[derive(Debug, Clone)]
struct Access {
    /// The keys in the headers, to remove them from quoted texts.
    secrets: Vec<Secret>,
    /// Headers with a key are marked as sensitive, so that no HTTP library logs them.
    headers: HeaderMap,
    /// Where the credentials come from, for messages: the name of an environment variable, or the
    /// agent.
    source: &'static str,
}

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

const AGENT_KEY: &str = "the agent's own key";

impl Endpoint {
    /// Creates the endpoint of `provider`, at its own address or at `base_url`. If no `credentials`
    /// are given, the key is read from `env`. Only at a `base_url` may the key be missing, because
    /// local servers need none.
    ///
    /// # Errors
    /// Returns [`ProviderError`] if the address cannot be called, or the key is missing or cannot
    /// be sent.
    pub(super) fn new(
        provider: Provider,
        base_url: Option<&str>,
        model: &str,
        credentials: Option<&Credentials>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderError> {
        let base = base_url.unwrap_or(provider.default_base_url());
        let url = api_url(provider, base, model)?;
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

    /// Marks the endpoint as the model that the agent itself uses, so that questions may continue
    /// the agent's conversation.
    pub(super) fn of_the_agent(mut self) -> Self {
        self.is_agents = true;
        self
    }

    /// Whether this is the model that the agent itself uses, so that its prompt cache can be
    /// shared.
    pub(super) fn is_agents(&self) -> bool {
        self.is_agents
    }

    /// Returns the provider whose API is called. At a custom address this is the API that the
    /// server imitates, not who runs it.
    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Returns the model's name, as it is sent. An answer may name a more specific one, such as a
    /// dated version.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the model's window in tokens, if the configuration or the agent gives it or the
    /// provider's usual model is asked.
    pub fn context_length(&self) -> Option<u64> {
        self.context_length
    }

    /// Returns the address without anything that may be secret: scheme, host, port and path.
    pub fn address(&self) -> String {
        let shown = self.url.to_string();
        match shown.split_once('?') {
            Some((address, _)) => address.to_owned(),
            None => shown,
        }
    }

    /// Returns a text that changes with the address and the keys. It is too short to guess a key by.
    pub fn fingerprint(&self) -> String {
        let secrets = self.access.iter().flat_map(|access| &access.secrets);
        let mut hasher = DefaultHasher::new();
        self.url.to_string().hash(&mut hasher);
        secrets.for_each(|secret| secret.expose().hash(&mut hasher));
        format!("{:08x}", hasher.finish() as u32)
    }

    pub(super) fn url(&self) -> &Uri {
        &self.url
    }

    pub(super) fn api_format(&self) -> ApiFormat {
        api_format(self.provider)
    }

    /// Returns the headers that carry the credentials. Empty if there are none, as for a local
    /// server.
    pub(super) fn headers(&self) -> HeaderMap {
        let access = self.access.as_ref();
        access.map_or_else(HeaderMap::new, |access| access.headers.clone())
    }

    /// Returns where the key comes from, for messages. `None` if no key is sent.
    pub(super) fn key_source(&self) -> Option<&'static str> {
        self.access.as_ref().map(|access| access.source)
    }

    /// Returns `text` with every key in it replaced. Use it for any text of a server that a message
    /// quotes, because servers echo keys in their errors.
    pub(super) fn without_key(&self, text: &str) -> String {
        let secrets = self.access.iter().flat_map(|access| &access.secrets);
        secrets.fold(text.to_owned(), |text, secret| {
            text.replace(secret.expose(), "[key]")
        })
    }

    /// Whether both are the same model at the same address. The credentials may differ.
    pub(super) fn same_model(&self, other: &Self) -> bool {
        self.same_place(other) && self.model == other.model
    }

    /// Whether both are the same API at the same address. The models and credentials may differ.
    pub(super) fn same_place(&self, other: &Self) -> bool {
        self.api_format() == other.api_format() && self.url == other.url
    }

    /// Whether the address is this machine. Requests to it never go through a proxy, which could
    /// not reach it.
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
    /// Creates the header that carries a key, in the form that the provider expects.
    ///
    /// # Errors
    /// The key has characters that a header cannot hold.
    fn by_key(
        provider: Provider,
        secret: Secret,
        source: &'static str,
    ) -> Result<Self, ProviderError> {
        let (name, text) = match api_format(provider) {
            ApiFormat::OpenAi => (AUTHORIZATION, format!("Bearer {}", secret.expose())),
            ApiFormat::Anthropic => (API_KEY, secret.expose().to_owned()),
            ApiFormat::Gemini => (GOOGLE_KEY, secret.expose().to_owned()),
        };
        let mut header = HeaderValue::from_str(&text).map_err(|_| {
            ProviderError::Unusable(format!(
                "{source} holds characters that a key cannot have (such as a line break): set it again"
            ))
        })?;
        header.set_sensitive(true);
        Ok(Self {
            secrets: vec![secret],
            headers: HeaderMap::from_iter([(name, header)]),
            source,
        })
    }

    /// Takes over the headers of the agent's requests, except those that describe a body or a
    /// connection.
    fn with(headers: &HeaderMap) -> Self {
        let mut headers = headers.clone();
        for name in [HOST, CONTENT_LENGTH, CONTENT_TYPE, ACCEPT, ACCEPT_ENCODING] {
            headers.remove(name);
        }
        let mut secrets = Vec::new();
        for name in [AUTHORIZATION, API_KEY, GOOGLE_KEY] {
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
                let text = value.to_str().unwrap_or_default();
                secrets.push(Secret::new(text.trim_start_matches("Bearer ")));
            }
        }
        // Replacing an empty text would insert the placeholder between all characters.
        secrets.retain(|secret| !secret.expose().is_empty());
        Self {
            secrets,
            headers,
            source: AGENT_KEY,
        }
    }
}

fn api_format(provider: Provider) -> ApiFormat {
    match provider {
        Provider::Anthropic => ApiFormat::Anthropic,
        Provider::Google => ApiFormat::Gemini,
        Provider::OpenAi | Provider::OpenRouter | Provider::Nous => ApiFormat::OpenAi,
    }
}

/// Returns the address of the API call below a base URL. All conventions are accepted: Anthropic's
/// and Google's base with and without a version, and a base that is the full address already. A
/// query is kept, because some servers need an API version in it. Google's says in which form a
/// stream is wanted, and no stream is.
///
/// # Errors
/// The text is not an HTTP address, or contains a user name or password.
fn api_url(provider: Provider, base: &str, model: &str) -> Result<Uri, ProviderError> {
    let base = base.trim();
    let invalid =
        |reason: String| ProviderError::Unusable(format!("`base_url` cannot be used: {reason}"));
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
                "`{scheme}` is not a scheme of a model server; use http or https"
            )));
        }
        (None, _) => return Err(no_url(&"it does not begin with http:// or https://")),
    };
    // The message must not repeat the address: it holds the password. A key in an address would
    // also end up in logs.
    if host.as_str().contains('@') {
        return Err(invalid(format!(
            "it holds a user name or password; keys come from the environment ({})",
            provider.key_variable()
        )));
    }
    let path = url.path().trim_end_matches('/');
    let path = match api_format(provider) {
        ApiFormat::OpenAi => format!(
            "{}/chat/completions",
            path.trim_end_matches("/chat/completions")
        ),
        ApiFormat::Anthropic => format!(
            "{}/v1/messages",
            path.trim_end_matches("/messages").trim_end_matches("/v1")
        ),
        ApiFormat::Gemini => {
            let (base, name) = path.split_once("/models/").unwrap_or((path, model));
            let version = base.rsplit('/').next().unwrap_or_default();
            let number = version.strip_prefix('v').unwrap_or_default();
            // On Vertex AI, the version is followed by the project.
            let is_versioned = number.starts_with(|first: char| first.is_ascii_digit())
                || base.contains("/publishers/");
            let version = if is_versioned { "" } else { "/v1beta" };
            let name = name.split(':').next().unwrap_or_default();
            format!("{base}{version}/models/{name}:generateContent")
        }
    };
    let options = url.query().unwrap_or_default().split('&');
    let options: Vec<&str> = options.filter(|option| *option != "alt=sse").collect();
    let query = match options.join("&").as_str() {
        "" => String::new(),
        query => format!("?{query}"),
    };
    let call = format!("{scheme}://{host}{path}{query}");
    call.parse().map_err(|error| no_url(&error))
}

#[cfg(test)]
mod tests;
