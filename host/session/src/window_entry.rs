//! An entry of the window: an unchanged message, a shorter form of one, a summary, a notice, or a
//! stub result.
//!
//! [`WindowEntry`] is the entry, and [`EntryContent`] says what it shows. An entry keeps a
//! reference to the conversation from which its message was read, so the full text is still at hand
//! after the message was shortened. All parts are shared, so copying a window is cheap. Tokens are
//! counted on first use and kept.
//!
//! Texts that the host adds get a mark at the beginning, see [`marked`]. The seal that protects
//! them on the wire is made in `contexture_formats`.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, OnceLock};

use contexture_engine_api::{
    MessageId, MessageKind, MessageView, RESTORE_WISH, RESTORED, Replacement, SUMMARY_MARK,
    ShortArguments, TokenSource, ToolCallView,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{
    Conversation, Message, sealed_short, sealed_summary, unsealed_notice, unsealed_short,
};
use contexture_transcript::EntryContent;
use serde_json::{Map, Value};

use super::counting;
use super::request::ReadMessage;
use contexture_contract::{is_marked, without_pins};

/// The fewest bytes per token that the upper bound of a token count assumes. Only texts of single
/// symbols have less.
const BYTES_A_TOKEN: u64 = 2;

/// An upper bound of what a message or a call costs in addition to its text, in tokens.
const FRAME_TOKENS: u64 = 16;

/// The content that all unchanged messages share.
static AS_IT_CAME: LazyLock<Arc<EntryContent>> = LazyLock::new(|| Arc::new(EntryContent::Message));

/// One entry of the window. Its parts are shared, so that a copy of a window is cheap.
#[derive(Debug, Clone)]
pub(super) struct WindowEntry {
    pub(super) id: MessageId,
    kind: MessageKind,
    /// The conversation from which the message was read, and its index there. None for a summary, a
    /// notice or a stub result.
    source: Option<(Arc<Conversation>, usize)>,
    pub(super) content: Arc<EntryContent>,
    /// The state that an engine stores with the message, as the text of a JSON object.
    pub(super) state: Option<Arc<str>>,
    counter: TokenCounter,
    pub(super) tokens: OnceLock<u64>,
    /// The full arguments of its calls, in the form that replaces shortened ones. Made on first
    /// use.
    own_arguments: OnceLock<Vec<ShortArguments>>,
    /// The text of a summary or a notice without the pins that the host wrote into it, or None if
    /// it has none. Made on first use.
    without_pins: OnceLock<Option<String>>,
}

impl WindowEntry {
    /// An entry for a message that was read. A summary or a notice is shown as such, any other
    /// message unchanged.
    pub(super) fn new(
        id: MessageId,
        kind: MessageKind,
        read: &ReadMessage,
        counter: &TokenCounter,
    ) -> Self {
        let (source, content) = match (kind, read.message()) {
            (MessageKind::Summary | MessageKind::Notice, Some(message)) => {
                let content = EntryContent::Summary {
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
        Self {
            kind,
            source,
            state: read.message().and_then(|message| message.state.clone()),
            ..Self::of_content(id, content, counter)
        }
    }

    /// An entry for a text that the host adds, with no message behind it.
    pub(super) fn put_in(id: MessageId, content: EntryContent, counter: &TokenCounter) -> Self {
        Self::of_content(id, Arc::new(content), counter)
    }

    fn of_content(id: MessageId, content: Arc<EntryContent>, counter: &TokenCounter) -> Self {
        Self {
            id,
            kind: MessageKind::Summary,
            source: None,
            content,
            state: None,
            counter: *counter,
            tokens: OnceLock::new(),
            own_arguments: OnceLock::new(),
            without_pins: OnceLock::new(),
        }
    }

    /// The same entry with other content. Its tokens are counted again when they are needed.
    pub(super) fn with_content(self, content: EntryContent) -> Self {
        Self {
            content: Arc::new(content),
            tokens: OnceLock::new(),
            without_pins: OnceLock::new(),
            ..self
        }
    }

    /// The same entry, to be counted again with another counter.
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

    /// Whether the message was only pruned.
    pub(super) fn is_pruned(&self) -> bool {
        matches!(*self.content, EntryContent::Replaced { pruned: true, .. })
    }

    /// The entry, with its message unchanged if it was only pruned.
    pub(super) fn unpruned(&self) -> Self {
        match self.is_pruned() {
            true => self.clone().with_content(EntryContent::Message),
            false => self.clone(),
        }
    }

    /// The entry with its message as the client said it. State that an engine stored with it is
    /// dropped, apart from state that the message itself carries.
    pub(super) fn as_said(&self) -> Self {
        let entry = self.clone().with_content(EntryContent::Message);
        let state = entry.message().and_then(|message| message.state.clone());
        Self {
            kind: MessageKind::Original,
            state,
            ..entry
        }
    }

    /// The entry with its text as a shorter form. Used if the record was lost and the client has
    /// only that form, so that it counts as the message here. Other entries are returned unchanged.
    pub(super) fn as_shortened(&self) -> Self {
        match self.message().filter(|_| self.is_of_lost_record()) {
            Some(message) => self.clone().with_content(EntryContent::Replaced {
                text: Some(message.text.clone()),
                arguments: self.own_arguments().to_vec(),
                pruned: false,
            }),
            None => self.clone(),
        }
    }

    /// The state stored with the message, as engines see it. If the message was restored, its state
    /// no longer counts, unless the client went back to the shorter form.
    pub(super) fn shown_state(&self) -> Option<&str> {
        let state = self.state.as_deref()?;
        let is_back = self.is_verbatim() && self.kind == MessageKind::Replaced;
        match is_restored(state) && !is_back {
            true => self.message()?.state.as_deref(),
            false => Some(state),
        }
    }

    /// The entry with its message as the client said it, and its state marked as restored. The
    /// request to restore it is removed.
    pub(super) fn restored(&self) -> Self {
        let entry = self.as_said();
        let state = self.state.as_deref().map(|state| {
            let mut state: Map<String, Value> = serde_json::from_str(state).unwrap_or_default();
            state.remove(RESTORE_WISH);
            state.insert(RESTORED.to_owned(), Value::Bool(true));
            Arc::from(Value::Object(state).to_string())
        });
        match state {
            Some(state) => entry.with_state(Some(state)),
            None => entry,
        }
    }

    /// The same entry with other state, or without state.
    pub(super) fn with_state(self, state: Option<Arc<str>>) -> Self {
        Self { state, ..self }
    }

    /// Whether the full text of the message is in memory.
    pub(super) fn has_original(&self) -> bool {
        self.kind == MessageKind::Original && self.source.is_some()
    }

    /// Marks the shorter form as one that pruning left. Entries without a shorter form are returned
    /// unchanged.
    pub(super) fn into_pruned(mut self) -> Self {
        if let EntryContent::Replaced {
            text, arguments, ..
        } = &*self.content
        {
            self.content = Arc::new(EntryContent::Replaced {
                text: text.clone(),
                arguments: arguments.clone(),
                pruned: true,
            });
        }
        self
    }

    /// The same entry under another id.
    pub(super) fn renamed(self, id: MessageId) -> Self {
        Self { id, ..self }
    }

    /// Its tokens in the prompt. Counted on the first call.
    pub(super) fn tokens(&self) -> u64 {
        *self.tokens.get_or_init(|| self.count())
    }

    /// An upper bound of its tokens that needs no tokenising. Messages with media are counted,
    /// because their size in bytes says nothing about their tokens.
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

    /// Whether it shows its message unchanged.
    pub(super) fn is_verbatim(&self) -> bool {
        *self.content == EntryContent::Message
    }

    /// Whether it is a shorter form that the host wrote before the record was lost. The original is
    /// not known.
    pub(super) fn is_of_lost_record(&self) -> bool {
        self.is_verbatim() && self.kind == MessageKind::Replaced
    }

    pub(super) fn is_summary(&self) -> bool {
        matches!(*self.content, EntryContent::Summary { .. })
    }

    pub(super) fn is_notice(&self) -> bool {
        self.summary().and_then(unsealed_notice).is_some()
    }

    pub(super) fn is_stub(&self) -> bool {
        matches!(*self.content, EntryContent::Stub { .. })
    }

    /// The text of a summary or a notice. None for other entries.
    pub(super) fn summary(&self) -> Option<&str> {
        match &*self.content {
            EntryContent::Summary { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The same entry for another form of its message. Its content and state stay.
    pub(super) fn moved_to(&self, message: &Self) -> Self {
        Self {
            content: Arc::clone(&self.content),
            state: self.state.clone(),
            tokens: OnceLock::new(),
            without_pins: OnceLock::new(),
            ..message.clone()
        }
    }

    /// Whether it shows a message of the conversation in its own words.
    pub(super) fn is_original(&self) -> bool {
        self.is_verbatim() && self.kind == MessageKind::Original
    }

    /// Whether its message comes from the user and is not empty. A shorter form counts too.
    pub(super) fn is_real_user(&self) -> bool {
        self.message().is_some_and(|message| {
            let says_something = !message.text.trim().is_empty() || !message.media.is_empty();
            message.role == "user" && says_something
        })
    }

    /// Whether a message that was parsed from a rendered body may be this entry. Texts are compared
    /// if the host wrote them. For a shorter form only the role, the answered call and the number
    /// of calls are compared.
    pub(super) fn may_be(&self, read: &Message) -> bool {
        let same_place = |own: &Message| {
            !read.is_summary()
                && own.role == read.role
                && own.tool_call_id == read.tool_call_id
                && own.calls.len() == read.calls.len()
        };
        match &*self.content {
            EntryContent::Summary { text, .. } => {
                read.is_summary() && read.text.trim() == text.trim()
            }
            EntryContent::Stub { text, .. } => read.tool_call_id.is_some() && read.text == *text,
            EntryContent::Message => self
                .message()
                .is_some_and(|own| own.identity == read.identity),
            EntryContent::Replaced { .. } => self.message().is_some_and(same_place),
        }
    }

    /// The position of its message: the conversation from which it was read, its index there, and
    /// how many messages of the same wire message precede it.
    pub(super) fn in_wire(&self) -> Option<(&Arc<Conversation>, usize, usize)> {
        let (conversation, index) = self.source.as_ref()?;
        let own = self.message()?;
        let before = conversation.messages().get(..*index)?.iter().rev();
        let place = before.take_while(|other| other.items == own.items).count();
        Some((conversation, *index, place))
    }

    /// What tells its wire message from all others: the conversation from which it was read, and
    /// the index there of the wire message's first part.
    pub(super) fn wire(&self) -> Option<(*const Conversation, usize)> {
        let (conversation, index, place) = self.in_wire()?;
        Some((Arc::as_ptr(conversation), index - place))
    }

    /// How many messages share the wire message that holds this one, itself included. Zero if the
    /// entry has no message.
    pub(super) fn views(&self) -> usize {
        let (Some((conversation, index)), Some(own)) = (&self.source, self.message()) else {
            return 0;
        };
        let (before, after) = conversation.messages().split_at(*index);
        let shares = |other: &&Message| other.items == own.items;
        before.iter().rev().take_while(shares).count() + after.iter().take_while(shares).count()
    }

    /// The full arguments of its calls, in the form that replaces shorter ones.
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

    /// The shortened arguments of the call at `index`. None if they were not shortened.
    pub(super) fn arguments_of(&self, index: usize) -> Option<&str> {
        let EntryContent::Replaced { arguments, .. } = &*self.content else {
            return None;
        };
        arguments
            .iter()
            .find(|short| short.index == index)
            .map(|short| short.arguments.as_str())
    }

    /// The entry as an engine sees it, or with its section of pins if it `is_whole`. `calls` are the
    /// calls of this entry. `window` is the window that it stands in, which has the call that a stub result answers.
    pub(super) fn view<'a>(
        &'a self,
        calls: &'a [ToolCallView<'a>],
        window: &'a [Self],
        is_whole: bool,
    ) -> MessageView<'a> {
        let view = match &*self.content {
            EntryContent::Summary {
                text,
                in_system_role,
            } => {
                let role = if *in_system_role { "system" } else { "user" };
                let view = MessageView::new(self.id, role);
                let (text, kind) = match unsealed_notice(text) {
                    Some(text) => (text, MessageKind::Notice),
                    None => (text.as_str(), MessageKind::Summary),
                };
                let text = match is_whole {
                    true => text,
                    false => self
                        .without_pins
                        .get_or_init(|| own_part(text))
                        .as_deref()
                        .unwrap_or(text),
                };
                view.with_text(text).with_kind(kind)
            }
            EntryContent::Stub { call, index, text } => {
                let answered = window
                    .iter()
                    .find(|entry| entry.id == *call)
                    .and_then(WindowEntry::message)
                    .and_then(|message| message.calls.get(*index));
                let (id, name) = answered.map_or(("", ""), |call| (&call.id, &call.name));
                MessageView::new(self.id, "tool")
                    .with_text(text)
                    .with_result_of(id, name)
                    .with_kind(MessageKind::Replaced)
            }
            EntryContent::Message | EntryContent::Replaced { .. } => match self.message() {
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
            EntryContent::Replaced { text, .. } => {
                let view = view.with_kind(MessageKind::Replaced);
                match text {
                    Some(text) => view.with_text(unsealed_short(text).unwrap_or(text)),
                    None => view,
                }
            }
            _ => view,
        }
    }

    /// The entry after an engine's replacement. If the replacement leaves a part out, what an
    /// earlier replacement left there stays.
    pub(super) fn replaced(&self, replacement: &Replacement, marks: &[String]) -> Self {
        let content = match &*self.content {
            EntryContent::Summary {
                text,
                in_system_role,
            } => EntryContent::Summary {
                text: replacement
                    .text
                    .as_deref()
                    .map_or_else(|| text.clone(), |text| marked(text, SUMMARY_MARK, marks)),
                in_system_role: *in_system_role,
            },
            // The replacement only stores state, so the message stays unchanged.
            EntryContent::Message
                if replacement.text.is_none() && replacement.arguments.is_empty() =>
            {
                EntryContent::Message
            }
            EntryContent::Stub { call, index, text } => EntryContent::Stub {
                call: *call,
                index: *index,
                text: replacement.text.clone().unwrap_or_else(|| text.clone()),
            },
            EntryContent::Message => EntryContent::Replaced {
                text: replacement.text.as_deref().map(sealed_short),
                arguments: replacement.arguments.clone(),
                pruned: false,
            },
            EntryContent::Replaced {
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
                EntryContent::Replaced {
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
        self.clone().with_content(content).with_state(state)
    }

    fn count(&self) -> u64 {
        let counter = &self.counter;
        match (&*self.content, &self.source, self.message()) {
            // A summary is counted with the seal that it has on the wire.
            (EntryContent::Summary { text, .. }, _, _) => {
                counting::text_tokens(counter, &sealed_summary(text))
            }
            (EntryContent::Stub { text, .. }, _, _) => counting::text_tokens(counter, text),
            (EntryContent::Message, Some((conversation, _)), Some(message)) => {
                counting::message_tokens(counter, conversation, message)
            }
            (
                EntryContent::Replaced {
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

impl TokenSource for WindowEntry {
    fn tokens_of(&self, _id: MessageId) -> u64 {
        self.tokens()
    }
}

/// The text with `mark` in front of it. If it already begins with that mark or with one that the
/// engine declares, it is returned unchanged.
pub(super) fn marked(text: &str, mark: &str, declared: &[String]) -> String {
    match is_marked(text.trim_start(), &[mark], declared) {
        true => text.to_owned(),
        false => format!("{mark}\n{text}"),
    }
}

/// The part of a summary or a notice that is the engine's. None if all of it is.
fn own_part(text: &str) -> Option<String> {
    match without_pins(text) {
        Cow::Owned(own) => Some(own),
        Cow::Borrowed(_) => None,
    }
}

/// Whether this state belongs to a message that was restored.
pub(super) fn is_restored(state: &str) -> bool {
    // Most states do not contain the key, and the search is cheaper than parsing the JSON.
    let state: Map<String, Value> = match state.contains(RESTORED) {
        true => serde_json::from_str(state).unwrap_or_default(),
        false => return false,
    };
    state.get(RESTORED) == Some(&Value::Bool(true))
}
