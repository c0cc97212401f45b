//! By what real agents say which session a request belongs to. What stands before a provider goes by it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::atomic::{AtomicBool, Ordering};

use contexture_provider_simulator::{Api, Coder, Options, Request, Simulator};
use contexture_real::{Agent, Place};
use serde_json::{Value, json};

fn provider(also: Option<(&str, Value)>) -> Simulator {
    let provider = Simulator::with(Options {
        window: Some(1_000_000),
        ..Options::default()
    });
    let alone = Coder {
        rounds: 3,
        result: 500,
        ..Coder::default()
    };
    let also = also
        .into_iter()
        .map(|(name, arguments)| (2, name.to_owned(), arguments));
    let coder = Coder {
        also: also.collect(),
        ..alone.clone()
    };
    let made = AtomicBool::new(false);
    provider.answer_with(move |request| {
        // Once: a subagent that has others, or a new one after each that is done, would be without an end.
        let answer = if made.load(Ordering::SeqCst) {
            alone.answer(request)
        } else {
            coder.answer(request)
        };
        made.fetch_or(
            coder.also.iter().any(|(_, name, _)| answer.calls(name)),
            Ordering::SeqCst,
        );
        answer
    });
    provider
}

/// The requests of one run that ask a model.
fn run(agent: Agent, place: &Place, provider: &Simulator, more: &[&str]) -> Vec<Request> {
    provider.forget();
    let ran = agent.ask(place, &provider.base_url(), "Check all modules.", more);
    assert!(ran.status.success(), "{ran:#?}");
    assert!(
        provider.violations().is_empty(),
        "{:#?}",
        provider.violations()
    );
    let asks =
        |request: &Request| matches!(request.api, Api::Messages | Api::Chat | Api::Responses);
    provider.requests().into_iter().filter(asks).collect()
}

/// What all of them have in this header.
fn shared(requests: &[Request], header: &str) -> String {
    let first = requests[0].header(header).unwrap().to_owned();
    assert!(
        requests
            .iter()
            .all(|request| request.header(header) == Some(&first))
    );
    first
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_names_its_session_in_a_header_and_in_the_metadata() {
    let agent = json!({"description": "Looks", "prompt": "Look at the rest.", "subagent_type": "general-purpose"});
    let provider = provider(Some(("Agent", agent)));
    let place = Place::new();
    let first = run(Agent::Claude, &place, &provider, &[]);
    let session = shared(&first, "x-claude-code-session-id");
    for request in &first {
        let user: Value =
            serde_json::from_str(request.json["metadata"]["user_id"].as_str().unwrap()).unwrap();
        assert_eq!(user["session_id"], session.as_str());
    }
    // Subagents have it, too, and a name of their own.
    let agents = first
        .iter()
        .filter(|request| request.header("x-claude-code-agent-id").is_some())
        .count();
    assert!(agents > 0 && agents < first.len());
    let resumed = run(Agent::Claude, &place, &provider, &["--resume", &session]);
    assert_eq!(shared(&resumed, "x-claude-code-session-id"), session);
    let forked = run(
        Agent::Claude,
        &place,
        &provider,
        &["--resume", &session, "--fork-session"],
    );
    assert_ne!(shared(&forked, "x-claude-code-session-id"), session);
}

#[test]
#[cfg_attr(not(installed_codex), ignore = "needs `tests/real/install codex`")]
fn codex_names_its_session_in_headers_and_in_the_cache_key() {
    let provider = provider(None);
    let requests = run(Agent::Codex, &Place::new(), &provider, &[]);
    let session = shared(&requests, "session-id");
    assert_eq!(shared(&requests, "thread-id"), session);
    assert_eq!(
        shared(&requests, "x-codex-window-id"),
        format!("{session}:0")
    );
    assert!(
        requests
            .iter()
            .all(|request| request.json["prompt_cache_key"] == session.as_str())
    );
    assert!(
        requests
            .iter()
            .all(|request| request.json["store"] == false)
    );
}

#[test]
#[cfg_attr(
    not(installed_opencode),
    ignore = "needs `tests/real/install opencode`"
)]
fn opencode_names_its_session_in_headers_of_side_calls_too() {
    let provider = provider(None);
    let requests = run(Agent::Opencode, &Place::new(), &provider, &[]);
    assert_eq!(
        shared(&requests, "x-session-id"),
        shared(&requests, "x-session-affinity")
    );
    let titles = requests
        .iter()
        .filter(|request| request.tool_names().is_empty())
        .count();
    assert_eq!(titles, 1);
}

/// Whether anything in a request says which session it belongs to.
fn names_a_session(request: &Request) -> bool {
    let header = request
        .headers
        .iter()
        .any(|(name, _)| name.contains("session") || name.contains("thread"));
    header
        || ["metadata", "prompt_cache_key", "user", "conversation"]
            .iter()
            .any(|key| !request.json[*key].is_null())
}

#[test]
#[cfg_attr(not(installed_hermes), ignore = "needs `tests/real/install hermes`")]
fn hermes_names_no_session() {
    let requests = run(Agent::Hermes, &Place::new(), &provider(None), &[]);
    assert!(requests.len() > 3 && !requests.iter().any(names_a_session));
}

#[test]
#[cfg_attr(not(installed_aider), ignore = "needs `tests/real/install aider`")]
fn aider_names_no_session() {
    let requests = run(Agent::Aider, &Place::new(), &provider(None), &[]);
    assert!(!requests.is_empty() && !requests.iter().any(names_a_session));
}
