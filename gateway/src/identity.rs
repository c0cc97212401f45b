//! What a wire message says, as a number: the same for every form that a client may give it on its way back.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use contexture::formats::{Format, parse_messages};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// How many are remembered; then they are found out again.
const MOST: usize = 500_000;

/// Finds out what messages say, and remembers it by their bytes.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<HashMap<u64, u64>>);

impl Identities {
    /// Of each of these wire messages.
    pub(crate) fn of<T: AsRef<str>>(&self, format: Format, messages: &[T]) -> Vec<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut one = |raw: &str| {
            let bytes = xxh3_64(raw.as_bytes()) ^ format as u64;
            if let Some(identity) = known.get(&bytes) {
                return *identity;
            }
            if known.len() >= MOST {
                known.clear();
            }
            let identity = read(format, raw).unwrap_or(bytes);
            known.insert(bytes, identity);
            identity
        };
        messages.iter().map(|raw| one(raw.as_ref())).collect()
    }
}

fn read(format: Format, raw: &str) -> Option<u64> {
    let messages = parse_messages(format, &[raw]).ok()?;
    let mut hash = Xxh3::new();
    for message in &messages {
        hash.update(&message.identity.to_le_bytes());
    }
    (!messages.is_empty()).then(|| hash.digest())
}
