//! Avoids sending messages to an engine's process twice.
//!
//! An engine that rewrites or prepares something is given the whole window in every turn. Most of
//! it is unchanged since the turn before, and a large window takes long to encode and decode.
//! [`SentWindow`] remembers what was sent last. For the next call about the window it sends the ids of
//! all messages, and the content only of those that are new or have changed.
//!
//! The process on the other side keeps the same messages and puts the window together again.
//! Methods that only show new messages (`observe`, `follow`) are sent as they are and change
//! nothing here.

use std::collections::HashMap;

use contexture_engine_api::protocol::Call;
use contexture_engine_api::{MessageId, MessageView};
use xxhash_rust::xxh3::Xxh3Default;

/// The methods that are given new messages only. All others are given the window.
const SHOW_NEW: [&str; 2] = ["observe", "follow"];

/// The messages of the window that was sent last, with a hash of everything in each message.
#[derive(Debug, Default)]
pub(super) struct SentWindow(HashMap<MessageId, u64>);

impl SentWindow {
    /// Builds a call about these messages. If they are a window, the call holds the content of only
    /// those messages that the other side does not have.
    pub(super) fn call(
        &mut self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Call {
        if messages.is_empty() || SHOW_NEW.contains(&method) {
            return Call::new(method, argument, messages);
        }
        let now: HashMap<MessageId, u64> = (messages.iter())
            .map(|message| (message.id(), hash_of(message)))
            .collect();
        let ids: Vec<MessageId> = messages.iter().map(MessageView::id).collect();
        let new: Vec<MessageView<'_>> = (messages.iter())
            .filter(|message| self.0.get(&message.id()) != now.get(&message.id()))
            .copied()
            .collect();
        // Messages that have left the window are forgotten on both sides, so that the memory is
        // bounded by the window.
        self.0 = now;
        Call::new(method, argument, &new).of_window(ids)
    }
}

/// Hashes everything that the other side can see of a message. A message that keeps its id but is
/// marked or shortened gets another hash.
fn hash_of(message: &MessageView<'_>) -> u64 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
        // The length separates the texts, so that moving a character from one to the next changes
        // the hash.
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(message.role());
    add(message.text());
    add(message.raw());
    for call in message.tool_calls() {
        add(call.id());
        add(call.name());
        add(call.arguments());
    }
    add(message.name().unwrap_or_default());
    add(message.tool_call_id().unwrap_or_default());
    add(message.tool_name().unwrap_or_default());
    add(message.state().unwrap_or_default());
    let figures = (
        message.kind(),
        message.time(),
        message.has_thinking(),
        message.has_media(),
        message.is_error(),
        message.continues(),
        message.tokens(),
    );
    add(&format!("{figures:?}"));
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_window_only_what_is_new_or_reads_otherwise_is_sent() {
        let view = |id, text| MessageView::new(MessageId(id), "user").with_text(text);
        let mut sent = SentWindow::default();
        let mut new = |method: &str, messages: &[MessageView<'_>]| {
            let call = sent.call(method, "{}", messages);
            let ids = |ids: Vec<MessageId>| ids.iter().map(|id| id.0).collect::<Vec<_>>();
            let new = call.messages.iter().map(|message| message.id).collect();
            (ids(new), call.window.map(ids))
        };
        let (one, two) = (view(1, "one"), view(2, "two"));
        let all = Some(vec![1, 2]);
        assert_eq!(new("observe", &[one]), (vec![1], None));
        assert_eq!(new("rewrite", &[one, two]), (vec![1, 2], all.clone()));
        assert_eq!(new("compress", &[one, two]), (vec![], all.clone()));
        let short = [
            one.with_kind(contexture_engine_api::MessageKind::Replaced),
            two,
        ];
        assert_eq!(new("rewrite", &short), (vec![1], all.clone()));
        let stated = [short[0], two.with_state("{}")];
        assert_eq!(new("rewrite", &stated), (vec![2], all));
        // What has left the window is kept nowhere.
        assert_eq!(new("rewrite", &[two]), (vec![2], Some(vec![2])));
        assert_eq!(new("rewrite", &[one, two]), (vec![1], Some(vec![1, 2])));
    }
}
