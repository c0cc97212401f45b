//! `contexture plugins dev`: the reload cycle of an engine's author.
//!
//! The command watches the folder of a plugin's source. After each change it builds the plugin,
//! puts it into the plugin folder without asking, and has a gateway that runs on this home
//! directory open its sessions again, with the new library. A build that fails changes nothing, so
//! the gateway goes on with the last one that worked.
//!
//! The folder is looked at a few times a second. A library that is told by the system would be told
//! of everything that cargo writes to `target` as well, and would have to be told to forget it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use contexture::config::Loaded;
use contexture::{Host, HostOptions};
use contexture_gateway::{GatewayError, ReloadError, reload_running};

use super::install::{self, Shown};
use super::{build, buildable, folder_of};
use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::{Global, OK, serve, start, terminal};

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_millis(300);

/// Watches until Ctrl-C.
///
/// # Errors
/// The folder holds no plugin's source, or the configuration cannot be read. A plugin that does not
/// build is shown, and the next change is waited for.
pub(crate) fn run(global: &Global, path: &Path, release: bool) -> Result<u8, CliError> {
    let colors = global.color.on(std::io::stderr().is_terminal());
    let folder = super::source_folder(path)?;
    let loaded = start::load_config(global)?;
    let interrupt = Interrupt::listen();
    let mut built = None;
    while !interrupt.is_pressed() {
        // Taken before the build, so that a change in the middle of it is built, too.
        let sources = sources(&folder);
        if built.as_ref() == Some(&sources) {
            std::thread::sleep(INTERVAL);
            continue;
        }
        built = Some(sources);
        let went = cycle(global, &loaded, &folder, release);
        if interrupt.is_pressed() {
            break;
        }
        match went {
            Ok(()) => terminal::say("waiting for changes; Ctrl-C ends\n"),
            Err(error) => {
                error.print(colors);
                terminal::say("waiting for a change that fixes it; Ctrl-C ends\n");
            }
        }
    }
    Ok(OK)
}

/// Builds the plugin, installs it, and tells the gateway.
fn cycle(global: &Global, loaded: &Loaded, folder: &Path, release: bool) -> Result<(), CliError> {
    let manifest = buildable(folder, release, global)?;
    build(&manifest, release)?;
    let shown = Shown::of(&folder_of(folder)?)?;
    // A plugin whose source lies in the plugin folder is found where it was built.
    let is_in_place = (loaded.plugin_dirs.iter())
        .any(|dir| std::fs::canonicalize(dir).ok().as_deref() == folder.parent());
    if !is_in_place {
        let dir = install::first_folder(loaded)?;
        install::put(dir, &shown)?;
        let name = &manifest.name;
        terminal::say(&format!(
            "installed {name} in {}\n",
            dir.join(name).display()
        ));
    }
    if loaded.config.context.engine != manifest.name {
        terminal::note(&format!(
            "`context.engine` is `{}`, so {} does not run; `contexture plugins` chooses it",
            loaded.config.context.engine, manifest.name
        ));
    }
    match reload_gateway(global, loaded)? {
        Ok(()) => terminal::say("the gateway opens its sessions with it from now on\n"),
        Err(error) => terminal::say(&format!("{error}\n")),
    }
    Ok(())
}

fn reload_gateway(global: &Global, loaded: &Loaded) -> Result<Result<(), ReloadError>, CliError> {
    let options = HostOptions::default()
        .config(global.config.clone())
        .offline(global.offline);
    let unusable = |error: GatewayError| CliError::Gateway(error);
    let host = Host::open(&options).map_err(|error| unusable(error.into()))?;
    let token = host.gateway_token();
    let token = token.map_err(|error| unusable(error.into()))?;
    let url = loaded.config.gateway.url();
    let reloading = reload_running(&url, token.text());
    Ok(serve::runtime()?.block_on(reloading))
}

/// The files that a build reads, each with its time and its size in bytes.
type Sources = Vec<(PathBuf, Option<SystemTime>, u64)>;

/// The sources in a folder. What a build writes is left out: `target`, the library, `plugin.yaml`
/// and `Cargo.lock`. Files that cannot be looked at are left out, too: they are being replaced.
fn sources(folder: &Path) -> Sources {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_written = ["target", "plugin.yaml", "Cargo.lock"].contains(&&*name);
            let is_library = name.ends_with(std::env::consts::DLL_SUFFIX);
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if name.starts_with('.') || is_written || is_library {
                continue;
            } else if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                found.push((entry.path(), metadata.modified().ok(), metadata.len()));
            }
        }
    }
    found.sort();
    found
}
