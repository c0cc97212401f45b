//! Reads the conversations that a command is given.
//!
//! [`read`] reads a file or stdin and returns an [`Input`] with all conversations of the document.
//! If the user asked for one of them, [`select`] drops the others. Errors name the input as the
//! user wrote it.
//!
//! The formats are detected and parsed by `contexture::formats`. A session log with lines that
//! cannot be read is accepted unless the user passes `--strict`, since the end of a log is often
//! cut off.

use std::io::{ErrorKind, Read};
use std::path::Path;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::error::CliError;
use crate::human::counted;
use contexture::formats::{self, Conversation, Format};

/// The conversations that were read, and the name of their source for messages.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) conversations: Vec<Conversation>,
}

impl Input {
    /// Fails if there are several conversations but `holder`, such as "a session", can hold only
    /// one.
    pub(crate) fn require_one_for(&self, holder: &str) -> Result<(), CliError> {
        match self.conversations.len() {
            0 | 1 => Ok(()),
            count => Err(CliError::usage(
                format!(
                    "{} holds {}, but {holder} holds one",
                    self.name,
                    counted(count as u64, "conversation")
                ),
                "choose one with --select",
            )),
        }
    }
}

/// Reads the name of a format from the command line.
pub(crate) fn format_parser() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// Reads a document from a file, or from stdin if the path is `-`. The format is detected unless it
/// is given. With `strict`, a document that is damaged anywhere is refused. Fails if the document
/// has no conversation.
pub(crate) fn read(path: &Path, format: Option<Format>, strict: bool) -> Result<Input, CliError> {
    let (name, bytes) = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        ("stdin".to_owned(), read.map(|_| bytes))
    } else {
        (path.display().to_string(), std::fs::read(path))
    };
    let bytes = bytes.map_err(|source| CliError::Read {
        input: name.clone(),
        source,
    })?;
    let read = formats::read_bytes(bytes, format);
    let conversations = read.map_err(|source| CliError::of_format(name.clone(), source))?;
    // Without `--strict`, lines that cannot be read are left out, and each conversation has a
    // warning of it.
    let damage = conversations.iter().find_map(Conversation::damage);
    if let Some(damage) = damage.filter(|_| strict) {
        return Err(CliError::of_format(name, damage.clone()));
    }
    if conversations.is_empty() {
        return Err(CliError::NoConversation { input: name });
    }
    Ok(Input {
        name,
        conversations,
    })
}

/// Returns the text of a file, and `None` if it does not exist.
pub(crate) fn text_of(path: &Path) -> Result<Option<String>, CliError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::read(path)(error)),
    }
}

/// Keeps only the conversation with the number `wanted`, counted from 1. Fails if there is no such
/// number, and does nothing if it is None.
pub(crate) fn select(input: &mut Input, wanted: Option<usize>) -> Result<(), CliError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let count = input.conversations.len();
    if !(1..=count).contains(&wanted) {
        return Err(CliError::usage(
            format!(
                "there is no conversation {wanted}: {} holds {count}",
                input.name
            ),
            format!("--select takes a number from 1 to {count}"),
        ));
    }
    input.conversations = vec![input.conversations.swap_remove(wanted - 1)];
    Ok(())
}
