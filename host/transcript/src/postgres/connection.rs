//! Connections to the database: a pool with a limit, TLS, time limits, and retries.
//!
//! The host's calls block, so a [`Database`] has a runtime of its own with one thread, and a call
//! waits for what it does there. It works from any thread, those of another runtime included.
//!
//! A transaction that fails to be serialised and a connection that is lost are tried again for a few
//! seconds, so a failover of the server costs time and no turn. All work must therefore be safe to
//! repeat.
//!
//! A network that fails may refuse connections, swallow what is sent, or break only the connections
//! that there are. So whenever work fails or takes long, the [`Server`] is checked on a new
//! connection, in the background. If that fails, the server is away: all work stops waiting, and new
//! work fails at once, until a check succeeds.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contexture_base::lock;
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError,
    RecyclingMethod,
};
use derive_setters::Setters;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::schema;
use crate::error::RecordError;

/// How long work is repeated by default that fails for a reason that passes, such as a failover. A
/// turn waits meanwhile. If the failure lasts longer, it is an error.
const RETRY_FOR: Duration = Duration::from_secs(8);

/// The first pause before work is repeated. Each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause before work is repeated.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// How long it may take to connect, and to wait for a free connection of the pool.
const CONNECT: Duration = Duration::from_secs(5);

/// How long an attempt may take at most without any answer of the server before the server is
/// checked, see [`Limits`].
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// How long a check may take at most before the server counts as away, see [`Limits`].
const SLOW: Duration = Duration::from_secs(3);

/// How many times longer than connecting takes such an attempt may take on a slow network.
const SLOW_NETWORK: u32 = 10;

/// How long work waits for the check of a server that neither answered nor refused before.
const HANGING: Duration = Duration::from_millis(250);

/// How long a connection is idle before the system asks whether the other side is there, which also
/// keeps routers from forgetting the connection, and how often it asks.
const KEEPALIVE: (Duration, u32) = (Duration::from_secs(20), 3);

/// How long the other side may leave what was sent unacknowledged before the system ends the
/// connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);

/// Why a server is away that neither answers nor refuses.
const NO_ANSWER: &str = "it is slow or does not answer";

/// How long a transaction may be idle, as one of a process that was stopped, before the server ends
/// it and others can have its session. It is shorter than a lease, so a stopped process does not
/// hold up a takeover.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(1);

/// How to reach a database of PostgreSQL. Each field has a setter of its name.
#[derive(Debug, Clone, Setters)]
#[non_exhaustive]
pub struct PostgresOptions {
    #[setters(skip)]
    config: Config,
    /// Under which name the sessions are stored. Several installations can share a database, and
    /// none sees the sessions of another. By default it is `default`.
    #[setters(into)]
    pub tenant: String,
    /// The most connections that this process has open for its calls, at least one. By default there are eight. If
    /// all are in use, a call waits for one for up to five seconds. One more renews the leases of
    /// sessions, and another checks the server if it does not answer.
    pub max_connections: usize,
    /// How long a statement may take, including the time that it waits for a lock. By default ten
    /// seconds.
    pub statement_timeout: Duration,
    /// How long work is repeated that fails for a reason that passes, such as a failover. By default
    /// eight seconds. A caller with a deadline of its own sets less than that, so that it learns of the
    /// failure.
    pub retry_for: Duration,
    /// A file with certificates (PEM) of authorities that sign the server's certificate, besides
    /// those that browsers trust. It is read when the database is opened.
    pub ca_file: Option<PathBuf>,
    /// Whether the database is opened also if it does not answer. All work fails then until it does,
    /// see [`Record::outage`](crate::Record::outage). By default it is an error.
    pub may_be_away: bool,
}

impl PostgresOptions {
    /// The database at `url`, as `postgres://user:password@host:5432/name`. Several hosts may be
    /// listed for a failover: the one that can be written is used.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn new(url: &str) -> Result<Self, RecordError> {
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // The URL holds a password, so the error does not show it.
            RecordError::Server {
                server: "PostgreSQL".to_owned(),
                cause: error.to_string().into(),
            }
        })?;
        Ok(Self {
            config,
            tenant: "default".to_owned(),
            max_connections: 8,
            statement_timeout: Duration::from_secs(10),
            retry_for: RETRY_FOR,
            ca_file: None,
            may_be_away: false,
        })
    }

    /// The server and the database, for messages. No password is in it.
    pub fn name(&self) -> String {
        let hosts: Vec<String> = (self.config.get_hosts().iter().enumerate())
            .map(|(at, host)| {
                let host = match host {
                    Host::Tcp(host) => host.clone(),
                    #[cfg(unix)]
                    Host::Unix(path) => path.display().to_string(),
                };
                let ports = self.config.get_ports();
                // A single port is that of all hosts.
                match ports.get(at).or(ports.first()) {
                    Some(port) => format!("{host}:{port}"),
                    None => host,
                }
            })
            .collect();
        let name = self.config.get_dbname().unwrap_or("postgres");
        format!("postgres://{}/{name}", hosts.join(","))
    }
}

/// Why work in the database failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server, or the connection to it.
    Postgres(tokio_postgres::Error),
    /// No connection can be had.
    Pool(String),
    /// The tables have this version, which is another one than this program's.
    Version(i64),
    /// The work itself refuses to go on.
    Refused(RecordError),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Postgres(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Postgres(error),
            error => Self::Pool(error.to_string()),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // Its own text is only "db error", and the reason is in its source.
            Self::Postgres(error) => match std::error::Error::source(error) {
                Some(source) => write!(out, "{error}: {source}"),
                None => write!(out, "{error}"),
            },
            Self::Pool(what) => write!(out, "{what}"),
            Self::Version(found) => write!(out, "the tables have the version {found}"),
            Self::Refused(error) => write!(out, "{error}"),
        }
    }
}

/// How a failure may pass, if it does at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passing {
    /// Another transaction was in the way. The same connection can be used.
    Conflict,
    /// The server or the connection is gone, or it may only be read. Another connection is needed.
    Connection,
}

impl Failure {
    /// Whether the work may succeed if it is done again, and what that needs. None for an error
    /// that would come again, such as a table that is missing.
    fn passing(&self) -> Option<Passing> {
        let error = match self {
            Self::Postgres(error) => error,
            Self::Pool(_) => return Some(Passing::Connection),
            Self::Version(_) | Self::Refused(_) => return None,
        };
        let Some(state) = error.code() else {
            // Without an answer of the server it is the connection that failed.
            return Some(Passing::Connection);
        };
        let conflicts = [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
        ];
        // What a server answers that shuts down, starts, or is a standby now, and that ended a
        // transaction while this process was stopped.
        let failovers = [
            &SqlState::ADMIN_SHUTDOWN,
            &SqlState::CRASH_SHUTDOWN,
            &SqlState::CANNOT_CONNECT_NOW,
            &SqlState::READ_ONLY_SQL_TRANSACTION,
            &SqlState::TOO_MANY_CONNECTIONS,
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        match () {
            () if conflicts.contains(&state) => Some(Passing::Conflict),
            // Class 08: connection exceptions.
            () if failovers.contains(&state) || state.code().starts_with("08") => {
                Some(Passing::Connection)
            }
            () => None,
        }
    }
}

/// Whether a server answers this process.
#[derive(Debug, Default)]
struct State {
    /// Since when it is away, and why. None while it answers.
    away: Option<(Instant, String)>,
    /// When it answered last.
    answered: Option<Instant>,
    /// How long it took to connect at the last check.
    connects_in: Duration,
    /// Whether [`Server::check_until_it_answers`] runs.
    is_checked: bool,
    /// Since when a check is under way.
    checked_since: Option<Instant>,
    /// How many checks have failed, and whether the last one had no answer at all.
    failed_checks: (u64, bool),
}

/// How long work on a server may take.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// How long work is repeated.
    retry_for: Duration,
    /// How long an attempt may take without any answer of the server before the server is checked.
    suspicious: Duration,
    /// How long a check may take before the server counts as away. Also how long an attempt may take
    /// on a connection that was used before, since the connection may be dead although the server
    /// is not.
    slow: Duration,
    /// How long a call waits for its result, retries included. No attempt takes longer.
    patience: Duration,
}

impl Limits {
    /// Whoever waits for as long as work is repeated learns that the server is away, unless that
    /// time is too short to tell.
    fn of(options: &PostgresOptions) -> Self {
        let retry_for = options.retry_for;
        Self {
            retry_for,
            suspicious: (retry_for / 4).clamp(SUSPICIOUS / 4, SUSPICIOUS),
            slow: (retry_for / 4 * 3).clamp(SLOW / 3, SLOW),
            // The last attempt may begin just before the retries end, and needs a connection and
            // time of its own.
            patience: retry_for + CONNECT + options.statement_timeout * 2,
        }
    }
}

/// A server, shared by all work on it.
#[derive(Debug)]
struct Server {
    name: String,
    limits: Limits,
    /// For checks. It never has an idle connection, so each check makes a new one.
    pool: Pool,
    state: watch::Sender<State>,
    /// Ends the pause before the next check.
    wanted: Notify,
}

impl Server {
    /// Notes that the server answered.
    fn note_answer(&self) {
        self.state.send_if_modified(|state| {
            state.answered = Some(Instant::now());
            let Some((since, _)) = state.away.take() else {
                return false;
            };
            let seconds = since.elapsed().as_secs();
            tracing::info!(
                "the database {} answers again, after {seconds} s",
                self.name
            );
            true
        });
    }

    /// Notes that a check which began at `began` failed. The server is away since `since`, unless it
    /// answered others meanwhile. `hangs` says whether the check had no answer at all.
    fn note_failed_check(&self, began: Instant, since: Instant, (why, hangs): (String, bool)) {
        self.state.send_modify(|state| {
            state.checked_since = None;
            state.failed_checks = (state.failed_checks.0 + 1, hangs);
            if state.answered.is_some_and(|answered| answered > began) {
                return;
            }
            match &mut state.away {
                Some((_, last)) => *last = why,
                None => {
                    tracing::warn!("the database {} does not answer: {why}", self.name);
                    state.away = Some((since, why));
                }
            }
        });
    }

    /// Checks in the background whether the server answers, because work that began at `since` has
    /// no answer.
    fn check(self: &Arc<Self>, since: Instant) {
        let is_first = |state: &mut State| !std::mem::replace(&mut state.is_checked, true);
        if self.state.send_if_modified(is_first) {
            tokio::spawn(Arc::clone(self).check_until_it_answers(since));
        }
    }

    async fn check_until_it_answers(self: Arc<Self>, since: Instant) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            self.state
                .send_modify(|state| state.checked_since = Some(began));
            let checked = timeout(self.limits.slow, self.pool.get()).await;
            let hangs = checked.is_err();
            let failure = match checked {
                Ok(Ok(client)) => {
                    drop(Object::take(client));
                    let connects_in = began.elapsed();
                    self.state
                        .send_modify(|state| state.connects_in = connects_in);
                    None
                }
                // If it refuses for a reason that stays, work learns of it as of any error.
                Ok(Err(error)) => Some(Failure::from(error)).filter(|it| it.passing().is_some()),
                Err(_) => Some(Failure::Pool(NO_ANSWER.to_owned())),
            };
            match failure {
                None => self.note_answer(),
                Some(failure) => {
                    self.note_failed_check(began, since, (failure.to_string(), hangs));
                    let _ = timeout(pause, self.wanted.notified()).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            let is_over = self.state.send_if_modified(|state| {
                let is_over = state.away.is_none();
                if is_over {
                    (state.is_checked, state.checked_since) = (false, None);
                }
                is_over
            });
            if is_over {
                return;
            }
        }
    }

    /// Waits until the server answers, if it is away: until it has been away for `retry_for`, or else
    /// for the next check, but not for one that hangs. `began` is when the work began.
    ///
    /// # Errors
    /// The server is still away.
    async fn is_there(&self, began: Instant, retry_for: Duration) -> Result<(), Failure> {
        let mut changes = self.state.subscribe();
        let (wait, last_check) = {
            let state = changes.borrow();
            let Some((since, _)) = &state.away else {
                return Ok(());
            };
            let now = Instant::now();
            let left = (began.min(*since) + retry_for).saturating_duration_since(now);
            let (failed_checks, hangs) = state.failed_checks;
            let most = if hangs { HANGING } else { SUSPICIOUS };
            let check_ends = state.checked_since.unwrap_or(now) + most;
            // One that is under way may have begun just before the server was back.
            let last_check = failed_checks + 1 + u64::from(state.checked_since.is_some());
            match left.is_zero() {
                true => (check_ends.saturating_duration_since(now), last_check),
                false => (left, u64::MAX),
            }
        };
        self.wanted.notify_one();
        let is_over = |state: &State| state.away.is_none() || state.failed_checks.0 >= last_check;
        drop(timeout(wait, changes.wait_for(is_over)).await);
        self.away().map_or(Ok(()), Err)
    }

    /// Why the server is away. None if it answers.
    fn away(&self) -> Option<Failure> {
        let state = self.state.borrow();
        let (_, why) = state.away.as_ref()?;
        Some(Failure::Pool(why.clone()))
    }

    /// Returns why the server is away as soon as it is. Has it checked while it answers nobody.
    async fn until_away(self: &Arc<Self>, began: Instant) -> Failure {
        let mut changes = self.state.subscribe();
        let suspicious = self.limits.suspicious;
        loop {
            let is_away = |state: &State| state.away.is_some();
            drop(timeout(suspicious, changes.wait_for(is_away)).await);
            if let Some(why) = self.away() {
                return why;
            }
            let answered = self.state.borrow().answered;
            if answered.is_none_or(|answered| answered.elapsed() >= suspicious) {
                self.check(began);
            }
        }
    }
}

/// Work on a connection, which may be repeated on another.
type Work<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// A database, with the connections to it and the thread that works on them.
pub(super) struct Database {
    /// Always set, except while this is dropped.
    runtime: Option<Runtime>,
    pool: Pool,
    /// For the renewal of leases, which must not wait for calls.
    lease_pool: Pool,
    server: Arc<Server>,
    /// Whether the tables were not looked at yet, so that each new connection does.
    is_unchecked: Arc<AtomicBool>,
    /// The sessions whose work callers wait for, one for each of them.
    under_way: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Database")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Prepares to connect. The first connection is made on first use.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, RecordError> {
        let name = options.name();
        let fail = |cause: Box<dyn std::error::Error + Send + Sync>| RecordError::Server {
            server: name.clone(),
            cause,
        };
        let runtime = Builder::new_multi_thread()
            // The work mostly waits for the network, so one thread is enough for all connections.
            .worker_threads(1)
            .thread_name("contexture-postgres")
            .enable_all()
            .build()
            .map_err(|error| fail(error.into()))?;
        let mut config = options.config.clone();
        // After a failover a host of the list may only be read.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("contexture");
        }
        if config.get_keepalives_interval().is_none() && config.get_keepalives_retries().is_none() {
            let (idle, retries) = KEEPALIVE;
            config.keepalives_idle(idle).keepalives_interval(idle);
            config.keepalives_retries(retries);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(UNACKNOWLEDGED);
        }
        let tls = MakeRustlsConnect::new(tls(options).map_err(fail)?);
        // A test at each use of a connection would cost every turn a round trip. If one is dead,
        // the work on it fails and is repeated on another.
        let fast = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        // The server keeps to these limits itself, so a statement ends even if this process was
        // stopped or no longer waits for it.
        let limits = format!(
            "SET statement_timeout = {statement}; SET lock_timeout = {statement};
             SET idle_in_transaction_session_timeout = {}",
            IDLE_IN_TRANSACTION.as_millis(),
            statement = options.statement_timeout.as_millis(),
        );
        let is_unchecked = Arc::new(AtomicBool::new(false));
        let set_up: Arc<(String, String, Arc<AtomicBool>)> =
            Arc::new((limits, name.clone(), Arc::clone(&is_unchecked)));
        let pool = |size| {
            let set_up = Arc::clone(&set_up);
            let hook = Hook::async_fn(move |client: &mut ClientWrapper, _| {
                let set_up = Arc::clone(&set_up);
                Box::pin(async move {
                    let (limits, server, is_unchecked) = &*set_up;
                    client
                        .batch_execute(limits)
                        .await
                        .map_err(HookError::Backend)?;
                    match is_unchecked.load(Ordering::Relaxed) {
                        true => schema::check_version(client, server).await,
                        false => Ok(()),
                    }
                })
            });
            let manager = Manager::from_config(config.clone(), tls.clone(), fast.clone());
            Pool::builder(manager)
                .max_size(size)
                .wait_timeout(Some(CONNECT))
                .create_timeout(Some(CONNECT))
                .runtime(deadpool_postgres::Runtime::Tokio1)
                .post_create(hook)
                .build()
                .map_err(|error| fail(error.into()))
        };
        Ok(Self {
            runtime: Some(runtime),
            pool: pool(options.max_connections.max(1))?,
            lease_pool: pool(1)?,
            is_unchecked,
            under_way: Mutex::default(),
            server: Arc::new(Server {
                pool: pool(1)?,
                name: name.clone(),
                limits: Limits::of(options),
                state: watch::Sender::default(),
                wanted: Notify::new(),
            }),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.server.name
    }

    /// Lets each new connection look at the version of the tables, because the server does not answer
    /// now.
    pub(super) fn check_later(&self) {
        self.is_unchecked.store(true, Ordering::Relaxed);
    }

    /// Why the server does not answer. None if it does.
    pub(super) fn outage(&self) -> Option<RecordError> {
        Some(self.error(self.server.away()?))
    }

    /// Whether work for this session is under way, or for all, or any work if it is None.
    pub(super) fn is_waited_for(&self, session: Option<&str>) -> bool {
        let under_way = lock(&self.under_way);
        let mut under_way = under_way.iter();
        under_way.any(|own| own.is_empty() || session.is_none_or(|session| session == own))
    }

    /// Does `work` for a session on a connection and returns its result. A failure that may pass is
    /// tried again. The session is empty if it is work for none or for all.
    pub(super) fn run<T: Send + 'static>(
        &self,
        session: &str,
        work: impl Fn(Object) -> Work<T> + Send + Sync + 'static,
    ) -> Result<T, RecordError> {
        self.run_for(session, self.server.limits.retry_for, work)
    }

    /// Like [`run`](Self::run), but a failure is not tried again.
    pub(super) fn run_once<T: Send + 'static>(
        &self,
        session: &str,
        work: impl Fn(Object) -> Work<T> + Send + Sync + 'static,
    ) -> Result<T, RecordError> {
        self.run_for(session, Duration::ZERO, work)
    }

    fn run_for<T: Send + 'static>(
        &self,
        session: &str,
        retry_for: Duration,
        work: impl Fn(Object) -> Work<T> + Send + Sync + 'static,
    ) -> Result<T, RecordError> {
        let (sender, receiver) = sync_channel(1);
        let (pool, server) = (self.pool.clone(), Arc::clone(&self.server));
        self.spawn(async move {
            // Nobody receives this if the caller has waited for too long.
            let _ = sender.send(repeat(&pool, &server, retry_for, work).await);
        });
        lock(&self.under_way).push(session.to_owned());
        let received = receiver.recv_timeout(self.server.limits.patience);
        let mut under_way = lock(&self.under_way);
        if let Some(at) = under_way.iter().position(|own| own == session) {
            under_way.swap_remove(at);
        }
        drop(under_way);
        match received {
            Ok(done) => done.map_err(|failure| self.error(failure)),
            // It takes longer than all limits together, or it panicked.
            Err(_) => Err(self.error(Failure::Pool("it does not answer".to_owned()))),
        }
    }

    /// Runs a future on the runtime.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(future);
        }
    }

    /// The pool from which the renewal of leases takes its connection.
    pub(super) fn lease_pool(&self) -> Pool {
        self.lease_pool.clone()
    }

    fn error(&self, failure: Failure) -> RecordError {
        let cause = match failure {
            Failure::Refused(error) => return error,
            Failure::Version(found) => return schema::wrong_version(self.name(), found),
            failure => failure.to_string().into(),
        };
        RecordError::Server {
            server: self.name().to_owned(),
            cause,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waiting for it would panic in a thread of another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Does work until it succeeds, fails for good, or `retry_for` has passed. If the server is away, that
/// time began when it went. Each attempt gets a connection of its own from the pool.
async fn repeat<T>(
    pool: &Pool,
    server: &Arc<Server>,
    retry_for: Duration,
    work: impl Fn(Object) -> Work<T> + Send + Sync,
) -> Result<T, Failure> {
    let (began, limits) = (Instant::now(), server.limits);
    let mut pause = FIRST_PAUSE;
    loop {
        server.is_there(began, retry_for).await?;
        // After a failure, the pool has only connections that work.
        let may_be_dead = pause == FIRST_PAUSE;
        let attempted = Instant::now();
        let attempt = async {
            let client = pool.get().await?;
            let may_be_dead = may_be_dead && Object::metrics(&client).recycle_count > 0;
            let most = match may_be_dead {
                true => (limits.slow).max(server.state.borrow().connects_in * SLOW_NETWORK),
                false => limits.patience,
            };
            let done = timeout(most, work(client)).await;
            done.unwrap_or_else(|_| Err(Failure::Pool(NO_ANSWER.to_owned())))
        };
        // If the attempt is given up, its connection returns to the pool and leaves it below.
        let done = tokio::select! {
            biased;
            done = attempt => done,
            why = server.until_away(attempted) => Err(why),
        };
        let passing = done.as_ref().err().and_then(Failure::passing);
        let failure = match done {
            Err(failure) if passing.is_some() => failure,
            done => {
                server.note_answer();
                return done;
            }
        };
        if passing == Some(Passing::Connection) {
            // The others lead to the same server.
            pool.retain(|_, _| false);
            server.check(attempted);
        }
        // One more attempt needs no time, and what failed may have been an old connection.
        let is_last = pause > FIRST_PAUSE || retry_for.is_zero();
        if is_last && began.elapsed() + pause > retry_for {
            return Err(failure);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The settings of TLS: the authorities that browsers trust, and those of the user's file. Whether
/// TLS is used at all is said by `sslmode` in the URL.
///
/// # Errors
/// The file cannot be read, or a certificate in it is not valid.
fn tls(
    options: &PostgresOptions,
) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = &options.ca_file {
        let cannot_read = |error| format!("{}: {error}", path.display());
        for certificate in CertificateDer::pem_file_iter(path).map_err(cannot_read)? {
            roots.add(certificate.map_err(cannot_read)?)?;
        }
    }
    // Named here, because the default would panic in a program that links two providers and has
    // chosen none.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
