use super::*;
use proptest::prelude::*;

const MINUTE: i64 = 60_000;

fn five_minutes() -> PromptCache {
    PromptCache::new("gpt-5", Ttl::FiveMinutes)
}

fn billed(cached: u64, written: u64) -> Billed {
    Billed { cached, written }
}

#[test]
fn the_shared_prefix_is_read_and_the_rest_written() {
    let mut cache = five_minutes();
    assert_eq!(cache.request(2_000, 0, None), billed(0, 2_000));
    assert_eq!(cache.request(3_000, 2_000, None), billed(2_000, 1_000));
}

#[test]
fn the_lifetime_ends_on_the_dot_and_every_use_renews_it() {
    let mut cache = five_minutes();
    cache.request(2_000, 0, Some(0));
    let just_before = cache.request(2_000, 2_000, Some(5 * MINUTE - 1));
    assert_eq!(just_before.cached, 2_000);
    let renewed = cache.request(2_000, 2_000, Some(9 * MINUTE));
    assert_eq!(renewed.cached, 2_000);
    let too_late = cache.request(2_000, 2_000, Some(14 * MINUTE));
    assert_eq!(too_late, billed(0, 2_000));
}

#[test]
fn a_request_without_a_time_takes_none() {
    let mut cache = five_minutes();
    cache.request(2_000, 0, Some(0));
    assert_eq!(cache.request(2_000, 2_000, None).cached, 2_000);
    assert_eq!(cache.request(2_000, 2_000, Some(6 * MINUTE)).cached, 0);
}

#[test]
fn what_is_too_short_is_neither_read_nor_written() {
    let mut cache = five_minutes();
    assert_eq!(cache.request(1_023, 500, None), billed(0, 0));
    assert_eq!(cache.request(1_500, 1_023, None), billed(0, 1_500));
    assert_eq!(cache.request(1_500, 1_024, None), billed(1_024, 476));
}

proptest! {
    #[test]
    fn never_bills_more_than_the_prompt(
        requests in prop::collection::vec((any::<u64>(), any::<u64>(), any::<Option<i64>>()), 0..20)
    ) {
        let mut cache = five_minutes();
        for (prompt, shared, time) in requests {
            let billed = cache.request(prompt, shared, time);
            prop_assert!(billed.cached <= shared);
            prop_assert!(u128::from(billed.cached) + u128::from(billed.written) <= u128::from(prompt));
        }
    }
}
