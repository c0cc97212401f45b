//! What the integration tests share: plugins built as a user would build them, a Contexture home of
//! their own, and conversations to compact.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use contexture::config::Config;
use contexture::engines::Engines;
use contexture::formats::{self, Conversation};
use contexture::providers::{ModelClient, NoModel, Resolved};
use contexture::session::{
    AgentWindow, Compact, CompactionReport, Session, SessionError, SessionOptions, TurnOptions,
};
use contexture_engine_api::Decision;
use tempfile::TempDir;

pub mod agent_loops;
pub mod lcm;
pub mod living;
pub mod rules;
pub mod summary_model;

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
        .to_owned()
}

/// Real conversations, which lie beside the repository.
pub fn shared_data() -> PathBuf {
    repository().join("../shared/data")
}

/// Builds the plugin crates of the workspace and the `contexture` command, once in a test program, and
/// gives the folder that they are in.
pub fn built_plugins() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Benchmarks measure optimised plugins.
        let profile = if cfg!(debug_assertions) {
            "dev"
        } else {
            "release"
        };
        let mut cargo = Command::new(env!("CARGO"));
        // What cargo tells a test of its own package would make some crates build anew.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&*name);
            }
        }
        let output = cargo
            .args(["build", "--quiet", "--profile", profile])
            .args(["-p", "contexture-cli", "-p", "contexture-engine-host"])
            .args(["-p", "keep-tail", "-p", "lcm"])
            .args(["-p", "two-layer", "-p", "tiered", "-p", "virtual-files"])
            .args([
                "-p", "misbehaving", "-p", "wrong-abi-version", "-p", "wrong-layout",
            ])
            .current_dir(repository())
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        target_dir().join(if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        })
    })
}

/// Where cargo puts what it builds for this workspace.
pub fn target_dir() -> PathBuf {
    // A test program lies in `<target>/<profile>/deps/`.
    let program = std::env::current_exe().expect("a test program has a path");
    program
        .ancestors()
        .nth(3)
        .expect("<target>/<profile>/deps/<program>")
        .to_owned()
}

/// The file name of a crate's library on this system.
pub fn library_name(name: &str) -> String {
    let prefix = std::env::consts::DLL_PREFIX;
    let suffix = std::env::consts::DLL_SUFFIX;
    format!("{prefix}{}{suffix}", name.replace('-', "_"))
}

/// The SHA-256 of a file, in hex.
pub fn sha256(file: &Path) -> String {
    let digest = hmac_sha256::Hash::hash(&std::fs::read(file).expect("the file is read"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A Contexture home of a test's own.
pub struct Home(TempDir);

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// An empty one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Its `config.yaml`.
    pub fn config(&self) -> PathBuf {
        self.path().join("config.yaml")
    }

    /// Writes its `config.yaml`.
    pub fn configure(&self, yaml: &str) -> &Self {
        std::fs::write(self.config(), yaml).expect("the config file is written");
        self
    }

    /// The folder of the plugin `name`, whether it exists or not.
    pub fn plugin_dir(&self, name: &str) -> PathBuf {
        self.path().join("plugins/context_engine").join(name)
    }

    /// Installs the plugin `name`, whose crate lies in `folder` of the repository: its manifest and its
    /// library.
    pub fn install(&self, folder: &str, name: &str) -> &Self {
        let library = built_plugins().join(library_name(name));
        self.install_library(folder, name, &library)
    }

    /// Installs a plugin with this library.
    pub fn install_library(&self, folder: &str, name: &str, library: &Path) -> &Self {
        let into = self.plugin_dir(name);
        std::fs::create_dir_all(&into).expect("the plugin's folder is made");
        let manifest = repository().join(folder).join("plugin.yaml");
        std::fs::copy(manifest, into.join("plugin.yaml")).expect("the manifest is copied");
        std::fs::copy(library, into.join(library_name(name))).expect("the library is copied");
        self
    }

    /// The `contexture` command in this home, as a user would run it.
    pub fn contexture(&self, args: &[&str]) -> Command {
        let program = built_plugins().join(format!("contexture{}", std::env::consts::EXE_SUFFIX));
        let mut command = Command::new(program);
        command
            .args(args)
            .arg("--offline")
            .env("CONTEXTURE_HOME", self.path())
            .current_dir(self.path());
        command
    }

    /// Runs the command and gives what it printed and what it said on stderr.
    pub fn command(&self, args: &[&str]) -> (String, String) {
        let output = self.contexture(args).output().expect("the command runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "contexture {args:?}: {stderr}");
        let stdout = String::from_utf8(output.stdout).expect("the output is text");
        (stdout, stderr)
    }

    /// Installs `misbehaving` and makes it the engine, with this fault.
    pub fn misbehave(&self, fault: &str, more: &str) -> &Self {
        self.install("tests/plugins/misbehaving", "misbehaving");
        let mut yaml = String::new();
        // Compactions come when they are due, so that the fault is met.
        let _ = writeln!(yaml, "compression: {{timing: threshold}}");
        let _ = writeln!(yaml, "context:\n  engine: misbehaving\n{more}");
        let _ = writeln!(
            yaml,
            "  engines:\n    misbehaving:\n      fault: \"{fault}\""
        );
        self.configure(&yaml)
    }
}

/// A chat conversation of `turns` turns, each a question, a tool call with a result, and an answer,
/// of about `size` bytes a turn, as an OpenAI request body.
pub fn chat(turns: usize, size: usize) -> serde_json::Value {
    let mut messages = vec![serde_json::json!({
        "role": "system", "content": "You are a careful programmer."
    })];
    for turn in 0..turns {
        let filler = format!("line {turn} of src/module_{turn}.rs is long and dull\n");
        let output = filler.repeat(size / filler.len() + 1);
        messages.extend([
            serde_json::json!({"role": "user", "content": format!("Please look at part {turn}.")}),
            serde_json::json!({"role": "assistant", "content": null, "tool_calls": [{
                "id": format!("call_{turn}"), "type": "function",
                "function": {"name": "read_file", "arguments": format!("{{\"path\": \"src/module_{turn}.rs\"}}")}
            }]}),
            serde_json::json!({"role": "tool", "tool_call_id": format!("call_{turn}"), "content": output}),
            serde_json::json!({"role": "assistant", "content": format!("Part {turn} is fine.")}),
        ]);
    }
    messages.push(serde_json::json!({"role": "user", "content": "And now the last part, please."}));
    serde_json::json!({"model": "gpt-5", "messages": messages})
}

/// A coding session of so many messages with about 431 tokens in each, as varied as real ones are, as an
/// OpenAI request body.
pub fn coding_session(messages: usize) -> serde_json::Value {
    use serde_json::json;
    let mut all = vec![json!({"role": "system", "content": "You are a careful programmer."})];
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let verbs = [
        "load", "store", "parse", "render", "resolve", "validate", "merge", "flush",
    ];
    let nouns = [
        "order", "ledger", "config", "token", "index", "shard", "session", "buffer",
    ];
    for turn in 0..messages / 4 {
        let mut line = |at: usize| {
            let (verb, noun) = (verbs[random(8) as usize], nouns[random(8) as usize]);
            match random(4) {
                0 => format!(
                    "src/{noun}/{verb}_{}.rs:{}: fn {verb}_{noun}(&self) -> Result<(), Error>\n",
                    random(40),
                    random(900)
                ),
                1 => format!(
                    "2026-03-{:02}T10:{:02}:00Z INFO {noun} took {} ms, id={:08x}\n",
                    1 + at % 28,
                    at % 60,
                    random(900),
                    random(u64::MAX)
                ),
                2 => format!(
                    "    let {noun} = self.{verb}({}).await?; // checked in review\n",
                    random(10_000)
                ),
                _ => format!("test {noun}::{verb}_works_{} ... ok\n", random(500)),
            }
        };
        let output: String = (0..46).map(&mut line).collect();
        let answer: String = (0..8).map(&mut line).collect();
        all.extend([
            json!({"role": "user", "content": format!("Please check part {turn} and keep the public API as it is.")}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("call_{turn}"), "type": "function",
                "function": {"name": "run_command", "arguments": format!("{{\"command\": \"cargo test -p part_{turn}\"}}")}}]}),
            json!({"role": "tool", "tool_call_id": format!("call_{turn}"), "content": output}),
            json!({"role": "assistant", "content": format!("Part {turn} is done.\n{answer}")}),
        ]);
    }
    all.push(json!({"role": "user", "content": "Now the release notes, please."}));
    json!({"model": "gpt-5", "messages": all})
}

/// The engines that a home's configuration gives access to, without a model.
pub fn engines(home: &Home) -> Arc<Engines> {
    let client = ModelClient::new(
        Resolved::NoModel(NoModel::Configured),
        std::time::Duration::from_secs(1),
        |text| text.into(),
    );
    engines_with(home, client)
}

/// The same, with this model.
pub fn engines_with(home: &Home, client: ModelClient) -> Arc<Engines> {
    let home_path = home.path().to_owned();
    let env = move |name: &str| (name == "CONTEXTURE_HOME").then(|| home_path.clone().into());
    let loaded = Config::load(None, &env).unwrap_or_else(|error| panic!("{error}"));
    Engines::new(loaded, client).unwrap_or_else(|error| panic!("{error}"))
}

/// A session over a conversation, all of which its engine has seen; nothing is compacted yet.
///
/// # Errors
/// As [`Session::open`] and [`Session::turn`].
pub fn session(
    engines: &Arc<Engines>,
    conversation: &Arc<Conversation>,
    context_length: u64,
) -> Result<(Session, Decision), SessionError> {
    let agent = AgentWindow::new("gpt-5", context_length, context_length / 10);
    let mut session = Session::open(engines, None, "test", agent, SessionOptions::default())?;
    let only_look = TurnOptions::default().compact(Compact::Never);
    let turn = session.turn_over(conversation, &only_look, &mut |_| {})?;
    let decision = turn.decision;
    Ok((session, decision))
}

/// Options of a session under this engine.
pub fn under(engine: &str) -> SessionOptions {
    SessionOptions::default().engine(Some(engine.to_owned()))
}

/// Compacts a session's conversation where that is due; where it is not, the report says why.
///
/// # Errors
/// As [`Session::turn`].
pub fn compact(
    session: &mut Session,
    conversation: &Arc<Conversation>,
    compact: Compact,
) -> Result<Option<CompactionReport>, SessionError> {
    let options = TurnOptions::default().compact(compact);
    let turn = session.turn_over(conversation, &options, &mut |_| {})?;
    Ok(turn.compaction)
}

/// The one conversation of a document.
pub fn conversation(document: &str) -> Arc<Conversation> {
    let mut all = formats::read(document, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(all.len(), 1, "one conversation");
    Arc::new(all.remove(0))
}
