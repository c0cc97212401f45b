//! The native part of the Python package `contexture`: a thin layer over the host, which reads Python's messages and
//! says what became of them.

mod engine;
mod errors;
mod host;
mod session;
mod turn;
mod usage;
mod walk;

use contexture::formats::{self, FormatError};
use contexture::replay::{self, ConversationReport, Prices, Recording, Report, Row, Stage};
use contexture::session::AgentWindow;
use contexture::tokens::TokenCounter;
use pyo3::prelude::*;

/// The tokens of a text, as this model counts them.
#[pyfunction]
fn count_tokens(py: Python<'_>, text: &str, model: &str) -> u64 {
    py.detach(|| TokenCounter::for_model(model).count_text(text))
}

/// Plays recorded conversations through an engine, and answers what they would have cost: a list of messages, a body,
/// or the text of any document that the host reads. Nothing is kept.
#[pyfunction]
#[pyo3(name = "replay", signature = (document, model, context_length, engine=None, home=None, config=None, offline=false))]
#[allow(clippy::too_many_arguments)] // The names are Python's.
fn play<'py>(
    py: Python<'py>,
    document: &Bound<'py, PyAny>,
    model: &str,
    context_length: u64,
    engine: Option<String>,
    home: Option<std::path::PathBuf>,
    config: Option<std::path::PathBuf>,
    offline: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let text = match walk::document(document)? {
        Some(text) => text,
        None => {
            let mut text = String::new();
            walk::write(&mut text, document, 1)?;
            text
        }
    };
    let agent = AgentWindow {
        model: model.to_owned(),
        context_length,
        max_output_tokens: 0,
    };
    let report = py.detach(|| {
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
                context_length,
                unseen_tokens: recording.unseen_tokens(),
                rows,
            });
        }
        serde_json::to_string(&Report::new(prices, ttl, conversations))
            .map_err(|error| errors::ContextureError::new_err(error.to_string()))
    })?;
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
    module.add("FormatError", py.get_type::<errors::FormatError>())?;
    module.add_function(wrap_pyfunction!(count_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(play, module)?)?;
    module.add_function(wrap_pyfunction!(look_for_engine_host_in, module)?)?;
    module.add_function(wrap_pyfunction!(main, module)?)?;
    engine::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
