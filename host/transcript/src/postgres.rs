//! The store in a database of PostgreSQL, which several machines can share.
//!
//! Every table is keyed by tenant and session, and no transaction concerns more than one session,
//! so the tables can be distributed by session. A session has one writer at a time: see `lease`.
//!
//! Start with [`PostgresStore`]. `schema` has the tables and migrations, `read` and `write` the
//! rows, and `connection` the pool, time limits and retries.
//!
//! If a connection is lost, nobody knows whether the last transaction was committed. The work is
//! then done again on another connection. So all work either only reads, or writes the same rows
//! again. A [`Commit`] cannot be repeated in this way, since it numbers new texts. It is counted in
//! the row of the session, and a commit that was counted is not written again.

mod connection;
mod lease;
mod read;
mod schema;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use contexture_base::now_ms;
use contexture_engine_api::MessageId;
use contexture_formats::prompt_cache::Pauses;
use deadpool_postgres::Object;
use tokio_postgres::types::ToSql;

use crate::error::RecordError;
use crate::hold::{Hold, Token};
use crate::rows;
use crate::sql::{self, MAKE_SESSION, MESSAGE, Sql};
use crate::sqlite::SqliteStore;
use crate::store::{
    Commit, CompactionRow, Delivered, Dump, KeptChange, MessagePage, MessageRow, Packed, PageRange,
    Select, SessionKey, SessionSummary, Snapshot, Store, TextRow, Which,
};
pub use connection::PostgresOptions;
use connection::{Database, Failure};
use lease::Leases;
use read::{
    IS_OUTDATED, compaction, dump_of, execute, exists, kept_with, query, query_one, query_opt,
    read_only, rows_of, snapshot,
};
use schema::SCHEMA_VERSION;
use write::{Begun, begin_commit, delete, has_lease, run, write_commit};

/// The most messages of a page, whatever its limit says. All rows of a result are in memory at
/// once, so a page without a limit would read a whole session.
const PAGE: usize = 2_000;

/// The session of work that does not concern a single one, see [`Database::run`].
const ALL: &str = "";

/// The sessions of one tenant in a database. Other tenants' sessions are neither seen nor changed.
#[derive(Debug)]
pub(crate) struct PostgresStore {
    database: Arc<Database>,
    tenant: String,
    leases: Arc<Leases>,
}

/// A session of a tenant, as every statement names it in its first two parameters.
#[derive(Debug)]
struct Key {
    tenant: String,
    session: String,
}

/// The result of work on a connection. It owns all that it needs, because it runs on a thread of
/// the database.
type Done<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

impl PostgresStore {
    /// Opens the sessions of a tenant.
    ///
    /// # Errors
    /// The database cannot be reached and the options do not allow that, or its tables have another
    /// version.
    pub(crate) fn open(options: &PostgresOptions) -> Result<Self, RecordError> {
        let database = Arc::new(Database::new(options)?);
        match schema::version(&database) {
            Ok(SCHEMA_VERSION) => {}
            Ok(found) => return Err(schema::wrong_version(database.name(), found)),
            Err(_) if options.may_be_away && database.outage().is_some() => database.check_later(),
            Err(error) => return Err(error),
        }
        Ok(Self {
            leases: Leases::new(&database, &options.tenant),
            tenant: options.tenant.clone(),
            database,
        })
    }

    /// The server and the database, without a password.
    pub(crate) fn name(&self) -> &str {
        self.database.name()
    }

    fn key(&self, session: &str) -> Key {
        Key {
            tenant: self.tenant.clone(),
            session: session.to_owned(),
        }
    }

    /// Does work that concerns one session, and waits for the result. The work may be done several
    /// times.
    fn of<T: Send + 'static>(
        &self,
        session: &str,
        work: impl Fn(Object, Arc<Key>) -> Done<T> + Send + Sync + 'static,
    ) -> Result<T, RecordError> {
        self.with(session, self.key(session), work)
    }

    /// Does work on these values, and waits for the result. The work may be done several times. It
    /// is for this session, or for [`ALL`].
    fn with<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        session: &str,
        values: A,
        work: impl Fn(Object, Arc<A>) -> Done<T> + Send + Sync + 'static,
    ) -> Result<T, RecordError> {
        let values = Arc::new(values);
        self.database
            .run(session, move |client| work(client, Arc::clone(&values)))
    }

    /// All messages that a query finds. None if there is no such session.
    fn all_messages(
        &self,
        session: &str,
        sql: &'static Sql,
    ) -> Result<Option<Vec<MessageRow>>, RecordError> {
        self.of(session, move |client, key| {
            Box::pin(async move {
                let rows = rows_of(&client, sql, &key, sql::message).await?;
                let is_there = !rows.is_empty() || exists(&client, &key).await?;
                Ok(is_there.then_some(rows))
            })
        })
    }

    /// Stores texts of an embedder in one transaction. If one of them replaces a text that is no
    /// longer the stored one, none is stored, and the result is false.
    fn keep_unless_changed(
        &self,
        session: &str,
        texts: Vec<(String, String)>,
        replaced: Option<Replaced>,
    ) -> Result<bool, RecordError> {
        let write = (self.key(session), texts, replaced);
        self.with(session, write, |mut client, write| {
            Box::pin(async move {
                let (key, texts, replaced) = &*write;
                let transaction = client.transaction().await?;
                let sql = "INSERT INTO contexture.kept AS old (tenant, session, name, value)
                           SELECT $1, $2, $3, $4 WHERE (SELECT max(version) FROM contexture.migrations) = $7
                           ON CONFLICT (tenant, session, name) DO UPDATE SET value = excluded.value
                           WHERE NOT $5 OR old.value = $6";
                for (name, text) in texts {
                    let same = replaced.as_ref().filter(|replaced| replaced.name == *name);
                    let before = same.and_then(|replaced| replaced.text.as_ref());
                    let parameters: [&(dyn ToSql + Sync); 7] = [
                        &key.tenant,
                        &key.session,
                        name,
                        text,
                        &same.is_some(),
                        &before,
                        &SCHEMA_VERSION,
                    ];
                    if execute(&transaction, sql, &parameters).await? == 0 {
                        schema::check_again(&transaction).await?;
                        return Ok(false);
                    }
                }
                transaction.commit().await?;
                Ok(true)
            })
        })
    }
}

/// The text that a new one with the same name was computed from. None if there was none.
struct Replaced {
    name: String,
    text: Option<String>,
}

/// The versions of the tables: of the database, and of this program. The first is zero if the
/// database has no tables.
///
/// # Errors
/// The database cannot be reached. Tables of another version are no error here.
pub(crate) fn versions(options: &PostgresOptions) -> Result<(i64, i64), RecordError> {
    let database = Database::new(options)?;
    Ok((schema::version(&database)?, SCHEMA_VERSION))
}

/// Makes the tables, or brings them to the version of this program. Returns the version before.
///
/// # Errors
/// The database cannot be reached, or the user may not make tables. Also if the tables are of a
/// later version.
pub(crate) fn migrate(options: &PostgresOptions) -> Result<i64, RecordError> {
    let database = Database::new(options)?;
    match schema::migrate(&database)? {
        found if found > SCHEMA_VERSION => Err(schema::wrong_version(database.name(), found)),
        found => Ok(found),
    }
}

impl Store for PostgresStore {
    fn outage(&self) -> Option<RecordError> {
        self.database.outage()
    }

    fn is_waited_for(&self, session: Option<&str>) -> bool {
        self.database.is_waited_for(session)
    }

    fn damaged(&self, what: String) -> RecordError {
        RecordError::Server {
            server: self.name().to_owned(),
            cause: format!("what is stored makes no sense: {what}").into(),
        }
    }

    fn hold(
        &self,
        session: &str,
        wait: Duration,
        _before: Option<&Token>,
    ) -> Result<Hold, RecordError> {
        self.leases.take(session, wait)
    }

    fn open(&self, session: &str) -> Result<(SessionKey, Snapshot), RecordError> {
        // Without a lease a session can be read, but its commits are refused.
        let fence = self.leases.fence(session);
        let now_ms = now_ms();
        let (commits, snapshot) = self.of(session, move |mut client, key| {
            Box::pin(async move {
                schema::check_again(&client).await?;
                // The row is made first, since the transaction that shows one state may not write.
                let make = MAKE_SESSION.of_server();
                execute(&client, make, &[&key.tenant, &key.session, &now_ms]).await?;
                let transaction = read_only(&mut client).await?;
                snapshot(&transaction, &key).await
            })
        })?;
        let key = SessionKey {
            session: session.to_owned(),
            row: 0,
            fence,
            commits: AtomicI64::new(commits),
        };
        Ok((key, snapshot))
    }

    fn commit(
        &self,
        key: &SessionKey,
        commit: &Arc<Commit>,
        changes: &mut Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        self.change_kept(changes)?;
        let taken_over = || RecordError::TakenOver {
            session: key.session.clone(),
        };
        let Some(fence) = &key.fence else {
            return Err(taken_over());
        };
        let (fence, commits) = (
            fence.load(Ordering::Acquire),
            key.commits.load(Ordering::Acquire),
        );
        let write = (self.key(&key.session), Arc::clone(commit));
        self.with(&key.session, write, move |mut client, write| {
            Box::pin(async move {
                let (key, commit) = &*write;
                let transaction = client.transaction().await?;
                match begin_commit(&transaction, key, fence, commits).await? {
                    Begun::Now => {}
                    // The answer to an earlier attempt was lost.
                    Begun::Before => return Ok(()),
                    Begun::Refused => {
                        return Err(Failure::Refused(RecordError::TakenOver {
                            session: key.session.clone(),
                        }));
                    }
                }
                write_commit(&transaction, key, commit).await?;
                Ok(transaction.commit().await?)
            })
        })?;
        // If an earlier attempt wrote the commit, it counted the same number.
        key.commits.store(commits + 1, Ordering::Release);
        Ok(())
    }

    fn forget(&self, session: &str) -> Result<(), RecordError> {
        self.of(session, |mut client, key| {
            Box::pin(async move {
                let transaction = client.transaction().await?;
                schema::check_again(&transaction).await?;
                delete(&transaction, &key).await?;
                Ok(transaction.commit().await?)
            })
        })
    }

    fn archive(&self, session: &str, at_ms: Option<i64>) -> Result<bool, RecordError> {
        self.of(session, move |client, key| {
            Box::pin(async move {
                schema::check_again(&client).await?;
                let sql = "UPDATE contexture.sessions SET archived_ms = $3 WHERE tenant = $1 AND session = $2";
                let changed = execute(&client, sql, &[&key.tenant, &key.session, &at_ms]).await?;
                Ok(changed > 0)
            })
        })
    }

    fn summaries(&self, session: Option<&str>) -> Result<Vec<SessionSummary>, RecordError> {
        let ask = (self.tenant.clone(), session.map(str::to_owned));
        self.with(ALL, ask, |client, ask| {
            Box::pin(async move {
                let (tenant, session) = &*ask;
                // Rows have no number that rises in the order of creation, as they have in a file.
                // The time takes its place, and the name if two have the same.
                let sql = "SELECT s.session, s.engine, s.created_ms, coalesce(s.used_ms, s.created_ms), s.archived_ms,
                           (SELECT count(*) FROM contexture.messages m
                            WHERE m.tenant = s.tenant AND m.session = s.session),
                           (SELECT count(*) FROM contexture.messages m
                            WHERE m.tenant = s.tenant AND m.session = s.session AND NOT m.cut
                               AND NOT EXISTS (SELECT 1 FROM contexture.messages later
                                   WHERE later.tenant = m.tenant AND later.session = m.session
                                       AND later.replaces = m.id AND NOT later.cut)),
                           coalesce((SELECT sum(length(t.data)) FROM contexture.texts t
                               WHERE t.tenant = s.tenant AND t.session = s.session), 0)::bigint
                           + coalesce((SELECT sum(length(a.data)) FROM contexture.artifacts a
                               WHERE a.tenant = s.tenant AND a.session = s.session), 0)::bigint,
                           (SELECT max(m.said_ms) FROM contexture.messages m
                            WHERE m.tenant = s.tenant AND m.session = s.session)
                           FROM contexture.sessions s
                           WHERE s.tenant = $1 AND ($2::text IS NULL OR s.session = $2)
                           ORDER BY s.created_ms, s.session";
                let rows = query(&client, sql, &[&tenant, &session]).await?;
                Ok(rows.iter().map(sql::summary).collect::<Result<_, _>>()?)
            })
        })
    }

    fn delivered(&self, which: Which<'_>) -> Result<Vec<Delivered>, RecordError> {
        let (session, engine) = match which {
            Which::All => (None, None),
            Which::Session(session) => (Some(session.to_owned()), None),
            Which::Engine(engine) => (None, Some(engine.to_owned())),
        };
        self.with(ALL, (self.tenant.clone(), session, engine), |client, ask| {
            Box::pin(async move {
                let (tenant, session, engine) = &*ask;
                let sql = "SELECT s.session, s.engine, s.shown_last,
                           (SELECT count(*) FROM contexture.messages m
                            WHERE m.tenant = s.tenant AND m.session = s.session
                               AND m.id <= s.shown_last AND NOT m.cut)
                           FROM contexture.sessions s
                           WHERE s.tenant = $1 AND s.engine <> '' AND ($2::text IS NULL OR s.session = $2)
                           AND ($3::text IS NULL OR s.engine = $3)
                           ORDER BY s.created_ms, s.session";
                let rows = query(&client, sql, &[&tenant, &session, &engine]).await?;
                Ok(rows.iter().map(sql::delivered).collect::<Result<_, _>>()?)
            })
        })
    }

    fn pauses(&self) -> Result<Pauses, RecordError> {
        self.with(ALL, self.tenant.clone(), |client, tenant| {
            Box::pin(async move {
                // The sum of integers has a type that the client cannot read. A float does not
                // overflow.
                let sql = "SELECT coalesce(sum(pauses_more), 0)::float8, coalesce(sum(pauses_saved), 0)::float8
                           FROM contexture.sessions WHERE tenant = $1";
                let row = query_one(&client, sql, &[&tenant.as_str()]).await?;
                let (more, saved): (f64, f64) = (row.try_get(0)?, row.try_get(1)?);
                Ok(Pauses::stored(more as i64, saved as i64))
            })
        })
    }

    fn messages(
        &self,
        session: &str,
        select: Select<'_>,
    ) -> Result<Option<Vec<MessageRow>>, RecordError> {
        let (sql, ids): (String, &[MessageId]) = match select {
            Select::All => return self.all_messages(session, &sql::MESSAGES),
            Select::Log => return self.all_messages(session, &sql::MESSAGES_OF_LOG),
            Select::WithoutText => return self.all_messages(session, &sql::MESSAGES_WITHOUT_TEXT),
            Select::Ids(wanted) => (
                format!(
                    "SELECT {MESSAGE}, {IS_OUTDATED} FROM contexture.messages
                     JOIN unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, place) ON messages.id = wanted.id
                     WHERE messages.tenant = $1 AND messages.session = $2 AND messages.wire IS NOT NULL
                     ORDER BY wanted.place"
                ),
                wanted,
            ),
            Select::SharingWire(wanted) => (
                format!(
                    "SELECT {MESSAGE}, false FROM contexture.messages
                     JOIN (SELECT named.wire, min(wanted.place) AS place
                           FROM unnest($3::bigint[]) WITH ORDINALITY AS wanted (id, place)
                           JOIN contexture.messages named ON named.id = wanted.id
                           WHERE named.tenant = $1 AND named.session = $2 AND named.wire IS NOT NULL
                           GROUP BY named.wire) first ON messages.wire = first.wire
                     WHERE messages.tenant = $1 AND messages.session = $2 AND NOT messages.cut
                     ORDER BY first.place, messages.part"
                ),
                wanted,
            ),
        };
        let ids: Vec<i64> = ids.iter().map(|id| id.0.cast_signed()).collect();
        self.with(session, (self.key(session), sql, ids), |client, ask| {
            Box::pin(async move {
                let (key, sql, ids) = &*ask;
                let rows = query(&client, sql, &[&key.tenant, &key.session, ids]).await?;
                let rows: Vec<_> = rows.iter().map(sql::message).collect::<Result<_, _>>()?;
                let is_there = !rows.is_empty() || exists(&client, key).await?;
                Ok(is_there.then_some(rows))
            })
        })
    }

    fn page(&self, session: &str, range: PageRange) -> Result<Option<MessagePage>, RecordError> {
        let range = PageRange {
            limit: range.limit.clamp(1, PAGE),
            ..range
        };
        self.of(session, move |client, key| {
            Box::pin(async move {
                let sql = format!(
                    "SELECT {MESSAGE}, {IS_OUTDATED}, t.bytes FROM contexture.messages
                     JOIN contexture.texts t ON t.tenant = messages.tenant AND t.session = messages.session
                        AND t.number = messages.wire
                     WHERE messages.tenant = $1 AND messages.session = $2 AND messages.id > $3
                        AND ($4 OR NOT {IS_OUTDATED})
                     ORDER BY messages.id LIMIT $5"
                );
                // One row more than the page may have, to see whether another page follows.
                let (after, limit) = (range.after.0.cast_signed(), range.limit as i64 + 1);
                let rows = query(&client, &sql, &[&key.tenant, &key.session, &after, &range.outdated, &limit]).await?;
                if rows.is_empty() && !exists(&client, &key).await? {
                    return Ok(None);
                }
                let rows = rows.iter().map(|row| Ok((sql::message(row)?, row.try_get(11)?)));
                MessagePage::fill::<Failure>(rows, range).map(Some)
            })
        })
    }

    fn texts(&self, session: &str, numbers: &[i64]) -> Result<Vec<TextRow>, RecordError> {
        self.with(session, (self.key(session), numbers.to_vec()), |client, ask| {
            Box::pin(async move {
                let (key, numbers) = &*ask;
                let sql = "SELECT t.number, t.format, t.tools, t.reading, t.bytes, t.checksum, t.data
                           FROM contexture.texts t
                           JOIN unnest($3::bigint[]) WITH ORDINALITY AS wanted (number, place) ON t.number = wanted.number
                           WHERE t.tenant = $1 AND t.session = $2 ORDER BY wanted.place";
                let rows = query(&client, sql, &[&key.tenant, &key.session, numbers]).await?;
                Ok(rows.iter().map(sql::text).collect::<Result<_, _>>()?)
            })
        })
    }

    fn compaction(&self, session: &str) -> Result<Option<CompactionRow>, RecordError> {
        self.of(session, |client, key| {
            Box::pin(async move { compaction(&client, &key).await })
        })
    }

    fn set_entries(&self, session: &str, entries: String) -> Result<(), RecordError> {
        self.with(session, (self.key(session), entries), |client, write| {
            Box::pin(async move {
                let (key, entries) = &*write;
                schema::check_again(&client).await?;
                let sql = "UPDATE contexture.compactions SET entries = $3 WHERE tenant = $1 AND session = $2";
                execute(&client, sql, &[&key.tenant, &key.session, entries]).await?;
                Ok(())
            })
        })
    }

    fn artifact(
        &self,
        session: &str,
        engine: &str,
        name: &str,
    ) -> Result<Option<Packed>, RecordError> {
        let ask = (self.key(session), engine.to_owned(), name.to_owned());
        self.with(session, ask, |client, ask| {
            Box::pin(async move {
                let (key, engine, name) = &*ask;
                let sql = "SELECT bytes, checksum, data FROM contexture.artifacts
                           WHERE tenant = $1 AND session = $2 AND engine = $3 AND name = $4";
                let row =
                    query_opt(&client, sql, &[&key.tenant, &key.session, engine, name]).await?;
                Ok(row.map(|row| sql::packed(&row, 0)).transpose()?)
            })
        })
    }

    fn artifact_names(
        &self,
        session: &str,
        engine: &str,
        prefix: &str,
    ) -> Result<Vec<String>, RecordError> {
        let ask = (self.key(session), engine.to_owned(), prefix.to_owned());
        self.with(session, ask, |client, ask| {
            Box::pin(async move {
                let (key, engine, prefix) = &*ask;
                // A prefix may contain the wildcards of `LIKE`, so that is not used.
                let sql = "SELECT name FROM contexture.artifacts
                           WHERE tenant = $1 AND session = $2 AND engine = $3 AND starts_with(name, $4)
                           ORDER BY name";
                let rows = query(&client, sql, &[&key.tenant, &key.session, engine, prefix]).await?;
                let names = rows.iter().map(|row| row.try_get(0));
                Ok(names.collect::<Result<_, _>>()?)
            })
        })
    }

    fn keep(&self, session: &str, texts: &[(&str, &str)]) -> Result<(), RecordError> {
        let own = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let texts = texts.iter().map(own).collect();
        self.keep_unless_changed(session, texts, None).map(drop)
    }

    fn change_kept(&self, changes: &mut Vec<KeptChange<'_>>) -> Result<(), RecordError> {
        while let Some(change) = changes.first_mut() {
            let (session, name) = (change.session.clone(), change.name.clone());
            loop {
                let text = self.kept_as(&name, Some(&session))?.pop();
                let before = text.map(|(_, text)| text);
                let texts = change.texts(before.clone());
                let replaced = Replaced {
                    name: name.clone(),
                    text: before,
                };
                if texts.is_empty() || self.keep_unless_changed(&session, texts, Some(replaced))? {
                    break;
                }
            }
            changes.remove(0);
        }
        Ok(())
    }

    fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError> {
        self.of(session, |client, key| {
            Box::pin(async move { kept_with(&client, &key).await })
        })
    }

    fn kept_as(
        &self,
        name: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, String)>, RecordError> {
        let session = session.map(str::to_owned);
        let ask = (self.tenant.clone(), name.to_owned(), session);
        self.with(ALL, ask, |client, ask| {
            Box::pin(async move {
                let (tenant, name, session) = &*ask;
                let sql = "SELECT session, value FROM contexture.kept
                           WHERE tenant = $1 AND name = $2 AND ($3::text IS NULL OR session = $3)
                           ORDER BY session";
                let rows = query(&client, sql, &[&tenant, name, session]).await?;
                Ok(rows.iter().map(sql::pair).collect::<Result<_, _>>()?)
            })
        })
    }

    fn names(&self) -> Result<Vec<String>, RecordError> {
        self.with(ALL, self.tenant.clone(), |client, tenant| {
            Box::pin(async move {
                let sql = "SELECT session FROM contexture.sessions WHERE tenant = $1
                           UNION SELECT session FROM contexture.kept WHERE tenant = $1 ORDER BY 1";
                let rows = query(&client, sql, &[&tenant.as_str()]).await?;
                let names = rows.iter().map(|row| row.try_get(0));
                Ok(names.collect::<Result<_, _>>()?)
            })
        })
    }

    fn dump(&self, session: &str) -> Result<Option<Dump>, RecordError> {
        self.of(session, |mut client, key| {
            Box::pin(async move {
                let transaction = read_only(&mut client).await?;
                let dump = Dump {
                    session: dump_of(&transaction, &key).await?,
                    kept: kept_with(&transaction, &key).await?,
                };
                let is_there = dump.session.is_some() || !dump.kept.is_empty();
                Ok(is_there.then_some(dump))
            })
        })
    }

    fn restore(&self, session: &str, dump: Dump) -> Result<(), RecordError> {
        let fence = self.leases.fence(session);
        // No lease has the number zero, so a session that is not held is refused below.
        let fence = fence.map_or(0, |fence| fence.load(Ordering::Acquire));
        self.with(
            session,
            (self.key(session), dump),
            move |mut client, write| {
                Box::pin(async move {
                    let (key, dump) = &*write;
                    let transaction = client.transaction().await?;
                    if !has_lease(&transaction, key, fence).await? {
                        return Err(Failure::Refused(RecordError::TakenOver {
                            session: key.session.clone(),
                        }));
                    }
                    delete(&transaction, key).await?;
                    run(&transaction, key, sql::of_kept(&dump.kept)).await?;
                    if let Some(dump) = &dump.session {
                        let make = MAKE_SESSION.of_server();
                        execute(
                            &transaction,
                            make,
                            &[&key.tenant, &key.session, &dump.created_ms],
                        )
                        .await?;
                        run(&transaction, key, sql::of_dump(dump)).await?;
                    }
                    Ok(transaction.commit().await?)
                })
            },
        )
    }

    fn copy_to(&self, home: &Path, session: &str) -> Result<(), RecordError> {
        let file = SqliteStore::open(home)?;
        match self.dump(session)? {
            Some(dump) => file.restore(session, dump),
            // The new file stays empty, as it would for a session without messages.
            None => Ok(()),
        }
    }

    fn problems(&self) -> Result<Vec<String>, RecordError> {
        let mut found = Vec::new();
        // One session after the other, so that only the largest one must fit into memory.
        for name in self.names()? {
            // Texts of embedders without a session have no form that could be checked.
            let session = self.dump(&name)?.and_then(|dump| dump.session);
            let problem = session.and_then(|session| rows::problem(&session, &name));
            found.extend(problem.map(|what| format!("{}: session `{name}`: {what}", self.name())));
        }
        Ok(found)
    }
}
