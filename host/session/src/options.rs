//! What a caller says about a session and about one turn.

use std::sync::Arc;

use contexture_engine_api::MessageId;

use super::background::BackgroundBy;
use super::record::Record;

/// The agent's model, as a session needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentWindow {
    /// The model's name.
    pub model: String,
    /// Its whole window, in tokens.
    pub context_length: u64,
    /// What is reserved for the answer, in tokens.
    pub max_output_tokens: u64,
}

/// What happens to a request that has nothing in common with the session's conversation: no message, and no
/// summary that was handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unrelated {
    /// It begins anew in the same session; what was there stays readable.
    #[default]
    NewRoot,
    /// It is refused, and nothing is changed.
    Refuse,
}

/// How a session is kept, beside its model.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The engine, in place of the configured one.
    pub engine: Option<String>,
    /// What happens to a request of another conversation.
    pub unrelated: Unrelated,
    /// Whether a summary at the head of the window gets a message of its own.
    pub own_summaries: bool,
    /// Whether a compaction may append its note to the system prompt.
    pub note: bool,
    /// Who makes model calls between turns.
    pub background: BackgroundBy,
    /// Whether bodies leave with prompt cache markers where the configuration has them for this model.
    pub cache_markers: bool,
    /// Who serves the agent's model, where the configuration's `model` section is not what tells: by this name it is
    /// decided whether bodies are marked.
    pub provider: Option<String>,
    /// Whether the engine's tools are in the requests, also where the engine leaves that to the agent: once a
    /// compaction is in force, where the window has room for them. Who sets this answers their calls, by
    /// [`Session::call_tool`](super::Session::call_tool).
    pub offer_tools: bool,
    /// How long to wait for a session that is open elsewhere.
    pub wait: std::time::Duration,
    /// Who else's sessions there are, for an engine whose tools look into other sessions. None if it may look into all.
    pub peers: Option<Peers>,
    /// For a session that is opened without its record, beside whoever holds it: the record. The engine reads the
    /// transcript and its artifacts there, and is told of its compaction in force. Nothing is written to it.
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
            wait: super::hold::PATIENCE,
            peers: None,
            beside: None,
        }
    }
}

/// Decides which other sessions the engine of a session may look into: those of the same tenant, by what the record says
/// ([`Record::tenant`]).
#[derive(Debug, Clone)]
pub struct Peers {
    record: Arc<Record>,
    session: String,
}

impl Peers {
    /// Those of this session.
    pub fn of(record: &Arc<Record>, session: &str) -> Self {
        Self {
            record: Arc::clone(record),
            session: session.to_owned(),
        }
    }

    /// Whether the other session is one of them. A record that cannot be read says of none that it is.
    pub fn has(&self, other: &str) -> bool {
        let own = self.record.tenant(&self.session);
        let other = self.record.tenant(other);
        matches!((own, other), (Ok(own), Ok(other)) if own == other)
    }
}

/// Whether a turn may compact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compact {
    /// Where the engine or hygiene says so.
    #[default]
    Auto,
    /// Now, whatever the size and the cool-downs.
    Force,
    /// Not in this turn: it is only taken in.
    Never,
}

/// What is asked of one turn.
#[derive(Debug, Clone, Default)]
pub struct TurnOptions {
    /// Whether it may compact.
    pub compact: Compact,
    /// A topic that a summary keeps in more detail.
    pub focus: Option<String>,
    /// Text from a memory system that a summary may draw on.
    pub memory: Option<String>,
    /// The tokens of system prompt and tools, where the body does not hold all of them.
    pub fixed_tokens: Option<u64>,
    /// The first wire message after the system prompt that stays as it is, by its index: only what stands
    /// before it is compacted, and the next turn may come without it.
    pub keep_from: Option<usize>,
    /// When the request was made, in ms since the Unix epoch; none for now.
    pub time_ms: Option<i64>,
    /// Whether a compaction may wait for a model; by default what `compression.wait_for_model` says.
    pub wait_for_model: Option<bool>,
    /// Whether the engine's tools are kept out of this request, for its sender forbids tools.
    pub without_tools: bool,
    /// Whether the caller lets go of the session ([`Session::let_go`](super::Session::let_go)), or feeds it an answer,
    /// before it counts on what this turn took in: the turn then writes no more than its engine needs, and is over sooner.
    pub saves_later: bool,
}

/// One message of the body that the model is to see. Wire messages of the request are named by their index after
/// the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyMessage {
    /// The caller's wire message, byte for byte.
    Kept(usize),
    /// Another form of the caller's wire message: its JSON.
    Changed(usize, String),
    /// A message that the host puts in: its JSON.
    Added(String),
}

/// How a conversation compares with the one that a session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// Messages of the session.
    pub held: usize,
    /// Messages that both have, those under summaries that the conversation holds not counted.
    pub common: usize,
    /// Messages of the session that the conversation has in another form.
    pub revised: usize,
    /// Messages that the conversation has beside these.
    pub new: usize,
    /// Messages at the session's end that the conversation has not: taking it in would cut them off.
    pub cut: usize,
}

/// A revision: the id of the new form, and of the message that it replaces.
pub type Revision = (MessageId, MessageId);
