//! Plugins put into place: shown first, pinned, and taken away again. None of their code is run.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};

use cli_support::{Home, Ran, json};

/// The SHA-256 of `abc`.
const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

const GENERATED: &str =
    "# Written by `contexture plugins build` from the library; change the engine instead.\n";

fn library(folder: &str) -> String {
    format!("{folder}/{DLL_PREFIX}tidy{DLL_SUFFIX}")
}

/// A plugin called `tidy`, with a manifest that says this beside name and version.
fn plugin(home: &Home, folder: &str, more: &str) {
    let manifest = format!("{GENERATED}name: tidy\n# Ours.\nversion: 0.3.0 # so far\n{more}");
    home.put(&format!("{folder}/plugin.yaml"), &manifest);
    home.put(&library(folder), "abc");
}

#[test]
fn a_plugin_is_shown_installed_pinned_and_removed() {
    let home = Home::new();
    plugin(
        &home,
        "tidy",
        "description: Tidies\nasks: [rewrites, offers_tools]\nsettings: {}\n",
    );
    let asked = home.contexture("plugins install tidy");
    asked.exits(2);
    for shown in [
        "tidy",
        "0.3.0",
        "Tidies",
        DIGEST,
        "changes the window before every request",
        "its tools are put into every request",
        "with all your rights",
        "add --yes",
    ] {
        assert!(asked.stderr.contains(shown), "{shown}: {}", asked.stderr);
    }
    let folder = "home/plugins/context_engine/tidy";
    assert!(!std::path::Path::new(&home.path(folder)).exists());

    let Ran {
        code,
        stdout,
        stderr,
        ..
    } = home.contexture("plugins install tidy --yes");
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains("contexture plugins"), "{stdout}");
    let manifest = home.read(&format!("{folder}/plugin.yaml"));
    // Not the build's any more, and otherwise as it was.
    assert_eq!(
        manifest,
        format!(
            "name: tidy\n# Ours.\nversion: 0.3.0 # so far\ndescription: Tidies\nasks: [rewrites, offers_tools]\n\
             settings: {{}}\nsha256: {DIGEST}\n"
        )
    );
    assert_eq!(home.read(&library(folder)), "abc");
    let listed = json(&home.contexture("plugins list --json").stdout);
    assert_eq!(listed["plugins"][0]["state"], "ready");
    // Alone, and not at a terminal, it lists.
    assert!(home.contexture("plugins").stdout.contains("tidy"));

    home.put("home/config.yaml", "context:\n  engine: tidy\n");
    home.put("home/engines/tidy/store", "kept");
    let removed = home.done("plugins remove tidy --yes");
    removed.stdout_has("still names it");
    removed.stdout_has("engines/tidy");
    assert!(!std::path::Path::new(&home.path(folder)).exists());
    assert_eq!(home.read("home/engines/tidy/store"), "kept");
}

#[test]
fn a_plugin_in_place_is_pinned_and_the_pin_follows_what_is_allowed_again() {
    let home = Home::new();
    let folder = "home/plugins/context_engine/tidy";
    plugin(&home, folder, "");
    let shown = home.done("plugins allow tidy --yes");
    shown.stderr_has("its manifest does not say");
    let pinned =
        |digest: &str| format!("name: tidy\n# Ours.\nversion: 0.3.0 # so far\nsha256: {digest}\n");
    assert_eq!(home.read(&format!("{folder}/plugin.yaml")), pinned(DIGEST));
    let again = home.contexture("plugins allow tidy");
    assert!(
        again.code == 0 && again.stdout.contains("already"),
        "{}",
        again.stderr
    );

    home.put(&library(folder), "another");
    let refused = home.contexture("plugins allow tidy");
    assert_eq!(refused.code, 2);
    refused.stderr_has(&format!("pinned to another library, {DIGEST}"));
    assert_eq!(home.contexture("plugins allow tidy --yes").code, 0);
    let manifest = home.read(&format!("{folder}/plugin.yaml"));
    assert!(
        manifest.starts_with("name: tidy\n# Ours.\n") && !manifest.contains(DIGEST),
        "{manifest}"
    );
}

/// The configuration names an engine alone, so a plugin of a bundled engine's name runs in its place.
#[test]
fn a_plugin_with_the_name_of_a_bundled_engine_is_said_to_take_its_place() {
    let home = Home::new();
    let says = "takes the place of the engine `lcm`";
    home.done("plugins new lcm").stderr_has(says);
    home.put("script/lcm/engine.sh", "");
    let manifest = "name: lcm\nversion: \"1\"\ncommand: [sh, engine.sh]\n";
    home.put("script/lcm/plugin.yaml", manifest);
    home.done("plugins install script/lcm --yes")
        .stderr_has(says);
    home.done("plugins allow lcm --yes").stderr_has(says);
    plugin(&home, "tidy", "");
    home.done("plugins install tidy --yes")
        .stderr_lacks("takes the place");
}

#[cfg(unix)]
#[test]
fn a_program_that_is_not_executable_is_not_installed() {
    let home = Home::new();
    home.put("mine/engine.sh", "#!/bin/sh\n");
    let manifest = "name: mine\nversion: \"1\"\ncommand: [./engine.sh]\n";
    home.put("mine/plugin.yaml", manifest);
    let refused = home.contexture("plugins install mine --yes");
    refused.exits(2);
    refused.stderr_has("engine.sh is not executable: run `chmod +x");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.path("mine/engine.sh"), executable).unwrap();
    home.done("plugins install mine --yes");
}

/// Only a manifest that `plugins build` wrote may be replaced, whatever is in the others.
#[test]
fn a_build_leaves_a_manifest_of_the_author_alone() {
    let home = Home::new();
    home.put("mine/Cargo.toml", "");
    for manifest in [&b"name: mine\ndescription: caf\xe9\n"[..], b"\xff\xfe", b""] {
        home.put_bytes("mine/plugin.yaml", manifest);
        let ran = home.contexture("plugins build mine");
        assert_ne!(ran.code, 0);
        // The manifest is what stops it, and nothing was built to generate another.
        ran.stderr_has("fix its plugin.yaml");
        ran.stderr_lacks("cargo");
        let path = home.path("mine/plugin.yaml");
        assert_eq!(std::fs::read(path).unwrap(), manifest);
    }
}

#[test]
fn what_cannot_be_installed_pinned_or_removed_is_said() {
    let home = Home::new();
    let place = "home/plugins/context_engine";
    plugin(&home, "tidy", "");
    plugin(
        &home,
        "changed/tidy",
        &format!("sha256: {}\n", DIGEST.replace('b', "c")),
    );
    home.put("unbuilt/tidy/plugin.yaml", "name: tidy\nversion: \"1\"\n");
    home.put(
        &format!("{place}/mine/plugin.yaml"),
        "name: mine\nversion: \"1\"\n",
    );
    home.put(&format!("{place}/mine/Cargo.toml"), "");
    for (args, says, way_out) in [
        (
            &["install", "nowhere"][..],
            "no plugin in nowhere",
            "contexture plugins build PATH",
        ),
        (
            &["install", "home"],
            "it has no plugin.yaml",
            "contexture plugins build PATH",
        ),
        (
            &["install", "unbuilt/tidy", "--yes"],
            "is not built",
            "contexture plugins build",
        ),
        (
            &["install", "changed/tidy", "--yes"],
            "but the manifest pins",
            "build it again",
        ),
        (
            &["allow", "mien"],
            "no plugin `mien`",
            "did you mean `mine`?",
        ),
        (
            &["remove", "mine", "--yes"],
            "holds the plugin's source",
            "delete it yourself",
        ),
    ] {
        let Ran { code, stderr, .. } =
            home.run(["plugins"].into_iter().chain(args.iter().copied()));
        assert_eq!(code, 2, "{args:?} {stderr}");
        assert!(
            stderr.contains(says) && stderr.contains(way_out),
            "{args:?}: {stderr}"
        );
    }
    let inside = format!("{place}/tidy");
    plugin(&home, &inside, "");
    let in_place = home.contexture(format!("plugins install {inside} --yes"));
    in_place.stderr_has("contexture plugins allow tidy");
}
