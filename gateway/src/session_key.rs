//! Which session a request belongs to, as far as it says so itself, and which requests belong to none.

use contexture::formats::WireBody;
use http::HeaderMap;
use serde_json::Value;

use crate::headers::{self, SESSION};

/// The most of a client's own name for a session.
const LONGEST: usize = 200;

/// What a request says of its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// What it is called; none where only the history tells.
    pub(crate) name: Option<String>,
    /// Whether one conversation at a time goes by the name, so that another history under it is an edit of the same.
    pub(crate) is_exact: bool,
}

/// Whose sessions a request may have anything to do with: its tenant's, or those of nobody in particular.
///
/// A session's id begins with its tenant's name, so that a person can tell. What decides is what the record has of the
/// session ([`Record::tenant`](contexture::session::Record::tenant)), because anybody may name a session `alice/work`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'t> {
    pub(crate) tenant: Option<&'t str>,
}

impl Scope<'_> {
    /// The id of the session that a client calls so, and what the status page calls it.
    pub(crate) fn id(&self, name: &str) -> String {
        match self.tenant {
            Some(tenant) => format!("{tenant}/{name}"),
            None => name.to_owned(),
        }
    }

    /// What conversations of this name are kept under. No name of a client's has a control character in it, and no
    /// tenant's has a `/`.
    pub(crate) fn owner(&self, name: &str) -> String {
        self.owners() + name
    }

    /// Whether conversations that are kept under this are in the scope.
    pub(crate) fn owns(&self, owner: &str) -> bool {
        owner.starts_with(&self.owners())
    }

    fn owners(&self) -> String {
        match self.tenant {
            Some(tenant) => format!("gateway\u{1}{tenant}/"),
            None => "gateway\u{1}/".to_owned(),
        }
    }
}

/// What the status page calls the session of a request that is not managed: in the tenant's scope, also if it has no name.
pub(crate) fn row(tenant: Option<&str>, name: Option<String>) -> Option<String> {
    match tenant {
        Some(_) => Some(Scope { tenant }.id(&name.unwrap_or_default())),
        None => name,
    }
}

/// The headers that name a session. `FIRST` takes precedence over Anthropic's `metadata`, and `THEN` comes after it.
const FIRST: [&str; 2] = [SESSION, "x-claude-code-session-id"];
const THEN: [&str; 4] = [
    "session-id",
    "session_id",
    "x-session-id",
    "x-session-affinity",
];

fn first_of(headers: &HeaderMap, names: &[&str]) -> Option<String> {
    let mut found = names.iter().filter_map(|name| headers::text(headers, name));
    found.next().map(str::to_owned)
}

/// The name of a request's session, by the first that is there.
pub(crate) fn key(headers: &HeaderMap, wire: &WireBody<'_>) -> Key {
    let exact = first_of(headers, &FIRST)
        .or_else(|| in_metadata(wire))
        .or_else(|| first_of(headers, &THEN));
    let is_exact = exact.is_some();
    let cache_key = || serde_json::from_str::<String>(wire.member("prompt_cache_key")?).ok();
    Key {
        name: exact
            .or_else(cache_key)
            .and_then(|name| cleaned(&name, headers)),
        is_exact,
    }
}

/// The session's name according to the headers alone, for a request whose body is not read.
pub(crate) fn name_in(headers: &HeaderMap) -> Option<String> {
    let name = first_of(headers, &FIRST).or_else(|| first_of(headers, &THEN));
    name.and_then(|name| cleaned(&name, headers))
}

/// The client's name for a session, cleaned up. `None` if nothing is left of it.
fn cleaned(name: &str, headers: &HeaderMap) -> Option<String> {
    let plain = name.chars().filter(|c| !c.is_control()).take(LONGEST);
    let name: String = plain.collect();
    let name = match headers::text(headers, "x-claude-code-agent-id") {
        Some(agent) => format!("{name}/{agent}"),
        None => name,
    };
    (!name.trim().is_empty()).then_some(name)
}

/// The session in Anthropic's `metadata.user_id`: `user_…_session_UUID`, or JSON with a `session_id`.
fn in_metadata(wire: &WireBody<'_>) -> Option<String> {
    let metadata: Value = serde_json::from_str(wire.member("metadata")?).ok()?;
    let user = metadata.get("user_id")?.as_str()?;
    if let Ok(Value::Object(user)) = serde_json::from_str(user) {
        return user.get("session_id")?.as_str().map(str::to_owned);
    }
    let (_, session) = user.rsplit_once("_session_")?;
    (!session.is_empty()).then(|| session.to_owned())
}

/// How conversations begin that agents have begun anew with a summary of their own.
const CONTINUED: &[&str] = &[
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem",
];

/// Whether the text of a JSON value holds one of these; none of them needs an escape.
fn holds(raw: &str, texts: &[&str]) -> bool {
    texts
        .iter()
        .any(|text| memchr::memmem::find(raw.as_bytes(), text.as_bytes()).is_some())
}

/// Whether a conversation begins with a summary that its agent made.
pub(crate) fn is_continued(wire: &WireBody<'_>) -> bool {
    let first = wire.messages.iter().take(3);
    first.copied().any(|first| holds(first, CONTINUED))
}

/// Why a request cannot be managed: the provider keeps or manages the conversation itself.
pub(crate) fn provider_manages(wire: &WireBody<'_>) -> Option<&'static str> {
    let is_set = |name: &str| wire.member(name).is_some_and(|value| value != "null");
    if is_set("previous_response_id") {
        return Some("previous_response_id");
    }
    if is_set("conversation") {
        return Some("conversation");
    }
    if is_set("compact_threshold") {
        return Some("compact_threshold");
    }
    if let Some(management) = wire
        .member("context_management")
        .filter(|value| *value != "null")
    {
        let management: Value = serde_json::from_str(management).unwrap_or_default();
        let edits = management.get("edits").and_then(Value::as_array);
        // What becomes of thinking is the provider's business in any case.
        let is_thinking = |edit: &Value| {
            let kind = edit.get("type").and_then(Value::as_str);
            kind.is_some_and(|kind| kind.starts_with("clear_thinking"))
        };
        if !edits.is_some_and(|edits| edits.iter().all(is_thinking)) {
            return Some("context_management");
        }
    }
    // It is asked for one.
    let is_trigger = |raw: &&str| {
        memchr::memmem::find(raw.as_bytes(), b"compaction_trigger").is_some()
            && serde_json::from_str::<Value>(raw)
                .is_ok_and(|item| item["type"] == "compaction_trigger")
    };
    if wire.messages.last().is_some_and(is_trigger) {
        return Some("compaction_trigger");
    }
    let choices = wire.member("n").and_then(|n| n.parse::<u64>().ok());
    choices.is_some_and(|n| n > 1).then_some("n")
}
