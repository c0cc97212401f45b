//! The page at `/` and what it asks for: sessions, their turns and compactions, and the tools of their engines.
//!
//! The page itself holds nothing, and needs no token. What it shows has the rule of all requests: a tenant's own sessions,
//! and those of nobody in particular if there are no tenants. The owner of the home directory sees all of them.

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

use crate::exchange::Incoming;
use crate::{Shared, account, headers, lineage};

const PAGE: &str = include_str!("page/page.html");

/// What the paths of the page begin with.
const PATH: &str = "/contexture/";

/// Nothing is loaded from anywhere, and no script runs but the page's own.
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

/// Whether a request is the page's.
pub(crate) fn is_its(path: &str) -> bool {
    path.starts_with(PATH)
}

/// The page.
pub(crate) fn page() -> Response {
    let mut answer = Response::new(Body::from(PAGE));
    let own = answer.headers_mut();
    own.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers::set(own, CONTENT_SECURITY_POLICY.as_str(), &POLICY);
    own.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    safely(own);
    answer
}

fn safely(own: &mut HeaderMap) {
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    own.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Why the page gets no answer.
struct Refused(StatusCode, String);

fn not_found(what: &str) -> Refused {
    Refused(StatusCode::NOT_FOUND, format!("there is no {what}"))
}

fn failed(error: impl ToString) -> Refused {
    Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// Answers what the page asks for.
pub(crate) async fn answer(shared: Arc<Shared>, incoming: Incoming) -> Response {
    let own = Arc::clone(&shared);
    let told = shared.work.done(move || tell(&own, &incoming)).await;
    let told = told.unwrap_or_else(|failure| Err(failed(failure.detail)));
    let (status, value) = match told {
        Ok(value) => (StatusCode::OK, value),
        Err(Refused(status, error)) => (status, json!({"error": error})),
    };
    let mut answer = Response::new(Body::from(value.to_string()));
    *answer.status_mut() = status;
    let own = answer.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    safely(own);
    answer
}

#[derive(Deserialize)]
struct Asked {
    session: String,
    tool: String,
    #[serde(default)]
    arguments: Value,
}

fn tell(shared: &Shared, incoming: &Incoming) -> Result<Value, Refused> {
    let query = incoming.query.trim_start_matches('?');
    let tenant = incoming.tenant.as_deref();
    let record = shared.host.record();
    // A session's id is no proof of whose it is: anybody may call one `alice/work`.
    let tenants = record.tenants().map_err(failed)?;
    // Whoever can read the token of the home directory can read the sessions in it.
    let may_see = |id: &str| incoming.is_owner || tenants.get(id).map(String::as_str) == tenant;
    // Requests that were not managed have no session, but a row in the scope of whoever sent them.
    let may_see_row = |row: &str| match tenant {
        Some(tenant) => row
            .strip_prefix(tenant)
            .is_some_and(|rest| rest.starts_with('/')),
        None => true,
    };
    let id = || {
        let id = query.strip_prefix("id=").map(decoded).unwrap_or_default();
        // Whether it is another's or nobody's is not to be told apart.
        may_see(&id)
            .then_some(id)
            .ok_or_else(|| not_found("such session"))
    };
    match (
        &incoming.method,
        incoming.path.strip_prefix(PATH).unwrap_or_default(),
    ) {
        (&Method::GET, "sessions") => sessions(&shared.host, may_see),
        (&Method::GET, "not-managed") => Ok(json!({"rows": shared.unmanaged.rows(may_see_row)})),
        (&Method::GET, "session") => session(shared, &id()?),
        (&Method::GET, "tools") => {
            let mut session = beside(&shared.host, &id()?)?;
            Ok(json!({"tools": session.tools().map_err(failed)?}))
        }
        (&Method::POST, "tool") => {
            let asked = serde_json::from_slice::<Asked>(&incoming.body);
            let asked =
                asked.map_err(|error| Refused(StatusCode::BAD_REQUEST, error.to_string()))?;
            match may_see(&asked.session) {
                true => call(&shared.host, asked),
                false => Err(not_found("such session")),
            }
        }
        _ => Err(not_found("such path")),
    }
}

/// A part of a query, in which everything but plain characters is written as `%xx`.
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

fn sessions(host: &Host, may_see: impl Fn(&str) -> bool) -> Result<Value, Refused> {
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
            let mut told: Value = totals
                .and_then(|totals| serde_json::from_str(totals).ok())
                .unwrap_or_else(|| json!({}));
            told["id"] = json!(one.session);
            told["engine"] = json!(one.engine);
            told["messages"] = json!(one.messages);
            if let Some(other) = follows.get(&one.session) {
                told["follows"] = json!(other);
            }
            told
        })
        .collect();
    // The last first.
    all.sort_by_key(|one| std::cmp::Reverse(one["at_ms"].as_u64()));
    Ok(json!({"sessions": all}))
}

fn session(shared: &Shared, id: &str) -> Result<Value, Refused> {
    let record = shared.host.record();
    let delivered = record.delivered(id).map_err(failed)?;
    let delivered = delivered.ok_or_else(|| not_found("such session"))?;
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
        "prices": "the list prices of each turn's model, as far as they are known, of the prompt alone",
    }))
}

fn call(host: &Host, asked: Asked) -> Result<Value, Refused> {
    let mut session = beside(host, &asked.session)?;
    let arguments = match asked.arguments {
        Value::Null => "{}".to_owned(),
        arguments => arguments.to_string(),
    };
    let called = session.call_tool(ToolCall::new(asked.tool, arguments));
    let answer = called.map_err(|error| match error {
        SessionError::Call(CallError::Failed { error, .. }) => {
            Refused(StatusCode::BAD_REQUEST, error.to_string())
        }
        error => failed(error),
    })?;
    host.note_restored(&mut session).map_err(failed)?;
    Ok(json!({"answer": answer}))
}

fn beside(host: &Host, id: &str) -> Result<Session, Refused> {
    let session = host.beside(id).map_err(failed)?;
    session.ok_or_else(|| not_found("such session"))
}
