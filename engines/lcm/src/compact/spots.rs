//! What each position of the window shows, and which parts of the conversation are missing from it.
//!
//! A window comes from the host, and other engines may have changed it since this engine saw it
//! last. This module compares it with the frontier. [`Compactor::spots`] classifies each position,
//! and [`Compactor::strays`] collects what the window should show but does not. A summary is
//! recognised as our own only if its text names nodes of the current frontier.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{MessageId, MessageKind, MessageView};

use super::Compactor;
use crate::assemble::{ShownNode, nodes_in};
use crate::dag::plan::{Spot, Stray, StrayPart};
use crate::dag::{Node, NodeId};
use crate::error::StoreError;
use crate::store::Key;
use crate::store::nodes;

impl Compactor<'_, '_> {
    /// Returns what each position of the window shows.
    ///
    /// # Errors
    /// Returns an error if the window contains a message that the store does not have. Compacting
    /// would lose it.
    pub(super) fn spots(&self) -> Result<Vec<Spot>, StoreError> {
        let loose: HashSet<MessageId> = self.session.loose()?.keys().copied().collect();
        let mut shown_though_covered: HashMap<MessageId, Key> = HashMap::new();
        let mut spots = Vec::with_capacity(self.views.len());
        for view in self.views {
            if loose.contains(&view.id()) {
                spots.push(Spot::Raw);
                continue;
            }
            if view.kind() == MessageKind::Summary {
                let shown = nodes_in(view.text());
                let in_frontier = |shown: &ShownNode<'_>| {
                    let node = self.session.in_frontier(shown.id);
                    node.is_some_and(|node| shown.is(node))
                };
                spots.push(match !shown.is_empty() && shown.iter().all(in_frontier) {
                    true => Spot::Ours(shown.iter().map(|shown| shown.id).collect()),
                    false => Spot::Foreign,
                });
                continue;
            }
            match self.session.store.key(self.session.id, view.id())? {
                Some(key) => {
                    shown_though_covered.insert(view.id(), key);
                    spots.push(Spot::Raw);
                }
                None if view.kind() == MessageKind::Original => {
                    return Err(StoreError::NotShown(view.id()));
                }
                None => spots.push(Spot::Inserted),
            }
        }
        if !shown_though_covered.is_empty() {
            let keys: Vec<Key> = shown_though_covered.values().copied().collect();
            let covering = nodes::covering(&self.session.store, self.session.id, &keys)?;
            for (view, spot) in self.views.iter().zip(&mut spots) {
                let key = shown_though_covered.get(&view.id());
                if let Some(node) = key.and_then(|key| covering.get(key)) {
                    *spot = Spot::Covered(*node);
                }
            }
        }
        // If no message is missing from the window, the summaries of others stand for messages that
        // were lost with the record.
        if spots.contains(&Spot::Foreign)
            && self.strays(&spots, self.session.frontier())?.is_empty()
        {
            for spot in spots.iter_mut().filter(|spot| **spot == Spot::Foreign) {
                *spot = Spot::Orphan;
            }
        }
        Ok(spots)
    }

    /// Updates the spots after `node` was replaced by `children`. Its positions now belong to the
    /// children, or are uncovered if no child covers them.
    pub(super) fn respot(
        &self,
        spots: &mut [Spot],
        node: NodeId,
        children: &[Node],
    ) -> Result<(), StoreError> {
        let mut owner: HashMap<Key, NodeId> = HashMap::new();
        for child in children {
            let id = child.id;
            let keys = nodes::messages_under(&self.session.store, self.session.id, id)?;
            owner.extend(keys.into_iter().map(|key| (key, id)));
        }
        for (view, spot) in self.views.iter().zip(spots) {
            if *spot == Spot::Covered(node) {
                let key = self.session.store.key(self.session.id, view.id())?;
                let child = key.and_then(|key| owner.get(&key));
                *spot = child.map_or(Spot::Raw, |child| Spot::Covered(*child));
            }
        }
        Ok(())
    }

    /// Returns the parts of the conversation that are missing from the window, in order: nodes of
    /// the frontier that no summary shows, and loose messages that the host does not show.
    pub(super) fn strays(
        &self,
        spots: &[Spot],
        frontier: &[Node],
    ) -> Result<Vec<Stray>, StoreError> {
        let mut shown: HashSet<NodeId> = HashSet::new();
        for spot in spots {
            match spot {
                Spot::Ours(nodes) => shown.extend(nodes),
                Spot::Covered(node) => {
                    shown.insert(*node);
                }
                Spot::Raw | Spot::Foreign | Spot::Orphan | Spot::Inserted => {}
            }
        }
        let in_window: HashSet<MessageId> = self.views.iter().map(MessageView::id).collect();
        let hidden = frontier
            .iter()
            .filter(|node| !shown.contains(&node.id))
            .map(|node| Stray {
                first: node.first,
                part: StrayPart::Node(node.id),
            });
        let unseen = self
            .session
            .loose()?
            .iter()
            .filter(|(id, _)| !in_window.contains(id))
            .map(|(id, loose)| Stray {
                first: *id,
                part: StrayPart::Message {
                    tokens: loose.tokens,
                },
            });
        let mut strays: Vec<Stray> = hidden.chain(unseen).collect();
        strays.sort_by_key(|stray| stray.first);
        Ok(strays)
    }
}
