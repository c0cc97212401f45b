//! The transcript of a session as its engine reads it, and the artifacts that the engine stores.
//!
//! Reads go to the record. Artifacts are staged in memory first, and the session saves them in the
//! transaction of the turn, so that both become durable together. The engine sees its staged
//! artifacts at once.
//!
//! [`EngineTranscript`] is shared between the session and the services of its engine.

use contexture_transcript::{NewArtifact, Record, RecordError};
use std::sync::{Arc, Mutex, OnceLock};

use contexture_base::lock;
use contexture_engine_api::{EngineError, TranscriptPage, TranscriptRange};

/// The transcript of a session as its engine reads it, with the artifacts that are not saved yet.
#[derive(Debug)]
pub(crate) struct EngineTranscript {
    session: String,
    /// The record to read from. Unset while a session that is not stored is being opened, and if
    /// the engine needs none.
    record: OnceLock<Arc<Record>>,
    /// Artifacts in the order in which the engine wrote them. The latest one with a name counts.
    staged: Mutex<Vec<NewArtifact>>,
}

impl EngineTranscript {
    /// The transcript of a session that is stored in `record`, or nowhere yet.
    pub(crate) fn of(session: &str, record: Option<&Arc<Record>>) -> Arc<Self> {
        let transcript = Self {
            session: session.to_owned(),
            record: OnceLock::new(),
            staged: Mutex::default(),
        };
        if let Some(record) = record {
            transcript.set_record(record);
        }
        Arc::new(transcript)
    }

    /// Sets the record that the session is stored in. Only the first call has an effect.
    pub(crate) fn set_record(&self, record: &Arc<Record>) {
        self.record.get_or_init(|| Arc::clone(record));
    }

    /// Returns the artifacts that were staged since the last call, for the session to save.
    pub(crate) fn take_staged(&self) -> Vec<NewArtifact> {
        std::mem::take(&mut *lock(&self.staged))
    }

    /// Reads messages of this session, or of another one if `range` names it.
    ///
    /// # Errors
    /// The record cannot be read, or there is no other session with that name.
    pub(crate) fn read(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let Some(record) = self.record.get() else {
            return Ok(TranscriptPage::default());
        };
        let session = range.session.as_deref().unwrap_or(&self.session);
        match record.transcript(session, range).map_err(failed)? {
            Some(page) => Ok(page),
            // The session may not be in the record at all, as when it is opened beside one that
            // does not exist. Its transcript is empty then.
            None if session == self.session => Ok(TranscriptPage::default()),
            None => Err(EngineError::InvalidInput(format!(
                "there is no session `{session}`"
            ))),
        }
    }

    /// The text of an artifact of an engine, staged or saved. None if there is none or if it was
    /// deleted.
    pub(crate) fn artifact(&self, engine: &str, name: &str) -> Result<Option<String>, EngineError> {
        let staged = lock(&self.staged);
        let mut newest = staged.iter().rev();
        if let Some(staged) = newest.find(|one| one.engine == engine && one.name == name) {
            return Ok(staged.text.clone());
        }
        // Reading from the disk must not block an engine that stages artifacts in another thread.
        drop(staged);
        match self.record.get() {
            Some(record) => record.artifact(&self.session, engine, name).map_err(failed),
            None => Ok(None),
        }
    }

    /// The names of an engine's artifacts that begin with `prefix`, in order, staged changes
    /// included.
    pub(crate) fn artifacts(&self, engine: &str, prefix: &str) -> Result<Vec<String>, EngineError> {
        let mut names = match self.record.get() {
            Some(record) => (record.artifacts(&self.session, engine, prefix)).map_err(failed)?,
            None => Vec::new(),
        };
        let staged: Vec<NewArtifact> = lock(&self.staged).clone();
        let staged = (staged.into_iter())
            .filter(|staged| staged.engine == engine && staged.name.starts_with(prefix));
        for NewArtifact { name, text, .. } in staged {
            match (names.binary_search(&name), text) {
                (Err(at), Some(_)) => names.insert(at, name),
                (Ok(at), None) => _ = names.remove(at),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Stages an artifact. Without a text, the artifact is deleted with the next save.
    pub(crate) fn put_artifact(&self, engine: &str, name: &str, text: Option<&str>) {
        lock(&self.staged).push(NewArtifact {
            engine: engine.to_owned(),
            name: name.to_owned(),
            text: text.map(str::to_owned),
        });
    }
}

fn failed(error: RecordError) -> EngineError {
    EngineError::Storage(error.to_string())
}
