//! Which of the conversations that go by one name a request goes on with. Subagents share their agent's name, and some
//! clients send none: then the history decides.
//!
//! What is known of a conversation lies in the host's record, so that another gateway and the next start know it.

use contexture::session::{Record, RecordError};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// How many of its last requests are known of a conversation.
const TURNS: usize = 16;

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lineage {
    /// What is hashed of the system prompt.
    system: u64,
    /// Its last requests: how many messages they had, and the hash over them.
    turns: Vec<(usize, u64)>,
    /// The last answer in them.
    answer: u64,
}

/// What a request looks like from here.
#[derive(Debug)]
pub(crate) struct Seen<'r> {
    pub(crate) system: u64,
    /// What each message says.
    pub(crate) messages: &'r [u64],
    /// Which of them is the last answer.
    pub(crate) answer: Option<u64>,
    /// Whether its agent began it anew with a summary of its own.
    pub(crate) is_continued: bool,
    /// Whether another history under the same name is an edit.
    pub(crate) is_exact: bool,
}

/// A conversation that was found, to be noted once the request was taken in.
#[derive(Debug)]
pub(crate) struct Found {
    owner: String,
    /// The session's id.
    pub(crate) session: String,
    /// Whether it had a request before.
    pub(crate) is_known: bool,
    lineage: Lineage,
}

/// The hash over the first messages, for every number of them from 1.
fn chain(messages: &[u64]) -> Vec<u64> {
    let mut hash = Xxh3::new();
    let link = |message: &u64| {
        hash.update(&message.to_le_bytes());
        hash.digest()
    };
    messages.iter().map(link).collect()
}

/// Finds the conversation of a request, or begins one.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn find(record: &Record, name: &str, seen: &Seen<'_>) -> Result<Found, RecordError> {
    let owner = format!("gateway {name}");
    let chain = chain(seen.messages);
    let known: Vec<(String, Lineage)> = (record.kept(&owner)?.into_iter())
        .filter_map(|(session, text)| Some((session, serde_json::from_str(&text).ok()?)))
        .collect();
    let whole = chain.last().copied().unwrap_or_default();
    let session = which(&known, &chain, seen).unwrap_or_else(|| free(&known, name, whole));
    let lineage = known.into_iter().find(|(id, _)| *id == session);
    let is_known = lineage.is_some();
    let mut lineage = lineage.map(|(_, lineage)| lineage).unwrap_or_default();
    lineage.system = seen.system;
    lineage.answer = seen.answer.unwrap_or(lineage.answer);
    let turn = (chain.len(), whole);
    lineage.turns.retain(|known| *known != turn);
    lineage.turns.push(turn);
    if lineage.turns.len() > TURNS {
        lineage.turns.remove(0);
    }
    Ok(Found {
        owner,
        session,
        is_known,
        lineage,
    })
}

/// A name for a conversation that begins now.
fn free(known: &[(String, Lineage)], name: &str, whole: u64) -> String {
    let numbered = (1..).map(|number| match number {
        1 => format!("{name}+{:08x}", whole as u32),
        number => format!("{name}+{:08x}.{number}", whole as u32),
    });
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let is_taken = |name: &String| known.iter().any(|(taken, _)| taken == name);
    names
        .find(|name| !is_taken(name))
        .unwrap_or_else(|| name.to_owned())
}

fn which(known: &[(String, Lineage)], chain: &[u64], seen: &Seen<'_>) -> Option<String> {
    // Of those with which it begins the one with which it begins the longest.
    let matched = known.iter().filter_map(|(session, lineage)| {
        let turns = lineage.turns.iter().enumerate();
        let found = turns.filter(|(_, (count, hash))| {
            count.checked_sub(1).and_then(|at| chain.get(at)) == Some(hash)
        });
        let (at, (count, _)) = found.max_by_key(|(_, (count, _))| *count)?;
        let is_last = at + 1 == lineage.turns.len();
        Some((session, *count, is_last))
    });
    if let Some((session, count, is_last)) =
        matched.max_by_key(|(_, count, is_last)| (*count, *is_last))
    {
        // Where nothing but the history tells, what parts from a conversation is another one: both may go on.
        let is_again = count == chain.len() && count > 1;
        if is_last || seen.is_exact || is_again {
            return Some(session.clone());
        }
        return None;
    }
    // Its early messages were changed, and an answer that is in it is that of one conversation alone.
    let has_answer = |(_, lineage): &&(String, Lineage)| {
        lineage.answer != 0 && seen.messages.contains(&lineage.answer)
    };
    let mut answered = known.iter().filter(has_answer);
    if let (Some((session, _)), None) = (answered.next(), answered.next()) {
        return Some(session.clone());
    }
    let mut same = known
        .iter()
        .filter(|(_, lineage)| lineage.system == seen.system);
    match seen.is_continued {
        true => same.next_back().map(|(session, _)| session.clone()),
        false => None,
    }
}

impl Found {
    /// Notes that the conversation had this request.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(crate) fn note(&self, record: &Record) -> Result<(), RecordError> {
        // Numbers and lists of them have a JSON form.
        let text = serde_json::to_string(&self.lineage).unwrap_or_default();
        record.keep(&self.owner, &[(&self.session, &text)])
    }
}
