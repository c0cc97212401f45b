//! Decides which headers pass in both directions, and defines the gateway's own.
//!
//! [`upstream`] returns the headers for the provider and [`downstream`] those for the client.
//! Headers about the connection are dropped in both directions. The gateway's own never reach a
//! provider, and none comes from one, nor does a provider say which web pages may read an answer. All
//! other headers pass unchanged.
//!
//! The gateway's own headers begin with `x-contexture-`. A client sends its token and the session's
//! name, and an answer says what became of the request. [`set`] writes them in a form that every
//! HTTP client accepts. Whose credentials a request has is found out by
//! [`tokens`](crate::tokens).

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// The prefix of all headers of the gateway's own. None of them is sent to a provider, so a token
/// cannot leak that way.
pub(crate) const OWN: &str = "x-contexture-";

/// The token of a tenant, or of the home directory.
pub(crate) const TOKEN: &str = "x-contexture-token";
/// The session that a client names in a request, and the one that an answer belongs to.
pub(crate) const SESSION: &str = "x-contexture-session";
/// The session that a new one may continue, although its request does not prove it.
pub(crate) const FOLLOWS: &str = "x-contexture-follows";
/// Words that a client pins with a request, see [`contexture::Session::pin`].
pub(crate) const PIN: &str = "x-contexture-pin";
/// Words whose pin a client ends with a request.
pub(crate) const UNPIN: &str = "x-contexture-unpin";
/// What the gateway did with a request: the name of a [`Status`](crate::unmanaged::Status).
pub(crate) const STATUS: &str = "x-contexture-status";
/// The id of a request in the log: the client's `x-request-id`, or one of the gateway's own.
pub(crate) const REQUEST: &str = "x-contexture-request";
/// Why a request was not managed: a keyword, and usually an explanation.
pub(crate) const REASON: &str = "x-contexture-reason";
/// The outcome of a compaction before this request, and the engine's reason.
pub(crate) const COMPACTION: &str = "x-contexture-compaction";
/// How many hidden rounds an answer took. A trailer if the answer is a stream.
pub(crate) const ROUNDS: &str = "x-contexture-hidden-rounds";
/// The input and output tokens of all rounds of an answer, hidden ones included. A trailer if the
/// answer is a stream.
pub(crate) const TOKENS: &str = "x-contexture-tokens";

/// The header of Anthropic's API keys.
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The header of Azure's API keys.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("api-key");
/// The header of Google's API keys.
pub(crate) const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
/// The headers in which clients send credentials.
pub(crate) const CREDENTIALS: [HeaderName; 4] = [AUTHORIZATION, X_API_KEY, API_KEY, GOOGLE_KEY];

/// Headers that are about a connection and not about a message. HTTP forbids passing them on, and
/// the gateway's connections have their own.
const HOP_BY_HOP: [HeaderName; 5] = [CONNECTION, TRANSFER_ENCODING, TE, TRAILER, UPGRADE];

/// Whether a header is about the connection. `named` are those that the `connection` header lists.
fn is_hop_by_hop(name: &HeaderName, named: &[String]) -> bool {
    let text = name.as_str();
    HOP_BY_HOP.contains(name)
        || matches!(
            text,
            "keep-alive" | "proxy-connection" | "proxy-authorization" | "proxy-authenticate"
        )
        || named.iter().any(|one| one == text)
}

/// The names that the `connection` headers list, in lower case. Those headers are about the
/// connection, too.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(CONNECTION).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// The values of all headers of this name that are UTF-8. Not only ASCII, because words that are
/// pinned are in any language.
pub(crate) fn texts(headers: &HeaderMap, name: &str) -> Vec<String> {
    let values = headers.get_all(name).into_iter();
    let texts = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
    texts.map(str::to_owned).collect()
}

/// The headers for the provider. If the gateway will `read` the answer, it asks the provider not to
/// compress it.
pub(crate) fn upstream(headers: &HeaderMap, read: bool) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut passed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let stays = is_hop_by_hop(name, &named)
            || *name == HOST
            // The HTTP client sets the host and the length of the body that is really sent.
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

/// Replaces the client's credentials with the gateway's own key, in the provider's header. If the
/// key is not a valid header value, nothing is changed.
pub(crate) fn use_key(headers: &mut HeaderMap, key: &str, header: HeaderName) {
    let scheme = if header == AUTHORIZATION {
        "Bearer "
    } else {
        ""
    };
    let Ok(mut own) = HeaderValue::from_str(&format!("{scheme}{key}")) else {
        return;
    };
    // This keeps the key out of debug output.
    own.set_sensitive(true);
    // The client may have used any of them, whatever the provider expects.
    for credentials in CREDENTIALS {
        headers.remove(credentials);
    }
    headers.insert(header, own);
}

/// The headers for the client. If the body is not the provider's own (`changed`), its length is
/// left out.
pub(crate) fn downstream(headers: &HeaderMap, changed: bool) -> HeaderMap {
    let named = named_by_connection(headers);
    let mut passed = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_gateways =
            name.as_str().starts_with(OWN) || name.as_str().starts_with("access-control-");
        let stays = is_hop_by_hop(name, &named) || (changed && *name == CONTENT_LENGTH);
        if !stays && !is_gateways {
            passed.append(name, value.clone());
        }
    }
    passed
}

/// Sets a header of the gateway's own. Common typographic characters are replaced with ASCII, all
/// other characters beyond ASCII with `?`. At most 400 characters are kept.
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

/// The trimmed text of a header. None if the header is missing, empty, or not text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty()).then_some(value)
}
