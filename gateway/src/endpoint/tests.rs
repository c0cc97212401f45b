#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn url(provider: Provider, base: &str, path: &str, header: Option<(&'static str, &str)>) -> String {
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
        "", "/v1", "/api/v1", "/openai/v1", "/api/paas/v4", "//v1", "/v1/v1",
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

/// Segments that mean something in a path, in the spellings of URL parsers and of upstreams.
fn segments() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[.]{1,3}",
        3 => "(%2e|%2E|[.]){1,3}",
        1 => "(%2e|[.]){2}(%2f|%2F|%5c|%5C|\\\\)(%2e|[.]){2}",
        1 => Just("\\".to_owned()),
        4 => prop_oneof![
            Just("v1"), Just("openai"), Just("models"), Just("x"), Just(""), Just("backend-api"),
            Just("codex"), Just("chat"), Just("completions"), Just("messages"), Just("v1beta"),
            Just("m:generateContent"), Just("ft:a..b"),
        ].prop_map(str::to_owned),
    ]
}

proptest! {
    /// A key of the gateway's own is for the base path that is configured for it.
    #[test]
    fn a_path_that_is_passed_on_stays_below_the_base_path(
        parts in proptest::collection::vec(segments(), 0..9),
        provider in 0..Provider::ALL.len(),
        base in prop_oneof![Just("team/a/v4"), Just("team/openai"), Just("team/openai/v1")],
    ) {
        let path = format!("/{}", parts.join("/"));
        let route = Route::of(&path, &HeaderMap::new());
        let upstream = Upstream::new(Provider::ALL[provider], Some(&format!("http://u/{base}")), None);
        let url = reqwest::Url::parse(&upstream.url(&route.target, "")).unwrap();
        // An upstream may decode a slash before it resolves segments.
        let decoded = ["%2f", "%2F", "%5c", "%5C"].iter().fold(url.to_string(), |url, slash| url.replace(slash, "/"));
        let is_below = |url: &reqwest::Url| url.host_str() == Some("u") && url.path().starts_with("/team");
        let stays = is_below(&url) && is_below(&reqwest::Url::parse(&decoded).unwrap());
        prop_assert!(stays || may_leave_base(&path), "{path} {url}");
        let is_plain = !path.contains(['%', '\\']) && !parts.iter().any(|part| part == "." || part == "..");
        prop_assert!(!is_plain || !may_leave_base(&path), "{path}");
    }
}

#[test]
fn azure_is_asked_for_the_deployment_that_the_client_names() {
    let path = "/openai/deployments/gpt-4o/chat/completions";
    let host = "https://r.openai.azure.com";
    for base in [
        host,
        &format!("{host}/openai"),
        &format!("{host}/openai/v1/"),
    ] {
        let asked = url(Provider::OpenAi, base, path, None);
        assert_eq!(asked, format!("{host}{path}?q=1"), "{base}");
    }
    let base = format!("{host}/openai/v1");
    for path in ["/openai/v1/responses", "/v1/responses", "/responses"] {
        let asked = url(Provider::OpenAi, &base, path, None);
        assert_eq!(asked, format!("{base}/responses?q=1"), "{path}");
    }
    assert_eq!(model_in(path), Some("gpt-4o"));
    assert_eq!(model_in("/v1/chat/completions"), None);
    for (base, header) in [
        (host, API_KEY),
        ("https://r.openai.azure.com:443/openai/v1", API_KEY),
        ("https://r.services.ai.azure.com/openai/v1", API_KEY),
        ("https://openai.azure.com.evil.test", AUTHORIZATION),
        ("https://api.groq.com/openai/v1", AUTHORIZATION),
    ] {
        let upstream = Upstream::new(Provider::OpenAi, Some(base), None);
        assert_eq!(upstream.key_header(Provider::OpenAi), header, "{base}");
    }
}

#[test]
fn the_gemini_api_is_asked_for_the_model_that_the_path_names() {
    let vertex = "/v1/projects/v2/locations/l/publishers/google";
    for (base, root) in [
        ("http://u", "http://u"),
        ("http://u/v1beta/", "http://u"),
        ("http://u/gw/v1", "http://u/gw"),
    ] {
        for method in ["generateContent", "streamGenerateContent", "countTokens"] {
            for (before, asked) in [
                ("/v1beta", "/v1beta"),
                ("/v1", "/v1"),
                ("/gemini//v1alpha", "/v1alpha"),
                (vertex, vertex),
                (&format!("/x{vertex}"), vertex),
            ] {
                let path = format!("{before}/models/gemini-3-pro:{method}");
                let expected = format!("{root}{asked}/models/gemini-3-pro:{method}?q=1");
                assert_eq!(url(Provider::Google, base, &path, None), expected, "{base}");
                assert_eq!(model_in(&expected), Some("gemini-3-pro"));
            }
        }
        let versionless = url(Provider::Google, base, "/models/m:countTokens", None);
        let version = if base.ends_with("v1") { "v1" } else { "v1beta" };
        assert_eq!(
            versionless,
            format!("{root}/{version}/models/m:countTokens?q=1")
        );
    }
    // Everything else for Google keeps its path, too.
    let key = Some(("x-goog-api-key", "k"));
    for (path, header) in [
        ("/v1beta/models", None),
        ("/v1beta/cachedContents/1", None),
        ("/upload/v1beta/files", None),
        ("/v1/models/m:embedContent", None),
        ("/v1/models", key),
    ] {
        let asked = url(Provider::Google, "http://u", path, header);
        assert_eq!(asked, format!("http://u{path}?q=1"));
    }
    // Google serves OpenAI's API as well.
    for path in [
        "/v1beta/openai/chat/completions",
        "/v1beta/openai/embeddings",
        "/v1beta/openai/models",
    ] {
        let asked = url(Provider::Google, "http://u", path, None);
        assert_eq!(asked, format!("http://u{path}?q=1"));
    }
    // Fine-tuned models of OpenAI have colons in their names.
    let path = "/v1/models/ft:gpt-4o:org:name:id";
    assert_eq!(
        Route::of(path, &HeaderMap::new()).provider,
        Provider::OpenAi
    );
    for name in ["key", "%6bey", "k%65%79", "$key", "%24key", "KEY", "Key"] {
        let (query, key) = without_credential(&format!("a=1&{name}=x%2By&b=2"), "key");
        assert_eq!(
            (query.as_str(), key.as_deref()),
            ("a=1&b=2", Some("x+y")),
            "{name}"
        );
    }
    for other in ["a=1&keys=x&monkey=y&b=key", "alt=sse", ""] {
        assert_eq!(without_credential(other, "key"), (other.to_owned(), None));
    }
    let (query, key) = without_credential("key=&key=x&key=y", "key");
    assert_eq!((query.as_str(), key.as_deref()), ("", Some("x")));
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
            "/v1/responses/input_tokens",
            account,
            "http://c/backend-api/codex/responses/input_tokens",
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
