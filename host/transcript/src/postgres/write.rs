//! Writing to the tables of PostgreSQL, within a transaction that the caller commits. What is written
//! is decided in `crate::sql`.
//!
//! A turn is written in two steps. [`begin_commit`] checks that this process still holds the
//! session, and counts the commit. [`write_commit`] then writes what changed.
//!
//! Two rules hold for commits and copies. First, the writer holds the lease of the session, and the
//! row of the lease stays locked until the transaction ends. If another process takes the lease
//! over, it waits for that, so the numbers within a session need no other protection. Second, a
//! transaction may be run again if its answer was lost, so the count of commits in the row of the
//! session says whether it was already made.

use bytes::BytesMut;
use deadpool_postgres::Transaction;
use futures_util::future::try_join_all;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::connection::Failure;
use super::read::{execute, query_one, query_opt};
use super::{Key, schema};
use crate::sql::{self, Statement, Value};
use crate::store::Commit;

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Flag(flag) => flag.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::BOOL | Type::TEXT | Type::BYTEA)
    }

    to_sql_checked!();
}

/// Runs statements about a session in order. They are sent without waiting for the answers, which
/// would cost a round trip each.
pub(super) async fn run(
    transaction: &Transaction<'_>,
    key: &Key,
    statements: Vec<Statement<'_>>,
) -> Result<(), Failure> {
    let mut prepared = Vec::with_capacity(statements.len());
    for Statement { sql, values } in &statements {
        let statement = transaction.prepare_cached(sql.of_server()).await?;
        let own: [&(dyn ToSql + Sync); 2] = [&key.tenant, &key.session];
        let values = values.iter().map(|value| value as &(dyn ToSql + Sync));
        prepared.push((statement, own.into_iter().chain(values).collect::<Vec<_>>()));
    }
    // A connection sends what it is asked first.
    let sent = prepared
        .iter()
        .map(|(statement, values)| transaction.execute(statement, values));
    try_join_all(sent).await?;
    Ok(())
}

/// Deletes a session with everything that is stored with it. Does nothing if there is none.
pub(super) async fn delete(transaction: &Transaction<'_>, key: &Key) -> Result<(), Failure> {
    // The other tables of a session follow by their foreign keys. The row of the lease stays: if
    // the fence began at one again, a process that was stopped long ago could hold a number that is
    // valid.
    for table in ["sessions", "kept"] {
        let delete = format!("DELETE FROM contexture.{table} WHERE tenant = $1 AND session = $2");
        execute(transaction, &delete, &[&key.tenant, &key.session]).await?;
    }
    Ok(())
}

/// Whether a commit may be written, as [`begin_commit`] found out under the lock of the lease.
pub(super) enum Begun {
    /// This is the first attempt that arrived. Its rows must be written now.
    Now,
    /// It was written by an earlier attempt whose answer was lost. Nothing is left to do.
    Before,
    /// The lease was lost, or the session was deleted. Nothing may be written.
    Refused,
}

/// Whether this process still holds a session. If so, the lease cannot be taken over before the
/// transaction ends. A lease that has ended but that nobody else took still counts: its number is
/// then the highest, so nobody wrote in between.
///
/// # Errors
/// A newer program has migrated the tables since this one opened them.
pub(super) async fn has_lease(
    transaction: &Transaction<'_>,
    key: &Key,
    fence: i64,
) -> Result<bool, Failure> {
    // A statement of its own for the version would take longer.
    let sql = "SELECT fence, (SELECT coalesce(max(version), 0) FROM contexture.migrations)
               FROM contexture.leases WHERE tenant = $1 AND session = $2 FOR UPDATE";
    let Some(lease) = query_opt(transaction, sql, &[&key.tenant, &key.session]).await? else {
        return Ok(false);
    };
    schema::refuse_other(lease.try_get(1)?)?;
    Ok(lease.try_get::<_, i64>(0)? == fence)
}

/// Checks the lease and counts the commit. The lease cannot be taken over before the transaction
/// ends. `fence` is the number of the lease, and `commits` the number of commits before this one.
pub(super) async fn begin_commit(
    transaction: &Transaction<'_>,
    key: &Key,
    fence: i64,
    commits: i64,
) -> Result<Begun, Failure> {
    if !has_lease(transaction, key, fence).await? {
        return Ok(Begun::Refused);
    }
    let (tenant, session) = (&key.tenant, &key.session);
    let sql = "UPDATE contexture.sessions SET commits = commits + 1
               WHERE tenant = $1 AND session = $2 AND commits = $3";
    if execute(transaction, sql, &[tenant, session, &commits]).await? > 0 {
        return Ok(Begun::Now);
    }
    // Nobody else can have made a commit under this lease.
    let sql = "SELECT commits FROM contexture.sessions WHERE tenant = $1 AND session = $2";
    let count = query_opt(transaction, sql, &[tenant, session]).await?;
    let count: Option<i64> = count.map(|row| row.try_get(0)).transpose()?;
    Ok(match count == Some(commits + 1) {
        true => Begun::Before,
        false => Begun::Refused,
    })
}

/// Writes everything of a commit but its number, which [`begin_commit`] has written.
pub(super) async fn write_commit(
    transaction: &Transaction<'_>,
    key: &Key,
    commit: &Commit,
) -> Result<(), Failure> {
    let last_text = match commit.texts.is_empty() {
        true => 0,
        false => {
            let last = sql::LAST_TEXT.of_server();
            let last = query_one(transaction, last, &[&key.tenant, &key.session]).await?;
            last.try_get(0)?
        }
    };
    run(transaction, key, sql::of_commit(commit, last_text)).await
}
