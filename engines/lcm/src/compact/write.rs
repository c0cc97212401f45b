//! Writing the nodes of a compaction: leaves over messages, condensed nodes over nodes.

use std::ops::Range;

use contexture_engine_api::{EngineError, MessageId, MessageView, ModelFailure, ModelInfo};

use super::arrange::Arrangement;
use super::{Compactor, ModelUse, PREAMBLE_TOKENS, cost, sum};
use crate::dag::condense::next_group;
use crate::dag::plan::{PlanStep, Run, RunPart, leaves};
use crate::dag::{Level, Node, NodeId};
use crate::settings::{CONDENSED_SHARE, HEADING_TOKENS, LEAF_SHARE, LEAST_TEXT};
use crate::store::Key;
use crate::store::nodes::{NewNode, Over, Placed};
use crate::summarise::{Job, Written, write_all};
use crate::transcript::plain;

/// Messages of at most this many tokens are kept word for word in a leaf.
const VERBATIM_TOKENS: u64 = 64;
/// The most tokens of a leaf's text.
const MAX_LEAF_TOKENS: u64 = 2_000;
/// Nodes without a neighbour are extracted again if they exceed their room by this factor.
const MUCH_TOO_LONG: u64 = 2;

/// A node of the new frontier, under construction.
pub(super) struct Made {
    pub(super) placed: Placed,
    /// How to write it, if it is new.
    new: Option<NewNode>,
}

/// One element of a run, before its leaves are written.
enum Planned {
    There(Placed),
    /// The leaf over these messages.
    New(Vec<MessageId>),
}

/// The nodes of one compaction, while they are written.
pub(super) struct Writer<'c, 'a, 'm> {
    compactor: &'c Compactor<'a, 'm>,
    /// The budget of all nodes in the window, in tokens.
    summaries: u64,
    /// The id of the next new node.
    next: NodeId,
    /// The nodes of each run of the arrangement, in order.
    pub(super) runs: Vec<Vec<Made>>,
    /// New nodes that are children of other new ones.
    retired: Vec<NewNode>,
    /// Nodes that get their better text.
    pub(super) better: Vec<(NodeId, Written)>,
    /// The messages under the new leaves.
    pub(super) covered: Vec<MessageId>,
    /// Why the model failed for some of them.
    pub(super) failure: Option<ModelFailure>,
}

impl<'c, 'a, 'm> Writer<'c, 'a, 'm> {
    pub(super) fn new(compactor: &'c Compactor<'a, 'm>, next: NodeId) -> Self {
        Self {
            compactor,
            summaries: compactor.budgets.summaries,
            next,
            runs: Vec::new(),
            retired: Vec::new(),
            better: Vec::new(),
            covered: Vec::new(),
            failure: None,
        }
    }

    /// Writes the nodes of each run: existing nodes stay, and the rest gets leaves. If all together exceed
    /// the budget, the oldest are condensed.
    pub(super) fn write(&mut self, arrangement: &Arrangement) -> Result<(), EngineError> {
        let runs = arrangement.steps.iter().filter_map(|step| match step {
            PlanStep::Run(run) => Some(run),
            PlanStep::Keep(_) => None,
        });
        let plans: Vec<Vec<Planned>> = runs.map(|run| self.plan(arrangement, run)).collect();
        let all = || plans.iter().flatten();
        let standing: u64 = all()
            .filter_map(|planned| match planned {
                Planned::There(placed) => Some(cost(placed)),
                Planned::New(_) => None,
            })
            .sum();
        let spans: Vec<&[MessageId]> = all()
            .filter_map(|planned| match planned {
                Planned::New(ids) => Some(ids.as_slice()),
                Planned::There(_) => None,
            })
            .collect();
        let mut leaves = self.leaves(&spans, standing)?.into_iter();
        self.covered = spans.concat();
        for plan in plans {
            let run = plan.into_iter().filter_map(|planned| match planned {
                Planned::There(placed) => Some(Made { placed, new: None }),
                Planned::New(_) => leaves.next(),
            });
            self.runs.push(run.collect());
        }
        self.condense()
    }

    fn plan(&mut self, arrangement: &Arrangement, run: &Run) -> Vec<Planned> {
        let staging = self.compactor.staging;
        let mut plan = Vec::new();
        for part in &run.parts {
            match part {
                RunPart::Node(id) => {
                    let there = arrangement.frontier.iter().find(|p| p.node.id == *id);
                    let Some(mut placed) = there.cloned() else {
                        continue;
                    };
                    if let Some(written) = staging.better(*id) {
                        rewrite(&mut placed, written);
                        self.better.push((*id, written.clone()));
                    }
                    plan.push(Planned::There(placed));
                }
                RunPart::Span(units) => {
                    let span = self.compactor.budgets.leaf_span;
                    let leaves = leaves(units, span, |first| staging.ids(first));
                    plan.extend(leaves.into_iter().map(Planned::New));
                }
            }
        }
        plan
    }

    /// A leaf over each span; `standing` is the size of the other nodes.
    fn leaves(&mut self, spans: &[&[MessageId]], standing: u64) -> Result<Vec<Made>, EngineError> {
        let budgets = &self.compactor.budgets;
        let services = &self.compactor.session.services;
        let room = self.summaries.saturating_sub(standing + PREAMBLE_TOKENS);
        let each = (room / (spans.len() as u64).max(1)).saturating_sub(HEADING_TOKENS);
        let each = each.clamp(budgets.node, MAX_LEAF_TOKENS);
        let mut jobs: Vec<Job> = Vec::new();
        let mut drafts: Vec<(Node, Vec<Key>, Option<Written>)> = Vec::with_capacity(spans.len());
        for ids in spans {
            let keys = self.keys(ids)?;
            let material = self.compactor.session.stored_views(&keys)?;
            let calls = material.call_views();
            let views = material.views(&calls);
            let node = self.leaf(ids, &views);
            let prepared = self.compactor.staging.leaf(ids).cloned();
            let written = prepared.or_else(|| self.word_for_word(&views));
            if written.is_none() {
                let budget = each.min(node.source_tokens / LEAF_SHARE).max(LEAST_TEXT);
                jobs.push(Job::leaf(
                    &views,
                    budget,
                    self.compactor.focus,
                    self.model().as_ref(),
                    services,
                ));
            }
            drafts.push((node, keys, written));
        }
        let mut texts = self.texts(jobs)?.into_iter();
        let made = drafts.into_iter().filter_map(|(node, keys, written)| {
            let written = written.or_else(|| texts.next())?;
            Some(made(node, written, Over::Messages(keys)))
        });
        Ok(made.collect())
    }

    fn leaf(&mut self, ids: &[MessageId], views: &[MessageView<'_>]) -> Node {
        let times = || views.iter().filter_map(MessageView::time);
        Node {
            id: self.next_id(),
            depth: 0,
            level: Level::Verbatim,
            text: String::new(),
            tokens: 0,
            messages: ids.len() as u64,
            source_tokens: sum(views),
            first: ids.iter().min().copied().unwrap_or(MessageId(0)),
            last: ids.iter().max().copied().unwrap_or(MessageId(0)),
            from_ms: times().min(),
            to_ms: times().max(),
        }
    }

    /// The messages themselves, if no summary could be shorter.
    fn word_for_word(&self, views: &[MessageView<'_>]) -> Option<Written> {
        if sum(views) > VERBATIM_TOKENS {
            return None;
        }
        let text = plain(views);
        let tokens = self.compactor.session.services.count_tokens(&text);
        let short = tokens <= 2 * VERBATIM_TOKENS && !text.trim().is_empty();
        short.then_some(Written {
            text,
            tokens,
            level: Level::Verbatim,
            model: None,
        })
    }

    fn texts(&mut self, jobs: Vec<Job>) -> Result<Vec<Written>, EngineError> {
        let services = &self.compactor.session.services;
        let (texts, failure) = write_all(jobs, services)?;
        self.failure = self.failure.take().or(failure);
        Ok(texts)
    }

    /// The model, if it is called now. After a failure it is not called again for the next round.
    fn model(&self) -> Option<ModelInfo> {
        let asked = self.compactor.model == ModelUse::Now && self.failure.is_none();
        asked
            .then(|| self.compactor.session.services.model())
            .flatten()
    }

    fn keys(&self, ids: &[MessageId]) -> Result<Vec<Key>, EngineError> {
        let session = self.compactor.session;
        let loose = session.loose()?;
        let mut keys = Vec::with_capacity(ids.len());
        for id in ids {
            keys.extend(match loose.get(id) {
                Some(loose) => Some(loose.key),
                None => session.store.key(session.id, *id)?,
            });
        }
        Ok(keys)
    }

    /// Condenses the oldest nodes until all together are within the budget.
    fn condense(&mut self) -> Result<(), EngineError> {
        while self.runs.iter().map(|run| total(run)).sum::<u64>() > self.summaries {
            let Some((at, group)) = self.prepared_group().or_else(|| self.next_group()) else {
                return self.shrink(MUCH_TOO_LONG);
            };
            let children: Vec<Made> = self.runs[at].drain(group.clone()).collect();
            let parent = self.condensed(&children)?;
            self.runs[at].insert(group.start, parent);
            self.retire(children);
        }
        Ok(())
    }

    /// Neighbours for which a condensed node is prepared.
    fn prepared_group(&self) -> Option<(usize, Range<usize>)> {
        let mut groups = self.compactor.staging.condensed_groups();
        groups.find_map(|ids| {
            self.runs.iter().enumerate().find_map(|(at, run)| {
                let same = |made: &[Made]| {
                    made.iter()
                        .map(|made| made.placed.node.id)
                        .eq(ids.iter().copied())
                };
                let start = run.windows(ids.len()).position(same)?;
                Some((at, start..start + ids.len()))
            })
        })
    }

    /// The group to condense next, in the longest run; none where every run is one node.
    fn next_group(&self) -> Option<(usize, Range<usize>)> {
        let (at, run) = (self.runs.iter().enumerate())
            .filter(|(_, run)| run.len() > 1)
            .max_by_key(|(_, run)| total(run))?;
        let depths: Vec<u32> = run.iter().map(|made| made.placed.node.depth).collect();
        Some((at, next_group(&depths)?))
    }

    /// Shortens the nodes by this many tokens in all, as far as possible.
    pub(super) fn tighten(&mut self, by: u64) -> Result<(), EngineError> {
        let used: u64 = self.runs.iter().map(|run| total(run)).sum();
        self.summaries = used.saturating_sub(by);
        self.condense()?;
        self.shrink(1)
    }

    /// Extracts nodes without a neighbour again, to fit their room, if they exceed `slack` times their
    /// share of the budget.
    fn shrink(&mut self, slack: u64) -> Result<(), EngineError> {
        let nodes = self.runs.iter().flatten().count() as u64;
        let each = (self.summaries / nodes.max(1))
            .saturating_sub(HEADING_TOKENS)
            .max(LEAST_TEXT);
        for at in 0..self.runs.len() {
            let too_long = |made: &Made| made.placed.node.tokens > each * slack;
            if self.runs[at].len() == 1 && self.runs[at].iter().all(too_long) {
                let child = std::mem::take(&mut self.runs[at]);
                let job = self.job(&child, each);
                let written = job.draft.without_model(&self.compactor.session.services);
                let parent = self.parent(&child, written);
                self.runs[at].push(parent);
                self.retire(child);
            }
        }
        Ok(())
    }

    /// The parent of these nodes.
    fn condensed(&mut self, children: &[Made]) -> Result<Made, EngineError> {
        let ids: Vec<NodeId> = children.iter().map(|made| made.placed.node.id).collect();
        let written = match self.compactor.staging.condensed(&ids) {
            Some(written) => written.clone(),
            None => {
                let job = self.job(children, self.compactor.budgets.node);
                self.texts(vec![job])?.swap_remove(0)
            }
        };
        Ok(self.parent(children, written))
    }

    fn job(&self, children: &[Made], most: u64) -> Job {
        let texts: Vec<&str> = children
            .iter()
            .map(|made| made.placed.node.text.as_str())
            .collect();
        let tokens: u64 = children.iter().map(|made| made.placed.node.tokens).sum();
        let budget = most.min(tokens / CONDENSED_SHARE).max(LEAST_TEXT);
        let services = &self.compactor.session.services;
        let model = self.model();
        Job::condensed(
            &texts,
            tokens,
            budget,
            self.compactor.focus,
            model.as_ref(),
            services,
        )
    }

    fn parent(&mut self, children: &[Made], written: Written) -> Made {
        let of = || children.iter().map(|made| &made.placed.node);
        let node = Node {
            id: self.next_id(),
            depth: of().map(|node| node.depth).max().unwrap_or(0) + 1,
            level: Level::Deterministic,
            text: String::new(),
            tokens: 0,
            messages: of().map(|node| node.messages).sum(),
            source_tokens: of().map(|node| node.source_tokens).sum(),
            first: of().map(|node| node.first).min().unwrap_or(MessageId(0)),
            last: of().map(|node| node.last).max().unwrap_or(MessageId(0)),
            from_ms: of().filter_map(|node| node.from_ms).min(),
            to_ms: of().filter_map(|node| node.to_ms).max(),
        };
        let ids = of().map(|node| node.id).collect();
        made(node, written, Over::Nodes(ids))
    }

    fn next_id(&mut self) -> NodeId {
        let id = self.next;
        self.next.0 += 1;
        id
    }

    /// Remembers new nodes that are children of a condensed one: they are written, too.
    fn retire(&mut self, children: Vec<Made>) {
        self.retired
            .extend(children.into_iter().filter_map(|made| made.new));
    }

    /// All nodes to write, children before parents.
    pub(super) fn new_nodes(&self) -> Vec<NewNode> {
        let standing = self.runs.iter().flatten();
        let mut new: Vec<NewNode> = standing.filter_map(|made| made.new.clone()).collect();
        new.extend(self.retired.iter().cloned());
        new.sort_by_key(|new| new.node.id);
        new
    }

    /// Adjusts the numbers of the new nodes to those that the store assigned.
    pub(super) fn renumber(&mut self, first: NodeId, higher: i64) {
        let placed = self.runs.iter_mut().flatten().map(|made| &mut made.placed);
        for placed in placed.filter(|placed| placed.node.id >= first) {
            placed.node.id.0 += higher;
        }
    }
}

fn total(run: &[Made]) -> u64 {
    run.iter().map(|made| cost(&made.placed)).sum()
}

fn made(mut node: Node, written: Written, over: Over) -> Made {
    (node.level, node.tokens, node.text) = (written.level, written.tokens, written.text);
    Made {
        placed: Placed::new(node.clone()),
        new: Some(NewNode {
            node,
            over,
            model: written.model,
        }),
    }
}

fn rewrite(placed: &mut Placed, written: &Written) {
    placed.node.text.clone_from(&written.text);
    placed.node.tokens = written.tokens;
    placed.node.level = written.level;
    placed.degraded = false;
}
