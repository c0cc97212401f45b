//! What a session costs that goes through the gateway, by the bill of a provider that counts as Anthropic publishes it:
//! block by block, by the markers that came. No pauses: all comes within the cache's lifetime.
//!
//! `cargo bench -p contexture-gateway --bench cost`: the shared session of Claude Code, and an invented one of 500 rounds
//! made of its texts, with digests for summaries and with a model's long ones. Beside it stands what `replay` makes of the
//! same conversation, which shares no code with the provider: both as shares of what it costs without an engine.
//! A model's summaries come when they come, so that its rows differ a little from run to run.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use contexture::HostOptions;
use contexture::config::Config;
use contexture::formats::{self, Format, RenderPlan};
use contexture::prompt_cache::Ttl;
use contexture::providers::{LentModel, ModelClient, NoModel, Resolved};
use contexture::replay::{Prices, Recording, TempHome, play, without_engine};
use contexture::session::AgentWindow;
use contexture_engine_api::{ModelAnswer, ModelRequest};
use contexture_gateway::Gateway;
use contexture_provider_simulator::{Answer, Options, Simulator};
use contexture_tests::shared_data;
use serde_json::{Value, json};

const MODEL: &str = "claude-sonnet-4-5";
/// How long a summary is that the model writes, in characters.
const SUMMARY_CHARS: usize = 8_000;
const ROUNDS: usize = 500;

fn main() {
    let recorded = recorded();
    let invented = invented(&recorded);
    println!(
        "{:<10}{:<12}{:>8}{:>10}{:>9}{:>9}{:>12}{:>12}{:>9}{:>9}",
        "session",
        "engine",
        "window",
        "summary",
        "requests",
        "calls",
        "written",
        "read",
        "cost",
        "replay"
    );
    for (name, session, windows) in [
        ("recorded", &recorded, &[200_000, 100_000, 48_000][..]),
        ("invented", &invented, &[64_000, 40_000]),
    ] {
        let alone = Bill::of(session, None);
        let played_alone = alone_by_replay(session);
        alone.print(name, "none", 0, "", None);
        for window in windows {
            for engine in ["compressor", "lcm"] {
                for model in [false, true] {
                    let through = Way {
                        engine,
                        window: *window,
                        model,
                    };
                    let bill = Bill::of(session, Some(&through));
                    let by_replay = through.by_replay(session) / played_alone;
                    let summary = if model { "model" } else { "digest" };
                    bill.print(
                        name,
                        engine,
                        *window,
                        summary,
                        Some((alone.prompts, by_replay)),
                    );
                }
            }
        }
    }
}

/// A conversation as requests of Anthropic's format.
struct Session {
    system: String,
    tools: Value,
    messages: Vec<Value>,
}

impl Session {
    fn body(&self, messages: &[Value]) -> Value {
        json!({
            "model": MODEL, "max_tokens": 8_000, "system": self.system, "tools": self.tools, "messages": messages,
        })
    }

    fn recording(&self, context_length: u64) -> Recording {
        let conversation = formats::read(self.body(&self.messages).to_string(), None).unwrap();
        // Its tokens are nearly the provider's, which counts four bytes as one.
        let agent = AgentWindow::new("gpt-5", context_length, 8_000);
        Recording::new(conversation.into_iter().next().unwrap(), agent)
    }
}

/// The shared session, without what was thought, of which the provider would want its signatures.
fn recorded() -> Session {
    let text = std::fs::read_to_string(shared_data().join("claude-code/main.jsonl")).unwrap();
    let conversation = formats::read(text, None).unwrap().remove(0);
    let whole = RenderPlan::whole(conversation.messages().len());
    let body = conversation
        .convert(&whole, Format::Anthropic)
        .unwrap()
        .document;
    let body: Value = serde_json::from_str(&body).unwrap();
    let mut messages = body["messages"].as_array().unwrap().clone();
    for message in &mut messages {
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| {
                !matches!(
                    block["type"].as_str(),
                    Some("thinking" | "redacted_thinking")
                )
            });
        }
    }
    messages.retain(|message| message["content"] != json!([]));
    let mut names: Vec<&str> = calls(&messages)
        .filter_map(|call| call["name"].as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let tool =
        |name| json!({"name": name, "description": "A tool.", "input_schema": {"type": "object"}});
    Session {
        system: "You work on a repository, and say what you do. ".repeat(1_000),
        tools: names.into_iter().map(tool).collect(),
        messages,
    }
}

fn blocks(messages: &[Value]) -> impl Iterator<Item = &Value> {
    messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten()
}

fn calls(messages: &[Value]) -> impl Iterator<Item = &Value> {
    blocks(messages).filter(|block| block["type"] == "tool_use")
}

/// Rounds of one call each, with the arguments and results of the recorded session in turn.
fn invented(recorded: &Session) -> Session {
    let calls: Vec<&Value> = calls(&recorded.messages).collect();
    let result_of =
        |id: &Value| blocks(&recorded.messages).find(|block| block["tool_use_id"] == *id);
    let mut messages = vec![
        json!({"role": "user", "content": "Go through the repository, and mend what is wrong."}),
    ];
    for round in 0..ROUNDS {
        let call = calls[round * 7 % calls.len()];
        let id = format!("toolu_{round:024}");
        let content = result_of(&call["id"]).map_or(&Value::Null, |result| &result["content"]);
        let content = match content {
            Value::Null => json!("done"),
            content => content.clone(),
        };
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": format!("Step {round}.")},
            {"type": "tool_use", "id": id, "name": call["name"], "input": call["input"]},
        ]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": content},
        ]}));
    }
    messages.push(json!({"role": "assistant", "content": "That is all."}));
    Session {
        system: recorded.system.clone(),
        tools: recorded.tools.clone(),
        messages,
    }
}

/// What stands before the provider.
struct Way {
    engine: &'static str,
    window: u64,
    /// Whether a model writes the summaries.
    model: bool,
}

impl Way {
    fn config(&self, base: &str) -> String {
        let mut config = format!(
            "context: {{engine: {}}}\nmodel: {{context_length: {}, max_output_tokens: 8000}}\n\
             upstream: {{anthropic: {{base_url: \"{base}\"}}}}\n",
            self.engine, self.window
        );
        if self.model {
            config += "auxiliary: {compression: {provider: main}}\n";
        }
        config
    }

    /// What `replay` reckons the prompts to cost, in US dollars.
    fn by_replay(&self, session: &Session) -> f64 {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(
            home.path().join("config.yaml"),
            format!("context: {{engine: {}}}\n", self.engine),
        )
        .unwrap();
        let loaded = Config::load(None, &|name| {
            (name == "CONTEXTURE_HOME").then(|| home.path().as_os_str().to_owned())
        })
        .unwrap();
        let client = match self.model {
            true => ModelClient::lent(summariser(), |text| text.into()),
            false => ModelClient::new(
                Resolved::NoModel(NoModel::Offline),
                Duration::from_secs(1),
                |text| text.into(),
            ),
        };
        let stage = TempHome::new(loaded, client).unwrap();
        let played = play(&session.recording(self.window), &stage, None, &mut || {}).unwrap();
        Prices::sonnet(Ttl::FiveMinutes).cost(&played.prompts)
    }
}

fn alone_by_replay(session: &Session) -> f64 {
    let prompts = without_engine(&session.recording(1_000_000), Ttl::FiveMinutes);
    Prices::sonnet(Ttl::FiveMinutes).cost(&prompts)
}

/// What the provider counted.
struct Bill {
    requests: usize,
    calls: usize,
    written: u64,
    read: u64,
    /// Of the prompts alone, in US dollars.
    prompts: f64,
}

impl Bill {
    fn of(session: &Session, way: Option<&Way>) -> Self {
        let provider = Simulator::with(Options {
            window: Some(1_000_000),
            ..Options::default()
        });
        // Which answer is due, by its place among the messages.
        let due = Arc::new(AtomicUsize::new(0));
        let (asked, said) = (due.clone(), session.messages.clone());
        let calls = Arc::new(AtomicUsize::new(0));
        let asked_for_summaries = calls.clone();
        provider.answer_with(move |request| {
            let at = asked.load(Ordering::SeqCst);
            let last = request.messages().last().map(Value::to_string);
            match last.is_some_and(|last| last.contains(&end_of(&said[at - 1]))) {
                true => answer(&said[at]),
                false => {
                    asked_for_summaries.fetch_add(1, Ordering::SeqCst);
                    Answer::text(long_summary(&request.last_text(), 2_000))
                }
            }
        });
        let home = tempfile::tempdir().unwrap();
        // Without an engine the gateway sets its markers all the same: a window that is never full.
        let without = Way {
            engine: "compressor",
            window: 100_000_000,
            model: false,
        };
        let config = way.unwrap_or(&without).config(&provider.base_url());
        std::fs::write(home.path().join("config.yaml"), config).unwrap();
        let options = HostOptions::in_home(home.path());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let requests = runtime.block_on(converse(session, options, &due));
        let refused = provider.violations();
        assert!(refused.is_empty(), "{:#?}", refused.first());
        let usage = provider.bill().usage;
        let tokens = usage.input as f64 * 3.0
            + usage.cache_read as f64 * 0.3
            + usage.cache_write_5m as f64 * 3.75;
        Self {
            requests,
            calls: calls.load(Ordering::SeqCst),
            written: usage.cache_write_5m,
            read: usage.cache_read,
            prompts: tokens / 1e6,
        }
    }

    fn print(
        &self,
        session: &str,
        engine: &str,
        window: u64,
        summary: &str,
        alone: Option<(f64, f64)>,
    ) {
        let share = |share: f64| format!("{:.1} %", 100.0 * share);
        println!(
            "{session:<10}{engine:<12}{window:>8}{summary:>10}{:>9}{:>9}{:>12}{:>12}{:>9}{:>9}",
            self.requests,
            self.calls,
            self.written,
            self.read,
            match alone {
                Some((alone, _)) => share(self.prompts / alone),
                None => format!("${:.3}", self.prompts),
            },
            alone.map_or_else(String::new, |(_, by_replay)| share(by_replay)),
        );
    }
}

/// Sends every request of the session. Answers how many.
async fn converse(session: &Session, options: HostOptions, due: &AtomicUsize) -> usize {
    let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
    let address = format!("http://{}/v1/messages", gateway.address());
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(gateway.serve(|handle| drop(sender.send(handle))));
    let handle = receiver.await.ok().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut requests = 0;
    for (at, message) in session.messages.iter().enumerate() {
        if message["role"] != "assistant" || at == 0 {
            continue;
        }
        due.store(at, Ordering::SeqCst);
        let request = client
            .post(&address)
            .header("x-api-key", "k")
            .header("anthropic-version", "2023-06-01")
            .header("x-contexture-session", "s")
            .header("content-type", "application/json")
            .body(session.body(&session.messages[..at]).to_string());
        let response = request.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{at}: {text}");
        requests += 1;
    }
    handle.stop();
    serving.await.unwrap();
    requests
}

/// The recorded answer.
fn answer(message: &Value) -> Answer {
    let text = |block: &Value| block["text"].as_str().unwrap_or_default().to_owned();
    let Some(blocks) = message["content"].as_array() else {
        return Answer::text(message["content"].as_str().unwrap_or_default());
    };
    blocks.iter().fold(Answer::default(), |answer, block| {
        match block["type"].as_str() {
            Some("tool_use") => answer.and(contexture_provider_simulator::AnswerPart::Call {
                id: block["id"].as_str().map(str::to_owned),
                name: block["name"].as_str().unwrap().to_owned(),
                arguments: block["input"].clone(),
            }),
            _ => answer.and_text(text(block)),
        }
    })
}

/// What tells a message of the session from a question about it: the end of its JSON.
fn end_of(message: &Value) -> String {
    let blocks = message["content"].as_array();
    let last = blocks.map_or(&message["content"], |blocks| &blocks[blocks.len() - 1]);
    let said = last["tool_use_id"]
        .as_str()
        .or(last["text"].as_str())
        .or(last.as_str());
    let said = json!(said.unwrap_or_default()).to_string();
    said.trim_matches('"').to_owned()
}

/// A long summary: the lines of what is to be summarised, as many as fit.
fn long_summary(material: &str, max_tokens: u64) -> String {
    let mut notes = String::from("## Progress\n");
    let most = SUMMARY_CHARS.min(max_tokens as usize * 4);
    for line in material.lines().filter(|line| line.len() > 40) {
        let line: String = line.chars().take(200).collect();
        if notes.len() + line.len() > most {
            break;
        }
        notes += &format!("- {line}\n");
    }
    notes
}

/// A model that writes long summaries.
fn summariser() -> LentModel {
    LentModel {
        name: "summariser".to_owned(),
        context_length: None,
        ask: Arc::new(|request: &ModelRequest| {
            let notes = long_summary(&request.prompt, request.max_tokens);
            Ok(ModelAnswer::new(notes, "summariser"))
        }),
    }
}
