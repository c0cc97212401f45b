use super::*;

fn context(model: &str) -> Option<u64> {
    known_window(model).map(|window| window.context_length)
}

#[test]
fn every_spelling_of_a_model_is_the_same_model() {
    for name in [
        "claude-opus-4-5",
        "claude-opus-4-5-20251101",
        "claude-opus-4.5",
        "Claude-Opus-4-5",
        "anthropic/claude-opus-4.5",
        "openrouter/anthropic/claude-opus-4.5:beta",
        "us.anthropic.claude-opus-4-5-20251101-v1:0",
        "vertex_ai/claude-opus-4-5@20251101",
        "databricks-claude-opus-4-5",
    ] {
        assert_eq!(known_window(name), Some(window(200_000, 64_000)), "{name}");
    }
}

#[test]
fn a_million_where_the_model_has_it_or_the_name_asks() {
    assert_eq!(context("claude-sonnet-4-5-20250929[1m]"), Some(1_000_000));
    assert_eq!(context("claude-sonnet-4-5-20250929"), Some(200_000));
    assert_eq!(context("claude-opus-5-5"), Some(1_000_000));
    assert_eq!(context("gpt-4o[1m]"), Some(128_000));
}

#[test]
fn the_longest_beginning_counts() {
    assert_eq!(context("gpt-4"), Some(8_192));
    assert_eq!(context("gpt-4-0613"), Some(8_192));
    assert_eq!(context("gpt-4-1106-preview"), Some(128_000));
    assert_eq!(context("gpt-4.1-nano-2025-04-14"), Some(1_047_576));
    assert_eq!(context("gpt-4o-mini"), Some(128_000));
    assert_eq!(context("gpt-5-codex"), Some(400_000));
    assert_eq!(context("gpt-5.4-mini-2026-03-17"), Some(400_000));
    assert_eq!(context("gpt-5.4-pro"), Some(1_050_000));
    assert_eq!(context("o3-mini"), Some(200_000));
    assert_eq!(context("ft:gpt-4o-mini:acme::x"), Some(128_000));
    assert_eq!(context("models/gemini-2.5-flash-lite"), Some(1_048_576));
    assert_eq!(context("deepseek/deepseek-chat-v3.1:free"), Some(131_072));
    assert_eq!(context("moonshotai/kimi-k2-0905"), Some(262_144));
    assert_eq!(context("z-ai/glm-4.6"), Some(200_000));
    assert_eq!(context("meta-llama/Llama-3.3-70B-Instruct"), Some(131_072));
    assert_eq!(context("x-ai/grok-4-fast:free"), Some(2_000_000));
}

#[test]
fn who_knows() {
    for name in ["", "/", "my-own-model", "gpt", "o12", "llamafile", "汉字"] {
        assert_eq!(known_window(name), None, "{name}");
    }
}

#[test]
fn the_table_can_be_matched() {
    for (index, (key, window)) in WINDOWS.iter().enumerate() {
        assert!(
            !key.contains(['.', '_', '@', '/']) && *key == key.to_lowercase(),
            "{key}"
        );
        assert!(
            WINDOWS[..index].iter().all(|(other, _)| other != key),
            "{key} twice"
        );
        assert!(window.max_output_tokens <= window.context_length, "{key}");
        assert_eq!(known_window(key), Some(*window), "{key}");
    }
}
