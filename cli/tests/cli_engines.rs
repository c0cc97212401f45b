//! `engines`, `plugins` and `config` of the `contexture` command.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};

use cli_support::{Home, Ran, chat, json, ran};

fn plugin(home: &Home, name: &str, manifest: &str) {
    home.put(
        &format!("home/plugins/context_engine/{name}/plugin.yaml"),
        manifest,
    );
}

fn library(home: &Home, name: &str, text: &str) {
    let library = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", name.replace('-', "_"));
    home.put(
        &format!("home/plugins/context_engine/{name}/{library}"),
        text,
    );
}

#[test]
fn the_list_shows_every_engine_its_state_and_why_one_runs() {
    let home = Home::new();
    let ran = home.done("engines list");
    let runs = |line: &str| {
        line.split_whitespace()
            .take(3)
            .eq(["*", "compressor", "builtin"])
    };
    assert!(ran.stdout.lines().any(runs), "{}", ran.stdout);
    ran.stdout_has("this one is the default");

    plugin(
        &home,
        "source",
        "name: source\nversion: \"1.2\"\ndescription: Does it\n",
    );
    plugin(&home, "broken", "name: other\nversion: \"1\"\n");
    home.put("home/config.yaml", "context: {engine: source}\n");
    let ran = home.contexture("engines list --json");
    let listed = json(&ran.stdout);
    let engines = listed["engines"].as_array().unwrap();
    let of = |name: &str| {
        engines
            .iter()
            .find(|engine| engine["name"] == name)
            .unwrap()
    };
    assert_eq!(of("source")["state"], "not_built");
    assert_eq!(
        (
            of("source")["version"].as_str(),
            of("source")["description"].as_str()
        ),
        (Some("1.2"), Some("Does it"))
    );
    assert_eq!(of("broken")["state"], "broken");
    assert!(
        of("broken")["problem"]
            .as_str()
            .unwrap()
            .contains("name: other")
    );
    assert_eq!(
        (&of("compressor")["chosen"], &of("source")["chosen"]),
        (&true.into(), &false.into())
    );
    assert_eq!(listed["running"]["requested"], "source");
    assert_eq!(listed["running"]["engine"], "compressor");
    let text = home.contexture("engines list").stdout;
    assert!(
        text.contains("names `source`, which cannot run")
            && text.contains("contexture plugins build"),
        "{text}"
    );
}

#[test]
fn every_list_is_to_be_had_as_json() {
    let home = Home::new();
    plugin(&home, "unbuilt", "name: unbuilt\nversion: \"2.1\"\n");
    plugin(&home, "broken", "name: [\n");
    let of = |args: &[&str]| {
        let ran = home.run(args.iter().copied());
        ran.exits(0);
        json(&ran.stdout)
    };
    let engines = of(&["engines", "--json"]);
    assert_eq!(engines, of(&["engines", "list", "--json"]));
    let plugins = of(&["plugins", "list", "--json"]);
    let listed = plugins["plugins"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{plugins}");
    for plugin in listed {
        let engine = engines["engines"]
            .as_array()
            .unwrap()
            .iter()
            .find(|engine| engine["name"] == plugin["name"]);
        assert_eq!(engine.unwrap()["state"], plugin["state"], "{plugin}");
    }
    assert_eq!(plugins["folders"], engines["folders"]);
}

#[test]
fn listing_runs_no_code_of_a_plugin() {
    let home = Home::new();
    plugin(&home, "ready", "name: ready\nversion: \"1\"\n");
    library(&home, "ready", "no library at all");
    home.put("home/config.yaml", "context: {engine: ready}\n");
    let listed = json(&home.contexture("engines list --json").stdout);
    assert_eq!(
        listed["running"]["engine"], "ready",
        "it is found, and not loaded"
    );
    assert!(
        !std::path::Path::new(&home.path("home/engines")).exists(),
        "nothing was opened"
    );
}

#[test]
fn show_tells_the_settings_and_hints_at_a_slip() {
    let home = Home::new();
    plugin(
        &home,
        "tail",
        "name: tail\nversion: \"1\"\nsettings:\n  keep:\n    type: integer\n    minimum: 1\n    maximum: 90\n    default: 20\n    description: Messages kept\n",
    );
    home.put(
        "home/config.yaml",
        "context: {engines: {tail: {keep: 7}}}\n",
    );
    let text = home.contexture("engines show tail").stdout;
    for part in [
        "not built",
        "keep",
        "a whole number from 1 to 90",
        "20",
        "Messages kept",
        "{\"keep\":7}",
        "plugin.yaml",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    let shown = json(&home.contexture("engines show tail --json").stdout);
    assert_eq!(shown["settings_schema"]["keep"]["type"], "integer");
    assert_eq!(shown["settings"]["keep"], 7);
    let shown = json(&home.contexture("engines show compressor --json").stdout);
    assert_eq!(shown["settings_schema"]["threshold"]["default"], 0.5);
    let ran = home.contexture("engines show compresser");
    assert_eq!(ran.code, 2);
    ran.stderr_has("did you mean `compressor`?");
}

#[test]
fn the_doctor_is_content_with_the_defaults_and_names_what_is_wrong() {
    let home = Home::new();
    let ran = home.done("engines doctor");
    ran.stdout_has("the built-in compressor loads, opens and answers");

    let bad: [(&str, &str); 5] = [
        ("modle: {}\n", "did you mean `model`?"),
        ("a: [\n", "config.yaml"),
        ("context: {engine: nowhere}\n", "no engine `nowhere`"),
        ("plugins: {dirs: [not-there]}\n", "not-there does not exist"),
        (
            "auxiliary: {compression: {provider: anthropic, model: m}}\n",
            "ANTHROPIC_API_KEY",
        ),
    ];
    for (config, part) in bad {
        home.put("home/config.yaml", config);
        let ran = home.contexture("engines doctor");
        assert_eq!(ran.code, 1, "{config}: {}", ran.stdout);
        assert!(ran.stdout.contains(part), "{config}: {}", ran.stdout);
        let told = json(&home.contexture("engines doctor --json").stdout);
        assert_eq!(told["healthy"], false, "{config}");
    }

    // A library that is none: found by really loading it, and the fallback is no recovery.
    home.put("home/config.yaml", "context: {engine: fake}\n");
    plugin(&home, "fake", "name: fake\nversion: \"1\"\n");
    library(&home, "fake", "not a library");
    let ran = home.contexture("engines doctor");
    assert_eq!(ran.code, 1);
    ran.stdout_has("`fake` cannot be loaded");
    ran.stdout_has("\n1 problem.\n");
}

/// Each cause is one problem, and sessions are counted whatever engine they were for.
#[test]
fn the_doctor_counts_causes_and_all_sessions() {
    let home = Home::new();
    home.put("chat.json", &chat(3));
    home.done("import chat.json --session one");
    home.done("engines doctor").stdout_has("1 in the record");
    let opens = "import json, sys\n\
                 for line in sys.stdin:\n    call = json.loads(line)\n    \
                 if call['method'] == 'open': sys.exit(3)\n    \
                 print(json.dumps({'id': call['id'], 'result': {'name': 'fails', 'version': '1'}}), flush=True)\n";
    for script in [opens, "raise SystemExit(3)"] {
        home.put("home/config.yaml", "context: {engine: fails}\n");
        home.put("home/plugins/context_engine/fails/engine.py", script);
        let manifest = "name: fails\nversion: \"1\"\ncommand: [python3, engine.py]\n";
        plugin(&home, "fails", manifest);
        let ran = home.contexture("engines doctor");
        ran.exits(1);
        ran.stdout_has("its process exited with code 3");
        ran.stdout_has("\n1 problem.\n");
    }
}

/// A plugin is not called fit if its engine could never start, nor if it asks for what does not exist.
#[test]
fn the_doctor_calls_no_plugin_fit_that_cannot_start() {
    let examined = |program: &str, asks: &str| {
        let home = Home::new();
        home.put("home/plugins/context_engine/script/engine.sh", "");
        plugin(
            &home,
            "script",
            &format!(
                "name: script\nversion: \"1\"\ncommand: [{program}, engine.sh]\nasks: [{asks}]\n"
            ),
        );
        let told = json(&home.contexture("engines doctor --json").stdout);
        let findings = told["findings"].as_array().unwrap().iter();
        let of_plugin = findings.filter(|finding| finding["about"] == "plugin script");
        let said =
            of_plugin.map(|finding| format!("{}: {}", finding["health"], finding["message"]));
        (told["healthy"] == true, said.collect::<Vec<_>>().join("\n"))
    };
    let (healthy, said) = examined("sh", "rewrites");
    assert!(healthy && said.starts_with("\"ok\""), "{said}");
    for (program, asks, part) in [
        ("no-such-shell", "rewrites", "`no-such-shell`"),
        ("sh", "rewrites, everything", "`everything`"),
    ] {
        let (healthy, said) = examined(program, asks);
        assert!(!healthy && said.contains(part), "{said}");
        assert!(!said.contains("\"ok\""), "{said}");
    }
}

#[cfg(unix)]
#[test]
fn the_doctor_notices_a_home_that_cannot_be_written() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let set = |mode| {
        std::fs::set_permissions(home.path("home"), std::fs::Permissions::from_mode(mode)).unwrap()
    };
    set(0o500);
    if std::fs::write(home.path("home/probe"), "").is_ok() {
        eprintln!("skipped: this user may write everywhere");
        return;
    }
    let ran = home.contexture("engines doctor");
    set(0o700);
    ran.exits(1);
    ran.stdout_has("cannot be written");
}

#[test]
fn a_plugin_is_built_and_its_library_put_beside_its_manifest() {
    let home = Home::new();
    let folder = "home/plugins/context_engine/my-engine";
    plugin(&home, "my-engine", "name: my-engine\nversion: \"0.3.0\"\n");
    let manifest =
        "[package]\nname = \"any-name\"\nversion = \"0.3.0\"\nedition = \"2024\"\n[workspace]\n";
    home.put(
        &format!("{folder}/Cargo.toml"),
        &format!("{manifest}[lib]\ncrate-type = [\"cdylib\"]\n"),
    );
    home.put(&format!("{folder}/src/lib.rs"), "");
    library(&home, "my-engine", "the old one");
    let target = home.path("target");
    let build = |args: &[&str]| {
        let args = ["plugins", "build"].iter().chain(args).copied();
        let output = home
            .command(args)
            .env("CARGO_TARGET_DIR", &target)
            .output()
            .unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        (output.status.code(), text)
    };
    let (code, text) = build(&["--debug"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("built my-engine 0.3.0"), "{text}");
    let built = home.path(&format!("{folder}/{DLL_PREFIX}my_engine{DLL_SUFFIX}"));
    assert!(
        std::fs::metadata(&built).unwrap().len() > 1_000,
        "a library, and not the old one"
    );
    let listed = home.contexture("plugins list").stdout;
    assert!(listed.contains("my-engine  0.3.0    ready"), "{listed}");

    // A build that fails leaves the library that is there.
    home.put(
        &format!("{folder}/src/lib.rs"),
        "compile_error!(\"on purpose\");",
    );
    let (code, text) = build(&[&home.path(folder), "--debug"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("on purpose") && text.contains("does not build"),
        "{text}"
    );
    assert!(std::path::Path::new(&built).exists());

    home.put(&format!("{folder}/Cargo.toml"), manifest);
    home.put(&format!("{folder}/src/lib.rs"), "");
    let (code, text) = build(&["--debug"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("crate-type = [\"cdylib\"]"), "{text}");

    let (code, text) = build(&[&home.path("home")]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("no Cargo.toml"), "{text}");
}

#[test]
fn config_check_names_every_problem() {
    let home = Home::new();
    assert_eq!(home.contexture("config check").code, 0);
    home.put("home/config.yaml", "compression: {threshold: 0.4}\n");
    let ran = home.done("config check");
    ran.stdout_has("no problems");

    home.put("home/config.yaml", "compresion: {}\nhygeine: {}\n");
    let ran = home.contexture("config check");
    assert_eq!(ran.code, 2);
    for part in [
        "did you mean `compression`?",
        "did you mean `hygiene`?",
        "config.yaml:2:1",
    ] {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
    home.put("home/config.yaml", "compression: {threshold: 7}\n");
    let ran = home.contexture("config check");
    assert_eq!(ran.code, 2);
    ran.stderr_has("a share of the window above 0 and up to 1");

    // The settings of an engine are checked by the schema that its manifest declares.
    plugin(
        &home,
        "tail",
        "name: tail\nversion: \"1\"\nsettings: {keep: {type: integer}}\n",
    );
    home.put("home/config.yaml", "context: {engines: {tail: {kep: 7}}}\n");
    let ran = home.contexture("config check");
    assert_eq!(ran.code, 2);
    ran.stderr_has("did you mean `context.engines.tail.keep`?");
}

#[test]
fn config_check_names_a_folder_that_is_no_embedder() {
    let home = Home::new();
    let missing = home.path("mini");
    let text =
        format!("context:\n  engine: lcm\n  engines:\n    lcm:\n      embedder: {missing}\n");
    home.put("home/config.yaml", &text);
    let ran = home.contexture("config check");
    ran.exits(2);
    let file = format!("{missing}/model.onnx");
    for part in [
        "config.yaml:",
        "`context.engines.lcm.embedder`",
        &file,
        "vocab.txt",
    ] {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
}

/// What `serve` refuses, `config check` and `engines doctor` name with its line. A name that has to be
/// resolved, and variables of the environment, are left to `serve`, and files to `engines doctor`, too:
/// a configuration is checked where it is written, which may be another machine.
#[test]
fn config_check_names_what_a_gateway_cannot_run_with() {
    let home = Home::new();
    let cases = [
        ("listen: \"\"", "not an address to listen on"),
        ("listen: nonsense", "not an address to listen on"),
        ("listen: \":8787\"", "not an address to listen on"),
        ("listen: localhost", "not an address to listen on"),
        ("listen: \"127.0.0.1:99999\"", "not an address to listen on"),
        (
            "listen: \"http://127.0.0.1:8787\"",
            "not an address to listen on",
        ),
        ("listen: \"0.0.0.0:0\"", "no token is configured"),
        ("listen: \"[::]:0\"", "no token is configured"),
        ("tokens: {\"\": X}", "not a valid name"),
        ("tokens: {\"a/b\": X}", "not a valid name"),
        (
            "tokens: {a: \"\"}",
            "`gateway.tokens.a` names no environment variable",
        ),
        ("tokens: {a: X, b: X}", "have the same token"),
        ("origins: [ui.example]", "in `gateway.origins`"),
        ("origins: [\"https://ui.example/\"]", "in `gateway.origins`"),
        ("origins: [\"*\"]", "in `gateway.origins`"),
        ("hosts: [\"http://x\"]", "in `gateway.hosts`"),
        ("hosts: [\"\"]", "in `gateway.hosts`"),
        ("hosts: [\"*.example.org\"]", "in `gateway.hosts`"),
    ];
    for (text, says) in cases {
        home.put("home/config.yaml", &format!("gateway:\n  {text}\n"));
        for command in ["config check", "serve"] {
            let ran = home.contexture(command);
            ran.exits(2).stderr_has(says).stderr_has("config.yaml:2:");
        }
        let doctor = home.contexture("engines doctor");
        doctor
            .exits(1)
            .stdout_has(says)
            .stdout_has("config.yaml:2:");
    }
    for text in [
        "gateway:\n\n  tls: {certificate: none.pem, key: none.key}\n",
        "upstream:\n  openai:\n    tls: {ca: none.pem}\n",
    ] {
        home.put("home/config.yaml", text);
        home.done("config check");
        let ran = home.contexture("serve");
        ran.exits(2)
            .stderr_has("none.pem")
            .stderr_has("config.yaml:3:");
        let ran = home.contexture("engines doctor");
        ran.exits(1)
            .stdout_has("none.pem")
            .stdout_has("config.yaml:3:");
    }
    // A file that is there is checked.
    home.put("home/empty.pem", "");
    for text in [
        "gateway:\n\n  tls: {certificate: empty.pem, key: empty.pem}\n",
        "upstream:\n  openai:\n    tls: {ca: empty.pem}\n",
    ] {
        home.put("home/config.yaml", text);
        for command in ["config check", "serve"] {
            let ran = home.contexture(command);
            ran.exits(2)
                .stderr_has("empty.pem")
                .stderr_has("config.yaml:3:");
        }
        let ran = home.contexture("engines doctor");
        ran.exits(1).stdout_has("empty.pem");
        assert_eq!(ran.stdout.matches("empty.pem").count(), 1, "{}", ran.stdout);
    }
    for text in [
        "listen: \"localhost:8787\"",
        "listen: \"gateway.internal:8787\"",
        "listen: \"[::1]:0\"",
        "listen: \"0.0.0.0:8787\"\n  tokens: {a: X, b: Y}",
        "hosts: [\"gateway.internal:8080\", \"[::1]\"]\n  origins: [\"https://ui.example:8443\"]",
    ] {
        home.put("home/config.yaml", &format!("gateway:\n  {text}\n"));
        home.done("config check");
    }
}

#[test]
fn config_check_calls_a_misspelled_count_of_tokens_a_misspelling() {
    let home = Home::new();
    for (text, near) in [
        (
            "model: {max_output_token: 16384}",
            "model.max_output_tokens",
        ),
        ("model: {max_output_token: 16k}", "model.max_output_tokens"),
        (
            "compression: {max_threshold_token: 100000}",
            "compression.max_threshold_tokens",
        ),
        (
            "context: {engines: {lcm: {large_message_token: 5000}}}",
            "context.engines.lcm.large_message_tokens",
        ),
    ] {
        home.put("home/config.yaml", &format!("{text}\n"));
        let ran = home.contexture("config check");
        ran.exits(2).stderr_has(&format!("did you mean `{near}`?"));
        ran.stderr_lacks("API key");
    }
}

#[test]
fn config_check_names_an_engine_that_is_not_there() {
    let home = Home::new();
    home.put("home/config.yaml", "context:\n  engine: lmc\n");
    let ran = home.contexture("config check");
    ran.exits(2);
    for part in ["config.yaml:2:11", "no engine `lmc`", "did you mean `lcm`?"] {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
    let ran = home.contexture("engines show lmc");
    ran.exits(2);
    ran.stderr_has("did you mean `lcm`?");
    home.put("home/config.yaml", "context:\n  engine: lcm\n");
    home.done("config check");
    let text =
        "context:\n  engines:\n    lmc: {soft_threshold: 0.5}\n    tiered: {isolation: bad}\n";
    home.put("home/config.yaml", text);
    let ran = home.contexture("config check");
    ran.exits(2)
        .stderr_has("`context.engines.tiered.isolation` is \"bad\"");
    ran.stderr_lacks("help: `contexture config check`");
    home.put(
        "home/config.yaml",
        text.lines().take(3).collect::<Vec<_>>().join("\n").as_str(),
    );
    let ran = home.contexture("config check");
    ran.exits(2)
        .stderr_has("config.yaml:3:")
        .stderr_has("`context.engines.lmc` has settings");
}

#[test]
fn store_migrate_without_a_config_asks_for_the_url_alone() {
    let home = Home::new();
    for line in ["store migrate", "store copy --from sqlite --to postgres"] {
        let ran = home.contexture(line);
        assert_ne!(ran.code, 0, "{line}");
        ran.stderr_has("CONTEXTURE_DATABASE_URL")
            .stderr_has("postgres://<user>:<password>@<host>");
        ran.stderr_lacks("transcript.store").stderr_lacks("masked");
    }
}

/// A path that is not UTF-8 is shown with other characters than it has.
#[cfg(unix)]
#[test]
fn the_list_marks_the_plugin_that_runs_in_a_folder_of_any_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let home = Home::new();
    plugin(&home, "there", "name: there\nversion: \"1\"\n");
    library(&home, "there", "not loaded by a list");
    home.put("home/config.yaml", "context: {engine: there}\n");
    let odd = std::path::Path::new(&home.path("home"))
        .with_file_name(std::ffi::OsStr::from_bytes(b"home\xff"));
    std::fs::rename(home.path("home"), &odd).unwrap();
    let mut list = home.command(["engines", "list", "--json"]);
    let ran = ran(list.env("CONTEXTURE_HOME", &odd).output().unwrap());
    let listed = json(&ran.stdout);
    let engines = listed["engines"].as_array().unwrap();
    let chosen: Vec<_> = engines
        .iter()
        .filter(|engine| engine["chosen"] == true)
        .map(|engine| engine["name"].as_str().unwrap())
        .collect();
    assert_eq!(chosen, ["there"], "{listed}");
}

#[test]
fn a_plugin_that_cannot_run_is_told_with_the_reason_and_the_way_out() {
    let home = Home::new();
    home.put("chat.json", &chat(4));
    plugin(&home, "source", "name: source\nversion: \"1\"\n");
    plugin(&home, "text", "name: text\nversion: \"1\"\n");
    library(&home, "text", &"no library ".repeat(50));
    let run = |engine| home.contexture(format!("compress chat.json --engine {engine}"));
    let ran = run("source");
    ran.exits(2);
    for part in ["not built", "`contexture plugins build`"] {
        assert!(ran.stderr.contains(part), "no {part} in {}", ran.stderr);
    }
    let ran = run("text");
    ran.exits(2);
    ran.stderr_has("text");
    ran.stderr_lacks("dlopen failed");
    // The system's words.
    #[cfg(target_os = "linux")]
    ran.stderr_has("cannot be opened as a library: invalid ELF header");
}

#[test]
fn config_check_names_settings_that_contradict_each_other() {
    let home = Home::new();
    let check = |text: &str, says: &[&str]| {
        home.put("home/config.yaml", text);
        let ran = home.contexture("config check");
        assert_eq!(ran.code, 2, "{text}: {}", ran.stdout);
        for part in says {
            assert!(
                ran.stderr.contains(part),
                "{text}: no {part} in {}",
                ran.stderr
            );
        }
    };
    check(
        "model:\n  context_length: 8000\n  max_output_tokens: 8000\n",
        &[
            "config.yaml:3:",
            "`model.max_output_tokens`",
            "`model.context_length`, 8000",
        ],
    );
    check(
        "hygiene:\n  max_messages: 12\n",
        &[
            "config.yaml:2:",
            "`hygiene.max_messages` is 12",
            "`compression.protect_last_n`, 20",
        ],
    );
    let lcm = "context:\n  engine: lcm\n  engines:\n    lcm:\n";
    check(
        &format!("{lcm}      soft_threshold: 0.9\n"),
        &[
            "config.yaml:5:",
            "`context.engines.lcm.hard_threshold` is 0.8",
            "`context.engines.lcm.soft_threshold`, 0.9",
        ],
    );
    check(
        &format!("{lcm}      fresh_tail: 0.75\n      summaries: 0.4\n"),
        &[
            "config.yaml:5:",
            "`context.engines.lcm.fresh_tail`",
            "`context.engines.lcm.summaries`",
            "1.15",
        ],
    );
    check(
        "auxiliary:\n  compression:\n    model: gpt-4o-mini\n",
        &[
            "config.yaml:3:",
            "`auxiliary.compression.model`",
            "`auxiliary.compression.provider`",
            "`model.provider`",
        ],
    );
    check(
        "auxiliary:\n  compression:\n    provider: openai\n    base_url: http://localhost:9\n",
        &["config.yaml:3:", "`auxiliary.compression.model` is not set"],
    );
    // What contradicts itself does not run, either.
    home.put("chat.json", &chat(6));
    home.put(
        "home/config.yaml",
        &format!("{lcm}      soft_threshold: 0.9\n"),
    );
    let ran = home.contexture("compress chat.json");
    ran.exits(2);
    ran.stderr_has("soft_threshold");
}

#[test]
fn config_show_and_path_tell_what_holds_and_where_it_stands() {
    let home = Home::new();
    let ran = home.contexture("config path");
    assert_eq!(ran.stdout.trim_end(), home.path("home/config.yaml"));
    ran.stderr_has("does not exist");
    home.put("home/config.yaml", "compression: {threshold: 0.4}\n");
    assert!(home.contexture("config path").stderr.contains("It exists"));
    let shown = home.contexture("config show").stdout;
    assert!(
        shown.contains("threshold: 0.4\n") && shown.contains("target_ratio: 0.2  # default"),
        "{shown}"
    );
    // What is shown is a config file that says the same.
    home.put("again.yaml", &shown);
    assert_eq!(home.contexture("config check --config again.yaml").code, 0);

    home.put("home/config.yaml", "a: [\n");
    let ran = home.contexture("config path");
    assert_eq!(
        (ran.code, ran.stdout.trim_end()),
        (0, home.path("home/config.yaml").as_str()),
        "a broken file is found, too"
    );
    assert_eq!(home.contexture("config show").code, 2);
    let ran = home.contexture("config show --config nowhere.yaml");
    assert_eq!(ran.code, 2);
    ran.stderr_has("nowhere.yaml");
}

#[cfg(feature = "lcm")]
#[test]
fn an_engine_shows_its_status_and_what_it_makes_of_a_conversation() {
    let home = Home::new();
    let shown = home.contexture("engines show lcm");
    shown.stdout_has("status of a new session: {");
    let shown = json(&home.contexture("engines show lcm --json").stdout);
    assert!(shown["status"].is_object(), "{shown}");

    home.put("chat.json", &chat(300));
    let tried = ["engines", "try", "lcm", "chat.json", "--context-length"];
    let Ran {
        code,
        stdout,
        stderr,
        ..
    } = home.run(tried.into_iter().chain(["4000"]));
    assert_eq!(code, 0, "{stderr}");
    for part in [
        "engine       lcm (",
        "decision     compact: ",
        "rewrite      it does not rewrite",
        "compress     compacted",
        "300 → ",
        "select       it has no views of its own",
        "background   ",
        "status       {",
    ] {
        assert!(stdout.contains(part), "no {part} in {stdout}");
    }
    let idle = home.run(tried.into_iter().chain(["400k"])).stdout;
    assert!(
        idle.contains("decision     do not compact: ") && idle.contains("it was not due"),
        "{idle}"
    );
    // Nothing is left behind.
    assert!(!std::path::Path::new(&home.path("home/engines")).exists());
    let none = home.contexture("engines try lmc chat.json");
    assert_eq!(none.code, 2);
    none.stderr_has("lmc");
    none.stderr_has("help:");
}
