//! What a session asks its engine and tells it outside of a turn, and what stands in for one that fails.

use std::sync::Arc;

use contexture_config::OnFailure;
use contexture_engine_api::protocol::preflight;
use contexture_engine_api::{
    ContextEngine, Decision, MessageId, Services, ToolCall, ToolSpec, WindowState,
};
use contexture_runtime::engines::{Occasion, OpenError, Opened};
use contexture_runtime::supervision::{CallError, CallState, Pace};

use super::show::LatePiece;
use super::{Session, SessionError};
use crate::services::lender;

impl Session {
    /// Asks the engine, before anything is counted, whether a prompt of about `estimated` tokens would
    /// make it compact. Cheap enough to be asked for every request; where it is a no, nothing has to
    /// stand between the request and the model.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn preflight(&mut self, estimated: u64) -> Result<Decision, SessionError> {
        let state = self
            .state()
            .prompt_tokens(estimated)
            .estimated(true)
            .reported_tokens(None);
        let asked = state.clone();
        let answer = self
            .engine
            .call("should_compress_preflight", Pace::Short, move |engine| {
                Ok(preflight(engine, &asked))
            });
        answer.or_else(|error| self.decide_without_engine(error, &state))
    }

    /// Goes on with the engine after a call of it was given up: with the same object where the call has returned
    /// since, which has then seen what it was shown. Otherwise it is opened anew: the abandoned object is never
    /// touched again, and what it may have done meanwhile is found out from what it says to have seen.
    pub(super) fn reopen_engine(&mut self) {
        if !self.engine.is_stalled() {
            return;
        }
        let late = self.late_piece.take();
        let name = self.engine.name().to_owned();
        if self.engine.take_back() {
            tracing::info!("engine `{name}` came back late to session `{}`", self.id);
            if let Some(piece) = late.filter(LatePiece::was_seen) {
                self.note_late(&piece);
            }
            return;
        }
        let compaction = self.history.current_compaction();
        let occasion = Occasion {
            session: &self.id,
            window: &self.state(),
            services: &self.lender(),
            compaction: compaction.as_ref(),
        };
        match self.engines.open(Some(&name), &occasion, &mut Vec::new()) {
            Ok(engine) => {
                tracing::info!("engine `{name}` is opened again for session `{}`", self.id);
                self.engine.replace(engine);
            }
            // What stands in for it says so.
            Err(OpenError::Call(error @ CallError::Quarantined { .. })) => {
                tracing::debug!("engine `{name}` is not opened yet: {error}");
            }
            Err(error) => tracing::warn!("engine `{name}` cannot be opened again: {error}"),
        }
    }

    /// Asks whether to compact now.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn should_compress(&mut self) -> Result<Decision, SessionError> {
        let state = self.state();
        let asked = state.clone();
        let answer = self
            .engine
            .call("should_compress", Pace::Patient, move |engine| {
                Ok(engine.should_compress(&asked))
            });
        answer.or_else(|error| self.decide_without_engine(error, &state))
    }

    pub(super) fn decide_without_engine(
        &mut self,
        error: CallError,
        state: &WindowState,
    ) -> Result<Decision, SessionError> {
        if self.on_failure == OnFailure::Fail {
            return Err(error.into());
        }
        // The error was reported when the session was closed.
        if !matches!(error, CallError::Closed { .. }) {
            self.warn(error.to_string());
        }
        match self.on_failure {
            OnFailure::Fail | OnFailure::Passthrough => Ok(Decision::No(error.to_string())),
            OnFailure::Fallback => {
                let state = state.clone();
                let decision =
                    self.fallback()?
                        .call("should_compress", Pace::Patient, move |engine| {
                            Ok(engine.should_compress(&state))
                        })?;
                Ok(decision)
            }
        }
    }

    /// Lends the session's services to its engines.
    pub(super) fn lender(&self) -> impl Fn(&str, &Arc<CallState>) -> Services + use<> {
        let peers = self.options.peers.as_ref();
        let calls = &self.model_calls;
        lender(&self.asking, self.counter, calls, peers, &self.transcript)
    }

    /// The built-in compressor, opened when it is first needed.
    pub(super) fn fallback(&mut self) -> Result<&mut Opened, SessionError> {
        if self.fallback.is_none() {
            let compaction = self.history.current_compaction();
            let occasion = Occasion {
                session: &self.id,
                window: &self.state(),
                services: &self.lender(),
                compaction: compaction.as_ref(),
            };
            self.fallback = Some(self.engines.open_builtin(&occasion)?);
        }
        // Just filled where it was empty.
        self.fallback
            .as_mut()
            .ok_or_else(|| OpenError::NoFallback.into())
    }

    pub(super) fn tell(
        &mut self,
        method: &'static str,
        say: impl FnOnce(&mut dyn ContextEngine) + Send + 'static,
    ) -> Result<(), SessionError> {
        let told = self.engine.call(method, Pace::Patient, move |engine| {
            say(engine);
            Ok(())
        });
        told.or_else(|error| self.not_told(error.into()))
    }

    /// Handles a failed call of the engine that the turn can do without.
    pub(super) fn not_told(&mut self, error: SessionError) -> Result<(), SessionError> {
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

    /// Has the engine answer a call of one of its tools. Where its tools are put into requests, the call has the name
    /// that it has there; it may come before the first request of a session that was opened again.
    ///
    /// # Errors
    /// The engine failed, or refused the arguments; or no request offered the tool.
    pub fn call_tool(&mut self, call: ToolCall) -> Result<String, SessionError> {
        let call = self.own_call(call)?;
        let answer = self.engine.call("call_tool", Pace::Tool, move |engine| {
            engine.call_tool(&call)
        });
        // The model sees the error but cannot fix it. If it closes the session, it is logged as well.
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = &answer {
            self.warn(error.to_string());
        }
        Ok(answer?)
    }

    /// Why the session does not run under the engine that it should: another one was opened in its place, its engine
    /// panicked and is no longer called, or it is in [quarantine](Opened::quarantine) and not called for now. `None` if it
    /// runs under the right engine.
    pub fn stands_in(&self) -> Option<String> {
        self.engine.stands_in()
    }

    /// The messages that the engine's tool calls asked to restore since the last call of this function. The engine
    /// restores them with the session's next request. For a session [beside](crate::Host::beside) the one that is open,
    /// write them down with [`Record::wish_restored`](super::Record::wish_restored).
    ///
    /// # Errors
    /// The engine failed.
    pub fn wants_restored(&mut self) -> Result<Vec<MessageId>, SessionError> {
        Ok(self.engine.call("wants_restored", Pace::Short, |engine| {
            Ok(engine.wants_restored())
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
}
