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
    let mut resolution = Resolution {
        requested: name.into(),
        engine: Choice::BuiltIn,
        warnings: catalog.unused_settings(config, name),
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

    /// Returns a warning for each engine that has settings but does not exist. The `requested`
    /// engine is left out: if it is missing, the resolution itself reports that.
    pub fn unused_settings(&self, config: &Config, requested: &str) -> Vec<String> {
        let known = self.names();
        config
            .context
            .engines
            .keys()
            .filter(|engine| *engine != requested && !known.contains(&engine.as_str()))
            .map(|engine| {
                let hint = nearest(engine, known.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                format!(
                    "`context.engines.{engine}` has settings, but there is no such engine{hint}"
                )
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
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::catalog::RegisteredEngine;
    use proptest::prelude::*;
    use std::path::Path;
    use tempfile::TempDir;

    /// Puts a plugin into `dir`: its manifest and, when it is built, something in the library's place.
    fn plugin(dir: &Path, name: &str, built: bool) {
        let folder = dir.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("plugin.yaml"),
            format!("name: {name}\nversion: \"0.1.0\"\n"),
        )
        .unwrap();
        if built {
            let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
            let library = format!("{prefix}{}{suffix}", name.replace('-', "_"));
            std::fs::write(folder.join(library), "not a library").unwrap();
        }
    }

    fn registered(name: &str) -> RegisteredEngine {
        RegisteredEngine {
            name: name.into(),
            version: "1.0".into(),
            description: String::new(),
            owner: "a test".into(),
            settings: contexture_config::Schema::default(),
            declared_settings: None,
        }
    }

    fn config(engine: &str) -> Config {
        let mut config = Config::default();
        config.context.engine = engine.into();
        config
    }

    fn scan(dirs: &[&TempDir], engines: &[&str]) -> Catalog {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        Catalog::scan(&dirs, engines.iter().map(|name| registered(name)).collect())
    }

    fn library_of(resolution: &Resolution) -> &Path {
        match &resolution.engine {
            Choice::Plugin { library, .. } => library,
            other => panic!("{other:?} is no plugin"),
        }
    }

    #[test]
    fn compressor_is_the_built_in_whatever_lies_around() {
        let dir = tempfile::tempdir().unwrap();
        plugin(dir.path(), "compressor", true);
        let catalog = scan(&[&dir], &["compressor"]);
        for named in [None, Some("compressor")] {
            let resolution = resolve(&catalog, &Config::default(), named).unwrap();
            assert_eq!(resolution.engine, Choice::BuiltIn);
            assert_eq!(resolution.warnings.len(), 2, "{:?}", resolution.warnings);
        }
        let resolution = resolve(&scan(&[], &[]), &Config::default(), None).unwrap();
        assert_eq!((resolution.warnings, resolution.notes), (vec![], vec![]));
    }

    #[test]
    fn a_plugin_comes_before_a_registered_engine_and_an_earlier_folder_before_a_later_one() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        plugin(second.path(), "lcm", true);
        let resolution =
            resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
        assert!(library_of(&resolution).starts_with(second.path()));
        assert_eq!(resolution.notes.len(), 1, "{:?}", resolution.notes);

        plugin(first.path(), "lcm", true);
        let resolution =
            resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
        assert!(library_of(&resolution).starts_with(first.path()));
        assert_eq!(resolution.notes.len(), 2, "{:?}", resolution.notes);
    }

    #[test]
    fn a_plugin_that_is_not_built_is_passed_over_and_said_so() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        plugin(first.path(), "lcm", false);
        let resolution = resolve(&scan(&[&first], &["lcm"]), &config("lcm"), None).unwrap();
        assert_eq!(resolution.engine, Choice::Registered("lcm".into()));
        assert!(
            resolution.notes[0].contains("not built"),
            "{:?}",
            resolution.notes
        );

        plugin(second.path(), "lcm", true);
        let resolution =
            resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
        assert!(library_of(&resolution).starts_with(second.path()));
    }

    #[test]
    fn a_missing_engine_falls_back_in_one_warning_that_says_everything() {
        let dir = tempfile::tempdir().unwrap();
        plugin(dir.path(), "lcm", true);
        plugin(dir.path(), "lmc2", false);
        let mut catalog = scan(&[&dir], &["keep-tail"]);
        let absent = crate::catalog::Folder {
            path: "/nowhere/at/all".into(),
            state: FolderState::Missing,
        };
        catalog.folders.push(absent);
        let resolution = resolve(&catalog, &config("lmc"), None).unwrap();
        assert_eq!(resolution.engine, Choice::BuiltIn);
        assert_eq!(resolution.warnings.len(), 1);
        let warning = &resolution.warnings[0];
        let dir = dir.path().display().to_string();
        for part in [
            "no engine `lmc`",
            "did you mean `lcm`?",
            "compressor (built-in)",
            "not built",
            "keep-tail",
            &dir,
            "/nowhere/at/all (does not exist)",
        ] {
            assert!(warning.contains(part), "{part} is not in {warning}");
        }

        let mut strict = config("lmc");
        strict.context.on_missing = OnMissing::Fail;
        assert!(matches!(
            resolve(&catalog, &strict, None),
            Err(ResolveError::Missing { .. })
        ));
        // Only what is named in the file may be replaced.
        assert!(matches!(
            resolve(&catalog, &config("lcm"), Some("lmc")),
            Err(ResolveError::Missing { .. })
        ));
        // A plugin that is not built is reported once, in the one warning.
        let resolution = resolve(&catalog, &config("lmc2"), None).unwrap();
        assert_eq!((resolution.warnings.len(), resolution.notes.len()), (1, 0));
    }

    #[test]
    fn a_broken_plugin_never_falls_through_to_a_namesake() {
        let dir = tempfile::tempdir().unwrap();
        plugin(dir.path(), "lcm", true);
        std::fs::write(
            dir.path().join("lcm/plugin.yaml"),
            "name: other\nversion: \"1\"\n",
        )
        .unwrap();
        let catalog = scan(&[&dir], &["lcm"]);
        let resolution = resolve(&catalog, &config("lcm"), None).unwrap();
        assert_eq!(resolution.engine, Choice::BuiltIn);
        assert!(resolution.warnings[0].contains("name: other"));
        let mut strict = config("lcm");
        strict.context.on_load_failure = OnLoadFailure::Fail;
        assert!(matches!(
            resolve(&catalog, &strict, None),
            Err(ResolveError::LoadFailed { .. })
        ));
        assert!(matches!(
            resolve(&catalog, &Config::default(), Some("lcm")),
            Err(ResolveError::LoadFailed { .. })
        ));
    }

    #[test]
    fn a_failed_load_falls_back_to_the_built_in_or_fails() {
        let dir = tempfile::tempdir().unwrap();
        plugin(dir.path(), "lcm", true);
        let catalog = scan(&[&dir], &["lcm"]);
        let loaded = |named| resolve(&catalog, &config("lcm"), named).unwrap();
        let after = loaded(None).after_load_failure("bad magic").unwrap();
        assert_eq!(after.engine, Choice::BuiltIn);
        assert!(after.warnings[0].contains("bad magic"));
        assert_eq!(
            loaded(Some("lcm"))
                .after_load_failure("bad magic")
                .unwrap_err()
                .to_string(),
            "the plugin `lcm` cannot be loaded: bad magic"
        );
    }

    #[test]
    fn settings_of_no_engine_are_warned_of() {
        let mut config = config("keep-tail");
        for name in ["lmc", "keep-tail", "compressor"] {
            config
                .context
                .engines
                .insert(name.into(), Default::default());
        }
        let warnings = resolve(&scan(&[], &["lcm", "keep-tail"]), &config, None)
            .unwrap()
            .warnings;
        assert_eq!(
            warnings,
            [
                "`context.engines.lmc` has settings, but there is no such engine; did you mean `lcm`?"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A name leads to what lies under exactly that name in a plugin folder, or to nothing.
        #[test]
        fn no_name_leaves_the_plugin_folders(name in "[a-z./\\\\~A-Z0-9 _-]{0,12}") {
            let dir = tempfile::tempdir().unwrap();
            let inner = dir.path().join("plugins");
            plugin(dir.path(), "x", true);
            plugin(&inner, "y", true);
            let catalog = Catalog::scan(&[inner], vec![]);
            match resolve(&catalog, &config("compressor"), Some(&name)) {
                Ok(resolution) => prop_assert!(name == "y" || name == BUILT_IN, "{:?}", resolution),
                Err(ResolveError::BadName { .. }) => prop_assert!(!is_engine_name(&name)),
                Err(_) => prop_assert!(is_engine_name(&name) && !name.contains(['.', '/', '\\'])),
            }
        }
    }
}
