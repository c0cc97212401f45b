//! Relays a provider's answer to the client, in as many rounds as it takes.
//!
//! [`relay_answer`] is the entry point. An [`AnswerReader`] removes the engine's tool calls from
//! the answer. If the model waits only for the engine, the calls are executed, and the next request
//! continues the same answer for the client. [`relay_json`] does this for JSON answers, and
//! [`relay`] for event streams. A stream is relayed in a task of its own, which ends when the
//! client goes away.
//!
//! A large part of the module is about streams that break off. The client has to see an error then,
//! never a shortened answer that looks complete.
//!
//! The calls themselves are executed by [`Rounds`], and the next request is sent by [`call_model`].

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contexture::Usage;
use futures_util::{FutureExt as _, stream};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TRAILER};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{timeout, timeout_at};

use super::Exchange;
use super::first::{ProviderAnswer, StreamStart, call_model, immediate_error};
use super::replies::{MAX_ERROR_BYTES, error_response, full_response, read_all, unreachable};
use crate::account::now_ms;
use crate::answer::Rounds;
use crate::api::Api;
use crate::failure::cause_of;
use crate::failures::FailedRequest;
use crate::headers;
use crate::limits::ActiveRequest;
use crate::sessions::SessionSlot;
use crate::stream::sse::Events;
use crate::stream::surrogates;
use crate::stream::{AnswerReader, Round};
use crate::upstream::Unreachable;

/// Relays an answer that has begun, round by round, until the model waits for the client or is
/// done. Totals of hidden rounds follow in headers, or in trailers if the answer is a stream.
pub(super) async fn relay_answer(
    exchange: Exchange,
    slot: SessionSlot,
    rounds: Rounds,
    (start, response): (StreamStart, reqwest::Response),
    active: ActiveRequest,
) -> Response {
    let (status, passed) = (response.status(), response.headers().clone());
    let reader = AnswerReader::new(exchange.api, rounds.tools());
    if !start.is_stream {
        let api = exchange.api;
        let relaying = relay_json(exchange, slot, rounds, reader, (start, response));
        let relayed = AssertUnwindSafe(relaying).catch_unwind().await;
        return relayed.unwrap_or_else(|_| error_response(api, StatusCode::BAD_GATEWAY, PANIC));
    }
    let wants_list = exchange.wants_list;
    let (sender, receiver) = mpsc::channel(16);
    let shared = Arc::clone(&exchange.shared);
    let relaying = async move {
        let _counted = active;
        relay(exchange, slot, rounds, reader, (start, response), sender).await;
    };
    shared.work.start(relaying);
    let mut answer = Response::new(Body::new(relayed(receiver)));
    *answer.status_mut() = status;
    let own = answer.headers_mut();
    *own = headers::downstream(&passed, true);
    if wants_list {
        // The events are about to become a list, whatever the provider calls them.
        own.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    }
    headers::set(
        own,
        TRAILER.as_str(),
        &[headers::ROUNDS, headers::TOKENS].join(", "),
    );
    answer
}

/// What a client is told if reading an answer panics.
const PANIC: &str = "the gateway failed to read the provider's answer";

/// The provider's stream broke off. The client's connection is broken off too, as it would be
/// without the gateway.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the provider's answer broke off")]
struct StreamCut;

/// Sends frames to the client. Bounded, so that a slow client slows the provider down and the
/// gateway does not buffer the answer.
type FrameSender = mpsc::Sender<Result<Frame<Bytes>, StreamCut>>;
type FrameReceiver = mpsc::Receiver<Result<Frame<Bytes>, StreamCut>>;

/// The body of a streamed answer. If the provider broke off, it ends with an error, but only after
/// all bytes before it have been written. It ends properly only after trailers, which may be empty,
/// so that nothing that stops the relay looks like an end.
fn relayed(
    frames: FrameReceiver,
) -> impl http_body::Body<Data = Bytes, Error = StreamCut> + Send + 'static {
    let next = |(mut frames, has_end): (FrameReceiver, bool)| async move {
        match frames.recv().await {
            Some(Ok(frame)) => {
                let has_end = has_end || frame.is_trailers();
                Some((Ok(frame), (frames, has_end)))
            }
            None if has_end => None,
            _ => {
                // The server drops unwritten data when it receives the error. It writes while the
                // body is pending, so the body is pending once.
                yield_now().await;
                frames.close();
                Some((Err(StreamCut), (frames, true)))
            }
        }
    };
    StreamBody::new(stream::unfold((frames, false), next))
}

/// Sets the number of hidden rounds and the tokens of all rounds, as headers or trailers.
fn set_totals(own: &mut HeaderMap, hidden: u32, usage: &Usage) {
    headers::set(own, headers::ROUNDS, &hidden.to_string());
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let tokens = format!("input={input}; output={output}");
    headers::set(own, headers::TOKENS, &tokens);
}

/// Answers with a JSON body. All rounds are completed before the client receives anything, because
/// the body has to be composed from all of them.
async fn relay_json(
    exchange: Exchange,
    slot: SessionSlot,
    mut rounds: Rounds,
    mut reader: AnswerReader,
    (mut start, mut response): (StreamStart, reqwest::Response),
) -> Response {
    let api = exchange.api;
    let failed = |message: &str| error_response(api, StatusCode::BAD_GATEWAY, message);
    loop {
        let (status, mut passed) = (response.status(), response.headers().clone());
        let is_stream = start.is_stream;
        let body = match whole_body(start, response, exchange.settings.max_body).await {
            Ok(body) => body,
            Err(cause) => return failed(&cause),
        };
        if is_stream {
            // Only a later round can be one, and the answer has begun as a JSON body.
            if let Err(message) = read_events(api, &mut reader, &body) {
                return failed(&message);
            }
            passed.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else {
            let text = std::str::from_utf8(&body).ok();
            match text.and_then(|text| reader.parse(text)) {
                Some(value)
                    if status.is_success() && (rounds.hidden == 0 || api.is_answer(&value)) =>
                {
                    reader.json(value);
                }
                _ => return full_response(status, &passed, body, true),
            }
        }
        let round = reader.take_round();
        if !round.continues || rounds.is_exhausted(&exchange.settings) {
            if round.continues {
                reader.end_at_limit(&mut Vec::new());
            }
            let hidden = rounds.hidden;
            let usage = rounds
                .finish(
                    &exchange.shared,
                    &exchange.settings,
                    &slot,
                    round,
                    reader.visible(),
                )
                .await;
            let composed = reader.composed();
            let changed = composed.is_some();
            let body = composed.map_or(body, Bytes::from);
            let mut answer = full_response(status, &passed, body, changed);
            set_totals(answer.headers_mut(), hidden, &usage);
            return answer;
        }
        let answer;
        (rounds, answer) = match next_answer(&exchange, &slot, rounds, round).await {
            Ok(next) => next,
            Err(NextError::Failed(message)) => return failed(&message),
            Err(NextError::Unreachable(error)) => return unreachable(api, &error),
        };
        (start, response) = match answer {
            ProviderAnswer::Started(start, response) => (start, response),
            ProviderAnswer::Refused(refused) => return refused.into_response(),
        };
    }
}

/// Why there is no next round.
#[derive(Debug, thiserror::Error)]
enum NextError {
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Executes the engine's calls of a round and sends the next request.
async fn next_answer(
    exchange: &Exchange,
    slot: &SessionSlot,
    rounds: Rounds,
    round: Round,
) -> Result<(Rounds, ProviderAnswer), NextError> {
    let (shared, settings) = (&exchange.shared, &exchange.settings);
    let next = rounds.next_round(shared, settings, slot, round).await;
    let mut rounds = next.map_err(|failure| {
        let detail = failure.detail;
        NextError::Failed(format!("the gateway cannot continue the answer: {detail}"))
    })?;
    let (request, result) = rounds.to_send();
    let (result, answer, call) = call_model(exchange, slot, &request, result).await?;
    rounds.sent(result, call);
    Ok((rounds, answer))
}

/// Reads an answer to its end. The error says why it broke off, or that it has more than `most` bytes.
async fn whole_body(
    start: StreamStart,
    mut response: reqwest::Response,
    most: usize,
) -> Result<Bytes, String> {
    let broken = |cause| format!("the provider's answer broke off: {cause}");
    if let Some(cause) = start.broken {
        return Err(broken(cause));
    }
    let mut body = start.bytes;
    while let Some(chunk) = (response.chunk().await).map_err(|error| broken(cause_of(&error)))? {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            return Err(too_large(most));
        }
    }
    Ok(Bytes::from(body))
}

/// What a client is told of an answer with more than `most` bytes. What is read of an answer takes
/// several times as much memory.
fn too_large(most: usize) -> String {
    format!(
        "the provider's answer is larger than {} MB (`gateway.max_body_mb`)",
        most >> 20
    )
}

/// Reads a round that came as a stream although the answer is a JSON body. The error says why the
/// round is not complete.
fn read_events(api: Api, reader: &mut AnswerReader, body: &[u8]) -> Result<(), String> {
    reader.events(body);
    let progress = reader.progress();
    if !progress.failed && (progress.finished || progress.is_whole) {
        return Ok(());
    }
    Err(match immediate_error(api, body) {
        Some(error) => {
            let error = String::from_utf8_lossy(&error);
            format!("the provider refused the next round: {error}")
        }
        None => "the provider ended its answer before it was complete".to_owned(),
    })
}

/// Why a stream ended before the answer was complete. Decides what the client receives at the end.
enum RelayError {
    ClientGone,
    /// The gateway failed. The client receives this message as an error event.
    Failed(String),
    /// The provider refused a later round, with this status and error.
    Refused(StatusCode, Vec<u8>),
    /// The provider sent an error event, which the client has received.
    ByProvider,
    /// The provider's stream ended before the answer was complete.
    Cut {
        /// Whether the HTTP body ended properly. The client then sees no connection error either.
        is_clean: bool,
        message: String,
    },
}

/// Relays a stream in all its rounds, and ends it with an error if one of them fails.
async fn relay(
    exchange: Exchange,
    slot: SessionSlot,
    rounds: Rounds,
    mut reader: AnswerReader,
    response: (StreamStart, reqwest::Response),
    sender: FrameSender,
) {
    let (request, _) = rounds.to_send();
    let arrived = Instant::now().checked_sub(rounds.time());
    let relaying = relay_rounds(&exchange, &slot, rounds, &mut reader, response, &sender);
    let relayed = AssertUnwindSafe(relaying).catch_unwind().await;
    let broken = relayed.unwrap_or_else(|_| Err(RelayError::Failed(PANIC.to_owned())));
    let api = exchange.api;
    let failed = |reader: &mut AnswerReader, error: &Value| {
        let mut event = Vec::new();
        reader.write_error(error, &mut event);
        Some(Ok(Frame::data(Bytes::from(event))))
    };
    let (message, last, ends) = match broken {
        Ok(()) | Err(RelayError::ClientGone) => return,
        Err(RelayError::ByProvider) => {
            let _ = sender.send(Ok(Frame::trailers(HeaderMap::new()))).await;
            return;
        }
        Err(RelayError::Failed(message)) => {
            let last = failed(&mut reader, &api.stream_error(&message));
            (message, last, true)
        }
        Err(RelayError::Refused(status, said)) => {
            let text = String::from_utf8_lossy(&said);
            let message =
                format!("the provider refused the next round with status {status}: {text}");
            // Clients react to the provider's own error codes, so they are passed on if there are
            // any.
            let error = serde_json::from_slice(&said).ok().map(|error| match error {
                // Google may answer a request for a stream with a list of one error.
                Value::Array(mut all) if all.len() == 1 => all.remove(0),
                error => error,
            });
            let error = error.filter(|error: &Value| !error["error"].is_null());
            let error = error.unwrap_or_else(|| api.stream_error(&message));
            (message, failed(&mut reader, &error), true)
        }
        Err(RelayError::Cut { is_clean, message }) => {
            // A client of Responses waits for a final event.
            let has_final_event = api == Api::Responses;
            let last = has_final_event
                .then(|| failed(&mut reader, &api.stream_error(&message)))
                .flatten();
            // An untouched answer ends as the provider ended it. One without an event that says how it
            // ended would look complete if it ended properly.
            let ends = is_clean && (has_final_event || reader.progress().is_untouched());
            (message, last, ends)
        }
    };
    exchange.shared.metrics.add("cut_streams_total", "", 1.0);
    tracing::warn!(endpoint = api.name(), "{message}");
    exchange.shared.failures.push(FailedRequest {
        at_ms: now_ms(),
        session: Some(request.spec.id.clone()),
        tenant: request.spec.tenant.clone(),
        endpoint: api.name(),
        status: StatusCode::OK.as_u16(),
        error: message,
        ms: arrived.map_or(0.0, |at| at.elapsed().as_secs_f64() * 1e3),
    });
    let end = match ends {
        true => Ok(Frame::trailers(HeaderMap::new())),
        false => Err(StreamCut),
    };
    for part in last.into_iter().chain([end]) {
        let _ = sender.send(part).await;
    }
}

/// Relays the rounds of a stream up to its proper end.
///
/// # Errors
/// The stream cannot be completed, see [`RelayError`].
async fn relay_rounds(
    exchange: &Exchange,
    slot: &SessionSlot,
    mut rounds: Rounds,
    reader: &mut AnswerReader,
    (mut start, mut response): (StreamStart, reqwest::Response),
    sender: &FrameSender,
) -> Result<(), RelayError> {
    loop {
        let read = std::mem::take(&mut start);
        let RelayedRound {
            mut held_back,
            rest,
        } = relay_round(exchange, reader, read, response, sender).await?;
        let round = reader.take_round();
        if !round.continues || rounds.is_exhausted(&exchange.settings) {
            if round.continues {
                reader.end_at_limit(&mut held_back);
            }
            // The client may send its next request as soon as it has the end, so the end waits
            // until the answer is stored.
            let hidden = rounds.hidden;
            let usage = rounds
                .finish(
                    &exchange.shared,
                    &exchange.settings,
                    slot,
                    round,
                    reader.visible(),
                )
                .await;
            send_piece(exchange, sender, held_back).await?;
            if let Some((response, after)) = rest {
                send_piece(exchange, sender, after).await?;
                pass_rest(exchange, response, sender).await?;
            }
            let mut totals = HeaderMap::new();
            set_totals(&mut totals, hidden, &usage);
            // The server drops the trailers if the client did not ask for them.
            let _ = sender.send(Ok(Frame::trailers(totals))).await;
            return Ok(());
        }
        // What the model wrote before its calls may have arrived together with the end of the round.
        send_piece(exchange, sender, held_back).await?;
        if let Some((response, _)) = rest {
            // A connection can only be reused if its response was read to the end.
            tokio::spawn(timeout(REST_TIMEOUT, read_all(response, MAX_ERROR_BYTES)));
        }
        let next = tokio::select! {
            next = next_answer(exchange, slot, rounds, round) => next,
            () = sender.closed() => return Err(RelayError::ClientGone),
        };
        let answer;
        (rounds, answer) = next.map_err(|error| RelayError::Failed(error.to_string()))?;
        let (status, error) = match answer {
            ProviderAnswer::Started(read, next) if read.is_stream => {
                (start, response) = (read, next);
                continue;
            }
            ProviderAnswer::Started(read, refused) => {
                let status = refused.status();
                let rest = read_all(refused, MAX_ERROR_BYTES).await;
                (status, [read.bytes, rest].concat())
            }
            ProviderAnswer::Refused(refused) => (refused.status, refused.error),
        };
        let body = std::str::from_utf8(&error).ok();
        let body = body.and_then(|body| Some(surrogates::parse(body)?.0));
        if status.is_success() && body.is_some_and(|body| exchange.api.is_answer(&body)) {
            let message = "the provider answered the next round with JSON in place of a stream";
            return Err(RelayError::Failed(message.to_owned()));
        }
        return Err(RelayError::Refused(status, error));
    }
}

/// A round that was relayed up to its end, except for its last bytes.
struct RelayedRound {
    /// The last bytes for the client. If no other round follows, they are sent once the answer is
    /// stored.
    held_back: Vec<u8>,
    /// The response and the bytes after the last event of its stream. None if the response ended.
    rest: Option<(reqwest::Response, Vec<u8>)>,
}

/// Relays the events of one round until the reader reports its end.
///
/// # Errors
/// The client has gone, or the stream ended before the answer was complete.
async fn relay_round(
    exchange: &Exchange,
    reader: &mut AnswerReader,
    start: StreamStart,
    mut response: reqwest::Response,
    sender: &FrameSender,
) -> Result<RelayedRound, RelayError> {
    let mut events = Events::default();
    let mut out = Vec::new();
    let mut read = (!start.bytes.is_empty()).then(|| Bytes::from(start.bytes));
    let mut broken = start.broken;
    let (mut bytes, most) = (0, exchange.settings.max_body);
    loop {
        let chunk = match (read.take(), broken.take()) {
            (Some(read), after) => {
                broken = after;
                Ok(Some(read))
            }
            (None, Some(error)) => Err(error),
            (None, None) => match next_at_hand(&mut response, &out).await {
                Some(chunk) => chunk.map_err(|error| cause_of(&error)),
                None => {
                    send_piece(exchange, sender, std::mem::take(&mut out)).await?;
                    tokio::select! {
                        chunk = response.chunk() => chunk.map_err(|error| cause_of(&error)),
                        () = sender.closed() => return Err(RelayError::ClientGone),
                    }
                }
            },
        };
        let error = match chunk {
            Ok(Some(chunk)) => {
                bytes += chunk.len();
                if bytes > most {
                    send_piece(exchange, sender, out).await?;
                    return Err(RelayError::Failed(too_large(most)));
                }
                events.push(&chunk);
                while let Some(event) = events.next() {
                    reader.event(&event, &mut out);
                }
                if reader.progress().finished {
                    let after = events.rest().map(|rest| rest.raw.to_vec());
                    return Ok(RelayedRound {
                        held_back: out,
                        rest: Some((response, after.unwrap_or_default())),
                    });
                }
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if let Some(rest) = events.rest() {
            // Half an event can never be completed, and may belong to a call that the client must
            // not see.
            let is_half = rest.json().is_none() && rest.data.as_deref() != Some("[DONE]");
            let is_last = exchange.api != Api::Responses && reader.progress().is_untouched();
            if !is_half || is_last {
                reader.event(&rest, &mut out);
            }
        }
        let progress = reader.progress();
        // Many servers leave out the final event. The answer is complete if the model's reason to
        // stop arrived.
        let is_whole = progress.is_whole && (error.is_none() || progress.continues);
        if progress.finished || is_whole {
            return Ok(RelayedRound {
                held_back: out,
                rest: None,
            });
        }
        let failed = progress.failed;
        send_piece(exchange, sender, out).await?;
        if failed {
            return Err(RelayError::ByProvider);
        }
        return Err(RelayError::Cut {
            is_clean: error.is_none(),
            message: match error {
                Some(error) => format!("the provider's answer broke off: {error}"),
                None => "the provider ended its answer before it was complete".to_owned(),
            },
        });
    }
}

/// The most bytes that wait for a chunk that has arrived already.
const MAX_PIECE: usize = 64 << 10;

/// The next chunk if it has arrived, so that it can leave with the bytes that wait for it in `out`.
/// Providers send each event as a chunk. A write to the client costs more than all else that is done
/// for an event, so events that arrive together leave together.
async fn next_at_hand(
    response: &mut reqwest::Response,
    out: &[u8],
) -> Option<reqwest::Result<Option<Bytes>>> {
    if out.is_empty() || out.len() > MAX_PIECE {
        return None;
    }
    let mut chunk = pin!(response.chunk());
    if let Some(chunk) = chunk.as_mut().now_or_never() {
        return Some(chunk);
    }
    // The task of the connection hands over one chunk at a time, and runs while this one yields.
    yield_now().await;
    chunk.now_or_never()
}

/// How long a provider may continue to send after the last event of its stream. Comments and
/// trailing bytes come at once, so more would only delay the client.
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Relays what a provider sends after the last event of its stream, usually comments. Once it is
/// read to its end, the connection can be reused.
async fn pass_rest(
    exchange: &Exchange,
    mut response: reqwest::Response,
    sender: &FrameSender,
) -> Result<(), RelayError> {
    let until = tokio::time::Instant::now() + REST_TIMEOUT;
    while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
        send_piece(exchange, sender, chunk.to_vec()).await?;
    }
    Ok(())
}

/// Sends a piece of the answer to the client. Returns [`RelayError::ClientGone`] if the client has
/// closed the connection or does not read within `gateway.client_timeout_ms`.
async fn send_piece(
    exchange: &Exchange,
    sender: &FrameSender,
    piece: Vec<u8>,
) -> Result<(), RelayError> {
    if piece.is_empty() {
        return Ok(());
    }
    let given = timeout(
        exchange.settings.client_timeout,
        sender.send(Ok(Frame::data(Bytes::from(piece)))),
    )
    .await;
    match given {
        Ok(Ok(())) => Ok(()),
        _ => Err(RelayError::ClientGone),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use http_body_util::BodyExt;

    use super::*;

    /// If the relay stops for any reason, the client does not take what it has for the whole answer.
    #[tokio::test]
    async fn an_answer_whose_relay_stops_is_cut() {
        for has_end in [true, false] {
            let (sender, frames) = mpsc::channel(4);
            let piece = Frame::data(Bytes::from_static(b"data: {}\n\n"));
            sender.send(Ok(piece)).await.unwrap();
            if has_end {
                let end = Frame::trailers(HeaderMap::new());
                sender.send(Ok(end)).await.unwrap();
            }
            drop(sender);
            assert_eq!(relayed(frames).collect().await.is_ok(), has_end);
        }
    }
}
