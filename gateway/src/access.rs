//! Decides which requests are served at all, before anything else looks at them.
//!
//! A browser lets every web page send requests to this machine, in two ways. [`Access::admit`]
//! prevents both:
//!
//! - A page may use a host name of its own that resolves to this machine, and could then read the
//!   answers (DNS rebinding). Such a request has a `Host` header that is not the gateway's.
//! - A page may send requests to the gateway's real address. It cannot read the answer, but the
//!   request has its effect. Such a request has an `Origin` or `Sec-Fetch-Site` header that says
//!   so.
//!
//! Programs other than browsers send neither of these two headers. What a caller may do beyond that
//! depends on its token, see [`Tokens`](crate::tokens::Tokens).

use std::net::{IpAddr, SocketAddr};

use contexture::config;
use contexture_engine_api::printable;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::{Uri, uri::Authority};

use crate::settings_error::SettingsError;

/// The schemes whose origins belong to programs on this machine, such as VS Code's webviews. No web
/// page has one of them.
const APP_SCHEMES: [&str; 4] = ["app", "tauri", "vscode-file", "vscode-webview"];

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused: a keyword for the metrics, and an explanation for the client.
pub(crate) type AccessRefusal = (&'static str, String);

/// The additional host names and origins that requests may have, from `gateway.hosts` and
/// `gateway.origins`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Access {
    /// Reads the host names and origins of a configuration.
    ///
    /// # Errors
    /// An entry is neither a host name nor an origin.
    pub(crate) fn of(gateway: &config::Gateway) -> Result<Self, SettingsError> {
        match Self::wrong_entries(gateway).next() {
            Some(error) => Err(error),
            None => Ok(Self {
                hosts: gateway.hosts.clone(),
                origins: gateway.origins.clone(),
            }),
        }
    }

    /// The entries of a configuration that are neither a host name nor an origin.
    pub(crate) fn wrong_entries(gateway: &config::Gateway) -> impl Iterator<Item = SettingsError> {
        let is_wrong = |host: &&String| host_name(host).is_none();
        let hosts = gateway.hosts.iter().filter(is_wrong);
        let is_wrong = |origin: &&String| {
            let (scheme, host) = origin.split_once("://").unwrap_or_default();
            scheme.is_empty() || (scheme != "file" && host_name(host).is_none())
        };
        let origins = gateway.origins.iter().filter(is_wrong);
        (hosts.map(|host| SettingsError::entry("gateway.hosts", host)))
            .chain(origins.map(|origin| SettingsError::entry("gateway.origins", origin)))
    }

    /// Whether a gateway that listens on `address` checks the host of a request. A gateway for other
    /// machines cannot know the names by which they reach it, unless they are configured.
    pub(crate) fn checks_hosts(&self, address: SocketAddr) -> bool {
        is_loopback(address) || !self.hosts.is_empty()
    }

    /// Decides whether a gateway that listens on `address` serves a request. Returns the origin
    /// that may read the answer, or None if the request does not come from a page of another
    /// origin.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(crate) fn admit(
        &self,
        address: SocketAddr,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, AccessRefusal> {
        let host = self.host(address, uri, headers)?;
        self.origin(host, headers)
    }

    /// The host that a request names in its `Host` header or its target. If both name one, both are
    /// checked. If other machines can reach the gateway and no names are configured, every host is
    /// allowed.
    ///
    /// # Errors
    /// The host is not the gateway's, or there is not exactly one `Host` header.
    fn host<'r>(
        &self,
        address: SocketAddr,
        uri: &'r Uri,
        headers: &'r HeaderMap,
    ) -> Result<&'r str, AccessRefusal> {
        let mut named = headers.get_all(HOST).iter();
        let named = match (named.next(), named.next()) {
            (Some(host), None) => host.to_str().unwrap_or_default().trim(),
            _ => "",
        };
        let is_checked = self.checks_hosts(address);
        let target = uri.authority().map(Authority::as_str);
        let all = [Some(named), target];
        let wrong = all
            .into_iter()
            .flatten()
            .find(|host| !self.is_own(host, address));
        match wrong.filter(|_| is_checked) {
            None => Ok(target.unwrap_or(named)),
            Some(wrong) => {
                let what = match wrong {
                    "" => "the request does not have exactly one Host header".to_owned(),
                    wrong => format!(
                        "the host {} does not belong to this gateway",
                        shortened(wrong)
                    ),
                };
                let message = format!(
                    "{what}: use {address}, or add the name that clients use to `gateway.hosts`"
                );
                Err(("host", message))
            }
        }
    }

    /// Whether a host is this gateway: `localhost`, an address of this machine, or a configured
    /// name. The port does not matter.
    fn is_own(&self, host: &str, address: SocketAddr) -> bool {
        let Some(name) = host_name(host) else {
            return false;
        };
        let is_named =
            |own: &String| own.eq_ignore_ascii_case(host) || own.eq_ignore_ascii_case(name);
        let ip = name.trim_start_matches('[').trim_end_matches(']');
        let is_here = match ip.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            // A literal address cannot be rebound by DNS. Its port may belong to a tunnel that ends
            // here.
            Ok(ip) => ip.is_loopback() || ip == address.ip() || address.ip().is_unspecified(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        };
        is_here || self.hosts.iter().any(is_named)
    }

    /// Checks the `Origin` and `Sec-Fetch-Site` headers. Returns the origin if it is another one
    /// that may use the gateway.
    ///
    /// # Errors
    /// The request is from a page of another site.
    fn origin(
        &self,
        host: &str,
        headers: &HeaderMap,
    ) -> Result<Option<HeaderValue>, AccessRefusal> {
        let refused = |what: String| {
            let message = format!(
                "{what}, and pages of other sites may not use this gateway: to allow a page, add its origin to \
                 `gateway.origins`"
            );
            Err(("origin", message))
        };
        let mut origins = headers.get_all(ORIGIN).iter();
        if let Some(value) = origins.next() {
            let origin = value.to_str().unwrap_or_default();
            let is_one = origins.next().is_none();
            if is_one && self.is_allowed(origin) {
                return Ok(Some(value.clone()));
            }
            let own = origin.strip_prefix("http://");
            let own = own.or_else(|| origin.strip_prefix("https://"));
            if !is_one || !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
                return refused(format!("the request comes from {}", shortened(origin)));
            }
        }
        // Requests for images, scripts and links have no origin, but browsers still mark their
        // site.
        let mut sites = headers.get_all(FETCH_SITE).iter();
        match sites.find(|site| !matches!(site.as_bytes(), b"same-origin" | b"none")) {
            Some(_) => refused("the request comes from a page of another site".to_owned()),
            None => Ok(None),
        }
    }

    /// Whether an origin belongs to a local program or is configured.
    fn is_allowed(&self, origin: &str) -> bool {
        let scheme = origin.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| APP_SCHEMES.contains(&scheme))
            || (self.origins.iter()).any(|own| own.eq_ignore_ascii_case(origin))
    }
}

/// Whether only this machine can reach an address. IPv4 addresses in IPv6 notation count as well.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// The name or address in a `Host` header, without the port. An IPv6 address keeps its brackets.
/// None if the header has another form, so that nothing ambiguous is compared.
fn host_name(text: &str) -> Option<&str> {
    let end = text.rfind(']').map_or(0, |at| at + 1);
    let (name, port) = match text.get(end..)?.rfind(':') {
        Some(at) => (text.get(..end + at)?, Some(text.get(end + at + 1..)?)),
        None => (text, None),
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let is_name = match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(ip) => ip.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    (is_name && !name.is_empty() && port.is_none_or(is_port)).then_some(name)
}

/// Quotes a stranger's text for a message, with at most 80 characters.
fn shortened(text: &str) -> String {
    format!("`{}`", printable(text, 80))
}

#[cfg(test)]
mod tests;
