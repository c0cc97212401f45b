//! Certificates: clients reach the gateway by HTTPS, and the gateway presents its own to a provider that asks for one.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use contexture::HostOptions;
use contexture_gateway::Gateway;
use contexture_provider_simulator::Answer;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use support::agent::{Agent, Api};
use support::{Stage, start};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A certificate authority of the test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Writes a certificate for this machine and its key to `NAME.pem` and `NAME.key`.
    fn issue(&self, folder: &Path, name: &str) {
        self.issue_until(folder, name, 2_099);
    }

    /// Writes one that ends at the beginning of a year.
    fn issue_until(&self, folder: &Path, name: &str, year: i32) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        std::fs::write(folder.join(format!("{name}.pem")), certificate).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// A client that trusts this authority alone.
    fn client(&self) -> reqwest::Client {
        let own = reqwest::Certificate::from_pem(self.pem.as_bytes()).unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_built_in_root_certs(false);
        client.add_root_certificate(own).build().unwrap()
    }
}

const SERVED: &str =
    "gateway: {header_timeout_ms: 300, tls: {certificate: tls.pem, key: tls.key}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_certificate_is_reached_by_https_alone() {
    let authority = Authority::new();
    let stage = Stage::new(SERVED);
    stage.provider.answer_with(|_| Answer::text("Yes."));
    authority.issue(stage.home.path(), "tls");
    let gateway = stage.gateway().await;
    assert!(
        gateway.base.starts_with("https://127.0.0.1:"),
        "{}",
        gateway.base
    );

    // A connection that never begins its handshake keeps nobody waiting, and is closed in the end.
    let address = gateway.base.trim_start_matches("https://");
    let mut silent = TcpStream::connect(address).await.unwrap();
    for api in [Api::Messages, Api::Chat] {
        for stream in [true, false] {
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.http = authority.client();
            agent.stream = stream;
            agent.user("Hello");
            let said = agent.go_on().await;
            assert_eq!(said.text, "Yes.");
            assert_eq!(said.header("x-contexture-status"), "managed");
        }
    }
    assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0);

    let page = |client: reqwest::Client, base: String| async move { client.get(base).send().await };
    let plain = format!("http://{address}/healthz");
    assert!(page(authority.client(), plain).await.is_err());
    let other = Authority::new().client();
    assert!(
        page(other, format!("{}/healthz", gateway.base))
            .await
            .is_err()
    );
    stage.nothing_was_refused();
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_takes_a_new_certificate_and_keeps_the_old_one_if_it_is_wrong() {
    let (first, second) = (Authority::new(), Authority::new());
    let stage = Stage::new(SERVED);
    let home = stage.home.path();
    first.issue(home, "tls");
    let gateway = stage.gateway().await;
    let url = format!("{}/healthz", gateway.base);
    let connected = first.client();
    assert_eq!(connected.get(&url).send().await.unwrap().status(), 200);

    second.issue(home, "tls");
    let handle = gateway.handle.clone();
    let reload = || {
        let handle = handle.clone();
        async {
            tokio::task::spawn_blocking(move || handle.reload())
                .await
                .unwrap()
        }
    };
    reload().await.unwrap();
    assert_eq!(
        second.client().get(&url).send().await.unwrap().status(),
        200
    );
    assert!(first.client().get(&url).send().await.is_err());
    // Connections that are open stay open.
    assert_eq!(connected.get(&url).send().await.unwrap().status(), 200);

    std::fs::write(
        home.join("tls.key"),
        KeyPair::generate().unwrap().serialize_pem(),
    )
    .unwrap();
    let error = reload().await.unwrap_err().to_string();
    assert!(error.contains("`gateway.tls` cannot be used"), "{error}");
    assert_eq!(
        second.client().get(&url).send().await.unwrap().status(),
        200
    );

    // A file that is half written does not turn it off.
    stage.configure("");
    let error = reload().await.unwrap_err().to_string();
    assert!(error.contains("`gateway.tls` is no longer set"), "{error}");
    assert_eq!(
        second.client().get(&url).send().await.unwrap().status(),
        200
    );
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_metrics_tell_when_certificates_end() {
    let authority = Authority::new();
    let stage = Stage::new("");
    let home = stage.home.path();
    let config = format!(
        "gateway: {{tls: {{certificate: a.pem, key: a.key}}}}\n\
         upstream: {{openai: {{base_url: \"{}/v1\", tls: {{certificate: b.pem, key: b.key}}}}}}\n",
        stage.provider.base_url()
    );
    std::fs::write(stage.config(), config).unwrap();
    // The two forms of a date in a certificate change with the year 2050.
    let (first, last) = (1_577_836_800, 2_524_608_000_u64);
    for ((own, own_end), (client, client_end)) in [
        ((2_020, first), (2_050, last)),
        ((2_050, last), (2_020, first)),
    ] {
        authority.issue_until(home, "a", own);
        authority.issue_until(home, "b", client);
        let gateway = stage.gateway().await;
        let http = reqwest::Client::builder().no_proxy();
        let http = http.danger_accept_invalid_certs(true).build().unwrap();
        let page = http.get(format!("{}/metrics", gateway.base)).send().await;
        let page = page.unwrap().text().await.unwrap();
        for (section, end) in [
            ("gateway.tls", own_end),
            ("upstream.openai.tls", client_end),
        ] {
            let line = format!(
                "contexture_certificate_end_timestamp_seconds{{section=\"{section}\"}} {end}\n"
            );
            assert!(page.contains(&line), "{line}: {page}");
        }
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let stage = Stage::new("");
    let home = stage.home.path();
    authority.issue(home, "good");
    authority.issue(home, "other");
    std::fs::write(home.join("empty.pem"), "").unwrap();
    let wrong = "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n";
    std::fs::write(home.join("wrong.pem"), wrong).unwrap();
    let other = home.join("other.key").display().to_string();
    let missing = home.join("missing.pem").display().to_string();
    for (config, message) in [
        (
            "gateway: {tls: {certificate: missing.pem, key: good.key}}",
            missing.as_str(),
        ),
        (
            "gateway: {tls: {certificate: empty.pem, key: good.key}}",
            "no certificate in PEM format",
        ),
        (
            "gateway: {tls: {certificate: good.pem, key: good.pem}}",
            "no private key in PEM format",
        ),
        (
            "gateway: {tls: {certificate: good.pem, key: other.key}}",
            "belongs to it",
        ),
        (
            "gateway: {tls: {certificate: wrong.pem, key: good.key}}",
            "`gateway.tls` cannot be used",
        ),
        ("gateway: {tls: {certificate: good.pem}}", "only one of"),
        (
            "upstream: {openai: {tls: {ca: missing.pem}}}",
            "`upstream.openai.tls.ca`",
        ),
        (
            "upstream: {openai: {tls: {ca: empty.pem}}}",
            "`upstream.openai.tls.ca`",
        ),
        (
            "upstream: {anthropic: {tls: {certificate: good.pem, key: missing.pem}}}",
            "`upstream.anthropic.tls.key`",
        ),
        (
            "upstream: {google: {tls: {certificate: good.pem, key: other.key}}}",
            "`upstream.google.tls` cannot be used",
        ),
        (
            "upstream: {chatgpt: {tls: {certificate: good.pem, key: other.key}}}",
            other.as_str(),
        ),
        (
            "upstream: {openai: {tls: {ca: wrong.pem}}}",
            "`upstream.openai.tls.ca`",
        ),
    ] {
        std::fs::write(stage.config(), config).unwrap();
        let opened = Gateway::open(HostOptions::in_home(home), Some("127.0.0.1:0")).await;
        let error = opened.err().expect(config).to_string();
        assert!(error.contains(message), "{config}: {error}");
    }
}

/// A server with TLS before the provider simulator. It asks every client for a certificate.
struct Front {
    url: String,
    /// For each connection, whether its client presented a certificate.
    presented: Arc<Mutex<Vec<bool>>>,
    refused: Arc<AtomicUsize>,
}

impl Front {
    async fn start(stage: &Stage, authority: &Authority, is_required: bool) -> Self {
        let home = stage.home.path();
        authority.issue(home, "front");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let verifier = match is_required {
            true => verifier,
            false => verifier.allow_unauthenticated(),
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_file(home.join("front.pem")).unwrap()],
                PrivateKeyDer::from_pem_file(home.join("front.key")).unwrap(),
            );
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let front = Self {
            url,
            presented: Arc::default(),
            refused: Arc::default(),
        };
        let behind = stage
            .provider
            .base_url()
            .trim_start_matches("http://")
            .to_owned();
        let (presented, refused) = (Arc::clone(&front.presented), Arc::clone(&front.refused));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = match acceptor.accept(stream).await {
                    Ok(stream) => stream,
                    Err(_) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                };
                let is_presented = stream.get_ref().1.peer_certificates().is_some();
                presented.lock().unwrap().push(is_presented);
                let mut behind = TcpStream::connect(&behind).await.unwrap();
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut behind).await;
                });
            }
        });
        front
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_asks_for_a_certificate_gets_its_own() {
    let authority = Authority::new();
    let stage = Stage::new("");
    let home = stage.home.path();
    stage.provider.answer_with(|_| Answer::text("Yes."));
    authority.issue(home, "client");
    std::fs::write(home.join("ca.pem"), &authority.pem).unwrap();
    let required = Front::start(&stage, &authority, true).await;
    let optional = Front::start(&stage, &authority, false).await;
    let configure = |certificate: &str| {
        let config = format!(
            "upstream:\n  openai: {{base_url: \"{}/v1\", tls: {{{certificate}ca: ca.pem}}}}\n  anthropic: {{base_url: \
             \"{}\", tls: {{ca: ca.pem}}}}\n",
            required.url, optional.url
        );
        std::fs::write(stage.config(), config).unwrap();
    };
    configure("");
    let gateway = start(home).await;
    let ask = |api: Api| {
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.user("Hello");
        async move { agent.send().await }
    };
    let said = ask(Api::Chat).await;
    assert_eq!(said.status, 502, "{}", said.raw);
    assert!(required.refused.load(Ordering::Relaxed) > 0);

    configure("certificate: client.pem, key: client.key, ");
    let handle = gateway.handle.clone();
    tokio::task::spawn_blocking(move || handle.reload())
        .await
        .unwrap()
        .unwrap();
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let said = ask(api).await;
        assert_eq!(
            (said.status, said.text.as_str()),
            (200, "Yes."),
            "{}",
            said.raw
        );
        assert_eq!(said.header("x-contexture-status"), "managed");
    }
    // The certificate is for one provider, and the other one does not learn it.
    assert_eq!(required.presented.lock().unwrap().first(), Some(&true));
    assert_eq!(optional.presented.lock().unwrap().first(), Some(&false));
    stage.nothing_was_refused();
    gateway.stop().await;
}
