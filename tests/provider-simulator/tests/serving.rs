//! Streams, faults, the prompt cache and its bill, and what is recorded.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::Duration;

use contexture_provider_simulator::{Answer, Api, Coder, Fault, Options, Simulator, Usage};
use serde_json::{Value, json};
use support::*;

const PATHS: [&str; 4] = [MESSAGES, CHAT, RESPONSES, GEMINI];

/// A request that asks for all that an answer may hold.
fn asking(path: &str) -> Value {
    let said = json!([{"role": "user", "content": "Look."}]);
    match path {
        MESSAGES => json!({
            "model": "claude-opus-4-8", "max_tokens": 4000, "thinking": {"type": "adaptive"},
            "tools": [anthropic_tool("bash")], "messages": said,
        }),
        CHAT => json!({
            "model": "gpt-5.2", "tools": [chat_tool("bash")], "messages": said,
        }),
        GEMINI => json!({
            "contents": [{"role": "user", "parts": [{"text": "Look."}]}], "tools": gemini_tools(&["bash"]),
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
        }),
        _ => json!({
            "model": "gpt-5.2", "include": ["reasoning.encrypted_content"], "tools": [responses_tool("bash")], "input": said,
        }),
    }
}

fn rich() -> Answer {
    Answer::thinking("Überlegung: 二つ — both 🦀🦀, one after the other.")
        .and_text("Ich schaue — naïvely — nach: 漢字 🦀 \"quoted\"\nand a second line.")
        .and_call(
            "bash",
            json!({"command": "grep -rn 'größe' . | head; echo \"ok\""}),
        )
        .and_call("bash", json!({"command": "ls"}))
}

/// What a client makes of a stream: the body that it would have had in one.
fn joined(path: &str, events: &[Value]) -> Value {
    match path {
        MESSAGES => {
            let mut message = events[0]["message"].clone();
            let mut texts = vec![String::new(); 8];
            for event in events {
                let at = event["index"].as_u64().unwrap_or(0) as usize;
                match event["type"].as_str().unwrap() {
                    "content_block_start" => {
                        let content = message["content"].as_array_mut().unwrap();
                        assert_eq!(content.len(), at);
                        content.push(event["content_block"].clone());
                    }
                    "content_block_delta" => {
                        let delta = &event["delta"];
                        let kind = delta["type"].as_str().unwrap();
                        if kind == "signature_delta" {
                            message["content"][at]["signature"] = delta["signature"].clone();
                            continue;
                        }
                        let field = match kind {
                            "text_delta" => "text",
                            "thinking_delta" => "thinking",
                            _ => "partial_json",
                        };
                        texts[at].push_str(delta[field].as_str().unwrap());
                        message["content"][at][field] = json!(texts[at]);
                    }
                    "content_block_stop" => {
                        let block = message["content"][at].as_object_mut().unwrap();
                        if let Some(text) = block.remove("partial_json") {
                            block["input"] = serde_json::from_str(text.as_str().unwrap()).unwrap();
                        }
                    }
                    "message_delta" => {
                        message["stop_reason"] = event["delta"]["stop_reason"].clone();
                        message["usage"]["output_tokens"] = event["usage"]["output_tokens"].clone();
                    }
                    _ => {}
                }
            }
            message
        }
        CHAT => {
            let mut message = json!({"role": "assistant", "content": ""});
            let mut finish = Value::Null;
            for choice in events.iter().filter_map(|event| event["choices"].get(0)) {
                let delta = &choice["delta"];
                if let Some(text) = delta["content"].as_str() {
                    message["content"] =
                        json!(format!("{}{text}", message["content"].as_str().unwrap()));
                }
                for call in delta["tool_calls"].as_array().into_iter().flatten() {
                    let at = call["index"].as_u64().unwrap() as usize;
                    if call["id"].is_string() {
                        let mut call = call.clone();
                        call.as_object_mut().unwrap().remove("index");
                        message["tool_calls"][at.to_string()] = call;
                    } else {
                        let so_far =
                            &mut message["tool_calls"][at.to_string()]["function"]["arguments"];
                        *so_far = json!(format!(
                            "{}{}",
                            so_far.as_str().unwrap(),
                            call["function"]["arguments"].as_str().unwrap()
                        ));
                    }
                }
                if choice["finish_reason"].is_string() {
                    finish = choice["finish_reason"].clone();
                }
            }
            let calls: Vec<Value> = message["tool_calls"]
                .as_object()
                .unwrap()
                .values()
                .cloned()
                .collect();
            message["tool_calls"] = json!(calls);
            json!({"message": message, "finish_reason": finish})
        }
        GEMINI => {
            let mut parts: Vec<Value> = Vec::new();
            for event in events {
                let candidate = &event["candidates"][0];
                assert_eq!(candidate["content"]["role"], "model");
                for part in candidate["content"]["parts"].as_array().unwrap() {
                    let last = parts.last_mut().filter(|last| {
                        last["text"].is_string()
                            && part["text"].is_string()
                            && (last["thought"] == part["thought"] || part["text"] == "")
                    });
                    match last {
                        Some(last) => {
                            let more = part["text"].as_str().unwrap();
                            last["text"] = json!(last["text"].as_str().unwrap().to_owned() + more);
                        }
                        None if part["text"] == "" => {}
                        None => parts.push(part.clone()),
                    }
                }
            }
            let finish = &events.last().unwrap()["candidates"][0]["finishReason"];
            assert!(events[0]["candidates"][0]["finishReason"].is_null());
            json!({"parts": parts, "finish": finish})
        }
        _ => {
            for (number, event) in events.iter().enumerate() {
                assert_eq!(event["sequence_number"], number);
            }
            let done = |event: &&Value| event["type"] == "response.output_item.done";
            let items: Vec<Value> = events
                .iter()
                .filter(done)
                .map(|event| event["item"].clone())
                .collect();
            let mut texts = vec![String::new(); items.len()];
            for event in events {
                if event["type"].as_str().unwrap().ends_with(".delta") {
                    texts[event["output_index"].as_u64().unwrap() as usize]
                        .push_str(event["delta"].as_str().unwrap());
                }
            }
            for (item, text) in items.iter().zip(texts) {
                let places = ["/summary/0/text", "/content/0/text", "/arguments"];
                let own = places.iter().find_map(|place| item.pointer(place)).unwrap();
                assert_eq!(own, &json!(text));
            }
            let last = events.last().unwrap();
            assert_eq!(last["type"], "response.completed");
            assert_eq!(last["response"]["output"], json!(items));
            last["response"].clone()
        }
    }
}

/// The same without what differs from answer to answer.
fn plain(path: &str, body: &Value) -> Value {
    let mut body = if path == CHAT && body["choices"].is_array() {
        json!({"message": body["choices"][0]["message"], "finish_reason": body["choices"][0]["finish_reason"]})
    } else if path == GEMINI && body["candidates"].is_array() {
        let candidate = &body["candidates"][0];
        json!({"parts": candidate["content"]["parts"], "finish": candidate["finishReason"]})
    } else {
        body.clone()
    };
    fn strip(value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(strip),
            Value::Object(fields) => {
                for own in ["id", "call_id", "created_at", "refusal", "annotations"] {
                    fields.remove(own);
                }
                fields.values_mut().for_each(strip);
            }
            _ => {}
        }
    }
    strip(&mut body);
    body
}

#[tokio::test]
async fn a_stream_says_what_the_body_says_however_it_is_cut() {
    for path in PATHS {
        let provider = Simulator::start();
        provider.script((0..4).map(|_| rich()));
        let (_, body) = post(&provider, path, &asking(path)).await;
        let body = plain(path, &body);
        assert!(body.to_string().contains("größe") && body.to_string().contains("漢字"));
        for piece in [0, 1, 7] {
            provider.set(|options| options.piece = piece);
            let (events, pieces) = stream(&provider, path, &asking(path)).await;
            assert_eq!(plain(path, &joined(path, &events)), body, "{path}, {piece}");
            // Cut in the middle of characters, too; the transport may join pieces, and never cuts them.
            assert!(
                piece != 1
                    || pieces
                        .iter()
                        .any(|piece| std::str::from_utf8(piece).is_err()),
                "{path}"
            );
            if path == CHAT {
                assert_eq!(events.last().unwrap(), "[DONE]");
            }
        }
        assert!(provider.violations().is_empty());
        assert_eq!(provider.said().len(), 4);
        assert!(
            provider
                .requests()
                .iter()
                .all(|request| request.finished && !request.left_early)
        );
    }
}

#[tokio::test]
async fn chat_streams_usage_only_where_it_is_asked_for() {
    let provider = Simulator::start();
    let usage = Usage {
        input: 900,
        cache_read: 100,
        output: 7,
        ..Usage::default()
    };
    provider.script((0..2).map(|_| Answer::text("Hello.").reporting(usage)));
    let (without, _) = stream(&provider, CHAT, &asking(CHAT)).await;
    assert!(without.iter().all(|event| event.get("usage").is_none()));
    let mut body = asking(CHAT);
    body["stream_options"] = json!({"include_usage": true});
    let (with, _) = stream(&provider, CHAT, &body).await;
    let [.., before, last, _done] = &with[..] else {
        panic!("{with:?}")
    };
    assert!(before["usage"].is_null() && last["choices"] == json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 1000);
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 100);
    // The bill is of what was counted.
    assert!(provider.bill().usage.input < 200);
}

#[tokio::test]
async fn a_stream_too_large_for_the_window_fails_in_the_stream() {
    let provider = Simulator::with(Options {
        window: Some(10),
        ..Options::default()
    });
    let (events, _) = stream(&provider, RESPONSES, &asking(RESPONSES)).await;
    let last = events.last().unwrap();
    assert_eq!(
        (&last["type"], &last["response"]["error"]["code"]),
        (&json!("response.failed"), &json!("context_length_exceeded"))
    );
    assert_eq!(provider.overflows().len(), 1);
    assert!(provider.violations().is_empty());
}

/// What came of a stream: its bytes, and whether it ended properly.
async fn rest(response: reqwest::Response) -> (Vec<u8>, bool) {
    let (bytes, error) = rest_and_error(response).await;
    (bytes, error.is_none())
}

/// What came of a stream, and the error that ended it.
async fn rest_and_error(mut response: reqwest::Response) -> (Vec<u8>, Option<String>) {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) => bytes.extend(piece),
            Ok(None) => return (bytes, None),
            Err(error) => return (bytes, Some(format!("{error:?}"))),
        }
    }
}

#[tokio::test]
async fn each_fault_is_what_it_says() {
    for path in PATHS {
        let provider = Simulator::start();
        let mut streaming = asking(path);
        streaming["stream"] = json!(true);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();

        for (fault, resets) in [
            (Fault::ResetAfter(100), true),
            (Fault::CloseAfter(100), false),
        ] {
            provider.script([rich().failing(fault.clone())]);
            let response = ask(&provider, path, &streaming).send().await.unwrap();
            let (bytes, error) = rest_and_error(response).await;
            let error = error.unwrap();
            assert_eq!(error.contains("ConnectionReset"), resets, "{path}: {error}");
            assert!(bytes.len() <= 100, "{path}, {fault:?}: {}", bytes.len());
        }
        for body in [&streaming, &asking(path)] {
            provider.script([rich().failing(Fault::CloseAfter(50))]);
            let (bytes, ended) = rest(ask(&provider, path, body).send().await.unwrap()).await;
            assert!(!ended && bytes.len() == 50, "{path}");
        }

        provider.script([rich().failing(Fault::HalfAnEvent)]);
        let (bytes, ended) = rest(ask(&provider, path, &streaming).send().await.unwrap()).await;
        assert!(
            ended && bytes.len() > 200 && !text(&bytes).ends_with('\n'),
            "{path}"
        );

        provider.script([
            rich().failing(Fault::ErrorEvent),
            rich().failing(Fault::ErrorEvent),
        ]);
        let (bytes, ended) = rest(ask(&provider, path, &streaming).send().await.unwrap()).await;
        let last = events(&bytes).pop().unwrap();
        let says = if path == MESSAGES {
            &last["error"]["type"]
        } else {
            &last["message"]
        };
        let says = if path == CHAT || path == GEMINI {
            &last["error"]["message"]
        } else {
            says
        };
        assert!(ended && says.is_string(), "{path}: {last}");
        assert_eq!(post(&provider, path, &asking(path)).await.0, 500);

        provider.script([
            rich().failing(Fault::WrongJson),
            rich().failing(Fault::WrongJson),
        ]);
        let (bytes, ended) = rest(ask(&provider, path, &streaming).send().await.unwrap()).await;
        let line = text(&bytes).trim_end().lines().last().unwrap().to_owned();
        assert!(
            ended && serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap()).is_err()
        );
        let response = ask(&provider, path, &asking(path)).send().await.unwrap();
        assert!(response.status() == 200 && response.json::<Value>().await.is_err());

        for status in [429, 500, 529] {
            provider
                .script([Answer::fault(Fault::Status(status)).header("x-should-retry", "true")]);
            let response = ask(&provider, path, &streaming).send().await.unwrap();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers()["x-should-retry"], "true");
            let limit = if path == MESSAGES {
                "anthropic-ratelimit-requests-remaining"
            } else {
                "x-ratelimit-remaining-requests"
            };
            if path != GEMINI {
                assert_eq!(response.headers()[limit] == "0", status == 429);
            }
            assert_eq!(
                response.headers().contains_key("retry-after"),
                status == 429
            );
            let body: Value = response.json().await.unwrap();
            assert!(body["error"]["message"].is_string());
        }
        assert_eq!(provider.scripted(), 0);
        assert!(provider.violations().is_empty());
        // What was broken off here is not the client's doing.
        assert!(
            provider
                .requests()
                .iter()
                .all(|request| !request.left_early),
            "{path}"
        );
    }
}

/// Waits until something is so; for ever, where it never is.
async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed() {
    let provider = Simulator::start();
    let mut streaming = asking(MESSAGES);
    streaming["stream"] = json!(true);
    // Before the headers.
    provider.script([Answer::fault(Fault::Hang)]);
    let asked = ask(&provider, MESSAGES, &streaming)
        .timeout(Duration::from_millis(200))
        .send()
        .await;
    assert!(asked.unwrap_err().is_timeout());
    until(|| provider.requests()[0].left_early).await;
    assert_eq!(provider.requests()[0].status, None);
    // In the middle of the stream.
    provider.script([rich().failing(Fault::HangAfter(300))]);
    let mut response = ask(&provider, MESSAGES, &streaming).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    assert!(!provider.requests()[1].left_early);
    drop(response);
    until(|| provider.requests()[1].left_early).await;
    assert!(!provider.requests()[1].finished);
    // One that takes all of it did not leave, however long it waited.
    provider.script([rich()
        .headers_after(Duration::from_millis(30))
        .first_byte_after(Duration::from_millis(30))]);
    let (bytes, ended) = rest(ask(&provider, MESSAGES, &streaming).send().await.unwrap()).await;
    assert!(ended && !bytes.is_empty());
    until(|| provider.requests()[2].finished).await;
    assert!(!provider.requests()[2].left_early);
}

#[tokio::test]
async fn everything_is_recorded_and_what_nobody_serves_is_not_found() {
    let provider = Simulator::start();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |path: &str| client.get(format!("{}{path}", provider.base_url()));
    let body: Value = get("/v1/nothing?a=1")
        .header("X-Own", "Ü")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(body["error"]["code"], "unknown_url");
    let body: Value = get("/api/hello")
        .header("anthropic-version", "2023-06-01")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(body["error"]["type"], "not_found_error");
    let upgrade = get("/v1/responses")
        .header("upgrade", "websocket")
        .send()
        .await
        .unwrap();
    assert_eq!(upgrade.status(), 426);
    let models: Value = get("/v1/models")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["object"], "list");
    let models: Value = get("/v1/models")
        .header("anthropic-version", "2023-06-01")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["has_more"], false);
    assert_eq!(
        get("/v1/models/gpt-5.2").send().await.unwrap().status(),
        200
    );
    assert_eq!(get("/v1/models/none").send().await.unwrap().status(), 404);
    let requests = provider.requests();
    assert_eq!(requests.len(), 7);
    let first = &requests[0];
    assert_eq!(
        (
            first.method.as_str(),
            first.path.as_str(),
            first.query.as_deref()
        ),
        ("GET", "/v1/nothing", Some("a=1"))
    );
    assert_eq!(first.header("x-own"), Some("Ü"));
    assert_eq!((first.api, first.status), (Api::Other, Some(404)));
    assert_eq!(provider.requests_of(Api::Models).len(), 4);
}

/// A turn of text of about so many tokens.
fn turn(role: &str, tokens: usize, mark: &str) -> Value {
    json!({"role": role, "content": [{"type": "text", "text": format!("{mark} {}", "word ".repeat(tokens * 4 / 5))}]})
}

fn mark(body: &mut Value, at: usize, ttl: &str) {
    body["messages"][at]["content"][0]["cache_control"] = json!({"type": "ephemeral", "ttl": ttl});
}

/// What a request read, wrote for five minutes, wrote for an hour, and had to pay whole.
async fn billed(provider: &Simulator, body: &Value) -> [u64; 4] {
    let (status, answer) = post(provider, MESSAGES, body).await;
    assert_eq!(status, 200, "{answer}");
    let usage = &answer["usage"];
    let figure = |value: &Value| value.as_u64().unwrap();
    let written = &usage["cache_creation"];
    let all = [
        figure(&usage["cache_read_input_tokens"]),
        figure(&written["ephemeral_5m_input_tokens"]),
        figure(&written["ephemeral_1h_input_tokens"]),
        figure(&usage["input_tokens"]),
    ];
    assert_eq!(
        figure(&usage["cache_creation_input_tokens"]),
        all[1] + all[2]
    );
    all
}

#[tokio::test]
async fn the_prompt_cache_reads_writes_and_forgets() {
    let provider = Simulator::start();
    let mut body = json!({"model": "claude-opus-4-5", "max_tokens": 10, "messages": [turn("user", 5000, "a")]});
    // Without a marker, nothing.
    let [read, short, long, whole] = billed(&provider, &body).await;
    assert!((read, short, long) == (0, 0, 0) && whole > 5000);
    mark(&mut body, 0, "5m");
    assert_eq!(billed(&provider, &body).await, [0, whole, 0, 0]);
    assert_eq!(billed(&provider, &body).await, [whole, 0, 0, 0]);
    // The marker moves on, and what it left is read as it was written, as a string, too.
    let text = body["messages"][0]["content"][0]["text"].clone();
    body["messages"][0]["content"] = text;
    for message in [turn("assistant", 10, "b"), turn("user", 100, "c")] {
        body["messages"].as_array_mut().unwrap().push(message);
    }
    mark(&mut body, 2, "5m");
    let [read, short, _, rest] = billed(&provider, &body).await;
    assert!(read == whole && short > 100 && rest == 0);
    // A use makes it live on; five minutes without one do not.
    provider.advance(Duration::from_secs(200));
    assert_eq!(billed(&provider, &body).await, [whole + short, 0, 0, 0]);
    provider.advance(Duration::from_secs(200));
    assert_eq!(billed(&provider, &body).await, [whole + short, 0, 0, 0]);
    provider.advance(Duration::from_secs(301));
    assert_eq!(billed(&provider, &body).await, [0, whole + short, 0, 0]);
    // Another model, and another account, have none of it. This model caches from 1,024 tokens on.
    body["model"] = json!("claude-opus-4-8");
    assert_eq!(billed(&provider, &body).await[0], 0);
    // One that is switched to a tool more begins anew.
    body["model"] = json!("claude-opus-4-5");
    body["tools"] = json!([anthropic_tool("bash")]);
    assert_eq!(billed(&provider, &body).await[0], 0);
    assert!(provider.violations().is_empty());
}

#[tokio::test]
async fn the_prompt_cache_has_a_smallest_size_by_model_and_looks_twenty_blocks_back() {
    let provider = Simulator::start();
    for (model, tokens, caches) in [
        ("claude-opus-4-5", 4000, false),
        ("claude-opus-4-5", 4200, true),
        ("claude-sonnet-4-5", 1000, false),
        ("claude-sonnet-4-5", 1100, true),
        ("claude-haiku-4-5", 4000, false),
        ("claude-opus-5", 600, true),
    ] {
        let mut body =
            json!({"model": model, "max_tokens": 10, "messages": [turn("user", tokens, model)]});
        mark(&mut body, 0, "5m");
        assert_eq!(
            billed(&provider, &body).await[1] > 0,
            caches,
            "{model}, {tokens}"
        );
    }
    for (more, found) in [(19, true), (20, false)] {
        let start = format!("{more} more");
        let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 10, "messages": [turn("user", 2000, &start)]});
        mark(&mut body, 0, "5m");
        billed(&provider, &body).await;
        body["messages"][0]["content"][0]
            .as_object_mut()
            .unwrap()
            .remove("cache_control");
        let blocks = body["messages"][0]["content"].as_array_mut().unwrap();
        blocks.extend((0..more).map(|at| json!({"type": "text", "text": format!("block {at}")})));
        blocks[more]["cache_control"] = json!({"type": "ephemeral"});
        assert_eq!(
            billed(&provider, &body).await[0] > 0,
            found,
            "{more} blocks later"
        );
    }
}

#[tokio::test]
async fn an_hour_costs_more_and_lasts_longer_and_the_bill_is_in_dollars() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let mut body = json!({"model": "claude-opus-4-8", "max_tokens": 10, "messages": [
        turn("user", 2000, "a"), turn("assistant", 2000, "b"), turn("user", 2000, "c"), turn("assistant", 500, "d"), turn("user", 500, "e"),
    ]});
    mark(&mut body, 0, "1h");
    mark(&mut body, 2, "5m");
    let [read, short, long, rest] = billed(&provider, &body).await;
    assert!(
        read == 0 && long > 2000 && short > 4000 && rest > 1000,
        "{short} {long} {rest}"
    );
    let bill = provider.bill();
    let output = bill.usage.output as f64 * 25.0;
    let dollars = (rest as f64 * 5.0 + short as f64 * 6.25 + long as f64 * 10.0 + output) / 1e6;
    assert!((bill.dollars - dollars).abs() < 1e-12);
    provider.advance(Duration::from_secs(3000));
    assert_eq!(billed(&provider, &body).await, [long, short, 0, rest]);
    let dollars =
        dollars + (rest as f64 * 5.0 + short as f64 * 6.25 + long as f64 * 0.5 + output) / 1e6;
    let bill = provider.bill();
    assert!((bill.dollars - dollars).abs() < 1e-12 && bill.answers == 2);
    let uncached = 2.0 * ((rest + short + long) as f64 * 5.0 + output) / 1e6;
    assert!((bill.dollars_uncached - uncached).abs() < 1e-12);
    // The automatic marker lies on the last block.
    let mut body = json!({"model": "claude-opus-4-8", "max_tokens": 10, "messages": [turn("user", 2000, "f")]});
    body["cache_control"] = json!({"type": "ephemeral"});
    let [_, short, _, rest] = billed(&provider, &body).await;
    assert!(short > 2000 && rest == 0);
}

#[tokio::test]
async fn openai_caches_by_itself_in_steps_of_128() {
    let provider = Simulator::start();
    let mut body = json!({"model": "gpt-5.2", "messages": [{"role": "user", "content": "word ".repeat(4000)}]});
    let cached = |answer: &Value| {
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached(&post(&provider, CHAT, &body).await.1), 0);
    let again = cached(&post(&provider, CHAT, &body).await.1);
    assert!(again > 4000 && again.is_multiple_of(128));
    body["messages"]
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "assistant", "content": "Yes."}));
    assert!(cached(&post(&provider, CHAT, &body).await.1) > 4000);
    body["messages"][0]["content"] = json!("other");
    assert_eq!(cached(&post(&provider, CHAT, &body).await.1), 0);
}

/// Plays an agent: answers every call with some text, until nothing is called any more. Gives what was said last.
async fn agent(provider: &Simulator, path: &str) -> String {
    let mut body = asking(path);
    loop {
        let (status, answer) = post(provider, path, &body).await;
        assert_eq!(status, 200, "{answer}");
        let (mut said, mut results) = (Vec::new(), Vec::new());
        match path {
            MESSAGES => {
                let content = answer["content"].as_array().unwrap();
                said.push(json!({"role": "assistant", "content": content}));
                let calls = content.iter().filter(|block| block["type"] == "tool_use");
                let blocks: Vec<Value> = calls
                    .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "seen"}))
                    .collect();
                if blocks.is_empty() {
                    return content.last().unwrap()["text"].as_str().unwrap().to_owned();
                }
                results.push(json!({"role": "user", "content": blocks}));
            }
            CHAT => {
                let message = &answer["choices"][0]["message"];
                said.push(message.clone());
                let Some(calls) = message["tool_calls"].as_array() else {
                    return message["content"].as_str().unwrap().to_owned();
                };
                let result = |call: &Value| json!({"role": "tool", "tool_call_id": call["id"], "content": "seen"});
                results.extend(calls.iter().map(result));
            }
            GEMINI => {
                let content = &answer["candidates"][0]["content"];
                said.push(content.clone());
                let parts = content["parts"].as_array().unwrap();
                let calls = parts.iter().map(|part| &part["functionCall"]);
                let answers: Vec<Value> = calls
                    .filter(|call| !call.is_null())
                    .map(|call| json!({"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "seen"}}}))
                    .collect();
                if answers.is_empty() {
                    return parts.last().unwrap()["text"].as_str().unwrap().to_owned();
                }
                results.push(json!({"role": "user", "parts": answers}));
            }
            _ => {
                let items = answer["output"].as_array().unwrap();
                said.extend(items.clone());
                let calls = items.iter().filter(|item| item["type"] == "function_call");
                results.extend(calls.map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "seen"})));
                if results.is_empty() {
                    return items.last().unwrap()["content"][0]["text"]
                        .as_str()
                        .unwrap()
                        .to_owned();
                }
            }
        }
        let list = match path {
            RESPONSES => "input",
            GEMINI => "contents",
            _ => "messages",
        };
        let list = body[list].as_array_mut().unwrap();
        list.extend(said);
        list.extend(results);
    }
}

#[tokio::test]
async fn the_coder_plays_a_session_to_its_end_the_same_each_time() {
    for path in PATHS {
        let mut last = None;
        for _ in 0..2 {
            let provider = Simulator::start();
            let coder = Coder {
                rounds: 12,
                seed: 7,
                ..Coder::default()
            };
            let words = coder.last_words();
            provider.answer_with(move |request| coder.answer(request));
            assert_eq!(agent(&provider, path).await, words, "{path}");
            assert!(provider.violations().is_empty());
            assert_eq!(provider.requests().len(), 13);
            let said = provider.said();
            let calls = said
                .iter()
                .map(|answer| format!("{answer:?}").matches("Call {").count())
                .sum::<usize>();
            // In rounds 5 and 10, two at once.
            assert_eq!(calls, 14);
            let whole = format!("{said:?}");
            assert!(
                last.replace(whole.clone())
                    .is_none_or(|before| before == whole)
            );
        }
    }
}

#[tokio::test]
async fn the_coder_goes_on_from_the_summary_that_it_wrote() {
    let provider = Simulator::start();
    let coder = Coder {
        rounds: 9,
        ..Coder::default()
    };
    let words = coder.last_words();
    provider.answer_with(move |request| coder.answer(request));
    let call = |step: u64| {
        json!([
            {"role": "user", "content": "Check all."},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "bash", "arguments": format!("{{\"command\":\"echo step-{step}\"}}")}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "seen"},
        ])
    };
    let text = |answer: &Value| answer["choices"][0]["message"].to_string();
    let mut summarising = call(7);
    summarising
        .as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": "Summarise. Do NOT call any tools."}));
    let tools = json!([chat_tool("bash")]);
    let mut asked = Vec::new();
    for tools in [json!(null), tools.clone()] {
        let body = json!({"model": "gpt-5.2", "messages": summarising, "tools": tools});
        let (_, answer) = post(&provider, CHAT, &body).await;
        let summary = answer["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned();
        let body = json!({"model": "gpt-5.2", "messages": [{"role": "user", "content": summary}], "tools": tools});
        asked.push(post(&provider, CHAT, &body).await.1);
    }
    assert!(text(&asked[1]).contains("step-8"), "{}", asked[1]);
    let body = json!({"model": "gpt-5.2", "messages": call(9), "tools": tools});
    assert!(text(&post(&provider, CHAT, &body).await.1).contains(&words));
    // A new task begins at its beginning.
    let mut next = call(9);
    next.as_array_mut()
        .unwrap()
        .push(json!({"role": "assistant", "content": words}));
    next.as_array_mut()
        .unwrap()
        .push(json!({"role": "user", "content": "And again."}));
    let body = json!({"model": "gpt-5.2", "messages": next, "tools": tools});
    assert!(text(&post(&provider, CHAT, &body).await.1).contains("step-1;"));
}

#[tokio::test]
async fn a_simulator_is_asked_for_a_title_and_keeps_to_the_schema() {
    let provider = Simulator::start();
    let mut body =
        json!({"model": "gpt-5.2", "messages": [{"role": "user", "content": "Name it."}]});
    assert!(post(&provider, CHAT, &body).await.1["choices"][0]["message"]["content"].is_string());
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]});
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "t", "schema": schema}});
    let (_, answer) = post(&provider, CHAT, &body).await;
    let title: Value =
        serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(title["title"].is_string());
}
