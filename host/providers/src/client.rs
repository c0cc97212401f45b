//! The model client that sessions share: blocking calls from any thread.
//!
//! Engines ask a model with plain function calls. [`ModelClient`] hides where the answer comes
//! from: a provider over the network, a model that the embedding program asks itself
//! ([`LentModel`]), or nobody, in which case every call fails with the reason.
//!
//! Read [`ModelClient::complete`] first. [`ModelClient::ask`] does the work of all calls and also
//! takes questions that continue the agent's own conversation, which the provider has in its cache
//! ([`Question`]).
//!
//! At most 8 requests are open at a time. HTTP, retries and failures are left to `network`. Which
//! model is asked was decided by [`resolve`](super::resolve()).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use contexture_base::lock;
use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest, Usage};
use contexture_formats::Format;

use super::endpoint::{ApiFormat, Endpoint};
use super::network::Models;
use super::question::{AT_ONCE, Mask, Question, cancelled, collect, lost};
use super::resolve::{NoModel, Resolved};
use super::usage_by_model::UsageByModel;

/// The longest time limit of one request, which larger settings are reduced to. It also keeps the
/// arithmetic on deadlines from overflowing.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A function that makes one model call and blocks until the answer. It is called from any thread,
/// and from up to 8 threads at a time.
pub type Ask = dyn Fn(&ModelRequest) -> Result<ModelAnswer, ModelFailure> + Send + Sync;

/// The model of the program that embeds the host, which makes the calls itself. Use it if the
/// program already has a client, or if the host must not open connections.
#[derive(Clone)]
pub struct LentModel {
    /// The model's name, which [`ModelClient::model`] returns.
    pub name: String,
    /// The model's window in tokens, if it is known, which [`ModelClient::model`] returns.
    pub context_length: Option<u64>,
    /// Makes a call. It should return a typed failure instead of panicking: after a panic, the call
    /// counts as lost.
    pub ask: Arc<Ask>,
}

impl std::fmt::Debug for LentModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LentModel").field(&self.name).finish()
    }
}

/// Makes model calls. It is cheap to clone. Over the network, clones share their limit of 8 open
/// requests.
///
/// Calls block their thread and may come from any thread, including those of a tokio runtime's
/// blocking pool. The HTTP work runs on a separate thread, which the first call of the process
/// starts.
#[derive(Clone)]
pub struct ModelClient {
    models: Who,
}

#[derive(Clone)]
enum Who {
    Own(Arc<Models>),
    Lent(LentModel, Mask),
    Nobody(NoModel),
}

impl ModelClient {
    /// Creates a client for what [`resolve`](super::resolve) decided. No connection is opened
    /// before the first call.
    ///
    /// `timeout` limits one request, and a call with its retries and pauses may take twice as long.
    /// `mask` replaces the secrets in every request that is built from instructions and material,
    /// and in a server's words that a message quotes. A body that continues the agent's
    /// conversation is sent unchanged.
    pub fn new(resolved: Resolved, timeout: Duration, mask: Mask) -> Self {
        let models = match resolved {
            Resolved::NoModel(reason) => Who::Nobody(reason),
            Resolved::Model { endpoint, fallback } => {
                let fallback = fallback.map(|endpoint| *endpoint);
                Models::new(*endpoint, fallback, timeout.min(LONGEST_TIMEOUT), mask)
                    .map_or_else(Who::Nobody, |models| Who::Own(Arc::new(models)))
            }
        };
        Self { models }
    }

    /// Whether the client asks the model that the agent itself uses, and takes request bodies of
    /// this format. Only then can a [`Question`] continue the agent's conversation.
    pub fn continues(&self, format: Format) -> bool {
        let api_format = match format {
            Format::Anthropic => ApiFormat::Anthropic,
            Format::OpenAiChat => ApiFormat::OpenAi,
            Format::Gemini => ApiFormat::Gemini,
            _ => return false,
        };
        self.endpoint()
            .is_some_and(|endpoint| endpoint.is_agents() && endpoint.api_format() == api_format)
    }

    /// Creates a client for a model that the embedding program asks. `mask` replaces the secrets in
    /// every request.
    pub fn lent(model: LentModel, mask: Mask) -> Self {
        Self {
            models: Who::Lent(model, mask),
        }
    }

    /// Returns the name of the model that is asked, and its window in tokens if it is known.
    ///
    /// # Errors
    /// Returns the reason if no model answers.
    pub fn model(&self) -> Result<(&str, Option<u64>), NoModel> {
        match &self.models {
            Who::Own(models) => {
                let endpoint = models.endpoint();
                Ok((endpoint.model(), endpoint.context_length()))
            }
            Who::Lent(model, _) => Ok((&model.name, model.context_length)),
            Who::Nobody(reason) => Err(*reason),
        }
    }

    /// Returns the address and model that are asked. Returns `None` if the embedding program makes
    /// the calls or no model answers.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.models {
            Who::Own(models) => Some(models.endpoint()),
            Who::Lent(..) | Who::Nobody(_) => None,
        }
    }

    /// Makes one model call and blocks until it is answered, fails permanently, or `cancel` is set.
    /// A cancellation is noticed within 20 ms and closes the connection. Only transient faults are
    /// retried: overload, rate limits and broken connections. If the model does not exist, the
    /// agent's own model is asked instead.
    ///
    /// # Errors
    /// Returns the reason why there is no usable answer. Its message says what happened and what to
    /// do, and never contains the key.
    pub fn complete(
        &self,
        request: &ModelRequest,
        cancel: &AtomicBool,
    ) -> Result<ModelAnswer, ModelFailure> {
        self.complete_many(std::slice::from_ref(request), cancel)
            .pop()
            .unwrap_or_else(|| Err(lost()))
    }

    /// Makes several model calls in parallel, at most 8 at a time. The answers have the order of
    /// the requests. If `cancel` is set, the answers received so far are kept and the other calls
    /// fail.
    pub fn complete_many(
        &self,
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let question = |request| Question {
            request,
            continued: None,
        };
        let used = Arc::default();
        self.ask(requests.iter().map(question).collect(), &used, cancel)
    }

    /// Makes several model calls like [`complete_many`](Self::complete_many). A question with a
    /// body that continues the agent's conversation is sent in that form first. If that gives no
    /// usable answer, it is asked again with its material, unless the failure would be the same.
    /// What the answers used is added to `used`.
    pub fn ask(
        &self,
        questions: Vec<Question<'_>>,
        used: &Arc<UsageByModel>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let all_fail = |failure: ModelFailure| vec![Err(failure); questions.len()];
        match &self.models {
            Who::Nobody(reason) => all_fail(ModelFailure::new(
                FailureKind::NoProvider,
                reason.to_string(),
            )),
            // What is cancelled before it starts is not sent.
            _ if cancel.load(Ordering::Relaxed) => all_fail(cancelled()),
            Who::Own(models) => models.ask(questions, used, cancel),
            Who::Lent(model, mask) => {
                let answers = ask_lent(model, *mask, &questions, cancel);
                for answer in answers.iter().flatten() {
                    let usage = Usage::default()
                        .input_tokens(answer.input_tokens)
                        .output_tokens(answer.output_tokens);
                    used.add(&answer.model, usage);
                }
                answers
            }
        }
    }
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelClient").field(&self.model()).finish()
    }
}

/// Makes the calls through the embedding program, in parallel. A running call cannot be stopped: if
/// `cancel` is set, its answer is no longer waited for and no further call starts. Questions are
/// always asked in their first form.
fn ask_lent(
    model: &LentModel,
    mask: Mask,
    questions: &[Question<'_>],
    cancel: &AtomicBool,
) -> Vec<Result<ModelAnswer, ModelFailure>> {
    let requests = questions.iter().map(|question| question.masked(mask));
    let waiting: VecDeque<_> = requests.enumerate().collect();
    // A shared queue instead of a fixed share for each thread, so that a slow call does not delay
    // the calls behind it.
    let waiting = Arc::new(Mutex::new(waiting));
    let (sender, answers) = channel();
    for _ in 0..questions.len().min(AT_ONCE) {
        let (ask, waiting, sender) = (Arc::clone(&model.ask), Arc::clone(&waiting), sender.clone());
        let work = move || {
            loop {
                // The lock is held only to take the next call.
                let next = lock(&waiting).pop_front();
                let Some((at, request)) = next else { return };
                let _ = sender.send((at, ask(&request)));
            }
        };
        // If a thread cannot be started, the others do its share of the work. If none can, every
        // call fails as lost.
        let _ = Builder::new()
            .name("contexture-lent-model".to_owned())
            .spawn(work);
    }
    // Otherwise the channel would never disconnect, and a panic in a call would block `collect`
    // forever.
    drop(sender);
    let results = collect(questions.len(), &answers, cancel);
    lock(&waiting).clear();
    results
}
