//! Reading the conversations that a command is given.

use std::io::Read;
use std::path::Path;

use crate::error::CliError;
use contexture::formats::{self, Conversation, Format};

/// What was read, and what to call it in messages.
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) conversations: Vec<Conversation>,
}

/// Reads a document: a file, or with `-` stdin. With `strict` one that is damaged anywhere is refused.
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

/// Keeps the conversation that was asked for, where one was.
pub(crate) fn select(input: &mut Input, wanted: Option<usize>) -> Result<(), CliError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let count = input.conversations.len();
    if !(1..=count).contains(&wanted) {
        return Err(CliError::Select {
            input: input.name.clone(),
            wanted,
            count,
        });
    }
    input.conversations = vec![input.conversations.swap_remove(wanted - 1)];
    Ok(())
}
