//! Which request goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::Shared;
use crate::api::Api;
use crate::exchange::{self, Incoming, refuse};
use crate::headers;
use crate::limits::Counted;
use crate::page;
use crate::settings::Settings;

/// All that the gateway answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(route).with_state(shared)
}

async fn route(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let settings = shared.settings();
    let path = request.uri().path().to_owned();
    if path == "/healthz" {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    if path == "/" && request.method() == Method::GET {
        return page::page();
    }
    let api = Api::of(&path).unwrap_or_else(|| provider_of(&path, request.headers()));
    let tenant = match tenant(&settings, request.headers()) {
        Ok(tenant) => tenant,
        Err(()) => {
            let message =
                "this gateway needs a token: send it as `x-contexture-token` (`gateway.tokens`)";
            return refuse(
                api,
                StatusCode::UNAUTHORIZED,
                "authentication_error",
                message,
            );
        }
    };
    if path == "/metrics" {
        return text(StatusCode::OK, shared.metrics.page());
    }
    let is_responses = api == Api::Responses && Api::of(&path).is_some();
    if is_responses && request.method() == Method::GET && request.headers().contains_key(UPGRADE) {
        // There is no WebSocket here: clients fall back to requests.
        return text(StatusCode::UPGRADE_REQUIRED, "use POST\n".to_owned());
    }
    let Some(counted) = Counted::one_of(settings.max_requests, &shared.metrics) else {
        let message = "the gateway answers as many requests as it may (`gateway.max_requests`)";
        let mut answer = refuse(
            api,
            StatusCode::SERVICE_UNAVAILABLE,
            "overloaded_error",
            message,
        );
        headers::set(answer.headers_mut(), "retry-after", "1");
        return answer;
    };
    let (parts, body) = request.into_parts();
    let read = axum::body::to_bytes(body, settings.max_body);
    let body = match timeout(settings.client_timeout, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let message = format!(
                "the request is larger than {} MB (`gateway.max_body_mb`), or broke off",
                settings.max_body >> 20
            );
            return refuse(
                api,
                StatusCode::PAYLOAD_TOO_LARGE,
                "request_too_large",
                &message,
            );
        }
        Err(_) => {
            let message = "the request took too long to come (`gateway.client_timeout_ms`)";
            return refuse(
                api,
                StatusCode::REQUEST_TIMEOUT,
                "invalid_request_error",
                message,
            );
        }
    };
    let query = parts
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let is_post = parts.method == Method::POST;
    let incoming = Incoming {
        method: parts.method,
        path_and_query: format!("{}{query}", versioned(&path)),
        headers: parts.headers,
        body,
        tenant,
        counted,
    };
    match Api::of(&path) {
        None if page::is_its(&path) => page::answer(shared, incoming).await,
        None if is_post && path == "/v1/messages/count_tokens" => {
            exchange::count(shared, settings, incoming).await
        }
        Some(api) if is_post => exchange::answer(shared, settings, api, incoming).await,
        _ => exchange::through(&settings, api, incoming, None).await,
    }
}

/// Clients whose base URL has no version leave it out.
fn versioned(path: &str) -> String {
    match Api::of(path) {
        Some(_) if !path.starts_with("/v1/") => format!("/v1{path}"),
        _ => path.to_owned(),
    }
}

/// Whose API a path that both may have is asked of.
fn provider_of(path: &str, headers: &HeaderMap) -> Api {
    let is_anthropic = path.starts_with("/v1/messages")
        || headers.contains_key("anthropic-version")
        || headers.contains_key("x-api-key")
        || headers::text(headers, "user-agent").is_some_and(|agent| agent.starts_with("claude"));
    match is_anthropic {
        true => Api::Messages,
        false => Api::Chat,
    }
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
