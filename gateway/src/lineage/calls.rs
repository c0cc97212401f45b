//! Which conversation the model made a call in, so that a conversation without a name is found by its
//! last call. The calls of a tenant are spread over lists, because each change reads and writes one of
//! them.

use contexture::session::{KeptChange, KeptContent, Record, RecordError};
use serde::{Deserialize, Serialize};

use super::keep_last;
use crate::proof::Fingerprint;
use crate::session_key::Scope;

/// How many lists a tenant has, and the most calls of a list.
const LISTS: u64 = 1024;
const MAX_CALLS: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct KeptCall {
    call: u64,
    owner: String,
    session: String,
}

/// The owner and the session of the conversation in which the model made a call. None if the call is
/// not known.
///
/// # Errors
/// The record cannot be read.
pub(super) fn conversation_of(
    record: &Record,
    scope: &Scope<'_>,
    call: Fingerprint,
) -> Result<Option<(String, String)>, RecordError> {
    let kept = record.kept_text(&scope.calls(), &list_of(call))?;
    let found = calls_in(kept).into_iter().rfind(|one| one.call == call.0);
    Ok(found.map(|one| (one.owner, one.session)))
}

/// The change of the record that notes a call. `calls` is the tenant's key, see [`Scope::calls`].
pub(super) fn change<'a>(
    calls: &str,
    call: Fingerprint,
    owner: &'a str,
    session: &'a str,
) -> KeptChange<'a> {
    let list = list_of(call);
    KeptChange::new(calls, &list.clone(), KeptContent::Exact, move |text| {
        let mut kept = calls_in(text);
        kept.push(KeptCall {
            call: call.0,
            owner: owner.to_owned(),
            session: session.to_owned(),
        });
        keep_last(&mut kept, MAX_CALLS);
        // Numbers and strings always have a JSON form.
        let text = serde_json::to_string(&kept).unwrap_or_default();
        vec![(list.clone(), text)]
    })
}

fn list_of(call: Fingerprint) -> String {
    (call.0 % LISTS).to_string()
}

/// The calls of a stored list, oldest first. A list that cannot be parsed counts as empty.
fn calls_in(kept: Option<String>) -> Vec<KeptCall> {
    let calls = kept.and_then(|text| serde_json::from_str(&text).ok());
    calls.unwrap_or_default()
}
