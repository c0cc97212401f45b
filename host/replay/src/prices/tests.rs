#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

#[test]
fn each_part_has_its_price() {
    let prompts = Prompts {
        prompt_tokens: 6_000_000,
        cached_tokens: 3_000_000,
        written_tokens: 2_000_000,
        ..Prompts::default()
    };
    let prices = Prices::given(Some(10.0), Some(1.0), Some(12.0), Ttl::default()).unwrap();
    assert_eq!(prices.cost(&prompts), 10.0 + 3.0 + 24.0);
    assert_eq!(
        Prices::sonnet(Ttl::FiveMinutes).cost(&prompts),
        3.0 + 0.9 + 7.5
    );
}

#[test]
fn a_model_has_its_own_prices_and_an_unknown_one_none() {
    let input = |model| Prices::of_model(model, Ttl::FiveMinutes).map(|prices| prices.input);
    assert_eq!(input("claude-opus-4-5-20251101"), Some(5.0));
    assert_eq!(input("anthropic/claude-opus-4.1"), Some(15.0));
    assert_eq!(input("claude-haiku-4-5"), Some(1.0));
    assert_eq!(input("gpt-4o"), Some(2.5));
    assert_eq!(input("openai/GPT-5.4-2026-03-05:free"), Some(2.5));
    assert_eq!(input("gpt-5.1-codex-mini"), Some(0.25));
    assert_eq!(input("gpt-5-chat-latest"), Some(1.25));
    assert_eq!(input("o4-mini-2025-04-16"), Some(1.1));
    assert_eq!(input("models/gemini-2.5-pro"), Some(1.25));
    for unknown in [
        "claude-opus-6",
        "claude-latest",
        // Neither is known to cost as much as the model whose name it begins with.
        "gpt-5.9",
        "gpt-4o-audio-preview",
        "qwen3-coder",
        "",
    ] {
        assert_eq!(input(unknown), None, "{unknown}");
    }
    for ttl in [Ttl::FiveMinutes, Ttl::OneHour] {
        let sonnet = Prices::of_model("claude-sonnet-4-5", ttl);
        assert_eq!(sonnet, Some(Prices::sonnet(ttl)));
    }
}

#[test]
fn each_price_of_the_table_is_plausible() {
    for (name, [input, cached, write, output]) in OPENAI {
        assert_eq!(plain_name(name), *name, "no spelling leads to {name}");
        assert!(0.0 < *cached && cached <= input, "{name}");
        assert!(input <= write && *write <= input * 1.25 + 1e-9, "{name}");
        assert!(output > input, "{name}");
    }
    for (name, [input, cached, output]) in GOOGLE {
        assert_eq!(plain_name(name), *name, "no spelling leads to {name}");
        assert!(0.0 < *cached && cached < input && input < output, "{name}");
    }
    let opus = ListPrice::of_model("claude-opus-4-8").unwrap();
    assert_eq!((opus.write, opus.output), (6.25, 25.0));
    // OpenAI charges for a write once, however long it is kept.
    let prompts = ListPrice::of_model("gpt-4o").unwrap().prompts(Ttl::OneHour);
    assert_eq!((prompts.write, prompts.write_long), (2.5, 2.5));
}

#[test]
fn an_unknown_model_pays_what_its_provider_charges_for_the_cache() {
    let fitting = |model| Prices::fitting(model, Ttl::FiveMinutes);
    let sonnet = Prices::sonnet(Ttl::FiveMinutes);
    assert_eq!(fitting("claude-latest"), sonnet);
    assert_eq!(fitting("claude-opus-4-5").input, 5.0);
    assert_eq!(fitting("gpt-5").input, 1.25);
    let other = fitting("qwen3-coder");
    assert_eq!(
        (other.input, other.cached, other.write, other.write_long),
        (3.0, 0.3, 3.0, 3.0)
    );
}

#[test]
fn what_is_not_given_follows_from_what_is() {
    let given = |input, cached, write, ttl| Prices::given(input, cached, write, ttl).unwrap();
    let ttl = Ttl::FiveMinutes;
    assert_eq!(given(None, None, None, ttl), Prices::sonnet(ttl));
    assert_eq!(given(None, None, None, Ttl::OneHour).write, 6.0);
    let own = given(Some(5.0), None, None, ttl);
    assert_eq!((own.input, own.cached, own.write), (5.0, 0.5, 5.0));
    let own = given(None, Some(0.0), Some(7.0), ttl);
    assert_eq!((own.input, own.cached, own.write), (3.0, 0.0, 7.0));
}

#[test]
fn a_price_below_nothing_is_refused() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Prices::given(None, None, Some(wrong), Ttl::default()).is_err());
    }
}
