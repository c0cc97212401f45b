//! The window as it is stored: which messages the model sees, which of them in a shorter form, and
//! which texts the host added.
//!
//! [`SavedWindow`] has the texts that the host wrote, and only the ids of the client's messages,
//! since the client sends their text again. [`EntryContent`] is what it shows for one id.

use std::collections::BTreeMap;

use contexture_engine_api::{CurrentCompaction, MessageId, ShortArguments, Shortened};
use contexture_formats::{unsealed_notice, unsealed_short};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::host_text::IdSet;

/// The engine name that is recorded for a compaction that the agent made itself. No engine has this
/// name.
pub const BY_AGENT: &str = "(agent)";

/// A window without the text of the client's messages, as the record stores it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SavedWindow {
    /// What the window shows, in order. The id is that of the message, or of the host's text.
    pub places: Vec<(MessageId, EntryContent)>,
    /// The text that is appended to the system prompt, if any.
    pub system_note: Option<String>,
    /// The state that the engine stores with messages, each as the text of a JSON object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<(MessageId, String)>,
    /// The messages of the conversation that the window does not show because they were summarised
    /// or dropped.
    pub left_out: IdSet,
}

impl SavedWindow {
    /// The state that the engine stores with messages, as the texts that it was stored as.
    pub fn state_texts(&self) -> impl Iterator<Item = (MessageId, &str)> {
        self.states.iter().map(|(id, state)| (*id, state.as_str()))
    }

    /// The ids of its entries, in order.
    pub fn ids(&self) -> impl Iterator<Item = MessageId> {
        self.places.iter().map(|(id, _)| *id)
    }

    /// Whether the window shows a shorter form of this message.
    pub fn is_shortened(&self, id: MessageId) -> bool {
        let shortened = |(at, content): &(MessageId, EntryContent)| {
            *at == id && matches!(content, EntryContent::Replaced { .. })
        };
        self.places.iter().any(shortened)
    }

    /// The state that the engine stores with messages, parsed, by message id.
    pub fn states(&self) -> BTreeMap<MessageId, Map<String, Value>> {
        let states = self.states.iter();
        // These were JSON objects when the engine sent them, so damage is the only reason for a
        // failure.
        states
            .map(|(id, state)| (*id, serde_json::from_str(state).unwrap_or_default()))
            .collect()
    }

    /// Sets `key` to true in the state of every shortened message that has state and for which
    /// `is_meant` is true. Returns the ids of these messages.
    pub fn mark_states(
        &mut self,
        key: &str,
        is_meant: impl Fn(MessageId) -> bool,
    ) -> Vec<MessageId> {
        let mut states = self.states();
        states.retain(|id, _| is_meant(*id) && self.is_shortened(*id));
        for (id, state) in &mut self.states {
            if let Some(marked) = states.get_mut(id) {
                marked.insert(key.to_owned(), Value::Bool(true));
                *state = Value::Object(marked.clone()).to_string();
            }
        }
        states.into_keys().collect()
    }

    /// This window in the form that an engine receives when a session is opened: the result of
    /// compaction `number` by `engine`.
    pub fn as_current(&self, number: u64, engine: String) -> CurrentCompaction {
        let last = self.left_out.last().unwrap_or(MessageId(0));
        CurrentCompaction::new(number, engine, last)
            .summaries(self.summaries())
            .shortened(self.shortened())
    }

    /// The shortened messages that have state of the engine, with the text that the model sees in
    /// their place.
    fn shortened(&self) -> Vec<Shortened> {
        if self.states.is_empty() {
            return Vec::new();
        }
        let mut states = self.states();
        let places = self.places.iter();
        let shortened = places.filter_map(|(id, content)| {
            let EntryContent::Replaced { text, .. } = content else {
                return None;
            };
            let state = Value::Object(states.remove(id)?);
            let shown = text.as_deref();
            let shown = shown.map(|text| unsealed_short(text).unwrap_or(text).to_owned());
            Some(Shortened::new(*id).text(shown).state(Some(state)))
        });
        shortened.collect()
    }

    /// The texts of its summaries. Notices are not among them.
    fn summaries(&self) -> Vec<String> {
        let texts = self.places.iter().filter_map(|(_, content)| match content {
            EntryContent::Summary { text, .. } if unsealed_notice(text).is_none() => {
                Some(text.clone())
            }
            _ => None,
        });
        texts.collect()
    }
}

/// What an entry of the window shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryContent {
    /// The message, unchanged.
    Message,
    /// A shorter form of the message.
    Replaced {
        /// The shorter text. None if only arguments were shortened.
        text: Option<String>,
        /// The shortened arguments of its calls.
        arguments: Vec<ShortArguments>,
        /// Whether it was only pruned. A later summary then reads the message unchanged.
        #[serde(default)]
        pruned: bool,
    },
    /// A summary, or a notice with its seal.
    Summary {
        /// The text as the model sees it, mark included.
        text: String,
        /// Whether it is sent in the role `system`.
        #[serde(default)]
        in_system_role: bool,
    },
    /// A stub result: text in place of the result of a call that has none.
    Stub {
        /// The message with the call.
        call: MessageId,
        /// The index of the call among the calls of that message.
        index: usize,
        /// The text in place of the result.
        text: String,
    },
}
