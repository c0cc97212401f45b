//! Rounds that the client did not see: kept, and put back where they were when it sends its history again.

use contexture::formats::WireBody;
use contexture::session::{Record, RecordError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::Api;

/// What the names of these begin with among what is kept with a session.
const NAME: &str = "hidden ";

/// An answer that the client has in another form than the model gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hidden {
    /// What the message before it says.
    pub(crate) before: u64,
    /// What the client has: what each of the messages says.
    pub(crate) visible: Vec<u64>,
    /// What stands in their place, results of the engine's tools included.
    pub(crate) real: Vec<String>,
    /// Results that join those of the client's own tools, which come after it.
    pub(crate) results: Vec<String>,
}

/// Those of a session, in order.
///
/// # Errors
/// The record cannot be read.
pub(crate) fn load(record: &Record, session: &str) -> Result<Vec<Hidden>, RecordError> {
    let kept = record.kept(session)?.into_iter();
    let own = kept.filter(|(name, _)| name.starts_with(NAME));
    Ok(own
        .filter_map(|(_, text)| serde_json::from_str(&text).ok())
        .collect())
}

/// Keeps one more.
///
/// # Errors
/// The record cannot be written.
pub(crate) fn keep(
    record: &Record,
    session: &str,
    all: &mut Vec<Hidden>,
    one: Hidden,
) -> Result<(), RecordError> {
    let text = serde_json::to_string(&one).unwrap_or_default();
    let name = format!("{NAME}{:08}", all.len());
    let kept = record.keep(session, &[(&name, &text)]);
    all.push(one);
    kept
}

/// The body with the hidden rounds in their places; none where there are none. `said` is what each of its messages says.
pub(crate) fn put_back(
    api: Api,
    wire: &WireBody<'_>,
    said: &[u64],
    hidden: &[Hidden],
) -> Option<String> {
    let mut used = vec![false; hidden.len()];
    let mut out: Vec<(Option<usize>, String)> = Vec::with_capacity(said.len());
    let mut at = 0usize;
    loop {
        let before = at.checked_sub(1).and_then(|at| said.get(at)).copied();
        let rest = said.get(at..).unwrap_or(&[]);
        let found = hidden.iter().zip(&used).position(|(one, used)| {
            !used && Some(one.before) == before && rest.starts_with(&one.visible)
        });
        if let Some((one, used)) =
            found.and_then(|found| Some((hidden.get(found)?, used.get_mut(found)?)))
        {
            *used = true;
            out.extend(one.real.iter().map(|real| (None, real.clone())));
            at += one.visible.len();
            at += join_results(api, one, wire.messages.get(at).copied(), &mut out);
            if !one.visible.is_empty() {
                continue;
            }
        }
        match wire.messages.get(at) {
            Some(raw) => out.push((Some(at), (*raw).to_owned())),
            None => break,
        }
        at += 1;
    }
    if !used.contains(&true) {
        return None;
    }
    let out: Vec<(Option<usize>, &str)> = out.iter().map(|(at, raw)| (*at, raw.as_str())).collect();
    Some(wire.with_messages(None, &out))
}

/// Puts results with those of the client, which stand in `next`. Answers how many of its messages that takes.
fn join_results(
    api: Api,
    one: &Hidden,
    next: Option<&str>,
    out: &mut Vec<(Option<usize>, String)>,
) -> usize {
    if one.results.is_empty() {
        return 0;
    }
    if api != Api::Messages {
        out.extend(one.results.iter().map(|result| (None, result.clone())));
        return 0;
    }
    let blocks = one
        .results
        .iter()
        .filter_map(|block| serde_json::from_str::<Value>(block).ok());
    let mut blocks: Vec<Value> = blocks.collect();
    let next = next.and_then(|next| serde_json::from_str::<Value>(next).ok());
    match next {
        Some(mut next) if next["role"] == "user" => {
            match next["content"].take() {
                Value::Array(own) => blocks.extend(own),
                Value::String(text) => blocks.push(json!({"type": "text", "text": text})),
                _ => {}
            }
            next["content"] = Value::Array(blocks);
            out.push((None, next.to_string()));
            1
        }
        _ => {
            let message = json!({"role": "user", "content": blocks});
            out.push((None, message.to_string()));
            0
        }
    }
}
