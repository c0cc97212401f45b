#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::Correction;
use proptest::prelude::*;

#[test]
fn learns_a_tokenizer_that_disagrees() {
    let mut correction = Correction::default();
    correction.learn(10_000, 13_000);
    correction.learn(10_000, 13_000);
    assert_eq!(correction.apply(1_000), 1_000, "two pairs are too few");
    correction.learn(10_000, 13_000);
    assert_eq!(correction.apply(1_000), 1_300);
}

#[test]
fn outliers_and_nonsense_do_not_move_it() {
    let mut correction = Correction::default();
    for _ in 0..5 {
        correction.learn(50_000, 60_000);
    }
    correction.learn(50_000, 190_000);
    correction.learn(50_000, 0);
    correction.learn(0, 50_000);
    correction.learn(50_000, 20);
    correction.learn(10, 39);
    assert_eq!(correction.ratio(), 1.2);
}

#[test]
fn follows_a_change() {
    let mut correction = Correction::default();
    for _ in 0..100 {
        correction.learn(50_000, 60_000);
    }
    for _ in 0..8 {
        correction.learn(50_000, 45_000);
    }
    assert_eq!(correction.ratio(), 0.9);
}

#[test]
fn survives_a_restart_and_a_damaged_file() {
    let mut correction = Correction::default();
    for reported in [11_000, 12_000, 13_000, 14_000] {
        correction.learn(10_000, reported);
    }
    let json = serde_json::to_string(&correction).unwrap();
    assert_eq!(
        serde_json::from_str::<Correction>(&json).unwrap(),
        correction
    );
    let damaged: Correction = serde_json::from_str("[1e300, -5, 0, 1.1, 1.1, 1.1]").unwrap();
    assert_eq!(damaged.ratio(), 1.1);
}

proptest! {
    #[test]
    fn is_always_bounded(pairs in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40), count in 0u64..1 << 40) {
        let mut correction = Correction::default();
        for (counted, reported) in pairs {
            correction.learn(counted, reported);
        }
        prop_assert!((0.5..=2.0).contains(&correction.ratio()));
        prop_assert!(correction.apply(count) <= 2 * count + 1);
        prop_assert!(correction.apply(count) >= count);
    }
}
