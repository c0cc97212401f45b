//! What is asked of a compaction, and what an engine proposes.

use serde::{Deserialize, Serialize};

use crate::message::{MessageId, MessageView};
use crate::window::WindowState;

/// A request to compact: the whole window as the model would see it, and why.
///
/// The window holds what earlier compactions left: a summary is a view of kind
/// [`Summary`](crate::MessageKind::Summary) with an id of its own, which a new summary covers like any other.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CompressRequest<'a> {
    /// Every message of the window, in order.
    pub messages: &'a [MessageView<'a>],
    /// What is asked.
    pub order: &'a CompressOrder,
}

impl<'a> CompressRequest<'a> {
    /// A request over these messages.
    pub const fn new(messages: &'a [MessageView<'a>], order: &'a CompressOrder) -> Self {
        Self { messages, order }
    }
}

open_struct! {
    /// What a compaction is asked to do, beside the messages.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CompressOrder {
        /// How full the window is.
        pub window: WindowState,
        /// Compact even below the threshold and during a cool-down; the result has only to be smaller.
        pub force: bool,
        /// When `force` is set: the user did not ask for the compaction. The host forces it because the window is
        /// nearly full.
        pub by_hygiene: bool,
        /// The text of the system prompt, where there is one.
        pub system: Option<String>,
        /// A topic that the user wants kept in more detail.
        pub focus: Option<String>,
        /// Text from a memory system that a summary may draw on.
        pub memory: Option<String>,
        /// Someone waits for the best result, so a model may be called now. Otherwise nothing may block on
        /// a model: use what background calls prepared, or do without.
        pub may_wait_for_model: bool,
    }
}

open_enum! {
    /// What came of a request to compact.
    pub enum Outcome {
        /// A proposal, for the host to check and commit.
        Compacted(Compaction) = "compacted",
        /// There is nothing that a compaction would make better: why.
        NothingToDo(String) = "nothing_to_do",
        /// Not now: why, and when.
        Deferred(String) = "deferred",
        /// What may never be removed is already too large.
        FloorTooHigh(Floor) = "floor_too_high",
    }
    /// One of a later version, by its name. It counts as deferred.
    Unknown
}

open_struct! {
    /// What may never be removed, where it is too large.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Floor {
        /// Tokens of the system prompt, tools, last user message and calls in flight.
        pub tokens: u64,
        /// What to do about it, for a person.
        pub reason: String,
    }
}

open_struct! {
    /// A proposal for the new window. Every id of the request occurs in it exactly once.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Compaction {
        /// The new window, in order.
        pub entries: Vec<Entry>,
        /// A note to append to the system prompt, once, however often it is proposed.
        pub system_note: Option<String>,
        /// Whether a model was wanted for it and could not be had.
        pub degraded: bool,
        /// What a person should know of how it was made.
        pub notes: Vec<String>,
    }
}

impl Compaction {
    /// A proposal of these entries.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self::default().entries(entries)
    }
}

open_enum! {
    /// One place in the new window.
    pub enum Entry {
        /// The message as it is, byte for byte.
        Keep(MessageId) = "keep",
        /// The message as it was said, where an earlier compaction put a shorter form in its place. Its
        /// [state](Replacement::state) goes.
        Restore(MessageId) = "restore",
        /// A shorter form of the message.
        Replace(Replacement) = "replace",
        /// A summary of some messages.
        Summary(Summary) = "summary",
        /// A notice for the model: nobody's words. It is never changed once it is in the window, where it is a
        /// message of kind [`Notice`](crate::MessageKind::Notice) with an id of its own.
        Notice(Notice) = "notice",
        /// An answer, made up and marked as such, for a call whose result is nowhere. It follows its call.
        StubResult(StubResult) = "stub_result",
        /// The message leaves without a trace.
        Drop(Dropped) = "drop",
    }
    /// One of a later version, by its name. A proposal with it is refused, and the reason says the name.
    Unknown
}

impl Entry {
    /// A summary of these messages.
    pub fn summary(text: impl Into<String>, covers: Vec<MessageId>) -> Self {
        Self::Summary(Summary {
            text: text.into(),
            covers,
            in_system_role: false,
        })
    }

    /// A notice that stands here.
    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice(Notice { text: text.into() })
    }

    /// An answer for the call `index` of the message `call`.
    pub fn stub(call: MessageId, index: usize, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::StubResult(StubResult { call, index, text })
    }

    /// The message leaves, for this reason.
    pub fn dropped(id: MessageId, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Drop(Dropped { id, reason })
    }

    /// The ids of the request that this entry accounts for.
    pub fn ids(&self) -> &[MessageId] {
        match self {
            Self::Keep(id) | Self::Restore(id) => std::slice::from_ref(id),
            Self::Replace(replacement) => std::slice::from_ref(&replacement.id),
            Self::Summary(summary) => &summary.covers,
            Self::Drop(dropped) => std::slice::from_ref(&dropped.id),
            Self::Notice(_) | Self::StubResult(_) | Self::Unknown(_) => &[],
        }
    }
}

open_struct! {
    /// A shorter form of a message.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Replacement {
        /// Which message.
        pub id: MessageId,
        /// The new text; none keeps the text.
        #[serde(default)]
        pub text: Option<String>,
        /// New arguments for some of its calls.
        #[serde(default)]
        pub arguments: Vec<ShortArguments>,
        /// What the engine keeps with the message for as long as it stands in the window: a JSON object, which no
        /// model sees. None leaves what is there.
        #[serde(default)]
        pub state: Option<serde_json::Value>,
    }
}

impl Replacement {
    /// A form of this message in which nothing is changed yet.
    pub fn new(id: MessageId) -> Self {
        Self {
            id,
            text: None,
            arguments: Vec::new(),
            state: None,
        }
    }
}

open_struct! {
    /// Shortened arguments of one tool call.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ShortArguments {
        /// Which of the message's calls, from 0.
        pub index: usize,
        /// The new arguments: valid JSON text.
        pub arguments: String,
    }
}

impl ShortArguments {
    /// These arguments for the call `index`.
    pub fn new(index: usize, arguments: impl Into<String>) -> Self {
        let arguments = arguments.into();
        Self { index, arguments }
    }
}

open_struct! {
    /// A summary of some messages.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Summary {
        /// Its text. [`SUMMARY_MARK`](crate::SUMMARY_MARK) is put before it where it begins neither with that nor with
        /// one of the engine's [own marks](crate::About::marks).
        pub text: String,
        /// What it stands for, earlier summaries included.
        pub covers: Vec<MessageId>,
        /// Whether it stands in a message of the role `system`, where the format has such among its messages.
        /// Otherwise the host chooses its role.
        pub in_system_role: bool,
    }
}

open_struct! {
    /// A notice for the model. It stands in a message of the role `system`, or at the end of the user's message
    /// before it where the format has no such messages.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Notice {
        /// Its text. [`NOTICE_MARK`](crate::NOTICE_MARK) is put before it where it does not begin with one of the
        /// engine's [own marks](crate::About::marks).
        pub text: String,
    }
}

open_struct! {
    /// A made-up answer to a call.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct StubResult {
        /// The message that holds the call.
        pub call: MessageId,
        /// Which of its calls, from 0.
        pub index: usize,
        /// The text.
        pub text: String,
    }
}

open_struct! {
    /// A message that leaves.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Dropped {
        /// Which.
        pub id: MessageId,
        /// Why, for a person.
        #[serde(default)]
        pub reason: String,
    }
}

open_struct! {
    /// A proposal that was checked, stored and is in force.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Committed {
        /// The compaction's number within the session.
        pub id: u64,
        /// The entries of the proposal. Empty where it is said again of a compaction before a restart.
        pub entries: Vec<Entry>,
        /// The ids that the host gave to what was put in, in the order of the entries.
        pub inserted: Vec<MessageId>,
    }
}

impl Committed {
    /// The compaction of this number.
    pub fn new(id: u64) -> Self {
        Self::default().id(id)
    }
}

open_struct! {
    /// The compaction that is in force when a session is opened.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CurrentCompaction {
        /// Its number within the session.
        pub id: u64,
        /// The engine that made it; a fallback's compaction is the fallback's.
        pub engine: String,
        /// The last message that it covers.
        pub through: MessageId,
        /// The texts of its summaries, in order.
        #[serde(default)]
        pub summaries: Vec<String>,
        /// The messages that the window holds in a shorter form or with an engine's state, in order.
        #[serde(default)]
        pub shortened: Vec<Shortened>,
    }
}

open_struct! {
    /// A message that the window holds in a shorter form, with an engine's state, or both.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Shortened {
        /// Its id.
        pub id: MessageId,
        /// The shorter text that the model sees, or `None` if the model sees the message's own text.
        #[serde(default)]
        pub text: Option<String>,
        /// The state that the engine keeps with the message, see [`Replacement::state`].
        #[serde(default)]
        pub state: Option<serde_json::Value>,
    }
}

impl Shortened {
    /// An entry for the message with this id.
    pub fn new(id: MessageId) -> Self {
        Self {
            id,
            text: None,
            state: None,
        }
    }
}

impl CurrentCompaction {
    /// The compaction `id`, which `engine` made of what stands up to the message `through`.
    pub fn new(id: u64, engine: impl Into<String>, through: MessageId) -> Self {
        Self {
            id,
            engine: engine.into(),
            through,
            summaries: Vec::new(),
            shortened: Vec::new(),
        }
    }
}
