//! `contexture plugins new`: writes a crate to begin an engine with.
//!
//! [`run`] collects the files of the crate and writes them as one folder. There are two templates:
//! [`small`] is the example engine `keep-tail` under another name, and [`lossless`] is a copy of
//! the lossless engine's sources. Both build unchanged, pass the conformance tests and can be
//! loaded.
//!
//! A crate needs the interface and the test kit as dependencies. [`ApiSource`] decides where these
//! come from: a checkout of the repository, copies inside the crate, or the registry. The copies
//! are packed into this program by the build script, so that a crate can be created without a
//! network. A program that was installed from the registry has no copies and names the registry's
//! version.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use contexture::catalog::{BUILT_IN, NAME_RULE, is_engine_name};
use contexture_engine_api::API_VERSION;

use super::install::{is_bundled, takes_place};
use super::spelled_out::spelled_out;
use crate::error::CliError;
use crate::{OK, output, terminal};

/// The sources that an engine is written and tested with, as pairs of path and text. The build
/// script packs them. Empty if this program was built outside a checkout.
static CARRIED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/carried.rs"));

/// Names that a crate which depends on the interface and its test kit cannot have.
///
/// These are Rust's keywords and reserved words
/// (<https://doc.rust-lang.org/reference/keywords.html>), the crates that ship with Rust, the
/// folders that cargo makes
/// (<https://doc.rust-lang.org/cargo/reference/manifest.html#the-name-field>), the device names of
/// Windows, and the new crate's own dependencies.
#[rustfmt::skip]
const NO_CRATE_NAMES: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    "alloc", "core", "proc_macro", "proc-macro", "std", "test",
    "build", "deps", "examples", "incremental",
    "aux", "con", "nul", "prn", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
    "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
    "contexture-contract", "contexture-engine-api", "contexture-testkit", "serde", "serde_json",
];

/// The folder of the new crate that has the copies of the interface and the test kit.
const COPIES: &str = "contexture";

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// A copy of the example engine's source, because the package of this crate cannot include files
/// from outside its folder. A test in `reference.rs` keeps it equal.
const KEEP_TAIL: &str = include_str!("template/keep_tail.rs");

/// The engine to begin with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum From {
    /// A small engine in one file: keeps the head and the tail, and puts an outline in place of the
    /// middle
    #[default]
    KeepTail,
    /// The lossless engine, to be changed: a store, summaries over it, search
    Lcm,
}

/// Where the new crate takes the interface and the test kit from.
enum ApiSource {
    Sources(PathBuf),
    Copies,
    Version(String),
}

impl ApiSource {
    fn chosen(asked: Option<&str>) -> Result<Self, CliError> {
        let Some(asked) = asked else {
            // The sources that this program was built from are the best match, if they still exist.
            let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
            return Ok(match built_from.filter(|folder| lacks(folder).is_none()) {
                Some(folder) => Self::Sources(folder.to_owned()),
                None if CARRIED.is_empty() => Self::Version(API_VERSION.to_owned()),
                None => Self::Copies,
            });
        };
        let is_version = asked.starts_with(|first: char| first.is_ascii_digit())
            && asked.chars().all(|one| one.is_ascii_digit() || one == '.');
        if is_version && !Path::new(asked).exists() {
            // A version that this program carries needs no registry.
            let is_carried = format!("{API_VERSION}.").starts_with(&format!("{asked}."));
            return Ok(match is_carried && !CARRIED.is_empty() {
                true => Self::Copies,
                false => Self::Version(asked.to_owned()),
            });
        }
        let wrong = |what: String| {
            CliError::usage(
                what,
                format!(
                    "--api takes the folder of a checkout of {REPOSITORY}, or a version of the interface: --api {API_VERSION}"
                ),
            )
        };
        let folder = std::fs::canonicalize(asked)
            .map_err(|error| wrong(format!("there are no sources in {asked}: {error}")))?;
        match lacks(&folder) {
            Some(file) => Err(wrong(format!(
                "{asked} is not a checkout of Contexture: it has no {file}"
            ))),
            None => Ok(Self::Sources(folder)),
        }
    }

    /// Returns the value of a dependency in a manifest, for the package in this folder of the
    /// repository.
    fn dependency(&self, folder: &str, version: &str) -> String {
        match self {
            Self::Sources(sources) => format!("{{ path = {:?} }}", sources.join(folder)),
            Self::Copies => format!("{{ path = \"{COPIES}/{folder}\" }}"),
            Self::Version(_) => format!("{version:?}"),
        }
    }

    /// Returns the dependency sections of an engine's manifest.
    fn dependencies(&self) -> String {
        let version = match self {
            Self::Version(version) => version,
            _ => API_VERSION,
        };
        let api = self.dependency("engine-api", version);
        let kit = self.dependency("testkit", env!("CARGO_PKG_VERSION"));
        format!(
            "[dependencies]\ncontexture-engine-api = {api}\nschemars = \"1\"\nserde = {{ version = \"1\", features = [\"derive\"] }}\n\n\
             [dev-dependencies]\ncontexture-testkit = {kit}\n"
        )
    }

    /// Returns the paragraph of the README that says where the interface comes from and what that
    /// means for others who build the crate.
    fn words(&self) -> String {
        match self {
            Self::Sources(sources) => format!(
                "`Cargo.toml`\n\
                 names the sources of Contexture in `{}`; before others build the crate, name a version, or \
                 create it with\n\
                 `contexture plugins new --api {API_VERSION}`, which includes copies.",
                sources.display()
            ),
            Self::Copies => format!(
                "`{COPIES}/` holds\nunchanged copies of the interface ({API_VERSION}) and of the test kit."
            ),
            Self::Version(version) => {
                format!("It is written\nfor version {version} of the interface.")
            }
        }
    }

    /// Returns the step of a CI run that puts the sources where the manifest expects them. Empty if
    /// the crate does not need any.
    fn ci_step(&self) -> String {
        match self {
            Self::Sources(sources) => {
                let folder = sources.display();
                format!(
                    "      # Cargo.toml names the sources in this folder.\n      \
                     - run: sudo install -d -o \"$USER\" '{folder}' && git clone --depth 1 {REPOSITORY} '{folder}'\n"
                )
            }
            _ => String::new(),
        }
    }
}

/// Returns the first file that a checkout of the repository has and this folder does not. None if
/// the folder is a checkout.
fn lacks(folder: &Path) -> Option<&'static str> {
    let files = ["engine-api/Cargo.toml", "testkit/Cargo.toml", "Cargo.toml"];
    files.into_iter().find(|file| !folder.join(file).is_file())
}

/// Writes the crate `./NAME`, as a whole or not at all, and prints the next steps. Fails if the
/// name cannot be that of an engine and a crate, or if the folder exists.
pub(crate) fn run(name: &str, from: From, api: Option<&str>) -> Result<u8, CliError> {
    if !is_engine_name(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err(CliError::usage(
            format!("`{name}` cannot be the name of an engine and its crate"),
            format!("choose {NAME_RULE}; a crate's name begins with a letter"),
        ));
    }
    if name == BUILT_IN || NO_CRATE_NAMES.contains(&name) {
        return Err(CliError::usage(
            format!(
                "`{name}` is taken: it is the name of the built-in engine, a Rust keyword, or a name that the \
                 crate needs"
            ),
            format!("choose another name, such as my-{name}"),
        ));
    }
    let api = ApiSource::chosen(api)?;
    let mut files = match from {
        From::KeepTail => small(name, &api)?,
        From::Lcm => lossless(name, &api)?,
    };
    let fill = |template: &str| {
        let text = template
            .replace("{name}", name)
            .replace("{repository}", REPOSITORY);
        text.replace("{api}", &api.words())
            .replace("{sources}", &api.ci_step())
    };
    let ignored = "/target\n/*.so\n/*.dylib\n/*.dll\n";
    files.extend([
        (
            "README.md".to_owned(),
            fill(include_str!("template/README.md")),
        ),
        (
            ".github/workflows/ci.yml".to_owned(),
            fill(include_str!("template/ci.yml")),
        ),
        (".gitignore".to_owned(), ignored.to_owned()),
    ]);
    if let ApiSource::Copies = api {
        let copies = CARRIED.iter();
        files.extend(copies.map(|(path, text)| (format!("{COPIES}/{path}"), (*text).to_owned())));
    }
    write(Path::new(name), &files)?;
    if let ApiSource::Version(version) = &api
        && version != API_VERSION
    {
        terminal::note(&format!(
            "the crate needs version {version} of the interface from crates.io, and this program has {API_VERSION}"
        ));
    }
    if is_bundled(name) {
        terminal::note(&takes_place(name));
    }
    output::print(&format!(
        "wrote {name}: an engine that builds without changes\n\n  cd {name}\n  cargo test\n  contexture plugins \
         build .\n  contexture plugins check .\n  contexture plugins install .\n"
    ))?;
    Ok(OK)
}

/// Writes the files into a temporary folder and renames it, so that no incomplete crate is left
/// behind if something fails.
fn write(folder: &Path, files: &[(String, String)]) -> Result<(), CliError> {
    let failed = CliError::write(folder);
    if folder.exists() {
        return Err(CliError::usage(
            format!("{} already exists", folder.display()),
            "choose another name, or go to another folder; nothing was changed",
        ));
    }
    let beside = tempfile::Builder::new()
        .prefix(".contexture-")
        .tempdir_in(".")
        .map_err(failed)?;
    for (path, text) in files {
        let path = beside.path().join(path);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text))
            .map_err(failed)?;
    }
    std::fs::rename(beside.path(), folder).map_err(failed)
}

fn manifest(name: &str, description: &str, dependencies: &str) -> String {
    format!(
        "[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\nrust-version = \"{}\"\n\
         # Shown where engines are listed.\ndescription = {description:?}\npublish = false\n\n\
         # A workspace of its own, wherever it lies.\n[workspace]\nexclude = [\"{COPIES}\"]\n\n\
         [lib]\ncrate-type = [\"cdylib\", \"lib\"]\n\n\
         # Off in a program that links the engine in: a program has room for one plugin's entry points.\n\
         [features]\ndefault = [\"plugin\"]\nplugin = []\n\n{dependencies}",
        env!("CARGO_PKG_RUST_VERSION")
    )
}

type Files = Vec<(String, String)>;

/// Returns the files of the engine `keep-tail` under another name. The digest, which is a crate of
/// the repository, is replaced by an outline that needs no dependency.
///
/// The replacements are made on the source text, so they must match the sources of `keep-tail`
/// exactly.
fn small(name: &str, api: &ApiSource) -> Result<Files, CliError> {
    let engine: String = name
        .split(['-', '_'])
        .map(|word| word[..word.len().min(1)].to_uppercase() + &word[word.len().min(1)..])
        .collect();
    let text = KEEP_TAIL
        .replace("use contexture_digest::{Budget, Digest};\n", "")
        .replace(
            "Digest::of(middle, None).render(Budget::chars(12_000))",
            "outline(middle)",
        )
        .replace(
            "a\n//! digest in place of the middle",
            "an\n//! outline in place of the middle",
        )
        .replace("KeepTail", &engine)
        .replace("keep-tail", name);
    let outline = include_str!("template/outline.rs").trim_start();
    // The outline goes in front of the macros that register and export the engine, which end the
    // template.
    let ends = text
        .find("// For a program that links")
        .unwrap_or(text.len());
    let library = format!("{}{outline}\n{}", &text[..ends], &text[ends..]);
    let description = "Keeps the head and the tail, and puts an outline in place of the middle";
    Ok(vec![
        (
            "Cargo.toml".to_owned(),
            manifest(name, description, &api.dependencies()),
        ),
        ("src/lib.rs".to_owned(), library),
    ])
}

/// Returns the files of the lossless engine under another name. Fails if there is no checkout,
/// because this program does not carry its sources.
fn lossless(name: &str, api: &ApiSource) -> Result<Files, CliError> {
    let ApiSource::Sources(sources) = api else {
        return Err(CliError::usage(
            "the sources of `lcm` are not available: this program carries only those of the interface and the \
             test kit",
            format!("get a checkout of {REPOSITORY}, and name its folder: --from lcm --api PATH"),
        ));
    };
    let read = |path: &Path| std::fs::read_to_string(path).map_err(CliError::read(path));
    let package = sources.join("engines/lcm");
    let place = |folder: &str| sources.join(folder).display().to_string();
    let whole = read(&package.join("Cargo.toml"))?;
    let whole = spelled_out(&whole, &read(&sources.join("Cargo.toml"))?, &place);
    // The package section is written anew for the new name. Only the dependencies are taken over.
    let dependencies = whole.find("[dependencies]").map_or("", |at| &whole[at..]);
    let description = "The lossless engine, changed";
    let mut files = vec![(
        "Cargo.toml".to_owned(),
        manifest(name, description, dependencies),
    )];
    let mut folders = vec![package.join("src")];
    while let Some(folder) = folders.pop() {
        let unreadable = CliError::read(&folder);
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path
                .strip_prefix(&package)
                .unwrap_or(&path)
                .display()
                .to_string();
            let mut text = read(&path)?;
            if inside == "src/lib.rs" {
                text = text.replace("NAME: &str = \"lcm\"", &format!("NAME: &str = {name:?}"));
                text.push_str(&format!(
                    "\ncontexture_engine_api::register_engine!({name:?}, factory Lcm);\n\
                     #[cfg(feature = \"plugin\")]\ncontexture_engine_api::export_engine!({name:?}, factory Lcm);\n\n\
                     #[cfg(all(test, feature = \"plugin\"))]\ncontexture_testkit::conforms!(CONTEXTURE_ENGINE);\n"
                ));
            }
            files.push((inside, text));
        }
    }
    Ok(files)
}
