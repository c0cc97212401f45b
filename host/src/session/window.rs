//! The window: what the model would see of a conversation now, message by message.

use contexture_engine_api::{Compaction, Entry, MessageId, MessageView, ToolCallView};
use serde::{Deserialize, Serialize};

use super::ids::IdMap;
use super::slot::{Content, Slot, marked};
use super::written::IdSet;
use crate::formats::PlanEntry;
use crate::tokens::TokenCounter;

/// A window without the text of its messages: what is saved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedWindow {
    places: Vec<(MessageId, Content)>,
    system_note: Option<String>,
    /// The messages of the conversation that have no place in it: summarised or dropped.
    left_out: IdSet,
}

impl SavedWindow {
    /// The ids of the places in it.
    pub(super) fn ids(&self) -> impl Iterator<Item = MessageId> {
        self.places.iter().map(|(id, _)| *id)
    }

    pub(super) fn system_note(&self) -> Option<&str> {
        self.system_note.as_deref()
    }

    pub(super) fn left_out(&self) -> &IdSet {
        &self.left_out
    }

    /// The texts of the summaries in it.
    pub(super) fn summaries(&self) -> Vec<String> {
        let texts = self.places.iter().filter_map(|(_, content)| match content {
            Content::Summary { text } => Some(text.clone()),
            _ => None,
        });
        texts.collect()
    }
}

/// What the model would see of a conversation: unchanged messages and what compactions left,
/// each with the host's id and its token count.
#[derive(Debug, Clone, Default)]
pub struct Window {
    slots: Vec<Slot>,
    system_note: Option<String>,
    next_id: u64,
}

impl Window {
    /// An empty window whose first message gets the id 1.
    pub(crate) fn new() -> Self {
        Self {
            next_id: 1,
            ..Self::default()
        }
    }

    /// A window of these places; the next new id is `next_id`.
    pub(super) fn of(slots: Vec<Slot>, system_note: Option<String>, next_id: u64) -> Self {
        Self {
            slots,
            system_note,
            next_id,
        }
    }

    /// The window as it is saved; `left_out` are the messages that have no place in it.
    pub(super) fn save(&self, left_out: IdSet) -> SavedWindow {
        let place = |slot: &Slot| (slot.id, Content::clone(&slot.content));
        SavedWindow {
            places: self.slots.iter().map(place).collect(),
            system_note: self.system_note.clone(),
            left_out,
        }
    }

    /// The places of a window as it was saved. `messages` holds its messages; one that is not among them is
    /// left out.
    pub(super) fn restore(
        saved: &SavedWindow,
        messages: &IdMap<Slot>,
        counter: &TokenCounter,
    ) -> Vec<Slot> {
        let slots = saved
            .places
            .iter()
            .filter_map(|(id, content)| match content {
                Content::Message => messages.get(id).cloned(),
                Content::Replaced { .. } => Some(
                    messages
                        .get(id)?
                        .clone()
                        .with_content(content.clone(), counter),
                ),
                Content::Summary { .. } | Content::Stub { .. } => {
                    Some(Slot::put_in(*id, content.clone(), counter))
                }
            });
        slots.collect()
    }

    pub(super) fn push_slot(&mut self, slot: Slot) {
        self.slots.push(slot);
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Gives its messages the new ids that `renamed` has for them.
    pub(super) fn rename(&mut self, renamed: &IdMap<MessageId>) {
        for slot in &mut self.slots {
            if let Some(new) = renamed.get(&slot.id) {
                slot.id = *new;
            }
        }
    }

    pub(super) fn set_next_id(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    pub(super) fn fresh_id(&mut self) -> MessageId {
        let id = MessageId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Messages in the window.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether it holds no message.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The tokens of its messages; system prompt and tools are not among them.
    pub fn message_tokens(&self) -> u64 {
        self.slots.iter().map(Slot::tokens).sum()
    }

    /// An upper bound of that, without tokenising.
    pub(super) fn most_message_tokens(&self) -> u64 {
        self.slots.iter().map(Slot::most_tokens).sum()
    }

    /// Whether all of its messages are counted.
    pub(super) fn is_counted(&self) -> bool {
        self.slots.iter().all(|slot| slot.tokens.get().is_some())
    }

    /// Takes over the counts of messages that were counted elsewhere. Where the ids do not rise, some are counted
    /// again.
    pub(super) fn learn_counts(&self, counted: &Self) {
        for slot in counted.slots.iter().filter(|slot| slot.is_verbatim()) {
            let place = self.slots.binary_search_by_key(&slot.id, |own| own.id);
            let own = place.ok().and_then(|at| self.slots.get(at));
            if let (Some(own), Some(tokens)) = (own, slot.tokens.get())
                && own.is_verbatim()
            {
                // One that is counted already has the same count.
                let _ = own.tokens.set(*tokens);
            }
        }
    }

    /// What a compaction wants appended to the system prompt.
    pub fn system_note(&self) -> Option<&str> {
        self.system_note.as_deref()
    }

    /// The texts of the summaries in it.
    pub fn summaries(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter_map(Slot::summary)
    }

    /// Counts all of it again, for another model.
    pub(crate) fn recount(&mut self, counter: &TokenCounter) {
        for slot in &mut self.slots {
            *slot = slot.clone().counted(counter);
        }
    }

    /// Whether any message was only pruned.
    pub(super) fn is_pruned(&self) -> bool {
        self.slots.iter().any(Slot::is_pruned)
    }

    /// The window as a summary reads it: pruned messages in full.
    pub(super) fn unpruned(&self, counter: &TokenCounter) -> Self {
        let slots = self.slots.iter();
        let slots = slots.map(|slot| slot.unpruned(counter).unwrap_or_else(|| slot.clone()));
        Self::of(slots.collect(), self.system_note.clone(), self.next_id)
    }

    /// This window, made of `before` read unpruned: what stayed as it was stays pruned.
    pub(super) fn pruned_as(mut self, before: &Self) -> Self {
        let pruned: IdMap<&Slot> = (before.slots.iter())
            .filter(|slot| slot.is_pruned())
            .map(|slot| (slot.id, slot))
            .collect();
        for slot in self.slots.iter_mut().filter(|slot| slot.is_verbatim()) {
            if let Some(pruned) = pruned.get(&slot.id) {
                *slot = (*pruned).clone();
            }
        }
        Self::of(self.slots, self.system_note, self.next_id)
    }

    /// This window, with what is new in it against `before` marked as pruned.
    pub(super) fn pruned_from(self, before: &Self) -> Self {
        let was: IdMap<&Slot> = before.slots.iter().map(|slot| (slot.id, slot)).collect();
        let slots = self.slots.into_iter().map(|slot| match was.get(&slot.id) {
            Some(old) if old.is_original() => slot.into_pruned(),
            _ => slot,
        });
        Self::of(slots.collect(), self.system_note, self.next_id)
    }

    /// The calls of the messages from the place `first` on, for [`views`](Self::views).
    pub fn call_views(&self, first: usize) -> Vec<ToolCallView<'_>> {
        let mut calls = Vec::new();
        for slot in self.slots.iter().skip(first) {
            let Some(message) = slot.message() else {
                continue;
            };
            for (index, call) in message.calls.iter().enumerate() {
                let arguments = slot.arguments_of(index).unwrap_or(&call.arguments);
                calls.push(ToolCallView::new(&call.id, &call.name, arguments));
            }
        }
        calls
    }

    /// The messages from the place `first` on as an engine sees them. `calls` is what
    /// [`call_views`](Self::call_views) gave for the same place.
    pub fn views<'a>(
        &'a self,
        first: usize,
        calls: &'a [ToolCallView<'a>],
    ) -> Vec<MessageView<'a>> {
        let mut rest = calls;
        self.slots
            .iter()
            .skip(first)
            .map(|slot| {
                let count = slot.message().map_or(0, |message| message.calls.len());
                let (own, others) = rest.split_at(count.min(rest.len()));
                rest = others;
                slot.view(own, self)
            })
            .collect()
    }

    fn put_in(&mut self, content: Content, counter: &TokenCounter) {
        let id = self.fresh_id();
        self.push_slot(Slot::put_in(id, content, counter));
    }

    /// The window that a checked proposal makes of this one.
    pub(crate) fn apply(&self, proposal: &Compaction, counter: &TokenCounter) -> Self {
        let position: IdMap<usize> = self
            .slots
            .iter()
            .enumerate()
            .map(|(at, slot)| (slot.id, at))
            .collect();
        let slot = |id: &MessageId| position.get(id).map(|at| &self.slots[*at]);
        let mut next = Self {
            next_id: self.next_id,
            system_note: proposal
                .system_note
                .clone()
                .or_else(|| self.system_note.clone()),
            ..Self::default()
        };
        for entry in &proposal.entries {
            match entry {
                Entry::Keep(id) => {
                    if let Some(kept) = slot(id) {
                        next.slots.push(kept.clone());
                    }
                }
                Entry::Replace(replacement) => {
                    if let Some(old) = slot(&replacement.id) {
                        let replaced = old.replaced(replacement, counter);
                        next.slots.push(replaced);
                    }
                }
                Entry::Summary(summary) => {
                    let text = marked(&summary.text);
                    next.put_in(Content::Summary { text }, counter);
                }
                Entry::StubResult(stub) => {
                    let content = Content::Stub {
                        call: stub.call,
                        index: stub.index,
                        text: stub.text.clone(),
                    };
                    next.put_in(content, counter);
                }
                Entry::Drop(_) => {}
                // The contract has refused what this host does not know.
                _ => {}
            }
        }
        next
    }

    /// The window in the terms of the format that renders it, where `index_of` says which message of the
    /// conversation to render a place holds.
    pub(super) fn plan_entries(
        &self,
        index_of: impl Fn(&Slot) -> Option<usize>,
    ) -> Vec<PlanEntry<'_>> {
        self.slots
            .iter()
            .filter_map(|slot| {
                Some(match &*slot.content {
                    Content::Message => PlanEntry::Message(index_of(slot)?),
                    Content::Replaced {
                        text, arguments, ..
                    } => PlanEntry::Replaced {
                        index: index_of(slot)?,
                        text: text.as_deref(),
                        arguments,
                    },
                    Content::Summary { text } => PlanEntry::Summary { text },
                    Content::Stub { call, index, text } => PlanEntry::Stub {
                        message: self
                            .slots
                            .iter()
                            .find(|slot| slot.id == *call)
                            .and_then(&index_of)?,
                        call: *index,
                        text,
                    },
                })
            })
            .collect()
    }

    /// Its places in the order in which they leave: a made-up answer follows its call.
    pub(super) fn leaving_order(&self) -> Vec<&Slot> {
        let mut order: Vec<&Slot> = self.slots.iter().filter(|slot| !slot.is_stub()).collect();
        for stub in self.slots.iter().rev() {
            let Content::Stub { call, .. } = &*stub.content else {
                continue;
            };
            if let Some(at) = order.iter().position(|slot| slot.id == *call) {
                order.insert(at + 1, stub);
            }
        }
        order
    }
}
