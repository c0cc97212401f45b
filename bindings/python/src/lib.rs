//! The native part of the Python package `contexture`: a thin layer over the host, which reads Python's messages and
//! says what became of them.

mod argument;
mod engine;
mod errors;
mod host;
mod session;
mod sqlite;
mod turn;
mod usage;
mod waiting;
mod walk;

use contexture::formats::{self, FormatError};
use contexture::replay::{self, ConversationReport, Prices, Recording, Report, Row, Stage};
use contexture::session::AgentWindow;
use contexture::tokens::TokenCounter;
use pyo3::prelude::*;

/// A shorter text, in bytes, is counted within a millisecond.
const SHORT: usize = 64 << 10;

/// The tokens of a text, as this model counts them.
#[pyfunction]
fn count_tokens(
    py: Python<'_>,
    text: &Bound<'_, PyAny>,
    model: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let text = argument::text(text, "text")?;
    let model = argument::text(model, "model")?;
    let is_short = text.len() < SHORT;
    let count = move || Ok(TokenCounter::for_model(&model).count_text(&text));
    match is_short {
        true => waiting::at_once(py, count),
        false => waiting::wait_for(py, || {}, count),
    }
}

/// Plays recorded conversations through an engine, and answers what they would have cost: a list of messages, a body,
/// or the text of any document that the host reads. Nothing is kept.
#[pyfunction]
#[pyo3(name = "replay", signature = (document, model, context_length, engine=None, home=None, config=None, offline=None),
       text_signature = "(document, model, context_length, engine=None, home=None, config=None, offline=False)")]
#[allow(clippy::too_many_arguments)] // The names are Python's.
fn play<'py>(
    py: Python<'py>,
    document: &Bound<'py, PyAny>,
    model: &Bound<'py, PyAny>,
    context_length: &Bound<'py, PyAny>,
    engine: Option<&Bound<'py, PyAny>>,
    home: Option<&Bound<'py, PyAny>>,
    config: Option<&Bound<'py, PyAny>>,
    offline: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let agent = AgentWindow {
        model: argument::text(model, "model")?,
        context_length: argument::whole(context_length, "context_length", 1)?,
        max_output_tokens: 0,
    };
    let engine = engine
        .map(|engine| argument::text(engine, "engine"))
        .transpose()?;
    let (home, config, offline) = host::place(home, config, offline)?;
    let text = match walk::document(document)? {
        Some(text) => text,
        None => walk::json(document)?,
    };
    let report = waiting::wait_for(
        py,
        || {},
        move || {
            let unreadable = |error: FormatError| errors::FormatError::new_err(error.to_string());
            let recordings = formats::read(text, None).map_err(unreadable)?;
            let host = host::OpenHost::of(home, config, offline, None)?;
            let engines = host.engines();
            let stage = Stage::new(engines.loaded().clone(), engines.client().clone())
                .map_err(|error| errors::ContextureError::new_err(error.to_string()))?;
            let ttl = engines.config().prompt_caching.cache_ttl;
            let prices = Prices::sonnet(ttl.at_first());
            let mut conversations = Vec::new();
            for (at, conversation) in recordings.into_iter().enumerate() {
                let recording = Recording::new(conversation, agent.clone());
                let none = replay::without_engine(&recording, ttl.at_first());
                let mut rows = vec![Row::new("none", None, none, None, &prices)];
                let played = replay::play(&recording, &stage, engine.as_deref(), &mut || {})
                    .map_err(errors::of_session)?;
                let mut row = Row::new(
                    played.engine,
                    Some(played.source),
                    played.prompts,
                    Some(played.work),
                    &prices,
                );
                row.warnings = played.warnings;
                rows.push(row);
                conversations.push(ConversationReport {
                    input: "document".to_owned(),
                    number: at + 1,
                    messages: recording.conversation().messages().len(),
                    requests: recording.requests().len(),
                    model: agent.model.clone(),
                    context_length: agent.context_length,
                    unseen_tokens: recording.unseen_tokens(),
                    scale: recording.scale(),
                    rows,
                });
            }
            serde_json::to_string(&Report::new(prices, ttl, conversations))
                .map_err(|error| errors::ContextureError::new_err(error.to_string()))
        },
    )?;
    walk::parse(py, &report)
}

/// Names the folder that `contexture-engine-host` is in.
#[pyfunction]
fn look_for_engine_host_in(folder: std::path::PathBuf) {
    contexture::engines::look_for_engine_host_in(folder);
}

/// The command line, with these arguments after the program's name. Answers its exit code.
#[pyfunction]
fn main(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> u8 {
    py.detach(|| {
        let program = std::ffi::OsString::from("contexture");
        contexture_cli::run_with(std::iter::once(program).chain(arguments))
    })
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    sqlite::tell_processes_apart();
    module.add_class::<host::Host>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<session::Decision>()?;
    module.add_class::<turn::Turn>()?;
    module.add_class::<turn::Kept>()?;
    module.add_class::<turn::Changed>()?;
    module.add_class::<turn::Summary>()?;
    module.add("ContextureError", py.get_type::<errors::ContextureError>())?;
    module.add("SessionInUse", py.get_type::<errors::SessionInUse>())?;
    module.add("ToolError", py.get_type::<errors::ToolError>())?;
    module.add("EngineFailed", py.get_type::<errors::EngineFailed>())?;
    module.add("SessionDiffers", py.get_type::<errors::SessionDiffers>())?;
    module.add("ArgumentError", errors::ArgumentError::class(py)?)?;
    waiting::add(module)?;
    module.add("FormatError", py.get_type::<errors::FormatError>())?;
    module.add_function(wrap_pyfunction!(count_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(play, module)?)?;
    module.add_function(wrap_pyfunction!(look_for_engine_host_in, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    engine::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
