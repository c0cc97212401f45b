//! What a command writes: to stdout, or to a file that is there whole or not at all.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::CliError;

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => CliError::ReaderGone,
        _ => CliError::Stdout(error),
    })
}

/// Writes JSON with line breaks to stdout.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    print(&pretty(value))
}

/// JSON with line breaks, and one at the end.
pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    // What is shown here has string keys alone, so it always has a JSON form.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Writes a file by way of another beside it, so that a reader, or a crash, never meets half of it. A
/// link stays a link, permissions stay, and what is no file (a pipe, a device) is written to directly.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |source| CliError::Write {
        path: path.to_owned(),
        source,
    };
    let there = match std::fs::metadata(path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(failed);
    }
    let target = match &there {
        Some(_) => std::fs::canonicalize(path).map_err(failed)?,
        None => path.to_owned(),
    };
    replace_file(&target, there.map(|there| there.permissions()), |file| {
        file.write_all(text.as_bytes())
    })
    .map_err(failed)
}

/// Puts a file in its place whole: `fill` writes it under another name in the same folder.
pub(crate) fn replace_file<T>(
    target: &Path,
    permissions: Option<std::fs::Permissions>,
    fill: impl FnOnce(&mut std::fs::File) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".contexture-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // As any new file: what the umask leaves of it.
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.tempfile_in(folder)?;
    let filled = fill(file.as_file_mut())?;
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(filled)
}
