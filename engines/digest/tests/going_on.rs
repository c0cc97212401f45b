//! Whether a summary says how to go on, however many names the messages have: what the user asked for, what was
//! decided, and which test fails. The conversations are generated: each of these stands somewhere among many
//! files that were read, in six languages.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeMap;

use contexture_digest::{Budget, Digest, Readings};
use support::{Message, with_views};

/// A request after the first one, a later one, and a decision.
const WORDS: [[&str; 3]; 6] = [
    [
        "Also add a changelog entry in CHANGELOG.md afterwards and a test for epoch 412 in tests/epoch.rs.",
        "Now rename the option to strict, in the docs too.",
        "We decided on a hand-written lexer, not a generated one, for better spans in errors.",
    ],
    [
        "Ergänze danach einen Eintrag in CHANGELOG.md und einen Test für Epoche 412 in tests/epoch.rs.",
        "Benenne jetzt die Option in strict um, auch in der Dokumentation.",
        "Wir haben uns für einen handgeschriebenen Lexer entschieden, nicht für einen erzeugten.",
    ],
    [
        "Ajoute ensuite une entrée dans CHANGELOG.md et un test pour l'époque 412 dans tests/epoch.rs.",
        "Renomme maintenant l'option en strict, dans la documentation aussi.",
        "Nous avons décidé d'écrire le lexer à la main au lieu de le générer.",
    ],
    [
        "Añade después una entrada en CHANGELOG.md y una prueba para la época 412 en tests/epoch.rs.",
        "Cambia ahora el nombre de la opción a strict, también en la documentación.",
        "Hemos decidido escribir el lexer a mano en lugar de generarlo, por los mensajes de error.",
    ],
    [
        "之后在 CHANGELOG.md 里加一条记录，并在 tests/epoch.rs 里为第 412 个纪元加一个测试。",
        "现在把这个选项改名为 strict，文档里也一样。",
        "我们决定手写词法分析器，而不是用生成的，这样错误位置更准确，也更容易维护。",
    ],
    [
        "その後 CHANGELOG.md に項目を追加し、エポック 412 のテストを tests/epoch.rs に書いてください。",
        "次にオプションの名前を strict に変えてください、文書でも同じです。",
        "字句解析器は生成せずに手で書くことに決定しました。エラーの位置が正確になるからです。",
    ],
];

/// A failing run as three tools print it, with what has to be known of it.
const FAILURES: [(&str, &str, [&str; 2]); 3] = [
    (
        "cargo test -p parser",
        "running 12 tests\ntest parse_span ... FAILED\n\nfailures:\n---- parse_span stdout ----\n\
         thread 'parse_span' panicked at src/parser.rs:212:9:\nassertion failed: span mismatch E0X77\n\n\
         test result: FAILED. 11 passed; 1 failed; 0 ignored",
        ["parse_span", "src/parser.rs:212"],
    ),
    (
        "pytest tests",
        "collected 12 items\n\ntests/test_parser.py ....F.......\n\n=== FAILURES ===\n___ test_parse_span ___\n\n\
         >       assert span == 3\nE       AssertionError: span mismatch\n\ntests/test_parser.py:212: AssertionError\n\
         FAILED tests/test_parser.py::test_parse_span - AssertionError\n=== 1 failed, 11 passed in 0.12s ===",
        ["test_parse_span", "tests/test_parser.py:212"],
    ),
    (
        "go test ./...",
        "ok  \texample.com/lexer\t0.002s\n--- FAIL: TestParseSpan (0.00s)\n    parser_test.go:212: span mismatch: got 4, want 3\n\
         FAIL\nFAIL\texample.com/parser\t0.003s\n11 tests passed, 1 failed",
        ["TestParseSpan", "parser_test.go:212"],
    ),
];

const GOAL: &str = "Find the bug in the parser that loses the spans of nested blocks, and mend it in the lexer \
                    if it is there. Start with the grammar, and look at the parts that changed last.";

const BLAND: &str = "## Goal\n- Work on the project\n\n## Progress\n### Done\n- Looked at files\n";

/// A generator of numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % most
    }
}

fn said(role: &str, text: &str) -> Message {
    Message {
        role: role.to_owned(),
        text: text.to_owned(),
        ..Message::default()
    }
}

fn called(id: usize, tool: &str, arguments: serde_json::Value, result: String) -> [Message; 2] {
    let call = Message {
        calls: vec![(id.to_string(), tool.to_owned(), arguments.to_string())],
        ..said("assistant", "")
    };
    let result = Message {
        result_of: id.to_string(),
        ..said("tool", &result)
    };
    [call, result]
}

fn start(text: &str) -> &str {
    &text[..text.floor_char_boundary(text.len() / 3)]
}

/// A conversation, and the words that a summary of it has to have, each with what it stands for.
fn conversation(seed: u64) -> (Vec<Message>, Vec<(&'static str, &'static str)>) {
    let mut chance = Chance(seed * 7_919 + 1);
    let [earlier, last, decision] = WORDS[chance.below(WORDS.len())];
    let (command, output, failure) = FAILURES[chance.below(FAILURES.len())];
    let reads = 20 + chance.below(100);
    let mut places: Vec<usize> = (0..3).map(|_| chance.below(reads)).collect();
    places[..2].sort_unstable();
    let fails = chance.below(reads);
    let mut messages = vec![said("user", "Find the bug in the parser.")];
    for at in 0..reads {
        let names: Vec<String> = (0..10 + chance.below(50))
            .map(|line| format!("{line}: fn item_{at}_{line}(x: u32) -> u32"))
            .collect();
        let path = serde_json::json!({"path": format!("src/module_{at}.rs")});
        messages.extend(called(at, "read_file", path, names.join("\n")));
        for (place, text) in places.iter().zip([earlier, last]) {
            if *place == at {
                messages.push(said("user", text));
            }
        }
        if places[2] == at {
            messages.push(said("assistant", decision));
        }
        if fails == at {
            let arguments = serde_json::json!({"command": command});
            messages.extend(called(reads + at, "bash", arguments, output.to_owned()));
        }
    }
    let needed = vec![
        ("last request", start(last)),
        ("earlier request", start(earlier)),
        ("decision", start(decision)),
        ("failed test", failure[0]),
        ("place of the failure", failure[1]),
    ];
    (messages, needed)
}

#[test]
fn requests_decisions_and_failures_are_kept_among_many_names() {
    const SIZES: [usize; 4] = [1_200, 2_400, 4_800, 12_000];
    const CONVERSATIONS: u64 = 60;
    let mut kept: BTreeMap<(bool, usize), BTreeMap<&str, u64>> = BTreeMap::new();
    for seed in 0..CONVERSATIONS {
        let (messages, needed) = conversation(seed);
        with_views(&messages, |views| {
            let digest = Digest::of(views, None);
            for size in SIZES {
                let budget = Budget::chars(size);
                let extract = digest.render(budget);
                let added = digest.missing_from(BLAND, budget);
                for (after_a_model, summary) in [(false, extract), (true, added)] {
                    for (what, words) in &needed {
                        let kept = kept.entry((after_a_model, size)).or_default();
                        *kept.entry(what).or_default() += u64::from(summary.contains(words));
                    }
                }
            }
        });
    }
    for ((after_a_model, size), kept) in kept {
        println!("{size} characters, after a model: {after_a_model}, of {CONVERSATIONS}: {kept:?}");
        let least = kept.into_values().min().unwrap();
        let percent = if size < 2_000 { 85 } else { 100 };
        assert!(
            least * 100 >= CONVERSATIONS * percent,
            "{least} of {CONVERSATIONS} in {size} characters"
        );
    }
}

/// A later part of the conversation: many files that are read, and a user who says to go on.
fn part(number: usize) -> Vec<Message> {
    let mut messages = vec![said("user", &format!("Go on with step {number}."))];
    for at in 0..10 {
        let names: Vec<String> = (0..30)
            .map(|line| format!("{line}: fn item_{number}_{at}_{line}(x: u32) -> u32"))
            .collect();
        let path = serde_json::json!({"path": format!("src/module_{number}_{at}.rs")});
        messages.extend(called(at, "read_file", path, names.join("\n")));
    }
    let listed = serde_json::json!({"command": format!("ls src/module_{number}")});
    messages.extend(called(10, "bash", listed, "a.rs\nb.rs".to_owned()));
    messages
}

/// Small summaries that are updated, or merged with those of later parts, again and again.
#[test]
fn the_goal_the_decision_and_the_failure_outlive_many_updates() {
    const SIZE: Budget<'static> = Budget::chars(1_500);
    let digest = |messages: &[Message], previous: Option<&str>, task: Option<&str>| {
        with_views(messages, |views| {
            Digest::with(&Readings::default(), views, previous, task).render(SIZE)
        })
    };
    for [_, _, decision] in WORDS {
        for (command, output, failure) in FAILURES {
            let mut messages = vec![
                said("user", GOAL),
                said("user", "It says:\n> Never go up.\n> Always go down."),
            ];
            let todos = serde_json::json!([{"content": "Port the tests", "status": "in_progress"}]);
            let todos = serde_json::json!({ "todos": todos });
            messages.extend(called(98, "todo_write", todos, "ok".to_owned()));
            messages.extend(part(0));
            messages.push(said("assistant", decision));
            let arguments = serde_json::json!({"command": command});
            messages.extend(called(99, "bash", arguments, output.to_owned()));
            messages.extend(part(1));
            let first = digest(&messages, None, None);
            let (mut updated, mut merged) = (first.clone(), first);
            for number in 2..14 {
                let messages = part(number);
                updated = digest(&messages, Some(&updated), None);
                let later = digest(&messages, None, Some(""));
                merged = digest(&[], Some(&format!("{merged}\n\n{later}")), None);
                for summary in [&updated, &merged] {
                    assert_eq!(summary.matches("## Goal").count(), 1, "{summary}");
                    for words in [start(GOAL), "Port the tests", start(decision), failure[0]] {
                        assert!(
                            summary.contains(words),
                            "{words} after {number} parts in {summary}"
                        );
                    }
                }
            }
        }
    }
}
