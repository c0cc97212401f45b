//! One turn of a conversation: take a request in, show the engine what is new, compact where that is due,
//! and hand out what the model is to see.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use contexture_engine_api::{Decision, MessageId, Observed, Usage, WindowState};

use super::align::{Fate, Mark, Trail, Unit, align, raw_hash};
use super::history::Lost;
use super::report::CompactionReport;
use super::window::{SavedWindow, Slot, Window};
use super::{Ask, Session, SessionError};
use crate::formats::{self, Conversation, Format, FormatError, WireBody};
use crate::hygiene::{self, Hygiene};
use crate::supervision::{CallError, Pace};

/// How much is shown to an engine in one call, in messages and in tokens.
const PIECE_MESSAGES: usize = 256;
const PIECE_TOKENS: u64 = 200_000;

/// What came of a turn.
#[derive(Debug)]
pub struct Turn<'b> {
    /// The body to send: the very bytes that came where no compaction is in force.
    pub body: Cow<'b, str>,
    /// Whether a compaction was due, and why.
    pub decision: Decision,
    /// The compaction that was made, or tried.
    pub compaction: Option<CompactionReport>,
    /// The messages that were not known before, in order; revisions are among them.
    pub new: Vec<MessageId>,
    /// The revisions: the new id, and the id of the message that it replaces.
    pub revised: Vec<(MessageId, MessageId)>,
    /// Whether the conversation was cut back, and the last message before the cut.
    pub branched: Option<Option<MessageId>>,
    /// Whether the client carries on from what was handed out, rather than sending everything again.
    pub carried_on: bool,
}

/// A request, split into raw wire messages.
pub(super) struct Request<'b> {
    body: &'b str,
    pub(super) wire: WireBody<'b>,
    pub(super) raw: Vec<u64>,
    /// The conversation, where it was read already.
    pub(super) read: Option<Arc<Conversation>>,
}

impl<'b> Request<'b> {
    fn split(body: &'b str, format: Option<Format>) -> Result<Self, FormatError> {
        let wire = formats::split(body, format)?;
        let raw = wire.messages.iter().map(|raw| raw_hash(raw)).collect();
        Ok(Self {
            body,
            wire,
            raw,
            read: None,
        })
    }

    /// A conversation that was read from a document of any format.
    pub(super) fn of(conversation: &'b Arc<Conversation>) -> Self {
        let messages = conversation.messages();
        let items = messages.iter().map(|message| message.items.end).max();
        Self {
            body: conversation.document(),
            wire: WireBody {
                format: conversation.format(),
                system: None,
                system_messages: Vec::new(),
                tools: None,
                model: None,
                messages: Vec::new(),
            },
            raw: (0..items.unwrap_or(0))
                .map(|item| raw_hash(conversation.item(item)))
                .collect(),
            read: Some(Arc::clone(conversation)),
        }
    }

    /// Reads the wire messages of these places.
    pub(super) fn units(&self, wires: &[usize]) -> Result<Vec<Unit>, FormatError> {
        let Some(conversation) = &self.read else {
            let messages = formats::parse_messages(self.wire.format, &self.texts(wires))?;
            return Ok(messages.iter().map(Unit::of).collect());
        };
        let units = conversation.messages().iter().filter_map(|message| {
            let start = wires.binary_search(&message.items.start).ok()?;
            Some(Unit {
                mark: Mark::of(message),
                wires: start..start + message.items.len(),
            })
        });
        Ok(units.collect())
    }

    /// Whether a message may stand in several wire messages.
    pub(super) fn joins(&self) -> bool {
        self.read.is_some() || matches!(self.wire.format, Format::OpenAiResponses | Format::Codex)
    }

    fn texts(&self, wires: &[usize]) -> Vec<&'b str> {
        wires
            .iter()
            .filter_map(|wire| self.wire.messages.get(*wire).copied())
            .collect()
    }
}

/// What a request brought.
#[derive(Default)]
pub(super) struct Arrival {
    pub(super) new: Vec<MessageId>,
    revised: Vec<(MessageId, MessageId)>,
    branched: Option<Option<MessageId>>,
    carried_on: bool,
    /// The new messages.
    pub(super) slots: HashMap<MessageId, Slot>,
}

/// What an engine answered to what it was to be shown.
enum Shown {
    /// It saw it: what it says to have seen now, and whether to compact.
    Seen(Option<Observed>, Decision),
    /// It has not seen what the host thinks, but this.
    Disagrees(Option<Observed>),
}

impl Session {
    /// Takes in a request of the client: finds out what of it is new, shows that to the engine, compacts
    /// where hygiene or the engine says so, and answers the body to send to the model.
    ///
    /// The client may send the whole history again, or carry on from what was handed out last. Kept
    /// messages leave with the bytes of this request.
    ///
    /// # Errors
    /// The body is not one of its format; or the engine failed and `context.on_failure` is `fail`.
    pub fn turn<'b>(
        &mut self,
        body: &'b str,
        format: Option<Format>,
    ) -> Result<Turn<'b>, SessionError> {
        let request = Request::split(body, format)?;
        self.take_frame(&request)?;
        let arrival = self.take_in(&request)?;
        let decision = self.show(Some(&request), arrival.slots, &mut |_| {})?;
        let compaction = self.compact_if_due(&decision)?;
        let view = self.select()?;
        Ok(Turn {
            body: self.hand_out(&request, view.as_ref()),
            decision,
            compaction,
            new: arrival.new,
            revised: arrival.revised,
            branched: arrival.branched,
            carried_on: arrival.carried_on,
        })
    }

    /// Takes in the complete answer to the last turn: its usage, then the answer itself, as the JSON of its
    /// message (for Responses: of each of its items). Answers the ids of its messages.
    ///
    /// # Errors
    /// It is not a message of the format of the last turn, or there was no turn yet; or the engine failed
    /// and `context.on_failure` is `fail`.
    pub fn answer(
        &mut self,
        items: &[&str],
        usage: Option<&Usage>,
    ) -> Result<Vec<MessageId>, SessionError> {
        let format = self.history.format.ok_or(SessionError::NoTurn)?;
        let conversation = formats::excerpt(format, items, &mut self.history.names)?;
        if let Some(usage) = usage {
            self.update_usage(usage);
        }
        let conversation = Arc::new(conversation);
        let raw: Vec<u64> = items.iter().map(|raw| raw_hash(raw)).collect();
        let window = Arc::make_mut(&mut self.window);
        let (mut messages, mut slots) = (Vec::new(), HashMap::new());
        for (index, message) in conversation.messages().iter().enumerate() {
            let slot = Slot::new(window.fresh_id(), &conversation, index, &self.counter);
            messages.push((slot.id(), Unit::of(message)));
            window.push_slot(slot.clone());
            slots.insert(slot.id(), slot);
        }
        let (log_from, sent_from) = (self.history.log.len(), self.history.sent.raw().len());
        for (id, unit) in &messages {
            self.history.append(*id, unit.mark.identity, None);
        }
        let new: Vec<MessageId> = messages.iter().map(|(id, _)| *id).collect();
        self.new_since_compaction |= !new.is_empty();
        self.history.sent.push(&raw, messages.iter().cloned());
        let next_id = self.window.next_id();
        let lost = self.history.save(next_id, log_from, sent_from);
        self.warn(lost);
        if !self.history.handed.is_empty() {
            let mut handed = self.history.handed.clone();
            handed.push(&raw, messages);
            let lost = self.history.set_handed(handed);
            self.warn(lost);
        }
        self.show(None, slots, &mut |_| {})?;
        Ok(new)
    }

    pub(super) fn warn(&mut self, warning: Lost) {
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
            self.warnings.push(warning);
        }
    }

    /// System prompt and tools, read only where they changed.
    fn take_frame(&mut self, request: &Request<'_>) -> Result<(), SessionError> {
        let wire = &request.wire;
        let parts = wire.system.iter().chain(&wire.tools);
        let hash = parts
            .chain(&wire.system_messages)
            .fold(wire.format as u64, |hash, part| {
                hash.rotate_left(1) ^ raw_hash(part)
            });
        if self.frame.as_ref().is_none_or(|frame| frame.hash != hash) {
            let frame = formats::read_part(request.body, wire.format, |_| false)?;
            self.set_frame(&frame);
            self.frame = Some(super::Frame {
                hash,
                system: frame.system().map(str::to_owned),
            });
        }
        Ok(())
    }

    /// Aligns a request with the history, gives its new messages their ids, writes them to the store, and
    /// brings the window up to date.
    pub(super) fn take_in(&mut self, request: &Request<'_>) -> Result<Arrival, SessionError> {
        let format = request.wire.format;
        let carried_on = self.history.carries_on(&request.raw);
        let known = if carried_on {
            &self.history.handed
        } else {
            &self.history.sent
        };
        let alignment = align(known, &request.raw, request.joins(), |wires| {
            request.units(wires)
        })?;
        // Of a history that comes from the store only the hashes are known: the calls are in the request.
        if self.history.resumed {
            formats::parse_messages_after(format, &request.wire.messages, &mut self.history.names)?;
        }
        let mut next_id = self.window.next_id();
        let trail = alignment.advance(known, &request.raw, || {
            let id = MessageId(next_id);
            next_id += 1;
            id
        });
        let mut arrival = Arrival {
            carried_on,
            ..Arrival::default()
        };
        let rest = trail.messages().iter().skip(alignment.known);
        for (message, aligned) in rest.zip(&alignment.rest) {
            match aligned.fate {
                Fate::Same(_) => continue,
                Fate::Revises(old) => arrival.revised.push((message.id, old)),
                Fate::New => {}
            }
            arrival.new.push(message.id);
        }
        let new: HashSet<MessageId> = arrival.new.iter().copied().collect();
        arrival.slots = self.read_slots(request, &trail, |id| new.contains(&id))?;

        let revised: HashMap<MessageId, MessageId> = arrival.revised.iter().copied().collect();
        let before = alignment.cut.then(|| self.history.log.clone());
        let mut log_from = self.history.log.len();
        for message in trail.messages().iter().skip(alignment.known) {
            if new.contains(&message.id) {
                let replaces = revised.get(&message.id).copied();
                self.history
                    .append(message.id, message.mark.identity, replaces);
            }
        }
        if let Some(before) = before {
            let last = self.history.cut(&alignment.lost, &trail);
            arrival.branched = Some(last);
            self.history.gone.extend(&alignment.lost);
            let earlier = self.history.pending_cut;
            self.history.pending_cut = Some(earlier.map_or(last, |earlier| earlier.min(last)));
            self.reported = None;
            let unchanged = before.iter().zip(&self.history.log);
            log_from = unchanged.take_while(|(before, now)| before == now).count();
        }
        let changes = Changes {
            lost: alignment.lost.iter().copied().collect(),
            cut: arrival.branched,
            revised: arrival
                .revised
                .iter()
                .map(|(new, old)| (*old, *new))
                .collect(),
            new: &new,
            carried_on,
            next_id,
        };
        self.bring_window_up_to_date(request, &trail, &changes, &arrival.slots)?;
        self.new_since_compaction |= !arrival.new.is_empty();
        self.history.format = Some(format);
        self.history.resumed = false;
        self.history.sent = trail;
        let sent_from = if carried_on { 0 } else { alignment.wires };
        let lost = self.history.save(next_id, log_from, sent_from);
        self.warn(lost);
        if carried_on {
            let lost = self.history.set_handed(Trail::default());
            self.warn(lost);
        }
        Ok(arrival)
    }

    /// Reads the messages of a request that are `wanted`.
    fn read_slots(
        &mut self,
        request: &Request<'_>,
        trail: &Trail,
        wanted: impl Fn(MessageId) -> bool,
    ) -> Result<HashMap<MessageId, Slot>, FormatError> {
        let mut wires: Vec<usize> = trail
            .messages()
            .iter()
            .filter(|message| wanted(message.id))
            .flat_map(|message| message.wires.clone())
            .collect();
        wires.dedup();
        let mut slots = HashMap::new();
        if let Some(conversation) = &request.read {
            for (index, message) in trail.messages().iter().enumerate() {
                if wanted(message.id) {
                    let slot = Slot::new(message.id, conversation, index, &self.counter);
                    slots.insert(message.id, slot);
                }
            }
            return Ok(slots);
        }
        for run in wires.chunk_by(|one, next| one + 1 == *next) {
            let format = request.wire.format;
            let texts = request.texts(run);
            let conversation = Arc::new(formats::excerpt(format, &texts, &mut self.history.names)?);
            let messages = run.iter().flat_map(|wire| trail.beginning_in(*wire));
            for (index, message) in messages.enumerate() {
                if wanted(message.id) {
                    let slot = Slot::new(message.id, &conversation, index, &self.counter);
                    slots.insert(message.id, slot);
                }
            }
        }
        Ok(slots)
    }

    /// Makes the window what the request makes of it. What the store is to know of the compaction in
    /// force is only marked: it is written with the rest.
    fn bring_window_up_to_date(
        &mut self,
        request: &Request<'_>,
        trail: &Trail,
        changes: &Changes<'_>,
        new: &HashMap<MessageId, Slot>,
    ) -> Result<(), SessionError> {
        let resumed = self.history.resumed;
        let mut in_force = self.history.in_force.take();
        let applied = in_force.as_mut().filter(|in_force| !in_force.carried_on);
        let takes_over = applied.is_some() && changes.carried_on;
        let void = applied.as_ref().is_some_and(|in_force| {
            let is_covered = |id: MessageId| in_force.window.has_left_out(id);
            !takes_over && changes.reach_into(trail, is_covered)
        });
        match applied {
            Some(in_force) if takes_over => in_force.carried_on = true,
            _ if void => in_force = None,
            _ => {}
        }
        let applied = in_force.as_ref().filter(|in_force| !in_force.carried_on);
        let slots = if takes_over || void || (resumed && applied.is_none()) {
            let mut all = self.read_slots(request, trail, |id| !new.contains_key(&id))?;
            let slot = |id: MessageId| all.remove(&id).or_else(|| new.get(&id).cloned());
            let ids = trail.messages().iter().map(|message| message.id);
            ids.filter_map(slot).collect()
        } else {
            match applied.filter(|_| resumed) {
                Some(in_force) => {
                    let restored = self.restore(request, trail, changes, &in_force.window)?;
                    changes.apply(&restored, trail, new)
                }
                None => changes.apply(self.window.slots(), trail, new),
            }
        };
        let note = in_force
            .as_ref()
            .and_then(|in_force| in_force.window.system_note())
            .map(str::to_owned);
        self.window = Arc::new(Window::of(slots, note, changes.next_id));
        let mut changed = takes_over || void;
        if let Some(in_force) = in_force.as_mut().filter(|in_force| !in_force.carried_on)
            && !changes.only_append(trail)
        {
            in_force.window = self.window.save();
            changed = true;
        }
        self.history.in_force = in_force;
        self.history.in_force_changed |= changed;
        Ok(())
    }

    /// The places of a window that was saved, and the messages that came since, with the bytes of this
    /// request. What is new with the request is not among them.
    fn restore(
        &mut self,
        request: &Request<'_>,
        trail: &Trail,
        changes: &Changes<'_>,
        saved: &SavedWindow,
    ) -> Result<Vec<Slot>, FormatError> {
        let revised: HashMap<MessageId, MessageId> = changes
            .revised
            .iter()
            .map(|(old, new)| (*new, *old))
            .collect();
        let id_then = |id: MessageId| revised.get(&id).copied().unwrap_or(id);
        let places: HashSet<MessageId> = saved.ids().collect();
        let is_new = |id: MessageId| changes.new.contains(&id) && !revised.contains_key(&id);
        let came_since = |id: MessageId| !is_new(id) && saved.predates(id_then(id));
        let read = self.read_slots(request, trail, |id| {
            came_since(id) || (!is_new(id) && places.contains(&id_then(id)))
        })?;
        let by_id_then: HashMap<MessageId, Slot> = read
            .iter()
            .map(|(id, slot)| (id_then(*id), slot.clone()))
            .collect();
        let window = Window::restore(saved, &by_id_then, changes.next_id, &self.counter);
        let mut slots = window.slots().to_vec();
        let since = trail.messages().iter().map(|message| message.id);
        slots.extend(
            since
                .filter(|id| came_since(*id))
                .filter_map(|id| read.get(&id).cloned()),
        );
        Ok(slots)
    }

    /// Shows the engine what it has not seen, in one hop with its decision whether to compact. `fresh` holds
    /// the messages that are new; `shown` is told how many messages of a long history went over at a time.
    pub(super) fn show(
        &mut self,
        request: Option<&Request<'_>>,
        fresh: HashMap<MessageId, Slot>,
        shown: &mut dyn FnMut(usize),
    ) -> Result<Decision, SessionError> {
        let believed = self.history.shown;
        let cut = self.history.pending_cut;
        let from = match cut {
            Some(cut) => believed.map(|seen| seen.last).min(cut),
            None => believed.map(|seen| seen.last),
        };
        let expected = if self.history.distrusted {
            Expected::Anything
        } else {
            Expected::This(believed, self.history.remembers)
        };
        let mut answer = self.show_from(request, &fresh, (from, cut), expected, shown)?;
        if let Ok(Shown::Disagrees(seen)) = answer {
            let agreed = seen.filter(|seen| self.history.agrees(*seen));
            // What it has seen is no part of this conversation.
            let cut = (seen.is_some() && agreed.is_none()).then_some(None);
            let from = agreed.map(|seen| seen.last);
            tracing::info!(
                "engine `{}` has seen {}, and the host thought {}: it is shown the rest again",
                self.engine.name(),
                place_of(seen),
                place_of(believed),
            );
            answer = self.show_from(request, &fresh, (from, cut), Expected::Anything, shown)?;
        }
        // A cut into the middle of what was shown at once leaves an engine at the end of what was shown
        // before it: it is shown the rest again.
        if let Ok(Shown::Seen(Some(seen), _)) = &answer
            && cut.is_some()
            && Some(*seen) != self.history.end()
            && self.history.agrees(*seen)
        {
            let from = Some(seen.last);
            answer = self.show_from(request, &fresh, (from, None), Expected::Anything, shown)?;
        }
        match answer {
            Ok(Shown::Seen(seen, decision)) => {
                self.history.pending_cut = None;
                let end = self.history.end();
                // After a cut inside what was shown at once, an engine has no chain hash for its place.
                let nothing_shown = self.history.after(from).is_empty();
                let same_place = seen.map(|seen| seen.last) == end.map(|end| end.last);
                // What comes after it may be messages that were revised since: there is nothing to show of
                // them, and the next turn begins where the engine is.
                let has_all_there_is = match seen.filter(|seen| self.history.agrees(*seen)) {
                    Some(seen) if Some(seen) != end => {
                        self.reel(request, &fresh, Some(seen.last))?.is_empty()
                    }
                    _ => false,
                };
                let remembers = seen.is_some()
                    && (seen == end || (nothing_shown && same_place) || has_all_there_is);
                if seen.is_some() && !remembers && !self.history.distrusted {
                    self.history.distrusted = true;
                    let warning = format!(
                        "engine `{}` says that it has seen {}, and it was shown {}: what it says of this is \
                         not used any more. Report it to the engine's author.",
                        self.engine.name(),
                        place_of(seen),
                        place_of(end),
                    );
                    self.warn(Some(warning));
                }
                let shown = if remembers { seen } else { end };
                let lost = self.history.set_shown(shown, remembers);
                self.warn(lost);
                Ok(decision)
            }
            // It was asked for nothing in particular, so it cannot disagree.
            Ok(Shown::Disagrees(_)) => self.should_compress(),
            Err(error) => {
                let state = self.state();
                self.decide_without_engine(error, &state)
            }
        }
    }

    /// One hop: the cut, the messages after `from`, and the decision.
    fn show_from(
        &mut self,
        request: Option<&Request<'_>>,
        fresh: &HashMap<MessageId, Slot>,
        (from, cut): (Option<MessageId>, Option<Option<MessageId>>),
        expected: Expected,
        shown: &mut dyn FnMut(usize),
    ) -> Result<Result<Shown, CallError>, SessionError> {
        let reel = self.reel(request, fresh, from)?;
        let chain = self.history.end().map_or(0, |end| end.chain);
        let state = self.state();
        let mut pieces = self.pieces(&reel, from);
        let last = pieces.pop().unwrap_or((Window::new(), chain));
        let (mut cut, mut expected) = (cut, Some(expected));
        // Much at once (a first opening, an import) is shown in pieces, for each call has its deadline.
        for piece in pieces {
            let messages = piece.0.len();
            let answer = self.show_piece(piece, cut.take(), expected.take(), None);
            if !matches!(answer, Ok(Shown::Seen(..))) {
                return Ok(answer);
            }
            shown(messages);
        }
        let messages = last.0.len();
        let answer = self.show_piece(last, cut, expected, Some(state));
        shown(messages);
        Ok(answer)
    }

    /// One call of the engine: what it has seen is checked, it is told of the cut and of revisions, shown the
    /// messages, and asked for its decision where `state` is given.
    fn show_piece(
        &mut self,
        (reel, chain): (Window, u64),
        cut: Option<Option<MessageId>>,
        expected: Option<Expected>,
        state: Option<WindowState>,
    ) -> Result<Shown, crate::supervision::CallError> {
        let revised = self
            .history
            .revisions_among(reel.slots().iter().map(Slot::id));
        self.engine.call("observe", Pace::Short, move |engine| {
            if let Some(expected) = expected {
                let seen = engine.observed_through();
                if !expected.allows(seen) {
                    return Ok(Shown::Disagrees(seen));
                }
            }
            if let Some(last) = cut {
                engine.branched(last);
            }
            if !revised.is_empty() {
                engine.revised(&revised);
            }
            if !reel.is_empty() {
                let calls = reel.call_views(0);
                engine.observe(&reel.views(0, &calls), chain)?;
            }
            let decision = match state {
                Some(state) => engine.should_compress(&state),
                None => Decision::No("there is more to see".into()),
            };
            Ok(Shown::Seen(engine.observed_through(), decision))
        })
    }

    /// The messages to show, in pieces, each with the chain hash after it.
    fn pieces(&self, reel: &Window, from: Option<MessageId>) -> Vec<(Window, u64)> {
        let chains: HashMap<MessageId, u64> = (self.history.after(from).iter())
            .map(|logged| (logged.id, logged.chain))
            .collect();
        let mut pieces = Vec::new();
        let (mut piece, mut tokens) = (Vec::new(), 0);
        for slot in reel.slots() {
            tokens += slot.tokens();
            piece.push(slot.clone());
            if piece.len() >= PIECE_MESSAGES || tokens >= PIECE_TOKENS {
                let chain = chains.get(&slot.id()).copied().unwrap_or(0);
                pieces.push((Window::of(std::mem::take(&mut piece), None, 0), chain));
                tokens = 0;
            }
        }
        if let Some(last) = piece.last() {
            let chain = chains.get(&last.id()).copied().unwrap_or(0);
            pieces.push((Window::of(piece, None, 0), chain));
        }
        pieces
    }

    /// The messages after `from`, for an engine to see. Those whose text is nowhere any more are left out.
    fn reel(
        &mut self,
        request: Option<&Request<'_>>,
        fresh: &HashMap<MessageId, Slot>,
        from: Option<MessageId>,
    ) -> Result<Window, SessionError> {
        let ids: Vec<MessageId> = self
            .history
            .after(from)
            .iter()
            .map(|logged| logged.id)
            .collect();
        if ids.is_empty() {
            return Ok(Window::new());
        }
        let first = ids.iter().min().copied();
        let window = Arc::clone(&self.window);
        let mut at_hand: HashMap<MessageId, &Slot> = window
            .slots()
            .iter()
            .filter(|slot| slot.is_verbatim() && Some(slot.id()) >= first)
            .map(|slot| (slot.id(), slot))
            .collect();
        at_hand.extend(fresh.iter().map(|(id, slot)| (*id, slot)));
        let missing: HashSet<MessageId> = (ids.iter().copied())
            .filter(|id| !at_hand.contains_key(id))
            .collect();
        let mut read = HashMap::new();
        if let Some(request) = request.filter(|_| !missing.is_empty()) {
            let trail = self.history.sent.clone();
            read = self.read_slots(request, &trail, |id| missing.contains(&id))?;
        }
        let nowhere = missing.len() - read.len();
        if nowhere > 0 {
            tracing::warn!(
                "{nowhere} earlier messages are no longer in the request, so engine `{}` is not shown them",
                self.engine.name()
            );
        }
        let slots = ids
            .iter()
            .filter_map(|id| at_hand.get(id).copied().or_else(|| read.get(id)))
            .cloned()
            .collect();
        Ok(Window::of(slots, None, 0))
    }

    /// Compacts where the engine decided so, or hygiene does: what happens before every request.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub(crate) fn compact_if_due(
        &mut self,
        decision: &Decision,
    ) -> Result<Option<CompactionReport>, SessionError> {
        let config = self.engines.config();
        let rules = Hygiene {
            enabled: config.compression.enabled,
            max_messages: config.hygiene.max_messages,
        };
        let safety_net = hygiene::check(&self.state(), &rules);
        // An engine that says no beyond the safety net is overruled, once for what there is.
        let overrule = safety_net.is_yes() && !decision.is_yes() && self.new_since_compaction;
        if !decision.is_yes() && !overrule {
            return Ok(None);
        }
        let ask = Ask {
            force: overrule,
            ..Ask::default()
        };
        let mut report = self.compact(&ask)?;
        if overrule {
            self.new_since_compaction = false;
            let reason = safety_net.reason();
            report.notes.push(format!("session hygiene: {reason}"));
        }
        Ok(Some(report))
    }

    /// The body for the model: the window, or what the engine would show of it this once. Where that is
    /// what came, these are the bytes that came.
    fn hand_out<'b>(&mut self, request: &Request<'b>, view: Option<&Window>) -> Cow<'b, str> {
        // A client carries on from the window: a view holds for its request alone.
        let rendered = self.render(request, &self.window).and_then(|body| {
            let handed = match &body {
                Cow::Borrowed(_) => Trail::default(),
                Cow::Owned(body) => self.handed_trail(body, request.wire.format)?,
            };
            Ok((body, handed))
        });
        let (body, handed) = rendered.unwrap_or_else(|error| {
            self.warn(Some(format!(
                "the compaction in force could not be applied, so the request leaves as it came: {error}"
            )));
            (Cow::Borrowed(request.body), Trail::default())
        });
        let lost = self.history.set_handed(handed);
        self.warn(lost);
        let Some(view) = view else {
            return body;
        };
        self.render(request, view).unwrap_or_else(|error| {
            self.warn(Some(format!(
                "the engine's view could not be applied, so the window leaves as it is: {error}"
            )));
            body
        })
    }

    /// Whether a window is what the client sent last, system prompt included.
    fn is_as_it_came(&self, window: &Window) -> bool {
        let sent = self.history.sent.messages();
        let system = self
            .frame
            .as_ref()
            .and_then(|frame| frame.system.as_deref());
        let note_is_there = window
            .system_note()
            .is_none_or(|note| system.is_some_and(|system| system.contains(note)));
        note_is_there
            && window.slots().len() == sent.len()
            && window
                .slots()
                .iter()
                .zip(sent)
                .all(|(slot, message)| slot.is_verbatim() && slot.id() == message.id)
    }

    /// A window with the bytes of this request.
    fn render<'b>(
        &self,
        request: &Request<'b>,
        window: &Window,
    ) -> Result<Cow<'b, str>, FormatError> {
        if self.is_as_it_came(window) {
            return Ok(Cow::Borrowed(request.body));
        }
        let format = request.wire.format;
        let in_window: HashSet<MessageId> = window.slots().iter().map(Slot::id).collect();
        let trail = &self.history.sent;
        let mut kept: HashSet<usize> = HashSet::new();
        for message in trail.messages() {
            if in_window.contains(&message.id) {
                kept.extend(message.wires.clone());
            }
        }
        let of = |wires: &dyn Fn(usize) -> bool| -> Vec<MessageId> {
            let messages = trail.messages().iter();
            let kept = messages.filter(|message| wires(message.wires.start));
            kept.map(|message| message.id).collect()
        };
        let mut ids = of(&|wire| kept.contains(&wire));
        let mut conversation =
            formats::read_part(request.body, format, |wire| kept.contains(&wire))?;
        if conversation.messages().len() != ids.len() {
            // Messages that the gap between them kept apart: read with all that stands between them.
            ids = of(&|_| true);
            conversation = formats::read_part(request.body, format, |_| true)?;
        }
        let index: HashMap<MessageId, usize> = ids
            .into_iter()
            .enumerate()
            .map(|(at, id)| (id, at))
            .collect();
        let body = conversation.render(&formats::Window {
            entries: window.places_by(|slot| index.get(&slot.id()).copied()),
            system_note: window.system_note(),
        })?;
        Ok(Cow::Owned(body))
    }

    /// The history that the window is on the wire. Empty where its messages cannot be told apart; then a
    /// client that carries on from it is not recognised by the ids, but its summaries are by their marks.
    fn handed_trail(&self, body: &str, format: Format) -> Result<Trail, FormatError> {
        let out = Request::split(body, Some(format))?;
        let common = self.history.handed.common(&out.raw).saturating_sub(1);
        let mut trail = self.history.handed.clone();
        trail.truncate(common);
        let order = self.window.leaving_order();
        let as_before = trail.messages().iter().map(|message| message.id);
        if !as_before.eq(order.iter().copied().take(trail.messages().len()))
            || format == Format::OpenAiResponses
        {
            trail.truncate(0);
        }
        let from = trail.raw().len();
        let rest = out.wire.messages.get(from..).unwrap_or(&[]);
        let messages = formats::parse_messages(format, rest)?;
        let ids = order.get(trail.messages().len()..).unwrap_or(&[]);
        if messages.len() != ids.len() {
            tracing::debug!(
                "{} messages were handed out for {} places of the window",
                messages.len(),
                ids.len()
            );
            return Ok(Trail::default());
        }
        let units = messages.iter().map(Unit::of);
        let raw = out.raw.get(from..).unwrap_or(&[]);
        trail.push(raw, ids.iter().copied().zip(units));
        Ok(trail)
    }
}

/// What the host thinks an engine has seen.
#[derive(Clone, Copy)]
enum Expected {
    /// This, and whether the engine has said so itself before.
    This(Option<Observed>, bool),
    Anything,
}

impl Expected {
    fn allows(&self, seen: Option<Observed>) -> bool {
        match (self, seen) {
            (Self::Anything, _) => true,
            // An engine that remembers nothing is shown what is new. One that did remember lost its store.
            (Self::This(_, remembers), None) => !remembers,
            (Self::This(believed, _), seen) => *believed == seen,
        }
    }
}

fn place_of(seen: Option<Observed>) -> String {
    seen.map_or_else(
        || "nothing".to_owned(),
        |seen| format!("{} (chain {:016x})", seen.last, seen.chain),
    )
}

/// How a request changes the window.
struct Changes<'a> {
    lost: HashSet<MessageId>,
    /// Where the conversation was cut back: the last message that stays.
    cut: Option<Option<MessageId>>,
    /// The new ids of revised messages, by the old.
    revised: HashMap<MessageId, MessageId>,
    new: &'a HashSet<MessageId>,
    carried_on: bool,
    next_id: u64,
}

impl Changes<'_> {
    /// Whether all that happened is that messages were added at the end.
    fn only_append(&self, trail: &Trail) -> bool {
        let added = trail.messages().iter().rev();
        let added = added
            .take_while(|message| self.new.contains(&message.id))
            .count();
        self.lost.is_empty() && self.revised.is_empty() && added == self.new.len()
    }

    /// Whether they reach into what a summary covers: it tells of messages that are cut off or read
    /// otherwise now, or says nothing of one that came in between, and so it is void.
    fn reach_into(&self, trail: &Trail, is_covered: impl Fn(MessageId) -> bool) -> bool {
        let ids = || trail.messages().iter().map(|message| message.id);
        let cut_off = self.cut.is_some_and(|last| {
            // What came after the cut and is still there is shown to the engine again.
            let mut after = ids().chain(self.lost.iter().copied());
            after.any(|id| Some(id) > last && is_covered(id))
        });
        let mut neighbours = ids().zip(ids().skip(1));
        cut_off
            || self.revised.keys().any(|old| is_covered(*old))
            || neighbours.any(|(id, next)| self.new.contains(&id) && is_covered(next))
    }

    /// The window after the request: without what was lost, with revisions in their places, and with what
    /// is new.
    fn apply(&self, slots: &[Slot], trail: &Trail, new: &HashMap<MessageId, Slot>) -> Vec<Slot> {
        let mut next: Vec<Slot> = Vec::with_capacity(slots.len() + new.len());
        for slot in slots.iter().filter(|slot| !self.lost.contains(&slot.id())) {
            match self.revised.get(&slot.id()).and_then(|id| new.get(id)) {
                Some(revision) => next.push(revision.clone()),
                None => next.push(slot.clone()),
            }
        }
        let revisions: HashSet<MessageId> = self.revised.values().copied().collect();
        let is_inserted = |id: &MessageId| self.new.contains(id) && !revisions.contains(id);
        let ids: Vec<MessageId> = trail.messages().iter().map(|message| message.id).collect();
        let appended = ids.iter().rev().take_while(|id| is_inserted(id)).count();
        let (earlier, appended) = ids.split_at(ids.len() - appended);
        let mut following = None;
        for id in earlier.iter().rev() {
            if !is_inserted(id) {
                following = Some(*id);
                continue;
            }
            let at = next.iter().position(|slot| Some(slot.id()) == following);
            if let Some((at, slot)) = at.zip(new.get(id)) {
                next.insert(at, slot.clone());
                following = Some(*id);
            }
        }
        next.extend(appended.iter().filter_map(|id| new.get(id)).cloned());
        next
    }
}
