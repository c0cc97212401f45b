//! Reading rows from the tables of PostgreSQL.
//!
//! Every function reads one session of one tenant. Begin with [`snapshot`], which reads what a
//! session needs when it is opened, and [`dump_of`], which reads everything for a copy. Both need
//! several statements, so they take a transaction that shows one state: [`read_only`] makes it. What
//! both backends read alike is in `crate::sql`.
//!
//! [`query`] and its neighbours run a statement. It is prepared once for each connection and then
//! reused, which saves a round trip each time.

use deadpool_postgres::{GenericClient, Object, Transaction};
use tokio_postgres::types::ToSql;
use tokio_postgres::{IsolationLevel, Row};

use super::Key;
use super::connection::Failure;
use crate::sql::{self, Column, Columns, SESSION, Sql};
use crate::store::{CompactionRow, SessionDump, Snapshot};

/// Whether a message is not part of the conversation any more: it was cut off, or has another form.
/// A form that was cut off itself does not count, so the message before it is current again.
pub(super) const IS_OUTDATED: &str = "(messages.cut OR EXISTS (SELECT 1 FROM contexture.messages later
    WHERE later.tenant = messages.tenant AND later.session = messages.session AND later.replaces = messages.id
        AND NOT later.cut))";

impl Columns for Row {
    type Error = tokio_postgres::Error;

    fn at<T: Column>(&self, at: usize) -> Result<T, Self::Error> {
        self.try_get(at)
    }

    /// One of another length is damaged, and becomes sixteen zeros, which are equal to no message's
    /// identity. The message then counts as another one.
    fn identity(&self, at: usize) -> Result<[u8; 16], Self::Error> {
        Ok(self.try_get::<_, &[u8]>(at)?.try_into().unwrap_or_default())
    }
}

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

/// The rows of a session, each as `read` reads it.
pub(super) async fn rows_of<T>(
    client: &impl GenericClient,
    sql: &Sql,
    key: &Key,
    read: fn(&Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, Failure> {
    let rows = query(client, sql.of_server(), &[&key.tenant, &key.session]).await?;
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
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

/// Whether there is a session. Asked only if a query found no rows, to tell an empty session from
/// none.
pub(super) async fn exists(client: &Object, key: &Key) -> Result<bool, Failure> {
    let sql = "SELECT 1 FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let row = query_opt(client, sql, &[&key.tenant, &key.session]).await?;
    Ok(row.is_some())
}

/// The compaction in force of a session. None if there is none, or no such session.
pub(super) async fn compaction(
    client: &impl GenericClient,
    key: &Key,
) -> Result<Option<CompactionRow>, Failure> {
    let found = rows_of(client, &sql::COMPACTION, key, sql::compaction).await?;
    Ok(found.into_iter().next())
}

/// Reads a session as of one moment, with the number of its commits. Fails if there is no such
/// session. Texts and artifacts are not read: they may be large, and opening a session needs none
/// of them.
pub(super) async fn snapshot(
    transaction: &Transaction<'_>,
    key: &Key,
) -> Result<(i64, Snapshot), Failure> {
    let sql = format!(
        "SELECT {SESSION}, commits FROM contexture.sessions WHERE tenant = $1 AND session = $2"
    );
    let row = query_one(transaction, &sql, &[&key.tenant, &key.session]).await?;
    let snapshot = Snapshot {
        session: sql::session(&row)?,
        log: rows_of(transaction, &sql::MESSAGES_OF_LOG, key, sql::message).await?,
        wire: rows_of(transaction, &sql::WIRE, key, sql::wire).await?,
        written: rows_of(transaction, &sql::WRITTEN, key, sql::written).await?,
        compaction: compaction(transaction, key).await?,
    };
    Ok((row.try_get(10)?, snapshot))
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
    rows_of(client, &sql::KEPT, key, sql::pair).await
}

/// Everything that is stored of a session. None if there is no such session. All texts are in
/// memory afterwards, so a copy needs about as much memory as the session has in the database.
pub(super) async fn dump_of(
    transaction: &Transaction<'_>,
    key: &Key,
) -> Result<Option<SessionDump>, Failure> {
    let sql = "SELECT created_ms, used_ms, archived_ms FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let Some(times) = query_opt(transaction, sql, &[&key.tenant, &key.session]).await? else {
        return Ok(None);
    };
    let (_, snapshot) = snapshot(transaction, key).await?;
    Ok(Some(SessionDump {
        created_ms: times.try_get(0)?,
        used_ms: times.try_get(1)?,
        archived_ms: times.try_get(2)?,
        row: snapshot.session,
        // The snapshot has only the messages of the conversation. A copy must have those that were
        // cut off too, since their texts are in the transcript.
        messages: rows_of(transaction, &sql::MESSAGES, key, sql::message).await?,
        texts: rows_of(transaction, &sql::TEXTS, key, sql::text).await?,
        artifacts: rows_of(transaction, &sql::ARTIFACTS, key, sql::artifact).await?,
        wire: snapshot.wire,
        written: snapshot.written,
        compaction: snapshot.compaction,
    }))
}
