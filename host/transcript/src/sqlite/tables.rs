//! The tables of the record.
//!
//! [`prepare`] sets up a connection and creates the tables. In a file with an earlier draft of
//! them, it replaces the draft. The comments in the schema say what each column holds. The
//! queries are in `sqlite`.
//!
//! The version in `PRAGMA user_version` tells which program can read a file. A table that other
//! programs can ignore, such as the texts of embedders, needs no new version.

use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

/// The version of the tables, in `PRAGMA user_version`.
pub(super) const SCHEMA_VERSION: i64 = 8;

/// How long a write waits for another process, in milliseconds. A turn never waits longer: if the
/// wait fails, the session continues in memory.
const BUSY_TIMEOUT_MS: u64 = 250;

/// How many compiled statements a connection keeps. Some thirty are used again and again, and with
/// rusqlite's default of 16 turns would compile some of them anew.
const STATEMENTS: usize = 64;

/// The size of a page in bytes, for new files. A write adds each page that it changes to the log,
/// and most of it is a few short rows in different tables. With 4 KB, SQLite's default, a request
/// takes 5 to 8 % more processor time in the gateway, and writes two thirds more bytes.
pub(super) const PAGE_BYTES: u32 = 2_048;

/// The length of the log in pages at which the writer makes a checkpoint itself. That is 32 MB.
const LONG_LOG_PAGES: u32 = 16_000;

const SCHEMA: &str = "
CREATE TABLE sessions (
    -- Never used again, so that the writer of a deleted session cannot write into another one.
    key          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    created_ms   INTEGER NOT NULL,
    -- When it was last written, and archived since; in milliseconds since the Unix epoch.
    used_ms      INTEGER,
    archived_ms  INTEGER,
    next_id      INTEGER NOT NULL,
    engine       TEXT NOT NULL,
    -- The format of the last request.
    format       TEXT NOT NULL DEFAULT '',
    -- The cursor: the last message that the engine was shown.
    shown_last   INTEGER,
    -- The last message that stays after a cut which the engine was not told of; 0 if none stays.
    pending_cut  INTEGER,
    -- The last of the messages for which a repair lost what the host wrote.
    recovered    INTEGER,
    -- What an hour of the prompt cache would have cost more than five minutes, and saved.
    pauses_more  INTEGER NOT NULL DEFAULT 0,
    pauses_saved INTEGER NOT NULL DEFAULT 0,
    -- How many compactions there were; the number of the last.
    compactions  INTEGER NOT NULL DEFAULT 0,
    -- What the provider reported last, and what counts were learned to be off by (JSON); empty for nothing.
    usage        TEXT NOT NULL DEFAULT ''
) STRICT;
-- Every message, in the order of arrival.
CREATE TABLE messages (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    id       INTEGER NOT NULL,
    identity BLOB NOT NULL,
    shape    INTEGER NOT NULL,
    chain    INTEGER NOT NULL,
    -- The earlier form of the same message.
    replaces INTEGER,
    -- Whether it was cut off: it is no longer part of the conversation.
    cut      INTEGER NOT NULL DEFAULT 0,
    -- When it was said, in milliseconds since the Unix epoch, if the client's document tells.
    said_ms  INTEGER,
    -- When it was first stored.
    arrived_ms INTEGER,
    -- The wire message that holds it, and which of the messages in there it is. NULL if its text is not stored.
    wire     INTEGER,
    part     INTEGER,
    PRIMARY KEY (session, id)
) STRICT, WITHOUT ROWID;
-- Queries name it, because without statistics SQLite would read every message of the session instead.
CREATE INDEX messages_by_replaced ON messages(session, replaces) WHERE replaces IS NOT NULL;
-- The wire messages of the conversation as the client sent them, numbered in the order of arrival from 1 on. Number 0
-- is the dictionary with which others are compressed. The artifact `dictionary` of no engine is a copy of it.
CREATE TABLE texts (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    number   INTEGER NOT NULL,
    format   TEXT NOT NULL,
    -- The tools of the results in it whose calls stand elsewhere: names by call id (JSON).
    tools    TEXT,
    -- How the messages are read from the text, if that is not a message itself (JSON).
    reading  TEXT,
    -- The length of the JSON in bytes, its xxh3 hash, and the JSON itself, compressed with zstd.
    bytes    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (session, number)
) STRICT;
-- What engines store with a session, by the engine's name and a name of the engine's choice.
CREATE TABLE artifacts (
    session  INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE,
    engine   TEXT NOT NULL,
    name     TEXT NOT NULL,
    bytes    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (session, engine, name)
) STRICT;
-- The wire messages as they crossed last: what the client sent (0) and what was rendered for it (1).
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

/// Sets up the connection and creates the tables, in place of earlier drafts. Returns the version
/// of the tables, which is later than [`SCHEMA_VERSION`] if a newer program wrote the file. The
/// tables of such a file are left unchanged.
pub(super) fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(Duration::from_millis(BUSY_TIMEOUT_MS))?;
    // This counts only before the file has any content, so it comes first.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A loss of power may then lose the latest turns, but never damages the file. `FULL` would sync
    // the disk in every turn.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Usually the thread in `checkpoint` is faster. This is the limit if that thread fails.
    connection.pragma_update(None, "wal_autocheckpoint", LONG_LOG_PAGES)?;
    // Deleting a session relies on it, and whether it is on by default depends on how SQLite was
    // built.
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Otherwise SQLite compiles some statements anew for each value that is bound to them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if version(connection)? < SCHEMA_VERSION {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have created the tables since the version was read.
        if version(&transaction)? < SCHEMA_VERSION {
            // Earlier drafts of these tables were never released.
            transaction.execute_batch(
                "DROP TABLE IF EXISTS compactions; DROP TABLE IF EXISTS wire; DROP TABLE IF EXISTS messages;
                 DROP TABLE IF EXISTS texts; DROP TABLE IF EXISTS artifacts; DROP TABLE IF EXISTS written;
                 DROP TABLE IF EXISTS sessions;",
            )?;
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        }
        transaction.commit()?;
    }
    let found = version(connection)?;
    if found == SCHEMA_VERSION {
        connection.execute_batch(KEPT)?;
    }
    Ok(found)
}

/// The version of the tables in the file.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    let mut select = connection.prepare_cached("PRAGMA user_version")?;
    select.query_row([], |row| row.get(0))
}

/// The table of the texts that embedders store with sessions. It is not part of the schema version,
/// because programs that do not know it can ignore it.
///
/// It has row numbers, because the texts are long. Without them they would be part of the index, and
/// each comparison on the way to an entry would read the whole text that it passes.
const KEPT: &str = "
CREATE TABLE IF NOT EXISTS kept (
    session  TEXT NOT NULL,
    name     TEXT NOT NULL,
    value    TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT;
-- Each request asks which sessions have a text of one name.
CREATE INDEX IF NOT EXISTS kept_by_name ON kept(name, session);
";
