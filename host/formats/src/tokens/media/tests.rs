use super::*;
use proptest::prelude::*;

fn image(model: &str, width: u32, height: u32, detail: Detail) -> u64 {
    MediaPrices::of(&ModelName::new(model)).tokens(&MediaSize::Image {
        size: Some((width, height)),
        detail,
    })
}

/// The examples on the providers' own pages.
#[test]
fn openai_examples() {
    assert_eq!(image("gpt-4o", 1024, 1024, Detail::High), 765);
    assert_eq!(image("gpt-4o", 2048, 4096, Detail::High), 1105);
    assert_eq!(image("gpt-4o", 4096, 8192, Detail::Low), 85);
    assert_eq!(
        image("openai/gpt-4.1-2025-04-14", 128, 64, Detail::High),
        255
    );
    assert_eq!(image("gpt-4o-mini", 128, 64, Detail::High), 8500);
    assert_eq!(
        image("gpt-4.1-mini", 1024, 1024, Detail::High),
        1024 * 162 / 100 + 1
    );
    assert_eq!(
        image("gpt-4.1-mini", 1800, 2400, Detail::High),
        (1452u64 * 162).div_ceil(100)
    );
    assert_eq!(
        image("gpt-5-mini", 1600, 1600, Detail::High),
        (1521u64 * 120).div_ceil(100)
    );
    assert_eq!(image("gpt-5.4", 1600, 1600, Detail::High), 3000);
}

#[test]
fn anthropic_examples() {
    assert_eq!(image("claude-sonnet-4-5", 200, 200, Detail::High), 64);
    assert_eq!(image("claude-sonnet-4-5", 1000, 1000, Detail::High), 1296);
    assert_eq!(image("claude-sonnet-4-5", 1092, 1092, Detail::Low), 1521);
    assert_eq!(image("claude-sonnet-4-5", 8000, 8000, Detail::High), 1568);
    assert_eq!(image("claude-sonnet-4-5", 8000, 80, Detail::High), 56);
    assert_eq!(image("claude-opus-5", 8000, 8000, Detail::High), 4784);
}

#[test]
fn gemini_examples() {
    assert_eq!(image("gemini-2.5-pro", 384, 384, Detail::High), 258);
    assert_eq!(image("gemini-2.5-pro", 1536, 768, Detail::High), 516);
    assert_eq!(
        image("google/gemini-3-pro-preview", 4000, 4000, Detail::High),
        1120
    );
}

#[test]
fn documents_by_pages_or_size() {
    let prices = MediaPrices::of(&ModelName::new("claude-opus-4-5"));
    let document = |pages, bytes| prices.tokens(&MediaSize::Document { pages, bytes });
    assert_eq!(document(Some(10), 1), 30_000);
    assert_eq!(document(None, 500_000), 30_000);
    assert_eq!(document(None, 0), 3_000);
    assert_eq!(document(Some(0), 0), 3_000);
    assert!(document(None, u64::MAX) > 0);
}

#[test]
fn unknown_things_cost_something() {
    let prices = MediaPrices::of(&ModelName::new("who-knows"));
    let nameless = MediaSize::Image {
        size: None,
        detail: Detail::High,
    };
    assert_eq!(prices.tokens(&MediaSize::Unknown), 765);
    assert_eq!(prices.tokens(&nameless), 765);
}

proptest! {
    #[test]
    fn every_image_costs_within_reason(width: u32, height: u32, which in 0usize..7) {
        let model = ["gpt-4o", "gpt-4.1-nano", "gpt-5.4", "o3", "claude-opus-4-5", "claude-opus-5", "gemini-3"][which];
        let tokens = image(model, width, height, Detail::High);
        prop_assert!((1..=5000).contains(&tokens), "{}: {}", model, tokens);
    }
}
