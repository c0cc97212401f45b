//! Finds `config.yaml`, reads it and turns it into a [`Config`].
//!
//! [`Config::load`] is the function to start with. A file that the caller names must exist. Without
//! one, the file in Contexture's home directory is read if there is one, and otherwise everything
//! has its default.
//!
//! A file is checked in three steps: against the schema of [`Config`], then the compressor's own
//! settings against theirs, and finally for values of different sections that contradict each
//! other. Warnings end up in [`Loaded::warnings`]. Any error means that there is no configuration
//! at all, because an agent must not run with other settings than its user wrote. The settings of
//! plugins are checked later, by [`Loaded::engine_settings`], since only a plugin knows its schema.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use contexture_base::trust::Untrusted;
use contexture_base::{Env, path_of, user_home};
use contexture_engine_api::grouped;
use contexture_formats::tokens::known_window;
use serde_json::Value;

use super::check::{Found, Problem, ProblemKind};
use super::document::{Document, DocumentError, Finding};
use super::guidance;
use super::schema::Schema;
use super::sections::{Compression, Config, HOST_KEYS, ISOLATION, Isolation, ProviderTls};
use super::threshold::{Threshold, has_wildcard};
use super::yaml::KeyPath;
use crate::engine_name::BUILT_IN;

/// The name of the config file in Contexture's home directory.
const FILE_NAME: &str = "config.yaml";

/// The plugin folder if the file names none, relative to the folder that the file is in.
const DEFAULT_PLUGIN_DIR: &str = "plugins/context_engine";

// Deriving a schema takes longer than checking a file, so each is derived once.
static CONFIG: LazyLock<Schema> = LazyLock::new(Schema::of::<Config>);
/// The settings under `context.engines.compressor`: those of `compression` that the built-in engine
/// reads itself.
pub(super) static COMPRESSOR: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Schema::of::<Compression>();
    if let Some(properties) = &mut schema.properties {
        properties.retain(|(key, _)| !HOST_KEYS.contains(&key.as_str()));
    }
    schema
});

/// A configuration with its source and the warnings about it. It keeps the file's text, so that
/// problems found later, for example in a plugin's settings, are reported with their position.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The values that apply: those of the file, and the defaults for everything that it does not
    /// set.
    pub config: Config,
    /// The file that was read. None if there is no file and every value is a default.
    pub path: Option<PathBuf>,
    /// Contexture's own directory, `$CONTEXTURE_HOME` or by default `~/.contexture`. The directory
    /// may not exist yet.
    pub home: PathBuf,
    /// The plugin folders as absolute paths, in the order in which they are searched.
    pub plugin_dirs: Vec<PathBuf>,
    /// The text of the file that `compression.template` names. None if it names none.
    pub template: Option<String>,
    /// Unknown keys, and invalid values that were ignored. Most commands print them and go on, but
    /// `config check` treats them as errors.
    pub warnings: Vec<Finding>,
    pub(super) document: Document,
}

/// Why there is no configuration. [`file`](Self::file) tells which file to correct, if the cause is
/// a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read as YAML, or another user may have written it.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The file breaks the schema or contradicts itself. The list has all problems, warnings
    /// included, and the message has one line for each.
    #[error("{}", lines(.0))]
    Invalid(Vec<Finding>),
    /// There is no directory for Contexture's own files: neither `CONTEXTURE_HOME` nor the user's
    /// home directory is set.
    #[error(
        "there is no home directory: set CONTEXTURE_HOME to the directory that Contexture may use"
    )]
    NoHome,
    /// A relative path could not be made absolute, usually because the working directory is gone.
    #[error("cannot find {} from here: {cause}", path.display())]
    Path {
        /// The path, as it was given.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
}

impl ConfigError {
    /// Returns the config file that the error is about. None if no file is the cause.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Document(error) => Some(error.file()),
            Self::Invalid(findings) => Some(&findings.first()?.file),
            Self::NoHome | Self::Path { .. } => None,
        }
    }
}

fn lines(findings: &[Finding]) -> String {
    let lines: Vec<_> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl Config {
    /// Reads the configuration. If `named` is given, that file must exist. Otherwise `config.yaml`
    /// in Contexture's home directory is read, if it exists.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not YAML or breaks the schema, and if there is
    /// no home directory. Warnings are not errors.
    pub fn load(named: Option<&Path>, env: Env<'_>) -> Result<Loaded, ConfigError> {
        let home = home(env)?;
        let document = match named {
            Some(file) => Some(Document::open(&absolute(file)?)?),
            // Only a file that does not exist means the defaults. One that cannot be read may hold
            // settings that the user relies on.
            None => match Document::open(&home.join(FILE_NAME)) {
                Err(DocumentError::Untrusted(Untrusted::Unreadable { cause, .. }))
                    if cause.kind() == std::io::ErrorKind::NotFound =>
                {
                    None
                }
                opened => Some(opened?),
            },
        };
        let path = document.as_ref().map(|document| document.file.clone());
        let mut document = match document {
            Some(document) => document,
            // An empty document under the default name lets `finding` name the file in which to set
            // a key.
            None => Document::parse(&home.join(FILE_NAME), String::new())?,
        };

        let mut findings = document.check(&CONFIG);
        let config = read(&mut document, &mut findings);
        let (template, wrong) = guidance::read(&config, &document.file);
        findings.extend(document.findings(wrong));
        if findings.iter().any(|finding| !finding.problem.is_warning()) {
            return Err(ConfigError::Invalid(findings));
        }
        Ok(Loaded {
            plugin_dirs: plugin_dirs(&config, &document.file, env),
            template,
            config,
            path,
            home,
            warnings: findings,
            document,
        })
    }
}

/// Converts the checked values into a configuration, and adds to `findings` the problems that the
/// schema cannot express. If the file is refused anyway, the defaults are returned, because invalid
/// values cannot be converted.
fn read(document: &mut Document, findings: &mut Vec<Finding>) -> Config {
    let refused = |findings: &[Finding]| findings.iter().any(|found| !found.problem.is_warning());
    if refused(findings) {
        return Config::default();
    }
    let mut found = Vec::new();
    let compressor = KeyPath::of(["context", "engines", BUILT_IN]);
    if let Some(settings) = document.value.pointer_mut("/context/engines/compressor") {
        // An unknown key of an engine is an error and not a warning: the engine would run with
        // other settings than its user thinks.
        let wrong = COMPRESSOR.check_under(settings, &compressor);
        found.extend(wrong.into_iter().map(|(at, problem)| match problem {
            problem if problem.kind == ProblemKind::UnknownKey => {
                let of_host = HOST_KEYS.iter().find(|key| at == compressor.key(key));
                let message = match of_host {
                    Some(_) => {
                        format!("`{at}` belongs in `compression`, which holds for every engine")
                    }
                    None => problem.message,
                };
                (at, Problem::wrong(message))
            }
            problem => (at, problem),
        }));
    }
    let config = match serde_json::from_value::<Config>(document.value.clone()) {
        Ok(config) => config,
        // The schema comes from the same structs, so a failure here is a bug in this crate.
        Err(error) => {
            found.push((KeyPath::default(), Problem::wrong(error.to_string())));
            Config::default()
        }
    };
    found.extend(contradictions(&config));
    findings.extend(document.findings(found));
    config
}

/// Finds settings of different sections that contradict each other, and invalid values of the
/// host's own keys under an engine's name, such as `isolation`.
fn contradictions(config: &Config) -> Vec<Found> {
    let mut found = Vec::new();
    for (engine, settings) in &config.context.engines {
        let Some(isolation) = settings.get(ISOLATION) else {
            continue;
        };
        if serde_json::from_value::<Isolation>(isolation.clone()).is_err() {
            let at = KeyPath::of(["context", "engines", engine.as_str(), ISOLATION]);
            let message = format!("`{at}` is {isolation}, but must be `none` or `process`");
            found.push((at, Problem::wrong(message)));
        }
    }
    // The message names both values, and the position is that of the key that is given here.
    let mut add = |keys: &[&str], message| {
        found.push((KeyPath::of(keys.iter().copied()), Problem::wrong(message)));
    };
    if let (Some(window), Some(output)) =
        (config.model.context_length, config.model.max_output_tokens)
        && output >= window
    {
        let message = format!(
            "`model.max_output_tokens` is {output}, but must be less than `model.context_length`, {window}"
        );
        add(&["model", "max_output_tokens"], message);
    }
    for WrittenThreshold {
        keys,
        threshold,
        model,
        window,
    } in thresholds(config)
    {
        if let (Threshold::Tokens(tokens), Some(window)) = (threshold, window)
            && tokens > window
        {
            let of = model.map_or_else(String::new, |model| format!(" of `{model}`"));
            let message = format!(
                "`{}` is {} tokens, but the window{of} has only {}: write less, or a share of the window such as `0.8`",
                KeyPath::of(keys.iter().copied()),
                grouped(tokens),
                grouped(window)
            );
            add(&keys, message);
        }
    }
    // With no more messages than the protected ones nothing could be compacted, so the limit would
    // be exceeded forever.
    let protected = config.engine_settings(BUILT_IN)["protect_last_n"].as_u64();
    if let (Some(most), Some(protected)) = (config.hygiene.max_messages, protected)
        && most <= protected
        && config.context.engine == BUILT_IN
    {
        let message = format!(
            "`hygiene.max_messages` is {most}, but must be more than `compression.protect_last_n`, {protected}: that \
             many messages are never compacted"
        );
        add(&["hygiene", "max_messages"], message);
    }
    let (own, upstream) = (&config.gateway.tls, &config.upstream);
    let of = |section, tls: &ProviderTls| (section, tls.certificate.is_some(), tls.key.is_some());
    let sections = [
        ("gateway.tls", own.certificate.is_some(), own.key.is_some()),
        of("upstream.openai.tls", &upstream.openai.tls),
        of("upstream.anthropic.tls", &upstream.anthropic.tls),
        of("upstream.chatgpt.tls", &upstream.chatgpt.tls),
        of("upstream.google.tls", &upstream.google.tls),
    ];
    for (section, has_certificate, has_key) in sections {
        if has_certificate != has_key {
            let message = format!(
                "`{section}` has only one of `certificate` and `key`: name both files, or neither"
            );
            add(&section.split('.').collect::<Vec<_>>(), message);
        }
    }
    found
}

/// A threshold of the file.
struct WrittenThreshold<'c> {
    keys: Vec<&'c str>,
    threshold: Threshold,
    /// The model that it is for. None if the file does not tell it.
    model: Option<&'c str>,
    /// The size of that model's window, in tokens. None if the file does not tell it.
    window: Option<u64>,
}

fn thresholds(config: &Config) -> Vec<WrittenThreshold<'_>> {
    let compression = &config.compression;
    let window = |model: Option<&str>| {
        let table = || Some(known_window(model?)?.context_length);
        let written = config.context_length_of(model.unwrap_or_default());
        written.or_else(table)
    };
    let model = config.model.name.as_deref();
    let mut found = vec![WrittenThreshold {
        keys: vec!["compression", "threshold"],
        threshold: compression.threshold,
        model,
        window: window(model),
    }];
    let settings = config.context.engines.get(BUILT_IN);
    if let Some(threshold) = settings.and_then(|settings| settings.get("threshold")?.as_f64()) {
        found.push(WrittenThreshold {
            keys: vec!["context", "engines", BUILT_IN, "threshold"],
            threshold: threshold.into(),
            model,
            window: window(model),
        });
    }
    for (pattern, entry) in &compression.models {
        if let Some(threshold) = entry.threshold {
            let model = Some(pattern.as_str()).filter(|pattern| !has_wildcard(pattern));
            found.push(WrittenThreshold {
                keys: vec!["compression", "models", pattern, "threshold"],
                threshold,
                model,
                window: entry.context_length.or_else(|| window(model)),
            });
        }
    }
    found
}

/// Returns Contexture's own directory as an absolute path: `$CONTEXTURE_HOME`, or `~/.contexture`. It
/// may not exist.
///
/// # Errors
/// Fails if neither the variable nor the user's home directory is set.
pub fn home(env: Env<'_>) -> Result<PathBuf, ConfigError> {
    let of_user = || Some(user_home(env)?.join(".contexture"));
    let home = path_of(env, "CONTEXTURE_HOME").or_else(of_user);
    absolute(&home.ok_or(ConfigError::NoHome)?)
}

fn absolute(path: &Path) -> Result<PathBuf, ConfigError> {
    std::path::absolute(path).map_err(|cause| ConfigError::Path {
        path: path.to_owned(),
        cause,
    })
}

/// Returns the absolute plugin folders. A relative folder is relative to the config file and not to
/// the working directory, so that a configuration means the same everywhere.
fn plugin_dirs(config: &Config, file: &Path, env: Env<'_>) -> Vec<PathBuf> {
    let beside = file.parent().unwrap_or(file);
    let Some(dirs) = &config.plugins.dirs else {
        return vec![beside.join(DEFAULT_PLUGIN_DIR)];
    };
    let place = |dir: &String| match (dir.strip_prefix("~/"), user_home(env)) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => beside.join(dir),
    };
    // Drops the `.` of `./plugins`, because people read these paths in messages.
    let plain = |dir: PathBuf| dir.components().collect();
    dirs.iter().map(place).map(plain).collect()
}

impl Loaded {
    /// Returns true if no key is set: there is no file, or it is empty or has only comments.
    pub fn is_empty(&self) -> bool {
        self.document
            .value
            .as_object()
            .is_none_or(serde_json::Map::is_empty)
    }

    /// Returns the absolute path of a file that the configuration names. A relative path is
    /// relative to the config file.
    pub fn beside(&self, file: &Path) -> PathBuf {
        let folder = self.document.file.parent();
        folder.map_or_else(|| file.to_owned(), |folder| folder.join(file))
    }

    /// Returns a finding for the value at this path of keys, for a problem that only the caller can
    /// detect, such as an engine that is not installed. If the file does not set the key, the
    /// finding has no position.
    pub fn finding(&self, keys: &[&str], message: String) -> Finding {
        let place = KeyPath::of(keys.iter().copied());
        Finding {
            file: self.document.file.clone(),
            location: self.document.locate(&place),
            problem: Problem::wrong(message),
        }
    }

    /// Returns the settings for the engine `name`, converted to the types that `schema` asks for.
    ///
    /// # Errors
    /// Returns every problem with the settings. Unknown keys are among them, since an
    /// engine must not run with a misspelled setting.
    pub fn engine_settings(&self, name: &str, schema: &Schema) -> Result<Value, Vec<Finding>> {
        let mut settings = self.config.engine_settings(name);
        if name == BUILT_IN {
            // The built-in engine's settings were checked when the file was read.
            return Ok(settings);
        }
        let at = KeyPath::of(["context", "engines", name]);
        let found = schema.check_under(&mut settings, &at);
        // An engine that stores something of its own must not store what the transcript masks.
        let declares = schema.properties().any(|(key, _)| key == "redact");
        if declares && self.config.transcript.redact {
            settings["redact"] = true.into();
        }
        match found.is_empty() {
            true => Ok(settings),
            false => Err(self.document.findings(found)),
        }
    }
}

#[cfg(test)]
mod tests;
