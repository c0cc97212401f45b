//! The proposal of a compaction: the entries of the new window, their size, and notes for the user.
//!
//! `propose` has the missing nodes written and counts the tokens of the new window. If it is larger
//! than the goal, the nodes are tightened once. The window is proposed only if it is smaller than
//! the old one, goes below the hard threshold, and leaves enough room until the next compaction.
//!
//! New nodes are stored before the host commits, so that the proposal can name them. Nodes of a
//! discarded proposal are removed again, and the garbage collection finds those that a crash left.

use std::collections::HashMap;

use contexture_digest::{RuleSection, Rules};
use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, Entry, MessageId, MessageKind, MessageView, Outcome, Replacement,
    SUMMARY_MARK, Services, grouped,
};
use contexture_summaries::{Headroom, NO_MODEL, framing_tokens, rule_section, rules_left_out};

use super::arrange::Arrangement;
use super::write::{DraftNode, SummaryWriter};
use super::{Compactor, Proposal, pieces};
use crate::assemble::nodes_in;
use crate::dag::plan::PlanStep;
use crate::dag::{Level, Node, NodeId};
use crate::error::StoreError;
use crate::model_trust::ModelTrust;
use crate::store::nodes::{self, NewNode};

/// What shows a rule: a node, or a summary that stays because its messages were lost with the record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Node(NodeId),
    Summary(MessageId),
}

/// The rules that the window shows, of all summaries in it. A rule is shown in the block with the first
/// node that has it, so that a block does not change when nodes come after it. A rule that only
/// summaries that stay have is shown in the last of these.
struct ShownRules {
    section: RuleSection,
    owner: HashMap<String, Owner>,
}

impl ShownRules {
    /// Takes the rules of these texts, in the order of the window, in at most a tenth of `summaries`
    /// tokens.
    fn of(texts: &[(Owner, &str)], summaries: u64, services: &Services) -> Self {
        let mut rules = Rules::default();
        let mut owner: HashMap<String, Owner> = HashMap::new();
        for (place, text) in texts {
            let mut own = Rules::of_part(&[]);
            own.add_summary(text);
            for rule in own.iter() {
                // What was said again after a summary that stays is newer than the rules there.
                if !matches!(owner.get(rule), Some(Owner::Node(_))) {
                    owner.insert(rule.to_owned(), *place);
                }
            }
            rules.add_summary(text);
        }
        let section = rule_section(&rules, summaries, services);
        Self { section, owner }
    }

    fn of_block(&self, nodes: &[&Node]) -> RuleSection {
        self.owned_by(|owner| nodes.iter().any(|node| owner == Owner::Node(node.id)))
    }

    /// Returns the entry for a summary that stays, with the rules that it shows from now on.
    fn kept(&self, summary: &MessageView<'_>) -> Entry {
        let id = summary.id();
        let section = self.owned_by(|owner| owner == Owner::Summary(id));
        let text = section.within(summary.text());
        // A summary of nothing but rules that others show now would be empty.
        match text == summary.text() || text.trim() == SUMMARY_MARK {
            true => Entry::Keep(id),
            false => Entry::summary(text, vec![id]),
        }
    }

    fn owned_by(&self, is_owner: impl Fn(Owner) -> bool) -> RuleSection {
        (self.section).part(|rule| self.owner.get(rule).copied().is_some_and(&is_owner))
    }
}

impl Compactor<'_, '_> {
    /// Writes the missing nodes and proposes the new window. `floor` is what no compaction may remove,
    /// in tokens. If the result would not help, the outcome says why.
    pub(super) fn propose(
        &self,
        arrangement: &Arrangement,
        floor: u64,
        headroom: &mut Headroom,
        trust: &mut ModelTrust,
    ) -> Result<(Outcome, Option<Proposal>), StoreError> {
        let before = self.before;
        let next = nodes::next_id(&self.session.store, self.session.id)?;
        let mut writer = SummaryWriter::new(self, next, trust);
        writer.write(arrangement)?;

        let mut entries = self.entries(arrangement, &writer.runs);
        let mut after = self.after(&entries);
        // Extracts that would lose most of their text for the goal are shortened only as far as the
        // window needs. That may fail, because their headings stay, and then the goal counts.
        let framing = framing_tokens(&self.session.services);
        let below_hard = self.budgets.hard.saturating_sub(1);
        let loses_most = after.saturating_sub(self.goal) + framing > writer.used() / 2;
        let enough = match loses_most && !self.model_wanted() {
            true => below_hard,
            false => self.goal,
        };
        for (limit, most) in [(enough, enough), (below_hard, self.goal)] {
            if after > limit && !self.order.force {
                writer.tighten(after - most + framing)?;
                entries = self.entries(arrangement, &writer.runs);
                after = self.after(&entries);
            }
        }
        // A window above the hard threshold is still an improvement if the provider would refuse
        // the prompt as it is.
        let saves_the_turn = before >= self.budgets.usable && after < self.budgets.usable;
        if after >= self.budgets.hard && !saves_the_turn && !self.order.force {
            return Ok((self.floor_too_high(floor.max(arrangement.kept)), None));
        }
        if after >= before {
            let reason = format!(
                "a compaction would take the prompt from {} to {} tokens",
                grouped(before),
                grouped(after)
            );
            return Ok((Outcome::NothingToDo(reason), None));
        }

        if let Some(reason) = headroom.refuses(self.order, self.sizes(after)) {
            return Ok((Outcome::Deferred(reason), None));
        }

        let new = writer.new_nodes();
        let (store, session) = (&self.session.store, self.session.id);
        let higher = nodes::add(store, session, &new, next, self.session.services.now_ms())?;
        // Another process may have stored nodes since `next` was read. The store then assigns
        // higher numbers, and the headings in the window have to show those.
        if higher > 0 {
            writer.renumber(next, higher);
            entries = self.entries(arrangement, &writer.runs);
        }
        let made = writer.runs.iter().flatten();
        let frontier: Vec<Node> = made.map(|made| made.node.clone()).collect();
        let extracted = new
            .iter()
            .filter(|new| new.node.level == Level::Deterministic)
            .count();
        let degraded = self.model_wanted() && extracted > 0;
        let mut notes = self.notes(
            &new,
            extracted,
            arrangement,
            after,
            writer.trouble.as_deref(),
        );
        let rules = self.shown_rules(arrangement, &writer.runs);
        notes.extend(rules_left_out(&rules.section));
        let proposal = Proposal {
            frontier,
            better: writer.better,
            added: new
                .iter()
                .map(|new| NodeId(new.node.id.0 + higher))
                .collect(),
            covered: writer.covered,
            took_apart: arrangement.took_apart,
            sizes: self.sizes(after),
            degraded,
        };
        let compaction = Compaction::default()
            .entries(entries)
            .system_note(Some(COMPACTION_NOTE.to_owned()))
            .degraded(degraded)
            .notes(notes);
        Ok((Outcome::Compacted(compaction), Some(proposal)))
    }

    /// Makes the entries of the new window: kept and shortened messages, and the summaries of each
    /// run. `runs` holds the nodes of the runs in the order of the steps.
    fn entries(&self, arrangement: &Arrangement, runs: &[Vec<DraftNode>]) -> Vec<Entry> {
        let replaced: HashMap<usize, &Replacement> = arrangement
            .replaced
            .iter()
            .map(|(at, short)| (*at, short))
            .collect();
        let nodes: HashMap<NodeId, &Node> = (arrangement.frontier.iter())
            .map(|node| (node.id, node))
            .collect();
        let rules = self.shown_rules(arrangement, runs);
        let rules_of = |nodes: &[&Node]| rules.of_block(nodes);
        let covered = |view: &MessageView<'_>| {
            if view.kind() != MessageKind::Summary {
                return Some((view.id(), view.id()));
            }
            let shown = nodes_in(view.text());
            let shown: Option<Vec<&&Node>> = shown.iter().map(|one| nodes.get(&one.id)).collect();
            let shown = shown?;
            let first = shown.iter().map(|node| node.first).min()?;
            Some((first, shown.iter().map(|node| node.last).max()?))
        };
        let mut entries = Vec::new();
        let mut runs = runs.iter();
        for step in &arrangement.steps {
            match step {
                PlanStep::Keep(places) => entries.extend(places.clone().map(|at| {
                    let view = &self.views[at];
                    match replaced.get(&at) {
                        Some(short) => Entry::Replace((*short).clone()),
                        None if view.kind() == MessageKind::Summary => rules.kept(view),
                        None => Entry::Keep(view.id()),
                    }
                })),
                PlanStep::Run(run) => {
                    let nodes: Vec<&Node> = runs
                        .next()
                        .into_iter()
                        .flatten()
                        .map(|made| &made.node)
                        .collect();
                    let views = &self.views[run.places.clone()];
                    entries.extend(pieces::entries(views, &nodes, &rules_of, covered));
                }
            }
        }
        entries
    }

    /// Collects the rules of the nodes of these runs, and of the summaries that stay.
    fn shown_rules(&self, arrangement: &Arrangement, runs: &[Vec<DraftNode>]) -> ShownRules {
        let mut texts: Vec<(Owner, &str)> = Vec::new();
        let mut runs = runs.iter();
        for step in &arrangement.steps {
            match step {
                PlanStep::Keep(places) => {
                    let kept = self.views[places.clone()].iter();
                    let kept = kept.filter(|view| view.kind() == MessageKind::Summary);
                    texts.extend(kept.map(|view| (Owner::Summary(view.id()), view.text())));
                }
                PlanStep::Run(_) => {
                    let nodes = runs.next().into_iter().flatten().map(|made| &made.node);
                    texts.extend(nodes.map(|node| (Owner::Node(node.id), node.text.as_str())));
                }
            }
        }
        ShownRules::of(&texts, self.budgets.summaries, &self.session.services)
    }

    /// Returns the tokens of the prompt with these entries, which includes the system prompt and
    /// the tools.
    fn after(&self, entries: &[Entry]) -> u64 {
        let views: HashMap<MessageId, &MessageView<'_>> =
            self.views.iter().map(|view| (view.id(), view)).collect();
        let framing = framing_tokens(&self.session.services);
        let count = |text: &str| self.session.services.count_tokens(text) + framing;
        entries.iter().fold(self.fixed, |sum, entry| {
            sum + match entry {
                Entry::Keep(id) => views.get(id).map_or(0, |view| view.tokens()),
                Entry::Replace(new) => views
                    .get(&new.id)
                    .map_or(0, |view| self.tokens_of(view, new)),
                Entry::Summary(summary) => count(&summary.text),
                Entry::StubResult(stub) => count(&stub.text),
                // Entries that remove a message count nothing. Entries of other kinds are not
                // proposed by this engine.
                _ => 0,
            }
        })
    }

    /// Returns the notes that tell the user what the compaction did: how many summaries it made,
    /// why some were made without the model, and whether the prompt is still too large.
    fn notes(
        &self,
        new: &[NewNode],
        extracted: usize,
        arrangement: &Arrangement,
        after: u64,
        trouble: Option<&str>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let leaves = new.iter().filter(|new| new.node.depth == 0).count();
        let condensed = new.len() - leaves;
        if !new.is_empty() {
            notes.push(format!(
                "{leaves} leaf summaries and {condensed} condensed ones were made; lcm_expand returns every message \
                 under them"
            ));
        }
        match trouble.or(self.cool_down.as_deref()) {
            Some(reason) if extracted > 0 => notes.push(format!(
                "{extracted} summaries were extracted without the model and will be redone: {reason}"
            )),
            None if extracted > 0 && self.model_wanted() => notes.push(format!(
                "{extracted} summaries were extracted without the model, which nobody could wait for, and \
                 will be redone"
            )),
            None if !self.model_wanted() => notes.push(NO_MODEL.to_owned()),
            _ => {}
        }
        if !arrangement.replaced.is_empty() {
            notes.push(format!(
                "{} large messages are shown as previews; lcm_read gives them back",
                arrangement.replaced.len()
            ));
        }
        if after >= self.budgets.hard && !self.order.force {
            notes.push(format!(
                "the prompt still has {} tokens, and a compaction is due at once from {}: what is left may \
                 not be removed",
                grouped(after),
                grouped(self.budgets.hard)
            ));
        }
        notes
    }
}
