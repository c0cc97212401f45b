//! Keys, tokens and passwords that a program is given through its environment.

use std::path::PathBuf;

/// A file with a secret cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read {}, which the environment variable {variable} names: {source}",
    path.display()
)]
pub struct SecretError {
    variable: String,
    path: PathBuf,
    source: std::io::Error,
}

/// Reads the secret in the environment variable `name`, or in the file that the variable `name_FILE`
/// names, because container platforms mount secrets as files. White space around it does not count.
/// Returns `None` if neither variable is set, or if there is nothing in them.
///
/// # Errors
/// Returns an error if there is such a file but it cannot be read as text.
pub fn secret(name: &str) -> Result<Option<String>, SecretError> {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let file = format!("{name}_FILE");
    let text = match (env(name), env(&file)) {
        (Some(value), _) => value.into_string().ok(),
        (None, Some(path)) => {
            let path = PathBuf::from(path);
            let text = std::fs::read_to_string(&path);
            Some(text.map_err(|source| SecretError {
                variable: file,
                path,
                source,
            })?)
        }
        (None, None) => None,
    };
    let text = text.map(|text| text.trim().to_owned());
    Ok(text.filter(|text| !text.is_empty()))
}

/// Reads a secret as [`secret`] does. A file that cannot be read is logged and counts as not there.
pub fn secret_if_readable(name: &str) -> Option<String> {
    secret(name).unwrap_or_else(|error| {
        tracing::warn!("{error}");
        None
    })
}
