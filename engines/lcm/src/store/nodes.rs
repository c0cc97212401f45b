//! Summary nodes in the store: their texts, their lineage, and the frontier.
//!
//! A node and its sources are written in one transaction, so there is never a summary without sources.
//! Proposed nodes are stored before the frontier refers to them; the frontier moves in one transaction,
//! when the compaction is committed.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::compression::damaged;
use super::summaries::{summary_hash, summary_text};
use super::{Key, SessionId, Store};
use crate::dag::{Level, Node, NodeId, Under};
use crate::error::StoreError;
use crate::summarise::Written;

/// Summaries are a few kilobytes of prose: a little more effort pays.
const COMPRESSION_LEVEL: i32 = 6;

/// A node to write.
#[derive(Debug, Clone)]
pub(crate) struct NewNode {
    pub(crate) node: Node,
    pub(crate) over: Over,
    pub(crate) model: Option<String>,
}

/// The sources of a node to write.
#[derive(Debug, Clone)]
pub(crate) enum Over {
    Messages(Vec<Key>),
    Nodes(Vec<NodeId>),
}

/// A node of the frontier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) node: Node,
    /// Whether its text should be rewritten once a model is available.
    pub(crate) degraded: bool,
}

impl Placed {
    /// A node whose text was just written.
    pub(crate) fn new(node: Node) -> Self {
        let degraded = node.level.is_lower();
        Self { node, degraded }
    }
}

fn key(session: SessionId, node: NodeId) -> i64 {
    (session.0 << 32) | (node.0 & i64::from(u32::MAX))
}

pub(crate) fn id_of(key: i64) -> NodeId {
    NodeId(key & i64::from(u32::MAX))
}

fn level_code(level: Level) -> i64 {
    match level {
        Level::Verbatim => 0,
        Level::Normal => 1,
        Level::Aggressive => 2,
        Level::Deterministic => 3,
    }
}

fn level_of(code: i64) -> Level {
    match code {
        0 => Level::Verbatim,
        1 => Level::Normal,
        2 => Level::Aggressive,
        _ => Level::Deterministic,
    }
}

/// The number of the session's next node.
pub(crate) fn next_id(store: &Store, session: SessionId) -> Result<NodeId, StoreError> {
    store.read(|connection| next_in(connection, session))
}

fn next_in(connection: &Connection, session: SessionId) -> Result<NodeId, StoreError> {
    let last: Option<i64> = connection
        .prepare_cached("SELECT max(id) FROM nodes WHERE id >= ?1 AND id < ?2")?
        .query_row(range(session), |row| row.get(0))?;
    Ok(NodeId(last.map_or(1, |last| id_of(last).0 + 1)))
}

/// The keys of a session's nodes: the first, and one past the last.
fn range(session: SessionId) -> [i64; 2] {
    [session.0 << 32, (session.0 + 1) << 32]
}

/// Writes nodes that a compaction proposes, numbered on from `next`. A node may have earlier elements of
/// `nodes` as sources. If another process used these numbers meanwhile, the nodes get higher ones; returns
/// the difference.
///
/// # Errors
/// A source that is not stored; a store that failed. Nothing is written then.
pub(crate) fn add(
    store: &Store,
    session: SessionId,
    nodes: &[NewNode],
    next: NodeId,
    now_ms: i64,
) -> Result<i64, StoreError> {
    store.write(|transaction| {
        let higher = next_in(transaction, session)?.0.saturating_sub(next.0);
        let numbered = |id: NodeId| match id < next {
            true => id,
            false => NodeId(id.0 + higher),
        };
        for new in nodes {
            add_one(transaction, session, new, numbered, now_ms)?;
        }
        Ok(higher)
    })
}

fn add_one(
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
                               last, first_at, last_at, created_at, model, hash, bytes, data)
             VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
        )?
        .execute(params![
            key,
            session.0,
            node.depth,
            level_code(node.level),
            node.level.is_lower(),
            node.tokens as i64,
            node.messages as i64,
            node.source_tokens as i64,
            node.first.0 as i64,
            node.last.0 as i64,
            node.from_ms,
            node.to_ms,
            now_ms,
            new.model,
            summary_hash(node.text.as_bytes()),
            node.text.len() as i64,
            packed(&node.text)?,
        ])?;
    match &new.over {
        Over::Messages(messages) => {
            let mut insert = transaction
                .prepare_cached("INSERT INTO node_messages(node, message) VALUES(?1, ?2)")?;
            for message in messages {
                insert.execute([key, message.0])?;
            }
        }
        Over::Nodes(children) => {
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

/// Compresses the text of a node.
pub(super) fn packed(text: &str) -> Result<Vec<u8>, StoreError> {
    zstd::bulk::compress(text.as_bytes(), COMPRESSION_LEVEL).map_err(damaged)
}

/// Removes nodes that no frontier and no other node names.
pub(crate) fn forget(
    store: &Store,
    session: SessionId,
    nodes: &[NodeId],
) -> Result<(), StoreError> {
    store.write(|transaction| {
        // Parents were added last.
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
    })
}

/// A change of the nodes that replace messages in the window, oldest first each.
#[derive(Debug)]
pub(crate) struct FrontierMove {
    /// The frontier that this is made from.
    pub(crate) before: Vec<NodeId>,
    pub(crate) after: Vec<NodeId>,
    /// The compaction that the frontier belongs to.
    pub(crate) compaction: u64,
}

impl FrontierMove {
    /// Makes it, as a part of a transaction.
    ///
    /// # Errors
    /// [`StoreError::FrontierMoved`] if the frontier is no longer what it was made from; a store that failed.
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

/// Moves the frontier; some nodes get better texts.
///
/// # Errors
/// As [`FrontierMove::make`]. Nothing changes then.
pub(crate) fn move_frontier(
    store: &Store,
    session: SessionId,
    moved: &FrontierMove,
    better: &[(NodeId, Written)],
) -> Result<(), StoreError> {
    store.write(|transaction| {
        moved.make(transaction, session)?;
        for (node, written) in better {
            rewrite_in(transaction, session, *node, written)?;
        }
        Ok(())
    })
}

/// Replaces a node's text by a better one.
///
/// # Errors
/// A store that failed. The text is unchanged then.
pub(crate) fn rewrite(
    store: &Store,
    session: SessionId,
    node: NodeId,
    written: &Written,
) -> Result<(), StoreError> {
    store.write(|transaction| rewrite_in(transaction, session, node, written))
}

fn rewrite_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    node: NodeId,
    written: &Written,
) -> Result<(), StoreError> {
    transaction
        .prepare_cached(
            "UPDATE nodes SET level = ?2, degraded = 0, tokens = ?3, model = ?4, hash = ?5, bytes = ?6,
                              data = ?7 WHERE id = ?1",
        )?
        .execute(params![
            key(session, node),
            level_code(written.level),
            written.tokens as i64,
            written.model,
            summary_hash(written.text.as_bytes()),
            written.text.len() as i64,
            packed(&written.text)?,
        ])?;
    Ok(())
}

/// The nodes of the frontier, oldest first.
pub(crate) fn frontier_ids(store: &Store, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    store.read(|connection| frontier_ids_in(connection, session))
}

fn frontier_ids_in(connection: &Connection, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    let ids = connection
        .prepare_cached("SELECT node FROM frontier WHERE session = ?1 ORDER BY position")?
        .query_map([session.0], |row| row.get(0).map(id_of))?
        .collect::<Result<_, _>>()?;
    Ok(ids)
}

/// The frontier, oldest first, and its compaction; 0 before the first. A node that cannot be read is left
/// out: its messages count as uncovered, and the doctor reports it.
pub(crate) fn frontier(
    store: &Store,
    session: SessionId,
) -> Result<(Vec<Placed>, u64), StoreError> {
    store.read(|connection| {
        let mut statement = connection.prepare_cached(
            "SELECT node, compaction FROM frontier WHERE session = ?1 ORDER BY position",
        )?;
        let rows = statement
            .query_map([session.0], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        let compaction = rows.iter().map(|(_, compaction)| *compaction).max();
        let nodes = rows
            .iter()
            .filter_map(|(key, _)| match placed(connection, *key) {
                Ok(placed) => placed.map(Ok),
                Err(StoreError::Damaged(_)) => None,
                Err(error) => Some(Err(error)),
            })
            .collect::<Result<_, _>>()?;
        Ok((nodes, compaction.unwrap_or(0).cast_unsigned()))
    })
}

/// Removes the unreadable nodes from the frontier; `read` are the readable ones. Returns how many it
/// removed.
pub(crate) fn drop_unreadable(
    store: &Store,
    session: SessionId,
    read: &[Placed],
) -> Result<usize, StoreError> {
    let all = store.read(|connection| {
        let keys = connection
            .prepare_cached("SELECT node FROM frontier WHERE session = ?1")?
            .query_map([session.0], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        Ok(keys)
    })?;
    let is_read = |node: &i64| {
        read.iter()
            .any(|placed| key(session, placed.node.id) == *node)
    };
    let unreadable: Vec<i64> = all.into_iter().filter(|node| !is_read(node)).collect();
    if !unreadable.is_empty() {
        store.write(|transaction| {
            for node in &unreadable {
                transaction.execute(
                    "DELETE FROM frontier WHERE session = ?1 AND node = ?2",
                    [session.0, *node],
                )?;
            }
            Ok(())
        })?;
    }
    Ok(unreadable.len())
}

/// A node of a session.
pub(crate) fn node(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Option<Placed>, StoreError> {
    store.read(|connection| placed(connection, key(session, id)))
}

fn placed(connection: &Connection, key: i64) -> Result<Option<Placed>, StoreError> {
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
            };
            let placed = Placed {
                node,
                degraded: row.get(2)?,
            };
            let text: (i64, Vec<u8>, Vec<u8>) = (row.get(10)?, row.get(11)?, row.get(12)?);
            Ok((placed, text))
        })
        .optional()?;
    let Some((mut placed, (bytes, data, hash))) = row else {
        return Ok(None);
    };
    placed.node.text = summary_text(&data, bytes, &hash)?;
    Ok(Some(placed))
}

/// What a node stands over.
pub(crate) fn under(store: &Store, session: SessionId, id: NodeId) -> Result<Under, StoreError> {
    store.read(|connection| under_in(connection, key(session, id)))
}

fn under_in(connection: &Connection, key: i64) -> Result<Under, StoreError> {
    let children = connection
        .prepare_cached("SELECT child FROM node_children WHERE node = ?1 ORDER BY position")?
        .query_map([key], |row| row.get(0).map(id_of))?
        .collect::<Result<Vec<_>, _>>()?;
    if !children.is_empty() {
        return Ok(Under::Nodes(children));
    }
    let messages = connection
        .prepare_cached(
            "SELECT m.host FROM node_messages n JOIN messages m ON m.id = n.message
             WHERE n.node = ?1 ORDER BY n.message",
        )?
        .query_map([key], |row| {
            row.get::<_, i64>(0).map(|id| MessageId(id.cast_unsigned()))
        })?
        .collect::<Result<_, _>>()?;
    Ok(Under::Messages(messages))
}

/// The keys of the messages under a node, at any depth, in order.
pub(crate) fn messages_under(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Vec<Key>, StoreError> {
    store.read(|connection| {
        let mut keys = connection
            .prepare_cached(
                "WITH RECURSIVE below(node) AS (
                     VALUES(?1) UNION SELECT child FROM node_children JOIN below USING(node))
                 SELECT message FROM node_messages JOIN below USING(node)",
            )?
            .query_map([key(session, id)], |row| row.get(0).map(Key))?
            .collect::<Result<Vec<_>, _>>()?;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    })
}

/// The parents of a node.
pub(crate) fn parents(
    store: &Store,
    session: SessionId,
    id: NodeId,
) -> Result<Vec<NodeId>, StoreError> {
    store.read(|connection| {
        let parents = connection
            .prepare_cached("SELECT node FROM node_children WHERE child = ?1 ORDER BY node")?
            .query_map([key(session, id)], |row| row.get(0).map(id_of))?
            .collect::<Result<_, _>>()?;
        Ok(parents)
    })
}

/// The nodes over any of these messages, at any depth.
pub(crate) fn over(store: &Store, messages: &[Key]) -> Result<HashSet<NodeId>, StoreError> {
    store.read(|connection| {
        let mut upwards = connection.prepare_cached(
            "WITH RECURSIVE above(node) AS (
                 SELECT node FROM node_messages WHERE message = ?1
                 UNION SELECT c.node FROM node_children c JOIN above a ON c.child = a.node)
             SELECT node FROM above",
        )?;
        let mut over = HashSet::new();
        for message in messages {
            let mut rows = upwards.query([message.0])?;
            while let Some(row) = rows.next()? {
                over.insert(id_of(row.get(0)?));
            }
        }
        Ok(over)
    })
}

/// The node of the frontier that covers each of these messages, if any.
pub(crate) fn covering(
    store: &Store,
    session: SessionId,
    messages: &[Key],
) -> Result<HashMap<Key, NodeId>, StoreError> {
    store.read(|connection| {
        let mut upwards = connection.prepare_cached(
            "WITH RECURSIVE above(node) AS (
                 SELECT node FROM node_messages WHERE message = ?2
                 UNION SELECT c.node FROM node_children c JOIN above a ON c.child = a.node)
             SELECT f.node FROM frontier f JOIN above USING(node) WHERE f.session = ?1 LIMIT 1",
        )?;
        let mut covering = HashMap::new();
        for message in messages {
            let node = upwards
                .query_row([session.0, message.0], |row| row.get(0).map(id_of))
                .optional()?;
            if let Some(node) = node {
                covering.insert(*message, node);
            }
        }
        Ok(covering)
    })
}

/// The keys of all messages under the frontier.
pub(crate) fn covered(store: &Store, session: SessionId) -> Result<HashSet<Key>, StoreError> {
    store.read(|connection| {
        let keys = connection
            .prepare_cached(
                "WITH RECURSIVE below(node) AS (
                     SELECT node FROM frontier WHERE session = ?1
                     UNION SELECT c.child FROM node_children c JOIN below USING(node))
                 SELECT message FROM node_messages JOIN below USING(node)",
            )?
            .query_map([session.0], |row| row.get(0).map(Key))?
            .collect::<Result<_, _>>()?;
        Ok(keys)
    })
}

/// Nodes whose lineage is broken: without sources, or with more or fewer messages below than were
/// summarised. For the doctor.
pub(crate) fn broken(store: &Store, session: SessionId) -> Result<Vec<NodeId>, StoreError> {
    let [first, end] = range(session);
    store.read(|connection| {
        // A node's counts are the sums of its sources' counts, so checking one level is enough.
        let nodes = connection
            .prepare_cached(
                "SELECT id FROM nodes n WHERE id >= ?1 AND id < ?2 AND messages !=
                     (SELECT count(*) FROM node_messages s JOIN messages m ON m.id = s.message
                      WHERE s.node = n.id)
                   + (SELECT coalesce(sum(k.messages), 0) FROM node_children c JOIN nodes k ON k.id = c.child
                      WHERE c.node = n.id)",
            )?
            .query_map([first, end], |row| row.get(0).map(id_of))?
            .collect::<Result<_, _>>()?;
        Ok(nodes)
    })
}

/// The number of a session's nodes at each depth, and of those [to be rewritten](to_redo).
pub(crate) fn count(store: &Store, session: SessionId) -> Result<Vec<(u32, u64, u64)>, StoreError> {
    let to_redo = to_redo(store, session)?;
    let at_depth = |depth: u32| to_redo.iter().filter(|(_, of)| *of == depth).count() as u64;
    store.read(|connection| {
        let counts = connection
            .prepare_cached(
                "SELECT depth, count(*) FROM nodes WHERE id >= ?1 AND id < ?2
                 GROUP BY depth ORDER BY depth",
            )?
            .query_map(range(session), |row| {
                let depth = row.get(0)?;
                Ok((
                    depth,
                    row.get::<_, i64>(1)?.cast_unsigned(),
                    at_depth(depth),
                ))
            })?
            .collect::<Result<_, _>>()?;
        Ok(counts)
    })
}

/// The nodes to rewrite once a model is available, with their depths: those of a lower level in the
/// frontier, and their sources of a lower level. The lowest depth comes first, then the newest. Nodes under
/// a good summary are not rewritten, because nothing reads them.
pub(crate) fn to_redo(store: &Store, session: SessionId) -> Result<Vec<(NodeId, u32)>, StoreError> {
    store.read(|connection| {
        let nodes = connection
            .prepare_cached(
                "WITH RECURSIVE redo(node) AS (
                     SELECT f.node FROM frontier f JOIN nodes n ON n.id = f.node
                     WHERE f.session = ?1 AND n.degraded
                     UNION SELECT c.child FROM redo JOIN node_children c USING(node)
                                                  JOIN nodes n ON n.id = c.child WHERE n.degraded)
                 SELECT id, depth FROM nodes JOIN redo ON id = node ORDER BY depth, id DESC",
            )?
            .query_map([session.0], |row| Ok((row.get(0).map(id_of)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        Ok(nodes)
    })
}

/// How often each message is under the frontier. For the doctor.
pub(crate) fn times_covered(
    store: &Store,
    session: SessionId,
) -> Result<HashMap<Key, u32>, StoreError> {
    store.read(|connection| {
        // UNION ALL, because a node that is reached twice repeats its messages.
        let mut statement = connection.prepare_cached(
            "WITH RECURSIVE below(node) AS (
                 SELECT node FROM frontier WHERE session = ?1
                 UNION ALL SELECT c.child FROM node_children c JOIN below USING(node))
             SELECT message FROM node_messages JOIN below USING(node)",
        )?;
        let mut rows = statement.query([session.0])?;
        let mut times: HashMap<Key, u32> = HashMap::new();
        while let Some(row) = rows.next()? {
            *times.entry(Key(row.get(0)?)).or_default() += 1;
        }
        Ok(times)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use contexture_engine_api::MessageView;

    use super::*;
    use crate::store::StoreSettings;

    fn node(id: i64, over: Over) -> NewNode {
        let node = Node {
            id: NodeId(id),
            depth: u32::from(matches!(over, Over::Nodes(_))),
            level: Level::Normal,
            text: "A text.".to_owned(),
            tokens: 2,
            messages: 1,
            source_tokens: 10,
            first: MessageId(1),
            last: MessageId(1),
            from_ms: None,
            to_ms: None,
        };
        NewNode {
            node,
            over,
            model: None,
        }
    }

    #[test]
    fn two_proposals_at_once_get_numbers_of_their_own_and_only_one_frontier_follows_another() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s", 0).unwrap();
        let message = MessageView::new(MessageId(1), "user")
            .with_text("hello")
            .with_raw("{}");
        store.ingest(session, &[message], 1).unwrap();
        let leaf = |id| node(id, Over::Messages(vec![Key::new(session, 0)]));
        let parent = |id, child| node(id, Over::Nodes(vec![NodeId(child)]));

        let next = next_id(&store, session).unwrap();
        assert_eq!(next, NodeId(1));
        let both = [leaf(1), parent(2, 1)];
        assert_eq!(add(&store, session, &both, next, 0).unwrap(), 0);
        assert_eq!(add(&store, session, &both, next, 0).unwrap(), 2);
        let under = under(&store, session, NodeId(4)).unwrap();
        assert_eq!(under, Under::Nodes(vec![NodeId(3)]));

        let set = |before: &[NodeId], after: &[NodeId]| {
            let moved = FrontierMove {
                before: before.to_vec(),
                after: after.to_vec(),
                compaction: 1,
            };
            move_frontier(&store, session, &moved, &[])
        };
        set(&[], &[NodeId(2)]).unwrap();
        assert!(matches!(
            set(&[], &[NodeId(4)]),
            Err(StoreError::FrontierMoved)
        ));
        assert_eq!(frontier_ids(&store, session).unwrap(), [NodeId(2)]);
    }
}
