//! The store: one SQLite file with the data that is derived from the conversations of the host.
//!
//! The host owns the transcript. The texts of messages are read from it through a [`Source`], and
//! summaries are stored as artifacts beside it. The file holds what can be computed from both: the
//! search index, vectors, a row of metadata for each message, and a copy of the summaries. If the
//! file is missing or damaged, it is built again. The same happens to the rows of one session if they
//! do not match its transcript.
//!
//! A delivery is committed in one transaction, and a message that is delivered again is recognised
//! by its id. All writes go through one connection behind a lock. A read is a snapshot on a
//! connection of its own and never waits for a write. Several processes may share the file.
//!
//! Start with [`Store::open`]. The methods of [`Store`] are spread over the submodules by subject,
//! and [`crate::search`] queries the index.

mod artifacts;
mod body;
mod check;
pub(crate) mod create;
mod current_messages;
mod database;
mod delete;
pub(crate) mod index;
mod ingest;
pub(crate) mod nodes;
mod payload;
mod read;
mod schema;
mod sessions;
mod source;
mod summaries;
mod varint;
pub(crate) mod vectors;
pub(crate) mod worker;
mod writer;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use contexture_engine_api::{MessageId, OwnedMessage, sqlite_file};
use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::error::StoreError;
use contexture_embed::Embedder;
use database::Cancelled;
use ingest::{hashes_in, is_in};
use worker::Worker;

pub use check::Check;
pub use index::upkeep::IndexCheck;
pub use ingest::Ingested;
pub use payload::{PayloadId, PayloadInfo};
pub use read::{MessageRow, StoredMessage};
pub use sessions::SessionInfo;
pub use source::Source;

pub(crate) use body::MessageBody;
pub(crate) use database::{Database, lock, query_all};
pub(crate) use payload::PREVIEW_CHARS;
pub(crate) use read::{Bodies, for_each_body, latest_time, names_in, row_in};
pub(crate) use sessions::info_in;
pub(crate) use source::redact;
pub(crate) use summaries::{
    SummaryTimes, count_summaries, for_each_summary, summaries_end, summary_in, summary_times,
};
pub(crate) use varint::{put as put_varint, take as take_varint, take_usize};

/// The name of the database in the data directory of the engine. The number is the version of the
/// tables. Programs with other tables have a file of their own, so an older and a newer one can run
/// at the same time.
pub const FILE_NAME: &str = "lcm-7.sqlite3";

/// The number of a session in this store. It means nothing in another store and is not reused after
/// the session is deleted, so use the name of the session outside of the store. A session whose rows
/// are built again for another transcript gets another number, so a number stands for one transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) i64);

/// The key of a message or a summary: the number of its session in the high 32 bits, and its number
/// in the order of arrival in the low 32 bits. Keys of one session are therefore one range, in
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) i64);

impl Key {
    /// Creates the key of the message with this number in a session. Messages count from 0,
    /// summaries from 1.
    pub fn new(session: SessionId, ordinal: u32) -> Self {
        Self(session.0 << 32 | i64::from(ordinal))
    }

    /// Returns the session that the key belongs to. It is read from the key and not looked up, so
    /// the session may have been deleted since.
    pub fn session(self) -> SessionId {
        SessionId(self.0 >> 32)
    }

    /// Returns the number in the session. It counts from 0 over everything that ever arrived,
    /// including messages that a cut removed from the conversation.
    pub fn ordinal(self) -> u32 {
        self.0 as u32
    }
}

/// The settings of a store. They apply to what is stored from now on, and can differ from one
/// opening to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// A text of more tokens than this is stored as a file, which the window shows as a preview.
    /// The host's count decides.
    pub large_tokens: u64,
    /// Whether threads of the store build the index and the vectors in batches. If not, call
    /// [`Store::index_now`] and [`Store::embed_now`].
    pub background_index: bool,
    /// The encoder of the vectors with which a question finds texts that share no word with it. If
    /// it is None, questions are answered by words alone.
    pub embedder: Option<Embedder>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            large_tokens: 10_000,
            background_index: true,
            embedder: None,
        }
    }
}

/// An open store. Clones are cheap and share the connections and threads, which are closed when the
/// last clone is dropped.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
    source: Option<Source>,
    cancelled: Option<Cancelled>,
}

/// A consistent view of the database at one moment, together with the transcripts from which the
/// texts of messages are read. It dereferences to the connection for queries.
pub(crate) struct Snapshot<'c> {
    connection: &'c Connection,
    source: Option<&'c Source>,
}

impl std::ops::Deref for Snapshot<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Snapshot<'_> {
    /// Returns the messages with these ids, as far as the transcript of the session has them. The
    /// result is empty if the session is unknown.
    fn messages(
        &self,
        session: SessionId,
        ids: &[MessageId],
    ) -> Result<Vec<OwnedMessage>, StoreError> {
        let source = self.source.ok_or(StoreError::NoTranscript)?;
        let name: Option<String> = self
            .prepare_cached("SELECT name FROM sessions WHERE id = ?1")?
            .query_row([session.0], |row| row.get(0))
            .optional()?;
        match name {
            Some(name) => source.messages(&name, ids),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the first of these ordinals whose message the transcript does not have, or the end of
    /// the range. The hash of the row tells: a thread may still read a record that was lost, or in
    /// whose place a copy was put.
    fn known_end(&self, session: SessionId, ordinals: &Range<u32>) -> Result<u32, StoreError> {
        let source = self.source.ok_or(StoreError::NoTranscript)?;
        let rows = hashes_in(self, session, ordinals)?;
        let name = info_in(self, session)?.name;
        let hashes = source.hashes(&name, rows.iter().map(|(id, _)| *id).collect())?;
        let known = rows.iter().take_while(|row| is_in(&hashes, row)).count();
        Ok(ordinals.start + known as u32)
    }
}

struct Handle {
    // The threads are dropped before the database. The last connection to close must be the
    // writer's.
    worker: Option<Worker>,
    embedding: Option<Worker>,
    database: Arc<Database>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store")
            .field(&self.handle.database.path)
            .finish()
    }
}

impl Store {
    /// Opens the store in `directory` and creates the file if there is none. A damaged file is
    /// deleted and created again, because the host has everything it was built from. Files of other
    /// versions are deleted if nobody has written them for a day.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be written, or if the file is a database of another
    /// program.
    pub fn open(directory: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let background = settings.background_index;
        let path = directory.join(FILE_NAME);
        let open = || {
            create::create_if_missing(&path)?;
            Database::open(&path, settings.clone())
        };
        let opened = match open().map_err(|error| error.at(&path)) {
            // Building the file again from the transcript is simpler and safer than repairing it.
            Err(StoreError::Damaged(_)) => {
                remove_database(&path);
                open()
            }
            opened => opened,
        };
        let database = Arc::new(opened.map_err(|error| error.at(&path))?);
        let unstarted = |cause| StoreError::File {
            path: directory.to_owned(),
            cause,
        };
        // Each thread holds the database alive but not the store, so that dropping the last store
        // ends both threads.
        let worker = background.then(|| {
            let database = Arc::clone(&database);
            Worker::start("lcm-index", move |orders| {
                index::worker::run(&database, orders)
            })
        });
        let embedder = database.settings.embedder.clone().filter(|_| background);
        let embedding = embedder.map(|embedder| {
            let database = Arc::clone(&database);
            Worker::start("lcm-embed", move |orders| {
                vectors::run(&database, &embedder, orders)
            })
        });
        let worker = worker.transpose().map_err(unstarted)?;
        let embedding = embedding.transpose().map_err(unstarted)?;
        Ok(Self::of(database, worker, embedding))
    }

    fn of(database: Arc<Database>, worker: Option<Worker>, embedding: Option<Worker>) -> Self {
        Self {
            handle: Arc::new(Handle {
                worker,
                embedding,
                database,
            }),
            source: None,
            cancelled: None,
        }
    }

    /// Returns the same store with access to the transcripts of `source`. Without a source only
    /// rows can be read, and everything that needs a text fails with [`StoreError::NoTranscript`].
    #[must_use]
    pub fn over(&self, source: Source) -> Self {
        Self {
            source: Some(source),
            ..self.clone()
        }
    }

    /// Returns the transcripts from which the texts of messages are read, or
    /// [`StoreError::NoTranscript`] if the store was opened without any.
    pub(crate) fn source(&self) -> Result<&Source, StoreError> {
        self.source.as_ref().ok_or(StoreError::NoTranscript)
    }

    /// Deletes the database in `directory` with its log. If there is none, or if a file cannot be
    /// deleted, nothing is reported.
    pub(crate) fn remove_from(directory: &Path) {
        remove_database(&directory.join(FILE_NAME));
    }

    /// Returns whether there is a database in `directory`. The content is not checked, so opening
    /// it may still fail.
    pub(crate) fn is_in(directory: &Path) -> bool {
        directory.join(FILE_NAME).exists()
    }

    /// Opens the store in `directory` for reading only. Use it when [`Store::open`] fails because
    /// the file cannot be written. Every write to the result fails.
    ///
    /// # Errors
    /// Returns an error if there is no file, if it is damaged, or if its log cannot be read without
    /// writing.
    pub fn open_to_read(directory: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let path = directory.join(FILE_NAME);
        let database = Database::open_to_read(&path, settings).map_err(|error| error.at(&path))?;
        Ok(Self::of(Arc::new(database), None, None))
    }

    /// Returns the same store for cancellable work. Reads end with [`StoreError::Cancelled`] soon
    /// after `cancelled` returns true. It is checked every few milliseconds of reading, but only
    /// between two segments while indexing. A write is completed or not made at all.
    #[must_use]
    pub fn until(&self, cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            cancelled: Some(Arc::new(cancelled)),
            ..self.clone()
        }
    }

    /// Returns [`StoreError::Cancelled`] if the work was cancelled. Long work calls this between
    /// its steps, because SQLite only interrupts statements.
    pub(crate) fn go_on(&self) -> Result<(), StoreError> {
        match self.cancelled.as_ref().is_some_and(|cancelled| cancelled()) {
            true => Err(StoreError::Cancelled),
            false => Ok(()),
        }
    }

    /// Returns the path of the database file, which is in the directory that the store was opened
    /// in.
    pub fn path(&self) -> &Path {
        &self.handle.database.path
    }

    /// Returns the settings that the store was opened with.
    pub fn settings(&self) -> &StoreSettings {
        &self.handle.database.settings
    }

    /// Runs `work` on a snapshot of the store. No write changes the snapshot or delays the read. If
    /// the store is cancellable, the work is interrupted.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.database()
            .read_until(self.cancelled.as_ref(), |connection| {
                let source = self.source.as_ref();
                work(&Snapshot { connection, source })
            })
    }

    /// Runs `work` in a write transaction. If it returns an error, the transaction is rolled back
    /// and nothing is stored.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.handle.database.write(work)
    }

    /// Runs `work` in a write transaction, unless the host has given up the call that writes. Such a
    /// call may get the lock late, when another engine object has the session and the conversation
    /// has changed.
    pub(crate) fn write_in_call<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let is_given_up = || {
            let source = self.source.as_ref();
            source.is_some_and(|source| source.services().is_cancelled())
        };
        // Asked under the lock: a later object writes only after this transaction.
        self.write(|transaction| match is_given_up() {
            true => Err(StoreError::Cancelled),
            false => work(transaction),
        })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.handle.database
    }
}

/// Deletes a database with its log files. Failures are ignored, because creating the new file
/// reports them.
fn remove_database(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = std::fs::remove_file(sqlite_file(path, suffix));
    }
}

#[cfg(test)]
mod tests;
