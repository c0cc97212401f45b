//! What a session knows of its conversation apart from the text: ids and hashes of messages, the
//! cursor up to which the engine was shown them, what the host wrote, and the compaction in force.
//!
//! Start with [`History`]. It holds the conversation twice. The `branch` is the conversation as it
//! stands. The `log` holds every message and revision in the order of arrival, with a chain hash,
//! and is what an engine is shown. Two wire logs remember what crossed the wire last: what the
//! client sent, and what the host rendered in its place. [`Shown`] has the engine's cursor, and
//! [`Texts`] says which texts the record has.
//!
//! Each change also marks in [`Unsaved`] what the record lacks, so that [`History::save`] writes
//! only that. Text is not kept here: it is in the window, in the request, or in the record. How a
//! record is stored is left to `contexture_transcript`.

use std::sync::Arc;

use contexture_contract::without_pins;
use contexture_engine_api::{CurrentCompaction, MessageId};
use contexture_formats::{Format, KnownCalls};
use contexture_transcript::{
    Fingerprint, HostText, HostTexts, IdMap, Ids, InForce, KeptChange, Known, Logged, NewArtifact,
    NewText, Origin, RecordError, Saved, SessionChange, SessionFacts, StoredMessage, StoredSession,
    WireEntry, WireLog, branch_of, chain_link,
};

use super::window_entry::WindowEntry;

/// The ids, hashes and positions that make up a session's knowledge of its conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The session's row in the record. None if there is no record, or if it can never be written
    /// again. Shared with a copy, which only reads.
    stored: Option<Arc<StoredSession>>,
    /// Why something that was said is not stored, for the user. None if all of it is, or if there is
    /// no record.
    pub(super) not_stored: Option<String>,
    /// The conversation as it stands, in the order of the conversation.
    branch: Vec<Known>,
    /// Every message that the engine is to be shown, earlier forms included, in the order of
    /// arrival. Messages that were cut off are not in it.
    log: Vec<Logged>,
    /// What the client sent last, followed by the answer to it.
    pub(super) sent: WireLog,
    /// What was sent to the model in place of it, followed by the answer. Empty if both are the
    /// same.
    rendered: WireLog,
    pub(super) host_texts: HostTexts,
    pub(super) shown: Shown,
    /// Messages that were cut off since the session was opened. Background answers about them are
    /// discarded.
    pub(super) cut_off: Ids,
    in_force: Option<InForce>,
    /// What is known of the session as a whole. `recovered` is cleared once the client sends all
    /// messages up to it in their own words.
    pub(super) facts: SessionFacts,
    /// The calls seen so far. A tool result names only its call, and the call its tool.
    pub(super) calls: KnownCalls,
    pub(super) texts: Texts,
    /// Whether the history was read from the record and the window does not hold its messages yet.
    /// The next request fills the window.
    pub(super) resumed: bool,
    unsaved: Unsaved,
}

/// What the engine was shown of the conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    /// The last message that the engine was shown, if any.
    cursor: Option<MessageId>,
    /// A cut that the engine was not told of yet, as the last message that stays. The inner `None`
    /// means that no message stays.
    pending_cut: Option<Option<MessageId>>,
    /// Whether either has changed since the record was last written.
    is_unsaved: bool,
}

impl Shown {
    /// The last message that the engine was shown. None if it was shown nothing.
    pub(super) fn cursor(&self) -> Option<MessageId> {
        self.cursor
    }

    /// A cut that the engine was not told of yet, as the last message that stays. The inner `None`
    /// means that no message stays.
    pub(super) fn pending_cut(&self) -> Option<Option<MessageId>> {
        self.pending_cut
    }

    /// Moves the cursor after a call that showed the engine the conversation up to `shown` and told
    /// it of a pending cut.
    pub(super) fn set_cursor(&mut self, shown: Option<MessageId>) {
        self.is_unsaved |= self.cursor != shown || self.pending_cut.is_some();
        (self.cursor, self.pending_cut) = (shown, None);
    }

    /// Moves the cursor back to `last`, if it is behind it.
    fn back_to(&mut self, last: Option<MessageId>) {
        self.is_unsaved |= last < self.cursor;
        self.cursor = self.cursor.min(last);
    }

    /// Notes a cut after `last`. The engine may not know of an earlier cut yet. It is told once, of
    /// the one that reaches further back.
    fn cut_after(&mut self, last: Option<MessageId>) {
        let earlier = self.pending_cut;
        self.pending_cut = Some(earlier.map_or(last, |earlier| earlier.min(last)));
        self.back_to(last);
        self.is_unsaved = true;
    }

    /// Forgets everything, because the engine is another one.
    fn reset(&mut self) {
        *self = Self {
            is_unsaved: true,
            ..Self::default()
        };
    }
}

/// Which texts of messages are stored, and which are still to be.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts {
    keeps: bool,
    /// Messages whose text should be stored and is not, because the session ran under an engine
    /// that needs no transcript. They are stored when the client sends them again.
    without_text: Ids,
    /// What the next save stores.
    unsaved: Vec<NewText>,
}

impl Texts {
    /// Whether the text of messages is stored.
    pub(super) fn are_kept(&self) -> bool {
        self.keeps
    }

    /// Messages whose text is to be stored as soon as the client sends it again.
    pub(super) fn missing(&self) -> &Ids {
        &self.without_text
    }

    /// The messages of `sent` whose text a request is read for: the `new` ones and, if texts are
    /// stored, all that share a wire message with one of them or with one that should have been
    /// stored before.
    pub(super) fn needed(&self, new: &Ids, sent: &WireLog) -> Ids {
        if !self.keeps {
            return new.clone();
        }
        let is_wanted = |id: MessageId| new.contains(&id) || self.without_text.contains(&id);
        let is_one_wire = |one: &WireEntry, next: &WireEntry| one.wires.start == next.wires.start;
        (sent.units.chunk_by(is_one_wire))
            .filter(|wire| wire.iter().any(|unit| is_wanted(unit.origin.id())))
            .flatten()
            .map(|unit| unit.origin.id())
            .collect()
    }

    /// Marks the text of a message as to be stored. Does nothing if the message was not read from a
    /// wire message.
    fn keep(&mut self, entry: &WindowEntry) {
        let Some((conversation, message, place)) = entry.in_wire() else {
            return;
        };
        self.without_text.remove(&entry.id());
        let part = (place, entry.id());
        let first = message - place;
        match self.unsaved.last_mut() {
            Some(last) if last.is_wire(conversation, first) => last.parts.push(part),
            _ => self.unsaved.push(NewText {
                conversation: Arc::clone(conversation),
                message: first,
                parts: vec![part],
            }),
        }
    }
}

/// What changed since the record was last written. The `_from` fields are the first index that
/// differs, or `usize::MAX` if nothing does.
#[derive(Debug, Clone)]
struct Unsaved {
    log_from: usize,
    sent_from: usize,
    rendered_from: usize,
    host_texts: Vec<HostText>,
    /// Whether the host's texts in the record are void, so that `host_texts` replaces them all.
    forgot: bool,
    in_force: bool,
    artifacts: Vec<NewArtifact>,
}

impl Unsaved {
    /// Marks the whole history as changed, so that it replaces what the record has. `written` must
    /// be everything that the host has written.
    fn everything(written: Vec<HostText>) -> Self {
        Self {
            log_from: 0,
            sent_from: 0,
            rendered_from: 0,
            host_texts: written,
            forgot: true,
            in_force: true,
            ..Self::default()
        }
    }
}

impl Default for Unsaved {
    fn default() -> Self {
        Self {
            log_from: usize::MAX,
            sent_from: usize::MAX,
            rendered_from: usize::MAX,
            host_texts: Vec::new(),
            forgot: false,
            in_force: false,
            artifacts: Vec::new(),
        }
    }
}

impl History {
    /// Builds the history from what the record has of a session. It is marked as resumed if there
    /// are any messages.
    pub(super) fn of(stored: StoredSession, saved: Saved) -> Self {
        let mut written = HostTexts::default();
        for text in saved.host_texts {
            written.add(text);
        }
        Self {
            stored: Some(Arc::new(stored)),
            resumed: !saved.log.is_empty(),
            branch: branch_of(&saved.log),
            sent: saved.sent,
            rendered: saved.rendered,
            host_texts: written,
            log: saved.log,
            shown: Shown {
                cursor: saved.cursor,
                pending_cut: saved.pending_cut,
                is_unsaved: false,
            },
            in_force: saved.compaction,
            facts: saved.facts,
            ..Self::default()
        }
    }

    /// Sets the engine that the session runs under. If another engine had the session, this one is
    /// shown the conversation from its beginning. Returns the name of the engine that had the
    /// session. Does nothing if the session is not stored.
    pub(super) fn set_engine(&mut self, engine: &str) -> Option<String> {
        let stored = Arc::get_mut(self.stored.as_mut()?)?;
        if stored.engine == engine {
            return None;
        }
        let before = std::mem::replace(&mut stored.engine, engine.to_owned());
        self.shown.reset();
        (!before.is_empty()).then_some(before)
    }

    /// Whether there is no record of what the host wrote for a message.
    pub(super) fn is_recovered(&self, id: MessageId) -> bool {
        self.facts.recovered.is_some_and(|last| id <= last)
    }

    /// Whether a text with this fingerprint is a shorter form of the message `id`.
    pub(super) fn is_short_form(&self, text: Fingerprint, id: MessageId) -> bool {
        let mut texts = self.host_texts.find(text.identity);
        texts.any(|text| text.shortens && text.id == id)
    }

    /// The conversation as it stands, in order. A revised message has a later id than the messages
    /// around it.
    pub(super) fn branch(&self) -> &[Known] {
        &self.branch
    }

    pub(super) fn format(&self) -> Option<Format> {
        self.facts.format
    }

    pub(super) fn in_force(&self) -> Option<&InForce> {
        self.in_force.as_ref()
    }

    /// The compaction in force in the form that an engine receives when it is opened. None if no
    /// compaction is in force.
    pub(super) fn current_compaction(&self) -> Option<CurrentCompaction> {
        let in_force = self.in_force.as_ref()?;
        let engine = in_force.engine.clone();
        let current = in_force.window.as_current(in_force.number, engine);
        let summaries = current.summaries.iter();
        let own = summaries
            .map(|text| without_pins(text).into_owned())
            .collect();
        Some(current.summaries(own))
    }

    /// Finds out which history a request continues: what the client sent, or what was sent to the
    /// model in its place. Returns the one that shares the longer beginning with the request, and
    /// the number of shared wire messages.
    pub(super) fn nearest(&self, raw: &[u64]) -> (&WireLog, usize) {
        let (sent, rendered) = (self.sent.common(raw), self.rendered.common(raw));
        match rendered > sent {
            true => (&self.rendered, rendered),
            false => (&self.sent, sent),
        }
    }

    pub(super) fn rendered(&self) -> &WireLog {
        &self.rendered
    }

    /// What crossed the wire to the model last: what was rendered, or what the client sent if that
    /// is the same.
    pub(super) fn last_body(&self) -> &WireLog {
        match self.rendered.is_empty() {
            true => &self.sent,
            false => &self.rendered,
        }
    }

    /// Appends a new message to the conversation. If `replaces` names a known message, the new one
    /// takes its place in the conversation, and the log keeps both.
    pub(super) fn append(&mut self, known: Known, replaces: Option<MessageId>) {
        let old = replaces.and_then(|old| self.branch.iter_mut().rfind(|known| known.id == old));
        match old {
            Some(old) => *old = known,
            None => self.branch.push(known),
        }
        self.unsaved.log_from = self.unsaved.log_from.min(self.log.len());
        self.log_message(known, replaces);
    }

    /// Appends a message to the log and continues the chain hash over it.
    fn log_message(&mut self, known: Known, replaces: Option<MessageId>) {
        let chain = self.log.last().map_or(0, |last| last.chain);
        self.log.push(Logged {
            id: known.id,
            fingerprint: known.fingerprint,
            chain: chain_link(chain, known.id, known.fingerprint.identity),
            replaces,
        });
    }

    /// Removes messages that were cut off, in every form that they had. Returns the last message
    /// before the first of them.
    ///
    /// What follows that message in the log and is still part of the conversation, such as the
    /// revision of an early message, is logged again, and the cursor moves back, so the engine is
    /// shown it again. The cut is noted as pending until the engine was told of it.
    pub(super) fn cut(&mut self, ids: &[MessageId]) -> Option<MessageId> {
        let replaces: IdMap<MessageId> = (self.log.iter())
            .filter_map(|logged| Some((logged.id, logged.replaces?)))
            .collect();
        let forms = |id: MessageId| std::iter::successors(Some(id), |id| replaces.get(id).copied());
        self.cut_off.extend(ids);
        let cut_off: Ids = ids.iter().copied().collect();
        self.branch.retain(|known| !cut_off.contains(&known.id));
        let last = ids
            .iter()
            .flat_map(|id| forms(*id))
            .min()
            .and_then(|first_lost| {
                let stays = self.log.partition_point(|logged| logged.id < first_lost);
                let still_there: Ids = self.branch.iter().map(|known| known.id).collect();
                self.unsaved.log_from = self.unsaved.log_from.min(stays);
                for logged in self.log.split_off(stays) {
                    if still_there.contains(&logged.id) {
                        // An intermediate form may have been cut off too. The form before it is
                        // then the one that is replaced.
                        let replaces = forms(logged.id)
                            .skip(1)
                            .find(|form| *form < first_lost || still_there.contains(form));
                        let known = Known {
                            id: logged.id,
                            fingerprint: logged.fingerprint,
                        };
                        self.log_message(known, replaces);
                    }
                }
                self.log.get(stays.checked_sub(1)?).map(|last| last.id)
            });
        self.shown.cut_after(last);
        last
    }

    /// Stores the session in this record. Called if the session was stored nowhere before.
    pub(super) fn store_in(&mut self, stored: StoredSession) {
        self.stored = Some(Arc::new(stored));
    }

    /// Begins to store the text of messages. If `redacts` is set, passwords and keys are masked
    /// before they are stored. Does not change what is stored already.
    pub(super) fn keep_texts(&mut self, redacts: bool) {
        self.texts.keeps = true;
        let Some(stored) = self.stored.as_mut().and_then(Arc::get_mut) else {
            return;
        };
        stored.redacts = redacts;
        match stored.without_text() {
            Ok(ids) => self.texts.without_text = ids.into_iter().collect(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Marks messages as to be stored in the words of the client. Messages of the same wire message
    /// must follow each other, since a wire message is stored once for all of them. Messages that
    /// were not read from a wire message are skipped.
    pub(super) fn keep<'s>(&mut self, said: impl IntoIterator<Item = &'s WindowEntry>) {
        if self.texts.keeps && self.stored.is_some() {
            said.into_iter().for_each(|entry| self.texts.keep(entry));
        }
    }

    /// Marks artifacts of engines as to be stored with the next save.
    pub(super) fn keep_artifacts(&mut self, artifacts: Vec<NewArtifact>) {
        self.unsaved.artifacts.extend(artifacts);
    }

    /// Reads the text of messages from the record. Returns those of `ids` that are in the log and
    /// stored, and also the messages that share a wire message with them. Empty if the record cannot
    /// be read.
    pub(super) fn stored(&self, ids: &Ids) -> Vec<StoredMessage> {
        let Some(stored) = &self.stored else {
            return Vec::new();
        };
        let logged = self.log.iter().map(|logged| logged.id);
        let ids: Vec<MessageId> = logged.filter(|id| ids.contains(id)).collect();
        stored.messages(&ids).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        })
    }

    /// The ids of the forms that a message had before, the latest first.
    pub(super) fn earlier_forms(&self, id: MessageId) -> impl Iterator<Item = MessageId> {
        std::iter::successors(self.form_before(id), |id| self.form_before(*id))
    }

    fn form_before(&self, id: MessageId) -> Option<MessageId> {
        self.logged(id)?.replaces
    }

    fn logged(&self, id: MessageId) -> Option<&Logged> {
        let at = self.log.binary_search_by_key(&id, |logged| logged.id);
        self.log.get(at.ok()?)
    }

    /// The last message of the log. None if the log is empty.
    pub(super) fn end(&self) -> Option<MessageId> {
        self.log.last().map(|last| last.id)
    }

    /// The part of the log after the message `last`, or the whole log if `last` is `None`.
    pub(super) fn after(&self, last: Option<MessageId>) -> &[Logged] {
        let from = last.map_or(0, |last| {
            self.log.partition_point(|logged| logged.id <= last)
        });
        self.log.get(from..).unwrap_or(&[])
    }

    /// Moves the cursor back before a message that the engine could not be shown. Messages that the
    /// engine has come again after it.
    pub(super) fn show_again(&mut self, id: MessageId) {
        let at = self.log.partition_point(|logged| logged.id < id);
        let before = at.checked_sub(1).and_then(|at| self.log.get(at));
        self.shown.back_to(before.map(|logged| logged.id));
    }

    /// Records what the client sent. Of the messages that it sent before, the first `kept` stay,
    /// and `units` follow them. `raw` holds the hashes of all wire messages of the request.
    pub(super) fn set_sent(
        &mut self,
        raw: &[u64],
        kept: usize,
        units: Vec<WireEntry>,
        format: Format,
    ) {
        let from = self.sent.unchanged(raw, kept, &units).saturating_sub(1);
        self.unsaved.sent_from = self.unsaved.sent_from.min(from);
        self.sent.raw.clear();
        self.sent.raw.extend_from_slice(raw);
        self.sent.units.truncate(kept);
        self.sent.units.extend(units);
        self.facts.format = Some(format);
        self.facts.recovered = self
            .facts
            .recovered
            .filter(|last| !self.was_sent_whole(*last));
    }

    /// Whether the client has sent all messages up to `last` in their own words. False if it has
    /// only a shorter form of one.
    fn was_sent_whole(&self, last: MessageId) -> bool {
        let said = self.sent.units.iter().filter_map(|unit| match unit.origin {
            Origin::Said(id) => Some(id),
            Origin::Shortened(_) | Origin::Host(_) => None,
        });
        let said: Ids = said.collect();
        let mut up_to = self.branch.iter().filter(|known| known.id <= last);
        up_to.all(|known| said.contains(&known.id))
    }

    /// Appends the answer to what the client sent, and to what was sent to the model if that
    /// differs.
    pub(super) fn answered(&mut self, raw: &[u64], units: &[WireEntry]) {
        self.unsaved.sent_from = self.unsaved.sent_from.min(self.sent.raw.len());
        self.sent.push(raw, units.iter().cloned());
        if !self.rendered.is_empty() {
            self.unsaved.rendered_from = self.unsaved.rendered_from.min(self.rendered.raw.len());
            self.rendered.push(raw, units.iter().cloned());
        }
    }

    /// Records what was sent to the model in place of the client's messages.
    pub(super) fn set_rendered(&mut self, rendered: WireLog) {
        if rendered == self.rendered {
            return;
        }
        // A message may span several wire messages and reach over the end of the common part, so
        // its first wire message is written again too.
        let unchanged = self.rendered.unchanged(&rendered.raw, 0, &rendered.units);
        let from = unchanged.saturating_sub(1);
        self.unsaved.rendered_from = self.unsaved.rendered_from.min(from);
        self.rendered = rendered;
    }

    /// Shortens what was sent to the model to its leading wire messages for which `stays` is true.
    /// Returns how many these are. A message that spans several wire messages stays whole or not at
    /// all.
    pub(super) fn keep_rendered(&mut self, stays: impl Fn(usize, u64) -> bool) -> usize {
        let raw = self.rendered.raw.iter().enumerate();
        let stay = raw.take_while(|(at, raw)| stays(*at, **raw)).count();
        let units = self.rendered.units_within(stay);
        // Cutting a message in the middle would leave a unit that points past the end.
        let wires =
            (self.rendered.units.get(units)).map_or(stay, |unit| unit.wires.start.min(stay));
        if wires < self.rendered.raw.len() {
            self.unsaved.rendered_from = self.unsaved.rendered_from.min(wires.saturating_sub(1));
            self.rendered.units.truncate(units);
            self.rendered.raw.truncate(wires);
        }
        wires
    }

    /// Appends a wire message of the client to what was sent to the model.
    pub(super) fn append_sent_wire(&mut self, wire: usize) {
        self.unsaved.rendered_from = self.unsaved.rendered_from.min(self.rendered.raw.len());
        self.sent.copy_wire(wire, &mut self.rendered);
    }

    /// Records a text that the host wrote, so that it is recognised when a client sends it back.
    /// Known texts are not added again.
    pub(super) fn write(&mut self, text: HostText) {
        if self.host_texts.add(text.clone()) {
            self.unsaved.host_texts.push(text);
        }
    }

    /// Renames messages in what the texts of the host stand for: `new` has the new id of each old
    /// one.
    pub(super) fn rename_covered(&mut self, new: &IdMap<MessageId>) {
        let renamed = self.host_texts.rename_covered(new);
        self.unsaved.host_texts.extend(renamed);
    }

    /// Sets the compaction in force. The change reaches the record with the next save.
    pub(super) fn set_in_force(&mut self, in_force: Option<InForce>) {
        self.unsaved.in_force |= in_force != self.in_force;
        self.in_force = in_force;
    }

    /// Whether anything has changed since the last [`save`](Self::save) apart from the cursor. That
    /// alone can wait for the next save: if it is lost, the same messages are delivered again.
    pub(super) fn has_more_to_save(&self) -> bool {
        let change = SessionChange {
            cursor: None,
            ..self.change(0)
        };
        !change.is_empty()
    }

    /// What has changed since the last [`save`](Self::save).
    fn change(&self, next_id: u64) -> SessionChange<'_> {
        let (unsaved, shown) = (&self.unsaved, &self.shown);
        SessionChange {
            next_id,
            facts: &self.facts,
            log: &self.log,
            log_from: unsaved.log_from,
            sent: &self.sent,
            sent_from: unsaved.sent_from,
            rendered: &self.rendered,
            rendered_from: unsaved.rendered_from,
            texts: &self.texts.unsaved,
            artifacts: &unsaved.artifacts,
            forgot: unsaved.forgot,
            host_texts: &unsaved.host_texts,
            in_force: unsaved.in_force.then_some(self.in_force.as_ref()),
            cursor: (shown.is_unsaved).then_some((shown.cursor, shown.pending_cut)),
        }
    }

    /// Whether there is a place to write the session to. False without a record, and after a failure
    /// that cannot pass.
    pub(super) fn has_place(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether the session is stored in a file, and not only in memory.
    pub(super) fn is_stored(&self) -> bool {
        self.stored
            .as_ref()
            .is_some_and(|stored| stored.is_in_file())
    }

    /// Whether the file has everything that was saved.
    pub(super) fn is_confirmed(&self) -> bool {
        let stored = self.stored.as_ref();
        stored.is_some_and(|stored| stored.is_in_file() && stored.is_confirmed())
    }

    /// Writes what changed in one transaction, and before it what could not be written earlier.
    ///
    /// `changes` of texts become part of the transaction. Those that were not made stay in the list.
    ///
    /// # Errors
    /// The store cannot be written. If that [may pass](RecordError::may_pass), a later call writes it.
    /// Otherwise the session is no longer stored.
    pub(super) fn save(
        &mut self,
        next_id: u64,
        changes: &mut Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        // The engine of a session is stored with its first message. Otherwise a request that was given
        // up would leave a session behind that has its name and nothing else.
        if self.log.is_empty() && !self.has_more_to_save() {
            return Ok(());
        }
        let saved = match &self.stored {
            None => Ok(()),
            Some(stored) => {
                let change = self.change(next_id);
                match stored.is_in_file() {
                    _ if change.is_empty() && stored.is_confirmed() => Ok(()),
                    true => stored.save(&change, changes),
                    // The record that the changes are meant for is another one.
                    false => stored.save(&change, &mut Vec::new()),
                }
            }
        };
        // What could not be written is kept by `stored`.
        self.unsaved = Unsaved::default();
        self.shown.is_unsaved = false;
        self.texts.unsaved.clear();
        if saved.as_ref().is_err_and(|error| !error.may_pass()) {
            self.stored = None;
        }
        saved
    }

    /// Forgets the conversation and what the host wrote for it. The counters of the session stay.
    pub(super) fn forget(&mut self) {
        *self = Self {
            stored: self.stored.take(),
            not_stored: self.not_stored.take(),
            facts: SessionFacts {
                pauses: self.facts.pauses,
                compactions: self.facts.compactions,
                ..SessionFacts::default()
            },
            texts: Texts {
                keeps: self.texts.keeps,
                ..Texts::default()
            },
            unsaved: Unsaved::everything(Vec::new()),
            ..Self::default()
        };
        self.shown.reset();
    }
}

/// The warning for the user if the record cannot be used.
pub(super) fn without_record(error: &RecordError) -> String {
    let until = match error.may_pass() {
        true => "until it can be stored",
        false => "and will not survive a restart whole",
    };
    format!("this session goes on in memory {until}: {error}")
}
