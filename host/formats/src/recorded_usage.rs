//! What the providers reported, as a document holds it.

use contexture_engine_api::Usage;

use super::conversation::Conversation;
use super::json::Raw;
use super::logs::{self, LoggedUsage};

/// What a provider reported for one assistant message of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedUsage {
    /// The message, by its index in [`Conversation::messages`].
    pub index: usize,
    /// The model that answered, where recorded.
    pub model: Option<String>,
    /// The tokens it reported.
    pub usage: Usage,
    /// When, in milliseconds since the Unix epoch, where recorded.
    pub time_ms: Option<i64>,
}

impl Conversation {
    /// Usage inside the messages (once for a message, though every line of it repeats it), and usage
    /// that a log puts beside them, which is the last assistant message's before it.
    pub(super) fn gather_usage(
        &self,
        logged: &[(usize, LoggedUsage)],
        leading: usize,
    ) -> Vec<RecordedUsage> {
        let mut found = Vec::new();
        let mut logged = logged.iter().peekable();
        let mut last_assistant = None;
        let mut flush = |through: usize, last: Option<usize>, found: &mut Vec<RecordedUsage>| {
            while let Some((_, entry)) = logged.next_if(|(items, _)| *items <= through + leading) {
                let Some(index) = last else { continue };
                found.push(RecordedUsage {
                    index,
                    model: entry.model.clone(),
                    usage: entry.usage,
                    time_ms: entry.time_ms,
                });
            }
        };
        for (index, message) in self.messages.iter().enumerate() {
            flush(message.items.start, last_assistant, &mut found);
            if message.role != "assistant" || message.is_summary() {
                continue;
            }
            last_assistant = Some(index);
            // The last line has the final count of the answer.
            let recorded = message.items.clone().rev().find_map(|item| {
                let span = self.items.get(item)?.body.clone();
                let raw = Raw::trusted(&self.document, span);
                let usage = logs::usage(raw.get("usage").filter(|usage| usage.is_object())?)?;
                Some((raw.get_string("model"), usage))
            });
            // A usage of zeros means that the writer did not know it.
            let recorded = recorded.filter(|(_, usage)| *usage != Usage::default());
            if let Some((model, usage)) = recorded {
                found.push(RecordedUsage {
                    index,
                    model: model.or_else(|| self.model.clone()),
                    usage,
                    time_ms: message.time_ms,
                });
            }
        }
        flush(usize::MAX - leading, last_assistant, &mut found);
        found
    }
}
