//! The plans that make agents send their requests to the gateway.
//!
//! Each function sets the address of the providers that the agent can be told. `contexture serve`
//! has to run then. The agent's key stays where it is, because the gateway passes it on. Notes say
//! which requests do not take the new address.

use serde_json::json;

use super::{
    NAME, Plan, SetupContext, claude_folder, codex_folder, gemini_folder, hermes_folder,
    openclaw_config, opencode_config, pi_folder, qwen_folder,
};
use crate::edit::{Edit, FileFormat};
use crate::run::is_login;

pub(super) fn claude(context: &SetupContext<'_>) -> Plan {
    let base = &*context.gateway;
    let mut edits = vec![Edit::set(&["env", "ANTHROPIC_BASE_URL"], base)];
    if context.is_first_party {
        // At any address but its own, Claude Code assumes that models have no window of a million
        // tokens.
        let variable = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";
        edits.push(Edit::set(&["env", variable], "1"));
    }
    let settings = claude_folder(context).join("settings.json");
    Plan::default().edit(FileFormat::Json, settings, edits)
}

pub(super) fn codex(context: &SetupContext<'_>) -> Plan {
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
    Plan::default()
        .edit(FileFormat::Toml, folder.join("config.toml"), edits)
        .note("profiles with a `model_provider` of their own keep it")
}

pub(super) fn openclaw(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    let of = |provider, url: String| Edit::set(&["models", "providers", provider, "baseUrl"], url);
    let edits = [
        of("openai", format!("{base}/v1")),
        of("anthropic", base.clone()),
    ];
    Plan::default()
        .edit(FileFormat::Json5, openclaw_config(context), edits)
        .note("only its providers openai and anthropic use this address, with an API key")
}

pub(super) fn opencode(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let of = |provider| Edit::set(&["provider", provider, "options", "baseURL"], &*base);
    let edits = [of("openai"), of("anthropic")];
    Plan::default()
        .edit(FileFormat::Json, opencode_config(context), edits)
        .note("other providers in OpenCode's configuration keep their addresses")
}

pub(super) fn pi(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    let of = |provider, url: String| Edit::set(&["providers", provider, "baseUrl"], url);
    let edits = [
        of("anthropic", base.clone()),
        of("openai", format!("{base}/v1")),
    ];
    let models = pi_folder(context).join("models.json");
    Plan::default()
        .edit(FileFormat::Json, models, edits)
        .note("providers of other names keep their addresses")
}

pub(super) fn qwen(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let edits = [
        Edit::set(&["security", "auth", "selectedType"], "openai"),
        Edit::set(&["security", "auth", "baseUrl"], base),
    ];
    let settings = qwen_folder(context).join("settings.json");
    Plan::default()
        .edit(FileFormat::Json, settings, edits)
        .note("the key stays where it is: OPENAI_API_KEY, or Qwen Code's own settings")
        .note(
            "a variable OPENAI_BASE_URL takes precedence, and models in `modelProviders` keep the `baseUrl` that they have",
        )
}

pub(super) fn gemini(context: &SetupContext<'_>) -> Plan {
    let folder = gemini_folder(context);
    // Gemini CLI reads the first of these files that exists, so a new one would hide the other.
    let own = folder.join(".env");
    let of_home = folder.with_file_name(".env");
    let variables = match !own.exists() && of_home.exists() {
        true => of_home,
        false => own,
    };
    let edit = Edit::set(&["GOOGLE_GEMINI_BASE_URL"], &*context.gateway);
    Plan::default()
        .edit(FileFormat::Env, variables, [edit])
        .mcp_server(folder.join("settings.json"), context.mcp_server(None))
        .note(
            "a login with Google uses a service of its own: choose an API key with /auth, or set GEMINI_API_KEY",
        )
        .note("a `.env` in the project takes precedence")
}

pub(super) fn aider(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    let edits = [
        Edit::set(&["openai-api-base"], format!("{base}/v1")),
        // There is no key for this address, but a list of variables for aider's process.
        Edit::push(&["set-env"], format!("ANTHROPIC_API_BASE={base}")),
    ];
    let config = context.home.join(".aider.conf.yml");
    Plan::default().edit(FileFormat::Yaml, config, edits).note(
        "a `.aider.conf.yml` in the project, and options on the command line, take precedence",
    )
}

pub(super) fn cline(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let of = ["providers", "openai-compatible", "settings", "baseUrl"];
    let settings = context.home.join(".cline/data/settings");
    let servers = settings.join("cline_mcp_settings.json");
    let edit = Edit::set(&of, base);
    Plan::default()
        .edit(FileFormat::Json, settings.join("providers.json"), [edit])
        .mcp_server(servers, context.mcp_server(None))
        .note(
            "only Cline's provider OpenAI Compatible uses the gateway; `cline auth` chooses it and takes its key",
        )
}

pub(super) fn hermes(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let config = hermes_folder(context).join("config.yaml");
    let edit = Edit::set(&["model", "base_url"], base);
    Plan::default()
        .edit(FileFormat::Yaml, config, [edit])
        .note("only `model.provider: custom` uses this address; its key is `model.api_key`")
}
