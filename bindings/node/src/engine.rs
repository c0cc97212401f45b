//! Makes JavaScript classes engines, and JavaScript objects models.
//!
//! The host calls an engine on a thread of its own, and JavaScript runs on Node's. So a call is
//! handed to Node's thread with a number ([`ask`]), and the calling thread waits until JavaScript
//! answers that number with [`answer_call`], at once or when a promise is fulfilled. Node's thread
//! never waits for the host, so the two cannot wait for each other.
//!
//! If JavaScript never answers, the host gives the call up at its deadline, as it does with any
//! engine that hangs. If the method throws, the error reaches the host with its class and its
//! message.
//!
//! The methods are those of the engine protocol. `docs/engine-protocol.md` describes them for
//! programs, and the package's JavaScript passes parameters in the same order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use contexture::engines::{RegisterError, register_context_engine};
use contexture::lock;
use contexture::providers::LentModel;
use contexture_engine_api::protocol::{
    Carrier, Open, RemoteEngine, serve_services, takes_messages, write,
};
use contexture_engine_api::{
    ContextEngine, EngineDefinition, EngineError, FailureKind, MessageView, ModelAnswer,
    ModelFailure, ModelRequest, OpenRequest, OwnedMessage, Services, safe_cut as cut_of,
    with_views,
};
use contexture_testkit::conformance::{Checking, Subject, check_engine as play};
use napi::bindgen_prelude::Object;
use napi::threadsafe_function::{
    ThreadsafeFunction, ThreadsafeFunctionCallMode, UnknownReturnValue,
};
use napi::{Env, Status};
use napi_derive::napi;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Failure, Handles, json as text_of, promise};

/// A function of JavaScript that takes a call as JSON text. It does not keep Node alive: the promise
/// of the call that leads here does.
pub(crate) type Dispatcher =
    ThreadsafeFunction<String, UnknownReturnValue, String, Status, false, true>;

/// What JavaScript answers: JSON text, or the class and the text of an error.
type JsAnswer = Result<String, (String, String)>;

/// The calls that JavaScript has not answered yet, by their numbers.
static CALLS: Mutex<Option<HashMap<u32, Sender<JsAnswer>>>> = Mutex::new(None);
/// The number of the next call. It begins again after four billion calls, when the first ones were
/// answered long ago.
static LAST_CALL: AtomicU32 = AtomicU32::new(0);

/// The services that the engines of open sessions were lent, by the number of the engine. If an
/// engine keeps its services for longer than its session, a call of them fails.
static LENT: Mutex<Handles<Services>> = Mutex::new(Handles::new());

/// Calls JavaScript and waits for its answer. It must not run on Node's thread, or it would wait
/// for itself.
///
/// # Errors
/// Returns what JavaScript threw. Returns [`EngineError::Gone`] if Node's thread does not take the
/// call, as when it ends.
fn ask(dispatch: &Dispatcher, mut call: Value) -> Result<String, EngineError> {
    let gone = || EngineError::Gone("the JavaScript thread has ended".to_owned());
    let number = LAST_CALL.fetch_add(1, Ordering::Relaxed);
    let (answer_to, answer) = channel();
    // Before the call is handed over, since JavaScript may answer before this thread goes on.
    lock(&CALLS)
        .get_or_insert_default()
        .insert(number, answer_to);
    call["call"] = json!(number);
    let status = dispatch.call(call.to_string(), ThreadsafeFunctionCallMode::NonBlocking);
    if status != Status::Ok {
        lock(&CALLS).get_or_insert_default().remove(&number);
        return Err(gone());
    }
    answer.recv().map_err(|_| gone())?.map_err(|(class, text)| {
        match class.as_str() {
            "UnknownMethod" => EngineError::UnknownMethod(text),
            // What an argument of the wrong kind throws.
            "TypeError" | "RangeError" | "SyntaxError" => EngineError::InvalidInput(text),
            _ => EngineError::Other(text),
        }
    })
}

/// Answers a call that a dispatcher was given: with JSON text, or with the class and the text of an
/// error if `result` is missing. Does nothing if there is no such call, or if it was answered
/// already.
#[napi]
pub fn answer_call(call: u32, result: Option<String>, class: Option<String>, text: Option<String>) {
    let waits = lock(&CALLS).get_or_insert_default().remove(&call);
    if let Some(waits) = waits {
        let answer = result.ok_or_else(|| (class.unwrap_or_default(), text.unwrap_or_default()));
        // The host may have given the call up.
        let _ = waits.send(answer);
    }
}

/// The engine of one session: an object of JavaScript, known there by a number.
struct JsObject {
    dispatch: Arc<Dispatcher>,
    number: u32,
}

impl Carrier for JsObject {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let messages =
            takes_messages(method).then(|| messages.iter().map(OwnedMessage::from).collect());
        let call = JsCall {
            object: self.number,
            method,
            argument,
            messages,
        };
        let call = serde_json::to_value(call);
        ask(
            &self.dispatch,
            call.map_err(|error| EngineError::Protocol(error.to_string()))?,
        )
    }

    // The calls are made in this process.
    fn joins_calls(&self) -> bool {
        false
    }
}

/// A call as the dispatcher of the package's JavaScript reads it. If an engine has no method of
/// this name, JavaScript throws `UnknownMethod`, and the host takes its own default.
#[derive(Serialize)]
struct JsCall<'a> {
    object: u32,
    method: &'a str,
    argument: &'a str,
    /// None if the method takes no messages. Otherwise they are its first parameter.
    messages: Option<Vec<OwnedMessage>>,
}

impl Drop for JsObject {
    fn drop(&mut self) {
        // Without this, the session's services would live as long as the process.
        lock(&LENT).release(self.number);
        // Nobody waits for the answer.
        let call =
            json!({"object": self.number, "method": "drop", "argument": "null", "messages": []});
        let mode = ThreadsafeFunctionCallMode::NonBlocking;
        self.dispatch.call(call.to_string(), mode);
    }
}

/// Defines an engine whose sessions each open an object of a JavaScript class.
fn definition(
    name: &str,
    version: &str,
    description: &str,
    dispatch: Dispatcher,
) -> EngineDefinition {
    let dispatch = Arc::new(dispatch);
    let open = move |request: &OpenRequest<'_>| -> Result<Box<dyn ContextEngine>, EngineError> {
        let services = Arc::new(request.services.clone());
        let object = JsObject {
            dispatch: Arc::clone(&dispatch),
            number: lock(&LENT).add(services),
        };
        object.call("open", &write(&Open::of(request))?, &[])?;
        Ok(Box::new(RemoteEngine(object)))
    };
    EngineDefinition::at_run_time(name, version, description, "JavaScript", open)
}

/// Registers a class as the engine `name`. Hosts that are opened afterwards have it, and those that
/// are open do not. Throws if the name is not valid or taken.
#[napi]
pub fn register_engine(
    name: String,
    version: String,
    description: String,
    dispatch: Dispatcher,
) -> napi::Result<()> {
    let registered = register_context_engine(definition(&name, &version, &description, dispatch));
    Ok(registered.map_err(|error| match error {
        RegisterError::Taken(taken) => Failure::other(taken),
        error => Failure::argument(error),
    })?)
}

/// Calls a service of the host for the engine of this number. The argument is JSON text. The
/// promise is rejected if the engine's session has ended, or if the service fails.
#[napi]
pub fn call_service(
    env: &Env,
    object: u32,
    service: String,
    argument: String,
) -> napi::Result<Object<'_>> {
    let services = lock(&LENT).get(object);
    promise(env, move || {
        let answer = serve_services(services?.host().as_ref(), &service, &argument);
        answer.map_err(Failure::other)
    })
}

/// Plays the conformance tests to a class, with this many generated conversations. Returns whether
/// every row passed, and the table of results.
#[napi]
pub fn check_engine(
    env: &Env,
    name: String,
    conversations: u32,
    dispatch: Dispatcher,
) -> napi::Result<Object<'_>> {
    promise(env, move || {
        let subject = Subject::from(&definition(&name, "", "", dispatch));
        let mut checking = Checking::default();
        checking.generated = u64::from(conversations);
        let report = play(subject, checking);
        text_of(&(report.broken().next().is_none(), report.to_string()))
    })
}

/// Returns the largest index at or below `index` at which these messages can be cut without separating
/// a tool call from its results. The messages have the form that an engine receives.
#[napi]
pub fn safe_cut(messages: String, index: u32) -> napi::Result<u32> {
    let owned: Vec<OwnedMessage> = serde_json::from_str(&messages).map_err(|error| {
        Failure::format(format!(
            "the messages do not have the form that an engine receives: {error}"
        ))
    })?;
    let cut = with_views(&owned, |views| cut_of(views, index as usize));
    Ok(u32::try_from(cut).unwrap_or(u32::MAX))
}

/// Makes a model of an object of JavaScript, whose `complete` the dispatcher calls. If `complete`
/// throws, the model counts as overloaded, so the host may ask again. If it answers without text,
/// or with something else than text, the call has failed.
pub(crate) fn lent_model(
    name: String,
    context_length: Option<u64>,
    dispatch: Arc<Dispatcher>,
) -> LentModel {
    let answering = name.clone();
    let complete = move |request: &ModelRequest| {
        let material = json!({
            "system": request.system,
            "prompt": request.prompt,
            "maxTokens": request.max_tokens,
        });
        let failed = |kind, text: String| Err(ModelFailure::new(kind, text));
        match ask(&dispatch, material) {
            Err(EngineError::Gone(text)) => failed(FailureKind::Cancelled, text),
            Err(EngineError::Other(text) | EngineError::InvalidInput(text)) => {
                failed(FailureKind::Overloaded, text)
            }
            Err(error) => failed(FailureKind::Other, error.to_string()),
            Ok(answer) => match serde_json::from_str::<String>(&answer) {
                Ok(text) if text.trim().is_empty() => failed(
                    FailureKind::Empty,
                    format!("{answering} answered without text"),
                ),
                Ok(text) => Ok(ModelAnswer::new(text, answering.as_str())),
                Err(_) => failed(
                    FailureKind::Other,
                    format!("{answering} answered with something else than text"),
                ),
            },
        }
    };
    LentModel {
        name,
        context_length,
        ask: Arc::new(complete),
    }
}
