//! Builds the responses that clients receive.
//!
//! A provider's answer is returned either as it arrives, by [`stream_back`], or after it was read,
//! by [`full_response`]. Both pass its status and headers on. [`error_response`] builds errors of
//! the gateway itself, in the error format of the API that the client speaks, so that SDKs show the
//! message instead of a parse error.
//!
//! The module also has small helpers to read a provider's response. Rewriting streams is up to
//! [`rounds`](super::rounds).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap};

use crate::api::Api;
use crate::headers;
use crate::limits::ActiveRequest;
use crate::upstream::Unreachable;

/// The most bytes that are kept of a provider's error, or read to empty a connection.
pub(super) const MAX_ERROR_BYTES: usize = 1 << 20;

/// Streams a provider's answer to the client as it arrives. The request counts as active until the
/// last byte is sent or the client disconnects.
pub(super) fn stream_back(response: reqwest::Response, active: ActiveRequest) -> Response {
    let status = response.status();
    let passed = headers::downstream(response.headers(), false);
    let chunks = response.bytes_stream().inspect(move |_| {
        // The closure owns `active`, so the request counts until the stream is dropped.
        let _ = &active;
    });
    (status, passed, Body::from_stream(chunks)).into_response()
}

/// A response with the provider's status and headers and this body. `changed` says that the body is
/// not the provider's own bytes, so its length header is dropped.
pub(super) fn full_response(
    status: StatusCode,
    upstream: &HeaderMap,
    body: Bytes,
    changed: bool,
) -> Response {
    let passed = headers::downstream(upstream, changed);
    (status, passed, Body::from(body)).into_response()
}

/// An error of the gateway itself, in the format of an API.
pub(crate) fn error_response(api: Api, status: StatusCode, message: &str) -> Response {
    let body = api.error(status, message).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The response if the provider cannot be reached: 504 after a timeout, otherwise 502. Also logs
/// the error.
pub(super) fn unreachable(api: Api, error: &Unreachable) -> Response {
    tracing::warn!("{error}");
    let status = match error.timed_out {
        true => StatusCode::GATEWAY_TIMEOUT,
        false => StatusCode::BAD_GATEWAY,
    };
    error_response(api, status, &error.to_string())
}

/// Whether the headers of a response announce server-sent events.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Reads a response until it ends, breaks off or exceeds `most` bytes. Returns what was read until
/// then.
pub(super) async fn read_all(mut response: reqwest::Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            break;
        }
    }
    body
}
