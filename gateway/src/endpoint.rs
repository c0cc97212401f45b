//! Maps a request to its endpoint and to the upstream address that it is sent to.
//!
//! Agents spell the same endpoint in many ways: with or without a version, below a provider's own
//! path (`/api/paas/v4`), with a double or a trailing slash. The part before the endpoint's name
//! only depends on the client's base URL. It is dropped, and the path of the configured upstream
//! replaces it. See [`Route::of`].
//!
//! Azure OpenAI has two kinds of paths. `/openai/v1/…` is like OpenAI's own. In
//! `/openai/deployments/NAME/chat/completions`, the name of the deployment matters, so the path is
//! passed on whole.
//!
//! Gemini's paths name the model and what to do with it: `/v1beta/models/NAME:generateContent`, and on
//! Vertex AI `/v1/projects/…/models/NAME:generateContent`. They are passed on from their version on.
//! Google serves OpenAI's API as well, below `/v1beta/openai`, and such a path is passed on whole.

use http::header::{AUTHORIZATION, HeaderMap, HeaderName};

use crate::api::{Api, Provider};
use crate::headers::{self, API_KEY, GOOGLE_KEY, X_API_KEY};

/// How the gateway handles requests for a path. It depends on the end of the path only, because
/// agents write the rest in many ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Carries conversations in the format of this API. A POST request is a turn.
    Conversation(Api),
    /// Counts the tokens of a conversation in the format of this API without sending it to a model.
    Count(Api),
    Other,
}

impl Endpoint {
    /// The endpoint's name in metrics and traces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Conversation(api) => api.name(),
            Self::Count(_) => "count_tokens",
            Self::Other => "other",
        }
    }
}

/// Where a request goes: its endpoint, the provider, and the path there. [`Route::of`] computes it
/// from the path and the headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    /// The provider whose upstream receives the request, and whose key may be added.
    pub(crate) provider: Provider,
    pub(crate) target: Target,
}

/// The path at the upstream, relative to one of its two base URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A path below the base URL with its version, such as `/chat/completions`.
    Below(String),
    /// A path below the base URL without a version, as the client wrote it.
    Whole(String),
}

/// OpenAI's endpoint that summarizes a conversation. Its answer is an encrypted block.
pub(crate) const COMPACT: &str = "/responses/compact";

/// The endpoints that carry conversations, by the end of their path. A longer suffix has to precede
/// a shorter one that it ends with.
const CONVERSATIONS: [(&str, Endpoint); 6] = [
    ("/chat/completions", Endpoint::Conversation(Api::Chat)),
    ("/responses", Endpoint::Conversation(Api::Responses)),
    (COMPACT, Endpoint::Conversation(Api::Responses)),
    ("/responses/input_tokens", Endpoint::Count(Api::Responses)),
    ("/messages/count_tokens", Endpoint::Count(Api::Messages)),
    ("/messages", Endpoint::Conversation(Api::Messages)),
];

/// Parts of providers' base paths that mean nothing to the upstream, apart from versions. Clients
/// with such a base URL ask for the same endpoint.
const BASE_PATH_PARTS: [&str; 9] = [
    "api", "openai", "anthropic", "backend-api", "codex", "paas", "coding", "compatible-mode",
    "inference",
];

/// The resources of OpenAI's API apart from conversations, by the first part of their path. They
/// are needed for clients whose base URL has no version.
const RESOURCES: [&str; 10] = [
    "models", "embeddings", "completions", "files", "images", "audio", "moderations", "batches",
    "responses", "conversations",
];

/// The path prefix of everything except conversations, if Codex uses a ChatGPT login.
const CHATGPT: &str = "/backend-api/";

/// What the paths of the Gemini API end with, after the name of the model and a colon.
const METHODS: [(&str, Endpoint); 3] = [
    ("generateContent", Endpoint::Conversation(Api::Gemini)),
    (STREAM, Endpoint::Conversation(Api::Gemini)),
    ("countTokens", Endpoint::Count(Api::Gemini)),
];

/// The parts of Gemini's paths that precede the name of a model.
const GEMINI_MODELS: [&str; 3] = ["models", "tunedModels", "endpoints"];
/// The parts of Gemini's paths that follow their version.
const GEMINI_ROOTS: [&str; 4] = ["models", "tunedModels", "projects", "publishers"];

/// The method of the Gemini API that streams its answer.
const STREAM: &str = "streamGenerateContent";

/// Whether a path asks the Gemini API for a stream. Its query says in which form.
pub(crate) fn is_gemini_stream(path: &str) -> bool {
    let method = path.trim_end_matches('/').rsplit(':').next();
    method == Some(STREAM)
}

/// The model that the path of a URL names: a model of the Gemini API, or a deployment of Azure
/// OpenAI. It counts if the body names no model.
pub(crate) fn model_in(url: &str) -> Option<&str> {
    let path = url.split('?').next()?;
    let is_before = |part: &&str| *part == "deployments" || GEMINI_MODELS.contains(part);
    let mut parts = path.split('/').skip_while(|part| !is_before(part));
    let name = parts.nth(1)?.split(':').next()?;
    (!name.is_empty()).then_some(name)
}

/// Takes a credential out of a query, if the client sends it there and not in a header. Google's
/// APIs know each parameter with a `$` before its name, too. Returns the query without it, and the
/// credential. A query is part of URLs, which must not contain a credential.
pub(crate) fn without_credential(query: &str, name: &str) -> (String, Option<String>) {
    if query.is_empty() {
        return (String::new(), None);
    }
    let value_of = |pair: &str| {
        let url = reqwest::Url::parse(&format!("http://q/?{pair}")).ok()?;
        let (named, value) = url.query_pairs().next()?;
        let is_it = named.trim_start_matches('$').eq_ignore_ascii_case(name);
        is_it.then(|| value.into_owned())
    };
    let (mut rest, mut found) = (Vec::new(), None);
    for pair in query.split('&') {
        match value_of(pair) {
            Some(value) => found = found.or(Some(value).filter(|value| !value.is_empty())),
            None => rest.push(pair),
        }
    }
    (rest.join("&"), found)
}

/// The path with single slashes and without a trailing one. The root becomes an empty string.
pub(crate) fn normalised(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(String::new(), |path, part| path + "/" + part)
}

/// Whether a path may lead out of the base path of an upstream: it does not begin with a slash, or
/// has a backslash or a segment `.` or `..` in any encoding. URL parsers resolve such segments and
/// take a backslash for a slash, and an upstream may decode a slash before it resolves them.
pub(crate) fn may_leave_base(path: &str) -> bool {
    let mut decoded = path.to_ascii_lowercase();
    for (encoded, plain) in [("%2e", "."), ("%2f", "/"), ("%5c", "\\")] {
        decoded = decoded.replace(encoded, plain);
    }
    let mut segments = decoded.split(['/', '\\']);
    !path.starts_with('/')
        || path.contains('\\')
        || segments.any(|segment| matches!(segment, "." | ".."))
}

/// Whether a part of a path is a version, such as `v1`, `v4` or `v1beta`.
fn is_version(part: &str) -> bool {
    let rest = part.strip_prefix('v');
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl Route {
    /// The route of a request, by its path and headers. Every path has a route, because unknown
    /// ones are passed on.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let normal = normalised(path);
        let is_openai_of_google = is_openai_of_google(&normal);
        let (endpoint, target) = match conversation(&normal) {
            Some((endpoint, _)) if is_openai_of_google => (endpoint, Target::Whole(normal.clone())),
            found => found
                .or_else(|| gemini(&normal))
                .unwrap_or_else(|| (Endpoint::Other, other(path, &normal, headers))),
        };
        let provider = match endpoint {
            _ if is_openai_of_google => Provider::Google,
            Endpoint::Conversation(api @ (Api::Messages | Api::Gemini))
            | Endpoint::Count(api @ (Api::Messages | Api::Gemini)) => api.provider(),
            _ if is_chatgpt(&normal, headers) => Provider::ChatGpt,
            Endpoint::Conversation(api) | Endpoint::Count(api) => api.provider(),
            Endpoint::Other => provider_of(&normal, headers),
        };
        Self {
            endpoint,
            provider,
            target,
        }
    }

    /// The API whose format the gateway uses for its own errors. For other endpoints it depends on
    /// the provider.
    pub(crate) fn api(&self) -> Api {
        match (self.endpoint, self.provider) {
            (Endpoint::Conversation(api) | Endpoint::Count(api), _) => api,
            (_, Provider::Google) => Api::Gemini,
            (_, Provider::Anthropic) => Api::Messages,
            (_, Provider::OpenAi) => Api::Chat,
            (_, Provider::ChatGpt) => Api::Responses,
        }
    }
}

/// The endpoint and upstream path of a conversation, or None if the path is not one.
fn conversation(path: &str) -> Option<(Endpoint, Target)> {
    CONVERSATIONS.iter().find_map(|(suffix, endpoint)| {
        let prefix = path.strip_suffix(suffix)?;
        let mut parts = prefix.split('/').filter(|part| !part.is_empty());
        if parts
            .clone()
            .all(|part| is_version(part) || BASE_PATH_PARTS.contains(&part))
        {
            return Some((*endpoint, Target::Below((*suffix).to_owned())));
        }
        // Other resources end with the same name, such as `/v1/threads/ID/messages`.
        let is_one = *endpoint == Endpoint::Conversation(Api::Chat)
            || parts.next_back().is_some_and(is_version);
        is_one.then(|| (*endpoint, Target::Whole(path.to_owned())))
    })
}

/// The endpoint and upstream path of a request for the Gemini API that carries a conversation, or
/// None if the path is not one.
fn gemini(path: &str) -> Option<(Endpoint, Target)> {
    let (named, method) = path.rsplit_once(':')?;
    let (_, endpoint) = METHODS.iter().find(|(name, _)| *name == method)?;
    let parts: Vec<&str> = named.split('/').collect();
    let before = parts.len().checked_sub(2).and_then(|at| parts.get(at))?;
    if !GEMINI_MODELS.contains(before) {
        return None;
    }
    let root = parts.iter().position(|part| GEMINI_ROOTS.contains(part))?;
    let version = root
        .checked_sub(1)
        .filter(|at| parts.get(*at).is_some_and(|part| is_version(part)));
    let below = |from: usize| format!("/{}:{method}", parts.get(from..).unwrap_or(&[]).join("/"));
    Some(match version {
        Some(version) => (*endpoint, Target::Whole(below(version))),
        None => (*endpoint, Target::Below(below(root))),
    })
}

/// The upstream path for an endpoint without conversations. The version is dropped, because the
/// configured base URL has its own. Google's resources exist in some versions only, so theirs stays.
fn other(path: &str, normal: &str, headers: &HeaderMap) -> Target {
    if provider_of(normal, headers) == Provider::Google {
        return Target::Whole(path.to_owned());
    }
    if let Some(rest) = normal.strip_prefix("/backend-api/codex/") {
        return Target::Below(format!("/{rest}"));
    }
    if let Some(rest) = path.strip_prefix("/v1/") {
        return Target::Below(format!("/{rest}"));
    }
    let first = normal.split('/').nth(1).unwrap_or_default();
    let is_resource = RESOURCES.contains(&first);
    match is_resource && provider_of(normal, headers) == Provider::OpenAi {
        true => Target::Below(path.to_owned()),
        false => Target::Whole(path.to_owned()),
    }
}

/// Whether a request comes from Codex with a ChatGPT login, whose credentials are valid only at
/// ChatGPT's own host. Such a request names the account, asks for a path that only ChatGPT has, or
/// is from Codex with a login token instead of an API key.
fn is_chatgpt(path: &str, headers: &HeaderMap) -> bool {
    let is_codex = headers::text(headers, "originator").is_some_and(|it| it.starts_with("codex"))
        || headers::text(headers, "user-agent").is_some_and(|it| it.starts_with("codex"));
    // Every JSON Web Token begins with the Base64 of `{"`.
    let has_login = bearer(headers).is_some_and(|token| token.starts_with("eyJ"));
    path.starts_with(CHATGPT)
        || headers.contains_key("chatgpt-account-id")
        || (is_codex && has_login)
}

/// The token of an `authorization` header with the scheme `Bearer`. None if there is none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers::text(headers, "authorization")?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a path is below the one at which Google serves OpenAI's API.
fn is_openai_of_google(path: &str) -> bool {
    path.starts_with("/v1beta/openai/")
}

/// Whether a request without a conversation is for Google. Its paths have versions that no other
/// provider has.
fn is_google(path: &str, headers: &HeaderMap) -> bool {
    let own = [
        "/v1beta/", "/v1beta1/", "/v1alpha/", "/upload/v1beta/", "/download/v1beta/",
    ];
    let is_path = own.iter().any(|start| path.starts_with(start));
    let methods = [":embedContent", ":batchEmbedContents"];
    is_path
        || path.contains("/publishers/google/")
        || methods.iter().any(|method| path.ends_with(method))
        || headers.contains_key("x-goog-api-key")
        || headers.contains_key("x-goog-api-client")
}

/// The provider for a path that several providers have, such as `/v1/models`. Anthropic's and
/// Google's clients are recognized by their headers. All others are taken for OpenAI's.
fn provider_of(path: &str, headers: &HeaderMap) -> Provider {
    let is_anthropic = path.starts_with("/v1/messages")
        // Claude Code asks for this path to check whether the host is reachable.
        || path == "/api/hello"
        || headers.contains_key("anthropic-version")
        || headers.contains_key("x-api-key")
        || bearer(headers).is_some_and(|token| token.starts_with("sk-ant-"))
        || headers::text(headers, "user-agent").is_some_and(|agent| agent.starts_with("claude"));
    match is_anthropic {
        true => Provider::Anthropic,
        false if is_google(path, headers) => Provider::Google,
        false => Provider::OpenAi,
    }
}

/// How the hosts of Azure OpenAI end.
const AZURE: [&str; 3] = [
    ".openai.azure.com",
    ".cognitiveservices.azure.com",
    ".services.ai.azure.com",
];

/// A provider's address and the key that replaces the client's credentials. Both come from the
/// configuration, and the address from the environment if the configuration names none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// The base URL without a version at its end, for [`Target::Whole`].
    root: String,
    /// The base URL with its version, for [`Target::Below`]. If the provider's URLs have none, it
    /// equals `root`.
    base: String,
    pub(crate) key: Option<String>,
    pub(crate) is_named: bool,
}

impl Upstream {
    /// The upstream at this base URL, or at the provider's usual one if none is named.
    pub(crate) fn new(provider: Provider, named: Option<&str>, key: Option<String>) -> Self {
        let given = named.unwrap_or(provider.usual_address());
        let given = given.trim().trim_end_matches('/');
        let path = given.split_once("://").map_or(given, |(_, rest)| rest);
        let path = path.split_once('/').map_or("", |(_, path)| path);
        let ends_with_version = path.rsplit('/').next().is_some_and(is_version);
        let root = match provider {
            Provider::ChatGpt => {
                // The client's path repeats these parts of ChatGPT's base URL.
                let root = given.strip_suffix("/codex").unwrap_or(given);
                root.strip_suffix("/backend-api").unwrap_or(root)
            }
            Provider::Google if ends_with_version => {
                given.rsplit_once('/').map_or(given, |(root, _)| root)
            }
            _ => given.strip_suffix("/v1").unwrap_or(given),
        };
        let base = match provider {
            Provider::ChatGpt => given.to_owned(),
            Provider::OpenAi if !path.is_empty() => given.to_owned(),
            Provider::Anthropic | Provider::Google if ends_with_version => given.to_owned(),
            Provider::Google => format!("{given}/v1beta"),
            Provider::OpenAi | Provider::Anthropic => format!("{given}/v1"),
        };
        Self {
            root: root.to_owned(),
            base,
            key,
            is_named: named.is_some(),
        }
    }

    /// The upstream URL of a request, with its query. `query` begins with its question mark, or is
    /// empty.
    pub(crate) fn url(&self, target: &Target, query: &str) -> String {
        match target {
            Target::Below(path) => format!("{}{path}{query}", self.base),
            Target::Whole(path) => {
                // A base URL of Azure OpenAI ends with what its paths begin with.
                let root = match path.starts_with("/openai/") {
                    true => self.root.strip_suffix("/openai").unwrap_or(&self.root),
                    false => &self.root,
                };
                format!("{root}{path}{query}")
            }
        }
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The header in which the provider takes an API key. Azure takes a key only in its own header,
    /// and `Authorization` for tokens of a login.
    pub(crate) fn key_header(&self, provider: Provider) -> HeaderName {
        let (_, host) = self.base.split_once("://").unwrap_or(("", &self.base));
        let host = host.split(['/', ':']).next().unwrap_or_default();
        let is_azure = AZURE.iter().any(|suffix| host.ends_with(suffix));
        match provider {
            _ if is_azure => API_KEY,
            Provider::Anthropic => X_API_KEY,
            Provider::Google => GOOGLE_KEY,
            Provider::OpenAi | Provider::ChatGpt => AUTHORIZATION,
        }
    }
}

#[cfg(test)]
mod tests;
