//! Who answers an engine's questions in a session: the configured model, or one that the caller lends for a turn. Where
//! that is the agent's own, it has the conversation in its prompt cache, and a question may continue it there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use contexture_base::lock;
use contexture_engine_api::{
    CachePrices, Continued, MessageId, ModelAnswer, ModelFailure, ModelRequest,
};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{self as formats, Format};
use contexture_providers::{ModelClient, Question, cancelled};
use contexture_runtime::supervision::CallState;

/// What a session's questions are answered with; shared with the services of its engine.
#[derive(Debug)]
pub(crate) struct Asking {
    configured: ModelClient,
    lent: Mutex<Weak<ModelClient>>,
    sent: Mutex<Option<Sent>>,
    /// Whether model calls are stopped, see [`Canceller`].
    stopped: AtomicBool,
    /// The engine whose calls are made, and the one that stands in for it.
    callers: Mutex<Vec<Weak<CallState>>>,
}

/// Stops a session's work from another thread, as when a user presses Ctrl-C. See
/// [`Session::canceller`](super::Session::canceller).
#[derive(Debug, Clone)]
pub struct Canceller(pub(super) Arc<Asking>);

impl Canceller {
    /// Asks the engine call in progress to stop, and makes its current and further model calls fail. The turn continues
    /// as it does when a model fails, and ends soon.
    pub fn cancel(&self) {
        self.0.stopped.store(true, Ordering::Release);
        let callers = lock(&self.0.callers).clone();
        for caller in callers.iter().filter_map(Weak::upgrade) {
            caller.cancel();
        }
    }
}

/// The agent's last request, which its model answered.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) body: String,
    pub(super) format: Format,
    /// The latest message in it.
    pub(super) through: MessageId,
    /// Its tokens.
    pub(super) tokens: u64,
    pub(super) prices: CachePrices,
    /// Until when the provider's cache has it.
    pub(super) warm_until: Instant,
}

impl Sent {
    /// The body that puts this question where the model has read all before it; none where that costs more than to ask
    /// it with its material.
    fn continued(
        &self,
        request: &ModelRequest,
        asked: &Continued,
        counter: TokenCounter,
    ) -> Option<String> {
        let afresh = counter.count_text(&request.system) + counter.count_text(&request.prompt);
        let read = self.tokens * u64::from(self.prices.read_percent) / 100;
        let pays = read + counter.count_text(&asked.question) < afresh;
        if !pays || asked.through > self.through || Instant::now() >= self.warm_until {
            return None;
        }
        let body = formats::continued(&self.body, self.format, &asked.question);
        body.ok().flatten()
    }
}

impl Asking {
    pub(crate) fn new(configured: ModelClient) -> Self {
        Self {
            configured,
            lent: Mutex::default(),
            sent: Mutex::default(),
            stopped: AtomicBool::new(false),
            callers: Mutex::default(),
        }
    }

    /// Registers an engine whose calls are to be stopped.
    pub(crate) fn add_caller(&self, caller: &Arc<CallState>) {
        let mut callers = lock(&self.callers);
        callers.retain(|caller| caller.strong_count() > 0);
        callers.push(Arc::downgrade(caller));
    }

    /// Allows model calls again after a [`Canceller`] stopped them.
    pub(super) fn resume(&self) {
        self.stopped.store(false, Ordering::Release);
    }

    /// Has the questions answered by this client for as long as its owner keeps it.
    pub(super) fn lend(&self, client: Weak<ModelClient>) {
        *lock(&self.lent) = client;
    }

    /// The client that answers now.
    pub(crate) fn client(&self) -> ModelClient {
        let lent = lock(&self.lent).upgrade();
        lent.map_or_else(|| self.configured.clone(), |lent| (*lent).clone())
    }

    /// Notes what the agent's model has in its cache; none where a question cannot continue it any more.
    pub(super) fn set_sent(&self, sent: Option<Sent>) {
        *lock(&self.sent) = sent;
    }

    /// Has this client asked several questions side by side; the answers stand in the order of the requests.
    pub(crate) fn complete_many(
        &self,
        client: &ModelClient,
        requests: &[ModelRequest],
        counter: TokenCounter,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        if self.stopped.load(Ordering::Acquire) {
            return vec![Err(cancelled()); requests.len()];
        }
        let questions = {
            let sent = lock(&self.sent);
            let sent = sent.as_ref().filter(|sent| client.continues(sent.format));
            let question = |request| Question {
                request,
                continued: sent
                    .zip(request.continued.as_ref())
                    .and_then(|(sent, asked)| sent.continued(request, asked, counter)),
            };
            requests.iter().map(question).collect()
        };
        client.ask(questions, cancel)
    }
}

/// How long from now the provider's cache has what it was sent.
pub(super) fn warm_until(ttl_ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ttl_ms)
}
