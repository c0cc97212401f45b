//! Opens a single engine in a temporary home, to try it or to ask it for its status.
//!
//! [`status`] is what `contexture engines show` prints about a new session. [`run`] is `contexture
//! engines try`: it plays one conversation to the engine and reports each of its answers, from the
//! decision to the background calls.
//!
//! Both use a [`TempHome`], a home that is deleted afterwards, so an engine that stores sessions
//! does not keep anything of the trial. Unlike in a session, no other engine stands in if this one
//! fails, because the user wants to see the failure.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use contexture_engine_api::Decision;
use serde_json::Value;

use crate::error::CliError;
use crate::human::{counted, grouped};
use crate::{Global, OK, input, output, start, summary, terminal, window};
use contexture::config::{Loaded, OnFailure};
use contexture::providers::{NoModel, Resolved, configured_client};
use contexture::replay::TempHome;
use contexture::session::{
    AgentWindow, BackgroundBy, Session, SessionError, SessionOptions, TurnOptions,
};

/// Returns what an engine reports as the status of a new session. No model is available to it.
///
/// # Errors
/// Returns the reason in words if the engine cannot be opened or asked.
pub(crate) fn status(loaded: &Loaded, engine: &str) -> Result<Value, String> {
    let client = configured_client(&loaded.config, Resolved::NoModel(NoModel::Offline));
    let stage =
        TempHome::new(start::patient(loaded.clone()), client).map_err(|error| error.to_string())?;
    let agent = window::choose(None, None, None, &loaded.config).agent;
    let mut session = open(&stage, engine, agent).map_err(|error| error.to_string())?;
    let status = session.status().map_err(|error| error.to_string());
    // An error at its end says nothing about its status, so it is ignored.
    let _ = session.end();
    status
}

/// Opens a session with this engine on a stage. Background calls are left to the caller, so that
/// they can be shown.
fn open(stage: &TempHome, engine: &str, agent: AgentWindow) -> Result<Session, SessionError> {
    let options = SessionOptions::default()
        .engine(Some(engine.to_owned()))
        .background(BackgroundBy::Embedder);
    Session::open(stage.engines(), None, "trial", agent, options)
}

/// Plays a conversation to an engine and prints what it does: its decision, rewrite, compaction,
/// view, background calls and status.
///
/// If the file has several conversations, the first one is played. Fails if the engine fails at any
/// of this.
pub(crate) fn run(
    global: &Global,
    engine: &str,
    file: &Path,
    context_length: Option<u64>,
) -> Result<u8, CliError> {
    let mut loaded = start::patient(start::load_config(global)?);
    // A user who names an engine wants that one, so no other engine may stand in for it.
    loaded.config.context.on_failure = OnFailure::Fail;
    let client = start::model_client(&loaded.config, global.offline, None)?;
    let mut read = input::read(file, None, false)?;
    input::select(&mut read, Some(1))?;
    let conversation = Arc::new(read.conversations.swap_remove(0));
    let chosen = window::choose(context_length, None, conversation.model(), &loaded.config);
    for note in &chosen.notes {
        terminal::note(note);
    }
    let stage = TempHome::new(loaded, client).map_err(CliError::TempHome)?;
    let mut session = open(&stage, engine, chosen.agent).map_err(failed)?;
    let mut text = String::new();
    let about = session.engine().about().clone();
    row(
        &mut text,
        "engine",
        &format!("{engine} ({})", summary::source(session.engine().source())),
    );

    let turn = session.turn_over(&conversation, &TurnOptions::default(), &mut |_| {});
    let turn = turn.map_err(failed)?;
    row(
        &mut text,
        "decision",
        &match &turn.decision {
            Decision::Yes(why) => format!("compact: {why}"),
            other => format!("do not compact: {}", other.reason()),
        },
    );
    row(
        &mut text,
        "rewrite",
        &match (&turn.rewrite, about.rewrites) {
            (Some(report), _) => summary::brief(report, false),
            (None, true) => "nothing".to_owned(),
            (None, false) => "it does not rewrite".to_owned(),
        },
    );
    row(
        &mut text,
        "compress",
        &match &turn.compaction {
            Some(report) => summary::brief(report, false),
            None => "it was not due".to_owned(),
        },
    );
    let whole = session.window().message_tokens();
    row(
        &mut text,
        "select",
        &match (turn.selected, about.selects) {
            (Some(tokens), _) => format!(
                "this request sends a view of {} tokens; the window has {}",
                grouped(tokens),
                grouped(whole)
            ),
            (None, true) => format!(
                "this request sends the window unchanged, with {} tokens",
                grouped(whole)
            ),
            (None, false) => "it has no views of its own".to_owned(),
        },
    );
    background(&mut session, &mut text)?;
    let status = session.status().map_err(failed)?;
    row(&mut text, "status", output::pretty(&status).trim_end());
    for warning in session.take_warnings() {
        terminal::warn(&warning);
    }
    session.end().map_err(failed)?;
    output::print(&terminal::visible(&text))?;
    Ok(OK)
}

/// Makes the background calls that the engine asks for, gives it the answers, and appends a row for
/// each. If the model cannot be reached, the engine is given the failure as the answer.
fn background(session: &mut Session, text: &mut String) -> Result<(), CliError> {
    let work = session.background().map_err(failed)?;
    if work.is_empty() {
        row(text, "background", "it requests no calls");
        return Ok(());
    }
    let answers = work.run(&AtomicBool::new(false));
    row(text, "background", &counted(answers.len() as u64, "call"));
    for (call, answer) in &answers {
        let came = match answer {
            Ok(answer) => terminal::one_line(&answer.text, 80),
            Err(failure) => format!("no answer: {failure}"),
        };
        let about = counted(call.covers.len() as u64, "message");
        row(
            text,
            "",
            &format!("{} of {about}: {came}", call.request.purpose),
        );
    }
    session.background_done(answers).map_err(failed)
}

/// Appends a row with a label. An empty label continues the row above.
fn row(text: &mut String, label: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{label:<13}{value}");
}

fn failed(error: SessionError) -> CliError {
    CliError::of_session(error, "this command tries it alone")
}
