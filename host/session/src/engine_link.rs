//! The link to the engine: it is shown what is new, asked for decisions, has its tools called and its
//! background work run, and is stood in for if it fails.
//!
//! Most calls follow the same policy. If `context.on_failure` is `fail`, the error is returned.
//! Otherwise the session warns, and either continues without the engine or asks the built-in
//! compressor, which is opened on first use ([`EngineLink::fallback()`]).
//!
//! A call that exceeds its deadline leaves the engine's object in use by a thread that may still
//! return. [`EngineLink::reopen`] continues with that object if it has returned, or opens a new one.
//! Deadlines and quarantine are the business of `contexture_runtime`.
//!
//! Start with [`EngineLink`]. What an engine is shown is delivered in `delivery`, its tools are in
//! `tools`, its model calls between turns in `background`, and what the host lends to it in
//! `services`. What a wire format looks like is not known here.

mod asking;
mod background;
mod delivery;
mod guidance;
mod services;
mod tools;

use std::sync::Arc;

use contexture_config::OnFailure;
use contexture_engine_api::{
    ContextEngine, CurrentCompaction, Decision, MessageId, ToolCall, Usage, WindowState,
};
use contexture_formats::tokens::TokenCounter;
use contexture_runtime::engines::{Engines, Occasion, OpenError, Opened};
use contexture_runtime::supervision::{CallError, Deadline};

pub use self::asking::Canceller;
pub(crate) use self::asking::{Asking, SentPrompt};
use self::background::Background;
pub use self::background::{BackgroundAnswer, BackgroundWork};
use self::guidance::Guidance;
use self::services::Lender;
use self::tools::OfferedTools;
pub(crate) use self::tools::ToolRoom;
use super::conversation::ConversationState;
use super::engine_transcript::EngineTranscript;
use super::error::SessionError;
use super::host_tools;
use super::options::{ConfiguredAgent, SessionOptions};
use super::warnings::Warnings;

/// The engine of a session, with what it needs from the host.
#[derive(Debug)]
pub(crate) struct EngineLink {
    session: String,
    engines: Arc<Engines>,
    engine: Opened,
    /// Whether the engine failed to open with the session. The first turn then does not try again.
    has_just_failed: bool,
    /// The built-in compressor. It is opened when the engine first fails and `context.on_failure`
    /// is `fallback`.
    fallback: Option<Opened>,
    lender: Lender,
    background: Background,
    tools: OfferedTools,
    warnings: Warnings,
}

impl EngineLink {
    /// Opens the engine that the options name, or else the configured one. It continues from
    /// `compaction`, if one is in force.
    pub(crate) fn open(
        engines: &Arc<Engines>,
        session: &str,
        agent: &ConfiguredAgent,
        options: &SessionOptions,
        transcript: &Arc<EngineTranscript>,
        compaction: Option<&CurrentCompaction>,
        warnings: Warnings,
    ) -> Result<Self, SessionError> {
        let guidance = Guidance::of(engines.loaded());
        let lender = Lender {
            asking: Arc::new(Asking::new(engines.client().clone(), guidance)),
            counter: TokenCounter::for_model(&agent.agent().model),
            peers: options.peers.clone(),
            transcript: Arc::clone(transcript),
        };
        let occasion = Occasion {
            session,
            window: &agent.empty_window(),
            services: &|engine, call| lender.services(engine, call),
            compaction,
        };
        let compression = &engines.config().compression;
        let host_tools = match compression.model_tools {
            // Only the session that gets the requests can grant a compaction.
            true => host_tools::specs(
                compression.enabled && compression.automatic && options.read_only.is_none(),
            ),
            false => Vec::new(),
        };
        let mut warned = Vec::new();
        let opened = engines.open(options.engine.as_deref(), &occasion, &mut warned);
        warned.into_iter().for_each(|warning| warnings.add(warning));
        let engine = opened?;
        Ok(Self {
            session: session.to_owned(),
            engines: Arc::clone(engines),
            has_just_failed: engine.is_stalled() && engine.quarantine().is_none(),
            engine,
            fallback: None,
            lender,
            background: Background::by(options.background),
            tools: OfferedTools::new(options.offer_tools, host_tools),
            warnings,
        })
    }

    pub(crate) fn engines(&self) -> &Arc<Engines> {
        &self.engines
    }

    /// The session's engine. The fallback that stands in for a failed call is not returned here.
    pub(crate) fn engine(&self) -> &Opened {
        &self.engine
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Opened {
        &mut self.engine
    }

    pub(crate) fn asking(&self) -> &Arc<Asking> {
        &self.lender.asking
    }

    pub(crate) fn on_failure(&self) -> OnFailure {
        self.engines.config().context.on_failure
    }

    /// The total time spent in calls of the engine and of the fallback.
    pub(crate) fn busy(&self) -> std::time::Duration {
        let standing_in = self.fallback.as_ref().map(Opened::busy);
        self.engine.busy() + standing_in.unwrap_or_default()
    }

    /// Counts tokens as the agent's new model does.
    pub(crate) fn set_counter(&mut self, counter: TokenCounter) {
        self.lender.counter = counter;
    }

    /// Has the engine told of usage with its next call.
    pub(crate) fn update_usage(&mut self, usage: &Usage) {
        self.engine.update_usage(*usage);
    }

    /// Asks the engine whether a prompt of about `estimated` tokens would make it compact.
    pub(crate) fn preflight(
        &mut self,
        estimated: u64,
        current: &ConversationState,
    ) -> Result<Decision, SessionError> {
        let state =
            (current.state().prompt_tokens(estimated).estimated(true)).reported_tokens(None);
        decision(&mut self.engine, Deadline::Short, &state)
            .or_else(|error| self.decide_without_engine(error, &state, current))
    }

    /// Continues with the engine after a call of it was given up. If that call has returned since,
    /// the same object is used. Otherwise the engine is opened again, and the abandoned object is
    /// never used again. In both cases the messages of the call are delivered again.
    pub(crate) fn reopen(&mut self, current: &ConversationState) {
        if !self.engine.is_stalled() || std::mem::take(&mut self.has_just_failed) {
            return;
        }
        let name = self.engine.name().to_owned();
        if self.engine.take_back() {
            tracing::info!(
                "engine `{name}` came back late to session `{}`",
                self.session
            );
            return;
        }
        match self.opened(current, |engines, occasion| {
            engines.open(Some(&name), occasion, &mut Vec::new())
        }) {
            Ok(engine) => {
                tracing::info!(
                    "engine `{name}` is opened again for session `{}`",
                    self.session
                );
                self.engine.replace(engine);
            }
            // The fallback reports that the engine is in quarantine.
            Err(OpenError::Call(error @ CallError::Quarantined { .. })) => {
                tracing::debug!("engine `{name}` is not opened yet: {error}");
            }
            Err(error) => tracing::warn!("engine `{name}` cannot be opened again: {error}"),
        }
    }

    /// Asks the engine whether to compact the window now.
    pub(crate) fn should_compress(
        &mut self,
        current: &ConversationState,
    ) -> Result<Decision, SessionError> {
        let state = current.state();
        decision(&mut self.engine, Deadline::Extended, &state)
            .or_else(|error| self.decide_without_engine(error, &state, current))
    }

    /// Decides whether to compact after the engine failed to. The built-in compressor decides if it
    /// is the fallback. With `passthrough` the decision is no.
    pub(crate) fn decide_without_engine(
        &mut self,
        error: CallError,
        state: &WindowState,
        current: &ConversationState,
    ) -> Result<Decision, SessionError> {
        let reason = error.to_string();
        self.not_told(error.into())?;
        match self.on_failure() {
            OnFailure::Fail | OnFailure::Passthrough => Ok(Decision::No(reason)),
            OnFailure::Fallback => Ok(decision(
                self.fallback(current)?,
                Deadline::Extended,
                state,
            )?),
        }
    }

    /// Opens an engine of this session with `open`.
    fn opened(
        &self,
        current: &ConversationState,
        open: impl FnOnce(&Engines, &Occasion<'_>) -> Result<Opened, OpenError>,
    ) -> Result<Opened, OpenError> {
        let compaction = current.history.current_compaction();
        let occasion = Occasion {
            session: &self.session,
            window: &current.state(),
            services: &|engine, call| self.lender.services(engine, call),
            compaction: compaction.as_ref(),
        };
        open(&self.engines, &occasion)
    }

    /// The built-in compressor, which takes the place of an engine that failed. It is opened on
    /// first use.
    pub(crate) fn fallback(
        &mut self,
        current: &ConversationState,
    ) -> Result<&mut Opened, SessionError> {
        let fallback = match self.fallback.take() {
            Some(fallback) => fallback,
            None => self.opened(current, |engines, occasion| engines.open_builtin(occasion))?,
        };
        Ok(self.fallback.insert(fallback))
    }

    /// Makes a call that only informs the engine. If it fails, the session warns and continues.
    pub(crate) fn tell(
        &mut self,
        method: &'static str,
        say: impl FnOnce(&mut dyn ContextEngine) + Send + 'static,
    ) -> Result<(), SessionError> {
        let told = self.engine.call(method, Deadline::Extended, move |engine| {
            say(engine);
            Ok(())
        });
        told.or_else(|error| self.not_told(error.into()))
    }

    /// Handles a failed call that the turn does not depend on: a warning, or the error itself if
    /// `context.on_failure` is `fail`.
    pub(crate) fn not_told(&mut self, error: SessionError) -> Result<(), SessionError> {
        match error {
            error if self.on_failure() == OnFailure::Fail => Err(error),
            // If the engine is closed, its error was already reported when it was closed.
            SessionError::Call(CallError::Closed { .. }) => Ok(()),
            error => {
                self.warnings.add(error.to_string());
                Ok(())
            }
        }
    }

    /// Lets the engine answer a call of one of its tools, under the name that the tool has in requests.
    ///
    /// # Errors
    /// The engine failed or refused the arguments, or no request offered the tool.
    pub(crate) fn call_tool(&mut self, call: ToolCall) -> Result<String, SessionError> {
        let call = self.own_call(call)?;
        let answer = self
            .engine
            .call("call_tool", Deadline::Tool, move |engine| {
                engine.call_tool(&call)
            });
        // The model sees the error but cannot fix it. If it closes the engine or takes too long,
        // the user must see it too.
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = &answer {
            self.warnings.add(error.to_string());
        }
        Ok(answer?)
    }

    /// Has the engine forget the conversation.
    ///
    /// # Errors
    /// The engine failed, and still has it.
    pub(crate) fn reset(&mut self) -> Result<(), SessionError> {
        let reset = (self.engine).call("reset", Deadline::Short, |engine| engine.reset());
        Ok(reset?)
    }

    /// Tells the engine that the session ends, and closes it.
    pub(crate) fn end(&mut self) -> Result<(), SessionError> {
        let ended = self.ask("end", |engine| engine.end());
        ended.or_else(|error| self.not_told(error))
    }

    /// See [`Session::wants_restored`](crate::Session::wants_restored).
    pub(crate) fn wants_restored(&mut self) -> Result<Vec<MessageId>, SessionError> {
        self.ask("wants_restored", |engine| engine.wants_restored())
    }

    /// The engine's own status, as JSON for the user.
    pub(crate) fn status(&mut self) -> Result<serde_json::Value, SessionError> {
        self.ask("status", |engine| engine.status())
    }

    /// Makes a call that takes a moment and cannot fail in the engine itself.
    fn ask<T: Send + 'static>(
        &mut self,
        method: &'static str,
        code: impl FnOnce(&mut dyn ContextEngine) -> T + Send + 'static,
    ) -> Result<T, SessionError> {
        let answer = (self.engine).call(method, Deadline::Short, |engine| Ok(code(engine)));
        Ok(answer?)
    }
}

/// Whether an engine wants a compaction in this state of the window.
fn decision(
    engine: &mut Opened,
    deadline: Deadline,
    state: &WindowState,
) -> Result<Decision, CallError> {
    let state = state.clone();
    engine.call("should_compress", deadline, move |engine| {
        Ok(engine.should_compress(&state))
    })
}

#[cfg(test)]
mod tests;
