//! Sends requests to the providers.
//!
//! [`Client`] wraps a connection pool. A request is never repeated here, because
//! the client knows best whether it wants to try again. Redirects are not followed but returned to
//! the client.
//!
//! If no answer comes, the error is [`Unreachable`]. An answer with an error status is a normal
//! result. Which URL and headers a request has is decided by [`endpoint`](crate::endpoint) and
//! [`headers`](crate::headers).

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use contexture::config;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::Full;
use tracing::Instrument;

use crate::failure::cause_of;
use crate::{telemetry, trace};

/// Why a provider gave no answer. The message goes to the client, so it contains only the host.
#[derive(Debug, thiserror::Error)]
#[error("the provider at {host} {what}: {cause}")]
pub(crate) struct Unreachable {
    host: String,
    what: &'static str,
    cause: String,
    pub(crate) timed_out: bool,
}

impl Unreachable {
    /// Takes the host from the URL and the cause from the error.
    fn of(url: &str, error: &reqwest::Error) -> Self {
        let mut causes = std::iter::successors(error.source(), |cause| (*cause).source());
        let is_unreadable = causes.any(|cause| {
            let error = cause.downcast_ref::<hyper::Error>();
            error.is_some_and(hyper::Error::is_parse)
        });
        let what = match () {
            // For example, more than 100 headers.
            () if is_unreadable => "sent an answer that cannot be read",
            () if error.is_connect() || error.is_builder() => "cannot be reached",
            // For example, half of a head.
            () => "did not send a complete answer",
        };
        Self {
            host: host_of(url),
            what,
            cause: cause_of(error),
            timed_out: error.is_timeout(),
        }
    }

    /// An answer that changes the protocol. No request asks for that, and the client could not go on
    /// with it.
    fn switched(url: &str) -> Self {
        Self {
            host: host_of(url),
            what: "sent an answer that cannot be used",
            cause: StatusCode::SWITCHING_PROTOCOLS.to_string(),
            timed_out: false,
        }
    }
}

/// The host in a URL. The whole URL may contain a key.
fn host_of(url: &str) -> String {
    url.split('/').nth(2).unwrap_or_default().to_owned()
}

/// The HTTP client for a provider. Clones share its connections, and so do all providers without
/// certificates of their own.
#[derive(Debug, Clone)]
pub(crate) struct Client(reqwest::Client);

impl Client {
    /// Describes a client with the timeouts of `upstream`. [`build`](Self::build) creates it.
    pub(crate) fn builder(upstream: &config::Upstream) -> reqwest::ClientBuilder {
        reqwest::Client::builder()
            // The client decides whether to follow a redirect.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_millis(upstream.connect_timeout_ms))
            .read_timeout(Duration::from_millis(upstream.idle_timeout_ms))
            // Small requests must not wait for the acknowledgement of earlier ones.
            .tcp_nodelay(true)
    }

    /// Creates a client. Connections are opened when they are needed.
    ///
    /// # Errors
    /// TLS is not available, or a certificate cannot be used.
    pub(crate) fn build(builder: reqwest::ClientBuilder) -> Result<Self, reqwest::Error> {
        Ok(Self(builder.build()?))
    }

    /// Sends a request and waits for the head of its answer. Dropping the answer closes the
    /// connection.
    ///
    /// # Errors
    /// The provider cannot be reached, does not answer in time, or its answer has no head that can be
    /// used.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, Unreachable> {
        let span = trace::upstream_span(&method, url);
        span.in_scope(|| telemetry::propagate(&mut headers));
        let mut request = self.0.request(method.clone(), url).headers(headers);
        if !body.is_empty() || !matches!(method, Method::GET | Method::HEAD) {
            // The library would keep bytes until the answer begins, to send them again.
            request = request.body(reqwest::Body::wrap(Full::new(body)));
        }
        let sent = request.send().instrument(span.clone()).await;
        trace::upstream_answered(&span, sent.as_ref().ok().map(reqwest::Response::status));
        let sent = sent.map_err(|error| Unreachable::of(url, &error))?;
        match sent.status() {
            StatusCode::SWITCHING_PROTOCOLS => Err(Unreachable::switched(url)),
            _ => Ok(sent),
        }
    }
}

#[cfg(test)]
mod tests;
