//! The agents that can be set up: where their settings are, and what is changed in them.
//!
//! [`AGENTS`] is the table. [`Settable::ways`] are the ways in which an agent can be set up: by
//! hooks ([`hooks`]), with the history tools alone, or by the gateway ([`gateway`]). Each has a
//! plan, which only says what to change; `setup` shows it, writes it and undoes it.
//!
//! A new agent is a row here with a function for each of its plans. If it has a compaction hook,
//! it is added in `hook`, too. The tests go through the table.

mod gateway;
mod hooks;

use std::path::{Path, PathBuf};

use contexture_engine_api::ToolSpec;
use serde_json::{Value, json};

use super::journal::Mode;
use crate::edit::{Edit, FileFormat};
use crate::error::CliError;

/// Returns the changes for an agent.
type PlanOf = fn(&SetupContext<'_>) -> Plan;

/// An agent that can be set up.
pub(super) struct Settable {
    /// Its name on the command line, and the name of its program.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Returns the folder or file by which it is recognised if its program is not on the PATH.
    trace: fn(&SetupContext<'_>) -> PathBuf,
    /// How it can be set up, and with which changes. The first one is the default.
    pub(super) ways: &'static [(Mode, PlanOf)],
}

/// What the plans depend on.
pub(super) struct SetupContext<'a> {
    /// The user's home directory.
    pub(super) home: &'a Path,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    /// The command that the agent is to run, with options that come before its subcommand.
    pub(super) command: Vec<String>,
    /// Variables that the command needs.
    pub(super) variables: Vec<(String, String)>,
    /// The address of the gateway, without `/v1`.
    pub(super) gateway: String,
    /// Whether requests of the gateway go on to Anthropic's own API.
    pub(super) is_first_party: bool,
    /// Asks the configured engine for its tools.
    pub(super) tools: &'a dyn Fn() -> Result<Vec<ToolSpec>, CliError>,
}

/// The changes for one agent.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) files: Vec<PlannedFile>,
    /// What the user has to know or do.
    pub(super) notes: Vec<String>,
}

pub(super) struct PlannedFile {
    pub(super) path: PathBuf,
    pub(super) format: FileFormat,
    pub(super) edits: Vec<Edit>,
}

impl Plan {
    fn edit(
        mut self,
        format: FileFormat,
        path: PathBuf,
        edits: impl IntoIterator<Item = Edit>,
    ) -> Self {
        self.files.push(PlannedFile {
            path,
            format,
            edits: edits.into_iter().collect(),
        });
        self
    }

    /// Adds a file of our own with this text.
    fn own(self, path: PathBuf, text: impl Into<String>) -> Self {
        self.edit(FileFormat::Own, path, [Edit::Text(text.into())])
    }

    /// Adds the MCP server to the file in which most agents have theirs.
    fn mcp_server(self, path: PathBuf, server: Value) -> Self {
        let edit = Edit::set(&["mcpServers", NAME], server);
        self.edit(FileFormat::Json, path, [edit])
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

/// The name under which everything is added to the settings of agents.
const NAME: &str = "contexture";
/// How long a compaction by hook may take, in seconds. A summary model may be asked.
const HOOK_SECONDS: u32 = 120;

pub(super) const AGENTS: &[Settable] = &[
    Settable {
        name: "claude",
        title: "Claude Code",
        trace: claude_folder,
        ways: &[
            (Mode::Hooks, hooks::claude),
            (Mode::Gateway, gateway::claude),
        ],
    },
    Settable {
        name: "codex",
        title: "Codex",
        trace: codex_folder,
        ways: &[(Mode::Hooks, hooks::codex), (Mode::Gateway, gateway::codex)],
    },
    Settable {
        name: "openclaw",
        title: "OpenClaw",
        trace: openclaw_folder,
        ways: &[
            (Mode::Hooks, hooks::openclaw),
            (Mode::Gateway, gateway::openclaw),
        ],
    },
    Settable {
        name: "opencode",
        title: "OpenCode",
        trace: opencode_folder,
        ways: &[
            (Mode::Hooks, hooks::opencode),
            (Mode::Gateway, gateway::opencode),
        ],
    },
    Settable {
        name: "pi",
        title: "pi",
        trace: pi_folder,
        ways: &[(Mode::Hooks, hooks::pi), (Mode::Gateway, gateway::pi)],
    },
    Settable {
        name: "qwen",
        title: "Qwen Code",
        trace: qwen_folder,
        ways: &[(Mode::Hooks, hooks::qwen), (Mode::Gateway, gateway::qwen)],
    },
    Settable {
        name: "gemini",
        title: "Gemini CLI",
        trace: gemini_folder,
        ways: &[
            (Mode::Tools, hooks::gemini),
            (Mode::Gateway, gateway::gemini),
        ],
    },
    Settable {
        name: "aider",
        title: "aider",
        trace: |context| context.home.join(".aider.conf.yml"),
        ways: &[(Mode::Gateway, gateway::aider)],
    },
    Settable {
        name: "cline",
        title: "Cline",
        trace: |context| context.home.join(".cline"),
        ways: &[(Mode::Gateway, gateway::cline)],
    },
    Settable {
        name: "hermes",
        title: "Hermes Agent",
        trace: hermes_folder,
        ways: &[
            (Mode::Hooks, hooks::hermes),
            (Mode::Gateway, gateway::hermes),
        ],
    },
];

impl Settable {
    /// Returns the agent with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        AGENTS.iter().find(|agent| agent.name == name)
    }

    /// Returns where the agent was found: its program on the PATH, or else its settings.
    pub(super) fn found(&self, context: &SetupContext<'_>) -> Option<PathBuf> {
        let program = program(context, self.name);
        program.or_else(|| Some((self.trace)(context)).filter(|trace| trace.exists()))
    }
}

/// Returns the file of a program on the PATH.
fn program(context: &SetupContext<'_>, name: &str) -> Option<PathBuf> {
    let path = (context.env)("PATH").unwrap_or_default();
    let suffixes: &[&str] = match cfg!(windows) {
        true => &[".exe", ".cmd"],
        false => &[""],
    };
    let mut programs = std::env::split_paths(&path).flat_map(|folder| {
        let programs = suffixes.iter();
        programs.map(move |suffix| folder.join(format!("{name}{suffix}")))
    });
    programs.find(|program| program.is_file())
}

/// Returns the folder that a variable names, or else a folder in the user's home.
fn folder(context: &SetupContext<'_>, variable: &str, default: &str) -> PathBuf {
    named(context, variable).unwrap_or_else(|| context.home.join(default))
}

/// Returns the path that a variable names, if it is set.
fn named(context: &SetupContext<'_>, variable: &str) -> Option<PathBuf> {
    let path = (context.env)(variable).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

impl SetupContext<'_> {
    fn program(&self) -> (&str, &[String]) {
        match self.command.split_first() {
            Some((program, options)) => (program, options),
            None => (NAME, &[]),
        }
    }

    /// Returns the arguments of an MCP server with the tools of the session that `contexture hook`
    /// has of this agent. Without an agent, the server only has the tools of the history.
    fn mcp_arguments(&self, agent: Option<&str>) -> Vec<String> {
        let (_, options) = self.program();
        let own =
            std::iter::once("mcp").chain(agent.into_iter().flat_map(|agent| ["--agent", agent]));
        options
            .iter()
            .cloned()
            .chain(own.map(str::to_owned))
            .collect()
    }

    /// Returns the MCP server in the form that most agents have in their settings.
    fn mcp_server(&self, agent: Option<&str>) -> Value {
        let (program, _) = self.program();
        let mut server = json!({"command": program, "args": self.mcp_arguments(agent)});
        if !self.variables.is_empty() {
            server["env"] = self.variables();
        }
        server
    }

    fn variables(&self) -> Value {
        let variables = self.variables.iter();
        Value::Object(
            variables
                .map(|(name, value)| (name.clone(), value.as_str().into()))
                .collect(),
        )
    }

    /// Returns the command of a hook as a line for a shell. Whatever goes wrong, it ends with 1,
    /// because agents take 2 as the order to stop.
    fn hook_line(&self, agent: &str) -> String {
        let quoted = |text: &String| match cfg!(windows) {
            true => format!("\"{text}\""),
            false => format!("'{}'", text.replace('\'', r"'\''")),
        };
        let mut words: Vec<String> = Vec::new();
        if !cfg!(windows) {
            let variables = self.variables.iter();
            words.extend(variables.map(|(name, value)| format!("{name}={}", quoted(value))));
        }
        words.extend(self.command.iter().map(quoted));
        format!("{} hook {agent} || exit 1", words.join(" "))
    }

    /// Returns the text of a plugin that calls `contexture hook` for this agent. What all plugins
    /// need for that stands in place of `__ASK__`.
    fn plugin(&self, agent: &str, template: &str) -> String {
        let command = json!(self.command).to_string();
        let ask = include_str!("assets/ask.js").trim_end();
        let ask = ask
            .replace("__AGENT__", agent)
            .replace("__COMMAND__", &command)
            .replace("__VARIABLES__", &self.variables().to_string())
            .replace("__TIMEOUT__", &(HOOK_SECONDS * 1000).to_string());
        template.replace("__ASK__", &ask)
    }
}

fn claude_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "CLAUDE_CONFIG_DIR", ".claude")
}

fn codex_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "CODEX_HOME", ".codex")
}

fn openclaw_folder(context: &SetupContext<'_>) -> PathBuf {
    // The first variable names a home directory, the second one the folder itself.
    let default = folder(context, "OPENCLAW_HOME", "").join(".openclaw");
    named(context, "OPENCLAW_STATE_DIR").unwrap_or(default)
}

fn openclaw_config(context: &SetupContext<'_>) -> PathBuf {
    let default = || openclaw_folder(context).join("openclaw.json");
    named(context, "OPENCLAW_CONFIG_PATH").unwrap_or_else(default)
}

fn opencode_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "XDG_CONFIG_HOME", ".config").join("opencode")
}

/// Returns the config file that OpenCode has, or else the one that it would create.
fn opencode_config(context: &SetupContext<'_>) -> PathBuf {
    let folder = opencode_folder(context);
    let names = ["opencode.jsonc", "opencode.json", "config.json"];
    let mut files = names.map(|name| folder.join(name)).into_iter();
    files
        .find(|file| file.exists())
        .unwrap_or_else(|| folder.join("opencode.json"))
}

fn pi_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "PI_CODING_AGENT_DIR", ".pi/agent")
}

fn qwen_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "QWEN_HOME", ".qwen")
}

fn gemini_folder(context: &SetupContext<'_>) -> PathBuf {
    // The variable names a home directory.
    folder(context, "GEMINI_CLI_HOME", "").join(".gemini")
}

fn hermes_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "HERMES_HOME", ".hermes")
}
