//! Texts that were prepared between turns for the next compaction. None of them is in the window
//! yet.
//!
//! The background asks the model for leaves, condensed nodes and better texts before a compaction
//! is due. [`Staging`] keeps them in memory, keyed by the messages or nodes they are for. A
//! compaction looks its texts up here first and calls the model only for those that are missing, if
//! at all.
//!
//! Nothing here is stored. If the process ends, the texts are lost and will be prepared again.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageId;

use crate::dag::NodeId;
use crate::summarise::Written;

/// The texts that the model wrote in the background. Each is keyed by its sources, so that a text
/// is used only if the compaction needs it for exactly these sources.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// The prepared leaves, keyed by their first message, each with all its messages.
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

    /// Returns the messages of the prepared leaf that begins with this one, so that a plan can keep
    /// its boundaries.
    pub(crate) fn ids(&self, first: MessageId) -> Option<&[MessageId]> {
        self.leaves.get(&first).map(|(ids, _)| ids.as_slice())
    }

    /// Returns the prepared text for a leaf over exactly these messages. If the boundaries differ,
    /// the text would claim to cover messages that it does not, so the result is None.
    pub(crate) fn leaf(&self, ids: &[MessageId]) -> Option<&Written> {
        let (of, written) = self.leaves.get(ids.first()?)?;
        (of == ids).then_some(written)
    }

    /// Whether a leaf over this message is prepared, wherever in the leaf the message is.
    pub(crate) fn holds(&self, id: MessageId) -> bool {
        self.held.contains(&id)
    }

    pub(crate) fn condensed(&self, children: &[NodeId]) -> Option<&Written> {
        self.condensed.get(children)
    }

    /// Returns the groups of nodes for which a condensed node is prepared, in no particular order.
    pub(crate) fn condensed_groups(&self) -> impl Iterator<Item = &[NodeId]> {
        self.condensed.keys().map(Vec::as_slice)
    }

    pub(crate) fn better(&self, node: NodeId) -> Option<&Written> {
        self.better.get(&node)
    }

    pub(crate) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Returns the tokens of the texts of all prepared leaves together, without the headings that
    /// they get in the window.
    pub(crate) fn tokens(&self) -> u64 {
        self.leaves
            .values()
            .map(|(_, written)| written.tokens)
            .sum()
    }

    /// Drops what a compaction used: leaves over messages that are under the frontier now, and
    /// better texts that their nodes now have. Condensed texts are all dropped, because the
    /// frontier they were prepared for has changed.
    pub(crate) fn used(&mut self, covered: &[MessageId], better: &[NodeId]) {
        let covered: HashSet<MessageId> = covered.iter().copied().collect();
        self.retain(|id| !covered.contains(&id));
        for node in better {
            self.better.remove(node);
        }
        // Condensed texts were prepared for the frontier before this compaction.
        self.condensed.clear();
    }

    /// Keeps only the leaves for whose messages `keep` is true. One message for which it is false
    /// drops the whole leaf.
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
