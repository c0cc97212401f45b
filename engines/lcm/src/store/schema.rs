//! The tables of the database, and the check of a file before it is opened.
//!
//! There are no migrations. The file holds derived data, so each version of the tables has a file of
//! its own ([`FILE_NAME`](super::FILE_NAME)), which is built from the transcript.
//!
//! The keys of messages and nodes contain the number of their session: `session << 32 | ordinal`.
//! So everything of a session is stored together, is read in order and can be deleted as one range.
//!
//! [`check_file`] reads the header of a file without SQLite, because SQLite may change a file when
//! it opens it. [`create_tables`] creates the tables. What the columns mean is said in the SQL itself.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rusqlite::Connection;

use crate::error::StoreError;

/// The application id "CtxL", by which `file` and this program recognise the database.
const APPLICATION_ID: i64 = 0x4374_784c;

/// With every change of them, increase the number in [`FILE_NAME`](super::FILE_NAME).
const TABLES: &str = r"
-- Numbers are never reused, because an open engine keeps the number of its session.
CREATE TABLE sessions(
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL UNIQUE,
    deleted      INTEGER NOT NULL DEFAULT 0,-- whether it is deleted; some of its rows may still be there
    next_ordinal INTEGER NOT NULL DEFAULT 0,
    order_at     INTEGER NOT NULL DEFAULT 0 -- latest time of a message seen
);
-- What large texts of messages are like.
CREATE TABLE payloads(
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    hash    BLOB NOT NULL,
    kind    TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    lines   INTEGER NOT NULL,
    tokens  INTEGER NOT NULL,
    UNIQUE(session, hash)
);
CREATE TABLE messages(
    id       INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    host     INTEGER NOT NULL,
    role     TEXT NOT NULL,
    name     TEXT,                          -- the author, if the message on the wire has one
    tool     TEXT,
    at       INTEGER,
    order_at INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    hash     INTEGER,                       -- the host's, of its content, if the host could tell it
    replaces INTEGER REFERENCES messages(id) ON DELETE SET NULL,
    payload  INTEGER REFERENCES payloads(id),
    is_current INTEGER NOT NULL             -- whether it is part of the conversation
);
CREATE UNIQUE INDEX messages_by_host ON messages(session, host);
CREATE INDEX messages_outdated ON messages(session, id) WHERE NOT is_current;
CREATE INDEX messages_by_name ON messages(session, name) WHERE name IS NOT NULL;
CREATE INDEX messages_by_payload ON messages(payload) WHERE payload IS NOT NULL;
CREATE INDEX messages_by_replaced ON messages(replaces) WHERE replaces IS NOT NULL;
-- Summaries: the text is compressed, sources are rows.
CREATE TABLE nodes(
    id         INTEGER PRIMARY KEY,
    session    INTEGER NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    depth      INTEGER NOT NULL,            -- 0: a leaf, over messages
    level      INTEGER NOT NULL,            -- 0 verbatim, 1 normal, 3 deterministic
    degraded   INTEGER NOT NULL DEFAULT 0,  -- to be written again when a model is available
    tokens     INTEGER NOT NULL,
    -- Of the messages below, at any depth: how many, their tokens, the host's ids of the first and the last.
    messages   INTEGER NOT NULL,
    source_tokens INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    first_at   INTEGER,
    last_at    INTEGER,
    created_at INTEGER NOT NULL,
    hash       BLOB NOT NULL,
    bytes      INTEGER NOT NULL,
    data       BLOB NOT NULL
);
CREATE INDEX nodes_by_session ON nodes(session);
-- The messages of a leaf, as runs of neighbours from the first to the last. A run has at most 64, so that a search for
-- the runs over a message reads no others than those that begin shortly before it.
CREATE TABLE node_messages(
    node  INTEGER NOT NULL REFERENCES nodes(id) ON DELETE CASCADE,
    first INTEGER NOT NULL REFERENCES messages(id),
    last  INTEGER NOT NULL,
    PRIMARY KEY(node, first)
) WITHOUT ROWID;
CREATE INDEX node_messages_by_message ON node_messages(first, last);
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
-- The search index. All of it can be rebuilt from the messages.
-- Numbers are never reused, so that the writer of a segment notices if another process removed it.
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
-- Whatever is indexed from there on is indexed again.
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
    lists  BLOB NOT NULL,                   -- the texts that contain each term
    places BLOB                             -- the positions of pairs in scripts without spaces
);
-- Vectors of the passages of messages, if there is an embedder. All of them can be computed again from the messages.
CREATE TABLE vectors(
    message  INTEGER PRIMARY KEY REFERENCES messages(id) ON DELETE CASCADE,
    embedder INTEGER NOT NULL,              -- its fingerprint
    data     BLOB NOT NULL                  -- a signed byte for each dimension, passage by passage
);
";

/// The length of a database header in bytes. A shorter file is not a database.
const HEADER_BYTES: usize = 100;

/// The size of a page of the database, in bytes.
const PAGE_BYTES: usize = 4_096;

/// Checks the header of a file before SQLite opens it, so that a foreign file is never changed.
///
/// # Errors
/// Returns [`StoreError::Damaged`] if the file is missing or not a valid database, and
/// [`StoreError::Foreign`] if it belongs to another program.
pub(super) fn check_file(path: &Path) -> Result<(), StoreError> {
    let Some(header) = header(path)? else {
        return Err(StoreError::Damaged("it has no header".into()));
    };
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(StoreError::Damaged("it is not a SQLite database".into()));
    }
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().unwrap_or_default();
        i64::from(u32::from_be_bytes(bytes))
    };
    // These bytes are the same in every database: constants, and a known schema format.
    if header[21..24] != [64, 32, 32] || number(44) > 4 {
        return Err(StoreError::Damaged("its header is invalid".into()));
    }
    // SQLite writes the id when the file is created, so it is in the file and not only in the log.
    match number(68) == APPLICATION_ID {
        true => Ok(()),
        false => Err(StoreError::Foreign(path.to_owned())),
    }
}

/// Reads the header of a file. Returns None if the file is missing or shorter than a header.
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

/// Creates the tables in an empty database. Every new store gets the same pages.
///
/// # Errors
/// Returns an error if the database cannot be written.
pub(super) fn create_tables(connection: &mut Connection) -> Result<(), StoreError> {
    connection.execute_batch(&format!(
        "PRAGMA page_size = {PAGE_BYTES}; PRAGMA auto_vacuum = INCREMENTAL;"
    ))?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.commit()?;
    Ok(())
}
