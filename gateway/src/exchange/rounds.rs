//! An answer in as many rounds as it takes: the engine's calls are answered, the client is given its own.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contexture::Usage;
use http::StatusCode;
use http::header::{HeaderMap, TRAILER};
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};

use super::Exchange;
use super::first::{Answer, Beginning, send_fitting};
use super::replies::{LONGEST_ERROR, is_stream, read_all, refuse, unreachable, whole};
use crate::answer::{Rounds, Slot};
use crate::api::Api;
use crate::headers;
use crate::limits::Counted;
use crate::stream::sse::Events;
use crate::stream::{Reader, reader};

/// Reads the answer, answers the engine's calls, and gives the client what is its own.
pub(super) async fn answered(
    exchange: Exchange,
    slot: Slot,
    rounds: Rounds,
    (begun, response): (Beginning, reqwest::Response),
    counted: Counted,
) -> Response {
    let (status, passed) = (response.status(), response.headers().clone());
    let reader = reader(exchange.api, rounds.tools());
    if !is_stream(&response) {
        return answered_whole(exchange, slot, rounds, reader, response).await;
    }
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let _counted = counted;
        relay(exchange, slot, rounds, reader, (begun, response), sender).await;
    });
    let mut answer = Response::new(Body::new(Relayed {
        frames: receiver,
        is_flushed: false,
        broken: None,
    }));
    *answer.status_mut() = status;
    let own = answer.headers_mut();
    *own = headers::downstream(&passed, true);
    headers::set(
        own,
        TRAILER.as_str(),
        &[headers::ROUNDS, headers::TOKENS].join(", "),
    );
    answer
}

/// The provider's stream broke off. The client's connection is broken off too, as it would be without the gateway.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the provider's answer broke off")]
struct BrokenOff;

/// Sends frames to the client.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BrokenOff>>;

/// A stream as the client gets it.
struct Relayed {
    frames: mpsc::Receiver<Result<Frame<Bytes>, BrokenOff>>,
    /// Whether everything before the end has been passed to the server.
    is_flushed: bool,
    broken: Option<BrokenOff>,
}

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if self.broken.is_none() {
            match self.frames.poll_recv(context) {
                Poll::Ready(Some(Err(broken))) => self.broken = Some(broken),
                other => return other,
            }
        }
        if !std::mem::replace(&mut self.is_flushed, true) {
            // The server drops unwritten data when it receives the error. It writes while the body is pending.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.broken.map(Err))
    }
}

/// Says how many rounds there were that the client did not see, and the tokens of all.
fn set_totals(own: &mut HeaderMap, hidden: u32, usage: &Usage) {
    headers::set(own, headers::ROUNDS, &hidden.to_string());
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let tokens = format!("input={input}; output={output}");
    headers::set(own, headers::TOKENS, &tokens);
}

async fn answered_whole(
    exchange: Exchange,
    slot: Slot,
    mut rounds: Rounds,
    mut reader: Box<dyn Reader>,
    mut response: reqwest::Response,
) -> Response {
    let api = exchange.api;
    loop {
        let (status, passed) = (response.status(), response.headers().clone());
        let body = match response.bytes().await {
            Ok(body) => body,
            Err(error) => {
                let message = format!("the provider's answer broke off: {error}");
                return refuse(api, StatusCode::BAD_GATEWAY, "api_error", &message);
            }
        };
        let value = serde_json::from_slice::<Value>(&body);
        let value = match value {
            Ok(value) if status.is_success() => value,
            _ => return whole(status, &passed, body, true),
        };
        reader.whole(&value);
        let round = reader.take_round();
        if !round.goes_on || rounds.is_exhausted(&exchange.settings) {
            if round.goes_on {
                reader.give_up(&mut Vec::new());
            }
            let hidden = rounds.hidden;
            let usage = rounds
                .end_in(
                    &exchange.shared,
                    &exchange.settings,
                    &slot,
                    round,
                    reader.visible(),
                )
                .await;
            let composed = reader.composed();
            let changed = composed.is_some();
            let body = composed.map_or(body, |composed| Bytes::from(composed.to_string()));
            let mut answer = whole(status, &passed, body, changed);
            set_totals(answer.headers_mut(), hidden, &usage);
            return answer;
        }
        let next = rounds
            .next_in(&exchange.shared, &exchange.settings, &slot, round)
            .await;
        rounds = match next {
            Ok(again) => again,
            Err(failure) => {
                let message = format!("the answer could not go on: {}", failure.detail);
                return refuse(api, StatusCode::BAD_GATEWAY, "api_error", &message);
            }
        };
        let (asked, turned) = rounds.to_send();
        let sent = match send_fitting(&exchange, &slot, &asked, turned).await {
            Ok(sent) => sent,
            Err(error) => return unreachable(api, &error),
        };
        rounds.sent(sent.turned);
        response = match sent.answer {
            Answer::Begun(_, response) => response,
            Answer::Refused(refused) => return refused.into_response(),
        };
    }
}

/// Why a stream is not what it should be.
enum Broken {
    /// The client has gone: nobody is to be told.
    ClientGone,
    /// The client is to be told this.
    Told(String),
    /// The provider refused a round: its status and its error.
    Refused(StatusCode, Vec<u8>),
    /// The provider has told the client itself.
    ByProvider,
    /// The provider's stream ended before the answer was complete.
    Cut {
        /// Whether the HTTP body ended properly, so that the client sees no connection error either.
        is_clean: bool,
        message: String,
    },
}

/// Sends a stream on, in all its rounds.
async fn relay(
    exchange: Exchange,
    slot: Slot,
    rounds: Rounds,
    mut reader: Box<dyn Reader>,
    response: (Beginning, reqwest::Response),
    sender: Sender,
) {
    let broken = relay_rounds(&exchange, &slot, rounds, &mut *reader, response, &sender).await;
    let api = exchange.api;
    let failed = |reader: &mut dyn Reader, error: &Value| {
        let mut event = Vec::new();
        reader.failed(error, &mut event);
        Some(Ok(Frame::data(Bytes::from(event))))
    };
    let (message, last) = match broken {
        Ok(()) | Err(Broken::ClientGone | Broken::ByProvider) => return,
        Err(Broken::Told(message)) => {
            let last = failed(&mut *reader, &api.stream_error(&message));
            (message, last)
        }
        Err(Broken::Refused(status, said)) => {
            let text = String::from_utf8_lossy(&said);
            let message = format!("the provider answered {status}: {text}");
            // Clients tell by the provider's own words what to do about it.
            let error = serde_json::from_slice(&said).ok();
            let error = error.filter(|error: &Value| !error["error"].is_null());
            let error = error.unwrap_or_else(|| api.stream_error(&message));
            (message, failed(&mut *reader, &error))
        }
        Err(Broken::Cut { is_clean, message }) => {
            let last = match reader.always_ends() {
                true => failed(&mut *reader, &api.stream_error(&message)),
                // An untouched answer ends as the provider ended it. Any other answer is broken off, because with a
                // proper end it would look complete.
                false if is_clean && reader.progress().is_untouched() => None,
                false => Some(Err(BrokenOff)),
            };
            (message, last)
        }
    };
    exchange.shared.metrics.add("cut_streams_total", "", 1.0);
    tracing::warn!(endpoint = api.name(), "{message}");
    if let Some(last) = last {
        let _ = sender.send(last).await;
    }
}

async fn relay_rounds(
    exchange: &Exchange,
    slot: &Slot,
    mut rounds: Rounds,
    reader: &mut dyn Reader,
    (mut begun, mut response): (Beginning, reqwest::Response),
    sender: &Sender,
) -> Result<(), Broken> {
    loop {
        let read = std::mem::take(&mut begun);
        let Ended {
            mut held_back,
            rest,
        } = relay_round(exchange, reader, read, response, sender).await?;
        let round = reader.take_round();
        if !round.goes_on || rounds.is_exhausted(&exchange.settings) {
            if round.goes_on {
                reader.give_up(&mut held_back);
            }
            // The client has the end of its answer once nothing of it is the gateway's alone.
            let hidden = rounds.hidden;
            let usage = rounds
                .end_in(
                    &exchange.shared,
                    &exchange.settings,
                    slot,
                    round,
                    reader.visible(),
                )
                .await;
            give(exchange, sender, held_back).await?;
            if let Some((response, after)) = rest {
                give(exchange, sender, after).await?;
                pass_rest(exchange, response, sender).await?;
            }
            let mut totals = HeaderMap::new();
            set_totals(&mut totals, hidden, &usage);
            // Whoever did not ask for them does not get them.
            let _ = sender.send(Ok(Frame::trailers(totals))).await;
            return Ok(());
        }
        if let Some((response, _)) = rest {
            // The connection can be reused once the response was read to its end.
            tokio::spawn(timeout(AFTER_THE_END, read_all(response, LONGEST_ERROR)));
        }
        rounds = (rounds
            .next_in(&exchange.shared, &exchange.settings, slot, round)
            .await)
            .map_err(|failure| {
                Broken::Told(format!("the answer could not go on: {}", failure.detail))
            })?;
        let (asked, turned) = rounds.to_send();
        let sent = tokio::select! {
            sent = send_fitting(exchange, slot, &asked, turned) => sent,
            () = sender.closed() => return Err(Broken::ClientGone),
        };
        let sent = sent.map_err(|error| Broken::Told(error.to_string()))?;
        rounds.sent(sent.turned);
        let (status, error) = match sent.answer {
            Answer::Begun(read, next) if next.status().is_success() => {
                (begun, response) = (read, next);
                continue;
            }
            Answer::Begun(_, refused) => (refused.status(), read_all(refused, LONGEST_ERROR).await),
            Answer::Refused(refused) => (refused.status, refused.error),
        };
        return Err(Broken::Refused(status, error));
    }
}

/// The end of a round.
struct Ended {
    /// The last bytes of the round, which were not sent to the client yet.
    held_back: Vec<u8>,
    /// The response and the bytes that followed the last event of its stream; `None` if the response ended.
    rest: Option<(reqwest::Response, Vec<u8>)>,
}

/// Passes one round to the client, up to its end.
async fn relay_round(
    exchange: &Exchange,
    reader: &mut dyn Reader,
    begun: Beginning,
    mut response: reqwest::Response,
    sender: &Sender,
) -> Result<Ended, Broken> {
    let mut events = Events::default();
    let mut out = Vec::new();
    let mut read = (!begun.bytes.is_empty()).then(|| Bytes::from(begun.bytes));
    let mut broken = begun.broken;
    loop {
        let chunk = match (read.take(), broken.take()) {
            (Some(read), after) => {
                broken = after;
                Ok(Some(read))
            }
            (None, Some(error)) => Err(error),
            (None, None) => tokio::select! {
                chunk = response.chunk() => chunk.map_err(|error| error.to_string()),
                () = sender.closed() => return Err(Broken::ClientGone),
            },
        };
        let error = match chunk {
            Ok(Some(chunk)) => {
                events.push(&chunk);
                while let Some(event) = events.next() {
                    reader.event(&event, &mut out);
                }
                if reader.progress().finished {
                    let after = events.rest().map(|rest| rest.raw.to_vec());
                    return Ok(Ended {
                        held_back: out,
                        rest: Some((response, after.unwrap_or_default())),
                    });
                }
                if !out.is_empty() {
                    give(exchange, sender, std::mem::take(&mut out)).await?;
                }
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if let Some(rest) = events.rest() {
            // Half an event may be one that the client must not see, and nothing can complete it.
            let is_half = rest.json().is_none() && rest.data != Some("[DONE]");
            let is_last = exchange.api != Api::Responses && reader.progress().is_untouched();
            if !is_half || is_last {
                reader.event(&rest, &mut out);
            }
        }
        let progress = reader.progress();
        let is_whole = progress.is_whole && (error.is_none() || progress.goes_on);
        if progress.finished || is_whole {
            return Ok(Ended {
                held_back: out,
                rest: None,
            });
        }
        let failed = progress.failed;
        give(exchange, sender, out).await?;
        if failed {
            return Err(Broken::ByProvider);
        }
        return Err(Broken::Cut {
            is_clean: error.is_none(),
            message: match error {
                Some(error) => format!("the provider's answer broke off: {error}"),
                None => "the provider ended its answer in the middle".to_owned(),
            },
        });
    }
}

/// How long a provider may keep sending after the last event of its stream.
const AFTER_THE_END: Duration = Duration::from_secs(1);

/// Passes on what a provider sends after the last event of its stream, usually only comments. Once read to its end, the
/// connection can be reused.
async fn pass_rest(
    exchange: &Exchange,
    mut response: reqwest::Response,
    sender: &Sender,
) -> Result<(), Broken> {
    let until = tokio::time::Instant::now() + AFTER_THE_END;
    while let Ok(Ok(Some(chunk))) = timeout_at(until, response.chunk()).await {
        give(exchange, sender, chunk.to_vec()).await?;
    }
    Ok(())
}

/// Sends a piece of the answer to the client. Gives up on a client that does not take it in time.
async fn give(exchange: &Exchange, sender: &Sender, piece: Vec<u8>) -> Result<(), Broken> {
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
        _ => Err(Broken::ClientGone),
    }
}
