//! `contexture tool`: calls a tool that a session's engine offers to its agent.
//!
//! [`run`] opens the session read-only, even if an agent is using it, calls the tool with the given
//! arguments and prints the answer. Without a name it lists the tools. This is how a user searches
//! what an engine has stored, without an agent and without a model.
//!
//! If the engine cannot write to its store, for example on a read-only file system, the command
//! works in a temporary home. The command never changes the session itself. If a tool puts messages
//! back, the record only notes them, and the session's next request restores them.

use std::io::Read;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture_engine_api::{EngineError, ToolCall, ToolSpec};
use serde_json::{Map, Value};

use crate::choice::{self, KEEPER};
use crate::dry_run::DryRun;
use crate::error::{CliError, Lines, did_you_mean};
use crate::human::counted;
use crate::kept::{self, Vectors};
use crate::{Global, OK, output, sessions, start, terminal, window};
use contexture::engines::{CallError, Engines, OpenError};
use contexture::session::{Record, Session, SessionError, SessionOptions};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture tool lcm_grep '{\"pattern\": \"reconcile_ledger_epoch\"}' --session work
  contexture tool lcm_expand '{\"id\": \"s12\"}' --session work | jq '.messages[].message'
  echo '{\"question\": \"which port did we choose?\"}' | contexture tool lcm_grep - --session work
  contexture tool --session work        # which tools there are

Exit codes: 0 answered, 2 wrong usage, arguments or configuration, 3 the engine failed.")]
pub(crate) struct ToolArgs {
    /// The tool's name [default: list the tools]
    name: Option<String>,
    /// The arguments as a JSON object; `-` is stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Print the list of tools as JSON
    #[arg(long, conflicts_with = "name")]
    json: bool,
    /// The session
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    session: String,
    /// The engine [default: the session's own]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

/// Calls the tool or lists the tools. The output is the tool's answer, as it would be given to the
/// model.
///
/// # Errors
/// Fails if there is no such session or tool, if the arguments are refused, or if the engine fails.
pub(crate) fn run(args: &ToolArgs, global: &Global) -> Result<u8, CliError> {
    let engines = start::open_engines(start::load_config(global)?, global.offline, None)?;
    let store = start::open_store_to_read(&engines)?;
    let own = start::engine_of(&store, &args.session)?;
    let is_stored = own.is_some();
    let engine = choice::keeper(&engines, args.engine.as_deref(), own)?;
    let derives = kept::list(&engines, &engine)?.is_some();
    if derives && !is_stored {
        return Err(CliError::NoSession {
            session: args.session.clone(),
        });
    }
    // This counts before the session is opened, because an open session makes more vectors in the
    // background.
    let vectors = derives.then(|| Vectors::by(&engines, &engine, &args.session));
    let missing = vectors.flatten().map_or(0, |vectors| vectors.missing);
    let (_home, mut session) = open(&engines, &store, &args.session, &engine, derives)?;
    let tools = session.tools().map_err(failed)?;
    let Some(name) = &args.name else {
        match args.json {
            true => output::print_json(&serde_json::json!({"tools": tools}))?,
            false => output::print(&list(&tools))?,
        }
        return Ok(OK);
    };
    let tool = find_tool(&tools, name, &engine, is_stored.then_some(&*args.session))?;
    let arguments = arguments(&args.arguments, tool)?;
    warn_of_missing_vectors(missing, &args.session);
    let answer = call(&mut session, tool, arguments)?;
    output::print(&format!("{answer}\n"))?;
    let restored = session.wants_restored().map_err(failed)?;
    let wait = SessionOptions::default().wait;
    let restored = store.wish_restored(&args.session, Some(&restored), wait)?;
    if !restored.is_empty() {
        sessions::say_restored(&restored);
    }
    Ok(OK)
}

fn failed(error: SessionError) -> CliError {
    CliError::of_session(error, "a tool belongs to its engine")
}

/// Opens the session for reading only, because the agent may have it open. `derives` says whether the
/// engine derives its data from the record, so that it can do so again in another home.
///
/// If the engine has no folder yet or cannot write to it, the session is opened in a temporary home,
/// which must stay as long as the session.
fn open(
    engines: &Arc<Engines>,
    store: &Arc<Record>,
    id: &str,
    engine: &str,
    derives: bool,
) -> Result<(Option<DryRun>, Session), CliError> {
    let agent = window::choose(None, None, None, engines.config()).agent;
    let options = SessionOptions::default()
        .engine(Some(engine.to_owned()))
        .read_only(Some(Arc::clone(store)));
    let open =
        |engines: &Arc<Engines>| Session::open(engines, None, id, agent.clone(), options.clone());
    // A question must not create a folder for the engine.
    let mut home = match engines.loaded().home.join("engines").join(engine).exists() {
        false => Some(DryRun::of(engines, None)?),
        true => None,
    };
    let opened = match open(home.as_ref().map_or(engines, DryRun::engines)) {
        Err(error) if derives && is_of_storage(&error) => {
            open(home.insert(DryRun::of(engines, None)?).engines())
        }
        opened => opened,
    };
    let session = opened.map_err(failed)?;
    Ok((home, session))
}

/// Returns the tool with this name. If the engine has none, the error says which tools there are, or
/// which engine has some. `session` is the session that asks, if it is stored.
fn find_tool<'t>(
    tools: &'t [ToolSpec],
    name: &str,
    engine: &str,
    session: Option<&str>,
) -> Result<&'t ToolSpec, CliError> {
    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
        return Ok(tool);
    }
    let way_out = match (tools.is_empty(), session) {
        // The keeper can read every session that is stored.
        (true, Some(session)) if engine != KEEPER => format!(
            "`{engine}` has the session `{session}` now, and offers no tools; `{KEEPER}` can read it: add --engine \
             {KEEPER} to ask that one"
        ),
        (true, _) => format!("it offers no tools; `{KEEPER}` does"),
        (false, _) => {
            let meant = did_you_mean(name, tools.iter().map(|tool| tool.name.as_str()));
            format!("{meant}These are its tools:\n{}", list(tools))
        }
    };
    Err(CliError::NoTool {
        name: name.to_owned(),
        engine: engine.to_owned(),
        way_out,
    })
}

fn warn_of_missing_vectors(missing: u64, session: &str) {
    if missing > 0 {
        terminal::warn(&format!(
            "{} of the session `{session}` have no vectors yet: a question finds them by their words alone; \
             `contexture sessions index {session}` makes them",
            counted(missing, "message"),
        ));
    }
}

/// Calls the tool and returns its answer. Fails if the engine fails or refuses the arguments.
fn call(session: &mut Session, tool: &ToolSpec, arguments: String) -> Result<String, CliError> {
    let call = ToolCall::new(tool.name.clone(), arguments);
    session.call_tool(call).map_err(|error| match error {
        SessionError::Call(CallError::Failed {
            error: EngineError::InvalidInput(why),
            ..
        })
        | SessionError::HostTool {
            error: EngineError::InvalidInput(why),
            ..
        } => refused(tool, why),
        SessionError::Call(CallError::Failed {
            error: error @ EngineError::Unsupported(_),
            ..
        }) => CliError::Refused(Lines(error.to_string())),
        error => failed(error),
    })
}

/// The error for arguments that a tool does not take.
fn refused(tool: &ToolSpec, why: String) -> CliError {
    CliError::Arguments {
        tool: tool.name.clone(),
        because: Lines(why),
        way_out: takes(tool),
    }
}

/// Returns whether the engine failed to open its store, for example on a read-only file system.
/// Such a session can still be opened in a temporary home.
fn is_of_storage(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::Open(OpenError::Call(CallError::Failed {
            error: EngineError::Storage(_),
            ..
        }))
    )
}

/// Returns the arguments from the command line. If they are `-`, reads them from stdin. Fails if
/// stdin is not readable UTF-8, or if they are not a JSON object.
fn arguments(given: &str, tool: &ToolSpec) -> Result<String, CliError> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        let read = std::io::stdin().lock().read_to_string(&mut text);
        read.map_err(|source| CliError::Read {
            input: "stdin".to_owned(),
            source,
        })?;
    }
    match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(refused(
            tool,
            format!("they are not a JSON object: {error}"),
        )),
    }
}

/// Returns which arguments a tool takes, by the names in its schema, and how to write them in a
/// shell.
fn takes(tool: &ToolSpec) -> String {
    let parameters = tool.parameters.get("properties").and_then(Value::as_object);
    let names: Vec<_> = (parameters.into_iter().flatten())
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    let form = "arguments are one JSON object, in quotes of the shell: '{\"name\": \"value\"}'";
    match names.is_empty() {
        true => format!("it takes no arguments; {form}"),
        false => format!("it takes {}; {form}", names.join(", ")),
    }
}

/// Renders the tools, one per line, each with its name and the first sentence of its description.
/// The descriptions are aligned.
fn list(tools: &[ToolSpec]) -> String {
    let width = tools.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    tools
        .iter()
        .map(|tool| {
            let sentence = tool.description.split(". ").next().unwrap_or_default();
            let sentence = sentence.trim_end_matches('.');
            format!("{:width$}  {sentence}\n", tool.name)
        })
        .collect()
}
