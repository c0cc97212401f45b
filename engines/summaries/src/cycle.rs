//! The life cycle of summaries: see [`SummaryCycle`].

use std::collections::HashSet;
use std::path::Path;

use contexture_engine_api::{
    BackgroundCall, CompressOrder, Delivery, EngineError, FailureKind, MessageId, MessageView,
    ModelAnswer, ModelFailure, ModelInfo, Services,
};
use serde_json::{Value, json};

use crate::cooldown::CoolDowns;
use crate::summariser::{Prompts, Summariser};

/// Said of a summary that was written where no model is configured.
pub const NO_MODEL: &str =
    "no summary model is configured, so the summary was extracted from the messages";
/// An answer that has not come after this many milliseconds is lost: the host's calls end long before.
const LOST_MS: i64 = 900_000;
/// How many better texts are remembered.
const REMEMBERED: usize = 32;

type Answer = Result<ModelAnswer, ModelFailure>;

/// A summary that an engine wants: what it covers, and how it is written.
pub trait Task {
    /// The messages that it replaces.
    fn covers(&self) -> Vec<MessageId>;
    /// The earlier summary that it updates.
    fn previous(&self) -> Option<&str>;
    /// What the model is asked. `facts` were extracted from the messages, to be kept.
    fn prompts(&self, facts: Option<String>) -> Box<dyn Prompts>;
    /// What the model reads, in pieces that may be read apart.
    fn material(&self) -> Vec<String>;
    /// Facts for a model that is asked while somebody waits.
    fn facts(&self) -> Option<String> {
        None
    }
    /// The summary without a model. If one is ready for part of the messages, the others are extracted into it.
    fn extract(&self, ready: Option<&Ready>) -> String;
    /// Completes the model's text and cuts it to its budget.
    fn finish(&self, text: String) -> String;
}

/// A model's summary that waits for the next compaction.
#[derive(Debug)]
pub struct Ready {
    /// The text.
    pub text: String,
    covers: HashSet<MessageId>,
    previous: Option<String>,
}

impl Ready {
    /// The messages that it does not cover.
    pub fn rest<'a>(&self, messages: &[MessageView<'a>]) -> Vec<MessageView<'a>> {
        let rest = messages.iter().copied();
        rest.filter(|message| !self.covers.contains(&message.id()))
            .collect()
    }

    fn is_of(&self, covers: &HashSet<MessageId>, previous: Option<&str>) -> bool {
        self.previous.as_deref() == previous && self.covers.is_subset(covers)
    }
}

/// A summary that is part of a proposal.
#[derive(Debug)]
pub struct WrittenSummary {
    /// The text, without what marks it as a summary.
    pub text: String,
    /// Whether it was written without the model although there is one.
    pub degraded: bool,
    /// Who wrote it, for a person.
    pub note: String,
    covers: Vec<MessageId>,
    redo: Option<Making<Purpose>>,
}

impl WrittenSummary {
    /// A summary that an engine wrote in a way of its own.
    pub fn new(task: &impl Task, text: String, note: impl Into<String>) -> Self {
        Self {
            text,
            degraded: false,
            note: note.into(),
            covers: task.covers(),
            redo: None,
        }
    }
}

/// What a summary in the making is for.
#[derive(Debug)]
enum Purpose {
    /// The next compaction; with the earlier summary that it updates.
    Next(Option<String>),
    /// To stand in for this text, which was written without the model.
    Redo(String),
}

/// A text in the making: the model calls between turns that it takes.
#[derive(Debug)]
pub struct Making<P> {
    /// What it is for.
    pub purpose: P,
    /// The model that is asked.
    pub model: String,
    /// What is asked.
    pub summariser: Summariser,
    covers: Vec<MessageId>,
    /// The calls that are out, with the answers that have come.
    asked: Vec<(u64, Option<Answer>)>,
    since_ms: i64,
}

impl<P> Making<P> {
    /// A text about these messages that is still to be asked for.
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

    /// How many answers are out.
    pub fn out(&self) -> usize {
        self.asked.len()
    }

    /// Whether an answer to this call is waited for.
    pub fn asks(&self, id: u64) -> bool {
        self.asked.iter().any(|(asked, _)| *asked == id)
    }

    /// The calls to make now; none while answers are out. Those that have not come for a quarter of an hour are lost,
    /// and asked for again.
    pub fn calls(&mut self, last_call: &mut u64, now_ms: i64) -> Vec<BackgroundCall> {
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

    /// Takes an answer. None while there are more to come or to ask for.
    ///
    /// The inner error is the first failure that asking in another way does not mend.
    pub fn answered(&mut self, id: u64, answer: Answer) -> Option<Result<String, ModelFailure>> {
        let (_, slot) = self.asked.iter_mut().find(|(asked, _)| *asked == id)?;
        *slot = Some(answer);
        if self.asked.iter().any(|(_, answer)| answer.is_none()) {
            return None;
        }
        let answers = self.asked.drain(..).filter_map(|(_, answer)| answer);
        self.summariser.answered(answers.collect()).transpose()
    }
}

/// The life cycle of the summaries of one session, the same for every engine.
///
/// It holds everything between "a summary will be needed" and "it is in the window". The engine decides
/// what a summary covers and how it is worded ([`Task`]); the cycle decides who writes it, and keeps what is prepared
/// until it is used or no longer true. A summary is in one of these states:
///
/// | state | what it is | what ends it |
/// |---|---|---|
/// | *in the making* | model calls between turns are to be made, or are out | its answers: **ready**. A failure, or a call that the host gave up: gone, and asked for again once the cool-down is over. |
/// | *ready* | the model's text waits for the next compaction | [`write`](Self::write) uses it if its messages are among those of the task and both update the same earlier summary; what came since is extracted into it. |
/// | *written* | part of a proposal | [`committed`](Self::committed): in force. If the host discards the proposal, it is dropped, and what was ready still is. |
/// | *to redo* | in force, but written without the model although there is one | its next turn in the background: **in the making** again, before any other |
/// | *better* | the model's text for a summary that is in force without it | the engine reads it in place of the summary when that is updated: [`better`](Self::better) |
///
/// Writing tries in this order: what is ready; the model, if somebody waits for the compaction and the model is not in a
/// cool-down; and an extract of the messages, which needs no model. If the model is asked, the material goes in one
/// piece, or in smaller ones if it is too long ([`Summariser`]).
///
/// The host drives the transitions through the engine:
///
/// - `observe` → [`observe`](Self::observe): a cut drops everything in the making, ready or to redo. A revised
///   message drops what covers it.
/// - `background` → [`prepare`](Self::prepare) if the engine finds the next compaction near, then
///   [`calls`](Self::calls).
/// - `background_done` → [`answered`](Self::answered).
/// - `compress` → [`write`](Self::write), and `committed` → [`committed`](Self::committed), which drops
///   what was prepared for messages that have left.
#[derive(Debug)]
pub struct SummaryCycle {
    services: Services,
    cool_downs: CoolDowns,
    uses_model: bool,
    making: Vec<Making<Purpose>>,
    ready: Vec<Ready>,
    redo: Vec<Making<Purpose>>,
    /// Texts of summaries that were written without the model, and what it wrote later.
    better: Vec<(String, String)>,
    last_call: u64,
    degraded: u64,
}

impl SummaryCycle {
    /// A cycle in which nothing is prepared. The cool-down of an earlier run is read from the engine's directory.
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

    /// Whether to use the model at all.
    #[must_use]
    pub fn using_model(mut self, uses_model: bool) -> Self {
        self.uses_model = uses_model;
        self
    }

    fn model(&self) -> Option<ModelInfo> {
        self.services.model().filter(|_| self.uses_model)
    }

    /// Follows the conversation: forgets what was prepared from messages that are no longer part of it.
    pub fn observe(&mut self, delivery: &Delivery<'_>) {
        if delivery.cut.is_some() {
            self.forget();
        }
        let is_old = |id: &MessageId| delivery.revisions.iter().any(|(_, old)| old == id);
        self.making
            .retain(|making| !making.covers.iter().any(is_old));
        self.ready.retain(|ready| !ready.covers.iter().any(is_old));
    }

    /// Forgets everything that was prepared or is to be redone. Answers to calls that are out will be ignored.
    pub fn forget(&mut self) {
        self.making.clear();
        self.ready.clear();
        self.redo.clear();
    }

    /// The same for a conversation that begins anew.
    pub fn reset(&mut self) {
        self.forget();
        self.better.clear();
        self.degraded = 0;
    }

    /// Whether the next summary could be prepared now: the model may be called, and nothing else comes first.
    pub fn is_free(&self) -> bool {
        self.may_call() && self.making.is_empty() && self.redo.is_empty()
    }

    /// The same for an engine that needs one summary at a time.
    pub fn is_idle(&self) -> bool {
        self.is_free() && self.ready.is_empty()
    }

    fn may_call(&self) -> bool {
        self.model().is_some() && self.cool_downs.in_force().is_none()
    }

    /// Has a summary made between turns, unless the same is ready.
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

    /// What a model is asked for a task; none if its messages say nothing.
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

    /// The model calls to make between turns.
    pub fn calls(&mut self) -> Vec<BackgroundCall> {
        let Some(model) = self.model().filter(|_| self.may_call()) else {
            return Vec::new();
        };
        if self.making.is_empty() {
            self.making.append(&mut self.redo);
            // It may be another one by now.
            let models = self.making.iter_mut().map(|making| &mut making.model);
            models.for_each(|name| name.clone_from(&model.name));
        }
        let (now_ms, last_call) = (self.services.now_ms(), &mut self.last_call);
        let making = self.making.iter_mut();
        making
            .flat_map(|making| making.calls(last_call, now_ms))
            .collect()
    }

    /// Takes the answer to a call. One that nobody waits for any more is ignored.
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
                // The host gave the call up for reasons of its own; the model is not to blame.
                if failure.kind != FailureKind::Cancelled {
                    self.cool_downs.failed(&making.model, &failure);
                }
                if matches!(making.purpose, Purpose::Redo(_)) {
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
            Purpose::Redo(of) => {
                self.better.push((of, text));
                let surplus = self.better.len().saturating_sub(REMEMBERED);
                self.better.drain(..surplus);
            }
        }
    }

    /// The model's text for a summary that is in force, if it was written without the model and redone since.
    pub fn better(&self, text: &str) -> Option<&str> {
        let mut better = self.better.iter();
        let (_, found) = better.find(|(of, _)| of.trim() == text.trim())?;
        Some(found)
    }

    /// Writes a summary: from what is ready, by the model, or by extracting it from the messages.
    ///
    /// # Errors
    /// [`EngineError::Cancelled`] if the host gave the call up.
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
            None if order.may_wait_for_model => self.ask(task, &model, order.force)?,
            None => {
                Err("the summary model's answer was not ready, and nobody may wait for it".into())
            }
        };
        Ok(match answer {
            Ok(text) => {
                let note = format!("{} wrote the summary", model.name);
                WrittenSummary::new(task, task.finish(text), note)
            }
            Err(reason) => {
                let text = task.extract(None);
                let note = format!(
                    "the summary was extracted from the messages without a model: {reason}"
                );
                let summariser = self.summariser(task, Some(text.clone()), &model);
                let purpose = Purpose::Redo(text.clone());
                WrittenSummary {
                    degraded: true,
                    redo: summariser.map(|it| Making::new(purpose, task.covers(), model.name, it)),
                    ..WrittenSummary::new(task, text, note)
                }
            }
        })
    }

    /// What is ready for a task, with what came since.
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

    /// Asks the model while somebody waits. The inner error says, for a person, why there is no answer.
    fn ask(
        &mut self,
        task: &impl Task,
        model: &ModelInfo,
        force: bool,
    ) -> Result<Result<String, String>, EngineError> {
        let services = &self.services;
        // A forced compaction may follow a fix of the problem.
        if let Some(cool_down) = self.cool_downs.in_force().filter(|_| !force) {
            let seconds = (cool_down.until_ms - services.now_ms()) / 1_000;
            return Ok(Err(format!(
                "{} failed ({}) and is left alone for another {seconds} s",
                model.name, cool_down.failure
            )));
        }
        let Some(summariser) = self.summariser(task, task.facts(), model) else {
            return Ok(Err("the messages say nothing".to_owned()));
        };
        let mut summariser = summariser.in_window(task.covers().last().copied());
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

    /// The host put these summaries in force. What was prepared for messages that they cover is dropped, and what was
    /// written without the model is to be redone.
    pub fn committed(&mut self, written: impl IntoIterator<Item = WrittenSummary>) {
        let mut left = HashSet::new();
        let mut redo = Vec::new();
        for summary in written {
            left.extend(summary.covers);
            self.degraded += u64::from(summary.degraded);
            redo.extend(summary.redo);
        }
        if left.is_empty() {
            return;
        }
        self.redo = redo;
        self.ready.retain(|ready| ready.covers.is_disjoint(&left));
        self.making.retain(|making| {
            let is_next = matches!(making.purpose, Purpose::Next(_));
            is_next && !making.covers.iter().any(|id| left.contains(id))
        });
    }

    /// Adds what a person or a monitor may want to know of the summaries to an engine's status.
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use contexture_engine_api::Cut;
    use contexture_testkit::{ScriptedHost, ScriptedModel};

    use super::*;

    /// Notes on the messages of these numbers.
    #[derive(Debug, Clone, Default)]
    struct Numbers {
        covers: Vec<u64>,
        previous: Option<String>,
        facts: Option<String>,
    }

    fn task(covers: &[u64], previous: Option<&str>) -> Numbers {
        Numbers {
            covers: covers.to_vec(),
            previous: previous.map(str::to_owned),
            facts: None,
        }
    }

    impl Task for Numbers {
        fn covers(&self) -> Vec<MessageId> {
            self.covers.iter().copied().map(MessageId).collect()
        }

        fn previous(&self) -> Option<&str> {
            self.previous.as_deref()
        }

        fn prompts(&self, facts: Option<String>) -> Box<dyn Prompts> {
            Box::new(Self {
                facts,
                ..self.clone()
            })
        }

        fn material(&self) -> Vec<String> {
            self.covers.iter().map(u64::to_string).collect()
        }

        fn extract(&self, ready: Option<&Ready>) -> String {
            let covers = self.covers.iter();
            let rest = covers
                .filter(|id| !ready.is_some_and(|ready| ready.covers.contains(&MessageId(**id))));
            let rest: Vec<String> = rest.map(u64::to_string).collect();
            let before = ready.map_or("", |ready| &ready.text);
            format!("{before}<{}>", rest.join(" "))
        }

        fn finish(&self, text: String) -> String {
            format!("{text}!")
        }
    }

    impl Prompts for Numbers {
        fn system(&self) -> String {
            String::new()
        }

        fn whole(&self, material: &str) -> String {
            format!("{:?} {:?} {material}", self.previous, self.facts)
        }

        fn piece(&self, material: &str, number: usize, _of: usize, _tokens: u64) -> String {
            format!("piece {number}: {material}")
        }

        fn read(&self, answer: &str) -> Result<String, ModelFailure> {
            Ok(answer.to_owned())
        }

        fn budget(&self) -> u64 {
            100
        }
    }

    struct Play {
        host: Arc<ScriptedHost>,
        cycle: SummaryCycle,
    }

    impl Play {
        fn new() -> Self {
            let host = ScriptedHost::with_model(10_000);
            let cycle = SummaryCycle::open(host.data_dir(), host.services());
            Self { host, cycle }
        }

        /// Has a summary prepared, and the model answer like this.
        fn prepares(&mut self, task: &Numbers, answer: Result<&str, FailureKind>) {
            assert!(self.cycle.is_free());
            self.cycle.prepare(task);
            self.background(answer);
        }

        /// Has the background calls answered like this, each; how many there were.
        fn background(&mut self, answer: Result<&str, FailureKind>) -> usize {
            let calls = self.cycle.calls();
            for call in &calls {
                let answer = answer.map(ScriptedModel::answer);
                let answer = answer.map_err(|kind| ModelFailure::new(kind, "scripted"));
                self.cycle.answered(call.id, answer);
            }
            calls.len()
        }

        fn writes(&mut self, task: &Numbers, may_wait: bool) -> WrittenSummary {
            let order = CompressOrder::default().may_wait_for_model(may_wait);
            self.cycle.write(task, &order).unwrap()
        }

        fn status(&self) -> [u64; 3] {
            let status = self.cycle.with_status(json!({}));
            let of = |key: &str| status["background"][key].as_u64().unwrap();
            [
                "summaries_in_the_making",
                "summaries_ready",
                "summaries_to_redo",
            ]
            .map(of)
        }
    }

    #[test]
    fn what_is_ready_is_used_for_its_own_messages_and_summary_alone() {
        for (task_, text) in [
            (task(&[1, 2, 3], Some("old")), "ready!"),
            (task(&[1, 2, 3, 4], Some("old")), "ready<4>!"),
            (task(&[1, 2], Some("old")), "<1 2>"),
            (task(&[1, 2, 3], Some("other")), "<1 2 3>"),
            (task(&[1, 2, 3], None), "<1 2 3>"),
        ] {
            let mut play = Play::new();
            play.prepares(&task(&[1, 2, 3], Some("old")), Ok("ready"));
            assert!(play.cycle.is_free() && !play.cycle.is_idle());
            let written = play.writes(&task_, false);
            assert_eq!(written.text, text, "{task_:?}");
            assert_eq!(written.degraded, text.starts_with('<'), "{task_:?}");
            assert_eq!(play.host.model.calls(), 0, "nobody may wait");
        }
        // Of several the one with the most messages is used, and the same is not made twice.
        let mut play = Play::new();
        play.prepares(&task(&[1], None), Ok("one"));
        play.prepares(&task(&[1, 2], None), Ok("two"));
        play.cycle.prepare(&task(&[1, 2], None));
        assert_eq!(play.status(), [0, 2, 0]);
        assert_eq!(play.writes(&task(&[1, 2, 3], None), false).text, "two<3>!");
    }

    #[test]
    fn without_a_ready_one_the_model_is_asked_only_if_somebody_waits() {
        let mut play = Play::new();
        play.host.model.will(Ok("asked"));
        let written = play.writes(&task(&[1], None), true);
        assert_eq!((written.text.as_str(), written.degraded), ("asked!", false));
        play.host.model.will(Err(FailureKind::Overloaded));
        for reason in ["Overloaded", "left alone for another 30 s"] {
            let written = play.writes(&task(&[1], None), true);
            assert!(
                written.degraded && written.note.contains(reason),
                "{written:?}"
            );
        }
        // A forced compaction does not wait for the end of the cool-down.
        play.host.model.will(Ok("forced"));
        let order = CompressOrder::default()
            .may_wait_for_model(true)
            .force(true);
        let written = play.cycle.write(&task(&[1], None), &order).unwrap();
        assert_eq!(written.text, "forced!");
        play.host.model.will(Err(FailureKind::Cancelled));
        let cancelled = play.cycle.write(&task(&[1], None), &order);
        assert!(matches!(cancelled, Err(EngineError::Cancelled)));
        // A model that is not there, or not wanted, is not missed.
        for (host, wanted) in [
            (ScriptedHost::without_model(), true),
            (ScriptedHost::with_model(1_000), false),
        ] {
            let cycle = SummaryCycle::open(host.data_dir(), host.services());
            let cycle = cycle.using_model(wanted);
            let mut play = Play { host, cycle };
            let written = play.writes(&task(&[1], None), true);
            assert_eq!((written.degraded, written.note.as_str()), (false, NO_MODEL));
            assert!(!play.cycle.is_free());
        }
    }

    #[test]
    fn what_was_written_without_the_model_is_redone_until_it_answers() {
        let mut play = Play::new();
        let written = play.writes(&task(&[1, 2], Some("old")), false);
        assert_eq!(play.status(), [0, 0, 0], "it may still be discarded");
        play.cycle.committed([written]);
        assert_eq!(play.status(), [0, 0, 1]);
        assert!(!play.cycle.is_free(), "it comes before the next one");
        assert_eq!(play.background(Err(FailureKind::Timeout)), 1);
        assert_eq!(
            play.background(Ok("too early")),
            0,
            "the model is left alone"
        );
        play.host.advance_clock(30_000);
        assert_eq!(play.background(Err(FailureKind::Cancelled)), 1);
        let call = play.cycle.calls().remove(0);
        assert_eq!(call.request.prompt, "Some(\"old\") Some(\"<1 2>\") 1\n2");
        assert!(play.cycle.calls().is_empty(), "one at a time");
        let answer = Ok(ScriptedModel::answer("better"));
        play.cycle.answered(call.id, answer);
        assert_eq!(play.cycle.better("<1 2>"), Some("better"));
        assert_eq!(play.cycle.better("<1>"), None);
        assert_eq!(play.status(), [0, 0, 0]);
    }

    #[test]
    fn what_is_no_longer_true_is_dropped() {
        let prepared = || {
            let mut play = Play::new();
            play.prepares(&task(&[1, 2], None), Ok("a"));
            play.prepares(&task(&[3, 4], None), Ok("b"));
            play.cycle.prepare(&task(&[5, 6], None));
            assert_eq!(play.status(), [1, 2, 0]);
            play
        };
        let cut = Delivery::new(&[], 0).after(Some(Cut::after(Some(MessageId(5)))));
        let revisions = [(MessageId(7), MessageId(3))];
        let revised = Delivery::new(&[], 0).with_revisions(&revisions);
        for (delivery, left) in [(cut, [0, 0, 0]), (revised, [1, 1, 0])] {
            let mut play = prepared();
            let calls = play.cycle.calls();
            play.cycle.observe(&delivery);
            assert_eq!(play.status(), left);
            // The answer to what was dropped is ignored.
            let answer = Ok(ScriptedModel::answer("late"));
            play.cycle.answered(calls[0].id, answer);
            assert_eq!(play.status()[1], left[0] + left[1]);
        }
        let mut play = prepared();
        let written = play.writes(&task(&[1, 2], None), false);
        play.cycle.committed([written]);
        assert_eq!(play.status(), [1, 1, 0]);
        let written = play.writes(&task(&[4, 5], None), false);
        play.cycle.committed([written]);
        assert_eq!(play.status(), [0, 0, 1]);
    }

    #[test]
    fn where_nothing_was_said_no_model_is_asked() {
        let mut play = Play::new();
        play.cycle.prepare(&task(&[], None));
        assert!(play.cycle.is_idle());
        let written = play.writes(&task(&[], None), true);
        assert_eq!((written.text.as_str(), play.host.model.calls()), ("<>", 0));
    }

    #[test]
    fn pieces_are_put_together_and_lost_answers_are_asked_for_again() {
        let mut play = Play::new();
        play.host.model.becomes("small", 300);
        let covers: Vec<u64> = (1..400).collect();
        play.cycle.prepare(&task(&covers, None));
        let calls = play.cycle.calls();
        assert!(calls.len() > 1 && calls[0].request.prompt.starts_with("piece 1"));
        assert!(play.cycle.calls().is_empty());
        play.host.advance_clock(LOST_MS);
        let again = play.cycle.calls();
        assert!(again.len() == calls.len() && again[0].id != calls[0].id);
        for call in again {
            let answer = Ok(ScriptedModel::answer("notes"));
            play.cycle.answered(call.id, answer);
        }
        assert_eq!(play.background(Ok("all")), 1);
        assert_eq!(play.status(), [0, 1, 0]);
    }
}
