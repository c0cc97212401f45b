//! The page at `/` and what it asks for.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_provider_simulator::{Coder, Request};
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
    let request = reqwest::Client::new().post(format!("{base}/contexture/tool"));
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
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "src=",
        "href=",
        "@import",
        "url(",
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
