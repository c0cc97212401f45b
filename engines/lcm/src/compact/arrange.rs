//! How the window is divided: what stays raw, what goes under nodes, and the resulting size.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{EngineError, Replacement};

use super::{Compactor, ModelUse, PREAMBLE_TOKENS, cost};
use crate::dag::NodeId;
use crate::dag::outline::{Outline, Protection, Split};
use crate::dag::plan::{PlanStep, RunPart, Spot, layout};
use crate::session_state::SessionState;
use crate::settings::{HEADING_TOKENS, LEAF_SHARE};
use crate::store::nodes::Placed;

/// The result of trying to divide a window.
pub(super) enum Arranged {
    Window(Arrangement),
    /// Nothing is prepared yet, and the window can wait; with the reason.
    Wait(String),
}

/// How the window is divided, for one choice of what stays raw.
pub(super) struct Arrangement {
    pub(super) steps: Vec<PlanStep>,
    pub(super) frontier: Vec<Placed>,
    pub(super) took_apart: bool,
    /// Whether the window still shows messages that a node of the frontier covers.
    shows_covered: bool,
    /// Large messages that stay in a shorter form, by their position.
    pub(super) replaced: Vec<(usize, Replacement)>,
    /// The resulting prompt, in tokens.
    pub(super) estimate: u64,
    /// The tokens of what stays, and `fixed`.
    pub(super) kept: u64,
}

impl Arrangement {
    pub(super) fn does_something(&self) -> bool {
        let has_span = |step: &PlanStep| match step {
            PlanStep::Run(run) => run
                .parts
                .iter()
                .any(|part| matches!(part, RunPart::Span(_))),
            PlanStep::Keep(_) => false,
        };
        self.took_apart
            || self.shows_covered
            || !self.replaced.is_empty()
            || self.steps.iter().any(has_span)
    }
}

impl Compactor<'_, '_> {
    /// The first arrangement that reaches the target, else the smallest one.
    pub(super) fn arrange(
        &self,
        outline: &Outline,
        spots: &[Spot],
    ) -> Result<Arranged, EngineError> {
        if self.model == ModelUse::Prepared {
            return self.arrange_prepared(outline, spots);
        }
        let rungs = [
            Protection {
                messages: self.settings.fresh_tail_messages,
                tokens: self.budgets.tail,
            },
            Protection {
                tokens: self.budgets.tail,
                ..Protection::LEAST
            },
            Protection::LEAST,
        ];
        let mut best: Option<Arrangement> = None;
        for (at, protection) in rungs.into_iter().enumerate() {
            let mut split = outline.split(protection);
            if at + 1 == rungs.len() {
                // The last answer is not part of the floor.
                split
                    .islands
                    .retain(|island| outline.last_user.is_some_and(|user| island.contains(&user)));
            }
            let mut arrangement = self.arrangement(outline, spots, &split)?;
            self.shorten_old(&mut arrangement, outline, self.goal);
            let fits = arrangement.estimate <= self.goal;
            if best
                .as_ref()
                .is_none_or(|best| arrangement.estimate < best.estimate)
            {
                best = Some(arrangement);
            }
            if fits && best.as_ref().is_some_and(Arrangement::does_something) {
                break;
            }
        }
        let mut best = match best {
            Some(best) => best,
            None => self.arrangement(outline, spots, &outline.split(Protection::LEAST))?,
        };
        if best.estimate >= self.budgets.hard {
            self.shorten_unseen(&mut best, outline);
        }
        Ok(Arranged::Window(best))
    }

    /// Only prepared texts are used.
    fn arrange_prepared(&self, outline: &Outline, spots: &[Spot]) -> Result<Arranged, EngineError> {
        let mut split = outline.split(Protection {
            messages: self.settings.fresh_tail_messages,
            tokens: self.budgets.tail,
        });
        let ready = |at: &usize| {
            split.keeps(*at) || spots[*at] != Spot::Raw || self.staging.holds(self.views[*at].id())
        };
        let first_unready = (0..split.tail).find(|at| !ready(at));
        if let Some(at) = first_unready {
            split.tail = outline.groups.cut_before(at);
            split.islands.retain(|island| island.end <= split.tail);
        }
        let arrangement = self.arrangement(outline, spots, &split)?;
        if !arrangement.does_something() {
            return Ok(Arranged::Wait(format!(
                "summaries are being prepared in the background; a compaction does not wait for them from {} \
                 tokens on",
                self.budgets.hard
            )));
        }
        Ok(Arranged::Window(arrangement))
    }

    fn arrangement(
        &self,
        outline: &Outline,
        spots: &[Spot],
        split: &Split,
    ) -> Result<Arrangement, EngineError> {
        // A node that covers a message that stays in the window, or messages on both sides of one, would
        // repeat content.
        let mut spots = spots.to_vec();
        let mut frontier = self.session.frontier().to_vec();
        let mut took_apart = false;
        loop {
            let unfit = parted(&spots, split);
            if unfit.is_empty() {
                break;
            }
            took_apart = true;
            let mut parts = Vec::with_capacity(frontier.len());
            for placed in frontier {
                if !unfit.contains(&placed.node.id) {
                    parts.push(placed);
                    continue;
                }
                let id = placed.node.id;
                let children = self
                    .session
                    .take_apart(vec![placed], &|placed| placed.node.id == id)?;
                self.respot(&mut spots, id, &children)?;
                parts.extend(children);
            }
            frontier = parts;
        }

        let first_of = SessionState::first_messages(&frontier);
        let strays = self.strays(&spots, &frontier)?;
        let steps = layout(self.views, &spots, outline, split, &strays, &first_of);
        let mut arrangement = Arrangement {
            steps,
            frontier,
            took_apart,
            shows_covered: spots.iter().any(|spot| matches!(spot, Spot::Covered(_))),
            replaced: Vec::new(),
            estimate: 0,
            kept: 0,
        };
        arrangement.replaced = self.large(&arrangement, outline);
        self.estimate(&mut arrangement);
        Ok(arrangement)
    }

    pub(super) fn estimate(&self, arrangement: &mut Arrangement) {
        let replaced: HashMap<usize, u64> = arrangement
            .replaced
            .iter()
            .map(|(at, short)| (*at, self.tokens_of(&self.views[*at], short)))
            .collect();
        let (mut kept, mut nodes, mut new) = (self.fixed, 0, 0);
        for step in &arrangement.steps {
            match step {
                PlanStep::Keep(places) => {
                    for at in places.clone() {
                        let tokens = replaced.get(&at).copied();
                        kept += tokens.unwrap_or_else(|| self.views[at].tokens());
                    }
                }
                PlanStep::Run(run) => {
                    nodes += PREAMBLE_TOKENS;
                    for part in &run.parts {
                        match part {
                            RunPart::Node(id) => {
                                let placed = arrangement.frontier.iter().find(|p| p.node.id == *id);
                                nodes += placed.map_or(0, cost);
                            }
                            RunPart::Span(units) => {
                                new += units.iter().map(|unit| unit.tokens).sum::<u64>()
                                    / LEAF_SHARE
                                    + HEADING_TOKENS;
                            }
                        }
                    }
                }
            }
        }
        arrangement.kept = kept;
        arrangement.estimate = kept + (nodes + new).min(self.budgets.summaries + PREAMBLE_TOKENS);
    }

    /// Whether the summaries alone justify a compaction: they are over their budget, or one was requested
    /// and there are better texts. A better text alone is not worth a new prefix.
    pub(super) fn can_condense(&self, arrangement: &Arrangement) -> bool {
        let total: u64 = arrangement.frontier.iter().map(cost).sum();
        let has_better = |placed: &Placed| self.staging.better(placed.node.id).is_some();
        (self.order.force && arrangement.frontier.iter().any(has_better))
            || (total > self.budgets.summaries && arrangement.frontier.len() > 1)
    }
}

/// The nodes that cover messages that stay, or messages on both sides of one that does.
fn parted(spots: &[Spot], split: &Split) -> HashSet<NodeId> {
    let mut parted = HashSet::new();
    let mut run_of: HashMap<NodeId, usize> = HashMap::new();
    let mut run = 0;
    for (at, spot) in spots.iter().enumerate() {
        let keeps = split.keeps(at);
        run += usize::from(keeps);
        if let Spot::Covered(node) = spot
            && (keeps || *run_of.entry(*node).or_insert(run) != run)
        {
            parted.insert(*node);
        }
    }
    parted
}
