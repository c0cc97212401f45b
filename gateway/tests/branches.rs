//! Which histories that differ belong to one session. An edit, a cut and a retry do. A branch does not.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contexture::session::{CopyOutcome, Record};
use contexture_provider_simulator::{Answer, Request};
use futures_util::future::join_all;
use serde_json::json;
use support::agent::{APIS, Agent, Api, Said};
use support::{Stage, lcm_stage};

/// A first message that many agents are given.
const TASK: &str = "Do your part of the task.";

/// Works with a call, and says enough to prove the session where calls have no id.
fn works(request: &Request) -> Answer {
    let number = request.number;
    let word = |at| format!("word{number}x{at} and ");
    let text: String = (0..40).map(word).collect();
    Answer::text(text).and_call("run", json!({"command": format!("make {number}")}))
}

/// Says so little that an answer alone proves nothing.
fn answers_shortly(request: &Request) -> Answer {
    Answer::text(format!("Answer {}.", request.number))
}

async fn working(stage: Stage) -> (Stage, support::Running) {
    let gateway = stage.gateway().await;
    stage.provider.answer_with(works);
    (stage, gateway)
}

fn session(said: &Said) -> String {
    assert_eq!(
        said.header("x-contexture-status"),
        "managed",
        "{}",
        said.raw
    );
    said.header("x-contexture-session").to_owned()
}

/// One round: the agent's message goes out, and the calls of the answer get their results. Returns the session.
async fn round(agent: &mut Agent) -> String {
    let said = agent.go_on().await;
    if !said.calls.is_empty() {
        agent.results(&said, "It is done.");
    }
    session(&said)
}

async fn begun(api: Api, base: &str, name: &str) -> (Agent, String) {
    let mut agent = Agent::new(api, base, name);
    agent.user(TASK);
    let first = round(&mut agent).await;
    assert_eq!(round(&mut agent).await, first);
    (agent, first)
}

/// An agent whose answers alone prove nothing, after its first request.
async fn begun_shortly(api: Api, name: &str) -> (Stage, support::Running, Agent, String) {
    let (stage, gateway) = working(Stage::new("")).await;
    stage.provider.answer_with(answers_shortly);
    let mut agent = Agent::new(api, &gateway.base, name);
    agent.user(TASK);
    let first = round(&mut agent).await;
    (stage, gateway, agent, first)
}

/// A branch of an agent's history with words of its own.
fn branch(agent: &Agent, text: &str) -> Agent {
    let mut branch = agent.clone();
    branch.user(text);
    branch
}

/// A model that searches the session first, for so long that all branches have come.
fn searches_first(request: &Request) -> Answer {
    match request.last_text().contains("Branch ") {
        true => Answer::call("lcm_grep", json!({"pattern": "zebra"}))
            .headers_after(Duration::from_millis(200)),
        false => works(request),
    }
}

/// As many sessions as branches, whichever of them stays in the first session, and all have their answers.
#[tokio::test(flavor = "multi_thread")]
async fn branches_at_the_same_time_are_sessions_of_their_own() {
    for api in APIS {
        for name in ["s", ""] {
            let (stage, gateway) = working(lcm_stage("")).await;
            let (mut agent, first) = begun(api, &gateway.base, name).await;
            agent.stream = name.is_empty();
            stage.provider.answer_with(searches_first);
            let together = (0..4).map(|number| {
                let mut branch = branch(&agent, &format!("Branch {number}"));
                async move { (round(&mut branch).await, branch) }
            });
            let mut branches = join_all(together).await;
            let mut seen: BTreeSet<String> = branches.iter().map(|(id, _)| id.clone()).collect();
            for _ in 0..2 {
                let mut now = BTreeSet::new();
                for (id, branch) in &mut branches {
                    *id = round(branch).await;
                    now.insert(id.clone());
                }
                assert_eq!(now.len(), 4, "{api:?} {name}: {now:?}");
                seen.extend(now);
            }
            assert_eq!(seen.len(), 4, "{api:?} {name}: {seen:?}");
            assert!(seen.contains(&first), "{api:?} {name}: {seen:?}");
            assert_eq!(gateway.metric("contexture_branches_total").await, 3.0);
            assert_eq!(gateway.metric("contexture_unproven_total").await, 0.0);
            assert_eq!(gateway.metric("contexture_hidden_rounds_total").await, 4.0);
            stage.nothing_was_refused();
        }
    }
}

/// The same request twice at once, as a client that is impatient sends it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_overtakes_a_hidden_round_does_not_end_its_answer() {
    for api in APIS {
        for stream in [true, false] {
            let (stage, gateway) = working(lcm_stage("")).await;
            let (agent, _) = begun(api, &gateway.base, "s").await;
            stage.provider.answer_with(searches_first);
            let mut agent = branch(&agent, "Branch 0");
            agent.stream = stream;
            let (mut one, mut two) = (agent.clone(), agent);
            let (first, second) = tokio::join!(one.go_on(), two.go_on());
            for said in [first, second] {
                assert_eq!(said.calls.len(), 1, "{api:?} {stream}: {}", said.raw);
            }
            let hidden = gateway.metric("contexture_hidden_rounds_total").await;
            assert_eq!(hidden, 2.0, "{api:?} {stream}");
            stage.nothing_was_refused();
        }
    }
}

/// Branches whose requests come in any order, one at a time. Nobody can tell a branch from an edit before the line that it
/// left comes back. A line that nobody interrupts stays in its session, and in the end each line has its own.
#[tokio::test(flavor = "multi_thread")]
async fn lines_that_go_on_side_by_side_come_apart() {
    for seed in 1..9_usize {
        let api = APIS[seed % 4];
        let (stage, gateway) = working(Stage::new("")).await;
        let (agent, first) = begun(api, &gateway.base, ["s", ""][seed / 4 % 2]).await;
        let mut state = seed;
        let mut draw = |below: usize| {
            state = (state * 1_103_515_245 + 12_345) % (1 << 31);
            (state >> 16) % below
        };
        let mut sessions = BTreeSet::from([first.clone()]);
        let mut lines = vec![(agent, first)];
        let mut before = 0;
        for step in 0..10 {
            let mut at = draw(lines.len());
            if step % 4 == 0 {
                let agent = branch(&lines[at].0, &format!("Branch at {step}"));
                at = lines.len();
                lines.push((agent, String::new()));
            }
            let now = round(&mut lines[at].0).await;
            assert!(
                at != before || now == lines[at].1,
                "{seed} {api:?}, step {step}"
            );
            sessions.insert(now.clone());
            (lines[at].1, before) = (now, at);
        }
        for number in 0..3 {
            let mut all = BTreeSet::new();
            for (agent, _) in &mut lines {
                all.insert(round(agent).await);
            }
            assert!(
                number == 0 || all.len() == lines.len(),
                "{seed} {api:?}: {all:?}"
            );
            sessions.extend(all);
        }
        assert_eq!(sessions.len(), lines.len(), "{seed} {api:?}: {sessions:?}");
        stage.nothing_was_refused();
    }
}

/// When the model answers without a call, mini-swe-agent drops that answer and adds an error to the last message.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_amends_the_last_message_stays_in_its_session() {
    for api in APIS {
        for name in ["", "s"] {
            let (stage, gateway) = working(Stage::new("")).await;
            let (mut agent, first) = begun(api, &gateway.base, name).await;
            let length = agent.history.len();
            for number in 0..4 {
                let mut text = format!("Step {number}.");
                agent.user(&text);
                for _ in 0..2 {
                    // The answer is dropped.
                    assert_eq!(session(&agent.send().await), first, "{api:?} {name}");
                    text.push_str(" Error: every response has to contain a call.");
                    *agent.history.last_mut().unwrap() = api.user(&text);
                }
                assert_eq!(round(&mut agent).await, first, "{api:?} {name}");
            }
            // Back to a message of long ago.
            agent.history.truncate(length);
            agent.user("Another way.");
            assert_eq!(round(&mut agent).await, first, "{api:?} {name}");
            assert_eq!(gateway.metric("contexture_branches_total").await, 0.0);
            assert_eq!(gateway.metric("contexture_unproven_total").await, 0.0);
            stage.nothing_was_refused();
        }
    }
}

/// A client whose gateway hangs sends its request to another one. The first gateway wakes up later, and takes up what
/// nobody waits for any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_late_takes_no_session_from_its_line() {
    for api in APIS {
        for (name, rounds) in [("s", 1), ("", 2), ("s", 3)] {
            let (stage, gateway, mut agent, first) = begun_shortly(api, name).await;
            for number in 0..4 {
                agent.user(&format!("Go on, {number}."));
                let late = agent.clone();
                for more in 0..rounds {
                    assert_eq!(round(&mut agent).await, first, "{api:?} {name} {number}");
                    agent.user(&format!("More, {more}."));
                }
                late.send().await;
                assert_eq!(round(&mut agent).await, first, "{api:?} {name} {number}");
            }
            assert_eq!(gateway.metric("contexture_branches_total").await, 0.0);
            stage.nothing_was_refused();
        }
    }
}

/// A gateway that dies after it noted an answer, and before the client had it.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_whose_answer_did_not_arrive_stays_in_its_session() {
    for api in APIS {
        for name in ["", "s"] {
            let (stage, gateway, mut agent, first) = begun_shortly(api, name).await;
            for number in 0..4 {
                agent.user(&format!("Go on, {number}."));
                for _ in 0..2 {
                    assert_eq!(session(&agent.send().await), first, "{api:?} {name}");
                }
                assert_eq!(round(&mut agent).await, first, "{api:?} {name}");
            }
            assert_eq!(gateway.metric("contexture_unproven_total").await, 0.0);
            stage.nothing_was_refused();
        }
    }
}

/// A client that sends no name and keeps only the end of its history. Each task ends with a text, and begins with what is
/// left of the one before it.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_name_a_history_that_is_cut_between_tasks_stays_in_its_session() {
    // Calls of Gemini have no ids.
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let (stage, gateway) = working(Stage::new("")).await;
        stage
            .provider
            .answer_with(|request| match request.last_text().contains("Task") {
                true => works(request),
                false => Answer::text("All done."),
            });
        let mut agent = Agent::new(api, &gateway.base, "");
        let mut sessions = BTreeSet::new();
        for number in 0..4 {
            agent.user(&format!("Task {number}."));
            for _ in 0..2 {
                sessions.insert(round(&mut agent).await);
            }
            let is_call = |item: &serde_json::Value| item.to_string().contains("make");
            let last = agent.history.iter().rposition(is_call).unwrap();
            agent.history.drain(..last);
            agent
                .history
                .insert(0, api.user(&format!("Part {number}.")));
        }
        assert_eq!(sessions.len(), 1, "{api:?}: {sessions:?}");
        assert_eq!(gateway.metric("contexture_unproven_total").await, 0.0);
        stage.nothing_was_refused();
    }
}

/// With a token the name is enough, but a crew has one name and one task for all of its agents.
#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_crew_with_a_token_have_sessions_of_their_own() {
    // Any variable will do that cargo sets.
    let tokens = "gateway: {tokens: {alice: CARGO_MANIFEST_DIR}}\n";
    let token = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    for says_the_same in [true, false] {
        for (api, name) in APIS.into_iter().zip(["s", "", "s", ""]) {
            let (stage, gateway) = working(Stage::new(tokens)).await;
            if says_the_same {
                stage.provider.answer_with(|_| Answer::text("Yes."));
            }
            let new = |role: &str| {
                let mut agent = Agent::new(api, &gateway.base, name);
                agent
                    .headers
                    .push(("x-contexture-token".to_owned(), token.clone()));
                agent.system = format!("You are the {role}.");
                agent.user(TASK);
                agent
            };
            let mut crew: Vec<Agent> = ["writer", "critic", "editor", "printer"].map(new).into();
            let mut seen: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
            for number in 0..3 {
                for (at, agent) in crew.iter_mut().enumerate() {
                    let id = round(agent).await;
                    seen.entry(at).or_default().insert(id);
                    if says_the_same {
                        agent.user(&format!("On with {at}.{number}."));
                    }
                }
            }
            let all: BTreeSet<&String> = seen.values().flatten().collect();
            assert_eq!(all.len(), crew.len(), "{api:?} {name}: {seen:?}");
            assert!(
                seen.values().all(|own| own.len() == 1),
                "{api:?} {name}: {seen:?}"
            );
            // The time in the system prompt makes no other agent of it.
            let mut one = crew.swap_remove(0);
            for minute in 0..4 {
                one.system = format!("You are the writer. It is 12:0{minute}.");
                let id = round(&mut one).await;
                assert!(seen[&0].contains(&id), "{api:?} {name}: {id} {seen:?}");
                if says_the_same {
                    one.user("On.");
                }
            }
            stage.nothing_was_refused();
        }
    }
}

/// Everything by which a conversation is found is stored with its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_where_it_is_copied_to_and_leaves_nothing_when_it_is_deleted() {
    for name in ["", "work"] {
        let (stage, gateway) = working(lcm_stage("")).await;
        let (_, other) = begun(Api::Chat, &gateway.base, "other").await;
        let (mut agent, id) = begun(Api::Chat, &gateway.base, name).await;
        gateway.stop().await;
        let (from, elsewhere) = (Record::open(stage.home.path()).unwrap(), lcm_stage(""));
        let to = Record::open(elsewhere.home.path()).unwrap();
        let mut names = [other.clone(), id.clone()];
        names.sort();
        assert_eq!(from.names().unwrap(), names);
        let copied = from.copy_session(&to, &id, false, Duration::ZERO).unwrap();
        assert_eq!(copied, CopyOutcome::Copied);
        let hold = from.hold(&id, Duration::ZERO).unwrap();
        from.forget(&id, &hold).unwrap();
        assert_eq!(from.names().unwrap(), [other]);
        drop((hold, from, to));
        // A conversation without a name is found by its last call.
        let is_call = |item: &serde_json::Value| item.to_string().contains("make");
        let last = agent.history.iter().rposition(is_call).unwrap();
        agent.history.drain(..last);
        agent
            .history
            .insert(0, Api::Chat.user("In short: it was done."));
        let (_elsewhere, gateway) = working(elsewhere).await;
        agent.base.clone_from(&gateway.base);
        assert_eq!(round(&mut agent).await, id);
    }
}

/// An agent that sends no name, and compacts its history with a request that says nothing of the session: in its place are
/// a summary in words of its own and the last round.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_name_the_last_call_leads_a_compacted_history_into_its_session() {
    // Calls of Gemini have no ids.
    for api in [Api::Chat, Api::Responses, Api::Messages] {
        let (stage, gateway) = working(lcm_stage("")).await;
        let (mut agent, first) = begun(api, &gateway.base, "").await;
        // The call is the last thing that the model wrote, and its result is the last message.
        let is_call = |item: &serde_json::Value| item.to_string().contains("make");
        let last = agent.history.iter().rposition(is_call).unwrap();
        let item = &agent.history[last];
        let id = match api {
            Api::Chat => &item["tool_calls"][0]["id"],
            Api::Responses => &item["call_id"],
            _ => &item["content"][1]["id"],
        };
        let id = id.as_str().unwrap().to_owned();
        let mut other = agent.clone();
        for number in 0..2 {
            let last = agent.history.iter().rposition(is_call).unwrap();
            agent.history.drain(..last);
            agent
                .history
                .insert(0, api.user(&format!("Summary {number}: it was done.")));
            for _ in 0..3 {
                let said = agent.go_on().await;
                assert_eq!(session(&said), first, "{api:?}");
                agent.results(&said, "It is done.");
            }
        }
        // A restart.
        gateway.stop().await;
        let gateway = stage.gateway().await;
        agent.base.clone_from(&gateway.base);
        assert_eq!(round(&mut agent).await, first, "{api:?}");
        // The model searches what was said before.
        let search = Answer::call("lcm_grep", json!({"pattern": "part of the task"}));
        stage.provider.script([search]);
        agent.go_on().await;
        let found = stage.provider.requests().pop().unwrap().last_text();
        assert!(found.contains(TASK), "{api:?}: {found}");
        // The round of somebody who has made it up.
        for at in [last, last + 1] {
            let item = other.history[at].to_string();
            let made_up = item.replace(&id, &id.replace(|c: char| c.is_ascii_digit(), "7"));
            other.history[at] = serde_json::from_str(&made_up).unwrap();
        }
        other.history.drain(..last);
        other.history.insert(0, api.user("Summary: it was done."));
        other.base.clone_from(&gateway.base);
        assert_ne!(round(&mut other).await, first, "{api:?}");
    }
}
