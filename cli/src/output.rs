//! Writes the result of a command to stdout, or to a file that is either complete or not there at
//! all.
//!
//! [`keep_stdout`] runs first. It keeps stdout for the result and sends everything else that writes
//! to it, such as a plugin, to stderr. After that, [`print()`] and its variants write to the kept
//! stdout. A closed pipe ends the command without an error message.
//!
//! [`write_file`] replaces a file in one step. [`write_beside`] finds a free name beside another
//! file, and [`replace_file`] is the building block that both other modules and this one use.
//! Messages for people are not results and go to stderr by way of `terminal`.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::CliError;
use crate::terminal;

/// The stdout that the command was started with, if it could be kept for the result.
static STDOUT: OnceLock<File> = OnceLock::new();

/// Keeps stdout for the result. Whatever else in this process writes to stdout, such as a plugin,
/// writes to stderr from now on. If that is not possible, all of them share stdout.
pub(crate) fn keep_stdout() {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;

        let Ok(kept) = std::io::stdout().as_fd().try_clone_to_owned() else {
            return;
        };
        if rustix::stdio::dup2_stdout(std::io::stderr()).is_ok() {
            // This is called once, at the start of the command, so the value is not set yet.
            let _ = STDOUT.set(kept.into());
        }
    }
}

/// Returns the stdout that the command was started with, for a program that it runs. None if it was
/// not kept, so that the process still has it.
pub(crate) fn stdout() -> Option<File> {
    STDOUT.get().and_then(|stdout| stdout.try_clone().ok())
}

/// Returns whether the result goes to a terminal. It decides on colours and on whether a large
/// result is printed at all.
pub(crate) fn is_terminal() -> bool {
    match STDOUT.get() {
        Some(stdout) => stdout.is_terminal(),
        None => std::io::stdout().is_terminal(),
    }
}

/// Writes text for a person, or JSON, to stdout. Control characters are replaced by visible
/// escapes, which in JSON are its own.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_bytes(terminal::visible(text).as_bytes())
}

/// Writes text with colours to stdout. Everything else in it must be [`terminal::visible`] already.
pub(crate) fn print_styled(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout unchanged. Fails with [`CliError::ReaderGone`] if the reader has closed
/// the pipe, which the command does not report as an error.
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

/// Writes JSON with line breaks to stdout, for programs and people alike.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    print(&pretty(value))
}

/// Returns JSON with line breaks and a line break at its end.
pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    // All values that are shown have text as keys, so they always have a JSON form.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Returns the absolute path of a file that is named now and written later. A plugin may change the
/// working directory in between. `-` stays as it is.
pub(crate) fn destination(path: PathBuf) -> std::io::Result<PathBuf> {
    match path.as_os_str() == "-" {
        true => Ok(path),
        false => std::path::absolute(path),
    }
}

/// Writes a file by way of another one beside it, so that a reader never sees half of it, even
/// after a crash. A link stays a link and permissions are kept. Something that is not a file, such
/// as a pipe or a device, is written to directly.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = CliError::write(path);
    let there = match std::fs::metadata(path) {
        Ok(there) => Some(there),
        // Renaming a file over the link would lose it.
        Err(_) if is_dangling(path) => {
            let why = "it is a link to a file that does not exist";
            return Err(failed(std::io::Error::new(ErrorKind::NotFound, why)));
        }
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

/// Returns whether this is a link to a file that does not exist.
pub(crate) fn is_dangling(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

/// Writes text to a new file beside `of` and returns its path. The name is that of the file with
/// `.compacted` and, if such a file exists already, a number.
pub(crate) fn write_beside(of: &Path, ending: &str, text: &str) -> Result<PathBuf, CliError> {
    let stem = of.file_stem().unwrap_or_default().to_string_lossy();
    let mut path = of.with_file_name(format!("{stem}.compacted.{ending}"));
    let mut file = hidden_beside(of).map_err(CliError::write(&path))?;
    let written = file.write_all(text.as_bytes());
    written
        .and_then(|()| file.as_file().sync_all())
        .map_err(CliError::write(&path))?;
    // The name is claimed by the final step itself, since another process may create the same name
    // in between.
    let mut number = 1;
    loop {
        match file.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            Err(taken) if taken.error.kind() == ErrorKind::AlreadyExists => {
                file = taken.file;
                number += 1;
                path.set_file_name(format!("{stem}.compacted-{number}.{ending}"));
            }
            Err(error) => return Err(CliError::write(&path)(error.error)),
        }
    }
}

/// Replaces a file in one step. `fill` writes the content under another name in the same folder,
/// which is then renamed. The file gets these permissions, or can be read by its owner only if
/// there are none.
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
    // Without this, a crash after the rename could leave an empty file.
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(filled)
}

/// Creates a file beside `path` that only its owner can read. It must be in the same folder,
/// because a rename across file systems is not possible.
fn hidden_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".contexture-")
        .tempfile_in(folder)
}
