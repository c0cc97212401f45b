//! A question to a model, and what every way of asking one has in common.
//!
//! [`Question`] is what is asked. The module `network` asks a provider, and
//! [`ModelClient`](super::ModelClient) a model that the embedding program lends. Both make several
//! calls at a time, mask what they send ([`Question::masked`]), and wait for the answers with
//! [`collect`].

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};

/// A function that replaces the secrets in a text before the text leaves the machine. It returns
/// the text itself if there are none.
pub type Mask = fn(&str) -> Cow<'_, str>;

/// A question to a model, in one or two forms. The second form puts the question to the agent's own
/// model as the next message of its conversation, which is cheap because the provider has that
/// conversation in its cache.
pub struct Question<'q> {
    /// The question together with the material it is about. Its secrets are masked before it is
    /// sent.
    pub request: &'q ModelRequest,
    /// The body of a request that continues the agent's conversation with the question. It is tried
    /// first. `None` if the question has only the first form.
    pub continued: Option<String>,
}

impl Question<'_> {
    /// Returns a copy of the request with its secrets replaced in the system text and the prompt.
    pub(super) fn masked(&self, mask: Mask) -> ModelRequest {
        let request = self.request;
        ModelRequest::new(
            request.purpose.clone(),
            mask(&request.system).into_owned(),
            mask(&request.prompt).into_owned(),
            request.max_tokens,
        )
    }
}

/// The answer to one question.
pub(super) type Answered = Result<ModelAnswer, ModelFailure>;

/// How often a waiting call checks its cancel flag, and so the longest delay of a cancellation.
const POLL: Duration = Duration::from_millis(20);

/// The most requests that are open at a time: for all clones of a client over the network, and in
/// each call of [`ModelClient::ask`](super::ModelClient::ask) for a lent model.
pub(super) const AT_ONCE: usize = 8;

/// Waits for the answers to `count` questions, each of which comes with the number of its question,
/// until all calls have ended or `cancel` is set. A question without an answer fails as cancelled
/// or, if its call panicked, as lost.
pub(super) fn collect(
    count: usize,
    answers: &Receiver<(usize, Answered)>,
    cancel: &AtomicBool,
) -> Vec<Answered> {
    let mut results = vec![None; count];
    let mut keep = |(index, answer): (usize, Answered)| {
        if let Some(result) = results.get_mut(index) {
            *result = Some(answer);
        }
    };
    let failure = loop {
        if cancel.load(Ordering::Relaxed) {
            // Answers that arrived since the last check are complete and paid for, so they are
            // kept.
            answers.try_iter().for_each(&mut keep);
            break cancelled();
        }
        match answers.recv_timeout(POLL) {
            Ok(answer) => keep(answer),
            Err(RecvTimeoutError::Timeout) => {}
            // Every call has answered or panicked.
            Err(RecvTimeoutError::Disconnected) => break lost(),
        }
    };
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(failure.clone())))
        .collect()
}

/// Returns the failure of a call that ended without an answer. That can only happen if its code
/// panicked or no thread could run it.
pub(super) fn lost() -> ModelFailure {
    ModelFailure::new(
        FailureKind::Other,
        "the model call ended without an answer; please report this as a bug of contexture",
    )
}

/// Returns the failure of a call that its caller cancelled. Services that wrap a client return it
/// for calls that they do not make at all.
pub fn cancelled() -> ModelFailure {
    ModelFailure::new(FailureKind::Cancelled, "the model call was cancelled")
}
