//! Real agents through the gateway, which keeps their sessions in a window far smaller than they are: the conversation
//! that the agent sees is whole, the provider refuses nothing, and nothing failed open.
#![allow(clippy::unwrap_used, missing_docs)]

use contexture::HostOptions;
use contexture_gateway::Gateway;
use contexture_provider_simulator::{Answer, Coder, Options, Simulator};
use contexture_real::{Agent, Place, long_session, official_clients};
use serde_json::Value;

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
fn before(provider: &Simulator, engine: &str, play: impl FnOnce(&str)) -> String {
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
                .await;
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
    let provider = Simulator::with(Options {
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

/// Has an agent work, and go on in other runs, by these questions and options. All of it is one session.
fn is_one_session(agent: Agent, runs: &[(&str, &[&str])]) {
    let provider = Simulator::with(Options {
        window: Some(1_000_000),
        ..Options::default()
    });
    let coder = Coder {
        rounds: 3,
        ..Coder::default()
    };
    let line = |number: u32| {
        format!(
            "{number}. The module {} has {} tests, which pass.",
            number * 7919,
            number * 31
        )
    };
    let summary: Vec<String> = (1..20).map(line).collect();
    let summary = format!("<summary>\n{}\n</summary>", summary.join("\n"));
    provider.answer_with(move |request| {
        let text = request.last_text();
        let asks =
            text.contains("create a detailed summary") || text.contains("CONTEXT CHECKPOINT");
        match asks {
            true => Answer::text(summary.clone()),
            false => coder.answer(request),
        }
    });
    let place = Place::new();
    before(&provider, "lcm", |gateway| {
        for (prompt, more) in runs {
            let ran = agent.ask(&place, gateway, prompt, more);
            assert!(ran.status.success(), "{prompt}: {ran:#?}");
        }
        let told = reqwest::blocking::get(format!("{gateway}/contexture/sessions")).unwrap();
        let told: Value = serde_json::from_str(&told.text().unwrap()).unwrap();
        let sessions = told["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{told:#}");
        let turns = sessions[0]["turns"].as_u64().unwrap();
        assert!(turns > runs.len() as u64, "{told:#}");
    });
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_goes_on_in_its_session_after_its_own_compaction_too() {
    let on: &[&str] = &["--continue"];
    is_one_session(
        Agent::ClaudeSonnet,
        &[
            ("Check all modules.", &[]),
            ("Check them again.", on),
            ("/compact", on),
            ("Check the rest.", on),
        ],
    );
}

#[test]
#[cfg_attr(not(installed_codex), ignore = "needs `tests/real/install codex`")]
fn codex_goes_on_in_its_session() {
    // The options of `exec` stand before what is the name of a command here.
    is_one_session(
        Agent::Codex,
        &[
            ("Check all modules.", &[]),
            ("resume", &["--last", "Check them again."]),
            ("resume", &["--last", "Check the rest."]),
        ],
    );
}

#[test]
#[cfg_attr(
    not(installed_opencode),
    ignore = "needs `tests/real/install opencode`"
)]
fn opencode_goes_on_in_its_session() {
    is_one_session(
        Agent::Opencode,
        &[
            ("Check all modules.", &[]),
            ("Check them again.", &["--continue"]),
        ],
    );
}
