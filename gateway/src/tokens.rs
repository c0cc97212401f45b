//! Who sends a request, by the token that it presents.
//!
//! There are two kinds. Each name of `gateway.tokens` has one, and sessions of its own. The other one lies in the home
//! directory, and whoever can read it may see every session, because the sessions lie there, too. A client sends its token
//! as `x-contexture-token`, or in place of the provider's key if it can send no header of its own.

use contexture::GatewayToken;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;

use crate::headers;

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The headers with clients' credentials: Azure has one of its own.
const CREDENTIALS: [HeaderName; 3] = [AUTHORIZATION, API_KEY, HeaderName::from_static("api-key")];

/// Somebody who may use the gateway.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) token: String,
}

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// It presents no token of the gateway's.
    Anybody,
    /// It has the token of the home directory.
    Owner,
    /// It has the token of this name.
    Tenant(String),
}

impl Caller {
    pub(crate) fn tenant(&self) -> Option<&str> {
        match self {
            Self::Tenant(name) => Some(name),
            Self::Anybody | Self::Owner => None,
        }
    }
}

/// All tokens of a gateway.
#[derive(Clone)]
pub(crate) struct Tokens {
    /// None if the home directory can hold none.
    pub(crate) own: Option<GatewayToken>,
    pub(crate) tenants: Vec<Tenant>,
}

impl Tokens {
    /// Finds out who sends a request, and removes tokens that stand where a provider's key would, so that none of them
    /// goes on to a provider. None if a token is needed and there is none.
    pub(crate) fn caller(&self, headers: &mut HeaderMap) -> Option<Caller> {
        let mut caller = Caller::Anybody;
        let token = HeaderName::from_static(headers::TOKEN);
        for name in std::iter::once(token).chain(CREDENTIALS) {
            let values = headers.get_all(&name).iter();
            let Some(found) = values.filter_map(|value| self.holder(value)).next() else {
                continue;
            };
            headers.remove(&name);
            if caller == Caller::Anybody {
                caller = found;
            }
        }
        (caller != Caller::Anybody || self.tenants.is_empty()).then_some(caller)
    }

    /// How a client gets the gateway's key, for one that brought neither a token nor credentials.
    pub(crate) fn way_to_a_key(&self) -> String {
        let file = self.own.as_ref().map_or_else(
            || "gateway.token in the gateway's home directory".to_owned(),
            |own| own.path().display().to_string(),
        );
        format!(
            "this gateway adds its own key only to requests with its token: start the agent by `contexture run`, or send \
             the token in {file} as `x-contexture-token` or as the API key, or send an API key of your own \
             (`gateway.open_key: true` does without)"
        )
    }

    /// Whose token a value of a header is.
    fn holder(&self, value: &HeaderValue) -> Option<Caller> {
        let value = value.to_str().ok()?.trim();
        let token = match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => value,
        };
        // A comparison takes the same time wherever the two differ.
        let is = |other: &str| bool::from(other.as_bytes().ct_eq(token.as_bytes()));
        if self.own.as_ref().is_some_and(|own| is(own.text())) {
            return Some(Caller::Owner);
        }
        let tenant = self.tenants.iter().find(|tenant| is(&tenant.token))?;
        Some(Caller::Tenant(tenant.name.clone()))
    }
}

/// Whether a client brought credentials for a provider.
pub(crate) fn has_credentials(all: &HeaderMap) -> bool {
    let mut names = CREDENTIALS.into_iter();
    names.any(|name| headers::text(all, name.as_str()).is_some())
}
