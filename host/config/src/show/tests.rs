#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::Config;

#[test]
fn what_is_shown_says_the_origin_and_reads_back_as_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let env = |_: &str| Some(dir.path().as_os_str().to_owned());
    let file = dir.path().join("config.yaml");
    std::fs::write(
            &file,
            "compression: {threshold: 0.5}\nplugins: {dirs: [here]}\ncontext:\n  engine: lcm\n  \
             engines: {lcm: {a: {b: [1, 'x: y # z']}, 'odd key: ': {}}, other: {on: \"é\\n\\u0007\"}}\n",
        )
        .unwrap();
    let loaded = Config::load(None, &env).unwrap();
    let shown = loaded.effective().to_string();
    assert!(
        shown.contains("\n  threshold: 0.5\n  max_threshold_tokens: null  # default\n"),
        "{shown}"
    );
    assert!(
        shown.contains("      a:\n        b: [1,\"x: y # z\"]\n"),
        "{shown}"
    );
    assert!(shown.contains("cache_ttl: \"5m\"  # default"), "{shown}");

    std::fs::write(&file, &shown).unwrap();
    let again = Config::load(None, &env).unwrap();
    assert_eq!(again.warnings, []);
    assert_eq!(again.plugin_dirs, loaded.plugin_dirs);
    let same = |config: &Config| Config {
        plugins: Default::default(),
        ..config.clone()
    };
    assert_eq!(same(&again.config), same(&loaded.config));
    // A null still means the default. Everything else is now set by the file.
    let defaults = again
        .effective()
        .0
        .into_iter()
        .filter(|s| s.origin == Origin::Default);
    assert!(
        defaults
            .map(|setting| setting.value)
            .all(|value| value.is_null())
    );
}
