//! Which session a request belongs to, as far as it says so itself, and which requests belong to none.

use contexture::formats::WireBody;
use http::HeaderMap;
use serde_json::Value;

use crate::api::Api;
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

/// The name of a request's session, by the first that is there.
pub(crate) fn key(headers: &HeaderMap, wire: &WireBody<'_>) -> Key {
    let exact = headers::text(headers, SESSION)
        .map(str::to_owned)
        .or_else(|| headers::text(headers, "x-claude-code-session-id").map(str::to_owned))
        .or_else(|| in_metadata(wire))
        .or_else(|| {
            [
                "session-id",
                "session_id",
                "x-session-id",
                "x-session-affinity",
            ]
            .iter()
            .find_map(|name| headers::text(headers, name))
            .map(str::to_owned)
        });
    let is_exact = exact.is_some();
    let cache_key = || serde_json::from_str::<String>(wire.member("prompt_cache_key")?).ok();
    let name = exact.or_else(cache_key).map(|name| {
        let name: String = name
            .chars()
            .filter(|c| !c.is_control())
            .take(LONGEST)
            .collect();
        match headers::text(headers, "x-claude-code-agent-id") {
            Some(agent) => format!("{name}/{agent}"),
            None => name,
        }
    });
    Key {
        name: name.filter(|name| !name.trim().is_empty()),
        is_exact,
    }
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

/// How agents begin the request by which they have their own conversation summarised.
const SUMMARISING: &[&str] = &[
    "Your task is to create a detailed summary of the conversation so far",
    "You are performing a CONTEXT CHECKPOINT COMPACTION",
    "Provide a detailed prompt for continuing our conversation above",
];

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

/// Whether a request is one that agents make beside their conversation (a title, a quota, a topic, a summary of their
/// own): it goes through as it is, and is no part of it.
pub(crate) fn is_side_call(api: Api, headers: &HeaderMap, wire: &WireBody<'_>) -> bool {
    let is_limited = wire.member("max_tokens").is_some_and(|most| most == "1");
    let last = wire.messages.last().copied().unwrap_or_default();
    if is_limited || holds(last, SUMMARISING) {
        return true;
    }
    // Agents that offer tools in their conversation do not in what stands beside it.
    let has_tools = wire.tools.is_some_and(|tools| tools.trim() != "[]");
    let works_with_tools = [
        "x-claude-code-session-id",
        "session-id",
        "session_id",
        "x-session-id",
        "x-session-affinity",
    ];
    let is_agent = works_with_tools
        .iter()
        .any(|name| headers.contains_key(*name))
        || (api == Api::Messages && in_metadata(wire).is_some());
    is_agent && !has_tools
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
