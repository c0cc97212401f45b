//! `contexture bench sessions` as a user types it, over a small folder of logs. Its figures are compared with what this
//! test computes from the logs and from a session that it drives itself.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use cli_support::{Home, Ran, json};
use contexture::Usage;
use contexture::config::{Config, Timing};
use contexture::engines::Engines;
use contexture::providers::{NoModel, Resolved, configured_client};
use contexture::session::{AgentWindow, OutcomeKind, Session, SessionOptions, TurnOptions};
use serde_json::{Value, json as value};

const WINDOW: u64 = 6_000;

/// A session of a first question and so many answers of 100 words, each with another question of 100. A word is a token,
/// and a message has four more.
#[derive(Clone, Copy)]
struct Made {
    first: usize,
    answers: usize,
}

const CHAT: Made = Made {
    first: 2_000,
    answers: 40,
};
const CLAUDE: Made = Made {
    first: 1_500,
    answers: 30,
};
const PI: Made = Made {
    first: 300,
    answers: 4,
};

impl Made {
    fn messages(self) -> Vec<(&'static str, String)> {
        let words = |count| vec!["a"; count].join(" ");
        let mut messages = vec![("user", words(self.first))];
        for _ in 0..self.answers {
            messages.push(("assistant", words(100)));
            messages.push(("user", words(100)));
        }
        messages
    }

    fn chat(self) -> Value {
        let messages = self.messages().into_iter();
        messages
            .map(|(role, content)| value!({"role": role, "content": content}))
            .collect()
    }

    /// The tokens of each prompt without an engine.
    fn prompts(self) -> Vec<u64> {
        let first = self.first as u64 + 4;
        (0..self.answers as u64)
            .map(|at| first + at * 2 * 104)
            .collect()
    }

    /// What these prompts cost with gpt-5: each reads the one before from the cache and writes the rest, unless it is too
    /// short to be cached.
    fn cost_usd(self) -> f64 {
        let (mut cost, mut cached) = (0.0, 0);
        for prompt in self.prompts() {
            if prompt < 1_024 {
                cost += prompt as f64 * 1.25;
                continue;
            }
            cost += cached as f64 * 0.125 + (prompt - cached) as f64 * 1.25;
            cached = prompt;
        }
        cost / 1e6
    }

    /// The compactions of the built-in engine in a session with these messages.
    fn compactions(self, timing: Timing) -> u64 {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_owned();
        let variable = move |name: &str| (name == "CONTEXTURE_HOME").then(|| path.clone().into());
        let mut loaded = Config::load(None, &variable).unwrap();
        loaded.config.compression.timing = timing;
        let client = configured_client(&loaded.config, Resolved::NoModel(NoModel::Offline));
        let engines = Engines::new(loaded, client).unwrap();
        let agent = AgentWindow::new("gpt-5", WINDOW, WINDOW / 4);
        let options = SessionOptions::default().engine(Some("compressor".to_owned()));
        let mut session = Session::open(&engines, None, "test", agent, options).unwrap();
        let all = self.chat();
        let all = all.as_array().unwrap();
        let mut compactions = 0;
        for answer in (1..all.len()).step_by(2) {
            let body = value!({"model": "gpt-5", "messages": &all[..answer]}).to_string();
            let options = TurnOptions::default().time_ms(Some(0));
            let turn = session.turn_with(&body, None, &options).unwrap();
            let outcome = turn.compaction.map(|report| report.outcome);
            compactions += u64::from(outcome == Some(OutcomeKind::Compacted));
            // What a provider would report.
            let prompt = session.overhead_tokens() + session.window().message_tokens();
            let usage = Usage::default().input_tokens(prompt).output_tokens(104);
            let answer = all[answer].to_string();
            session.answer(&[&answer], Some(&usage)).unwrap();
            session.finish_background().unwrap();
        }
        session.end().unwrap();
        compactions
    }
}

/// A folder with logs in three formats, one of which only the history reads, a broken file and one that is no log.
fn folder() -> Home {
    let home = Home::new();
    let chat = value!({"model": "gpt-5", "messages": CHAT.chat()});
    home.put("logs/chat.json", &chat.to_string());
    let messages = CLAUDE.messages();
    let lines = messages.iter().enumerate().map(|(at, (role, text))| {
        let parent = (at > 0).then(|| format!("u{}", at - 1));
        let line = value!({
            "parentUuid": parent, "sessionId": "s", "type": role, "uuid": format!("u{at}"),
            "timestamp": "2026-11-20T10:00:00.000Z",
            "message": {"role": role, "id": format!("m{at}"), "content": [{"type": "text", "text": text}]},
        });
        format!("{line}\n")
    });
    home.put("logs/below/claude.jsonl", &lines.collect::<String>());
    let messages = PI.messages();
    let lines = messages.iter().map(|(role, text)| {
        let line = value!({"type": "message", "timestamp": "2026-11-20T10:00:00Z",
            "message": {"role": role, "content": text}});
        format!("{line}\n")
    });
    let head = value!({"type": "session", "id": "p", "cwd": "/work"});
    home.put(
        "logs/pi.jsonl",
        &format!("{head}\n{}", lines.collect::<String>()),
    );
    home.put(
        "logs/broken.json",
        "{\"model\": \"gpt-5\", \"messages\": [{\"role\": \"us",
    );
    home.put("logs/notes.txt", "Buy milk.\n");
    home
}

fn bench(home: &Home, args: &[&str]) -> Ran {
    let window = WINDOW.to_string();
    let fixed = [
        "bench", "sessions", "logs", "--model", "gpt-5", "--context-length", &window,
    ];
    home.run([&fixed, args].concat())
}

fn row<'a>(rows: &'a Value, engine: &str, timing: &str) -> &'a Value {
    let is_it =
        |row: &&Value| row["engine"] == engine && row["timing"].as_str().unwrap_or("") == timing;
    rows.as_array().unwrap().iter().find(is_it).unwrap()
}

#[test]
fn the_figures_are_those_of_the_logs() {
    let home = folder();
    let said = bench(
        &home,
        &["--engines", "compressor,lcm", "--per-session", "--json"],
    );
    said.exits(0);
    said.stderr_has("broken.json").stderr_has("notes.txt");
    let found = json(&said.stdout);
    assert_eq!(found["logs"], 3);
    let skipped: Vec<_> = found["skipped"].as_array().unwrap().iter().collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert_eq!(found["incomplete"], value!([]));
    // The largest log comes first.
    let sessions = found["sessions"].as_array().unwrap();
    let made = [
        (CLAUDE, "claude.jsonl"),
        (CHAT, "chat.json"),
        (PI, "pi.jsonl"),
    ];
    assert_eq!(sessions.len(), made.len());
    for (session, (made, name)) in sessions.iter().zip(made) {
        assert!(
            session["input"].as_str().unwrap().ends_with(name),
            "{session}"
        );
        assert_eq!(session["messages"], made.messages().len());
        let none = row(&session["rows"], "none", "");
        assert_eq!(none["cost_ratio"], 1.0);
        assert_eq!(none["requests"], made.answers);
        assert_eq!(
            none["prompt_tokens"],
            made.prompts().iter().sum::<u64>(),
            "{name}"
        );
        let overflows = made
            .prompts()
            .into_iter()
            .filter(|prompt| *prompt > WINDOW)
            .count();
        assert_eq!(none["overflows"], overflows, "{name}");
        let cost = none["cost_usd"].as_f64().unwrap();
        assert!(
            (cost - made.cost_usd()).abs() < 1e-9,
            "{name}: {cost} {}",
            made.cost_usd()
        );
        for (timing, word) in [
            (Timing::Safe, "safe"),
            (Timing::Threshold, "threshold"),
            (Timing::Economy, "economy"),
        ] {
            let row = row(&session["rows"], "compressor", word);
            assert_eq!(
                row["compactions"],
                made.compactions(timing),
                "{name} {word}"
            );
            assert_eq!(
                (&row["overflows"], &row["failures"]),
                (&value!(0), &value!(0))
            );
            let ratio = row["cost_usd"].as_f64().unwrap() / made.cost_usd();
            assert!((row["cost_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9);
        }
    }
    // The totals are the sums. There is something to sum: the figures differ from session to session.
    let none = row(&found["totals"], "none", "");
    let overflows = [CHAT, CLAUDE, PI].map(|made| {
        made.prompts()
            .into_iter()
            .filter(|prompt| *prompt > WINDOW)
            .count()
    });
    assert!(overflows[0] > overflows[1] && overflows[1] > 0 && overflows[2] == 0);
    assert_eq!(none["overflows"], overflows.iter().sum::<usize>());
    assert_eq!(
        (&none["cost_ratio"], &none["sessions"]),
        (&value!(1.0), &value!(3))
    );
    let expected: u64 = [CHAT, CLAUDE, PI]
        .iter()
        .map(|made| made.compactions(Timing::Threshold))
        .sum();
    let threshold = row(&found["totals"], "compressor", "threshold");
    assert!(expected > 1);
    assert_eq!(threshold["compactions"], expected);
    assert_eq!(found["totals"].as_array().unwrap().len(), 1 + 2 * 3);
}

#[test]
fn what_the_agent_goes_on_to_use_is_measured_after_each_compaction() {
    let home = Home::new();
    let filler = vec!["a"; 600].join(" ");
    let mut messages =
        vec![value!({"role": "user", "content": "Fix it. Never edit vendor/auth.rs by hand."})];
    for at in 0..12 {
        let id = format!("c{at}");
        messages.push(value!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
            "function": {"name": "bash", "arguments": "{\"command\": \"cargo test -p login\"}"}}]}));
        let text = format!("check_token_{at} failed: {filler}");
        messages.push(value!({"role": "tool", "tool_call_id": id, "content": text}));
    }
    let all: Vec<String> = (0..12).map(|at| format!("check_token_{at}")).collect();
    messages.push(value!({"role": "assistant", "content": all.join(" ")}));
    home.put(
        "logs/chat.json",
        &value!({"messages": messages}).to_string(),
    );
    let said = bench(
        &home,
        &["--engines", "compressor", "--timing", "threshold", "--json"],
    );
    said.exits(0);
    let found = json(&said.stdout);
    let row = row(&found["totals"], "compressor", "threshold");
    let figure = |name: &str| row[name].as_u64().unwrap();
    assert!(figure("compactions") > 0, "{row}");
    assert!(
        figure("needed") > 0 && figure("needed_in_window") <= figure("needed"),
        "{row}"
    );
    // One rule and one command, at each compaction.
    assert_eq!(figure("rules"), figure("compactions"));
    assert_eq!(figure("rules_in_window"), figure("rules"));
    assert_eq!(figure("commands"), figure("compactions"));
}

#[test]
fn rows_go_to_a_table_or_a_spreadsheet() {
    let home = folder();
    let one = [
        "--engines", "compressor", "--timing", "economy", "--limit", "1",
    ];
    let said = bench(&home, &one);
    said.exits(0);
    said.stdout_has("30 requests in 1 session of 1 log, window of 6,000 tokens\n");
    let cells = |engine: &str| -> Vec<&str> {
        let line = said
            .stdout
            .lines()
            .find(|line| line.starts_with(engine))
            .unwrap();
        line.split_whitespace().collect()
    };
    assert_eq!(cells("none")[1..5], ["–", "$0.0254", "1.000", "1.000"]);
    assert_eq!(cells("compressor")[1], "economy");

    let said = bench(&home, &[&one[..], &["--per-session", "--csv"]].concat());
    said.exits(0);
    let lines: Vec<&str> = said.stdout.lines().collect();
    let columns = |line: &str| line.split(',').count();
    assert_eq!(lines.len(), 1 + 2 + 2, "{lines:#?}");
    assert!(
        lines.iter().all(|line| columns(line) == columns(lines[0])),
        "{lines:#?}"
    );
    assert!(
        lines[1].starts_with("logs/below/claude.jsonl,1,6000,none,,1,30,"),
        "{}",
        lines[1]
    );
    assert!(
        lines[4].starts_with(",,,compressor,economy,1,30,"),
        "{}",
        lines[4]
    );
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_way_out() {
    let home = folder();
    home.put("none/notes.txt", "Buy milk.\n");
    for (args, hint) in [
        (&["logs", "--engines", "compresor"][..], "compressor"),
        (&["none"], "no session to play in none"),
        (&["missing"], "missing"),
        (&["logs", "--limit", "0"], "--limit"),
        (&["logs", "--timing", "never"], "economy"),
    ] {
        let said = home.run([&["bench", "sessions"], args].concat());
        said.exits(2).stdout_is("").stderr_has(hint);
    }
}

/// What was played is not skipped.
#[test]
fn a_damaged_log_is_played_and_called_incomplete() {
    let home = folder();
    let whole = home.read("logs/below/claude.jsonl");
    home.put("hurt/claude.jsonl", &whole.replacen('\n', "\n{oops\n", 1));
    let args = "bench sessions hurt --model gpt-5 --context-length 6000 --engines compressor --timing safe --json";
    let said = home.contexture(args);
    said.exits(0);
    said.stderr_has("incomplete").stderr_lacks("skipped");
    let found = json(&said.stdout);
    assert_eq!(
        (&found["logs"], &found["skipped"]),
        (&value!(1), &value!([]))
    );
    assert_eq!(found["incomplete"].as_array().unwrap().len(), 1, "{found}");
}
