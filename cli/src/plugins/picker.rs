//! `contexture plugins` at a terminal: a dialog that chooses the context engine.
//!
//! [`run`] shows two lists, first the kind of plugin and then the engines, with the current one
//! selected. The choice is written into the config file as `context.engine`.
//!
//! Only this one value of the file changes, its comments and everything else stay, see
//! `contexture::config::with_text`. If the file is written in a way that does not allow this, the
//! user is told which line to write. An engine that cannot run is listed with its problem but
//! cannot be chosen.

use std::fmt;
use std::path::Path;

use contexture_engine_api::make_private_folder;
use inquire::{InquireError, Select};

use crate::engines::{self, EngineOption};
use crate::error::CliError;
use crate::terminal::one_line;
use crate::{Global, OK, output, start};
use contexture::config::with_text;

/// The number of characters of a description that are shown, so that an entry fits on a line.
const SHOWN_WORDS: usize = 70;

impl fmt::Display for EngineOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.problem.as_ref().unwrap_or(&self.description);
        write!(
            f,
            "{:<20} {:<10}  {}",
            self.name,
            self.source,
            one_line(words, SHOWN_WORDS)
        )
    }
}

/// Shows the dialog and writes the choice. If the user cancels, nothing changes and the exit code
/// is 0.
pub(crate) fn run(global: &Global) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let now = loaded.config.context.engine.clone();
    let provider = format!("Context Engine ({now})");
    let Some(_) = chosen(Select::new("Provider Plugins", vec![provider]))? else {
        return Ok(OK);
    };
    let choices = engines::choices(&loaded)?;
    let at = choices
        .iter()
        .position(|choice| choice.name == now)
        .unwrap_or(0);
    let Some(choice) = chosen(Select::new("Context Engine", choices).with_starting_cursor(at))?
    else {
        return Ok(OK);
    };
    if let Some(problem) = choice.problem {
        return Err(CliError::usage(
            format!("`{}` cannot run: {problem}", choice.name),
            "fix that first; the configuration is unchanged",
        ));
    }
    let path = loaded
        .path
        .clone()
        .unwrap_or_else(|| loaded.home.join("config.yaml"));
    write(&path, &choice.name)?;
    output::print(&format!(
        "context.engine is now {}, in {}\n",
        choice.name,
        path.display()
    ))?;
    Ok(OK)
}

/// Shows one list and returns the choice. None if the user cancels.
fn chosen<T: fmt::Display>(select: Select<'_, T>) -> Result<Option<T>, CliError> {
    match select.with_page_size(15).prompt() {
        Ok(chosen) => Ok(Some(chosen)),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(None),
        Err(error) => Err(CliError::usage(
            format!("nothing could be chosen: {error}"),
            "write `engine: NAME` under `context:` into config.yaml",
        )),
    }
}

/// Writes the name of the engine into the config file and leaves everything else in it unchanged.
/// The file is created if it does not exist.
fn write(path: &Path, engine: &str) -> Result<(), CliError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(source) => {
            let input = path.display().to_string();
            return Err(CliError::Read { input, source });
        }
    };
    let changed = with_text(&text, &["context", "engine"], engine).ok_or_else(|| {
        CliError::usage(
            format!(
                "{} cannot be changed without changing more than `context.engine`",
                path.display()
            ),
            format!("write `engine: {engine}` under `context:` in it yourself"),
        )
    })?;
    // Without a config file, the home directory may not exist either.
    if let Some(folder) = path.parent().filter(|_| text.is_empty()) {
        let failed = |source| CliError::Write {
            path: path.to_owned(),
            source,
        };
        make_private_folder(folder).map_err(failed)?;
    }
    output::write_file(path, &changed)
}
