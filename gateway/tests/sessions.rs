//! Which requests are of one conversation, as real clients send them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_stand_in::Answer;
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
        one.history[0] = json!({"role": "user", "content": "Step 0, shortened"});
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

#[tokio::test(flavor = "multi_thread")]
async fn side_calls_pass_untouched_and_are_never_part_of_the_conversation() {
    let stage = Stage::new("context: {engine: lcm}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
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
    agent.history = vec![json!({"role": "user", "content":
        "This session is being continued from a previous conversation that ran out of context. The test is fixed."})];
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
            .contains("model.context_length"),
        "{}",
        said.header("x-contexture-reason")
    );
    assert_eq!(
        gateway
            .metric("contexture_failed_open_total{reason=\"unknown_window\"}")
            .await,
        1.0
    );
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
