//! One place of the window: an unchanged message, a shorter form of it, a summary, or a made-up answer.

use std::sync::{Arc, LazyLock, OnceLock};

use contexture_engine_api::{
    MessageId, MessageKind, MessageView, RESTORE_WISH, RESTORED, Replacement, SUMMARY_MARK,
    ShortArguments, TokenSource, ToolCallView,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{
    Conversation, Message, sealed_short, sealed_summary, unsealed_notice, unsealed_short,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::counting;
use super::request::ReadMessage;
use super::window::Window;
use contexture_contract::is_marked;

/// So few bytes make a token hardly anywhere: less only in texts of single symbols.
const BYTES_A_TOKEN: u64 = 2;

/// More than a message or a call costs beside its text.
const FRAME_TOKENS: u64 = 16;

/// What one position of the window shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Content {
    /// A message, unchanged.
    Message,
    /// A shorter form of it.
    Replaced {
        text: Option<String>,
        arguments: Vec<ShortArguments>,
        /// Whether it was pruned alone: a later summary reads the message unchanged.
        #[serde(default)]
        pruned: bool,
    },
    /// A summary, or a notice with its seal.
    Summary {
        text: String,
        /// Whether it is to stand in the role `system`.
        #[serde(default)]
        in_system_role: bool,
    },
    /// A made-up answer to a call.
    Stub {
        call: MessageId,
        index: usize,
        text: String,
    },
}

/// What the places of unchanged messages share.
static AS_IT_CAME: LazyLock<Arc<Content>> = LazyLock::new(|| Arc::new(Content::Message));

/// One place of the window. What it holds is shared, so that a copy of a window is cheap.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) id: MessageId,
    kind: MessageKind,
    /// Where the message came from; for a summary or a stub, nowhere.
    source: Option<(Arc<Conversation>, usize)>,
    pub(super) content: Arc<Content>,
    /// What an engine keeps with the message: a JSON object as text.
    pub(super) state: Option<Arc<str>>,
    counter: TokenCounter,
    /// Counted on first use.
    pub(super) tokens: OnceLock<u64>,
    /// The arguments of its calls as they were said, made on first use.
    own_arguments: OnceLock<Vec<ShortArguments>>,
}

impl Slot {
    /// A message, unchanged.
    pub(super) fn new(
        id: MessageId,
        kind: MessageKind,
        read: &ReadMessage,
        counter: &TokenCounter,
    ) -> Self {
        let (source, content) = match (kind, read.message()) {
            (MessageKind::Summary | MessageKind::Notice, Some(message)) => {
                let content = Content::Summary {
                    text: message.text.clone(),
                    in_system_role: kind == MessageKind::Notice || message.role == "system",
                };
                (None, Arc::new(content))
            }
            _ => {
                let source = (Arc::clone(&read.conversation), read.index);
                (Some(source), Arc::clone(&AS_IT_CAME))
            }
        };
        let state = read.message().and_then(|message| message.state.clone());
        Self {
            id,
            kind,
            source,
            content,
            state,
            counter: *counter,
            tokens: OnceLock::new(),
            own_arguments: OnceLock::new(),
        }
    }

    /// What the host puts in: a summary or a made-up answer.
    pub(super) fn put_in(id: MessageId, content: Content, counter: &TokenCounter) -> Self {
        Self {
            id,
            kind: MessageKind::Summary,
            source: None,
            content: Arc::new(content),
            state: None,
            counter: *counter,
            tokens: OnceLock::new(),
            own_arguments: OnceLock::new(),
        }
    }

    /// The same place with this in it.
    pub(super) fn with_content(self, content: Content, counter: &TokenCounter) -> Self {
        let content = Arc::new(content);
        Self { content, ..self }.counted(counter)
    }

    /// The same, to be counted anew by `counter`.
    pub(super) fn counted(self, counter: &TokenCounter) -> Self {
        Self {
            counter: *counter,
            tokens: OnceLock::new(),
            ..self
        }
    }

    pub(super) fn id(&self) -> MessageId {
        self.id
    }

    /// Whether it is a message that was only pruned.
    pub(super) fn is_pruned(&self) -> bool {
        matches!(*self.content, Content::Replaced { pruned: true, .. })
    }

    /// The message unchanged, where it was only pruned.
    pub(super) fn unpruned(&self, counter: &TokenCounter) -> Option<Self> {
        self.is_pruned()
            .then(|| self.clone().with_content(Content::Message, counter))
    }

    /// The message as it was said.
    pub(super) fn as_said(&self, counter: &TokenCounter) -> Self {
        let slot = self.clone().with_content(Content::Message, counter);
        let state = slot.message().and_then(|message| message.state.clone());
        Self {
            kind: MessageKind::Original,
            state,
            ..slot
        }
    }

    /// A copy with the message's shorter form as its content. Used if the client has only that form, and it stands here
    /// as if it were the message.
    pub(super) fn as_shortened(&self, counter: &TokenCounter) -> Self {
        match self.message().filter(|_| self.is_of_lost_record()) {
            Some(message) => self.clone().with_content(
                Content::Replaced {
                    text: Some(message.text.clone()),
                    arguments: self.own_arguments().to_vec(),
                    pruned: false,
                },
                counter,
            ),
            None => self.clone(),
        }
    }

    /// The state kept with the message, as engines see it. State of a restored message no longer counts, unless the
    /// client goes back to the shorter form.
    pub(super) fn shown_state(&self) -> Option<&str> {
        let state = self.state.as_deref()?;
        let is_back = self.is_verbatim() && self.kind == MessageKind::Replaced;
        match is_restored(state) && !is_back {
            true => self.message()?.state.as_deref(),
            false => Some(state),
        }
    }

    /// The message as it was said. The state kept with it is marked as restored.
    pub(super) fn restored(&self, counter: &TokenCounter) -> Self {
        let slot = self.as_said(counter);
        let state = self.state.as_deref().map(|state| {
            let mut state: Map<String, Value> = serde_json::from_str(state).unwrap_or_default();
            state.remove(RESTORE_WISH);
            state.insert(RESTORED.to_owned(), Value::Bool(true));
            Arc::from(Value::Object(state).to_string())
        });
        match state {
            Some(state) => slot.with_state(Some(state)),
            None => slot,
        }
    }

    /// The same with this state.
    pub(super) fn with_state(self, state: Option<Arc<str>>) -> Self {
        Self { state, ..self }
    }

    /// Whether the message is at hand as it was said.
    pub(super) fn has_original(&self) -> bool {
        self.kind == MessageKind::Original && self.source.is_some()
    }

    /// The same as what pruning left of it.
    pub(super) fn into_pruned(mut self) -> Self {
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

    /// Its tokens in the prompt.
    pub(super) fn tokens(&self) -> u64 {
        *self.tokens.get_or_init(|| self.count(&self.counter))
    }

    /// An upper bound of its tokens, without tokenising.
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

    /// Whether it is an unchanged message.
    pub(super) fn is_verbatim(&self) -> bool {
        *self.content == Content::Message
    }

    /// Whether it is a shorter form that the host wrote when it still had a record: what it stands for is not known.
    pub(super) fn is_of_lost_record(&self) -> bool {
        self.is_verbatim() && self.kind == MessageKind::Replaced
    }

    pub(super) fn is_summary(&self) -> bool {
        matches!(*self.content, Content::Summary { .. })
    }

    pub(super) fn is_notice(&self) -> bool {
        self.summary().and_then(unsealed_notice).is_some()
    }

    pub(super) fn is_stub(&self) -> bool {
        matches!(*self.content, Content::Stub { .. })
    }

    /// The text of a summary.
    pub(super) fn summary(&self) -> Option<&str> {
        match &*self.content {
            Content::Summary { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The same place for another form of its message; its replacement stays.
    pub(super) fn moved_to(&self, message: &Self, counter: &TokenCounter) -> Self {
        Self {
            content: Arc::clone(&self.content),
            state: self.state.clone(),
            ..message.clone()
        }
        .counted(counter)
    }

    /// Whether it is a message of the conversation, unchanged.
    pub(super) fn is_original(&self) -> bool {
        self.is_verbatim() && self.kind == MessageKind::Original
    }

    /// Whether it is a message of the user that is not empty, or a shorter form of one.
    pub(super) fn is_real_user(&self) -> bool {
        self.message().is_some_and(|message| {
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
            Content::Summary { text, .. } => read.is_summary() && read.text.trim() == text.trim(),
            Content::Stub { text, .. } => read.tool_call_id.is_some() && read.text == *text,
            Content::Message => self
                .message()
                .is_some_and(|own| own.identity == read.identity),
            Content::Replaced { .. } => self.message().is_some_and(same_place),
        }
    }

    /// The wire messages that hold its message, from memory.
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

    /// Where its message was read: the conversation, which of its messages it is, and which of those in its wire message.
    pub(super) fn in_wire(&self) -> Option<(&Arc<Conversation>, usize, usize)> {
        let (conversation, index) = self.source.as_ref()?;
        let own = self.message()?;
        let before = conversation.messages().get(..*index)?.iter().rev();
        let place = before.take_while(|other| other.items == own.items).count();
        Some((conversation, *index, place))
    }

    /// How many messages stand in the wire message that holds its message.
    pub(super) fn views(&self) -> usize {
        let (Some((conversation, index)), Some(own)) = (&self.source, self.message()) else {
            return 0;
        };
        let (before, after) = conversation.messages().split_at(*index);
        let shares = |other: &&Message| other.items == own.items;
        before.iter().rev().take_while(shares).count() + after.iter().take_while(shares).count()
    }

    /// The arguments of its calls as they were said, to stand in place of shorter ones.
    pub(super) fn own_arguments(&self) -> &[ShortArguments] {
        self.own_arguments.get_or_init(|| {
            let calls = self
                .message()
                .into_iter()
                .flat_map(|message| &message.calls);
            let calls = calls.enumerate();
            calls
                .map(|(index, call)| ShortArguments::new(index, call.arguments.to_string()))
                .collect()
        })
    }

    pub(super) fn message(&self) -> Option<&Message> {
        let (conversation, index) = self.source.as_ref()?;
        conversation.messages().get(*index)
    }

    fn raw(&self) -> &str {
        match &self.source {
            Some((conversation, index)) => conversation.raw(*index),
            None => "",
        }
    }

    pub(super) fn arguments_of(&self, index: usize) -> Option<&str> {
        let Content::Replaced { arguments, .. } = &*self.content else {
            return None;
        };
        arguments
            .iter()
            .find(|short| short.index == index)
            .map(|short| short.arguments.as_str())
    }

    pub(super) fn view<'a>(
        &'a self,
        calls: &'a [ToolCallView<'a>],
        window: &'a Window,
    ) -> MessageView<'a> {
        let view = match &*self.content {
            Content::Summary {
                text,
                in_system_role,
            } => {
                let role = if *in_system_role { "system" } else { "user" };
                let view = MessageView::new(self.id, role);
                match unsealed_notice(text) {
                    Some(text) => view.with_text(text).with_kind(MessageKind::Notice),
                    None => view.with_text(text).with_kind(MessageKind::Summary),
                }
            }
            Content::Stub { call, index, text } => {
                let answered = window
                    .slots()
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
        let view = view.with_state(self.shown_state().unwrap_or(""));
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
    pub(super) fn replaced(
        &self,
        replacement: &Replacement,
        marks: &[String],
        counter: &TokenCounter,
    ) -> Self {
        let content = match &*self.content {
            Content::Summary {
                text,
                in_system_role,
            } => Content::Summary {
                text: replacement
                    .text
                    .as_deref()
                    .map_or_else(|| text.clone(), |text| marked(text, SUMMARY_MARK, marks)),
                in_system_role: *in_system_role,
            },
            // Only its state is new.
            Content::Message if replacement.text.is_none() && replacement.arguments.is_empty() => {
                Content::Message
            }
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
        let state = replacement
            .state
            .as_ref()
            .map(|state| state.to_string().into());
        let state = state.or_else(|| self.state.clone());
        self.clone()
            .with_content(content, counter)
            .with_state(state)
    }

    fn count(&self, counter: &TokenCounter) -> u64 {
        match (&*self.content, &self.source, self.message()) {
            (Content::Summary { text, .. }, _, _) => {
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

/// The wire messages that hold one message, with all other messages in them.
pub(super) struct SourceWire<'a> {
    /// The same for all messages in them.
    pub(super) key: (usize, usize),
    pub(super) texts: Vec<&'a str>,
    /// Which of the messages in them it is.
    pub(super) place: usize,
    /// How many messages are in them.
    pub(super) views: usize,
}

/// A text with `mark`, where it begins neither with that nor with one that the engine declares.
pub(super) fn marked(text: &str, mark: &str, declared: &[String]) -> String {
    match is_marked(text.trim_start(), &[mark], declared) {
        true => text.to_owned(),
        false => format!("{mark}\n{text}"),
    }
}

/// Whether this is the state of a restored message.
pub(super) fn is_restored(state: &str) -> bool {
    let state: Map<String, Value> = match state.contains(RESTORED) {
        true => serde_json::from_str(state).unwrap_or_default(),
        false => return false,
    };
    state.get(RESTORED) == Some(&Value::Bool(true))
}
