//! The numbered parts of an answer: content blocks in Messages, output items in Responses.
//!
//! [`OutputItems`] collects the items of the current round and hides the engine's calls among them.
//! The client must see indexes without gaps over all rounds, so [`OutputItems::shown_as`] maps the
//! provider's index of an item to the client's.
//!
//! When a round ends, [`OutputItems::end_round`] keeps the visible items in their complete form. A
//! JSON body is composed from them. How an item is assembled from events is decided by the readers
//! of the two APIs.

use std::collections::BTreeMap;

use serde_json::Value;

/// The items of an answer over all its rounds. `T` is the form in which an item of the current
/// round is collected, before it is complete.
#[derive(Debug)]
pub(super) struct OutputItems<T> {
    current: BTreeMap<u64, OutputItem<T>>,
    shown: Vec<Value>,
}

/// An item of the current round, complete or still being received.
#[derive(Debug)]
pub(super) struct OutputItem<T> {
    pub(super) value: T,
    /// Whether it is a call of one of the engine's tools, which the client does not see.
    pub(super) is_hidden: bool,
}

impl<T> Default for OutputItems<T> {
    fn default() -> Self {
        Self {
            current: BTreeMap::new(),
            shown: Vec::new(),
        }
    }
}

impl<T> OutputItems<T> {
    /// Adds an item of the current round. If an item with this index exists, it is replaced,
    /// because the final events repeat items in their complete form.
    pub(super) fn insert(&mut self, index: u64, value: T, is_hidden: bool) {
        self.current.insert(index, OutputItem { value, is_hidden });
    }

    /// The item of the current round with the provider's index, to append a delta. `None` if no
    /// event has begun such an item.
    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut OutputItem<T>> {
        self.current.get_mut(&index)
    }

    /// The items of the current round, to complete them.
    pub(super) fn current_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.current.values_mut().map(|item| &mut item.value)
    }

    /// The items of the current round with hidden ones, in the order of the provider's indexes.
    pub(super) fn current(&self) -> impl Iterator<Item = &OutputItem<T>> {
        self.current.values()
    }

    /// The items of earlier rounds that the client has received, in the order in which it received
    /// them.
    pub(super) fn shown(&self) -> &[Value] {
        &self.shown
    }

    /// The index that an item has for the client. None if the item is hidden.
    pub(super) fn shown_as(&self, index: u64) -> Option<u64> {
        if self.current.get(&index).is_some_and(|item| item.is_hidden) {
            return None;
        }
        let before = self.current.range(..index);
        let before = before.filter(|(_, item)| !item.is_hidden).count();
        Some((self.shown.len() + before) as u64)
    }

    /// Ends the round. Its visible items are converted with `finished` and added to those that the
    /// client has received. Hidden ones are dropped.
    pub(super) fn end_round(&mut self, finished: impl Fn(T) -> Value) {
        let items = std::mem::take(&mut self.current).into_values();
        let shown = items.filter(|item| !item.is_hidden);
        self.shown.extend(shown.map(|item| finished(item.value)));
    }
}
