//! Finds out which session a request names, and which requests cannot be managed.
//!
//! Agents name their sessions in different headers, in Anthropic's `metadata`, or not at all.
//! [`key`] reads the first name that is there. [`Scope`] turns it into the id of a session and
//! keeps the sessions of tenants apart. [`provider_manages`] recognizes requests whose conversation
//! is stored or compacted by the provider, which the gateway must not change.
//!
//! The name is only a claim. Whether the request may continue the session is decided by
//! [`lineage`](crate::lineage).

use contexture::formats::{Format, WireBody};
use http::HeaderMap;
use serde_json::Value;

use crate::gemini;
use crate::headers::{self, SESSION};
use crate::side_call;

/// The most characters that are used of a client's name for a session, and of a subagent's id.
const MAX_NAME_CHARS: usize = 200;

/// The type of an item with which a client asks the provider to compact what stands before it.
pub(crate) const COMPACTION_TRIGGER: &str = "compaction_trigger";

/// What a request says about its session. Both fields are claims of the client, and grant no access
/// by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionKey {
    /// The client's name for it. None if the request has no name, so that only the history can
    /// tell.
    pub(crate) name: Option<String>,
    /// Whether the name belongs to one conversation at a time. With a token, a different history under
    /// it is then an edit of the same conversation.
    pub(crate) is_exact: bool,
}

/// The sessions that a request may see: those of its tenant, or those without a tenant.
///
/// A session's id begins with its tenant's name, which is only for people. The record decides who
/// owns a session ([`Record::tenant`](contexture::session::Record::tenant)), because anybody may
/// name a session `alice/work`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'t> {
    pub(crate) tenant: Option<&'t str>,
}

impl Scope<'_> {
    /// The id of the session that a client calls by this name. The status page shows it as well.
    pub(crate) fn id(&self, name: &str) -> String {
        match self.tenant {
            Some(tenant) => format!("{tenant}/{name}"),
            None => name.to_owned(),
        }
    }

    /// The key under which a session stores its conversation if a client calls it by this name. It
    /// is unambiguous, because clients' names have no control characters, and tenants' names have no
    /// slash.
    pub(crate) fn owner(&self, name: &str) -> String {
        self.key("gateway", name)
    }

    /// Whether a key under which a conversation is stored belongs to this scope.
    pub(crate) fn owns(&self, owner: &str) -> bool {
        owner.starts_with(&self.owner(""))
    }

    /// The prefix of the keys under which a session without a name stores the calls that the model
    /// made in it.
    pub(crate) fn calls(&self) -> String {
        self.key("call", "")
    }

    /// A key of this scope. The control character keeps it apart from other texts of a session.
    fn key(&self, kind: &str, name: &str) -> String {
        format!("{kind}\u{1}{}/{name}", self.tenant.unwrap_or_default())
    }
}

/// The name that the status page shows for a request that is not managed. It begins with the
/// tenant's name, even if the request names no session.
pub(crate) fn row(tenant: Option<&str>, name: Option<String>) -> Option<String> {
    match tenant {
        Some(_) => Some(Scope { tenant }.id(&name.unwrap_or_default())),
        None => name,
    }
}

/// The headers that name a session, in order. `NAME_HEADERS` takes precedence over Anthropic's
/// `metadata`, and `LATER_NAME_HEADERS` comes after it.
const NAME_HEADERS: [&str; 2] = [SESSION, "x-claude-code-session-id"];
const LATER_NAME_HEADERS: [&str; 4] = [
    "session-id", "session_id", "x-session-id", "x-session-affinity",
];

/// The value of the first of these headers that is present.
fn first_of(headers: &HeaderMap, names: &[&str]) -> Option<String> {
    let mut found = names.iter().filter_map(|name| headers::text(headers, name));
    found.next().map(str::to_owned)
}

/// The session that a request names, by the first source that has a name. A `prompt_cache_key` is
/// used last and is not exact, because several conversations may share it.
pub(crate) fn key(headers: &HeaderMap, wire: &WireBody<'_>) -> SessionKey {
    let clean = |name: String| cleaned(&name, headers);
    let exact = first_of(headers, &NAME_HEADERS)
        .and_then(clean)
        .or_else(|| in_metadata(wire).and_then(clean))
        .or_else(|| first_of(headers, &LATER_NAME_HEADERS).and_then(clean));
    let is_exact = exact.is_some();
    let cache_key = || serde_json::from_str::<String>(wire.member("prompt_cache_key")?).ok();
    SessionKey {
        name: exact.or_else(|| cache_key().and_then(clean)),
        is_exact,
    }
}

/// The session's name according to the headers alone, for a request whose body is not read. None if
/// no header names one.
pub(crate) fn name_in(headers: &HeaderMap) -> Option<String> {
    let name = first_of(headers, &NAME_HEADERS).or_else(|| first_of(headers, &LATER_NAME_HEADERS));
    name.and_then(|name| cleaned(&name, headers))
}

/// Removes control characters from a client's name for a session, limits its length, and adds the
/// id of a Claude Code subagent, which is limited as well. None if nothing of the name is left.
fn cleaned(name: &str, headers: &HeaderMap) -> Option<String> {
    // A control character would make the keys of [`Scope::owner`] ambiguous.
    let plain = |text: &str| -> String {
        let plain = text.chars().filter(|c| !c.is_control());
        plain.take(MAX_NAME_CHARS).collect()
    };
    let name = plain(name);
    // The id of a subagent alone would be the same name for subagents of different sessions.
    if name.trim().is_empty() {
        return None;
    }
    Some(match headers::text(headers, "x-claude-code-agent-id") {
        // Subagents send the session name of their parent, but have their own conversation.
        Some(agent) => format!("{name}/{}", plain(agent)),
        None => name,
    })
}

/// The session in Anthropic's `metadata.user_id`. It is either `user_…_session_UUID`, or JSON with
/// a `session_id`. None if there is neither.
fn in_metadata(wire: &WireBody<'_>) -> Option<String> {
    let metadata: Value = serde_json::from_str(wire.member("metadata")?).ok()?;
    let user = metadata.get("user_id")?.as_str()?;
    if let Ok(Value::Object(user)) = serde_json::from_str(user) {
        return user.get("session_id")?.as_str().map(str::to_owned);
    }
    let (_, session) = user.rsplit_once("_session_")?;
    (!session.is_empty()).then(|| session.to_owned())
}

/// Phrases at the beginning of conversations that agents have begun anew with a summary.
const CONTINUED: &[&str] = &[
    "This session is being continued from a previous conversation",
    "Another language model started to solve this problem",
];

/// Whether one of the first three messages is a summary that the agent made of an earlier
/// conversation.
pub(crate) fn is_continued(wire: &WireBody<'_>) -> bool {
    // The phrases need no JSON escapes, so the messages are not parsed.
    let mut first = wire.messages.iter().take(3);
    first.any(|raw| {
        let mut phrases = CONTINUED.iter();
        phrases.any(|phrase| memchr::memmem::find(raw.as_bytes(), phrase.as_bytes()).is_some())
    })
}

/// The value of a member of the body. None if it is `null` or an empty text, list or object, which
/// says the same as no member.
fn set(wire: &WireBody<'_>, name: &str) -> Option<Value> {
    let value = wire.member(name)?;
    let value: Value = serde_json::from_str(value).unwrap_or_default();
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    (!is_empty).then_some(value)
}

/// The member of a request that shows that the provider stores or manages the conversation, so that
/// the gateway cannot. None if the request can be managed. Several answers at once, `n` or
/// `candidateCount`, cannot be managed either.
pub(crate) fn provider_manages(wire: &WireBody<'_>) -> Option<&'static str> {
    if wire.format == Format::Gemini {
        let is_cached = !gemini::member(wire, "cachedContent").is_null();
        let choices = gemini::field(&gemini::options(wire), "candidateCount").as_u64();
        return match is_cached {
            // The provider holds the beginning of the prompt.
            true => Some("cachedContent"),
            false => choices.is_some_and(|n| n > 1).then_some("candidateCount"),
        };
    }
    let members = [
        "previous_response_id",
        "conversation",
        "thread",
        "compact_threshold",
    ];
    if let Some(member) = members.into_iter().find(|name| set(wire, name).is_some()) {
        return Some(member);
    }
    if let Some(management) = set(wire, "context_management") {
        let edits = management.get("edits").and_then(Value::as_array);
        // Clearing thinking blocks does not interfere with the gateway.
        let is_thinking = |edit: &Value| {
            let kind = edit.get("type").and_then(Value::as_str);
            kind.is_some_and(|kind| kind.starts_with("clear_thinking"))
        };
        if !edits.is_some_and(|edits| edits.iter().all(is_thinking)) {
            return Some("context_management");
        }
    }
    // The request asks the provider for a compaction.
    let is_trigger = |raw: &&str| {
        memchr::memmem::find(raw.as_bytes(), COMPACTION_TRIGGER.as_bytes()).is_some()
            && serde_json::from_str::<Value>(raw)
                .is_ok_and(|item| item["type"] == COMPACTION_TRIGGER)
    };
    let said = side_call::before_instructions(&wire.messages);
    if said.last().is_some_and(is_trigger) {
        return Some(COMPACTION_TRIGGER);
    }
    let choices = wire.member("n").and_then(|n| n.parse::<u64>().ok());
    choices.is_some_and(|n| n > 1).then_some("n")
}
