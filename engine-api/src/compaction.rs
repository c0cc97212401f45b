//! What a host asks of a compaction, and what an engine proposes.
//!
//! A host sends a [`CompressRequest`]: the window as the model would see it, and a
//! [`CompressOrder`] that says how much freedom the engine has. The engine returns an [`Outcome`],
//! which usually holds a [`Compaction`]: the new window as a list of [`Entry`] values. Every
//! message of the request must occur in that list exactly once.
//!
//! The proposal is only data. The host checks it against the contract, stores it, and then tells
//! the engine with [`Committed`], or refuses it and changes nothing. When a session is opened
//! again, [`CurrentCompaction`] says what was in force.
//!
//! Most types here are marked non-exhaustive. Build them with their `new` function and set fields
//! with the method of the same name.

use serde::{Deserialize, Serialize};

use crate::crossing::null_as_default;
use crate::message::{MessageId, MessageView};
use crate::window::WindowState;

/// A request to compact: the whole window as the model would see it, and what is asked.
///
/// The window includes what earlier compactions left. A summary is a message of kind
/// [`Summary`](crate::MessageKind::Summary) with an id of its own, and a new summary can cover it
/// like any other message.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CompressRequest<'a> {
    /// Every message of the window, in order. The system prompt and the tools are not among them.
    pub messages: &'a [MessageView<'a>],
    /// What is asked of the compaction, and what the engine needs to know to do it.
    pub order: &'a CompressOrder,
}

impl<'a> CompressRequest<'a> {
    /// Creates a request to compact these messages.
    pub const fn new(messages: &'a [MessageView<'a>], order: &'a CompressOrder) -> Self {
        Self { messages, order }
    }
}

open_struct! {
    /// What a compaction is asked to do, apart from the messages. By default nothing is forced and
    /// the engine may not wait for a model.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CompressOrder {
        /// How full the window is, and what is known of the prompt cache.
        pub window: WindowState,
        /// Compact even if the window is below the threshold or the last compaction was only a few
        /// requests ago. The result only has to be smaller.
        pub force: bool,
        /// Set together with `force` if it was not the user who asked. The host forces the
        /// compaction itself because the window is nearly full.
        pub by_hygiene: bool,
        /// The text of the system prompt, or `None` if there is none.
        pub system: Option<String>,
        /// A topic that the user wants a summary to keep in more detail.
        pub focus: Option<String>,
        /// Text from a memory system that a summary may draw on.
        pub memory: Option<String>,
        /// Whether the engine may call a model and wait for it, because the user waits for the best
        /// result. If this is false, nothing may block on a model: the engine uses what background
        /// calls have prepared, or goes without.
        pub may_wait_for_model: bool,
    }
}

open_enum! {
    /// The result of a request to compact. If an engine proposes nothing, the reason is shown to
    /// people, so it should be specific.
    pub enum Outcome {
        /// A proposal, which the host checks and then commits or refuses.
        Compacted(Compaction) = "compacted",
        /// No compaction would make the window better. The text says why.
        NothingToDo(String) = "nothing_to_do",
        /// A compaction is possible but not now. The text says why, and when it will be made.
        Deferred(String) = "deferred",
        /// The messages that must never be removed are already too large for the window.
        FloorTooHigh(Floor) = "floor_too_high",
    }
    /// An outcome of a later version. It holds the outcome's name and is treated as deferred.
    Unknown
}

open_struct! {
    /// Describes the part of the window that must never be removed, if that part alone is too
    /// large.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Floor {
        /// The size of the system prompt, the tools, the last user message and the calls in flight,
        /// in tokens.
        pub tokens: u64,
        /// What a person can do about it, for example choose a model with a larger window.
        pub reason: String,
    }
}

open_struct! {
    /// A proposal for the new window. Every id of the request must occur in it exactly once, or the
    /// host refuses it.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Compaction {
        /// The entries of the new window, in the order in which the model reads them.
        pub entries: Vec<Entry>,
        /// A note to append to the system prompt. The host appends it only once, even if several
        /// compactions propose it.
        pub system_note: Option<String>,
        /// Whether the engine wanted to use a model for this proposal but could not. The summary is
        /// then of lower quality.
        #[serde(deserialize_with = "null_as_default")]
        pub degraded: bool,
        /// Remarks on how the proposal was made, for a person.
        #[serde(deserialize_with = "null_as_default")]
        pub notes: Vec<String>,
    }
}

impl Compaction {
    /// Creates a proposal with these entries and no note.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self::default().entries(entries)
    }
}

open_enum! {
    /// One entry of the new window. An entry either accounts for messages of the request or inserts
    /// something new.
    pub enum Entry {
        /// Keeps the message as it is, byte for byte.
        Keep(MessageId) = "keep",
        /// Puts the original message back in place of a shorter form from an earlier compaction.
        /// The message's [state](Replacement::state) is removed.
        Restore(MessageId) = "restore",
        /// Replaces the message by a shorter form of it.
        Replace(Replacement) = "replace",
        /// Replaces one or more messages by a summary.
        Summary(Summary) = "summary",
        /// Inserts a notice for the model that nobody in the conversation wrote. It becomes a
        /// message of kind [`Notice`](crate::MessageKind::Notice) with an id of its own, and it
        /// never changes once it is in the window.
        Notice(Notice) = "notice",
        /// Inserts a placeholder result, marked as such, for a call whose real result does not
        /// exist. It must follow its call.
        StubResult(StubResult) = "stub_result",
        /// Removes the message from the window and puts nothing in its place.
        Drop(Dropped) = "drop",
    }
    /// An entry of a later version. It holds the entry's name. The host refuses a proposal that
    /// contains one and gives that name as the reason.
    Unknown
}

impl Entry {
    /// Creates a summary that covers these messages. It does not ask for the system role. Set
    /// [`Summary::in_system_role`] if it should have it.
    pub fn summary(text: impl Into<String>, covers: Vec<MessageId>) -> Self {
        Self::Summary(Summary {
            text: text.into(),
            covers,
            in_system_role: false,
        })
    }

    /// Creates a notice with this text at this place in the window.
    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice(Notice { text: text.into() })
    }

    /// Creates a placeholder result for the call at position `index` of the message `call`.
    pub fn stub(call: MessageId, index: usize, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::StubResult(StubResult { call, index, text })
    }

    /// Removes a message for the given reason, which is shown to people.
    pub fn dropped(id: MessageId, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Drop(Dropped { id, reason })
    }

    /// Returns the ids of the request that this entry accounts for. A notice and a placeholder
    /// result insert something new, so they return no ids.
    pub fn ids(&self) -> &[MessageId] {
        match self {
            Self::Keep(id) | Self::Restore(id) => std::slice::from_ref(id),
            Self::Replace(replacement) => std::slice::from_ref(&replacement.id),
            Self::Summary(summary) => &summary.covers,
            Self::Drop(dropped) => std::slice::from_ref(&dropped.id),
            // These insert something that no message of the request stands behind, so they account
            // for none.
            Self::Notice(_) | Self::StubResult(_) | Self::Unknown(_) => &[],
        }
    }
}

open_struct! {
    /// A shorter form of a message. A field that is not set keeps what the message has.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Replacement {
        /// The id of the message that gets shorter.
        pub id: MessageId,
        /// The new text, or `None` to keep the text.
        #[serde(default)]
        pub text: Option<String>,
        /// New arguments for some of the message's tool calls. The other calls keep theirs.
        #[serde(default, deserialize_with = "null_as_default")]
        pub arguments: Vec<ShortArguments>,
        /// State that the engine keeps with the message as long as it is in the window: a JSON
        /// object that no model sees. `None` leaves the existing state.
        #[serde(default)]
        pub state: Option<serde_json::Value>,
    }
}

impl Replacement {
    /// Creates a replacement that does not change anything yet. Set what should be shorter with its
    /// methods.
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
    /// Shortened arguments of one tool call. The call keeps its id, its name and its place in the
    /// message.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ShortArguments {
        /// The position of the call in its message, starting at 0.
        pub index: usize,
        /// The new arguments. They must be valid JSON text.
        pub arguments: String,
    }
}

impl ShortArguments {
    /// Creates new arguments for the call at position `index`.
    pub fn new(index: usize, arguments: impl Into<String>) -> Self {
        let arguments = arguments.into();
        Self { index, arguments }
    }
}

open_struct! {
    /// A summary that takes the place of one or more messages.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Summary {
        /// The text of the summary. If it begins neither with [`SUMMARY_MARK`](crate::SUMMARY_MARK)
        /// nor with one of the engine's [own marks](crate::About::marks), the host puts the former
        /// before it. It must not tell of a message behind those that it covers: if a client goes back
        /// to before such a message, the summary stays in the window.
        pub text: String,
        /// The ids of the messages that the summary stands for, including earlier summaries.
        pub covers: Vec<MessageId>,
        /// Whether the summary should be a message with the role `system`, if the wire format
        /// allows that among its messages. Otherwise the host chooses the role.
        #[serde(deserialize_with = "null_as_default")]
        pub in_system_role: bool,
    }
}

open_struct! {
    /// A notice for the model. The host sends it as a message with the role `system`, or appends it
    /// to the preceding user message if the wire format has no such messages.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Notice {
        /// The text of the notice. If it does not begin with one of the engine's [own
        /// marks](crate::About::marks), the host puts [`NOTICE_MARK`](crate::NOTICE_MARK) before
        /// it.
        pub text: String,
    }
}

open_struct! {
    /// A placeholder for the result of a tool call. Providers refuse a request if a call in it has
    /// no result.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct StubResult {
        /// The id of the message that contains the call.
        pub call: MessageId,
        /// The position of the call in its message, starting at 0.
        pub index: usize,
        /// The text that the model reads in place of the result. It should say that the result is
        /// missing.
        pub text: String,
    }
}

open_struct! {
    /// A message that is removed from the window.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Dropped {
        /// The id of the message.
        pub id: MessageId,
        /// Why the message was removed, for a person. It may be empty.
        #[serde(default, deserialize_with = "null_as_default")]
        pub reason: String,
    }
}

open_struct! {
    /// A proposal that was checked and stored and is now in force. The host passes it to
    /// [`committed`](crate::ContextEngine::committed).
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Committed {
        /// The number of the compaction within the session. If an engine hears a number twice, it
        /// must ignore the second.
        pub id: u64,
        /// The entries of the proposal. The list is empty if the host repeats a compaction that was
        /// committed before a restart.
        pub entries: Vec<Entry>,
        /// The ids that the host gave to inserted messages, in the order of the entries.
        pub inserted: Vec<MessageId>,
    }
}

impl Committed {
    /// Creates a notification for the compaction of this number, without entries.
    pub fn new(id: u64) -> Self {
        Self::default().id(id)
    }
}

open_struct! {
    /// The compaction that is in force when a session is opened. An engine that lost its own state
    /// can continue from it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CurrentCompaction {
        /// The number of the compaction within the session.
        pub id: u64,
        /// The name of the engine that made it. If a fallback engine made it, this is the
        /// fallback's name.
        pub engine: String,
        /// The last message that the compaction covers.
        pub through: MessageId,
        /// The texts of its summaries, in the order in which they are in the window.
        #[serde(default)]
        pub summaries: Vec<String>,
        /// The messages that are in the window in a shorter form or with state of an engine, in
        /// order.
        #[serde(default)]
        pub shortened: Vec<Shortened>,
    }
}

open_struct! {
    /// A message that is in the window in a shorter form, with state of an engine, or both.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Shortened {
        /// The id of the message.
        pub id: MessageId,
        /// The shorter text that the model sees, or `None` if the model sees the message's own
        /// text.
        #[serde(default)]
        pub text: Option<String>,
        /// The state that the engine keeps with the message, or `None` if there is none. See
        /// [`Replacement::state`].
        #[serde(default)]
        pub state: Option<serde_json::Value>,
    }
}

impl Shortened {
    /// Creates an entry for the message with this id, without a shorter text and without state.
    pub fn new(id: MessageId) -> Self {
        Self {
            id,
            text: None,
            state: None,
        }
    }
}

impl CurrentCompaction {
    /// Creates the compaction `id`, which `engine` made of everything up to and including the
    /// message `through`.
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
