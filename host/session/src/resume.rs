//! Continuing where an agent would continue after a compaction that it made itself.
//!
//! An agent such as Claude Code writes its own compactions to its log. Reading the window from
//! there is exact, while comparing texts would be a guess. [`Session::resume_log`] puts that window
//! in force as if an engine had made it. The hidden messages stay part of the conversation, so an
//! engine can still find them.
//!
//! How a log is read is left to `contexture_formats`.

use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind};
use contexture_formats::{self as formats, Conversation, Format, Resumed};

use contexture_transcript::{BY_AGENT, EntryContent, HostText, IdMap, IdSet, Ids, InForce};

use crate::request::ReadMessage;
use crate::session::Session;
use crate::window::Window;
use crate::window_entry::WindowEntry;

impl Session {
    /// Puts the agent's own window in force. Call it after a turn over `whole`, the whole history
    /// of the log ([`Conversation::whole`]). `window` is the conversation that the log was read as.
    /// Messages that the agent compacted away stay part of the conversation, and the agent's
    /// summary replaces them in the window. If the compaction in force already leaves them out,
    /// nothing changes.
    pub fn resume_log(&mut self, window: &Conversation, whole: &Arc<Conversation>) {
        let ids: Vec<MessageId> = (self.current.history.sent.units.iter())
            .take(whole.messages().len())
            .map(|unit| unit.origin.id())
            .collect();
        let resumed = window.resumed(whole);
        let stays: Ids = (resumed.iter())
            .filter_map(|place| match place {
                Resumed::Message(at) => ids.get(*at).copied(),
                Resumed::Summary(_) => None,
            })
            .collect();
        let hidden: Vec<MessageId> = (ids.iter().copied())
            .filter(|id| !stays.contains(id))
            .collect();
        let is_left_out = |id: &MessageId| {
            let in_force = self.current.history.in_force();
            in_force.is_some_and(|in_force| in_force.window.left_out.contains(*id))
        };
        // An engine may have compacted further since. Its window must not be replaced by the
        // agent's older one.
        if hidden.iter().all(is_left_out) {
            return;
        }
        let hidden: IdSet = hidden.into_iter().collect();
        let known: IdMap<WindowEntry> = (self.current.window.entries().iter())
            .filter(|entry| entry.is_verbatim())
            .map(|entry| (entry.id(), entry.clone()))
            .collect();
        let mut entries = Vec::with_capacity(resumed.len());
        for place in resumed {
            let (Resumed::Message(at) | Resumed::Summary(at)) = place;
            let Some(message) = whole.messages().get(at) else {
                continue;
            };
            if let Resumed::Summary(_) = place {
                let id = Arc::make_mut(&mut self.current.window).fresh_id();
                // The agent sends its summary with the next request. It must be recognised there,
                // in either form.
                for identity in identities(whole, at) {
                    self.current.history.write(HostText {
                        identity,
                        id,
                        shortens: false,
                        covers: hidden.clone(),
                    });
                }
                let content = EntryContent::Summary {
                    text: message.text.clone(),
                    in_system_role: false,
                };
                entries.push(WindowEntry::put_in(id, content, &self.current.counter));
                continue;
            }
            let Some(id) = ids.get(at).copied() else {
                continue;
            };
            let entry = known.get(&id).cloned();
            entries.push(entry.unwrap_or_else(|| {
                let read = ReadMessage {
                    conversation: Arc::clone(whole),
                    index: at,
                    wires: message.items.clone(),
                };
                WindowEntry::new(id, MessageKind::Original, &read, &self.current.counter)
            }));
        }
        let window = Window::of(entries, None, self.current.window.next_id());
        let in_force = InForce {
            number: self.current.history.facts.compactions,
            engine: BY_AGENT.to_owned(),
            window: window.save(hidden),
        };
        self.current.replace_window(window);
        self.settled = false;
        self.current.meter.forget_usage();
        self.current.history.set_in_force(Some(in_force));
        self.current.save();
    }
}

/// The hashes by which the agent's summary is recognised when the client sends it: in the form of
/// the log, and in the form that the agent sends, as a user message. `at` is its index in the whole
/// history.
fn identities(whole: &Conversation, at: usize) -> Vec<u128> {
    let Some(message) = whole.messages().get(at) else {
        return Vec::new();
    };
    let format = match whole.format() {
        Format::ClaudeCode => Format::Anthropic,
        _ => Format::OpenAiResponses,
    };
    let wire = formats::parse_messages(format, &[whole.item(message.items.start)]);
    let wire = wire.unwrap_or_default();
    let mut all = vec![formats::summary_identity(&message.text)];
    if let [sent] = wire.as_slice() {
        all.push(sent.identity);
    }
    all
}
