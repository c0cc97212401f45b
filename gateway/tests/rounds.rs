//! The engine's tools: offered, called in rounds that the client does not see, and put back on later turns.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use contexture::session::{KeptContent, Record};
use contexture_provider_simulator::{Answer, Usage};
use serde_json::{Value, json};
use support::agent::{self, APIS, Agent, Api, Said};
use support::{Running, Stage, each, lcm_stage as stage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn grep(pattern: &str) -> Answer {
    Answer::thinking("I have to look it up.")
        .and_text("I look it up. ")
        .and_call("lcm_grep", json!({"pattern": pattern}))
}

/// The texts of the results that answer calls of the engine's tools.
fn count_of(request: &Value, text: &str) -> usize {
    request.to_string().matches(text).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_engines_tools_are_answered_and_never_seen() {
    for api in APIS {
        for stream in [true, false] {
            for piece in [0, 5, 1 << 20] {
                let stage = stage("");
                stage.provider.set(|options| options.piece = piece);
                let gateway = stage.gateway().await;
                let mut agent = Agent::new(api, &gateway.base, "s");
                agent.stream = stream;
                if api == Api::Messages {
                    agent.more = json!({"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 2048}});
                }
                stage
                    .provider
                    .script([Answer::text("Noted: the port is 4711.")]);
                agent.ask("The port is 4711.", "").await;
                stage.provider.script([
                    grep("port"),
                    grep("4711"),
                    Answer::thinking("There.").and_text("It is 4711."),
                ]);
                let said = agent.ask("Which port was it?", "").await;
                assert_eq!(
                    said[0].text, "I look it up. I look it up. It is 4711.",
                    "{api:?} {stream}"
                );
                assert!(!said[0].raw.contains("lcm_grep"), "{}", said[0].raw);
                if !stream {
                    assert_eq!(said[0].header("x-contexture-hidden-rounds"), "2");
                    assert!(said[0].header("x-contexture-tokens").contains("input="));
                }
                let requests = stage.provider.requests();
                assert_eq!(requests.len(), 4, "{api:?}");
                for request in &requests {
                    let names = request.tool_names();
                    assert_eq!(names[0], "run");
                    assert!(names.contains(&"lcm_grep"), "{names:?}");
                    assert_eq!(request.json["tools"], requests[0].json["tools"]);
                }
                assert!(
                    requests[3].last_text().contains("4711"),
                    "{}",
                    requests[3].last_text()
                );
                // The rounds are put back on later turns, and what was sent before is how the request begins.
                stage.provider.script([Answer::text("Gladly.")]);
                agent.ask("Thanks.", "").await;
                let last = stage.provider.requests().pop().unwrap();
                let before = requests[3].messages();
                let without = |value: &Value| {
                    let mut text = value.to_string();
                    for marker in [
                        ",\"cache_control\":{\"type\":\"ephemeral\"}",
                        "\"cache_control\":{\"type\":\"ephemeral\"},",
                    ] {
                        text = text.replace(marker, "");
                    }
                    text
                };
                for (old, new) in before.iter().zip(last.messages()).take(before.len() - 1) {
                    if old["content"].is_array() == new["content"].is_array() {
                        assert_eq!(without(old), without(new), "{api:?} {stream}");
                    }
                }
                assert_eq!(
                    count_of(&last.json["messages"], "tool_use_id"),
                    if api == Api::Messages { 2 } else { 0 }
                );
                assert_eq!(
                    count_of(&last.json["contents"], "\"functionResponse\""),
                    if api == Api::Gemini { 2 } else { 0 }
                );
                // Gemini's results repeat the name of the tool.
                let named = if api == Api::Gemini { 4 } else { 2 };
                assert_eq!(
                    count_of(&last.json, "\"lcm_grep\""),
                    named + 1,
                    "{}",
                    last.json
                );
                if api == Api::Gemini {
                    assert_eq!(count_of(&last.json, "\"thoughtSignature\""), 2);
                }
                if api == Api::Messages {
                    assert_eq!(count_of(&last.json, "\"signature\""), 3, "{}", last.json);
                }
                assert!(gateway.metric("contexture_hidden_rounds_total").await == 2.0);
                stage.nothing_was_refused();
            }
        }
    }
}

/// The model repeats secrets in calls that the client does not see and in items that it refers to, and
/// the user names a session after one. The model still gets the words as they are.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_a_round_an_item_or_a_title_is_stored_under_redact() {
    const SECRET: &str = "Zq8vN3kLw0RtYb5XcD7eF9gHj2Mn4PqS6uVxWyZa";
    let redacts = "transcript: {redact: true}\n";
    each(stage, redacts, async |stage, mut gateway, mut agent| {
        agent.refers = agent.api == Api::Responses;
        for turn in ["One", "Two"] {
            let said = format!("{turn}: the api_key={SECRET} is set.");
            stage
                .provider
                .script([grep(&format!("sk-proj-{SECRET}")), Answer::text(said)]);
            agent.ask("Look it up.", "").await;
        }
        let last = stage.provider.requests().last().unwrap().json.to_string();
        assert!(last.contains(SECRET), "{last}");
        let renamed = (agent
            .http
            .post(format!("{}/contexture/rename", gateway.base)))
        .json(&json!({"session": "s", "title": format!("api_key={SECRET}")}))
        .send()
        .await
        .unwrap();
        assert_eq!(renamed.status(), 200);
        gateway.stop().await;
        let record = Record::open(stage.home.path()).unwrap();
        let names = record.kept("s").unwrap().into_iter().map(|(name, _)| name);
        let names = names.collect::<Vec<_>>().join(",");
        assert!(
            names.contains("hidden 0") && names.contains("title"),
            "{names}"
        );
        assert_eq!(names.contains("item "), agent.refers, "{names}");
        drop(record);
        for file in std::fs::read_dir(stage.home.path()).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                let found = bytes
                    .windows(SECRET.len())
                    .position(|at| at == SECRET.as_bytes());
                let around = |at: usize| {
                    String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]).into_owned()
                };
                assert_eq!(found.map(around), None, "{}", path.display());
            }
        }
        // After a restart the session goes on with what is stored.
        gateway = stage.gateway().await;
        agent.base.clone_from(&gateway.base);
        stage.provider.script([Answer::text("Gladly.")]);
        let said = agent.ask("Thank you.", "").await;
        assert_eq!(said[0].header("x-contexture-status"), "managed");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_round_is_kept_though_an_earlier_one_is_damaged() {
    each(stage, "", async |stage, mut gateway, mut agent| {
        for pattern in ["first-7", "second-7"] {
            stage
                .provider
                .script([grep(pattern), Answer::text("It is not there.")]);
            agent.ask("Look it up.", "").await;
            gateway.stop().await;
            if pattern == "first-7" {
                let record = Record::open(stage.home.path()).unwrap();
                let mut rounds = record.kept_as("hidden 00000000", None).unwrap();
                let (session, round) = rounds.remove(0);
                let damaged = [("hidden 00000000", "{"), ("hidden 00000001", &round)];
                record
                    .keep(&session, KeptContent::Conversation, &damaged)
                    .unwrap();
            }
            gateway = stage.gateway().await;
            agent.base.clone_from(&gateway.base);
        }
        stage.provider.script([Answer::text("Gladly.")]);
        agent.ask("Thanks.", "").await;
        let last = stage.provider.requests().pop().unwrap();
        for pattern in ["first-7", "second-7"] {
            assert!(
                count_of(&last.json, pattern) > 0,
                "{pattern}: {}",
                last.json
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_calls_of_both_kinds_gives_the_client_its_own() {
    each(stage, "", async |stage, gateway, mut agent| {
        let both = Answer::text("Both. ")
            .and_call("run", json!({"command": "a"}))
            .and_call("lcm_grep", json!({"pattern": "zebra"}))
            .and_call("run", json!({"command": "b"}));
        stage.provider.script([both, Answer::text("Done.")]);
        let said = agent.ask("Look for the zebra.", "its result").await;
        let names: Vec<&str> = said[0]
            .calls
            .iter()
            .map(|(_, name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["run", "run"]);
        assert!(!said[0].raw.contains("lcm_grep"));
        assert_eq!(said[1].text, "Done.");
        let requests = stage.provider.requests();
        assert_eq!(requests.len(), 2);
        let named = if agent.api == Api::Gemini { 3 } else { 2 };
        assert_eq!(
            count_of(&requests[1].json, "\"lcm_grep\""),
            named,
            "{}",
            requests[1].json
        );
        assert_eq!(count_of(&requests[1].json, "its result"), 2);
        // And again after them, from another gateway, which knows of it from the store alone.
        gateway.stop().await;
        let gateway = stage.gateway().await;
        agent.base = gateway.base.clone();
        stage.provider.script([Answer::text("Fine.")]);
        agent.ask("And now?", "").await;
        let last = stage.provider.requests().pop().unwrap();
        assert_eq!(count_of(&last.json, "\"lcm_grep\""), named, "{}", last.json);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_an_end_to_the_rounds() {
    each(
        stage,
        "gateway: {max_rounds: 3}\n",
        async |stage, gateway, mut agent| {
            let (api, stream) = (agent.api, agent.stream);
            stage.provider.answer_with(|_| grep("again"));
            agent.user("Look.");
            let said = agent.go_on().await;
            assert!(said.calls.is_empty());
            let requests = stage.provider.requests();
            // Three hidden rounds, each with its results, and the one that ends the answer.
            assert_eq!(requests.len(), 4, "{api:?}");
            assert_eq!(gateway.metric("contexture_hidden_rounds_total").await, 3.0);
            assert!(requests[3].last_text().contains("as often as it may be"));
            let kinds = [
                "prompt_tokens",
                "input_tokens",
                "cache_read_input_tokens",
                "cache_creation_input_tokens",
                "promptTokenCount",
            ];
            let input: u64 = kinds
                .iter()
                .filter_map(|kind| said.usage[kind].as_u64())
                .sum();
            assert!(input > 0, "{api:?} {stream}: {}", said.usage);
            stage.provider.answer_with(|_| Answer::text("Enough."));
            agent.user("Well?");
            assert_eq!(agent.go_on().await.text, "Enough.");
        },
    )
    .await;
}

/// The texts of two rounds are kept apart.
#[tokio::test(flavor = "multi_thread")]
async fn texts_around_a_hidden_round_do_not_run_into_each_other() {
    for (api, stream) in [Api::Chat, Api::Gemini]
        .into_iter()
        .flat_map(|api| [(api, true), (api, false)])
    {
        let stage = stage("");
        let gateway = stage.gateway().await;
        let looks = Answer::text("Let me look.").and_call("lcm_grep", json!({"pattern": "x"}));
        stage
            .provider
            .script([looks, Answer::text("It is 4711."), Answer::text("Gladly.")]);
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.stream = stream;
        let said = agent.ask("Which port?", "").await;
        assert_eq!(said[0].text, "Let me look.\n\nIt is 4711.");
        // The rounds are restored, although the client has them as one message.
        agent.ask("Thanks.", "").await;
        let last = stage.provider.requests().pop().unwrap();
        assert_eq!(
            count_of(&last.json[api.list()], "\"lcm_grep\""),
            if api == Api::Gemini { 2 } else { 1 },
            "{}",
            last.json
        );
        assert!(
            !last.json.to_string().contains("look.\\n\\n"),
            "{}",
            last.json
        );
        stage.nothing_was_refused();
    }
}

/// What steers the clients' own compaction: the prompt of the last round, and all that was written.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_that_of_the_last_round_and_the_sum_of_what_was_written() {
    each(stage, "", async |stage, gateway, mut agent| {
        let (api, stream) = (agent.api, agent.stream);
        let reports = |input, output| Usage {
            input,
            output,
            ..Usage::default()
        };
        stage.provider.script([
            grep("x").reporting(reports(1000, 30)),
            Answer::text("Nothing.").reporting(reports(1200, 5)),
        ]);
        agent.user("Look.");
        let usage = agent.go_on().await.usage;
        let (input, output) = match api {
            Api::Chat => (&usage["prompt_tokens"], &usage["completion_tokens"]),
            Api::Gemini => (&usage["promptTokenCount"], &usage["candidatesTokenCount"]),
            _ => (&usage["input_tokens"], &usage["output_tokens"]),
        };
        assert_eq!(output, 35, "{api:?} {stream} {usage}");
        // Anthropic tells the prompt at the beginning of a stream, and sometimes again at its end.
        if !(api == Api::Messages && stream) {
            assert_eq!(input, 1200, "{api:?} {stream} {usage}");
        }
        assert_eq!(
            gateway
                .metric("contexture_tokens_total{kind=\"input\"")
                .await,
            2200.0
        );
    })
    .await;
}

/// What the model says `LENGTH` times beside a call.
const AT_LENGTH: &str = "I look it up, and say why. ";
const LENGTH: usize = 250;

/// The answer to a question that fits the provider's window, where a hidden round is needed that does not; and that
/// window.
async fn overflows_in_a_hidden_round(stage: &Stage, agent: &mut Agent) -> (Said, u64) {
    stage.provider.script([Answer::text("Hello.")]);
    agent.ask("Hello", "").await;
    let before = stage.provider.requests().pop().unwrap();
    let window = before.prompt_tokens() + 200;
    stage.provider.set(|options| options.window = Some(window));
    let looks =
        Answer::text(AT_LENGTH.repeat(LENGTH)).and_call("lcm_grep", json!({"pattern": "4711"}));
    stage.provider.script([looks, Answer::text("It is 4711.")]);
    agent.user("Which port was it? 4711?");
    (agent.send().await, window)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_round_that_does_not_fit_is_sent_again_smaller() {
    each(stage, "", async |stage, gateway, mut agent| {
        let (api, stream) = (agent.api, agent.stream);
        stage.provider.answer_with(|_| Answer::text("Yes."));
        for number in 0..12 {
            let words = "words of a long story ".repeat(100);
            agent.ask(&format!("{number} {words}"), "").await;
        }
        let (said, window) = overflows_in_a_hidden_round(stage, &mut agent).await;
        let at = format!("{api:?} {stream}: {}", said.raw);
        assert!(said.ended && said.text.ends_with("It is 4711."), "{at}");
        let overflows = stage.provider.overflows().len();
        assert!(overflows > 0, "{at}");
        let resent = gateway.metric("contexture_resent_total").await;
        assert_eq!(resent, overflows as f64, "{at}");
        assert_eq!(gateway.metric("contexture_hidden_rounds_total").await, 1.0);
        // What is asked and looked up is there, and what the model said at length as well.
        let last = stage.provider.requests().pop().unwrap();
        assert!(last.prompt_tokens() <= window, "{at}");
        assert!(last.last_text().contains("4711"), "{}", last.last_text());
        assert!(last.json.to_string().contains("Which port was it?"), "{at}");
        assert_eq!(count_of(&last.json, AT_LENGTH.trim()), LENGTH);
        agent.history.extend(said.items);
        assert_eq!(agent.ask("Thanks.", "").await[0].text, "Yes.");
    })
    .await;
}

/// What clients know by the provider's own words (Claude Code) or code (Codex) to compact or to stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_hidden_round_that_cannot_fit_ends_in_the_providers_words() {
    each(stage, "", async |stage, _gateway, mut agent| {
        let (api, stream) = (agent.api, agent.stream);
        let (said, _) = overflows_in_a_hidden_round(stage, &mut agent).await;
        let at = format!("{api:?} {stream}: {}", said.raw);
        let error = match stream {
            true => agent::events(&said.raw).pop().unwrap(),
            false => serde_json::from_str(&said.raw).unwrap(),
        };
        let error = match (api, stream) {
            (Api::Responses, true) => {
                assert_eq!(error["type"], "response.failed", "{at}");
                &error["response"]["error"]
            }
            _ => &error["error"],
        };
        assert_eq!(said.status, if stream { 200 } else { 400 }, "{at}");
        match api {
            Api::Messages => {
                assert_eq!(error["type"], "invalid_request_error", "{at}");
                let message = error["message"].as_str().unwrap();
                assert!(message.starts_with("prompt is too long: "), "{at}");
            }
            Api::Gemini => {
                assert_eq!(error["status"], "INVALID_ARGUMENT", "{at}");
                let message = error["message"].as_str().unwrap();
                assert!(message.starts_with("The input token count ("), "{at}");
            }
            _ => assert_eq!(error["code"], "context_length_exceeded", "{at}"),
        }
        // The client asks once more, and the provider has more room.
        stage.provider.set(|options| options.window = None);
        assert_eq!(agent.go_on().await.text, "It is 4711.");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_not_offered_to_who_forbids_them() {
    let stage = stage("");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let config = json!({"functionCallingConfig": {"mode": "NONE"}});
    for (api, more) in [
        (Api::Chat, json!({"tool_choice": "none"})),
        // The client fetches the answer with a request that passes unchanged.
        (Api::Responses, json!({"background": true, "store": true})),
        (Api::Gemini, json!({"toolConfig": config})),
        // Google's own tools exclude others.
        (Api::Gemini, json!({"tools": [{"googleSearch": {}}]})),
    ] {
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.more = more;
        let said = agent.ask("Hello", "").await;
        assert_eq!(said[0].header("x-contexture-status"), "managed");
    }
    for request in stage.provider.requests() {
        assert!(!request.tool_names().contains(&"lcm_grep"));
    }
    stage.nothing_was_refused();
}

/// A call that leaked elsewhere was answered by the client, which has no such tool: nobody is to believe it.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_with_a_leaked_call_is_healed() {
    for api in APIS {
        let stage = stage("");
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(api, &gateway.base, "s");
        stage.provider.script([Answer::text("Hello.")]);
        agent.ask("Hello", "").await;
        agent.user("Look.");
        agent.base = stage.provider.base_url();
        stage
            .provider
            .script([Answer::text("I look.").and_call("lcm_grep", json!({"pattern": "x"}))]);
        let leaked = agent.go_on().await;
        agent.results(&leaked, "No such tool available: lcm_grep");
        if api == Api::Messages {
            agent.history.last_mut().unwrap()["content"][0]["is_error"] = json!(true);
        }
        agent.base = gateway.base.clone();
        stage.provider.script([Answer::text("So be it.")]);
        assert_eq!(agent.go_on().await.text, "So be it.");
        let sent = stage.provider.requests().pop().unwrap();
        assert!(!sent.json.to_string().contains("No such tool"), "{api:?}");
        assert!(sent.last_text().contains("The tool is there"), "{api:?}");
        assert!(!sent.json.to_string().contains("is_error"), "{api:?}");
        stage.nothing_was_refused();
    }
}

/// Asks for a stream on a connection of its own, and answers all that comes.
async fn raw_stream(base: &str, session: &str, headers: &str) -> String {
    let question = json!({"role": "user", "content": "Which port was it?"});
    let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "stream": true, "messages": [question]});
    let body = body.to_string();
    let address = base.trim_start_matches("http://");
    let request = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-contexture-session: {session}\r\n{headers}\
         x-api-key: k\r\nanthropic-version: 2023-06-01\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_totals_for_those_who_ask_for_trailers() {
    let stage = stage("");
    let gateway = stage.gateway().await;
    let mut tokens = gateway
        .metric("contexture_tokens_total{kind=\"output\"")
        .await;
    for (headers, asks) in [("", false), ("te: trailers\r\n", true)] {
        stage
            .provider
            .script([grep("port"), Answer::text("I do not know.")]);
        let answer = raw_stream(&gateway.base, &format!("s-{asks}"), headers).await;
        let (stream, end) = answer.rsplit_once("\r\n0\r\n").unwrap();
        assert!(stream.contains("message_stop"), "{answer}");
        assert_eq!(
            end.contains("x-contexture-hidden-rounds: 1\r\n"),
            asks,
            "{end}"
        );
        let now = gateway
            .metric("contexture_tokens_total{kind=\"output\"")
            .await;
        let output = format!("; output={}\r\n", now - tokens);
        assert_eq!(end.contains(&output), asks, "{output:?}: {end}");
        tokens = now;
    }
    stage.nothing_was_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_that_the_model_makes_in_a_hidden_round_is_in_the_next_window() {
    const PIN: &str = "The port of the staging database is 8123.";
    let config =
        "compression: {model_tools: true, timing: threshold, threshold: 3000, protect_last_n: 2}\n";
    let plain = |more: &str| Stage::new(more);
    each(plain, config, async |stage, gateway, mut agent| {
        let pin = Answer::text("I keep it. ").and_call("context_pin", json!({"text": PIN}));
        stage.provider.script([pin, Answer::text("Kept.")]);
        let said = agent.ask(&format!("Note: {PIN}"), "").await;
        assert_eq!(said[0].text, "I keep it. Kept.");
        assert!(!said[0].raw.contains("context_pin"), "{}", said[0].raw);
        let requests = stage.provider.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(
            requests[0].tool_names()[1..],
            ["context_pin", "context_unpin", "context_reduce"]
        );
        assert!(
            requests[1].last_text().contains("Pinned."),
            "{}",
            requests[1].last_text()
        );
        assert_eq!(gateway.metric("contexture_hidden_rounds_total").await, 1.0);
        // Another gateway compacts, and has the pin from the store.
        gateway.stop().await;
        let gateway = stage.gateway().await;
        agent.base = gateway.base.clone();
        for turn in 0..14 {
            stage.provider.script([Answer::text("I see.")]);
            let long = "a line of a log that says nothing\n".repeat(60);
            agent.ask(&format!("Part {turn}:\n{long}"), "").await;
        }
        let last = stage.provider.requests().pop().unwrap();
        let pinned = format!("by the assistant itself. It still holds, word for word:\\n- {PIN}");
        assert_eq!(count_of(&last.json, &pinned), 1, "{}", last.json);
    })
    .await;
}

/// The type and the bytes of an answer.
type Sent = (String, Vec<u8>);

/// A gateway whose provider answers as the simulator does, except for what is changed: a request before it is sent, by
/// its number, and the answer to it.
async fn changed(
    stage: &Stage,
    ask: impl Fn(usize, &mut String, &mut Value) + Clone + Send + Sync + 'static,
    answer: impl Fn(usize, Sent) -> Sent + Clone + Send + Sync + 'static,
) -> Running {
    let simulator = stage.provider.base_url().to_owned();
    let count = Arc::new(AtomicUsize::new(0));
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let relay = move |request: Request| async move {
        let number = count.fetch_add(1, Ordering::SeqCst);
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let mut body = serde_json::from_slice(&body).unwrap();
        let mut path = head.uri.path_and_query().unwrap().to_string();
        ask(number, &mut path, &mut body);
        let mut headers = head.headers;
        headers.remove("host");
        headers.remove("content-length");
        let sending = http.post(format!("{simulator}{path}")).headers(headers);
        let came = sending.body(body.to_string()).send().await.unwrap();
        assert_eq!(came.status(), 200);
        let kind = came.headers()["content-type"].to_str().unwrap().to_owned();
        let (kind, bytes) = answer(number, (kind, came.bytes().await.unwrap().to_vec()));
        Response::builder()
            .header("content-type", kind)
            .body(Body::from(bytes))
            .unwrap()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(relay)).await });
    let config = std::fs::read_to_string(stage.config()).unwrap();
    let config = config.replace(stage.provider.base_url().as_str(), &base);
    std::fs::write(stage.config(), config).unwrap();
    stage.gateway().await
}

/// The type and the bytes of the answer to an agent's history, which may be no answer that an agent can read.
async fn sent_to(agent: &Agent) -> (String, String) {
    let body = agent.body();
    let url = format!("{}{}", agent.base, agent.api.path(&body));
    let request = agent.http.post(url).header("x-contexture-session", "s");
    let request = match agent.api {
        Api::Messages => request
            .header("x-api-key", "k")
            .header("anthropic-version", "2023-06-01"),
        Api::Gemini => request.header("x-goog-api-key", "k"),
        Api::Chat | Api::Responses => request.header("authorization", "Bearer k"),
    };
    let request = request.header("content-type", "application/json");
    let request = request.body(agent.api.sent(&body).to_string());
    let came = request.send().await.unwrap();
    assert_eq!(came.status(), 200);
    let kind = came.headers()["content-type"].to_str().unwrap().to_owned();
    (kind, came.text().await.unwrap())
}

/// Some providers send an error with the status 200. In a later round it is told as any other error.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_with_a_good_status_ends_a_later_round() {
    for api in APIS {
        for stream in [true, false] {
            for error in [
                json!({"error": {"message": "Provider overloaded", "code": 502}}),
                json!({"detail": "Provider overloaded"}),
            ] {
                let stage = stage("");
                let sent = error.to_string();
                let gateway = changed(
                    &stage,
                    |_, _, _| (),
                    move |number, came| match number {
                        1 => ("application/json".to_owned(), sent.clone().into_bytes()),
                        _ => came,
                    },
                )
                .await;
                let mut agent = Agent::new(api, &gateway.base, "s");
                agent.stream = stream;
                stage
                    .provider
                    .script([grep("port"), Answer::text("Found.")]);
                agent.user("Which port was it?");
                let (_, raw) = sent_to(&agent).await;
                let what = format!("{api:?} {stream} {error}: {raw}");
                assert!(raw.contains("Provider overloaded"), "{what}");
                assert!(!raw.contains("lcm_grep"), "{what}");
                for end in [
                    "[DONE]", "message_stop", "response.completed", "finishReason",
                ] {
                    assert!(!raw.contains(end), "{what}");
                }
                if !stream {
                    assert_eq!(raw, error.to_string(), "{what}");
                }
            }
        }
    }
}

/// A provider may answer a later round with a stream although the answer is a JSON body.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_round_of_a_json_answer_may_be_a_stream() {
    for api in APIS {
        let stage = stage("");
        let ask = move |number: usize, path: &mut String, body: &mut Value| {
            if number == 1 {
                match api {
                    Api::Gemini => {
                        *path = path.replace("generateContent", "streamGenerateContent?alt=sse");
                    }
                    _ => body["stream"] = json!(true),
                }
            }
        };
        let gateway = changed(&stage, ask, |_, came| came).await;
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.stream = false;
        stage
            .provider
            .script([grep("port"), Answer::text("Found.")]);
        let said = agent.ask("Which port was it?", "").await;
        assert_eq!(
            said[0].text, "I look it up. Found.",
            "{api:?}: {}",
            said[0].raw
        );
        assert_eq!(said[0].header("content-type"), "application/json");
        assert!(!said[0].raw.contains("lcm_grep"), "{}", said[0].raw);
        assert_eq!(stage.provider.requests().len(), 2);
    }
}

/// What makes a stream one is its events, whatever its type is, and their data may be on several lines.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_any_type_and_form_is_read() {
    for api in APIS {
        for (kind, form) in [
            ("Text/Event-Stream; charset=utf-8", ""),
            ("text/plain", ""),
            ("application/octet-stream", "mark"),
            ("application/json", ""),
            ("text/event-stream", "lines"),
            ("text/event-stream", "mark"),
            ("text/event-stream", "returns"),
            ("application/json", "mark of a body"),
        ] {
            let stage = stage("");
            let answer = move |_, (_, bytes): Sent| {
                let text = String::from_utf8(bytes).unwrap();
                let text = match form {
                    "lines" => text.replace(",\"", ",\ndata: \""),
                    "mark" | "mark of a body" => format!("\u{feff}{text}"),
                    "returns" => text.replace("\r\n", "\n").replace('\n', "\r"),
                    _ => text,
                };
                (kind.to_owned(), text.into_bytes())
            };
            let gateway = changed(&stage, |_, _, _| (), answer).await;
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.stream = form != "mark of a body";
            stage
                .provider
                .script([grep("port"), Answer::text("Found.")]);
            agent.user("Which port was it?");
            let (came, raw) = sent_to(&agent).await;
            let what = format!("{api:?} {kind} {form}: {raw}");
            assert_eq!(came, kind, "{what}");
            assert_eq!(stage.provider.requests().len(), 2, "{what}");
            // The simulator sends texts in pieces.
            assert!(raw.contains("nd."), "{what}");
            assert!(!raw.contains("lcm_grep"), "{what}");
            assert!(!raw.contains("response.failed"), "{what}");
            let tokens = gateway.metric("contexture_tokens_total").await;
            assert!(tokens > 0.0, "{what}");
        }
    }
}

/// The two events of an event with an emoji, each with half of the emoji. JavaScript cuts texts like this.
fn cut_in_an_emoji(event: &str) -> Option<String> {
    let emoji = event.find('🎨')?;
    // The events that repeat a whole text have it in one piece.
    let is_piece = ["delta", "candidates"]
        .iter()
        .any(|name| event.contains(name));
    let is_whole = [
        "response.output_text.done",
        "response.completed",
        "\"item\"",
        "_part.done",
    ];
    if !is_piece || is_whole.iter().any(|name| event.contains(name)) {
        return None;
    }
    let begin = event[..emoji].rfind('"')? + 1;
    let end = emoji + event[emoji..].find('"')?;
    let (head, tail) = (&event[..begin], &event[end..]);
    let (before, after) = (&event[begin..emoji], &event[emoji + '🎨'.len_utf8()..end]);
    Some(format!(
        "{head}{before}\\ud83c{tail}\n\n{head}\\udfa8{after}{tail}"
    ))
}

/// A character that is cut in two reaches the client as it was sent, and is whole for the model and the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_character_that_is_cut_in_two_is_joined() {
    for api in APIS {
        let (mut history, mut next) = (Vec::new(), Vec::new());
        for is_cut in [false, true] {
            let stage = stage("");
            let answer = move |_, (kind, bytes): Sent| {
                let text = String::from_utf8(bytes).unwrap().replace("\r\n", "\n");
                let events = text
                    .split("\n\n")
                    .map(|event| match cut_in_an_emoji(event) {
                        Some(cut) if is_cut => cut,
                        _ => event.to_owned(),
                    });
                (kind, events.collect::<Vec<_>>().join("\n\n").into_bytes())
            };
            let gateway = changed(&stage, |_, _, _| (), answer).await;
            let mut agent = Agent::new(api, &gateway.base, "s");
            let first =
                Answer::text("Paint 🎨 it. ").and_call("lcm_grep", json!({"pattern": "port"}));
            stage
                .provider
                .script([first, Answer::text("Done 🎨 now."), Answer::text("Gladly.")]);
            agent.user("Which colour was it?");
            match is_cut {
                false => history = agent.send().await.items,
                true => {
                    let (_, raw) = sent_to(&agent).await;
                    let halves = ["\\ud83c", "\\udfa8"].map(|half| raw.matches(half).count());
                    assert!(halves[0] > 0 && halves[0] == halves[1], "{raw}");
                }
            }
            agent.history.extend(history.iter().cloned());
            agent.user("Thanks.");
            sent_to(&agent).await;
            let requests = stage.provider.requests();
            assert_eq!(requests.len(), 3, "{api:?}");
            let texts = [&requests[1], &requests[2]].map(|request| request.json.to_string());
            assert_eq!(texts[0].matches("Paint 🎨 it.").count(), 1, "{}", texts[0]);
            let counts = ["Paint 🎨 it.", "Done 🎨 now.", "lcm_grep", "\u{fffd}"];
            let counts = counts.map(|text| texts[1].matches(text).count());
            match is_cut {
                false => next = counts.to_vec(),
                true => assert_eq!(counts.to_vec(), next, "{api:?}: {}", texts[1]),
            }
            assert_eq!(counts[3], 0);
        }
    }
}

/// Nobody answers a call in it: the order says that there must be none.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_has_no_calls_of_the_engines_tools() {
    each(stage, "", async |stage, _gateway, mut agent| {
        let call = |said: Answer| said.and_call("lcm_grep", json!({"pattern": "port"}));
        stage.provider.script([
            Answer::text("Noted: the port is 4711."),
            Answer::text("The port is 4711."),
            call(Answer::text("The port is 4711.")),
            call(Answer::default()),
            call(Answer::text("The port is 4711.")).and_call("run", json!({"command": "make"})),
            Answer::text("The port is 4711."),
        ]);
        agent.ask("The port is 4711.", "").await;
        agent.user("You are performing a CONTEXT CHECKPOINT COMPACTION. Be brief.");
        for (text, calls) in [
            ("The port is 4711.", 0),
            ("The port is 4711.", 0),
            ("", 0),
            ("The port is 4711.", 1),
        ] {
            let said = agent.send().await;
            assert_eq!(said.header("x-contexture-status"), "side-call");
            assert!(said.ended, "{}", said.raw);
            assert_eq!(
                (&*said.text, said.calls.len()),
                (text, calls),
                "{}",
                said.raw
            );
            assert!(!said.raw.contains("lcm_grep"), "{}", said.raw);
            let sent = stage.provider.requests().pop().unwrap();
            assert!(sent.tool_names().contains(&"lcm_grep"), "{:?}", agent.api);
        }
        // A client that offers no tools gets no others.
        agent.has_tool = false;
        assert_eq!(agent.send().await.text, "The port is 4711.");
        let sent = stage.provider.requests().pop().unwrap();
        assert_eq!(sent.tool_names(), [""; 0]);
    })
    .await;
}
