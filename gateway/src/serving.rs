//! Connections: how many there are, how long each may be without a request, and how they end when the gateway stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::{Listener, ListenerExt};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::Shared;

/// How long the last bytes of an answer may take to leave, after the gateway was told to stop and nothing else is being
/// answered. What is still open after that has sent half of a request's head.
const QUIET: Duration = Duration::from_secs(1);
/// How often the log says that connections wait.
const WARNED_EVERY: Duration = Duration::from_secs(60);
/// The files besides connections that a process has open: stores, logs, plugins.
const OTHER_FILES: u64 = 128;
/// The limit of open files that [`raise_file_limit`] asks for.
const FILES: u64 = 65_536;

/// Serves connections until the gateway is told to stop, and then the requests under way, for as long as
/// `gateway.shutdown_ms` allows.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) {
    // Otherwise a second small write waits for the client's acknowledgement of the first, which usually takes 40 ms.
    let mut listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("a connection keeps its delay: {error}");
        }
    });
    let most = shared.settings().max_connections.min(files() / 2);
    let free = Arc::new(Semaphore::new(most.max(1)));
    let connections = GracefulShutdown::new();
    let accepting = async {
        let mut warned: Option<Instant> = None;
        loop {
            let is_due = warned.is_none_or(|at| at.elapsed() > WARNED_EVERY);
            if free.available_permits() == 0 && is_due {
                warned = Some(Instant::now());
                tracing::warn!(
                    "{most} connections are open: others wait (`gateway.max_connections`)"
                );
            }
            // It is never closed.
            let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
                return;
            };
            let (stream, _) = listener.accept().await;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(shared.settings().header_timeout)
                .serve_connection(
                    TokioIo::new(stream),
                    TowerToHyperService::new(router.clone()),
                );
            let connection = connections.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!("a connection broke: {error}");
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = until_stopped(&mut stopped) => {}
    }
    drop(listener);
    let shutdown = shared.settings().shutdown.max(Duration::from_millis(1));
    tokio::select! {
        // Connections without a request end at once.
        () = connections.shutdown() => {}
        () = until_quiet(shared) => {}
        () = sleep(shutdown) => {
            tracing::warn!("answers under way were cut off: gateway.shutdown_ms is over");
        }
    }
}

async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // Whoever could stop it is gone: nobody will.
    if stopped.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn until_quiet(shared: &Shared) {
    let mut since = Instant::now();
    while since.elapsed() < QUIET {
        sleep(QUIET / 20).await;
        if shared.metrics.active.load(Ordering::Relaxed) > 0 {
            since = Instant::now();
        }
    }
}

/// How many files this process may have open for connections. Each of them may need another one to a provider.
fn files() -> usize {
    #[cfg(unix)]
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        return usize::try_from(most.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    }
    usize::MAX
}

/// Raises this process's limit of open files as far as the system allows and a gateway may need. Programs that it starts
/// afterwards inherit the limit.
pub fn raise_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        let limit = getrlimit(Resource::Nofile);
        let wanted = limit.maximum.map_or(FILES, |most| most.min(FILES));
        if limit.current.is_some_and(|current| current < wanted) {
            let raised = Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            };
            if let Err(error) = setrlimit(Resource::Nofile, raised) {
                tracing::debug!("the limit of open files stays: {error}");
            }
        }
    }
}
