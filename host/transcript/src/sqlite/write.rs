//! Writing rows to the tables of the SQLite file, within a transaction that the caller commits.
//!
//! [`write_commit`] writes what a turn changed, and [`restore_session`] a whole session that comes
//! from another store. The other functions write one table each and serve both.
//!
//! A list is written from the first place that differs, and the rest of the stored list is
//! replaced. So a turn that only appends to a long conversation writes a few rows. Nothing here
//! checks what it writes: the rows come from `crate::record`.
//!
//! The session is known by its key, the number of its row. Only [`write_kept`] takes its name,
//! because texts of embedders may be there before the session.

use rusqlite::{Connection, params};

use crate::store::{
    ArtifactChange, Commit, CompactionRow, LogEnd, NewTextRow, SessionDump, TextRow, WireEnd,
    WrittenRow,
};

/// Stores a session that is not there. If one of this name exists, the insert fails, so the caller
/// deletes it first in the same transaction. Numbers of texts and ids of messages stay as they are,
/// since other rows refer to them. The session gets a new key.
pub(super) fn restore_session(
    transaction: &Connection,
    session: &str,
    dump: &SessionDump,
) -> rusqlite::Result<()> {
    let row = &dump.row;
    transaction.execute(
        "INSERT INTO sessions (id, created_ms, used_ms, archived_ms, next_id, engine, format, shown_last,
             pending_cut, recovered, pauses_more, pauses_saved, compactions, usage)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            session,
            dump.created_ms,
            dump.used_ms,
            dump.archived_ms,
            row.next_id,
            row.engine,
            row.format,
            row.shown_last,
            row.pending_cut,
            row.recovered,
            row.pauses_more,
            row.pauses_saved,
            row.compactions,
            row.usage,
        ],
    )?;
    let key = transaction.last_insert_rowid();
    let mut insert = transaction.prepare_cached(
        "INSERT INTO messages (session, id, identity, shape, chain, replaces, cut, said_ms, arrived_ms, wire, part)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    for message in &dump.messages {
        insert.execute(params![
            key, message.id, message.identity, message.shape, message.chain, message.replaces,
            message.cut, message.said_ms, message.arrived_ms, message.wire, message.part,
        ])?;
    }
    for row in &dump.texts {
        insert_text(transaction, key, row.number, row)?;
    }
    write_artifacts(transaction, key, &dump.artifacts)?;
    for wires in dump.wire.chunk_by(|one, next| one.form == next.form) {
        let end = WireEnd {
            form: wires.first().map_or(0, |wire| wire.form),
            from: 0,
            wires: wires.to_vec(),
        };
        write_wires(transaction, key, &end)?;
    }
    for text in &dump.written {
        insert_written(transaction, key, text)?;
    }
    match &dump.compaction {
        Some(compaction) => insert_compaction(transaction, key, compaction),
        None => Ok(()),
    }
}

/// Writes a commit. If the session was deleted since it was opened, nothing is written: there is no
/// row to update, and the foreign keys refuse new rows.
pub(super) fn write_commit(
    transaction: &Connection,
    key: i64,
    commit: &Commit,
) -> rusqlite::Result<()> {
    let session = &commit.session;
    transaction
        .prepare_cached(
            "UPDATE sessions SET next_id = ?2, format = ?3, compactions = max(compactions, ?4),
                 recovered = ?5, pauses_more = ?6, pauses_saved = ?7, usage = ?8,
                 used_ms = ?9, archived_ms = NULL
             WHERE key = ?1",
        )?
        .execute(params![
            key, session.next_id, session.format, session.compactions, session.recovered,
            session.pauses_more, session.pauses_saved, session.usage, commit.now_ms,
        ])?;
    if commit.moves_cursor {
        transaction
            .prepare_cached(
                "UPDATE sessions SET engine = ?2, shown_last = ?3, pending_cut = ?4 WHERE key = ?1",
            )?
            .execute(params![
                key, session.engine, session.shown_last, session.pending_cut
            ])?;
    }
    // The log is written before the texts, because a text is noted in the rows of its messages.
    if let Some(log) = &commit.log {
        write_log(transaction, key, log, commit.now_ms)?;
    }
    if let Some(dictionary) = &commit.dictionary {
        let row = TextRow::dictionary(dictionary.clone());
        insert_text(transaction, key, row.number, &row)?;
    }
    write_texts(transaction, key, &commit.texts)?;
    write_artifacts(transaction, key, &commit.artifacts)?;
    for end in &commit.wires {
        write_wires(transaction, key, end)?;
    }
    // Before the new texts, which would be deleted with the old ones otherwise.
    if commit.forgot {
        transaction.execute("DELETE FROM written WHERE session = ?1", [key])?;
    }
    for text in &commit.written {
        insert_written(transaction, key, text)?;
    }
    match &commit.compaction {
        None => {}
        Some(None) => {
            transaction.execute("DELETE FROM compactions WHERE session = ?1", [key])?;
        }
        Some(Some(compaction)) => insert_compaction(transaction, key, compaction)?,
    }
    Ok(())
}

/// Stores texts of embedders with a session, each in place of the one with its name.
pub(super) fn write_kept(
    transaction: &Connection,
    session: &str,
    texts: &[(impl AsRef<str>, impl AsRef<str>)],
) -> rusqlite::Result<()> {
    // `INSERT OR REPLACE` would move the row to the end of the table, and write more pages.
    let mut insert = transaction.prepare_cached(
        "INSERT INTO kept (session, name, value) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET value = excluded.value",
    )?;
    for (name, value) in texts {
        insert.execute([session, name.as_ref(), value.as_ref()])?;
    }
    Ok(())
}

/// Stores a text of the host. If the same text is there for the same message, it gets the new
/// extent.
fn insert_written(transaction: &Connection, key: i64, text: &WrittenRow) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO written (session, identity, id, shortens, covers)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            key, text.identity, text.id, text.shortens, text.covers
        ])?;
    Ok(())
}

/// Puts a compaction in force, in place of the one before. There is one row for each session:
/// earlier windows are of no use, because a window is always whole.
fn insert_compaction(
    transaction: &Connection,
    key: i64,
    compaction: &CompactionRow,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT OR REPLACE INTO compactions (session, number, engine, entries) VALUES (?1, ?2, ?3, ?4)",
        params![
            key,
            compaction.number,
            compaction.engine,
            compaction.entries
        ],
    )?;
    Ok(())
}

/// Stored messages after the end's beginning are marked as cut, or deleted if their text is not
/// stored. Those that are still in the log are then inserted again, with the time at which they
/// first arrived.
fn write_log(
    transaction: &Connection,
    key: i64,
    log: &LogEnd,
    now_ms: i64,
) -> rusqlite::Result<()> {
    for cut in [
        // Without its text, a message that was cut off is a hash that nobody can look up.
        "DELETE FROM messages WHERE session = ?1 AND id > ?2 AND wire IS NULL",
        "UPDATE messages SET cut = 1 WHERE session = ?1 AND id > ?2",
    ] {
        transaction.prepare_cached(cut)?.execute([key, log.kept])?;
    }
    // A message keeps its text only if its content is still the same.
    let mut insert = transaction.prepare_cached(
        "INSERT INTO messages (session, id, identity, shape, chain, replaces, arrived_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT DO UPDATE SET identity = excluded.identity, shape = excluded.shape, chain = excluded.chain,
                                   replaces = excluded.replaces, cut = 0,
                                   wire = CASE identity WHEN excluded.identity THEN wire END",
    )?;
    for message in &log.messages {
        insert.execute(params![
            key, message.id, message.identity, message.shape, message.chain, message.replaces,
            now_ms,
        ])?;
    }
    Ok(())
}

/// Stores wire messages, and notes with each message which of them holds it. They are numbered from
/// the highest number on. A time that is known stays if the message comes again without one.
fn write_texts(transaction: &Connection, key: i64, texts: &[NewTextRow]) -> rusqlite::Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let mut number: i64 = transaction.query_row(
        "SELECT coalesce(max(number), 0) FROM texts WHERE session = ?1",
        [key],
        |row| row.get(0),
    )?;
    let mut place = transaction.prepare_cached(
        "UPDATE messages SET wire = ?3, part = ?4, said_ms = coalesce(?5, said_ms) WHERE session = ?1 AND id = ?2",
    )?;
    for new in texts {
        number += 1;
        insert_text(transaction, key, number, &new.row)?;
        for part in &new.parts {
            place.execute(params![key, part.id, number, part.part, part.said_ms])?;
        }
    }
    Ok(())
}

/// Stores one wire message under a number that must be free.
pub(super) fn insert_text(
    transaction: &Connection,
    key: i64,
    number: i64,
    row: &TextRow,
) -> rusqlite::Result<()> {
    let text = &row.text;
    transaction
        .prepare_cached(
            "INSERT INTO texts (session, number, format, tools, reading, bytes, checksum, data)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            key, number, row.format, row.tools, row.reading, text.bytes, text.checksum, text.data
        ])?;
    Ok(())
}

/// Stores artifacts in place of those with the same names, and deletes those that have no text.
/// Deleting one that does not exist is no error.
pub(super) fn write_artifacts(
    transaction: &Connection,
    key: i64,
    artifacts: &[ArtifactChange],
) -> rusqlite::Result<()> {
    for ArtifactChange { engine, name, text } in artifacts {
        match text {
            Some(text) => transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO artifacts (session, engine, name, bytes, checksum, data)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    key,
                    engine,
                    name,
                    text.bytes,
                    text.checksum,
                    text.data
                ])?,
            None => transaction
                .prepare_cached(
                    "DELETE FROM artifacts WHERE session = ?1 AND engine = ?2 AND name = ?3",
                )?
                .execute(params![key, engine, name])?,
        };
    }
    Ok(())
}

/// Writes a wire log from a place on, in place of what is stored there. What comes before that
/// place is not touched.
fn write_wires(transaction: &Connection, key: i64, end: &WireEnd) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("DELETE FROM wire WHERE session = ?1 AND form = ?2 AND place >= ?3")?
        .execute(params![key, end.form, end.from])?;
    let mut insert = transaction.prepare_cached(
        "INSERT INTO wire (session, form, place, raw, messages) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for wire in &end.wires {
        insert.execute(params![key, wire.form, wire.place, wire.raw, wire.messages])?;
    }
    Ok(())
}
