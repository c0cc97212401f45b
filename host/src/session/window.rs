//! The window: what the model would see of a conversation now, message by message.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use contexture_engine_api::{
    Compaction, Entry, MessageId, MessageKind, MessageView, Replacement, SUMMARY_MARK,
    ShortArguments, TokenSource, ToolCallView,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::counting;
use super::request::ReadMessage;
use super::written::IdSet;
use crate::formats::{
    Conversation, Message, PlanEntry, sealed_short, sealed_summary, unsealed_short,
};
use crate::tokens::TokenCounter;

/// So few bytes make a token hardly anywhere: less only in texts of single symbols.
const BYTES_A_TOKEN: u64 = 2;

/// More than a message or a call costs beside its text.
const FRAME_TOKENS: u64 = 16;

/// What one position of the window shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    /// A message as it came.
    Message,
    /// A shorter form of it.
    Replaced {
        text: Option<String>,
        arguments: Vec<ShortArguments>,
        /// Whether it was pruned alone: a later summary reads the message as it came.
        #[serde(default)]
        pruned: bool,
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

/// What the places of messages as they came share.
static AS_IT_CAME: LazyLock<Arc<Content>> = LazyLock::new(|| Arc::new(Content::Message));

/// One place of the window. What it holds is shared, so that a copy of a window is cheap.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    id: MessageId,
    kind: MessageKind,
    /// Where the message came from; for a summary or a stub, nowhere.
    source: Option<(Arc<Conversation>, usize)>,
    content: Arc<Content>,
    counter: TokenCounter,
    /// Counted when somebody first asks.
    tokens: OnceLock<u64>,
}

/// A window without the messages' own text: what of it survives a restart.
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

impl Slot {
    /// A message as it came.
    pub(super) fn new(
        id: MessageId,
        kind: MessageKind,
        read: &ReadMessage,
        counter: &TokenCounter,
    ) -> Self {
        let (source, content) = match (kind, read.message()) {
            (MessageKind::Summary, Some(message)) => {
                let text = message.text.clone();
                (None, Arc::new(Content::Summary { text }))
            }
            _ => {
                let source = (Arc::clone(&read.conversation), read.index);
                (Some(source), Arc::clone(&AS_IT_CAME))
            }
        };
        Self {
            id,
            kind,
            source,
            content,
            counter: *counter,
            tokens: OnceLock::new(),
        }
    }

    /// The same, to be counted anew by `counter`.
    fn counted(self, counter: &TokenCounter) -> Self {
        Self {
            counter: *counter,
            tokens: OnceLock::new(),
            ..self
        }
    }

    pub(super) fn id(&self) -> MessageId {
        self.id
    }

    /// The message as it came, where it was only pruned.
    fn unpruned(&self, counter: &TokenCounter) -> Option<Self> {
        let is_pruned = matches!(*self.content, Content::Replaced { pruned: true, .. });
        is_pruned.then(|| {
            let content = Arc::new(Content::Message);
            Self {
                content,
                ..self.clone()
            }
            .counted(counter)
        })
    }

    /// The same as what pruning left of it.
    fn into_pruned(mut self) -> Self {
        if let Content::Replaced {
            text, arguments, ..
        } = &*self.content
        {
            self.content = Arc::new(Content::Replaced {
                text: text.clone(),
                arguments: arguments.clone(),
                pruned: true,
            });
        }
        self
    }

    /// The same under another id.
    pub(super) fn renamed(self, id: MessageId) -> Self {
        Self { id, ..self }
    }

    /// What it costs in the prompt.
    pub(super) fn tokens(&self) -> u64 {
        *self.tokens.get_or_init(|| self.count(&self.counter))
    }

    /// What it costs at most, as far as that is known without counting.
    pub(super) fn most_tokens(&self) -> u64 {
        match (self.tokens.get(), self.message()) {
            (Some(tokens), _) => *tokens,
            (None, Some(message)) if message.media.is_empty() => {
                let arguments = message.calls.iter().map(|call| call.arguments.len());
                let bytes = message.text.len()
                    + message.thinking.len()
                    + message.opaque.len()
                    + arguments.sum::<usize>();
                bytes as u64 / BYTES_A_TOKEN + FRAME_TOKENS * (1 + message.calls.len() as u64)
            }
            (None, _) => self.tokens(),
        }
    }

    /// Whether it is a message as it came.
    pub(super) fn is_verbatim(&self) -> bool {
        *self.content == Content::Message
    }

    pub(super) fn is_summary(&self) -> bool {
        matches!(*self.content, Content::Summary { .. })
    }

    pub(super) fn is_stub(&self) -> bool {
        matches!(*self.content, Content::Stub { .. })
    }

    /// The text of a summary.
    pub(super) fn summary(&self) -> Option<&str> {
        match &*self.content {
            Content::Summary { text } => Some(text),
            _ => None,
        }
    }

    /// The same place for another form of its message; what a compaction made of it stays.
    pub(super) fn moved_to(&self, message: &Self, counter: &TokenCounter) -> Self {
        Self {
            content: Arc::clone(&self.content),
            ..message.clone()
        }
        .counted(counter)
    }

    /// Whether it is somebody's message as it came.
    pub(super) fn is_original(&self) -> bool {
        self.is_verbatim() && self.kind == MessageKind::Original
    }

    /// Whether it is a message of the user's own that says something.
    pub(super) fn is_real_user(&self) -> bool {
        self.is_original()
            && self.message().is_some_and(|message| {
                let says_something = !message.text.trim().is_empty() || !message.media.is_empty();
                message.role == "user" && says_something
            })
    }

    /// Whether a message that was read of what was handed out may be this one.
    pub(super) fn may_be(&self, read: &Message) -> bool {
        let same_place = |own: &Message| {
            own.role == read.role
                && own.tool_call_id == read.tool_call_id
                && own.calls.len() == read.calls.len()
        };
        match &*self.content {
            Content::Summary { text } => read.is_summary() && read.text.trim() == text.trim(),
            Content::Stub { text, .. } => read.tool_call_id.is_some() && read.text == *text,
            Content::Message => self
                .message()
                .is_some_and(|own| own.identity == read.identity),
            Content::Replaced { .. } => self.message().is_some_and(same_place),
        }
    }

    /// The wire messages that its message stands in, as they are remembered.
    pub(super) fn wire(&self) -> Option<SourceWire<'_>> {
        let (conversation, _) = self.source.as_ref()?;
        let message = self.message()?;
        let shares = |other: &&Message| other.items == message.items;
        let sharers: Vec<&Message> = conversation.messages().iter().filter(shares).collect();
        Some(SourceWire {
            key: (Arc::as_ptr(conversation) as usize, message.items.start),
            texts: message
                .items
                .clone()
                .map(|item| conversation.item(item))
                .collect(),
            place: sharers
                .iter()
                .position(|other| std::ptr::eq(*other, message))?,
            views: sharers.len(),
        })
    }

    pub(super) fn message(&self) -> Option<&Message> {
        let (conversation, index) = self.source.as_ref()?;
        conversation.messages().get(*index)
    }
}

/// The wire messages of one message, with all that stands in them.
pub(super) struct SourceWire<'a> {
    /// The same for all messages in them.
    pub(super) key: (usize, usize),
    pub(super) texts: Vec<&'a str>,
    /// Which of the messages in them it is.
    pub(super) place: usize,
    /// How many messages are in them.
    pub(super) views: usize,
}

/// What the model would see of a conversation: messages as they came and what compactions left,
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

    /// What of it survives a restart; `left_out` is what has no place in it.
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
        messages: &HashMap<MessageId, Slot>,
        counter: &TokenCounter,
    ) -> Vec<Slot> {
        let slots = saved.places.iter().filter_map(|(id, content)| {
            let slot = match content {
                Content::Message => return messages.get(id).cloned(),
                Content::Replaced { .. } => messages.get(id)?.clone(),
                Content::Summary { .. } | Content::Stub { .. } => Slot {
                    id: *id,
                    kind: MessageKind::Summary,
                    source: None,
                    content: Arc::clone(&AS_IT_CAME),
                    counter: *counter,
                    tokens: OnceLock::new(),
                },
            };
            let content = Arc::new(content.clone());
            Some(Slot { content, ..slot }.counted(counter))
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
    pub(super) fn rename(&mut self, renamed: &HashMap<MessageId, MessageId>) {
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

    /// What they are at most, as far as that is known without counting.
    pub(super) fn most_message_tokens(&self) -> u64 {
        self.slots.iter().map(Slot::most_tokens).sum()
    }

    /// Whether all of its messages are counted.
    pub(super) fn is_counted(&self) -> bool {
        self.slots.iter().all(|slot| slot.tokens.get().is_some())
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

    /// The window as a summary is to read it: with what was only pruned as it came.
    pub(super) fn unpruned(&self, counter: &TokenCounter) -> Self {
        let slots = self.slots.iter();
        let slots = slots.map(|slot| slot.unpruned(counter).unwrap_or_else(|| slot.clone()));
        Self::of(slots.collect(), self.system_note.clone(), self.next_id)
    }

    /// This window, made of `before` read unpruned: what stayed as it was stays pruned.
    pub(super) fn pruned_as(mut self, before: &Self) -> Self {
        let pruned: HashMap<MessageId, &Slot> = (before.slots.iter())
            .filter(|slot| matches!(*slot.content, Content::Replaced { pruned: true, .. }))
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
        let was: HashMap<MessageId, &Slot> =
            before.slots.iter().map(|slot| (slot.id, slot)).collect();
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
        let slot = Slot {
            id: self.fresh_id(),
            kind: MessageKind::Summary,
            source: None,
            content: Arc::new(content),
            counter: *counter,
            tokens: OnceLock::new(),
        };
        self.push_slot(slot);
    }

    /// The window that a checked proposal makes of this one.
    pub(crate) fn apply(&self, proposal: &Compaction, counter: &TokenCounter) -> Self {
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
                        next.slots.push(kept.clone());
                    }
                }
                Entry::Replace(replacement) => {
                    if let Some(old) = slot(&replacement.id) {
                        let replaced = old.replaced(replacement, counter);
                        next.slots.push(replaced);
                    }
                }
                Entry::Summary { text, .. } => {
                    let text = marked(text);
                    next.put_in(Content::Summary { text }, counter);
                }
                Entry::StubResult { call, index, text } => {
                    let content = Content::Stub {
                        call: *call,
                        index: *index,
                        text: text.clone(),
                    };
                    next.put_in(content, counter);
                }
                Entry::Drop { .. } => {}
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
}

impl Window {
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

impl Slot {
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
        match self.tokens.get() {
            Some(tokens) => view.with_tokens(*tokens),
            None => view.with_token_source(self),
        }
    }

    fn message_view<'a>(
        &'a self,
        message: &'a Message,
        calls: &'a [ToolCallView<'a>],
    ) -> MessageView<'a> {
        let view = message
            .view(self.id, self.raw(), calls)
            .with_kind(self.kind);
        match &*self.content {
            Content::Replaced { text, .. } => {
                let view = view.with_kind(MessageKind::Replaced);
                match text {
                    Some(text) => view.with_text(unsealed_short(text).unwrap_or(text)),
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
                text: replacement.text.as_deref().map(sealed_short),
                arguments: replacement.arguments.clone(),
                pruned: false,
            },
            Content::Replaced {
                text, arguments, ..
            } => {
                let mut arguments = arguments.clone();
                arguments.retain(|old| {
                    !replacement
                        .arguments
                        .iter()
                        .any(|new| new.index == old.index)
                });
                arguments.extend(replacement.arguments.iter().cloned());
                Content::Replaced {
                    text: replacement
                        .text
                        .as_deref()
                        .map(sealed_short)
                        .or_else(|| text.clone()),
                    arguments,
                    pruned: false,
                }
            }
        };
        slot.content = Arc::new(content);
        slot.counted(counter)
    }

    fn count(&self, counter: &TokenCounter) -> u64 {
        match (&*self.content, &self.source, self.message()) {
            (Content::Summary { text }, _, _) => {
                counting::text_tokens(counter, &sealed_summary(text))
            }
            (Content::Stub { text, .. }, _, _) => counting::text_tokens(counter, text),
            (Content::Message, Some((conversation, _)), Some(message)) => {
                counting::message_tokens(counter, conversation, message)
            }
            (
                Content::Replaced {
                    text, arguments, ..
                },
                Some((conversation, _)),
                Some(message),
            ) => {
                let text = text.as_deref();
                counting::replaced_tokens(counter, conversation, message, text, arguments)
            }
            _ => 0,
        }
    }
}

impl TokenSource for Slot {
    fn tokens_of(&self, _id: MessageId) -> u64 {
        self.tokens()
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
