//! The model calls that the engine would like made between turns: leaves that the next compaction will
//! need, condensed nodes where summaries are over their budget, and better texts for nodes that were
//! made without the model.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{
    BackgroundCall, EngineError, MessageId, MessageView, ModelAnswer, ModelFailure,
};

use crate::dag::condense::next_group;
use crate::dag::outline::{Outline, Protection};
use crate::dag::plan::{Part, Segment, Spot, layout, leaves};
use crate::dag::{Level, NodeId, Under};
use crate::nodes;
use crate::session::Session;
use crate::settings::{Budgets, CONDENSED_SHARE, LEAF_SHARE, LEAST_TEXT, Settings};
use crate::staging::Staging;
use crate::store::Key;
use crate::summarise::{Job, Next};

/// The most calls that are out at once.
const MAX_CALLS: usize = 8;
/// The share of a leaf's span from which the newest leaf is worth preparing.
const NEWEST_SHARE: f64 = 0.75;

/// What a call is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Purpose {
    Leaf(Vec<MessageId>),
    Condensed(Vec<NodeId>),
    Better(NodeId),
}

#[derive(Debug)]
struct Pending {
    purpose: Purpose,
    covers: Vec<MessageId>,
    job: Job,
    /// Whether the call is out; else it is to be made again, for less.
    is_out: bool,
}

/// The calls that are out, and those to be made again.
#[derive(Debug, Default)]
pub(crate) struct Background {
    pending: HashMap<u64, Pending>,
    last_id: u64,
    /// Nodes whose better text the model could not give: they are left alone until the process ends.
    hopeless: HashSet<NodeId>,
}

impl Background {
    /// How many calls are out.
    pub(crate) fn out(&self) -> usize {
        self.pending
            .values()
            .filter(|pending| pending.is_out)
            .count()
    }

    pub(crate) fn forget(&mut self) {
        self.pending.clear();
    }

    /// The calls to make now. `due` says whether the window is full enough for leaves.
    pub(crate) fn calls(
        &mut self,
        session: &Session,
        settings: &Settings,
        budgets: &Budgets,
        staging: &Staging,
        due: bool,
    ) -> Result<Vec<BackgroundCall>, EngineError> {
        if self.pending.is_empty() {
            if due {
                self.plan_leaves(session, settings, budgets, staging)?;
                self.plan_condensed(session, budgets, staging);
            }
            self.plan_better(session, budgets, staging)?;
        }
        let mut calls = Vec::new();
        for (id, pending) in &mut self.pending {
            if !pending.is_out && calls.len() < MAX_CALLS {
                pending.is_out = true;
                calls.push(BackgroundCall {
                    id: *id,
                    covers: pending.covers.clone(),
                    request: pending.job.request(),
                });
            }
        }
        calls.sort_by_key(|call| call.id);
        Ok(calls)
    }

    fn add(&mut self, purpose: Purpose, covers: Vec<MessageId>, job: Job) {
        self.last_id += 1;
        let pending = Pending {
            purpose,
            covers,
            job,
            is_out: false,
        };
        self.pending.insert(self.last_id, pending);
    }

    fn room(&self) -> usize {
        MAX_CALLS.saturating_sub(self.pending.len())
    }

    fn plan_leaves(
        &mut self,
        session: &Session,
        settings: &Settings,
        budgets: &Budgets,
        staging: &Staging,
    ) -> Result<(), EngineError> {
        let keys: Vec<Key> = session.loose()?.values().map(|loose| loose.key).collect();
        let material = session.material(&keys)?;
        let calls = material.call_views();
        let views = material.views(&calls);
        let outline = Outline::of(&views);
        let split = outline.split(Protection {
            messages: settings.fresh_tail_messages,
            tokens: budgets.tail,
        });
        let spots = vec![Spot::Raw; views.len()];
        let segments = layout(&views, &spots, &outline, &split, &[], &HashMap::new());
        let mut spans: Vec<Vec<MessageId>> = Vec::new();
        for segment in &segments {
            let Segment::Run(run) = segment else { continue };
            for part in &run.parts {
                if let Part::Span(units) = part {
                    spans.extend(leaves(units, budgets.leaf_span, |first| staging.ids(first)));
                }
            }
        }
        let by_id: HashMap<MessageId, MessageView<'_>> =
            views.iter().map(|view| (view.id(), *view)).collect();
        let newest = spans.len().saturating_sub(1);
        for (at, ids) in spans.into_iter().enumerate() {
            if self.room() == 0 {
                break;
            }
            if staging.leaf(&ids).is_some() {
                continue;
            }
            let views: Vec<MessageView<'_>> =
                ids.iter().filter_map(|id| by_id.get(id).copied()).collect();
            let tokens: u64 = views.iter().map(MessageView::tokens).sum();
            // The newest leaf still grows.
            if at == newest && tokens < (budgets.leaf_span as f64 * NEWEST_SHARE) as u64 {
                continue;
            }
            let budget = budgets.node.min(tokens / LEAF_SHARE).max(LEAST_TEXT);
            let job = Job::leaf(&views, budget, None, &session.services);
            self.add(Purpose::Leaf(ids.clone()), ids, job);
        }
        Ok(())
    }

    fn plan_condensed(&mut self, session: &Session, budgets: &Budgets, staging: &Staging) {
        let frontier = session.frontier();
        let tokens: u64 = frontier.iter().map(|placed| placed.node.tokens).sum();
        if tokens + staging.tokens() <= budgets.summaries || self.room() == 0 {
            return;
        }
        let depths: Vec<u32> = frontier.iter().map(|placed| placed.node.depth).collect();
        let Some(group) = next_group(&depths) else {
            return;
        };
        let nodes = &frontier[group];
        let ids: Vec<NodeId> = nodes.iter().map(|placed| placed.node.id).collect();
        if staging.condensed(&ids).is_some() {
            return;
        }
        let texts: Vec<&str> = nodes
            .iter()
            .map(|placed| placed.node.text.as_str())
            .collect();
        let tokens: u64 = nodes.iter().map(|placed| placed.node.tokens).sum();
        let budget = budgets.node.min(tokens / CONDENSED_SHARE).max(LEAST_TEXT);
        let job = Job::condensed(&texts, tokens, budget, None, &session.services);
        let covers = nodes.iter().map(|placed| placed.node.last).collect();
        self.add(Purpose::Condensed(ids), covers, job);
    }

    fn plan_better(
        &mut self,
        session: &Session,
        budgets: &Budgets,
        staging: &Staging,
    ) -> Result<(), EngineError> {
        for placed in session.frontier() {
            let node = &placed.node;
            let done = node.level != Level::Deterministic
                || staging.better(node.id).is_some()
                || self.hopeless.contains(&node.id);
            if done || self.room() == 0 {
                continue;
            }
            // No longer than what it replaces may be, so that the window does not grow by it.
            let budget = node
                .tokens
                .max(budgets.node.min(node.source_tokens / LEAF_SHARE));
            let job = match nodes::under(&session.store, session.id, node.id)? {
                Under::Messages(_) => {
                    let count = node.messages as usize;
                    let keys =
                        nodes::messages_under(&session.store, session.id, node.id, None, count)?;
                    let material = session.material(&keys)?;
                    let calls = material.call_views();
                    Job::leaf(&material.views(&calls), budget, None, &session.services)
                }
                Under::Nodes(children) => {
                    let mut texts = Vec::new();
                    for child in children {
                        let child = nodes::node(&session.store, session.id, child)?;
                        texts.extend(child.map(|placed| placed.node.text));
                    }
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let tokens: u64 = texts.iter().map(|t| session.services.count_tokens(t)).sum();
                    Job::condensed(&texts, tokens, budget, None, &session.services)
                }
            };
            self.add(Purpose::Better(node.id), vec![node.last], job);
        }
        Ok(())
    }

    /// Takes an answer; it is only staged. A failure that another attempt will not mend is given back.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        answer: Result<ModelAnswer, ModelFailure>,
        session: &Session,
        staging: &mut Staging,
    ) -> Option<ModelFailure> {
        // An answer that nobody waits for any more: the conversation was cut back.
        let mut pending = self.pending.remove(&id)?;
        match pending.job.answered(answer, &session.services) {
            Next::Done(written) => {
                match pending.purpose {
                    Purpose::Leaf(ids) => staging.add_leaf(ids, written),
                    Purpose::Condensed(children) => staging.add_condensed(children, written),
                    Purpose::Better(node) => staging.add_better(node, written),
                }
                None
            }
            Next::Again => {
                pending.is_out = false;
                self.pending.insert(id, pending);
                None
            }
            Next::GiveUp(failure) => {
                if let Purpose::Better(node) = pending.purpose {
                    self.hopeless.insert(node);
                }
                Some(failure)
            }
        }
    }
}
