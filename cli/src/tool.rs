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
use contexture_engine_api::{EngineError, MessageId, ToolCall, ToolSpec};
use serde_json::{Map, Value};

use crate::choice::{self, KEEPER};
use crate::dry_run::DryRun;
use crate::error::{CliError, Lines, did_you_mean};
use crate::human::counted;
use crate::kept::{self, Vectors};
use crate::{Global, OK, output, start, terminal, window};
use contexture::engines::{CallError, Engines, OpenError};
use contexture::session::{Session, SessionError, SessionOptions};

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
    let delivered = store.delivered(&args.session).map_err(CliError::Sessions)?;
    let remembered = delivered.as_ref().map(|delivered| delivered.engine.clone());
    let engine = choice::keeper(&engines, args.engine.as_deref(), remembered)?;
    let engine = engine.as_str();
    let derives = kept::list(&engines, engine)?.is_some();
    if derives && delivered.is_none() {
        return Err(CliError::NoSession {
            session: args.session.clone(),
        });
    }
    // This counts before the session is opened, because an open session makes more vectors in the
    // background.
    let missing = match derives {
        true => Vectors::by(&engines, engine, &args.session),
        false => None,
    };
    let missing = missing.map_or(0, |vectors| vectors.missing);
    let agent = window::choose(None, None, None, engines.config()).agent;
    let failed = |error| CliError::of_session(error, "a tool belongs to its engine");
    // The agent may have the session open, so it is opened for reading only.
    let options = SessionOptions::default()
        .engine(Some(engine.to_owned()))
        .read_only(Some(Arc::clone(&store)));
    let open = |engines: &Arc<Engines>| {
        Session::open(engines, None, &args.session, agent.clone(), options.clone())
    };
    // If the engine has no folder yet, a temporary home is used, so that a question does not create
    // one.
    let mut copy = match engines.loaded().home.join("engines").join(engine).exists() {
        false => Some(DryRun::of(&engines, None)?),
        true => None,
    };
    let opened = match open(copy.as_ref().map_or(&engines, DryRun::engines)) {
        // An engine needs a store that it can write to. It can derive its data again in a temporary
        // home.
        Err(error) if derives && is_of_storage(&error) => {
            let made = DryRun::of(&engines, None)?;
            open(copy.insert(made).engines())
        }
        opened => opened,
    };
    let mut session = opened.map_err(failed)?;
    let tools = session.tools().map_err(failed)?;
    let Some(name) = &args.name else {
        match args.json {
            true => output::print_json(&serde_json::json!({"tools": tools}))?,
            false => output::print(&list(&tools))?,
        }
        return Ok(OK);
    };
    let Some(tool) = tools.iter().find(|tool| tool.name == *name) else {
        // If the session's engine offers no tools, the hint names the engine that can read every
        // session.
        let meant = did_you_mean(name, tools.iter().map(|tool| tool.name.as_str()));
        let elsewhere = match engine == KEEPER {
            true => false,
            false => delivered.is_some(),
        };
        let session = &args.session;
        return Err(CliError::NoTool {
            name: name.clone(),
            engine: engine.to_owned(),
            way_out: match tools.is_empty() {
                true if elsewhere => format!(
                    "`{engine}` has the session `{session}` now, and gives no tools to its agent; `{KEEPER}` can \
                     read it: add --engine {KEEPER} to ask that one"
                ),
                true => format!("it gives no tools to its agent; `{KEEPER}` does"),
                false => format!("{meant}These are its tools:\n{}", list(&tools)),
            },
        });
    };
    let call = ToolCall::new(name.clone(), arguments(&args.arguments)?);
    let refused = |why: String| CliError::Arguments {
        tool: name.clone(),
        because: Lines(why),
        way_out: takes(tool),
    };
    if let Err(error) = serde_json::from_str::<Map<String, Value>>(&call.arguments) {
        return Err(refused(format!("they are not a JSON object: {error}")));
    }
    if missing > 0 {
        let what = format!(
            "{} of the session `{id}` have no vectors yet: a question finds them by their words alone; `contexture \
             sessions index {id}` makes them",
            counted(missing, "message"),
            id = args.session,
        );
        terminal::warn(&what);
    }
    let answer = session.call_tool(call).map_err(|error| match error {
        SessionError::Call(CallError::Failed {
            error: EngineError::InvalidInput(why),
            ..
        })
        | SessionError::HostTool {
            error: EngineError::InvalidInput(why),
            ..
        } => refused(why),
        SessionError::Call(CallError::Failed {
            error: error @ EngineError::Unsupported(_),
            ..
        }) => CliError::Refused(Lines(error.to_string())),
        error => failed(error),
    })?;
    output::print(&format!("{answer}\n"))?;
    let wished = session.wants_restored().map_err(failed)?;
    if !wished.is_empty() {
        // The session is closed first, since the record is opened for writing below.
        drop(session);
        note_wished(&engines, &args.session, &wished)?;
    }
    Ok(OK)
}

/// Records which messages to put back with the session's next request, and tells the user how many.
/// The session is held meanwhile, so that no turn runs. Fails if the record cannot be written.
fn note_wished(engines: &Engines, id: &str, wished: &[MessageId]) -> Result<(), CliError> {
    let store = start::open_store(engines)?;
    let _hold = store
        .hold(id, SessionOptions::default().wait)
        .map_err(CliError::Sessions)?;
    let noted = store
        .wish_restored(id, Some(wished))
        .map_err(CliError::Sessions)?;
    if !noted.is_empty() {
        terminal::say(&format!(
            "{} will be restored with the next request\n",
            counted(noted.len() as u64, "message")
        ));
    }
    Ok(())
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
/// stdin is not readable UTF-8.
fn arguments(given: &str) -> Result<String, CliError> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|source| CliError::Read {
        input: "stdin".to_owned(),
        source,
    })?;
    Ok(text)
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
