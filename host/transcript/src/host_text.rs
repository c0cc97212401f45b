//! What the host wrote in a session: summaries, notices, stub results and shorter forms of
//! messages.
//!
//! A client that continues from a rendered body sends these texts back. They are recognised by
//! their content hash, so the session does not take them for something that the user or the model
//! said. Each text also knows which messages it stands for.
//!
//! [`HostTexts`] is the index of all such texts, and [`HostText`] is one of them. [`IdSet`] stores
//! the covered messages, which are usually a few runs of consecutive ids.

use std::collections::HashMap;

use contexture_engine_api::MessageId;
use contexture_formats::summary_identity;

use crate::ids::IdMap;
use crate::message_log::Fingerprint;

/// A set of message ids, stored as sorted runs of consecutive ids: the first and the last of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct IdSet(Vec<(u64, u64)>);

impl IdSet {
    /// Whether the id is in the set.
    pub fn contains(&self, id: MessageId) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= id.0);
        let run = after.checked_sub(1).and_then(|at| self.0.get(at));
        run.is_some_and(|(_, last)| id.0 <= *last)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ids in rising order.
    pub fn iter(&self) -> impl Iterator<Item = MessageId> {
        let runs = self.0.iter();
        runs.flat_map(|(first, last)| (*first..=*last).map(MessageId))
    }

    /// The largest id. None if the set is empty.
    pub fn last(&self) -> Option<MessageId> {
        self.0.last().map(|(_, last)| MessageId(*last))
    }
}

impl FromIterator<MessageId> for IdSet {
    fn from_iter<T: IntoIterator<Item = MessageId>>(ids: T) -> Self {
        let mut sorted: Vec<u64> = ids.into_iter().map(|id| id.0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for id in sorted {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == id => *last = id,
                _ => runs.push((id, id)),
            }
        }
        Self(runs)
    }
}

/// A text that the host wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostText {
    /// The hash of its content, see [`Message::identity`](contexture_formats::Message::identity).
    pub identity: u128,
    /// The id of the text. For a shorter form, the id of the message.
    pub id: MessageId,
    /// Whether it is a shorter form of a message.
    pub shortens: bool,
    /// The messages that it stands for, including those under earlier summaries that it replaces.
    /// Empty for anything but a summary, and for a summary whose extent is not known.
    pub covers: IdSet,
}

impl HostText {
    /// The record of a summary. `covers` are the messages that it stands for.
    pub fn summary(id: MessageId, text: &str, covers: IdSet) -> Self {
        Self {
            identity: summary_identity(text),
            id,
            shortens: false,
            covers,
        }
    }

    /// The record of a shorter form of the message with this id. `fingerprint` is that of the form.
    pub fn short(id: MessageId, fingerprint: Fingerprint) -> Self {
        Self {
            identity: fingerprint.identity,
            id,
            shortens: true,
            covers: IdSet::default(),
        }
    }
}

/// All texts that the host wrote in a session, with indexes by content hash and by id.
#[derive(Debug, Clone, Default)]
pub struct HostTexts {
    texts: Vec<HostText>,
    by_identity: HashMap<u128, Vec<usize>>,
    by_id: IdMap<usize>,
}

impl HostTexts {
    /// Adds a text, unless it is there already. Returns whether it was added.
    pub fn add(&mut self, text: HostText) -> bool {
        let same = self.by_identity.entry(text.identity).or_default();
        if same.iter().any(|at| self.texts.get(*at) == Some(&text)) {
            return false;
        }
        same.push(self.texts.len());
        // A shorter form has the id of its message, and covers nothing that could be asked for.
        if !text.shortens {
            self.by_id.insert(text.id, self.texts.len());
        }
        self.texts.push(text);
        true
    }

    /// Renames messages in what the texts stand for: `new` has the new id of each old one. Returns
    /// the texts that changed.
    pub fn rename_covered(&mut self, new: &IdMap<MessageId>) -> Vec<HostText> {
        if new.is_empty() {
            return Vec::new();
        }
        let is_touched = |text: &&mut HostText| text.covers.iter().any(|id| new.contains_key(&id));
        let renamed = self.texts.iter_mut().filter(is_touched).map(|text| {
            let ids = text.covers.iter();
            text.covers = ids.map(|id| *new.get(&id).unwrap_or(&id)).collect();
            text.clone()
        });
        renamed.collect()
    }

    /// The texts with this content, the newest first. Usually there is at most one, but two
    /// messages may have the same shorter form.
    pub fn find(&self, identity: u128) -> impl Iterator<Item = &HostText> {
        let places = self.by_identity.get(&identity);
        let places = places.into_iter().flatten().rev();
        places.filter_map(|at| self.texts.get(*at))
    }

    /// The messages that the summary or stub result with this id stands for. None if the host wrote
    /// no such text.
    pub fn covers(&self, id: MessageId) -> Option<&IdSet> {
        let at = self.by_id.get(&id)?;
        self.texts.get(*at).map(|text| &text.covers)
    }
}
