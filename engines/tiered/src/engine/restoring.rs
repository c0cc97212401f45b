//! Compacted messages that come back.

use std::collections::HashSet;

use contexture_engine_api::{
    Committed, Compaction, EngineError, Entry, MessageId, MessageKind, MessageView, RESTORE_WISH,
    Replacement, ToolCall, ToolSpec,
};
use serde_json::{Map, Value, json};

use super::Tiered;
use crate::event::{COMPACTION_KEY, state_of};
use crate::steps::Steps;

/// The name of the tool.
const RESTORE: &str = "restore";

pub(super) fn tools() -> Vec<ToolSpec> {
    let parameters = json!({
        "type": "object",
        "properties": {"message": {
            "type": "string",
            "description": "The id of the message (m12), or the words of its [COMPACTED: …] or of its content",
        }},
        "required": ["message"],
        "additionalProperties": false,
    });
    let description = "Gives a compacted message back as it was said, and has it stand in the conversation again.";
    vec![ToolSpec::new(RESTORE, description, parameters)]
}

impl<S: Steps> Tiered<S> {
    /// Answers a call of the tool.
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
            let missing = "`message` is missing: say the id of the message, or words of it";
            return Err(EngineError::InvalidInput(missing.to_owned()));
        };
        let words = wanted
            .trim_start_matches("[COMPACTED:")
            .trim_end_matches(']')
            .trim();
        let is_meant = |id: &MessageId, content: &str| {
            id.to_string() == wanted || !words.is_empty() && content.contains(words)
        };
        let mut found = self.kept.iter().filter_map(|(id, state)| {
            let content = state
                .get(COMPACTION_KEY)?
                .get("original_content")?
                .as_str()?;
            is_meant(id, content).then_some((*id, content))
        });
        let Some((id, content)) = found.next() else {
            return Err(EngineError::InvalidInput(format!(
                "no compacted message of the conversation is {wanted:?}; {} are compacted",
                self.kept.len()
            )));
        };
        let others = found.count();
        let answer = json!({"id": id.to_string(), "content": content, "others_that_match": others});
        self.wishes.insert(id);
        Ok(answer.to_string())
    }

    /// The window with the messages that are wanted as they were said, where any is.
    pub(super) fn restoration(&mut self, messages: &[MessageView<'_>]) -> Option<Compaction> {
        let shown: HashSet<MessageId> = messages.iter().map(MessageView::id).collect();
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
        if let Some(state) = message.state() {
            if !self.kept.contains_key(&id) || state.contains(RESTORE_WISH) {
                let mut state = state_of(message);
                if state.remove(RESTORE_WISH).is_some() && self.restored.insert(id) {
                    self.wishes.insert(id);
                }
                if state.contains_key(COMPACTION_KEY) {
                    self.kept.insert(id, state);
                }
            }
        } else if let Some(state) = self.other_state.remove(&id) {
            return Entry::Replace(Replacement::new(id).state(Some(Value::Object(state))));
        }
        match self.wishes.remove(&id) && message.kind() == MessageKind::Replaced {
            true => Entry::Restore(id),
            false => Entry::Keep(id),
        }
    }

    /// Keeps what else was in the state of messages that are restored now, for the next time.
    pub(super) fn note_restored(&mut self, committed: &Committed) {
        for entry in &committed.entries {
            let Entry::Restore(id) = entry else { continue };
            self.restored.insert(*id);
            if let Some(mut state) = self.kept.remove(id) {
                state.remove(COMPACTION_KEY);
                if !state.is_empty() {
                    self.other_state.insert(*id, state);
                }
            }
        }
    }
}
