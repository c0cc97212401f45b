//! Texts prepared between turns for the next compaction. None of them is in the window yet.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageId;

use crate::dag::NodeId;
use crate::summarise::Written;

/// Texts that the model wrote in the background.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Leaves, by their first message.
    leaves: HashMap<MessageId, (Vec<MessageId>, Written)>,
    held: HashSet<MessageId>,
    condensed: HashMap<Vec<NodeId>, Written>,
    better: HashMap<NodeId, Written>,
}

impl Staging {
    pub(crate) fn add_leaf(&mut self, ids: Vec<MessageId>, written: Written) {
        if let Some(first) = ids.first() {
            self.held.extend(&ids);
            self.leaves.insert(*first, (ids, written));
        }
    }

    pub(crate) fn add_condensed(&mut self, children: Vec<NodeId>, written: Written) {
        self.condensed.insert(children, written);
    }

    pub(crate) fn add_better(&mut self, node: NodeId, written: Written) {
        self.better.insert(node, written);
    }

    /// The messages of the leaf that begins with this one.
    pub(crate) fn ids(&self, first: MessageId) -> Option<&[MessageId]> {
        self.leaves.get(&first).map(|(ids, _)| ids.as_slice())
    }

    pub(crate) fn leaf(&self, ids: &[MessageId]) -> Option<&Written> {
        let (of, written) = self.leaves.get(ids.first()?)?;
        (of == ids).then_some(written)
    }

    /// Whether a leaf over this message is prepared.
    pub(crate) fn holds(&self, id: MessageId) -> bool {
        self.held.contains(&id)
    }

    pub(crate) fn condensed(&self, children: &[NodeId]) -> Option<&Written> {
        self.condensed.get(children)
    }

    /// The groups of nodes that a condensed node is prepared for.
    pub(crate) fn condensed_groups(&self) -> impl Iterator<Item = &[NodeId]> {
        self.condensed.keys().map(Vec::as_slice)
    }

    pub(crate) fn better(&self, node: NodeId) -> Option<&Written> {
        self.better.get(&node)
    }

    pub(crate) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Tokens of the prepared leaves.
    pub(crate) fn tokens(&self) -> u64 {
        self.leaves
            .values()
            .map(|(_, written)| written.tokens)
            .sum()
    }

    /// Drops what was used: these messages are under the frontier now, and these nodes have their better
    /// texts.
    pub(crate) fn used(&mut self, covered: &[MessageId], better: &[NodeId]) {
        let covered: HashSet<MessageId> = covered.iter().copied().collect();
        self.retain(|id| !covered.contains(&id));
        for node in better {
            self.better.remove(node);
        }
        self.condensed.clear();
    }

    /// Drops every leaf with a message for which `keep` is false.
    pub(crate) fn retain(&mut self, keep: impl Fn(MessageId) -> bool) {
        self.leaves
            .retain(|_, (ids, _)| ids.iter().all(|id| keep(*id)));
        self.held = self
            .leaves
            .values()
            .flat_map(|(ids, _)| ids.iter().copied())
            .collect();
    }
}
