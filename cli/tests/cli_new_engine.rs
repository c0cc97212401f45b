//! A stranger's way to an engine: `plugins new`, its tests, `plugins build`, `plugins check`, and a conversation that it
//! compacts; outside the workspace, from its sources and from the copies that the command carries.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::Path;
use std::process::Command;

use cli_support::{Home, Ran, chat, json, ran};

/// Has Cargo fetch nothing, and share what this workspace has built. That takes the same profile, which is the
/// workspace's own unless the environment has another.
fn share_builds(command: &mut Command) {
    let program = std::env::current_exe().unwrap();
    command
        .env("HOME", std::env::var_os("HOME").unwrap_or_default())
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", program.ancestors().nth(3).unwrap());
    if std::env::var_os("CARGO_PROFILE_DEV_DEBUG").is_none() {
        command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    }
}

/// The command as somebody runs it who has Rust.
fn with_cargo(mut command: Command) -> Ran {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        // What cargo tells a test of its own package would make some crates build anew.
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    share_builds(&mut command);
    ran(command.output().unwrap())
}

/// Runs it, and gives what it printed.
fn done<'a>(home: &Home, args: impl IntoIterator<Item = &'a str>) -> String {
    let Ran {
        code,
        stdout,
        stderr,
        ..
    } = with_cargo(home.command(args));
    assert_eq!(code, 0, "{stdout}{stderr}");
    stdout
}

fn cargo_test(home: &Home, folder: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("test").current_dir(home.path(folder));
    let Ran {
        code,
        stdout,
        stderr,
        ..
    } = with_cargo(cargo);
    assert_eq!(code, 0, "{stdout}{stderr}");
    stdout
}

#[test]
fn an_engine_from_the_sources_builds_holds_everything_and_compresses() {
    let home = Home::new();
    done(&home, ["plugins", "new", "my-engine"]);
    for file in ["README.md", ".github/workflows/ci.yml", ".gitignore"] {
        assert!(
            Path::new(&home.path("my-engine")).join(file).is_file(),
            "{file}"
        );
    }
    let manifest = home.read("my-engine/Cargo.toml");
    assert!(
        manifest.contains("engine-api\" }") && !manifest.contains("workspace = true"),
        "{manifest}"
    );

    let not_built = home.contexture("plugins check my-engine");
    assert_eq!(not_built.code, 2);
    not_built.stderr_has("contexture plugins build");

    done(&home, ["plugins", "build", "my-engine", "--debug"]);
    let table = done(&home, ["plugins", "check", "my-engine"]);
    assert!(
        table.contains("growth") && !table.contains(" no: "),
        "{table}"
    );

    home.put("chat.json", &chat(300));
    let played = done(
        &home,
        ["plugins", "check", "my-engine", "--session", "chat.json"],
    );
    let cases = |table: &str| -> u64 {
        let row = table.lines().find(|line| line.starts_with("contract"));
        row.unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    assert!(
        cases(&played) > cases(&table) && !played.contains(" no: "),
        "{played}"
    );

    home.put("config.yaml", "plugins:\n  dirs: [.]\n");
    let args = [
        "compress", "chat.json", "--context-length", "4000", "--config", "config.yaml",
    ];
    let small = done(&home, args.into_iter().chain(["--engine", "my-engine"]));
    assert!(json(&small)["messages"].as_array().unwrap().len() < 300);
}

#[test]
fn a_program_links_an_engine_in() {
    let home = Home::new();
    done(&home, ["plugins", "new", "linked-engine"]);
    let interface = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine-api");
    home.put(
        "agent/Cargo.toml",
        &format!(
            "[package]\nname = \"agent\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
             contexture-engine-api = {{ path = {interface:?} }}\n\
             linked-engine = {{ path = \"../linked-engine\", default-features = false }}\n"
        ),
    );
    // A host takes the engines that it registers from this list.
    home.put(
        "agent/src/main.rs",
        "use linked_engine as _;\n\nfn main() {\n    for engine in contexture_engine_api::linked_engines() {\n        \
         println!(\"{}\", engine.name);\n    }\n}\n",
    );
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("run").current_dir(home.path("agent"));
    let ran = with_cargo(cargo);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "linked-engine\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_engine_with_copies_of_the_interface_passes_its_tests() {
    let home = Home::new();
    done(&home, ["plugins", "new", "copied", "--api", "1.0"]);
    let copies = Path::new(&home.path("copied")).join("contexture");
    assert!(copies.join("engine-api/src/engine.rs").is_file());
    let tested = cargo_test(&home, "copied");
    assert!(
        tested.contains("test conforms_to_the_interface ... ok"),
        "{tested}"
    );
    for entry in ["engine-api", "contract", "testkit"] {
        let manifest = std::fs::read_to_string(copies.join(entry).join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("workspace"), "{manifest}");
    }
}

#[test]
fn the_lossless_engine_can_be_begun_with() {
    let home = Home::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    done(
        &home,
        [
            "plugins",
            "new",
            "my-lcm",
            "--from",
            "lcm",
            "--api",
            sources.to_str().unwrap(),
        ],
    );
    done(&home, ["plugins", "build", "my-lcm", "--debug"]);
    home.put("chat.json", &chat(300));
    home.put("config.yaml", "plugins:\n  dirs: [.]\n");
    let args = [
        "compress", "chat.json", "--context-length", "4000", "--config", "config.yaml",
    ];
    let small = done(&home, args.into_iter().chain(["--engine", "my-lcm"]));
    assert!(small.contains("lcm_expand"), "{small:.500}");
}

#[test]
fn what_cannot_be_begun_is_said_and_leaves_nothing() {
    let home = Home::new();
    home.put("taken/file", "");
    home.put("elsewhere/Cargo.toml", "");
    let version = ["plugins", "new", "later", "--api", "7.1"];
    let ran = home.run(version);
    ran.exits(0);
    ran.stderr_has("needs version 7.1 of the interface");
    assert!(
        home.read("later/Cargo.toml")
            .contains("contexture-engine-api = \"7.1\"")
    );
    for (args, says, way_out) in [
        (
            &["My_Engine"][..],
            "`My_Engine` cannot be",
            "lower-case letters",
        ),
        (
            &["9lives"],
            "`9lives` cannot be",
            "a crate's name begins with a letter",
        ),
        (&["compressor"], "`compressor` is taken", "another name"),
        (&["fn"], "`fn` is taken", "my-fn"),
        (&["self"], "`self` is taken", "my-self"),
        (&["gen"], "`gen` is taken", "my-gen"),
        (&["build"], "`build` is taken", "my-build"),
        (&["serde_json"], "`serde_json` is taken", "my-serde_json"),
        (&["taken"], "taken already exists", "another folder"),
        (
            &["x", "--api", "nowhere"],
            "no sources in nowhere",
            "a checkout",
        ),
        (
            &["x", "--api", "elsewhere"],
            "it has no engine-api/Cargo.toml",
            "a checkout",
        ),
        (
            &["x", "--from", "lcm", "--api", "1.0.0"],
            "the sources of `lcm` are not available",
            "--from lcm --api PATH",
        ),
    ] {
        let Ran { code, stderr, .. } =
            home.run(["plugins", "new"].into_iter().chain(args.iter().copied()));
        assert_eq!(code, 2, "{args:?}");
        assert!(
            stderr.contains(says) && stderr.contains(way_out),
            "{stderr}"
        );
    }
    let mut left: Vec<_> = std::fs::read_dir(home.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["elsewhere", "home", "later", "taken"]);
}

/// Waits until the file holds the words so many times, and gives the whole of it.
fn wait_for(file: &Path, words: &str, times: usize) -> String {
    let began = std::time::Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if text.matches(words).count() >= times {
            return text;
        }
        assert!(began.elapsed().as_secs() < 300, "no `{words}` in {text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A command that runs until the test ends, and writes what it says to a file.
struct Running(std::process::Child);

impl Running {
    fn start(mut command: Command, says: &Path) -> Self {
        let file = std::fs::File::create(says).unwrap();
        let child = command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_change_of_a_plugin_is_built_and_reaches_a_running_gateway() {
    let home = Home::new();
    done(&home, ["plugins", "new", "dev-engine"]);
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    home.put(
        "home/config.yaml",
        &format!("context: {{engine: dev-engine}}\ngateway: {{listen: \"127.0.0.1:{port}\"}}\n"),
    );
    let says = |name: &str| std::path::PathBuf::from(home.path(name));
    let (dev_says, gateway_says) = (says("dev.log"), says("gateway.log"));

    let mut dev = home.command(["plugins", "dev", "dev-engine"]);
    share_builds(&mut dev);
    let _dev = Running::start(dev, &dev_says);
    wait_for(&dev_says, "waiting for changes", 1);
    assert!(wait_for(&dev_says, "installed dev-engine", 1).contains("no gateway is running at"));
    done(&home, ["engines", "show", "dev-engine"]);

    let _gateway = Running::start(home.command(["serve"]), &gateway_says);
    wait_for(&gateway_says, "listening on", 1);
    let source = home.read("dev-engine/src/lib.rs");
    home.put(
        "dev-engine/src/lib.rs",
        &format!("{source}\nfn broken( {{\n"),
    );
    wait_for(&dev_says, "waiting for a change that fixes it", 1);
    home.put("dev-engine/src/lib.rs", &format!("{source}\n// Mended.\n"));
    let said = wait_for(&dev_says, "waiting for changes", 2);
    assert!(
        said.contains("the gateway opens its sessions with it"),
        "{said}"
    );
    wait_for(&gateway_says, "the configuration was read again", 1);
}
