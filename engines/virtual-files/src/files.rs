//! The files of a session: large messages and earlier windows.
//!
//! A file is an artifact of the session. It says which messages of the transcript the file shows,
//! and stores only text that no message has: the summaries and shorter forms of an earlier window.
//! Everything else is read from the transcript when the model asks for it. So there is no copy on
//! disk that could be lost, damaged or older than the conversation.
//!
//! [`Files`] holds all files of a session. Create one with [`Files::file`], store it with
//! [`Files::put`] and read it with [`Files::text`]. Only files with a message in the current
//! conversation are listed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use contexture_engine_api::{
    EngineError, MessageId, MessageKind, MessageView, OwnedMessage, Services, TranscriptRange,
    with_views,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

const PREFIX: &str = "file/";
/// The number of characters of a tool's name that appear in the name of a file.
const STEM_CHARS: usize = 32;
const BATCH: usize = 128;

/// What is known about a file without reading its text. This is stored in its artifact, except for
/// the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    #[serde(skip)]
    pub(crate) name: String,
    /// Where the text comes from, in words for the model, such as `the result of bash`.
    pub(crate) of: String,
    pub(crate) tokens: u64,
    pub(crate) lines: u64,
    /// A hash of the text, which distinguishes two texts that would get the same name.
    hash: u64,
    /// The messages that have this text. For an earlier window, its last message.
    ids: Vec<MessageId>,
}

/// A part of an earlier window, from which its text is put together again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WindowPart {
    /// Messages in their original form, by id. Their text is read from the transcript.
    Said(Vec<MessageId>),
    /// Text that no message has, such as a summary or a shorter form, stored as it is.
    Text(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    file: File,
    /// The parts of an earlier window in order, or `None` if the file is a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Vec<WindowPart>>,
}

/// All files of one session, by name. They are read from the artifacts when the session is opened.
#[derive(Debug)]
pub(crate) struct Files {
    services: Services,
    all: BTreeMap<String, File>,
    /// The messages of files that are part of the current conversation. A file is listed if one of
    /// its messages is among them.
    current: HashSet<MessageId>,
}

impl Files {
    /// Reads the files of a session from its artifacts. An artifact that is not valid JSON is
    /// skipped.
    pub(crate) fn open(services: Services) -> Result<Self, EngineError> {
        let mut files = Self {
            services,
            all: BTreeMap::new(),
            current: HashSet::new(),
        };
        for artifact in files.services.artifacts(PREFIX)? {
            let name = artifact.strip_prefix(PREFIX).unwrap_or_default();
            if let Some(stored) = files.stored(name)? {
                files.all.insert(name.to_owned(), stored.file);
            }
        }
        files.refresh()?;
        Ok(files)
    }

    /// Looks up which files belong to the current conversation. Call it after messages were cut off
    /// or edited.
    pub(crate) fn refresh(&mut self) -> Result<(), EngineError> {
        let ids: BTreeSet<MessageId> = (self.all.values())
            .flat_map(|file| file.ids.iter().copied())
            .collect();
        let ids: Vec<MessageId> = ids.into_iter().collect();
        self.current.clear();
        for ids in ids.chunks(BATCH) {
            let range = TranscriptRange::of(ids.to_vec()).outdated(false);
            let found = self.services.transcript(&range)?.messages;
            self.current.extend(found.iter().map(|message| message.id));
        }
        Ok(())
    }

    /// Describes the file that a text would be. Its name begins with `kind`. Nothing is stored or
    /// listed until the file is [put](Self::put).
    pub(crate) fn file(&self, kind: &str, of: &str, text: &str, id: MessageId) -> File {
        let hash = xxh3_64(text.as_bytes());
        let base = format!("{}-{:08x}", stem(kind), hash as u32);
        let mut name = format!("{base}.txt");
        let is_another = |name: &str| self.all.get(name).is_some_and(|file| file.hash != hash);
        // Only a part of the hash is in the name, so another text can have the same name.
        for number in 2.. {
            if !is_another(&name) {
                break;
            }
            name = format!("{base}-{number}.txt");
        }
        File {
            name,
            of: of.to_owned(),
            tokens: self.services.count_tokens(text),
            lines: text.lines().count() as u64,
            hash,
            ids: vec![id],
        }
    }

    /// Stores a file and lists it. Returns true if it is new. If a file with this name exists, its
    /// text is the same and only the messages are added.
    pub(crate) fn put(
        &mut self,
        file: File,
        window: Option<Vec<WindowPart>>,
    ) -> Result<bool, EngineError> {
        if self.all.contains_key(&file.name) {
            for id in &file.ids {
                self.link(&file.name, *id)?;
            }
            return Ok(false);
        }
        self.current.extend(&file.ids);
        self.write(Stored { file, window }).map(|()| true)
    }

    /// Records that this message shows the file too. Nothing happens if there is no such file.
    pub(crate) fn link(&mut self, name: &str, id: MessageId) -> Result<(), EngineError> {
        let Some(mut stored) = self.stored(name)? else {
            return Ok(());
        };
        self.current.insert(id);
        if stored.file.ids.contains(&id) {
            return Ok(());
        }
        stored.file.ids.push(id);
        self.write(stored)
    }

    fn write(&mut self, stored: Stored) -> Result<(), EngineError> {
        // A struct of numbers and texts can always be written as JSON.
        let text = serde_json::to_string(&stored).unwrap_or_default();
        let name = stored.file.name.clone();
        self.services.put_artifact(&artifact(&name), Some(&text))?;
        self.all.insert(name, stored.file);
        Ok(())
    }

    fn stored(&self, name: &str) -> Result<Option<Stored>, EngineError> {
        let text = self.services.artifact(&artifact(name))?;
        // An artifact that cannot be read must not make the whole session fail to open.
        let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        Ok(stored.map(|mut stored| {
            name.clone_into(&mut stored.file.name);
            stored
        }))
    }

    /// Returns the text of a file, even of one that is no longer listed. `None` if there is no such
    /// file, or if the transcript does not have its message.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, EngineError> {
        let Some(stored) = self.stored(name)? else {
            return Ok(None);
        };
        let Some(parts) = stored.window else {
            let found = self.messages(&stored.file.ids)?;
            return Ok(found.into_iter().next().map(|message| message.text));
        };
        let mut text = String::new();
        for part in parts {
            match part {
                WindowPart::Said(ids) => {
                    let said = self.messages(&ids)?;
                    with_views(&said, |said| {
                        said.iter().for_each(|message| write(&mut text, message));
                    });
                }
                WindowPart::Text(own) => text.push_str(&own),
            }
        }
        Ok(Some(text))
    }

    /// Reads messages in their original form. Those that the transcript does not have are missing
    /// in the result.
    fn messages(&self, ids: &[MessageId]) -> Result<Vec<OwnedMessage>, EngineError> {
        let range = TranscriptRange::of(ids.to_vec());
        Ok(self.services.transcript(&range)?.messages)
    }

    /// Removes a file that the model has not been told about.
    pub(crate) fn discard(&mut self, name: &str) -> Result<(), EngineError> {
        self.all.remove(name);
        self.services.put_artifact(&artifact(name), None)
    }

    /// Returns the listed files, the latest first. A file is as recent as the latest of its
    /// messages in the conversation.
    pub(crate) fn listed(&self) -> Vec<&File> {
        let latest = |file: &File| {
            file.ids
                .iter()
                .filter(|id| self.current.contains(id))
                .max()
                .copied()
        };
        let mut listed: Vec<(MessageId, &File)> = (self.all.values())
            .filter_map(|file| Some((latest(file)?, file)))
            .collect();
        listed.sort_by(|(one, one_file), (other, other_file)| {
            (other, &other_file.name).cmp(&(one, &one_file.name))
        });
        listed.into_iter().map(|(_, file)| file).collect()
    }

    /// Whether the file exists but is not listed, because none of its messages is in the
    /// conversation.
    pub(crate) fn is_unlisted(&self, name: &str) -> bool {
        let file = self.all.get(name);
        file.is_some_and(|file| !file.ids.iter().any(|id| self.current.contains(id)))
    }

    /// Removes all files and their artifacts, for a conversation that starts over.
    pub(crate) fn reset(&mut self) -> Result<(), EngineError> {
        self.current.clear();
        for name in std::mem::take(&mut self.all).into_keys() {
            self.discard(&name)?;
        }
        Ok(())
    }
}

/// Returns a window as text, and the parts from which the same text can be made again. Notices are
/// left out, since nobody said them.
pub(crate) fn window_of(messages: &[MessageView<'_>]) -> (String, Vec<WindowPart>) {
    let mut text = String::new();
    let mut parts = Vec::new();
    for message in messages {
        let before = text.len();
        match (message.kind(), parts.last_mut()) {
            (MessageKind::Notice, _) => continue,
            // Adjacent messages share one part, so that their texts are read from the transcript at
            // once.
            (MessageKind::Original, Some(WindowPart::Said(ids))) => ids.push(message.id()),
            (MessageKind::Original, _) => parts.push(WindowPart::Said(vec![message.id()])),
            _ => {}
        }
        write(&mut text, message);
        if message.kind() != MessageKind::Original {
            parts.push(WindowPart::Text(text[before..].to_owned()));
        }
    }
    (text, parts)
}

fn write(text: &mut String, message: &MessageView<'_>) {
    // Writing to a string cannot fail.
    let _ = match (message.kind(), message.tool_call_id()) {
        (MessageKind::Summary, _) => writeln!(text, "=== a summary of what was said before ==="),
        (_, Some(_)) => {
            let tool = message.tool_name().unwrap_or("a tool");
            writeln!(text, "=== the result of {tool} ===")
        }
        (_, None) => writeln!(text, "=== {} ===", message.role()),
    };
    if !message.text().is_empty() {
        let _ = writeln!(text, "{}", message.text());
    }
    for call in message.tool_calls() {
        let _ = writeln!(text, "[call of {}] {}", call.name(), call.arguments());
    }
    text.push('\n');
}

fn artifact(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// Returns the characters of a name that are safe in the name of a file, in lower case. If none
/// remains, it is `file`.
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
