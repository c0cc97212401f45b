//! Names requests in logs and traces.
//!
//! [`request_span`] begins the span that all work for a request runs in, so that every line of the
//! log that is written meanwhile can name the request. The id comes from the client's
//! `x-request-id`, or is drawn at random, and returns to the client as `x-contexture-request`. The
//! trace is the one of the client's `traceparent`, which also goes on to the provider.
//!
//! The spans of the steps are made here, too, so that this file lists what a trace consists of. Their
//! fields follow OpenTelemetry's conventions for HTTP and for generative AI. Sending them to a
//! collector is up to [`telemetry`](crate::telemetry).

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use contexture::Usage;
use contexture::session::CompactionReport;
use http::{HeaderMap, Method, StatusCode};
use tracing::Span;
use tracing::field::Empty;

use crate::api::Provider;
use crate::endpoint::{Endpoint, Route};
use crate::trace_context::trace_parent;
use crate::{headers, telemetry};

/// The target of the line that the log has for each request. It is not part of the crate's path, so
/// that a filter can tell it from other lines.
pub(crate) const REQUESTS: &str = "contexture_requests";

/// The header of a request's id, as proxies before the gateway set it.
const REQUEST_ID: &str = "x-request-id";
/// The most characters of a client's request id.
const MAX_ID_CHARS: usize = 128;

/// The id of a request: the client's own if it is a short word, or a random one.
pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let named = headers::text(headers, REQUEST_ID).filter(|id| {
        let is_word = id.bytes().all(|byte| byte.is_ascii_graphic());
        id.len() <= MAX_ID_CHARS && is_word
    });
    match named {
        Some(id) => id.to_owned(),
        // The hasher's keys are random. An id only has to differ from others.
        None => format!("{:016x}", RandomState::new().build_hasher().finish()),
    }
}

/// The name of a request's span. It has few values: of other endpoints only the method.
fn name_of(request: &Request) -> String {
    let method = request.method();
    match Route::of(request.uri().path(), request.headers()).endpoint {
        Endpoint::Other => method.to_string(),
        endpoint => format!("{method} {}", endpoint.name()),
    }
}

/// Begins the span of a request. Everything that is done for the request belongs into it.
pub(crate) fn request_span(id: &str, request: &Request) -> Span {
    let span = tracing::info_span!(
        "request",
        otel.name = name_of(request),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = request.method().as_str(),
        url.path = request.uri().path(),
        http.response.status_code = Empty,
        gen_ai.conversation.id = Empty,
        contexture.outcome = Empty,
        request_id = id,
        trace_id = Empty,
    );
    let parent = trace_parent(request.headers());
    let own = telemetry::adopt(&span, parent.as_ref());
    if let Some(trace) = own.as_deref().or(parent.map(|parent| parent.trace)) {
        span.record("trace_id", trace);
    }
    span
}

/// Adds the outcome of a request to its span.
pub(crate) fn answered(span: &Span, answer: &Response) {
    let status = answer.status();
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    let named = |name| headers::text(answer.headers(), name);
    if let Some(outcome) = named(headers::STATUS) {
        span.record("contexture.outcome", outcome);
    }
    if let Some(session) = named(headers::SESSION) {
        span.record("gen_ai.conversation.id", session);
    }
}

/// A number for a span. Traces have no other whole numbers, and would take these for text.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Begins the span of an HTTP request to a provider, up to the head of its answer.
pub(crate) fn upstream_span(method: &Method, url: &str) -> Span {
    let url = reqwest::Url::parse(url).ok();
    let host = url.as_ref().and_then(|url| url.host_str());
    let port = url.as_ref().and_then(|url| url.port_or_known_default());
    tracing::info_span!(
        "upstream",
        otel.name = method.as_str(),
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.response.status_code = Empty,
        server.address = host,
        server.port = port.map(i64::from),
        error.type = Empty,
    )
}

/// Adds the outcome to the span of an HTTP request to a provider. None stands for no answer.
pub(crate) fn upstream_answered(span: &Span, status: Option<StatusCode>) {
    match status {
        Some(status) => {
            span.record("http.response.status_code", i64::from(status.as_u16()));
            if status.is_client_error() || status.is_server_error() {
                span.record("error.type", status.as_str());
                span.record("otel.status_code", "ERROR");
            }
        }
        None => {
            span.record("error.type", "no_answer");
            span.record("otel.status_code", "ERROR");
        }
    }
}

/// A model call under way: one round of an answer, up to the end of the model's message.
#[derive(Debug)]
pub(crate) struct ModelCall {
    pub(crate) span: Span,
    pub(crate) began: Instant,
}

impl ModelCall {
    pub(crate) fn begin(provider: Provider, model: &str, session: &str) -> Self {
        let span = tracing::info_span!(
            "chat",
            otel.name = format!("chat {model}"),
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.operation.name = "chat",
            gen_ai.provider.name = match provider {
                Provider::Anthropic => "anthropic",
                Provider::Google => "gcp.gemini",
                Provider::OpenAi | Provider::ChatGpt => "openai",
            },
            gen_ai.request.model = model,
            gen_ai.conversation.id = session,
            gen_ai.usage.input_tokens = Empty,
            gen_ai.usage.output_tokens = Empty,
            gen_ai.usage.cache_read.input_tokens = Empty,
            gen_ai.usage.cache_creation.input_tokens = Empty,
            error.type = Empty,
        );
        Self {
            span,
            began: Instant::now(),
        }
    }

    /// Adds what the provider reported.
    pub(crate) fn answered(&self, usage: &Usage) {
        let span = &self.span;
        span.record("gen_ai.usage.input_tokens", int(usage.input_tokens));
        span.record("gen_ai.usage.output_tokens", int(usage.output_tokens));
        let read = "gen_ai.usage.cache_read.input_tokens";
        span.record(read, int(usage.cache_read_tokens));
        let written = "gen_ai.usage.cache_creation.input_tokens";
        span.record(written, int(usage.cache_write_tokens));
    }

    /// Adds the status with which the provider refused it.
    pub(crate) fn refused(&self, status: StatusCode) {
        self.span.record("error.type", status.as_str());
        self.span.record("otel.status_code", "ERROR");
    }
}

/// Begins the span in which a session takes a request in and its engine decides about it.
pub(crate) fn turn_span(session: &str) -> Span {
    tracing::info_span!(
        "turn",
        gen_ai.conversation.id = session,
        contexture.compaction.outcome = Empty,
        contexture.compaction.tokens_before = Empty,
        contexture.compaction.tokens_after = Empty,
    )
}

/// Adds a compaction to the span of its turn.
pub(crate) fn compacted(span: &Span, outcome: &str, report: &CompactionReport) {
    span.record("contexture.compaction.outcome", outcome);
    span.record(
        "contexture.compaction.tokens_before",
        int(report.tokens_before),
    );
    span.record(
        "contexture.compaction.tokens_after",
        int(report.tokens_after),
    );
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_request_without_a_usable_id_gets_one_of_its_own() {
        let id = |named: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, named.parse().unwrap());
            request_id(&headers)
        };
        assert_eq!(id("7f-A:1"), "7f-A:1");
        for named in ["", "two words", &"x".repeat(MAX_ID_CHARS + 1)] {
            let (first, second) = (id(named), id(named));
            assert!(first.len() == 16 && first != second, "{first} {second}");
        }
    }
}
