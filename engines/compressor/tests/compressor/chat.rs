//! What the tests share beside the kit: the compressor at work, and what it holds to beyond the contract.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use contexture_compressor::Compressor;
use contexture_engine_api::*;
pub(crate) use contexture_testkit::{
    Call, Chat, ScriptedHost, ScriptedModel, Session, filler, order,
};

pub(crate) fn open(host: &Arc<ScriptedHost>, settings: &str, window: &WindowState) -> Session {
    Session::open::<Compressor>(host, settings, window)
}

/// A compressor without a model.
pub(crate) fn alone(settings: &str, window: &WindowState) -> Session {
    open(&ScriptedHost::without_model(), settings, window)
}

/// Messages whose calls no result follows, and results that no call precedes.
fn loose_ends(chat: &Chat) -> BTreeSet<MessageId> {
    let mut waiting: HashMap<&str, Vec<MessageId>> = HashMap::new();
    let mut loose = BTreeSet::new();
    for message in &chat.messages {
        for call in &message.calls {
            let nearest = waiting.entry(&call.id).or_default();
            if nearest.iter().any(|at| *at != message.id) {
                loose.extend(nearest.drain(..));
            }
            nearest.push(message.id);
        }
        if let Some((id, _)) = &message.result_of {
            match waiting.get_mut(id.as_str()) {
                Some(calls) => _ = calls.pop(),
                None => _ = loose.insert(message.id),
            }
        }
    }
    loose.extend(waiting.into_values().flatten());
    loose
}

/// The window that a proposal makes, where it holds to the contract, mends what was loose and marks its
/// summary once.
pub(crate) fn check(
    before: &Chat,
    compaction: &Compaction,
    order: &CompressOrder,
) -> Result<Chat, String> {
    before
        .check(compaction, order)
        .map_err(|violation| violation.to_string())?;
    no_new_neighbours_of_one_role(before, compaction)?;
    let after = before.apply(compaction);
    let mut assistant = before.messages.iter().rev();
    let in_flight = assistant.find(|message| message.role == "assistant");
    let loose_before = loose_ends(before);
    for id in loose_ends(&after) {
        if in_flight.is_none_or(|message| message.id != id) || !loose_before.contains(&id) {
            return Err(format!("{id} is left with a call or a result alone"));
        }
    }
    for message in &after.messages {
        if message.text.rfind(SUMMARY_MARK).is_some_and(|at| at > 0) {
            return Err(format!("a mark inside of {message:?}"));
        }
    }
    Ok(after)
}

/// Where a summary took messages away, what is left does not stand beside a message of its own role.
fn no_new_neighbours_of_one_role(before: &Chat, compaction: &Compaction) -> Result<(), String> {
    let is_covered = |id: &MessageId| {
        let mut entries = compaction.entries.iter();
        entries.any(|entry| matches!(entry, Entry::Summary(summary) if summary.covers.contains(id)))
    };
    let places = before.messages.iter().enumerate();
    let places: HashMap<MessageId, usize> = places.map(|(at, m)| (m.id, at)).collect();
    let mut last: Option<usize> = None;
    for entry in &compaction.entries {
        match entry {
            Entry::Drop(_) => {}
            Entry::Keep(id) | Entry::Replace(Replacement { id, .. }) => {
                let (at, role) = (places[id], before.messages[places[id]].role);
                if let Some(last) = last
                    && role != "tool"
                    && before.messages[last].role == role
                    && before.messages[last..at].iter().any(|m| is_covered(&m.id))
                {
                    return Err(format!("messages {last} and {at} are both of {role} now"));
                }
                last = Some(at);
            }
            _ => last = None,
        }
    }
    Ok(())
}

pub(crate) fn summary_of(compaction: &Compaction) -> &str {
    let mut texts = compaction.entries.iter().filter_map(|entry| match entry {
        Entry::Summary(summary) => Some(summary.text.as_str()),
        _ => None,
    });
    let text = texts.next().expect("a summary");
    assert!(texts.next().is_none(), "more than one summary");
    text
}
