//! `contexture run`: runs a command with a gateway of its own in front of its model.
//!
//! The gateway listens on a free port for as long as the command runs. The command is told its
//! address, and it has the terminal to itself: one line is printed before it and one after it, and
//! log output in between goes to a file.
//!
//! Read [`run_beside`] first. It opens the gateway, starts the command, waits for its end and stops
//! the gateway. [`OwnStderr`] keeps the log away from the terminal. How each agent takes an
//! address, and what to do if one ignored it, is the task of [`agents`]. The gateway itself is in
//! the crate `contexture_gateway`.

mod agents;

use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use contexture::config::Loaded;
#[cfg(unix)]
use contexture_engine_api::{make_private_folder, private_file_options};
use contexture_gateway::{Gateway, Totals};
use tokio::signal::ctrl_c;

use crate::error::CliError;
use crate::human::counted;
use crate::interrupt::INTERRUPTED;
use crate::{Global, log, output, serve, start, terminal};
pub(crate) use agents::is_login;
use agents::{Addresses, Agent};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture run -- claude
  contexture run -- codex exec \"fix the test\"
  contexture run -- aider --model sonnet

The gateway listens on a free port of this machine for as long as the command runs. Known agents (claude, codex, aider, opencode, hermes) are configured in their own way, others through OPENAI_BASE_URL, ANTHROPIC_BASE_URL and GOOGLE_GEMINI_BASE_URL. If one of these variables is already set, requests are forwarded to the address that it names, unless the configuration names another. If the configuration names a key (`upstream.*.api_key_env`), the command gets the gateway's token instead of the key. The log is written to logs/run.log in the home directory.

Exit code: the command's own, or 128 plus the signal number if a signal ended it; 2 wrong usage or configuration.")]
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

/// The exit code that a shell gives to a command that it cannot run.
const NOT_RUN: u8 = 127;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;
/// How long answers in progress may take after the command has ended.
const AFTER: Duration = Duration::from_secs(2);
/// The size in bytes from which a log is rotated. One old log is kept.
#[cfg(unix)]
const LARGEST_LOG: u64 = 8 << 20;

/// Runs the command and returns its exit code. The last lines are printed after stderr is restored,
/// so that they do not end up in the log.
///
/// # Errors
/// Fails if the configuration cannot be used, an address is wrong, the gateway cannot listen, or
/// the command cannot be started.
pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let loaded = start::read_config(global).map_err(CliError::config)?;
    let agent = Agent::of(&args.command);
    let env = |name: &str| std::env::var(name).ok();
    let addresses = Addresses::of(&loaded.config.upstream, &agent, &env)?;
    // Stderr is redirected before the gateway opens, since opening may log warnings already.
    let own = OwnStderr::keep(&loaded.home);
    log::in_background();
    let ran = run_beside(args, global, &loaded, (&agent, &addresses), &own);
    own.give_back();
    let (code, last) = ran?;
    for line in last {
        terminal::say(&format!("{line}\n"));
    }
    Ok(code)
}

/// Opens the gateway, runs the command beside it and stops the gateway afterwards. Problems of the
/// gateway are reported before the command starts. Returns the exit code and the lines to print last.
fn run_beside(
    args: &RunArgs,
    global: &Global,
    loaded: &Loaded,
    (agent, addresses): (&Agent, &Addresses),
    own: &OwnStderr,
) -> Result<(u8, Vec<String>), CliError> {
    let runtime = serve::runtime()?;
    runtime.block_on(async {
        let gateway = serve::open_for_command(global, addresses.urls()).await?;
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
        // Nobody reads the remaining answers, so the wait is short. Ctrl-C ends it at once.
        tokio::select! {
            _ = tokio::time::timeout(AFTER, serving) => {}
            _ = ctrl_c() => {}
        }
        let code = ended.map_err(|source| CliError::NotRun { program, source })?;
        let totals = handle.map(|handle| handle.totals()).unwrap_or_default();
        Ok((code, last_lines(agent, &totals, loaded, own.log())))
    })
}

/// Runs the command to its end and returns the exit code that a shell would give it. Without a
/// terminal, a second Ctrl-C kills the command.
async fn watch(mut command: tokio::process::Command) -> std::io::Result<u8> {
    let mut child = command.spawn()?;
    // At a terminal, Ctrl-C goes to both processes, and the command decides what to do. Elsewhere
    // it goes to this process alone, which kills the command at the second press.
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

/// Returns the exit code that a shell would give: the command's own, or 128 and the number of the
/// signal that ended it.
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

/// Returns the line that is printed before the command: the gateway's address, the engine, the
/// window, and whatever the user should know about the upstreams.
fn first_line(gateway: &Gateway, loaded: &Loaded, agent: &Agent, addresses: &Addresses) -> String {
    let config = &loaded.config;
    let window = match config.model.context_length {
        Some(tokens) => format!("window {}", counted(tokens, "token")),
        None => "window according to the model's name".to_owned(),
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

/// Returns the lines that are printed after the command: how many requests were managed, what was
/// saved and what went wrong, or what to do if the command did not use the gateway. `log` is the file
/// that has the reasons.
fn last_lines(agent: &Agent, totals: &Totals, loaded: &Loaded, log: Option<&Path>) -> Vec<String> {
    if totals.requests + totals.others == 0 {
        return vec![
            format!(
                "contexture: no request arrived: {} did not use the gateway's address and called its model directly",
                agent.name
            ),
            format!("contexture: {}", agent.hint(&loaded.config.gateway.url())),
        ];
    }
    let mut line = format!("contexture: {} managed", counted(totals.managed, "request"));
    if totals.requests > totals.managed {
        line.push_str(&format!(" of {}", totals.requests));
    }
    line.push_str(&format!(
        " in {}, {}, {}",
        counted(totals.sessions, "session"),
        counted(totals.compactions, "compaction"),
        counted(totals.saved_tokens, "token")
    ));
    if totals.saved_dollars >= 0.005 {
        line.push_str(&format!(" and ${:.2}", totals.saved_dollars));
    }
    line.push_str(" saved");
    let mut lines = vec![line];
    let failed = [
        (totals.failed_open, "not managed, because something failed"),
        (
            totals.refused_as_too_long,
            "refused as too long by the provider",
        ),
    ];
    let failed: Vec<String> = (failed.into_iter())
        .filter(|(requests, _)| *requests > 0)
        .map(|(requests, what)| format!("{} {what}", counted(requests, "request")))
        .collect();
    if !failed.is_empty() {
        let mut line = format!("contexture: {}", failed.join("; "));
        if let Some(log) = log {
            line.push_str(&format!("; the reasons are in {}", log.display()));
        }
        lines.push(line);
    }
    lines
}

/// The original stderr, kept for the command and for the lines that `run` prints. Everything else
/// that this process writes to stderr, such as its log and the output of plugins, goes to a file.
struct OwnStderr {
    /// The original stderr, the path of the log, and the log's length at the start. `None` if
    /// redirecting was not possible, so that everything shares stderr.
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

    /// The path of the log. `None` if the log is on stderr.
    fn log(&self) -> Option<&Path> {
        self.kept.as_ref().map(|(_, path, _)| path.as_path())
    }

    /// Restores stderr. After this, messages go to the terminal again.
    fn give_back(&self) {
        log::flush();
        #[cfg(unix)]
        if let Some((stderr, ..)) = &self.kept {
            let _ = rustix::stdio::dup2_stderr(stderr);
        }
    }

    /// Writes text to the original stderr, with secrets masked and control characters shown.
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

    /// Returns the original stderr for the command, so that its own messages stay on the terminal.
    fn for_command(&self) -> Stdio {
        let kept = self
            .kept
            .as_ref()
            .and_then(|(stderr, ..)| stderr.try_clone().ok());
        kept.map_or_else(Stdio::inherit, Stdio::from)
    }

    /// Returns the warnings that were logged while the gateway was opened. The user should see them
    /// before the command takes over the screen. Empty if the log cannot be read.
    fn warnings(&self) -> String {
        let Some((_, path, began)) = &self.kept else {
            return String::new();
        };
        log::flush();
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

/// Redirects stderr to the log in the home directory. Returns the original stderr, the path of the
/// log and its length so far. The log is readable for its owner only, because it quotes requests.
#[cfg(unix)]
fn redirect(home: &Path) -> std::io::Result<(File, PathBuf, u64)> {
    use std::os::fd::AsFd;

    let folder = home.join("logs");
    make_private_folder(&folder)?;
    let path = folder.join("run.log");
    // The log is rotated only here, at the start, so one run may still exceed the limit.
    if std::fs::metadata(&path).is_ok_and(|log| log.len() > LARGEST_LOG) {
        std::fs::rename(&path, folder.join("run.log.1"))?;
    }
    let log = private_file_options()
        .append(true)
        .create(true)
        .open(&path)?;
    let began = log.metadata()?.len();
    let kept = std::io::stderr().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok((kept.into(), path, began))
}
