//! `contexture config`: is it right, what holds, and which file is it.

use clap::Subcommand;

use crate::error::{CliError, Lines, did_you_mean};
use crate::{Global, OK, engines, output, setup, terminal};
use contexture::config::{Loaded, Schema};
use contexture::engines::OpenError;
use contexture::providers::{NoModel, Resolved};
use contexture_engine_api::StoreCommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration: every unknown key and every value that is not allowed
    #[command(
        after_help = "Exits with 2 when something is wrong.\n\nExamples:\n  contexture config check\n  contexture config check --config ./config.yaml"
    )]
    Check,
    /// Print the whole configuration; a value that the file does not give is marked `# default`
    #[command(
        after_help = "Examples:\n  contexture config show\n  contexture config show > config.yaml"
    )]
    Show,
    /// Print the config file's path, and on stderr whether it exists
    #[command(
        after_help = "Examples:\n  contexture config path\n  $EDITOR \"$(contexture config path)\""
    )]
    Path,
}

pub(crate) fn run(command: &ConfigCommand, global: &Global) -> Result<u8, CliError> {
    match command {
        ConfigCommand::Check => check(global),
        ConfigCommand::Show => {
            let loaded = setup::load_config(global)?;
            output::print(&loaded.effective().to_string())?;
            Ok(OK)
        }
        ConfigCommand::Path => path(global),
    }
}

fn check(global: &Global) -> Result<u8, CliError> {
    let loaded = setup::read_config(global).map_err(CliError::config)?;
    let mut problems: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
    let catalog = engines::scan(&loaded)?;
    let wrong = catalog.wrong_settings(&loaded);
    problems.extend(wrong.iter().map(ToString::to_string));
    let engine = &loaded.config.context.engine;
    let names = catalog.names();
    if !names.contains(&engine.as_str()) {
        let hint = did_you_mean(engine, names);
        let what = format!(
            "there is no engine `{engine}`; {hint}`contexture engines list` names them all"
        );
        problems.push(loaded.finding(&["context", "engine"], what).to_string());
    }
    problems.extend(catalog.unused_settings(&loaded.config, ""));
    let of_model = |key: &str, what| {
        let keys = ["auxiliary", "compression", key];
        loaded.finding(&keys, what).to_string()
    };
    match setup::resolve_model(&loaded.config, global.offline, None) {
        Err(error) => problems.push(of_model("provider", error.to_string())),
        Ok(Resolved::NoModel(reason @ NoModel::MissingKey(_))) => {
            problems.push(of_model("provider", reason.to_string()));
        }
        Ok(Resolved::NoModel(NoModel::NoAgent(_))) => {
            if let Some(model) = &loaded.config.auxiliary.compression.model {
                let what = format!(
                    "`auxiliary.compression.model` is \"{model}\", and nobody is named who has it: name one as \
                     `auxiliary.compression.provider` or `model.provider`"
                );
                problems.push(of_model("model", what));
            }
        }
        Ok(_) => {}
    }
    if problems.is_empty() && loaded.config.context.engines.contains_key(engine) {
        // What settings name, such as files, the engine alone can judge.
        let engines = setup::open_engines(loaded.clone(), global.offline, None)?;
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

/// What is wrong with the settings of an engine.
pub(crate) fn wrong_settings(loaded: &Loaded, engine: &str, schema: &Schema) -> Vec<String> {
    let wrong = loaded.engine_settings(engine, schema).err();
    let wrong = wrong.iter().flatten();
    wrong.map(ToString::to_string).collect()
}

/// Also of a file that cannot be used, so that it can be found and mended.
fn path(global: &Global) -> Result<u8, CliError> {
    let (path, exists) = match setup::read_config(global) {
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
