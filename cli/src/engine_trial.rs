//! One engine, opened over a home that is thrown away: its status, and what it makes of a conversation.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use contexture_engine_api::Decision;
use serde_json::Value;

use crate::error::{CliError, Lines};
use crate::figures::{counted, grouped};
use crate::{Global, OK, input, output, setup, summary, terminal, window};
use contexture::config::{Loaded, OnFailure};
use contexture::engines::OpenError;
use contexture::providers::{NoModel, Resolved, configured_client};
use contexture::replay::Stage;
use contexture::session::{
    AgentWindow, BackgroundBy, Session, SessionError, SessionOptions, TurnOptions,
};

/// The status of a new session of an engine.
///
/// # Errors
/// Why there is none, in words.
pub(crate) fn status(loaded: &Loaded, engine: &str) -> Result<Value, String> {
    let client = configured_client(&loaded.config, Resolved::NoModel(NoModel::Offline));
    let stage =
        Stage::new(setup::patient(loaded.clone()), client).map_err(|error| error.to_string())?;
    let agent = window::choose(None, None, None, &loaded.config.model).agent;
    let mut session = open(&stage, engine, agent).map_err(|error| error.to_string())?;
    let status = session.status().map_err(|error| error.to_string());
    // What keeps it from ending says nothing about its status.
    let _ = session.end();
    status
}

fn open(stage: &Stage, engine: &str, agent: AgentWindow) -> Result<Session, SessionError> {
    let options = SessionOptions {
        engine: Some(engine.to_owned()),
        background: BackgroundBy::Embedder,
        ..SessionOptions::default()
    };
    Session::open(stage.engines(), None, "trial", agent, options)
}

/// Shows what an engine does with a conversation: its decision, compaction, view, background calls and status.
pub(crate) fn run(
    global: &Global,
    engine: &str,
    file: &Path,
    context_length: Option<u64>,
) -> Result<u8, CliError> {
    let mut loaded = setup::patient(setup::load_config(global)?);
    // What is named on the command line is what runs.
    loaded.config.context.on_failure = OnFailure::Fail;
    let client = setup::model_client(&loaded.config, global.offline, None)?;
    let mut read = input::read(file, None, false)?;
    input::select(&mut read, Some(1))?;
    let conversation = Arc::new(read.conversations.swap_remove(0));
    let chosen = window::choose(
        context_length,
        None,
        conversation.model(),
        &loaded.config.model,
    );
    for note in &chosen.notes {
        terminal::say(&format!("note: {note}\n"));
    }
    let stage = Stage::new(loaded, client).map_err(CliError::Stage)?;
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
                "this request shows a view of {} tokens, where the window has {}",
                grouped(tokens),
                grouped(whole)
            ),
            (None, true) => format!(
                "this request shows the window as it is, with {} tokens",
                grouped(whole)
            ),
            (None, false) => "it has no views of its own".to_owned(),
        },
    );
    background(&mut session, &mut text)?;
    let status = session.status().map_err(failed)?;
    row(&mut text, "status", output::pretty(&status).trim_end());
    for warning in session.take_warnings() {
        terminal::say(&format!("{}\n", terminal::warning(&warning)));
    }
    session.end().map_err(failed)?;
    output::print(&terminal::visible(&text))?;
    Ok(OK)
}

/// The calls that it would like made, and their answers, which it is given.
fn background(session: &mut Session, text: &mut String) -> Result<(), CliError> {
    let work = session.background().map_err(failed)?;
    if work.is_empty() {
        row(text, "background", "it asks for nothing");
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

fn row(text: &mut String, label: &str, value: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{label:<13}{value}");
}

fn failed(error: SessionError) -> CliError {
    match error {
        SessionError::Open(error @ (OpenError::Resolve(_) | OpenError::Settings { .. })) => {
            CliError::of_open(error)
        }
        error => CliError::EngineFailed {
            because: "it is the one that is tried",
            reason: Lines(error.to_string()),
        },
    }
}
