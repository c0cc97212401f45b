//! The gateway: a proxy before a model's API that gives any agent a context engine.
//!
//! It stands on the one way through the host, as any embedder does: each request of a client is a turn of a session,
//! each answer is fed back, and what the engine's tools are asked is answered here.

mod access;
mod account;
mod agent_model;
mod answer;
mod api;
mod coding;
mod conversation;
mod diff;
mod endpoint;
mod exchange;
mod failure;
mod headers;
mod heal;
mod health;
mod hidden;
mod identity;
mod limits;
mod lineage;
mod metrics;
mod overflow;
mod page;
mod proof;
mod routes;
mod serving;
mod session_key;
mod sessions;
mod settings;
mod side_call;
mod stream;
mod tokens;
mod unmanaged;
mod upstream;
mod window;
mod work;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use contexture::{Host, HostError, HostOptions, TokenError};
use tokio::net::TcpListener;
use tokio::sync::watch;

use account::Diffs;
use answer::Ended;
use api::Provider;
use health::Health;
use identity::Identities;
use metrics::Metrics;
pub use serving::raise_file_limit;
use sessions::Sessions;
use settings::Settings;
pub use settings::{BaseUrls, SettingsError};
use unmanaged::Unmanaged;
use work::Work;
pub use work::runtime;

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The host cannot be opened.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The configuration cannot be served.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The gateway's own token, which clients need, cannot be had.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address cannot be had.
    #[error("cannot listen on {address}: {cause}; is another gateway running there?")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The host could not be opened for a fault of its own.
    #[error("the host cannot be opened: {0}")]
    Panicked(String),
    /// The server ended.
    #[error("the gateway ended: {0}")]
    Serve(std::io::Error),
}

/// What all requests share.
pub(crate) struct Shared {
    host: Host,
    sessions: Sessions<Ended>,
    identities: Identities,
    metrics: Arc<Metrics>,
    unmanaged: Unmanaged,
    health: Health,
    work: Work,
    settings: RwLock<Arc<Settings>>,
    /// What the last compactions changed.
    diffs: Mutex<Diffs>,
    address: SocketAddr,
    /// `gateway.listen` as it was at the start.
    listen: String,
    /// The base URLs that the environment named at startup.
    urls: BaseUrls,
}

impl Shared {
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A gateway that listens, and does not answer yet.
pub struct Gateway {
    shared: Arc<Shared>,
    listener: TcpListener,
}

/// What a command needs to use a gateway, see [`Gateway::pass`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Pass {
    /// The token. None if the home directory can hold none.
    pub token: Option<String>,
    /// Whether every request needs a token, because `gateway.tokens` are configured.
    pub is_needed: bool,
    /// Whether the gateway has a key for OpenAI's API, and adds it to requests with a token.
    pub openai: bool,
    /// Whether the gateway has a key for Anthropic's API, and adds it to requests with a token.
    pub anthropic: bool,
}

/// Totals since the gateway started.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Totals {
    /// Requests that carry conversations, managed or not.
    pub requests: u64,
    /// Requests to other endpoints, such as the list of models.
    pub others: u64,
    /// Requests that were handled as turns of a session.
    pub managed: u64,
    /// How many more tokens the requests would have had without the engine (an estimate).
    pub saved_tokens: u64,
    /// How much more they would have cost without the engine, in US dollars at list prices. Negative if they cost more
    /// with it.
    pub saved_dollars: f64,
}

/// Stops a gateway, and has it read its configuration again.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Handle {
    /// Takes no more requests; those under way come to their end, as long as `gateway.shutdown_ms` allows.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// The totals since the start.
    pub fn totals(&self) -> Totals {
        self.shared.metrics.totals()
    }

    /// Reads the configuration again: engines, limits, timeouts, tokens and addresses of providers. What is under way goes on as
    /// it began. Blocks.
    ///
    /// # Errors
    /// What is wrong with it: the last good one stays in force.
    pub fn reload(&self) -> Result<(), GatewayError> {
        self.shared.host.reload()?;
        let engines = self.shared.host.engines();
        let settings = settings(&self.shared.host, self.shared.address, &self.shared.urls)?;
        let listen = &engines.config().gateway.listen;
        if *listen != self.shared.listen {
            tracing::warn!(
                "`gateway.listen` is {listen} now: the gateway stays at {}, and needs a restart to move there",
                self.shared.address
            );
        }
        *self
            .shared
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.shared.sessions.close_all();
        Ok(())
    }
}

/// The settings of the configuration in force. The gateway does without a token of its own if no client needs it, as on a
/// file system that cannot be written.
fn settings(host: &Host, address: SocketAddr, urls: &BaseUrls) -> Result<Settings, GatewayError> {
    let (token, missing) = match host.gateway_token() {
        Ok(token) => (Some(token), None),
        Err(error) => (None, Some(error)),
    };
    let settings = Settings::of(host.engines().config(), address, urls, token)?;
    let providers = [Provider::OpenAi, Provider::Anthropic, Provider::ChatGpt];
    let is_needed = providers.iter().any(|one| settings.key_needs_token(*one));
    match missing {
        Some(error) if is_needed => Err(error.into()),
        Some(error) => {
            tracing::warn!("the gateway has no token of its own: {error}");
            Ok(settings)
        }
        None => Ok(settings),
    }
}

impl Gateway {
    /// Opens the host and listens: on `listen`, else where the configuration says.
    ///
    /// # Errors
    /// What is missing for it.
    pub async fn open(options: HostOptions, listen: Option<&str>) -> Result<Self, GatewayError> {
        Self::open_before(options, listen, BaseUrls::default()).await
    }

    /// Like [`open`](Self::open), with these addresses for providers that the configuration names no address for.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_before(
        options: HostOptions,
        listen: Option<&str>,
        urls: BaseUrls,
    ) -> Result<Self, GatewayError> {
        let opened = tokio::task::spawn_blocking(move || Host::open(&options)).await;
        let host = opened.map_err(|error| GatewayError::Panicked(error.to_string()))??;
        let engines = host.engines();
        let config = engines.config();
        let wanted = listen.unwrap_or(&config.gateway.listen).to_owned();
        let mut addresses =
            tokio::net::lookup_host(wanted.clone())
                .await
                .map_err(|_| SettingsError::Address {
                    address: wanted.clone(),
                })?;
        let address = addresses.next().ok_or(SettingsError::Address {
            address: wanted.clone(),
        })?;
        let settings = settings(&host, address, &urls)?;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|cause| GatewayError::Listen {
                address: wanted,
                cause,
            })?;
        let address = listener.local_addr().map_err(GatewayError::Serve)?;
        Ok(Self {
            shared: Arc::new(Shared {
                host,
                sessions: Sessions::new(),
                identities: Identities::default(),
                metrics: Arc::default(),
                unmanaged: Unmanaged::default(),
                health: Health::default(),
                work: Work::default(),
                diffs: Mutex::default(),
                settings: RwLock::new(Arc::new(settings)),
                address,
                listen: config.gateway.listen.clone(),
                urls,
            }),
            listener,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The base URL to which requests for Anthropic's API are sent.
    pub fn upstream_of_anthropic(&self) -> String {
        let settings = self.shared.settings();
        settings
            .upstream(api::Provider::Anthropic)
            .base()
            .to_owned()
    }

    /// What a command needs to use this gateway with the token of the home directory.
    pub fn pass(&self) -> Pass {
        let settings = self.shared.settings();
        let tokens = &settings.tokens;
        Pass {
            token: tokens.own.as_ref().map(|own| own.text().to_owned()),
            is_needed: !tokens.tenants.is_empty(),
            openai: settings.key_needs_token(Provider::OpenAi),
            anthropic: settings.key_needs_token(Provider::Anthropic),
        }
    }

    /// What a person should know at the start, a line each.
    pub fn status(&self) -> Vec<String> {
        let engines = self.shared.host.engines();
        let config = engines.config();
        let settings = self.shared.settings();
        let mode = match settings.observe {
            true => "observing",
            false => "managing",
        };
        let mut lines = vec![format!(
            "listening on http://{}, {mode}, engine {}",
            self.address(),
            config.context.engine
        )];
        lines.extend(settings.status(&config.prompt_caching));
        lines
    }

    /// Answers requests until it is stopped; `handle` is given what stops it.
    ///
    /// # Errors
    /// The server failed.
    pub async fn serve(self, handle: impl FnOnce(Handle)) -> Result<(), GatewayError> {
        let (stop, stopped) = watch::channel(false);
        handle(Handle {
            shared: Arc::clone(&self.shared),
            stop,
        });
        let router = routes::router(Arc::clone(&self.shared));
        serving::serve(self.listener, router, &self.shared, stopped).await;
        Ok(())
    }
}
