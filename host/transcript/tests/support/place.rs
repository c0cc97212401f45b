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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (url, server) = match std::env::var("CONTEXTURE_TEST_DATABASE_URL") {
            Ok(url) => (url, None),
            Err(_) => {
                let server = Server::start()?;
                (server.url(), Some(server))
            }
        };
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let tenant = format!("test-{}-{}-{number}", std::process::id(), now.as_nanos());
        let options = PostgresOptions::new(&url).unwrap().tenant(tenant);
        Record::migrate(&options).unwrap();
        Some(Self {
            url,
            options,
            _server: server,
        })
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
}
