//! `/metrics`: what is counted by model, engine, agent and tenant, and how long things took.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_provider_simulator::{Answer, Usage};
use support::agent::{APIS, Agent, Api};
use support::{Running, Stage};

async fn page(gateway: &Running) -> String {
    let url = format!("{}/metrics", gateway.base);
    reqwest::get(url).await.unwrap().text().await.unwrap()
}

/// Waits until a metric has this value. What is counted at the end of an answer may come a moment after it.
async fn until(gateway: &Running, name: &str, value: f64) {
    for _ in 0..500 {
        if gateway.metric(name).await == value {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{name} is not {value}:\n{}", page(gateway).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_counted_by_model_engine_and_agent_and_their_time_by_buckets() {
    let stage = Stage::new("");
    let usage = Usage {
        input: 100,
        cache_read: 20,
        output: 7,
        ..Usage::default()
    };
    stage
        .provider
        .answer_with(move |_| Answer::text("Yes.").reporting(usage));
    let gateway = stage.gateway().await;
    let agents = [
        (
            Api::Messages,
            "claude-cli/2.0.1 (external, cli)",
            "claude-code",
        ),
        (Api::Responses, "codex_cli_rs/0.50.0", "codex"),
        (
            Api::Chat,
            "kilo/latest/7.7.7/cli ai-sdk/provider-utils/4.0.27 runtime/bun/1.3.14",
            "kilo-code",
        ),
        (
            Api::Gemini,
            "GeminiCLI/0.61.0/gemini-2.5-pro (linux; x64; terminal)",
            "gemini-cli",
        ),
    ];
    assert_eq!(agents.map(|(api, ..)| api).len(), APIS.len());
    for (api, named, label) in agents {
        for stream in [true, false] {
            let mut agent = Agent::new(api, &gateway.base, &format!("{label}-{stream}"));
            agent
                .headers
                .push(("user-agent".to_owned(), named.to_owned()));
            agent.stream = stream;
            agent.user("Hello");
            agent.go_on().await;
        }
        let labels = format!(
            "model=\"{}\",engine=\"compressor\",agent=\"{label}\"",
            match api {
                Api::Messages => "claude-sonnet-4-5",
                Api::Gemini => "gemini-2.5-pro",
                _ => "gpt-4o",
            }
        );
        for (kind, tokens) in [
            ("input", 200.0),
            ("cache_read", 40.0),
            ("cache_write", 0.0),
            ("output", 14.0),
        ] {
            let name = format!("contexture_tokens_total{{kind=\"{kind}\",{labels}}}");
            until(&gateway, &name, tokens).await;
        }
        until(
            &gateway,
            &format!("contexture_model_call_seconds_count{{{labels}}}"),
            2.0,
        )
        .await;
    }
    for (name, count) in [
        (
            "contexture_request_seconds_count{endpoint=\"messages\"}",
            2.0,
        ),
        (
            "contexture_request_seconds_count{endpoint=\"responses\"}",
            2.0,
        ),
        ("contexture_request_seconds_count{endpoint=\"chat\"}", 2.0),
        ("contexture_hold_seconds_count", 8.0),
        (
            "contexture_upstream_seconds_count{provider=\"openai\"}",
            4.0,
        ),
        (
            "contexture_upstream_seconds_count{provider=\"anthropic\"}",
            2.0,
        ),
        (
            "contexture_upstream_responses_total{status=\"200\",provider=\"openai\"}",
            4.0,
        ),
    ] {
        until(&gateway, name, count).await;
    }

    // Each bucket counts all that are not longer, up to all of them.
    let page = page(&gateway).await;
    let buckets: Vec<(f64, f64)> = page
        .lines()
        .filter_map(|line| line.strip_prefix("contexture_hold_seconds_bucket{le=\""))
        .map(|line| {
            let (bound, count) = line.split_once("\"} ").unwrap();
            (
                bound.replace("+Inf", "inf").parse().unwrap(),
                count.parse().unwrap(),
            )
        })
        .collect();
    assert!(
        buckets.is_sorted() && buckets.is_sorted_by_key(|(_, count)| *count),
        "{buckets:?}"
    );
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, 8.0)));
    assert!(buckets.iter().any(|(bound, _)| *bound == 0.1));
    assert!(gateway.metric("contexture_hold_seconds_sum").await > 0.0);
    gateway.stop().await;
}

/// Prometheus sees a burst of failures as an increase only if it has seen the counter before.
#[tokio::test(flavor = "multi_thread")]
async fn counters_begin_at_zero() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    let page = page(&gateway).await;
    for counter in [
        "requests_total{endpoint=\"gemini\",outcome=\"failed-open\"}",
        "failed_open_total{reason=\"record\"}",
        "not_managed_total{reason=\"record\"}",
        "not_managed_total{reason=\"tenant_requests\"}",
        "not_managed_total{reason=\"side call\"}",
        "engine_failures_total{part=\"engine\"}",
        "engine_failures_total{part=\"store\"}",
        "unproven_total",
        "branches_total",
        "hidden_rounds_total",
        "resent_total",
        "cut_streams_total",
        "saved_tokens_total",
    ] {
        assert!(
            page.contains(&format!("\ncontexture_{counter} 0\n")),
            "{counter}:\n{page}"
        );
    }
}

/// The provider reads the system prompt from its cache for every new conversation, with or without an engine.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_as_it_came_saves_nothing() {
    for api in [Api::Chat, Api::Responses, Api::Gemini] {
        let stage = Stage::new("model: {context_length: 100000}\n");
        stage.provider.answer_with(|_| Answer::text("Yes."));
        let gateway = stage.gateway().await;
        for session in 0..4 {
            let mut agent = Agent::new(api, &gateway.base, &session.to_string());
            agent.system = "You work on a repository. ".repeat(400);
            for question in ["Is it cold?", "Is it late?"] {
                agent.ask(&format!("{session} {question}"), "").await;
            }
        }
        let bill = stage.provider.bill();
        assert!(bill.usage.cache_read > bill.usage.input, "{api:?} {bill:?}");
        let saved = gateway.metric("contexture_saved_dollars").await;
        assert_eq!(saved, 0.0, "{api:?}");
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_choose_makes_no_series_without_end() {
    let stage = Stage::new("model: {context_length: 100000}\n");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    for number in 0..60 {
        let mut agent = Agent::new(Api::Chat, &gateway.base, &format!("s{number}"));
        agent.stream = false;
        agent
            .headers
            .push(("user-agent".to_owned(), format!("agent-{number}")));
        agent.model = match number {
            0 => "a\"quote\n".to_owned(),
            number => format!("model-{number}"),
        };
        agent.user("Hello");
        agent.go_on().await;
    }
    until(&gateway, "contexture_model_call_seconds_count", 60.0).await;
    let page = page(&gateway).await;
    let series = page
        .lines()
        .filter(|line| line.starts_with("contexture_model_call_seconds_count"));
    let series: Vec<&str> = series.collect();
    // Fifty have a series of their own. The others, and what cannot be a label, share one.
    assert_eq!(series.len(), 51, "{series:#?}");
    assert!(
        series.iter().all(|line| line.contains("agent=\"other\"")),
        "{series:#?}"
    );
    let other = series
        .iter()
        .find(|line| line.contains("model=\"other\""))
        .unwrap();
    assert!(other.ends_with(" 10"), "{other}");
    assert!(!page.contains("quote"));
    gateway.stop().await;
}

/// The name of a tenant is the operator's, who may write anything.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_tenant_are_counted_as_its_own() {
    let stage = Stage::new("");
    let usage = Usage {
        input: 100,
        output: 7,
        ..Usage::default()
    };
    stage
        .provider
        .answer_with(move |_| Answer::text("Yes.").reporting(usage));
    // Variables that cargo sets for tests, as tokens.
    stage.configure("gateway: {tokens: {'a \"b\" \\': CARGO_PKG_NAME, bob: CARGO_PKG_VERSION}}\n");
    let gateway = stage.gateway().await;
    for token in [env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION")] {
        let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
        agent
            .headers
            .push(("x-contexture-token".to_owned(), token.to_owned()));
        agent.user("Hello");
        agent.go_on().await;
    }
    let labels = r#"model="gpt-4o",engine="compressor",agent="other",tenant="#;
    let owner = std::fs::read_to_string(stage.home.path().join("gateway.token")).unwrap();
    for tenant in [r#""a \"b\" \\""#, r#""bob""#] {
        let name = format!(r#"contexture_tokens_total{{kind="output",{labels}{tenant}}} 7"#);
        let mut page = String::new();
        for _ in 0..500 {
            let asked = reqwest::Client::new().get(format!("{}/metrics", gateway.base));
            let answer = asked
                .header("x-contexture-token", owner.trim())
                .send()
                .await;
            page = answer.unwrap().text().await.unwrap();
            if page.contains(&name) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(page.contains(&name), "{name}: {page}");
    }
}
