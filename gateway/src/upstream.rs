//! Requests to the providers. None is repeated: a client knows best whether it wants to.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use contexture::config;
use http::{HeaderMap, Method};

/// Why a provider gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the provider at {host} cannot be reached: {cause}")]
pub(crate) struct Unreachable {
    host: String,
    cause: String,
    pub(crate) timed_out: bool,
}

impl Unreachable {
    fn of(url: &str, error: &reqwest::Error) -> Self {
        // The whole address may hold a key.
        let host = url.split('/').nth(2).unwrap_or_default().to_owned();
        let mut cause: &dyn Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self {
            host,
            cause: cause.to_string(),
            timed_out: error.is_timeout(),
        }
    }
}

/// What asks the providers.
#[derive(Debug, Clone)]
pub(crate) struct Client(reqwest::Client);

impl Client {
    /// Opens no connection.
    ///
    /// # Errors
    /// There is no TLS to be had.
    pub(crate) fn new(upstream: &config::Upstream) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_millis(upstream.connect_timeout_ms))
            .read_timeout(Duration::from_millis(upstream.idle_timeout_ms))
            .tcp_nodelay(true);
        Ok(Self(client.build()?))
    }

    /// Sends a request, and waits for the head of its answer. Dropping it closes the connection.
    ///
    /// # Errors
    /// No answer came.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, Unreachable> {
        let mut request = self.0.request(method.clone(), url).headers(headers);
        if !body.is_empty() || !matches!(method, Method::GET | Method::HEAD) {
            request = request.body(body);
        }
        let sent = request.send().await;
        sent.map_err(|error| Unreachable::of(url, &error))
    }
}
