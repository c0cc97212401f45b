//! How the window is divided: what stays raw, what goes under nodes, and the resulting size.
//!
//! [`Compactor::arrange`] is the entry point. It tries weaker and weaker protections of the newest
//! messages until the estimated prompt reaches the goal. If not even the weakest is enough, large
//! messages are shown as previews. If only prepared texts may be used, it instead leaves in the
//! window whatever has none.
//!
//! The size is an estimate, because the summaries are not written yet. The proposal counts them
//! later and may still be given up.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::Replacement;

use super::{Compactor, ModelUse, PREAMBLE_TOKENS};
use crate::dag::outline::{Outline, Protection, Split};
use crate::dag::plan::{PlanStep, RunPart, Spot, layout};
use crate::dag::{Node, NodeId};
use crate::error::StoreError;
use crate::settings::{HEADING_TOKENS, LEAF_SHARE};

/// How the window is divided, for one choice of what stays raw. The frontier in it may differ from
/// the session's, because nodes across the border of what stays are replaced by their children.
pub(super) struct Arrangement {
    pub(super) steps: Vec<PlanStep>,
    pub(super) frontier: Vec<Node>,
    pub(super) took_apart: bool,
    /// Whether the window shows messages that a node of the frontier covers. Such messages leave
    /// the window, so the compaction does something even without new summaries.
    shows_covered: bool,
    /// Large messages that stay in a shorter form, as pairs of a position and the replacement. They
    /// are in the order of the window.
    pub(super) replaced: Vec<(usize, Replacement)>,
    /// The estimated size of the resulting prompt, in tokens.
    pub(super) estimate: u64,
    /// The tokens of what stays raw, including the system prompt and the tools.
    pub(super) kept: u64,
}

impl Arrangement {
    pub(super) fn does_something(&self) -> bool {
        let mut runs = self.steps.iter().filter_map(PlanStep::run);
        self.took_apart
            || self.shows_covered
            || !self.replaced.is_empty()
            || runs.any(|run| run.spans().next().is_some())
    }

    /// Returns the positions that stay, in order.
    pub(super) fn kept_places(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().flat_map(PlanStep::kept)
    }
}

impl Compactor<'_, '_> {
    /// Returns what stays raw if that leaves enough room.
    pub(super) fn protection(&self) -> Protection {
        Protection {
            messages: self.settings.fresh_tail_messages,
            tokens: self.budgets.tail,
            last_answer: true,
        }
    }

    /// Returns the first arrangement that reaches the goal, or the smallest one if none does. An
    /// arrangement that changes nothing is passed over as long as a weaker protection can be tried.
    pub(super) fn arrange(
        &self,
        outline: &Outline,
        spots: &[Spot],
    ) -> Result<Arrangement, StoreError> {
        if self.model == ModelUse::Prepared {
            return self.arrange_prepared(outline, spots);
        }
        // The protections are tried from the strongest to the weakest, so that as many of the
        // newest messages as possible stay.
        let strongest = self.protection();
        let fewer = Protection {
            messages: Protection::LEAST.messages,
            ..strongest
        };
        let try_with = |protection| {
            let mut tried = self.arrangement(outline, spots, &outline.split(protection))?;
            self.shorten_old(&mut tried, outline, self.goal);
            Ok::<_, StoreError>(tried)
        };
        let mut best = try_with(strongest)?;
        for weaker in [fewer, Protection::LEAST] {
            if best.estimate <= self.goal && best.does_something() {
                break;
            }
            let tried = try_with(weaker)?;
            if tried.estimate < best.estimate {
                best = tried;
            }
        }
        if best.estimate >= self.budgets.hard {
            self.shorten_unseen(&mut best, outline);
        }
        Ok(best)
    }

    /// Arranges the window if only prepared texts may be used. The tail begins at the first message
    /// for which nothing is prepared.
    fn arrange_prepared(
        &self,
        outline: &Outline,
        spots: &[Spot],
    ) -> Result<Arrangement, StoreError> {
        let mut split = outline.split(self.protection());
        let ready = |at: &usize| {
            split.keeps(*at) || spots[*at] != Spot::Raw || self.texts.covers(self.views[*at].id())
        };
        let first_unready = (0..split.tail).find(|at| !ready(at));
        if let Some(at) = first_unready {
            split.tail = outline.groups.cut_before(at);
            split.islands.retain(|island| island.end <= split.tail);
        }
        self.arrangement(outline, spots, &split)
    }

    pub(super) fn arrangement(
        &self,
        outline: &Outline,
        spots: &[Spot],
        split: &Split,
    ) -> Result<Arrangement, StoreError> {
        // A node that covers a message which stays in the window would repeat its content. So would
        // a node that covers messages on both sides of one that stays. Such nodes are replaced by
        // their children until none is left.
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
            for node in frontier {
                if !unfit.contains(&node.id) {
                    parts.push(node);
                    continue;
                }
                let id = node.id;
                let children = self.session.take_apart(vec![node], &|node| node.id == id)?;
                self.respot(&mut spots, id, &children)?;
                parts.extend(children);
            }
            frontier = parts;
        }

        let first = |node: &Node| (node.id, node.first);
        let first_of: HashMap<_, _> = frontier.iter().map(first).collect();
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

    /// Estimates the size of the prompt with this arrangement, and the part of it that stays raw.
    /// New summaries are assumed to be as long as a leaf over their messages may be. If all
    /// summaries together exceed their budget, the budget counts, since they will be condensed to
    /// it.
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
                                let node = arrangement.frontier.iter().find(|node| node.id == *id);
                                nodes += node.map_or(0, Node::cost);
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

    /// Returns the texts and the arguments of the messages that stay, as the window shows them.
    pub(super) fn kept_text(&self, arrangement: &Arrangement) -> String {
        let shorter: HashMap<usize, &Replacement> = (arrangement.replaced.iter())
            .map(|(at, short)| (*at, short))
            .collect();
        let mut text = String::new();
        for at in arrangement.kept_places() {
            let view = &self.views[at];
            let short = shorter.get(&at);
            let said = short.and_then(|short| short.text.as_deref());
            text.push_str(said.unwrap_or(view.text()));
            text.push('\n');
            for (index, call) in view.tool_calls().iter().enumerate() {
                let mut arguments = short.iter().flat_map(|short| &short.arguments);
                let arguments = arguments.find(|arguments| arguments.index == index);
                text.push_str(arguments.map_or(call.arguments(), |short| &short.arguments));
                text.push('\n');
            }
        }
        text
    }

    /// Whether the summaries alone justify a compaction. They do if they exceed their budget, or if
    /// the user forced a compaction and better texts are ready. Without that, a better text is not
    /// worth a new prefix, since the prompt cache would be lost.
    pub(super) fn can_condense(&self, arrangement: &Arrangement) -> bool {
        let total: u64 = arrangement.frontier.iter().map(Node::cost).sum();
        let has_better = |node: &Node| self.texts.get(node.span()).is_some();
        (self.order.force && arrangement.frontier.iter().any(has_better))
            || (total > self.budgets.summaries && arrangement.frontier.len() > 1)
    }
}

/// Returns the nodes that cover a message which stays, or messages on both sides of one that stays.
fn parted(spots: &[Spot], split: &Split) -> HashSet<NodeId> {
    let mut parted = HashSet::new();
    let mut run_of: HashMap<NodeId, usize> = HashMap::new();
    let mut run = 0;
    for (at, spot) in spots.iter().enumerate() {
        let keeps = split.keeps(at) || *spot == Spot::Orphan;
        run += usize::from(keeps);
        if let Spot::Covered(node) = spot
            && (keeps || *run_of.entry(*node).or_insert(run) != run)
        {
            parted.insert(*node);
        }
    }
    parted
}
