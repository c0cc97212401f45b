//! Who answers the questions of an engine: the configured model, or a client that the caller sets.
//!
//! If that client is the agent's own model, that model has the conversation in its prompt
//! cache. A question that is about the conversation can then continue the last prompt instead of
//! repeating its material. [`SentPrompt::continued`] does this if it is cheaper.
//!
//! [`Asking`] is shared between the session and the services of its engine. It also stops the model
//! calls when a [`Canceller`] says so.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use contexture_base::lock;
use contexture_engine_api::{
    CachePrices, Continued, MessageId, ModelAnswer, ModelFailure, ModelRequest,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{self as formats, SplitBody};
use contexture_providers::{ModelClient, Question, UsageByModel, cancelled};
use contexture_runtime::supervision::CallState;

use super::guidance::Guidance;

/// What a session's model calls are made with. Shared with the services of its engine.
#[derive(Debug)]
pub(crate) struct Asking {
    configured: ModelClient,
    /// What the user wants of summaries.
    pub(crate) guidance: Guidance,
    /// A client that replaces the configured one for as long as its owner keeps it.
    client: Mutex<Weak<ModelClient>>,
    /// The agent's last request, if a question may continue it.
    sent: Mutex<Option<SentPrompt>>,
    /// Whether model calls are stopped, see [`Canceller`].
    stopped: AtomicBool,
    /// The number of model calls so far, background calls included.
    model_calls: AtomicU64,
    /// What these calls used.
    pub(crate) used: Arc<UsageByModel>,
    /// The engines whose calls are stopped by a cancel: the session's own and the fallback.
    callers: Mutex<Vec<Weak<CallState>>>,
}

/// Stops a session's work from another thread, for example when a user presses Ctrl-C. Get one from
/// [`Session::canceller`](crate::Session::canceller).
#[derive(Debug, Clone)]
pub struct Canceller(pub(crate) Arc<Asking>);

impl Canceller {
    /// Asks the engine call in progress to stop, and lets its current and further model calls fail.
    /// The turn continues as it does when a model fails, and ends soon. The effect lasts until the
    /// next call of [`Session::canceller`](crate::Session::canceller).
    pub fn cancel(&self) {
        self.0.stopped.store(true, Ordering::Release);
        let callers = lock(&self.0.callers).clone();
        for caller in callers.iter().filter_map(Weak::upgrade) {
            caller.cancel();
        }
    }
}

/// The agent's last request, which its model has answered.
#[derive(Debug)]
pub(crate) struct SentPrompt {
    pub(crate) body: SplitBody<String>,
    /// The latest message of the conversation that the model has read.
    pub(crate) through: MessageId,
    /// The tokens of the prompt.
    pub(crate) tokens: u64,
    pub(crate) prices: CachePrices,
    /// When the provider's cache drops the prompt.
    pub(crate) warm_until: Instant,
}

impl SentPrompt {
    /// The body that asks this question as a continuation of the last prompt. None if that costs
    /// more than asking with the material in a new prompt, if the model has not read everything
    /// that the question is about, or if the cache has expired.
    fn continued(
        &self,
        request: &ModelRequest,
        asked: &Continued,
        counter: TokenCounter,
    ) -> Option<String> {
        // Both costs are in tokens of plain input. Reading the cached prompt costs only a share of
        // it.
        let afresh = counter.count_text(&request.system) + counter.count_text(&request.prompt);
        let read = self.tokens * u64::from(self.prices.read_percent) / 100;
        let pays = read + counter.count_text(&asked.question) < afresh;
        if !pays || asked.through > self.through || Instant::now() >= self.warm_until {
            return None;
        }
        formats::continued(&self.body, &asked.question)
    }
}

impl Asking {
    pub(crate) fn new(configured: ModelClient, guidance: Guidance) -> Self {
        Self {
            configured,
            guidance,
            client: Mutex::default(),
            sent: Mutex::default(),
            stopped: AtomicBool::new(false),
            model_calls: AtomicU64::new(0),
            used: Arc::default(),
            callers: Mutex::default(),
        }
    }

    /// Registers an engine whose calls a cancel stops. Engines that are gone are removed from the
    /// list.
    pub(crate) fn add_caller(&self, caller: &Arc<CallState>) {
        let mut callers = lock(&self.callers);
        callers.retain(|caller| caller.strong_count() > 0);
        callers.push(Arc::downgrade(caller));
    }

    /// Allows model calls again after a [`Canceller`] stopped them.
    pub(crate) fn resume(&self) {
        self.stopped.store(false, Ordering::Release);
    }

    /// Lets this client answer for as long as its owner keeps it.
    pub(crate) fn set_client(&self, client: Weak<ModelClient>) {
        *lock(&self.client) = client;
    }

    /// The client that answers now: the one that was set if its owner still keeps it, otherwise the
    /// configured one.
    pub(crate) fn client(&self) -> ModelClient {
        let set = lock(&self.client).upgrade();
        set.map_or_else(|| self.configured.clone(), |set| (*set).clone())
    }

    /// Sets what the agent's model has in its cache. None if no question can continue it any more.
    pub(crate) fn set_sent(&self, sent: Option<SentPrompt>) {
        *lock(&self.sent) = sent;
    }

    /// The number of model calls so far, background calls included.
    pub(crate) fn model_calls(&self) -> u64 {
        self.model_calls.load(Ordering::Relaxed)
    }

    /// Asks several questions at the same time. The answers are in the order of the requests. If
    /// model calls are stopped, all of them fail as cancelled.
    pub(crate) fn complete_many(
        &self,
        client: &ModelClient,
        requests: &[ModelRequest],
        counter: TokenCounter,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        // Without a model, the calls fail at once and cost nothing.
        if client.model().is_ok() {
            let calls = requests.len() as u64;
            self.model_calls.fetch_add(calls, Ordering::Relaxed);
        }
        if self.stopped.load(Ordering::Acquire) {
            return vec![Err(cancelled()); requests.len()];
        }
        let guided = requests
            .iter()
            .map(|request| self.guidance.applied(request));
        let requests: Vec<_> = guided.collect();
        // The lock ends with this block, because the calls may take minutes and the session must
        // not wait for them.
        let questions = {
            let sent = lock(&self.sent);
            let sent = sent
                .as_ref()
                .filter(|sent| client.continues(sent.body.format()));
            let asked = requests.iter().map(|request| Question {
                request,
                continued: sent
                    .zip(request.continued.as_ref())
                    .and_then(|(sent, asked)| sent.continued(request, asked, counter)),
            });
            asked.collect()
        };
        client.ask(questions, &self.used, cancel)
    }
}
