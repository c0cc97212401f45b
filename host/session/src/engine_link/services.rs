//! The services that the host offers to the engine of a session.
//!
//! An engine calls them while the host calls it: to ask a model, to count tokens, to write to the
//! log, to find out whether it was cancelled, and to read the transcript and its own artifacts.
//! [`lender`] makes them for one engine, and [`SessionServices`] implements them.
//!
//! Who answers a model call is decided in `asking`, and where artifacts go in `engine_transcript`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contexture_engine_api::{
    EngineError, FailureKind, HostServices, LogLevel, ModelAnswer, ModelFailure, ModelInfo,
    ModelRequest, Services, TranscriptPage, TranscriptRange,
};
use contexture_formats::tokens::{TokenCounter, known_window};
use contexture_runtime::supervision::CallState;

use super::asking::Asking;
use crate::engine_transcript::EngineTranscript;
use crate::options::Peers;
use contexture_base::now_ms;

/// The assumed context window of an unknown auxiliary model, in tokens. Every recent model has at
/// least this much, so material is cut into more pieces than needed but never refused.
const UNKNOWN_WINDOW: u64 = 32_768;

/// The services of one engine in one session: counted model calls, token counts, a log under the
/// engine's name, the transcript with the engine's artifacts, and the cancel flag.
struct SessionServices {
    engine: String,
    asking: Arc<Asking>,
    counter: TokenCounter,
    call: Arc<CallState>,
    model_calls: Arc<AtomicU64>,
    peers: Option<Peers>,
    transcript: Arc<EngineTranscript>,
}

/// Returns a function that makes the services for an engine with a given name and call state. Every
/// model call is added to `model_calls`. `peers` decides which other sessions the engine may look
/// into. Without it, the engine may look into all.
pub(crate) fn lender(
    asking: &Arc<Asking>,
    counter: TokenCounter,
    model_calls: &Arc<AtomicU64>,
    peers: Option<&Peers>,
    transcript: &Arc<EngineTranscript>,
) -> impl Fn(&str, &Arc<CallState>) -> Services + use<> {
    let (asking, model_calls) = (Arc::clone(asking), Arc::clone(model_calls));
    let (peers, transcript) = (peers.cloned(), Arc::clone(transcript));
    move |engine: &str, call: &Arc<CallState>| {
        // A cancel must reach this engine too.
        asking.add_caller(call);
        Services::new(Arc::new(SessionServices {
            engine: engine.to_owned(),
            asking: Arc::clone(&asking),
            counter,
            call: Arc::clone(call),
            model_calls: Arc::clone(&model_calls),
            peers: peers.clone(),
            transcript: Arc::clone(&transcript),
        }))
    }
}

impl SessionServices {
    /// Asks the model. The deadline of the engine's call does not run meanwhile.
    fn ask(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let client = self.asking.client();
        // Without a model, the call fails at once and costs nothing.
        if client.model().is_ok() {
            self.model_calls
                .fetch_add(requests.len() as u64, Ordering::Relaxed);
        }
        let _underway = self.call.call_model();
        self.asking
            .complete_many(&client, requests, self.counter, &self.call.cancel)
    }
}

impl HostServices for SessionServices {
    fn model(&self) -> Option<ModelInfo> {
        let client = self.asking.client();
        let (name, context_length) = client.model().ok()?;
        let context_length = context_length
            .or_else(|| known_window(name).map(|window| window.context_length))
            .unwrap_or(UNKNOWN_WINDOW);
        let guidance = &self.asking.guidance;
        let context_length = guidance.left_of(context_length, self.counter);
        let mut model = ModelInfo::new(name.to_owned(), context_length);
        model.extract_if_contradicted = guidance.extract_if_contradicted;
        Some(model)
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        let answer = self.ask(std::slice::from_ref(request)).pop();
        answer.unwrap_or_else(|| Err(ModelFailure::new(FailureKind::Other, "no answer")))
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        self.ask(requests)
    }

    fn count_tokens(&self, text: &str) -> u64 {
        self.counter.count_text(text)
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
        self.transcript.read(range)
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        self.transcript.artifact(&self.engine, name)
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        // If the call was cancelled, the session may have continued without it, and a late write
        // would not belong to any turn.
        if self.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.transcript.put_artifact(&self.engine, name, text);
        Ok(())
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        self.transcript.artifacts(&self.engine, prefix)
    }

    fn may_read_session(&self, session: &str) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.has(session))
    }
}
