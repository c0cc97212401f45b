//! The page at `/` and what it asks for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use contexture::session::{KeptContent, Record};
use contexture_provider_simulator::{Answer, Coder, Fault, Request};
// Linked in, so that it can be named.
use contexture_tiered as _;
use serde_json::{Value, json};
use support::agent::{Agent, Api};
use support::{Running, Stage};

const CONFIG: &str =
    "context: {engine: lcm}\nmodel: {context_length: 24000}\ncompression: {protect_last_n: 4}\n";

/// What somebody says who would like the page to do something else.
const HOSTILE: &str = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">";

/// What every call gives.
fn report() -> String {
    "a line of the report; ".repeat(250)
}

/// A session that is compacted, and the prompt tokens of all its answers.
async fn long_session(stage: &Stage, gateway: &Running, session: &str) -> (Agent, u64) {
    stage.provider.set(|options| options.window = Some(24_000));
    let coder = Coder {
        rounds: 16,
        ..Coder::default()
    };
    stage
        .provider
        .answer_with(move |request| coder.answer(request));
    let mut agent = Agent::new(Api::Messages, &gateway.base, session);
    agent.user(HOSTILE);
    let mut prompts = 0;
    loop {
        let said = agent.go_on().await;
        let usage = |key: &str| said.usage[key].as_u64().unwrap_or(0);
        prompts += usage("input_tokens")
            + usage("cache_read_input_tokens")
            + usage("cache_creation_input_tokens");
        if said.calls.is_empty() {
            return (agent, prompts);
        }
        agent.results(&said, &report());
    }
}

async fn get(url: &str) -> (u16, Value) {
    let answer = reqwest::get(url).await.unwrap();
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["content-type"], "application/json");
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_str(&answer.text().await.unwrap()).unwrap(),
    )
}

async fn call(base: &str, session: &str, tool: &str, arguments: Value) -> (u16, Value) {
    let body = json!({"session": session, "tool": tool, "arguments": arguments});
    post(&format!("{base}/contexture/tool"), body).await
}

async fn post(url: &str, body: Value) -> (u16, Value) {
    let request = reqwest::Client::new().post(url);
    let request = request.header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    (
        status,
        serde_json::from_str(&answer.text().await.unwrap()).unwrap(),
    )
}

/// What a turn was is noted once its answer has left.
async fn session(base: &str, id: &str, turns: u64) -> Value {
    loop {
        let (status, told) = get(&format!("{base}/contexture/session?id={id}")).await;
        assert_eq!(status, 200, "{told}");
        if told["totals"]["turns"].as_u64().unwrap() >= turns {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_one_file_that_puts_text_in_as_text() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    let answer = reqwest::get(&gateway.base).await.unwrap();
    assert_eq!(answer.status(), 200);
    let policy = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"),
        "{policy}"
    );
    let page = answer.text().await.unwrap();
    assert_eq!(page.matches("<script").count(), 1);
    for way in [
        "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "src=", "href=",
        "@import", "url(",
    ] {
        assert!(!page.contains(way), "{way}");
    }
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("//www") && !outside.contains("https:"));
    assert!(stage.provider.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_turns_costs_and_compactions_are_told() {
    let stage = Stage::new(CONFIG);
    let gateway = stage.gateway().await;
    let (_, told) = get(&format!("{}/contexture/sessions", gateway.base)).await;
    assert_eq!(told["sessions"], json!([]));
    let (_, prompts) = long_session(&stage, &gateway, "a/b c").await;
    let requests = stage.provider.requests().len() as u64;
    let told = session(&gateway.base, "a%2Fb%20c", requests).await;
    let totals = &told["totals"];
    assert_eq!(totals["turns"], requests);
    assert_eq!(totals["prompt"], prompts, "{totals}");
    let compactions = totals["compactions"].as_u64().unwrap();
    assert!(compactions >= 1, "{totals}");
    assert!(
        totals["without"].as_u64().unwrap() > prompts,
        "nothing was saved: {totals}"
    );
    let cost = |key: &str| totals["cost"][key].as_f64().unwrap();
    assert!(cost("none") > cost("markers") && cost("none") > cost("engine"));
    let turns = told["turns"].as_array().unwrap();
    assert_eq!(turns.len() as u64, requests);
    assert!(turns.iter().all(|turn| turn["window"] == 24_000));
    let with = |turn: &&Value| !turn["compaction"].is_null();
    assert_eq!(turns.iter().filter(with).count() as u64, compactions);
    // What went and what stands in its place.
    let diffs = told["diffs"].as_array().unwrap();
    assert_eq!(diffs.len() as u64, compactions);
    let entries = diffs[0]["entries"].as_array().unwrap();
    let has = |key: &str| entries.iter().any(|entry| !entry[key].is_null());
    assert!(has("before") && has("after") && has("kept"), "{entries:?}");
    // The last one, of what was there before it and no more.
    let last = told["turns"].as_array().unwrap().iter().rev();
    let last = last
        .map(|turn| &turn["compaction"])
        .find(|it| !it.is_null())
        .unwrap();
    let changes = diffs.last().unwrap()["entries"].as_array().unwrap();
    let went = changes
        .iter()
        .filter(|entry| entry["after"].is_null() && !entry["before"].is_null());
    assert!(
        went.count() as u64 <= last["summarised"].as_u64().unwrap() + compactions,
        "{changes:?}"
    );
    // What is too long to be shown whole is a message all the same.
    for part in entries.iter().filter_map(|entry| entry["before"].as_str()) {
        let message: Value = serde_json::from_str(part).unwrap();
        assert!(part.len() <= 4_000 && message["role"].is_string(), "{part}");
    }
    assert!(!told["placed"].as_array().unwrap().is_empty());

    let (_, list) = get(&format!("{}/contexture/sessions", gateway.base)).await;
    let one = &list["sessions"][0];
    assert_eq!(
        (&one["id"], &one["engine"]),
        (&json!("a/b c"), &json!("lcm"))
    );
    assert_eq!(one["turns"], requests);

    // A restart keeps all but the texts.
    gateway.stop().await;
    let gateway = stage.gateway().await;
    let again = session(&gateway.base, "a%2Fb%20c", requests).await;
    assert_eq!(again["turns"], told["turns"]);
    assert_eq!(again["diffs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_tools_search_and_lead_to_the_messages() {
    let stage = Stage::new(CONFIG);
    let gateway = stage.gateway().await;
    long_session(&stage, &gateway, "s").await;
    let base = &gateway.base;
    let (status, told) = get(&format!("{base}/contexture/tools?id=s")).await;
    assert_eq!(status, 200, "{told}");
    let tools = told["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "lcm_grep"));
    // Text that is HTML stays what it was, in an answer that is none.
    let (status, told) = call(base, "s", "lcm_grep", json!({"pattern": "onerror"})).await;
    assert_eq!(status, 200, "{told}");
    let found: Value = serde_json::from_str(told["answer"].as_str().unwrap()).unwrap();
    assert!(found["total"].as_u64().unwrap() >= 1, "{found}");
    let (status, told) = call(base, "s", "lcm_expand", json!({"id": "m1"})).await;
    assert_eq!(status, 200, "{told}");
    let message: Value = serde_json::from_str(told["answer"].as_str().unwrap()).unwrap();
    let raw = message["messages"][0]["message"].to_string();
    assert!(raw.contains("document.title = 'taken'"), "{raw}");

    for (session, tool, arguments, wanted) in [
        ("another", "lcm_grep", json!({"pattern": "x"}), 404),
        ("s", "lcm_nothing", json!({}), 400),
        ("s", "lcm_expand", json!({"id": "m99999"}), 400),
        ("s", "lcm_grep", json!({"unknown": 1}), 400),
    ] {
        let (status, told) = call(base, session, tool, arguments).await;
        assert_eq!(status, wanted, "{told}");
        assert!(!told["error"].as_str().unwrap().is_empty());
    }
    for path in ["session?id=another", "tools?id=another", "nothing"] {
        assert_eq!(get(&format!("{base}/contexture/{path}")).await.0, 404);
    }
    // None of it went to the provider.
    let asked = stage.provider.requests();
    assert!(
        asked
            .iter()
            .all(|request| !request.path.contains("contexture"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_message_is_restored_from_the_page() {
    let stage = Stage::new(
        "context: {engine: tiered, engines: {tiered: {thresholds: {summarizationTrigger: 1.0, keepRecentCount: 4}}}}\n\
         model: {context_length: 24000}\n",
    );
    let gateway = stage.gateway().await;
    let (mut agent, _) = long_session(&stage, &gateway, "s").await;
    let base = &gateway.base;
    let sent = stage.provider.requests();
    let told = session(base, "s", sent.len() as u64).await;
    let placed = told["placed"].as_array().unwrap().iter();
    let compacted: Vec<&Value> = placed
        .filter(|one| one["content"].to_string().contains("[COMPACTED: "))
        .collect();
    // By its id, and by what stands in its place.
    let id = |one: &Value| format!("m{}", one["id"]);
    let shown = compacted[1]["content"].as_str().unwrap().to_owned();
    for (one, wanted) in [(compacted[0], id(compacted[0])), (compacted[1], shown)] {
        let (status, told) = call(base, "s", "restore", json!({"message": wanted})).await;
        assert_eq!(status, 200, "{told}");
        let answer: Value = serde_json::from_str(told["answer"].as_str().unwrap()).unwrap();
        assert_eq!(answer["id"], id(one));
        assert_eq!(answer["content"], report());
    }
    for unknown in ["m99999", "nothing of this"] {
        let (status, told) = call(base, "s", "restore", json!({"message": unknown})).await;
        let error = told["error"].as_str().unwrap();
        assert!(status == 400 && error.contains(unknown), "{status} {told}");
    }
    // Both stand in the next request again, and no other does.
    agent.ask("And now?", "").await;
    let shown = |request: &Request| request.json.to_string().matches(&report()).count();
    let next = stage.provider.requests().pop().unwrap();
    assert_eq!(shown(&next), shown(sent.last().unwrap()) + 2);
    stage.nothing_was_refused();
}

/// The overview, once it has this many turns.
async fn overview(base: &str, turns: u64) -> Value {
    loop {
        let (status, told) = get(&format!("{base}/contexture/overview")).await;
        assert_eq!(status, 200, "{told}");
        if told["totals"]["turns"].as_u64().unwrap() >= turns {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The row of a session in the list.
async fn row(base: &str, id: &str) -> Option<Value> {
    let (_, list) = get(&format!("{base}/contexture/sessions")).await;
    let rows = list["sessions"].as_array().unwrap().iter();
    rows.into_iter().find(|row| row["id"] == id).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_sums_all_sessions_up_and_names_what_failed() {
    let stage = Stage::new(
        "context: {engine: compressor}\nmodel: {context_length: 64000}\n\
         prices: {models: {\"qwen3*\": {input: 2, cached: 1, output: 10}}}\n",
    );
    let gateway = stage.gateway().await;
    let base = &gateway.base;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    for (session, model) in [("a", "qwen3-coder"), ("b", "gpt-4o"), ("c", "who-knows")] {
        let mut agent = Agent::new(Api::Chat, base, session);
        agent.model = model.to_owned();
        agent
            .headers
            .push(("user-agent".to_owned(), "codex/1".to_owned()));
        agent.ask("Is it cold?", "").await;
    }
    let told = overview(base, 3).await;
    let totals = &told["totals"];
    let (_, list) = get(&format!("{base}/contexture/sessions")).await;
    let rows = list["sessions"].as_array().unwrap();
    for key in [
        "turns", "prompt", "output", "without", "compactions", "cache_read",
    ] {
        let sum: u64 = rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
        assert_eq!(totals[key], sum, "{key}");
        let hours = told["hours"].as_array().unwrap().iter();
        let sum: u64 = hours.map(|hour| hour[key].as_u64().unwrap()).sum();
        assert_eq!(totals[key], sum, "{key} by hours");
    }
    // The configured price, the list price, and none.
    let cost = |row: &Value| {
        let part = |key: &str| row["cost"][key].as_f64();
        Some(part("engine")? + part("output")?)
    };
    let price = |row: &Value, input: f64, cached: f64, output: f64| {
        let tokens = |key: &str| row[key].as_f64().unwrap();
        let plain = tokens("prompt") - tokens("cache_read");
        (plain * input + tokens("cache_read") * cached + tokens("output") * output) / 1e6
    };
    let by_id = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap();
    for (id, wanted) in [
        ("a", price(by_id("a"), 2.0, 1.0, 10.0)),
        ("b", price(by_id("b"), 2.5, 1.25, 10.0)),
    ] {
        let cost = cost(by_id(id)).unwrap();
        assert!(
            cost > 0.0 && (cost - wanted).abs() < 1e-9,
            "{id}: {cost} {wanted}"
        );
    }
    assert_eq!(cost(by_id("c")), None);
    assert_eq!(
        (&totals["unpriced"], &told["unpriced_models"]),
        (&json!(1), &json!(["who-knows"]))
    );
    assert_eq!(
        told["prices_as_of"].as_str().unwrap().len(),
        "2026-11-27".len()
    );
    assert_eq!(
        (&told["sessions"], &told["engine"]),
        (&json!(3), &json!("compressor"))
    );
    assert_eq!(
        (&told["problems"], &told["failures"]),
        (&json!([]), &json!([]))
    );

    // A refusal and a stream that breaks off.
    stage.provider.script([
        Answer::fault(Fault::Status(429)),
        Answer::fault(Fault::CloseAfter(200)),
    ]);
    let mut agent = Agent::new(Api::Chat, base, "b");
    agent.user("And now?");
    assert_eq!(agent.send().await.status, 429);
    assert!(agent.send().await.broken);
    let failures = loop {
        let (_, told) = get(&format!("{base}/contexture/overview")).await;
        if told["failures"].as_array().unwrap().len() == 2 {
            break told["failures"].clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let (broken, refused) = (&failures[0], &failures[1]);
    assert_eq!(
        (&refused["status"], &refused["endpoint"]),
        (&json!(429), &json!("chat"))
    );
    let error = refused["error"].as_str().unwrap();
    assert!(error.starts_with("Rate limit"), "{error}");
    assert_eq!(broken["status"], 200);
    assert!(
        broken["error"].as_str().unwrap().contains("broke off"),
        "{broken}"
    );
    assert!(
        failures
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["ms"].as_f64().unwrap() > 0.0)
    );
    // Each session has its own.
    let session = refused["session"].as_str().unwrap();
    let (_, own) = get(&format!("{base}/contexture/session?id={session}")).await;
    let own = own["failures"].as_array().unwrap();
    assert!(!own.is_empty() && own.iter().all(|one| one["session"] == session));
    let (_, other) = get(&format!("{base}/contexture/session?id=a")).await;
    assert_eq!(other["failures"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_known_by_its_first_words_and_can_be_renamed() {
    let stage = Stage::new("context: {engine: lcm}\nmodel: {context_length: 64000}\n");
    let gateway = stage.gateway().await;
    let base = gateway.base.clone();
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &base, "s");
    agent
        .headers
        .push(("user-agent".to_owned(), "claude-cli/2".to_owned()));
    agent.system = "<env>\nWorking directory: /home/ada/shop\n</env>".to_owned();
    agent
        .ask(
            "<system-reminder>Be brief.</system-reminder> Fix the\nlogin page.",
            "",
        )
        .await;
    session(&base, "s", 1).await;
    let one = row(&base, "s").await.unwrap();
    for (key, wanted) in [
        ("title", json!("Fix the login page.")),
        ("project", json!("/home/ada/shop")),
        ("agent", json!("claude-code")),
        ("model", json!("claude-sonnet-4-5")),
        ("is_renamed", json!(false)),
    ] {
        assert_eq!(one[key], wanted, "{key}");
    }
    let told = session(&base, "s", 1).await;
    let turn = &told["turns"][0];
    let ms = |key: &str| turn[key].as_f64().unwrap();
    assert!(
        0.0 < ms("held_ms") && ms("held_ms") <= ms("first_ms") && ms("first_ms") <= ms("total_ms"),
        "{turn}"
    );
    // The size from which the engine compacts: half of the window.
    assert_eq!(turn["due_from"], 32_000, "{turn}");

    let url = format!("{base}/contexture/rename");
    let rename = async |session: &str, title: &str| {
        post(&url, json!({"session": session, "title": title})).await
    };
    assert_eq!(rename("s", "  The login\n page ").await, (200, json!({})));
    let one = row(&base, "s").await.unwrap();
    assert_eq!(
        (&one["title"], &one["is_renamed"]),
        (&json!("The login page"), &json!(true))
    );
    assert_eq!(rename("another", "x").await.0, 404);
    assert_eq!(rename("s", &"x".repeat(201)).await.0, 400);
    assert_eq!(post(&url, json!({"session": "s"})).await.0, 400);
    // A form of another site could be sent without a preflight, so only JSON is taken.
    let form = reqwest::Client::new()
        .post(&url)
        .header("content-type", "text/plain");
    let form = form
        .body(r#"{"session": "s", "title": "x"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(form.status(), 415);
    gateway.stop().await;
    let gateway = stage.gateway().await;
    let one = row(&gateway.base, "s").await.unwrap();
    assert_eq!(one["title"], "The login page");
    let url = format!("{}/contexture/rename", gateway.base);
    post(&url, json!({"session": "s", "title": " "})).await;
    let one = row(&gateway.base, "s").await.unwrap();
    assert_eq!(
        (&one["title"], &one["is_renamed"]),
        (&json!("Fix the login page."), &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_words_are_not_stored_if_no_text_is() {
    let stage = Stage::new("context: {engine: compressor}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.ask("Fix the marmalade.", "").await;
    session(&gateway.base, "s", 1).await;
    assert_eq!(
        row(&gateway.base, "s").await.unwrap()["title"],
        "Fix the marmalade."
    );
    let (status, told) = get(&format!("{}/contexture/export?id=s", gateway.base)).await;
    let error = told["error"].as_str().unwrap();
    assert!(
        status == 404 && error.contains("transcript.mode"),
        "{status} {error}"
    );
    gateway.stop().await;
    for file in std::fs::read_dir(stage.home.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = String::from_utf8_lossy(&bytes).contains("marmalade");
            assert!(!found, "{}", path.display());
        }
    }
    let gateway = stage.gateway().await;
    assert_eq!(row(&gateway.base, "s").await.unwrap()["title"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_exported_and_deleted() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    let base = &gateway.base;
    stage.provider.answer_with(|_| Answer::text("Yes, it is."));
    let mut agents = Vec::new();
    for session in ["other", "s"] {
        let mut agent = Agent::new(Api::Messages, base, session);
        agent.ask("Is it cold?", "").await;
        self::session(base, session, 1).await;
        agents.push(agent);
    }
    let mut agent = agents.pop().unwrap();
    let exported = reqwest::get(format!("{base}/contexture/export?id=s"))
        .await
        .unwrap();
    assert_eq!(exported.headers()["content-type"], "application/x-ndjson");
    assert_eq!(exported.headers()["x-content-type-options"], "nosniff");
    let lines = exported.text().await.unwrap();
    let lines: Vec<Value> = (lines.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let roles: Vec<&str> = lines
        .iter()
        .map(|line| line["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert!(lines[1].to_string().contains("Yes, it is."));
    assert_eq!(
        get(&format!("{base}/contexture/export?id=none")).await.0,
        404
    );

    let url = format!("{base}/contexture/delete");
    let delete = async |session: &str| post(&url, json!({"session": session})).await;
    assert_eq!(delete("none").await.0, 404);
    // While it is answered, it stays.
    stage
        .provider
        .script([Answer::fault(Fault::HangAfter(200))]);
    agent.user("Is it warm?");
    let asking = tokio::spawn(async move { agent.send().await });
    while stage.provider.requests().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (status, told) = delete("s").await;
    let hanging = row(base, "s").await;
    assert!(status == 409 && hanging.is_some(), "{status} {told}");
    asking.abort();
    let _ = asking.await;
    let deleted = loop {
        let deleted = delete("s").await;
        if deleted.0 != 409 {
            break deleted;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(deleted, (200, json!({})));
    assert_eq!(row(base, "s").await, None);
    assert!(row(base, "other").await.is_some());
    for path in ["session", "tools", "export"] {
        assert_eq!(
            get(&format!("{base}/contexture/{path}?id=s")).await.0,
            404,
            "{path}"
        );
    }
    assert_eq!(overview(base, 0).await["sessions"], 1);
    // The next conversation of that name has nothing of the deleted one.
    let mut agent = Agent::new(Api::Messages, base, "s");
    let said = agent.ask("A new one?", "").await;
    let id = said[0].header("x-contexture-session").replace('+', "%2B");
    let told = session(base, &id, 1).await;
    assert_eq!(
        (&told["totals"]["turns"], &told["title"]),
        (&json!(1), &json!("A new one?"))
    );
    gateway.stop().await;
    let index = stage.home.path().join("engines/lcm");
    let bytes = std::fs::read(index.join(contexture_lcm::store::FILE_NAME)).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("Is it warm"));
}

/// The answer to a request of the page with a token.
async fn with_token(url: &str, token: &str, body: Option<Value>) -> (u16, Value) {
    let http = reqwest::Client::new();
    let request = match &body {
        Some(body) => http.post(url).body(body.to_string()),
        None => http.get(url),
    };
    let request = request.header("content-type", "application/json");
    let answer = request.header("x-contexture-token", token).send().await;
    let answer = answer.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_and_changes_its_own_sessions_alone() {
    // Variables that cargo sets for tests.
    let (alice, bob) = (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"));
    let stage = Stage::new(
        "context: {engine: lcm}\ngateway: {tokens: {alice: CARGO_PKG_VERSION, bob: CARGO_PKG_DESCRIPTION}}\n",
    );
    let gateway = stage.gateway().await;
    let base = &gateway.base;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, base, "s");
    agent
        .headers
        .push(("x-contexture-token".to_owned(), alice.to_owned()));
    agent.ask("Is it cold?", "").await;
    stage.provider.script([Answer::fault(Fault::Status(529))]);
    agent.user("Is it warm?");
    assert_eq!(agent.send().await.status, 529);

    let overview = format!("{base}/contexture/overview");
    let own = loop {
        let (status, told) = with_token(&overview, alice, None).await;
        assert_eq!(status, 200, "{told}");
        if told["totals"]["turns"] == 1 && told["failures"][0].is_object() {
            break told;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(
        (&own["sessions"], &own["failures"][0]["status"]),
        (&json!(1), &json!(529))
    );
    let (_, others) = with_token(&overview, bob, None).await;
    let nothing = (&json!(0), &json!(0), &json!([]), &json!([]));
    let told = (
        &others["sessions"],
        &others["totals"]["turns"],
        &others["failures"],
        &others["hours"],
    );
    assert_eq!(told, nothing);
    let id = "alice%2Fs";
    let requests = [
        ("GET", format!("session?id={id}"), None),
        ("GET", format!("tools?id={id}"), None),
        ("GET", format!("export?id={id}"), None),
        (
            "POST",
            "rename".to_owned(),
            Some(json!({"session": "alice/s", "title": "Mine"})),
        ),
        (
            "POST",
            "pin".to_owned(),
            Some(json!({"session": "alice/s", "words": "The port is 8123."})),
        ),
        (
            "POST",
            "delete".to_owned(),
            Some(json!({"session": "alice/s"})),
        ),
    ];
    for (token, wanted) in [("", 401), ("wrong", 401), (bob, 404), (alice, 200)] {
        for (method, path, body) in &requests {
            let url = format!("{base}/contexture/{path}");
            let (status, told) = with_token(&url, token, body.clone()).await;
            assert_eq!(status, wanted, "{token} {method} {path}: {told}");
        }
        let (status, _) = with_token(&overview, token, None).await;
        assert_eq!(status == 401, wanted == 401);
    }
    let (_, own) = with_token(&overview, alice, None).await;
    assert_eq!(own["sessions"], 0);
}

/// Anybody may name a session like one of somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_not_managed_is_seen_by_its_sender_and_the_owner() {
    let (alice, bob) = (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"));
    let stage =
        Stage::new("gateway: {tokens: {alice: CARGO_PKG_VERSION, bob: CARGO_PKG_DESCRIPTION}}\n");
    let gateway = stage.gateway().await;
    let base = &gateway.base;
    let owner = std::fs::read_to_string(stage.home.path().join("gateway.token")).unwrap();
    let http = reqwest::Client::new();
    let names = ["x", "alice/x", "bob/x", "alice/", "/x", "alice"];
    for token in [alice, bob, owner.trim()] {
        for name in names {
            // One is not managed, and one is refused.
            for request in [
                http.get(format!("{base}/v1/models")),
                http.post(format!("{base}/v1/chat/completions")),
            ] {
                let request = request.header("x-contexture-token", token);
                let answer = request.header("x-contexture-session", name).send().await;
                let answer = answer.unwrap();
                assert_ne!(answer.headers()["x-contexture-status"], "managed");
            }
        }
    }
    let sent = 2 * names.len() as u64;
    for (token, wanted) in [(alice, sent), (bob, sent), (owner.trim(), 3 * sent)] {
        let url = format!("{base}/contexture/not-managed");
        let (_, told) = with_token(&url, token, None).await;
        let rows = told["rows"].as_array().unwrap();
        let requests: u64 = rows
            .iter()
            .map(|row| row["requests"].as_u64().unwrap())
            .sum();
        assert_eq!(requests, wanted, "{told}");
        assert!(rows.iter().all(|row| row.get("tenant").is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_sessions_is_searched_sorted_and_shown_in_parts() {
    let stage = Stage::new("context: {engine: compressor}\nmodel: {context_length: 64000}\n");
    let gateway = stage.gateway().await;
    let base = &gateway.base;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    for (session, program, words, turns) in [
        ("a", "codex/1", "Fix the login page.", 1),
        ("b/x c", "claude-cli/2", "Is it cold & wet, Zoé?", 3),
        ("c", "codex/1", "Write a haiku.", 2),
    ] {
        let mut agent = Agent::new(Api::Messages, base, session);
        let header = ("user-agent".to_owned(), program.to_owned());
        agent.headers.push(header);
        for _ in 0..turns {
            agent.ask(words, "").await;
        }
        // The next one is later.
        self::session(base, &session.replace(' ', "%20"), turns).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let list = async |query: &str| {
        let (status, told) = get(&format!("{base}/contexture/sessions{query}")).await;
        assert_eq!(status, 200, "{told}");
        let rows = told["sessions"].as_array().unwrap().iter();
        let ids: Vec<String> = rows
            .map(|row| row["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(told["all"], 3, "{query}");
        assert_eq!(told["agents"], json!(["claude-code", "codex"]), "{query}");
        (ids.join(", "), told["matching"].as_u64().unwrap())
    };
    for (query, wanted, matching) in [
        ("", "c, b/x c, a", 3),
        ("?limit=2", "c, b/x c", 3),
        ("?limit=0", "", 3),
        ("?limit=&search=&agent=", "c, b/x c, a", 3),
        ("?sort=turns", "b/x c, c, a", 3),
        ("?sort=turns&ascending=true&limit=1", "a", 3),
        ("?sort=title&ascending=true", "a, b/x c, c", 3),
        ("?sort=agent&ascending=true", "b/x c, a, c", 3),
        ("?sort=nothing", "c, b/x c, a", 3),
        ("?agent=codex", "c, a", 2),
        ("?agent=codex&limit=1", "c", 2),
        ("?search=LOGIN%20codex", "a", 1),
        ("?search=wet%2C%20%26", "b/x c", 1),
        ("?search=zo%C3%89", "b/x c", 1),
        ("?search=login&agent=claude-code", "", 0),
    ] {
        assert_eq!(list(query).await, (wanted.to_owned(), matching), "{query}");
    }
    // The sums are over all of them.
    let told = overview(base, 6).await;
    assert_eq!(
        (&told["sessions"], &told["totals"]["turns"]),
        (&json!(3), &json!(6))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_did_not_change_is_not_sent_again() {
    let stage = Stage::new("context: {engine: compressor}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.ask("Is it cold?", "").await;
    session(&gateway.base, "s", 1).await;
    let http = reqwest::Client::new();
    for path in [
        "sessions?limit=200", "overview", "not-managed", "session?id=s",
    ] {
        let url = format!("{}/contexture/{path}", gateway.base);
        let known = async |tag: &str| {
            let asking = http.get(&url).header("if-none-match", tag);
            let answer = asking.send().await.unwrap();
            let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
            (answer.status().as_u16(), tag, answer.text().await.unwrap())
        };
        let (status, tag, text) = known("\"0\"").await;
        assert!(
            status == 200 && text.starts_with('{'),
            "{path}: {status} {text}"
        );
        assert_eq!(known(&tag).await, (304, tag, String::new()), "{path}");
    }
    // An error is always told.
    let url = format!("{}/contexture/session?id=none", gateway.base);
    let (_, told) = get(&url).await;
    let tag = http.get(&url).send().await.unwrap().headers()["etag"].clone();
    let again = http
        .get(&url)
        .header("if-none-match", tag)
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), 404);
    assert_eq!(again.json::<Value>().await.unwrap(), told);
}

/// Each open page asks for three lists every few seconds.
#[tokio::test(flavor = "multi_thread")]
async fn many_viewers_of_a_large_store_cost_little_more_than_one() {
    const VIEWERS: u32 = 40;
    let stage = Stage::new("");
    let record = Record::open(stage.home.path()).unwrap();
    let text = json!({"model": "m".repeat(200_000)}).to_string();
    for session in 0..400 {
        let texts = [("turns", text.as_str()), ("tenant", "alice")];
        (record.keep(&format!("s{session}"), KeptContent::Exact, &texts)).unwrap();
    }
    let gateway = stage.gateway().await;
    let http = reqwest::Client::new();
    let ask = |path: &str| {
        let asking = http.get(format!("{}/contexture/{path}", gateway.base));
        async move { asking.send().await.unwrap().text().await.unwrap() }
    };
    let began = Instant::now();
    ask("sessions").await;
    let one = began.elapsed();
    let began = Instant::now();
    let paths = ["sessions", "overview", "not-managed", "export?id=none"];
    let viewers = (0..VIEWERS).flat_map(|_| paths.map(|path| tokio::spawn(ask(path))));
    for viewer in viewers.collect::<Vec<_>>() {
        viewer.await.unwrap();
    }
    let all = began.elapsed();
    assert!(all < one * VIEWERS / 8, "one: {one:?}, all: {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn words_are_pinned_on_the_page_and_by_headers() {
    const PAGE: &str = "The port is 8123.";
    const HEADER: &str = "端口是 8123";
    let stage =
        Stage::new("compression: {timing: threshold, threshold: 3000, protect_last_n: 2}\n");
    let gateway = stage.gateway().await;
    let base = gateway.base.clone();
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let mut agent = Agent::new(Api::Messages, &base, "s");
    agent
        .headers
        .push(("x-contexture-pin".to_owned(), HEADER.to_owned()));
    agent.ask("Begin.", "").await;
    session(&base, "s", 1).await;
    let url = format!("{base}/contexture/pin");
    let pin = async |session: &str, words: &str, ends: bool| {
        let request = json!({"session": session, "words": words, "ends": ends});
        post(&url, request).await.0
    };
    assert_eq!(pin("s", PAGE, false).await, 200);
    assert_eq!(pin("s", "Ended.", false).await, 200);
    assert_eq!(pin("s", "Ended.", true).await, 200);
    assert_eq!(pin("s", "/pin x", false).await, 400);
    assert_eq!(pin("another", PAGE, false).await, 404);
    // A form of another site could be sent without a preflight, so only JSON is taken.
    let form = reqwest::Client::new()
        .post(&url)
        .header("content-type", "text/plain")
        .body(r#"{"session": "s", "words": "x"}"#);
    let refused = form.send().await.unwrap().status();
    assert!(refused.is_client_error(), "{refused}");
    for turn in 0..14 {
        let long = "a line of a log that says nothing\n".repeat(60);
        agent.ask(&format!("Part {turn}:\n{long}"), "").await;
    }
    let last = stage.provider.requests().pop().unwrap().json.to_string();
    let section = "by the user. It still holds, word for word:";
    let (_, pinned) = last.split_once(section).expect("a section of pins");
    for words in [PAGE, HEADER] {
        assert!(pinned.contains(&format!("- {words}")), "{words}: {last}");
    }
    assert!(!last.contains("- Ended."), "{last}");
    assert!(
        stage
            .provider
            .requests()
            .iter()
            .all(|request| !request.json.to_string().contains("x-contexture"))
    );
    stage.nothing_was_refused();
}
