//! Summary nodes in the store: their texts, their sources, and the frontier.
//!
//! A node summarises messages or other nodes. The frontier is the list of nodes that the window
//! currently shows in place of messages. A node and its sources are written in one
//! transaction, so a summary without sources cannot exist. The nodes of a proposal are stored
//! first, with [`add`]. The frontier moves in one transaction when the compaction is committed,
//! with [`move_frontier`], and [`forget`] removes the nodes of a discarded proposal.
//!
//! Summaries may have cost a model call, so each change of the rows here is repeated on the
//! artifacts in the host's record (see the `artifacts` module). Which messages to summarise is not
//! decided here.

use std::collections::{BTreeSet, HashMap, HashSet};

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, params};

use super::read::host_id;
use super::summaries::{packed, summary_hash, summary_text};
use super::{Key, SessionId, Store, query_all};
use crate::dag::{Level, Node, NodeId, NodeSources};
use crate::error::StoreError;
use crate::summarise::Written;

/// The most messages in a run, as the table of runs says.
const RUN: i64 = 64;

/// The nodes above the message `?1`, at any depth, as the SQL table `above`. The number is less than
/// [`RUN`] by one.
const ABOVE: &str = "WITH RECURSIVE above(node) AS (
    SELECT node FROM node_messages WHERE first BETWEEN ?1 - 63 AND ?1 AND last >= ?1
    UNION SELECT c.node FROM node_children c JOIN above a ON c.child = a.node)";

/// A node to be written with [`add`]. Its sources must be stored before it, or come before it in the
/// same call.
#[derive(Debug, Clone)]
pub(crate) struct NewNode {
    pub(crate) node: Node,
    pub(crate) sources: NodeSources<Key>,
}

pub(super) fn key(session: SessionId, node: NodeId) -> i64 {
    (session.0 << 32) | (node.0 & i64::from(u32::MAX))
}

pub(crate) fn id_of(key: i64) -> NodeId {
    NodeId(key & i64::from(u32::MAX))
}

fn level_of(code: i64) -> Level {
    match code {
        0 => Level::Verbatim,
        1 => Level::Normal,
        _ => Level::Deterministic,
    }
}

/// Returns the number for the session's next node. Numbers count from 1 and follow the highest one
/// that is stored.
pub(crate) fn next_id(store: &Store, session: SessionId) -> Result<NodeId, StoreError> {
    store.read(|connection| next_in(connection, session))
}

fn next_in(connection: &Connection, session: SessionId) -> Result<NodeId, StoreError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM nodes WHERE id >= ?1 AND id < ?2")?
        .query_row(range(session), |row| row.get(0))?;
    Ok(NodeId(last.map_or(1, |last| id_of(last).0 + 1)))
}

/// Returns the range of keys that a session's nodes can have: the first, and one past the last.
pub(super) fn range(session: SessionId) -> [i64; 2] {
    [session.0 << 32, (session.0 + 1) << 32]
}

/// Writes the nodes of a proposal, numbered upwards from `next`. A node may have earlier elements
/// of `nodes` as sources. If another process has used some of these numbers meanwhile, all nodes
/// get higher ones, and the difference is returned.
///
/// # Errors
/// Returns an error if a source is not stored, if the store fails, or if the host cannot store the
/// artifacts. No row is written unless all of them are.
pub(crate) fn add(
    store: &Store,
    session: SessionId,
    nodes: &[NewNode],
    next: NodeId,
    now_ms: i64,
) -> Result<i64, StoreError> {
    let higher = store.write(|transaction| {
        // Another process may have added nodes since `next` was read.
        let higher = next_in(transaction, session)?.0.saturating_sub(next.0);
        let numbered = |id: NodeId| match id < next {
            true => id,
            false => NodeId(id.0 + higher),
        };
        for new in nodes {
            add_one(transaction, session, new, numbered, now_ms)?;
        }
        Ok(higher)
    })?;
    let ids = nodes.iter().map(|new| NodeId(new.node.id.0 + higher));
    // The rows are committed first. Opening the session compares them with the artifacts.
    store.keep_nodes(session, ids)?;
    Ok(higher)
}

pub(super) fn add_one(
    transaction: &Transaction<'_>,
    session: SessionId,
    new: &NewNode,
    numbered: impl Fn(NodeId) -> NodeId,
    now_ms: i64,
) -> Result<(), StoreError> {
    let node = &new.node;
    let key = key(session, numbered(node.id));
    transaction
        .prepare_cached(
            "INSERT INTO nodes(id, session, depth, level, degraded, tokens, messages, source_tokens, first,
                               last, first_at, last_at, created_at, hash, bytes, data)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )?
        .execute(params![
            key,
            session.0,
            node.depth,
            node.level as i64,
            node.degraded,
            node.tokens as i64,
            node.messages as i64,
            node.source_tokens as i64,
            node.first.0 as i64,
            node.last.0 as i64,
            node.from_ms,
            node.to_ms,
            now_ms,
            summary_hash(node.text.as_bytes()),
            node.text.len() as i64,
            packed(&node.text)?,
        ])?;
    match &new.sources {
        NodeSources::Messages(messages) => {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO node_messages(node, first, last) VALUES(?1, ?2, ?3)",
            )?;
            for [first, last] in runs(messages) {
                insert.execute([key, first, last])?;
            }
        }
        NodeSources::Nodes(children) => {
            let mut insert = transaction.prepare_cached(
                "INSERT INTO node_children(node, position, child) VALUES(?1, ?2, ?3)",
            )?;
            for (position, child) in children.iter().enumerate() {
                let child = self::key(session, numbered(*child));
                insert.execute(params![key, position as i64, child])?;
            }
        }
    }
    Ok(())
}

/// Returns the runs of neighbours among messages, each as its first and last key.
fn runs(messages: &[Key]) -> Vec<[i64; 2]> {
    let keys: BTreeSet<i64> = messages.iter().map(|key| key.0).collect();
    let keys: Vec<i64> = keys.into_iter().collect();
    let runs = keys.chunk_by(|one, next| one + 1 == *next);
    let runs = runs.flat_map(|run| run.chunks(RUN as usize));
    runs.filter_map(|run| Some([*run.first()?, *run.last()?]))
        .collect()
}

/// Reads the keys of messages from a query for the first and the last keys of runs.
fn keys_of_runs(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<Key>, StoreError> {
    let run = |row: &Row<'_>| Ok(row.get::<_, i64>(0)?..=row.get(1)?);
    let runs: Vec<_> = query_all(connection, sql, parameters, run)?;
    // A damaged run may seem to have no end.
    let keys = runs.into_iter().flat_map(|run| run.take(RUN as usize));
    Ok(keys.map(Key).collect())
}

/// Removes nodes of a proposal that was discarded. A node that the frontier or another node refers
/// to is kept.
pub(crate) fn forget(
    store: &Store,
    session: SessionId,
    nodes: &[NodeId],
) -> Result<(), StoreError> {
    store.write(|transaction| {
        // Parents were added last. They are deleted first, because a node with a parent is kept.
        for node in nodes.iter().rev() {
            let key = key(session, *node);
            let named: bool = transaction.query_row(
                "SELECT EXISTS(SELECT 1 FROM frontier WHERE node = ?1)
                     OR EXISTS(SELECT 1 FROM node_children WHERE child = ?1)",
                [key],
                |row| row.get(0),
            )?;
            if !named {
                transaction.execute("DELETE FROM nodes WHERE id = ?1", [key])?;
            }
        }
        Ok(())
    })?;
    // The artifacts of removed nodes are deleted with them.
    store.keep_nodes(session, nodes.iter().copied())
}

/// A change of the nodes that replace messages in the window. Both lists are in the order of the
/// conversation.
#[derive(Debug)]
pub(crate) struct FrontierMove {
    pub(crate) before: Vec<NodeId>,
    pub(crate) after: Vec<NodeId>,
    pub(crate) compaction: u64,
}

impl FrontierMove {
    /// Applies the change as part of a larger transaction.
    ///
    /// # Errors
    /// Returns [`StoreError::FrontierMoved`] if the stored frontier differs from `before`, which
    /// happens when another engine has compacted the session.
    pub(super) fn make(
        &self,
        transaction: &Transaction<'_>,
        session: SessionId,
    ) -> Result<(), StoreError> {
        if frontier_ids_in(transaction, session)? != self.before {
            return Err(StoreError::FrontierMoved);
        }
        transaction.execute("DELETE FROM frontier WHERE session = ?1", [session.0])?;
        let mut insert = transaction.prepare_cached(
            "INSERT INTO frontier(session, position, node, compaction) VALUES(?1, ?2, ?3, ?4)",
        )?;
        for (position, node) in self.after.iter().enumerate() {
            insert.execute(params![
                session.0,
                position as i64,
                key(session, *node),
                self.compaction as i64
            ])?;
        }
        Ok(())
    }
}

/// Moves the frontier and stores the `better` texts of some nodes with it, in one transaction.
///
/// # Errors
/// The same as for [`FrontierMove::make`], and an error if the host cannot store the artifacts. If
/// the frontier was moved by another engine, nothing changes.
pub(crate) fn move_frontier(
    store: &Store,
    session: SessionId,
    moved: &FrontierMove,
    better: &[(NodeId, Written)],
) -> Result<(), StoreError> {
    store.write(|transaction| {
        moved.make(transaction, session)?;
        // After the move, so that nothing is rewritten if another engine has moved the frontier.
        for (node, written) in better {
            rewrite_in(transaction, session, *node, written)?;
        }
        Ok(())
    })?;
    store.keep_nodes(session, better.iter().map(|(node, _)| *node))?;
    store.keep_frontier(session)
}

/// Replaces the text of a node, for example when a model has written a better summary.
///
/// # Errors
/// Returns an error if the store fails. If the transaction fails, the old text stays.
pub(crate) fn rewrite(
    store: &Store,
    session: SessionId,
    node: NodeId,
    written: &Written,
) -> Result<(), StoreError> {
    store.write(|transaction| rewrite_in(transaction, session, node, written))?;
    store.keep_nodes(session, [node])
}

fn rewrite_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    node: NodeId,
    written: &Written,
) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "UPDATE nodes SET level = ?2, degraded = 0, tokens = ?3, hash = ?4, bytes = ?5, data = ?6
             WHERE id = ?1",
        )?
        .execute(params![
            key(session, node),
            written.level as i64,
            written.tokens as i64,
            summary_hash(written.text.as_bytes()),
            written.text.len() as i64,
            packed(&written.text)?,
        ])?;
    Ok(())
}

/// Returns the ids of the nodes in the frontier, oldest first, without reading their texts.
pub(crate) fn frontier_ids(store: &Store, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    store.read(|connection| frontier_ids_in(connection, session))
}

fn frontier_ids_in(connection: &Connection, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    let sql = "SELECT node FROM frontier WHERE session = ?1 ORDER BY position";
    query_all(connection, sql, [session.0], |row| row.get(0).map(id_of))
}

/// Returns the ids of the nodes in the frontier, oldest first, and the id of the compaction that
/// made it. The id is 0 if there was none.
pub(super) fn frontier_in(
    connection: &Connection,
    session: SessionId,
) -> Result<(Vec<NodeId>, u64), StoreError> {
    let compaction: Option<i64> = connection
        .prepare_cached("SELECT max(compaction) FROM frontier WHERE session = ?1")?
        .query_row([session.0], |row| row.get(0))?;
    let nodes = frontier_ids_in(connection, session)?;
    Ok((nodes, compaction.unwrap_or(0).cast_unsigned()))
}

/// Returns the nodes of the frontier, oldest first, and the id of the compaction that made it,
/// which is 0 if there was none.
pub(crate) fn frontier(store: &Store, session: SessionId) -> Result<(Vec<Node>, u64), StoreError> {
    store.read(|connection| {
        let (ids, compaction) = frontier_in(connection, session)?;
        let nodes = ids
            .iter()
            .filter_map(|id| node_in(connection, key(session, *id)).transpose())
            .collect::<Result<_, _>>()?;
        Ok((nodes, compaction))
    })
}

/// Returns a node of a session with its text, or None if there is no such node. A text that does
/// not match its hash is an error.
pub(crate) fn node(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Option<Node>, StoreError> {
    store.read(|connection| node_in(connection, key(session, id)))
}

pub(super) fn node_in(connection: &Connection, key: i64) -> Result<Option<Node>, StoreError> {
    let row = connection
        .prepare_cached(
            "SELECT depth, level, degraded, tokens, messages, source_tokens, first, last, first_at, last_at,
                    bytes, data, hash
             FROM nodes WHERE id = ?1",
        )?
        .query_row([key], |row| {
            let count = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let node = Node {
                id: id_of(key),
                depth: row.get(0)?,
                level: level_of(row.get(1)?),
                text: String::new(),
                tokens: count(3)?,
                messages: count(4)?,
                source_tokens: count(5)?,
                first: MessageId(count(6)?),
                last: MessageId(count(7)?),
                from_ms: row.get(8)?,
                to_ms: row.get(9)?,
                degraded: row.get(2)?,
            };
            let text: (i64, Vec<u8>, Vec<u8>) = (row.get(10)?, row.get(11)?, row.get(12)?);
            Ok((node, text))
        })
        .optional()?;
    let Some((mut node, (bytes, data, hash))) = row else {
        return Ok(None);
    };
    node.text = summary_text(&data, bytes, &hash)?;
    Ok(Some(node))
}

/// Returns the direct sources of a node: its children, or its messages if it has no children.
pub(crate) fn sources(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<NodeSources, StoreError> {
    store.read(|connection| sources_in(connection, key(session, id)))
}

pub(super) fn sources_in(connection: &Connection, key: i64) -> Result<NodeSources, StoreError> {
    let sql = "SELECT child FROM node_children WHERE node = ?1 ORDER BY position";
    let children: Vec<NodeId> = query_all(connection, sql, [key], |row| row.get(0).map(id_of))?;
    // A node has children or messages, never both.
    if !children.is_empty() {
        return Ok(NodeSources::Nodes(children));
    }
    let messages = query_all(
        connection,
        "SELECT m.host FROM node_messages n CROSS JOIN messages m ON m.id BETWEEN n.first AND n.last
         WHERE n.node = ?1 ORDER BY m.id",
        [key],
        host_id,
    )?;
    Ok(NodeSources::Messages(messages))
}

/// Returns the keys of the messages below a node at any depth, in order and without duplicates.
pub(crate) fn messages_under(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Vec<Key>, StoreError> {
    store.read(|connection| {
        let sql = "WITH RECURSIVE below(node) AS (
                 VALUES(?1) UNION SELECT child FROM node_children JOIN below USING(node))
             SELECT first, last FROM node_messages JOIN below USING(node)";
        let mut keys = keys_of_runs(connection, sql, [key(session, id)])?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    })
}

/// Returns the nodes that summarise this node directly, in the order of their numbers. A node in
/// the frontier usually has none.
pub(crate) fn parents(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Vec<NodeId>, StoreError> {
    let sql = "SELECT node FROM node_children WHERE child = ?1 ORDER BY node";
    store.read(|connection| {
        query_all(connection, sql, [key(session, id)], |row| {
            row.get(0).map(id_of)
        })
    })
}

/// Returns the nodes above any of these messages, at any depth. Use it to find the summaries that
/// an edit makes wrong.
pub(crate) fn above(store: &Store, messages: &[Key]) -> Result<HashSet<NodeId>, StoreError> {
    store.read(|connection| {
        let mut upwards = connection.prepare_cached(&format!("{ABOVE} SELECT node FROM above"))?;
        let mut above = HashSet::new();
        for message in messages {
            // One query per message, because the recursion cannot start from a list of parameters.
            let mut rows = upwards.query([message.0])?;
            while let Some(row) = rows.next()? {
                above.insert(id_of(row.get(0)?));
            }
        }
        Ok(above)
    })
}

/// Returns the node of the frontier that covers each of these messages. Messages that no node
/// covers are not in the map.
pub(crate) fn covering(
    store: &Store,
    session: SessionId,
    messages: &[Key],
) -> Result<HashMap<Key, NodeId>, StoreError> {
    store.read(|connection| {
        let mut upwards = connection.prepare_cached(&format!(
            "{ABOVE} SELECT f.node FROM frontier f JOIN above USING(node) WHERE f.session = ?2 LIMIT 1"
        ))?;
        let mut covering = HashMap::new();
        for message in messages {
            let node = upwards
                .query_row([message.0, session.0], |row| row.get(0).map(id_of))
                .optional()?;
            if let Some(node) = node {
                covering.insert(*message, node);
            }
        }
        Ok(covering)
    })
}

/// Returns the keys of all messages below the frontier. Every other message of the conversation is
/// shown in the window itself.
pub(crate) fn covered(store: &Store, session: SessionId) -> Result<HashSet<Key>, StoreError> {
    store.read(|connection| {
        let sql = "WITH RECURSIVE below(node) AS (
                 SELECT node FROM frontier WHERE session = ?1
                 UNION SELECT c.child FROM node_children c JOIN below USING(node))
             SELECT first, last FROM node_messages JOIN below USING(node)";
        let keys = keys_of_runs(connection, sql, [session.0])?;
        Ok(keys.into_iter().collect())
    })
}

/// Returns the nodes with wrong sources, for the doctor. A node is wrong if it has none, or if
/// there are more or fewer messages below it than were summarised.
pub(crate) fn broken(store: &Store, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    // A node's counts are the sums of its sources' counts, so checking one level is enough.
    let sql = "SELECT id FROM nodes n WHERE id >= ?1 AND id < ?2 AND messages !=
             (SELECT count(*) FROM node_messages s
              CROSS JOIN messages m ON m.id BETWEEN s.first AND s.last WHERE s.node = n.id)
           + (SELECT coalesce(sum(k.messages), 0) FROM node_children c JOIN nodes k ON k.id = c.child
              WHERE c.node = n.id)";
    store.read(|connection| query_all(connection, sql, range(session), |row| row.get(0).map(id_of)))
}

/// Returns for each depth, in ascending order, how many nodes a session has and how many of them
/// are [to be rewritten](to_redo).
pub(crate) fn count(store: &Store, session: SessionId) -> Result<Vec<(u32, u64, u64)>, StoreError> {
    let to_redo = to_redo(store, session)?;
    let at_depth = |depth: u32| to_redo.iter().filter(|(_, of)| *of == depth).count() as u64;
    let sql = "SELECT depth, count(*) FROM nodes WHERE id >= ?1 AND id < ?2
         GROUP BY depth ORDER BY depth";
    store.read(|connection| {
        query_all(connection, sql, range(session), |row| {
            let (depth, nodes): (_, i64) = (row.get(0)?, row.get(1)?);
            Ok((depth, nodes.cast_unsigned(), at_depth(depth)))
        })
    })
}

/// Returns the nodes to be rewritten when a model is available, each with its depth. These are the
/// degraded nodes of the frontier, and the degraded nodes below them as long as each one in between
/// is degraded, too. The lowest depth comes first, then the newest. A node under a good summary is
/// not rewritten, because nothing reads it.
pub(crate) fn to_redo(store: &Store, session: SessionId) -> Result<Vec<(NodeId, u32)>, StoreError> {
    let sql = "WITH RECURSIVE redo(node) AS (
             SELECT f.node FROM frontier f JOIN nodes n ON n.id = f.node
             WHERE f.session = ?1 AND n.degraded
             UNION SELECT c.child FROM redo JOIN node_children c USING(node)
                                          JOIN nodes n ON n.id = c.child WHERE n.degraded)
         SELECT id, depth FROM nodes JOIN redo ON id = node ORDER BY depth, id DESC";
    store.read(|connection| {
        query_all(connection, sql, [session.0], |row| {
            Ok((row.get(0).map(id_of)?, row.get(1)?))
        })
    })
}

/// Returns how often each message is below the frontier, for the doctor. More than once is an
/// error.
pub(crate) fn times_covered(
    store: &Store,
    session: SessionId,
) -> Result<HashMap<Key, u32>, StoreError> {
    store.read(|connection| {
        // UNION ALL, because a node that is reached twice repeats its messages.
        let sql = "WITH RECURSIVE below(node) AS (
                 SELECT node FROM frontier WHERE session = ?1
                 UNION ALL SELECT c.child FROM node_children c JOIN below USING(node))
             SELECT first, last FROM node_messages JOIN below USING(node)";
        let mut times: HashMap<Key, u32> = HashMap::new();
        for key in keys_of_runs(connection, sql, [session.0])? {
            *times.entry(key).or_default() += 1;
        }
        Ok(times)
    })
}

#[cfg(test)]
mod tests;
