//! `contexture engines`: what engines there are, and which one runs. Listing runs none of their code.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use crate::error::{CliError, did_you_mean};
use crate::terminal::Table;
use crate::{Global, OK, doctor, engine_trial, output, setup, terminal, window};
use contexture::catalog::{
    BUILT_IN, Catalog, Choice, FolderState, PluginState, RegisteredEngine, resolve,
};
use contexture::config::{Compression, Loaded};
use contexture::engines::{Source, catalog};

/// What the built-in does, in a line.
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
    /// Show one engine: where it comes from, its state, its settings, and the status of a new session
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
    /// Play a conversation to one engine, and show what it decides, proposes, selects, asks for and says of itself
    #[command(
        after_help = "Nothing is kept. Background calls go to the configured model, unless --offline is given.\n\n\
        Example:\n  contexture engines try my-engine chat.json --context-length 32k"
    )]
    Try {
        /// The engine's name
        name: String,
        /// A conversation; of several the first
        file: PathBuf,
        /// The model's whole window, in tokens: 128000, 64k, 1M
        #[arg(long, value_name = "N", value_parser = window::length)]
        context_length: Option<u64>,
    },
    /// Look for everything that is wrong: configuration, plugins, the chosen engine, the model
    #[command(
        after_help = "The chosen engine is loaded and opened as a session would do it. No model is called.\nExits with 1 when something is wrong.\n\nExamples:\n  contexture engines doctor\n  contexture --config ./config.yaml engines doctor --json"
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

/// The engines that a configuration gives access to.
pub(crate) fn scan(loaded: &Loaded) -> Result<Catalog, CliError> {
    catalog(loaded).map_err(CliError::NameTaken)
}

/// An engine as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    source: Source,
    /// Empty where it is not known.
    version: String,
    description: String,
    /// The folder, or the crate.
    origin: String,
    state: State,
    /// What keeps it from being used.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Whether it is the one that runs.
    chosen: bool,
    #[serde(skip)]
    settings: Option<Value>,
    #[serde(skip)]
    manifest: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ready,
    NotBuilt,
    Broken,
}

/// Which engine runs, and why.
#[derive(Debug, Serialize)]
struct Running {
    /// What the configuration asks for.
    requested: String,
    /// What runs; none where nothing may.
    engine: Option<String>,
    why: String,
    warnings: Vec<String>,
}

fn list(global: &Global, json: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let catalog = scan(&loaded)?;
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

/// An engine to choose.
pub(crate) struct EngineChoice {
    pub(crate) name: String,
    pub(crate) source: &'static str,
    pub(crate) description: String,
    /// What keeps it from being used.
    pub(crate) problem: Option<String>,
}

/// The engines to choose from.
pub(crate) fn choices(loaded: &Loaded) -> Result<Vec<EngineChoice>, CliError> {
    let (listed, _) = inspect(loaded, &scan(loaded)?);
    let choice = |engine: Listed| EngineChoice {
        source: source_word(engine.source),
        name: engine.name,
        description: engine.description,
        problem: engine.problem,
    };
    Ok(listed.into_iter().map(choice).collect())
}

/// The plugins, as they are listed among the engines.
pub(crate) fn plugins_json(loaded: &Loaded, catalog: &Catalog) -> Value {
    let (mut listed, _) = inspect(loaded, catalog);
    listed.retain(|engine| engine.source == Source::Plugin);
    serde_json::json!({"plugins": listed, "folders": folders(catalog)})
}

fn show(global: &Global, name: &str, json: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let catalog = scan(&loaded)?;
    let (listed, _) = inspect(&loaded, &catalog);
    let found: Vec<_> = listed.iter().filter(|engine| engine.name == name).collect();
    if found.is_empty() {
        let hint = did_you_mean(name, catalog.names());
        return Err(CliError::usage(
            format!("there is no engine `{name}`"),
            format!("{hint}`contexture engines list` names them all"),
        ));
    }
    let configured = loaded.config.engine_settings(name);
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
        // Two engines of one name are rare, and one of them never runs.
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
            let _ = writeln!(
                text,
                "status: it cannot be asked: {}",
                terminal::visible(&why)
            );
        }
        None => {}
    }
    output::print(&text)?;
    Ok(OK)
}

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
    let properties = engine.settings.as_ref().and_then(Value::as_object);
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        row("settings", "it declares none");
        text.push('\n');
        return;
    };
    row(
        "settings",
        &format!("under context.engines.{}", engine.name),
    );
    let mut table = Table::new(["  KEY", "TYPE", "DEFAULT", "DESCRIPTION"]);
    for (key, schema) in properties {
        let default = schema
            .get("default")
            .map(Value::to_string)
            .unwrap_or_default();
        let description = schema
            .get("description")
            .and_then(Value::as_str)
            .unwrap_or_default();
        table.row([
            &format!("  {key}"),
            &type_words(schema),
            &default,
            description,
        ]);
    }
    text.push_str(&table.render(false));
    text.push('\n');
}

/// The types that a schema allows, in its own words.
fn type_words(schema: &Value) -> String {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<_> = allowed.iter().map(Value::to_string).collect();
        return words.join("|");
    }
    match schema.get("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
            kinds.join("|")
        }
        _ => "any".to_owned(),
    }
}

/// All engines, and which of them runs.
fn inspect(loaded: &Loaded, catalog: &Catalog) -> (Vec<Listed>, Running) {
    let mut listed = vec![built_in()];
    listed.extend(catalog.plugins.iter().map(plugin));
    listed.extend(catalog.registered.iter().map(registered));
    let configured = format!("`context.engine` in {}", config_file(loaded));
    let requested = loaded.config.context.engine.clone();
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
            let is_chosen = |listed: &Listed| match &resolution.engine {
                Choice::BuiltIn => listed.source == Source::Builtin,
                Choice::Registered(name) => {
                    listed.source == Source::Registered && listed.name == *name
                }
                Choice::Plugin { manifest, .. } => {
                    listed.source == Source::Plugin
                        && listed.manifest.as_deref() == manifest.path.to_str()
                }
            };
            for engine in &mut listed {
                engine.chosen = is_chosen(engine);
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

/// The settings as the manifest declares them; it was read and checked before.
fn declared_settings(manifest: &contexture::catalog::Manifest) -> Option<Value> {
    let text = std::fs::read_to_string(&manifest.path).ok()?;
    let manifest: Value = serde_yaml::from_str(&text).ok()?;
    manifest.get("settings").cloned()
}

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
            serde_json::json!({"path": folder.path, "state": state})
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

fn source_word(source: Source) -> &'static str {
    match source {
        Source::Builtin => "builtin",
        Source::Registered => "registered",
        Source::Plugin => "plugin",
    }
}
