//! The native part of the Python package `contexture`: a thin layer over the host.
//!
//! It reads Python's messages, passes them to the host as JSON and reports what happened to each of
//! them. The Python files of the package only add names, types and the `asyncio` variants. Read
//! `host` and `session` first, they have the two classes that most callers use. `turn` has the
//! result of a turn, and `engine` registers engines that are written in Python.
//!
//! Three modules serve the others: `walk` converts between Python values and JSON, `argument`
//! checks arguments, and `waiting` makes calls that Ctrl-C can interrupt. This file has the
//! functions without an object, such as `replay` and the command line.

mod argument;
mod engine;
mod errors;
mod host;
mod session;
mod sqlite;
mod turn;
mod waiting;
mod walk;

use contexture::session::AgentWindow;
use contexture::tokens::TokenCounter;
use pyo3::prelude::*;

/// The longest text, in bytes, that is counted on the calling thread. It takes less than a
/// millisecond, so Ctrl-C need not interrupt it.
const SHORT: usize = 64 << 10;

/// Counts the tokens of a text as the model's tokenizer does. If the model is unknown, the count is
/// an estimate.
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

/// Plays recorded conversations through an engine and returns what they would have cost. The
/// document is a list of messages, a body, or the text of any document that the host reads. Nothing
/// is stored. Without `engine`, the configured one is used.
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
    let agent = AgentWindow::new(
        argument::text(model, "model")?,
        argument::whole(context_length, "context_length", 1)?,
        0,
    );
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
        // A replay cannot be cancelled. After Ctrl-C it runs to its end in its temporary home, and
        // the report is dropped.
        || {},
        move || {
            let open = host::OpenHost::of(home, config, offline, None)?;
            let report = open.host.replay(text, &agent, engine.as_deref());
            serde_json::to_string(&report.map_err(errors::of_host)?).map_err(errors::of_json)
        },
    )?;
    walk::parse(py, &report)
}

/// Sets the folder in which `contexture-engine-host` is, the program that runs engines in their own
/// processes. The package contains it, so it need not be on the PATH.
#[pyfunction]
fn look_for_engine_host_in(folder: std::path::PathBuf) {
    contexture::engines::look_for_engine_host_in(folder);
}

/// Runs the command line with these arguments, which do not include the program's name. Others start
/// it with `command`. Returns the exit code.
#[pyfunction]
fn main(py: Python<'_>, command: Vec<String>, arguments: Vec<std::ffi::OsString>) -> u8 {
    // The command may be a server. Other threads of Python go on meanwhile.
    py.detach(|| {
        let program = std::ffi::OsString::from("contexture");
        contexture_cli::run_with(Some(command), std::iter::once(program).chain(arguments))
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
