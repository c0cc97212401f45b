//! Hosts, sessions, and what can be asked of them.
//!
//! [`open_host`] is the function to start with. A home directory has one host in a process, however
//! often it is opened. A session has one holder: if somebody opens it again, in this process or
//! another, that call waits for as long as its options say and then fails.
//!
//! [`session_call`] makes one call of a session. The calls of a session are made one at a time. The
//! package's JavaScript makes them in the order in which its caller did.
//!
//! Options come as JSON text. If a key is unknown or a value has the wrong type, the call fails
//! before anything happens.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture::formats::{self, Format};
use contexture::session::{AgentWindow, DecisionReport, TurnReport};
use contexture::tokens::TokenCounter;
use contexture::{
    BodyMessage, Canceller, Compact, HostOptions, SessionError, ToolCall, TurnOptions, Unrelated,
    lock,
};
use napi::Env;
use napi::bindgen_prelude::Object;
use napi_derive::napi;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::engine::{Dispatcher, lent_model};
use crate::{Failure, Handles, json as text_of, options, promise};

/// A host that is open in this process, with what it was opened with. If the same home is opened
/// again, its options are compared with these.
struct OpenHost {
    host: contexture::Host,
    place: Option<PathBuf>,
    spec: HostSpec,
    has_model: bool,
}

/// The options of a host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HostSpec {
    home: Option<PathBuf>,
    config: Option<PathBuf>,
    #[serde(default)]
    offline: bool,
    model: Option<ModelSpec>,
}

/// A model of the caller's, which may write summaries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModelSpec {
    name: String,
    context_length: Option<u64>,
}

/// The options of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SessionSpec {
    id: String,
    model: String,
    context_length: u64,
    #[serde(default)]
    max_output_tokens: u64,
    engine: Option<String>,
    /// How long to wait for a session that is open elsewhere, in milliseconds.
    #[serde(default = "two_seconds")]
    wait_ms: u64,
    #[serde(default)]
    format: WireFormat,
    #[serde(default)]
    summaries: Summaries,
    #[serde(default = "yes")]
    note: bool,
    #[serde(default)]
    unrelated: Unrelated,
}

fn two_seconds() -> u64 {
    2_000
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireFormat {
    #[default]
    OpenAi,
    Responses,
    Anthropic,
    Gemini,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Summaries {
    #[default]
    Own,
    Folded,
}

/// The options of a turn.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct TurnSpec {
    compact: Compact,
    fixed_tokens: Option<u64>,
    keep_from: Option<usize>,
    focus: Option<String>,
    memory: Option<String>,
}

/// The options of a replay.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReplaySpec {
    model: String,
    context_length: u64,
    engine: Option<String>,
}

/// A call of a session, with its arguments.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", tag = "method")]
enum SessionCall {
    Turn {
        body: String,
        options: TurnSpec,
    },
    #[serde(rename_all = "camelCase")]
    Answer {
        items: Vec<String>,
        usage: Option<Value>,
    },
    Usage {
        usage: Value,
    },
    Preflight {
        tokens: u64,
    },
    #[serde(rename_all = "camelCase")]
    SetModel {
        model: String,
        context_length: u64,
        #[serde(default)]
        max_output_tokens: u64,
    },
    Tools,
    CallTool {
        name: String,
        arguments: String,
    },
    Pin {
        words: String,
    },
    Unpin {
        words: String,
    },
    Status,
    Engine,
    Reset,
    Close,
}

/// A session that is open in this process. The canceller has a lock of its own, because a call is
/// cancelled while it holds the session.
struct SessionCell {
    session: Mutex<Option<contexture::Session>>,
    canceller: Canceller,
    format: Format,
}

static HOSTS: Mutex<Handles<OpenHost>> = Mutex::new(Handles::new());
static SESSIONS: Mutex<Handles<SessionCell>> = Mutex::new(Handles::new());

/// Opens the host of a home directory, or returns the one that is open. `dispatch` calls the
/// caller's model, if the options have one.
#[napi]
pub fn open_host(spec: String, dispatch: Dispatcher) -> napi::Result<u32> {
    Ok(host_of(options(&spec, "a host")?, dispatch)?)
}

fn host_of(spec: HostSpec, dispatch: Dispatcher) -> Result<u32, Failure> {
    let model = spec.model.clone();
    let model = model.map(|model| lent_model(model.name, model.context_length, Arc::new(dispatch)));
    let options = HostOptions::default()
        .home(spec.home.clone())
        .config(spec.config.clone())
        .offline(spec.offline)
        .strict(true)
        .model(model);
    let place = options.place();
    let mut hosts = lock(&HOSTS);
    let open = hosts
        .values()
        // If no home can be determined, nothing says that two hosts share one.
        .find(|host| host.place == place && place.is_some());
    if let Some(open) = open.map(Arc::clone) {
        // A model is an object of the caller's, and two of them cannot be compared from here.
        if open.spec == spec && !open.has_model && spec.model.is_none() {
            return Ok(hosts.add(open));
        }
        return Err(Failure::other(format!(
            "the home directory {} is open in this process with another `config`, `offline` or `model`: a home has one \
             host in a process, so open it once, or with the same options and without a model",
            place.unwrap_or_default().display()
        )));
    }
    Ok(hosts.add(Arc::new(OpenHost {
        host: contexture::Host::open(&options)?,
        // The home directory exists only now, so that a link to it counts as the same directory.
        place: options.place(),
        has_model: spec.model.is_some(),
        spec,
    })))
}

/// Gives up a host. It is closed when none of its sessions is open.
#[napi]
pub fn release_host(host: u32) {
    let released = lock(&HOSTS).release(host);
    drop_elsewhere(released);
}

/// Gives up a session that was not closed.
#[napi]
pub fn release_session(session: u32) {
    let released = lock(&SESSIONS).release(session);
    drop_elsewhere(released);
}

/// Drops a value on another thread: an engine that is written in JavaScript needs this one to end.
fn drop_elsewhere<T: Send + Sync + 'static>(value: Option<Arc<T>>) {
    // If there is no thread, the value is dropped here.
    let _ = std::thread::Builder::new().spawn(move || drop(value));
}

/// Returns the engines that can be used.
#[napi]
pub fn host_engines(host: u32) -> napi::Result<String> {
    let host = lock(&HOSTS).get(host)?;
    Ok(text_of(&host.host.engines().list())?)
}

/// Returns the tools of an engine, or of the configured one.
#[napi]
pub fn host_tools(env: &Env, host: u32, engine: Option<String>) -> napi::Result<Object<'_>> {
    let host = lock(&HOSTS).get(host)?;
    promise(env, move || {
        let tools = host.host.tools(engine.as_deref())?;
        Ok(formats::tool_list(&tools, Format::OpenAiChat))
    })
}

/// Opens a session and returns its number.
#[napi]
pub fn host_session(env: &Env, host: u32, spec: String) -> napi::Result<Object<'_>> {
    let host = lock(&HOSTS).get(host)?;
    let spec: SessionSpec = options(&spec, "a session")?;
    promise(env, move || {
        let mut builder = host.host.session(&spec.id);
        builder = builder.wait(Duration::from_millis(spec.wait_ms));
        builder = builder.model(&spec.model, spec.context_length);
        builder = builder.max_output_tokens(spec.max_output_tokens);
        builder = builder.note(spec.note).unrelated(spec.unrelated);
        if spec.summaries == Summaries::Own {
            builder = builder.own_summaries();
        }
        if let Some(engine) = &spec.engine {
            builder = builder.engine(engine);
        }
        let session = builder.open()?;
        let cell = SessionCell {
            canceller: session.canceller(),
            session: Mutex::new(Some(session)),
            format: match spec.format {
                WireFormat::OpenAi => Format::OpenAiChat,
                WireFormat::Responses => Format::OpenAiResponses,
                WireFormat::Anthropic => Format::Anthropic,
                WireFormat::Gemini => Format::Gemini,
            },
        };
        text_of(&lock(&SESSIONS).add(Arc::new(cell)))
    })
}

/// Plays a recorded conversation through an engine and returns what it would have cost.
#[napi]
pub fn host_replay(
    env: &Env,
    host: u32,
    document: String,
    spec: String,
) -> napi::Result<Object<'_>> {
    let host = lock(&HOSTS).get(host)?;
    let spec: ReplaySpec = options(&spec, "a replay")?;
    promise(env, move || {
        let agent = AgentWindow::new(spec.model, spec.context_length, 0);
        text_of(&(host.host).replay(document, &agent, spec.engine.as_deref())?)
    })
}

/// Counts the tokens of a text as the model's tokenizer does.
#[napi]
pub fn count_tokens(text: String, model: String) -> u32 {
    let count = TokenCounter::for_model(&model).count_text(&text);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Asks the call of a session that is in progress to stop. Its model calls fail, and it ends as if
/// the model had failed. Does nothing if the session is closed.
#[napi]
pub fn session_cancel(session: u32) {
    if let Ok(cell) = lock(&SESSIONS).get(session) {
        cell.canceller.cancel();
    }
}

/// Makes a call of a session. The result is JSON text. If another call of the session is in
/// progress, this one waits for it. The promise is rejected if the session is closed.
#[napi]
pub fn session_call(env: &Env, session: u32, call: String) -> napi::Result<Object<'_>> {
    let call: SessionCall = options(&call, "the call")?;
    let cell = lock(&SESSIONS).get(session)?;
    promise(env, move || {
        let mut open = lock(&cell.session);
        if let SessionCall::Close = call {
            // Before the session ends, so that the number is free even if the engine fails then.
            lock(&SESSIONS).release(session);
            if let Some(session) = open.take() {
                session.end()?;
            }
            return Ok("null".to_owned());
        }
        let closed = || Failure::other("the session is closed: open it again");
        let session = open.as_mut().ok_or_else(closed)?;
        // A cancel ends the call in progress. Without this, it would end every later one too.
        drop(session.canceller());
        made(call, session, cell.format)
    })
}

/// Makes a call of an open session and writes its result as JSON text, which is `null` if the call
/// has no result.
fn made(
    call: SessionCall,
    session: &mut contexture::Session,
    format: Format,
) -> Result<String, Failure> {
    match call {
        SessionCall::Turn { body, options } => turned(session, format, &body, options),
        SessionCall::Answer { items, usage } => {
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            let usage = usage.as_ref().map(formats::reported_usage).transpose();
            session.answer(&items, usage.map_err(Failure::format)?.as_ref())?;
            Ok("null".to_owned())
        }
        SessionCall::Usage { usage } => {
            session.update_usage(&formats::reported_usage(&usage).map_err(Failure::format)?);
            Ok("null".to_owned())
        }
        SessionCall::Preflight { tokens } => {
            let decision = session.preflight(tokens)?;
            text_of(&DecisionReport::from(&decision))
        }
        SessionCall::SetModel {
            model,
            context_length,
            max_output_tokens,
        } => {
            session.set_model(AgentWindow::new(model, context_length, max_output_tokens))?;
            Ok("null".to_owned())
        }
        SessionCall::Tools => Ok(formats::tool_list(&session.tools()?, Format::OpenAiChat)),
        SessionCall::CallTool { name, arguments } => {
            let answer = session.call_tool(ToolCall::new(name, arguments));
            text_of(&answer.map_err(|error| match error {
                SessionError::Call(call) => Failure::tool(call),
                error => error.into(),
            })?)
        }
        SessionCall::Pin { words } => {
            session.pin(&words)?;
            Ok("null".to_owned())
        }
        SessionCall::Unpin { words } => {
            session.unpin(&words)?;
            Ok("null".to_owned())
        }
        SessionCall::Status => text_of(&session.report()?),
        SessionCall::Engine => text_of(session.engine().name()),
        SessionCall::Reset => {
            session.reset()?;
            Ok("null".to_owned())
        }
        SessionCall::Close => Ok("null".to_owned()),
    }
}

/// One message of a turn's result: kept, changed, or added by the host. Indexes count all of the
/// caller's messages, the system prompt included if it is one of them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Place {
    Kept(usize),
    Changed(usize, Box<RawValue>),
    Added(Box<RawValue>),
}

/// The result of a turn. The body is missing if it is the one that was given.
#[derive(Serialize)]
struct TurnResult {
    changed: bool,
    body: Option<String>,
    places: Vec<Place>,
    report: TurnReport,
}

/// Makes a turn and describes its result in the caller's own messages. If a message is kept, only
/// its index is returned, so that JavaScript can return the very object that it was given.
fn turned(
    session: &mut contexture::Session,
    format: Format,
    body: &str,
    spec: TurnSpec,
) -> Result<String, Failure> {
    let options = TurnOptions::default()
        .compact(spec.compact)
        .focus(spec.focus)
        .memory(spec.memory)
        .fixed_tokens(spec.fixed_tokens)
        .keep_from(spec.keep_from);
    let mut turn = session.turn_with(body, Some(format), &options)?;
    let raw = |text: String| RawValue::from_string(text).map_err(Failure::format);
    let places = turn.take_items().into_iter().map(|item| {
        Ok(match item {
            BodyMessage::Kept(at) => Place::Kept(at),
            BodyMessage::Changed(at, json) => Place::Changed(at, raw(json)?),
            BodyMessage::Added(json) => Place::Added(raw(json)?),
        })
    });
    let places = places.collect::<Result<_, Failure>>()?;
    let report = turn.report(session.take_warnings());
    let changed = *turn.body != *body;
    let sent = changed.then(|| turn.body.into_owned());
    text_of(&TurnResult {
        changed,
        body: sent,
        places,
        report,
    })
}
