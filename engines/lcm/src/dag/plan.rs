//! Plans a compaction: which positions of the window stay, and what replaces each run of the
//! others.
//!
//! The window is given as one [`Spot`] per position, since it may show raw messages, our own
//! summaries and summaries of other engines. [`layout`] turns the spots into [`PlanStep`]s. A run
//! is a stretch of positions that leave the window together, and its parts are existing nodes and
//! spans of messages that still need leaves.
//!
//! The window may also lack parts of the conversation, for example after another engine compacted
//! it. Such [`Stray`]s are put back into the run at their place in the conversation. [`leaves`]
//! cuts the spans. The texts of the leaves are written elsewhere.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use contexture_engine_api::{MessageId, MessageView};

use super::NodeId;
use super::outline::{Outline, Split};

/// The smallest share of a leaf's span that gets a leaf of its own. A smaller rest joins the leaf
/// before.
const LEAST_SHARE: f64 = 0.25;

/// What one position of the window shows, and whether the frontier covers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    /// A message that no node covers.
    Raw,
    /// A message that this node of the frontier covers and that the window shows all the same. One
    /// of the two has to go, or the content would be there twice.
    Covered(NodeId),
    /// A summary block of this engine that shows these nodes of the frontier.
    Ours(Vec<NodeId>),
    /// A summary of another engine. It stands for no message of its own, so it leaves the window and
    /// what it hides comes back as strays.
    Foreign,
    /// A summary of messages that the store does not have, because they were lost with the record.
    /// Its text is all that is left of them, so it stays.
    Orphan,
    /// A text that a compaction inserted and the store does not have: a notice, the placeholder for
    /// a result, or a shortened message whose original was lost with the record. It stays and leaves
    /// with the messages around it, since a result must not be parted from its call.
    Inserted,
}

/// Messages that go under one node together: a tool call with its results, or a single message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageGroup {
    pub(crate) ids: Vec<MessageId>,
    pub(crate) tokens: u64,
}

/// One part of a run. The parts of a run are in the order of the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunPart {
    /// A node of the frontier, which stays as it is.
    Node(NodeId),
    /// Messages that still need leaves, as indivisible groups.
    Span(Vec<MessageGroup>),
}

/// A step of a plan, for one stretch of the window. The steps of a plan cover the window without
/// gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanStep {
    /// These positions stay as they are, or in a shorter form if their message is large.
    Keep(Range<usize>),
    /// These positions leave the window, and summaries take their place.
    Run(Run),
}

impl PlanStep {
    /// Returns the positions that stay, which are none if this is a run.
    pub(crate) fn kept(&self) -> Range<usize> {
        match self {
            Self::Keep(places) => places.clone(),
            Self::Run(_) => 0..0,
        }
    }

    pub(crate) fn run(&self) -> Option<&Run> {
        match self {
            Self::Run(run) => Some(run),
            Self::Keep(_) => None,
        }
    }
}

/// Positions that leave the window together, and the nodes and messages that replace them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) places: Range<usize>,
    pub(crate) parts: Vec<RunPart>,
}

/// A part of the conversation that is missing from the window: a node that another engine's summary
/// hides, or a message without any summary. Strays are ordered by `first`, their first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stray {
    pub(crate) first: MessageId,
    pub(crate) part: StrayPart,
}

/// What a stray consists of. The id of a stray message is the `first` of its stray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StrayPart {
    Node(NodeId),
    Message { tokens: u64 },
}

/// Divides the window into steps. `strays` must be in order, and `first_of` gives the first message
/// below each node of the frontier. Our own and foreign summaries leave the window even within the
/// tail, because summaries are written again from the frontier.
pub(crate) fn layout(
    views: &[MessageView<'_>],
    spots: &[Spot],
    outline: &Outline,
    split: &Split,
    strays: &[Stray],
    first_of: &HashMap<NodeId, MessageId>,
) -> Vec<PlanStep> {
    let stays = |at: usize| match spots[at] {
        Spot::Ours(_) | Spot::Foreign => false,
        Spot::Orphan => true,
        Spot::Raw | Spot::Covered(_) | Spot::Inserted => split.keeps(at),
    };
    let mut steps: Vec<PlanStep> = Vec::new();
    let mut at = 0;
    while at < views.len() {
        let keep = stays(at);
        let end = (at..views.len())
            .find(|place| stays(*place) != keep)
            .unwrap_or(views.len());
        // Nothing would stand in the place of inserted texts alone.
        let keep = keep || spots[at..end].iter().all(|spot| *spot == Spot::Inserted);
        steps.push(match keep {
            true => PlanStep::Keep(at..end),
            false => PlanStep::Run(run_of(views, spots, outline, at..end)),
        });
        at = end;
    }
    put_strays(&mut steps, strays, first_of);
    steps
}

fn run_of(
    views: &[MessageView<'_>],
    spots: &[Spot],
    outline: &Outline,
    places: Range<usize>,
) -> Run {
    let mut run = Run {
        places: places.clone(),
        parts: Vec::new(),
    };
    let mut unit_end = places.start;
    for at in places {
        match &spots[at] {
            Spot::Ours(nodes) => nodes.iter().for_each(|node| run.push_node(*node)),
            Spot::Covered(node) => run.push_node(*node),
            Spot::Foreign | Spot::Orphan | Spot::Inserted => {}
            Spot::Raw => {
                let message = (views[at].id(), views[at].tokens());
                let goes_on = at < unit_end;
                // A result after its call belongs to the unit of the call, so the unit ends where
                // the group of the call ends.
                unit_end = unit_end.max(outline.groups.cut_after(at + 1));
                run.push_message(message, goes_on);
            }
        }
    }
    run
}

impl Run {
    /// Returns the messages of the run that still need leaves.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &[MessageGroup]> {
        self.parts.iter().filter_map(|part| match part {
            RunPart::Span(units) => Some(units.as_slice()),
            RunPart::Node(_) => None,
        })
    }

    fn push_node(&mut self, node: NodeId) {
        // A node may cover several positions, but the window shows it once.
        if !self.parts.contains(&RunPart::Node(node)) {
            self.parts.push(RunPart::Node(node));
        }
    }

    fn push_message(&mut self, (id, tokens): (MessageId, u64), goes_on: bool) {
        let unit = MessageGroup {
            ids: vec![id],
            tokens,
        };
        match self.parts.last_mut() {
            Some(RunPart::Span(units)) if goes_on => match units.last_mut() {
                Some(last) => {
                    last.ids.push(id);
                    last.tokens += tokens;
                }
                None => units.push(unit),
            },
            _ => self.push_unit(unit),
        }
    }

    fn push_unit(&mut self, unit: MessageGroup) {
        match self.parts.last_mut() {
            Some(RunPart::Span(units)) => units.push(unit),
            _ => self.parts.push(RunPart::Span(vec![unit])),
        }
    }

    /// Returns the newest place that the run reaches: the highest first message of its nodes or
    /// last message of its spans.
    fn last_id(&self, first_of: &HashMap<NodeId, MessageId>) -> Option<MessageId> {
        self.parts
            .iter()
            .filter_map(|part| match part {
                RunPart::Node(node) => first_of.get(node).copied(),
                RunPart::Span(units) => units.last().and_then(|unit| unit.ids.last().copied()),
            })
            .max()
    }

    /// Inserts each stray before the first part of the run that comes after it. Nodes that the run
    /// has already are skipped.
    fn merge(&mut self, strays: &[Stray], first_of: &HashMap<NodeId, MessageId>) {
        let mut merged = Run {
            places: self.places.clone(),
            parts: Vec::with_capacity(self.parts.len()),
        };
        let there: HashSet<NodeId> = self
            .parts
            .iter()
            .filter_map(|part| match part {
                RunPart::Node(node) => Some(*node),
                RunPart::Span(_) => None,
            })
            .collect();
        let mut strays = strays.iter().peekable();
        let mut put_before = |merged: &mut Run, first: Option<MessageId>| {
            while let Some(stray) =
                strays.next_if(|stray| first.is_none_or(|first| stray.first < first))
            {
                match stray.part {
                    StrayPart::Node(node) if there.contains(&node) => {}
                    StrayPart::Node(node) => merged.parts.push(RunPart::Node(node)),
                    StrayPart::Message { tokens } => {
                        merged.push_message((stray.first, tokens), false);
                    }
                }
            }
        };
        for part in std::mem::take(&mut self.parts) {
            match part {
                RunPart::Node(node) => {
                    if let Some(first) = first_of.get(&node) {
                        put_before(&mut merged, Some(*first));
                    }
                    merged.parts.push(RunPart::Node(node));
                }
                RunPart::Span(units) => {
                    for unit in units {
                        if let Some(first) = unit.ids.first() {
                            put_before(&mut merged, Some(*first));
                        }
                        merged.push_unit(unit);
                    }
                }
            }
        }
        put_before(&mut merged, None);
        *self = merged;
    }
}

/// Adds each stray to the first run that ends after it. Strays after all runs go to the last one.
/// If there is no run at all, the strays stay out of the window. The strays must be in order.
fn put_strays(steps: &mut [PlanStep], mut strays: &[Stray], first_of: &HashMap<NodeId, MessageId>) {
    let mut runs: Vec<&mut Run> = steps
        .iter_mut()
        .filter_map(|step| match step {
            PlanStep::Run(run) => Some(run),
            PlanStep::Keep(_) => None,
        })
        .collect();
    // The last run also takes the strays that come after all runs.
    let newest = runs.len().saturating_sub(1);
    for (at, run) in runs.iter_mut().enumerate() {
        let here = match run.last_id(first_of) {
            Some(last) if at < newest => strays.partition_point(|stray| stray.first < last),
            _ => strays.len(),
        };
        let (of_this, rest) = strays.split_at(here);
        strays = rest;
        if !of_this.is_empty() {
            run.merge(of_this, first_of);
        }
    }
}

/// Cuts a span into leaves of about `span` tokens. `prepared` gives the messages of the prepared
/// leaf that begins with a message, if there is one. Prepared leaves keep their boundaries as long
/// as they consist of whole groups, since their texts would be useless otherwise.
pub(crate) fn leaves<'p>(
    units: &[MessageGroup],
    span: u64,
    prepared: impl Fn(MessageId) -> Option<&'p [MessageId]>,
) -> Vec<Vec<MessageId>> {
    let mut leaves = Vec::new();
    let mut loose: Vec<&MessageGroup> = Vec::new();
    let mut at = 0;
    while let Some(unit) = units.get(at) {
        let fits = unit
            .ids
            .first()
            .and_then(|first| prepared(*first))
            .and_then(|ids| units_of(&units[at..], ids).map(|count| (ids, count)));
        match fits {
            Some((ids, count)) => {
                // The loose groups end where the prepared leaf begins.
                cut_loose(&mut loose, span, &mut leaves);
                leaves.push(ids.to_vec());
                at += count;
            }
            None => {
                loose.push(unit);
                at += 1;
            }
        }
    }
    cut_loose(&mut loose, span, &mut leaves);
    leaves
}

/// Returns how many of the first units hold exactly these messages. None if no number of units
/// does.
fn units_of(units: &[MessageGroup], ids: &[MessageId]) -> Option<usize> {
    let mut rest = ids;
    let mut count = 0;
    while !rest.is_empty() {
        rest = rest.strip_prefix(units.get(count)?.ids.as_slice())?;
        count += 1;
    }
    Some(count)
}

fn cut_loose(loose: &mut Vec<&MessageGroup>, span: u64, leaves: &mut Vec<Vec<MessageId>>) {
    let tokens: Vec<u64> = loose.iter().map(|unit| unit.tokens).collect();
    for chunk in leaf_ranges(&tokens, span) {
        let ids = loose[chunk]
            .iter()
            .flat_map(|unit| unit.ids.iter().copied());
        leaves.push(ids.collect());
    }
    loose.clear();
}

/// Cuts units into leaves of about `span` tokens each, in order. `tokens` holds the size of each
/// unit. A unit larger than `span` gets a leaf of its own, and a small rest at the end joins the
/// leaf before it. Returns the ranges of units, which are empty only if there are no units.
fn leaf_ranges(tokens: &[u64], span: u64) -> Vec<Range<usize>> {
    let mut leaves: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (at, unit) in tokens.iter().enumerate() {
        match leaves.last_mut() {
            Some(leaf) if used + unit <= span => {
                leaf.end = at + 1;
                used += unit;
            }
            _ => {
                leaves.push(at..at + 1);
                used = *unit;
            }
        }
    }
    // A tiny leaf would cost a heading and a model call for very little.
    if used < (span as f64 * LEAST_SHARE) as u64
        && let Some(rest) = leaves.pop()
    {
        match leaves.last_mut() {
            Some(before) => before.end = rest.end,
            None => leaves.push(rest),
        }
    }
    leaves
}

#[cfg(test)]
mod tests;
