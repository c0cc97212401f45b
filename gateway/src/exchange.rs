//! One request of a client that carries a conversation: to the provider, in as many rounds as it takes, and back.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::poll_fn;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::Shared;
use crate::api::Api;
use crate::conversation::{self, Asked, Failure, Kind, Rounds, Turned, with_place};
use crate::headers;
use crate::limits::Counted;
use crate::sessions::Slot;
use crate::settings::Settings;
use crate::stream::sse::Events;
use crate::stream::{Reader, reader};
use crate::upstream::Unreachable;
use crate::window;

/// The most of a provider's error that is kept.
const LONGEST_ERROR: usize = 1 << 20;

/// How long a stream that says no more than that it begins is held back.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A request as it came.
pub(crate) struct Incoming {
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) tenant: Option<String>,
    pub(crate) counted: Counted,
}

/// What is the same for all rounds of an answer.
struct Exchange {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    url: String,
    headers: HeaderMap,
}

impl Exchange {
    async fn send(&self, body: Bytes) -> Result<reqwest::Response, Unreachable> {
        let client = &self.shared.client;
        let sent = client
            .send(Method::POST, &self.url, self.headers.clone(), body)
            .await;
        let status = match &sent {
            Ok(response) => response.status().as_u16(),
            Err(_) => 0,
        };
        self.shared.metrics.add(
            "upstream_responses_total",
            &format!("status=\"{status}\""),
            1.0,
        );
        sent
    }
}

/// Finds out what a request is.
async fn read(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &Incoming,
) -> Result<Kind, Failure> {
    let work = reading(shared, settings, api, incoming);
    let read = tokio::task::spawn_blocking(work).await;
    read.unwrap_or_else(|error| Err(Failure::new("panic", error)))
}

/// What finds that out, and blocks.
fn reading(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &Incoming,
) -> impl FnOnce() -> Result<Kind, Failure> + Send + 'static {
    let (shared, settings) = (Arc::clone(shared), Arc::clone(settings));
    let (headers, body) = (incoming.headers.clone(), incoming.body.clone());
    let tenant = incoming.tenant.clone();
    move || conversation::read(&shared, &settings, api, &headers, tenant.as_deref(), &body)
}

/// A turn that will be over.
type Turning = oneshot::Receiver<Result<Turned, Failure>>;

/// Finds out what a request is, and begins its turn in the same breath where its session is free.
async fn read_and_turn(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &Incoming,
) -> (Result<Kind, Failure>, Option<Turning>) {
    let work = reading(shared, settings, api, incoming);
    let (shared, settings) = (Arc::clone(shared), Arc::clone(settings));
    let (sender, receiver) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let read = work();
        let asked = match &read {
            Ok(Kind::Turn(asked)) if !settings.observe => Some(Arc::clone(asked)),
            _ => None,
        };
        let begun = asked.and_then(|asked| {
            let slot = slot(&shared, &settings, &asked);
            Some((slot.try_lock_owned().ok()?, asked))
        });
        let (turned, turning) = oneshot::channel();
        let _ = sender.send((read, begun.as_ref().map(|_| turning)));
        if let Some((place, asked)) = begun {
            asked.turn_in(&shared, place, turned);
        }
    });
    let panicked = |error| (Err(Failure::new("panic", error)), None);
    receiver.await.unwrap_or_else(panicked)
}

fn slot(shared: &Shared, settings: &Settings, asked: &Asked) -> Slot {
    let id = &asked.opening.id;
    shared
        .sessions
        .slot(id, settings.open_sessions, &shared.metrics)
}

/// Begins a turn once nobody else is at its session.
fn turn_after_others(shared: &Arc<Shared>, slot: &Slot, asked: &Arc<Asked>) -> Turning {
    let (shared, slot, asked) = (Arc::clone(shared), Arc::clone(slot), Arc::clone(asked));
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let place = slot.lock_owned().await;
        tokio::task::spawn_blocking(move || asked.turn_in(&shared, place, sender));
    });
    receiver
}

/// Answers a request of this endpoint.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    incoming: Incoming,
) -> Response {
    let began = Instant::now();
    let (read, begun) = read_and_turn(&shared, &settings, api, &incoming).await;
    let asked = match read {
        Ok(Kind::Turn(asked)) => asked,
        Ok(Kind::Untouched(why)) => {
            return pass(&shared, &settings, api, incoming, None, ("unmanaged", why)).await;
        }
        Err(failure) => return fail_open(&shared, &settings, api, incoming, None, failure).await,
    };
    let slot = slot(&shared, &settings, &asked);
    if settings.observe {
        observe(&shared, slot, asked);
        return pass(&shared, &settings, api, incoming, None, ("observed", "")).await;
    }
    let turning = begun.unwrap_or_else(|| turn_after_others(&shared, &slot, &asked));
    let panicked = |error| Err(Failure::new("panic", error));
    let turned = timeout(settings.max_hold, turning).await;
    let turned = turned.map(|turned| turned.unwrap_or_else(panicked));
    let turned = turned.unwrap_or_else(|_| {
        let waited = format!(
            "nothing was decided in {} ms",
            settings.max_hold.as_millis()
        );
        Err(Failure::new("held_too_long", waited))
    });
    let held = began.elapsed();
    shared.metrics.held(held);
    let turned = match turned {
        Ok(turned) => turned,
        Err(failure) => {
            return fail_open(&shared, &settings, api, incoming, Some(asked), failure).await;
        }
    };
    shared
        .metrics
        .add("requests_total", &labels(api, "managed"), 1.0);
    let upstream = settings.upstream(api.provider());
    let mut passed = headers::upstream(&incoming.headers, true);
    if let Some(key) = &upstream.key {
        headers::use_key(&mut passed, key, api == Api::Messages);
    }
    let exchange = Exchange {
        url: upstream.url(&incoming.path_and_query),
        headers: passed,
        api,
        shared,
        settings,
    };
    managed(exchange, slot, asked, (turned, held), incoming.counted).await
}

/// Has the provider count the body that would be sent for this one.
pub(crate) async fn count(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    incoming: Incoming,
) -> Response {
    let api = Api::Messages;
    let read = read(&shared, &settings, api, &incoming).await;
    let counted = async {
        let Ok(Kind::Turn(asked)) = read else {
            return None;
        };
        let slot = slot(&shared, &settings, &asked);
        let preview = with_place(&slot, move |place| asked.preview(place)).await;
        preview.ok().flatten()
    };
    let body = match settings.observe {
        true => None,
        false => timeout(settings.max_hold, counted).await.ok().flatten(),
    };
    through(&shared, &settings, api, incoming, body).await
}

fn labels(api: Api, outcome: &str) -> String {
    format!("endpoint=\"{}\",outcome=\"{outcome}\"", api.name())
}

/// A turn whose result is only looked at.
fn observe(shared: &Arc<Shared>, slot: Slot, asked: Arc<Asked>) {
    let turning = turn_after_others(shared, &slot, &asked);
    tokio::spawn(async move {
        if let Ok(Err(failure)) = turning.await {
            tracing::warn!(reason = failure.reason, "not observed: {}", failure.detail);
        }
    });
}

/// Sends a request on as it came because something failed, unless it would not fit.
async fn fail_open(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
    asked: Option<Arc<Asked>>,
    failure: Failure,
) -> Response {
    let reason = failure.reason;
    tracing::warn!(
        endpoint = api.name(),
        reason,
        "failed open: {}",
        failure.detail
    );
    shared
        .metrics
        .add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let body = match asked.filter(|asked| asked.is_surely_too_large()) {
        Some(asked) => {
            let shared = Arc::clone(shared);
            let fitted = tokio::task::spawn_blocking(move || asked.fit(&shared)).await;
            fitted.ok().flatten()
        }
        None => None,
    };
    let words = format!("{reason}: {}", failure.detail);
    pass(
        shared,
        settings,
        api,
        incoming,
        body,
        ("failed-open", &words),
    )
    .await
}

/// Sends a request on as it came, or with another `body`, and the answer back as it comes.
async fn pass(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
    body: Option<Bytes>,
    (status, reason): (&str, &str),
) -> Response {
    shared
        .metrics
        .add("requests_total", &labels(api, status), 1.0);
    let mut response = through(shared, settings, api, incoming, body).await;
    headers::set(response.headers_mut(), headers::STATUS, status);
    if !reason.is_empty() {
        headers::set(response.headers_mut(), headers::REASON, reason);
    }
    response
}

/// Sends any request on, and the answer back, byte for byte.
pub(crate) async fn through(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
    body: Option<Bytes>,
) -> Response {
    let upstream = settings.upstream(api.provider());
    let mut passed = headers::upstream(&incoming.headers, false);
    if let Some(key) = &upstream.key {
        headers::use_key(&mut passed, key, api == Api::Messages);
    }
    let url = upstream.url(&incoming.path_and_query);
    let body = body.unwrap_or(incoming.body);
    match shared
        .client
        .send(incoming.method, &url, passed, body)
        .await
    {
        Ok(response) => back(response, incoming.counted),
        Err(error) => unreachable(api, &error),
    }
}

/// A provider's answer as it comes.
fn back(response: reqwest::Response, counted: Counted) -> Response {
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
fn whole(status: StatusCode, upstream: &HeaderMap, body: Bytes, changed: bool) -> Response {
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

fn unreachable(api: Api, error: &Unreachable) -> Response {
    tracing::warn!("{error}");
    let status = match error.timed_out {
        true => StatusCode::GATEWAY_TIMEOUT,
        false => StatusCode::BAD_GATEWAY,
    };
    refuse(api, status, "api_error", &error.to_string())
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
    tracing::warn!(endpoint = api.name(), reason, "failed open: {refusal}");
    let metrics = &exchange.shared.metrics;
    metrics.add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let mut answer = match exchange.send(asked.body.clone()).await {
        Ok(response) => back(response, counted),
        Err(error) => return unreachable(api, &error),
    };
    headers::set(answer.headers_mut(), headers::STATUS, "failed-open");
    headers::set(
        answer.headers_mut(),
        headers::REASON,
        &format!("{reason}: {refusal}"),
    );
    answer
}

async fn managed(
    exchange: Exchange,
    slot: Slot,
    asked: Arc<Asked>,
    (turned, held): (Turned, Duration),
    counted: Counted,
) -> Response {
    let (session, api) = (turned.session.clone(), exchange.api);
    let mut compaction = turned.compaction.clone();
    let (mut turned, mut sent) = (turned, None);
    let response = match exchange.send(turned.body.clone()).await {
        Ok(response) => response,
        Err(error) => return unreachable(api, &error),
    };
    let mut response = Some(response);
    let mut begun = Vec::new();
    if let Some(begins) = response
        .as_mut()
        .filter(|begins| api == Api::Responses && is_stream(begins))
    {
        begun = beginning(begins).await;
        if let Some(error) = failed_at_once(&begun)
            && let Some((again, answer)) = resend(
                &exchange,
                &slot,
                &asked,
                &turned,
                StatusCode::BAD_REQUEST,
                &error,
            )
            .await
        {
            compaction = again.compaction.clone();
            turned = again;
            response = Some(answer);
            begun.clear();
        }
    }
    if let Some(refused) =
        response.take_if(|response| matches!(response.status().as_u16(), 400 | 413 | 422))
    {
        let (status, passed) = (refused.status(), refused.headers().clone());
        let body = read_all(refused, LONGEST_ERROR).await;
        match resend(&exchange, &slot, &asked, &turned, status, &body).await {
            Some((again, answer)) => {
                compaction = again.compaction.clone();
                turned = again;
                response = Some(answer);
            }
            None if turned.body != asked.body
                && window::overflow(status.as_u16(), &body).is_none() =>
            {
                // What the client sent may be right where what was made of it is not.
                return as_it_came(exchange, asked, counted, &body).await;
            }
            None => sent = Some(whole(status, &passed, Bytes::from(body), false)),
        }
    }
    let mut answer = match (response, sent) {
        (_, Some(sent)) => sent,
        (Some(response), None) if !response.status().is_success() => back(response, counted),
        (Some(response), None) => {
            let rounds = Rounds::new(asked, turned, held);
            answered(exchange, slot, rounds, (begun, response), counted).await
        }
        (None, None) => refuse(api, StatusCode::BAD_GATEWAY, "api_error", "no answer"),
    };
    let own = answer.headers_mut();
    headers::set(own, headers::STATUS, "managed");
    headers::set(own, headers::SESSION, &session);
    if let Some(compaction) = compaction {
        headers::set(own, headers::COMPACTION, &compaction);
    }
    answer
}

fn is_stream(response: &reqwest::Response) -> bool {
    let kind = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    response.status().is_success() && kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
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

async fn read_all(mut response: reqwest::Response, most: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            break;
        }
    }
    body
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
    let again = with_place(slot, move |place| {
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

/// Reads the answer, answers the engine's calls, and gives the client what is its own.
async fn answered(
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
            Ok(None) if reader.is_finished() => return Ok(out),
            Ok(None) | Err(_) if reader.has_failed() => {
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
        if reader.is_finished() {
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
