//! Real agents that `contexture setup` set up. If they call Contexture when they compact, the session goes on with what
//! the engine made of the conversation. If they use the gateway, it keeps the session in a small window. If they have the
//! history tools, these answer. After the undo the agent's settings are as before.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use contexture_provider_simulator::{Answer, Coder, Options, Request, Simulator};
use contexture_real::processes::{Provider, serve};
use contexture_real::{
    Agent, Place, Ran, accepted, installed, log_in_to_cline, log_in_to_codex, programs, run,
};
use serde_json::{Value, json};

/// How the text of the engine begins, wherever an agent puts it.
const OURS: &str = "[Contexture] The conversation up to here";

/// The name of an agent's program, and the settings files of the user that it has before. `ADDRESS` in them is the
/// provider's address, and `WINDOW` the model's window.
fn about(agent: Agent) -> (&'static str, &'static [(&'static str, &'static str)]) {
    match agent {
        Agent::Claude => (
            "claude",
            &[(
                ".claude/settings.json",
                "{\r\n  \"cleanupPeriodDays\": 99,\r\n  \"env\": {\"ANTHROPIC_BASE_URL\": \"ADDRESS\"},\r\n  \
                 \"hooks\": {}\r\n}\r\n",
            )],
        ),
        Agent::Codex => (
            "codex",
            &[(
                ".codex/config.toml",
                "# mine\nmodel = \"gpt-5.2-codex\" # the best\nmodel_provider = \"gw\"\nmodel_context_window = WINDOW\n\n\
                 [model_providers.gw]\nname = \"gw\"\nbase_url = \"ADDRESS/v1\"\nenv_key = \"GW_KEY\"\n\
                 wire_api = \"responses\"\n",
            )],
        ),
        Agent::CodexDefault => (
            "codex",
            &[(
                ".codex/config.toml",
                "# mine\nopenai_base_url = \"ADDRESS/v1\" # the usual one\n",
            )],
        ),
        // Where the login is looked up is not what is set up.
        Agent::CodexLogin => (
            "codex",
            &[(
                ".codex/config.toml",
                "# mine\nchatgpt_base_url = \"ADDRESS/backend-api\"\n",
            )],
        ),
        Agent::OpencodeOpenai => (
            "opencode",
            &[(
                ".config/opencode/opencode.json",
                "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"provider\": {\n    \"openai\": {\n      \
                 \"models\": {\"m\": {\"limit\": {\"context\": WINDOW, \"output\": 8000}}}\n    }\n  }\n}\n",
            )],
        ),
        Agent::PiAnthropic => (
            "pi",
            &[(
                ".pi/agent/models.json",
                "{\"providers\": {\"anthropic\": {\"baseUrl\": \"ADDRESS\"}}}",
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
        Agent::Qwen => (
            "qwen",
            &[(
                ".qwen/settings.json",
                "{\n  \"$version\": 4,\n  // mine\n  \"security\": {\n    \"auth\": {\"selectedType\": \"openai\", \
                 \"baseUrl\": \"ADDRESS/v1\"}\n  },\n  \
                 \"model\": {\"name\": \"m\", \"generationConfig\": {\"contextWindowSize\": WINDOW}}\n}\n",
            )],
        ),
        Agent::Openclaw => (
            "openclaw",
            &[(
                ".openclaw/openclaw.json",
                "{\n  // mine\n  models: { providers: { openai: { baseUrl: 'ADDRESS/v1', models: [], }, }, },\n}\n",
            )],
        ),
        Agent::Gemini => (
            "gemini",
            &[(
                ".gemini/settings.json",
                "{\n  // mine\n  \"security\": {\"auth\": {\"selectedType\": \"gemini-api-key\"}}\n}\n",
            )],
        ),
        Agent::Aider => (
            "aider",
            &[(
                ".aider.conf.yml",
                "# mine\nopenai-api-base: ADDRESS/v1\nset-env:\n  - MINE=1 # kept\n",
            )],
        ),
        // It writes its settings when it is logged in.
        Agent::Cline => ("cline", &[]),
        Agent::Hermes => (
            "hermes",
            &[(
                ".hermes/config.yaml",
                "# mine\nmodel:\n  default: m # the best\n  provider: custom\n  base_url: ADDRESS/v1\n  api_key: x\n  \
                 context_length: 1000000\nagent:\n  max_turns: 500\n",
            )],
        ),
        _ => unreachable!("{agent:?} is not set up here"),
    }
}

fn contexture(place: &Place, agent: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(programs().join("contexture"));
    let folder = installed().join(agent);
    let (node, python) = (folder.join("node_modules/.bin"), folder.join("bin"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}", node.display(), python.display());
    command
        .args(arguments)
        .env("HOME", place.home())
        .env("PATH", path)
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
        ".openclaw/openclaw.json",
        ".openclaw/extensions",
        ".openclaw/extensions/contexture/index.js",
        ".openclaw/extensions/contexture/openclaw.plugin.json",
        ".pi/agent/settings.json",
        ".pi/agent/models.json",
        ".pi/agent/mcp.json",
        ".pi/agent/extensions",
        ".pi/agent/extensions/contexture.ts",
        ".qwen/settings.json",
        ".gemini/settings.json",
        ".gemini/.env",
        ".aider.conf.yml",
        ".cline/data/settings/providers.json",
        ".cline/data/settings/cline_mcp_settings.json",
        ".hermes/config.yaml",
    ];
    let there = files.map(|file| home.join(file)).into_iter();
    there
        .filter(|path| path.exists())
        .map(|path| (path.clone(), untimed(&path)))
        .collect()
}

/// The bytes of a file, without the line in which Cline notes when it last wrote its settings.
fn untimed(path: &Path) -> Vec<u8> {
    let text = std::fs::read(path).unwrap_or_default();
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let is_time = |line: &[u8]| String::from_utf8_lossy(line).contains("\"updatedAt\"");
    lines
        .filter(|line| !is_time(line))
        .flatten()
        .copied()
        .collect()
}

/// Sets an agent up in a home of its own, has `play` use it, and undoes it.
fn set_up(agent: Agent, provider: &Simulator, play: impl FnOnce(&Place)) {
    let mut place = Place::new();
    place.window = 64_000;
    set_up_in(&mut place, agent, &provider.base_url(), &[], play);
}

/// The same with more arguments for `setup`, in a home that may have a configuration of Contexture.
fn set_up_in(
    place: &mut Place,
    agent: Agent,
    base_url: &str,
    more: &[&str],
    play: impl FnOnce(&Place),
) {
    let (name, files) = about(agent);
    for (file, text) in files {
        let file = place.home().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = text.replace("ADDRESS", base_url);
        std::fs::write(file, text.replace("WINDOW", &place.window.to_string())).unwrap();
    }
    match agent {
        Agent::Cline => log_in_to_cline(place, base_url),
        Agent::CodexLogin => log_in_to_codex(place),
        _ => {}
    }
    place.keeps = true;
    let before = settings(place.home());
    let line = [&["setup", name, "--yes"], more].concat();
    let done = contexture(place, name, &line);
    assert!(done.status.success(), "{done:#?}");
    assert_ne!(settings(place.home()), before, "{done:#?}");
    let again = contexture(place, name, &line);
    assert!(again.stdout.contains("already set up"), "{again:#?}");
    let listed = contexture(place, name, &["setup"]);
    let line = listed.stdout.lines().find(|line| line.starts_with(name));
    assert!(!line.unwrap().contains(" no "), "{listed:#?}");
    play(place);
    let undone = contexture(place, name, &["setup", "--undo", name, "--yes"]);
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

/// A session of an agent that takes its address from its settings alone, with a gateway and a provider in processes of
/// their own. It is far longer than the window, and nothing is refused.
fn works_through_the_gateway(agent: Agent) {
    let (window, steps, result) = (64_000, 24, 12_000);
    let provider = Provider::start(window, steps, result, agent);
    // The agent believes in a larger window, so it does not compact before the gateway does.
    let mut place = Place::new();
    let home = place.home().join(".contexture");
    provider.configure(&home, "lcm", window);
    let gateway = serve(&home);
    let config = std::fs::read_to_string(home.join("config.yaml")).unwrap();
    let listen = format!("{config}gateway: {{listen: \"{}\"}}\n", gateway.address);
    std::fs::write(home.join("config.yaml"), listen).unwrap();
    let more = ["--gateway", "--replace"];
    set_up_in(&mut place, agent, &provider.base_url(), &more, |place| {
        let nowhere = "http://127.0.0.1:9";
        let ran = match agent {
            Agent::Aider => {
                let questions = (0..steps).map(|at| format!("This is question {at}."));
                let questions: Vec<String> = questions.collect();
                let ran = agent.converse(place, nowhere, &questions);
                let model = [
                    "--model",
                    "anthropic/claude-sonnet-4-5",
                    "--anthropic-api-key",
                    "x",
                    "--no-restore-chat-history",
                ];
                let other = agent.ask(place, nowhere, "This is question 99.", &model);
                assert!(other.status.success(), "{other:#?}");
                ran
            }
            _ => agent.ask(place, nowhere, "Check all modules.", &[]),
        };
        assert!(ran.status.success(), "{ran:#?}");
        let report = provider.report();
        for kind in ["violations", "overflows"] {
            assert_eq!(report[kind], json!([]), "{}", ran.stderr);
        }
        let words = report["last_words"].as_str().unwrap();
        let words = words.split(" — ").next().unwrap();
        let requests = report["requests"].as_array().unwrap();
        match agent {
            Agent::Aider => {
                let asks = |api: &str| requests.iter().filter(|one| one["api"] == api).count();
                assert!(
                    asks("Chat") as u64 >= steps && asks("Messages") > 0,
                    "{report:#}"
                );
            }
            _ => assert!(ran.stdout.contains(words), "{ran:#?}"),
        }
        let page = reqwest::blocking::get(format!("http://{}/metrics", gateway.address));
        let page = page.unwrap().text().unwrap();
        let mut lines = page.lines();
        let compactions = lines.find(|line| {
            line.starts_with("contexture_compactions_total") && line.contains("\"compacted\"")
        });
        let compactions = compactions.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        assert!(compactions >= Some(1.0), "{page}");
    });
}

#[test]
#[cfg_attr(not(installed_aider), ignore = "needs `tests/real/install aider`")]
fn aider_works_through_the_gateway() {
    works_through_the_gateway(Agent::Aider);
}

#[test]
#[cfg_attr(not(installed_hermes), ignore = "needs `tests/real/install hermes`")]
fn hermes_works_through_the_gateway() {
    works_through_the_gateway(Agent::Hermes);
}

/// How a summary begins in a window of messages.
const SUMMARY_MARK: &str = "[CONTEXT COMPACTION]";

/// What the user says once, at the beginning.
const SECRET: &str = "The word for today is tulip-4711.";

/// The model's window as OpenClaw's catalog has it, in which a task takes more than half. From the second one on, the
/// engine has compacted. A tool of the engine finds what the user said at the beginning.
#[test]
#[cfg_attr(
    not(installed_openclaw),
    ignore = "needs `tests/real/install openclaw`"
)]
fn openclaw_sends_the_window_of_the_engine() {
    let window = 272_000;
    let search = json!({"id": "lcm_grep", "args": {"pattern": "tulip"}}).to_string();
    let also = ["--also", "11", "tool_call", &search];
    let provider = Provider::start_with(window, 12, 44_000, &also);
    let mut place = Place::new();
    let home = place.home().join(".contexture");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("config.yaml"), "context: {engine: lcm}\n").unwrap();
    let base = provider.base_url();
    set_up_in(&mut place, Agent::Openclaw, &base, &[], |place| {
        for task in [
            &format!("{SECRET} Check all modules."),
            "Check them again.",
            "And again.",
        ] {
            let ran = Agent::Openclaw.ask(place, &base, task, &[]);
            assert!(ran.status.success(), "{ran:#?}");
            let report = provider.report();
            for kind in ["violations", "overflows"] {
                assert_eq!(report[kind], json!([]), "{}", ran.stderr);
            }
            let words = report["last_words"].as_str().unwrap();
            assert!(ran.stdout.contains(words), "{ran:#?}");
            assert!(!ran.stderr.contains("own compaction is used"), "{ran:#?}");
        }
        let report = provider.report();
        let requests = report["requests"].as_array().unwrap().iter();
        let bodies: Vec<_> = requests.map(|request| provider.body(request)).collect();
        // The first item is the system prompt. Requests without tools are for titles and the like.
        let of_task = |task: &str| -> Vec<&[Value]> {
            let working = bodies.iter().filter(|body| body["tools"].is_array());
            let items = working.filter_map(|body| body["input"].as_array()?.get(1..));
            items
                .filter(|items| items.iter().any(|item| item.to_string().contains(task)))
                .collect()
        };
        let second = of_task("Check them again.");
        let compacted = |items: &&[Value]| {
            items
                .iter()
                .any(|item| item.to_string().contains(SUMMARY_MARK))
        };
        assert!(
            second.len() > 12 && second.iter().all(compacted),
            "{}",
            second.len()
        );
        let third = of_task("And again.");
        let begins = |items: &&[Value]| {
            let text = items[0]["content"][0]["text"].as_str().unwrap_or_default();
            text.starts_with(SUMMARY_MARK)
        };
        assert!(
            third.len() > 12 && third.iter().all(begins),
            "{}",
            third.len()
        );
        let found = third.iter().flat_map(|items| items.iter()).any(|item| {
            item["type"] == "function_call_output" && item.to_string().contains("tulip-4711")
        });
        assert!(found, "lcm_grep does not find what the user said first");
        let sessions = contexture(place, "openclaw", &["sessions", "list"]);
        assert!(sessions.stdout.contains("openclaw-"), "{sessions:#?}");
    });
}

/// What another agent heard, for the history tools to find.
const HEARD: &str = "The teapot is in the blue cupboard.";

fn heard_before(place: &Place) {
    let log = place.home().join(".claude/projects/-w/s.jsonl");
    let line = json!({
        "type": "user", "uuid": "u0", "parentUuid": null, "sessionId": "s", "cwd": "/w", "isSidechain": false,
        "version": "2.0.0", "timestamp": "2026-11-20T10:00:00.000Z",
        "message": {"role": "user", "content": HEARD},
    });
    std::fs::create_dir_all(log.parent().unwrap()).unwrap();
    std::fs::write(log, format!("{line}\n")).unwrap();
    let read = contexture(place, "gemini", &["import", "--all"]);
    assert!(read.status.success(), "{read:#?}");
}

#[test]
#[cfg_attr(not(installed_gemini), ignore = "needs `tests/real/install gemini`")]
fn gemini_cli_works_through_the_gateway() {
    works_through_the_gateway(Agent::Gemini);
}

/// A model that searches the history once, if it is offered a tool for that.
fn searching() -> Simulator {
    let provider = Simulator::with(Options {
        window: Some(200_000),
        ..Options::default()
    });
    // Gemini CLI first asks how difficult the question is, for an answer in JSON.
    let coder = Coder {
        rounds: 0,
        ..Coder::default()
    };
    provider.answer_with(move |request| {
        let mut names = request.tool_names().into_iter();
        let name = names.find(|name| name.ends_with("history_search"));
        match name.filter(|_| !body(request).contains("blue cupboard")) {
            Some(name) => Answer::call(name, json!({"query": "teapot"})),
            None => coder.answer(request),
        }
    });
    provider
}

/// Whether the model was shown what the other agent heard.
fn was_told(provider: &Simulator) -> bool {
    let requests = provider.requests();
    requests
        .iter()
        .any(|one| body(one).contains("blue cupboard"))
}

#[test]
#[cfg_attr(not(installed_gemini), ignore = "needs `tests/real/install gemini`")]
fn gemini_cli_finds_what_another_agent_heard() {
    let provider = searching();
    let mut place = Place::new();
    heard_before(&place);
    let base = provider.base_url();
    set_up_in(&mut place, Agent::Gemini, &base, &[], |place| {
        let address = format!("GOOGLE_GEMINI_BASE_URL={base}\n");
        std::fs::write(place.home().join(".gemini/.env"), address).unwrap();
        let ran = Agent::Gemini.ask(place, &base, "Where is the teapot?", &[]);
        std::fs::remove_file(place.home().join(".gemini/.env")).unwrap();
        accepted(&ran, &provider);
        assert!(was_told(&provider), "{ran:#?}");
    });
}

#[test]
#[cfg_attr(not(installed_cline), ignore = "needs `tests/real/install cline`")]
fn cline_finds_what_another_agent_heard() {
    let provider = searching();
    let mut place = Place::new();
    heard_before(&place);
    let base = provider.base_url();
    // The provider's own address stays: there is no gateway here.
    let config = place.home().join(".contexture/config.yaml");
    let listen = base.trim_start_matches("http://");
    std::fs::write(config, format!("gateway: {{listen: \"{listen}\"}}\n")).unwrap();
    set_up_in(&mut place, Agent::Cline, &base, &[], |place| {
        let ran = Agent::Cline.ask(place, &base, "Where is the teapot?", &[]);
        accepted(&ran, &provider);
        assert!(was_told(&provider), "{ran:#?}");
    });
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
    #[ignore = "long, and needs `tests/real/install qwen`"]
    fn qwen_code_goes_on_with_what_the_engine_keeps() {
        compacts_while_it_works(Agent::Qwen, &[]);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install qwen`"]
    fn qwen_code_works_through_the_gateway() {
        works_through_the_gateway(Agent::Qwen);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install claude`"]
    fn claude_code_works_through_the_gateway() {
        works_through_the_gateway(Agent::Claude);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install codex`"]
    fn codex_works_through_the_gateway() {
        works_through_the_gateway(Agent::CodexDefault);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install codex`"]
    fn codex_with_a_login_works_through_the_gateway() {
        works_through_the_gateway(Agent::CodexLogin);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install opencode`"]
    fn opencode_works_through_the_gateway() {
        works_through_the_gateway(Agent::OpencodeOpenai);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install pi`"]
    fn pi_works_through_the_gateway() {
        works_through_the_gateway(Agent::PiAnthropic);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install openclaw`"]
    fn openclaw_works_through_the_gateway() {
        works_through_the_gateway(Agent::Openclaw);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install cline`"]
    fn cline_works_through_the_gateway() {
        works_through_the_gateway(Agent::Cline);
    }

    #[test]
    #[ignore = "long, and needs `tests/real/install pi`"]
    fn pi_goes_on_with_what_the_engine_keeps() {
        compacts_while_it_works(Agent::Pi, &[]);
    }

    /// The command fails because Contexture's own configuration is wrong.
    #[test]
    #[ignore = "long, and needs `tests/real/install openclaw`"]
    fn an_engine_that_fails_leaves_openclaw_its_own() {
        let (provider, coder) = simulator(12);
        set_up(Agent::Openclaw, &provider, |place| {
            let config = place.home().join(".contexture/config.yaml");
            let base = provider.base_url();
            let ran = Agent::Openclaw.ask(place, &base, "Check all modules.", &[]);
            accepted(&ran, &provider);
            std::fs::write(&config, "context: [").unwrap();
            let ran = Agent::Openclaw.ask(place, &base, "Check them again.", &[]);
            accepted(&ran, &provider);
            assert!(ran.stdout.contains(&coder.last_words()), "{ran:#?}");
            assert!(ran.stderr.contains("own compaction is used"), "{ran:#?}");
            let last = body(&working(&provider).pop().unwrap());
            assert!(last.contains("Check all modules.") && !last.contains(SUMMARY_MARK));
            std::fs::remove_file(config).unwrap();
        });
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
