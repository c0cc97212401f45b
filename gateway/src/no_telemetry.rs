//! Stands in for `telemetry.rs` in builds without the feature `otel`: a configuration that asks for
//! traces is refused.

use contexture::config;
use http::HeaderMap;
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_subscriber::layer::{Identity, Layer};
use tracing_subscriber::registry::LookupSpan;

use crate::GatewayError;
use crate::trace_context::TraceParent;

/// The connection to an OpenTelemetry collector, which this build cannot make.
pub struct Telemetry(());

impl Telemetry {
    /// Returns None if the section names no collector.
    ///
    /// # Errors
    /// The section names one.
    pub fn start(config: &config::Telemetry, _: &Handle) -> Result<Option<Self>, GatewayError> {
        match &config.endpoint {
            None => Ok(None),
            Some(endpoint) => {
                let cause = "this program was built without the feature `otel`";
                Err(GatewayError::no_collector(endpoint, cause))
            }
        }
    }

    /// A layer that does nothing.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
    {
        Identity::new()
    }

    /// Does nothing.
    pub fn stop(self) {}
}

pub(crate) fn adopt(_: &Span, _: Option<&TraceParent<'_>>) -> Option<String> {
    None
}

pub(crate) fn propagate(_: &mut HeaderMap) {}
