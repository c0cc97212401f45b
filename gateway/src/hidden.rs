//! Stores hidden rounds, and puts them back into the client's history.
//!
//! A client never sees rounds in which the model called only tools of the engine, and it sees an
//! answer without such calls. Its next request repeats this shortened history. The model has to see
//! what it really wrote, and the bytes have to be the same each time for the provider's prompt
//! cache. So each difference is stored as a [`HiddenRound`] with the session.
//!
//! [`restore`] finds the places in a request by the identities of its messages, so it does not
//! matter if the client formats them differently. If an answer was edited or compacted away by the
//! client, its hidden rounds are left out. The identities come from [`identity`](crate::identity).

use contexture::session::{KeptContent, Record, RecordError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::account::now_ms;
use crate::api::Api;
use crate::body::HistoryMessage;

/// The prefix of the keys of hidden rounds in the data that is stored with a session.
const KEY_PREFIX: &str = "hidden ";

/// An answer that the client has in another form than the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HiddenRound {
    pub(crate) before: u64,
    /// The identities of the messages that the client has. Empty if the client received nothing of
    /// the answer.
    pub(crate) visible: Vec<u64>,
    /// The wire messages that replace them, including results of the engine's tools.
    pub(crate) real: Vec<String>,
    /// Results of the engine's calls that have to be sent together with the client's own results,
    /// which follow the answer.
    pub(crate) results: Vec<String>,
}

/// The hidden rounds of a session, in the order in which they were stored.
#[derive(Debug, Default)]
pub(crate) struct HiddenRounds {
    pub(crate) all: Vec<HiddenRound>,
    /// The number of the next one. It is higher than that of any stored one, even of those that
    /// cannot be parsed, so none is overwritten.
    next: u64,
}

impl HiddenRounds {
    /// Reads the hidden rounds of a session. Entries that cannot be parsed are skipped.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(crate) fn load(record: &Record, session: &str) -> Result<Self, RecordError> {
        let mut rounds = Self::default();
        for (name, text) in record.kept(session)? {
            let number = name.strip_prefix(KEY_PREFIX);
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                rounds.next = number + 1;
                rounds.all.extend(serde_json::from_str(&text).ok());
            }
        }
        Ok(rounds)
    }

    /// The rounds of a session that cannot be read. New ones get numbers that no stored one has.
    pub(crate) fn unread() -> Self {
        Self {
            all: Vec::new(),
            next: now_ms(),
        }
    }

    /// Adds a hidden round and stores it. If storing fails, it still counts until the session
    /// leaves memory.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn store(
        &mut self,
        record: &Record,
        session: &str,
        one: HiddenRound,
    ) -> Result<(), RecordError> {
        let text = serde_json::to_string(&one).unwrap_or_default();
        // The record returns keys in alphabetical order, so the number is padded.
        let name = format!("{KEY_PREFIX}{:08}", self.next);
        self.next += 1;
        self.all.push(one);
        record.keep(session, KeptContent::Conversation, &[(&name, &text)])
    }
}

/// Returns these messages with hidden rounds in their places, or None if none of them belongs
/// there. `identities` has the identity of each message.
pub(crate) fn restore(
    api: Api,
    messages: &[&str],
    identities: &[u64],
    hidden: &[HiddenRound],
) -> Option<Vec<HistoryMessage>> {
    let mut used = vec![false; hidden.len()];
    let mut out = Vec::with_capacity(identities.len());
    let mut at = 0usize;
    loop {
        let before = match at.checked_sub(1) {
            Some(at) => identities.get(at).copied(),
            // A request that ends with a compaction of the provider's has no message.
            None => Some(0),
        };
        let rest = identities.get(at..).unwrap_or(&[]);
        let found = hidden.iter().zip(&used).position(|(one, used)| {
            !used && Some(one.before) == before && rest.starts_with(&one.visible)
        });
        if let Some((one, used)) =
            found.and_then(|found| Some((hidden.get(found)?, used.get_mut(found)?)))
        {
            *used = true;
            out.extend(others(&one.real));
            at += one.visible.len();
            at += join_results(api, one, messages.get(at).copied(), &mut out);
            // If the client has nothing of the answer, no message was consumed, so the current one
            // still has to be copied.
            if !one.visible.is_empty() {
                continue;
            }
        }
        if at >= messages.len() {
            break;
        }
        out.push(HistoryMessage::Client(at));
        at += 1;
    }
    used.contains(&true).then_some(out)
}

fn others(texts: &[String]) -> impl Iterator<Item = HistoryMessage> {
    let texts = texts.iter().map(String::as_str);
    texts.map(HistoryMessage::other)
}

/// Adds the results of the engine's calls to those of the client, which are in the message `next`.
/// Anthropic and Gemini require one user message with all results. Returns how many of the client's
/// messages this consumed.
fn join_results(
    api: Api,
    one: &HiddenRound,
    next: Option<&str>,
    out: &mut Vec<HistoryMessage>,
) -> usize {
    if one.results.is_empty() {
        return 0;
    }
    let list = match api {
        Api::Messages => "content",
        Api::Gemini => "parts",
        Api::Chat | Api::Responses => "",
    };
    if list.is_empty() {
        out.extend(others(&one.results));
        return 0;
    }
    let blocks = one
        .results
        .iter()
        .filter_map(|block| serde_json::from_str::<Value>(block).ok());
    let mut blocks: Vec<Value> = blocks.collect();
    let next = next.and_then(|next| serde_json::from_str::<Value>(next).ok());
    match next {
        // Older clients of Gemini give results a role of their own.
        Some(mut next) if next["role"] == "user" || next["role"] == "function" => {
            match next[list].take() {
                Value::Array(own) => blocks.extend(own),
                Value::String(text) => blocks.push(json!({"type": "text", "text": text})),
                _ => {}
            }
            next[list] = Value::Array(blocks);
            out.push(HistoryMessage::other(next.to_string()));
            1
        }
        _ => {
            let message = json!({"role": "user", list: blocks});
            out.push(HistoryMessage::other(message.to_string()));
            0
        }
    }
}
