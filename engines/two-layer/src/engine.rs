//! [`TwoLayer`], the engine itself: when to summarise, what to propose and what to remember of it.
//!
//! `rewrite` applies Layer 1 before each request. `compress` applies Layer 2 if the estimate is
//! above the threshold, and falls back to Layer 1 if a summary is not due or would not help. The
//! engine keeps an [`Estimate`] per message, so that `should_compress` can decide without the
//! messages. What each layer does to a message is decided in `layer1` and `split`, and how the
//! summaries are made in `summarising`.

mod summarising;

use std::collections::BTreeMap;

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressOrder, CompressRequest, ContextEngine,
    Decision, Delivery, EngineError, Entry, HostInfo, LogLevel, MessageId, MessageView,
    ModelAnswer, ModelFailure, OpenRequest, Outcome, Replacement, Services, StandaloneEngine,
    Summary, WindowState, grouped, roomy,
};
use contexture_summaries::{
    Headroom, Sizes, SummaryCycle, WrittenSummary, both_spellings, framing_tokens,
};
use serde_json::{Value, json};

use crate::estimate::Estimate;
use crate::importance::importance;
use crate::layer1::{CUT_MARK, shorter_forms};
use crate::outline::Outline;
use crate::settings::Settings;
use crate::split::{Room, Split};
use crate::wording::{SUMMARY_MARK, marked};

/// The shares of the threshold that recent turns may take, in descending order. The first one that
/// leaves a quarter of the threshold free is used.
const RECENT_SHARES: [f64; 4] = [0.75, 0.5, 0.25, 0.0];

/// The engine of one session. It keeps the estimated size of every message in the window and
/// everything that belongs to the current proposal.
pub struct TwoLayer {
    settings: Settings,
    services: Services,
    cycle: SummaryCycle,
    window: WindowState,
    /// The estimated sizes of the messages in the window, as far as they were delivered.
    sizes: BTreeMap<MessageId, Estimate>,
    system: Estimate,
    proposal: Option<Proposal>,
    headroom: Headroom,
    summaries: u64,
}

/// A proposal that the host has neither committed nor discarded. `seen` are the messages that it is
/// about, `kept` those that stay with their new sizes, and `summaries` the sizes of the texts in
/// `written`.
struct Proposal {
    seen: Vec<MessageId>,
    kept: Vec<(MessageId, Estimate)>,
    written: Vec<WrittenSummary>,
    summaries: Vec<Estimate>,
    sizes: Sizes,
}

/// A conversation after Layer 1, with the shorter form and the estimated size of each message.
/// `importance` is `None` unless the setting `keep_important` is used.
struct Read<'m, 'a> {
    outline: Outline<'m, 'a>,
    shorter: Vec<Option<Replacement>>,
    sizes: Vec<Estimate>,
    importance: Option<Vec<f64>>,
}

impl Read<'_, '_> {
    fn is_shorter(&self) -> bool {
        self.shorter.iter().any(Option::is_some)
    }

    fn entry(&self, at: usize) -> Entry {
        match &self.shorter[at] {
            Some(shorter) => Entry::Replace(shorter.clone()),
            None => Entry::Keep(self.outline.messages[at].id()),
        }
    }

    fn kept(&self, at: usize) -> (MessageId, Estimate) {
        (self.outline.messages[at].id(), self.sizes[at])
    }
}

impl StandaloneEngine for TwoLayer {
    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(both_spellings(
                schemars::schema_for!(Settings).to_value(),
            )))
            .rewrites(true)
            .marks(vec![SUMMARY_MARK.to_owned(), CUT_MARK.to_owned()])
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            settings: request.settings()?,
            cycle: SummaryCycle::open(request.data_dir, request.services.clone()),
            services: request.services.clone(),
            window: request.window.clone(),
            sizes: BTreeMap::new(),
            system: Estimate::default(),
            proposal: None,
            headroom: Headroom::default(),
            summaries: 0,
        })
    }
}

impl ContextEngine for TwoLayer {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let (estimated, threshold) = (self.estimated(), self.settings.threshold(window));
        let figures = format!(
            "estimated {} tokens, threshold {}",
            grouped(estimated),
            grouped(threshold)
        );
        // If the prompt does not fit, no request can be made, so earlier attempts do not matter.
        if !fits(window) {
            return Decision::Yes(format!("the prompt does not fit; {figures}"));
        }
        if estimated <= threshold {
            return Decision::No(figures);
        }
        // `after` is in the provider's tokens, but the threshold is estimated, so only its ratio
        // can be used.
        let share = roomy(threshold) as f64 / estimated.max(1) as f64;
        let after = (window.best_prompt_tokens() as f64 * share) as u64;
        match self.headroom.decide(window, after) {
            Decision::Yes(_) => Decision::Yes(figures),
            Decision::No(reason) => Decision::No(format!("{figures}: {reason}")),
            decision => decision,
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.proposal = None;
        let order = request.order;
        self.learn(order);
        if is_short(request) {
            let reason = "two messages or fewer are not compacted";
            return Ok(Outcome::NothingToDo(reason.to_owned()));
        }
        let read = self.read(request.messages, false);
        let estimated = self.tokens_of(&read);
        let threshold = self.settings.threshold(&order.window);
        if estimated > threshold {
            let line = format!(
                "Context auto_compact triggered: estimated tokens={estimated} > threshold={threshold}"
            );
            self.services.log(LogLevel::Info, &line);
        } else if !order.force && fits(&order.window) {
            let reason = format!(
                "estimated {} tokens, threshold {}",
                grouped(estimated),
                grouped(threshold)
            );
            return Ok(self.layer1(&read, &reason));
        }
        let mut split = self.split(&read, order);
        let mut read = read;
        // The messages that stay do not fit the window, so new results are shortened too.
        if is_floor_too_high(&read, &split, &order.window) {
            read = self.read(request.messages, true);
            split = self.split(&read, order);
        }
        let sizes = Sizes {
            before: estimated,
            after: self.least_after(&read, &split),
            trigger: threshold,
        };
        // If nothing is summarised, `propose` still shortens messages, which needs no permission.
        if !split.summaries.is_empty()
            && let Some(reason) = self.headroom.refuses(order, sizes)
        {
            return Ok(match self.layer1(&read, "") {
                Outcome::NothingToDo(_) => Outcome::Deferred(reason),
                cut => cut,
            });
        }
        let written = self.write(&read, &split, order)?;
        Ok(self.propose(&read, &split, written, sizes))
    }

    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        self.proposal = None;
        self.learn(request.order);
        // The host shows the whole window here, so sizes that earlier deliveries left behind are
        // replaced.
        let shown = request.messages.iter();
        self.sizes = shown
            .map(|message| (message.id(), Estimate::of_message(message, None)))
            .collect();
        if is_short(request) {
            return Ok(None);
        }
        let read = self.read(request.messages, false);
        match self.layer1(&read, "") {
            Outcome::Compacted(compaction) => Ok(Some(compaction)),
            _ => Ok(None),
        }
    }

    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        self.proposal = None;
        // Asked for pruning, shorten even new results that are long.
        let read = self.read(request.messages, true);
        Ok(self.layer1(&read, "nothing before the recent rounds is long"))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        if let Some(cut) = delivery.cut {
            self.sizes.retain(|id, _| cut.keeps(*id));
            self.proposal = None;
            self.headroom.things_changed();
        }
        self.cycle.observe(delivery);
        for (_, earlier) in delivery.revisions {
            self.sizes.remove(earlier);
        }
        for message in delivery.messages {
            self.sizes
                .insert(message.id(), Estimate::of_message(message, None));
        }
        Ok(())
    }

    fn committed(&mut self, committed: &Committed) {
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        for id in &proposal.seen {
            self.sizes.remove(id);
        }
        // Sizes of messages in the proposal are replaced by those of what is left of them.
        let inserted = committed.inserted.iter().copied();
        self.sizes.extend(proposal.kept);
        self.sizes
            .extend(inserted.zip(proposal.summaries.iter().copied()));
        // Only Layer 1 ran, which says nothing about the room that a summary can make.
        if proposal.summaries.is_empty() {
            return;
        }
        self.summaries += proposal.summaries.len() as u64;
        self.cycle.committed(proposal.written);
        let sizes = Sizes {
            after: self.estimated(),
            ..proposal.sizes
        };
        self.headroom.committed(&self.window, sizes);
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        if self.proposal.take().is_some() {
            (self.headroom).refused(compaction, reason, &self.window, &self.services);
        }
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.learn(request.order);
        self.prepare(request);
        self.cycle.calls()
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        self.cycle.answered(id, answer);
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window = window.clone();
        self.headroom.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.sizes.clear();
        self.cycle.reset();
        self.proposal = None;
        self.headroom.things_changed();
        self.summaries = 0;
        Ok(())
    }

    fn status(&self) -> Value {
        self.cycle.with_status(json!({
            "settings": self.settings,
            "estimated_tokens": self.estimated(),
            "threshold": self.settings.threshold(&self.window),
            "summaries": self.summaries,
            "stopped": self.headroom.reason(),
        }))
    }
}

impl TwoLayer {
    fn estimated(&self) -> u64 {
        let messages: Estimate = self.sizes.values().copied().sum();
        (messages + self.system).tokens()
    }

    fn tokens_of(&self, read: &Read<'_, '_>) -> u64 {
        let messages: Estimate = read.sizes.iter().copied().sum();
        (messages + self.system).tokens()
    }

    fn learn(&mut self, order: &CompressOrder) {
        self.window = order.window.clone();
        self.system = order
            .system
            .as_deref()
            .map(Estimate::of)
            .unwrap_or_default();
    }

    /// Reads a conversation and applies Layer 1 to it. If the prompt `is_too_large`, new results
    /// are shortened too.
    fn read<'m, 'a>(&self, messages: &'m [MessageView<'a>], is_too_large: bool) -> Read<'m, 'a> {
        let outline = Outline::of(messages);
        let question = outline.question.map_or("", |at| messages[at].text());
        let importance = (self.settings.keep_important).map(|_| importance(messages, question));
        let least = self.settings.keep_important.unwrap_or(f64::INFINITY);
        let spares = |at: usize| importance.as_ref().is_some_and(|each| each[at] >= least);
        let shorter = shorter_forms(
            &outline, &self.settings, &self.services, &spares, is_too_large,
        );
        let sizes = messages.iter().zip(&shorter);
        Read {
            sizes: sizes
                .map(|(message, shorter)| Estimate::of_message(message, shorter.as_ref()))
                .collect(),
            outline,
            shorter,
            importance,
        }
    }

    /// Estimates the tokens that the split leaves, if every summary takes all of its budget.
    fn least_after(&self, read: &Read<'_, '_>, split: &Split) -> u64 {
        let mut stays = vec![true; read.sizes.len()];
        let covered = split.summaries.iter().flatten();
        covered.for_each(|at| stays[*at] = false);
        let sizes = read.sizes.iter().zip(stays).filter(|(_, stays)| *stays);
        let kept: Estimate = sizes.map(|(size, _)| *size).sum();
        let budgets = split
            .summaries
            .iter()
            .map(|covers| self.budget(read, covers));
        (kept + self.system).tokens() + budgets.sum::<u64>()
    }

    /// Proposes the window with the shorter forms and no summary. If nothing is shorter, nothing is
    /// proposed and `otherwise` is the reason.
    fn layer1(&mut self, read: &Read<'_, '_>, otherwise: &str) -> Outcome {
        if !read.is_shorter() {
            return Outcome::NothingToDo(otherwise.to_owned());
        }
        let all = 0..read.outline.messages.len();
        self.proposal = Some(Proposal {
            seen: Vec::new(),
            kept: all.clone().map(|at| read.kept(at)).collect(),
            written: Vec::new(),
            summaries: Vec::new(),
            sizes: Sizes {
                before: 0,
                after: 0,
                trigger: 0,
            },
        });
        let entries = all.map(|at| read.entry(at)).collect();
        let shorter = read.shorter.iter().flatten().count() as u64;
        let note = format!("{} messages were cut", grouped(shorter));
        Outcome::Compacted(Compaction::new(entries).notes(vec![note]))
    }

    /// Decides what to summarise for this order. A forced order summarises even if the estimate is
    /// below the threshold.
    fn split(&self, read: &Read<'_, '_>, order: &CompressOrder) -> Split {
        let estimated = self.tokens_of(read);
        let mut target = self.settings.threshold(&order.window);
        let counted: u64 = read.outline.messages.iter().map(MessageView::tokens).sum();
        if let Some(room) = order.window.room_for_prompt()
            && counted > 0
        {
            // Convert the room of the window to estimated tokens, because the target is estimated
            // too.
            let room = room.saturating_sub(order.window.fixed_tokens);
            target = target.min((room as f64 * estimated as f64 / counted as f64) as u64);
        }
        let goal = roomy(target);
        // A forced order comes below the threshold too, so the shares apply to what is there.
        if order.force {
            target = target.min(estimated);
        }
        let tokens: Vec<u64> = read.sizes.iter().map(|size| size.tokens()).collect();
        let split = |recent: f64| {
            Split::of(
                &read.outline,
                &self.settings,
                Room {
                    threshold: target,
                    recent,
                    fixed: self.system.tokens(),
                },
                &tokens,
                read.importance.as_deref(),
            )
        };
        // Use the largest share of recent turns that leaves enough room for the summaries.
        let mut best = split(RECENT_SHARES[0]);
        for recent in &RECENT_SHARES[1..] {
            if self.least_after(read, &best) <= goal {
                break;
            }
            best = split(*recent);
        }
        best
    }

    /// Proposes the window with the summaries in place of the messages that they cover. If they
    /// would be no smaller than these, only Layer 1 is proposed.
    fn propose(
        &mut self,
        read: &Read<'_, '_>,
        split: &Split,
        written: Vec<WrittenSummary>,
        sizes: Sizes,
    ) -> Outcome {
        let messages = read.outline.messages;
        let covered: u64 = split
            .summaries
            .iter()
            .flatten()
            .map(|at| messages[*at].tokens())
            .sum();
        let texts: Vec<String> = written
            .iter()
            .map(|written| marked(&written.text))
            .collect();
        let framing = framing_tokens(&self.services);
        let count = |text: &String| self.services.count_tokens(text) + framing;
        if covered <= texts.iter().map(count).sum::<u64>() {
            let reason = "a summary would not make the text before the recent turns smaller";
            self.headroom.stop(reason.to_owned(), &self.window);
            return self.layer1(read, reason);
        }
        let mut place = vec![None; messages.len()];
        let mut leaves = vec![false; messages.len()];
        for (number, covers) in split.summaries.iter().enumerate() {
            let first = covers.first().copied().unwrap_or(0);
            // A single summary stands before everything, even if important messages precede what it
            // covers.
            place[if split.summaries.len() == 1 && !self.settings.per_turn_summaries {
                0
            } else {
                first
            }] = Some(number);
            covers.iter().for_each(|at| leaves[*at] = true);
        }
        let mut entries = Vec::with_capacity(messages.len());
        let mut summaries = Vec::new();
        for at in 0..messages.len() {
            if let Some(number) = place[at] {
                let covers = split.summaries[number].iter().map(|at| messages[*at].id());
                let summary = Summary::default()
                    .text(texts[number].clone())
                    .covers(covers.collect())
                    .in_system_role(true);
                summaries.push(Estimate::of(&summary.text));
                entries.push(Entry::Summary(summary));
            }
            if !leaves[at] {
                entries.push(read.entry(at));
            }
        }
        let degraded = written.iter().any(|written| written.degraded);
        let mut notes: Vec<String> = written.iter().map(|written| written.note.clone()).collect();
        notes.dedup();
        self.proposal = Some(Proposal {
            seen: messages.iter().map(MessageView::id).collect(),
            kept: (0..messages.len())
                .filter(|at| !leaves[*at])
                .map(|at| read.kept(at))
                .collect(),
            written,
            summaries,
            sizes,
        });
        Outcome::Compacted(Compaction::new(entries).degraded(degraded).notes(notes))
    }
}

/// Whether the window is too short to do anything: at most two messages, counting the system
/// prompt.
fn is_short(request: &CompressRequest<'_>) -> bool {
    let window = &request.order.window;
    let system = (window.has_system_prompt).unwrap_or(request.order.system.is_some());
    request.messages.len() + usize::from(system) <= 2
}

/// Whether the messages that the split leaves do not fit the window, even without the summaries.
fn is_floor_too_high(read: &Read<'_, '_>, split: &Split, window: &WindowState) -> bool {
    let messages = read.outline.messages.iter();
    let all: u64 = messages.map(MessageView::tokens).sum();
    let covered = split.summaries.iter().flatten();
    let covered: u64 = covered.map(|at| read.outline.messages[*at].tokens()).sum();
    !window.has_room_for(window.fixed_tokens + all - covered)
}

fn fits(window: &WindowState) -> bool {
    window.fits()
}
