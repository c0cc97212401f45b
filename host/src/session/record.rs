//! What of a session survives a restart: hashes and ids of its messages, how far its engine was shown
//! them, and the compaction in force. The text of the conversation is not among it: the client has that.
//!
//! One small SQLite file for all sessions of a home directory, `sessions.sqlite3`, in WAL mode.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contexture_engine_api::{MessageId, Observed};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::align::Mark;
use super::hold::Hold;
use super::trail::{Origin, Trail, Unit};
use super::window::SavedWindow;
use super::written::{IdSet, WrittenText};
use crate::formats::Format;
use crate::services::now_ms;

/// The name of the file.
const FILE: &str = "sessions.sqlite3";

/// The version of the tables, in `PRAGMA user_version`.
const SCHEMA_VERSION: i64 = 2;

/// How long a write waits for another process, in milliseconds. A turn never waits longer: the session
/// then goes on in memory.
const BUSY_TIMEOUT_MS: u64 = 250;

const SCHEMA: &str = "
CREATE TABLE sessions (
    key          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    created_ms   INTEGER NOT NULL,
    next_id      INTEGER NOT NULL,
    engine       TEXT NOT NULL,
    -- The format of the last request.
    format       TEXT NOT NULL DEFAULT '',
    shown_last   INTEGER,
    shown_chain  INTEGER,
    remembers    INTEGER NOT NULL DEFAULT 0,
    -- The messages that the engine was to be shown and that were nowhere, as runs of ids.
    lacking      TEXT NOT NULL DEFAULT '[]',
    -- How many compactions there were; the number of the last.
    compactions  INTEGER NOT NULL DEFAULT 0
) STRICT;
-- Every message of the conversation that an engine is to be shown, in order.
CREATE TABLE messages (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    id       INTEGER NOT NULL,
    identity BLOB NOT NULL,
    shape    INTEGER NOT NULL,
    chain    INTEGER NOT NULL,
    -- The earlier form of the same message.
    replaces INTEGER,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
-- The wire messages as they crossed last: what the client sent (0) and what was handed out for it (1).
CREATE TABLE wire (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    form     INTEGER NOT NULL,
    place    INTEGER NOT NULL,
    raw      INTEGER NOT NULL,
    -- The messages that begin here: whose they are (1 byte), id, shape, wire messages (8 bytes each) and
    -- identity (16 bytes).
    messages BLOB NOT NULL,
    PRIMARY KEY (session, form, place)
) STRICT, WITHOUT ROWID;
-- The compaction in force.
CREATE TABLE compactions (
    session    INTEGER PRIMARY KEY REFERENCES sessions(key) ON DELETE CASCADE,
    number     INTEGER NOT NULL,
    engine     TEXT NOT NULL,
    entries    TEXT NOT NULL
) STRICT;
-- What the host wrote: summaries, made-up results and shorter forms of messages.
CREATE TABLE written (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    identity BLOB NOT NULL,
    id       INTEGER NOT NULL,
    shortens INTEGER NOT NULL,
    covers   TEXT NOT NULL,
    PRIMARY KEY (session, identity, id)
) STRICT, WITHOUT ROWID;
";

/// Why the store of sessions cannot be used. A session goes on without it, in memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory cannot be made.
    #[error("cannot make {}: {source}; set CONTEXTURE_HOME to a directory that can be written", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is of a later version of this program.
    #[error(
        "{} has the schema version {found}, and this program knows {SCHEMA_VERSION}: it is of a newer Contexture. \
         Update this one, or set CONTEXTURE_HOME to another directory", path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// SQLite failed: the file is damaged, locked, read-only, or the disk is full.
    #[error("{}: {source}; {}", path.display(), way_out(source))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// Somebody else has the session open.
    #[error(
        "the session `{session}` is in use: {by} has it open, and {} seconds of waiting changed nothing; let that \
         end first, or take another session", waited.as_secs()
    )]
    InUse {
        /// The session.
        session: String,
        /// Who has it open.
        by: String,
        /// How long it was waited.
        waited: Duration,
    },
    /// The file that says who has a session open cannot be had.
    #[error("{}: {source}; check that the file and its directory can be written", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is stored makes no sense.
    #[error("{}: {what}; move the file away, it holds only hashes and ids", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

fn way_out(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process holds it, end that one"
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "it is damaged: move the file away, it holds only hashes and ids"
        }
        Some(ErrorCode::DiskFull) => "make room on the disk",
        _ => "check that the file and its directory can be written",
    }
}

/// The store of all sessions of a home directory. Cheap to share.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// What was delivered of a session to its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The session.
    pub session: String,
    /// The engine.
    pub engine: String,
    /// The last message.
    pub last: Option<MessageId>,
    /// How many messages.
    pub messages: u64,
}

/// What the record has of a session.
#[derive(Debug, Default)]
pub(super) struct Saved {
    pub(super) next_id: u64,
    /// The engine that was shown the messages.
    pub(super) engine: String,
    pub(super) format: Option<Format>,
    pub(super) shown: Option<Observed>,
    /// Whether that engine said itself how far it was shown them.
    pub(super) remembers: bool,
    /// What that engine lacks.
    pub(super) lacking: IdSet,
    pub(super) compactions: u64,
    pub(super) log: Vec<Logged>,
    pub(super) sent: Trail,
    pub(super) handed: Trail,
    pub(super) written: Vec<WrittenText>,
    pub(super) compaction: Option<InForce>,
}

/// A message that an engine is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) id: MessageId,
    pub(super) mark: Mark,
    /// The chain hash up to it.
    pub(super) chain: u64,
    /// The earlier form of the same message, which is in the log too.
    pub(super) replaces: Option<MessageId>,
}

/// The compaction in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InForce {
    /// Its number within the session.
    pub(super) number: u64,
    /// Who made it.
    pub(super) engine: String,
    /// The window that it left.
    pub(super) window: SavedWindow,
}

/// What changed in a session. The record writes that and no more.
#[derive(Debug)]
pub(super) struct SessionChange<'a> {
    pub(super) next_id: u64,
    pub(super) compactions: u64,
    pub(super) format: Option<Format>,
    pub(super) log: &'a [Logged],
    /// Where the log differs from what is stored.
    pub(super) log_from: usize,
    pub(super) sent: &'a Trail,
    pub(super) sent_from: usize,
    pub(super) handed: &'a Trail,
    pub(super) handed_from: usize,
    /// What the host wrote since.
    pub(super) written: &'a [WrittenText],
    /// The compaction in force, where that changed.
    pub(super) in_force: Option<Option<&'a InForce>>,
    /// How far the engine was shown the conversation, where that changed.
    pub(super) shown: Option<(Option<Observed>, bool)>,
    /// What the engine lacks, where that changed.
    pub(super) lacking: Option<IdSet>,
}

impl SessionChange<'_> {
    pub(super) fn is_empty(&self) -> bool {
        let from = [self.log_from, self.sent_from, self.handed_from];
        from == [usize::MAX; 3]
            && self.written.is_empty()
            && self.in_force.is_none()
            && self.shown.is_none()
            && self.lacking.is_none()
    }
}

impl Record {
    /// Opens the store in the home directory `home`, or makes it.
    ///
    /// # Errors
    /// The file cannot be had, is damaged, or is of a newer version.
    pub fn open(home: &Path) -> Result<Arc<Self>, RecordError> {
        std::fs::create_dir_all(home).map_err(|source| RecordError::Directory {
            path: home.to_owned(),
            source,
        })?;
        let path = home.join(FILE);
        let fail = |source| RecordError::Sqlite {
            path: path.clone(),
            source,
        };
        let mut connection = Connection::open(&path).map_err(fail)?;
        let found = prepare(&mut connection).map_err(fail)?;
        if found > SCHEMA_VERSION {
            return Err(RecordError::TooNew { path, found });
        }
        Ok(Arc::new(Self {
            path,
            connection: Mutex::new(connection),
        }))
    }

    /// Whether there is one in the home directory `home`.
    pub fn is_in(home: &Path) -> bool {
        home.join(FILE).exists()
    }

    /// Where its file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nobody else has the session open, and keeps others from it as long as the answer lives.
    ///
    /// # Errors
    /// Somebody has it open all the time; or that cannot be found out.
    pub fn hold(&self, id: &str, wait: Duration) -> Result<Hold, RecordError> {
        let home = self.path.parent().unwrap_or(Path::new("."));
        Hold::take(home, id, wait)
    }

    /// The session of this id; a new one where there is none.
    pub(super) fn load(self: &Arc<Self>, id: &str) -> Result<(StoredSession, Saved), RecordError> {
        let mut connection = self.lock();
        let (key, saved) = read_session(&mut connection, id).map_err(|error| self.error(error))?;
        drop(connection);
        let stored = StoredSession {
            record: Arc::clone(self),
            key,
            engine: saved.engine.clone(),
        };
        Ok((stored, saved))
    }

    /// What was delivered of a session, and to which engine; none where there is no such session, or none
    /// of it was delivered yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered(&self, id: &str) -> Result<Option<Delivered>, RecordError> {
        let mut all = self.delivered_where("id = ?1", id)?;
        Ok(all.pop())
    }

    /// What was delivered to an engine, of all its sessions.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered_to(&self, engine: &str) -> Result<Vec<Delivered>, RecordError> {
        self.delivered_where("engine = ?1", engine)
    }

    fn delivered_where(&self, rule: &str, value: &str) -> Result<Vec<Delivered>, RecordError> {
        let connection = self.lock();
        let read = || {
            let mut statement = connection.prepare(&format!(
                "SELECT id, engine, shown_last, (SELECT count(*) FROM messages
                    WHERE session = sessions.key AND messages.id <= shown_last)
                 FROM sessions WHERE engine <> '' AND {rule} ORDER BY key"
            ))?;
            let rows = statement.query_map([value], |row| {
                Ok(Delivered {
                    session: row.get(0)?,
                    engine: row.get(1)?,
                    last: row.get::<_, Option<i64>>(2)?.map(message_id),
                    messages: row.get::<_, i64>(3)?.cast_unsigned(),
                })
            })?;
            rows.collect::<Result<_, _>>()
        };
        read().map_err(|error: rusqlite::Error| self.error(error.into()))
    }

    /// Copies it into another home directory, which has none yet.
    ///
    /// # Errors
    /// It cannot be read, or not be written there.
    pub fn copy_to(&self, home: &Path) -> Result<(), RecordError> {
        let to = home.join(FILE);
        self.lock()
            .execute("VACUUM INTO ?1", [to.display().to_string()])
            .map(|_| ())
            .map_err(|error| self.error(error.into()))
    }

    /// Forgets a session.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&self, id: &str) -> Result<(), RecordError> {
        self.lock()
            .execute("DELETE FROM sessions WHERE id = ?1", [id])
            .map(|_| ())
            .map_err(|error| self.error(error.into()))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: ReadError) -> RecordError {
        let path = self.path.clone();
        match error {
            ReadError::Sqlite(source) => RecordError::Sqlite { path, source },
            ReadError::Damaged(what) => RecordError::Damaged { path, what },
        }
    }
}

/// Sets the connection up and makes or migrates the tables; answers the version that was found where it
/// is newer than ours, else ours.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
    };
    let found = version(connection)?;
    if found >= SCHEMA_VERSION {
        return Ok(found);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    if version(&transaction)? < SCHEMA_VERSION {
        // Drafts of the tables were never released, and hold only hashes and ids.
        transaction.execute_batch(
            "DROP TABLE IF EXISTS compactions; DROP TABLE IF EXISTS wire; DROP TABLE IF EXISTS messages;
             DROP TABLE IF EXISTS written; DROP TABLE IF EXISTS sessions;",
        )?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    }
    transaction.commit()?;
    version(connection)
}

enum ReadError {
    Sqlite(rusqlite::Error),
    Damaged(String),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn read_session(connection: &mut Connection, id: &str) -> Result<(i64, Saved), ReadError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(
        "INSERT INTO sessions (id, created_ms, next_id, engine) VALUES (?1, ?2, 1, '')
         ON CONFLICT DO NOTHING",
        params![id, now_ms()],
    )?;
    let (key, mut saved) = transaction.query_row(
        "SELECT key, next_id, engine, shown_last, shown_chain, remembers, compactions, format, lacking
         FROM sessions WHERE id = ?1",
        [id],
        |row| {
            let shown: Option<i64> = row.get(3)?;
            let chain: Option<i64> = row.get(4)?;
            let saved = Saved {
                next_id: row.get::<_, i64>(1)?.cast_unsigned(),
                engine: row.get(2)?,
                shown: shown.zip(chain).map(|(last, chain)| Observed {
                    last: message_id(last),
                    chain: chain.cast_unsigned(),
                }),
                remembers: row.get(5)?,
                compactions: row.get::<_, i64>(6)?.cast_unsigned(),
                format: row.get::<_, String>(7)?.parse().ok(),
                // Runs of ids that make no sense are none.
                lacking: serde_json::from_str(&row.get::<_, String>(8)?).unwrap_or_default(),
                ..Saved::default()
            };
            Ok((row.get::<_, i64>(0)?, saved))
        },
    )?;
    saved.log = transaction
        .prepare(
            "SELECT id, identity, shape, chain, replaces FROM messages WHERE session = ?1 ORDER BY id",
        )?
        .query_map([key], |row| {
            Ok(Logged {
                id: message_id(row.get(0)?),
                mark: Mark {
                    identity: u128::from_le_bytes(row.get(1)?),
                    shape: row.get::<_, i64>(2)?.cast_unsigned(),
                },
                chain: row.get::<_, i64>(3)?.cast_unsigned(),
                replaces: row.get::<_, Option<i64>>(4)?.map(message_id),
            })
        })?
        .collect::<Result<_, _>>()?;
    saved.sent = read_trail(&transaction, key, Form::Sent)?;
    saved.handed = read_trail(&transaction, key, Form::Handed)?;
    saved.written = read_written(&transaction, key, id)?;
    let compaction = transaction
        .query_row(
            "SELECT number, engine, entries FROM compactions WHERE session = ?1",
            [key],
            |row| {
                let in_force = InForce {
                    number: row.get::<_, i64>(0)?.cast_unsigned(),
                    engine: row.get(1)?,
                    window: SavedWindow::default(),
                };
                Ok((in_force, row.get::<_, String>(2)?))
            },
        )
        .optional()?;
    if let Some((mut in_force, entries)) = compaction {
        in_force.window = serde_json::from_str(&entries).map_err(|error| {
            ReadError::Damaged(format!("the compaction of session `{id}`: {error}"))
        })?;
        saved.compaction = Some(in_force);
    }
    transaction.commit()?;
    Ok((key, saved))
}

fn read_written(
    transaction: &Transaction<'_>,
    key: i64,
    id: &str,
) -> Result<Vec<WrittenText>, ReadError> {
    let mut statement = transaction.prepare(
        "SELECT identity, id, shortens, covers FROM written WHERE session = ?1 ORDER BY id",
    )?;
    let mut rows = statement.query([key])?;
    let mut written = Vec::new();
    while let Some(row) = rows.next()? {
        let covers = serde_json::from_str(&row.get::<_, String>(3)?).map_err(|error| {
            ReadError::Damaged(format!("what was written in session `{id}`: {error}"))
        })?;
        written.push(WrittenText {
            identity: u128::from_le_bytes(row.get(0)?),
            id: message_id(row.get(1)?),
            shortens: row.get(2)?,
            covers,
        });
    }
    Ok(written)
}

/// Which of the two forms of a history.
#[derive(Debug, Clone, Copy)]
enum Form {
    Sent = 0,
    Handed = 1,
}

const RECORD: usize = 41;

fn read_trail(transaction: &Transaction<'_>, key: i64, form: Form) -> Result<Trail, ReadError> {
    let mut trail = Trail::default();
    let mut statement = transaction.prepare(
        "SELECT raw, messages FROM wire WHERE session = ?1 AND form = ?2 ORDER BY place",
    )?;
    let mut rows = statement.query(params![key, form as i64])?;
    while let Some(row) = rows.next()? {
        let raw = row.get::<_, i64>(0)?.cast_unsigned();
        let blob: Vec<u8> = row.get(1)?;
        let (records, rest) = blob.as_chunks::<RECORD>();
        if !rest.is_empty() {
            let what = "a wire message's list of messages is cut off".to_owned();
            return Err(ReadError::Damaged(what));
        }
        trail.push(&[raw], records.iter().map(decode));
    }
    Ok(trail)
}

fn encode(unit: &Unit, blob: &mut Vec<u8>) {
    blob.push(match unit.origin {
        Origin::Said(_) => 0,
        Origin::Shortened(_) => 1,
        Origin::Host(_) => 2,
    });
    blob.extend_from_slice(&unit.origin.id().0.to_le_bytes());
    blob.extend_from_slice(&unit.mark.shape.to_le_bytes());
    blob.extend_from_slice(&(unit.wires.len() as u64).to_le_bytes());
    blob.extend_from_slice(&unit.mark.identity.to_le_bytes());
}

fn decode(record: &[u8; RECORD]) -> Unit {
    let number = |at: usize| {
        let bytes = record.iter().skip(at).take(8).rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let id = MessageId(number(1));
    Unit {
        origin: match record.first() {
            Some(0) => Origin::Said(id),
            Some(1) => Origin::Shortened(id),
            _ => Origin::Host(id),
        },
        mark: Mark {
            identity: u128::from(number(33)) << 64 | u128::from(number(25)),
            shape: number(9),
        },
        wires: 0..usize::try_from(number(17)).unwrap_or(1),
    }
}

/// A session in the store: what writes its changes.
#[derive(Debug)]
pub(super) struct StoredSession {
    record: Arc<Record>,
    key: i64,
    /// The engine that it runs under.
    pub(super) engine: String,
}

impl StoredSession {
    /// Writes what changed, in one transaction.
    pub(super) fn save(&self, change: &SessionChange<'_>) -> Result<(), RecordError> {
        self.write(|transaction| {
            let format = change.format.map_or("", Format::name);
            transaction
                .prepare_cached(
                    "UPDATE sessions SET next_id = ?2, format = ?3, compactions = max(compactions, ?4)
                     WHERE key = ?1",
                )?
                .execute(params![
                    self.key,
                    change.next_id.cast_signed(),
                    format,
                    change.compactions.cast_signed()
                ])?;
            if let Some((shown, remembers)) = change.shown {
                self.write_shown(transaction, shown, remembers)?;
            }
            if let Some(lacking) = &change.lacking {
                let lacking = serde_json::to_string(lacking)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
                transaction.execute(
                    "UPDATE sessions SET lacking = ?2 WHERE key = ?1",
                    params![self.key, lacking],
                )?;
            }
            self.write_log(transaction, change)?;
            self.write_trail(transaction, Form::Sent, change.sent, change.sent_from)?;
            self.write_trail(transaction, Form::Handed, change.handed, change.handed_from)?;
            for text in change.written {
                self.write_text(transaction, text)?;
            }
            match change.in_force {
                Some(in_force) => self.write_compaction(transaction, in_force),
                None => Ok(()),
            }
        })
    }

    fn write_log(
        &self,
        transaction: &Transaction<'_>,
        change: &SessionChange<'_>,
    ) -> rusqlite::Result<()> {
        let Some(new) = change.log.get(change.log_from..) else {
            return Ok(());
        };
        let kept = change.log.get(..change.log_from).and_then(<[_]>::last);
        transaction
            .prepare_cached("DELETE FROM messages WHERE session = ?1 AND id > ?2")?
            .execute(params![
                self.key,
                kept.map_or(0, |last| last.id.0).cast_signed()
            ])?;
        let mut insert = transaction.prepare_cached(
            "INSERT INTO messages (session, id, identity, shape, chain, replaces)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for message in new {
            insert.execute(params![
                self.key,
                message.id.0.cast_signed(),
                message.mark.identity.to_le_bytes(),
                message.mark.shape.cast_signed(),
                message.chain.cast_signed(),
                message.replaces.map(|old| old.0.cast_signed()),
            ])?;
        }
        Ok(())
    }

    fn write_trail(
        &self,
        transaction: &Transaction<'_>,
        form: Form,
        trail: &Trail,
        from: usize,
    ) -> rusqlite::Result<()> {
        if from == usize::MAX {
            return Ok(());
        }
        transaction
            .prepare_cached("DELETE FROM wire WHERE session = ?1 AND form = ?2 AND place >= ?3")?
            .execute(params![self.key, form as i64, from as i64])?;
        let mut insert = transaction.prepare_cached(
            "INSERT INTO wire (session, form, place, raw, messages) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let mut blob = Vec::new();
        for (place, raw) in trail.raw.iter().enumerate().skip(from) {
            blob.clear();
            for unit in trail.beginning_in(place) {
                encode(unit, &mut blob);
            }
            insert.execute(params![
                self.key,
                form as i64,
                place as i64,
                raw.cast_signed(),
                blob
            ])?;
        }
        Ok(())
    }

    fn write_shown(
        &self,
        transaction: &Transaction<'_>,
        shown: Option<Observed>,
        remembers: bool,
    ) -> rusqlite::Result<()> {
        transaction
            .prepare_cached(
                "UPDATE sessions SET engine = ?2, shown_last = ?3, shown_chain = ?4, remembers = ?5
                 WHERE key = ?1",
            )?
            .execute(params![
                self.key,
                self.engine,
                shown.map(|shown| shown.last.0.cast_signed()),
                shown.map(|shown| shown.chain.cast_signed()),
                remembers,
            ])?;
        Ok(())
    }

    fn write_text(
        &self,
        transaction: &Transaction<'_>,
        text: &WrittenText,
    ) -> rusqlite::Result<()> {
        let covers = serde_json::to_string(&text.covers)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO written (session, identity, id, shortens, covers)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                self.key,
                text.identity.to_le_bytes(),
                text.id.0.cast_signed(),
                text.shortens,
                covers
            ])?;
        Ok(())
    }

    fn write_compaction(
        &self,
        transaction: &Transaction<'_>,
        compaction: Option<&InForce>,
    ) -> rusqlite::Result<()> {
        let Some(compaction) = compaction else {
            transaction.execute("DELETE FROM compactions WHERE session = ?1", [self.key])?;
            return Ok(());
        };
        let entries = serde_json::to_string(&compaction.window)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction.execute(
            "INSERT OR REPLACE INTO compactions (session, number, engine, entries)
             VALUES (?1, ?2, ?3, ?4)",
            params![
                self.key,
                compaction.number.cast_signed(),
                compaction.engine,
                entries
            ],
        )?;
        Ok(())
    }

    fn write(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), RecordError> {
        let mut connection = self.record.lock();
        let run = || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        run().map_err(|error| self.record.error(error.into()))
    }
}

fn message_id(id: i64) -> MessageId {
    MessageId(id.cast_unsigned())
}
