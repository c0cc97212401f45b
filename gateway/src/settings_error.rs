//! Why a gateway cannot run with a configuration.

use std::net::SocketAddr;

/// Why a gateway cannot run with a configuration. The message names the key and says how to correct
/// it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    keys: Vec<String>,
    message: String,
    /// Whether a file that the configuration names cannot be read, which may be different on another
    /// machine.
    pub(crate) is_unreadable: bool,
}

impl SettingsError {
    /// The error of a key, whose parts are separated by dots.
    pub(crate) fn at(key: &str, message: String) -> Self {
        // Only the name of a token may have dots in it, and is the last part.
        let parts = match key.starts_with("gateway.tokens.") {
            true => 3,
            false => usize::MAX,
        };
        Self {
            keys: key.splitn(parts, '.').map(str::to_owned).collect(),
            message,
            is_unreadable: false,
        }
    }

    /// The error of a file that cannot be read.
    pub(crate) fn unreadable(key: &str, message: String) -> Self {
        Self {
            is_unreadable: true,
            ..Self::at(key, message)
        }
    }

    /// The address cannot be parsed or resolved.
    pub(crate) fn address(address: &str) -> Self {
        let message = format!(
            "`{address}` is not an address to listen on: give a host and a port, such as 127.0.0.1:8787"
        );
        Self::at("gateway.listen", message)
    }

    /// Anybody who reaches the address could use the gateway.
    pub(crate) fn no_tokens(address: SocketAddr) -> Self {
        let message = format!(
            "other machines can reach {address}, but no token is configured: add a name and the environment variable \
             with its token to `gateway.tokens`, or listen on 127.0.0.1"
        );
        Self::at("gateway.listen", message)
    }

    /// A request could be from either of two names with the same token.
    pub(crate) fn same_token(first: &str, second: &str) -> Self {
        let key = format!("gateway.tokens.{second}");
        let message = format!(
            "`gateway.tokens.{first}` and `{key}` have the same token: give each name its own"
        );
        Self::at(&key, message)
    }

    /// No request can match this entry of `gateway.hosts` or `gateway.origins`.
    pub(crate) fn entry(key: &str, entry: &str) -> Self {
        let message = format!(
            "`{entry}` in `{key}` is not valid: a host is a name or address with or without a port, such as \
             gateway.internal:8080, and an origin has a scheme before it, such as https://ui.example"
        );
        Self::at(key, message)
    }

    /// The HTTP client cannot be created, for example because TLS is not available.
    pub(crate) fn client(cause: &str) -> Self {
        let message = format!(
            "cannot create the HTTP client for the providers: {cause}; check the TLS certificates of this system"
        );
        Self {
            keys: Vec::new(),
            message,
            is_unreadable: false,
        }
    }

    /// The path of the key that has to be corrected. Empty if the configuration is not the cause.
    pub fn keys(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }
}
