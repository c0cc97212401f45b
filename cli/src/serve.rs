//! `contexture serve`: the gateway, until it is told to stop.

use contexture::HostOptions;
use contexture_engine_api::unwatch_exit;
use contexture_gateway::{BaseUrls, Gateway, GatewayError, Handle};
use tokio::runtime::Runtime;

use crate::error::CliError;
use crate::interrupt::INTERRUPTED;
use crate::{Global, OK, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture serve
  ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
  OPENAI_BASE_URL=http://127.0.0.1:8787/v1 my-agent

Requests go on to the provider of their API (`upstream.openai.base_url`, `upstream.anthropic.base_url`) with the \
client's own credentials, or with the key of `upstream.*.api_key_env` if they send the token in gateway.token in the \
home directory. /healthz says that it runs, /metrics what it did. Ctrl-C and SIGTERM let the answers under \
way come to their end, a second one does not wait for them; SIGHUP has the configuration read again.

Exit codes: 0 stopped, 2 wrong usage or configuration.")]
pub(crate) struct ServeArgs {
    /// The address to listen on [default: `gateway.listen`, 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
}

pub(crate) fn run(args: &ServeArgs, global: &Global) -> Result<u8, CliError> {
    let runtime = runtime()?;
    contexture_gateway::raise_file_limit();
    runtime.block_on(async {
        let gateway = open(global, args.listen.as_deref()).await?;
        for line in gateway.status() {
            terminal::say(&format!("{line}\n"));
        }
        let serving = gateway.serve(|handle| {
            tokio::spawn(signals(handle));
        });
        serving.await.map_err(CliError::Gateway)?;
        Ok(OK)
    })
}

/// What the gateway runs on.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    contexture_gateway::runtime().map_err(|error| CliError::Gateway(GatewayError::Serve(error)))
}

/// A gateway of the command's configuration.
async fn open(global: &Global, listen: Option<&str>) -> Result<Gateway, CliError> {
    open_before(global, listen, BaseUrls::default()).await
}

/// The same, with these addresses for providers that the configuration names no address for.
pub(crate) async fn open_before(
    global: &Global,
    listen: Option<&str>,
    urls: BaseUrls,
) -> Result<Gateway, CliError> {
    let options = HostOptions {
        config: global.config.clone(),
        offline: global.offline,
        ..HostOptions::default()
    };
    Gateway::open_before(options, listen, urls)
        .await
        .map_err(CliError::Gateway)
}

/// Does what the process is told by signals.
#[cfg(unix)]
async fn signals(handle: Handle) {
    use tokio::signal::unix::{SignalKind, signal};

    let (hangup, term) = (
        signal(SignalKind::hangup()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut hangup), Ok(mut term)) = (hangup, term) else {
        tracing::warn!("signals cannot be heard: the gateway ends at once when it is told to");
        return;
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                let handle = handle.clone();
                let read = tokio::task::spawn_blocking(move || handle.reload()).await;
                match read {
                    Ok(Ok(())) => tracing::info!("the configuration was read again"),
                    Ok(Err(error)) => tracing::error!("the last good configuration stays in force: {error}"),
                    Err(error) => tracing::error!("{error}"),
                }
            }
            _ = term.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    handle.stop();
    // A second Ctrl-C means that the user does not want to wait for answers in progress.
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    end_at_once();
}

#[cfg(not(unix))]
async fn signals(handle: Handle) {
    if tokio::signal::ctrl_c().await.is_ok() {
        handle.stop();
        if tokio::signal::ctrl_c().await.is_ok() {
            end_at_once();
        }
    }
}

fn end_at_once() {
    unwatch_exit();
    std::process::exit(INTERRUPTED.into());
}
