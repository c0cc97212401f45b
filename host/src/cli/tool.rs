//! `contexture tool`: one call of a tool that a session's engine gives to its agent.

use std::io::Read;

use contexture_engine_api::{EngineError, ToolCall};

use super::error::{CliError, Lines};
use super::{Global, OK, output, setup, window};
use crate::session::{Session, SessionError};
use crate::supervision::CallError;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture tool lcm_grep '{\"pattern\": \"reconcile_ledger_epoch\"}' --session work
  contexture tool lcm_expand '{\"id\": \"s12\"}' --session work | jq '.messages[].message'
  echo '{\"question\": \"which port did we choose?\"}' | contexture tool lcm_grep - --session work

Exit codes: 0 answered, 2 wrong usage, arguments or configuration, 3 the engine failed.")]
pub(super) struct ToolArgs {
    /// The tool's name
    name: String,
    /// Its arguments, a JSON object; `-` is stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// The session
    #[arg(long, value_name = "ID")]
    session: String,
    /// The engine [default: the one that the session was kept by]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

pub(super) fn run(args: &ToolArgs, global: &Global) -> Result<u8, CliError> {
    let arguments = match args.arguments.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .read_to_string(&mut text)
                .map_err(|source| CliError::Read {
                    input: "stdin".to_owned(),
                    source,
                })?;
            text
        }
        text => text.to_owned(),
    };
    let engines = setup::open_engines(setup::load_config(global)?, global.offline, None)?;
    let store = setup::open_store(&engines)?;
    let remembered = setup::engine_of(&store, &args.session)?;
    let Some(engine) = args.engine.as_ref().or(remembered.as_ref()) else {
        return Err(CliError::NoSession {
            session: args.session.clone(),
        });
    };
    let agent = window::choose(None, None, None, &engines.config().model).agent;
    let mut session = Session::resume(&engines, &store, &args.session, Some(engine), agent)
        .map_err(|error| CliError::EngineFailed {
            because: "a tool is its engine's alone",
            reason: Lines(error.to_string()),
        })?;
    let call = ToolCall {
        name: args.name.clone(),
        arguments,
    };
    let answer = session.call_tool(call).map_err(|error| match error {
        SessionError::Call(CallError::Failed {
            error: error @ (EngineError::InvalidInput(_) | EngineError::Unsupported(_)),
            ..
        }) => CliError::Refused(Lines(error.to_string())),
        error => CliError::EngineFailed {
            because: "a tool is its engine's alone",
            reason: Lines(error.to_string()),
        },
    })?;
    output::print(&format!("{answer}\n"))?;
    Ok(OK)
}
