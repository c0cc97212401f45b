//! The stores that a test runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use contexture_transcript::{PostgresOptions, Record};
use tempfile::TempDir;

use super::server::Server;

/// A database with tables, and with no sessions of the options' tenant.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) options: PostgresOptions,
    _server: Option<Server>,
}

impl Database {
    /// The database that `CONTEXTURE_TEST_DATABASE_URL` names, or one of a server of its own. None if
    /// there is neither, and that is said.
    pub(crate) fn new() -> Option<Self> {
        match std::env::var("CONTEXTURE_TEST_DATABASE_URL") {
            Ok(url) => Some(Self::at(url, None)),
            Err(_) => Self::alone(),
        }
    }

    /// The database of a server of its own. None if PostgreSQL is not installed.
    pub(crate) fn alone() -> Option<Self> {
        let server = Server::start()?;
        Some(Self::at(server.url(), Some(server)))
    }

    fn at(url: String, server: Option<Server>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let tenant = format!("test-{}-{}-{number}", std::process::id(), now.as_nanos());
        let options = PostgresOptions::new(&url).unwrap().tenant(tenant);
        Record::migrate(&options).unwrap();
        Self {
            url,
            options,
            _server: server,
        }
    }

    pub(crate) fn open(&self) -> Arc<Record> {
        Record::open_postgres(&self.options).unwrap()
    }
}

/// A store of either kind.
pub(crate) enum Place {
    Sqlite(TempDir),
    Postgres(Box<Database>),
}

impl Place {
    /// Every kind of store that there is on this machine, each empty.
    pub(crate) fn each() -> Vec<Self> {
        let sqlite = Self::Sqlite(tempfile::tempdir().unwrap());
        let postgres = Database::new().map(|database| Self::Postgres(Box::new(database)));
        [Some(sqlite), postgres].into_iter().flatten().collect()
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Opens it, as another process would.
    pub(crate) fn open(&self) -> Arc<Record> {
        match self {
            Self::Sqlite(home) => Record::open(home.path()).unwrap(),
            Self::Postgres(database) => database.open(),
        }
    }

    /// Has writes to a table fail until [`mend`](Self::mend): in a file, or in a database with this
    /// error.
    pub(crate) fn break_table(&self, table: &str, state: &str) {
        self.execute(&match self {
            Self::Sqlite(_) => {
                let trigger = |what: &str| {
                    format!(
                        "CREATE TRIGGER broken_{what} BEFORE {what} ON {table}
                         BEGIN SELECT RAISE(ABORT, 'broken'); END;"
                    )
                };
                ["INSERT", "UPDATE", "DELETE"].map(trigger).concat()
            }
            Self::Postgres(_) => format!(
                "CREATE OR REPLACE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS
                    $$ BEGIN RAISE EXCEPTION 'broken' USING errcode = '{state}'; END $$;
                 CREATE TRIGGER broken BEFORE INSERT OR UPDATE OR DELETE ON contexture.{table}
                    FOR EACH STATEMENT EXECUTE FUNCTION public.broken();"
            ),
        });
    }

    /// Ends what [`break_table`](Self::break_table) began.
    pub(crate) fn mend(&self, table: &str) {
        self.execute(&match self {
            Self::Sqlite(_) => ["INSERT", "UPDATE", "DELETE"]
                .map(|what| format!("DROP TRIGGER broken_{what};"))
                .concat(),
            Self::Postgres(_) => format!("DROP TRIGGER broken ON contexture.{table}"),
        });
    }

    /// Has a newer program change the tables, or undoes that.
    pub(crate) fn set_newer(&self, is_newer: bool) {
        self.execute(match (self, is_newer) {
            (Self::Sqlite(_), true) => "PRAGMA user_version = 99",
            (Self::Sqlite(_), false) => "PRAGMA user_version = 8",
            (Self::Postgres(_), true) => "INSERT INTO contexture.migrations (version) VALUES (99)",
            (Self::Postgres(_), false) => "DELETE FROM contexture.migrations WHERE version = 99",
        });
    }

    /// Runs statements, as another program would.
    pub(crate) fn execute(&self, statements: &str) {
        match self {
            Self::Sqlite(home) => {
                let file = home.path().join("sessions.sqlite3");
                let other = rusqlite::Connection::open(file).unwrap();
                other.execute_batch(statements).unwrap();
            }
            Self::Postgres(database) => {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().unwrap();
                runtime.block_on(async {
                    let (client, connection) =
                        tokio_postgres::connect(&database.url, tokio_postgres::NoTls)
                            .await
                            .unwrap();
                    tokio::spawn(connection);
                    client.batch_execute(statements).await.unwrap();
                });
            }
        }
    }
}
