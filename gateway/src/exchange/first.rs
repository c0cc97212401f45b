//! The first request of a turn to the provider: once more, smaller, where it does not fit, and as it came where it is
//! refused.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::Exchange;
use super::replies::{LONGEST_ERROR, back, is_stream, read_all, unreachable, whole};
use super::rounds::answered;
use crate::answer::{Rounds, Slot};
use crate::api::Api;
use crate::coding::{self, Coding};
use crate::conversation::{Asked, Fit, Turned};
use crate::headers;
use crate::limits::Counted;
use crate::overflow::{Overflow, overflow};
use crate::stream::sse::Events;
use crate::unmanaged::{Status, Why};
use crate::upstream::Unreachable;

/// How long a stream that says no more than that it begins is held back.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A prompt with fewer tokens fits every window, so its stream is not held back.
const SMALL: u64 = 2_000;

/// How much of the available room a resent request may use, in percent, for each attempt.
const SHARES: [u64; 3] = [90, 65, 45];

pub(super) async fn managed(
    exchange: Exchange,
    slot: Slot,
    asked: Arc<Asked>,
    (turned, held): (Turned, Duration),
    counted: Counted,
) -> Response {
    let Sent {
        turned,
        coding,
        answer,
    } = match send_fitting(&exchange, &slot, &asked, turned).await {
        Ok(sent) => sent,
        Err(error) => return unreachable(exchange.api, &error),
    };
    let (session, compaction) = (turned.session.clone(), turned.compaction.clone());
    let answer = match answer {
        Answer::Refused(refused) if refused.is_of_the_body() && turned.body != asked.body => {
            // The turn's version of the request may be faulty although the client's is not.
            return as_it_came(exchange, asked, counted, &refused.error).await;
        }
        Answer::Refused(refused) => refused.into_response(),
        Answer::Begun(_, response) if !response.status().is_success() => back(response, counted),
        Answer::Begun(begun, response) => {
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

/// The request as it was sent, and the response to it.
pub(super) struct Sent {
    pub(super) turned: Turned,
    /// The coding of the provider's answer, if the client accepts it.
    pub(super) coding: Option<Coding>,
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    /// An answer, and the part of its stream that was already read.
    Begun(Beginning, reqwest::Response),
    /// The provider refuses the request.
    Refused(Refused),
}

/// The part of a stream that was read before it is passed on.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    pub(super) bytes: Vec<u8>,
    /// Why the stream broke off. Must be kept, because another read would only report the end of the stream.
    pub(super) broken: Option<String>,
}

/// A provider's refusal, read completely.
pub(super) struct Refused {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    /// The error: the whole body, or what the first event of a stream says.
    pub(super) error: Vec<u8>,
    /// The stream that began with the error and holds nothing else.
    stream: Option<Vec<u8>>,
    is_overflow: bool,
}

impl Refused {
    /// Whether the provider objects to the body and not to its length.
    fn is_of_the_body(&self) -> bool {
        !self.is_overflow && self.status.is_client_error()
    }

    pub(super) fn into_response(self) -> Response {
        let body = self.stream.unwrap_or(self.error);
        whole(self.status, &self.headers, Bytes::from(body), false)
    }
}

/// Sends the turn's version of a request. If the provider says that it does not fit, sends smaller versions.
///
/// # Errors
/// The provider cannot be reached.
pub(super) async fn send_fitting(
    exchange: &Exchange,
    slot: &Slot,
    asked: &Arc<Asked>,
    mut turned: Turned,
) -> Result<Sent, Unreachable> {
    let mut shares = SHARES.iter();
    loop {
        let mut response = exchange.send(turned.body.clone()).await?;
        let coding = coding::for_client(&response, exchange.accepts.as_ref());
        let (status, headers) = (response.status(), response.headers().clone());
        let mut begun = Beginning::default();
        let error = if matches!(status.as_u16(), 400 | 413 | 422 | 500) {
            Some(read_all(response, LONGEST_ERROR).await)
        } else {
            if is_stream(&response) && turned.prompt_tokens >= SMALL {
                begun = beginning(exchange.api, &mut response).await;
            }
            match failed_at_once(exchange.api, &begun.bytes) {
                Some(error) if overflow(400, &error).is_some() => Some(error),
                _ => {
                    let answer = Answer::Begun(begun, response);
                    return Ok(Sent {
                        turned,
                        coding,
                        answer,
                    });
                }
            }
        };
        let error = error.unwrap_or_default();
        let code = if status.is_success() {
            400
        } else {
            status.as_u16()
        };
        let found = overflow(code, &error);
        if let Some(found) = found
            && let Some(share) = shares.next()
            && let Some(again) = smaller(exchange, slot, asked, &turned, found, *share).await
        {
            exchange.shared.metrics.add("resent_total", "", 1.0);
            turned = again;
            continue;
        }
        let refused = Refused {
            status,
            headers,
            error,
            stream: Some(begun.bytes).filter(|begun| !begun.is_empty()),
            is_overflow: found.is_some(),
        };
        let answer = Answer::Refused(refused);
        return Ok(Sent {
            turned,
            coding: None,
            answer,
        });
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

/// Reads the beginning of a stream, up to the first event with content. If the request does not fit, that event says
/// so. Streams of Responses begin with announcements, which are skipped.
async fn beginning(api: Api, response: &mut reqwest::Response) -> Beginning {
    let mut begun = Beginning::default();
    let until = tokio::time::Instant::now() + AT_ONCE;
    while let Ok(chunk) = tokio::time::timeout_at(until, response.chunk()).await {
        match chunk {
            Ok(Some(chunk)) => begun.bytes.extend_from_slice(&chunk),
            Ok(None) => break,
            Err(error) => {
                begun.broken = Some(error.to_string());
                break;
            }
        }
        let mut events = Events::default();
        events.push(&begun.bytes);
        while let Some(event) = events.next() {
            let begins = |data: &str| {
                let mut kinds = ANNOUNCING.iter();
                api == Api::Responses && kinds.any(|kind| data.contains(kind))
            };
            if event.data.is_some_and(|data| !begins(data)) {
                return begun;
            }
        }
    }
    begun
}

/// The events of Responses that only announce the answer.
const ANNOUNCING: [&str; 3] = [
    "\"response.created\"",
    "\"response.in_progress\"",
    "\"response.queued\"",
];

/// The error of a stream that failed before it said anything.
fn failed_at_once(api: Api, begun: &[u8]) -> Option<Vec<u8>> {
    let mut events = Events::default();
    events.push(begun);
    while let Some(event) = events.next() {
        if event.data.is_none() {
            continue;
        }
        let data = event.json()?;
        let is_error = data["error"].is_object() || data["error"].is_string();
        match data["type"].as_str() {
            Some("response.failed") => return Some(data["response"].to_string().into_bytes()),
            Some("error") => return Some(data.to_string().into_bytes()),
            _ if api == Api::Chat && is_error => return Some(data.to_string().into_bytes()),
            Some("response.created" | "response.in_progress" | "response.queued") => {}
            _ => return None,
        }
    }
    None
}

/// A smaller version of a request that the provider says does not fit, or `None` if it cannot be made smaller. It
/// should use at most `share` percent of the available room.
async fn smaller(
    exchange: &Exchange,
    slot: &Slot,
    asked: &Arc<Asked>,
    turned: &Turned,
    found: Overflow,
    share: u64,
) -> Option<Turned> {
    let window = asked.opening.agent.context_length;
    let counted = turned.prompt_tokens.max(1_000);
    // What did not fit is the most that is known of a window that is not named.
    let unnamed = || found.asked.unwrap_or(counted) / 10 * 9;
    let limit = found.limit.unwrap_or_else(unnamed).min(window);
    let answer = match asked.longest_answer() {
        // The provider counts the answer as part of the window.
        longest if longest < limit / 4 * 3 => longest,
        _ => limit / 10,
    };
    let fit = Fit {
        limit,
        asked: found.asked.unwrap_or(counted.max(limit + 1)),
        answer,
        goal: (limit - answer) * share / 100,
    };
    tracing::info!(
        session = %turned.session, limit = fit.limit, asked = fit.asked, goal = fit.goal,
        "the provider says that the request does not fit"
    );
    let (shared, asked) = (Arc::clone(&exchange.shared), Arc::clone(asked));
    let before = turned.clone();
    let again = slot
        .with_place(&exchange.shared.work, move |place| {
            asked.turn_within(&shared, place, &before, &fit)
        })
        .await;
    match again {
        Ok(again) => (again.body.len() < turned.body.len()).then_some(again),
        Err(failure) => {
            tracing::warn!(session = %turned.session, reason = failure.reason, "{}", failure.detail);
            None
        }
    }
}
