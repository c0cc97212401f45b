//! `contexture serve`: runs the gateway until it is told to stop.
//!
//! [`run`] opens the gateway, prints its status and serves. SIGTERM and Ctrl-C stop it after the
//! answers in progress, a second one stops it at once, and SIGHUP makes it read the configuration
//! again. On Windows only Ctrl-C is handled.
//!
//! [`open_for_command`] and [`runtime`] are also used by `contexture run`, which has a gateway of its
//! own. Everything about requests is in the crate `contexture_gateway`.

use contexture::HostOptions;
use contexture_engine_api::unwatch_exit;
use contexture_gateway::{Gateway, GatewayError, Handle, Provider, Telemetry};
use tokio::runtime::Runtime;

use crate::error::{CliError, Lines};
use crate::interrupt::INTERRUPTED;
use crate::log::{self, LogFormat};
use crate::{Global, OK, start, terminal};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  contexture serve
  ANTHROPIC_BASE_URL=http://127.0.0.1:8787 claude
  OPENAI_BASE_URL=http://127.0.0.1:8787/v1 my-agent

Requests are forwarded to the provider of their API (`upstream.*.base_url`) with the client's own credentials, or with the key of `upstream.*.api_key_env` if they send the token from gateway.token in the home directory. /healthz reports whether it runs, and /metrics serves metrics for Prometheus. Ctrl-C and SIGTERM let answers in progress finish; a second signal ends the gateway at once. SIGHUP reloads the configuration.

Exit codes: 0 stopped, 2 wrong usage or configuration, 3 the record of sessions cannot be used.")]
pub(crate) struct ServeArgs {
    /// The address to listen on [default: `gateway.listen`, 127.0.0.1:8787]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// How to write the log to stderr
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

/// Serves until the gateway is stopped. Fails if the configuration cannot be used or the address
/// cannot be listened on.
pub(crate) fn run(args: &ServeArgs, global: &Global) -> Result<u8, CliError> {
    let prepared = prepare(global);
    let telemetry = prepared.as_ref().ok().and_then(|(_, it)| it.as_ref());
    // A gateway can only be observed through its log.
    log::to_stderr(global.verbose.max(1), args.log_format, telemetry);
    log::in_background();
    let (runtime, telemetry) = prepared?;
    contexture_gateway::raise_file_limit();
    let ended = runtime.block_on(async {
        let gateway = open(global, args.listen.as_deref()).await?;
        log::flush();
        for line in gateway.status() {
            match args.log_format {
                LogFormat::Text => terminal::say(&format!("{line}\n")),
                LogFormat::Json => tracing::info!("{line}"),
            }
        }
        let serving = gateway.serve(|handle| {
            tokio::spawn(signals(handle));
        });
        serving.await;
        Ok(OK)
    });
    if let Some(telemetry) = telemetry {
        telemetry.stop();
    }
    ended
}

/// Starts the runtime, and connects to the collector that the configuration names. A configuration
/// that cannot be used names none, and is reported when the gateway opens.
fn prepare(global: &Global) -> Result<(Runtime, Option<Telemetry>), CliError> {
    let runtime = runtime()?;
    let telemetry = match start::read_config(global) {
        Ok(loaded) => Telemetry::start(&loaded.config.gateway.telemetry, runtime.handle()),
        Err(_) => Ok(None),
    };
    Ok((runtime, telemetry.map_err(CliError::Gateway)?))
}

/// Returns the runtime on which the gateway and other asynchronous parts run.
pub(crate) fn runtime() -> Result<Runtime, CliError> {
    contexture_gateway::runtime().map_err(CliError::Gateway)
}

/// Opens a gateway with the configuration of the command. `listen` replaces the configured address.
async fn open(global: &Global, listen: Option<&str>) -> Result<Gateway, CliError> {
    let opened = Gateway::open(options(global), listen).await;
    opened.map_err(|error| failed(error, global, listen.is_some()))
}

/// Converts the error of a gateway that could not be opened. If a key of the configuration is the
/// cause, it gets its position in the file.
fn failed(error: GatewayError, global: &Global, is_listen_given: bool) -> CliError {
    let GatewayError::Settings(wrong) = &error else {
        return CliError::of_gateway(error);
    };
    let keys = wrong.keys();
    if keys.is_empty() || (is_listen_given && keys == ["gateway", "listen"]) {
        return CliError::Gateway(error);
    }
    match start::read_config(global) {
        Ok(loaded) => {
            let finding = loaded.finding(&keys, wrong.to_string());
            CliError::Findings(Lines(finding.to_string()))
        }
        Err(_) => CliError::Gateway(error),
    }
}

/// Opens a gateway for a single command. For a provider whose address the configuration does not
/// name, the one in `urls` is used.
pub(crate) async fn open_for_command(
    global: &Global,
    urls: Vec<(Provider, String)>,
) -> Result<Gateway, CliError> {
    let opened = Gateway::open_for_command(options(global), "127.0.0.1:0", urls).await;
    opened.map_err(CliError::of_gateway)
}

fn options(global: &Global) -> HostOptions {
    HostOptions::default()
        .config(global.config.clone())
        .offline(global.offline)
}

/// Handles the signals of the process: SIGHUP reloads the configuration, the first SIGTERM or
/// Ctrl-C stops the gateway, and the second ends the process.
#[cfg(unix)]
async fn signals(handle: Handle) {
    use tokio::signal::unix::{SignalKind, signal};

    let (hangup, term) = (
        signal(SignalKind::hangup()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut hangup), Ok(mut term)) = (hangup, term) else {
        tracing::warn!(
            "signals cannot be received: a signal ends the gateway at once, without waiting for answers"
        );
        return;
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                let handle = handle.clone();
                // A configuration that cannot be used must not stop a gateway that is running. The
                // host has already logged why it cannot be used.
                let read = tokio::task::spawn_blocking(move || handle.reload()).await;
                if let Err(error) = read {
                    tracing::error!("{error}");
                }
            }
            _ = term.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    handle.stop();
    // A second signal means that the user does not want to wait for answers in progress.
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

// Ending the process like this would otherwise be reported as an exit that a plugin caused.
fn end_at_once() {
    log::flush();
    unwatch_exit();
    std::process::exit(INTERRUPTED.into());
}
