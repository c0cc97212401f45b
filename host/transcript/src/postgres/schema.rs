//! The tables in PostgreSQL, and the migrations that make them.
//!
//! Every key begins with the tenant and the session, and no foreign key leaves a session. So a
//! clustered engine can distribute the tables by session. A migration runs in one transaction, and
//! `contexture.migrations` says which ones were applied.

use deadpool_postgres::{GenericClient, HookError};
use tokio_postgres::Client;

use super::connection::{Database, Failure};
use super::read::query_one;
use crate::error::RecordError;

/// The migrations in order. The number of the last one is the version of the tables. A migration
/// that was released is never changed.
const MIGRATIONS: [&str; 1] = [
    // Ids are texts of bytes: sorted by them, whatever the database's language is.
    r#"
CREATE TABLE contexture.sessions (
    tenant       text COLLATE "C" NOT NULL,
    session      text COLLATE "C" NOT NULL,
    created_ms   bigint NOT NULL,
    used_ms      bigint,
    archived_ms  bigint,
    next_id      bigint NOT NULL,
    engine       text NOT NULL,
    format       text NOT NULL DEFAULT '',
    shown_last   bigint,
    pending_cut  bigint,
    recovered    bigint,
    pauses_more  bigint NOT NULL DEFAULT 0,
    pauses_saved bigint NOT NULL DEFAULT 0,
    compactions  bigint NOT NULL DEFAULT 0,
    usage        text NOT NULL DEFAULT '',
    -- How many commits there were. A writer that lost the answer to a commit sees here whether it was made.
    commits      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session)
);
CREATE TABLE contexture.messages (
    tenant     text COLLATE "C" NOT NULL,
    session    text COLLATE "C" NOT NULL,
    id         bigint NOT NULL,
    identity   bytea NOT NULL,
    shape      bigint NOT NULL,
    chain      bigint NOT NULL,
    replaces   bigint,
    cut        boolean NOT NULL DEFAULT false,
    said_ms    bigint,
    arrived_ms bigint,
    wire       bigint,
    part       bigint,
    PRIMARY KEY (tenant, session, id),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
CREATE INDEX messages_by_replaced ON contexture.messages (tenant, session, replaces) WHERE replaces IS NOT NULL;
CREATE TABLE contexture.texts (
    tenant   text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    number   bigint NOT NULL,
    format   text NOT NULL,
    tools    text,
    reading  text,
    bytes    bigint NOT NULL,
    checksum bigint NOT NULL,
    -- Compressed already, so PostgreSQL need not try.
    data     bytea NOT NULL,
    PRIMARY KEY (tenant, session, number),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
ALTER TABLE contexture.texts ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE contexture.artifacts (
    tenant   text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    engine   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    bytes    bigint NOT NULL,
    checksum bigint NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (tenant, session, engine, name),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
ALTER TABLE contexture.artifacts ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE contexture.wire (
    tenant   text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    form     bigint NOT NULL,
    place    bigint NOT NULL,
    raw      bigint NOT NULL,
    messages bytea NOT NULL,
    PRIMARY KEY (tenant, session, form, place),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
CREATE TABLE contexture.compactions (
    tenant  text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    engine  text NOT NULL,
    entries text NOT NULL,
    PRIMARY KEY (tenant, session),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
CREATE TABLE contexture.written (
    tenant   text COLLATE "C" NOT NULL,
    session  text COLLATE "C" NOT NULL,
    identity bytea NOT NULL,
    id       bigint NOT NULL,
    shortens boolean NOT NULL,
    covers   text NOT NULL,
    PRIMARY KEY (tenant, session, identity, id),
    FOREIGN KEY (tenant, session) REFERENCES contexture.sessions ON DELETE CASCADE
);
-- The texts of embedders. Their session need not exist.
CREATE TABLE contexture.kept (
    tenant  text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    value   text NOT NULL,
    PRIMARY KEY (tenant, session, name)
);
CREATE INDEX kept_by_name ON contexture.kept (tenant, name, session);
-- Who writes a session, and until when. The fence rises with every holder. A session that is deleted keeps its lease.
CREATE TABLE contexture.leases (
    tenant  text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    fence   bigint NOT NULL,
    holder  text NOT NULL,
    until   timestamptz NOT NULL,
    PRIMARY KEY (tenant, session)
);
"#,
];

/// The version of the tables that this program reads and writes. It opens no database with another
/// one.
pub(super) const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// The version of the tables in the database. Zero if there are none.
pub(super) fn version(database: &Database) -> Result<i64, RecordError> {
    database.run("", |client| {
        Box::pin(async move { Ok(version_of(&client).await?) })
    })
}

/// The version of the tables in the database of this connection. Zero if there are none.
async fn version_of(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let exists = "SELECT to_regclass('contexture.migrations') IS NOT NULL";
    if !client.query_one(exists, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(0);
    }
    client.query_one(NEWEST, &[]).await?.try_get(0)
}

/// The version of the tables, if there are any.
const NEWEST: &str = "SELECT coalesce(max(version), 0) FROM contexture.migrations";

/// Refuses to write if the tables were migrated since this program opened the database.
pub(super) async fn check_again(client: &impl GenericClient) -> Result<(), Failure> {
    refuse_other(query_one(client, NEWEST, &[]).await?.try_get(0)?)
}

/// Refuses tables of another version than this program's.
pub(super) fn refuse_other(found: i64) -> Result<(), Failure> {
    match found {
        SCHEMA_VERSION => Ok(()),
        found => Err(Failure::Version(found)),
    }
}

/// Refuses a new connection to a database whose tables have another version than this program's.
pub(super) async fn check_version(client: &Client, server: &str) -> Result<(), HookError> {
    let found = version_of(client).await.map_err(HookError::Backend)?;
    match found {
        SCHEMA_VERSION => Ok(()),
        found => Err(HookError::message(wrong_version(server, found).to_string())),
    }
}

/// The error for tables of another version than this program's.
pub(super) fn wrong_version(server: &str, found: i64) -> RecordError {
    RecordError::Schema {
        server: server.to_owned(),
        found,
        known: SCHEMA_VERSION,
    }
}

/// Applies the migrations that are missing, each in a transaction of its own. Several programs may
/// do it at once. Returns the version before, which is later than [`SCHEMA_VERSION`] if a newer
/// program migrated. Nothing is changed then.
pub(super) fn migrate(database: &Database) -> Result<i64, RecordError> {
    let before = version(database)?;
    for (number, sql) in (1..).zip(MIGRATIONS) {
        if number <= before {
            continue;
        }
        database.run("", move |mut client| {
            Box::pin(async move {
                let transaction = client.transaction().await?;
                // `IF NOT EXISTS` alone fails if two programs create the schema at the same moment.
                // Only one program gets past this line at a time.
                transaction
                    .batch_execute(
                        "SELECT pg_advisory_xact_lock(7083126417);
                         CREATE SCHEMA IF NOT EXISTS contexture;
                         CREATE TABLE IF NOT EXISTS contexture.migrations (
                             version bigint PRIMARY KEY,
                             applied_at timestamptz NOT NULL DEFAULT now()
                         );",
                    )
                    .await?;
                let added = transaction
                    .execute(
                        "INSERT INTO contexture.migrations (version) VALUES ($1) ON CONFLICT DO NOTHING",
                        &[&number],
                    )
                    .await?;
                // Another program may have applied it since the version was read.
                if added > 0 {
                    transaction.batch_execute(sql).await?;
                }
                transaction.commit().await?;
                Ok::<_, Failure>(())
            })
        })?;
    }
    Ok(before)
}
