//! The store: one SQLite file that keeps every message of every session.
//!
//! - **Immutable.** A message is written once. A cut leaves messages behind and deletes none; a revision is a new
//!   message.
//! - **Exactly once.** A delivery, its cursor and the host's chain hash commit together; a message that is
//!   delivered again with the same id is not stored again.
//! - **Durable at the end of each turn.** In WAL mode with `synchronous = NORMAL` a commit has been written
//!   to the operating system when it returns, so it survives the death of the process. Only a loss of power
//!   can undo the last commits, and it never damages the file. Waiting for the disk each turn would let a
//!   slow one stall the conversation, so only checkpoints wait for it, off the turn's path.
//! - **One writer, any number of readers.** Writes go through one connection behind a lock; a read is a
//!   snapshot on a separate connection and never waits. Several processes may share the file.
//! - **Small.** Bodies are compressed by the turn; the wire JSON is stored without the text that it
//!   repeats; a large text is stored once, separately.
//!
//! Indexing follows in batches on a thread of the store; see [`crate::search`].

mod backup;
mod block;
mod body;
mod check;
mod compression;
pub(crate) mod create;
mod current_messages;
mod database;
mod definitions;
mod delete;
mod export;
pub(crate) mod index;
mod ingest;
mod live;
pub(crate) mod nodes;
mod payload;
mod read;
mod repair;
mod schema;
mod sessions;
mod summaries;
mod varint;
pub(crate) mod vectors;
mod wire;
pub(crate) mod worker;
mod writer;

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, Transaction};

use crate::embed::Embedder;
use crate::error::StoreError;
use database::Cancelled;
use worker::Worker;

pub use check::Check;
pub use delete::Size;
pub use export::{Exported, Page};
pub use index::upkeep::IndexCheck;
pub use ingest::Ingested;
pub use payload::{PayloadId, PayloadInfo, PayloadPart};
pub use read::{MessageRow, StoredMessage};
pub use repair::Repair;
pub use sessions::SessionInfo;

pub(crate) use body::Body;
pub(crate) use current_messages::CurrentMessages;
pub(crate) use database::Database;
pub(crate) use ingest::Together;
pub(crate) use payload::PREVIEW_CHARS;
pub(crate) use read::{Blocks, for_each_body, names_in, row_in, rows_in};
pub(crate) use sessions::info_in;
pub(crate) use summaries::{
    SummaryTimes, count_summaries, for_each_summary, summaries_end, summary_in, summary_times,
};
pub(crate) use varint::{put as put_varint, take as take_varint, take_usize};

/// The database's name in the engine's data directory.
pub const FILE_NAME: &str = "lcm.sqlite3";

/// A session's number in this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub(crate) i64);

/// The key of a message, block or summary: its session and its number in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub(crate) i64);

impl Key {
    /// The key of the `ordinal`-th message (from 0) of a session.
    pub fn new(session: SessionId, ordinal: u32) -> Self {
        Self(session.0 << 32 | i64::from(ordinal))
    }

    /// The session.
    pub fn session(self) -> SessionId {
        SessionId(self.0 >> 32)
    }

    /// The number in the session, counted from 0 over everything that ever arrived.
    pub fn ordinal(self) -> u32 {
        self.0 as u32
    }
}

/// The settings of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// Texts of more tokens than this are kept aside and replaced by a preview.
    pub large_tokens: u64,
    /// Whether threads of the store index in batches and make vectors. Otherwise call [`Store::index_now`] and
    /// [`Store::embed_now`].
    pub background_index: bool,
    /// Makes the vectors by which questions find what shares no word with them.
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

/// The store. Cheap to clone; every clone is the same store.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
    cancelled: Option<Cancelled>,
}

struct Handle {
    // Dropped first, which ends the threads: the last connection to close must be the writer.
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
    /// Opens the store in `directory`, making or migrating the file where needed.
    ///
    /// # Errors
    /// A directory that cannot be written, a damaged file, one of another program or of a newer version.
    pub fn open(directory: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let background = settings.background_index;
        let path = directory.join(FILE_NAME);
        let opened = repair::finish(directory)
            .and_then(|_| create::make_where_none_is(&path))
            .and_then(|()| Database::open(&path, settings));
        let database = Arc::new(opened.map_err(|error| error.at(&path))?);
        let unstarted = |cause| StoreError::File {
            path: directory.to_owned(),
            cause,
        };
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
        Ok(Self {
            handle: Arc::new(Handle {
                worker: worker.transpose().map_err(unstarted)?,
                embedding: embedding.transpose().map_err(unstarted)?,
                database,
            }),
            cancelled: None,
        })
    }

    /// Whether there is a store in `directory`, be it one whose repair was interrupted.
    pub(crate) fn is_in(directory: &Path) -> bool {
        directory.join(FILE_NAME).exists() || directory.join(repair::REPAIRED).exists()
    }

    /// Opens the store in `directory` where it cannot be written: what is written to it fails.
    ///
    /// # Errors
    /// No file, a damaged one, one of another version; one whose log cannot be read without writing.
    pub fn open_to_read(directory: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        let path = directory.join(FILE_NAME);
        let database = Database::open_to_read(&path, settings).map_err(|error| error.at(&path))?;
        Ok(Self {
            handle: Arc::new(Handle {
                worker: None,
                embedding: None,
                database: Arc::new(database),
            }),
            cancelled: None,
        })
    }

    /// The same store for cancellable work: reads end with [`StoreError::Cancelled`] soon after `cancelled`
    /// returns true. It is checked every few milliseconds of reading, but only between two segments while
    /// indexing. A write is completed or not made at all.
    #[must_use]
    pub fn until(&self, cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            cancelled: Some(Arc::new(cancelled)),
        }
    }

    /// [`StoreError::Cancelled`] if the work was cancelled.
    pub(crate) fn go_on(&self) -> Result<(), StoreError> {
        match self.cancelled.as_ref().is_some_and(|cancelled| cancelled()) {
            true => Err(StoreError::Cancelled),
            false => Ok(()),
        }
    }

    /// The database's path.
    pub fn path(&self) -> &Path {
        &self.handle.database.path
    }

    /// The settings it was opened with.
    pub fn settings(&self) -> &StoreSettings {
        &self.handle.database.settings
    }

    /// Runs `work` on a snapshot that no write changes or delays.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.database().read_until(self.cancelled.as_ref(), work)
    }

    /// Runs `work` in a write transaction; an error rolls it back.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.handle.database.write(work)
    }

    pub(crate) fn database(&self) -> &Database {
        &self.handle.database
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use contexture_engine_api::{MessageId, MessageView};

    use super::*;

    /// A store with one message, after running this SQL on its writing connection.
    fn store_after(sql: &str) -> (tempfile::TempDir, Store, SessionId) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s", 0).unwrap();
        let view = MessageView::new(MessageId(1), "user").with_text("before");
        store.ingest(session, &[view], 1).unwrap();
        store
            .database()
            .writer
            .take()
            .unwrap()
            .execute_batch(sql)
            .unwrap();
        (directory, store, session)
    }

    fn ingest_more(store: &Store, session: SessionId) -> Result<(), StoreError> {
        // Incompressible, so that it needs new pages.
        let text: String = (0..4_000u64)
            .map(|i| format!("{:x}", xxhash_rust::xxh3::xxh3_64(&i.to_le_bytes())))
            .collect();
        let view = MessageView::new(MessageId(2), "user").with_text(&text);
        store.ingest(session, &[view], 2).map(|_| ())
    }

    #[test]
    fn a_full_disk_is_said_and_nothing_is_lost() {
        let (_directory, store, session) = store_after("PRAGMA max_page_count = 1;");
        assert!(matches!(
            ingest_more(&store, session),
            Err(StoreError::DiskFull(path)) if path == store.path()
        ));
        assert_eq!(store.session_info(session).unwrap().messages, 1);
        let connection = store.database().writer.take().unwrap();
        connection
            .execute_batch("PRAGMA max_page_count = 100000;")
            .unwrap();
    }

    #[test]
    fn closing_leaves_one_file() {
        let (directory, store, session) = store_after("");
        ingest_more(&store, session).unwrap();
        store.index_now(session).unwrap();
        assert_eq!(store.messages(session, 0..2).unwrap().len(), 2);
        drop(store);
        let files: Vec<_> = std::fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(files, [FILE_NAME]);
    }

    #[test]
    fn a_read_only_file_is_said() {
        let (_directory, store, session) = store_after("PRAGMA query_only = ON;");
        assert!(matches!(
            ingest_more(&store, session),
            Err(StoreError::ReadOnly(path)) if path == store.path()
        ));
        assert_eq!(store.session_info(session).unwrap().messages, 1);
    }

    #[test]
    fn a_lock_is_said_readers_go_on_and_the_writer_recovers() {
        let (_directory, store, session) = store_after("");
        let other = Connection::open(store.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let since = std::time::Instant::now();
        let busy: Vec<_> = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| ingest_more(&store, session)));
            both.map(|one| one.join().unwrap()).into_iter().collect()
        });
        assert!(
            busy.iter()
                .all(|one| matches!(one, Err(StoreError::Busy(path)) if path == store.path()))
        );
        assert!(
            since.elapsed() < std::time::Duration::from_secs(8),
            "a call has ten seconds, whoever else waits"
        );
        assert_eq!(store.messages(session, 0..1).unwrap()[0].text, "before");
        other.execute_batch("ROLLBACK").unwrap();
        ingest_more(&store, session).unwrap();
        assert_eq!(store.session_info(session).unwrap().messages, 2);
    }
}
