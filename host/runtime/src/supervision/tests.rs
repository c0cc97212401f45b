//! What becomes of an engine that panics, hangs or fails, seen from the host.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::{
    CompressRequest, ContextEngine, Decision, EngineError, OpenRequest, Outcome, StandaloneEngine,
    WindowState,
};

use super::*;

struct Plain;

impl StandaloneEngine for Plain {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self)
    }
}

impl ContextEngine for Plain {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::No("never".into())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::NothingToDo("never".into()))
    }
}

fn policy() -> Policy {
    Policy {
        long_deadline: Duration::from_millis(200),
        short_deadline: Duration::from_millis(100),
        grace: Duration::from_millis(100),
        failure_limit: 3,
        quarantine: Duration::from_millis(300),
        abandoned_limit: 2,
    }
}

fn open(supervisor: &Arc<Supervisor>, cancel: &Arc<CallState>) -> Result<Supervised, CallError> {
    open_in(supervisor, "s", cancel)
}

fn open_in(
    supervisor: &Arc<Supervisor>,
    session: &str,
    cancel: &Arc<CallState>,
) -> Result<Supervised, CallError> {
    supervisor.open("plain", session, Arc::clone(cancel), false, || {
        Ok(Box::new(Plain))
    })
}

/// Fails once.
fn fail(session: &mut Supervised) -> CallError {
    let failed = session.call::<()>("compress", Deadline::Long, |_| {
        Err(EngineError::Other("broken".into()))
    });
    failed.unwrap_err()
}

/// A full disk is not the engine's fault, and quarantine would outlast it.
#[test]
fn failures_of_storage_are_no_reason_for_quarantine() {
    let supervisor = Supervisor::new(policy());
    let cancel = Arc::default();
    for name in ["a", "b", "c"] {
        let mut session = open_in(&supervisor, name, &cancel).unwrap();
        for _ in 0..5 {
            let full = |_: &mut dyn ContextEngine| Err(EngineError::Storage("full".into()));
            let failed = session.call::<()>("observe", Deadline::Long, full);
            assert!(failed.unwrap_err().is_storage());
        }
        assert_eq!(session.quarantine(), None);
        session.call("observe", Deadline::Long, |_| Ok(())).unwrap();
    }
    let health = supervisor.health();
    assert_eq!(health[0].state, HealthState::Serving);
    assert_eq!(health[0].failed, 15);
}

/// Leaves a thread that returns when the flag is set.
fn get_stuck(session: &mut Supervised, end: &Arc<AtomicBool>) {
    let end = Arc::clone(end);
    let error = session.call("compress", Deadline::Short, move |_| {
        while !end.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    assert!(
        matches!(error, Err(CallError::TimedOut { .. })),
        "{error:?}"
    );
}

/// Waits until something holds.
fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_panic_closes_the_session_and_no_other() {
    // Printing the panic's backtrace takes its time.
    let supervisor = Supervisor::new(Policy::default());
    let cancel = Arc::default();
    let mut one = open(&supervisor, &cancel).unwrap();
    let mut other = open(&supervisor, &cancel).unwrap();

    let error = one
        .call::<()>("compress", Deadline::Long, |_| panic!("a bug at line 7"))
        .unwrap_err();
    assert!(
        matches!(&error, CallError::Panicked { engine, method: "compress", message } if engine == "plain" && message == "a bug at line 7"),
        "{error}"
    );
    let again = one.call("compress", Deadline::Long, |_| Ok(1)).unwrap_err();
    assert!(
        matches!(&again, CallError::Closed { reason, .. } if reason.contains("a bug at line 7")),
        "{again}"
    );
    assert_eq!(other.call("status", Deadline::Short, |_| Ok(2)).unwrap(), 2);
}

#[test]
fn a_session_that_the_engine_is_not_called_in_is_no_failure_of_the_engine() {
    let supervisor = Supervisor::new(Policy::default());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    let panicked = session.call::<()>("compress", Deadline::Long, |_| panic!("once"));
    assert!(panicked.unwrap_err().is_fault());
    for _ in 0..3 {
        let closed = session.call("status", Deadline::Short, |_| Ok(()));
        assert!(!closed.unwrap_err().is_fault());
    }
    let cause = "no more threads".to_owned();
    let engine = "plain".to_owned();
    assert!(!CallError::NoThread { engine, cause }.is_fault());
}

/// Whatever an engine says when it fails may quote the conversation.
#[test]
fn secrets_are_masked_in_what_an_engine_fails_with() {
    let secret = format!("sk-ant-api03-{}", "k7Qw2Zx9".repeat(11));
    let supervisor = Supervisor::new(Policy::default());
    let mut errors = Vec::new();
    for method in ["panic", "error"] {
        let mut session = open(&supervisor, &Arc::default()).unwrap();
        let text = format!("cannot use {secret}\u{1b}[31m");
        let failed = session.call::<()>(method, Deadline::Long, move |_| match method {
            "panic" => panic!("{text}"),
            _ => Err(EngineError::Storage(text)),
        });
        errors.push(failed.unwrap_err());
        let text = format!("cannot use {secret}\u{1b}[31m");
        let failed = supervisor.manage("plain", move || match method {
            "panic" => panic!("{text}"),
            _ => Err(EngineError::Storage(text)),
        });
        errors.push(failed.unwrap_err());
        let closed = session.call("status", Deadline::Short, |_| Ok(()));
        errors.extend(closed.err());
    }
    assert_eq!(errors.len(), 5);
    for error in errors {
        let error = error.to_string();
        assert!(error.contains("cannot use"), "{error}");
        assert!(!error.contains("k7Qw2Zx9"), "{error}");
        assert!(!error.contains('\u{1b}'), "{error}");
    }
    let told = supervisor.health();
    let told = format!("{told:?}");
    assert!(!told.contains("k7Qw2Zx9"), "{told}");
}

#[test]
fn a_call_that_hears_the_cancel_flag_is_no_lost_thread() {
    let supervisor = Supervisor::new(policy());
    let cancel = Arc::new(CallState::default());
    let mut session = open(&supervisor, &cancel).unwrap();
    let flag = Arc::clone(&cancel);
    let error = session
        .call::<()>("compress", Deadline::Long, move |_| {
            while !flag.cancel.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(EngineError::Cancelled)
        })
        .unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Stopped {
                deadline_ms: 200,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(supervisor.health()[0].abandoned_threads, 0);
    // The session goes on, and the flag is down again.
    let flag = Arc::clone(&cancel);
    let raised = session.call("status", Deadline::Short, move |_| {
        Ok(flag.cancel.load(Ordering::Acquire))
    });
    assert!(!raised.unwrap());
}

#[test]
fn a_deaf_call_is_abandoned_in_time_and_keeps_what_it_borrowed() {
    let supervisor = Supervisor::new(policy());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    let lent = Arc::new(String::from("lent"));
    let held = Arc::downgrade(&lent);
    let finish = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&finish);
    let began = Instant::now();
    let error = session
        .call("compress", Deadline::Long, move |_| {
            while !finished.load(Ordering::Acquire) {
                assert_eq!(lent.as_str(), "lent");
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        })
        .unwrap_err();
    assert!(
        matches!(
            error,
            CallError::TimedOut {
                deadline_ms: 200,
                ..
            }
        ),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(2));
    assert!(
        held.upgrade().is_some(),
        "the call still runs, so what it borrowed lives"
    );
    assert!(matches!(
        session.call("status", Deadline::Short, |_| Ok(())),
        Err(CallError::Closed { .. })
    ));
    finish.store(true, Ordering::Release);
    while held.upgrade().is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_patient_call_may_be_late_and_one_that_returns_after_all_is_gone_on_with() {
    let supervisor = Supervisor::new(policy());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    let late = session.call("observe", Deadline::Extended, |_| {
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    });
    assert_eq!(late, Ok(()));

    let finish = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&finish);
    let given_up = session.call("observe", Deadline::Extended, move |_| {
        while !finished.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    assert!(matches!(
        given_up,
        Err(CallError::TimedOut {
            deadline_ms: 400,
            ..
        })
    ));
    assert!(!session.take_back(), "it still runs");
    assert_eq!(supervisor.health()[0].abandoned_threads, 1);
    finish.store(true, Ordering::Release);
    while !session.take_back() {
        std::thread::sleep(Duration::from_millis(1));
    }
    until(|| supervisor.health()[0].abandoned_threads == 0);
    assert_eq!(session.call("status", Deadline::Short, |_| Ok(7)), Ok(7));
}

#[test]
fn a_session_that_keeps_failing_is_in_quarantine_for_a_while_and_no_other_is() {
    let supervisor = Supervisor::new(policy());
    let mut session = open_in(&supervisor, "bad", &Arc::default()).unwrap();
    let mut other = open_in(&supervisor, "good", &Arc::default()).unwrap();
    for _ in 0..3 {
        let error = fail(&mut session);
        assert!(matches!(error, CallError::Failed { .. }), "{error}");
    }
    let refused = session
        .call("status", Deadline::Short, |_| Ok(()))
        .unwrap_err();
    assert!(
        matches!(&refused, CallError::Quarantined { reason, .. } if reason.contains("broken") && reason.contains("in this session")),
        "{refused}"
    );
    assert_eq!(session.quarantine(), Some(refused.to_string()));
    // It cannot be had by opening it anew, and is nobody else's concern.
    assert!(open_in(&supervisor, "bad", &Arc::default()).is_err());
    other.call("status", Deadline::Short, |_| Ok(())).unwrap();
    assert_eq!(other.quarantine(), None);
    let health = &supervisor.health()[0];
    assert_eq!(health.state, HealthState::Serving);
    assert_eq!(health.sessions_in_quarantine, 1);
    std::thread::sleep(Duration::from_millis(350));
    session.call("status", Deadline::Short, |_| Ok(())).unwrap();
    assert_eq!(session.quarantine(), None);
    assert_eq!(supervisor.health()[0].sessions_in_quarantine, 0);
}

/// An engine may follow the conversation well, and fail or hang in every compaction.
#[test]
fn what_other_methods_do_does_not_hide_a_method_that_keeps_failing() {
    let supervisor = Supervisor::new(policy());
    let mut session = open_in(&supervisor, "bad", &Arc::default()).unwrap();
    let observe = |session: &mut Supervised| session.call("observe", Deadline::Short, |_| Ok(()));
    for _ in 0..3 {
        observe(&mut session).unwrap();
        fail(&mut session);
    }
    assert!(observe(&mut session).is_err());
    // The probe may be another method. The next failure then begins a longer quarantine.
    std::thread::sleep(Duration::from_millis(350));
    observe(&mut session).unwrap();
    fail(&mut session);
    std::thread::sleep(Duration::from_millis(350));
    assert!(observe(&mut session).is_err());
    std::thread::sleep(Duration::from_millis(350));
    session
        .call("compress", Deadline::Short, |_| Ok(()))
        .unwrap();
    fail(&mut session);
    observe(&mut session).unwrap();

    let supervisor = Supervisor::new(policy());
    let mut sessions: Vec<_> = ["a", "b", "c"]
        .map(|name| open_in(&supervisor, name, &Arc::default()).unwrap())
        .into();
    for session in &mut sessions {
        observe(session).unwrap();
        fail(session);
    }
    assert!(matches!(
        supervisor.health()[0].state,
        HealthState::Quarantined { .. }
    ));
}

#[test]
fn failing_in_several_sessions_is_quarantine_for_all_until_one_call_succeeds() {
    let supervisor = Supervisor::new(policy());
    let mut sessions: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| open_in(&supervisor, name, &Arc::default()).unwrap())
        .into();
    for session in &mut sessions[..2] {
        fail(session);
    }
    sessions[3]
        .call("compress", Deadline::Short, |_| Ok(()))
        .unwrap();
    // What succeeds in between counts.
    for session in &mut sessions[..2] {
        fail(session);
    }
    assert_eq!(supervisor.health()[0].state, HealthState::Serving);
    fail(&mut sessions[2]);
    assert!(matches!(
        supervisor.health()[0].state,
        HealthState::Quarantined { .. }
    ));
    let refused = sessions[3].call("status", Deadline::Short, |_| Ok(()));
    assert!(
        matches!(&refused, Err(CallError::Quarantined { reason, .. }) if reason.contains("in 3 sessions")),
        "{refused:?}"
    );
    // The call that is let through fails: twice as long.
    std::thread::sleep(Duration::from_millis(320));
    fail(&mut sessions[3]);
    std::thread::sleep(Duration::from_millis(320));
    let refused = sessions[3].call("status", Deadline::Short, |_| Ok(()));
    assert!(
        matches!(refused, Err(CallError::Quarantined { .. })),
        "{refused:?}"
    );
    // One call at a time shows whether it works.
    std::thread::sleep(Duration::from_millis(320));
    let mut probe = sessions.pop().unwrap();
    let mut other = sessions.pop().unwrap();
    std::thread::scope(|scope| {
        let (begin, begun) = sync_channel(1);
        let probing = scope.spawn(move || {
            probe.call("status", Deadline::Short, move |_| {
                begin.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                Ok(())
            })
        });
        begun.recv().unwrap();
        let refused = other.call("status", Deadline::Short, |_| Ok(()));
        assert!(
            matches!(&refused, Err(CallError::Quarantined { reason, .. }) if reason.contains("being tried")),
            "{refused:?}"
        );
        probing.join().unwrap().unwrap();
        other.call("status", Deadline::Short, |_| Ok(())).unwrap();
    });
    assert_eq!(supervisor.health()[0].state, HealthState::Serving);
}

#[test]
fn a_tool_call_that_is_stopped_is_not_held_against_the_engine_and_another_call_only_in_its_session()
{
    let supervisor = Supervisor::new(policy());
    let state = Arc::new(CallState::default());
    let mut session = open_in(&supervisor, "slow", &state).unwrap();
    let stopped = |session: &mut Supervised, kind| {
        let flag = Arc::clone(&state);
        session.call::<()>("call", kind, move |_| {
            while !flag.cancel.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(EngineError::Cancelled)
        })
    };
    for _ in 0..5 {
        let error = stopped(&mut session, Deadline::Tool).unwrap_err();
        assert!(matches!(error, CallError::Stopped { .. }), "{error}");
        assert!(error.to_string().contains("ask for less"), "{error}");
    }
    session.call("status", Deadline::Short, |_| Ok(())).unwrap();
    assert_eq!(supervisor.health()[0].failed, 0);
    // Three sessions that are slow are not an engine that fails.
    for name in ["slow", "slower", "slowest"] {
        let mut session = open_in(&supervisor, name, &state).unwrap();
        for _ in 0..3 {
            stopped(&mut session, Deadline::Short).unwrap_err();
        }
        assert!(session.quarantine().is_some());
    }
    let health = &supervisor.health()[0];
    assert_eq!(health.state, HealthState::Serving);
    assert!(health.sessions_in_quarantine >= 1);
    open_in(&supervisor, "other", &Arc::default()).unwrap();
}

/// Calls an engine that reads from the store for `reads`, pauses for `pauses`, and does so `times`.
fn read_store(times: u32, reads: u64, pauses: u64) -> Result<(), CallError> {
    let supervisor = Supervisor::new(policy());
    let state = Arc::new(CallState::default());
    let mut session = open(&supervisor, &state).unwrap();
    session.call("observe", Deadline::Short, move |_| {
        for _ in 0..times {
            let underway = state.use_store();
            std::thread::sleep(Duration::from_millis(reads));
            drop(underway);
            std::thread::sleep(Duration::from_millis(pauses));
        }
        Ok(())
    })
}

#[test]
fn a_slow_store_of_sessions_is_not_held_against_an_engine() {
    read_store(1, 400, 0).unwrap();
    read_store(20, 20, 1).unwrap();
    // To read again and again is no progress.
    let error = read_store(100, 1, 10).unwrap_err();
    assert!(matches!(error, CallError::TimedOut { .. }), "{error}");
}

#[test]
fn wrong_arguments_of_a_tool_call_are_not_held_against_the_engine() {
    let supervisor = Supervisor::new(policy());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    for _ in 0..10 {
        let error = session.call::<()>("call_tool", Deadline::Long, |_| {
            Err(EngineError::InvalidInput("pattern: unclosed group".into()))
        });
        let error = error.unwrap_err();
        assert!(matches!(error, CallError::Failed { .. }));
        assert_eq!(error.to_string(), "pattern: unclosed group");
    }
    session.call("status", Deadline::Short, |_| Ok(())).unwrap();
}

#[test]
fn threads_of_one_session_that_do_not_return_are_its_own_affair_and_end_with_them() {
    let supervisor = Supervisor::new(policy());
    let end = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        get_stuck(&mut open(&supervisor, &Arc::default()).unwrap(), &end);
    }
    let refused = open(&supervisor, &Arc::default()).unwrap_err();
    assert!(
        refused.to_string().contains("2 of its threads"),
        "{refused}"
    );
    open_in(&supervisor, "other", &Arc::default()).unwrap();
    assert_eq!(supervisor.health()[0].state, HealthState::Serving);
    // They count as long as they run.
    end.store(true, Ordering::Release);
    until(|| supervisor.health()[0].abandoned_threads == 0);
    open(&supervisor, &Arc::default()).unwrap();
}

#[test]
fn threads_of_several_sessions_that_do_not_return_are_quarantine_for_all_which_ends() {
    let supervisor = Supervisor::new(policy());
    let end = Arc::new(AtomicBool::new(false));
    for name in ["a", "b"] {
        get_stuck(
            &mut open_in(&supervisor, name, &Arc::default()).unwrap(),
            &end,
        );
    }
    let refused = open_in(&supervisor, "c", &Arc::default()).unwrap_err();
    assert!(refused.to_string().contains("do not return"), "{refused}");
    assert!(matches!(
        supervisor.health()[0].state,
        HealthState::Quarantined { .. }
    ));
    std::thread::sleep(Duration::from_millis(320));
    // The threads are still there, and do not count a second time.
    let mut session = open_in(&supervisor, "c", &Arc::default()).unwrap();
    session
        .call("compress", Deadline::Short, |_| Ok(()))
        .unwrap();
    assert_eq!(supervisor.health()[0].abandoned_threads, 2);
    get_stuck(&mut session, &end);
    assert_eq!(supervisor.health()[0].state, HealthState::Serving);
    end.store(true, Ordering::Release);
}

#[test]
fn an_engine_that_fails_to_open_says_so() {
    let supervisor = Supervisor::new(policy());
    let error = supervisor
        .open("broken", "s", Arc::default(), false, || {
            Err(EngineError::Settings("missing field `path`".into()))
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "engine `broken` failed in open: settings: missing field `path`"
    );
}

#[test]
fn an_engine_of_the_host_opens_and_ends_on_the_callers_thread() {
    struct Ends(Arc<Mutex<Vec<std::thread::ThreadId>>>);
    impl Drop for Ends {
        fn drop(&mut self) {
            lock(&self.0).push(std::thread::current().id());
        }
    }
    impl ContextEngine for Ends {
        fn should_compress(&self, _window: &WindowState) -> Decision {
            Decision::No("never".into())
        }

        fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
            Ok(Outcome::NothingToDo("never".into()))
        }
    }
    let supervisor = Supervisor::new(policy());
    for is_here in [true, false] {
        let threads = Arc::<Mutex<Vec<_>>>::default();
        let own = Arc::clone(&threads);
        let open = move || -> Result<Box<dyn ContextEngine>, EngineError> {
            lock(&own).push(std::thread::current().id());
            Ok(Box::new(Ends(own)))
        };
        let opened = supervisor.open("plain", "s", Arc::default(), is_here, open);
        drop(opened.unwrap());
        let own = std::thread::current().id();
        let are_own: Vec<bool> = lock(&threads).iter().map(|id| *id == own).collect();
        assert_eq!(are_own, [is_here; 2]);
    }
}
