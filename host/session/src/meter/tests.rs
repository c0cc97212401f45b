use super::*;
use crate::testing::{agent, configured, conversation, talk};

#[test]
fn a_report_about_another_prompt_is_ignored() {
    let mut current = conversation(&talk(0..3));
    let counted = current.counted_tokens();
    for reported in [0, counted / 3, 1_000_000] {
        let usage = Usage::default().input_tokens(reported);
        assert!(!current.meter.update_usage(counted, &usage));
        assert_eq!(current.state().reported_tokens, None);
    }
    let usage = Usage::default().input_tokens(counted + 50);
    assert!(current.meter.update_usage(counted, &usage));
    assert_eq!(current.state().reported_tokens, Some(counted + 50));
}

#[test]
fn what_was_learned_is_for_one_model() {
    let mut current = conversation(&talk(0..3));
    let counted = current.counted_tokens();
    current.meter.prompt_was_refused(counted, counted * 2);
    let kept = current.meter.usage_memory();
    let mut prompt_of = |agent| {
        current.meter = Meter::new(
            configured(agent),
            &kept,
            Timing::default(),
            CacheTtl::default(),
        );
        current.state().prompt_tokens
    };
    assert_eq!(prompt_of(agent()), counted * 2);
    let mut other = agent();
    other.model = "claude-sonnet-4.5".to_owned();
    assert_eq!(prompt_of(other), counted);
}

#[test]
fn a_compaction_costs_what_the_cache_held_and_saves_with_every_request() {
    let mut meter = Meter::new(
        configured(agent()),
        "",
        Timing::default(),
        CacheTtl::default(),
    );
    meter.note_request(Some(0), true);
    meter.compacted([10_000, 2_000, 1_000]);
    let cost = meter.ledger.saved;
    assert!(cost < 0);
    meter.note_request(Some(1_000), true);
    assert!(meter.ledger.saved > cost);
    assert_eq!(meter.ledger.requests_since_compaction, 1);
}
