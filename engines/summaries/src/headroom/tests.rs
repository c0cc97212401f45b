use contexture_engine_api::CachePrices;
use proptest::prelude::*;

use super::*;

fn order_of(prompt: u64) -> CompressOrder {
    let window = WindowState::default()
        .context_length(200_000)
        .prompt_tokens(prompt)
        .requests(90)
        .requests_since_compaction(90);
    CompressOrder::default().window(window)
}

fn sizes(before: u64, after: u64, trigger: u64) -> Sizes {
    Sizes {
        before,
        after,
        trigger,
    }
}

#[test]
fn a_quarter_of_the_trigger_is_free_after_it_or_it_waits_until_the_prompt_has_grown() {
    let mut headroom = Headroom::default();
    let order = order_of(100_000);
    assert_eq!(
        headroom.refuses(&order, sizes(100_000, 75_000, 100_000)),
        None
    );
    let reason = headroom.refuses(&order, sizes(100_000, 75_001, 100_000));
    assert!(reason.is_some_and(|reason| reason.contains("75,001") && reason.contains("170,000")));
    let decide = |prompt| headroom.decide(&order_of(prompt).window, 20_000).is_yes();
    assert!(!decide(109_999) && decide(110_000));
    headroom.things_changed();
    assert_eq!(headroom.stopped(&order.window), None);
}

#[test]
fn whoever_asks_and_a_full_window_get_what_there_is() {
    let mut headroom = Headroom::default();
    let bad = sizes(100_000, 99_000, 100_000);
    assert_eq!(headroom.refuses(&order_of(100_000).force(true), bad), None);
    assert_eq!(headroom.refuses(&order_of(170_000), bad), None);
    assert_eq!(
        headroom.refuses(&order_of(100_000), sizes(100_000, 99_000, 0)),
        None
    );
    headroom.stop("no".into(), &order_of(190_000).window);
    let decide = |prompt| headroom.decide(&order_of(prompt).window, 1).is_yes();
    assert!(!decide(200_000) && decide(200_001));
}

proptest! {
    /// If a conversation fits the window, it never costs more than it would without an engine,
    /// whatever the sizes are: earlier compactions have paid for each later one.
    #[test]
    fn what_is_not_required_and_not_yet_saved_is_not_spent(
        prompt in 60_000_u64..169_999, after in 1_000_u64..60_000, fixed in 0_u64..20_000,
        saved: i32, requests in 2_u64..49, write in 100_u32..=200,
    ) {
        let prices = CachePrices::new(10, write);
        let mut order = order_of(prompt);
        order.window = order.window
            .fixed_tokens(fixed)
            .cache_prices(Some(prices))
            .cache_ttl_ms(Some(300_000))
            .idle_ms(Some(1))
            .requests(requests)
            .never_at_a_loss(true)
            .saved_by_compactions(i64::from(saved));
        let refused = Headroom::default().refuses(&order, sizes(prompt, after, 100_000));
        let cost = prices.cost(prompt, after, fixed);
        prop_assert_eq!(refused.is_none(), i128::from(saved) >= i128::from(cost));
    }
}
