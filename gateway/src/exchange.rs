//! One request of a client that carries a conversation: to the provider, in as many rounds as it takes, and back.

mod first;
mod replies;
mod rounds;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::header::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use crate::Shared;
use crate::answer::{Slot, turn_in};
use crate::api::Api;
use crate::conversation::{self, Asked, Kind, Turned};
use crate::failure::Failure;
use crate::headers;
use crate::limits::Counted;
use crate::settings::Settings;
use crate::upstream::Unreachable;
use first::managed;
pub(crate) use replies::refuse;
use replies::{back, unreachable};

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
        let client = &self.settings.client;
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
    shared.work.done(work).await.and_then(|read| read)
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
    let url = settings
        .upstream(api.provider())
        .url(&incoming.path_and_query);
    move || {
        let tenant = tenant.as_deref();
        conversation::read(&shared, &settings, api, &headers, &url, tenant, &body)
    }
}

/// A turn that will be over.
type Turning = oneshot::Receiver<Result<Turned, Failure>>;

/// How far one breath brought a request.
enum Begun {
    /// Somebody else is at its session, or it is no turn.
    Read(Result<Kind, Failure>),
    /// Through the host.
    Turned(Arc<Asked>, Result<Turned, Failure>),
}

/// Finds out what a request is, and takes it through the host in the same breath where its session is free. What it is
/// stands in `asked` before that.
async fn read_and_turn(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &Incoming,
    asked: &Arc<OnceLock<Arc<Asked>>>,
) -> Begun {
    let read = reading(shared, settings, api, incoming);
    let (own, settings, noted) = (Arc::clone(shared), Arc::clone(settings), Arc::clone(asked));
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        let read = read();
        // Nobody may be waiting any more.
        let tell = |begun| drop(sender.send(begun));
        if let Ok(Kind::Turn(asked)) = &read
            && !settings.observe
        {
            let asked = Arc::clone(noted.get_or_init(|| Arc::clone(asked)));
            let slot = slot(&own, &settings, &asked);
            if let Ok(place) = Arc::clone(&slot.place).try_lock_owned() {
                let turned = |turned| tell(Begun::Turned(Arc::clone(&asked), turned));
                return turn_in(&asked, &own, &slot, place, turned);
            }
        }
        tell(Begun::Read(read));
    };
    shared.work.begin(work).await;
    let panicked = |error| match asked.get() {
        Some(asked) => Begun::Turned(Arc::clone(asked), Err(Failure::new("panic", error))),
        None => Begun::Read(Err(Failure::new("panic", error))),
    };
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
    let (shared, slot, asked) = (Arc::clone(shared), slot.clone(), Arc::clone(asked));
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let place = Arc::clone(&slot.place).lock_owned().await;
        let own = Arc::clone(&shared);
        // Nobody may be waiting any more.
        let work = move || {
            turn_in(&asked, &own, &slot, place, |turned| {
                drop(sender.send(turned))
            })
        };
        shared.work.begin(work).await;
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
    let until = tokio::time::Instant::now() + settings.max_hold;
    let noted = Arc::default();
    let begun = timeout_at(
        until,
        read_and_turn(&shared, &settings, api, &incoming, &noted),
    )
    .await;
    let begun = begun.unwrap_or_else(|_| match noted.get() {
        Some(asked) => Begun::Turned(Arc::clone(asked), Err(held_too_long(&settings))),
        None => Begun::Read(Err(held_too_long(&settings))),
    });
    let (asked, turned) = match begun {
        Begun::Turned(asked, turned) => (asked, Some(turned)),
        Begun::Read(Ok(Kind::Turn(asked))) => (asked, None),
        Begun::Read(Ok(Kind::Untouched(why))) => {
            return pass(&shared, &settings, api, incoming, None, ("unmanaged", why)).await;
        }
        Begun::Read(Err(failure)) => {
            return fail_open(&shared, &settings, api, incoming, None, failure).await;
        }
    };
    let slot = slot(&shared, &settings, &asked);
    if settings.observe {
        observe(&shared, slot, asked);
        return pass(&shared, &settings, api, incoming, None, ("observed", "")).await;
    }
    let turned = match turned {
        Some(turned) => turned,
        None => {
            let turning = turn_after_others(&shared, &slot, &asked);
            let turned = timeout_at(until, turning).await;
            let turned = turned
                .map(|turned| turned.unwrap_or_else(|error| Err(Failure::new("panic", error))));
            turned.unwrap_or_else(|_| Err(held_too_long(&settings)))
        }
    };
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
    let exchange = Exchange {
        url: upstream.url(&incoming.path_and_query),
        headers: settings.headers(api, &incoming.headers),
        api,
        shared,
        settings,
    };
    managed(exchange, slot, asked, (turned, held), incoming.counted).await
}

fn held_too_long(settings: &Settings) -> Failure {
    let most = settings.max_hold.as_millis();
    Failure::new("held_too_long", format!("nothing was decided in {most} ms"))
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
        let own = Arc::clone(&shared);
        let work = move |place: &mut _| asked.preview(&own, place);
        let preview = slot.with_place(&shared.work, work).await;
        preview.ok().flatten()
    };
    let body = match settings.observe {
        true => None,
        false => timeout(settings.max_hold, counted).await.ok().flatten(),
    };
    through(&settings, api, incoming, body).await
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
            let own = Arc::clone(shared);
            let fitted = shared.work.done(move || asked.fit(&own)).await;
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
    let mut response = through(settings, api, incoming, body).await;
    headers::set(response.headers_mut(), headers::STATUS, status);
    if !reason.is_empty() {
        headers::set(response.headers_mut(), headers::REASON, reason);
    }
    response
}

/// Sends any request on, and the answer back, byte for byte.
pub(crate) async fn through(
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
    match settings
        .client
        .send(incoming.method, &url, passed, body)
        .await
    {
        Ok(response) => back(response, incoming.counted),
        Err(error) => unreachable(api, &error),
    }
}
