#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn the_tiers_are_the_documents() {
    let tiers = |window: u64| {
        let window = WindowState::default().context_length(window);
        let tiers = Thresholds::default().tiers(&window);
        (tiers.compaction, tiers.summary)
    };
    assert_eq!(tiers(1_000_000), (120_000, 142_500));
    assert_eq!(tiers(100_000), (80_000, 95_000));
    for (threshold, expected) in [(40_000, (40_000, 47_500)), (98_000, (98_000, 100_000))] {
        let window = WindowState::default()
            .context_length(100_000)
            .threshold_tokens(Some(threshold));
        let tiers = Thresholds::default().tiers(&window);
        assert_eq!((tiers.compaction, tiers.summary), expected);
    }
}

#[test]
fn both_spellings_are_read_and_in_the_schema() {
    let snake = r#"{"enable_context_management": false, "thresholds": {"pre_rot_threshold": 9,
            "compaction_trigger": 0.5, "summarization_trigger": 0.6, "keep_recent_count": 3}}"#;
    let camel = r#"{"enableContextManagement": false, "thresholds": {"preRotThreshold": 9,
            "compactionTrigger": 0.5, "summarizationTrigger": 0.6, "keepRecentCount": 3}}"#;
    let read = |text: &str| serde_json::from_str::<Settings>(text).unwrap();
    assert_eq!(read(snake), read(camel));
    let schema = schema();
    for keys in [snake, camel] {
        let keys: Value = serde_json::from_str(keys).unwrap();
        for key in keys.as_object().unwrap().keys() {
            assert!(schema["properties"][key].is_object(), "{key}");
        }
        for key in keys["thresholds"].as_object().unwrap().keys() {
            let thresholds = &schema["properties"]["thresholds"]["properties"];
            assert!(thresholds[key].is_object(), "{key}");
        }
    }
}
