//! `contexture run`: runs a command with a gateway of its own in front of the model.
//!
//! The command has the terminal to itself while it runs. One line is printed before it and one after it, and log output
//! meanwhile goes to a file. [`agents`] knows how each agent takes an address, and what to do if one ignored it.

mod agents;

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use contexture::config::Loaded;
use contexture_engine_api::make_private_folder;
use contexture_gateway::{Gateway, Totals};
use tokio::signal::ctrl_c;

use crate::error::CliError;
use crate::figures::counted;
use crate::interrupt::INTERRUPTED;
use crate::{Global, output, serve, setup, terminal};
use agents::{Addresses, Agent};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture run -- claude
  contexture run -- codex exec \"fix the test\"
  contexture run -- aider --model sonnet

The gateway listens on a free port of this machine for as long as the command runs. Known agents (claude, codex, aider, \
opencode, hermes) are told of it in their own way, others by OPENAI_BASE_URL and ANTHROPIC_BASE_URL. If one of these is \
set already, requests go on to the address that it names, unless the configuration names another. If the configuration \
names a key (`upstream.*.api_key_env`), the command gets the gateway's token in place of it. What is logged goes to \
logs/run.log in the home directory.

Exit code: that of the command, 128 and the signal's number if one ended it; 2 wrong usage or configuration.")]
pub(crate) struct RunArgs {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    command: Vec<OsString>,
}

/// What a shell says of a command that it cannot run.
const NOT_RUN: u8 = 127;
/// A shell adds this to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;
/// How long answers in progress may take to end after the command has ended.
const AFTER: Duration = Duration::from_secs(2);
/// A log larger than this is rotated. One old log is kept.
const LARGEST_LOG: u64 = 8 << 20;

pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let loaded = setup::read_config(global).map_err(CliError::config)?;
    let agent = Agent::of(&args.command);
    let env = |name: &str| std::env::var(name).ok();
    let addresses = Addresses::of(&loaded.config.upstream, &agent, &env)?;
    let own = OwnStderr::keep(&loaded.home);
    let ran = run_beside(args, global, &loaded, (&agent, &addresses), &own);
    own.give_back();
    let Ran { code, last } = ran?;
    for line in last {
        terminal::say(&format!("{line}\n"));
    }
    Ok(code)
}

struct Ran {
    code: u8,
    /// The lines to print at the end.
    last: Vec<String>,
}

fn run_beside(
    args: &RunArgs,
    global: &Global,
    loaded: &Loaded,
    (agent, addresses): (&Agent, &Addresses),
    own: &OwnStderr,
) -> Result<Ran, CliError> {
    let runtime = serve::runtime()?;
    runtime.block_on(async {
        let gateway = serve::open_before(global, Some("127.0.0.1:0"), addresses.urls()).await?;
        let base = format!("http://{}", gateway.address());
        let mut command = agent.told(&args.command, &base, addresses, &gateway);
        own.say(&own.warnings());
        own.say(&format!(
            "{}\n",
            first_line(&gateway, loaded, agent, addresses)
        ));
        let (sender, stopper) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(gateway.serve(|handle| drop(sender.send(handle))));
        command.stdout(output::stdout().map_or_else(Stdio::inherit, Stdio::from));
        command.stderr(own.for_command());
        let program = command.get_program().to_string_lossy().into_owned();
        let ended = watch(tokio::process::Command::from(command)).await;
        let handle = stopper.await.ok();
        if let Some(handle) = &handle {
            handle.stop();
        }
        // Nobody reads the remaining answers, and the user may not want to wait for them.
        tokio::select! {
            _ = tokio::time::timeout(AFTER, serving) => {}
            _ = ctrl_c() => {}
        }
        let code = ended.map_err(|source| CliError::NotRun { program, source })?;
        let totals = handle.map(|handle| handle.totals()).unwrap_or_default();
        Ok(Ran {
            code,
            last: last_lines(agent, &totals, loaded),
        })
    })
}

/// Runs the command to its end. Returns the exit code that a shell would give it.
async fn watch(mut command: tokio::process::Command) -> std::io::Result<u8> {
    let mut child = command.spawn()?;
    // At a terminal, Ctrl-C goes to both processes, and the command decides what to do. Elsewhere it goes to this
    // process alone.
    let at_terminal = std::io::stdin().is_terminal();
    let mut presses = 0;
    loop {
        tokio::select! {
            status = child.wait() => return Ok(code_of(status?)),
            pressed = ctrl_c() => {
                if pressed.is_err() {
                    return Ok(code_of(child.wait().await?));
                }
                presses += 1;
                if presses > 1 && !at_terminal {
                    child.start_kill()?;
                    child.wait().await?;
                    return Ok(INTERRUPTED);
                }
            }
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal = None;
    let code = status
        .code()
        .or_else(|| signal.map(|signal: i32| SIGNALLED + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(NOT_RUN)
}

fn first_line(gateway: &Gateway, loaded: &Loaded, agent: &Agent, addresses: &Addresses) -> String {
    let config = &loaded.config;
    let window = match config.model.context_length {
        Some(tokens) => format!("window {}", counted(tokens, "token")),
        None => "window by the model's name".to_owned(),
    };
    let mut line = format!(
        "contexture: http://{}/ shows what happens; engine {}, {window}",
        gateway.address(),
        config.context.engine
    );
    for told in addresses
        .told()
        .into_iter()
        .chain(agent.told_of_token(&gateway.pass()))
    {
        line.push_str("; ");
        line.push_str(&told);
    }
    line
}

fn last_lines(agent: &Agent, totals: &Totals, loaded: &Loaded) -> Vec<String> {
    if totals.requests + totals.others == 0 {
        let listen = &loaded.config.gateway.listen;
        return vec![
            format!(
                "contexture: no request came: {} did not use the gateway's address, and its model was asked without it",
                agent.name
            ),
            format!("contexture: {}", agent.hint(listen)),
        ];
    }
    let mut line = format!("contexture: {} managed", counted(totals.managed, "request"));
    if totals.requests > totals.managed {
        line.push_str(&format!(" of {}", totals.requests));
    }
    line.push_str(&format!(", {}", counted(totals.saved_tokens, "token")));
    if totals.saved_dollars >= 0.005 {
        line.push_str(&format!(" and ${:.2}", totals.saved_dollars));
    }
    line.push_str(" saved");
    vec![line]
}

/// The original stderr for the command. Everything that this process writes to stderr, such as its log and the output
/// of plugins, goes to a file instead.
struct OwnStderr {
    /// `None` if redirecting was not possible. Everything then shares stderr.
    #[cfg_attr(not(unix), allow(dead_code))]
    kept: Option<(File, PathBuf, u64)>,
}

impl OwnStderr {
    #[cfg(unix)]
    fn keep(home: &Path) -> Self {
        Self {
            kept: redirect(home)
                .inspect_err(|error| tracing::warn!("the log stays on stderr: {error}"))
                .ok(),
        }
    }

    #[cfg(not(unix))]
    fn keep(_: &Path) -> Self {
        Self { kept: None }
    }

    /// Restores stderr.
    fn give_back(&self) {
        #[cfg(unix)]
        if let Some((stderr, ..)) = &self.kept {
            let _ = rustix::stdio::dup2_stderr(stderr);
        }
    }

    fn say(&self, text: &str) {
        use std::io::Write;

        match &self.kept {
            Some((stderr, ..)) => {
                let masked = contexture::mask_secrets(text);
                let _ = (&*stderr).write_all(terminal::visible(&masked).as_bytes());
            }
            None => terminal::say(text),
        }
    }

    fn for_command(&self) -> Stdio {
        let kept = self
            .kept
            .as_ref()
            .and_then(|(stderr, ..)| stderr.try_clone().ok());
        kept.map_or_else(Stdio::inherit, Stdio::from)
    }

    /// The warnings logged while the gateway was opened. The user should see them before the command takes over the
    /// screen.
    fn warnings(&self) -> String {
        let Some((_, path, began)) = &self.kept else {
            return String::new();
        };
        let mut text = String::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(*began))?;
            file.read_to_string(&mut text)
        });
        if read.is_err() {
            return String::new();
        }
        let warnings = text.lines().filter_map(|line| {
            let line = line.trim_start();
            line.strip_prefix("WARN ")
                .or_else(|| line.strip_prefix("ERROR "))
        });
        warnings
            .map(|line| format!("{}\n", terminal::warning(line)))
            .collect()
    }
}

#[cfg(unix)]
fn redirect(home: &Path) -> std::io::Result<(File, PathBuf, u64)> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    let folder = home.join("logs");
    make_private_folder(&folder)?;
    let path = folder.join("run.log");
    if std::fs::metadata(&path).is_ok_and(|log| log.len() > LARGEST_LOG) {
        std::fs::rename(&path, folder.join("run.log.1"))?;
    }
    let log = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)?;
    let began = log.metadata()?.len();
    let kept = std::io::stderr().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok((kept.into(), path, began))
}
