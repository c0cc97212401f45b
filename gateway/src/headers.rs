//! Which headers pass, in both directions, and those of the gateway's own.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// What all headers of the gateway's own begin with; none of them goes upstream.
pub(crate) const OWN: &str = "x-contexture-";

/// The token of a tenant.
pub(crate) const TOKEN: &str = "x-contexture-token";
/// The session that a client asks for, and the one that an answer belongs to.
pub(crate) const SESSION: &str = "x-contexture-session";
/// The session that a new one may go on with, although its request does not show that it does.
pub(crate) const FOLLOWS: &str = "x-contexture-follows";
/// What the gateway did with a request: the name of a [`Status`](crate::unmanaged::Status).
pub(crate) const STATUS: &str = "x-contexture-status";
/// Why a request was not managed.
pub(crate) const REASON: &str = "x-contexture-reason";
/// What a compaction did before this request.
pub(crate) const COMPACTION: &str = "x-contexture-compaction";
/// How many rounds of the engine's tools an answer took, and their tokens.
pub(crate) const ROUNDS: &str = "x-contexture-hidden-rounds";
/// The tokens of all rounds of an answer.
pub(crate) const TOKENS: &str = "x-contexture-tokens";

/// Those that are about a connection and not about a message.
const HOP_BY_HOP: [HeaderName; 5] = [CONNECTION, TRANSFER_ENCODING, TE, TRAILER, UPGRADE];

fn is_hop_by_hop(name: &HeaderName, named: &[String]) -> bool {
    let text = name.as_str();
    HOP_BY_HOP.contains(name)
        || matches!(
            text,
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "proxy-authenticate"
        )
        || named.iter().any(|one| one == text)
}

/// What a `connection` header names is about the connection, too.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// The headers that go upstream. What is `read` on its way back must not come compressed.
pub(crate) fn upstream(headers: &HeaderMap, read: bool) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut passed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let stays = is_hop_by_hop(name, &named)
            || *name == HOST
            || *name == CONTENT_LENGTH
            || name.as_str() == "expect"
            || name.as_str().starts_with(OWN)
            || (read && *name == ACCEPT_ENCODING);
        if !stays {
            passed.append(name, value.clone());
        }
    }
    if read {
        passed.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    passed
}

/// Puts a key of the gateway's own in place of the client's credentials.
pub(crate) fn use_key(headers: &mut HeaderMap, key: &str, is_anthropic: bool) {
    let Ok(mut own) = HeaderValue::from_str(&match is_anthropic {
        true => key.to_owned(),
        false => format!("Bearer {key}"),
    }) else {
        return;
    };
    own.set_sensitive(true);
    headers.remove(AUTHORIZATION);
    headers.remove("x-api-key");
    match is_anthropic {
        true => headers.insert("x-api-key", own),
        false => headers.insert(AUTHORIZATION, own),
    };
}

/// The headers that go back to the client; `changed` says that the body is not the provider's.
pub(crate) fn downstream(headers: &HeaderMap, changed: bool) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut passed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let stays = is_hop_by_hop(name, &named) || (changed && *name == CONTENT_LENGTH);
        if !stays {
            passed.append(name, value.clone());
        }
    }
    passed
}

/// Sets a header of the gateway's own; text that no header takes is left out.
pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, text: &str) {
    let mut visible = String::new();
    for c in text.chars().take(400) {
        match c {
            ' '..='~' => visible.push(c),
            '→' => visible.push_str("->"),
            '…' => visible.push_str("..."),
            '–' | '—' | '−' => visible.push('-'),
            '‘' | '’' => visible.push('\''),
            '“' | '”' => visible.push('"'),
            '×' => visible.push('x'),
            '≥' => visible.push_str(">="),
            '≤' => visible.push_str("<="),
            c if c.is_whitespace() => visible.push(' '),
            _ => visible.push('?'),
        }
    }
    if let Ok(value) = HeaderValue::from_str(&visible) {
        headers.insert(name, value);
    }
}

/// The text of a header.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty()).then_some(value)
}
