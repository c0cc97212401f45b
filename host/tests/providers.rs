//! Model providers as an embedding program sees them: what is sent, to whom, and what comes back.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use contexture::config::AuxiliaryModel;
use contexture::providers::{
    AgentModel, Credentials, Endpoint, LentModel, ModelClient, NoModel, Provider, ProviderChoice,
    Question, Resolved, Secret, UsageByModel, resolve,
};
use contexture::{Host, HostOptions};
use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

const KEY: &str = "sk-test-0123456789abcdef";

// ---- helpers ----

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

fn every_key(_name: &str) -> Option<String> {
    Some(KEY.into())
}

fn no_key(_name: &str) -> Option<String> {
    None
}

fn unmasked(text: &str) -> Cow<'_, str> {
    text.into()
}

fn settings(provider: Provider, base_url: &str) -> AuxiliaryModel {
    AuxiliaryModel {
        model: Some("m".into()),
        provider: provider.to_string(),
        base_url: Some(base_url.into()),
        ..AuxiliaryModel::default()
    }
}

fn with_timeout(ms: u64, settings: AuxiliaryModel) -> AuxiliaryModel {
    AuxiliaryModel {
        timeout_ms: ms,
        ..settings
    }
}

fn agent(name: &str, base_url: &str) -> AgentModel {
    AgentModel {
        name: name.into(),
        provider: Provider::OpenAi,
        base_url: Some(base_url.into()),
        credentials: Some(Credentials::Key(Secret::new(KEY))),
        context_length: Some(100_000),
    }
}

fn client(settings: &AuxiliaryModel) -> ModelClient {
    client_beside(settings, None)
}

fn client_beside(settings: &AuxiliaryModel, agent: Option<&AgentModel>) -> ModelClient {
    let resolved = resolve(settings, agent, false, &every_key).unwrap();
    ModelClient::new(
        resolved,
        Duration::from_millis(settings.timeout_ms),
        unmasked,
    )
}

/// The model and its fallback, where there is one.
fn endpoints(resolved: Resolved) -> (Box<Endpoint>, Option<Box<Endpoint>>) {
    match resolved {
        Resolved::Model { endpoint, fallback } => (endpoint, fallback),
        Resolved::NoModel(reason) => panic!("{reason}"),
    }
}

fn request(prompt: &str) -> ModelRequest {
    ModelRequest::new("summary", "Summarise.", prompt, 321)
}

fn ask(client: &ModelClient) -> Result<ModelAnswer, ModelFailure> {
    client.complete(&request("material"), &AtomicBool::new(false))
}

fn chat(text: &str) -> Value {
    json!({
        "model": "m-2026",
        "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 12, "completion_tokens": 3 },
    })
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn status(status: u16) -> ResponseTemplate {
    ResponseTemplate::new(status)
}

/// The prompt of a chat completion request.
fn prompt_of(body: &Value) -> String {
    body["messages"][1]["content"].as_str().unwrap().to_owned()
}

/// A mock server, driven from tests that are not async.
struct Server {
    runtime: Runtime,
    mock: MockServer,
}

impl Server {
    /// Answers every request by `respond`.
    fn new(respond: impl Respond + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let mock = runtime.block_on(async {
            let mock = MockServer::start().await;
            Mock::given(method("POST"))
                .respond_with(respond)
                .mount(&mock)
                .await;
            mock
        });
        Self { runtime, mock }
    }

    /// Answers in this order, and by the last one ever after.
    fn in_turn(answers: Vec<ResponseTemplate>) -> Self {
        let next = AtomicUsize::new(0);
        Self::new(move |_: &Request| {
            let index = next.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            answers[index].clone()
        })
    }

    fn base(&self) -> String {
        format!("{}/v1", self.mock.uri())
    }

    fn client(&self) -> ModelClient {
        client(&settings(Provider::OpenAi, &self.base()))
    }

    fn received(&self) -> Vec<Request> {
        self.runtime
            .block_on(self.mock.received_requests())
            .unwrap()
    }

    fn bodies(&self) -> Vec<Value> {
        let received = self.received();
        received.iter().map(|r| r.body_json().unwrap()).collect()
    }
}

/// A server of raw bytes: `handle` gets each connection, and the body that it sent.
fn raw_server(handle: impl Fn(TcpStream, &str) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let handle = Arc::clone(&handle);
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let body = read_request(&mut stream);
                handle(stream, &body);
            });
        }
    });
    format!("http://{address}/v1")
}

fn read_request(stream: &mut TcpStream) -> String {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return body.to_owned();
            }
        }
        assert!(read > 0, "the request broke off");
    }
}

/// Sets the flag after a while; the thread returns when it did.
fn set_after(ms: u64, flag: &Arc<AtomicBool>) -> thread::JoinHandle<Instant> {
    let flag = Arc::clone(flag);
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        flag.store(true, Ordering::Relaxed);
        Instant::now()
    })
}

// ---- who is asked ----

#[test]
fn the_provider_words_are_read_and_wrong_ones_explained() {
    for choice in ProviderChoice::ALL {
        let word = choice.name();
        assert_eq!(word.parse::<ProviderChoice>().unwrap(), choice);
        assert_eq!(word.to_uppercase().parse(), Ok(choice));
    }
    let explained = |word: &str| word.parse::<ProviderChoice>().unwrap_err().to_string();
    for (word, meant) in [
        ("opnai", "openai"),
        ("ollama", "openai"),
        ("claude", "anthropic"),
        ("gemini", "google"),
        ("off", "none"),
    ] {
        let message = explained(word);
        assert!(
            message.contains(&format!("did you mean `{meant}`")),
            "{message}"
        );
    }
    let message = explained("zzz");
    assert!(!message.contains("did you mean"), "{message}");
    for choice in ProviderChoice::ALL {
        assert!(message.contains(choice.name()), "{message}");
    }
}

#[test]
fn keys_in_the_environment_alone_ask_nobody() {
    let looked_up = RefCell::new(Vec::new());
    let env = |name: &str| {
        looked_up.borrow_mut().push(name.to_owned());
        Some(KEY.to_owned())
    };
    for provider in [ProviderChoice::Auto, ProviderChoice::Main] {
        let settings = AuxiliaryModel {
            provider: provider.to_string(),
            ..AuxiliaryModel::default()
        };
        match resolve(&settings, None, false, &env).unwrap() {
            Resolved::NoModel(reason) => assert_eq!(reason, NoModel::NoAgent(provider)),
            Resolved::Model { endpoint, .. } => panic!("{endpoint} would be asked"),
        }
    }
    assert!(looked_up.borrow().is_empty());

    // A provider in use asks for its own key and no other.
    let settings = AuxiliaryModel {
        base_url: None,
        ..settings(Provider::OpenRouter, "")
    };
    resolve(&settings, None, false, &env).unwrap();
    assert_eq!(*looked_up.borrow(), ["OPENROUTER_API_KEY"]);
}

#[test]
fn offline_and_none_open_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let agent = agent("main", &base);
    let with = |provider: ProviderChoice| AuxiliaryModel {
        provider: provider.to_string(),
        ..settings(Provider::OpenAi, &base)
    };
    let mut cases: Vec<_> = ProviderChoice::ALL
        .into_iter()
        .map(|choice| (with(choice), true, "--offline"))
        .collect();
    cases.push((with(ProviderChoice::None), false, "`none`"));
    for (settings, offline, reason) in cases {
        let resolved = resolve(&settings, Some(&agent), offline, &every_key).unwrap();
        let client = ModelClient::new(
            resolved,
            Duration::from_millis(settings.timeout_ms),
            unmasked,
        );
        let failure = ask(&client).unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoProvider);
        assert!(failure.message.contains(reason), "{failure}");
        assert!(client.model().is_err());
    }
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
}

#[test]
fn auto_and_main_follow_the_agent() {
    let agent = agent("big", "http://localhost:1/v1");
    for provider in [ProviderChoice::Auto, ProviderChoice::Main] {
        let follow = |model: Option<&str>| {
            let settings = AuxiliaryModel {
                model: model.map(str::to_owned),
                provider: provider.to_string(),
                ..AuxiliaryModel::default()
            };
            endpoints(resolve(&settings, Some(&agent), false, &no_key).unwrap())
        };
        for same in [None, Some("big"), Some(" ")] {
            let (endpoint, fallback) = follow(same);
            assert_eq!(endpoint.model(), "big");
            assert_eq!(endpoint.context_length(), Some(100_000));
            assert!(fallback.is_none(), "a model is no fallback of its own");
        }
        let (endpoint, fallback) = follow(Some("small"));
        assert_eq!(endpoint.model(), "small");
        assert_eq!(endpoint.context_length(), None);
        assert_eq!(fallback.unwrap().model(), "big");
    }
}

#[test]
fn a_named_provider_falls_back_to_the_agents_model_only_where_that_is_another() {
    let agent = agent("m", "http://localhost:1/v1/");
    let fallback = |base: &str| {
        let settings = settings(Provider::OpenAi, base);
        endpoints(resolve(&settings, Some(&agent), false, &no_key).unwrap()).1
    };
    assert!(fallback("http://localhost:1/v1").is_none());
    assert!(fallback("http://localhost:2/v1").is_some());
}

#[test]
fn without_a_model_the_agents_is_used_where_it_is_served() {
    let agent = agent("big", "http://localhost:1/v1");
    let at = |base: &str| {
        let settings = AuxiliaryModel {
            model: None,
            ..settings(Provider::OpenAi, base)
        };
        resolve(&settings, Some(&agent), false, &no_key)
    };
    let (endpoint, fallback) = endpoints(at("http://localhost:1/v1/").unwrap());
    assert_eq!(endpoint.model(), "big");
    assert!(fallback.is_none());
    let missing = at("http://localhost:2/v1").unwrap_err().to_string();
    assert!(missing.contains("`auxiliary.compression.model` is not set"));
}

#[test]
fn an_address_alone_means_an_openai_compatible_server_there() {
    let settings = AuxiliaryModel {
        provider: ProviderChoice::Auto.to_string(),
        ..settings(Provider::Anthropic, "http://localhost:11434/v1")
    };
    let (endpoint, _) = endpoints(resolve(&settings, None, false, &no_key).unwrap());
    assert_eq!(endpoint.provider(), Provider::OpenAi);
    let address = "http://localhost:11434/v1/chat/completions";
    assert_eq!(endpoint.address(), address);
}

#[test]
fn a_configuration_that_cannot_work_says_why() {
    let error =
        |settings: &AuxiliaryModel, env: Env<'_>| resolve(settings, None, false, env).unwrap_err();
    for (provider, variable) in [
        (Provider::OpenAi, "OPENAI_API_KEY"),
        (Provider::Anthropic, "ANTHROPIC_API_KEY"),
        (Provider::Google, "GEMINI_API_KEY"),
        (Provider::OpenRouter, "OPENROUTER_API_KEY"),
        (Provider::Nous, "NOUS_API_KEY"),
    ] {
        let settings = AuxiliaryModel {
            base_url: None,
            ..settings(provider, "")
        };
        let other_key = |name: &str| (name != variable).then(|| KEY.to_owned());
        let blank = |_: &str| Some(" \n".to_owned());
        for env in [&no_key as Env<'_>, &other_key, &blank] {
            match resolve(&settings, None, false, env).unwrap() {
                Resolved::NoModel(reason) => {
                    assert_eq!(reason, NoModel::MissingKey(provider));
                    assert!(reason.is_unexpected() && reason.to_string().contains(variable));
                }
                Resolved::Model { endpoint, .. } => panic!("{endpoint} would be asked"),
            }
        }
        let nameless = AuxiliaryModel {
            model: None,
            ..settings.clone()
        };
        // No model is named. The provider has a usual one, but a custom address does not.
        let (endpoint, _) = endpoints(resolve(&nameless, None, false, &every_key).unwrap());
        assert_eq!(endpoint.provider(), provider);
        assert!(!endpoint.model().is_empty() && endpoint.context_length().is_some());
        let elsewhere = AuxiliaryModel {
            base_url: Some("http://localhost:9/v1".to_owned()),
            ..nameless
        };
        let missing = error(&elsewhere, &every_key).to_string();
        assert!(missing.contains("name the model"), "{missing}");

        let unusable = error(&settings, &|_| Some("sk-first\nsk-second".into()));
        assert!(unusable.to_string().contains(variable), "{unusable}");
        assert!(!format!("{unusable} {unusable:?}").contains("sk-first"));
    }
    let main_elsewhere = AuxiliaryModel {
        provider: ProviderChoice::Main.to_string(),
        ..settings(Provider::OpenAi, "http://h/v1")
    };
    let elsewhere = error(&main_elsewhere, &every_key).to_string();
    assert!(elsewhere.contains("remove one of the two"), "{elsewhere}");
}

#[test]
fn another_address_or_key_has_another_fingerprint() {
    let fingerprint = |base: &str, key: &str| {
        let key = |_: &str| Some(key.to_owned());
        let settings = settings(Provider::OpenAi, base);
        let resolved = resolve(&settings, None, false, &key).unwrap();
        endpoints(resolved).0.fingerprint()
    };
    let first = fingerprint("http://a/v1", "wrong");
    assert_eq!(first, fingerprint("http://a/v1", "wrong"));
    assert_ne!(first, fingerprint("http://a/v1", "fixed"));
    assert_ne!(first, fingerprint("http://b/v1", "wrong"));
    assert!(first.len() <= 8);
}

#[test]
fn no_key_is_ever_printed() {
    let agent = agent("big", "http://localhost:1/v1");
    let settings = AuxiliaryModel::default();
    let resolved = resolve(&settings, Some(&agent), false, &every_key).unwrap();
    let client = ModelClient::new(
        resolved.clone(),
        Duration::from_millis(settings.timeout_ms),
        unmasked,
    );
    let printed = format!("{agent:?} {resolved:?} {client:?}");
    assert!(!printed.contains(KEY), "{printed}");
}

// ---- what is sent and read ----

#[test]
fn an_openai_call_and_its_answer() {
    let server = Server::new(ok(chat("<think>let me see</think>\nIt went well.")));
    let answer = ModelAnswer::new("It went well.", "m-2026")
        .input_tokens(12)
        .output_tokens(3);
    assert_eq!(ask(&server.client()).unwrap(), answer);
    let received = &server.received()[0];
    assert_eq!(received.url.path(), "/v1/chat/completions");
    assert_eq!(received.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(
        server.bodies()[0],
        json!({
            "model": "m",
            "messages": [
                { "role": "system", "content": "Summarise." },
                { "role": "user", "content": "material" },
            ],
            "stream": false,
            "max_tokens": 321,
        })
    );
}

#[test]
fn an_anthropic_call_and_its_answer() {
    let server = Server::new(ok(json!({
        "model": "claude",
        "content": [
            { "type": "thinking", "thinking": "hm" },
            { "type": "text", "text": "It went " },
            { "type": "text", "text": "well." },
        ],
        "stop_reason": "end_turn",
        "usage": { "input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 4 },
    })));
    let answer = ModelAnswer::new("It went well.", "claude")
        .input_tokens(25)
        .output_tokens(4);
    let client = client(&settings(Provider::Anthropic, &server.mock.uri()));
    assert_eq!(ask(&client).unwrap(), answer);
    let received = &server.received()[0];
    assert_eq!(received.url.path(), "/v1/messages");
    assert_eq!(received.headers["x-api-key"], KEY);
    assert_eq!(received.headers["anthropic-version"], "2023-06-01");
    assert!(!received.headers.contains_key("authorization"));
    assert_eq!(
        server.bodies()[0],
        json!({
            "model": "m",
            "max_tokens": 321,
            "messages": [{ "role": "user", "content": "material" }],
            "system": "Summarise.",
        })
    );
}

#[test]
fn a_gemini_call_and_its_answer() {
    let answer = |parts: Value, finish: &str| {
        ok(json!({
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 25, "candidatesTokenCount": 3, "thoughtsTokenCount": 1},
            "modelVersion": "gemini-2.5-flash",
        }))
    };
    let said = json!([
        {"text": "hm", "thought": true}, {"text": "It went "}, {"text": "well."},
    ]);
    let server = Server::new(answer(said, "STOP"));
    let client_of = |server: &Server| client(&settings(Provider::Google, &server.mock.uri()));
    let expected = ModelAnswer::new("It went well.", "gemini-2.5-flash")
        .input_tokens(25)
        .output_tokens(4);
    assert_eq!(ask(&client_of(&server)).unwrap(), expected);
    let received = &server.received()[0];
    assert_eq!(received.url.path(), "/v1beta/models/m:generateContent");
    assert_eq!(received.headers["x-goog-api-key"], KEY);
    assert_eq!(
        server.bodies()[0],
        json!({
            "contents": [{"role": "user", "parts": [{"text": "material"}]}],
            "generationConfig": {"maxOutputTokens": 321},
            "systemInstruction": {"parts": [{"text": "Summarise."}]},
        })
    );
    let text = json!([{"text": "It went"}]);
    let call = json!([{"functionCall": {"name": "run", "args": {}}}]);
    for (parts, finish, kind) in [
        (&text, "MAX_TOKENS", FailureKind::CutOff),
        (&text, "SAFETY", FailureKind::Refused),
        (&call, "STOP", FailureKind::Empty),
    ] {
        let server = Server::new(answer(parts.clone(), finish));
        assert_eq!(ask(&client_of(&server)).unwrap_err().kind, kind, "{finish}");
    }
    let blocked = Server::new(ok(json!({"promptFeedback": {"blockReason": "SAFETY"}})));
    let failure = ask(&client_of(&blocked)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
}

/// Whatever an answer is good for, it is charged for.
#[test]
fn the_usage_of_every_answer_is_added_up() {
    let openai = |finish: &str| {
        json!({
            "choices": [{"message": {"content": "Done."}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 25, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 20}},
        })
    };
    let anthropic = |finish: &str| {
        json!({
            "content": [{"type": "text", "text": "Done."}], "stop_reason": finish,
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "output_tokens": 4},
        })
    };
    let gemini = |finish: &str| {
        json!({
            "candidates": [{"content": {"parts": [{"text": "Done."}]}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 25, "cachedContentTokenCount": 20, "candidatesTokenCount": 3, "thoughtsTokenCount": 1},
        })
    };
    for (provider, body) in [
        (Provider::OpenAi, openai("stop")),
        (Provider::OpenAi, openai("length")),
        (Provider::OpenAi, openai("content_filter")),
        (Provider::OpenAi, openai("tool_calls")),
        (Provider::Anthropic, anthropic("end_turn")),
        (Provider::Anthropic, anthropic("max_tokens")),
        (Provider::Anthropic, anthropic("refusal")),
        (Provider::Google, gemini("STOP")),
        (Provider::Google, gemini("MAX_TOKENS")),
        (Provider::Google, gemini("SAFETY")),
    ] {
        let server = Server::new(ok(body.clone()));
        let client = client(&settings(provider, &server.mock.uri()));
        let request = request("material");
        let question = || Question {
            request: &request,
            continued: None,
        };
        let used = Arc::new(UsageByModel::default());
        client.ask(vec![question(), question()], &used, &AtomicBool::new(false));
        let used: Vec<_> = used.take().into_iter().collect();
        let [(model, usage)] = used.as_slice() else {
            panic!("{body}: {used:?}");
        };
        let figures = [
            usage.input_tokens,
            usage.cache_read_tokens,
            usage.output_tokens,
        ];
        assert_eq!((model.as_str(), figures), ("m", [50, 40, 8]), "{body}");
    }
}

#[test]
fn text_in_parts_is_text() {
    let server = Server::new(ok(json!({ "choices": [{ "message": { "content": [
        { "type": "text", "text": "It went " },
        { "type": "text", "text": "well." },
    ] } }] })));
    let answer = ask(&server.client()).unwrap();
    assert_eq!(answer.text, "It went well.");
    // Not reported: the model that was asked, and no tokens.
    assert_eq!((answer.model.as_str(), answer.input_tokens), ("m", 0));
}

#[test]
fn a_local_server_needs_no_key() {
    let server = Server::new(ok(chat("yes")));
    let settings = settings(Provider::OpenAi, &server.base());
    let resolved = resolve(&settings, None, false, &no_key).unwrap();
    ask(&ModelClient::new(
        resolved,
        Duration::from_millis(settings.timeout_ms),
        unmasked,
    ))
    .unwrap();
    let received = &server.received()[0];
    assert!(!received.headers.contains_key("authorization"));
}

#[test]
fn an_address_with_a_query_keeps_it_and_does_not_show_it() {
    let server = Server::new(ok(chat("yes")));
    let base = format!("{}/deployments/x?api-version=2024", server.mock.uri());
    let client = client(&settings(Provider::OpenAi, &base));
    ask(&client).unwrap();
    let received = &server.received()[0];
    assert_eq!(received.url.path(), "/deployments/x/chat/completions");
    assert_eq!(received.url.query(), Some("api-version=2024"));
    assert!(!format!("{client:?}").contains("2024"));
}

#[test]
fn secrets_are_masked_in_what_is_sent_and_in_what_is_quoted() {
    fn mask(text: &str) -> Cow<'_, str> {
        text.replace("hunter2", "[masked]").into()
    }
    let message = format!("bad: hunter2 {KEY}");
    let server = Server::new(status(400).set_body_json(json!({ "error": { "message": message } })));
    let settings = settings(Provider::OpenAi, &server.base());
    let resolved = resolve(&settings, None, false, &every_key).unwrap();
    let client = ModelClient::new(resolved, Duration::from_millis(settings.timeout_ms), mask);
    let request = request("prompt hunter2").system("system hunter2".into());
    let failure = client
        .complete(&request, &AtomicBool::new(false))
        .unwrap_err();
    assert!(failure.message.contains("bad: [masked] [key]"), "{failure}");
    let sent = server.bodies()[0].to_string();
    assert!(sent.contains("system [masked]"), "{sent}");
    assert!(sent.contains("prompt [masked]"), "{sent}");
    assert!(!sent.contains("hunter2"));
}

#[test]
fn the_newer_name_of_the_limit_is_learnt_once() {
    let server = Server::new(|request: &Request| {
        let body: Value = request.body_json().unwrap();
        match body.get("max_completion_tokens") {
            Some(limit) => ok(chat(&limit.to_string())),
            None => status(400).set_body_json(json!({ "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. \
                            Use 'max_completion_tokens' instead.",
                "code": "unsupported_parameter",
            } })),
        }
    });
    let client = server.client();
    assert_eq!(ask(&client).unwrap().text, "321");
    assert_eq!(ask(&client.clone()).unwrap().text, "321");
    let requests = server.received().len();
    assert_eq!(requests, 3, "refused once, right twice");
}

#[test]
fn a_server_that_knows_neither_name_is_asked_twice() {
    let server = Server::new(|request: &Request| {
        let body: Value = request.body_json().unwrap();
        let field = match body.get("max_tokens") {
            Some(_) => "max_tokens",
            None => "max_completion_tokens",
        };
        let message = format!("Unrecognized request argument: {field}");
        status(400).set_body_json(json!({ "error": { "message": message } }))
    });
    let failure = ask(&server.client()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Other);
    assert_eq!(server.received().len(), 2);
}

// ---- answers that are none ----

#[test]
fn every_useless_chat_completion_is_a_failure_of_its_kind() {
    use FailureKind::*;
    let choice = |content: Value, finish: &str| json!({ "choices": [{ "message": { "content": content }, "finish_reason": finish }] });
    let message = |message: Value| json!({ "choices": [{ "message": message }] });
    let image = json!([{ "type": "image_url", "image_url": {} }]);
    for (body, kind) in [
        (chat(""), Empty),
        (chat(" \n\t "), Empty),
        (chat("<think>only thoughts</think>"), Empty),
        (choice(Value::Null, "stop"), Empty),
        (choice(json!(7), "stop"), Empty),
        (choice(image, "stop"), Empty),
        (choice(json!("I will look"), "tool_calls"), Empty),
        (choice(json!("It went"), "length"), CutOff),
        (choice(Value::Null, "length"), CutOff),
        (choice(json!(""), "content_filter"), Refused),
        (message(json!({ "refusal": "I can't." })), Refused),
        (json!({ "choices": [] }), Other),
        (json!({ "hello": "world" }), Other),
        (json!([1, 2]), Other),
        (json!("text"), Other),
        (
            json!({ "error": { "message": "no credit", "code": 402 } }),
            Auth,
        ),
        (json!({ "error": "the model broke" }), Other),
    ] {
        let server = Server::new(ok(body.clone()));
        let failure = ask(&server.client()).unwrap_err();
        assert_eq!(failure.kind, kind, "{body}: {failure}");
        assert_eq!(server.received().len(), 1, "{body}");
    }
}

#[test]
fn every_useless_message_is_a_failure_of_its_kind() {
    use FailureKind::*;
    let text = json!([{ "type": "text", "text": "It went" }]);
    let thinking = json!([{ "type": "thinking", "thinking": "x" }]);
    let message = |content: Value, stop: &str| json!({ "content": content, "stop_reason": stop });
    for (body, kind) in [
        (message(text.clone(), "max_tokens"), CutOff),
        (message(text.clone(), "refusal"), Refused),
        (message(text, "tool_use"), Empty),
        (message(json!([]), "end_turn"), Empty),
        (message(thinking, "end_turn"), Empty),
        (json!({ "completion": "another API" }), Other),
    ] {
        let server = Server::new(ok(body.clone()));
        let client = client(&settings(Provider::Anthropic, &server.base()));
        let failure = ask(&client).unwrap_err();
        assert_eq!(failure.kind, kind, "{body}: {failure}");
        assert_eq!(server.received().len(), 1, "{body}");
    }
}

#[test]
fn a_broken_character_costs_only_itself() {
    let body = chat("It is $ done.").to_string();
    for (broken, shown) in [
        (b"\\ud83d".as_slice(), "\u{fffd}"),
        (b"\\udc00", "\u{fffd}"),
        (b"\xff", "\u{fffd}"),
        (b"\\ud83d\\ude00", "😀"),
    ] {
        let (before, after) = body.split_once('$').unwrap();
        let bytes = [before.as_bytes(), broken, after.as_bytes()].concat();
        let server = Server::new(status(200).set_body_raw(bytes, "application/json"));
        let answer = ask(&server.client()).unwrap();
        assert_eq!(answer.text, format!("It is {shown} done."));
    }
}

#[test]
fn a_page_that_is_not_json_is_named_and_shortened() {
    let page = format!("<html>\n<h1>Sign in, {KEY}</h1>{}", "x".repeat(100_000));
    let nested = "[".repeat(100_000);
    for body in [page.as_str(), "", "{\"choices\": [", nested.as_str()] {
        let server = Server::new(status(200).set_body_string(body));
        let failure = ask(&server.client()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Other);
        assert!(failure.message.contains("not JSON"), "{failure}");
        assert!(failure.message.contains("base_url"), "{failure}");
        assert!(failure.message.len() < 1000, "{failure}");
        assert!(!failure.message.contains(KEY), "{failure}");
    }
}

#[test]
fn a_body_without_end_is_cut_at_its_limit() {
    let base = raw_server(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        let chunk = vec![b' '; 1 << 20];
        while stream.write_all(&chunk).is_ok() {}
    });
    let failure = ask(&client(&settings(Provider::OpenAi, &base))).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Other);
    assert!(failure.message.contains("larger than 8 MiB"), "{failure}");
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Server::new(ok(chat("stolen")));
    let location = format!("{}/v1/chat/completions?token=secret", other.mock.uri());
    for code in [301, 302, 307, 308] {
        let server = Server::new(status(code).insert_header("location", location.as_str()));
        let failure = ask(&server.client()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Other);
        assert!(failure.message.contains(&other.mock.uri()), "{failure}");
        assert!(!failure.message.contains("token=secret"), "{failure}");
    }
    assert!(other.received().is_empty());
}

// ---- asking again ----

#[test]
fn what_no_waiting_mends_is_asked_once() {
    use FailureKind::*;
    for (code, kind) in [
        (400, Other),
        (401, Auth),
        (403, Auth),
        (404, UnknownModel),
        (408, Timeout),
        (413, TooLong),
    ] {
        let server = Server::new(status(code));
        let failure = ask(&server.client()).unwrap_err();
        assert_eq!(failure.kind, kind, "{code}");
        assert_eq!(server.received().len(), 1, "{code}");
    }
}

#[test]
fn what_passes_is_asked_again() {
    for code in [429, 500, 503, 529] {
        let server = Server::in_turn(vec![status(code), ok(chat("at last"))]);
        assert_eq!(ask(&server.client()).unwrap().text, "at last", "{code}");
        assert_eq!(server.received().len(), 2, "{code}");
    }
}

#[test]
fn an_overload_that_stays_is_reported_after_four_requests() {
    let server = Server::new(status(529));
    let failure = ask(&server.client()).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Overloaded);
    assert!(failure.message.contains("asked 4 times"), "{failure}");
    assert_eq!(server.received().len(), 4);
}

#[test]
fn the_pause_that_the_server_asks_for_is_kept() {
    let paused = |header: &str, value: &str| {
        let limited = status(429).insert_header(header, value);
        let server = Server::in_turn(vec![limited, ok(chat("yes"))]);
        let started = Instant::now();
        ask(&server.client()).unwrap();
        started.elapsed()
    };
    assert!(paused("retry-after", "1.2") >= Duration::from_millis(1200));
    // Shorter than any pause of our own, where the machine has time for us.
    assert!((0..9).any(|_| paused("retry-after-ms", "5") < Duration::from_millis(250)));
    // Not understood: our own.
    for value in ["-1", "NaN", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        assert!(paused("retry-after", value) >= Duration::from_millis(250));
    }
}

#[test]
fn a_pause_that_is_too_long_is_left_to_the_caller() {
    for header in ["3600", "1e300"] {
        let server = Server::new(status(429).insert_header("retry-after", header));
        let failure = ask(&server.client()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::RateLimited);
        assert!(failure.retry_after_ms >= Some(3_600_000));
        assert_eq!(server.received().len(), 1);
    }
}

#[test]
fn a_pause_beyond_the_deadline_is_not_begun() {
    let server = Server::new(status(503).insert_header("retry-after", "5"));
    let settings = with_timeout(500, settings(Provider::OpenAi, &server.base()));
    let started = Instant::now();
    let failure = ask(&client(&settings)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Overloaded);
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_broken_connection_is_a_network_failure_and_asked_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let base = raw_server(move |mut stream, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"choices\":");
    });
    let failure = ask(&client(&settings(Provider::OpenAi, &base))).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Network, "{failure}");
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

#[test]
fn a_server_that_is_not_there_is_a_network_failure() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let base = format!("http://{}/v1", free.unwrap());
    let settings = with_timeout(300, settings(Provider::OpenAi, &base));
    let failure = ask(&client(&settings)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Network, "{failure}");
    assert!(failure.message.contains("no connection"), "{failure}");
    assert!(
        failure.message.contains("check that the server is running"),
        "{failure}"
    );
}

// ---- the model that is not there ----

#[test]
fn a_missing_model_falls_back_to_the_agents_own() {
    let server = Server::new(|request: &Request| {
        match request.body_json::<Value>().unwrap()["model"].as_str() {
            Some("big") => ok(chat("from the main one")),
            _ => status(404).set_body_json(json!({ "error": { "code": "model_not_found" } })),
        }
    });
    let ask_beside = |main: &str| {
        let settings = settings(Provider::OpenAi, &server.base());
        ask(&client_beside(
            &settings,
            Some(&agent(main, &server.base())),
        ))
    };
    assert_eq!(ask_beside("big").unwrap().text, "from the main one");
    assert_eq!(server.received().len(), 2);
    // Where the agent's is the very model that is missing, it is not asked twice.
    let same = ask_beside("m").unwrap_err();
    assert_eq!(same.kind, FailureKind::UnknownModel);
    assert_eq!(server.received().len(), 3);
    // Where the agent's is missing too, that is the end.
    let gone = ask_beside("other").unwrap_err();
    assert_eq!(gone.kind, FailureKind::UnknownModel);
    assert_eq!(server.received().len(), 5);
}

#[test]
fn other_failures_do_not_reach_for_the_fallback() {
    let main = Server::new(ok(chat("main")));
    let server = Server::new(status(401));
    let settings = settings(Provider::OpenAi, &server.base());
    let client = client_beside(&settings, Some(&agent("big", &main.base())));
    let failure = ask(&client).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.contains("OPENAI_API_KEY"), "{failure}");
    assert!(main.received().is_empty());
}

// ---- time and cancellation ----

#[test]
fn a_hanging_server_meets_the_time_limit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let silent = raw_server(move |_stream, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_secs(20));
    });
    let dripping = raw_server(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{");
        thread::sleep(Duration::from_secs(20));
    });
    for base in [silent, dripping] {
        let settings = with_timeout(300, settings(Provider::OpenAi, &base));
        let started = Instant::now();
        let failure = ask(&client(&settings)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
        assert!(started.elapsed() >= Duration::from_millis(300));
        assert!(started.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1, "a timeout is not repeated");
}

#[test]
fn cancelling_returns_at_once_and_hangs_up() {
    let (tell, hung_up) = std::sync::mpsc::channel();
    let base = raw_server(move |mut stream, _| {
        // Nothing to read, or a reset: the other side has gone.
        let gone = matches!(stream.read(&mut [0; 16]), Ok(0) | Err(_));
        tell.send(gone).unwrap();
    });
    let client = client(&settings(Provider::OpenAi, &base));
    let cancel = Arc::new(AtomicBool::new(false));
    let setter = set_after(300, &cancel);
    let failure = client.complete(&request("x"), &cancel).unwrap_err();
    let returned = Instant::now();
    assert_eq!(failure.kind, FailureKind::Cancelled);
    let late = returned.duration_since(setter.join().unwrap());
    assert!(late < Duration::from_secs(2), "{late:?} after the flag");
    assert!(hung_up.recv_timeout(Duration::from_secs(2)).unwrap());
}

#[test]
fn cancelling_ends_a_pause_between_requests() {
    let server = Server::new(status(429).insert_header("retry-after", "20"));
    let cancel = Arc::new(AtomicBool::new(false));
    set_after(200, &cancel);
    let started = Instant::now();
    let failure = server
        .client()
        .complete(&request("x"), &cancel)
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Cancelled);
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(server.received().len(), 1);
}

#[test]
fn what_is_cancelled_before_it_starts_is_not_sent() {
    let server = Server::new(ok(chat("yes")));
    let requests = [request("a"), request("b")];
    let results = server
        .client()
        .complete_many(&requests, &AtomicBool::new(true));
    assert_eq!(results.len(), 2);
    for result in results {
        assert_eq!(result.unwrap_err().kind, FailureKind::Cancelled);
    }
    assert!(server.received().is_empty());
}

#[test]
fn an_absurd_time_limit_is_no_panic() {
    let server = Server::new(ok(chat("yes")));
    let settings = settings(Provider::OpenAi, &server.base());
    let resolved = resolve(&settings, None, false, &every_key).unwrap();
    let client = ModelClient::new(resolved, Duration::MAX, unmasked);
    assert_eq!(ask(&client).unwrap().text, "yes");

    let base = raw_server(|_stream, _| thread::sleep(Duration::from_secs(20)));
    let settings = with_timeout(0, self::settings(Provider::OpenAi, &base));
    let failure = ask(&self::client(&settings)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
}

// ---- many at once ----

#[test]
fn many_calls_run_eight_at_a_time_and_answer_in_order() {
    let open = AtomicUsize::new(0);
    let most = Arc::new(AtomicUsize::new(0));
    let peak = Arc::clone(&most);
    let base = raw_server(move |mut stream, body| {
        let now_open = open.fetch_add(1, Ordering::SeqCst) + 1;
        peak.fetch_max(now_open, Ordering::SeqCst);
        let prompt = prompt_of(&serde_json::from_str(body).unwrap());
        // The first are the slowest, so that order cannot come by chance.
        let number: u64 = prompt.parse().unwrap();
        thread::sleep(Duration::from_millis(300 - 10 * number));
        open.fetch_sub(1, Ordering::SeqCst);
        let answer = chat(&prompt).to_string();
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
        let _ = write!(stream, "{head} {}\r\n\r\n{answer}", answer.len());
    });
    let client = client(&settings(Provider::OpenAi, &base));
    let numbers: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    let requests: Vec<_> = numbers.iter().map(|number| request(number)).collect();
    let answers = client.complete_many(&requests, &AtomicBool::new(false));
    let texts: Vec<_> = answers.into_iter().map(|a| a.unwrap().text).collect();
    assert_eq!(texts, numbers);
    assert_eq!(most.load(Ordering::SeqCst), 8);
    let none = client.complete_many(&[], &AtomicBool::new(false));
    assert!(none.is_empty());
}

#[test]
fn cancelling_many_keeps_what_is_answered() {
    let server =
        Server::new(
            |request: &Request| match prompt_of(&request.body_json().unwrap()).as_str() {
                "quick" => ok(chat("done")),
                _ => ok(chat("late")).set_delay(Duration::from_secs(20)),
            },
        );
    let cancel = Arc::new(AtomicBool::new(false));
    set_after(700, &cancel);
    let requests = [request("slow"), request("quick")];
    let results = server.client().complete_many(&requests, &cancel);
    let slow = results[0].as_ref().unwrap_err();
    assert_eq!(slow.kind, FailureKind::Cancelled);
    assert_eq!(results[1].as_ref().unwrap().text, "done");
}

#[test]
fn one_failure_leaves_the_others_alone() {
    let server =
        Server::new(
            |request: &Request| match prompt_of(&request.body_json().unwrap()).as_str() {
                "bad" => status(400),
                _ => ok(chat("good")),
            },
        );
    let requests = [request("a"), request("bad"), request("b")];
    let client = server.client();
    let results = client.complete_many(&requests, &AtomicBool::new(false));
    assert!(results[0].is_ok() && results[2].is_ok());
    let failure = results[1].as_ref().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Other);
}

#[test]
fn calls_work_from_inside_another_runtime() {
    let server = Server::new(ok(chat("yes")));
    let client = server.client();
    let runtime = Runtime::new().unwrap();
    let cloned = client.clone();
    let blocking = runtime.spawn_blocking(move || ask(&cloned));
    let from_blocking = runtime.block_on(blocking).unwrap();
    assert_eq!(from_blocking.unwrap().text, "yes");
    let from_async = runtime.block_on(async { ask(&client) });
    assert_eq!(from_async.unwrap().text, "yes");
}

/// A model of the embedding program's, which repeats what it is asked.
fn lent() -> LentModel {
    LentModel {
        name: "own".into(),
        context_length: Some(9_000),
        ask: Arc::new(|request| Ok(ModelAnswer::new(request.prompt.as_str(), "own"))),
    }
}

#[test]
fn the_embedding_programs_model_answers_where_the_configuration_follows_the_agent() {
    let home = tempfile::tempdir().unwrap();
    for (provider, answers) in [("auto", true), ("main", true), ("none", false)] {
        let config = format!("auxiliary:\n  compression:\n    provider: {provider}\n");
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        let open = |offline| {
            let options = HostOptions::in_home(home.path())
                .offline(offline)
                .model(Some(lent()));
            Host::open(&options).unwrap().engines()
        };
        let expected = answers.then_some(("own", Some(9_000)));
        assert_eq!(open(false).client().model().ok(), expected, "{provider}");
        assert!(open(true).client().model().is_err());
    }
}

#[test]
fn a_lent_model_is_told_no_secret_and_answers_in_order() {
    let client = ModelClient::lent(lent(), |text| text.replace("secret", "***").into());
    let request = |at| ModelRequest::new("summary", "Summarise.", format!("secret {at}"), 10);
    let requests: Vec<_> = (0..20).map(request).collect();
    let answers = client.complete_many(&requests, &AtomicBool::new(false));
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.unwrap().text, format!("*** {at}"));
    }
    for answer in client.complete_many(&requests, &AtomicBool::new(true)) {
        assert_eq!(answer.unwrap_err().kind, FailureKind::Cancelled);
    }
}
