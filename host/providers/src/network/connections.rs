//! The runtime and the HTTP clients that all model calls of a process share.
//!
//! They are created by the first model call and kept until the process ends, so that a program that
//! never calls a model starts no thread and connections are reused. [`Connections::shared`] returns
//! them, and [`Connections::client`] chooses between a client with the environment's proxy and one
//! without.
//!
//! After a `fork`, the child has none of its parent's threads, and a runtime whose threads are
//! missing would hang. The connections are therefore kept per process id ([`PerProcess`]).

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use contexture_base::PerProcess;
use contexture_engine_api::{FailureKind, ModelFailure};
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::runtime::{Builder, Runtime};

use crate::endpoint::Endpoint;

/// How long a connection may take to open. It counts towards the time limit of the request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of one process. `making` is locked during their creation, so that two first
/// calls do not start two runtimes.
#[derive(Default)]
struct Made {
    connections: OnceLock<Connections>,
    making: Mutex<()>,
}

/// A runtime with one thread, and two HTTP clients: one that follows the environment's proxy
/// settings and one that ignores them.
pub(super) struct Connections {
    pub(super) runtime: Runtime,
    direct: Client,
    proxied: Client,
}

impl Connections {
    /// Returns the connections of this process, and creates them on the first call. If that fails,
    /// the next call tries again.
    ///
    /// # Errors
    /// Returns a failure if the runtime's thread or an HTTP client cannot be created.
    pub(super) fn shared() -> Result<&'static Self, ModelFailure> {
        static MADE: PerProcess<Made> = PerProcess::new(Made {
            connections: OnceLock::new(),
            making: Mutex::new(()),
        });
        let made = MADE.get();
        let _one_maker = made.making.lock().unwrap_or_else(PoisonError::into_inner);
        match made.connections.get() {
            Some(connections) => Ok(connections),
            None => Self::new().map(|new| made.connections.get_or_init(|| new)),
        }
    }

    /// Starts the runtime and creates the clients. No connection is opened yet.
    fn new() -> Result<Self, ModelFailure> {
        let failed = |what: &str, error: &dyn std::error::Error| {
            ModelFailure::new(
                FailureKind::Other,
                format!("model calls cannot start, {what} failed: {error}"),
            )
        };
        // One thread is enough: it only waits for servers. Callers block on their own threads.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("contexture-models")
            .enable_all()
            .build()
            .map_err(|error| failed("their thread", &error))?;
        // Redirects are never followed, because a redirect to another host would take the key
        // along.
        let client = || {
            Client::builder()
                .user_agent(concat!("contexture/", env!("CARGO_PKG_VERSION")))
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
        };
        Ok(Self {
            runtime,
            direct: client()
                .no_proxy()
                .build()
                .map_err(|error| failed("the HTTP client", &error))?,
            proxied: client()
                .build()
                .map_err(|error| failed("the HTTP client", &error))?,
        })
    }

    /// Returns the client for an endpoint. It uses the environment's proxy unless the endpoint is
    /// on this machine.
    pub(super) fn client(&self, endpoint: &Endpoint) -> &Client {
        if endpoint.is_loopback() {
            &self.direct
        } else {
            &self.proxied
        }
    }
}
