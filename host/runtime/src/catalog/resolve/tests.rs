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
    let resolution = resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
    assert!(library_of(&resolution).starts_with(second.path()));
    assert_eq!(resolution.notes.len(), 1, "{:?}", resolution.notes);

    plugin(first.path(), "lcm", true);
    let resolution = resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
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
    let resolution = resolve(&scan(&[&first, &second], &["lcm"]), &config("lcm"), None).unwrap();
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
        ["`context.engines.lmc` has settings, but there is no such engine; did you mean `lcm`?"]
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
