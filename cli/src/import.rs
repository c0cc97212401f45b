//! `contexture import`: puts a recorded conversation into an engine's store.
//!
//! With `--all`, the logs of all agents go into the history instead, see `import_all`.
//!
//! [`one`] reads the recording, opens the session and plays the messages to the engine in a single
//! turn without a compaction. A session log is imported as a whole, with the messages that its
//! agent compacted away. The session then continues at the point where the agent would.
//!
//! Before anything changes, [`check`] compares the recording with the session and refuses a file
//! that belongs to another session or is an older version of this one. Importing the same file
//! again stores nothing twice. At the end, vectors are made for the new messages if the engine has
//! an embedder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use contexture_engine_api::StoreCommand;
use serde_json::{Value, json};

use crate::choice::{EngineChoice, KEEPER};
use crate::error::CliError;
use crate::human::counted;
use crate::kept::{self, Vectors};
use crate::terminal::{self, Progress};
use crate::{Global, OK, import_all, input, output, sessions, start, window};
use contexture::config::OnFailure;
use contexture::engines::Engines;
use contexture::formats::{Conversation, Format};
use contexture::session::{
    Compact, Comparison, Record, Session, SessionError, SessionOptions, TurnOptions,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture import --all
  contexture import --all --watch
  contexture import --all ~/Downloads/chatgpt-export
  contexture import ~/.claude/projects/p/s.jsonl --session p
  contexture import corpus.jsonl --session corpus

With --all, the logs of every agent on this machine are found, and what is new in them is read into the history, which `contexture search` searches. The logs are not changed. Files and folders that are named with --all are read in place of the agents' own; this is how exports and files in the formats of `compress` get into the history. What cannot be read is listed under `skipped`.

Without --all, one conversation goes into a session. It has a format of `compress`, such as JSON lines with one message each and an optional `ts` (Unix seconds). A session log is imported completely, including messages that its agent compacted away. The agent's summaries are stored as messages of the agent. The session resumes where the agent would. What the session holds already is not stored again. A file that is only the beginning of what the session holds, or has nothing in common with it, is refused. The system prompt is not imported.

Exit codes: 0 imported, 2 wrong usage, input or configuration, 3 the engine, its store or the record of sessions failed.")]
pub(crate) struct ImportArgs {
    /// A conversation; `-` is stdin. With --all: logs, or folders with logs
    #[arg(value_name = "FILE", required_unless_present = "all")]
    files: Vec<PathBuf>,
    /// The session to create or continue
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new(), required_unless_present = "all")]
    session: Option<String>,
    /// Read the logs of all agents on this machine into the history
    #[arg(long, conflicts_with_all = ["session", "engine", "format", "strict", "select"])]
    all: bool,
    /// Keep importing new lines until Ctrl-C
    #[arg(long, requires = "all")]
    watch: bool,
    /// The engine [default: the one that the configuration names as context.engine, else the
    /// session's own, else lcm]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Let the engine named with --engine take over the session from the engine that has it
    #[arg(long, requires = "engine")]
    rebind: bool,
    /// The format of the input [default: detected]
    #[arg(long)]
    format: Option<Format>,
    /// Refuse a log with unreadable lines instead of skipping them
    #[arg(long)]
    strict: bool,
    /// If the file has several conversations, use the N-th (from 1)
    #[arg(long, value_name = "N")]
    select: Option<usize>,
}

/// Imports the file and prints what was stored, as JSON. Returns 0 unless there is an error.
///
/// # Errors
/// Fails if the file cannot be read or is refused, or if the engine or its store fails. No other
/// engine takes over after a failure, because the import is meant for this one.
pub(crate) fn run(args: &ImportArgs, global: &Global) -> Result<u8, CliError> {
    let (Some(session), false) = (&args.session, args.all) else {
        return import_all::run(&args.files, args.watch, global);
    };
    let [file] = &args.files[..] else {
        return Err(CliError::usage(
            "a session is imported from one file",
            "name one file, or leave --session out and use --all to read all of them into the history",
        ));
    };
    one(args, file, session, global)
}

/// What is imported: a conversation, and the name of its file for messages.
struct Source {
    name: String,
    /// The conversation with which its agent goes on.
    conversation: Arc<Conversation>,
    /// The conversation with what the agent compacted away. None if it compacted nothing.
    whole: Option<Arc<Conversation>>,
}

impl Source {
    /// Returns everything that was said, including what the agent compacted away.
    fn history(&self) -> &Arc<Conversation> {
        self.whole.as_ref().unwrap_or(&self.conversation)
    }
}

/// Imports one conversation into a session.
fn one(args: &ImportArgs, file: &Path, session_id: &str, global: &Global) -> Result<u8, CliError> {
    let mut loaded = start::load_config(global)?;
    loaded.config.context.on_failure = OnFailure::Fail;
    let engines = start::open_engines(loaded, global.offline, None)?;
    let store = start::open_store(&engines)?;
    let source = read_one(args, file)?;
    let history = source.history();
    let choice = EngineChoice {
        session: Some(session_id),
        own: start::engine_of(&store, session_id)?,
        named: args.engine.as_deref(),
        rebind: args.rebind,
    };
    let engine = engine_for(&choice, &engines)?;
    let model = source.conversation.model();
    let agent = window::choose(None, None, model, engines.config()).agent;
    let options = SessionOptions::default().engine(Some(engine.clone()));
    let opened = Session::open(&engines, Some(&store), session_id, agent, options);
    let mut session = opened.map_err(failed)?;
    let compared = session.compare(history).map_err(failed)?;
    check(&compared, &source.name, session_id)?;
    let new = play(&mut session, history)?;
    if source.whole.is_some() {
        session.resume_log(&source.conversation, history);
    }
    for warning in session.take_warnings() {
        terminal::warn(&warning);
    }
    session.end().map_err(failed)?;
    // Somebody may have deleted the record during the import. The messages would be lost without an
    // error.
    store.check_exists()?;
    let vectors = make_vectors(&engines, &store, &engine, session_id);
    if source.conversation.system().is_some() {
        terminal::note(
            "the system prompt was not imported: it comes with every request and is not part of the history",
        );
    }
    output::print_json(&json_of(session_id, &engine, &source, new, vectors))?;
    Ok(OK)
}

fn failed(error: SessionError) -> CliError {
    CliError::of_session(error, "an import is for one engine")
}

/// Reads the file and prints the warnings about it. Fails if it does not hold one conversation.
fn read_one(args: &ImportArgs, file: &Path) -> Result<Source, CliError> {
    let mut read = input::read(file, args.format, args.strict)?;
    input::select(&mut read, args.select)?;
    read.require_one_for("a session")?;
    let Some(conversation) = read.conversations.pop() else {
        return Err(CliError::NoConversation { input: read.name });
    };
    for warning in conversation.warnings() {
        terminal::warn(warning);
    }
    let whole = (conversation.whole())
        .map_err(|source| CliError::of_format(read.name.clone(), source))?
        .map(Arc::new);
    Ok(Source {
        name: read.name,
        conversation: Arc::new(conversation),
        whole,
    })
}

/// Returns the engine into which to import, and notes if it is not the configured one. Fails if it
/// keeps no sessions.
fn engine_for(choice: &EngineChoice<'_>, engines: &Engines) -> Result<String, CliError> {
    let loaded = engines.loaded();
    let chosen = choice.engine(loaded)?;
    let engine = chosen.as_deref().or(loaded.written_engine());
    let engine = engine.unwrap_or(KEEPER);
    if kept::list(engines, engine)?.is_none() {
        return Err(CliError::usage(
            format!("the engine `{engine}` keeps no sessions, so nothing can be imported into one"),
            match &choice.own {
                Some(own) if own != KEEPER => {
                    format!(
                        "name one that does, and have it take the session over: --engine {KEEPER} --rebind"
                    )
                }
                _ => format!("name one that does, with --engine {KEEPER}"),
            },
        ));
    }
    if let Some(note) = choice.note(engine, loaded) {
        terminal::note(&note);
    }
    Ok(engine.to_owned())
}

/// Shows the messages to the session's engine, without a compaction. Returns how many of them the
/// engine did not have. If an earlier import was interrupted, the host knows more of them than the
/// engine.
fn play(session: &mut Session, history: &Arc<Conversation>) -> Result<usize, CliError> {
    let progress = Progress::new(history.messages().len(), "importing");
    let mut new = 0;
    let shown = &mut |messages| {
        new += messages;
        (0..messages).for_each(|_| progress.step());
    };
    // The recording decides what the window is, so the engine must not compact it here.
    let options = TurnOptions::default().compact(Compact::Never);
    let turn = session.turn_over(history, &options, shown);
    turn.map_err(failed)?;
    Ok(new)
}

/// Returns what the command prints about an import, of which the engine did not have `new` messages.
fn json_of(
    session: &str,
    engine: &str,
    source: &Source,
    new: usize,
    vectors: Option<Vectors>,
) -> Value {
    let mut answer = json!({
        "session": session,
        "engine": engine,
        "messages": source.history().messages().len(),
        "new": new,
    });
    if source.whole.is_some() {
        // The number of messages with which the agent continues, its summary included.
        answer["window"] = json!(source.conversation.messages().len());
    }
    if source.conversation.system().is_some() {
        answer["system_prompt"] = json!("not imported");
    }
    if let Some(vectors) = vectors {
        answer["embedded"] = json!(vectors.made);
    }
    answer
}

/// Makes the missing vectors of the session's messages, if the engine makes any. Returns the
/// counts, or `None` if it makes none. The import is complete in any case, so a failure is only a
/// warning.
fn make_vectors(
    engines: &Arc<Engines>,
    store: &Arc<Record>,
    engine: &str,
    session: &str,
) -> Option<Vectors> {
    let vectors = Vectors::by(engines, engine, session)?;
    if vectors.missing == 0 {
        return Some(vectors);
    }
    // The engine can read the texts of a session only while the session is open.
    let _open = sessions::read_only(engines, store, session, engine).ok();
    let ask = |command| {
        let answer = engines.manage(Some(engine), &command);
        answer.map_err(CliError::of_keeper)
    };
    let command = StoreCommand::Index {
        session: Some(session.to_owned()),
        dry_run: false,
    };
    match sessions::ask_long(&ask, "making vectors", command) {
        Ok(index) => Vectors::of(&kept::read(index)),
        Err(error) => {
            terminal::warn(&format!(
                "the messages are imported, but not all have vectors: {error}; `contexture sessions index {session}` \
                 makes the missing ones"
            ));
            Some(vectors)
        }
    }
}

/// Refuses a file that probably belongs to another session, or that is an older version of this
/// one. If parts of the session are missing from the file, a warning says how many.
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
        ..
    } = *compared;
    // A session that has messages must share at least one with the file, otherwise two
    // conversations would be mixed.
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
    let mut differs = Vec::new();
    if cut > 0 {
        let messages = counted(cut as u64, "message");
        differs.push(format!("lacks the last {messages} of the session"));
    }
    if revised > 0 {
        let messages = counted(revised as u64, "message");
        differs.push(format!("has {messages} of the session in a different form"));
    }
    if !differs.is_empty() {
        terminal::warn(&format!(
            "{file} {}. The stored versions are kept and stay searchable",
            differs.join(" and ")
        ));
    }
    Ok(())
}
