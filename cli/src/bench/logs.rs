//! Finds the logs in a folder and reads them.
//!
//! [`find`] lists the files, the largest first, and [`read`] hands out the conversations of one. A
//! document that `contexture replay` reads is read the same way. Any other log that the history
//! knows, such as the database of an agent, is read by its reader. All other files are not logs, and
//! [`read`] says why.
//!
//! Links are not followed, because a link to a folder above would never end.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use crate::error::CliError;
use contexture::formats::{self, Conversation, Format};
use contexture::history::{is_log, read_conversations};

/// The largest document that is read as a whole, in bytes.
const MAX_DOCUMENT: u64 = 256 << 20;

/// A file that may be a log, or a folder that is one.
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// In bytes, of all files if it is a folder.
    pub(super) size: u64,
}

/// Lists the files of a folder and of those below it, the largest first. Files of the same size are
/// in the order of their paths. A folder that is a log itself is listed as one.
///
/// # Errors
/// Fails if the path does not exist or its folder cannot be read. Folders below it that cannot be
/// read are left out.
pub(super) fn find(path: &Path) -> Result<Vec<LogFile>, CliError> {
    let unreadable = CliError::read(path);
    let mut found = Vec::new();
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        std::fs::read_dir(path).map_err(unreadable)?;
        add_folder(path, &mut found);
    } else {
        add_file(path, &mut found);
    }
    found.sort_by(|one, other| {
        (Reverse(one.size), &one.path).cmp(&(Reverse(other.size), &other.path))
    });
    Ok(found)
}

fn add_folder(folder: &Path, found: &mut Vec<LogFile>) {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_file() => add_file(&entry.path(), &mut files),
            Ok(kind) if kind.is_dir() => add_folder(&entry.path(), &mut files),
            _ => {}
        }
    }
    if is_log(folder) {
        return found.push(LogFile {
            path: folder.to_owned(),
            size: files.iter().map(|file| file.size).sum(),
        });
    }
    found.append(&mut files);
}

fn add_file(path: &Path, found: &mut Vec<LogFile>) {
    found.push(LogFile {
        size: std::fs::metadata(path).map_or(0, |metadata| metadata.len()),
        path: path.to_owned(),
    });
}

/// Reads the conversations of a file and hands each to `each`, until it returns false. Returns what
/// could not be read of a log that was read otherwise.
///
/// # Errors
/// Returns the reason in words if it is not a log, or cannot be read at all.
pub(super) fn read(
    file: &LogFile,
    each: &mut dyn FnMut(Conversation) -> bool,
) -> Result<Option<String>, String> {
    let why = match document(file) {
        Ok(conversations) if conversations.is_empty() => "it holds no conversation".to_owned(),
        Ok(conversations) => {
            let damage = conversations.iter().find_map(Conversation::damage);
            let damage = damage.map(ToString::to_string);
            for conversation in conversations {
                if !each(conversation) {
                    break;
                }
            }
            return Ok(damage);
        }
        Err(why) => why,
    };
    let mut damage = None;
    let read = read_conversations(&file.path, &mut |lines| match formats::read(
        lines,
        Some(Format::MessageLines),
    ) {
        Ok(conversations) => conversations.into_iter().all(&mut *each),
        Err(error) => {
            damage = Some(error.to_string());
            true
        }
    });
    match read {
        Ok(Some(skipped)) => Ok(skipped.into_iter().next().map(|one| one.why).or(damage)),
        Ok(None) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a document in one of the formats that `contexture replay` reads.
fn document(file: &LogFile) -> Result<Vec<Conversation>, String> {
    if file.path.is_dir() {
        return Err("it is a folder".to_owned());
    }
    if file.size > MAX_DOCUMENT {
        return Err(format!(
            "it has {} MB, and a document may have {}",
            file.size >> 20,
            MAX_DOCUMENT >> 20
        ));
    }
    let bytes = std::fs::read(&file.path).map_err(|error| error.to_string())?;
    formats::read_bytes(bytes, None).map_err(|error| error.to_string())
}
