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

use contexture_config::{Config, Threshold, engine_name};
use contexture_engine_api::{MessageId, WindowState, grouped};
use contexture_formats::tokens::known_window;
use contexture_transcript::Record;
use derive_setters::Setters;
use serde::Deserialize;

/// The agent's model, as far as a session needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentWindow {
    /// The model's name. It selects the tokenizer and the prices of the prompt cache.
    pub model: String,
    /// The size of its context window in tokens. Zero if it is not known.
    pub context_length: u64,
    /// The tokens that are reserved for the answer.
    pub max_output_tokens: u64,
}

impl AgentWindow {
    /// Describes a model by its name, the size of its context window and the tokens that are reserved
    /// for the answer.
    pub fn new(model: impl Into<String>, context_length: u64, max_output_tokens: u64) -> Self {
        Self {
            model: model.into(),
            context_length,
            max_output_tokens,
        }
    }

    /// The state of a window without messages.
    pub(crate) fn empty_window(&self) -> WindowState {
        WindowState::default()
            .model(self.model.clone())
            .context_length(self.context_length)
            .max_output_tokens(self.max_output_tokens)
    }
}

/// The agent's model, with what the configuration says of it (`compression.models`).
#[derive(Debug, Clone)]
pub(crate) struct ConfiguredAgent {
    agent: AgentWindow,
    /// The size of the prompt from which any engine compacts, or None for the engine's own setting.
    threshold_tokens: Option<u64>,
}

impl ConfiguredAgent {
    /// Applies the configuration to an agent. A context length of the configuration counts if the
    /// agent has none or a larger one, because a caller may know that the provider allows less. A
    /// threshold that does not fit the window is cut to it, and the returned warning says so.
    pub(crate) fn of(mut agent: AgentWindow, config: &Config) -> (Self, Option<String>) {
        let compression = &config.compression;
        let entry = compression.for_model(&agent.model);
        if let Some(most) = entry.and_then(|(_, entry)| entry.context_length) {
            agent.context_length = match agent.context_length {
                0 => most,
                known => known.min(most),
            };
        }
        let own = entry.and_then(|(pattern, entry)| {
            Some((
                format!("compression.models.{pattern}.threshold"),
                entry.threshold?,
            ))
        });
        let threshold = own.as_ref().map(|(_, threshold)| *threshold);
        // A session may be given less than the model's window, which is no mistake in the file.
        let known = known_window(&agent.model).map_or(0, |window| window.context_length);
        let most = known.max(agent.context_length);
        // Without an entry for the model, only the compressor reads the section.
        let is_built_in = config.context.engine == engine_name::BUILT_IN;
        let of_section = || ("compression.threshold".to_owned(), compression.threshold);
        let warning = match own.or_else(|| is_built_in.then(of_section)) {
            Some((key, Threshold::Tokens(tokens))) if tokens > most && most > 0 => Some(format!(
                "`{key}` is {} tokens, but the window of `{}` has only {}: its conversations are compacted when the \
                     window is full; write less, or a share of the window such as `0.8`",
                grouped(tokens),
                agent.model,
                grouped(most)
            )),
            _ => None,
        };
        let room = agent.empty_window().room_for_prompt();
        let tokens = threshold.and_then(|threshold| threshold.tokens(agent.context_length));
        let this = Self {
            threshold_tokens: tokens.map(|tokens| tokens.min(room.unwrap_or(u64::MAX))),
            agent,
        };
        (this, warning)
    }

    /// The agent's model and its window.
    pub(crate) fn agent(&self) -> &AgentWindow {
        &self.agent
    }

    /// The state of a window without messages.
    pub(crate) fn empty_window(&self) -> WindowState {
        let window = self.agent.empty_window();
        window.threshold_tokens(self.threshold_tokens)
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unrelated {
    /// The session begins a new conversation with it. The messages of the old one stay readable in
    /// the record.
    #[default]
    NewRoot,
    /// The same, but the caller knows that it is the same conversation, which the client compacted
    /// itself. So the rules and the pins of the user stay in force.
    Compacted,
    /// The turn fails with [`SessionError::Unrelated`](super::SessionError::Unrelated), and nothing
    /// is changed.
    Refuse,
}

/// How a session runs, apart from the model. Each field has a setter of its name.
#[derive(Debug, Clone, Setters)]
#[non_exhaustive]
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
    pub read_only: Option<Arc<Record>>,
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
            read_only: None,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compact {
    /// If the engine or hygiene decides so.
    #[default]
    Auto,
    /// In any case, whatever the size of the prompt and the engine's cool-down.
    Force,
    /// Not in this turn. The request is ingested and rendered, but not compacted.
    Never,
}

/// Options for one turn. The default lets the engine decide. Each field has a setter of its name.
///
/// ```
/// use contexture_session::{Compact, TurnOptions};
///
/// let options = TurnOptions::default().compact(Compact::Force).wait_for_model(Some(true));
/// # assert_eq!(options.compact, Compact::Force);
/// ```
#[derive(Debug, Clone, Default, Setters)]
#[non_exhaustive]
pub struct TurnOptions {
    /// Whether the turn may compact the window.
    pub compact: Compact,
    /// A topic that a summary should keep in more detail.
    pub focus: Option<String>,
    /// Text from a memory system that a summary may use.
    pub memory: Option<String>,
    /// The tokens of the system prompt and the tools. Set it if the body does not hold all of them.
    pub fixed_tokens: Option<u64>,
    /// The index of an item in the request's list, in which system messages count. This message and
    /// all after it stay as they are, and the next request may come without them.
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

#[cfg(test)]
mod tests;
