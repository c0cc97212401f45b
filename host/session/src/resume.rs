//! Restores the window with which an agent would continue after a compaction that it made itself. It is read from the
//! agent's log, so there is no need to guess by comparing texts.

use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind};
use contexture_formats::{self as formats, Conversation, Format, Resumed};

use super::ids::IdMap;
use super::record::InForce;
use super::request::ReadMessage;
use super::slot::{Content, Slot};
use super::window::Window;
use super::written::{IdSet, WrittenText};
use super::{Session, SessionError};

/// The engine name that is recorded for a compaction made by the agent itself. No engine has this name.
pub(super) const BY_AGENT: &str = "(agent)";

impl Session {
    /// Continues where the agent of this log would. The previous turn ingested `whole`, the whole history of the log
    /// ([`Conversation::whole`]). `window` is the conversation that the log was read as. Messages that the agent
    /// compacted away stay part of the conversation, and the agent's summary replaces them in the window. If a
    /// compaction in force already leaves them out, it stays. Returns whether the window changed.
    ///
    /// # Errors
    /// None at present.
    pub fn resume_log(
        &mut self,
        window: &Conversation,
        whole: &Arc<Conversation>,
    ) -> Result<bool, SessionError> {
        let ids: Vec<MessageId> = (self.history.sent.units.iter())
            .take(whole.messages().len())
            .map(|unit| unit.origin.id())
            .collect();
        let resumed = window.resumed(whole);
        let stays: super::Ids = (resumed.iter())
            .filter_map(|place| match place {
                Resumed::Message(at) => ids.get(*at).copied(),
                Resumed::Summary(_) => None,
            })
            .collect();
        let hidden: Vec<MessageId> = (ids.iter().copied())
            .filter(|id| !stays.contains(id))
            .collect();
        let is_left_out = |id: &MessageId| {
            let in_force = self.history.in_force();
            in_force.is_some_and(|in_force| in_force.window.left_out().contains(*id))
        };
        if hidden.iter().all(is_left_out) {
            return Ok(false);
        }
        let hidden: IdSet = hidden.into_iter().collect();
        let known: IdMap<Slot> = (self.window.slots().iter())
            .filter(|slot| slot.is_verbatim())
            .map(|slot| (slot.id(), slot.clone()))
            .collect();
        let mut slots = Vec::with_capacity(resumed.len());
        for place in resumed {
            let (Resumed::Message(at) | Resumed::Summary(at)) = place;
            let Some(message) = whole.messages().get(at) else {
                continue;
            };
            if let Resumed::Summary(_) = place {
                let id = Arc::make_mut(&mut self.window).fresh_id();
                for identity in identities(whole, at) {
                    self.history.write(WrittenText {
                        identity,
                        id,
                        shortens: false,
                        covers: hidden.clone(),
                    });
                }
                let content = Content::Summary {
                    text: message.text.clone(),
                    in_system_role: false,
                };
                slots.push(Slot::put_in(id, content, &self.counter));
                continue;
            }
            let Some(id) = ids.get(at).copied() else {
                continue;
            };
            let read = || ReadMessage {
                conversation: Arc::clone(whole),
                index: at,
                wires: message.items.clone(),
            };
            let slot = known.get(&id).cloned();
            slots.push(
                slot.unwrap_or_else(|| {
                    Slot::new(id, MessageKind::Original, &read(), &self.counter)
                }),
            );
        }
        let window = Window::of(slots, None, self.window.next_id());
        let in_force = InForce {
            number: self.history.compactions,
            engine: BY_AGENT.to_owned(),
            window: window.save(hidden),
        };
        self.window = Arc::new(window);
        self.layout = None;
        self.settled = false;
        self.reported = None;
        self.history.set_in_force(Some(in_force));
        self.save();
        Ok(true)
    }
}

/// The hashes that identify the agent's summary, a message of the whole history, when it comes back: in the form of the
/// log, and in the form that the agent sends, as a user message.
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
