//! What is particular to the Gemini API: its paths, its keys, its streams, and what its clients ask beside the conversation.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_provider_simulator::{Answer, Api as Spoken, Request};
use serde_json::{Value, json};
use support::agent::{Agent, Api};
use support::{Running, Stage};

const MODEL: &str = "models/gemini-2.5-pro";

fn hello() -> Value {
    json!({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]})
}

async fn post(
    gateway: &Running,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> reqwest::Response {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = http.post(format!("{}{path}", gateway.base));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json");
    request.body(body.to_string()).send().await.unwrap()
}

fn header<'r>(answer: &'r reqwest::Response, name: &str) -> &'r str {
    let value = answer.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

const KEY: (&str, &str) = ("x-goog-api-key", "k");

#[tokio::test(flavor = "multi_thread")]
async fn every_path_of_the_api_leads_to_the_same_path_of_the_provider() {
    let stage = Stage::new("");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let vertex = format!("/v1/projects/p/locations/l/publishers/google/{MODEL}");
    for (path, asked, status) in [
        (format!("/v1beta/{MODEL}:generateContent"), "", "managed"),
        (format!("/v1/{MODEL}:generateContent"), "", "managed"),
        (
            format!("//v1beta//{MODEL}:generateContent/"),
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "managed",
        ),
        (
            format!("/{MODEL}:generateContent"),
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "managed",
        ),
        (
            format!("/gemini/v1beta/{MODEL}:generateContent"),
            "/v1beta/models/gemini-2.5-pro:generateContent",
            "managed",
        ),
        (format!("{vertex}:generateContent"), "", "managed"),
        (
            format!("{vertex}:streamGenerateContent?alt=sse"),
            "",
            "managed",
        ),
        (format!("/v1beta/{MODEL}:embedContent"), "", "not-managed"),
        (format!("/v1/{MODEL}:embedContent"), "", "not-managed"),
        (format!("/v1beta/{MODEL}:predict"), "", "not-managed"),
    ] {
        let answer = post(&gateway, &path, &[KEY], &hello()).await;
        assert_eq!(header(&answer, "x-contexture-status"), status, "{path}");
        let came = stage.provider.requests().pop().unwrap();
        let query = came
            .query
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let asked = if asked.is_empty() { &path } else { asked };
        assert_eq!(format!("{}{query}", came.path), *asked);
        assert_eq!(
            came.headers
                .iter()
                .find(|(name, _)| name == KEY.0)
                .unwrap()
                .1,
            KEY.1
        );
    }
    stage.nothing_was_refused();
}

/// A key in the query would be in URLs, which end up in logs. It goes on in the header that means the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_a_header_wherever_the_client_has_it() {
    let stage = Stage::new("");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let path = format!("/v1beta/{MODEL}:generateContent");
    for (query, headers, asked) in [
        ("?key=a%2Bb&a=1", &[][..], (Some("a=1"), Some("a+b"), None)),
        ("?a=1&key=q", &[KEY][..], (Some("a=1"), Some("k"), None)),
        ("", &[KEY][..], (None, Some("k"), None)),
        (
            "",
            &[("authorization", "Bearer login")][..],
            (None, None, Some("Bearer login")),
        ),
    ] {
        for endpoint in [path.clone(), "/v1beta/models".to_owned()] {
            let answer = post(&gateway, &format!("{endpoint}{query}"), headers, &hello()).await;
            let came = stage.provider.requests().pop().unwrap();
            let sent = (
                came.query.as_deref(),
                came.header("x-goog-api-key"),
                came.header("authorization"),
            );
            assert_eq!(sent, asked, "{endpoint}{query}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateways_own_key_is_for_those_with_its_token() {
    let stage = Stage::new("");
    let base = stage.provider.base_url();
    // A variable that is always set stands in for a key.
    let config = format!("upstream: {{google: {{base_url: \"{base}\", api_key_env: PATH}}}}\n");
    std::fs::write(stage.config(), config).unwrap();
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let token = std::fs::read_to_string(stage.home.path().join("gateway.token")).unwrap();
    let token = token.trim();
    let path = format!("/v1beta/{MODEL}:generateContent");
    let query = format!("{path}?key={token}");
    for (path, headers) in [
        (&path, vec![("x-contexture-token", token)]),
        (&path, vec![("x-goog-api-key", token)]),
        (&query, vec![]),
        (
            &path,
            vec![
                ("x-contexture-token", token),
                ("authorization", "Bearer mine"),
            ],
        ),
    ] {
        let answer = post(&gateway, path, &headers, &hello()).await;
        assert_eq!(answer.status(), 200);
        let came = stage.provider.requests().pop().unwrap();
        let own = std::env::var("PATH").unwrap();
        assert_eq!(came.header("x-goog-api-key"), Some(own.trim()));
        assert!(came.header("authorization").is_none() && came.query.is_none());
    }
    let answer = post(&gateway, &path, &[], &hello()).await;
    assert_eq!(answer.status(), 401);
    let error: Value = answer.json().await.unwrap();
    assert_eq!(
        (&error["error"]["code"], &error["error"]["status"]),
        (&json!(401), &json!("UNAUTHENTICATED"))
    );
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("its own key")
    );
}

/// Without `alt=sse`, a stream is a list of the same responses.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_events_is_a_list() {
    let stage = Stage::new("compression: {model_tools: true}\n");
    let gateway = stage.gateway().await;
    let path = format!("/v1beta/{MODEL}:streamGenerateContent");
    let pins =
        Answer::text("I keep it. ").and_call("context_pin", json!({"text": "The port is 4711."}));
    stage
        .provider
        .script([pins, Answer::text("It is kept: \"naïve\".")]);
    let answer = post(&gateway, &path, &[KEY], &hello()).await;
    assert_eq!(header(&answer, "x-contexture-status"), "managed");
    assert_eq!(header(&answer, "content-type"), "application/json");
    let responses: Vec<Value> = answer.json().await.unwrap();
    let parts = responses
        .iter()
        .flat_map(|one| one["candidates"][0]["content"]["parts"].as_array().unwrap());
    let parts: Vec<&Value> = parts.collect();
    let text: String = parts
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect();
    assert_eq!(text, "I keep it. It is kept: \"naïve\".");
    assert!(parts.iter().all(|part| part["functionCall"].is_null()));
    assert_eq!(
        responses.last().unwrap()["candidates"][0]["finishReason"],
        "STOP"
    );
    assert_eq!(gateway.metric("contexture_hidden_rounds_total").await, 1.0);
    for request in stage.provider.requests() {
        assert_eq!(request.query.as_deref(), Some("alt=sse"));
    }
    // What is not managed is what the provider makes of it.
    let cached = json!({"contents": hello()["contents"], "cachedContent": "cachedContents/1"});
    let answer = post(&gateway, &path, &[KEY], &cached).await;
    assert_eq!(stage.provider.requests().pop().unwrap().query, None);
    let responses: Vec<Value> = answer.json().await.unwrap();
    assert!(!responses.is_empty());
    stage.nothing_was_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_holds_is_not_managed_and_said_so() {
    let stage = Stage::new("");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let path = format!("/v1beta/{MODEL}:generateContent");
    for (member, value, reason) in [
        ("cachedContent", json!("cachedContents/1"), "cachedContent"),
        ("cached_content", json!("cachedContents/1"), "cachedContent"),
        (
            "generationConfig",
            json!({"candidateCount": 2}),
            "candidateCount",
        ),
        ("generationConfig", json!({"candidateCount": 1}), ""),
        (
            "generation_config",
            json!({"max_output_tokens": 1}),
            "side call: quota",
        ),
    ] {
        let mut body = hello();
        body[member] = value;
        let answer = post(&gateway, &path, &[KEY], &body).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "x-contexture-reason"), reason, "{body}");
        assert_eq!(stage.provider.requests().pop().unwrap().json, body);
    }
    stage.nothing_was_refused();
}

/// The provider counts the body that would be sent, in both forms that the endpoint takes.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_of_the_body_that_would_be_sent() {
    let config = "compression: {timing: threshold, threshold: 3000, protect_last_n: 2}\n";
    let stage = Stage::new(config);
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Gemini, &gateway.base, "s");
    for number in 0..12 {
        agent
            .ask(
                &format!("{number} {}", "words of a long story ".repeat(60)),
                "",
            )
            .await;
    }
    agent.user("And how long is that?");
    let path = format!("/v1beta/{MODEL}:countTokens");
    let mut request = agent.api.sent(&agent.body());
    request["model"] = json!(MODEL);
    let headers = [KEY, ("x-contexture-session", "s")];
    let nested = json!({"generateContentRequest": request});
    let mut counts = Vec::new();
    for body in [&nested, &request] {
        let answer = post(&gateway, &path, &headers, body).await;
        assert_eq!(header(&answer, "x-contexture-status"), "managed");
        let counted: Value = answer.json().await.unwrap();
        counts.push(counted["totalTokens"].as_u64().unwrap());
    }
    let sent = agent.go_on().await;
    assert_eq!(counts[0], counts[1]);
    assert_eq!(sent.usage["promptTokenCount"], counts[0]);
    let direct = request.to_string().len() as u64 / 4;
    assert!(counts[0] * 3 < direct * 2, "{counts:?} {direct}");
    assert_eq!(stage.provider.requests_of(Spoken::GeminiCount).len(), 2);
    stage.nothing_was_refused();
}

/// From Gemini 3 on, calls have ids, and the first call of each step has to come back with its signature.
#[tokio::test(flavor = "multi_thread")]
async fn signatures_and_ids_come_back_in_hidden_rounds_and_after_compactions() {
    let config =
        "compression: {model_tools: true, timing: threshold, threshold: 3000, protect_last_n: 2}\n";
    for stream in [true, false] {
        let stage = Stage::new(config);
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(Api::Gemini, &gateway.base, "s");
        agent.stream = stream;
        agent.model = "gemini-3-pro-preview".to_owned();
        let is_told = |request: &Request| request.last_text().contains("a line of a log");
        stage
            .provider
            .answer_with(move |request| match is_told(request) {
                true => Answer::text("I see."),
                false => Answer::thinking("Hm.")
                    .and_call("context_pin", json!({"text": "The port is 4711."}))
                    .and_call("run", json!({"command": "log"})),
            });
        for turn in 0..9 {
            let long = "a line of a log that says nothing\n".repeat(60);
            let all = agent.ask(&format!("Part {turn}"), &long).await;
            assert_eq!(all.len(), 2);
            assert_eq!(all[0].calls.len(), 1, "{}", all[0].raw);
            assert!(!all[0].raw.contains("context_pin"), "{}", all[0].raw);
        }
        assert!(gateway.metric("contexture_compactions_total").await > 0.0);
        let last = stage.provider.requests().pop().unwrap();
        let called = last.json.to_string().matches("\"functionCall\"").count();
        assert!(called >= 2, "{}", last.json);
        stage.nothing_was_refused();
    }
}

/// The requests that Gemini CLI makes beside the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn what_gemini_cli_asks_beside_the_conversation_is_no_part_of_it() {
    let stage = Stage::new("context: {engine: lcm}\n");
    stage.provider.answer_with(|_| Answer::text("{}"));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Gemini, &gateway.base, "");
    let mut session = String::new();
    for number in 0..4 {
        let said = agent.ask(&format!("Step {number}"), "").await;
        session = said[0].header("x-contexture-session").to_owned();
    }
    let form = |names: &[&str]| {
        let members = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})));
        let members: serde_json::Map<String, Value> = members.collect();
        json!({"responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object", "properties": members}})
    };
    let router = "You are a specialized Task Routing AI. Your sole function is to analyze the user's request";
    let looping = "You are a diagnostic agent that determines whether a conversational AI assistant is stuck in an \
                   unproductive loop.";
    let compressor = "You are a specialized system component responsible for distilling chat history into a structured \
                      XML <state_snapshot>.";
    let next = "Analyze *only* the content and structure of your immediately preceding response (your last turn in the \
                conversation history).";
    for (system, last, options, purpose) in [
        (
            router,
            "Step 4",
            form(&["complexity_reasoning", "complexity_score"]),
            "routing",
        ),
        (
            looping,
            "Please judge.",
            form(&["unproductive_state_confidence"]),
            "loop check",
        ),
        (compressor, "Critically evaluate it.", json!({}), "summary"),
        (
            "",
            next,
            form(&["reasoning", "next_speaker"]),
            "next speaker",
        ),
    ] {
        let mut beside = agent.clone();
        beside.has_tool = false;
        if !system.is_empty() {
            beside.system = system.to_owned();
        }
        beside.user(last);
        beside.stream = false;
        beside.more = json!({"generationConfig": options});
        let said = beside.send().await;
        let reason = format!("side call: {purpose}");
        assert_eq!(said.header("x-contexture-reason"), reason, "{}", said.raw);
        assert_eq!(
            stage.provider.requests().pop().unwrap().json,
            beside.api.sent(&beside.body())
        );
    }
    agent.user("Step 5");
    let said = agent.go_on().await;
    assert_eq!(said.header("x-contexture-session"), session);
    stage.nothing_was_refused();
}

/// An answer that is blocked or cut off is an answer, and calls in it are answered by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_off_ends_with_its_reason() {
    for stream in [true, false] {
        let stage = Stage::new("compression: {model_tools: true}\n");
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(Api::Gemini, &gateway.base, "s");
        agent.stream = stream;
        for reason in ["MAX_TOKENS", "SAFETY"] {
            let cut = Answer::text("So far").and_call("context_pin", json!({"text": "x"}));
            let answers = [cut.stopping(reason), Answer::text("Yes.")];
            stage.provider.script(answers);
            agent.user("Hello");
            let said = agent.go_on().await;
            assert_eq!(said.text, "So far", "{}", said.raw);
            assert!(said.raw.contains(reason) && !said.raw.contains("context_pin"));
            agent.user("And on");
            assert_eq!(agent.go_on().await.text, "Yes.");
        }
        let hidden = gateway.metric("contexture_hidden_rounds_total").await;
        assert_eq!(hidden, 0.0);
        stage.nothing_was_refused();
    }
}
