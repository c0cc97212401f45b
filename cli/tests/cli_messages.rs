//! What the command says where something is wrong: what it is, and the way out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use cli_support::{Home, Ran, chat, json};

/// Wrong usage, and the words that say what and how it goes.
fn refused(ran: &Ran, parts: &[&str]) {
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (2, ""),
        "{parts:?}: {}",
        ran.stderr
    );
    for part in parts {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
}

#[test]
fn a_plugin_folder_that_is_not_there_is_no_missing_conversation() {
    let ran = Home::new().contexture("plugins build nosuch");
    refused(
        &ran,
        &["no plugin to build in nosuch", "Cargo.toml", "plugins list"],
    );
    ran.stderr_lacks("conversation");
}

#[test]
fn a_session_that_is_not_there_is_named_with_the_way_to_those_that_are() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    home.contexture("import chat.json --session s");
    for command in ["show", "export", "archive", "delete"] {
        let ran = home.contexture(format!("sessions {command} nosuch"));
        refused(&ran, &["there is no session `nosuch`", "sessions list"]);
    }
}

#[test]
fn wrong_arguments_of_a_tool_are_said_to_be_that() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    home.contexture("import chat.json --session s");
    for (arguments, why) in [
        ("{}", "takes `pattern`"),
        ("{\"pattern\": 3}", "expected a string"),
        ("pattern", "not a JSON object"),
        ("[1]", "not a JSON object"),
    ] {
        let ran = home.run(["tool", "lcm_grep", arguments, "--session", "s"]);
        refused(
            &ran,
            &[why, "the tool `lcm_grep`", "`pattern`", "`question`"],
        );
        ran.stderr_lacks("engine refused");
    }
}

#[test]
fn a_text_is_not_called_a_damaged_document() {
    let home = Home::new();
    home.put("README.md", "# A project\n\nIt does things.\n");
    let ran = home.contexture("compress README.md");
    refused(&ran, &["README.md", "not JSON", "claude-code", "anthropic"]);
    ran.stderr_lacks("damaged");
    // What is one and was cut off still is.
    home.put("cut.json", &chat(4)[..90]);
    refused(
        &home.contexture("compress cut.json"),
        &["damaged or was cut off"],
    );
}

#[test]
fn a_window_is_read_as_people_write_it_and_one_that_holds_nothing_is_refused() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    for (written, tokens) in [
        ("64k", "64,000"),
        ("200K", "200,000"),
        ("1M", "1,000,000"),
        ("2m", "2,000,000"),
    ] {
        let ran = home.contexture(format!(
            "compress chat.json --dry-run --context-length {written}"
        ));
        assert_eq!(ran.code, 0, "{written}: {}", ran.stderr);
        let window = format!("window of {tokens}\n");
        assert!(ran.stderr.contains(&window), "{written}: {}", ran.stderr);
        let replay = [
            "replay", "chat.json", "--report", "-", "--context-length", written,
        ];
        let report = json(&home.run(replay).stdout);
        let played = report["conversations"][0]["context_length"].to_string();
        assert_eq!(played, tokens.replace(',', ""));
    }
    for command in ["compress", "replay"] {
        for (written, why) in [
            ("100", "100k is 100,000"),
            ("0", "a window of 0 tokens"),
            ("64kb", "64k"),
            ("k", "64k"),
            ("1.5k", "64k"),
            ("-5", "--context-length"),
            ("99999999999999999999", "64k"),
            ("18446744073709551615M", "64k"),
        ] {
            let argument = format!("--context-length={written}");
            refused(
                &home.contexture(format!("{command} chat.json {argument}")),
                &[why, "--context-length"],
            );
        }
    }
}

#[test]
fn a_missing_config_is_named_once() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    let ran = home.contexture("compress chat.json --config ./nosuch.yaml");
    refused(&ran, &["nosuch.yaml", "--config"]);
    assert_eq!(
        ran.stderr.matches("No such file").count(),
        1,
        "{}",
        ran.stderr
    );
    assert_eq!(
        ran.stderr.matches("nosuch.yaml").count(),
        1,
        "{}",
        ran.stderr
    );
}

#[test]
fn paths_are_shown_without_dots_in_between() {
    let home = Home::new();
    home.put("home/config.yaml", "plugins: {dirs: [./mine/./here]}\n");
    let ran = home.contexture("plugins list");
    let folder = home.path("home/mine/here");
    ran.stdout_has(&folder);
    for command in [
        &["plugins", "list"][..],
        &["engines", "list"],
        &["engines", "doctor"],
        &["config", "show"],
    ] {
        let ran = home.run(command.iter().copied());
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains("/./"), "{command:?}: {said}");
    }
}

/// What is told of a document may be kept in a log.
#[test]
fn no_secret_of_a_document_is_told() {
    let home = Home::new();
    let body = "a7Kq2Zx9Lm4Pw8Rt3Vy6Bn1Cd5Fg0Hj".repeat(3);
    let key = format!("{}{body}", ["sk-", "ant-api03-"].concat());
    let damaged = home.put("key.json", &format!(r#"{{"{key}": 1}}"#));
    let of_model =
        format!(r#"{{"model": "{key}", "messages": [{{"role": "user", "content": "hi"}}]}}"#);
    let model = home.put("model.json", &of_model);
    for (args, code, says) in [
        (
            &["compress", damaged.as_str()][..],
            2,
            "found an object with",
        ),
        (&["compress", &damaged, "--color", "always"], 2, "found an"),
        (&["compress", &model], 0, "note: the window of the model"),
        (
            &["compress", &model, "--cache-markers"],
            0,
            "is not a Claude model",
        ),
        (&["tool", &key, "--session", "s"], 2, "there is no session"),
        (
            &["compress", &model, "-vvv"],
            0,
            "note: the window of the model",
        ),
    ] {
        let ran = home.run(args.iter().copied());
        ran.exits(code);
        ran.stderr_has(says);
        for part in [&body[..12], &body[40..52]] {
            ran.stderr_lacks(part);
        }
    }
}

/// The command's own colours are there, and no others: among them one that hides text.
#[test]
fn no_colour_of_a_document_or_an_id_is_shown() {
    let home = Home::new();
    let hides = "a\u{1b}[8mb";
    let put = |name: &str, value: serde_json::Value| home.put(name, &value.to_string());
    let user = serde_json::json!({"role": "user", "content": "hi"});
    let model = put(
        "model.json",
        serde_json::json!({"model": hides, "messages": [user]}),
    );
    let key = put("key.json", serde_json::json!({hides: 1}));
    let odd = home.put(hides, "{}");
    for args in [
        &["compress", model.as_str()][..],
        &["compress", &model, "-vv"],
        &["compress", &key],
        &["compress", &odd],
        &["import", &model, "--session", hides],
        &["sessions", "list"],
        &["sessions", "show", &format!("{hides}x")],
        &["engines", "show", hides],
        &["engines", "doctor"],
        &["compress", &model, "--engine", hides],
    ] {
        let ran = home.run([args, &["--color", "always"]].concat());
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!said.contains("\u{1b}[8m"), "{args:?}: {said}");
        if args[0] == "compress" {
            assert!(said.contains("\u{1b}["), "{args:?}: {said}");
        }
    }
}

#[test]
fn no_cause_is_told_twice() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    home.put("home/engines", "a file");
    home.put("damaged/sessions.sqlite3", &"no database".repeat(100));
    let here = |name| (name, home.path("chat.json/in-a-file"));
    let damaged = ("CONTEXTURE_HOME", home.path("damaged"));
    let own = ("CONTEXTURE_HOME", home.path("home"));
    let import = ["import", "chat.json", "--session", "s"];
    for ((variable, value), args) in [
        (here("CONTEXTURE_HOME"), &import[..]),
        (damaged, &import[..]),
        (own.clone(), &import[..]),
        (here("TMPDIR"), &["compress", "chat.json"]),
        (own, &["compress", "chat.json", "--config", "."]),
    ] {
        let mut command = home.command(args.iter().copied());
        let ran = cli_support::ran(command.env(variable, value).output().unwrap());
        assert_ne!(ran.code, 0, "{args:?}: {}", ran.stderr);
        let told: Vec<_> = ran
            .stderr
            .lines()
            .map(|line| line.trim().trim_start_matches("because: "))
            .collect();
        for (at, cause) in told.iter().enumerate() {
            let again = told
                .iter()
                .enumerate()
                .any(|(other, line)| other != at && line.contains(cause));
            assert!(!again, "{args:?} tells {cause:?} again: {}", ran.stderr);
        }
    }
}
