//! A session: one conversation, its window, and the engine that keeps it small.
//!
//! Every request goes one way, [`Session::turn`]; whoever reads a conversation from a file takes it too, by
//! [`Session::turn_over`].

mod align;
mod background;
mod compact;
mod counting;
mod hand_out;
mod history;
mod hold;
mod options;
mod recall;
mod record;
mod report;
mod request;
mod select;
mod show;
mod take_in;
mod trail;
mod turn;
mod window;
mod written;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contexture_engine_api::{Decision, MessageId, ToolCall, ToolSpec, Usage, WindowState};

use crate::config::OnFailure;
use crate::contract::Grouping;
use crate::engines::{Engines, Occasion, OpenError, Opened};
use crate::formats::{Format, FormatError};
use crate::providers::ModelClient;
use crate::supervision::{CallError, Pace};
use crate::tokens::{Correction, TokenCounter};

pub use background::{BackgroundAnswer, BackgroundBy, BackgroundWork};
pub(crate) use counting::{fixed_tokens, message_tokens};
pub use hold::Hold;
pub use options::{
    AgentWindow, Compact, Comparison, Place, Revision, SessionOptions, TurnOptions, Unrelated,
};
pub use record::{Delivered, Record, RecordError};
pub use report::{CompactionReport, OutcomeKind};
pub use turn::Turn;
pub use window::Window;

use background::Background;
use compact::Ask;
use hand_out::Layout;
use history::History;
use window::Slot;

/// What went wrong in a session in a way that the configuration does not smooth over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The engine failed and `context.on_failure` is `fail`.
    #[error(
        "{reason} (`context.on_failure` is `fail`, so the turn stops here; the conversation is unchanged)"
    )]
    EngineFailed {
        /// What happened.
        reason: String,
        /// The report of the compaction that failed, where there was one.
        report: Box<CompactionReport>,
    },
    /// An engine could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A call of the engine failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A request or an answer could not be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Somebody else has the session open.
    #[error(transparent)]
    InUse(RecordError),
    /// The request is of another conversation than the session.
    #[error(
        "the conversation has nothing in common with the session `{session}`, no message and no summary; nothing \
         was changed: take another session for it, or remove this one first (`contexture sessions delete`)"
    )]
    Unrelated {
        /// The session.
        session: String,
    },
    /// An answer came before any turn.
    #[error("an answer needs a turn that it answers: call `turn` first")]
    NoTurn,
}

/// One conversation and its engine.
///
/// A session is used by one thread at a time; what is slow in it (a model, a disk) has a bound. What a turn
/// brought is durable when [`turn`](Self::turn) and [`answer`](Self::answer) return.
#[derive(Debug)]
pub struct Session {
    id: String,
    engines: Arc<Engines>,
    engine: Opened,
    fallback: Option<Opened>,
    /// The engine that had the session before this one, until it was asked for what it keeps.
    previous_engine: Option<String>,
    on_failure: OnFailure,
    options: SessionOptions,
    agent: AgentWindow,
    counter: TokenCounter,
    correction: Correction,
    client: ModelClient,
    model_calls: Arc<AtomicU64>,
    background: Background,
    window: Arc<Window>,
    grouping: Grouping,
    fixed_tokens: u64,
    reported: Option<Reported>,
    new_since_compaction: bool,
    warnings: Vec<String>,
    /// Whether the engine offers views for requests; none before it was asked.
    selects: Option<bool>,
    history: History,
    /// Messages that the engine was not shown yet.
    unshown: HashMap<MessageId, Slot>,
    /// Messages that the next request may come without.
    provisional: HashSet<MessageId>,
    /// Messages whose text was found nowhere in this turn.
    missing: u64,
    /// Whether the engine was asked for a conversation that the record has not got.
    recovered: bool,
    frame: Option<Frame>,
    /// How the window was laid out last, where it has not changed since but at its end.
    layout: Option<Layout>,
    /// What the shorter forms in the window read like on the wire.
    short_forms: HashMap<MessageId, u128>,
    /// Let go last.
    _hold: Option<Hold>,
}

/// System prompt and tools of the last request.
#[derive(Debug)]
struct Frame {
    /// The hash of their bytes.
    hash: u64,
    system: Option<String>,
}

/// What the provider reported last.
#[derive(Debug, Clone, Copy)]
struct Reported {
    /// Tokens of the prompt.
    tokens: u64,
    /// What the window counted when it was sent.
    counted: u64,
}

impl Session {
    /// Opens a session, or goes on with it where `record` has it: what was seen keeps its ids, the compaction
    /// in force stays in force, and the engine is shown only what it has not seen. Without a record the session
    /// lives in memory alone.
    ///
    /// A session is open once at a time, in all processes together: until this one is ended or dropped, another
    /// waits for it, as long as the options say. A record that cannot be used is a warning.
    ///
    /// # Errors
    /// No engine can be had (with the default configuration only where one was named); or somebody else has
    /// the session open.
    pub fn open(
        engines: &Arc<Engines>,
        record: Option<&Arc<Record>>,
        id: &str,
        agent: AgentWindow,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let mut warnings = Vec::new();
        let mut hold = None;
        let mut saved = None;
        if let Some(record) = record {
            let loaded = match record.hold(id, options.wait) {
                Ok(held) => {
                    hold = Some(held);
                    record.load(id)
                }
                Err(error @ RecordError::InUse { .. }) => return Err(SessionError::InUse(error)),
                Err(error) => Err(error),
            };
            match loaded {
                Ok(loaded) => saved = Some(loaded),
                Err(error) => {
                    let warning = history::without_record(&error);
                    tracing::warn!("{warning}");
                    warnings.push(warning);
                }
            }
        }
        let model_calls = Arc::new(AtomicU64::new(0));
        let counter = TokenCounter::for_model(&agent.model);
        let next_id = saved.as_ref().map_or(1, |(_, saved)| saved.next_id);
        let last_engine = saved.as_ref().map(|(_, saved)| saved.engine.clone());
        let mut history =
            saved.map_or_else(History::default, |(place, saved)| History::of(place, saved));
        let compaction = history.current_compaction();
        let occasion = Occasion {
            session: id,
            window: &empty_state(&agent),
            counter,
            model_calls: &model_calls,
            compaction: compaction.as_ref(),
        };
        let engine = engines.open(options.engine.as_deref(), &occasion, &mut warnings)?;
        history.set_engine(engine.name());
        Ok(Self {
            id: id.to_owned(),
            engines: Arc::clone(engines),
            previous_engine: last_engine.filter(|last| !last.is_empty() && last != engine.name()),
            engine,
            fallback: None,
            on_failure: engines.config().context.on_failure,
            options,
            counter,
            correction: Correction::default(),
            client: engines.client().clone(),
            agent,
            model_calls,
            background: Background::default(),
            window: Arc::new(Window::of(Vec::new(), None, next_id)),
            grouping: Grouping::Chat,
            fixed_tokens: 0,
            reported: None,
            new_since_compaction: false,
            warnings,
            selects: None,
            history,
            unshown: HashMap::new(),
            provisional: HashSet::new(),
            missing: 0,
            recovered: false,
            frame: None,
            layout: None,
            short_forms: HashMap::new(),
            _hold: hold,
        })
    }

    /// Writes what changed; a failure is a warning.
    fn save(&mut self) {
        if let Some(lost) = self.history.save(self.window.next_id()) {
            self.warn(lost);
        }
    }

    fn warn(&mut self, warning: String) {
        tracing::warn!("{warning}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Opens the engine anew after a call of it came back too late: the abandoned object is never touched
    /// again, and what it may have done meanwhile is found out from what it says to have seen.
    fn reopen_engine(&mut self) {
        if !self.engine.is_stalled() {
            return;
        }
        let name = self.engine.name().to_owned();
        let compaction = self.history.current_compaction();
        let occasion = Occasion {
            session: &self.id,
            window: &self.state(),
            counter: self.counter,
            model_calls: &self.model_calls,
            compaction: compaction.as_ref(),
        };
        match self.engines.open(Some(&name), &occasion, &mut Vec::new()) {
            Ok(engine) => {
                tracing::info!("engine `{name}` is opened again for session `{}`", self.id);
                self.engine = engine;
            }
            Err(error) => tracing::warn!("engine `{name}` cannot be opened again: {error}"),
        }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The engine that the session runs under, and whence it came.
    pub fn engine(&self) -> &Opened {
        &self.engine
    }

    /// What a person should know of the choice of engine and of failures since, and forgets it.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Model calls made for this session so far.
    pub fn model_calls(&self) -> u64 {
        self.model_calls.load(Ordering::Relaxed)
    }

    /// How long the calls of the engine took in all, those of the one that stands in for it included.
    pub fn engine_time(&self) -> std::time::Duration {
        let standing_in = self.fallback.as_ref().map(Opened::busy);
        self.engine.busy() + standing_in.unwrap_or_default()
    }

    /// Asks the engine, before anything is counted, whether a prompt of about `estimated` tokens would
    /// make it compact. Cheap enough to be asked for every request; where it is a no, nothing has to
    /// stand between the request and the model.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn preflight(&mut self, estimated: u64) -> Result<Decision, SessionError> {
        let state = WindowState {
            prompt_tokens: estimated,
            estimated: true,
            reported_tokens: None,
            ..self.state()
        };
        let asked = state.clone();
        let answer = self
            .engine
            .call("should_compress_preflight", Pace::Short, move |engine| {
                Ok(show::preflight(engine, &asked))
            });
        answer.or_else(|error| self.decide_without_engine(error, &state))
    }

    /// Forgets the conversation and begins anew under the same id.
    ///
    /// # Errors
    /// The engine failed: it and the session then still have the conversation.
    pub fn reset(&mut self) -> Result<(), SessionError> {
        self.engine
            .call("reset", Pace::Short, |engine| engine.reset())?;
        let next_id = self.window.next_id();
        self.window = Arc::new(Window::of(Vec::new(), None, next_id));
        self.reported = None;
        self.new_since_compaction = false;
        self.layout = None;
        self.unshown.clear();
        self.history.forget();
        self.save();
        Ok(())
    }

    /// Asks whether to compact now.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    fn should_compress(&mut self) -> Result<Decision, SessionError> {
        let state = self.state();
        let asked = state.clone();
        let answer = self
            .engine
            .call("should_compress", Pace::Short, move |engine| {
                Ok(engine.should_compress(&asked))
            });
        answer.or_else(|error| self.decide_without_engine(error, &state))
    }

    fn decide_without_engine(
        &mut self,
        error: CallError,
        state: &WindowState,
    ) -> Result<Decision, SessionError> {
        tracing::warn!("{error}");
        match self.on_failure {
            OnFailure::Fail => Err(error.into()),
            OnFailure::Passthrough => {
                self.warnings.push(error.to_string());
                Ok(Decision::No(error.to_string()))
            }
            OnFailure::Fallback => {
                self.warnings.push(error.to_string());
                let state = state.clone();
                let decision =
                    self.fallback()?
                        .call("should_compress", Pace::Short, move |engine| {
                            Ok(engine.should_compress(&state))
                        })?;
                Ok(decision)
            }
        }
    }

    /// The built-in compressor, opened when it is first needed.
    fn fallback(&mut self) -> Result<&mut Opened, SessionError> {
        if self.fallback.is_none() {
            let compaction = self.history.current_compaction();
            let occasion = Occasion {
                session: &self.id,
                window: &self.state(),
                counter: self.counter,
                model_calls: &self.model_calls,
                compaction: compaction.as_ref(),
            };
            self.fallback = Some(self.engines.open_builtin(&occasion)?);
        }
        // Just filled where it was empty.
        self.fallback
            .as_mut()
            .ok_or_else(|| OpenError::NoFallback.into())
    }

    /// How full the window is, with all that is known of it.
    pub fn state(&self) -> WindowState {
        self.state_of(self.counted_tokens(), false)
    }

    /// How full the window is at most, without counting what nobody has asked of yet.
    fn rough_state(&self) -> WindowState {
        match self.window.is_counted() {
            true => self.state(),
            false => self.state_of(
                self.frame_tokens() + self.window.most_message_tokens(),
                true,
            ),
        }
    }

    fn state_of(&self, tokens: u64, estimated: bool) -> WindowState {
        WindowState {
            prompt_tokens: self.correction.apply(tokens),
            estimated,
            fixed_tokens: self.frame_tokens(),
            has_system_prompt: (self.frame.as_ref()).map(|frame| frame.system.is_some()),
            reported_tokens: self
                .reported
                .map(|reported| reported.tokens + tokens.saturating_sub(reported.counted)),
            messages: self.window.len(),
            new_since_compaction: self.new_since_compaction,
            ..empty_state(&self.agent)
        }
    }

    fn counted_tokens(&self) -> u64 {
        self.frame_tokens() + self.window.message_tokens()
    }

    /// The tokens of system prompt, tools, and the note that a compaction appended.
    pub(crate) fn frame_tokens(&self) -> u64 {
        self.fixed_tokens
            + self
                .note_to_add()
                .map_or(0, |note| self.counter.count_text(note))
    }

    /// The note that the system prompt still lacks.
    fn note_to_add(&self) -> Option<&str> {
        let note = self.window.system_note().filter(|_| self.options.note)?;
        let frame = self.frame.as_ref();
        let system = frame.and_then(|frame| frame.system.as_deref());
        (!system.is_some_and(|system| system.contains(note))).then_some(note)
    }

    /// Takes in what the provider reported for the answer to the window as it was sent; the answer
    /// itself is observed after this. The engine learns of it with its next call.
    pub fn update_usage(&mut self, usage: &Usage) {
        let counted = self.counted_tokens();
        self.correction.learn(counted, usage.input_tokens);
        // The answer joins the window and is counted there, so only the prompt is taken from the report.
        self.reported = Some(Reported {
            tokens: usage.input_tokens,
            counted,
        });
        self.engine.update_usage(*usage);
    }

    /// Tells the engine that the agent's model is another now. What was reported for the old one no
    /// longer counts.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn set_model(&mut self, agent: AgentWindow) -> Result<(), SessionError> {
        self.counter = TokenCounter::for_model(&agent.model);
        self.agent = agent;
        self.reported = None;
        self.correction = Correction::default();
        Arc::make_mut(&mut self.window).recount(&self.counter);
        self.frame = None;
        let state = self.state();
        self.tell("model_changed", move |engine| engine.model_changed(&state))
    }

    fn tell(
        &mut self,
        method: &'static str,
        say: impl FnOnce(&mut dyn contexture_engine_api::ContextEngine) + Send + 'static,
    ) -> Result<(), SessionError> {
        let told = self.engine.call(method, Pace::Short, move |engine| {
            say(engine);
            Ok(())
        });
        told.or_else(|error| self.not_told(error.into()))
    }

    /// What a failed call of the engine comes to that the turn can do without.
    fn not_told(&mut self, error: SessionError) -> Result<(), SessionError> {
        match error {
            error if self.on_failure == OnFailure::Fail => Err(error),
            // A closed session said so when it was closed.
            SessionError::Call(CallError::Closed { .. }) => Ok(()),
            error => {
                self.warn(error.to_string());
                Ok(())
            }
        }
    }

    /// The tools that the engine gives to the agent.
    ///
    /// # Errors
    /// The engine failed.
    pub fn tools(&mut self) -> Result<Vec<ToolSpec>, SessionError> {
        Ok(self
            .engine
            .call("tools", Pace::Short, |engine| Ok(engine.tools()))?)
    }

    /// Has the engine answer a call of one of its tools.
    ///
    /// # Errors
    /// The engine failed, or refused the arguments.
    pub fn call_tool(&mut self, call: ToolCall) -> Result<String, SessionError> {
        Ok(self.engine.call("call_tool", Pace::Short, move |engine| {
            engine.call_tool(&call)
        })?)
    }

    /// What the engine says of itself.
    ///
    /// # Errors
    /// The engine failed.
    pub fn status(&mut self) -> Result<serde_json::Value, SessionError> {
        Ok(self
            .engine
            .call("status", Pace::Short, |engine| Ok(engine.status()))?)
    }

    /// Closes the session.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn end(mut self) -> Result<(), SessionError> {
        self.save();
        self.tell("end", |engine| engine.end())
    }
}

fn grouping_of(format: Format) -> Grouping {
    match format {
        Format::Anthropic | Format::ClaudeCode => Grouping::Anthropic,
        Format::OpenAiResponses | Format::Codex => Grouping::Responses,
        _ => Grouping::Chat,
    }
}

fn empty_state(agent: &AgentWindow) -> WindowState {
    WindowState {
        model: agent.model.clone(),
        context_length: agent.context_length,
        max_output_tokens: agent.max_output_tokens,
        ..WindowState::default()
    }
}
