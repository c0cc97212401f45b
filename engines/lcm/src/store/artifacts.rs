//! Keeps summaries as artifacts of the session in the host's record.
//!
//! A summary may have cost a model call, so it must survive the loss of the database. The artifacts
//! are the original and the rows of nodes are a copy. Each node is one artifact. Its name contains
//! the number of the node and a hash of its text and its sources, so listing the names is enough to
//! find out whether the rows agree. One more artifact stores the frontier.
//!
//! [`Store::keep_nodes`] and [`Store::keep_frontier`] write artifacts after the rows have changed.
//! In the other direction [`Store::follow_artifacts`] makes the rows agree with the artifacts, for
//! example after the database was deleted or another process has compacted the session. The rows
//! themselves are written by the `nodes` module.

use std::collections::{BTreeMap, HashMap};

use contexture_engine_api::MessageId;
use rusqlite::{Connection, Row, Transaction, params};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::current_messages::key_in;
use super::nodes::{self, NewNode, add_one, frontier_in, node_in, range, sources_in};
use super::{SessionId, Store, query_all};
use crate::dag::{Node, NodeId, NodeSources};
use crate::error::StoreError;

/// The prefix of the names of artifacts that are nodes. The ten-digit number of the node follows,
/// so that names sort like numbers.
const NODE: &str = "node-";

const FRONTIER: &str = "frontier";

/// The content of a node's artifact, as JSON. It has everything that is needed to build the row
/// again. Fields that are removed here would make the artifacts of existing sessions unreadable.
#[derive(Serialize, Deserialize)]
struct KeptNode {
    #[serde(flatten)]
    node: Node,
    created_ms: i64,
    over_messages: Vec<MessageId>,
    over_nodes: Vec<NodeId>,
}

/// The content of the frontier's artifact, as JSON.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
struct KeptFrontier {
    compaction: u64,
    nodes: Vec<NodeId>,
}

/// The name of a node's artifact. The same text may summarise other messages in another copy of the
/// rows.
fn name_of(id: NodeId, kept: &KeptNode) -> String {
    let mut hash = Xxh3::new();
    hash.update(kept.node.text.as_bytes());
    let nodes = kept.over_nodes.iter().map(|node| node.0.to_le_bytes());
    let messages = kept.over_messages.iter().map(|id| id.0.to_le_bytes());
    nodes.chain(messages).for_each(|id| hash.update(&id));
    format!("{NODE}{:010}-{:016x}", id.0, hash.digest())
}

fn number_in(name: &str) -> Option<NodeId> {
    let (number, _) = name.strip_prefix(NODE)?.split_once('-')?;
    number.parse().ok().map(NodeId)
}

fn written<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string().into()))
}

impl Store {
    /// Stores these nodes as artifacts. If a node has no row any more, its artifact is deleted, and
    /// so are artifacts with an older text of the node.
    pub(super) fn keep_nodes(
        &self,
        session: SessionId,
        ids: impl IntoIterator<Item = NodeId>,
    ) -> Result<(), StoreError> {
        let services = self.source()?.services();
        for id in ids {
            let kept = self.read(|connection| kept_node(connection, session, id))?;
            let name = kept.as_ref().map(|kept| name_of(id, kept));
            // The new one first: if it cannot be stored, the earlier text must still be there.
            if let (Some(name), Some(kept)) = (&name, kept) {
                services.put_artifact(name, Some(&written(&kept)?))?;
            }
            // A rewritten text has another hash, so its artifact has another name.
            for other in services.artifacts(&format!("{NODE}{:010}-", id.0))? {
                if Some(&other) != name.as_ref() {
                    services.put_artifact(&other, None)?;
                }
            }
        }
        Ok(())
    }

    /// Stores the current frontier as an artifact. It replaces the previous one.
    pub(super) fn keep_frontier(&self, session: SessionId) -> Result<(), StoreError> {
        let kept = self.read(|connection| kept_frontier(connection, session))?;
        let services = self.source()?.services();
        Ok(services.put_artifact(FRONTIER, Some(&written(&kept)?))?)
    }

    /// Returns whether there are artifacts of nodes with higher numbers than those in the rows.
    /// Rows without an artifact are no reason for concern, because they may belong to a proposal.
    pub(crate) fn lacks_nodes(&self, session: SessionId) -> Result<bool, StoreError> {
        let names = self.source()?.services().artifacts(NODE)?;
        let last = names.iter().filter_map(|name| number_in(name)).max();
        Ok(last >= Some(nodes::next_id(self, session)?))
    }

    /// Makes the rows of nodes and of the frontier agree with the artifacts. If they already do,
    /// nothing is written. A node is skipped if a message or child that it was made from is not
    /// stored.
    pub(crate) fn follow_artifacts(&self, session: SessionId) -> Result<(), StoreError> {
        let services = self.source()?.services();
        let names: BTreeMap<NodeId, String> = (services.artifacts(NODE)?.into_iter())
            .filter_map(|name| Some((number_in(&name)?, name)))
            .collect();
        let frontier = match services.artifact(FRONTIER)? {
            // An unreadable frontier counts as empty. Its messages are then shown in the window
            // themselves.
            Some(text) => serde_json::from_str(&text).unwrap_or_default(),
            None => KeptFrontier::default(),
        };
        let (rows, frontier_now) = self.read(|connection| {
            let mut rows = HashMap::new();
            let sql = "SELECT id FROM nodes WHERE id >= ?1 AND id < ?2";
            let id = |row: &Row<'_>| row.get(0).map(nodes::id_of);
            let ids: Vec<NodeId> = query_all(connection, sql, range(session), id)?;
            for id in ids {
                let name = kept_node(connection, session, id);
                rows.insert(id, name.ok().flatten().map(|kept| name_of(id, &kept)));
            }
            Ok((rows, kept_frontier(connection, session)?))
        })?;
        let mut wrong: Vec<NodeId> = (rows.iter())
            .filter(|(id, name)| name.is_none() || name.as_ref() != names.get(id))
            .map(|(id, _)| *id)
            .collect();
        if wrong.is_empty() && rows.len() == names.len() && frontier_now == frontier {
            return Ok(());
        }
        wrong.sort_unstable();
        let first_wrong = wrong.first().copied();
        let missing = names.keys().find(|id| !rows.contains_key(id)).copied();
        // A node is made from nodes with lower numbers, so everything from the first difference on
        // is written again.
        let from = first_wrong.into_iter().chain(missing).min();
        let mut new = Vec::new();
        for (id, name) in from.iter().flat_map(|from| names.range(*from..)) {
            let kept = services.artifact(name)?;
            let kept = kept.and_then(|text| serde_json::from_str::<KeptNode>(&text).ok());
            new.extend(kept.map(|kept| (*id, kept)));
        }
        self.write(|transaction| {
            // Rows of the frontier refer to nodes, so they are removed first.
            transaction.execute("DELETE FROM frontier WHERE session = ?1", [session.0])?;
            if let Some(from) = from {
                remove_from(transaction, session, from)?;
            }
            for (id, kept) in &new {
                insert(transaction, session, *id, kept)?;
            }
            for (position, node) in frontier.nodes.iter().enumerate() {
                transaction.execute(
                    "INSERT INTO frontier(session, position, node, compaction)
                     SELECT ?1, ?2, id, ?4 FROM nodes WHERE id = ?3",
                    params![
                        session.0,
                        position as i64,
                        nodes::key(session, *node),
                        frontier.compaction.cast_signed()
                    ],
                )?;
            }
            Ok(())
        })?;
        self.index_soon(session);
        Ok(())
    }
}

/// Removes the rows of all nodes from this number on, together with the references to their
/// children.
fn remove_from(
    transaction: &Transaction<'_>,
    session: SessionId,
    from: NodeId,
) -> Result<(), StoreError> {
    let [_, end] = range(session);
    let keys = [nodes::key(session, from), end];
    // References between nodes first, since a child cannot be deleted while a parent names it.
    for removal in [
        "DELETE FROM node_children WHERE node >= ?1 AND node < ?2",
        "DELETE FROM nodes WHERE id >= ?1 AND id < ?2",
    ] {
        transaction.execute(removal, keys)?;
    }
    Ok(())
}

/// Writes the row of a node from its artifact. Nothing is written if one of its sources is missing.
fn insert(
    transaction: &Transaction<'_>,
    session: SessionId,
    id: NodeId,
    kept: &KeptNode,
) -> Result<(), StoreError> {
    let mut messages = Vec::with_capacity(kept.over_messages.len());
    for message in &kept.over_messages {
        match key_in(transaction, session, *message)? {
            Some(key) => messages.push(key),
            None => return Ok(()),
        }
    }
    for child in &kept.over_nodes {
        let is_there: bool = transaction
            .prepare_cached("SELECT EXISTS(SELECT 1 FROM nodes WHERE id = ?1)")?
            .query_row([nodes::key(session, *child)], |row| row.get(0))?;
        if !is_there {
            return Ok(());
        }
    }
    let new = NewNode {
        node: Node {
            id,
            ..kept.node.clone()
        },
        sources: match kept.over_nodes.is_empty() {
            true => NodeSources::Messages(messages),
            false => NodeSources::Nodes(kept.over_nodes.clone()),
        },
    };
    add_one(transaction, session, &new, |id| id, kept.created_ms)
}

fn kept_frontier(connection: &Connection, session: SessionId) -> Result<KeptFrontier, StoreError> {
    let (nodes, compaction) = frontier_in(connection, session)?;
    Ok(KeptFrontier { compaction, nodes })
}

/// Reads the row of a node in the form in which it is stored as an artifact, or None if there is no
/// such row.
fn kept_node(
    connection: &Connection,
    session: SessionId,
    id: NodeId,
) -> Result<Option<KeptNode>, StoreError> {
    let key = nodes::key(session, id);
    let Some(node) = node_in(connection, key)? else {
        return Ok(None);
    };
    let created_ms = connection
        .prepare_cached("SELECT created_at FROM nodes WHERE id = ?1")?
        .query_row([key], |row| row.get(0))?;
    let (over_messages, over_nodes) = match sources_in(connection, key)? {
        NodeSources::Messages(messages) => (messages, Vec::new()),
        NodeSources::Nodes(nodes) => (Vec::new(), nodes),
    };
    Ok(Some(KeptNode {
        node,
        created_ms,
        over_messages,
        over_nodes,
    }))
}
