//! Answers of providers that stop short, count in their own way, or refuse prompts that are too long, byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::agent::{APIS, Agent, Api};
use support::{Running, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Maps a request's body to the bytes of a response, including its head.
type Answering = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

/// A provider that answers with raw bytes and closes the connection after each answer.
async fn provider(answer: Arc<Answering>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move { serve(stream, &*answer).await });
        }
    });
    base
}

async fn serve(mut stream: TcpStream, answer: &Answering) {
    let mut request = Vec::new();
    let mut buffer = vec![0; 65_536];
    let body = loop {
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        let Some(head) = request.windows(4).position(|part| part == b"\r\n\r\n") else {
            continue;
        };
        let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
        let length = text
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        if request.len() >= head + 4 + length {
            break request[head + 4..].to_vec();
        }
    };
    let _ = stream.write_all(&answer(&body)).await;
    let _ = stream.shutdown().await;
}

fn whole(status: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// A stream that ends after these bytes, either properly by HTTP's rules or not.
fn stream(bytes: &[u8], is_clean: bool) -> Vec<u8> {
    let mut out = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".to_vec();
    if !bytes.is_empty() {
        out.extend(format!("{:x}\r\n", bytes.len()).into_bytes());
        out.extend_from_slice(bytes);
        out.extend(b"\r\n");
    }
    if is_clean {
        out.extend(b"0\r\n\r\n");
    }
    out
}

async fn gateway(home: &std::path::Path, base: &str, config: &str) -> Running {
    let config = format!(
        "upstream:\n  openai: {{base_url: \"{base}/v1\"}}\n  anthropic: {{base_url: \"{base}\"}}\n  \
         google: {{base_url: \"{base}\"}}\n{config}"
    );
    std::fs::write(home.join("config.yaml"), config).unwrap();
    start(home).await
}

/// The response, and whether the connection broke.
async fn ask(
    http: &reqwest::Client,
    base: &str,
    api: Api,
    session: &str,
    body: &Value,
) -> (u16, Vec<u8>, bool) {
    let request = http.post(format!("{base}{}", api.path(body)));
    let request = request
        .header("x-contexture-session", session)
        .header("anthropic-version", "2023-06-01")
        .header("content-type", "application/json")
        .body(api.sent(body).to_string());
    let mut response = request.send().await.unwrap();
    let (status, mut came) = (response.status().as_u16(), Vec::new());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => came.extend_from_slice(&chunk),
            Ok(None) => return (status, came, false),
            Err(_) => return (status, came, true),
        }
    }
}

/// A provider whose answer has no head that can be used is not one that cannot be reached.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_did_in_place_of_an_answer_is_told() {
    let headers: String = (0..120).map(|at| format!("x-{at}: a\r\n")).collect();
    let many = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n");
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    for (head, says) in [
        ("", "did not send a complete answer"),
        (
            "HTTP/1.1 200 OK\r\ncontent-ty",
            "did not send a complete answer",
        ),
        (&many, "sent an answer that cannot be read"),
        ("Hello.\r\n\r\n", "sent an answer that cannot be read"),
        (
            switched,
            "sent an answer that cannot be used: 101 Switching Protocols",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let bytes = head.as_bytes().to_vec();
        let base = provider(Arc::new(move |_: &[u8]| bytes.clone())).await;
        let gateway = gateway(home.path(), &base, "").await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for stream in [true, false] {
            let body = json!({"model": "gpt-4o", "stream": stream, "messages": [{"role": "user", "content": "Is it cold?"}]});
            let (status, told, _) = ask(&http, &gateway.base, Api::Chat, "s", &body).await;
            let told = String::from_utf8_lossy(&told);
            assert!(
                status == 502 && told.contains(says),
                "{head}: {status} {told}"
            );
        }
        let other = http.get(format!("{}/v1/models", gateway.base)).send().await;
        let other = other.unwrap();
        assert_eq!(other.status(), 502, "{head}");
        let told = other.text().await.unwrap();
        assert!(told.contains(says), "{head}: {told}");
        gateway.stop().await;
    }
    let home = tempfile::tempdir().unwrap();
    let gateway = gateway(home.path(), "http://127.0.0.1:9", "").await;
    let told = reqwest::get(format!("{}/v1/models", gateway.base))
        .await
        .unwrap();
    let told = told.text().await.unwrap();
    assert!(told.contains("cannot be reached"), "{told}");
}

/// A complete stream of an API, and the offset from which on it counts as complete without its final event.
fn events(api: Api) -> (String, usize) {
    let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let (body, end) = match api {
        Api::Chat => {
            let chunk = |delta: Value, finish: Value| {
                let data = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
                format!("data: {data}\n\n")
            };
            let body = chunk(json!({"role": "assistant", "content": "Té"}), Value::Null)
                + &chunk(json!({"content": "al."}), Value::Null)
                + &chunk(json!({}), json!("stop"));
            (body, "data: [DONE]\n\n".to_owned())
        }
        Api::Messages => {
            let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [], "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 1}});
            let body = event(
                "message_start",
                json!({"type": "message_start", "message": message}),
            ) + &event(
                "content_block_start",
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            ) + &event(
                "content_block_delta",
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Téal."}}),
            ) + &event(
                "content_block_stop",
                json!({"type": "content_block_stop", "index": 0}),
            ) + &event(
                "message_delta",
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}),
            );
            (body, event("message_stop", json!({"type": "message_stop"})))
        }
        Api::Responses => {
            let item = json!({"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Téal.", "annotations": []}]});
            let response = |status: &str, output: Value| json!({"id": "r", "object": "response", "status": status, "model": "gpt-4o", "output": output, "usage": {"input_tokens": 9, "output_tokens": 3}});
            let body = event(
                "response.created",
                json!({"type": "response.created", "sequence_number": 0, "response": response("in_progress", json!([]))}),
            ) + &event(
                "response.output_item.added",
                json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}),
            ) + &event(
                "response.output_item.done",
                json!({"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item}),
            ) + &event(
                "response.completed",
                json!({"type": "response.completed", "sequence_number": 3, "response": response("completed", json!([item]))}),
            );
            (body, String::new())
        }
        Api::Gemini => {
            let response = |text: &str, finish: Value| {
                let content = json!({"role": "model", "parts": [{"text": text}]});
                let mut candidate = json!({"content": content, "index": 0});
                if !finish.is_null() {
                    candidate["finishReason"] = finish;
                }
                let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12});
                let data =
                    json!({"candidates": [candidate], "usageMetadata": usage, "responseId": "r"});
                format!("data: {data}\r\n\r\n")
            };
            let body = response("Té", Value::Null) + &response("al.", json!("STOP"));
            (body, String::new())
        }
    };
    // Without the line break and the empty line before the final event.
    let breaks = if api == Api::Gemini { 4 } else { 2 };
    let is_whole_from = body.len() - breaks;
    (body + &end, is_whole_from)
}

/// A stream may end at any byte. A complete one is passed on as complete, and a cut one ends as it would without the
/// gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_may_end_anywhere() {
    for api in APIS {
        let cut = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&cut);
        let upstream = provider(Arc::new(move |_| sent.lock().unwrap().clone())).await;
        let home = tempfile::tempdir().unwrap();
        let gateway = gateway(home.path(), &upstream, "").await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut agent = Agent::new(api, "", "");
        agent.user("Name a colour.");
        agent.has_tool = false;
        let body = agent.body();
        let (all, is_whole_from) = events(api);
        let mut cuts = 0.0;
        // Every offset near the end, and samples before it.
        let ends = (0..all.len()).filter(|end| end % 13 == 0 || *end + 60 > is_whole_from);
        for end in ends.chain([all.len()]) {
            for is_clean in [true, false] {
                let what = format!("{api:?} {end} of {} {is_clean}", all.len());
                *cut.lock().unwrap() = stream(&all.as_bytes()[..end], is_clean);
                let direct = ask(&http, &upstream, api, "s", &body).await;
                let (status, came, broken) = ask(&http, &gateway.base, api, "s", &body).await;
                assert_eq!(status, 200, "{what}");
                let text = String::from_utf8_lossy(&came);
                let is_finished = match api {
                    Api::Chat => text.trim_end().ends_with("data: [DONE]"),
                    Api::Messages => text.trim_end().ends_with("{\"type\":\"message_stop\"}"),
                    Api::Responses | Api::Gemini => end >= is_whole_from,
                };
                let is_whole = is_finished || (is_clean && end >= is_whole_from);
                if api == Api::Responses && !is_whole {
                    assert!(
                        text.contains("\"type\":\"response.failed\""),
                        "{what}: {text}"
                    );
                    assert!(text.ends_with("\n\n"), "{what}: {text}");
                    assert_eq!(broken, !is_clean, "{what}: {text}");
                } else {
                    assert_eq!(text, String::from_utf8_lossy(&direct.1), "{what}");
                    assert_eq!(broken, direct.2 && !is_finished, "{what}: {text}");
                }
                cuts += f64::from(u8::from(!is_whole));
                let counted = gateway.metric("contexture_cut_streams_total").await;
                assert_eq!(counted, cuts, "{what}: {text}");
            }
        }
    }
}

/// A provider that counts more tokens than the gateway, has a window of its own, and says so in these words.
fn refusing(
    window: usize,
    words: fn(usize, usize) -> Value,
    refusals: Arc<Mutex<Vec<usize>>>,
) -> Arc<Answering> {
    Arc::new(move |body| {
        let tokens = body.len() / 2;
        match tokens > window {
            true => {
                refusals.lock().unwrap().push(tokens);
                whole("400 Bad Request", &words(tokens, window))
            }
            false => whole(
                "200 OK",
                &json!({"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}]}),
            ),
        }
    })
}

/// The resent request fits by the provider's count, and the limit is remembered, even after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_is_met_in_the_providers_tokens_and_once() {
    let wordings: [fn(usize, usize) -> Value; 4] = [
        |tokens, window| json!({"error": {"message": format!("prompt token count of {tokens} exceeds the limit of {window}"), "code": "model_max_prompt_tokens_exceeded"}}),
        |_, window| json!({"error": {"message": format!("Your request exceeded model token limit: {window}"), "type": "invalid_request_error"}}),
        |tokens, window| json!({"error": format!("request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it")}),
        |_, _| json!({"message": "Input is too long for requested model."}),
    ];
    for (number, words) in wordings.into_iter().enumerate() {
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let upstream = provider(refusing(9_000, words, Arc::clone(&refusals))).await;
        let home = tempfile::tempdir().unwrap();
        let mut running = gateway(home.path(), &upstream, "").await;
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut messages = Vec::new();
        for turn in 0..60 {
            if turn == 40 {
                running.stop().await;
                running = gateway(home.path(), &upstream, "").await;
            }
            let text = format!("{turn}: {}", "words of a long story ".repeat(40));
            messages.push(json!({"role": "user", "content": text}));
            let body = json!({"model": "gpt-4o", "messages": messages});
            let (status, came, _) = ask(&http, &running.base, Api::Chat, "s", &body).await;
            let text = String::from_utf8_lossy(&came);
            assert_eq!(status, 200, "{number} {turn}: {text}");
            messages.push(json!({"role": "assistant", "content": "Yes."}));
        }
        let refusals = refusals.lock().unwrap().len();
        // If the error has no numbers, a few attempts are needed to find the window.
        let most = if number == 3 { 6 } else { 2 };
        assert!((1..=most).contains(&refusals), "{number}: {refusals}");
    }
}

/// The usage that a provider reported decides when a session is compacted, even if the gateway was restarted meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn reported_usage_is_known_after_a_restart() {
    for (reported, compacts) in [(17_500, true), (9_000, false)] {
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lengths);
        let upstream = provider(Arc::new(move |body| {
            seen.lock().unwrap().push(body.len());
            whole(
                "200 OK",
                &json!({"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": reported, "completion_tokens": 2, "total_tokens": reported + 2}}),
            )
        }))
        .await;
        let home = tempfile::tempdir().unwrap();
        let window = "model: {context_length: 20000}\n";
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut messages = Vec::new();
        for turn in 0..42 {
            let text = format!("{turn}: {}", "words of a long story ".repeat(40));
            messages.push(json!({"role": "user", "content": text}));
            messages.push(json!({"role": "assistant", "content": "Yes."}));
        }
        for _ in 0..2 {
            messages.push(json!({"role": "user", "content": "Go on."}));
            let running = gateway(home.path(), &upstream, window).await;
            let body = json!({"model": "gpt-4o", "messages": messages});
            let (status, ..) = ask(&http, &running.base, Api::Chat, "s", &body).await;
            assert_eq!(status, 200);
            running.stop().await;
            messages.push(json!({"role": "assistant", "content": "Yes."}));
        }
        let lengths = lengths.lock().unwrap();
        assert_eq!(lengths[1] < lengths[0], compacts, "{reported}: {lengths:?}");
    }
}

/// A store that cannot be opened is reported outside of the log, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_is_seen() {
    let upstream = provider(refusing(1_000_000, |_, _| Value::Null, Arc::default())).await;
    let home = tempfile::tempdir().unwrap();
    let running = gateway(home.path(), &upstream, "context: {engine: lcm}\n").await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello"}]});
    let health = async |base: &str, token: &str| {
        let asked = http.get(format!("{base}/healthz"));
        let answer = asked.header("x-contexture-token", token).send().await;
        let answer = answer.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    ask(&http, &running.base, Api::Chat, "a-name", &body).await;
    assert_eq!(health(&running.base, "").await, (200, "ok\n".to_owned()));
    running.stop().await;
    let store = home
        .path()
        .join("engines/lcm")
        .join(contexture_lcm::store::FILE_NAME);
    for more in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{more}", store.display()));
    }
    std::fs::remove_file(&store).unwrap();
    std::fs::create_dir(&store).unwrap();
    let running = start(home.path()).await;
    let (status, ..) = ask(&http, &running.base, Api::Chat, "a-name", &body).await;
    assert_eq!(status, 200);
    // Which session it is and where its files lie is for whoever may read the home directory.
    let token = std::fs::read_to_string(home.path().join("gateway.token")).unwrap();
    for (token, names) in [("", false), ("wrong", false), (token.trim(), true)] {
        let (status, text) = health(&running.base, token).await;
        assert!(status == 200 && text.starts_with("degraded"), "{text}");
        assert_eq!(text.contains("a-name"), names, "{text}");
    }
    let failures = running.metric("contexture_engine_failures_total").await;
    assert_eq!(failures, 1.0);
}
