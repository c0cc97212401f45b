//! An answer in as many rounds as it takes: the engine's calls are answered, the client is given its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use contexture::Usage;
use http::StatusCode;
use http::header::{HeaderMap, TRAILER};
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Exchange;
use super::replies::{LONGEST_ERROR, is_stream, read_all, refuse, unreachable, whole};
use crate::answer::{Rounds, Slot};
use crate::headers;
use crate::limits::Counted;
use crate::stream::sse::Events;
use crate::stream::{Reader, reader};

/// Reads the answer, answers the engine's calls, and gives the client what is its own.
pub(super) async fn answered(
    exchange: Exchange,
    slot: Slot,
    rounds: Rounds,
    (begun, response): (Vec<u8>, reqwest::Response),
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
    let mut answer = Response::new(Body::new(Relayed(receiver)));
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

/// A stream as the client gets it.
struct Relayed(mpsc::Receiver<Frame<Bytes>>);

impl http_body::Body for Relayed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
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
        let body = match next {
            Ok((again, body)) => {
                rounds = again;
                body
            }
            Err(failure) => {
                let message = format!("the answer could not go on: {}", failure.detail);
                return refuse(api, StatusCode::BAD_GATEWAY, "api_error", &message);
            }
        };
        response = match exchange.send(body).await {
            Ok(response) => response,
            Err(error) => return unreachable(api, &error),
        };
    }
}

/// Why a stream is not what it should be.
enum Broken {
    /// The client has gone: nobody is to be told.
    ClientGone,
    /// The client is to be told this.
    Told(String),
    /// The provider has told the client itself.
    ByProvider,
}

/// Sends a stream on, in all its rounds.
async fn relay(
    exchange: Exchange,
    slot: Slot,
    rounds: Rounds,
    mut reader: Box<dyn Reader>,
    response: (Vec<u8>, reqwest::Response),
    sender: mpsc::Sender<Frame<Bytes>>,
) {
    let broken = relay_rounds(&exchange, &slot, rounds, &mut *reader, response, &sender).await;
    match broken {
        Ok(()) | Err(Broken::ClientGone | Broken::ByProvider) => {}
        Err(Broken::Told(message)) => {
            exchange.shared.metrics.add("cut_streams_total", "", 1.0);
            tracing::warn!(endpoint = exchange.api.name(), "{message}");
            let event = Bytes::from(exchange.api.error_event(&message));
            let _ = sender.send(Frame::data(event)).await;
        }
    }
}

async fn relay_rounds(
    exchange: &Exchange,
    slot: &Slot,
    mut rounds: Rounds,
    reader: &mut dyn Reader,
    (mut begun, mut response): (Vec<u8>, reqwest::Response),
    sender: &mpsc::Sender<Frame<Bytes>>,
) -> Result<(), Broken> {
    loop {
        let begun = std::mem::take(&mut begun);
        let mut held_back = relay_round(exchange, reader, begun, response, sender).await?;
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
            let mut totals = HeaderMap::new();
            set_totals(&mut totals, hidden, &usage);
            // Whoever did not ask for them does not get them.
            let _ = sender.send(Frame::trailers(totals)).await;
            return Ok(());
        }
        let (again, body) = (rounds
            .next_in(&exchange.shared, &exchange.settings, slot, round)
            .await)
            .map_err(|failure| {
                Broken::Told(format!("the answer could not go on: {}", failure.detail))
            })?;
        rounds = again;
        let sent = tokio::select! {
            sent = exchange.send(body) => sent,
            () = sender.closed() => return Err(Broken::ClientGone),
        };
        response = sent.map_err(|error| Broken::Told(error.to_string()))?;
        if !response.status().is_success() {
            let status = response.status();
            let body = read_all(response, LONGEST_ERROR).await;
            let said = String::from_utf8_lossy(&body).into_owned();
            return Err(Broken::Told(format!(
                "the provider answered {status}: {said}"
            )));
        }
    }
}

/// Sends one round on, up to its end, which is answered.
async fn relay_round(
    exchange: &Exchange,
    reader: &mut dyn Reader,
    begun: Vec<u8>,
    mut response: reqwest::Response,
    sender: &mpsc::Sender<Frame<Bytes>>,
) -> Result<Vec<u8>, Broken> {
    let mut events = Events::default();
    let mut out = Vec::new();
    let mut begun = (!begun.is_empty()).then(|| Bytes::from(begun));
    loop {
        let chunk = match begun.take() {
            Some(begun) => Ok(Some(begun)),
            None => tokio::select! {
                chunk = response.chunk() => chunk,
                () = sender.closed() => return Err(Broken::ClientGone),
            },
        };
        let chunk = match chunk {
            Ok(Some(chunk)) => chunk,
            Ok(None) if reader.progress().finished => return Ok(out),
            Ok(None) | Err(_) if reader.progress().failed => {
                give(exchange, sender, out).await?;
                return Err(Broken::ByProvider);
            }
            Ok(None) => {
                give(exchange, sender, out).await?;
                return Err(Broken::Told(
                    "the provider ended its answer in the middle".to_owned(),
                ));
            }
            Err(error) => {
                give(exchange, sender, out).await?;
                return Err(Broken::Told(format!(
                    "the provider's answer broke off: {error}"
                )));
            }
        };
        events.push(&chunk);
        while let Some(event) = events.next() {
            reader.event(&event, &mut out);
        }
        if reader.progress().finished {
            return Ok(out);
        }
        if !out.is_empty() {
            give(exchange, sender, std::mem::take(&mut out)).await?;
        }
    }
}

/// Gives a client a piece of its answer. One that does not take it is given up.
async fn give(
    exchange: &Exchange,
    sender: &mpsc::Sender<Frame<Bytes>>,
    piece: Vec<u8>,
) -> Result<(), Broken> {
    if piece.is_empty() {
        return Ok(());
    }
    let given = timeout(
        exchange.settings.client_timeout,
        sender.send(Frame::data(Bytes::from(piece))),
    )
    .await;
    match given {
        Ok(Ok(())) => Ok(()),
        _ => Err(Broken::ClientGone),
    }
}
