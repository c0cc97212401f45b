//! The engine over many turns, between a host and a model that do what they are told: what is refused,
//! what comes late, what comes back, and what the store cannot be told.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use contexture_engine_api::{
    BackgroundCall, Compaction, CompressOrder, CompressRequest, ContextEngine, EngineFactory,
    Entry, FactoryRequest, FailureKind, HostServices, LogLevel, MessageId, MessageKind,
    MessageView, ModelAnswer, ModelFailure, ModelInfo, ModelRequest, OpenRequest, Outcome,
    SUMMARY_MARK, Services, ToolCall, ToolCallView, WindowState,
};
use contexture_lcm::Lcm;
use rusqlite::Connection;
use serde_json::{Value, json};

/// What the model says to a request.
type Model = Box<dyn Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync>;

struct Host {
    model: Mutex<Model>,
    model_window: AtomicU64,
    calls: AtomicU64,
    clock: AtomicI64,
}

impl Host {
    fn new(
        model: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            model: Mutex::new(Box::new(model)),
            model_window: AtomicU64::new(20_000),
            calls: AtomicU64::new(0),
            clock: AtomicI64::new(1_800_000_000_000),
        })
    }

    fn now_says(
        &self,
        model: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) {
        *self.model.lock().unwrap() = Box::new(model);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

struct Lent(Arc<Host>);

impl HostServices for Lent {
    fn model(&self) -> Option<ModelInfo> {
        Some(ModelInfo {
            name: "stand-in".to_owned(),
            context_length: self.0.model_window.load(Ordering::Relaxed),
        })
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        match (self.0.model.lock().unwrap())(request) {
            Ok(text) => Ok(ModelAnswer {
                text,
                model: "stand-in".to_owned(),
                input_tokens: 0,
                output_tokens: 0,
            }),
            Err(kind) => Err(ModelFailure::new(kind, "as told")),
        }
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        requests.iter().map(|one| self.complete(one)).collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        count(text)
    }

    fn log(&self, _level: LogLevel, _message: &str) {}

    fn is_cancelled(&self) -> bool {
        false
    }

    fn now_ms(&self) -> i64 {
        self.0.clock.load(Ordering::Relaxed)
    }
}

fn count(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// A message of the window.
#[derive(Debug, Clone)]
struct Slot {
    id: MessageId,
    role: &'static str,
    text: String,
    /// The arguments of its one call.
    arguments: Option<String>,
    /// The call that it answers.
    answers: Option<String>,
    kind: MessageKind,
    raw: String,
}

impl Slot {
    fn tokens(&self) -> u64 {
        count(&self.text) + self.arguments.as_deref().map_or(0, count)
    }
}

/// A conversation, and what a host does for it.
struct Play {
    dir: Arc<tempfile::TempDir>,
    host: Arc<Host>,
    engine: Box<dyn ContextEngine>,
    slots: Vec<Slot>,
    next_id: u64,
    compactions: u64,
    context_length: u64,
    fixed: u64,
    /// How many tokens the provider counts for one of ours.
    reports: f64,
    /// What came of the last compaction.
    last: Option<Outcome>,
    compress_calls: u64,
}

const SETTINGS: &str = r#"{"fresh_tail_messages": 4}"#;

fn engine(dir: &Path, host: &Arc<Host>) -> Box<dyn ContextEngine> {
    let factory = Lcm::create(&FactoryRequest {
        settings: SETTINGS,
        data_dir: dir,
    })
    .unwrap();
    factory
        .open(&OpenRequest {
            session: "s",
            settings: SETTINGS,
            data_dir: dir,
            services: Services::new(Arc::new(Lent(Arc::clone(host)))),
            window: &WindowState::default(),
            compaction: None,
        })
        .unwrap()
}

impl Play {
    fn new(host: &Arc<Host>) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self {
            engine: engine(dir.path(), host),
            dir,
            host: Arc::clone(host),
            slots: Vec::new(),
            next_id: 1,
            compactions: 0,
            context_length: 8_000,
            fixed: 0,
            reports: 1.0,
            last: None,
            compress_calls: 0,
        }
    }

    fn database(&self) -> Connection {
        Connection::open(self.dir.path().join("lcm.sqlite3")).unwrap()
    }

    fn tokens(&self) -> u64 {
        self.fixed + self.slots.iter().map(Slot::tokens).sum::<u64>()
    }

    fn window(&self) -> WindowState {
        let tokens = (self.tokens() as f64 * self.reports) as u64;
        WindowState {
            context_length: self.context_length,
            max_output_tokens: self.context_length / 16,
            prompt_tokens: tokens,
            fixed_tokens: self.fixed,
            ..WindowState::default()
        }
    }

    fn with_views<T>(
        &mut self,
        of: &[Slot],
        work: impl FnOnce(&mut dyn ContextEngine, &[MessageView<'_>]) -> T,
    ) -> T {
        let calls: Vec<Vec<ToolCallView<'_>>> = of
            .iter()
            .map(|slot| {
                let call = |arguments| ToolCallView::new("c", "write", arguments);
                slot.arguments.as_deref().map(call).into_iter().collect()
            })
            .collect();
        let views: Vec<MessageView<'_>> = of
            .iter()
            .zip(&calls)
            .map(|(slot, calls)| {
                let view = MessageView::new(slot.id, slot.role)
                    .with_text(&slot.text)
                    .with_raw(&slot.raw)
                    .with_kind(slot.kind)
                    .with_tool_calls(calls)
                    .with_tokens(slot.tokens());
                match &slot.answers {
                    Some(call) => view.with_result_of(call, "write"),
                    None => view,
                }
            })
            .collect();
        work(self.engine.as_mut(), &views)
    }

    fn slot(&mut self, role: &'static str, text: &str) -> Slot {
        self.next_id += 1;
        Slot {
            id: MessageId(self.next_id - 1),
            role,
            text: text.to_owned(),
            arguments: None,
            answers: None,
            kind: MessageKind::Original,
            raw: json!({"role": role, "content": text}).to_string(),
        }
    }

    fn observe(&mut self, slot: Slot) -> Result<MessageId, String> {
        let id = slot.id;
        self.with_views(std::slice::from_ref(&slot), |engine, views| {
            engine.observe(views, id.0)
        })
        .map_err(|error| error.to_string())?;
        self.slots.push(slot);
        Ok(id)
    }

    fn say(&mut self, role: &'static str, text: &str) -> MessageId {
        let slot = self.slot(role, text);
        self.observe(slot).unwrap()
    }

    /// A user's and an assistant's message of about a hundred tokens each.
    fn chat(&mut self, about: &str) {
        let words = "More words follow. ".repeat(18);
        self.say(
            "user",
            &format!("{about}-asked is in src/{about}.rs. {words}"),
        );
        self.say("assistant", &format!("{about}-answered is done. {words}"));
    }

    /// Compacts if the engine wants to; whether it proposed something.
    fn compress(&mut self, force: bool, may_wait: bool) -> bool {
        self.compress_calls += 1;
        let order = CompressOrder {
            window: self.window(),
            force,
            may_wait_for_model: may_wait,
            ..CompressOrder::default()
        };
        let slots = self.slots.clone();
        let outcome = self.with_views(&slots, |engine, views| {
            engine.compress(&CompressRequest {
                messages: views,
                order: &order,
            })
        });
        let outcome = outcome.unwrap();
        self.last = Some(outcome.clone());
        let Outcome::Compacted(compaction) = outcome else {
            return false;
        };
        let before = self.tokens();
        self.apply(&compaction);
        assert!(self.tokens() < before, "it grew");
        self.compactions += 1;
        self.engine.committed(self.compactions);
        true
    }

    fn apply(&mut self, compaction: &Compaction) {
        let mut old: HashMap<MessageId, Slot> = self.slots.drain(..).map(|s| (s.id, s)).collect();
        for entry in &compaction.entries {
            match entry {
                Entry::Keep(id) => self.slots.push(old.remove(id).unwrap()),
                Entry::Replace(short) => {
                    let mut slot = old.remove(&short.id).unwrap();
                    if let Some(text) = &short.text {
                        slot.text.clone_from(text);
                    }
                    if let Some(arguments) = short.arguments.first() {
                        slot.arguments = Some(arguments.arguments.clone());
                    }
                    slot.kind = MessageKind::Replaced;
                    self.slots.push(slot);
                }
                Entry::Summary { text, covers } => {
                    covers.iter().for_each(|id| {
                        old.remove(id).unwrap();
                    });
                    let mut slot = self.slot("user", text);
                    slot.kind = MessageKind::Summary;
                    self.slots.push(slot);
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(old.is_empty(), "something left without a trace");
    }

    fn background(&mut self) -> Vec<BackgroundCall> {
        self.engine.background()
    }

    fn answer(&mut self, calls: Vec<BackgroundCall>) {
        let lent = Lent(Arc::clone(&self.host));
        for call in calls {
            let answer = lent.complete(&call.request);
            self.engine.background_done(call.id, answer);
        }
    }

    /// What a host does at the end of each turn.
    fn turn(&mut self) {
        if self.engine.should_compress(&self.window()).is_yes() {
            self.compress(false, false);
        }
        let calls = self.background();
        self.answer(calls);
    }

    fn block(&self) -> &str {
        let summary = self
            .slots
            .iter()
            .find(|slot| slot.kind == MessageKind::Summary);
        summary.map_or("", |slot| &slot.text)
    }

    fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let call = ToolCall {
            name: name.to_owned(),
            arguments: arguments.to_string(),
        };
        serde_json::from_str(&self.engine.call_tool(&call).unwrap()).unwrap()
    }

    fn to_redo(&self) -> u64 {
        let status = self.engine.status();
        let depths = status["summaries"].as_array().unwrap();
        depths.iter().map(|d| d["to_redo"].as_u64().unwrap()).sum()
    }

    fn sound(&mut self) {
        let doctor = self.tool("lcm_doctor", &json!({}));
        assert_eq!(doctor["lineage"]["ok"], json!(true), "{doctor:#}");
    }
}

fn summary(request: &ModelRequest) -> Result<String, FailureKind> {
    // Different each time, and short.
    Ok(format!(
        "The model's words on {} bytes.",
        request.prompt.len()
    ))
}

#[test]
fn texts_that_the_model_refuses_cost_two_calls_each_and_hold_nothing_up() {
    let refuses = |request: &ModelRequest| match request.prompt.contains("forbidden") {
        true => Err(FailureKind::Refused),
        false => summary(request),
    };
    let host = Host::new(refuses);
    let mut play = Play::new(&host);
    let mut most = 0;
    for at in 0..150 {
        let about = match at % 10 {
            3 => format!("forbidden-{at}"),
            _ => format!("fact-{at}"),
        };
        play.chat(&about);
        most = most.max(play.tokens());
        play.turn();
        // The model is not to blame: it answers everything else.
        assert_eq!(play.engine.status()["cool_down"], Value::Null, "at {at}");
    }
    // From the soft threshold on, 4,000, there is always something ready.
    assert!(most < 4_800, "a compaction waited up to {most} tokens");
    assert!(play.compactions > 5, "{}", play.compactions);
    // A leaf takes some five of the turns here; each that was refused is tried twice, at most three times over.
    assert!(host.calls() < 150, "{} calls", host.calls());
    let calls = host.calls();
    for _ in 0..30 {
        play.turn();
    }
    assert!(
        host.calls() <= calls + 40,
        "{} calls while nothing was said",
        host.calls() - calls
    );
    play.sound();
}

#[test]
fn a_model_that_refuses_everything_is_left_alone_for_a_while() {
    let host = Host::new(|_| Err(FailureKind::Empty));
    let mut play = Play::new(&host);
    for at in 0..150 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        assert!(play.tokens() < 6_400, "at {at}: {}", play.tokens());
    }
    assert!(host.calls() <= 16, "{} calls", host.calls());
    host.clock.fetch_add(61_000, Ordering::Relaxed);
    let calls = host.calls();
    for at in 150..200 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    assert!(
        (1..=2).contains(&(host.calls() - calls)),
        "one text is tried after a while, not {}",
        host.calls() - calls
    );
    play.sound();
}

#[test]
fn everything_of_a_lower_level_is_redone_when_the_model_is_back() {
    let host = Host::new(|_| Err(FailureKind::Overloaded));
    let mut play = Play::new(&host);
    for at in 0..150 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    let degraded = play.to_redo();
    let depths = play.engine.status()["summaries"].as_array().unwrap().len();
    assert!(
        degraded > 5 && depths > 1,
        "{degraded} nodes, {depths} depths"
    );
    let block = play.block().to_owned();
    // All of it is in the search index.
    play.engine.end();

    host.now_says(summary);
    let calls = host.calls();
    host.clock.fetch_add(61_000, Ordering::Relaxed);
    for _ in 0..60 {
        let calls = play.background();
        play.answer(calls);
        assert_eq!(
            play.block(),
            block,
            "the window changes with a compaction only"
        );
    }
    let made = host.calls() - calls;
    assert!(made <= degraded + 8, "{made} calls for {degraded} nodes");
    assert!(play.compress(true, true));
    assert_eq!(play.to_redo(), 0, "{:#}", play.engine.status());
    assert!(
        play.block().contains("The model's words"),
        "{}",
        play.block()
    );
    // Search knows the new texts, before and after they are in the index.
    for _ in 0..2 {
        let new = json!({"pattern": "The model's words", "mode": "literal", "scope": "summaries"});
        let found = play.tool("lcm_grep", &new);
        assert!(found["total"].as_u64() >= Some(degraded), "{found}");
        play.engine.end();
        let doctor = play.tool("lcm_doctor", &json!({}));
        assert_eq!(doctor["ok"], json!(true), "{doctor:#}");
    }
    let made = host.calls();
    for _ in 0..5 {
        let calls = play.background();
        play.answer(calls);
    }
    assert!(host.calls() - made <= 8, "nothing is redone twice");
    play.sound();
}

#[test]
fn what_the_model_only_managed_in_half_the_room_is_redone() {
    let short_only = |request: &ModelRequest| match request.system.contains("shortest list") {
        true => summary(request),
        false => Err(FailureKind::CutOff),
    };
    let host = Host::new(short_only);
    let mut play = Play::new(&host);
    for at in 0..40 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true));
    let described = play.tool("lcm_describe", &json!({"id": "s1"}));
    assert_eq!(described["level"], json!("aggressive"), "{described}");
    assert!(play.to_redo() > 0);
    host.now_says(summary);
    for _ in 0..20 {
        let calls = play.background();
        play.answer(calls);
    }
    assert!(play.compress(true, true));
    assert_eq!(play.to_redo(), 0);
    let described = play.tool("lcm_describe", &json!({"id": "s1"}));
    assert_eq!(described["level"], json!("normal"), "{described}");
}

#[test]
fn answers_that_come_after_a_revision_or_a_cut_are_put_aside() {
    let host = Host::new(summary);
    let mut play = Play::new(&host);
    for at in 0..19 {
        play.chat(&format!("fact-{at}"));
    }
    let _ = play.engine.should_compress(&play.window());
    let calls = play.background();
    assert!(calls.len() > 1, "{}", calls.len());
    let covered = calls[0].covers[1];
    // The client edits a message that a call is about, and cuts off what another is about.
    let mut new = play.slot("user", "Other words in its place.");
    let place = play
        .slots
        .iter()
        .position(|slot| slot.id == covered)
        .unwrap();
    new.role = play.slots[place].role;
    play.engine.revised(&[(new.id, covered)]);
    let revision = new.clone();
    play.observe(new).unwrap();
    play.slots.pop();
    play.slots[place] = revision.clone();
    let again = revision;
    let first = calls[0].id;
    let stale: Vec<BackgroundCall> = calls
        .iter()
        .filter(|call| call.id == first)
        .cloned()
        .collect();
    play.answer(stale);
    assert_eq!(play.engine.status()["background"]["leaves_ready"], json!(0));
    // The others are good.
    let (good, late) = calls[1..].split_at(1);
    play.answer(good.to_vec());
    assert_eq!(play.engine.status()["background"]["leaves_ready"], json!(1));
    let last = play.slots[2].id;
    play.engine.branched(Some(last));
    play.slots.truncate(3);
    // The edit is part of what is left, and came after the place of the cut: it is shown again.
    play.slots.retain(|slot| slot.id != again.id);
    let chain = again.id.0;
    play.with_views(std::slice::from_ref(&again), |engine, views| {
        engine.observe(views, chain)
    })
    .unwrap();
    play.slots.insert(place, again);
    play.answer(late.to_vec());
    let status = play.engine.status();
    assert_eq!(status["background"]["leaves_ready"], json!(0), "{status}");
    assert_eq!(status["background"]["calls_out"], json!(0), "{status}");
    for at in 20..60 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    assert!(play.compactions > 0);
    play.sound();
}

#[test]
fn where_a_part_of_the_leaves_is_ready_that_part_goes_in_and_the_rest_waits() {
    let host = Host::new(summary);
    let mut play = Play::new(&host);
    for at in 0..22 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.engine.should_compress(&play.window()).is_yes());
    let calls = play.background();
    assert!(calls.len() > 2, "{}", calls.len());
    assert!(!play.compress(false, false), "nothing is ready");
    assert!(
        matches!(play.last, Some(Outcome::Deferred(_))),
        "{:?}",
        play.last
    );
    // The second leaf alone is of no use: what is before it is not ready.
    let covers: Vec<usize> = calls.iter().map(|call| call.covers.len()).collect();
    play.answer(vec![calls[1].clone()]);
    assert!(!play.compress(false, false));
    play.answer(vec![calls[0].clone()]);
    let raw = play.slots.len();
    assert!(play.compress(false, false));
    assert_eq!(play.slots.len(), raw - covers[0] - covers[1] + 1);
    let frontier = play.engine.status()["frontier"].clone();
    assert_eq!(frontier["nodes"], json!(2), "{frontier}");
    assert_eq!(play.to_redo(), 0, "nothing was extracted");
    // What is still out is not asked for again.
    let made = host.calls();
    play.answer(calls[2..].to_vec());
    assert!(play.engine.status()["background"]["leaves_ready"].as_u64() > Some(0));
    assert_eq!(host.calls() - made, calls.len() as u64 - 2);
    play.sound();
}

#[test]
fn two_engines_on_one_session_lose_nothing() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    let mut one = Play::new(&host);
    for at in 0..30 {
        one.chat(&format!("fact-{at}"));
    }
    let mut two = Play::new(&host);
    two.dir = Arc::clone(&one.dir);
    two.engine = engine(one.dir.path(), &host);
    (two.slots, two.next_id) = (one.slots.clone(), one.next_id);

    // Both propose; neither knows of the other's nodes.
    let order = |play: &Play| CompressOrder {
        window: play.window(),
        ..CompressOrder::default()
    };
    let propose = |play: &mut Play| {
        let (order, slots) = (order(play), play.slots.clone());
        play.with_views(&slots, |engine, views| {
            engine.compress(&CompressRequest {
                messages: views,
                order: &order,
            })
        })
    };
    let Ok(Outcome::Compacted(of_one)) = propose(&mut one) else {
        panic!("one proposes");
    };
    let Ok(Outcome::Compacted(of_two)) = propose(&mut two) else {
        panic!("two proposes");
    };
    one.apply(&of_one);
    one.engine.committed(1);
    two.apply(&of_two);
    two.engine.committed(1);
    let ids = |play: &Play| -> Vec<String> {
        let lines = play.block().lines().filter(|line| line.starts_with("[s"));
        lines
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect()
    };
    assert!(
        ids(&one).iter().all(|id| !ids(&two).contains(id)),
        "no number is used twice"
    );
    one.sound();
    two.sound();
    // The second takes over the first's frontier, whatever its own window shows.
    assert_eq!(
        two.engine.status()["frontier"],
        one.engine.status()["frontier"]
    );
    let words = "Words. ".repeat(600);
    let slot = two.slot("user", &words);
    two.observe(slot).unwrap();
    two.say("assistant", "Yes.");
    assert!(two.compress(true, false), "{:?}", two.last);
    two.sound();
    for at in 0..30 {
        let found = two.tool(
            "lcm_grep",
            &json!({"pattern": format!("fact-{at}-asked"), "scope": "messages"}),
        );
        assert_eq!(found["total"], json!(1), "{found}");
    }
    let covered: u64 = two.engine.status()["frontier"]["messages"]
        .as_u64()
        .unwrap();
    let raw = two
        .slots
        .iter()
        .filter(|slot| slot.kind == MessageKind::Original)
        .count();
    assert_eq!(
        covered + raw as u64,
        62,
        "each message is in the window or under one summary"
    );
}

#[test]
fn a_provider_that_counts_a_third_more_is_no_reason_to_compact_every_turn() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    play.reports = 1.3;
    // Most of the window is a message of the user's own that stays.
    play.say("user", &"My own words, all of which matter. ".repeat(380));
    for at in 0..60 {
        play.say(
            "assistant",
            &format!("step-{at} is done. {}", "More. ".repeat(6)),
        );
        play.turn();
    }
    assert!(
        play.compress_calls <= 12,
        "{} attempts in 60 turns",
        play.compress_calls
    );
    play.sound();
}

#[test]
fn it_gets_below_the_hard_threshold_or_says_that_the_floor_is_too_high() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    // Of a window of 8,000 the hard threshold is 6,400. The user's words take ever more of it.
    for repeats in (400..600).step_by(20).chain((600..900).step_by(8)) {
        let mut play = Play::new(&host);
        for at in 0..25 {
            play.chat(&format!("fact-{at}"));
        }
        let own = "My own words, all of which matter. ".repeat(repeats);
        play.say("user", &own);
        play.say("assistant", "Working on it.");
        let before = play.tokens();
        let compacted = play.compress(false, false);
        match play.last.clone() {
            Some(Outcome::Compacted(_)) if play.tokens() < 6_400 => assert!(compacted),
            // Nothing else would make the request one that the provider takes.
            Some(Outcome::Compacted(made)) => {
                assert!(
                    before >= 7_500 && play.tokens() < 7_500,
                    "{before} to {}",
                    play.tokens()
                );
                assert!(
                    made.notes.iter().any(|note| note.contains("still has")),
                    "{:?}",
                    made.notes
                );
            }
            Some(Outcome::FloorTooHigh { floor_tokens, .. }) => {
                assert!(floor_tokens >= 6_000, "{floor_tokens}");
            }
            other => panic!("{other:?}"),
        }
        // The floor is the user's words and the last turn; beside them two hundred tokens are enough.
        if count(&own) + 200 < 6_400 {
            assert!(
                compacted && play.tokens() < 6_400,
                "{} beside {}",
                play.tokens(),
                count(&own)
            );
        }
    }
}

#[test]
fn large_arguments_of_a_call_are_shown_shortened_and_come_back_whole() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    play.context_length = 100_000;
    play.say("user", "Write the file.");
    let content = "A line of the file, one of many. ".repeat(4_000);
    let arguments = json!({"path": "a.txt", "mode": 420, "content": content}).to_string();
    let mut call = play.slot("assistant", "");
    call.raw = json!({"role": "assistant", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "write", "arguments": arguments}},
    ]})
    .to_string();
    call.arguments = Some(arguments.clone());
    let raw = call.raw.clone();
    let id = play.observe(call).unwrap();
    let mut result = play.slot("tool", "Written.");
    result.answers = Some("c".to_owned());
    play.observe(result).unwrap();
    play.say("assistant", "Done.");
    play.say("user", "Thanks.");
    play.say("assistant", "You are welcome.");
    assert!(play.compress(true, false), "{:?}", play.last);
    let shown = play.slots.iter().find(|slot| slot.id == id);
    if let Some(shown) = shown {
        let short: Value = serde_json::from_str(shown.arguments.as_deref().unwrap()).unwrap();
        assert_eq!(
            (&short["path"], &short["mode"]),
            (&json!("a.txt"), &json!(420))
        );
        let text = short["content"].as_str().unwrap();
        assert!(
            text.len() < 400 && text.contains(&format!("lcm_expand with the id {id}")),
            "{text}"
        );
    }
    assert!(
        shown.is_some(),
        "it is part of the fresh tail: {:?}",
        play.slots
    );
    let mut whole = String::new();
    let mut cursor = Value::Null;
    loop {
        let page = play.tool(
            "lcm_expand",
            &json!({"id": id.to_string(), "max_tokens": 8_000, "cursor": cursor}),
        );
        for item in page["messages"].as_array().unwrap() {
            whole.push_str(item["message"].as_str().unwrap());
        }
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(whole == raw, "{} bytes of {}", whole.len(), raw.len());
}

#[test]
fn material_too_long_for_a_small_model_is_summarised_in_parts() {
    let host = Host::new(|request| {
        let facts: Vec<&str> = request
            .prompt
            .split_whitespace()
            .filter(|word| word.starts_with("fact-"))
            .collect();
        Ok(facts.join(" "))
    });
    host.model_window.store(2_000, Ordering::Relaxed);
    let mut play = Play::new(&host);
    play.context_length = 60_000;
    for at in 0..160 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true), "{:?}", play.last);
    assert_eq!(play.to_redo(), 0, "the model wrote all of it");
    let kept = play
        .slots
        .iter()
        .filter(|slot| slot.kind == MessageKind::Original)
        .count()
        / 2;
    for at in 0..160 - kept - 2 {
        assert!(
            play.block().contains(&format!("fact-{at}-asked")),
            "fact-{at} of {}",
            play.block()
        );
    }

    // The window is smaller than the host knows: what is too long is halved.
    let host = Host::new(|request| match count(&request.prompt) > 1_000 {
        true => Err(FailureKind::TooLong),
        false => summary(request),
    });
    let mut play = Play::new(&host);
    play.context_length = 60_000;
    for at in 0..160 {
        play.chat(&format!("fact-{at}"));
    }
    assert!(play.compress(false, true), "{:?}", play.last);
    assert_eq!(play.to_redo(), 0, "the model wrote all of it, in parts");
}

#[test]
fn what_the_store_could_not_be_told_is_settled_before_anything_builds_on_it() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    for at in 0..30 {
        play.chat(&format!("fact-{at}"));
    }
    let refuse = "CREATE TRIGGER full_disk BEFORE INSERT ON frontier BEGIN SELECT RAISE(ABORT, 'full'); END;
                  CREATE TRIGGER full_disk_too BEFORE DELETE ON frontier BEGIN SELECT RAISE(ABORT, 'full'); END;";
    let room = "DROP TRIGGER full_disk; DROP TRIGGER full_disk_too;";
    let database = play.database();
    database.execute_batch(refuse).unwrap();
    assert!(play.compress(false, false));
    let stored = |play: &Play| -> u64 {
        let frontier = "SELECT count(*) FROM frontier";
        play.database()
            .query_row(frontier, [], |row| row.get::<_, i64>(0))
            .unwrap()
            .unsigned_abs()
    };
    let nodes = |play: &Play| play.engine.status()["frontier"]["nodes"].as_u64().unwrap();
    assert_eq!(
        (stored(&play), nodes(&play)),
        (0, 0),
        "memory says what the store says"
    );
    // Nothing is observed on top of it.
    let slot = play.slot("user", "Next.");
    assert!(play.observe(slot.clone()).is_err());
    database.execute_batch(room).unwrap();
    play.observe(slot).unwrap();
    assert!(stored(&play) > 0 && stored(&play) == nodes(&play));
    play.sound();

    // A cut that takes nodes apart, and fails.
    let before = nodes(&play);
    database.execute_batch(refuse).unwrap();
    let last = MessageId(5);
    play.engine.branched(Some(last));
    assert_eq!(
        nodes(&play),
        before,
        "the frontier in memory is the stored one"
    );
    assert_eq!(stored(&play), before);
    let slot = play.slot("user", "After the cut.");
    assert!(
        play.observe(slot.clone()).is_err(),
        "nothing is stored behind messages that are cut off"
    );
    database.execute_batch(room).unwrap();
    play.slots.clear();
    play.observe(slot).unwrap();
    assert!(nodes(&play) < before && stored(&play) == nodes(&play));
    let gone = play.tool("lcm_describe", &json!({"id": "m20"}));
    assert_eq!(gone["in_conversation"], json!(false), "{gone}");
    play.sound();

    // Nodes that cannot be written: no proposal, and nothing half done.
    for at in 30..60 {
        play.chat(&format!("fact-{at}"));
    }
    database
        .execute_batch("CREATE TRIGGER full_disk BEFORE INSERT ON node_messages BEGIN SELECT RAISE(ABORT, 'full'); END;")
        .unwrap();
    let (order, slots) = (
        CompressOrder {
            window: play.window(),
            force: true,
            ..CompressOrder::default()
        },
        play.slots.clone(),
    );
    let failed = play.with_views(&slots, |engine, views| {
        engine.compress(&CompressRequest {
            messages: views,
            order: &order,
        })
    });
    assert!(failed.is_err());
    let count: i64 = database
        .query_row("SELECT count(*) FROM nodes n WHERE NOT EXISTS(SELECT 1 FROM node_messages m WHERE m.node = n.id)
                    AND NOT EXISTS(SELECT 1 FROM node_children c WHERE c.node = n.id)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0, "no summary without sources");
    database.execute_batch("DROP TRIGGER full_disk").unwrap();
    assert_eq!(stored(&play), nodes(&play));
    play.sound();
}

#[test]
fn the_doctor_sees_what_is_said_twice_what_is_nowhere_and_what_was_replaced() {
    let host = Host::new(|_| Err(FailureKind::NoProvider));
    let mut play = Play::new(&host);
    for at in 0..60 {
        play.chat(&format!("fact-{at}"));
        play.turn();
    }
    play.sound();
    let database = play.database();
    let parent: i64 = database
        .query_row(
            "SELECT node FROM frontier JOIN node_children USING(node) LIMIT 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    // A child beside its parent: its messages are said twice.
    database
        .execute("INSERT INTO frontier SELECT 1, 1000, child, 1 FROM node_children WHERE node = ?1 LIMIT 1", [parent])
        .unwrap();
    let doctor = play.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["lineage"]["ok"], json!(false), "{doctor}");
    assert!(
        doctor["lineage"]["messages_said_twice"].as_u64() > Some(0),
        "{doctor}"
    );
    database
        .execute("DELETE FROM frontier WHERE position = 1000", [])
        .unwrap();
    play.sound();
    // The last message stands in for one that is summarised: its old form is still under the frontier.
    let replace = "UPDATE messages SET replaces = (SELECT min(message) FROM node_messages)
                   WHERE id = (SELECT max(id) FROM messages)";
    assert_eq!(database.execute(replace, []).unwrap(), 1);
    let doctor = play.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(false), "{doctor}");
    assert_eq!(
        doctor["lineage"]["messages_left_behind_and_summarised"],
        json!(1),
        "{doctor}"
    );
    database
        .execute("UPDATE messages SET replaces = NULL", [])
        .unwrap();
    play.sound();
    // A summary leaves the window: its messages are nowhere.
    database
        .execute("DELETE FROM frontier WHERE node = ?1", [parent])
        .unwrap();
    let doctor = play.tool("lcm_doctor", &json!({}));
    assert!(
        doctor["lineage"]["messages_nowhere"].as_u64() > Some(0),
        "{doctor}"
    );
}

#[test]
fn a_model_that_failed_is_left_alone_after_a_restart_too() {
    let host = Host::new(|_| Err(FailureKind::Auth));
    let mut play = Play::new(&host);
    for at in 0..25 {
        play.chat(&format!("fact-{at}"));
    }
    let _ = play.engine.should_compress(&play.window());
    let calls = play.background();
    assert!(!calls.is_empty());
    play.answer(calls);
    play.engine.end();
    play.engine = engine(play.dir.path(), &host);
    let _ = play.engine.should_compress(&play.window());
    assert!(play.background().is_empty());
    assert_eq!(play.engine.status()["cool_down"]["kind"], json!("auth"));
    // A clock that was set back by a day does not make it a day.
    host.clock.fetch_sub(86_400_000, Ordering::Relaxed);
    assert!(!play.background().is_empty());
}

#[test]
fn a_summary_is_marked_and_the_prefix_of_the_window_stays_between_compactions() {
    let host = Host::new(summary);
    let mut play = Play::new(&host);
    let mut blocks: Vec<(u64, String)> = Vec::new();
    for at in 0..80 {
        play.chat(&format!("fact-{at}"));
        play.turn();
        if play.compactions > 0 {
            assert!(play.block().starts_with(SUMMARY_MARK));
            blocks.push((play.compactions, play.block().to_owned()));
        }
    }
    let changed = blocks.windows(2).filter(|pair| pair[0].1 != pair[1].1);
    let unannounced = changed.filter(|pair| pair[0].0 == pair[1].0).count();
    assert_eq!(unannounced, 0);
    assert!(play.compactions > 2);
}
