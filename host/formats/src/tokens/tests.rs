#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tiktoken_rs::CoreBPE;

use super::*;

/// What tiktoken itself says, and our counter for a model with that encoding.
fn encodings() -> [(&'static CoreBPE, TokenCounter); 2] {
    [
        (
            tiktoken_rs::o200k_base_singleton(),
            TokenCounter::for_model("gpt-5"),
        ),
        (
            tiktoken_rs::cl100k_base_singleton(),
            TokenCounter::for_model("gpt-4"),
        ),
    ]
}

fn assert_exact(text: &str) {
    for (tiktoken, counter) in encodings() {
        let expected = tiktoken.encode_ordinary(text).len() as u64;
        let head: String = text.chars().take(80).collect();
        assert_eq!(counter.count_text(text), expected, "{counter:?}: {head:?}");
    }
}

fn text_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text_files(&path, into);
        } else if std::fs::read_to_string(&path).is_ok() {
            into.push(path);
        }
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn counts_as_tiktoken_does_on_real_conversations() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let mut files = Vec::new();
    text_files(&folder, &mut files);
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        // Escaped as in the file, and with the escapes undone, as a model gets it.
        assert_exact(&text);
        assert_exact(
            &text
                .replace("\\n", "\n")
                .replace("\\\"", "\"")
                .replace("\\t", "\t"),
        );
    }
}

#[test]
fn counts_as_tiktoken_does_on_hostile_text() {
    let units = [
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        " \n",
        "\n ",
        " \n \t",
        "\u{a0}",
        "\u{3000}",
        "\u{2003} ",
        "\0",
        "a",
        "A",
        "aA",
        "Aa",
        "zq",
        "1",
        "12a",
        "=",
        "-=",
        "/",
        "!\n/",
        "'s",
        "'S ",
        "'LL",
        "don't ",
        "ſ",
        "'ſ",
        "é",
        "e\u{301}",
        "\u{301}",
        "ǅ",
        "ʰ",
        "汉字",
        "汉 字",
        "日本語。",
        "한국어 ",
        "😀",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "\u{feff}",
        "\u{200b}",
        "<|endoftext|>",
        "<|im_start|>",
        "ДжЩ",
        "عربي ",
        "हिन्दी",
        "١٢٣",
        "Ⅷ",
        "½",
        "\u{10ffff}",
        "\u{85}",
        "\u{2028}",
        "\x0b\x0c",
        "_",
        "__init__",
        "\\n",
        "{\"a\":1}",
    ];
    for unit in units {
        for times in [1, 2, 3, 7, 100, 3_000] {
            let run = unit.repeat(times);
            assert_exact(&run);
            assert_exact(&format!("{run}x"));
            assert_exact(&format!("x{run} x"));
        }
    }
    for left in units {
        for right in units {
            assert_exact(&format!("{left}{right}{left}  {right}"));
        }
    }
}

#[test]
fn special_tokens_in_a_text_are_text() {
    let counter = TokenCounter::for_model("gpt-oss-120b");
    assert!(counter.count_text("<|endoftext|>") > 1);
    assert!(counter.count_text("<|start|>") > 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn counts_as_tiktoken_does_on_any_text(text in prop_oneof![
        "\\PC{0,60}",
        "[ \\t\\r\\n\u{3000}\u{a0}a'sSA1/!.]{0,60}",
        "[\\p{L}\\p{M}\\p{N} ']{0,60}",
        any::<String>(),
    ]) {
        for (tiktoken, counter) in encodings() {
            let expected = tiktoken.encode_ordinary(&text).len() as u64;
            prop_assert_eq!(counter.count_text(&text), expected, "{:?}", counter);
        }
    }
}

/// Below the limit, long runs are exact: as many as tiktoken counts without giving up.
#[test]
fn runs_of_half_a_mebibyte_are_exact() {
    for unit in [" ", "a", "=", "\n", "汉", " \n"] {
        assert_exact(&format!("{}x", unit.repeat((500 << 10) / unit.len())));
    }
}

/// tiktoken takes ever longer for each byte of a run, and panics on a million spaces before a word. Each
/// of these has to pass in moments and to come close to the truth.
#[test]
fn larger_runs_are_extrapolated_in_linear_time() {
    let counter = TokenCounter::for_model("gpt-5");
    let runs = [
        (" ", 128.0),
        ("a", 8.0),
        ("=", 64.0),
        ("\n", 16.0),
        ("汉", 3.0),
        ("😀", 4.0),
        ("0", 3.0),
    ];
    for (unit, bytes_per_token) in runs {
        for run in [2 << 20, 5_000] {
            let run = unit.repeat(run / unit.len()) + "x1";
            let text = run.repeat((2usize << 20).div_ceil(run.len()));
            let started = std::time::Instant::now();
            let tokens = counter.count_text(&text);
            let expected = text.len() as f64 / bytes_per_token;
            assert!(
                (tokens as f64 / expected - 1.0).abs() < 0.2,
                "{unit:?}: {tokens} and not {expected}"
            );
            assert!(
                started.elapsed().as_secs() < 30,
                "{unit:?}: {:?}",
                started.elapsed()
            );
        }
    }
}

#[test]
fn claude_models_take_more_and_round_up() {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(100);
    let plain = TokenCounter::for_model("gpt-5").count_text(&text);
    let count = |model| TokenCounter::for_model(model).count_text(&text);
    assert_eq!(
        count("claude-sonnet-4-5-20250929"),
        (plain * 118).div_ceil(100)
    );
    assert_eq!(
        count("anthropic/claude-opus-4.7"),
        (plain * 153).div_ceil(100)
    );
    assert_eq!(
        TokenCounter::for_model("claude-sonnet-4-5").count_text("a"),
        2
    );
    assert_eq!(
        TokenCounter::for_model("claude-sonnet-4-5").count_text(""),
        0
    );
}

#[test]
fn encodings_by_model_name() {
    for model in [
        "gpt-4",
        "gpt-4-0613",
        "openai/gpt-4-turbo",
        "gpt-3.5-turbo",
        "azure/gpt-35-turbo",
        "text-embedding-3-small",
    ] {
        assert_eq!(
            TokenCounter::for_model(model).encoding,
            Encoding::Cl100kBase,
            "{model}"
        );
    }
    for model in [
        "gpt-4o", "gpt-4.1", "gpt-5", "openai/gpt-oss-20b", "o3", "ft:gpt-4o:acme",
        "claude-opus-4-5", "qwen3", "",
    ] {
        assert_eq!(
            TokenCounter::for_model(model).encoding,
            Encoding::O200kBase,
            "{model}"
        );
    }
}

#[test]
fn everything_in_a_message_counts() {
    let counter = TokenCounter::for_model("gpt-4o");
    let count = |parts| counter.count_message(&parts);
    let text = MessageParts {
        text: "hello world",
        ..Default::default()
    };
    assert_eq!(count(text), 2 + MESSAGE_TOKENS);
    assert_eq!(
        count(MessageParts {
            thinking: "hello world",
            ..text
        }),
        4 + MESSAGE_TOKENS
    );
    assert_eq!(
        count(MessageParts {
            name: "hello",
            ..text
        }),
        3 + NAME_TOKENS + MESSAGE_TOKENS
    );
    let calls = [("hello", " world"), ("hello", "{}")];
    let with_calls = MessageParts {
        calls: &calls,
        ..text
    };
    assert_eq!(count(with_calls), 6 + MESSAGE_TOKENS + 2 * CALL_TOKENS);
    let media = [
        MediaSize::Image {
            size: Some((1024, 1024)),
            detail: Detail::High,
        },
        MediaSize::Document {
            pages: Some(2),
            bytes: 0,
        },
    ];
    assert_eq!(
        count(MessageParts {
            media: &media,
            ..text
        }),
        2 + MESSAGE_TOKENS + 765 + 4000
    );
}

#[test]
fn tools_count_and_claude_adds_its_prompt() {
    let tool = r#"{"name":"ls","description":"Lists files","parameters":{"type":"object"}}"#;
    let plain = TokenCounter::for_model("gpt-5");
    assert_eq!(plain.count_tools(&[]), 0);
    assert_eq!(
        plain.count_tools(&[tool, tool]),
        2 * (plain.count_text(tool) + TOOL_TOKENS)
    );
    let claude = TokenCounter::for_model("claude-opus-4-5");
    assert_eq!(claude.count_tools(&[]), 0);
    assert!(claude.count_tools(&[tool]) > 346);
}
