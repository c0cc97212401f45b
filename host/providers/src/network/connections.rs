//! The one place that owns threads and connections: a runtime and two HTTP clients, made on the first
//! model call of the process and kept to its end.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use contexture_base::PerProcess;
use contexture_engine_api::{FailureKind, ModelFailure};
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::runtime::{Builder, Runtime};

use crate::endpoint::Endpoint;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of this process and the runtime that makes them. A child made by `fork` has none of its parent's
/// threads.
#[derive(Default)]
struct Made {
    connections: OnceLock<Connections>,
    making: Mutex<()>,
}

pub(super) struct Connections {
    pub(super) runtime: Runtime,
    direct: Client,
    proxied: Client,
}

impl Connections {
    /// The process's network, created on the first call.
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

    fn new() -> Result<Self, ModelFailure> {
        let failed = |what: &str, error: &dyn std::error::Error| {
            ModelFailure::new(
                FailureKind::Other,
                format!("model calls cannot start, {what} failed: {error}"),
            )
        };
        // One thread: it only waits for servers. Callers block on their own.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("contexture-models")
            .enable_all()
            .build()
            .map_err(|error| failed("their thread", &error))?;
        // Redirects are never followed: one to another host would take the key along.
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

    /// The client for an endpoint: the environment's proxy, but never for this machine itself.
    pub(super) fn client(&self, endpoint: &Endpoint) -> &Client {
        if endpoint.is_loopback() {
            &self.direct
        } else {
            &self.proxied
        }
    }
}
