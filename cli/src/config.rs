//! `contexture config`: checks the configuration, prints it, and says which file it is.
//!
//! [`check`] is stricter than loading. Everything that other commands only warn of is a problem
//! here: unknown keys, settings of engines that do not exist, and a model that cannot be used. If
//! nothing else is wrong, the engine itself is asked whether its settings are usable.
//!
//! Reading the file and the schema check are the task of `contexture::config`. Settings are checked
//! for all engines, since a user may want to change to another one.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::edit::{Edit, FileFormat, apply};
use crate::error::{CliError, Lines, did_you_mean};
use crate::{Global, OK, input, output, start, terminal};
use contexture::catalog::Catalog;
use contexture::config::{ConfigError, Loaded, Schema, editor_schema};
use contexture::engines::OpenError;
use contexture::providers::{NoModel, Resolved};
use contexture_engine_api::{StoreCommand, make_private_folder};
use contexture_gateway::SettingsError;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration: every unknown key and every value that is not allowed
    #[command(after_help = "Exits with 2 if the configuration has a problem.\n\n\
                      Examples:\n  contexture config check\n  contexture config check --config ./config.yaml")]
    Check,
    /// Print the whole configuration; a value that the file does not set is marked `# default`
    #[command(
        after_help = "Examples:\n  contexture config show\n  contexture config show > config.yaml"
    )]
    Show,
    /// Print the JSON Schema of the config file, for editors that complete and check YAML
    #[command(
        after_help = "Includes the settings of every engine that the configuration can load. Write it beside the \
                      config file and name it\n\
                      in the file's first line:\n  # yaml-language-server: $schema=config.schema.json\n\n\
                      Examples:\n  contexture config schema > ~/.contexture/config.schema.json"
    )]
    Schema,
    /// Print the config file's path, and on stderr whether it exists
    #[command(
        after_help = "Examples:\n  contexture config path\n  $EDITOR \"$(contexture config path)\""
    )]
    Path,
}

/// The config file that a command changes. It need not exist.
pub(crate) fn path_to_write(loaded: &Loaded) -> PathBuf {
    let usual = || loaded.home.join("config.yaml");
    loaded.path.clone().unwrap_or_else(usual)
}

/// Sets one value in the config file. Its comments and everything else stay as they are, see
/// [`crate::edit`]. The file is created if it does not exist.
///
/// # Errors
/// The file cannot be read or written, or it is written in a way that allows no such change. The
/// user is then told which value to write.
pub(crate) fn set(path: &Path, keys: &[&str], value: &str) -> Result<(), CliError> {
    let text = input::text_of(path)?.unwrap_or_default();
    let edits = [Edit::set(keys, value)];
    let changed = apply(FileFormat::Yaml, Some(&text), &edits).map_err(|_| {
        let (key, path) = (keys.join("."), path.display());
        let (above, last) = key.rsplit_once('.').unwrap_or(("", &key));
        CliError::usage(
            format!("{path} cannot be changed without changing more than `{key}`"),
            format!("write `{last}: {value}` under `{above}:` in it yourself"),
        )
    })?;
    // Without a config file, the home directory may not exist either.
    if let Some(folder) = path.parent().filter(|_| text.is_empty()) {
        make_private_folder(folder).map_err(CliError::write(path))?;
    }
    output::write_file(path, &changed.text)
}

pub(crate) fn run(command: &ConfigCommand, global: &Global) -> Result<u8, CliError> {
    match command {
        ConfigCommand::Check => check(global),
        ConfigCommand::Show => {
            let loaded = start::load_config(global)?;
            output::print(&loaded.effective().to_string())?;
            Ok(OK)
        }
        ConfigCommand::Schema => {
            let catalog = start::scan(&start::load_config(global)?)?;
            output::print_json(&editor_schema(catalog.declared_settings()))?;
            Ok(OK)
        }
        ConfigCommand::Path => path(global),
    }
}

/// Checks the configuration and everything that it refers to.
///
/// # Errors
/// Fails with the list of all problems, each with its file, line and column if it has them. The
/// exit code is then 2.
fn check(global: &Global) -> Result<u8, CliError> {
    let loaded = start::read_config(global).map_err(|error| match error {
        // The list is the answer, so the help must not name this command again.
        ConfigError::Invalid(_) => CliError::Findings(Lines(error.to_string())),
        error => CliError::config(error),
    })?;
    let mut problems: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    let catalog = start::scan(&loaded)?;
    let wrong = catalog.wrong_settings(&loaded);
    problems.extend(wrong.iter().map(ToString::to_string));
    let engine = &loaded.config.context.engine;
    let names = catalog.names();
    if !names.contains(&engine.as_str()) {
        let hint = did_you_mean(engine, names);
        let what = format!(
            "there is no engine `{engine}`; {hint}`contexture engines list` lists all engines"
        );
        problems.push(loaded.finding(&["context", "engine"], what).to_string());
    }
    problems.extend(unused_settings(&loaded, &catalog, ""));
    problems.extend(for_gateway(&loaded));
    let of_model = |key: &str, what| {
        let keys = ["auxiliary", "compression", key];
        loaded.finding(&keys, what).to_string()
    };
    match start::resolve_model(&loaded.config, global.offline, None) {
        Err(error) => problems.push(of_model("provider", error.to_string())),
        Ok(Resolved::NoModel(reason @ NoModel::MissingKey(_))) => {
            problems.push(of_model("provider", reason.to_string()));
        }
        Ok(Resolved::NoModel(NoModel::NoAgent(_))) => {
            if let Some(model) = &loaded.config.auxiliary.compression.model {
                let what = format!(
                    "`auxiliary.compression.model` is \"{model}\", but no provider is set for it: set \
                     `auxiliary.compression.provider` or `model.provider`"
                );
                problems.push(of_model("model", what));
            }
        }
        Ok(_) => {}
    }
    if problems.is_empty() && loaded.config.context.engines.contains_key(engine) {
        // Whether files and other things that settings name are usable, only the engine can tell.
        let engines = start::open_engines(loaded.clone(), global.offline, None)?;
        let asked = engines.manage(None, &StoreCommand::Progress);
        if let Err(OpenError::Settings { problems: what, .. }) = asked {
            let finding = loaded.finding(&["context", "engines", engine], what);
            problems.push(finding.to_string());
        }
    }
    if !problems.is_empty() {
        return Err(CliError::Findings(Lines(problems.join("\n"))));
    }
    output::print(&match &loaded.path {
        Some(path) => format!("{}: no problems\n", path.display()),
        None => {
            "there is no config file, so every setting has its default: no problems\n".to_owned()
        }
    })?;
    Ok(OK)
}

/// Returns a problem for each engine that has settings but does not exist, except `requested`.
pub(crate) fn unused_settings(loaded: &Loaded, catalog: &Catalog, requested: &str) -> Vec<String> {
    let unused = catalog.unused_settings(&loaded.config, requested);
    let of_engine = unused.into_iter().map(|(engine, problem)| {
        let keys = ["context", "engines", &engine];
        loaded.finding(&keys, problem).to_string()
    });
    of_engine.collect()
}

/// Returns what a gateway could not run with, in words. Neither the environment nor files are looked
/// at.
pub(crate) fn for_gateway(loaded: &Loaded) -> Vec<String> {
    in_words(loaded, &contexture_gateway::problems(loaded))
}

/// Returns the problems of a gateway in words, each with the place of its cause.
pub(crate) fn in_words(loaded: &Loaded, problems: &[SettingsError]) -> Vec<String> {
    let of_key = problems
        .iter()
        .map(|problem| loaded.finding(&problem.keys(), problem.to_string()));
    of_key.map(|finding| finding.to_string()).collect()
}

/// Returns the problems with the settings of an engine, in words. Empty if there are none.
pub(crate) fn wrong_settings(loaded: &Loaded, engine: &str, schema: &Schema) -> Vec<String> {
    let wrong = loaded.engine_settings(engine, schema).err();
    let wrong = wrong.iter().flatten();
    wrong.map(ToString::to_string).collect()
}

/// Prints the path of the config file, and on stderr whether it exists. It works for a file that
/// cannot be used as well, so that the user can find and correct it.
fn path(global: &Global) -> Result<u8, CliError> {
    let (path, exists) = match start::read_config(global) {
        Ok(loaded) => match loaded.path {
            Some(path) => (path, true),
            None => (loaded.home.join("config.yaml"), false),
        },
        Err(error) => match error.file() {
            Some(path) => (path.to_owned(), path.exists()),
            None => return Err(CliError::config(error)),
        },
    };
    output::print(&format!("{}\n", path.display()))?;
    terminal::say(match exists {
        true => "It exists.\n",
        false => "It does not exist, so every setting has its default.\n",
    });
    Ok(OK)
}
