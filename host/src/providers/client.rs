//! The model client that sessions share: blocking calls from any thread.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::call::{Call, Target};
use super::endpoint::Endpoint;
use super::network::Network;
use super::resolve::{NoModel, Resolved};

/// Replaces the secrets in a text before it leaves the machine.
pub type Mask = fn(&str) -> Cow<'_, str>;

/// The most requests that one client has open at a time.
const AT_ONCE: usize = 8;
/// The longest time limit of one request that makes sense; also keeps the clock from overflowing.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a waiting call looks at its cancel flag.
const POLL: Duration = Duration::from_millis(20);

/// Makes model calls. Cheap to clone; clones share their limit of 8 open requests.
///
/// Calls block their thread and may come from any thread, those of a tokio runtime's blocking pool
/// included. The HTTP work runs on one thread of its own, started by the first call of the process.
#[derive(Clone)]
pub struct ModelClient {
    shared: Arc<Shared>,
}

struct Shared {
    models: Result<Models, NoModel>,
    timeout: Duration,
    mask: Mask,
    open: Semaphore,
}

struct Models {
    first: Target,
    fallback: Option<Target>,
}

impl ModelClient {
    /// A client for what [`resolve`](super::resolve) decided. `timeout` limits one request; a call with
    /// its retries and pauses has twice as long. `mask` replaces the secrets in everything that is sent
    /// and in every server's words that a message quotes. Opens no connection.
    pub fn new(resolved: Resolved, timeout: Duration, mask: Mask) -> Self {
        let models = match resolved {
            Resolved::NoModel(reason) => Err(reason),
            Resolved::Model { endpoint, fallback } => Ok(Models {
                first: Target::new(*endpoint),
                fallback: fallback.map(|endpoint| Target::new(*endpoint)),
            }),
        };
        Self {
            shared: Arc::new(Shared {
                models,
                timeout: timeout.min(LONGEST_TIMEOUT),
                mask,
                open: Semaphore::new(AT_ONCE),
            }),
        }
    }

    /// The model that is asked.
    ///
    /// # Errors
    /// Why there is none.
    pub fn endpoint(&self) -> Result<&Endpoint, NoModel> {
        match &self.shared.models {
            Ok(models) => Ok(&models.first.endpoint),
            Err(reason) => Err(*reason),
        }
    }

    /// Makes one model call and blocks until it is answered, fails for good or `cancel` is set (noticed
    /// within 20 ms; the connection is closed). Only passing faults are asked again: overload, rate
    /// limits and broken connections. A model that does not exist is replaced by the agent's own.
    ///
    /// # Errors
    /// Every way in which there is no usable answer, typed; the message says what happened and what to
    /// do, and never holds the key.
    pub fn complete(
        &self,
        request: &ModelRequest,
        cancel: &AtomicBool,
    ) -> Result<ModelAnswer, ModelFailure> {
        self.complete_many(std::slice::from_ref(request), cancel)
            .pop()
            .unwrap_or_else(|| Err(lost()))
    }

    /// Makes several model calls side by side, at most 8 at a time; the answers stand in the order of
    /// the requests. When `cancel` is set, what is answered by then is kept.
    pub fn complete_many(
        &self,
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let all_fail = |failure: ModelFailure| vec![Err(failure); requests.len()];
        if let Err(reason) = &self.shared.models {
            return all_fail(ModelFailure::new(
                FailureKind::NoProvider,
                reason.to_string(),
            ));
        }
        if cancel.load(Ordering::Relaxed) {
            return all_fail(cancelled());
        }
        match Network::shared() {
            Ok(network) => self.run(network, requests, cancel),
            Err(failure) => all_fail(failure),
        }
    }

    fn run(
        &self,
        network: &'static Network,
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let (sender, answers) = channel();
        let running: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(index, request)| {
                let shared = Arc::clone(&self.shared);
                let request = self.masked(request);
                let sender = sender.clone();
                Running(network.runtime.spawn(async move {
                    let answer = shared.answer(network, &request).await;
                    // Nobody listens any more only where the caller was cancelled.
                    let _ = sender.send((index, answer));
                }))
            })
            .collect();
        drop(sender);

        let mut results: Vec<Option<_>> = requests.iter().map(|_| None).collect();
        let mut keep = |(index, answer): (usize, _)| {
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(answer);
            }
        };
        let failure = loop {
            match answers.recv_timeout(POLL) {
                Ok(answer) => keep(answer),
                // Every call has answered, or died.
                Err(RecvTimeoutError::Disconnected) => break lost(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.load(Ordering::Relaxed) {
                answers.try_iter().for_each(&mut keep);
                break cancelled();
            }
        };
        drop(running);
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(failure.clone())))
            .collect()
    }

    fn masked(&self, request: &ModelRequest) -> ModelRequest {
        let mask = self.shared.mask;
        ModelRequest {
            purpose: request.purpose.clone(),
            system: mask(&request.system).into_owned(),
            prompt: mask(&request.prompt).into_owned(),
            max_tokens: request.max_tokens,
        }
    }
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelClient")
            .field(&self.endpoint().map(ToString::to_string))
            .finish()
    }
}

impl Shared {
    async fn answer(
        &self,
        network: &Network,
        request: &ModelRequest,
    ) -> Result<ModelAnswer, ModelFailure> {
        let models = self
            .models
            .as_ref()
            .map_err(|reason| ModelFailure::new(FailureKind::NoProvider, reason.to_string()))?;
        // Waiting for a turn is not the model's time; the semaphore is never closed.
        let _turn = self.open.acquire().await;
        let started = Instant::now();
        let mut result = self.ask(network, &models.first, request, started).await;
        if let (Err(failure), Some(fallback)) = (&result, &models.fallback)
            && failure.kind == FailureKind::UnknownModel
        {
            tracing::warn!(%failure, fallback = %fallback.endpoint, "the agent's own model is asked instead");
            result = self.ask(network, fallback, request, started).await;
        }
        let ms = started.elapsed().as_millis() as u64;
        match &result {
            Ok(answer) => tracing::debug!(
                purpose = request.purpose,
                model = answer.model,
                input_tokens = answer.input_tokens,
                output_tokens = answer.output_tokens,
                ms,
                "model call answered"
            ),
            Err(failure) => {
                tracing::debug!(purpose = request.purpose, kind = ?failure.kind, %failure, ms, "model call failed");
            }
        }
        result
    }

    async fn ask(
        &self,
        network: &Network,
        target: &Target,
        request: &ModelRequest,
        started: Instant,
    ) -> Result<ModelAnswer, ModelFailure> {
        let call = Call {
            client: network.client(&target.endpoint),
            target,
            request,
            mask: self.mask,
            timeout: self.timeout,
            deadline: started + self.timeout * 2,
        };
        call.run().await
    }
}

/// A call under way; dropping it ends the call and closes its connection.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn cancelled() -> ModelFailure {
    ModelFailure::new(FailureKind::Cancelled, "the model call was cancelled")
}

/// A call that died without answering: only a bug of ours does that.
fn lost() -> ModelFailure {
    ModelFailure::new(
        FailureKind::Other,
        "the model call ended without an answer; please report this as a bug of contexture",
    )
}
