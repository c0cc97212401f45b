//! What an engine's process has of the window: engines that rewrite or prepare something see all of it at every turn,
//! and most of it is as it was the turn before.

use std::collections::HashMap;

use contexture_engine_api::protocol::Call;
use contexture_engine_api::{MessageId, MessageView};
use xxhash_rust::xxh3::Xxh3Default;

/// The methods that show what is new. Everything else is about a window.
const SHOW_NEW: [&str; 2] = ["observe", "follow"];

/// The messages of the window that was sent last, each with a hash of all that is in it.
#[derive(Debug, Default)]
pub(super) struct Sent(HashMap<MessageId, u64>);

impl Sent {
    /// A call about these messages, which holds those of a window that the other side does not have.
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
        self.0 = now;
        Call::new(method, argument, &new).of_window(ids)
    }
}

fn hash_of(message: &MessageView<'_>) -> u64 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
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
        let mut sent = Sent::default();
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
