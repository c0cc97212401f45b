//! Restores compacted messages: the tool `restore`, and the rewrite that brings the original text
//! back.
//!
//! The model asks for a message in its own words, because it sees only the shown text. `answer`
//! finds the best match among the compacted messages, returns the original at once, and notes a
//! wish. The next request fulfils it: `restoration` proposes a window in which the message has its
//! original text again, and `note_restored` records it once the host commits. A user can wish for a
//! message too, through the state that the host keeps with it.

use std::collections::{BTreeMap, HashSet};

use contexture_engine_api::{
    Committed, Compaction, EngineError, Entry, MessageId, MessageKind, MessageView, OwnedMessage,
    RESTORE_WISH, RESTORED, ToolCall, ToolSpec, TranscriptRange,
};
use serde_json::{Map, Value, json};

use super::Tiered;
use crate::event::{COMPACTION_KEY, MARK, state_of};
use crate::steps::Steps;

const RESTORE: &str = "restore";
const BATCH: usize = 128;

/// A compacted message, as far as it must be known to find and restore it.
#[derive(Debug, Clone, Default)]
pub(super) struct Short {
    /// The text shown in its place, `[COMPACTED: …]`. It is empty if only arguments were shortened.
    shown: String,
    /// The original text, if the message comes from a document that stores it in the state.
    /// Otherwise the transcript has it.
    content: Option<String>,
}

impl Short {
    /// Reads a compacted message from its state. Returns `None` if the state does not say that it
    /// is compacted.
    pub(super) fn of(shown: String, state: &Map<String, Value>) -> Option<Self> {
        let content = state.get(COMPACTION_KEY)?.get("original_content");
        Some(Self {
            shown,
            content: content.and_then(Value::as_str).map(str::to_owned),
        })
    }

    /// How well the model's words identify the message, from 0 for its exact shown text to 4 for
    /// words inside its content. `wanted` is in plain form. Returns `None` if it does not match.
    fn rank(&self, original: Option<&OwnedMessage>, wanted: &str) -> Option<u8> {
        let shown = plain(&self.shown);
        if shown == wanted {
            return Some(0);
        }
        if self.shown.starts_with(MARK) && shown.starts_with(wanted) {
            return Some(1);
        }
        if shown.contains(wanted) {
            return Some(2);
        }
        let original = original?;
        let content = plain(&original.text);
        if content.starts_with(wanted) {
            return Some(3);
        }
        let mut calls = original.tool_calls.iter();
        let is_in =
            content.contains(wanted) || calls.any(|call| plain(&call.arguments).contains(wanted));
        is_in.then_some(4)
    }
}

/// The plain form in which words are compared. A model may quote a compacted message without its
/// brackets, with the host's seal, without the ellipsis of a shortened topic, or with other white
/// space.
fn plain(words: &str) -> String {
    let mut words = words.trim();
    // The seal is `[#` with eight more characters and `]`, which the host appended after the text
    // was shown.
    if let Some((before, seal)) = words.rsplit_once("[#")
        && seal.len() == 9
        && seal.ends_with(']')
    {
        words = before.trim_end();
    }
    let words = words.strip_prefix(MARK.trim_end()).unwrap_or(words);
    let words = words.strip_suffix(']').unwrap_or(words).trim();
    let words = words.trim_end_matches(['…', '.']).trim_end();
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn tools() -> Vec<ToolSpec> {
    let parameters = json!({
        "type": "object",
        "properties": {"message": {
            "type": "string",
            "description": "The text in the message's place, such as [COMPACTED: read_file src/main.rs], words from it, \
                            from the original or from its arguments, or its id (m12)",
        }},
        "required": ["message"],
        "additionalProperties": false,
    });
    let description =
        "Return the original of a compacted message and put it back into the conversation.";
    vec![ToolSpec::new(RESTORE, description, parameters)]
}

impl<S: Steps> Tiered<S> {
    /// Answers a call of the tool with the original message as JSON, and notes that it is to be
    /// restored.
    ///
    /// # Errors
    /// `Unsupported` for another tool, `InvalidInput` if no compacted message matches, and
    /// `Storage` if the original is not in the transcript.
    pub(super) fn answer(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        if call.name != RESTORE {
            return Err(EngineError::Unsupported(format!(
                "the tool `{}`",
                call.name
            )));
        }
        let arguments: Map<String, Value> = serde_json::from_str(&call.arguments)
            .map_err(|error| EngineError::InvalidInput(error.to_string()))?;
        let wanted = arguments.get("message").and_then(Value::as_str);
        let wanted = wanted.map(str::trim).filter(|wanted| !wanted.is_empty());
        let Some(wanted) = wanted else {
            let missing = "`message` is missing: give the id of the message or words from it";
            return Err(EngineError::InvalidInput(missing.to_owned()));
        };
        let words = plain(wanted);
        // The contents are needed too, because the model may quote words that only the original
        // has.
        let originals = self.originals(&self.kept)?;
        let mut found: Vec<(u8, MessageId)> = (self.kept.iter())
            .filter_map(|(id, short)| match id.to_string() == wanted {
                true => Some((0, *id)),
                false if words.is_empty() => None,
                false => Some((short.rank(originals.get(id), &words)?, *id)),
            })
            .collect();
        found.sort_unstable();
        let Some((_, id)) = found.first().copied() else {
            return Err(EngineError::InvalidInput(format!(
                "no compacted message matches {wanted:?}; {} messages are compacted",
                self.kept.len()
            )));
        };
        let Some(original) = originals.get(&id) else {
            return Err(EngineError::Storage(format!(
                "the text of message {id} is damaged or missing in the transcript"
            )));
        };
        let mut answer = json!({
            "id": id.to_string(),
            "content": original.text,
            "others_that_match": found.len() - 1,
        });
        if !original.tool_calls.is_empty() {
            let calls = original.tool_calls.iter().enumerate();
            let arguments =
                calls.map(|(index, call)| json!({"index": index, "arguments": call.arguments}));
            answer["arguments"] = arguments.collect();
        }
        self.wishes.insert(id);
        self.asked.insert(id);
        Ok(answer.to_string())
    }

    /// Returns the original forms of compacted messages. A message is missing if neither the
    /// transcript nor its state has the text.
    pub(super) fn originals(
        &self,
        of: &BTreeMap<MessageId, Short>,
    ) -> Result<BTreeMap<MessageId, OwnedMessage>, EngineError> {
        let ids: Vec<MessageId> = of.keys().copied().collect();
        let mut originals = BTreeMap::new();
        for ids in ids.chunks(BATCH) {
            let range = TranscriptRange::of(ids.to_vec());
            let read = self.services.transcript(&range)?.messages;
            originals.extend(read.into_iter().map(|message| (message.id, message)));
        }
        for (id, short) in of {
            if let Some(content) = &short.content {
                let original: &mut OwnedMessage = originals.entry(*id).or_default();
                (original.id, original.text) = (*id, content.clone());
            }
        }
        Ok(originals)
    }

    /// Proposes a window in which the wanted messages have their original texts again. Returns
    /// `None` if nothing changes.
    pub(super) fn restoration(&mut self, messages: &[MessageView<'_>]) -> Option<Compaction> {
        let shown: HashSet<MessageId> = messages.iter().map(MessageView::id).collect();
        // Messages that left the window, for instance into a summary, cannot be restored.
        self.kept.retain(|id, _| shown.contains(id));
        let mut entries = Vec::with_capacity(messages.len());
        let mut is_changed = false;
        for message in messages {
            let entry = self.restored(message);
            is_changed |= !matches!(entry, Entry::Keep(_));
            entries.push(entry);
        }
        let note = "messages that were asked for are restored".to_owned();
        is_changed.then(|| Compaction::new(entries).notes(vec![note]))
    }

    fn restored(&mut self, message: &MessageView<'_>) -> Entry {
        let id = message.id();
        let is_short = message.kind() == MessageKind::Replaced;
        if let Some(state) = message.state() {
            let was_restored = state.contains(RESTORED);
            if was_restored || !self.kept.contains_key(&id) || state.contains(RESTORE_WISH) {
                let mut state = state_of(message);
                let is_new = !self.kept.contains_key(&id);
                match state.remove(RESTORE_WISH) {
                    // Add the wish only once, so that a restoration that the host refused is not
                    // proposed with every request.
                    Some(_) if self.restored.insert(id) => _ = self.wishes.insert(id),
                    // The wish was taken before, and its state only repeats it.
                    Some(_) => {}
                    // The client sent an earlier form of the message again, so the wish still
                    // holds.
                    None if was_restored && is_new => _ = self.wishes.insert(id),
                    None if was_restored => {}
                    None if is_short => _ = self.restored.remove(&id),
                    None => {}
                }
                state.remove(RESTORED);
                let short = Short::of(message.text().to_owned(), &state);
                self.kept.extend(short.map(|short| (id, short)));
            }
        }
        match self.wishes.remove(&id) && is_short {
            true => Entry::Restore(id),
            false => Entry::Keep(id),
        }
    }

    /// Records which messages the host has restored, so that they are not compacted again. Called
    /// when the host commits a compaction.
    pub(super) fn note_restored(&mut self, committed: &Committed) {
        for entry in &committed.entries {
            let Entry::Restore(id) = entry else { continue };
            self.restored.insert(*id);
            self.kept.remove(id);
        }
    }
}
