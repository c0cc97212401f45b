//! Maps a request to its endpoint and to the upstream address that it is sent to.
//!
//! Agents spell the same endpoint in many ways: with or without a version, below a provider's own path
//! (`/api/paas/v4`), with a double or a trailing slash. The part before the endpoint's name only depends on the
//! client's base URL. It is dropped, and the path of the configured upstream replaces it. See [`Route::of`].

use http::HeaderMap;

use crate::api::{Api, Provider};
use crate::headers;

/// How requests for a path are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Carries conversations. A POST request is a turn.
    Conversation(Api),
    /// Anthropic's endpoint that counts the tokens of a conversation.
    Count,
    /// Passed through unchanged.
    Other,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    /// The provider whose upstream receives the request.
    pub(crate) provider: Provider,
    pub(crate) target: Target,
}

/// The path at the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Below the upstream's base URL with its version: `/chat/completions`.
    Below(String),
    /// Below its base URL without a version: the path as the client wrote it.
    Whole(String),
}

/// OpenAI's endpoint that sums a conversation up.
pub(crate) const COMPACT: &str = "/responses/compact";

/// The endpoints that carry conversations, by the end of their path.
const CONVERSATIONS: [(&str, Endpoint); 5] = [
    ("/chat/completions", Endpoint::Conversation(Api::Chat)),
    ("/responses", Endpoint::Conversation(Api::Responses)),
    (COMPACT, Endpoint::Conversation(Api::Responses)),
    ("/messages/count_tokens", Endpoint::Count),
    ("/messages", Endpoint::Conversation(Api::Messages)),
];

/// Parts of providers' base paths, besides versions, that mean nothing to the upstream.
const DECORATION: [&str; 9] = [
    "api",
    "openai",
    "anthropic",
    "backend-api",
    "codex",
    "paas",
    "coding",
    "compatible-mode",
    "inference",
];

/// The resources of OpenAI's API besides conversations, by the first part of their path. Needed for clients whose base
/// URL has no version.
const RESOURCES: [&str; 10] = [
    "models",
    "embeddings",
    "completions",
    "files",
    "images",
    "audio",
    "moderations",
    "batches",
    "responses",
    "conversations",
];

/// The path prefix of everything but conversations for Codex with a ChatGPT login.
const CHATGPT: &str = "/backend-api/";

/// The path with single slashes and without a trailing one.
pub(crate) fn normalised(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(String::new(), |path, part| path + "/" + part)
}

/// Whether a part of a path is a version: `v1`, `v4`, `v1beta`.
fn is_version(part: &str) -> bool {
    let rest = part.strip_prefix('v');
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

impl Route {
    /// The route of a request.
    ///
    /// | client's path | upstream |
    /// |---|---|
    /// | `/v1/chat/completions`, `/chat/completions`, `/api/v3/chat/completions/` | base + `/chat/completions` |
    /// | `/openai/deployments/NAME/chat/completions` | root + the whole path, because `NAME` matters |
    /// | `/v1/models` | base + `/models` |
    /// | `/v1/threads/ID/messages` | not a conversation: base + the rest |
    /// | `/backend-api/codex/…`, or with `chatgpt-account-id` | ChatGPT's base + the rest |
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        let normal = normalised(path);
        let (endpoint, target) = conversation(&normal)
            .unwrap_or_else(|| (Endpoint::Other, other(path, &normal, headers)));
        let provider = match endpoint {
            Endpoint::Conversation(Api::Messages) | Endpoint::Count => Provider::Anthropic,
            _ if is_chatgpt(&normal, headers) => Provider::ChatGpt,
            Endpoint::Conversation(api) => api.provider(),
            Endpoint::Other => provider_of(&normal, headers),
        };
        Self {
            endpoint,
            provider,
            target,
        }
    }

    /// The API whose format the gateway uses for its own answers.
    pub(crate) fn api(&self) -> Api {
        match (self.endpoint, self.provider) {
            (Endpoint::Conversation(api), _) => api,
            (_, Provider::Anthropic) => Api::Messages,
            (_, Provider::OpenAi) => Api::Chat,
            (_, Provider::ChatGpt) => Api::Responses,
        }
    }
}

fn conversation(path: &str) -> Option<(Endpoint, Target)> {
    CONVERSATIONS.iter().find_map(|(suffix, endpoint)| {
        let prefix = path.strip_suffix(suffix)?;
        let mut parts = prefix.split('/').filter(|part| !part.is_empty());
        if parts
            .clone()
            .all(|part| is_version(part) || DECORATION.contains(&part))
        {
            return Some((*endpoint, Target::Below((*suffix).to_owned())));
        }
        // Other resources have the same name: `/v1/threads/ID/messages`.
        let is_one = *endpoint == Endpoint::Conversation(Api::Chat)
            || parts.next_back().is_some_and(is_version);
        is_one.then(|| (*endpoint, Target::Whole(path.to_owned())))
    })
}

fn other(path: &str, normal: &str, headers: &HeaderMap) -> Target {
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

/// Whether a request comes from Codex with a ChatGPT login, whose credentials are for ChatGPT's own host. Such a
/// request names the account, asks for a path that only ChatGPT has, or is from Codex with a login token instead of an
/// API key.
fn is_chatgpt(path: &str, headers: &HeaderMap) -> bool {
    let is_codex = headers::text(headers, "originator").is_some_and(|it| it.starts_with("codex"))
        || headers::text(headers, "user-agent").is_some_and(|it| it.starts_with("codex"));
    // Every JSON Web Token begins with the Base64 of `{"`.
    let has_login = bearer(headers).is_some_and(|token| token.starts_with("eyJ"));
    path.starts_with(CHATGPT)
        || headers.contains_key("chatgpt-account-id")
        || (is_codex && has_login)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers::text(headers, "authorization")?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The provider for a path that several providers have.
fn provider_of(path: &str, headers: &HeaderMap) -> Provider {
    let is_anthropic = path.starts_with("/v1/messages")
        // Claude Code's reachability check.
        || path == "/api/hello"
        || headers.contains_key("anthropic-version")
        || headers.contains_key("x-api-key")
        || bearer(headers).is_some_and(|token| token.starts_with("sk-ant-"))
        || headers::text(headers, "user-agent").is_some_and(|agent| agent.starts_with("claude"));
    match is_anthropic {
        true => Provider::Anthropic,
        false => Provider::OpenAi,
    }
}

/// A provider's configured address, and the key that replaces the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upstream {
    /// The base URL without a version at its end.
    root: String,
    /// The base URL with its version. The endpoint's name follows it.
    base: String,
    pub(crate) key: Option<String>,
    /// Whether the configuration or the environment names it.
    pub(crate) is_named: bool,
}

impl Upstream {
    /// The upstream at this base URL, or at the provider's usual one.
    ///
    /// The place of the version follows the SDKs' conventions. OpenAI's SDK appends the endpoint's name directly to the
    /// base URL, so `/v1` is added only if the URL has no path. Anthropic's SDK always appends `/v1`, so it is added
    /// unless the URL already ends with a version.
    pub(crate) fn new(provider: Provider, named: Option<&str>, key: Option<String>) -> Self {
        let given = named.unwrap_or(provider.usual_address());
        let given = given.trim().trim_end_matches('/');
        let path = given.split_once("://").map_or(given, |(_, rest)| rest);
        let path = path.split_once('/').map_or("", |(_, path)| path);
        let ends_with_version = path.rsplit('/').next().is_some_and(is_version);
        let root = match provider {
            Provider::ChatGpt => {
                let root = given.strip_suffix("/codex").unwrap_or(given);
                root.strip_suffix("/backend-api").unwrap_or(root)
            }
            _ => given.strip_suffix("/v1").unwrap_or(given),
        };
        let base = match provider {
            Provider::ChatGpt => given.to_owned(),
            Provider::OpenAi if !path.is_empty() => given.to_owned(),
            Provider::Anthropic if ends_with_version => given.to_owned(),
            Provider::OpenAi | Provider::Anthropic => format!("{given}/v1"),
        };
        Self {
            root: root.to_owned(),
            base,
            key,
            is_named: named.is_some(),
        }
    }

    /// The upstream URL of a request, with its query.
    pub(crate) fn url(&self, target: &Target, query: &str) -> String {
        match target {
            Target::Below(path) => format!("{}{path}{query}", self.base),
            Target::Whole(path) => format!("{}{path}{query}", self.root),
        }
    }

    /// The base URL.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn url(
        provider: Provider,
        base: &str,
        path: &str,
        header: Option<(&'static str, &str)>,
    ) -> String {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        let route = Route::of(path, &headers);
        assert_eq!(route.provider, provider, "{path}");
        Upstream::new(provider, Some(base), None).url(&route.target, "?q=1")
    }

    #[test]
    fn whatever_the_client_writes_the_upstream_is_asked_as_it_is_configured() {
        let openai = ["/chat/completions", "/responses"];
        let before = [
            "",
            "/v1",
            "/api/v1",
            "/openai/v1",
            "/api/paas/v4",
            "/v1beta/openai",
            "//v1",
            "/v1/v1",
        ];
        // Each base URL with its expected result.
        let bases = [
            ("http://u", "http://u/v1"),
            ("http://u/", "http://u/v1"),
            ("http://u/v1", "http://u/v1"),
            ("http://u/v1//", "http://u/v1"),
            ("http://u:8/api/paas/v4", "http://u:8/api/paas/v4"),
            ("https://u/v1beta/openai/", "https://u/v1beta/openai"),
            ("https://u/api/v3", "https://u/api/v3"),
            ("https://u/openai", "https://u/openai"),
        ];
        for (given, base) in bases {
            for (endpoint, before) in openai.iter().flat_map(|e| before.map(|b| (e, b))) {
                for after in ["", "/", "//"] {
                    let path = format!("{before}{endpoint}{after}").replacen("/c", "//c", 1);
                    let asked = url(Provider::OpenAi, given, &path, None);
                    assert_eq!(asked, format!("{base}{endpoint}?q=1"), "{given} {path}");
                }
            }
        }
        for (given, base) in [
            ("http://u", "http://u/v1"),
            ("http://u/v1", "http://u/v1"),
            ("https://u/api/anthropic/", "https://u/api/anthropic/v1"),
            ("https://u/api", "https://u/api/v1"),
        ] {
            for path in [
                "/v1/messages",
                "/messages",
                "/v1//messages/",
                "/anthropic/v1/messages",
            ] {
                let asked = url(Provider::Anthropic, given, path, None);
                assert_eq!(asked, format!("{base}/messages?q=1"), "{given} {path}");
            }
        }
    }

    #[test]
    fn what_is_no_conversation_keeps_its_path() {
        let key = Some(("x-api-key", "k"));
        let account = Some(("chatgpt-account-id", "a"));
        let chatgpt = "http://c/backend-api/codex";
        for (provider, base, path, header, asked) in [
            (
                Provider::OpenAi,
                "http://u/v1",
                "/v1/models",
                None,
                "http://u/v1/models",
            ),
            (
                Provider::OpenAi,
                "http://u/api/v4",
                "/v1/models",
                None,
                "http://u/api/v4/models",
            ),
            (
                Provider::OpenAi,
                "http://u/api/v4",
                "/models",
                None,
                "http://u/api/v4/models",
            ),
            (
                Provider::OpenAi,
                "http://u/v1",
                "/api/show",
                None,
                "http://u/api/show",
            ),
            (
                Provider::OpenAi,
                "http://u/v1",
                "/v1/threads/t/messages",
                None,
                "http://u/v1/threads/t/messages",
            ),
            (
                Provider::OpenAi,
                "http://u",
                "/openai/deployments/d/chat/completions",
                None,
                "http://u/openai/deployments/d/chat/completions",
            ),
            (
                Provider::Anthropic,
                "http://u",
                "/v1/models",
                key,
                "http://u/v1/models",
            ),
            (
                Provider::Anthropic,
                "http://u",
                "/v1/messages/batches",
                None,
                "http://u/v1/messages/batches",
            ),
            (
                Provider::ChatGpt,
                chatgpt,
                "/v1/responses",
                account,
                "http://c/backend-api/codex/responses",
            ),
            (
                Provider::ChatGpt,
                chatgpt,
                "/backend-api/codex/responses",
                None,
                "http://c/backend-api/codex/responses",
            ),
            (
                Provider::ChatGpt,
                chatgpt,
                "/v1/models",
                account,
                "http://c/backend-api/codex/models",
            ),
            (
                Provider::ChatGpt,
                chatgpt,
                "/backend-api/wham/usage",
                None,
                "http://c/backend-api/wham/usage",
            ),
            (
                Provider::ChatGpt,
                "http://c/x",
                "/backend-api/codex/models",
                None,
                "http://c/x/models",
            ),
        ] {
            assert_eq!(url(provider, base, path, header), format!("{asked}?q=1"));
        }
    }

    #[test]
    fn a_login_of_codex_is_known_by_what_it_sends() {
        let headers = |all: &[(&'static str, &'static str)]| -> HeaderMap {
            all.iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect()
        };
        for (all, provider) in [
            (&[("chatgpt-account-id", "a")][..], Provider::ChatGpt),
            (
                &[
                    ("originator", "codex_cli_rs"),
                    ("authorization", "Bearer eyJhbGci"),
                ],
                Provider::ChatGpt,
            ),
            (
                &[
                    ("user-agent", "codex_exec/0.169.0"),
                    ("authorization", "bearer eyJhbGci"),
                ],
                Provider::ChatGpt,
            ),
            (
                &[
                    ("originator", "codex_exec"),
                    ("authorization", "Bearer sk-proj"),
                ],
                Provider::OpenAi,
            ),
            // A company's gateway may use such tokens, too.
            (&[("authorization", "Bearer eyJhbGci")], Provider::OpenAi),
        ] {
            assert_eq!(
                Route::of("/v1/responses", &headers(all)).provider,
                provider,
                "{all:?}"
            );
        }
    }
}
