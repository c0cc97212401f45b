//! The window: what the model would see of a conversation now, message by message.
//!
//! [`Window`] is a list of entries ([`WindowEntry`]) with token counts. An engine sees it through
//! [`Window::views`], and [`Window::apply`] makes the next window from a proposal that was checked
//! against the contract. [`SavedWindow`] is its stored form.
//!
//! A window is immutable while others hold it. The session shares it as an `Arc` and copies it on
//! the first change. Which messages belong in a window after a request is decided in `next_window`.

use std::sync::Arc;

use contexture_engine_api::{
    Compaction, Entry, MessageId, MessageView, NOTICE_MARK, SUMMARY_MARK, ToolCallView,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{PlanEntry, sealed_notice};
use contexture_transcript::{EntryContent, IdMap, IdSet, SavedWindow};

use super::window_entry::{WindowEntry, marked};

/// What the model would see of a conversation now: unchanged messages and what compactions left of
/// others, each with the host's id and its token count.
///
/// A window has no format. [`Session::render_plan`](crate::Session::render_plan) prepares it for
/// one.
#[derive(Debug, Clone, Default)]
pub struct Window {
    entries: Vec<WindowEntry>,
    system_note: Option<String>,
    next_id: u64,
}

impl Window {
    /// A window of these entries. The next new message gets the id `next_id`.
    pub(super) fn of(entries: Vec<WindowEntry>, system_note: Option<String>, next_id: u64) -> Self {
        Self {
            entries,
            system_note,
            next_id,
        }
    }

    /// The stored form of the window. `left_out` are the messages of the conversation that it does
    /// not show.
    pub(super) fn save(&self, left_out: IdSet) -> SavedWindow {
        let place = |entry: &WindowEntry| (entry.id, EntryContent::clone(&entry.content));
        SavedWindow {
            places: self.entries.iter().map(place).collect(),
            system_note: self.system_note.clone(),
            states: (self.entries.iter())
                .filter_map(|entry| Some((entry.id, entry.state.as_deref()?.to_owned())))
                .collect(),
            left_out,
        }
    }

    /// Rebuilds the entries of a stored window. `messages` holds the text of its messages by id. If
    /// one is not among them, it is left out.
    pub(super) fn restore(
        saved: &SavedWindow,
        messages: &IdMap<WindowEntry>,
        counter: &TokenCounter,
    ) -> Vec<WindowEntry> {
        let states: IdMap<&str> = saved.state_texts().collect();
        let entries = saved
            .places
            .iter()
            .filter_map(|(id, content)| match content {
                EntryContent::Message => messages.get(id).cloned(),
                EntryContent::Replaced { .. } => {
                    Some(messages.get(id)?.clone().with_content(content.clone()))
                }
                EntryContent::Summary { .. } | EntryContent::Stub { .. } => {
                    Some(WindowEntry::put_in(*id, content.clone(), counter))
                }
            });
        entries
            .map(|entry| {
                let state = states.get(&entry.id).map(|state| Arc::from(*state));
                let state = state.or_else(|| entry.state.clone());
                entry.with_state(state)
            })
            .collect()
    }

    pub(super) fn push_entry(&mut self, entry: WindowEntry) {
        self.entries.push(entry);
    }

    pub(super) fn entries(&self) -> &[WindowEntry] {
        &self.entries
    }

    /// Raises the next id. It never falls, so that no id is given twice.
    pub(super) fn set_next_id(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Returns an id that no message of the session has had.
    pub(super) fn fresh_id(&mut self) -> MessageId {
        let id = MessageId(self.next_id);
        self.next_id += 1;
        id
    }

    /// The number of messages in the window, summaries and notices included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the window has no messages.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The tokens of all messages. The system prompt and the tools are not included. Messages that
    /// were not counted before are counted now.
    pub fn message_tokens(&self) -> u64 {
        self.entries.iter().map(WindowEntry::tokens).sum()
    }

    /// An upper bound of [`message_tokens`](Self::message_tokens) that needs no tokenising.
    pub(super) fn most_message_tokens(&self) -> u64 {
        self.entries.iter().map(WindowEntry::most_tokens).sum()
    }

    /// Whether the tokens of all messages are known.
    pub(super) fn is_counted(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| entry.tokens.get().is_some())
    }

    /// Adopts the token counts of messages that were counted in another window. The search needs
    /// rising ids: if the ids of the window do not rise, some messages are not found and are
    /// counted again.
    pub(super) fn learn_counts(&self, counted: &Self) {
        for entry in counted.entries.iter().filter(|entry| entry.is_verbatim()) {
            let place = self.entries.binary_search_by_key(&entry.id, |own| own.id);
            let own = place.ok().and_then(|at| self.entries.get(at));
            if let (Some(own), Some(tokens)) = (own, entry.tokens.get())
                && own.is_verbatim()
            {
                // The cell may be set already. The count is then the same.
                let _ = own.tokens.set(*tokens);
            }
        }
    }

    /// The text that a compaction wants appended to the system prompt, if any.
    pub fn system_note(&self) -> Option<&str> {
        self.system_note.as_deref()
    }

    /// The texts of its summaries, in order. Notices are not among them.
    pub fn summaries(&self) -> impl Iterator<Item = &str> {
        let entries = self.entries.iter().filter(|entry| !entry.is_notice());
        entries.filter_map(WindowEntry::summary)
    }

    /// The state that an engine stores with messages, as engines see it: the text of a JSON object
    /// for each message that has state.
    pub fn states(&self) -> impl Iterator<Item = (MessageId, &str)> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| Some((entry.id, entry.shown_state()?)))
    }

    /// Forgets all token counts. Used when the model changes, since each model counts with its own
    /// tokenizer.
    pub(crate) fn recount(&mut self, counter: &TokenCounter) {
        for entry in &mut self.entries {
            *entry = entry.clone().counted(counter);
        }
    }

    /// Whether any message was pruned and not compacted since.
    pub(super) fn is_pruned(&self) -> bool {
        self.entries.iter().any(WindowEntry::is_pruned)
    }

    /// The window as a summary is to read it, with pruned messages in full.
    pub(super) fn unpruned(&self) -> Self {
        let entries = self.entries.iter().map(WindowEntry::unpruned);
        Self::of(entries.collect(), self.system_note.clone(), self.next_id)
    }

    /// The window with these messages in full behind the shorter forms that it shows.
    pub(super) fn with_originals<'o>(
        &self,
        original: impl Fn(&WindowEntry) -> Option<&'o WindowEntry>,
    ) -> Self {
        let entries = self.entries.iter().map(|entry| match original(entry) {
            Some(original) => entry.as_shortened().moved_to(original),
            None => entry.clone(),
        });
        Self::of(entries.collect(), self.system_note.clone(), self.next_id)
    }

    /// Prunes again what a compaction left unchanged. The compaction was made from `before` with
    /// its pruned messages in full.
    pub(super) fn pruned_as(mut self, before: &Self) -> Self {
        let pruned: IdMap<&WindowEntry> = (before.entries.iter())
            .filter(|entry| entry.is_pruned())
            .map(|entry| (entry.id, entry))
            .collect();
        for entry in self.entries.iter_mut().filter(|entry| entry.is_verbatim()) {
            if let Some(pruned) = pruned.get(&entry.id) {
                *entry = (*pruned).clone();
            }
        }
        self
    }

    /// Marks the messages that were shortened since `before` as pruned, so that a later summary
    /// reads them in full.
    pub(super) fn pruned_from(self, before: &Self) -> Self {
        let was: IdMap<&WindowEntry> = before
            .entries
            .iter()
            .map(|entry| (entry.id, entry))
            .collect();
        let entries = self
            .entries
            .into_iter()
            .map(|entry| match was.get(&entry.id) {
                Some(old) if old.is_original() => entry.into_pruned(),
                _ => entry,
            });
        Self::of(entries.collect(), self.system_note, self.next_id)
    }

    /// The tool calls of all messages. They are a separate list because [`views`](Self::views)
    /// borrows from it.
    pub fn call_views(&self) -> Vec<ToolCallView<'_>> {
        let mut calls = Vec::new();
        for entry in &self.entries {
            let Some(message) = entry.message() else {
                continue;
            };
            for (index, call) in message.calls.iter().enumerate() {
                let arguments = entry.arguments_of(index).unwrap_or(&call.arguments);
                calls.push(ToolCallView::new(&call.id, &call.name, arguments));
            }
        }
        calls
    }

    /// All messages, as an engine sees them. `calls` must be what [`call_views`](Self::call_views)
    /// returned.
    pub fn views<'a>(&'a self, calls: &'a [ToolCallView<'a>]) -> Vec<MessageView<'a>> {
        self.views_of(calls, false)
    }

    /// All messages with the pins that the host wrote into summaries and notices, which an engine
    /// does not see.
    pub(super) fn whole_views<'a>(&'a self, calls: &'a [ToolCallView<'a>]) -> Vec<MessageView<'a>> {
        self.views_of(calls, true)
    }

    fn views_of<'a>(
        &'a self,
        calls: &'a [ToolCallView<'a>],
        is_whole: bool,
    ) -> Vec<MessageView<'a>> {
        let mut rest = calls;
        self.entries
            .iter()
            .map(|entry| {
                let count = entry.message().map_or(0, |message| message.calls.len());
                let (own, others) = rest.split_at(count.min(rest.len()));
                rest = others;
                entry.view(own, &self.entries, is_whole)
            })
            .collect()
    }

    /// Appends a text that is not a message of the conversation, under a new id.
    fn put_in(&mut self, content: EntryContent, counter: &TokenCounter) {
        let id = self.fresh_id();
        self.push_entry(WindowEntry::put_in(id, content, counter));
    }

    /// The window that a proposal makes of this one. The proposal must have passed the contract.
    /// `marks` are the text prefixes that the engine declares: a summary that begins with none of
    /// these gets the host's mark.
    pub(crate) fn apply(
        &self,
        proposal: &Compaction,
        marks: &[String],
        counter: &TokenCounter,
    ) -> Self {
        let position: IdMap<usize> = self
            .entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (entry.id, at))
            .collect();
        let before = |id: &MessageId| position.get(id).map(|at| &self.entries[*at]);
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
                    if let Some(kept) = before(id) {
                        next.entries.push(kept.clone());
                    }
                }
                Entry::Replace(replacement) => {
                    if let Some(old) = before(&replacement.id) {
                        let replaced = old.replaced(replacement, marks);
                        next.entries.push(replaced);
                    }
                }
                Entry::Restore(id) => {
                    if let Some(old) = before(id) {
                        next.entries.push(old.restored());
                    }
                }
                Entry::Summary(summary) => {
                    let content = EntryContent::Summary {
                        text: marked(&summary.text, SUMMARY_MARK, marks),
                        in_system_role: summary.in_system_role,
                    };
                    next.put_in(content, counter);
                }
                Entry::Notice(notice) => {
                    let content = EntryContent::Summary {
                        text: sealed_notice(&marked(&notice.text, NOTICE_MARK, marks)),
                        in_system_role: true,
                    };
                    next.put_in(content, counter);
                }
                Entry::StubResult(stub) => {
                    let content = EntryContent::Stub {
                        call: stub.call,
                        index: stub.index,
                        text: stub.text.clone(),
                    };
                    next.put_in(content, counter);
                }
                Entry::Drop(_) => {}
                // The contract refuses entries that this host does not know.
                _ => {}
            }
        }
        next
    }

    /// The window as entries of a render plan. `index_of` returns the index of an entry's message
    /// in the conversation to render. `is_short` tells whether the conversation has only a shorter
    /// form at that index. Messages that the conversation does not have are left out.
    pub(super) fn plan_entries(
        &self,
        index_of: impl Fn(&WindowEntry) -> Option<usize>,
        is_short: impl Fn(usize) -> bool,
    ) -> Vec<PlanEntry<'_>> {
        self.entries
            .iter()
            .filter_map(|entry| {
                Some(match &*entry.content {
                    EntryContent::Message => match (index_of(entry)?, entry.message()) {
                        // The message was restored, but the client only has its shorter form.
                        (index, Some(message)) if is_short(index) && entry.has_original() => {
                            PlanEntry::Replaced {
                                index,
                                text: Some(&message.text),
                                arguments: entry.own_arguments(),
                            }
                        }
                        (index, _) => PlanEntry::Message(index),
                    },
                    EntryContent::Replaced {
                        text, arguments, ..
                    } => PlanEntry::Replaced {
                        index: index_of(entry)?,
                        text: text.as_deref(),
                        arguments,
                    },
                    EntryContent::Summary {
                        text,
                        in_system_role,
                    } => PlanEntry::Summary {
                        text,
                        in_system_role: *in_system_role,
                    },
                    EntryContent::Stub { call, index, text } => PlanEntry::Stub {
                        message: self
                            .entries
                            .iter()
                            .find(|entry| entry.id == *call)
                            .and_then(&index_of)?,
                        call: *index,
                        text,
                    },
                })
            })
            .collect()
    }

    /// The entries in the order in which they are on the wire: a stub result follows the call that
    /// it answers.
    pub(super) fn leaving_order(&self) -> Vec<&WindowEntry> {
        let mut order: Vec<&WindowEntry> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_stub())
            .collect();
        for stub in self.entries.iter().rev() {
            let EntryContent::Stub { call, .. } = &*stub.content else {
                continue;
            };
            if let Some(at) = order.iter().position(|entry| entry.id == *call) {
                order.insert(at + 1, stub);
            }
        }
        order
    }
}
