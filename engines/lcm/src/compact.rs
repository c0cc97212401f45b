//! One compaction: which messages get leaves, which nodes are condensed, what the new window is.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, EngineError, Entry, MessageId, MessageKind, MessageView,
    ModelFailure, Outcome, Replacement,
};

use crate::assemble::{block, nodes_in, shortened};
use crate::dag::condense::next_group;
use crate::dag::outline::{Outline, Protection, Split};
use crate::dag::plan::{Part, Segment, Spot, Stray, StrayPart, layout, leaves};
use crate::dag::{Level, Node, NodeId, Under};
use crate::nodes::{self, NewNode, Placed};
use crate::preview::preview;
use crate::session::Session;
use crate::settings::{Budgets, Settings};
use crate::staging::Staging;
use crate::store::Key;
use crate::summarise::{Job, Written, write_all};
use crate::transcript::plain;

/// The share of the soft threshold below which a compaction should end, so that the next turn is not due
/// again.
const COMFORTABLE: f64 = 0.75;
/// What the host's framing of a summary costs, in tokens, at most.
const FRAMING_TOKENS: u64 = 8;
/// What a node's heading costs, in tokens, about.
const HEADING_TOKENS: u64 = 40;
/// What the words around all nodes cost, in tokens, about.
const PREAMBLE_TOKENS: u64 = 64;
/// Messages of no more tokens than this stand under a leaf word for word.
const VERBATIM_TOKENS: u64 = 64;
/// The least that a node may be asked to fit into, in tokens.
const LEAST_TEXT: u64 = 16;
/// The share of its material that a leaf's text takes at most.
const LEAF_SHARE: u64 = 4;
/// The most tokens of a leaf's text.
const MAX_LEAF_TOKENS: u64 = 2_000;
/// The most tokens of a preview of a large message, and the least worth showing.
const PREVIEW_TOKENS: u64 = 600;
const LEAST_PREVIEW: u64 = 60;

/// What a compaction may do about the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelUse {
    /// There is none to ask, or it failed lately and is left alone.
    None {
        /// Whether one was wanted.
        wanted: bool,
    },
    /// Somebody waits, so it is asked now.
    Now,
    /// Only what is prepared goes in; the rest of the window can wait.
    Prepared,
    /// Only what is prepared is the model's; the rest cannot wait for it.
    PreparedOrNone,
}

/// A proposal that the host has not decided on yet.
pub(crate) struct Proposal {
    pub(crate) frontier: Vec<Placed>,
    pub(crate) better: Vec<(NodeId, Written)>,
    /// The nodes that were written for it.
    pub(crate) added: Vec<NodeId>,
    /// The messages that are under the frontier with it and were not before.
    pub(crate) covered: Vec<MessageId>,
    /// Whether nodes were taken apart, so that messages may have become loose.
    pub(crate) took_apart: bool,
    pub(crate) before: u64,
    pub(crate) after: u64,
    pub(crate) degraded: bool,
}

/// What a compaction came to.
pub(crate) enum Compacted {
    Proposed(Box<Proposal>, Compaction, Option<ModelFailure>),
    Unchanged(Outcome),
}

/// One compaction under way.
pub(crate) struct Compactor<'a, 'm> {
    pub(crate) session: &'a mut Session,
    pub(crate) settings: &'a Settings,
    pub(crate) budgets: Budgets,
    pub(crate) staging: &'a Staging,
    pub(crate) views: &'a [MessageView<'m>],
    pub(crate) fixed: u64,
    pub(crate) focus: Option<&'a str>,
    pub(crate) model: ModelUse,
    pub(crate) force: bool,
    /// New nodes that other new ones stand over.
    pub(crate) retired: Vec<NewNode>,
}

/// How the window is divided, for one choice of what stays raw.
struct Arrangement {
    segments: Vec<Segment>,
    frontier: Vec<Placed>,
    took_apart: bool,
    /// Replaced large messages that stay: place and new text.
    replaced: Vec<(usize, String)>,
    /// The prompt that it would come to.
    estimate: u64,
    /// Tokens of what stays, and `fixed`.
    kept: u64,
}

impl Arrangement {
    fn does_something(&self) -> bool {
        let has_span = |segment: &Segment| match segment {
            Segment::Run(run) => run.parts.iter().any(|part| matches!(part, Part::Span(_))),
            Segment::Keep(_) => false,
        };
        self.took_apart || !self.replaced.is_empty() || self.segments.iter().any(has_span)
    }
}

/// A node of the new frontier, in the making.
struct Made {
    placed: Placed,
    /// How it is to be written, where it is new.
    new: Option<NewNode>,
}

impl Compactor<'_, '_> {
    pub(crate) fn run(mut self) -> Result<Compacted, EngineError> {
        let outline = Outline::of(self.views);
        let before = self.fixed + sum(self.views);
        let spots = self.spots()?;
        let floor = self.floor(&outline);

        let arrangement = match self.arrange(&outline, &spots)? {
            Ok(arrangement) => arrangement,
            Err(outcome) => return Ok(Compacted::Unchanged(outcome)),
        };
        if !arrangement.does_something() && !self.can_condense(&arrangement) {
            let outcome = match !self.force && before >= self.budgets.hard {
                true => self.floor_too_high(floor.max(arrangement.kept)),
                false => Outcome::NothingToDo(
                    "everything before the fresh tail is summarised already".to_owned(),
                ),
            };
            return Ok(Compacted::Unchanged(outcome));
        }
        self.propose(&arrangement, before, floor)
    }

    /// What stands in each place of the window.
    fn spots(&mut self) -> Result<Vec<Spot>, EngineError> {
        let loose: HashSet<MessageId> = self.session.loose()?.keys().copied().collect();
        let mut shown_though_covered: HashMap<MessageId, Key> = HashMap::new();
        let mut spots = Vec::with_capacity(self.views.len());
        for view in self.views {
            if loose.contains(&view.id()) {
                spots.push(Spot::Raw);
                continue;
            }
            if view.kind() == MessageKind::Summary {
                let nodes = nodes_in(view.text());
                let ours = !nodes.is_empty()
                    && nodes
                        .iter()
                        .all(|id| self.session.in_frontier(*id).is_some());
                spots.push(match ours {
                    true => Spot::Ours(nodes),
                    false => Spot::Foreign,
                });
                continue;
            }
            match self.session.store.key(self.session.id, view.id())? {
                Some(key) => {
                    shown_though_covered.insert(view.id(), key);
                    spots.push(Spot::Raw);
                }
                // An answer that another engine made up stands for nothing that was said.
                None if view.kind() == MessageKind::Replaced => spots.push(Spot::Foreign),
                None => {
                    return Err(EngineError::Other(format!(
                        "message {} was never shown to this engine, so it cannot be kept; nothing was compacted",
                        view.id()
                    )));
                }
            }
        }
        if shown_though_covered.is_empty() {
            return Ok(spots);
        }
        let keys: Vec<Key> = shown_though_covered.values().copied().collect();
        let covering = nodes::covering(&self.session.store, self.session.id, &keys)?;
        for (view, spot) in self.views.iter().zip(&mut spots) {
            let key = shown_though_covered.get(&view.id());
            if let Some(node) = key.and_then(|key| covering.get(key)) {
                *spot = Spot::Covered(*node);
            }
        }
        Ok(spots)
    }

    /// What no compaction may remove.
    fn floor(&self, outline: &Outline) -> u64 {
        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .map_or(0, |at| self.views[at].tokens());
        self.fixed + user + sum(&self.views[in_flight])
    }

    fn floor_too_high(&self, floor_tokens: u64) -> Outcome {
        Outcome::FloorTooHigh {
            floor_tokens,
            reason: format!(
                "the system prompt, the tools, the user's last message and the last turn alone have \
                 {floor_tokens} tokens, and a compaction is due at once from {}: shorten the message, offer \
                 fewer tools, or choose a model with a larger window",
                self.budgets.hard
            ),
        }
    }

    fn comfortable(&self) -> u64 {
        (self.budgets.soft as f64 * COMFORTABLE) as u64
    }

    /// The first arrangement that ends comfortably, else the one that ends lowest.
    fn arrange(
        &mut self,
        outline: &Outline,
        spots: &[Spot],
    ) -> Result<Result<Arrangement, Outcome>, EngineError> {
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
                // The last answer is no part of the floor.
                split
                    .islands
                    .retain(|island| outline.last_user.is_some_and(|user| island.contains(&user)));
            }
            let arrangement = self.arrangement(outline, spots, &split)?;
            let fits = arrangement.estimate <= self.comfortable();
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
        Ok(Ok(best))
    }

    /// What is prepared goes in, and no more.
    fn arrange_prepared(
        &mut self,
        outline: &Outline,
        spots: &[Spot],
    ) -> Result<Result<Arrangement, Outcome>, EngineError> {
        let mut split = outline.split(Protection {
            messages: self.settings.fresh_tail_messages,
            tokens: self.budgets.tail,
        });
        let ready = |at: &usize| {
            split.keeps(*at) || spots[*at] != Spot::Raw || self.staging.holds(self.views[*at].id())
        };
        let first_unready = (0..split.tail).find(|at| !ready(at));
        if let Some(at) = first_unready {
            split.tail = outline.cut_before(at);
            split.islands.retain(|island| island.end <= split.tail);
        }
        let arrangement = self.arrangement(outline, spots, &split)?;
        if !arrangement.does_something() {
            return Ok(Err(Outcome::Deferred(format!(
                "summaries are being prepared in the background; a compaction does not wait for them from {} \
                 tokens on",
                self.budgets.hard
            ))));
        }
        Ok(Ok(arrangement))
    }

    fn arrangement(
        &mut self,
        outline: &Outline,
        spots: &[Spot],
        split: &Split,
    ) -> Result<Arrangement, EngineError> {
        // A node over a message that stays in the window, or on both sides of one, would say it twice.
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

        let first_of = Session::first_messages(&frontier);
        let strays = self.strays(&spots, &frontier)?;
        let segments = layout(self.views, &spots, outline, split, &strays, &first_of);
        let mut arrangement = Arrangement {
            segments,
            frontier,
            took_apart,
            replaced: Vec::new(),
            estimate: 0,
            kept: 0,
        };
        arrangement.replaced = self.large(&arrangement, outline);
        self.estimate(&mut arrangement);
        Ok(arrangement)
    }

    /// A node gave way to its children: the places that it covered are theirs, or nobody's.
    fn respot(
        &self,
        spots: &mut [Spot],
        node: NodeId,
        children: &[Placed],
    ) -> Result<(), EngineError> {
        let mut owner: HashMap<Key, NodeId> = HashMap::new();
        for child in children {
            let id = child.node.id;
            let count = child.node.messages as usize;
            let keys =
                nodes::messages_under(&self.session.store, self.session.id, id, None, count)?;
            owner.extend(keys.into_iter().map(|key| (key, id)));
        }
        for (view, spot) in self.views.iter().zip(spots) {
            if *spot == Spot::Covered(node) {
                let key = self.session.store.key(self.session.id, view.id())?;
                let child = key.and_then(|key| owner.get(&key));
                *spot = child.map_or(Spot::Raw, |child| Spot::Covered(*child));
            }
        }
        Ok(())
    }

    /// What belongs to the conversation and has no place in the window, in order.
    fn strays(&mut self, spots: &[Spot], frontier: &[Placed]) -> Result<Vec<Stray>, EngineError> {
        let mut shown: HashSet<NodeId> = HashSet::new();
        for spot in spots {
            match spot {
                Spot::Ours(nodes) => shown.extend(nodes),
                Spot::Covered(node) => {
                    shown.insert(*node);
                }
                Spot::Raw | Spot::Foreign => {}
            }
        }
        let in_window: HashSet<MessageId> = self.views.iter().map(MessageView::id).collect();
        let hidden = frontier
            .iter()
            .filter(|placed| !shown.contains(&placed.node.id))
            .map(|placed| Stray {
                first: placed.node.first,
                part: StrayPart::Node(placed.node.id),
            });
        let unseen = self
            .session
            .loose()?
            .iter()
            .filter(|(id, _)| !in_window.contains(id))
            .map(|(id, loose)| Stray {
                first: *id,
                part: StrayPart::Message {
                    tokens: loose.tokens,
                },
            });
        let mut strays: Vec<Stray> = hidden.chain(unseen).collect();
        strays.sort_by_key(|stray| stray.first);
        Ok(strays)
    }

    /// Large messages that stay and that the model has seen, with what is to stand in their place.
    fn large(&self, arrangement: &Arrangement, outline: &Outline) -> Vec<(usize, String)> {
        let limit = self.settings.large_message_tokens;
        let kept = arrangement
            .segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Keep(places) => Some(places.clone()),
                Segment::Run(_) => None,
            });
        kept.flatten()
            .filter(|at| *at < outline.last_turn && Some(*at) != outline.last_user)
            .filter(|at| self.views[*at].tokens() > limit)
            .filter_map(|at| Some((at, self.shortened(at, PREVIEW_TOKENS)?)))
            .collect()
    }

    /// The preview of a message, where it may be shortened and the preview is shorter.
    fn shortened(&self, at: usize, max_tokens: u64) -> Option<String> {
        let view = &self.views[at];
        let whole = view.kind() == MessageKind::Original
            && !view.has_thinking()
            && !view.has_media()
            && !view.text().is_empty();
        if !whole {
            return None;
        }
        let text = view.text();
        let services = &self.session.services;
        let shown = crate::transcript::fit(
            &preview(text, max_tokens as usize * 4),
            max_tokens,
            services,
        );
        let short = shortened(view.id(), view.tokens(), text.len(), &shown);
        (short.len() < text.len() && services.count_tokens(&short) < view.tokens()).then_some(short)
    }

    /// Results that the model has not seen are shortened only where there is no other way below the hard
    /// threshold; so is, at the very last, the user's own message.
    fn shorten_unseen(&self, arrangement: &mut Arrangement, outline: &Outline) {
        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let done: HashSet<usize> = arrangement.replaced.iter().map(|(at, _)| *at).collect();
        let mut results: Vec<usize> = (0..self.views.len())
            .filter(|at| !done.contains(at) && !in_flight.contains(at))
            .filter(|at| self.stays(arrangement, *at))
            .filter(|at| self.views[*at].role() == "tool" || self.views[*at].role() == "assistant")
            .collect();
        // The largest first.
        results.sort_by_key(|at| std::cmp::Reverse(self.views[*at].tokens()));
        let last_user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .filter(|_| self.floor(outline) > self.budgets.usable);
        for at in results.into_iter().chain(last_user) {
            if arrangement.estimate < self.budgets.hard {
                break;
            }
            let most = (self.views[at].tokens() / 4).clamp(LEAST_PREVIEW, PREVIEW_TOKENS);
            if let Some(text) = self.shortened(at, most) {
                arrangement.replaced.push((at, text));
                self.estimate(arrangement);
            }
        }
        arrangement.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    fn stays(&self, arrangement: &Arrangement, at: usize) -> bool {
        arrangement
            .segments
            .iter()
            .any(|segment| matches!(segment, Segment::Keep(places) if places.contains(&at)))
    }

    fn estimate(&self, arrangement: &mut Arrangement) {
        let count = |text: &str| self.session.services.count_tokens(text);
        let replaced: HashMap<usize, u64> = arrangement
            .replaced
            .iter()
            .map(|(at, text)| (*at, count(text) + FRAMING_TOKENS))
            .collect();
        let (mut kept, mut nodes, mut new) = (self.fixed, 0, 0);
        for segment in &arrangement.segments {
            match segment {
                Segment::Keep(places) => {
                    for at in places.clone() {
                        let tokens = replaced.get(&at).copied();
                        kept += tokens.unwrap_or_else(|| self.views[at].tokens());
                    }
                }
                Segment::Run(run) => {
                    nodes += PREAMBLE_TOKENS;
                    for part in &run.parts {
                        match part {
                            Part::Node(id) => {
                                let placed = arrangement.frontier.iter().find(|p| p.node.id == *id);
                                nodes += placed.map_or(0, cost);
                            }
                            Part::Span(units) => {
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

    /// Whether the summaries alone are over their budget.
    fn can_condense(&self, arrangement: &Arrangement) -> bool {
        let total: u64 = arrangement.frontier.iter().map(cost).sum();
        let better = arrangement
            .frontier
            .iter()
            .any(|placed| self.staging.better(placed.node.id).is_some());
        better || (total > self.budgets.summaries && arrangement.frontier.len() > 1)
    }

    fn propose(
        &mut self,
        arrangement: &Arrangement,
        before: u64,
        floor: u64,
    ) -> Result<Compacted, EngineError> {
        let mut failure = None;
        let mut next = nodes::next_id(&self.session.store, self.session.id)?;
        let (mut runs, better) = self.write_leaves(arrangement, &mut next, &mut failure)?;
        self.condense(&mut runs, &mut next, &mut failure)?;

        let entries = self.entries(arrangement, &runs);
        let after = self.after(&entries);
        if after >= self.budgets.usable && !self.force {
            return Ok(Compacted::Unchanged(
                self.floor_too_high(floor.max(arrangement.kept)),
            ));
        }
        if after >= before {
            return Ok(Compacted::Unchanged(Outcome::NothingToDo(format!(
                "a compaction would take the prompt from {before} to {after} tokens"
            ))));
        }

        let frontier: Vec<Placed> = runs
            .iter()
            .flatten()
            .map(|made| made.placed.clone())
            .collect();
        let new = self.new_nodes(&runs);
        let covered = new
            .iter()
            .filter_map(|new| match &new.under {
                Under::Messages(ids) => Some(ids.iter().copied()),
                Under::Nodes(_) => None,
            })
            .flatten()
            .collect();
        let degraded = new.iter().any(|new| new.degraded);
        nodes::add(
            &self.session.store,
            self.session.id,
            &new,
            self.session.services.now_ms(),
        )?;
        let notes = self.notes(&new, arrangement, after, failure.as_ref());
        let proposal = Proposal {
            frontier,
            better,
            added: new.iter().map(|new| new.node.id).collect(),
            covered,
            took_apart: arrangement.took_apart,
            before,
            after,
            degraded,
        };
        let compaction = Compaction {
            entries,
            system_note: Some(COMPACTION_NOTE.to_owned()),
            degraded,
            notes,
        };
        Ok(Compacted::Proposed(Box::new(proposal), compaction, failure))
    }

    /// The nodes of each run, in order: those that there are, and new leaves over the rest.
    #[allow(clippy::type_complexity)]
    fn write_leaves(
        &mut self,
        arrangement: &Arrangement,
        next: &mut NodeId,
        failure: &mut Option<ModelFailure>,
    ) -> Result<(Vec<Vec<Made>>, Vec<(NodeId, Written)>), EngineError> {
        let mut better = Vec::new();
        let mut standing = 0;
        let mut spans: Vec<Vec<MessageId>> = Vec::new();
        // For each run its nodes, a new one by its place in `spans`.
        let mut plans: Vec<Vec<Result<Placed, usize>>> = Vec::new();
        for segment in &arrangement.segments {
            let Segment::Run(run) = segment else { continue };
            let mut plan = Vec::new();
            for part in &run.parts {
                match part {
                    Part::Node(id) => {
                        let Some(placed) = arrangement.frontier.iter().find(|p| p.node.id == *id)
                        else {
                            continue;
                        };
                        let mut placed = placed.clone();
                        if let Some(written) = self.staging.better(*id) {
                            rewrite(&mut placed, written);
                            better.push((*id, written.clone()));
                        }
                        standing += cost(&placed);
                        plan.push(Ok(placed));
                    }
                    Part::Span(units) => {
                        for ids in leaves(units, self.budgets.leaf_span, |first| {
                            self.staging.ids(first)
                        }) {
                            plan.push(Err(spans.len()));
                            spans.push(ids);
                        }
                    }
                }
            }
            plans.push(plan);
        }
        let mut made = self.leaves_over(&spans, standing, next, failure)?;
        let runs = plans
            .into_iter()
            .map(|plan| {
                plan.into_iter()
                    .filter_map(|node| match node {
                        Ok(placed) => Some(Made { placed, new: None }),
                        Err(at) => made.get_mut(at).and_then(Option::take),
                    })
                    .collect()
            })
            .collect();
        Ok((runs, better))
    }

    fn leaves_over(
        &mut self,
        spans: &[Vec<MessageId>],
        standing: u64,
        next: &mut NodeId,
        failure: &mut Option<ModelFailure>,
    ) -> Result<Vec<Option<Made>>, EngineError> {
        let room = self
            .budgets
            .summaries
            .saturating_sub(standing + PREAMBLE_TOKENS);
        let each = (room / (spans.len() as u64).max(1)).saturating_sub(HEADING_TOKENS);
        let each = each.clamp(self.budgets.node, MAX_LEAF_TOKENS);
        let mut jobs: Vec<(usize, Job)> = Vec::new();
        let mut drafts = Vec::with_capacity(spans.len());
        for (at, ids) in spans.iter().enumerate() {
            let keys = self.keys(ids)?;
            let material = self.session.material(&keys)?;
            let calls = material.call_views();
            let views = material.views(&calls);
            let tokens: u64 = sum(&views);
            let times = || views.iter().filter_map(MessageView::time);
            let node = Node {
                id: *next,
                depth: 0,
                level: Level::Verbatim,
                text: String::new(),
                tokens: 0,
                messages: ids.len() as u64,
                source_tokens: tokens,
                first: ids.iter().min().copied().unwrap_or(MessageId(0)),
                last: ids.iter().max().copied().unwrap_or(MessageId(0)),
                from_ms: times().min(),
                to_ms: times().max(),
            };
            next.0 += 1;
            let mut written = self.staging.leaf(ids).cloned();
            if written.is_none() && tokens <= VERBATIM_TOKENS {
                let text = plain(&views);
                let tokens = self.session.services.count_tokens(&text);
                if tokens <= 2 * VERBATIM_TOKENS && !text.trim().is_empty() {
                    written = Some(Written {
                        text,
                        tokens,
                        level: Level::Verbatim,
                        model: None,
                    });
                }
            }
            if written.is_none() {
                let budget = each.min(tokens / LEAF_SHARE).max(LEAST_TEXT);
                let job = Job::leaf(&views, budget, self.focus, &self.session.services);
                jobs.push((at, job));
            }
            drafts.push((node, written));
        }
        let (places, jobs): (Vec<usize>, Vec<Job>) = jobs.into_iter().unzip();
        for (at, written) in places.into_iter().zip(self.write(jobs, failure)?) {
            drafts[at].1 = Some(written);
        }
        Ok(drafts
            .into_iter()
            .zip(spans)
            .map(|((node, written), ids)| {
                let under = Under::Messages(ids.clone());
                Some(self.made(node, written?, under))
            })
            .collect())
    }

    fn made(&self, mut node: Node, written: Written, under: Under) -> Made {
        let degraded = written.level == Level::Deterministic && self.model_wanted();
        (node.level, node.tokens, node.text) = (written.level, written.tokens, written.text);
        let placed = Placed {
            node: node.clone(),
            degraded,
        };
        Made {
            placed,
            new: Some(NewNode {
                node,
                under,
                degraded,
                model: written.model,
            }),
        }
    }

    fn model_wanted(&self) -> bool {
        self.model != ModelUse::None { wanted: false }
    }

    fn write(
        &self,
        jobs: Vec<Job>,
        failure: &mut Option<ModelFailure>,
    ) -> Result<Vec<Written>, EngineError> {
        let services = &self.session.services;
        // A model that has just failed is not asked again for the next round.
        if self.model != ModelUse::Now || failure.is_some() {
            return Ok(jobs.iter().map(|job| job.without_model(services)).collect());
        }
        let (texts, failed) = write_all(jobs, services)?;
        *failure = failed;
        Ok(texts)
    }

    fn keys(&mut self, ids: &[MessageId]) -> Result<Vec<Key>, EngineError> {
        let mut keys = Vec::with_capacity(ids.len());
        for id in ids {
            let key = match self.session.loose()?.get(id) {
                Some(loose) => Some(loose.key),
                None => self.session.store.key(self.session.id, *id)?,
            };
            keys.extend(key);
        }
        Ok(keys)
    }

    /// Condenses the oldest nodes until all together are within their budget.
    fn condense(
        &mut self,
        runs: &mut [Vec<Made>],
        next: &mut NodeId,
        failure: &mut Option<ModelFailure>,
    ) -> Result<(), EngineError> {
        let total = |runs: &[Vec<Made>]| -> u64 {
            runs.iter().flatten().map(|made| cost(&made.placed)).sum()
        };
        while total(runs) > self.budgets.summaries {
            let widest = runs
                .iter()
                .enumerate()
                .filter(|(_, run)| run.len() > 1)
                .max_by_key(|(_, run)| run.iter().map(|made| cost(&made.placed)).sum::<u64>());
            let Some((at, run)) = widest else {
                return self.shrink(runs, next);
            };
            let depths: Vec<u32> = run.iter().map(|made| made.placed.node.depth).collect();
            let Some(group) = next_group(&depths) else {
                return Ok(());
            };
            let parent = self.condensed(&run[group.clone()], None, next, failure)?;
            let children: Vec<Made> = runs[at].splice(group, [parent]).collect();
            self.retire(children);
        }
        Ok(())
    }

    /// Every run is one node and they are still too long: they are extracted once more, to what there is
    /// room for.
    fn shrink(&mut self, runs: &mut [Vec<Made>], next: &mut NodeId) -> Result<(), EngineError> {
        let nodes = runs.iter().flatten().count() as u64;
        let each = (self.budgets.summaries / nodes.max(1))
            .saturating_sub(HEADING_TOKENS)
            .max(LEAST_TEXT);
        for run in runs.iter_mut() {
            if let [made] = run.as_slice()
                && made.placed.node.tokens > each * 2
            {
                let parent = self.condensed(run, Some(each), next, &mut None)?;
                let child = std::mem::replace(run, vec![parent]);
                self.retire(child);
            }
        }
        Ok(())
    }

    fn condensed(
        &self,
        children: &[Made],
        budget: Option<u64>,
        next: &mut NodeId,
        failure: &mut Option<ModelFailure>,
    ) -> Result<Made, EngineError> {
        let of = || children.iter().map(|made| &made.placed.node);
        let texts: Vec<&str> = of().map(|node| node.text.as_str()).collect();
        let tokens: u64 = of().map(|node| node.tokens).sum();
        let ids: Vec<NodeId> = of().map(|node| node.id).collect();
        let node = Node {
            id: *next,
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
        next.0 += 1;
        let services = &self.session.services;
        let written = match self.staging.condensed(&ids) {
            Some(written) => written.clone(),
            None => {
                let most = budget.unwrap_or(self.budgets.node);
                let budget = most.min(tokens / 2).max(LEAST_TEXT);
                let job = Job::condensed(&texts, tokens, budget, self.focus, services);
                match budget == most && children.len() == 1 {
                    true => job.without_model(services),
                    false => self
                        .write(vec![job.clone()], failure)?
                        .pop()
                        .unwrap_or_else(|| job.without_model(services)),
                }
            }
        };
        Ok(self.made(node, written, Under::Nodes(ids)))
    }

    /// Remembers new nodes that a condensed one stands over: they are written, too.
    fn retire(&mut self, children: Vec<Made>) {
        self.retired
            .extend(children.into_iter().filter_map(|made| made.new));
    }

    /// All nodes to be written, children before their parents.
    fn new_nodes(&mut self, runs: &[Vec<Made>]) -> Vec<NewNode> {
        let mut new = std::mem::take(&mut self.retired);
        new.extend(runs.iter().flatten().filter_map(|made| made.new.clone()));
        new.sort_by_key(|new| new.node.id);
        new
    }

    fn entries(&self, arrangement: &Arrangement, runs: &[Vec<Made>]) -> Vec<Entry> {
        let replaced: HashMap<usize, &String> = arrangement
            .replaced
            .iter()
            .map(|(at, text)| (*at, text))
            .collect();
        let mut entries = Vec::new();
        let mut runs = runs.iter();
        for segment in &arrangement.segments {
            match segment {
                Segment::Keep(places) => entries.extend(places.clone().map(|at| {
                    let id = self.views[at].id();
                    match replaced.get(&at) {
                        Some(text) => Entry::Replace(Replacement {
                            id,
                            text: Some((*text).clone()),
                            arguments: Vec::new(),
                        }),
                        None => Entry::Keep(id),
                    }
                })),
                Segment::Run(run) => {
                    let nodes: Vec<&Node> = runs
                        .next()
                        .into_iter()
                        .flatten()
                        .map(|made| &made.placed.node)
                        .collect();
                    let text = block(&nodes);
                    let views = &self.views[run.places.clone()];
                    entries.push(match views {
                        // The same summary stays, byte for byte.
                        [one] if one.kind() == MessageKind::Summary && one.text() == text => {
                            Entry::Keep(one.id())
                        }
                        _ => Entry::Summary {
                            text,
                            covers: views.iter().map(MessageView::id).collect(),
                        },
                    });
                }
            }
        }
        entries
    }

    /// The prompt that these entries come to, in tokens.
    fn after(&self, entries: &[Entry]) -> u64 {
        let tokens: HashMap<MessageId, u64> = self
            .views
            .iter()
            .map(|view| (view.id(), view.tokens()))
            .collect();
        let count = |text: &str| self.session.services.count_tokens(text) + FRAMING_TOKENS;
        entries.iter().fold(self.fixed, |sum, entry| {
            sum + match entry {
                Entry::Keep(id) => tokens.get(id).copied().unwrap_or(0),
                Entry::Replace(new) => new.text.as_deref().map_or(0, count),
                Entry::Summary { text, .. } => count(text),
                Entry::StubResult { text, .. } => count(text),
                Entry::Drop { .. } => 0,
            }
        })
    }

    fn notes(
        &self,
        new: &[NewNode],
        arrangement: &Arrangement,
        after: u64,
        failure: Option<&ModelFailure>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let leaves = new.iter().filter(|new| new.node.depth == 0).count();
        let condensed = new.len() - leaves;
        if !new.is_empty() {
            notes.push(format!(
                "{leaves} leaf summaries and {condensed} condensed ones were made; every message under them can \
                 be had back"
            ));
        }
        let extracted = new.iter().filter(|new| new.degraded).count();
        match failure {
            Some(failure) => notes.push(format!(
                "{extracted} summaries were extracted without the model and will be redone: {failure}"
            )),
            None if extracted > 0 => notes.push(format!(
                "{extracted} summaries were extracted without the model, which nobody could wait for, and \
                 will be redone"
            )),
            None if !self.model_wanted() => notes.push(
                "no summary model is configured, so summaries are extracted from the messages".to_owned(),
            ),
            None => {}
        }
        if !arrangement.replaced.is_empty() {
            notes.push(format!(
                "{} large messages are shown as previews; lcm_read gives them back",
                arrangement.replaced.len()
            ));
        }
        if after >= self.budgets.hard && !self.force {
            notes.push(format!(
                "the prompt still has {after} tokens, and a compaction is due at once from {}: what is left may \
                 not be removed",
                self.budgets.hard
            ));
        }
        notes
    }
}

/// The nodes over messages that stay, and those whose messages stand on both sides of one that does.
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

fn rewrite(placed: &mut Placed, written: &Written) {
    placed.node.text.clone_from(&written.text);
    placed.node.tokens = written.tokens;
    placed.node.level = written.level;
    placed.degraded = false;
}

/// What a node takes in the window, in tokens, about.
fn cost(placed: &Placed) -> u64 {
    placed.node.tokens + HEADING_TOKENS
}

fn sum(views: &[MessageView<'_>]) -> u64 {
    views.iter().map(MessageView::tokens).sum()
}
