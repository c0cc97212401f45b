//! Chooses the engine to run from the catalog.
//!
//! Several engines may have one name: plugins in different folders, and engines registered in this
//! process. The configuration also says what happens if the named engine is missing or broken.
//! [`resolve`] makes this decision in one place and explains it: its [`Resolution`] holds the
//! choice, warnings that the user should see, and notes for the log.
//!
//! A broken plugin never makes way for another engine of the same name, because the user would not
//! notice that different code runs. The only possible fallback is the built-in compressor, and only
//! if the engine was not named on a command line.
//!
//! Loading is left to [`engines`](crate::engines), which calls `Resolution::after_load_failure` if
//! it fails.

use std::path::PathBuf;

use contexture_base::suggest::nearest;
use contexture_config::engine_name::{BUILT_IN, NAME_RULE, is_engine_name};
use contexture_config::{Config, Finding, Loaded, OnLoadFailure, OnMissing, Schema};

use super::manifest::Manifest;
use super::{Catalog, FolderState, PluginState};

/// The engine that was chosen to run. Nothing has been loaded yet, so it may still fail to load.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// The built-in compressor, either requested or as a fallback.
    BuiltIn,
    /// A plugin, which is still to be [verified](Manifest::verify) and loaded.
    Plugin {
        /// The plugin's description of itself, with its pinned digest.
        manifest: Box<Manifest>,
        /// Path of the plugin's library, or of the file that its command runs. It existed when the
        /// folders were searched.
        library: PathBuf,
    },
    /// An engine registered in this process, by its name. It needs no loading.
    Registered(String),
}

/// The engine that was chosen, and what to tell the user about the choice.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Resolution {
    /// The requested name, from the command line or the configuration.
    pub requested: String,
    /// The engine that runs. It differs from the requested one if a fallback was needed.
    pub engine: Choice,
    /// What the user should know: the engine differs from the requested one, may not be the
    /// intended one, or other users can change it.
    pub warnings: Vec<String>,
    /// Remarks for the log, such as other engines of the same name that were passed over.
    pub notes: Vec<String>,
    on_load_failure: OnLoadFailure,
}

/// Why no engine can be chosen. Each message says what was found instead or what to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The name is not a valid engine name, so it was not looked up in any folder.
    #[error("`{name}` cannot be an engine: it must be {NAME_RULE}")]
    BadName {
        /// The requested name, which may be anything.
        name: String,
    },
    /// No engine has this name, and no fallback is allowed. Plugins that are not built count as
    /// missing.
    #[error("{report}")]
    Missing {
        /// The requested name, from the command line or the configuration.
        name: String,
        /// Which engines were found, which folders were searched, and a similar name if there is
        /// one.
        report: String,
    },
    /// The plugin of this name is broken or failed to load, and no fallback is allowed.
    #[error("the plugin `{name}` cannot be loaded: {reason}")]
    LoadFailed {
        /// The requested name, from the command line or the configuration.
        name: String,
        /// Why it cannot be loaded, and what to do.
        reason: String,
    },
}

/// Chooses the engine to run: `named`, from a command line, or otherwise the one in
/// `context.engine`. An engine that is named on a command line has no fallback.
///
/// The name of the built-in compressor always means the built-in compressor. Other names are
/// searched in the plugin folders, in order, and then among the registered engines. A plugin that
/// is not built is skipped. A broken one is an error, so that no other engine of the same name
/// replaces it silently.
///
/// # Errors
/// Returns [`ResolveError`] if the name is invalid, or if the engine is missing or broken and no
/// fallback is allowed.
pub fn resolve(
    catalog: &Catalog,
    config: &Config,
    named: Option<&str>,
) -> Result<Resolution, ResolveError> {
    let name = named.unwrap_or(&config.context.engine);
    if !is_engine_name(name) {
        return Err(ResolveError::BadName { name: name.into() });
    }
    let unused = catalog.unused_settings(config, name).into_iter();
    let mut resolution = Resolution {
        requested: name.into(),
        engine: Choice::BuiltIn,
        warnings: unused.map(|(_, warning)| warning).collect(),
        notes: Vec::new(),
        on_load_failure: match named {
            Some(_) => OnLoadFailure::Fail,
            None => config.context.on_load_failure,
        },
    };
    if name == BUILT_IN {
        resolution.warnings.extend(imposters(catalog));
        return Ok(resolution);
    }

    for plugin in catalog.plugins.iter().filter(|plugin| plugin.name == name) {
        match &plugin.state {
            PluginState::NotBuilt { .. } => resolution.notes.push(plugin.to_string()),
            PluginState::Broken(problem) => {
                // Not skipped: the next engine of this name may be different code.
                return resolution.after_load_failure(&problem.to_string());
            }
            PluginState::Ready { manifest, library } => {
                resolution
                    .notes
                    .extend(passed_over(catalog, name, &plugin.folder));
                resolution.warnings.extend(plugin.warnings.iter().cloned());
                resolution.engine = Choice::Plugin {
                    manifest: Box::new(manifest.clone()),
                    library: library.clone(),
                };
                return Ok(resolution);
            }
        }
    }
    if catalog.registered.iter().any(|engine| engine.name == name) {
        resolution.engine = Choice::Registered(name.into());
        return Ok(resolution);
    }

    let report = missing(catalog, name);
    if named.is_some() || config.context.on_missing == OnMissing::Fail {
        return Err(ResolveError::Missing {
            name: name.into(),
            report,
        });
    }
    // The report lists plugins that are not built, so a note about them would repeat it.
    resolution.notes.retain(|note| !report.contains(note));
    resolution
        .warnings
        .push(format!("the built-in {BUILT_IN} runs instead: {report}"));
    Ok(resolution)
}

impl Resolution {
    /// Returns the choice after the chosen plugin failed to load: the built-in compressor with a
    /// warning, if the configuration allows it. A registered engine of the same name is never
    /// chosen.
    ///
    /// # Errors
    /// Returns [`ResolveError::LoadFailed`] if the configuration allows no fallback, or the engine
    /// was named on a command line.
    pub(crate) fn after_load_failure(mut self, reason: &str) -> Result<Self, ResolveError> {
        match self.on_load_failure {
            OnLoadFailure::Fail => Err(ResolveError::LoadFailed {
                name: self.requested,
                reason: reason.into(),
            }),
            OnLoadFailure::Fallback => {
                self.warnings.push(format!(
                    "the built-in {BUILT_IN} runs instead: the plugin `{}` cannot be loaded: {reason}",
                    self.requested
                ));
                self.engine = Choice::BuiltIn;
                Ok(self)
            }
        }
    }
}

/// Returns a warning for each engine that uses the name of the built-in compressor and is therefore
/// ignored.
fn imposters(catalog: &Catalog) -> Vec<String> {
    let plugins = catalog
        .plugins
        .iter()
        .filter(|plugin| plugin.name == BUILT_IN);
    let registered = catalog
        .registered
        .iter()
        .filter(|engine| engine.name == BUILT_IN);
    plugins
        .map(|plugin| plugin.folder.display().to_string())
        .chain(registered.map(|engine| format!("the engine registered by {}", engine.owner)))
        .map(|what| format!("{what} is not used: `{BUILT_IN}` is always the built-in; rename it"))
        .collect()
}

/// Returns a note for each other engine of this name that comes after the chosen plugin.
fn passed_over(catalog: &Catalog, name: &str, chosen: &std::path::Path) -> Vec<String> {
    let plugins = catalog
        .plugins
        .iter()
        .skip_while(|plugin| plugin.folder != chosen)
        .skip(1)
        .filter(|plugin| plugin.name == name)
        .map(|plugin| plugin.folder.display().to_string());
    let registered = catalog
        .registered
        .iter()
        .filter(|engine| engine.name == name)
        .map(|engine| format!("the engine registered by {}", engine.owner));
    plugins
        .chain(registered)
        .map(|other| format!("{other} is not used: {} comes first", chosen.display()))
        .collect()
}

impl Catalog {
    /// The settings that each plugin and each registered engine declares, with the engine's name. A plugin whose manifest
    /// cannot be read declares none.
    pub fn declared_settings(&self) -> impl Iterator<Item = (&str, &Schema)> {
        let plugins = (self.plugins.iter()).filter_map(|plugin| match &plugin.state {
            PluginState::Ready { manifest, .. } | PluginState::NotBuilt { manifest, .. } => {
                Some((manifest.name.as_str(), &manifest.settings))
            }
            PluginState::Broken(_) => None,
        });
        let registered = self.registered.iter();
        plugins.chain(registered.map(|engine| (engine.name.as_str(), &engine.settings)))
    }

    /// What is wrong with the configured settings of the engines, by what each engine declares.
    pub fn wrong_settings(&self, loaded: &Loaded) -> Vec<Finding> {
        self.declared_settings()
            .filter_map(|(name, schema)| loaded.engine_settings(name, schema).err())
            .flatten()
            .collect()
    }

    /// Returns the name of each engine that has settings but does not exist, with a warning. The
    /// `requested` engine is left out: if it is missing, the resolution itself reports that.
    pub fn unused_settings(&self, config: &Config, requested: &str) -> Vec<(String, String)> {
        let known = self.names();
        config
            .context
            .engines
            .keys()
            .filter(|engine| *engine != requested && !known.contains(&engine.as_str()))
            .map(|engine| {
                let hint = nearest(engine, known.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let warning = format!(
                    "`context.engines.{engine}` has settings, but there is no such engine{hint}"
                );
                (engine.clone(), warning)
            })
            .collect()
    }
}

/// Writes the report about a missing engine: a similar name, which engines exist, and which folders
/// were searched.
fn missing(catalog: &Catalog, name: &str) -> String {
    let mut report = format!("there is no engine `{name}` that can run");
    let near = nearest(
        name,
        catalog.names().into_iter().filter(|near| *near != name),
    );
    report.push_str(&near.map_or_else(
        || ".".to_owned(),
        |near| format!("; did you mean `{near}`?"),
    ));
    let found = std::iter::once(format!("{BUILT_IN} (built-in)"))
        .chain(catalog.plugins.iter().map(ToString::to_string))
        .chain(catalog.registered.iter().map(ToString::to_string));
    let searched = catalog.folders.iter().map(|folder| match &folder.state {
        FolderState::Searched => folder.path.display().to_string(),
        FolderState::Missing => format!("{} (does not exist)", folder.path.display()),
        FolderState::Unreadable(why) => {
            format!("{} (cannot be read: {why})", folder.path.display())
        }
    });
    let searched: Vec<_> = searched
        .chain(["the engines of this process".into()])
        .collect();
    report.push_str(&format!(
        " Found: {}. Looked in: {}",
        found.collect::<Vec<_>>().join("; "),
        searched.join("; ")
    ));
    report
}

#[cfg(test)]
mod tests;
