//! The window after a request: what was in it before, with what the request changed and added.
//!
//! Read [`ConversationState::update_window`] first. If the request only adds messages, they are
//! appended. If a compaction is in force and still valid, its window is carried over and the rest
//! of the conversation is inserted at its position. Otherwise the window is what the request shows.
//!
//! A compaction becomes void if one of its summaries covers messages that were edited or partly cut
//! off, because the summary would tell the model of something that was not said. The alignment that
//! led here is in `align` and `ingest`.

use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind};
use contexture_formats::FormatError;

use contexture_transcript::{IdMap, IdSet, Ids, InForce, Known, Origin, WireEntry};

use super::Ingested;
use super::compare::Compared;

use crate::conversation::ConversationState;
use crate::history::History;
use crate::request::{Request, split_off_host_words};
use crate::window::Window;
use crate::window_entry::WindowEntry;

/// What a request changes in the conversation.
pub(crate) struct Changes {
    pub(crate) unmatched: Ids,
    pub(crate) cut: bool,
    /// The last message before the cut.
    pub(crate) after: Option<MessageId>,
    /// The new ids of messages that were edited, by the old ids.
    pub(crate) revised: IdMap<MessageId>,
    /// The new ids of messages that follow an insertion, by the old ids.
    pub(crate) said_again: IdMap<MessageId>,
    /// Whether the request holds the whole conversation and adds messages only at the end.
    pub(crate) appends: bool,
    /// Whether the request begins with everything that the client sent last.
    pub(crate) repeats_last: bool,
    /// What the client sent last in its own words. Empty if a message of the user's was cut off or
    /// edited, so that an earlier one may be the last now.
    pub(crate) settled: Ids,
    /// Texts of the host that the client sent before and sends no more.
    pub(crate) withdrawn: Ids,
}

impl Changes {
    /// What a request changes whose messages have their origins. `history` is the one before the
    /// request. What comes before the cut is not known yet.
    pub(super) fn of(
        compared: &Compared,
        ingested: &Ingested,
        history: &History,
        repeats_last: bool,
    ) -> Self {
        let alignment = &compared.alignment;
        let said_again = alignment.said_again.iter().filter_map(|(old, at)| {
            let at = compared.aligned.get(*at)?;
            Some((*old, compared.incoming.get(*at)?.origin?.id()))
        });
        let revised = ingested.revised.iter().map(|(new, old)| (*old, *new));
        let mut changes = Self {
            unmatched: alignment.unmatched.iter().copied().collect(),
            cut: alignment.cut,
            after: None,
            revised: revised.collect(),
            said_again: said_again.collect(),
            appends: compared.appends,
            repeats_last,
            settled: Ids::default(),
            withdrawn: withdrawn_texts(compared, history),
        };
        changes.settled = changes.settled(history);
        changes
    }

    /// What is settled. `history` is the one before the request.
    fn settled(&self, history: &History) -> Ids {
        let goes = |known: &Known| {
            let is_cut_off = self.cut && self.unmatched.contains(&known.id);
            is_cut_off || self.revised.contains_key(&known.id)
        };
        let mut of_user = (history.branch().iter()).filter(|known| known.fingerprint.is_of_user());
        if self.repeats_last || of_user.any(goes) {
            return Ids::default();
        }
        let said = history.sent.units.iter().filter(|unit| unit.is_said());
        said.map(|unit| unit.origin.id()).collect()
    }
}

/// The texts of the host that the client sent last and that the request lacks. `history` is the one
/// before the request.
fn withdrawn_texts(compared: &Compared, history: &History) -> Ids {
    let sent = (compared.incoming.iter()).filter_map(|new| Some(new.origin?.id()));
    let sent: Ids = sent.collect();
    let before = history.sent.units.iter().skip(compared.kept);
    (before.filter(|unit| matches!(unit.origin, Origin::Host(_))))
        .map(|unit| unit.origin.id())
        .filter(|id| !sent.contains(id))
        .collect()
}

impl ConversationState {
    /// Replaces the window by the one that follows from the request. `read` holds the messages that
    /// were already parsed, `new` the ids of new messages in order.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    pub(crate) fn update_window(
        &mut self,
        request: &Request<'_>,
        changes: &Changes,
        read: &IdMap<WindowEntry>,
        new: &[MessageId],
        next_id: u64,
    ) -> Result<(), FormatError> {
        let resumed = self.history.resumed;
        self.keep_short(read);
        // After a rewind, or an edit that leaves the last message empty, the user's last words may be
        // under a summary or shortened. The model must see them in full if the client sends them so.
        // An engine may have shortened them when they were the last already.
        let may_hide_the_user = !changes.repeats_last;
        if changes.appends && !resumed && !self.window.is_empty() {
            let window = Arc::make_mut(&mut self.window);
            window.set_next_id(next_id);
            for entry in new.iter().filter_map(|id| read.get(id)) {
                window.push_entry(entry.clone());
            }
            let window = Arc::clone(&self.window);
            if !may_hide_the_user
                || !self.hides_last_user(request, changes, read, window.entries())?
            {
                return Ok(());
            }
        }
        let in_force = self.history.in_force();
        let in_force = in_force.filter(|in_force| !self.is_void(in_force, changes));
        let mut applied = None;
        if let Some(in_force) = in_force.cloned() {
            let entries = self.window_in_force(request, &in_force, changes, read)?;
            let hides_the_user =
                may_hide_the_user && self.hides_last_user(request, changes, read, &entries)?;
            let note = in_force.window.system_note.clone();
            applied = (!hides_the_user).then_some((entries, note, Some(in_force)));
        }
        let (entries, note, mut in_force) = match applied {
            Some(applied) => applied,
            None => {
                let entries = self.window_as_sent(request, read)?;
                let said_all = self.history.sent.units.iter().all(WireEntry::is_said);
                // The request holds texts of the host, so after a restart the window cannot be
                // derived from the conversation alone.
                let derived = (!said_all).then(|| InForce {
                    number: self.history.facts.compactions,
                    engine: String::new(),
                    window: Default::default(),
                });
                (entries, None, derived)
            }
        };
        let window = Window::of(entries, note, next_id);
        if let Some(in_force) = &mut in_force {
            let left_out = self.left_out(&window, in_force, changes);
            in_force.window = window.save(left_out);
        }
        self.replace_window(window);
        self.history.set_in_force(in_force);
        Ok(())
    }

    /// Messages that the window shows in a shorter form of the client's stay shortened when the
    /// client sends them in full. Otherwise they would be shown in full and counted as short.
    fn keep_short(&mut self, read: &IdMap<WindowEntry>) {
        let whole = |entry: &WindowEntry| {
            let whole = entry.is_of_lost_record().then(|| read.get(&entry.id()));
            whole.flatten().filter(|whole| whole.is_original())
        };
        let mut entries = self.window.entries().iter();
        if !entries.any(|entry| whole(entry).is_some()) {
            return;
        }
        self.replace_window(self.window.with_originals(whole));
        // The saved window said that it shows what the client sends.
        if let Some(mut in_force) = self.history.in_force().cloned() {
            in_force.window = self.window.save(in_force.window.left_out.clone());
            self.history.set_in_force(Some(in_force));
        }
    }

    /// Whether the request has the user's last message in full, and these window entries lack it or
    /// have only a shorter form of it. False if that is settled.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    fn hides_last_user(
        &mut self,
        request: &Request<'_>,
        changes: &Changes,
        read: &IdMap<WindowEntry>,
        entries: &[WindowEntry],
    ) -> Result<bool, FormatError> {
        let placed: IdMap<&WindowEntry> = entries.iter().map(|entry| (entry.id(), entry)).collect();
        let units = self.history.sent.units.iter().rev();
        let units: Vec<(MessageId, bool)> = units
            .map(|unit| (unit.origin.id(), unit.is_said()))
            .collect();
        for (id, is_said) in units {
            let may_be_hidden = is_said && !changes.settled.contains(&id);
            if let Some(entry) = placed.get(&id) {
                if entry.is_real_user() {
                    return Ok(may_be_hidden && !entry.is_verbatim());
                }
                continue;
            }
            let hidden = self.entries_of(request, read, |other| other == id)?;
            if hidden.values().any(WindowEntry::is_real_user) {
                return Ok(may_be_hidden);
            }
        }
        Ok(false)
    }

    /// Whether the compaction in force must be given up, because one of its summaries covers
    /// messages that were edited or partly cut off. Always false if the request only adds messages.
    fn is_void(&self, in_force: &InForce, changes: &Changes) -> bool {
        let is_cut_off = |id: MessageId| changes.cut && changes.unmatched.contains(&id);
        // The engine forgets everything after the cut, its summaries included, before it is shown
        // these messages again.
        let comes_again = |id: MessageId| changes.cut && Some(id) > changes.after;
        let covers = |place| self.history.host_texts.covers(place);
        !changes.appends
            && in_force.window.ids().filter_map(covers).any(|covers| {
                let touched =
                    |id| is_cut_off(id) || comes_again(id) || changes.revised.contains_key(&id);
                // If all messages of a summary are gone, the summary goes with them and the rest stays
                // valid.
                covers.iter().any(touched) && !covers.iter().all(is_cut_off)
            })
    }

    /// The window of the compaction in force, with the changes of the request applied. Messages
    /// that were cut off leave it, and messages that have no place in it yet are inserted in the
    /// order of the conversation.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    fn window_in_force(
        &mut self,
        request: &Request<'_>,
        in_force: &InForce,
        changes: &Changes,
        read: &IdMap<WindowEntry>,
    ) -> Result<Vec<WindowEntry>, FormatError> {
        let (places, entries) = match self.history.resumed {
            false => {
                let entries = self.window.entries();
                let places = entries.iter().map(WindowEntry::id).collect();
                (places, entries.to_vec())
            }
            true => {
                let places: Vec<MessageId> = in_force.window.ids().collect();
                (
                    places,
                    self.saved_entries(request, in_force, changes, read)?,
                )
            }
        };
        let next = self.carried_over(&places, entries, changes, read);
        let placed: Ids = next.iter().map(WindowEntry::id).collect();
        let left_out = &in_force.window.left_out;
        let unplaced: Ids = (self.history.branch().iter())
            .map(|known| known.id)
            .filter(|id| !placed.contains(id) && !left_out.contains(*id))
            .collect();
        let since = self.entries_of(request, read, |id| unplaced.contains(&id))?;
        Ok(self.insert_since(next, since))
    }

    /// The entries of a window that was saved, under the ids that they had then. Entries whose
    /// messages the request lacks are missing.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    fn saved_entries(
        &mut self,
        request: &Request<'_>,
        in_force: &InForce,
        changes: &Changes,
        read: &IdMap<WindowEntry>,
    ) -> Result<Vec<WindowEntry>, FormatError> {
        let wanted: Ids = in_force.window.ids().collect();
        // Messages that are said again or edited are found under the ids of the saved window.
        let forms: IdMap<MessageId> = (changes.revised.iter())
            .chain(&changes.said_again)
            .map(|(old, new)| (*new, *old))
            .collect();
        let then = |id: MessageId| forms.get(&id).copied().unwrap_or(id);
        let messages = self.entries_of(request, read, |id| wanted.contains(&then(id)))?;
        let messages = messages
            .into_iter()
            .map(|(id, entry)| (then(id), entry.renamed(then(id))))
            .collect();
        Ok(Window::restore(&in_force.window, &messages, &self.counter))
    }

    /// The entries of the earlier window that stay, in their present form. `places` are the ids of
    /// the whole earlier window, and `entries` those of its entries that are known.
    fn carried_over(
        &self,
        places: &[MessageId],
        entries: Vec<WindowEntry>,
        changes: &Changes,
        read: &IdMap<WindowEntry>,
    ) -> Vec<WindowEntry> {
        let went = |id| changes.unmatched.contains(&id);
        let went_with = |covers: Option<&IdSet>| {
            covers.is_some_and(|covers| !covers.is_empty() && covers.iter().all(went))
        };
        let mut next = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter().peekable();
        let mut last_went = false;
        let mut last_is_revised = false;
        for id in places {
            // After a restart, nothing is known of a message that the client does not send.
            let Some(entry) = entries.next_if(|entry| entry.id() == *id) else {
                (last_went, last_is_revised) = (true, false);
                continue;
            };
            // A summary of a lost record stands for what nobody knows, and is there as long as the
            // client sends it.
            let covers = self.history.host_texts.covers(*id);
            let is_of_lost_record = !entry.is_notice() && covers.is_some_and(IdSet::is_empty);
            if is_of_lost_record && changes.withdrawn.contains(id) {
                (last_went, last_is_revised) = (true, false);
                continue;
            }
            // A notice belongs to the message before it. If that was cut off or edited, the notice
            // no longer applies.
            if entry.is_notice() && (last_went && changes.cut || last_is_revised) {
                continue;
            }
            last_went |= !entry.is_notice();
            last_is_revised = changes.revised.contains_key(id);
            let moved = changes
                .revised
                .get(id)
                .or_else(|| changes.said_again.get(id));
            let entry = match moved.and_then(|new| read.get(new)) {
                Some(message) if changes.said_again.contains_key(id) => entry.moved_to(message),
                Some(message) => message.clone(),
                None if went(*id) || changes.cut && went_with(covers) => continue,
                None => entry,
            };
            last_went = false;
            next.push(entry);
        }
        next
    }

    /// Inserts messages that have come since the compaction into its window, in the order of the
    /// conversation.
    fn insert_since(
        &self,
        mut next: Vec<WindowEntry>,
        mut since: IdMap<WindowEntry>,
    ) -> Vec<WindowEntry> {
        let branch = self.history.branch().iter().enumerate();
        let order: IdMap<usize> = branch.map(|(at, known)| (known.id, at)).collect();
        let mut at = 0;
        let mut places: Vec<usize> = Vec::with_capacity(next.len());
        for entry in &next {
            // A summary takes the position of the last message that it covers. What covers nothing
            // belongs to the entry before it.
            let covers = self.history.host_texts.covers(entry.id());
            let id = covers.and_then(IdSet::last).unwrap_or(entry.id());
            at = order.get(&id).copied().unwrap_or(at);
            places.push(at);
        }
        for (own, known) in self.history.branch().iter().enumerate() {
            let Some(entry) = since.remove(&known.id) else {
                continue;
            };
            // Each message goes after the last entry that precedes it in the conversation.
            let before = places.iter().rposition(|place| *place < own);
            let at = before.map_or(0, |before| before + 1);
            next.insert(at, entry);
            places.insert(at, own);
        }
        next
    }

    /// The window as the request shows it, without a compaction.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    fn window_as_sent(
        &mut self,
        request: &Request<'_>,
        read: &IdMap<WindowEntry>,
    ) -> Result<Vec<WindowEntry>, FormatError> {
        let mut entries: IdMap<WindowEntry> = (self.window.entries().iter())
            .filter(|entry| entry.is_verbatim() || entry.is_summary())
            .map(|entry| (entry.id(), entry.clone()))
            .collect();
        let others = self.entries_of(request, read, |id| !entries.contains_key(&id))?;
        entries.extend(others);
        // A message may be in the request twice. The window shows it once.
        let units = self.history.sent.units.iter();
        Ok(units
            .filter_map(|unit| entries.remove(&unit.origin.id()))
            .collect())
    }

    /// The messages of the request whose ids are `wanted`. Those that are not in `read` are parsed
    /// now.
    ///
    /// # Errors
    /// A message of the request cannot be read.
    pub(crate) fn entries_of(
        &mut self,
        request: &Request<'_>,
        read: &IdMap<WindowEntry>,
        wanted: impl Fn(MessageId) -> bool,
    ) -> Result<IdMap<WindowEntry>, FormatError> {
        let mut entries = IdMap::default();
        let mut wires = Vec::new();
        for unit in &self.history.sent.units {
            let id = unit.origin.id();
            if !wanted(id) {
                continue;
            }
            match read.get(&id) {
                Some(entry) => {
                    entries.insert(id, entry.clone());
                }
                None => wires.extend(unit.wires.clone()),
            }
        }
        if wires.is_empty() {
            return Ok(entries);
        }
        let mut messages = request.read(wires, &mut self.history.calls)?;
        for run in messages.chunk_by_mut(|one, next| one.wires.start == next.wires.start) {
            let Some(first) = run.first() else { continue };
            let units = self.history.sent.beginning_in(first.wires.start);
            split_off_host_words(run, |at, read| {
                let is_said = units.get(at).is_some_and(WireEntry::is_said);
                is_said.then_some(read)
            });
            for (unit, message) in units.iter().zip(run) {
                let id = unit.origin.id();
                let looks = message
                    .message()
                    .map_or(MessageKind::Original, |message| message.kind);
                let kind = unit.origin.kind_of(looks);
                if wanted(id) && !entries.contains_key(&id) {
                    entries.insert(id, WindowEntry::new(id, kind, message, &self.counter));
                }
            }
        }
        Ok(entries)
    }

    /// The messages of the conversation that a window does not show: those that its summaries
    /// cover, and those that were left out before and have not come back.
    fn left_out(&self, window: &Window, in_force: &InForce, changes: &Changes) -> IdSet {
        let covers = window
            .entries()
            .iter()
            .filter_map(|entry| self.history.host_texts.covers(entry.id()));
        let earlier = &in_force.window.left_out;
        let placed: Ids = window.entries().iter().map(WindowEntry::id).collect();
        let has_no_place = |id: &MessageId| !changes.unmatched.contains(id) && !placed.contains(id);
        let ids = covers.flat_map(IdSet::iter).chain(earlier.iter());
        ids.filter(has_no_place).collect()
    }
}
