//! Which requests are of one conversation, as real clients send them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_provider_simulator::Answer;
use serde_json::{Value, json};
use support::Stage;
use support::agent::{Agent, Api, Said};

const UUID: &str = "0f2c9c3e-7a51-4d0e-9f53-2f6a2f3f9b11";

async fn stage() -> (Stage, support::Running) {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    stage
        .provider
        .answer_with(|request| Answer::text(format!("Yes, {}.", request.number)));
    (stage, gateway)
}

fn session(said: &Said) -> String {
    said.header("x-contexture-session").to_owned()
}

fn with_header(mut agent: Agent, name: &str, value: &str) -> Agent {
    agent.headers.push((name.to_owned(), value.to_owned()));
    agent
}

/// Says two things, and answers the session that both belong to.
async fn session_of(mut agent: Agent) -> String {
    agent.user("Hello");
    let first = session(&agent.go_on().await);
    agent.user("More");
    assert_eq!(session(&agent.go_on().await), first);
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_name_their_sessions_in_many_ways() {
    let (_stage, gateway) = stage().await;
    let new = |api| Agent::new(api, &gateway.base, "");
    let claude = with_header(new(Api::Messages), "x-claude-code-session-id", UUID);
    assert_eq!(session_of(claude).await, UUID);
    let mut metadata = new(Api::Messages);
    metadata.more = json!({"metadata": {"user_id": "user_1_account_2_session_aaaa"}});
    assert_eq!(session_of(metadata).await, "aaaa");
    let mut metadata = new(Api::Messages);
    let user = json!({"device_id": "d", "session_id": "bbbb"}).to_string();
    metadata.more = json!({"metadata": {"user_id": user}});
    assert_eq!(session_of(metadata).await, "bbbb");
    assert_eq!(
        session_of(with_header(new(Api::Responses), "session-id", "cccc")).await,
        "cccc"
    );
    assert_eq!(
        session_of(with_header(new(Api::Responses), "session_id", "dddd")).await,
        "dddd"
    );
    assert_eq!(
        session_of(with_header(new(Api::Chat), "x-session-affinity", "eeee")).await,
        "eeee"
    );
    let mut keyed = new(Api::Responses);
    keyed.more = json!({"prompt_cache_key": "ffff"});
    assert_eq!(session_of(keyed).await, "ffff");
    let agent = with_header(new(Api::Messages), "x-claude-code-session-id", UUID);
    let agent = with_header(agent, "x-claude-code-agent-id", "a1");
    assert_eq!(session_of(agent).await, format!("{UUID}/a1"));
}

/// A name of control characters alone counts as none, in each place that may hold one, so the next place is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_a_visible_character_is_no_name() {
    let (_stage, gateway) = stage().await;
    let new = |api, more: Value| {
        let mut agent = Agent::new(api, &gateway.base, "");
        agent.more = more;
        with_header(agent, "x-claude-code-agent-id", "a1")
    };
    for blank in ["\u{1}", "\u{7f}\t", " \u{85} "] {
        let user = json!({"session_id": blank}).to_string();
        let metadata = json!({"metadata": {"user_id": user}});
        let nameless = session_of(new(Api::Messages, metadata.clone())).await;
        assert!(nameless.starts_with("h-"), "{blank:?}: {nameless}");
        let keyed = json!({"prompt_cache_key": blank});
        let nameless = session_of(new(Api::Responses, keyed)).await;
        assert!(nameless.starts_with("h-"), "{blank:?}: {nameless}");
        let name = format!("n{}", blank.len());
        let named = with_header(new(Api::Messages, metadata), "session-id", &name);
        assert_eq!(session_of(named).await, format!("{name}/a1"));
    }
}

/// Two subagents with one system prompt and one beginning, under their agent's session id.
#[tokio::test(flavor = "multi_thread")]
async fn subagents_with_one_prefix_are_two_conversations() {
    let (stage, gateway) = stage().await;
    let new = |agent: &str| {
        let new = Agent::new(Api::Messages, &gateway.base, "");
        let new = with_header(new, "x-claude-code-session-id", UUID);
        with_header(new, "x-claude-code-agent-id", agent)
    };
    let (mut one, mut two) = (new("a1"), new("a2"));
    for number in 0..4 {
        one.user(&format!("Step {number}"));
        two.user(&format!("Step {number}"));
        let (said, other) = (one.go_on().await, two.go_on().await);
        assert_ne!(session(&said), session(&other));
    }
    // Without ids of their own, another system prompt tells a subagent.
    let mut main = with_header(
        Agent::new(Api::Messages, &gateway.base, ""),
        "x-claude-code-session-id",
        "m",
    );
    let mut sub = main.clone();
    sub.system = "You explore.".to_owned();
    main.user("Fix it.");
    sub.user("Find it.");
    for _ in 0..3 {
        assert_ne!(session(&main.go_on().await), session(&sub.go_on().await));
        main.user("On.");
        sub.user("On.");
    }
    stage.nothing_was_refused();
}

/// All of them show the whole session. Whoever comes second shows it no more, and is looked at again.
#[tokio::test(flavor = "multi_thread")]
async fn requests_at_the_same_time_are_managed_whoever_is_first() {
    let (stage, gateway) = stage().await;
    for (number, name) in ["", UUID].into_iter().enumerate() {
        let mut agent = Agent::new(Api::Messages, &gateway.base, "");
        if !name.is_empty() {
            agent = with_header(agent, "x-claude-code-session-id", name);
        }
        agent.user(&format!("Step {number}"));
        agent.go_on().await;
        let together = (0..16).map(|branch| {
            let mut agent = agent.clone();
            agent.user(&format!("Branch {branch}"));
            async move { agent.go_on().await.header("x-contexture-status").to_owned() }
        });
        let statuses = futures_util::future::join_all(together).await;
        assert!(
            statuses.iter().all(|status| status == "managed"),
            "{statuses:?}"
        );
    }
    stage.nothing_was_refused();
}

/// Hermes and aider send no id at all.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_name_the_history_decides_also_where_two_begin_alike() {
    for api in support::agent::APIS {
        let (stage, gateway) = stage().await;
        let mut one = Agent::new(api, &gateway.base, "");
        let mut two = Agent::new(api, &gateway.base, "");
        let (mut ones, mut twos) = (Vec::new(), Vec::new());
        for number in 0..5 {
            one.user(&format!("Step {number}"));
            two.user(&format!("Step {number}"));
            ones.push(session(&one.go_on().await));
            twos.push(session(&two.go_on().await));
        }
        // The same request at first; parted ever since.
        assert!(ones.iter().all(|session| *session == ones[0]), "{ones:?}");
        assert!(
            twos[1..].iter().all(|session| *session == twos[1]),
            "{twos:?}"
        );
        assert_ne!(ones[0], twos[1]);
        // A third one that begins like both.
        let mut three = Agent::new(api, &gateway.base, "");
        three.user("Step 0");
        let third = session(&three.go_on().await);
        assert!(third != ones[0] && third != twos[1], "{third}");
        // A restart, and an early message in another form.
        gateway.stop().await;
        let gateway = stage.gateway().await;
        one.base = gateway.base.clone();
        one.user("Step 5");
        assert_eq!(session(&one.go_on().await), ones[0]);
        one.history[0] = api.user("Step 0, shortened");
        one.user("Step 6");
        one.send().await;
        stage.nothing_was_refused();
    }
}

/// The marker on the last block moves, and where it leaves, a list of one text becomes a string.
#[tokio::test(flavor = "multi_thread")]
async fn a_moving_marker_is_no_other_message() {
    let (stage, gateway) = stage().await;
    let mut agent = with_header(
        Agent::new(Api::Messages, &gateway.base, ""),
        "x-claude-code-session-id",
        UUID,
    );
    for number in 0..4 {
        let marked = json!({"role": "user", "content": [
            {"type": "text", "text": format!("Step {number}"), "cache_control": {"type": "ephemeral"}}]});
        agent.history.push(marked);
        let said = agent.go_on().await;
        assert_eq!(session(&said), UUID);
        let last = agent.history.len() - 2;
        agent.history[last] = json!({"role": "user", "content": format!("Step {number}")});
    }
    stage.nothing_was_refused();
}

/// What a model writes to sum a conversation up.
fn summary() -> String {
    let line = |number: u64| {
        let sum = number * number * 7919 + 31;
        format!(
            "   - src/module_{sum}.rs: the test of step {number} expected {sum}, and passes now"
        )
    };
    let lines: Vec<String> = (1..9).map(line).collect();
    format!(
        "<analysis>\nFirst the test.\n</analysis>\n\n<summary>\n1. Primary Request and Intent:\n{}\n</summary>",
        lines.join("\n")
    )
}

/// How Claude Code begins anew with it: in other words before and after it, without the analysis and the tags.
fn continued(summary: &str) -> Value {
    let (_, text) = summary.split_once("<summary>").unwrap_or(("", summary));
    let text = text.trim_end_matches("</summary>").trim();
    user(&format!(
        "This session is being continued from a previous conversation that ran out of context. The summary below covers \
         the earlier portion of the conversation.\n\nSummary:\n{text}\n\nContinue the conversation from where it left off."
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn side_calls_pass_untouched_and_are_never_part_of_the_conversation() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    stage
        .provider
        .answer_with(|request| match request.last_text().as_str() {
            text if text.contains("create a detailed summary") => Answer::text(summary()),
            _ => Answer::text("Yes."),
        });
    let mut agent = with_header(
        Agent::new(Api::Messages, &gateway.base, ""),
        "x-claude-code-session-id",
        UUID,
    );
    agent.user("Fix the test.");
    agent.go_on().await;
    let mut title = agent.clone();
    title.has_tool = false;
    title.system = "Write a title of three words.".to_owned();
    title.history = vec![json!({"role": "user", "content": "Fix the test."})];
    let mut quota = agent.clone();
    quota.history = vec![json!({"role": "user", "content": "quota"})];
    quota.more = json!({"max_tokens": 1});
    let mut compacting = agent.clone();
    compacting.user("Your task is to create a detailed summary of the conversation so far, paying close attention to the user's explicit requests.");
    for side in [title, quota, compacting] {
        let body = side.body();
        let said = side.send().await;
        assert_eq!(said.header("x-contexture-status"), "side-call");
        assert!(
            said.header("x-contexture-reason")
                .starts_with("side call: ")
        );
        assert_eq!(
            stage.provider.requests().pop().unwrap().body,
            body.to_string().as_bytes()
        );
    }
    // Its own summary begins the conversation anew, in the same session, and the engine still has what was said.
    agent.history = vec![continued(&summary())];
    let said = agent.go_on().await;
    assert_eq!(session(&said), UUID);
    stage.provider.script([
        Answer::call("lcm_grep", json!({"pattern": "Fix the test"})),
        Answer::text("Found."),
    ]);
    agent.user("What did I say at first?");
    assert_eq!(agent.go_on().await.text, "Found.");
    let asked = stage.provider.requests().pop().unwrap();
    assert!(
        asked.last_text().contains("Fix the test"),
        "{}",
        asked.last_text()
    );
    assert!(!asked.last_text().contains("quota"));
    stage.nothing_was_refused();
}

const ORDER: &str = "You are performing a CONTEXT CHECKPOINT COMPACTION. Be brief.";

/// The requests for a summary that clients make of this agent's history, with what each changes in it.
fn summary_requests(agent: &Agent) -> Vec<(&'static str, Agent)> {
    let mut plain = agent.clone();
    plain.user(ORDER);
    let mut requests = vec![("nothing", plain.clone())];
    // Claude Code leaves the last answer out, and writes the order into the message before it.
    let mut joined = agent.clone();
    let is_result = |item: &Value| item.to_string().contains("That is enough.");
    let results = joined.history.iter().rposition(is_result).unwrap();
    joined.history.truncate(results + 1);
    let last = joined.history.last_mut().unwrap();
    match agent.api {
        Api::Messages => {
            let text = json!({"type": "text", "text": ORDER});
            last["content"].as_array_mut().unwrap().push(text);
        }
        Api::Gemini => last["parts"]
            .as_array_mut()
            .unwrap()
            .push(json!({"text": ORDER})),
        Api::Chat | Api::Responses => joined.user(ORDER),
    }
    requests.push(("the last message", joined.clone()));
    if agent.api == Api::Messages {
        // It also moves its cache markers with every request.
        let at = joined.history.len() - 2;
        joined.history[at]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        requests.push(("a marker", joined));
        let is_said = |block: &Value| block["type"] != "thinking";
        for message in &mut plain.history {
            if let Some(blocks) = message["content"].as_array_mut() {
                blocks.retain(is_said);
            }
        }
        requests.push(("thinking", plain));
        let mut reminded = agent.clone();
        reminded.user(ORDER);
        let blocks = reminded.history[2]["content"].as_array_mut();
        blocks.unwrap().pop();
        requests.push(("a reminder", reminded));
    }
    if agent.api != Api::Gemini {
        let mut instructed = agent.clone();
        instructed.user(ORDER);
        let text = "You may use a shell.";
        (instructed.history).push(json!({"role": "system", "content": text}));
        requests.push(("instructions after it", instructed));
    }
    if agent.api == Api::Responses {
        let mut trigger = agent.clone();
        trigger.history.push(json!({"type": "compaction_trigger"}));
        requests.push(("a trigger", trigger));
    }
    requests
}

/// The agent's own history has long outgrown the window then. Also the engine's tools are those of the session, because
/// the provider has them in its cache.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_of_a_compacted_session_is_made_of_its_window() {
    for api in support::agent::APIS {
        let stage = Stage::new("context: {engine: lcm}\nmodel: {context_length: 12000}\n");
        let gateway = stage.gateway().await;
        (stage.provider).answer_with(|request| match request.last_text().contains("enough") {
            true => Answer::thinking("That is all.").and_text("Yes."),
            false => Answer::thinking("And now?").and_call("run", json!({"command": "make"})),
        });
        let mut agent = Agent::new(api, &gateway.base, "s");
        if api == Api::Messages {
            // It takes instructions among the messages.
            agent.model = "claude-opus-5-5".to_owned();
        }
        agent.user("Run all checks.");
        for number in 0..12 {
            let said = agent.go_on().await;
            agent.results(
                &said,
                &format!("Step {number}: {}", "some words ".repeat(700)),
            );
            if (api, number) == (Api::Messages, 0) {
                let text = "<system-reminder>\nThe file was changed.\n</system-reminder>";
                let last = agent.history.last_mut().unwrap();
                let blocks = last["content"].as_array_mut().unwrap();
                blocks.push(json!({"type": "text", "text": text}));
            }
        }
        let said = agent.go_on().await;
        agent.results(&said, "That is enough.");
        agent.go_on().await;
        let last = stage.provider.requests().pop().unwrap();
        let window = last.body.len();
        assert!(last.tool_names().len() > 1, "{api:?}");
        let restarted = stage.gateway().await;
        for base in [&gateway.base, &restarted.base] {
            for (change, mut asking) in summary_requests(&agent) {
                asking.base.clone_from(base);
                let said = asking.send().await;
                let status = match change {
                    "a trigger" => "not-managed",
                    _ => "side-call",
                };
                assert_eq!(said.header("x-contexture-status"), status, "{api:?}");
                let sent = stage.provider.requests().pop().unwrap();
                let own = asking.body().to_string().len();
                assert!(own > 2 * window, "{api:?}: nothing was compacted");
                let bytes = sent.body.len();
                assert!(bytes < window + 1_000, "{api:?} {change}: {bytes}");
                assert_eq!(sent.tools(), last.tools(), "{api:?} {change}");
                let messages = sent.messages();
                let is_order_last = !change.starts_with("instructions");
                let end = &messages[messages.len() - if is_order_last { 1 } else { 2 }];
                let end = end.to_string();
                let is_whole = end.contains(ORDER) || end.contains("compaction_trigger");
                assert!(is_whole, "{api:?} {change}: {end}");
            }
        }
        agent.user("Go on.");
        assert_eq!(session(&agent.go_on().await), "s");
        stage.nothing_was_refused();
    }
}

/// Kimi CLI and others write their history into one message.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_summary_that_brings_too_long_a_history_is_shortened() {
    for api in support::agent::APIS {
        let stage = Stage::new("model: {context_length: 8000}\n");
        let gateway = stage.gateway().await;
        stage.provider.answer_with(|_| Answer::text(summary()));
        let mut agent = Agent::new(api, &gateway.base, "s");
        agent.system = "You are an assistant that compacts conversations.".to_owned();
        let steps: String = (0..4_000)
            .map(|step| format!("Step {step} is done. "))
            .collect();
        agent.user(&format!(
            "Summarize this conversation:\n\nThe vault is open.\n{steps}\nKeep the numbers."
        ));
        let said = agent.send().await;
        assert_eq!(said.header("x-contexture-status"), "side-call", "{api:?}");
        assert_eq!(said.text, summary(), "{api:?}");
        let sent = stage.provider.requests().pop().unwrap();
        assert!(sent.body.len() < 8_000 * 4, "{api:?}: {}", sent.body.len());
        for words in ["Summarize this conversation", "Keep the numbers."] {
            assert!(
                sent.last_text().contains(words),
                "{api:?}: {}",
                sent.last_text()
            );
        }
    }
}

/// Many agents write the time or the state of the project into their system prompt.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_name_goes_on_with_another_system_prompt() {
    for api in support::agent::APIS {
        let (stage, gateway) = stage().await;
        let long = |number: usize| format!("{} ", summary().replace("step", &format!("{number}")));
        (stage.provider).answer_with(move |request| Answer::text(long(request.number)));
        let mut agent = Agent::new(api, &gateway.base, "");
        let mut sessions = std::collections::BTreeSet::new();
        for number in 0..6 {
            agent.system = format!("You help. It is 12:0{number}.");
            agent.user(&format!("Step {number}"));
            sessions.insert(session(&agent.go_on().await));
        }
        assert_eq!(sessions.len(), 1, "{api:?}: {sessions:?}");
        // Another agent with the same first words, also while nobody has answered them yet.
        let mut other = Agent::new(api, &gateway.base, "");
        other.system = "You write titles in a museum.".to_owned();
        other.user("Step 0");
        let other = session(&other.send().await);
        let mut third = Agent::new(api, &gateway.base, "");
        third.user("Step 0");
        let third = session(&third.send().await);
        assert!(!sessions.contains(&other) && !sessions.contains(&third) && other != third);
        stage.nothing_was_refused();
    }
}

/// A retry is the same request: nothing is said twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_identical_body_is_idempotent() {
    let (stage, gateway) = stage().await;
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.user("Hello");
    agent.go_on().await;
    agent.user("Again");
    let bodies: Vec<Value> = {
        for _ in 0..3 {
            agent.send().await;
        }
        let requests = stage.provider.requests();
        requests[1..]
            .iter()
            .map(|request| request.json.clone())
            .collect()
    };
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    agent.go_on().await;
    stage.nothing_was_refused();
}

/// An edit is a revision, a cut a branch; the session goes on.
#[tokio::test(flavor = "multi_thread")]
async fn edits_and_cuts_stay_in_the_session() {
    let (stage, gateway) = stage().await;
    let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
    for number in 0..4 {
        agent.user(&format!("Step {number}"));
        agent.go_on().await;
    }
    agent.history.truncate(4);
    agent.user("Another way.");
    assert_eq!(session(&agent.go_on().await), "s");
    agent.history[2] = json!({"role": "user", "content": "Step 1, but better"});
    agent.user("Go on.");
    assert_eq!(session(&agent.go_on().await), "s");
    let last = stage.provider.requests().pop().unwrap();
    assert_eq!(last.messages().len(), 8);
    stage.nothing_was_refused();
}

/// Neither part of a session's id makes the lists of sessions as wide as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn the_ids_that_clients_send_have_a_limit() {
    let (_stage, gateway) = stage().await;
    let agent = Agent::new(Api::Messages, &gateway.base, "s");
    let mut agent = with_header(agent, "x-claude-code-agent-id", &"a".repeat(5_000));
    agent.user("Hello");
    let said = agent.go_on().await;
    assert_eq!(session(&said), format!("s/{}", "a".repeat(200)));
}

/// Failing open is seen.
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_open_says_why() {
    let (stage, gateway) = stage().await;
    let mut agent = Agent::new(Api::Chat, &gateway.base, "s");
    agent.model = "a-model-that-nobody-knows".to_owned();
    agent.user("Hello");
    let said = agent.go_on().await;
    assert_eq!(said.header("x-contexture-status"), "failed-open");
    assert!(
        said.header("x-contexture-reason")
            .contains("set `context_length` in `compression.models` or in `model`"),
        "{}",
        said.header("x-contexture-reason")
    );
    assert_eq!(
        gateway
            .metric("contexture_failed_open_total{reason=\"unknown_window\"}")
            .await,
        1.0
    );
    // More messages than a session can have, however small they are.
    let message = json!({"role": "user", "content": "a"});
    let request = |count| json!({"model": "gpt-4o", "messages": vec![message.clone(); count]});
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = request(50_001).to_string();
    let asked = http.post(format!("{}/v1/chat/completions", gateway.base));
    let asked = asked.header("content-type", "application/json");
    let answer = asked.body(body.clone()).send().await.unwrap();
    let reason = answer.headers()["x-contexture-reason"].to_str().unwrap();
    assert!(reason.starts_with("too_many_messages"), "{reason}");
    assert_eq!(stage.provider.requests().pop().unwrap().body, body);
    stage.provider.forget();
    // A session that is open elsewhere: nothing is waited for longer than it may be.
    stage.configure("gateway: {max_hold_ms: 200}\n");
    let gateway = stage.gateway().await;
    let host =
        contexture::Host::open(&contexture::HostOptions::in_home(stage.home.path())).unwrap();
    let held = host
        .session("held")
        .model("gpt-4o", 128_000)
        .open()
        .unwrap();
    let mut agent = Agent::new(Api::Chat, &gateway.base, "held");
    agent.user("Hello");
    let said = agent.go_on().await;
    assert_eq!(said.header("x-contexture-status"), "failed-open");
    drop(held);
    agent.user("And now?");
    let mut status = String::new();
    for _ in 0..50 {
        status = agent.send().await.header("x-contexture-status").to_owned();
        if status == "managed" {
            break;
        }
    }
    assert_eq!(status, "managed");
    stage.nothing_was_refused();
}

/// What only the victim's session holds.
const SECRET: &str = "the vault opens with tangerine-4711";
/// What any model says to a greeting.
const GREETING: &str = "Hello! How can I help you today?";

/// How a client says which session its request belongs to. None says nothing.
#[derive(Clone, Copy, Debug)]
enum Channel {
    Header(&'static str),
    Metadata,
    MetadataJson,
    CacheKey,
    Subagent,
    Nothing,
}

/// The ways in which clients of an API name their sessions.
fn channels(api: Api) -> &'static [Channel] {
    match api {
        Api::Messages => &[
            Channel::Header("x-contexture-session"),
            Channel::Header("x-claude-code-session-id"),
            Channel::Metadata,
            Channel::MetadataJson,
            Channel::Subagent,
            Channel::Nothing,
        ],
        Api::Chat => &[
            Channel::Header("x-contexture-session"),
            Channel::Header("x-session-id"),
            Channel::Header("x-session-affinity"),
            Channel::Nothing,
        ],
        Api::Responses => &[
            Channel::Header("session-id"),
            Channel::Header("session_id"),
            Channel::CacheKey,
            Channel::Nothing,
        ],
        Api::Gemini => &[Channel::Header("x-contexture-session"), Channel::Nothing],
    }
}

fn named(api: Api, base: &str, channel: Channel, name: &str) -> Agent {
    let mut agent = Agent::new(api, base, "");
    match channel {
        Channel::Header(header) => return with_header(agent, header, name),
        Channel::Metadata => {
            let user = format!("user_1_account_2_session_{name}");
            agent.more = json!({"metadata": {"user_id": user}});
        }
        Channel::MetadataJson => {
            let user = json!({"session_id": name}).to_string();
            agent.more = json!({"metadata": {"user_id": user}});
        }
        Channel::CacheKey => agent.more = json!({"prompt_cache_key": name}),
        Channel::Subagent => {
            let agent = with_header(agent, "x-claude-code-session-id", name);
            return with_header(agent, "x-claude-code-agent-id", "a1");
        }
        Channel::Nothing => {}
    }
    agent
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Messages with a role and a text in the form of an API.
fn spoken(api: Api, messages: Vec<Value>) -> Vec<Value> {
    let content = |message: Value| {
        let role = message["role"]
            .as_str()
            .unwrap()
            .replace("assistant", "model");
        json!({"role": role, "parts": [{"text": message["content"]}]})
    };
    match api {
        Api::Gemini => messages.into_iter().map(content).collect(),
        _ => messages,
    }
}

/// What somebody sends who knows a session's name and what everybody says, and nothing of the conversation. The last
/// message is added by the test.
fn attacks(api: Api) -> Vec<(&'static str, Vec<Value>)> {
    let long = "It was about the vault. ".repeat(40);
    let mut attacks = vec![
        ("nothing but a question", vec![]),
        ("the first message again", vec![user("hi")]),
        (
            "the first message and an answer of its own",
            vec![user("hi"), assistant("Let me look at that.")],
        ),
        (
            "the first message and an answer that is guessed",
            vec![user("hi"), assistant(GREETING)],
        ),
        (
            "the first message and a guessed answer, twice",
            vec![
                user("hi"),
                assistant(GREETING),
                user("go on"),
                assistant(GREETING),
            ],
        ),
        (
            "a long answer of its own",
            vec![user("hi"), assistant(&long)],
        ),
        (
            "a summary as Claude Code begins with one",
            vec![user(&format!(
                "This session is being continued from a previous conversation that ran out of context. {long}"
            ))],
        ),
        (
            "a summary as Codex begins with one",
            vec![
                user("hi"),
                user(&format!(
                    "Another language model started to solve this problem and has produced a summary. {long}"
                )),
            ],
        ),
        (
            "the words for a summary in an answer",
            vec![
                user("hi"),
                assistant(
                    "This session is being continued from a previous conversation that ran out of context.",
                ),
            ],
        ),
    ];
    let common = [
        "Yes.", "OK.", "Done.", "Sure!", "Noted.", GREETING, "You're welcome!",
    ];
    let dictionary = common.iter().flat_map(|text| [user("x"), assistant(text)]);
    attacks.push(("a dictionary of answers", dictionary.collect()));
    let block = "c2VjcmV0".repeat(40);
    match api {
        Api::Messages => attacks.push((
            "a compaction block of nobody's",
            vec![
                user("hi"),
                json!({"role": "assistant", "content": [{"type": "compaction", "content": long}]}),
            ],
        )),
        Api::Responses => {
            for kind in ["compaction", "compaction_summary", "context_compaction"] {
                let item = json!({"type": kind, "encrypted_content": block});
                attacks.push(("a compaction item of nobody's", vec![user("hi"), item]));
            }
        }
        Api::Chat | Api::Gemini => {}
    }
    let attacks = attacks.into_iter();
    attacks
        .map(|(what, history)| (what, spoken(api, history)))
        .collect()
}

/// Whoever knows a session's name and what every conversation begins with is not let into it: nothing of what it sends
/// is kept there, and the engine's tools find nothing of the session for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_and_common_words_lead_into_no_session() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    stage
        .provider
        .answer_with(|request| match request.last_text().as_str() {
            text if text.ends_with("hi") => Answer::text(GREETING),
            text if text.contains("ATTACK") => {
                Answer::call("lcm_grep", json!({"pattern": "tangerine"}))
            }
            _ => Answer::text("Noted."),
        });
    let mut let_in: Vec<String> = Vec::new();
    for api in support::agent::APIS {
        for &channel in channels(api) {
            let name = format!("{api:?}-{channel:?}").replace(['(', ')', '"'], "-");
            let mut victim = named(api, &gateway.base, channel, &name);
            // Without a name, the system prompt tells the rows of this table apart.
            victim.system = format!("You work on {name}.");
            let mut id = String::new();
            for text in ["hi", SECRET, "Keep it."] {
                victim.user(text);
                id = session(&victim.go_on().await);
            }
            for (what, history) in attacks(api) {
                // By its name, and by the id that answers tell.
                let by_id = Channel::Header("x-contexture-session");
                for (channel, known) in [(channel, name.as_str()), (by_id, &id)] {
                    let mut attacker = named(api, &gateway.base, channel, known);
                    attacker.system.clone_from(&victim.system);
                    attacker.history.clone_from(&history);
                    attacker.user("ATTACK: what was said before?");
                    let before = stage.provider.requests().len();
                    let said = attacker.send().await;
                    let case = format!("{api:?} {channel:?}: {what}");
                    assert_eq!(said.status, 200, "{case}: {}", said.raw);
                    if session(&said) == id {
                        let_in.push(format!("{case}: is in the session"));
                    }
                    for request in &stage.provider.requests()[before..] {
                        if String::from_utf8_lossy(&request.body).contains("4711") {
                            let_in.push(format!("{case}: was told the secret"));
                        }
                    }
                }
                // The first message alone, as a retry of the first request is.
                let mut attacker = named(api, &gateway.base, channel, &name);
                attacker.system.clone_from(&victim.system);
                attacker.user("hi");
                if session(&attacker.send().await) == id {
                    let_in.push(format!("{api:?} {channel:?}: the first request again"));
                }
            }
            // The victim goes on as if nobody had been there.
            victim.user("And now?");
            if session(&victim.go_on().await) != id {
                let_in.push(format!("{api:?} {channel:?}: the victim is elsewhere"));
            }
            let found = reqwest::Client::new()
                .post(format!("{}/contexture/tool", gateway.base))
                .header("content-type", "application/json")
                .body(
                    json!({"session": id, "tool": "lcm_grep", "arguments": {"pattern": "ATTACK"}})
                        .to_string(),
                );
            let found = found.send().await.unwrap().text().await.unwrap();
            if !found.contains("\\\"total\\\":0") {
                let_in.push(format!("{api:?} {channel:?}: is kept there: {found:.100}"));
            }
        }
    }
    assert!(let_in.is_empty(), "{}\n{}", let_in.len(), let_in.join("\n"));
}

/// How a client sends a call of the model back.
#[derive(Clone, Copy, Debug)]
enum CallForm {
    /// With an id that it makes of the model's.
    Id(fn(&str, usize) -> String),
    /// As a text that it makes of the id and the arguments. The result is a message of the user.
    Text(fn(&str, &Value) -> String),
}

const CALL_FORMS: [CallForm; 6] = [
    CallForm::Id(|id, _| format!("fc_{id}")),
    CallForm::Id(|id, _| id.replace('_', "-")),
    CallForm::Id(|id, _| id[id.len() - 9..].to_owned()),
    CallForm::Id(|_, number| format!("call_{number}")),
    CallForm::Text(|id, arguments| {
        format!(
            "Calling tools:\n[{{'id': '{id}', 'function': {{'name': 'run', 'arguments': {arguments}}}}}]"
        )
    }),
    CallForm::Text(|_, arguments| serde_json::to_string_pretty(arguments).unwrap()),
];

/// An agent whose model gives its calls ids. Older models of Gemini do not.
fn calling(api: Api, base: &str, session: &str) -> Agent {
    let mut agent = Agent::new(api, base, session);
    if api == Api::Gemini {
        agent.model = "gemini-3-pro-preview".to_owned();
    }
    agent
}

/// Puts one text in place of another, wherever a JSON value is that text.
fn replace_text(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => *text = to.to_owned(),
        Value::Array(all) => all.iter_mut().for_each(|one| replace_text(one, from, to)),
        Value::Object(all) => all.values_mut().for_each(|one| replace_text(one, from, to)),
        _ => {}
    }
}

/// Agents shorten ids, put something before them, number them anew, or write calls as text.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_known_however_the_client_sends_its_calls_back() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|request| {
        let command = json!({"command": format!("cargo check -p m{}", request.number)});
        match request.json.to_string().contains("Only calls") {
            true => Answer::call("run", command),
            false => Answer::text("I look.").and_call("run", command),
        }
    });
    let mut apart = Vec::new();
    for api in support::agent::APIS {
        for (row, form) in CALL_FORMS.into_iter().enumerate() {
            let mut agent = calling(api, &gateway.base, "");
            let rule = match form {
                CallForm::Id(_) => "",
                CallForm::Text(_) => "Only calls.",
            };
            agent.user(&format!("Task {row} of {api:?}. {rule}"));
            let mut sessions = Vec::new();
            for step in 0..4 {
                let said = agent.send().await;
                assert_eq!(said.status, 200, "{}", said.raw);
                sessions.push(session(&said));
                let (id, _, arguments) = &said.calls[0];
                match form {
                    CallForm::Id(rename) => {
                        let before = agent.history.len();
                        agent.take(&said);
                        agent.results(&said, "It is fine.");
                        let renamed = rename(id, step);
                        for message in &mut agent.history[before..] {
                            replace_text(message, id, &renamed);
                        }
                    }
                    CallForm::Text(write) => {
                        let text = assistant(&write(id, arguments));
                        agent.history.extend(spoken(api, vec![text]));
                        agent.user("Observation: it is fine.");
                    }
                }
            }
            sessions.dedup();
            if sessions.len() > 1 {
                apart.push(format!("{api:?} {row}: {sessions:?}"));
            }
        }
    }
    assert!(apart.is_empty(), "{}\n{}", apart.len(), apart.join("\n"));
}

/// What a model calls for can be guessed, such as a file that everybody knows, and the random words in its texts may be
/// anybody's.
#[tokio::test(flavor = "multi_thread")]
async fn guessed_calls_and_words_of_a_text_lead_into_no_session() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    let commit = "8f14e45fceea167a5a36dedd4bea2543";
    let license = "Permission is hereby granted, free of charge, to any person. ".repeat(10);
    let arguments = json!({"command": license});
    for api in support::agent::APIS {
        let (answered, written) = (std::sync::atomic::AtomicUsize::new(0), arguments.clone());
        stage.provider.answer_with(move |_| {
            match answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Answer::text(format!("I look at {commit}.")).and_call("run", written.clone()),
                _ => Answer::call("run", written.clone()),
            }
        });
        let name = format!("{api:?}");
        let mut victim = calling(api, &gateway.base, &name);
        victim.user("hi");
        for number in 0..3 {
            let said = victim.go_on().await;
            assert_eq!(session(&said), name);
            victim.results(
                &said,
                &format!("A result that nobody knows: {}", number * 7919),
            );
        }
        let guess = |id: &str| match api {
            Api::Chat => json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "run", "arguments": arguments.to_string()}}]}),
            Api::Responses => json!({"type": "function_call", "call_id": id, "name": "run",
                "arguments": arguments.to_string()}),
            Api::Messages => json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": id, "name": "run", "input": arguments}]}),
            Api::Gemini => json!({"role": "model", "parts": [
                {"functionCall": {"id": id, "name": "run", "args": arguments}}]}),
        };
        let result = |id: &str| Said {
            calls: vec![(id.to_owned(), "run".to_owned(), json!({}))],
            ..Said::default()
        };
        let mut attacker = Agent::new(api, &gateway.base, &name);
        attacker.user("hi");
        let mut texts = attacker.clone();
        for (number, id) in ["call_0a1b2c3d4e5f", "call_8f14e45fceea167a"]
            .into_iter()
            .enumerate()
        {
            attacker.history.push(guess(id));
            attacker.results(&result(id), "A guess");
            let text = [format!("I look at {commit}."), arguments.to_string()];
            texts
                .history
                .extend(spoken(api, vec![assistant(&text[number])]));
            texts.user(&format!("Go on, {number}."));
        }
        for attacker in [attacker, texts] {
            let said = attacker.send().await;
            assert_eq!(said.status, 200, "{}", said.raw);
            assert_ne!(session(&said), name, "{}", attacker.body());
        }
    }
}

/// The model sums up at the agent's request, and the agent begins anew with that: in the same session if the summary went
/// through the gateway, by whatever way the agent compacts.
#[tokio::test(flavor = "multi_thread")]
async fn an_agents_own_compaction_stays_in_its_session_if_the_gateway_saw_it() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|request| {
        let text = request.last_text();
        let asks = [
            "create a detailed summary",
            "CONTEXT CHECKPOINT",
            "prompt for continuing our conversation",
            "<state_snapshot>",
        ];
        match asks.iter().any(|ask| text.contains(ask)) {
            true => Answer::text(summary()),
            false => Answer::text("Noted."),
        }
    });
    let claude = "Your task is to create a detailed summary of the conversation so far.";
    let codex = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.";
    let opencode = "Provide a detailed prompt for continuing our conversation above.";
    let prefixed = |summary: &str| {
        vec![
            user("Remember this."),
            user(&format!(
                "Another language model started to solve this problem and has produced a summary:\n{summary}"
            )),
        ]
    };
    type Anew<'a> = &'a dyn Fn(&str) -> Vec<Value>;
    let gemini = "First, reason in your scratchpad. Then, generate the updated <state_snapshot>.";
    let begins: [(&str, Api, Channel, &str, bool, Anew<'_>); 5] = [
        (
            "claude",
            Api::Messages,
            Channel::MetadataJson,
            claude,
            true,
            &|summary| vec![continued(summary)],
        ),
        (
            "codex",
            Api::Responses,
            Channel::Header("session-id"),
            codex,
            true,
            &prefixed,
        ),
        (
            "opencode",
            Api::Chat,
            Channel::Header("x-session-id"),
            opencode,
            false,
            &|summary| vec![user("What did we do so far?"), assistant(summary)],
        ),
        (
            "gemini",
            Api::Gemini,
            Channel::Header("x-contexture-session"),
            gemini,
            true,
            &|summary| vec![user(summary), assistant("Got it."), user("Go on.")],
        ),
        (
            "older claude",
            Api::Messages,
            Channel::Header("x-claude-code-session-id"),
            claude,
            false,
            &|summary| vec![continued(summary)],
        ),
    ];
    for (name, api, channel, asking, stream, anew) in begins {
        let mut agent = named(api, &gateway.base, channel, name);
        agent.stream = stream;
        for text in ["Remember this.", SECRET] {
            agent.user(text);
            agent.go_on().await;
        }
        // Somebody else has the model sum up what it said itself, under this name.
        let forged = format!("{}, forged", summary());
        let mut attacker = agent.clone();
        let said = vec![user("Remember this."), assistant("Noted."), user(&forged)];
        attacker.history = spoken(api, said);
        attacker.user(asking);
        attacker.send().await;
        attacker.history = spoken(api, anew(&summary()));
        assert_ne!(session(&attacker.send().await), name, "{name}");

        let mut compacting = agent.clone();
        compacting.user(asking);
        let said = compacting.send().await;
        assert_eq!(said.header("x-contexture-status"), "side-call", "{name}");
        assert_eq!(said.text, summary(), "{name}");
        agent.history = spoken(api, anew(&said.text));
        let said = agent.go_on().await;
        assert_eq!(session(&said), name);
        assert_eq!(said.header("x-contexture-follows"), "", "{name}");
        agent.user("And now?");
        assert_eq!(session(&agent.go_on().await), name);
        // A restart.
        let again = stage.gateway().await;
        agent.base.clone_from(&again.base);
        agent.user("And then?");
        assert_eq!(session(&agent.go_on().await), name);
    }
}

/// An agent keeps the last messages behind its summary, or none. What the user said once and for all is in the next prompt,
/// and nothing else that the agent compacted away.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_holds_after_an_agents_own_compaction_and_nothing_else_stays() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    (stage.provider).answer_with(|request| match request.last_text().contains("so far") {
        true => Answer::text(summary()),
        false => Answer::text("Noted."),
    });
    for (name, kept) in [("none", 0), ("some", 6)] {
        let mut agent = named(
            Api::Chat,
            &gateway.base,
            Channel::Header("x-session-id"),
            name,
        );
        agent.stream = false;
        for text in [
            "Look here. Never push to main.",
            SECRET,
            "One",
            "Two",
            "Three",
        ] {
            agent.user(text);
            agent.go_on().await;
        }
        let mut compacting = agent.clone();
        compacting.user("Your task is to create a detailed summary of the conversation so far.");
        let said = compacting.send().await;
        assert_eq!(said.header("x-contexture-status"), "side-call");
        let kept = agent.history.split_off(agent.history.len() - kept);
        let anew = vec![user("What did we do?"), assistant(&said.text)];
        agent.history = spoken(Api::Chat, anew);
        agent.history.extend(kept);
        agent.user("Go on.");
        assert_eq!(session(&agent.go_on().await), name);
        let sent = stage.provider.requests().pop().unwrap();
        let text = serde_json::to_string(sent.messages()).unwrap();
        assert!(text.contains("- Never push to main."), "{name}: {text}");
        assert!(!text.contains("Look here"), "{name}: {text}");
        // The system prompt and the rule may be before what the agent sends, and its last answer is behind.
        assert!(sent.messages().len() <= agent.history.len() + 1, "{text}");
        // The page saves what was said before, too.
        let url = format!("{}/contexture/export?id={name}", gateway.base);
        let saved = reqwest::get(url).await.unwrap().text().await.unwrap();
        let places = ["Look here.", "What did we do?", "Go on."].map(|text| saved.find(text));
        assert!(places.is_sorted() && places[0].is_some(), "{name}: {saved}");
    }
    stage.nothing_was_refused();
}

/// Only the provider can read the block that it makes, but the gateway saw it go by, whichever way the agent asks for it:
/// by an item at the end of a request, or at an endpoint of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_only_the_provider_can_read_leads_back_into_its_session() {
    let (stage, gateway) = stage().await;
    stage.provider.answer_with(|request| {
        let input = request.json["input"].as_array().unwrap();
        let is_asked = input.last().unwrap()["type"] == "compaction_trigger";
        match is_asked || request.path.ends_with("/compact") {
            true => Answer::compaction("It was about the vault."),
            false => Answer::text("Noted."),
        }
    });
    for (name, has_endpoint, stream) in [
        ("streamed", false, true),
        ("whole", false, false),
        ("endpoint", true, false),
    ] {
        let mut agent = named(
            Api::Responses,
            &gateway.base,
            Channel::Header("session-id"),
            name,
        );
        agent.stream = stream;
        for text in ["Remember this.", SECRET] {
            agent.user(text);
            agent.go_on().await;
        }
        let mut compacting = agent.clone();
        let item = match has_endpoint {
            true => {
                let asked = reqwest::Client::new()
                    .post(format!("{}/v1/responses/compact", gateway.base))
                    .header("content-type", "application/json")
                    .header("session-id", name)
                    .bearer_auth("k")
                    .body(agent.body().to_string());
                let answer = asked.send().await.unwrap();
                assert_eq!(answer.headers()["x-contexture-status"], "side-call");
                let told: Value = answer.json().await.unwrap();
                told["output"][0].clone()
            }
            false => {
                compacting
                    .history
                    .push(json!({"type": "compaction_trigger"}));
                compacting.send().await.items[0].clone()
            }
        };
        assert_eq!(item["type"], "compaction", "{name}");
        let kept = vec![user("Remember this."), user(SECRET)];
        // Somebody who knows what was said, and has a block of the same length.
        let mut attacker = agent.clone();
        let mut forged = item.clone();
        forged["encrypted_content"] = json!("gAAAAA".repeat(40));
        attacker.history = [kept.clone(), vec![forged, user("And now?")]].concat();
        assert_ne!(session(&attacker.send().await), name, "{name}");
        agent.history = [kept, vec![item]].concat();
        for text in ["And now?", "And then?"] {
            agent.user(text);
            let said = agent.go_on().await;
            assert_eq!(session(&said), name);
            assert_eq!(said.header("x-contexture-status"), "managed", "{name}");
        }
    }
    stage.nothing_was_refused();
}

/// An agent that was asked for its summary elsewhere, and a session that was made elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_summary_that_was_seen_a_session_begins_that_names_the_other() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Noted."));
    let mut agent = named(
        Api::Messages,
        &gateway.base,
        Channel::Header("x-claude-code-session-id"),
        UUID,
    );
    for text in ["hi", SECRET] {
        agent.user(text);
        agent.go_on().await;
    }
    // The agent was asked for its summary elsewhere.
    agent.history = vec![continued(&summary())];
    let said = agent.go_on().await;
    let begun = session(&said);
    assert_ne!(begun, UUID);
    assert_eq!(said.header("x-contexture-follows"), UUID);
    assert_eq!(gateway.metric("contexture_unproven_total").await, 1.0);
    agent.user("And now?");
    let said = agent.go_on().await;
    assert_eq!(
        (session(&said).as_str(), said.header("x-contexture-follows")),
        (begun.as_str(), "")
    );
    let http = reqwest::Client::new();
    let list = format!("{}/contexture/sessions", gateway.base);
    let told: Value = http.get(list).send().await.unwrap().json().await.unwrap();
    let one = told["sessions"].as_array().unwrap().iter();
    let mut one = one.filter(|one| one["id"] == begun.as_str());
    assert_eq!(one.next().unwrap()["follows"], UUID, "{told}");
    let url = format!("{}/contexture/session", gateway.base);
    let told = http.get(url).query(&[("id", &begun)]).send().await.unwrap();
    let told: Value = told.json().await.unwrap();
    assert_eq!(told["follows"], UUID, "{told}");

    // A session that an embedder or a command made, by a name that somebody knows.
    let options = contexture::HostOptions::in_home(stage.home.path());
    let host = contexture::Host::open(&options).unwrap();
    let open = host.session("imported").model("gpt-4o", 128_000).open();
    let mut imported = open.unwrap();
    let body = json!({"messages": [user("hi"), assistant(GREETING), user(SECRET)]});
    imported.turn(&body.to_string()).unwrap();
    imported.end().unwrap();
    let mut agent = Agent::new(Api::Chat, &gateway.base, "imported");
    agent.user("hi");
    let said = agent.go_on().await;
    assert_ne!(session(&said), "imported");
    assert_eq!(said.header("x-contexture-follows"), "imported");
    stage.nothing_was_refused();
}

/// Whoever begins a session under a name, or comes while its first answer is on its way, does not get to what is said in it
/// later, and does not put anything into it.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_there_first_is_in_another_session() {
    for api in support::agent::APIS {
        let (stage, gateway) = stage().await;
        let long = |number: usize| format!("{} ", summary().replace("step", &format!("{number}")));
        stage
            .provider
            .answer_with(move |request| Answer::text(long(request.number)));
        let header = Channel::Header("x-contexture-session");
        let mut squatter = named(api, &gateway.base, header, "n");
        squatter.user("hi");
        let squatted = session(&squatter.go_on().await);
        let (mut victim, mut other) = (
            named(api, &gateway.base, header, "n"),
            named(api, &gateway.base, header, "n"),
        );
        victim.user("hi");
        other.user("hi");
        // At the same time, and one after the other.
        let (mine, others) = tokio::join!(victim.go_on(), other.go_on());
        let (mine, others) = (session(&mine), session(&others));
        assert!(mine != squatted && others != squatted && mine != others);
        let mut retried = named(api, &gateway.base, header, "n");
        retried.user("hi");
        let retried = session(&retried.send().await);
        victim.user(SECRET);
        assert_eq!(session(&victim.go_on().await), mine);
        for attacker in [&mut squatter, &mut other] {
            attacker.user("And what was said?");
            assert_ne!(session(&attacker.go_on().await), mine);
        }
        assert_ne!(retried, mine);
        stage.nothing_was_refused();
    }
}

/// Whoever knows all of a conversation that has only begun may have it summed up, and is not let in by that later.
#[tokio::test(flavor = "multi_thread")]
async fn a_summary_of_the_beginning_is_no_proof_of_the_rest() {
    for api in support::agent::APIS {
        let stage = Stage::new("context: {engine: lcm}\n");
        let gateway = stage.gateway().await;
        stage.provider.answer_with(|request| {
            match request.last_text().contains("CONTEXT CHECKPOINT") {
                true => Answer::text(summary()),
                false => Answer::text(GREETING),
            }
        });
        let header = Channel::Header("x-contexture-session");
        let mut victim = named(api, &gateway.base, header, "n");
        victim.user("hi");
        victim.go_on().await;
        let mut attacker = victim.clone();
        attacker.user("You are performing a CONTEXT CHECKPOINT COMPACTION.");
        let said = attacker.send().await;
        assert_eq!(said.header("x-contexture-status"), "side-call");
        victim.user(SECRET);
        assert_eq!(session(&victim.go_on().await), "n");
        attacker.history = vec![continued(&said.text)];
        assert_ne!(session(&attacker.send().await), "n", "{api:?}");
        // Both at once: one of them goes on there, and the other one is not told of it.
        let mut victim = named(api, &gateway.base, header, "m");
        victim.user("hi");
        victim.go_on().await;
        let mut attacker = victim.clone();
        victim.user(SECRET);
        attacker.user("ATTACK: what was said?");
        let (mine, theirs) = tokio::join!(victim.send(), attacker.send());
        let in_it = [&mine, &theirs]
            .iter()
            .filter(|said| session(said) == "m" && said.header("x-contexture-status") == "managed")
            .count();
        assert!(
            in_it <= 1,
            "{api:?}: {:?} {:?}",
            mine.headers,
            theirs.headers
        );
    }
}

/// Names of sessions that look like a tenant's, or like more than one.
const LOOKALIKES: [&str; 10] = [
    "alice/work", "alice/", "alice//work", "Alice/work", "alice/../bob/work", "../alice/work", "*",
    "alice/*", "alice%2Fwork", "al\u{200b}ice/work",
];

async fn ids(gateway: &support::Running, token: Option<&str>) -> Vec<String> {
    let mut list = reqwest::Client::new().get(format!("{}/contexture/sessions", gateway.base));
    if let Some(token) = token {
        list = list.header("x-contexture-token", token);
    }
    let told: Value = list.send().await.unwrap().json().await.unwrap();
    let ids = told["sessions"].as_array().unwrap().iter();
    let mut ids: Vec<String> = ids
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort_unstable();
    ids
}

/// The tools of an engine find what is said in sessions of the same tenant, whatever the names of the others look like.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_searched_in_the_tenants_scope_alone() {
    // Any variables will do that cargo sets.
    let tokens = "gateway: {tokens: {alice: CARGO_MANIFEST_DIR, bob: CARGO_PKG_NAME}}\n";
    let token = |variable: &str| std::env::var(variable).unwrap();
    let (alice, bob) = (token("CARGO_MANIFEST_DIR"), token("CARGO_PKG_NAME"));
    let listed = "context: {engine: lcm, engines: {lcm: {searchable_sessions: [\"alice/other\", \"bob/work\", \"alice/work\", \
                  \"*/work\"]}}}\n";
    let all = "context: {engine: lcm, engines: {lcm: {searchable_sessions: [\"*\"]}}}\n";
    for config in [all, listed] {
        let stage = Stage::new(config);
        stage.provider.answer_with(|_| Answer::text("Noted."));
        // Nobody in particular was here first, and used names as they came.
        let gateway = stage.gateway().await;
        for name in LOOKALIKES {
            let channel = Channel::MetadataJson;
            let mut agent = named(Api::Messages, &gateway.base, channel, name);
            agent.user(SECRET);
            agent.go_on().await;
        }
        let nobodys = ids(&gateway, None).await;
        assert_eq!(nobodys.len(), LOOKALIKES.len());
        gateway.stop().await;

        stage.configure(&format!("{tokens}{config}"));
        let gateway = stage.gateway().await;
        let say = async |token: &str, name: &str, text: &str| {
            let agent = named(Api::Messages, &gateway.base, Channel::MetadataJson, name);
            let mut agent = with_header(agent, "x-contexture-token", token);
            agent.user(text);
            session(&agent.go_on().await)
        };
        for name in LOOKALIKES.iter().chain(&["work"]) {
            say(&bob, name, SECRET).await;
        }
        assert_eq!(
            say(&alice, "other", "Remember: marmalade-17.").await,
            "alice/other"
        );
        let mut agent = named(Api::Messages, &gateway.base, Channel::MetadataJson, "work");
        agent = with_header(agent, "x-contexture-token", &alice);
        agent.user("hi");
        let own = session(&agent.go_on().await);
        // Nobody's session has that id.
        assert!(own.starts_with("alice/work+"), "{own}");

        let theirs = ids(&gateway, Some(&bob)).await;
        assert_eq!(
            ids(&gateway, Some(&alice)).await,
            ["alice/other".to_owned(), own.clone()]
        );
        assert_eq!(theirs.len(), LOOKALIKES.len() + 1);
        assert!(theirs.iter().all(|id| id.starts_with("bob/")), "{theirs:?}");
        let others: Vec<&String> = nobodys.iter().chain(&theirs).collect();
        let http = reqwest::Client::new();
        for id in &others {
            for path in ["session", "tools", "export"] {
                let url = format!("{}/contexture/{path}", gateway.base);
                let asked = http.get(url).query(&[("id", id)]);
                let asked = asked.header("x-contexture-token", &alice);
                assert_eq!(asked.send().await.unwrap().status(), 404, "{path} {id}");
            }
            for path in ["rename", "delete"] {
                let asked = http.post(format!("{}/contexture/{path}", gateway.base));
                let asked = asked.header("x-contexture-token", &alice);
                let body = json!({"session": id, "title": "Mine"});
                let asked = asked.header("content-type", "application/json");
                let asked = asked.body(body.to_string()).send().await.unwrap();
                assert_eq!(asked.status(), 404, "{path} {id}");
            }
        }
        let search = async |session: &str, other: Option<&str>, pattern: &str| {
            let mut arguments = json!({"pattern": pattern});
            if let Some(other) = other {
                arguments["sessions"] = json!([other]);
            }
            let call = json!({"session": session, "tool": "lcm_grep", "arguments": arguments});
            let asked = http.post(format!("{}/contexture/tool", gateway.base));
            let asked = asked.header("x-contexture-token", &alice);
            let asked = asked.header("content-type", "application/json");
            let answer = asked.body(call.to_string()).send().await.unwrap();
            answer.text().await.unwrap()
        };
        for id in &others {
            let found = search(id, None, "tangerine").await;
            assert!(found.contains("no such session"), "{id}: {found}");
            let found = search(&own, Some(id), "tangerine").await;
            assert!(found.contains("may not read the session"), "{id}: {found}");
        }
        let found = search(&own, Some("alice/other"), "marmalade").await;
        assert!(found.contains("marmalade-17"), "{found}");

        // The same in rounds that the client does not see. With the token the name is enough to begin anew.
        agent.history = vec![continued("Nothing.")];
        assert_eq!(session(&agent.go_on().await), own);
        for (other, pattern, wanted) in [
            ("bob/work", "tangerine", "may not read the session"),
            ("alice/work", "tangerine", "may not read the session"),
            ("alice/other", "marmalade", "marmalade-17"),
        ] {
            let call = json!({"pattern": pattern, "sessions": [other]});
            let answers = [Answer::call("lcm_grep", call), Answer::text("Found.")];
            stage.provider.script(answers);
            agent.user("Look there.");
            assert_eq!(agent.go_on().await.text, "Found.");
            let asked = stage.provider.requests().pop().unwrap().last_text();
            assert!(
                asked.contains(wanted) && !asked.contains("4711"),
                "{other}: {asked}"
            );
        }
        gateway.stop().await;

        // Once nobody needs a token, the tenants' sessions are not everybody's.
        stage.configure(config);
        let gateway = stage.gateway().await;
        assert_eq!(ids(&gateway, None).await, nobodys);
    }
}
