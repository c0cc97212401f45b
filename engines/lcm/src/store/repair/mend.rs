//! Restores consistency after unreadable rows were lost.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::store::ingest::PackedBlock;
use crate::store::live::live_ranges;
use crate::store::nodes::packed;
use crate::store::read::{body_and_raw, rows_after, whole};
use crate::store::summaries::{for_each_node_text, summary_hash};
use crate::store::{Blocks, Database, Key, SessionInfo, sessions};

/// How many rows are held at a time.
const PAGE: u32 = 1_024;

/// At most this many messages can be missing at the end of a session; a larger number is itself damaged.
const MOST_AT_THE_END: i64 = 1_000_000;

/// The placeholder for a lost summary text.
const LOST_TEXT: &str = "[The text of this summary was lost to a damaged file. What it stood for is there: \
                         expand it.]";

/// Recreates missing sessions and cursors.
const SESSIONS: &str = "
UPDATE sessions SET next_ordinal = 0 WHERE next_ordinal NOT BETWEEN 0 AND 4294967295;
DELETE FROM live WHERE first NOT BETWEEN 0 AND 4294967295 OR end NOT BETWEEN 0 AND 4294967295;
INSERT OR IGNORE INTO sessions(id, name, created_at, touched_at)
    SELECT DISTINCT session, 'recovered-' || session, 0, 0 FROM messages;
DELETE FROM messages WHERE session <> id >> 32 OR session NOT IN (SELECT id FROM sessions);
UPDATE sessions SET order_at = max(order_at, coalesce((SELECT max(order_at) FROM messages
    WHERE id BETWEEN sessions.id << 32 AND (sessions.id << 32) + 4294967295), 0));
DELETE FROM live WHERE session NOT IN (SELECT id FROM sessions) OR end < first;
INSERT INTO live(session, first, end) SELECT id, 0, NULL FROM sessions
    WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = sessions.id);
DELETE FROM payloads WHERE session NOT IN (SELECT id FROM sessions);
DELETE FROM payload_chunks WHERE payload NOT IN (SELECT id FROM payloads);
";

/// References to lost messages.
const REFERENCES: &str = "
UPDATE messages SET replaces = NULL WHERE replaces NOT IN (SELECT id FROM messages);
DELETE FROM payloads WHERE id NOT IN (SELECT payload FROM messages WHERE payload NOT NULL);
DELETE FROM payload_chunks WHERE payload NOT IN (SELECT id FROM payloads);
DELETE FROM nodes WHERE session NOT IN (SELECT id FROM sessions) OR session <> id >> 32
    OR depth NOT BETWEEN 0 AND 4294967295;
DELETE FROM node_messages WHERE message NOT IN (SELECT id FROM messages);
";

/// References to lost summaries.
const LINEAGE: &str = "
DELETE FROM node_messages WHERE node NOT IN (SELECT id FROM nodes);
DELETE FROM node_children WHERE node NOT IN (SELECT id FROM nodes) OR child NOT IN (SELECT id FROM nodes);
DELETE FROM frontier WHERE node NOT IN (SELECT id FROM nodes)
    OR session NOT IN (SELECT id FROM sessions) OR session <> node >> 32;
";

/// The messages under a summary, at any depth.
const UNDER: &str = "WITH RECURSIVE below(node) AS (
        VALUES(?1) UNION SELECT child FROM node_children JOIN below USING(node))
    SELECT DISTINCT message FROM node_messages JOIN below USING(node)";

/// Recomputes the summaries' figures about the messages below them.
const SPANS: &str = "UPDATE nodes SET (messages, first, last) = (
    WITH RECURSIVE below(node) AS (
        VALUES(nodes.id) UNION SELECT child FROM node_children JOIN below USING(node)),
    under(message) AS (SELECT DISTINCT message FROM node_messages JOIN below USING(node))
    SELECT count(*),
        (SELECT host FROM messages JOIN under ON id = message ORDER BY id LIMIT 1),
        (SELECT host FROM messages JOIN under ON id = message ORDER BY id DESC LIMIT 1) FROM under)";

/// Summaries without a source; removing them may leave a parent without one.
const WITHOUT_SOURCE: &str = "DELETE FROM nodes WHERE id NOT IN (SELECT node FROM node_messages)
    AND id NOT IN (SELECT node FROM node_children)";

/// Every row has its session, and every session its cursor.
pub(super) fn sessions(connection: &Connection) -> Result<(), StoreError> {
    Ok(connection.execute_batch(SESSIONS)?)
}

/// Removes messages whose content is lost or does not match its hash, and sets each session back to the
/// first missing one, so that the host delivers them again. Returns the numbers of present and missing
/// messages.
pub(super) fn messages(
    database: &Database,
    mut progress: impl FnMut(u64, u64),
) -> Result<(u64, u64), StoreError> {
    let sessions = database.read(sessions::sessions_in)?;
    let total = sessions.iter().map(|info| u64::from(info.messages)).sum();
    let (mut kept, mut missing, mut done) = (0, 0, 0);
    for info in &sessions {
        let (lost, intruders) = unreadable(database, info)?;
        database.write(|transaction| {
            for block in &intruders {
                transaction.execute("DELETE FROM blocks WHERE id = ?1", [block.0])?;
            }
            Ok(())
        })?;
        let counts = sound_only(database, info, &lost)?;
        kept += counts.0;
        missing += counts.1;
        done += u64::from(info.messages);
        progress(done, total);
    }
    database.write(|transaction| Ok(transaction.execute_batch(REFERENCES)?))?;
    Ok((kept, missing))
}

/// The keys of messages with a row but no content, and of misplaced blocks.
fn unreadable(
    database: &Database,
    info: &SessionInfo,
) -> Result<(BTreeSet<Key>, BTreeSet<Key>), StoreError> {
    database.read(|connection| {
        let mut blocks = Blocks::new(connection)?;
        let (mut lost, mut intruders) = (BTreeSet::new(), BTreeSet::new());
        let mut after = None;
        loop {
            let rows = rows_after(connection, info.id, after, PAGE)?;
            let Some((last, _)) = rows.last() else {
                return Ok((lost, intruders));
            };
            after = Some(*last);
            for (key, row) in rows {
                match row.and_then(|row| whole(connection, &mut blocks, row)) {
                    Ok(_) => intruders.extend(blocks.intruder(connection, key)?),
                    Err(StoreError::Damaged(_)) => {
                        lost.insert(key);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    })
}

/// Keeps the intact messages of a session and their blocks; returns the numbers of present and missing
/// messages.
fn sound_only(
    database: &Database,
    info: &SessionInfo,
    lost: &BTreeSet<Key>,
) -> Result<(u64, u64), StoreError> {
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
            // Removes the content of missing messages too, so that they can be restored completely; the
            // others get new blocks.
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
        let missing = set_back(transaction, info, &present)?;
        Ok((present.len() as u64, missing))
    })
}

/// Sets the session's end after its last message, and its delivery cursor before the first missing live
/// one. Returns how many are missing.
fn set_back(
    connection: &Connection,
    info: &SessionInfo,
    present: &BTreeSet<Key>,
) -> Result<u64, StoreError> {
    let id = info.id.0;
    let next = present.last().map_or(0, |key| key.ordinal() + 1);
    let said: i64 = connection.query_row(
        "SELECT next_ordinal FROM sessions WHERE id = ?1",
        [id],
        |row| row.get(0),
    )?;
    // Messages missing at the end are delivered again.
    connection.execute(
        "UPDATE sessions SET next_ordinal = ?2 WHERE id = ?1",
        [id, i64::from(next)],
    )?;
    for statement in [
        "DELETE FROM live WHERE session = ?1 AND (end IS NULL OR first >= ?2) AND first > ?2",
        "UPDATE live SET end = ?2 WHERE session = ?1 AND end > ?2",
        "INSERT OR IGNORE INTO live(session, first, end) SELECT ?1, ?2, NULL
             WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = ?1 AND end IS NULL)",
    ] {
        connection.execute(statement, params![id, next])?;
    }
    let mut last = None;
    let mut missing = None;
    for range in live_ranges(connection, info.id)? {
        let mut expected = range.start;
        let [first, end] = [range.start, range.end].map(|ordinal| Key::new(info.id, ordinal));
        for key in present.range(first..end) {
            if key.ordinal() != expected {
                missing = missing.or(Some(expected));
            }
            expected = key.ordinal() + 1;
            last = Some(*key);
        }
        if expected < range.end {
            missing = missing.or(Some(expected));
        }
    }
    if let Some(missing) = missing {
        connection.execute(
            "UPDATE messages SET chain = NULL WHERE id > ?1 AND id <= ?2",
            [Key::new(info.id, missing).0, Key::new(info.id, u32::MAX).0],
        )?;
    }
    connection.execute(
        "UPDATE sessions SET last_host = (SELECT host FROM messages WHERE id = ?2) WHERE id = ?1",
        params![id, last.map(|key| key.0)],
    )?;
    // Ignores a number made huge by damage.
    let counted = match said - i64::from(next) {
        0..=MOST_AT_THE_END => said,
        _ => i64::from(next),
    };
    Ok((counted - present.len() as i64).max(0) as u64)
}

/// Removes summaries from the window that overlap an earlier one or cover messages outside the
/// conversation: a readable row may still have wrong values.
fn one_summary_each(connection: &Connection) -> Result<(), StoreError> {
    for info in sessions::sessions_in(connection)? {
        let live = live_ranges(connection, info.id)?;
        let nodes = connection
            .prepare("SELECT node FROM frontier WHERE session = ?1 ORDER BY position")?
            .query_map([info.id.0], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        let mut covered = BTreeSet::new();
        for node in nodes {
            let under = connection
                .prepare_cached(UNDER)?
                .query_map([node], |row| row.get(0).map(Key))?
                .collect::<Result<Vec<_>, _>>()?;
            let stays = under.iter().all(|key| {
                let is_live = live.iter().any(|range| range.contains(&key.ordinal()));
                key.session() == info.id && is_live && !covered.contains(key)
            });
            if stays {
                covered.extend(under);
            } else {
                connection.execute(
                    "DELETE FROM frontier WHERE session = ?1 AND node = ?2",
                    [info.id.0, node],
                )?;
            }
        }
    }
    Ok(())
}

/// Gives summaries without a text a placeholder, and removes those without a source. Returns how many
/// remain, and how many lost their text.
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
    let data = packed(LOST_TEXT)?;
    database.write(|transaction| {
        for key in &lost {
            // Marked as written without a model, so that it is rewritten once one is available.
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
        one_summary_each(transaction)?;
        transaction.execute(SPANS, [])?;
        let left: i64 =
            transaction.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0))?;
        Ok((all.min(left as u64), lost.len() as u64))
    })
}
