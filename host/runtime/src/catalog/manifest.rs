//! `plugin.yaml`: a plugin's description of itself, read without running any of its code.
//!
//! The manifest says what a plugin is called, which library it has, which settings it accepts and
//! what it asks for. So the host can list plugins, check a configuration and refuse a plugin before
//! it loads the library. A manifest may pin the SHA-256 of the library, for all platforms or for
//! each one. Then a library that was replaced is not loaded.
//!
//! Instead of a library, a manifest may name a `command`, such as `[python3, engine.py]`. The engine
//! is then a program that speaks the engine protocol on its standard input and output. Everything
//! in the plugin's folder may be part of it, so all of these files are checked, and a pin is of all
//! of them.
//!
//! Read [`Manifest::read`] first. Unknown keys are errors, because a misspelt `sha256` would
//! silently protect nothing. [`PluginProblem`] lists everything that makes a plugin unusable.
//!
//! The folder around the manifest is left to the parent module, the bytes of the library to
//! `library`, and the files of a command to `program`.

use std::collections::BTreeMap;
use std::env::consts::{ARCH, DLL_PREFIX, DLL_SUFFIX, OS};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use contexture_base::trust::Untrusted;
use contexture_config::engine_name::{NAME_RULE, is_engine_name};
use contexture_config::{Document, DocumentError, Finding, Schema};
use contexture_engine_api::About;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::library::Library;
use super::program;

/// File name of the manifest in the plugin's folder. A folder without this file is not a plugin.
pub const MANIFEST_FILE: &str = "plugin.yaml";

/// First line of a manifest that was generated from a library. A build replaces a manifest that
/// begins with it. Any other manifest was edited by its author and is kept.
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
    /// The program that runs the engine, with its arguments, in place of a library: `[python3, engine.py]`.
    /// It is started in the plugin's folder, and one of the arguments is a file in it.
    command: Option<Vec<String>>,
    /// The library's SHA-256 in hex, or one for each platform (`linux-x86_64: …`).
    #[serde(default)]
    sha256: Value,
    /// What the engine asks for besides compactions, by the names of the flags of `About`.
    asks: Option<Vec<String>>,
    /// The settings under `context.engines.<name>`: a JSON schema for each key.
    #[serde(default)]
    settings: Map<String, Value>,
    /// The major version of the engine interface that the plugin is built for.
    #[schemars(range(min = 1, max = 1))]
    #[serde(default, rename = "api")]
    _api: Option<u64>,
}

/// A plugin's description of itself, as its `plugin.yaml` gives it. Names are checked, and settings
/// are parsed to a schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Path of the manifest itself. The library is in the same folder.
    pub path: PathBuf,
    /// Name of the engine, which is also the name of the folder and the key of its settings.
    pub name: String,
    /// Version of the plugin, as its author writes it. Any text is allowed.
    pub version: String,
    /// What the engine does, in a sentence, for lists of engines. May be empty.
    pub description: String,
    /// File name of the library on this platform. If the plugin has a [`command`](Self::command), it
    /// is the first of its parts that names a file, such as `engine.py`. The file is in the manifest's
    /// folder.
    pub library: String,
    /// The program that runs the engine and its arguments. `None` if the engine is a library.
    pub command: Option<Vec<String>>,
    /// The schema of the settings that the engine accepts. If the manifest declares none, it
    /// accepts any.
    pub settings: Schema,
    /// What the engine asks for besides compactions, by the names of the flags of
    /// [`About`](contexture_engine_api::About). `None` if the manifest does not say, and then
    /// nothing is refused.
    pub asks: Option<Vec<String>>,
    sha256: Pin,
}

/// The digests that a manifest pins, as lower-case hex: none, one for every platform, or one for
/// each.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pin {
    None,
    Any(String),
    ByPlatform(BTreeMap<String, String>),
}

/// Why a plugin cannot be used. Each message names the file and says how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginProblem {
    /// The manifest cannot be read, or is not valid YAML. The message gives the position if it is
    /// known.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The manifest has missing, unknown or wrong keys. All findings are listed.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Invalid(Vec<Finding>),
    /// Another user can write a file of the plugin, or a file cannot be read or is not a regular
    /// file.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// Something else does not fit together: the folder, the manifest, the library or its digest.
    #[error("{0}")]
    Mismatch(String),
}

impl PluginProblem {
    /// A link leads out of the folder that contains all plugins. What it leads to was not checked and
    /// may be replaced by others.
    pub(super) fn leads_outside(path: &Path, folder: &Path, target: &Path) -> Self {
        Self::Mismatch(format!(
            "{} is a link to {}, outside {}: copy the target into the folder, or add the target's folder to \
             `plugins.dirs`",
            path.display(),
            target.display(),
            folder.display()
        ))
    }
}

impl Manifest {
    /// Reads the manifest of the plugin in `folder`, whose folder has this name. The library is not
    /// read and may be missing.
    ///
    /// # Errors
    /// Returns [`PluginProblem`] for everything that makes the plugin unusable, except problems
    /// with the library.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self, PluginProblem> {
        if !is_engine_name(name) {
            return Err(PluginProblem::Mismatch(format!(
                "the folder `{name}` is not named like an engine: rename it to {NAME_RULE}"
            )));
        }
        let path = folder.join(MANIFEST_FILE);
        let mut document = Document::open(&path)?;
        let findings = document.check(&SCHEMA);
        // An unknown key is an error and not a warning, because it may be a misspelt `sha256`.
        if !findings.is_empty() {
            return Err(PluginProblem::Invalid(findings));
        }
        let raw: Raw = serde_json::from_value(document.value)
            .map_err(|error| DocumentError::of_text(&path, None, &error.to_string()))?;
        let wrong = |what: &str| PluginProblem::Mismatch(format!("{} {what}", path.display()));
        if raw.name != name {
            return Err(wrong(&format!(
                "says `name: {}`, but its folder is `{name}`: make the two the same",
                raw.name
            )));
        }
        let library = match (raw.library, &raw.command) {
            (Some(_), Some(_)) => {
                return Err(wrong("has a `library` and a `command`: remove one of them"));
            }
            (None, Some(command)) => match program::file_of(folder, command) {
                Some(file) => file.to_owned(),
                None => {
                    return Err(wrong(&format!(
                        "says `command: [{}]`, which names no file beside it: put the engine's program or script \
                         there",
                        command.join(", ")
                    )));
                }
            },
            (library, None) => {
                let stem = library.unwrap_or_else(|| name.replace('-', "_"));
                if !is_library_stem(&stem) {
                    return Err(wrong(&format!(
                        "says `library: {stem}`, which must be a file name beside it, of letters, digits, `_`, `-` \
                         and `.`, without the platform's `lib` and `.so`, `.dylib` or `.dll` ending"
                    )));
                }
                format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}")
            }
        };
        let sha256 = Pin::read(&raw.sha256).ok_or_else(|| {
            wrong(
                "pins a sha256 that is not 64 hex digits: write what `sha256sum` prints, or one for each platform \
                 (`linux-x86_64: …`)",
            )
        })?;
        let settings = match raw.settings.is_empty() {
            true => Schema::default(),
            false => Schema::of_properties(&raw.settings).map_err(|cause| {
                PluginProblem::Mismatch(format!("{}: settings: {cause}", path.display()))
            })?,
        };
        Ok(Self {
            path,
            name: raw.name,
            version: raw.version,
            description: raw.description,
            library,
            command: raw.command,
            settings,
            asks: raw.asks,
            sha256,
        })
    }

    /// Checks a library as it is checked before it is loaded, or all files of a command as they are
    /// checked before it is started. Use it to report problems without running anything.
    ///
    /// # Errors
    /// Returns [`PluginProblem`] if another user can write the library or a file of the command, it
    /// cannot be read, its digest differs from the pinned one, or digests are pinned but none for this
    /// platform.
    pub fn verify(&self, library: &Path) -> Result<(), PluginProblem> {
        match self.command {
            None => self.read_library(library).map(drop),
            Some(_) => {
                let files = self.files()?;
                let digest = || program::digest(self.folder(), &files);
                self.check_pin(library, digest)
            }
        }
    }

    /// Returns what the manifest says that the engine asks for, but that no engine can: a misspelling,
    /// or a flag of a later version of the interface. It grants nothing.
    pub fn unknown_asks(&self) -> Vec<&str> {
        // Cannot fail: `About` always has a JSON form.
        let about = serde_json::to_value(About::default()).unwrap_or_default();
        let asks = self.asks.iter().flatten().map(String::as_str);
        asks.filter(|ask| !about[*ask].is_boolean()).collect()
    }

    /// Returns the SHA-256 of a library in lower-case hex, whether or not the manifest pins one. For a
    /// command it is that of all files in the plugin's folder except the manifest.
    ///
    /// # Errors
    /// Returns [`PluginProblem`] if another user can write the library or one of the files, or it
    /// cannot be read.
    pub fn digest(&self, library: &Path) -> Result<String, PluginProblem> {
        match self.command {
            None => Library::read(library).map(|read| read.sha256()),
            Some(_) => program::digest(self.folder(), &self.files()?),
        }
    }

    /// Returns the files that the plugin consists of besides the manifest, relative to its folder:
    /// the library, or everything in the folder if the engine is a command.
    ///
    /// # Errors
    /// Returns [`PluginProblem`] if another user can write a file or folder of a command, a link in it
    /// leads to a folder outside, or it cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>, PluginProblem> {
        match self.command {
            None => Ok(vec![PathBuf::from(&self.library)]),
            Some(_) => program::files(self.folder()),
        }
    }

    /// Returns the program of the plugin's command as a path, and its arguments. `None` if the engine
    /// is a library.
    ///
    /// # Errors
    /// Returns [`PluginProblem`] if the program is not on the PATH, or if it is given as a path and
    /// another user can write it or it is not executable.
    pub fn program(&self) -> Result<Option<(PathBuf, &[String])>, PluginProblem> {
        let command = self.command.as_ref();
        let Some((program, arguments)) = command.and_then(|command| command.split_first()) else {
            return Ok(None);
        };
        let missing = || {
            PluginProblem::Mismatch(format!(
                "`{program}`, which {} names in `command`, is not on the PATH: install it, or give its absolute path",
                self.path.display()
            ))
        };
        let found = program::find(self.folder(), program)?.ok_or_else(missing)?;
        Ok(Some((found, arguments)))
    }

    /// Returns the plugin's folder.
    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Returns the digest that is pinned for this platform, in lower-case hex. `None` if none is.
    pub fn pinned(&self) -> Option<&str> {
        match &self.sha256 {
            Pin::None => None,
            Pin::Any(digest) => Some(digest),
            Pin::ByPlatform(digests) => digests.get(&format!("{OS}-{ARCH}")).map(String::as_str),
        }
    }

    /// Returns the keys under which the digest for this platform is pinned. If the manifest pins each
    /// platform, the platform is the last of them.
    pub fn pin_keys(&self) -> Vec<String> {
        let mut keys = vec!["sha256".to_owned()];
        if let Pin::ByPlatform(_) = self.sha256 {
            keys.push(format!("{OS}-{ARCH}"));
        }
        keys
    }

    /// Reads and checks a library, see [`verify`](Self::verify). Load the returned bytes, not the
    /// file: the file may be replaced after the check.
    pub(crate) fn read_library(&self, library: &Path) -> Result<Library, PluginProblem> {
        let read = Library::read(library)?;
        self.check_pin(library, || Ok(read.sha256()))?;
        Ok(read)
    }

    /// Compares a digest with the pinned one. It is calculated only if one is pinned.
    fn check_pin(
        &self,
        library: &Path,
        digest: impl FnOnce() -> Result<String, PluginProblem>,
    ) -> Result<(), PluginProblem> {
        let platform = format!("{OS}-{ARCH}");
        let pinned = match &self.sha256 {
            Pin::None => return Ok(()),
            Pin::Any(digest) => digest,
            Pin::ByPlatform(digests) => {
                let pinned = digests.get(&platform);
                pinned.ok_or_else(|| {
                    PluginProblem::Mismatch(format!(
                        "{} pins only the libraries of other platforms: add `{platform}` under `sha256`, or remove \
                         `sha256`",
                        self.path.display()
                    ))
                })?
            }
        };
        let actual = digest()?;
        match actual == *pinned {
            true => Ok(()),
            false => Err(PluginProblem::Mismatch(format!(
                "{} has the sha256 {actual}, but the manifest pins {pinned}: it was replaced or rebuilt. Pin the new \
                 digest if you trust it",
                library.display()
            ))),
        }
    }
}

impl Pin {
    /// Parses the value of `sha256`: nothing, one digest, or one for each platform. `None` if a
    /// digest is malformed.
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

/// Returns a digest in lower-case hex, or `None` if the value is not a text of 64 hex digits.
fn hex_digest(value: &Value) -> Option<String> {
    let digest = value.as_str()?;
    let is_hex = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| digest.to_ascii_lowercase())
}

/// Whether the name is a plain file name on every platform, of at most 128 bytes. It must not leave
/// the manifest's folder, be hidden, or end in a library extension.
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

/// Returns what an engine asks for besides compactions: the names of the flags that it sets in
/// [`About`].
pub(crate) fn asks_of(about: &About) -> Vec<String> {
    // Cannot fail: `About` always has a JSON form.
    let about = serde_json::to_value(about).unwrap_or_default();
    let flags = about.as_object().into_iter().flatten();
    let set = flags.filter(|(_, value)| **value == Value::Bool(true));
    set.map(|(flag, _)| flag.clone()).collect()
}

#[cfg(test)]
mod tests;
