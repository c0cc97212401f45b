//! The status page at `/`, and the JSON that it asks for: totals over all sessions, sessions with
//! their turns and compactions, requests that failed, and the tools of engines.
//!
//! [`page`] returns the HTML, which contains no data and needs no token. [`answer`] handles its
//! requests below `/contexture/`. Those follow the same rule as all requests: a tenant sees its own
//! sessions, callers without a tenant see the sessions of nobody in particular, and the owner of
//! the home directory sees all of them. Whoever sees a session may also rename, export and delete
//! it, and call its engine's tools, for example to search its history.
//!
//! The numbers come from [`account`], and the failed requests from [`failures`].

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contexture::engines::CallError;
use contexture::formats;
use contexture::replay::PRICES_AS_OF;
use contexture::session::{
    Delivered, KeptContent, Placed, Record, RecordError, Session, SessionError,
};
use contexture::{Host, HostError, ToolCall, lock};
use contexture_engine_api::ToolSpec;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::account::{HourSums, SessionTotals, Sums, TurnDiff, TurnRecord};
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

/// The body of an answer with an error status.
#[derive(Serialize)]
struct ErrorBody {
    error: String,
}

/// The body of an answer that says nothing except that it was done.
#[derive(Serialize)]
struct Done {}

/// Answers a request of the page with JSON, on a worker thread. Errors are JSON as well.
pub(crate) async fn answer(shared: Arc<Shared>, incoming: ClientRequest) -> Response {
    let own = Arc::clone(&shared);
    let result = shared.work.run(move || respond(&own, &incoming)).await;
    let result = result.unwrap_or_else(|failure| Err(failed(failure.detail)));
    let (status, kind, text) = match result {
        Ok(PageAnswer::Json(text)) => (StatusCode::OK, "application/json", text),
        Ok(PageAnswer::Lines(text)) => (StatusCode::OK, "application/x-ndjson", text),
        Err(PageError(status, error)) => {
            // A text always has a JSON form.
            let text = serde_json::to_string(&ErrorBody { error }).unwrap_or_default();
            (status, "application/json", text)
        }
    };
    let mut answer = Response::new(Body::from(text));
    *answer.status_mut() = status;
    let own = answer.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
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
fn respond(shared: &Shared, incoming: &ClientRequest) -> Result<PageAnswer, PageError> {
    let query = incoming.query.trim_start_matches('?');
    let tenant = incoming.tenant.as_deref();
    let record = shared.host.record();
    // The id does not prove who owns a session: anybody may name one `alice/work`.
    let tenants = record.tenants().map_err(failed)?;
    // Whoever can read the token in the home directory can also read the sessions there.
    let may_see = |id: &str| incoming.is_owner || tenants.get(id).map(String::as_str) == tenant;
    let may_see_failure =
        |one: &FailedRequest| incoming.is_owner || one.tenant.as_deref() == tenant;
    let may_see_row = |row: &UnmanagedRow| incoming.is_owner || row.tenant.as_deref() == tenant;
    // The id does not prove who owns a session: anybody may name one `alice/work`. The answer must
    // not reveal whether another tenant has a session of this name.
    let own = |id: String| {
        may_see(&id)
            .then_some(id)
            .ok_or_else(|| not_found("session"))
    };
    let id = || own(query.strip_prefix("id=").map(decoded).unwrap_or_default());
    match (
        &incoming.method,
        incoming.path.strip_prefix(PATH).unwrap_or_default(),
    ) {
        (&Method::GET, "overview") => {
            let failures = shared.failures.rows(may_see_failure);
            overview(shared, may_see, incoming.is_owner, failures)
        }
        (&Method::GET, "sessions") => sessions(shared, may_see),
        (&Method::GET, "not-managed") => PageAnswer::json(&UnmanagedList {
            rows: shared.unmanaged.rows(may_see_row),
        }),
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
            PageAnswer::json(&ToolList {
                tools: session.tools().map_err(failed)?,
            })
        }
        (&Method::POST, RELOAD) if incoming.is_owner => {
            shared.reload().map_err(failed)?;
            PageAnswer::json(&Done {})
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
struct Overview {
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
    unpriced_models: BTreeSet<String>,
    engine: String,
    is_observing: bool,
    version: &'static str,
    started_ms: u64,
}

/// What identifies a session for a person.
#[derive(Serialize)]
struct SessionInfo {
    id: String,
    /// The title that a user gave it, or else the first words of its user. None if neither is known.
    title: Option<String>,
    /// Whether a user gave it the title.
    is_renamed: bool,
    project: Option<String>,
    /// The agent and the model of the last turn. Empty if the session has none.
    agent: String,
    model: String,
    engine: String,
    messages: u64,
    /// The session that this one may continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<String>,
    /// The time of the last turn. 0 if the session has none.
    at_ms: u64,
}

impl SessionInfo {
    fn new(
        shared: &Shared,
        delivered: Delivered,
        totals: &SessionTotals,
        given: Option<String>,
        follows: Option<String>,
    ) -> Self {
        let subject = totals.subject.clone();
        let subject = subject.or_else(|| shared.subjects.of(&delivered.session));
        let subject = subject.unwrap_or_default();
        let given = given.filter(|title| !title.is_empty());
        Self {
            id: delivered.session,
            is_renamed: given.is_some(),
            title: given.or(subject.title),
            project: subject.project,
            agent: totals.agent.clone(),
            model: totals.model.clone(),
            engine: delivered.engine,
            messages: delivered.messages,
            follows,
            at_ms: totals.at_ms,
        }
    }
}

/// A session in the list.
#[derive(Serialize)]
struct SessionRow {
    #[serde(flatten)]
    info: SessionInfo,
    #[serde(flatten)]
    sums: Sums,
}

#[derive(Serialize)]
struct SessionList {
    sessions: Vec<SessionRow>,
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

#[derive(Serialize)]
struct UnmanagedList {
    rows: Vec<UnmanagedRow>,
}

#[derive(Serialize)]
struct ToolList {
    tools: Vec<ToolSpec>,
}

#[derive(Serialize)]
struct ToolAnswer {
    answer: String,
}

/// The totals of all sessions. Those that cannot be parsed are left out.
fn all_totals(record: &Record) -> Result<HashMap<String, SessionTotals>, PageError> {
    let all = record.kept_as(account::TOTALS, None).map_err(failed)?;
    let parsed = all
        .into_iter()
        .filter_map(|(session, text)| Some((session, serde_json::from_str(&text).ok()?)));
    Ok(parsed.collect())
}

/// The totals over all sessions that `may_see` accepts.
fn overview(
    shared: &Shared,
    may_see: impl Fn(&str) -> bool,
    is_owner: bool,
    failures: Vec<FailedRequest>,
) -> Result<PageAnswer, PageError> {
    let record = shared.host.record();
    let totals = all_totals(record)?;
    let sessions = record.all_delivered().map_err(failed)?;
    let sessions: Vec<_> = (sessions.iter())
        .filter(|one| may_see(&one.session))
        .collect();
    let (mut sums, mut hours) = (Sums::default(), std::collections::BTreeMap::new());
    let mut unpriced_models = BTreeSet::new();
    for one in sessions.iter().filter_map(|one| totals.get(&one.session)) {
        sums.add(&one.sums);
        for HourSums { hour, sums } in &one.hours {
            let all: &mut Sums = hours.entry(*hour).or_default();
            all.add(sums);
        }
        unpriced_models.extend(one.unpriced_models.iter().cloned());
    }
    let engines = shared.host.engines();
    let report = shared.health.report(&engines.health(), is_owner);
    PageAnswer::json(&Overview {
        sessions: sessions.len(),
        totals: sums,
        hours: (hours.into_iter())
            .map(|(hour, sums)| HourSums { hour, sums })
            .collect(),
        problems: report
            .iter()
            .flat_map(|report| report.lines())
            .map(str::to_owned)
            .collect(),
        failures,
        prices_as_of: PRICES_AS_OF,
        unpriced_models,
        engine: engines.config().context.engine.clone(),
        is_observing: shared.settings().observe,
        version: env!("CARGO_PKG_VERSION"),
        started_ms: shared.started_ms,
    })
}

/// The list of sessions with their totals. The session with the latest turn comes first.
fn sessions(shared: &Shared, may_see: impl Fn(&str) -> bool) -> Result<PageAnswer, PageError> {
    let record = shared.host.record();
    let totals = all_totals(record)?;
    let none = SessionTotals::default();
    let mut follows = lineage::follows(record, None).map_err(failed)?;
    let titles = record.kept_as(TITLE, None).map_err(failed)?;
    let mut titles: HashMap<String, String> = titles.into_iter().collect();
    let all = record.all_delivered().map_err(failed)?;
    let mut sessions: Vec<SessionRow> = (all.into_iter())
        .filter(|one| may_see(&one.session))
        .map(|one| {
            let totals = totals.get(&one.session).unwrap_or(&none);
            let given = titles.remove(&one.session);
            let follows = follows.remove(&one.session);
            SessionRow {
                info: SessionInfo::new(shared, one, totals, given, follows),
                sums: totals.sums,
            }
        })
        .collect();
    sessions.sort_by_key(|one| std::cmp::Reverse(one.info.at_ms));
    PageAnswer::json(&SessionList { sessions })
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
    for message in record.conversation(id).map_err(failed)? {
        for line in formats::item_lines(&message) {
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
    PageAnswer::json(&Done {})
}

/// Pins words of a session for the user, or ends pins. They take effect with the next compaction,
/// also if the session is in use.
fn pin(host: &Host, request: &PinRequest) -> Result<PageAnswer, PageError> {
    let mut session = open_read_only(host, &request.session)?;
    let done = match request.ends {
        true => session.unpin(&request.words),
        false => session.pin(&request.words),
    };
    done.map_err(refused)?;
    PageAnswer::json(&Done {})
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
    PageAnswer::json(&Done {})
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
    PageAnswer::json(&ToolAnswer { answer })
}

/// Opens a session for reading, beside the one that may be in use. Not found if there is no such
/// session.
fn open_read_only(host: &Host, id: &str) -> Result<Session, PageError> {
    let session = host.read_only_session(id).map_err(failed)?;
    session.ok_or_else(|| not_found("session"))
}
