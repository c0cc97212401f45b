//! Long sessions: compacted several times, and to the client one unbroken conversation.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contexture::{Host, HostOptions, ToolCall};
use contexture_engine_api::SUMMARY_MARK;
use contexture_provider_simulator::{Answer, Coder, Fault, Request};
use contexture_tiered as _;
use serde_json::{Value, json};
use support::Stage;
use support::agent::{APIS, Agent, Api};

/// A window so small that a session is compacted many times, with compactions that do not wait until they pay.
fn config(engine: &str) -> String {
    format!(
        "context: {{engine: {engine}}}\nmodel: {{context_length: 24000}}\ncompression: {{protect_last_n: 4, timing: threshold}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn three_compactions_and_an_unbroken_conversation() {
    for engine in ["compressor", "lcm"] {
        for api in APIS {
            for stream in [true, false] {
                let stage = Stage::new(&config(engine));
                stage.provider.set(|options| options.window = Some(24_000));
                let coder = Coder {
                    rounds: 24,
                    also: vec![(
                        7,
                        "lcm_grep".to_owned(),
                        json!({"pattern": "line of the report"}),
                    )],
                    ..Coder::default()
                };
                let last_words = coder.last_words();
                stage
                    .provider
                    .answer_with(move |request| coder.answer(request));
                let mut gateways = vec![stage.gateway().await];
                let mut agent = Agent::new(api, &gateways[0].base, "s");
                agent.stream = stream;
                agent.user("Run all checks.");
                let mut calls = 0;
                loop {
                    let said = agent.go_on().await;
                    assert_eq!(said.header("x-contexture-status"), "managed");
                    if said.calls.is_empty() {
                        assert_eq!(said.text, last_words, "{engine} {api:?} {stream}");
                        break;
                    }
                    for (_, name, _) in &said.calls {
                        assert_eq!(name, "run");
                        calls += 1;
                    }
                    let result = format!("ok {calls} {}", "line of the report; ".repeat(250));
                    agent.results(&said, &result);
                    if calls % 10 == 9 {
                        // A restart loses nothing.
                        gateways.push(stage.gateway().await);
                        agent.base = gateways[gateways.len() - 1].base.clone();
                    }
                }
                let mut compacted = 0.0;
                for gateway in &gateways {
                    let name = "contexture_compactions_total{outcome=\"compacted\"";
                    compacted += gateway.metric(name).await;
                }
                assert!(compacted >= 3.0, "{engine} {api:?} {stream}: {compacted}");
                let of_all = serde_json::to_string(&agent.history).unwrap();
                assert!(of_all.len() > 100_000 && !of_all.contains("lcm_grep"));
                if engine == "lcm" {
                    let offered: Vec<bool> = (stage.provider.requests().iter())
                        .map(|request| request.tool_names().contains(&"lcm_grep"))
                        .collect();
                    assert!(
                        !offered[0] && offered.is_sorted(),
                        "once compacted: {offered:?}"
                    );
                    assert_eq!(offered.last(), Some(&true));
                }
                stage.nothing_was_refused();
                assert!(
                    stage.provider.overflows().is_empty(),
                    "{:?}",
                    stage.provider.overflows()
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compactions_are_counted_and_told() {
    let stage = Stage::new(&config("compressor"));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut told = 0;
    for number in 0..60 {
        agent.user(&format!(
            "{number} {}",
            "words of a long story ".repeat(120)
        ));
        told += usize::from(
            agent
                .go_on()
                .await
                .header("x-contexture-compaction")
                .starts_with("compacted"),
        );
    }
    assert!(told >= 3, "{told}");
    assert_eq!(
        gateway
            .metric("contexture_compactions_total{outcome=\"compacted\"")
            .await,
        told as f64
    );
    assert!(gateway.metric("contexture_saved_tokens_total").await > 10_000.0);
    stage.nothing_was_refused();
}

/// The provider's word that a request does not fit is met before the client sees it, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_fit_is_sent_again_smaller() {
    for api in APIS {
        let stage = Stage::new("");
        stage.provider.set(|options| options.window = Some(12_000));
        stage.provider.answer_with(|_| Answer::text("Yes."));
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(api, &gateway.base, "s");
        for number in 0..30 {
            // A stream of Responses has begun when it fails.
            agent.stream = number % 2 == 0;
            agent.user(&format!(
                "{number} {}",
                "words of a long story ".repeat(120)
            ));
            let said = agent.go_on().await;
            assert_eq!(said.text, "Yes.", "{api:?} {number}");
        }
        assert!(!stage.provider.overflows().is_empty());
        let resent = gateway.metric("contexture_resent_total").await;
        assert_eq!(resent, stage.provider.overflows().len() as f64, "{api:?}");
        stage.nothing_was_refused();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn observing_changes_nothing_and_counts_what_managing_would_save() {
    let stage = Stage::new(&format!(
        "{}gateway: {{mode: observe}}\n",
        config("compressor")
    ));
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    for number in 0..40 {
        agent.user(&format!(
            "{number} {}",
            "words of a long story ".repeat(120)
        ));
        let body = agent.body();
        let said = agent.go_on().await;
        assert_eq!(said.header("x-contexture-status"), "observed");
        let sent = stage.provider.requests().pop().unwrap();
        assert_eq!(sent.body, body.to_string().as_bytes());
    }
    for _ in 0..100 {
        if gateway.metric("contexture_saved_tokens_total").await > 0.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(gateway.metric("contexture_saved_tokens_total").await > 0.0);
}

/// Two gateways on one store, and a client that goes from one to the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_belongs_to_no_gateway() {
    for api in APIS {
        let stage = Stage::new(&config("lcm"));
        let gateways = [stage.gateway().await, stage.gateway().await];
        let coder = Coder {
            rounds: 24,
            ..Coder::default()
        };
        let last_words = coder.last_words();
        stage
            .provider
            .answer_with(move |request| coder.answer(request));
        let mut agent = Agent::new(api, &gateways[0].base, "s");
        agent.user("Run all checks.");
        let mut turns = 0;
        loop {
            turns += 1;
            agent.base = gateways[turns % 2].base.clone();
            let said = agent.go_on().await;
            assert_eq!(said.header("x-contexture-status"), "managed");
            if said.calls.is_empty() {
                assert_eq!(said.text, last_words, "{api:?}");
                break;
            }
            agent.results(
                &said,
                &format!("ok {turns} {}", "line of the report; ".repeat(250)),
            );
        }
        let mut compacted = 0.0;
        for gateway in &gateways {
            compacted += gateway
                .metric("contexture_compactions_total{outcome=\"compacted\"")
                .await;
            assert_eq!(gateway.metric("contexture_failed_open_total").await, 0.0);
        }
        assert!(compacted >= 3.0, "{compacted}");
        stage.nothing_was_refused();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_costs_the_session_nothing() {
    for api in APIS {
        let stage = Stage::new(&config("lcm"));
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(api, &gateway.base, "s");
        for number in 0..25 {
            agent.user(&format!(
                "{number} {}",
                "words of a long story ".repeat(120)
            ));
            if number % 3 == 0 {
                stage
                    .provider
                    .script([Answer::fault(Fault::ResetAfter(100 + number * 40))]);
                let cut = agent.send().await;
                assert!(!cut.ended);
            }
            stage
                .provider
                .script([Answer::text(format!("Yes, {number}."))]);
            assert_eq!(agent.go_on().await.text, format!("Yes, {number}."));
        }
        stage.nothing_was_refused();
    }
}

/// What is counted is what would be sent, so that nobody compacts early; and counting is no turn.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_of_the_body_that_would_be_sent() {
    let stage = Stage::new(&config("lcm"));
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    for number in 0..40 {
        agent.user(&format!(
            "{number} {}",
            "words of a long story ".repeat(120)
        ));
        agent.go_on().await;
    }
    agent.user("One more.");
    let mut body = agent.body();
    for key in ["max_tokens", "stream"] {
        body.as_object_mut().unwrap().remove(key);
    }
    let count = |base: String| {
        let body = body.to_string();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = http
            .post(format!("{base}/v1/messages/count_tokens"))
            .header("x-api-key", "k");
        let request = request
            .header("anthropic-version", "2023-06-01")
            .header("content-type", "application/json")
            .header("x-contexture-session", "s");
        async move {
            let answer: serde_json::Value = serde_json::from_str(
                &request
                    .body(body)
                    .send()
                    .await
                    .unwrap()
                    .text()
                    .await
                    .unwrap(),
            )
            .unwrap();
            answer["input_tokens"].as_u64().unwrap()
        }
    };
    let (through, direct) = (
        count(gateway.base.clone()).await,
        count(stage.provider.base_url()).await,
    );
    assert!(through < 24_000 && direct > 26_000, "{through} {direct}");
    // Another gateway, or this one after a restart, has the session in no memory yet.
    let again = stage.gateway().await;
    assert_eq!(count(again.base.clone()).await, through);
    let said = agent.go_on().await;
    let sent = stage.provider.requests().pop().unwrap();
    let counted = stage
        .provider
        .requests_of(contexture_provider_simulator::Api::CountTokens);
    assert_eq!(sent.messages().len(), counted[0].messages().len());
    assert_eq!(sent.json["tools"], counted[0].json["tools"]);
    assert_eq!(said.header("x-contexture-status"), "managed");
    stage.nothing_was_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn input_tokens_are_counted_of_the_input_that_would_be_sent() {
    let stage = Stage::new(&config("lcm"));
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Responses, &gateway.base, "s");
    for number in 0..40 {
        agent.user(&format!(
            "{number} {}",
            "words of a long story ".repeat(120)
        ));
        agent.go_on().await;
    }
    agent.user("One more.");
    let count = agent
        .http
        .post(format!("{}/v1/responses/input_tokens", gateway.base))
        .header("authorization", "Bearer k")
        .header("content-type", "application/json")
        .header("x-contexture-session", "s")
        .body(agent.body().to_string());
    let status = count.send().await.unwrap().headers()["x-contexture-status"].clone();
    assert_eq!(status, "managed");
    agent.go_on().await;
    let sent = stage.provider.requests().pop().unwrap();
    // The simulator does not know the endpoint.
    let others = contexture_provider_simulator::Api::Other;
    let counted = stage.provider.requests_of(others).pop().unwrap();
    assert_eq!(counted.path, "/v1/responses/input_tokens");
    assert_eq!(counted.json["input"], sent.json["input"]);
    assert!(sent.messages().len() < 60);
}

/// Markers on the system prompt and the last three messages, never more than four, and the client's own respected.
#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_cache_stays_warm() {
    for engine in ["compressor", "lcm"] {
        let stage = Stage::new(&config(engine));
        let gateway = stage.gateway().await;
        let coder = Coder {
            rounds: 24,
            ..Coder::default()
        };
        stage
            .provider
            .answer_with(move |request| coder.answer(request));
        let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
        agent.system = "You work on a repository. ".repeat(300);
        agent
            .ask("Run all checks.", &"line of the report; ".repeat(150))
            .await;
        for request in stage.provider.requests() {
            let markers = request.json.to_string().matches("cache_control").count();
            assert!((2..=4).contains(&markers), "{markers}");
        }
        let bill = stage.provider.bill();
        assert!(bill.usage.cache_read > 2 * bill.usage.input, "{bill:?}");
        stage.nothing_was_refused();
    }
}

/// What the model answers a question for notes, and anybody else.
fn notes_or_yes(request: &Request) -> Answer {
    match request.last_text().contains("Now write the notes") {
        true => Answer::text("## Goal\nDeliver the parcels from Ghent."),
        false => Answer::text("Yes."),
    }
}

fn is_question(request: &&Request) -> bool {
    request.last_text().contains("Now write the notes")
}

/// A session of some compactions under this configuration.
async fn long_session(api: Api, more: &str) -> Stage {
    let stage = Stage::new(&format!("{}{more}", config("compressor")));
    stage.provider.answer_with(notes_or_yes);
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(api, &gateway.base, "s");
    agent
        .headers
        .push(("anthropic-beta".to_owned(), "interleaved-2025".to_owned()));
    for number in 0..70 {
        agent.user(&format!("{number} {}", "words of a story ".repeat(60)));
        agent.go_on().await;
        // What is prepared between turns has the time that a person would leave it.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.stop().await;
    stage.nothing_was_refused();
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_own_model_summarises_what_it_has_in_its_cache() {
    for api in [Api::Messages, Api::Chat, Api::Gemini] {
        let stage = long_session(api, "auxiliary: {compression: {provider: main}}\n").await;
        let requests = stage.provider.requests();
        let questions: Vec<&Request> = requests.iter().filter(is_question).collect();
        assert!(!questions.is_empty(), "{api:?}");
        for question in questions {
            // What was sent last when it was made, and the question after that. The next turn may have overtaken it.
            let (_, asked) = question.messages().split_last().unwrap();
            let before = requests[..question.number].iter().rev();
            let mut before = before.filter(|request| !is_question(request)).take(2);
            let last = before.find(|request| request.messages() == asked).unwrap();
            for name in [
                "system", "tools", "model", "max_tokens", "systemInstruction",
            ] {
                assert_eq!(question.json[name], last.json[name], "{api:?} {name}");
            }
            for name in [
                "x-api-key", "authorization", "anthropic-version", "anthropic-beta",
                "x-goog-api-key",
            ] {
                assert_eq!(question.header(name), last.header(name), "{api:?} {name}");
            }
            assert!(!question.streams() && question.header("x-contexture-session").is_none());
        }
        let shows_notes =
            |request: &Request| request.json.to_string().contains("parcels from Ghent");
        assert!(shows_notes(requests.last().unwrap()), "{api:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_summary_that_the_model_did_not_write_is_told_with_the_reason() {
    let main = "auxiliary: {compression: {provider: main}}\n";
    let stage = Stage::new(&format!("{}{main}", config("compressor")));
    stage
        .provider
        .answer_with(|request| match is_question(&request) {
            true => Answer::text("Sorry, that is private."),
            false => Answer::text("Yes."),
        });
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
    let mut told = Vec::new();
    for number in 0..60 {
        let words = "words of a long story ".repeat(120);
        agent.user(&format!("{number} {words}"));
        let said = agent.go_on().await;
        let header = said.header("x-contexture-compaction").to_owned();
        told.extend(header.starts_with("compacted").then_some(header));
    }
    assert!(told.len() >= 3, "{told:?}");
    let says_why = |header: &String| header.contains("; summary=digest: the summary was extracted");
    assert!(told.iter().all(says_why), "{told:?}");
}

/// What the page shows as costs is what the provider charges, also for answers that give no summary.
#[tokio::test(flavor = "multi_thread")]
async fn what_summaries_cost_is_in_the_costs() {
    let main = "auxiliary: {compression: {provider: main}}\n";
    let stage = Stage::new(&format!("{}{main}", config("compressor")));
    let questions = AtomicU64::new(0);
    stage.provider.answer_with(move |request| {
        let is_question = is_question(&request);
        match questions.fetch_add(u64::from(is_question), Ordering::Relaxed) % 2 {
            0 => notes_or_yes(request),
            _ if is_question => Answer::text("Sorry, that is private."),
            _ => Answer::text("Yes."),
        }
    });
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    for number in 0..80 {
        agent.user(&format!("{number} {}", "words of a story ".repeat(60)));
        agent.go_on().await;
    }
    // What a question used that is answered after a turn stands with the next turn.
    for number in 0.. {
        let url = format!("{}/contexture/session?id=s", gateway.base);
        let told = reqwest::get(url).await.unwrap().text().await.unwrap();
        let told: Value = serde_json::from_str(&told).unwrap();
        let cost = |key: &str| told["totals"]["cost"][key].as_f64().unwrap();
        let spent = cost("engine") + cost("output") + cost("summaries");
        let bill = stage.provider.bill();
        if (spent - bill.dollars).abs() < 1e-6 {
            let prompts = gateway.metric("contexture_summary_tokens_total").await;
            assert!(cost("summaries") > 0.0 && prompts > 1_000.0, "{told}");
            let saved = cost("none").min(cost("markers")) - cost("engine") - cost("summaries");
            let told = gateway.metric("contexture_saved_dollars").await;
            assert!((saved - told).abs() < 1e-3, "{saved} {told}");
            break;
        }
        assert!(number < 20, "{spent} {bill:?}");
        agent.user("And now?");
        agent.go_on().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobodys_model_is_asked_who_was_not_named() {
    let stage = long_session(Api::Messages, "").await;
    assert!(
        !stage
            .provider
            .requests()
            .iter()
            .any(|request| is_question(&request))
    );
}

/// What the provider made of a conversation, and what stands before it, stays byte for byte; what follows is managed.
#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_of_the_providers_own_is_a_boundary() {
    for (engine, api) in [
        ("compressor", Api::Messages),
        ("lcm", Api::Messages),
        ("compressor", Api::Responses),
        ("lcm", Api::Responses),
    ] {
        let stage = Stage::new(&config(engine));
        stage.provider.answer_with(|request| {
            let coder = Coder {
                rounds: 24,
                ..Coder::default()
            };
            coder.answer(request)
        });
        let mut gateways = vec![stage.gateway().await];
        let mut agent = Agent::new(api, &gateways[0].base, "s");
        agent.user("Run the first check.");
        let said = agent.go_on().await;
        agent.results(&said, "ok");
        let block = |number: usize| match api {
            Api::Messages => {
                let block = json!({"type": "compaction", "content": format!("Summary {number}.")});
                let text = json!({"type": "text", "text": "I go on."});
                json!({"role": "assistant", "content": [block, text]})
            }
            _ => json!({"type": "compaction", "encrypted_content": format!("opaque{number}")}),
        };
        agent.history.push(block(1));
        for part in 2..4 {
            agent.user("Run all checks.");
            let heads = agent.history.len() - 1;
            let head: Vec<String> = (agent.history[..heads].iter())
                .map(ToString::to_string)
                .collect();
            let asked = stage.provider.requests().len();
            let mut calls = 0;
            for _ in 0..12 {
                let said = agent.go_on().await;
                let status = said.header("x-contexture-status");
                assert_eq!(status, "managed", "{engine} {api:?}");
                assert_eq!(said.header("x-contexture-session"), "s", "{engine} {api:?}");
                calls += said.calls.len();
                if said.calls.is_empty() {
                    break;
                }
                agent.results(&said, &"line of the report; ".repeat(600));
                if calls % 5 == 4 {
                    // A restart knows the boundary, too.
                    gateways.push(stage.gateway().await);
                    agent.base = gateways[gateways.len() - 1].base.clone();
                }
            }
            assert!(calls > 5, "{engine} {api:?}: {calls}");
            let requests = stage.provider.requests();
            for request in &requests[asked..] {
                let body = std::str::from_utf8(&request.body).unwrap();
                assert!(body.contains(&head.join(",")), "{engine} {api:?}: {body}");
            }
            let last = &requests[requests.len() - 1];
            let whole = serde_json::to_string(&agent.history).unwrap().len();
            assert!(last.body.len() < whole * 2 / 3, "{engine} {api:?} {whole}");
            // The next one stands for all before it, and the client sends that no more.
            agent.history = vec![json!({"role": "user", "content": "Run the first check."})];
            agent.history.push(block(part));
        }
        stage.nothing_was_refused();
        if engine == "lcm" {
            // What was said before stays kept, and is found.
            tokio::task::block_in_place(|| {
                let host = Host::open(&HostOptions::in_home(stage.home.path())).unwrap();
                let mut session = host.session("s").model("m", 24_000).open().unwrap();
                session.tools().unwrap();
                for said in ["Run the first check.", "Run all checks."] {
                    let asked = json!({"pattern": said}).to_string();
                    let found = session.call_tool(ToolCall::new("lcm_grep", asked)).unwrap();
                    assert!(found.contains(said), "{found}");
                }
            });
        }
    }
}

/// Tools stand before everything else, so each change of them costs the provider's whole cache. Codex has the provider
/// compact in the middle of its work, so that the next request has no message of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_tools_change_with_the_engines_first_compaction_and_never_again() {
    for (window, changes) in [(1_000_000, 0), (12_000, 1)] {
        let stage = Stage::new(&format!(
            "context: {{engine: lcm}}\nmodel: {{context_length: {window}}}\n"
        ));
        let trigger = json!({"type": "compaction_trigger"});
        let is_trigger = {
            let trigger = trigger.clone();
            move |request: &Request| request.messages().last() == Some(&trigger)
        };
        stage
            .provider
            .answer_with(move |request| match is_trigger(request) {
                true => Answer::compaction(format!("Summary {}.", request.number)),
                false => Answer::call("run", json!({"command": "make"})),
            });
        let mut gateways = vec![stage.gateway().await];
        let mut agent = Agent::new(Api::Responses, &gateways[0].base, "s");
        agent.user("Run all checks.");
        for number in 0..40 {
            if number % 12 == 11 {
                let mut asking = agent.clone();
                asking.history.push(trigger.clone());
                agent.history.truncate(1);
                agent.take(&asking.send().await);
            }
            let said = agent.go_on().await;
            assert_eq!(said.header("x-contexture-status"), "managed", "{number}");
            assert_eq!(said.header("x-contexture-session"), "s", "{number}");
            agent.results(
                &said,
                &format!("{number} {}", "line of the report; ".repeat(200)),
            );
            if number % 12 == 3 {
                gateways.push(stage.gateway().await);
                agent.base.clone_from(&gateways[gateways.len() - 1].base);
            }
        }
        let mut tools: Vec<usize> = Vec::new();
        for request in stage.provider.requests() {
            tools.push(request.tools().len());
        }
        tools.dedup();
        assert_eq!(tools.len() - 1, changes, "{window}: {tools:?}");
        stage.nothing_was_refused();
    }
}

/// The texts of a request's summaries that are blocks of their own.
fn summaries(request: &Request) -> Vec<String> {
    let contents = request
        .messages()
        .iter()
        .filter_map(|message| message["content"].as_array());
    let texts = contents
        .flatten()
        .filter_map(|block| block["text"].as_str());
    let summaries = texts.filter(|text| text.starts_with(SUMMARY_MARK));
    summaries.map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn summaries_that_stay_are_read_from_the_providers_cache() {
    let stage = Stage::new(&config("lcm"));
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.system = "You work on a repository. ".repeat(300);
    let filler = "It goes on. ".repeat(80);
    let (mut before, mut bill_before) = (Vec::new(), 0);
    let (mut system_alone, mut compactions_with_summaries_kept) = (0, 0);
    for part in 0..120 {
        agent.user(&format!(
            "Part {part} of the report is in src/part_{part}.rs. {filler}"
        ));
        agent.go_on().await;
        let now = summaries(&stage.provider.requests()[part]);
        let bill = stage.provider.bill().usage.cache_read;
        let read = bill - bill_before;
        let same = now
            .iter()
            .zip(&before)
            .take_while(|(now, before)| now == before);
        let same = same.count();
        if now != before && same == 0 {
            system_alone = read;
        } else if now != before {
            // The newest of them was not yet likely to stay.
            let kept = &now[..same.min(before.len() - 1)];
            let bytes: usize = kept.iter().map(String::len).sum();
            assert!(
                read >= system_alone + bytes as u64 / 6,
                "{part}: {read} tokens, {bytes} bytes kept"
            );
            compactions_with_summaries_kept += usize::from(!kept.is_empty());
        }
        (before, bill_before) = (now, bill);
    }
    assert!(compactions_with_summaries_kept > 1);
    stage.nothing_was_refused();
}

/// A model that thinks, speaks and calls the tool until it has done so `rounds` times.
fn thinks(rounds: usize) -> impl Fn(&Request) -> Answer {
    move |request| {
        let results = request.messages().iter();
        let last = results.rev().find_map(|item| {
            item["output"]
                .as_str()?
                .split(' ')
                .nth(1)?
                .parse::<usize>()
                .ok()
        });
        let round = last.unwrap_or(0) + 1;
        let said = Answer::thinking(format!("Round {round} needs a look.")).and_text(format!(
            "In round {round} the value is v{round}. {}",
            "So it is. ".repeat(20)
        ));
        match round > rounds {
            true => Answer::thinking("All done.").and_text("Finished."),
            false => said.and_call("run", json!({"command": format!("look {round}")})),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_the_provider_stores_are_compacted_like_others() {
    for engine in ["compressor", "lcm", "tiered"] {
        for stream in [true, false] {
            let stage = Stage::new(&config(engine));
            stage.provider.set(|options| options.window = Some(24_000));
            stage.provider.answer_with(thinks(40));
            let mut gateway = stage.gateway().await;
            let mut agent = Agent::new(Api::Responses, &gateway.base, "");
            (agent.stream, agent.refers) = (stream, true);
            agent.user("Run all checks.");
            let mut compacted = 0;
            for round in 1.. {
                let said = agent.go_on().await;
                assert_eq!(
                    said.header("x-contexture-status"),
                    "managed",
                    "{engine} {round}"
                );
                let compaction = said.header("x-contexture-compaction");
                compacted += usize::from(compaction.starts_with("compacted"));
                if said.calls.is_empty() {
                    assert_eq!(said.text, "Finished.");
                    break;
                }
                agent.results(
                    &said,
                    &format!("ok {round} {}", "line of the report; ".repeat(250)),
                );
                if round % 10 == 9 {
                    // The items are found again after a restart.
                    gateway.stop().await;
                    gateway = stage.gateway().await;
                    agent.base = gateway.base.clone();
                }
            }
            assert!(compacted >= 3, "{engine} {stream}: {compacted}");
            stage.nothing_was_refused();
            assert!(stage.provider.overflows().is_empty());
            let requests = stage.provider.requests();
            let sent = |text: &str| {
                let holds =
                    |request: &&Request| String::from_utf8_lossy(&request.body).contains(text);
                requests.iter().filter(holds).count()
            };
            // What is kept is sent as it came, and a summary says what the model did.
            assert!(
                sent("item_reference") > 30,
                "{engine}: {}",
                sent("item_reference")
            );
            assert_eq!(sent("Round 3 needs a look."), 0, "{engine}");
            assert!(sent(SUMMARY_MARK) > 0 || engine == "tiered");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_nobody_here_saw_is_left_to_the_provider() {
    let stage = Stage::new(&config("compressor"));
    let gateway = stage.gateway().await;
    // It speaks to the provider first.
    let mut agent = Agent::new(Api::Responses, &stage.provider.base_url(), "");
    agent.refers = true;
    stage
        .provider
        .answer_with(|_| Answer::thinking("Hm.").and_text("Yes."));
    agent.user("Is it so?");
    agent.go_on().await;
    agent.base = gateway.base.clone();
    agent.user("Sure?");
    let asked = agent.body();
    let said = agent.go_on().await;
    assert_eq!(said.header("x-contexture-status"), "not-managed");
    let reason = said.header("x-contexture-reason");
    assert!(
        reason.starts_with("item_reference: ") && reason.contains("`store: false`"),
        "{reason}"
    );
    assert_eq!(stage.provider.requests().last().unwrap().json, asked);
    stage.nothing_was_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_passed_on_can_be_referred_to() {
    let stage = Stage::new(&config("compressor"));
    stage.provider.answer_with(thinks(60));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Responses, &gateway.base, "");
    agent.refers = true;
    agent.user("Run all checks.");
    let result = |round: usize| format!("ok {round} {}", "line of the report; ".repeat(250));
    let mut round = 0;
    loop {
        let said = agent.go_on().await;
        round += 1;
        agent.results(&said, &result(round));
        if said
            .header("x-contexture-compaction")
            .starts_with("compacted")
        {
            break;
        }
    }
    // The provider refuses the compacted request, and gets the client's own.
    stage.provider.script([Answer::fault(Fault::Status(400))]);
    for status in ["failed-open", "managed", "managed"] {
        let said = agent.go_on().await;
        assert_eq!(
            said.header("x-contexture-status"),
            status,
            "{}",
            said.header("x-contexture-reason")
        );
        round += 1;
        agent.results(&said, &result(round));
    }
    stage.nothing_was_refused();
}

/// If the client's own request fits, it gets a chance, and otherwise the provider's first word stands. It is never told
/// that its prompt is too long because something else was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_after_a_compaction_keeps_its_reason() {
    for api in APIS {
        let stage = Stage::new(&config("compressor"));
        stage.provider.set(|options| options.window = Some(24_000));
        stage.provider.answer_with(thinks(60));
        let gateway = stage.gateway().await;
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.user("Run all checks.");
        let refusal = || Answer::text("the account is empty").failing(Fault::Status(400));
        // How large the client's own request is, in windows.
        for (windows, requests) in [(0.6, 2), (1.5, 1)] {
            while agent.body().to_string().len() as f64 / 4.0 < windows * 24_000.0 {
                let said = agent.go_on().await;
                let result = format!("ok {}", "line of the report; ".repeat(250));
                agent.results(&said, &result);
            }
            let before = stage.provider.requests().len();
            stage.provider.script([refusal(), refusal()]);
            let said = agent.send().await;
            assert_eq!(said.status, 400, "{api:?} {windows}: {}", said.raw);
            assert!(said.raw.contains("the account is empty"), "{}", said.raw);
            let sent = stage.provider.requests().len() - before;
            assert_eq!(sent, requests, "{api:?} {windows}");
        }
    }
}
