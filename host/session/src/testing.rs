//! What the unit tests of the four values share: engines that do as a script says, and a
//! conversation that was not ingested from a request.
//!
//! [`conversation`] makes the state that a value works on, as if a client had sent these messages,
//! and [`say`] adds more. [`engines`] and [`scripted`] open an engine whose answers a test decides.
//! No model is asked, and nothing is stored, so a test of one value needs none of the others.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use contexture_config::Config;
use contexture_engine_api::{MessageId, MessageKind, Services, register_engine};
use contexture_formats::{self as formats, Format};
use contexture_providers::{ModelClient, NoModel, Resolved};
use contexture_runtime::engines::{Engines, Occasion, Opened};
use contexture_runtime::supervision::CallState;
use contexture_testkit::{Script, ScriptedEngine};
use serde_json::json;
use tempfile::TempDir;

use contexture_transcript::{Fingerprint, Known, Origin, WireEntry};

use crate::align::raw_hash;
use crate::conversation::ConversationState;
use crate::engine_transcript::EngineTranscript;
use crate::history::History;
use crate::meter::Meter;
use crate::options::{AgentWindow, ConfiguredAgent};
use crate::request::ReadMessage;
use crate::warnings::Warnings;
use crate::window_entry::WindowEntry;

register_engine!("scripted", ScriptedEngine<true>);

/// The engines of a home with this configuration.
pub(crate) fn engines(yaml: &str) -> (TempDir, Arc<Engines>) {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("config.yaml"), yaml).unwrap();
    let path = home.path().to_owned();
    let env = move |name: &str| (name == "CONTEXTURE_HOME").then(|| path.clone().into());
    let client = ModelClient::new(
        Resolved::NoModel(NoModel::Configured),
        std::time::Duration::from_secs(1),
        |text| text.into(),
    );
    let engines = Engines::new(Config::load(None, &env).unwrap(), client).unwrap();
    (home, engines)
}

/// An engine that does what the script of this session says.
pub(crate) fn scripted(engines: &Engines, session: &str) -> (Opened, Script) {
    let occasion = Occasion {
        session,
        window: &agent().empty_window(),
        services: &|_: &str, _: &Arc<CallState>| Services::none(),
        compaction: None,
    };
    let engine = engines.open(Some("scripted"), &occasion, &mut Vec::new());
    (engine.unwrap(), Script::of(session))
}

pub(crate) fn agent() -> AgentWindow {
    AgentWindow::new("gpt-5", 20_000, 1_000)
}

/// The agent with the default configuration, which says nothing of its model.
pub(crate) fn configured(agent: AgentWindow) -> ConfiguredAgent {
    ConfiguredAgent::of(agent, &Config::default()).0
}

/// A message of OpenAI chat completions.
pub(crate) fn message(role: &str, text: &str) -> String {
    json!({"role": role, "content": text}).to_string()
}

/// Messages of a user and a model in turn. Each has about 300 tokens and says its number.
pub(crate) fn talk(numbers: std::ops::Range<usize>) -> Vec<String> {
    let say = |number: usize| {
        let role = ["user", "assistant"][number % 2];
        message(
            role,
            &format!("number {number} {}", "and so on ".repeat(100)),
        )
    };
    numbers.map(say).collect()
}

/// The body of a request with these messages.
pub(crate) fn body(messages: &[String]) -> String {
    format!("{{\"messages\":[{}]}}", messages.join(","))
}

/// A conversation in which these messages were said, with the ids from 1 on.
pub(crate) fn conversation(messages: &[String]) -> ConversationState {
    let meter = Meter::new(
        configured(agent()),
        "",
        Default::default(),
        Default::default(),
    );
    let transcript = EngineTranscript::of("s", None);
    let history = History::default();
    let mut current = ConversationState::new(history, 1, meter, transcript, Warnings::of("s"));
    say(&mut current, messages);
    current
}

/// Has the client send these messages after those that it sent before.
pub(crate) fn say(current: &mut ConversationState, messages: &[String]) {
    let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
    let calls = &mut current.history.calls;
    let read = Arc::new(formats::excerpt(Format::OpenAiChat, &texts, calls).unwrap());
    let before = current.history.sent.clone();
    let (mut raw, kept) = (before.raw, before.units.len());
    let first = raw.len();
    raw.extend(texts.iter().map(|text| raw_hash(text)));
    let window = Arc::make_mut(&mut current.window);
    let mut units = Vec::new();
    for (index, message) in read.messages().iter().enumerate() {
        let read = ReadMessage {
            conversation: Arc::clone(&read),
            index,
            wires: message.items.clone(),
        };
        let (id, fingerprint) = (window.fresh_id(), Fingerprint::of(message));
        let entry = WindowEntry::new(id, MessageKind::Original, &read, &current.counter);
        window.push_entry(entry);
        current.history.append(Known { id, fingerprint }, None);
        units.push(WireEntry {
            origin: Origin::Said(id),
            fingerprint,
            wires: first + index..first + index + 1,
        });
    }
    (current.history).set_sent(&raw, kept, units, Format::OpenAiChat);
}

/// These ids.
pub(crate) fn ids(ids: impl IntoIterator<Item = u64>) -> Vec<MessageId> {
    ids.into_iter().map(MessageId).collect()
}
