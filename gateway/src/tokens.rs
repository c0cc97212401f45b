//! Finds out who sends a request, by the token that it presents.
//!
//! There are two kinds of tokens. Each name under `gateway.tokens` has one, and such a tenant has
//! its own sessions. One more token is stored in the home directory. Whoever can read it may see
//! every session, because the sessions are stored there, too. A client sends its token as
//! `x-contexture-token`, or in place of the provider's key if it can send no header of its own.
//!
//! [`Tokens::caller`] does this, and removes the token from the request. What a caller may do is
//! decided by [`routes`](crate::routes).

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use contexture::GatewayToken;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use crate::headers::{self, CREDENTIALS};

/// Reads the credentials of the scheme `Basic`, with or without padding.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A name under `gateway.tokens`, with its token. Its sessions are separate from all others.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) token: String,
}

/// Who sends a request, as far as its token tells. This decides which sessions it sees, and whether
/// it may use the gateway's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It presents no valid token of the gateway's. Only possible without tenants.
    Anybody,
    Owner,
    Tenant(String),
}

impl Caller {
    /// The tenant's name. None for the owner, and for callers without a token.
    pub(crate) fn tenant(&self) -> Option<&str> {
        match self {
            Self::Tenant(name) => Some(name),
            Self::Anybody | Self::Owner => None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Tokens {
    /// The token of the home directory. None if it cannot be stored there.
    pub(crate) own: Option<GatewayToken>,
    pub(crate) tenants: Vec<Tenant>,
    /// The tokens that were valid before the configuration was read again. Clients that still send
    /// them are refused, because a provider must not learn them.
    former: Vec<String>,
}

impl Tokens {
    pub(crate) fn new(own: Option<GatewayToken>, tenants: Vec<Tenant>) -> Self {
        Self {
            own,
            tenants,
            former: Vec::new(),
        }
    }

    /// Remembers the tokens that these replace.
    pub(crate) fn remember(&mut self, old: &Self) {
        let own = old.own.as_ref().map(GatewayToken::text);
        let tenants = old.tenants.iter().map(|tenant| tenant.token.as_str());
        let before = own.into_iter().chain(tenants).map(str::to_owned);
        let mut former: BTreeSet<String> = before.chain(old.former.iter().cloned()).collect();
        former.retain(|token| self.owner_of(token.as_bytes()).is_none());
        self.former = former.into_iter().collect();
    }

    /// Finds out who sends a request. Removes tokens from the headers, so that none of them is sent
    /// to a provider. Returns None if a token is required and the request has none that is valid,
    /// and if it has only one that is not valid any more.
    pub(crate) fn caller(&self, headers: &mut HeaderMap) -> Option<Caller> {
        let (mut caller, mut is_former) = (Caller::Anybody, false);
        let token = HeaderName::from_static(headers::TOKEN);
        // The search continues after a token was found, because no token may reach a provider.
        for name in std::iter::once(token).chain(CREDENTIALS) {
            let values = headers.get_all(&name).iter();
            let Some(found) = values.filter_map(|value| self.caller_of(value)).next() else {
                continue;
            };
            headers.remove(&name);
            is_former |= found == Caller::Anybody;
            if caller == Caller::Anybody {
                caller = found;
            }
        }
        let is_open = self.tenants.is_empty() && !is_former;
        (caller != Caller::Anybody || is_open).then_some(caller)
    }

    /// Explains how a client can use the gateway's key. This is the error for a client that sent
    /// neither a token nor credentials.
    pub(crate) fn key_help(&self) -> String {
        let file = self.own.as_ref().map_or_else(
            || "gateway.token in the gateway's home directory".to_owned(),
            |own| own.path().display().to_string(),
        );
        format!(
            "this gateway adds its own key only to requests with its token: start the agent with `contexture run`, send \
             the token in {file} as `x-contexture-token` or as the API key, send an API key of your own, or set \
             `gateway.open_key: true`"
        )
    }

    /// Whose token the value of a header contains: alone, after a scheme, in a list, or as a name
    /// or password of the scheme `Basic`. None if it contains nobody's.
    fn caller_of(&self, value: &HeaderValue) -> Option<Caller> {
        let value = value.as_bytes().trim_ascii();
        // A tenant's token may have spaces and commas itself.
        let after_scheme = value.splitn(2, u8::is_ascii_whitespace).nth(1);
        let found = after_scheme.and_then(|token| self.owner_of(token.trim_ascii()));
        let found = self.owner_of(value).or(found);
        let is_between = |b: &u8| b.is_ascii_whitespace() || matches!(b, b',' | b';' | b'"');
        let pieces = || value.split(is_between).filter(|piece| !piece.is_empty());
        let encoded = pieces().zip(pieces().skip(1));
        let encoded = encoded.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic"));
        let in_basic = || {
            let mut decoded = encoded.filter_map(|(_, piece)| BASIC.decode(piece).ok());
            decoded.find_map(|pair| {
                let mut halves = pair.splitn(2, |b| *b == b':');
                halves.find_map(|half| self.owner_of(half))
            })
        };
        found
            .or_else(|| pieces().find_map(|piece| self.owner_of(piece)))
            .or_else(in_basic)
    }

    /// Whose token this is: [`Caller::Anybody`] if it is not valid any more, and None if it is
    /// nobody's.
    fn owner_of(&self, token: &[u8]) -> Option<Caller> {
        // The comparison takes the same time wherever the two differ. Otherwise the token could be
        // guessed byte by byte.
        let is = |other: &str| bool::from(other.as_bytes().ct_eq(token));
        if self.own.as_ref().is_some_and(|own| is(own.text())) {
            return Some(Caller::Owner);
        }
        if let Some(tenant) = self.tenants.iter().find(|tenant| is(&tenant.token)) {
            return Some(Caller::Tenant(tenant.name.clone()));
        }
        (self.former.iter().any(|token| is(token))).then_some(Caller::Anybody)
    }
}

/// Whether a client sent credentials for a provider. They need not be valid.
pub(crate) fn has_credentials(all: &HeaderMap) -> bool {
    let mut names = CREDENTIALS.into_iter();
    names.any(|name| headers::text(all, name.as_str()).is_some())
}
