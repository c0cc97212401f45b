//! The HTTP entry point: authenticates a request, reads its body and passes it to its handler.
//!
//! [`router`] has a single handler, because agents spell paths in many ways. The handler first
//! checks host and origin with [`Access`](crate::access::Access), then answers the gateway's own
//! paths, and then does the rest in a fixed order: [`answer`] finds the caller by its token, and
//! [`pass_on`] chooses the key for the provider, checks the content type, counts the request, and
//! reads and expands the body. A request that fails one of these checks is [refused](Refusal) before
//! it can reach a provider. If its body was not read to its end, the connection ends with the answer.
//!
//! Where a path leads is decided by [`endpoint`](crate::endpoint). Conversations are handled by
//! [`exchange`](crate::exchange), and the status page by [`page`](crate::page).

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Buf as _, Bytes};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    ALLOW, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap,
    HeaderName, HeaderValue, UPGRADE, VARY,
};
use http::{Method, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use mime::Mime;
use tokio::time::timeout;
use tracing::{Instrument, Span};

use crate::Shared;
use crate::access::AccessRefusal;
use crate::api::{Api, Provider};
use crate::coding::{self, CodingError};
use crate::endpoint::{self, Endpoint, Route};
use crate::exchange::{self, ClientRequest, error_response};
use crate::failures::Watch;
use crate::headers::{self, GOOGLE_KEY};
use crate::limits::{self, ActiveRequest, LimitReached};
use crate::page;
use crate::session_key;
use crate::settings::{ProviderKey, Settings};
use crate::stream::BYTE_ORDER_MARK;
use crate::tokens::{self, Caller};
use crate::trace;
use crate::unmanaged::{Status, UnmanagedReason};

/// The router for every path and method. It has one fallback handler, which finds the endpoint
/// itself.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(route).with_state(shared)
}

/// Answers a request in a span of its own, and logs that it did. The answer may still be streaming
/// then.
async fn route(State(shared): State<Arc<Shared>>, mut request: Request) -> Response {
    let began = Instant::now();
    let id = trace::request_id(request.headers());
    let span = trace::request_span(&id, &request);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answering = async {
        let mut answer = answer_any(&shared, &mut request).await;
        if !request.body().is_end_stream() {
            let time = shared.settings().client_timeout;
            end_connection(request, &mut answer, time.saturating_sub(began.elapsed()));
        }
        headers::set(answer.headers_mut(), headers::REQUEST, &id);
        trace::answered(&Span::current(), &answer);
        let named = |name| headers::text(answer.headers(), name);
        tracing::info!(
            target: trace::REQUESTS,
            %method,
            path,
            status = answer.status().as_u16(),
            outcome = named(headers::STATUS),
            session = named(headers::SESSION),
            ms = (began.elapsed().as_secs_f64() * 1e4).round() / 10.0,
            "answered"
        );
        answer
    };
    answering.instrument(span).await
}

/// Ends the connection of a request whose body was not read to its end, because the next request
/// cannot be found behind it. The client may go on sending for this time. If the connection ended at
/// once, the system would reset it, and the client could lose the answer.
fn end_connection(request: Request, answer: &mut Response, time: Duration) {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    // A client that waits for `100 Continue` does not send its body.
    if request.headers().contains_key(EXPECT) {
        return;
    }
    let mut body = request.into_body();
    let rest = async move { while let Some(Ok(_)) = body.frame().await {} };
    tokio::spawn(timeout(time, rest));
}

/// Answers a request, and adds the headers that every answer has: its status, and those that let a
/// page of an allowed origin read it. A body that was read to its end is empty afterwards.
async fn answer_any(shared: &Arc<Shared>, request: &mut Request) -> Response {
    let settings = shared.settings();
    let (uri, headers) = (request.uri(), request.headers());
    let origin = match settings.access.admit(shared.address, uri, headers) {
        Ok(origin) => origin,
        Err(why) => {
            let api = Route::of(uri.path(), headers).api();
            let status = StatusCode::FORBIDDEN;
            return refused(shared, api, (None, None), Refusal { status, why });
        }
    };
    let mut answer = match *request.method() {
        Method::OPTIONS => preflight(headers),
        _ => answer(shared, settings, request).await,
    };
    if let Some(origin) = origin {
        let own = answer.headers_mut();
        own.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        own.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        own.insert(VARY, HeaderValue::from_static("origin"));
    }
    if !answer.headers().contains_key(headers::STATUS) {
        // These are the page, the metrics and the health check.
        UnmanagedReason::new(Status::NotManaged, "gateway", "").set_headers(&mut answer);
    }
    answer
}

/// Answers the preflight request of a browser. [`Access`](crate::access::Access) has already
/// decided that the page may use the gateway, so all methods and headers are allowed.
fn preflight(requested: &HeaderMap) -> Response {
    const METHODS: HeaderValue =
        HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    let mut answer = (StatusCode::NO_CONTENT, [(ALLOW, METHODS)]).into_response();
    let own = answer.headers_mut();
    if requested.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        own.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        if let Some(headers) = requested.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            own.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
        }
        if requested.contains_key("access-control-request-private-network") {
            let name = "access-control-allow-private-network";
            own.insert(name, HeaderValue::from_static("true"));
        }
    }
    answer
}

/// An error of the gateway's own, for a request that may not reach a provider.
struct Refusal {
    status: StatusCode,
    why: AccessRefusal,
}

impl Refusal {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        let why = (reason, message.into());
        Self { status, why }
    }
}

impl From<LimitReached> for Refusal {
    fn from(full: LimitReached) -> Self {
        match full {
            LimitReached::Gateway => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "max_requests",
                "the gateway has reached its limit of requests (`gateway.max_requests`): try again later",
            ),
            LimitReached::Tenant => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "tenant_requests",
                "this token has reached its limit of requests (`gateway.tenant_requests`): try again later",
            ),
        }
    }
}

impl From<CodingError> for Refusal {
    fn from(error: CodingError) -> Self {
        let status = match error {
            CodingError::Unknown(_) | CodingError::TooMany(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            CodingError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            CodingError::Broken { .. } => StatusCode::BAD_REQUEST,
        };
        Self::new(status, "content_encoding", error.to_string())
    }
}

/// Refuses a request of a tenant and a session. It is recorded like every other unmanaged request,
/// so that the status page shows it.
fn refused(
    shared: &Shared,
    api: Api,
    (tenant, session): (Option<&str>, Option<&str>),
    refusal: Refusal,
) -> Response {
    let (status, (reason, message)) = (refusal.status, refusal.why);
    let why = UnmanagedReason::new(Status::NotManaged, reason, message.clone());
    (shared.unmanaged).note(&shared.metrics, tenant, session, &why);
    let mut answer = error_response(api, status, &message);
    why.set_headers(&mut answer);
    let passes = [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    if passes.contains(&status) {
        headers::set(answer.headers_mut(), "retry-after", "1");
    }
    answer
}

const HEALTH: &str = "/healthz";
const METRICS: &str = "/metrics";

/// Whether the gateway answers requests for a path itself.
fn is_own(path: &str) -> bool {
    matches!(path, "/" | HEALTH | METRICS) || page::is_page_path(path)
}

/// Refuses a path that could mean something else to whoever is in front of the gateway or behind it.
fn check_spelling(path: &str) -> Result<(), Refusal> {
    if endpoint::may_leave_base(path) {
        let message = "the path has a segment `.` or `..` or a backslash: send it without";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "path", message));
    }
    let normal = endpoint::normalised(path);
    if !is_own(path) && (normal.is_empty() || is_own(&normal)) {
        // A rule of a proxy for one of these paths does not know the path in another spelling.
        let message = "the gateway answers this path itself, but not in this spelling: send it with single slashes and \
                       without one at its end";
        return Err(Refusal::new(StatusCode::NOT_FOUND, "path", message));
    }
    Ok(())
}

/// Answers a request whose host and origin are allowed, see the module documentation for the order
/// of the checks.
async fn answer(shared: &Arc<Shared>, settings: Arc<Settings>, request: &mut Request) -> Response {
    let path = request.uri().path().to_owned();
    if let Err(refusal) = check_spelling(&path) {
        let api = Route::of(&path, request.headers()).api();
        return refused(shared, api, (None, None), refusal);
    }
    if path == HEALTH {
        // The status stays 200, because restarting a degraded gateway would make it worse.
        let is_owner = settings.tokens.caller(request.headers_mut()) == Some(Caller::Owner);
        let report = (shared.health).report(&shared.host.engines().health(), is_owner);
        return report.unwrap_or_else(|| "ok\n".to_owned()).into_response();
    }
    if path == "/" && request.method() == Method::GET {
        return page::page();
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers_mut();
    // Only Google takes a key in the query, so it tells the provider as the header does.
    let (mut query, has_moved) = to_header(&query, "key", GOOGLE_KEY, "", headers);
    let route = Route::of(&path, headers);
    let api = route.api();
    if route.provider == Provider::Google {
        (query, _) = to_header(&query, "access_token", AUTHORIZATION, "Bearer ", headers);
    }
    let Some(caller) = settings.tokens.caller(request.headers_mut()) else {
        let message =
            "this gateway needs a valid token: send it as `x-contexture-token` (`gateway.tokens`)";
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "token", message);
        return refused(shared, api, (None, None), refusal);
    };
    if has_moved && route.provider != Provider::Google {
        request.headers_mut().remove(GOOGLE_KEY);
    }
    if path == METRICS {
        let health = shared.host.engines().health();
        let page = shared.metrics.page(&health, &settings.certificate_ends);
        return page.into_response();
    }
    let tenant = caller.tenant().map(str::to_owned);
    let session = session_key::name_in(request.headers());
    let session = session_key::row(tenant.as_deref(), session);
    let is_responses = route.endpoint == Endpoint::Conversation(Api::Responses);
    if is_responses && request.method() == Method::GET && request.headers().contains_key(UPGRADE) {
        // The gateway does not support WebSocket. Clients fall back to plain requests.
        let message = "the gateway does not support WebSocket: send a POST request\n";
        return (StatusCode::UPGRADE_REQUIRED, message).into_response();
    }
    let known = KnownCaller {
        path,
        query,
        route,
        caller,
        tenant: tenant.clone(),
        session: session.clone(),
    };
    let answer = pass_on(shared, settings, request, known).await;
    let sender = (tenant.as_deref(), session.as_deref());
    answer.unwrap_or_else(|refusal| refused(shared, api, sender, refusal))
}

/// Who sent a request, and where it leads.
struct KnownCaller {
    path: String,
    query: String,
    route: Route,
    caller: Caller,
    tenant: Option<String>,
    session: Option<String>,
}

/// Passes the request of a known caller to its handler.
///
/// # Errors
/// The request fails one of the checks before that.
async fn pass_on(
    shared: &Arc<Shared>,
    settings: Arc<Settings>,
    request: &mut Request,
    known: KnownCaller,
) -> Result<Response, Refusal> {
    let (route, tenant) = (&known.route, known.tenant.as_deref());
    let is_page = page::is_page_path(&known.path);
    // A turn has to be JSON even if the client pays for it, because the gateway has to parse it.
    let is_read = request.method() == Method::POST && route.endpoint != Endpoint::Other;
    // The page's requests never reach a provider, so they need no key.
    let allowed = match is_page {
        true => ContentTypes::Json,
        false => use_key(&settings, request, route.provider, &known.caller)?,
    };
    let allowed = if is_read { ContentTypes::Json } else { allowed };
    if !allowed.allows(request) {
        return Err(Refusal::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            "the request is not declared as JSON: send exactly one header `content-type: \
             application/json`",
        ));
    }
    let endpoint = match is_page {
        true => limits::PAGE,
        false => route.endpoint.name(),
    };
    let most = settings.config.gateway.max_requests.into();
    let most_of_tenant = settings.tenant_requests;
    let active = ActiveRequest::acquire(&shared.metrics, endpoint, most, tenant, most_of_tenant)?;
    let mut body = receive(&settings, request.body_mut()).await?;
    let mut headers = std::mem::take(request.headers_mut());
    // Only bodies that the gateway reads are expanded. All others pass as they are.
    if is_read && headers.contains_key(CONTENT_ENCODING) {
        body = expanded(shared, &headers, body, settings.max_body).await?;
        headers.remove(CONTENT_ENCODING);
    }
    // JSON has no byte order mark, but some clients write one.
    if (is_read || is_page) && body.starts_with(BYTE_ORDER_MARK) {
        body.advance(BYTE_ORDER_MARK.len());
    }
    let query = match known.query.is_empty() {
        true => known.query,
        false => format!("?{}", known.query),
    };
    let watch = Watch::begin(shared, endpoint, tenant, known.session.as_deref());
    let (endpoint, api) = (route.endpoint, route.api());
    let incoming = ClientRequest {
        method: request.method().clone(),
        path: known.path,
        query,
        route: known.route,
        headers,
        body,
        is_owner: known.caller == Caller::Owner,
        tenant: known.tenant,
        active,
    };
    let shared = Arc::clone(shared);
    let answer = match endpoint {
        Endpoint::Other if is_page => return Ok(page::answer(shared, incoming).await),
        Endpoint::Count(api) if is_read => {
            exchange::count_tokens(shared, settings, api, incoming).await
        }
        Endpoint::Conversation(api) if is_read => {
            exchange::answer(shared, settings, api, incoming).await
        }
        _ => exchange::other(&shared, &settings, api, incoming).await,
    };
    Ok(watch.over(answer))
}

/// Gives a request the key that pays for it, and returns the content types that it may have.
///
/// # Errors
/// The request needs a token of the gateway, or a key of its own.
fn use_key(
    settings: &Settings,
    request: &mut Request,
    provider: Provider,
    caller: &Caller,
) -> Result<ContentTypes, Refusal> {
    match settings.key(provider, caller) {
        ProviderKey::None => Ok(ContentTypes::Any),
        ProviderKey::Added(key) => {
            let header = settings.upstream(provider).key_header(provider);
            headers::use_key(request.headers_mut(), key, header);
            Ok(match caller {
                Caller::Anybody => ContentTypes::Json,
                Caller::Owner | Caller::Tenant(_) => ContentTypes::JsonOrUpload,
            })
        }
        ProviderKey::NeedsToken if tokens::has_credentials(request.headers()) => {
            Ok(ContentTypes::Any)
        }
        ProviderKey::NeedsToken => {
            let message = settings.tokens.key_help();
            Err(Refusal::new(StatusCode::UNAUTHORIZED, "token", message))
        }
    }
}

/// Reads a body to its end, and leaves an empty one in its place.
///
/// # Errors
/// It is too large or malformed, its connection broke, or it did not arrive in time.
async fn receive(settings: &Settings, body: &mut Body) -> Result<Bytes, Refusal> {
    let read = timeout(settings.client_timeout, read_body(body, settings.max_body)).await;
    let Ok(read) = read else {
        return Err(Refusal::new(
            StatusCode::REQUEST_TIMEOUT,
            "client_timeout",
            "the request did not arrive in time (`gateway.client_timeout_ms`): send it again",
        ));
    };
    // A chunked body does not tell that it was read to its end.
    read.inspect(|_| *body = Body::empty()).map_err(|error| match error {
        BodyError::TooLarge => {
            let most = settings.max_body >> 20;
            let message = format!("the request is larger than {most} MB (`gateway.max_body_mb`)");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        }
        BodyError::Broken(cause) => {
            let message =
                format!("the body of the request cannot be read: {cause}; send it again, complete and well-formed");
            Refusal::new(StatusCode::BAD_REQUEST, "broken_body", message)
        }
    })
}

/// How many bytes are reserved at once for a body that says how long it is. A client can say
/// anything.
const RESERVED_AT_ONCE: usize = 1 << 20;

/// Why a body cannot be read.
enum BodyError {
    TooLarge,
    /// It is malformed, or its connection broke.
    Broken(axum::Error),
}

/// Reads a body of at most `most` bytes. One that declares more is not read at all. Each piece is
/// copied when it arrives. Otherwise all pieces would keep the buffers with which the connection read
/// them until the body is complete.
async fn read_body(body: &mut Body, most: usize) -> Result<Bytes, BodyError> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > most {
        return Err(BodyError::TooLarge);
    }
    let mut read = Vec::with_capacity(declared.min(RESERVED_AT_ONCE));
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(BodyError::Broken)?.into_data() else {
            continue;
        };
        if piece.len() > most - read.len() {
            return Err(BodyError::TooLarge);
        }
        read.extend_from_slice(&piece);
    }
    Ok(read.into())
}

/// Moves a credential from the query into the header that means the same, so that no URL contains it
/// and the gateway's own token is found there, too. A header that is there stays. Returns the query
/// without the credential, and whether the header is new.
fn to_header(
    query: &str,
    parameter: &str,
    header: HeaderName,
    scheme: &str,
    headers: &mut HeaderMap,
) -> (String, bool) {
    let (rest, credential) = endpoint::without_credential(query, parameter);
    let value =
        credential.map(|credential| HeaderValue::from_str(&format!("{scheme}{credential}")));
    if let Some(Ok(mut value)) = value
        && !headers.contains_key(&header)
    {
        value.set_sensitive(true);
        headers.insert(header, value);
        return (rest, true);
    }
    (rest, false)
}

/// Expands a body on a worker thread, up to `most` bytes.
///
/// # Errors
/// A coding is unknown or broken, the body is too large, or the work panicked.
async fn expanded(
    shared: &Shared,
    headers: &HeaderMap,
    body: Bytes,
    most: usize,
) -> Result<Bytes, Refusal> {
    let codings = coding::of(headers)?;
    let expanding = shared
        .work
        .run(move || coding::expand(body, &codings, most));
    let expanded = expanding.await.map_err(|failure| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Refusal::new(status, failure.reason, failure.detail)
    })?;
    Ok(expanded?)
}

/// Which content types a request may have. It depends on who pays for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentTypes {
    /// Any type, because the client's own key pays for it.
    Any,
    Json,
    /// JSON, or a form with files. For callers with a token.
    JsonOrUpload,
}

impl ContentTypes {
    /// Whether the content type of a request is allowed. A page of another site cannot send JSON
    /// without a preflight, so JSON alone keeps such pages from using the gateway's key. A request
    /// without a body and a content type is always allowed.
    fn allows(self, request: &Request) -> bool {
        let mut kinds = request.headers().get_all(CONTENT_TYPE).iter();
        let kind = match (kinds.next(), kinds.next()) {
            _ if self == Self::Any => return true,
            (None, _) => return request.body().is_end_stream(),
            (Some(kind), None) => kind
                .to_str()
                .ok()
                .and_then(|kind| kind.parse::<Mime>().ok()),
            (Some(_), Some(_)) => None,
        };
        kind.is_some_and(|kind| {
            let is_json = kind.subtype() == mime::JSON || kind.suffix() == Some(mime::JSON);
            let is_upload = kind.essence_str() == mime::MULTIPART_FORM_DATA.essence_str();
            (kind.type_() == mime::APPLICATION && is_json)
                || (self == Self::JsonOrUpload && is_upload)
        })
    }
}
