//! `contexture import`: a recorded conversation into an engine's store.

use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture_engine_api::StoreCommand;
use serde_json::json;

use crate::choice::{KEEPER, Wish};
use crate::error::{CliError, Lines};
use crate::figures::{counted, grouped};
use crate::kept::{Kept, Vectors};
use crate::terminal::{self, Progress};
use crate::{Global, OK, input, output, sessions, setup, window};
use contexture::config::OnFailure;
use contexture::engines::{Engines, OpenError};
use contexture::formats::Format;
use contexture::session::{
    Compact, Comparison, Record, RecordError, Session, SessionError, SessionOptions, TurnOptions,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture import ~/.claude/projects/p/s.jsonl --session p
  contexture import corpus.jsonl --session corpus

Every format of `compress` is read, and one message a line, with its time in `ts` (Unix seconds) where it
has one. A session log is kept whole: what its agent compacted away and the agent's summaries, too, which stand
there as the agent's own messages; the session goes on where the agent would. What the session holds already is
not stored again. A file that is only the beginning of what the
session holds, or has nothing in common with it, is refused. A system prompt is no part of the history, and is
not kept.

Exit codes: 0 imported, 2 wrong usage, input or configuration, 3 the engine, its store or the record
of sessions failed.")]
pub(crate) struct ImportArgs {
    /// A conversation; `-` is stdin
    file: PathBuf,
    /// The session that it becomes, or goes on with
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    session: String,
    /// The engine [default: what the configuration names as context.engine, else the session's own, else lcm]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Have the engine named with --engine take the session over from the one that has it
    #[arg(long, requires = "engine")]
    rebind: bool,
    /// The format of the input [default: detected]
    #[arg(long)]
    format: Option<Format>,
    /// Refuse a log with a line that cannot be read, instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// Of a file with several conversations, take the N-th (from 1)
    #[arg(long, value_name = "N")]
    select: Option<usize>,
}

pub(crate) fn run(args: &ImportArgs, global: &Global) -> Result<u8, CliError> {
    let mut loaded = setup::load_config(global)?;
    loaded.config.context.on_failure = OnFailure::Fail;
    let engines = setup::open_engines(loaded, global.offline, None)?;
    let store = setup::open_store(&engines)?;
    let mut read = input::read(&args.file, args.format, args.strict)?;
    input::select(&mut read, args.select)?;
    let count = read.conversations.len();
    let conversation = match (read.conversations.pop(), count) {
        (Some(conversation), 1) => Arc::new(conversation),
        _ => {
            return Err(CliError::usage(
                format!(
                    "{} holds {}, and a session is one",
                    read.name,
                    counted(count as u64, "conversation")
                ),
                "choose one with --select",
            ));
        }
    };
    for warning in conversation.warnings() {
        terminal::say(&format!("{}\n", terminal::warning(warning)));
    }

    let wish = Wish {
        session: Some(&args.session),
        own: setup::engine_of(&store, &args.session)?,
        named: args.engine.as_deref(),
        rebind: args.rebind,
    };
    let loaded = engines.loaded();
    let chosen = wish.engine(loaded)?;
    let engine = chosen.as_deref().or(loaded.written_engine());
    let engine = engine.unwrap_or(KEEPER);
    if Kept::by(&engines, engine, &args.session)? == Kept::Nothing {
        return Err(CliError::usage(
            format!("the engine `{engine}` keeps no sessions, so nothing can be imported into one"),
            match &wish.own {
                Some(own) if own != KEEPER => {
                    format!(
                        "name one that does, and have it take the session over: --engine {KEEPER} --rebind"
                    )
                }
                _ => format!("name one that does, with --engine {KEEPER}"),
            },
        ));
    }
    if let Some(note) = wish.note(engine, loaded) {
        terminal::say(&format!("{note}\n"));
    }
    // Everything that was said, including what the agent compacted away.
    let whole = (conversation.whole())
        .map_err(|source| CliError::of_format(read.name.clone(), source))?
        .map(Arc::new);
    let history = whole.as_ref().unwrap_or(&conversation);
    let configured = &engines.config().model;
    let agent = window::choose(None, None, conversation.model(), configured).agent;
    let failed = |error: SessionError| match error {
        SessionError::Open(error @ OpenError::Settings { .. }) => CliError::of_open(error),
        error => CliError::EngineFailed {
            because: "an import is for one engine",
            reason: Lines(error.to_string()),
        },
    };
    let options = SessionOptions {
        engine: Some(engine.to_owned()),
        ..SessionOptions::default()
    };
    let opened = Session::open(&engines, Some(&store), &args.session, agent, options);
    let mut session = opened.map_err(failed)?;
    let compared = session.compare(history).map_err(failed)?;
    check(&compared, &read.name, &args.session)?;
    let progress = Progress::new(history.messages().len(), "importing");
    let mut new = 0;
    let shown = &mut |messages| {
        new += messages;
        (0..messages).for_each(|_| progress.step());
    };
    let options = TurnOptions {
        compact: Compact::Never,
        ..TurnOptions::default()
    };
    let turn = session.turn_over(history, &options, shown);
    turn.map_err(failed)?;
    drop(progress);
    if whole.is_some() {
        session.resume_log(&conversation, history).map_err(failed)?;
    }
    for warning in session.take_warnings() {
        terminal::say(&format!("{}\n", terminal::warning(&warning)));
    }
    session.end().map_err(failed)?;
    check_kept(&engines, &store, engine, args)?;
    let vectors = make_vectors(&engines, engine, &args.session);
    let mut answer = json!({
        "session": args.session,
        "engine": engine,
        "messages": history.messages().len(),
        // What the engine had not got: more than is new to the host, where an import before this one was cut off.
        "new": new,
    });
    if whole.is_some() {
        // The number of messages with which the agent continues, including its summary.
        answer["window"] = json!(conversation.messages().len());
    }
    if conversation.system().is_some() {
        answer["system_prompt"] = json!("not among the messages");
        terminal::say(
            "note: the system prompt is not among the messages: it is no part of the history, and comes with every \
             request\n",
        );
    }
    if let Some(vectors) = vectors {
        answer["embedded"] = json!(vectors.made);
    }
    output::print_json(&answer)?;
    Ok(OK)
}

/// Makes the vectors that messages of the session lack, if the engine makes any. The import is complete in any case, so
/// a failure is only a warning.
fn make_vectors(engines: &Engines, engine: &str, session: &str) -> Option<Vectors> {
    let vectors = Vectors::by(engines, engine, session)?;
    if vectors.missing == 0 {
        return Some(vectors);
    }
    let ask = |command| {
        let answer = engines.manage(Some(engine), &command);
        answer.map_err(CliError::of_keeper)
    };
    let command = StoreCommand::Index {
        session: Some(session.to_owned()),
        dry_run: false,
    };
    match sessions::ask_long(&ask, "making vectors", command) {
        Ok(index) => Vectors::of(&index),
        Err(error) => {
            let what = format!(
                "the messages are imported, but not all have vectors: {error}; `contexture sessions index {session}` \
                 makes the missing ones"
            );
            terminal::say(&format!("{}\n", terminal::warning(&what)));
            Some(vectors)
        }
    }
}

/// Refuses to call kept what is not there any more: somebody may have removed the files meanwhile, which those who
/// have them open do not notice.
fn check_kept(
    engines: &Engines,
    store: &Record,
    engine: &str,
    args: &ImportArgs,
) -> Result<(), CliError> {
    let path = store.path().to_owned();
    if !path.exists() {
        return Err(CliError::Sessions(RecordError::Gone { path }));
    }
    let delivered = store.delivered(&args.session).map_err(CliError::Sessions)?;
    match delivered {
        Some(delivered)
            if delivered.messages > 0
                && Kept::by(engines, engine, &args.session)? == Kept::Others =>
        {
            Err(CliError::lost(delivered))
        }
        _ => Ok(()),
    }
}

/// Refuses what is taken for another session's file or for an older one of this session; says what of the
/// session a file does without.
fn check(compared: &Comparison, file: &str, session: &str) -> Result<(), CliError> {
    let refused = |what: String| {
        let way_out = "nothing was changed; import it as another session (--session), or remove this one first \
                       (`contexture sessions delete`)";
        Err(CliError::usage(what, way_out))
    };
    let Comparison {
        held,
        common,
        revised,
        new,
        cut,
    } = *compared;
    if held > 0 && common == 0 {
        return refused(format!(
            "{file} has no message in common with the session `{session}`"
        ));
    }
    if cut > 0 && new + revised == 0 {
        return refused(format!(
            "{file} is only the beginning of the session `{session}`, which has {} more",
            counted(cut as u64, "message")
        ));
    }
    if cut + revised > 0 {
        let warning = format!(
            "of the session's messages {} at its end are not in {file}, and {} are there in another form; what they \
             were stays stored, and is found",
            grouped(cut as u64),
            grouped(revised as u64)
        );
        terminal::say(&format!("{}\n", terminal::warning(&warning)));
    }
    Ok(())
}
