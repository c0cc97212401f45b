//! The plans that make agents call Contexture: hooks or a plugin for the compaction, and the MCP
//! server with the history tools.
//!
//! What a hook does is in `crate::hook`. Agents whose hooks have the same form share
//! [`hook_groups`], and most take the server in the form of `SetupContext::mcp_server`. An agent
//! without a hook that could replace its compaction only gets the server.

use std::path::PathBuf;

use serde_json::json;

use super::{
    HOOK_SECONDS, NAME, Plan, SetupContext, claude_folder, codex_folder, gemini_folder,
    hermes_folder, openclaw_config, openclaw_folder, opencode_config, opencode_folder, pi_folder,
    program, qwen_folder,
};
use crate::edit::{Edit, FileFormat, value_at};
use crate::output::pretty;

/// Returns the groups of hooks that Claude Code, Codex and Qwen Code have in common.
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

pub(super) fn claude(context: &SetupContext<'_>) -> Plan {
    let folder = claude_folder(context);
    let own = match (context.env)("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty()) {
        Some(_) => folder.join(".claude.json"),
        None => context.home.join(".claude.json"),
    };
    let (program, _) = context.program();
    let server = json!({
        "type": "stdio", "command": program, "args": context.mcp_arguments(Some("claude")),
        "env": context.variables(),
    });
    let command = include_str!("../assets/claude-contexture.md");
    let (settings, hooks) = (folder.join("settings.json"), hook_groups(context, "claude"));
    Plan::default()
        .edit(FileFormat::Json, settings, hooks)
        .mcp_server(own, server)
        .own(folder.join("commands/contexture.md"), command)
        .note("restart Claude Code; `/hooks` lists the hooks, `/mcp` the server")
}

pub(super) fn codex(context: &SetupContext<'_>) -> Plan {
    let folder = codex_folder(context);
    // Codex passes no variables of its own on to servers.
    let server = Edit::set(&["mcp_servers", NAME], context.mcp_server(Some("codex")));
    let (file, hooks) = (folder.join("hooks.json"), hook_groups(context, "codex"));
    Plan::default()
        .edit(FileFormat::Toml, folder.join("config.toml"), [server])
        .edit(FileFormat::Json, file, hooks)
        .note(
            "Codex runs new hooks only after you have trusted them: start it, and accept them or use `/hooks`",
        )
}

/// OpenClaw loads the plugin from its own folder and takes its context engine by name.
pub(super) fn openclaw(context: &SetupContext<'_>) -> Plan {
    let config = openclaw_config(context);
    let mut edits = vec![
        Edit::set(&["plugins", "slots", "contextEngine"], NAME),
        Edit::set(&["plugins", "entries", NAME, "enabled"], true),
    ];
    // A list of allowed plugins forbids all others, so one that is not there must not be created.
    let text = std::fs::read_to_string(&config).unwrap_or_default();
    let allowed = value_at(FileFormat::Json5, &text, &["plugins", "allow"]);
    if allowed.is_some_and(|allowed| allowed.as_array().is_some_and(|list| !list.is_empty())) {
        edits.push(Edit::push(&["plugins", "allow"], NAME));
    }
    let (tools, missing) = match (context.tools)() {
        Ok(tools) => (tools, None),
        Err(error) => {
            let why = format!("it gets no tools of the engine, because: {error}");
            (Vec::new(), Some(why))
        }
    };
    let names: Vec<_> = tools.iter().map(|tool| &tool.name).collect();
    let manifest = json!({
        "id": NAME,
        "name": "Contexture",
        "description": "Has the context engine that Contexture runs decide what the model sees",
        "kind": "context-engine",
        "activation": {"onStartup": true},
        "contracts": {"tools": names},
        "configSchema": {"type": "object", "additionalProperties": false},
    });
    let plugin = context
        .plugin("openclaw", include_str!("../assets/openclaw.js"))
        .replace("__TOOLS__", &json!(tools).to_string());
    let folder = openclaw_folder(context).join("extensions").join(NAME);
    let plan = Plan::default()
        .edit(FileFormat::Json5, config, edits)
        .own(folder.join("index.js"), plugin)
        .own(folder.join("openclaw.plugin.json"), pretty(&manifest))
        .note("restart OpenClaw's gateway, if it runs");
    match missing {
        Some(why) => plan.note(why),
        None => plan,
    }
}

pub(super) fn opencode(context: &SetupContext<'_>) -> Plan {
    let (program, _) = context.program();
    let arguments = context.mcp_arguments(Some("opencode"));
    let command = std::iter::once(program.to_owned()).chain(arguments);
    let mut server =
        json!({"type": "local", "command": command.collect::<Vec<_>>(), "enabled": true});
    if !context.variables.is_empty() {
        server["environment"] = context.variables();
    }
    let (config, server) = (opencode_config(context), Edit::set(&["mcp", NAME], server));
    let plugin = context.plugin("opencode", include_str!("../assets/opencode.js"));
    let file = opencode_folder(context).join("plugins/contexture.js");
    Plan::default()
        .edit(FileFormat::Json, config, [server])
        .own(file, plugin)
}

pub(super) fn pi(context: &SetupContext<'_>) -> Plan {
    let folder = pi_folder(context);
    let plugin = context.plugin("pi", include_str!("../assets/pi.ts"));
    Plan::default()
        .mcp_server(folder.join("mcp.json"), context.mcp_server(Some("pi")))
        .own(folder.join("extensions/contexture.ts"), plugin)
}

pub(super) fn qwen(context: &SetupContext<'_>) -> Plan {
    let mut edits = hook_groups(context, "qwen");
    let server = context.mcp_server(Some("qwen"));
    edits.push(Edit::set(&["mcpServers", NAME], server));
    let settings = qwen_folder(context).join("settings.json");
    Plan::default()
        .edit(FileFormat::Json, settings, edits)
        .note("restart Qwen Code; `/hooks` lists the hooks, `/mcp` the server")
}

/// Gemini CLI runs its hook `PreCompress` on every request, before it knows whether it compresses,
/// and takes nothing from it. So there is no compaction that the hook could stand for.
pub(super) fn gemini(context: &SetupContext<'_>) -> Plan {
    let settings = gemini_folder(context).join("settings.json");
    Plan::default()
        .mcp_server(settings, context.mcp_server(None))
        .note("Gemini CLI's own compression stays as it is")
}

/// Hermes Agent loads the plugin of the Python package, which runs the engine in Hermes' process.
pub(super) fn hermes(context: &SetupContext<'_>) -> Plan {
    let edits = [
        Edit::push(&["plugins", "enabled"], NAME),
        Edit::set(&["context", "engine"], NAME),
    ];
    let config = hermes_folder(context).join("config.yaml");
    let plan = Plan::default().edit(FileFormat::Yaml, config, edits);
    match lacks_package(context) {
        Some(environment) => plan.note(format!(
            "the Python package `contexture` is not installed in {}; until it is, Hermes ignores these settings",
            environment.display()
        )),
        None => plan.note("`hermes contexture` says whether the plugin runs"),
    }
}

/// Returns the Python environment of Hermes if it lacks the package with the plugin. `None` if it
/// has it, or if Hermes is installed in a way that does not tell.
fn lacks_package(context: &SetupContext<'_>) -> Option<PathBuf> {
    let program = program(context, "hermes")?.canonicalize().ok()?;
    let environment = program.parent()?.parent()?;
    let mut versions = std::fs::read_dir(environment.join("lib")).ok()?.flatten();
    let packages = versions.find_map(|version| {
        let packages = version.path().join("site-packages");
        packages.join("hermes_cli").is_dir().then_some(packages)
    })?;
    let is_there = packages.join("contexture").is_dir();
    (!is_there).then(|| environment.to_owned())
}
