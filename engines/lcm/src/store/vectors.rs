//! The vectors of messages, where the user has an embedder. They are made behind the turns, kept with their
//! messages, and go with them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use rusqlite::{Connection, params};

use super::live::keys;
use super::read::for_each_body;
use super::worker::Orders;
use super::{Database, Key, SessionId, Store};
use crate::embed::Embedder;
use crate::error::StoreError;

/// How many messages are read, and written, together.
const BATCH: u32 = 16;

impl Store {
    /// Makes the vectors that messages of a session do not have yet.
    ///
    /// # Errors
    /// A store that failed. What was made until then stays.
    pub fn embed_now(&self, session: SessionId) -> Result<(), StoreError> {
        self.embed_each(session, || ())
    }

    /// Like [`embed_now`](Self::embed_now). `step` is called before each message.
    pub(crate) fn embed_each(&self, session: SessionId, step: impl Fn()) -> Result<(), StoreError> {
        let Some(embedder) = &self.settings().embedder else {
            return Ok(());
        };
        let go_on = || {
            step();
            self.go_on()
        };
        catch_up(self.database(), embedder, session, 0, go_on).map(|_| ())
    }

    /// The same in the background; closing the store does not wait for it.
    pub(crate) fn embed_soon(&self, session: SessionId) {
        if let Some(worker) = &self.handle.embedding {
            worker.wake(session);
        }
    }

    /// How many of a session's messages have vectors of the embedder; none without one.
    ///
    /// # Errors
    /// A store that failed.
    pub fn embedded(&self, session: SessionId) -> Result<Option<u64>, StoreError> {
        let Some(embedder) = &self.settings().embedder else {
            return Ok(None);
        };
        let [first, last] = keys(session, &(0..u32::MAX));
        self.read(|connection| {
            let count: i64 = connection
                .prepare_cached(
                    "SELECT count(*) FROM vectors
                     WHERE message >= ?1 AND message < ?2 AND embedder = ?3",
                )?
                .query_row([first, last, embedder.fingerprint()], |row| row.get(0))?;
            Ok(Some(count.max(0) as u64))
        })
    }
}

/// Calls `each` with the vectors of each message of a session that has some of this embedder, before the ordinal `end`.
pub(crate) fn for_each_vectors(
    connection: &Connection,
    session: SessionId,
    end: u32,
    embedder: &Embedder,
    mut each: impl FnMut(Key, &[u8]),
) -> Result<(), StoreError> {
    let [first, last] = keys(session, &(0..end));
    let mut statement = connection.prepare_cached(
        "SELECT message, data FROM vectors WHERE message >= ?1 AND message < ?2 AND embedder = ?3",
    )?;
    let mut rows = statement.query([first, last, embedder.fingerprint()])?;
    while let Some(row) = rows.next()? {
        let data = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        each(Key(row.get(0)?), data);
    }
    Ok(())
}

/// The thread that makes vectors.
pub(super) fn run(database: &Database, embedder: &Embedder, orders: &Orders) {
    // Up to where each session has its vectors.
    let mut done: HashMap<SessionId, u32> = HashMap::new();
    while let Some(sessions) = orders.wait() {
        for session in sessions {
            let from = done.get(&session).copied().unwrap_or(0);
            let made = catch_up(database, embedder, session, from, || {
                match orders.is_closing() {
                    true => Err(StoreError::Cancelled),
                    false => Ok(()),
                }
            });
            // A failure (a full disk, a lock) is retried with the next delivery; until then these messages are found
            // by their words alone.
            if let Ok(end) = made {
                done.insert(session, end);
            }
        }
    }
}

/// Makes the missing vectors of a session from an ordinal on; `go_on` may stop it before each message. Returns the end of
/// the session.
fn catch_up(
    database: &Database,
    embedder: &Embedder,
    session: SessionId,
    mut from: u32,
    go_on: impl Fn() -> Result<(), StoreError>,
) -> Result<u32, StoreError> {
    loop {
        let _alone = database.embed_alone();
        let missing = database.read(|connection| missing(connection, embedder, session, from))?;
        let Some(last) = missing.last() else {
            return Ok(from);
        };
        from = last.ordinal() + 1;
        let mut texts = Vec::new();
        database.read(|connection| {
            for key in &missing {
                let ordinals = key.ordinal()..key.ordinal() + 1;
                // An unreadable one has no vectors until a repair.
                for_each_body(connection, session, &ordinals, |key, body| {
                    texts.push((key, body.to_owned()));
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            Ok(())
        })?;
        let mut made = Vec::new();
        for (key, text) in texts {
            go_on()?;
            made.push((key, embedder.vectors(&text)));
        }
        database.write_behind(|transaction| {
            // A message may have been deleted meanwhile.
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO vectors(message, embedder, data)
                 SELECT id, ?2, ?3 FROM messages WHERE id = ?1",
            )?;
            for (key, vectors) in &made {
                insert.execute(params![key.0, embedder.fingerprint(), vectors])?;
            }
            Ok(())
        })?;
    }
}

/// The next messages of a session, from an ordinal on, without vectors of this embedder.
fn missing(
    connection: &Connection,
    embedder: &Embedder,
    session: SessionId,
    from: u32,
) -> Result<Vec<Key>, StoreError> {
    let [first, last] = keys(session, &(from..u32::MAX));
    let found = connection
        .prepare_cached(
            "SELECT m.id FROM messages m LEFT JOIN vectors v ON v.message = m.id AND v.embedder = ?3
             WHERE m.id >= ?1 AND m.id < ?2 AND v.message IS NULL ORDER BY m.id LIMIT ?4",
        )?
        .query_map(params![first, last, embedder.fingerprint(), BATCH], |row| {
            row.get(0).map(Key)
        })?
        .collect::<Result<_, _>>()?;
    Ok(found)
}
