//! The proposal: the entries of the new window, what they come to, and what a person should know of them.

use std::collections::HashMap;

use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, EngineError, Entry, MessageId, MessageKind, MessageView,
    ModelFailure, Outcome, Replacement,
};

use super::arrange::Arrangement;
use super::write::{Made, Writer};
use super::{Compacted, Compactor, FRAMING_TOKENS, Proposal};
use crate::assemble::block;
use crate::dag::plan::Segment;
use crate::dag::{Node, Under};
use crate::nodes::{self, NewNode, Placed};

impl Compactor<'_, '_> {
    pub(super) fn propose(
        &self,
        arrangement: &Arrangement,
        before: u64,
        floor: u64,
    ) -> Result<Compacted, EngineError> {
        let next = nodes::next_id(&self.session.store, self.session.id)?;
        let mut writer = Writer::new(self, next);
        writer.write(arrangement)?;

        let entries = self.entries(arrangement, &writer.runs);
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

        let frontier: Vec<Placed> = writer
            .runs
            .iter()
            .flatten()
            .map(|made| made.placed.clone())
            .collect();
        let new = writer.new_nodes();
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
        let notes = self.notes(&new, arrangement, after, writer.failure.as_ref());
        let proposal = Proposal {
            frontier,
            better: writer.better,
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
        Ok(Compacted::Proposed(
            Box::new(proposal),
            compaction,
            writer.failure,
        ))
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
