//! What a wire message says, as a number: the same for every form that a client may give it on its way back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use contexture::formats::{Format, parse_messages};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::proof::{self, Mark};

/// How many are remembered; then they are found out again.
const MOST: usize = 500_000;

/// What a wire message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) identity: u64,
    /// Of an answer of the model.
    pub(crate) mark: Option<Mark>,
    /// Whether the model says it, be it only that it thinks.
    pub(crate) is_answer: bool,
}

/// Finds out what messages say, and remembers it by their bytes.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<HashMap<u64, Said>>);

impl Identities {
    /// What each of these wire messages says.
    pub(crate) fn said<T: AsRef<str>>(&self, format: Format, messages: &[T]) -> Vec<Said> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut one = |raw: &str| {
            let bytes = xxh3_64(raw.as_bytes()) ^ format as u64;
            if let Some(said) = known.get(&bytes) {
                return *said;
            }
            if known.len() >= MOST {
                known.clear();
            }
            let said = read(format, raw).unwrap_or(Said {
                identity: bytes,
                mark: None,
                is_answer: false,
            });
            known.insert(bytes, said);
            said
        };
        messages.iter().map(|raw| one(raw.as_ref())).collect()
    }

    /// The identity of each of these wire messages.
    pub(crate) fn of<T: AsRef<str>>(&self, format: Format, messages: &[T]) -> Vec<u64> {
        let said = self.said(format, messages).into_iter();
        said.map(|said| said.identity).collect()
    }
}

fn read(format: Format, raw: &str) -> Option<Said> {
    let messages = parse_messages(format, &[raw]).ok()?;
    let mut hash = Xxh3::new();
    for message in &messages {
        hash.update(&message.identity.to_le_bytes());
    }
    (!messages.is_empty()).then(|| Said {
        identity: hash.digest(),
        mark: proof::mark(&messages),
        is_answer: messages.iter().any(|message| message.role == "assistant"),
    })
}
