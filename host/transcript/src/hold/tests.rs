#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn take(home: &Path, session: &str, milliseconds: u64) -> Result<Hold, RecordError> {
    Hold::take(home, session, Duration::from_millis(milliseconds), None)
}

#[test]
fn a_session_is_held_by_one_until_that_one_lets_go() {
    let home = tempfile::tempdir().unwrap();
    let held = take(home.path(), "s", 0).unwrap();
    let error = take(home.path(), "s", 60).unwrap_err().to_string();
    assert!(error.contains("`s`"), "{error}");
    assert!(error.contains("this very process"), "{error}");
    take(home.path(), "../another", 0).unwrap();
    drop(held);
    take(home.path(), "s", 0).unwrap();
}

#[test]
fn a_session_that_is_held_again_goes_on_until_another_had_it() {
    let home = tempfile::tempdir().unwrap();
    let again = |token: &Token| Hold::take(home.path(), "s", Duration::ZERO, Some(token));
    let mut token = take(home.path(), "s", 0).unwrap().release().unwrap();
    for _ in 0..3 {
        let mut held = again(&token).unwrap();
        assert!(held.continues(&token));
        let error = take(home.path(), "s", 0).unwrap_err().to_string();
        assert!(error.contains("this very process"), "{error}");
        token = held.release().unwrap();
    }
    // Others get tokens of their own, in this process too.
    let other = take(home.path(), "s", 0).unwrap().release().unwrap();
    assert!(!again(&token).unwrap().continues(&token));
    assert!(!again(&other).unwrap().continues(&other), "held since");
    // One that held it again and was dropped leaves no token.
    let token = take(home.path(), "s", 0).unwrap().release().unwrap();
    drop(again(&token).unwrap());
    assert!(!again(&token).unwrap().continues(&token));
}

#[test]
fn a_lock_file_that_was_removed_locks_nothing() {
    let home = tempfile::tempdir().unwrap();
    let token = take(home.path(), "s", 0).unwrap().release().unwrap();
    std::fs::remove_dir_all(home.path().join(FOLDER)).unwrap();
    let other = take(home.path(), "s", 0).unwrap();
    let again = |token: &Token| Hold::take(home.path(), "s", Duration::ZERO, Some(token));
    again(&token).unwrap_err();
    drop(other);
    assert!(!again(&token).unwrap().continues(&token));
}

#[test]
fn who_comes_second_waits() {
    let home = tempfile::tempdir().unwrap();
    let held = take(home.path(), "s", 0).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| take(home.path(), "s", 60_000));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!second.is_finished());
        drop(held);
        second.join().unwrap().unwrap();
    });
}
