//! Prints the messages of a session, and has compacted ones put back.

use std::collections::{BTreeSet, HashMap};

use contexture_engine_api::{MessageId, TranscriptRange};
use contexture_tiered::COMPACTION_KEY;
use serde_json::{Map, Value, json};

use super::known;
use crate::error::CliError;
use crate::human::counted;
use crate::terminal::{self, Progress};
use crate::{NEGATIVE, OK, kept, output};
use contexture::engines::Engines;
use contexture::formats;
use contexture::session::{Placed, Record, SessionOptions};

/// Prints the messages of a session, one per line. Without `whole` it leaves out what is no longer part
/// of the conversation and what the agent itself compacted away, and says how much that is. Returns
/// [`NEGATIVE`] with a warning if the text of a message is missing from the record.
pub(super) fn export(
    engines: &Engines,
    store: &Record,
    id: &str,
    whole: bool,
) -> Result<u8, CliError> {
    let session = known(store, id)?;
    let messages = match whole {
        true => store.all_wire_messages(id)?,
        false => store.wire_messages(id)?,
    };
    let has_text = messages.iter().any(|message| message.text.is_some());
    // An engine may keep its own state with messages, which the texts do not have.
    let keeps_none = matches!(kept::list(engines, &session.engine), Ok(None));
    if keeps_none
        && let Some(placed) = store.placed(id)?
        && (!has_text || placed.iter().any(|one| one.state.is_some()))
    {
        return print_placed(store, id, placed);
    }
    let behind = match whole {
        true => BTreeSet::new(),
        false => store.behind_agent(id)?,
    };
    let progress = Progress::new(messages.len(), "exporting");
    let (mut lost, mut shown) = (0, 0);
    for message in messages {
        progress.step();
        let is_behind = !behind.is_empty() && message.ids.iter().all(|id| behind.contains(id));
        let messages = message.ids.len() as u64;
        match message.text {
            // A summary by Codex is an item of the conversation with which it continues, so it
            // stays.
            Some(text) if is_behind && !formats::is_compaction_item(&text) => {}
            Some(text) => {
                shown += messages;
                let mut lines = String::new();
                for line in formats::item_lines(&text) {
                    lines.push_str(&line);
                    lines.push('\n');
                }
                output::print_bytes(lines.as_bytes())?;
            }
            None => lost += messages,
        }
    }
    drop(progress);
    let others = session.messages.saturating_sub(shown + lost);
    if others > 0 {
        terminal::note(&format!(
            "{} of the session {} not shown: edited, cut off, or compacted away by the agent; `--whole` shows {}",
            counted(others, "message"),
            if others == 1 { "is" } else { "are" },
            if others == 1 { "it" } else { "them" },
        ));
    }
    if lost == 0 {
        return Ok(OK);
    }
    terminal::warn(&format!(
        "the text of {} is not stored or cannot be read: run `contexture sessions verify`",
        counted(lost, "message")
    ));
    Ok(NEGATIVE)
}

/// Prints what the record has of a session's window, one message per line, for an engine that keeps
/// no sessions.
///
/// If `tiered` compacted a message, its original is in the transcript. It is added to the message's
/// state, as in the document format that this engine follows.
fn print_placed(store: &Record, id: &str, mut placed: Vec<Placed>) -> Result<u8, CliError> {
    let mut compacted: HashMap<MessageId, &mut Map<String, Value>> = (placed.iter_mut())
        .filter_map(|one| {
            let kept = one.state.as_mut()?.get_mut(COMPACTION_KEY)?;
            Some((one.id, kept.as_object_mut()?))
        })
        .collect();
    if !compacted.is_empty() {
        let range = TranscriptRange::of(compacted.keys().copied().collect());
        let originals = store.transcript(id, &range)?;
        for original in originals.into_iter().flat_map(|page| page.messages) {
            if let Some(kept) = compacted.get_mut(&original.id) {
                let content = kept.entry("original_content");
                content.or_insert(Value::String(original.text));
            }
        }
    }
    let mut lines = String::new();
    for one in &placed {
        let mut message = json!({"id": one.id.to_string()});
        if let Some(role) = one.role {
            message["role"] = json!(role);
        }
        if let Some(content) = &one.content {
            message["content"] = json!(content);
        }
        let mut event = json!({"message": message});
        if let Some(state) = &one.state {
            event["state"] = json!(state);
        }
        lines.push_str(&format!("{event}\n"));
    }
    output::print_bytes(lines.as_bytes())?;
    Ok(OK)
}

/// Has compacted messages put back with the session's next request, and prints them. An empty
/// `messages` stands for all that can be restored.
///
/// # Errors
/// Fails if there is no such session, or if one of the ids is not a compacted message whose
/// original is kept.
pub(super) fn restore(store: &Record, id: &str, messages: &[MessageId]) -> Result<u8, CliError> {
    known(store, id)?;
    let mut placed = store.placed(id)?.unwrap_or_default();
    placed.retain(|one| one.is_shortened && one.state.is_some());
    if let Some(unknown) = messages
        .iter()
        .find(|id| !placed.iter().any(|one| one.id == **id))
    {
        return Err(CliError::usage(
            format!(
                "{unknown} of the session `{id}` is no compacted message whose original is kept"
            ),
            format!("run `contexture sessions export {id}` to see which are"),
        ));
    }
    placed.retain(|one| messages.is_empty() || messages.contains(&one.id));
    let chosen: Vec<MessageId> = placed.iter().map(|one| one.id).collect();
    let wait = SessionOptions::default().wait;
    let restored = store.wish_restored(id, Some(&chosen), wait)?;
    placed.retain(|one| restored.contains(&one.id));
    print_placed(store, id, placed)?;
    match restored.is_empty() {
        true => terminal::say("nothing is compacted there\n"),
        false => say_restored(&restored),
    }
    Ok(OK)
}

/// Tells the user that these messages come back with the session's next request.
pub(crate) fn say_restored(messages: &[MessageId]) {
    terminal::say(&format!(
        "{} will be restored with the next request\n",
        counted(messages.len() as u64, "message")
    ));
}

/// Parses the id of a message as `export` shows it, for example `m12`. The letter may be missing.
/// Fails with a text for the user.
pub(super) fn message_id(text: &str) -> Result<MessageId, String> {
    let number = text.strip_prefix('m').unwrap_or(text).parse();
    number
        .map(MessageId)
        .map_err(|_| "a message's id is a number, as in m12".to_owned())
}
