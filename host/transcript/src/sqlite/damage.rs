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
//! Start with [`RecordError::is_damage`], [`verify`] and [`repair`]. [`Salvage`] reads damaged tables,
//! and [`mended`] makes the rows agree.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use contexture_base::now_ms;
use contexture_engine_api::{make_private, private_file_options, sqlite_file};
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};

use super::read::{dump_of, select};
use super::tables::{PAGE_BYTES, SCHEMA_VERSION, prepare};
use super::write::{restore_session, run};
use super::{FILE, SqliteStore};
use crate::error::RecordError;
use crate::hold::Hold;
use crate::message_log::Logged;
use crate::rows::{self, Damage, broken_link, host_text, logged, message_id, wire_log};
use crate::sql::{self, SESSION, Sql};
use crate::store::{
    ArtifactChange, CompactionRow, DICTIONARY, DICTIONARY_COPY, SessionDump, SessionRow, TextRow,
    WireRow,
};

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

/// Copies what can be read of all sessions, and makes the rows of each agree. What was lost is added
/// to `lost`. If this fails, the new file is of no use, and the old one stays in place.
fn carry_over(
    old: &Connection,
    new: &mut Connection,
    lost: &mut Vec<String>,
) -> rusqlite::Result<()> {
    let transaction = new.transaction()?;
    let mut salvage = Salvage {
        old,
        damaged: BTreeSet::new(),
        is_whole: true,
        probes: PROBES,
    };
    let (mut losses, mut names) = (Vec::new(), HashSet::new());
    let sessions = salvage.sessions();
    let orphans = salvage.orphans(&sessions);
    for (key, (name, mut session)) in sessions {
        // A name is that of one session, unless it is damaged.
        if !names.insert(name.clone()) {
            continue;
        }
        let is_whole = salvage.fill(key, &mut session);
        if let Some(session) = mended(session, &name, !is_whole, &mut losses)? {
            restore_session(&transaction, &name, &session)?;
        }
    }
    let kept = "SELECT session, name, value FROM kept ORDER BY session, name";
    let text = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?));
    for (session, name, value) in salvage.rows("kept", kept, &[], text) {
        let text: (String, String) = (name, value);
        run(&transaction, &*session, sql::of_kept(&[text]))?;
    }
    let tables = salvage.damaged.iter();
    lost.extend(tables.map(|table| format!("rows of the table `{table}`")));
    lost.append(&mut losses);
    if orphans > 0 {
        lost.push(format!(
            "the names of {orphans} sessions, and with them what was recorded of these"
        ));
    }
    transaction.commit()
}

/// Reads what can be read of a damaged record.
struct Salvage<'c> {
    old: &'c Connection,
    /// The tables of which rows were lost.
    damaged: BTreeSet<&'static str>,
    /// Whether nothing was lost since this was set.
    is_whole: bool,
    /// How many more rows may be searched one by one.
    probes: i64,
}

impl Salvage<'_> {
    /// The rows that a query finds, first from the beginning and, if that fails, from the end. A row
    /// may occur twice.
    fn rows<T>(
        &mut self,
        table: &'static str,
        sql: &str,
        values: &[i64],
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Vec<T> {
        let (query, order) = sql.split_once(" ORDER BY ").unwrap_or((sql, "1"));
        let backwards = format!("{query} ORDER BY {} DESC", order.replace(',', " DESC,"));
        let (mut found, mut is_whole) = (Vec::new(), true);
        for sql in [sql, &backwards] {
            let mut run = || -> rusqlite::Result<()> {
                let mut statement = self.old.prepare(sql)?;
                let mut rows = statement.query(params_from_iter(values))?;
                while let Some(row) = rows.next()? {
                    match read(row) {
                        Ok(row) => found.push(row),
                        // A value that does not fit its column. Other rows may be readable.
                        Err(_) => is_whole = false,
                    }
                }
                Ok(())
            };
            if run().is_ok() {
                break;
            }
            // Reading ended at the damaged page. The rows behind it are reached from the other end.
            is_whole = false;
        }
        if !is_whole {
            self.is_whole = false;
            self.damaged.insert(table);
        }
        found
    }

    /// The rows of a session, each once and in the order of its `key`. If the key is the number in
    /// this `column`, which is at most `last`, rows between two damaged pages are searched one by one.
    fn table<T, K: Ord>(
        &mut self,
        (table, sql, session): (&'static str, &Sql, i64),
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
        key: impl Fn(&T) -> K,
        numbers: Option<(&str, i64)>,
    ) -> Vec<T> {
        let was_whole = std::mem::replace(&mut self.is_whole, true);
        let mut rows = self.rows(table, sql.of_file(), &[session], &read);
        if let (false, Some((column, last)), Some((query, order))) = (
            self.is_whole,
            numbers,
            sql.of_file().split_once(" ORDER BY "),
        ) {
            let one = format!("{query} AND {column} = ?2 ORDER BY {order}");
            let last = last.min(self.probes);
            self.probes -= last;
            // A damaged page makes single reads fail too, but only those that meet it.
            rows.extend(
                (0..=last).flat_map(|number| self.rows(table, &one, &[session, number], &read)),
            );
        }
        self.is_whole &= was_whole;
        rows.sort_by_key(&key);
        rows.dedup_by_key(|row| key(row));
        rows
    }

    /// The rows of all sessions with their names, by key.
    fn sessions(&mut self) -> BTreeMap<i64, (String, SessionDump)> {
        let sql =
            format!("SELECT {SESSION}, key, id, created_ms, used_ms, archived_ms FROM sessions");
        let session = |row: &Row<'_>| {
            let session = SessionDump {
                row: sql::session(row)?,
                created_ms: row.get(12)?,
                used_ms: row.get(13)?,
                archived_ms: row.get(14)?,
                ..SessionDump::default()
            };
            Ok((row.get(10)?, (row.get(11)?, session)))
        };
        let all = self.rows("sessions", &format!("{sql} ORDER BY key"), &[], session);
        let mut sessions = BTreeMap::from_iter(all);
        if self.damaged.is_empty() {
            return sessions;
        }
        // The index of the session names is stored on other pages and has the keys too.
        let names =
            "SELECT key, id FROM sessions INDEXED BY sqlite_autoindex_sessions_1 ORDER BY id";
        let name = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        for (key, name) in self.rows("sessions", names, &[], name) {
            let one = format!("{sql} WHERE key = ?1 ORDER BY key");
            let found = self.rows("sessions", &one, &[key], session).pop();
            // If the row itself is lost, a new one with the name and the key keeps the session's
            // other rows.
            sessions.entry(key).or_insert_with(|| match found {
                Some((_, found)) => found,
                None => {
                    let row = SessionRow {
                        next_id: 1,
                        ..SessionRow::default()
                    };
                    let created_ms = now_ms();
                    (
                        name,
                        SessionDump {
                            row,
                            created_ms,
                            ..SessionDump::default()
                        },
                    )
                }
            });
        }
        sessions
    }

    /// How many sessions have lost their names, of which there are other rows.
    fn orphans(&mut self, sessions: &BTreeMap<i64, (String, SessionDump)>) -> usize {
        let tables = [
            "messages", "texts", "artifacts", "wire", "compactions", "written",
        ];
        let mut found: BTreeSet<i64> = BTreeSet::new();
        for table in tables {
            let sql = format!("SELECT DISTINCT session FROM {table} ORDER BY session");
            found.extend(self.rows(table, &sql, &[], |row| row.get::<_, i64>(0)));
        }
        found.retain(|key| !sessions.contains_key(key));
        found.len()
    }

    /// Reads all other rows of a session. Returns whether none was lost.
    fn fill(&mut self, key: i64, session: &mut SessionDump) -> bool {
        self.is_whole = true;
        let row = &mut session.row;
        let (of, numbers) = (("messages", &sql::MESSAGES, key), ("id", row.next_id));
        session.messages = self.table(of, |row| sql::message(row), |row| row.id, Some(numbers));
        let of = ("written", &sql::WRITTEN, key);
        session.written = self.table(
            of,
            |row| sql::written(row),
            |row| (row.id, row.identity),
            None,
        );
        let ids = session.messages.iter().map(|row| row.id);
        let ids = ids.chain(session.written.iter().map(|row| row.id));
        // An id that was given must not be given again.
        row.next_id = row.next_id.max(ids.max().unwrap_or(0) + 1);
        let (of, numbers) = (("texts", &sql::TEXTS, key), ("number", row.next_id));
        session.texts = self.table(of, |row| sql::text(row), |row| row.number, Some(numbers));
        let of = ("artifacts", &sql::ARTIFACTS, key);
        let name = |row: &ArtifactChange| (row.engine.clone(), row.name.clone());
        session.artifacts = self.table(of, |row| sql::artifact(row), name, None);
        let of = ("wire", &sql::WIRE, key);
        session.wire = self.table(of, |row| sql::wire(row), |row| (row.form, row.place), None);
        let of = ("compactions", &sql::COMPACTION, key);
        session.compaction = self
            .table(of, |row| sql::compaction(row), |_| (), None)
            .pop();
        self.is_whole
    }
}

/// Returns a session whose rows agree, or `None` if it is incomplete and can be had elsewhere. What
/// was lost is added to `lost`, a line each.
fn mended(
    mut session: SessionDump,
    id: &str,
    mut is_incomplete: bool,
    lost: &mut Vec<String>,
) -> rusqlite::Result<Option<SessionDump>> {
    let damaged = forget_damaged(&mut session)?.into_iter();
    lost.extend(damaged.map(|what| format!("{what}, of the session `{id}`")));
    for form in FORMS {
        loop {
            // The place of a wire message tells which one it is, so the wire log ends at the first
            // one that is missing.
            let log: Vec<&WireRow> = session.wire.iter().filter(|row| row.form == form).collect();
            if wire_log(log.iter().copied()).is_ok() {
                break;
            }
            is_incomplete = true;
            let gap = (0..).zip(&log).find(|(at, row)| *at != row.place);
            // Without a gap one of the rows itself is broken. Halving finds an end in few steps.
            // What is lost with it, the next request brings again.
            let end = gap.map_or(log.len() as i64 / 2, |(at, _)| at);
            session
                .wire
                .retain(|row| row.form != form || row.place < end);
        }
    }
    let is_broken = |row: &CompactionRow| rows::window(&row.entries, id).is_err();
    if session.compaction.as_ref().is_some_and(is_broken) {
        session.compaction = None;
        lost.push(format!("the compaction of the session `{id}`"));
    }
    session.written.retain(|row| host_text(row, id).is_ok());
    let in_log = session.messages.iter().filter(|row| !row.cut);
    let log: Vec<Logged> = in_log.map(logged).collect();
    let row = &mut session.row;
    let broken = broken_link(&log, message_id(row.recovered.unwrap_or_default()));
    let last = log.last().map_or(0, |last| last.id.0.cast_signed());
    let lacks_its_end = row.shown_last.is_some_and(|shown| shown > last)
        || (row.engine.is_empty() && !session.messages.is_empty());
    if broken.is_none() && !lacks_its_end && !is_incomplete {
        return Ok(Some(session));
    }
    // With only some of its ids, a session would cut off the messages of the others. Without texts
    // and states nothing is lost if it begins anew.
    let compaction = session.compaction.as_ref();
    let has_states = compaction.is_some_and(|row| row.entries.contains("\"states\":[["));
    let has_texts = !session.texts.is_empty() && !session.messages.is_empty();
    if !has_texts && !has_states {
        lost.push(format!(
            "the session `{id}`, which begins anew with what its client sends"
        ));
        return Ok(None);
    }
    lost.push(format!("some of the messages of the session `{id}`"));
    // What the client sent is compared with the messages once more, since some of them are gone.
    session.wire.clear();
    // After the last broken link of the chain, the record is whole. Messages up to it count as
    // recovered. The engine is shown anew what is left.
    let broken = broken.unwrap_or_default().0.cast_signed();
    row.recovered = Some(row.recovered.unwrap_or_default().max(broken));
    (row.shown_last, row.pending_cut) = (None, Some(0));
    if row.engine.is_empty() {
        let of_artifacts = session.artifacts.iter().map(|artifact| &artifact.engine);
        let mut engines = compaction
            .map(|row| &row.engine)
            .into_iter()
            .chain(of_artifacts);
        row.engine = engines
            .find(|engine| !engine.is_empty())
            .cloned()
            .unwrap_or_default();
    }
    Ok(Some(session))
}

/// Removes the damaged texts and artifacts of a session, and makes both copies of its dictionary
/// equal. Returns a description of what was lost, a line each.
fn forget_damaged(session: &mut SessionDump) -> rusqlite::Result<Vec<String>> {
    let mut damage = Damage::of(session);
    let (texts, artifacts) = (&mut session.texts, &mut session.artifacts);
    let mut used = HashSet::from([DICTIONARY]);
    for message in &mut session.messages {
        if damage.texts.contains(&message_id(message.id)) {
            (message.wire, message.part) = (None, None);
        }
        used.extend(message.wire);
    }
    // A text that no message refers to any more only takes up space.
    texts.retain(|text| used.contains(&text.number));
    artifacts.retain(|artifact| {
        !(damage.artifacts.iter())
            .any(|(engine, name)| (engine, name) == (&artifact.engine, &artifact.name))
    });
    if !damage.has_whole_dictionary {
        let (engine, name) = DICTIONARY_COPY;
        texts.retain(|text| text.number != DICTIONARY);
        artifacts.retain(|artifact| artifact.engine != engine || artifact.name != name);
        if let Some(dictionary) = &damage.dictionary {
            let packed = dictionary.packed();
            let text =
                packed.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            artifacts.push(ArtifactChange::dictionary(text.clone()));
            texts.push(TextRow::dictionary(text));
        }
        // One of two copies was no loss.
        damage.has_whole_dictionary = damage.dictionary.is_some();
    }
    Ok(damage.lines())
}
