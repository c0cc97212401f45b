//! Real agents through the gateway, which keeps their sessions in a window far smaller than they are: the conversation
//! that the agent sees is whole, the provider refuses nothing, and nothing failed open.
#![allow(clippy::unwrap_used, missing_docs)]

use contexture::HostOptions;
use contexture_gateway::Gateway;
use contexture_real::{Agent, long_session, official_clients};
use contexture_stand_in::{Options, StandIn};

/// The window that the gateway keeps to, in tokens; the sessions hold more than three times as much.
const WINDOW: u64 = 32_000;

/// How often `name` with `label` was counted.
fn metric(page: &str, name: &str, label: &str) -> f64 {
    let lines = (page.lines()).filter(|line| line.starts_with(name) && line.contains(label));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum()
}

/// Has `play` use a gateway before the provider; answers the gateway's metrics after it.
fn before(provider: &StandIn, engine: &str, play: impl FnOnce(&str)) -> String {
    let base = provider.base_url();
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "upstream: {{openai: {{base_url: \"{base}/v1\"}}, anthropic: {{base_url: \"{base}\"}}}}\n\
         context: {{engine: {engine}, on_failure: fail}}\nmodel: {{context_length: {WINDOW}}}\n"
    );
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let (address, served) = std::sync::mpsc::channel();
    let options = HostOptions::in_home(home.path());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
            let base = format!("http://{}", gateway.address());
            gateway
                .serve(|handle| address.send((base, handle)).unwrap())
                .await
                .unwrap();
        });
    });
    let (gateway, handle) = served.recv().unwrap();
    play(&gateway);
    let page = reqwest::blocking::get(format!("{gateway}/metrics"))
        .unwrap()
        .text()
        .unwrap();
    handle.stop();
    page
}

fn through_the_gateway(agent: Agent, engine: &str) {
    let provider = StandIn::with(Options {
        window: Some(WINDOW),
        piece: 1000,
        ..Options::default()
    });
    let page = before(&provider, engine, |gateway| {
        long_session(agent, &provider, gateway);
    });
    let compactions = metric(
        &page,
        "contexture_compactions_total",
        "outcome=\"compacted\"",
    );
    assert!(compactions >= 3.0, "{compactions} compactions: {page}");
    let open = metric(&page, "contexture_failed_open_total", "");
    assert_eq!(open, 0.0, "{page}");
}

#[test]
#[cfg_attr(not(installed_clients), ignore = "needs `tests/real/install clients`")]
fn the_official_clients_understand_every_answer_of_the_gateway() {
    official_clients(|provider, ask| {
        let page = before(provider, "lcm", ask);
        let managed = metric(&page, "contexture_requests_total", "outcome=\"managed\"");
        assert!(managed > 18.0, "{page}");
    });
}

#[test]
#[cfg_attr(not(installed_aider), ignore = "needs `tests/real/install aider`")]
fn aider_is_kept_in_a_small_window() {
    through_the_gateway(Agent::Aider, "lcm");
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_is_kept_in_a_small_window() {
    through_the_gateway(Agent::Claude, "lcm");
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_is_kept_in_a_small_window_by_the_built_in() {
    through_the_gateway(Agent::Claude, "compressor");
}

#[test]
#[cfg_attr(not(installed_codex), ignore = "needs `tests/real/install codex`")]
fn codex_is_kept_in_a_small_window() {
    through_the_gateway(Agent::Codex, "lcm");
}

#[test]
#[cfg_attr(
    not(installed_opencode),
    ignore = "needs `tests/real/install opencode`"
)]
fn opencode_is_kept_in_a_small_window() {
    through_the_gateway(Agent::Opencode, "lcm");
}

#[test]
#[cfg_attr(not(installed_hermes), ignore = "needs `tests/real/install hermes`")]
fn hermes_is_kept_in_a_small_window() {
    through_the_gateway(Agent::Hermes, "lcm");
}
