//! What passes through: bytes, fields, headers, errors, and requests that are nobody's turn.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::Duration;

use contexture_provider_simulator::{Answer, Fault};
use serde_json::json;
use support::agent::{APIS, Agent, Api};
use support::{Stage, each};

#[tokio::test(flavor = "multi_thread")]
async fn a_short_conversation_is_what_it_would_be_without_the_gateway() {
    each(
        Stage::new,
        "prompt_caching: {enabled: false}\n",
        async |stage, _gateway, mut agent| {
            let api = agent.api;
            // Google refuses what it does not know.
            let unknown = if api == Api::Gemini {
                "labels"
            } else {
                "x_unknown"
            };
            agent.more = json!({unknown: {"deep": [1, 2.50, "ü"]}});
            for number in 0..3 {
                stage.provider.script([
                    Answer::thinking("hm")
                        .and_text("I look.")
                        .and_call("run", json!({"command": "ls"})),
                    Answer::text(format!("Answer {number}.")),
                ]);
                let said = agent.ask("Go on.", "a file").await;
                assert_eq!(said.len(), 2, "{api:?}");
                assert_eq!(said[1].text, format!("Answer {number}."));
                assert_eq!(said[1].header("x-contexture-status"), "managed", "{api:?}");
                assert_eq!(said[1].header("x-contexture-session"), "s");
            }
            let requests = stage.provider.requests();
            assert_eq!(requests.len(), 6);
            let last = requests.last().unwrap();
            assert_eq!(last.json[unknown], json!({"deep": [1, 2.50, "ü"]}));
            let sent = last.messages().len() - usize::from(api == Api::Chat);
            assert_eq!(
                last.messages()[usize::from(api == Api::Chat)..],
                agent.history[..sent]
            );
            assert!(
                last.headers
                    .iter()
                    .all(|(name, _)| !name.starts_with("x-contexture-"))
            );
        },
    )
    .await;
}

/// The very bytes, whatever the pieces in which they come.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_the_engines_tools_passes_byte_for_byte() {
    each(Stage::new, "", async |stage, _gateway, mut agent| {
        let (api, stream) = (agent.api, agent.stream);
        stage.provider.set(|options| options.piece = 7);
        let answer = || {
            Answer::thinking("Wörter")
                .and_text("Say \"this\" – \u{1F600}.")
                .and_call("run", json!({"command": "ls"}))
        };
        stage.provider.script([answer(), answer()]);
        agent.user("Hello");
        let through = agent.send().await;
        agent.base = stage.provider.base_url();
        let direct = agent.send().await;
        // Ids and times are other ones for each answer.
        let plain = |raw: &str| {
            let words = raw.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_id = |word: &&str| word.chars().any(|c| c.is_ascii_digit());
            words
                .filter(|word| !is_id(word))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(plain(&through.raw), plain(&direct.raw), "{api:?} {stream}");
        for (name, value) in &direct.headers {
            if !matches!(
                name.as_str(),
                "date" | "content-length" | "request-id" | "x-request-id"
            ) {
                assert!(through.headers.contains_key(name), "{name}: {value:?}");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_their_headers_pass_at_once_and_once() {
    for api in APIS {
        for status in [401, 429, 500, 529] {
            let stage = Stage::new("");
            let gateway = stage.gateway().await;
            stage
                .provider
                .script([Answer::fault(Fault::Status(status))]);
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.user("Hello");
            let said = agent.send().await;
            assert_eq!(said.status, status);
            assert!(said.raw.contains("error"), "{}", said.raw);
            if status == 429 {
                assert_eq!(said.header("retry-after"), "1");
            }
            assert_eq!(stage.provider.requests().len(), 1);
            // The client asks again, with the same body, and goes on.
            stage.provider.script([Answer::text("Better.")]);
            assert_eq!(agent.go_on().await.text, "Better.");
            stage.provider.script([Answer::text("Still.")]);
            agent.user("More");
            assert_eq!(agent.go_on().await.text, "Still.");
            stage.nothing_was_refused();
        }
    }
}

/// What clients and logs read of the gateway comes from no provider, whether or not the request is a turn.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_forges_no_header_of_the_gateway() {
    for api in APIS {
        for (is_turn, text) in [
            (true, "Hello"),
            (false, "Summarize this conversation in under 50 characters."),
        ] {
            let stage = Stage::new("");
            let gateway = stage.gateway().await;
            let answer = Answer::text("Yes.").header("x-contexture-session", "forged");
            let answer = answer.header("x-contexture-new", "forged");
            stage
                .provider
                .script([answer.header("access-control-allow-origin", "*")]);
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.has_tool = is_turn;
            agent.user(text);
            let said = agent.send().await;
            let status = if is_turn { "managed" } else { "side-call" };
            assert_eq!(said.header("x-contexture-status"), status, "{api:?}");
            assert_eq!(
                said.header("x-contexture-session"),
                if is_turn { "s" } else { "" }
            );
            for name in ["x-contexture-new", "access-control-allow-origin"] {
                assert_eq!(said.header(name), "", "{api:?} {name}");
            }
        }
    }
}

/// An answer takes several times its size while it is read, so it has a limit. The conversation goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_is_ended() {
    for api in APIS {
        for stream in [true, false] {
            let stage = Stage::new("gateway: {max_body_mb: 1}\n");
            let gateway = stage.gateway().await;
            stage
                .provider
                .script([Answer::text("never ".repeat(300_000))]);
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.stream = stream;
            agent.user("Hello");
            let said = agent.send().await;
            assert!(said.raw.contains("larger than 1 MB"), "{api:?} {stream}");
            assert!(
                said.raw.len() < 2 << 20,
                "{api:?} {stream}: {}",
                said.raw.len()
            );
            stage.provider.script([Answer::text("Again.")]);
            assert_eq!(agent.go_on().await.text, "Again.", "{api:?} {stream}");
            stage.nothing_was_refused();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_ends_as_without_the_gateway() {
    let faults = [
        Fault::ResetAfter(400),
        Fault::CloseAfter(400),
        Fault::HalfAnEvent,
        Fault::ErrorEvent,
    ];
    for api in APIS {
        for fault in &faults {
            let stage = Stage::new("");
            let gateway = stage.gateway().await;
            stage.provider.script([Answer::fault(fault.clone())]);
            let mut agent = Agent::new(api, &gateway.base, "s");
            agent.user("Hello");
            let said = agent.send().await;
            assert!(!said.ended, "{api:?} {fault:?}: {}", said.raw);
            // As without the gateway, the connection breaks if the provider's did.
            let is_told = said.broken || said.raw.contains("error");
            let is_clean = api != Api::Responses && matches!(fault, Fault::HalfAnEvent);
            assert!(is_told != is_clean, "{api:?} {fault:?}: {}", said.raw);
            stage.provider.script([Answer::text("Again.")]);
            assert_eq!(agent.go_on().await.text, "Again.");
            stage.nothing_was_refused();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_left_by_the_provider_too() {
    for stream in [true, false] {
        let stage = Stage::new("");
        let gateway = stage.gateway().await;
        let fault = if stream {
            Fault::HangAfter(300)
        } else {
            Fault::Hang
        };
        stage.provider.script([Answer::fault(fault)]);
        let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
        agent.stream = stream;
        agent.user("Hello");
        // It leaves once the provider has the request, and some of the answer may have come.
        let has_come = async {
            while stage.provider.requests().is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        tokio::select! {
            _ = agent.send() => panic!("{stream}: an answer that hangs has come"),
            () = has_come => {}
        }
        drop(agent);
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if stage.provider.requests()[0].left_early {
                break;
            }
        }
        assert!(stage.provider.requests()[0].left_early, "{stream}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_conversation_passes() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let models = http
        .get(format!("{}/v1/models", gateway.base))
        .send()
        .await
        .unwrap();
    assert!(models.text().await.unwrap().contains("gpt-5.2"));
    let models = http
        .get(format!("{}/v1/models/claude-haiku-4-5", gateway.base))
        .header("anthropic-version", "2023-06-01");
    assert!(
        models
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
            .contains("display_name")
    );
    let upgrade = http
        .get(format!("{}/v1/responses", gateway.base))
        .header("upgrade", "websocket")
        .header("connection", "upgrade");
    assert_eq!(upgrade.send().await.unwrap().status(), 426);
    assert_eq!(
        http.head(format!("{}/", gateway.base))
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    assert_eq!(
        http.get(format!("{}/healthz", gateway.base))
            .send()
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(
        http.post(format!("{}/api/show?x=1", gateway.base))
            .body("{}")
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    let last = stage.provider.requests().pop().unwrap();
    assert_eq!(
        (last.path.as_str(), last.query.as_deref()),
        ("/api/show", Some("x=1"))
    );
    // A body that nobody can read is the provider's to refuse.
    let broken = http
        .post(format!("{}/v1/messages", gateway.base))
        .header("x-api-key", "k")
        .header("anthropic-version", "2023-06-01")
        .header("content-type", "application/json")
        .body("{oh no")
        .send()
        .await
        .unwrap();
    assert_eq!(broken.status(), 400);
    assert_eq!(broken.headers()["x-contexture-status"], "failed-open");
    assert!(
        gateway
            .metric("contexture_failed_open_total{reason=\"format\"}")
            .await
            > 0.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_manages_itself_is_not_managed_and_said_so() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.user("Hello");
    agent.more = json!({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}});
    let said = agent.send().await;
    assert_eq!(said.header("x-contexture-status"), "not-managed");
    assert_eq!(said.header("x-contexture-reason"), "context_management");
    // What concerns thinking alone is no other manager.
    agent.more = json!({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}});
    assert_eq!(agent.send().await.header("x-contexture-status"), "managed");
    // Nothing in it says the same as none.
    agent.more = json!({"context_management": {}});
    assert_eq!(agent.send().await.header("x-contexture-status"), "managed");
    // The tool runners of Anthropic's SDKs send only what is new, with their first request too.
    for thread in [
        json!({"type": "create"}),
        json!({"type": "continue", "previous_message_id": "msg_1"}),
    ] {
        agent.more = json!({"thread": thread});
        assert_eq!(agent.send().await.header("x-contexture-reason"), "thread");
    }
    let mut agent = Agent::new(Api::Responses, &gateway.base, "r");
    agent.user("Hello");
    agent.more = json!({"previous_response_id": "resp_1"});
    assert_eq!(
        agent.send().await.header("x-contexture-reason"),
        "previous_response_id"
    );
    agent.more = json!({"conversation": {}, "context_management": [], "previous_response_id": ""});
    assert_eq!(agent.send().await.header("x-contexture-status"), "managed");
}

/// What the provider compacted stays as it is, however its JSON is spelled, with all that stands before it.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_the_provider_compacted_keeps_its_bytes() {
    let stage = Stage::new("context: {engine: lcm}\nmodel: {context_length: 8000}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.user("What is a \"compaction\"?");
    assert_eq!(agent.go_on().await.header("x-contexture-status"), "managed");
    let block = json!({"type": "compaction", "content": "They greeted each other."});
    let text = json!({"type": "text", "text": "Go on."});
    agent.history = vec![json!({"role": "user", "content": "words ".repeat(20_000)})];
    agent
        .history
        .push(json!({"role": "assistant", "content": [block, text]}));
    let at = agent.history.len();
    agent.user("And?");
    let body = agent.body();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for body in [
        body.to_string(),
        serde_json::to_string_pretty(&body).unwrap(),
    ] {
        let request = http
            .post(format!("{}/v1/messages", gateway.base))
            .header("x-api-key", "k")
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .header("x-contexture-session", "s");
        let answer = request.body(body.clone()).send().await.unwrap();
        assert_eq!(answer.headers()["x-contexture-status"], "managed");
        let sent = stage.provider.requests().pop().unwrap();
        let kept = contexture::formats::split(&body, None).unwrap();
        assert_eq!(kept.compacted.len(), at);
        let sent = std::str::from_utf8(&sent.body).unwrap();
        let head = body.find(kept.compacted[0]).unwrap();
        let end = body.find(kept.messages[0]).unwrap();
        assert!(sent.contains(&body[head..end]), "{sent}");
    }
    agent.history.pop();
    let item = json!({"type": "compaction_trigger"});
    let body = json!({"model": "gpt-5", "input": [{"role": "user", "content": "Hello"}, item]});
    let request = http.post(format!("{}/v1/responses", gateway.base));
    let request = request.header("content-type", "application/json");
    let answer = request.bearer_auth("k").body(body.to_string()).send().await;
    let answer = answer.unwrap();
    assert_eq!(
        answer.headers()["x-contexture-reason"],
        "compaction_trigger"
    );
}

/// If the provider refuses the markers that were added for its cache, it is asked without them, and that is seen. What
/// it refuses for another reason is the client's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_marked_request_that_is_refused_is_sent_as_it_came() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    let refused = |message: &str| Answer::text(message).failing(Fault::Status(400));
    stage.provider.script([
        refused("cache_control: not supported by this model"),
        Answer::text("Yes."),
    ]);
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.user("Hello");
    let body = agent.body().to_string();
    let said = agent.go_on().await;
    assert_eq!(said.text, "Yes.");
    assert_eq!(said.header("x-contexture-status"), "failed-open");
    assert_eq!(stage.provider.requests()[1].body, body.as_bytes());
    let metric = "contexture_failed_open_total{reason=\"provider_refused\"}";
    assert_eq!(gateway.metric(metric).await, 1.0);

    stage
        .provider
        .script([refused("Your credit balance is too low")]);
    agent.user("Really?");
    let said = agent.send().await;
    assert!(said.raw.contains("credit balance"), "{}", said.raw);
    assert_eq!(said.header("x-contexture-status"), "managed");
    assert_eq!(stage.provider.requests().len(), 3);
}
