//! The plans that make agents send their requests to the gateway.
//!
//! Each function sets the address of the providers that the agent can be told. `contexture serve`
//! has to run then. The agent's key stays where it is, because the gateway passes it on. Notes say
//! which requests do not take the new address.

use serde_json::json;

use super::{
    NAME, Plan, SetupContext, claude_folder, codex_folder, file, gemini_folder, hermes_folder,
    openclaw_config, opencode_config, pi_folder, qwen_folder,
};
use crate::edit::{Edit, FileFormat};
use crate::run::is_login;

pub(super) fn claude(context: &SetupContext<'_>) -> Plan {
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
    Plan {
        files: vec![file(folder.join("config.toml"), FileFormat::Toml, edits)],
        notes: vec!["profiles with a `model_provider` of their own keep it".to_owned()],
    }
}

pub(super) fn openclaw(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    let edits = vec![
        Edit::set(
            &["models", "providers", "openai", "baseUrl"],
            format!("{base}/v1"),
        ),
        Edit::set(
            &["models", "providers", "anthropic", "baseUrl"],
            base.as_str(),
        ),
    ];
    Plan {
        files: vec![file(openclaw_config(context), FileFormat::Json5, edits)],
        notes: vec![
            "only its providers openai and anthropic use this address, with an API key".to_owned(),
        ],
    }
}

pub(super) fn opencode(context: &SetupContext<'_>) -> Plan {
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

pub(super) fn pi(context: &SetupContext<'_>) -> Plan {
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

pub(super) fn qwen(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    Plan {
        files: vec![file(
            qwen_folder(context).join("settings.json"),
            FileFormat::Json,
            vec![
                Edit::set(&["security", "auth", "selectedType"], "openai"),
                Edit::set(&["security", "auth", "baseUrl"], base),
            ],
        )],
        notes: vec![
            "the key stays where it is: OPENAI_API_KEY, or Qwen Code's own settings".to_owned(),
            "a variable OPENAI_BASE_URL takes precedence, and models in `modelProviders` keep the `baseUrl` that they have"
                .to_owned(),
        ],
    }
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
    Plan {
        files: vec![
            file(
                variables,
                FileFormat::Env,
                vec![Edit::set(
                    &["GOOGLE_GEMINI_BASE_URL"],
                    context.gateway.as_str(),
                )],
            ),
            file(
                folder.join("settings.json"),
                FileFormat::Json,
                vec![Edit::set(&["mcpServers", NAME], context.mcp_server(None))],
            ),
        ],
        notes: vec![
            "a login with Google uses a service of its own: choose an API key with /auth, or set GEMINI_API_KEY"
                .to_owned(),
            "a `.env` in the project takes precedence".to_owned(),
        ],
    }
}

pub(super) fn aider(context: &SetupContext<'_>) -> Plan {
    let base = &context.gateway;
    Plan {
        files: vec![file(
            context.home.join(".aider.conf.yml"),
            FileFormat::Yaml,
            vec![
                Edit::set(&["openai-api-base"], format!("{base}/v1")),
                // There is no key for this address, but a list of variables for aider's process.
                Edit::push(&["set-env"], format!("ANTHROPIC_API_BASE={base}")),
            ],
        )],
        notes: vec![
            "a `.aider.conf.yml` in the project, and options on the command line, take precedence"
                .to_owned(),
        ],
    }
}

pub(super) fn cline(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    let of = ["providers", "openai-compatible", "settings", "baseUrl"];
    let settings = context.home.join(".cline/data/settings");
    Plan {
        files: vec![
            file(
                settings.join("providers.json"),
                FileFormat::Json,
                vec![Edit::set(&of, base)],
            ),
            file(
                settings.join("cline_mcp_settings.json"),
                FileFormat::Json,
                vec![Edit::set(&["mcpServers", NAME], context.mcp_server(None))],
            ),
        ],
        notes: vec![
            "only Cline's provider OpenAI Compatible uses the gateway; `cline auth` chooses it and takes its key"
                .to_owned(),
        ],
    }
}

pub(super) fn hermes(context: &SetupContext<'_>) -> Plan {
    let base = format!("{}/v1", context.gateway);
    Plan {
        files: vec![file(
            hermes_folder(context).join("config.yaml"),
            FileFormat::Yaml,
            vec![Edit::set(&["model", "base_url"], base)],
        )],
        notes: vec![
            "only `model.provider: custom` uses this address; its key is `model.api_key`"
                .to_owned(),
        ],
    }
}
