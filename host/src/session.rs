//! A session: one conversation, its window, and the engine that keeps it small.

pub mod align;
mod compact;
mod counting;
mod history;
mod hold;
mod report;
mod select;
mod store;
mod turn;
mod whole;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contexture_engine_api::{
    BackgroundCall, Decision, MessageId, ModelAnswer, ModelFailure, Observed, ToolCall, ToolSpec,
    Usage, WindowState,
};

use crate::config::OnFailure;
use crate::contract::Grouping;
use crate::engines::{Engines, Occasion, OpenError, Opened};
use crate::formats::{Conversation, Format, FormatError};
use crate::providers::ModelClient;
use crate::supervision::{CallError, Pace};
use crate::tokens::{Correction, TokenCounter};

pub use compact::Ask;
pub(crate) use counting::fixed_tokens;
pub use report::{CompactionReport, OutcomeKind};
pub use store::{Delivered, Store, StoreError};
pub use turn::Turn;
pub use whole::{Comparison, Taken};
pub use window::Window;

use history::History;
use hold::Hold;

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
    InUse(StoreError),
    /// An answer came before any turn.
    #[error("an answer needs a turn that it answers: call `turn` first")]
    NoTurn,
}

/// One conversation and its engine.
#[derive(Debug)]
pub struct Session {
    id: String,
    engines: Arc<Engines>,
    engine: Opened,
    fallback: Option<Opened>,
    on_failure: OnFailure,
    agent: AgentWindow,
    counter: TokenCounter,
    correction: Correction,
    client: ModelClient,
    model_calls: Arc<AtomicU64>,
    window: Arc<Window>,
    grouping: Grouping,
    fixed_tokens: u64,
    /// The reported prompt and answer, and the counted prompt that they were reported for.
    reported: Option<Reported>,
    chain: u64,
    compactions: u64,
    new_since_compaction: bool,
    warnings: Vec<String>,
    /// Whether the engine offers views for requests; none before it was asked.
    selects: Option<bool>,
    history: History,
    frame: Option<Frame>,
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

#[derive(Debug, Clone, Copy)]
struct Reported {
    /// Tokens of the prompt and of the part of the answer that stays.
    tokens: u64,
    /// What the window counted when it was sent.
    counted: u64,
}

impl Session {
    /// Opens a session under the engine that `named` or the configuration chooses.
    ///
    /// # Errors
    /// No engine can be had; with the default configuration only where one was named.
    pub fn open(
        engines: &Arc<Engines>,
        id: &str,
        named: Option<&str>,
        agent: AgentWindow,
    ) -> Result<Self, SessionError> {
        Self::open_with(engines, id, named, agent, None, None, Vec::new())
    }

    /// Opens a session that `store` keeps, or goes on with it where it was left: what was seen keeps its
    /// ids, the compaction in force stays in force, and the engine is shown only what it has not seen.
    ///
    /// A session is open once at a time, in all processes together: until this one is ended or dropped, another
    /// `resume` of it waits, for half a minute at most. A store that cannot be used is a warning: the session
    /// goes on in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open); or somebody else has the session open.
    pub fn resume(
        engines: &Arc<Engines>,
        store: &Arc<Store>,
        id: &str,
        named: Option<&str>,
        agent: AgentWindow,
    ) -> Result<Self, SessionError> {
        let (hold, loaded) = match store.hold(id) {
            Ok(hold) => (Some(hold), store.load(id)),
            Err(error @ StoreError::InUse { .. }) => return Err(SessionError::InUse(error)),
            Err(error) => (None, Err(error)),
        };
        let (saved, warnings) = match loaded {
            Ok(saved) => (Some(saved), Vec::new()),
            Err(error) => {
                let warning = history::without_store(&error);
                tracing::warn!("{warning}");
                (None, vec![warning])
            }
        };
        Self::open_with(engines, id, named, agent, hold, saved, warnings)
    }

    fn open_with(
        engines: &Arc<Engines>,
        id: &str,
        named: Option<&str>,
        agent: AgentWindow,
        hold: Option<Hold>,
        saved: Option<(store::Place, store::Saved)>,
        mut warnings: Vec<String>,
    ) -> Result<Self, SessionError> {
        let model_calls = Arc::new(AtomicU64::new(0));
        let counter = TokenCounter::for_model(&agent.model);
        let in_force = saved
            .as_ref()
            .and_then(|(_, saved)| saved.compaction.as_ref());
        let compaction = in_force.map(History::current_compaction);
        let occasion = Occasion {
            session: id,
            window: &empty_state(&agent),
            counter,
            model_calls: &model_calls,
            compaction: compaction.as_ref(),
        };
        let engine = engines.open(named, &occasion, &mut warnings)?;
        let next_id = saved.as_ref().map_or(1, |(_, saved)| saved.next_id);
        let history = saved.map_or_else(History::default, |(place, saved)| {
            History::of(place, saved, engine.name())
        });
        Ok(Self {
            id: id.to_owned(),
            engines: Arc::clone(engines),
            engine,
            fallback: None,
            on_failure: engines.config().context.on_failure,
            counter,
            correction: Correction::default(),
            client: engines.client().clone(),
            agent,
            model_calls,
            window: Arc::new(Window::of(Vec::new(), None, next_id)),
            grouping: Grouping::Chat,
            fixed_tokens: 0,
            reported: None,
            chain: 0,
            compactions: history.compactions,
            new_since_compaction: false,
            warnings,
            selects: None,
            history,
            frame: None,
            _hold: hold,
        })
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

    /// The window as it stands. Whoever keeps a copy of it makes the next message copy all of it.
    pub fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// Model calls made for this session so far.
    pub fn model_calls(&self) -> u64 {
        self.model_calls.load(Ordering::Relaxed)
    }

    /// Sets what stands outside the history: the system prompt and the tools of `conversation`, and
    /// the grouping rules of its format.
    pub fn set_frame(&mut self, conversation: &Conversation) {
        self.fixed_tokens = counting::fixed_tokens(&self.counter, conversation);
        self.grouping = match conversation.format() {
            Format::Anthropic | Format::ClaudeCode => Grouping::Anthropic,
            Format::OpenAiResponses | Format::Codex => Grouping::Responses,
            _ => Grouping::Chat,
        };
    }

    /// Counts tokens that every prompt holds beside what the conversation's document shows: the engine's
    /// own tools, or the system prompt that a session log leaves out. To be said after
    /// [`set_frame`](Self::set_frame), which counts anew.
    pub fn add_fixed_tokens(&mut self, tokens: u64) {
        self.fixed_tokens += tokens;
    }

    /// How long the calls of the engine took in all, those of the one that stands in for it included.
    pub fn engine_time(&self) -> std::time::Duration {
        let standing_in = self.fallback.as_ref().map(Opened::busy);
        self.engine.busy() + standing_in.unwrap_or_default()
    }

    /// Adds messages of a conversation to the window and shows them to the engine, in one hop with
    /// its decision whether to compact now.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`. Otherwise a failure is a warning, and the
    /// decision is the fallback's or a no.
    pub fn observe(
        &mut self,
        conversation: &Arc<Conversation>,
        messages: std::ops::Range<usize>,
    ) -> Result<Decision, SessionError> {
        let first = self.window.len();
        Arc::make_mut(&mut self.window).append(conversation, messages, &self.counter);
        self.chain = self.window.chain(first, self.chain);
        self.new_since_compaction |= self.window.len() > first;
        let (window, chain, state) = (Arc::clone(&self.window), self.chain, self.state());
        let asked = state.clone();
        let answer = self.engine.call("observe", Pace::Short, move |engine| {
            let seen = engine.observed_through();
            let last = window.last_id();
            if first < window.len() && seen.map(|seen| seen.last) < last {
                let calls = window.call_views(first);
                let views = window.views(first, &calls);
                engine.observe(&views, chain)?;
            }
            Ok(engine.should_compress(&asked))
        });
        answer.or_else(|error| self.decide_without_engine(error, &state))
    }

    /// Asks the engine, before anything is counted, whether a prompt of about `estimated` tokens would
    /// make it compact. Cheap enough to be asked for every request; where it is a no, nothing has to
    /// stand between the request and the model.
    ///
    /// # Errors
    /// As [`observe`](Self::observe).
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
                let decision = engine.should_compress_preflight(&asked);
                if decision.is_yes() && engine.defers_preflight_to_reported_usage(&asked) {
                    let reason = "the estimate waits for the usage that the provider reports";
                    return Ok(Decision::No(reason.to_owned()));
                }
                Ok(decision)
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
        self.chain = 0;
        self.new_since_compaction = false;
        let lost = self.history.forget(next_id);
        self.warn(lost);
        Ok(())
    }

    /// The originals of these messages as the engine keeps them, as JSON each; none for one that it has
    /// not got.
    ///
    /// # Errors
    /// The engine failed.
    pub fn recall(&mut self, ids: Vec<MessageId>) -> Result<Vec<Option<String>>, SessionError> {
        Ok(self
            .engine
            .call("recall", Pace::Short, move |engine| engine.recall(&ids))?)
    }

    /// Asks whether to compact now.
    ///
    /// # Errors
    /// As [`observe`](Self::observe).
    pub fn should_compress(&mut self) -> Result<Decision, SessionError> {
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
            let in_force = self.history.in_force.as_ref();
            let compaction = in_force.map(History::current_compaction);
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
        let counted = self.counted_tokens();
        WindowState {
            prompt_tokens: self.correction.apply(counted),
            fixed_tokens: self.fixed_tokens,
            reported_tokens: self
                .reported
                .map(|reported| reported.tokens + counted.saturating_sub(reported.counted)),
            messages: self.window.len(),
            new_since_compaction: self.new_since_compaction,
            ..empty_state(&self.agent)
        }
    }

    fn counted_tokens(&self) -> u64 {
        self.fixed_tokens + self.window.message_tokens()
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
        let state = self.state();
        self.tell("model_changed", move |engine| engine.model_changed(&state))
    }

    /// Tells the engine that a turn is over.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn turn_complete(&mut self) -> Result<(), SessionError> {
        self.tell("turn_complete", |engine| engine.turn_complete())
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
        match told {
            Ok(()) => Ok(()),
            Err(error) if self.on_failure == OnFailure::Fail => Err(error.into()),
            // A closed session said so when it was closed.
            Err(CallError::Closed { .. }) => Ok(()),
            Err(error) => {
                tracing::warn!("{error}");
                self.warnings.push(error.to_string());
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
        Ok(self.engine.call("call_tool", Pace::Long, move |engine| {
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

    /// The model calls that the engine would like made between turns, with the client to make them:
    /// run [`BackgroundWork::run`] wherever it does not hold up a turn, then hand the answers to
    /// [`background_done`](Self::background_done).
    ///
    /// # Errors
    /// The engine failed.
    pub fn background(&mut self) -> Result<BackgroundWork, SessionError> {
        let calls =
            self.engine
                .call("background", Pace::Short, |engine| Ok(engine.background()))?;
        Ok(BackgroundWork {
            calls,
            client: self.client.clone(),
            model_calls: Arc::clone(&self.model_calls),
        })
    }

    /// Hands the answers of background calls to the engine. Those about messages that the conversation
    /// has not got are discarded.
    ///
    /// # Errors
    /// The engine failed.
    pub fn background_done(&mut self, answers: Vec<BackgroundAnswer>) -> Result<(), SessionError> {
        let is_there = |id| self.window.has_had(id) && !self.history.gone.contains(&id);
        let answers: Vec<_> = answers
            .into_iter()
            .filter(|(call, _)| call.covers.iter().all(|id| is_there(*id)))
            .map(|(call, answer)| (call.id, answer))
            .collect();
        self.tell("background_done", move |engine| {
            for (id, answer) in answers {
                engine.background_done(id, answer);
            }
        })
    }

    /// How far the engine has seen the conversation.
    ///
    /// # Errors
    /// The engine failed.
    pub fn observed_through(&mut self) -> Result<Option<Observed>, SessionError> {
        Ok(self
            .engine
            .call("observed_through", Pace::Short, |engine| {
                Ok(engine.observed_through())
            })?)
    }

    /// Closes the session.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn end(mut self) -> Result<(), SessionError> {
        self.tell("end", |engine| engine.end())
    }
}

/// A background call and what came of it.
pub type BackgroundAnswer = (BackgroundCall, Result<ModelAnswer, ModelFailure>);

/// Model calls that an engine wants made between turns.
#[derive(Debug)]
pub struct BackgroundWork {
    calls: Vec<BackgroundCall>,
    client: ModelClient,
    model_calls: Arc<AtomicU64>,
}

impl BackgroundWork {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the calls, several at once, and blocks until each is answered or `cancel` is set.
    pub fn run(self, cancel: &std::sync::atomic::AtomicBool) -> Vec<BackgroundAnswer> {
        if self.client.endpoint().is_ok() {
            self.model_calls
                .fetch_add(self.calls.len() as u64, Ordering::Relaxed);
        }
        let requests: Vec<_> = self.calls.iter().map(|call| call.request.clone()).collect();
        let answers = self.client.complete_many(&requests, cancel);
        self.calls.into_iter().zip(answers).collect()
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
