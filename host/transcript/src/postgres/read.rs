//! Reading rows from the tables of PostgreSQL.
//!
//! Every function reads one session of one tenant and returns rows as
//! [`Store`](crate::store::Store) defines them. What the rows mean, and whether they make sense, is
//! decided in `crate::rows`. So nothing here fails because of a strange value, except if a column
//! has the wrong type.
//!
//! Begin with [`snapshot`], which reads what a session needs when it is opened, and [`dump_of`],
//! which reads everything for a copy. Both need several statements, so they take a transaction that
//! shows one state: [`read_only`] makes it. The columns of a message are in [`MESSAGE`], and
//! [`message`] reads them by position: if one changes, the other must too.
//!
//! [`query`] and its neighbours run a statement. It is prepared once for each connection and then
//! reused, which saves a round trip each time.

use deadpool_postgres::{GenericClient, Object, Transaction};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

use super::Key;
use super::connection::Failure;
use crate::store::{
    ArtifactChange, CompactionRow, MessageRow, Packed, SessionDump, SessionRow, Snapshot, TextRow,
    WireRow, WrittenRow,
};

/// The columns of a [`MessageRow`] but the last, which says whether it is outdated. That one is
/// expensive to find out, so each query adds it, or `false` if nobody asks.
pub(super) const MESSAGE: &str = "m.id, m.identity, m.shape, m.chain, m.replaces, m.said_ms, m.arrived_ms, m.wire, m.part, m.cut";

/// Whether a message is not part of the conversation any more: it was cut off, or has another form.
/// A form that was cut off itself does not count, so the message before it is current again.
pub(super) const IS_OUTDATED: &str = "(m.cut OR EXISTS (SELECT 1 FROM contexture.messages later
    WHERE later.tenant = m.tenant AND later.session = m.session AND later.replaces = m.id AND NOT later.cut))";

/// The values of a statement, in the order of its parameters.
type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The rows that a statement returns.
pub(super) async fn query(
    client: &impl GenericClient,
    sql: &str,
    values: Values<'_>,
) -> Result<Vec<Row>, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, values).await?)
}

/// The row that a statement returns, if it returns one.
pub(super) async fn query_opt(
    client: &impl GenericClient,
    sql: &str,
    values: Values<'_>,
) -> Result<Option<Row>, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_opt(&statement, values).await?)
}

/// The row that a statement returns. Fails if it returns none.
pub(super) async fn query_one(
    client: &impl GenericClient,
    sql: &str,
    values: Values<'_>,
) -> Result<Row, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query_one(&statement, values).await?)
}

/// Runs a statement. Returns how many rows it changed.
pub(super) async fn execute(
    client: &impl GenericClient,
    sql: &str,
    values: Values<'_>,
) -> Result<u64, Failure> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, values).await?)
}

/// A query for messages by a rule on the columns of `m`. Whether they are outdated is not computed.
pub(super) fn messages_where(rule: &str) -> String {
    // All queries of one method are called with the same parameters, and PostgreSQL refuses a value
    // for a parameter that the statement does not have.
    // The third parameter is that of the other queries.
    format!(
        "SELECT {MESSAGE}, false FROM contexture.messages m
         WHERE m.tenant = $1 AND m.session = $2 AND $3::bigint[] IS NOT NULL AND {rule}"
    )
}

/// Rows of two text columns as pairs.
pub(super) fn pairs(rows: &[Row]) -> Result<Vec<(String, String)>, Failure> {
    let pairs = rows
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    pairs.collect()
}

/// Whether there is a session. Asked only if a query found no rows, to tell an empty session from
/// none.
pub(super) async fn exists(client: &Object, key: &Key) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let row = query_opt(client, sql, &[&key.tenant, &key.session]).await?;
    Ok(row.is_some())
}

/// A message, from a row with the columns [`MESSAGE`] and whether it is outdated.
pub(super) fn message(row: &Row) -> Result<MessageRow, Failure> {
    Ok(MessageRow {
        id: row.try_get(0)?,
        identity: identity(row.try_get(1)?),
        shape: row.try_get(2)?,
        chain: row.try_get(3)?,
        replaces: row.try_get(4)?,
        said_ms: row.try_get(5)?,
        arrived_ms: row.try_get(6)?,
        wire: row.try_get(7)?,
        part: row.try_get(8)?,
        cut: row.try_get(9)?,
        is_outdated: row.try_get(10)?,
    })
}

/// The 16 bytes of an identity. One of another length is damaged, and becomes sixteen zeros, which
/// are equal to no message's identity. The message then counts as another one.
fn identity(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().unwrap_or_default()
}

/// A wire message, from a row with all columns of `texts` but tenant and session, in the order of
/// the table.
pub(super) fn text(row: &Row) -> Result<TextRow, Failure> {
    Ok(TextRow {
        number: row.try_get(0)?,
        format: row.try_get(1)?,
        tools: row.try_get(2)?,
        reading: row.try_get(3)?,
        text: packed(row, 4)?,
    })
}

/// A text, from a row with the columns `bytes`, `checksum` and `data` from index `at` on.
pub(super) fn packed(row: &Row, at: usize) -> Result<Packed, Failure> {
    Ok(Packed {
        bytes: row.try_get(at)?,
        checksum: row.try_get(at + 1)?,
        data: row.try_get(at + 2)?,
    })
}

/// The compaction in force of a session. None if there is none, or no such session.
pub(super) async fn compaction(
    client: &impl GenericClient,
    key: &Key,
) -> Result<Option<CompactionRow>, Failure> {
    let sql = "SELECT number, engine, entries FROM contexture.compactions WHERE tenant = $1 AND session = $2";
    let row = query_opt(client, sql, &[&key.tenant, &key.session]).await?;
    let compaction = row.map(|row| {
        Ok(CompactionRow {
            number: row.try_get(0)?,
            engine: row.try_get(1)?,
            entries: row.try_get(2)?,
        })
    });
    compaction.transpose()
}

/// Reads a session as of one moment, with the number of its commits. Fails if there is no such
/// session. Texts and artifacts are not read: they may be large, and opening a session needs none
/// of them.
pub(super) async fn snapshot(
    transaction: &Transaction<'_>,
    key: &Key,
) -> Result<(i64, Snapshot), Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    let sql = "SELECT commits, next_id, engine, format, shown_last, pending_cut, recovered, pauses_more, pauses_saved,
               compactions, usage
               FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let row = query_one(transaction, sql, &[tenant, session]).await?;
    let commits = row.try_get(0)?;
    let row = SessionRow {
        next_id: row.try_get(1)?,
        engine: row.try_get(2)?,
        format: row.try_get(3)?,
        shown_last: row.try_get(4)?,
        pending_cut: row.try_get(5)?,
        recovered: row.try_get(6)?,
        pauses_more: row.try_get(7)?,
        pauses_saved: row.try_get(8)?,
        compactions: row.try_get(9)?,
        usage: row.try_get(10)?,
    };
    let none: [i64; 0] = [];
    let log = query(
        transaction,
        &messages_where("NOT m.cut ORDER BY m.id"),
        &[tenant, session, &none.as_slice()],
    )
    .await?;
    let sql =
        "SELECT form, place, raw, messages FROM contexture.wire WHERE tenant = $1 AND session = $2
               ORDER BY form, place";
    let wire = query(transaction, sql, &[tenant, session]).await?;
    let sql = "SELECT identity, id, shortens, covers FROM contexture.written WHERE tenant = $1 AND session = $2
               ORDER BY id, identity";
    let written = query(transaction, sql, &[tenant, session]).await?;
    let snapshot = Snapshot {
        session: row,
        log: log.iter().map(message).collect::<Result<_, _>>()?,
        wire: (wire.iter())
            .map(|row| {
                Ok::<_, Failure>(WireRow {
                    form: row.try_get(0)?,
                    place: row.try_get(1)?,
                    raw: row.try_get(2)?,
                    messages: row.try_get(3)?,
                })
            })
            .collect::<Result<_, _>>()?,
        written: (written.iter())
            .map(|row| {
                Ok::<_, Failure>(WrittenRow {
                    identity: identity(row.try_get(0)?),
                    id: row.try_get(1)?,
                    shortens: row.try_get(2)?,
                    covers: row.try_get(3)?,
                })
            })
            .collect::<Result<_, _>>()?,
        compaction: compaction(transaction, key).await?,
    };
    Ok((commits, snapshot))
}

/// A transaction that shows one state and writes nothing. Without it each statement would see what
/// others committed since the one before, and a session could have messages without the compaction
/// that covers them.
pub(super) async fn read_only(client: &mut Object) -> Result<Transaction<'_>, Failure> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true);
    Ok(transaction.start().await?)
}

/// The texts of embedders that are stored with a session, by name.
pub(super) async fn kept_with(
    client: &impl GenericClient,
    key: &Key,
) -> Result<Vec<(String, String)>, Failure> {
    let sql =
        "SELECT name, value FROM contexture.kept WHERE tenant = $1 AND session = $2 ORDER BY name";
    let rows = query(client, sql, &[&key.tenant, &key.session]).await?;
    pairs(&rows)
}

/// Everything that is stored of a session. None if there is no such session. All texts are in
/// memory afterwards, so a copy needs about as much memory as the session has in the database.
pub(super) async fn dump_of(
    transaction: &Transaction<'_>,
    key: &Key,
) -> Result<Option<SessionDump>, Failure> {
    let (tenant, session) = (&key.tenant, &key.session);
    let sql = "SELECT created_ms, used_ms, archived_ms FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let Some(times) = query_opt(transaction, sql, &[tenant, session]).await? else {
        return Ok(None);
    };
    let (_, snapshot) = snapshot(transaction, key).await?;
    let none: [i64; 0] = [];
    // The snapshot has only the messages of the conversation. A copy must have those that were cut
    // off too, since their texts are in the transcript.
    let messages = query(
        transaction,
        &messages_where("true ORDER BY m.id"),
        &[tenant, session, &none.as_slice()],
    )
    .await?;
    let sql = "SELECT number, format, tools, reading, bytes, checksum, data FROM contexture.texts
               WHERE tenant = $1 AND session = $2 ORDER BY number";
    let texts = query(transaction, sql, &[tenant, session]).await?;
    let sql = "SELECT engine, name, bytes, checksum, data FROM contexture.artifacts
               WHERE tenant = $1 AND session = $2 ORDER BY engine, name";
    let artifacts = query(transaction, sql, &[tenant, session]).await?;
    let artifact = |row: &Row| {
        Ok::<_, Failure>(ArtifactChange {
            engine: row.try_get(0)?,
            name: row.try_get(1)?,
            text: Some(packed(row, 2)?),
        })
    };
    Ok(Some(SessionDump {
        created_ms: times.try_get(0)?,
        used_ms: times.try_get(1)?,
        archived_ms: times.try_get(2)?,
        row: snapshot.session,
        messages: messages.iter().map(message).collect::<Result<_, _>>()?,
        texts: texts.iter().map(text).collect::<Result<_, _>>()?,
        artifacts: artifacts.iter().map(artifact).collect::<Result<_, _>>()?,
        wire: snapshot.wire,
        written: snapshot.written,
        compaction: snapshot.compaction,
    }))
}
