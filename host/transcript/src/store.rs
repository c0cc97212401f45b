//! What a backend does for the record: it stores rows of sessions and reads them again.
//!
//! [`Store`] speaks in sessions and ranges, not in SQL. A backend knows nothing of conversations:
//! texts come compressed and with a checksum, and what the rows mean is decided in `record`. A
//! session is opened with [`Store::open`], which returns a [`SessionKey`] and all that is stored of
//! it except texts. Each turn is one [`Commit`], which is written whole or not at all.
//!
//! Every method concerns one session, except those that list sessions. So a backend can distribute
//! sessions over machines.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::MessageId;
use contexture_formats::prompt_cache::Pauses;
use contexture_secrets::mask_secrets;

use crate::error::RecordError;
use crate::hold::{Hold, Token};

/// A backend: one file of SQLite, or a database of PostgreSQL. All methods block, and may be called
/// from several threads at once.
pub(crate) trait Store: std::fmt::Debug + Send + Sync {
    /// Whether the store is lost with the process.
    fn is_in_memory(&self) -> bool {
        false
    }

    /// Fails if the file was removed while it was open. Writes into a removed file succeed and are
    /// lost, so nothing else reports it. A database needs no check.
    fn check_exists(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// Why the store does not answer at present, if it is a server. None if it answers.
    fn outage(&self) -> Option<RecordError> {
        None
    }

    /// Whether a call that concerns this session is under way, or any call if it is None. Always
    /// false for a file.
    fn is_waited_for(&self, _session: Option<&str>) -> bool {
        false
    }

    /// The error for a stored value that makes no sense. `what` says which one, and the backend
    /// adds the file or the server, which the caller does not know.
    fn damaged(&self, what: String) -> RecordError;

    /// Locks a session. If it is open elsewhere, waits for at most `wait`. `before` is the token of
    /// the release if the caller held it before.
    fn hold(
        &self,
        session: &str,
        wait: Duration,
        before: Option<&Token>,
    ) -> Result<Hold, RecordError>;

    /// Reads a session as of one moment. If there is none, it is created. The caller holds the
    /// session, or it can read but not write it in a backend with leases.
    fn open(&self, session: &str) -> Result<(SessionKey, Snapshot), RecordError>;

    /// Writes what changed in one transaction. Nothing is written if the session was deleted, or if
    /// the lock under which it was opened has been taken over.
    ///
    /// If it fails, the same commit can be made again. It is then written once, also if the answer to
    /// the first attempt was lost.
    ///
    /// `changes` of embedders' texts are part of the transaction in a file, which costs less than one
    /// for each of them. In a database they are made before, so that a session that is there also has
    /// the texts with which an embedder finds it. Those that were made leave the list.
    fn commit(
        &self,
        key: &SessionKey,
        commit: &Arc<Commit>,
        changes: &mut Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError>;

    /// Whether [`commit`](Self::commit) makes `changes` in its own transaction.
    fn joins_changes(&self) -> bool {
        false
    }

    /// Deletes a session and everything that is stored with it, the texts of embedders included.
    /// Does nothing if there is no such session.
    fn forget(&self, session: &str) -> Result<(), RecordError>;

    /// Sets or clears the time of archiving, in milliseconds since the Unix epoch. False if there is
    /// no such session.
    fn archive(&self, session: &str, at_ms: Option<i64>) -> Result<bool, RecordError>;

    /// All sessions in the order in which they were created, or only one.
    fn summaries(&self, session: Option<&str>) -> Result<Vec<SessionSummary>, RecordError>;

    /// How much was delivered of sessions that have an engine, in the order of creation.
    fn delivered(&self, which: Which<'_>) -> Result<Vec<Delivered>, RecordError>;

    /// The summed pauses of all sessions, from which the lifetime of the prompt cache is chosen.
    fn pauses(&self) -> Result<Pauses, RecordError>;

    /// Messages of a session. None if there is no such session.
    fn messages(
        &self,
        session: &str,
        select: Select<'_>,
    ) -> Result<Option<Vec<MessageRow>>, RecordError>;

    /// A page of the messages whose text is stored, by id. None if there is no such session.
    fn page(&self, session: &str, range: PageRange) -> Result<Option<MessagePage>, RecordError>;

    /// The wire messages with these numbers, in the order of the list. Missing ones are left out.
    fn texts(&self, session: &str, numbers: &[i64]) -> Result<Vec<TextRow>, RecordError>;

    /// The compaction in force. None if the session was never compacted, or if there is no such
    /// session.
    fn compaction(&self, session: &str) -> Result<Option<CompactionRow>, RecordError>;

    /// Replaces the window of the compaction in force. Does nothing if there is none. The caller
    /// holds the session.
    fn set_entries(&self, session: &str, entries: String) -> Result<(), RecordError>;

    /// An artifact of an engine. None if the session has none of this name, or if there is no such
    /// session.
    fn artifact(
        &self,
        session: &str,
        engine: &str,
        name: &str,
    ) -> Result<Option<Packed>, RecordError>;

    /// The names of an engine's artifacts that begin with `prefix`, in the order of their bytes.
    fn artifact_names(
        &self,
        session: &str,
        engine: &str,
        prefix: &str,
    ) -> Result<Vec<String>, RecordError>;

    /// Stores texts of embedders with a session, which need not exist.
    fn keep(&self, session: &str, texts: &[(&str, &str)]) -> Result<(), RecordError>;

    /// Makes changes of embedders' texts, one after the other. Between the read and the write of a
    /// change nobody else changes the text that it depends on.
    /// Those that were made leave the list.
    fn change_kept(&self, changes: &mut Vec<KeptChange<'_>>) -> Result<(), RecordError>;

    /// The texts of embedders that are stored with a session, as pairs of name and text, by name.
    fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError>;

    /// The names under which anything is stored, in the order of their bytes. Some may have only
    /// texts of embedders, and no session.
    fn names(&self) -> Result<Vec<String>, RecordError>;

    /// Everything that is stored under a name, as of one moment. None if there is nothing.
    fn dump(&self, session: &str) -> Result<Option<Dump>, RecordError>;

    /// Stores everything under a name in one transaction, in place of what is there. The session must
    /// be held.
    fn restore(&self, session: &str, dump: Dump) -> Result<(), RecordError>;

    /// Copies what a trial of a session needs into the home directory `home`, as of one moment: a
    /// whole file, or of a shared database only that session.
    fn copy_to(&self, home: &Path, session: &str) -> Result<(), RecordError>;

    /// What is wrong with what is stored, a line for each problem. Empty if everything is sound. It
    /// reads all texts, so it takes time in proportion to their size.
    fn problems(&self) -> Result<Vec<String>, RecordError>;

    /// Returns the space of deleted rows to the disk, in bytes. A dry run only calculates it.
    fn shrink(&self, _dry_run: bool) -> Result<u64, RecordError> {
        Ok(0)
    }

    /// The texts of embedders under a name, as pairs of session and text, by session.
    fn kept_as(
        &self,
        name: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, String)>, RecordError>;
}

/// A session that was opened, for the commits that follow. It is valid until the session is
/// deleted, or until another process takes it over.
#[derive(Debug)]
pub(crate) struct SessionKey {
    pub(crate) session: String,
    /// The row of the session in a file. A session that is deleted and created again may have
    /// another one.
    pub(crate) row: i64,
    /// The number of the lease under which the session was opened, for a backend with leases.
    #[cfg(feature = "postgres")]
    pub(crate) fence: Option<Arc<std::sync::atomic::AtomicI64>>,
    /// The number of commits so far, for a backend that may lose the answer to a commit.
    #[cfg(feature = "postgres")]
    pub(crate) commits: std::sync::atomic::AtomicI64,
}

/// Which sessions a list is about: all of them, the one with an id, or those that run under an
/// engine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which<'a> {
    All,
    Session(&'a str),
    Engine(&'a str),
}

/// Which messages of a session to read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Select<'a> {
    /// All of them, those that were cut off included.
    All,
    /// Those of the conversation, earlier forms included, in the order of arrival.
    Log,
    /// Those with these ids whose text is stored, in the order of the list.
    Ids(&'a [MessageId]),
    /// Those of the conversation that share a wire message with one of these ids, each once.
    SharingWire(&'a [MessageId]),
    /// Those of the conversation whose text is not stored.
    WithoutText,
}

/// A range of messages to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRange {
    /// The message after which the page begins.
    pub(crate) after: MessageId,
    /// Whether messages that are no longer part of the conversation are among them.
    pub(crate) outdated: bool,
    /// The most messages of the page, at least one.
    pub(crate) limit: usize,
    /// The most bytes of wire messages, if their text is read. A page has at least one message.
    pub(crate) bytes: Option<usize>,
}

/// A page of messages in the order of their ids. The last of them is the place after which the next
/// page begins.
#[derive(Debug, Default)]
pub(crate) struct MessagePage {
    pub(crate) messages: Vec<MessageRow>,
    /// Whether another page follows.
    pub(crate) has_more: bool,
}

impl MessagePage {
    /// Fills a page with rows, each with the bytes of its wire message, until it is full. The page
    /// has more if a row is left.
    pub(crate) fn fill<E>(
        rows: impl IntoIterator<Item = Result<(MessageRow, i64), E>>,
        range: PageRange,
    ) -> Result<Self, E> {
        let (mut page, mut bytes) = (Self::default(), 0);
        for row in rows {
            let (message, size) = row?;
            let last = page.messages.last();
            // Messages of one wire message follow each other, and its text is read once for all of
            // them.
            if last.is_none_or(|last| last.wire != message.wire) {
                bytes += size.max(0) as usize;
            }
            // A page has at least one message, however large, or a reader would never get past it.
            let is_full = page.messages.len() >= range.limit.max(1)
                || range.bytes.is_some_and(|most| bytes > most);
            if is_full && last.is_some() {
                page.has_more = true;
                break;
            }
            page.messages.push(message);
        }
        Ok(page)
    }
}

/// All that is stored of a session except texts, artifacts and the texts of embedders.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) session: SessionRow,
    /// The messages of the conversation, as [`Select::Log`] gives them.
    pub(crate) log: Vec<MessageRow>,
    /// The wire logs, by form and place.
    pub(crate) wire: Vec<WireRow>,
    pub(crate) written: Vec<WrittenRow>,
    pub(crate) compaction: Option<CompactionRow>,
}

/// The row of a session. Counters and ids are stored as signed integers with the same bits, because
/// databases have no unsigned ones.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct SessionRow {
    /// The id of the next message. It is above every id that was ever given, those of deleted
    /// messages included.
    pub(crate) next_id: i64,
    /// The engine that was shown the messages. Empty if none was yet.
    pub(crate) engine: String,
    /// The name of the wire format of the last request. Empty if there was none.
    pub(crate) format: String,
    /// The cursor: the last message that the engine was shown. None if it was shown nothing.
    pub(crate) shown_last: Option<i64>,
    /// The last message that stays after a cut which the engine was not told of. Zero if none
    /// stays, and none if there is no such cut.
    pub(crate) pending_cut: Option<i64>,
    /// The last of the messages for which a repair lost something. Up to it the chain of hashes may
    /// be broken.
    pub(crate) recovered: Option<i64>,
    /// What a cache lifetime of an hour would have cost in addition to one of five minutes, in
    /// hundredths of a token of plain input.
    pub(crate) pauses_more: i64,
    /// What a cache lifetime of an hour would have saved compared with one of five minutes, in the
    /// same unit.
    pub(crate) pauses_saved: i64,
    pub(crate) compactions: i64,
    /// What was learned from usage reports, as JSON of the session. Empty if there is nothing.
    pub(crate) usage: String,
}

/// A message, without its text. The hashes are those of a
/// [`Fingerprint`](crate::message_log::Fingerprint), and the chain is that of
/// [`Logged`](crate::message_log::Logged).
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct MessageRow {
    pub(crate) id: i64,
    pub(crate) identity: [u8; 16],
    pub(crate) shape: i64,
    pub(crate) chain: i64,
    pub(crate) replaces: Option<i64>,
    pub(crate) said_ms: Option<i64>,
    pub(crate) arrived_ms: Option<i64>,
    /// The number of the wire message that holds it, and which of the messages in there it is.
    pub(crate) wire: Option<i64>,
    pub(crate) part: Option<i64>,
    /// Whether it was cut off.
    pub(crate) cut: bool,
    /// Whether it is not part of the conversation any more. Not computed for [`Select::Log`],
    /// [`Select::SharingWire`] and [`Select::WithoutText`].
    pub(crate) is_outdated: bool,
}

/// A wire message of a wire log: which of the two logs, its place in that from zero on, and the
/// hash of its bytes.
#[derive(Debug, Clone, Hash)]
pub(crate) struct WireRow {
    pub(crate) form: i64,
    pub(crate) place: i64,
    pub(crate) raw: i64,
    /// The messages that begin in it, see `wire_entries`.
    pub(crate) messages: Vec<u8>,
}

/// A text that the host wrote.
#[derive(Debug, Clone, Hash)]
pub(crate) struct WrittenRow {
    pub(crate) identity: [u8; 16],
    pub(crate) id: i64,
    pub(crate) shortens: bool,
    /// The messages that it covers, as JSON.
    pub(crate) covers: String,
}

/// The number of a session's dictionary among its texts. Wire messages count from one.
pub(crate) const DICTIONARY: i64 = 0;

/// Where the second copy of a session's dictionary is among its artifacts, as the name of the engine
/// and that of the artifact. No engine has an empty name.
pub(crate) const DICTIONARY_COPY: (&str, &str) = ("", "dictionary");

/// The compaction in force.
#[derive(Debug, Clone, Hash)]
pub(crate) struct CompactionRow {
    pub(crate) number: i64,
    pub(crate) engine: String,
    /// The window, as JSON.
    pub(crate) entries: String,
}

/// A compressed text. It is decompressed by `Packed::text`, which returns nothing if the checksum
/// does not match.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Packed {
    /// Its length in bytes before compression.
    pub(crate) bytes: i64,
    /// The xxh3 hash of the text.
    pub(crate) checksum: i64,
    /// The text, compressed with zstd.
    pub(crate) data: Vec<u8>,
}

/// A wire message of the conversation as the client sent it, with what is needed to read it on its
/// own.
#[derive(Debug, Clone, Hash)]
pub(crate) struct TextRow {
    pub(crate) number: i64,
    pub(crate) format: String,
    /// The names of the tools whose results stand in it, by call id, as JSON. The calls stand in
    /// other wire messages.
    pub(crate) tools: Option<String>,
    /// How its messages are read from the text, as JSON, if the text is not a message itself.
    pub(crate) reading: Option<String>,
    pub(crate) text: Packed,
}

/// What changed in a session. It is written whole or not at all, and only once: new texts get new
/// numbers, so a second time would store them twice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commit {
    /// When it was made, in milliseconds since the Unix epoch.
    pub(crate) now_ms: i64,
    /// The new row of the session. Engine, cursor and pending cut are written only if
    /// `moves_cursor` is set. The number of compactions never falls.
    pub(crate) session: SessionRow,
    pub(crate) moves_cursor: bool,
    /// The end of the log, if that changed.
    pub(crate) log: Option<LogEnd>,
    /// The dictionary of the session, if it is made of these texts. There is none yet.
    pub(crate) dictionary: Option<TextRow>,
    /// New wire messages. The store numbers them in the order of arrival.
    pub(crate) texts: Vec<NewTextRow>,
    /// Artifacts to store, or to delete if there is no text.
    pub(crate) artifacts: Vec<ArtifactChange>,
    pub(crate) wires: Vec<WireEnd>,
    /// Whether the host's texts are deleted first.
    pub(crate) forgot: bool,
    pub(crate) written: Vec<WrittenRow>,
    /// The compaction in force, if that changed.
    pub(crate) compaction: Option<Option<CompactionRow>>,
}

/// The end of a log. Messages after `kept` are cut off, unless they are in `messages` again. A
/// message that is cut off stays stored only if its text is.
#[derive(Debug, Clone)]
pub(crate) struct LogEnd {
    /// The last message before the end, or zero.
    pub(crate) kept: i64,
    /// The messages of the end. Times and texts of known messages stay as they are stored; the text
    /// only if the identity is the same.
    pub(crate) messages: Vec<MessageRow>,
}

/// A wire message to store.
#[derive(Debug, Clone)]
pub(crate) struct NewTextRow {
    /// The wire message. The store gives it its number.
    pub(crate) row: TextRow,
    /// The messages in it.
    pub(crate) parts: Vec<TextPart>,
}

impl ArtifactChange {
    /// The second copy of a session's dictionary.
    pub(crate) fn dictionary(text: Packed) -> Self {
        let (engine, name) = DICTIONARY_COPY;
        Self {
            engine: engine.to_owned(),
            name: name.to_owned(),
            text: Some(text),
        }
    }
}

impl TextRow {
    /// The row of a session's dictionary.
    pub(crate) fn dictionary(text: Packed) -> Self {
        Self {
            number: DICTIONARY,
            format: String::new(),
            tools: None,
            reading: None,
            text,
        }
    }
}

/// A message that a wire message holds: its id, which of the messages in there it is from zero on,
/// and when it was said, if the client's document tells.
#[derive(Debug, Clone)]
pub(crate) struct TextPart {
    pub(crate) id: i64,
    pub(crate) part: i64,
    pub(crate) said_ms: Option<i64>,
}

/// An artifact to store in place of one with the same name. It is deleted if there is no text.
#[derive(Debug, Clone, Hash)]
pub(crate) struct ArtifactChange {
    pub(crate) engine: String,
    pub(crate) name: String,
    pub(crate) text: Option<Packed>,
}

/// The end of a wire log, from a place on. It replaces what is stored there.
#[derive(Debug, Clone)]
pub(crate) struct WireEnd {
    pub(crate) form: i64,
    pub(crate) from: i64,
    pub(crate) wires: Vec<WireRow>,
}

/// Everything that is stored under a name, for a copy to another store. The order of every list is
/// defined, because copies are compared by a checksum over all of it.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Dump {
    /// The session. None if there are only texts of embedders.
    pub(crate) session: Option<SessionDump>,
    /// The texts of embedders, as pairs of name and text, by name.
    pub(crate) kept: Vec<(String, String)>,
}

/// Everything that is stored of a session. Times are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct SessionDump {
    pub(crate) created_ms: i64,
    pub(crate) used_ms: Option<i64>,
    pub(crate) archived_ms: Option<i64>,
    pub(crate) row: SessionRow,
    /// All messages, those that were cut off included, by id.
    pub(crate) messages: Vec<MessageRow>,
    /// The wire messages by number.
    pub(crate) texts: Vec<TextRow>,
    /// The artifacts by engine and name.
    pub(crate) artifacts: Vec<ArtifactChange>,
    /// The wire logs by form and place.
    pub(crate) wire: Vec<WireRow>,
    /// The host's texts by id and identity.
    pub(crate) written: Vec<WrittenRow>,
    pub(crate) compaction: Option<CompactionRow>,
}

/// How much of a session was delivered to its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered {
    /// The id of the session.
    pub session: String,
    /// The name of the engine that the session runs under.
    pub engine: String,
    /// The last message that was delivered. None if the engine was shown nothing yet, or is to be
    /// shown everything anew.
    pub last: Option<MessageId>,
    /// How many messages were delivered, not counting those that were cut off.
    pub messages: u64,
}

/// What a list shows of a session: its engine, its size and its times. All times are in
/// milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSummary {
    /// The session's id.
    pub session: String,
    /// The engine that the session runs under. Empty if no engine was shown anything yet.
    pub engine: String,
    /// How many messages the record knows. Messages that were cut off count only if their text is
    /// stored.
    pub messages: u64,
    /// How many of the messages are part of the conversation. Messages that were cut off and
    /// earlier forms of a message do not count.
    pub in_conversation: u64,
    /// The size of the stored texts and artifacts in bytes, as they are compressed. What the tables
    /// need besides is not counted.
    pub bytes: u64,
    /// When the session was first opened.
    pub created_ms: i64,
    /// When the session was last written, or when it was created if nothing was written since.
    pub used_ms: i64,
    /// The time of the latest message. `None` if the client sent no times.
    pub said_ms: Option<i64>,
    /// When the session was archived. `None` if it is not archived.
    pub archived_ms: Option<i64>,
}

/// What the texts are that an embedder stores with a session. It decides whether they are masked in
/// a record that [redacts](crate::Record::redact).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptContent {
    /// Numbers, hashes, ids and settings, or words that must be repeated exactly. Never masked.
    Exact,
    /// What somebody wrote: the user, the model, or a tool. Secrets in it are masked.
    Conversation,
}

impl KeptContent {
    /// A text as it is stored.
    pub(crate) fn stored(self, text: &str, redacts: bool) -> Cow<'_, str> {
        match (self, redacts) {
            (Self::Conversation, true) => mask_secrets(text),
            _ => Cow::Borrowed(text),
        }
    }
}

/// A change of texts that are stored with a session and depend on a stored one, see
/// [`Record::change_kept`](crate::Record::change_kept). Several of them,
/// and the save of a session, can share a transaction.
pub struct KeptChange<'a> {
    pub(crate) session: String,
    pub(crate) name: String,
    content: KeptContent,
    change: Change<'a>,
    /// Whether the record masks secrets. It is set when the change is made.
    pub(crate) redacts: bool,
}

/// Returns the texts to store, as pairs of name and text, for the text that is stored.
type Change<'a> = Box<dyn FnMut(Option<String>) -> Vec<(String, String)> + 'a>;

impl<'a> KeptChange<'a> {
    /// A change of the texts of `session`. `change` gets the text that is stored under `name`, and
    /// returns the texts to store, as pairs of name and text. `content` says what all of them are.
    /// One of them should have the same name, because a database server notices by this text that
    /// somebody else made a change meanwhile. It then calls `change` again.
    ///
    /// With a file nobody else can write while it runs, so it should be quick. It must not use the
    /// record.
    pub fn new(
        session: &str,
        name: &str,
        content: KeptContent,
        change: impl FnMut(Option<String>) -> Vec<(String, String)> + 'a,
    ) -> Self {
        Self {
            session: session.to_owned(),
            name: name.to_owned(),
            content,
            change: Box::new(change),
            redacts: false,
        }
    }

    /// The texts to store for the text that is stored, as pairs of name and text.
    pub(crate) fn texts(&mut self, before: Option<String>) -> Vec<(String, String)> {
        let mut texts = (self.change)(before);
        for (_, text) in &mut texts {
            if let Cow::Owned(masked) = self.content.stored(text, self.redacts) {
                *text = masked;
            }
        }
        texts
    }
}

impl fmt::Debug for KeptChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptChange")
            .field("session", &self.session)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
