//! One request of a client that carries a conversation: to the provider, in as many rounds as it takes, and back.

mod first;
mod replies;
mod rounds;
mod summary;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::header::{HeaderMap, HeaderValue};
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

use crate::Shared;
use crate::answer::{Slot, turn_in};
use crate::api::Api;
use crate::coding;
use crate::conversation::{self, Asked, Kind, Posted, Turned, Untouched};
use crate::endpoint::Route;
use crate::failure::Failure;
use crate::headers;
use crate::limits::Counted;
use crate::session_key;
use crate::settings::Settings;
use crate::unmanaged::{Status, Why};
use crate::upstream::Unreachable;
use first::managed;
pub(crate) use replies::refuse;
use replies::{back, unreachable};

/// A request as it came.
pub(crate) struct Incoming {
    pub(crate) method: Method,
    /// As the client wrote it.
    pub(crate) path: String,
    /// With its question mark; empty if there is none.
    pub(crate) query: String,
    pub(crate) route: Route,
    /// With the gateway's own key in place of the client's, if the client may use it, and without the gateway's tokens.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) tenant: Option<String>,
    /// Whether it came with the token of the home directory.
    pub(crate) is_owner: bool,
    pub(crate) counted: Counted,
}

impl Incoming {
    /// The upstream URL.
    fn url(&self, settings: &Settings) -> String {
        let upstream = settings.upstream(self.route.provider);
        upstream.url(&self.route.target, &self.query)
    }

    /// The session's name with the tenant's name before it, if the client names a session.
    fn session(&self, named: Option<String>) -> Option<String> {
        let name = named.or_else(|| session_key::name_in(&self.headers));
        session_key::row(self.tenant.as_deref(), name)
    }
}

/// What is the same for all rounds of an answer.
struct Exchange {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    url: String,
    headers: HeaderMap,
    /// The codings that the client accepts.
    accepts: Option<HeaderValue>,
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
        sent.map(coding::expanded)
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
    let posted = Posted {
        api,
        headers: incoming.headers.clone(),
        url: incoming.url(&settings),
        tenant: incoming.tenant.clone(),
        is_owner: incoming.is_owner,
        body: incoming.body.clone(),
    };
    move || conversation::read(&shared, &settings, &posted)
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
        if let Ok(Kind::Turn(asked)) = &read {
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

/// Why a request is no turn of a session.
enum NoTurn {
    Untouched(Untouched),
    Unread(Failure),
}

/// Takes a request through the host, as long as it may be held. If another request of its session went first, what it
/// shows is looked at again: that other request is through, so this comes to an end.
async fn through_the_host(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &Incoming,
) -> Result<(Arc<Asked>, Result<Turned, Failure>), NoTurn> {
    let until = tokio::time::Instant::now() + settings.max_hold;
    loop {
        let noted = Arc::default();
        let reading = read_and_turn(shared, settings, api, incoming, &noted);
        let begun = timeout_at(until, reading).await.unwrap_or_else(|_| {
            let failure = held_too_long(settings);
            match noted.get() {
                Some(asked) => Begun::Turned(Arc::clone(asked), Err(failure)),
                None => Begun::Read(Err(failure)),
            }
        });
        let (asked, turned) = match begun {
            Begun::Turned(asked, turned) => (asked, turned),
            Begun::Read(Ok(Kind::Turn(asked))) => {
                let slot = slot(shared, settings, &asked);
                let turning = turn_after_others(shared, &slot, &asked);
                let turned = match timeout_at(until, turning).await {
                    Ok(Ok(turned)) => turned,
                    Ok(Err(error)) => Err(Failure::new("panic", error)),
                    Err(_) => Err(held_too_long(settings)),
                };
                (asked, turned)
            }
            Begun::Read(Ok(Kind::Untouched(untouched))) => {
                return Err(NoTurn::Untouched(untouched));
            }
            Begun::Read(Err(failure)) => return Err(NoTurn::Unread(failure)),
        };
        match &turned {
            Err(failure) if failure.reason == "overtaken" => {}
            _ => return Ok((asked, turned)),
        }
    }
}

/// Answers a request of this endpoint.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    incoming: Incoming,
) -> Response {
    if settings.observe {
        return observed(shared, settings, api, incoming).await;
    }
    let began = Instant::now();
    let (asked, turned) = match through_the_host(&shared, &settings, api, &incoming).await {
        Ok(through) => through,
        Err(NoTurn::Untouched(untouched)) => {
            let session = incoming.session(untouched.session);
            let passed = Passed::of(untouched.why, session);
            let answer = pass(&shared, &settings, api, incoming, passed).await;
            return match untouched.sums_up {
                Some(place) => summary::remembered(shared, &settings, api, place, answer),
                None => answer,
            };
        }
        Err(NoTurn::Unread(failure)) => {
            return fail_open(&shared, &settings, api, incoming, None, failure).await;
        }
    };
    let slot = slot(&shared, &settings, &asked);
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
    let session = asked.opening.id.clone();
    let fallback = turned.fallback.clone();
    if let Some(follows) = asked.follows() {
        shared.metrics.add("unproven_total", "", 1.0);
        tracing::info!(
            session,
            follows,
            "a session of its own: nothing in the request shows that it goes on with the other one"
        );
    }
    if let Some(why) = &fallback {
        shared.unmanaged.note(&shared.metrics, Some(&session), why);
    }
    let exchange = Exchange {
        url: incoming.url(&settings),
        headers: headers::upstream(&incoming.headers, true),
        accepts: coding::accepted(&incoming.headers),
        api,
        shared,
        settings,
    };
    let follows = asked.follows().map(str::to_owned);
    let answer = managed(exchange, slot, asked, (turned, held), incoming.counted).await;
    let mut answer = said(answer, &session, fallback.as_ref());
    if let Some(follows) = follows {
        headers::set(answer.headers_mut(), headers::FOLLOWS, &follows);
    }
    answer
}

/// Adds headers that say what became of the request. Also used for the gateway's own errors.
fn said(mut answer: Response, session: &str, fallback: Option<&Why>) -> Response {
    let own = answer.headers_mut();
    let is_managed = match own.get(headers::STATUS) {
        None => {
            headers::set(own, headers::STATUS, Status::Managed.name());
            headers::set(own, headers::SESSION, session);
            true
        }
        Some(status) => status == Status::Managed.name(),
    };
    if let Some(why) = fallback.filter(|_| is_managed) {
        why.tell(&mut answer);
    }
    answer
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
    let is_managed = body.is_some();
    let mut answer = through(&settings, api, incoming, body).await;
    match is_managed {
        true => headers::set(
            answer.headers_mut(),
            headers::STATUS,
            Status::Managed.name(),
        ),
        // Nothing is lost: the provider counts what the client sent.
        false => Why::new(Status::NotManaged, "count", "counted as it came").tell(&mut answer),
    }
    answer
}

fn labels(api: Api, outcome: &str) -> String {
    format!("endpoint=\"{}\",outcome=\"{outcome}\"", api.name())
}

/// Passes a request on unchanged and observes it in the background, without delaying it.
async fn observed(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    incoming: Incoming,
) -> Response {
    let reading = reading(&shared, &settings, api, &incoming);
    let read = tokio::spawn({
        let shared = Arc::clone(&shared);
        async move { shared.work.done(reading).await.and_then(|read| read) }
    });
    let (tenant, named) = (incoming.tenant.clone(), incoming.session(None));
    let mut response = through(&settings, api, incoming, None).await;
    let read = match timeout(settings.max_hold, read).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => Err(Failure::new("panic", error)),
        Err(_) => Err(held_too_long(&settings)),
    };
    let (why, session) = match read {
        Ok(Kind::Turn(asked)) => {
            let session = asked.opening.id.clone();
            let slot = slot(&shared, &settings, &asked);
            observe(&shared, slot, asked);
            let detail = "`gateway.mode` is observe";
            let why = Why::new(Status::Observed, "observed", detail);
            (why, Some(session))
        }
        Ok(Kind::Untouched(Untouched { why, session, .. })) => {
            let session = session.map(|name| session_key::row(tenant.as_deref(), Some(name)));
            (why, session.unwrap_or(named))
        }
        Err(failure) => {
            let label = format!("reason=\"{}\"", failure.reason);
            shared.metrics.add("failed_open_total", &label, 1.0);
            let why = Why::new(Status::FailedOpen, failure.reason, failure.detail);
            (why, named)
        }
    };
    mark(&shared, api, &mut response, session.as_deref(), &why);
    response
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
    let session = match &asked {
        Some(asked) => Some(asked.opening.id.clone()),
        None => incoming.session(None),
    };
    shared
        .metrics
        .add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let part = match reason {
        "record" => Some("store"),
        "engine" | "engine_not_open" | "panic" => Some("engine"),
        _ => None,
    };
    if let Some(part) = part {
        let session = asked.as_ref().map_or("", |asked| &asked.opening.id);
        shared
            .health
            .failed(&shared.metrics, session, part, &failure.detail);
    }
    let body = match asked.filter(|asked| asked.is_surely_too_large()) {
        Some(asked) => {
            let own = Arc::clone(shared);
            let fitted = shared.work.done(move || asked.fit(&own)).await;
            fitted.ok().flatten()
        }
        None => None,
    };
    let passed = Passed {
        why: Why::new(Status::FailedOpen, reason, failure.detail),
        session,
        body,
    };
    pass(shared, settings, api, incoming, passed).await
}

/// A request that is not managed.
struct Passed {
    why: Why,
    session: Option<String>,
    /// The body to send in place of the client's.
    body: Option<Bytes>,
}

impl Passed {
    fn of(why: Why, session: Option<String>) -> Self {
        Self {
            why,
            session,
            body: None,
        }
    }
}

/// Passes a request on, unchanged or with another body, and streams the answer back.
async fn pass(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
    passed: Passed,
) -> Response {
    let Passed { why, session, body } = passed;
    let mut response = through(settings, api, incoming, body).await;
    mark(shared, api, &mut response, session.as_deref(), &why);
    response
}

/// Adds headers to an answer that say what became of its request, and records it.
fn mark(shared: &Shared, api: Api, response: &mut Response, session: Option<&str>, why: &Why) {
    let outcome = labels(api, why.status.name());
    shared.metrics.add("requests_total", &outcome, 1.0);
    shared.unmanaged.note(&shared.metrics, session, why);
    why.tell(response);
}

/// Passes on a request for another endpoint.
pub(crate) async fn other(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
) -> Response {
    let what = format!("{} {}", incoming.method, incoming.path);
    let why = Why::new(Status::NotManaged, "endpoint", what);
    let session = incoming.session(None);
    shared
        .unmanaged
        .note(&shared.metrics, session.as_deref(), &why);
    let mut response = through(settings, api, incoming, None).await;
    why.tell(&mut response);
    response
}

/// Sends any request on, and the answer back, byte for byte.
async fn through(
    settings: &Arc<Settings>,
    api: Api,
    incoming: Incoming,
    body: Option<Bytes>,
) -> Response {
    let passed = headers::upstream(&incoming.headers, false);
    let url = incoming.url(settings);
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
