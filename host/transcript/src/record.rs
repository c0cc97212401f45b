//! The record: what survives a restart of a session. It holds hashes and ids of the messages, how
//! far the engine was shown them, what the host wrote, and the compaction in force.
//!
//! The text of the conversation is stored only if the engine reads the transcript or the
//! configuration asks for it. Otherwise the client has it and sends it again.
//!
//! Rows are stored by a backend (`crate::store`). Here is what they mean: `load` and `save` read and
//! write a session, `texts` has the messages and artifacts, `sessions` lists, `placed` shows
//! windows, `kept` has the texts of embedders, `dictionary` has what texts of a session share, and
//! `copy` copies sessions to another store.
//!
//! Start with [`Record`].

mod copy;
mod dictionary;
mod kept;
mod load;
mod placed;
mod save;
mod sessions;
mod texts;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_formats::prompt_cache::Pauses;

use crate::error::RecordError;
use crate::hold::{Hold, Token};
use crate::packed::Dictionary;
#[cfg(feature = "postgres")]
use crate::postgres::{self, PostgresOptions, PostgresStore};
use crate::saved_window::SavedWindow;
use crate::sqlite::{self, SqliteStore};
use crate::store::{Delivered, Store, Which};
pub use copy::CopyOutcome;
pub use load::{Saved, SessionFacts};
pub use placed::Placed;
pub use save::{SessionChange, StoredSession};
pub use sessions::WireMessage;
pub use texts::{NewArtifact, NewText, StoredMessage};

/// The store of all sessions of a home directory.
///
/// It is shared as an `Arc`, and one connection serves all sessions of the process. Calls from
/// several threads wait for each other.
#[derive(Debug)]
pub struct Record {
    store: Box<dyn Store>,
    path: PathBuf,
    /// The damage of the file, if this is a store in memory that stands in for it.
    stands_in: Option<String>,
    /// Dictionaries that texts were read with, by session.
    dictionaries: Mutex<HashMap<String, Arc<Dictionary>>>,
    /// Whether secrets in texts of embedders are masked.
    redacts: AtomicBool,
}

/// The compaction in force.
#[derive(Debug, Clone, PartialEq)]
pub struct InForce {
    /// The number of the compaction within the session.
    pub number: u64,
    /// The engine that made it. Empty if the window only follows from what the client sent.
    pub engine: String,
    /// The window after the compaction.
    pub window: SavedWindow,
}

impl Record {
    /// Opens the store in the home directory `home`. If there is none, it is created, with access
    /// for its owner only.
    ///
    /// # Errors
    /// The file cannot be created or opened, is damaged, or was written by a newer version.
    pub fn open(home: &Path) -> Result<Arc<Self>, RecordError> {
        SqliteStore::open(home).map(Self::of_file)
    }

    /// Opens the store in the home directory `home` even if nothing may be written there. A write
    /// then fails. If there is no store, an empty one in memory is returned, and no file is
    /// created.
    ///
    /// # Errors
    /// The same as [`Record::open`]. Also if the file has a log that cannot be read without
    /// writing.
    pub fn open_to_read(home: &Path) -> Result<Arc<Self>, RecordError> {
        SqliteStore::open_to_read(home).map(Self::of_file)
    }

    /// A store in memory, which is lost with the process. Used for a session that is not recorded
    /// but whose engine reads the transcript.
    ///
    /// # Errors
    /// SQLite cannot allocate it.
    pub fn in_memory() -> Result<Arc<Self>, RecordError> {
        SqliteStore::in_memory().map(Self::of_file)
    }

    /// A store in memory that takes the place of the damaged one of a home directory. It is empty.
    /// A session that is opened with it continues without a record, warns of that, and recovers the
    /// conversation from its engine if that keeps sessions. `damage` is what is wrong with the
    /// file.
    ///
    /// # Errors
    /// SQLite cannot allocate it.
    pub fn standing_in(home: &Path, damage: &str) -> Result<Arc<Self>, RecordError> {
        let store = SqliteStore::empty(&sqlite::file_in(home))?;
        let path = store.path().to_owned();
        Ok(Self::of(path, store, Some(damage.to_owned())))
    }

    /// Opens the sessions of a tenant in a database of PostgreSQL.
    ///
    /// # Errors
    /// The database cannot be reached, or its tables have another version
    /// ([`Record::migrate`]).
    #[cfg(feature = "postgres")]
    pub fn open_postgres(options: &PostgresOptions) -> Result<Arc<Self>, RecordError> {
        let store = PostgresStore::open(options)?;
        Ok(Self::of(PathBuf::from(store.name()), store, None))
    }

    /// The versions of the tables of a database of PostgreSQL: those that it has, zero if none, and
    /// those that this program needs.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[cfg(feature = "postgres")]
    pub fn schema_versions(options: &PostgresOptions) -> Result<(i64, i64), RecordError> {
        postgres::versions(options)
    }

    /// Makes the tables in a database of PostgreSQL, or brings them to the version that this program
    /// needs. Returns the version before.
    ///
    /// # Errors
    /// The database cannot be reached, the user may not make tables, or the tables are of a later
    /// version.
    #[cfg(feature = "postgres")]
    pub fn migrate(options: &PostgresOptions) -> Result<i64, RecordError> {
        postgres::migrate(options)
    }

    fn of_file(store: SqliteStore) -> Arc<Self> {
        Self::of(store.path().to_owned(), store, None)
    }

    fn of(path: PathBuf, store: impl Store + 'static, stands_in: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            store: Box::new(store),
            path,
            stands_in,
            dictionaries: Mutex::default(),
            redacts: AtomicBool::default(),
        })
    }

    /// The damage of the file, if this is a store [in memory](Self::standing_in) that takes its
    /// place. `None` for the file itself.
    pub fn stands_in(&self) -> Option<&str> {
        self.stands_in.as_deref()
    }

    /// Refuses an operation that would only take place in memory.
    ///
    /// # Errors
    /// This store takes the place of a damaged one.
    fn is_itself(&self) -> Result<(), RecordError> {
        match &self.stands_in {
            None => Ok(()),
            Some(_) => Err(RecordError::Damaged {
                path: self.path.clone(),
                what: "it is damaged, and another file is used instead".to_owned(),
            }),
        }
    }

    /// Whether there is a store in the home directory `home`.
    pub fn is_in(home: &Path) -> bool {
        sqlite::file_in(home).exists()
    }

    /// Checks the record of a home directory. Returns what is wrong with it, a line for each
    /// problem. Empty if it is sound or if there is none.
    ///
    /// # Errors
    /// It cannot be read for another reason than damage.
    pub fn verify(home: &Path) -> Result<Vec<String>, RecordError> {
        sqlite::verify(home)
    }

    /// Saves what can be read of a damaged record into a new file, which takes its place. A copy of
    /// the damaged file stays beside it, with the time in its name.
    ///
    /// # Errors
    /// A session is open, or the files cannot be read or written. The record is then as it was,
    /// unless the very last step failed: the log of the old file is then only in the copy.
    pub fn repair(home: &Path) -> Result<sqlite::RecordRepair, RecordError> {
        sqlite::repair(home)
    }

    /// Copies the record of the home directory `home` and the files of all engines into the folder
    /// `to`, which is laid out as a home directory. Sessions may be written meanwhile.
    ///
    /// `take` is called with the source and the target of each database of an engine. It copies the
    /// database in the engine's own way and returns `true`, or returns `false` to have it copied
    /// here. Returns what is damaged, a line each. Damaged databases are copied as they are.
    ///
    /// # Errors
    /// A file cannot be read or written, or `take` failed.
    pub fn back_up<E: From<RecordError>>(
        home: &Path,
        to: &Path,
        take: &mut dyn FnMut(&Path, &Path) -> Result<bool, E>,
    ) -> Result<Vec<String>, E> {
        sqlite::back_up(home, to, take)
    }

    /// Checks that what was written is still stored. Somebody may have removed the file while it was
    /// open, and SQLite does not report that.
    ///
    /// # Errors
    /// The file was removed ([`RecordError::Gone`]).
    pub fn check_exists(&self) -> Result<(), RecordError> {
        self.store.check_exists()
    }

    /// The name of the store for messages: the path of its file, also if the store is only in memory,
    /// or server and database of PostgreSQL. The latter is no file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the database does not answer at present. None if it does, and for a file. It is known from
    /// the calls that other threads made last, so this does not wait.
    pub fn outage(&self) -> Option<RecordError> {
        self.store.outage()
    }

    /// Whether somebody waits for the database right now, for what concerns this session. If it is
    /// None, for anything. Always false for a file.
    pub fn is_waited_for(&self, session: Option<&str>) -> bool {
        self.store.is_waited_for(session)
    }

    /// Locks a session. If it is open elsewhere, this waits for at most `wait`. The session stays
    /// locked until the [`Hold`] is dropped.
    ///
    /// # Errors
    /// It is still open elsewhere after the wait, or its lock file cannot be used.
    pub fn hold(&self, id: &str, wait: Duration) -> Result<Hold, RecordError> {
        self.store.hold(id, wait, None)
    }

    /// Locks a session again that was released with this token. None if somebody else has locked it
    /// since. What was opened under the lock before may otherwise be written under this one.
    ///
    /// # Errors
    /// As [`Record::hold`].
    pub fn hold_again(
        &self,
        id: &str,
        wait: Duration,
        token: &Token,
    ) -> Result<Option<Hold>, RecordError> {
        let mut hold = self.store.hold(id, wait, Some(token))?;
        Ok(hold.continues(token).then_some(hold))
    }

    /// The summed pauses of all sessions. Empty if they cannot be read, because they only improve a
    /// guess.
    pub fn pauses(&self) -> Pauses {
        self.store.pauses().unwrap_or_default()
    }

    /// How much of a session was delivered, and to which engine. None if there is no such session,
    /// or if it has no engine yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered(&self, id: &str) -> Result<Option<Delivered>, RecordError> {
        let mut found = self.store.delivered(Which::Session(id))?;
        Ok(found.pop())
    }

    /// How much was delivered to an engine, for each of its sessions.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered_to(&self, engine: &str) -> Result<Vec<Delivered>, RecordError> {
        self.store.delivered(Which::Engine(engine))
    }

    /// How much was delivered of each session, whatever its engine.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn all_delivered(&self) -> Result<Vec<Delivered>, RecordError> {
        self.store.delivered(Which::All)
    }

    /// Copies what a trial of a session needs into another home directory, which must not have a
    /// store yet: the whole file, or of a database only that session. The copy is consistent even if
    /// sessions are written meanwhile.
    ///
    /// # Errors
    /// The store cannot be read, or the copy cannot be written.
    pub fn copy_to(&self, home: &Path, session: &str) -> Result<(), RecordError> {
        self.store.copy_to(home, session)
    }

    /// Checks everything that is stored. Returns what is wrong, a line for each problem. For a file,
    /// [`Record::verify`] also works if the damage keeps the file from being opened.
    ///
    /// # Errors
    /// The store cannot be read for another reason than damage.
    pub fn problems(&self) -> Result<Vec<String>, RecordError> {
        self.store.problems()
    }

    /// Deletes a session and everything that is stored with it. Does nothing if there is no such
    /// session. `_hold` is the lock on the session: somebody who has it in memory would otherwise go
    /// on with what is not stored any more.
    ///
    /// # Errors
    /// The file cannot be written, or it is damaged and only a store in memory stands in for it.
    pub fn forget(&self, id: &str, _hold: &Hold) -> Result<(), RecordError> {
        self.is_itself()?;
        self.store.forget(id)
    }
}

/// The two wire logs of a session, with their numbers in the rows. The numbers are stored, so they
/// never change.
#[derive(Debug, Clone, Copy)]
enum WireForm {
    SentPrompt = 0,
    Rendered = 1,
}
