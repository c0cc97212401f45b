//! Which request goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::Shared;
use crate::api::Api;
use crate::coding::{self, CodingError};
use crate::endpoint::{self, Endpoint, Route};
use crate::exchange::{self, Incoming, refuse};
use crate::failure::Failure;
use crate::headers;
use crate::limits::Counted;
use crate::page;
use crate::session_key;
use crate::settings::Settings;
use crate::unmanaged::{Status, Why};

/// All that the gateway answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(route).with_state(shared)
}

async fn route(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let mut answer = answer(&shared, request).await;
    if !answer.headers().contains_key(headers::STATUS) {
        // The page, the metrics and the health check.
        Why::new(Status::NotManaged, "gateway", "").tell(&mut answer);
    }
    answer
}

/// The gateway's own answer to a request that is not passed on. It is recorded like every other unmanaged request.
fn refused(
    shared: &Shared,
    api: Api,
    session: Option<&str>,
    (status, kind): (StatusCode, &str),
    (reason, message): (&'static str, String),
) -> Response {
    let why = Why::new(Status::NotManaged, reason, message.clone());
    shared.unmanaged.note(&shared.metrics, session, &why);
    let mut answer = refuse(api, status, kind, &message);
    why.tell(&mut answer);
    answer
}

async fn answer(shared: &Arc<Shared>, request: Request) -> Response {
    let settings = shared.settings();
    let path = request.uri().path().to_owned();
    let normal = endpoint::normalised(&path);
    if normal == "/healthz" {
        // The status stays 200, because restarting an unhealthy gateway would make it worse.
        let report = shared.health.report();
        return text(StatusCode::OK, report.unwrap_or_else(|| "ok\n".to_owned()));
    }
    if normal.is_empty() && request.method() == Method::GET {
        return page::page();
    }
    let route = Route::of(&path, request.headers());
    let api = route.api();
    let tenant = match tenant(&settings, request.headers()) {
        Ok(tenant) => tenant,
        Err(()) => {
            let message =
                "this gateway needs a token: send it as `x-contexture-token` (`gateway.tokens`)";
            let status = (StatusCode::UNAUTHORIZED, "authentication_error");
            return refused(shared, api, None, status, ("token", message.to_owned()));
        }
    };
    if normal == "/metrics" {
        return text(StatusCode::OK, shared.metrics.page());
    }
    let session = session_key::name_in(request.headers());
    let session = match &tenant {
        Some(tenant) => Some(format!("{tenant}/{}", session.unwrap_or_default())),
        None => session,
    };
    let refused = |status, why| refused(shared, api, session.as_deref(), status, why);
    let is_responses = route.endpoint == Endpoint::Conversation(Api::Responses);
    if is_responses && request.method() == Method::GET && request.headers().contains_key(UPGRADE) {
        // There is no WebSocket here: clients fall back to requests.
        return text(StatusCode::UPGRADE_REQUIRED, "use POST\n".to_owned());
    }
    let Some(counted) = Counted::one_of(settings.max_requests, &shared.metrics) else {
        let message = "the gateway answers as many requests as it may (`gateway.max_requests`)";
        let status = (StatusCode::SERVICE_UNAVAILABLE, "overloaded_error");
        let mut answer = refused(status, ("max_requests", message.to_owned()));
        headers::set(answer.headers_mut(), "retry-after", "1");
        return answer;
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
    let is_read = parts.method == Method::POST && route.endpoint != Endpoint::Other;
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
        counted,
    };
    let shared = Arc::clone(shared);
    match endpoint {
        Endpoint::Other if page::is_its(&incoming.path) => page::answer(shared, incoming).await,
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

/// Who sends a request; nobody in particular where everybody may.
fn tenant(settings: &Settings, headers: &HeaderMap) -> Result<Option<String>, ()> {
    if settings.tenants.is_empty() {
        return Ok(None);
    }
    let token = headers::text(headers, headers::TOKEN).ok_or(())?;
    let mut tenants = settings.tenants.iter();
    let tenant = tenants.find(|tenant| tenant.has(token)).ok_or(())?;
    Ok(Some(tenant.name.clone()))
}

fn text(status: StatusCode, text: String) -> Response {
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer
}
