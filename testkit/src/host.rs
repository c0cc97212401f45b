//! A scripted host.
//!
//! An engine under test needs somebody who lends it services. [`ScriptedHost`] implements all of
//! them in memory: a model that says what the test tells it to, a clock that only moves when the
//! test moves it, a log that the test can read, a temporary data directory, and the transcript and
//! artifacts of one session.
//!
//! Create one with [`ScriptedHost::without_model`] or [`ScriptedHost::with_model`] and pass it to
//! [`Session`](crate::Session). If a test opens the engine itself, [`ScriptedHost::open_request`]
//! and [`ScriptedHost::factory_request`] give it what it needs. Everything can be changed while the
//! engine is open.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use contexture_engine_api::{
    Delivery, EngineError, FactoryRequest, HostInfo, HostServices, LogLevel, MessageId,
    ModelAnswer, ModelFailure, ModelInfo, ModelRequest, OpenRequest, OwnedMessage, Services,
    TranscriptPage, TranscriptRange, WindowState,
};
use tempfile::TempDir;

use crate::chat::count;
use crate::locked;
use crate::model::{MODEL_NAME, ScriptedModel};

/// The time at which a host's clock starts, in milliseconds since the Unix epoch. It is early in
/// 2027.
pub const START_MS: i64 = 1_800_000_000_000;

/// The services of a host, in memory and under the control of the test: model, clock, log, data
/// directory, and the transcript and artifacts of one session. Everything can be changed while an
/// engine holds the host.
#[derive(Debug)]
pub struct ScriptedHost {
    /// The auxiliary model. There is none until [`becomes`](ScriptedModel::becomes) gives it a name
    /// and a window.
    pub model: ScriptedModel,
    info: HostInfo,
    data_dir: OnceLock<TempDir>,
    now_ms: AtomicI64,
    cancels_after: AtomicU64,
    count: Mutex<fn(&str) -> u64>,
    log: Mutex<Vec<(LogLevel, String)>>,
    /// The transcript of each session, by the session's id. A session without an entry has never
    /// been shown to an engine.
    transcripts: Mutex<BTreeMap<String, Transcript>>,
    revisions: Mutex<BTreeMap<String, Revisions>>,
    lost_texts: Mutex<BTreeSet<(String, MessageId)>>,
    /// The artifacts of each session, by the session's id and then by their names.
    artifacts: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

/// A session's messages by id. The flag is `true` if the message is still part of the conversation.
type Transcript = BTreeMap<MessageId, (OwnedMessage, bool)>;

/// Maps the new id of a revised message to the id of its earlier form.
type Revisions = BTreeMap<MessageId, MessageId>;

/// The id of the session that [`ScriptedHost::open_request`] opens. Methods without a session in
/// their name work on this one.
const SESSION: &str = "s";

impl ScriptedHost {
    /// Creates a host with this model. Its transcript and its artifacts are empty, and its clock
    /// stands at [`START_MS`].
    pub fn new(model: ScriptedModel) -> Arc<Self> {
        Arc::new(Self {
            model,
            info: HostInfo::new(env!("CARGO_PKG_VERSION")),
            data_dir: OnceLock::new(),
            now_ms: AtomicI64::new(START_MS),
            cancels_after: AtomicU64::new(u64::MAX),
            count: Mutex::new(count),
            log: Mutex::default(),
            transcripts: Mutex::default(),
            revisions: Mutex::default(),
            lost_texts: Mutex::default(),
            artifacts: Mutex::default(),
        })
    }

    /// Creates a host that has no model. Every model call fails with
    /// [`FailureKind::NoProvider`](contexture_engine_api::FailureKind::NoProvider).
    pub fn without_model() -> Arc<Self> {
        Self::new(ScriptedModel::default())
    }

    /// Creates a host with a model whose window has `context_length` tokens. The model gives a
    /// short fixed answer until the test scripts another.
    pub fn with_model(context_length: u64) -> Arc<Self> {
        let host = Self::without_model();
        host.model.becomes(MODEL_NAME, context_length);
        host
    }

    /// Sets the clock to this time, in milliseconds since the Unix epoch.
    pub fn set_clock(&self, now_ms: i64) {
        self.now_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Moves the clock forward by `by_ms` milliseconds, or back if the number is negative.
    pub fn advance_clock(&self, by_ms: i64) {
        self.now_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Lets `is_cancelled` say no for the next `asks` calls and yes for all calls after them, until
    /// this is called again.
    pub fn cancel_after(&self, asks: u64) {
        self.cancels_after.store(asks, Ordering::Relaxed);
    }

    /// Counts texts with this function from now on, instead of [`count`].
    pub fn count_with(&self, count: fn(&str) -> u64) {
        *locked(&self.count) = count;
    }

    /// Returns everything that the engine has logged so far, in order and with the level of each
    /// line.
    pub fn log(&self) -> Vec<(LogLevel, String)> {
        locked(&self.log).clone()
    }

    /// Adds what an engine is shown to the transcript. [`Session`](crate::Session) calls this
    /// before it shows anything, so call it only if the test shows messages to the engine itself.
    pub fn record(&self, delivery: &Delivery<'_>) {
        self.record_in(SESSION, delivery);
    }

    /// Adds a delivery to the transcript of another session, as [`record`](Self::record) does for
    /// the session `s`. Use it to test an engine with several sessions.
    pub fn record_in(&self, session: &str, delivery: &Delivery<'_>) {
        let mut transcripts = locked(&self.transcripts);
        let transcript = transcripts.entry(session.to_owned()).or_default();
        if let Some(cut) = delivery.cut {
            // A message that was cut off stays in the transcript, because an engine may ask for
            // outdated messages.
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
        let mut revisions = locked(&self.revisions);
        let revisions = revisions.entry(session.to_owned()).or_default();
        revisions.extend(delivery.revisions.iter().copied());
    }

    /// Deletes the transcript and the artifacts of a session. Use it to test what an engine does if
    /// the host's record was lost.
    pub fn lose(&self, session: &str) {
        locked(&self.transcripts).remove(session);
        locked(&self.revisions).remove(session);
        locked(&self.artifacts).remove(session);
    }

    /// Loses the text of one message of the transcript. The message is still known by its hash. Use it
    /// to test what an engine does if the host's record is damaged.
    pub fn lose_text(&self, session: &str, id: MessageId) {
        locked(&self.lost_texts).insert((session.to_owned(), id));
    }

    /// Marks a message as outdated, as a cut or a revision does. Does nothing if the session does
    /// not have the message.
    pub fn outdate(&self, session: &str, id: MessageId) {
        let mut transcripts = locked(&self.transcripts);
        let message = transcripts.get_mut(session);
        if let Some((_, is_current)) = message.and_then(|all| all.get_mut(&id)) {
            *is_current = false;
        }
    }

    /// Returns the engine's data directory. It is created when it is first asked for and removed
    /// when the host is dropped.
    pub fn data_dir(&self) -> &Path {
        let make = || tempfile::tempdir().expect("a temporary directory");
        self.data_dir.get_or_init(make).path()
    }

    /// Returns the services in the form in which an engine receives them. They belong to the
    /// session `s`.
    pub fn services(self: &Arc<Self>) -> Services {
        Services::new(Arc::clone(self) as Arc<dyn HostServices>)
    }

    /// Returns the services for the engine of another session than `s`. Model, clock and log are
    /// shared, while the transcript and the artifacts are those of that session.
    pub fn services_in(self: &Arc<Self>, session: &str) -> Services {
        Services::new(Arc::new(InSession {
            host: Arc::clone(self),
            session: session.to_owned(),
        }))
    }

    /// Returns the request that opens the engine of the session `s` without a current compaction.
    /// The settings are JSON text.
    pub fn open_request<'a>(
        self: &'a Arc<Self>,
        settings: &'a str,
        window: &'a WindowState,
    ) -> OpenRequest<'a> {
        OpenRequest::new(SESSION, settings, self.data_dir(), self.services(), window)
    }

    /// Returns a request that makes a factory. The settings are JSON text.
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
        // One after the other, so that replies which the test scripted are used in the order of the
        // requests.
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
        // `u64::MAX` stands for "never cancelled" and is not counted down.
        let one_less = |left: u64| (left != u64::MAX).then(|| left.saturating_sub(1));
        self.cancels_after
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            == Ok(0)
    }

    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        self.read(SESSION, range)
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        Ok(self.artifact_in(SESSION, name))
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        self.put_artifact_in(SESSION, name, text);
        Ok(())
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        Ok(self.artifacts_in(SESSION, prefix))
    }
}

/// The services for a session with another id than `s`. Everything but the transcript and the
/// artifacts comes from the host.
struct InSession {
    host: Arc<ScriptedHost>,
    session: String,
}

impl HostServices for InSession {
    fn model(&self) -> Option<ModelInfo> {
        self.host.model()
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.host.complete(request)
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        self.host.complete_many(requests)
    }

    fn count_tokens(&self, text: &str) -> u64 {
        self.host.count_tokens(text)
    }

    fn log(&self, level: LogLevel, message: &str) {
        HostServices::log(self.host.as_ref(), level, message);
    }

    fn is_cancelled(&self) -> bool {
        self.host.is_cancelled()
    }

    fn now_ms(&self) -> i64 {
        self.host.now_ms()
    }

    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        self.host.read(&self.session, range)
    }

    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        Ok(self.host.artifact_in(&self.session, name))
    }

    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        self.host.put_artifact_in(&self.session, name, text);
        Ok(())
    }

    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        Ok(self.host.artifacts_in(&self.session, prefix))
    }
}

impl ScriptedHost {
    fn read(&self, own: &str, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let transcripts = locked(&self.transcripts);
        let none = Transcript::new();
        let transcript = match range.session.as_deref() {
            None => transcripts.get(own).unwrap_or(&none),
            // As in a real host, a session that does not exist is an error and not an empty page.
            Some(session) => transcripts.get(session).ok_or_else(|| {
                EngineError::InvalidInput(format!("there is no session `{session}`"))
            })?,
        };
        let is_read = |(_, is_current): &&(OwnedMessage, bool)| range.outdated || *is_current;
        let (found, next): (Vec<_>, _) = match range.ids.is_empty() {
            false => {
                let found = range.ids.iter().filter_map(|id| transcript.get(id));
                (found.filter(is_read).collect(), None)
            }
            true => {
                let is_after = |(message, _): &&(OwnedMessage, bool)| {
                    range.after.is_none_or(|last| message.id > last)
                };
                let mut after = transcript.values().filter(is_read).filter(is_after);
                let page: Vec<_> = after.by_ref().take(range.limit.max(1)).collect();
                // The page only names a next one if a message follows. If it always did, each
                // engine would read an empty page at the end.
                let next = after.next().and(page.last()).map(|(last, _)| last.id);
                (page, next)
            }
        };
        let outdated = found.iter().filter(|(_, is_current)| !is_current);
        let outdated = outdated.map(|(message, _)| message.id).collect();
        let messages: Vec<_> = found.iter().map(|(message, _)| message.clone()).collect();
        let hashes = messages
            .iter()
            .map(|message| (message.id, hash_of(message)));
        let hashes = hashes.collect();
        let session = range.session.as_deref().unwrap_or(own);
        let told = locked(&self.revisions);
        let told = told.get(session);
        let ids = messages.iter().map(|message| message.id);
        let revisions: Vec<_> = ids.filter_map(|id| Some((id, *told?.get(&id)?))).collect();
        let lost = locked(&self.lost_texts);
        let is_readable = |message: &OwnedMessage| {
            !range.without_messages && !lost.contains(&(session.to_owned(), message.id))
        };
        let messages = messages.into_iter().filter(is_readable).collect();
        let page = TranscriptPage::default()
            .revisions(revisions)
            .hashes(hashes)
            .outdated(outdated);
        Ok(page.messages(messages).next(next))
    }

    fn artifact_in(&self, session: &str, name: &str) -> Option<String> {
        locked(&self.artifacts).get(session)?.get(name).cloned()
    }

    fn put_artifact_in(&self, session: &str, name: &str, text: Option<&str>) {
        let mut artifacts = locked(&self.artifacts);
        let artifacts = artifacts.entry(session.to_owned()).or_default();
        match text {
            Some(text) => _ = artifacts.insert(name.to_owned(), text.to_owned()),
            None => _ = artifacts.remove(name),
        }
    }

    fn artifacts_in(&self, session: &str, prefix: &str) -> Vec<String> {
        let artifacts = locked(&self.artifacts);
        let names = artifacts.get(session).into_iter().flat_map(BTreeMap::keys);
        names
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }
}

/// A hash of what a message says, whatever the JSON is like.
fn hash_of(message: &OwnedMessage) -> u64 {
    let mut hasher = DefaultHasher::new();
    let calls = message.tool_calls.iter();
    let calls: Vec<_> = calls
        .map(|call| (&call.id, &call.name, &call.arguments))
        .collect();
    let said = (&message.role, &message.name, message.text.trim(), calls);
    (said, &message.tool_call_id).hash(&mut hasher);
    hasher.finish()
}
