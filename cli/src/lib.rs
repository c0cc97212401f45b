//! The `contexture` command. A program with engines of its own linked in calls [`run`] from its `main`
//! and is the same command with these engines beside the others.

mod agent_logs;
mod choice;
mod compress;
mod config;
mod doctor;
mod engine_trial;
mod engines;
mod error;
mod figures;
mod import;
mod input;
mod interrupt;
mod kept;
#[cfg(feature = "mcp")]
mod mcp;
mod output;
mod plugins;
mod rehearsal;
mod replay;
mod replay_table;
mod run;
mod serve;
mod sessions;
mod setup;
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
// Linked in, so that they can be named without a plugin.
use contexture_two_layer as _;
use contexture_virtual_files as _;

use error::CliError;
use terminal::ColorChoice;

/// Everything went well.
const OK: u8 = 0;
/// `--check`: nothing changed; `doctor`: something is wrong; `plugins build`: a build failed.
const NEGATIVE: u8 = 1;

/// Keeps long conversations inside a language model's window.
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

/// What every command takes.
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
    /// Log what happens to stderr (-v: what, -vv: why, -vvv: everything)
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    verbose: u8,
    /// When to use colours; `auto` is on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help_heading = "Global options"
    )]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compact a conversation
    Compress(compress::CompressArgs),
    /// Play recorded conversations through engines: what they would save, and what it would cost
    Replay(replay::ReplayArgs),
    /// Call a tool of a session's engine, as an agent would
    Tool(tool::ToolArgs),
    /// Serve the tools of a session's engine to clients of the Model Context Protocol
    #[cfg(feature = "mcp")]
    Mcp(mcp::McpArgs),
    /// Stand before a model's API, so that any agent gets an engine
    Serve(serve::ServeArgs),
    /// Run a command with a gateway before its model
    Run(run::RunArgs),
    /// Put a conversation into an engine's store
    Import(import::ImportArgs),
    /// List, show, export, check, back up and remove what an engine keeps
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List the engines, show one, or find out what is wrong with them
    #[command(args_conflicts_with_subcommands = true)]
    Engines {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
        /// Without one: list
        #[command(subcommand)]
        command: Option<engines::EnginesCommand>,
    },
    /// Choose the engine; begin, build, check, install and list plugins
    Plugins {
        /// Without one: at a terminal choose the engine, else list
        #[command(subcommand)]
        command: Option<plugins::PluginsCommand>,
    },
    /// Check and show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Write the completions of a shell to stdout
    #[command(
        after_help = "Examples:\n  contexture completions bash > ~/.local/share/bash-completion/completions/contexture\n  contexture completions fish > ~/.config/fish/completions/contexture.fish"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Runs the command that the program's arguments name, and says how it went: 0 done or nothing to do,
/// 1 a check that found something (`--check`, `doctor`) or a failed build, 2 wrong usage, input or
/// configuration, 3 an engine that failed where no other stood in, files of the home directory that cannot be
/// used, or a result that cannot be written (a full disk), 130 stopped by Ctrl-C.
///
/// It takes its arguments, environment and standard streams from the process and never panics on them. Stdout is
/// the command's alone from then on: what else the process writes to it goes to stderr. Return from `main` after
/// it: where it loaded a plugin, whose threads may hang, it ends the process two seconds later.
pub fn run() -> ExitCode {
    ExitCode::from(run_with(std::env::args_os()))
}

/// As [`run`], with these arguments, the program's name first: for a process that has arguments of its own. Answers
/// the exit code.
pub fn run_with(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(usage) => {
            // Help goes to stdout; a reader that has gone away does not want the rest.
            let _ = usage.print();
            return u8::try_from(usage.exit_code()).unwrap_or(error::BAD_INPUT);
        }
    };
    // Before anything of a plugin is loaded.
    output::keep_stdout();
    watch_exit(error::ENGINE_FAILED);
    show_panics_plainly();
    let colors = cli.global.color.on(std::io::stderr().is_terminal());
    // A gateway is observed only through its log. The log of `run` goes to a file.
    let least = u8::from(matches!(cli.command, Command::Serve(_) | Command::Run(_)));
    terminal::log_to_stderr(cli.global.verbose.max(least));
    let ended = match dispatch(&cli) {
        // Nothing was done yet: the record is read before anything is written.
        Err(CliError::Sessions(damage)) if setup::leave_the_record_aside(&damage) => dispatch(&cli),
        ended => ended,
    };
    let code = match ended {
        Ok(code) => code,
        Err(CliError::ReaderGone) => OK,
        Err(error) => {
            error.print(colors);
            error.exit_code()
        }
    };
    leave(code, TEARDOWN);
    code
}

/// How long the threads and destructors of plugins have at the end of the process.
const TEARDOWN: Duration = Duration::from_secs(2);

fn dispatch(cli: &Cli) -> Result<u8, CliError> {
    let global = &cli.global;
    match &cli.command {
        Command::Compress(args) => compress::run(args, global),
        Command::Replay(args) => replay::run(args, global),
        Command::Tool(args) => tool::run(args, global),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => mcp::run(args, global),
        Command::Serve(args) => serve::run(args, global),
        Command::Run(args) => run::run(args, global),
        Command::Import(args) => import::run(args, global),
        Command::Sessions(command) => sessions::run(command, global),
        Command::Engines { json, command } => engines::run(command.as_ref(), *json, global),
        Command::Plugins { command } => plugins::run(command.as_ref(), global),
        Command::Config(command) => config::run(command, global),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "contexture", &mut script);
            output::print_bytes(&script)?;
            Ok(OK)
        }
    }
}
