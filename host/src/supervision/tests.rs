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
    supervisor.open("plain", Arc::clone(cancel), || Ok(Box::new(Plain)))
}

#[test]
fn a_panic_closes_the_session_and_no_other() {
    // Printing the panic's backtrace takes its time.
    let supervisor = Supervisor::new(Policy::default());
    let cancel = Arc::default();
    let mut one = open(&supervisor, &cancel).unwrap();
    let mut other = open(&supervisor, &cancel).unwrap();

    let error = one
        .call::<()>("compress", Pace::Long, |_| panic!("a bug at line 7"))
        .unwrap_err();
    assert!(
        matches!(&error, CallError::Panicked { engine, method: "compress", message } if engine == "plain" && message == "a bug at line 7"),
        "{error}"
    );
    let again = one.call("compress", Pace::Long, |_| Ok(1)).unwrap_err();
    assert!(
        matches!(&again, CallError::Closed { reason, .. } if reason.contains("a bug at line 7")),
        "{again}"
    );
    assert_eq!(other.call("status", Pace::Short, |_| Ok(2)).unwrap(), 2);
}

#[test]
fn a_call_that_hears_the_cancel_flag_is_no_lost_thread() {
    let supervisor = Supervisor::new(policy());
    let cancel = Arc::new(CallState::default());
    let mut session = open(&supervisor, &cancel).unwrap();
    let flag = Arc::clone(&cancel);
    let error = session
        .call::<()>("compress", Pace::Long, move |_| {
            while !flag.cancel.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(EngineError::Cancelled)
        })
        .unwrap_err();
    assert!(
        matches!(
            error,
            CallError::Failed {
                error: EngineError::Cancelled,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(supervisor.health()[0].abandoned_threads, 0);
    // The session goes on, and the flag is down again.
    let flag = Arc::clone(&cancel);
    let raised = session.call("status", Pace::Short, move |_| {
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
        .call("compress", Pace::Long, move |_| {
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
        session.call("status", Pace::Short, |_| Ok(())),
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
    let late = session.call("observe", Pace::Patient, |_| {
        std::thread::sleep(Duration::from_millis(200));
        Ok(())
    });
    assert_eq!(late, Ok(()));

    let finish = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&finish);
    let given_up = session.call("observe", Pace::Patient, move |_| {
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
    assert_eq!(supervisor.health()[0].abandoned_threads, 0);
    assert_eq!(session.call("status", Pace::Short, |_| Ok(7)), Ok(7));
}

#[test]
fn failing_again_and_again_is_quarantine_for_a_while() {
    let supervisor = Supervisor::new(policy());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    for _ in 0..3 {
        let error = session
            .call::<()>("compress", Pace::Long, |_| {
                Err(EngineError::Storage("full".into()))
            })
            .unwrap_err();
        assert!(matches!(error, CallError::Failed { .. }), "{error}");
    }
    let refused = session.call("status", Pace::Short, |_| Ok(())).unwrap_err();
    assert!(
        matches!(&refused, CallError::Quarantined { reason, .. } if reason.contains("full")),
        "{refused}"
    );
    assert!(matches!(
        supervisor.health()[0].state,
        HealthState::Quarantined { .. }
    ));
    std::thread::sleep(Duration::from_millis(350));
    session.call("status", Pace::Short, |_| Ok(())).unwrap();
    assert_eq!(supervisor.health()[0].state, HealthState::Serving);
}

#[test]
fn wrong_arguments_of_a_tool_call_are_not_held_against_the_engine() {
    let supervisor = Supervisor::new(policy());
    let mut session = open(&supervisor, &Arc::default()).unwrap();
    for _ in 0..10 {
        let error = session.call::<()>("call_tool", Pace::Long, |_| {
            Err(EngineError::InvalidInput("pattern: unclosed group".into()))
        });
        assert!(matches!(error, Err(CallError::Failed { .. })));
    }
    session.call("status", Pace::Short, |_| Ok(())).unwrap();
}

#[test]
fn threads_that_never_come_back_bar_the_engine() {
    let supervisor = Supervisor::new(policy());
    for _ in 0..2 {
        let mut session = open(&supervisor, &Arc::default()).unwrap();
        let error = session.call("observe", Pace::Short, |_| {
            std::thread::sleep(Duration::from_secs(30));
            Ok(())
        });
        assert!(matches!(error, Err(CallError::TimedOut { .. })));
    }
    let refused = open(&supervisor, &Arc::default()).unwrap_err();
    assert!(refused.to_string().contains("never came back"), "{refused}");
    assert_eq!(supervisor.health()[0].state, HealthState::Barred);
}

#[test]
fn an_engine_that_fails_to_open_says_so() {
    let supervisor = Supervisor::new(policy());
    let error = supervisor
        .open("broken", Arc::default(), || {
            Err(EngineError::Settings("missing field `path`".into()))
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "engine `broken` failed in open: settings: missing field `path`"
    );
}
