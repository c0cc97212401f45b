//! What a command writes: to stdout, or to a file that is there whole or not at all.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::CliError;
use crate::terminal;

/// The stdout that the command was started with, where it is kept for the result.
static STDOUT: OnceLock<File> = OnceLock::new();

/// Keeps stdout for the result: whatever else in this process writes to it, such as a plugin, writes to stderr
/// from now on. Where that is not possible, all share it.
pub(crate) fn keep_stdout() {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;

        let Ok(kept) = std::io::stdout().as_fd().try_clone_to_owned() else {
            return;
        };
        if rustix::stdio::dup2_stdout(std::io::stderr()).is_ok() {
            // Set once, at the start of the command.
            let _ = STDOUT.set(kept.into());
        }
    }
}

/// The stdout that the command was started with, for a program that it runs; none where it is the process's still.
pub(crate) fn stdout() -> Option<File> {
    STDOUT.get().and_then(|stdout| stdout.try_clone().ok())
}

/// Whether the result goes to a terminal.
pub(crate) fn is_terminal() -> bool {
    match STDOUT.get() {
        Some(stdout) => stdout.is_terminal(),
        None => std::io::stdout().is_terminal(),
    }
}

/// Writes text for a person, or JSON, to stdout. Control characters are shown, in JSON as its escapes.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_bytes(terminal::visible(text).as_bytes())
}

/// Writes text for a person with colours, of which all else is [`terminal::visible`].
pub(crate) fn print_styled(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let written = match STDOUT.get() {
        Some(mut stdout) => stdout.write_all(bytes),
        None => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
    };
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

/// Where a file goes that is named now and written later: a plugin may change the working directory.
pub(crate) fn destination(path: PathBuf) -> std::io::Result<PathBuf> {
    match path.as_os_str() == "-" {
        true => Ok(path),
        false => std::path::absolute(path),
    }
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

/// Writes what came of a file beside it, whole, under a name that nothing there has. Gives that name.
pub(crate) fn write_beside(of: &Path, ending: &str, text: &str) -> Result<PathBuf, CliError> {
    let stem = of.file_stem().unwrap_or_default().to_string_lossy();
    let mut path = of.with_file_name(format!("{stem}.compacted.{ending}"));
    let failed = |path: &Path, source| CliError::Write {
        path: path.to_owned(),
        source,
    };
    let mut file = hidden_beside(of).map_err(|source| failed(&path, source))?;
    let written = file.write_all(text.as_bytes());
    written
        .and_then(|()| file.as_file().sync_all())
        .map_err(|source| failed(&path, source))?;
    let mut number = 1;
    loop {
        match file.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(taken) if taken.error.kind() == ErrorKind::AlreadyExists => {
                file = taken.file;
                number += 1;
                path.set_file_name(format!("{stem}.compacted-{number}.{ending}"));
            }
            Err(error) => return Err(failed(&path, error.error)),
        }
    }
}

/// Puts a file in its place whole: `fill` writes it under another name in the same folder. It has these
/// permissions, or is its owner's alone.
pub(crate) fn replace_file<T>(
    target: &Path,
    permissions: Option<std::fs::Permissions>,
    fill: impl FnOnce(&mut std::fs::File) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let mut file = hidden_beside(target)?;
    let filled = fill(file.as_file_mut())?;
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(filled)
}

/// A file that its owner alone may read, beside this one.
fn hidden_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".contexture-")
        .tempfile_in(folder)
}
