//! Ingesting a request: which of its messages are new, which are another form of a known one, which
//! the host wrote, and which are missing. Afterwards the history and the window are up to date.
//!
//! A client may send everything again, continue from the body of the last turn, or mix both. All
//! three are one case, because text of the host is recognised by its hash and stands for the
//! messages that it covers. So the messages that a request has apart from its summaries are aligned
//! with the conversation.
//!
//! Read [`Ingest::ingest`] first. It decides whether the request belongs to the conversation at all,
//! and `apply_alignment` applies the alignment. A request is split in `request`, compared with the
//! conversation in `compare`, its messages get their ids in `origins`, and the new window is made in
//! `next_window`. What stays in force if the client compacts is in `client_compaction`.
//! [`Ingest::answer`] appends the model's answer, and `unseen` collects what the engine is to be
//! shown. Nothing here knows of engines.

mod client_compaction;
pub(crate) mod compare;
mod next_window;
mod origins;
mod unseen;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{Conversation, Format, FormatError};

use contexture_transcript::{Fingerprint, IdMap, Ids, Known, Origin, WireEntry};

use self::compare::{Compared, Incoming, compare};
use self::next_window::Changes;
use self::origins::Origins;
use super::align::{Match, raw_hash};
use super::conversation::ConversationState;
use super::error::SessionError;
use super::history::History;
use super::options::{Relation, Unrelated};
use super::preamble::Preamble;
use super::request::{BodyBefore, ReadMessage, Request, split_off_host_words};
use super::warnings::Warnings;
use super::window_entry::WindowEntry;

/// What a request added to the conversation and changed in it.
#[derive(Debug, Default)]
pub(crate) struct Ingested {
    /// The messages that were not known before, revisions included.
    pub(crate) new: Vec<MessageId>,
    /// The revisions: the new id, and the id of the message that it replaces.
    pub(crate) revised: Vec<(MessageId, MessageId)>,
    /// Messages that are said again although the client has only a shorter form or a summary of
    /// them: the new ids by the old ones.
    pub(crate) unsent_again: IdMap<MessageId>,
    pub(crate) relation: Relation,
    /// Whether the client compacted the conversation itself.
    pub(crate) compacted: bool,
    /// How many leading wire messages the request has in common with the last one.
    pub(crate) common: usize,
}

impl Ingested {
    /// Whether the request left the conversation as it was or only continued it.
    pub(crate) fn only_appends(&self) -> bool {
        self.relation == Relation::Continues && self.revised.is_empty()
    }
}

/// Takes requests and answers into the conversation.
#[derive(Debug)]
pub(crate) struct Ingest {
    session: String,
    unrelated: Unrelated,
    /// What is remembered of the last body, so that the next one is split only after the common
    /// beginning.
    body_before: Option<BodyBefore>,
    /// Messages from `keep_from` of the last turn on. If the next request leaves them out, the
    /// conversation was not cut back.
    provisional: Ids,
    warnings: Warnings,
}

impl Ingest {
    /// For the session with this id, which says in `unrelated` what happens to a request of another
    /// conversation.
    pub(crate) fn new(session: &str, unrelated: Unrelated, warnings: Warnings) -> Self {
        Self {
            session: session.to_owned(),
            unrelated,
            body_before: None,
            provisional: Ids::default(),
            warnings,
        }
    }

    /// Splits a body into wire messages. What it has in common with the last body is not split
    /// again.
    ///
    /// # Errors
    /// The text is not a request body of this format.
    pub(crate) fn split<'b>(
        &mut self,
        body: &'b str,
        format: Option<Format>,
    ) -> Result<Request<'b>, FormatError> {
        Request::body(body, format, &mut self.body_before)
    }

    /// Reads the system prompt and the tools of a request, if they changed. Returns whether they
    /// did. `fixed_tokens` are their tokens, if the caller knows them.
    pub(crate) fn read_preamble(
        &self,
        current: &mut ConversationState,
        request: &Request<'_>,
        fixed_tokens: Option<u64>,
    ) -> bool {
        let before = current.preamble.as_ref();
        let read = Preamble::read(request, before, &current.counter, fixed_tokens);
        let is_another = read.is_some();
        current.preamble = read.or(current.preamble.take());
        if let (Some(preamble), Some(tokens)) = (&mut current.preamble, fixed_tokens) {
            preamble.tokens = tokens;
        }
        is_another
    }

    /// Aligns a request with the conversation, gives ids to its new messages, and updates history
    /// and window. A request that has nothing in common with the conversation begins a new one.
    ///
    /// # Errors
    /// A message cannot be read. The request is unrelated to the conversation and the options
    /// refuse such requests.
    pub(crate) fn ingest(
        &mut self,
        current: &mut ConversationState,
        request: &Request<'_>,
    ) -> Result<Ingested, SessionError> {
        let history = &mut current.history;
        let mut ingested = Ingested {
            common: history.sent.common(&request.raw),
            ..Ingested::default()
        };
        let mut compared = compare(history, request)?;
        if !history.branch().is_empty() && !compared.is_related() {
            // After a compaction by the provider, the earlier messages are hidden.
            if self.unrelated == Unrelated::Refuse && !request.is_compacted {
                return Err(SessionError::Unrelated {
                    session: self.session.clone(),
                });
            }
            ingested.relation = Relation::NewRoot;
            // What the provider compacted, it has read.
            ingested.compacted = self.unrelated == Unrelated::Compacted && !request.is_compacted;
            compared.alignment.unmatched = history.branch().iter().map(|known| known.id).collect();
            compared.alignment.cut = true;
            compared.alignment.matches.fill(Match::New);
        }
        ingested.compacted |= compared.alignment.compacted;
        let provisional = std::mem::take(&mut self.provisional);
        let unmatched = &compared.alignment.unmatched;
        // The client announced with `keep_from` that the next request may come without these
        // messages, so their absence is no cut.
        let may_be_missing = !unmatched.is_empty()
            && compared.alignment.said_again.is_empty()
            && unmatched.iter().all(|id| provisional.contains(id));
        compared.alignment.cut &= !may_be_missing;
        if history.resumed {
            // A history from the record holds only hashes, so the calls must be read from the
            // request.
            request.learn_calls(&mut history.calls)?;
        }
        let kept = (ingested.compacted).then(|| {
            let compacted = compared.alignment.unmatched.clone();
            (current.keep_pins_and_rules(), compacted)
        });
        let ingested = self.apply_alignment(current, request, compared, ingested)?;
        if let Some((rules, compacted)) = kept {
            current.begin_with(&rules, compacted);
        }
        Ok(ingested)
    }

    /// Applies an alignment: assigns ids, appends to the history and the record, and rebuilds the
    /// window.
    ///
    /// # Errors
    /// A message that is needed for the window cannot be read.
    fn apply_alignment(
        &self,
        current: &mut ConversationState,
        request: &Request<'_>,
        mut compared: Compared,
        ingested: Ingested,
    ) -> Result<Ingested, SessionError> {
        let repeats_last = ingested.common == current.history.sent.raw.len();
        // If a session begins with a document, its reader knows that the document is complete, so
        // no warning is needed.
        let begins = !request.is_sent() && current.history.branch().is_empty();
        let mut origins = Origins {
            next_id: current.window.next_id(),
            log: Vec::new(),
            ingested,
        };
        let foreign = origins.set(&mut current.history, &mut compared);
        let Origins {
            next_id,
            log,
            mut ingested,
        } = origins;
        if foreign > 0 && !begins {
            self.warn_of_foreign_summaries(foreign, compared.alignment.abridged.len());
        }
        let mut changes = Changes::of(&compared, &ingested, &current.history, repeats_last);
        let Compared {
            kept,
            incoming,
            alignment,
            ..
        } = compared;
        let (units, mut entries) = units_and_entries(incoming, &current.counter);
        entries.extend(current.originals_of(&ingested.unsent_again, &changes.said_again));
        for (known, replaces) in log {
            current.history.append(known, replaces);
        }
        if changes.cut {
            let after = current.history.cut(&alignment.unmatched);
            changes.after = after;
            if ingested.relation == Relation::Continues {
                ingested.relation = Relation::CutBack { after };
            }
        }
        current
            .history
            .set_sent(&request.raw, kept, units, request.format);
        // Some messages were recognised by their bytes and not parsed yet. The engine needs the text
        // of the new ones. The record stores a wire message once, so it needs all that share one.
        let new: Ids = ingested.new.iter().copied().collect();
        let needed = current.history.texts.needed(&new, &current.history.sent);
        if !needed.iter().all(|id| entries.contains_key(id)) {
            let read = current.entries_of(request, &entries, |id| needed.contains(&id))?;
            entries.extend(read);
        }
        current.update_window(request, &changes, &entries, &ingested.new, next_id)?;
        current.keep_texts_of(&new, &needed, &entries);
        entries.retain(|id, entry| new.contains(id) && entry.is_original());
        match current.unshown.is_empty() {
            true => current.unshown = entries,
            false => current.unshown.extend(entries),
        }
        current.new_since_compaction |= !ingested.new.is_empty();
        current.history.resumed = false;
        Ok(ingested)
    }

    /// Warns that the request holds `foreign` summaries without a record, which cover `known`
    /// messages that the session knows.
    fn warn_of_foreign_summaries(&self, foreign: usize, known: usize) {
        self.warnings.add(format!(
            "the request holds {foreign} summaries that this session has no record of. They cover {known} messages \
             that it knows; the text of any others is not stored"
        ));
    }

    /// Returns the message that begins in the wire message `wire` or after it. From this message
    /// on, the next request may leave messages out without cutting the conversation back. None if
    /// `wire` is none or past the end.
    pub(crate) fn allow_missing_from(
        &mut self,
        history: &History,
        wire: Option<usize>,
    ) -> Option<MessageId> {
        let wire = wire?;
        let units = history.sent.units.iter();
        let from: Vec<MessageId> = units
            .filter(|unit| unit.wires.start >= wire)
            .map(|unit| unit.origin.id())
            .collect();
        let first = from.first().copied();
        self.provisional = from.into_iter().collect();
        first
    }

    /// Appends the answer of the model. `items` holds the JSON of its message, or of each item for
    /// the Responses API. Returns the ids of the new messages.
    pub(crate) fn answer(
        &self,
        current: &mut ConversationState,
        items: &[&str],
        answer: &Arc<Conversation>,
    ) -> Vec<MessageId> {
        let raw: Vec<u64> = items.iter().map(|raw| raw_hash(raw)).collect();
        let window = Arc::make_mut(&mut current.window);
        let (mut units, mut new) = (Vec::new(), Vec::new());
        for (index, message) in answer.messages().iter().enumerate() {
            let read = ReadMessage {
                conversation: Arc::clone(answer),
                index,
                wires: message.items.clone(),
            };
            let id = window.fresh_id();
            let entry = WindowEntry::new(id, MessageKind::Original, &read, &current.counter);
            window.push_entry(entry.clone());
            current.history.keep([&entry]);
            current.unshown.insert(id, entry);
            let fingerprint = Fingerprint::of(message);
            current.history.append(Known { id, fingerprint }, None);
            units.push(WireEntry {
                origin: Origin::Said(id),
                fingerprint,
                wires: message.items.clone(),
            });
            new.push(id);
        }
        current.new_since_compaction |= !new.is_empty();
        current.history.answered(&raw, &units);
        new
    }
}

/// The messages of a request as the history and the window have them. The host's own words are
/// removed from the entries of the client's messages.
fn units_and_entries(
    mut incoming: Vec<Incoming>,
    counter: &TokenCounter,
) -> (Vec<WireEntry>, IdMap<WindowEntry>) {
    for wire in incoming.chunk_by_mut(|one, next| one.wires.start == next.wires.start) {
        split_off_host_words(wire, |_, new| {
            let is_said = matches!(new.origin, Some(Origin::Said(_)));
            new.read.as_mut().filter(|_| is_said)
        });
    }
    let mut units = Vec::with_capacity(incoming.len());
    let mut entries = IdMap::with_capacity_and_hasher(incoming.len(), Default::default());
    for new in incoming {
        let Some(origin) = new.origin else { continue };
        if let Some(read) = &new.read {
            let (id, kind) = (origin.id(), origin.kind_of(new.kind));
            entries.insert(id, WindowEntry::new(id, kind, read, counter));
        }
        units.push(WireEntry {
            origin,
            fingerprint: new.fingerprint,
            wires: new.wires,
        });
    }
    (units, entries)
}

impl ConversationState {
    /// Marks for storing the wire messages of the request that hold new messages, or messages that
    /// should have been stored before: `needed` are all messages in them. The engine could not be
    /// shown the latter, so it is shown the conversation again from the first of them. Does nothing
    /// if the session stores no text.
    fn keep_texts_of(&mut self, new: &Ids, needed: &Ids, entries: &IdMap<WindowEntry>) {
        if !self.history.texts.are_kept() {
            return;
        }
        let units = self.history.sent.units.iter();
        let units = units.filter(|unit| unit.is_said() && needed.contains(&unit.origin.id()));
        let mut said: Vec<&WindowEntry> = units
            .filter_map(|unit| entries.get(&unit.origin.id()))
            .filter(|entry| entry.is_original())
            .collect();
        let placed: Ids = said.iter().map(|entry| entry.id()).collect();
        // Messages that are said again while the client has only a shorter form or a summary of
        // them. Their text is not in the request.
        let others = entries.values().filter(|entry| {
            new.contains(&entry.id()) && !placed.contains(&entry.id()) && entry.is_original()
        });
        let mut others: Vec<&WindowEntry> = others.collect();
        if !others.is_empty() {
            others.sort_by_key(|entry| entry.id());
            said.extend(others);
            // What shares a wire message stands together.
            let mut wires = HashMap::new();
            said.sort_by_cached_key(|entry| {
                let next = wires.len();
                let wire = entry.wire();
                (
                    *wires.entry(wire).or_insert(next),
                    entry.in_wire().map(|(_, at, _)| at),
                )
            });
        }
        let without_text = self.history.texts.missing();
        let late = said.iter().map(|entry| entry.id());
        if let Some(first) = late.filter(|id| without_text.contains(id)).min() {
            self.history.show_again(first);
        }
        self.history.keep(said);
    }

    /// Finds the full text of messages that are said again while the client has only a shorter form
    /// or a summary of them: `unsent`, the new ids by the old ones. It comes from the window or the
    /// transcript, which have it under the old id. Messages that are found nowhere are left out.
    ///
    /// A wire message is stored from one source. So the others of `said_again` that share a wire
    /// message with one that is found are taken from there too.
    fn originals_of(
        &self,
        unsent: &IdMap<MessageId>,
        said_again: &IdMap<MessageId>,
    ) -> IdMap<WindowEntry> {
        if unsent.is_empty() {
            return IdMap::default();
        }
        let in_window = self.window.entries().iter();
        let in_window = in_window.filter(|entry| entry.has_original());
        let wires: HashSet<_> = (in_window.clone())
            .filter(|entry| unsent.contains_key(&entry.id()))
            .filter_map(WindowEntry::wire)
            .collect();
        let mut originals: IdMap<WindowEntry> = in_window
            .filter(|entry| entry.wire().is_some_and(|wire| wires.contains(&wire)))
            .map(|entry| (entry.id(), entry.as_said()))
            .collect();
        let wanted: Ids = (unsent.keys().copied())
            .filter(|id| !originals.contains_key(id))
            .collect();
        if !wanted.is_empty() {
            originals.extend(self.stored_entries(&wanted));
        }
        let renamed = originals.into_iter().filter_map(|(old, entry)| {
            let new = *unsent.get(&old).or_else(|| said_again.get(&old))?;
            Some((new, entry.renamed(new)))
        });
        renamed.collect()
    }
}

#[cfg(test)]
mod tests;
