//! `contexture plugins` at a terminal: a dialog that chooses the context engine.
//!
//! [`run`] shows two lists, first the kind of plugin and then the engines, with the current one
//! selected. The choice is written into the config file as `context.engine`.
//!
//! Only this one value of the file changes, see [`config::set`]. An engine that cannot run is listed with its problem but
//! cannot be chosen.

use std::fmt;

use inquire::{InquireError, Select};

use crate::engines::{self, Listed, source_word};
use crate::error::CliError;
use crate::terminal::one_line;
use crate::{Global, OK, config, output, start};

/// The number of characters of a description that are shown, so that an entry fits on a line.
const SHOWN_WORDS: usize = 70;

/// One line of the list to choose from.
impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.problem.as_ref().unwrap_or(&self.description);
        write!(
            f,
            "{:<20} {:<10}  {}",
            self.name,
            source_word(self.source),
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
    let path = config::path_to_write(&loaded);
    config::set(&path, &["context", "engine"], &choice.name)?;
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
