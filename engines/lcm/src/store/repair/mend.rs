//! Making whole what rows that could not be read left behind.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::store::ingest::PackedBlock;
use crate::store::live::live_ranges;
use crate::store::nodes::{for_each_node_text, summary_hash};
use crate::store::read::{body_and_raw, rows_in, whole};
use crate::store::{Blocks, Database, Key, SessionInfo, sessions};

/// Rows that are held at a time.
const PAGE: u32 = 1_024;

/// What stands for the text of a summary that was lost.
const LOST_TEXT: &str = "[The text of this summary was lost to a damaged file. What it stood for is there: \
                         expand it.]";

/// Sessions for what belongs to one that is gone, and cursors for all.
const SESSIONS: &str = "
INSERT OR IGNORE INTO sessions(id, name, created_at, touched_at)
    SELECT DISTINCT session, 'recovered-' || session, 0, 0 FROM messages;
DELETE FROM messages WHERE session <> id >> 32 OR session NOT IN (SELECT id FROM sessions);
UPDATE sessions SET
    next_ordinal = max(next_ordinal, coalesce((SELECT (max(id) & 0xffffffff) + 1 FROM messages
        WHERE id BETWEEN sessions.id << 32 AND (sessions.id << 32) + 4294967295), 0)),
    order_at = max(order_at, coalesce((SELECT max(order_at) FROM messages
        WHERE id BETWEEN sessions.id << 32 AND (sessions.id << 32) + 4294967295), 0));
DELETE FROM live WHERE session NOT IN (SELECT id FROM sessions) OR end < first;
INSERT INTO live(session, first, end) SELECT id, 0, NULL FROM sessions
    WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = sessions.id);
INSERT OR IGNORE INTO live(session, first, end) SELECT id, next_ordinal, NULL FROM sessions
    WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = sessions.id AND end IS NULL);
DELETE FROM payloads WHERE session NOT IN (SELECT id FROM sessions);
DELETE FROM payload_chunks WHERE payload NOT IN (SELECT id FROM payloads);
";

/// What refers to messages that are gone.
const REFERENCES: &str = "
UPDATE messages SET replaces = NULL WHERE replaces NOT IN (SELECT id FROM messages);
DELETE FROM payloads WHERE id NOT IN (SELECT payload FROM messages WHERE payload NOT NULL);
DELETE FROM payload_chunks WHERE payload NOT IN (SELECT id FROM payloads);
DELETE FROM nodes WHERE session NOT IN (SELECT id FROM sessions) OR session <> id >> 32;
DELETE FROM node_messages WHERE message NOT IN (SELECT id FROM messages);
";

/// What refers to summaries that are gone.
const LINEAGE: &str = "
DELETE FROM node_messages WHERE node NOT IN (SELECT id FROM nodes);
DELETE FROM node_children WHERE node NOT IN (SELECT id FROM nodes) OR child NOT IN (SELECT id FROM nodes);
DELETE FROM frontier WHERE node NOT IN (SELECT id FROM nodes)
    OR session NOT IN (SELECT id FROM sessions) OR session <> node >> 32;
";

/// What summaries say of the messages below them.
const SPANS: &str = "UPDATE nodes SET (messages, first, last) = (
    WITH RECURSIVE below(node) AS (
        VALUES(nodes.id) UNION SELECT child FROM node_children JOIN below USING(node)),
    under(message) AS (SELECT DISTINCT message FROM node_messages JOIN below USING(node))
    SELECT count(*),
        (SELECT host FROM messages JOIN under ON id = message ORDER BY id LIMIT 1),
        (SELECT host FROM messages JOIN under ON id = message ORDER BY id DESC LIMIT 1) FROM under)";

/// Summaries without a source; of those above them the last may follow.
const WITHOUT_SOURCE: &str = "DELETE FROM nodes WHERE id NOT IN (SELECT node FROM node_messages)
    AND id NOT IN (SELECT node FROM node_children)";

/// Every row has its session, and every session its cursor.
pub(super) fn sessions(connection: &Connection) -> Result<(), StoreError> {
    Ok(connection.execute_batch(SESSIONS)?)
}

/// Removes messages whose content is gone or is not what was stored, and sets each session back to where the
/// first of them is missing, so that the host shows again what it has. How many are there, and how many are
/// missing.
pub(super) fn messages(
    database: &Database,
    mut progress: impl FnMut(u64, u64),
) -> Result<(u64, u64), StoreError> {
    let sessions = database.read(sessions::sessions_in)?;
    let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
    let (mut kept, mut done) = (0, 0);
    for info in &sessions {
        let lost = unreadable(database, info)?;
        kept += sound_only(database, info, &lost)?;
        done += u64::from(info.messages);
        progress(done, total);
    }
    database.write(|transaction| Ok(transaction.execute_batch(REFERENCES)?))?;
    Ok((kept, total.saturating_sub(kept)))
}

/// The keys of messages of which there is a row and no content.
fn unreadable(database: &Database, info: &SessionInfo) -> Result<BTreeSet<Key>, StoreError> {
    database.read(|connection| {
        let mut blocks = Blocks::new(connection)?;
        let mut lost = BTreeSet::new();
        for first in (0..info.messages).step_by(PAGE as usize) {
            for row in rows_in(connection, info.id, &(first..first.saturating_add(PAGE)))? {
                let key = row.key;
                match whole(connection, &mut blocks, row) {
                    Ok(_) => {}
                    Err(StoreError::Damaged(_)) => {
                        lost.insert(key);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(lost)
    })
}

/// Leaves the sound messages of a session and the blocks that hold them; gives how many there are.
fn sound_only(
    database: &Database,
    info: &SessionInfo,
    lost: &BTreeSet<Key>,
) -> Result<u64, StoreError> {
    let [first, last] = [Key::new(info.id, 0).0, Key::new(info.id, u32::MAX).0];
    database.write(|transaction| {
        for key in lost {
            transaction.execute("DELETE FROM messages WHERE id = ?1", [key.0])?;
        }
        let present: BTreeSet<Key> = transaction
            .prepare("SELECT id FROM messages WHERE id BETWEEN ?1 AND ?2")?
            .query_map([first, last], |row| row.get(0).map(Key))?
            .collect::<Result<_, _>>()?;
        let places = transaction
            .prepare("SELECT id FROM blocks WHERE id BETWEEN ?1 AND ?2")?
            .query_map([first, last], |row| row.get(0).map(Key))?
            .collect::<Result<Vec<_>, _>>()?;
        let mut blocks = Blocks::new(transaction)?;
        for place in places {
            let held = match blocks.held(place) {
                Ok(held) => held,
                Err(StoreError::Damaged(_)) => Vec::new(),
                Err(error) => return Err(error),
            };
            if !held.is_empty() && held.iter().all(|key| present.contains(key)) {
                continue;
            }
            // What is missing has no content either, so that it can be put back whole; the others get blocks
            // of their own.
            let mut alone = Vec::new();
            for key in held.iter().filter(|key| present.contains(key)) {
                let draft = body_and_raw(transaction, &mut blocks, *key)?;
                alone.push((*key, PackedBlock::of(database, &[draft.draft()])?));
            }
            transaction.execute("DELETE FROM blocks WHERE id = ?1", [place.0])?;
            blocks = Blocks::new(transaction)?;
            for (key, block) in alone {
                block.insert(transaction, key)?;
            }
        }
        set_back(transaction, info, &present)?;
        Ok(present.len() as u64)
    })
}

/// The session ends, as far as the host is told, before the first live message that is missing.
fn set_back(
    connection: &Connection,
    info: &SessionInfo,
    present: &BTreeSet<Key>,
) -> Result<(), StoreError> {
    let live = live_ranges(connection, info.id)?;
    let keys = || {
        live.iter()
            .flat_map(|range| range.clone().map(|ordinal| Key::new(info.id, ordinal)))
    };
    if let Some(missing) = keys().find(|key| !present.contains(key)) {
        connection.execute(
            "UPDATE messages SET chain = NULL WHERE id > ?1 AND id <= ?2",
            [missing.0, Key::new(info.id, u32::MAX).0],
        )?;
    }
    let last = keys().rfind(|key| present.contains(key));
    // What is missing at the end comes again in its place.
    let next = present.last().map_or(0, |key| key.ordinal() + 1);
    connection.execute(
        "UPDATE sessions SET last_host = (SELECT host FROM messages WHERE id = ?2),
             next_ordinal = max(?3, (SELECT max(first) FROM live WHERE session = ?1)) WHERE id = ?1",
        params![info.id.0, last.map(|key| key.0), next],
    )?;
    Ok(())
}

/// Gives summaries whose text is gone a note in its place, and removes those without a source. How many are
/// there, and how many lost their text.
pub(super) fn summaries(database: &Database) -> Result<(u64, u64), StoreError> {
    let (all, lost) = database.read(|connection| {
        let (mut all, mut lost) = (0u64, Vec::new());
        for info in sessions::sessions_in(connection)? {
            for_each_node_text(connection, info.id, |key, text| {
                all += 1;
                match text {
                    Ok(_) => {}
                    Err(StoreError::Damaged(_)) => lost.push(key),
                    Err(error) => return Err(error),
                }
                Ok(())
            })?;
        }
        Ok((all, lost))
    })?;
    let data = zstd::bulk::compress(LOST_TEXT.as_bytes(), 1)
        .map_err(|error| StoreError::Damaged(error.to_string()))?;
    database.write(|transaction| {
        for key in &lost {
            // Without a model, so that it is written again once one is there.
            transaction.execute(
                "UPDATE nodes SET level = 3, degraded = 1, model = NULL, tokens = ?2, hash = ?3,
                                  bytes = ?4, data = ?5 WHERE id = ?1",
                params![
                    key.0,
                    LOST_TEXT.len() as i64 / 4,
                    summary_hash(LOST_TEXT.as_bytes()),
                    LOST_TEXT.len() as i64,
                    data
                ],
            )?;
        }
        loop {
            transaction.execute_batch(LINEAGE)?;
            if transaction.execute(WITHOUT_SOURCE, [])? == 0 {
                break;
            }
        }
        transaction.execute(SPANS, [])?;
        let left: i64 =
            transaction.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0))?;
        Ok((all.min(left as u64), lost.len() as u64))
    })
}
