//! Asks the user before a command does what concerns more than Contexture's own files.

use std::io::IsTerminal;

use inquire::{Confirm, InquireError};

use crate::error::CliError;

/// Asks the user at the terminal and returns the answer, which is no if the user cancels. With
/// `yes` nobody is asked. Fails if there is no terminal, because nobody could agree.
pub(crate) fn agreed(question: &str, yes: bool) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    let unasked = |why: String| CliError::usage(why, "check what is shown above, and add --yes");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unasked(
            "there is no terminal to ask for confirmation".to_owned(),
        ));
    }
    match Confirm::new(question).with_default(false).prompt() {
        Ok(agreed) => Ok(agreed),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(false),
        Err(error) => Err(unasked(format!("asking for confirmation failed: {error}"))),
    }
}
