//! The window: what the model would see of a conversation now, message by message.

use std::collections::BTreeMap;
use std::sync::Arc;

use contexture_engine_api::{
    Compaction, CurrentCompaction, Entry, MessageId, MessageView, NOTICE_MARK, SUMMARY_MARK,
    Shortened, ToolCallView,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{PlanEntry, sealed_notice, unsealed_notice, unsealed_short};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ids::IdMap;
use super::slot::{Content, Slot, marked};
use super::written::IdSet;

/// A window without the text of its messages: what is saved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedWindow {
    places: Vec<(MessageId, Content)>,
    system_note: Option<String>,
    /// What the engine keeps with messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    states: Vec<(MessageId, String)>,
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

    pub(super) fn places(&self) -> &[(MessageId, Content)] {
        &self.places
    }

    /// Whether something shorter stands in place of this message.
    pub(super) fn is_shortened(&self, id: MessageId) -> bool {
        let shortened = |(at, content): &(MessageId, Content)| {
            *at == id && matches!(content, Content::Replaced { .. })
        };
        self.places.iter().any(shortened)
    }

    /// What the engine keeps with messages.
    pub(super) fn states(&self) -> BTreeMap<MessageId, Map<String, Value>> {
        let states = self.states.iter();
        // They were objects when they came.
        states
            .map(|(id, state)| (*id, serde_json::from_str(state).unwrap_or_default()))
            .collect()
    }

    /// Sets this key to true in the states of shortened messages of which `is_meant` says so; answers which.
    pub(super) fn mark_states(
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

    /// This window in the form that an engine receives when a session is opened: the result of compaction `number` by
    /// `engine`.
    pub(super) fn as_current(&self, number: u64, engine: String) -> CurrentCompaction {
        let last = self.left_out.last().unwrap_or(MessageId(0));
        CurrentCompaction::new(number, engine, last)
            .summaries(self.summaries())
            .shortened(self.shortened())
    }

    /// The messages that the window holds in a shorter form or with an engine's state.
    fn shortened(&self) -> Vec<Shortened> {
        if self.states.is_empty() {
            return Vec::new();
        }
        let mut states = self.states();
        let places = self.places.iter();
        let shortened = places.filter_map(|(id, content)| {
            let Content::Replaced { text, .. } = content else {
                return None;
            };
            let state = Value::Object(states.remove(id)?);
            let shown = text.as_deref();
            let shown = shown.map(|text| unsealed_short(text).unwrap_or(text).to_owned());
            Some(Shortened::new(*id).text(shown).state(Some(state)))
        });
        shortened.collect()
    }

    /// The texts of the summaries in it.
    fn summaries(&self) -> Vec<String> {
        let texts = self.places.iter().filter_map(|(_, content)| match content {
            Content::Summary { text, .. } if unsealed_notice(text).is_none() => Some(text.clone()),
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
            states: (self.slots.iter())
                .filter_map(|slot| Some((slot.id, slot.state.as_deref()?.to_owned())))
                .collect(),
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
        let states: IdMap<&str> = (saved.states.iter())
            .map(|(id, state)| (*id, state.as_str()))
            .collect();
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
        slots
            .map(|slot| {
                let state = states.get(&slot.id).map(|state| Arc::from(*state));
                let state = state.or_else(|| slot.state.clone());
                slot.with_state(state)
            })
            .collect()
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
        let slots = self.slots.iter().filter(|slot| !slot.is_notice());
        slots.filter_map(Slot::summary)
    }

    /// What an engine keeps with messages of it: JSON objects as text.
    pub fn states(&self) -> impl Iterator<Item = (MessageId, &str)> {
        let slots = self.slots.iter();
        slots.filter_map(|slot| Some((slot.id, slot.shown_state()?)))
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

    /// The window that a checked proposal of an engine with these marks makes of this one.
    pub(crate) fn apply(
        &self,
        proposal: &Compaction,
        marks: &[String],
        counter: &TokenCounter,
    ) -> Self {
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
                        let replaced = old.replaced(replacement, marks, counter);
                        next.slots.push(replaced);
                    }
                }
                Entry::Restore(id) => {
                    if let Some(old) = slot(id) {
                        next.slots.push(old.restored(counter));
                    }
                }
                Entry::Summary(summary) => {
                    let content = Content::Summary {
                        text: marked(&summary.text, SUMMARY_MARK, marks),
                        in_system_role: summary.in_system_role,
                    };
                    next.put_in(content, counter);
                }
                Entry::Notice(notice) => {
                    let content = Content::Summary {
                        text: sealed_notice(&marked(&notice.text, NOTICE_MARK, marks)),
                        in_system_role: true,
                    };
                    next.put_in(content, counter);
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
    /// conversation to render a place holds, and `is_short` of which the conversation has a shorter form alone.
    pub(super) fn plan_entries(
        &self,
        index_of: impl Fn(&Slot) -> Option<usize>,
        is_short: impl Fn(usize) -> bool,
    ) -> Vec<PlanEntry<'_>> {
        self.slots
            .iter()
            .filter_map(|slot| {
                Some(match &*slot.content {
                    Content::Message => match (index_of(slot)?, slot.message()) {
                        // Restored, and the client does not have it any more.
                        (index, Some(message)) if is_short(index) && slot.has_original() => {
                            PlanEntry::Replaced {
                                index,
                                text: Some(&message.text),
                                arguments: slot.own_arguments(),
                            }
                        }
                        (index, _) => PlanEntry::Message(index),
                    },
                    Content::Replaced {
                        text, arguments, ..
                    } => PlanEntry::Replaced {
                        index: index_of(slot)?,
                        text: text.as_deref(),
                        arguments,
                    },
                    Content::Summary {
                        text,
                        in_system_role,
                    } => PlanEntry::Summary {
                        text,
                        in_system_role: *in_system_role,
                    },
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
