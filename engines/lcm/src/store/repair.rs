//! Saving what can still be read of a damaged file.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::{Blocks, Database, FILE_NAME, Store, StoreSettings, sessions};
use crate::error::StoreError;
use crate::index::build;

/// What came of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Where the damaged file was put, unchanged.
    pub kept: PathBuf,
    /// Messages that were carried over.
    pub messages: u64,
    /// Messages of which a trace was found, but not the content.
    pub lost: u64,
}

/// The tables in an order in which no row comes before one that it refers to; the search index is not
/// among them, for it is made anew.
const TABLES: [&str; 10] = [
    "sessions",
    "live",
    "payloads",
    "payload_chunks",
    "messages",
    "blocks",
    "nodes",
    "node_messages",
    "node_children",
    "frontier",
];

impl Store {
    /// Repairs the store in `directory`, which no process may have open: puts the damaged file aside,
    /// carries everything that can be read over into a new one, and makes the search index anew.
    ///
    /// # Errors
    /// A file that cannot be moved, or is damaged beyond its tables: it is then back in its place.
    pub fn repair(directory: &Path) -> Result<Repair, StoreError> {
        let path = directory.join(FILE_NAME);
        let kept = (1..)
            .map(|number| directory.join(format!("{FILE_NAME}.damaged-{number}")))
            .find(|candidate| !candidate.exists())
            .unwrap_or_else(|| directory.join(format!("{FILE_NAME}.damaged")));
        move_database(&path, &kept)?;
        match carry_over(directory, &kept) {
            Ok((messages, lost)) => Ok(Repair {
                kept,
                messages,
                lost,
            }),
            Err(error) => {
                // The half-made file must not take the place of the old one.
                for suffix in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(with_suffix(&path, suffix));
                }
                move_database(&kept, &path)?;
                Err(error)
            }
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Moves a database with its log, in which the last commits may still stand.
fn move_database(from: &Path, to: &Path) -> Result<(), StoreError> {
    for suffix in ["-wal", ""] {
        let (from, to) = (with_suffix(from, suffix), with_suffix(to, suffix));
        if suffix == "-wal" && !from.exists() {
            continue;
        }
        std::fs::rename(&from, &to).map_err(|source| StoreError::File { path: from, source })?;
    }
    // Made anew from the log when the file is opened.
    let _ = std::fs::remove_file(with_suffix(from, "-shm"));
    Ok(())
}

fn carry_over(directory: &Path, kept: &Path) -> Result<(u64, u64), StoreError> {
    let settings = StoreSettings {
        background_index: false,
        ..StoreSettings::default()
    };
    let new = Database::open(&directory.join(FILE_NAME), settings)?;
    let old = Connection::open_with_flags(kept, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    {
        let writer = new.writer.take()?;
        // References are mended below, once all that is left is there.
        writer.execute_batch("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE;")?;
        for table in TABLES {
            copy_table(&old, &writer, table)?;
        }
        writer.execute_batch(MEND)?;
        writer.execute_batch("COMMIT; PRAGMA foreign_keys = ON;")?;
    }
    let (messages, lost) = drop_unreadable(&new)?;
    for info in new.read(sessions::sessions_in)? {
        build::catch_up(&new, info.id)?;
    }
    Ok((messages, lost))
}

/// Makes whole what rows that could not be read left behind.
const MEND: &str = "
INSERT OR IGNORE INTO sessions(id, name, created_at, touched_at)
    SELECT DISTINCT session, 'recovered-' || session, 0, 0 FROM messages;
UPDATE sessions SET
    next_ordinal = max(next_ordinal,
        coalesce((SELECT max(messages.id) & 0xffffffff FROM messages WHERE session = sessions.id) + 1, 0)),
    order_at = max(order_at,
        coalesce((SELECT max(messages.order_at) FROM messages WHERE session = sessions.id), 0)),
    last_host = coalesce(last_host, (SELECT host FROM messages WHERE session = sessions.id
        ORDER BY id DESC LIMIT 1));
INSERT OR IGNORE INTO live(session, first, end) SELECT id, 0, NULL FROM sessions
    WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = sessions.id);
DELETE FROM messages WHERE payload NOT NULL AND payload NOT IN (SELECT id FROM payloads);
DELETE FROM node_messages WHERE node NOT IN (SELECT id FROM nodes);
DELETE FROM node_children WHERE node NOT IN (SELECT id FROM nodes) OR child NOT IN (SELECT id FROM nodes);
DELETE FROM frontier WHERE node NOT IN (SELECT id FROM nodes);
";

/// Copies the rows that can be read. Behind one that cannot, it goes on further along.
fn copy_table(old: &Connection, new: &Connection, table: &str) -> Result<(), StoreError> {
    let columns: Vec<String> = new
        .prepare("SELECT name FROM pragma_table_info(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let has_rowid = new.prepare(&format!("SELECT rowid FROM {table}")).is_ok();
    let marks = vec!["?"; columns.len()].join(", ");
    let names = columns.join(", ");
    let mut insert = new.prepare(&format!(
        "INSERT OR IGNORE INTO {table}({names}) VALUES({marks})"
    ))?;
    if !has_rowid {
        // A damaged page ends it: these tables are small, and what they lack is mended.
        if let Ok(mut select) = old.prepare(&format!("SELECT 0, {names} FROM {table}")) {
            let mut after = 0;
            let _ = copy_rows(&mut select, &[], columns.len(), &mut insert, &mut after);
        }
        return Ok(());
    }
    let Ok(mut select) = old.prepare(&format!(
        "SELECT rowid, {names} FROM {table} WHERE rowid > ?1 ORDER BY rowid"
    )) else {
        return Ok(());
    };
    let mut after = i64::MIN;
    let mut step = 1i64;
    while step < i64::MAX / 2 {
        let before = after;
        match copy_rows(
            &mut select,
            &[after],
            columns.len(),
            &mut insert,
            &mut after,
        ) {
            Ok(()) => break,
            Err(StoreError::DiskFull) => return Err(StoreError::DiskFull),
            Err(_) => {
                step = if after > before { 1 } else { step * 2 };
                after = after.max(0).saturating_add(step);
            }
        }
    }
    Ok(())
}

fn copy_rows(
    select: &mut rusqlite::Statement<'_>,
    after: &[i64],
    columns: usize,
    insert: &mut rusqlite::Statement<'_>,
    done: &mut i64,
) -> Result<(), StoreError> {
    let mut rows = select.query(params_from_iter(after))?;
    while let Some(row) = rows.next()? {
        let values: Vec<Value> = (1..=columns)
            .map(|column| row.get(column))
            .collect::<Result<_, _>>()?;
        insert.execute(params_from_iter(values))?;
        *done = row.get(0)?;
    }
    Ok(())
}

/// Deletes the rows of messages whose content is gone; how many are left, and how many are not.
fn drop_unreadable(database: &Database) -> Result<(u64, u64), StoreError> {
    let (kept, lost) = database.read(|connection| {
        let mut blocks = Blocks::new(connection)?;
        let (mut kept, mut lost) = (0u64, Vec::new());
        for info in sessions::sessions_in(connection)? {
            for row in super::read::rows_in(connection, info.id, &(0..info.messages))? {
                let key = row.key.0;
                match super::read::whole(connection, &mut blocks, row) {
                    Ok(_) => kept += 1,
                    Err(_) => lost.push(key),
                }
            }
        }
        Ok((kept, lost))
    })?;
    database.write(|transaction| {
        for key in &lost {
            transaction.execute("DELETE FROM node_messages WHERE message = ?1", [key])?;
            transaction.execute("DELETE FROM messages WHERE id = ?1", [key])?;
        }
        // Bodies without a message's row would be found, but never shown.
        transaction.execute(
            "DELETE FROM blocks WHERE NOT EXISTS (SELECT 1 FROM messages
                WHERE messages.id >= blocks.id AND messages.id < coalesce(
                    (SELECT min(next.id) FROM blocks next WHERE next.id > blocks.id),
                    blocks.id + 4294967296))",
            [],
        )?;
        Ok(())
    })?;
    Ok((kept, lost.len() as u64))
}
