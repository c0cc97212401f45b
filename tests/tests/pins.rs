//! What a user or the configuration pins is in the window word for word after any number of compactions, under every
//! engine, and across a change of the engine after each.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Compact, Session, TurnOptions, Unrelated};
use contexture_lcm as _;
use contexture_tests::rules::ENGINES;
use contexture_tests::summary_model::SummaryModel;
use contexture_tests::{Home, chat, engines, engines_with, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use serde_json::{Value, json};

const CONFIGURED: &str = "Fixtures under testdata/ are generated {by make}.";
const SAID: [&str; 3] = [
    "crates/app/src/main.rs",
    "The port of the \"staging\" database is 8123.",
    "端口是 8123",
];
const ROUNDS: usize = 6;

/// All lines of texts in a value.
fn lines(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text.lines().map(str::to_owned).collect(),
        Value::Array(list) => list.iter().flat_map(lines).collect(),
        Value::Object(object) => object.values().flat_map(lines).collect(),
        _ => Vec::new(),
    }
}

fn is_pinned(lines: &[String], pin: &str) -> bool {
    let forms = [format!("- {pin}"), format!("/pin {pin}")];
    lines.iter().any(|line| forms.contains(line))
}

/// Plays a session with the next of these engines after each compaction. Returns the number of compactions and what was
/// noted.
fn play(names: &[&str], config: &str, model: Option<&SummaryModel>) -> (usize, Vec<String>) {
    let home = Home::new();
    home.configure(config);
    let all = match model {
        Some(model) => engines_with(&home, model.client()),
        None => engines(&home),
    };
    let record = contexture::session::Record::open(home.path()).unwrap();
    let work = chat(ROUNDS * 16, 1_800);
    let mut work = work["messages"].as_array().unwrap().iter().cloned();
    let mut sent: Vec<Value> = work.by_ref().take(1).collect();
    let (mut compactions, mut notes) = (0, Vec::new());
    for round in 0..ROUNDS {
        // One pin in the first rounds each, in a message that is compacted soon.
        if let Some(pin) = SAID.get(round) {
            sent.push(json!({"role": "user", "content": format!("Please note:\n/pin {pin}")}));
            sent.push(json!({"role": "assistant", "content": "Noted."}));
        }
        sent.extend(work.by_ref().take(64));
        sent.push(json!({"role": "user", "content": format!("Go on with round {round}.")}));
        let name = names[round % names.len()];
        let agent = AgentWindow::new("gpt-5", 48_000, 4_800);
        let mut session = Session::open(&all, Some(&record), "pins", agent, under(name)).unwrap();
        let body = json!({"model": "gpt-5", "messages": sent}).to_string();
        let options = TurnOptions::default()
            .compact(Compact::Force)
            .wait_for_model(Some(true));
        let turn = session.turn_with(&body, None, &options).unwrap();
        let window: Value = serde_json::from_str(&turn.body).unwrap();
        let window = lines(&window["messages"]);
        for pin in SAID.iter().take(round + 1) {
            assert!(
                is_pinned(&window, pin),
                "{name}, {round}, {pin}: {window:#?}"
            );
        }
        let report = turn.compaction.unwrap();
        assert!(!report.reason.contains("contract"), "{name}: {report:?}");
        compactions += usize::from(report.tokens_after < report.tokens_before);
        if compactions > 0 {
            assert!(
                is_pinned(&window, CONFIGURED),
                "{name}, {round}: {window:#?}"
            );
        }
        notes.extend(report.notes);
        session
            .answer(&[r#"{"role": "assistant", "content": "Done."}"#], None)
            .unwrap();
        session.end().unwrap();
        sent.push(json!({"role": "assistant", "content": "Done."}));
    }
    (compactions, notes)
}

/// The client compacts the conversation itself, and keeps the last messages or none. Its summary says nothing of pins and
/// rules, which hold at once and after the next compactions, also if the session was opened anew.
#[test]
fn pins_and_rules_hold_after_a_compaction_by_the_client() {
    let (rule, pin) = ("Never push to main.", SAID[1]);
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let cases = [(0, false), (0, true), (6, false), (6, true)];
    for (name, (tail, reopens)) in
        (ENGINES.into_iter()).flat_map(|name| cases.map(|case| (name, case)))
    {
        let home = Home::new();
        // After a restart the text of messages comes from there.
        home.configure("transcript: {mode: full}\n");
        let all = engines(&home);
        let record = contexture::session::Record::open(home.path()).unwrap();
        let open = || {
            let agent = AgentWindow::new("gpt-5", 48_000, 4_800);
            let options = under(name).unrelated(Unrelated::Compacted);
            Session::open(&all, Some(&record), "s", agent, options).unwrap()
        };
        let work = chat(200, 1_800);
        // Without the system prompt.
        let mut work = work["messages"].as_array().unwrap().iter().skip(1).cloned();
        let mut sent = vec![
            user(&format!("Look at the parser. {rule}\n/pin {pin}")),
            assistant("Yes."),
        ];
        let mut session = open();
        for round in 0..4 {
            if round == 1 {
                let kept = sent.split_off(sent.len() - tail);
                sent = vec![user("What did we do so far?"), assistant("We looked.")];
                sent.extend(kept);
            } else {
                sent.extend(work.by_ref().take(64));
            }
            sent.push(user(&format!("Go on with round {round}.")));
            let body = json!({"model": "gpt-5", "messages": sent}).to_string();
            let compact = if round == 1 {
                Compact::Never
            } else {
                Compact::Force
            };
            let options = TurnOptions::default().compact(compact);
            let turn = session.turn_with(&body, None, &options).unwrap();
            let window: Value = serde_json::from_str(&turn.body).unwrap();
            let window = lines(&window["messages"]);
            let what = format!("{name}, {tail}, {reopens}, {round}: {window:#?}");
            assert!(window.iter().any(|line| line.contains(rule)), "{what}");
            assert!(round == 1 || is_pinned(&window, pin), "{what}");
            let is_old = |line: &String| line.starts_with("Look at the parser.");
            assert!(round == 0 || !window.iter().any(is_old), "{what}");
            session
                .answer(&[&assistant("Done.").to_string()], None)
                .unwrap();
            sent.push(assistant("Done."));
            if reopens {
                session.end().unwrap();
                session = open();
            }
        }
    }
}

fn config() -> String {
    format!("compression:\n  pin: [\"{CONFIGURED}\"]\n")
}

#[test]
fn pins_survive_compactions_under_every_engine() {
    for engine in ENGINES {
        let (compactions, notes) = play(&[engine], &config(), None);
        assert!(compactions >= ROUNDS - 2, "{engine}: {compactions}");
        let told = notes.iter().any(|note| note.contains("did not fit"));
        assert!(!told, "{engine}: {notes:?}");
    }
}

#[test]
fn pins_survive_a_change_of_the_engine_after_each_compaction() {
    let mut names = ENGINES;
    for _ in 0..names.len() {
        names.rotate_left(1);
        play(&names, &config(), None);
    }
}

#[test]
fn pins_survive_summaries_by_a_model_that_does_not_mention_them() {
    let model = SummaryModel::start();
    for engine in ENGINES {
        play(&[engine], &config(), Some(&model));
    }
    assert!(model.requests() > 0);
}

#[test]
fn what_does_not_fit_is_told() {
    let long = "a very long pin that says nothing; ".repeat(60);
    let (_, notes) = play(
        &["compressor"],
        &format!("compression:\n  pin: [\"{long}\", \"{CONFIGURED}\"]\n"),
        None,
    );
    let note = notes.iter().find(|note| note.contains("did not fit"));
    let note = note.unwrap_or_else(|| panic!("{notes:?}"));
    assert!(
        note.starts_with("1 of the pins") && note.contains("480 tokens"),
        "{note}"
    );
    assert!(note.contains("a very long pin"), "{note}");
}
