//! Writing the nodes of a compaction: leaves over messages, and condensed nodes over nodes.
//!
//! [`SummaryWriter`] builds the new frontier run by run. Existing nodes are taken as they are, or with a
//! better text if one is ready. The spans between them get leaves, whose texts are ready, word for
//! word, or written now. If all nodes together exceed the budget, the oldest are condensed
//! until they fit.
//!
//! Nothing is stored here. New nodes get provisional numbers, and [`SummaryWriter::new_nodes`] returns
//! what the proposal has to store.

use std::collections::HashMap;
use std::ops::Range;

use contexture_digest::{Budget, Digest, Rules, TextsBeside};
use contexture_engine_api::{MessageId, MessageView, ModelInfo, with_views};

use super::arrange::Arrangement;
use super::{Compactor, ModelUse, PREAMBLE_TOKENS, sum};
use crate::dag::condense::{FANOUT, GOOD_GROUP, next_group};
use crate::dag::plan::{PlanStep, Run, RunPart, leaves};
use crate::dag::{Level, Node, NodeId, NodeSources, Span};
use crate::error::StoreError;
use crate::model_trust::ModelTrust;
use crate::settings::{CONDENSED_SHARE, HEADING_TOKENS, LEAF_SHARE, LEAST_TEXT};
use crate::store::Key;
use crate::store::nodes::{self, NewNode};
use crate::summarise::{Job, Written, tokens_of, write_all};
use crate::transcript::plain;

/// Messages of at most this many tokens together are kept word for word in a leaf. A summary of so
/// little would hardly be shorter.
const VERBATIM_TOKENS: u64 = 64;
/// The maximum number of tokens of a leaf's text on average, however much room the budget leaves.
const MAX_LEAF_TOKENS: u64 = 2_000;
/// For how many leaves before the one that was just written the demand is computed again. These are
/// the most likely to repeat it, and computing all takes too long if there are many.
const NEAR: usize = 8;

/// A node of the new frontier while it is under construction.
pub(super) struct DraftNode {
    pub(super) node: Node,
    /// What the node is made from. None if it is stored already.
    sources: Option<NodeSources<Key>>,
}

/// The nodes of one compaction while they are written. Create one, call `write`, and then take the
/// runs.
pub(super) struct SummaryWriter<'c, 'a, 'm> {
    compactor: &'c Compactor<'a, 'm>,
    /// The budget of all nodes in the window, in tokens. It shrinks if the proposal has to be
    /// tightened.
    summaries: u64,
    /// The texts of the messages that stay in the window.
    kept: TextsBeside,
    /// The number of the next new node. The store may assign higher ones in the end.
    next: NodeId,
    /// The nodes of each run of the arrangement, in the order of the conversation.
    pub(super) runs: Vec<Vec<DraftNode>>,
    /// Nodes that are already under a new node. They are not in the window, but the new ones among
    /// them have to be stored.
    retired: Vec<DraftNode>,
    /// Nodes of the frontier that get their better text with this compaction.
    pub(super) better: Vec<(NodeId, Written)>,
    /// The messages under the new leaves, which are no longer loose once the proposal is committed.
    pub(super) covered: Vec<MessageId>,
    trust: &'c mut ModelTrust,
    /// Why the model failed for some of the texts, if it did. The model is not called again after
    /// that.
    pub(super) trouble: Option<String>,
}

impl<'c, 'a, 'm> SummaryWriter<'c, 'a, 'm> {
    pub(super) fn new(
        compactor: &'c Compactor<'a, 'm>,
        next: NodeId,
        trust: &'c mut ModelTrust,
    ) -> Self {
        Self {
            compactor,
            summaries: compactor.budgets.summaries,
            kept: TextsBeside::default(),
            next,
            runs: Vec::new(),
            retired: Vec::new(),
            better: Vec::new(),
            covered: Vec::new(),
            trust,
            trouble: None,
        }
    }

    /// Writes the nodes of each run. Existing nodes stay, and everything between them gets leaves.
    /// If all nodes together exceed the budget, the oldest are condensed.
    pub(super) fn write(&mut self, arrangement: &Arrangement) -> Result<(), StoreError> {
        self.kept = TextsBeside::of(&self.compactor.kept_text(arrangement));
        let runs = arrangement.steps.iter().filter_map(PlanStep::run);
        let mut spans = Vec::new();
        let plans: Vec<Vec<Option<DraftNode>>> = runs
            .map(|run| self.plan(arrangement, run, &mut spans))
            .collect();
        let standing = plans.iter().flatten().flatten();
        let standing = standing.map(|made| made.node.cost()).sum();
        let mut leaves = self.leaves(&spans, standing)?.into_iter();
        self.covered = spans.concat();
        for plan in plans {
            let run = plan.into_iter();
            let run = run.filter_map(|existing| existing.or_else(|| leaves.next()));
            self.runs.push(run.collect());
        }
        self.condense()
    }

    /// Returns the nodes of a run, with None for each leaf that is still to be made. The messages of
    /// these leaves are added to `spans`.
    fn plan(
        &mut self,
        arrangement: &Arrangement,
        run: &Run,
        spans: &mut Vec<Vec<MessageId>>,
    ) -> Vec<Option<DraftNode>> {
        let texts = self.compactor.texts;
        let mut plan = Vec::new();
        for part in &run.parts {
            match part {
                RunPart::Node(id) => {
                    let there = arrangement.frontier.iter().find(|node| node.id == *id);
                    let Some(mut node) = there.cloned() else {
                        continue;
                    };
                    if let Some(written) = texts.get(node.span()) {
                        set_text(&mut node, written.clone());
                        self.better.push((*id, written.clone()));
                    }
                    let sources = None;
                    plan.push(Some(DraftNode { node, sources }));
                }
                RunPart::Span(units) => {
                    let span = self.compactor.budgets.leaf_span;
                    let leaves = leaves(units, span, |first| texts.leaf_from(first));
                    plan.extend(leaves.iter().map(|_| None));
                    spans.extend(leaves);
                }
            }
        }
        plan
    }

    /// Makes a leaf over each span. `standing` is the number of tokens that the other nodes take.
    /// The leaves share what is left of the budget by what each needs, and none repeats what stands
    /// after it.
    fn leaves(
        &mut self,
        spans: &[Vec<MessageId>],
        standing: u64,
    ) -> Result<Vec<DraftNode>, StoreError> {
        let room = self.summaries.saturating_sub(standing + PREAMBLE_TOKENS);
        let each = (room / (spans.len() as u64).max(1)).saturating_sub(HEADING_TOKENS);
        // If few leaves share the budget, each may be longer than a node usually is.
        let each = each.clamp(self.compactor.budgets.node, MAX_LEAF_TOKENS);
        let (keys, (drafts, jobs)) =
            (self.compactor).with_messages(spans, |views| self.draft(spans, views, each))?;
        self.next.0 += spans.len() as i64;
        // The texts of all leaves are written together, so that the model calls run concurrently.
        let mut texts = self.texts(jobs)?.into_iter();
        let leaves = drafts.into_iter().zip(keys);
        let leaves = leaves.filter_map(|((node, written), keys)| {
            let written = written.or_else(|| texts.next())?;
            Some(made(node, written, NodeSources::Messages(keys)))
        });
        Ok(leaves.collect())
    }

    /// Returns the leaves over these messages, each with its text if that is there already, and jobs
    /// for the missing texts. They share `each` tokens for one of them.
    fn draft(
        &self,
        spans: &[Vec<MessageId>],
        views: Vec<Vec<MessageView<'_>>>,
        each: u64,
    ) -> (Vec<(Node, Option<Written>)>, Vec<Job>) {
        let ids = (self.next.0..).map(NodeId);
        let drafts = ids.zip(spans).zip(&views).map(|((id, ids), views)| {
            let ready = self.compactor.texts.get(Span::of_messages(ids)).cloned();
            let written = ready.or_else(|| self.word_for_word(views));
            (leaf(id, ids, views), written)
        });
        let drafts: Vec<(Node, Option<Written>)> = drafts.collect();
        let missing = drafts.iter().zip(&views);
        let missing = missing.filter(|((_, written), _)| written.is_none());
        let mut digests: Vec<(Digest<'_>, u64)> = missing
            .map(|((node, _), views)| {
                (
                    self.compactor.session.digest(views),
                    node.source_tokens / LEAF_SHARE,
                )
            })
            .collect();
        let mut after = self.kept.clone();
        let demand = |(digest, most): &(Digest<'_>, u64), after: &TextsBeside| Demand {
            wanted: tokens_of(digest.whole_chars(after)),
            most: *most,
        };
        let far = digests.iter().take(digests.len().saturating_sub(NEAR));
        let mut demands: Vec<Demand> = far.map(|one| demand(one, &after)).collect();
        let mut room = each * digests.len() as u64;
        let mut jobs = Vec::with_capacity(digests.len());
        for ((_, written), views) in drafts.iter().zip(&views).rev() {
            if let Some(written) = written {
                after.add(&written.text);
                continue;
            }
            // The leaves after these are written now, and what they have these do not need.
            let near = digests.len().saturating_sub(NEAR);
            demands.truncate(near);
            demands.extend(digests.iter().skip(near).map(|one| demand(one, &after)));
            let share = shares(room, &demands).pop().unwrap_or(0);
            let Some((digest, _)) = digests.pop() else {
                break;
            };
            room -= share;
            let (focus, model) = (self.compactor.order.focus.as_deref(), self.model());
            let (model, services) = (model.as_ref(), &self.compactor.session.services);
            let job = Job::of_messages(&digest, views, share, focus, model, &mut after, services);
            jobs.push(job);
        }
        jobs.reverse();
        (drafts, jobs)
    }

    /// Returns the messages themselves as a text, if they are so short that no summary could be
    /// shorter.
    fn word_for_word(&self, views: &[MessageView<'_>]) -> Option<Written> {
        if sum(views) > VERBATIM_TOKENS {
            return None;
        }
        let rules = Rules::of_part(views).section(Budget::chars(usize::MAX));
        // The condensed node above it takes its rules from this section.
        let text = rules.before(&plain(views));
        let tokens = self.compactor.session.services.count_tokens(&text);
        // The text names the author of each message, so it may be somewhat longer than the
        // messages.
        let short = tokens <= 3 * VERBATIM_TOKENS && !text.trim().is_empty();
        short.then_some(Written {
            text,
            tokens,
            level: Level::Verbatim,
        })
    }

    fn texts(&mut self, jobs: Vec<Job>) -> Result<Vec<Written>, StoreError> {
        let services = &self.compactor.session.services;
        let (texts, trouble) = write_all(jobs, self.trust, services)?;
        self.trouble = self.trouble.take().or(trouble);
        Ok(texts)
    }

    /// Returns the model if it may be called now. After a failure it is not called for further
    /// texts, so that a user who waits does not wait for every timeout.
    fn model(&self) -> Option<ModelInfo> {
        let asked = self.compactor.model == ModelUse::Now && self.trouble.is_none();
        asked
            .then(|| self.compactor.session.services.model())
            .flatten()
    }

    /// Condenses nodes until all together are within the budget. Groups with a prepared text come
    /// first. If no run has two nodes left, the rest may exceed the budget.
    fn condense(&mut self) -> Result<(), StoreError> {
        // Each round replaces at least two nodes by one, so the loop comes to an end.
        while self.used() > self.summaries {
            let Some((at, group)) = self.prepared_group().or_else(|| self.next_group()) else {
                break;
            };
            let children: Vec<DraftNode> = self.runs[at].drain(group.clone()).collect();
            let parent = self.condensed(&children)?;
            self.runs[at].insert(group.start, parent);
            self.retired.extend(children);
        }
        Ok(())
    }

    /// Returns neighbours in a run for which a condensed text is ready.
    fn prepared_group(&self) -> Option<(usize, Range<usize>)> {
        self.runs.iter().enumerate().find_map(|(at, run)| {
            let ends =
                |start| (start + 2..=run.len().min(start + FANOUT)).map(move |end| start..end);
            let mut groups = (0..run.len()).flat_map(ends);
            let group = groups.find(|group| self.ready(&run[group.clone()]).is_some())?;
            Some((at, group))
        })
    }

    /// Returns the text of a parent of these nodes, if it is ready.
    fn ready(&self, children: &[DraftNode]) -> Option<&Written> {
        let span = Span::of_nodes(children.iter().map(|made| &made.node));
        self.compactor.texts.get(span)
    }

    /// Returns the group to condense next, in the longest run. Returns None if every run has one
    /// node only.
    fn next_group(&self) -> Option<(usize, Range<usize>)> {
        let (at, run) = (self.runs.iter().enumerate())
            .filter(|(_, run)| run.len() > 1)
            .max_by_key(|(_, run)| total(run))?;
        let depths: Vec<u32> = run.iter().map(|made| made.node.depth).collect();
        let mut group = next_group(&depths)?;
        // The fewest nodes are condensed that make enough room at half their size. With a model the
        // group stays as the background prepares it.
        let excess = self.used().saturating_sub(self.summaries);
        while !self.compactor.model_wanted()
            && group.len() > GOOD_GROUP
            && total(&run[group.start..group.end - 1]) / CONDENSED_SHARE >= excess
        {
            group.end -= 1;
        }
        Some((at, group))
    }

    /// Returns the tokens of all nodes together, with their headings.
    pub(super) fn used(&self) -> u64 {
        self.runs.iter().map(|run| total(run)).sum()
    }

    /// Lowers the budget by this many tokens below what the nodes take now, and condenses and
    /// shortens them to fit as far as possible.
    pub(super) fn tighten(&mut self, by: u64) -> Result<(), StoreError> {
        self.summaries = self.used().saturating_sub(by);
        self.condense()?;
        self.shrink()
    }

    /// Extracts nodes without a neighbour again if they exceed their share of the budget. The extract
    /// becomes the parent of the long node, so that the long text is not lost.
    fn shrink(&mut self) -> Result<(), StoreError> {
        let nodes = self.runs.iter().flatten().count() as u64;
        let each = (self.summaries / nodes.max(1))
            .saturating_sub(HEADING_TOKENS)
            .max(LEAST_TEXT);
        for at in 0..self.runs.len() {
            let too_long = |made: &DraftNode| made.node.tokens > each;
            if self.runs[at].len() == 1 && self.runs[at].iter().all(too_long) {
                // The long node becomes the child of the new one, so that its text can still be
                // expanded.
                let child = std::mem::take(&mut self.runs[at]);
                let job = self.job(&child, each, None)?;
                let written = job.draft.without_model(&self.compactor.session.services);
                let parent = self.parent(&child, written);
                self.runs[at].push(parent);
                self.retired.extend(child);
            }
        }
        Ok(())
    }

    /// Makes the parent of these nodes. Its text is the prepared one if there is one, or else is
    /// written now.
    fn condensed(&mut self, children: &[DraftNode]) -> Result<DraftNode, StoreError> {
        let written = match self.ready(children) {
            Some(written) => written.clone(),
            None => {
                let tokens = children.iter().map(|made| made.node.tokens).sum();
                let usual = self.compactor.budgets.parent(tokens);
                // An extract takes half of what the others leave, unless the model will replace it. The
                // next leaf takes the other half, and what stands before it is read from the
                // provider's cache.
                let room = self.summaries.saturating_sub(self.used() + HEADING_TOKENS);
                let budget = match self.compactor.model_wanted() {
                    true => usual,
                    false => usual.max(room / 2),
                };
                let model = self.model();
                let job = self.job(children, budget, model.as_ref())?;
                self.texts(vec![job])?.swap_remove(0)
            }
        };
        Ok(self.parent(children, written))
    }

    /// A job for the text of a parent of these nodes in about `budget` tokens. If no model is configured,
    /// it is extracted from the messages below the nodes, because an extract of extracts loses most of
    /// their facts. It is made from the texts of the nodes if a model wrote one of these, or if the
    /// messages are more than a window holds.
    fn job(
        &self,
        children: &[DraftNode],
        budget: u64,
        model: Option<&ModelInfo>,
    ) -> Result<Job, StoreError> {
        let Compactor { session, order, .. } = *self.compactor;
        let (services, focus) = (&session.services, order.focus.as_deref());
        let nodes = || children.iter().map(|made| &made.node);
        let by_model = nodes().any(|node| node.level == Level::Normal);
        let below: u64 = nodes().map(|node| node.source_tokens).sum();
        let is_final = !self.compactor.model_wanted();
        if is_final && !by_model && below <= self.compactor.budgets.usable {
            let stored = session.store.owned_messages(&self.keys_under(children)?)?;
            let mut after = self.after(children);
            return Ok(with_views(&stored, |views| {
                let digest = session.digest(views);
                Job::of_messages(&digest, views, budget, focus, None, &mut after, services)
            }));
        }
        let nodes: Vec<&Node> = nodes().collect();
        Ok(Job::of_nodes(&nodes, budget, focus, model, services))
    }

    /// Returns the keys of the messages under these nodes, some of which may not be stored yet.
    fn keys_under(&self, nodes: &[DraftNode]) -> Result<Vec<Key>, StoreError> {
        let session = self.compactor.session;
        let new: HashMap<NodeId, &NodeSources<Key>> = (nodes.iter().chain(&self.retired))
            .filter_map(|made| Some((made.node.id, made.sources.as_ref()?)))
            .collect();
        let mut waiting: Vec<NodeId> = nodes.iter().map(|made| made.node.id).collect();
        let mut keys = Vec::new();
        while let Some(id) = waiting.pop() {
            match new.get(&id) {
                Some(NodeSources::Messages(messages)) => keys.extend(messages),
                Some(NodeSources::Nodes(children)) => waiting.extend(children),
                None => keys.extend(nodes::messages_under(&session.store, session.id, id)?),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Returns what stands after these nodes: later nodes, and the messages that stay.
    fn after(&self, nodes: &[DraftNode]) -> TextsBeside {
        let last = nodes.iter().map(|made| made.node.last).max();
        let mut after = self.kept.clone();
        for made in self.runs.iter().flatten() {
            if Some(made.node.first) > last {
                after.add(&made.node.text);
            }
        }
        after
    }

    fn parent(&mut self, children: &[DraftNode], written: Written) -> DraftNode {
        let of = || children.iter().map(|made| &made.node);
        let node = Node {
            depth: of().map(|node| node.depth).max().unwrap_or(0) + 1,
            source_tokens: of().map(|node| node.source_tokens).sum(),
            from_ms: of().filter_map(|node| node.from_ms).min(),
            to_ms: of().filter_map(|node| node.to_ms).max(),
            ..Node::without_text(self.next, Span::of_nodes(of()))
        };
        self.next.0 += 1;
        let ids = of().map(|node| node.id).collect();
        made(node, written, NodeSources::Nodes(ids))
    }

    /// Returns all nodes that have to be stored, children before their parents.
    pub(super) fn new_nodes(&self) -> Vec<NewNode> {
        let all = self.runs.iter().flatten().chain(&self.retired);
        let new = all.filter_map(|made| {
            Some(NewNode {
                node: made.node.clone(),
                sources: made.sources.clone()?,
            })
        });
        let mut new: Vec<NewNode> = new.collect();
        // Numbers are given in the order of creation, so children have lower ones than their
        // parents.
        new.sort_by_key(|new| new.node.id);
        new
    }

    /// Adds `higher` to the numbers of the new nodes, which begin at `first`. It is needed if the
    /// store has assigned other numbers than expected.
    pub(super) fn renumber(&mut self, first: NodeId, higher: i64) {
        let nodes = self.runs.iter_mut().flatten().map(|made| &mut made.node);
        for node in nodes.filter(|node| node.id >= first) {
            node.id.0 += higher;
        }
    }
}

/// What a leaf would take of the budget, in tokens.
struct Demand {
    /// What it needs to have every fact.
    wanted: u64,
    /// The most that its text may have, because it has to be shorter than its messages.
    most: u64,
}

/// Divides the budget among leaves. Each gets what it wants, or all that want more get the same. What
/// is left then goes to all in equal parts.
fn shares(budget: u64, needs: &[Demand]) -> Vec<u64> {
    let wanted: Vec<u64> = (needs.iter())
        .map(|need| need.wanted.min(need.most))
        .collect();
    let mut shares = fill(budget, &wanted);
    let left = budget - shares.iter().sum::<u64>();
    let open: Vec<u64> = (needs.iter().zip(&shares))
        .map(|(need, share)| need.most - share)
        .collect();
    let more = fill(left, &open);
    shares
        .iter_mut()
        .zip(more)
        .for_each(|(share, more)| *share += more);
    shares
}

/// Divides an amount so that everybody gets the same, but nobody more than their limit.
fn fill(amount: u64, limits: &[u64]) -> Vec<u64> {
    let mut sorted = limits.to_vec();
    sorted.sort_unstable();
    let mut left = amount;
    let mut level = u64::MAX;
    for (at, limit) in sorted.iter().enumerate() {
        let equal = left / (sorted.len() - at) as u64;
        if *limit > equal {
            level = equal;
            break;
        }
        left -= limit;
    }
    limits.iter().map(|limit| level.min(*limit)).collect()
}

fn leaf(id: NodeId, ids: &[MessageId], views: &[MessageView<'_>]) -> Node {
    let times = || views.iter().filter_map(MessageView::time);
    Node {
        source_tokens: sum(views),
        from_ms: times().min(),
        to_ms: times().max(),
        ..Node::without_text(id, Span::of_messages(ids))
    }
}

fn total(run: &[DraftNode]) -> u64 {
    run.iter().map(|made| made.node.cost()).sum()
}

fn made(mut node: Node, written: Written, sources: NodeSources<Key>) -> DraftNode {
    set_text(&mut node, written);
    let sources = Some(sources);
    DraftNode { node, sources }
}

fn set_text(node: &mut Node, written: Written) {
    node.degraded = written.level == Level::Deterministic;
    (node.level, node.tokens, node.text) = (written.level, written.tokens, written.text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_leaf_with_many_facts_gets_what_others_do_not_need() {
        let need = |wanted| Demand { wanted, most: 400 };
        let needs = [need(50), need(1_000), need(100), need(300)];
        assert_eq!(shares(800, &needs), [50, 350, 100, 300]);
        // Nobody wants what is left, so it is for all.
        assert_eq!(shares(1_000, &needs[..3]), [275, 400, 325]);
        assert_eq!(shares(300, &needs), [50, 83, 83, 83]);
    }

    proptest! {
        #[test]
        fn shares_are_within_the_budget(budget in 0_u64..5_000, needs in prop::collection::vec((0_u64..900, 0_u64..900), 0..9)) {
            let needs: Vec<Demand> = needs.into_iter().map(|(wanted, most)| Demand { wanted, most }).collect();
            let shares = shares(budget, &needs);
            let (sum, most) = (shares.iter().sum::<u64>(), needs.iter().map(|need| need.most).sum::<u64>());
            prop_assert!(sum <= budget && sum + needs.len() as u64 >= budget.min(most));
            prop_assert!(shares.iter().zip(&needs).all(|(share, need)| *share <= need.most));
        }
    }
}
