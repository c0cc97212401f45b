//! Which texts the model should write before the next compaction.
//!
//! A compaction that has to call the model makes the user wait. [`Compactor::wanted`] therefore says
//! ahead of time which texts one will need. In order of urgency these are leaves over what leaves the
//! window next, a condensed node if the summaries are over their budget, and better texts for nodes
//! whose text was made without the model. [`Texts`](crate::texts::Texts) has them written.

use std::collections::HashSet;

use contexture_engine_api::with_views;

use super::{Compactor, sum};
use crate::dag::condense::next_group;
use crate::dag::outline::Outline;
use crate::dag::plan::{PlanStep, Run, leaves};
use crate::dag::{Node, NodeId, NodeSources, Span};
use crate::error::StoreError;
use crate::settings::{CONDENSED_SHARE, LEAF_SHARE, LEAST_TEXT};
use crate::store::nodes;
use crate::summarise::Job;
use crate::texts::Purpose;

impl Compactor<'_, '_> {
    /// Returns at most `most` texts that are wanted and not ready: leaves and a condensed node only
    /// if `due` says that the window is full enough, and better texts at any time.
    pub(crate) fn wanted(&self, due: bool, most: usize) -> Result<Vec<(Purpose, Job)>, StoreError> {
        let mut wanted = Vec::new();
        if due {
            wanted = self.wanted_leaves(most)?;
        }
        if due && wanted.len() < most {
            wanted.extend(self.wanted_parent());
        }
        self.add_better(&mut wanted, most)?;
        Ok(wanted)
    }

    /// Leaves over the oldest messages that will leave the window. They are planned as a compaction
    /// plans them, so that it will choose the same boundaries.
    fn wanted_leaves(&self, most: usize) -> Result<Vec<(Purpose, Job)>, StoreError> {
        let outline = Outline::of(self.views);
        let split = outline.split(self.settings.protection(&self.budgets));
        let arrangement = self.arrangement(&outline, &self.spots()?, &split)?;
        let runs = arrangement.steps.iter().filter_map(PlanStep::run);
        let cut = |units| leaves(units, self.budgets.leaf_span, |at| self.texts.leaf_from(at));
        let mut leaves: Vec<_> = runs.flat_map(Run::spans).flat_map(cut).collect();
        // The newest leaf still grows, and a text for only a part of it would not be used.
        leaves.pop();
        leaves.retain(|ids| self.texts.get(Span::of_messages(ids)).is_none());
        leaves.truncate(most);
        let (services, model) = (&self.session.services, self.session.services.model());
        let (_, jobs) = self.with_messages(&leaves, |leaves| {
            let job = |views: &Vec<_>| {
                let budget = self.budgets.node.min(sum(views) / LEAF_SHARE);
                let budget = budget.max(LEAST_TEXT);
                Job::of_messages(views, budget, None, model.as_ref(), services)
            };
            leaves.iter().map(job).collect::<Vec<_>>()
        })?;
        Ok(leaves.into_iter().map(Purpose::leaf).zip(jobs).collect())
    }

    /// A condensed node, if the frontier and the leaves that are ready are together over the budget
    /// for summaries. Only the group that a compaction would condense next is considered.
    fn wanted_parent(&self) -> Option<(Purpose, Job)> {
        let (frontier, budgets) = (self.session.frontier(), &self.budgets);
        let tokens: u64 = frontier.iter().map(Node::cost).sum();
        if tokens + self.texts.leaf_tokens() <= budgets.summaries {
            return None;
        }
        let depths: Vec<u32> = frontier.iter().map(|node| node.depth).collect();
        let children = &frontier[next_group(&depths)?];
        let span = Span::of_nodes(children.iter());
        if !self.lacks(span) {
            return None;
        }
        let texts: Vec<&str> = children.iter().map(|node| node.text.as_str()).collect();
        let tokens: u64 = children.iter().map(|node| node.tokens).sum();
        let budget = budgets.node.min(tokens / CONDENSED_SHARE).max(LEAST_TEXT);
        let services = &self.session.services;
        let model = services.model();
        let job = Job::condensed(&texts, tokens, budget, None, model.as_ref(), services);
        Some((Purpose::node(span, None), job))
    }

    fn lacks(&self, span: Span) -> bool {
        self.texts.lacks(span, self.session.services.now_ms())
    }

    /// Adds better texts for nodes whose text was extracted. They may become as long as new ones, or
    /// as long as they are.
    fn add_better(&self, wanted: &mut Vec<(Purpose, Job)>, most: usize) -> Result<(), StoreError> {
        let (session, budgets) = (self.session, &self.budgets);
        let (services, model) = (&session.services, session.services.model());
        let to_redo = nodes::to_redo(&session.store, session.id)?;
        let waits: HashSet<NodeId> = to_redo.iter().map(|(id, _)| *id).collect();
        for (id, _) in &to_redo {
            if wanted.len() >= most {
                break;
            }
            let Some(node) = nodes::node(&session.store, session.id, *id)? else {
                continue;
            };
            let span = node.span();
            if !self.lacks(span) {
                continue;
            }
            let budget = |as_new: u64| budgets.node.min(as_new).max(node.tokens).max(LEAST_TEXT);
            let job = match nodes::sources(&session.store, session.id, *id)? {
                NodeSources::Messages(_) => {
                    let keys = nodes::messages_under(&session.store, session.id, *id)?;
                    let budget = budget(node.source_tokens / LEAF_SHARE);
                    with_views(&session.store.owned_messages(&keys)?, |views| {
                        Job::of_messages(views, budget, None, model.as_ref(), services)
                    })
                }
                // The text is written from the texts of the children, so better ones of those come
                // first.
                NodeSources::Nodes(children) if children.iter().any(|id| waits.contains(id)) => {
                    continue;
                }
                NodeSources::Nodes(children) => {
                    let mut texts = Vec::new();
                    for child in children {
                        let child = nodes::node(&session.store, session.id, child)?;
                        texts.extend(child.map(|node| node.text));
                    }
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let tokens: u64 = texts.iter().map(|t| services.count_tokens(t)).sum();
                    let budget = budget(tokens / CONDENSED_SHARE);
                    Job::condensed(&texts, tokens, budget, None, model.as_ref(), services)
                }
            };
            wanted.push((Purpose::node(span, Some(*id)), job));
        }
        Ok(())
    }
}
