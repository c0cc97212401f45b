//! Handles one client request that carries a conversation: reads it, runs its turn, sends it to the
//! provider and returns the answer.
//!
//! [`answer`] is the entry point for conversations. It takes the request through the host and then
//! calls `first::managed`. If anything fails before the request is sent, [`fail_open`] passes it on
//! unchanged. In observe mode, [`observed`] passes every request on unchanged and runs the turn in
//! the background. [`count_tokens`] handles the counting of tokens, and [`other`] handles all other
//! endpoints.
//!
//! The submodules continue from there. `first` sends the turn and shortens it if the provider
//! refuses it, `rounds` relays the answer, `list` gives it another form, `summary` remembers summaries,
//! and `replies` builds responses.

mod first;
mod list;
mod replies;
mod rounds;
mod summary;

use std::sync::{Arc, OnceLock};

use axum::response::Response;
use bytes::Bytes;
use http::Method;
use http::header::HeaderMap;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::Shared;
use crate::answer::run_turn_in;
use crate::api::{Api, Provider};
use crate::coding;
use crate::conversation::{self, NoTurn, PostRequest, TurnRequest, TurnResult};
use crate::endpoint::Route;
use crate::failure::Failure;
use crate::gemini;
use crate::headers;
use crate::health::Failed;
use crate::limits::ActiveRequest;
use crate::session_key;
use crate::sessions::SessionSlot;
use crate::settings::Settings;
use crate::stream::ToolNames;
use crate::unmanaged::{Status, UnmanagedReason};
use crate::upstream::{Client, Unreachable};
use first::managed;
pub(crate) use replies::error_response;
use replies::{stream_back, unreachable};
use summary::{Remembered, without_calls};

/// A client request after authentication and with its body read completely and expanded.
pub(crate) struct ClientRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The query with its question mark. Empty if there is none.
    pub(crate) query: String,
    pub(crate) route: Route,
    /// The client's headers without the gateway's tokens. If the client may use the gateway's key,
    /// that replaces the client's credentials.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) tenant: Option<String>,
    pub(crate) is_owner: bool,
    pub(crate) active: ActiveRequest,
}

impl ClientRequest {
    fn url(&self, settings: &Settings) -> String {
        let upstream = settings.upstream(self.route.provider);
        upstream.url(&self.route.target, &self.query)
    }

    /// The row of the status page for a request without a turn: the client's name for its session,
    /// with the tenant's name before it. None if neither is known.
    fn session(&self, named: Option<String>) -> Option<String> {
        let name = named.or_else(|| session_key::name_in(&self.headers));
        session_key::row(self.tenant.as_deref(), name)
    }
}

/// Everything that stays the same in all rounds of an answer.
struct Exchange {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    provider: Provider,
    /// The client for the provider of this request.
    client: Client,
    url: String,
    headers: HeaderMap,
    /// Whether the client expects a list in place of a stream of events.
    wants_list: bool,
}

impl Exchange {
    /// Sends a body to the provider and waits for the head of its answer. The answer is expanded as
    /// it arrives if the provider compressed it.
    ///
    /// # Errors
    /// The provider cannot be reached.
    async fn send(&self, body: Bytes) -> Result<reqwest::Response, Unreachable> {
        let (client, headers) = (&self.client, self.headers.clone());
        let sending = client.send(Method::POST, &self.url, headers, body);
        let sent = counted(&self.shared, self.provider, sending).await;
        sent.map(coding::expand_response)
    }
}

/// Waits for the head of a provider's answer, and counts it.
async fn counted(
    shared: &Shared,
    provider: Provider,
    sending: impl Future<Output = Result<reqwest::Response, Unreachable>>,
) -> Result<reqwest::Response, Unreachable> {
    let began = Instant::now();
    let sent = sending.await;
    let status = match &sent {
        Ok(response) => response.status().as_u16(),
        // The status 0 stands for no answer at all.
        Err(_) => 0,
    };
    let provider = format!("provider=\"{}\"", provider.name());
    let labels = format!("status=\"{status}\",{provider}");
    let metrics = &shared.metrics;
    metrics.add("upstream_responses_total", &labels, 1.0);
    metrics.observe("upstream_seconds", &provider, began.elapsed());
    sent
}

/// Returns the work of reading a request. It blocks, so it has to run on a worker thread. It owns
/// copies of everything, because the request itself stays with the caller for the case that it is
/// passed on.
fn read_job(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &ClientRequest,
) -> impl Fn() -> Result<Arc<TurnRequest>, NoTurn> + Clone + Send + 'static {
    let (shared, settings) = (Arc::clone(shared), Arc::clone(settings));
    let post = PostRequest {
        api,
        headers: incoming.headers.clone(),
        url: incoming.url(&settings),
        tenant: incoming.tenant.clone(),
        is_owner: incoming.is_owner,
        body: incoming.body.clone(),
    };
    move || conversation::read(&shared, &settings, &post)
}

/// Receiver for the result of a turn that runs on the worker pool. It fails if the turn panics.
type TurnReceiver = oneshot::Receiver<Result<TurnResult, Failure>>;

/// A request that was read, and the result of its turn. There is none yet if another request holds its
/// session.
type FastPath = Result<(Arc<TurnRequest>, Option<Result<TurnResult, Failure>>), NoTurn>;

/// What a failure means for a request that is noted here once it is known to be a turn.
fn failed(noted: &OnceLock<Arc<TurnRequest>>, failure: Failure) -> FastPath {
    match noted.get() {
        Some(request) => Ok((Arc::clone(request), Some(Err(failure)))),
        None => Err(failure.into()),
    }
}

/// Reads a request, and runs its turn in the same piece of work if its session is free.
///
/// That avoids a second switch of threads, which costs more than reading a short request. If the
/// request is a turn, `request` is set before the turn runs, so that the caller knows the session
/// even if the turn takes too long or panics.
async fn read_and_run(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &ClientRequest,
    request: &Arc<OnceLock<Arc<TurnRequest>>>,
) -> FastPath {
    let read = read_job(shared, settings, api, incoming);
    let (own, settings, noted) = (
        Arc::clone(shared),
        Arc::clone(settings),
        Arc::clone(request),
    );
    let (sender, receiver) = oneshot::channel();
    let work = move || {
        // The request was held too long while this waited for a thread, or its client went away.
        if sender.is_closed() {
            return;
        }
        let read = read();
        if let Ok(request) = &read {
            let request = noted.get_or_init(|| Arc::clone(request));
            let slot = slot(&own, &settings, request);
            if let Ok(cell) = Arc::clone(&slot.cell).try_lock_owned() {
                let report = |result| Ok((Arc::clone(request), Some(result)));
                return run_turn_in(request, &own, cell, sender, report);
            }
        }
        // The receiver is gone if the request was held too long.
        drop(sender.send(read.map(|request| (request, None))));
    };
    shared.work.spawn(work);
    // If the work panics, the sender is dropped without a result.
    let panicked = |error| failed(request, Failure::new("panic", error));
    receiver.await.unwrap_or_else(panicked)
}

/// The slot of the request's session. Creates it if the session is not in memory.
fn slot(shared: &Shared, settings: &Settings, request: &TurnRequest) -> SessionSlot {
    let id = &request.spec.id;
    let most = settings.config.gateway.open_sessions as usize;
    shared.sessions.slot(id, most, &shared.metrics)
}

/// Runs a turn after waiting for the session's other requests.
fn run_when_free(
    shared: &Arc<Shared>,
    slot: &SessionSlot,
    request: &Arc<TurnRequest>,
) -> TurnReceiver {
    let (own, slot, request) = (Arc::clone(shared), slot.clone(), Arc::clone(request));
    let (sender, receiver) = oneshot::channel();
    let running = async move {
        let cell = Arc::clone(&slot.cell).lock_owned().await;
        let shared = Arc::clone(&own);
        let work = move || run_turn_in(&request, &shared, cell, sender, |result| result);
        own.work.spawn(work);
    };
    shared.work.start(running);
    receiver
}

/// Reads a request and runs its turn. A turn that would end after `until` is left to itself a little
/// earlier, so that [`fail_open`] can still shorten the request by then.
///
/// If another request of the session came first, the proof may have expired, so the request is read
/// again. That other request is finished by then, so the loop ends.
///
/// # Errors
/// The request is not a turn, or cannot be read. A failed turn is not an error here, but part of
/// the result.
async fn run_turn(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: &ClientRequest,
    until: Instant,
) -> Result<(Arc<TurnRequest>, Result<TurnResult, Failure>), NoTurn> {
    let until = until - settings.max_hold / 10;
    loop {
        let noted = Arc::default();
        let reading = read_and_run(shared, settings, api, incoming, &noted);
        let ran = timeout_at(until, reading).await.unwrap_or_else(|_| {
            let session = noted.get().map(|request| &*request.spec.id);
            failed(&noted, held_too_long(shared, settings, session))
        });
        let (request, result) = ran?;
        let result = match result {
            Some(result) => result,
            None => {
                let slot = slot(shared, settings, &request);
                let receiver = run_when_free(shared, &slot, &request);
                match timeout_at(until, receiver).await {
                    Ok(Ok(result)) => result,
                    Ok(Err(error)) => Err(Failure::new("panic", error)),
                    Err(_) => Err(held_too_long(shared, settings, Some(&request.spec.id))),
                }
            }
        };
        match &result {
            // The other request is finished by now, so reading again takes it into account.
            Err(failure) if failure.is_overtaken() => {}
            _ => return Ok((request, result)),
        }
    }
}

/// Answers a POST request to an endpoint that carries conversations. Always returns a response: the
/// provider's, or an error in the API's format if the provider cannot be reached.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    mut incoming: ClientRequest,
) -> Response {
    if settings.observe {
        return observed(shared, settings, api, incoming).await;
    }
    let began = Instant::now();
    let until = began + settings.max_hold;
    let ran = run_turn(&shared, &settings, api, &incoming, until).await;
    let held = began.elapsed();
    shared.metrics.observe("hold_seconds", "", held);
    let (request, result) = match ran {
        Ok(ran) => ran,
        Err(NoTurn::PassThrough(pass_through)) => {
            let window = match pass_through.as_turn {
                Some(request) => window_of(&shared, &settings, request, until).await,
                None => None,
            };
            let (body, tools) = window.unzip();
            let options = PassOptions {
                why: pass_through.why,
                session: incoming.session(pass_through.session),
                body,
                tools: tools.unwrap_or_default(),
            };
            let answer = pass_on(&shared, &settings, api, incoming, options).await;
            return match pass_through.summary_target {
                Some(target) => {
                    let what = Remembered::Summary(target);
                    summary::relay_and_remember(shared, &settings, api, what, answer)
                }
                None => answer,
            };
        }
        Err(NoTurn::Failed(failure)) => {
            return fail_open(&shared, &settings, api, incoming, None, failure, until).await;
        }
    };
    let slot = slot(&shared, &settings, &request);
    let result = match result {
        Ok(result) => result,
        Err(failure) => {
            let request = Some(request);
            return fail_open(&shared, &settings, api, incoming, request, failure, until).await;
        }
    };
    shared
        .metrics
        .add("requests_total", &labels(api, "managed"), 1.0);
    let session = request.spec.id.clone();
    let fallback = result.fallback.clone();
    // A new session looks like lost context to its user, so the log says why it began.
    let follows = &request.found.follows;
    if let Some(follows) = follows {
        let (counter, why) = match follows.is_branch {
            true => ("branches_total", "is a branch of"),
            false => ("unproven_total", "does not prove that it continues"),
        };
        shared.metrics.add(counter, "", 1.0);
        tracing::info!(
            session,
            follows = follows.session,
            "began a new session: the request {why} the one in `follows`"
        );
    }
    if let Some(why) = &fallback {
        let tenant = request.spec.tenant.as_deref();
        (shared.unmanaged).note(&shared.metrics, tenant, Some(&session), why);
    }
    let wants_list = list::is_wanted(&incoming.path, &incoming.query);
    if wants_list {
        incoming.query = list::query_for_events(&incoming.query);
    }
    let exchange = Exchange {
        provider: incoming.route.provider,
        client: settings.client(incoming.route.provider).clone(),
        url: incoming.url(&settings),
        wants_list,
        headers: headers::upstream(&incoming.headers, true),
        api,
        shared,
        settings,
    };
    let follows = follows.as_ref().map(|follows| follows.session.clone());
    let (own, not_stored) = (Arc::clone(&request), result.not_stored.clone());
    let answer = managed(exchange, slot, request, (result, held), incoming.active).await;
    // The turn is stored while the provider answers. If that takes longer, the one before it counts.
    let not_stored = own.not_stored.get().unwrap_or(&not_stored);
    let not_stored = not_stored
        .as_deref()
        .map(|why| UnmanagedReason::new(Status::Managed, "record", why));
    let mut answer = with_status(answer, &session, fallback.as_ref().or(not_stored.as_ref()));
    if let Some(follows) = follows {
        headers::set(answer.headers_mut(), headers::FOLLOWS, &follows);
    }
    answer
}

/// The body of a request for a summary, with the window of its session in place of the client's
/// history, which may have outgrown the model's window for a long time, and the names of the engine's
/// tools in it. If there is no such window, and the request would certainly not fit, the built-in
/// engine shortens it. None if the request can be sent as it is.
async fn window_of(
    shared: &Arc<Shared>,
    settings: &Settings,
    request: Arc<TurnRequest>,
    until: Instant,
) -> Option<(Bytes, ToolNames)> {
    let slot = slot(shared, settings, &request);
    let (own, asked) = (Arc::clone(shared), Arc::clone(&request));
    let preview = slot.with_cell(&shared.work, move |cell| asked.preview(&own, cell));
    let window = timeout_at(until, preview).await.ok()?.ok().flatten();
    match window.filter(|(body, _)| !request.is_window_exceeded_by(body)) {
        None if request.is_surely_too_large() => {
            let body = shortened(shared, request, until).await?;
            Some((body, ToolNames::default()))
        }
        window => window,
    }
}

/// The body of a request, shortened by the built-in engine, if it can by `until`.
async fn shortened(
    shared: &Arc<Shared>,
    request: Arc<TurnRequest>,
    until: Instant,
) -> Option<Bytes> {
    let own = Arc::clone(shared);
    let shortening = shared.work.run(move || request.shorten(&own));
    let fitted = timeout_at(until, shortening).await;
    fitted.ok().and_then(Result::ok).flatten()
}

/// Adds the status and session headers, unless the answer has them already. Also used for the
/// gateway's own errors. `why` says what is wrong with a turn that was managed all the same.
fn with_status(mut answer: Response, session: &str, why: Option<&UnmanagedReason>) -> Response {
    let own = answer.headers_mut();
    let is_managed = match own.get(headers::STATUS) {
        None => {
            headers::set(own, headers::STATUS, Status::Managed.name());
            headers::set(own, headers::SESSION, session);
            true
        }
        Some(status) => status == Status::Managed.name(),
    };
    if let Some(why) = why.filter(|_| is_managed) {
        why.set_headers(&mut answer);
    }
    answer
}

/// Why a turn did not end in time. If the database does not answer, that is the reason. If it is
/// only slow, that is said. The session is None if it is not known yet.
fn held_too_long(shared: &Shared, settings: &Settings, session: Option<&str>) -> Failure {
    let record = shared.host.record();
    if let Some(outage) = record.outage() {
        return Failure::new("record", outage);
    }
    let most = settings.max_hold.as_millis();
    let detail = format!("the turn takes too long for `gateway.max_hold_ms` ({most} ms)");
    let is_of_store = record.is_waited_for(session);
    let detail = match is_of_store {
        true => format!("{detail}: it waits for {}", record.path().display()),
        false => detail,
    };
    Failure {
        is_of_store,
        ..Failure::new("held_too_long", detail)
    }
}

/// Answers the endpoints that count tokens. The provider counts the body that a turn would send. If
/// the session is unknown, too busy or only observed, it counts the client's own body.
pub(crate) async fn count_tokens(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    mut incoming: ClientRequest,
) -> Response {
    let asked = incoming.body.clone();
    let counted = (api == Api::Gemini)
        .then(|| gemini::counted(&asked))
        .flatten();
    if let Some(request) = &counted {
        incoming.body = request.clone();
    }
    let reading = read_job(&shared, &settings, api, &incoming);
    let read = shared.work.run(reading).await;
    let active = async {
        let request = read.ok()?.ok()?;
        let slot = slot(&shared, &settings, &request);
        let own = Arc::clone(&shared);
        let work = move |cell: &mut _| request.preview(&own, cell);
        let preview = slot.with_cell(&shared.work, work).await;
        preview.ok().flatten().map(|(body, _)| body)
    };
    let body = match settings.observe {
        true => None,
        false => timeout(settings.max_hold, active).await.ok().flatten(),
    };
    let is_managed = body.is_some();
    let body = match (body, &counted) {
        (Some(body), Some(_)) => Some(gemini::to_count(&asked, &body)),
        (body, _) => body,
    };
    incoming.body = asked;
    let mut answer = forward(&shared, &settings, api, incoming, body).await;
    match is_managed {
        true => headers::set(
            answer.headers_mut(),
            headers::STATUS,
            Status::Managed.name(),
        ),
        // This is not a failure, because the provider still counts what the client sent.
        false => UnmanagedReason::new(Status::NotManaged, "count", "counted without a turn")
            .set_headers(&mut answer),
    }
    answer
}

fn labels(api: Api, outcome: &str) -> String {
    format!("endpoint=\"{}\",outcome=\"{outcome}\"", api.name())
}

/// Passes a request on unchanged, and runs its turn in the background without delaying it. Only the
/// response headers wait until the request was read.
async fn observed(
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    api: Api,
    incoming: ClientRequest,
) -> Response {
    let reading = read_job(&shared, &settings, api, &incoming);
    // Reading runs while the provider answers.
    let (own, again) = (Arc::clone(&shared), reading.clone());
    let read = shared
        .work
        .start(async move { own.work.run(reading).await? });
    let (tenant, named) = (incoming.tenant.clone(), incoming.session(None));
    let mut response = forward(&shared, &settings, api, incoming, None).await;
    let read = match timeout(settings.max_hold, read).await {
        Ok(Ok(read)) => read,
        Ok(Err(error)) => Err(Failure::new("panic", error).into()),
        Err(_) => Err(held_too_long(&shared, &settings, None).into()),
    };
    let (why, session) = match read {
        Ok(request) => {
            let session = request.spec.id.clone();
            observe(&shared, &settings, again, request);
            let detail = "`gateway.mode` is observe";
            let why = UnmanagedReason::new(Status::Observed, "observed", detail);
            (why, Some(session))
        }
        Err(NoTurn::PassThrough(pass_through)) => {
            let session = pass_through.session;
            let session = session.map(|name| session_key::row(tenant.as_deref(), Some(name)));
            (pass_through.why, session.unwrap_or(named))
        }
        Err(NoTurn::Failed(failure)) => {
            let label = format!("reason=\"{}\"", failure.reason);
            shared.metrics.add("failed_open_total", &label, 1.0);
            let why = UnmanagedReason::new(Status::FailedOpen, failure.reason, failure.detail);
            (why, named)
        }
    };
    let sender = (tenant.as_deref(), session.as_deref());
    mark_unmanaged(&shared, api, &mut response, sender, &why);
    response
}

/// Runs a turn in the background and drops its result. If another request of the session came first,
/// the request is read again. Errors are logged.
fn observe(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    reading: impl Fn() -> Result<Arc<TurnRequest>, NoTurn> + Clone + Send + 'static,
    request: Arc<TurnRequest>,
) {
    let (own, settings) = (Arc::clone(shared), Arc::clone(settings));
    let run = move |request: Arc<TurnRequest>| {
        run_when_free(&own, &slot(&own, &settings, &request), &request)
    };
    let (own, mut receiver) = (Arc::clone(shared), run(request));
    let watching = async move {
        while let Ok(Err(failure)) = receiver.await {
            if failure.is_overtaken()
                && let Ok(Ok(request)) = own.work.run(reading.clone()).await
            {
                receiver = run(request);
                continue;
            }
            tracing::warn!(
                reason = failure.reason,
                "cannot observe a turn: {}",
                failure.detail
            );
            return;
        }
    };
    shared.work.start(watching);
}

/// Passes a request on unchanged because something failed. If it would certainly not fit the
/// model's window, the built-in engine shortens it first, if it can by `until`. The failure appears
/// in the metrics, the health check and the response headers.
async fn fail_open(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: ClientRequest,
    request: Option<Arc<TurnRequest>>,
    failure: Failure,
    until: Instant,
) -> Response {
    let reason = failure.reason;
    let session = match &request {
        Some(request) => Some(request.spec.id.clone()),
        None => incoming.session(None),
    };
    shared
        .metrics
        .add("failed_open_total", &format!("reason=\"{reason}\""), 1.0);
    let id = request.as_ref().map_or("", |request| &*request.spec.id);
    let failed = match reason {
        _ if failure.is_of_store => Some((
            (session.as_deref().unwrap_or_default(), Failed::Store),
            "store",
        )),
        "storage" => Some(((id, Failed::Engine), "store")),
        "engine" | "engine_not_open" | "panic" => Some(((id, Failed::Engine), "engine")),
        // Other reasons are no fault of the engine or the store.
        _ => None,
    };
    if let Some((what, part)) = failed {
        let detail = &failure.detail;
        shared.health.failed(&shared.metrics, what, part, detail);
    }
    // The session may have compacted for a long time already. Then the client's full history would
    // be refused by the provider.
    let body = match request.filter(|request| request.is_surely_too_large()) {
        Some(request) => shortened(shared, request, until).await,
        None => None,
    };
    let passed = PassOptions {
        why: UnmanagedReason::new(Status::FailedOpen, reason, failure.detail),
        session,
        body,
        tools: ToolNames::default(),
    };
    pass_on(shared, settings, api, incoming, passed).await
}

/// How to pass on a request that is not managed: why, under which name to record it, and with which
/// body.
struct PassOptions {
    why: UnmanagedReason,
    session: Option<String>,
    /// A body that replaces the client's. None sends the client's own bytes.
    body: Option<Bytes>,
    /// The names of the engine's tools in that body. Calls of them are removed from the answer.
    tools: ToolNames,
}

/// Passes a request on, unchanged or with another body, and streams the answer back. The reason is
/// recorded and added to the headers.
async fn pass_on(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    mut incoming: ClientRequest,
    options: PassOptions,
) -> Response {
    let PassOptions {
        why,
        session,
        body,
        tools,
    } = options;
    let tenant = incoming.tenant.clone();
    let is_read = !tools.is_empty();
    let wants_list = is_read && list::is_wanted(&incoming.path, &incoming.query);
    if wants_list {
        incoming.query = list::query_for_events(&incoming.query);
    }
    if is_read {
        incoming.headers = headers::upstream(&incoming.headers, true);
    }
    let mut response = forward(shared, settings, api, incoming, body).await;
    if is_read {
        response = without_calls(api, tools, response);
    }
    if wants_list {
        response = list::as_list(response);
    }
    let sender = (tenant.as_deref(), session.as_deref());
    mark_unmanaged(shared, api, &mut response, sender, &why);
    match (api, why.status) {
        (Api::Responses, Status::FailedOpen) => {
            let what = Remembered::Items(tenant);
            summary::relay_and_remember(Arc::clone(shared), settings, api, what, response)
        }
        _ => response,
    }
}

/// Records an unmanaged request in the metrics and on the status page, by its tenant and session,
/// and adds the reason to the headers of its answer.
fn mark_unmanaged(
    shared: &Shared,
    api: Api,
    response: &mut Response,
    (tenant, session): (Option<&str>, Option<&str>),
    why: &UnmanagedReason,
) {
    let outcome = labels(api, why.status.name());
    shared.metrics.add("requests_total", &outcome, 1.0);
    (shared.unmanaged).note(&shared.metrics, tenant, session, why);
    why.set_headers(response);
}

/// Passes on a request to an endpoint that carries no conversations, such as the list of models.
pub(crate) async fn other(
    shared: &Arc<Shared>,
    settings: &Arc<Settings>,
    api: Api,
    incoming: ClientRequest,
) -> Response {
    let what = format!("{} {}", incoming.method, incoming.path);
    let why = UnmanagedReason::new(Status::NotManaged, "endpoint", what);
    let session = incoming.session(None);
    let tenant = incoming.tenant.as_deref();
    (shared.unmanaged).note(&shared.metrics, tenant, session.as_deref(), &why);
    let mut response = forward(shared, settings, api, incoming, None).await;
    why.set_headers(&mut response);
    response
}

/// Sends a request to the provider and streams the answer back, byte for byte. If the provider
/// cannot be reached, the client gets an error in the API's format.
async fn forward(
    shared: &Shared,
    settings: &Arc<Settings>,
    api: Api,
    incoming: ClientRequest,
    body: Option<Bytes>,
) -> Response {
    let passed = headers::upstream(&incoming.headers, false);
    let url = incoming.url(settings);
    let body = body.unwrap_or(incoming.body);
    let provider = incoming.route.provider;
    let client = settings.client(provider);
    let sending = client.send(incoming.method, &url, passed, body);
    match counted(shared, provider, sending).await {
        Ok(response) => stream_back(response, incoming.active),
        Err(error) => unreachable(api, &error),
    }
}
