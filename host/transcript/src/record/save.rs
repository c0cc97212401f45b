//! Writing a session to the record.
//!
//! [`SessionChange`] describes what changed since the last save, and [`StoredSession::save`] writes
//! exactly that in one transaction. A turn saves at least once, so a write must stay small even in
//! a long conversation: lists are written from the first index that differs. A change that could not
//! be written is kept, and written before the next one.
//!
//! Messages that were cut off stay stored if their text is, marked as cut, so that a transcript can
//! still show them. Reading is in `load`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contexture_base::{lock, now_ms};
use contexture_engine_api::MessageId;
use contexture_formats::Format;

use super::dictionary::Packing;
use super::load::{Saved, SessionFacts};
use super::texts::{NewArtifact, NewText, RawText};
use super::{InForce, Record, WireForm};
use crate::error::RecordError;
use crate::host_text::HostText;
use crate::message_log::Logged;
use crate::packed::Dictionary;
use crate::store::{
    ArtifactChange, Commit, CompactionRow, KeptChange, LogEnd, MessageRow, SessionKey, SessionRow,
    TextRow, WireEnd, WireRow, WrittenRow,
};
use crate::wire_entries::encode;
use crate::wire_log::WireLog;

/// The longest pause before a save is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What changed in a session since the last save. The `_from` fields are the first index that
/// differs from what is stored, or `usize::MAX` if nothing does.
#[derive(Debug)]
pub struct SessionChange<'a> {
    /// The id of the next new message.
    pub next_id: u64,
    /// What is known of the session as a whole.
    pub facts: &'a SessionFacts,
    /// Every message in the order of arrival.
    pub log: &'a [Logged],
    /// The first message of the log that differs.
    pub log_from: usize,
    /// What the client sent last.
    pub sent: &'a WireLog,
    /// The first wire message of `sent` that differs.
    pub sent_from: usize,
    /// What was sent to the model in place of it.
    pub rendered: &'a WireLog,
    /// The first wire message of `rendered` that differs.
    pub rendered_from: usize,
    /// The wire messages to store, with the messages in them. Empty if the session stores no text.
    pub texts: &'a [NewText],
    /// Artifacts that engines stored or deleted.
    pub artifacts: &'a [NewArtifact],
    /// Whether the host's texts in the record are void. They are deleted before `written` is added.
    pub forgot: bool,
    /// The texts that the host wrote since the last save.
    pub host_texts: &'a [HostText],
    /// The compaction in force, if that changed. The inner `None` means that none is in force any
    /// more.
    pub in_force: Option<Option<&'a InForce>>,
    /// The last message that the engine was shown and the cut that it was not told of, if either
    /// changed.
    pub cursor: Option<(Option<MessageId>, Option<Option<MessageId>>)>,
}

impl SessionChange<'_> {
    /// Whether nothing changed that is worth a write. The id and the facts are written
    /// together with the next other change.
    pub fn is_empty(&self) -> bool {
        let from = [self.log_from, self.sent_from, self.rendered_from];
        from == [usize::MAX; 3]
            && self.host_texts.is_empty()
            && self.in_force.is_none()
            && self.cursor.is_none()
            && self.texts.is_empty()
            && self.artifacts.is_empty()
    }
}

/// A session in the store: its row, and what is needed to write its changes.
#[derive(Debug)]
pub struct StoredSession {
    pub(super) record: Arc<Record>,
    pub(super) key: SessionKey,
    /// The name of the engine that the session runs under.
    pub engine: String,
    /// Whether passwords and keys in texts are masked before they are written.
    pub redacts: bool,
    packing: Mutex<Packing>,
    unconfirmed: Mutex<Unconfirmed>,
}

/// What the store has not confirmed.
#[derive(Debug, Default)]
struct Unconfirmed {
    /// The commits, oldest first. The store may have made the first of them although it reported an
    /// error, so exactly that one is repeated.
    commits: VecDeque<Arc<Commit>>,
    /// Until when nothing is tried. A turn would otherwise wait for a locked file in each of its saves.
    pauses_until: Option<Instant>,
}

impl StoredSession {
    /// Reads the session with this id. If there is none, it is created. Returns the place to write
    /// its changes to, and what is stored of it.
    ///
    /// Lock the session with [`Record::hold`] before. What is written later is refused once that
    /// lock is lost.
    ///
    /// # Errors
    /// The file cannot be read or written, or what is stored of the session is damaged.
    pub fn open(record: &Arc<Record>, id: &str) -> Result<(Self, Saved), RecordError> {
        record.is_itself()?;
        let (key, snapshot) = record.store.open(id)?;
        let saved = Saved::of(&snapshot, id).map_err(|what| record.store.damaged(what))?;
        let stored = Self {
            record: Arc::clone(record),
            key,
            engine: saved.engine.clone(),
            redacts: false,
            packing: Mutex::default(),
            unconfirmed: Mutex::default(),
        };
        Ok((stored, saved))
    }

    /// Whether the session survives the process. False if the store is only in memory.
    pub fn is_in_file(&self) -> bool {
        !self.record.store.is_in_memory()
    }

    /// Whether the store has everything that was saved. False after a save that failed, until a
    /// later one succeeds.
    pub fn is_confirmed(&self) -> bool {
        lock(&self.unconfirmed).commits.is_empty()
    }

    /// Writes what changed in one transaction, and `changes` of texts with it. Made changes leave the
    /// list. In a database they are made before the transaction.
    ///
    /// If it fails, what changed is kept in memory, and the next save writes it first, with an empty
    /// change too. It is written once, also if the store reported an error for what it had written.
    /// After a failure that took long, saves of the next two seconds write nothing, see
    /// [`is_confirmed`](Self::is_confirmed).
    ///
    /// # Errors
    /// The file cannot be written, or it was removed while it was in use.
    pub fn save(
        &self,
        change: &SessionChange<'_>,
        changes: &mut Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        self.record.redact_in(changes);
        let mut unconfirmed = lock(&self.unconfirmed);
        if !change.is_empty() {
            let commit = Arc::new(self.pack(change)?);
            unconfirmed.commits.push_back(commit);
        }
        let began = Instant::now();
        if unconfirmed.pauses_until.is_some_and(|until| began < until) {
            return Ok(());
        }
        while let Some(commit) = unconfirmed.commits.front() {
            if let Err(error) = self.record.store.commit(&self.key, commit, changes) {
                let pause = began.elapsed().saturating_mul(10).min(LONGEST_PAUSE);
                unconfirmed.pauses_until = Some(Instant::now() + pause);
                return Err(error);
            }
            unconfirmed.commits.pop_front();
        }
        Ok(())
    }

    /// The rows of a change, with its texts compressed.
    fn pack(&self, change: &SessionChange<'_>) -> Result<Commit, RecordError> {
        let mut packing = lock(&self.packing);
        if matches!(*packing, Packing::Unread) && !change.texts.is_empty() {
            // If the store cannot be read now, these texts do without a dictionary.
            *packing = self.record.packing(&self.key.session).unwrap_or_default();
        }
        let texts = change.texts.iter();
        let texts: Vec<RawText<'_>> = texts.map(|text| text.raw(self.redacts)).collect();
        let words = texts.iter().map(|text| &*text.json);
        let (next, is_new) = std::mem::take(&mut *packing).with_texts(words);
        *packing = next;
        self.commit(change, &texts, packing.dictionary(), is_new)
            .map_err(|error| self.record.store.damaged(error.to_string()))
    }

    /// The rows of a change. Its texts are `raw`, and if the dictionary is new, it is stored with
    /// them.
    fn commit(
        &self,
        change: &SessionChange<'_>,
        raw: &[RawText<'_>],
        dictionary: Option<&Dictionary>,
        is_new: bool,
    ) -> std::io::Result<Commit> {
        let has_texts = !(change.texts.is_empty() && change.artifacts.is_empty());
        let encoder = dictionary.filter(|_| has_texts);
        let encoder = encoder.and_then(Dictionary::encoder);
        let encoder = encoder.as_deref();
        let new = dictionary.filter(|_| is_new).map(Dictionary::packed);
        let new = new.transpose()?;
        let copy = new.clone().map(ArtifactChange::dictionary);
        let artifacts = change.artifacts.iter().map(|new| new.row(encoder));
        let id = |id: MessageId| id.0.cast_signed();
        let (pauses_more, pauses_saved) = change.facts.pauses.to_store();
        let (cursor, pending_cut) = change.cursor.unwrap_or_default();
        let wires = [
            (WireForm::SentPrompt, change.sent, change.sent_from),
            (WireForm::Rendered, change.rendered, change.rendered_from),
        ];
        Ok(Commit {
            now_ms: now_ms(),
            session: SessionRow {
                next_id: change.next_id.cast_signed(),
                engine: self.engine.clone(),
                format: change.facts.format.map_or("", Format::name).to_owned(),
                shown_last: cursor.map(id),
                // No message has the id zero, so it can say that none stays.
                pending_cut: pending_cut.map(|last| last.map_or(0, id)),
                recovered: change.facts.recovered.map(id),
                pauses_more,
                pauses_saved,
                compactions: change.facts.compactions.cast_signed(),
                usage: change.facts.usage.clone(),
            },
            moves_cursor: change.cursor.is_some(),
            // None if nothing differs, because `usize::MAX` is past every end.
            log: change.log.get(change.log_from..).map(|messages| {
                let kept = change.log.get(..change.log_from).and_then(<[_]>::last);
                LogEnd {
                    kept: kept.map_or(0, |last| id(last.id)),
                    messages: messages.iter().map(message_row).collect(),
                }
            }),
            dictionary: new.map(TextRow::dictionary),
            texts: (change.texts.iter().zip(raw))
                .map(|(text, raw)| text.row(raw, self.redacts, encoder))
                .collect::<Result<_, _>>()?,
            artifacts: (copy.map(Ok).into_iter().chain(artifacts)).collect::<Result<_, _>>()?,
            wires: (wires.into_iter())
                .filter(|(.., from)| *from != usize::MAX)
                .map(|(form, log, from)| wire_end(form, log, from))
                .collect(),
            forgot: change.forgot,
            written: (change.host_texts.iter())
                .map(written_row)
                .collect::<Result<_, _>>()?,
            compaction: change
                .in_force
                .map(|in_force| in_force.map(compaction_row).transpose())
                .transpose()?,
        })
    }
}

/// The row of a message in the log. Its times and its text are not known here, and are left to the
/// store.
fn message_row(message: &Logged) -> MessageRow {
    MessageRow {
        id: message.id.0.cast_signed(),
        identity: message.fingerprint.identity.to_le_bytes(),
        shape: message.fingerprint.shape.cast_signed(),
        chain: message.chain.cast_signed(),
        replaces: message.replaces.map(|old| old.0.cast_signed()),
        ..MessageRow::default()
    }
}

/// The rows of a wire log from the first wire message that differs.
fn wire_end(form: WireForm, log: &WireLog, from: usize) -> WireEnd {
    let wires = log.raw.iter().enumerate().skip(from).map(|(place, raw)| {
        let mut messages = Vec::new();
        for unit in log.beginning_in(place) {
            encode(unit, &mut messages);
        }
        WireRow {
            form: form as i64,
            place: place as i64,
            raw: raw.cast_signed(),
            messages,
        }
    });
    WireEnd {
        form: form as i64,
        from: from as i64,
        wires: wires.collect(),
    }
}

/// The row of a text of the host: the hash by which it is recognised when the client sends it back,
/// and the messages that it covers.
fn written_row(text: &HostText) -> std::io::Result<WrittenRow> {
    Ok(WrittenRow {
        identity: text.identity.to_le_bytes(),
        id: text.id.0.cast_signed(),
        shortens: text.shortens,
        covers: serde_json::to_string(&text.covers)?,
    })
}

/// The row of the compaction in force, with its window as JSON.
fn compaction_row(compaction: &InForce) -> std::io::Result<CompactionRow> {
    Ok(CompactionRow {
        number: compaction.number.cast_signed(),
        engine: compaction.engine.clone(),
        entries: serde_json::to_string(&compaction.window)?,
    })
}
