//! The status page at `/`, and the JSON that it asks for: sessions, their turns and compactions,
//! and the tools of their engines.
//!
//! [`page`] returns the HTML, which contains no data and needs no token. [`answer`] handles its
//! requests below `/contexture/`. Those follow the same rule as all requests: a tenant sees its own
//! sessions, callers without a tenant see the sessions of nobody in particular, and the owner of
//! the home directory sees all of them.
//!
//! The page can call an engine's tools in a session, for example to search its history. The numbers
//! come from [`account`].

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contexture::engines::CallError;
use contexture::session::{Session, SessionError};
use contexture::{Host, ToolCall};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exchange::ClientRequest;
use crate::{Shared, account, headers, lineage};

const PAGE: &str = include_str!("page/page.html");

/// The prefix of the paths that the page asks for. The gateway answers requests below it itself.
pub(crate) const PATH: &str = "/contexture/";

/// The path, after [`PATH`], at which the owner has the configuration read again.
pub(crate) const RELOAD: &str = "reload";

/// The content security policy of the page. Nothing is loaded from elsewhere, and no script runs
/// except the page's own, which is allowed by its hash.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let script = PAGE.split_once("<script>").and_then(|(_, rest)| {
        let (script, _) = rest.split_once("</script>")?;
        Some(script)
    });
    let hash = STANDARD.encode(hmac_sha256::Hash::hash(
        script.unwrap_or_default().as_bytes(),
    ));
    format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; connect-src 'self'; \
         form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
});

pub(crate) fn is_page_path(path: &str) -> bool {
    path.starts_with(PATH)
}

/// The response with the page itself. It is the same for everybody.
pub(crate) fn page() -> Response {
    let mut answer = Response::new(Body::from(PAGE));
    let own = answer.headers_mut();
    own.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers::set(own, CONTENT_SECURITY_POLICY.as_str(), &POLICY);
    own.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    add_safety_headers(own);
    answer
}

/// Adds headers that keep browsers from storing an answer or guessing its type.
fn add_safety_headers(own: &mut HeaderMap) {
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    own.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Why a request of the page fails: the status, and a message for its user.
struct PageError(StatusCode, String);

fn not_found(what: &str) -> PageError {
    PageError(StatusCode::NOT_FOUND, format!("no such {what}"))
}

fn failed(error: impl ToString) -> PageError {
    PageError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Answers a request of the page with JSON, on a worker thread. Errors are JSON as well.
pub(crate) async fn answer(shared: Arc<Shared>, incoming: ClientRequest) -> Response {
    let own = Arc::clone(&shared);
    let result = shared.work.run(move || respond(&own, &incoming)).await;
    let result = result.unwrap_or_else(|failure| Err(failed(failure.detail)));
    let (status, value) = match result {
        Ok(value) => (StatusCode::OK, value),
        Err(PageError(status, error)) => (status, json!({"error": error})),
    };
    let mut answer = Response::new(Body::from(value.to_string()));
    *answer.status_mut() = status;
    let own = answer.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    add_safety_headers(own);
    answer
}

#[derive(Deserialize)]
struct ToolRequest {
    session: String,
    tool: String,
    #[serde(default)]
    arguments: Value,
}

/// Finds out what a request of the page asks for, checks whether its sender may see it, and returns
/// it.
fn respond(shared: &Shared, incoming: &ClientRequest) -> Result<Value, PageError> {
    let query = incoming.query.trim_start_matches('?');
    let tenant = incoming.tenant.as_deref();
    let record = shared.host.record();
    // The id does not prove who owns a session: anybody may name one `alice/work`.
    let tenants = record.tenants().map_err(failed)?;
    // Whoever can read the token in the home directory can also read the sessions there.
    let may_see = |id: &str| incoming.is_owner || tenants.get(id).map(String::as_str) == tenant;
    // Unmanaged requests have no session. Their rows begin with the name of the tenant that sent
    // them.
    let may_see_row = |row: &str| match tenant {
        Some(tenant) => row
            .strip_prefix(tenant)
            .is_some_and(|rest| rest.starts_with('/')),
        None => true,
    };
    let id = || {
        let id = query.strip_prefix("id=").map(decoded).unwrap_or_default();
        // The answer must not reveal whether another tenant has a session of this name.
        may_see(&id)
            .then_some(id)
            .ok_or_else(|| not_found("session"))
    };
    match (
        &incoming.method,
        incoming.path.strip_prefix(PATH).unwrap_or_default(),
    ) {
        (&Method::GET, "sessions") => sessions(&shared.host, may_see),
        (&Method::GET, "not-managed") => Ok(json!({"rows": shared.unmanaged.rows(may_see_row)})),
        (&Method::GET, "session") => session(shared, &id()?),
        (&Method::GET, "tools") => {
            let mut session = open_read_only(&shared.host, &id()?)?;
            Ok(json!({"tools": session.tools().map_err(failed)?}))
        }
        (&Method::POST, RELOAD) if incoming.is_owner => {
            shared.reload().map_err(failed)?;
            Ok(json!({}))
        }
        (&Method::POST, "tool") => {
            let request = serde_json::from_slice::<ToolRequest>(&incoming.body);
            let request =
                request.map_err(|error| PageError(StatusCode::BAD_REQUEST, error.to_string()))?;
            match may_see(&request.session) {
                true => call(&shared.host, request),
                false => Err(not_found("session")),
            }
        }
        _ => Err(not_found("path")),
    }
}

/// Decodes the `%xx` escapes in a part of a query. Invalid escapes stay as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        let code = text.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*byte));
        at += code.map_or(1, |_| 3);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The list of sessions with their totals, as the page shows it. The session with the latest turn
/// comes first.
fn sessions(host: &Host, may_see: impl Fn(&str) -> bool) -> Result<Value, PageError> {
    let record = host.record();
    let totals: std::collections::HashMap<String, String> =
        (record.kept_as(account::TOTALS, None).map_err(failed)?)
            .into_iter()
            .collect();
    let follows = lineage::follows(record, None).map_err(failed)?;
    let all = record.all_delivered().map_err(failed)?;
    let mut all: Vec<Value> = (all.into_iter())
        .filter(|one| may_see(&one.session))
        .map(|one| {
            let totals = totals.get(&one.session);
            let mut entry: Value = totals
                .and_then(|totals| serde_json::from_str(totals).ok())
                .unwrap_or_else(|| json!({}));
            entry["id"] = json!(one.session);
            entry["engine"] = json!(one.engine);
            entry["messages"] = json!(one.messages);
            if let Some(other) = follows.get(&one.session) {
                entry["follows"] = json!(other);
            }
            entry
        })
        .collect();
    // The session with the latest turn comes first.
    all.sort_by_key(|one| std::cmp::Reverse(one["at_ms"].as_u64()));
    Ok(json!({"sessions": all}))
}

/// Everything about one session: its totals, its last turns, what its engine has placed, and the
/// diffs in memory.
fn session(shared: &Shared, id: &str) -> Result<Value, PageError> {
    let record = shared.host.record();
    let delivered = record.delivered(id).map_err(failed)?;
    let delivered = delivered.ok_or_else(|| not_found("session"))?;
    let (totals, turns) = account::of(record, id).map_err(failed)?;
    let placed = record.placed(id).map_err(failed)?.unwrap_or_default();
    let diffs = shared
        .diffs
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .of(id);
    Ok(json!({
        "id": id,
        "engine": delivered.engine,
        "messages": delivered.messages,
        "follows": lineage::follows(record, Some(id)).map_err(failed)?.get(id),
        "totals": totals,
        "turns": turns,
        "placed": placed,
        "diffs": diffs,
        "prices": "Costs cover only the prompts, at the list prices of each turn's model.",
    }))
}

/// Calls a tool of a session's engine. A failure that the tool reports is the caller's error, any
/// other is the server's.
fn call(host: &Host, request: ToolRequest) -> Result<Value, PageError> {
    let mut session = open_read_only(host, &request.session)?;
    let arguments = match request.arguments {
        Value::Null => "{}".to_owned(),
        arguments => arguments.to_string(),
    };
    let called = session.call_tool(ToolCall::new(request.tool, arguments));
    let answer = called.map_err(|error| match error {
        SessionError::Call(CallError::Failed { error, .. }) => {
            PageError(StatusCode::BAD_REQUEST, error.to_string())
        }
        error => failed(error),
    })?;
    host.note_restored(&mut session).map_err(failed)?;
    Ok(json!({"answer": answer}))
}

/// Opens a session for reading, beside the one that may be in use. Not found if there is no such
/// session.
fn open_read_only(host: &Host, id: &str) -> Result<Session, PageError> {
    let session = host.read_only_session(id).map_err(failed)?;
    session.ok_or_else(|| not_found("session"))
}
