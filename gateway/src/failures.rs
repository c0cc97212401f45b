//! Remembers requests that failed, for the status page: what the provider or the gateway answered
//! instead, and after how long.
//!
//! [`Watch`] accompanies a request. If its answer has an error status, the answer passes on
//! unchanged and the beginning of its body is read along, for the message. A stream that breaks off
//! has a good status, so whoever relays it reports it with [`FailureLog::push`].
//!
//! The log is in memory only, because an error may quote the conversation. Counts over time are in
//! [`metrics`](crate::metrics).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contexture::{lock, mask_secrets};
use http::header::CONTENT_ENCODING;
use http_body::{Frame, SizeHint};
use serde::Serialize;
use serde_json::Value;

use crate::account::now_ms;
use crate::{Shared, headers};

/// How many requests are remembered, over all sessions. If there are more, the oldest is dropped.
const MAX_FAILURES: usize = 500;
/// How many bytes of an error's body are read along.
const MAX_BODY_BYTES: usize = 4_096;
/// The most bytes of a message.
const MAX_MESSAGE_BYTES: usize = 500;

/// A request that failed, as the status page gets it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FailedRequest {
    /// When it failed, in milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// The session, or the client's name for it. None if the request names none.
    pub(crate) session: Option<String>,
    #[serde(skip)]
    pub(crate) tenant: Option<String>,
    pub(crate) endpoint: &'static str,
    /// The HTTP status that the client received. 200 if a stream broke off.
    pub(crate) status: u16,
    pub(crate) error: String,
    /// How long the request took until it failed, in milliseconds.
    pub(crate) ms: f64,
}

/// The last requests that failed, since the start.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<VecDeque<FailedRequest>>);

impl FailureLog {
    pub(crate) fn push(&self, mut one: FailedRequest) {
        // Providers quote the key that they refuse. It is masked first, because half of a key would
        // not be recognized.
        one.error = mask_secrets(&one.error).into_owned();
        one.error
            .truncate(one.error.floor_char_boundary(MAX_MESSAGE_BYTES));
        let mut all = lock(&self.0);
        all.push_front(one);
        all.truncate(MAX_FAILURES);
    }

    /// The requests that `is_shown` accepts, latest first.
    pub(crate) fn rows(&self, is_shown: impl Fn(&FailedRequest) -> bool) -> Vec<FailedRequest> {
        let all = lock(&self.0);
        all.iter().filter(|one| is_shown(one)).cloned().collect()
    }
}

/// Watches a request until its answer ends.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    began: Instant,
    failed: FailedRequest,
}

impl Watch {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        endpoint: &'static str,
        tenant: Option<&str>,
        session: Option<&str>,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            began: Instant::now(),
            failed: FailedRequest {
                at_ms: 0,
                session: session.map(str::to_owned),
                tenant: tenant.map(str::to_owned),
                endpoint,
                status: 0,
                error: String::new(),
                ms: 0.0,
            },
        }
    }

    /// Watches the answer if it is an error. The client gets the same bytes.
    pub(crate) fn over(mut self, answer: Response) -> Response {
        let status = answer.status();
        if !status.is_client_error() && !status.is_server_error() {
            return answer;
        }
        self.failed.status = status.as_u16();
        if let Some(session) = headers::text(answer.headers(), headers::SESSION) {
            self.failed.session = Some(session.to_owned());
        }
        let is_readable = !answer.headers().contains_key(CONTENT_ENCODING);
        answer.map(|body| {
            Body::new(WatchedBody {
                body,
                seen: Vec::new(),
                is_readable,
                watch: self,
            })
        })
    }
}

/// The body of an error on its way to the client.
struct WatchedBody {
    body: Body,
    /// The beginning of the body.
    seen: Vec<u8>,
    /// Whether the body is not compressed.
    is_readable: bool,
    watch: Watch,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(piece) = frame.data_ref()
        {
            let room = MAX_BODY_BYTES - self.seen.len();
            self.seen.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for WatchedBody {
    /// Records the failure, however the answer ended.
    fn drop(&mut self) {
        let error = match self.is_readable {
            true => message(&self.seen),
            false => String::new(),
        };
        let watch = &self.watch;
        watch.shared.failures.push(FailedRequest {
            at_ms: now_ms(),
            error,
            ms: watch.began.elapsed().as_secs_f64() * 1e3,
            ..watch.failed.clone()
        });
    }
}

/// The message of an error's body, in any provider's form, or the beginning of a body in none.
fn message(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
    let error = &value["error"];
    let named = [
        &error["message"], error, &value["message"], &value["detail"],
    ];
    let named = named.into_iter().find_map(Value::as_str);
    named.unwrap_or(text.trim()).to_owned()
}

#[cfg(test)]
mod tests;
