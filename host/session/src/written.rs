//! What the host wrote, by the hash of what it wrote: summaries, made-up results and shorter forms. A client
//! that sends one of them back sends nothing that anybody said.

use std::collections::HashMap;

use contexture_engine_api::MessageId;

use super::ids::IdMap;

/// A set of ids, as runs of neighbours: (first, last).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct IdSet(Vec<(u64, u64)>);

impl IdSet {
    pub(super) fn contains(&self, id: MessageId) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= id.0);
        let run = after.checked_sub(1).and_then(|at| self.0.get(at));
        run.is_some_and(|(_, last)| id.0 <= *last)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with the new ids that `renamed` has for some.
    pub(super) fn renamed(&self, renamed: &IdMap<MessageId>) -> Self {
        let new = |id: MessageId| renamed.get(&id).copied().unwrap_or(id);
        self.iter().map(new).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = MessageId> {
        let runs = self.0.iter();
        runs.flat_map(|(first, last)| (*first..=*last).map(MessageId))
    }

    pub(super) fn last(&self) -> Option<MessageId> {
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

/// Something that the host wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenText {
    /// The hash of its content, see [`Message::identity`](contexture_formats::Message::identity).
    pub(super) identity: u128,
    /// The id of what the host put in; of a shorter form, that of the message.
    pub(super) id: MessageId,
    /// Whether it is a shorter form of a message.
    pub(super) shortens: bool,
    /// The messages that it stands for, those of earlier summaries under it included.
    pub(super) covers: IdSet,
}

/// All that the host wrote in a session.
#[derive(Debug, Default)]
pub(super) struct Written {
    texts: Vec<WrittenText>,
    by_identity: HashMap<u128, Vec<usize>>,
    by_id: IdMap<usize>,
}

impl Written {
    /// Whether something of it that was written after this message may stand for messages of which nothing is known.
    pub(super) fn covers_unknown_since(&self, first: Option<MessageId>) -> bool {
        let mut texts = self.texts.iter();
        texts.any(|text| !text.shortens && text.covers.is_empty() && Some(text.id) > first)
    }

    /// Adds a text, unless it is there already; says whether it was added.
    pub(super) fn add(&mut self, text: WrittenText) -> bool {
        let same = self.by_identity.entry(text.identity).or_default();
        if same.iter().any(|at| self.texts.get(*at) == Some(&text)) {
            return false;
        }
        same.push(self.texts.len());
        if !text.shortens {
            self.by_id.insert(text.id, self.texts.len());
        }
        self.texts.push(text);
        true
    }

    /// What the host wrote with this content, the newest first.
    pub(super) fn find(&self, identity: u128) -> impl Iterator<Item = &WrittenText> {
        let places = self.by_identity.get(&identity);
        let places = places.into_iter().flatten().rev();
        places.filter_map(|at| self.texts.get(*at))
    }

    /// What the summary or made-up result of this id stands for; none for an id that is not the host's.
    pub(super) fn covers(&self, id: MessageId) -> Option<&IdSet> {
        let at = self.by_id.get(&id)?;
        self.texts.get(*at).map(|text| &text.covers)
    }

    /// The hash of the shorter form of this message that was written last.
    pub(super) fn last_short_form(&self, id: MessageId) -> Option<u128> {
        let mut newest = self.texts.iter().rev();
        let text = newest.find(|text| text.shortens && text.id == id)?;
        Some(text.identity)
    }

    pub(super) fn all(&self) -> &[WrittenText] {
        &self.texts
    }

    /// Gives messages the new ids that `renamed` has for them.
    pub(super) fn rename(&mut self, renamed: &IdMap<MessageId>) {
        for text in &mut self.texts {
            text.id = renamed.get(&text.id).copied().unwrap_or(text.id);
            text.covers = text.covers.renamed(renamed);
        }
    }
}
