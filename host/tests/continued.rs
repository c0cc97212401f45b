//! A summary that is asked of the agent's own model, as the next message of the conversation that the model has in its
//! prompt cache.
#![cfg(feature = "network")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::AtomicBool;

use contexture::session::Session;
use contexture::{Host, HostOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

const NOTES: &str = "## Goal\nShip the parcel service.\n\n## Progress\nThe depot in Ghent answers.";
const MODEL: &str = "claude-sonnet-4-5";

/// A provider, and a host whose agent is served by it.
struct Provider {
    runtime: Runtime,
    server: MockServer,
    home: TempDir,
}

impl Provider {
    fn new(answer: impl Fn(&Value) -> Value + Send + Sync + 'static, more: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(MockServer::start());
        let respond = move |request: &Request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            ResponseTemplate::new(200).set_body_json(answer(&body))
        };
        runtime.block_on(
            Mock::given(wiremock::matchers::any())
                .respond_with(respond)
                .mount(&server),
        );
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "model: {{name: {MODEL}, provider: anthropic, base_url: '{}', context_length: 20000}}\n\
             compression: {{wait_for_model: true}}\n{more}",
            server.uri()
        );
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        Self {
            runtime,
            server,
            home,
        }
    }

    fn host(&self) -> Host {
        Host::open(&HostOptions::in_home(self.home.path())).unwrap()
    }

    fn asked(&self) -> Vec<Value> {
        let requests = self.runtime.block_on(self.server.received_requests());
        let bodies = requests.unwrap().into_iter().map(|request| request.body);
        bodies
            .map(|body| serde_json::from_slice(&body).unwrap())
            .collect()
    }
}

fn text(words: &str) -> Value {
    json!({
        "content": [{"type": "text", "text": words}], "stop_reason": "end_turn", "model": MODEL,
        "usage": {"input_tokens": 10, "output_tokens": 5}
    })
}

fn is_continued(body: &Value) -> bool {
    body["messages"].as_array().unwrap().len() > 1
}

/// An agent that sends everything.
struct Agent {
    session: Session,
    messages: Vec<Value>,
    last: Value,
}

impl Agent {
    fn new(host: &Host) -> Self {
        let session = host
            .session("s")
            .model(MODEL, 20_000)
            .background_by_embedder();
        Self {
            session: session.open().unwrap(),
            messages: Vec::new(),
            last: Value::Null,
        }
    }

    /// Says something, and has it answered; whether the window was compacted.
    fn turn(&mut self, words: &str) -> bool {
        self.messages
            .push(json!({"role": "user", "content": words}));
        let body = json!({
            "model": MODEL, "max_tokens": 4_000, "stream": true, "system": "You deliver parcels.",
            "tools": [{"name": "track", "input_schema": {"type": "object"}}], "messages": self.messages,
        })
        .to_string();
        let turn = self.session.turn(&body).unwrap();
        let compacted = turn.messages.len() < self.messages.len();
        self.last = serde_json::from_str(&turn.body).unwrap();
        self.answer();
        compacted
    }

    fn answer(&mut self) {
        let answer =
            json!({"role": "assistant", "content": "The depot in Ghent has it. ".repeat(30)});
        self.session.answer(&[&answer.to_string()], None).unwrap();
        self.messages.push(answer);
    }

    fn until_compacted(&mut self) {
        for turn in 0..60 {
            if self.turn(&format!(
                "Where is parcel {turn}? {}",
                "It was sent by rail. ".repeat(60)
            )) {
                return;
            }
        }
        panic!("never compacted");
    }
}

fn shows(body: &Value, words: &str) -> bool {
    body["messages"].to_string().contains(words)
}

#[test]
fn the_agents_own_model_is_asked_after_the_conversation_that_it_has_read() {
    let provider = Provider::new(|_| text(NOTES), "");
    let host = provider.host();
    let mut agent = Agent::new(&host);
    let mut before = Value::Null;
    while !agent.turn(&format!(
        "Where is it? {}",
        "It was sent by rail. ".repeat(60)
    )) {
        before = agent.last.clone();
    }
    assert!(
        shows(&agent.last, "The depot in Ghent answers."),
        "{}",
        agent.last
    );
    let asked = provider.asked();
    let [question] = asked.as_slice() else {
        panic!("asked {} times", asked.len());
    };
    // What a cache goes by is what was sent before, markers included.
    for part in ["model", "system", "tools"] {
        assert_eq!(question[part], before[part], "{part}");
    }
    let (sent, messages) = (
        before["messages"].as_array().unwrap(),
        question["messages"].as_array().unwrap(),
    );
    assert_eq!(messages[..sent.len()], sent[..]);
    assert_eq!(messages.len(), sent.len() + 1);
    assert_eq!(question["stream"], false);
    let words = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(
        words.contains("call no tool") && !words.contains("<conversation>"),
        "{words}"
    );
}

#[test]
fn what_is_prepared_between_turns_continues_the_conversation_too() {
    let provider = Provider::new(|_| text(NOTES), "");
    let host = provider.host();
    let mut agent = Agent::new(&host);
    // Of few messages the material is less than what there is to read.
    for at in 0..200 {
        let compacted = agent.turn(&format!("Where is parcel {at}? {}", "By rail. ".repeat(8)));
        assert!(!compacted, "nothing was prepared");
        if at % 10 != 9 {
            continue;
        }
        let work = agent.session.background().unwrap();
        if !work.is_empty() {
            let answers = work.run(&AtomicBool::new(false));
            agent.session.background_done(answers).unwrap();
            let asked = provider.asked();
            assert!(asked.len() == 1 && is_continued(&asked[0]), "{asked:?}");
            agent.until_compacted();
            assert!(shows(&agent.last, "The depot in Ghent answers."));
            return;
        }
    }
    panic!("nothing was wanted");
}

#[test]
fn an_answer_that_calls_a_tool_is_none_and_the_material_is_sent() {
    let provider = Provider::new(
        |body| match is_continued(body) {
            true => json!({
                "content": [{"type": "tool_use", "id": "t", "name": "track", "input": {}}],
                "stop_reason": "tool_use", "usage": {}
            }),
            false => text(NOTES),
        },
        "",
    );
    let host = provider.host();
    let mut agent = Agent::new(&host);
    agent.until_compacted();
    assert!(shows(&agent.last, "The depot in Ghent answers."));
    let asked: Vec<bool> = provider.asked().iter().map(is_continued).collect();
    assert_eq!(asked, [true, false]);
}

#[test]
fn another_model_gets_the_material_alone() {
    let provider = Provider::new(
        |_| text(NOTES),
        "auxiliary: {compression: {model: claude-haiku-4-5}}\n",
    );
    let host = provider.host();
    let mut agent = Agent::new(&host);
    agent.until_compacted();
    assert!(shows(&agent.last, "The depot in Ghent answers."));
    let asked = provider.asked();
    assert!(!asked.is_empty() && !asked.iter().any(is_continued));
    assert_eq!(asked[0]["model"], "claude-haiku-4-5");
}

#[test]
fn what_the_client_took_back_since_is_not_asked_about() {
    let provider = Provider::new(|_| text(NOTES), "");
    let host = provider.host();
    let mut agent = Agent::new(&host);
    agent.turn("My name is Ann.");
    for _ in 0..8 {
        agent.turn(&"It was sent by rail. ".repeat(60));
    }
    // An early message in other words, and so much with it that the window is compacted at once.
    agent.messages[0] = json!({"role": "user", "content": "My name is Bea."});
    let compacted = (0..3).any(|_| agent.turn(&"It was sent by rail. ".repeat(900)));
    assert!(compacted);
    let asked = provider.asked();
    assert!(!asked.is_empty());
    assert!(!asked.iter().any(|body| shows(body, "Ann")), "{asked:?}");
}
