//! Sends the spans of requests to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! [`Telemetry::start`] connects to the collector that `gateway.telemetry` names, and
//! [`Telemetry::layer`] is the part of a tracing subscriber that gives it the spans. Spans are sent
//! in batches by a thread of their own. If the collector is slow or away, spans are dropped and
//! requests never wait.
//!
//! [`adopt`] and [`propagate`] connect the gateway's spans with those of its client and of the
//! provider, by the headers of W3C Trace Context.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use contexture::config;
use http::{HeaderMap, HeaderValue, Request, Response};
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::GatewayError;
use crate::failure::cause_of;
use crate::trace_context::{TRACE_PARENT, TraceParent};

/// How long the collector may take to accept a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long [`Telemetry::stop`] waits for the last spans to be sent.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to an OpenTelemetry collector.
pub struct Telemetry(SdkTracerProvider);

impl Telemetry {
    /// Connects to the collector of `gateway.telemetry`. Returns None if the section names none.
    /// `runtime` has to live until [`stop`](Self::stop) returns.
    ///
    /// # Errors
    /// The endpoint is not a URL that can be used. A collector that cannot be reached is not an
    /// error, but is logged when the first spans are sent.
    pub fn start(
        config: &config::Telemetry,
        runtime: &Handle,
    ) -> Result<Option<Self>, GatewayError> {
        let Some(endpoint) = &config.endpoint else {
            return Ok(None);
        };
        let unusable = |cause: String| GatewayError::no_collector(endpoint, &cause);
        let client =
            Collector::new(endpoint, runtime).map_err(|error| unusable(cause_of(&error)))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .with_http_client(client)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let mut resource = Resource::builder_empty()
            .with_service_name("contexture")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_detector(Box::new(EnvResourceDetector::new()));
        if let Ok(name) = std::env::var("OTEL_SERVICE_NAME")
            && !name.is_empty()
        {
            resource = resource.with_service_name(name);
        }
        let own = Sampler::TraceIdRatioBased(config.sample_ratio);
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            // A client that is traced decides for its requests.
            .with_sampler(Sampler::ParentBased(Box::new(own)))
            .with_resource(resource.build());
        Ok(Some(Self(provider.build())))
    }

    /// The layer that takes the spans of Contexture's crates. It takes no events, because the log
    /// masks secrets only when it is written.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'s> LookupSpan<'s> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("contexture"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(|metadata| {
                metadata.is_span() && metadata.target().starts_with("contexture")
            }))
    }

    /// Sends the spans that are left, for at most five seconds. Blocks.
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(STOP_TIMEOUT) {
            tracing::debug!("the last spans were not sent: {error}");
        }
    }
}

/// The HTTP client of the exporter. The exporter calls it on a thread without a runtime, so the
/// requests run on the gateway's.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
    endpoint: String,
    /// Whether the last batch was refused. Each outage is logged once.
    is_away: AtomicBool,
}

impl Collector {
    fn new(endpoint: &str, runtime: &Handle) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().timeout(EXPORT_TIMEOUT);
        let url = reqwest::Url::parse(endpoint).ok();
        let is_here = url.is_some_and(|url| {
            let host = url.host_str().unwrap_or_default();
            host == "localhost" || host.starts_with("127.") || host == "[::1]"
        });
        Ok(Self {
            // A proxy of the environment is for other machines.
            client: match is_here {
                true => client.no_proxy().build()?,
                false => client.build()?,
            },
            runtime: runtime.clone(),
            endpoint: endpoint.to_owned(),
            is_away: AtomicBool::new(false),
        })
    }

    /// Logs when the collector begins or stops refusing spans.
    fn note(&self, problem: Option<String>) {
        let was_away = self.is_away.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_away => tracing::warn!(
                "spans are lost: the collector at {} (`gateway.telemetry.endpoint`) does not take them: {problem}",
                self.endpoint
            ),
            None if was_away => tracing::info!("the collector takes spans again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move {
            let answer = client.execute(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut response = Response::new(answer.bytes().await?);
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok::<_, reqwest::Error>(response)
        });
        let answered = sending.await?;
        self.note(match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(cause_of(error)),
        });
        Ok(answered?)
    }
}

/// Makes a span that has just begun a child of the client's, if there is one, and returns the id of
/// its trace. Returns None if spans are not sent anywhere.
pub(crate) fn adopt(span: &Span, parent: Option<&TraceParent<'_>>) -> Option<String> {
    let remote = parent.and_then(|parent| {
        Some(SpanContext::new(
            TraceId::from_hex(parent.trace).ok()?,
            SpanId::from_hex(parent.span).ok()?,
            TraceFlags::new(u8::from_str_radix(parent.flags, 16).ok()?),
            true,
            TraceState::default(),
        ))
    });
    if let Some(remote) = remote {
        // It fails if there is no layer, and then there is nothing to do.
        let _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    own.is_valid().then(|| own.trace_id().to_string())
}

/// Names the current span as the parent in the headers of a request. Leaves the client's own header
/// if spans are not sent anywhere.
pub(crate) fn propagate(headers: &mut HeaderMap) {
    let context = Span::current().context();
    let own = context.span().span_context().clone();
    if !own.is_valid() {
        return;
    }
    let flags = own.trace_flags().to_u8();
    let parent = format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id());
    if let Ok(parent) = HeaderValue::from_str(&parent) {
        headers.insert(TRACE_PARENT, parent);
    }
}
