//! The folder of a session: its files, and the journal of which message is in which file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contexture_engine_api::{
    Cut, MessageId, Observed, make_private, make_private_folder, private_file_options,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::FolderError;

const JOURNAL: &str = "journal.jsonl";
/// Of a session's id or a tool's name, so many characters are in the name of a folder or a file.
const STEM_CHARS: usize = 32;

/// What is known of a file without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    pub(crate) name: String,
    /// Where it comes from, for the model: `the result of bash`.
    pub(crate) of: String,
    pub(crate) tokens: u64,
    pub(crate) lines: u64,
}

/// What a message is to the limit of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// The user spoke.
    User,
    /// So many tools were called.
    Calls(u64),
}

/// What becomes of the journal at once, or not at all.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Step {
    /// The session, in the first line alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// Everything after the message of this id is gone; 0 for everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut: Option<u64>,
    /// Messages that have another form now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<MessageId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) said: Vec<(MessageId, Said)>,
    /// The files of messages; of an earlier window, its last message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<(MessageId, File)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<Observed>,
}

impl Step {
    pub(crate) fn after(cut: Option<Cut>) -> Self {
        Self {
            cut: cut.map(|cut| cut.last.unwrap_or_default().0),
            ..Self::default()
        }
    }

    /// Files that messages are in.
    pub(crate) fn of_files(files: Vec<(MessageId, File)>) -> Self {
        Self {
            files,
            ..Self::default()
        }
    }
}

/// What the journal says.
#[derive(Debug, Default)]
struct State {
    seen: Option<Observed>,
    said: BTreeMap<MessageId, Said>,
    files: HashMap<String, File>,
    links: BTreeSet<(MessageId, String)>,
}

impl State {
    fn take(&mut self, step: Step) {
        match step.cut {
            Some(0) => *self = Self::default(),
            Some(last) => {
                let next = MessageId(last.saturating_add(1));
                self.said.split_off(&next);
                self.links.split_off(&(next, String::new()));
            }
            None => {}
        }
        for id in step.replaced {
            self.said.remove(&id);
            let next = MessageId(id.0.saturating_add(1));
            let gone = self.links.range((id, String::new())..(next, String::new()));
            for link in gone.cloned().collect::<Vec<_>>() {
                self.links.remove(&link);
            }
        }
        self.said.extend(step.said);
        for (id, file) in step.files {
            self.links.insert((id, file.name.clone()));
            self.files.insert(file.name.clone(), file);
        }
        self.seen = step.seen.or(self.seen);
    }
}

/// The folder of one session.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    session: String,
    state: State,
    /// The bytes of the journal that are whole.
    journal_bytes: u64,
}

impl Folder {
    /// Opens the folder of a session, or makes it.
    pub(crate) fn open(data_dir: &Path, session: &str) -> Result<Self, FolderError> {
        let mut folder = Self {
            path: folder_of(data_dir, session),
            session: session.to_owned(),
            state: State::default(),
            journal_bytes: 0,
        };
        folder.read()?;
        Ok(folder)
    }

    fn read(&mut self) -> Result<(), FolderError> {
        make_private_folder(&self.path).map_err(failed(&self.path, "made"))?;
        make_private(&self.path).map_err(failed(&self.path, "made private"))?;
        let path = self.path.join(JOURNAL);
        self.state = State::default();
        self.journal_bytes = 0;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(&path, "read")(error)),
        };
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            // What a crash left of a line, and what stands behind it, was never answered for.
            let whole = line.ends_with(b"\n");
            let Some(step) = (serde_json::from_slice::<Step>(line).ok()).filter(|_| whole) else {
                break;
            };
            if let Some(found) = step.session.clone().filter(|found| *found != self.session) {
                let (path, session) = (self.path.clone(), self.session.clone());
                return Err(FolderError::OfAnother {
                    path,
                    found,
                    session,
                });
            }
            self.state.take(step);
            self.journal_bytes += line.len() as u64;
        }
        if self.journal_bytes == 0 {
            let session = Some(self.session.clone());
            return self.begin(&Step {
                session,
                ..Step::default()
            });
        }
        Ok(())
    }

    /// A journal with this line alone.
    fn begin(&mut self, first: &Step) -> Result<(), FolderError> {
        let line = line_of(first);
        self.place(JOURNAL, &line)?;
        self.state = State::default();
        self.journal_bytes = line.len() as u64;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn removed(&self) -> FolderError {
        FolderError::Removed {
            path: self.path.clone(),
        }
    }

    /// Writes a step down, then takes it.
    pub(crate) fn take(&mut self, step: Step) -> Result<(), FolderError> {
        self.let_go_of(&step)?;
        let path = self.path.join(JOURNAL);
        let mut journal = match fs::OpenOptions::new().write(true).open(&path) {
            Ok(journal) => journal,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let removed = self.removed();
                // From now on it has seen nothing, and is shown everything again.
                self.read()?;
                return Err(removed);
            }
            Err(error) => return Err(failed(&path, "opened")(error)),
        };
        let line = line_of(&step);
        let written = journal
            .set_len(self.journal_bytes)
            .and_then(|()| journal.seek(SeekFrom::Start(self.journal_bytes)))
            .and_then(|_| journal.write_all(line.as_bytes()));
        written.map_err(failed(&path, "written"))?;
        self.journal_bytes += line.len() as u64;
        self.state.take(step);
        Ok(())
    }

    /// Keeps a text under a name that comes from the text; `kind` begins the name. It is on no list before a step
    /// says whose it is.
    pub(crate) fn keep(&self, kind: &str, text: &str) -> Result<String, FolderError> {
        let hash = xxh3_64(text.as_bytes()) as u32;
        let base = format!("{}-{hash:08x}", stem(kind));
        let mut name = format!("{base}.txt");
        // Other texts with the same hash have numbers.
        for number in 2.. {
            let path = self.path.join(&name);
            match fs::read(&path) {
                Ok(there) if there == text.as_bytes() => break,
                Ok(_) => name = format!("{base}-{number}.txt"),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.place(&name, text)?;
                    break;
                }
                Err(error) => return Err(failed(&path, "read")(error)),
            }
        }
        Ok(name)
    }

    /// A file, whole from the moment on at which it is there.
    fn place(&self, name: &str, text: &str) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let new = self.path.join(format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut file = private_file_options()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&new);
            match error.kind() {
                ErrorKind::NotFound => self.removed(),
                _ => failed(&path, "written")(error),
            }
        })
    }

    /// What is in a file; none where there is no such file. Nothing but a name of this folder's files is looked for.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, FolderError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.starts_with('.') || !name.ends_with(".txt") || !name.chars().all(is_plain) {
            return Ok(None);
        }
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, "read")(error)),
        }
    }

    /// Takes a file away that nobody was told of.
    pub(crate) fn discard(&self, name: &str) {
        if !self.state.files.contains_key(name) {
            let _ = fs::remove_file(self.path.join(name));
        }
    }

    /// The files of the conversation, the latest first.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        let mut listed = HashSet::new();
        let links = self.state.links.iter().rev();
        links
            .filter(move |(_, name)| listed.insert(String::clone(name)))
            .filter_map(|(_, name)| self.state.files.get(name))
    }

    /// Whether a message is known to be in this file.
    pub(crate) fn is_in(&self, id: MessageId, name: &str) -> bool {
        self.state.links.contains(&(id, name.to_owned()))
    }

    /// Whether a file of this name was on the list since the conversation began.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.state.files.contains_key(name)
    }

    pub(crate) fn seen(&self) -> Option<Observed> {
        self.state.seen
    }

    /// The tool calls since the user's last message, counted up to `most`.
    pub(crate) fn calls(&self, most: u64) -> u64 {
        let mut calls = 0;
        for said in self.state.said.values().rev() {
            match said {
                Said::Calls(more) if calls < most => calls += more,
                _ => break,
            }
        }
        calls
    }

    /// Forgets everything, files included.
    pub(crate) fn reset(&mut self) -> Result<(), FolderError> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(&self.path, "removed")(error))
            }
            _ => self.read(),
        }
    }
}

/// A session as it lies on the disk.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) session: String,
    pub(crate) bytes: u64,
    /// When something was last written. A time after now is of a clock that was wrong, and counts only if there is no
    /// other.
    pub(crate) used: SystemTime,
    path: PathBuf,
}

impl Kept {
    /// All sessions below an engine's directory.
    pub(crate) fn all(data_dir: &Path) -> Result<Vec<Self>, FolderError> {
        let entries = match fs::read_dir(data_dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(data_dir, "read")(error)),
        };
        let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let kept = folders.map(|folder| {
            let journal = folder.join(JOURNAL);
            match fs::read(&journal) {
                Ok(journal) => Ok(Self::of(&journal, folder)),
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
                {
                    Ok(None)
                }
                Err(error) => Err(failed(&journal, "read")(error)),
            }
        });
        kept.filter_map(Result::transpose).collect()
    }

    /// The session of a folder with this journal; none if the journal says none.
    fn of(journal: &[u8], path: PathBuf) -> Option<Self> {
        let first = journal.split(|byte| *byte == b'\n').next()?;
        let step: Step = serde_json::from_slice(first).ok()?;
        let session = step.session?;
        if folder_of(path.parent()?, &session) != path {
            return None;
        }
        let mut kept = Self {
            session,
            bytes: 0,
            used: SystemTime::UNIX_EPOCH,
            path,
        };
        let mut times = Vec::new();
        for entry in fs::read_dir(&kept.path).ok()? {
            let file = entry.ok()?.metadata().ok()?;
            kept.bytes += file.len();
            times.push(file.modified().ok()?);
        }
        let now = SystemTime::now();
        let past = times.iter().filter(|time| **time <= now).max();
        kept.used = *past.or(times.iter().max())?;
        Some(kept)
    }

    /// Takes it off the disk.
    pub(crate) fn remove(&self) -> Result<(), FolderError> {
        fs::remove_dir_all(&self.path).map_err(failed(&self.path, "removed"))
    }
}

fn folder_of(data_dir: &Path, session: &str) -> PathBuf {
    data_dir.join(format!(
        "{}-{:016x}",
        stem(session),
        xxh3_64(session.as_bytes())
    ))
}

fn line_of(step: &Step) -> String {
    // Of numbers and texts alone, which always are JSON.
    let mut line = serde_json::to_string(step).unwrap_or_default();
    line.push('\n');
    line
}

pub(crate) fn failed<'p>(
    path: &'p Path,
    tried: &'static str,
) -> impl FnOnce(std::io::Error) -> FolderError + 'p {
    move |cause| FolderError::Io {
        path: path.to_owned(),
        tried,
        cause,
    }
}

/// What of a name is safe in the name of a file: `file` where nothing is.
fn stem(name: &str) -> String {
    let mut stem: String = name
        .chars()
        .map(|c| match c {
            'A'..='Z' => c.to_ascii_lowercase(),
            'a'..='z' | '0'..='9' | '-' | '_' => c,
            _ => '-',
        })
        .take(STEM_CHARS)
        .collect();
    stem.truncate(stem.trim_end_matches('-').len());
    match stem.trim_start_matches('-') {
        "" => "file".to_owned(),
        stem => stem.to_owned(),
    }
}
