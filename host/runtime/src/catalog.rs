//! Which engines exist, and which one runs. Nothing here runs any of their code.
//!
//! An engine is the built-in one, a plugin (a folder with a `plugin.yaml` and a library or a program
//! in it), or registered in this process. Commands that list engines must work even if a plugin is broken or
//! hostile, so a plugin is described by its manifest alone.
//!
//! Code in this process is fully trusted. A plugin therefore runs only if the configuration or the
//! user names it, and only if nobody but the user and root can write its files. Links are followed
//! only inside the plugin folder.
//!
//! Read [`Catalog`] first, which lists everything that was found. [`resolve`](fn@resolve) chooses the engine to
//! run from it, and [`Manifest`] describes one plugin. Loading a library is left to
//! [`engines`](crate::engines).

mod library;
mod manifest;
mod program;
mod resolve;

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contexture_base::trust::check_writers;
use contexture_config::Schema;
use serde_json::Value;

pub(crate) use library::Library;
pub(crate) use manifest::asks_of;
pub use manifest::{GENERATED, MANIFEST_FILE, Manifest, PluginProblem};
pub use resolve::{Choice, Resolution, ResolveError, resolve};

pub use contexture_base::trust::Untrusted;
pub use contexture_config::engine_name::{BUILT_IN, NAME_RULE, is_engine_name};
/// The engines that were found, besides the built-in one, which always exists. Broken plugins are
/// listed too, so that a person can see why a plugin is not used.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The plugin folders, in search order. Each folder appears once, even if it was given twice.
    pub folders: Vec<Folder>,
    /// The plugins in these folders, usable or not, by folder and then by name.
    pub plugins: Vec<Plugin>,
    /// The engines registered in this process, in the order of their registration.
    pub registered: Vec<RegisteredEngine>,
}

/// A folder that was searched for plugins, and what came of it. Error messages list these folders
/// if an engine is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Path of the folder, as the configuration gives it.
    pub path: PathBuf,
    /// The result of the search, which explains why the folder gave no plugins.
    pub state: FolderState,
}

/// The result of searching a folder for plugins. None of these is an error, because a missing
/// folder is normal before the first plugin is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FolderState {
    /// The folder was searched. It may contain no plugin.
    Searched,
    /// The folder does not exist. This is normal before the first plugin is installed.
    Missing,
    /// The folder could not be read, with the message of the operating system.
    Unreadable(String),
}

/// A folder with a `plugin.yaml`. It prints as one line with its name, version and state.
#[derive(Debug)]
pub struct Plugin {
    /// The name of the folder, which is also the name of the engine. If the two differ, the plugin
    /// is [broken](PluginState::Broken).
    pub name: String,
    /// Path of the folder that contains the manifest and the library.
    pub folder: PathBuf,
    /// Whether the plugin can be used, and what it needs if not.
    pub state: PluginState,
    /// Files of the plugin that other members of a group can write, one warning each. They do not
    /// prevent its use.
    pub warnings: Vec<String>,
}

/// Whether a plugin can be used. A plugin that is not built makes way for another engine of the
/// same name, and a broken one does not.
#[derive(Debug)]
pub enum PluginState {
    /// The plugin has a library to load or a program to start. Whether it is the one that the
    /// manifest pins is checked when it is loaded or started.
    Ready {
        /// The plugin's description of itself, which has been checked.
        manifest: Manifest,
        /// Path of the library, which exists and is a file. If the manifest names a command, it is
        /// the path of the command's file.
        library: PathBuf,
    },
    /// The plugin has a manifest but no library yet, such as one that is distributed as source.
    NotBuilt {
        /// The plugin's description of itself, which has been checked.
        manifest: Manifest,
        /// Path at which the library is expected.
        expected: PathBuf,
    },
    /// The plugin cannot be used, for this reason. The message says how to fix it.
    Broken(PluginProblem),
}

/// An engine registered in this process, described without creating it. It prints as one line with
/// its name, version and owner.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RegisteredEngine {
    /// Name of the engine, as the configuration uses it.
    pub name: String,
    /// Version of the crate that registered the engine.
    pub version: String,
    /// What the engine does, in a sentence.
    pub description: String,
    /// The crate or module that registered the engine.
    pub owner: String,
    /// The schema of the settings that the engine accepts. If it declares none, it accepts any.
    pub settings: Schema,
    /// The settings as the engine declares them: a JSON schema for each key. `None` if it declares
    /// none.
    pub declared_settings: Option<Value>,
}

impl Catalog {
    /// Searches `dirs` for plugins. If two plugins have the same name, the first in this order is
    /// used and the other is listed. Folders that are missing or cannot be read are recorded in
    /// [`folders`](Self::folders), so a search never fails.
    pub fn scan(dirs: &[PathBuf], registered: Vec<RegisteredEngine>) -> Self {
        let mut catalog = Self {
            registered,
            ..Self::default()
        };
        for dir in dirs {
            // A folder that is configured twice would list each of its plugins as passed over by
            // itself.
            if catalog.folders.iter().any(|folder| folder.path == *dir) {
                continue;
            }
            let state = match plugins_in(dir) {
                Ok(plugins) => {
                    catalog.plugins.extend(plugins);
                    FolderState::Searched
                }
                Err(error) if error.kind() == ErrorKind::NotFound => FolderState::Missing,
                Err(error) => FolderState::Unreadable(error.to_string()),
            };
            catalog.folders.push(Folder {
                path: dir.clone(),
                state,
            });
        }
        catalog
    }

    /// Returns the names of all engines without duplicates, the built-in one first. Broken plugins
    /// are included.
    pub fn names(&self) -> Vec<&str> {
        let mut names = vec![BUILT_IN];
        let plugins = self.plugins.iter().map(|plugin| plugin.name.as_str());
        let registered = self.registered.iter().map(|engine| engine.name.as_str());
        for name in plugins.chain(registered) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// A fingerprint of the plugin folders that changes when a plugin is installed, built or removed.
/// It holds the modification time and size of each plugin folder, manifest and library, sorted by
/// path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PluginFiles(Vec<(PathBuf, SystemTime, u64)>);

impl PluginFiles {
    /// Takes the fingerprint of these folders. Files that cannot be read are left out, as if they
    /// were missing.
    pub(crate) fn of(dirs: &[PathBuf]) -> Self {
        let folders = dirs
            .iter()
            .flat_map(|dir| folders_in(dir).unwrap_or_default());
        // A file that is replaced by renaming changes the time of its folder. A file that is
        // overwritten changes its own time. Both have to be recorded.
        let files = folders.flat_map(|folder| {
            let within = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let within = within.map(|entry| entry.path());
            let is_its = |path: &PathBuf| {
                let ending = path.extension().and_then(std::ffi::OsStr::to_str);
                path.ends_with(MANIFEST_FILE) || ending == Some(std::env::consts::DLL_EXTENSION)
            };
            let own = within.filter(is_its).collect::<Vec<_>>();
            std::iter::once(folder).chain(own)
        });
        let mut seen: Vec<_> = files
            .filter_map(|path| {
                let found = std::fs::metadata(&path).ok()?;
                Some((path, found.modified().ok()?, found.len()))
            })
            .collect();
        seen.sort();
        Self(seen)
    }
}

/// Returns the folders in `dir` that contain a manifest, sorted by name.
fn folders_in(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let folder = entry?.path();
        if folder.join(MANIFEST_FILE).exists() {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

fn plugins_in(dir: &Path) -> std::io::Result<Vec<Plugin>> {
    Ok(folders_in(dir)?
        .into_iter()
        .map(|folder| Plugin::inspect(dir, folder))
        .collect())
}

impl Plugin {
    /// Reads the manifest of a plugin and checks who can write its files. A problem makes the
    /// plugin broken instead of failing the search.
    fn inspect(dir: &Path, folder: PathBuf) -> Self {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let mut warnings = Vec::new();
        let state = Manifest::read(&folder, &name)
            .and_then(|manifest| {
                // Whoever can write the folder can replace the files in it, so the folders are
                // checked like the files.
                for path in [dir, &folder, &folder.join(MANIFEST_FILE)] {
                    warnings.extend(check(dir, path)?);
                }
                let library = folder.join(&manifest.library);
                if library.exists() {
                    warnings.extend(check(dir, &library)?);
                }
                Ok(library_state(library, manifest))
            })
            .unwrap_or_else(PluginState::Broken);
        Self {
            name,
            folder,
            state,
            warnings,
        }
    }
}

/// Checks that nobody else can write a file, and that it lies inside the plugin folder `dir` when
/// links are followed. Returns a warning if other members of its group can write it.
///
/// # Errors
/// Returns [`PluginProblem`] if another user can write it, it leads out of `dir`, or it cannot be
/// read.
fn check(dir: &Path, path: &Path) -> Result<Option<String>, PluginProblem> {
    let unreadable = |cause| Untrusted::Unreadable {
        path: path.to_owned(),
        cause,
    };
    let target = std::fs::canonicalize(path).map_err(unreadable)?;
    if !target.starts_with(std::fs::canonicalize(dir).map_err(unreadable)?) {
        return Err(PluginProblem::leads_outside(path, dir, &target));
    }
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    Ok(check_writers(path, &metadata)?)
}

/// Returns the state of a plugin by its library: ready, not built, or broken.
fn library_state(library: PathBuf, manifest: Manifest) -> PluginState {
    match std::fs::metadata(&library) {
        Ok(found) if found.is_file() => PluginState::Ready { manifest, library },
        Ok(_) => PluginState::Broken(PluginProblem::Mismatch(format!(
            "{} is not a file: build the plugin and put its library there",
            library.display()
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => PluginState::NotBuilt {
            manifest,
            expected: library,
        },
        Err(cause) => PluginState::Broken(PluginProblem::Untrusted(Untrusted::Unreadable {
            path: library,
            cause,
        })),
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folder = self.folder.display();
        match &self.state {
            PluginState::Ready { manifest, .. } => {
                write!(f, "{} {} (plugin in {folder})", self.name, manifest.version)
            }
            PluginState::NotBuilt { expected, .. } => {
                write!(
                    f,
                    "{} (plugin, not built: there is no {}; `contexture plugins build` builds it)",
                    self.name,
                    expected.display()
                )
            }
            PluginState::Broken(problem) => write!(f, "{} (broken plugin: {problem})", self.name),
        }
    }
}

impl fmt::Display for RegisteredEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} (registered by {})",
            self.name, self.version, self.owner
        )
    }
}

#[cfg(test)]
mod tests;
