//! The database's tables, and how an older file becomes a newer one.
//!
//! Keys of messages, blocks and nodes carry their session: `session << 32 | ordinal`. So everything of a
//! session is stored together, read in order and deleted as one range.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rusqlite::Connection;

use super::definitions;
use crate::error::StoreError;

/// "CtxL", so that `file` and this program can recognise the database.
const APPLICATION_ID: i64 = 0x4374_784c;

/// The migration to each version from the one before. Each changes at least one definition, so that the
/// tables reveal the version if the header is wrong.
const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2];

const VERSION_1: &str = r"
-- Numbers are never used twice: an open engine holds its session's for as long as it lives.
CREATE TABLE sessions(
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,          -- ms since the epoch
    touched_at   INTEGER NOT NULL,          -- when something was last delivered
    archived_at  INTEGER,
    deleted      INTEGER NOT NULL DEFAULT 0,-- on its way out: only its rows are still to be removed
    next_ordinal INTEGER NOT NULL DEFAULT 0,
    last_host    INTEGER,                   -- the host's id of the last live message
    order_at     INTEGER NOT NULL DEFAULT 0 -- latest time of a message seen
);
-- The ordinals that are part of the conversation now.
CREATE TABLE live(
    session INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    first   INTEGER NOT NULL,
    end     INTEGER,                        -- none for the last run, which grows
    PRIMARY KEY(session, first)
) WITHOUT ROWID;
CREATE TABLE payloads(
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    hash    BLOB NOT NULL,
    kind    TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    lines   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    preview BLOB NOT NULL,                  -- compressed
    UNIQUE(session, hash)
);
CREATE TABLE payload_chunks(
    payload    INTEGER NOT NULL REFERENCES payloads(id) ON DELETE CASCADE,
    first_byte INTEGER NOT NULL,
    first_line INTEGER NOT NULL,            -- newlines before the chunk
    bytes      INTEGER NOT NULL,
    data       BLOB NOT NULL
);
CREATE UNIQUE INDEX payload_chunks_by_byte ON payload_chunks(payload, first_byte);
CREATE TABLE messages(
    id       INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    host     INTEGER NOT NULL,
    role     TEXT NOT NULL,
    name     TEXT,                          -- who says it, where the wire tells
    tool     TEXT,
    call_id  TEXT,
    at       INTEGER,
    order_at INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    hash     BLOB NOT NULL,
    chain    INTEGER,                       -- the host's, where a delivery ended
    replaces INTEGER REFERENCES messages(id) ON DELETE SET NULL,
    payload  INTEGER REFERENCES payloads(id)
);
CREATE INDEX messages_by_host ON messages(session, host);
CREATE INDEX messages_by_name ON messages(session, name) WHERE name IS NOT NULL;
CREATE INDEX messages_by_payload ON messages(payload) WHERE payload IS NOT NULL;
CREATE INDEX messages_by_replaced ON messages(replaces) WHERE replaces IS NOT NULL;
CREATE TABLE blocks(
    id    INTEGER PRIMARY KEY,              -- the key of its first message
    bytes INTEGER NOT NULL,                 -- decompressed
    data  BLOB NOT NULL
);
-- Summaries: the text is compressed, sources are rows.
CREATE TABLE nodes(
    id         INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    depth      INTEGER NOT NULL,            -- 0: a leaf, over messages
    level      INTEGER NOT NULL,            -- 0 verbatim, 1 normal, 2 aggressive, 3 deterministic
    degraded   INTEGER NOT NULL DEFAULT 0,  -- to be made anew once a model is there
    tokens     INTEGER NOT NULL,
    -- Of the messages below, at any depth: how many, their tokens, the host's ids of the first and the last.
    messages   INTEGER NOT NULL,
    source_tokens INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    first_at   INTEGER,
    last_at    INTEGER,
    created_at INTEGER NOT NULL,
    model      TEXT,
    hash       BLOB NOT NULL,
    bytes      INTEGER NOT NULL,
    data       BLOB NOT NULL
);
CREATE INDEX nodes_by_session ON nodes(session);
CREATE TABLE node_messages(
    node    INTEGER NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    message INTEGER NOT NULL REFERENCES messages(id),
    PRIMARY KEY(node, message)
) WITHOUT ROWID;
CREATE INDEX node_messages_by_message ON node_messages(message);
CREATE TABLE node_children(
    node     INTEGER NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    child    INTEGER NOT NULL REFERENCES nodes(id),
    PRIMARY KEY(node, position)
) WITHOUT ROWID;
CREATE INDEX node_children_by_child ON node_children(child);
-- What the window shows in place of messages, oldest first.
CREATE TABLE frontier(
    session    INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    position   INTEGER NOT NULL,
    node       INTEGER NOT NULL REFERENCES nodes(id),
    compaction INTEGER NOT NULL,
    PRIMARY KEY(session, position)
) WITHOUT ROWID;
CREATE INDEX frontier_by_node ON frontier(node);
-- The search index; all of it can be made anew from the messages.
-- Numbers are never used twice: who makes a segment has to see when another took it away.
CREATE TABLE segments(
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    session     INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    corpus      INTEGER NOT NULL,           -- 0 messages, 1 summaries
    first       INTEGER NOT NULL,           -- their numbers: first .. last
    last        INTEGER NOT NULL,
    level       INTEGER NOT NULL,
    state       INTEGER NOT NULL,           -- 0 being made, 1 in force, 2 being removed
    first_chunk INTEGER NOT NULL DEFAULT 0, -- the numbers of its chunks: so many from the first on
    chunks      INTEGER NOT NULL DEFAULT 0,
    signatures  BLOB NOT NULL               -- which pairs of bytes each chunk of terms has
);
CREATE INDEX segments_by_session ON segments(session, corpus, first);
-- The number of a deleted summary may be given to another one, and a text may be replaced by a better one.
-- What is indexed from there on is indexed anew.
CREATE TRIGGER summaries_deleted AFTER DELETE ON nodes BEGIN
    DELETE FROM segments WHERE session = old.session AND corpus = 1 AND last >= (old.id & 4294967295);
END;
CREATE TRIGGER summaries_rewritten AFTER UPDATE OF data ON nodes BEGIN
    DELETE FROM segments WHERE session = old.session AND corpus = 1 AND last >= (old.id & 4294967295);
END;
CREATE TABLE term_chunks(
    id      INTEGER PRIMARY KEY,
    segment INTEGER NOT NULL REFERENCES segments(id) ON DELETE CASCADE,
    first   BLOB NOT NULL,
    terms   BLOB NOT NULL
);
CREATE INDEX term_chunks_by_term ON term_chunks(segment, first);
CREATE TABLE posting_chunks(
    id     INTEGER PRIMARY KEY REFERENCES term_chunks(id) ON DELETE CASCADE,
    lists  BLOB NOT NULL,                   -- the texts that hold each term
    places BLOB                             -- where in them, of pairs of a spaceless script
);
";

const VERSION_2: &str = r"
-- Vectors of messages' passages, where there is an embedder; all of them can be made anew from the messages.
CREATE TABLE vectors(
    message  INTEGER PRIMARY KEY REFERENCES messages(id) ON DELETE CASCADE,
    embedder INTEGER NOT NULL,              -- its fingerprint
    data     BLOB NOT NULL                  -- a signed byte for each dimension, passage by passage
);
";

/// The newest version that this program knows.
pub(crate) fn known_version() -> i64 {
    MIGRATIONS.len() as i64
}

/// A shorter file is not a database.
pub(super) const HEADER_BYTES: usize = 100;

/// The size of a page, in bytes.
pub(super) const PAGE_BYTES: usize = 4_096;

/// Checks a file before it is opened, so that a foreign file is never changed.
///
/// # Errors
/// As [`migrate`]; a file that is missing or not a database.
pub(super) fn check_file(path: &Path) -> Result<(), StoreError> {
    let Some(header) = header(path)? else {
        return Err(nothing_left(path));
    };
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(StoreError::Damaged("it is no database".into()));
    }
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().unwrap_or_default();
        i64::from(u32::from_be_bytes(bytes))
    };
    // Valid in every database: constants, and a known schema format.
    if header[21..24] != [64, 32, 32] || number(44) > 4 {
        return Err(StoreError::Damaged("its header makes no sense".into()));
    }
    match judge(number(68), number(60), path) {
        Err(_) if definitions::are_in(path) => Err(StoreError::Damaged(
            "its header says another program or version than its tables".into(),
        )),
        judged => judged,
    }
}

/// Whether even the header of the file is lost. It must not be opened then, not even for reading: SQLite
/// treats it as new and removes the log, which may hold its content.
pub(super) fn is_nothing_left(path: &Path) -> Result<bool, StoreError> {
    Ok(header(path)?.is_none())
}

/// The file's header; none if the file is shorter or missing.
fn header(path: &Path) -> Result<Option<[u8; HEADER_BYTES]>, StoreError> {
    let mut header = [0; HEADER_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read.map_err(|error| (error.kind(), error)) {
        Ok(()) => Ok(Some(header)),
        Err((ErrorKind::NotFound | ErrorKind::UnexpectedEof, _)) => Ok(None),
        Err((ErrorKind::PermissionDenied, _)) => Err(StoreError::ReadOnly(path.to_owned())),
        Err((_, cause)) => Err(StoreError::File {
            path: path.to_owned(),
            cause,
        }),
    }
}

fn nothing_left(path: &Path) -> StoreError {
    let what = match std::fs::metadata(path) {
        Ok(file) => format!("has {} bytes, less than a header", file.len()),
        Err(_) => "is gone, and its log is there".to_owned(),
    };
    let damage = format!(
        "it {what}; {}-wal may hold more, so keep both",
        path.display()
    );
    StoreError::Damaged(damage.into())
}

fn judge(owner: i64, found: i64, path: &Path) -> Result<(), StoreError> {
    if owner != APPLICATION_ID {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    let known = known_version();
    match found > known {
        true => Err(StoreError::NewerSchema {
            path: path.to_owned(),
            found,
            known,
        }),
        false => Ok(()),
    }
}

/// Creates the tables in an empty database, on the same pages in every new store.
///
/// # Errors
/// The database cannot be written.
pub(super) fn lay_out(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = INCREMENTAL;"
    ))?;
    migrate(connection, path)
}

/// Brings the database to the newest version, in one transaction.
///
/// # Errors
/// A file of another program, or of a newer version of this one.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    if version(connection)? == known_version() {
        return judge(owner(connection)?, known_version(), path);
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    let found = version(&transaction)?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if found > 0 || tables > 0 {
        judge(owner(&transaction)?, found, path)?;
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", known_version())?;
    transaction.commit()?;
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn owner(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.pragma_query_value(None, "application_id", |row| row.get(0))?)
}
