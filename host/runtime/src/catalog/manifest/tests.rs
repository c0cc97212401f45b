#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use tempfile::TempDir;

const DIGEST_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn read(name: &str, text: &str) -> (TempDir, Result<Manifest, PluginProblem>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(MANIFEST_FILE), text).unwrap();
    let manifest = Manifest::read(dir.path(), name);
    (dir, manifest)
}

fn problem(name: &str, text: &str) -> PluginProblem {
    read(name, text).1.unwrap_err()
}

#[test]
fn the_authors_reference_has_every_key_and_call() {
    let reference = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/engine-reference.md"
    );
    let reference = std::fs::read_to_string(reference).unwrap();
    let about = serde_json::to_value(contexture_engine_api::About::default()).unwrap();
    let flags = about.as_object().unwrap().iter();
    let flags = flags.filter(|(_, value)| value.is_boolean());
    let flags = flags.map(|(flag, _)| flag.clone());
    let supervision = schemars::schema_for!(contexture_config::Supervision).to_value();
    let supervision = supervision["properties"].as_object().unwrap().keys();
    let keys = SCHEMA.properties().map(|(key, _)| key.to_owned());
    let all = keys
        .chain(flags)
        .chain(supervision.map(|key| format!("context.supervision.{key}")))
        // The host calls `follow` alone, and it is hidden from authors.
        .chain(
            crate::HOST
                .features
                .iter()
                .filter(|feature| *feature != "follow")
                .cloned(),
        );
    let missing: Vec<_> = all
        .filter(|key| !reference.contains(&format!("`{key}`")))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_manifest_of_two_lines_is_enough() {
    let (_dir, manifest) = read("keep-tail", "name: keep-tail\nversion: \"0.1.0\"\n");
    let manifest = manifest.unwrap();
    assert_eq!(
        manifest.library,
        format!("{DLL_PREFIX}keep_tail{DLL_SUFFIX}")
    );
    assert_eq!(
        (manifest.version.as_str(), manifest.description.as_str()),
        ("0.1.0", "")
    );
}

#[test]
fn the_problems_are_told_apart() {
    let text = |rest: &str| format!("name: x\nversion: \"1\"\n{rest}\n");
    let says = |folder: &str, text: &str, what: &str| {
        let problem = problem(folder, text).to_string();
        assert!(problem.contains(what), "{text}: {problem}");
    };
    says("X y", &text(""), "is not named like an engine");
    says("y", &text(""), "make the two the same");
    assert!(matches!(
        problem("x", "name: ["),
        PluginProblem::Document(_)
    ));
    assert!(matches!(
        problem("x", &text("name: x")),
        PluginProblem::Document(_)
    ));
    assert!(matches!(
        problem("x", &text("api: 2")),
        PluginProblem::Invalid(_)
    ));
    let message = problem("x", "version: 1.0\n").to_string();
    assert!(
        message.contains("`name` is missing: the engine's name"),
        "{message}"
    );
    assert!(
        message.contains(":1:10: `version` is 1.0, but must be text; put it in quotes"),
        "{message}"
    );
    for library in [
        "../evil", "/usr/lib/evil", "a\\\\b", "''", "libx.so", ".hidden", "a b",
    ] {
        let text = text(&format!("library: {library}"));
        says("x", &text, "must be a file name beside it");
    }
    for digest in ["abc", "1", "{linux: 5}", "[]"] {
        says(
            "x",
            &text(&format!("sha256: {digest}")),
            "not 64 hex digits",
        );
    }
    let both = text("library: y\ncommand: [python3, plugin.yaml]");
    says("x", &both, "remove one of them");
    // A plain first word is a program on the PATH, even if a file has its name.
    for command in [
        "[]", "[python3]", "[python3, no.py]", "[plugin.yaml]", "[sh, ../x]",
    ] {
        says(
            "x",
            &text(&format!("command: {command}")),
            "names no file beside it",
        );
    }
    says(
        "x",
        &text("settings: {n: {type: integer, minumum: 1}}"),
        "did you mean `minimum`?",
    );
}

#[test]
fn an_unknown_key_is_an_error() {
    for (key, near) in [("libary", "library"), ("SHA256", "sha256")] {
        let text = format!("name: x\nversion: \"1\"\n{key}: y\n");
        let message = problem("x", &text).to_string();
        let hint = format!("did you mean `{near}`?");
        assert!(message.contains(&hint), "{message}");
    }
}

#[test]
fn a_pinned_library_must_be_the_one() {
    let verify = |pin: &str| {
        let (dir, manifest) = read("x", &format!("name: x\nversion: \"1\"\nsha256: {pin}\n"));
        let library = dir.path().join("lib");
        std::fs::write(&library, "abc").unwrap();
        manifest.unwrap().verify(&library)
    };
    assert!(verify("null").is_ok());
    assert!(verify(DIGEST_OF_ABC).is_ok());
    assert!(verify(&DIGEST_OF_ABC.to_uppercase()).is_ok());
    assert!(verify(&format!("{{{OS}-{ARCH}: {DIGEST_OF_ABC}}}")).is_ok());
    let other = "0".repeat(63) + "a";
    let says = |digest: &str| verify(digest).unwrap_err().to_string();
    assert!(says(&other).contains("it was replaced or rebuilt"));
    let others = says(&format!("{{amiga-m68k: {DIGEST_OF_ABC}}}"));
    assert!(others.contains("pins only the libraries of other platforms"));
    let (dir, manifest) = read(
        "x",
        &format!("name: x\nversion: \"1\"\nsha256: {DIGEST_OF_ABC}\n"),
    );
    assert!(matches!(
        manifest.unwrap().verify(&dir.path().join("gone")),
        Err(PluginProblem::Untrusted(Untrusted::Unreadable { .. }))
    ));
}
