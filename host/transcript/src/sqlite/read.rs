//! Reading rows from the tables of the SQLite file.
//!
//! Every function takes a connection and reads one session. Inside the file a session is known by
//! the number of its row, its `key`, which [`key_of`] finds. Other tables have it in the column
//! `session`. Only `kept` has the id there, because its session need not exist.
//!
//! Begin with [`snapshot`], which reads what a session needs when it is opened, and [`dump_of`],
//! which reads everything for a copy. What both backends read alike is in `crate::sql`.
//!
//! Statements are cached by their text. Lists of ids are read with one statement that runs for each
//! id, since a call of SQLite costs microseconds and no round trip.

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::ids::Ids;
use crate::rows::message_id;
use crate::sql::{self, MESSAGE, SESSION, Sql};
use crate::store::{CompactionRow, MessagePage, MessageRow, PageRange, SessionDump, Snapshot};

/// Whether a message is not part of the conversation any more: it was cut off, or has another form.
/// A form that was cut off itself does not count, so the message before it is current again.
pub(super) const IS_OUTDATED: &str =
    "(cut OR EXISTS (SELECT 1 FROM messages later INDEXED BY messages_by_replaced
    WHERE later.session = messages.session AND later.replaces = messages.id AND NOT later.cut))";

/// The rows that a statement returns, each as `read` reads it.
pub(super) fn select<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(values, read)?;
    rows.collect()
}

/// The rows of a session, each as `read` reads it.
pub(super) fn rows_of<T>(
    connection: &Connection,
    sql: &Sql,
    key: i64,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    select(connection, sql.of_file(), [key], read)
}

/// The texts of embedders that are stored with a session, by name.
pub(super) fn kept_with(
    connection: &Connection,
    session: &str,
) -> rusqlite::Result<Vec<(String, String)>> {
    select(connection, sql::KEPT.of_file(), [session], |row| {
        sql::pair(row)
    })
}

/// Everything that is stored of a session. Fails with SQLite's "no rows" error if there is no such
/// session. The caller runs it in a transaction, so that all tables are from one moment.
pub(super) fn dump_of(connection: &Connection, session: &str) -> rusqlite::Result<SessionDump> {
    let (key, snapshot) = snapshot(connection, session)?;
    let (created_ms, used_ms, archived_ms) = connection.query_row(
        "SELECT created_ms, used_ms, archived_ms FROM sessions WHERE key = ?1",
        [key],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    Ok(SessionDump {
        created_ms,
        used_ms,
        archived_ms,
        row: snapshot.session,
        messages: rows_of(connection, &sql::MESSAGES, key, |row| sql::message(row))?,
        texts: rows_of(connection, &sql::TEXTS, key, |row| sql::text(row))?,
        artifacts: rows_of(connection, &sql::ARTIFACTS, key, |row| sql::artifact(row))?,
        wire: snapshot.wire,
        written: snapshot.written,
        compaction: snapshot.compaction,
    })
}

/// The row number of the session with this id, or `None` if there is no such session. The number is
/// never used again, even if the session is deleted.
pub(super) fn key_of(connection: &Connection, session: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT key FROM sessions WHERE id = ?1")?
        .query_row([session], |row| row.get(0))
        .optional()
}

/// Reads a session that must exist. Fails with SQLite's "no rows" error if it does not.
pub(super) fn snapshot(
    connection: &Connection,
    session: &str,
) -> rusqlite::Result<(i64, Snapshot)> {
    let sql = format!("SELECT {SESSION}, key FROM sessions WHERE id = ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let (row, key) = select.query_row([session], |row| Ok((sql::session(row)?, row.get(10)?)))?;
    let snapshot = Snapshot {
        session: row,
        log: rows_of(connection, &sql::MESSAGES_OF_LOG, key, |row| {
            sql::message(row)
        })?,
        wire: rows_of(connection, &sql::WIRE, key, |row| sql::wire(row))?,
        written: rows_of(connection, &sql::WRITTEN, key, |row| sql::written(row))?,
        compaction: compaction(connection, key)?,
    };
    Ok((key, snapshot))
}

/// The messages with these ids whose text is stored, in the order of the ids. Unknown ids are left
/// out.
pub(super) fn messages_of(
    connection: &Connection,
    key: i64,
    ids: &[MessageId],
) -> rusqlite::Result<Vec<MessageRow>> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT {MESSAGE}, {IS_OUTDATED} FROM messages WHERE session = ?1 AND id = ?2 AND wire IS NOT NULL",
    ))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let row = select.query_row([key, id.0.cast_signed()], |row| sql::message(row));
        found.extend(row.optional()?);
    }
    Ok(found)
}

/// The messages of the conversation that share a wire message with one of these ids. Each is
/// returned once, even if several of the ids stand in the same wire message. Ids whose text is not
/// stored are left out.
pub(super) fn messages_sharing(
    connection: &Connection,
    key: i64,
    ids: &[MessageId],
) -> rusqlite::Result<Vec<MessageRow>> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT {MESSAGE}, 0 FROM messages WHERE session = ?1 AND NOT cut
            AND wire = (SELECT wire FROM messages WHERE session = ?1 AND id = ?2) ORDER BY part",
    ))?;
    let (mut found, mut seen) = (Vec::with_capacity(ids.len()), Ids::default());
    for id in ids {
        // Its wire message was read for an earlier id.
        if seen.contains(id) {
            continue;
        }
        for row in select.query_map([key, id.0.cast_signed()], |row| sql::message(row))? {
            let row = row?;
            seen.insert(message_id(row.id));
            found.push(row);
        }
    }
    Ok(found)
}

/// The compaction in force of a session, or `None` if it was never compacted.
pub(super) fn compaction(
    connection: &Connection,
    key: i64,
) -> rusqlite::Result<Option<CompactionRow>> {
    let found = rows_of(connection, &sql::COMPACTION, key, |row| {
        sql::compaction(row)
    })?;
    Ok(found.into_iter().next())
}

/// A page of the messages whose text is stored. Rows are read one by one, and reading stops when
/// the page is full, so the query needs no limit of its own.
pub(super) fn page(
    connection: &Connection,
    key: i64,
    range: PageRange,
) -> rusqlite::Result<MessagePage> {
    let mut select = connection.prepare_cached(&format!(
        "SELECT {MESSAGE}, {IS_OUTDATED}, texts.bytes FROM messages
         JOIN texts ON texts.session = messages.session AND texts.number = messages.wire
         WHERE messages.session = ?1 AND id > ?2 AND (?3 OR NOT {IS_OUTDATED}) ORDER BY id",
    ))?;
    let after = range.after.0.cast_signed();
    let rows = select.query_map(params![key, after, range.outdated], |row| {
        Ok((sql::message(row)?, row.get(11)?))
    })?;
    MessagePage::fill(rows, range)
}
