//! Who may use a gateway: whatever a web page can make a browser send is refused on every route, the gateway's own key
//! needs a token, and nobody can take all connections or requests.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use contexture::HostOptions;
use contexture_gateway::{Gateway, GatewayError};
use contexture_provider_simulator::{Answer, Fault};
use support::agent::{APIS, Agent, Api};
use support::{Running, Stage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Variables that cargo sets for tests, with their values, as keys and tokens.
const KEY: (&str, &str) = ("CARGO_PKG_NAME", env!("CARGO_PKG_NAME"));
const ALICE: (&str, &str) = ("CARGO_PKG_VERSION", env!("CARGO_PKG_VERSION"));
const BOB: (&str, &str) = ("CARGO_PKG_DESCRIPTION", env!("CARGO_PKG_DESCRIPTION"));

const CHAT: &str = r#"{"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]}"#;
const MESSAGES: &str = r#"{"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}"#;
const RESPONSES: &str = r#"{"model": "gpt-4o", "input": [{"role": "user", "content": "Hello"}]}"#;
const JSON: &str = "content-type: application/json";

/// One of each kind of route.
const ROUTES: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("GET", "/healthz", ""),
    ("GET", "/metrics", ""),
    ("GET", "/contexture/sessions", ""),
    ("GET", "/contexture/session?id=s", ""),
    ("GET", "/contexture/not-managed", ""),
    ("GET", "/contexture/overview", ""),
    ("GET", "/contexture/export?id=s", ""),
    (
        "POST",
        "/contexture/rename",
        r#"{"session": "s", "title": "Mine"}"#,
    ),
    ("POST", "/contexture/delete", r#"{"session": "s"}"#),
    (
        "POST",
        "/contexture/tool",
        r#"{"session": "s", "tool": "lcm_grep"}"#,
    ),
    ("POST", "/v1/messages", MESSAGES),
    ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/responses", RESPONSES),
    ("POST", "/v1/messages/count_tokens", MESSAGES),
    ("POST", "/api/paas/v4//chat/completions/", CHAT),
    ("GET", "/v1/models", ""),
    ("POST", "/v1/embeddings", "{}"),
    ("DELETE", "/v1/files/f", ""),
    ("GET", "/v1/responses", ""),
    ("OPTIONS", "/v1/messages", ""),
    ("OPTIONS", "/v1/models", ""),
];

/// An answer as it came.
#[derive(Debug)]
struct Answered {
    status: u16,
    text: String,
}

impl Answered {
    fn header(&self, name: &str) -> &str {
        let head = self.text.split("\r\n\r\n").next().unwrap();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map_or("", |(_, value)| value)
    }

    /// Whether the gateway refused it for this reason.
    fn is_refused(&self, reason: &str) -> bool {
        self.header("x-contexture-status") == "not-managed"
            && self
                .header("x-contexture-reason")
                .starts_with(&format!("{reason}:"))
    }
}

async fn connect(base: &str) -> TcpStream {
    TcpStream::connect(base.trim_start_matches("http://"))
        .await
        .unwrap()
}

/// Sends a request with exactly these header lines, besides its length.
async fn raw(base: &str, method: &str, target: &str, lines: &[&str], body: &str) -> Answered {
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    for line in lines {
        request.push_str(&format!("{line}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    request.push_str(&format!("connection: close\r\n\r\n{body}"));
    let mut stream = connect(base).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes));
    read.await.expect("no answer").unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Answered {
        status: status.unwrap_or_else(|| panic!("{request}: {text}")),
        text,
    }
}

/// Sends a request as a client would, with these header lines in addition.
async fn ask(
    gateway: &Running,
    (method, path, body): (&str, &str, &str),
    more: &[&str],
) -> Answered {
    let host = format!("host: {}", gateway.base.trim_start_matches("http://"));
    let mut lines = vec![host.as_str()];
    if !body.is_empty() && !more.iter().any(|line| line.starts_with("content-type")) {
        lines.push(JSON);
    }
    lines.extend(more);
    raw(&gateway.base, method, path, &lines, body).await
}

fn answering() -> Stage {
    let stage = Stage::new("");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    stage
}

/// A configuration whose gateway has a key for OpenAI's API and none for Anthropic's.
fn keyed(stage: &Stage, gateway: &str) {
    let base = stage.provider.base_url();
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{base}/v1\", api_key_env: {}}}\n  anthropic: {{base_url: \"{base}\"}}\n  \
         google: {{base_url: \"{base}\"}}\ngateway: {{{gateway}}}\n",
        KEY.0
    );
    std::fs::write(stage.config(), config).unwrap();
}

fn token(stage: &Stage) -> String {
    let text = std::fs::read_to_string(stage.home.path().join("gateway.token")).unwrap();
    text.trim().to_owned()
}

/// The credential of the provider's last request.
fn credential(stage: &Stage) -> String {
    let last = stage.provider.requests().pop().unwrap();
    assert!(last.header("x-contexture-token").is_none());
    assert!(!format!("{:?}", last.headers).contains(&token(stage)));
    last.header("authorization")
        .or(last.header("x-api-key"))
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_served_under_the_gateways_own_names_alone() {
    let stage = answering();
    stage.configure("gateway: {hosts: [Gateway.Internal, \"other.internal:8443\"]}\n");
    let gateway = stage.gateway().await;
    let port = gateway.base.rsplit_once(':').unwrap().1;
    let other: u16 = port.parse::<u16>().unwrap() - 1;
    // The lines of the head that name a host, and whether they are served.
    let table: Vec<(Vec<String>, bool)> = [
        ("host: 127.0.0.1:PORT", true),
        ("host: localhost:PORT", true),
        ("host: LocalHost:PORT", true),
        ("host: [::1]:PORT", true),
        ("host: [0:0:0:0:0:0:0:1]:PORT", true),
        ("host: 127.0.0.2:PORT", true),
        ("host: gateway.internal", true),
        ("host: GATEWAY.internal:PORT", true),
        ("host: gateway.internal:8080", true),
        ("host: other.internal:8443", true),
        ("host: other.internal", false),
        ("host: other.internal:PORT", false),
        ("host: evil.test:PORT", false),
        ("host: evil.test", false),
        ("host: localhost", true),
        ("host: 127.0.0.1", true),
        ("host: localhost:OTHER", true),
        ("host: localhost.:PORT", false),
        ("host: localhost.evil.test:PORT", false),
        ("host: evil.localhost:PORT", false),
        ("host: 127.0.0.1.evil.test:PORT", false),
        ("host: 0.0.0.0:PORT", false),
        ("host: 127.1:PORT", false),
        ("host: 2130706433:PORT", false),
        ("host: 192.168.1.1:PORT", false),
        ("host: ::1:PORT", false),
        ("host: [::1]", true),
        ("host: [::1:PORT", false),
        ("host: [::ffff:8.8.8.8]:PORT", false),
        ("host: me@127.0.0.1:PORT", false),
        ("host: 127.0.0.1:PORT@evil.test", false),
        ("host: localhost:+PORT", false),
        ("host: localhost:0PORT", true),
        ("host: localhost:PORT:PORT", false),
        ("host: localhost:", false),
        ("host: http://localhost:PORT", false),
        ("host: localhost:PORT/", false),
        ("host: localhost:PORT, evil.test", false),
        ("host: gateway.internal.evil.test", false),
        ("host: xgateway.internal", false),
        ("host:", false),
        ("", false),
        ("host: localhost:PORT\nhost: localhost:PORT", false),
        ("host: localhost:PORT\nhost: evil.test", false),
        ("host: evil.test\nhost: localhost:PORT", false),
    ]
    .into_iter()
    .map(|(lines, is_served)| {
        let lines = lines
            .replace("PORT", port)
            .replace("OTHER", &other.to_string());
        let lines = lines.lines().map(str::to_owned).collect();
        (lines, is_served)
    })
    .collect();
    for (method, path, body) in ROUTES {
        for (lines, is_served) in &table {
            stage.provider.forget();
            let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            if !body.is_empty() {
                lines.push(JSON);
            }
            let answered = raw(&gateway.base, method, path, &lines, body).await;
            let what = format!("{method} {path} {lines:?}: {}", answered.text);
            assert_eq!(!answered.is_refused("host"), *is_served, "{what}");
            if !is_served {
                assert_eq!(answered.status, 403, "{what}");
                assert!(answered.text.contains("gateway.hosts"), "{what}");
                assert!(stage.provider.requests().is_empty(), "{what}");
            }
        }
        // A request target with an address of its own must be the gateway's, too.
        for (target, host, is_served) in [
            (
                format!("http://localhost:{port}"),
                format!("127.0.0.1:{port}"),
                true,
            ),
            (
                format!("http://evil.test:{port}"),
                format!("127.0.0.1:{port}"),
                false,
            ),
            (
                format!("http://localhost:{port}"),
                "evil.test".to_owned(),
                false,
            ),
        ] {
            let (target, host) = (format!("{target}{path}"), format!("host: {host}"));
            let answered = raw(&gateway.base, method, &target, &[&host, JSON], body).await;
            assert_eq!(
                !answered.is_refused("host"),
                is_served,
                "{method} {target}: {}",
                answered.text
            );
        }
    }
    assert!(
        gateway
            .metric("contexture_not_managed_total{reason=\"host\"}")
            .await
            > 0.0
    );
}

/// On addresses that other machines reach, the gateway has names that it cannot know, and everybody needs a token.
#[tokio::test(flavor = "multi_thread")]
async fn elsewhere_the_host_is_checked_if_names_are_configured() {
    for (hosts, host, is_served) in [
        ("", "anything.test", true),
        ("hosts: [gw.test], ", "gw.test", true),
        ("hosts: [gw.test], ", "localhost:PORT", true),
        ("hosts: [gw.test], ", "10.1.2.3:PORT", true),
        ("hosts: [gw.test], ", "10.1.2.3", true),
        ("hosts: [gw.test], ", "evil.test:PORT", false),
    ] {
        let stage = answering();
        stage.configure(&format!(
            "gateway: {{{hosts}tokens: {{alice: {}}}}}\n",
            ALICE.0
        ));
        let gateway = support::start_at(stage.home.path(), "0.0.0.0:0").await;
        let port = gateway.base.rsplit_once(':').unwrap().1;
        let host = format!("host: {}", host.replace("PORT", port));
        let base = format!("http://127.0.0.1:{port}");
        let answered = raw(&base, "GET", "/healthz", &[&host], "").await;
        assert_eq!(
            answered.status == 200,
            is_served,
            "{hosts} {host}: {}",
            answered.text
        );
        let answered = raw(&base, "GET", "/metrics", &[&host], "").await;
        assert_eq!(
            answered.status,
            if is_served { 401 } else { 403 },
            "{hosts} {host}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_page_of_another_site_sends_is_refused_on_every_route() {
    let stage = answering();
    stage.configure("gateway: {origins: [\"https://ui.example\"]}\n");
    let gateway = stage.gateway().await;
    let authority = gateway.base.trim_start_matches("http://").to_owned();
    let port = authority.rsplit_once(':').unwrap().1.to_owned();
    let own = format!("origin: http://{authority}");
    let secure = format!("origin: https://{authority}");
    let localhost = format!("origin: http://localhost:{port}");
    let table: &[(&[&str], bool)] = &[
        // Programs that are no browsers, and those that are built with parts of one.
        (&[], true),
        (&["sec-fetch-mode: cors"], true),
        (
            &[
                "origin: vscode-webview://0fq1",
                "sec-fetch-site: cross-site",
                "sec-fetch-mode: cors",
            ],
            true,
        ),
        (
            &[
                "origin: vscode-file://vscode-app",
                "sec-fetch-site: cross-site",
            ],
            true,
        ),
        (
            &["origin: app://obsidian.md", "sec-fetch-site: cross-site"],
            true,
        ),
        (&["origin: tauri://localhost"], true),
        // The gateway's own page, an address that a person typed, and a configured origin.
        (&[&own], true),
        (&[&own, "sec-fetch-site: same-origin"], true),
        (&[&secure], true),
        (&["sec-fetch-site: same-origin"], true),
        (&["sec-fetch-site: none", "sec-fetch-mode: navigate"], true),
        (
            &["origin: https://ui.example", "sec-fetch-site: cross-site"],
            true,
        ),
        (&["origin: HTTPS://UI.example"], true),
        // Everybody else.
        (&["origin: https://evil.test"], false),
        (
            &["origin: https://evil.test", "sec-fetch-site: same-origin"],
            false,
        ),
        (&["origin: http://evil.test", "sec-fetch-site: none"], false),
        (&["origin: null"], false),
        (&["origin: null", "sec-fetch-site: same-origin"], false),
        (&["origin:"], false),
        (&["origin: file://"], false),
        (&["origin: chrome-extension://abcdef"], false),
        (&["origin: moz-extension://abcdef"], false),
        (&["origin: http://localhost:3000"], false),
        (
            &["origin: http://localhost:3000", "sec-fetch-site: same-site"],
            false,
        ),
        (&[&localhost], false),
        (&["origin: http://127.0.0.1"], false),
        (&["origin: https://ui.example:8443"], false),
        (&["origin: http://ui.example"], false),
        (&["origin: https://ui.example.evil.test"], false),
        (&["origin: https://evil.test/https://ui.example"], false),
        (&["origin: evil"], false),
        (&["origin: appx://evil"], false),
        (&["origin: https://app://evil"], false),
        (&[&own, "origin: https://evil.test"], false),
        (&["origin: https://evil.test", &own], false),
        (&[&own, "sec-fetch-site: cross-site"], false),
        (&["sec-fetch-site: cross-site"], false),
        (
            &[
                "sec-fetch-site: cross-site",
                "sec-fetch-mode: no-cors",
                "sec-fetch-dest: image",
            ],
            false,
        ),
        (
            &[
                "sec-fetch-site: cross-site",
                "sec-fetch-mode: navigate",
                "sec-fetch-user: ?1",
            ],
            false,
        ),
        (&["sec-fetch-site: same-site"], false),
        (&["sec-fetch-site: Cross-Site"], false),
        (&["sec-fetch-site: another"], false),
        (
            &["sec-fetch-site: same-origin", "sec-fetch-site: cross-site"],
            false,
        ),
    ];
    for route in ROUTES {
        for (lines, is_served) in table {
            stage.provider.forget();
            let answered = ask(&gateway, *route, lines).await;
            let what = format!("{route:?} {lines:?}: {}", answered.text);
            assert_eq!(!answered.is_refused("origin"), *is_served, "{what}");
            if !is_served {
                assert_eq!(answered.status, 403, "{what}");
                assert!(answered.text.contains("gateway.origins"), "{what}");
                assert!(stage.provider.requests().is_empty(), "{what}");
                assert_eq!(answered.header("access-control-allow-origin"), "", "{what}");
            }
        }
    }
    assert!(
        gateway
            .metric("contexture_not_managed_total{reason=\"origin\"}")
            .await
            > 0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn preflights_are_answered_here_and_for_allowed_origins_alone() {
    let stage = answering();
    stage.configure("gateway: {origins: [\"https://ui.example\"]}\n");
    let gateway = stage.gateway().await;
    for (_, path, _) in ROUTES {
        for origin in ["https://ui.example", "vscode-webview://0fq1"] {
            let line = format!("origin: {origin}");
            let asked = [
                &line,
                "access-control-request-method: POST",
                "access-control-request-headers: authorization,content-type",
                "sec-fetch-site: cross-site",
                "access-control-request-private-network: true",
            ];
            let answered = ask(&gateway, ("OPTIONS", path, ""), &asked).await;
            assert_eq!(answered.status, 204, "{path}: {}", answered.text);
            for (name, value) in [
                ("access-control-allow-origin", origin),
                ("access-control-allow-headers", "authorization,content-type"),
                ("access-control-allow-private-network", "true"),
                ("vary", "origin"),
            ] {
                assert_eq!(answered.header(name), value, "{path}: {}", answered.text);
            }
            assert!(
                answered
                    .header("access-control-allow-methods")
                    .contains("POST")
            );
        }
        let answered = ask(&gateway, ("OPTIONS", path, ""), &[]).await;
        assert_eq!(
            (
                answered.status,
                answered.header("access-control-allow-origin")
            ),
            (204, "")
        );
    }
    assert!(stage.provider.requests().is_empty());
    // The page reads the answer, and an error too.
    let more = ["origin: https://ui.example", "authorization: Bearer k"];
    for (path, status) in [("/v1/chat/completions", 200), ("/contexture/nothing", 404)] {
        let answered = ask(&gateway, ("POST", path, CHAT), &more).await;
        assert_eq!(answered.status, status, "{}", answered.text);
        assert_eq!(
            answered.header("access-control-allow-origin"),
            "https://ui.example"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reaches_a_model_is_json_by_its_content_type() {
    let stage = answering();
    keyed(&stage, "open_key: true");
    let gateway = stage.gateway().await;
    let kinds: &[(&[&str], bool)] = &[
        (&["content-type: application/json"], true),
        (&["content-type: Application/JSON; charset=utf-8"], true),
        (&["content-type: application/json;charset=\"utf-8\""], true),
        (&["content-type: application/vnd.api+json"], true),
        (&["content-type: text/plain"], false),
        (&["content-type: text/plain; a=application/json"], false),
        (&["content-type: text/plain;application/json"], false),
        (&["content-type: application/x-www-form-urlencoded"], false),
        (&["content-type: multipart/form-data; boundary=x"], false),
        (&["content-type: application/jsonx"], false),
        (&["content-type: application/json, text/plain"], false),
        (&["content-type: json"], false),
        (&["content-type:"], false),
        (
            &["content-type: application/json", "content-type: text/plain"],
            false,
        ),
        (
            &["content-type: text/plain", "content-type: application/json"],
            false,
        ),
        (&["x-content-type: application/json"], false),
    ];
    let host = format!("host: {}", gateway.base.trim_start_matches("http://"));
    let models = ROUTES
        .iter()
        .filter(|(method, path, _)| *method == "POST" && !path.starts_with("/contexture"));
    for (method, path, body) in models {
        for (lines, is_served) in kinds {
            stage.provider.forget();
            let mut all = vec![host.as_str(), "authorization: Bearer k"];
            all.extend(*lines);
            let answered = raw(&gateway.base, method, path, &all, body).await;
            let what = format!("{path} {lines:?}: {}", answered.text);
            assert_eq!(answered.status != 415, *is_served, "{what}");
            assert_eq!(answered.is_refused("content_type"), !is_served, "{what}");
            assert_eq!(stage.provider.requests().is_empty(), !is_served, "{what}");
        }
    }
    // Other requests go on in any form with the client's own key, and uploads with a token.
    keyed(&stage, "");
    reload(&gateway).await.unwrap();
    let (own, known) = (
        "authorization: Bearer own",
        format!("x-contexture-token: {}", token(&stage)),
    );
    let upload = "content-type: multipart/form-data; boundary=x";
    for (credential, kind, is_served) in [
        (own, upload, true),
        (own, "content-type: text/plain", true),
        (own, "content-type: audio/mpeg", true),
        (known.as_str(), upload, true),
        (&known, "content-type: application/json", true),
        (&known, "content-type: text/plain", false),
        (
            &known,
            "content-type: application/x-www-form-urlencoded",
            false,
        ),
    ] {
        let route = ("POST", "/v1/audio/transcriptions", "--x--\r\n");
        let answered = ask(&gateway, route, &[credential, kind]).await;
        assert_eq!(
            answered.status != 415,
            is_served,
            "{credential} {kind}: {}",
            answered.text
        );
    }
    // A request without a body has no content type.
    let answered = ask(&gateway, ("POST", "/v1/batches/b/cancel", ""), &[&known]).await;
    assert_ne!(answered.status, 415, "{}", answered.text);
}

/// The gateway's own key is for whoever has the token. Neither token nor key gets to the wrong place.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_own_key_needs_a_token() {
    let stage = answering();
    keyed(&stage, "");
    let gateway = stage.gateway().await;
    let token = token(&stage);
    let key = format!("Bearer {}", KEY.1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let file = std::fs::metadata(stage.home.path().join("gateway.token")).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
        assert!(token.len() >= 40);
    }
    let routes = [
        ("POST", "/v1/chat/completions", CHAT),
        ("POST", "/v1/responses", RESPONSES),
        ("POST", "/v1/embeddings", "{}"),
        ("GET", "/v1/models", ""),
    ];
    for route in routes {
        for (lines, sent) in [
            (
                vec![format!("x-contexture-token: {token}")],
                Some(key.as_str()),
            ),
            (vec![format!("authorization: Bearer {token}")], Some(&key)),
            (vec![format!("authorization: bearer  {token}")], Some(&key)),
            (
                vec![
                    format!("x-contexture-token: {token}"),
                    "authorization: Bearer own".to_owned(),
                ],
                Some(&key),
            ),
            (
                vec![
                    format!("x-contexture-token: {token}"),
                    format!("authorization: Bearer {token}"),
                ],
                Some(&key),
            ),
            // A credential of the client's own stays its own.
            (
                vec!["authorization: Bearer own".to_owned()],
                Some("Bearer own"),
            ),
            (
                vec![
                    "authorization: Bearer own".to_owned(),
                    "x-contexture-token: wrong".to_owned(),
                ],
                Some("Bearer own"),
            ),
            (vec![], None),
            (vec!["x-contexture-token: wrong".to_owned()], None),
            (vec![format!("x-contexture-token: {token}x")], None),
            (vec![format!("x-contexture-token: {}", &token[1..])], None),
        ] {
            stage.provider.forget();
            let all: Vec<&str> = lines.iter().map(String::as_str).collect();
            let answered = ask(&gateway, route, &all).await;
            let what = format!("{route:?} {lines:?}: {}", answered.text);
            match sent {
                Some(sent) => assert_eq!(credential(&stage), sent, "{what}"),
                None => {
                    assert_eq!(answered.status, 401, "{what}");
                    assert!(answered.is_refused("token"), "{what}");
                    for way in ["gateway.token", "contexture run", "gateway.open_key"] {
                        assert!(answered.text.contains(way), "{way}: {what}");
                    }
                    assert!(!answered.text.contains(&token), "{what}");
                    assert!(stage.provider.requests().is_empty(), "{what}");
                }
            }
        }
    }
    // Where the gateway has no key, a token is not needed, and stays here.
    for lines in [
        vec!["x-api-key: own".to_owned()],
        vec![
            "x-api-key: own".to_owned(),
            format!("x-contexture-token: {token}"),
        ],
    ] {
        let all: Vec<&str> = lines.iter().map(String::as_str).collect();
        ask(&gateway, ("POST", "/v1/messages", MESSAGES), &all).await;
        assert_eq!(credential(&stage), "own");
    }
    ask(
        &gateway,
        ("POST", "/v1/messages", MESSAGES),
        &[&format!("x-api-key: {token}")],
    )
    .await;
    assert_eq!(credential(&stage), "");
    gateway.stop().await;
    // It stays the same, and the configuration may do without.
    keyed(&stage, "open_key: true");
    let gateway = stage.gateway().await;
    assert_eq!(self::token(&stage), token);
    for lines in [&[][..], &["authorization: Bearer own"]] {
        ask(&gateway, routes[0], lines).await;
        assert_eq!(credential(&stage), key);
    }
}

/// A client may put a token wherever its API has a key. It counts there, and goes nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_reaches_no_provider_in_any_form() {
    let stage = answering();
    let base = stage.provider.base_url();
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{base}/v1\", api_key_env: {}}}\n  anthropic: {{base_url: \"{base}\"}}\n  \
         google: {{base_url: \"{base}\"}}\n",
        KEY.0
    );
    std::fs::write(stage.config(), config).unwrap();
    let gateway = stage.gateway().await;
    let token = token(&stage);
    let basic = |pair: String| BASE64.encode(pair);
    let values = [
        token.clone(),
        format!("Bearer {token}"),
        format!("bearer   {token} "),
        format!("Bearer\t{token}"),
        format!("Token {token}"),
        format!("Token token=\"{token}\""),
        format!("Bearer own, Bearer {token}"),
        format!("Bearer own,Bearer {token}"),
        format!("Basic {}", basic(format!("user:{token}"))),
        format!("basic  {}", basic(format!("{token}:"))),
        format!("Basic {}", basic(token.clone()).trim_end_matches('=')),
        format!("Bearer own, Basic {}", basic(format!("{token}:x"))),
    ];
    let headers = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
    let mut ways: Vec<(String, Vec<String>)> = Vec::new();
    for (header, value) in headers
        .iter()
        .flat_map(|header| values.iter().map(move |v| (header, v)))
    {
        ways.push((String::new(), vec![format!("{header}: {value}")]));
    }
    for name in ["key", "KEY", "%6bey", "$key"] {
        ways.push((format!("?a=1&{name}={token}"), vec![]));
        let own = "authorization: Bearer own".to_owned();
        ways.push((format!("?{name}={token}"), vec![own]));
    }
    let is_known = |way: &(String, Vec<String>)| {
        way.1
            .first()
            .is_none_or(|line| line.contains(&token) || line.to_lowercase().contains("basic"))
    };
    for route in [
        ("POST", "/v1/chat/completions", CHAT),
        ("POST", "/v1/messages", MESSAGES),
        (
            "POST",
            "/v1beta/models/gemini-2.5-pro:generateContent",
            r#"{"contents": []}"#,
        ),
        ("GET", "/v1/models", ""),
        ("GET", "/somewhere/else", ""),
    ] {
        for way in &ways {
            let (query, lines) = way;
            let all: Vec<&str> = lines.iter().map(String::as_str).collect();
            let path = format!("{}{query}", route.1);
            let answered = ask(&gateway, (route.0, &path, route.2), &all).await;
            assert!(
                !answered.is_refused("token"),
                "{path} {lines:?}: {}",
                answered.text
            );
            for came in stage.provider.requests() {
                let whole = format!("{} {:?} {:?}", came.path, came.query, came.headers);
                let pair = came.header("authorization").unwrap_or_default();
                assert!(!whole.contains(&token), "{path} {lines:?}: {whole}");
                assert!(
                    !pair.to_lowercase().contains("basic"),
                    "{path} {lines:?}: {whole}"
                );
                if route.1 == "/v1/chat/completions" && is_known(way) {
                    assert_eq!(pair, format!("Bearer {}", KEY.1), "{path} {lines:?}");
                }
            }
            stage.provider.forget();
        }
    }
}

/// The key of a client of Google's is in no URL, and goes to no other provider.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_query_goes_to_google_or_nowhere() {
    const GOOGLE_KEY: &str = "AIzaSyA1234567890abcdefghijklmnopqrstuv";
    let stage = answering();
    let base = stage.provider.base_url();
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{base}/openai/v1\"}}\n  anthropic: {{base_url: \"{base}/anthropic\"}}\n  \
         google: {{base_url: \"{base}/google\"}}\n"
    );
    std::fs::write(stage.config(), config).unwrap();
    let gateway = stage.gateway().await;
    let body = r#"{"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}"#;
    for (method, path, provider) in [
        ("GET", "/v1/models", "google"),
        ("GET", "/v1/models/gemini-2.0-flash", "google"),
        ("GET", "/v1/tunedModels", "google"),
        ("GET", "/v1/operations", "google"),
        ("GET", "/v1beta/models", "google"),
        ("GET", "/v1alpha/x", "google"),
        ("GET", "/download/v1beta/files/x:download", "google"),
        ("POST", "/upload/v1/files", "google"),
        ("POST", "/v1/models/x:predict", "google"),
        ("POST", "/v1/models/text-bison:generateText", "google"),
        ("POST", "/v1/models/e:batchGenerateContent", "google"),
        (
            "POST",
            "/v1/models/gemini-2.0-flash:generateContent",
            "google",
        ),
        ("POST", "/v1/models/gemini-2.0-flash:countTokens", "google"),
        ("POST", "/v1beta/openai/chat/completions", "google"),
        ("POST", "/v1/chat/completions", "openai"),
        ("POST", "/v1/messages", "anthropic"),
        ("GET", "/v1/messages/batches", "anthropic"),
    ] {
        for name in ["key", "%6bey", "$key", "KEY", "access_token"] {
            if name == "access_token" && !path.contains("beta/models") {
                continue;
            }
            stage.provider.forget();
            let body = if method == "POST" { body } else { "" };
            let asked = format!("{path}?a=1&{name}={GOOGLE_KEY}");
            let answered = ask(&gateway, (method, &asked, body), &[]).await;
            let what = format!("{asked}: {}", answered.text);
            let came = stage.provider.requests().pop().expect(&what);
            assert!(
                came.path.starts_with(&format!("/{provider}/")),
                "{} {what}",
                came.path
            );
            assert_eq!(came.query.as_deref(), Some("a=1"), "{what}");
            let has_key = format!("{:?}", came.headers).contains(GOOGLE_KEY);
            assert_eq!(has_key, provider == "google", "{:?} {what}", came.headers);
        }
    }
}

/// With a key of the gateway's own, nothing is asked beside the base path that it is for.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_leaves_the_base_path_is_refused() {
    let stage = answering();
    let base = stage.provider.base_url();
    let config = format!(
        "upstream: {{openai: {{base_url: \"{base}/team-a/openai/v4\", api_key_env: {}}}}}\n",
        KEY.0
    );
    std::fs::write(stage.config(), config).unwrap();
    let gateway = stage.gateway().await;
    let token = format!("x-contexture-token: {}", token(&stage));
    for dots in ["..", ".%2e", "%2E.", "%2e%2E", ".", "%2e"] {
        for slash in ["/", "%2f", "%5C", "\\"] {
            for start in [
                "/v1/",
                "/models/",
                "/x/",
                "/openai/",
                "/",
                "/v1/chat/completions/",
                "//",
            ] {
                let path = format!("{start}{dots}{slash}{dots}{slash}{dots}/admin/keys?a=1");
                let answered = ask(&gateway, ("GET", &path, ""), &[&token]).await;
                assert_eq!(answered.status, 400, "{path}: {}", answered.text);
                assert!(answered.is_refused("path"), "{path}: {}", answered.text);
                let ending = format!("{start}x{slash}{dots}");
                let answered = ask(&gateway, ("GET", &ending, ""), &[&token]).await;
                assert_eq!(answered.status, 400, "{ending}: {}", answered.text);
            }
        }
    }
    assert!(stage.provider.requests().is_empty());
    for path in [
        "/v1/models/ft:a..b",
        "/v1/files/.hidden",
        "/v1/models/org%2Fname",
        "/v1/...",
        "/v1/a%5cb",
    ] {
        stage.provider.forget();
        let answered = ask(&gateway, ("GET", path, ""), &[&token]).await;
        assert_ne!(answered.status, 400, "{path}: {}", answered.text);
        let asked = &stage.provider.requests()[0].path;
        assert!(asked.starts_with("/team-a/openai/v4/"), "{path}: {asked}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_others_may_have_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    for (mode, content, is_served) in [
        (0o600, "a".repeat(64), true),
        // Taken away from the others, as every file of the home directory.
        (0o644, "a".repeat(64), true),
        (0o602, "a".repeat(64), false),
        (0o600, String::new(), false),
        (0o600, "short".to_owned(), false),
    ] {
        let stage = answering();
        keyed(&stage, "");
        let path = stage.home.path().join("gateway.token");
        std::fs::write(&path, &content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let opened =
            Gateway::open(HostOptions::in_home(stage.home.path()), Some("127.0.0.1:0")).await;
        assert_eq!(
            opened.is_ok(),
            is_served,
            "{mode:o} {content}: {:?}",
            opened.err()
        );
        if is_served {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_count_on_loopback_too() {
    let stage = answering();
    let tenants = format!(
        "gateway: {{tokens: {{alice: {}, bob: {}}}}}\n",
        ALICE.0, BOB.0
    );
    stage.configure(&tenants);
    let gateway = stage.gateway().await;
    let chat = ("POST", "/v1/chat/completions", CHAT);
    let session = "x-contexture-session: s";
    for (method, path, body) in ROUTES {
        let answered = ask(&gateway, (method, path, body), &[]).await;
        let is_open = matches!(*path, "/" | "/healthz") || *method == "OPTIONS";
        assert_eq!(
            answered.status == 401,
            !is_open,
            "{method} {path}: {}",
            answered.text
        );
    }
    assert!(stage.provider.requests().is_empty());
    for (name, (_, token)) in [("alice", ALICE), ("bob", BOB)] {
        for line in [
            format!("x-contexture-token: {token}"),
            format!("authorization: Bearer {token}"),
        ] {
            let answered = ask(&gateway, chat, &[&line, session]).await;
            assert_eq!(
                answered.header("x-contexture-session"),
                format!("{name}/s"),
                "{}",
                answered.text
            );
        }
        assert_eq!(credential(&stage), "", "a token is no key");
    }
    // Whoever can read the home directory sees all of it.
    let owner = format!("x-contexture-token: {}", token(&stage));
    let list = ask(&gateway, ("GET", "/contexture/sessions", ""), &[&owner]).await;
    assert!(
        list.text.contains("alice/s") && list.text.contains("bob/s"),
        "{}",
        list.text
    );

    stage.configure(&format!(
        "gateway: {{tokens: {{alice: {}, bob: {}}}}}\n",
        ALICE.0, ALICE.0
    ));
    for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
        let opened = Gateway::open(HostOptions::in_home(stage.home.path()), Some(listen)).await;
        let error = opened.err().expect("two names with one token").to_string();
        assert!(error.contains("alice") && error.contains("bob"), "{error}");
        assert!(!error.contains(ALICE.1), "{error}");
    }
    for wrong in [
        "hosts: [\"http://gw\"]",
        "hosts: [\"*\"]",
        "hosts: [\"\"]",
        "origins: [\"null\"]",
        "origins: [\"*\"]",
        "origins: [\"https://ui.example/\"]",
    ] {
        stage.configure(&format!("gateway: {{{wrong}}}\n"));
        let opened =
            Gateway::open(HostOptions::in_home(stage.home.path()), Some("127.0.0.1:0")).await;
        assert!(opened.is_err(), "{wrong}");
    }
}

async fn reload(gateway: &Running) -> Result<(), GatewayError> {
    let handle = gateway.handle.clone();
    tokio::task::spawn_blocking(move || handle.reload())
        .await
        .unwrap()
}

/// A file that is being written may be empty, gone or half there when the gateway reads it.
#[tokio::test(flavor = "multi_thread")]
async fn no_reload_opens_a_gateway_that_needs_tokens() {
    let stage = answering();
    stage.configure("");
    let upstream = std::fs::read_to_string(stage.config()).unwrap();
    let tokens = format!("  tokens:\n    alice: {}\n    bob: {}\n", ALICE.0, BOB.0);
    let whole = format!("{upstream}gateway:\n  mode: manage\n{tokens}");
    std::fs::write(stage.config(), &whole).unwrap();
    let gateway = stage.gateway().await;
    let is_closed = async |what: &str| {
        let chat = ("POST", "/v1/chat/completions", CHAT);
        let bob = format!("authorization: Bearer {}", BOB.1);
        let answered = ask(&gateway, chat, &[]).await;
        assert!(answered.is_refused("token"), "{what}: {}", answered.text);
        ask(&gateway, chat, &[&bob]).await;
        for came in stage.provider.requests() {
            let headers = format!("{:?}", came.headers);
            assert!(!headers.contains(BOB.1), "{what}: {headers}");
        }
    };
    for length in (0..whole.len()).step_by(3) {
        let written = &whole[..length];
        std::fs::write(stage.config(), written).unwrap();
        // Some of it names other tenants or another provider, which is allowed.
        let _ = reload(&gateway).await;
        is_closed(written).await;
    }
    for (written, named) in [
        ("", "config.yaml"),
        ("# nothing yet\n", "config.yaml"),
        (&*upstream, "gateway.tokens"),
        ("gateway: {tokens: {}}\n", "gateway.tokens"),
    ] {
        std::fs::write(stage.config(), written).unwrap();
        let error = reload(&gateway).await.unwrap_err().to_string();
        assert!(
            error.contains(named) && error.contains("restart"),
            "{error}"
        );
        is_closed(written).await;
    }
    std::fs::remove_file(stage.config()).unwrap();
    assert!(reload(&gateway).await.is_err());
    is_closed("no file").await;
}

/// On an address that other machines reach, names that are configured keep other names out.
#[tokio::test(flavor = "multi_thread")]
async fn no_reload_takes_the_last_name_of_a_gateway_that_checks_them() {
    let stage = answering();
    let tokens = format!("tokens: {{alice: {}}}", ALICE.0);
    stage.configure(&format!("gateway: {{hosts: [gw.test], {tokens}}}\n"));
    let gateway = support::start_at(stage.home.path(), "0.0.0.0:0").await;
    stage.configure(&format!("gateway: {{{tokens}}}\n"));
    let error = reload(&gateway).await.unwrap_err().to_string();
    assert!(error.contains("gateway.hosts"), "{error}");
    stage.configure(&format!("gateway: {{hosts: [other.test], {tokens}}}\n"));
    reload(&gateway).await.unwrap();
}

/// Conversations stay with the provider that was named, and the secrets in them stay masked.
#[tokio::test(flavor = "multi_thread")]
async fn no_reload_gives_conversations_to_others() {
    let stage = answering();
    stage.configure("transcript: {redact: true}\n");
    let whole = std::fs::read_to_string(stage.config()).unwrap();
    let gateway = stage.gateway().await;
    for (line, named) in [
        ("  openai:", "`upstream.openai.base_url`"),
        ("  anthropic:", "`upstream.anthropic.base_url`"),
        ("  google:", "`upstream.google.base_url`"),
        ("transcript:", "`transcript.redact`"),
    ] {
        let rest = whole.lines().filter(|one| !one.starts_with(line));
        let rest: String = rest.map(|line| format!("{line}\n")).collect();
        std::fs::write(stage.config(), rest).unwrap();
        let error = reload(&gateway).await.unwrap_err().to_string();
        assert!(error.contains(named), "{line}: {error}");
    }
    std::fs::write(stage.config(), whole).unwrap();
    reload(&gateway).await.unwrap();
}

/// A client that was not told of a new token goes on sending the old one, in place of its key.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_valid_once_reaches_no_provider() {
    let stage = answering();
    let gateway = stage.gateway().await;
    let chat = ("POST", "/v1/chat/completions", CHAT);
    let first = token(&stage);
    std::fs::remove_file(stage.home.path().join("gateway.token")).unwrap();
    reload(&gateway).await.unwrap();
    let own = token(&stage);
    assert_ne!(first, own);
    let old = format!("authorization: Bearer {first}");
    assert!(ask(&gateway, chat, &[&old]).await.is_refused("token"));
    // Without tenants, nobody else needs a token.
    let other = "authorization: Bearer own";
    assert_eq!(ask(&gateway, chat, &[other]).await.status, 200);

    let alice = |(variable, _): (&str, &str)| {
        stage.configure(&format!("gateway: {{tokens: {{alice: {variable}}}}}\n"));
    };
    for variable in [ALICE, BOB] {
        alice(variable);
        reload(&gateway).await.unwrap();
    }
    for old in [first.as_str(), ALICE.1] {
        let old = format!("authorization: Bearer {old}");
        assert!(ask(&gateway, chat, &[&old]).await.is_refused("token"));
        for new in [own.as_str(), BOB.1] {
            let new = format!("x-contexture-token: {new}");
            let sent = stage.provider.requests().len();
            ask(&gateway, chat, &[&old, &new]).await;
            assert_eq!(stage.provider.requests().len(), sent + 1);
            assert_eq!(credential(&stage), "");
        }
    }
    // It may become valid again.
    alice(ALICE);
    reload(&gateway).await.unwrap();
    let again = format!("authorization: Bearer {}", ALICE.1);
    let answered = ask(&gateway, chat, &[&again]).await;
    assert!(!answered.is_refused("token"), "{}", answered.text);
}

/// An agent may take a request that is called too large for a reason to compact.
#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_body_is_not_called_too_large() {
    let stage = answering();
    let gateway = stage.gateway().await;
    let before = stage.provider.requests().len();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    for body in [
        "zz\r\n{}\r\n",
        "-1\r\n",
        "2\r\n{}x",
        "fffffffffffffffff\r\n",
        "2\n{}",
    ] {
        let mut stream = connect(&gateway.base).await;
        let request = format!("{head}{body}\r\n0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes));
        let _ = read.await.expect("no answer");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("HTTP/1.1 400 "), "{body:?}: {text}");
        assert!(
            text.contains("broken_body: the body of the request cannot be read"),
            "{body:?}: {text}"
        );
        assert!(!text.contains("large"), "{body:?}: {text}");
    }
    let metric = "contexture_not_managed_total{reason=\"broken_body\"}";
    assert_eq!(gateway.metric(metric).await, 5.0);
    assert_eq!(stage.provider.requests().len(), before);
}

/// Everything that a connection brings until it ends, after these bytes were sent on it.
async fn until_the_end(base: &str, sent: &[u8]) -> String {
    let mut stream = connect(base).await;
    stream.write_all(sent).await.unwrap();
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes));
    read.await.expect("the connection stays open").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// A client sends its next request on the same connection, unless it is told not to.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_ends_if_a_body_is_not_read_and_the_client_is_told() {
    let stage = answering();
    stage.configure("gateway: {max_body_mb: 1}\n");
    let gateway = stage.gateway().await;
    let chat = "/v1/chat/completions";
    let head =
        |path: &str, line: &str| format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n{line}\r\n");
    let framed = |body: &str, is_chunked: bool| match is_chunked {
        true => format!(
            "transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
        false => format!("content-length: {}\r\n\r\n{body}", body.len()),
    };
    let (small, large) = ("a".repeat(100), "a".repeat(5 << 20));
    for (path, line, body, status) in [
        (chat, JSON, &large, 413),
        (chat, "content-type: text/plain", &small, 415),
        (chat, "content-type: text/plain", &large, 415),
        (chat, "origin: https://evil.example", &large, 403),
        ("/v1/../models", JSON, &large, 400),
        ("/metrics/", JSON, &small, 404),
        ("/healthz", JSON, &small, 200),
        ("/healthz", JSON, &large, 200),
    ] {
        for is_chunked in [false, true] {
            let sent = head(path, line) + &framed(body, is_chunked);
            let text = until_the_end(&gateway.base, sent.as_bytes()).await;
            let what = format!("{path} {line} {is_chunked}: {text}");
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{what}");
            let answered = Answered { status, text };
            assert_eq!(answered.header("connection"), "close", "{what}");
            let (_, body) = answered.text.split_once("\r\n\r\n").unwrap();
            assert_eq!(answered.header("content-length"), body.len().to_string());
        }
    }
    // A client that waits with its body is told at once.
    let waits = "expect: 100-continue\r\ncontent-length: 3000000\r\n\r\n";
    let sent = head(chat, JSON) + waits;
    let text = until_the_end(&gateway.base, sent.as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");

    // After a body that was read, the connection is used again.
    let paid = format!("{JSON}\r\nauthorization: Bearer sk-test");
    let coded = format!("{JSON}\r\ncontent-encoding: compress");
    for (line, status) in [(paid, 200), (coded, 415)] {
        for is_chunked in [false, true] {
            let first = head(chat, &line) + &framed(CHAT, is_chunked);
            let last = format!("{line}\r\nconnection: close");
            let sent = first + &head(chat, &last) + &framed(CHAT, is_chunked);
            let text = until_the_end(&gateway.base, sent.as_bytes()).await;
            let answers = text.matches(&format!("HTTP/1.1 {status} ")).count();
            let ends = text.matches("connection: close").count();
            assert_eq!((answers, ends), (2, 1), "{line} {is_chunked}: {text}");
        }
    }
}

/// A proxy that hides a path from tenants knows one spelling of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_own_paths_have_one_spelling() {
    let stage = answering();
    let gateway = stage.gateway().await;
    let (page, health, metrics) = ("<title>", "\r\n\r\nok\n", "# TYPE contexture");
    for (path, own) in [
        ("/", page),
        ("/?a=1", page),
        ("/healthz", health),
        ("/healthz?a=1", health),
        ("/metrics", metrics),
        ("/metrics?a=1", metrics),
        ("/contexture/overview", "\"prices_as_of\""),
    ] {
        let answered = ask(&gateway, ("GET", path, ""), &[]).await;
        assert!(answered.text.contains(own), "{path}: {}", answered.text);
    }
    for path in ["metrics", "healthz", "contexture/overview"] {
        let upper = path.to_uppercase();
        for spelled in [
            format!("/{path}/"),
            format!("/{path}//"),
            format!("/{path}/?a=1"),
            format!("//{path}"),
            format!("///{path}/"),
            format!("/./{path}"),
            format!("/{path}/."),
            format!("/x/../{path}"),
            format!("/%2e/{path}"),
            format!("/%2f{path}"),
            format!("/{path}%2f"),
            format!("/{path}%20"),
            format!("/{path};a=1"),
            format!("/%{:02x}{}", path.as_bytes()[0], &path[1..]),
            format!("/{upper}"),
        ] {
            let answered = ask(&gateway, ("GET", &spelled, ""), &[]).await;
            let text = &answered.text;
            for own in [page, health, metrics, "\"prices_as_of\""] {
                assert!(!text.contains(own), "{spelled}: {text}");
            }
        }
        for spelled in [format!("/{path}/"), format!("//{path}")] {
            let answered = ask(&gateway, ("GET", &spelled, ""), &[]).await;
            assert_eq!(answered.status, 404, "{spelled}: {}", answered.text);
        }
    }
    assert_eq!(ask(&gateway, ("GET", "//", ""), &[]).await.status, 404);
}

/// One that asks as often as it can leaves the others their share.
#[tokio::test(flavor = "multi_thread")]
async fn no_tenant_takes_the_requests_of_another() {
    for (limit, most) in [("", 3), ("tenant_requests: 2, ", 2)] {
        let stage = answering();
        stage.configure(&format!(
            "gateway: {{max_requests: 6, {limit}tokens: {{alice: {}, bob: {}}}}}\n",
            ALICE.0, BOB.0
        ));
        let gateway = stage.gateway().await;
        stage.provider.answer_with(|_| Answer::fault(Fault::Hang));
        let agent = |token: &str, number: usize| {
            let mut agent = Agent::new(Api::Chat, &gateway.base, &format!("{number}"));
            agent
                .headers
                .push(("x-contexture-token".to_owned(), token.to_owned()));
            agent.user("Hello");
            agent
        };
        let asking: Vec<_> = (0..most)
            .map(|number| {
                let agent = agent(ALICE.1, number);
                tokio::spawn(async move { agent.send().await })
            })
            .collect();
        while stage.provider.requests().len() < most {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let refused = agent(ALICE.1, 99).send().await;
        assert_eq!(refused.status, 429, "{}", refused.raw);
        assert_eq!(refused.header("retry-after"), "1");
        assert!(
            refused
                .header("x-contexture-reason")
                .starts_with("tenant_requests")
        );
        // Its page says why.
        let known = format!("x-contexture-token: {}", ALICE.1);
        let page = ask(&gateway, ("GET", "/contexture/not-managed", ""), &[&known]).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(page.text.contains("tenant_requests"), "{}", page.text);
        stage.provider.answer_with(|_| Answer::text("Yes."));
        assert_eq!(agent(BOB.1, 1).send().await.text, "Yes.");
        for asking in asking {
            asking.abort();
        }
        let began = Instant::now();
        loop {
            let said = agent(ALICE.1, 100).send().await;
            if said.status == 200 {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{}", said.raw);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A proxy does not send a request again that it has begun to send.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_answers_what_is_on_its_way() {
    let stage = answering();
    for _ in 0..4 {
        let gateway = stage.gateway().await;
        // Some of these are accepted, and some wait for it.
        let mut streams = Vec::new();
        for _ in 0..16 {
            streams.push(connect(&gateway.base).await);
        }
        gateway.handle.stop();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        for stream in &mut streams {
            stream.write_all(request.as_bytes()).await.unwrap();
        }
        for mut stream in streams {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
        }
        gateway.stop().await;
    }
}

/// Whether the gateway closes a connection within this time.
async fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(within, stream.read_to_end(&mut rest))
        .await
        .is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_idle_connections_have_a_time() {
    let stage = answering();
    stage.configure("gateway: {header_timeout_ms: 700}\n");
    let gateway = stage.gateway().await;
    let host = gateway.base.trim_start_matches("http://").to_owned();
    let whole = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n");
    for sent in [
        "",
        "G",
        "POST /v1/messages HTTP/1.1\r\n",
        &whole[..whole.len() - 2],
        &whole,
        &format!("{whole}GET / HTTP/1.1\r\nhost:"),
    ] {
        let mut stream = connect(&gateway.base).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        assert!(
            is_closed(&mut stream, Duration::from_secs(5)).await,
            "{sent}"
        );
    }
    // An answer under way is not cut by it.
    let slow = Answer::text("A word. ".repeat(12)).piece_after(Duration::from_millis(60));
    stage.provider.set(|options| options.piece = 120);
    stage.provider.script([slow]);
    let mut agent = Agent::new(Api::Chat, &gateway.base, "slow");
    agent.user("Hello");
    let began = Instant::now();
    assert!(agent.send().await.ended);
    assert!(
        began.elapsed() > Duration::from_millis(1_000),
        "{:?}",
        began.elapsed()
    );
}

/// Sends what follows `cut` of a request a byte at a time, except the last byte, until the gateway closes the
/// connection.
async fn dribble(mut stream: TcpStream, request: &str, cut: usize) {
    let (mut rest, mut read) = (
        request.as_bytes()[cut..request.len() - 1].chunks(1),
        [0; 1_000],
    );
    loop {
        let answer = stream.read(&mut read);
        match tokio::time::timeout(Duration::from_millis(50), answer).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => {}
            // An error of writing is one of the next reading.
            Err(_) => drop(stream.write_all(rest.next().unwrap_or_default()).await),
        }
    }
}

/// Connections that send half of a head or a slow body are closed in time, and the requests that wait behind them are
/// answered. `CONTEXTURE_FLOOD` is the number of connections, `CONTEXTURE_ATTACK_SEED` decides how far each gets.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_connections_waits_and_others_are_served() {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse::<usize>().unwrap());
    let count = number("CONTEXTURE_FLOOD").unwrap_or(120);
    let mut random = number("CONTEXTURE_ATTACK_SEED").unwrap_or(0) as u64;
    contexture_gateway::raise_file_limit();
    let stage = answering();
    stage.configure(&format!(
        "gateway: {{max_connections: {}, header_timeout_ms: 500, client_timeout_ms: 500}}\n",
        (count / 4).min(250)
    ));
    let gateway = stage.gateway().await;
    let host = gateway.base.trim_start_matches("http://");
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {host}\r\n{JSON}\r\ncontent-length: {}\r\n\r\n{MESSAGES}",
        MESSAGES.len()
    );
    // Connecting waits too, if more connections come than the listener queues.
    let began = Instant::now();
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let cut = (random >> 33) as usize % request.len();
        let mut stream = connect(&gateway.base).await;
        stream.write_all(&request.as_bytes()[..cut]).await.unwrap();
        let request = request.clone();
        flood.spawn(async move { dribble(stream, &request, cut).await });
    }
    for _ in 0..3 {
        let lines = [
            JSON,
            "x-api-key: sk-ant-test",
            "anthropic-version: 2023-06-01",
        ];
        let answered = ask(&gateway, ("POST", "/v1/messages", MESSAGES), &lines).await;
        assert_eq!(answered.status, 200, "{}", answered.text);
    }
    let waited = began.elapsed();
    assert!(waited > Duration::from_millis(700), "it had no limit");
    let closed = tokio::time::timeout(Duration::from_secs(30), flood.join_all()).await;
    assert!(closed.is_ok(), "some connections stay open");
    assert_eq!(
        stage.provider.requests().len(),
        3,
        "half a request was sent"
    );
    println!("{count} connections tried, others answered after {waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_does_not_hold_the_shutdown_and_an_answer_does() {
    for api in APIS {
        let stage = answering();
        let gateway = stage.gateway().await;
        let mut heads = Vec::new();
        for sent in [
            "",
            "POST /v1/mess",
            "POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n",
        ] {
            let mut stream = connect(&gateway.base).await;
            stream.write_all(sent.as_bytes()).await.unwrap();
            heads.push(stream);
        }
        let slow = Answer::text("A word. ".repeat(12)).piece_after(Duration::from_millis(60));
        stage.provider.set(|options| options.piece = 120);
        stage.provider.script([slow]);
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.user("Hello");
        let asking = tokio::spawn(async move { agent.send().await });
        while stage.provider.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let began = Instant::now();
        tokio::time::timeout(Duration::from_secs(15), gateway.stop())
            .await
            .expect("a head holds it");
        let said = asking.await.unwrap();
        assert!(said.ended, "{api:?}: the answer was cut: {}", said.raw);
        assert!(
            began.elapsed() > Duration::from_millis(500),
            "{:?}",
            began.elapsed()
        );
        drop(heads);
    }
}
