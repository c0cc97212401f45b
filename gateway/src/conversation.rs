//! One request of a conversation, from its body to what the record knows of it.
//!
//! [`read`] comes first: it recognizes requests that are no turns, and finds the session. The result
//! is a [`TurnRequest`], or [`NoTurn`] if the request is passed on unchanged.
//! [`TurnRequest::turn`] runs it through the host. The result is a [`TurnResult`] with the body for the
//! provider. If the provider says that this body is too long, [`TurnRequest::turn_within`] makes a
//! smaller one. If the host fails, [`TurnRequest::shorten`] shortens the body without a session.
//!
//! Sending the body and reading the answer is up to [`exchange`](crate::exchange).

mod read;
mod turn;

use std::sync::{Arc, OnceLock};

use contexture::providers::ModelClient;
use contexture::session::{AgentWindow, KeptChange, RecordError};

pub(crate) use self::read::{PostRequest, read};
pub(crate) use self::turn::{FitLimits, TurnResult};
use crate::api::Api;
use crate::body::SharedBody;
use crate::failure::Failure;
use crate::health::Failed;
use crate::lineage;
use crate::references::{self, References};
use crate::sessions::SessionSpec;
use crate::unmanaged::UnmanagedReason;
use crate::{Shared, window};

/// Why a request is no turn. Both cases pass it on unchanged, but only one is a failure.
pub(crate) enum NoTurn {
    PassThrough(Box<PassThrough>),
    Failed(Failure),
}

impl NoTurn {
    /// A request that is passed on as it is, and asks for no summary. `session` is its client's name
    /// for its session.
    fn passed_on(why: UnmanagedReason, session: Option<String>) -> Self {
        Self::PassThrough(Box::new(PassThrough {
            why,
            session,
            summary_target: None,
            as_turn: None,
        }))
    }
}

impl From<Failure> for NoTurn {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A request that is passed on unchanged, because it is a side call, has no messages, or belongs to
/// a conversation that the provider manages.
pub(crate) struct PassThrough {
    pub(crate) why: UnmanagedReason,
    /// The client's name for its session, if it sends one. Only the status page and the log use it.
    pub(crate) session: Option<String>,
    /// If the request asks for a summary of a known session: the conversation under which the
    /// answer is noted as a proof.
    pub(crate) summary_target: Option<lineage::SummaryTarget>,
    /// If the request asks for a summary of a known session, or for one and does not fit: the same
    /// request as a turn, so that the session's window can take the place of the client's history, or
    /// that it can be shortened. It is never run.
    pub(crate) as_turn: Option<Arc<TurnRequest>>,
}

/// A request that becomes a turn: its body, the session that it belongs to, and how to open that
/// session.
#[derive(Debug)]
pub(crate) struct TurnRequest {
    pub(crate) api: Api,
    /// The program that sent it, for the metrics.
    pub(crate) sender: &'static str,
    pub(crate) body: SharedBody,
    /// What of the body was a reference to an item when it came.
    pub(crate) references: References,
    pub(crate) spec: SessionSpec,
    /// The agent's own model, with the client's credentials. It writes summaries if the
    /// configuration says so.
    agent_model: Option<Arc<ModelClient>>,
    pub(crate) found: lineage::LineageMatch,
    without_tools: bool,
    /// What the client pins and unpins with the headers of the request.
    pins: Vec<String>,
    unpins: Vec<String>,
    /// The identity of the last message, or 0 if there is none. Hidden rounds are stored by it.
    pub(crate) last: u64,
    /// The identity of each message, to find the positions at which hidden rounds are put back.
    identities: Vec<u64>,
    /// Why the turn could not be stored, once that is known. The inner None means that it is stored.
    pub(crate) not_stored: OnceLock<Option<String>>,
}

/// Logs an error of the record. The request continues without the note.
pub(crate) fn log_record_error(written: Result<(), RecordError>) {
    if let Err(error) = written {
        tracing::warn!("cannot update the record: {error}");
    }
}

impl TurnRequest {
    /// The changes of the record that note that the conversation had this request. Call
    /// [`LineageMatch::noted`](lineage::LineageMatch::noted) after they were made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = KeptChange<'_>> {
        let items = self.references.changes(&self.spec.id);
        self.found.changes().chain(items)
    }

    /// The changes of the record that note the model's answer. When the client sends it back, the
    /// answer proves that the request continues this session. Empty if there is nothing to note.
    pub(crate) fn answer_changes(&self, shared: &Shared, answer: &[String]) -> Vec<KeptChange<'_>> {
        let identities = shared.identities.identify(self.api.format(), answer);
        self.found.answer_changes(&identities)
    }

    /// Remembers the items of an answer, if the client may refer to them.
    pub(crate) fn remember(&self, shared: &Shared, answer: &[String]) {
        if references::are_stored(self.api, &self.body) {
            let tenant = self.spec.tenant.as_deref();
            let is_saved = !self.references.is_empty();
            shared.items.remember(tenant, answer, is_saved);
        }
    }

    /// The changes of the record that store the items of an answer. There are none if the client did
    /// not refer to items so far.
    pub(crate) fn item_changes(&self, answer: &[String]) -> Vec<KeptChange<'static>> {
        if self.references.is_empty() || !references::are_stored(self.api, &self.body) {
            return Vec::new();
        }
        let items = answer.iter();
        items
            .filter_map(|item| references::change(&self.spec.id, item))
            .collect()
    }

    /// Records for the health check and for the headers of the answer whether the turn is stored.
    pub(crate) fn note_stored(&self, shared: &Shared, not_stored: Option<&str>) {
        let (id, health) = (&self.spec.id, &shared.health);
        match not_stored {
            Some(why) => health.failed(&shared.metrics, (id, Failed::Record), "store", why),
            None => health.works(id, Failed::Record),
        }
        // The request may have been stored before.
        let _ = self.not_stored.set(not_stored.map(str::to_owned));
    }

    /// The limit on the answer's tokens that the request names. Returns 0 if it names none or
    /// cannot be parsed.
    pub(crate) fn longest_answer(&self) -> u64 {
        window::longest_answer(&self.body.wire()).unwrap_or(0)
    }

    /// Whether the body certainly exceeds the window.
    pub(crate) fn is_surely_too_large(&self) -> bool {
        self.is_window_exceeded_by(self.body.text().as_bytes())
    }

    /// Whether this body in its place certainly exceeds the window.
    pub(crate) fn is_window_exceeded_by(&self, body: &[u8]) -> bool {
        is_surely_too_large(body, &self.spec.agent)
    }
}

/// Whether a body certainly exceeds a window. It divides the bytes by four, so that no tokenizer has
/// to run.
fn is_surely_too_large(body: &[u8], agent: &AgentWindow) -> bool {
    (body.len() / 4) as u64 > agent.context_length
}
