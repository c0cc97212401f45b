//! `contexture sessions`: manages the stored sessions.
//!
//! [`run`] dispatches the subcommands of [`SessionsCommand`]. The conversations are in the host's
//! record, a SQLite database or one of PostgreSQL, that this module reads and changes through
//! [`Record`]. What an engine derives from them, such as a search index, belongs to the engine: the
//! module asks for it with a [`StoreCommand`] and never touches the engine's files.
//!
//! Commands that delete something are dry runs unless the user passes `--yes`. If the record is
//! damaged, `verify` and `repair` examine the damaged file, and the other subcommands see an empty
//! record. Commands that may take long run through [`ask_long`], which shows their progress and
//! stops them on Ctrl-C.
//!
//! [`export`] prints and restores messages, [`index`] builds search indexes, [`repair`] checks and
//! repairs the record, and [`backup`] copies it. The shorter subcommands are here.

mod backup;
mod export;
mod index;
mod repair;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use contexture_engine_api::{MessageId, StoreCommand, unwatch_exit};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::choice;
use crate::error::CliError;
use crate::human::{age, grouped, size};
use crate::interrupt::watched;
use crate::kept::{self, CommandProgress};
use crate::terminal::{self, Progress, Table, one_line};
use crate::{Global, OK, output, start, window};
use contexture::config::TranscriptStore;
use contexture::engines::Engines;
use contexture::session::{Record, RecordError, Session, SessionOptions, SessionSummary};
pub(crate) use export::say_restored;

const TO_ITS_END: &str =
    "this command cannot stop halfway; press Ctrl-C again to abort it. Stored data stays intact\n";
/// How long a session that is in use is waited for before it is deleted.
const DELETE_WAIT: Duration = Duration::from_secs(2);
const STOPPING: &str = "stopping; press Ctrl-C again to abort at once\n";

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List sessions, without archived ones
    List {
        /// Include archived sessions
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Only the sessions that this engine has
        #[arg(long, value_name = "NAME")]
        engine: Option<String>,
    },
    /// Show one session
    Show {
        /// The session
        id: String,
        #[command(flatten)]
        of: Of,
    },
    /// Print the messages of a session as JSON, one per line
    ///
    /// `contexture import` reads the output again. If the record holds no texts, the output is what
    /// replaced messages in the window, with the state of the engine.
    #[command(after_long_help = "\
Examples:
  contexture sessions export work > work.jsonl
  contexture sessions export work --whole > history.jsonl")]
    Export {
        /// The session
        id: String,
        /// Print everything that the record has, in the order in which it was said: also what was edited
        /// or cut off, and what the agent compacted away itself
        #[arg(long)]
        whole: bool,
    },
    /// Put compacted messages back into the conversation
    ///
    /// They are back from the next request on, if their originals are stored. Prints them as
    /// `export` does.
    Restore {
        /// The session
        id: String,
        /// The messages, by the ids that `export` shows [default: all]
        #[arg(value_name = "MESSAGE", value_parser = export::message_id)]
        messages: Vec<MessageId>,
    },
    /// Archive a session. No data is deleted; using it again un-archives it
    Archive {
        /// The session
        id: String,
        /// Un-archive it
        #[arg(long)]
        undo: bool,
    },
    /// Delete a session, or all that have not been used for some time. A dry run unless you pass --yes
    Delete {
        /// The session
        #[arg(required_unless_present = "older_than")]
        id: Option<String>,
        /// Delete all sessions that were not used for this many days
        #[arg(long, value_name = "DAYS", conflicts_with = "id")]
        older_than: Option<u32>,
        /// Delete them
        #[arg(long)]
        yes: bool,
    },
    /// Build the search index now instead of in the background
    ///
    /// With an embedder (`context.engines.lcm.embedder`), this also builds the vectors by which a
    /// question finds text that shares no word with it.
    #[command(after_long_help = "\
Examples:
  contexture sessions index work        # after you set an embedder or stopped an import
  contexture sessions index --dry-run   # what is missing, session by session")]
    Index {
        /// The session [default: all]
        id: Option<String>,
        /// Build nothing, only report what is missing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Check everything that is stored; exits with 1 if something is wrong
    Verify(Of),
    /// Repair a damaged record of sessions; a dry run unless --yes
    ///
    /// Saves everything that can be read, and keeps a copy of the damaged file. Close all sessions
    /// first. Exits with 1 if something is still wrong.
    #[command(after_long_help = "\
Examples:
  contexture sessions repair         # what is wrong
  contexture sessions repair --yes   # repair it")]
    Repair {
        /// Repair it
        #[arg(long)]
        yes: bool,
    },
    /// Copy all stored data into a new folder, even while sessions are in use
    #[command(after_help = backup::PUT_BACK)]
    Backup {
        /// The new folder or file
        to: PathBuf,
    },
    /// Reclaim disk space that is no longer needed; a dry run unless --yes
    Gc {
        /// Reclaim it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        of: Of,
    },
}

/// The engine that a command asks for its derived data
#[derive(Debug, clap::Args)]
pub(crate) struct Of {
    /// The engine whose derived data to use [default: the session's own. For all sessions: the
    /// configured engine if it derives data, otherwise lcm]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

pub(crate) fn run(command: &SessionsCommand, global: &Global) -> Result<u8, CliError> {
    let engines = start::open_engines(start::load_config(global)?, global.offline, None)?;
    let store = open(command, &engines)?;
    match command {
        SessionsCommand::List { all, json, engine } => {
            let mut sessions = store.sessions()?;
            sessions.retain(|session| {
                (*all || session.archived_ms.is_none())
                    && engine
                        .as_ref()
                        .is_none_or(|engine| session.engine == *engine)
            });
            list(&store, &sessions, *json, global)
        }
        SessionsCommand::Show { id, of } => show(&engines, &store, id, of),
        SessionsCommand::Export { id, whole } => export::export(&engines, &store, id, *whole),
        SessionsCommand::Restore { id, messages } => export::restore(&store, id, messages),
        SessionsCommand::Archive { id, undo } => archive(&store, id, *undo),
        SessionsCommand::Delete {
            id,
            older_than,
            yes,
        } => delete(&engines, &store, id.as_deref(), *older_than, *yes),
        SessionsCommand::Index { id, dry_run, of } => {
            index::index(&engines, &store, of, id.as_deref(), *dry_run)
        }
        SessionsCommand::Verify(of) => repair::verify(&engines, &store, of),
        SessionsCommand::Repair { yes } => repair::repair(&engines, *yes),
        SessionsCommand::Backup { to } => backup::back_up(&engines, to),
        SessionsCommand::Gc { yes, of } => gc(&engines, &store, of, *yes),
    }
}

/// Opens the record of sessions as the command needs it.
fn open(command: &SessionsCommand, engines: &Engines) -> Result<Arc<Record>, CliError> {
    let writes = matches!(
        command,
        SessionsCommand::Delete { yes: true, .. }
            | SessionsCommand::Restore { .. }
            | SessionsCommand::Archive { .. }
            | SessionsCommand::Gc { yes: true, .. }
    );
    let store = match writes {
        true => start::open_store(engines),
        false => start::open_store_to_read(engines),
    };
    let is_about_the_record = matches!(
        command,
        SessionsCommand::Verify(_) | SessionsCommand::Repair { .. }
    );
    match store {
        // A damaged record must not keep the user from checking or repairing it, so an empty one
        // stands in for it.
        Err(CliError::Sessions(damage)) if is_about_the_record && damage.is_damage() => {
            let home = &engines.loaded().home;
            Ok(Record::standing_in(home, &damage.to_string())?)
        }
        store => store,
    }
}

/// Prints the sessions as a table or as JSON.
fn list(
    store: &Record,
    sessions: &[SessionSummary],
    as_json: bool,
    global: &Global,
) -> Result<u8, CliError> {
    match as_json {
        true => {
            let lines: Vec<Value> = sessions.iter().map(line).collect();
            output::print_json(&json!({"store": store.path(), "sessions": lines}))?;
        }
        false => output::print_styled(&table(store, sessions, global))?,
    }
    Ok(OK)
}

/// Prints what the record says about a session, and what the engine adds to it.
fn show(engines: &Engines, store: &Record, id: &str, of: &Of) -> Result<u8, CliError> {
    let session = known(store, id)?;
    let engine = of.engine.as_deref().unwrap_or(&session.engine);
    let mut shown = line(&session);
    shown["in_conversation"] = json!(session.in_conversation);
    let command = StoreCommand::Show {
        session: id.to_owned(),
    };
    if let Some(Value::Object(derived)) = derived(engines, engine, &command)? {
        for (key, value) in derived {
            // What the engine derives may be behind, so the record takes precedence.
            if shown.get(&key).is_none() {
                shown[key] = value;
            }
        }
    }
    output::print_json(&shown)?;
    Ok(OK)
}

fn archive(store: &Record, id: &str, undo: bool) -> Result<u8, CliError> {
    known(store, id)?;
    let at = store.archive(id, !undo)?;
    output::print_json(&json!({"session": id, "archived": at.map(time)}))?;
    Ok(OK)
}

/// Reclaims the disk space of the record and of the engine. Without `yes` this only reports how much
/// there is.
fn gc(engines: &Engines, store: &Record, of: &Of, yes: bool) -> Result<u8, CliError> {
    let freed = store.shrink(!yes)?;
    let engine = choice::keeper(engines, of.engine.as_deref(), None)?;
    let command = StoreCommand::Gc { dry_run: !yes };
    let ask = |command| ask(engines, &engine, command);
    let mut answer = match kept::list(engines, &engine)? {
        Some(_) => ask_long(&ask, "giving back", command)?,
        None => json!({"dry_run": !yes}),
    };
    let of_engine = answer["freed_bytes"].as_u64().unwrap_or(0);
    answer["freed_bytes"] = json!(freed + of_engine);
    done(&answer, yes)
}

/// Returns the stored session with this id.
///
/// # Errors
/// Fails with [`CliError::NoSession`] if the record has no such session, or if the record cannot be
/// read.
fn known(store: &Record, id: &str) -> Result<SessionSummary, CliError> {
    let found = store.session(id)?;
    found.ok_or_else(|| CliError::NoSession {
        session: id.to_owned(),
    })
}

/// Formats a time in milliseconds since the Unix epoch as RFC 3339. Returns an empty text if the
/// time is out of range.
fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

/// Returns when a session was last used, in milliseconds since the Unix epoch: the time of its last
/// message or of the last write, whichever is later. A time in the future comes from a wrong clock,
/// so it counts only if there is no other.
fn last_use(session: &SessionSummary) -> i64 {
    let times = [
        Some(session.used_ms),
        session.said_ms,
        Some(session.created_ms),
    ];
    let now = days_ago_ms(0);
    let times = times.into_iter().flatten();
    let past = times.clone().filter(|at| *at <= now);
    past.max().or(times.max()).unwrap_or(0)
}

/// Returns what `list` and `show` print of a session as JSON. Sizes are in bytes, times are RFC
/// 3339, and `last_message` is null if no message has a time.
fn line(session: &SessionSummary) -> Value {
    json!({
        "session": session.session,
        "engine": session.engine,
        "messages": session.messages,
        "bytes": session.bytes,
        "created": time(session.created_ms),
        "last_used": time(last_use(session)),
        "last_message": session.said_ms.map(time),
        "archived": session.archived_ms.map(time),
    })
}

/// The most characters of an id in the table, which is as wide as the longest. `--json` shows all.
const MAX_ID_CHARS: usize = 100;

/// Renders the sessions as a table, each with the engine that has it now, and the path of the
/// record below. If no sessions are stored, a sentence takes the place of the table.
fn table(store: &Record, sessions: &[SessionSummary], global: &Global) -> String {
    let heads = ["ID", "MESSAGES", "ENGINE", "LAST USED", "SIZE"];
    let mut table = Table::new(heads).with_numbers(&["MESSAGES", "LAST USED", "SIZE"]);
    for session in sessions {
        let used = Timestamp::from_millisecond(last_use(session));
        let used = used.map_or_else(|_| "–".to_owned(), |time| age(time.into()));
        let mut shown = one_line(&session.session, MAX_ID_CHARS);
        if session.archived_ms.is_some() {
            shown.push_str(" (archived)");
        }
        let engine = match session.engine.as_str() {
            "" => "–",
            engine => engine,
        };
        table.row([
            &shown,
            &grouped(session.messages),
            engine,
            &used,
            &size(session.bytes),
        ]);
    }
    let mut text = match sessions {
        [] => "no sessions are kept\n".to_owned(),
        _ => table.render(global.color.on(output::is_terminal())),
    };
    let path = store.path().display().to_string();
    text.push_str(&format!("\nstore: {}\n", terminal::visible(&path)));
    text
}

/// Sends a command to an engine and returns its answer. Fails if the engine derives nothing, or if
/// it does not know the session.
fn ask(engines: &Engines, engine: &str, command: StoreCommand) -> Result<Value, CliError> {
    let answer = engines.manage(Some(engine), &command);
    answer.map_err(CliError::of_keeper)
}

/// Sends a command to an engine. Returns `None` if the engine derives nothing at all or nothing
/// from this session, or if `engine` is empty because no engine has the session.
fn derived(
    engines: &Engines,
    engine: &str,
    command: &StoreCommand,
) -> Result<Option<Value>, CliError> {
    if engine.is_empty() {
        return Ok(None);
    }
    match engines.manage(Some(engine), command) {
        Err(error) if error.refusal().is_some() => Ok(None),
        answer => answer.map(Some).map_err(CliError::of_keeper),
    }
}

/// Deletes a session, or all sessions that were not used for `older_than` days, together with what
/// their engines derived from them. Without `yes` this only reports what would be deleted.
fn delete(
    engines: &Engines,
    store: &Record,
    id: Option<&str>,
    older_than: Option<u32>,
    yes: bool,
) -> Result<u8, CliError> {
    let before = days_ago_ms(older_than.unwrap_or(u32::MAX));
    let is_chosen = |session: &SessionSummary| id.is_some() || last_use(session) < before;
    let found = match id {
        Some(id) => vec![known(store, id)?],
        None => store.sessions()?,
    };
    let mut chosen = Vec::new();
    for session in found.into_iter().filter(is_chosen) {
        let name = &session.session;
        if yes {
            let hold = match store.hold(name, DELETE_WAIT) {
                Err(RecordError::InUse { .. }) if id.is_none() => {
                    terminal::note(&format!("the session `{name}` is in use, so it stays"));
                    continue;
                }
                hold => hold?,
            };
            // It may have been used until now.
            if !store.session(name)?.as_ref().is_some_and(is_chosen) {
                continue;
            }
            store.forget(name, &hold)?;
            (engines.forget(&session.engine, name)).map_err(CliError::of_keeper)?;
        }
        chosen.push(session);
    }
    let names: Vec<&str> = chosen.iter().map(|one| one.session.as_str()).collect();
    let answer = json!({
        "dry_run": !yes,
        "sessions": names,
        "messages": chosen.iter().map(|one| one.messages).sum::<u64>(),
        "bytes": chosen.iter().map(|one| one.bytes).sum::<u64>(),
    });
    done(&answer, yes)
}

/// Prints the answer of a command that deletes something. After a dry run, a note tells the user to
/// add `--yes`.
fn done(answer: &Value, yes: bool) -> Result<u8, CliError> {
    output::print_json(answer)?;
    if !yes {
        terminal::say("nothing was removed; add --yes to do it\n");
    }
    Ok(OK)
}

/// Opens a session for reading only, without waiting for whoever else has it open. Use it to give
/// an engine access to the texts of a session.
///
/// # Errors
/// Fails if the engine cannot open the session.
pub(crate) fn read_only(
    engines: &Arc<Engines>,
    store: &Arc<Record>,
    id: &str,
    engine: &str,
) -> Result<Session, CliError> {
    let agent = window::choose(None, None, None, engines.config()).agent;
    let options = SessionOptions::default()
        .engine(Some(engine.to_owned()))
        .read_only(Some(Arc::clone(store)));
    let opened = Session::open(engines, None, id, agent, options);
    opened.map_err(|error| CliError::of_session(error, "what it derives of a session is its own"))
}

/// Sends a command that may take long, and shows a progress bar if the engine reports a total. On
/// Ctrl-C the engine is asked to stop, which it does for every command but a garbage collection. A
/// second Ctrl-C ends the process at once.
pub(crate) fn ask_long(
    ask: &(dyn Fn(StoreCommand) -> Result<Value, CliError> + Sync),
    what: &str,
    command: StoreCommand,
) -> Result<Value, CliError> {
    let on_interrupt = match command {
        StoreCommand::Gc { .. } => TO_ITS_END,
        _ => STOPPING,
    };
    let mut bar = None;
    let tick = |is_pressed| {
        if is_pressed {
            // This is repeated on every tick, because the command may not have begun when Ctrl-C was
            // pressed.
            let _ = ask(StoreCommand::Cancel);
        }
        let Ok(far) = ask(StoreCommand::Progress) else {
            return;
        };
        let CommandProgress { done, total } = kept::read(far);
        if total > 0 {
            let bar = bar.get_or_insert_with(|| Progress::new(total as usize, what));
            bar.reach(done, total);
        }
    };
    watched(|| terminal::say(on_interrupt), tick, || ask(command))
}

/// Runs `work`, which only reads, or writes only what `clean_up` removes. Ctrl-C cleans up and ends
/// the process.
fn stoppable<T>(clean_up: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> T {
    let stop = || -> () {
        terminal::say(STOPPING);
        clean_up();
        CliError::Stopped.print(false);
        unwatch_exit();
        std::process::exit(CliError::Stopped.exit_code().into())
    };
    watched(stop, |_| {}, work)
}

/// Refuses a command that works on the file of sessions, if they are in a database.
fn require_file(engines: &Engines, instead: &str) -> Result<(), CliError> {
    match engines.loaded().config.transcript.store {
        TranscriptStore::Sqlite => Ok(()),
        TranscriptStore::Postgres => Err(CliError::usage(
            "the sessions are in a database (`transcript.store` is `postgres`), and this command works on a file",
            instead,
        )),
    }
}

/// Returns the time this many days ago, in milliseconds since the Unix epoch. If the clock is
/// before the epoch, the result is negative, so that nothing is old enough to be deleted.
fn days_ago_ms(days: u32) -> i64 {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    contexture::now_ms() - i64::from(days) * DAY_MS
}
