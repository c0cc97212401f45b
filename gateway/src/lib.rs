//! The gateway: a proxy in front of a model's API that gives any agent a context engine.
//!
//! An agent sends its requests to the gateway instead of the provider. Each request that carries a
//! conversation becomes a turn of a session in the host. The engine may compact the history and
//! offer tools of its own, and the resulting body goes to the provider. The answer is streamed
//! back. If the model calls the engine's tools, the gateway executes the calls itself in further
//! rounds that the client does not see. If a step fails, the request is passed on unchanged.
//!
//! Start with [`Gateway::open`] and [`Gateway::serve`]. Inside the crate, `routes` receives
//! requests, `exchange` handles one request, `conversation` runs its turn, `lineage` finds its
//! session, and `stream` reads the provider's answer. Sessions, engines and storage belong to the
//! `contexture` crate, which the gateway embeds like any other host would.

mod access;
mod account;
mod agent_model;
mod answer;
mod api;
mod body;
mod coding;
mod conversation;
mod diff;
mod endpoint;
mod exchange;
mod failure;
mod failures;
mod gemini;
mod headers;
mod health;
mod hidden;
mod identity;
mod limits;
mod lineage;
mod metrics;
mod overflow;
mod page;
mod proof;
mod references;
mod reload;
mod repair;
mod routes;
mod serving;
mod session_key;
mod sessions;
mod settings;
mod settings_error;
mod side_call;
mod stream;
mod subject;
#[cfg_attr(not(feature = "otel"), path = "no_telemetry.rs")]
mod telemetry;
mod tls;
mod tokens;
mod trace;
mod trace_context;
mod unmanaged;
mod upstream;
mod window;
mod work;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use contexture::config::Config;
use contexture::engines::Engines;
use contexture::tokens::TokenCounter;
use contexture::{Host, HostError, HostOptions, TokenError};
use tokio::net::TcpListener;
use tokio::sync::watch;

use account::Diffs;
pub use api::Provider;
use failures::FailureLog;
use health::Health;
use identity::IdentityCache;
use metrics::Metrics;
use page::SessionLists;
use references::ItemCache;
pub use reload::{ReloadError, reload_running};
pub use serving::raise_file_limit;
use sessions::Sessions;
use settings::Settings;
pub use settings::{problems, unreadable_certificates};
pub use settings_error::SettingsError;
use subject::Subjects;
pub use telemetry::Telemetry;
use unmanaged::UnmanagedLog;
use work::WorkPool;
pub use work::runtime;

/// How often a gateway that runs warns of certificates that end.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a gateway could not be opened, reloaded or served. The messages are written for the person
/// who starts it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The host cannot be opened, or its new configuration cannot be used. The message is the
    /// host's own.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The configuration is readable, but a gateway cannot run with it, for example because it
    /// would be unsafe.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The gateway's own token cannot be read or created, although clients need it.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The socket, the threads or the collector of `gateway.telemetry` cannot be used, or opening the
    /// host panicked. The text says what to do.
    #[error("{0}")]
    Failed(String),
}

impl GatewayError {
    /// The error of a collector of `gateway.telemetry` that cannot be used.
    fn no_collector(endpoint: &str, cause: &str) -> Self {
        Self::Failed(format!(
            "cannot send traces to {endpoint}: {cause}; correct or remove `gateway.telemetry.endpoint`"
        ))
    }
}

/// State that all requests share. It lives as long as the server, and longer if background work
/// still refers to it.
pub(crate) struct Shared {
    // Handlers take `&Shared` from many threads, so each part that changes has its own lock.
    host: Host,
    sessions: Sessions,
    identities: IdentityCache,
    items: ItemCache,
    metrics: Arc<Metrics>,
    unmanaged: UnmanagedLog,
    failures: FailureLog,
    health: Health,
    work: WorkPool,
    settings: RwLock<Arc<Settings>>,
    /// Held while the configuration is read again, so that each one replaces the last one.
    reloading: Mutex<()>,
    /// What the last compactions changed, for the status page.
    diffs: Mutex<Diffs>,
    subjects: Subjects,
    session_lists: SessionLists,
    started_ms: u64,
    address: SocketAddr,
    /// The configuration as it was at startup. A reload cannot apply each of its keys, and warns if
    /// such a key differs.
    started_with: Config,
    /// If this is the gateway of a single command: base URLs from its environment. They apply again
    /// on each reload.
    command: Option<Vec<(Provider, String)>>,
}

impl Shared {
    /// See [`Handle::reload`].
    pub(crate) fn reload(&self) -> Result<(), GatewayError> {
        let _only_one = self.reloading.lock();
        let settings = self.host.reload_if(|engines| {
            let command = self.command.as_deref();
            let settings = settings(&self.host, engines, self.address, command)?;
            Ok::<_, GatewayError>(settings.in_place_of(&self.settings(), self.address)?)
        })?;
        for key in settings::need_restart(&self.started_with, self.host.engines().config()) {
            tracing::warn!(
                "`{key}` changed, but the gateway goes on with what it was started with: restart it to apply the change"
            );
        }
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.sessions.close_all();
        tracing::info!("the configuration was read again: {}", self.runs());
        Ok(())
    }

    /// The mode and the engine that the configuration names.
    fn runs(&self) -> String {
        let engines = self.host.engines();
        let mode = match self.settings().observe {
            true => "observing",
            false => "managing",
        };
        format!("{mode}, engine {}", engines.config().context.engine)
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A gateway that has bound its socket but does not answer yet.
///
/// Connections wait in the backlog until [`serve`](Self::serve) runs. Until then, the caller can
/// read the address and the status lines.
pub struct Gateway {
    shared: Arc<Shared>,
    listener: TcpListener,
}

/// What a command such as `contexture run` needs in order to send requests through a gateway.
/// [`Gateway::pass`] creates it.
#[derive(Clone)]
#[non_exhaustive]
pub struct Pass {
    /// The token of the home directory. None if the file system is read-only.
    pub token: Option<String>,
    /// Whether every request needs a token. This is the case if `gateway.tokens` is configured.
    pub is_needed: bool,
    /// The providers that the gateway has a key for, which it adds to requests with a token. For
    /// these, the agent needs no key of its own.
    pub keys: Vec<Provider>,
}

/// Totals since the gateway started. They are kept in memory only and begin at zero after a
/// restart.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests that carry conversations, whether they were managed or passed on unchanged.
    pub requests: u64,
    /// Requests to other endpoints, such as the list of models. They are not part of `requests`.
    pub others: u64,
    /// Requests that were handled as turns of a session. The difference to `requests` was passed on
    /// unchanged.
    pub managed: u64,
    /// Requests that should have been turns and were passed on unchanged, because something failed.
    pub failed_open: u64,
    /// Turns that the provider refused as too long, and that could not be shortened any further.
    pub refused_as_too_long: u64,
    /// Sessions that had requests. One that left memory and came back counts again.
    pub sessions: u64,
    /// Compactions that changed a window.
    pub compactions: u64,
    /// Estimated tokens that the engine saved, at four bytes per token.
    pub saved_tokens: u64,
    /// Estimated savings in US dollars at list prices. Negative if the requests cost more with the
    /// engine than they would have without it.
    pub saved_dollars: f64,
}

/// Controls a running gateway: stops it, reloads its configuration and reads its totals. Clones
/// control the same gateway. If all handles are dropped, the gateway can no longer be stopped, and
/// runs until its process ends.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Handle {
    /// Stops the gateway. It accepts no more connections. Requests under way may finish until
    /// `gateway.shutdown_ms` is over, and are then cut off.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The totals since the start, for a summary when the gateway stops.
    pub fn totals(&self) -> Totals {
        self.shared.metrics.totals()
    }

    /// Reads the configuration again: engines, limits, timeouts, tokens and addresses of providers.
    ///
    /// Requests under way continue with the old settings. Sessions leave memory and are opened
    /// again with the new ones. A change of a key that needs a restart, such as `gateway.listen`,
    /// only logs a warning. Blocks.
    ///
    /// # Errors
    /// The new configuration is invalid or empty, or would remove a protection such as
    /// `gateway.tokens`. The previous one stays in force.
    pub fn reload(&self) -> Result<(), GatewayError> {
        self.shared.reload()
    }
}

/// Builds the settings from a configuration. If the gateway's own token cannot be
/// created, for example on a read-only file system, this is an error only if a client needs the
/// token. Otherwise it logs a warning.
fn settings(
    host: &Host,
    engines: &Engines,
    address: SocketAddr,
    command: Option<&[(Provider, String)]>,
) -> Result<Settings, GatewayError> {
    let (token, missing) = match host.gateway_token() {
        Ok(token) => (Some(token), None),
        Err(error) => (None, Some(error)),
    };
    let settings = Settings::of(engines.loaded(), address, command, token)?;
    settings.warn_of_certificates();
    // If the gateway has no key to protect, no client needs its token.
    let is_needed = !settings.keys_with_token().is_empty();
    match missing {
        Some(error) if is_needed => Err(error.into()),
        Some(error) => {
            tracing::warn!("the gateway runs without its own token: {error}");
            Ok(settings)
        }
        None => Ok(settings),
    }
}

impl Gateway {
    /// Opens the host and binds the socket: on `listen` if it is given, otherwise on
    /// `gateway.listen`.
    ///
    /// # Errors
    /// The host cannot be opened, the configuration cannot be served, or the address cannot be
    /// bound.
    pub async fn open(options: HostOptions, listen: Option<&str>) -> Result<Self, GatewayError> {
        Self::open_with(options, listen, None).await
    }

    /// Like [`open`](Self::open), but for a single command on this machine: with base URLs from the
    /// command's environment for providers that the configuration gives no address for, and without
    /// TLS, because no certificate names the loopback address.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_for_command(
        options: HostOptions,
        listen: &str,
        urls: Vec<(Provider, String)>,
    ) -> Result<Self, GatewayError> {
        Self::open_with(options, Some(listen), Some(urls)).await
    }

    async fn open_with(
        options: HostOptions,
        listen: Option<&str>,
        command: Option<Vec<(Provider, String)>>,
    ) -> Result<Self, GatewayError> {
        let panicked = |error| {
            GatewayError::Failed(format!(
                "opening the host panicked, which is a bug: {error}; report it with the log"
            ))
        };
        // Nearly every model is counted like the unknown one. The first request need not wait for it.
        let counter = tokio::task::spawn_blocking(|| TokenCounter::for_model("").load());
        // Requests are sent on without their session until the database answers.
        let options = options.database_may_be_away(true);
        // Opening the host reads files and loads plugins, which would block the runtime.
        let opened = tokio::task::spawn_blocking(move || Host::open(&options)).await;
        let host = opened.map_err(panicked)??;
        let engines = host.engines();
        let config = engines.config();
        let wanted = listen.unwrap_or(&config.gateway.listen).to_owned();
        // `listen` may be a host name with several addresses. The first one is used.
        let addresses = tokio::net::lookup_host(&wanted).await;
        let address = addresses.ok().and_then(|mut all| all.next());
        let address = address.ok_or_else(|| SettingsError::address(&wanted))?;
        let settings = settings(&host, &engines, address, command.as_deref())?;
        let listener = TcpListener::bind(address).await.map_err(|cause| {
            GatewayError::Failed(format!(
                "cannot listen on {wanted}: {cause}; stop the program that uses it, or choose another address \
                 (`gateway.listen`)"
            ))
        })?;
        counter.await.map_err(panicked)?;
        // If port 0 was asked for, only the bound socket knows the port.
        let address = listener.local_addr().map_err(|error| {
            GatewayError::Failed(format!(
                "cannot read the address of the listening socket: {error}; start the gateway again"
            ))
        })?;
        Ok(Self {
            shared: Arc::new(Shared {
                host,
                sessions: Sessions::default(),
                identities: IdentityCache::default(),
                items: ItemCache::default(),
                metrics: Arc::default(),
                unmanaged: UnmanagedLog::default(),
                failures: FailureLog::default(),
                health: Health::default(),
                work: WorkPool::default(),
                diffs: Mutex::default(),
                subjects: Subjects::default(),
                session_lists: SessionLists::default(),
                started_ms: account::now_ms(),
                settings: RwLock::new(Arc::new(settings)),
                reloading: Mutex::default(),
                address,
                started_with: config.clone(),
                command,
            }),
            listener,
        })
    }

    /// The address that the gateway listens on. If port 0 was asked for, this holds the real port.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The base URL, with its version, that requests for Anthropic's API are sent to.
    pub fn upstream_of_anthropic(&self) -> String {
        let settings = self.shared.settings();
        settings.upstream(Provider::Anthropic).base().to_owned()
    }

    /// What a command needs to use this gateway with the token of the home directory: the token,
    /// and the APIs that the gateway has a key for.
    pub fn pass(&self) -> Pass {
        let settings = self.shared.settings();
        let tokens = &settings.tokens;
        Pass {
            token: tokens.own.as_ref().map(|own| own.text().to_owned()),
            is_needed: !tokens.tenants.is_empty(),
            keys: settings.keys_with_token(),
        }
    }

    /// Status lines to print at startup: the address, the mode and the engine, who needs a token,
    /// and whether prompts are cached.
    pub fn status(&self) -> Vec<String> {
        let engines = self.shared.host.engines();
        let config = engines.config();
        let settings = self.shared.settings();
        let mut lines = vec![format!(
            "listening on {}://{}, {}",
            settings.scheme(),
            self.address(),
            self.shared.runs()
        )];
        lines.extend(settings.status(&config.prompt_caching));
        lines
    }

    /// Answers requests until the gateway is stopped. Before the first request, `handle` receives
    /// the [`Handle`] that can stop it.
    ///
    /// It cannot fail: an error of a connection is logged and ends only that connection. If no
    /// connection can be accepted, for example because too many files are open, it tries again.
    pub async fn serve(self, handle: impl FnOnce(Handle)) {
        let (stop, stopped) = watch::channel(false);
        // The caller needs the handle now, because the next call returns only at the end.
        handle(Handle {
            shared: Arc::clone(&self.shared),
            stop,
        });
        let router = routes::router(Arc::clone(&self.shared));
        let warning = async {
            loop {
                tokio::time::sleep(CERTIFICATE_INTERVAL).await;
                self.shared.settings().warn_of_certificates();
            }
        };
        tokio::select! {
            () = serving::serve(self.listener, router, &self.shared, stopped) => {}
            () = warning => {}
        }
    }
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
