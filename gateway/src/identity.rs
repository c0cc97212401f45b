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
use std::sync::{Arc, Mutex};

use contexture::formats::{Format, parse_messages};
use contexture::lock;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::gemini;
use crate::proof::{self, Shown};

/// The most messages that are cached.
const MAX_CACHED: usize = 500_000;

/// What a wire message says, reduced to the parts that are compared. It is small, because there is
/// one for each message of each request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageIdentity {
    /// The hash of its meaning. If the message cannot be parsed, the hash of its bytes.
    pub(crate) identity: u64,
    /// The fingerprints of the model's answer in it. Shared, because each request copies the identities of
    /// all its messages.
    pub(crate) shown: Arc<Shown>,
    /// Whether the model wrote it, even if it contains only thinking. It does if any message in it
    /// has the role `assistant`.
    pub(crate) is_answer: bool,
}

/// Computes and caches what messages say. Shared by all requests. The cache holds hashes only, no
/// text.
#[derive(Debug, Default)]
pub(crate) struct IdentityCache(Mutex<Cached>);

/// What messages say, by the hashes of their bytes. If the newer half is full, the older one is
/// dropped, so messages that are still sent stay cached.
#[derive(Debug, Default)]
struct Cached {
    newer: HashMap<u64, MessageIdentity>,
    older: HashMap<u64, MessageIdentity>,
}

impl Cached {
    fn get(&mut self, bytes: u64) -> Option<MessageIdentity> {
        if let Some(message) = self.newer.get(&bytes) {
            return Some(message.clone());
        }
        let message = self.older.remove(&bytes)?;
        self.insert(bytes, message.clone());
        Some(message)
    }

    fn insert(&mut self, bytes: u64, message: MessageIdentity) {
        if self.newer.len() >= MAX_CACHED / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(bytes, message);
    }
}

impl IdentityCache {
    /// What each of these wire messages says, in the same order. Messages are hashed and parsed
    /// without a lock, because a history may have many megabytes and others use the cache meanwhile.
    pub(crate) fn identify<T: AsRef<str>>(
        &self,
        format: Format,
        messages: &[T],
    ) -> Vec<MessageIdentity> {
        // The same bytes may mean something else in another format.
        let hash = |raw: &T| xxh3_64(raw.as_ref().as_bytes()) ^ format as u64;
        let bytes: Vec<u64> = messages.iter().map(hash).collect();
        let known: Vec<Option<MessageIdentity>> = {
            let mut cached = lock(&self.0);
            bytes.iter().map(|bytes| cached.get(*bytes)).collect()
        };
        let mut parsed = Vec::new();
        let mut parse = |bytes: u64, raw: &T| {
            let message = read(format, raw.as_ref()).unwrap_or(MessageIdentity {
                identity: bytes,
                shown: Arc::default(),
                is_answer: false,
            });
            parsed.push((bytes, message.clone()));
            message
        };
        let all = known.into_iter().zip(bytes).zip(messages);
        let all = all
            .map(|((known, bytes), raw)| known.unwrap_or_else(|| parse(bytes, raw)))
            .collect();
        if !parsed.is_empty() {
            let mut cached = lock(&self.0);
            for (bytes, message) in parsed {
                cached.insert(bytes, message);
            }
        }
        all
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
        shown: Arc::new(proof::shown(&messages)),
        is_answer: messages.iter().any(|message| message.role == "assistant"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message that is only read while other requests can use the cache.
    struct Unlocked<'c>(&'c IdentityCache, String);

    impl AsRef<str> for Unlocked<'_> {
        fn as_ref(&self) -> &str {
            assert!(self.0.0.try_lock().is_ok(), "the cache is locked");
            &self.1
        }
    }

    #[test]
    fn messages_that_are_still_sent_stay_cached() {
        let message = MessageIdentity {
            identity: 1,
            shown: Arc::default(),
            is_answer: false,
        };
        let mut cached = Cached::default();
        cached.insert(0, message.clone());
        for bytes in 1..=MAX_CACHED as u64 {
            cached.insert(bytes, message.clone());
            assert!(bytes % 1_000 > 0 || cached.get(0).is_some(), "{bytes}");
        }
        assert!(cached.newer.len() + cached.older.len() <= MAX_CACHED);
        assert_eq!(cached.get(1), None);
    }

    #[test]
    fn no_request_waits_while_messages_of_another_are_parsed() {
        let cache = IdentityCache::default();
        let said = |text| Unlocked(&cache, format!(r#"{{"role":"user","content":"{text}"}}"#));
        let first = cache.hashes(Format::OpenAiChat, &[said("a"), said("b"), said("a")]);
        assert_eq!(first[0], first[2]);
        let second = cache.hashes(Format::OpenAiChat, &[said("b"), said("c")]);
        assert_eq!(first[1], second[0]);
        assert!(!first.contains(&second[1]));
    }
}
