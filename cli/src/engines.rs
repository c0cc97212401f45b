//! `contexture engines`: lists the engines, shows one, and says which one runs and why.
//!
//! Read [`inspect`] first: it puts the built-in engine, the plugins and the registered engines into
//! one list of [`Listed`] and marks the one that the configuration chooses. Listing runs no code of
//! a plugin. Everything is read from manifests, so a broken plugin can be listed together with its
//! problem.
//!
//! `show` is the exception: it also opens a session in a temporary home to ask the engine for its
//! status, which is the task of `engine_trial`. `doctor` has a module of its own, too.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use crate::error::{CliError, did_you_mean};
use crate::terminal::Table;
use crate::{Global, OK, doctor, engine_trial, output, start, terminal, window};
use contexture::catalog::{
    BUILT_IN, Catalog, Choice, FolderState, PluginState, RegisteredEngine, resolve,
};
use contexture::config::{Compression, Loaded, Schema};
use contexture::engines::Source;

/// What the built-in engine does, in a line for the list. Plugins and crates bring their own
/// descriptions.
const BUILT_IN_DOES: &str =
    "Clears old tool results and summarises the middle; head and tail stay as they are";

#[derive(Debug, Subcommand)]
pub(crate) enum EnginesCommand {
    /// List the engines, and say which one runs and why
    #[command(
        after_help = "Examples:\n  contexture engines list\n  contexture engines list --json | jq '.engines[].name'"
    )]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one engine: its origin, its state, its settings, and the status of a new session
    #[command(
        after_help = "Examples:\n  contexture engines show compressor\n  contexture engines show lcm --json"
    )]
    Show {
        /// The engine's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replay a conversation to one engine, and show what it decides, proposes, selects, asks for
    /// and reports
    #[command(
        after_help = "Stores nothing. Background calls go to the configured model unless you pass --offline.\n\n\
                      Example:\n  contexture engines try my-engine chat.json --context-length 32k"
    )]
    Try {
        /// The engine's name
        name: String,
        /// A conversation; of several the first one
        file: PathBuf,
        /// The model's whole window, in tokens: 128000, 64k, 1M
        #[arg(long, value_name = "N", value_parser = window::length)]
        context_length: Option<u64>,
    },
    /// Diagnose problems with the configuration, the plugins, the chosen engine and the model
    #[command(
        after_help = "Loads and opens the chosen engine as a session would. No model is called.\n\
                      Exits with 1 if something is wrong.\n\n\
                      Examples:\n  contexture engines doctor\n  contexture --config ./config.yaml engines doctor \
                      --json"
    )]
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(
    command: Option<&EnginesCommand>,
    json: bool,
    global: &Global,
) -> Result<u8, CliError> {
    match command {
        None => list(global, json),
        Some(EnginesCommand::List { json }) => list(global, *json),
        Some(EnginesCommand::Show { name, json }) => show(global, name, *json),
        Some(EnginesCommand::Try {
            name,
            file,
            context_length,
        }) => engine_trial::run(global, name, file, *context_length),
        Some(EnginesCommand::Doctor { json }) => doctor::run(global, *json),
    }
}

/// An engine as it is listed. Serialised, it is an element of the JSON output, so the names of the
/// fields are part of the interface.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) source: Source,
    /// The version of the engine. Empty if it is not known, as for a broken plugin.
    version: String,
    pub(crate) description: String,
    /// The plugin's folder, or the crate that registered the engine.
    origin: String,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    /// Whether it is the engine that runs.
    chosen: bool,
    #[serde(skip)]
    settings: Option<Value>,
    #[serde(skip)]
    manifest: Option<String>,
}

/// Whether an engine can be used. Linked engines are always ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ready,
    NotBuilt,
    Broken,
}

/// Which engine runs, and why. The text of `why` says which setting or which fallback is the
/// reason.
#[derive(Debug, Serialize)]
struct Running {
    requested: String,
    /// The engine that runs. None if none may run.
    engine: Option<String>,
    why: String,
    warnings: Vec<String>,
}

/// Prints all engines and which of them runs. The text output also has the warnings that led to the
/// choice.
fn list(global: &Global, json: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let catalog = start::scan(&loaded)?;
    let (listed, running) = inspect(&loaded, &catalog);
    if json {
        output::print_json(&serde_json::json!({
            "engines": listed,
            "running": running,
            "folders": folders(&catalog),
        }))?;
        return Ok(OK);
    }
    let mut table = Table::new(["", "NAME", "SOURCE", "VERSION", "DESCRIPTION"]);
    for engine in &listed {
        let description = match &engine.problem {
            Some(problem) => format!("{}: {problem}", engine.state.words()),
            None => engine.description.clone(),
        };
        let mark = if engine.chosen { "*" } else { "" };
        let source = source_word(engine.source);
        table.row([mark, &engine.name, source, &engine.version, &description]);
    }
    let mut text = String::from("\n");
    match &running.engine {
        Some(engine) => {
            let _ = writeln!(text, "* `{engine}` runs: {}", running.why);
        }
        None => {
            let _ = writeln!(text, "No engine runs: {}", running.why);
        }
    }
    for warning in &running.warnings {
        let _ = writeln!(text, "  {warning}");
    }
    output::print_styled(&table.render(global.color.on(output::is_terminal())))?;
    output::print(&text)?;
    Ok(OK)
}

/// Returns the engines to choose from, with those that cannot be used, so that the dialog can say
/// why.
pub(crate) fn choices(loaded: &Loaded) -> Result<Vec<Listed>, CliError> {
    let (listed, _) = inspect(loaded, &start::scan(loaded)?);
    Ok(listed)
}

/// Returns the plugins as JSON, in the same form as in the list of engines, together with the
/// folders that were searched.
pub(crate) fn plugins_json(loaded: &Loaded, catalog: &Catalog) -> Value {
    let (mut listed, _) = inspect(loaded, catalog);
    // The list also has the linked engines, which are no plugins.
    listed.retain(|engine| engine.source == Source::Plugin);
    serde_json::json!({"plugins": listed, "folders": folders(catalog)})
}

/// Shows one engine, as text or JSON. If the engine is ready, a session is opened to ask for its
/// status, and a failure of that is part of the output. Fails if there is no engine of this name.
fn show(global: &Global, name: &str, json: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let catalog = start::scan(&loaded)?;
    let (listed, _) = inspect(&loaded, &catalog);
    let found: Vec<_> = listed.iter().filter(|engine| engine.name == name).collect();
    if found.is_empty() {
        let hint = did_you_mean(name, catalog.names());
        return Err(CliError::usage(
            format!("there is no engine `{name}`"),
            format!("{hint}`contexture engines list` lists all engines"),
        ));
    }
    let configured = loaded.config.engine_settings(name);
    // The status comes from an open session, so the engine has to be usable.
    let is_ready = found.iter().any(|engine| engine.state == State::Ready);
    let status = is_ready.then(|| engine_trial::status(&loaded, name));
    if json {
        let shown: Vec<_> = found
            .iter()
            .map(|engine| {
                let mut shown = serde_json::to_value(engine).unwrap_or_default();
                shown["manifest"] = engine.manifest.clone().into();
                shown["settings_schema"] = engine.settings.clone().unwrap_or_default();
                shown["settings"] = configured.clone();
                match &status {
                    Some(Ok(status)) => shown["status"] = status.clone(),
                    Some(Err(why)) => shown["status_problem"] = why.as_str().into(),
                    None => {}
                }
                shown
            })
            .collect();
        // Two engines of one name are rare. Only one of them can run, but both are shown, so that
        // the user sees why.
        match shown.as_slice() {
            [one] => output::print_json(one)?,
            all => output::print_json(&all)?,
        }
        return Ok(OK);
    }
    let mut text = String::new();
    for engine in found {
        describe(engine, &configured, &mut text);
    }
    match status {
        Some(Ok(status)) => {
            let _ = writeln!(
                text,
                "status of a new session: {}",
                terminal::visible(output::pretty(&status).trim_end())
            );
        }
        Some(Err(why)) => {
            let _ = writeln!(text, "status: not available: {}", terminal::visible(&why));
        }
        None => {}
    }
    output::print(&text)?;
    Ok(OK)
}

/// Appends the rows that describe one engine. Rows without a value are left out.
fn describe(engine: &Listed, configured: &Value, text: &mut String) {
    let mut row = |label: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{label:<13}{value}");
        }
    };
    row("name", &engine.name);
    row("description", &engine.description);
    row("version", &engine.version);
    row("source", source_word(engine.source));
    row("origin", &engine.origin);
    row("manifest", engine.manifest.as_deref().unwrap_or_default());
    row("state", engine.state.words());
    row("problem", engine.problem.as_deref().unwrap_or_default());
    row("runs", if engine.chosen { "yes" } else { "no" });
    row("configured", &configured.to_string());
    let settings = engine.settings.as_ref().and_then(Value::as_object);
    // It was read before, so it can be read again.
    let settings = settings.and_then(|declared| Schema::of_properties(declared).ok());
    let mut table = Table::new(["  KEY", "VALUE", "DEFAULT", "DESCRIPTION"]);
    let mut declares_none = true;
    for (key, schema) in settings.iter().flat_map(Schema::properties) {
        declares_none = false;
        let default = schema.default.as_ref();
        table.row([
            &format!("  {key}"),
            &schema.allowed_in_words(),
            &default.map(Value::to_string).unwrap_or_default(),
            schema.description.as_deref().unwrap_or_default(),
        ]);
    }
    if declares_none {
        row("settings", "it declares none");
    } else {
        row(
            "settings",
            &format!("under context.engines.{}", engine.name),
        );
        text.push_str(&table.render(false));
    }
    text.push('\n');
}

/// Lists all engines, and finds out which of them runs under this configuration. If none may run,
/// no engine is marked as chosen and the reason is an error message.
fn inspect(loaded: &Loaded, catalog: &Catalog) -> (Vec<Listed>, Running) {
    let mut listed = vec![built_in()];
    listed.extend(catalog.plugins.iter().map(plugin));
    listed.extend(catalog.registered.iter().map(registered));
    let configured = format!("`context.engine` in {}", config_file(loaded));
    let requested = loaded.config.context.engine.clone();
    // The reason differs if the user wrote the name of the default engine into the file.
    let by_default = loaded.effective().0.iter().any(|setting| {
        setting.key.to_string() == "context.engine"
            && setting.origin == contexture::config::Origin::Default
    });
    let running = match resolve(catalog, &loaded.config, None) {
        Ok(resolution) => {
            let engine = match &resolution.engine {
                Choice::BuiltIn => BUILT_IN.to_owned(),
                Choice::Registered(name) => name.clone(),
                Choice::Plugin { manifest, .. } => manifest.name.clone(),
            };
            // The list has the built-in, then the plugins, then the registered engines.
            let chosen = match &resolution.engine {
                Choice::BuiltIn => Some(0),
                // Several plugins may have this name, so the path of the manifest decides which of
                // them runs.
                Choice::Plugin { manifest, .. } => catalog
                    .plugins
                    .iter()
                    .position(|plugin| {
                        matches!(&plugin.state, PluginState::Ready { manifest: own, .. } if own.path == manifest.path)
                    })
                    .map(|at| 1 + at),
                Choice::Registered(name) => catalog
                    .registered
                    .iter()
                    .position(|engine| engine.name == *name)
                    .map(|at| 1 + catalog.plugins.len() + at),
            };
            if let Some(engine) = chosen.and_then(|at| listed.get_mut(at)) {
                engine.chosen = true;
            }
            let why = match (by_default, engine == requested) {
                (true, _) => {
                    "no `context.engine` is configured, and this one is the default".to_owned()
                }
                (false, true) => format!("{configured} names it"),
                (false, false) => format!("{configured} names `{requested}`, which cannot run"),
            };
            let mut warnings = resolution.warnings;
            warnings.extend(resolution.notes);
            Running {
                requested,
                engine: Some(engine),
                why,
                warnings,
            }
        }
        Err(error) => Running {
            requested,
            engine: None,
            why: error.to_string(),
            warnings: Vec::new(),
        },
    };
    (listed, running)
}

fn config_file(loaded: &Loaded) -> String {
    match &loaded.path {
        Some(path) => path.display().to_string(),
        None => "the configuration".to_owned(),
    }
}

/// The entry of the built-in engine. Its settings are those of the `compression` section.
fn built_in() -> Listed {
    let schema = Compression::schema();
    Listed {
        name: BUILT_IN.to_owned(),
        source: Source::Builtin,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        description: BUILT_IN_DOES.to_owned(),
        origin: "built in".to_owned(),
        state: State::Ready,
        problem: None,
        chosen: false,
        settings: schema.get("properties").cloned(),
        manifest: None,
    }
}

fn registered(engine: &RegisteredEngine) -> Listed {
    Listed {
        name: engine.name.clone(),
        source: Source::Registered,
        version: engine.version.clone(),
        description: engine.description.clone(),
        origin: format!("the crate {}", engine.owner),
        state: State::Ready,
        problem: None,
        chosen: false,
        settings: engine.declared_settings.clone(),
        manifest: None,
    }
}

fn plugin(plugin: &contexture::catalog::Plugin) -> Listed {
    let (state, manifest, problem) = match &plugin.state {
        PluginState::Ready { manifest, .. } => (State::Ready, Some(manifest), None),
        PluginState::NotBuilt { manifest, expected } => {
            let problem = format!(
                "there is no {}; `contexture plugins build` builds it",
                expected.display()
            );
            (State::NotBuilt, Some(manifest), Some(problem))
        }
        PluginState::Broken(problem) => (State::Broken, None, Some(problem.to_string())),
    };
    Listed {
        name: plugin.name.clone(),
        source: Source::Plugin,
        version: manifest.map_or_else(String::new, |manifest| manifest.version.clone()),
        description: manifest.map_or_else(String::new, |manifest| manifest.description.clone()),
        origin: plugin.folder.display().to_string(),
        state,
        problem,
        chosen: false,
        settings: manifest.and_then(declared_settings),
        manifest: manifest.map(|manifest| manifest.path.display().to_string()),
    }
}

/// Returns the settings as the manifest declares them. The manifest was read and checked before, so
/// an error here only means that the settings are not shown.
fn declared_settings(manifest: &contexture::catalog::Manifest) -> Option<Value> {
    let text = std::fs::read_to_string(&manifest.path).ok()?;
    let manifest: Value = serde_yaml::from_str(&text).ok()?;
    manifest.get("settings").cloned()
}

/// Returns the folders that were searched for plugins, as JSON with their state.
fn folders(catalog: &Catalog) -> Vec<Value> {
    catalog
        .folders
        .iter()
        .map(|folder| {
            let state = match &folder.state {
                FolderState::Searched => "searched",
                FolderState::Missing => "missing",
                FolderState::Unreadable(_) => "unreadable",
            };
            serde_json::json!({"path": folder.path.display().to_string(), "state": state})
        })
        .collect()
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotBuilt => "not built",
            Self::Broken => "broken",
        }
    }
}

pub(crate) fn source_word(source: Source) -> &'static str {
    match source {
        Source::Builtin => "builtin",
        Source::Registered => "registered",
        Source::Plugin => "plugin",
    }
}
