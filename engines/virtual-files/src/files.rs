//! The files of a session: large messages and earlier windows.
//!
//! A file is an artifact of the session. It says which messages of the transcript the file shows, and holds only what no
//! message says: the summaries and shorter forms of an earlier window. The texts are read from the transcript when the
//! model asks for them. So there is nothing on a disk that could be lost, damaged or older than the conversation.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use contexture_engine_api::{
    EngineError, MessageId, MessageKind, MessageView, OwnedMessage, Services, TranscriptRange,
    with_views,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// What the names of the artifacts begin with.
const PREFIX: &str = "file/";
/// So many characters of a tool's name are in the name of a file.
const STEM_CHARS: usize = 32;
/// So many messages are read from the transcript at once.
const BATCH: usize = 128;

/// What is known of a file without reading its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    #[serde(skip)]
    pub(crate) name: String,
    /// Where it comes from, for the model: `the result of bash`.
    pub(crate) of: String,
    pub(crate) tokens: u64,
    pub(crate) lines: u64,
    /// A hash of the text. Two texts with one name are told apart by it.
    hash: u64,
    /// The messages with this text. For an earlier window its last message.
    ids: Vec<MessageId>,
}

/// What stood in an earlier window.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Messages as they were said.
    Said(Vec<MessageId>),
    /// What no message says.
    Text(String),
}

/// The artifact of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    file: File,
    /// The parts of an earlier window; `None` if the file is a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window: Option<Vec<Part>>,
}

/// All files of one session.
#[derive(Debug)]
pub(crate) struct Files {
    services: Services,
    all: BTreeMap<String, File>,
    /// Which messages of files are part of the conversation. A file is listed if one of its messages is.
    current: HashSet<MessageId>,
}

impl Files {
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

    /// Looks up which files are part of the conversation, after messages were cut off or edited.
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

    /// What a text would be as a file, whose name begins with `kind`. It is on no list until it is [put](Self::put) there.
    pub(crate) fn file(&self, kind: &str, of: &str, text: &str, id: MessageId) -> File {
        let hash = xxh3_64(text.as_bytes());
        let base = format!("{}-{:08x}", stem(kind), hash as u32);
        let mut name = format!("{base}.txt");
        let is_another = |name: &str| self.all.get(name).is_some_and(|file| file.hash != hash);
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

    /// Puts a file on the list. Returns whether it is new.
    pub(crate) fn put(
        &mut self,
        file: File,
        window: Option<Vec<Part>>,
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

    /// Notes that a file is shown in the place of this message, too.
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
        // Numbers and texts alone always are JSON.
        let text = serde_json::to_string(&stored).unwrap_or_default();
        let name = stored.file.name.clone();
        self.services.put_artifact(&artifact(&name), Some(&text))?;
        self.all.insert(name, stored.file);
        Ok(())
    }

    fn stored(&self, name: &str) -> Result<Option<Stored>, EngineError> {
        let text = self.services.artifact(&artifact(name))?;
        let stored = text.and_then(|text| serde_json::from_str::<Stored>(&text).ok());
        Ok(stored.map(|mut stored| {
            name.clone_into(&mut stored.file.name);
            stored
        }))
    }

    /// The text of a file, also of one that is listed no more; `None` if there is no such file.
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
                Part::Said(ids) => {
                    let said = self.messages(&ids)?;
                    with_views(&said, |said| {
                        said.iter().for_each(|message| write(&mut text, message));
                    });
                }
                Part::Text(own) => text.push_str(&own),
            }
        }
        Ok(Some(text))
    }

    /// Messages as they were said, as far as the transcript has them.
    fn messages(&self, ids: &[MessageId]) -> Result<Vec<OwnedMessage>, EngineError> {
        let range = TranscriptRange::of(ids.to_vec());
        Ok(self.services.transcript(&range)?.messages)
    }

    /// Removes a file that nobody was told of.
    pub(crate) fn discard(&mut self, name: &str) -> Result<(), EngineError> {
        self.all.remove(name);
        self.services.put_artifact(&artifact(name), None)
    }

    /// The files of the conversation, the latest first.
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

    /// Whether there is such a file, and it is not listed.
    pub(crate) fn is_unlisted(&self, name: &str) -> bool {
        let file = self.all.get(name);
        file.is_some_and(|file| !file.ids.iter().any(|id| self.current.contains(id)))
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) -> Result<(), EngineError> {
        self.current.clear();
        for name in std::mem::take(&mut self.all).into_keys() {
            self.discard(&name)?;
        }
        Ok(())
    }
}

/// A window as text, and as the parts from which the text can be made again. Notices, which nobody said, are left out.
pub(crate) fn window_of(messages: &[MessageView<'_>]) -> (String, Vec<Part>) {
    let mut text = String::new();
    let mut parts = Vec::new();
    for message in messages {
        let before = text.len();
        match (message.kind(), parts.last_mut()) {
            (MessageKind::Notice, _) => continue,
            (MessageKind::Original, Some(Part::Said(ids))) => ids.push(message.id()),
            (MessageKind::Original, _) => parts.push(Part::Said(vec![message.id()])),
            _ => {}
        }
        write(&mut text, message);
        if message.kind() != MessageKind::Original {
            parts.push(Part::Text(text[before..].to_owned()));
        }
    }
    (text, parts)
}

fn write(text: &mut String, message: &MessageView<'_>) {
    // Writing to a string does not fail.
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

/// What of a name is safe in the name of a file: `file` if nothing is.
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
