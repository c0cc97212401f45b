//! The agents that can be set up: where their settings are, and what is changed in them.
//!
//! [`AGENTS`] is the table. An agent with hooks gets [`Settable::hooks`], which makes it call
//! `contexture hook` when it compacts, and the history tools through `contexture mcp`.
//! [`Settable::gateway`] makes an agent send its requests to the gateway. A plan only says what to
//! change; `setup` shows it, writes it and undoes it.
//!
//! A new agent is added here, and in `hook` if it has a compaction hook.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::edit::{Edit, FileFormat};
use crate::run::is_login;

/// An agent that can be set up.
pub(super) struct Settable {
    /// Its name on the command line, and the name of its program.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Returns the folder or file by which it is recognised if its program is not on the PATH.
    trace: fn(&SetupContext<'_>) -> PathBuf,
    /// Changes that make it call Contexture. `None` if it has no hook that could replace its
    /// compaction.
    pub(super) hooks: Option<fn(&SetupContext<'_>) -> Plan>,
    /// Changes that make it use the gateway. `None` if they cannot be made.
    pub(super) gateway: Option<fn(&SetupContext<'_>) -> Plan>,
    /// What to do instead if neither can be set up.
    pub(super) instead: &'static str,
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
}

/// The changes for one agent.
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

fn file(path: PathBuf, format: FileFormat, edits: Vec<Edit>) -> PlannedFile {
    PlannedFile {
        path,
        format,
        edits,
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
        hooks: Some(claude_hooks),
        gateway: Some(claude_gateway),
        instead: "",
    },
    Settable {
        name: "codex",
        title: "Codex",
        trace: codex_folder,
        hooks: Some(codex_hooks),
        gateway: Some(codex_gateway),
        instead: "",
    },
    Settable {
        name: "opencode",
        title: "OpenCode",
        trace: opencode_folder,
        hooks: Some(opencode_hooks),
        gateway: Some(opencode_gateway),
        instead: "",
    },
    Settable {
        name: "pi",
        title: "pi",
        trace: pi_folder,
        hooks: Some(pi_hooks),
        gateway: Some(pi_gateway),
        instead: "",
    },
    Settable {
        name: "qwen",
        title: "Qwen Code",
        trace: |context| context.home.join(".qwen"),
        hooks: None,
        gateway: Some(qwen_gateway),
        instead: "",
    },
    Settable {
        name: "aider",
        title: "aider",
        trace: |context| context.home.join(".aider.conf.yml"),
        hooks: None,
        gateway: Some(aider_gateway),
        instead: "",
    },
    Settable {
        name: "cline",
        title: "Cline",
        trace: |context| context.home.join(".cline"),
        hooks: None,
        gateway: Some(cline_gateway),
        instead: "",
    },
    Settable {
        name: "hermes",
        title: "Hermes Agent",
        trace: |context| folder(context, "HERMES_HOME", ".hermes"),
        hooks: None,
        gateway: None,
        instead: "Hermes Agent has a plugin in the Python package: install it into Hermes' environment, then run \
                  `hermes plugins enable contexture` and `hermes config set context.engine contexture`",
    },
    Settable {
        name: "gemini",
        title: "Gemini CLI",
        trace: |context| context.home.join(".gemini"),
        hooks: None,
        gateway: None,
        instead: "Gemini CLI has no hook that replaces its compaction, and the gateway does not manage Gemini's own \
                  API; `contexture compress` and `contexture import` work on files",
    },
];

impl Settable {
    /// Returns the agent with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        AGENTS.iter().find(|agent| agent.name == name)
    }

    /// Returns where the agent was found: its program on the PATH, or else its settings.
    pub(super) fn found(&self, context: &SetupContext<'_>) -> Option<PathBuf> {
        let path = (context.env)("PATH").unwrap_or_default();
        let suffixes: &[&str] = match cfg!(windows) {
            true => &[".exe", ".cmd"],
            false => &[""],
        };
        let mut programs = std::env::split_paths(&path).flat_map(|folder| {
            let programs = suffixes.iter();
            programs.map(move |suffix| folder.join(format!("{}{suffix}", self.name)))
        });
        let program = programs.find(|program| program.is_file());
        program.or_else(|| Some((self.trace)(context)).filter(|trace| trace.exists()))
    }
}

/// Returns the folder that a variable names, or else a folder in the user's home.
fn folder(context: &SetupContext<'_>, variable: &str, default: &str) -> PathBuf {
    let named = (context.env)(variable).filter(|folder| !folder.is_empty());
    named.map_or_else(|| context.home.join(default), PathBuf::from)
}

impl SetupContext<'_> {
    fn program(&self) -> (&str, &[String]) {
        match self.command.split_first() {
            Some((program, options)) => (program, options),
            None => (NAME, &[]),
        }
    }

    /// Returns the arguments of the MCP server for an agent.
    fn mcp_arguments(&self, agent: &str) -> Vec<String> {
        let (_, options) = self.program();
        let own = ["mcp", "--agent", agent].map(str::to_owned);
        options.iter().cloned().chain(own).collect()
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

/// Returns the groups of hooks that Claude Code and Codex have in common.
fn hook_groups(context: &SetupContext<'_>, agent: &str) -> Vec<Edit> {
    let hook =
        json!({"type": "command", "command": context.hook_line(agent), "timeout": HOOK_SECONDS});
    vec![
        Edit::push(&["hooks", "PreCompact"], json!({"hooks": [hook]})),
        Edit::push(
            &["hooks", "SessionStart"],
            json!({"matcher": "compact", "hooks": [hook]}),
        ),
    ]
}

fn claude_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "CLAUDE_CONFIG_DIR", ".claude")
}

fn claude_hooks(context: &SetupContext<'_>) -> Plan {
    let folder = claude_folder(context);
    let own = match (context.env)("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty()) {
        Some(_) => folder.join(".claude.json"),
        None => context.home.join(".claude.json"),
    };
    let (program, _) = context.program();
    let server = json!({
        "type": "stdio", "command": program, "args": context.mcp_arguments("claude"), "env": context.variables(),
    });
    Plan {
        files: vec![
            file(
                folder.join("settings.json"),
                FileFormat::Json,
                hook_groups(context, "claude"),
            ),
            file(
                own,
                FileFormat::Json,
                vec![Edit::set(&["mcpServers", NAME], server)],
            ),
            file(
                folder.join("commands/contexture.md"),
                FileFormat::Own,
                vec![Edit::Text(
                    include_str!("assets/claude-contexture.md").to_owned(),
                )],
            ),
        ],
        notes: vec!["restart Claude Code; `/hooks` lists the hooks, `/mcp` the server".to_owned()],
    }
}

fn claude_gateway(context: &SetupContext<'_>) -> Plan {
    let mut edits = vec![Edit::set(
        &["env", "ANTHROPIC_BASE_URL"],
        context.gateway.as_str(),
    )];
    if context.is_first_party {
        // At any address but its own, Claude Code assumes that models have no window of a million
        // tokens.
        let variable = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";
        edits.push(Edit::set(&["env", variable], "1"));
    }
    let settings = claude_folder(context).join("settings.json");
    Plan {
        files: vec![file(settings, FileFormat::Json, edits)],
        notes: Vec::new(),
    }
}

fn codex_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "CODEX_HOME", ".codex")
}

fn codex_hooks(context: &SetupContext<'_>) -> Plan {
    let folder = codex_folder(context);
    let (program, _) = context.program();
    let mut server = json!({"command": program, "args": context.mcp_arguments("codex")});
    if !context.variables.is_empty() {
        // Codex passes no variables of its own on to servers.
        server["env"] = context.variables();
    }
    Plan {
        files: vec![
            file(
                folder.join("config.toml"),
                FileFormat::Toml,
                vec![Edit::set(&["mcp_servers", NAME], server)],
            ),
            file(
                folder.join("hooks.json"),
                FileFormat::Json,
                hook_groups(context, "codex"),
            ),
        ],
        notes: vec![
            "Codex runs new hooks only after you have trusted them: start it, and accept them or use `/hooks`"
                .to_owned(),
        ],
    }
}

fn codex_gateway(context: &SetupContext<'_>) -> Plan {
    let folder = codex_folder(context);
    let auth = std::fs::read_to_string(folder.join("auth.json")).unwrap_or_default();
    let base = &context.gateway;
    let edits = match is_login(&auth) {
        // With a login, only a provider of another name keeps its address.
        true => vec![
            Edit::set(&["model_provider"], NAME),
            Edit::set(
                &["model_providers", NAME],
                json!({
                    "name": NAME, "base_url": format!("{base}/backend-api/codex"), "wire_api": "responses",
                    "requires_openai_auth": true,
                }),
            ),
        ],
        false => vec![Edit::set(&["openai_base_url"], format!("{base}/v1"))],
    };
    Plan {
        files: vec![file(folder.join("config.toml"), FileFormat::Toml, edits)],
        notes: vec!["profiles with a `model_provider` of their own keep it".to_owned()],
    }
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

fn opencode_hooks(context: &SetupContext<'_>) -> Plan {
    let (program, _) = context.program();
    let command = std::iter::once(program.to_owned()).chain(context.mcp_arguments("opencode"));
    let mut server =
        json!({"type": "local", "command": command.collect::<Vec<_>>(), "enabled": true});
    if !context.variables.is_empty() {
        server["environment"] = context.variables();
    }
    Plan {
        files: vec![
            file(
                opencode_config(context),
                FileFormat::Json,
                vec![Edit::set(&["mcp", NAME], server)],
            ),
            file(
                opencode_folder(context).join("plugins/contexture.js"),
                FileFormat::Own,
                vec![Edit::Text(
                    context.plugin("opencode", include_str!("assets/opencode.js")),
                )],
            ),
        ],
        notes: Vec::new(),
    }
}

fn opencode_gateway(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let of = |provider| Edit::set(&["provider", provider, "options", "baseURL"], base.as_str());
    Plan {
        files: vec![file(
            opencode_config(context),
            FileFormat::Json,
            vec![of("openai"), of("anthropic")],
        )],
        notes: vec!["other providers in OpenCode's configuration keep their addresses".to_owned()],
    }
}

fn pi_folder(context: &SetupContext<'_>) -> PathBuf {
    folder(context, "PI_CODING_AGENT_DIR", ".pi/agent")
}

fn pi_hooks(context: &SetupContext<'_>) -> Plan {
    let folder = pi_folder(context);
    let (program, _) = context.program();
    let mut server = json!({"command": program, "args": context.mcp_arguments("pi")});
    if !context.variables.is_empty() {
        server["env"] = context.variables();
    }
    Plan {
        files: vec![
            file(
                folder.join("mcp.json"),
                FileFormat::Json,
                vec![Edit::set(&["mcpServers", NAME], server)],
            ),
            file(
                folder.join("extensions/contexture.ts"),
                FileFormat::Own,
                vec![Edit::Text(
                    context.plugin("pi", include_str!("assets/pi.ts")),
                )],
            ),
        ],
        notes: Vec::new(),
    }
}

fn pi_gateway(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    Plan {
        files: vec![file(
            pi_folder(context).join("models.json"),
            FileFormat::Json,
            vec![
                Edit::set(&["providers", "anthropic", "baseUrl"], base.as_str()),
                Edit::set(&["providers", "openai", "baseUrl"], format!("{base}/v1")),
            ],
        )],
        notes: vec!["providers of other names keep their addresses".to_owned()],
    }
}

fn qwen_gateway(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    Plan {
        files: vec![file(
            context.home.join(".qwen/settings.json"),
            FileFormat::Json,
            vec![
                Edit::set(&["security", "auth", "selectedType"], "openai"),
                Edit::set(&["security", "auth", "baseUrl"], base),
            ],
        )],
        notes: vec![
            "the key stays where it is: OPENAI_API_KEY, or Qwen Code's own settings".to_owned(),
        ],
    }
}

fn cline_gateway(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let of = ["providers", "openai-compatible", "settings", "baseUrl"];
    Plan {
        files: vec![file(
            context.home.join(".cline/data/settings/providers.json"),
            FileFormat::Json,
            vec![Edit::set(&of, base)],
        )],
        notes: vec![
            "only Cline's provider OpenAI Compatible uses the gateway; `cline auth` chooses it and takes its key"
                .to_owned(),
        ],
    }
}

fn aider_gateway(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    Plan {
        files: vec![file(
            context.home.join(".aider.conf.yml"),
            FileFormat::Yaml,
            vec![Edit::set(&["openai-api-base"], base)],
        )],
        notes: vec![format!(
            "for models of Anthropic, export ANTHROPIC_API_BASE={} as well",
            context.gateway
        )],
    }
}
