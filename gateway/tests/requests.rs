//! The various forms of requests: compressed, at other paths, for other hosts, with their tools in an input item. Every
//! answer says what was done with its request.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use contexture_gateway::Gateway;
use contexture_provider_simulator::Answer;
use serde_json::{Value, json};
use support::agent::{APIS, Agent, Api};
use support::{Running, Stage};

/// The requests that arrived, in order: path, headers and body.
type Came = Arc<Mutex<Vec<(String, HashMap<String, String>, Bytes)>>>;
type Answers = Arc<dyn Fn(&str) -> Response + Send + Sync>;

/// A provider that gives the answers that it is told to.
async fn provider(answers: impl Fn(&str) -> Response + Send + Sync + 'static) -> (String, Came) {
    async fn answer(State((came, answers)): State<(Came, Answers)>, request: Request) -> Response {
        let path = request.uri().to_string();
        let headers = request.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let headers = headers.collect();
        let body = axum::body::to_bytes(request.into_body(), usize::MAX)
            .await
            .unwrap();
        came.lock().unwrap().push((path.clone(), headers, body));
        answers(&path)
    }
    let (came, answers): (Came, Answers) = (Came::default(), Arc::new(answers));
    let router = axum::Router::new()
        .fallback(answer)
        .with_state((Arc::clone(&came), answers));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (base, came)
}

fn plain_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn post(
    gateway: &Running,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> reqwest::Response {
    let mut request = plain_client().post(format!("{}{path}", gateway.base));
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(body).send().await.unwrap()
}

fn status(answer: &reqwest::Response) -> &str {
    answer.headers()["x-contexture-status"].to_str().unwrap()
}

fn compressed(coding: &str, bytes: &[u8]) -> Vec<u8> {
    use flate2::Compression;
    use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};

    let mut out = Vec::new();
    match coding {
        "gzip" => GzEncoder::new(bytes, Compression::default())
            .read_to_end(&mut out)
            .map(drop),
        "deflate" => ZlibEncoder::new(bytes, Compression::default())
            .read_to_end(&mut out)
            .map(drop),
        "raw" => DeflateEncoder::new(bytes, Compression::default())
            .read_to_end(&mut out)
            .map(drop),
        "br" => brotli::CompressorWriter::new(&mut out, 4096, 5, 20).write_all(bytes),
        "zstd" => zstd::stream::copy_encode(bytes, &mut out, 3),
        // Some clients write a byte order mark before JSON.
        "mark" => out.write_all(&[b"\xef\xbb\xbf", bytes].concat()),
        // And some write more than they compressed.
        "more" => out.write_all(&[bytes, b"\nand more"].concat()),
        _ => out.write_all(bytes),
    }
    .unwrap();
    out
}

/// Codings in the order of application, the header that names them, and whether it is split into several lines.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_requests_are_managed_and_go_on_plain() {
    let stage = Stage::new("gateway: {max_body_mb: 1}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let agents = APIS.map(|api| {
        let mut agent = Agent::new(api, &gateway.base, "");
        agent.user("Which berth is free? Wörter.");
        agent.stream = false;
        agent
    });
    for (applied, headers) in [
        (vec!["gzip"], vec!["gzip"]),
        (vec!["gzip"], vec!["X-GZip"]),
        (vec!["zstd"], vec!["ZSTD"]),
        (vec!["br"], vec!["br"]),
        (vec!["deflate"], vec![" deflate "]),
        (vec!["raw"], vec!["deflate"]),
        (vec!["zstd", "gzip"], vec!["zstd, gzip"]),
        (
            vec!["br", "gzip", "deflate"],
            vec!["br", "identity,gzip,,deflate"],
        ),
        (vec![], vec!["identity"]),
        (vec!["mark"], vec!["identity"]),
        (vec!["mark", "gzip"], vec!["gzip"]),
        (vec!["gzip", "more"], vec!["gzip"]),
        (vec!["zstd", "more"], vec!["zstd"]),
        (vec!["br", "more"], vec!["br"]),
        (vec!["deflate", "more"], vec!["deflate"]),
        (vec!["raw", "more"], vec!["deflate"]),
    ] {
        for agent in &agents {
            let body = agent.api.sent(&agent.body()).to_string().into_bytes();
            let sent = applied
                .iter()
                .fold(body.clone(), |body, coding| compressed(coding, &body));
            let mut all = vec![
                ("x-api-key", "k"),
                ("authorization", "Bearer k"),
                ("anthropic-version", "2023-06-01"),
            ];
            all.extend(headers.iter().map(|value| ("content-encoding", *value)));
            let answer = post(&gateway, &agent.api.path(&agent.body()), &all, sent).await;
            assert_eq!(
                (answer.status(), status(&answer)),
                (reqwest::StatusCode::OK, "managed"),
                "{headers:?}"
            );
            let came = stage.provider.requests().pop().unwrap();
            assert_eq!(came.header("content-encoding"), None, "{headers:?}");
            assert_eq!(came.model(), agent.model, "{headers:?}");
        }
    }
    let before = stage.provider.requests().len();
    let chat = agents[0].body().to_string().into_bytes();
    let bomb = vec![b' '; 64 << 20];
    for (header, body, expected, says) in [
        ("compress", chat.clone(), 415, "`compress`"),
        ("gzip, lzma", chat.clone(), 415, "gzip, deflate, br, zstd"),
        ("gzip,gzip,gzip,gzip,gzip", chat.clone(), 415, "five layers"),
        ("gzip", chat.clone(), 400, "gzip"),
        (
            "zstd",
            compressed("zstd", &chat)[..40].to_vec(),
            400,
            "zstd",
        ),
        ("gzip", compressed("gzip", &bomb), 413, "max_body_mb"),
        ("zstd", compressed("zstd", &bomb), 413, "max_body_mb"),
        ("br", compressed("br", &bomb), 413, "max_body_mb"),
        (
            "gzip, zstd",
            compressed("zstd", &compressed("gzip", &bomb)),
            413,
            "max_body_mb",
        ),
    ] {
        let answer = post(
            &gateway,
            "/v1/chat/completions",
            &[("content-encoding", header)],
            body,
        )
        .await;
        assert_eq!(answer.status(), expected, "{header}");
        assert_eq!(status(&answer), "not-managed");
        let error: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        let said = error["error"]["message"].as_str().unwrap();
        assert!(
            said.contains(says) || said.contains("at most four"),
            "{header}: {said}"
        );
    }
    assert_eq!(
        stage.provider.requests().len(),
        before,
        "nothing of that was sent on"
    );
    // A body that is not a conversation is passed on unchanged.
    let body = compressed("gzip", b"{}");
    post(
        &gateway,
        "/v1/embeddings",
        &[("content-encoding", "gzip")],
        body.clone(),
    )
    .await;
    let came = stage.provider.requests().pop().unwrap();
    assert_eq!(
        (came.header("content-encoding"), &came.body[..]),
        (Some("gzip"), &body[..])
    );
}

/// What a compressed body may look like: what follows it, or that it is written in two parts.
fn formed(coding: &str, form: usize, bytes: &[u8]) -> Vec<u8> {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    match form {
        1 => [compressed(coding, bytes), b"\r\n".to_vec()].concat(),
        // The first byte is that of another part.
        2 => [
            compressed(coding, bytes),
            compressed(coding, b"")[..1].to_vec(),
        ]
        .concat(),
        3 => [
            compressed(coding, bytes),
            b"\x1f\x8c and \x28\xb5\x2f more".to_vec(),
        ]
        .concat(),
        4 if matches!(coding, "gzip" | "zstd") => {
            [compressed(coding, first), compressed(coding, second)].concat()
        }
        _ => compressed(coding, bytes),
    }
}

/// Providers that compress although they were asked not to: whole answers, and streams in pieces that end at any byte.
#[tokio::test(flavor = "multi_thread")]
async fn compressed_answers_are_read_and_the_client_gets_them_plain() {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!(
            "data: {}\n\n",
            json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})
        )
    };
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11});
    let message = json!({"role": "assistant", "content": "Teal."});
    let whole =
        json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
        .to_string();
    let stream = [
        chunk(json!({"role": "assistant", "content": "Te"}), Value::Null),
        chunk(json!({"content": "al."}), Value::Null),
        chunk(json!({}), json!("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    for coding in ["gzip", "deflate", "br", "zstd"] {
        for (is_stream, text) in [(false, whole.clone()), (true, stream.clone())] {
            let said = text.clone();
            let (base, _) = provider(move |path| {
                let form = path.rsplit('=').next().unwrap().parse().unwrap();
                let bytes = formed(coding, form, said.as_bytes());
                let pieces: Vec<_> = bytes
                    .chunks(7)
                    .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
                    .collect();
                let body = axum::body::Body::from_stream(futures_util::stream::iter(pieces));
                let kind = if is_stream {
                    "text/event-stream"
                } else {
                    "application/json"
                };
                let head = Response::builder()
                    .header("content-type", kind)
                    .header("content-encoding", coding);
                head.body(body).unwrap()
            })
            .await;
            let home = tempfile::tempdir().unwrap();
            let config = format!(
                "upstream: {{openai: {{base_url: \"{base}\"}}}}\nmodel: {{context_length: 8000}}\n"
            );
            std::fs::write(home.path().join("config.yaml"), config).unwrap();
            let gateway = support::start(home.path()).await;
            let body = json!({"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": "Hi"}]});
            let accepted = [None, Some("identity"), Some("gzip, deflate, br, zstd")];
            for (form, accepts) in accepted.into_iter().cycle().take(5).enumerate() {
                let header: Vec<_> = accepts
                    .iter()
                    .map(|value| ("accept-encoding", *value))
                    .collect();
                let path = format!("/v1/chat/completions?form={form}");
                let body = body.to_string().into_bytes();
                let answer = post(&gateway, &path, &header, body).await;
                assert_eq!(status(&answer), "managed");
                let told = answer.headers().get("content-encoding");
                let what = format!("{coding} {accepts:?} {form}");
                assert_eq!(told, None, "{what}");
                assert_eq!(answer.text().await.unwrap(), text, "{what}");
            }
            if !is_stream {
                assert_eq!(
                    gateway
                        .metric("contexture_tokens_total{kind=\"output\"")
                        .await,
                    10.0,
                    "{coding}"
                );
            }
        }
    }
}

/// The provider ends the body properly, so only the compressed data shows that something is missing.
#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_that_is_cut_short_is_not_taken_for_whole() {
    let words: Vec<String> = (0..2_000).map(|n| format!("{:x}", n * 7_919)).collect();
    let message = json!({"role": "assistant", "content": words.join(" ")});
    let whole = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let chunk = |word: &String| {
        let choice = json!({"index": 0, "delta": {"content": word}, "finish_reason": null});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let chunks: String = words.iter().map(chunk).collect();
    let end = json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let stream = format!("{chunks}data: {end}\n\ndata: [DONE]\n\n");
    for coding in ["gzip", "deflate", "raw", "br", "zstd"] {
        for (kind, text) in [
            ("application/json", whole.to_string()),
            ("text/event-stream", stream.clone()),
        ] {
            let bytes = compressed(coding, text.as_bytes());
            for length in [bytes.len() / 2, bytes.len()] {
                let sent = Bytes::copy_from_slice(&bytes[..length]);
                let (base, _) = provider(move |_| {
                    let name = if coding == "raw" { "deflate" } else { coding };
                    let head = Response::builder()
                        .header("content-type", kind)
                        .header("content-encoding", name);
                    head.body(axum::body::Body::from(sent.clone())).unwrap()
                })
                .await;
                let home = tempfile::tempdir().unwrap();
                let config = format!(
                    "upstream: {{openai: {{base_url: \"{base}\"}}}}\nmodel: {{context_length: 8000}}\n"
                );
                std::fs::write(home.path().join("config.yaml"), config).unwrap();
                let gateway = support::start(home.path()).await;
                let is_stream = kind == "text/event-stream";
                let body = json!({"model": "m", "stream": is_stream,
                    "messages": [{"role": "user", "content": "Hi"}]});
                let header = [("accept-encoding", "identity")];
                let body = body.to_string().into_bytes();
                let answer = post(&gateway, "/v1/chat/completions", &header, body).await;
                let (status, what) = (answer.status(), format!("{coding} {kind} {length}"));
                let received = answer.text().await;
                if length == bytes.len() {
                    assert_eq!(received.unwrap(), text, "{what}");
                } else if is_stream {
                    assert!(received.is_err(), "{what}");
                } else {
                    let error = received.unwrap();
                    assert!(
                        status == 502 && error.contains("broke off"),
                        "{what}: {error}"
                    );
                    // The client is told the cause, and not just that reading the body failed.
                    assert!(!error.contains("error decoding"), "{what}: {error}");
                }
            }
        }
    }
}

/// Every answer says what was done with its request, and an unmanaged request is reported in four places.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_says_what_was_done_with_its_request() {
    let stage = Stage::new("gateway: {max_body_mb: 1}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let http = plain_client();
    for (path, expected) in [
        ("/", "gateway"),
        ("/healthz", "gateway"),
        ("/metrics", "gateway"),
        ("/v1/models", "endpoint"),
        ("/contexture/sessions", "gateway"),
        ("/no/such/thing", "endpoint"),
    ] {
        let answer = http
            .get(format!("{}{path}", gateway.base))
            .send()
            .await
            .unwrap();
        assert_eq!(status(&answer), "not-managed", "{path}");
        let reason = answer.headers()["x-contexture-reason"].to_str().unwrap();
        assert!(reason.starts_with(expected), "{path}: {reason}");
    }
    let session = [("x-contexture-session", "s"), ("authorization", "Bearer k")];
    let user = json!([{"role": "user", "content": "Hello"}]);
    let turn = |more: Value| {
        let mut body = json!({"model": "gpt-4o", "messages": user});
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body.to_string().into_bytes()
    };
    for (path, body, expected, reason) in [
        ("/v1/chat/completions", turn(json!({})), "managed", ""),
        ("//v1//chat/completions/", turn(json!({})), "managed", ""),
        (
            "/chat/completions",
            turn(json!({"n": 2})),
            "not-managed",
            "n",
        ),
        (
            "/v1/chat/completions",
            turn(json!({"max_tokens": 1})),
            "side-call",
            "side call: quota",
        ),
        (
            "/v1/chat/completions",
            turn(json!({"messages": []})),
            "not-managed",
            "no messages",
        ),
        (
            "/v1/responses",
            br#"{"model": "gpt-4o", "prompt": {"id": "pmpt_1"}}"#.to_vec(),
            "not-managed",
            "no messages",
        ),
        (
            "/v1/chat/completions",
            b"{oh no".to_vec(),
            "failed-open",
            "format",
        ),
        (
            "/v1/chat/completions",
            turn(json!({"model": "nobody-knows-it"})),
            "failed-open",
            "unknown_window",
        ),
        (
            "/v1/chat/completions",
            vec![b' '; 2 << 20],
            "not-managed",
            "too_large",
        ),
        (
            "/v1/threads/t/messages",
            turn(json!({})),
            "not-managed",
            "endpoint",
        ),
    ] {
        for _ in 0..2 {
            let answer = post(&gateway, path, &session, body.clone()).await;
            assert_eq!(status(&answer), expected, "{path} {reason}");
            let told = answer
                .headers()
                .get("x-contexture-reason")
                .map_or("", |value| value.to_str().unwrap());
            assert!(told.starts_with(reason), "{path}: {told}");
        }
        if expected != "managed" {
            let word = reason.split(':').next().unwrap();
            let metric = format!("contexture_not_managed_total{{reason=\"{word}\"}}");
            assert!(gateway.metric(&metric).await >= 2.0, "{metric}");
        }
    }
    let rows = http
        .get(format!("{}/contexture/not-managed", gateway.base))
        .send()
        .await
        .unwrap();
    let rows: Value = rows.json().await.unwrap();
    let rows = rows["rows"].as_array().unwrap();
    let one = rows
        .iter()
        .find(|row| row["session"] == "s" && row["reason"] == "side call")
        .unwrap();
    assert_eq!(
        (&one["requests"], &one["status"], &one["detail"]),
        (&json!(2), &json!("side-call"), &json!("quota"))
    );
    let page = http
        .get(&gateway.base)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(page.contains("/contexture/not-managed"));
    // The provider cannot be reached. The error is the gateway's, for a request that it managed.
    drop(stage.provider);
    let answer = post(&gateway, "/v1/chat/completions", &session, turn(json!({}))).await;
    assert_eq!(
        (answer.status().as_u16(), status(&answer)),
        (502, "managed")
    );
}

/// Codex sends its tools in the first item of its input. The item stays there unchanged, its tools are counted, and the
/// engine's tools are added to them.
#[tokio::test(flavor = "multi_thread")]
async fn tools_in_an_item_of_the_input_are_tools() {
    let tool = |name: &str| json!({"type": "function", "name": name, "description": "Runs. ".repeat(200), "parameters": {"type": "object"}});
    let brought = json!({"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [
        {"type": "namespace", "name": "functions", "description": "", "tools": [{"type": "custom", "name": "exec"}, tool("wait")]},
        tool("sleep")]});
    let mut without_role = brought.clone();
    without_role.as_object_mut().unwrap().remove("role");
    without_role["type"] = json!("session_tools");
    let setting = json!({"type": "workspace_state", "id": "ws_1", "roots": ["/src"]});
    let developer = json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are an agent."}]});
    for (head, with_instructions) in [
        (vec![brought.clone(), developer.clone()], false),
        (vec![brought.clone()], false),
        (vec![developer.clone(), brought.clone()], true),
        (vec![without_role, developer.clone()], false),
        (vec![setting, brought, developer], false),
    ] {
        let stage = Stage::new("context: {engine: lcm}\nmodel: {context_length: 16000}\n");
        let gateway = stage.gateway().await;
        stage.provider.answer_with(|request| {
            Answer::text(format!("Berth {} is free. ", request.number).repeat(60))
        });
        let mut agent = Agent::new(Api::Responses, &gateway.base, "");
        agent
            .headers
            .push(("session-id".to_owned(), "codex-1".to_owned()));
        agent.has_tool = false;
        agent.stream = false;
        agent.history.clone_from(&head);
        let mut compacted = 0;
        for number in 0..40 {
            agent.user(&format!(
                "Entry {number}: which berth is free? {}",
                "Say it in many words. ".repeat(40)
            ));
            let mut body = agent.body();
            if !with_instructions {
                body.as_object_mut().unwrap().remove("instructions");
            }
            let said = agent.send_body(&body).await;
            assert_eq!(said.status, 200, "{}", said.raw);
            assert_eq!(
                said.header("x-contexture-status"),
                "managed",
                "from the first request on"
            );
            assert_eq!(said.header("x-contexture-session"), "codex-1");
            agent.history.extend(said.items.iter().cloned());
            let sent = stage.provider.requests().pop().unwrap();
            for (at, item) in head.iter().enumerate() {
                let mut now = sent.json["input"][at].clone();
                let own = item["tools"].as_array().map_or(0, Vec::len);
                if own > 0 {
                    let tools = now["tools"].as_array().unwrap().clone();
                    let names: Vec<_> = tools[own..]
                        .iter()
                        .map(|tool| tool["name"].as_str().unwrap())
                        .collect();
                    let has_engines = names.contains(&"lcm_grep");
                    assert_eq!(
                        has_engines,
                        compacted > 0
                            || said
                                .header("x-contexture-compaction")
                                .starts_with("compacted"),
                        "{names:?}"
                    );
                    now["tools"].as_array_mut().unwrap().truncate(own);
                    assert!(sent.json.get("tools").is_none());
                }
                if item["type"] != "message" {
                    assert_eq!(now, *item);
                }
            }
            compacted += usize::from(
                said.header("x-contexture-compaction")
                    .starts_with("compacted"),
            );
        }
        assert!(compacted > 0, "{head:?}");
        stage.nothing_was_refused();
    }
}

/// Requests with a Codex login go to ChatGPT's host, and those with an API key to OpenAI's.
#[tokio::test(flavor = "multi_thread")]
async fn a_chatgpt_login_has_a_host_of_its_own() {
    let answer = |_: &str| {
        let body = json!({"id": "r", "object": "response", "status": "completed", "model": "m", "output": [
            {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]}]});
        Response::builder()
            .header("content-type", "application/json")
            .body(body.to_string().into())
            .unwrap()
    };
    let (openai, by_key) = provider(answer).await;
    let (chatgpt, by_login) = provider(answer).await;
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{openai}\", api_key_env: PATH}}\n  chatgpt: {{base_url: \"{chatgpt}/backend-api/codex\"}}\n"
    );
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let gateway = support::start(home.path()).await;
    let body =
        json!({"model": "gpt-5.1-codex", "input": [{"role": "user", "content": "Hi"}]}).to_string();
    let body = compressed("zstd", body.as_bytes());
    let login = [
        ("chatgpt-account-id", "acc"),
        ("authorization", "Bearer eyJhbGciOiJub25lIn0"),
        ("content-encoding", "zstd"),
    ];
    for path in [
        "/v1/responses",
        "/responses",
        "/backend-api/codex/responses",
    ] {
        let answer = post(&gateway, path, &login, body.clone()).await;
        assert_eq!(status(&answer), "managed", "{path}");
    }
    post(
        &gateway,
        "/v1/responses",
        &[
            ("authorization", "Bearer sk-1"),
            ("content-encoding", "zstd"),
        ],
        body,
    )
    .await;
    let models = plain_client()
        .get(format!("{}/v1/models?client_version=1", gateway.base))
        .header("chatgpt-account-id", "acc");
    models.send().await.unwrap();
    let (by_login, by_key) = (by_login.lock().unwrap(), by_key.lock().unwrap());
    let paths: Vec<_> = by_login.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/backend-api/codex/responses",
            "/backend-api/codex/responses",
            "/backend-api/codex/responses",
            "/backend-api/codex/models?client_version=1"
        ]
    );
    assert_eq!(
        by_login[0].1["authorization"], "Bearer eyJhbGciOiJub25lIn0",
        "never the key of the configuration"
    );
    assert_eq!(by_login[0].1["chatgpt-account-id"], "acc");
    assert_eq!(by_key.len(), 1);
    assert_eq!(by_key[0].0, "/v1/responses");
}

/// Claude behind OpenRouter gets markers in OpenAI's format. Other models and providers do not.
#[tokio::test(flavor = "multi_thread")]
async fn claude_behind_openrouter_gets_markers_for_its_cache() {
    for (config, model, is_marked) in [
        (
            "model: {provider: openrouter}\n",
            "anthropic/claude-sonnet-4.5",
            true,
        ),
        ("model: {provider: openrouter}\n", "openai/gpt-4o", false),
        (
            "model: {provider: openrouter}\nprompt_caching: {enabled: false}\n",
            "anthropic/claude-sonnet-4.5",
            false,
        ),
        ("", "anthropic/claude-sonnet-4.5", false),
    ] {
        let stage = Stage::new(config);
        let gateway = stage.gateway().await;
        stage.provider.answer_with(|_| Answer::text("Yes."));
        let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
        agent.model = model.to_owned();
        agent.user("Hello");
        assert_eq!(agent.send().await.header("x-contexture-status"), "managed");
        let sent = stage.provider.requests().pop().unwrap();
        let has = String::from_utf8_lossy(&sent.body).contains("cache_control");
        assert_eq!(has, is_marked, "{config} {model}");
    }
    let lines = async |config: &str| {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        let options = contexture::HostOptions::in_home(home.path());
        let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
        gateway.status()[1..].join("\n")
    };
    let openrouter = "💾 Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)";
    let anthropic = "💾 Prompt caching: ENABLED (Claude via Anthropic, 5m TTL)";
    let by_chat = "upstream: {openai: {base_url: \"https://openrouter.ai/api/v1\"}}\n";
    let both = "upstream: {openai: {base_url: \"https://openrouter.ai/api/v1\"}, anthropic: {base_url: \"https://corp.example\"}}\n";
    assert_eq!(lines("").await, anthropic);
    assert_eq!(lines(by_chat).await, openrouter);
    assert_eq!(lines("model: {provider: openrouter}\n").await, openrouter);
    assert_eq!(
        lines("upstream: {anthropic: {base_url: \"https://openrouter.ai/api\"}}\n").await,
        openrouter
    );
    assert_eq!(lines(both).await, format!("{openrouter}\n{anthropic}"));
}

/// If a plugin cannot be loaded, the built-in engine stands in, and the requests are not reported as managed. The
/// plugin gets another chance as soon as it changes.
#[tokio::test(flavor = "multi_thread")]
async fn what_falls_back_is_seen_and_is_tried_again_when_the_plugin_changes() {
    let stage = Stage::new("context: {engine: tidy}\n");
    let folder = stage.home.path().join("plugins/context_engine/tidy");
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join(format!(
        "{}tidy{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    ));
    std::fs::write(&library, "abc").unwrap();
    let manifest = |pin: &str| {
        let text = format!("name: tidy\nversion: \"1\"\nsha256: {pin}\n");
        let new = folder.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, folder.join("plugin.yaml")).unwrap();
    };
    manifest(&"0".repeat(64));
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
    agent.user("Hello");
    let said = agent.go_on().await;
    assert_eq!(said.header("x-contexture-status"), "fallback");
    let reason = said.header("x-contexture-reason").to_owned();
    assert!(
        reason.contains("tidy") && reason.contains("sha256"),
        "{reason}"
    );
    assert!(
        gateway
            .metric("contexture_not_managed_total{reason=\"fallback\"}")
            .await
            > 0.0
    );
    // A changed manifest is read immediately, in the same session. It pins another digest than the library's.
    manifest("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    agent.user("More");
    let said = agent.go_on().await;
    let now = said.header("x-contexture-reason");
    assert!(!now.contains("sha256") && now.contains("tidy"), "{now}");
}
