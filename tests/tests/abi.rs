//! Libraries that do not fit, and libraries of an older or newer version of the interface that do.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

use contexture_engine_api::{
    ContextEngine, Decision, EngineError, FactoryRequest, LoadError, OpenRequest, Plugin, Services,
    WindowState,
};
use contexture_tests::{built_plugins, library_name, repository, target_dir};

fn load_error(name: &str) -> LoadError {
    Plugin::load(&built_plugins().join(library_name(name))).unwrap_err()
}

#[test]
fn another_abi_version_is_refused_in_one_clear_line() {
    let error = load_error("wrong-abi-version");
    assert!(matches!(error, LoadError::AbiVersion { found: 99, .. }));
    let said = error.to_string();
    assert!(
        said.contains("wrong_abi_version") && said.contains("version 99"),
        "{said}"
    );
    assert!(
        said.contains("rebuild it") && !said.contains('\n'),
        "{said}"
    );
}

#[test]
fn another_layout_shows_the_one_difference_that_matters() {
    let error = load_error("wrong-layout");
    assert!(matches!(error, LoadError::Layout { .. }));
    let said = error.to_string();
    assert!(
        said.contains("PluginModule") && said.contains("mismatched package"),
        "{said}"
    );
    assert!(said.len() < 1_500, "{} bytes", said.len());
}

#[test]
fn a_file_that_is_no_library_and_a_library_that_is_no_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join(library_name("text"));
    std::fs::write(&text, "this is no library").unwrap();
    let error = Plugin::load(&text).unwrap_err();
    assert!(matches!(error, LoadError::Open { .. }), "{error}");

    let cut = folder.path().join(library_name("cut"));
    let whole = std::fs::read(built_plugins().join(library_name("misbehaving"))).unwrap();
    for share in [2, 3, 20, 100] {
        std::fs::write(&cut, &whole[..whole.len() / share]).unwrap();
        let error = Plugin::load(&cut).unwrap_err();
        assert!(matches!(error, LoadError::CutShort { .. }), "{error}");
    }
}

/// Builds the fixture `misbehaving` against a copy of the interface that calls itself `version` and in
/// which `edits` (file, from, to) were made.
fn build_against(version: &str, edits: &[(&str, &str, &str)]) -> PathBuf {
    // A name of its own, so that it can share the folder of what is already built.
    let name = format!("against-{}", version.replace('.', "-"));
    let root = target_dir().join("abi-variants").join(&name);
    let copies = [
        ("engine-api", "engine-api"),
        ("tests/plugins/misbehaving", "plugin"),
    ];
    for (from, to) in copies {
        copy_folder(&repository().join(from), &root.join(to));
    }
    let edit = |file: &Path, from: &str, to: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(
            text.contains(from),
            "{} no longer says `{from}`",
            file.display()
        );
        std::fs::write(file, text.replacen(from, to, 1)).unwrap();
    };
    for (file, from, to) in edits {
        edit(&root.join("engine-api/src").join(file), from, to);
    }
    let version_line = format!("version = \"{version}\"");
    edit(
        &root.join("engine-api/Cargo.toml"),
        "version = \"1.0.0\"",
        &version_line,
    );
    edit(
        &root.join("plugin/Cargo.toml"),
        "name = \"misbehaving\"",
        &format!("name = \"{name}\""),
    );
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let start = manifest.find("members = [").unwrap();
    let end = start + manifest[start..].find(']').unwrap() + 1;
    let mut manifest = manifest;
    manifest.replace_range(start..end, "members = [\"engine-api\", \"plugin\"]");
    std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), root.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "-p", &name])
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target_dir().join("debug").join(library_name(&name))
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn open(library: &Path) -> Box<dyn ContextEngine> {
    let plugin = Plugin::load(library).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(plugin.description().name, "misbehaving");
    let folder = tempfile::tempdir().unwrap();
    let request = FactoryRequest {
        settings: "{}",
        data_dir: folder.path(),
    };
    let factory = plugin.create(&request).unwrap();
    factory
        .open(&OpenRequest {
            session: "s",
            settings: "{}",
            data_dir: folder.path(),
            services: Services::none(),
            window: &WindowState::default(),
            compaction: None,
        })
        .unwrap()
}

fn full_window() -> WindowState {
    WindowState {
        context_length: 100,
        prompt_tokens: 90,
        ..WindowState::default()
    }
}

#[test]
fn older_newer_and_lying_plugins() {
    let older = build_against(
        "1.0.1",
        &[
            (
                "abi/tables.rs",
                "    pub status: unsafe extern \"C\" fn(*mut (), RStr<'_>) -> Answer,\n",
                "",
            ),
            ("abi/export.rs", "    end,\n    status,\n", "    end,\n"),
            (
                "abi/export.rs",
                "    status(_) => |engine| Ok(engine.status());\n",
                "",
            ),
        ],
    );
    let mut engine = open(&older);
    assert!(matches!(
        engine.should_compress(&full_window()),
        Decision::Yes(_)
    ));
    // What the plugin is too old to have gets the answer of the default body.
    assert_eq!(engine.status(), serde_json::json!({}));
    engine.end();

    let newer = build_against(
        "1.1.0",
        &[
            (
                "abi/tables.rs",
                "    pub status: unsafe extern \"C\" fn(*mut (), RStr<'_>) -> Answer,\n",
                "    pub status: unsafe extern \"C\" fn(*mut (), RStr<'_>) -> Answer,\n    \
                 pub annotate: unsafe extern \"C\" fn(*mut (), RStr<'_>) -> Answer,\n",
            ),
            (
                "abi/export.rs",
                "    end,\n    status,\n",
                "    end,\n    status,\n    annotate: status,\n",
            ),
        ],
    );
    let engine = open(&newer);
    assert!(matches!(
        engine.should_compress(&full_window()),
        Decision::Yes(_)
    ));
    assert_eq!(engine.status(), serde_json::Value::Null);

    let liar = build_against(
        "1.0.2",
        &[(
            "abi/export.rs",
            "engine.reset();",
            "{ engine.reset()?; Ok(\"not what you expect\") };",
        )],
    );
    let mut engine = open(&liar);
    let error = engine.reset().unwrap_err();
    assert!(
        matches!(&error, EngineError::Protocol(said) if said.contains("not what you expect")),
        "{error}"
    );
}
