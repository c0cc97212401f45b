#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use contexture_testkit::{START_MS, ScriptedHost};

use super::*;

fn host() -> Arc<ScriptedHost> {
    let host = ScriptedHost::without_model();
    host.model.becomes("m", 1);
    host
}

fn open(host: &Arc<ScriptedHost>) -> CoolDowns {
    CoolDowns::open(host.data_dir(), host.services())
}

#[test]
fn each_kind_of_failure_has_its_own_length() {
    let host = host();
    let mut cool_downs = open(&host);
    let mut length = |failure: &ModelFailure| {
        cool_downs.failed("m", failure);
        let cool_down = cool_downs.in_force().unwrap();
        (cool_down.until_ms - cool_down.since_ms) / 1_000
    };
    for (kind, seconds) in [
        (FailureKind::RateLimited, 60),
        (FailureKind::Auth, 600),
        (FailureKind::UnknownModel, 600),
        (FailureKind::Timeout, 30),
        (FailureKind::Overloaded, 30),
    ] {
        assert_eq!(length(&ModelFailure::new(kind, "no")), seconds, "{kind:?}");
    }
    let mut limited = ModelFailure::new(FailureKind::RateLimited, "slow down");
    limited.retry_after_ms = Some(5_000);
    assert_eq!(length(&limited), 5);
    for hours in [86_400_000, u64::MAX] {
        limited.retry_after_ms = Some(hours);
        assert_eq!(length(&limited), 600, "nobody waits that long");
    }
}

#[test]
fn a_restart_keeps_it_and_it_ends_by_time_by_an_answer_and_by_a_clock_set_back() {
    let host = host();
    let fail = || open(&host).failed("m", &ModelFailure::new(FailureKind::Auth, "key"));
    fail();
    let again = open(&host);
    let failure = &again.in_force().unwrap().failure;
    assert_eq!(*failure, ModelFailure::new(FailureKind::Auth, "key"));
    host.set_clock(START_MS + 599_999);
    assert!(again.in_force().is_some());
    host.set_clock(START_MS + 600_000);
    assert!(again.in_force().is_none());
    host.set_clock(START_MS - 86_400_000);
    assert!(again.in_force().is_none(), "a day back");

    host.set_clock(START_MS);
    fail();
    let mut again = open(&host);
    again.succeeded();
    assert!(again.in_force().is_none());
    assert!(open(&host).in_force().is_none());
}

#[test]
fn another_model_address_or_key_is_not_held_back() {
    let host = host();
    let mut cool_downs = open(&host);
    cool_downs.failed("m", &ModelFailure::new(FailureKind::Auth, "key"));
    host.model.becomes("another", 1);
    assert!(cool_downs.in_force().is_none());
    host.model.becomes("m", 1);
    assert!(cool_downs.in_force().is_some());
    host.model.is_at("another key");
    assert!(cool_downs.in_force().is_none());
    assert!(open(&host).in_force().is_none());
    cool_downs.failed("m", &ModelFailure::new(FailureKind::Auth, "key"));
    assert!(open(&host).in_force().is_some());
}

#[test]
fn an_unreadable_file_is_ignored() {
    let host = host();
    fs::write(host.data_dir().join("cooldown.json"), "{ not json").unwrap();
    assert!(open(&host).in_force().is_none());
}
