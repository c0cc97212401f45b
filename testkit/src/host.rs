//! A host that does what a test tells it to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use contexture_engine_api::{
    Delivery, EngineError, FactoryRequest, HostInfo, HostServices, LogLevel, MessageId,
    ModelAnswer, ModelFailure, ModelInfo, ModelRequest, OpenRequest, OwnedMessage, Services,
    TranscriptPage, TranscriptRange, WindowState,
};
use tempfile::TempDir;

use crate::{ScriptedModel, locked};

/// Where a host's clock stands at first, in milliseconds since the Unix epoch: early in 2027.
pub const START_MS: i64 = 1_800_000_000_000;

/// How the kit counts the tokens of a text: one for every four bytes that are begun.
pub fn count(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// The services of a host: a model that is told what to say, a clock that moves when it is told to, a log
/// that can be read, a data directory that goes with the host, the transcript and artifacts of one session.
/// Everything can be changed while an engine holds it.
#[derive(Debug)]
pub struct ScriptedHost {
    /// The auxiliary model.
    pub model: ScriptedModel,
    info: HostInfo,
    data_dir: OnceLock<TempDir>,
    now_ms: AtomicI64,
    cancels_after: AtomicU64,
    count: Mutex<fn(&str) -> u64>,
    log: Mutex<Vec<(LogLevel, String)>>,
    /// Each message, and whether it is part of the conversation.
    transcript: Mutex<BTreeMap<MessageId, (OwnedMessage, bool)>>,
    artifacts: Mutex<BTreeMap<String, String>>,
}

impl ScriptedHost {
    /// A host with this model.
    pub fn new(model: ScriptedModel) -> Arc<Self> {
        Arc::new(Self {
            model,
            info: HostInfo::new(env!("CARGO_PKG_VERSION")),
            data_dir: OnceLock::new(),
            now_ms: AtomicI64::new(START_MS),
            cancels_after: AtomicU64::new(u64::MAX),
            count: Mutex::new(count),
            log: Mutex::default(),
            transcript: Mutex::default(),
            artifacts: Mutex::default(),
        })
    }

    /// A host that has no model.
    pub fn without_model() -> Arc<Self> {
        Self::new(ScriptedModel::default())
    }

    /// A host with a model of this window, which says something short until it is told what.
    pub fn with_model(context_length: u64) -> Arc<Self> {
        let host = Self::without_model();
        host.model.becomes(crate::MODEL_NAME, context_length);
        host
    }

    /// Puts the clock to this time.
    pub fn set_clock(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Moves the clock on, or back.
    pub fn advance_clock(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// From now on `is_cancelled` says no so often, and then yes until this is called again.
    pub fn cancel_after(&self, asks: u64) {
        self.cancels_after.store(asks, Ordering::Relaxed);
    }

    /// From now on texts are counted like this rather than by [`count`].
    pub fn count_with(&self, count: fn(&str) -> u64) {
        *locked(&self.count) = count;
    }

    /// What the engine has logged.
    pub fn log(&self) -> Vec<(LogLevel, String)> {
        locked(&self.log).clone()
    }

    /// Takes what an engine is shown into the transcript. [`Session`](crate::Session) does it before it shows anything.
    pub fn record(&self, delivery: &Delivery<'_>) {
        let mut transcript = locked(&self.transcript);
        if let Some(cut) = delivery.cut {
            let cut_off = transcript.iter_mut().filter(|(id, _)| !cut.keeps(**id));
            cut_off.for_each(|(_, (_, is_current))| *is_current = false);
        }
        for (_, old) in delivery.revisions {
            if let Some((_, is_current)) = transcript.get_mut(old) {
                *is_current = false;
            }
        }
        for message in delivery.messages {
            transcript.insert(message.id(), (OwnedMessage::from(message), true));
        }
    }

    /// The engine's data directory: made when it is first asked for, removed with the host.
    pub fn data_dir(&self) -> &Path {
        let make = || tempfile::tempdir().expect("a temporary directory");
        self.data_dir.get_or_init(make).path()
    }

    /// The services as an engine is given them.
    pub fn services(self: &Arc<Self>) -> Services {
        Services::new(Arc::clone(self) as Arc<dyn HostServices>)
    }

    /// What the engine of a session `s` without a compaction is opened with.
    pub fn open_request<'a>(
        self: &'a Arc<Self>,
        settings: &'a str,
        window: &'a WindowState,
    ) -> OpenRequest<'a> {
        OpenRequest::new("s", settings, self.data_dir(), self.services(), window)
    }

    /// What a factory is made with.
    pub fn factory_request<'a>(&'a self, settings: &'a str) -> FactoryRequest<'a> {
        FactoryRequest::new(settings, self.data_dir(), &self.info)
    }
}

impl HostServices for ScriptedHost {
    fn model(&self) -> Option<ModelInfo> {
        self.model.info()
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.model.complete(request)
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        requests.iter().map(|one| self.complete(one)).collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        let count = *locked(&self.count);
        count(text)
    }

    fn log(&self, level: LogLevel, message: &str) {
        locked(&self.log).push((level, message.to_owned()));
    }

    fn is_cancelled(&self) -> bool {
        let one_less = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        self.cancels_after
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            == Ok(0)
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let transcript = locked(&self.transcript);
        let read = |(message, is_current): &(OwnedMessage, bool)| {
            (range.outdated || *is_current).then(|| message.clone())
        };
        if !range.ids.is_empty() {
            let found = range.ids.iter().filter_map(|id| transcript.get(id));
            return Ok(TranscriptPage::default().messages(found.filter_map(read).collect()));
        }
        let after = transcript.values().filter_map(read);
        let mut after = after.filter(|message| range.after.is_none_or(|last| message.id > last));
        let page: Vec<_> = after.by_ref().take(range.limit.max(1)).collect();
        let next = after.next().and(page.last()).map(|last| last.id);
        Ok(TranscriptPage::default().messages(page).next(next))
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        Ok(locked(&self.artifacts).get(name).cloned())
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        let mut artifacts = locked(&self.artifacts);
        match text {
            Some(text) => _ = artifacts.insert(name.to_owned(), text.to_owned()),
            None => _ = artifacts.remove(name),
        }
        Ok(())
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        let artifacts = locked(&self.artifacts);
        let names = artifacts.keys().filter(|name| name.starts_with(prefix));
        Ok(names.cloned().collect())
    }
}
