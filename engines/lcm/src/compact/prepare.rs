//! Which texts the model should write before the next compaction.
//!
//! A compaction that has to call the model makes the user wait. [`Compactor::wanted`] therefore says
//! ahead of time which texts one will need. In order of urgency these are leaves over what leaves the
//! window next, a condensed node if the summaries are over their budget, and better texts for nodes
//! whose text was made without the model. [`Texts`](crate::texts::Texts) has them written.

use std::collections::HashSet;

use contexture_digest::TextsBeside;
use contexture_engine_api::{MessageView, ModelInfo, with_views};

use super::{Compactor, sum};
use crate::dag::condense::next_group;
use crate::dag::outline::Outline;
use crate::dag::plan::{PlanStep, Run, leaves};
use crate::dag::{Node, NodeId, NodeSources, Span};
use crate::error::StoreError;
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
        let split = outline.split(self.protection());
        let arrangement = self.arrangement(&outline, &self.spots()?, &split)?;
        let runs = arrangement.steps.iter().filter_map(PlanStep::run);
        let cut = |units| leaves(units, self.budgets.leaf_span, |at| self.texts.leaf_from(at));
        let mut leaves: Vec<_> = runs.flat_map(Run::spans).flat_map(cut).collect();
        // The newest leaf still grows, and a text for only a part of it would not be used.
        leaves.pop();
        leaves.retain(|ids| self.texts.get(Span::of_messages(ids)).is_none());
        leaves.truncate(most);
        let model = self.session.services.model();
        let (_, jobs) = self.with_messages(&leaves, |leaves| {
            let job = |views: &Vec<_>| {
                self.leaf_job(views, self.budgets.leaf(sum(views)), model.as_ref())
            };
            leaves.iter().map(job).collect::<Vec<_>>()
        })?;
        Ok(leaves.into_iter().map(Purpose::leaf).zip(jobs).collect())
    }

    /// A condensed node, if the frontier and the leaves that are ready are together over the budget
    /// for summaries. Only the group that a compaction would condense next is considered, and better
    /// texts of its nodes come first.
    fn wanted_parent(&self) -> Option<(Purpose, Job)> {
        let (frontier, budgets) = (self.session.frontier(), &self.budgets);
        let tokens: u64 = frontier.iter().map(Node::cost).sum();
        if tokens + self.texts.leaf_tokens() <= budgets.summaries {
            return None;
        }
        let depths: Vec<u32> = frontier.iter().map(|node| node.depth).collect();
        let children = &frontier[next_group(&depths)?];
        let span = Span::of_nodes(children.iter());
        if children.iter().any(|node| node.degraded) || !self.lacks(span) {
            return None;
        }
        let children: Vec<&Node> = children.iter().collect();
        let budget = budgets.parent(children.iter().map(|node| node.tokens).sum());
        let services = &self.session.services;
        let job = Job::of_nodes(&children, budget, None, services.model().as_ref(), services);
        Some((Purpose::node(span, None), job))
    }

    fn leaf_job(&self, views: &[MessageView<'_>], budget: u64, model: Option<&ModelInfo>) -> Job {
        let (digest, after) = (self.session.digest(views), &mut TextsBeside::default());
        Job::of_messages(
            &digest,
            views,
            budget,
            None,
            model,
            after,
            &self.session.services,
        )
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
            let job = match nodes::sources(&session.store, session.id, *id)? {
                NodeSources::Messages(_) => {
                    let keys = nodes::messages_under(&session.store, session.id, *id)?;
                    let budget = budgets.leaf(node.source_tokens).max(node.tokens);
                    with_views(&session.store.owned_messages(&keys)?, |views| {
                        self.leaf_job(views, budget, model.as_ref())
                    })
                }
                // The text is written from the texts of the children, so better ones of those come
                // first.
                NodeSources::Nodes(children) if children.iter().any(|id| waits.contains(id)) => {
                    continue;
                }
                NodeSources::Nodes(children) => {
                    let mut below = Vec::with_capacity(children.len());
                    for child in children {
                        below.extend(nodes::node(&session.store, session.id, child)?);
                    }
                    let tokens = below.iter().map(|node| node.tokens).sum();
                    let budget = budgets.parent(tokens).max(node.tokens);
                    let below: Vec<&Node> = below.iter().collect();
                    Job::of_nodes(&below, budget, None, model.as_ref(), services)
                }
            };
            wanted.push((Purpose::node(span, Some(*id)), job));
        }
        Ok(())
    }
}
