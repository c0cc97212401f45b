//! What a session knows of its conversation beside the text: ids and hashes, how far the engine was shown
//! them, what the host wrote, and the compaction in force. It is what the record keeps.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use contexture_engine_api::{CurrentCompaction, MessageId, Observed};
use contexture_formats::Format;
use contexture_formats::prompt_cache::Pauses;
use xxhash_rust::xxh3::Xxh3;

use super::align::Known;
use super::ids::{IdMap, Ids};
use super::record::{
    InForce, Logged, NewArtifact, NewText, RecordError, Saved, SessionChange, StoredMessage,
    StoredSession,
};
use super::slot::Slot;
use super::trail::{Origin, Trail, Unit};
use super::written::{IdSet, Written, WrittenText};

/// A session's knowledge of its conversation.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Where it is kept; nowhere, or nowhere any more.
    stored: Option<StoredSession>,
    /// The conversation as it stands, in order.
    branch: Vec<Known>,
    /// Every message of the conversation that the engine is to be shown, earlier forms included, in the
    /// order of arrival.
    log: Vec<Logged>,
    /// What the client sent last, and the answer to it.
    pub(super) sent: Trail,
    /// What was handed out in its place, and the answer to it; empty where that was the same.
    handed: Trail,
    pub(super) written: Written,
    /// The last message that the engine was shown.
    shown: Option<Observed>,
    /// Whether the engine said itself how far it has seen.
    remembers: bool,
    /// The engine gave back another chain hash than it was given, so its answers are not trusted.
    pub(super) distrusted: bool,
    /// A cut that the engine has yet to be told of: the last message that stays.
    pub(super) pending_cut: Option<Option<MessageId>>,
    /// Messages that the engine lacks.
    lacking: Ids,
    /// Messages that other engines lacked when the session left them, by the engine's name.
    others_lack: BTreeMap<String, Ids>,
    /// What was cut off since the session was opened.
    pub(super) gone: Ids,
    in_force: Option<InForce>,
    /// Between its requests.
    pub(super) pauses: Pauses,
    /// How many compactions there were.
    pub(super) compactions: u64,
    /// The usage that the provider reported, in its stored form; empty if there is none.
    pub(super) usage: String,
    /// The format of the last request.
    format: Option<Format>,
    /// The tools of the calls seen so far, by the call's id.
    pub(super) names: HashMap<String, String>,
    /// The last message of those that were taken over from an engine's store, without a record of what the host
    /// wrote for them; none once the client sends them all in their own words.
    recovered: Option<MessageId>,
    /// Whether the text of messages is stored.
    keeps_texts: bool,
    /// Messages of the conversation whose text is not stored although it should be: the session ran under an engine that
    /// needs none.
    without_text: Ids,
    /// The history comes from the record, and the window does not hold its messages yet.
    pub(super) resumed: bool,
    unsaved: Unsaved,
}

/// What changed since the record was last written.
#[derive(Debug)]
struct Unsaved {
    log_from: usize,
    sent_from: usize,
    handed_from: usize,
    written: Vec<WrittenText>,
    /// What was written before is nothing any more.
    forgot: bool,
    in_force: bool,
    shown: bool,
    lacking: bool,
    texts: Vec<NewText>,
    renamed: Vec<(MessageId, MessageId)>,
    artifacts: Vec<NewArtifact>,
}

impl Unsaved {
    /// The whole history replaces what the record has; `written` is all that the host has written.
    fn everything(written: Vec<WrittenText>) -> Self {
        Self {
            log_from: 0,
            sent_from: 0,
            handed_from: 0,
            written,
            forgot: true,
            in_force: true,
            shown: true,
            lacking: true,
            ..Self::default()
        }
    }
}

impl Default for Unsaved {
    fn default() -> Self {
        Self {
            log_from: usize::MAX,
            sent_from: usize::MAX,
            handed_from: usize::MAX,
            written: Vec::new(),
            forgot: false,
            in_force: false,
            shown: false,
            lacking: false,
            texts: Vec::new(),
            renamed: Vec::new(),
            artifacts: Vec::new(),
        }
    }
}

impl History {
    /// The history that the record has of a session.
    pub(super) fn of(stored: StoredSession, saved: Saved) -> Self {
        let mut lacking: BTreeMap<String, Ids> = (saved.lacking.into_iter())
            .map(|(engine, messages)| (engine, messages.iter().collect()))
            .collect();
        let mut written = Written::default();
        for text in saved.written {
            written.add(text);
        }
        Self {
            stored: Some(stored),
            resumed: !saved.log.is_empty(),
            branch: branch_of(&saved.log),
            sent: saved.sent,
            handed: saved.handed,
            written,
            log: saved.log,
            shown: saved.shown,
            lacking: lacking.remove(&saved.engine).unwrap_or_default(),
            others_lack: lacking,
            remembers: saved.remembers,
            in_force: saved.compaction,
            pauses: saved.pauses,
            compactions: saved.compactions,
            usage: saved.usage,
            recovered: saved.recovered,
            format: saved.format,
            ..Self::default()
        }
    }

    /// Says which engine the session runs under. Another one than before has seen nothing, and lacks what it lacked
    /// when the session left it.
    pub(super) fn set_engine(&mut self, engine: &str) {
        let Some(stored) = &mut self.stored else {
            return;
        };
        if stored.engine != engine {
            let before = std::mem::replace(&mut stored.engine, engine.to_owned());
            let lacking = self.others_lack.remove(engine).unwrap_or_default();
            let lacked = std::mem::replace(&mut self.lacking, lacking);
            self.unsaved.lacking |= !(lacked.is_empty() && self.lacking.is_empty());
            if !lacked.is_empty() {
                self.others_lack.insert(before, lacked);
            }
            (self.shown, self.remembers) = (None, false);
            self.unsaved.shown = true;
        }
    }

    /// Goes on with a conversation that only the engine had: its messages, of which the first `stay` have the ids
    /// under which it has them, and how far it says that it has seen them. It is shown the others again.
    pub(super) fn recover(&mut self, messages: &[Known], stay: usize, seen: Option<Observed>) {
        self.branch = messages.to_vec();
        self.log.clear();
        for known in messages {
            self.log_message(*known, None);
        }
        self.unsaved.log_from = 0;
        self.recovered = self.log.last().map(|last| last.id);
        self.resumed = true;
        if stay < messages.len() {
            let last = stay.checked_sub(1).and_then(|at| self.log.get(at));
            self.pending_cut = Some(last.map(|last| last.id));
        } else if let (Some(last), Some(seen)) = (self.log.last_mut(), seen) {
            // The host's own chain is lost; the engine's goes on.
            last.chain = seen.chain;
        }
        self.set_shown(seen, seen.is_some());
    }

    /// Whether there is no record of what the host wrote for a message.
    pub(super) fn is_recovered(&self, id: MessageId) -> bool {
        self.recovered.is_some_and(|last| id <= last)
    }

    /// The conversation as it stands, in order.
    pub(super) fn branch(&self) -> &[Known] {
        &self.branch
    }

    pub(super) fn format(&self) -> Option<Format> {
        self.format
    }

    pub(super) fn in_force(&self) -> Option<&InForce> {
        self.in_force.as_ref()
    }

    /// The compaction in force, for an engine that is being opened.
    pub(super) fn current_compaction(&self) -> Option<CurrentCompaction> {
        let in_force = self.in_force.as_ref()?;
        Some(
            in_force
                .window
                .as_current(in_force.number, in_force.engine.clone()),
        )
    }

    /// Of what the client sent and what was handed out, the one with which a request begins the longer, and
    /// how many wire messages that is.
    pub(super) fn nearest(&self, raw: &[u64]) -> (&Trail, usize) {
        let (sent, handed) = (self.sent.common(raw), self.handed.common(raw));
        match handed > sent {
            true => (&self.handed, handed),
            false => (&self.sent, sent),
        }
    }

    pub(super) fn handed(&self) -> &Trail {
        &self.handed
    }

    /// Adds a new message to the end of the conversation, or another form of a message in its place.
    pub(super) fn append(&mut self, known: Known, replaces: Option<MessageId>) {
        let old = replaces.and_then(|old| self.branch.iter_mut().rfind(|known| known.id == old));
        match old {
            Some(old) => *old = known,
            None => self.branch.push(known),
        }
        self.unsaved.log_from = self.unsaved.log_from.min(self.log.len());
        self.log_message(known, replaces);
    }

    fn log_message(&mut self, known: Known, replaces: Option<MessageId>) {
        let chain = self.log.last().map_or(0, |last| last.chain);
        self.log.push(Logged {
            id: known.id,
            mark: known.mark,
            chain: chain_link(chain, known.id, known.mark.identity),
            replaces,
        });
    }

    /// Takes what was cut off out of the conversation: `lost` messages, in every form that they had. Answers
    /// the last message before the first of them. What came after that one and is still part of the
    /// conversation (the revision of an early message, say) is shown to the engine again.
    pub(super) fn cut(&mut self, lost: &[MessageId]) -> Option<MessageId> {
        let replaces: IdMap<MessageId> = (self.log.iter())
            .filter_map(|logged| Some((logged.id, logged.replaces?)))
            .collect();
        let forms = |id: MessageId| std::iter::successors(Some(id), |id| replaces.get(id).copied());
        self.gone.extend(lost);
        let gone: Ids = lost.iter().copied().collect();
        self.branch.retain(|known| !gone.contains(&known.id));
        let last = lost
            .iter()
            .flat_map(|id| forms(*id))
            .min()
            .and_then(|first_lost| {
                let stays = self.log.partition_point(|logged| logged.id < first_lost);
                let still_there: Ids = self.branch.iter().map(|known| known.id).collect();
                self.unsaved.log_from = self.unsaved.log_from.min(stays);
                for logged in self.log.split_off(stays) {
                    if still_there.contains(&logged.id) {
                        // A form in between went with the cut.
                        let replaces = forms(logged.id)
                            .skip(1)
                            .find(|form| *form < first_lost || still_there.contains(form));
                        let known = Known {
                            id: logged.id,
                            mark: logged.mark,
                        };
                        self.log_message(known, replaces);
                    }
                }
                self.log.get(stays.checked_sub(1)?).map(|last| last.id)
            });
        let earlier = self.pending_cut;
        self.pending_cut = Some(earlier.map_or(last, |earlier| earlier.min(last)));
        last
    }

    /// Gives the messages from the place `from` of the conversation on the new ids that `renamed` has for them.
    /// Earlier forms of them are known no more.
    pub(super) fn rename(&mut self, from: usize, renamed: &IdMap<MessageId>) {
        let new = |id: &mut MessageId| {
            if let Some(new) = renamed.get(id) {
                *id = *new;
            }
        };
        let stays: Ids = self
            .branch
            .iter()
            .take(from)
            .map(|known| known.id)
            .collect();
        let replaces: IdMap<MessageId> = (self.log.iter())
            .filter_map(|logged| Some((logged.id, logged.replaces?)))
            .collect();
        let forms = |id: MessageId| std::iter::successors(Some(id), |id| replaces.get(id).copied());
        let kept: Ids = stays.iter().flat_map(|id| forms(*id)).collect();
        let log = std::mem::take(&mut self.log);
        for logged in log.into_iter().filter(|logged| kept.contains(&logged.id)) {
            let known = Known {
                id: logged.id,
                mark: logged.mark,
            };
            self.log_message(known, logged.replaces);
        }
        self.branch.iter_mut().for_each(|known| new(&mut known.id));
        for known in self.branch.iter().skip(from).copied().collect::<Vec<_>>() {
            self.log_message(known, None);
        }
        for trail in [&mut self.sent, &mut self.handed] {
            trail.rename(renamed);
        }
        self.written.rename(renamed);
        // A client that sends one of these later is known by the new id to send what the engine lacks.
        for lacking in self.others_lack.values_mut().chain([&mut self.lacking]) {
            *lacking = (std::mem::take(lacking).into_iter())
                .map(|id| renamed.get(&id).copied().unwrap_or(id))
                .collect();
        }
        let recovered = renamed.iter().filter(|(old, _)| self.is_recovered(**old));
        self.recovered = recovered.map(|(_, new)| *new).chain(self.recovered).max();
        let texts = self.unsaved.texts.iter_mut();
        texts
            .flat_map(|text| &mut text.parts)
            .for_each(|(_, id)| new(id));
        self.without_text = (self.without_text.iter())
            .map(|id| renamed.get(id).copied().unwrap_or(*id))
            .collect();
        let before = std::mem::take(&mut self.unsaved);
        self.unsaved = Unsaved {
            texts: before.texts,
            renamed: (before.renamed.into_iter())
                .chain(renamed.iter().map(|(old, new)| (*old, *new)))
                .collect(),
            artifacts: before.artifacts,
            ..Unsaved::everything(self.written.all().to_vec())
        };
    }

    /// Stores the session here. It was not stored anywhere.
    pub(super) fn store_in(&mut self, stored: StoredSession) {
        self.stored = Some(stored);
    }

    /// Begins to store the text of messages. If it `redacts`, passwords and keys are masked before they are stored.
    pub(super) fn keep_texts(&mut self, redacts: bool) {
        self.keeps_texts = true;
        let Some(stored) = &mut self.stored else {
            return;
        };
        stored.redacts = redacts;
        match stored.without_text() {
            Ok(ids) => self.without_text = ids.into_iter().collect(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Whether the text of messages is stored.
    pub(super) fn keeps_texts(&self) -> bool {
        self.keeps_texts
    }

    /// Messages of the conversation whose text is to be stored as soon as the client sends it.
    pub(super) fn without_text(&self) -> &Ids {
        &self.without_text
    }

    /// Notes that messages as the client said them are to be stored, those of one wire message together.
    pub(super) fn keep<'s>(&mut self, said: impl IntoIterator<Item = &'s Slot>) {
        if !self.keeps_texts || self.stored.is_none() {
            return;
        }
        for slot in said {
            let Some((conversation, message, place)) = slot.in_wire() else {
                continue;
            };
            self.without_text.remove(&slot.id());
            let part = (place, slot.id());
            let first = message - place;
            match self.unsaved.texts.last_mut() {
                Some(last) if last.is_wire(conversation, first) => last.parts.push(part),
                _ => self.unsaved.texts.push(NewText {
                    conversation: Arc::clone(conversation),
                    message: first,
                    parts: vec![part],
                }),
            }
        }
    }

    /// Notes what engines stored.
    pub(super) fn keep_artifacts(&mut self, artifacts: Vec<NewArtifact>) {
        self.unsaved.artifacts.extend(artifacts);
    }

    /// Those of these messages that are part of the conversation now and whose text is stored, and those that stand in one
    /// wire message with them.
    pub(super) fn stored(&self, ids: &Ids) -> Vec<StoredMessage> {
        let Some(stored) = &self.stored else {
            return Vec::new();
        };
        let current: Ids = self.branch.iter().map(|known| known.id).collect();
        let of_branch = self.branch.iter().map(|known| known.id);
        let ids: Vec<MessageId> = of_branch.filter(|id| ids.contains(id)).collect();
        let mut messages = stored.messages(&ids).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        messages.retain(|message| current.contains(&message.id));
        messages
    }

    /// The forms that a message had before, the latest first.
    pub(super) fn earlier_forms(&self, id: MessageId) -> impl Iterator<Item = MessageId> {
        std::iter::successors(self.form_before(id), |id| self.form_before(*id))
    }

    fn form_before(&self, id: MessageId) -> Option<MessageId> {
        self.logged(id)?.replaces
    }

    /// What tells a message of the log from others.
    pub(super) fn identity(&self, id: MessageId) -> Option<u128> {
        Some(self.logged(id)?.mark.identity)
    }

    fn logged(&self, id: MessageId) -> Option<&Logged> {
        let at = self.log.binary_search_by_key(&id, |logged| logged.id);
        self.log.get(at.ok()?)
    }

    /// The end of the log.
    pub(super) fn end(&self) -> Option<Observed> {
        self.log
            .last()
            .map(|last| Observed::through(last.id, last.chain))
    }

    /// Messages of the conversation that the engine lacks: they were nowhere when it was to be shown them.
    pub(super) fn lacking(&self) -> &Ids {
        &self.lacking
    }

    /// Notes that the engine lacks these messages.
    pub(super) fn lacks(&mut self, messages: Ids) {
        self.unsaved.lacking |= !messages.is_empty();
        self.lacking.extend(messages);
    }

    /// Notes that the engine was shown these messages.
    pub(super) fn no_longer_lacks(&mut self, messages: &Ids) {
        self.unsaved.lacking |= !self.lacking.is_disjoint(messages);
        self.lacking.retain(|id| !messages.contains(id));
    }

    /// Marks the earlier forms of messages that the engine lacks as lacking too: the words in them are not part of the
    /// conversation any more, and nothing would replace them. Returns the first form that was not marked before.
    pub(super) fn lacks_earlier_forms(&mut self) -> Option<MessageId> {
        if self.lacking.is_empty() {
            return None;
        }
        let current = self.branch.iter().map(|known| known.id);
        let edited = current.filter(|id| self.lacking.contains(id));
        let forms = edited.flat_map(|id| self.earlier_forms(id));
        let outdated: Ids = forms.filter(|form| !self.lacking.contains(form)).collect();
        let first = outdated.iter().min().copied()?;
        self.lacks(outdated);
        Some(first)
    }

    /// The messages after `last` that the engine can be shown, in the order of arrival: an earlier form of one that it
    /// lacks is none.
    pub(super) fn ids_to_show(&self, last: Option<MessageId>) -> Vec<MessageId> {
        let ids = self.after(last).iter().map(|logged| logged.id);
        if self.lacking.is_empty() {
            return ids.collect();
        }
        let current: Ids = self.branch.iter().map(|known| known.id).collect();
        ids.filter(|id| current.contains(id) || !self.lacking.contains(id))
            .collect()
    }

    /// The last message that arrived before this one, of those that the engine does not lack.
    pub(super) fn before(&self, id: MessageId) -> Option<MessageId> {
        let at = self.log.partition_point(|logged| logged.id < id);
        let mut before = self.log.iter().take(at).rev().map(|logged| logged.id);
        before.find(|id| !self.lacking.contains(id))
    }

    /// The messages after `last`, in the order of arrival.
    pub(super) fn after(&self, last: Option<MessageId>) -> &[Logged] {
        let from = last.map_or(0, |last| {
            self.log.partition_point(|logged| logged.id <= last)
        });
        self.log.get(from..).unwrap_or(&[])
    }

    /// Whether any of them is another form of an earlier one.
    pub(super) fn has_revisions_after(&self, last: Option<MessageId>) -> bool {
        let mut after = self.after(last).iter();
        after.any(|logged| logged.replaces.is_some())
    }

    /// Whether the log agrees with what an engine says it has seen.
    pub(super) fn agrees(&self, seen: Observed) -> bool {
        let logged = self.logged(seen.last);
        logged.is_some_and(|logged| logged.chain == seen.chain)
    }

    /// How far the engine was shown the conversation, and whether it said so itself.
    pub(super) fn shown(&self) -> (Option<Observed>, bool) {
        (self.shown, self.remembers)
    }

    /// Sets how far the engine was shown the conversation.
    pub(super) fn set_shown(&mut self, shown: Option<Observed>, remembers: bool) {
        self.unsaved.shown |= (shown, remembers) != (self.shown, self.remembers);
        (self.shown, self.remembers) = (shown, remembers);
    }

    /// Notes what the client sent: after the first `kept` messages of what it sent before, `units`.
    pub(super) fn set_sent(&mut self, raw: &[u64], kept: usize, units: Vec<Unit>, format: Format) {
        let from = self.sent.common(raw).saturating_sub(1);
        self.unsaved.sent_from = self.unsaved.sent_from.min(from);
        self.sent.raw.clear();
        self.sent.raw.extend_from_slice(raw);
        self.sent.units.truncate(kept);
        self.sent.units.extend(units);
        self.format = Some(format);
        self.recovered = self.recovered.filter(|last| !self.was_sent_whole(*last));
    }

    /// Whether the client has the words of all messages up to this one: no short form stands for any.
    fn was_sent_whole(&self, last: MessageId) -> bool {
        let said = self.sent.units.iter().filter_map(|unit| match unit.origin {
            Origin::Said(id) => Some(id),
            Origin::Shortened(_) | Origin::Host(_) => None,
        });
        let said: Ids = said.collect();
        let mut up_to = self.branch.iter().filter(|known| known.id <= last);
        up_to.all(|known| said.contains(&known.id))
    }

    /// Adds the answer to what the client sent and to what was handed out.
    pub(super) fn answered(&mut self, raw: &[u64], units: &[Unit]) {
        self.unsaved.sent_from = self.unsaved.sent_from.min(self.sent.raw.len());
        self.sent.push(raw, units.iter().cloned());
        if !self.handed.is_empty() {
            self.unsaved.handed_from = self.unsaved.handed_from.min(self.handed.raw.len());
            self.handed.push(raw, units.iter().cloned());
        }
    }

    /// Notes what was handed out.
    pub(super) fn set_handed(&mut self, handed: Trail) {
        if handed == self.handed {
            return;
        }
        // A message may reach over the end of the common part.
        let from = self.handed.common(&handed.raw).saturating_sub(1);
        self.unsaved.handed_from = self.unsaved.handed_from.min(from);
        self.handed = handed;
    }

    /// Keeps of what was handed out the wire messages at the head that stay; answers how many.
    pub(super) fn keep_handed(&mut self, stays: impl Fn(usize, u64) -> bool) -> usize {
        let raw = self.handed.raw.iter().enumerate();
        let stay = raw.take_while(|(at, raw)| stays(*at, **raw)).count();
        let units = self.handed.units_within(stay);
        // A message stays whole or not at all.
        let wires = (self.handed.units.get(units)).map_or(stay, |unit| unit.wires.start.min(stay));
        if wires < self.handed.raw.len() {
            self.unsaved.handed_from = self.unsaved.handed_from.min(wires.saturating_sub(1));
            self.handed.units.truncate(units);
            self.handed.raw.truncate(wires);
        }
        wires
    }

    /// Adds a wire message of the client's to what was handed out.
    pub(super) fn hand_out_as_sent(&mut self, wire: usize) {
        self.unsaved.handed_from = self.unsaved.handed_from.min(self.handed.raw.len());
        self.sent.copy_wire(wire, &mut self.handed);
    }

    /// Notes something that the host wrote.
    pub(super) fn write(&mut self, text: WrittenText) {
        if self.written.add(text.clone()) {
            self.unsaved.written.push(text);
        }
    }

    /// Sets the compaction in force.
    pub(super) fn set_in_force(&mut self, in_force: Option<InForce>) {
        self.unsaved.in_force |= in_force != self.in_force;
        self.in_force = in_force;
    }

    /// Whether the engine may know messages by their ids once this process is gone: the record then has to know them
    /// first.
    pub(super) fn may_be_remembered(&self) -> bool {
        self.shown.is_none() || self.remembers
    }

    /// Whether more than how far the engine was shown the conversation has changed since the last
    /// [`save`](Self::save). That alone can wait for the next one: where it is lost, the engine says what it has
    /// seen, or remembers nothing and is shown it again.
    pub(super) fn has_more_to_save(&self) -> bool {
        let unsaved = &self.unsaved;
        let from = [unsaved.log_from, unsaved.sent_from, unsaved.handed_from];
        from != [usize::MAX; 3]
            || !unsaved.written.is_empty()
            || unsaved.in_force
            || unsaved.lacking
            || !unsaved.texts.is_empty()
            || !unsaved.artifacts.is_empty()
    }

    /// Whether it is stored in a file.
    pub(super) fn is_stored(&self) -> bool {
        self.stored.as_ref().is_some_and(StoredSession::is_in_file)
    }

    /// Writes what changed, in one transaction; the warning where the record has just been lost.
    pub(super) fn save(&mut self, next_id: u64) -> Option<String> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let stored = self.stored.as_ref()?;
        let change = SessionChange {
            next_id,
            pauses: self.pauses,
            compactions: self.compactions,
            recovered: self.recovered,
            format: self.format,
            usage: &self.usage,
            log: &self.log,
            log_from: unsaved.log_from,
            sent: &self.sent,
            sent_from: unsaved.sent_from,
            handed: &self.handed,
            handed_from: unsaved.handed_from,
            texts: &unsaved.texts,
            renamed: &unsaved.renamed,
            artifacts: &unsaved.artifacts,
            forgot: unsaved.forgot,
            written: &unsaved.written,
            in_force: unsaved.in_force.then_some(self.in_force.as_ref()),
            shown: unsaved.shown.then_some((self.shown, self.remembers)),
            lacking: unsaved.lacking.then(|| {
                let others = self.others_lack.iter();
                let all = others.chain([(&stored.engine, &self.lacking)]);
                all.map(|(engine, lacking)| (engine.clone(), lacking.iter().copied().collect()))
                    .collect::<BTreeMap<String, IdSet>>()
            }),
        };
        if change.is_empty() {
            return None;
        }
        let error = stored.save(&change).err()?;
        // A write that is tried at every turn would hold up every turn.
        self.stored = None;
        Some(without_record(&error))
    }

    /// Forgets the conversation, and what was written for it.
    pub(super) fn forget(&mut self) {
        *self = Self {
            stored: self.stored.take(),
            pauses: self.pauses,
            compactions: self.compactions,
            keeps_texts: self.keeps_texts,
            unsaved: Unsaved::everything(Vec::new()),
            ..Self::default()
        };
    }
}

/// The conversation that a log describes: each revision in the place of what it replaces.
pub(super) fn branch_of(log: &[Logged]) -> Vec<Known> {
    let mut branch: Vec<Known> = Vec::with_capacity(log.len());
    let mut place: IdMap<usize> = IdMap::with_capacity_and_hasher(log.len(), Default::default());
    for logged in log {
        let known = Known {
            id: logged.id,
            mark: logged.mark,
        };
        let old = logged.replaces.and_then(|old| place.get(&old).copied());
        let at = old.unwrap_or(branch.len());
        place.insert(known.id, at);
        match branch.get_mut(at) {
            Some(old) => *old = known,
            None => branch.push(known),
        }
    }
    branch
}

/// What a person should know where the record cannot be used.
pub(super) fn without_record(error: &RecordError) -> String {
    format!("this session goes on in memory and will not survive a restart whole: {error}")
}

/// The chain hash `chain`, continued over a message.
pub(super) fn chain_link(chain: u64, id: MessageId, identity: u128) -> u64 {
    let mut hash = Xxh3::with_seed(chain);
    hash.update(&id.0.to_le_bytes());
    hash.update(&identity.to_le_bytes());
    hash.digest()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use contexture_engine_api::{MessageKind, TranscriptRange};
    use contexture_formats as formats;
    use contexture_formats::tokens::TokenCounter;

    use super::super::align::Mark;
    use super::super::record::Record;
    use super::super::request::ReadMessage;
    use super::*;

    const OLD: MessageId = MessageId(1);
    const NEW: MessageId = MessageId(7);

    /// A history of one message, which the engine lacks, after `change` and as the record has it then.
    fn recorded_after(change: impl Fn(&mut History)) -> History {
        let home = tempfile::tempdir().unwrap();
        let record = Record::open(home.path()).unwrap();
        let load = || {
            let (stored, saved) = record.load("session").unwrap();
            History::of(stored, saved)
        };
        let mut history = load();
        history.set_engine("lcm");
        let mark = Mark {
            identity: 1,
            shape: 1,
        };
        history.append(Known { id: OLD, mark }, None);
        history.lacks(Ids::from_iter([OLD]));
        assert_eq!(history.save(8), None);
        change(&mut history);
        assert_eq!(history.save(8), None);
        load()
    }

    #[test]
    fn an_engine_lacks_a_message_under_its_new_id_too() {
        let history = recorded_after(|history| {
            history.rename(0, &IdMap::from_iter([(OLD, NEW)]));
        });
        assert_eq!(*history.lacking(), Ids::from_iter([NEW]));
    }

    #[test]
    fn what_one_engine_lacks_another_may_have() {
        let mut history = recorded_after(|history| history.set_engine("compressor"));
        assert!(history.lacking().is_empty());
        history.set_engine("lcm");
        assert_eq!(*history.lacking(), Ids::from_iter([OLD]));
    }

    #[test]
    fn a_message_under_a_new_id_is_stored_once() {
        let home = tempfile::tempdir().unwrap();
        let record = Record::open(home.path()).unwrap();
        let (stored, saved) = record.load("session").unwrap();
        let mut history = History::of(stored, saved);
        history.set_engine("lcm");
        history.keep_texts(false);
        let chat = r#"{"messages": [{"role": "user", "content": "one"}]}"#;
        let read = ReadMessage {
            conversation: Arc::new(formats::read(chat, None).unwrap().remove(0)),
            index: 0,
            wires: 0..1,
        };
        let counter = TokenCounter::for_model("gpt-4o");
        let slot = Slot::new(OLD, MessageKind::Original, &read, &counter);
        let mark = Mark::of(&read.conversation.messages()[0]);
        history.append(Known { id: OLD, mark }, None);
        history.keep([&slot]);
        assert_eq!(history.save(8), None);
        history.rename(0, &IdMap::from_iter([(OLD, NEW)]));
        assert_eq!(history.save(8), None);
        let mut all = TranscriptRange::page(None);
        all.outdated = true;
        let page = record.transcript("session", &all).unwrap().unwrap();
        let found: Vec<_> = (page.messages.iter())
            .map(|message| (message.id, message.text.as_str()))
            .collect();
        assert_eq!(found, [(NEW, "one")]);
    }

    #[test]
    fn a_forgotten_conversation_leaves_nothing_that_an_engine_lacks() {
        let history = recorded_after(History::forget);
        assert!(history.branch().is_empty() && history.lacking().is_empty());
    }
}
