//! Pages of other sites in a real Chromium: nothing that they send reaches a provider, and they read nothing. Needs
//! Chromium, so it is part of `.ci/long` alone: `cargo test -p contexture-gateway --test browser -- --ignored`.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_provider_simulator::{Answer, Simulator};
use serde_json::{Value, json};
use support::Stage;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const PAGE: &str = include_str!("browser/attack.html");

/// A name that the browser takes for another site's.
const EVIL: &str = "evil.test";
/// Another one, whose address changes to the gateway's once the page has been loaded.
const REBOUND: &str = "rebound.test";

fn routes() -> Value {
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]});
    let messages = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]});
    let responses = json!({"model": "gpt-4o", "input": [{"role": "user", "content": "Hello"}]});
    let tool = json!({"session": "s", "tool": "lcm_grep", "arguments": {}});
    let rename = json!({"session": "s", "title": "Mine"});
    let bodies = [
        ("/v1/chat/completions", chat),
        ("/v1/messages", messages.clone()),
        ("/v1/messages/count_tokens", messages),
        ("/v1/responses", responses),
        ("/v1/embeddings", json!({})),
        ("/contexture/tool", tool),
        ("/contexture/rename", rename),
        ("/contexture/delete", json!({"session": "s"})),
    ];
    let posts = bodies
        .into_iter()
        .map(|(path, body)| json!(["POST", path, body.to_string()]));
    let gets = [
        "/",
        "/healthz",
        "/metrics",
        "/contexture/sessions",
        "/contexture/overview",
        "/contexture/export?id=s",
        "/v1/models",
        "/v1/responses",
    ];
    let gets = gets.into_iter().map(|path| json!(["GET", path, ""]));
    let others = [json!(["DELETE", "/v1/files/f", ""])];
    posts.chain(gets).chain(others).collect()
}

/// The site of the attacker, and the browser's proxy. The proxy stands for the attacker's name server: after the page,
/// every request for [`REBOUND`] goes to the gateway.
struct Site {
    address: String,
    report: Mutex<Option<oneshot::Sender<String>>>,
    gateway: String,
}

impl Site {
    async fn start(gateway: &str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = Arc::new(Self {
            address: listener.local_addr().unwrap().to_string(),
            report: Mutex::default(),
            gateway: gateway.trim_start_matches("http://").to_owned(),
        });
        let own = Arc::clone(&site);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = Arc::clone(&own);
                // What the browser gives up is no matter.
                tokio::spawn(async move { own.serve(stream).await });
            }
        });
        site
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let Some(line) = head.first() else {
            return Ok(());
        };
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let at_rebound = target.contains(REBOUND);
        let path = match target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]).to_owned(),
            None => target,
        };
        if method == "CONNECT" {
            if !at_rebound {
                return Ok(());
            }
            let mut gateway = TcpStream::connect(&self.gateway).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            copy_bidirectional(&mut stream, &mut gateway).await?;
            return Ok(());
        }
        if path.starts_with("/attack") {
            let page = PAGE.replace("ROUTES", &routes().to_string());
            return answer(&mut stream, "text/html", &page).await;
        }
        if path == "/report" {
            let named = head.iter().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            let mut body = vec![0; named.unwrap()];
            stream.read_exact(&mut body).await?;
            if let Some(report) = self.report.lock().unwrap().take() {
                drop(report.send(String::from_utf8(body).unwrap()));
            }
            return answer(&mut stream, "text/plain", "").await;
        }
        if !at_rebound {
            return answer(&mut stream, "text/plain", "").await;
        }
        let mut gateway = TcpStream::connect(&self.gateway).await?;
        let mut sent = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let is_connection = |line: &&String| line.to_lowercase().contains("connection:");
        for line in head.iter().skip(1).filter(|line| !is_connection(line)) {
            sent.push_str(&format!("{line}\r\n"));
        }
        gateway.write_all(format!("{sent}\r\n").as_bytes()).await?;
        copy_bidirectional(&mut stream, &mut gateway).await?;
        Ok(())
    }

    /// Has a browser load the page at this address. Returns what the page could read.
    async fn visit(&self, url: &str) -> Vec<Value> {
        let (sender, report) = oneshot::channel();
        *self.report.lock().unwrap() = Some(sender);
        let profile = tempfile::tempdir().unwrap();
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let mut browser = Command::new(program);
        browser.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            // The gateway has to hold where the browser does not help, as older ones and others do not.
            "--disable-features=LocalNetworkAccessChecks,PrivateNetworkAccessRespectPreflightResults,BlockInsecurePrivateNetworkRequests,HttpsUpgrades",
        ]);
        browser.arg(format!("--user-data-dir={}", profile.path().display()));
        browser.arg(format!("--proxy-server=http://{}", self.address));
        browser.arg(url).stdout(Stdio::null()).stderr(Stdio::null());
        let browser = Browser(browser.spawn().expect("Chromium, or its path in CHROMIUM"));
        let report = tokio::time::timeout(Duration::from_secs(180), report).await;
        drop(browser);
        let report = report.unwrap_or_else(|_| panic!("no report from {url}"));
        serde_json::from_str(&report.unwrap()).unwrap()
    }
}

async fn answer(stream: &mut BufReader<TcpStream>, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await
}

/// Killed when it is dropped.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn no_page_of_another_site_uses_the_gateway() {
    let stage = Stage::new("");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let base = stage.provider.base_url();
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{base}/v1\", api_key_env: CARGO_PKG_NAME}}\n  \
         anthropic: {{base_url: \"{base}\", api_key_env: CARGO_PKG_NAME}}\ngateway: {{open_key: true}}\n"
    );
    std::fs::write(stage.config(), config).unwrap();
    let gateway = stage.gateway().await;
    let port = gateway.base.rsplit_once(':').unwrap().1.to_owned();
    let site = Site::start(&gateway.base).await;
    let site_port = site.address.rsplit_once(':').unwrap().1;
    let localhost = format!("http://localhost:{port}");

    // The attack works: a server that trusts the browser gets the requests.
    let naive = Simulator::start();
    naive.answer_with(|_| Answer::text("Yes."));
    site.visit(&format!("http://{EVIL}/attack?target={}", naive.base_url()))
        .await;
    assert!(naive.requests().len() > 30, "{}", naive.requests().len());

    for url in [
        // Another site, and another server of this machine, at each of the gateway's names.
        format!("http://{EVIL}/attack?target={}", gateway.base),
        format!("http://{EVIL}/attack?target={localhost}"),
        format!("http://localhost:{site_port}/attack?target={localhost}"),
        format!(
            "http://127.0.0.1:{site_port}/attack?target={}",
            gateway.base
        ),
        // A name that leads to the gateway, from the page's own origin.
        format!("http://{REBOUND}:{port}/attack"),
    ] {
        let refused = "contexture_not_managed_total{reason=";
        let before = gateway.metric(refused).await;
        let read = site.visit(&url).await;
        let read: Vec<_> = read.into_iter().filter(|one| one[2] != 403).collect();
        assert!(read.is_empty(), "{url}: {read:#?}");
        let asked = stage.provider.requests();
        assert!(asked.is_empty(), "{url}: {asked:#?}");
        let refused = gateway.metric(refused).await - before;
        println!("{url}: {refused} requests refused");
        assert!(refused > 60.0, "{url}: {refused}");
    }
    let sessions = reqwest::get(format!("{}/contexture/sessions", gateway.base)).await;
    let sessions: Value = sessions.unwrap().json().await.unwrap();
    assert_eq!(sessions["sessions"], json!([]));

    // The gateway's own page works in that browser.
    let mut browser =
        Command::new(std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned()));
    let profile = tempfile::tempdir().unwrap();
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.args(["--virtual-time-budget=3000", "--dump-dom", &gateway.base]);
    let dumped = tokio::task::spawn_blocking(move || browser.output().unwrap())
        .await
        .unwrap();
    let page = String::from_utf8_lossy(&dumped.stdout).into_owned();
    // It lists the requests that were refused.
    assert!(page.contains("gateway.origins"), "{page}");
}
