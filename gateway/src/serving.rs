//! Serves connections: limits how many there are and how long each may be idle, and ends them when
//! the gateway stops.
//!
//! [`serve`] accepts connections until it is told to stop. If there are as many as allowed, further
//! ones wait in the backlog of the socket. With `gateway.tls`, a connection begins with a handshake, and
//! uses the certificate that was in force when it was accepted. When the gateway stops, it accepts no
//! more connections. Those without a request end after a moment, and answers under way may finish until
//! `gateway.shutdown_ms` is over.
//!
//! Each connection may need another one to a provider, so the limit of open files matters.
//! [`raise_file_limit`] raises it. The requests themselves are limited in [`limits`](crate::limits)
//! and answered by [`routes`](crate::routes).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::Shared;

/// How long connections may still begin a request after the gateway was told to stop. The first
/// bytes of a request may be on their way, and a proxy does not send it again once it has begun.
const LAST_REQUESTS: Duration = Duration::from_millis(100);
/// How long the last bytes of an answer may take to leave, after the gateway was told to stop and
/// nothing else is being answered. A connection that is still open after that has sent only half of
/// a request's head.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// The largest buffer in bytes with which a connection reads. Headers must fit into it. By default
/// the buffer of each connection that sends long requests grows to 400 KB or more, and stays.
const READ_BUFFER: usize = 64 << 10;
/// The least time between two warnings that connections have to wait.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);
/// How many open files are reserved for other things than connections: stores, locks, logs, plugins.
const RESERVED_FILES: usize = 192;
/// How many connections are allowed even if the limit of open files leaves fewer beside the
/// [`RESERVED_FILES`]. Not all of those are in use in a small gateway.
const LEAST_CONNECTIONS: usize = 16;
/// The number of open files that [`raise_file_limit`] asks for.
#[cfg(unix)]
const WANTED_FILES: u64 = 65_536;

/// Serves connections until the gateway is told to stop, and then finishes the requests under way,
/// for as long as `gateway.shutdown_ms` allows.
pub(crate) async fn serve(
    mut listener: TcpListener,
    router: Router,
    shared: &Shared,
    mut stopped: watch::Receiver<bool>,
) {
    let most = shared.settings().config.gateway.max_connections as usize;
    let (most, limit) = most_connections(most, file_limit());
    let free = Arc::new(Semaphore::new(most));
    let connections = GracefulShutdown::new();
    let begin = |stream: TcpStream, permit: OwnedSemaphorePermit| {
        // Without this, a second small write waits for the client's acknowledgement of the first,
        // which usually takes 40 ms.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("cannot turn off delayed sending for a connection: {error}");
        }
        let (settings, router) = (shared.settings(), router.clone());
        let watcher = connections.watcher();
        tokio::spawn(async move {
            let limit = Duration::from_millis(settings.config.gateway.header_timeout_ms);
            match &settings.tls {
                None => serve_connection(stream, router, limit, watcher).await,
                // The handshake comes before the first request, so it has the same time.
                Some(tls) => match timeout(limit, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve_connection(stream, router, limit, watcher).await,
                    Ok(Err(error)) => tracing::debug!("a TLS handshake failed: {error}"),
                    Err(_) => tracing::debug!("a TLS handshake took too long"),
                },
            }
            drop(permit);
        });
    };
    let accepting = async {
        let mut warned: Option<Instant> = None;
        loop {
            let is_due = warned.is_none_or(|at| at.elapsed() > WARNING_INTERVAL);
            if free.available_permits() == 0 && is_due {
                warned = Some(Instant::now());
                tracing::warn!(
                    "all {most} connections are in use, so new ones wait: raise {limit}"
                );
            }
            // The semaphore is never closed, so this cannot fail.
            let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
                return;
            };
            let (stream, _) = Listener::accept(&mut listener).await;
            begin(stream, permit);
        }
    };
    tokio::select! {
        () = accepting => {}
        () = until_stopped(&mut stopped) => {}
    }
    // The system would reset the connections that wait to be accepted.
    if let Ok(listener) = listener.into_std() {
        while let Ok(permit) = Arc::clone(&free).try_acquire_owned()
            && let Ok((stream, _)) = listener.accept()
            && stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(stream, permit);
        }
    }
    if connections.count() > 0 {
        sleep(LAST_REQUESTS).await;
    }
    let shutdown = Duration::from_millis(shared.settings().config.gateway.shutdown_ms.max(1));
    tokio::select! {
        // Connections without a request end at once.
        () = connections.shutdown() => {}
        () = until_quiet(shared) => {}
        () = sleep(shutdown) => {
            tracing::warn!("ended the answers that were still in progress after `gateway.shutdown_ms`");
        }
    }
    // The end of a turn is stored while the model answers, and may come after the answer.
    shared.work.until_idle(QUIET_TIME).await;
}

/// Answers the requests of one connection until it ends.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    router: Router,
    header_timeout: Duration,
    watcher: Watcher,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!("a connection failed: {error}");
    }
}

/// Waits until the gateway is told to stop. Waits forever if nobody can tell it any more.
async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // If the sender is gone, nobody can stop the gateway any more.
    if stopped.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Waits until no request has been answered for [`QUIET_TIME`].
async fn until_quiet(shared: &Shared) {
    let mut since = Instant::now();
    while since.elapsed() < QUIET_TIME {
        sleep(QUIET_TIME / 20).await;
        let (active, of_page) = (&shared.metrics.active, &shared.metrics.active_of_page);
        if active.load(Ordering::Relaxed) + of_page.load(Ordering::Relaxed) > 0 {
            since = Instant::now();
        }
    }
}

/// How many connections are open at once, and the limit that decides it: the one that is
/// configured, or that of open files if it allows fewer.
fn most_connections(configured: usize, files: usize) -> (usize, &'static str) {
    // Each connection may need another one to a provider.
    let allowed = (files.saturating_sub(RESERVED_FILES) / 2).max(LEAST_CONNECTIONS);
    match configured <= allowed {
        true => (configured.max(1), "`gateway.max_connections`"),
        false => (allowed, "the limit of open files (`ulimit -n`)"),
    }
}

/// How many files this process may open. Unlimited if the system has no such limit.
fn file_limit() -> usize {
    #[cfg(unix)]
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        return usize::try_from(most).unwrap_or(usize::MAX);
    }
    usize::MAX
}

/// Raises this process's limit of open files, as far as the system allows and a gateway may need.
/// Programs that it starts afterwards inherit the limit. If it fails, the old limit stays.
pub fn raise_file_limit() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

        let limit = getrlimit(Resource::Nofile);
        let wanted = limit
            .maximum
            .map_or(WANTED_FILES, |most| most.min(WANTED_FILES));
        if limit.current.is_some_and(|current| current < wanted) {
            let raised = Rlimit {
                current: Some(wanted),
                maximum: limit.maximum,
            };
            if let Err(error) = setrlimit(Resource::Nofile, raised) {
                tracing::debug!("cannot raise the limit of open files: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lower_limit_decides_how_many_connections_there_are_and_is_named() {
        let (own, files) = (
            "`gateway.max_connections`",
            "the limit of open files (`ulimit -n`)",
        );
        for (configured, limit, most, named) in [
            (4_096, usize::MAX, 4_096, own),
            (4_096, 65_536, 4_096, own),
            (4_096, 1_024, 416, files),
            (4_096, 256, 32, files),
            (4_096, 128, 16, files),
            (4_096, 0, 16, files),
            (8, 128, 8, own),
        ] {
            assert_eq!(
                most_connections(configured, limit),
                (most, named),
                "{configured} {limit}"
            );
        }
    }
}
