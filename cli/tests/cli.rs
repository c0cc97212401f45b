//! The `contexture` command, as a person or a script runs it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use std::fmt::Write as _;

use cli_support::{Home, Ran, chat, json};
use serde_json::{Value, json};

#[test]
fn a_long_conversation_is_compacted_to_stdout_with_a_report_on_stderr_and_in_a_file() {
    let home = Home::new();
    home.put("chat.json", &chat(200));
    let ran = home.done("compress chat.json --context-length 8000 --report report.json");
    let out = json(&ran.stdout);
    let messages = out["messages"].as_array().unwrap();
    assert!(messages.len() < 200);
    assert_eq!(out["model"], "gpt-4o");
    assert_eq!(messages.last().unwrap()["content"], "answer 199");
    for part in [
        "compacted",
        "compressor (built in)",
        "messages",
        "tokens",
        "summarised",
        "0 model calls",
    ] {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
    let report = json(&home.read("report.json"));
    for key in [
        "engine", "source", "outcome", "reason", "messages_before", "messages_after",
        "tokens_before", "tokens_after", "kept", "replaced", "inserted", "dropped", "degraded",
        "model_calls", "elapsed_ms",
    ] {
        assert!(report.get(key).is_some(), "no {key} in {report}");
    }
    assert_eq!(
        (&report["engine"], &report["source"]),
        (&json!("compressor"), &json!("builtin"))
    );
    assert_eq!(
        (&report["outcome"], &report["messages_before"]),
        (&json!("compacted"), &json!(200))
    );
    assert!(report["tokens_after"].as_u64() < report["tokens_before"].as_u64());
    assert!(report["elapsed_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_needs_no_compaction_leaves_byte_for_byte() {
    let home = Home::new();
    // Odd spacing, an escape that need not be one, a number that does not survive a float.
    let odd = "{\"model\" :\"gpt-4o\",\n\"messages\":[ {\"role\":\"user\",\"content\":\"a\\u0041\\/\"} ], \"seed\":12345678901234567890, \"x\":1.0}\n\n";
    let lines =
        "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assistant\",\"content\":\"b\"}\n";
    for (name, text) in [
        ("odd.json", odd),
        ("lines.jsonl", lines),
        ("empty.json", "[]\n"),
    ] {
        let input = home.put(name, text);
        let ran = home.contexture(format!("compress {input}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, text), "{}", ran.stderr);
        ran.stderr_has("nothing to do");
        assert_eq!(home.contexture(format!("compress {input} --check")).code, 1);
        let piped = home.pipe(["compress", "-"], text.as_bytes());
        assert_eq!(
            (piped.code, piped.stdout.as_str()),
            (0, text),
            "{}",
            piped.stderr
        );
    }
}

#[test]
fn check_is_content_with_a_compaction_and_dry_run_prints_no_conversation() {
    let home = Home::new();
    home.put("chat.json", &chat(200));
    let ran = home.contexture("compress chat.json --context-length 8000 --check --dry-run");
    ran.exits(0).stdout_is("");
    ran.stderr_has("compacted");
    home.path("report.json");
    for both in ["--report -", "--report - -o -"] {
        let ran = home.contexture(format!("compress chat.json {both}"));
        ran.exits(2);
        ran.stderr_has("name the same file");
    }
    for alone in ["--dry-run", "-o smaller.json"] {
        let ran = home.done(format!("compress chat.json --report - {alone}"));
        assert!(json(&ran.stdout)["outcome"].is_string(), "{}", ran.stdout);
    }
    let ran = home.contexture("compress chat.json --check --dry-run --report report.json");
    ran.exits(1).stdout_is("");
    assert_eq!(json(&home.read("report.json"))["outcome"], "nothing_to_do");
}

#[test]
fn force_compacts_below_the_threshold() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(200));
    let args = ["compress", &input, "--context-length", "20000"];
    assert_eq!(home.run(args).stdout, home.read("chat.json"));
    let ran = home.done("compress chat.json --force --context-length 20000");
    assert!(json(&ran.stdout)["messages"].as_array().unwrap().len() < 200);
}

#[test]
fn the_model_says_how_large_the_window_is() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(1_500));
    let compacted = |ran: Ran| ran.stdout.len() < home.read("chat.json").len();
    assert!(
        !compacted(home.contexture(format!("compress {input}"))),
        "gpt-4o has 128,000"
    );
    assert!(
        compacted(home.contexture(format!("compress {input} --model gpt-4"))),
        "gpt-4 has 8,192"
    );
    home.put("home/config.yaml", "model: {context_length: 9000}\n");
    assert!(compacted(home.contexture(format!("compress {input}"))));
    assert!(!compacted(home.contexture(format!(
        "compress {input} --context-length 1000000"
    ))));

    home.put("home/config.yaml", "");
    let input = home.put("unnamed.json", "[{\"role\":\"user\",\"content\":\"hi\"}]");
    let ran = home.contexture(format!("compress {input}"));
    ran.stderr_has("note: the conversation names no model: assuming a window of 128,000");
}

#[test]
fn a_file_of_several_conversations_gives_a_list_and_select_takes_one() {
    let home = Home::new();
    let mut text = String::new();
    for count in [2, 200, 4] {
        let _ = writeln!(text, "{}", chat(count));
    }
    home.put("several.jsonl", &text);
    home.path("report.json");
    let ran = home.done("compress several.jsonl --context-length 8000 --report report.json");
    let out = json(&ran.stdout);
    let sizes: Vec<_> = out
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!((sizes.len(), sizes[0], sizes[2]), (3, 2, 4));
    assert!(sizes[1] < 200);
    assert!(
        ran.stdout.contains(&chat(2)),
        "what is not compacted is not rewritten"
    );
    let reports = json(&home.read("report.json"));
    let outcomes: Vec<_> = reports
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["nothing_to_do", "compacted", "nothing_to_do"]);
    ran.stderr_has("1 of 3 conversations compacted");

    // What it writes it reads.
    home.put("written.json", &ran.stdout);
    let again = home.done("compress written.json --context-length 8000");
    assert_eq!(json(&again.stdout), out);

    let ran = home.contexture("compress several.jsonl --select 3 --report report.json");
    assert_eq!(ran.stdout.trim_end(), chat(4));
    assert!(json(&home.read("report.json")).is_object());
    for wanted in ["0", "4"] {
        let ran = home.contexture(format!("compress several.jsonl --select {wanted}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        ran.stderr_has("holds 3");
        ran.stderr_has("from 1 to 3");
    }
}

#[test]
fn a_session_log_becomes_openai_messages_or_a_log_to_resume() {
    let home = Home::new();
    let input = home.put("session.jsonl", &cli_support::claude_code_log(120));
    let args = ["--context-length", "8000"];
    let ran = home.run(["compress", &input].into_iter().chain(args));
    ran.exits(0);
    let messages = &json(&ran.stdout)["messages"];
    assert_eq!(messages[0]["role"], "system", "{messages}");

    let ran = home.run(
        ["compress", &input, "--to", "claude-code"]
            .into_iter()
            .chain(args),
    );
    ran.exits(0);
    let lines: Vec<_> = ran.stdout.lines().map(json).collect();
    assert!(
        lines
            .iter()
            .any(|line| line["subtype"] == "compact_boundary"),
        "no boundary"
    );
    let ran = home.contexture("compress session.jsonl --to claude-code");
    assert_eq!(
        ran.stdout,
        home.read("session.jsonl"),
        "nothing to do, so nothing changed"
    );

    for to in ["anthropic", "responses", "openai"] {
        let ran = home.run(["compress", &input, "--to", to].into_iter().chain(args));
        assert_eq!(ran.code, 0, "{to}: {}", ran.stderr);
        let key = if to == "responses" {
            "input"
        } else {
            "messages"
        };
        assert!(json(&ran.stdout)[key].is_array(), "{to}");
    }
    let ran = home.contexture("compress session.jsonl --to tau2");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    ran.stderr_has("cannot be converted to `tau2`");
}

#[test]
fn the_output_file_is_replaced_whole_and_may_be_the_input() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(200));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&input, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&input, home.path("link.json")).unwrap();
    }
    let to_stdout = home
        .contexture("compress chat.json --context-length 8000")
        .stdout;
    let link = home.path("link.json");
    let output = if cfg!(unix) { &link } else { &input };
    let ran = home.contexture(format!(
        "compress chat.json --context-length 8000 -o {output}"
    ));
    ran.exits(0).stdout_is("");
    assert_eq!(home.read("chat.json"), to_stdout);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(
            std::fs::metadata(&input).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    let names: Vec<_> = std::fs::read_dir(home.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".contexture-")),
        "{names:?}"
    );

    let ran = home.contexture("compress chat.json -o no/such/folder.json");
    assert_eq!(ran.code, 2);
    ran.stderr_has("cannot write");
    ran.stderr_has("folder.json");
    let ran = home.run(["compress", &input, "-o", &home.path("")]);
    assert_eq!(ran.code, 2);
    let ran = home.contexture("compress chat.json -o chat.json --dry-run");
    assert_eq!(
        ran.code, 2,
        "--dry-run writes no conversation, so -o is a mistake"
    );
    #[cfg(unix)]
    assert_eq!(home.contexture("compress chat.json -o /dev/null").code, 0);
}

#[test]
fn an_engine_that_is_named_runs_or_the_command_fails() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    assert_eq!(
        home.contexture("compress chat.json --engine compressor")
            .code,
        0
    );
    let ran = home.contexture("compress chat.json --engine compresor");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    ran.stderr_has("did you mean `compressor`?");
    let ran = home.contexture("compress chat.json --engine ../x");
    assert_eq!(ran.code, 2);

    // Named in the file, it may be stood in for, and is, with one warning.
    home.put("home/config.yaml", "context: {engine: nowhere}\n");
    let ran = home.done("compress chat.json");
    assert_eq!(
        ran.stderr
            .matches("the built-in compressor runs instead")
            .count(),
        1,
        "{}",
        ran.stderr
    );
    home.put(
        "home/config.yaml",
        "context: {engine: nowhere, on_missing: fail}\n",
    );
    assert_eq!(home.contexture("compress chat.json").code, 2);
}

#[test]
fn input_that_cannot_be_read_is_refused_with_its_name_and_the_place() {
    let home = Home::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let refused: [(&str, &[u8], &str); 12] = [
        (
            "cut.json",
            b"{\"messages\":[{\"role\":\"user\",\"cont",
            "line 1",
        ),
        ("nothing.json", b"", "empty"),
        ("blank.json", b" \n\t\n", "empty"),
        ("word.txt", b"hello", "not JSON"),
        ("number.json", b"42", "format"),
        ("object.json", b"{\"a\":1}", "`a`"),
        (
            "none.json",
            b"{\"simulations\":[]}",
            "contains no conversation",
        ),
        ("not-a-message.json", b"{\"messages\":[1]}", "message 0"),
        (
            "latin1.json",
            b"[{\"role\":\"user\",\"content\":\"\xe9\"}]",
            "not UTF-8",
        ),
        ("chat.json.gz", b"\x1f\x8b\x08\0", "compressed with gzip"),
        ("wide.json", b"\xff\xfe{\0}\0", "UTF-16"),
        ("deep.json", deep.as_bytes(), ""),
    ];
    for (name, bytes, part) in refused {
        let input = home.put_bytes(name, bytes);
        let ran = home.contexture(format!("compress {input}"));
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (2, ""),
            "{name}: {}",
            ran.stderr
        );
        assert!(
            ran.stderr.contains(name) && ran.stderr.contains(part),
            "{name}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains("panicked"), "{name}: {}", ran.stderr);
    }
    for input in [home.path("missing.json"), home.path("")] {
        let ran = home.contexture(format!("compress {input}"));
        assert_eq!(ran.code, 2);
        ran.stderr_has("cannot read");
    }
    let ran = home.contexture("compress");
    assert_eq!(ran.code, 2, "no INPUT and no terminal");
    ran.stderr_has("no INPUT");
}

#[test]
fn odd_but_readable_input_comes_through_untouched() {
    let home = Home::new();
    for text in [
        "{\"messages\":[]}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"You help.\"}]}",
        "[{\"role\":\"user\",\"content\":\"half a pair \\ud83d and \\udc00\"}]",
        "[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]",
        "[{\"role\":\"critic\",\"content\":\"unknown role\"}]",
        "[{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"no call\"}]",
        "[{\"role\":\"assistant\",\"content\":null}]",
    ] {
        let input = home.put("odd.json", text);
        for force in [None, Some("--force")] {
            let ran = home.run(["compress", input.as_str()].into_iter().chain(force));
            assert_eq!((ran.code, ran.stdout.as_str()), (0, text), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_wrong_option_is_refused_with_what_is_allowed() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(2));
    for (args, part) in [
        (["--format", "yaml"], "tau2"),
        (["--to", "yaml"], "anthropic"),
        (["--context-length", "0"], "0"),
        (["--context-length", "many"], "many"),
        (["--select", "-1"], "-1"),
        (["--color", "pink"], "never"),
    ] {
        let ran = home.run(["compress", &input].into_iter().chain(args));
        assert_eq!(ran.code, 2, "{args:?}");
        ran.stderr_has(part);
    }
    home.done("compress chat.json --format anthropic --to responses");
    let ran = home.contexture("compress chat.json --format codex");
    assert_eq!(ran.code, 2);
}

#[test]
fn cache_markers_are_put_in_and_the_status_line_says_whether() {
    let home = Home::new();
    home.put(
        "chat.json",
        &chat(6).replace("gpt-4o", "anthropic/claude-sonnet-4.5"),
    );
    home.put(
        "home/config.yaml",
        "model: {provider: openrouter}\nauxiliary: {compression: {provider: none}}\n",
    );
    let status = |ran: &Ran| ran.stderr.lines().next().unwrap_or_default().to_owned();
    let enabled = "Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)";
    let ran = home.done("compress chat.json --cache-markers");
    assert_eq!(ran.stdout.matches("cache_control").count(), 3);
    assert_eq!(status(&ran), enabled, "before the report");
    // Where no marker is written it does not say that one is.
    let ran = home.contexture("compress chat.json");
    assert!(!ran.stdout.contains("cache_control"));
    let why = "Prompt caching: DISABLED (the output carries no markers: --cache-markers";
    assert!(status(&ran).starts_with(why), "{}", ran.stderr);
    home.put(
        "asked.yaml",
        "model: {provider: openrouter}\nauxiliary: {compression: {provider: none}}\n\
         prompt_caching: {enabled: true}\n",
    );
    let ran = home.contexture("compress chat.json --config asked.yaml");
    assert_eq!(ran.stdout.matches("cache_control").count(), 3);
    assert_eq!(status(&ran), enabled);

    let ran = home.done("compress chat.json --cache-markers --model gpt-5");
    assert!(!ran.stdout.contains("cache_control"));
    ran.stderr_has("gpt-5 is not a Claude model");
    let ran = home.contexture("compress chat.json --cache-markers --to responses");
    assert_eq!(ran.code, 2);
    ran.stderr_has("--to anthropic");
}

#[test]
fn a_provider_without_its_key_leaves_the_digest_and_a_warning() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(200));
    let run = ["compress", &input, "--context-length", "8000"];
    for (config, variable) in [
        (
            "auxiliary: {compression: {provider: openai, model: gpt-4o-mini}}\n",
            "OPENAI_API_KEY",
        ),
        // `auto` follows the agent.
        (
            "model: {provider: openrouter, name: anthropic/claude-sonnet-4.5}\n",
            "OPENROUTER_API_KEY",
        ),
    ] {
        home.put("home/config.yaml", config);
        let ran = home.run(run);
        ran.exits(0);
        assert!(json(&ran.stdout)["messages"].as_array().unwrap().len() < 200);
        let warning = ran.stderr.lines().next().unwrap();
        assert!(warning.starts_with("warning: "), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches(variable).count(), 1, "{}", ran.stderr);
        assert!(warning.contains("digest") && warning.contains("provider: none"));
        let offline = home.run(run.into_iter().chain(["--offline"]));
        offline.exits(0);
        offline.stderr_lacks(variable);
        for args in [&["config", "check"][..], &["engines", "doctor"]] {
            let ran = home.run(args.iter().copied());
            assert_ne!(ran.code, 0);
            assert!(
                format!("{}{}", ran.stdout, ran.stderr).contains(variable),
                "{args:?}"
            );
        }
    }
    // With no agent to follow, `auto` is no model, and nothing to warn of.
    home.put(
        "home/config.yaml",
        "auxiliary: {compression: {provider: auto}}\n",
    );
    let ran = home.run(run);
    ran.exits(0);
    ran.stderr_lacks("warning");
    ran.stderr_has("no summary model");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(20_000));
    let ran = home.run_into_closed_pipe(["compress", &input, "--context-length", "100000000"]);
    ran.exits(0);
    ran.stderr_lacks("panicked");
    ran.stderr_lacks("error");
}

#[test]
fn errors_are_plain_in_a_pipe_and_drawn_on_demand() {
    let home = Home::new();
    home.path("missing.json");
    let plain = home.contexture("compress missing.json").stderr;
    assert!(
        plain.starts_with("error: cannot read") && plain.is_ascii() && !plain.contains('\u{1b}'),
        "{plain}"
    );
    let drawn = home
        .contexture("--color always compress missing.json")
        .stderr;
    assert!(
        drawn.contains('\u{1b}') && drawn.contains("help:"),
        "{drawn}"
    );
    home.put("chat.json", &chat(2));
    assert!(
        home.contexture("--color always compress chat.json")
            .stderr
            .contains('\u{1b}')
    );
    assert!(
        !home
            .contexture("--color never compress chat.json")
            .stderr
            .contains('\u{1b}')
    );
}

#[test]
fn every_command_has_help_with_an_example() {
    let home = Home::new();
    let commands = [
        "", "compress", "engines list", "engines show", "engines doctor", "plugins build",
        "plugins list", "config check", "config show", "config path", "completions",
    ];
    for command in commands {
        let ran = home.run(command.split_whitespace().chain(["--help"]));
        assert_eq!(ran.code, 0, "{command}");
        assert!(
            ran.stdout.contains("Examples:\n  contexture"),
            "{command}: {}",
            ran.stdout
        );
    }
    assert!(
        home.contexture("--version")
            .stdout
            .starts_with("contexture ")
    );
    assert_eq!(home.contexture("").code, 2);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = home.done(format!("completions {shell}"));
        assert!(ran.stdout.contains("compress"), "{shell}");
    }
    home.done("man pages");
    let page = home.read("pages/contexture-sessions-export.1");
    assert!(page.contains(".SH SYNOPSIS"), "{page}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn real_conversations_of_every_kind_come_out_smaller_or_as_they_were() {
    let data = cli_support::shared_data();
    let home = Home::new();
    let report = home.path("report.json");
    for (file, context_length) in [
        ("claude-code/main.jsonl", "100000"),
        ("tau2-bench/train_sft-v1-small.jsonl", "16000"),
        (
            "tau2-bench/toolorchestra_airline_gpt-4.1-mini.json",
            "16000",
        ),
        (
            "swe-agent/demonstrations__function_calling_simple.traj",
            "2000",
        ),
        ("swe-agent/web__i_got_id_demo.traj", "16000"),
        (
            "swe-agent/replay__marshmallow-code__marshmallow-1867__function_calling_replace_from_source__marshmallow-code__marshmallow-1867.traj",
            "12000",
        ),
    ] {
        let input = data.join(file).display().to_string();
        let ran = home.contexture(format!(
            "compress {input} --context-length {context_length} --report {report}"
        ));
        assert_eq!(ran.code, 0, "{file}: {}", ran.stderr);
        json(&ran.stdout);
        let reports = match json(&home.read("report.json")) {
            Value::Array(all) => all,
            one => vec![one],
        };
        for report in &reports {
            assert_ne!(report["outcome"], "failed", "{file}: {report}");
            let tokens = |key: &str| report[key].as_u64().unwrap();
            assert!(
                tokens("tokens_after") <= tokens("tokens_before"),
                "{file}: {report}"
            );
        }
    }
}

/// Of a script of which each character is several tokens, a preview may have more bytes than the text.
#[test]
fn a_dense_text_in_a_small_window_is_no_fault_of_the_engine() {
    let home = Home::new();
    for length in [60, 100, 150, 190, 400] {
        let text: String = (0..length)
            .filter_map(|at| char::from_u32(0x1401 + at * 37 % 600))
            .collect();
        let messages: Vec<_> = (0..4)
            .map(|at| {
                let role = ["user", "assistant"][at % 2];
                json!({"role": role, "content": format!("{at} {text}")})
            })
            .collect();
        let body = json!({"model": "gpt-4o", "messages": messages}).to_string();
        home.put("dense.json", &body);
        for window in ["1000", "1500"] {
            let ran = home.contexture(format!(
                "compress dense.json --engine compressor --force --context-length {window}"
            ));
            assert_eq!(ran.code, 0, "{length} in {window}: {}", ran.stderr);
        }
    }
}
