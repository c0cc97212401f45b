//! Reading rows from the tables of the SQLite file.
//!
//! Every function takes a connection and reads one session. Inside the file a session is known by
//! the number of its row, its `key`, which [`key_of`] finds. Other tables have it in the column
//! `session`. Only `kept` has the id there, because its session need not exist. Rows are returned
//! as [`Store`](crate::store::Store) defines them. Whether they make sense is decided in
//! `crate::rows`.
//!
//! Begin with [`snapshot`], which reads what a session needs when it is opened, and [`dump_of`],
//! which reads everything for a copy. The columns of a message are in [`MESSAGE`], and [`message`]
//! reads them by position: if one changes, the other must too.
//!
//! Statements are cached by their text. Lists of ids are read with one statement that runs for each
//! id, since a call of SQLite costs microseconds and no round trip.

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::ids::Ids;
use crate::rows::message_id;
use crate::store::{
    ArtifactChange, CompactionRow, MessagePage, MessageRow, Packed, PageRange, SessionDump,
    SessionRow, Snapshot, TextRow, WireRow, WrittenRow,
};

/// Whether a message is not part of the conversation any more: it was cut off, or has another form.
/// A form that was cut off itself does not count, so the message before it is current again.
pub(super) const IS_OUTDATED: &str =
    "(cut OR EXISTS (SELECT 1 FROM messages later INDEXED BY messages_by_replaced
    WHERE later.session = messages.session AND later.replaces = messages.id AND NOT later.cut))";

/// The columns of a [`MessageRow`] but the last, which says whether it is outdated. Each query adds
/// that one, or zero if nobody asks, because it takes a search in the index of revisions.
const MESSAGE: &str =
    "id, identity, shape, chain, replaces, said_ms, arrived_ms, messages.wire, part, cut";

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

/// The texts of embedders that are stored with a session, by name.
pub(super) fn kept_with(
    connection: &Connection,
    session: &str,
) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = "SELECT name, value FROM kept WHERE session = ?1 ORDER BY name";
    select(connection, sql, [session], |row| {
        Ok((row.get(0)?, row.get(1)?))
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
    let texts = "SELECT number, format, tools, reading, bytes, checksum, data FROM texts
         WHERE session = ?1 ORDER BY number";
    let artifacts = "SELECT engine, name, bytes, checksum, data FROM artifacts
         WHERE session = ?1 ORDER BY engine, name";
    let artifact = |row: &Row<'_>| {
        Ok::<_, rusqlite::Error>(ArtifactChange {
            engine: row.get(0)?,
            name: row.get(1)?,
            text: Some(packed(row, 2)?),
        })
    };
    let mut written = snapshot.written;
    written.sort_by_key(|row| (row.id, row.identity));
    Ok(SessionDump {
        created_ms,
        used_ms,
        archived_ms,
        row: snapshot.session,
        messages: messages_where(connection, "session = ?1 ORDER BY id", key)?,
        texts: select(connection, texts, [key], text)?,
        artifacts: select(connection, artifacts, [key], artifact)?,
        wire: snapshot.wire,
        written,
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
    let mut select = connection.prepare_cached(
        "SELECT key, next_id, engine, shown_last, pending_cut, compactions, format, recovered, pauses_more,
                pauses_saved, usage
         FROM sessions WHERE id = ?1",
    )?;
    let (key, row) = select.query_row([session], |row| {
        let session = SessionRow {
            next_id: row.get(1)?,
            engine: row.get(2)?,
            shown_last: row.get(3)?,
            pending_cut: row.get(4)?,
            compactions: row.get(5)?,
            format: row.get(6)?,
            recovered: row.get(7)?,
            pauses_more: row.get(8)?,
            pauses_saved: row.get(9)?,
            usage: row.get(10)?,
        };
        Ok((row.get(0)?, session))
    })?;
    let snapshot = Snapshot {
        session: row,
        log: log(connection, key)?,
        wire: wire(connection, key)?,
        written: written(connection, key)?,
        compaction: compaction(connection, key)?,
    };
    Ok((key, snapshot))
}

/// The messages of the conversation, earlier forms included, in the order of arrival.
pub(super) fn log(connection: &Connection, key: i64) -> rusqlite::Result<Vec<MessageRow>> {
    messages_where(connection, "session = ?1 AND NOT cut ORDER BY id", key)
}

/// Messages of a session by a rule, in which `?1` is the key. Whether they are outdated is not
/// computed.
pub(super) fn messages_where(
    connection: &Connection,
    rule: &str,
    key: i64,
) -> rusqlite::Result<Vec<MessageRow>> {
    let sql = format!("SELECT {MESSAGE}, 0 FROM messages WHERE {rule}");
    select(connection, &sql, [key], message)
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
        let row = select.query_row([key, id.0.cast_signed()], message);
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
        for row in select.query_map([key, id.0.cast_signed()], message)? {
            let row = row?;
            seen.insert(message_id(row.id));
            found.push(row);
        }
    }
    Ok(found)
}

/// The wire logs of a session, by form and place.
pub(super) fn wire(connection: &Connection, key: i64) -> rusqlite::Result<Vec<WireRow>> {
    let sql = "SELECT form, place, raw, messages FROM wire WHERE session = ?1 ORDER BY form, place";
    select(connection, sql, [key], |row| {
        Ok(WireRow {
            form: row.get(0)?,
            place: row.get(1)?,
            raw: row.get(2)?,
            messages: row.get(3)?,
        })
    })
}

/// The texts that the host wrote in a session, by id. Shorter forms of one message have the same
/// id, and their order among each other is not defined.
pub(super) fn written(connection: &Connection, key: i64) -> rusqlite::Result<Vec<WrittenRow>> {
    let sql = "SELECT identity, id, shortens, covers FROM written WHERE session = ?1 ORDER BY id";
    select(connection, sql, [key], |row| {
        Ok(WrittenRow {
            identity: row.get(0)?,
            id: row.get(1)?,
            shortens: row.get(2)?,
            covers: row.get(3)?,
        })
    })
}

/// The compaction in force of a session, or `None` if it was never compacted.
pub(super) fn compaction(
    connection: &Connection,
    key: i64,
) -> rusqlite::Result<Option<CompactionRow>> {
    connection
        .query_row(
            "SELECT number, engine, entries FROM compactions WHERE session = ?1",
            [key],
            |row| {
                Ok(CompactionRow {
                    number: row.get(0)?,
                    engine: row.get(1)?,
                    entries: row.get(2)?,
                })
            },
        )
        .optional()
}

/// A message, from a row with the columns [`MESSAGE`] and whether it is outdated.
fn message(row: &Row<'_>) -> rusqlite::Result<MessageRow> {
    Ok(MessageRow {
        id: row.get(0)?,
        identity: row.get(1)?,
        shape: row.get(2)?,
        chain: row.get(3)?,
        replaces: row.get(4)?,
        said_ms: row.get(5)?,
        arrived_ms: row.get(6)?,
        wire: row.get(7)?,
        part: row.get(8)?,
        cut: row.get(9)?,
        is_outdated: row.get(10)?,
    })
}

/// A wire message, from a row with all columns of `texts` but the session, in the order of the
/// table.
pub(super) fn text(row: &Row<'_>) -> rusqlite::Result<TextRow> {
    Ok(TextRow {
        number: row.get(0)?,
        format: row.get(1)?,
        tools: row.get(2)?,
        reading: row.get(3)?,
        text: packed(row, 4)?,
    })
}

/// A text, from a row with the columns `bytes`, `checksum` and `data` from index `at` on.
pub(super) fn packed(row: &Row<'_>, at: usize) -> rusqlite::Result<Packed> {
    Ok(Packed {
        bytes: row.get(at)?,
        checksum: row.get(at + 1)?,
        data: row.get(at + 2)?,
    })
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
        Ok((message(row)?, row.get(11)?))
    })?;
    MessagePage::fill(rows, range)
}
