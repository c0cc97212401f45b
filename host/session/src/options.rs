//! Options: what a caller says about a session and about one turn.
//!
//! [`AgentWindow`] describes the agent's model and [`SessionOptions`] the session. Both are given
//! to [`Session::open`](super::Session::open). [`TurnOptions`] belongs to one call of
//! [`Session::turn_with`](super::Session::turn_with). The defaults fit a client that sends its
//! whole history with every request.
//!
//! The types that describe the result of a turn in terms of the caller's messages, such as
//! [`BodyMessage`] and [`Comparison`], are here too.

use std::sync::Arc;

use contexture_engine_api::{MessageId, WindowState};
use contexture_transcript::Record;

/// The agent's model, as far as a session needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWindow {
    /// The model's name. It selects the tokenizer and the prices of the prompt cache.
    pub model: String,
    /// The size of its context window in tokens. Zero if it is not known.
    pub context_length: u64,
    /// The tokens that are reserved for the answer.
    pub max_output_tokens: u64,
}

impl AgentWindow {
    /// The state of a window without messages.
    pub(crate) fn empty_window(&self) -> WindowState {
        WindowState::default()
            .model(self.model.clone())
            .context_length(self.context_length)
            .max_output_tokens(self.max_output_tokens)
    }
}

/// Who makes the model calls that an engine wants made between turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackgroundBy {
    /// A thread of the host, after each answer. Its results are discarded if the session ends
    /// first.
    #[default]
    Host,
    /// The embedder, with [`Session::background`](crate::Session::background) and
    /// [`Session::background_done`](crate::Session::background_done).
    Embedder,
}

/// How a request relates to the session's conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Relation {
    /// The request continues the conversation or repeats it. Single messages may have another form.
    #[default]
    Continues,
    /// The request leaves out the end of the conversation, which is no longer part of it.
    CutBack {
        /// The last message that stays. None if no message stays.
        after: Option<MessageId>,
    },
    /// The request has nothing in common with the conversation. The session begins a new one with
    /// it.
    NewRoot,
}

/// What happens to a request that has nothing in common with the session's conversation: no
/// message, and no summary that the host wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unrelated {
    /// The session begins a new conversation with it. The messages of the old one stay readable in
    /// the record.
    #[default]
    NewRoot,
    /// The turn fails with [`SessionError::Unrelated`](super::SessionError::Unrelated), and nothing
    /// is changed.
    Refuse,
}

/// How a session runs, apart from the model.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The name of the engine. None for the configured one.
    pub engine: Option<String>,
    /// What happens to a request of another conversation.
    pub unrelated: Unrelated,
    /// Whether a summary at the beginning of the window gets a message of its own. If not, it joins
    /// the user message after it. See
    /// [`RenderPlan::own_summaries`](contexture_formats::RenderPlan::own_summaries).
    pub own_summaries: bool,
    /// Whether a compaction may append its note to the system prompt. If not, the note is left out.
    pub note: bool,
    /// Who makes the model calls that an engine wants between turns.
    pub background: BackgroundBy,
    /// Whether bodies get markers for the provider's prompt cache, if the configuration has them
    /// for the model.
    pub cache_markers: bool,
    /// The provider that serves the agent's model. It decides whether bodies get markers for the
    /// prompt cache. None if the `model` section of the configuration names it.
    pub provider: Option<String>,
    /// Whether the session adds the engine's tools to requests even if the engine leaves that to
    /// the agent. They are added once a compaction is in force, if the window has room for them. If
    /// you set this, answer their calls with [`Session::call_tool`](super::Session::call_tool).
    pub offer_tools: bool,
    /// How long to wait if the session is open elsewhere. The default is 30 seconds.
    pub wait: std::time::Duration,
    /// The other sessions that the engine's tools may look into. None if they may look into all.
    pub peers: Option<Peers>,
    /// The record, for a session that is opened without it while somebody else has the session
    /// open. The engine reads the transcript and its artifacts there and learns of its compaction
    /// in force. Nothing is written to the record.
    pub beside: Option<Arc<Record>>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            engine: None,
            unrelated: Unrelated::default(),
            own_summaries: false,
            note: true,
            background: BackgroundBy::default(),
            cache_markers: true,
            provider: None,
            offer_tools: false,
            wait: contexture_transcript::PATIENCE,
            peers: None,
            beside: None,
        }
    }
}

/// Decides which other sessions the engine of a session may look into: those of the same tenant,
/// according to [`Record::tenant`].
#[derive(Debug, Clone)]
pub struct Peers {
    record: Arc<Record>,
    session: String,
}

impl Peers {
    /// The peers of the session with this id.
    pub fn of(record: &Arc<Record>, session: &str) -> Self {
        Self {
            record: Arc::clone(record),
            session: session.to_owned(),
        }
    }

    /// Whether the other session belongs to the same tenant. If the record cannot be read, the
    /// answer is no, so that a failure reveals nothing.
    pub fn has(&self, other: &str) -> bool {
        let own = self.record.tenant(&self.session);
        let other = self.record.tenant(other);
        matches!((own, other), (Ok(own), Ok(other)) if own == other)
    }
}

/// Whether a turn may compact the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compact {
    /// If the engine or hygiene decides so.
    #[default]
    Auto,
    /// In any case, whatever the size of the prompt and the engine's cool-down.
    Force,
    /// Not in this turn. The request is ingested and rendered, but not compacted.
    Never,
}

/// Options for one turn. The default lets the engine decide.
#[derive(Debug, Clone, Default)]
pub struct TurnOptions {
    /// Whether the turn may compact the window.
    pub compact: Compact,
    /// A topic that a summary should keep in more detail.
    pub focus: Option<String>,
    /// Text from a memory system that a summary may use.
    pub memory: Option<String>,
    /// The tokens of the system prompt and the tools. Set it if the body does not hold all of them.
    pub fixed_tokens: Option<u64>,
    /// The index of a wire message, counted after the system prompt. This message and all after it
    /// stay as they are, and the next request may come without them.
    pub keep_from: Option<usize>,
    /// When the request was made, in milliseconds since the Unix epoch. None for now.
    pub time_ms: Option<i64>,
    /// Whether a compaction may wait for a model. None for the value of
    /// `compression.wait_for_model`.
    pub wait_for_model: Option<bool>,
    /// Whether to leave the engine's tools out of this request, because its sender forbids tools.
    pub without_tools: bool,
    /// Whether the turn may leave saving to a later call. It then writes only what the engine
    /// needs, and returns sooner. Set it only if an answer or
    /// [`Session::release`](super::Session::release) follows before you rely on what the turn
    /// ingested.
    pub saves_later: bool,
}

/// One message of the body that the model is to see. Wire messages of the request are named by
/// their index, counted after the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyMessage {
    /// The caller's wire message, byte for byte.
    Kept(usize),
    /// Another form of the caller's wire message, as JSON.
    Changed(usize, String),
    /// A message that the host adds, as JSON.
    Added(String),
}

/// How a conversation compares with the one that a session holds. All fields are numbers of
/// messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// Messages that the session holds.
    pub held: usize,
    /// Messages that both have. Messages under summaries of the conversation are not counted.
    pub common: usize,
    /// Messages of the session that the conversation has in another form.
    pub revised: usize,
    /// Messages of the conversation that the session does not have in any form.
    pub new: usize,
    /// Messages at the end of the session that the conversation lacks. A turn over the conversation
    /// would cut them off.
    pub cut: usize,
}

/// A revision: the id of the new form, and the id of the message that it replaces.
pub type Revision = (MessageId, MessageId);
