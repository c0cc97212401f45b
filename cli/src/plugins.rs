//! `contexture plugins`: creates, builds, checks, installs, removes and lists plugins.
//!
//! A plugin is a folder with a library and a manifest, `plugin.yaml`. [`run`] dispatches to one
//! module for each task: `new` writes a crate, `check` plays conversations to a built plugin,
//! `install` pins and copies one, and `picker` is the dialog that chooses an engine. Building and
//! listing are in this file.
//!
//! [`build_all`] builds with the user's own cargo. If a folder has no manifest of its author, one
//! is generated from the library, since the library knows the engine's name and settings. Scanning
//! the plugin folders and reading manifests is left to `contexture::catalog`.

mod check;
mod dev;
mod install;
mod new;
mod picker;
mod spelled_out;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Subcommand;
use serde_json::Value;

use crate::error::CliError;
use crate::terminal::{self, Table};
use crate::{Global, OK, engines, human, output, start, window};
use contexture::catalog::{
    Catalog, FolderState, GENERATED, MANIFEST_FILE, Manifest, Plugin, PluginState, manifest_of,
};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginsCommand {
    /// Create an engine: a crate in ./NAME that builds, passes its tests and loads
    #[command(
        after_help = "Without --api the crate depends on the sources that this program was built from. If they \
                      no longer exist, or if VERSION is the version that this program carries, the crate gets \
                      copies of the interface and the test kit. A program from crates.io carries none, so the \
                      crate depends on the published versions.\n\n\
                      Examples:\n  contexture plugins new my-engine\n  contexture plugins new my-lcm --from lcm \
                      --api ~/src/contexture"
    )]
    New {
        /// The engine's name, which is also that of its crate and its folder
        name: String,
        /// The template
        #[arg(long, value_enum, default_value_t)]
        from: new::From,
        /// A checkout of Contexture, or a version of the interface
        #[arg(long, value_name = "PATH|VERSION")]
        api: Option<String>,
    },
    /// Build plugins with cargo, and put each library next to its plugin.yaml
    #[command(
        after_help = "Replaces each library atomically, so a host that runs the old one is not disturbed.\n\
                      Exits with 1 if a build fails.\n\n\
                      Examples:\n  contexture plugins build\n  contexture plugins build \
                      plugins/context_engine/lcm --debug"
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
    /// Run the conformance conversations against a plugin, and report which requirements it meets
    #[command(
        after_help = "Runs the plugin in this process, or its program in others, with a simulated model and network.\n\
                      Exits with 1 if a requirement does not hold.\n\n\
                      Examples:\n  contexture plugins check ./my-engine\n  contexture plugins check ./my-engine \
                      --session ~/.claude/projects/p/s.jsonl"
    )]
    Check {
        /// The plugin's folder, with its library built
        path: PathBuf,
        /// Play this recorded conversation to it as well, request by request
        #[arg(long = "session", value_name = "LOG")]
        sessions: Vec<PathBuf>,
        /// The window for recorded conversations, in tokens [default: a third of each]
        #[arg(long, value_name = "N", value_parser = window::length, requires = "sessions")]
        context_length: Option<u64>,
    },
    /// Build and install a plugin after each change, and have a running gateway use it
    #[command(
        after_help = "Watches the folder until Ctrl-C. A build that fails changes nothing. The gateway is the one at \
                      `gateway.listen`; it\nreopens its sessions with the new library.\n\n\
                      Examples:\n  contexture plugins dev ./my-engine\n  contexture plugins dev ./my-engine \
                      --release"
    )]
    Dev {
        /// The folder of the plugin's source
        path: PathBuf,
        /// Make an optimised build (slower to compile)
        #[arg(long)]
        release: bool,
    },
    /// Copy a plugin into the plugin folder and pin its current library
    #[command(
        after_help = "Shows the plugin's name, version, hash and requested permissions, and asks for \
                      confirmation. Runs none of its code.\n\n\
                      Example:\n  contexture plugins install ./my-engine"
    )]
    Install {
        /// The plugin's folder, with its library built
        path: PathBuf,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Pin the current library of a plugin that is in a plugin folder
    #[command(
        after_help = "A plugin without a pin is loaded once the configuration names it. A pinned plugin is \
                      loaded only with the pinned library.\n\n\
                      Example:\n  contexture plugins allow my-engine"
    )]
    Allow {
        /// The plugin's name
        name: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Remove a plugin from its plugin folder; what its engine stored stays
    #[command(after_help = "Example:\n  contexture plugins remove my-engine")]
    Remove {
        /// The plugin's name
        name: String,
        /// Do not ask for confirmation
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

/// Runs one of the commands and returns its exit code. Without a command, it opens the dialog that
/// chooses an engine if stdin and stderr are a terminal, and otherwise prints the list.
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
        PluginsCommand::Check {
            path,
            sessions,
            context_length,
        } => check::run(path, sessions, *context_length, global),
        PluginsCommand::Dev { path, release } => dev::run(global, path, *release),
        PluginsCommand::Build { paths, debug, .. } => build_all(global, paths, !debug),
        PluginsCommand::List { json } => list(global, *json),
    }
}

/// Prints the plugins with their states, and the folders that were searched. A broken plugin is no
/// error here, because its problem is part of the output.
fn list(global: &Global, json: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let catalog = start::scan(&loaded)?;
    if json {
        output::print_json(&engines::plugins_json(&loaded, &catalog))?;
        return Ok(OK);
    }
    // A table without rows would only have headings, so it is left out.
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

/// Builds the plugins in these folders one after the other, or all that come with their source if
/// no folder is named. The first failure ends the command, so plugins after it are not built.
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

/// Returns every plugin in the plugin folders that has a `Cargo.toml`. Fails if there is none.
fn all_buildable(global: &Global, release: bool) -> Result<Vec<Manifest>, CliError> {
    let loaded = start::load_config(global)?;
    let catalog = start::scan(&loaded)?;
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

/// Returns the manifest of the plugin whose source is in this folder, and writes the manifest first
/// if the author did not. Fails if the folder has no `Cargo.toml`.
fn buildable(path: &Path, release: bool, global: &Global) -> Result<Manifest, CliError> {
    let folder = source_folder(path)?;
    write_manifest(&folder, release, global)?;
    manifest(&folder_of(&folder)?)
}

/// Returns the absolute path of the folder of a plugin's source. Fails if it has no `Cargo.toml`.
fn source_folder(path: &Path) -> Result<PathBuf, CliError> {
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
    Ok(folder)
}

/// Returns the plugin in a folder, in the same form as the catalog finds it in a plugin folder.
/// Fails if the folder has no manifest or if the folder above it cannot be read.
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
    // The catalog only scans plugin folders, so the folder above is scanned and the plugin picked
    // from the result.
    let beside = folder.parent().unwrap_or(&folder).to_owned();
    let found = Catalog::scan(&[beside], Vec::new()).plugins;
    let found = found.into_iter().find(|plugin| plugin.folder == folder);
    found.ok_or_else(|| unreadable(&"the folder above it cannot be read"))
}

/// Generates the manifest of a plugin from its library, which is built for this. A manifest that
/// its author wrote is left alone.
fn write_manifest(folder: &Path, release: bool, global: &Global) -> Result<(), CliError> {
    let path = folder.join(MANIFEST_FILE);
    let found = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return Err(CliError::usage(
                format!("{} cannot be read: {error}", path.display()),
                "make it readable, or delete it to have it generated",
            ));
        }
        Ok(found) => Some(found),
    };
    // Generated manifests begin with a fixed comment. Without it, the file belongs to its author,
    // even if it is not a valid manifest.
    if let Some(found) = &found
        && !found.starts_with(GENERATED.as_bytes())
    {
        return Ok(());
    }
    let library = cargo_build(&folder.join("Cargo.toml"), release)?;
    let deadline = start::loading_deadline(global);
    let manifest = manifest_of(&library, deadline).map_err(|what| CliError::Build {
        what,
        way_out: "call `export_engine!` once in the crate".to_owned(),
    })?;
    if found.is_some_and(|found| found == manifest.as_bytes()) {
        return Ok(());
    }
    std::fs::write(&path, manifest).map_err(CliError::write(&path))
}

/// Returns the manifest of a plugin whose library may be missing. Fails if the manifest cannot be
/// read or is not valid.
fn manifest(plugin: &Plugin) -> Result<Manifest, CliError> {
    match &plugin.state {
        PluginState::Ready { manifest, .. } | PluginState::NotBuilt { manifest, .. } => {
            Ok(manifest.clone())
        }
        PluginState::Broken(problem) => {
            let path = plugin.folder.join(MANIFEST_FILE);
            let is_generated =
                std::fs::read(&path).is_ok_and(|found| found.starts_with(GENERATED.as_bytes()));
            let source = match is_generated {
                true => "src/lib.rs (the manifest is generated from what `export_engine!` says)",
                false => MANIFEST_FILE,
            };
            Err(CliError::usage(
                format!(
                    "the plugin in {} cannot be used: {problem}",
                    plugin.folder.display()
                ),
                format!("fix its {source}, then build it again"),
            ))
        }
    }
}

/// Builds a plugin and puts the library beside its manifest. The library is replaced as a whole, so
/// a host that has loaded the old one is not disturbed.
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
        // Without these permissions, only the owner could read the new file.
        let permissions = source.metadata()?.permissions();
        let bytes = std::io::copy(&mut source, file)?;
        file.set_permissions(permissions)?;
        Ok(bytes)
    });
    let bytes = written.map_err(CliError::write(&library))?;
    output::print(&format!(
        "built {} {}: {} ({}, {profile}, {})\n",
        manifest.name,
        manifest.version,
        library.display(),
        human::size(bytes),
        human::duration(began.elapsed().as_secs_f64() * 1000.0)
    ))?;
    // The new library may not match the pin in the manifest. It is then not loaded, which the user
    // should know at once.
    if let Err(problem) = manifest.verify(&library) {
        terminal::warn(&problem.to_string());
    }
    Ok(())
}

/// Builds a crate with cargo and returns the path of the library that cargo reports. Cargo's own
/// messages go to stderr while it runs. Fails if cargo cannot be run, if the build fails, or if the
/// crate makes no dynamic library.
fn cargo_build(manifest: &Path, release: bool) -> Result<PathBuf, CliError> {
    let failed = |what: String, way_out: &str| CliError::Build {
        what,
        way_out: way_out.to_owned(),
    };
    let no_cargo = "install Rust with its cargo (https://rustup.rs), or set CARGO to its path";
    // Cargo sets this variable for its subcommands. Another cargo than the user's might have
    // another toolchain.
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
        // Reading to the end of the pipe is necessary, since cargo would block if nobody read its
        // messages.
        .map_while(Result::ok)
        .filter_map(|line| library_of(&serde_json::from_str(&line).ok()?, manifest))
        .last();
    let status = child.wait().map_err(cannot_run)?;
    if !status.success() {
        return Err(failed(
            format!("{} does not build", manifest.display()),
            "see the output of cargo above",
        ));
    }
    library.ok_or_else(|| {
        failed(
            format!("{} does not build a loadable library", manifest.display()),
            "add `[lib]` with `crate-type = [\"cdylib\"]` to its Cargo.toml",
        )
    })
}

/// Returns the dynamic library that a message of cargo reports for the crate with this manifest.
/// None if the message is about something else, such as a dependency.
fn library_of(message: &Value, manifest: &Path) -> Option<PathBuf> {
    let is_artifact = message.get("reason")? == "compiler-artifact";
    // Dependencies may be dynamic libraries as well, so the package has to be compared.
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
