//! `contexture sessions`: what an engine keeps of all its sessions. Everything goes through the engine;
//! its files are its own.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use contexture_engine_api::{EngineError, MessageId, StoreCommand, TranscriptRange};
use contexture_tiered::COMPACTION_KEY;
use jiff::Timestamp;
use miette::Diagnostic;
use serde_json::{Map, Value, json};

use crate::choice::{self, KEEPER};
use crate::error::CliError;
use crate::figures::{age, counted, grouped, size};
use crate::interrupt::Interrupt;
use crate::kept::{self, Kept};
use crate::terminal::{self, Progress, Table, one_line};
use crate::tool::older_store;
use crate::{Global, NEGATIVE, OK, output, setup};
use contexture::engines::CallError;
use contexture::engines::{Engines, OpenError};
use contexture::formats;
use contexture::session::{Delivered, Placed, Record, SessionOptions};

/// Messages of an export that are held at a time.
const PAGE: usize = 256;
/// How often one looks how far a long command is, and whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

const PUT_BACK: &str = "\
The folder is laid out as a home directory: sessions.sqlite3 is the record of sessions, engines/ is what engines
keep, such as engines/lcm/lcm.sqlite3. To put a backup back, let no session be open, and copy what is in the folder
into $CONTEXTURE_HOME, which has no sessions.sqlite3 and no engines/ then (set those that are there aside, with
sessions.sqlite3-wal and sessions.sqlite3-shm). Plugins and config.yaml are no part of it. What came after the
backup is delivered again with the next turn of each session, or with `contexture import`.

With --engine the copy is one file with what this engine keeps, and takes the place of the file that `contexture
sessions list --engine NAME` calls `store`; remove what lies beside that one with -wal and -shm at its end.";

#[derive(Debug, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions that are in use
    List {
        /// The archived ones too
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Show one session
    Show {
        /// The session
        id: String,
        #[command(flatten)]
        of: Of,
    },
    /// Write the messages of a session to stdout as they were on the wire, one per line. If its engine keeps none, write
    /// what stands in place of messages, and what the engine keeps with them. For an imported log that its agent
    /// compacted, these are the messages with which the agent continues
    Export {
        /// The session
        id: String,
        /// Include the messages that the agent compacted away itself, and its summaries
        #[arg(long)]
        whole: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Have compacted messages whose originals are kept stand in the conversation again, from the next request on; prints
    /// them as `export` does
    Restore {
        /// The session
        id: String,
        /// The messages, by the ids that `export` shows [default: all]
        #[arg(value_name = "MESSAGE", value_parser = message_id)]
        messages: Vec<MessageId>,
        #[command(flatten)]
        of: Of,
    },
    /// Put a session aside that is done with; it stays whole, and comes back when it is gone on with
    Archive {
        /// The session
        id: String,
        /// Take it back
        #[arg(long)]
        undo: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Remove a session, or all in which nothing happened for long; says what would go unless --yes
    Delete {
        /// The session
        #[arg(required_unless_present = "older_than")]
        id: Option<String>,
        /// All sessions in which nothing happened for so many days
        #[arg(long, value_name = "DAYS", conflicts_with = "id")]
        older_than: Option<u32>,
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Build what a search needs: the word index, and with an embedder (`context.engines.lcm.embedder`) the vectors by
    /// which a question also finds text that shares no word with it. An agent's session builds them in the background
    #[command(after_help = "\
Examples:
  contexture sessions index work        # after the embedder was set, or `import` was stopped
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
    /// Check everything that is kept; exits with 1 where something is wrong
    Verify(Of),
    /// Save what can be read of a damaged store, and keep a copy of it as it was; says what is wrong unless
    /// --yes. No session may be open; exits with 1 where something is wrong after it
    Repair {
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Copy everything that is kept, whichever engine keeps it, into a new folder; sessions may be in use. With --engine,
    /// copy what one engine keeps into a new file
    #[command(after_help = PUT_BACK)]
    Backup {
        /// The folder
        to: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// Give back the room of what is no longer needed; says how much it would be unless --yes
    Gc {
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        of: Of,
    },
}

/// Whose sessions.
#[derive(Debug, clap::Args)]
pub(crate) struct Of {
    /// The engine [default: the session's own; of all sessions the configured one where it keeps sessions, else lcm]
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
}

impl SessionsCommand {
    /// Whose sessions it is about, and which one where it is about one.
    fn about(&self) -> (&Of, Option<&str>) {
        match self {
            Self::Show { id, of }
            | Self::Export { id, of, .. }
            | Self::Restore { id, of, .. }
            | Self::Archive { id, of, .. } => (of, Some(id)),
            Self::Delete { id, of, .. } | Self::Index { id, of, .. } => (of, id.as_deref()),
            Self::List { of, .. }
            | Self::Repair { of, .. }
            | Self::Backup { of, .. }
            | Self::Gc { of, .. }
            | Self::Verify(of) => (of, None),
        }
    }
}

pub(crate) fn run(command: &SessionsCommand, global: &Global) -> Result<u8, CliError> {
    let engines = setup::open_engines(setup::load_config(global)?, global.offline, None)?;
    let writes = matches!(
        command,
        SessionsCommand::Delete { yes: true, .. } | SessionsCommand::Restore { .. }
    );
    let store = match writes {
        true => setup::open_store(&engines),
        false => setup::open_store_to_read(&engines),
    };
    let is_about_the_record = matches!(
        command,
        SessionsCommand::Verify(_) | SessionsCommand::Repair { .. }
    );
    let store = match store {
        // It is what is checked, or mended.
        Err(CliError::Sessions(damage)) if is_about_the_record && damage.is_damage() => {
            let home = &engines.loaded().home;
            Record::standing_in(home, &damage.to_string()).map_err(CliError::Sessions)?
        }
        store => store?,
    };
    let (of, id) = command.about();
    let own = match id {
        Some(id) => setup::engine_of(&store, id)?,
        None => None,
    };
    let keeper = Keeper {
        engines: &engines,
        store: &store,
        session: id,
        engine: choice::keeper(&engines, of.engine.as_deref(), own)?,
    };
    match command {
        SessionsCommand::List { all, json, .. } => {
            let mut answer = keeper.ask(StoreCommand::List)?;
            lost(&engines, &store, &keeper.engine, &answer)?;
            let elsewhere = match &of.engine {
                Some(_) => Vec::new(),
                None => sessions_of_others(&store, &keeper.engine, &answer)?,
            };
            if let Some(Value::Array(sessions)) = answer.get_mut("sessions") {
                if !all {
                    sessions.retain(|session| session.get("archived").is_none_or(Value::is_null));
                }
                sessions.extend(elsewhere);
            }
            match json {
                true => output::print_json(&answer)?,
                false => output::print_styled(&table(&keeper, &answer, global)?)?,
            }
            Ok(OK)
        }
        SessionsCommand::Show { id, .. } => {
            let session = id.clone();
            output::print_json(&keeper.ask(StoreCommand::Show { session })?)?;
            Ok(OK)
        }
        SessionsCommand::Export { id, whole, .. } => {
            match store.placed(id).map_err(CliError::Sessions)? {
                Some(placed) if matches!(kept::list(&engines, &keeper.engine), Ok(None)) => {
                    print_placed(&store, id, placed)
                }
                _ => export(&keeper, id, *whole),
            }
        }
        SessionsCommand::Restore { id, messages, .. } => restore(&store, id, messages),
        SessionsCommand::Archive { id, undo, .. } => {
            let command = StoreCommand::Archive {
                session: id.clone(),
                archived: !undo,
            };
            output::print_json(&keeper.ask(command)?)?;
            Ok(OK)
        }
        SessionsCommand::Delete {
            id,
            older_than,
            yes,
            ..
        } => {
            let older_than_ms = older_than.map(days_ago_ms);
            let ask = |dry_run| {
                keeper.ask(StoreCommand::Delete {
                    session: id.clone(),
                    older_than_ms,
                    dry_run,
                })
            };
            let (mut answer, is_left) = match (ask(true), id) {
                // What the engine had of it is gone, and the record of it is left.
                (Err(CliError::Lost { .. } | CliError::NoSession { .. }), Some(id))
                    if keeper.has_lost(id)? =>
                {
                    let answer = json!({"dry_run": !yes, "sessions": [id], "messages": 0});
                    (answer, false)
                }
                // It keeps nothing beside the record.
                (Err(CliError::Usage { .. }), Some(id)) if keeper.is_recorded_alone(id)? => {
                    (json!({"dry_run": !yes, "sessions": [id]}), false)
                }
                (answer, _) => (answer?, true),
            };
            if *yes {
                // The record first: where this ends between the two, the session is whole, and none is lost.
                let gone = answer.get("sessions").and_then(Value::as_array);
                for id in gone.into_iter().flatten().filter_map(Value::as_str) {
                    store.forget(id).map_err(CliError::Sessions)?;
                }
                if is_left {
                    answer = ask(false)?;
                }
            }
            done(&answer, *yes)
        }
        SessionsCommand::Index { id, dry_run, .. } => {
            let command = StoreCommand::Index {
                session: id.clone(),
                dry_run: *dry_run,
            };
            let answer = keeper.ask_long("indexing", command)?;
            output::print_json(&answer)?;
            let sessions = answer.get("sessions").and_then(Value::as_array);
            let has_vectors = |one: &Value| !one["embedded"].is_null();
            if sessions.is_some_and(|all| !all.is_empty() && !all.iter().any(has_vectors)) {
                terminal::say(
                    "note: no embedder is configured (context.engines.lcm.embedder), so questions find by words alone\n",
                );
            }
            Ok(OK)
        }
        SessionsCommand::Verify(_) => {
            let (answer, ok) = verify(&keeper)?;
            output::print_json(&answer)?;
            let sessions = answer.get("sessions").and_then(Value::as_array);
            if ok && sessions.is_some_and(Vec::is_empty) {
                terminal::say("note: no sessions are kept here, so there was nothing to check\n");
            }
            Ok(if ok { OK } else { NEGATIVE })
        }
        SessionsCommand::Repair { yes, .. } => {
            let command = StoreCommand::Repair { dry_run: !yes };
            let mut answer = keeper.ask_long("reading", command)?;
            let home = &engines.loaded().home;
            let damage = Record::verify(home).map_err(CliError::Sessions)?;
            if !yes {
                if !damage.is_empty() {
                    answer["record"] = json!({"problems": damage});
                }
                output::print_json(&answer)?;
                terminal::say("nothing was mended; add --yes to do it, with no session open\n");
                return Ok(OK);
            }
            if !damage.is_empty() {
                let mended = Record::repair(home).map_err(CliError::Sessions)?;
                answer["record"] = json!(mended);
            }
            let store = setup::open_store_to_read(&engines)?;
            let keeper = Keeper {
                store: &store,
                ..keeper
            };
            let (found, ok) = verify(&keeper)?;
            if !ok {
                answer["remains"] = found;
            }
            output::print_json(&answer)?;
            if !ok {
                let what = "not everything is well after the repair: `remains` says what is not";
                terminal::say(&format!("{}\n", terminal::warning(what)));
            }
            Ok(if ok { OK } else { NEGATIVE })
        }
        SessionsCommand::Backup { to, .. } => {
            let to = std::path::absolute(to).map_err(|source| CliError::Write {
                path: to.clone(),
                source,
            })?;
            if let Some(folder) = to.parent() {
                check_folder(folder, &to)?;
            }
            let answer = match of.engine {
                Some(_) => keeper.ask_long("copying", StoreCommand::Backup { to })?,
                None => back_up(&engines, &to)?,
            };
            output::print_json(&answer)?;
            Ok(OK)
        }
        SessionsCommand::Gc { yes, .. } => {
            let command = StoreCommand::Gc { dry_run: !yes };
            let answer = keeper.ask_long("giving back", command)?;
            done(&answer, *yes)
        }
    }
}

/// The recorded sessions of other engines, mostly of engines without a store of their own.
fn sessions_of_others(
    store: &Record,
    keeper: &str,
    answer: &Value,
) -> Result<Vec<Value>, CliError> {
    let listed = answer.get("sessions").and_then(Value::as_array);
    let listed: HashSet<&str> = (listed.into_iter().flatten())
        .filter_map(|session| session.get("session")?.as_str())
        .collect();
    let recorded = store.all_delivered().map_err(CliError::Sessions)?;
    let others = recorded
        .into_iter()
        .filter(|one| one.engine != keeper && !listed.contains(one.session.as_str()));
    Ok(others
        .map(|one| json!({"session": one.session, "engine": one.engine, "messages": one.messages}))
        .collect())
}

/// The sessions of an answer, each with the engine that has it now.
fn table(keeper: &Keeper<'_>, answer: &Value, global: &Global) -> Result<String, CliError> {
    let heads = ["ID", "MESSAGES", "ENGINE", "LAST USED", "SIZE"];
    let mut table = Table::new(heads).with_numbers(&["MESSAGES", "LAST USED", "SIZE"]);
    let sessions = answer.get("sessions").and_then(Value::as_array);
    let sessions = sessions.map(Vec::as_slice).unwrap_or_default();
    for session in sessions {
        let text = |key| session.get(key).and_then(Value::as_str);
        let figure = |key, shown: fn(u64) -> String| {
            let figure = session.get(key).and_then(Value::as_u64);
            figure.map_or_else(|| "–".to_owned(), shown)
        };
        let id = text("session").unwrap_or("–");
        let engine = setup::engine_of(keeper.store, id)?;
        let used = text("last_used").and_then(|time| time.parse::<Timestamp>().ok());
        let used = used.map_or_else(|| "–".to_owned(), |time| age(time.into()));
        let mut shown = one_line(id, usize::MAX);
        if !text("archived").unwrap_or_default().is_empty() {
            shown.push_str(" (archived)");
        }
        table.row([
            &shown,
            &figure("messages", grouped),
            engine.as_deref().unwrap_or(&keeper.engine),
            &used,
            &figure("bytes", size),
        ]);
    }
    let mut text = match sessions {
        [] => "no sessions are kept\n".to_owned(),
        _ => table.render(global.color.on(output::is_terminal())),
    };
    if let Some(store) = answer.get("store").and_then(Value::as_str) {
        text.push_str(&format!("\nstore: {}\n", terminal::visible(store)));
    }
    Ok(text)
}

fn done(answer: &Value, yes: bool) -> Result<u8, CliError> {
    output::print_json(answer)?;
    if !yes {
        terminal::say("nothing was removed; add --yes to do it\n");
    }
    Ok(OK)
}

/// Refuses a folder in which no file can be made, before an engine fails at it.
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

/// Copies everything that is kept into a new folder, which is whole once it is there.
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
    // An engine copies its own store, if it can, so that it is checked, and can be stopped.
    let mut take = |from: &Path, to: &Path| {
        let below = from.strip_prefix(home.join("engines")).unwrap_or(from);
        let Some(engine) = below.iter().next().and_then(|name| name.to_str()) else {
            return Ok(false);
        };
        let ask = |command| {
            engines
                .manage(Some(engine), &command)
                .map_err(CliError::of_keeper)
        };
        let Ok(Some(list)) = kept::list(engines, engine) else {
            return Ok(false);
        };
        if list["store"].as_str().map(Path::new) != Some(from) {
            return Ok(false);
        }
        let to = to.to_owned();
        match ask_long(&ask, "copying", StoreCommand::Backup { to }) {
            // A store that it cannot read is copied as it is.
            Err(CliError::EngineFailed { .. }) => Ok(false),
            copied => copied.map(|_| true),
        }
    };
    let damaged = Record::back_up(home, &copy, &mut take)?;
    for what in &damaged {
        let what = format!("copied as it is, for it is damaged: {what}");
        terminal::say(&format!("{}\n", terminal::warning(&what)));
    }
    std::fs::rename(&copy, to).map_err(cannot_write)?;
    Ok(json!({"backup": to, "bytes": bytes_in(to).map_err(cannot_write)?, "damaged": damaged}))
}

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

fn export(keeper: &Keeper<'_>, id: &str, whole: bool) -> Result<u8, CliError> {
    let behind = match whole {
        true => BTreeSet::new(),
        false => (keeper.store.behind_agent(id)).map_err(CliError::Sessions)?,
    };
    let session = id.to_owned();
    let shown = keeper.ask(StoreCommand::Show { session })?;
    let count = shown.get("in_conversation").and_then(Value::as_u64);
    let progress = Progress::new(count.unwrap_or(0) as usize, "exporting");
    let (mut after, mut lost, mut last) = (None, 0, None::<MessageId>);
    loop {
        let command = StoreCommand::Export {
            session: id.to_owned(),
            after,
            limit: PAGE,
        };
        let page = keeper.ask(command)?;
        let messages = page.get("messages").and_then(Value::as_array);
        let mut lines = String::new();
        for message in messages.into_iter().flatten() {
            progress.step();
            let ids = message.get("ids").and_then(Value::as_array);
            let mut ids = ids.into_iter().flatten().filter_map(Value::as_u64);
            last = ids.clone().max().map(MessageId).max(last);
            let is_behind = !behind.is_empty() && ids.all(|id| behind.contains(&MessageId(id)));
            match message.get("message").and_then(Value::as_str) {
                // Codex continues with its summary as an item of the conversation.
                Some(text) if is_behind && !formats::is_compaction_item(text) => {}
                Some(text) => {
                    for line in formats::item_lines(text) {
                        lines.push_str(&line);
                        lines.push('\n');
                    }
                }
                None => lost += 1,
            }
        }
        output::print_bytes(lines.as_bytes())?;
        after = page.get("next").and_then(Value::as_u64);
        if after.is_none() {
            break;
        }
    }
    drop(progress);
    // The end of it may be lost with a log that was cut.
    let delivered = keeper.store.delivered(id).map_err(CliError::Sessions)?;
    let delivered = delivered.filter(|delivered| delivered.engine == keeper.engine);
    if let Some(delivered) = delivered
        && last < delivered.last
    {
        let what = older_store(&delivered, last);
        terminal::say(&format!("{}\n", terminal::warning(&what)));
        return Ok(NEGATIVE);
    }
    if lost > 0 {
        let what = format!(
            "{} cannot be read: run `contexture sessions verify`",
            counted(lost, "message")
        );
        terminal::say(&format!("{}\n", terminal::warning(&what)));
        return Ok(NEGATIVE);
    }
    Ok(OK)
}

/// Prints what the record has of a window, a message a line. The original of a message that `tiered` compacted, which is in
/// the transcript, stands in its state, as in the document that this engine follows.
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

/// Notes which messages are wanted back.
fn restore(store: &Record, id: &str, messages: &[MessageId]) -> Result<u8, CliError> {
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
            "{} will stand in the conversation again with its next request\n",
            counted(many as u64, "message")
        ),
    };
    print_placed(store, id, placed)?;
    terminal::say(&said);
    Ok(OK)
}

fn message_id(text: &str) -> Result<MessageId, String> {
    let number = text.strip_prefix('m').unwrap_or(text).parse();
    number
        .map(MessageId)
        .map_err(|_| "a message's id is a number, as in m12".to_owned())
}

struct Keeper<'a> {
    engines: &'a Engines,
    store: &'a Record,
    engine: String,
    /// The session that it is about, where it is about one.
    session: Option<&'a str>,
}

/// Runs a command that may take long, shows its progress, and cancels it on Ctrl-C.
pub(crate) fn ask_long(
    ask: &(dyn Fn(StoreCommand) -> Result<Value, CliError> + Sync),
    what: &str,
    command: StoreCommand,
) -> Result<Value, CliError> {
    let interrupt = Interrupt::listen();
    let on_interrupt = match command {
        StoreCommand::Repair { dry_run: false } | StoreCommand::Gc { .. } => {
            "this runs to its end; Ctrl-C again ends it at once, and what is kept stays whole\n"
        }
        _ => "stopping; Ctrl-C again ends it at once\n",
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
                    // Repeated, because the command may not have begun yet.
                    let _ = ask(StoreCommand::Cancel);
                }
                let Ok(far) = ask(StoreCommand::Progress) else {
                    continue;
                };
                let number = |key| far.get(key).and_then(Value::as_u64).unwrap_or(0);
                let total = number("total");
                if total > 0 {
                    let bar = bar.get_or_insert_with(|| Progress::new(total as usize, what));
                    bar.reach(number("done"), total);
                }
            }
        });
        let answer = ask(command);
        drop(done);
        answer
    })
}

impl Keeper<'_> {
    fn ask_long(&self, what: &str, command: StoreCommand) -> Result<Value, CliError> {
        ask_long(&|command| self.ask(command), what, command)
    }

    fn ask(&self, command: StoreCommand) -> Result<Value, CliError> {
        let answer = self.engines.manage(Some(&self.engine), &command);
        answer.map_err(|error| match self.session {
            _ if is_unsupported(&error)
                && matches!(kept::list(self.engines, &self.engine), Ok(None)) =>
            {
                self.keeps_nothing()
            }
            Some(session) if is_refusal(&error) => self.refused(session, error),
            _ => CliError::of_keeper(error),
        })
    }

    fn keeps_nothing(&self) -> CliError {
        let of = match self.session {
            Some(session) => format!(", so there is nothing of `{session}` with it"),
            None => String::new(),
        };
        CliError::usage(
            format!("the engine `{}` keeps no sessions{of}", self.engine),
            format!("ask one that does, which may have had it before: add --engine {KEEPER}"),
        )
    }

    /// Whether the engine keeps no sessions, and this one is its own.
    fn is_recorded_alone(&self, session: &str) -> Result<bool, CliError> {
        let delivered = self.store.delivered(session).map_err(CliError::Sessions)?;
        let is_its_own = delivered.is_some_and(|delivered| delivered.engine == self.engine);
        Ok(is_its_own && kept::list(self.engines, &self.engine)?.is_none())
    }

    /// Whether messages of a session were delivered to the engine, and it has no such session.
    fn has_lost(&self, session: &str) -> Result<bool, CliError> {
        let delivered = self.store.delivered(session).map_err(CliError::Sessions)?;
        Ok(
            delivered.is_some_and(|delivered| delivered.engine == self.engine)
                && Kept::by(self.engines, &self.engine, session)? == Kept::Others,
        )
    }

    /// Why an engine refuses what is asked of a session: mostly because it has none of this name.
    fn refused(&self, session: &str, error: OpenError) -> CliError {
        match Kept::by(self.engines, &self.engine, session) {
            Ok(Kept::Others) => match self.store.delivered(session) {
                Ok(Some(lost)) if lost.engine == self.engine && lost.messages > 0 => {
                    CliError::lost(lost)
                }
                _ => CliError::NoSession {
                    session: session.to_owned(),
                },
            },
            _ => CliError::of_keeper(error),
        }
    }
}

fn is_refusal(error: &OpenError) -> bool {
    matches!(engine_error(error), Some(EngineError::InvalidInput(_)))
}

fn is_unsupported(error: &OpenError) -> bool {
    matches!(engine_error(error), Some(EngineError::Unsupported(_)))
}

fn engine_error(error: &OpenError) -> Option<&EngineError> {
    match error {
        OpenError::Call(CallError::Failed { error, .. }) => Some(error),
        _ => None,
    }
}

/// What a check finds, and whether all is well. What was delivered to the engine and is not there is not well.
fn verify(keeper: &Keeper<'_>) -> Result<(Value, bool), CliError> {
    let damage = Record::verify(&keeper.engines.loaded().home).map_err(CliError::Sessions)?;
    warn_of(&damage);
    let mut answer = keeper.ask_long("checking", StoreCommand::Verify)?;
    let lost = lost(keeper.engines, keeper.store, &keeper.engine, &answer);
    let lost = match lost.and_then(|lost| Ok([lost, shorter(keeper)?].concat())) {
        // It is among what was found.
        Err(CliError::Sessions(error)) if error.is_damage() => Vec::new(),
        lost => lost?,
    };
    let ok = lost.is_empty()
        && damage.is_empty()
        && answer.get("ok").and_then(Value::as_bool) == Some(true);
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("ok".to_owned(), ok.into());
        let problems = answer
            .entry("problems")
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(problems) = problems {
            problems.extend(damage.into_iter().chain(lost).map(Value::from));
        }
    }
    Ok((answer, ok))
}

/// Says which sessions were delivered to the engine and are not among those that it answers with.
fn lost(
    engines: &Engines,
    store: &Record,
    engine: &str,
    answer: &Value,
) -> Result<Vec<String>, CliError> {
    let kept = answer.get("sessions").and_then(Value::as_array);
    let kept: HashSet<&str> = (kept.into_iter().flatten())
        .filter_map(|session| session.get("session")?.as_str())
        .collect();
    // It may have begun, or been deleted, since the engine answered.
    let is_still_missing = |one: &Delivered| -> Result<bool, CliError> {
        let has_it = Kept::by(engines, engine, &one.session)? == Kept::This;
        let now = store.delivered(&one.session).map_err(CliError::Sessions)?;
        Ok(!has_it && now.is_some_and(|now| now.messages > 0))
    };
    let mut all = Vec::new();
    for one in store.delivered_to(engine).map_err(CliError::Sessions)? {
        let is_missing = one.messages > 0 && !kept.contains(one.session.as_str());
        if is_missing && is_still_missing(&one)? {
            let lost = CliError::lost(one);
            let way_out = lost
                .help()
                .map_or_else(String::new, |help| format!("; {help}"));
            all.push(format!("{lost}{way_out}"));
        }
    }
    warn_of(&all);
    Ok(all)
}

fn warn_of(all: &[String]) {
    for what in all {
        terminal::say(&format!("{}\n", terminal::warning(what)));
    }
}

/// Says of which sessions the engine lacks the end of what was delivered to it.
fn shorter(keeper: &Keeper<'_>) -> Result<Vec<String>, CliError> {
    let after = |id: &str, after| {
        let command = StoreCommand::Export {
            session: id.to_owned(),
            after,
            limit: PAGE,
        };
        keeper.engines.manage(Some(&keeper.engine), &command)
    };
    let mut all = Vec::new();
    let delivered = keeper.store.delivered_to(&keeper.engine);
    for one in delivered.map_err(CliError::Sessions)? {
        let Some(last) = one.last else { continue };
        // It knows no message of this id, or no such session.
        if !matches!(after(&one.session, Some(last.0)), Err(error) if is_refusal(&error)) {
            continue;
        }
        let (mut next, mut kept) = (None, None);
        while let Ok(page) = after(&one.session, next) {
            let messages = page.get("messages").and_then(Value::as_array);
            let ids = messages.into_iter().flatten().map(|one| &one["ids"]);
            let ids = ids.filter_map(Value::as_array).flatten();
            kept = ids.filter_map(Value::as_u64).max().max(kept);
            next = page.get("next").and_then(Value::as_u64);
            if next.is_none() {
                // Or it was deleted since.
                let now = keeper.store.delivered(&one.session);
                if now.map_err(CliError::Sessions)?.is_some() {
                    all.push(older_store(&one, kept.map(MessageId)));
                }
                break;
            }
        }
    }
    warn_of(&all);
    Ok(all)
}

/// So many days ago, in milliseconds since the Unix epoch.
fn days_ago_ms(days: u32) -> i64 {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as i64) - i64::from(days) * DAY_MS
}
