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

/// Why a running gateway did not read its configuration again. The text says whether to start a
/// gateway, to check the address, or to correct the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReloadError(String);

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
    let refused = |cause: String| {
        ReloadError(format!(
            "the program that listens on {address} did not reload its configuration: {cause}; check that it is a \
             gateway of this home directory"
        ))
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
            true => ReloadError(format!(
                "no gateway is running at {address}: start one with `contexture serve`"
            )),
            false => refused(error.to_string()),
        })?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let body: Value = answer.json().await.unwrap_or_default();
    match body["error"].as_str() {
        Some(cause) if status.is_server_error() => Err(ReloadError(format!(
            "the gateway at {address} keeps its last valid configuration: {cause}"
        ))),
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
