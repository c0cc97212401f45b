//! Making whole what rows that could not be read left behind.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use crate::error::StoreError;
use crate::store::ingest::PackedBlock;
use crate::store::live::live_ranges;
use crate::store::nodes::packed;
use crate::store::read::{body_and_raw, rows_after, whole};
use crate::store::summaries::{for_each_node_text, summary_hash};
use crate::store::{Blocks, Database, Key, SessionInfo, sessions};

/// Rows that are held at a time.
const PAGE: u32 = 1_024;

/// As many messages may be missing at the end of a session; a number beyond is itself damaged.
const MOST_AT_THE_END: i64 = 1_000_000;

/// What stands for the text of a summary that was lost.
const LOST_TEXT: &str = "[The text of this summary was lost to a damaged file. What it stood for is there: \
                         expand it.]";

/// Sessions for what belongs to one that is gone, and cursors for all.
const SESSIONS: &str = "
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

/// The messages under a summary, at any depth.
const UNDER: &str = "WITH RECURSIVE below(node) AS (
        VALUES(?1) UNION SELECT child FROM node_children JOIN below USING(node))
    SELECT DISTINCT message FROM node_messages JOIN below USING(node)";

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

/// The keys of messages of which there is a row and no content; and of blocks that are not where they belong.
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

/// Leaves the sound messages of a session and the blocks that hold them; gives how many there are, and how
/// many are missing.
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
        let missing = set_back(transaction, info, &present)?;
        Ok((present.len() as u64, missing))
    })
}

/// The session ends with its last message, and as far as the host is told before the first live one that is
/// missing. Gives how many are missing.
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
    // What is missing at the end comes again in its place.
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
    // A number that damage has made huge counts nothing.
    let counted = match said - i64::from(next) {
        0..=MOST_AT_THE_END => said,
        _ => i64::from(next),
    };
    Ok((counted - present.len() as i64).max(0) as u64)
}

/// Takes summaries out of the window that stand over what an earlier one stands over, or over what is no part
/// of the conversation: a row that can be read may still say something else than it did.
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
    let data = packed(LOST_TEXT)?;
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
        one_summary_each(transaction)?;
        transaction.execute(SPANS, [])?;
        let left: i64 =
            transaction.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0))?;
        Ok((all.min(left as u64), lost.len() as u64))
    })
}
