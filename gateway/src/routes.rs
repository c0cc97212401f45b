//! Which request goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
    ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE, VARY,
};
use http::{Method, StatusCode};
use http_body::Body as _;
use mime::Mime;
use tokio::time::timeout;

use crate::Shared;
use crate::access::Refusal;
use crate::api::{Api, Provider};
use crate::coding::{self, CodingError};
use crate::endpoint::{self, Endpoint, Route};
use crate::exchange::{self, Incoming, refuse};
use crate::failure::Failure;
use crate::headers;
use crate::limits::{Counted, Full};
use crate::page;
use crate::session_key;
use crate::settings::{Key, Settings};
use crate::tokens::{self, Caller};
use crate::unmanaged::{Status, Why};

/// All that the gateway answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(route).with_state(shared)
}

async fn route(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let settings = shared.settings();
    let (uri, headers) = (request.uri(), request.headers());
    let origin = match settings.access.admit(shared.address, uri, headers) {
        Ok(origin) => origin,
        Err(why) => {
            let api = Route::of(uri.path(), headers).api();
            let status = (StatusCode::FORBIDDEN, "permission_error");
            return refused(&shared, api, None, status, why);
        }
    };
    let mut answer = match *request.method() {
        Method::OPTIONS => preflight(headers),
        _ => answer(&shared, settings, request).await,
    };
    if let Some(origin) = origin {
        let own = answer.headers_mut();
        own.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        own.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        own.insert(VARY, HeaderValue::from_static("origin"));
    }
    if !answer.headers().contains_key(headers::STATUS) {
        // The page, the metrics and the health check.
        Why::new(Status::NotManaged, "gateway", "").tell(&mut answer);
    }
    answer
}

/// Answers a browser that asks what a page may send. Which pages may is decided by
/// [`Access`](crate::access::Access) before.
fn preflight(asked: &HeaderMap) -> Response {
    const METHODS: HeaderValue =
        HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let own = answer.headers_mut();
    own.insert(ALLOW, METHODS);
    if asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        own.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        if let Some(headers) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            own.insert(ACCESS_CONTROL_ALLOW_HEADERS, headers.clone());
        }
        if asked.contains_key("access-control-request-private-network") {
            let name = "access-control-allow-private-network";
            own.insert(name, HeaderValue::from_static("true"));
        }
    }
    answer
}

/// The gateway's own answer to a request that is not passed on. It is recorded like every other unmanaged request.
fn refused(
    shared: &Shared,
    api: Api,
    session: Option<&str>,
    (status, kind): (StatusCode, &str),
    (reason, message): Refusal,
) -> Response {
    let why = Why::new(Status::NotManaged, reason, message.clone());
    shared.unmanaged.note(&shared.metrics, session, &why);
    let mut answer = refuse(api, status, kind, &message);
    why.tell(&mut answer);
    answer
}

async fn answer(shared: &Arc<Shared>, settings: Arc<Settings>, mut request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let normal = endpoint::normalised(&path);
    if normal == "/healthz" {
        // The status stays 200, because restarting an unhealthy gateway would make it worse.
        let is_owner = settings.tokens.caller(request.headers_mut()) == Some(Caller::Owner);
        let report = (shared.health).report(&shared.host.engines().health(), is_owner);
        return text(StatusCode::OK, report.unwrap_or_else(|| "ok\n".to_owned()));
    }
    if normal.is_empty() && request.method() == Method::GET {
        return page::page();
    }
    let route = Route::of(&path, request.headers());
    let api = route.api();
    const UNKNOWN: (StatusCode, &str) = (StatusCode::UNAUTHORIZED, "authentication_error");
    let Some(caller) = settings.tokens.caller(request.headers_mut()) else {
        let message =
            "this gateway needs a token: send it as `x-contexture-token` (`gateway.tokens`)";
        return refused(shared, api, None, UNKNOWN, ("token", message.to_owned()));
    };
    if normal == "/metrics" {
        return text(
            StatusCode::OK,
            shared.metrics.page(&shared.host.engines().health()),
        );
    }
    let tenant = caller.tenant().map(str::to_owned);
    let session = session_key::name_in(request.headers());
    let session = session_key::row(tenant.as_deref(), session);
    let refused = |status, why| refused(shared, api, session.as_deref(), status, why);
    let is_responses = route.endpoint == Endpoint::Conversation(Api::Responses);
    if is_responses && request.method() == Method::GET && request.headers().contains_key(UPGRADE) {
        // There is no WebSocket here: clients fall back to requests.
        return text(StatusCode::UPGRADE_REQUIRED, "use POST\n".to_owned());
    }
    let is_page = page::is_its(&path);
    let body = match (is_page, settings.key(route.provider, &caller)) {
        (true, _) => Allowed::Json,
        (false, Key::None) => Allowed::Any,
        (false, Key::Added(key)) => {
            let is_anthropic = route.provider == Provider::Anthropic;
            headers::use_key(request.headers_mut(), key, is_anthropic);
            match caller {
                Caller::Anybody => Allowed::Json,
                Caller::Owner | Caller::Tenant(_) => Allowed::JsonOrUpload,
            }
        }
        (false, Key::NeedsToken) if tokens::has_credentials(request.headers()) => Allowed::Any,
        (false, Key::NeedsToken) => {
            return refused(UNKNOWN, ("token", settings.tokens.way_to_a_key()));
        }
    };
    let is_read = request.method() == Method::POST && route.endpoint != Endpoint::Other;
    let body = if is_read { Allowed::Json } else { body };
    if !body.allows(&request) {
        let message =
            "what reaches a model has to be JSON: send one header `content-type: application/json`";
        let status = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error");
        return refused(status, ("content_type", message.to_owned()));
    }
    let most = (settings.max_requests, settings.tenant_requests);
    let counted = match Counted::one_of(&shared.metrics, most.0, tenant.as_deref(), most.1) {
        Ok(counted) => counted,
        Err(full) => {
            let (status, reason, message) = match full {
                Full::Gateway => (
                    (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error"),
                    "max_requests",
                    "the gateway answers as many requests as it may (`gateway.max_requests`)",
                ),
                Full::Tenant => (
                    (StatusCode::TOO_MANY_REQUESTS, "rate_limit_error"),
                    "tenant_requests",
                    "this token has as many requests under way as it may (`gateway.tenant_requests`)",
                ),
            };
            let mut answer = refused(status, (reason, message.to_owned()));
            headers::set(answer.headers_mut(), "retry-after", "1");
            return answer;
        }
    };
    let (mut parts, body) = request.into_parts();
    let read = axum::body::to_bytes(body, settings.max_body);
    let mut body = match timeout(settings.client_timeout, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let message = format!(
                "the request is larger than {} MB (`gateway.max_body_mb`), or broke off",
                settings.max_body >> 20
            );
            return refused(TOO_LARGE, ("too_large", message));
        }
        Err(_) => {
            let message = "the request took too long to come (`gateway.client_timeout_ms`)";
            let status = (StatusCode::REQUEST_TIMEOUT, "invalid_request_error");
            return refused(status, ("client_timeout", message.to_owned()));
        }
    };
    if is_read && parts.headers.contains_key(CONTENT_ENCODING) {
        body = match expanded(shared, &parts.headers, body, settings.max_body).await {
            Ok(body) => body,
            Err(Unexpanded::Coding(error)) => {
                let status = match error {
                    CodingError::Unknown(_) => {
                        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error")
                    }
                    CodingError::TooLarge(_) => TOO_LARGE,
                    CodingError::Broken { .. } => {
                        (StatusCode::BAD_REQUEST, "invalid_request_error")
                    }
                };
                return refused(status, ("content_encoding", error.to_string()));
            }
            Err(Unexpanded::Failed(failure)) => {
                let status = (StatusCode::INTERNAL_SERVER_ERROR, "api_error");
                return refused(status, (failure.reason, failure.detail));
            }
        };
        parts.headers.remove(CONTENT_ENCODING);
    }
    let query = parts.uri.query().map(|query| format!("?{query}"));
    let endpoint = route.endpoint;
    let incoming = Incoming {
        method: parts.method,
        path,
        query: query.unwrap_or_default(),
        route,
        headers: parts.headers,
        body,
        tenant,
        is_owner: caller == Caller::Owner,
        counted,
    };
    let shared = Arc::clone(shared);
    match endpoint {
        Endpoint::Other if is_page => page::answer(shared, incoming).await,
        Endpoint::Count if is_read => exchange::count(shared, settings, incoming).await,
        Endpoint::Conversation(api) if is_read => {
            exchange::answer(shared, settings, api, incoming).await
        }
        _ => exchange::other(&shared, &settings, api, incoming).await,
    }
}

const TOO_LARGE: (StatusCode, &str) = (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large");

/// Why a body was not expanded.
enum Unexpanded {
    Coding(CodingError),
    Failed(Failure),
}

/// The body without its codings, up to the size limit for requests.
async fn expanded(
    shared: &Shared,
    headers: &HeaderMap,
    body: Bytes,
    most: usize,
) -> Result<Bytes, Unexpanded> {
    let codings = coding::of(headers).map_err(Unexpanded::Coding)?;
    let expanding = shared
        .work
        .done(move || coding::expand(body, &codings, most));
    let expanded = expanding.await.map_err(Unexpanded::Failed)?;
    expanded.map_err(Unexpanded::Coding)
}

/// Which bodies a request may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Any, as the client's own key pays for it.
    Any,
    Json,
    /// JSON, or a form with files.
    JsonOrUpload,
}

impl Allowed {
    /// Whether the content type of a request is one of these. A page of another site can send no JSON without asking
    /// first. A request to be passed on may have no body.
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

fn text(status: StatusCode, text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}
