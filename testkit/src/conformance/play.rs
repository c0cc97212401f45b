//! Plays one conversation to an engine as a host does, and notes what held.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contexture_contract::{Checked, Grouping, Limits, Purpose, check};
use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, CurrentCompaction, Cut,
    Decision, Delivery, EngineError, EngineFactory, Entry, FailureKind, MessageId, MessageKind,
    Observed, Outcome, Usage, WindowState,
};
use serde_json::Value;

use super::scenes::{Model, Scene, Turn};
use super::watch::{Panicked, Watch};
use super::{Row, Subject};
use crate::chat::{Message, views_of};
use crate::{Chat, ScriptedHost, count};

/// Tokens of a system prompt and tools.
const FIXED: u64 = 300;

/// How many tokens of the prompt there are at least for each model call of a compaction where every call fails. Who
/// tries halves, and halves of halves, makes many calls.
const TOKENS_A_CALL: u64 = 50;

/// The rounds of background calls that are too many for a conversation that stands still.
const MANY_ROUNDS: usize = 200;

type Played = Result<(), Panicked>;

pub(super) fn play(subject: &Subject, scene: Scene, watch: &Watch) {
    // What panicked is noted, and there is no more to ask.
    let _ = Player::open(subject, &scene, watch).and_then(|player| match player {
        Some(player) => player.play(scene.turns),
        None => Ok(()),
    });
}

/// A host with a model like this.
fn host(model: Model) -> Arc<ScriptedHost> {
    let host = ScriptedHost::without_model();
    if model != Model::None {
        host.model.becomes(crate::MODEL_NAME, 60_000);
    }
    let calls = AtomicU64::new(0);
    host.model.now_says(move |request| {
        let echo = || {
            let limit = (request.max_tokens as usize * 4).clamp(1, 600);
            let words: String = request.prompt.chars().take(limit / 4).collect();
            Ok(format!("## Goal\nGo on.\n\n## Progress\n{words}"))
        };
        match model {
            Model::Fails(kind) => Err(kind),
            Model::Says(what) => Ok(what.to_owned()),
            Model::IsFlaky if calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
                Err(FailureKind::Overloaded)
            }
            _ => echo(),
        }
    });
    host
}

struct Player<'a> {
    subject: &'a Subject,
    watch: &'a Watch,
    model: Model,
    context_length: u64,
    is_plain: bool,
    host: Arc<ScriptedHost>,
    factory: Box<dyn EngineFactory>,
    engine: Box<dyn ContextEngine>,
    /// The conversation as it was said.
    history: Vec<Message>,
    window: Chat,
    /// The last message that the engine was shown.
    seen: Option<MessageId>,
    compactions: u64,
    /// The last message that a summary in the window stands for.
    through: Option<MessageId>,
    /// What was cut off, or replaced by another form.
    gone: Vec<Message>,
    /// The tokens of the window after each compaction that fitted.
    sizes: Vec<u64>,
}

impl<'a> Player<'a> {
    fn open(
        subject: &'a Subject,
        scene: &Scene,
        watch: &'a Watch,
    ) -> Result<Option<Self>, Panicked> {
        let host = host(scene.model);
        let window = Chat::default();
        let Some((factory, engine)) = opened(subject, watch, &host, scene.context_length, None)?
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            subject,
            watch,
            model: scene.model,
            context_length: scene.context_length,
            is_plain: scene.is_plain,
            host,
            factory,
            engine,
            history: Vec::new(),
            window,
            seen: None,
            compactions: 0,
            through: None,
            gone: Vec::new(),
            sizes: Vec::new(),
        }))
    }

    fn play(mut self, turns: Vec<Turn>) -> Played {
        for (at, turn) in turns.into_iter().enumerate() {
            self.watch.at_turn(at);
            self.turn(at, turn)?;
        }
        self.comes_to_rest()?;
        self.stays_small();
        let engine = &mut self.engine;
        self.watch.call("end", || engine.end())
    }

    fn turn(&mut self, at: usize, turn: Turn) -> Played {
        if turn.restarts && !self.restart()? {
            return Ok(());
        }
        let forces = turn.forces;
        self.take_in(turn)?;
        self.recalls()?;
        let state = self.state();
        let engine = &self.engine;
        let preflight = || engine.should_compress_preflight(&state);
        let preflight = self.watch.call("should_compress_preflight", preflight)?;
        self.has_reason("should_compress_preflight", &preflight);
        if self.subject.about.rewrites {
            self.rewrite()?;
        }
        let due = self.decide()?;
        let is_full = self.state().prompt_tokens * 100 >= self.context_length * 85;
        if due || is_full || forces {
            let order = CompressOrder::default()
                .window(self.state())
                .force(forces)
                .may_wait_for_model(at.is_multiple_of(2));
            self.prune(&order)?;
            self.compress(&order)?;
        }
        if self.subject.about.selects {
            self.select()?;
        }
        let engine = &mut self.engine;
        let usage = Usage::default()
            .input_tokens(FIXED + self.window.tokens())
            .output_tokens(50);
        self.watch
            .call("update_usage", || engine.update_usage(&usage))?;
        self.watch
            .call("turn_complete", || engine.turn_complete())?;
        self.answer_background(1)?;
        let status = self.watch.call("status", || self.engine.status())?;
        self.watch.hold(Row::Status, status.is_object(), || {
            format!("status is no JSON object: {status:.200}")
        });
        if self.is_plain && self.model == Model::Echoes {
            let tokens = FIXED + self.window.tokens();
            self.watch
                .hold(Row::Growth, tokens <= self.context_length, || {
                    format!(
                        "the window has {tokens} of {} tokens, and the engine was asked to compact",
                        self.context_length
                    )
                });
        }
        Ok(())
    }

    fn state(&self) -> WindowState {
        self.window
            .window(self.context_length, FIXED)
            .new_since_compaction(self.sizes.last() != Some(&self.window.tokens()))
    }

    /// Opens the engine anew over what it keeps; whether that went well.
    fn restart(&mut self) -> Result<bool, Panicked> {
        let summaries = self.window.messages.iter();
        let summaries = summaries.filter(|message| message.kind == MessageKind::Summary);
        let summaries: Vec<_> = summaries.map(|message| message.text.clone()).collect();
        let current = self.through.map(|through| {
            CurrentCompaction::new(self.compactions, self.subject.name.clone(), through)
                .summaries(summaries)
        });
        let again = opened(
            self.subject,
            self.watch,
            &self.host,
            self.context_length,
            current.as_ref(),
        )?;
        let Some((factory, engine)) = again else {
            return Ok(false);
        };
        (self.factory, self.engine) = (factory, engine);
        let observed = self
            .watch
            .call("observed_through", || self.engine.observed_through())?;
        if let Some(observed) = observed {
            let is_known = observed == Observed::NOTHING
                || Some(observed.last) <= self.seen && observed.chain == observed.last.0;
            self.watch.hold(Row::Resends, is_known, || {
                format!(
                    "it says that it saw the conversation through {} with the chain {}, and was shown it through {:?}",
                    observed.last, observed.chain, self.seen
                )
            });
            self.seen = is_known
                .then_some(observed.last)
                .filter(|last| *last != MessageId(0));
        } else {
            self.watch.note(Row::Resends, Ok(()));
        }
        Ok(true)
    }

    /// Brings history and window up to date and shows the engine what it has not seen.
    fn take_in(&mut self, turn: Turn) -> Played {
        let cut = turn.keeps.and_then(|keeps| self.cut(keeps));
        let revisions: Vec<_> = (turn.revises)
            .and_then(|from_end| self.revise(from_end))
            .into_iter()
            .collect();
        for mut message in turn.says {
            self.window.last_id += 1;
            message.id = MessageId(self.window.last_id);
            self.history.push(message.clone());
            self.window.messages.push(message);
        }
        let is_edit = cut.is_some() || !revisions.is_empty();
        let row = if is_edit { Row::Edits } else { Row::Resends };
        let is_new = |message: &&Message| Some(message.id) > self.seen;
        let mut new: Vec<_> = self.history.iter().filter(is_new).cloned().collect();
        new.sort_by_key(|message| message.id);
        let Some(last) = self.history.iter().map(|message| message.id).max() else {
            return Ok(());
        };
        if new.is_empty() && !is_edit {
            return Ok(());
        }
        let (host, engine) = (&self.host, &mut self.engine);
        let observed = views_of(&new, |views| {
            let delivery = Delivery::new(views, last.0)
                .after(cut)
                .with_revisions(&revisions);
            host.record(&delivery);
            self.watch.call("observe", || engine.observe(&delivery))
        })?;
        self.taken(row, "observe", observed.map(drop))?;
        self.seen = Some(last);
        Ok(())
    }

    /// Cuts the conversation back to so many messages; none where that takes nothing away.
    fn cut(&mut self, keeps: usize) -> Option<Cut> {
        if keeps >= self.history.len() {
            return None;
        }
        let last = self.history[..keeps].iter().map(|message| message.id).max();
        // What came in another form has a later id than what stands after it, and stays.
        let cuts = |message: &Message| Some(message.id) > last;
        if !self.history[keeps..].iter().all(cuts) {
            return None;
        }
        let cut_off = self.history.split_off(keeps);
        let stands = |id| self.window.messages.iter().position(|other| other.id == id);
        match cut_off
            .iter()
            .map(|message| stands(message.id))
            .collect::<Option<Vec<_>>>()
        {
            Some(places) => {
                let first = places.into_iter().min().unwrap_or(0);
                self.window.messages.truncate(first);
            }
            // A summary stands for some of it: the conversation is what it was said to be.
            None => {
                self.window.messages.clone_from(&self.history);
                self.through = None;
            }
        }
        self.gone.extend(cut_off);
        self.seen = last;
        Some(Cut::after(last))
    }

    /// Says a message in another form; its new id and its old one.
    fn revise(&mut self, from_end: usize) -> Option<(MessageId, MessageId)> {
        let at = self.history.len().checked_sub(from_end + 1)?;
        let old = self.history[at].clone();
        let in_window = self.window.messages.iter_mut();
        let place = in_window.into_iter().find(|message| message.id == old.id)?;
        if place.kind != MessageKind::Original || !old.calls.is_empty() {
            return None;
        }
        self.window.last_id += 1;
        let new = Message {
            id: MessageId(self.window.last_id),
            text: format!("In other words: {}", old.text.replace("kw", "ww")),
            ..old.clone()
        };
        *place = new.clone();
        self.history[at] = new.clone();
        let ids = (new.id, old.id);
        self.gone.push(old);
        Some(ids)
    }

    /// Notes an error that an engine answered where it has no reason for one.
    fn taken(&self, row: Row, method: &str, answer: Result<(), EngineError>) -> Played {
        match answer {
            Err(EngineError::Panicked(why)) => {
                self.watch
                    .broke(Row::Panics, format!("{method} panicked: {why}"));
                Err(Panicked)
            }
            answer => {
                let answer = answer.map_err(|error| format!("{method} failed: {error}"));
                self.watch.note(row, answer);
                Ok(())
            }
        }
    }

    fn has_reason(&self, method: &str, decision: &Decision) {
        let has = !decision.reason().trim().is_empty();
        self.watch.hold(Row::Outcomes, has, || {
            format!("{method} gives no reason: {decision:?}")
        });
    }

    fn decide(&self) -> Result<bool, Panicked> {
        let (engine, state) = (&self.engine, self.state());
        let ask = || engine.should_compress(&state);
        let decision = self.watch.call("should_compress", ask)?;
        let again = self.watch.call("should_compress", ask)?;
        self.has_reason("should_compress", &decision);
        self.watch.hold(Row::Idempotence, decision == again, || {
            format!("should_compress says {decision:?}, and asked again {again:?}")
        });
        Ok(decision.is_yes())
    }

    /// Holds a proposal to the contract in every format.
    fn check(
        &self,
        method: &str,
        proposal: &Compaction,
        order: &CompressOrder,
        purpose: Option<Purpose>,
    ) -> Result<Checked, String> {
        self.window.with_views(|views| {
            let mut checked = Err(String::new());
            for grouping in [Grouping::Anthropic, Grouping::Responses, Grouping::Chat] {
                let mut limits = Limits::of(order, views, grouping);
                limits.purpose = purpose.unwrap_or(limits.purpose);
                limits.may_shorten_last_user |= self.subject.about.keeps_user_messages;
                limits.marks.clone_from(&self.subject.about.marks);
                checked = check(views, proposal, &limits, count)
                    .map_err(|violation| format!("{method} ({grouping:?}): {violation}"));
                if checked.is_err() {
                    break;
                }
            }
            self.watch.note(
                Row::Contract,
                checked.as_ref().map(drop).map_err(String::clone),
            );
            checked
        })
    }

    fn compress(&mut self, order: &CompressOrder) -> Played {
        let calls = self.host.model.calls();
        let outcome = self.ask_to_compress(order)?;
        let made = self.host.model.calls() - calls;
        self.watch
            .hold(Row::Model, order.may_wait_for_model || made == 0, || {
                "compress called the model where nobody waits: `may_wait_for_model` is false"
                    .to_owned()
            });
        let fails = matches!(self.model, Model::Fails(_) | Model::None);
        self.watch.hold(
            Row::Model,
            !fails || made as u64 <= 4 + order.window.prompt_tokens / TOKENS_A_CALL,
            || format!("one compaction called a failing model {made} times"),
        );
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(EngineError::Model(_)) if self.model != Model::Echoes => {
                self.watch.note(Row::Model, Ok(()));
                return Ok(());
            }
            Err(error) => {
                let row = match self.model {
                    Model::Echoes => Row::Outcomes,
                    _ => Row::Model,
                };
                return self.taken(row, "compress", Err(error));
            }
        };
        self.watch.note(Row::Model, Ok(()));
        if made == 0 {
            // A model need not say the same twice.
            let again = self.ask_to_compress(order)?;
            // Why it does nothing it may say in other words: that it was asked before, say.
            let is_alike = match (&outcome, &again) {
                (Outcome::Compacted(first), Ok(Outcome::Compacted(second))) => {
                    let ids = |proposal: &Compaction| -> Vec<_> {
                        let ids = proposal.entries.iter().map(Entry::ids);
                        ids.map(<[MessageId]>::to_vec).collect()
                    };
                    ids(first) == ids(second)
                }
                (Outcome::Compacted(_), _) | (_, Ok(Outcome::Compacted(_)) | Err(_)) => false,
                _ => true,
            };
            self.watch.hold(Row::Idempotence, is_alike, || {
                format!("compress answers {outcome:.300?}, and asked again {again:.300?}")
            });
        }
        self.is_honest(&outcome, order, fails && made > 0);
        let Outcome::Compacted(proposal) = outcome else {
            return Ok(());
        };
        self.holds_nothing_gone(&proposal);
        match self.check("compress", &proposal, order, None) {
            Err(why) => self.discard(&why),
            Ok(checked) => {
                self.commit(&proposal)?;
                if checked.fits && !order.force && self.is_plain {
                    self.sizes.push(self.window.tokens());
                    let due = self.decide()?;
                    let tokens = checked.tokens_after;
                    self.watch.hold(Row::Growth, !due, || {
                        format!("compacted to {tokens} tokens, it is due again at once")
                    });
                }
                Ok(())
            }
        }
    }

    fn ask_to_compress(
        &mut self,
        order: &CompressOrder,
    ) -> Result<Result<Outcome, EngineError>, Panicked> {
        let engine = &mut self.engine;
        self.window.with_views(|views| {
            let request = CompressRequest::new(views, order);
            self.watch.call("compress", || engine.compress(&request))
        })
    }

    /// Whether an outcome is what it says.
    fn is_honest(&self, outcome: &Outcome, order: &CompressOrder, missed_model: bool) {
        let found = match outcome {
            Outcome::NothingToDo(reason) | Outcome::Deferred(reason)
                if reason.trim().is_empty() =>
            {
                Err(format!("an outcome without a reason: {outcome:?}"))
            }
            Outcome::FloorTooHigh(floor) => {
                let window = &order.window;
                let is_there = floor.tokens <= window.prompt_tokens;
                let is_high = floor.tokens * 3 >= window.usable_tokens();
                match is_there && is_high && !floor.reason.trim().is_empty() {
                    true => Ok(()),
                    false => Err(format!(
                        "it says that {} tokens can never be removed, for the reason {:?}; the prompt has {} in a window of {}",
                        floor.tokens,
                        floor.reason,
                        window.prompt_tokens,
                        window.usable_tokens()
                    )),
                }
            }
            Outcome::Compacted(proposal) => {
                let summarises = |entry: &Entry| matches!(entry, Entry::Summary(_));
                match missed_model && !proposal.degraded && proposal.entries.iter().any(summarises) {
                    true => Err("its model calls failed, and the summary made without is not said to be `degraded`".to_owned()),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        };
        self.watch.note(Row::Outcomes, found);
    }

    /// Whether a summary tells of what is no longer part of the conversation.
    fn holds_nothing_gone(&self, proposal: &Compaction) {
        let words = |messages: &[Message]| -> HashSet<String> {
            let words = messages
                .iter()
                .flat_map(|message| message.text.split_whitespace());
            words
                .filter(|word| word.starts_with("kw"))
                .map(str::to_owned)
                .collect()
        };
        let there = words(&self.history);
        let gone: Vec<_> = words(&self.gone).difference(&there).cloned().collect();
        let texts = proposal.entries.iter().filter_map(|entry| match entry {
            Entry::Summary(summary) => Some(summary.text.as_str()),
            _ => None,
        });
        for text in texts {
            let found = gone.iter().find(|word| text.contains(word.as_str()));
            self.watch.hold(Row::Edits, found.is_none(), || {
                let word = found.map(String::as_str).unwrap_or_default();
                format!("a summary tells of \"{word}\", which was taken away: {text:.300}")
            });
        }
    }

    fn commit(&mut self, proposal: &Compaction) -> Played {
        let next = self
            .window
            .apply_marked(proposal, &self.subject.about.marks);
        let is_old = |id| self.window.messages.iter().any(|message| message.id == id);
        let placed = next.messages.iter().map(|message| message.id);
        self.compactions += 1;
        let committed = Committed::new(self.compactions)
            .entries(proposal.entries.clone())
            .inserted(placed.filter(|id| !is_old(*id)).collect());
        let originals: HashSet<_> = self.history.iter().map(|message| message.id).collect();
        let covered = proposal.entries.iter().filter_map(|entry| match entry {
            Entry::Summary(summary) => Some(&summary.covers),
            _ => None,
        });
        let covered = covered.flatten().filter(|id| originals.contains(id));
        self.through = covered.copied().max().max(self.through);
        self.window = next;
        let engine = &mut self.engine;
        self.watch
            .call("committed", || engine.committed(&committed))?;
        let before = self.watch.call("status", || engine.status())?;
        // As it is said after a crash.
        let again = Committed::new(self.compactions);
        self.watch.call("committed", || engine.committed(&again))?;
        let after = self.watch.call("status", || engine.status())?;
        self.watch.hold(Row::Idempotence, before == after, || {
            format!(
                "told of a compaction twice, its status changed from {before:.300} to {after:.300}"
            )
        });
        Ok(())
    }

    fn discard(&mut self, why: &str) -> Played {
        let (engine, number) = (&mut self.engine, self.compactions + 1);
        self.watch
            .call("discarded", || engine.discarded(number, why))
    }

    fn prune(&mut self, order: &CompressOrder) -> Played {
        let engine = &mut self.engine;
        let outcome = self.window.with_views(|views| {
            let request = CompressRequest::new(views, order);
            self.watch
                .call("prune_tool_results", || engine.prune_tool_results(&request))
        })?;
        match outcome {
            Ok(Outcome::Compacted(proposal)) => {
                let _ = self.check(
                    "prune_tool_results",
                    &proposal,
                    order,
                    Some(Purpose::Forced),
                );
                self.discard("another was taken")
            }
            Ok(outcome) => {
                self.is_honest(&outcome, order, false);
                Ok(())
            }
            Err(error) => self.taken(Row::Outcomes, "prune_tool_results", Err(error)),
        }
    }

    fn rewrite(&mut self) -> Played {
        let order = CompressOrder::default().window(self.state());
        let engine = &mut self.engine;
        let proposal = self.window.with_views(|views| {
            let request = CompressRequest::new(views, &order);
            self.watch.call("rewrite", || engine.rewrite(&request))
        })?;
        match proposal {
            Ok(Some(proposal)) => {
                match self.check("rewrite", &proposal, &order, Some(Purpose::Rewrite)) {
                    Ok(_) => self.commit(&proposal),
                    Err(why) => self.discard(&why),
                }
            }
            answer => self.taken(Row::Outcomes, "rewrite", answer.map(drop)),
        }
    }

    fn select(&mut self) -> Played {
        let order = CompressOrder::default().window(self.state());
        let engine = &mut self.engine;
        let view = self.window.with_views(|views| {
            let request = CompressRequest::new(views, &order);
            self.watch.call("select", || engine.select(&request))
        })?;
        if let Ok(Some(view)) = &view {
            let _ = self.check("select", view, &order, Some(Purpose::View));
        }
        self.taken(Row::Outcomes, "select", view.map(drop))
    }

    /// Whether what it gives back is what was said, and nothing that was taken away.
    fn recalls(&mut self) -> Played {
        // The oldest and the newest: to ask for all in every turn takes too long.
        let old = self.history.len().min(3);
        let new = self.history.len().saturating_sub(20).max(old);
        let there: Vec<_> = self.history[..old]
            .iter()
            .chain(&self.history[new..])
            .collect();
        let gone = self.gone.iter().rev().take(20);
        let asked: Vec<Message> = there.iter().copied().chain(gone).cloned().collect();
        let there = there.len();
        let ids: Vec<_> = asked.iter().map(|message| message.id).collect();
        let engine = &mut self.engine;
        let found = match self.watch.call("recall", || engine.recall(&ids))? {
            Ok(found) => found,
            Err(error) => return self.taken(Row::Recall, "recall", Err(error)),
        };
        self.watch.hold(Row::Recall, found.len() == ids.len(), || {
            format!(
                "recall was asked for {} messages and gave {}",
                ids.len(),
                found.len()
            )
        });
        for (at, (message, found)) in asked.iter().zip(found).enumerate() {
            let Some(text) = found else { continue };
            let read = |text: &str| serde_json::from_str::<Value>(text).ok();
            let is_it = read(&text).is_some() && read(&text) == read(&message.raw());
            let is_there = at < there;
            self.watch
                .hold(Row::Recall, is_it && is_there, || match is_there {
                    true => format!("{} came back as {text:.200}", message.id),
                    false => format!(
                        "{} came back, which was cut off or came in another form",
                        message.id
                    ),
                });
        }
        Ok(())
    }

    /// Answers so many rounds of background calls; whether there were any in the last.
    fn answer_background(&mut self, rounds: usize) -> Result<bool, Panicked> {
        for _ in 0..rounds {
            let order = CompressOrder::default().window(self.state());
            let engine = &mut self.engine;
            let calls = self.window.with_views(|views| {
                let request = CompressRequest::new(views, &order);
                self.watch
                    .call("background", || engine.background(&request))
            })?;
            if calls.is_empty() {
                return Ok(false);
            }
            let mut numbers = HashSet::new();
            for call in calls {
                let is_new = numbers.insert(call.id);
                self.watch.hold(Row::Background, is_new, || {
                    format!("two background calls have the number {}", call.id)
                });
                let answer = self.host.model.complete(&call.request);
                let engine = &mut self.engine;
                self.watch.call("background_done", || {
                    engine.background_done(call.id, answer)
                })?;
            }
        }
        Ok(true)
    }

    fn comes_to_rest(&mut self) -> Played {
        let goes_on = self.answer_background(MANY_ROUNDS)?;
        self.watch.hold(Row::Background, !goes_on, || {
            format!("after {MANY_ROUNDS} rounds of answers it still asks, and nothing new was said")
        });
        Ok(())
    }

    /// Whether the window is no larger after the last compactions than after the first.
    fn stays_small(&self) {
        let sizes = match self.is_plain && self.model == Model::Echoes && self.sizes.len() >= 6 {
            true => &self.sizes,
            false => return,
        };
        let (first, last) = sizes.split_at(sizes.len() / 2);
        let most = |sizes: &[u64]| sizes.iter().copied().max().unwrap_or(0);
        let (first, last) = (most(first), most(last));
        self.watch.hold(Row::Growth, last <= (first * 5 / 4).max(self.context_length / 2), || {
            format!("after the first compactions the window had {first} tokens at most, after the last {last}")
        });
    }
}

type Pair = (Box<dyn EngineFactory>, Box<dyn ContextEngine>);

/// Makes the factory and opens the engine of a session.
pub(super) fn opened(
    subject: &Subject,
    watch: &Watch,
    host: &Arc<ScriptedHost>,
    context_length: u64,
    compaction: Option<&CurrentCompaction>,
) -> Result<Option<Pair>, Panicked> {
    let window = Chat::default().window(context_length, FIXED);
    let request = host.factory_request("{}");
    let made = watch.call("create", || (subject.create)(&request))?;
    let made = match made {
        Ok(factory) => {
            let request = host.open_request("{}", &window).compaction(compaction);
            let engine = watch.call("open", || factory.open(&request))?;
            engine.map(|engine| (factory, engine))
        }
        Err(error) => Err(error),
    };
    match made {
        Ok(pair) => {
            watch.note(Row::Opens, Ok(()));
            Ok(Some(pair))
        }
        Err(error) => {
            watch.broke(
                Row::Opens,
                format!("it does not open with its defaults: {error}"),
            );
            Ok(None)
        }
    }
}
