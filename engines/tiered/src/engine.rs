//! [`Tiered`], the engine itself: which tier the conversation is in, what to propose and what to
//! restore.
//!
//! `should_compress` compares the prompt with the two tiers. `compress` first tries to compact
//! single messages, and if that does not make enough room, it waits for the second tier and writes
//! a summary. `rewrite` runs before each request and restores messages that were asked for. The
//! summary is built in `summarising`, the tool and the restoration in `restoring`. What a compacted
//! message looks like is decided by the [`Steps`].

mod restoring;
mod summarising;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Decision,
    Delivery, EngineError, Entry, Floor, HostInfo, MessageId, MessageKind, MessageView,
    ModelAnswer, ModelFailure, OpenRequest, Outcome, Replacement, Services, StandaloneEngine,
    ToolCall, ToolPairs, ToolSpec, WindowState, grouped, in_flight, roomy, thinking_leads_to,
};
use contexture_summaries::{
    Headroom, SEAL_TOKENS, Sizes, SummaryCycle, WrittenSummary, keep_rules,
};
use serde_json::{Value, json};

use crate::event::{Event, MARK};
use crate::settings::{Settings, Summarizer, schema};
use crate::steps::{Standard, Steps};
use crate::summary::StructuredSummary;
use restoring::Short;

/// The share of the summary tier that compacting single messages must save to be proposed unless it
/// is forced.
const MIN_SAVING: f64 = 0.01;

const OFF: &str = "context management is off (`enable_context_management`): ask for it";

/// The engine of one session, with its steps. `S` decides how single messages are compacted and how
/// summaries are made. [`Standard`] is the engine's own way.
pub struct Tiered<S = Standard> {
    steps: S,
    settings: Settings,
    session: String,
    services: Services,
    cycle: SummaryCycle,
    window: WindowState,
    proposal: Option<Proposal>,
    /// The compacted messages that the window shows, with the texts that replaced them. After a
    /// restart they come from the current compaction.
    kept: BTreeMap<MessageId, Short>,
    /// Messages to restore at the next request, because the model or a user asked for them.
    wishes: BTreeSet<MessageId>,
    /// Those of the `wishes` that came from a tool call, until the host fetches them with
    /// `wants_restored`.
    asked: BTreeSet<MessageId>,
    /// Messages that were restored once, by the tool or by a user. They are not compacted again, or
    /// the model would have to ask for them over and over.
    restored: BTreeSet<MessageId>,
    headroom: Headroom,
    /// True if compacting single messages would not make enough room, so that the next step is a
    /// summary.
    waits_for_summary: bool,
    summary: Option<StructuredSummary>,
    compactions: u64,
}

/// A proposal that the host has neither committed nor discarded. `sizes` is `None` if they were not
/// computed.
#[derive(Default)]
struct Proposal {
    written: Option<WrittenSummary>,
    sizes: Option<Sizes>,
    /// Whether only tool results were to be shortened. If the host refuses that, all other ways to
    /// make room are still open.
    prunes: bool,
}

impl<S: Steps> StandaloneEngine for Tiered<S> {
    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schema()))
            .reads_transcript(true)
            .rewrites(true)
            .marks(vec![MARK.to_owned()])
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let texts = request.compaction.map(|current| &current.summaries);
        let shortened = request.compaction.map(|current| &current.shortened);
        let kept = shortened.into_iter().flatten().filter_map(|shortened| {
            let shown = shortened.text.clone().unwrap_or_default();
            let state = shortened.state.as_ref()?.as_object()?;
            Some((shortened.id, Short::of(shown, state)?))
        });
        let settings: Settings = request.settings()?;
        let uses_model = settings.summarizer == Summarizer::Model;
        let cycle = SummaryCycle::open(request.data_dir, request.services.clone());
        Ok(Self {
            kept: kept.collect(),
            steps: S::default(),
            settings,
            session: request.session.to_owned(),
            cycle: cycle.using_model(uses_model),
            services: request.services.clone(),
            window: request.window.clone(),
            proposal: None,
            wishes: BTreeSet::new(),
            asked: BTreeSet::new(),
            restored: BTreeSet::new(),
            headroom: Headroom::default(),
            waits_for_summary: false,
            summary: texts.and_then(|texts| StructuredSummary::read(texts.last()?)),
            compactions: 0,
        })
    }
}

impl<S: Steps> ContextEngine for Tiered<S> {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let tokens = window.best_prompt_tokens();
        let tiers = self.settings.thresholds.tiers(window);
        let figures = format!(
            "{} tokens; compaction from {}, a summary from {}",
            grouped(tokens),
            grouped(tiers.compaction),
            grouped(tiers.summary)
        );
        // A host may ask for the decision although the engine does nothing automatically, so the
        // figures are part of the answer.
        if !self.settings.enable_context_management {
            return Decision::No(format!("{OFF}; {figures}"));
        }
        if tokens < tiers.compaction {
            return Decision::No(figures);
        }
        let after = roomy(tiers.compaction);
        // The earlier attempt failed at single messages. A summary is a different one, so
        // `headroom` does not hold it back.
        let decision = match self.waits_for_summary && tokens >= tiers.summary {
            true => window.may_compact(after),
            false => self.headroom.decide(window, after),
        };
        match decision {
            Decision::Yes(_) => Decision::Yes(figures),
            decision => decision,
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.proposal = None;
        let order = request.order;
        self.window = order.window.clone();
        // The host's own limit must not override the user's decision to turn automatic management
        // off.
        if order.by_hygiene && !self.settings.enable_context_management {
            let tokens = order.window.best_prompt_tokens();
            let floor = Floor::default().tokens(tokens).reason(OFF.to_owned());
            return Ok(Outcome::FloorTooHigh(floor));
        }
        let decision = self.should_compress(&order.window);
        if !order.force && !decision.is_yes() {
            return Ok(Outcome::NothingToDo(decision.reason().to_owned()));
        }
        let tokens = order.window.best_prompt_tokens();
        let tiers = self.settings.thresholds.tiers(&order.window);
        let before = order.window.fixed_tokens
            + request
                .messages
                .iter()
                .map(MessageView::tokens)
                .sum::<u64>();
        let sizes = |after| Sizes {
            before,
            after,
            trigger: tiers.counted(before, &order.window).compaction,
        };
        // A forced order tries the reversible step first, even if the prompt is already in the
        // summary tier.
        if order.force || tokens < tiers.summary {
            let keep = self.settings.thresholds.keep_recent_count;
            let compacted = self.compacted(request.messages, keep);
            let saved: u64 = compacted.values().map(|(_, saved)| saved).sum();
            let is_worth_it = match order.force {
                true => saved > 0,
                false => saved >= share(tiers.summary, MIN_SAVING).max(1),
            };
            let sizes = sizes(before.saturating_sub(saved));
            let refused = self.headroom.refuses(order, sizes);
            if is_worth_it && refused.is_none() {
                let outcome = self.proposed(request.messages, compacted);
                self.proposal = Some(Proposal {
                    sizes: Some(sizes),
                    ..Proposal::default()
                });
                return Ok(outcome);
            }
            if !order.force {
                let reason = format!(
                    "{}; a summary follows at {} tokens",
                    match refused {
                        Some(refused) if is_worth_it => refused,
                        _ => format!("all but the newest {keep} messages are compacted"),
                    },
                    grouped(tiers.summary)
                );
                // With this, `should_compress` lets a summary through once its tier is reached,
                // although the headroom is stopped below.
                self.waits_for_summary = true;
                self.headroom.stop(reason.clone(), &order.window);
                return Ok(Outcome::Deferred(reason));
            }
        }
        self.summarised(request, sizes(before))
    }

    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        self.proposal = None;
        if request.order.by_hygiene && !self.settings.enable_context_management {
            return Ok(Outcome::NothingToDo(OFF.to_owned()));
        }
        // With 0 the newest messages are included too, because only tool results are shortened
        // here.
        let mut compacted = self.compacted(request.messages, 0);
        let tools: BTreeSet<MessageId> = (request.messages.iter())
            .filter(|message| message.role() == "tool")
            .map(MessageView::id)
            .collect();
        compacted.retain(|id, _| tools.contains(id));
        match compacted.is_empty() {
            true => Ok(Outcome::NothingToDo(
                "there is no long tool result".to_owned(),
            )),
            false => {
                let outcome = self.proposed(request.messages, compacted);
                self.proposal = Some(Proposal {
                    prunes: true,
                    ..Proposal::default()
                });
                Ok(outcome)
            }
        }
    }

    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        self.proposal = None;
        self.window = request.order.window.clone();
        Ok(self.restoration(request.messages))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        for (_, old) in delivery.revisions {
            self.kept.remove(old);
        }
        if let Some(cut) = delivery.cut {
            // A revised message has a new id, so the entry of the old one is useless.
            self.kept.retain(|id, _| cut.keeps(*id));
            self.start_over();
        }
        self.cycle.observe(delivery);
        Ok(())
    }

    fn committed(&mut self, committed: &Committed) {
        // Restorations arrive without a proposal, so they are recorded before the early return.
        self.note_restored(committed);
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        for entry in &committed.entries {
            if let Entry::Replace(Replacement {
                id,
                text,
                state: Some(Value::Object(state)),
                ..
            }) = entry
            {
                let short = Short::of(text.clone().unwrap_or_default(), state);
                self.kept.extend(short.map(|short| (*id, short)));
            }
        }
        self.compactions += 1;
        self.start_over();
        if let Some(sizes) = proposal.sizes {
            self.headroom.committed(&self.window, sizes);
        }
        let written = proposal.written;
        if let Some(summary) = (written.as_ref()).and_then(|it| StructuredSummary::read(&it.text)) {
            self.steps.store_summary(&self.session, &summary);
            self.summary = Some(summary);
        }
        self.cycle.committed(written);
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        // A refused pruning says nothing about the room that a compaction can make.
        if self
            .proposal
            .take()
            .is_some_and(|proposal| !proposal.prunes)
        {
            (self.headroom).refused(compaction, reason, &self.window, &self.services);
        }
    }

    fn tools(&self) -> Vec<ToolSpec> {
        restoring::tools()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.answer(call)
    }

    fn wants_restored(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.asked).into_iter().collect()
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.window = request.order.window.clone();
        self.prepare(request);
        self.cycle.calls()
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        self.cycle.answered(id, answer);
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window = window.clone();
        self.start_over();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.kept.clear();
        self.wishes.clear();
        self.asked.clear();
        self.restored.clear();
        self.start_over();
        self.cycle.reset();
        self.summary = None;
        self.compactions = 0;
        Ok(())
    }

    fn status(&self) -> Value {
        let tiers = self.settings.thresholds.tiers(&self.window);
        self.cycle.with_status(json!({
            "settings": self.settings,
            "tiers": {"compaction": tiers.compaction, "summary": tiers.summary},
            "compactions": self.compactions,
            "stopped": self.headroom.reason(),
            "compacted_messages": self.kept.len(),
            "summary": self.summary,
        }))
    }
}

impl<S: Steps> Tiered<S> {
    /// Forgets what earlier attempts showed about the room that compactions can make. Call it when
    /// the window or the conversation changed.
    fn start_over(&mut self) {
        self.headroom.things_changed();
        self.waits_for_summary = false;
    }

    /// Returns the compacted forms of all but the newest `keep` messages, each with the tokens that
    /// it saves. Left out are the user's last message, calls in flight, restored messages, and
    /// messages whose thinking has to stay as it is.
    fn compacted(
        &mut self,
        messages: &[MessageView<'_>],
        keep: usize,
    ) -> BTreeMap<MessageId, (Replacement, u64)> {
        let pairs = ToolPairs::of(messages);
        let question = messages.iter().rposition(MessageView::is_real_user);
        let waits_from = in_flight(messages).unwrap_or(messages.len());
        let old = messages.len().saturating_sub(keep).min(waits_from);
        let mut compacted = BTreeMap::new();
        // The model refers to a compacted message by the text shown for it, so no two of these may
        // be equal.
        let shown = messages
            .iter()
            .filter(|message| message.kind() == MessageKind::Replaced);
        // Below the first line stand rules that the message states.
        let first_line =
            |message: &MessageView<'_>| message.text().lines().next().map(str::to_owned);
        let mut shown: HashSet<String> = shown.filter_map(first_line).collect();
        for (at, message) in messages[..old].iter().enumerate() {
            let is_old = message.kind() == MessageKind::Original
                && question != Some(at)
                && !self.restored.contains(&message.id())
                && !is_thought(messages, at, question);
            if !is_old {
                continue;
            }
            let caller = pairs.call_of(at).map(|call| &messages[call]);
            let event = Event::new(message, caller, &self.services);
            let Some(mut form) = self.steps.compact_event(&event) else {
                continue;
            };
            if let Some(text) = &mut form.text {
                *text = told_apart(text, &shown);
                shown.insert(text.clone());
                let with_rules = keep_rules(message, text.clone());
                if with_rules != *text {
                    // A short message that is all rules is no longer than its compacted form.
                    if with_rules.len() >= message.text().len()
                        || self.services.count_tokens(&with_rules) + SEAL_TOKENS >= message.tokens()
                    {
                        continue;
                    }
                    *text = with_rules;
                }
            }
            let saved = form.kept.get("tokens_saved").and_then(Value::as_u64);
            compacted.insert(
                message.id(),
                (form.replacement(message), saved.unwrap_or(0)),
            );
        }
        compacted
    }

    /// Proposes these compacted forms and keeps every other message. The host receives one entry
    /// per message.
    fn proposed(
        &mut self,
        messages: &[MessageView<'_>],
        mut compacted: BTreeMap<MessageId, (Replacement, u64)>,
    ) -> Outcome {
        let note = format!(
            "{} messages were compacted; their originals are in the transcript",
            grouped(compacted.len() as u64)
        );
        let entries = messages
            .iter()
            .map(|message| match compacted.remove(&message.id()) {
                Some((form, _)) => Entry::Replace(form),
                None => Entry::Keep(message.id()),
            });
        self.proposal = Some(Proposal::default());
        Outcome::Compacted(Compaction::new(entries.collect()).notes(vec![note]))
    }
}

/// Returns the text with a number appended if another message shows the same text: `[COMPACTED:
/// pytest (2)]`.
fn told_apart(text: &str, others: &HashSet<String>) -> String {
    let Some(topic) = text.strip_suffix(']').filter(|_| others.contains(text)) else {
        return text.to_owned();
    };
    let mut numbered = (2..).map(|number| format!("{topic} ({number})]"));
    let free = numbered.find(|text| !others.contains(text));
    free.unwrap_or_else(|| text.to_owned())
}

/// Whether a message must not be compacted because of thinking. Either it has thinking about the
/// current question, or it follows a message that consists only of thinking.
fn is_thought(messages: &[MessageView<'_>], at: usize, question: Option<usize>) -> bool {
    thinking_leads_to(messages, at)
        || messages[at].has_thinking() && question.is_none_or(|question| at > question)
}

fn share(tokens: u64, share: f64) -> u64 {
    (tokens as f64 * share) as u64
}
