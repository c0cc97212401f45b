//! Asks the user before a command does what concerns more than Contexture's own files.

use std::io::IsTerminal;

use inquire::{Confirm, InquireError};

use crate::error::CliError;

/// Asks the user at the terminal and returns the answer, which is no if the user cancels or presses
/// Enter alone. If nobody can be asked, the error is what `unasked` makes of the reason.
pub(crate) fn asked(
    question: &str,
    unasked: impl Fn(String) -> CliError,
) -> Result<bool, CliError> {
    // The question is written to stderr and answered on stdin. If one of them is redirected, nobody
    // could answer.
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        let why = "there is no terminal to ask for confirmation";
        return Err(unasked(why.to_owned()));
    }
    match Confirm::new(question).with_default(false).prompt() {
        Ok(agreed) => Ok(agreed),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(false),
        Err(error) => Err(unasked(format!("asking for confirmation failed: {error}"))),
    }
}

/// Asks the user about what was just shown. With `yes` nobody is asked.
pub(crate) fn agreed(question: &str, yes: bool) -> Result<bool, CliError> {
    let unasked = |why| CliError::usage(why, "check what is shown above, and add --yes");
    match yes {
        true => Ok(true),
        false => asked(question, unasked),
    }
}
