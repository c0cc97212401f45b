//! The life cycle of summaries, from "a summary will be needed" to "it is in the window".
//!
//! Read [`SummaryCycle`] first: its table shows the states of a summary and what ends each of them.
//! An engine describes the summary it wants as a [`Task`] and drives the cycle from its own calls.
//! [`Ready`] is a text that waits for the next compaction, [`WrittenSummary`] one that is part of a
//! proposal, and [`Making`] holds the model calls that are still open. How the model is asked lives
//! in `summariser`, and how long a failed model is left alone in `cooldown`.

use std::collections::HashSet;
use std::path::Path;

use contexture_digest::{Budget, RuleSection, Rules, WorkRecord};
use contexture_engine_api::{
    BackgroundCall, CompressOrder, Delivery, EngineError, FailureKind, MessageId, MessageView,
    ModelAnswer, ModelFailure, ModelInfo, Services,
};
use serde_json::{Value, json};

use crate::cooldown::CoolDowns;
use crate::facts::{checked, rules_left_out};
use crate::summariser::{Prompts, Summariser};

/// The note on a summary that was written while no model is configured. It is shown to a person.
pub const NO_MODEL: &str =
    "no summary model is configured, so the summary was extracted from the messages";
/// Answers that have not come after this many milliseconds count as lost. The host's own timeouts
/// end long before.
const LOST_MS: i64 = 900_000;
/// How many better texts are remembered. If there are more, the oldest are dropped.
const REMEMBERED: usize = 32;

type Answer = Result<ModelAnswer, ModelFailure>;

/// A summary that an engine wants: what it covers, and how it is written. The cycle calls
/// `material` and `prompts` if it asks a model, `extract` if it does not, and `finish` on what the
/// model wrote.
pub trait Task {
    /// The ids of the messages that the summary replaces, in order. A summary that was prepared is
    /// used only if its messages are among these.
    fn covers(&self) -> Vec<MessageId>;
    /// The text of the earlier summary that this one updates, or `None` if it is the first of its
    /// session.
    fn previous(&self) -> Option<&str>;
    /// The prompts for the model. `facts` were extracted from the messages without a model, and the
    /// summary has to keep them. It is `None` if nobody waits for the answer.
    fn prompts(&self, facts: Option<String>) -> Box<dyn Prompts>;
    /// The text that the model reads, in pieces that may be read separately. If it is empty, no
    /// model is asked.
    fn material(&self) -> Vec<String>;
    /// The facts that are given to a model while somebody waits for its answer. The default is
    /// none.
    fn facts(&self) -> Option<String> {
        None
    }
    /// Writes the summary without a model. If `ready` has a model's text for part of the messages,
    /// the remaining messages are extracted into it.
    fn extract(&self, ready: Option<&Ready>) -> String;
    /// The rules that users stated in these messages, and those of the earlier summary. The cycle puts
    /// them in front of the text, whoever wrote it, so their tokens are part of the task's budget.
    fn rules(&self) -> RuleSection;
    /// What the messages show about the work, to check what the model claims.
    fn work_record(&self) -> WorkRecord;
    /// Completes the model's text, for instance with facts that it left out, and shortens it to its
    /// budget. Its contradicted sentences are marked already.
    fn finish(&self, text: String) -> String;
}

/// A model's summary that waits for the next compaction. It remembers which messages it covers and
/// which earlier summary it updates, because it is usable only for a task that matches both.
#[derive(Debug)]
pub struct Ready {
    /// The text as the model wrote it, before [`Task::finish`] completes it.
    pub text: String,
    covers: HashSet<MessageId>,
    previous: Option<String>,
}

impl Ready {
    /// Returns those of the given messages that this text does not cover, in their order. They
    /// usually arrived after the text was requested.
    pub fn rest<'a>(&self, messages: &[MessageView<'a>]) -> Vec<MessageView<'a>> {
        let rest = messages.iter().copied();
        rest.filter(|message| !self.covers.contains(&message.id()))
            .collect()
    }

    fn is_of(&self, covers: &HashSet<MessageId>, previous: Option<&str>) -> bool {
        self.previous.as_deref() == previous && self.covers.is_subset(covers)
    }
}

/// A summary that is part of a proposal. The engine passes it to [`SummaryCycle::committed`] when
/// the host commits the proposal, and drops it if the host does not.
#[derive(Debug)]
pub struct WrittenSummary {
    /// The text without the marks that the host puts around a summary.
    pub text: String,
    /// Whether it was written without the model although one is configured. Such a summary is
    /// redone later.
    pub degraded: bool,
    /// A sentence for the user that says who wrote the summary, and why the model did not.
    pub note: String,
    covers: Vec<MessageId>,
    redo: Option<Making<Purpose>>,
}

impl WrittenSummary {
    /// Wraps a text that an engine wrote itself, and puts the rules of users in front of it. It does
    /// not count as degraded and is never redone.
    pub fn new(task: &impl Task, text: String, note: impl Into<String>) -> Self {
        let rules = task.rules();
        let mut note = note.into();
        if let Some(left_out) = rules_left_out(&rules) {
            note = format!("{note}; {left_out}");
        }
        Self {
            text: rules.before(&text),
            degraded: false,
            note,
            covers: task.covers(),
            redo: None,
        }
    }
}

#[derive(Debug)]
enum Purpose {
    /// The next compaction, with the earlier summary that the text updates.
    Next(Option<String>),
    /// To replace the text `of`, which was written without the model and is in force.
    Redo { of: String, record: WorkRecord },
}

/// A text that a model is being asked for between turns, together with its open calls. `P` says
/// what the text is for. Use it directly if [`SummaryCycle`] does not fit, for instance for several
/// kinds of summaries.
#[derive(Debug)]
pub struct Making<P> {
    /// What the text is for. The engine reads it once the text is finished.
    pub purpose: P,
    /// The name of the model that is asked, so that a failure is blamed on the right one.
    pub model: String,
    /// The questions to the model and the reading of its answers.
    pub summariser: Summariser,
    covers: Vec<MessageId>,
    /// The ids of the open calls, each with its answer if that has come.
    asked: Vec<(u64, Option<Answer>)>,
    since_ms: i64,
}

impl<P> Making<P> {
    /// Prepares a text about these messages. Nothing is asked before [`calls`](Self::calls).
    pub fn new(
        purpose: P,
        covers: Vec<MessageId>,
        model: impl Into<String>,
        summariser: Summariser,
    ) -> Self {
        Self {
            purpose,
            model: model.into(),
            summariser,
            covers,
            asked: Vec::new(),
            since_ms: 0,
        }
    }

    /// The number of calls that were made and whose answers have not all come yet.
    pub fn out(&self) -> usize {
        self.asked.len()
    }

    /// Whether the call with this id belongs to this text and is still open.
    pub fn asks(&self, id: u64) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == id)
    }

    /// Returns the calls to make now, numbered from `last_call` on. There are none while answers
    /// are open. If answers have not come for a quarter of an hour, they count as lost and are
    /// requested again.
    pub fn calls(&mut self, last_call: &mut u64, now_ms: i64) -> Vec<BackgroundCall> {
        // The range also fails if the clock was set back, so a text cannot wait forever.
        let waits = (self.since_ms..self.since_ms + LOST_MS).contains(&now_ms);
        if !self.asked.is_empty() && waits {
            return Vec::new();
        }
        let requests = self.summariser.requests().into_iter();
        let calls: Vec<BackgroundCall> = requests
            .map(|request| {
                *last_call += 1;
                BackgroundCall::new(*last_call, self.covers.clone(), request)
            })
            .collect();
        self.asked = calls.iter().map(|call| (call.id, None)).collect();
        self.since_ms = now_ms;
        calls
    }

    /// Takes an answer. Returns `None` while more answers are open or another round of calls is
    /// needed, and also if the id is unknown.
    ///
    /// # Errors
    /// The inner error is the first failure that another way of asking does not fix.
    pub fn answered(&mut self, id: u64, answer: Answer) -> Option<Result<String, ModelFailure>> {
        let (_, slot) = self.asked.iter_mut().find(|(asked, _)| *asked == id)?;
        *slot = Some(answer);
        // A round is read as a whole, because the pieces of a long conversation are merged in
        // order.
        if self.asked.iter().any(|(_, answer)| answer.is_none()) {
            return None;
        }
        let answers = self.asked.drain(..).filter_map(|(_, answer)| answer);
        self.summariser.answered(answers.collect()).transpose()
    }
}

/// Manages the summaries of one session, in the same way for every engine.
///
/// The cycle covers everything between "a summary will be needed" and "it is in the window". The
/// engine decides what a summary covers and how it is worded ([`Task`]). The cycle decides who
/// writes it, and keeps what is prepared until it is used or outdated. A summary is in one of these
/// states:
///
/// | state | what it is | what ends it |
/// |---|---|---|
/// | *in the making* | model calls between turns are due or open | Its answers: **ready**. If a call fails or the host cancels it, the text is dropped and requested again once the cool-down is over. |
/// | *ready* | the model's text waits for the next compaction | [`write`](Self::write) uses it if its messages are among those of the task and both update the same earlier summary. Newer messages are extracted into it. |
/// | *written* | part of a proposal | [`committed`](Self::committed): it is in force. If the host discards the proposal, it is dropped, and what was ready stays ready. |
/// | *to redo* | in force, but written without the model although one is configured | The next calls in the background: **in the making** again, before any other. |
/// | *better* | the model's text for a summary that is in force without it | The engine reads it instead of the summary when that is updated: [`better`](Self::better). |
///
/// Writing tries three sources in this order: a text that is ready, then the model if somebody
/// waits for the compaction and the model is not in a cool-down, and last an extract of the
/// messages, which needs no model. If the model is asked, the material goes in one piece, or in
/// smaller ones if it is too long ([`Summariser`]).
///
/// The host drives the transitions through the engine:
///
/// - `observe` → [`observe`](Self::observe): a cut drops everything in the making, ready or to
///   redo. A revised message drops what covers it.
/// - `background` → [`prepare`](Self::prepare) if the engine finds the next compaction near, then
///   [`calls`](Self::calls).
/// - `background_done` → [`answered`](Self::answered).
/// - `compress` → [`write`](Self::write), and `committed` → [`committed`](Self::committed), which
///   drops what was prepared for messages that have left.
#[derive(Debug)]
pub struct SummaryCycle {
    services: Services,
    cool_downs: CoolDowns,
    uses_model: bool,
    making: Vec<Making<Purpose>>,
    ready: Vec<Ready>,
    redo: Vec<Making<Purpose>>,
    /// Pairs of a summary that was written without the model, and the text that the model wrote for
    /// it later. The oldest pair comes first.
    better: Vec<(String, String)>,
    last_call: u64,
    degraded: u64,
}

impl SummaryCycle {
    /// Opens a cycle in which nothing is prepared. The cool-down of an earlier run is read from the
    /// engine's data directory, so a restart does not end it.
    pub fn open(data_dir: &Path, services: Services) -> Self {
        Self {
            cool_downs: CoolDowns::open(data_dir, services.clone()),
            services,
            uses_model: true,
            making: Vec::new(),
            ready: Vec::new(),
            redo: Vec::new(),
            better: Vec::new(),
            last_call: 0,
            degraded: 0,
        }
    }

    /// Sets whether to use the model at all. If it is false, every summary is extracted from the
    /// messages, as if no model were configured.
    #[must_use]
    pub fn using_model(mut self, uses_model: bool) -> Self {
        self.uses_model = uses_model;
        self
    }

    fn model(&self) -> Option<ModelInfo> {
        self.services.model().filter(|_| self.uses_model)
    }

    /// Follows the conversation and drops what was prepared from messages that are no longer part
    /// of it. Call it for every delivery.
    pub fn observe(&mut self, delivery: &Delivery<'_>) {
        if delivery.cut.is_some() {
            self.forget();
        }
        // The revised message has another text now, so a summary of the old one is wrong.
        let is_old = |id: &MessageId| delivery.revisions.iter().any(|(_, old)| old == id);
        self.making
            .retain(|making| !making.covers.iter().any(is_old));
        self.ready.retain(|ready| !ready.covers.iter().any(is_old));
    }

    /// Drops everything that is prepared, in the making or to be redone. Answers to open calls will
    /// be ignored.
    pub fn forget(&mut self) {
        self.making.clear();
        self.ready.clear();
        self.redo.clear();
    }

    /// Resets the cycle for a conversation that starts over. Unlike [`forget`](Self::forget), this
    /// also drops the better texts and the count of degraded summaries.
    pub fn reset(&mut self) {
        self.forget();
        self.better.clear();
        self.degraded = 0;
    }

    /// Whether the next summary could be prepared now. It could if a model is configured and not in
    /// a cool-down, and if no other text is in the making or to be redone.
    pub fn is_free(&self) -> bool {
        self.may_call() && self.making.is_empty() && self.redo.is_empty()
    }

    /// Like [`is_free`](Self::is_free), for an engine that needs only one summary at a time: no
    /// summary may be ready either.
    pub fn is_idle(&self) -> bool {
        self.is_free() && self.ready.is_empty()
    }

    /// Whether a model is configured and not in a cool-down.
    fn may_call(&self) -> bool {
        self.model().is_some() && self.cool_downs.in_force().is_none()
    }

    /// Starts a summary between turns, unless a ready one covers exactly the same messages. Nothing
    /// happens if no model is configured or if the messages have no text. The calls are made by the
    /// next [`calls`](Self::calls).
    pub fn prepare(&mut self, task: &impl Task) {
        let Some(model) = self.model() else { return };
        let covers = task.covers();
        let ids: HashSet<MessageId> = covers.iter().copied().collect();
        let is_same = |ready: &Ready| ready.covers == ids && ready.is_of(&ids, task.previous());
        if self.ready.iter().any(is_same) {
            return;
        }
        if let Some(summariser) = self.summariser(task, None, &model) {
            let purpose = Purpose::Next(task.previous().map(str::to_owned));
            let summariser = summariser.in_window(covers.last().copied());
            (self.making).push(Making::new(purpose, covers, model.name, summariser));
        }
    }

    /// The questions to the model for this task, or `None` if its messages have no text.
    fn summariser(
        &self,
        task: &impl Task,
        facts: Option<String>,
        model: &ModelInfo,
    ) -> Option<Summariser> {
        let (material, services) = (task.material(), self.services.clone());
        let window = model.context_length;
        (!material.is_empty())
            .then(|| Summariser::new(task.prompts(facts), material, window, services))
    }

    /// Returns the model calls to make between turns. There are none without a model or during a
    /// cool-down. A summary to redo is started only if no other text is in the making.
    pub fn calls(&mut self) -> Vec<BackgroundCall> {
        let Some(model) = self.model().filter(|_| self.may_call()) else {
            return Vec::new();
        };
        if self.making.is_empty() {
            self.making.append(&mut self.redo);
            // The configured model may have changed since the summary was written.
            let models = self.making.iter_mut().map(|making| &mut making.model);
            models.for_each(|name| name.clone_from(&model.name));
        }
        let (now_ms, last_call) = (self.services.now_ms(), &mut self.last_call);
        let making = self.making.iter_mut();
        making
            .flat_map(|making| making.calls(last_call, now_ms))
            .collect()
    }

    /// Takes the answer to a call. It is ignored if the call is unknown, for instance because its
    /// text was dropped meanwhile. A failure starts a cool-down unless the host cancelled the call.
    pub fn answered(&mut self, id: u64, answer: Answer) {
        let Some(at) = self.making.iter().position(|making| making.asks(id)) else {
            return;
        };
        let Some(finished) = self.making[at].answered(id, answer) else {
            return;
        };
        let making = self.making.remove(at);
        let text = match finished {
            Ok(text) => text,
            Err(failure) => {
                // The host cancelled the call for its own reasons, so the model is not to blame.
                if failure.kind != FailureKind::Cancelled {
                    self.cool_downs.failed(&making.model, &failure);
                }
                // A redo belongs to a text that is in force, so it stays queued. A failed
                // preparation is simply started again by the engine.
                if matches!(making.purpose, Purpose::Redo { .. }) {
                    self.redo.push(making);
                }
                return;
            }
        };
        self.cool_downs.succeeded();
        match making.purpose {
            Purpose::Next(previous) => {
                self.ready.push(Ready {
                    text,
                    covers: making.covers.into_iter().collect(),
                    previous,
                });
            }
            Purpose::Redo { of, record } => {
                let Ok((text, _)) = checked(&record, &text, &self.services) else {
                    return;
                };
                self.better.push((of, text));
                // A session can last for weeks, and only summaries in the window are ever looked
                // up.
                let surplus = self.better.len().saturating_sub(REMEMBERED);
                self.better.drain(..surplus);
            }
        }
    }

    /// Returns the model's text for a summary that was written without it and redone since, or
    /// `None` if there is no such text. It has the rules of the summary that it replaces. White space
    /// around `text` is ignored.
    pub fn better(&self, text: &str) -> Option<String> {
        let mut better = self.better.iter();
        let (_, found) = better.find(|(of, _)| of.trim() == text.trim())?;
        let rules = Rules::of(&[], Some(text));
        Some(rules.section(Budget::chars(usize::MAX)).before(found))
    }

    /// Writes a summary: from what is ready, with the model, or by extracting it from the messages.
    /// A failure of the model is not an error, but gives a degraded summary whose note says why.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] if the host cancelled the compaction while the model was asked.
    pub fn write(
        &mut self,
        task: &impl Task,
        order: &CompressOrder,
    ) -> Result<WrittenSummary, EngineError> {
        let Some(model) = self.model() else {
            return Ok(WrittenSummary::new(task, task.extract(None), NO_MODEL));
        };
        let answer = match self.text_of_ready(task) {
            Some(text) => Ok(text),
            // Waiting for a model can take minutes, so it happens only if the caller permits it.
            None if order.may_wait_for_model => self.ask(task, &model, order.force)?,
            None => Err(
                "the summary model's answer was not ready, and the request may not wait for it"
                    .into(),
            ),
        };
        let checked = answer.and_then(|text| checked(&task.work_record(), &text, &self.services));
        Ok(match checked {
            Ok((text, marked)) => {
                let marked = marked.map_or(String::new(), |told| format!("; {told}"));
                let note = format!("{} wrote the summary{marked}", model.name);
                WrittenSummary::new(task, task.finish(text), note)
            }
            Err(reason) => {
                let text = task.extract(None);
                let note = format!(
                    "the summary was extracted from the messages without a model: {reason}"
                );
                // The extract goes into the later question as facts to keep, so the model's text
                // does not lose what the extract has.
                let summariser = self.summariser(task, Some(text.clone()), &model);
                let written = WrittenSummary::new(task, text, note);
                let purpose = Purpose::Redo {
                    of: written.text.clone(),
                    record: task.work_record(),
                };
                WrittenSummary {
                    degraded: true,
                    redo: summariser.map(|it| Making::new(purpose, task.covers(), model.name, it)),
                    ..written
                }
            }
        })
    }

    /// The best text that is ready for a task: the one that covers the most of its messages, with
    /// the remaining messages extracted into it.
    fn text_of_ready(&self, task: &impl Task) -> Option<String> {
        let covers: HashSet<MessageId> = task.covers().into_iter().collect();
        let ready = self.ready.iter();
        let ready = ready.filter(|ready| ready.is_of(&covers, task.previous()));
        let ready = ready.max_by_key(|ready| ready.covers.len())?;
        Some(match ready.covers == covers {
            true => ready.text.clone(),
            false => task.extract(Some(ready)),
        })
    }

    /// Asks the model while somebody waits. The outer error is a cancellation. The inner one says,
    /// for a person, why there is no answer.
    fn ask(
        &mut self,
        task: &impl Task,
        model: &ModelInfo,
        force: bool,
    ) -> Result<Result<String, String>, EngineError> {
        let services = &self.services;
        // The user may have forced the compaction after fixing the problem, so the cool-down does
        // not apply.
        if let Some(cool_down) = self.cool_downs.in_force().filter(|_| !force) {
            return Ok(Err(cool_down.reason(services.now_ms())));
        }
        let Some(summariser) = self.summariser(task, task.facts(), model) else {
            return Ok(Err("the messages say nothing".to_owned()));
        };
        let mut summariser = summariser.in_window(task.covers().last().copied());
        // Each round is one call for the whole summary, or several calls on pieces whose notes the
        // next round merges.
        loop {
            if services.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let requests = summariser.requests();
            let answers = match requests.as_slice() {
                [one] => vec![services.complete(one)],
                many => services.complete_many(many),
            };
            match summariser.answered(answers) {
                Ok(Some(text)) => {
                    self.cool_downs.succeeded();
                    return Ok(Ok(text));
                }
                Ok(None) => {}
                // A cancellation says nothing about the model, so it must not start a cool-down.
                Err(failure) if failure.kind == FailureKind::Cancelled => {
                    return Err(EngineError::Cancelled);
                }
                Err(failure) => {
                    self.cool_downs.failed(&model.name, &failure);
                    return Ok(Err(failure.message));
                }
            }
        }
    }

    /// Records that the host put these summaries in force. What was prepared for messages that they
    /// cover is dropped, and what was written without the model is queued to be redone. Nothing
    /// changes if no message left.
    pub fn committed(&mut self, written: impl IntoIterator<Item = WrittenSummary>) {
        let mut left = HashSet::new();
        let mut redo = Vec::new();
        for summary in written {
            left.extend(summary.covers);
            self.degraded += u64::from(summary.degraded);
            redo.extend(summary.redo);
        }
        // A compaction without a summary, such as one that clears tool results, leaves everything
        // prepared usable.
        if left.is_empty() {
            return;
        }
        // Only the summaries of the latest compaction are redone, since they usually replace those of
        // earlier ones.
        self.redo = redo;
        self.ready.retain(|ready| ready.covers.is_disjoint(&left));
        self.making.retain(|making| {
            let is_next = matches!(making.purpose, Purpose::Next(_));
            is_next && !making.covers.iter().any(|id| left.contains(id))
        });
    }

    /// Adds the state of the summaries to an engine's status: the number of degraded ones, the
    /// model, its cool-down and the open texts. `status` must be a JSON object.
    pub fn with_status(&self, mut status: Value) -> Value {
        status["degraded"] = json!(self.degraded);
        status["summary_model"] = json!(self.services.model().map(|model| model.name));
        status["cool_down"] = json!(self.cool_downs.in_force());
        status["background"] = json!({
            "summaries_in_the_making": self.making.len(),
            "summaries_ready": self.ready.len(),
            "summaries_to_redo": self.redo.len(),
        });
        status
    }
}

#[cfg(test)]
mod tests;
