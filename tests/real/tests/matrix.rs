//! Every agent with every engine: a task of forty steps in a window of 64,000 tokens, with client, gateway and provider
//! in separate processes. Prints a table of the results, and fails if anything is not as it should be.
//!
//! `CONTEXTURE_AGENTS=codex,claude` restricts the run to agents whose names contain one of these.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

use contexture_real::processes::{Provider, Running, serve};
use contexture_real::tap::{Tap, Told};
use contexture_real::{Agent, Place, Ran, installed, programs};
use serde_json::Value;
use tempfile::TempDir;

const WINDOW: u64 = 64_000;
const STEPS: u64 = 40;
/// The output of each step's tool, in bytes. Together with the agents' prompts this is twice the window.
const RESULT: u64 = 12_000;

const AGENTS: [(&str, &str, Agent); 20] = [
    ("Claude Code, default", "claude", Agent::Claude),
    ("Claude Code, sonnet", "claude", Agent::ClaudeSonnet),
    ("Codex, default", "codex", Agent::CodexDefault),
    ("Codex, gpt-5.1-codex", "codex", Agent::CodexOlder),
    ("Codex, gpt-5.2-codex", "codex", Agent::Codex),
    ("Codex, ChatGPT login", "codex", Agent::CodexLogin),
    ("Codex 0.155, login, zstd", "codex-0.155", Agent::CodexZstd),
    ("opencode", "opencode", Agent::Opencode),
    ("aider", "aider", Agent::Aider),
    ("Hermes", "hermes", Agent::Hermes),
    ("Qwen Code", "qwen", Agent::Qwen),
    ("pi", "pi", Agent::Pi),
    ("Cline", "cline", Agent::Cline),
    ("Gemini CLI", "gemini", Agent::Gemini),
    ("OpenClaw", "openclaw", Agent::Openclaw),
    ("Copilot CLI, OpenAI", "copilot", Agent::Copilot),
    ("Copilot CLI, Anthropic", "copilot", Agent::CopilotAnthropic),
    ("Grok", "grok", Agent::Grok),
    ("Kimi Code", "kimi", Agent::Kimi),
    ("Continue", "continue", Agent::Continue),
];

/// A gateway, in a separate process.
struct Served {
    _running: Running,
    tap: Tap,
    home: TempDir,
}

impl Served {
    fn before(provider: &Provider, engine: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        provider.configure(home.path(), engine, WINDOW);
        let running = serve(home.path());
        let tap = Tap::before(&running.address);
        Self {
            _running: running,
            tap,
            home,
        }
    }

    /// Runs the `contexture` command in this gateway's home.
    fn contexture(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(programs().join("contexture"));
        command
            .args(arguments)
            .env("CONTEXTURE_HOME", self.home.path());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn sessions(&self) -> Vec<String> {
        let list = self.contexture(&["sessions", "list", "--json"]);
        let sessions: Value = serde_json::from_str(&list).unwrap_or_default();
        let all = sessions["sessions"].as_array().cloned().unwrap_or_default();
        let id = |one: &Value| one["session"].as_str().map(str::to_owned);
        all.iter().filter_map(id).collect()
    }

    /// Whether a search finds the result of a step, even if the agent itself has cleared it since.
    fn finds_result(&self, step: u64) -> bool {
        let pattern = format!(r"step-{}(\\n|\s)+src/module", step + 1);
        let question = serde_json::json!({"pattern": pattern, "mode": "regex"}).to_string();
        self.sessions().iter().any(|id| {
            let found = self.contexture(&["tool", "lcm_grep", &question, "--session", id]);
            let found: Value = serde_json::from_str(&found).unwrap_or_default();
            found["total"].as_u64() > Some(0)
        })
    }

    /// Every stored message, of all sessions.
    fn kept(&self) -> Vec<Value> {
        let export = |id: &String| self.contexture(&["sessions", "export", id]);
        let text: String = self.sessions().iter().map(export).collect();
        let lines = text.lines();
        lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }
}

/// Runs the task. Aider has no tools and is asked forty questions instead.
fn play(agent: Agent, provider: &Provider, base_url: &str) -> Ran {
    let mut place = Place::new();
    place.accounts = Some(provider.base_url());
    match agent {
        Agent::Aider => {
            let questions: Vec<String> = (0..STEPS)
                .map(|at| format!("This is question {at}."))
                .collect();
            agent.converse(&place, base_url, &questions)
        }
        _ => agent.ask(&place, base_url, "Check all modules.", &[]),
    }
}

/// One line of the table.
#[derive(Default)]
struct Row {
    agent: &'static str,
    engine: &'static str,
    requests: usize,
    managed: String,
    compactions: usize,
    largest: u64,
    dollars: f64,
    ratio: Option<f64>,
    wrong: Vec<String>,
}

impl Row {
    fn print(&self) {
        let ratio = self
            .ratio
            .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        let wrong = match self.wrong.as_slice() {
            [] => "yes".to_owned(),
            wrong => wrong.join("; "),
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {:.2} | {ratio} | {wrong} |",
            self.agent,
            self.engine,
            self.requests,
            self.managed,
            self.compactions,
            self.largest,
            self.dollars,
        );
    }
}

/// The requests for actual work, without those for titles and the like.
fn working(report: &Value, agent: Agent) -> Vec<Value> {
    let requests = report["requests"].as_array().cloned().unwrap_or_default();
    let works = |one: &Value| {
        let apis = ["Messages", "Chat", "Responses", "Gemini"];
        let asks = apis.iter().any(|api| one["api"] == *api);
        asks && one["status"] == 200 && (one["tools"].as_u64() > Some(0) || agent == Agent::Aider)
    };
    requests.into_iter().filter(works).collect()
}

/// Whether the text contains a step: its question, or its call and result.
fn is_there(text: &str, agent: Agent, step: u64) -> bool {
    match agent {
        Agent::Aider => text.contains(&format!("question {step}.")),
        // The result's first line is followed by a line break, which may be escaped any number of times.
        _ => {
            text.contains(&format!("step-{};", step + 1))
                && text.contains(&format!("step-{}\\", step + 1))
        }
    }
}

fn measure(agent: Agent, name: &'static str, engine: &'static str, without: Option<f64>) -> Row {
    let window = if engine == "none" { 1_000_000 } else { WINDOW };
    let provider = Provider::start(window, STEPS, RESULT, agent);
    let served = (engine != "none").then(|| Served::before(&provider, engine));
    let base_url = match &served {
        Some(served) => served.tap.base_url(),
        None => provider.base_url(),
    };
    let ran = play(agent, &provider, &base_url);
    let report = provider.report();
    let working = working(&report, agent);
    let mut row = Row {
        agent: name,
        engine,
        requests: working.len(),
        managed: "-".to_owned(),
        largest: working
            .iter()
            .filter_map(|one| one["tokens"].as_u64())
            .max()
            .unwrap_or(0),
        dollars: report["dollars"].as_f64().unwrap_or(0.0),
        ..Row::default()
    };
    let mut wrong = Vec::new();
    if !ran.status.success() {
        let said = match ran.stdout.trim().is_empty() {
            true => &ran.stderr,
            false => &ran.stdout,
        };
        let from = said.floor_char_boundary(said.len().saturating_sub(200));
        wrong.push(format!(
            "{}: {}",
            ran.status,
            said[from..].replace('\n', " ")
        ));
    }
    // Some agents escape non-ASCII characters.
    let words = report["last_words"].as_str().unwrap_or("?");
    let words = words.split(" — ").next().unwrap_or(words);
    let told_the_end = match agent {
        Agent::Aider => working.len() as u64 >= STEPS,
        _ => ran.stdout.contains(words),
    };
    if !told_the_end {
        wrong.push("the task is not done".to_owned());
    }
    for kind in ["violations", "overflows"] {
        if let Some([first, ..]) = report[kind].as_array().map(Vec::as_slice) {
            wrong.push(format!("refused: {}", first["message"]));
        }
    }
    if let Some(served) = &served {
        let mut told = served.tap.told();
        // Lists of models and the like are not conversations.
        let asks = [
            "/messages",
            "/responses",
            "/chat/completions",
            ":generateContent",
            ":streamGenerateContent",
        ];
        told.retain(|one| {
            let path = one.request.split('?').next().unwrap_or_default();
            path.starts_with("POST ") && asks.iter().any(|end| path.ends_with(end))
        });
        let is_managed = |one: &&Told| one.status == "managed";
        let managed = told.iter().filter(is_managed).count();
        row.managed = format!("{managed} of {}", told.len());
        // A compaction that was deferred or found nothing to do is reported as well.
        let is_compacted = |one: &Told| {
            let what = one.compaction.as_deref();
            what.is_some_and(|what| what.starts_with("compacted"))
        };
        row.compactions = told.iter().filter(|one| is_compacted(one)).count();
        // Every request with tools, including the first one. A request without tools may ask for a title.
        let unmanaged: Vec<&Told> = told.iter().filter(|one| !is_managed(one)).collect();
        if managed == 0 || unmanaged.len() > 1 {
            wrong.push(format!("not managed: {:?}", unmanaged.first()));
        }
        let compacts: Vec<bool> = told.iter().filter(is_managed).map(is_compacted).collect();
        // Gemini CLI replaces old results by previews, in messages that were compacted.
        let edits = agent == Agent::Gemini;
        if !edits && compacts.windows(2).any(|pair| pair[0] && pair[1]) {
            wrong.push("compacts twice in a row".to_owned());
        }
        if row.compactions == 0 {
            wrong.push("never compacts".to_owned());
        }
        if engine == "lcm" {
            wrong.extend(losses(served, agent));
        }
        // Tools in an input item stay first, whatever is removed after them.
        let first = |one: &Value| provider.body(one)["input"][0]["type"].clone();
        let kinds: Vec<Value> = working.iter().map(first).collect();
        if kinds.contains(&Value::from("additional_tools"))
            && !kinds.iter().all(|kind| kind == "additional_tools")
        {
            wrong.push("the item with the tools does not stand first".to_owned());
        }
        let last = working.last().map(|last| provider.body(last).to_string());
        // Cline has the model summarize when its own estimate says so, and then continues from that summary.
        let is_asked = last.as_ref().is_some_and(|last| {
            matches!(agent, Agent::Aider | Agent::Cline) || last.contains("Check all modules.")
        });
        if !is_asked {
            wrong.push("the last request has lost the task".to_owned());
        }
        row.ratio = without.map(|without| row.dollars / without);
        if let Some(ratio) = row.ratio.filter(|ratio| *ratio > 1.0) {
            wrong.push(format!("costs {ratio:.2} of what it costs without"));
        }
    }
    row.wrong = wrong;
    row
}

/// What the store of a lossless engine lacks, and what it holds although nobody said it.
fn losses(served: &Served, agent: Agent) -> Vec<String> {
    let mut wrong = Vec::new();
    let kept = served.kept();
    let texts: Vec<String> = kept.iter().map(Value::to_string).collect();
    let all = texts.join("\n");
    let missing: Vec<u64> = (0..STEPS)
        .filter(|step| !is_there(&all, agent, *step) && !served.finds_result(*step))
        .collect();
    if !missing.is_empty() {
        wrong.push(format!("the store lacks the steps {missing:?}"));
    }
    let marks = [
        "[CONTEXT COMPACTION]",
        "[END OF CONTEXT COMPACTION]",
        "[notice #",
        "[Shortened to save context space]",
    ];
    let is_users = |one: &&Value| one["role"] == "user";
    for said in kept.iter().filter(is_users) {
        let text = said.to_string();
        if let Some(mark) = marks.iter().find(|mark| text.contains(*mark)) {
            wrong.push(format!("a message of the user's holds {mark}"));
            break;
        }
    }
    wrong
}

fn is_installed(folder: &str) -> bool {
    let path: PathBuf = installed().join(folder).join(".version");
    Path::new(&path).is_file()
}

#[test]
#[ignore = "takes a quarter of an hour, and agents that `tests/real/install` installs"]
fn every_agent_does_a_long_task_in_a_small_window() {
    let named = std::env::var("CONTEXTURE_AGENTS").unwrap_or_default();
    let named: Vec<String> = named.split(',').map(str::to_lowercase).collect();
    println!(
        "| agent | engine | requests | managed | compactions | largest prompt | $ | of none | done |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut failed = Vec::new();
    for (name, folder, agent) in AGENTS {
        let wanted = |one: &String| name.to_lowercase().contains(one);
        if !named.iter().any(wanted) || !is_installed(folder) {
            continue;
        }
        let without = measure(agent, name, "none", None);
        without.print();
        let dollars = without.wrong.is_empty().then_some(without.dollars);
        for engine in ["lcm", "compressor"] {
            let row = measure(agent, name, engine, dollars);
            row.print();
            let wrong = row.wrong.iter();
            failed.extend(wrong.map(|what| format!("{name}, {engine}: {what}")));
        }
        failed.extend(
            without
                .wrong
                .iter()
                .map(|what| format!("{name}, alone: {what}")),
        );
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
