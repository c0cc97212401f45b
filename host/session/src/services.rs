//! The services that the host offers the engine of one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use contexture_engine_api::{
    EngineError, FailureKind, HostServices, LogLevel, ModelAnswer, ModelFailure, ModelInfo,
    ModelRequest, Services, TranscriptPage, TranscriptRange,
};
use contexture_formats::tokens::{TokenCounter, known_window};
use contexture_runtime::supervision::CallState;

use crate::Peers;
use crate::asking::Asking;
use crate::engine_transcript::EngineTranscript;

/// The assumed window of an unknown auxiliary model, in tokens. Every recent model has at least this, so
/// material is cut into more pieces rather than refused.
const UNKNOWN_WINDOW: u64 = 32_768;

/// The services of one engine in one session: counted model calls, token counts, a log under the engine's
/// name, and the cancel flag.
struct SessionServices {
    engine: String,
    asking: Arc<Asking>,
    counter: TokenCounter,
    call: Arc<CallState>,
    model_calls: Arc<AtomicU64>,
    peers: Option<Peers>,
    transcript: Arc<EngineTranscript>,
}

/// Lends a session's services to an engine of this name, whose calls have this state. Every model call is counted in
/// `model_calls`; `peers` say which other sessions the engine may look into, and without them it may look into all.
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
    /// Asks the model; the engine's deadline waits meanwhile.
    fn ask(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let client = self.asking.client();
        // Without a model there is no call to count.
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
        Some(ModelInfo::new(name.to_owned(), context_length))
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
        /// A target of its own: the command shows what an engine warns of, and not what a session logs.
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
        // Nobody waits for this call any more, and the session may have gone on without it.
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

/// The time, in milliseconds since the Unix epoch; 0 on a clock before it.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
