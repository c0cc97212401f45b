//! `contexture tool`: one call of a tool that a session's engine gives to its agent.

use std::io::Read;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture_engine_api::{EngineError, MessageId, ToolCall, ToolSpec};
use serde_json::{Map, Value};

use crate::choice::{self, KEEPER};
use crate::error::{CliError, Lines, did_you_mean};
use crate::figures::{counted, grouped};
use crate::kept::{Kept, Vectors};
use crate::rehearsal::Rehearsal;
use crate::{Global, OK, output, setup, terminal, window};
use contexture::engines::{CallError, Engines, OpenError};
use contexture::session::{Delivered, Session, SessionError, SessionOptions};

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
    /// Its arguments, a JSON object; `-` is stdin
    #[arg(value_name = "JSON", default_value = "{}")]
    arguments: String,
    /// Print the list of the tools as JSON
    #[arg(long, conflicts_with = "name")]
    json: bool,
    /// The session
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    session: String,
    /// The engine [default: the session's own]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

pub(crate) fn run(args: &ToolArgs, global: &Global) -> Result<u8, CliError> {
    let engines = setup::open_engines(setup::load_config(global)?, global.offline, None)?;
    let store = setup::open_store_to_read(&engines)?;
    let delivered = store.delivered(&args.session).map_err(CliError::Sessions)?;
    let remembered = delivered.as_ref().map(|delivered| delivered.engine.clone());
    let engine = choice::keeper(&engines, args.engine.as_deref(), remembered)?;
    let engine = engine.as_str();
    let delivered = delivered.filter(|delivered| delivered.engine == engine);
    let kept = Kept::by(&engines, engine, &args.session)?;
    if kept == Kept::Others {
        return Err(match delivered {
            Some(delivered) if delivered.messages > 0 => CliError::lost(delivered),
            _ => CliError::NoSession {
                session: args.session.clone(),
            },
        });
    }
    // Counted before the session is opened, because an open session makes more of them.
    let missing = match kept {
        Kept::This => Vectors::by(&engines, engine, &args.session),
        _ => None,
    };
    let missing = missing.map_or(0, |vectors| vectors.missing);
    let agent = window::choose(None, None, None, &engines.config().model).agent;
    let failed = |error: SessionError| match error {
        SessionError::Open(error @ OpenError::Settings { .. }) => CliError::of_open(error),
        SessionError::Record(error) => CliError::Sessions(error),
        error => CliError::EngineFailed {
            because: "a tool is its engine's alone",
            reason: Lines(error.to_string()),
        },
    };
    // To read beside the agent that has the session open, and to take no part in it.
    let options = SessionOptions {
        engine: Some(engine.to_owned()),
        beside: Some(Arc::clone(&store)),
        ..SessionOptions::default()
    };
    let open = |engines: &Arc<Engines>| {
        Session::open(engines, None, &args.session, agent.clone(), options.clone())
    };
    // A question leaves nothing behind.
    let mut copy = match engines.loaded().home.join("engines").join(engine).exists() {
        false => Some(Rehearsal::of(&engines, None, None)?),
        true => None,
    };
    let opened = match open(copy.as_ref().map_or(&engines, Rehearsal::engines)) {
        // An engine opens what it can write. A copy can be written, and what is asked only reads.
        Err(error) if kept == Kept::This && is_of_storage(&error) => {
            match Rehearsal::of_kept(&engines, engine) {
                Ok(made) => open(copy.insert(made).engines()),
                Err(_) => Err(error),
            }
        }
        opened => opened,
    };
    let mut session = opened.map_err(failed)?;
    if let Some(delivered) = delivered.filter(|_| kept == Kept::This) {
        let seen = session.observed_through().map_err(failed)?;
        if seen.map(|seen| seen.last) < delivered.last {
            terminal::say(&format!(
                "{}\n",
                terminal::warning(&older_store(&delivered, seen.map(|seen| seen.last)))
            ));
        }
    }
    let tools = session.tools().map_err(failed)?;
    let Some(name) = &args.name else {
        match args.json {
            true => output::print_json(&serde_json::json!({"tools": tools}))?,
            false => output::print(&list(&tools))?,
        }
        return Ok(OK);
    };
    let Some(tool) = tools.iter().find(|tool| tool.name == *name) else {
        let meant = did_you_mean(name, tools.iter().map(|tool| tool.name.as_str()));
        let elsewhere = match engine == KEEPER {
            true => false,
            false => Kept::by(&engines, KEEPER, &args.session)? == Kept::This,
        };
        let session = &args.session;
        return Err(CliError::NoTool {
            name: name.clone(),
            engine: engine.to_owned(),
            way_out: match tools.is_empty() {
                true if elsewhere => format!(
                    "`{engine}` has the session `{session}` now, and gives no tools to its agent; `{KEEPER}` has \
                     had it before: add --engine {KEEPER} to ask that one"
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
        terminal::say(&format!("{}\n", terminal::warning(&what)));
    }
    let answer = session.call_tool(call).map_err(|error| match error {
        SessionError::Call(CallError::Failed {
            error: EngineError::InvalidInput(why),
            ..
        }) => refused(why),
        SessionError::Call(CallError::Failed {
            error: error @ EngineError::Unsupported(_),
            ..
        }) => CliError::Refused(Lines(error.to_string())),
        error => failed(error),
    })?;
    output::print(&format!("{answer}\n"))?;
    let wished = session.wants_restored().map_err(failed)?;
    if !wished.is_empty() {
        drop(session);
        note_wished(&engines, &args.session, &wished)?;
    }
    Ok(OK)
}

/// Records which messages to restore with the session's next request.
fn note_wished(engines: &Engines, id: &str, wished: &[MessageId]) -> Result<(), CliError> {
    let store = setup::open_store(engines)?;
    let _hold = store
        .hold(id, SessionOptions::default().wait)
        .map_err(CliError::Sessions)?;
    let noted = store
        .wish_restored(id, Some(wished))
        .map_err(CliError::Sessions)?;
    if !noted.is_empty() {
        terminal::say(&format!(
            "{} will stand in the conversation again with its next request\n",
            counted(noted.len() as u64, "message")
        ));
    }
    Ok(())
}

/// Whether the engine has no use of its store.
fn is_of_storage(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::Open(OpenError::Call(CallError::Failed {
            error: EngineError::Storage(_),
            ..
        }))
    )
}

/// What to say of an engine whose last message of a session is `kept`, and not the last one that was delivered.
pub(crate) fn older_store(delivered: &Delivered, kept: Option<MessageId>) -> String {
    let Delivered {
        session,
        engine,
        last,
        messages,
    } = delivered;
    let kept = kept.map_or_else(
        || "it has none of them".to_owned(),
        |kept| format!("{kept} is its last"),
    );
    format!(
        "the engine `{engine}` has not all of the {} messages of the session `{session}` that were delivered \
         to it, up to {}: {kept}. Its store is an older one, or lost its log (the file with -wal at its end). The \
         session's next turn delivers them again, and so does `contexture import FILE --session {session}`",
        grouped(*messages),
        last.unwrap_or_default(),
    )
}

/// The arguments as they were given, or from stdin.
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

/// What a tool takes, by the schema of its arguments.
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

/// The tools, a line each: its name and the first sentence on it.
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
