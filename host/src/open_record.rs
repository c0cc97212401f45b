//! Opening the record that the configuration names: the file of the home directory, or a database.
//!
//! Only this module decides between the two. Everybody else gets a [`Record`] and need not know
//! what is behind it. [`open_record`] is for those who write, and [`open_record_to_read`] for
//! commands that only show something.
//!
//! If the program was built without the feature `postgres` and the configuration asks for a
//! database, opening fails. The file does not take its place, because the sessions in the database
//! would then seem to be gone.

use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use contexture_base::secret;
use contexture_config::{Loaded, TranscriptStore};
use contexture_transcript::{Record, RecordError};

/// Opens the record of sessions that the configuration names. If it is a file that does not exist,
/// it is created.
///
/// # Errors
/// The record cannot be opened, or the environment variable with the URL of the database is not set.
pub fn open_record(loaded: &Loaded) -> Result<Arc<Record>, RecordError> {
    open_record_or_later(loaded, false)
}

/// Like [`open_record`]. If `may_be_away` is set, a database that does not answer is no error.
pub(crate) fn open_record_or_later(
    loaded: &Loaded,
    may_be_away: bool,
) -> Result<Arc<Record>, RecordError> {
    let record = match loaded.config.transcript.store {
        TranscriptStore::Sqlite => Record::open(&loaded.home),
        TranscriptStore::Postgres => open_postgres(loaded, may_be_away),
    }?;
    if loaded.config.redacts(&loaded.config.context.engine) {
        record.redact();
    }
    Ok(record)
}

/// Like [`open_record`], for a caller that only reads. A file may be on a read-only file system, and
/// if there is none, the record is empty and no file is created.
///
/// # Errors
/// As [`open_record`].
pub fn open_record_to_read(loaded: &Loaded) -> Result<Arc<Record>, RecordError> {
    match loaded.config.transcript.store {
        TranscriptStore::Sqlite => Record::open_to_read(&loaded.home),
        TranscriptStore::Postgres => open_postgres(loaded, false),
    }
}

/// Whether there may be a record: a file that exists, or a database.
pub fn has_record(loaded: &Loaded) -> bool {
    match loaded.config.transcript.store {
        TranscriptStore::Sqlite => Record::is_in(&loaded.home),
        // Only the database could tell, and opening the record asks it.
        TranscriptStore::Postgres => true,
    }
}

#[cfg(feature = "postgres")]
fn open_postgres(loaded: &Loaded, may_be_away: bool) -> Result<Arc<Record>, RecordError> {
    Record::open_postgres(&postgres_options(loaded)?.may_be_away(may_be_away))
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_loaded: &Loaded, _may_be_away: bool) -> Result<Arc<Record>, RecordError> {
    Err(RecordError::NoDatabase(
        "`transcript.store` is `postgres`, and this program was built without it: build it with the feature `postgres`, \
         or set `transcript.store` to `sqlite`"
            .to_owned(),
    ))
}

/// How to reach the database that the configuration names, whether or not `transcript.store` is
/// `postgres`.
///
/// # Errors
/// The environment variable with the URL of the database is not set, or the URL cannot be read.
#[cfg(feature = "postgres")]
pub fn postgres_options(
    loaded: &Loaded,
) -> Result<contexture_transcript::PostgresOptions, RecordError> {
    let settings = &loaded.config.transcript;
    let variable = &settings.url_env;
    let no_url = |why: String| {
        RecordError::NoDatabase(format!(
            "the environment variable `{variable}` {why}: set it to the database's URL \
             (postgres://<user>:<password>@<host>:5432/<name>), or {variable}_FILE to a file that holds it, or set \
             `transcript.url_env` to the variable that has it"
        ))
    };
    let url = secret(variable).map_err(|error| no_url(format!("has no URL: {error}")))?;
    let url = url.ok_or_else(|| no_url("is not set".to_owned()))?;
    let timeout = Duration::from_millis(settings.statement_timeout_ms);
    let options = contexture_transcript::PostgresOptions::new(&url)?;
    // A gateway forwards a request that takes longer, so the store must have failed by then.
    let held = Duration::from_millis(loaded.config.gateway.max_hold_ms);
    let retry_for = options.retry_for.min(held * 4 / 5);
    let options = options
        .retry_for(retry_for)
        .tenant(&settings.tenant)
        .max_connections(settings.max_connections as usize)
        .statement_timeout(timeout)
        .ca_file(settings.ca_file.clone());
    Ok(options)
}
