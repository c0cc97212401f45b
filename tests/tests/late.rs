//! An engine that is slow: what it is shown late is waited for, and what it was shown in a call that was given up
//! comes again.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contexture::engines::{Engines, HealthState, register_context_engine};
use contexture::session::{AgentWindow, Session, SessionOptions};
use contexture_engine_api::{
    CompressRequest, ContextEngine, Decision, Delivery, EngineError, OpenRequest, Outcome,
    StandaloneEngine, WindowState, define_engine,
};
use contexture_tests::{Home, engines};
use serde_json::json;

/// How an engine behaves, and what it has seen.
struct Script {
    name: &'static str,
    /// How long the next showing takes, in milliseconds.
    delay_ms: AtomicU64,
    /// Whether showings wait until this is no longer set.
    stuck: AtomicBool,
    opened: AtomicUsize,
    /// What was shown to each object, in order.
    seen: Mutex<Vec<Vec<String>>>,
}

impl Script {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            delay_ms: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            seen: Mutex::new(Vec::new()),
        }
    }

    fn seen(&self) -> Vec<Vec<String>> {
        self.seen.lock().unwrap().clone()
    }
}

static SCRIPTS: [Script; 3] = [
    Script::new("slow-but-in-time"),
    Script::new("slow"),
    Script::new("stuck"),
];

/// The engine that follows one of the scripts.
struct Slow<const SCRIPT: usize> {
    object: usize,
}

impl<const SCRIPT: usize> StandaloneEngine for Slow<SCRIPT> {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let script = &SCRIPTS[SCRIPT];
        script.seen.lock().unwrap().push(Vec::new());
        Ok(Self {
            object: script.opened.fetch_add(1, Ordering::SeqCst),
        })
    }
}

impl<const SCRIPT: usize> ContextEngine for Slow<SCRIPT> {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("never".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("never".into()))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let script = &SCRIPTS[SCRIPT];
        let delay = script.delay_ms.swap(0, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(delay));
        while script.stuck.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let texts = delivery
            .messages
            .iter()
            .map(|message| message.text().to_owned());
        script.seen.lock().unwrap()[self.object].extend(texts);
        Ok(())
    }
}

fn home(script: &Script) -> (Home, Arc<Engines>) {
    let home = Home::new();
    home.configure(&format!(
        "context:\n  engine: {}\n  supervision: {{call_deadline_ms: 300, grace_ms: 50}}\n",
        script.name
    ));
    let engines = engines(&home);
    (home, engines)
}

fn open(engines: &Arc<Engines>) -> Session {
    open_as(engines, "late")
}

fn open_as(engines: &Arc<Engines>, id: &str) -> Session {
    let agent = AgentWindow::new("gpt-4o", 100_000, 4_096);
    Session::open(engines, None, id, agent, SessionOptions::default()).unwrap()
}

fn said(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("message {at}")).collect()
}

fn body(count: usize) -> String {
    let message = |(at, text): (usize, String)| json!({"role": if at % 2 == 0 { "user" } else { "assistant" }, "content": text});
    let messages: Vec<_> = said(count).into_iter().enumerate().map(message).collect();
    json!({"model": "gpt-4o", "messages": messages}).to_string()
}

fn wait_until(what: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < until, "nothing came of it");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_showing_that_is_late_is_waited_for() {
    register_context_engine(define_engine!("slow-but-in-time", Slow<0>)).unwrap();
    let script = &SCRIPTS[0];
    let (_home, engines) = home(script);
    let mut session = open(&engines);
    script.delay_ms.store(600, Ordering::SeqCst);
    session.turn(&body(3)).unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    session.turn(&body(5)).unwrap();
    assert_eq!(script.seen(), [said(5)]);
}

#[test]
fn what_an_engine_saw_after_it_was_given_up_comes_again() {
    register_context_engine(define_engine!("slow", Slow<1>)).unwrap();
    let script = &SCRIPTS[1];
    let (_home, engines) = home(script);
    let mut session = open(&engines);
    session.turn(&body(3)).unwrap();
    script.stuck.store(true, Ordering::SeqCst);
    session.turn(&body(5)).unwrap();
    let warnings = session.take_warnings().join("\n");
    let named = format!("engine `{}` did not return from observe", script.name);
    assert!(warnings.contains(&named), "{warnings}");
    assert_eq!(script.seen(), [said(3)], "{}", script.name);

    script.stuck.store(false, Ordering::SeqCst);
    wait_until(|| script.seen()[0].len() == 5);
    // It has seen them, and is about to return.
    std::thread::sleep(Duration::from_millis(100));
    session.turn(&body(7)).unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    let expected = [said(5), said(7)[3..].to_vec()].concat();
    assert_eq!(script.seen(), [expected], "{}", script.name);
    wait_until(|| engines.health()[0].abandoned_threads == 0);
}

#[test]
fn an_engine_that_is_still_stuck_is_opened_anew_and_shown_everything() {
    register_context_engine(define_engine!("stuck", Slow<2>)).unwrap();
    let script = &SCRIPTS[2];
    let (_home, engines) = home(script);
    let mut session = open(&engines);
    script.stuck.store(true, Ordering::SeqCst);
    session.turn(&body(3)).unwrap();
    let warnings = session.take_warnings().join("\n");
    assert!(
        warnings.contains("did not return from observe"),
        "{warnings}"
    );
    // The next turn is another object's; the first one stays where it is.
    let release = std::thread::spawn(move || {
        wait_until(|| script.opened.load(Ordering::SeqCst) == 2);
        script.stuck.store(false, Ordering::SeqCst);
    });
    session.turn(&body(5)).unwrap();
    release.join().unwrap();
    assert_eq!(session.take_warnings(), Vec::<String>::new());
    wait_until(|| script.seen()[0].len() == 3);
    assert_eq!(script.seen(), [said(3), said(5)]);
}

/// Two sessions in which it hangs are a quarantine for all. It ends by itself, and a session that was opened meanwhile gets
/// its engine then.
#[test]
fn an_engine_that_hangs_in_several_sessions_is_left_alone_for_a_while() {
    let home = Home::new();
    home.misbehave(
        "hang:observe",
        "  supervision: {call_deadline_ms: 300, grace_ms: 50, abandoned_threads: 2, quarantine_ms: 3000}\n",
    );
    let config = std::fs::read_to_string(home.config()).unwrap();
    home.configure(&format!("{config}      session: bad\n"));
    let engines = engines(&home);
    let state = || {
        engines
            .health()
            .into_iter()
            .find(|one| one.engine == "misbehaving")
            .unwrap()
            .state
    };
    let mut other = open_as(&engines, "other");
    other.turn(&body(3)).unwrap();
    let mut bad = open_as(&engines, "bad-1");
    bad.turn(&body(3)).unwrap();
    assert_eq!(state(), HealthState::Serving);
    other.turn(&body(5)).unwrap();
    assert_eq!(
        (other.stands_in(), other.take_warnings()),
        (None, Vec::new())
    );
    open_as(&engines, "bad-2").turn(&body(3)).unwrap();
    assert!(
        matches!(state(), HealthState::Quarantined { .. }),
        "{:?}",
        state()
    );

    let mut opened_meanwhile = open_as(&engines, "new");
    for session in [&mut opened_meanwhile, &mut other] {
        session.turn(&body(7)).unwrap();
        let why = session.stands_in().unwrap_or_default();
        assert!(
            why.contains("in quarantine: threads of 2 sessions do not return"),
            "{why}"
        );
        let told = session.take_warnings().join("\n");
        assert!(told.contains("in quarantine"), "{told}");
        assert_eq!(session.engine().name(), "misbehaving");
    }
    wait_until(|| state() == HealthState::Quarantined { remaining_ms: 0 });
    for session in [&mut opened_meanwhile, &mut other] {
        session.turn(&body(9)).unwrap();
        assert_eq!(
            (session.stands_in(), session.take_warnings()),
            (None, Vec::new())
        );
    }
    assert_eq!(state(), HealthState::Serving);
}
