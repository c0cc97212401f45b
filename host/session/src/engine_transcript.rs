//! The transcript of a session as its engine reads it, and what the engine stores there.

use std::sync::{Arc, Mutex, OnceLock};

use contexture_base::lock;
use contexture_engine_api::{EngineError, TranscriptPage, TranscriptRange};

use super::record::{NewArtifact, Record, RecordError};

/// The transcript of a session as its engine reads it. Artifacts are staged until the session saves them with the turn.
#[derive(Debug)]
pub(crate) struct EngineTranscript {
    session: String,
    /// Unset while a session that is not stored is being opened.
    record: OnceLock<Arc<Record>>,
    staged: Mutex<Vec<NewArtifact>>,
}

impl EngineTranscript {
    pub(super) fn of(session: &str, record: Option<&Arc<Record>>) -> Arc<Self> {
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

    /// Says where the session is stored. Only the first call counts.
    pub(super) fn set_record(&self, record: &Arc<Record>) {
        self.record.get_or_init(|| Arc::clone(record));
    }

    /// Takes what was staged since the last call.
    pub(super) fn take_staged(&self) -> Vec<NewArtifact> {
        std::mem::take(&mut *lock(&self.staged))
    }

    pub(crate) fn read(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let Some(record) = self.record.get() else {
            return Ok(TranscriptPage::default());
        };
        let session = range.session.as_deref().unwrap_or(&self.session);
        match record.transcript(session, range).map_err(failed)? {
            Some(page) => Ok(page),
            // It is opened beside nobody.
            None if session == self.session => Ok(TranscriptPage::default()),
            None => Err(EngineError::InvalidInput(format!(
                "there is no session `{session}`"
            ))),
        }
    }

    pub(crate) fn artifact(&self, engine: &str, name: &str) -> Result<Option<String>, EngineError> {
        let staged = lock(&self.staged);
        let mut newest = staged.iter().rev();
        if let Some(staged) = newest.find(|one| one.engine == engine && one.name == name) {
            return Ok(staged.text.clone());
        }
        drop(staged);
        match self.record.get() {
            Some(record) => record.artifact(&self.session, engine, name).map_err(failed),
            None => Ok(None),
        }
    }

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
