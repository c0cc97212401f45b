//! `contexture plugins` at a terminal: Provider Plugins → Context Engine, and the choice is written into config.yaml.

use std::fmt;
use std::path::Path;

use contexture_engine_api::make_private_folder;
use inquire::{InquireError, Select};

use crate::engines::{self, EngineChoice};
use crate::error::CliError;
use crate::terminal::one_line;
use crate::{Global, OK, output, setup};
use contexture::config::with_text;

/// How much of a description is shown, in characters.
const SHOWN_WORDS: usize = 70;

impl fmt::Display for EngineChoice {
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

pub(crate) fn run(global: &Global) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
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
            "mend that first; the configuration is as it was",
        ));
    }
    let path = loaded
        .path
        .clone()
        .unwrap_or_else(|| loaded.home.join("config.yaml"));
    write(&path, &choice.name)?;
    output::print(&format!(
        "context.engine is {} now, in {}\n",
        choice.name,
        path.display()
    ))?;
    Ok(OK)
}

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

/// Names the engine in the config file, and leaves all else in it as it was.
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
    if let Some(folder) = path.parent().filter(|_| text.is_empty()) {
        let failed = |source| CliError::Write {
            path: path.to_owned(),
            source,
        };
        make_private_folder(folder).map_err(failed)?;
    }
    output::write_file(path, &changed)
}
