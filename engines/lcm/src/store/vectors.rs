//! The vectors of messages, which exist if the user has configured an embedder.
//!
//! A question finds messages by its words. With vectors it also finds messages that mean the same
//! and share no word with it. Computing them is slow, so it happens after the turn on a thread of
//! the store, in batches of a few messages. [`Store::embed_now`] does the same at once, for
//! commands.
//!
//! Vectors are stored with the fingerprint of the embedder that made them. If the user configures
//! another embedder, the old vectors no longer count and all messages are embedded again. The
//! vectors of a deleted message are deleted with it. What a vector is and how it is compared is the
//! business of `contexture-embed`.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::current_messages::keys;
use super::read::Bodies;
use super::worker::Orders;
use super::{Database, Key, SessionId, Source, Store, query_all};
use crate::error::StoreError;
use contexture_embed::Embedder;

/// How many messages are read and written together. A batch is the work that a cancellation loses.
const BATCH: u32 = 16;

impl Store {
    /// Computes the vectors that messages of a session do not have yet. Without an embedder nothing
    /// happens. `step` is called before each message, so that a command can show its progress.
    ///
    /// # Errors
    /// Returns an error if the store or the transcript fails, and [`StoreError::Cancelled`] if the
    /// caller stopped it. Batches that were complete before stay stored.
    pub fn embed_now(&self, session: SessionId, step: impl Fn()) -> Result<(), StoreError> {
        let Some(embedder) = &self.settings().embedder else {
            return Ok(());
        };
        let go_on = || {
            step();
            self.go_on()
        };
        catch_up(self.database(), self.source()?, embedder, session, 0, go_on).map(|_| ())
    }

    /// Computes missing vectors in the background. Closing the store interrupts this after the
    /// current message.
    pub(crate) fn embed_soon(&self, session: SessionId) {
        if let (Some(worker), Ok(source)) = (&self.handle.embedding, self.source()) {
            worker.wake(session, source);
        }
    }

    /// Returns how many messages of a session have vectors of the current embedder, or None if
    /// there is no embedder.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
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

/// Calls `each` with the vectors of each message of a session before the ordinal `end`. Messages
/// without vectors of this embedder are skipped.
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

/// The body of the thread that computes vectors. It ends when the store is closed.
pub(super) fn run(database: &Database, embedder: &Embedder, orders: &Orders) {
    // The ordinal up to which each session has its vectors, so that it is not searched again.
    let mut done: HashMap<SessionId, u32> = HashMap::new();
    while let Some(sessions) = orders.wait() {
        for (session, source) in sessions {
            let from = done.get(&session).copied().unwrap_or(0);
            let made = catch_up(database, &source, embedder, session, from, || match orders
                .is_closing()
            {
                true => Err(StoreError::Cancelled),
                false => Ok(()),
            });
            // A failure such as a full disk or a lock is retried with the next delivery. Until then
            // these messages are found by their words alone.
            if let Ok(end) = made {
                done.insert(session, end);
            }
        }
    }
}

/// Computes the missing vectors of a session from the ordinal `from` on. `go_on` is called before
/// each message and may stop it with an error. Returns the ordinal at which the search for missing
/// vectors ended.
fn catch_up(
    database: &Database,
    source: &Source,
    embedder: &Embedder,
    session: SessionId,
    mut from: u32,
    go_on: impl Fn() -> Result<(), StoreError>,
) -> Result<u32, StoreError> {
    loop {
        let _alone = database.embed_alone();
        let missing = database.read_over(source, |snapshot| {
            let mut missing = missing(snapshot, embedder, session, from)?;
            if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
                let all = first.ordinal()..last.ordinal() + 1;
                let end = snapshot.known_end(session, &all)?;
                missing.retain(|key| key.ordinal() < end);
            }
            Ok(missing)
        })?;
        let Some(last) = missing.last() else {
            return Ok(from);
        };
        from = last.ordinal() + 1;
        let mut texts = Vec::new();
        database.read_over(source, |snapshot| {
            let mut bodies = Bodies::new(snapshot);
            bodies.expect(missing.iter().copied());
            for key in &missing {
                // A message whose text is not in the transcript gets no vectors.
                let body = bodies.body(*key)?;
                texts.extend(body.map(|body| (*key, body.as_str().to_owned())));
            }
            Ok(())
        })?;
        let mut made = Vec::new();
        for (key, text) in texts {
            go_on()?;
            made.push((key, embedder.vectors(&text)));
        }
        database.write_behind(|transaction| {
            // A message may have been deleted since it was read.
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

/// Returns the keys of the next messages from the ordinal `from` on that have no vectors of this
/// embedder, at most [`BATCH`] of them.
fn missing(
    connection: &Connection,
    embedder: &Embedder,
    session: SessionId,
    from: u32,
) -> Result<Vec<Key>, StoreError> {
    let [first, last] = keys(session, &(from..u32::MAX));
    query_all(
        connection,
        "SELECT m.id FROM messages m LEFT JOIN vectors v ON v.message = m.id AND v.embedder = ?3
         WHERE m.id >= ?1 AND m.id < ?2 AND v.message IS NULL ORDER BY m.id LIMIT ?4",
        params![first, last, embedder.fingerprint(), BATCH],
        |row| row.get(0).map(Key),
    )
}
