//! Background work: model calls that an engine wants made between turns, so that their results are
//! ready when the next request needs them.
//!
//! After each answer the engine is asked for such calls. By default the host makes them in a thread
//! of its own, which ends with the session. An embedder can make them itself, see [`BackgroundBy`].
//! The answers are handed to the engine before the next turn. Answers about messages that were cut
//! off in the meantime are discarded.
//!
//! Start with [`EngineLink::background`] and [`BackgroundWork::run`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use contexture_base::lock;
use contexture_engine_api::{BackgroundCall, CompressRequest, ModelAnswer, ModelFailure};
use contexture_formats::tokens::TokenCounter;
use contexture_providers::ModelClient;
use contexture_runtime::supervision::Deadline;

use super::{Asking, EngineLink};
use crate::conversation::ConversationState;
use crate::error::SessionError;
use crate::options::BackgroundBy;

/// A background call and its answer, or the reason why there is none.
pub type BackgroundAnswer = (BackgroundCall, Result<ModelAnswer, ModelFailure>);

/// Model calls that an engine wants made between turns. It does not borrow from the session, so it
/// can be run on another thread.
#[derive(Debug)]
pub struct BackgroundWork {
    calls: Vec<BackgroundCall>,
    /// The client that answers. It is kept here, because a client that was set for the turn may be
    /// gone when the calls are made.
    client: ModelClient,
    asking: Arc<Asking>,
    counter: TokenCounter,
}

impl BackgroundWork {
    /// Whether there are no calls to make.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the calls, several at the same time. Blocks until all are answered or `cancel` is set.
    /// The answers are in the order of the calls.
    pub fn run(self, cancel: &AtomicBool) -> Vec<BackgroundAnswer> {
        let requests: Vec<_> = self.calls.iter().map(|call| call.request.clone()).collect();
        let answers = self
            .asking
            .complete_many(&self.client, &requests, self.counter, cancel);
        self.calls.into_iter().zip(answers).collect()
    }
}

/// The host's own thread for background work, and the answers that it has brought so far.
#[derive(Debug, Default)]
pub(crate) struct Background {
    by: BackgroundBy,
    answers: Arc<Mutex<Vec<BackgroundAnswer>>>,
    cancel: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Background {
    /// No calls yet. `by` says who makes them.
    pub(crate) fn by(by: BackgroundBy) -> Self {
        let mut background = Self::default();
        background.by = by;
        background
    }

    /// Whether the thread still works on earlier calls.
    fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Nobody will take the answers, so the thread should not make further calls.
        self.cancel.store(true, Ordering::Release);
    }
}

impl EngineLink {
    /// The model calls that the engine wants made between turns, with the client to make them.
    pub(crate) fn background(
        &mut self,
        current: &ConversationState,
    ) -> Result<BackgroundWork, SessionError> {
        let order = current.order(current.rough_state());
        let window = Arc::clone(&current.window);
        let budget = Deadline::Extended.with(window.len(), order.window.prompt_tokens);
        let calls = self.engine.call("background", budget, move |engine| {
            let calls = window.call_views();
            let views = window.views(&calls);
            Ok(engine.background(&CompressRequest::new(&views, &order)))
        })?;
        Ok(BackgroundWork {
            calls,
            client: self.asking().client(),
            asking: Arc::clone(self.asking()),
            counter: self.lender.counter,
        })
    }

    /// Hands the answers of background calls to the engine. Answers about messages that are no
    /// longer part of the conversation are discarded.
    pub(crate) fn background_done(
        &mut self,
        current: &ConversationState,
        answers: Vec<BackgroundAnswer>,
    ) -> Result<(), SessionError> {
        let next_id = current.window.next_id();
        // Ids from `next_id` on were never given, so no message of this conversation can have them.
        let is_there = |id| id < next_id;
        let answers: Vec<_> = answers
            .into_iter()
            .filter(|(call, _)| {
                let mut covers = call.covers.iter();
                covers.all(|id| is_there(id.0) && !current.history.cut_off.contains(id))
            })
            .map(|(call, answer)| (call.id, answer))
            .collect();
        self.tell("background_done", move |engine| {
            for (id, answer) in answers {
                engine.background_done(id, answer);
            }
        })
    }

    /// Starts the engine's background calls in a thread of the host. Does nothing if the embedder
    /// makes them, if no model is configured, or if earlier calls are still running.
    pub(crate) fn start_background(
        &mut self,
        current: &ConversationState,
    ) -> Result<(), SessionError> {
        let is_idle = self.background.by == BackgroundBy::Host
            && self.asking().client().model().is_ok()
            && !self.background.is_running();
        if !is_idle {
            return Ok(());
        }
        let work = match self.background(current) {
            Ok(work) if work.is_empty() => return Ok(()),
            Ok(work) => work,
            Err(error) => return self.not_told(error),
        };
        let answers = Arc::clone(&self.background.answers);
        let cancel = Arc::clone(&self.background.cancel);
        let thread = std::thread::Builder::new().name("contexture-background".to_owned());
        match thread.spawn(move || {
            let done = work.run(&cancel);
            lock(&answers).extend(done);
        }) {
            Ok(thread) => self.background.running = Some(thread),
            Err(error) => self
                .warnings
                .add(format!("no thread for background work: {error}")),
        }
        Ok(())
    }

    /// Hands the engine the answers that the host's thread has brought since the last turn. Returns
    /// whether there were any: the engine may decide otherwise about the same request then.
    pub(crate) fn deliver_background(
        &mut self,
        current: &ConversationState,
    ) -> Result<bool, SessionError> {
        let answers = std::mem::take(&mut *lock(&self.background.answers));
        if answers.is_empty() {
            return Ok(false);
        }
        self.background_done(current, answers)?;
        Ok(true)
    }

    /// Waits until the host's thread is done with the calls of this session.
    pub(crate) fn wait_for_background(&mut self) {
        if let Some(thread) = self.background.running.take() {
            // If the thread panicked, it left no answers. The engine will ask again.
            let _ = thread.join();
        }
    }
}
