//! `contexture setup`: makes an agent use Contexture, and undoes that.
//!
//! [`run`] plans the change of each file, shows it as a diff and writes it after the user agreed.
//! Which files and keys these are is in [`agents`]. How a file is changed without disturbing the
//! rest of it is in [`crate::edit`], and what was changed is kept in [`journal`] for the undo.
//!
//! A second run begins from the files as they would be after an undo. It is therefore without
//! effect if nothing changed, and it also switches between hooks and the gateway.

mod agents;
mod diff;
mod journal;

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use contexture::config::Loaded;
use contexture::prompt_cache::{CacheProvider, provider_at};
use contexture::session::{AgentWindow, Session, SessionOptions};
use contexture_engine_api::ToolSpec;

use crate::dry_run::DryRun;
use crate::edit::{Conflict, EditError, apply};
use crate::error::{CliError, did_you_mean};
use crate::output::is_dangling;
use crate::{Global, OK, consent, output, start, terminal};
use agents::{AGENTS, Plan, Settable, SetupContext};
use diff::diff;
use journal::{Entry, Journal, Mode};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture setup                       # what is installed, and what is set up
  contexture setup claude
  contexture setup codex --gateway --yes
  contexture setup --undo claude

Agents: claude, codex, openclaw, opencode, pi, qwen and hermes call Contexture when they compact, and get the tools with which they search their history. With --gateway they send their requests to `contexture serve` instead. aider and cline have no hook for this and use the gateway. gemini has no hook either: without --gateway it only gets tools that search earlier sessions.

The change is shown as a diff and written only if you agree. Keys with another value are not changed unless you pass --replace. An undo restores each file byte for byte; if a file was edited since, only what was added is removed.

Exit codes: 0 done, nothing to do, or declined, 2 wrong usage, or a file that cannot be changed.")]
pub(crate) struct SetupArgs {
    /// The agent: claude, codex, openclaw, opencode, pi, qwen, gemini, aider, cline or hermes [default: list all]
    #[arg(value_parser = AgentName, hide_possible_values = true)]
    agent: Option<String>,
    /// Restore the agent's settings
    #[arg(long, requires = "agent", conflicts_with_all = ["gateway", "replace"])]
    undo: bool,
    /// Make the agent send its requests to the gateway, instead of calling Contexture when it
    /// compacts
    #[arg(long, requires = "agent")]
    gateway: bool,
    /// Also replace values that you have set yourself; --undo restores them
    #[arg(long, requires = "agent")]
    replace: bool,
    /// Write without asking
    #[arg(short, long, requires = "agent")]
    yes: bool,
}

/// Takes any name, because [`run`] says more about one that it does not know. The completions of a
/// shell offer those of the table.
#[derive(Clone)]
struct AgentName;

impl TypedValueParser for AgentName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = AGENTS.iter().map(|agent| PossibleValue::new(agent.name));
        Some(Box::new(names))
    }
}

/// The error of a file of an agent that cannot be changed. Nothing has been written then.
fn unusable(path: &Path, what: &str, first: &str) -> CliError {
    CliError::usage(
        format!("{} {what}", path.display()),
        format!("{first}, and run the command again; nothing was written"),
    )
}

/// The error of an edit that cannot be made in a file of an agent.
fn not_edited(path: &Path, error: &EditError) -> CliError {
    let first = match error {
        EditError::Exists => "rename or remove that file",
        EditError::Shape(..) => "write it in that form",
        EditError::Syntax(_) | EditError::Style(_) => "correct the file",
    };
    unusable(path, &format!("cannot be changed: {error}"), first)
}

/// Reads a file as text. `None` if it does not exist.
fn read_text(path: &Path) -> Result<Option<String>, CliError> {
    let failed = |what: &str| Err(unusable(path, what, "correct the file"));
    // Reading a pipe would wait for somebody who writes to it.
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return failed("is not a regular file");
    }
    match std::fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => failed("is not UTF-8 text"),
        },
        // An undo could not restore the link.
        Err(_) if is_dangling(path) => failed("is a link to a file that does not exist"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => failed(&format!("cannot be read: {error}")),
    }
}

/// Lists the agents, sets one up, or undoes that.
///
/// # Errors
/// Fails if the agent is unknown or not installed, if a file cannot be read or changed, if a key
/// has another value, or if there is no terminal to ask on.
pub(crate) fn run(args: &SetupArgs, global: &Global) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let home = contexture::user_home(&|name| std::env::var_os(name)).ok_or_else(|| {
        CliError::usage(
            "there is no home directory in which agents have their settings",
            "set HOME to it",
        )
    })?;
    let env = |name: &str| std::env::var(name).ok();
    let tools = || engine_tools(&loaded);
    let context = context(&loaded, global, &home, &env, &tools)?;
    let Some(name) = &args.agent else {
        return list(&loaded.home, &context);
    };
    let agent = Settable::named(name).ok_or_else(|| {
        let names: Vec<_> = AGENTS.iter().map(|agent| agent.name).collect();
        CliError::usage(
            format!("there is no agent `{name}` to set up"),
            format!(
                "{}the agents are {}; for any other, `contexture run -- COMMAND` starts it with a gateway",
                did_you_mean(name, names.iter().copied()),
                names.join(", ")
            ),
        )
    })?;
    match args.undo {
        true => undo(args, agent, &loaded.home),
        false => set_up(args, agent, &loaded, &context),
    }
}

/// Collects what the plans depend on. The command is named by its full path, because agents that
/// are started from a desktop have another PATH.
fn context<'a>(
    loaded: &Loaded,
    global: &Global,
    home: &'a Path,
    env: &'a dyn Fn(&str) -> Option<String>,
    tools: &'a dyn Fn() -> Result<Vec<ToolSpec>, CliError>,
) -> Result<SetupContext<'a>, CliError> {
    let mut command = match &global.started_by {
        Some(command) => command.clone(),
        None => {
            let program = std::env::current_exe().map_err(|source| CliError::NotRun {
                program: "contexture".to_owned(),
                source,
            })?;
            vec![program.display().to_string()]
        }
    };
    if let Some(config) = &global.config {
        // The agent runs the command in another folder.
        let absolute = std::path::absolute(config).unwrap_or_else(|_| config.clone());
        command.extend(["--config".to_owned(), absolute.display().to_string()]);
    }
    if global.offline {
        command.push("--offline".to_owned());
    }
    // An agent may be started without the variables of this shell.
    let variable = "CONTEXTURE_HOME";
    let variables = env(variable).map(|_| (variable.to_owned(), loaded.home.display().to_string()));
    let upstream = loaded.config.upstream.anthropic.base_url.as_deref();
    let is_first_party =
        upstream.is_none_or(|url| provider_at(url) == Some(CacheProvider::Anthropic));
    Ok(SetupContext {
        home,
        env,
        command,
        variables: variables.into_iter().collect(),
        gateway: loaded.config.gateway.url(),
        is_first_party,
        tools,
    })
}

/// Returns the tools that the configured engine offers to agents. Nothing is stored for it.
fn engine_tools(loaded: &Loaded) -> Result<Vec<ToolSpec>, CliError> {
    let engines = start::open_engines(loaded.clone(), true, None)?;
    let stage = DryRun::of(&engines, None)?;
    let options = SessionOptions::default();
    let agent = AgentWindow::new("", 0, 0);
    let failed = |error| CliError::of_session(error, "a tool belongs to its engine");
    let session = Session::open(stage.engines(), None, "tools", agent, options);
    session.map_err(failed)?.tools().map_err(failed)
}

/// Prints which agents are installed, and how each is set up.
fn list(home: &Path, context: &SetupContext<'_>) -> Result<u8, CliError> {
    let mut table = terminal::Table::new(["AGENT", "SET UP", "INSTALLED"]);
    for agent in AGENTS {
        let journal = Journal::read(home, agent.name)?;
        let how = match journal.map(|journal| journal.mode) {
            Some(Mode::Hooks) => "hooks and history tools",
            Some(Mode::Tools) => "history tools",
            Some(Mode::Gateway) => "gateway",
            None => "no",
        };
        let found = agent.found(context);
        let found = found.map_or_else(|| "no".to_owned(), |found| found.display().to_string());
        table.row([agent.name, how, &found]);
    }
    output::print_styled(&table.render(false))?;
    Ok(OK)
}

/// The change of one file.
struct Change {
    path: PathBuf,
    before: Option<String>,
    after: Option<String>,
}

fn set_up(
    args: &SetupArgs,
    agent: &Settable,
    loaded: &Loaded,
    context: &SetupContext<'_>,
) -> Result<u8, CliError> {
    if agent.found(context).is_none() {
        return Err(CliError::usage(
            format!(
                "{} is not installed: `{}` is not on the PATH, and it has no settings",
                agent.title, agent.name
            ),
            "install it first; `contexture setup` lists what is installed",
        ));
    }
    let mut ways = agent.ways.iter();
    let way = ways.find(|(mode, _)| !args.gateway || *mode == Mode::Gateway);
    let Some((mode, plan)) = way else {
        let what = format!("{} cannot use the gateway", agent.title);
        return Err(CliError::usage(what, "set it up without --gateway"));
    };
    let (mode, plan) = (*mode, plan(context));
    let home = &loaded.home;
    let earlier = Journal::read(home, agent.name)?;
    let Planned {
        journal,
        changes,
        left,
    } = plan_changes(mode, &plan, earlier.as_ref(), args.replace)?;
    say_left(&left);
    if changes.iter().all(|change| change.before == change.after) {
        output::print(&format!("{} is already set up\n", agent.title))?;
        return Ok(OK);
    }
    for entry in &journal.files {
        for old in &entry.replaced {
            terminal::note(&format!(
                "your value of `{}` in {} is replaced: {}",
                old.path.join("."),
                entry.path.display(),
                old.value
            ));
        }
    }
    if !agreed(
        args,
        &changes,
        &format!("Set {} up like this?", agent.title),
    )? {
        return Ok(OK);
    }
    // The journal comes before the files. If the process is killed in between, the undo still
    // works.
    journal.write(home, agent.name)?;
    if let Err(error) = write(&changes) {
        // Whatever was written is taken back, so that the agent is as it was.
        let back: Vec<Change> = changes.into_iter().map(Change::reversed).collect();
        write(&back)?;
        remove_folders(&journal);
        match &earlier {
            Some(earlier) => earlier.write(home, agent.name)?,
            None => Journal::delete(home, agent.name)?,
        }
        return Err(error);
    }
    if let Some(earlier) = &earlier {
        // The earlier set-up may have created folders that this one does not use.
        remove_folders(earlier);
    }
    let how = match mode {
        Mode::Hooks => "it calls Contexture when it compacts".to_owned(),
        Mode::Tools => "it has tools that search earlier sessions".to_owned(),
        Mode::Gateway => format!(
            "it sends its requests to {}, where `contexture serve` has to run",
            context.gateway
        ),
    };
    let mut said = format!("{} is set up: {how}\n", agent.title);
    for note in plan.notes.iter().chain(&own_note(mode, loaded)) {
        said.push_str(&format!("note: {note}\n"));
    }
    said.push_str(&format!(
        "undo it with: contexture setup --undo {}\n",
        agent.name
    ));
    output::print(&said)?;
    Ok(OK)
}

/// Returns a note if the configured engine keeps no history, so that its tools find nothing, or if
/// the gateway asks for tokens.
fn own_note(mode: Mode, loaded: &Loaded) -> Option<String> {
    let engine = &loaded.config.context.engine;
    match mode {
        Mode::Hooks if engine == "compressor" => Some(format!(
            "the engine `{engine}` keeps no history to search; `context.engine: lcm` in config.yaml selects one that does"
        )),
        Mode::Tools => Some(
            "the tools find what `contexture import --all` has read from the logs of all agents".to_owned(),
        ),
        Mode::Gateway if !loaded.config.gateway.tokens.is_empty() => Some(
            "`gateway.tokens` are configured, so the agent has to send one of them as x-contexture-token".to_owned(),
        ),
        _ => None,
    }
}

/// What a set-up is going to do.
struct Planned {
    journal: Journal,
    changes: Vec<Change>,
    /// What stays of an earlier set-up because the user changed it.
    left: Vec<String>,
}

/// Computes the journal and the changes of all files of a plan, and of those that an earlier set-up
/// changed.
fn plan_changes(
    mode: Mode,
    plan: &Plan,
    earlier: Option<&Journal>,
    replace: bool,
) -> Result<Planned, CliError> {
    let mut files: Vec<Entry> = Vec::new();
    let mut changes: Vec<Change> = Vec::new();
    let mut left = Vec::new();
    let earlier = earlier.map(|journal| journal.files.as_slice());
    let earlier = earlier.unwrap_or_default();
    for planned in &plan.files {
        let old = earlier.iter().find(|entry| entry.path == planned.path);
        if let Some(old) =
            old.filter(|old| old.edits.iter().all(|edit| planned.edits.contains(edit)))
        {
            // A file that has all of it stays as it is, even if somebody has edited it since.
            let now = read_text(&planned.path)?;
            let again = now
                .as_deref()
                .map(|now| apply(planned.format, Some(now), &planned.edits));
            if let Some(Ok(again)) = again
                && again.done.is_empty()
            {
                files.push(old.clone());
                continue;
            }
        }
        let (undone, of_file) = match old {
            Some(entry) => entry.undone()?,
            None => {
                let before = read_text(&planned.path)?;
                let unchanged = Change {
                    path: planned.path.clone(),
                    after: before.clone(),
                    before,
                };
                (unchanged, Vec::new())
            }
        };
        let base = undone.after;
        let applied = apply(planned.format, base.as_deref(), &planned.edits)
            .map_err(|error| not_edited(&planned.path, &error))?;
        if !applied.conflicts.is_empty() && !replace {
            return Err(refused(&planned.path, &applied.conflicts));
        }
        // What is replaced does not stay.
        if applied.conflicts.is_empty() {
            left.extend(of_file);
        }
        if applied.done.is_empty() {
            continue;
        }
        let mut entry = Entry::new(
            planned.path.clone(),
            planned.format,
            (base, &applied.text),
            applied.done,
            applied.conflicts,
        );
        // What an earlier set-up created is removed by the undo of this one.
        let folders = earlier.iter().flat_map(|entry| &entry.folders);
        let above = folders.filter(|folder| planned.path.starts_with(folder));
        entry.folders.extend(above.cloned());
        changes.push(Change {
            after: Some(applied.text),
            ..undone
        });
        files.push(entry);
    }
    let is_planned = |entry: &&Entry| plan.files.iter().any(|file| file.path == entry.path);
    for entry in earlier.iter().filter(|entry| !is_planned(entry)) {
        let (undone, of_file) = entry.undone()?;
        left.extend(of_file);
        changes.push(undone);
    }
    Ok(Planned {
        journal: Journal { mode, files },
        changes,
        left,
    })
}

fn say_left(left: &[String]) {
    for what in left {
        terminal::warn(what);
    }
}

fn refused(path: &Path, conflicts: &[Conflict]) -> CliError {
    let keys: Vec<String> = conflicts
        .iter()
        .map(|conflict| format!("`{}` is {}", conflict.path.join("."), conflict.value))
        .collect();
    CliError::usage(
        format!(
            "{} has settings of yours that would be replaced: {}",
            path.display(),
            keys.join(", ")
        ),
        "pass --replace to replace them; an undo restores them; nothing was written",
    )
}

fn undo(args: &SetupArgs, agent: &Settable, home: &Path) -> Result<u8, CliError> {
    let Some(journal) = Journal::read(home, agent.name)? else {
        output::print(&format!("{} is not set up\n", agent.title))?;
        return Ok(OK);
    };
    let mut changes = Vec::new();
    let mut left = Vec::new();
    for entry in &journal.files {
        let (undone, of_file) = entry.undone()?;
        left.extend(of_file);
        changes.push(undone);
    }
    say_left(&left);
    let question = format!("Restore the settings of {} like this?", agent.title);
    if !agreed(args, &changes, &question)? {
        return Ok(OK);
    }
    write(&changes)?;
    // The journal goes last. If a file cannot be written, the undo can be tried again.
    remove_folders(&journal);
    Journal::delete(home, agent.name)?;
    let except = match left.is_empty() {
        true => "",
        false => ", except for what is left",
    };
    output::print(&format!("{} is as it was before{except}\n", agent.title))?;
    Ok(OK)
}

/// Removes the folders that a set-up created, unless they hold files.
fn remove_folders(journal: &Journal) {
    let folders = journal.files.iter().flat_map(|entry| entry.folders.iter());
    let mut folders: Vec<_> = folders.collect();
    // The innermost comes first, because only an empty folder can be removed.
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
    for folder in folders {
        // A folder that has got other files since cannot be removed, and stays.
        let _ = std::fs::remove_dir(folder);
    }
}

/// Shows the changes and returns whether the user wants them. With `--yes` nobody is asked.
fn agreed(args: &SetupArgs, changes: &[Change], question: &str) -> Result<bool, CliError> {
    for change in changes {
        let name = change.path.display().to_string();
        output::print(&diff(
            &name,
            change.before.as_deref(),
            change.after.as_deref(),
        ))?;
    }
    if args.yes || changes.iter().all(|change| change.before == change.after) {
        return Ok(true);
    }
    consent::asked(question, |why| {
        CliError::usage(
            format!("nothing was written, because {why}"),
            "pass --yes to write without being asked",
        )
    })
}

impl Change {
    fn reversed(self) -> Self {
        Self {
            path: self.path,
            before: self.after,
            after: self.before,
        }
    }
}

/// Writes the files that change, and deletes those that are to be gone. A file that is already as
/// it should be is not touched: what could not be written need not be taken back.
fn write(changes: &[Change]) -> Result<(), CliError> {
    for change in changes {
        let path = &change.path;
        let is_done = || read_text(path).is_ok_and(|now| now == change.after);
        if change.before == change.after || is_done() {
            continue;
        }
        let failed = CliError::write(path);
        match &change.after {
            Some(text) => {
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder).map_err(failed)?;
                }
                output::write_file(path, text)?;
            }
            None => match std::fs::remove_file(path) {
                // If the file is gone already, there is nothing to delete.
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(error));
                }
                _ => {}
            },
        }
    }
    Ok(())
}
