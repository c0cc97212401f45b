//! The status page at `/`, and the JSON that it asks for: totals over all sessions, sessions with
//! their turns and compactions, requests that failed, and the tools of engines.
//!
//! [`page`] returns the HTML, which contains no data and needs no token. [`answer`] handles its
//! requests below `/contexture/`. Those follow the same rule as all requests: a tenant sees its own
//! sessions, callers without a tenant see the sessions of nobody in particular, and the owner of
//! the home directory sees all of them. Whoever sees a session may also rename, export and delete
//! it, and call its engine's tools, for example to search its history.
//!
//! The numbers come from [`account`], the failed requests from [`failures`], and the list of sessions
//! from [`list`].

mod list;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contexture::engines::CallError;
use contexture::formats;
use contexture::replay::PRICES_AS_OF;
use contexture::session::{KeptContent, Placed, Record, RecordError, Session, SessionError};
use contexture::{Host, HostError, ToolCall, lock};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use self::list::SessionLists;
use self::list::{AllLists, ListQuery, SessionInfo, SessionList};
use crate::account::{HourSums, Sums, TurnDiff, TurnRecord};
use crate::exchange::ClientRequest;
use crate::failures::FailedRequest;
use crate::unmanaged::UnmanagedRow;
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
    let mut answer = ([(REFERRER_POLICY, "no-referrer")], Html(PAGE)).into_response();
    let own = answer.headers_mut();
    headers::set(own, CONTENT_SECURITY_POLICY.as_str(), &POLICY);
    add_safety_headers(own);
    answer
}

/// Adds headers that keep browsers from storing an answer or guessing its type.
fn add_safety_headers(own: &mut HeaderMap) {
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    own.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// The key of the title that a user gave a session, in the data that is stored with it.
const TITLE: &str = "title";
/// The most characters of such a title.
const MAX_TITLE_CHARS: usize = 200;

/// Why a request of the page fails: the status, and a message for its user.
struct PageError(StatusCode, String);

fn not_found(what: &str) -> PageError {
    PageError(StatusCode::NOT_FOUND, format!("no such {what}"))
}

fn failed(error: impl ToString) -> PageError {
    PageError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// The text of an answer that succeeded.
enum PageAnswer {
    Json(String),
    /// One JSON document in each line.
    Lines(String),
}

impl PageAnswer {
    fn json(value: &impl Serialize) -> Result<Self, PageError> {
        serde_json::to_string(value).map(Self::Json).map_err(failed)
    }
}

/// An answer that says nothing except that it was done.
fn done() -> Result<PageAnswer, PageError> {
    PageAnswer::json(&json!({}))
}

/// Answers a request of the page with JSON, on a worker thread. Errors are JSON as well. Who has the
/// answer already, according to its `if-none-match`, gets none again.
pub(crate) async fn answer(shared: Arc<Shared>, incoming: ClientRequest) -> Response {
    let known = (incoming.method == Method::GET)
        .then(|| incoming.headers.get(IF_NONE_MATCH).cloned())
        .flatten();
    let (status, kind, text) = match respond_on_worker(&shared, incoming).await {
        Ok(PageAnswer::Json(text)) => (StatusCode::OK, "application/json", text),
        Ok(PageAnswer::Lines(text)) => (StatusCode::OK, "application/x-ndjson", text),
        Err(PageError(status, error)) => {
            let text = json!({"error": error}).to_string();
            (status, "application/json", text)
        }
    };
    let tag = format!("\"{:016x}\"", xxh3_64(text.as_bytes()));
    let is_known = status == StatusCode::OK && known.is_some_and(|known| known == *tag);
    let mut answer = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => (status, [(CONTENT_TYPE, kind)], text).into_response(),
    };
    let own = answer.headers_mut();
    headers::set(own, ETAG.as_str(), &tag);
    add_safety_headers(own);
    answer
}

/// Responds to a request of the page on a worker thread, with the lists of sessions if it asks for
/// them.
async fn respond_on_worker(
    shared: &Arc<Shared>,
    incoming: ClientRequest,
) -> Result<PageAnswer, PageError> {
    let path = incoming.path.strip_prefix(PATH).unwrap_or_default();
    let lists = match path {
        "overview" | "sessions" => shared.session_lists.current(shared).await?,
        _ => Arc::default(),
    };
    let changes_lists = matches!(path, "rename" | "delete");
    let own = Arc::clone(shared);
    let response = shared.work.run(move || respond(&own, &incoming, &lists));
    let response = response.await.map_err(|failure| failed(failure.detail));
    if changes_lists {
        shared.session_lists.forget().await;
    }
    response?
}

#[derive(Deserialize)]
struct ToolRequest {
    session: String,
    tool: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct RenameRequest {
    session: String,
    /// Empty to show the user's first words again.
    title: String,
}

#[derive(Deserialize)]
struct PinRequest {
    session: String,
    /// Each line is a pin.
    words: String,
    /// Whether the pins end.
    #[serde(default)]
    ends: bool,
}

#[derive(Deserialize)]
struct DeleteRequest {
    session: String,
}

/// Reads the body of a request of the page.
fn body<T: for<'b> Deserialize<'b>>(incoming: &ClientRequest) -> Result<T, PageError> {
    serde_json::from_slice(&incoming.body)
        .map_err(|error| PageError(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Finds out what a request of the page asks for, checks whether its sender may see it, and returns
/// it.
fn respond(
    shared: &Shared,
    incoming: &ClientRequest,
    lists: &AllLists,
) -> Result<PageAnswer, PageError> {
    let query = incoming.query.trim_start_matches('?');
    let tenant = incoming.tenant.as_deref();
    let record = shared.host.record();
    // Whoever can read the token in the home directory can also read the sessions there.
    let may_see_failure =
        |one: &FailedRequest| incoming.is_owner || one.tenant.as_deref() == tenant;
    let may_see_row = |row: &UnmanagedRow| incoming.is_owner || row.tenant.as_deref() == tenant;
    // The id does not prove who owns a session: anybody may name one `alice/work`. The answer must
    // not reveal whether another tenant has a session of this name.
    let own = |id: String| {
        let is_seen = incoming.is_owner || record.tenant(&id).map_err(failed)?.as_deref() == tenant;
        is_seen.then_some(id).ok_or_else(|| not_found("session"))
    };
    let id = || own(parameter(query, "id").unwrap_or_default());
    let list = || lists.of(&incoming.tenant, incoming.is_owner);
    match (
        &incoming.method,
        incoming.path.strip_prefix(PATH).unwrap_or_default(),
    ) {
        (&Method::GET, "overview") => {
            let failures = shared.failures.rows(may_see_failure);
            overview(shared, list(), incoming.is_owner, failures)
        }
        (&Method::GET, "sessions") => PageAnswer::json(&list().part(&list_query(query))),
        (&Method::GET, "not-managed") => {
            PageAnswer::json(&json!({"rows": shared.unmanaged.rows(may_see_row)}))
        }
        (&Method::GET, "session") => {
            let id = id()?;
            let is_shown = |one: &FailedRequest| {
                may_see_failure(one) && one.session.as_deref() == Some(id.as_str())
            };
            session(shared, &id, shared.failures.rows(is_shown))
        }
        (&Method::GET, "export") => export(record, &id()?),
        (&Method::GET, "tools") => {
            let mut session = open_read_only(&shared.host, &id()?)?;
            let tools = session.tools().map_err(failed)?;
            PageAnswer::json(&json!({"tools": tools}))
        }
        (&Method::POST, RELOAD) if incoming.is_owner => {
            shared.reload().map_err(failed)?;
            done()
        }
        (&Method::POST, "tool") => {
            let mut request: ToolRequest = body(incoming)?;
            request.session = own(request.session)?;
            call(&shared.host, request)
        }
        (&Method::POST, "rename") => {
            let request: RenameRequest = body(incoming)?;
            rename(record, &own(request.session)?, &request.title)
        }
        (&Method::POST, "pin") => {
            let mut request: PinRequest = body(incoming)?;
            request.session = own(request.session)?;
            pin(&shared.host, &request)
        }
        (&Method::POST, "delete") => {
            let request: DeleteRequest = body(incoming)?;
            delete(shared, &own(request.session)?)
        }
        _ => Err(not_found("path")),
    }
}

/// The value of a parameter in a query, decoded. None if the query does not have it.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    Some(decoded(value))
}

/// The part of the list of sessions that a query asks for.
fn list_query(query: &str) -> ListQuery {
    let text = |name| parameter(query, name).unwrap_or_default();
    ListQuery {
        search: text("search"),
        agent: text("agent"),
        sort: text("sort"),
        is_ascending: text("ascending") == "true",
        limit: text("limit").parse().ok(),
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

/// What the page shows of all sessions together.
#[derive(Serialize)]
struct Overview<'l> {
    sessions: usize,
    totals: Sums,
    /// The hours that had turns, oldest first.
    hours: Vec<HourSums>,
    /// What is wrong with engines and stores, in words. Empty if everything works.
    problems: Vec<String>,
    /// The last requests that failed since the start, latest first.
    failures: Vec<FailedRequest>,
    prices_as_of: &'static str,
    /// Models of sessions that have turns without a known price.
    unpriced_models: &'l BTreeSet<String>,
    engine: String,
    is_observing: bool,
    version: &'static str,
    started_ms: u64,
}

/// Everything about one session.
#[derive(Serialize)]
struct SessionDetails {
    #[serde(flatten)]
    info: SessionInfo,
    totals: Sums,
    /// The last turns, oldest first.
    turns: Vec<TurnRecord>,
    /// What stands in place of messages in the window.
    placed: Vec<Placed>,
    /// What the last compactions changed, as far as it is in memory.
    diffs: Vec<TurnDiff>,
    failures: Vec<FailedRequest>,
    prices_as_of: &'static str,
}

/// The totals over the sessions of a list.
fn overview(
    shared: &Shared,
    list: &SessionList,
    is_owner: bool,
    failures: Vec<FailedRequest>,
) -> Result<PageAnswer, PageError> {
    let engines = shared.host.engines();
    let report = shared.health.report(&engines.health(), is_owner);
    PageAnswer::json(&Overview {
        sessions: list.len(),
        totals: list.totals,
        hours: list.hours(),
        problems: report
            .iter()
            .flat_map(|report| report.lines())
            .map(str::to_owned)
            .collect(),
        failures,
        prices_as_of: PRICES_AS_OF,
        unpriced_models: &list.unpriced_models,
        engine: engines.config().context.engine.clone(),
        is_observing: shared.settings().observe,
        version: env!("CARGO_PKG_VERSION"),
        started_ms: shared.started_ms,
    })
}

/// Everything about one session: its totals, its last turns, what its engine has placed, and the
/// diffs in memory.
fn session(
    shared: &Shared,
    id: &str,
    failures: Vec<FailedRequest>,
) -> Result<PageAnswer, PageError> {
    let record = shared.host.record();
    let delivered = record.delivered(id).map_err(failed)?;
    let delivered = delivered.ok_or_else(|| not_found("session"))?;
    let (totals, turns) = account::of(record, id).map_err(failed)?;
    let given = record.kept_text(id, TITLE).map_err(failed)?;
    let mut follows = lineage::follows(record, Some(id)).map_err(failed)?;
    // The lock must not be held while the record is used, because the record's writer takes it.
    let diffs = lock(&shared.diffs).of(id);
    PageAnswer::json(&SessionDetails {
        info: SessionInfo::new(shared, delivered, &totals, given, follows.remove(id)),
        totals: totals.sums,
        turns,
        placed: record.placed(id).map_err(failed)?.unwrap_or_default(),
        diffs,
        failures,
        prices_as_of: PRICES_AS_OF,
    })
}

/// The messages of a session as JSON, one in each line, as `contexture sessions export --whole`
/// prints them. Messages whose text is not stored are left out.
///
/// # Errors
/// The record cannot be read, or has no text of the session's messages.
fn export(record: &Record, id: &str) -> Result<PageAnswer, PageError> {
    let known = record.delivered(id).map_err(failed)?;
    known.ok_or_else(|| not_found("session"))?;
    let mut lines = String::new();
    let messages = record.all_wire_messages(id).map_err(failed)?;
    for text in messages.into_iter().filter_map(|message| message.text) {
        for line in formats::item_lines(&text) {
            lines.push_str(&line);
            lines.push('\n');
        }
    }
    if lines.is_empty() {
        let error = "the text of this session's messages is not stored: set `transcript.mode: full` to store it";
        return Err(PageError(StatusCode::NOT_FOUND, error.to_owned()));
    }
    Ok(PageAnswer::Lines(lines))
}

/// Gives a session another title. An empty one shows the first words of the user again.
fn rename(record: &Record, id: &str, title: &str) -> Result<PageAnswer, PageError> {
    let known = record.delivered(id).map_err(failed)?;
    known.ok_or_else(|| not_found("session"))?;
    let words: Vec<&str> = title.split_whitespace().collect();
    let title = words.join(" ");
    if title.chars().count() > MAX_TITLE_CHARS {
        let error = format!("a title has at most {MAX_TITLE_CHARS} characters");
        return Err(PageError(StatusCode::BAD_REQUEST, error));
    }
    record
        .keep(id, KeptContent::Conversation, &[(TITLE, &title)])
        .map_err(failed)?;
    done()
}

/// Pins words of a session for the user, or ends pins. They take effect with the next compaction,
/// also if the session is in use.
fn pin(host: &Host, request: &PinRequest) -> Result<PageAnswer, PageError> {
    let mut session = open_read_only(host, &request.session)?;
    let pinned = match request.ends {
        true => session.unpin(&request.words),
        false => session.pin(&request.words),
    };
    pinned.map_err(refused)?;
    done()
}

/// The error for a call that a tool refused, or that failed.
fn refused(error: SessionError) -> PageError {
    match error {
        SessionError::Call(CallError::Failed { error, .. })
        | SessionError::HostTool { error, .. } => {
            PageError(StatusCode::BAD_REQUEST, error.to_string())
        }
        error => failed(error),
    }
}

/// Deletes a session with everything that is stored of it.
///
/// # Errors
/// There is no such session, it is in use, or it cannot be deleted.
fn delete(shared: &Shared, id: &str) -> Result<PageAnswer, PageError> {
    let in_use = |error: String| PageError(StatusCode::CONFLICT, error);
    if !shared.sessions.close(id) {
        let error = "a request of this session is being answered: try again when it is done";
        return Err(in_use(error.to_owned()));
    }
    let deleted = shared
        .host
        .delete_session(id)
        .map_err(|error| match error {
            HostError::Record(error @ RecordError::InUse { .. }) => in_use(error.to_string()),
            error => failed(error),
        })?;
    if !deleted {
        return Err(not_found("session"));
    }
    shared.subjects.forget(id);
    let mut diffs = lock(&shared.diffs);
    diffs.forget(id);
    tracing::info!(session = id, "deleted a session, as the page asked");
    done()
}

/// Calls a tool of a session's engine. A failure that the tool reports is the caller's error, any
/// other is the server's.
fn call(host: &Host, request: ToolRequest) -> Result<PageAnswer, PageError> {
    let mut session = open_read_only(host, &request.session)?;
    let arguments = match request.arguments {
        Value::Null => "{}".to_owned(),
        arguments => arguments.to_string(),
    };
    let called = session.call_tool(ToolCall::new(request.tool, arguments));
    let answer = called.map_err(refused)?;
    host.note_restored(&mut session).map_err(failed)?;
    PageAnswer::json(&json!({"answer": answer}))
}

/// Opens a session for reading, beside the one that may be in use. Not found if there is no such
/// session.
fn open_read_only(host: &Host, id: &str) -> Result<Session, PageError> {
    let session = host.read_only_session(id).map_err(failed)?;
    session.ok_or_else(|| not_found("session"))
}
