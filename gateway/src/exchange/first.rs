//! The first request of a turn to the provider: once more, smaller, where it does not fit, and as it came where it is
//! refused.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;

use super::Exchange;
use super::replies::{LONGEST_ERROR, back, is_stream, read_all, unreachable, whole};
use super::rounds::answered;
use crate::answer::{Rounds, Slot};
use crate::api::Api;
use crate::coding;
use crate::conversation::{Asked, Turned};
use crate::headers;
use crate::limits::Counted;
use crate::stream::sse::Events;
use crate::unmanaged::{Status, Why};
use crate::window;

/// How long a stream that says no more than that it begins is held back.
const AT_ONCE: Duration = Duration::from_millis(500);

pub(super) async fn managed(
    exchange: Exchange,
    slot: Slot,
    asked: Arc<Asked>,
    (turned, held): (Turned, Duration),
    counted: Counted,
) -> Response {
    let mut turned = turned;
    let mut response = match exchange.send(turned.body.clone()).await {
        Ok(response) => response,
        Err(error) => return unreachable(exchange.api, &error),
    };
    let coding = coding::for_client(&response, exchange.accepts.as_ref());
    let mut begun = Vec::new();
    if exchange.api == Api::Responses && is_stream(&response) {
        begun = beginning(&mut response).await;
        let status = StatusCode::BAD_REQUEST;
        if let Some(error) = failed_at_once(&begun)
            && let Some((again, answer)) =
                resend(&exchange, &slot, &asked, &turned, status, &error).await
        {
            (turned, response) = (again, answer);
            begun.clear();
        }
    }
    let (status, passed) = (response.status(), response.headers().clone());
    if matches!(status.as_u16(), 400 | 413 | 422) {
        let body = read_all(response, LONGEST_ERROR).await;
        match resend(&exchange, &slot, &asked, &turned, status, &body).await {
            Some(again) => (turned, response) = again,
            None if turned.body != asked.body
                && window::overflow(status.as_u16(), &body).is_none() =>
            {
                // What the client sent may be right where what was made of it is not.
                return as_it_came(exchange, asked, counted, &body).await;
            }
            None => {
                let refused = whole(status, &passed, Bytes::from(body), false);
                return told(refused, &turned.session, turned.compaction.as_deref());
            }
        }
    }
    let (session, compaction) = (turned.session.clone(), turned.compaction.clone());
    let answer = match response.status().is_success() {
        false => back(response, counted),
        true => {
            let rounds = Rounds::new(asked, turned, held);
            answered(exchange, slot, rounds, (begun, response), counted).await
        }
    };
    let answer = told(answer, &session, compaction.as_deref());
    match coding {
        Some(coding) => coding::coded(answer, coding),
        None => answer,
    }
}

/// The answer with what became of its request.
fn told(mut answer: Response, session: &str, compaction: Option<&str>) -> Response {
    let own = answer.headers_mut();
    headers::set(own, headers::STATUS, "managed");
    headers::set(own, headers::SESSION, session);
    if let Some(compaction) = compaction {
        headers::set(own, headers::COMPACTION, compaction);
    }
    answer
}

/// The request as it came, after the provider refused what was made of it with this word.
async fn as_it_came(
    exchange: Exchange,
    asked: Arc<Asked>,
    counted: Counted,
    refusal: &[u8],
) -> Response {
    let refusal = String::from_utf8_lossy(refusal);
    let (reason, api) = ("provider_refused", exchange.api);
    let why = Why::new(Status::FailedOpen, reason, refusal);
    let (metrics, session) = (&exchange.shared.metrics, &asked.opening.id);
    metrics.add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let unmanaged = &exchange.shared.unmanaged;
    unmanaged.note(metrics, Some(session), &why);
    let mut answer = match exchange.send(asked.body.clone()).await {
        Ok(response) => back(response, counted),
        Err(error) => return unreachable(api, &error),
    };
    why.tell(&mut answer);
    answer
}

/// What a stream of Responses begins with, up to the first event that is not about its beginning: that a request does
/// not fit is said there, and at once.
async fn beginning(response: &mut reqwest::Response) -> Vec<u8> {
    let mut begun = Vec::new();
    let until = tokio::time::Instant::now() + AT_ONCE;
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout_at(until, response.chunk()).await {
        begun.extend_from_slice(&chunk);
        let mut events = Events::default();
        events.push(&begun);
        while let Some(event) = events.next() {
            let kinds = [
                "\"response.created\"",
                "\"response.in_progress\"",
                "\"response.queued\"",
            ];
            let begins = |data: &str| kinds.iter().any(|kind| data.contains(kind));
            if event.data.is_some_and(|data| !begins(data)) {
                return begun;
            }
        }
    }
    begun
}

/// The error of a stream that failed before it said anything.
fn failed_at_once(begun: &[u8]) -> Option<Vec<u8>> {
    let mut events = Events::default();
    events.push(begun);
    while let Some(event) = events.next() {
        let data = event.json()?;
        match data["type"].as_str() {
            Some("response.failed") => return Some(data["response"].to_string().into_bytes()),
            Some("error") => return Some(data.to_string().into_bytes()),
            Some("response.created" | "response.in_progress" | "response.queued") => {}
            _ => return None,
        }
    }
    None
}

/// Where the provider says that a request does not fit: the same once more, smaller.
async fn resend(
    exchange: &Exchange,
    slot: &Slot,
    asked: &Arc<Asked>,
    turned: &Turned,
    status: StatusCode,
    body: &[u8],
) -> Option<(Turned, reqwest::Response)> {
    let limit = window::overflow(status.as_u16(), body)?;
    // What did not fit is the most that is known of a window that is not named.
    let counted = turned.prompt_tokens.min(asked.opening.agent.context_length);
    let limit = limit.unwrap_or(counted).min(counted.max(1_000)) * 9 / 10;
    tracing::info!(session = %turned.session, limit, "the provider says that the request does not fit");
    let (shared, asked) = (Arc::clone(&exchange.shared), Arc::clone(asked));
    let before = turned.again();
    let again = slot
        .with_place(&exchange.shared.work, move |place| {
            asked.turn_within(&shared, place, &before, limit)
        })
        .await;
    let again = match again {
        Ok(again) => again,
        Err(failure) => {
            tracing::warn!(session = %turned.session, reason = failure.reason, "{}", failure.detail);
            return None;
        }
    };
    if again.body.len() >= turned.body.len() {
        return None;
    }
    exchange.shared.metrics.add("resent_total", "", 1.0);
    let answer = exchange.send(again.body.clone()).await.ok()?;
    Some((again, answer))
}
