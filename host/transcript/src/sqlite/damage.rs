//! A damaged record: detecting it, continuing without it, and saving what can be read of it.
//!
//! A damaged file is never written to. [`repair`] reads a copy, carries every readable row
//! over into a new file, removes what does not fit together, and puts the new file in the place of
//! the old one. The copy of the damaged file stays beside it.
//!
//! A session with only some of its messages is dangerous: on the next request it would cut off the
//! others. Such a session is deleted and begins anew with what its client sends, unless the record
//! holds something that is nowhere else.
//!
//! Start with [`RecordError::is_damage`], [`verify`] and [`repair`]. [`scan`] and
//! [`probe`] read damaged tables, and [`mend`] makes the rows agree.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use contexture_base::now_ms;
use contexture_engine_api::{MessageId, make_private, private_file_options, sqlite_file};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};

use super::read::{dump_of, rows_of, select};
use super::tables::{PAGE_BYTES, SCHEMA_VERSION, prepare};
use super::write::run;
use super::{FILE, SqliteStore};
use crate::error::RecordError;
use crate::hold::Hold;
use crate::message_log::Logged;
use crate::packed::Dictionary;
use crate::rows::{self, Damage, broken_link, host_text, logged, message_id, wire_log};
use crate::saved_window::SavedWindow;
use crate::sql::{self, add_text, change_artifact};
use crate::store::{ArtifactChange, DICTIONARY, DICTIONARY_COPY, TextRow};
use crate::wire_log::WireLog;

/// The numbers of the two wire logs, as `record` writes them: what the client sent, and what was
/// rendered for it.
const FORMS: [i64; 2] = [0, 1];
/// The part between the file's name and the time in the name of the copy of a damaged record.
const COPY: &str = "damaged";
/// The size of a SQLite page in a record, in bytes.
const PAGE: u64 = PAGE_BYTES as u64;
/// The most rows of a damaged table that are searched one by one. It bounds the time of a repair if
/// a damaged number claims too many.
const PROBES: i64 = 1_000_000;

/// The tables of a record, with those that others refer to first: the name, the key columns, and
/// the other columns.
const TABLES: [(&str, &[&str], &[&str]); 8] = [
    (
        "sessions",
        &["key"],
        &[
            "id", "created_ms", "used_ms", "archived_ms", "next_id", "engine", "format",
            "shown_last", "pending_cut", "recovered", "pauses_more", "pauses_saved", "compactions",
            "usage",
        ],
    ),
    (
        "messages",
        &["session", "id"],
        &[
            "identity", "shape", "chain", "replaces", "cut", "said_ms", "arrived_ms", "wire",
            "part",
        ],
    ),
    (
        "texts",
        &["session", "number"],
        &["format", "tools", "reading", "bytes", "checksum", "data"],
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
    /// The number of sessions in the repaired record.
    pub sessions: u64,
    /// What could not be read, as one line for each kind of loss.
    pub lost: Vec<String>,
    /// The path of the copy of the damaged file.
    pub copy: PathBuf,
}

impl SqliteStore {
    /// Lets SQLite check the file, then checks what is stored of each session.
    pub(super) fn damage(&self) -> Result<Vec<String>, RecordError> {
        let mut connection = self.lock();
        let path = self.path.display();
        let mut found = Vec::new();
        let fail = |error| RecordError::of(&self.path, error);
        let texts = |connection: &Connection, sql| -> rusqlite::Result<Vec<String>> {
            select(connection, sql, [], |row| row.get(0))
        };
        // Twenty lines are enough to call a file damaged, and the check ends with them.
        let lines = texts(&connection, "PRAGMA integrity_check(20)").map_err(fail)?;
        found.extend(lines.into_iter().filter(|line| line != "ok"));
        // One transaction shows one state, even if sessions are written or deleted meanwhile.
        let transaction = connection.transaction().map_err(fail)?;
        for id in texts(&transaction, "SELECT id FROM sessions ORDER BY key").map_err(fail)? {
            match dump_of(&transaction, &id).map(|dump| rows::problem(&dump, &id)) {
                Ok(None) => {}
                Ok(Some(what)) => found.push(format!("session `{id}`: {what}")),
                Err(error) => match fail(error) {
                    error if error.is_damage() => found.push(format!("session `{id}`: {error}")),
                    error => return Err(error),
                },
            }
        }
        let found = found.into_iter().map(|what| format!("{path}: {what}"));
        Ok(found.collect())
    }
}

/// Checks the file of a home directory. Returns what is wrong with it, a line for each problem.
/// Damage that keeps the file from being opened is one of these lines, and not an error.
pub(crate) fn verify(home: &Path) -> Result<Vec<String>, RecordError> {
    match SqliteStore::open_to_read(home).and_then(|store| store.damage()) {
        Err(error) if error.is_damage() => Ok(vec![error.to_string()]),
        found => found,
    }
}

/// Saves what can be read of a damaged record into a new file, which takes its place. A copy of
/// the damaged file stays beside it, with the time in its name.
///
/// # Errors
/// A session is open, or the files cannot be read or written. The record is then as it was,
/// unless the very last step failed: the log of the old file is then only in the copy.
pub(crate) fn repair(home: &Path) -> Result<RecordRepair, RecordError> {
    // An open session writes to the old file, and this would be lost.
    let _holds = Hold::take_all(home)?;
    let path = home.join(FILE);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| RecordError::Write { path, cause }
    };
    let copy = home.join(format!("{FILE}.{COPY}-{}", now_ms()));
    for suffix in ["", "-wal"] {
        let (from, to) = (sqlite_file(&path, suffix), sqlite_file(&copy, suffix));
        copy_file(&from, &to).map_err(io(&to))?;
    }
    // SQLite moves the log into the file when it opens the database. That must not change the
    // copy that stays, so a second copy is read.
    let folder = tempfile::Builder::new()
        .prefix(".repair-")
        .tempdir_in(home)
        .map_err(io(home))?;
    let read_from = folder.path().join("from.sqlite3");
    let made = folder.path().join(FILE);
    for suffix in ["", "-wal"] {
        let to = sqlite_file(&read_from, suffix);
        copy_file(&sqlite_file(&copy, suffix), &to).map_err(io(&to))?;
    }
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |cause| RecordError::of(&path, cause)
    };
    let mut new = Connection::open(&made).map_err(fail(&made))?;
    prepare(&mut new).map_err(fail(&made))?;
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
    // Closing it moves its log into it, so that it can be moved.
    new.close().map_err(|(_, error)| fail(&made)(error))?;
    let _ = make_private(&made);
    // The log belongs to the old file. SQLite would apply it to the new one.
    for suffix in ["-wal", "-shm"] {
        match std::fs::remove_file(sqlite_file(&path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io(&sqlite_file(&path, suffix))(error));
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

/// Copies a file and syncs the copy. Does nothing if there is no such file.
///
/// # Errors
/// The target exists already, or a file cannot be read or written.
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

/// Opens what can be read of a damaged file. None if no table is found in it.
///
/// The first page names the tables. If it is damaged, the first page of a new record replaces it,
/// because the tables are on the same pages in every record.
fn readable(path: &Path, new: &Path) -> io::Result<Option<Connection>> {
    let open = |reads_rows: bool| -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        // No key is negative. Preparing this reads the schema, and running it the root page of the
        // table.
        let mut probe = connection.prepare("SELECT key FROM sessions WHERE key < 0")?;
        if reads_rows {
            probe.exists([])?;
        }
        drop(probe);
        match version {
            SCHEMA_VERSION => Ok(connection),
            // Any error will do: the caller only asks whether it worked.
            _ => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    };
    if let Ok(connection) = open(true) {
        return Ok(Some(connection));
    }
    let mut file = File::options().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    // The first page has the schema alone, so without a second one there is no row to save.
    if length < 2 * PAGE {
        return Ok(None);
    }
    let mut page = vec![0; PAGE as usize];
    let empty = Connection::open(new.with_file_name("empty.sqlite3"));
    // Without a checkpoint the page would still be in the log.
    let made = empty.and_then(|mut empty| {
        prepare(&mut empty)?;
        empty.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    });
    made.map_err(io::Error::other)?;
    File::open(new.with_file_name("empty.sqlite3"))?.read_exact(&mut page)?;
    // Two parts of the header differ from a new record: the number of pages, and the list of free
    // pages, which is taken as empty.
    let pages = u32::try_from(length / PAGE).unwrap_or(u32::MAX);
    page[28..32].copy_from_slice(&pages.to_be_bytes());
    page[32..40].fill(0);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&page)?;
    drop(file);
    // The page with the sessions may be damaged itself, so reading a row is not required here.
    Ok(open(false).ok())
}

/// The values of a row, key columns first.
type Row = Vec<Value>;

/// Copies the rows of all tables, and makes them agree with each other. What was lost is added to
/// `lost`. If this fails, the new file is of no use, and the old one stays in place.
fn carry_over(
    old: &Connection,
    new: &mut Connection,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let transaction = new.transaction()?;
    // Rows of a lost session would fail their foreign key here. They are deleted at the end.
    transaction.pragma_update(None, "defer_foreign_keys", true)?;
    // The keys of sessions that lost rows.
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
            // The insert fails if a value does not fit its column, which is damage.
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
                old, &transaction, table, key, &columns, &mut insert, &mut incomplete,
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

/// Passes all readable rows of a table to `take`, first from the beginning and, if that fails, from
/// the end. Returns whether these are all rows. A row may be passed twice.
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
                // A text that is not valid UTF-8. Other rows may still be readable.
                Err(_) => all = false,
            }
        }
        Ok(all)
    };
    match run("ASC") {
        Ok(all) => all,
        // Reading ended at the damaged page. The rows behind it are reached from the other end.
        Err(_) => {
            let _ = run("DESC");
            false
        }
    }
}

/// Searches for rows between two damaged pages, which a scan from both ends does not reach. It
/// reads session by session, and within a session id by id.
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
        // The index of the session names is stored on other pages and has the keys too.
        let mut names: Vec<(String, i64)> = Vec::new();
        for order in ["ASC", "DESC"] {
            let sql = format!(
                "SELECT id, key FROM sessions INDEXED BY sqlite_autoindex_sessions_1 ORDER BY id {order}"
            );
            let mut read = || -> rusqlite::Result<()> {
                let mut statement = old.prepare(&sql)?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    if let (Ok(id), Ok(key)) = (row.get(0), row.get(1)) {
                        names.push((id, key));
                    }
                }
                Ok(())
            };
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
            // If the row itself is lost, a new one with the name and the key keeps the session's
            // other rows.
            new.execute(
                "INSERT OR IGNORE INTO sessions (key, id, created_ms, next_id, engine) VALUES (?1, ?2, ?3, 1, '')",
                params![key, id, now_ms()],
            )?;
        }
        return Ok(());
    }
    // Its keys are texts, which cannot be tried one after the other.
    if table == "kept" {
        return Ok(());
    }
    let keys: Vec<i64> = select(new, "SELECT key FROM sessions", [], |row| row.get(0))?;
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
        // A damaged page makes single reads fail too, but only those that meet it.
        for id in 0..=last.min(probes) {
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

/// Deletes rows that belong to no session or make no sense. Returns how many sessions have lost
/// their names.
fn mend(
    new: &Connection,
    incomplete: &BTreeSet<i64>,
    lost: &mut Vec<String>,
) -> rusqlite::Result<usize> {
    let mut orphans = BTreeSet::new();
    for table in [
        "messages", "texts", "artifacts", "wire", "compactions", "written",
    ] {
        let rule = "session NOT IN (SELECT key FROM sessions)";
        let sql = format!("SELECT DISTINCT session FROM {table} WHERE {rule}");
        orphans.extend(select(new, &sql, [], |row| row.get::<_, i64>(0))?);
        new.execute(&format!("DELETE FROM {table} WHERE {rule}"), [])?;
    }
    // An id that was given must not be given again.
    new.execute(
        "UPDATE sessions SET next_id = max(next_id, 1 + coalesce((SELECT max(id) FROM messages WHERE session = key), 0),
                                           1 + coalesce((SELECT max(id) FROM written WHERE session = key), 0))",
        [],
    )?;
    let sessions = select(new, "SELECT key, id FROM sessions", [], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?))
    })?;
    for (key, id) in sessions {
        mend_session(new, key, &id, incomplete.contains(&key), lost)?;
    }
    Ok(orphans.len())
}

/// Makes the rows of one session agree, or deletes the session if it is incomplete and can be had
/// elsewhere. What was lost is added to `lost`, a line each.
fn mend_session(
    new: &Connection,
    key: i64,
    id: &str,
    mut is_incomplete: bool,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    // An identity of another length cannot be read at all, and would make every reader of the
    // session fail.
    new.execute(
        "DELETE FROM messages WHERE session = ?1 AND length(identity) <> 16",
        [key],
    )?;
    new.execute(
        "DELETE FROM written WHERE session = ?1 AND length(identity) <> 16",
        [key],
    )?;
    let damaged = forget_damaged(new, key, id)?.into_iter();
    lost.extend(damaged.map(|what| format!("{what}, of the session `{id}`")));
    for form in FORMS {
        // The place of a wire message tells which one it is, so the wire log ends at the first one
        // that is missing.
        while wire_log_of(new, key, form)?.is_err() {
            is_incomplete = true;
            let sql = "SELECT place FROM wire WHERE session = ?1 AND form = ?2 ORDER BY place";
            let places: Vec<i64> = select(new, sql, [key, form], |row| row.get(0))?;
            let gap = (0..).zip(&places).find(|(at, place)| *at != **place);
            // Without a gap one of the rows itself is broken. Halving finds an end in few steps.
            // What is lost with it, the next request brings again.
            let end = gap.map_or_else(|| places.len() as i64 / 2, |(at, _)| at);
            new.execute(
                "DELETE FROM wire WHERE session = ?1 AND form = ?2 AND place >= ?3",
                params![key, form, end],
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
    for text in rows_of(new, &sql::WRITTEN, key, |row| sql::written(row))? {
        if host_text(&text, id).is_err() {
            new.execute(
                "DELETE FROM written WHERE session = ?1 AND identity = ?2 AND id = ?3",
                params![key, text.identity, text.id],
            )?;
        }
    }
    let broken = broken_link_of(new, key).unwrap_or_default();
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
    // With only some of its ids, a session would cut off the messages of the others. Without texts
    // and states nothing is lost if it begins anew.
    let has_state = new.query_row(
        "SELECT EXISTS (SELECT 1 FROM texts WHERE session = ?1) AND EXISTS (SELECT 1 FROM messages WHERE session = ?1)
             OR EXISTS (SELECT 1 FROM compactions WHERE session = ?1 AND entries LIKE '%\"states\":[[%')",
        [key],
        |row| row.get::<_, bool>(0),
    )?;
    if !has_state {
        new.execute("DELETE FROM sessions WHERE key = ?1", [key])?;
        lost.push(format!(
            "the session `{id}`, which begins anew with what its client sends"
        ));
        return Ok(());
    }
    lost.push(format!("some of the messages of the session `{id}`"));
    // What the client sent is compared with the messages once more, since some of them are gone.
    new.execute("DELETE FROM wire WHERE session = ?1", [key])?;
    // After the last broken link of the chain, the record is whole. Messages up to it count as
    // recovered. The engine is shown anew what is left.
    new.execute(
        "UPDATE sessions SET recovered = max(coalesce(recovered, 0), ?2), shown_last = NULL, pending_cut = 0,
                engine = coalesce(nullif(engine, ''), (SELECT engine FROM compactions WHERE session = key),
                                  (SELECT engine FROM artifacts WHERE session = key AND engine <> '' LIMIT 1), '')
         WHERE key = ?1",
        params![key, broken.unwrap_or_default().0.cast_signed()],
    )?;
    Ok(())
}

/// A wire log of a session, or what is wrong with it. The outer error is one of reading the rows.
fn wire_log_of(
    connection: &Connection,
    key: i64,
    form: i64,
) -> rusqlite::Result<Result<WireLog, String>> {
    let rows = rows_of(connection, &sql::WIRE, key, |row| sql::wire(row))?;
    Ok(wire_log(rows.iter().filter(|row| row.form == form)))
}

/// The last message of a session whose chain hash does not follow from the message before it.
/// Messages that an earlier repair accepted are not checked.
fn broken_link_of(connection: &Connection, key: i64) -> rusqlite::Result<Option<MessageId>> {
    let recovered: i64 = connection.query_row(
        "SELECT coalesce(recovered, 0) FROM sessions WHERE key = ?1",
        [key],
        |row| row.get(0),
    )?;
    let log = rows_of(connection, &sql::MESSAGES_OF_LOG, key, |row| {
        sql::message(row)
    })?;
    let log: Vec<Logged> = log.iter().map(logged).collect();
    Ok(broken_link(&log, message_id(recovered)))
}

/// Deletes the damaged texts and artifacts of a session. Returns a description of what was lost, a
/// line each.
fn forget_damaged(
    connection: &Connection,
    session: i64,
    id: &str,
) -> rusqlite::Result<Vec<String>> {
    let mut damage = Damage::of(&dump_of(connection, id)?);
    for id in &damage.texts {
        connection.execute(
            "UPDATE messages SET wire = NULL, part = NULL WHERE session = ?1 AND id = ?2",
            [session, id.0.cast_signed()],
        )?;
    }
    // A text that no message refers to any more only takes up space.
    connection.execute(
        "DELETE FROM texts WHERE session = ?1 AND number <> ?2 AND number NOT IN
            (SELECT wire FROM messages WHERE session = ?1 AND wire IS NOT NULL)",
        [session, DICTIONARY],
    )?;
    for (engine, name) in &damage.artifacts {
        connection.execute(
            "DELETE FROM artifacts WHERE session = ?1 AND engine = ?2 AND name = ?3",
            params![session, engine, name],
        )?;
    }
    if !damage.has_whole_dictionary {
        mend_dictionary(connection, session, damage.dictionary.as_ref())?;
        // One of two copies was no loss.
        damage.has_whole_dictionary = damage.dictionary.is_some();
    }
    Ok(damage.lines())
}

/// Stores both copies of the dictionary of a session anew, or deletes them if neither could be read.
fn mend_dictionary(
    connection: &Connection,
    session: i64,
    dictionary: Option<&Dictionary>,
) -> rusqlite::Result<()> {
    let (engine, name) = DICTIONARY_COPY;
    connection.execute(
        "DELETE FROM texts WHERE session = ?1 AND number = ?2",
        [session, DICTIONARY],
    )?;
    connection.execute(
        "DELETE FROM artifacts WHERE session = ?1 AND engine = ?2 AND name = ?3",
        params![session, engine, name],
    )?;
    let packed = dictionary.map(Dictionary::packed).transpose();
    let packed = packed.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let Some(packed) = packed else {
        return Ok(());
    };
    let copy = ArtifactChange::dictionary(packed.clone());
    let text = TextRow::dictionary(packed);
    let both = [change_artifact(&copy), add_text(text.number, &text)];
    run(connection, session, both)
}
