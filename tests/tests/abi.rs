//! Libraries that do not fit, and libraries of an older or newer version of the interface that do.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

use contexture::session::{Compact, OutcomeKind};
use contexture_engine_api::{
    ContextEngine, EngineError, FactoryRequest, HostInfo, LoadError, OpenRequest, Plugin, Services,
    WindowState,
};
use contexture_tests::{
    Home, built_plugins, chat, compact, conversation, engines, library_name, repository, session,
    target_dir,
};

fn load_error(name: &str) -> LoadError {
    let library = built_plugins().join(library_name(name));
    Plugin::load(&library, &HostInfo::new("1.0.0")).unwrap_err()
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
    let error = Plugin::load(&text, &HostInfo::default()).unwrap_err();
    assert!(matches!(error, LoadError::Open { .. }), "{error}");

    let cut = folder.path().join(library_name("cut"));
    let whole = std::fs::read(built_plugins().join(library_name("misbehaving"))).unwrap();
    for share in [2, 3, 20, 100] {
        std::fs::write(&cut, &whole[..whole.len() / share]).unwrap();
        let error = Plugin::load(&cut, &HostInfo::default()).unwrap_err();
        assert!(matches!(error, LoadError::CutShort { .. }), "{error}");
    }
}

/// An edit of the interface: the file, what stands there, and what stands there instead.
type Edit<'a> = (&'a str, &'a str, &'a str);

/// Builds a crate against a copy of the interface that calls itself `version` and in which `edits` were made:
/// `sources` are its files, of which one is `lib.rs` (a plugin) or `main.rs` (a host).
fn build_against(
    name: &str,
    version: &str,
    edits: &[Edit<'_>],
    sources: &[(&Path, &str)],
) -> PathBuf {
    let root = target_dir().join("abi-variants").join(name);
    let is_host = sources.iter().any(|(_, to)| *to == "main.rs");
    copy_folder(&repository().join("engine-api"), &root.join("engine-api"));
    for (from, to) in sources {
        std::fs::create_dir_all(root.join("variant/src")).unwrap();
        std::fs::copy(from, root.join("variant/src").join(to)).unwrap();
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
    let target = if is_host {
        ""
    } else {
        "[lib]\ncrate-type = [\"cdylib\"]\n"
    };
    let features = if is_host {
        ", features = [\"host\"]"
    } else {
        ""
    };
    let crate_manifest = format!(
        "[package]\nname = \"{name}\"\ndescription = \"-\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{target}\
         [dependencies]\ncontexture-engine-api = {{ workspace = true{features} }}\n\
         serde.workspace = true\nserde_json.workspace = true\n"
    );
    std::fs::write(root.join("variant/Cargo.toml"), crate_manifest).unwrap();
    let mut manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let start = manifest.find("members = [").unwrap();
    let end = start + manifest[start..].find(']').unwrap() + 1;
    manifest.replace_range(start..end, "members = [\"engine-api\", \"variant\"]");
    std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
    std::fs::copy(repository().join("Cargo.lock"), root.join("Cargo.lock")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "-p", name])
        .current_dir(&root)
        .env("CARGO_TARGET_DIR", target_dir())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let built = target_dir().join("debug");
    match is_host {
        true => built.join(format!("{name}{}", std::env::consts::EXE_SUFFIX)),
        false => built.join(library_name(name)),
    }
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
    let host = HostInfo::new("1.0.0");
    let plugin = Plugin::load(library, &host).unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().unwrap();
    let factory = plugin.create(&FactoryRequest::new("{}", folder.path(), &host));
    let window = WindowState::default();
    let services = Services::none();
    let request = OpenRequest::new("s", "{}", folder.path(), services, &window);
    factory.unwrap().open(&request).unwrap()
}

/// What a later version of the interface may add: a method, a service, fields, variants, a flag, and functions in
/// the tables of the ABI.
const LATER: [Edit<'static>; 23] = [
    (
        "engine.rs",
        "    fn end(&mut self) {}",
        "    fn end(&mut self) {}\n\n    /// New.\n    fn annotate(&mut self, note: &str) -> String {\n        \
         format!(\"not annotated: {note}\")\n    }",
    ),
    (
        "methods.rs",
        "        Status = \"status\",",
        "        Status = \"status\",\n        Annotate = \"annotate\",",
    ),
    (
        "methods.rs",
        "        NowMs = \"now_ms\",",
        "        NowMs = \"now_ms\",\n        Weather = \"weather\",",
    ),
    (
        "protocol/engine_side.rs",
        "        Method::Reset =>",
        "        Method::Annotate => write(&engine.annotate(&read::<String>(argument)?)),\n        Method::Reset =>",
    ),
    (
        "protocol/engine_side.rs",
        "    fn now_ms(&self) -> i64 {",
        "    fn weather(&self) -> Option<String> {\n        self.ask(ServiceMethod::Weather, &()).ok()\n    }\n\n    \
         fn now_ms(&self) -> i64 {",
    ),
    (
        "protocol/host_side.rs",
        "    fn end(&mut self) {",
        "    fn annotate(&mut self, note: &str) -> String {\n        \
         self.must(Method::Annotate, note, &[], || Plain.annotate(note))\n    }\n\n    fn end(&mut self) {",
    ),
    (
        "protocol/host_side.rs",
        "        ServiceMethod::NowMs =>",
        "        ServiceMethod::Weather => write(&services.weather()),\n        ServiceMethod::NowMs =>",
    ),
    (
        "services.rs",
        "pub trait HostServices: Send + Sync {",
        "pub trait HostServices: Send + Sync {\n    /// New.\n    fn weather(&self) -> Option<String> {\n        None\n    }\n",
    ),
    (
        "window.rs",
        "        pub model: String,",
        "        pub model: String,\n        /// New.\n        pub weather: String,",
    ),
    (
        "window.rs",
        "        No(String) = \"no\",",
        "        No(String) = \"no\",\n        /// New.\n        Perhaps(String) = \"perhaps\",",
    ),
    (
        "window.rs",
        "| Self::No(reason)",
        "| Self::No(reason) | Self::Perhaps(reason)",
    ),
    (
        "about.rs",
        "        pub selects: bool,",
        "        pub selects: bool,\n        /// New.\n        pub sings: bool,",
    ),
    (
        "compaction.rs",
        "        pub degraded: bool,",
        "        pub degraded: bool,\n        /// New.\n        pub mood: String,",
    ),
    (
        "compaction.rs",
        "        FloorTooHigh(Floor) = \"floor_too_high\",",
        "        FloorTooHigh(Floor) = \"floor_too_high\",\n        /// New.\n        Later(u64) = \"later\",",
    ),
    (
        "compaction.rs",
        "        Drop(Dropped) = \"drop\",",
        "        Drop(Dropped) = \"drop\",\n        /// New.\n        Sparkle(String) = \"sparkle\",",
    ),
    (
        "compaction.rs",
        "| Self::Unknown(_) => &[]",
        "| Self::Sparkle(_) | Self::Unknown(_) => &[]",
    ),
    (
        "model.rs",
        "    Refused,",
        "    Refused,\n    /// New.\n    OutOfInk,",
    ),
    (
        "error.rs",
        "    Cancelled,",
        "    Cancelled,\n    /// New.\n    #[error(\"out of {0} ink\")]\n    OutOfInk(String),",
    ),
    (
        "store.rs",
        "    Verify,",
        "    Verify,\n    /// New.\n    Paint {\n        /// New.\n        colour: String,\n    },",
    ),
    (
        "abi/tables.rs",
        "RSlice<'_, MessageView<'_>>) -> Answer,",
        "RSlice<'_, MessageView<'_>>) -> Answer,\n    pub hum: unsafe extern \"C\" fn(*mut ()) -> u32,",
    ),
    (
        "abi/export.rs",
        "    call,\n});",
        "    call,\n    hum,\n});\n\nunsafe extern \"C\" fn hum(_data: *mut ()) -> u32 {\n    7\n}",
    ),
    (
        "abi/tables.rs",
        "    pub is_cancelled: unsafe extern \"C\" fn(*const ()) -> bool,",
        "    pub is_cancelled: unsafe extern \"C\" fn(*const ()) -> bool,\n    pub whistle: unsafe extern \"C\" fn(*const ()) -> u32,",
    ),
    (
        "abi/load.rs",
        "    is_cancelled,\n});",
        "    is_cancelled,\n    whistle,\n});\n\nunsafe extern \"C\" fn whistle(_data: *const ()) -> u32 {\n    7\n}",
    ),
];

#[test]
fn a_plugin_of_a_later_version_works_and_what_is_new_in_it_has_a_meaning() {
    let source = repository().join("tests/fixtures/later-version/plugin.rs");
    let library = build_against("later", "1.1.0", &LATER, &[(&source, "lib.rs")]);
    let plugin = Plugin::load(&library, &HostInfo::new("1.0.0")).unwrap();
    assert_eq!(plugin.description().api, "1.1.0");

    let home = Home::new();
    let folder = home.plugin_dir("later");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plugin.yaml"), "name: later\nversion: 0.1.0\n").unwrap();
    std::fs::copy(&library, folder.join(library_name("later"))).unwrap();
    let document = conversation(&chat(30, 2_000).to_string());
    let ask = |says: &str| {
        home.configure(&format!(
            "context:\n  engine: later\n  on_failure: passthrough\n  engines:\n    later:\n      says: {says}\n"
        ));
        let (mut session, decision) = session(&engines(&home), &document, 20_000).unwrap();
        let report = compact(&mut session, &document, Compact::Force)
            .unwrap()
            .unwrap();
        (session, decision, report)
    };

    let (mut session, decision, report) = ask("nothing");
    assert!(decision.is_yes());
    assert_eq!(report.outcome, OutcomeKind::Compacted, "{}", report.reason);
    let status = session.status().unwrap();
    assert_eq!(status["supports"], serde_json::json!([true, false]));
    assert_eq!(
        (&status["weather"], &status["committed"]),
        (&serde_json::Value::Null, &1.into())
    );

    // A decision that the host does not know is a no, an outcome a deferral, an entry is refused by its name.
    let (_, decision, _) = ask("perhaps");
    assert!(
        !decision.is_yes() && decision.reason() == "perhaps",
        "{decision:?}"
    );
    let (_, _, report) = ask("later");
    assert_eq!(report.outcome, OutcomeKind::Deferred);
    assert!(report.reason.contains("`later`"), "{}", report.reason);
    let (_, _, report) = ask("sparkle");
    assert_eq!(report.outcome, OutcomeKind::Failed);
    assert!(
        report.reason.contains("the entry `sparkle`"),
        "{}",
        report.reason
    );
    let (_, _, report) = ask("failure");
    assert!(
        report.reason.contains("out_of_ink: \"black\""),
        "{}",
        report.reason
    );
}

#[test]
fn a_host_of_a_later_version_runs_a_plugin_of_today() {
    let source = repository().join("tests/fixtures/later-version/host.rs");
    let host = build_against("later-host", "1.1.0", &LATER, &[(&source, "main.rs")]);
    let output = Command::new(host)
        .arg(built_plugins().join(library_name("misbehaving")))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "misbehaving of 1.0.0, sings: false",
            "decides: Yes(\"half full\")",
            "annotates: not annotated: this",
            "is told: Ok(())",
            "manages: Err(Unsupported(\"keeping sessions\"))",
        ]
    );
}

#[test]
fn an_answer_that_makes_no_sense_is_shown() {
    let lie = [(
        "protocol/engine_side.rs",
        "Method::Reset => write(&engine.reset()?)",
        "Method::Reset => write(\"not what you expect\")",
    )];
    let source = repository().join("tests/plugins/misbehaving/src/lib.rs");
    let liar = build_against("liar", "1.0.2", &lie, &[(&source, "lib.rs")]);
    let error = open(&liar).reset().unwrap_err();
    assert!(
        matches!(&error, EngineError::Protocol(said) if said.contains("not what you expect")),
        "{error}"
    );
}
