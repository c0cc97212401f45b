//! What the client is answered: the provider's answer, read or not, or the gateway's own.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::poll_fn;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use crate::api::Api;
use crate::headers;
use crate::limits::Counted;
use crate::upstream::Unreachable;

/// The most of a provider's error that is kept.
pub(super) const LONGEST_ERROR: usize = 1 << 20;

/// A provider's answer as it comes.
pub(super) fn back(response: reqwest::Response, counted: Counted) -> Response {
    let status = response.status();
    let passed = headers::downstream(response.headers(), false);
    let mut chunks = Box::pin(response.bytes_stream());
    let stream = poll_fn(move |context| {
        // It counts until its last byte is sent.
        let _ = &counted;
        futures_util::Stream::poll_next(chunks.as_mut(), context)
    });
    let mut answer = Response::new(Body::from_stream(stream));
    *answer.status_mut() = status;
    *answer.headers_mut() = passed;
    answer
}

/// A provider's answer that was read.
pub(super) fn whole(
    status: StatusCode,
    upstream: &HeaderMap,
    body: Bytes,
    changed: bool,
) -> Response {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers::downstream(upstream, changed);
    answer
}

/// The gateway's own answer in the words of an API.
pub(crate) fn refuse(api: Api, status: StatusCode, kind: &str, message: &str) -> Response {
    let body = api.error(kind, message).to_string();
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

pub(super) fn unreachable(api: Api, error: &Unreachable) -> Response {
    tracing::warn!("{error}");
    let status = match error.timed_out {
        true => StatusCode::GATEWAY_TIMEOUT,
        false => StatusCode::BAD_GATEWAY,
    };
    refuse(api, status, "api_error", &error.to_string())
}

pub(super) fn is_stream(response: &reqwest::Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    response.status().is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

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
