//! The services that the host offers the engine of one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use contexture_engine_api::{
    HostServices, LogLevel, ModelAnswer, ModelFailure, ModelInfo, ModelRequest, Services,
};

use crate::providers::ModelClient;
use crate::supervision::CallState;
use crate::tokens::{TokenCounter, known_window};

/// The assumed window of an unknown auxiliary model, in tokens. Every recent model has at least this, so
/// material is cut into more pieces rather than refused.
const UNKNOWN_WINDOW: u64 = 32_768;

/// The services of one engine in one session: counted model calls, token counts, a log under the engine's
/// name, and the cancel flag.
pub(crate) struct SessionServices {
    engine: String,
    client: ModelClient,
    counter: TokenCounter,
    call: Arc<CallState>,
    model_calls: Arc<AtomicU64>,
}

impl SessionServices {
    /// The services for `engine`. `call` is what supervision shares with them; `model_calls` is the counter.
    pub(crate) fn lend(
        engine: &str,
        client: ModelClient,
        counter: TokenCounter,
        call: Arc<CallState>,
        model_calls: Arc<AtomicU64>,
    ) -> Services {
        Services::new(Arc::new(Self {
            engine: engine.to_owned(),
            client,
            counter,
            call,
            model_calls,
        }))
    }
}

impl SessionServices {
    /// Makes model calls, during which the engine's deadline waits.
    fn at_model<T>(&self, calls: impl FnOnce(&ModelClient, &AtomicBool) -> T) -> T {
        let _underway = self.call.call_model();
        calls(&self.client, &self.call.cancel)
    }

    /// Without a model there is no call to count.
    fn count_calls(&self, calls: usize) {
        if self.client.model().is_ok() {
            self.model_calls.fetch_add(calls as u64, Ordering::Relaxed);
        }
    }
}

impl HostServices for SessionServices {
    fn model(&self) -> Option<ModelInfo> {
        let (name, context_length) = self.client.model().ok()?;
        let context_length = context_length
            .or_else(|| known_window(name).map(|window| window.context_length))
            .unwrap_or(UNKNOWN_WINDOW);
        Some(ModelInfo::new(name.to_owned(), context_length))
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.count_calls(1);
        self.at_model(|client, cancel| client.complete(request, cancel))
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        self.count_calls(requests.len());
        self.at_model(|client, cancel| client.complete_many(requests, cancel))
    }

    fn count_tokens(&self, text: &str) -> u64 {
        self.counter.count_text(text)
    }

    fn log(&self, level: LogLevel, message: &str) {
        let engine = self.engine.as_str();
        match level {
            LogLevel::Debug => tracing::debug!(engine, "{message}"),
            LogLevel::Warn => tracing::warn!(engine, "{message}"),
            LogLevel::Error => tracing::error!(engine, "{message}"),
            _ => tracing::info!(engine, "{message}"),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.call.cancel.load(Ordering::Acquire)
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }
}

/// The time, in milliseconds since the Unix epoch; 0 on a clock before it.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
