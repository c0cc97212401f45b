//! Plugins with faults under the `contexture` command: none of them takes the result away, or passes for one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use contexture_tests::{Home, built_plugins, chat, library_name, repository};
use serde_json::Value;

struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const SHORT: &str = "  supervision: {call_deadline_ms: 2000, grace_ms: 100}\n";

const COMPRESS: [&str; 4] = ["compress", "chat.json", "--context-length", "20000"];

/// A home in which `misbehaving` has this fault, with a conversation that is due.
fn misbehaving(fault: &str, more: &str) -> Home {
    let home = Home::new();
    home.misbehave(fault, more);
    put_chat(&home);
    home
}

fn put_chat(home: &Home) {
    std::fs::write(home.path().join("chat.json"), chat(30, 2_000).to_string()).unwrap();
}

fn messages(document: &str) -> usize {
    let document: Value =
        serde_json::from_str(document).unwrap_or_else(|error| panic!("{error}: {document:.300}"));
    document["messages"].as_array().unwrap().len()
}

#[test]
fn a_hang_in_a_destructor_costs_neither_the_result_nor_the_end() {
    let home = misbehaving("hang:drop", SHORT);
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(&mut home.contexture(&COMPRESS));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(messages(&stdout) < 121);
    assert!(stderr.contains("did not return from drop"), "{stderr}");
    assert!(!stderr.contains("somebody waited"), "{stderr}");
}

#[test]
fn a_wait_for_an_engine_is_said() {
    let patient = "  supervision: {call_deadline_ms: 3000, grace_ms: 100}\n";
    let home = misbehaving("hang:open", patient);
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&COMPRESS));
    assert_eq!(code, Some(0), "{stderr}");
    let waiting = stderr.find("waiting for engine `misbehaving` to return from open");
    let given_up = stderr.find("did not return from open");
    assert!(waiting.is_some() && waiting < given_up, "{stderr}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_library_that_hangs_while_it_is_loaded_is_a_clear_error() {
    let home = misbehaving("", SHORT);
    let mut command = home.contexture(&COMPRESS);
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(command.env("MISBEHAVING_CONSTRUCTOR", "hang"));
    assert_eq!((code, stdout.as_str()), (Some(3), ""), "{stderr}");
    let said = stderr.contains("misbehaving.so did not end within");
    assert!(said && !stderr.contains("somebody waited"), "{stderr}");
}

/// Whichever command loads the library, and however the process ends.
#[cfg(target_os = "linux")]
#[test]
fn a_constructor_that_ends_or_holds_the_process_is_named() {
    let home = misbehaving("", SHORT);
    let folder = home.path().join("plugins/context_engine/misbehaving");
    let folder = folder.to_str().unwrap();
    let commands: [&[&str]; 3] = [
        &COMPRESS,
        &["plugins", "check", folder],
        &["engines", "doctor"],
    ];
    for args in commands {
        for how in ["hang", "abort", "exec", "exit"] {
            let mut command = home.contexture(args);
            let Ran { code, stderr, .. } = ran(command.env("MISBEHAVING_CONSTRUCTOR", how));
            assert!(
                stderr.contains("loading the plugin ") && stderr.contains("misbehaving.so"),
                "{args:?} {how}: {stderr}"
            );
            let (said, expected) = match how {
                "hang" => ("did not end within", Some(3)),
                "exit" => ("a plugin ended the process", Some(3)),
                "exec" => ("", Some(0)),
                _ => ("", None),
            };
            assert_eq!(code, expected, "{args:?} {how}: {stderr}");
            assert!(stderr.contains(said), "{args:?} {how}: {stderr}");
            assert!(!stderr.contains("somebody waited"), "{stderr}");
        }
    }
}

#[test]
fn what_a_plugin_prints_is_not_among_the_result() {
    let home = misbehaving("print:compress", "");
    let Ran {
        code,
        stdout,
        stderr,
    } = ran(&mut home.contexture(&COMPRESS));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(messages(&stdout) < 121);
    assert!(
        stderr.contains("printed on purpose in compress"),
        "{stderr}"
    );
}

#[test]
fn a_plugin_that_changes_the_directory_moves_no_file() {
    let home = misbehaving("chdir:compress", "");
    let files = ["-o", "small.json", "--report", "report.json"];
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&[&COMPRESS[..], &files].concat()));
    assert_eq!(code, Some(0), "{stderr}");
    for file in ["small.json", "report.json"] {
        assert!(home.path().join(file).exists(), "{file}");
    }
}

#[test]
fn a_plugin_that_ends_the_process_is_named() {
    for method in ["open", "compress", "end"] {
        let home = misbehaving(&format!("exit:{method}"), "");
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&COMPRESS));
        assert_eq!(code, Some(3), "{method}: {stderr}");
        assert!(
            stderr.contains("a plugin ended the process") && stderr.contains("misbehaving"),
            "{method}: {stderr}"
        );
        // At the end the result is written already.
        assert_eq!(stdout.is_empty(), method != "end", "{method}");
    }
}

#[test]
fn a_panic_whose_payload_panics_in_its_own_drop_is_a_panic_like_others() {
    for method in ["open", "compress", "drop"] {
        let home = misbehaving(&format!("bomb:{method}"), "");
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&COMPRESS));
        assert_eq!(code, Some(0), "{method}: {stderr}");
        assert!(messages(&stdout) < 121, "{method}");
    }
}

/// The library is replaced again and again while its digest is checked and it is loaded.
#[cfg(target_os = "linux")]
#[test]
fn code_that_is_not_the_pinned_one_never_runs() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    put_chat(&home);
    let folder = home.plugin_dir("keep-tail");
    let (library, spare) = (folder.join(library_name("keep-tail")), folder.join("spare"));
    let [good, other] =
        ["keep-tail", "misbehaving"].map(|name| built_plugins().join(library_name(name)));
    let pin = contexture_tests::sha256(&good);
    let manifest = folder.join("plugin.yaml");
    let mut text = std::fs::read_to_string(&manifest).unwrap();
    text.push_str(&format!("sha256: {pin}\n"));
    std::fs::write(&manifest, text).unwrap();

    let done = AtomicBool::new(false);
    let runs: Vec<Ran> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for source in [&other, &good] {
                    std::fs::copy(source, &spare).unwrap();
                    std::fs::rename(&spare, &library).unwrap();
                }
            }
        });
        let arguments = [&COMPRESS[..], &["--engine", "keep-tail"]].concat();
        let runs = (0..30).map(|_| {
            ran(home
                .contexture(&arguments)
                .env("MISBEHAVING_CONSTRUCTOR", "say so"))
        });
        let runs = runs.collect();
        done.store(true, Ordering::Relaxed);
        runs
    });
    for Ran { code, stderr, .. } in &runs {
        assert!(!stderr.contains("the constructor ran"), "{stderr}");
        let refused = *code == Some(2) && stderr.contains("but the manifest pins");
        assert!(*code == Some(0) || refused, "{stderr}");
    }
}

#[cfg(unix)]
#[test]
fn a_library_that_everybody_may_write_is_not_loaded() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    put_chat(&home);
    let library = home.plugin_dir("keep-tail").join(library_name("keep-tail"));
    std::fs::set_permissions(&library, std::fs::Permissions::from_mode(0o757)).unwrap();
    let arguments = [&COMPRESS[..], &["--engine", "keep-tail"]].concat();
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&arguments));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains(&format!("`chmod o-w '{}'`", library.display())),
        "{stderr}"
    );
}

#[test]
fn a_failed_engine_stops_the_command_or_leaves_the_conversation_as_it_was() {
    for (policy, says) in [
        ("fail", "`context.on_failure` is `fail`"),
        ("passthrough", "failed, unchanged"),
    ] {
        let home = misbehaving("error:compress", &format!("  on_failure: {policy}\n"));
        let report = ["--report", "report.json"];
        let Ran {
            code,
            stdout,
            stderr,
        } = ran(&mut home.contexture(&[&COMPRESS[..], &report].concat()));
        assert_eq!(code, Some(3), "{policy}: {stderr}");
        assert!(
            stderr.contains(says) && stderr.contains("it is broken, on purpose"),
            "{stderr}"
        );
        let before = std::fs::read_to_string(home.path().join("chat.json")).unwrap();
        let expected = match policy {
            "fail" => String::new(),
            _ => before,
        };
        assert!(stdout == expected, "{policy}: {stdout:.300}");
        let report = std::fs::read_to_string(home.path().join("report.json")).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["outcome"], "failed", "{policy}");
    }
}

/// An engine that makes no compaction, or too small a one, has not failed. But the provider would
/// refuse the prompt.
#[test]
fn the_builtin_stands_in_for_an_engine_that_leaves_the_prompt_too_large() {
    for fault in ["rests", "defers", "too-little"] {
        for force in [&[][..], &["--force"]] {
            let home = misbehaving(fault, "");
            let report = ["--report", "report.json"];
            let Ran { code, stderr, .. } =
                ran(&mut home.contexture(&[&COMPRESS[..], &report, force].concat()));
            assert_eq!(code, Some(0), "{fault}: {stderr}");
            assert!(
                stderr.contains("on purpose") || fault == "too-little",
                "{stderr}"
            );
            assert!(
                stderr.contains("The built-in compressor stood in for this compaction."),
                "{stderr}"
            );
            let report = std::fs::read_to_string(home.path().join("report.json")).unwrap();
            let report: Value = serde_json::from_str(&report).unwrap();
            assert_eq!(report["engine"], "compressor", "{report}");
            assert!(
                report["tokens_before"].as_u64().unwrap() > 20_000,
                "{report}"
            );
            assert!(
                report["tokens_after"].as_u64().unwrap() < 20_000,
                "{report}"
            );
        }
    }
}

/// Nothing is wrong with the command or the configuration.
#[test]
fn an_engine_that_is_named_and_fails_as_it_is_opened_has_failed() {
    for fault in ["panic:open", "error:open"] {
        let home = misbehaving(fault, "");
        for command in ["compress", "replay"] {
            let named = [command, "chat.json", "--engine", "misbehaving"];
            let Ran {
                code,
                stdout,
                stderr,
            } = ran(&mut home.contexture(&named));
            assert_eq!((code, stdout.as_str()), (Some(3), ""), "{fault}: {stderr}");
            assert!(stderr.contains("on purpose"), "{stderr}");
            assert!(!stderr.contains("no engine to run"), "{stderr}");
        }
    }
}

/// Figures of an engine that failed are not its own: the row says so, and it does not stand first.
#[test]
fn a_replay_of_an_engine_that_fails_says_so_in_its_row() {
    for fault in ["panic:compress", "id-missing", "panic:turn_complete"] {
        let home = misbehaving(fault, "");
        let row = |stdout: &str| {
            let row = stdout
                .lines()
                .position(|line| line.starts_with("misbehaving"));
            let at = row.unwrap_or_else(|| panic!("{fault}: {stdout}"));
            (at, stdout.lines().nth(at).unwrap().to_owned())
        };
        let replay = ["replay", "chat.json", "--context-length", "20000"];
        let configured = ran(&mut home.contexture(&replay));
        assert_eq!(configured.code, Some(0), "{fault}: {}", configured.stderr);
        let (_, marked) = row(&configured.stdout);
        assert!(
            marked.contains(" ! ") && marked.contains(" failed "),
            "{marked}"
        );

        let named = ["--engine", "misbehaving", "--engine", "compressor"];
        let named = ran(&mut home.contexture(&[&replay[..], &named].concat()));
        assert_eq!(named.code, Some(3), "{fault}: {}", named.stderr);
        let (at, marked) = row(&named.stdout);
        assert!(marked.contains(" failed "), "{marked}");
        let built_in = named
            .stdout
            .lines()
            .position(|line| line.starts_with("compressor "));
        assert!(built_in.unwrap() < at, "{}", named.stdout);
        assert!(!named.stderr.contains("stood in"), "{}", named.stderr);

        let report = [&replay[..], &["--report", "-"]].concat();
        let report: Value =
            serde_json::from_str(&ran(&mut home.contexture(&report)).stdout).unwrap();
        let total = &report["totals"][1];
        assert_eq!(total["engine"], "misbehaving");
        assert!(total["failures"].as_u64().unwrap() > 0, "{fault}: {total}");
        if fault.ends_with("compress") || fault == "id-missing" {
            assert_eq!(total["compactions"], 0, "{fault}: another's compactions");
        }
    }
    let sound = misbehaving("", "");
    let replay = [
        "replay", "chat.json", "--context-length", "20000", "--engine", "misbehaving",
    ];
    let sound = ran(&mut sound.contexture(&replay));
    assert_eq!(sound.code, Some(0), "{}", sound.stderr);
    assert!(!sound.stdout.contains("failed"), "{}", sound.stdout);
}

/// Each engine's settings are checked before it runs, by every command alike, and nothing stands in for one whose
/// settings are wrong.
#[test]
fn wrong_settings_are_an_error_of_the_configuration() {
    let wrong = [
        (
            "lcm",
            "soft_treshold: 0.4",
            "did you mean `context.engines.lcm.soft_threshold`?",
        ),
        (
            "lcm",
            "hard_threshold: 0.3",
            "must not be less than `context.engines.lcm.soft_threshold`, 0.5",
        ),
        ("lcm", "redact: 7", "`context.engines.lcm.redact` is 7"),
        (
            "compressor",
            "treshold: 0.4",
            "did you mean `context.engines.compressor.threshold`?",
        ),
        (
            "keep-tail",
            "keep_lst: 5",
            "did you mean `context.engines.keep-tail.keep_last`?",
        ),
    ];
    for (engine, setting, says) in wrong {
        let home = Home::new();
        put_chat(&home);
        home.install("plugins/context_engine/keep-tail", "keep-tail");
        // Whether it runs or another does.
        for runs in [engine, "compressor", "lcm"] {
            home.configure(&format!(
                "context:\n  engine: {runs}\n  on_failure: fallback\n  engines:\n    {engine}: {{{setting}}}\n"
            ));
            for command in [
                &COMPRESS[..],
                &["replay", "chat.json"],
                &["config", "check"],
                &["import", "chat.json", "--session", "s"],
                &["tool", "--session", "s"],
                &["sessions", "list"],
            ] {
                let Ran {
                    code,
                    stdout,
                    stderr,
                } = ran(&mut home.contexture(command));
                assert_eq!(
                    (code, stdout.as_str()),
                    (Some(2), ""),
                    "{command:?}: {stderr}"
                );
                assert!(stderr.contains(says), "{command:?} {setting}: {stderr}");
            }
        }
    }
}

#[test]
fn settings_of_an_engine_that_is_not_there_are_named_with_the_nearest() {
    let home = Home::new();
    home.configure("context:\n  engines:\n    lmc: {redact: true}\n");
    put_chat(&home);
    let says =
        "`context.engines.lmc` has settings, but there is no such engine; did you mean `lcm`?";
    for (command, expected) in [(&["config", "check"][..], 2), (&COMPRESS, 0)] {
        let Ran { code, stderr, .. } = ran(&mut home.contexture(command));
        assert_eq!(code, Some(expected), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
}

#[test]
fn the_settings_of_an_engine_are_shown_and_its_plugin_declares_the_same() {
    let home = Home::new();
    let shown = ran(&mut home.contexture(&["engines", "show", "lcm", "--json"]));
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(
        (&shown["name"], &shown["source"]),
        (&"lcm".into(), &"registered".into())
    );
    let linked = shown["settings_schema"].as_object().unwrap();
    home.install("plugins/context_engine/lcm", "lcm");
    let both = ran(&mut home.contexture(&["engines", "show", "lcm", "--json"]));
    let both: Value = serde_json::from_str(&both.stdout).unwrap();
    let plugin = both
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["source"] == "plugin");
    let plugin = plugin.unwrap()["settings_schema"].as_object().unwrap();
    let names =
        |schema: &serde_json::Map<String, Value>| schema.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(linked), names(plugin));
    for (key, one) in linked {
        for word in ["type", "default", "description", "minimum", "maximum"] {
            let number = |value: &Value| value.as_f64();
            let (one, other) = (&one[word], &plugin[key][word]);
            assert!(
                one == other || number(one) == number(other),
                "{key} {word}: {one} {other}"
            );
        }
    }
    let text = home.command(&["engines", "show", "lcm"]).0;
    assert!(
        text.contains("soft_threshold") && text.contains("0.5"),
        "{text}"
    );
}

/// Sequences that set a terminal's title, clear it, or go back in the line.
const ESCAPES: &str = "\x1b]0;owned\x07\x1b[2J\u{9b}31m\r\x08";

/// Whatever a plugin or a file says, no control character of it comes out.
#[test]
fn no_control_character_of_a_plugin_or_a_file_reaches_the_terminal() {
    let shown = |home: &Home, arguments: &[&str], must_say: bool| {
        let Ran { stdout, stderr, .. } = ran(&mut home.contexture(arguments));
        let all = format!("{stdout}{stderr}");
        let control = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
        assert!(!all.contains(control), "{arguments:?}: {all:?}");
        assert!(
            !must_say || all.contains("]0;owned"),
            "{arguments:?}: {all}"
        );
    };
    // In what a plugin says while it runs.
    for fault in [
        "escape-error:open",
        "escape-error:compress",
        "escape-panic:open",
        "escape-panic:compress",
        "escape-panic:drop",
    ] {
        let home = misbehaving(fault, "");
        shown(&home, &COMPRESS, true);
        shown(&home, &[&COMPRESS[..], &["-vvv"]].concat(), true);
        shown(&home, &["engines", "doctor"], fault.contains("open"));
        shown(
            &home,
            &["replay", "chat.json", "--context-length", "20000"],
            false,
        );
        shown(
            &home,
            &["tool", "x", "--session", "s", "--engine", "misbehaving"],
            false,
        );
    }
    let home = misbehaving("escape-reason", "");
    shown(
        &home,
        &["compress", "chat.json", "--context-length", "200000"],
        true,
    );
    // In the texts of a manifest: its description, an unknown key, a wrong value, a name.
    let escaped = ESCAPES
        .chars()
        .map(|one| format!("\\u{:04x}", u32::from(one)));
    let quoted = format!("\"{}\"", escaped.collect::<String>());
    for line in [
        format!("description: {quoted}"),
        format!("{quoted}: 1"),
        format!("api: {quoted}"),
        format!("library: {quoted}"),
        format!("settings: {{a: {{type: integer, description: {quoted}}}}}"),
        format!("settings: {{{quoted}: {{type: integer}}}}"),
    ] {
        let home = Home::new();
        put_chat(&home);
        let folder = home.plugin_dir("odd");
        std::fs::create_dir_all(&folder).unwrap();
        let manifest = format!("name: odd\nversion: \"1\"\n{line}\n");
        std::fs::write(folder.join("plugin.yaml"), manifest).unwrap();
        let says = line.starts_with("description");
        shown(&home, &["engines", "show", "odd"], says);
        for arguments in [
            &["engines", "list"][..],
            &["engines", "doctor"],
            &["plugins", "list"],
            &["config", "check"],
            &[&COMPRESS[..], &["--engine", "odd"]].concat(),
        ] {
            shown(&home, arguments, false);
        }
    }
    // In unknown keys and values of the configuration, and in names on the command line.
    for line in [
        format!("{quoted}: 1"),
        format!("context: {{engine: {quoted}}}"),
        format!("context: {{engines: {{{quoted}: {{}}}}}}"),
        format!("context: {{engines: {{lcm: {{{quoted}: 1}}}}}}"),
        format!("compression: {{threshold: {quoted}}}"),
    ] {
        let home = Home::new();
        put_chat(&home);
        home.configure(&line);
        shown(&home, &["config", "check"], false);
        shown(&home, &COMPRESS, false);
        shown(&home, &["engines", "doctor"], false);
        shown(&home, &["sessions", "list"], false);
    }
    let home = Home::new();
    put_chat(&home);
    for arguments in [
        &["engines", "show", ESCAPES][..],
        &["tool", "x", "--session", ESCAPES],
        &["tool", ESCAPES, "--session", "s"],
        &["sessions", "show", ESCAPES],
        &["compress", ESCAPES],
        &[&COMPRESS[..], &["--engine", ESCAPES]].concat(),
    ] {
        shown(&home, arguments, false);
    }
}

#[test]
fn manifests_are_what_their_libraries_say() {
    for plugin in ["keep-tail", "two-layer", "tiered"] {
        let library = built_plugins().join(library_name(plugin));
        let said =
            contexture::catalog::manifest_of(&library, std::time::Duration::from_secs(60)).unwrap();
        let folder = format!("plugins/context_engine/{plugin}");
        let path = repository().join(&folder).join("plugin.yaml");
        let manifest = std::fs::read_to_string(path).unwrap();
        assert_eq!(manifest, said, "run `contexture plugins build {folder}`");
    }
}

#[test]
fn a_plugin_without_a_manifest_gets_the_one_that_its_library_says() {
    let home = Home::new();
    let folder = home.plugin_dir("tiny");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let api = repository().join("engine-api");
    let crate_manifest = format!(
        "[package]\nname = \"tiny\"\ndescription = \"Does nothing\"\nversion = \"0.2.0\"\nedition = \"2024\"\n\
         [workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\n\
         contexture-engine-api = {{ path = {api:?} }}\nserde_json = \"1\"\n"
    );
    std::fs::write(folder.join("Cargo.toml"), crate_manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let source = r#"
        use contexture_engine_api::*;
        struct Tiny;
        impl StandaloneEngine for Tiny {
            fn about(_host: &HostInfo) -> About {
                let settings = serde_json::json!({"properties": {"keep": {"type": "integer", "default": 7}}});
                About::default().settings(Some(settings)).selects(true)
            }
            fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
                Ok(Tiny)
            }
        }
        impl ContextEngine for Tiny {
            fn should_compress(&self, _window: &WindowState) -> Decision {
                Decision::No("never".into())
            }
            fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
                Ok(Outcome::NothingToDo("nothing".into()))
            }
        }
        export_engine!("tiny", Tiny);
    "#;
    std::fs::write(folder.join("src/lib.rs"), source).unwrap();
    let path = folder.to_str().unwrap();
    let build = || {
        let mut command = home.contexture(&["plugins", "build", "--debug", path]);
        ran(command
            .env("CARGO_TARGET_DIR", contexture_tests::target_dir())
            .env("CARGO_NET_OFFLINE", "true"))
    };
    let built = build();
    assert_eq!(built.code, Some(0), "{}", built.stderr);
    let manifest = std::fs::read_to_string(folder.join("plugin.yaml")).unwrap();
    assert!(
        manifest.contains("version: 0.2.0") && manifest.contains("default: 7"),
        "{manifest}"
    );
    assert!(manifest.contains("asks:\n- selects\n"), "{manifest}");
    let listed = home.command(&["plugins", "list"]).0;
    assert!(listed.contains("tiny  0.2.0    ready"), "{listed}");

    // It follows the library, unless somebody wrote one of their own.
    std::fs::write(folder.join("src/lib.rs"), source.replace("7", "8")).unwrap();
    assert_eq!(build().code, Some(0));
    let manifest = std::fs::read_to_string(folder.join("plugin.yaml")).unwrap();
    assert!(manifest.contains("default: 8"), "{manifest}");
    let own = "name: tiny\nversion: 0.2.0\nasks: []\n";
    std::fs::write(folder.join("plugin.yaml"), own).unwrap();
    assert_eq!(build().code, Some(0));
    assert_eq!(
        std::fs::read_to_string(folder.join("plugin.yaml")).unwrap(),
        own
    );

    // By what it asks for it was allowed, and it asks for more.
    put_chat(&home);
    let named = [&COMPRESS[..], &["--engine", "tiny"]].concat();
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&named));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("asks for selects, which `asks` in"),
        "{stderr}"
    );
    std::fs::write(folder.join("plugin.yaml"), own.replace("[]", "[selects]")).unwrap();
    let Ran { code, stderr, .. } = ran(&mut home.contexture(&named));
    assert_eq!(code, Some(0), "{stderr}");
}
