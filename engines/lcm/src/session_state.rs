//! The engine's state of one session: the frontier and the messages that no node covers.
//!
//! The *frontier* is the list of summary nodes that currently replace messages in the window. Every
//! other message of the conversation is *loose*. Together they account for each message exactly
//! once, and [`SessionState::coverage`] checks that.
//!
//! [`SessionState`] is the type to read first. It keeps the frontier in step with the store: a
//! delivery that cuts or revises messages takes the affected nodes apart, and a compaction moves
//! the frontier. The store is always changed first and the state in memory after it, so that a
//! failed write leaves both unchanged. Choosing what to summarise is left to the compaction.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use contexture_digest::{Digest, Readings};
use contexture_engine_api::{
    Delivery, LogLevel, MessageId, MessageKind, MessageView, OpenRequest, Services,
};

use crate::assemble::{ShownNode, nodes_in};
use crate::dag::{Node, NodeId, NodeSources};
use crate::error::StoreError;
use crate::store::nodes::{self, FrontierMove};
use crate::store::{Key, MessageRow, SessionId, Source, Store};
use crate::summarise::Written;

/// A message that no node of the frontier covers, with what the planning of summaries needs to know
/// about it. The text is read from the transcript when it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loose {
    pub(crate) key: Key,
    pub(crate) tokens: u64,
    /// When the message was said, in milliseconds since the Unix epoch, if it says so.
    pub(crate) at: Option<i64>,
    /// Whether the user wrote the message. Summaries, replacements and messages without content do
    /// not count, because only a real request has to stay in the window.
    pub(crate) is_user: bool,
}

impl Loose {
    fn of(row: &MessageRow) -> Self {
        let is_original = row.kind == MessageKind::Original;
        Self {
            key: row.key,
            tokens: row.tokens,
            at: row.at,
            is_user: row.role == "user" && is_original && (row.has_text || row.has_media),
        }
    }

    fn new(key: Key, view: &MessageView<'_>) -> Self {
        Self {
            key,
            tokens: view.tokens(),
            at: view.time(),
            is_user: view.is_real_user(),
        }
    }
}

/// How the conversation is covered. In a sound session each message is either outside the frontier
/// or under exactly one of its nodes, so `twice` and `nowhere` are empty.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) outside: u64,
    pub(crate) under_one: u64,
    /// Messages under more than one node, or under a node and outside the frontier at the same
    /// time.
    pub(crate) twice: Vec<MessageId>,
    /// Messages that are neither under a node nor known to be outside the frontier. The window
    /// would lose them without a trace.
    pub(crate) nowhere: Vec<MessageId>,
    /// The number of messages under the frontier that are no longer part of the conversation,
    /// because an edit or a cut left them behind.
    pub(crate) left_behind: u64,
}

/// The state of one session of the store, as its engine sees it. Another process may change the
/// stored session, so the frontier is compared with the store before it is used and moved.
pub(crate) struct SessionState {
    pub(crate) store: Store,
    pub(crate) id: SessionId,
    pub(crate) services: Services,
    /// The nodes that replace messages in the window, in the order of the conversation.
    frontier: Vec<Node>,
    /// The id of the compaction that made the current frontier, which is 0 if there was none.
    pub(crate) compaction: u64,
    /// Whether the rows of summaries have been compared with the artifacts. That is done at the
    /// first delivery. Before that, another process may still be working on the session.
    follows_artifacts: bool,
    /// The messages outside the frontier, read from the store on first use.
    loose: OnceCell<BTreeMap<MessageId, Loose>>,
    /// What was found in messages when they arrived, as long as a summary may still be made of them.
    readings: Readings,
}

impl SessionState {
    pub(crate) fn open(
        store: &Store,
        redacts: bool,
        request: &OpenRequest<'_>,
    ) -> Result<Self, StoreError> {
        let services = request.services.clone();
        let store = store.over(Source::new(request.session, services.clone(), redacts));
        let id = store.open_session(request.session)?;
        let (id, has_changed) = store.follow_transcript(id, false)?;
        if store.lacks_nodes(id)? {
            store.follow_artifacts(id)?;
        }
        let (frontier, compaction) = nodes::frontier(&store, id)?;
        let mut session = Self {
            store,
            id,
            services,
            frontier,
            compaction,
            loose: OnceCell::new(),
            readings: Readings::default(),
            follows_artifacts: false,
        };
        // Only a compaction of this engine shows nodes of this store.
        let in_force = request
            .compaction
            .filter(|current| current.engine == crate::NAME && current.id != session.compaction);
        if let Some(current) = in_force {
            let shown = current.summaries.iter().flat_map(|text| nodes_in(text));
            session.adopt(current.id, &shown.collect::<Vec<_>>())?;
        }
        if has_changed {
            session.drop_outdated()?;
        }
        Ok(session)
    }

    /// Adopts the compaction that the host has in force. This happens if the process ended after
    /// the host committed the compaction and before the engine stored it. The frontier stays
    /// unchanged if one of the shown nodes is missing from the store, or if a message under one of
    /// them is no longer current.
    fn adopt(&mut self, compaction: u64, shown: &[ShownNode<'_>]) -> Result<(), StoreError> {
        let mut frontier = Vec::with_capacity(shown.len());
        for shown in shown {
            let stored = nodes::node(&self.store, self.id, shown.id)?;
            match stored.filter(|node| shown.is(node)) {
                Some(node) => frontier.push(node),
                None => {
                    self.services.log(
                        LogLevel::Warn,
                        &format!(
                            "compaction {compaction} shows summary {}, which the store does not have: the \
                             frontier stays as it was",
                            shown.id
                        ),
                    );
                    return Ok(());
                }
            }
        }
        let outdated = self.store.outdated(self.id)?;
        for node in &frontier {
            let under = nodes::messages_under(&self.store, self.id, node.id)?;
            // The messages under the node were cut off and said again since, so the summary is
            // about messages that are no longer part of the conversation.
            if under.iter().any(|key| outdated.contains(key)) {
                return Ok(());
            }
        }
        self.move_frontier(compaction, frontier, &[])
    }

    pub(crate) fn frontier(&self) -> &[Node] {
        &self.frontier
    }

    pub(crate) fn in_frontier(&self, id: NodeId) -> Option<&Node> {
        self.frontier.iter().find(|node| node.id == id)
    }

    /// Returns the messages that no node of the frontier covers, in the order of the conversation.
    /// A revised message is not among them, because it is no longer part of the conversation.
    pub(crate) fn loose(&self) -> Result<&BTreeMap<MessageId, Loose>, StoreError> {
        if let Some(loose) = self.loose.get() {
            return Ok(loose);
        }
        let covered = nodes::covered(&self.store, self.id)?;
        let rows = self.store.rows(self.id, 0..u32::MAX)?;
        let outside = |row: &&MessageRow| row.is_current && !covered.contains(&row.key);
        let loose = rows.iter().filter(outside);
        let loose = loose.map(|row| (row.id, Loose::of(row))).collect();
        Ok(self.loose.get_or_init(|| loose))
    }

    /// Digests messages. Only what the user asked for first is a goal.
    pub(crate) fn digest<'v>(&self, views: &[MessageView<'v>]) -> Digest<'v> {
        let was_asked_before = views.first().map(MessageView::id).is_some_and(|first| {
            let asks = |loose: &BTreeMap<MessageId, Loose>| {
                loose.range(..first).any(|(_, loose)| loose.is_user)
            };
            self.frontier.iter().any(|node| node.first < first) || self.loose().is_ok_and(asks)
        });
        Digest::with(&self.readings, views, None, was_asked_before.then_some(""))
    }

    /// Compares the messages outside the frontier with what `store` has under it. It is a
    /// diagnosis: it reads every row of the session and repairs nothing.
    pub(crate) fn coverage(&self, store: &Store) -> Result<Coverage, StoreError> {
        let mut times = nodes::times_covered(store, self.id)?;
        let loose: HashSet<Key> = self.loose()?.values().map(|loose| loose.key).collect();
        let mut coverage = Coverage::default();
        let rows = store.rows(self.id, 0..u32::MAX)?.into_iter();
        for row in rows.filter(|row| row.is_current) {
            let under = times.remove(&row.key).unwrap_or(0);
            match (under, loose.contains(&row.key)) {
                (1, false) => coverage.under_one += 1,
                (0, true) => coverage.outside += 1,
                (0, false) => coverage.nowhere.push(row.id),
                _ => coverage.twice.push(row.id),
            }
        }
        coverage.left_behind = times.len() as u64;
        Ok(coverage)
    }

    /// Stores a delivery, completely or not at all. If a node of the frontier covers messages that
    /// were cut off or revised, it is replaced by its children. A leaf has no child nodes, so it is
    /// removed and its other messages become loose again. Returns the revisions of messages that
    /// the store does not have.
    pub(crate) fn deliver(
        &mut self,
        delivery: &Delivery<'_>,
    ) -> Result<Vec<(MessageId, MessageId)>, StoreError> {
        if !self.follows_artifacts {
            self.follow_artifacts()?;
            self.follows_artifacts = true;
        }
        match self.deliver_once(delivery) {
            // The rows are those of another conversation with the same ids, or another engine object
            // found that they were and built them again.
            Err(StoreError::IdReused(_) | StoreError::SessionDeleted(_)) => {
                self.follow_transcript(false)?;
                self.deliver_once(delivery)
            }
            delivered => delivered,
        }
    }

    /// Makes the rows of the session agree with the transcript, or with what of it can be read if
    /// `reads_texts` is set. Returns whether they had to be built again.
    pub(crate) fn follow_transcript(&mut self, reads_texts: bool) -> Result<bool, StoreError> {
        let id = self.store.find_own_session()?;
        let id = id.ok_or(StoreError::SessionDeleted(self.id.0))?;
        let (followed, _) = self.store.follow_transcript(id, reads_texts)?;
        let is_anew = followed != self.id;
        self.id = followed;
        self.follow_artifacts()?;
        Ok(is_anew)
    }

    /// Makes the summaries agree with the artifacts, and the frontier with the conversation.
    fn follow_artifacts(&mut self) -> Result<(), StoreError> {
        self.store.follow_artifacts(self.id)?;
        (self.frontier, self.compaction) = nodes::frontier(&self.store, self.id)?;
        self.drop_outdated()
    }

    /// Removes from the frontier the nodes over messages that are no longer current.
    fn drop_outdated(&mut self) -> Result<(), StoreError> {
        let (store, id) = (&self.store, self.id);
        let outdated = store.outdated(id)?;
        let mut wrong = Vec::new();
        for node in &self.frontier {
            let under = nodes::messages_under(store, id, node.id)?;
            wrong.extend(under.into_iter().filter(|key| outdated.contains(key)));
        }
        let stale = nodes::above(store, &wrong)?;
        if !stale.is_empty() {
            let is_stale = |node: &Node| stale.contains(&node.id);
            let frontier = self.take_apart(self.frontier.clone(), &is_stale)?;
            self.move_frontier(self.compaction, frontier, &[])?;
        }
        self.forget_loose();
        Ok(())
    }

    fn deliver_once(
        &mut self,
        delivery: &Delivery<'_>,
    ) -> Result<Vec<(MessageId, MessageId)>, StoreError> {
        let frontier = self.frontier_after(delivery)?;
        let moved = frontier.as_ref().map(|nodes| FrontierMove {
            before: ids(&self.frontier),
            after: ids(nodes),
            compaction: self.compaction,
        });
        let now_ms = self.services.now_ms();
        let ingested = (self.store).deliver_with(self.id, delivery, now_ms, moved.as_ref())?;
        if delivery.cut.is_some() || frontier.is_some() || ingested.known > 0 {
            self.forget_loose();
        }
        if let Some(frontier) = frontier {
            self.frontier = frontier;
        }
        if let Some(cut) = delivery.cut {
            self.readings.retain(|id| cut.keeps(id));
        }
        (delivery.messages.iter()).for_each(|view| self.readings.read(view));
        if let Some(loose) = self.loose.get_mut() {
            for (_, old) in delivery.revisions {
                loose.remove(old);
            }
            let new = delivery.messages.iter();
            for (view, ordinal) in new.zip(ingested.new) {
                let message = Loose::new(Key::new(self.id, ordinal), view);
                loose.insert(view.id(), message);
            }
        }
        Ok(ingested.replaces_nothing)
    }

    /// Returns the frontier without the nodes that a delivery makes untrue, or None if no node is
    /// affected. Only cuts and revisions can make a node untrue.
    fn frontier_after(&mut self, delivery: &Delivery<'_>) -> Result<Option<Vec<Node>>, StoreError> {
        if delivery.cut.is_none() && delivery.revisions.is_empty() {
            return Ok(None);
        }
        self.refresh()?;
        let mut revised = Vec::with_capacity(delivery.revisions.len());
        for (_, old) in delivery.revisions {
            revised.extend(self.store.key(self.id, *old)?);
        }
        let stale = nodes::above(&self.store, &revised)?;
        let is_untrue = |node: &Node| {
            stale.contains(&node.id) || delivery.cut.is_some_and(|cut| !cut.keeps(node.last))
        };
        let changes = self.frontier.iter().any(is_untrue);
        let frontier = changes.then(|| self.take_apart(self.frontier.clone(), &is_untrue));
        frontier.transpose()
    }

    /// Finds the rows again if another engine object has built them again under another number.
    pub(crate) fn find_rows(&mut self) -> Result<(), StoreError> {
        match self.store.find_own_session()? == Some(self.id) {
            true => Ok(()),
            false => self.follow_transcript(false).map(|_| ()),
        }
    }

    /// Reads the frontier again if another process has changed it. If the ids are the same, nothing
    /// is read except the ids.
    pub(crate) fn refresh(&mut self) -> Result<(), StoreError> {
        self.find_rows()?;
        if nodes::frontier_ids(&self.store, self.id)? == ids(&self.frontier) {
            return Ok(());
        }
        (self.frontier, self.compaction) = nodes::frontier(&self.store, self.id)?;
        self.loose = OnceCell::new();
        Ok(())
    }

    /// Replaces each node that is `unfit` by its children, and the children in the same way, until
    /// all nodes fit. Unfit leaves are removed, since their children are messages. The order is
    /// preserved.
    pub(crate) fn take_apart(
        &self,
        nodes: Vec<Node>,
        unfit: &impl Fn(&Node) -> bool,
    ) -> Result<Vec<Node>, StoreError> {
        let mut fit = Vec::with_capacity(nodes.len());
        // The stack holds the nodes in reverse order, so that the next node is on top.
        let mut waiting: Vec<Node> = nodes.into_iter().rev().collect();
        while let Some(node) = waiting.pop() {
            if !unfit(&node) {
                fit.push(node);
                continue;
            }
            if let NodeSources::Nodes(children) = nodes::sources(&self.store, self.id, node.id)? {
                for child in children.iter().rev() {
                    waiting.extend(nodes::node(&self.store, self.id, *child)?);
                }
            }
        }
        Ok(fit)
    }

    /// Sets a new frontier and stores the `better` texts together with it. The store is changed
    /// first, so an error leaves the state as it was. The error is [`StoreError::FrontierMoved`] if
    /// another process moved the frontier since it was read.
    pub(crate) fn move_frontier(
        &mut self,
        compaction: u64,
        frontier: Vec<Node>,
        better: &[(NodeId, Written)],
    ) -> Result<(), StoreError> {
        let moved = FrontierMove {
            before: ids(&self.frontier),
            after: ids(&frontier),
            compaction,
        };
        nodes::move_frontier(&self.store, self.id, &moved, better)?;
        self.frontier = frontier;
        self.compaction = compaction;
        Ok(())
    }

    /// Removes these messages from the loose ones after a compaction put them under the frontier.
    pub(crate) fn now_covered(&mut self, ids: &[MessageId]) {
        if let Some(loose) = self.loose.get_mut() {
            for id in ids {
                loose.remove(id);
            }
        }
    }

    /// Forgets what was found in messages under nodes with more than `most` tokens of them. The
    /// parents of such nodes are made from their texts.
    pub(crate) fn forget_readings(&mut self, most: u64) {
        let large = (self.frontier.iter()).filter(|node| node.source_tokens > most);
        let large: Vec<_> = large.map(|node| node.first..=node.last).collect();
        let is_read = |id| !large.iter().any(|under| under.contains(&id));
        self.readings.retain(is_read);
    }

    /// Forgets the messages outside the frontier, so that the next use reads them again. This is
    /// needed after changes that may turn covered messages loose.
    pub(crate) fn forget_loose(&mut self) {
        self.loose = OnceCell::new();
    }
}

fn ids(nodes: &[Node]) -> Vec<NodeId> {
    nodes.iter().map(|node| node.id).collect()
}
