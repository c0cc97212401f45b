#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use contexture_engine_api::Cut;
use contexture_testkit::{ScriptedHost, ScriptedModel};

use super::*;

/// A task for notes on messages with these ids, with a text that says what it covers.
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
    fn rules(&self) -> RuleSection {
        RuleSection::default()
    }

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
        let rest =
            covers.filter(|id| !ready.is_some_and(|ready| ready.covers.contains(&MessageId(**id))));
        let rest: Vec<String> = rest.map(u64::to_string).collect();
        let before = ready.map_or("", |ready| &ready.text);
        format!("{before}<{}>", rest.join(" "))
    }

    fn work_record(&self) -> WorkRecord {
        WorkRecord::default()
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

    /// Prepares a summary, and lets the model give this answer to each of its calls.
    fn prepares(&mut self, task: &Numbers, answer: Result<&str, FailureKind>) {
        assert!(self.cycle.is_free());
        self.cycle.prepare(task);
        self.background(answer);
    }

    /// Lets the model give this answer to each of the background calls. Returns how many there
    /// were.
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
    // If several texts are ready, the one with the most messages is used, and the same text is
    // not made twice.
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
    for reason in ["Overloaded", "not called for another 30 s"] {
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
    // If a model is not configured or not wanted, the summary does not count as degraded.
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
    assert_eq!(play.cycle.better("<1 2>").as_deref(), Some("better"));
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
    let cut = Delivery::new(&[]).after(Some(Cut::after(Some(MessageId(5)))));
    let revisions = [(MessageId(7), MessageId(3))];
    let revised = Delivery::new(&[]).with_revisions(&revisions);
    for (delivery, left) in [(cut, [0, 0, 0]), (revised, [1, 1, 0])] {
        let mut play = prepared();
        let calls = play.cycle.calls();
        play.cycle.observe(&delivery);
        assert_eq!(play.status(), left);
        // The answer to a dropped call is ignored.
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
