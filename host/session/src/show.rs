//! Showing the engine what it has not seen, in one hop with its decision whether to compact.
//!
//! An engine that remembers says how far it has seen. Where that is not what the host knows (one of the two
//! stores was lost or is older, or a call came back late), the two are brought to agree by what the engine
//! gives back of the conversation, and it is shown the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use contexture_engine_api::protocol::{Expected, Follow, Followed};
use contexture_engine_api::{Cut, Decision, Delivery, MessageId, Observed, WindowState};
use contexture_runtime::supervision::{CallError, Pace};

use super::ids::{IdMap, Ids};
use super::request::Request;
use super::slot::Slot;
use super::window::Window;
use super::{Session, SessionError};

/// How much is shown to an engine in one call, in messages and in tokens.
const PIECE_MESSAGES: usize = 256;
const PIECE_TOKENS: u64 = 200_000;

/// Where a showing begins: after this message, and the cut that the engine is told of first.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) after: Option<MessageId>,
    pub(super) cut: Option<Option<MessageId>>,
}

/// Messages that the engine was shown in a call that was given up.
#[derive(Debug)]
pub(super) struct LatePiece {
    /// The last of them; none where it was told of a cut alone.
    end: Option<Observed>,
    /// Whether it was told of the cut with them.
    tells_cut: bool,
    /// Set once it has seen them.
    seen: Arc<AtomicBool>,
}

impl LatePiece {
    pub(super) fn was_seen(&self) -> bool {
        self.seen.load(Ordering::Acquire)
    }
}

impl Session {
    /// Shows the engine what it has not seen. `progress` is told the number of messages after each delivery.
    pub(super) fn show(
        &mut self,
        request: Option<&Request<'_>>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Decision, SessionError> {
        let mut comes_back = false;
        if self.history.shown().0.is_none() {
            // A session that comes to this engine: it may have had it before.
            let had = self
                .engine
                .call("observed_through", Pace::Patient, |engine| {
                    Ok(engine.observed_through())
                });
            match had {
                Ok(None) => {}
                Ok(Some(had)) => {
                    self.history.set_shown(Some(had), true);
                    comes_back = true;
                }
                Err(error) => return self.decide_without_engine(error, &self.state()),
            }
        }
        let (believed, remembers) = self.history.shown();
        let cut = self.history.pending_cut;
        let believed_last = believed.map(|seen| seen.last);
        let mut start = Start {
            after: cut.map_or(believed_last, |cut| believed_last.min(cut)),
            cut,
        };
        let mut expected = match self.history.distrusted {
            true => None,
            false => Some(Expected::new(believed, remembers)),
        };
        let shows_again = remembers && self.show_again_what_it_lacked(&mut start);
        // What was cut off while the engine could not be told of it is not part of the conversation. (What is cut off
        // now it is told.)
        let stays = cut.is_none_or(|cut| believed_last <= cut);
        if !shows_again
            && (stays || comes_back)
            && believed.is_some_and(|believed| !self.history.agrees(believed))
        {
            start = self.agreement(believed)?;
            expected = None;
        }
        let mut answer = self.show_from(request, start, expected, progress)?;
        // A call that was given up long ago may have come to its end meanwhile, and shown it more.
        if matches!(
            answer,
            Err(CallError::Failed { .. } | CallError::Stopped { .. })
        ) && let Ok(seen) = self.observed_through()
            && seen.map(|seen| seen.last) > believed_last
        {
            answer = Ok(Followed::Disagrees(seen));
        }
        if let Ok(Followed::Disagrees(seen)) = answer {
            start = self.agreement(seen)?;
            if seen.is_some() {
                self.show_again_what_it_lacked(&mut start);
            }
            tracing::info!(
                "engine `{}` has seen {}, and the host thought {}: it is shown what follows {}",
                self.engine.name(),
                place_of(seen),
                place_of(believed),
                start
                    .after
                    .map_or("nothing".to_owned(), |id| id.to_string()),
            );
            answer = self.show_from(request, start, None, progress)?;
        }
        // A cut into the middle of what was shown at once leaves an engine at the end of what was shown
        // before it: it is shown the rest again.
        if let Ok(Followed::Seen(Some(seen), _)) = &answer
            && start.cut.is_some()
            && Some(*seen) != self.history.end()
            && self.history.agrees(*seen)
        {
            start = Start {
                after: Some(seen.last),
                cut: None,
            };
            answer = self.show_from(request, start, None, progress)?;
        }
        match answer {
            Ok(Followed::Seen(seen, decision)) => {
                self.note_shown(seen, start.after);
                match decision {
                    Some(decision) => Ok(decision),
                    None => self.should_compress(),
                }
            }
            // It was asked for nothing in particular, so it cannot disagree.
            Ok(_) => self.should_compress(),
            Err(error) => {
                let state = self.state();
                self.decide_without_engine(error, &state)
            }
        }
    }

    /// Notes how far the engine was shown the conversation, which it says itself where it remembers.
    fn note_shown(&mut self, seen: Option<Observed>, from: Option<MessageId>) {
        self.history.pending_cut = None;
        let end = self.history.end();
        // After a cut inside what was shown at once, an engine has no chain hash for its place.
        let nothing_shown = self.history.after(from).is_empty();
        // Of a conversation with nothing to show, an engine rightly says that it has seen nothing.
        let end_or_nothing = end.unwrap_or(Observed::NOTHING);
        let same_place = seen.map(|seen| seen.last) == Some(end_or_nothing.last);
        // Messages after it may have been lost everywhere: they cannot be shown.
        let agrees = seen.is_some_and(|seen| self.history.agrees(seen));
        let remembers = seen.is_some() && (seen == end || (nothing_shown && same_place) || agrees);
        if seen.is_some() && !remembers && !self.history.distrusted {
            self.history.distrusted = true;
            let warning = format!(
                "engine `{}` says that it has seen {}, and it was shown {}: what it says of this is not used any \
                 more. Report it to the engine's author.",
                self.engine.name(),
                place_of(seen),
                place_of(end),
            );
            self.warn(warning);
        }
        self.history
            .set_shown(if remembers { seen } else { end }, remembers);
        // A map that is only cleared keeps its room.
        self.unshown = IdMap::default();
    }

    /// One showing: the cut, the messages after a place, and the decision.
    fn show_from(
        &mut self,
        request: Option<&Request<'_>>,
        mut start: Start,
        mut expected: Option<Expected>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Result<Followed, CallError>, SessionError> {
        let mut messages = self.messages_after(request, start.after, start.cut.is_some())?;
        if let Some(first) = self.history.lacks_earlier_forms() {
            if Some(first) <= start.after {
                // The engine has seen it, and has to forget it.
                let before = self.history.before(first);
                start = Start {
                    after: before,
                    cut: Some(before),
                };
                messages = self.messages_after(request, before, true)?;
            }
            let shown: Ids = self.history.ids_to_show(start.after).into_iter().collect();
            messages.retain(|slot| shown.contains(&slot.id()));
        }
        self.renumber_after(start.after, &mut messages);
        let revisions = self.revisions_in(&messages, start.after);
        let chain = self.history.end().map_or(0, |end| end.chain);
        let shown: Ids = match self.history.lacking().is_empty() {
            true => Ids::default(),
            false => messages.iter().map(Slot::id).collect(),
        };
        // After an answer nothing is sent that a compaction could make smaller.
        let state = request.map(|_| self.rough_state());
        let mut pieces = self.pieces(messages, start.after);
        let last = pieces.pop().unwrap_or((Window::new(), chain));
        let mut cut = start.cut.map(Cut::after);
        // Much at once (a first opening, an import) is shown in pieces, for each call has its deadline.
        for piece in pieces {
            let messages = piece.0.len();
            let answer = self.show_piece(piece, &revisions, cut.take(), expected.take(), None);
            if !matches!(answer, Ok(Followed::Seen(..))) {
                return Ok(answer);
            }
            progress(messages);
        }
        let messages = last.0.len();
        let answer = self.show_piece(last, &revisions, cut, expected, state);
        progress(messages);
        if matches!(answer, Ok(Followed::Seen(..))) {
            self.history.no_longer_lacks(&shown);
        }
        Ok(answer)
    }

    /// One call of the engine: what it has seen is checked, it is shown the messages, and asked for its decision
    /// where `state` is given.
    fn show_piece(
        &mut self,
        (piece, chain): (Window, u64),
        revisions: &[(MessageId, MessageId)],
        cut: Option<Cut>,
        expected: Option<Expected>,
        state: Option<WindowState>,
    ) -> Result<Followed, CallError> {
        let ids: Ids = piece.slots().iter().map(Slot::id).collect();
        let revisions = revisions.iter().filter(|(id, _)| ids.contains(id));
        let revised: Vec<_> = revisions.copied().collect();
        let tokens = piece.slots().iter().map(Slot::most_tokens).sum();
        let allowance = Pace::Patient.with(piece.len(), tokens);
        let late = LatePiece {
            end: piece
                .slots()
                .last()
                .map(|last| Observed::through(last.id(), chain)),
            tells_cut: cut.is_some(),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&late.seen);
        let piece = Arc::new(piece);
        let counted = Arc::clone(&piece);
        let window = state.clone();
        let mut shown = self.engine.call("observe", allowance, move |engine| {
            let calls = piece.call_views(0);
            let messages = piece.views(0, &calls);
            let delivery = (cut.is_some() || !piece.is_empty()).then(|| {
                let delivery = Delivery::new(&messages, chain);
                delivery.after(cut).with_revisions(&revised)
            });
            let answer = engine.follow(&Follow::new(expected, delivery, window.as_ref()))?;
            seen.store(matches!(answer, Followed::Seen(..)), Ordering::Release);
            Ok(answer)
        });
        if let Ok(Followed::Seen(_, decision)) = &mut shown {
            match &state {
                None => *decision = Some(Decision::No("nothing is sent now".into())),
                // A yes by a rough figure needs an exact one.
                Some(state) if state.estimated => {
                    decision.take_if(|decision| decision.is_yes());
                }
                Some(_) => {}
            }
        }
        match shown {
            // An engine may ask for the tokens of what it is shown.
            Ok(_) => self.window.learn_counts(&counted),
            Err(CallError::TimedOut { .. }) => self.late_piece = Some(late),
            Err(_) => {}
        }
        shown
    }

    /// Notes that the engine has seen what it was shown in a call that was given up.
    pub(super) fn note_late(&mut self, piece: &LatePiece) {
        if piece.tells_cut {
            self.history.pending_cut = None;
        }
        let (believed, remembers) = self.history.shown();
        self.history.set_shown(piece.end.or(believed), remembers);
    }

    /// Messages in pieces, each with the chain hash after it.
    fn pieces(&self, messages: Vec<Slot>, from: Option<MessageId>) -> Vec<(Window, u64)> {
        // The messages are some of those that were logged, in the same order.
        let mut logged = self.history.after(from).iter();
        let mut pieces = Vec::new();
        let mut piece: Vec<Slot> = Vec::new();
        let mut tokens = 0;
        let mut messages = messages.into_iter().peekable();
        while let Some(slot) = messages.next() {
            let id = slot.id();
            tokens += slot.most_tokens();
            piece.push(slot);
            let is_last = messages.peek().is_none();
            if is_last || piece.len() >= PIECE_MESSAGES || tokens >= PIECE_TOKENS {
                let end = logged.find(|logged| logged.id == id);
                let chain = end.map_or(0, |logged| logged.chain);
                pieces.push((Window::of(std::mem::take(&mut piece), None, 0), chain));
                tokens = 0;
            }
        }
        pieces
    }

    /// The messages after a place, in the order of arrival: from memory, from the request, or from the engines
    /// that have or had the session. Those whose text is nowhere any more are counted and left out.
    fn messages_after(
        &mut self,
        request: Option<&Request<'_>>,
        from: Option<MessageId>,
        again: bool,
    ) -> Result<Vec<Slot>, SessionError> {
        let ids = self.history.ids_to_show(from);
        let Some(first) = ids.iter().min().copied() else {
            return Ok(Vec::new());
        };
        let new = || ids.iter().map(|id| self.unshown.get(id).cloned());
        if !again && let Some(new) = new().collect() {
            return Ok(new);
        }
        let mut missing: Ids = ids.iter().copied().collect();
        let mut at_hand = IdMap::default();
        let mut take = |slots: &mut dyn Iterator<Item = Slot>, missing: &mut Ids| {
            for slot in slots {
                if missing.remove(&slot.id()) {
                    at_hand.insert(slot.id(), slot);
                }
            }
        };
        // What is shown again is shown as the client sends it now, but where it sends only a part of the wire message
        // that is at hand.
        if let Some(request) = request.filter(|_| again) {
            let read = self.slots_of(request, &IdMap::default(), |id| missing.contains(&id))?;
            let is_whole = |slot: &Slot| {
                let known = self.unshown.get(&slot.id());
                slot.is_original() && known.is_none_or(|known| known.views() <= slot.views())
            };
            take(&mut read.into_values().filter(is_whole), &mut missing);
        }
        let window = Arc::clone(&self.window);
        take(&mut self.unshown.values().cloned(), &mut missing);
        let verbatim = window
            .slots()
            .iter()
            .filter(|slot| slot.id() >= first && slot.is_verbatim());
        take(&mut verbatim.cloned(), &mut missing);
        if let Some(request) = request.filter(|_| !again && !missing.is_empty()) {
            let read = self.slots_of(request, &IdMap::default(), |id| missing.contains(&id))?;
            take(
                &mut read.into_values().filter(Slot::is_original),
                &mut missing,
            );
        }
        if !missing.is_empty() {
            let mut recalled = self.recalled(&missing);
            // Those of one wire message are shown from one source, so that an engine sees that they are.
            recalled.retain(|id, _| missing.contains(id) || at_hand.contains_key(id));
            missing.retain(|id| !recalled.contains_key(id));
            at_hand.extend(recalled);
        }
        // An earlier form of a message is part of the conversation no more.
        let mut lost = 0;
        if !missing.is_empty() {
            let current = self.history.branch().iter();
            lost = current.filter(|known| missing.contains(&known.id)).count() as u64;
        }
        self.history.lacks(missing);
        if lost > 0 {
            self.missing += lost;
            self.warn(format!(
                "{lost} earlier messages are neither in the request nor in a store any more, so engine `{}` does \
                 not have them; what was said since is kept",
                self.engine.name()
            ));
        }
        Ok(ids.iter().filter_map(|id| at_hand.remove(id)).collect())
    }
}

fn place_of(seen: Option<Observed>) -> String {
    seen.map_or_else(
        || "nothing".to_owned(),
        |seen| format!("{} (chain {:016x})", seen.last, seen.chain),
    )
}
