//! Plays one conversation to an engine, as a host does.
//!
//! A [`Player`] keeps the two things that a host keeps: the history of the conversation and the
//! window that the model would see. For each turn it changes the history, shows the engine what is
//! new, asks for decisions and compactions, checks every answer, and commits what keeps the
//! contract. Each check is noted under a [`Row`] of the report.
//!
//! Read [`play`] and `Player::turn` first. The helper methods follow the order in which a turn
//! calls them. If a call panics, the rest of the conversation is not played.
//!
//! The conversations themselves are in the module `scenes`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contexture_contract::{Checked, Grouping, Limits, Purpose, check};
use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, CurrentCompaction, Cut,
    Decision, Delivery, EngineError, EngineFactory, Entry, FailureKind, MessageId, MessageKind,
    Outcome, Summary, Usage, WindowState,
};
use serde_json::Value;

use super::scenes::{Model, Scene, Turn};
use super::watch::{Panicked, Watch};
use super::{Row, Subject};
use crate::chat::{Message, views_of};
use crate::{Chat, ScriptedHost, count};

/// The tokens of a system prompt and tools, which no compaction can remove.
const FIXED: u64 = 300;

/// A compaction may call a failing model at most once for this many tokens of the prompt, plus a
/// few times. An engine that halves its material again and again after each failure makes far more
/// calls.
const TOKENS_A_CALL: u64 = 50;

/// How many rounds of background calls are too many while nothing new is said. An engine that still
/// asks after them would never stop.
const MANY_ROUNDS: usize = 200;
/// How long to wait before an engine is told of the same compaction again. Its status may change
/// while it is told, because it works in the background, but not each time.
const STATUS_PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
];

type Played = Result<(), Panicked>;

/// Plays a scene to an engine and notes every result in `watch`. Does nothing if the engine does
/// not open, because that is noted as a failure already.
pub(super) fn play(subject: &Subject, scene: Scene, watch: &Watch) {
    // A panic is already noted, and an engine that panicked is not asked anything else.
    let _ = Player::open(subject, &scene, watch).and_then(|player| match player {
        Some(player) => player.play(scene.turns),
        None => Ok(()),
    });
}

/// Creates a host whose model behaves as the scene says. An echoing model returns the beginning of
/// its prompt, so that summaries are not empty.
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

/// The host of one conversation: the history, the window, and the engine that is checked. A method
/// that calls the engine returns an error if the engine panics, which ends the conversation.
struct Player<'a> {
    subject: &'a Subject,
    watch: &'a Watch,
    model: Model,
    context_length: u64,
    is_plain: bool,
    host: Arc<ScriptedHost>,
    factory: Box<dyn EngineFactory>,
    engine: Box<dyn ContextEngine>,
    /// The conversation as it was said, without anything that was cut off.
    history: Vec<Message>,
    window: Chat,
    /// The last message that the engine was shown, or `None` if it has to be shown everything.
    seen: Option<MessageId>,
    compactions: u64,
    /// The last original message that a summary in the window covers. A restart passes it to the
    /// engine as part of the current compaction.
    through: Option<MessageId>,
    /// Messages that were cut off or replaced by another form. They must not come back in a
    /// summary.
    gone: Vec<Message>,
    /// The tokens of the window after each unforced compaction that fitted, to see whether the
    /// window grows over time.
    sizes: Vec<u64>,
}

impl<'a> Player<'a> {
    /// Opens the engine of a scene. Returns `None` if it does not open, which is noted under
    /// [`Row::Opens`].
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

    /// Plays all turns. Afterwards it checks that the engine stops asking for background calls and
    /// that its window does not grow, and then ends the engine.
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

    /// Plays one turn as a host does: edits and new messages, the decision, a compaction if one is
    /// due, and the calls after the answer. A turn whose restart fails is skipped.
    fn turn(&mut self, at: usize, turn: Turn) -> Played {
        if turn.restarts && !self.restart()? {
            return Ok(());
        }
        let forces = turn.forces;
        self.take_in(turn, at.is_multiple_of(3))?;
        let state = self.state();
        let engine = &self.engine;
        let rough = state.estimated(true);
        let decided = (self.watch).call("should_compress", || engine.should_compress(&rough))?;
        self.has_reason("should_compress", &decided);
        if self.subject.about.rewrites {
            self.rewrite()?;
        }
        let due = self.decide()?;
        // A host asks for a compaction at 85 % even if the engine says that none is due, so the
        // player does too.
        let is_full = self.state().prompt_tokens * 100 >= self.context_length * 85;
        if due || is_full || forces {
            let order = CompressOrder::default()
                .window(self.state())
                .force(forces)
                // Alternates, so that an engine is found that waits when it must not.
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
        let status = self.status()?;
        self.watch.hold(Row::Status, status.is_object(), || {
            format!("status is not a JSON object: {status:.200}")
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
            // If the size is that after the last compaction, nothing was added since.
            .new_since_compaction(self.sizes.last() != Some(&self.window.tokens()))
    }

    /// Opens the engine again over the data that it keeps, in place of the old one. Returns false
    /// if it does not open. It will be shown its latest messages again, as if the process had ended
    /// before the host had recorded that it saw them.
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
        let mut shown: Vec<_> = self.history.iter().map(|message| message.id).collect();
        shown.sort_unstable();
        shown.retain(|id| Some(*id) <= self.seen);
        self.seen = shown.iter().rev().nth(3).copied();
        Ok(true)
    }

    /// Applies the cut, the revision and the new messages of a turn to history and window, and
    /// shows the engine what it has not seen. If `twice` is set, the delivery comes a second time.
    fn take_in(&mut self, turn: Turn, twice: bool) -> Played {
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
        // The transcript gets the messages first, because the engine may read it while it observes.
        let (observed, again) = views_of(&new, |views| {
            let delivery = Delivery::new(views).after(cut).with_revisions(&revisions);
            host.record(&delivery);
            let mut observe = || self.watch.call("observe", || engine.observe(&delivery));
            let observed = observe()?;
            let again = (twice && observed.is_ok()).then(observe).transpose()?;
            Ok::<_, Panicked>((observed, again))
        })?;
        self.taken(row, "observe", observed)?;
        if let Some(again) = again {
            self.taken(Row::Resends, "observe of what it was shown before", again)?;
        }
        self.seen = Some(last);
        Ok(())
    }

    /// Cuts the conversation back to its first `keeps` messages. Returns `None` if that removes
    /// nothing, or if it would not be a cut by ids.
    fn cut(&mut self, keeps: usize) -> Option<Cut> {
        if keeps >= self.history.len() {
            return None;
        }
        let last = self.history[..keeps].iter().map(|message| message.id).max();
        // A revised message has a higher id than the messages after it, so a cut by ids would not
        // remove exactly the last messages.
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
            // A summary covers some of the removed messages, so the window starts again from the
            // history.
            None => {
                self.window.messages.clone_from(&self.history);
                self.through = None;
            }
        }
        self.gone.extend(cut_off);
        self.seen = last;
        Some(Cut::after(last))
    }

    /// Replaces a message by another form of it and returns the new id and the old one. Returns
    /// `None` if the message is not in the window as it was said, or if it calls tools.
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
            // Each message has a word that begins with `kw`. The new form loses it, so a summary
            // that still has it is out of date.
            text: format!("In other words: {}", old.text.replace("kw", "ww")),
            ..old.clone()
        };
        *place = new.clone();
        self.history[at] = new.clone();
        let ids = (new.id, old.id);
        self.gone.push(old);
        Some(ids)
    }

    /// Notes whether a call succeeded that had no reason to fail. If the error is a panic that was
    /// caught on the way, it is noted as a panic and ends the conversation.
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

    /// Checks that a decision gives a reason. Users see it in reports, so an empty one does not
    /// count.
    fn has_reason(&self, method: &str, decision: &Decision) {
        let has = !decision.reason().trim().is_empty();
        self.watch.hold(Row::Outcomes, has, || {
            format!("{method} gives no reason: {decision:?}")
        });
    }

    /// Asks twice whether a compaction is due and checks that the answers are equal. Returns the
    /// answer.
    fn decide(&self) -> Result<bool, Panicked> {
        let (engine, state) = (&self.engine, self.state());
        let ask = || engine.should_compress(&state);
        let decision = self.watch.call("should_compress", ask)?;
        let again = self.watch.call("should_compress", ask)?;
        self.has_reason("should_compress", &decision);
        self.watch.hold(Row::Idempotence, decision == again, || {
            format!("should_compress says {decision:?}, but {again:?} if it is asked again")
        });
        Ok(decision.is_yes())
    }

    /// Checks a proposal against the contract with the grouping rules of each format, and returns
    /// the result for the chat format. Stops at the first violation.
    fn check(
        &self,
        method: &str,
        proposal: &Compaction,
        order: &CompressOrder,
        purpose: Purpose,
    ) -> Result<Checked, String> {
        self.window.with_views(|views| {
            let mut checked = Err(String::new());
            // A session may be sent to any provider, so a proposal has to keep the rules of all
            // formats.
            for grouping in [Grouping::Anthropic, Grouping::Responses, Grouping::Chat] {
                let mut limits = Limits::of(&order.window, views, grouping);
                limits.purpose = purpose;
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

    /// Asks for a compaction, checks the outcome and the number of model calls, and commits the
    /// proposal if it keeps the contract. A refused proposal is discarded, as a host would do.
    fn compress(&mut self, order: &CompressOrder) -> Played {
        let calls = self.host.model.calls();
        let outcome = self.ask_to_compress(order)?;
        let made = self.host.model.calls() - calls;
        self.watch
            .hold(Row::Model, order.may_wait_for_model || made == 0, || {
                "compress called the model although `may_wait_for_model` is false".to_owned()
            });
        let fails = matches!(self.model, Model::Fails(_) | Model::None);
        self.watch.hold(
            Row::Model,
            // A few calls are allowed even if the prompt is tiny.
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
            // A model does not have to say the same thing twice, so this is only checked if no
            // model was called.
            let again = self.ask_to_compress(order)?;
            // The reason for doing nothing may change, for example because the engine was asked
            // before.
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
                format!("compress answers {outcome:.300?}, but {again:.300?} if it is asked again")
            });
        }
        self.is_honest(&outcome, order, fails && made > 0);
        let Outcome::Compacted(proposal) = outcome else {
            return Ok(());
        };
        self.holds_nothing_gone(&proposal);
        self.tells_of_nothing_later(&proposal);
        match self.check("compress", &proposal, order, Purpose::Compaction) {
            Err(why) => self.discard(&why),
            Ok(checked) => {
                self.commit(&proposal)?;
                let tokens = checked.tokens_after;
                let fits = order.window.has_room_for(tokens);
                if fits && !order.force && self.is_plain {
                    self.sizes.push(self.window.tokens());
                    let due = self.decide()?;
                    self.watch.hold(Row::Growth, !due, || {
                        format!("compacted to {tokens} tokens, it is due again at once")
                    });
                }
                Ok(())
            }
        }
    }

    /// Asks the engine to compact the current window. The inner error is the engine's own, the
    /// outer one a panic.
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

    /// Checks that an outcome is what it says: a reason is there, a floor is plausible, and a
    /// summary that missed its model is marked as degraded.
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
                let room = window.room_for_prompt().unwrap_or_default();
                let is_high = floor.tokens * 3 >= room;
                match is_there && is_high && !floor.reason.trim().is_empty() {
                    true => Ok(()),
                    false => Err(format!(
                        "it says that {} tokens can never be removed, for the reason {:?}; the prompt has {} in a window of {}",
                        floor.tokens, floor.reason, window.prompt_tokens, room
                    )),
                }
            }
            Outcome::Compacted(proposal) => {
                let summarises = |entry: &Entry| matches!(entry, Entry::Summary(_));
                match missed_model && !proposal.degraded && proposal.entries.iter().any(summarises) {
                    true => Err("its model calls failed, but the summary made without a model is not marked as \
                                 `degraded`".to_owned()),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        };
        self.watch.note(Row::Outcomes, found);
    }

    /// Checks that no summary contains a word of a message that is no longer part of the
    /// conversation.
    fn holds_nothing_gone(&self, proposal: &Compaction) {
        let there = words(&self.history);
        let gone = &words(&self.gone) - &there;
        for summary in summaries(proposal) {
            let found = gone.iter().find(|word| summary.text.contains(*word));
            self.watch.hold(Row::Edits, found.is_none(), || {
                let word = found.copied().unwrap_or_default();
                let text = &summary.text;
                format!("a summary contains \"{word}\", which was cut from the conversation: {text:.300}")
            });
        }
    }

    /// Checks that no summary contains a word of a message behind all that it covers. The message
    /// may be cut off, and the summary would stay.
    fn tells_of_nothing_later(&self, proposal: &Compaction) {
        for summary in summaries(proposal) {
            let covers = |message: &Message| summary.covers.contains(&message.id);
            let last = self.window.messages.iter().rposition(covers);
            let (earlier, later) = self.window.messages.split_at(last.map_or(0, |at| at + 1));
            // The window shows earlier messages in shorter forms.
            let is_later = |said: &&Message| later.iter().any(|message| message.id == said.id);
            let said = self.history.iter().filter(|said| !is_later(said));
            let later = &words(later) - &words(earlier.iter().chain(said));
            let found = later.iter().find(|word| summary.text.contains(*word));
            self.watch.hold(Row::Edits, found.is_none(), || {
                let word = found.copied().unwrap_or_default();
                let text = &summary.text;
                format!("a summary contains \"{word}\" of a message behind all that it covers: {text:.300}")
            });
        }
    }

    /// Puts a proposal in force and tells the engine twice. The second call has to leave the status
    /// unchanged.
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
        let covered = summaries(proposal).flat_map(|summary| &summary.covers);
        let covered = covered.filter(|id| originals.contains(id));
        self.through = covered.copied().max().max(self.through);
        self.window = next;
        let engine = &mut self.engine;
        self.watch
            .call("committed", || engine.committed(&committed))?;
        // As a host does after a crash, without the entries.
        let again = Committed::new(self.compactions);
        // An engine that was found to be wrong is not waited for again.
        let looks = match self.watch.report().of(Row::Idempotence).broken {
            0 => STATUS_PAUSES.len(),
            _ => 1,
        };
        let mut changed = None;
        for pause in STATUS_PAUSES.iter().take(looks) {
            std::thread::sleep(*pause);
            let before = self.status()?;
            let engine = &mut self.engine;
            self.watch.call("committed", || engine.committed(&again))?;
            let after = self.status()?;
            changed = (before != after).then_some((before, after));
            if changed.is_none() {
                break;
            }
        }
        self.watch.hold(Row::Idempotence, changed.is_none(), || {
            let (before, after) = changed.unwrap_or_default();
            format!(
                "when it was told of a compaction twice, its status changed from {before:.300} to {after:.300}"
            )
        });
        Ok(())
    }

    fn status(&self) -> Result<Value, Panicked> {
        self.watch.call("status", || self.engine.status())
    }

    /// Tells the engine that its proposal was not used, with the reason. The number is that of the
    /// compaction that it would have become.
    fn discard(&mut self, why: &str) -> Played {
        let (engine, number) = (&mut self.engine, self.compactions + 1);
        self.watch
            .call("discarded", || engine.discarded(number, why))
    }

    /// Asks for the cheap part of a compaction and checks the proposal. The window stays as it is,
    /// so that [`compress`](Self::compress) starts from the same state.
    fn prune(&mut self, order: &CompressOrder) -> Played {
        let engine = &mut self.engine;
        let outcome = self.window.with_views(|views| {
            let request = CompressRequest::new(views, order);
            self.watch
                .call("prune_tool_results", || engine.prune_tool_results(&request))
        })?;
        match outcome {
            Ok(Outcome::Compacted(proposal)) => {
                // The result is noted by `check`. The proposal itself is never committed.
                let _ = self.check("prune_tool_results", &proposal, order, Purpose::Compaction);
                self.discard("another was taken")
            }
            Ok(outcome) => {
                self.is_honest(&outcome, order, false);
                Ok(())
            }
            Err(error) => self.taken(Row::Outcomes, "prune_tool_results", Err(error)),
        }
    }

    /// Asks the engine whether it rewrites the window before a request, and commits the proposal if
    /// it keeps the contract.
    fn rewrite(&mut self) -> Played {
        let order = CompressOrder::default().window(self.state());
        let engine = &mut self.engine;
        let proposal = self.window.with_views(|views| {
            let request = CompressRequest::new(views, &order);
            self.watch.call("rewrite", || engine.rewrite(&request))
        })?;
        match proposal {
            Ok(Some(proposal)) => {
                match self.check("rewrite", &proposal, &order, Purpose::Rewrite) {
                    Ok(_) => self.commit(&proposal),
                    Err(why) => self.discard(&why),
                }
            }
            answer => self.taken(Row::Outcomes, "rewrite", answer.map(drop)),
        }
    }

    /// Asks the engine for a view of the window that holds for one request only. A view is checked
    /// but never committed.
    fn select(&mut self) -> Played {
        let order = CompressOrder::default().window(self.state());
        let engine = &mut self.engine;
        let view = self.window.with_views(|views| {
            let request = CompressRequest::new(views, &order);
            self.watch.call("select", || engine.select(&request))
        })?;
        if let Ok(Some(view)) = &view {
            let _ = self.check("select", view, &order, Purpose::View);
        }
        self.taken(Row::Outcomes, "select", view.map(drop))
    }

    /// Answers up to `rounds` rounds of background calls with the scene's model. Returns true if
    /// the engine still asked in the last round.
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

    /// Checks that the engine stops asking for background calls while no message is added.
    fn comes_to_rest(&mut self) -> Played {
        let goes_on = self.answer_background(MANY_ROUNDS)?;
        self.watch.hold(Row::Background, !goes_on, || {
            format!("after {MANY_ROUNDS} rounds of answers it still requests calls, although there are no new \
                     messages")
        });
        Ok(())
    }

    /// Checks that the window is not much larger after the last compactions than after the first.
    /// Does nothing if the scene is not plain, if its model does not echo, or if there were fewer
    /// than six compactions.
    fn stays_small(&self) {
        // With fewer compactions the two halves are too short to show a trend.
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

/// The words in these messages that occur in no others: see [`word`](super::scenes::word).
fn words<'m>(messages: impl IntoIterator<Item = &'m Message>) -> HashSet<&'m str> {
    let words = messages
        .into_iter()
        .flat_map(|message| message.text.split_whitespace());
    let words = words.map(|word| word.trim_end_matches(['.', ',', '?']));
    words.filter(|word| word.starts_with("kw")).collect()
}

fn summaries(proposal: &Compaction) -> impl Iterator<Item = &Summary> {
    proposal.entries.iter().filter_map(|entry| match entry {
        Entry::Summary(summary) => Some(summary),
        _ => None,
    })
}

type Pair = (Box<dyn EngineFactory>, Box<dyn ContextEngine>);

/// Makes the factory and opens the engine of a session. Returns `None` if either fails, which is
/// noted.
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
            // A default engine has to work without any settings, so these are empty.
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
