//! `contexture engines doctor`: finds out what is wrong, and reports what runs rather than what is
//! configured.
//!
//! [`examine`] goes through the configuration, the home directory, the plugins, the model, the
//! stores and the chosen engine. Each check adds a [`Finding`] and never ends the command, so that
//! a user sees all problems at once. The exit code is 1 if one of them is a problem.
//!
//! The engine is loaded and opened under supervision in a temporary home, just as for a session. A
//! configuration that looks right but does not run is therefore found. No model is called and no
//! store is changed.

use std::path::Path;

use anstyle::{AnsiColor, Style};
use miette::Diagnostic;
use serde::Serialize;

use crate::config::{for_gateway, in_words, unused_settings, wrong_settings};
use crate::error::CliError;
use crate::terminal::visible;
use crate::{Global, NEGATIVE, OK, kept, output, start, window};
use contexture::catalog::{Catalog, FolderState, Plugin, PluginState};
use contexture::config::Loaded;
use contexture::engines::Engines;
use contexture::providers::{Endpoint, ModelClient, NoModel, Resolved, configured_client};
use contexture::replay::{TempHome, TempHomeError};
use contexture::session::{Session, SessionOptions, open_record_to_read};

/// How serious a finding is. Only a problem makes the command exit with 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Health {
    Ok,
    /// The user may want to know it, but it is not a fault.
    Note,
    Problem,
}

/// One result of the examination. Serialised, it is an element of the JSON output.
#[derive(Debug, Serialize)]
struct Finding {
    health: Health,
    about: String,
    message: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, health: Health, about: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding {
            health,
            about: about.into(),
            message: message.into(),
        });
    }

    fn ok(&mut self, about: impl Into<String>, message: impl Into<String>) {
        self.add(Health::Ok, about, message);
    }

    fn note(&mut self, about: impl Into<String>, message: impl Into<String>) {
        self.add(Health::Note, about, message);
    }

    fn problem(&mut self, about: impl Into<String>, message: impl Into<String>) {
        self.add(Health::Problem, about, message);
    }

    fn healthy(&self) -> bool {
        self.0
            .iter()
            .all(|finding| finding.health != Health::Problem)
    }
}

/// Runs all checks and prints the findings, as text or JSON. Returns 1 if one of them is a problem.
/// A configuration that cannot be read is a finding as well, and then the only one.
pub(crate) fn run(global: &Global, json: bool) -> Result<u8, CliError> {
    let mut findings = Findings::default();
    match start::read_config(global) {
        Ok(loaded) => examine(loaded, global.offline, &mut findings),
        Err(error) => findings.problem("config", error.to_string()),
    }
    let healthy = findings.healthy();
    if json {
        output::print_json(&serde_json::json!({"healthy": healthy, "findings": findings.0}))?;
    } else {
        output::print_styled(&text(&findings, global.color.on(output::is_terminal())))?;
    }
    Ok(if healthy { OK } else { NEGATIVE })
}

/// Renders the findings as lines with aligned columns, and the number of problems below them.
fn text(findings: &Findings, colors: bool) -> String {
    let width = findings
        .0
        .iter()
        .map(|finding| finding.about.chars().count())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for finding in &findings.0 {
        let (mark, color) = match finding.health {
            Health::Ok => ("ok  ", AnsiColor::Green),
            Health::Note => ("note", AnsiColor::Yellow),
            Health::Problem => ("BAD ", AnsiColor::Red),
        };
        let style = if colors {
            color.on_default()
        } else {
            Style::new()
        };
        let about = visible(&finding.about);
        let message = visible(finding.message.trim_end()).replace('\n', "\n        ");
        text.push_str(&format!(
            "{style}{mark}{style:#}  {about:<width$}  {message}\n"
        ));
    }
    let problems = findings
        .0
        .iter()
        .filter(|finding| finding.health == Health::Problem);
    text.push_str(&match problems.count() {
        0 => "\nEverything works.\n".to_owned(),
        1 => "\n1 problem.\n".to_owned(),
        many => format!("\n{many} problems.\n"),
    });
    text
}

/// Runs all checks on a configuration that could be read, in the order in which one depends on the
/// other.
fn examine(loaded: Loaded, offline: bool, findings: &mut Findings) {
    match &loaded.path {
        Some(path) if loaded.warnings.is_empty() => {
            findings.ok("config", path.display().to_string())
        }
        Some(_) => {}
        None => findings.ok(
            "config",
            "there is no config file, so every setting has its default",
        ),
    }
    // Other commands only warn of unknown keys. A user of the doctor wants to know why a setting
    // has no effect.
    for warning in &loaded.warnings {
        findings.problem("config", warning.to_string());
    }
    let certificates = contexture_gateway::unreadable_certificates(&loaded);
    let certificates = in_words(&loaded, &certificates);
    for problem in for_gateway(&loaded).into_iter().chain(certificates) {
        findings.problem("gateway", problem);
    }
    match writable(&loaded.home) {
        Ok(()) => findings.ok("data", format!("{} can be written", loaded.home.display())),
        Err(error) => findings.problem(
            "data",
            format!(
                "{} cannot be written ({error}): make it writable, or set CONTEXTURE_HOME to a writable directory",
                loaded.home.display()
            ),
        ),
    }
    match start::scan(&loaded) {
        Ok(catalog) => examine_catalog(&catalog, &loaded, findings),
        Err(CliError::NameTaken(taken)) => findings.problem("engines", taken.to_string()),
        Err(error) => findings.problem("engines", error.to_string()),
    }
    let client = examine_model(&loaded, offline, findings);
    examine_record(&loaded, findings);
    // An engine that does not run cannot open its store either, and is one problem.
    if examine_engine(loaded.clone(), client, findings) {
        examine_store(&loaded, findings);
    }
}

/// Opens the record of sessions and reports how many it has. Nothing is changed.
fn examine_record(loaded: &Loaded, findings: &mut Findings) {
    let about = "sessions";
    let kept = open_record_to_read(loaded)
        .and_then(|record| Ok((record.sessions()?, record.path().display().to_string())));
    match kept {
        Ok((sessions, path)) => {
            findings.ok(about, format!("{} in the record {path}", sessions.len()));
        }
        Err(error) => findings.problem(about, error.to_string()),
    }
}

/// Opens the store of the engine and reports how many sessions it has. Nothing is changed. An engine
/// without a store of its own adds no finding.
fn examine_store(loaded: &Loaded, findings: &mut Findings) {
    let engine = &loaded.config.context.engine;
    let about = format!("store of {engine}");
    let client = configured_client(&loaded.config, Resolved::NoModel(NoModel::Configured));
    let list = Engines::new(start::patient(loaded.clone()), client)
        .map_err(CliError::NameTaken)
        .and_then(|engines| kept::list(&engines, engine));
    match list {
        Ok(None) => {}
        Ok(Some(list)) => {
            let count = list.sessions.len();
            findings.ok(about, format!("opens; it stores {count} sessions"));
        }
        Err(error) => {
            let way_out = error
                .help()
                .map_or_else(String::new, |help| format!("; {help}"));
            findings.problem(about, format!("{error}{way_out}"));
        }
    }
}

/// Checks that files can be created in a directory. If it does not exist yet, the nearest existing
/// directory above it is checked, since the host creates the rest.
fn writable(directory: &Path) -> std::io::Result<()> {
    let there = directory.ancestors().find(|ancestor| ancestor.exists());
    tempfile::tempfile_in(there.unwrap_or(directory)).map(drop)
}

/// Reports the plugin folders, each engine in the catalog, settings of engines that do not exist,
/// and names that several engines have.
fn examine_catalog(catalog: &Catalog, loaded: &Loaded, findings: &mut Findings) {
    let is_named = loaded.config.plugins.dirs.is_some();
    for folder in &catalog.folders {
        let path = folder.path.display();
        match &folder.state {
            FolderState::Searched => findings.ok("plugin folder", path.to_string()),
            // A missing folder is a problem only if the user named it. The default folder need not
            // exist.
            FolderState::Missing if is_named => findings.problem(
                "plugin folder",
                format!("{path} does not exist: create it, or remove it from `plugins.dirs`"),
            ),
            FolderState::Missing => {
                findings.note(
                    "plugin folder",
                    format!("{path} does not exist, so there are no plugins"),
                );
            }
            FolderState::Unreadable(why) => {
                findings.problem("plugin folder", format!("{path} cannot be read: {why}"));
            }
        }
    }
    for plugin in &catalog.plugins {
        examine_plugin(plugin, loaded, findings);
    }
    for engine in &catalog.registered {
        let about = format!("engine {}", engine.name);
        let wrong = wrong_settings(loaded, &engine.name, &engine.settings);
        if wrong.is_empty() {
            let message = format!("{}, from the crate {}", engine.version, engine.owner);
            findings.ok(about.as_str(), message);
        }
        for problem in wrong {
            findings.problem(about.as_str(), problem);
        }
    }
    for problem in unused_settings(loaded, catalog, &loaded.config.context.engine) {
        findings.problem("config", problem);
    }
    for name in catalog.names() {
        let mut owners: Vec<_> = catalog
            .plugins
            .iter()
            .filter(|plugin| plugin.name == name)
            .map(|plugin| plugin.folder.display().to_string())
            .collect();
        let registered = catalog
            .registered
            .iter()
            .filter(|engine| engine.name == name);
        owners.extend(registered.map(|engine| format!("the crate {}", engine.owner)));
        if owners.len() > 1 {
            findings.note(
                format!("engine {name}"),
                format!(
                    "{} engines have this name, and the first that can run is used: {}",
                    owners.len(),
                    owners.join(", ")
                ),
            );
        }
    }
}

/// Reports whether a plugin can be used: its files may be written by nobody else, its settings are
/// valid, it asks for what the interface has, and its library matches the pin or its program is
/// installed.
fn examine_plugin(plugin: &Plugin, loaded: &Loaded, findings: &mut Findings) {
    let about = format!("plugin {}", plugin.name);
    for warning in &plugin.warnings {
        findings.problem(about.as_str(), warning.to_string());
    }
    match &plugin.state {
        PluginState::Broken(problem) => findings.problem(about, problem.to_string()),
        PluginState::NotBuilt { expected, .. } => findings.note(
            about,
            format!(
                "not built: there is no {}; `contexture plugins build` builds it",
                expected.display()
            ),
        ),
        PluginState::Ready { manifest, library } => {
            let mut wrong = wrong_settings(loaded, &manifest.name, &manifest.settings);
            let asks = manifest.unknown_asks().into_iter();
            wrong.extend(asks.map(|ask| {
                let path = manifest.path.display();
                format!(
                    "{path}: `asks` names `{ask}`, which is no flag of the engine interface: correct or remove it"
                )
            }));
            for problem in &wrong {
                findings.problem(about.as_str(), problem.as_str());
            }
            let starts = (manifest.verify(library)).and_then(|()| manifest.program().map(drop));
            match starts {
                Err(problem) => findings.problem(about, problem.to_string()),
                Ok(()) if wrong.is_empty() => {
                    findings.ok(
                        about,
                        format!("{}, in {}", manifest.version, plugin.folder.display()),
                    );
                }
                Ok(()) => {}
            }
        }
    }
}

/// Reports which model writes summaries, and returns its client. No connection is opened, because a
/// request would cost money. A missing API key is a problem, while a configuration without a model
/// is only a note.
fn examine_model(loaded: &Loaded, offline: bool, findings: &mut Findings) -> ModelClient {
    let resolved = match start::resolve_model(&loaded.config, offline, None) {
        Ok(resolved) => resolved,
        Err(error) => {
            findings.problem("model", error.to_string());
            Resolved::NoModel(NoModel::Configured)
        }
    };
    let found = matches!(resolved, Resolved::Model { .. });
    let client = configured_client(&loaded.config, resolved);
    match client.model() {
        Ok((model, _)) => {
            let at = client.endpoint().map(Endpoint::address).unwrap_or_default();
            findings.ok(
                "model",
                format!("{model} writes summaries, at {at} (not called)"),
            );
        }
        Err(reason @ NoModel::MissingKey(_)) => findings.problem("model", reason.to_string()),
        Err(reason) if found || findings.0.last().is_none_or(|last| last.about != "model") => {
            findings.note(
                "model",
                format!("{reason}; summaries are made without a model, as a digest"),
            );
        }
        // The reason was reported as a problem already.
        Err(_) => {}
    }
    client
}

/// Loads the chosen engine and opens a session with it, as an agent would. A warning counts as a
/// problem, because it usually means that another engine stood in. Returns whether the engine runs.
fn examine_engine(loaded: Loaded, client: ModelClient, findings: &mut Findings) -> bool {
    let wanted = loaded.config.context.engine.clone();
    let about = format!("engine {wanted}");
    let agent = window::choose(None, None, None, &loaded.config).agent;
    // The session runs in a temporary home, so an engine that stores sessions does not keep this
    // one.
    let stage = match TempHome::new(start::patient(loaded), client) {
        Ok(stage) => stage,
        // Two engines of one name were reported with the catalog already.
        Err(TempHomeError::NameTaken(_)) => return false,
        Err(error) => {
            findings.problem(about, error.to_string());
            return false;
        }
    };
    let options = SessionOptions::default();
    let opened = Session::open(stage.engines(), None, "doctor", agent, options);
    let mut session = match opened {
        Ok(session) => session,
        Err(error) => {
            findings.problem(about, error.to_string());
            return false;
        }
    };
    let warnings = session.take_warnings();
    for warning in &warnings {
        findings.problem(about.as_str(), warning.as_str());
    }
    let opened = session.engine();
    let runs = match opened.is_builtin() {
        true => format!("the built-in {} loads, opens and answers", opened.name()),
        false => format!("loads, opens and answers, from {}", opened.origin()),
    };
    // A warning has the cause, and what follows from it would only repeat it.
    if !warnings.is_empty() {
        return false;
    }
    let ended = session.status().and_then(|_| session.end());
    match &ended {
        Ok(()) => findings.ok(about, runs),
        Err(error) => findings.problem(about, error.to_string()),
    }
    ended.is_ok()
}
