//! What engines give back of a conversation: when the host's record was lost, when the two disagree, and when
//! another engine takes a session over.

use std::collections::HashMap;
use std::sync::Arc;

use contexture_engine_api::{MessageId, MessageKind, Observed, StoreCommand};
use contexture_formats::tokens::TokenCounter;
use contexture_formats::{self as formats, Format};
use contexture_runtime::engines::{Occasion, Opened};
use contexture_runtime::supervision::Pace;
use serde::Deserialize;

use super::align::{Known, Mark};
use super::history::History;
use super::ids::{IdMap, Ids};
use super::request::ReadMessage;
use super::show::Start;
use super::slot::Slot;
use super::{Session, SessionError};

/// How many messages an engine is asked for at once.
pub(super) const PIECE: usize = 512;

impl Session {
    /// How far the engine says that it has seen the conversation.
    ///
    /// # Errors
    /// The engine failed.
    pub fn observed_through(&mut self) -> Result<Option<Observed>, SessionError> {
        let asked = self
            .engine
            .call("observed_through", Pace::Patient, |engine| {
                Ok(engine.observed_through())
            });
        Ok(asked?)
    }

    /// Where the engine and the host differ, and what the engine is told: after the last message that
    /// both have.
    pub(super) fn agreement(&mut self, seen: Option<Observed>) -> Result<Start, SessionError> {
        let pending = self.history.pending_cut;
        if let Some(seen) = seen.filter(|seen| self.history.agrees(*seen)) {
            let last = Some(seen.last);
            return Ok(Start {
                after: pending.map_or(last, |cut| last.min(cut)),
                cut: pending,
            });
        }
        // It wants everything again, whatever it could give back.
        if seen == Some(Observed::NOTHING) {
            return Ok(Start {
                after: None,
                cut: Some(None),
            });
        }
        // It has messages that are not part of the conversation, or not in this way: the longest beginning of
        // the conversation that it gives back is what both have.
        let logged: Ids = self
            .history
            .after(None)
            .iter()
            .map(|logged| logged.id)
            .collect();
        // What was cut off left its id behind; the engine may still have it.
        let was_cut_off =
            |id: &MessageId| !logged.contains(id) && self.history.written.covers(*id).is_none();
        let mut common = self.history.branch().to_vec();
        common.sort_by_key(|known| known.id);
        let stays = |known: &Known| pending.is_none_or(|cut| Some(known.id) <= cut);
        common.truncate(common.partition_point(stays));
        let mut last = None;
        let mut next = 1;
        'pieces: for piece in common.chunks(PIECE) {
            let end = piece.last().map_or(next, |known| known.id.0 + 1);
            let marks: IdMap<Mark> = piece.iter().map(|known| (known.id, known.mark)).collect();
            let ids: Vec<MessageId> = (next..end)
                .map(MessageId)
                .filter(|id| marks.contains_key(id) || was_cut_off(id))
                .collect();
            let recalled = recall(&mut self.engine, ids.clone(), &self.history);
            for id in ids {
                let message = recalled.get(&id).and_then(ReadMessage::message);
                let mark = marks.get(&id);
                if message.map(|message| message.identity) != mark.map(|mark| mark.identity) {
                    break 'pieces;
                }
                last = mark.map(|_| id).or(last);
            }
            next = end;
        }
        self.take_back_under_own_ids(last, seen);
        Ok(Start {
            after: last,
            cut: Some(last),
        })
    }

    /// Takes a conversation over from the engine, where the engine has it and the host's record is lost.
    pub(super) fn recover_from_engine(&mut self, format: Format) {
        // What another engine had meanwhile may begin with a summary that hides what this one has.
        let is_new = self.history.branch().is_empty();
        // (Who sent what a summary hid since, sent everything behind it as new.)
        let first = self.history.branch().iter().map(|known| known.id).min();
        let is_hidden =
            self.history.shown().0.is_none() && self.history.written.covers_unknown_since(first);
        if self.recovered || !(is_new || is_hidden) {
            return;
        }
        self.recovered = true;
        // One that remembers, and keeps no conversations, has nothing to give back.
        if !self.engine.about().keeps_sessions {
            return;
        }
        // One that fails now is asked later how far it has seen; its store is there all the same.
        let seen = match self.observed_through() {
            Ok(None) => return,
            seen => seen.ok().flatten(),
        };
        let messages = match self.exported(format) {
            Ok(messages) if !messages.is_empty() => messages,
            Ok(_) => return,
            Err(error) => return self.warn(format!(
                "the host has no record of session `{}`, and engine `{}` cannot give the conversation back: {error}",
                self.id,
                self.engine.name()
            )),
        };
        let is_known = |(id, read): &(MessageId, ReadMessage)| {
            let identity = read.message().map(|message| message.identity);
            identity.is_some() && self.history.identity(*id) == identity
        };
        if messages.iter().any(is_known) {
            return;
        }
        if !is_new {
            self.begin_anew();
        }
        tracing::info!(
            "the host has no record of session `{}`; engine `{}` gave {} messages back",
            self.id,
            self.engine.name(),
            messages.len()
        );
        let window = Arc::make_mut(&mut self.window);
        let last = messages.iter().map(|(id, _)| *id).max();
        let last = last.max(seen.map(|seen| seen.last));
        window.set_next_id((last.map_or(0, |last| last.0) + 1).max(window.next_id()));
        // An edited message has a later id than those behind it. From there on they get new ones, for ids follow
        // the order of the conversation.
        let mut least = MessageId(u64::MAX);
        let mut stay = messages.len();
        for (at, (id, _)) in messages.iter().enumerate().rev() {
            if *id > least {
                stay = at;
            }
            least = least.min(*id);
        }
        let mut known = Vec::with_capacity(messages.len());
        for (at, (id, read)) in messages.iter().enumerate() {
            let Some(message) = read.message() else {
                continue;
            };
            let mut id = *id;
            if at >= stay {
                id = window.fresh_id();
                let slot = Slot::new(id, MessageKind::Original, read, &self.counter);
                self.unshown.insert(id, slot);
            }
            let mark = Mark::of(message);
            known.push(Known { id, mark });
        }
        self.history.recover(&known, stay, seen);
    }

    /// The conversation that the engine keeps, in order.
    fn exported(&self, format: Format) -> Result<Vec<(MessageId, ReadMessage)>, String> {
        #[derive(Deserialize)]
        struct Page {
            messages: Vec<Line>,
            next: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Line {
            ids: Vec<u64>,
            message: Option<String>,
        }
        let (mut all, mut names, mut after) = (Vec::new(), HashMap::new(), None);
        loop {
            let command = StoreCommand::Export {
                session: self.id.clone(),
                after,
                limit: PIECE,
            };
            let answer = self.engines.manage(Some(self.engine.name()), &command);
            let answer = answer.map_err(|error| error.to_string())?;
            let page = Page::deserialize(&answer).map_err(|error| error.to_string())?;
            for line in page.messages {
                let text = line.message.unwrap_or_default();
                let read = read_back(&text, Some(format), &mut names);
                all.extend(line.ids.into_iter().map(MessageId).zip(read));
            }
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Messages as they were said, from the transcript; those whose text is not stored there from the engine, or from the
    /// one that had the session before it.
    pub(super) fn recalled(&mut self, missing: &Ids) -> IdMap<Slot> {
        let mut slots = self.stored_slots(missing);
        let missing: Ids = (missing.iter().copied())
            .filter(|id| !slots.contains_key(id))
            .collect();
        if missing.is_empty() {
            return slots;
        }
        // After a cut, messages that it saw before may have to be shown again.
        if self.history.shown().0.is_some() {
            let own = recall_slots(&mut self.engine, &self.history, &missing, &self.counter);
            slots.extend(own);
        }
        let missing: Ids = (missing.iter().copied())
            .filter(|id| !slots.contains_key(id))
            .collect();
        if missing.is_empty() {
            return slots;
        }
        let Some(name) = self.previous_engine.take() else {
            return slots;
        };
        let occasion = Occasion {
            session: &self.id,
            window: &self.state(),
            services: &self.lender(),
            compaction: None,
        };
        let mut engine = match self.engines.open(Some(&name), &occasion, &mut Vec::new()) {
            Ok(engine) => engine,
            Err(error) => {
                self.warn(format!(
                    "engine `{name}`, which had this session before, cannot be asked for its messages: {error}"
                ));
                return slots;
            }
        };
        slots.extend(recall_slots(
            &mut engine,
            &self.history,
            &missing,
            &self.counter,
        ));
        slots
    }
}

impl Session {
    /// Messages whose text is stored.
    fn stored_slots(&self, ids: &Ids) -> IdMap<Slot> {
        let stored = self.history.stored(ids).into_iter();
        let slots = stored.map(|stored| {
            let read = ReadMessage {
                conversation: stored.conversation,
                index: stored.part,
                wires: 0..0,
            };
            let slot = Slot::new(stored.id, MessageKind::Original, &read, &self.counter);
            (stored.id, slot)
        });
        slots.collect()
    }
}

/// Messages that an engine gives back, where they are those of the session: after a loss, engine and host may
/// have given the same id to two.
fn recall_slots(
    engine: &mut Opened,
    history: &History,
    ids: &Ids,
    counter: &TokenCounter,
) -> IdMap<Slot> {
    let mut ids: Vec<MessageId> = ids.iter().copied().collect();
    ids.sort_unstable();
    let mut slots = IdMap::default();
    for piece in ids.chunks(PIECE) {
        for (id, read) in recall(engine, piece.to_vec(), history) {
            let identity = read.message().map(|message| message.identity);
            if identity != history.identity(id) {
                continue;
            }
            slots.insert(id, Slot::new(id, MessageKind::Original, &read, counter));
        }
    }
    slots
}

/// The messages of these ids, in rising order, that an engine gives back; one that cannot be read is none.
pub(super) fn recall(
    engine: &mut Opened,
    ids: Vec<MessageId>,
    history: &History,
) -> IdMap<ReadMessage> {
    let asked = ids.clone();
    let answer = engine.call("recall", Pace::Long, move |engine| engine.recall(&asked));
    let texts = match answer {
        Ok(texts) => texts,
        Err(error) => {
            tracing::warn!("{error}");
            return IdMap::default();
        }
    };
    let mut found: Vec<(MessageId, String)> = Vec::new();
    for (id, text) in ids.into_iter().zip(texts) {
        if let Some(text) = text {
            found.push((id, text));
        }
    }
    let mut names = HashMap::new();
    let mut messages = IdMap::default();
    // The views of one wire message come one after another, each with all of its JSON.
    for run in found.chunk_by(|(_, one), (_, next)| one == next) {
        let Some((_, text)) = run.first() else {
            continue;
        };
        let mut read =
            || -> Vec<ReadMessage> { read_back(text, history.format(), &mut names).collect() };
        let mut views = read();
        let is_whole = run.len().is_multiple_of(views.len().max(1));
        let mut next = 0;
        for (id, _) in run {
            // If some of its views were edited or not asked for, their order alone does not tell which these are.
            let known = history.identity(*id).filter(|_| !is_whole);
            let place = known.and_then(|identity| {
                let is_it = |at: &usize| {
                    let message = views.get(*at).and_then(ReadMessage::message);
                    message.is_some_and(|message| message.identity == identity)
                };
                (next..views.len()).chain(0..next).find(is_it)
            });
            // Equal wire messages may follow each other.
            if place.map_or(next == views.len(), |place| place < next) {
                views = read();
                next = 0;
            }
            next = place.unwrap_or(next);
            let Some(view) = views.get(next) else { break };
            messages.insert(*id, view.clone());
            next += 1;
        }
    }
    messages
}

/// The messages in the JSON of a wire message that an engine gives back; none where it cannot be read.
fn read_back(
    text: &str,
    format: Option<Format>,
    names: &mut HashMap<String, String>,
) -> impl Iterator<Item = ReadMessage> {
    let lines = formats::item_lines(text);
    let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
    let format = format.unwrap_or(Format::OpenAiChat);
    let conversation = formats::excerpt(format, &lines, names).ok().map(Arc::new);
    conversation.into_iter().flat_map(|conversation| {
        (0..conversation.messages().len()).map(move |index| ReadMessage {
            conversation: Arc::clone(&conversation),
            index,
            wires: 0..0,
        })
    })
}
