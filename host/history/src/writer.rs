//! The database of the history, and the thread that writes it.
//!
//! The texts are stored here, compressed in blocks of several messages, and not read from the logs
//! again: agents delete and rewrite their logs, and a text that was masked has to stay masked.
//!
//! The index consists of tables of FTS5 without contents, one for every [`INDEX_MESSAGES`] ids. A
//! search begins with the newest and ends when it has enough, so its time does not grow with the
//! history if the words are frequent. A prefix of one letter and the ranks of BM25 need every entry
//! of a table, and a table is small. The column `tags` holds the agent, the kind and the project of
//! an entry as words, so that a search for one project does not visit the others.
//!
//! What a log adds and how far it was read are written in one transaction. A transaction ends at a
//! line or at the end of a log, and holds about 16 MB: many small logs share one, and a large log
//! has several. If the process is killed, the next import goes on after the last one.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use contexture_base::private;
use rusqlite::{Connection, OptionalExtension, params};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::HistoryError;
use crate::output::{Event, Prepared};
use crate::sources::{Source, Stamp};

/// The version of the tables, which the database has in `user_version`. 0 is a database that has no
/// tables yet.
const VERSION: i64 = 2;

const SCHEMA: &str = "
CREATE TABLE project(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
CREATE TABLE source(
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, agent TEXT NOT NULL,
    -- How the log looked when it was read to its end. Null if it was not.
    size INTEGER, changed INTEGER,
    -- The byte up to which it was read, and a hash of the bytes before.
    offset INTEGER NOT NULL DEFAULT 0, tail INTEGER NOT NULL DEFAULT 0);
CREATE TABLE conversation(
    id INTEGER PRIMARY KEY, source INTEGER NOT NULL, session TEXT NOT NULL, agent TEXT NOT NULL,
    project INTEGER, title TEXT, first INTEGER, newest INTEGER, UNIQUE(source, session));
CREATE TABLE message(
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL, kind INTEGER NOT NULL, time INTEGER,
    name TEXT, call INTEGER, key INTEGER NOT NULL, hash INTEGER NOT NULL,
    block INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL);
CREATE INDEX message_conversation ON message(conversation);
CREATE INDEX message_call ON message(call) WHERE call IS NOT NULL;
CREATE TABLE block(id INTEGER PRIMARY KEY, text BLOB NOT NULL);
";

/// The number of message ids that share a table of the index. If it were larger, the slowest
/// searches would take longer. If it were smaller, a search for a rare word would open more tables.
const INDEX_MESSAGES: i64 = 1 << 15;

/// The number of tables of the index. They are numbered from 0, and the last one has the newest
/// messages.
pub(crate) fn index_tables(db: &Connection) -> rusqlite::Result<i64> {
    let newest: Option<i64> = db.query_row("SELECT max(id) FROM message", [], |row| row.get(0))?;
    Ok(newest.map_or(0, |id| index_of(id) + 1))
}

/// The number of the table that has a message.
pub(crate) fn index_of(message: i64) -> i64 {
    message / INDEX_MESSAGES
}

/// The name of a table of the index.
pub(crate) fn index_name(number: i64) -> String {
    format!("word_{number}")
}

/// The number of bytes of text in a block. A larger block compresses better, and takes longer to
/// open for a snippet.
const BLOCK_BYTES: usize = 64 << 10;

/// The number of bytes of text after which a transaction ends. If the process is killed, about this
/// much has to be stored again.
const TRANSACTION_BYTES: usize = 16 << 20;

/// The level of zstd. Higher ones save a few percent and take much longer.
const LEVEL: i32 = 3;

/// How long to wait for another process that has the database locked. A transaction of an import,
/// with the merges of the index in it, can take seconds on a slow disk.
const BUSY: Duration = Duration::from_secs(30);

/// How long to wait for searches before the write-ahead log is emptied. They take milliseconds.
const LOG_BUSY: Duration = Duration::from_secs(1);

/// Opens the database for reading. Returns `None` if there is none.
pub(crate) fn open_to_read(path: &Path) -> Result<Option<Connection>, HistoryError> {
    if !path.exists() {
        return Ok(None);
    }
    let open = || {
        let db = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(BUSY)?;
        Ok((version(&db)?, db))
    };
    match open().map_err(failed(path))? {
        // Another process has created the file and not yet the tables.
        (0, _) => Ok(None),
        (VERSION, db) => Ok(Some(db)),
        _ => Err(HistoryError::OtherVersion {
            path: path.to_owned(),
        }),
    }
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

pub(crate) fn failed(path: &Path) -> impl Fn(rusqlite::Error) -> HistoryError {
    let path = path.to_owned();
    move |source| HistoryError::Database {
        path: path.clone(),
        source,
    }
}

/// Opens the database for writing, and creates it if it does not exist.
pub(crate) fn open(path: &Path) -> Result<Connection, HistoryError> {
    create(path)?;
    // A history that was copied or restored may have wider permissions than one that was created
    // here.
    private::narrow(path);
    match prepare(path).map_err(failed(path))? {
        (VERSION, db) => Ok(db),
        _ => Err(HistoryError::OtherVersion {
            path: path.to_owned(),
        }),
    }
}

/// Creates the database for its owner only, if there is none. It gets its name with its tables, so
/// that processes that start at once do not create them in one file. SQLite gives its other files
/// the permissions of the database.
fn create(path: &Path) -> Result<(), HistoryError> {
    if path.exists() {
        return Ok(());
    }
    let io = |source| HistoryError::Create {
        path: path.to_owned(),
        source,
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
    drop(prepare(new.path()).map_err(failed(path))?);
    match new.into_temp_path().persist_noclobber(path) {
        Err(error) if !path.exists() => Err(io(error.error)),
        // Or another process was faster.
        _ => Ok(()),
    }
}

/// Sets up a connection, creates the tables in an empty file, and returns the version of the
/// tables.
fn prepare(path: &Path) -> rusqlite::Result<(i64, Connection)> {
    let mut db = Connection::open(path)?;
    db.busy_timeout(BUSY)?;
    // Searches go on while an import writes. If the power fails, the last transactions may be
    // missing, but the database is whole, and the next import reads them again.
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // Negative numbers are KiB: 32 MB.
    db.pragma_update(None, "cache_size", -32_000)?;
    if version(&db)? == 0 {
        let transaction = db.transaction()?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
        transaction.commit()?;
    }
    Ok((version(&db)?, db))
}

/// The logs that were read before, by path. A path that is not UTF-8 is stored with replacement
/// characters, so it has to be looked up in that form.
pub(crate) fn known_sources(db: &Connection) -> rusqlite::Result<HashMap<String, Source>> {
    let mut query = db.prepare("SELECT path, size, changed, offset, tail FROM source")?;
    let rows = query.query_map([], |row| {
        let size: Option<i64> = row.get(1)?;
        let changed: Option<i64> = row.get(2)?;
        let source = Source {
            stamp: size.zip(changed).map(|(size, changed)| Stamp {
                size: size.cast_unsigned(),
                changed,
            }),
            offset: row.get::<_, i64>(3)?.cast_unsigned(),
            tail: row.get::<_, i64>(4)?.cast_unsigned(),
        };
        Ok((row.get(0)?, source))
    })?;
    rows.collect()
}

/// A word for the column of tags that says which agent it is. Hyphens are left out, because the
/// tokenizer would make two words of it.
pub(crate) fn agent_tag(agent: &str) -> String {
    format!("a{}", agent.replace('-', ""))
}

/// A hash of an id that fits into a column of integers.
pub(crate) fn hash(text: &str) -> i64 {
    xxh3_64(text.as_bytes()).cast_signed()
}

/// Adds a table to the index. The one before it is full then, so its parts are merged into one,
/// which is smaller and faster to search.
fn add_index(db: &Connection, number: i64) -> rusqlite::Result<()> {
    if number > 0 {
        let full = index_name(number - 1);
        db.execute_batch(&format!("INSERT INTO {full}({full}) VALUES ('optimize')"))?;
    }
    let name = index_name(number);
    // Larger batches in memory mean fewer parts to merge.
    db.execute_batch(&format!(
        "CREATE VIRTUAL TABLE {name} USING fts5(
             text, tags, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
         INSERT INTO {name}({name}, rank) VALUES ('hashsize', 33554432);"
    ))
}

/// The conversation that is being written.
#[derive(Default)]
struct Open {
    id: i64,
    project: Option<i64>,
    title: Option<String>,
    first: Option<i64>,
    newest: Option<i64>,
    is_changed: bool,
    /// The entries that are stored already, by key: the id and the hash of each. Filled if the log
    /// is read again.
    stored: HashMap<i64, VecDeque<(i64, i64)>>,
}

/// The log that is being written.
struct OpenSource {
    id: i64,
    agent: &'static str,
    is_again: bool,
    offset: Option<u64>,
}

/// Writes events to the database. The thread of the writer owns it.
pub(crate) struct Writer<'a> {
    db: &'a mut Connection,
    source: Option<OpenSource>,
    conversation: Option<(String, Open)>,
    /// The texts of the block that is being filled.
    text: String,
    block: i64,
    /// The number of tables that the index has.
    tables: i64,
    /// Bytes of text that were added since the last commit.
    written: usize,
    is_open: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(db: &'a mut Connection) -> rusqlite::Result<Self> {
        // Blocks are numbered here and not by SQLite, because a message names its block before the
        // block is written.
        let block = db.query_row("SELECT coalesce(max(id), 0) + 1 FROM block", [], |row| {
            row.get(0)
        })?;
        Ok(Self {
            tables: index_tables(db)?,
            db,
            source: None,
            conversation: None,
            text: String::new(),
            block,
            written: 0,
            is_open: false,
        })
    }

    pub(crate) fn write(&mut self, event: Event) -> rusqlite::Result<()> {
        if !self.is_open {
            // A transaction that begins as a reader fails at once if another process writes, and
            // does not wait.
            self.db.execute_batch("BEGIN IMMEDIATE")?;
            self.is_open = true;
        }
        match event {
            Event::Source {
                path,
                agent,
                is_again,
            } => {
                self.close_conversation()?;
                self.save_offset()?;
                // The update changes nothing if the log is known. Without it there would be no row
                // to return.
                let mut insert = self.db.prepare_cached(
                    "INSERT INTO source(path, agent) VALUES (?1, ?2)
                     ON CONFLICT(path) DO UPDATE SET agent = excluded.agent RETURNING id",
                )?;
                let id = insert.query_row(params![path, agent], |row| row.get(0))?;
                self.source = Some(OpenSource {
                    id,
                    agent,
                    is_again,
                    offset: None,
                });
            }
            Event::Conversation {
                session,
                project,
                title,
            } => self.conversation(session, project, title)?,
            Event::Entry(prepared) => self.entry(&prepared)?,
            Event::At(offset) => {
                if let Some(source) = &mut self.source {
                    source.offset = Some(offset);
                }
                if self.written >= TRANSACTION_BYTES {
                    self.commit()?;
                }
            }
            Event::End {
                stamp,
                offset,
                tail,
            } => {
                self.close_conversation()?;
                if let Some(source) = self.source.take() {
                    let mut update = self.db.prepare_cached(
                        "UPDATE source SET size = ?2, changed = ?3, offset = ?4, tail = ?5 WHERE id = ?1",
                    )?;
                    update.execute(params![
                        source.id,
                        stamp.size.cast_signed(),
                        stamp.changed,
                        offset.cast_signed(),
                        tail.cast_signed()
                    ])?;
                }
                if self.written >= TRANSACTION_BYTES {
                    self.commit()?;
                }
            }
        }
        Ok(())
    }

    fn conversation(
        &mut self,
        session: String,
        project: Option<String>,
        title: Option<String>,
    ) -> rusqlite::Result<()> {
        let Some(source) = &self.source else {
            return Ok(());
        };
        if self
            .conversation
            .as_ref()
            .is_none_or(|(open, _)| *open != session)
        {
            let (id, agent, is_again) = (source.id, source.agent, source.is_again);
            self.close_conversation()?;
            // A document without positions is read again as a whole if the import stops, and what
            // is stored then is found again. So a transaction may end between its conversations.
            if self.written >= TRANSACTION_BYTES {
                self.commit()?;
                self.db.execute_batch("BEGIN IMMEDIATE")?;
                self.is_open = true;
            }
            let open = self.open_conversation(id, agent, is_again, &session)?;
            self.conversation = Some((session, open));
        }
        let project = match project {
            Some(path) => {
                let mut insert = self.db.prepare_cached(
                    "INSERT INTO project(path) VALUES (?1) ON CONFLICT(path) DO UPDATE SET path = path RETURNING id",
                )?;
                Some(insert.query_row([path], |row| row.get(0))?)
            }
            None => None,
        };
        if let Some((_, open)) = &mut self.conversation {
            // A conversation belongs to the project in which it began.
            open.is_changed |= open.project.is_none() && project.is_some();
            open.project = open.project.or(project);
            if title.is_some() && title != open.title {
                open.title = title;
                open.is_changed = true;
            }
        }
        Ok(())
    }

    fn open_conversation(
        &self,
        source: i64,
        agent: &str,
        is_again: bool,
        session: &str,
    ) -> rusqlite::Result<Open> {
        let mut find = self.db.prepare_cached(
            "SELECT id, project, title, first, newest FROM conversation WHERE source = ?1 AND session = ?2",
        )?;
        let found = find.query_row(params![source, session], |row| {
            Ok(Open {
                id: row.get(0)?,
                project: row.get(1)?,
                title: row.get(2)?,
                first: row.get(3)?,
                newest: row.get(4)?,
                ..Open::default()
            })
        });
        let Some(mut open) = found.optional()? else {
            let mut insert = self.db.prepare_cached(
                "INSERT INTO conversation(source, session, agent) VALUES (?1, ?2, ?3)",
            )?;
            return Ok(Open {
                id: insert.insert(params![source, session, agent])?,
                ..Open::default()
            });
        };
        if is_again {
            let mut rows = self.db.prepare_cached(
                "SELECT key, id, hash FROM message WHERE conversation = ?1 ORDER BY id",
            )?;
            let rows = rows.query_map([open.id], |row| {
                Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
            })?;
            for row in rows {
                let (key, entry) = row?;
                open.stored.entry(key).or_default().push_back(entry);
            }
        }
        Ok(open)
    }

    fn entry(&mut self, prepared: &Prepared) -> rusqlite::Result<()> {
        let (Some(source), Some((_, open))) = (&self.source, &mut self.conversation) else {
            return Ok(());
        };
        let Prepared {
            entry,
            indexed,
            hash: content,
        } = prepared;
        let key = match &entry.key {
            Some(key) => hash(key),
            // Without an id, the entry is known by what it says and when. The factor keeps a time
            // from cancelling the number of the kind, which is in the lowest bits of the hash.
            None => content.wrapping_add(entry.time_ms.unwrap_or(0).wrapping_mul(0x9e37_79b9)),
        };
        // Each stored entry is used once. If the user said "yes" twice, the log has two entries
        // with one key, and both have to stay.
        let stored = open.stored.get_mut(&key).and_then(VecDeque::pop_front);
        if stored.is_some_and(|(_, stored)| stored == *content) {
            return Ok(());
        }
        // The name of the tool is a column, and needs no second place.
        let start = self.text.len();
        self.text.push_str(&entry.text);
        let call = entry.call.as_deref().map(hash);
        // If the agent rewrote the entry, the new text replaces the old one under its id, so that
        // links to it stay right. The old text remains in its block, where no row names it.
        let row = params![
            stored.map(|(id, _)| id),
            open.id,
            entry.kind as i64,
            entry.time_ms,
            entry.name,
            call,
            key,
            content,
            self.block,
            start as i64,
            entry.text.len() as i64
        ];
        let mut insert = self.db.prepare_cached(
            "INSERT OR REPLACE INTO message(id, conversation, kind, time, name, call, key, hash, block, start, length)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?;
        let id = insert.insert(row)?;
        let mut tags = format!("{} k{}", agent_tag(source.agent), entry.kind as i64);
        if let Some(project) = open.project {
            tags.push_str(&format!(" p{project}"));
        }
        let table = index_of(id);
        if table >= self.tables {
            add_index(self.db, table)?;
            self.tables = table + 1;
        }
        let name = index_name(table);
        let mut index = self.db.prepare_cached(&format!(
            "INSERT OR REPLACE INTO {name}(rowid, text, tags) VALUES (?1, ?2, ?3)"
        ))?;
        index.execute(params![id, indexed.as_deref().unwrap_or(&entry.text), tags])?;
        open.first = Some(open.first.map_or(id, |first| first.min(id)));
        open.newest = open.newest.max(entry.time_ms);
        open.is_changed = true;
        self.written += entry.text.len();
        // The statements borrow the database, and to close a block borrows the whole writer.
        drop((insert, index));
        if self.text.len() >= BLOCK_BYTES {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> rusqlite::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let packed = zstd::bulk::compress(self.text.as_bytes(), LEVEL)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        let mut insert = self
            .db
            .prepare_cached("INSERT INTO block(id, text) VALUES (?1, ?2)")?;
        insert.execute(params![self.block, packed])?;
        self.block += 1;
        self.text.clear();
        Ok(())
    }

    fn close_conversation(&mut self) -> rusqlite::Result<()> {
        let Some((_, open)) = self.conversation.take() else {
            return Ok(());
        };
        self.save_conversation(&open)
    }

    fn save_conversation(&self, open: &Open) -> rusqlite::Result<()> {
        if open.is_changed {
            let mut update = self.db.prepare_cached(
                "UPDATE conversation SET project = ?2, title = ?3, first = ?4, newest = ?5 WHERE id = ?1",
            )?;
            update.execute(params![
                open.id, open.project, open.title, open.first, open.newest
            ])?;
        }
        Ok(())
    }

    /// Notes how far the log was read, if it was not read to its end. The stamp is removed, so the
    /// log is read on at the next import even if it does not change.
    fn save_offset(&self) -> rusqlite::Result<()> {
        if let Some(source) = &self.source
            && let Some(offset) = source.offset
        {
            let mut update = self.db.prepare_cached(
                "UPDATE source SET offset = ?2, tail = 0, size = NULL WHERE id = ?1",
            )?;
            update.execute([source.id, offset.cast_signed()])?;
        }
        Ok(())
    }

    /// Ends the transaction. Everything up to the last position is stored then.
    pub(crate) fn commit(&mut self) -> rusqlite::Result<()> {
        if !self.is_open {
            return Ok(());
        }
        // The block goes first. If it were written in the next transaction and the process died in
        // between, messages would point to a text that does not exist.
        self.close_block()?;
        if let Some((_, open)) = &self.conversation {
            self.save_conversation(open)?;
        }
        self.save_offset()?;
        self.db.execute_batch("COMMIT")?;
        self.is_open = false;
        self.written = 0;
        self.empty_log()
    }

    /// Moves the write-ahead log into the database and empties it. SQLite begins a new log only if
    /// nobody reads the old one, so during searches it would grow to the size of the history, and
    /// stay that large for as long as any process has the history open. If a search takes too long,
    /// the next commit tries again.
    fn empty_log(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(LOG_BUSY)?;
        self.db
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.db.busy_timeout(BUSY)
    }
}
