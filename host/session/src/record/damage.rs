//! A record that is damaged: finding that out, going on without it, and saving what can be read of it.
//!
//! What is damaged is never written to: a repair reads a copy and puts a new file in the place of the old one, of which
//! the copy stays.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contexture_engine_api::{MessageId, make_private, private_file_options};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};

use super::load::{check_session, read_trail, read_written};
use super::tables::{KEPT, SCHEMA_VERSION, prepare};
use super::texts::forget_damaged;
use super::{FILE, Form, ReadError, Record, RecordError, message_id};
use crate::hold::Hold;
use crate::services::now_ms;
use crate::window::SavedWindow;

/// What stands between the file's name and the time in the name of a damaged record's copy.
const COPY: &str = "damaged";
/// SQLite's page in a record, in bytes.
const PAGE: u64 = 4096;
/// Rows of a damaged table that are looked for one by one, at most.
const PROBES: i64 = 1_000_000;

/// The tables, those first that others refer to: name, the columns of the key, the other columns.
const TABLES: [(&str, &[&str], &[&str]); 8] = [
    (
        "sessions",
        &["key"],
        &[
            "id",
            "created_ms",
            "next_id",
            "engine",
            "format",
            "shown_last",
            "shown_chain",
            "remembers",
            "lacking",
            "recovered",
            "pauses_more",
            "pauses_saved",
            "compactions",
            "usage",
        ],
    ),
    (
        "messages",
        &["session", "id"],
        &[
            "identity", "shape", "chain", "replaces", "cut", "said_ms", "wire", "part",
        ],
    ),
    (
        "texts",
        &["session", "number"],
        &["format", "tools", "bytes", "checksum", "data"],
    ),
    (
        "artifacts",
        &["session", "engine", "name"],
        &["bytes", "checksum", "data"],
    ),
    ("wire", &["session", "form", "place"], &["raw", "messages"]),
    (
        "compactions",
        &["session"],
        &["number", "engine", "entries"],
    ),
    (
        "written",
        &["session", "identity", "id"],
        &["shortens", "covers"],
    ),
    ("kept", &["session", "name"], &["value"]),
];

/// What a repair of the record did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RecordRepair {
    /// The sessions that the record has after it.
    pub sessions: u64,
    /// What could not be read, a line each.
    pub lost: Vec<String>,
    /// The copy of the damaged file.
    pub copy: PathBuf,
}

impl RecordError {
    /// Whether the file is damaged, so that [`Record::repair`] is the way out. A file that cannot be reached, or whose
    /// disk is full, is not.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, TooBig};
        match self {
            Self::Damaged { .. } => true,
            Self::Sqlite { cause, .. } => {
                // Tables or columns that are missing, or values that are none.
                let is_of_no_sense = matches!(
                    cause,
                    rusqlite::Error::FromSqlConversionFailure(..)
                        | rusqlite::Error::InvalidColumnType(..)
                        | rusqlite::Error::IntegralValueOutOfRange(..)
                        | rusqlite::Error::Utf8Error(..)
                        | rusqlite::Error::SqlInputError { .. }
                        | rusqlite::Error::QueryReturnedNoRows
                );
                let code = cause.sqlite_error_code();
                is_of_no_sense
                    || matches!(code, Some(DatabaseCorrupt | NotADatabase | TooBig))
                    || cause.to_string().contains("malformed")
            }
            _ => false,
        }
    }
}

impl Record {
    /// A record in memory that stands in for the damaged one of a home directory. Nothing is known in it; a session that
    /// is opened with it goes on without a record, warns of that, and takes the conversation over from an engine that
    /// keeps it.
    ///
    /// # Errors
    /// SQLite has no memory.
    pub fn standing_in(home: &Path, damage: &str) -> Result<Arc<Self>, RecordError> {
        let path = home.join(FILE);
        let fail = |cause| RecordError::Sqlite {
            path: path.clone(),
            cause,
        };
        let mut connection = Connection::open_in_memory().map_err(fail)?;
        prepare(&mut connection).map_err(fail)?;
        let mut record = Self::of(path.clone(), connection);
        record.stands_in = Some(damage.to_owned());
        Ok(Arc::new(record))
    }

    /// Why this record is one [in memory](Self::standing_in), if it is.
    pub fn stands_in(&self) -> Option<&str> {
        self.stands_in.as_deref()
    }

    /// Refuses what would only be done in memory.
    pub(super) fn is_itself(&self) -> Result<(), RecordError> {
        match &self.stands_in {
            None => Ok(()),
            Some(_) => Err(RecordError::Damaged {
                path: self.path.clone(),
                what: "it is damaged, and another stands in for it".to_owned(),
            }),
        }
    }

    /// Checks the record of a home directory; answers what is wrong with it, a line each.
    ///
    /// # Errors
    /// It cannot be read for another reason than damage.
    pub fn verify(home: &Path) -> Result<Vec<String>, RecordError> {
        match Self::open_to_read(home).and_then(|record| record.problems()) {
            Err(error) if error.is_damage() => Ok(vec![error.to_string()]),
            found => found,
        }
    }

    fn problems(&self) -> Result<Vec<String>, RecordError> {
        let mut connection = self.lock();
        let path = self.path.display();
        let mut found = Vec::new();
        let check = |connection: &Connection| -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect()
        };
        let lines = check(&connection).map_err(|error| self.error(error.into()))?;
        found.extend(lines.into_iter().filter(|line| line != "ok"));
        // As of one moment, whoever writes or removes sessions meanwhile.
        let transaction = connection
            .transaction()
            .map_err(|error| self.error(error.into()))?;
        let ids = |transaction: &Connection| -> rusqlite::Result<Vec<String>> {
            let mut statement = transaction.prepare("SELECT id FROM sessions ORDER BY key")?;
            let ids = statement.query_map([], |row| row.get(0))?;
            ids.collect()
        };
        for id in ids(&transaction).map_err(|error| self.error(error.into()))? {
            match check_session(&transaction, &id) {
                Ok(None) => {}
                Ok(Some(what)) => found.push(format!("session `{id}`: {what}")),
                Err(error) => match self.error(error) {
                    error if error.is_damage() => found.push(format!("session `{id}`: {error}")),
                    error => return Err(error),
                },
            }
        }
        let found = found.into_iter().map(|what| format!("{path}: {what}"));
        Ok(found.collect())
    }

    /// Saves what can be read of a damaged record into a new one, which takes its place. A copy of the damaged one stays
    /// beside it.
    ///
    /// # Errors
    /// A session is open; the files cannot be read or written. The record is then as it was.
    pub fn repair(home: &Path) -> Result<RecordRepair, RecordError> {
        let _holds = Hold::take_all(home)?;
        let path = home.join(FILE);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |cause| RecordError::Write { path, cause }
        };
        let copy = home.join(format!("{FILE}.{COPY}-{}", now_ms()));
        for suffix in ["", "-wal"] {
            let (from, to) = (with(&path, suffix), with(&copy, suffix));
            copy_file(&from, &to).map_err(io(&to))?;
        }
        // SQLite puts the log of what it reads into the file: of a copy's copy.
        let folder = tempfile::Builder::new()
            .prefix(".repair-")
            .tempdir_in(home)
            .map_err(io(home))?;
        let read_from = folder.path().join("from.sqlite3");
        let made = folder.path().join(FILE);
        for suffix in ["", "-wal"] {
            let to = with(&read_from, suffix);
            copy_file(&with(&copy, suffix), &to).map_err(io(&to))?;
        }
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |cause| RecordError::of(&path, cause)
        };
        let mut new = Connection::open(&made).map_err(fail(&made))?;
        prepare(&mut new).map_err(fail(&made))?;
        new.execute_batch(KEPT).map_err(fail(&made))?;
        let mut lost = Vec::new();
        match readable(&read_from, &made).map_err(io(&read_from))? {
            Some(old) => carry_over(&old, &mut new, &mut lost).map_err(fail(&made))?,
            None => lost.push("nothing of its tables can be found".to_owned()),
        }
        let sessions = new
            .query_row("SELECT count(*) FROM sessions", [], |row| {
                row.get::<_, i64>(0)
            })
            .map_err(fail(&made))?;
        new.pragma_update(None, "journal_mode", "DELETE")
            .map_err(fail(&made))?;
        drop(new);
        let _ = make_private(&made);
        // The log is that of the old file, and would be read with the new one.
        for suffix in ["-wal", "-shm"] {
            match std::fs::remove_file(with(&path, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(io(&with(&path, suffix))(error));
                }
                _ => {}
            }
        }
        std::fs::rename(&made, &path).map_err(io(&path))?;
        Ok(RecordRepair {
            sessions: sessions.cast_unsigned(),
            lost,
            copy,
        })
    }
}

pub(super) fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Copies a file, where there is one.
pub(super) fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = match File::open(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut to = private_file_options()
        .write(true)
        .create_new(true)
        .open(to)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}

/// A connection to what can be read of a damaged file; none where no table is found in it. Where the file's first page
/// is damaged, which names the tables, that of a new record takes its place: the tables lie on the same pages in each.
fn readable(path: &Path, new: &Path) -> io::Result<Option<Connection>> {
    let open = |reads_rows: bool| -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let mut probe = connection.prepare("SELECT key FROM sessions WHERE key < 0")?;
        if reads_rows {
            probe.exists([])?;
        }
        drop(probe);
        match version {
            SCHEMA_VERSION => Ok(connection),
            _ => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    };
    if let Ok(connection) = open(true) {
        return Ok(Some(connection));
    }
    let mut file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length < 2 * PAGE {
        return Ok(None);
    }
    let mut page = vec![0; PAGE as usize];
    let empty = Connection::open(new.with_file_name("empty.sqlite3"));
    let made = empty.and_then(|mut empty| {
        prepare(&mut empty)?;
        empty.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    });
    made.map_err(io::Error::other)?;
    File::open(new.with_file_name("empty.sqlite3"))?.read_exact(&mut page)?;
    // How many pages there are, and none that are free.
    let pages = u32::try_from(length / PAGE).unwrap_or(u32::MAX);
    page[28..32].copy_from_slice(&pages.to_be_bytes());
    page[32..40].fill(0);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&page)?;
    drop(file);
    // The page of the sessions may be damaged itself.
    Ok(open(false).ok())
}

type Row = Vec<Value>;

/// Carries the rows of all tables over, and makes them agree with each other.
fn carry_over(
    old: &Connection,
    new: &mut Connection,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let transaction = new.transaction()?;
    // What refers to a session that is lost goes at the end.
    transaction.pragma_update(None, "defer_foreign_keys", true)?;
    // The sessions of which rows are missing.
    let mut incomplete = BTreeSet::new();
    for (table, key, others) in TABLES {
        let columns: Vec<&str> = key.iter().chain(others).copied().collect();
        let places: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
        let sql = format!(
            "INSERT OR IGNORE INTO {table} ({}) VALUES ({})",
            columns.join(", "),
            places.join(", ")
        );
        let mut insert = transaction.prepare(&sql)?;
        let mut bad = 0;
        let whole = scan(old, table, key, &columns, "", &[], &mut |row: Row| {
            // A value of another kind than the column's is damage.
            let session = row.first().cloned();
            if insert.execute(params_from_iter(row)).is_err() {
                bad += 1;
                if let Some(Value::Integer(session)) = session {
                    incomplete.insert(session);
                }
            }
        });
        if !whole {
            probe(
                old,
                &transaction,
                table,
                key,
                &columns,
                &mut insert,
                &mut incomplete,
            )?;
        }
        if !whole || bad > 0 {
            lost.push(format!("rows of the table `{table}`"));
        }
    }
    let orphans = mend(&transaction, &incomplete, lost)?;
    if orphans > 0 {
        lost.push(format!(
            "the names of {orphans} sessions, and with them what was recorded of these"
        ));
    }
    transaction.commit()
}

/// Gives all rows that can be read, from both ends; whether these are all. Rows may be given twice.
fn scan(
    old: &Connection,
    table: &str,
    key: &[&str],
    columns: &[&str],
    rule: &str,
    values: &[Value],
    take: &mut dyn FnMut(Row),
) -> bool {
    let mut run = |order: &str| -> rusqlite::Result<bool> {
        let by: Vec<String> = key
            .iter()
            .map(|column| format!("{column} {order}"))
            .collect();
        let sql = format!(
            "SELECT {} FROM {table} {rule} ORDER BY {}",
            columns.join(", "),
            by.join(", ")
        );
        let mut statement = old.prepare(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut all = true;
        while let Some(row) = rows.next()? {
            let read: rusqlite::Result<Row> = (0..columns.len())
                .map(|at| row.get::<_, Value>(at))
                .collect();
            match read {
                Ok(row) => take(row),
                // A text that is none.
                Err(_) => all = false,
            }
        }
        Ok(all)
    };
    match run("ASC") {
        Ok(all) => all,
        Err(error) if error.to_string().contains("no such table") => table == "kept",
        Err(_) => {
            let _ = run("DESC");
            false
        }
    }
}

/// Looks for the rows between two damaged places: session by session, and those of a session by their ids.
fn probe(
    old: &Connection,
    new: &Connection,
    table: &str,
    key: &[&str],
    columns: &[&str],
    insert: &mut rusqlite::Statement<'_>,
    incomplete: &mut BTreeSet<i64>,
) -> rusqlite::Result<()> {
    let mut take = |row: Row| {
        let _ = insert.execute(params_from_iter(row));
    };
    if table == "sessions" {
        // The index of the names has the keys, too.
        let mut names: Vec<(String, i64)> = Vec::new();
        for order in ["ASC", "DESC"] {
            let sql = format!(
                "SELECT id, key FROM sessions INDEXED BY sqlite_autoindex_sessions_1 ORDER BY id {order}"
            );
            let read = || -> rusqlite::Result<()> {
                let mut statement = old.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if let (Ok(id), Ok(key)) = (row.get(0), row.get(1)) {
                        names.push((id, key));
                    }
                }
                Ok(())
            };
            let mut read = read;
            let _ = read();
        }
        for (_, key) in &names {
            let key = [Value::Integer(*key)];
            scan(
                old,
                table,
                &["key"],
                columns,
                "WHERE key = ?1",
                &key,
                &mut take,
            );
        }
        for (id, key) in names {
            new.execute(
                "INSERT OR IGNORE INTO sessions (key, id, created_ms, next_id, engine) VALUES (?1, ?2, ?3, 1, '')",
                params![key, id, now_ms()],
            )?;
        }
        return Ok(());
    }
    if table == "kept" {
        return Ok(());
    }
    let keys: Vec<i64> = new
        .prepare("SELECT key FROM sessions")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut probes = PROBES;
    for session in keys {
        let of = [Value::Integer(session)];
        let rule = "WHERE session = ?1";
        if scan(old, table, key, columns, rule, &of, &mut take) {
            continue;
        }
        incomplete.insert(session);
        let number = match table {
            "messages" => "id",
            "texts" => "number",
            _ => continue,
        };
        let last: i64 = new
            .query_row(
                "SELECT max(max(next_id), coalesce((SELECT max(id) FROM messages WHERE session = ?1), 0))
                 FROM sessions WHERE key = ?1",
                [session],
                |row| row.get(0),
            )
            .unwrap_or(0);
        for id in 1..=last.min(probes) {
            probes -= 1;
            let one = [Value::Integer(session), Value::Integer(id)];
            scan(
                old,
                table,
                key,
                columns,
                &format!("WHERE session = ?1 AND {number} = ?2"),
                &one,
                &mut take,
            );
        }
    }
    Ok(())
}

/// Takes out what makes no sense, and what is of no session. Answers how many sessions have lost their names.
fn mend(
    new: &Connection,
    incomplete: &BTreeSet<i64>,
    lost: &mut Vec<String>,
) -> rusqlite::Result<usize> {
    let mut orphans = BTreeSet::new();
    for table in [
        "messages",
        "texts",
        "artifacts",
        "wire",
        "compactions",
        "written",
    ] {
        let rule = "session NOT IN (SELECT key FROM sessions)";
        let mut select = new.prepare(&format!(
            "SELECT DISTINCT session FROM {table} WHERE {rule}"
        ))?;
        let keys = select.query_map([], |row| row.get::<_, i64>(0))?;
        for key in keys {
            orphans.insert(key?);
        }
        new.execute(&format!("DELETE FROM {table} WHERE {rule}"), [])?;
    }
    new.execute(
        "UPDATE sessions SET next_id = max(next_id, 1 + coalesce((SELECT max(id) FROM messages WHERE session = key), 0),
                                           1 + coalesce((SELECT max(id) FROM written WHERE session = key), 0))",
        [],
    )?;
    let sessions: Vec<(i64, String)> = new
        .prepare("SELECT key, id FROM sessions")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (key, id) in sessions {
        mend_session(new, key, &id, incomplete.contains(&key), lost)?;
    }
    Ok(orphans.len())
}

fn mend_session(
    new: &Connection,
    key: i64,
    id: &str,
    mut is_incomplete: bool,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    new.execute(
        "DELETE FROM messages WHERE session = ?1 AND length(identity) <> 16",
        [key],
    )?;
    new.execute(
        "DELETE FROM written WHERE session = ?1 AND length(identity) <> 16",
        [key],
    )?;
    let damaged = forget_damaged(new, key)?.into_iter();
    lost.extend(damaged.map(|what| format!("{what}, of the session `{id}`")));
    for form in [Form::Sent, Form::Handed] {
        // What crossed is told by its place, so that it ends where one is missing.
        while read_trail(new, key, form).is_err() {
            is_incomplete = true;
            let places: Vec<i64> = new
                .prepare("SELECT place FROM wire WHERE session = ?1 AND form = ?2 ORDER BY place")?
                .query_map(params![key, form as i64], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let gap = (0..).zip(&places).find(|(at, place)| *at != **place);
            let end = gap.map_or_else(|| places.len() as i64 / 2, |(at, _)| at);
            new.execute(
                "DELETE FROM wire WHERE session = ?1 AND form = ?2 AND place >= ?3",
                params![key, form as i64, end],
            )?;
        }
    }
    let entries: Result<String, _> = new.query_row(
        "SELECT entries FROM compactions WHERE session = ?1",
        [key],
        |row| row.get(0),
    );
    if entries.is_ok_and(|entries| serde_json::from_str::<SavedWindow>(&entries).is_err()) {
        new.execute("DELETE FROM compactions WHERE session = ?1", [key])?;
        lost.push(format!("the compaction of the session `{id}`"));
    }
    if read_written(new, key, id).is_err() {
        let rows: Vec<(Vec<u8>, i64, String)> = new
            .prepare("SELECT identity, id, covers FROM written WHERE session = ?1")?
            .query_map([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .collect::<Result<_, _>>()?;
        for (identity, message, covers) in rows {
            if serde_json::from_str::<crate::written::IdSet>(&covers).is_err() {
                new.execute(
                    "DELETE FROM written WHERE session = ?1 AND identity = ?2 AND id = ?3",
                    params![key, identity, message],
                )?;
            }
        }
    }
    let broken = broken_link(new, key).unwrap_or_default();
    let lacks_its_end = new.query_row(
        "SELECT coalesce(shown_last, 0) > coalesce((SELECT max(id) FROM messages WHERE session = key AND NOT cut), 0)
                OR engine = '' AND EXISTS (SELECT 1 FROM messages WHERE session = key)
         FROM sessions WHERE key = ?1",
        [key],
        |row| row.get::<_, bool>(0),
    )?;
    if broken.is_none() && !lacks_its_end && !is_incomplete {
        return Ok(());
    }
    // With half of its messages a session would cut off the others that its engine has. An engine that keeps them gives
    // the whole of it back; the text of messages, and what an engine keeps with them, is here alone.
    let has_state = new.query_row(
        "SELECT EXISTS (SELECT 1 FROM texts WHERE session = ?1)
             OR EXISTS (SELECT 1 FROM compactions WHERE session = ?1 AND entries LIKE '%\"states\":[[%')",
        [key],
        |row| row.get::<_, bool>(0),
    )?;
    if !has_state {
        new.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
        lost.push(format!(
            "the session `{id}`, which is taken over from its engine, or begins anew with what its client sends"
        ));
        return Ok(());
    }
    lost.push(format!("some of the messages of the session `{id}`"));
    // From the last message on that does not follow the one before it in the chain, the record is whole.
    new.execute(
        "UPDATE sessions SET recovered = max(coalesce(recovered, 0), ?2),
                engine = CASE engine WHEN '' THEN (SELECT engine FROM compactions WHERE session = key) ELSE engine END
         WHERE key = ?1",
        params![key, broken.unwrap_or_default().0.cast_signed()],
    )?;
    Ok(())
}

/// The last message of a session whose chain hash does not follow from the one before it, where none is known to be lost.
pub(super) fn broken_link(
    connection: &Connection,
    key: i64,
) -> Result<Option<MessageId>, ReadError> {
    let recovered: i64 = connection.query_row(
        "SELECT coalesce(recovered, 0) FROM sessions WHERE key = ?1",
        [key],
        |row| row.get(0),
    )?;
    let mut statement = connection.prepare(
        "SELECT id, identity, chain FROM messages WHERE session = ?1 AND NOT cut ORDER BY id",
    )?;
    let mut rows = statement.query([key])?;
    let (mut chain, mut broken) = (0, None);
    while let Some(row) = rows.next()? {
        let id = message_id(row.get(0)?);
        let identity = u128::from_le_bytes(row.get(1)?);
        let follows = crate::history::chain_link(chain, id, identity);
        chain = row.get::<_, i64>(2)?.cast_unsigned();
        if follows != chain && id > message_id(recovered) {
            broken = Some(id);
        }
    }
    Ok(broken)
}
