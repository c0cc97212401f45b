//! Runs real agents headless against an address, the simulator's own or that of something before it, and says whether the
//! session was whole. `tests/real/install` installs them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "all of this is part of tests"
)]

pub mod processes;
pub mod tap;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use contexture_provider_simulator::{Answer, Coder, Options, Request, Simulator};
use serde_json::{Value, json};
use tempfile::TempDir;

/// No session that is played here takes as long; one that does hangs.
const LONGEST: Duration = Duration::from_secs(400);

/// An agent, in the version that `tests/real/install` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code with its default model, over the Messages API.
    Claude,
    /// Claude Code with Sonnet.
    ClaudeSonnet,
    /// Codex, over Responses, with a model that receives its tools in `tools`.
    Codex,
    /// Codex with its default model, which receives its tools in an input item.
    CodexDefault,
    /// Codex with `gpt-5.1-codex`.
    CodexOlder,
    /// Codex with a ChatGPT login, which sends its requests to `/backend-api/codex`.
    CodexLogin,
    /// An earlier Codex with a ChatGPT login, which compresses its requests.
    CodexZstd,
    /// opencode, over chat completions.
    Opencode,
    /// opencode with its own provider for OpenAI, over Responses. It is told no address.
    OpencodeOpenai,
    /// Hermes, over chat completions.
    Hermes,
    /// Qwen Code, over chat completions.
    Qwen,
    /// pi, over chat completions.
    Pi,
    /// pi with its own provider for Anthropic, over the Messages API. It is told no address.
    PiAnthropic,
    /// Cline's command, over chat completions.
    Cline,
    /// aider, over chat completions, without tools.
    Aider,
    /// Gemini CLI, over Gemini's own API.
    Gemini,
    /// OpenClaw with its default model, over Responses.
    Openclaw,
    /// GitHub's Copilot CLI with a provider of the user's own, over chat completions.
    Copilot,
    /// The same over the Messages API.
    CopilotAnthropic,
    /// xAI's Grok with an address of the user's own.
    Grok,
    /// Moonshot's Kimi Code with a model of the user's own, over chat completions.
    Kimi,
    /// Continue's command, over Responses.
    Continue,
}

/// A home and a working folder of an agent's own, kept from run to run.
pub struct Place {
    home: TempDir,
    /// The address for looking up a Codex login, in place of chatgpt.com, without `/backend-api`.
    pub accounts: Option<String>,
    /// The window of the model in tokens, for agents that are told one.
    pub window: u64,
    /// Whether configuration that is there stays as it is. Agents are then told no address, but take it from there.
    pub keeps: bool,
}

impl Place {
    /// Empty ones.
    pub fn new() -> Self {
        let home = TempDir::new().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        Self {
            home,
            accounts: None,
            window: 1_000_000,
            keeps: false,
        }
    }

    /// The agent's home directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where the agent works.
    pub fn work(&self) -> PathBuf {
        self.home.path().join("work")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.home.path().join(path);
        if self.keeps && path.exists() {
            return;
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

impl Drop for Place {
    /// Ends the servers that an agent left running in process groups of their own, as Cline does.
    fn drop(&mut self) {
        let home = format!("HOME={}", self.home.path().display());
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
            let is_ours = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == home.as_bytes());
            let number = process.file_name().to_string_lossy().parse::<i32>();
            if let (true, Some(id)) = (
                is_ours,
                number.ok().and_then(rustix::process::Pid::from_raw),
            ) {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Where `tests/real/install` puts things.
pub fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("installed")
}

impl Agent {
    /// Asks it something, with its standard input closed, and waits until it ends. `base_url` is without `/v1`.
    ///
    /// # Panics
    ///
    /// Where it cannot be started, or does not end.
    pub fn ask(self, place: &Place, base_url: &str, prompt: &str, more: &[&str]) -> Ran {
        let mut command = self.command(place, base_url, prompt);
        command.args(more);
        run(command)
    }

    /// Asks aider one question after another, as a user at a keyboard would, and waits until it ends.
    ///
    /// # Panics
    ///
    /// If it cannot be started or does not end.
    pub fn converse(self, place: &Place, base_url: &str, questions: &[String]) -> Ran {
        let mut command = self.command(place, base_url, "");
        command.arg("--no-fancy-input");
        run_with(command, &format!("{}\n/exit\n", questions.join("\n")))
    }

    fn command(self, place: &Place, base_url: &str, prompt: &str) -> Command {
        let home = place.home.path();
        let window = place.window;
        let program = |path: &str| Command::new(installed().join(path));
        let mut command = match self {
            Self::Claude | Self::ClaudeSonnet => {
                let mut command = program("claude/node_modules/.bin/claude");
                if self == Self::ClaudeSonnet {
                    command.args(["--model", "sonnet"]);
                }
                if !place.keeps {
                    command.env("ANTHROPIC_BASE_URL", base_url);
                }
                command.env("IS_SANDBOX", "1").env("ANTHROPIC_API_KEY", "x");
                command.args(["-p", prompt, "--output-format", "stream-json", "--verbose"]);
                command.arg("--dangerously-skip-permissions");
                command
            }
            Self::Codex => {
                let config = format!(
                    "model = \"gpt-5.2-codex\"\nmodel_provider = \"gw\"\nmodel_context_window = {window}\n\
                     [model_providers.gw]\nname = \"gw\"\nbase_url = \"{base_url}/v1\"\nenv_key = \"GW_KEY\"\n\
                     wire_api = \"responses\"\n"
                );
                place.write(".codex/config.toml", &config);
                let mut command = codex("codex", home, prompt);
                command.env("GW_KEY", "x");
                command
            }
            Self::CodexDefault | Self::CodexOlder => {
                let model = match self {
                    Self::CodexOlder => "model = \"gpt-5.1-codex\"\n",
                    _ => "",
                };
                let config = format!("{model}openai_base_url = \"{base_url}/v1\"\n");
                place.write(".codex/config.toml", &config);
                let mut command = codex("codex", home, prompt);
                command.env("CODEX_API_KEY", "x");
                command
            }
            Self::CodexLogin | Self::CodexZstd => {
                let accounts = place.accounts.as_deref().unwrap_or(base_url);
                let backend = format!("{base_url}/backend-api/codex");
                let config = match self {
                    Self::CodexZstd => format!("openai_base_url = \"{backend}\"\n"),
                    // The built-in provider uses the host that the login names, whatever base URL is set.
                    _ => format!(
                        "model_provider = \"gw\"\n[model_providers.gw]\nname = \"gw\"\nbase_url = \"{backend}\"\n\
                         requires_openai_auth = true\nwire_api = \"responses\"\n"
                    ),
                };
                let login = format!("chatgpt_base_url = \"{accounts}/backend-api\"\n");
                place.write(".codex/config.toml", &format!("{login}{config}"));
                log_in_to_codex(place);
                let folder = if self == Self::CodexZstd {
                    "codex-0.155"
                } else {
                    "codex"
                };
                codex(folder, home, prompt)
            }
            Self::Opencode => {
                let model = json!({"name": "m", "limit": {"context": window, "output": 8000}});
                let options = json!({"baseURL": format!("{base_url}/v1"), "apiKey": "x"});
                let provider = json!({
                    "npm": "@ai-sdk/openai-compatible", "name": "gw", "options": options, "models": {"m": model},
                });
                let config = json!({"provider": {"gw": provider}, "permission": {"*": "allow"}, "autoupdate": false});
                place.write("work/opencode.json", &config.to_string());
                let mut command = program("opencode/node_modules/.bin/opencode");
                command.args(["run", "--format", "json", "-m", "gw/m", prompt]);
                command
            }
            Self::OpencodeOpenai => {
                let config = json!({"permission": {"*": "allow"}, "autoupdate": false});
                place.write("work/opencode.json", &config.to_string());
                let mut command = program("opencode/node_modules/.bin/opencode");
                command.env("OPENAI_API_KEY", "x");
                command.args(["run", "--format", "json", "-m", "openai/m", prompt]);
                command
            }
            Self::Hermes => {
                let config = format!(
                    "model:\n  default: m\n  provider: custom\n  base_url: {base_url}/v1\n  api_key: x\n  \
                     context_length: 1000000\nagent:\n  max_turns: 500\n"
                );
                place.write(".hermes/config.yaml", &config);
                let mut command = program("hermes/bin/hermes");
                command.env("HERMES_HOME", home.join(".hermes"));
                command.args(["-z", prompt, "--yolo"]);
                command
            }
            Self::Qwen => {
                let mut command = with_node("qwen", "qwen");
                if !place.keeps {
                    command.env("OPENAI_BASE_URL", format!("{base_url}/v1"));
                }
                command.env("OPENAI_API_KEY", "x").env("OPENAI_MODEL", "m");
                // With JSON output it would print more than a pipe holds before it exits.
                command.args(["--yolo", "-p", prompt]);
                command
            }
            Self::Pi => {
                let model = json!({"id": "m", "contextWindow": window, "maxTokens": 8000});
                let provider = json!({
                    "baseUrl": format!("{base_url}/v1"), "api": "openai-completions", "apiKey": "x", "models": [model],
                });
                let models = json!({"providers": {"gw": provider}});
                place.write(".pi/agent/models.json", &models.to_string());
                pi("gw", "m", prompt)
            }
            Self::PiAnthropic => {
                let mut command = pi("anthropic", "claude-sonnet-4-5", prompt);
                command.env("ANTHROPIC_API_KEY", "x");
                command
            }
            Self::Cline => {
                if !place.keeps {
                    log_in_to_cline(place, base_url);
                }
                let mut command = with_node("cline", "cline");
                command.args(["--json", prompt]);
                command
            }
            Self::Aider => {
                let mut command = program("aider/bin/aider");
                if !place.keeps {
                    command.env("OPENAI_API_BASE", format!("{base_url}/v1"));
                }
                command
                    .env("OPENAI_API_KEY", "x")
                    // It would wait for a list of prices from elsewhere.
                    .env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
                command.args([
                    "--model",
                    "openai/m",
                    "--no-show-model-warnings",
                    "--yes-always",
                    "--no-git",
                ]);
                command.args([
                    "--no-check-update",
                    "--analytics-disable",
                    "--no-pretty",
                    "--chat-mode",
                    "ask",
                ]);
                command.args([
                    "--restore-chat-history",
                    "--max-chat-history-tokens",
                    "1000000",
                ]);
                if !prompt.is_empty() {
                    command.args(["--message", prompt]);
                }
                command
            }
            Self::Gemini => {
                // Its check for loops cuts the history after a call, which Google refuses.
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "model": {"disableLoopDetection": true},
                });
                place.write(".gemini/settings.json", &settings.to_string());
                let mut command = with_node("gemini", "gemini");
                if !place.keeps {
                    command.env("GOOGLE_GEMINI_BASE_URL", base_url);
                }
                command.env("GEMINI_API_KEY", "x");
                // It loads neither servers nor variables in a folder that is not trusted.
                command.args(["--yolo", "--skip-trust", "-p", prompt]);
                command
            }
            Self::Openclaw => {
                let openai = json!({"baseUrl": format!("{base_url}/v1"), "models": []});
                let config = json!({"models": {"providers": {"openai": openai}}});
                place.write(".openclaw/openclaw.json", &config.to_string());
                let mut command = with_node("openclaw", "openclaw");
                command.env("OPENAI_API_KEY", "x");
                // All runs continue the session of this agent.
                command.args(["agent", "--local", "--agent", "main", "--message", prompt]);
                command
            }
            Self::Copilot | Self::CopilotAnthropic => {
                let mut command = program("copilot/node_modules/.bin/copilot");
                let (address, kind, model) = match self {
                    Self::Copilot => (format!("{base_url}/v1"), "openai", "gpt-5.4"),
                    _ => (base_url.to_owned(), "anthropic", "claude-sonnet-4.5"),
                };
                command
                    .env("COPILOT_PROVIDER_BASE_URL", address)
                    .env("COPILOT_PROVIDER_TYPE", kind)
                    .env("COPILOT_PROVIDER_API_KEY", "x")
                    .env("COPILOT_MODEL", model)
                    .env(
                        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS",
                        window.min(400_000).to_string(),
                    );
                command.args(["--allow-all-tools", "-p", prompt]);
                command
            }
            Self::Grok => {
                let mut command = program("grok/node_modules/.bin/grok");
                command
                    .env("GROK_MODELS_BASE_URL", format!("{base_url}/v1"))
                    .env("XAI_API_KEY", "x");
                command.args(["--always-approve", "-p", prompt]);
                command
            }
            Self::Kimi => {
                let mut command = with_node("kimi", "kimi");
                command
                    .env("KIMI_MODEL_BASE_URL", format!("{base_url}/v1"))
                    .env("KIMI_MODEL_API_KEY", "x")
                    .env("KIMI_MODEL_NAME", "kimi-k2.6")
                    .env("KIMI_MODEL_MAX_CONTEXT_SIZE", window.to_string());
                command.args(["-p", prompt]);
                command
            }
            Self::Continue => {
                let config = format!(
                    "name: t\nversion: 1.0.0\nschema: v1\nmodels:\n  - {{name: m, provider: openai, model: gpt-5.4, \
                     apiKey: x, apiBase: \"{base_url}/v1\", roles: [chat], defaultCompletionOptions: \
                     {{contextLength: {window}}}}}\n"
                );
                place.write("continue.yaml", &config);
                let mut command = with_node("continue", "cn");
                command.arg("--config").arg(home.join("continue.yaml"));
                command.args(["--auto", "-p", prompt]);
                command
            }
        };
        command.env("HOME", home).current_dir(place.work());
        command
    }

    /// What it printed of what the model said, joined. None where its output is for people, and may break lines.
    pub fn printed(self, stdout: &str) -> Option<String> {
        let lines = || {
            stdout
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match self {
            Self::Claude | Self::ClaudeSonnet => Some(
                lines()
                    .filter(|line| line["type"] == "assistant")
                    .flat_map(|line| {
                        line["message"]["content"]
                            .as_array()
                            .cloned()
                            .unwrap_or_default()
                    })
                    .map(|block| text(&block["text"]))
                    .collect(),
            ),
            Self::Codex
            | Self::CodexDefault
            | Self::CodexOlder
            | Self::CodexLogin
            | Self::CodexZstd => Some(
                lines()
                    .map(|line| line["item"].clone())
                    .filter(|item| item["type"] == "agent_message")
                    .map(|item| text(&item["text"]))
                    .collect(),
            ),
            Self::Opencode | Self::OpencodeOpenai => Some(
                lines()
                    .filter(|line| line["type"] == "text")
                    .map(|line| text(&line["part"]["text"]))
                    .collect(),
            ),
            Self::Hermes | Self::Qwen | Self::Pi | Self::PiAnthropic | Self::Cline => None,
            Self::Aider | Self::Gemini | Self::Openclaw => None,
            Self::Copilot | Self::CopilotAnthropic | Self::Grok => None,
            Self::Kimi | Self::Continue => None,
        }
    }
}

/// Has Cline write its settings for a provider at this address.
///
/// # Panics
///
/// If it fails.
pub fn log_in_to_cline(place: &Place, base_url: &str) {
    let mut login = with_node("cline", "cline");
    let base = format!("{base_url}/v1");
    login.args(["auth", "openai", "-k", "x", "-m", "m", "-b", &base]);
    login.env("HOME", place.home()).current_dir(place.work());
    let said = run(login);
    assert!(said.status.success(), "{said:#?}");
}

/// Has Codex find somebody's login with ChatGPT.
pub fn log_in_to_codex(place: &Place) {
    place.write(".codex/auth.json", &login_of_somebody().to_string());
}

fn pi(provider: &str, model: &str, prompt: &str) -> Command {
    let mut command = with_node("pi", "pi");
    command.args(["-p", "--mode", "json", "--provider", provider]);
    command.args(["--model", model, prompt]);
    command
}

/// The command of an agent that was installed with its own Node.js.
fn with_node(folder: &str, name: &str) -> Command {
    let programs = installed().join(folder).join("node_modules/.bin");
    let mut command = Command::new(programs.join(name));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", programs.display()));
    command
}

fn codex(folder: &str, home: &Path, prompt: &str) -> Command {
    let program = installed().join(folder).join("node_modules/.bin/codex");
    let mut command = Command::new(program);
    command.env("CODEX_HOME", home.join(".codex"));
    command.args([
        "exec",
        "--json",
        "--dangerously-bypass-approvals-and-sandbox",
    ]);
    command.args(["--skip-git-repo-check", prompt]);
    command
}

/// The file that Codex keeps for a user who is logged in with ChatGPT.
fn login_of_somebody() -> Value {
    let account = "11111111-2222-4333-8444-555555555555";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    let claims = json!({
        "email": "somebody@example.com", "iat": now, "exp": now + 30 * 86_400,
        "https://api.openai.com/auth": {
            "chatgpt_account_id": account, "chatgpt_plan_type": "pro", "chatgpt_user_id": "user-1",
        },
    });
    let encoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let token = [
        encoded(&json!({"alg": "none"})),
        encoded(&claims),
        encoded(&json!("signed")),
    ]
    .join(".");
    json!({
        "OPENAI_API_KEY": null, "auth_mode": "chatgpt", "last_refresh": "2999-01-01T00:00:00Z",
        "tokens": {"id_token": token, "access_token": token, "refresh_token": "r", "account_id": account},
    })
}

/// The folder of the workspace's programs that the tests run. `CONTEXTURE_PROGRAMS` may name it. Otherwise the programs
/// are built first.
///
/// # Panics
///
/// If they cannot be built.
pub fn programs() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(folder) = std::env::var_os("CONTEXTURE_PROGRAMS") {
            return folder.into();
        }
        let mut cargo = Command::new(env!("CARGO"));
        // Variables that cargo sets for a test of its own package would cause some crates to be rebuilt.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
                cargo.env_remove(&*name);
            }
        }
        cargo.args(["build", "--quiet", "-p", "contexture-cli"]);
        cargo.args(["-p", "contexture-provider-simulator"]);
        cargo.args([
            "--profile",
            if cfg!(debug_assertions) {
                "dev"
            } else {
                "release"
            },
        ]);
        let built = cargo
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success(), "the programs are not built");
        // The test's own executable is in `deps`, below the programs.
        let test = std::env::current_exe().unwrap();
        test.ancestors().nth(2).unwrap().to_owned()
    })
}

/// Runs to the end.
///
/// # Panics
///
/// If it cannot be started or does not end.
pub fn run(command: Command) -> Ran {
    run_with(command, "")
}

/// Runs a command to its end with this standard input.
fn run_with(mut command: Command, input: &str) -> Ran {
    let home = command
        .get_envs()
        .find(|(name, _)| *name == "HOME")
        .and_then(|(_, value)| value.map(ToOwned::to_owned));
    let own: Vec<_> = command
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    // Nothing of who runs the test.
    command.env_clear();
    for (name, value) in own {
        command.env(name, value.unwrap_or_default());
    }
    command
        .env("HOME", home.unwrap_or_default())
        .env("LANG", "C.UTF-8");
    let has_path = command.get_envs().any(|(name, _)| name == "PATH");
    if let Some(path) = std::env::var_os("PATH").filter(|_| !has_path) {
        command.env("PATH", path);
    }
    command
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
    let stdout = gather(child.stdout.take());
    let stderr = gather(child.stderr.take());
    if let Some(mut stdin) = child.stdin.take() {
        // A command that ends early does not read its whole input.
        let _ = stdin.write_all(input.as_bytes());
    }
    let status = wait(&mut child);
    // Whoever it left behind holds the pipes.
    end(&child);
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let status = status.unwrap_or_else(|| {
        panic!(
            "{:?} does not end:\n{stdout}\n{stderr}",
            command.get_program()
        )
    });
    Ran {
        status,
        stdout,
        stderr,
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Ends all of its process group.
fn end(child: &Child) {
    if let Some(group) = i32::try_from(child.id())
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// How much a long session is in all, in tokens of four bytes: more than three windows of 32,000.
pub const LONG: usize = 100_000;

/// Plays a session so long that a window of 32,000 tokens is filled more than three times, and holds what has to be so:
/// the agent ends normally, the provider saw nothing that it would refuse, and what the agent printed is what the model
/// said. `base_url` is the provider's own, or that of what stands before it.
///
/// # Panics
///
/// Where something is not so.
pub fn long_session(agent: Agent, provider: &Simulator, base_url: &str) {
    let place = Place::new();
    if agent == Agent::Aider {
        return long_chat(&place, provider, base_url);
    }
    let coder = Coder {
        rounds: 60,
        ..Coder::default()
    };
    let words = coder.last_words();
    provider.answer_with(move |request| coder.answer(request));
    let ran = agent.ask(&place, base_url, "Check all modules.", &[]);
    accepted(&ran, provider);
    // Titles and the like are asked for without tools.
    let works = |request: &Request| !request.tool_names().is_empty();
    let working: Vec<usize> = provider
        .requests()
        .iter()
        .filter(|one| works(one))
        .map(|one| one.number)
        .collect();
    let said = provider
        .said()
        .into_iter()
        .filter(|(number, _)| working.contains(number));
    let said: Vec<Answer> = said.map(|(_, answer)| answer).collect();
    assert_eq!(
        said.last().unwrap().said(),
        words,
        "the session did not come to its end"
    );
    assert!(
        ran.stdout.contains(&words),
        "{agent:?} does not say what the model said last: {}",
        ran.stdout
    );
    if let Some(printed) = agent.printed(&ran.stdout) {
        assert_eq!(printed, said.iter().map(Answer::said).collect::<String>());
    }
}

/// Has the providers' own Python clients work and fail: `through` is given a provider and what has them ask an address.
///
/// # Panics
///
/// Where they do not understand an answer, or the provider would refuse more than what is sent to be refused.
pub fn official_clients(through: impl Fn(&Simulator, &dyn Fn(&str))) {
    for piece in [0, 5] {
        let options = Options {
            piece,
            ..Options::default()
        };
        let provider = Simulator::with(options);
        through(&provider, &|base_url| {
            ask_as_official_clients(&provider, base_url)
        });
    }
}

fn ask_as_official_clients(provider: &Simulator, base_url: &str) {
    let coder = Coder {
        rounds: 6,
        ..Coder::default()
    };
    provider.answer_with(move |request| coder.answer(request));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients.py");
    let mut python = Command::new(installed().join("clients/bin/python"));
    python.arg(script).arg(base_url).env("NO_PROXY", "*");
    let ran = python.output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
    // The two that the script sends on purpose.
    let violations = provider.violations();
    let mut broken: Vec<_> = violations.iter().map(|one| one.rule.name).collect();
    broken.dedup();
    assert_eq!(broken, ["first-user", "chat-result"]);
}

/// A chat over many runs, each with the history of those before it.
fn long_chat(place: &Place, provider: &Simulator, base_url: &str) {
    let rounds = 11;
    provider.answer_with(|request| {
        let question = request.last_text();
        let number = question
            .split("question ")
            .nth(1)
            .and_then(|rest| rest.split('.').next())
            .unwrap_or("none")
            .to_owned();
        let line =
            |at| format!("Line {at} of the answer to {number}: grüße, and nothing new about it.\n");
        Answer::text((0..700).map(line).collect::<String>())
    });
    for round in 0..rounds {
        let ran = Agent::Aider.ask(place, base_url, &format!("This is question {round}."), &[]);
        accepted(&ran, provider);
        let (_, said) = provider.said().pop().unwrap();
        for line in said.said().lines() {
            assert!(
                ran.stdout.contains(line),
                "aider does not print {line:?}: {}",
                ran.stdout
            );
        }
    }
    assert!(provider.requests().len() >= rounds);
}

/// Holds that the agent ended normally and that the provider would not have refused anything.
///
/// # Panics
///
/// If it is not so.
pub fn accepted(ran: &Ran, provider: &Simulator) {
    let refused: Vec<_> = provider
        .violations()
        .into_iter()
        .chain(provider.overflows())
        .collect();
    assert!(refused.is_empty(), "{refused:#?}\n{}", ran.stderr);
    assert!(ran.status.success(), "{ran:#?}");
}
