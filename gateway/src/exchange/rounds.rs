//! An answer in as many rounds as it takes: the engine's calls are answered, the client is given its own.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::poll_fn;
use http::StatusCode;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Exchange;
use super::replies::{LONGEST_ERROR, is_stream, read_all, refuse, unreachable, whole};
use crate::conversation::Rounds;
use crate::headers;
use crate::limits::Counted;
use crate::sessions::Slot;
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
    let (sender, mut receiver) = mpsc::channel::<Bytes>(16);
    tokio::spawn(async move {
        let _counted = counted;
        relay(exchange, slot, rounds, reader, (begun, response), sender).await;
    });
    let stream = poll_fn(move |context| {
        receiver
            .poll_recv(context)
            .map(|piece| piece.map(Ok::<_, Infallible>))
    });
    let mut answer = Response::new(Body::from_stream(stream));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers::downstream(&passed, true);
    answer
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
            headers::set(answer.headers_mut(), headers::ROUNDS, &hidden.to_string());
            let tokens = format!(
                "input={}; output={}",
                usage.input_tokens, usage.output_tokens
            );
            headers::set(answer.headers_mut(), headers::TOKENS, &tokens);
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
    sender: mpsc::Sender<Bytes>,
) {
    let broken = relay_rounds(&exchange, &slot, rounds, &mut *reader, response, &sender).await;
    match broken {
        Ok(()) | Err(Broken::ClientGone | Broken::ByProvider) => {}
        Err(Broken::Told(message)) => {
            exchange.shared.metrics.add("cut_streams_total", "", 1.0);
            tracing::warn!(endpoint = exchange.api.name(), "{message}");
            let _ = sender
                .send(Bytes::from(exchange.api.error_event(&message)))
                .await;
        }
    }
}

async fn relay_rounds(
    exchange: &Exchange,
    slot: &Slot,
    mut rounds: Rounds,
    reader: &mut dyn Reader,
    (mut begun, mut response): (Vec<u8>, reqwest::Response),
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), Broken> {
    loop {
        let begun = std::mem::take(&mut begun);
        let mut held_back = relay_round(exchange, reader, begun, response, sender).await?;
        let round = reader.take_round();
        if !round.goes_on || rounds.is_exhausted(&exchange.settings) {
            if round.goes_on {
                reader.give_up(&mut held_back);
            }
            // The client has the end of its answer once the session has it.
            rounds
                .end_in(
                    &exchange.shared,
                    &exchange.settings,
                    slot,
                    round,
                    reader.visible(),
                )
                .await;
            return give(exchange, sender, held_back).await;
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
    sender: &mpsc::Sender<Bytes>,
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
    sender: &mpsc::Sender<Bytes>,
    piece: Vec<u8>,
) -> Result<(), Broken> {
    if piece.is_empty() {
        return Ok(());
    }
    let given = timeout(
        exchange.settings.client_timeout,
        sender.send(Bytes::from(piece)),
    )
    .await;
    match given {
        Ok(Ok(())) => Ok(()),
        _ => Err(Broken::ClientGone),
    }
}
