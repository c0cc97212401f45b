//! The third tier: a structured summary that replaces all but the newest messages.
//!
//! `covered` decides which messages the summary replaces and how many tokens it may have.
//! `summarised` writes it and proposes the new window, and `prepare` starts it between turns so
//! that nobody has to wait. `Material` is the [`Task`] that connects this engine to the summary
//! cycle. It gives the model the original texts of compacted messages, since a summary of
//! `[COMPACTED: …]` lines would say nothing. The fields of a summary are defined in `summary`, the
//! prompts in `wording`.

use std::collections::BTreeMap;

use contexture_digest::{Digest, RuleSection, Rules, WorkRecord, without_rules};
use contexture_engine_api::{
    Compaction, CompressOrder, CompressRequest, EngineError, Entry, LogLevel, MessageId,
    MessageKind, MessageView, Outcome, OwnedMessage, Replacement, Services, ToolCallView, roomy,
};
use contexture_secrets::mask_secrets;
use contexture_summaries::{
    Groups, Prompts, Ready, Sizes, Task, WrittenSummary, framing_tokens, material, rule_section,
    tokens_beside, unmarked,
};

use super::restoring::Short;
use super::{Proposal, Tiered, share};
use crate::event::state_of;
use crate::steps::Steps;
use crate::summary::StructuredSummary;
use crate::wording::Question;

/// The largest share of the trigger that a summary may take, even if it covers so much that its own
/// limit would allow more.
const SUMMARY_SHARE: f64 = 0.05;
const MIN_SUMMARY_TOKENS: u64 = 200;
/// A summary has at most one part in this many of the tokens that it covers.
const COVERED_PART: u64 = 4;
/// The share of the summary tier from which the summary is prepared in the background.
const PREPARE_FROM: f64 = 0.9;

/// What a summary covers: the positions of its messages, the tokens of the prompt without them, and
/// the budget of the summary in tokens. `largest` is that of the largest summary, of which the rules of
/// users have their share.
struct Covered {
    places: Vec<usize>,
    left: u64,
    budget: u64,
    largest: u64,
    /// Kept messages that are compacted to make room, with the tokens that each saves.
    shorter: BTreeMap<MessageId, (Replacement, u64)>,
}

impl<S: Steps> Tiered<S> {
    /// Decides what a summary covers: everything but the newest messages. If these leave too little
    /// room below `trigger`, those that the model has seen are compacted. If that is not enough,
    /// fewer of them are kept.
    fn covered(&mut self, messages: &[MessageView<'_>], trigger: u64) -> Covered {
        let tokens: Vec<u64> = messages.iter().map(MessageView::tokens).collect();
        let groups = Groups::of(messages);
        let question = messages.iter().rposition(MessageView::is_real_user);
        let question = question.map_or(0..0, |at| groups.whole(at));
        let framing = framing_tokens(&self.services);
        let most = share(trigger, SUMMARY_SHARE).max(MIN_SUMMARY_TOKENS);
        // Everything from the last assistant message on is new to the model and stays readable.
        let unseen = messages
            .iter()
            .rposition(|message| message.role() == "assistant")
            .map_or(0, |at| messages.len() - at);
        let mut shorter: Option<BTreeMap<MessageId, (Replacement, u64)>> = None;
        let mut keep = self.settings.thresholds.keep_recent_count;
        loop {
            let cut = self
                .steps
                .clear_summarised(messages, keep)
                .min(messages.len());
            let cut = groups.cut_before(cut);
            let stays = |at: &usize| *at >= cut || question.contains(at);
            let places: Vec<usize> = (0..cut).filter(|at| !stays(at)).collect();
            let left: u64 = (0..messages.len())
                .filter(stays)
                .map(|at| {
                    match shorter
                        .as_ref()
                        .and_then(|forms| forms.get(&messages[at].id()))
                    {
                        Some((_, saved)) => tokens[at].saturating_sub(*saved),
                        None => tokens[at],
                    }
                })
                .sum();
            let left = self.window.fixed_tokens + left;
            let covered: u64 = places.iter().map(|at| tokens[*at]).sum();
            let budget = (covered / COVERED_PART).clamp(MIN_SUMMARY_TOKENS, most);
            let has_room = left + budget + framing <= roomy(trigger);
            if !has_room && shorter.is_none() {
                shorter = Some(self.compacted(messages, unseen));
                continue;
            }
            if keep <= 1 || has_room {
                return Covered {
                    places,
                    left,
                    budget,
                    largest: most,
                    shorter: shorter.unwrap_or_default(),
                };
            }
            keep /= 2;
        }
    }

    /// Proposes the window with a summary in place of the messages that it covers. Does nothing if
    /// only summaries would be covered, if the room gained is too small, or if the summary would be
    /// no shorter than the text.
    pub(super) fn summarised(
        &mut self,
        request: &CompressRequest<'_>,
        mut sizes: Sizes,
    ) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        let mut covered = self.covered(messages, sizes.trigger);
        let is_new = |at: &usize| messages[*at].kind() != MessageKind::Summary;
        let before: u64 = covered.places.iter().map(|at| messages[*at].tokens()).sum();
        if !covered.places.iter().any(is_new) {
            let reason = "there is nothing before the newest messages".to_owned();
            self.headroom.stop(reason.clone(), &self.window);
            return Ok(Outcome::NothingToDo(reason));
        }
        let framing = framing_tokens(&self.services);
        // Checked with the full budget, before a model is asked for nothing.
        sizes.after = covered.left + covered.budget + framing;
        if let Some(reason) = self.headroom.refuses(request.order, sizes) {
            self.waits_for_summary = false;
            return Ok(Outcome::Deferred(reason));
        }
        let written = self.write(messages, &covered, request.order)?;
        let text = written.text.clone();
        if self.services.count_tokens(&text) + framing >= before {
            let reason =
                "the text before the newest messages is too short to be worth a summary".to_owned();
            self.headroom.stop(reason.clone(), &self.window);
            return Ok(Outcome::NothingToDo(reason));
        }
        let ids = covered.places.iter().map(|at| messages[*at].id()).collect();
        let mut leaves = vec![false; messages.len()];
        covered.places.iter().for_each(|at| leaves[*at] = true);
        // Whatever still does not fit is compacted, because otherwise no model could read the
        // prompt at all.
        let mut shorter = match self.window.has_room_for(covered.left + covered.budget) {
            true => std::mem::take(&mut covered.shorter),
            false => self.compacted(messages, 0),
        };
        let mut entries = vec![Entry::summary(text, ids)];
        let kept = messages.iter().zip(&leaves).filter(|(_, leaves)| !**leaves);
        entries.extend(
            kept.map(|(message, _)| match shorter.remove(&message.id()) {
                Some((form, _)) => Entry::Replace(form),
                None => Entry::Keep(message.id()),
            }),
        );
        let compaction = Compaction::new(entries).degraded(written.degraded);
        let compaction = compaction.notes(vec![written.note.clone()]);
        self.proposal = Some(Proposal {
            written: Some(written),
            sizes: Some(sizes),
            prunes: false,
        });
        Ok(Outcome::Compacted(compaction))
    }

    fn write(
        &mut self,
        messages: &[MessageView<'_>],
        covered: &Covered,
        order: &CompressOrder,
    ) -> Result<WrittenSummary, EngineError> {
        let originals = self.originals_in(messages, &covered.places)?;
        let calls = calls_of(&originals);
        let material = self.material(messages, covered, order, &originals, &calls);
        match self.steps.summarise(&material.said) {
            Some(own) => {
                let text = material.filled(own).text();
                let note = "the summary is this engine's own";
                Ok(WrittenSummary::new(&material, text, note))
            }
            None => self.cycle.write(&material, order),
        }
    }

    /// Starts the next summary once its tier is near. Nothing happens if context management is off
    /// or another summary is open.
    pub(super) fn prepare(&mut self, request: &CompressRequest<'_>) {
        let (messages, order) = (request.messages, request.order);
        let tiers = self.settings.thresholds.tiers(&order.window);
        let after = roomy(tiers.compaction);
        let is_near = order.window.is_near(tiers.summary, after, PREPARE_FROM);
        if !is_near || !self.settings.enable_context_management || !self.cycle.is_idle() {
            return;
        }
        let covered = self.covered(messages, tiers.compaction);
        let originals = match self.originals_in(messages, &covered.places) {
            // A failed read is only logged: the summary can still be written when it is due.
            Ok(originals) => originals,
            Err(error) => return self.services.log(LogLevel::Warn, &error.to_string()),
        };
        let calls = calls_of(&originals);
        let material = self.material(messages, &covered, order, &originals, &calls);
        if !material.said.is_empty() {
            self.cycle.prepare(&material);
        }
    }

    fn material<'a>(
        &self,
        messages: &[MessageView<'a>],
        covered: &Covered,
        order: &CompressOrder,
        originals: &'a BTreeMap<MessageId, OwnedMessage>,
        calls: &'a BTreeMap<MessageId, Vec<ToolCallView<'a>>>,
    ) -> Material<'a> {
        let mut material = Material {
            ids: covered.places.iter().map(|at| messages[*at].id()).collect(),
            said: Vec::with_capacity(covered.places.len()),
            earlier: None,
            previous: None,
            memory: order.memory.clone(),
            focus: order.focus.clone(),
            budget: covered.budget,
            rules: RuleSection::default(),
            services: self.services.clone(),
        };
        let mut earlier = Vec::new();
        let mut rules = Rules::default();
        for at in &covered.places {
            let message = messages[*at];
            match (message.kind(), originals.get(&message.id())) {
                (MessageKind::Summary, _) => {
                    rules.add_summary(message.text());
                    if let Some(summary) = self.earlier(message.text()) {
                        material.earlier = Some(summary);
                    } else {
                        let body = without_rules(message.text());
                        earlier.push(mask_secrets(&body).into_owned());
                        // A summary of another engine cannot be read as fields, so it is treated as
                        // ordinary text too.
                        material.said.push(message);
                    }
                }
                (_, Some(original)) => {
                    let as_said = message
                        .with_text(&original.text)
                        .with_kind(MessageKind::Original);
                    rules.add_message(&as_said);
                    material.said.push(match calls.get(&message.id()) {
                        Some(calls) if !calls.is_empty() => as_said.with_tool_calls(calls),
                        _ => as_said,
                    });
                }
                (_, None) => {
                    rules.add_message(&message);
                    material.said.push(message);
                }
            }
        }
        material.rules = rule_section(&rules, covered.largest, &self.services);
        material.budget = tokens_beside(&material.rules, covered.budget, &self.services);
        earlier.extend(material.earlier.as_ref().map(StructuredSummary::text));
        material.previous = (!earlier.is_empty()).then(|| earlier.join("\n\n"));
        material
    }

    /// Reads the original texts of the compacted messages at these positions from the transcript.
    /// Messages that are not compacted are not in the result.
    fn originals_in(
        &self,
        messages: &[MessageView<'_>],
        places: &[usize],
    ) -> Result<BTreeMap<MessageId, OwnedMessage>, EngineError> {
        let short = |at: &usize| {
            let message = &messages[*at];
            let short = Short::of(message.text().to_owned(), &state_of(message))?;
            Some((message.id(), short))
        };
        self.originals(&places.iter().filter_map(short).collect())
    }

    /// Reads this engine's summary in a text, or returns `None` if it holds none. If the model has
    /// rewritten the words since, they replace the old ones, and the figures stay.
    fn earlier(&self, text: &str) -> Option<StructuredSummary> {
        let summary = StructuredSummary::read(text)?;
        let better = self.cycle.better(&unmarked(text));
        let better = better.as_deref().and_then(StructuredSummary::read);
        Some(match better {
            Some(better) => StructuredSummary {
                count: summary.count,
                time_range: summary.time_range,
                timestamp: summary.timestamp,
                ..better
            },
            None => summary,
        })
    }
}

/// The calls of these messages with their original arguments, in the form that message views need.
fn calls_of(
    originals: &BTreeMap<MessageId, OwnedMessage>,
) -> BTreeMap<MessageId, Vec<ToolCallView<'_>>> {
    let calls = (originals.iter()).map(|(id, original)| (*id, original.call_views()));
    calls.collect()
}

/// What a summary is made from: the messages that it covers, with compacted ones in their original
/// texts, and what goes into the prompt beside them.
struct Material<'a> {
    ids: Vec<MessageId>,
    said: Vec<MessageView<'a>>,
    earlier: Option<StructuredSummary>,
    /// The texts of all earlier summaries that this one updates, joined by blank lines. Those of
    /// other engines are included.
    previous: Option<String>,
    memory: Option<String>,
    focus: Option<String>,
    /// The tokens of the summary without the rules.
    budget: u64,
    rules: RuleSection,
    services: Services,
}

impl Material<'_> {
    /// Fills in the figures, which the engine knows better than a model: the number of messages,
    /// their times, and the time now.
    fn filled(&self, summary: StructuredSummary) -> StructuredSummary {
        summary.filled(&self.said, self.earlier.as_ref(), self.services.now_ms())
    }

    fn completed(&self, summary: StructuredSummary) -> String {
        let summary = self.filled(summary.without_figures());
        summary.cut_to(self.budget, &self.services).text()
    }
}

impl Task for Material<'_> {
    fn covers(&self) -> Vec<MessageId> {
        self.ids.clone()
    }

    fn previous(&self) -> Option<&str> {
        self.previous.as_deref()
    }

    fn prompts(&self, _facts: Option<String>) -> Box<dyn Prompts> {
        Box::new(Question {
            previous: self.previous.clone(),
            focus: self.focus.clone(),
            budget: self.budget,
        })
    }

    fn material(&self) -> Vec<String> {
        let said = self.said.iter().copied();
        let said = said.filter(|message| message.kind() != MessageKind::Summary);
        let memory = self
            .memory
            .iter()
            // The model's figures are discarded in `completed`, which counts the messages itself.
            .map(|memory| format!("[memory] {memory}"));
        let said = material(&said.collect::<Vec<_>>());
        said.into_iter().chain(memory).collect()
    }

    fn extract(&self, ready: Option<&Ready>) -> String {
        let (budget, services) = (self.budget, &self.services);
        let extracted = |said: &[MessageView<'_>], earlier: Option<&StructuredSummary>| {
            StructuredSummary::extracted(said, earlier, &self.rules, budget, services)
        };
        self.completed(match ready {
            None => extracted(&self.said, self.earlier.as_ref()),
            Some(ready) => {
                let earlier = StructuredSummary::read(&ready.text).unwrap_or_default();
                extracted(&ready.rest(&self.said), Some(&earlier))
            }
        })
    }

    fn rules(&self) -> RuleSection {
        self.rules.clone()
    }

    fn work_record(&self) -> WorkRecord {
        let digest = Digest::of(&self.said, None);
        digest.work_record(self.previous().unwrap_or_default())
    }

    fn finish(&self, text: String) -> String {
        self.completed(StructuredSummary::read(&text).unwrap_or_default())
    }
}
