//! `contexture plugins`: beginning, building, checking and installing them, and what there is.

mod check;
mod install;
mod new;
mod picker;
mod spelled_out;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Subcommand;
use serde_json::Value;

use crate::error::CliError;
use crate::terminal::{self, Table};
use crate::{Global, OK, engines, figures, output, setup};
use contexture::catalog::{
    Catalog, FolderState, GENERATED, MANIFEST_FILE, Manifest, Plugin, PluginState, manifest_of,
};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// Begin an engine: a crate in ./NAME that builds, passes its tests and loads
    #[command(
        after_help = "Without --api it depends on the sources that this program was built from; where they are gone, and where \
        VERSION is the one that this program carries, the crate holds copies of the interface and of the test kit.\n\n\
        Examples:\n  contexture plugins new my-engine\n  contexture plugins new my-lcm --from lcm --api ~/src/contexture"
    )]
    New {
        /// The engine's name, which is its crate's and its folder's, too
        name: String,
        /// What to begin with
        #[arg(long, value_enum, default_value_t)]
        from: new::From,
        /// A checkout of Contexture, or a version of the interface
        #[arg(long, value_name = "PATH|VERSION")]
        api: Option<String>,
    },
    /// Build plugins with cargo, and put each library beside its plugin.yaml
    #[command(
        after_help = "A library is replaced whole, so a host that runs with the old one is not disturbed.\nExits with 1 when a build fails.\n\nExamples:\n  contexture plugins build\n  contexture plugins build plugins/context_engine/lcm --debug"
    )]
    Build {
        /// Plugin folders [default: every folder with a Cargo.toml in the plugin folders]
        paths: Vec<PathBuf>,
        /// Build for speed (the default)
        #[arg(long, conflicts_with = "debug")]
        release: bool,
        /// Build fast, for development
        #[arg(long)]
        debug: bool,
    },
    /// Play conversations of every kind to a plugin, and show what held of all that an engine is held to
    #[command(
        after_help = "The plugin runs in this process, with stand-ins for the model and the network.\nExits with 1 when something did \
        not hold.\n\nExample:\n  contexture plugins check ./my-engine"
    )]
    Check {
        /// The plugin's folder, with its library built
        path: PathBuf,
    },
    /// Put a plugin into the plugin folder, pinned to the library that it has now
    #[command(
        after_help = "Shows name, version, hash and what it asks for, and asks. None of its code is run.\n\n\
        Example:\n  contexture plugins install ./my-engine"
    )]
    Install {
        /// The plugin's folder, with its library built
        path: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Pin a plugin that lies in a plugin folder to the library that it has now
    #[command(
        after_help = "A plugin that is not pinned is loaded, too, once it is named; a pinned one only with that very library.\n\n\
        Example:\n  contexture plugins allow my-engine"
    )]
    Allow {
        /// The plugin's name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Remove a plugin from its plugin folder; what its engine kept stays
    #[command(after_help = "Example:\n  contexture plugins remove my-engine")]
    Remove {
        /// The plugin's name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// List the plugins and their states
    #[command(
        after_help = "Examples:\n  contexture plugins list\n  contexture plugins list --json"
    )]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Without a command: at a terminal the choice of an engine, else the list.
pub(crate) fn run(command: Option<&PluginsCommand>, global: &Global) -> Result<u8, CliError> {
    let is_terminal = || std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let Some(command) = command else {
        return match is_terminal() {
            true => picker::run(global),
            false => list(global, false),
        };
    };
    match command {
        PluginsCommand::Install { path, yes } => install::install(global, path, *yes),
        PluginsCommand::Allow { name, yes } => install::allow(global, name, *yes),
        PluginsCommand::Remove { name, yes } => install::remove(global, name, *yes),
        PluginsCommand::New { name, from, api } => new::run(name, *from, api.as_deref()),
        PluginsCommand::Check { path } => check::run(path, global),
        PluginsCommand::Build { paths, debug, .. } => build_all(global, paths, !debug),
        PluginsCommand::List { json } => list(global, *json),
    }
}

fn list(global: &Global, json: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let catalog = engines::scan(&loaded)?;
    if json {
        output::print_json(&engines::plugins_json(&loaded, &catalog))?;
        return Ok(OK);
    }
    let mut text = String::new();
    if !catalog.plugins.is_empty() {
        let mut table = Table::new(["NAME", "VERSION", "STATE", "FOLDER"]);
        let mut problems = String::new();
        for plugin in &catalog.plugins {
            let (version, state) = match &plugin.state {
                PluginState::Ready { manifest, .. } => (manifest.version.as_str(), "ready"),
                PluginState::NotBuilt { manifest, .. } => (manifest.version.as_str(), "not built"),
                PluginState::Broken(problem) => {
                    let _ = writeln!(problems, "{} is broken: {problem}", plugin.name);
                    ("", "broken")
                }
            };
            let folder = plugin.folder.display().to_string();
            table.row([&plugin.name, version, state, &folder]);
        }
        output::print_styled(&table.render(global.color.on(output::is_terminal())))?;
        text = format!("\n{problems}");
    }
    for folder in &catalog.folders {
        let state = match &folder.state {
            FolderState::Searched => String::new(),
            FolderState::Missing => " (does not exist)".to_owned(),
            FolderState::Unreadable(why) => format!(" (cannot be read: {why})"),
        };
        let _ = writeln!(text, "Looked in {}{state}", folder.path.display());
    }
    output::print(&text)?;
    Ok(OK)
}

fn build_all(global: &Global, paths: &[PathBuf], release: bool) -> Result<u8, CliError> {
    let manifests = match paths {
        [] => all_buildable(global, release)?,
        named => named
            .iter()
            .map(|path| buildable(path, release, global))
            .collect::<Result<_, _>>()?,
    };
    for manifest in &manifests {
        build(manifest, release)?;
    }
    Ok(OK)
}

/// Every plugin in the plugin folders that comes with its source.
fn all_buildable(global: &Global, release: bool) -> Result<Vec<Manifest>, CliError> {
    let loaded = setup::load_config(global)?;
    let catalog = engines::scan(&loaded)?;
    let with_source = catalog
        .plugins
        .iter()
        .filter(|plugin| plugin.folder.join("Cargo.toml").is_file());
    let manifests: Vec<_> = with_source
        .map(|plugin| buildable(&plugin.folder, release, global))
        .collect::<Result<_, _>>()?;
    if manifests.is_empty() {
        let folders: Vec<_> = loaded
            .plugin_dirs
            .iter()
            .map(|dir| dir.display().to_string())
            .collect();
        return Err(CliError::usage(
            format!("there is no plugin to build in {}", folders.join(", ")),
            format!(
                "name a folder with a Cargo.toml and a {MANIFEST_FILE}: contexture plugins build PATH"
            ),
        ));
    }
    Ok(manifests)
}

/// The plugin in a folder.
fn buildable(path: &Path, release: bool, global: &Global) -> Result<Manifest, CliError> {
    let folder = std::fs::canonicalize(path).map_err(|source| {
        CliError::usage(
            format!("there is no plugin to build in {}: {source}", path.display()),
            "name the folder of a plugin's source, with its Cargo.toml; `contexture plugins list` says where \
                 plugins are",
        )
    })?;
    if !folder.join("Cargo.toml").is_file() {
        return Err(CliError::usage(
            format!(
                "{} is not the folder of a plugin's source: it has no Cargo.toml",
                path.display()
            ),
            "name a folder with a Cargo.toml",
        ));
    }
    write_manifest(&folder, release, global)?;
    manifest(&folder_of(&folder)?)
}

/// The plugin in a folder, as it would be found in a plugin folder.
fn folder_of(path: &Path) -> Result<Plugin, CliError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        CliError::usage(
            format!("there is no plugin in {}: {error}", path.display()),
            format!(
                "name the folder of a plugin, with its {MANIFEST_FILE}; `contexture plugins build PATH` makes one"
            ),
        )
    };
    let folder = std::fs::canonicalize(path).map_err(|error| unreadable(&error))?;
    if !folder.join(MANIFEST_FILE).is_file() {
        return Err(unreadable(&format!("it has no {MANIFEST_FILE}")));
    }
    let beside = folder.parent().unwrap_or(&folder).to_owned();
    let found = Catalog::scan(&[beside], Vec::new()).plugins;
    let found = found.into_iter().find(|plugin| plugin.folder == folder);
    found.ok_or_else(|| unreadable(&"the folder above it cannot be read"))
}

/// Makes the manifest of the plugin in a folder from its library, unless somebody else wrote it.
fn write_manifest(folder: &Path, release: bool, global: &Global) -> Result<(), CliError> {
    let path = folder.join(MANIFEST_FILE);
    let found = std::fs::read_to_string(&path);
    if found
        .as_ref()
        .is_ok_and(|text| !text.starts_with(GENERATED))
    {
        return Ok(());
    }
    let library = cargo_build(&folder.join("Cargo.toml"), release)?;
    let deadline = setup::loading_deadline(global);
    let manifest = manifest_of(&library, deadline).map_err(|what| CliError::Build {
        what,
        way_out: "say `export_engine!` once in the crate".to_owned(),
    })?;
    if found.is_ok_and(|text| text == manifest) {
        return Ok(());
    }
    std::fs::write(&path, manifest).map_err(|source| CliError::Write { path, source })
}

fn manifest(plugin: &Plugin) -> Result<Manifest, CliError> {
    match &plugin.state {
        PluginState::Ready { manifest, .. } | PluginState::NotBuilt { manifest, .. } => {
            Ok(manifest.clone())
        }
        PluginState::Broken(problem) => Err(CliError::usage(
            format!(
                "the plugin in {} cannot be used: {problem}",
                plugin.folder.display()
            ),
            format!("mend its {MANIFEST_FILE}, then build it again"),
        )),
    }
}

fn build(manifest: &Manifest, release: bool) -> Result<(), CliError> {
    let began = Instant::now();
    let folder = manifest.path.parent().unwrap_or(&manifest.path);
    let profile = if release { "release" } else { "debug" };
    terminal::say(&format!(
        "building {} ({profile}) in {}\n",
        manifest.name,
        folder.display()
    ));
    let built = cargo_build(&folder.join("Cargo.toml"), release)?;
    let library = folder.join(&manifest.library);
    let written = output::replace_file(&library, None, |file| {
        let mut source = std::fs::File::open(&built)?;
        let permissions = source.metadata()?.permissions();
        let bytes = std::io::copy(&mut source, file)?;
        file.set_permissions(permissions)?;
        Ok(bytes)
    });
    let bytes = written.map_err(|source| CliError::Write {
        path: library.clone(),
        source,
    })?;
    output::print(&format!(
        "built {} {}: {} ({}, {profile}, {})\n",
        manifest.name,
        manifest.version,
        library.display(),
        figures::size(bytes),
        figures::duration(began.elapsed().as_secs_f64() * 1000.0)
    ))?;
    if let Err(problem) = manifest.verify(&library) {
        terminal::say(&format!("{}\n", terminal::warning(&problem.to_string())));
    }
    Ok(())
}

/// Builds a crate, and gives the library that cargo says it made.
fn cargo_build(manifest: &Path, release: bool) -> Result<PathBuf, CliError> {
    let failed = |what: String, way_out: &str| CliError::Build {
        what,
        way_out: way_out.to_owned(),
    };
    let no_cargo = "install Rust with its cargo (https://rustup.rs), or set CARGO to its path";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command
        .args([
            "build",
            "--lib",
            "--message-format=json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(manifest)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if release {
        command.arg("--release");
    }
    let cannot_run = |error: std::io::Error| {
        failed(
            format!("{} cannot be run: {error}", cargo.display()),
            no_cargo,
        )
    };
    let mut child = command.spawn().map_err(cannot_run)?;
    let lines = child.stdout.take().map(BufReader::new);
    let library = lines
        .into_iter()
        .flat_map(BufRead::lines)
        .map_while(Result::ok)
        .filter_map(|line| library_of(&serde_json::from_str(&line).ok()?, manifest))
        .last();
    let status = child.wait().map_err(cannot_run)?;
    if !status.success() {
        return Err(failed(
            format!("{} does not build", manifest.display()),
            "cargo says why, above",
        ));
    }
    library.ok_or_else(|| {
        failed(
            format!(
                "{} builds no library that can be loaded",
                manifest.display()
            ),
            "add `[lib]` with `crate-type = [\"cdylib\"]` to it",
        )
    })
}

/// The library that a message of cargo's says was made of the crate with this manifest.
fn library_of(message: &Value, manifest: &Path) -> Option<PathBuf> {
    let is_artifact = message.get("reason")? == "compiler-artifact";
    let is_ours = Path::new(message.get("manifest_path")?.as_str()?) == manifest;
    let kinds = message.get("target")?.get("crate_types")?.as_array()?;
    if !is_artifact || !is_ours || !kinds.iter().any(|kind| kind == "cdylib") {
        return None;
    }
    let files = message.get("filenames")?.as_array()?;
    files
        .iter()
        .filter_map(Value::as_str)
        .find(|file| file.ends_with(std::env::consts::DLL_SUFFIX))
        .map(PathBuf::from)
}
