//! Where readers put what they find, on the way to the database.
//!
//! Readers run on the thread of the import, and the database is written by another. [`Output`]
//! prepares each entry, so that the work is shared: secrets are masked and words are prepared here.
//! It sends the entries in groups through a bounded channel. If the database is slower, the reader
//! waits, so memory stays bounded.

use std::borrow::Cow;
use std::sync::mpsc::SyncSender;

use contexture_secrets::mask_secrets;
use xxhash_rust::xxh3::xxh3_64;

use crate::entry::Entry;
use crate::sources::Stamp;
use crate::words;

/// The number of bytes of entries that are sent at once. With the number of groups that may wait,
/// this bounds the memory between reader and database to about 2 MB, unless a single entry is
/// larger.
const GROUP_BYTES: usize = 256 << 10;

/// What the writer is told, in order.
pub(crate) enum Event {
    /// A log is being read. What follows belongs to it.
    Source {
        path: String,
        agent: &'static str,
        /// Whether the entries may be stored already, because the log is read again from its
        /// beginning.
        is_again: bool,
    },
    /// The conversation of the following entries.
    Conversation {
        session: String,
        project: Option<String>,
        title: Option<String>,
    },
    Entry(Prepared),
    /// The log was read up to this byte. A transaction may end here. If the process is killed after
    /// that, the next import goes on here.
    At(u64),
    /// The log was read to its end. If this does not come, the log has no stamp and is read on at
    /// the next import.
    End {
        stamp: Stamp,
        offset: u64,
        tail: u64,
    },
}

/// An entry that is ready to be stored.
pub(crate) struct Prepared {
    pub(crate) entry: Entry,
    /// What the index gets if it differs from the text: with the tool's name, and cut into words.
    /// `None` if the index gets the stored text, which saves a copy of most texts.
    pub(crate) indexed: Option<String>,
    /// A hash of what it says. It is equal in all copies of a message, for example if an agent
    /// copies the conversation into the log of a resumed session. Ids and times are not part of it.
    pub(crate) hash: i64,
}

/// Where readers put entries. Entries belong to the conversation that was named last.
pub(crate) struct Output<'a> {
    sender: &'a SyncSender<Vec<Event>>,
    events: Vec<Event>,
    bytes: usize,
    redacts: bool,
    /// The conversation that was named last, until its first entry.
    conversation: Option<Event>,
    /// The number of entries of the current log.
    pub(crate) entries: u64,
    /// The number of lines or documents of the current log that could not be read.
    pub(crate) damaged: u64,
    /// Why the first of them could not be read.
    pub(crate) damage: Option<String>,
}

impl<'a> Output<'a> {
    pub(crate) fn new(sender: &'a SyncSender<Vec<Event>>, redacts: bool) -> Self {
        Self {
            sender,
            events: Vec::new(),
            bytes: 0,
            redacts,
            conversation: None,
            entries: 0,
            damaged: 0,
            damage: None,
        }
    }

    /// Names the conversation of the entries that follow. One without entries is not stored. If a
    /// conversation is named again, it goes on, and a project or title that was not known before is
    /// added.
    pub(crate) fn conversation(
        &mut self,
        session: &str,
        project: Option<&str>,
        title: Option<&str>,
    ) {
        let text = |text: Option<&str>| {
            text.filter(|text| !text.is_empty())
                .map(|text| self.masked(text).into_owned())
        };
        let (project, title) = (text(project), text(title));
        self.conversation = Some(Event::Conversation {
            session: session.to_owned(),
            project,
            title,
        });
    }

    /// The text as it may be stored. If secrets are masked, this happens before the text leaves the
    /// reader, so neither the blocks nor the index ever have them.
    fn masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redacts {
            true => mask_secrets(text),
            false => Cow::Borrowed(text),
        }
    }

    /// Stores an entry. One without text is left out, unless it is a tool call, whose name is text.
    pub(crate) fn entry(&mut self, mut entry: Entry) {
        if entry.text.trim().is_empty() && entry.name.is_none() {
            return;
        }
        if self.redacts {
            if let Cow::Owned(masked) = mask_secrets(&entry.text) {
                entry.text = masked;
            }
            entry.name = entry.name.map(|name| mask_secrets(&name).into_owned());
        }
        // People search for a tool by its name as much as for what it was given.
        let full = match &entry.name {
            Some(name) => Cow::Owned(format!("{name}\n{}", entry.text)),
            None => Cow::Borrowed(&*entry.text),
        };
        let indexed = match (words::indexed(&full), &entry.name) {
            (Cow::Borrowed(_), None) => None,
            (indexed, _) => Some(indexed.into_owned()),
        };
        // The kinds differ in the lowest bits, so that a call and its echo are not copies.
        let hash = xxh3_64(full.as_bytes())
            .wrapping_add(entry.kind as u64)
            .cast_signed();
        if let Some(conversation) = self.conversation.take() {
            self.events.push(conversation);
        }
        self.entries += 1;
        self.bytes += entry.text.len() + indexed.as_ref().map_or(0, String::len);
        self.put(Event::Entry(Prepared {
            entry,
            indexed,
            hash,
        }));
    }

    /// Counts a piece of the log that cannot be read.
    pub(crate) fn damaged(&mut self, why: impl FnOnce() -> String) {
        self.damaged += 1;
        self.damage.get_or_insert_with(why);
    }

    pub(crate) fn put(&mut self, event: Event) {
        self.events.push(event);
        // Positions in a log have no bytes. If only bytes counted, a log of many lines that say
        // nothing would be collected in memory.
        if self.bytes >= GROUP_BYTES || self.events.len() >= 4_096 {
            self.flush();
        }
    }

    /// Sends what is left. If the writer has failed, the entries are dropped: its error ends the
    /// import.
    pub(crate) fn flush(&mut self) {
        let events = std::mem::take(&mut self.events);
        self.bytes = 0;
        let _ = self.sender.send(events);
    }
}
