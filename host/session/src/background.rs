//! Model calls between turns: asked for by the engine, made on a thread of the host's or by the embedder, and
//! answered before the next turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use contexture_base::lock;
use contexture_engine_api::{BackgroundCall, CompressRequest, ModelAnswer, ModelFailure};
use contexture_formats::tokens::TokenCounter;
use contexture_providers::ModelClient;
use contexture_runtime::supervision::Pace;

use super::{Asking, Session, SessionError};

/// Who makes the model calls that an engine would like made between turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BackgroundBy {
    /// A thread of the host's, after each answer. It ends with the session.
    #[default]
    Host,
    /// The embedder, through [`Session::background`] and [`Session::background_done`].
    Embedder,
}

/// A background call and its answer.
pub type BackgroundAnswer = (BackgroundCall, Result<ModelAnswer, ModelFailure>);

/// Model calls that an engine wants made between turns.
#[derive(Debug)]
pub struct BackgroundWork {
    calls: Vec<BackgroundCall>,
    /// Who answers, also where that was lent for the turn alone.
    client: ModelClient,
    asking: Arc<Asking>,
    counter: TokenCounter,
    model_calls: Arc<AtomicU64>,
}

impl BackgroundWork {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Makes the calls, several at once, and blocks until each is answered or `cancel` is set.
    pub fn run(self, cancel: &AtomicBool) -> Vec<BackgroundAnswer> {
        if self.client.model().is_ok() {
            self.model_calls
                .fetch_add(self.calls.len() as u64, Ordering::Relaxed);
        }
        let requests: Vec<_> = self.calls.iter().map(|call| call.request.clone()).collect();
        let answers = self
            .asking
            .complete_many(&self.client, &requests, self.counter, cancel);
        self.calls.into_iter().zip(answers).collect()
    }
}

/// The host's own thread for background work.
#[derive(Debug, Default)]
pub(super) struct Background {
    answers: Arc<Mutex<Vec<BackgroundAnswer>>>,
    cancel: Arc<AtomicBool>,
    running: Option<JoinHandle<()>>,
}

impl Background {
    fn is_running(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // The answers are no longer wanted.
        self.cancel.store(true, Ordering::Release);
    }
}

impl Session {
    /// The model calls that the engine would like made between turns, with the client to make them: run
    /// [`BackgroundWork::run`] wherever it does not hold up a turn, then hand the answers to
    /// [`background_done`](Self::background_done). Only for sessions with [`BackgroundBy::Embedder`]; for
    /// others the host does it.
    ///
    /// # Errors
    /// The engine failed.
    pub fn background(&mut self) -> Result<BackgroundWork, SessionError> {
        let order = self.order(self.rough_state());
        let window = Arc::clone(&self.window);
        let allowance = Pace::Patient.with(window.len(), order.window.prompt_tokens);
        let calls = self.engine.call("background", allowance, move |engine| {
            let calls = window.call_views(0);
            let views = window.views(0, &calls);
            Ok(engine.background(&CompressRequest::new(&views, &order)))
        })?;
        Ok(BackgroundWork {
            calls,
            client: self.asking.client(),
            asking: Arc::clone(&self.asking),
            counter: self.counter,
            model_calls: Arc::clone(&self.model_calls),
        })
    }

    /// Hands the answers of background calls to the engine. Those about messages that the conversation
    /// has not got any more are discarded.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn background_done(&mut self, answers: Vec<BackgroundAnswer>) -> Result<(), SessionError> {
        let next_id = self.window.next_id();
        let is_there = |id| id < next_id;
        let answers: Vec<_> = answers
            .into_iter()
            .filter(|(call, _)| {
                let mut covers = call.covers.iter();
                covers.all(|id| is_there(id.0) && !self.history.gone.contains(id))
            })
            .map(|(call, answer)| (call.id, answer))
            .collect();
        self.tell("background_done", move |engine| {
            for (id, answer) in answers {
                engine.background_done(id, answer);
            }
        })
    }

    /// Has the engine's background calls made by a thread of the host's.
    pub(super) fn start_background(&mut self) -> Result<(), SessionError> {
        let is_idle = self.options.background == BackgroundBy::Host
            && self.asking.client().model().is_ok()
            && !self.background.is_running();
        if !is_idle {
            return Ok(());
        }
        let work = match self.background() {
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
            Err(error) => self.warn(format!("no thread for background work: {error}")),
        }
        Ok(())
    }

    /// Hands the engine what the host's thread has brought since the last turn.
    pub(super) fn deliver_background(&mut self) -> Result<(), SessionError> {
        let answers = std::mem::take(&mut *lock(&self.background.answers));
        if answers.is_empty() {
            return Ok(());
        }
        self.settled = false;
        self.background_done(answers)
    }

    /// Waits until the host's thread is done with the calls of this session: what a program that plays turns
    /// without pauses does in place of the time that passes between turns.
    ///
    /// # Errors
    /// As [`background_done`](Self::background_done).
    pub fn finish_background(&mut self) -> Result<(), SessionError> {
        if let Some(thread) = self.background.running.take() {
            // A panic in it has left no answers, and the engine asks again.
            let _ = thread.join();
        }
        self.deliver_background()
    }
}
