//! Real agents against the simulator alone: what it takes for right is what they send, and what it says they understand.
#![allow(missing_docs)]

use contexture_provider_simulator::{Options, Simulator};
use contexture_real::{Agent, LONG, long_session};

fn alone(agent: Agent) {
    // In pieces that end anywhere.
    let provider = Simulator::with(Options {
        window: Some(1_000_000),
        piece: 1000,
        ..Options::default()
    });
    long_session(agent, &provider, &provider.base_url());
    // Everybody resends all of it.
    let largest = provider
        .requests()
        .iter()
        .map(|request| request.body.len())
        .max();
    assert!(
        largest.is_some_and(|bytes| bytes / 4 > LONG),
        "{largest:?} bytes are no long session"
    );
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_plays_a_long_session() {
    alone(Agent::Claude);
}

#[test]
#[cfg_attr(not(installed_codex), ignore = "needs `tests/real/install codex`")]
fn codex_plays_a_long_session() {
    alone(Agent::Codex);
}

#[test]
#[cfg_attr(
    not(installed_opencode),
    ignore = "needs `tests/real/install opencode`"
)]
fn opencode_plays_a_long_session() {
    alone(Agent::Opencode);
}

#[test]
#[cfg_attr(not(installed_hermes), ignore = "needs `tests/real/install hermes`")]
fn hermes_plays_a_long_session() {
    alone(Agent::Hermes);
}

#[test]
#[cfg_attr(not(installed_aider), ignore = "needs `tests/real/install aider`")]
fn aider_plays_a_long_chat() {
    alone(Agent::Aider);
}
