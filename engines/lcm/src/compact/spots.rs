//! What each position of the window shows, and which parts of the conversation are missing from it.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{EngineError, MessageId, MessageKind, MessageView};

use super::Compactor;
use crate::assemble::{ShownNode, nodes_in};
use crate::dag::NodeId;
use crate::dag::plan::{Spot, Stray, StrayPart};
use crate::store::Key;
use crate::store::nodes::{self, Placed};

impl Compactor<'_, '_> {
    /// What each position of the window shows.
    pub(super) fn spots(&self) -> Result<Vec<Spot>, EngineError> {
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
                    let placed = self.session.in_frontier(shown.id);
                    placed.is_some_and(|placed| shown.is(&placed.node))
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
                // An answer inserted by another engine stands for no stored message.
                None if view.kind() == MessageKind::Replaced => spots.push(Spot::Foreign),
                None => {
                    return Err(EngineError::Other(format!(
                        "message {} was never shown to this engine, so it cannot be kept; nothing was compacted",
                        view.id()
                    )));
                }
            }
        }
        if shown_though_covered.is_empty() {
            return Ok(spots);
        }
        let keys: Vec<Key> = shown_though_covered.values().copied().collect();
        let covering = nodes::covering(&self.session.store, self.session.id, &keys)?;
        for (view, spot) in self.views.iter().zip(&mut spots) {
            let key = shown_though_covered.get(&view.id());
            if let Some(node) = key.and_then(|key| covering.get(key)) {
                *spot = Spot::Covered(*node);
            }
        }
        Ok(spots)
    }

    /// A node was replaced by its children: its positions are now theirs, or uncovered.
    pub(super) fn respot(
        &self,
        spots: &mut [Spot],
        node: NodeId,
        children: &[Placed],
    ) -> Result<(), EngineError> {
        let mut owner: HashMap<Key, NodeId> = HashMap::new();
        for child in children {
            let id = child.node.id;
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

    /// The parts of the conversation that are missing from the window, in order.
    pub(super) fn strays(
        &self,
        spots: &[Spot],
        frontier: &[Placed],
    ) -> Result<Vec<Stray>, EngineError> {
        let mut shown: HashSet<NodeId> = HashSet::new();
        for spot in spots {
            match spot {
                Spot::Ours(nodes) => shown.extend(nodes),
                Spot::Covered(node) => {
                    shown.insert(*node);
                }
                Spot::Raw | Spot::Foreign => {}
            }
        }
        let in_window: HashSet<MessageId> = self.views.iter().map(MessageView::id).collect();
        let hidden = frontier
            .iter()
            .filter(|placed| !shown.contains(&placed.node.id))
            .map(|placed| Stray {
                first: placed.node.first,
                part: StrayPart::Node(placed.node.id),
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
