//! Real agents that `contexture setup` made to call Contexture when they compact: the session goes on with what the
//! engine made of the conversation, and after the undo the agent's settings are as before.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use contexture_provider_simulator::{Coder, Options, Request, Simulator};
use contexture_real::{Agent, Place, Ran, accepted, installed, programs, run};

/// How the text of the engine begins, wherever an agent puts it.
const OURS: &str = "[Contexture] The conversation up to here";

/// The name of an agent's program, and the settings files of the user that it has before. `BASE` in them is the
/// provider's address.
fn about(agent: Agent) -> (&'static str, &'static [(&'static str, &'static str)]) {
    match agent {
        Agent::Claude => (
            "claude",
            &[(
                ".claude/settings.json",
                "{\r\n  \"cleanupPeriodDays\": 99,\r\n  \"hooks\": {}\r\n}\r\n",
            )],
        ),
        Agent::Codex => (
            "codex",
            &[(
                ".codex/config.toml",
                "# mine\nmodel = \"gpt-5.2-codex\" # the best\nmodel_provider = \"gw\"\nmodel_context_window = 64000\n\n\
                 [model_providers.gw]\nname = \"gw\"\nbase_url = \"BASE/v1\"\nenv_key = \"GW_KEY\"\n\
                 wire_api = \"responses\"\n",
            )],
        ),
        Agent::Opencode => (
            "opencode",
            &[(
                ".config/opencode/opencode.jsonc",
                "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  // mine\n  \"share\": \"disabled\",\n}\n",
            )],
        ),
        Agent::Pi => (
            "pi",
            &[(".pi/agent/settings.json", "{\"theme\": \"dark\"}")],
        ),
        _ => unreachable!("{agent:?} is not set up here"),
    }
}

fn contexture(place: &Place, agent: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(programs().join("contexture"));
    let programs = installed().join(agent).join("node_modules/.bin");
    let path = std::env::var("PATH").unwrap_or_default();
    command
        .args(arguments)
        .env("HOME", place.home())
        .env("PATH", format!("{}:{path}", programs.display()))
        .current_dir(place.work());
    run(command)
}

/// The settings of all agents in a home: everything that `setup` may touch.
fn settings(home: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = [
        ".claude/settings.json",
        ".claude/commands",
        ".claude/commands/contexture.md",
        ".codex/config.toml",
        ".codex/hooks.json",
        ".config/opencode/opencode.jsonc",
        ".config/opencode/opencode.json",
        ".config/opencode/plugins",
        ".config/opencode/plugins/contexture.js",
        ".pi/agent/settings.json",
        ".pi/agent/mcp.json",
        ".pi/agent/extensions",
        ".pi/agent/extensions/contexture.ts",
    ];
    let there = files.map(|file| home.join(file)).into_iter();
    there
        .filter(|path| path.exists())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap_or_default()))
        .collect()
}

/// Sets an agent up in a home of its own, has `play` use it, and undoes it.
fn set_up(agent: Agent, provider: &Simulator, play: impl FnOnce(&Place)) {
    let (name, files) = about(agent);
    let mut place = Place::new();
    place.window = 64_000;
    place.keeps = true;
    for (file, text) in files {
        let file = place.home().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text.replace("BASE", &provider.base_url())).unwrap();
    }
    let before = settings(place.home());
    let done = contexture(&place, name, &["setup", name, "--yes"]);
    assert!(done.status.success(), "{done:#?}");
    assert!(settings(place.home()).len() > before.len(), "{done:#?}");
    let again = contexture(&place, name, &["setup", name, "--yes"]);
    assert!(again.stdout.contains("already set up"), "{again:#?}");
    let listed = contexture(&place, name, &["setup"]);
    let line = listed.stdout.lines().find(|line| line.starts_with(name));
    assert!(line.unwrap().contains("hooks"), "{listed:#?}");
    play(&place);
    let undone = contexture(&place, name, &["setup", "--undo", name, "--yes"]);
    assert!(undone.status.success(), "{undone:#?}");
    // What the agent itself wrote in the meantime is not ours.
    let after = settings(place.home());
    for (path, text) in &before {
        assert_eq!(after.get(path), Some(text), "{}", path.display());
    }
    for (path, text) in &after {
        let text = String::from_utf8_lossy(text);
        let is_ours = text.contains("contexture");
        assert!(!is_ours, "{}: {text}", path.display());
    }
    // Claude Code writes this file anew all the time.
    let own = std::fs::read_to_string(place.home().join(".claude.json"));
    assert!(!own.unwrap_or_default().contains("--agent"));
}

fn simulator(rounds: u64) -> (Simulator, Coder) {
    let provider = Simulator::with(Options {
        window: Some(200_000),
        piece: 1000,
        ..Options::default()
    });
    let coder = Coder {
        rounds,
        ..Coder::default()
    };
    let model = coder.clone();
    provider.answer_with(move |request| model.answer(request));
    (provider, coder)
}

fn body(request: &Request) -> String {
    String::from_utf8_lossy(&request.body).into_owned()
}

/// The requests in which the agent works, as opposed to those for titles and summaries.
fn working(provider: &Simulator) -> Vec<Request> {
    let requests = provider.requests().into_iter();
    requests
        .filter(|request| !request.tool_names().is_empty())
        .collect()
}

/// A session that is longer than the window: the agent compacts on its own.
fn compacts_while_it_works(agent: Agent, more: &[&str]) {
    let (provider, coder) = simulator(60);
    set_up(agent, &provider, |place| {
        let ran = agent.ask(place, &provider.base_url(), "Check all modules.", more);
        accepted(&ran, &provider);
        assert!(ran.stdout.contains(&coder.last_words()), "{ran:#?}");
        let working = working(&provider);
        let ours = working
            .iter()
            .filter(|request| body(request).contains(OURS));
        assert!(
            ours.count() > 0,
            "the engine's text is in none of {} requests; {}",
            working.len(),
            ran.stderr
        );
        let largest = working.iter().map(|request| request.body.len()).max();
        assert!(largest.unwrap() / 4 < 100_000, "{largest:?}");
        let (name, _) = about(agent);
        let sessions = contexture(place, name, &["sessions", "list"]);
        assert!(
            sessions.stdout.contains(&format!("{name}-")),
            "{sessions:#?}"
        );
    });
}

#[test]
#[cfg_attr(not(installed_claude), ignore = "needs `tests/real/install claude`")]
fn claude_code_goes_on_with_what_the_engine_keeps() {
    let (provider, _) = simulator(8);
    set_up(Agent::Claude, &provider, |place| {
        let base = provider.base_url();
        let ran = Agent::Claude.ask(place, &base, "Check all modules.", &[]);
        accepted(&ran, &provider);
        let ran = Agent::Claude.ask(place, &base, "/compact", &["--continue"]);
        assert!(ran.status.success(), "{ran:#?}");
        let summary = provider.requests().pop().unwrap();
        assert!(
            body(&summary).contains("kept by Contexture"),
            "the instructions of the hook are not in the request for a summary: {ran:#?}"
        );
        let ran = Agent::Claude.ask(place, &base, "Go on.", &["--continue"]);
        accepted(&ran, &provider);
        let last = working(&provider).pop().unwrap();
        assert!(body(&last).contains(OURS), "{}", body(&last));
        assert!(
            body(&last).contains("Check all modules."),
            "{}",
            body(&last)
        );
    });
}

#[test]
#[cfg_attr(not(installed_codex), ignore = "needs `tests/real/install codex`")]
fn codex_goes_on_with_what_the_engine_keeps() {
    compacts_while_it_works(Agent::Codex, &["--dangerously-bypass-hook-trust"]);
}

/// Those that take too long for every change: `.ci/long` runs them.
mod long {
    use super::*;

    #[test]
    #[ignore = "long, and needs `tests/real/install opencode`"]
    fn opencode_goes_on_with_what_the_engine_keeps() {
        compacts_while_it_works(Agent::Opencode, &[]);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install pi`"]
    fn pi_goes_on_with_what_the_engine_keeps() {
        compacts_while_it_works(Agent::Pi, &[]);
    }

    /// The hook fails because Contexture's own configuration is wrong.
    #[test]
    #[ignore = "long, and needs `tests/real/install pi`"]
    fn a_hook_that_fails_leaves_pi_its_own_compaction() {
        let (provider, coder) = simulator(60);
        set_up(Agent::Pi, &provider, |place| {
            let config = place.home().join(".contexture/config.yaml");
            std::fs::create_dir_all(config.parent().unwrap()).unwrap();
            std::fs::write(&config, "context: [").unwrap();
            let ran = Agent::Pi.ask(place, &provider.base_url(), "Check all modules.", &[]);
            accepted(&ran, &provider);
            assert!(ran.stdout.contains(&coder.last_words()), "{ran:#?}");
            assert!(ran.stderr.contains("own compaction is used"), "{ran:#?}");
            let requests = provider.requests();
            assert!(requests.iter().all(|request| !body(request).contains(OURS)));
            std::fs::remove_file(config).unwrap();
        });
    }
}
