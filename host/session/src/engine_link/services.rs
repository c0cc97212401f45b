//! The services that the host offers to the engine of a session.
//!
//! An engine calls them while the host calls it: to ask a model, to count tokens, to write to the
//! log, to find out whether it was cancelled, and to read the transcript and its own artifacts.
//! [`Lender`] makes them for one engine, and [`SessionServices`] implements them.
//!
//! Who answers a model call is decided in `asking`, and where artifacts go in `engine_transcript`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contexture_engine_api::{
    EngineError, FailureKind, HostServices, LogLevel, ModelAnswer, ModelFailure, ModelInfo,
    ModelRequest, Services, TranscriptPage, TranscriptRange,
};
use contexture_formats::tokens::{TokenCounter, known_window};
use contexture_providers::Endpoint;
use contexture_runtime::supervision::CallState;

use super::asking::Asking;
use crate::engine_transcript::EngineTranscript;
use crate::options::Peers;
use contexture_base::now_ms;

/// The assumed context window of an unknown auxiliary model, in tokens. Every recent model has at
/// least this much, so material is cut into more pieces than needed but never refused.
const UNKNOWN_WINDOW: u64 = 32_768;

/// What the services of a session's engines are made of.
#[derive(Debug, Clone)]
pub(crate) struct Lender {
    pub(crate) asking: Arc<Asking>,
    pub(crate) counter: TokenCounter,
    /// The other sessions that an engine may look into. None if it may look into all.
    pub(crate) peers: Option<Peers>,
    pub(crate) transcript: Arc<EngineTranscript>,
}

impl Lender {
    /// The services for the engine with this name. A cancel of the session stops `call`.
    pub(crate) fn services(&self, engine: &str, call: &Arc<CallState>) -> Services {
        self.asking.add_caller(call);
        Services::new(Arc::new(SessionServices {
            engine: engine.to_owned(),
            call: Arc::clone(call),
            lender: self.clone(),
        }))
    }
}

/// The services of one engine in one session: counted model calls, token counts, a log under the
/// engine's name, the transcript with the engine's artifacts, and the cancel flag.
struct SessionServices {
    engine: String,
    call: Arc<CallState>,
    lender: Lender,
}

impl HostServices for SessionServices {
    fn model(&self) -> Option<ModelInfo> {
        let Lender {
            asking, counter, ..
        } = &self.lender;
        let client = asking.client();
        let (name, context_length) = client.model().ok()?;
        let context_length = context_length
            .or_else(|| known_window(name).map(|window| window.context_length))
            .unwrap_or(UNKNOWN_WINDOW);
        let guidance = &asking.guidance;
        let context_length = guidance.left_of(context_length, *counter);
        let mut model = ModelInfo::new(name.to_owned(), context_length);
        model.extract_if_contradicted = guidance.extract_if_contradicted;
        model.fingerprint = client
            .endpoint()
            .map_or_else(String::new, Endpoint::fingerprint);
        Some(model)
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        let answer = self.complete_many(std::slice::from_ref(request)).pop();
        answer.unwrap_or_else(|| Err(ModelFailure::new(FailureKind::Other, "no answer")))
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        // The deadline of the engine's call does not run meanwhile.
        let _underway = self.call.call_model();
        let Lender {
            asking, counter, ..
        } = &self.lender;
        asking.complete_many(&asking.client(), requests, *counter, &self.call.cancel)
    }

    fn count_tokens(&self, text: &str) -> u64 {
        self.lender.counter.count_text(text)
    }

    fn log(&self, level: LogLevel, message: &str) {
        /// A log target of its own, so that the command line can show what an engine warns of
        /// without the session's own log.
        const LOG: &str = "contexture::engine";
        let engine = self.engine.as_str();
        match level {
            LogLevel::Debug => tracing::debug!(target: LOG, engine, "{message}"),
            LogLevel::Warn => tracing::warn!(target: LOG, engine, "{message}"),
            LogLevel::Error => tracing::error!(target: LOG, engine, "{message}"),
            _ => tracing::info!(target: LOG, engine, "{message}"),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.call.cancel.load(Ordering::Acquire)
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        if let Some(other) = &range.session
            && !self.may_read_session(other)
        {
            return Err(EngineError::InvalidInput(format!(
                "the session `{other}` may not be read in this one"
            )));
        }
        let _underway = self.call.use_store();
        self.lender.transcript.read(range)
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        let _underway = self.call.use_store();
        self.lender.transcript.artifact(&self.engine, name)
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        // If the call was cancelled, the session may have continued without it, and a late write
        // would not belong to any turn.
        if self.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.lender
            .transcript
            .put_artifact(&self.engine, name, text);
        Ok(())
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        let _underway = self.call.use_store();
        self.lender.transcript.artifacts(&self.engine, prefix)
    }

    fn may_read_session(&self, session: &str) -> bool {
        (self.lender.peers.as_ref()).is_none_or(|peers| peers.has(session))
    }
}
