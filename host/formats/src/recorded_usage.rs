//! Finds the token usage that providers reported, as far as a document records it.
//!
//! Session logs store the usage of an answer either in the assistant's message, like Claude
//! Code, or in a line of its own, like Codex. [`Conversation::recorded_usage`] returns both as
//! a list of [`RecordedUsage`], each assigned to the message that it belongs to.
//!
//! The numbers are used to check and correct this crate's own token counts. How a provider
//! spells them is the concern of `reported_usage`.

use contexture_engine_api::Usage;

use super::conversation::{Conversation, RecordedUsage};
use super::json::Raw;
use super::logs::LoggedUsage;
use super::reported_usage::known_usage;

impl Conversation {
    /// Collects the usage inside messages and the usage that a log records beside them. The
    /// former counts once for each message, although every line of the message may repeat it.
    /// The latter belongs to the last assistant message before it.
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
            // A message can have several lines, and the last one has the final count of the
            // answer.
            let recorded = message.items.clone().rev().find_map(|item| {
                let span = self.items.get(item)?.body.clone();
                let raw = Raw::trusted(&self.document, span);
                let usage = known_usage(&raw.get("usage")?.value())?;
                Some((raw.get_string("model"), usage))
            });
            // If all numbers are zero, the writer of the log did not know them.
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
