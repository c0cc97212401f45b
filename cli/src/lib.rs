//! The `contexture` command as a library.
//!
//! The binary calls [`run()`] and nothing else. A program that links engines of its own calls
//! [`run()`] from its `main`, too, and is then the same command with these engines beside the
//! others. [`run_with`] is for a process whose arguments are not those of the command, such as a
//! Python program.
//!
//! Each subcommand has a module of its name with an arguments struct and a function `run`. The
//! modules below them are shared: `start` opens the configuration and the engines, `output` writes
//! results to stdout and files, `terminal` writes everything that is meant for people to stderr,
//! `log` sets up the log, and `error` has the error type with its exit codes.

mod agent_logs;
mod bench;
mod choice;
mod compress;
mod config;
mod consent;
mod doctor;
mod dry_run;
mod edit;
mod embedder;
mod engine_trial;
mod engines;
mod error;
mod history;
#[cfg(feature = "mcp")]
mod history_tools;
mod hook;
mod human;
mod import;
mod import_all;
mod input;
mod interrupt;
mod kept;
mod log;
#[cfg(feature = "mcp")]
mod mcp;
mod output;
mod plugins;
#[cfg(test)]
mod reference;
mod replay;
mod replay_table;
mod run;
mod serve;
mod sessions;
mod setup;
mod start;
#[cfg(feature = "postgres")]
mod store;
mod summary;
mod terminal;
mod tool;
mod window;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use contexture_engine_api::{leave, show_panics_plainly, watch_exit};
// These crates register their engines when they are linked, so no plugin is needed for them.
use contexture_two_layer as _;
use contexture_virtual_files as _;

use error::CliError;
use log::LogFormat;
use terminal::ColorChoice;

/// The exit code of a command that succeeded.
const OK: u8 = 0;
/// The exit code of a check with a negative answer: with `--check` nothing changed, `doctor` found
/// a problem, or a plugin did not build.
const NEGATIVE: u8 = 1;

/// Keep long conversations inside a language model's window
#[derive(Debug, Parser)]
#[command(name = "contexture", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  contexture compress chat.json --context-length 100000 > smaller.json
  contexture compress session.jsonl --dry-run
  contexture replay session.jsonl --engine compressor
  contexture import session.jsonl --session work
  contexture tool lcm_grep '{\"pattern\": \"epoch\"}' --session work
  contexture engines doctor

Configuration is read from $CONTEXTURE_HOME/config.yaml (by default ~/.contexture/config.yaml).";

#[derive(Debug, clap::Args)]
struct Global {
    /// The config file [default: $CONTEXTURE_HOME/config.yaml]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    config: Option<PathBuf>,
    /// Make no model call and use no network
    #[arg(long, global = true, help_heading = "Global options")]
    offline: bool,
    /// Log to stderr (-v: what happens, -vv: why, -vvv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    verbose: u8,
    /// When to use colours; `auto` means on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help_heading = "Global options"
    )]
    color: ColorChoice,
    /// The command that `setup` writes into the settings of agents, if it is not this program alone
    #[arg(skip)]
    started_by: Option<Vec<String>>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compact a conversation
    Compress(compress::CompressArgs),
    /// Replay recorded conversations with engines, and show what they would save and cost
    Replay(replay::ReplayArgs),
    /// Compare the engines on recorded sessions
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Call a tool of a session's engine, as an agent would
    Tool(tool::ToolArgs),
    /// Serve the history, or the tools of a session's engine, to clients of the Model Context Protocol
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
    /// Run the gateway: a proxy in front of a model's API that gives any agent an engine
    Serve(serve::ServeArgs),
    /// Run a command behind a gateway
    Run(run::RunArgs),
    /// Set up an agent to use Contexture, or undo the setup
    Setup(setup::SetupArgs),
    /// Answer a hook of an agent. `contexture setup` makes agents call it
    Hook(hook::HookArgs),
    /// Import a conversation into an engine's store, or the logs of all agents into the history
    Import(import::ImportArgs),
    /// Search the history: what was said in the sessions of all agents
    Search(history::SearchArgs),
    /// Show a message of the history with its neighbours
    Show(history::ShowArgs),
    /// List, show, export, check, back up and delete what an engine stores
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// Prepare and fill the database that several machines share
    #[cfg(feature = "postgres")]
    #[command(subcommand)]
    Store(store::StoreAction),
    /// List the engines, show one, or find out what is wrong with them
    #[command(args_conflicts_with_subcommands = true)]
    Engines {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
        /// Without a command: list
        #[command(subcommand)]
        command: Option<engines::EnginesCommand>,
    },
    /// Install the sentence encoder with which `lcm` finds text by its meaning
    #[command(subcommand)]
    Embedder(embedder::EmbedderCommand),
    /// Choose the engine; create, build, check, install and list plugins
    Plugins {
        /// Without a command: choose the engine if at a terminal, else list
        #[command(subcommand)]
        command: Option<plugins::PluginsCommand>,
    },
    /// Check and show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print shell completions to stdout
    #[command(
        after_help = "Examples:\n  contexture completions bash > ~/.local/share/bash-completion/completions/contexture\n  contexture completions fish > ~/.config/fish/completions/contexture.fish"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of all commands into a folder
    #[command(hide = true)]
    Man {
        /// The folder, which is made if it does not exist
        folder: PathBuf,
    },
}

/// Runs the command that the program's arguments name, and returns its exit code:
///
/// - 0 if it succeeded or there was nothing to do,
/// - 1 if a check found something (`--check`, `doctor`) or a build failed,
/// - 2 if the usage, the input or the configuration is wrong,
/// - 3 if an engine failed and no other stood in, if files of the home directory cannot be used, or
///   if a result cannot be written (for example to a full disk),
/// - 130 if Ctrl-C stopped it.
///
/// The arguments, the environment and the standard streams are those of the process, and the
/// function never panics on them. From then on, stdout belongs to the command, and whatever else
/// the process writes to stdout goes to stderr.
///
/// Return from `main` right after it. If the command loaded a plugin, whose threads may hang, the
/// process is ended two seconds later.
pub fn run() -> ExitCode {
    ExitCode::from(run_with(None, std::env::args_os()))
}

/// Does the same as [`run()`] with these arguments, which begin with the name of the program. Use
/// it if the process has arguments of its own. Returns the exit code, which is also that of a usage
/// error, instead of ending the process.
///
/// `command` is how others start the command line: `contexture setup` writes it into the settings of
/// agents. Give it if the program does something else without further arguments, such as an
/// interpreter. If it is `None`, that is the program of this process.
pub fn run_with(command: Option<Vec<String>>, arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(mut cli) => {
            cli.global.started_by = command;
            cli
        }
        Err(usage) => {
            // Help goes to stdout. If its reader has closed the pipe, the rest is not wanted, so
            // the error is ignored.
            let _ = usage.print();
            return u8::try_from(usage.exit_code()).unwrap_or(error::BAD_INPUT);
        }
    };
    // Stdout is kept for the result before any code of a plugin can run and write to it.
    output::keep_stdout();
    watch_exit(error::ENGINE_FAILED);
    show_panics_plainly();
    let colors = cli.global.color.on(std::io::stderr().is_terminal());
    // A gateway can only be observed through its log, and that of `run` goes to a file.
    let least = u8::from(matches!(cli.command, Command::Run(_)));
    let format = match &cli.command {
        Command::Serve(args) => args.log_format,
        _ => LogFormat::Text,
    };
    // `serve` needs its configuration first.
    if !matches!(cli.command, Command::Serve(_)) {
        log::to_stderr(cli.global.verbose.max(least), format, None);
    }
    let ended = match dispatch(&cli) {
        // Without the record a conversation can still be compacted, from what the file holds. The
        // other commands read or write the record itself: on an empty one they would report that
        // nothing is stored, or store something that is lost. The record is read before anything
        // is written, so nothing has been done yet and the command can be run again.
        Err(CliError::Sessions(damage))
            if matches!(cli.command, Command::Compress(_))
                && start::leave_the_record_aside(&damage) =>
        {
            dispatch(&cli)
        }
        ended => ended,
    };
    log::flush();
    let code = match ended {
        Ok(code) => code,
        Err(CliError::ReaderGone) => OK,
        Err(error) => {
            match format {
                LogFormat::Text => error.print(colors),
                LogFormat::Json => error.log(),
            }
            error.exit_code()
        }
    };
    log::flush();
    leave(code, TEARDOWN);
    code
}

/// How long the threads and destructors of plugins may take at the end of the process.
const TEARDOWN: Duration = Duration::from_secs(2);

fn dispatch(cli: &Cli) -> Result<u8, CliError> {
    let global = &cli.global;
    match &cli.command {
        Command::Compress(args) => compress::run(args, global),
        Command::Replay(args) => replay::run(args, global),
        Command::Bench(command) => bench::run(command, global),
        Command::Tool(args) => tool::run(args, global),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(args, global),
        Command::Serve(args) => serve::run(args, global),
        Command::Run(args) => run::run(args, global),
        Command::Setup(args) => setup::run(args, global),
        Command::Hook(args) => hook::run(args, global),
        Command::Import(args) => import::run(args, global),
        Command::Search(args) => history::search(args, global),
        Command::Show(args) => history::show(args, global),
        Command::Sessions(command) => sessions::run(command, global),
        #[cfg(feature = "postgres")]
        Command::Store(command) => store::run(command, global),
        Command::Engines { json, command } => engines::run(command.as_ref(), *json, global),
        Command::Embedder(command) => embedder::run(command, global),
        Command::Plugins { command } => plugins::run(command.as_ref(), global),
        Command::Config(command) => config::run(command, global),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "contexture", &mut script);
            output::print_bytes(&script)?;
            Ok(OK)
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
                .map_err(CliError::write(folder))?;
            Ok(OK)
        }
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
