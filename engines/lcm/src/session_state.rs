//! The engine's state of one session: the frontier and the messages that no node covers.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use contexture_engine_api::{
    Delivery, LogLevel, MessageId, MessageKind, MessageView, Observed, OpenRequest, Services,
};

use crate::assemble::{ShownNode, nodes_in};
use crate::dag::{NodeId, Under};
use crate::error::StoreError;
use crate::store::nodes::{self, FrontierMove, Placed};
use crate::store::{Key, MessageRow, SessionId, Store, Together};
use crate::stored_views::StoredViews;
use crate::summarise::Written;

/// A message that no node of the frontier covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loose {
    pub(crate) key: Key,
    pub(crate) tokens: u64,
    /// Whether it is a message written by the user.
    pub(crate) is_user: bool,
    /// Whether it is an assistant's message with text.
    pub(crate) is_answer: bool,
}

impl Loose {
    fn of(row: &MessageRow) -> Self {
        let is_original = row.kind == MessageKind::Original;
        Self {
            key: row.key,
            tokens: row.tokens,
            is_user: row.role == "user" && is_original && (row.has_text || row.has_media),
            is_answer: row.role == "assistant" && row.kind != MessageKind::Summary && row.has_text,
        }
    }

    fn new(key: Key, view: &MessageView<'_>) -> Self {
        let has_text = !view.text().trim().is_empty();
        Self {
            key,
            tokens: view.tokens(),
            is_user: view.is_real_user(),
            is_answer: view.role() == "assistant"
                && view.kind() != MessageKind::Summary
                && has_text,
        }
    }
}

/// How the conversation is covered: each message should be outside the frontier, or under one node of it.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) outside: u64,
    pub(crate) under_one: u64,
    /// Under two nodes, or both under one and outside.
    pub(crate) twice: Vec<MessageId>,
    pub(crate) nowhere: Vec<MessageId>,
    /// Messages under the frontier that an edit or a cut left behind.
    pub(crate) left_behind: u64,
}

/// A session of the store.
pub(crate) struct SessionState {
    pub(crate) store: Store,
    pub(crate) id: SessionId,
    pub(crate) services: Services,
    /// The nodes that replace messages in the window, oldest first.
    frontier: Vec<Placed>,
    /// The compaction that the frontier belongs to.
    pub(crate) compaction: u64,
    /// How far the conversation is stored, by this engine and before it.
    seen: Option<Observed>,
    /// The messages outside the frontier, read from the store on first use.
    loose: OnceCell<BTreeMap<MessageId, Loose>>,
}

impl SessionState {
    pub(crate) fn open(store: Store, request: &OpenRequest<'_>) -> Result<Self, StoreError> {
        let services = request.services.clone();
        let id = store.open_session(request.session, services.now_ms())?;
        let (frontier, compaction) = nodes::frontier(&store, id)?;
        let unreadable = nodes::drop_unreadable(&store, id, &frontier)?;
        if unreadable > 0 {
            services.log(
                LogLevel::Warn,
                &format!(
                    "{unreadable} summaries cannot be read and left the window; the messages under them are \
                     there: run `contexture sessions verify`"
                ),
            );
        }
        let seen = store.observed(id)?;
        let mut session = Self {
            store,
            id,
            seen,
            services,
            frontier,
            compaction,
            loose: OnceCell::new(),
        };
        let in_force = request
            .compaction
            .filter(|current| current.engine == crate::NAME && current.id != session.compaction);
        if let Some(current) = in_force {
            let shown = current.summaries.iter().flat_map(|text| nodes_in(text));
            session.adopt(current.id, &shown.collect::<Vec<_>>())?;
        }
        Ok(session)
    }

    /// Adopts the compaction that the host has in force: it was committed, but the process ended before the
    /// engine was told.
    fn adopt(&mut self, compaction: u64, shown: &[ShownNode<'_>]) -> Result<(), StoreError> {
        let mut frontier = Vec::with_capacity(shown.len());
        for shown in shown {
            let stored = nodes::node(&self.store, self.id, shown.id)?;
            match stored.filter(|placed| shown.is(&placed.node)) {
                Some(placed) => frontier.push(placed),
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
        let current = self.store.current_messages(self.id)?;
        for placed in &frontier {
            let under = nodes::messages_under(&self.store, self.id, placed.node.id)?;
            // They were cut off, and said again since: the summary is of what was left.
            if !under.iter().all(|key| current.contains(*key)) {
                return Ok(());
            }
        }
        self.move_frontier(compaction, frontier, &[])
    }

    pub(crate) fn frontier(&self) -> &[Placed] {
        &self.frontier
    }

    pub(crate) fn in_frontier(&self, id: NodeId) -> Option<&Placed> {
        self.frontier.iter().find(|placed| placed.node.id == id)
    }

    /// The messages that no node of the frontier covers, in order. A revised message is no longer part of
    /// the conversation.
    pub(crate) fn loose(&self) -> Result<&BTreeMap<MessageId, Loose>, StoreError> {
        if let Some(loose) = self.loose.get() {
            return Ok(loose);
        }
        let covered = nodes::covered(&self.store, self.id)?;
        let mut loose = BTreeMap::new();
        for run in self.store.current_messages(self.id)?.runs() {
            let rows = self.store.rows(self.id, run.clone())?;
            let rows = rows.iter().filter(|row| !covered.contains(&row.key));
            loose.extend(rows.map(|row| (row.id, Loose::of(row))));
        }
        Ok(self.loose.get_or_init(|| loose))
    }

    /// Compares the messages outside the frontier with what the store has under it.
    pub(crate) fn coverage(&self, store: &Store) -> Result<Coverage, StoreError> {
        let mut times = nodes::times_covered(store, self.id)?;
        let loose: HashSet<Key> = self.loose()?.values().map(|loose| loose.key).collect();
        let mut rows = Vec::new();
        for range in store.live(self.id)? {
            rows.extend(store.rows(self.id, range)?);
        }
        let current = store.current_messages(self.id)?;
        let mut coverage = Coverage::default();
        for row in rows {
            if !current.contains(row.key) {
                continue;
            }
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

    /// Stores a delivery, whole or not at all. A node of the frontier over messages that were cut off or revised is
    /// replaced by its children; such a leaf is removed, and its other messages become loose again. Answers the
    /// revisions of messages that the store does not have.
    pub(crate) fn deliver(
        &mut self,
        delivery: &Delivery<'_>,
    ) -> Result<Vec<(MessageId, MessageId)>, StoreError> {
        let frontier = self.frontier_after(delivery)?;
        let together = Together {
            seen: Some(self.seen),
            moved: frontier.as_ref().map(|nodes| FrontierMove {
                before: ids(&self.frontier),
                after: ids(nodes),
                compaction: self.compaction,
            }),
        };
        let now_ms = self.services.now_ms();
        let delivered = (self.store).deliver_with(self.id, delivery, now_ms, &together);
        if matches!(delivered, Err(StoreError::WentOn)) {
            self.seen = self.store.observed(self.id)?;
            (self.frontier, self.compaction) = nodes::frontier(&self.store, self.id)?;
            self.forget_loose();
        }
        let ingested = delivered?;
        self.seen = ingested.seen;
        if delivery.cut.is_some() || frontier.is_some() || ingested.restored > 0 {
            self.forget_loose();
        }
        if let Some(frontier) = frontier {
            self.frontier = frontier;
        }
        if let Some(loose) = self.loose.get_mut() {
            for (_, old) in delivery.revisions {
                loose.remove(old);
            }
            let new = delivery.messages.iter().skip(ingested.known);
            for (view, ordinal) in new.zip(ingested.new) {
                let message = Loose::new(Key::new(self.id, ordinal), view);
                loose.insert(view.id(), message);
            }
        }
        Ok(ingested.replaces_nothing)
    }

    /// The frontier without what a delivery makes untrue; none where it stays.
    fn frontier_after(
        &mut self,
        delivery: &Delivery<'_>,
    ) -> Result<Option<Vec<Placed>>, StoreError> {
        if delivery.cut.is_none() && delivery.revisions.is_empty() {
            return Ok(None);
        }
        self.refresh()?;
        let mut revised = Vec::with_capacity(delivery.revisions.len());
        for (_, old) in delivery.revisions {
            revised.extend(self.store.key(self.id, *old)?);
        }
        let stale = nodes::over(&self.store, &revised)?;
        let is_untrue = |placed: &Placed| {
            stale.contains(&placed.node.id)
                || delivery.cut.is_some_and(|cut| !cut.keeps(placed.node.last))
        };
        let changes = self.frontier.iter().any(is_untrue);
        let frontier = changes.then(|| self.take_apart(self.frontier.clone(), &is_untrue));
        frontier.transpose()
    }

    /// These messages with their content.
    pub(crate) fn stored_views(&self, keys: &[Key]) -> Result<StoredViews, StoreError> {
        let mut messages = Vec::with_capacity(keys.len());
        // Neighbours are read together.
        for run in keys.chunk_by(|one, next| one.0 + 1 == next.0) {
            if let [first, .., last] | [first @ last] = run {
                let ordinals = first.ordinal()..last.ordinal() + 1;
                messages.extend(self.store.messages(self.id, ordinals)?);
            }
        }
        Ok(StoredViews::of(messages))
    }

    /// Reloads the frontier after another process changed it.
    pub(crate) fn refresh(&mut self) -> Result<(), StoreError> {
        if nodes::frontier_ids(&self.store, self.id)? == ids(&self.frontier) {
            return Ok(());
        }
        (self.frontier, self.compaction) = nodes::frontier(&self.store, self.id)?;
        self.loose = OnceCell::new();
        Ok(())
    }

    /// Replaces nodes by their children as long as they are `unfit`; unfit leaves are removed.
    pub(crate) fn take_apart(
        &self,
        nodes: Vec<Placed>,
        unfit: &impl Fn(&Placed) -> bool,
    ) -> Result<Vec<Placed>, StoreError> {
        let mut fit = Vec::with_capacity(nodes.len());
        // The next node is the last one of the stack.
        let mut waiting: Vec<Placed> = nodes.into_iter().rev().collect();
        while let Some(placed) = waiting.pop() {
            if !unfit(&placed) {
                fit.push(placed);
                continue;
            }
            if let Under::Nodes(children) = nodes::under(&self.store, self.id, placed.node.id)? {
                for child in children.iter().rev() {
                    waiting.extend(nodes::node(&self.store, self.id, *child)?);
                }
            }
        }
        Ok(fit)
    }

    /// Sets a new frontier, in the store first.
    pub(crate) fn move_frontier(
        &mut self,
        compaction: u64,
        frontier: Vec<Placed>,
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

    /// These messages are under the frontier now.
    pub(crate) fn now_covered(&mut self, ids: &[MessageId]) {
        if let Some(loose) = self.loose.get_mut() {
            for id in ids {
                loose.remove(id);
            }
        }
    }

    /// Forgets the messages outside the frontier, so that they are read again.
    pub(crate) fn forget_loose(&mut self) {
        self.loose = OnceCell::new();
    }

    /// The first message below each node of the frontier.
    pub(crate) fn first_messages(nodes: &[Placed]) -> HashMap<NodeId, MessageId> {
        let first = |placed: &Placed| (placed.node.id, placed.node.first);
        nodes.iter().map(first).collect()
    }
}

fn ids(nodes: &[Placed]) -> Vec<NodeId> {
    nodes.iter().map(|placed| placed.node.id).collect()
}
