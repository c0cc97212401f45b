//! `contexture run`: a command with a gateway of its own before its model.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::CliError;
use crate::{Global, output, serve};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture run -- claude
  contexture run -- codex exec \"fix the test\"
  contexture run -- aider --model sonnet

The gateway listens on a free port of this machine for as long as the command runs. Known agents (claude, codex, aider, \
opencode, hermes) are told of it in their own way, others by OPENAI_BASE_URL and ANTHROPIC_BASE_URL.

Exit code: that of the command; 2 wrong usage or configuration.")]
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

pub(crate) fn run(args: &RunArgs, global: &Global) -> Result<u8, CliError> {
    let runtime = serve::runtime()?;
    runtime.block_on(async {
        let gateway = serve::open(global, Some("127.0.0.1:0")).await?;
        let mut command = told(&args.command, &format!("http://{}", gateway.address()));
        let (sender, stopper) = tokio::sync::oneshot::channel();
        let serving = tokio::spawn(gateway.serve(|handle| drop(sender.send(handle))));
        // The terminal sends Ctrl-C to both; it is the command's business.
        let ignoring = tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
        command.stdout(output::stdout().map_or_else(Stdio::inherit, Stdio::from));
        let program = command.get_program().to_string_lossy().into_owned();
        let ran = tokio::task::spawn_blocking(move || command.status()).await;
        ignoring.abort();
        if let Ok(handle) = stopper.await {
            handle.stop();
        }
        let _ = serving.await;
        let status = ran.map_err(std::io::Error::other).and_then(|status| status);
        let status = status.map_err(|source| CliError::NotRun { program, source })?;
        Ok(status
            .code()
            .and_then(|code| u8::try_from(code).ok())
            .unwrap_or(NOT_RUN))
    })
}

/// The command with what tells it of the gateway at `base`.
fn told(command: &[OsString], base: &str) -> Command {
    let (program, arguments) = match command {
        [program, arguments @ ..] => (program.clone(), arguments),
        [] => (OsString::new(), command),
    };
    let versioned = format!("{base}/v1");
    let mut told = Command::new(&program);
    let name = Path::new(&program)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    if name == "codex" {
        told.arg("-c")
            .arg(format!("openai_base_url=\"{versioned}\""));
    }
    if name == "opencode" && std::env::var_os("OPENCODE_CONFIG_CONTENT").is_none() {
        let options = serde_json::json!({"options": {"baseURL": versioned}});
        let config = serde_json::json!({"provider": {"openai": options, "anthropic": options}});
        told.env("OPENCODE_CONFIG_CONTENT", config.to_string());
    }
    told.args(arguments)
        .env("ANTHROPIC_BASE_URL", base)
        // LiteLLM's name for it, which aider has.
        .env("ANTHROPIC_API_BASE", base)
        .env("OPENAI_BASE_URL", &versioned)
        .env("OPENAI_API_BASE", &versioned);
    told
}
