//! The window: what the model would see of a conversation now, message by message.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::{
    Compaction, Entry, MessageId, MessageKind, MessageView, Replacement, SUMMARY_MARK,
    ShortArguments, ToolCallView,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::counting;
use crate::formats::{Conversation, Message, Place};
use crate::tokens::TokenCounter;

/// What stands in one place of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    /// A message as it came.
    Message,
    /// A shorter form of it.
    Replaced {
        text: Option<String>,
        arguments: Vec<ShortArguments>,
    },
    /// A summary.
    Summary { text: String },
    /// A made-up answer to a call.
    Stub {
        call: MessageId,
        index: usize,
        text: String,
    },
}

/// One place of the window. What it holds is shared, so that a copy of a window is cheap.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    id: MessageId,
    /// Where the message came from; for a summary or a stub, nowhere.
    source: Option<(Arc<Conversation>, usize)>,
    content: Arc<Content>,
    tokens: u64,
}

/// A window without the messages' own text: what of it survives a restart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SavedWindow {
    places: Vec<(MessageId, Content)>,
    system_note: Option<String>,
    next_id: u64,
}

impl SavedWindow {
    /// The ids of the places in it.
    pub(super) fn ids(&self) -> impl Iterator<Item = MessageId> {
        self.places.iter().map(|(id, _)| *id)
    }

    pub(super) fn system_note(&self) -> Option<&str> {
        self.system_note.as_deref()
    }

    /// Whether a message came after the window was saved.
    pub(super) fn predates(&self, id: MessageId) -> bool {
        id.0 >= self.next_id
    }

    /// Whether a message was there when the window was saved, and is not in it.
    pub(super) fn has_left_out(&self, id: MessageId) -> bool {
        !self.predates(id) && !self.ids().any(|place| place == id)
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

impl Slot {
    /// A message as it came.
    pub(super) fn new(
        id: MessageId,
        conversation: &Arc<Conversation>,
        index: usize,
        counter: &TokenCounter,
    ) -> Self {
        let mut slot = Self {
            id,
            source: Some((Arc::clone(conversation), index)),
            content: Arc::new(Content::Message),
            tokens: 0,
        };
        slot.tokens = slot.count(counter);
        slot
    }

    pub(super) fn id(&self) -> MessageId {
        self.id
    }

    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Whether it is a message as it came.
    pub(super) fn is_verbatim(&self) -> bool {
        *self.content == Content::Message
    }

    fn message(&self) -> Option<&Message> {
        let (conversation, index) = self.source.as_ref()?;
        conversation.messages().get(*index)
    }
}

/// What the model would see of a conversation: messages as they came and what compactions left,
/// each with the host's id and its token count.
#[derive(Debug, Clone, Default)]
pub struct Window {
    slots: Vec<Slot>,
    message_tokens: u64,
    system_note: Option<String>,
    next_id: u64,
}

impl Window {
    /// An empty window whose first message gets the id 1.
    pub fn new() -> Self {
        Self {
            next_id: 1,
            ..Self::default()
        }
    }

    /// Adds messages of a conversation at the end and counts their tokens. Gives back their ids.
    pub fn append(
        &mut self,
        conversation: &Arc<Conversation>,
        messages: std::ops::Range<usize>,
        counter: &TokenCounter,
    ) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(messages.len());
        for index in messages {
            let Some(message) = conversation.messages().get(index) else {
                break;
            };
            let tokens = counting::message_tokens(counter, conversation, message);
            ids.push(self.push(
                Some((Arc::clone(conversation), index)),
                Content::Message,
                tokens,
            ));
        }
        ids
    }

    fn push(
        &mut self,
        source: Option<(Arc<Conversation>, usize)>,
        content: Content,
        tokens: u64,
    ) -> MessageId {
        let id = self.fresh_id();
        self.message_tokens += tokens;
        self.slots.push(Slot {
            id,
            source,
            content: Arc::new(content),
            tokens,
        });
        id
    }

    /// A window of these places; the next new id is `next_id`.
    pub(super) fn of(slots: Vec<Slot>, system_note: Option<String>, next_id: u64) -> Self {
        Self {
            message_tokens: slots.iter().map(|slot| slot.tokens).sum(),
            slots,
            system_note,
            next_id,
        }
    }

    /// What of it survives a restart.
    pub(super) fn save(&self) -> SavedWindow {
        let place = |slot: &Slot| (slot.id, Content::clone(&slot.content));
        SavedWindow {
            places: self.slots.iter().map(place).collect(),
            system_note: self.system_note.clone(),
            next_id: self.next_id,
        }
    }

    /// A window as it was saved. `messages` holds its messages, or their revisions, by the ids that they
    /// had then; one that is not among them is left out.
    pub(super) fn restore(
        saved: &SavedWindow,
        messages: &HashMap<MessageId, Slot>,
        next_id: u64,
        counter: &TokenCounter,
    ) -> Self {
        let slots = saved.places.iter().filter_map(|(id, content)| {
            let mut slot = match content {
                Content::Message => return messages.get(id).cloned(),
                Content::Replaced { .. } => match messages.get(id)? {
                    same if same.id == *id => same.clone(),
                    revision => return Some(revision.clone()),
                },
                Content::Summary { .. } | Content::Stub { .. } => Slot {
                    id: *id,
                    source: None,
                    content: Arc::new(Content::Message),
                    tokens: 0,
                },
            };
            slot.content = Arc::new(content.clone());
            slot.tokens = slot.count(counter);
            Some(slot)
        });
        Self::of(slots.collect(), saved.system_note.clone(), next_id)
    }

    pub(super) fn push_slot(&mut self, slot: Slot) {
        self.message_tokens += slot.tokens;
        self.slots.push(slot);
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
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
        self.message_tokens
    }

    /// What a compaction wants appended to the system prompt.
    pub fn system_note(&self) -> Option<&str> {
        self.system_note.as_deref()
    }

    /// The last message's id.
    pub fn last_id(&self) -> Option<MessageId> {
        self.slots.last().map(|slot| slot.id)
    }

    /// The texts of the summaries in it.
    pub fn summaries(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter_map(|slot| match &*slot.content {
            Content::Summary { text } => Some(text.as_str()),
            Content::Message => slot
                .message()
                .filter(|message| message.is_summary())
                .map(|message| message.text.as_str()),
            _ => None,
        })
    }

    /// The tokens of the messages at the head that stand in both windows in the same form; at most
    /// `messages` are compared.
    pub fn shared_head_tokens(&self, other: &Self, messages: usize) -> u64 {
        self.slots
            .iter()
            .zip(&other.slots)
            .take(messages)
            .take_while(|(one, other)| one.reads_as(other))
            .map(|(slot, _)| slot.tokens)
            .sum()
    }

    /// Whether a message is, or was before a compaction, part of it.
    pub fn has_had(&self, id: MessageId) -> bool {
        id.0 < self.next_id
    }

    /// Continues the chain hash `chain` over the messages from the place `first` on.
    pub fn chain(&self, first: usize, chain: u64) -> u64 {
        self.slots.iter().skip(first).fold(chain, |chain, slot| {
            let identity = slot.message().map_or(0, |message| message.identity);
            chain_link(chain, slot.id, identity)
        })
    }

    /// Counts all of it again, for another model.
    pub fn recount(&mut self, counter: &TokenCounter) {
        self.message_tokens = 0;
        for slot in &mut self.slots {
            slot.tokens = slot.count(counter);
            self.message_tokens += slot.tokens;
        }
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

    /// The window that a checked proposal makes of this one.
    pub fn apply(&self, proposal: &Compaction, counter: &TokenCounter) -> Self {
        let position: HashMap<MessageId, usize> = self
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
                        next.message_tokens += kept.tokens;
                        next.slots.push(kept.clone());
                    }
                }
                Entry::Replace(replacement) => {
                    if let Some(old) = slot(&replacement.id) {
                        let replaced = old.replaced(replacement, counter);
                        next.message_tokens += replaced.tokens;
                        next.slots.push(replaced);
                    }
                }
                Entry::Summary { text, .. } => {
                    let text = marked(text);
                    let tokens = counting::text_tokens(counter, &text);
                    next.push(None, Content::Summary { text }, tokens);
                }
                Entry::StubResult { call, index, text } => {
                    let tokens = counting::text_tokens(counter, text);
                    let content = Content::Stub {
                        call: *call,
                        index: *index,
                        text: text.clone(),
                    };
                    next.push(None, content, tokens);
                }
                Entry::Drop { .. } => {}
            }
        }
        next
    }

    /// The window in the terms of the format that renders it. All of its messages must come from
    /// `conversation`; one that does not is left out.
    pub fn places(&self, conversation: &Arc<Conversation>) -> Vec<Place<'_>> {
        self.places_by(|slot| match &slot.source {
            Some((source, index)) if Arc::ptr_eq(source, conversation) => Some(*index),
            _ => None,
        })
    }

    /// The window in the terms of the format that renders it, where `index_of` says which message of the
    /// conversation to render a place holds.
    pub(super) fn places_by(&self, index_of: impl Fn(&Slot) -> Option<usize>) -> Vec<Place<'_>> {
        self.slots
            .iter()
            .filter_map(|slot| {
                Some(match &*slot.content {
                    Content::Message => Place::Message(index_of(slot)?),
                    Content::Replaced { text, arguments } => Place::Replaced {
                        index: index_of(slot)?,
                        text: text.as_deref(),
                        arguments,
                    },
                    Content::Summary { text } => Place::Summary { text },
                    Content::Stub { call, index, text } => Place::Stub {
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
}

impl Window {
    /// The ids of its places in the order in which they leave: a made-up answer follows its call.
    pub(super) fn leaving_order(&self) -> Vec<MessageId> {
        let is_stub = |slot: &&Slot| matches!(&*slot.content, Content::Stub { .. });
        let mut order: Vec<MessageId> = (self.slots.iter().filter(|slot| !is_stub(slot)))
            .map(|slot| slot.id)
            .collect();
        for stub in self.slots.iter().filter(is_stub).rev() {
            let Content::Stub { call, .. } = &*stub.content else {
                continue;
            };
            if let Some(at) = order.iter().position(|id| id == call) {
                order.insert(at + 1, stub.id);
            }
        }
        order
    }
}

impl Slot {
    /// Whether both are the same to a model. What the host puts in has a new id each time.
    fn reads_as(&self, other: &Self) -> bool {
        (self.source.is_none() || self.id == other.id)
            && (Arc::ptr_eq(&self.content, &other.content) || self.content == other.content)
    }

    fn raw(&self) -> &str {
        match &self.source {
            Some((conversation, index)) => conversation.raw(*index),
            None => "",
        }
    }

    fn arguments_of(&self, index: usize) -> Option<&str> {
        let Content::Replaced { arguments, .. } = &*self.content else {
            return None;
        };
        arguments
            .iter()
            .find(|short| short.index == index)
            .map(|short| short.arguments.as_str())
    }

    fn view<'a>(&'a self, calls: &'a [ToolCallView<'a>], window: &'a Window) -> MessageView<'a> {
        let view = match &*self.content {
            Content::Summary { text } => MessageView::new(self.id, "user")
                .with_text(text)
                .with_kind(MessageKind::Summary),
            Content::Stub { call, index, text } => {
                let answered = window
                    .slots
                    .iter()
                    .find(|slot| slot.id == *call)
                    .and_then(Slot::message)
                    .and_then(|message| message.calls.get(*index));
                let (id, name) = answered.map_or(("", ""), |call| (&call.id, &call.name));
                MessageView::new(self.id, "tool")
                    .with_text(text)
                    .with_result_of(id, name)
                    .with_kind(MessageKind::Replaced)
            }
            Content::Message | Content::Replaced { .. } => match self.message() {
                Some(message) => self.message_view(message, calls),
                None => MessageView::new(self.id, "user"),
            },
        };
        view.with_tokens(self.tokens)
    }

    fn message_view<'a>(
        &'a self,
        message: &'a Message,
        calls: &'a [ToolCallView<'a>],
    ) -> MessageView<'a> {
        let view = message.view(self.id, self.raw(), calls);
        match &*self.content {
            Content::Replaced { text, .. } => {
                let view = view.with_kind(MessageKind::Replaced);
                match text {
                    Some(text) => view.with_text(text),
                    None => view,
                }
            }
            _ => view,
        }
    }

    /// This place with a replacement in it. What an earlier replacement left stays where the new one
    /// says nothing.
    fn replaced(&self, replacement: &Replacement, counter: &TokenCounter) -> Self {
        let mut slot = self.clone();
        let content = match &*self.content {
            Content::Summary { text } => Content::Summary {
                text: replacement
                    .text
                    .as_deref()
                    .map_or_else(|| text.clone(), marked),
            },
            Content::Stub { call, index, text } => Content::Stub {
                call: *call,
                index: *index,
                text: replacement.text.clone().unwrap_or_else(|| text.clone()),
            },
            Content::Message => Content::Replaced {
                text: replacement.text.clone(),
                arguments: replacement.arguments.clone(),
            },
            Content::Replaced { text, arguments } => {
                let mut arguments = arguments.clone();
                arguments.retain(|old| {
                    !replacement
                        .arguments
                        .iter()
                        .any(|new| new.index == old.index)
                });
                arguments.extend(replacement.arguments.iter().cloned());
                Content::Replaced {
                    text: replacement.text.clone().or_else(|| text.clone()),
                    arguments,
                }
            }
        };
        slot.content = Arc::new(content);
        slot.tokens = slot.count(counter);
        slot
    }

    fn count(&self, counter: &TokenCounter) -> u64 {
        match (&*self.content, &self.source, self.message()) {
            (Content::Summary { text } | Content::Stub { text, .. }, _, _) => {
                counting::text_tokens(counter, text)
            }
            (Content::Message, Some((conversation, _)), Some(message)) => {
                counting::message_tokens(counter, conversation, message)
            }
            (Content::Replaced { text, arguments }, Some((conversation, _)), Some(message)) => {
                let text = text.as_deref();
                counting::replaced_tokens(counter, conversation, message, text, arguments)
            }
            _ => 0,
        }
    }
}

/// The chain hash `chain`, continued over a message.
pub(super) fn chain_link(chain: u64, id: MessageId, identity: u128) -> u64 {
    let mut hash = Xxh3::with_seed(chain);
    hash.update(&id.0.to_le_bytes());
    hash.update(&identity.to_le_bytes());
    hash.digest()
}

/// A summary's text with its mark.
fn marked(text: &str) -> String {
    if text.trim_start().starts_with(SUMMARY_MARK) {
        text.to_owned()
    } else {
        format!("{SUMMARY_MARK}\n{text}")
    }
}
