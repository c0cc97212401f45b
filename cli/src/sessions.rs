//! `contexture sessions`: manages the stored sessions.
//!
//! [`run`] dispatches the subcommands of [`SessionsCommand`]. The conversations are in the host's
//! record, a SQLite database that this module reads and changes through [`Record`]. What an engine
//! derives from them, such as a search index, belongs to the engine: the module asks for it with a
//! [`StoreCommand`] and never touches the engine's files.
//!
//! Commands that delete something are dry runs unless the user passes `--yes`. If the record is
//! damaged, `verify` and `repair` examine the damaged file, and the other subcommands see an empty
//! record. Commands that may take long run through [`ask_long`], which shows their progress and
//! stops them on Ctrl-C.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Subcommand;
use contexture_engine_api::{MessageId, StoreCommand, TranscriptRange, unwatch_exit};
use contexture_tiered::COMPACTION_KEY;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::choice;
use crate::error::CliError;
use crate::human::{age, counted, grouped, size};
use crate::interrupt::Interrupt;
use crate::kept::{self, CommandProgress, DerivedIndex, IndexedSession};
use crate::terminal::{self, Progress, Table, one_line};
use crate::{Global, NEGATIVE, OK, output, start, window};
use contexture::config::{Loaded, TranscriptStore};
use contexture::engines::Engines;
use contexture::formats;
use contexture::session::{
    Placed, Record, Session, SessionOptions, SessionSummary, open_record_to_read,
};

/// How often [`ask_long`] asks for the progress of a command and checks whether the user pressed
/// Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

const TO_ITS_END: &str =
    "this runs to its end; Ctrl-C again ends it at once, and what is kept stays whole\n";
const STOPPING: &str = "stopping; Ctrl-C again ends it at once\n";

const PUT_BACK: &str = "\
The folder is laid out as a home directory: sessions.sqlite3 is the record of sessions. To restore a backup, close all sessions, move the existing sessions.sqlite3, sessions.sqlite3-wal and sessions.sqlite3-shm aside, and copy the content of the folder into $CONTEXTURE_HOME. Search indexes, plugins and config.yaml are not backed up. Engines rebuild their indexes.";

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
        /// Include what the agent of an imported log compacted away
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
        #[arg(value_name = "MESSAGE", value_parser = message_id)]
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
    /// Delete a session, or all that were not used for some time; a dry run unless --yes
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
    /// Copy everything that is kept into a new folder; sessions may be in use
    #[command(after_help = PUT_BACK)]
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
    /// The engine whose derived data is meant [default: the session's own; of all sessions the
    /// configured one if it derives anything, else lcm]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

pub(crate) fn run(command: &SessionsCommand, global: &Global) -> Result<u8, CliError> {
    let engines = start::open_engines(start::load_config(global)?, global.offline, None)?;
    let writes = matches!(
        command,
        SessionsCommand::Delete { yes: true, .. }
            | SessionsCommand::Restore { .. }
            | SessionsCommand::Archive { .. }
            | SessionsCommand::Gc { yes: true, .. }
    );
    let store = match writes {
        true => start::open_store(&engines),
        false => start::open_store_to_read(&engines),
    };
    let is_about_the_record = matches!(
        command,
        SessionsCommand::Verify(_) | SessionsCommand::Repair { .. }
    );
    let store = match store {
        // A damaged record must not keep the user from checking or repairing it, so an empty one
        // stands in for it.
        Err(CliError::Sessions(damage)) if is_about_the_record && damage.is_damage() => {
            let home = &engines.loaded().home;
            Record::standing_in(home, &damage.to_string()).map_err(CliError::Sessions)?
        }
        store => store?,
    };
    match command {
        SessionsCommand::List { all, json, engine } => {
            let mut sessions = store.sessions().map_err(CliError::Sessions)?;
            sessions.retain(|session| *all || session.archived_ms.is_none());
            if let Some(engine) = engine {
                sessions.retain(|session| session.engine == *engine);
            }
            let lines: Vec<Value> = sessions.iter().map(line).collect();
            match json {
                true => {
                    output::print_json(&json!({"store": store.path(), "sessions": lines}))?;
                }
                false => output::print_styled(&table(&store, &sessions, global))?,
            }
            Ok(OK)
        }
        SessionsCommand::Show { id, of } => {
            let session = known(&store, id)?;
            let engine = of.engine.as_deref().unwrap_or(&session.engine);
            let mut shown = line(&session);
            shown["in_conversation"] = json!(session.in_conversation);
            let command = StoreCommand::Show {
                session: id.clone(),
            };
            if let Some(Value::Object(derived)) = derived(&engines, engine, &command)? {
                for (key, value) in derived {
                    // The engine only adds to what the record says, because what it derives may be
                    // behind.
                    if shown.get(&key).is_none() {
                        shown[key] = value;
                    }
                }
            }
            output::print_json(&shown)?;
            Ok(OK)
        }
        SessionsCommand::Export { id, whole } => export(&engines, &store, id, *whole),
        SessionsCommand::Restore { id, messages } => restore(&store, id, messages),
        SessionsCommand::Archive { id, undo } => {
            known(&store, id)?;
            let at = store.archive(id, !undo).map_err(CliError::Sessions)?;
            output::print_json(&json!({"session": id, "archived": at.map(time)}))?;
            Ok(OK)
        }
        SessionsCommand::Delete {
            id,
            older_than,
            yes,
        } => delete(&engines, &store, id.as_deref(), *older_than, *yes),
        SessionsCommand::Index { id, dry_run, of } => {
            let answer = index(&engines, &store, of, id.as_deref(), *dry_run)?;
            output::print_json(&answer)?;
            let index: DerivedIndex = kept::read(answer);
            let has_none = |session: &IndexedSession| session.embedded.is_none();
            if !index.sessions.is_empty() && index.sessions.iter().all(has_none) {
                terminal::note(
                    "no embedder is configured (context.engines.lcm.embedder), so questions find by words alone; \
                     `contexture embedder install` gets one",
                );
            }
            Ok(OK)
        }
        SessionsCommand::Verify(of) => {
            let (answer, ok) = verify(&engines, of)?;
            output::print_json(&answer)?;
            let is_empty = store.sessions().is_ok_and(|sessions| sessions.is_empty());
            if ok && is_empty {
                terminal::note("no sessions are kept here, so there was nothing to check");
            }
            Ok(if ok { OK } else { NEGATIVE })
        }
        SessionsCommand::Repair { yes } => {
            require_file(&engines, "put a backup of the database back (`pg_restore`)")?;
            repair(&engines, *yes)
        }
        SessionsCommand::Backup { to } => {
            require_file(
                &engines,
                "back up the database (`pg_dump --schema=contexture`), or copy its sessions into a file (`contexture \
                 store copy --from postgres --to sqlite`)",
            )?;
            let to = std::path::absolute(to).map_err(|source| CliError::Write {
                path: to.clone(),
                source,
            })?;
            if let Some(folder) = to.parent() {
                check_folder(folder, &to)?;
            }
            output::print_json(&back_up(&engines, &to)?)?;
            Ok(OK)
        }
        SessionsCommand::Gc { yes, of } => {
            let freed = store.shrink(!yes).map_err(CliError::Sessions)?;
            let engine = choice::keeper(&engines, of.engine.as_deref(), None)?;
            let command = StoreCommand::Gc { dry_run: !yes };
            let ask = |command| ask(&engines, &engine, command);
            let mut answer = match kept::list(&engines, &engine)? {
                Some(_) => ask_long(&ask, "giving back", command)?,
                None => json!({"dry_run": !yes}),
            };
            let of_engine = answer["freed_bytes"].as_u64().unwrap_or(0);
            answer["freed_bytes"] = json!(freed + of_engine);
            done(&answer, *yes)
        }
    }
}

/// Returns the stored session with this id.
///
/// # Errors
/// Fails with [`CliError::NoSession`] if the record has no such session, or if the record cannot be
/// read.
fn known(store: &Record, id: &str) -> Result<SessionSummary, CliError> {
    let found = store.session(id).map_err(CliError::Sessions)?;
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
    let chosen = match (id, older_than) {
        (Some(id), _) => vec![known(store, id)?],
        (None, days) => {
            let before = days_ago_ms(days.unwrap_or(u32::MAX));
            let mut sessions = store.sessions().map_err(CliError::Sessions)?;
            sessions.retain(|session| last_use(session) < before);
            sessions
        }
    };
    if yes {
        for session in &chosen {
            store.forget(&session.session).map_err(CliError::Sessions)?;
            (engines.forget(&session.engine, &session.session)).map_err(CliError::of_keeper)?;
        }
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

/// Builds the search index of one session, or of all sessions of the engine if `id` is `None`. With
/// `dry_run` the engine only counts what is missing. The engine reads the texts of a session
/// through the record, so each session is open while it is indexed.
fn index(
    engines: &Arc<Engines>,
    store: &Arc<Record>,
    of: &Of,
    id: Option<&str>,
    dry_run: bool,
) -> Result<Value, CliError> {
    let own = match id {
        Some(id) => Some(known(store, id)?.engine).filter(|engine| !engine.is_empty()),
        None => None,
    };
    let engine = choice::keeper(engines, of.engine.as_deref(), own)?;
    let mut sessions = store.sessions().map_err(CliError::Sessions)?;
    sessions.retain(|session| match id {
        Some(id) => session.session == id,
        None => session.engine == engine,
    });
    let (mut lines, mut missing) = (Vec::new(), 0);
    for session in &sessions {
        let _open = match dry_run {
            true => None,
            false => Some(read_only(engines, store, &session.session, &engine)?),
        };
        let command = StoreCommand::Index {
            session: Some(session.session.clone()),
            dry_run,
        };
        let ask = |command| {
            let answer = engines.manage(Some(&engine), &command);
            match answer {
                // The engine has derived nothing from this session yet, so a dry run counts no
                // indexed message instead of failing.
                Err(error) if dry_run && error.refusal().is_some() => Ok(json!({
                    "sessions": [{
                        "session": session.session, "messages": session.messages, "indexed": 0, "embedded": null,
                    }],
                    "missing": 0,
                })),
                answer => answer.map_err(CliError::of_keeper),
            }
        };
        let answer = ask_long(&ask, "indexing", command)?;
        missing += answer["missing"].as_u64().unwrap_or(0);
        lines.extend(answer["sessions"].as_array().into_iter().flatten().cloned());
    }
    Ok(json!({"sessions": lines, "missing": missing}))
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

/// Runs `work`, which may take long, and calls `pressed` once if the user presses Ctrl-C meanwhile.
fn watched<T>(pressed: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> T {
    let interrupt = Interrupt::listen();
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let interrupt = &interrupt;
        scope.spawn(move || {
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.is_pressed() {
                    return pressed();
                }
            }
        });
        let answer = work();
        drop(done);
        answer
    })
}

/// Runs `work`, which only reads, or writes only what `clean_up` removes. Ctrl-C cleans up and ends
/// the process.
fn stoppable<T>(clean_up: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> T {
    let stop = || {
        terminal::say(STOPPING);
        clean_up();
        CliError::Stopped.print(false);
        unwatch_exit();
        std::process::exit(CliError::Stopped.exit_code().into())
    };
    watched(&stop, work)
}

/// Checks the record and returns each problem in words. Empty if it is sound, or if there is none.
fn damage_of(loaded: &Loaded) -> Result<Vec<String>, CliError> {
    stoppable(&|| {}, || {
        let found = match loaded.config.transcript.store {
            // A file may be too damaged to be opened.
            TranscriptStore::Sqlite => Record::verify(&loaded.home),
            TranscriptStore::Postgres => {
                open_record_to_read(loaded).and_then(|record| record.problems())
            }
        };
        found.map_err(CliError::Sessions)
    })
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

/// Repairs a damaged record, or without `yes` only says what is damaged.
fn repair(engines: &Engines, yes: bool) -> Result<u8, CliError> {
    if yes {
        return watched(&|| terminal::say(TO_ITS_END), || mend(engines));
    }
    let damage = damage_of(engines.loaded())?;
    let found = json!({"ok": damage.is_empty(), "problems": damage});
    output::print_json(&json!({"dry_run": true, "found": found}))?;
    terminal::say(match damage.is_empty() {
        true => "There is nothing to repair.\n",
        false => "Dry run: nothing was repaired; add --yes to do it, with no session open\n",
    });
    Ok(OK)
}

fn mend(engines: &Engines) -> Result<u8, CliError> {
    let home = &engines.loaded().home;
    let damage = Record::verify(home).map_err(CliError::Sessions)?;
    let mut answer = json!({"dry_run": false});
    if !damage.is_empty() {
        let mended = Record::repair(home).map_err(CliError::Sessions)?;
        answer["record"] = json!(mended);
    }
    // Checked again, because a repair may save only a part.
    let remains = Record::verify(home).map_err(CliError::Sessions)?;
    if !remains.is_empty() {
        answer["remains"] = json!(remains);
    }
    output::print_json(&answer)?;
    if remains.is_empty() {
        return Ok(OK);
    }
    let what = "not everything is well after the repair: `remains` says what is not";
    terminal::warn(what);
    Ok(NEGATIVE)
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

/// Refuses a folder in which no file can be created. An engine would fail there with a less helpful
/// message, and only after much of the work.
fn check_folder(folder: &Path, file: &Path) -> Result<(), CliError> {
    let shown = folder.display();
    if !folder.is_dir() {
        return Err(CliError::usage(
            format!("there is no folder {shown}, so nothing can be copied into it"),
            format!("make it (mkdir -p {shown}), or name a file in a folder that is there"),
        ));
    }
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(()),
        Err(source) => Err(CliError::Write {
            path: file.to_owned(),
            source,
        }),
    }
}

/// Copies everything that is stored into the new folder `to`, and returns its size in bytes and the
/// damage that was found. The copy is made under a hidden name and then renamed, so a folder with
/// this name is always complete.
///
/// # Errors
/// Fails if `to` exists already, or if it cannot be written.
fn back_up(engines: &Engines, to: &Path) -> Result<Value, CliError> {
    let home = &engines.loaded().home;
    if to.symlink_metadata().is_ok() {
        return Err(CliError::usage(
            format!("{} exists, and a backup overwrites nothing", to.display()),
            "name another folder",
        ));
    }
    let cannot_write = |source| CliError::Write {
        path: to.to_owned(),
        source,
    };
    let beside = to.parent().unwrap_or(Path::new("."));
    let made = tempfile::Builder::new()
        .prefix(".contexture-backup-")
        .tempdir_in(beside)
        .map_err(cannot_write)?;
    let copy = made.path().join("copy");
    // What an engine derives is left out of the copy, because the engine builds it again from the
    // record.
    let mut take = |from: &Path, _to: &Path| {
        let below = from.strip_prefix(home.join("engines")).unwrap_or(from);
        let Some(engine) = below.iter().next().and_then(|name| name.to_str()) else {
            return Ok::<_, CliError>(false);
        };
        let list = kept::list(engines, engine);
        Ok(matches!(list, Ok(Some(list)) if list.store.as_deref() == Some(from)))
    };
    let clean_up = || {
        let _ = std::fs::remove_dir_all(made.path());
    };
    let damaged = stoppable(&clean_up, || Record::back_up(home, &copy, &mut take))?;
    for what in &damaged {
        let what = format!("copied as it is, for it is damaged: {what}");
        terminal::warn(&what);
    }
    std::fs::rename(&copy, to).map_err(cannot_write)?;
    Ok(json!({"backup": to, "bytes": bytes_in(to).map_err(cannot_write)?, "damaged": damaged}))
}

/// Returns the size of all files below a folder, in bytes. Links to folders are not followed.
fn bytes_in(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.metadata()?;
        bytes += match file.is_dir() {
            true => bytes_in(&entry.path())?,
            false => file.len(),
        };
    }
    Ok(bytes)
}

/// Prints the messages of a session, one per line. Without `whole` it leaves out what the agent
/// itself compacted away. Returns [`NEGATIVE`] with a warning if the text of a message is missing
/// from the record.
fn export(engines: &Engines, store: &Record, id: &str, whole: bool) -> Result<u8, CliError> {
    let session = known(store, id)?;
    let messages = store.wire_messages(id).map_err(CliError::Sessions)?;
    let has_text = messages.iter().any(|message| message.text.is_some());
    // An engine may keep its own state with messages, which the texts do not have.
    let keeps_none = matches!(kept::list(engines, &session.engine), Ok(None));
    if keeps_none
        && let Some(placed) = store.placed(id).map_err(CliError::Sessions)?
        && (!has_text || placed.iter().any(|one| one.state.is_some()))
    {
        return print_placed(store, id, placed);
    }
    let behind = match whole {
        true => BTreeSet::new(),
        false => store.behind_agent(id).map_err(CliError::Sessions)?,
    };
    let progress = Progress::new(messages.len(), "exporting");
    let mut lost = 0;
    for message in messages {
        progress.step();
        let is_behind = !behind.is_empty() && message.ids.iter().all(|id| behind.contains(id));
        match message.text {
            // A summary by Codex is an item of the conversation with which it continues, so it
            // stays.
            Some(text) if is_behind && !formats::is_compaction_item(&text) => {}
            Some(text) => {
                let mut lines = String::new();
                for line in formats::item_lines(&text) {
                    lines.push_str(&line);
                    lines.push('\n');
                }
                output::print_bytes(lines.as_bytes())?;
            }
            None => lost += message.ids.len() as u64,
        }
    }
    drop(progress);
    if lost == 0 {
        return Ok(OK);
    }
    let what = format!(
        "the text of {} is not stored or cannot be read: run `contexture sessions verify`",
        counted(lost, "message")
    );
    terminal::warn(&what);
    Ok(NEGATIVE)
}

/// Prints what the record has of a session's window, one message per line, for an engine that keeps
/// no sessions.
///
/// If `tiered` compacted a message, its original is in the transcript. It is added to the message's
/// state, as in the document format that this engine follows.
fn print_placed(store: &Record, id: &str, mut placed: Vec<Placed>) -> Result<u8, CliError> {
    let mut compacted: HashMap<MessageId, &mut Map<String, Value>> = (placed.iter_mut())
        .filter_map(|one| {
            let kept = one.state.as_mut()?.get_mut(COMPACTION_KEY)?;
            Some((one.id, kept.as_object_mut()?))
        })
        .collect();
    if !compacted.is_empty() {
        let range = TranscriptRange::of(compacted.keys().copied().collect());
        let originals = store.transcript(id, &range).map_err(CliError::Sessions)?;
        for original in originals.into_iter().flat_map(|page| page.messages) {
            if let Some(kept) = compacted.get_mut(&original.id) {
                let content = kept.entry("original_content");
                content.or_insert(Value::String(original.text));
            }
        }
    }
    let mut lines = String::new();
    for one in &placed {
        let mut message = json!({"id": one.id.to_string()});
        if let Some(role) = one.role {
            message["role"] = json!(role);
        }
        if let Some(content) = &one.content {
            message["content"] = json!(content);
        }
        let mut event = json!({"message": message});
        if let Some(state) = &one.state {
            event["state"] = json!(state);
        }
        lines.push_str(&format!("{event}\n"));
    }
    output::print_bytes(lines.as_bytes())?;
    Ok(OK)
}

/// Records which compacted messages to put back with the session's next request, and prints them.
/// An empty `messages` stands for all that can be restored.
///
/// # Errors
/// Fails if there is no such session, or if one of the ids is not a compacted message whose
/// original is kept.
fn restore(store: &Record, id: &str, messages: &[MessageId]) -> Result<u8, CliError> {
    // Holding the session keeps a turn from running while the wishes are written.
    let _hold = store
        .hold(id, SessionOptions::default().wait)
        .map_err(CliError::Sessions)?;
    let Some(mut placed) = store.placed(id).map_err(CliError::Sessions)? else {
        return Err(CliError::NoSession {
            session: id.to_owned(),
        });
    };
    placed.retain(|one| one.is_shortened && one.state.is_some());
    if let Some(unknown) = messages
        .iter()
        .find(|id| !placed.iter().any(|one| one.id == **id))
    {
        return Err(CliError::usage(
            format!(
                "{unknown} of the session `{id}` is no compacted message whose original is kept"
            ),
            format!("run `contexture sessions export {id}` to see which are"),
        ));
    }
    placed.retain(|one| messages.is_empty() || messages.contains(&one.id));
    let wished: Vec<MessageId> = placed.iter().map(|one| one.id).collect();
    store
        .wish_restored(id, Some(&wished))
        .map_err(CliError::Sessions)?;
    let said = match placed.len() {
        0 => "nothing is compacted there\n".to_owned(),
        many => format!(
            "{} will be restored with the next request\n",
            counted(many as u64, "message")
        ),
    };
    print_placed(store, id, placed)?;
    terminal::say(&said);
    Ok(OK)
}

/// Parses the id of a message as `export` shows it, for example `m12`. The letter may be missing.
/// Fails with a text for the user.
fn message_id(text: &str) -> Result<MessageId, String> {
    let number = text.strip_prefix('m').unwrap_or(text).parse();
    number
        .map(MessageId)
        .map_err(|_| "a message's id is a number, as in m12".to_owned())
}

/// Sends a command that may take long, and shows a progress bar if the engine reports a total. On
/// Ctrl-C the engine is asked to stop, which it does for every command but a garbage collection. A
/// second Ctrl-C ends the process at once.
pub(crate) fn ask_long(
    ask: &(dyn Fn(StoreCommand) -> Result<Value, CliError> + Sync),
    what: &str,
    command: StoreCommand,
) -> Result<Value, CliError> {
    let interrupt = Interrupt::listen();
    let on_interrupt = match command {
        StoreCommand::Gc { .. } => TO_ITS_END,
        _ => STOPPING,
    };
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let interrupt = &interrupt;
        scope.spawn(move || {
            let mut bar = None;
            let mut told = false;
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.is_pressed() {
                    if !told {
                        terminal::say(on_interrupt);
                        told = true;
                    }
                    // This is repeated on every round, because the command may not have begun when
                    // Ctrl-C was pressed.
                    let _ = ask(StoreCommand::Cancel);
                }
                let Ok(far) = ask(StoreCommand::Progress) else {
                    continue;
                };
                let CommandProgress { done, total } = kept::read(far);
                if total > 0 {
                    let bar = bar.get_or_insert_with(|| Progress::new(total as usize, what));
                    bar.reach(done, total);
                }
            }
        });
        let answer = ask(command);
        drop(done);
        answer
    })
}

/// Checks the record, and what the engine derives from it if it derives anything. Returns the
/// report as JSON, and `true` if nothing is wrong.
fn verify(engines: &Engines, of: &Of) -> Result<(Value, bool), CliError> {
    let damage = damage_of(engines.loaded())?;
    for what in &damage {
        terminal::warn(what);
    }
    let engine = choice::keeper(engines, of.engine.as_deref(), None)?;
    let mut answer = match kept::list(engines, &engine)? {
        Some(_) => ask_long(
            &|command| ask(engines, &engine, command),
            "checking",
            StoreCommand::Verify,
        )?,
        None => json!({"ok": true, "problems": []}),
    };
    let ok = damage.is_empty() && answer["ok"] == json!(true);
    answer["ok"] = json!(ok);
    if let Some(Value::Array(problems)) = answer.get_mut("problems") {
        problems.extend(damage.into_iter().map(Value::from));
    }
    Ok((answer, ok))
}

/// Returns the time this many days ago, in milliseconds since the Unix epoch. If the clock is
/// before the epoch, the result is negative, so that nothing is old enough to be deleted.
fn days_ago_ms(days: u32) -> i64 {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    contexture::now_ms() - i64::from(days) * DAY_MS
}
