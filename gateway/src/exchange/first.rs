//! Sends the first request of a turn to the provider, and deals with refusals.
//!
//! [`managed`] is the entry point. It calls [`call_model`], which sends the turn's body. If the
//! provider says that the body is too long, it asks the session for a smaller one and sends that,
//! up to three times. Some providers report this only as the first event of a stream, so the
//! beginning of the stream is read before anything reaches the client. If the provider refuses a
//! body that the engine changed for another reason, the client's own request is sent instead.
//!
//! [`rounds`](super::rounds) reads the answer that has begun. It also calls [`call_model`] for later
//! rounds. [`overflow`](crate::overflow) recognizes the providers' error messages.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tracing::Instrument;

use super::Exchange;
use super::list::as_list;
use super::replies::{
    MAX_ERROR_BYTES, full_response, is_event_stream, read_all, stream_back, unreachable,
};
use super::rounds::relay_answer;
use super::summary::{Remembered, relay_and_remember};
use crate::answer::Rounds;
use crate::api::Api;
use crate::conversation::{FitLimits, TurnRequest, TurnResult};
use crate::failure::cause_of;
use crate::headers;
use crate::limits::ActiveRequest;
use crate::overflow::{Overflow, overflow};
use crate::sessions::SessionSlot;
use crate::stream::BYTE_ORDER_MARK;
use crate::stream::sse::Events;
use crate::trace::ModelCall;
use crate::unmanaged::{Status, UnmanagedReason};
use crate::upstream::Unreachable;

/// How long the beginning of a stream is held back while it has no content yet.
const START_TIMEOUT: Duration = Duration::from_millis(500);

/// A prompt with fewer tokens fits every model's window, so its stream is not held back.
const SMALL_PROMPT: u64 = 2_000;

/// The share of the available window that each resent request may use, in percent. Each attempt
/// uses less, because the provider's count is not known exactly.
const WINDOW_SHARES: [u64; 3] = [90, 65, 45];

/// Sends a turn and returns the answer for the client, with headers that describe what was done.
pub(super) async fn managed(
    exchange: Exchange,
    slot: SessionSlot,
    request: Arc<TurnRequest>,
    (result, hold_time): (TurnResult, Duration),
    active: ActiveRequest,
) -> Response {
    let (result, answer, call) = match call_model(&exchange, &slot, &request, result).await {
        Ok(sent) => sent,
        Err(error) => return unreachable(exchange.api, &error),
    };
    let (session, compaction) = (result.session.clone(), result.compaction.clone());
    let wants_list = exchange.wants_list;
    let answer = match answer {
        ProviderAnswer::Refused(refused) if may_be_ours(&refused, &result, &request) => {
            return send_original(exchange, request, active, refused).await;
        }
        ProviderAnswer::Refused(refused) => refused.into_response(),
        ProviderAnswer::Started(_, response) if !response.status().is_success() => {
            stream_back(response, active)
        }
        ProviderAnswer::Started(start, response) => {
            let rounds = Rounds::new(request, result, hold_time, call);
            relay_answer(exchange, slot, rounds, (start, response), active).await
        }
    };
    let mut answer = with_turn_headers(answer, &session, compaction.as_deref());
    if wants_list {
        answer = as_list(answer);
    }
    answer
}

/// How a provider responds to a turn. An answer may still have an error status that has nothing to
/// do with the body, such as a rate limit.
pub(super) enum ProviderAnswer {
    /// An answer has begun. Comes with the part of its stream that was already read.
    Started(StreamStart, reqwest::Response),
    Refused(ProviderRefusal),
}

impl ProviderAnswer {
    /// Notes that the provider refused the model call, if it did.
    fn note_refusal(&self, call: &ModelCall) {
        let status = match self {
            Self::Started(_, response) => response.status(),
            Self::Refused(refused) => refused.status,
        };
        if !status.is_success() {
            call.refused(status);
        }
    }
}

/// The part of an answer that was read before anything is passed on.
#[derive(Debug, Default)]
pub(super) struct StreamStart {
    pub(super) is_stream: bool,
    pub(super) bytes: Vec<u8>,
    /// Why the answer broke off. Has to be kept, because reading again would only report its
    /// end.
    pub(super) broken: Option<String>,
}

/// A provider's refusal, read completely so that it can be examined.
pub(super) struct ProviderRefusal {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    /// The error: the whole body, or the data of a stream's first event.
    pub(super) error: Vec<u8>,
    /// The bytes of the stream if the error came as an event. The client gets them unchanged.
    stream: Option<Vec<u8>>,
    is_overflow: bool,
}

impl ProviderRefusal {
    pub(super) fn into_response(self) -> Response {
        let body = self.stream.unwrap_or(self.error);
        full_response(self.status, &self.headers, Bytes::from(body), false)
    }
}

/// Whether this status says that the body of a request is refused.
fn is_about_the_body(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 413 | 422)
}

/// Whether a valid request may have become the one that was refused here, so that the client's own
/// version gets a chance. It gets none if it would not fit the model's window.
fn may_be_ours(refused: &ProviderRefusal, result: &TurnResult, request: &TurnRequest) -> bool {
    let is_about_content = !refused.is_overflow && is_about_the_body(refused.status);
    let names_markers = || memchr::memmem::find(&refused.error, b"cache_control").is_some();
    let original = (result.prompt_tokens as f64 * result.client_ratio) as u64;
    is_about_content
        && result.is_changed
        && (result.is_rewritten || names_markers())
        && original <= request.spec.agent.context_length
}

/// Sends a turn as a model call. Returns the turn that was sent in the end, and the provider's response
/// to it.
///
/// # Errors
/// The provider cannot be reached.
pub(super) async fn call_model(
    exchange: &Exchange,
    slot: &SessionSlot,
    request: &Arc<TurnRequest>,
    result: TurnResult,
) -> Result<(TurnResult, ProviderAnswer, ModelCall), Unreachable> {
    let spec = &request.spec;
    let call = ModelCall::begin(exchange.provider, &spec.agent.model, &spec.id);
    let sending = send_fitting(exchange, slot, request, result);
    let (result, answer) = sending.instrument(call.span.clone()).await?;
    answer.note_refusal(&call);
    Ok((result, answer, call))
}

/// Sends a turn. If the provider says that it does not fit, sends smaller versions until one fits
/// or nothing smaller can be made.
///
/// Only the statuses 400, 413, 422 and 500 can mean this. Other answers are returned as they are,
/// with the beginning of their stream.
///
/// # Errors
/// The provider cannot be reached.
async fn send_fitting(
    exchange: &Exchange,
    slot: &SessionSlot,
    request: &Arc<TurnRequest>,
    mut result: TurnResult,
) -> Result<(TurnResult, ProviderAnswer), Unreachable> {
    let mut shares = WINDOW_SHARES.iter();
    loop {
        let mut response = exchange.send(result.take_body(request)).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut start = StreamStart::default();
        let error = if is_about_the_body(status) || status == StatusCode::INTERNAL_SERVER_ERROR {
            Some(read_all(response, MAX_ERROR_BYTES).await)
        } else {
            start.is_stream = begins_stream(&mut response, &mut start).await;
            if start.is_stream && result.prompt_tokens >= SMALL_PROMPT && start.broken.is_none() {
                read_start(exchange.api, &mut response, &mut start).await;
            }
            // Other errors in a stream are for the client, and reach it as part of the stream.
            match immediate_error(exchange.api, &start.bytes) {
                Some(error) if overflow(400, &error).is_some() => Some(error),
                _ => return Ok((result, ProviderAnswer::Started(start, response))),
            }
        };
        let error = error.unwrap_or_default();
        // An error event came in a stream with status 200. It is judged like a plain 400.
        let code = if status.is_success() {
            400
        } else {
            status.as_u16()
        };
        let found = overflow(code, &error);
        if let Some(found) = found
            && let Some(share) = shares.next()
            && let Some(again) = shorten(exchange, slot, request, &result, found, *share).await
        {
            exchange.shared.metrics.add("resent_total", "", 1.0);
            result = again;
            continue;
        }
        if found.is_some() {
            let metrics = &exchange.shared.metrics;
            metrics.add("refused_as_too_long_total", "", 1.0);
            tracing::warn!(
                session = %result.session,
                "the provider refused the request as too long, and no shorter one could be sent"
            );
        }
        let refused = ProviderRefusal {
            status,
            headers,
            error,
            stream: Some(start.bytes).filter(|start| !start.is_empty()),
            is_overflow: found.is_some(),
        };
        return Ok((result, ProviderAnswer::Refused(refused)));
    }
}

fn with_turn_headers(mut answer: Response, session: &str, compaction: Option<&str>) -> Response {
    let own = answer.headers_mut();
    headers::set(own, headers::STATUS, "managed");
    headers::set(own, headers::SESSION, session);
    if let Some(compaction) = compaction {
        headers::set(own, headers::COMPACTION, compaction);
    }
    answer
}

/// Sends the client's own request after the provider refused the turn's version. If it refuses the
/// content of that too, the client gets the first refusal. The answer's headers say so, because the
/// client may otherwise not notice that the engine does nothing.
async fn send_original(
    exchange: Exchange,
    request: Arc<TurnRequest>,
    active: ActiveRequest,
    refused: ProviderRefusal,
) -> Response {
    let refusal = String::from_utf8_lossy(&refused.error);
    let (reason, api, wants_list) = ("provider_refused", exchange.api, exchange.wants_list);
    let why = UnmanagedReason::new(Status::FailedOpen, reason, refusal);
    let (metrics, session) = (&exchange.shared.metrics, &request.spec.id);
    metrics.add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let (unmanaged, tenant) = (&exchange.shared.unmanaged, request.spec.tenant.as_deref());
    unmanaged.note(metrics, tenant, Some(session), &why);
    let body = request.references.restore(request.body.clone());
    let body = body.text().as_bytes().clone();
    let mut answer = match exchange.send(body).await {
        Ok(response) if is_about_the_body(response.status()) => refused.into_response(),
        Ok(response) => stream_back(response, active),
        Err(error) => return unreachable(api, &error),
    };
    why.set_headers(&mut answer);
    if api == Api::Responses {
        let what = Remembered::Items(request.spec.tenant.clone());
        answer = relay_and_remember(exchange.shared, &exchange.settings, api, what, answer);
    }
    match wants_list {
        true => as_list(answer),
        false => answer,
    }
}

/// Reads a stream up to its first event with content, for at most [`START_TIMEOUT`]. If the request
/// does not fit, that event says so.
async fn read_start(api: Api, response: &mut reqwest::Response, start: &mut StreamStart) {
    let until = tokio::time::Instant::now() + START_TIMEOUT;
    while beginning(api, &start.bytes).is_none() {
        let more = tokio::time::timeout_at(until, read_on(response, start)).await;
        if more != Ok(true) {
            return;
        }
    }
}

/// Reads the next piece of an answer. Returns false if there is none.
async fn read_on(response: &mut reqwest::Response, start: &mut StreamStart) -> bool {
    match response.chunk().await {
        Ok(Some(chunk)) => {
            start.bytes.extend_from_slice(&chunk);
            true
        }
        Ok(None) => false,
        Err(error) => {
            start.broken = Some(cause_of(&error));
            false
        }
    }
}

/// Whether a response is a stream, which many servers send under another type. If its type does not
/// say so, its first bytes decide, and they are read for it.
async fn begins_stream(response: &mut reqwest::Response, start: &mut StreamStart) -> bool {
    if !response.status().is_success() || is_event_stream(response.headers()) {
        return response.status().is_success();
    }
    loop {
        if let Some(begins) = begins_like_events(&start.bytes) {
            return begins;
        }
        if !read_on(response, start).await {
            return false;
        }
    }
}

/// Whether these are the first bytes of a stream of events. None if more bytes are needed.
fn begins_like_events(bytes: &[u8]) -> Option<bool> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let bytes = bytes.trim_ascii_start();
    let fields: [&[u8]; 5] = [b":", b"data:", b"event:", b"id:", b"retry:"];
    if fields.iter().any(|field| bytes.starts_with(field)) {
        return Some(true);
    }
    let may_become_one = fields.iter().any(|field| field.starts_with(bytes));
    (!may_become_one).then_some(false)
}

/// The error of a stream whose first event with content is an error. Returns None for every other
/// stream.
pub(super) fn immediate_error(api: Api, start: &[u8]) -> Option<Vec<u8>> {
    beginning(api, start).flatten()
}

/// Whether the first event with content in a stream is an error, and that error. None if there is no
/// such event yet: streams of Responses begin with announcements.
fn beginning(api: Api, start: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut events = Events::default();
    events.push(start);
    while let Some(event) = events.next() {
        if event.data.is_none() {
            continue;
        }
        let data = event.json().unwrap_or_default();
        let is_error = data["error"].is_object() || data["error"].is_string();
        let error = match data["type"].as_str() {
            Some("response.created" | "response.in_progress" | "response.queued") => continue,
            Some("response.failed") => Some(&data["response"]),
            Some("error") => Some(&data),
            _ if matches!(api, Api::Chat | Api::Gemini) && is_error => Some(&data),
            _ => None,
        };
        return Some(error.map(|error| error.to_string().into_bytes()));
    }
    None
}

/// Asks the session for a smaller version of a request that the provider says does not fit. It
/// should use at most `share` percent of the available window. Returns None if the engine fails or
/// the result is not smaller.
async fn shorten(
    exchange: &Exchange,
    slot: &SessionSlot,
    request: &Arc<TurnRequest>,
    result: &TurnResult,
    found: Overflow,
    share: u64,
) -> Option<TurnResult> {
    let window = request.spec.agent.context_length;
    let estimate = result.prompt_tokens.max(1_000);
    // If the provider names no limit, all that is known is that this size did not fit.
    let unnamed = || found.size.unwrap_or(estimate) / 10 * 9;
    let limit = found.limit.unwrap_or_else(unnamed).min(window);
    let answer = match request.longest_answer() {
        // The provider counts the answer as part of the window, so it has to stay free.
        longest if longest < limit / 4 * 3 => longest,
        _ => limit / 10,
    };
    let fit = FitLimits {
        limit,
        size: found.size.unwrap_or(estimate.max(limit + 1)),
        answer,
        goal: (limit - answer) * share / 100,
    };
    tracing::info!(
        session = %result.session, limit = fit.limit, size = fit.size, goal = fit.goal,
        "the provider refused the request as too long, so a shorter one is sent"
    );
    let (shared, request) = (Arc::clone(&exchange.shared), Arc::clone(request));
    let before = result.clone();
    let again = slot
        .with_cell(&exchange.shared.work, move |cell| {
            request.turn_within(&shared, cell, &before, &fit)
        })
        .await;
    match again {
        Ok(again) => (again.body.text().len() < result.sent_bytes).then_some(again),
        Err(failure) => {
            tracing::warn!(session = %result.session, reason = failure.reason, "cannot shorten the request: {}", failure.detail);
            None
        }
    }
}
