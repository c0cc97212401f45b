//! `plugin.yaml`: a plugin's description of itself, read without running any of its code.

use std::collections::BTreeMap;
use std::env::consts::{ARCH, DLL_PREFIX, DLL_SUFFIX, OS};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use contexture_base::trust::Untrusted;
use contexture_config::engine_name::{NAME_RULE, is_engine_name};
use contexture_config::{Document, DocumentError, Finding, Schema, SchemaError, with_text};
use contexture_engine_api::About;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::library::Library;

/// The manifest's file name, in the plugin's folder.
pub const MANIFEST_FILE: &str = "plugin.yaml";

/// How a manifest begins that was made from a library, and is made anew when that is built.
pub const GENERATED: &str =
    "# Written by `contexture plugins build` from the library; change the engine instead.\n";

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::of::<Raw>);

/// The keys of `plugin.yaml`.
#[derive(Debug, Deserialize, JsonSchema)]
struct Raw {
    /// the engine's name, the same as its folder's
    name: String,
    /// the plugin's own version, such as "0.1.0"
    version: String,
    /// What the engine does, in a sentence.
    #[serde(default)]
    description: String,
    /// The library's file name without the platform's `lib` and `.so`, `.dylib` or `.dll`; by default
    /// the engine's name with `_` for `-`.
    library: Option<String>,
    /// The library's SHA-256 in hex, or one for each platform (`linux-x86_64: …`).
    #[serde(default)]
    sha256: Value,
    /// What the engine asks for beside compactions, by the names of the flags of `About`; a library that asks for more is
    /// not used.
    asks: Option<Vec<String>>,
    /// The settings under `context.engines.<name>`: a JSON schema for each key.
    #[serde(default)]
    settings: Map<String, Value>,
    /// The major version of the engine interface that the plugin is built for.
    #[schemars(range(min = 1, max = 1))]
    #[serde(default, rename = "api")]
    _api: Option<u64>,
}

/// A plugin's description of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The manifest's file.
    pub path: PathBuf,
    /// The engine's name, which is also the folder's.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// What the engine does; may be empty.
    pub description: String,
    /// The library's file name on this platform; the file is in the manifest's folder.
    pub library: String,
    /// The settings that the engine accepts; any, if the manifest declares none.
    pub settings: Schema,
    /// What the engine asks for beside compactions, by the names of the flags of
    /// [`About`](contexture_engine_api::About); none where the manifest does not say.
    pub asks: Option<Vec<String>>,
    sha256: Pin,
}

/// The digests that a manifest pins, as lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pin {
    None,
    Any(String),
    ByPlatform(BTreeMap<String, String>),
}

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginProblem {
    /// Its folder's name is not a valid engine name.
    #[error(
        "the folder `{folder}` is not named like an engine: rename it to {}",
        NAME_RULE
    )]
    BadFolderName {
        /// The folder's name.
        folder: String,
    },
    /// Its manifest cannot be read as YAML.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Its manifest breaks the schema.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Finding>),
    /// Its manifest names another engine than its folder.
    #[error(
        "{} says `name: {name}`, but its folder is `{folder}`: make the two the same",
        path.display()
    )]
    NameMismatch {
        /// The manifest.
        path: PathBuf,
        /// The name in it.
        name: String,
        /// The folder's name.
        folder: String,
    },
    /// The library's name is a path, or carries the platform's prefix or extension.
    #[error(
        "{} says `library: {library}`, which must be a file name beside it, of letters, digits, `_`, `-` and \
         `.`, without the platform's `lib` and `.so`, `.dylib` or `.dll` ending",
        path.display()
    )]
    BadLibraryName {
        /// The manifest.
        path: PathBuf,
        /// The name in it.
        library: String,
    },
    /// The settings it declares are not a valid schema.
    #[error("{}: settings: {cause}", path.display())]
    BadSettings {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with them.
        cause: SchemaError,
    },
    /// A pinned digest is malformed.
    #[error(
        "{} pins a sha256 that is not 64 hex digits: write what `sha256sum` prints, or one for each \
         platform (`linux-x86_64: …`)",
        path.display()
    )]
    BadSha256 {
        /// The manifest.
        path: PathBuf,
    },
    /// It pins digests, but none for this platform.
    #[error(
        "{} pins the libraries of other platforms alone: add `{platform}` under `sha256`, or remove \
         `sha256`",
        path.display()
    )]
    Sha256NotPinned {
        /// The manifest.
        path: PathBuf,
        /// This platform.
        platform: String,
    },
    /// The library differs from the pinned one.
    #[error(
        "{} has the sha256 {actual}, but the manifest pins {pinned}: it was replaced or rebuilt. Pin the new \
         digest if you trust it",
        library.display()
    )]
    Sha256Mismatch {
        /// The library.
        library: PathBuf,
        /// The pinned digest.
        pinned: String,
        /// The library's digest.
        actual: String,
    },
    /// Another user may have written it, it is not a regular file, or it cannot be read.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// A link leads out of the plugin folder.
    #[error(
        "{} is a link that leads out of {}, to {}: copy what it leads to there, or name its folder in `plugins.dirs`",
        path.display(), folder.display(), target.display()
    )]
    LeadsOutside {
        /// The link.
        path: PathBuf,
        /// The folder of plugins.
        folder: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// The library's path is not a file.
    #[error("{} is not a file: build the plugin and put its library there", library.display())]
    NotAFile {
        /// The library's path.
        library: PathBuf,
    },
}

impl Manifest {
    /// Reads the manifest of the plugin in `folder`.
    ///
    /// # Errors
    /// Everything that makes the plugin unusable, except problems with the library itself.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, PluginProblem> {
        if !is_engine_name(name) {
            return Err(PluginProblem::BadFolderName {
                folder: name.into(),
            });
        }
        let path = folder.join(MANIFEST_FILE);
        let mut document = Document::open(&path)?;
        let findings = document.check(&SCHEMA);
        // An unknown key may be a pin that is misspelt.
        if !findings.is_empty() {
            return Err(PluginProblem::Invalid(findings));
        }
        let raw: Raw =
            serde_json::from_value(document.value).map_err(|error| DocumentError::Syntax {
                file: path.clone(),
                location: None,
                message: error.to_string(),
            })?;
        if raw.name != name {
            return Err(PluginProblem::NameMismatch {
                path,
                name: raw.name,
                folder: name.into(),
            });
        }
        let stem = raw.library.unwrap_or_else(|| name.replace('-', "_"));
        if !is_library_stem(&stem) {
            return Err(PluginProblem::BadLibraryName {
                path,
                library: stem,
            });
        }
        let sha256 = Pin::read(&raw.sha256)
            .ok_or_else(|| PluginProblem::BadSha256 { path: path.clone() })?;
        let settings = match raw.settings.is_empty() {
            true => Schema::default(),
            false => Schema::of_properties(&raw.settings).map_err(|cause| {
                let path = path.clone();
                PluginProblem::BadSettings { path, cause }
            })?,
        };
        Ok(Self {
            path,
            name: raw.name,
            version: raw.version,
            description: raw.description,
            library: format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}"),
            settings,
            asks: raw.asks,
            sha256,
        })
    }

    /// Checks `library` as it is checked before it is loaded.
    ///
    /// # Errors
    /// Somebody else may have written it; it differs from the pinned digest, is not pinned for this platform,
    /// or cannot be read.
    pub fn verify(&self, library: &Path) -> Result<(), PluginProblem> {
        self.read_library(library).map(drop)
    }

    /// The SHA-256 of `library` in lower-case hex, pinned or not.
    ///
    /// # Errors
    /// Somebody else may have written it, or it cannot be read.
    pub fn digest(&self, library: &Path) -> Result<String, PluginProblem> {
        Library::read(library).map(|read| read.sha256())
    }

    /// The digest that is pinned for this platform, in lower-case hex.
    pub fn pinned(&self) -> Option<&str> {
        match &self.sha256 {
            Pin::None => None,
            Pin::Any(digest) => Some(digest),
            Pin::ByPlatform(digests) => digests.get(&format!("{OS}-{ARCH}")).map(String::as_str),
        }
    }

    /// The text of this manifest with this digest pinned for this platform, and all else as it was; none where it cannot
    /// be put in.
    pub fn with_pin(&self, text: &str, digest: &str) -> Option<String> {
        // It is somebody's own from now on: what is built anew does not take the pin away.
        let text = text.strip_prefix(GENERATED).unwrap_or(text);
        match &self.sha256 {
            Pin::ByPlatform(_) => with_text(text, &["sha256", &format!("{OS}-{ARCH}")], digest),
            Pin::None | Pin::Any(_) => with_text(text, &["sha256"], digest),
        }
    }

    /// Reads `library` and checks it, see [`verify`](Self::verify). What is given back is what to load, for the
    /// file may change.
    pub(crate) fn read_library(&self, library: &Path) -> Result<Library, PluginProblem> {
        let read = Library::read(library)?;
        let platform = format!("{OS}-{ARCH}");
        let pinned = match &self.sha256 {
            Pin::None => return Ok(read),
            Pin::Any(digest) => digest,
            Pin::ByPlatform(digests) => {
                digests
                    .get(&platform)
                    .ok_or_else(|| PluginProblem::Sha256NotPinned {
                        path: self.path.clone(),
                        platform,
                    })?
            }
        };
        let actual = read.sha256();
        if actual == *pinned {
            Ok(read)
        } else {
            Err(PluginProblem::Sha256Mismatch {
                library: library.into(),
                pinned: pinned.clone(),
                actual,
            })
        }
    }
}

impl Pin {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(Self::None),
            Value::Object(digests) => digests
                .iter()
                .map(|(platform, digest)| Some((platform.clone(), hex_digest(digest)?)))
                .collect::<Option<_>>()
                .map(Self::ByPlatform),
            digest => hex_digest(digest).map(Self::Any),
        }
    }
}

fn hex_digest(value: &Value) -> Option<String> {
    let digest = value.as_str()?;
    let is_hex = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| digest.to_ascii_lowercase())
}

/// Whether the name is one file in the manifest's own folder, on every platform.
fn is_library_stem(stem: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !stem.is_empty()
        && stem.len() <= 128
        && !stem.starts_with('.')
        && stem.bytes().all(plain)
        && ![".so", ".dylib", ".dll"]
            .iter()
            .any(|ending| stem.ends_with(ending))
}

/// What an engine asks for beside compactions: the names of the flags that it sets.
pub(crate) fn asks_of(about: &About) -> Vec<String> {
    // What it says of itself always has a JSON form.
    let about = serde_json::to_value(about).unwrap_or_default();
    let flags = about.as_object().into_iter().flatten();
    let set = flags.filter(|(_, value)| **value == Value::Bool(true));
    set.map(|(flag, _)| flag.clone()).collect()
}

#[cfg(test)]
mod tests {
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
        let reference = include_str!("../../../../docs/engine-reference.md");
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
            .chain(crate::HOST.features.clone());
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
        assert!(matches!(
            problem("X y", &text("")),
            PluginProblem::BadFolderName { .. }
        ));
        assert!(matches!(
            problem("y", &text("")),
            PluginProblem::NameMismatch { .. }
        ));
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
            "../evil",
            "/usr/lib/evil",
            "a\\\\b",
            "''",
            "libx.so",
            ".hidden",
            "a b",
        ] {
            let text = text(&format!("library: {library}"));
            assert!(
                matches!(problem("x", &text), PluginProblem::BadLibraryName { .. }),
                "{library}"
            );
        }
        for digest in ["abc", "1", "{linux: 5}", "[]"] {
            let text = text(&format!("sha256: {digest}"));
            assert!(
                matches!(problem("x", &text), PluginProblem::BadSha256 { .. }),
                "{digest}"
            );
        }
        let bad = problem("x", &text("settings: {n: {type: integer, minumum: 1}}"));
        assert!(matches!(bad, PluginProblem::BadSettings { .. }));
        assert!(bad.to_string().contains("did you mean `minimum`?"), "{bad}");
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
        assert!(matches!(
            verify(&other),
            Err(PluginProblem::Sha256Mismatch { .. })
        ));
        assert!(matches!(
            verify(&format!("{{amiga-m68k: {DIGEST_OF_ABC}}}")),
            Err(PluginProblem::Sha256NotPinned { .. })
        ));
        let (dir, manifest) = read(
            "x",
            &format!("name: x\nversion: \"1\"\nsha256: {DIGEST_OF_ABC}\n"),
        );
        assert!(matches!(
            manifest.unwrap().verify(&dir.path().join("gone")),
            Err(PluginProblem::Untrusted(Untrusted::Unreadable { .. }))
        ));
    }
}
