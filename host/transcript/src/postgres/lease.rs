//! The lock on a session in a shared database: a lease with a fencing token.
//!
//! A lease is a row with a holder, a time until which it is valid, and a number that rises with
//! every holder, the fence. While a session is held, its lease is renewed. A process that crashes or
//! is stopped renews nothing, and another one takes the lease over when it has ended. A commit checks
//! the fence in its own transaction, so a process that was stopped and wakes up cannot write.
//!
//! Times are those of the database, so the clocks of the machines need not agree.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use contexture_base::lock;
use deadpool_postgres::{ClientWrapper, Object, Pool};
use tokio::task::JoinSet;

use super::connection::{Database, Failure};
use super::read::{execute, query_opt};
use crate::error::RecordError;
use crate::hold::{Held, Hold, Token};

/// How long a lease is valid without being renewed. A session of a process that crashed can be
/// opened elsewhere after this time. It is short, because a user waits for it after a crash.
pub(super) const LEASE: Duration = Duration::from_millis(1_500);

/// How often leases are renewed. Two renewals may be late before a lease ends.
const RENEW: Duration = Duration::from_millis(500);

/// How often a waiting session tries again.
const LOOK: Duration = Duration::from_millis(20);

/// The leases of this process, and the task that renews them. It ends with this value.
#[derive(Debug)]
pub(super) struct Leases {
    database: Arc<Database>,
    tenant: String,
    /// The lease that was taken last, by session. The references are weak, so a lease that nobody
    /// holds is no longer renewed.
    held: Mutex<HashMap<String, Weak<Lease>>>,
}

/// A lease that this process took.
#[derive(Debug)]
struct Lease {
    session: String,
    number: i64,
    /// The number for those who open the session under it. It is raised if they go on under a later
    /// lease.
    fence: Arc<AtomicI64>,
}

/// A lease that is held. It is released when this is dropped. If the database cannot be reached
/// then, it ends by itself.
#[derive(Debug)]
struct HeldLease {
    leases: Arc<Leases>,
    lease: Arc<Lease>,
    is_released: bool,
}

impl Leases {
    /// No leases yet, with a task that renews those that will be taken.
    pub(super) fn new(database: &Arc<Database>, tenant: &str) -> Arc<Self> {
        let leases = Arc::new(Self {
            database: Arc::clone(database),
            tenant: tenant.to_owned(),
            held: Mutex::default(),
        });
        let (pool, weak) = (database.lease_pool(), Arc::downgrade(&leases));
        database.spawn(async move {
            let mut connection = None;
            loop {
                tokio::time::sleep(RENEW).await;
                let Some(leases) = weak.upgrade() else {
                    return;
                };
                let (tenant, held) = (leases.tenant.clone(), leases.held());
                // The store ends while nobody but this task would have it.
                drop(leases);
                if held.is_empty() {
                    continue;
                }
                // A lease outlives two renewals that fail, so a short failure of the server costs
                // no session. After a failure, the connection may lead to a server that is gone or
                // that can only be read, so the next round takes another one.
                let round = renew(&pool, connection.take(), &tenant, held);
                let round = tokio::time::timeout(LEASE, round).await;
                connection = round.ok().and_then(Result::ok);
            }
        });
        leases
    }

    /// The sessions that are held, with the numbers of their leases.
    fn held(&self) -> Vec<(String, i64)> {
        let mut held = lock(&self.held);
        held.retain(|_, lease| lease.strong_count() > 0);
        let leases = held.values().filter_map(Weak::upgrade);
        leases
            .map(|lease| (lease.session.clone(), lease.number))
            .collect()
    }

    /// The number under which this process writes a session, if it holds the session.
    pub(super) fn fence(&self, session: &str) -> Option<Arc<AtomicI64>> {
        let lease = lock(&self.held).get(session)?.upgrade()?;
        Some(Arc::clone(&lease.fence))
    }

    /// Takes the lease of a session. If somebody else has it, tries again until `patience` has
    /// passed.
    pub(super) fn take(
        self: &Arc<Self>,
        session: &str,
        patience: Duration,
    ) -> Result<Hold, RecordError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Unique, so that a holder that lost the answer to its attempt recognises its own lease.
        let holder = format!(
            "the process {} on {} ({}.{})",
            std::process::id(),
            host(),
            contexture_base::now_ms(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let began = Instant::now();
        let mut told = false;
        loop {
            let by = match self.attempt(session, &holder)? {
                Ok(number) => return Ok(self.hold(session, number)),
                Err(by) => by,
            };
            // It was released after the attempt.
            if by.is_empty() {
                continue;
            }
            // What stands in parentheses makes the holder unique and tells the user nothing.
            let by = by.split(" (").next().unwrap_or_default().to_owned();
            if began.elapsed() >= patience {
                return Err(RecordError::InUse {
                    session: session.to_owned(),
                    by,
                    waited: patience,
                });
            }
            if !told {
                tracing::warn!(
                    target: "contexture::hold",
                    "waiting for the session `{session}`, which {by} has open"
                );
                told = true;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Takes the lease if nobody has it or it has ended. Returns its number, or who has it. That is
    /// empty if nobody has it any more.
    ///
    /// A lease without a holder is free whatever its time says: the clock of the database goes back
    /// if another server takes over.
    fn attempt(&self, session: &str, holder: &str) -> Result<Result<i64, String>, RecordError> {
        let (tenant, own, holder) = (self.tenant.clone(), session.to_owned(), holder.to_owned());
        self.database.run(session, move |client| {
            let (tenant, session, holder) = (tenant.clone(), own.clone(), holder.clone());
            Box::pin(async move {
                // An attempt whose answer was lost may have taken the lease, or may still do so. It
                // is repeated with the same holder, so that it does not wait for itself, and gets
                // the same number.
                let sql =
                    "INSERT INTO contexture.leases AS lease (tenant, session, fence, holder, until)
                           VALUES ($1, $2, 1, $3, now() + $4 * interval '1 millisecond')
                           ON CONFLICT (tenant, session) DO UPDATE
                              SET fence = lease.fence + (lease.holder <> excluded.holder)::int,
                                  holder = excluded.holder, until = excluded.until
                              WHERE lease.until <= now() OR lease.holder IN ('', excluded.holder)
                           RETURNING fence";
                let valid = LEASE.as_millis() as f64;
                let taken = query_opt(&client, sql, &[&tenant, &session, &holder, &valid]).await?;
                if let Some(row) = taken {
                    return Ok(Ok(row.try_get(0)?));
                }
                let sql = "SELECT holder FROM contexture.leases WHERE tenant = $1 AND session = $2";
                let by = query_opt(&client, sql, &[&tenant, &session]).await?;
                let by = by.map(|row| row.try_get(0)).transpose()?;
                Ok(Err(by.unwrap_or_default()))
            })
        })
    }

    /// Wraps a lease that was taken, and has it renewed from now on.
    fn hold(self: &Arc<Self>, session: &str, number: i64) -> Hold {
        let lease = Arc::new(Lease {
            session: session.to_owned(),
            number,
            fence: Arc::new(AtomicI64::new(number)),
        });
        lock(&self.held).insert(session.to_owned(), Arc::downgrade(&lease));
        let fence = Arc::clone(&lease.fence);
        let held = HeldLease {
            leases: Arc::clone(self),
            lease,
            is_released: false,
        };
        // This is the token of the holder before. Nobody came in between if a release left the same
        // one.
        Hold::of(word(number - 1), fence, Box::new(held))
    }
}

/// Renews leases, and returns the connection for the next time. All statements are sent at once, so
/// a round takes as long for many leases as for one. Each concerns one session, as every statement
/// does: one for all would wait if a single lease is locked by a commit, and a cluster could not
/// route it.
async fn renew(
    pool: &Pool,
    connection: Option<Arc<ClientWrapper>>,
    tenant: &str,
    held: Vec<(String, i64)>,
) -> Result<Arc<ClientWrapper>, Failure> {
    let client = match connection {
        Some(client) => client,
        None => Arc::new(Object::take(pool.get().await?)),
    };
    let renew = client
        .prepare_cached(
            "UPDATE contexture.leases SET until = now() + $4 * interval '1 millisecond'
             WHERE tenant = $1 AND session = $2 AND fence = $3 AND holder <> ''",
        )
        .await?;
    let mut renewals = JoinSet::new();
    for (session, number) in held {
        let (client, renew, tenant) = (Arc::clone(&client), renew.clone(), tenant.to_owned());
        renewals.spawn(async move {
            let valid = LEASE.as_millis() as f64;
            client
                .execute(&renew, &[&tenant, &session, &number, &valid])
                .await
        });
    }
    // A lease that was taken over is not found by its number, which is no error here: the next
    // commit notices it.
    let mut done = Ok(client);
    while let Some(renewed) = renewals.join_next().await {
        if let Ok(Err(error)) = renewed {
            done = Err(error.into());
        }
    }
    done
}

/// The token of a release: the number of the lease. The next holder of the lease has the next
/// number, so it sees whether somebody had it in between.
fn word(number: i64) -> String {
    format!("lease {number}")
}

/// The name of this machine, for the error of others that wait. Systems without this file are
/// called "another machine".
fn host() -> String {
    let name = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    match name.trim() {
        "" => "another machine".to_owned(),
        name => name.to_owned(),
    }
}

impl HeldLease {
    /// Ends the lease in the database. Without a holder, a renewal that is under way does not revive
    /// it. Returns the number of rows that changed, which is zero if somebody else has the lease.
    fn end(&mut self) -> Result<u64, RecordError> {
        self.is_released = true;
        let (tenant, session) = (self.leases.tenant.clone(), self.lease.session.clone());
        let number = self.lease.number;
        // If that fails, the lease ends by itself.
        let database = &self.leases.database;
        database.run_once(&self.lease.session, move |client| {
            let (tenant, session) = (tenant.clone(), session.clone());
            Box::pin(async move {
                let sql = "UPDATE contexture.leases SET until = now(), holder = ''
                           WHERE tenant = $1 AND session = $2 AND fence = $3";
                execute(&client, sql, &[&tenant, &session, &number]).await
            })
        })
    }
}

impl Held for HeldLease {
    fn release(mut self: Box<Self>) -> Option<Token> {
        // If the lease was taken over, somebody else may have written since.
        (self.end().ok()? > 0).then(|| Token::of(word(self.lease.number)))
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        if !self.is_released {
            let _ = self.end();
        }
    }
}
