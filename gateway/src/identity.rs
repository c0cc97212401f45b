//! Computes what a wire message says, as a number. The number is the same for every form in which a
//! client may send the message back.
//!
//! Clients reformat messages: they reorder members, add cache markers, or send a text as a list of
//! parts. Comparing bytes would then fail. [`IdentityCache::identify`] parses each message and
//! hashes its content as the host's formats define it. The results are cached by the bytes of the
//! message, because each request repeats the whole history.
//!
//! The identities are used to find a request's session in [`lineage`](crate::lineage) and the
//! places of hidden rounds in [`hidden`](crate::hidden).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use contexture::formats::{Format, parse_messages};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::gemini;
use crate::proof::{self, Fingerprint};

/// How many messages are cached. Beyond that the cache is emptied, and the messages are parsed
/// again.
const MAX_CACHED: usize = 500_000;

/// What a wire message says, reduced to the parts that are compared. It is small and copied freely,
/// because there is one for each message of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageIdentity {
    /// The hash of its meaning. If the message cannot be parsed, the hash of its bytes.
    pub(crate) identity: u64,
    /// The fingerprint of the model's answer in it. None for messages of the client.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Whether the model wrote it, even if it contains only thinking. It does if any message in it
    /// has the role `assistant`.
    pub(crate) is_answer: bool,
}

/// Computes and caches what messages say. Shared by all requests. The cache holds hashes only, no
/// text.
#[derive(Debug, Default)]
pub(crate) struct IdentityCache(Mutex<HashMap<u64, MessageIdentity>>);

impl IdentityCache {
    /// What each of these wire messages says, in the same order. Holds a lock over the cache while
    /// it parses.
    pub(crate) fn identify<T: AsRef<str>>(
        &self,
        format: Format,
        messages: &[T],
    ) -> Vec<MessageIdentity> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut one = |raw: &str| {
            // The same bytes may mean something else in another format.
            let bytes = xxh3_64(raw.as_bytes()) ^ format as u64;
            if let Some(identities) = known.get(&bytes) {
                return *identities;
            }
            if known.len() >= MAX_CACHED {
                known.clear();
            }
            let identities = read(format, raw).unwrap_or(MessageIdentity {
                identity: bytes,
                fingerprint: None,
                is_answer: false,
            });
            known.insert(bytes, identities);
            identities
        };
        messages.iter().map(|raw| one(raw.as_ref())).collect()
    }

    /// The identity of each of these wire messages, in the same order.
    pub(crate) fn hashes<T: AsRef<str>>(&self, format: Format, messages: &[T]) -> Vec<u64> {
        let identities = self.identify(format, messages).into_iter();
        identities.map(|message| message.identity).collect()
    }
}

/// Parses a message. None if it cannot be parsed or contains no message.
fn read(format: Format, raw: &str) -> Option<MessageIdentity> {
    let other = (format == Format::Gemini)
        .then(|| gemini::normalised(raw))
        .flatten();
    let messages = parse_messages(format, &[other.as_deref().unwrap_or(raw)]).ok()?;
    let mut hash = Xxh3::new();
    for message in &messages {
        hash.update(&message.identity.to_le_bytes());
    }
    (!messages.is_empty()).then(|| MessageIdentity {
        identity: hash.digest(),
        fingerprint: proof::fingerprint(&messages),
        is_answer: messages.iter().any(|message| message.role == "assistant"),
    })
}
