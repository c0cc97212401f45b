//! The third tier: a structured summary in place of all but the newest messages.

use std::collections::{BTreeMap, HashMap};

use contexture_digest::mask_secrets;
use contexture_engine_api::{
    BackgroundCall, Compaction, CompressOrder, CompressRequest, EngineError, Entry, FailureKind,
    MessageId, MessageKind, MessageView, ModelAnswer, ModelFailure, ModelInfo, Outcome,
    Replacement, ToolCallView, roomy, whole_groups,
};
use contexture_summaries::Sizes;
use contexture_summaries::{Pending, Summariser, ask, noted, units};
use serde_json::Value;

use super::{Proposal, Tiered, share};
use crate::event::{COMPACTION_KEY, state_of};
use crate::settings::Summarizer;
use crate::steps::Steps;
use crate::summary::StructuredSummary;
use crate::wording::Question;

/// The share of the trigger that a summary may take.
const SUMMARY_SHARE: f64 = 0.05;
/// The least tokens of a summary.
const MIN_SUMMARY_TOKENS: u64 = 200;
/// A summary is at most this part of what it covers.
const COVERED_PART: u64 = 4;
/// What the host's framing of a summary costs, in tokens, at most.
const FRAMING_TOKENS: u64 = 32;
/// The share of the tier from which the summary is prepared.
const PREPARE_FROM: f64 = 0.9;

/// A summary that is ready.
pub(super) struct Staged {
    covers: Vec<MessageId>,
    text: String,
}

/// What a summary is made from.
struct Covered {
    /// Where its messages stand.
    places: Vec<usize>,
    /// The tokens of the prompt without them.
    left: u64,
    budget: u64,
    /// Kept messages that are shown in compacted form to make room.
    shorter: BTreeMap<MessageId, (Replacement, u64)>,
}

/// How a summary came about.
struct Written {
    summary: StructuredSummary,
    degraded: bool,
    note: String,
}

impl<S: Steps> Tiered<S> {
    /// What a summary would cover: everything but the newest messages. If these leave too little room below `trigger`,
    /// those that the model has seen are compacted. If that is not enough, fewer of them are kept.
    fn covered(&mut self, messages: &[MessageView<'_>], trigger: u64) -> Covered {
        let tokens: Vec<u64> = messages.iter().map(MessageView::tokens).collect();
        let groups = whole_groups(messages);
        let question = messages.iter().rposition(MessageView::is_real_user);
        let question = question.map_or(0..0, |at| {
            let group = groups.iter().find(|group| group.contains(&at));
            group.cloned().unwrap_or(at..at + 1)
        });
        let most = share(trigger, SUMMARY_SHARE).max(MIN_SUMMARY_TOKENS);
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
            // Neither a group nor what stands alone is parted.
            let group = groups
                .iter()
                .find(|group| group.start < cut && cut < group.end);
            let cut = group.map_or(cut, |group| group.start);
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
            let has_room = left + budget + FRAMING_TOKENS <= roomy(trigger);
            if !has_room && shorter.is_none() {
                shorter = Some(self.compacted(messages, unseen));
                continue;
            }
            if keep <= 1 || has_room {
                return Covered {
                    places,
                    left,
                    budget,
                    shorter: shorter.unwrap_or_default(),
                };
            }
            keep /= 2;
        }
    }

    /// The window with a summary in place of what it covers.
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
        sizes.after = covered.left + covered.budget + FRAMING_TOKENS;
        if let Some(reason) = self.headroom.refuses(request.order, sizes) {
            self.waits_for_summary = false;
            return Ok(Outcome::Deferred(reason));
        }
        let written = self.write(messages, &covered, request.order)?;
        let text = written.summary.text();
        if self.services.count_tokens(&text) + FRAMING_TOKENS >= before {
            let reason =
                "the text before the newest messages is too short to be worth a summary".to_owned();
            self.headroom.stop(reason.clone(), &self.window);
            return Ok(Outcome::NothingToDo(reason));
        }
        let ids = covered.places.iter().map(|at| messages[*at].id()).collect();
        let mut leaves = vec![false; messages.len()];
        covered.places.iter().for_each(|at| leaves[*at] = true);
        // What still does not fit is shown compacted, rather than to nobody.
        let mut shorter =
            match covered.left > self.window.usable_tokens().saturating_sub(covered.budget) {
                true => self.compacted(messages, 0),
                false => std::mem::take(&mut covered.shorter),
            };
        let mut entries = vec![Entry::summary(text, ids)];
        let kept = messages.iter().zip(&leaves).filter(|(_, leaves)| !**leaves);
        entries.extend(
            kept.map(|(message, _)| match shorter.remove(&message.id()) {
                Some((form, _)) => Entry::Replace(form),
                None => Entry::Keep(message.id()),
            }),
        );
        self.proposal = Some(Proposal {
            summary: Some(written.summary),
            degraded: written.degraded,
            sizes: Some(sizes),
            prunes: false,
        });
        let compaction = Compaction::new(entries).degraded(written.degraded);
        Ok(Outcome::Compacted(compaction.notes(vec![written.note])))
    }

    fn write(
        &mut self,
        messages: &[MessageView<'_>],
        covered: &Covered,
        order: &CompressOrder,
    ) -> Result<Written, EngineError> {
        let originals = originals(messages, &covered.places);
        let calls = calls_as_said(messages, &covered.places, &originals);
        let material = Material::of(messages, &covered.places, &originals, &calls);
        let now = self.services.now_ms();
        let earlier = material.earlier.clone();
        let (said, budget) = (&material.said, covered.budget);
        if let Some(own) = self.steps.summarise(said) {
            return Ok(Written {
                summary: own.filled(said, earlier.as_ref(), now),
                degraded: false,
                note: "the summary is this engine's own".to_owned(),
            });
        }
        let extracted =
            || StructuredSummary::extracted(said, earlier.as_ref(), budget, &self.services);
        let model = self.services.model();
        let model = model.filter(|_| self.settings.summarizer == Summarizer::Model);
        let (summary, degraded, note) = match model {
            None => (
                extracted(),
                false,
                "no summary model is configured, so the summary was extracted from the messages"
                    .to_owned(),
            ),
            Some(model) => {
                let ids: Vec<MessageId> =
                    covered.places.iter().map(|at| messages[*at].id()).collect();
                let answer = match self.prepared(&ids, &material, budget) {
                    Some(prepared) => Ok(prepared),
                    None if order.may_wait_for_model => {
                        let summariser = self.summariser(&model, &material, budget, order);
                        ask(summariser, &model, &mut self.cool_downs, order.force)?
                            .map(|text| Self::read(&text))
                    }
                    None => Err(
                        "the summary model's answer was not ready, and nobody may wait for it"
                            .to_owned(),
                    ),
                };
                match answer {
                    Ok(summary) => (summary, false, format!("{} wrote the summary", model.name)),
                    Err(reason) => (
                        StructuredSummary::extracted(
                            said,
                            earlier.as_ref(),
                            budget,
                            &self.services,
                        ),
                        true,
                        format!(
                            "the summary was extracted from the messages without a model: {reason}"
                        ),
                    ),
                }
            }
        };
        let summary = summary.filled(said, earlier.as_ref(), now);
        Ok(Written {
            summary: summary.cut_to(budget, &self.services),
            degraded,
            note,
        })
    }

    /// What the model wrote; the figures are the engine's own.
    fn read(text: &str) -> StructuredSummary {
        StructuredSummary::read(text)
            .unwrap_or_default()
            .without_figures()
    }

    fn summariser(
        &self,
        model: &ModelInfo,
        material: &Material<'_>,
        budget: u64,
        order: &CompressOrder,
    ) -> Summariser {
        let question = Question {
            previous: material.previous(),
            focus: order.focus.clone(),
            budget,
        };
        let mut units = material.units.clone();
        units.extend(
            order
                .memory
                .iter()
                .map(|memory| format!("[memory] {memory}")),
        );
        Summariser::new(
            Box::new(question),
            units,
            model.context_length,
            self.services.clone(),
        )
    }

    /// The summary that was prepared, with what came since read into it.
    fn prepared(
        &self,
        ids: &[MessageId],
        material: &Material<'_>,
        budget: u64,
    ) -> Option<StructuredSummary> {
        let staged = self.staged.as_ref()?;
        if !staged.covers.iter().all(|id| ids.contains(id)) {
            return None;
        }
        let summary = Self::read(&staged.text);
        let rest = material
            .said
            .iter()
            .filter(|message| !staged.covers.contains(&message.id()));
        let rest: Vec<MessageView<'_>> = rest.copied().collect();
        match rest.is_empty() {
            true => Some(summary),
            false => Some(StructuredSummary::extracted(
                &rest,
                Some(&summary),
                budget,
                &self.services,
            )),
        }
    }

    /// The model calls for the summary in the making, or for the one to make next.
    pub(super) fn calls_to_make(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let model = self.services.model();
        let Some(model) = model.filter(|_| self.settings.summarizer == Summarizer::Model) else {
            return Vec::new();
        };
        let window = &request.order.window;
        let tiers = self.settings.thresholds.tiers(window);
        let is_near = window.is_near(tiers.summary, roomy(tiers.compaction), PREPARE_FROM);
        let is_wanted = is_near && self.settings.enable_context_management;
        if self.cool_downs.in_force().is_some() {
            return Vec::new();
        }
        if self.pending.is_none() && self.staged.is_none() && is_wanted {
            let covered = self.covered(request.messages, tiers.compaction);
            let originals = originals(request.messages, &covered.places);
            let calls = calls_as_said(request.messages, &covered.places, &originals);
            let material = Material::of(request.messages, &covered.places, &originals, &calls);
            if !material.said.is_empty() {
                let summariser = self.summariser(&model, &material, covered.budget, request.order);
                let ids = covered.places.iter().map(|at| request.messages[*at].id());
                self.pending = Some(Pending::new((), ids.collect(), model.name, summariser));
            }
        }
        match &mut self.pending {
            Some(pending) => pending.calls(&mut self.last_call),
            None => Vec::new(),
        }
    }

    /// Stages what an answer completes.
    pub(super) fn take_answer(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let finished = self
            .pending
            .as_mut()
            .and_then(|pending| pending.answered(id, answer));
        let Some(finished) = finished else { return };
        let Some(pending) = self.pending.take() else {
            return;
        };
        match finished {
            Ok(text) => {
                self.cool_downs.succeeded();
                let covers = pending.covers;
                self.staged = Some(Staged { covers, text });
            }
            // The host gave the call up for reasons of its own; the model is not to blame.
            Err(failure) if failure.kind == FailureKind::Cancelled => {}
            Err(failure) => self.cool_downs.failed(&pending.model, &failure),
        }
    }
}

/// The kept original of a compacted message.
struct Original {
    content: String,
    /// The arguments of its calls that were cut, each with the call's index.
    arguments: Vec<(usize, String)>,
}

/// The originals of compacted messages.
fn originals(messages: &[MessageView<'_>], places: &[usize]) -> Vec<Option<Original>> {
    let original = |at: &usize| {
        let kept = state_of(&messages[*at]).remove(COMPACTION_KEY)?;
        let arguments = kept.get("original_arguments").and_then(Value::as_array);
        let arguments = arguments.into_iter().flatten().filter_map(|call| {
            let index = usize::try_from(call.get("index")?.as_u64()?).ok()?;
            Some((index, call.get("arguments")?.as_str()?.to_owned()))
        });
        Some(Original {
            content: kept.get("original_content")?.as_str()?.to_owned(),
            arguments: arguments.collect(),
        })
    };
    places.iter().map(original).collect()
}

/// The original calls of compacted messages; `None` for a message whose calls were not cut.
fn calls_as_said<'a>(
    messages: &[MessageView<'a>],
    places: &[usize],
    originals: &'a [Option<Original>],
) -> Vec<Vec<ToolCallView<'a>>> {
    let calls = |(at, original): (&usize, &'a Option<Original>)| {
        let cut = original.as_ref().map_or(&[][..], |it| &it.arguments);
        if cut.is_empty() {
            return Vec::new();
        }
        let calls = messages[*at].tool_calls().iter().enumerate();
        let as_said = calls.map(|(index, call)| {
            let whole = cut.iter().find(|(of, _)| *of == index);
            let arguments = whole.map_or(call.arguments(), |(_, arguments)| arguments.as_str());
            ToolCallView::new(call.id(), call.name(), arguments)
        });
        as_said.collect()
    };
    places.iter().zip(originals).map(calls).collect()
}

/// Messages as a summary reads them: compacted ones as they were said.
struct Material<'a> {
    said: Vec<MessageView<'a>>,
    /// The earlier summary, where it is one of this engine's.
    earlier: Option<StructuredSummary>,
    /// The texts of other earlier summaries.
    others: Vec<&'a str>,
    units: Vec<String>,
}

impl<'a> Material<'a> {
    fn of(
        messages: &[MessageView<'a>],
        places: &[usize],
        originals: &'a [Option<Original>],
        calls: &'a [Vec<ToolCallView<'a>>],
    ) -> Self {
        let mut material = Self {
            said: Vec::with_capacity(places.len()),
            earlier: None,
            others: Vec::new(),
            units: Vec::new(),
        };
        for ((at, original), calls) in places.iter().zip(originals).zip(calls) {
            let message = messages[*at];
            match (message.kind(), original) {
                (MessageKind::Summary, _) => match StructuredSummary::read(message.text()) {
                    Some(summary) => material.earlier = Some(summary),
                    None => {
                        material.others.push(message.text());
                        // The engine reads what another's says as it reads what was said.
                        material.said.push(message);
                    }
                },
                (_, Some(original)) => {
                    let as_said = message
                        .with_text(&original.content)
                        .with_kind(MessageKind::Original);
                    material.said.push(match calls.is_empty() {
                        true => as_said,
                        false => as_said.with_tool_calls(calls),
                    });
                }
                (_, None) => material.said.push(message),
            }
        }
        let mut callers: HashMap<&str, &MessageView<'a>> = HashMap::new();
        let mut with_callers = Vec::with_capacity(material.said.len());
        for message in material
            .said
            .iter()
            .filter(|message| message.kind() != MessageKind::Summary)
        {
            callers.extend(message.tool_calls().iter().map(|call| (call.id(), message)));
            let caller = message.tool_call_id().and_then(|id| callers.get(id));
            with_callers.push((message, caller.copied()));
        }
        material.units = units(&noted(with_callers.into_iter(), &[]));
        material
    }

    fn previous(&self) -> Option<String> {
        let own = self.earlier.as_ref().map(StructuredSummary::text);
        let others = self
            .others
            .iter()
            .map(|text| mask_secrets(text).into_owned());
        let texts: Vec<String> = others.chain(own).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }
}
