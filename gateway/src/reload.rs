//! Asks a gateway that runs in another process to read its configuration again.
//!
//! On Unix, SIGHUP does the same, but the sender has to know the process. [`reload_running`] needs
//! only the address and the token of the home directory, and works on every system. `contexture
//! plugins dev` uses it after each build, so that the gateway opens its sessions with the new
//! library.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::access::is_loopback;
use crate::headers;
use crate::page::{PATH, RELOAD};

/// How long a gateway may take to answer. It loads plugins and opens engines first.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a running gateway did not read its configuration again. The variant tells who has to act:
/// start a gateway, check the address, or correct the configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// Nothing listens at the address, which the variant holds. Start a gateway, or check the
    /// address in the configuration.
    #[error("no gateway is running at {0}: start one with `contexture serve`")]
    NotRunning(String),
    /// The program that listens there is not a gateway of this home directory, or did not answer.
    #[error(
        "the program that listens on {address} did not reload its configuration: {cause}; check that it is a gateway \
         of this home directory"
    )]
    Refused {
        /// The address as the caller gave it, with host and port.
        address: String,
        /// The HTTP status of the answer, or how the connection ended if there was no answer.
        cause: String,
    },
    /// The configuration or a plugin cannot be used. The gateway keeps the last valid
    /// configuration.
    #[error("the gateway at {address} keeps its last valid configuration: {cause}")]
    Failed {
        /// The address as the caller gave it, with host and port.
        address: String,
        /// The gateway's own error message, which says what is wrong with the configuration or the
        /// plugin.
        cause: String,
    },
}

/// Asks the gateway at `url` to read its configuration and plugins again, and waits until it has
/// done so. `token` is the one of its home directory
/// ([`Host::gateway_token`](contexture::Host::gateway_token)), and `url` is usually
/// [`gateway.url()`](contexture::config::Gateway::url).
///
/// The certificate of a gateway on this machine is not checked, because it names another host. The
/// loopback address protects the token just as it does without TLS.
///
/// # Errors
/// No gateway runs there, it refuses the token, or the configuration cannot be used.
pub async fn reload_running(url: &str, token: &str) -> Result<(), ReloadError> {
    let (_, address) = url.split_once("://").unwrap_or(("", url));
    let named = address.to_owned();
    let refused = |cause: String| ReloadError::Refused {
        address: named.clone(),
        cause,
    };
    // A proxy of the environment is for other machines, and would see the token.
    let client = reqwest::Client::builder()
        .no_proxy()
        .danger_accept_invalid_certs(is_here(address))
        .timeout(RELOAD_TIMEOUT)
        .build();
    let client = client.map_err(|error| refused(error.to_string()))?;
    let request = client
        .post(format!("{url}{PATH}{RELOAD}"))
        .header(headers::TOKEN, token)
        .json(&Value::Null);
    let answer = request
        .send()
        .await
        .map_err(|error| match error.is_connect() {
            true => ReloadError::NotRunning(address.to_owned()),
            false => refused(error.to_string()),
        })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let body: Value = answer.json().await.unwrap_or_default();
    match body["error"].as_str() {
        Some(cause) if status.is_server_error() => Err(ReloadError::Failed {
            address: named,
            cause: cause.to_owned(),
        }),
        _ => Err(refused(format!("it answered {status}"))),
    }
}

/// Whether an address with a port is one of this machine.
fn is_here(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => is_loopback(address) || address.ip().is_unspecified(),
        Err(_) => address
            .rsplit_once(':')
            .is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost")),
    }
}
